"""A fusion: nodes that compute one operator together become that operator. libonq finds them."""

from __future__ import annotations

from ..._job import Job
from ..._model import proto_of
from .._guard import Guarded
from ..onnx_model import ONNXModel


class Fusion(metaclass=Guarded):
    """Puts nodes together as `fused_op_type`. It changes the model that it is given."""

    _guarded = {"fuse": "a fusion of your own changes the nodes of an ONNXModel itself"}

    def __init__(self, model: ONNXModel, fused_op_type: str, search_op_type: str):
        """
        Args:
            model: the model.
            fused_op_type: the operator that is made.
            search_op_type: an operator that is among those it replaces.
        """
        self.model = model
        self.fused_op_type = fused_op_type
        self.search_op_type = search_op_type

    def apply(self) -> bool:
        """Replaces all that are found. True if there were any."""
        if not any(node.op_type == self.search_op_type for node in self.model.nodes()):
            return False
        with Job("preprocess") as job:
            job.set_model("input", self.model.model)
            job.want_bytes("output", "fused")
            job.add("fuse", [self.fused_op_type])
            result = job.run()
        if not result.data["fused"]:
            return False
        self.model.model.CopyFrom(proto_of(result.files["output"]))
        return True
