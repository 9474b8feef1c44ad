"""Nodes put together as Gelu."""

from ..onnx_model import ONNXModel
from .fusion import Fusion


class FusionGelu(Fusion):
    """Finds the nodes around Erf that compute Gelu, and replaces them by Gelu of com.microsoft."""

    def __init__(self, model: ONNXModel):
        super().__init__(model, "Gelu", "Erf")
