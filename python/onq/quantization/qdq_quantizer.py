"""QDQQuantizer: QuantizeLinear and DequantizeLinear pairs with ranges that are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .base_quantizer import BaseQuantizer
from .qtypes import QuantFormat

if TYPE_CHECKING:
    import onnx


class QDQQuantizer(BaseQuantizer):
    """Quantizes a model in QDQ format. The arguments are those of quantize_static; tensors_range has the ranges."""

    def __init__(self, *arguments: Any, **more: Any):
        super().__init__(*arguments, **more)
        extra = self.extra_options
        self.op_types_to_exclude_output_quantization = extra.get("OpTypesToExcludeOutputQuantization", [])
        self.add_qdq_pair_to_weight = extra.get("AddQDQPairToWeight", False)
        self.quantize_bias = extra.get("QuantizeBias", True)
        self.dedicated_qdq_pair = extra.get("DedicatedQDQPair", False)
        self.qdq_op_type_per_channel_support_to_axis = extra.get("QDQOpTypePerChannelSupportToAxis", {})
        self.qdq_keep_removable_activations = extra.get("QDQKeepRemovableActivations", False)
        self.block_size = extra.get("BlockSize", 0)

    def quantize_model(self) -> onnx.ModelProto:
        """Quantizes; the result is returned, and `model` wraps it from now on."""
        self.model.model = self._static(QuantFormat.QDQ)
        return self.model.model
