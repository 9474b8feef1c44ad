"""ONNXQuantizer: quantized operators, with ranges that are known or computed while the model runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._job import Job
from ._options import set_choice
from .base_quantizer import BaseQuantizer, QuantizationParams  # noqa: F401
from .calibrate import TensorData  # noqa: F401
from .onnx_model import ONNXModel  # noqa: F401
from .qtypes import QuantFormat, QuantizationMode
from .quant_utils import (  # noqa: F401 - names that programs import from here
    DEQUANT_OP_NAME,
    QUANT_OP_NAME,
    TENSOR_NAME_QUANT_SUFFIX,
    QuantizedValue,
    QuantizedValueType,
    add_infer_metadata,
    attribute_to_kwarg,
    compute_scale_zp,
    compute_scale_zp_float8,
    find_by_name,
    get_qmin_qmax_for_qType,
    get_qrange_for_qType,
    ms_domain,
    quantize_onnx_initializer,
    save_and_reload_model_with_shape_infer,
    snap_zero_point_to_uint8,
    tensor_proto_to_array,
)
from .registry import CreateOpQuantizer  # noqa: F401

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
    ) -> None:
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

    # ---- questions about the model

    def has_QDQ_nodes(self) -> bool:  # noqa: N802
        """True if the model has QuantizeLinear or DequantizeLinear already."""
        return any(node.op_type in (QUANT_OP_NAME, DEQUANT_OP_NAME) for node in self.model.nodes())

    def find_initializer_in_path(self, initializer_name: str) -> bool:
        """True if an initializer of the main graph has the name."""
        return self.is_input_a_initializer(initializer_name)

    def get_tensor_type(self, tensor_name: str, mandatory: bool = False) -> int | None:
        """The number of a tensor's type, None where it is not known; if it is mandatory DefaultTensorType, or an error."""
        weight = find_by_name(tensor_name, self.model.initializer())
        if weight is not None:
            return weight.data_type
        info = self.value_infos.get(tensor_name)
        number = info.type.tensor_type.elem_type if info is not None and info.type.HasField("tensor_type") else None
        if number or not mandatory:
            return number
        if "DefaultTensorType" not in self.extra_options:
            raise RuntimeError(f"the type of tensor {tensor_name!r} is not known; extra_options['DefaultTensorType'] gives it one")
        return self.extra_options["DefaultTensorType"]

    def contains_tensor(self, tensor_name: str) -> bool:
        """True if an input or a node makes the tensor."""
        return tensor_name in self.value_infos or any(tensor_name in node.output for node in self.model.nodes())

    # ---- the work

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
        if not integer:
            return self._static(QuantFormat.QOperator)
        self.model.model = self._dynamic()
        return self.model.model
