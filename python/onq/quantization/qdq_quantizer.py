"""QDQQuantizer: QuantizeLinear and DequantizeLinear pairs with ranges that are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from . import quant_utils
from .base_quantizer import BaseQuantizer, QuantizationParams
from .calibrate import TensorData  # noqa: F401
from .qtypes import NARROW_TYPES, WIDE_TYPES, QuantFormat, quant_type_of
from .quant_utils import (  # noqa: F401 - names that programs import from here
    DEQUANT_OP_NAME,
    QUANT_OP_NAME,
    QuantizedValue,
    QuantizedValueType,
    add_dequant_output_suffix,
    add_dequant_suffix,
    add_quant_input_suffix,
    add_quant_output_suffix,
    add_quant_suffix,
    compute_data_quant_params,
    compute_scale_zp,
    compute_scale_zp_blocked,
    compute_scale_zp_float8,
    find_by_name,
    get_qmin_qmax_for_qType,
    ms_domain,
    normalize_axis,
    quantize_onnx_initializer,
    snap_zero_point_to_uint8,
    tensor_proto_to_array,
)
from .registry import CreateQDQQuantizer  # noqa: F401

if TYPE_CHECKING:
    import onnx

    from .calibrate import TensorsData

# ---- what the reference notes of tensors; programs with quantizers of their own use these classes


class QDQQuantTensorType(Enum):
    """What a tensor is."""

    ACTIVATION = 0
    WEIGHT = 1
    BIAS = 2


@dataclass
class QDQQuantParamProvider:
    """The input of a node whose parameters an output takes over."""

    input_name: str
    node_name: str


class QDQTensorQuantInfo:
    """A tensor that is to be quantized."""

    def __init__(
        self,
        tensor_type: QDQQuantTensorType = QDQQuantTensorType.ACTIVATION,
        quant_para_provider: QDQQuantParamProvider | None = None,
        axis: int | None = None,
        data_type: int | None = None,
    ):
        if data_type is None:
            raise AssertionError("data_type must be given")
        self.tensor_type = tensor_type
        self.quant_para_provider = quant_para_provider
        self.axis = axis
        self.is_shared = quant_para_provider is not None
        self.data_type = data_type


@dataclass
class QDQBiasQuantInfo:
    """A bias that is to be quantized, with the tensors that give its scale."""

    node_name: str
    input_name: str
    weight_name: str
    beta: float


class _Converted:
    """Something of a tensor as it is made, and as some of its readers get it."""

    original: Any
    converted: Any
    converted_recv_nodes: set[str] | None

    def get_for_consumer(self, consumer_node_name: str) -> Any:
        """What a node gets."""
        if self.converted is None:
            return self.original
        to_all = self.converted_recv_nodes is None
        return self.converted if to_all or consumer_node_name in self.converted_recv_nodes else self.original


@dataclass
class QDQTensorQuantParams(_Converted):
    """Scale and zero point of a tensor."""

    original: QuantizationParams
    converted: QuantizationParams | None
    converted_recv_nodes: set[str] | None


@dataclass
class QDQScaleZpInitializers:
    """The initializers of a scale and a zero point."""

    scale: onnx.TensorProto
    zero_point: onnx.TensorProto


@dataclass
class QDQTensorScaleZpInitializers:
    """The initializers of a tensor's parameters."""

    original: QDQScaleZpInitializers
    converted: QDQScaleZpInitializers | None
    converted_recv_nodes: set[str] | None


@dataclass
class QDQTensorQuantizedValue(_Converted):
    """The quantized form of a tensor."""

    original: QuantizedValue
    converted: QuantizedValue | None
    converted_recv_nodes: set[str] | None


# ---- the quantizer


class QDQQuantizer(BaseQuantizer):
    """Quantizes a model in QDQ format. The arguments are those of quantize_static; tensors_range has the ranges."""

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
        extra = self.extra_options
        self.op_types_to_exclude_output_quantization = extra.get("OpTypesToExcludeOutputQuantization", [])
        self.add_qdq_pair_to_weight = extra.get("AddQDQPairToWeight", False)
        self.quantize_bias = extra.get("QuantizeBias", True)
        self.dedicated_qdq_pair = extra.get("DedicatedQDQPair", False)
        self.qdq_op_type_per_channel_support_to_axis = extra.get("QDQOpTypePerChannelSupportToAxis", {})
        self.qdq_keep_removable_activations = extra.get("QDQKeepRemovableActivations", False)
        self.qdq_disable_weight_adjust_for_int32_bias = extra.get("QDQDisableWeightAdjustForInt32Bias", False)
        self.block_size = extra.get("BlockSize", 0)
        types = {quant_type_of(self.activation_qType), quant_type_of(self.weight_qType), *self.tensor_quant_override_qtypes}
        needs_21 = self.opset_version < 21 and bool(types & (WIDE_TYPES | NARROW_TYPES))
        self.qdq_op_domain = ms_domain if extra.get("UseQDQContribOps", False) or needs_21 else None

    def quantize_model(self) -> onnx.ModelProto:
        """Quantizes; the result is returned, and `model` wraps it from now on."""
        return self._static(QuantFormat.QDQ)

def __getattr__(name: str) -> Any:
    if name == "ONNX_TYPE_TO_NP_TYPE":  # made when it is asked for: it needs ml_dtypes
        return quant_utils.ONNX_TYPE_TO_NP_TYPE
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
