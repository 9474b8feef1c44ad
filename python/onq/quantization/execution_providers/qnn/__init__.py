"""Models for Qualcomm's QNN execution provider: preparing them, and a configuration to quantize them with."""

from . import fusion_lpnorm, fusion_spacetodepth  # noqa: F401 - modules that the reference imports here
from .preprocess import qnn_preprocess_model
from .quant_config import get_qnn_qdq_config

__all__ = ["get_qnn_qdq_config", "qnn_preprocess_model"]
