"""Nodes put together as one operator."""

from .fusion import Fusion
from .fusion_gelu import FusionGelu
from .fusion_layernorm import FusionLayerNormalization
from .replace_upsample_with_resize import ReplaceUpsampleWithResize

__all__ = ["Fusion", "FusionGelu", "FusionLayerNormalization", "ReplaceUpsampleWithResize"]
