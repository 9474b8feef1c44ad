"""What the quantizer objects have in common: a model, its types, and what to quantize."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .onnx_model import ONNXModel
from .qtypes import quant_type_of
from .quant_utils import get_opset_version
from .tensor_quant_overrides import TensorQuantOverridesHelper

if TYPE_CHECKING:
    import onnx

    from .calibrate import TensorsData


class BaseQuantizer:
    """Holds the arguments of a quantization. `model` is an ONNXModel; quantize_model changes what it wraps."""

    def __init__(
        self,
        model: onnx.ModelProto,
        per_channel: bool,
        reduce_range: bool,
        weight_qType,  # noqa: N803
        activation_qType,  # noqa: N803
        tensors_range: TensorsData | Mapping[str, Any] | None,
        nodes_to_quantize: Sequence[str] | None,
        nodes_to_exclude: Sequence[str] | None,
        op_types_to_quantize: Sequence[str] | None,
        extra_options: Mapping[str, Any] | None = None,
    ):
        self.model = ONNXModel(model)
        self.opset_version = get_opset_version(model)
        self.per_channel = per_channel
        self.reduce_range = reduce_range
        self.weight_qType = quant_type_of(weight_qType).tensor_type
        self.activation_qType = quant_type_of(activation_qType).tensor_type
        self.tensors_range = tensors_range
        self.nodes_to_quantize = nodes_to_quantize
        self.nodes_to_exclude = nodes_to_exclude
        self.op_types_to_quantize = op_types_to_quantize
        self.extra_options = dict(extra_options or {})
        self.enable_subgraph_quantization = bool(self.extra_options.get("EnableSubgraph"))
        self.force_quantize_no_input_check = bool(self.extra_options.get("ForceQuantizeNoInputCheck"))
        self.tensor_quant_overrides = TensorQuantOverridesHelper(self.extra_options.get("TensorQuantOverrides") or {})

    def _static(self, quant_format) -> onnx.ModelProto:
        from .quantize import quantize_with_ranges

        return quantize_with_ranges(
            self.model.model,
            self.tensors_range,
            quant_format=quant_format,
            activation_type=self.activation_qType,
            weight_type=self.weight_qType,
            per_channel=self.per_channel,
            reduce_range=self.reduce_range,
            op_types_to_quantize=self.op_types_to_quantize,
            nodes_to_quantize=self.nodes_to_quantize,
            nodes_to_exclude=self.nodes_to_exclude,
            extra_options=self.extra_options,
        )

    def quantize_model(self) -> onnx.ModelProto:
        """Quantizes; the result is returned, and `model` wraps it from now on."""
        raise NotImplementedError
