"""Nodes put together as LayerNormalization."""

from ..onnx_model import ONNXModel
from .fusion import Fusion


class FusionLayerNormalization(Fusion):
    """Finds the nodes around ReduceMean that compute LayerNormalization, and replaces them."""

    def __init__(self, model: ONNXModel):
        super().__init__(model, "LayerNormalization", "ReduceMean")
