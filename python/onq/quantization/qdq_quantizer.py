"""QDQQuantizer: QuantizeLinear and DequantizeLinear pairs with ranges that are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base_quantizer import BaseQuantizer
from .qtypes import QuantFormat

if TYPE_CHECKING:
    import onnx


class QDQQuantizer(BaseQuantizer):
    """Quantizes a model in QDQ format. The arguments are those of quantize_static; tensors_range has the ranges."""

    def quantize_model(self) -> onnx.ModelProto:
        """Quantizes; the result is returned, and `model` wraps it from now on."""
        self.model.model = self._static(QuantFormat.QDQ)
        return self.model.model
