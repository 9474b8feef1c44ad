"""The old name of matmul_nbits_quantizer, which scripts for onnxruntime before 1.22 import. It is deprecated."""

from __future__ import annotations

import warnings
from typing import Any

from . import matmul_nbits_quantizer as _now
from .matmul_nbits_quantizer import *  # noqa: F403
from .matmul_nbits_quantizer import MatMulNBitsQuantizer

warnings.warn(
    f"{__name__} is the old name of {_now.__name__}; import from there", DeprecationWarning, stacklevel=2
)


class MatMul4BitsQuantizer(MatMulNBitsQuantizer):
    """MatMulNBitsQuantizer with 4 bits, by its old arguments."""

    def __init__(self, model: Any, block_size: int = 128, *arguments: Any, **more: Any):
        super().__init__(model, 4, block_size, *arguments, **more)


def __getattr__(name: str) -> Any:
    return getattr(_now, name)
