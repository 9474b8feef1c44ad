"""Upsample, which ended with opset 10, as Resize."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..._model import onnx_package
from ..onnx_model import ONNXModel
from .fusion import Fusion

if TYPE_CHECKING:
    import onnx


class ReplaceUpsampleWithResize(Fusion):
    """Replaces every Upsample by the Resize that computes the same."""

    def __init__(self, model: ONNXModel, opset: int):
        """
        Args:
            model: the model, which is changed.
            opset: its opset, which says where Upsample has its factors.
        """
        super().__init__(model, "Resize", "Upsample")
        self.opset = opset

    def _factors(self, node: onnx.NodeProto) -> np.ndarray | None:
        """The factors where attributes have them."""
        onnx = onnx_package()

        values = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        if self.opset > 7 and len(node.input) > 1:
            return None
        if "scales" in values:
            return np.array(values["scales"], np.float32)
        return np.array([1, 1, values.get("height_scale", 1), values.get("width_scale", 1)], np.float32)

    def _resize(self, node: onnx.NodeProto, label: str) -> list[onnx.NodeProto]:
        onnx = onnx_package()

        def constant(name: str, array: np.ndarray) -> onnx.NodeProto:
            return onnx.helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(array, name))

        factors = self._factors(node)
        nodes = [constant(f"{label}_roi", np.zeros(0, np.float32))]
        scales = node.input[1] if factors is None else f"{label}_scales"
        if factors is not None:
            nodes.append(constant(scales, factors))
        mode = next((a.s.decode() for a in node.attribute if a.name == "mode"), "nearest")
        resize = onnx.helper.make_node(
            "Resize",
            [node.input[0], nodes[0].output[0], scales],
            node.output,
            name=node.name,
            mode=mode,
            nearest_mode="floor",
            coordinate_transformation_mode="asymmetric",
        )
        return [*nodes, resize]

    def apply(self) -> bool:
        """Replaces all. True if there were any."""
        nodes: list[onnx.NodeProto] = []
        changed = False
        for i, node in enumerate(self.model.nodes()):
            if node.op_type == "Upsample":
                changed = True
                nodes += self._resize(node, node.name or f"Upsample_{i}")
            else:
                nodes.append(node)
        if changed:
            kept = [type(n).FromString(n.SerializeToString()) for n in nodes]
            del self.model.model.graph.node[:]
            self.model.model.graph.node.extend(kept)
        return changed
