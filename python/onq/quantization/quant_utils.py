"""Helpers around quantization: parameters of ranges, arrays, models.

The package onnx is imported by the functions that take or give its messages, ml_dtypes by those that need 4-bit and
float 8 types.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from .._model import onnx_package
from .qtypes import (
    FLOAT,
    FLOAT8E4M3FN,
    FLOAT8E4M3FNUZ,
    FLOAT8E5M2,
    FLOAT8E5M2FNUZ,
    FLOAT16,
    INT4,
    INT8,
    INT16,
    UINT4,
    UINT8,
    UINT16,
    WIDE_TYPES,
    QuantFormat,
    QuantizationMode,
    QuantizedValueType,
    QuantType,
)

if TYPE_CHECKING:
    import onnx

__producer__ = "onnx.quantize"
__version__ = "0.1.0"
onnx_domain = "ai.onnx"
ms_domain = "com.microsoft"
QUANT_OP_NAME = "QuantizeLinear"
QUANT_INPUT_SUFFIX = "_QuantizeLinear_Input"
DEQUANT_OP_NAME = "DequantizeLinear"
DEQUANT_OUTPUT_SUFFIX = "_DequantizeLinear_Output"
TENSOR_NAME_QUANT_SUFFIX = "_quantized"
MODEL_SIZE_THRESHOLD = 2147483648
to_array_extended = None  # of onnx before 1.18; the reference has None there too

FLOAT8_TYPES = (FLOAT8E4M3FN, FLOAT8E4M3FNUZ, FLOAT8E5M2, FLOAT8E5M2FNUZ)
_INTEGER_TYPES = (INT8, UINT8, INT16, UINT16, INT4, UINT4)

# Ranges by type: all values, those of symmetric weights, those with one bit less.
_FULL = {UINT8: (0, 255), INT8: (-128, 127), UINT16: (0, 65535), INT16: (-32768, 32767), UINT4: (0, 15), INT4: (-8, 7)}
_SYMMETRIC = {INT8: (-127, 127), INT16: (-32767, 32767)}
_REDUCED = {UINT8: (0, 127), INT8: (-64, 64), UINT16: (0, 32767), INT16: (-16384, 16384), UINT4: (0, 7), INT4: (-4, 3)}
_TABLES = {
    "ONNX_INT_TYPE_RANGE": _FULL,
    "ONNX_INT_TYPE_SYMMETRIC_RANGE": _SYMMETRIC,
    "ONNX_INT_TYPE_REDUCED_RANGE": _REDUCED,
}
_NUMPY_NAMES = {INT8: "int8", UINT8: "uint8", INT16: "int16", UINT16: "uint16"}
_ML_NAMES = {FLOAT8E4M3FN: "float8_e4m3fn", INT4: "int4", UINT4: "uint4"}


def _np_type(number: int) -> numpy.dtype:
    """numpy's type of quantized values."""
    if number in _NUMPY_NAMES:
        return numpy.dtype(_NUMPY_NAMES[number])
    import ml_dtypes

    return numpy.dtype(getattr(ml_dtypes, _ML_NAMES[number]))


def _pair(number: int, values: tuple[int, int]) -> tuple[numpy.ndarray, numpy.ndarray]:
    dtype = _np_type(number)
    return numpy.array(values[0], dtype=dtype), numpy.array(values[1], dtype=dtype)


def __getattr__(name: str) -> Any:
    if name == "ONNX_TYPE_TO_NP_TYPE":
        return {number: _np_type(number) for number in (*_NUMPY_NAMES, *_ML_NAMES)}
    if name in _TABLES:
        return {number: _pair(number, values) for number, values in _TABLES[name].items()}
    if name == "type_to_name":
        from onnx import TensorProto

        return {number: text for text, number in TensorProto.DataType.items()}
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _type_number(qtype: Any) -> int:
    """The number of a type that is given as a number or as a QuantType."""
    return getattr(qtype, "tensor_type", qtype)


# ---- parameters


def get_qmin_qmax_for_qType(qType, reduce_range=False, symmetric=False) -> tuple[numpy.ndarray, numpy.ndarray]:  # noqa: N802, N803
    """The lowest and the highest value of a quantized type, as arrays of that type.

    Args:
        qType: a number of TensorProto.DataType.
        reduce_range: with one bit less.
        symmetric: the same distance on both sides of zero, for signed types.
    """
    number = _type_number(qType)
    if number == FLOAT8E4M3FN:
        raise NotImplementedError("float 8 has no lowest and highest quantized value")
    table = _REDUCED if reduce_range else _SYMMETRIC if symmetric and number in _SYMMETRIC else _FULL
    if number not in table:
        raise ValueError(f"{qType} is not a type of quantized values (8, 16 and 4-bit integers)")
    return _pair(number, table[number])


def get_qrange_for_qType(qType, reduce_range=False, symmetric=False) -> numpy.ndarray:  # noqa: N802, N803
    """How far the highest value of a quantized type is from the lowest."""
    low, high = get_qmin_qmax_for_qType(qType, reduce_range, symmetric)
    return high - low


def normalize_axis(axis: int, rank: int) -> tuple[bool, int]:
    """Whether a tensor of this rank has the axis, and the axis counted from the first."""
    from_first = axis + rank if axis < 0 else axis
    return 0 <= from_first < rank, from_first


def compute_scale_zp(rmin, rmax, qmin, qmax, symmetric=False, min_real_range=None) -> list[numpy.ndarray]:
    """Scale and zero point that map [rmin, rmax], widened to have zero in it, to [qmin, qmax].

    Args:
        rmin, rmax: the range of real values, numpy scalars or arrays of one element.
        qmin, qmax: the range of quantized values, in their type.
        symmetric: make the real range symmetric about zero first.
        min_real_range: make the real range at least this wide.

    Returns:
        [zero_point, scale], as arrays: the zero point in the type of qmin, the scale in that of rmax.
    """
    if qmin > 0 or qmax < 0:
        raise ValueError(f"zero must be in the range of quantized values, which is {qmin} to {qmax}")
    real = rmax.dtype
    zero = numpy.array(0, dtype=real)
    rmin, rmax = numpy.minimum(rmin, zero.astype(rmin.dtype)), numpy.maximum(rmax, zero)
    if min_real_range is not None:
        rmax = max(rmax, rmin + numpy.asarray(min_real_range, dtype=rmin.dtype))
    if symmetric:
        rmax = numpy.maximum(numpy.abs(rmin), numpy.abs(rmax))
        rmin = -rmax
    # In double: the width of a finite range may overflow the type of its ends.
    width = numpy.array(rmax, dtype=numpy.float64) - numpy.array(rmin, dtype=numpy.float64)
    steps = numpy.array(qmax, dtype=numpy.float64) - numpy.array(qmin, dtype=numpy.float64)
    scale = numpy.array(width / steps)
    if scale < 0:
        raise ValueError(f"the range {rmin} to {rmax} is not a range")
    if scale < numpy.finfo(real).tiny:
        return [numpy.array(0, dtype=qmin.dtype), numpy.array(1.0, dtype=real)]
    if symmetric:
        middle = (qmin + qmax) / numpy.array(2.0, dtype=numpy.float64)
        zero_point = numpy.array(numpy.round(middle), dtype=qmin.dtype)
    else:
        zero_point = numpy.array(numpy.round(qmin - rmin / scale), dtype=qmin.dtype)
    return [zero_point, scale.astype(real)]


def snap_zero_point_to_uint8(rmin, rmax, qmin: int = 0, qmax: int = 255, min_real_range: float | None = None):
    """Parameters of uint8 activations whose zero point is the lowest value, or the middle where rmin is negative.

    Returns:
        (zero_point, scale) as uint8 and float32; the range is covered without clipping.
    """
    low, high = int(qmin), int(qmax)
    middle = (low + high + 1) // 2
    rmin, rmax = min(float(numpy.squeeze(rmin)), 0.0), max(float(numpy.squeeze(rmax)), 0.0)
    least = None
    if min_real_range is not None:
        least = float(min_real_range) / (high - low)
        if min_real_range > 0:
            rmax = max(rmax, rmin + float(min_real_range))
    zero = low if rmin >= 0.0 else middle
    if rmax <= rmin:  # both are zero: any scale will do
        scale = 1.0 / max(1, high - low)
    elif zero == low:
        scale = rmax / (high - low)
    else:
        scale = max(-rmin / (middle - low), rmax / (high - middle))
    scale = numpy.float32(scale)
    if least is not None and float(scale) < least:
        scale = least
    return numpy.array(zero, dtype=numpy.uint8), numpy.array(scale, dtype=numpy.float32)


def compute_scale_zp_float8(element_type, std) -> list[numpy.ndarray]:
    """Parameters of float 8: the deviation of the values is mapped to that of all float 8 numbers.

    Returns:
        [zero, scale], the zero in float 8, the scale in the type of `std`.
    """
    if element_type != FLOAT8E4M3FN:
        raise ValueError(f"Quantization to element_type={element_type} not implemented.")
    dtype = _np_type(FLOAT8E4M3FN)
    numbers = numpy.arange(256, dtype=numpy.uint8).view(dtype).astype(numpy.float32)
    deviation = numpy.std(numbers[numpy.isfinite(numbers)])
    return [numpy.array(0, dtype=dtype), numpy.array(std / deviation, dtype=std.dtype)]


def compute_scale_zp_blocked(
    weight: numpy.ndarray, quant_type: int, axis: int, block_size: int, symmetric: bool
) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Parameters of a matrix in blocks of `block_size` values along an axis, as opset 21 has them.

    Returns:
        (zero_points, scales), of the matrix's shape with one entry for each block along the axis.
    """
    if weight.ndim != 2:
        raise NotImplementedError(
            f"only matrices are quantized in blocks, not a tensor of rank {weight.ndim} {weight.shape} (reshape it, or "
            "quantize it per channel)"
        )
    rows = numpy.moveaxis(weight, axis, 0)
    n_blocks = -(-rows.shape[0] // block_size)
    padded = numpy.zeros((n_blocks * block_size, rows.shape[1]), dtype=weight.dtype)
    padded[: rows.shape[0]] = rows
    blocks = padded.reshape(n_blocks, block_size, -1)
    low, high = numpy.minimum(blocks.min(axis=1), 0), numpy.maximum(blocks.max(axis=1), 0)
    if symmetric:
        high = numpy.maximum(-low, high)
        low = -high
    qmin, qmax = (numpy.float64(q) for q in get_qmin_qmax_for_qType(quant_type, False, symmetric))
    scale = ((high - low).astype(numpy.float64) / (qmax - qmin)).astype(weight.dtype)
    flat = scale < numpy.finfo(weight.dtype).tiny
    scale[flat] = 1
    dtype = _np_type(_type_number(quant_type))
    if symmetric:
        zero = numpy.full(scale.shape, int(numpy.round((qmin + qmax) / 2.0)), dtype=dtype)
    else:
        exact = numpy.round(qmin - low.astype(numpy.float64) / scale.astype(numpy.float64))
        zero = numpy.clip(exact, qmin, qmax).astype(dtype)
        zero[flat] = 0
    return numpy.moveaxis(zero, 0, axis), numpy.moveaxis(scale, 0, axis)


def compute_data_quant_params(
    data: numpy.ndarray,
    quant_type: int,
    symmetric: bool,
    reduce_range: bool = False,
    min_real_range: float | None = None,
    rmin_override: float | None = None,
    rmax_override: float | None = None,
) -> tuple[numpy.ndarray, numpy.ndarray]:
    """Zero point and scale for an array: from its own range, or the one that is given."""
    if not isinstance(data, numpy.ndarray):
        raise TypeError(f"weights are given as an array, not as a {type(data).__name__}")
    if quant_type == FLOAT8E4M3FN:
        if reduce_range:
            raise RuntimeError("Unsupported option reduce_range=True for float 8.")
        zero, scale = compute_scale_zp_float8(quant_type, numpy.std(data))
        return zero, scale
    if quant_type not in _INTEGER_TYPES:
        raise ValueError(f"{quant_type} is not a type of quantized values")
    qmin, qmax = get_qmin_qmax_for_qType(quant_type, reduce_range, symmetric)
    if not len(data):
        return numpy.array(0, dtype=qmin.dtype), numpy.array(1.0, dtype=data.dtype)
    rmin = data.min() if rmin_override is None else rmin_override
    rmax = data.max() if rmax_override is None else rmax_override
    zero, scale = compute_scale_zp(
        numpy.array(rmin, dtype=data.dtype), numpy.array(rmax, dtype=data.dtype), qmin, qmax, symmetric, min_real_range
    )
    return zero, scale


# ---- arrays


def quantize_nparray(qType, arr, scale, zero_point, low=None, high=None) -> numpy.ndarray:  # noqa: N803
    """round(arr / scale) + zero_point in the quantized type, clipped to it (and to [low, high])."""
    number = _type_number(qType)
    if number not in (*_INTEGER_TYPES, FLOAT8E4M3FN):
        raise ValueError(f"{qType} is not a type of quantized values")
    if number == FLOAT8E4M3FN:
        if zero_point != 0:
            raise NotImplementedError(f"the zero point of float 8 is zero, not {zero_point!r}")
        if arr.dtype not in (numpy.float32, numpy.float16):
            raise ValueError(f"float 8 is made of float32 or float16, not of {arr.dtype}")
        top = numpy.float32(448)  # values past the largest number saturate
        real = numpy.clip((arr / scale).astype(numpy.float32), -top, top)
        return numpy.asarray(real.astype(_np_type(number)))
    qmin, qmax = get_qmin_qmax_for_qType(number)
    lowest = qmin if low is None else max(qmin, low)
    highest = qmax if high is None else min(qmax, high)
    values = numpy.asarray((arr.astype(numpy.float32) / scale).round() + zero_point)
    return numpy.asarray(numpy.clip(values, lowest, highest, out=values).astype(qmin.dtype))


def quantize_data(
    data, qType, symmetric, reduce_range=False, min_real_range=None, rmin_override=None, rmax_override=None  # noqa: N803
) -> tuple[numpy.ndarray, numpy.ndarray, numpy.ndarray]:
    """Quantizes an array with the parameters of its own range.

    Returns:
        (zero_point, scale, quantized array)
    """
    zero, scale = compute_data_quant_params(
        data, qType, symmetric, reduce_range, min_real_range, rmin_override, rmax_override
    )
    quantized = quantize_nparray(qType, data, scale, zero)
    if qType == FLOAT8E4M3FN and ((quantized.view(numpy.uint8) & 127) == 127).any():
        raise RuntimeError(f"a value between {data.min()} and {data.max()} becomes NaN in float 8")
    return zero, scale, quantized


def pack_bytes_to_4bit(src_8bit: bytes) -> bytearray:
    """Packs values of 8 bits, which fit into 4, two into a byte, the first into the lower half."""
    values = numpy.frombuffer(src_8bit, dtype=numpy.uint8) & 0xF
    packed = numpy.zeros((len(values) + 1) // 2, dtype=numpy.uint8)
    packed |= values[0::2]
    packed[: len(values) // 2] |= values[1::2] << 4
    return bytearray(packed.tobytes())


def _along(values: numpy.ndarray, axis: int, rank: int) -> numpy.ndarray:
    """Parameters of channels, to be used with a tensor of that rank."""
    shape = [1] * rank
    shape[axis] = -1
    return numpy.asarray(values).reshape(shape)


def _quantize_weight(data, number, zero_point, scale, axis, block_size) -> numpy.ndarray:
    if axis is None:
        return quantize_nparray(number, data, scale, zero_point)
    if block_size > 0:
        count = data.shape[axis]
        scale = numpy.take(numpy.repeat(scale, block_size, axis), range(count), axis)
        zero_point = numpy.take(numpy.repeat(zero_point, block_size, axis), range(count), axis)
        return quantize_nparray(number, data, scale, zero_point.astype(numpy.float32))
    zero = _along(zero_point, axis, data.ndim).astype(numpy.float32)
    return quantize_nparray(number, data, _along(scale, axis, data.ndim), zero)


def quantize_onnx_initializer(
    weight: onnx.TensorProto,
    quant_type: int,
    zero_point: numpy.ndarray,
    scale: numpy.ndarray,
    axis: int | None = None,
    quant_weight_name: str | None = None,
    block_size: int = 0,
) -> onnx.TensorProto:
    """A quantized version of an initializer.

    Args:
        weight: the float initializer.
        quant_type: the type of the result.
        zero_point, scale: parameters, one for the tensor, or one for each channel or block along `axis`.
        axis: the axis of channels or blocks.
        quant_weight_name: the name of the result; NAME_quantized by default.
        block_size: values in a block; 0: no blocks.
    """
    onnx = onnx_package()

    number = _type_number(quant_type)
    name = quant_weight_name or f"{weight.name}{TENSOR_NAME_QUANT_SUFFIX}"
    data = _quantize_weight(tensor_proto_to_array(weight), number, zero_point, scale, axis, block_size)
    data = data.reshape(weight.dims)
    if number in (INT4, UINT4):
        packed = bytes(pack_bytes_to_4bit(data.tobytes()))
        return onnx.helper.make_tensor(name, number, weight.dims, packed, raw=True)
    if number == FLOAT8E4M3FN:
        return onnx.helper.make_tensor(name, number, weight.dims, data.tobytes(), raw=True)
    return onnx.numpy_helper.from_array(data, name)


def smooth_distribution(p, eps=0.0001) -> numpy.ndarray | None:
    """A distribution without zeros: they become eps, which the other values pay for. None where all are zero."""
    zeros = p == 0
    n_zeros = int(zeros.sum())
    n_others = p.size - n_zeros
    if not n_others:
        return None
    taken = eps * float(n_zeros) / float(n_others)
    if taken >= 1.0:
        raise AssertionError(f"{n_zeros} of {p.size} values are zero: too many to smooth with eps {eps}")
    smooth = p.astype(numpy.float32)
    smooth += eps * zeros.astype(numpy.float32) + (-taken) * (~zeros).astype(numpy.float32)
    if (smooth <= 0).any():
        raise AssertionError("a smoothed value is not positive")
    return smooth


# ---- the parts of a quantization


class QuantizedInitializer:
    """A quantized weight and what it was made of."""

    def __init__(
        self, name, initializer, rmins, rmaxs, zero_points, scales, data=None, quantized_data=None, axis=None
    ) -> None:
        self.name = name
        self.initializer = initializer
        self.rmins = rmins
        self.rmaxs = rmaxs
        self.zero_points = zero_points
        self.scales = scales
        self.data = [] if data is None else data
        self.quantized_data = [] if quantized_data is None else quantized_data
        self.axis = axis


class QuantizedValue:
    """The names of a quantized value and its parameters."""

    def __init__(
        self,
        name,
        new_quantized_name,
        scale_name,
        zero_point_name,
        quantized_value_type,
        axis=None,
        node_type=None,
        node_qtype=None,
        scale_type=None,
    ) -> None:
        self.original_name = name
        self.q_name = new_quantized_name
        self.scale_name = scale_name
        self.zp_name = zero_point_name
        self.value_type = quantized_value_type
        self.axis = axis
        self.node_type = node_type
        self.node_qtype = node_qtype
        self.scale_type = scale_type


class BiasToQuantize:
    """A bias with the input and the weight that its scale comes from."""

    def __init__(self, bias_name, input_name, weight_name) -> None:
        self.bias_name = bias_name
        self.input_name = input_name
        self.weight_name = weight_name


# ---- messages of onnx


def attribute_to_kwarg(attribute) -> dict[str, Any]:
    """An attribute as a keyword argument of onnx.helper.make_node."""
    fields = (None, "f", "i", "s", "t", "g", "floats", "ints", "strings", "tensors", "graphs")
    if not 0 < attribute.type < len(fields):
        raise ValueError(f"attribute {attribute.name}: type {attribute.type} is not one of 1 to {len(fields) - 1}")
    return {attribute.name: getattr(attribute, fields[attribute.type])}


def find_by_name(item_name, item_list) -> Any:
    """The first item of this name, or None."""
    return next((item for item in item_list if item.name == item_name), None)


def get_elem_index(elem_name, elem_list) -> int:
    """The last index of an element, or -1."""
    return next((i for i in range(len(elem_list) - 1, -1, -1) if elem_list[i] == elem_name), -1)


def get_mul_node(inputs, output, name) -> onnx.NodeProto:
    """A Mul node."""
    onnx = onnx_package()

    return onnx.helper.make_node("Mul", inputs, [output], name)


def generate_identified_filename(filename: Path, identifier: str) -> Path:
    """The file name with an identifier before its suffix."""
    return filename.parent / f"{filename.stem}{identifier}{filename.suffix}"


def tensor_proto_to_array(initializer: onnx.TensorProto) -> numpy.ndarray:
    """The values of a float or float16 initializer."""
    onnx = onnx_package()

    if initializer.data_type in (FLOAT, FLOAT16):
        return onnx.numpy_helper.to_array(initializer)
    kind = onnx.TensorProto.DataType.Name(initializer.data_type)
    raise ValueError(f"weight {initializer.name}: only float types are quantized, not {kind}")


def model_has_external_data(model_path: Path) -> bool:
    """True if an initializer of the model lies in another file."""
    onnx = onnx_package()
    from onnx.external_data_helper import uses_external_data

    model = onnx.load(os.fspath(model_path), load_external_data=False)
    return any(uses_external_data(init) for init in model.graph.initializer)


def _has_property(model: onnx.ModelProto, key: str) -> bool:
    return any(p.key == key and p.value == "onnxruntime.quant" for p in model.metadata_props)


def _add_property(model: onnx.ModelProto, key: str) -> None:
    onnx = onnx_package()

    # A value that is there stays, and the new key comes first.
    properties = {key: "onnxruntime.quant"}
    properties.update({p.key: p.value for p in model.metadata_props})
    onnx.helper.set_model_props(model, properties)


def add_pre_process_metadata(model: onnx.ModelProto) -> None:
    """Marks a model as prepared for quantization."""
    _add_property(model, "onnx.quant.pre_process")


def model_has_pre_process_metadata(model: onnx.ModelProto) -> bool:
    """True if the model was prepared for quantization."""
    return _has_property(model, "onnx.quant.pre_process")


def add_infer_metadata(model: onnx.ModelProto) -> None:
    """Marks a model whose shapes were inferred."""
    _add_property(model, "onnx.infer")


def model_has_infer_metadata(model: onnx.ModelProto) -> bool:
    """True if the model's shapes were inferred."""
    return _has_property(model, "onnx.infer")


def get_opset_version(model: onnx.ModelProto) -> int:
    """The opset of ONNX's own operators."""
    versions = [o.version for o in model.opset_import if o.domain in ("", onnx_domain)]
    if len(versions) != 1:
        raise ValueError("Failed to find proper ai.onnx domain")
    return versions[0]


def load_model_with_shape_infer(model_path: Path) -> onnx.ModelProto:
    """Loads a model with shapes inferred by onnx, and marks it so."""
    onnx = onnx_package()

    path = Path(model_path)
    with tempfile.TemporaryDirectory(prefix=".onq.", dir=path.parent) as folder:
        inferred = Path(folder) / "inferred.onnx"
        onnx.shape_inference.infer_shapes_path(os.fspath(path), os.fspath(inferred))
        model = onnx.load(os.fspath(inferred), load_external_data=False)
    onnx.load_external_data_for_model(model, os.fspath(path.parent))
    add_infer_metadata(model)
    return model


def save_and_reload_model_with_shape_infer(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy of a model with shapes inferred by onnx, and marked so."""
    onnx = onnx_package()

    with tempfile.TemporaryDirectory(prefix="onq.") as folder:
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        path = Path(folder) / "model.onnx"
        onnx.save_model(copy, os.fspath(path), save_as_external_data=True)
        return load_model_with_shape_infer(path)


def _overrides_use_16_bits(overrides: Mapping | None) -> bool:
    try:
        entries = [entry for channels in (overrides or {}).values() for entry in channels]
        return any(
            entry.get("quant_type") in WIDE_TYPES or (entry.get("convert") or {}).get("quant_type") in WIDE_TYPES
            for entry in entries
        )
    except (AttributeError, TypeError):
        return False  # of another form: whoever uses them says so


def _opset_for(opset: int, weight: int, activation: int | None, overrides: Mapping | None, block_size: int):
    """The opset that a quantization needs, and why."""
    wide = (INT16, UINT16)
    if opset < 21 and block_size > 0:
        return 21, "blocks of weights"
    if opset < 19 and weight == FLOAT8E4M3FN:
        return 19, "float 8"
    if opset < 21 and (weight in wide or activation in wide or _overrides_use_16_bits(overrides)):
        return 21, "16-bit types"
    if opset < 10:
        return 11, "quantization"
    return opset, "fused nodes" if opset == 10 else ""


def update_opset_version(
    model: onnx.ModelProto,
    weight_type: QuantType,
    activation_type: QuantType | None = None,
    tensor_quant_overrides: dict | None = None,
    block_size: int = 0,
) -> onnx.ModelProto:
    """The model, raised to the opset that its quantization needs."""
    opset = get_opset_version(model)
    activation = None if activation_type is None else _type_number(activation_type)
    target, why = _opset_for(opset, _type_number(weight_type), activation, tensor_quant_overrides, block_size)
    if target == opset:
        if why:
            logging.getLogger("onq").warning("opset %d has no %s; a model of opset 11 or more runs faster", opset, why)
        return model
    logging.getLogger("onq").warning("opset %d has no %s: the model is raised to opset %d", opset, why, target)
    import onnx.version_converter

    return save_and_reload_model_with_shape_infer(onnx.version_converter.convert_version(model, target))


def optimize_model(model_path: Path, opt_model_path: Path) -> None:
    """Writes the model as ONNX Runtime's basic optimisations leave it."""
    from .._job import run

    run("preprocess", input=model_path, output=opt_model_path, skip_symbolic_shape=True, skip_onnx_shape=True)


# ---- files


def apply_plot(hist, hist_edges) -> None:
    """Shows a histogram (needs matplotlib)."""
    import matplotlib.pyplot as plt

    plt.stairs(hist, hist_edges, fill=True)
    plt.xlabel("Tensor value")
    plt.ylabel("Counts")
    plt.title("Tensor value V.S. Counts")
    plt.show()


def write_calibration_table(calibration_cache, dir=".") -> None:  # noqa: A002
    """Writes ranges as TensorRT reads them: calibration.json, calibration.cache and calibration.flatbuffers.

    Args:
        calibration_cache: {tensor: TensorData}, or a TensorsData.
        dir: the folder to write to.
    """
    from ._table import flatbuffer_of
    from .calibrate import CalibrationCacheEncoder

    folder = Path(dir)
    folder.joinpath("calibration.json").write_text(json.dumps(calibration_cache, cls=CalibrationCacheEncoder), encoding="utf-8")
    rows = []
    for name in sorted(calibration_cache.keys()):
        data = calibration_cache[name]
        ends = [float(getattr(data, end).item()) if hasattr(data, end) else 0.0 for end in ("highest", "lowest")]
        rows.append((name, str(max(ends))))
    folder.joinpath("calibration.flatbuffers").write_bytes(flatbuffer_of(rows))
    folder.joinpath("calibration.cache").write_text("".join(f"{name} {value}\n" for name, value in rows), encoding="utf-8")


# ---- names


def add_quant_suffix(tensor_name: str) -> str:
    """The name of the QuantizeLinear of a tensor."""
    return f"{tensor_name}_QuantizeLinear"


def add_quant_input_suffix(tensor_name: str) -> str:
    """The name of what goes into it."""
    return f"{tensor_name}{QUANT_INPUT_SUFFIX}"


def add_quant_output_suffix(tensor_name: str) -> str:
    """The name of what comes out of it."""
    return f"{tensor_name}_QuantizeLinear_Output"


def add_dequant_suffix(tensor_name: str) -> str:
    """The name of the DequantizeLinear of a tensor."""
    return f"{tensor_name}_DequantizeLinear"


def add_dequant_input_suffix(tensor_name: str) -> str:
    """The name of what goes into it."""
    return f"{tensor_name}_DequantizeLinear_Input"


def add_dequant_output_suffix(tensor_name: str) -> str:
    """The name of what comes out of it."""
    return f"{tensor_name}{DEQUANT_OUTPUT_SUFFIX}"


