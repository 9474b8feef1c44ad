"""Nodes put together as LpNormalization."""

from ...fusions.fusion import Fusion
from ...onnx_model import ONNXModel


class FusionLpNormalization(Fusion):
    """Finds the nodes around ReduceL2 that compute LpNormalization, and replaces them."""

    def __init__(self, model: ONNXModel):
        super().__init__(model, "LpNormalization", "ReduceL2")
