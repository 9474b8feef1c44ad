"""numpy arrays as onq_tensor and back."""

from __future__ import annotations

import ctypes as c
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from . import _library as L

# ONNX's numbers of element types (TensorProto.DataType) by numpy's names; ml_dtypes has the small ones.
NUMBER_OF = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "complex64": 14,
    "complex128": 15,
    "bfloat16": 16,
    "float8_e4m3fn": 17,
    "float8_e4m3fnuz": 18,
    "float8_e5m2": 19,
    "float8_e5m2fnuz": 20,
}
_NAME_OF = {number: name for name, number in NUMBER_OF.items()}
_STRING = 8


def number_named(name: str) -> int:
    """The number of TensorProto.DataType for its name there, "FLOAT"; 0 where numpy has no counterpart."""
    if name == "STRING":
        return _STRING
    ours = {"FLOAT": "float32", "DOUBLE": "float64"}.get(name, name.lower().replace("float8", "float8_"))
    return NUMBER_OF.get(ours, 0)


def dtype_of(number: int) -> np.dtype:
    """numpy's type for a number of TensorProto.DataType."""
    if number == _STRING:
        return np.dtype(object)
    name = _NAME_OF.get(number)
    if name is None:
        raise TypeError(f"element type {number} has no counterpart in numpy")
    if number < 16:
        return np.dtype(name)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))


def _own_type(value: object) -> np.ndarray | None:
    """An object that has an element type of its own as an array: numpy's, an OrtValue, a tensor of any framework."""
    if isinstance(value, np.ndarray):
        return value
    if callable(getattr(value, "detach", None)):  # torch: a tensor that learns, or lies on another device
        value = value.detach().cpu()
    if callable(getattr(value, "numpy", None)):
        return np.asarray(value.numpy())
    if hasattr(value, "__array__") or hasattr(value, "__array_interface__"):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return np.from_dlpack(value)
    return None


def as_array(value: object, name: str, wanted: Callable[[str], np.dtype | None] = lambda _: None) -> np.ndarray:
    """What a reader gave for input `name`, as an array in the machine's byte order.

    Lists, tuples and numbers have no element type: they get the one that the model wants, as in the runtime's own
    binding. So does float64, which is what numpy computes in.
    """
    array = _own_type(value)
    if array is None or array.dtype == np.float64:
        want = wanted(name)
        try:
            array = np.asarray(value if array is None else array)
            if want is not None and array.dtype != want and (array.dtype.kind in "biuf" or array.size == 0):
                array = array.astype(want)
        except (TypeError, ValueError) as e:
            raise TypeError(f"input {name!r}: a {type(value).__name__} cannot be made a tensor of {want or 'numbers'}: {e}") from None
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype.kind in "OUS":
        want = wanted(name)
        if want is None or want.kind == "O":
            return array
        raise TypeError(f"input {name!r}: a {type(value).__name__} of {array.dtype} was given, {want} is wanted")
    if array.dtype.name in NUMBER_OF:
        return array
    raise TypeError(
        f"input {name!r}: a {type(value).__name__} of {array.dtype} was given, which no tensor has; {wanted(name) or 'another type'} is wanted"
    )


def _fill_strings(t: L.Tensor, array: np.ndarray, keep: list) -> None:
    texts = [L.text(v if isinstance(v, bytes) else str(v)) for v in array.ravel().tolist()]
    strings = (L.TEXT * max(1, len(texts)))(*texts)
    keep.append(strings)
    t.dtype = _STRING
    t.strings = c.cast(strings, c.POINTER(L.TEXT))


def fill(t: L.Tensor, name: str | None, array: np.ndarray, keep: list, *, strided: bool = False) -> None:
    """Makes `t` a view of the array. What must live as long as the view goes to `keep`."""
    if array.dtype.kind not in "OUS" and not strided and not array.flags.c_contiguous:
        array = np.ascontiguousarray(array)
    dims = (c.c_int64 * max(1, array.ndim))(*array.shape)
    text = L.text(name) if name is not None else None
    keep += [array, dims, text]
    t.name, t.rank, t.dims = text, array.ndim, c.cast(dims, c.POINTER(c.c_int64))
    t.data, t.size, t.strings, t.strides = None, 0, None, None
    if array.dtype.kind in "OUS":
        _fill_strings(t, array, keep)
        return
    t.dtype = NUMBER_OF[array.dtype.name]
    t.data, t.size = array.ctypes.data, array.nbytes
    if not array.flags.c_contiguous:
        strides = (c.c_int64 * max(1, array.ndim))(*array.strides)
        keep.append(strides)
        t.strides = c.cast(strides, c.POINTER(c.c_int64))


def fill_all(items: Mapping[str, np.ndarray] | Sequence[np.ndarray], *, strided: bool = False) -> tuple[c.Array, list]:
    """An array of onq_tensor for arrays with or without names, and what keeps it alive."""
    pairs = list(items.items()) if isinstance(items, Mapping) else [(None, a) for a in items]
    tensors = (L.Tensor * max(1, len(pairs)))()
    keep: list = [tensors]
    for t, (name, array) in zip(tensors, pairs):
        fill(t, name, array, keep, strided=strided)
    return tensors, keep


def copy_out(t: L.Tensor) -> np.ndarray:
    """A copy of a tensor of the library's."""
    shape = tuple(t.dims[i] for i in range(t.rank))
    if t.dtype == _STRING:
        count = int(np.prod(shape, dtype=np.int64))
        return np.array([L.name_of(t.strings[i]) for i in range(count)], dtype=object).reshape(shape)
    dtype = dtype_of(t.dtype)
    raw = c.string_at(t.data, t.size) if t.size else b""
    return np.frombuffer(raw, dtype).reshape(shape).copy()
