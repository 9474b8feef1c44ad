"""Nodes put together as SpaceToDepth."""

from ... import fusions, onnx_model  # noqa: F401 - modules that the reference imports here
from ...fusions.fusion import Fusion
from ...onnx_model import ONNXModel


class FusionSpaceToDepth(Fusion):
    """Finds the nodes around Reshape that compute SpaceToDepth, and replaces them."""

    def __init__(self, model: ONNXModel):
        super().__init__(model, "SpaceToDepth", "Reshape")
