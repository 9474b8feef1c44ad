"""ONNXQuantizer: quantized operators, with ranges that are known or computed while the model runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._job import Job
from ._options import set_choice
from .base_quantizer import BaseQuantizer
from .qtypes import QuantFormat, QuantizationMode

if TYPE_CHECKING:
    import onnx


class ONNXQuantizer(BaseQuantizer):
    """Quantizes a model into integer operators (IntegerOps, dynamic) or QLinear operators (QLinearOps, static)."""

    def __init__(
        self,
        model,
        per_channel,
        reduce_range,
        mode,
        static,
        weight_qType,  # noqa: N803
        activation_qType,  # noqa: N803
        tensors_range,
        nodes_to_quantize,
        nodes_to_exclude,
        op_types_to_quantize,
        extra_options=None,
    ):
        super().__init__(
            model,
            per_channel,
            reduce_range,
            weight_qType,
            activation_qType,
            tensors_range,
            nodes_to_quantize,
            nodes_to_exclude,
            op_types_to_quantize,
            extra_options,
        )
        self.mode = mode
        self.static = static
        self.q_matmul_const_b_only = bool(self.extra_options.get("MatMulConstBOnly"))

    def _dynamic(self) -> onnx.ModelProto:
        from .quantize import dynamic_job, give, set_output

        if type(self).should_quantize_node is not BaseQuantizer.should_quantize_node:
            self.model.replace_gemm_with_matmul()  # so that the hook sees the nodes that are quantized
        choice = self._choice()
        with Job("dynamic") as job:
            job.set_model("input", self.model.model)
            set_output(job, None)
            job.set("sort_nodes", False)
            # quantize_dynamic sets MatMulConstBOnly; the class does not.
            extra = {**self.extra_options, "MatMulConstBOnly": self.q_matmul_const_b_only}
            dynamic_job(job, self.weight_qType, self.per_channel, self.reduce_range, extra)
            set_choice(job, None, **choice)
            return give(job.run(), None)

    def quantize_model(self) -> onnx.ModelProto:
        """Quantizes; the result is returned, and `model` wraps it from now on."""
        integer = self.mode == QuantizationMode.IntegerOps and not self.static
        self.model.model = self._dynamic() if integer else self._static(QuantFormat.QOperator)
        return self.model.model
