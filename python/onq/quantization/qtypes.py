"""The enumerations of quantization. They print and parse as those of onnxruntime.quantization."""

from __future__ import annotations

from enum import Enum


class _Named(Enum):
    """Prints as its name, and is read from it."""

    def __str__(self) -> str:
        return self.name

    @classmethod
    def from_string(cls, text: str):
        """The member of this name; ValueError for another text."""
        try:
            return cls[text]
        except KeyError:
            known = ", ".join(m.name for m in cls)
            raise ValueError(f"{text!r} is not a {cls.__name__} (one of {known})") from None


class QuantizationMode(_Named):
    """Which operators a quantized model has."""

    IntegerOps = 0
    QLinearOps = 1


class QuantizedValueType(_Named):
    """What a quantized value is."""

    Input = 0
    Initializer = 1


class QuantFormat(_Named):
    """The form of a quantized model: quantized operators, or QuantizeLinear and DequantizeLinear pairs."""

    QOperator = 0
    QDQ = 1


class QuantType(_Named):
    """The type of quantized values."""

    QInt8 = 0
    QUInt8 = 1
    QFLOAT8E4M3FN = 2
    QInt16 = 3
    QUInt16 = 4
    QInt4 = 5
    QUInt4 = 6

    @property
    def tensor_type(self) -> int:
        """The number of the type in TensorProto.DataType."""
        return _TENSOR_TYPES[self]


WIDE_TYPES = frozenset({QuantType.QInt16, QuantType.QUInt16})
NARROW_TYPES = frozenset({QuantType.QInt4, QuantType.QUInt4})

# Numbers of TensorProto.DataType.
FLOAT, UINT8, INT8, UINT16, INT16, INT32, FLOAT16 = 1, 2, 3, 4, 5, 6, 10
FLOAT8E4M3FN, FLOAT8E4M3FNUZ, FLOAT8E5M2, FLOAT8E5M2FNUZ, UINT4, INT4 = 17, 18, 19, 20, 21, 22

_TENSOR_TYPES = {
    QuantType.QInt8: INT8,
    QuantType.QUInt8: UINT8,
    QuantType.QFLOAT8E4M3FN: FLOAT8E4M3FN,
    QuantType.QInt16: INT16,
    QuantType.QUInt16: UINT16,
    QuantType.QInt4: INT4,
    QuantType.QUInt4: UINT4,
}
_OF_TENSOR_TYPE = {number: t for t, number in _TENSOR_TYPES.items()}


def _member(kind: type[Enum], value: object, what: str):
    """A member from itself, its name, or the member of that name of another enumeration (onnxruntime's own)."""
    if isinstance(value, kind):
        return value
    name = value.rpartition(".")[2] if isinstance(value, str) else getattr(value, "name", None)
    if isinstance(name, str) and name in kind.__members__:
        return kind[name]
    raise ValueError(f"{value!r} is not {what} (one of {', '.join(f'{kind.__name__}.{m.name}' for m in kind)})")


def quant_type_of(value: object) -> QuantType:
    """A QuantType from itself, a number of TensorProto.DataType, or its name."""
    if isinstance(value, int) and value in _OF_TENSOR_TYPE:
        return _OF_TENSOR_TYPE[value]
    return _member(QuantType, value, "a quantization type")


def quant_format_of(value: object) -> QuantFormat:
    """A QuantFormat from itself or its name."""
    return _member(QuantFormat, value, "a format")


def member_of(kind: type[Enum], value: object):
    """A member of an enumeration from itself or its name."""
    return _member(kind, value, f"a {kind.__name__}")
