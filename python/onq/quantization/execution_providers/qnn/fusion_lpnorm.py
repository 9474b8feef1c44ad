"""Nodes put together as LpNormalization."""

from ...fusions.fusion import Fusion
from ...onnx_model import ONNXModel


class FusionLpNormalization(Fusion):
    """Finds the nodes around ReduceL2 that compute LpNormalization, and replaces them."""

    def __init__(self, model: ONNXModel, epsilon: float = 1e-12):
        """
        Args:
            model: the model.
            epsilon: the least norm, by which the nodes are known; 1e-12, as exporters write it.
        """
        if epsilon != 1e-12:
            raise NotImplementedError(f"onq finds LpNormalization with a least norm of 1e-12, not of {epsilon}")
        super().__init__(model, "LpNormalization", "ReduceL2")
