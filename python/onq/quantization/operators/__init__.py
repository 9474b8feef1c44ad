"""The operator classes of the reference's registries, by the names and in the modules that programs import.

libonq quantizes nodes itself. A class here says which of its rules is meant: it can be looked up, compared, called with
a quantizer and a node, and asked whether the node would be quantized. It cannot quantize one node alone, and neither
can a class derived from it: registries refuse those (registry.py).
"""

from __future__ import annotations

import importlib.machinery
import sys
from types import ModuleType
from typing import Any

from .. import quant_utils


class _Operator:
    """A node and the quantizer that it belongs to."""

    def __init__(self, onnx_quantizer: Any, onnx_node: Any):
        self.quantizer = onnx_quantizer
        self.node = onnx_node

    def quantize(self) -> None:
        """Refused: libonq quantizes all nodes of a model in one job."""
        raise NotImplementedError(
            f"{type(self).__name__}.quantize: onq quantizes whole models, not one node at a time; "
            "use quantize_static, quantize_dynamic or the quantize_model of a quantizer"
        )


class QuantOperatorBase(_Operator):
    """A node in QOperator format or in dynamic quantization."""

    def should_quantize(self) -> bool:
        """True if the quantizer's choice has the node and its input is float."""
        return self.quantizer.should_quantize_node(self.node) and self.quantizer.is_float_tensor(self.node.input[0])


class QDQOperatorBase(_Operator):
    """A node in QDQ format; operators without a class of their own get pairs at all inputs and outputs."""

    def __init__(self, onnx_quantizer: Any, onnx_node: Any):
        super().__init__(onnx_quantizer, onnx_node)
        self.disable_qdq_for_node_output = onnx_node.op_type in onnx_quantizer.op_types_to_exclude_output_quantization


# Module: the classes in it, each with its base; a base is one of the two above or a class of this table.
_CLASSES = {
    "base_operator": {},
    "qdq_base_operator": {},
    "activation": {"QLinearActivation": QuantOperatorBase, "QDQRemovableActivation": QDQOperatorBase},
    "argmax": {"QArgMax": QuantOperatorBase},
    "attention": {"AttentionQuant": QuantOperatorBase},
    "binary_op": {"QLinearBinaryOp": QuantOperatorBase},
    "concat": {"QLinearConcat": QuantOperatorBase},
    "conv": {"ConvInteger": QuantOperatorBase, "QLinearConv": QuantOperatorBase, "QDQConv": QDQOperatorBase},
    "direct_q8": {"Direct8BitOp": QuantOperatorBase, "QDQDirect8BitOp": QDQOperatorBase},
    "embed_layernorm": {"EmbedLayerNormalizationQuant": QuantOperatorBase},
    "gather": {"GatherQuant": QuantOperatorBase, "QDQGather": QDQOperatorBase},
    "gavgpool": {"QGlobalAveragePool": QuantOperatorBase},
    "lstm": {"LSTMQuant": QuantOperatorBase},
    "matmul": {
        "QOpMatMul": QuantOperatorBase,
        "MatMulInteger": "QOpMatMul",
        "QLinearMatMul": "QOpMatMul",
        "QDQMatMul": QDQOperatorBase,
    },
    "gemm": {"QLinearGemm": "QOpMatMul", "QDQGemm": QDQOperatorBase},
    "maxpool": {"QMaxPool": "Direct8BitOp", "QDQMaxPool": "QDQDirect8BitOp"},
    "norm": {"QDQNormalization": QDQOperatorBase},
    "pad": {"QPad": QuantOperatorBase, "QDQPad": QDQOperatorBase},
    "pooling": {"QLinearPool": QuantOperatorBase},
    "resize": {"QResize": "Direct8BitOp", "QDQResize": "QDQDirect8BitOp"},
    "softmax": {"QLinearSoftmax": QuantOperatorBase},
    "split": {"QSplit": QuantOperatorBase, "QDQSplit": QDQOperatorBase},
    "where": {"QLinearWhere": QuantOperatorBase, "QDQWhere": QDQOperatorBase},
}


# Names of quant_utils that the reference's modules import, and programs from there.
_SHARED = (
    "FLOAT8_TYPES",
    "QuantType",
    "QuantizedValue",
    "QuantizedValueType",
    "TENSOR_NAME_QUANT_SUFFIX",
    "attribute_to_kwarg",
    "find_by_name",
    "get_mul_node",
    "ms_domain",
    "quantize_nparray",
)


# ---- attributes of Gemm


def _attribute(node: Any, name: str) -> Any:
    return next((attribute for attribute in node.attribute if attribute.name == name), None)


def is_B_transposed(gemm_node: Any) -> bool:  # noqa: N802
    """True if transB of a Gemm is not 0."""
    attribute = _attribute(gemm_node, "transB")
    return attribute is not None and attribute.i > 0


def get_beta(gemm_node: Any) -> float:
    """beta of a Gemm, 1 where it is not given."""
    attribute = _attribute(gemm_node, "beta")
    return 1.0 if attribute is None else attribute.f


def set_default_beta(gemm_node: Any) -> float:
    """Sets beta of a Gemm to 1 where it is given."""
    attribute = _attribute(gemm_node, "beta")
    if attribute is not None:
        attribute.f = 1.0
    return 1.0


# ---- the modules


def _make_modules() -> dict[str, type]:
    """Makes a module for each row of the table; returns all classes by name."""
    classes: dict[str, type] = {}
    QuantOperatorBase.__module__, QDQOperatorBase.__module__ = f"{__name__}.base_operator", f"{__name__}.qdq_base_operator"
    for stem, members in _CLASSES.items():
        name = f"{__name__}.{stem}"
        module = ModuleType(name, f"Operator classes of the reference's {stem}.py.")
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        vars(module).update({shared: getattr(quant_utils, shared) for shared in _SHARED})
        module.QuantOperatorBase, module.QDQOperatorBase = QuantOperatorBase, QDQOperatorBase
        for member, base in members.items():
            base = classes[base] if isinstance(base, str) else base
            classes[member] = type(member, (base,), {"__module__": name, "__doc__": f"{member} of the reference's {stem}.py."})
            setattr(module, base.__name__, base)
            setattr(module, member, classes[member])
        sys.modules[name] = globals()[stem] = module
    for function in (is_B_transposed, get_beta, set_default_beta):
        setattr(sys.modules[f"{__name__}.gemm"], function.__name__, function)
    return classes


CLASSES = _make_modules()
