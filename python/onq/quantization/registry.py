"""Which operators each format quantizes: mappings with the reference's keys, in its order, to its operator classes.

IntegerOpsRegistry is what quantize_dynamic quantizes; QLinearOpsRegistry and QDQRegistry are what quantize_static
quantizes in QOperator and in QDQ format. CommonOpsRegistry is what the first two share.

A mapping may be edited before a model is quantized: an operator that is taken out is not quantized, one that is put back
is, and in QDQRegistry any operator may be added with QDQOperatorBase. What libonq has no rule for raises TypeError.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .operators import CLASSES, QDQOperatorBase, QuantOperatorBase
from .qtypes import QuantFormat, QuantizationMode

globals().update(CLASSES)

_COMMON = {"Gather": "GatherQuant", "Transpose": "Direct8BitOp", "EmbedLayerNormalization": "EmbedLayerNormalizationQuant"}
_INTEGER = {"Conv": "ConvInteger", "MatMul": "MatMulInteger", "Attention": "AttentionQuant", "LSTM": "LSTMQuant", **_COMMON}
_QLINEAR = {
    "ArgMax": "QArgMax",
    "Conv": "QLinearConv",
    "Gemm": "QLinearGemm",
    "MatMul": "QLinearMatMul",
    **dict.fromkeys(("Add", "Mul"), "QLinearBinaryOp"),
    **dict.fromkeys(("Relu", "Clip", "LeakyRelu", "Sigmoid"), "QLinearActivation"),
    "MaxPool": "QMaxPool",
    "GlobalAveragePool": "QGlobalAveragePool",
    "Split": "QSplit",
    "Pad": "QPad",
    **dict.fromkeys(("Reshape", "Squeeze", "Unsqueeze", "Flatten"), "Direct8BitOp"),
    "Resize": "QResize",
    "AveragePool": "QLinearPool",
    "Concat": "QLinearConcat",
    "Softmax": "QLinearSoftmax",
    "Where": "QLinearWhere",
    **_COMMON,
}
_QDQ = {
    **dict.fromkeys(("Conv", "ConvTranspose"), "QDQConv"),
    "Gemm": "QDQGemm",
    **dict.fromkeys(("Clip", "Relu"), "QDQRemovableActivation"),
    **dict.fromkeys(("Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten"), "QDQDirect8BitOp"),
    "Resize": "QDQResize",
    "MaxPool": "QDQMaxPool",
    **dict.fromkeys(("AveragePool", "Slice"), "QDQDirect8BitOp"),
    "Pad": "QDQPad",
    "MatMul": "QDQMatMul",
    "Split": "QDQSplit",
    **dict.fromkeys(("Gather", "GatherElements"), "QDQGather"),
    "Where": "QDQWhere",
    **dict.fromkeys(("InstanceNormalization", "LayerNormalization", "BatchNormalization"), "QDQNormalization"),
    "TopK": "QDQDirect8BitOp",
    "CumSum": "QDQOperatorBase",
}


class Registry(dict):
    """Operator types and their classes. It knows what it was made with, so that an edit has its effect or raises."""

    def __init__(self, name: str, rows: dict[str, str]):
        super().__init__({op: QDQOperatorBase if c == "QDQOperatorBase" else CLASSES[c] for op, c in rows.items()})
        self._name = name
        self._whole = dict(self)

    def __setitem__(self, op_type: str, operator: Any) -> None:
        known = self._whole.get(op_type)
        general = self._name == "QDQRegistry" and known is None and operator is QDQOperatorBase
        if operator is not known and not general:
            name = getattr(operator, "__name__", repr(operator))
            raise TypeError(
                f"{self._name}[{op_type!r}] = {name}: onq quantizes nodes by its own rules and cannot run this class; "
                "leave single nodes float with nodes_to_exclude, or change parameters with TensorQuantOverrides"
            )
        super().__setitem__(op_type, operator)

    def update(self, *others: Any, **more: Any) -> None:
        for op_type, operator in dict(*others, **more).items():
            self[op_type] = operator

    def __ior__(self, other: Any) -> Registry:
        self.update(other)
        return self

    def setdefault(self, op_type: str, operator: Any = None) -> Any:
        if op_type not in self:
            self[op_type] = operator
        return self[op_type]

    @property
    def edited(self) -> bool:
        """True if it is not as it was made."""
        return dict(self) != self._whole

    def lacks(self, op_type: str) -> bool:
        """True if an operator type was taken out."""
        return op_type in self._whole and op_type not in self


CommonOpsRegistry = Registry("CommonOpsRegistry", _COMMON)
IntegerOpsRegistry = Registry("IntegerOpsRegistry", _INTEGER)
QLinearOpsRegistry = Registry("QLinearOpsRegistry", _QLINEAR)
QDQRegistry = Registry("QDQRegistry", _QDQ)


def _static_types(op_types: list[str], quant_format: Any) -> list[str]:
    if quant_format == QuantFormat.QOperator:
        return [op for op in op_types if not QLinearOpsRegistry.lacks(op)]
    for op in op_types:
        if QDQRegistry.lacks(op):
            raise NotImplementedError(
                f"QDQRegistry has no {op} any more, but {op} is still to be quantized: the reference would then quantize it "
                "as an operator that it does not know, and onq cannot; take it out of op_types_to_quantize and of "
                "QLinearOpsRegistry too"
            )
    return op_types


def op_types_for(quant_format: Any, op_types: Iterable[str] | None) -> list[str] | None:
    """The operator types for a job: those given, or all, less what the registries lack; None leaves it to libonq.

    `quant_format` is a QuantFormat, or None for dynamic quantization.
    """
    given = list(op_types or ())
    if quant_format is None:
        if not IntegerOpsRegistry.edited:
            return given or None
        return [op for op in given or IntegerOpsRegistry if not IntegerOpsRegistry.lacks(op)]
    if not (QLinearOpsRegistry.edited or QDQRegistry.edited):
        return given or None
    return _static_types(given or list(dict.fromkeys([*QLinearOpsRegistry, *QDQRegistry])), quant_format)


# ---- what makes operator objects, as the reference's quantizers do


def CreateDefaultOpQuantizer(onnx_quantizer: Any, node: Any) -> QuantOperatorBase:  # noqa: N802
    """An object for a node that stays float."""
    return QuantOperatorBase(onnx_quantizer, node)


def CreateOpQuantizer(onnx_quantizer: Any, node: Any) -> QuantOperatorBase:  # noqa: N802
    """An object of the class that the registry of the quantizer's mode has for a node, if it would be quantized."""
    registry = IntegerOpsRegistry if onnx_quantizer.mode == QuantizationMode.IntegerOps else QLinearOpsRegistry
    if node.op_type in registry:
        operator = registry[node.op_type](onnx_quantizer, node)
        if operator.should_quantize():
            return operator
    return QuantOperatorBase(onnx_quantizer, node)


def CreateQDQQuantizer(onnx_quantizer: Any, node: Any) -> QDQOperatorBase:  # noqa: N802
    """An object of the class that QDQRegistry has for a node."""
    return QDQRegistry.get(node.op_type, QDQOperatorBase)(onnx_quantizer, node)
