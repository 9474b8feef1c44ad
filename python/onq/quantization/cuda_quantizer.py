"""Weights in the layout of CUDA's mixed GEMM (MatMulNBits with weight_prepacked=1), made without CUDA.

The layout is a permutation: rows as the tensor cores read them, columns interleaved on architectures before 90, and
values in the order in which they are turned into floats.
"""

from __future__ import annotations

import numpy as np


def _unpack(q_weights: np.ndarray, n: int, k: int, bits: int) -> np.ndarray:
    raw = np.ascontiguousarray(q_weights).view(np.uint8).reshape(n, k * bits // 8)
    if bits == 8:
        return raw
    values = np.empty((n, k), np.uint8)
    values[:, 0::2], values[:, 1::2] = raw & 0xF, raw >> 4
    return values


def pack_weights_for_cuda_mixed_gemm(q_weights, n: int, k: int, bits: int, force_arch: int = 80) -> np.ndarray:
    """Unsigned weights of MatMulNBits in the order of the mixed GEMM.

    Args:
        q_weights: the weights, (N, K / values in a byte).
        n, k: columns and rows of the weight.
        bits: 4 or 8.
        force_arch: the architecture to pack for, 80 or 90.

    Returns:
        A flat int8 array of as many bytes.
    """
    if bits not in (4, 8):
        raise ValueError(f"bits must be 4 or 8, got {bits}.")
    if force_arch not in (80, 90):
        raise ValueError(f"force_arch must be 80 (SM80) or 90 (SM90), got {force_arch}.")
    group = 128 // bits  # rows that one instruction reads
    if k % group or n % (64 // bits) or (force_arch < 90 and k % 64):
        raise ValueError(f"a weight of {k} rows and {n} columns does not fill the tiles of the mixed GEMM")
    values = _unpack(q_weights, n, k, bits)
    pairs = np.arange(group) // 2
    order = ((pairs % (group // 8)) * 4 + pairs // (group // 8)) * 2 + np.arange(group) % 2
    values = values.reshape(n, k // group, group)[:, :, order]
    if force_arch < 90:
        columns = 16 // bits
        values = values.reshape(n // columns, columns, k // 64, 64).transpose(0, 2, 1, 3)
    words = values.reshape(-1, 32 // bits)  # of 32 bits: even values first, then odd ones
    flat = np.concatenate([words[:, 0::2], words[:, 1::2]], axis=1).ravel()
    if bits == 4:
        flat = flat[0::2] | flat[1::2] << 4
    return flat.view(np.int8)


def has_cuda_weight_prepacking() -> bool:
    """True: packing needs no CUDA."""
    return True


_pack_weights_for_cuda_mixed_gemm = pack_weights_for_cuda_mixed_gemm
