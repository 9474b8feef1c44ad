"""get_qnn_qdq_config: a configuration whose result QNN takes."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...calibrate import CalibrationDataReader, CalibrationMethod
from ...qtypes import NARROW_TYPES, WIDE_TYPES, QuantType
from ...quant_utils import MODEL_SIZE_THRESHOLD, get_opset_version  # noqa: F401 - the first for programs
from ...quantize import StaticQuantConfig, load_for_config
from ...tensor_quant_overrides import TensorQuantOverridesHelper
from .mixed_precision_overrides_utils import MixedPrecisionTensorQuantOverridesFixer

if TYPE_CHECKING:
    import onnx

Q16_TYPES = set(WIDE_TYPES)
Q8_TYPES = {QuantType.QInt8, QuantType.QUInt8}
Q4_TYPES = set(NARROW_TYPES)
OP_TYPES_TO_EXCLUDE = {"Cast"}

# Scale and zero point that QNN wants for 16-bit outputs.
_FIXED = {
    ("Sigmoid", QuantType.QUInt16): (1.0 / 65536.0, 0, np.uint16),
    ("Sigmoid", QuantType.QInt16): (1.0 / 32768.0, 0, np.int16),
    ("Tanh", QuantType.QUInt16): (1.0 / 32768.0, 32768, np.uint16),
    ("Tanh", QuantType.QInt16): (1.0 / 32768.0, 0, np.int16),
}


def warn_unable_to_override(node: onnx.NodeProto, what_str: str, tensor_name: str, io_kind: str) -> None:
    """Warns of an override that stays, although QNN wants another."""
    logging.getLogger("onq").warning(
        "%s of %s '%s' of node '%s' (%s) stays as its override says, which QNN may refuse",
        what_str,
        io_kind,
        tensor_name,
        node.name,
        node.op_type,
    )


class QnnCompatibilityOverrides:
    """Adds overrides for nodes that QNN takes with certain types or parameters only."""

    def __init__(
        self,
        default_activation_qtype: QuantType,
        default_weight_qtype: QuantType,
        activation_symmetric: bool,
        weight_symmetric: bool,
        per_channel: bool,
        overrides: TensorQuantOverridesHelper,
        initializers: dict[str, onnx.TensorProto],
    ):
        self.default_activation_qtype = default_activation_qtype
        self.default_weight_qtype = default_weight_qtype
        self.activation_symmetric = activation_symmetric
        self.weight_symmetric = weight_symmetric
        self.per_channel = per_channel
        self.overrides = overrides
        self.initializers = initializers

    def process_node(self, node: onnx.NodeProto) -> None:
        """Adds the overrides of one node."""
        if node.op_type in ("Sigmoid", "Tanh"):
            self._fix_output(node)
        elif node.op_type == "MatMul" and self.per_channel:
            self._keep_per_tensor(node)
        elif node.op_type in ("MatMul", "LayerNormalization") and not self.per_channel:
            self._weight_beside_16_bits(node)

    def _weight_type(self) -> dict[str, Any]:
        return {"quant_type": self.default_weight_qtype, "symmetric": self.weight_symmetric}

    def _fix_output(self, node: onnx.NodeProto) -> None:
        kind = self.overrides.get_node_output_qtype_info(node.output[0], self.default_activation_qtype).quant_type
        if (node.op_type, kind) not in _FIXED:
            return
        scale, zero, dtype = _FIXED[node.op_type, kind]
        values = {"scale": np.array(scale, dtype=np.float32), "zero_point": np.array(zero, dtype=dtype)}
        self.overrides.update_tensor_overrides(node.output[0], {"quant_type": kind, **values})

    def _keep_per_tensor(self, node: onnx.NodeProto) -> None:
        """QNN has no MatMul per channel."""
        for name in node.input:
            if name in self.initializers and name not in self.overrides:
                self.overrides.update_tensor_overrides(name, self._weight_type())

    def _weight_beside_16_bits(self, node: onnx.NodeProto) -> None:
        """A constant input next to a 16-bit activation gets the 8-bit type of weights."""
        if self.default_weight_qtype not in Q8_TYPES:
            return
        weight, wide = None, False
        for name in node.input[:2]:
            if not name:
                continue
            constant = name in self.initializers
            default = None if constant else self.default_activation_qtype
            seen = self.overrides.get_node_input_qtype_info(name, node.name, default)
            if seen.axis is not None:
                return
            if constant:
                if (seen.quant_type, seen.symmetric) == (self.default_weight_qtype, self.weight_symmetric):
                    return
                weight = name
            else:
                wide = wide or seen.quant_type in WIDE_TYPES
        if not wide or weight is None:
            return
        if not self.overrides.update_tensor_overrides(weight, self._weight_type(), overwrite=False):
            warn_unable_to_override(node, "quant_type", weight, "input weight")


def get_qnn_qdq_config(
    model_input: str | Path | onnx.ModelProto,
    calibration_data_reader: CalibrationDataReader,
    calibrate_method: CalibrationMethod = CalibrationMethod.MinMax,
    activation_type: QuantType = QuantType.QUInt8,
    weight_type: QuantType = QuantType.QUInt8,
    per_channel: bool = False,
    init_overrides: dict[str, list[dict[str, Any]]] | None = None,
    add_qtype_converts: bool = True,
    activation_symmetric: bool = False,
    weight_symmetric: bool | None = None,
    keep_removable_activations: bool = False,
    stride: int | None = None,
    calibration_providers: list[str] | None = None,
    op_types_to_quantize: list[str] | None = None,
    nodes_to_exclude: list[str] | None = None,
) -> StaticQuantConfig:
    """A configuration that quantizes all operators of a model as QNN takes them.

    Args:
        model_input: a path or a ModelProto.
        calibration_data_reader: gives samples.
        calibrate_method: how ranges are found.
        activation_type, weight_type: types of activations and weights.
        per_channel: quantize weights of Conv and ConvTranspose per channel.
        init_overrides: overrides of single tensors, which are completed here.
        add_qtype_converts: add conversions where the overrides mix types.
        activation_symmetric, weight_symmetric: symmetric ranges; weights of signed types have them by default.
        keep_removable_activations: keep Relu and Clip where a range could replace them.
        stride: samples that are collected at a time (CalibStridedMinMax).
        calibration_providers: execution providers for running the model.
        op_types_to_quantize: operator types; by default all but Cast.
        nodes_to_exclude: names of nodes that stay float.

    Returns:
        A StaticQuantConfig for quantize.
    """
    if weight_symmetric is None:
        weight_symmetric = weight_type in (QuantType.QInt8, QuantType.QInt16)
    model, external = load_for_config(model_input)
    overrides = TensorQuantOverridesHelper(copy.deepcopy(init_overrides or {}))
    if add_qtype_converts and not overrides.empty():
        fixer = MixedPrecisionTensorQuantOverridesFixer.create_from_model(overrides, model, activation_type)
        fixer.apply(activation_type, activation_symmetric)
    initializers = {init.name: init for init in model.graph.initializer}
    compatible = QnnCompatibilityOverrides(
        activation_type, weight_type, activation_symmetric, weight_symmetric, per_channel, overrides, initializers
    )
    op_types: dict[str, None] = {}
    for node in model.graph.node:
        if op_types_to_quantize and node.op_type not in op_types_to_quantize:
            continue
        if node.name in (nodes_to_exclude or ()):
            continue
        op_types[node.op_type] = None
        compatible.process_node(node)
    op_types.pop("Cast", None)
    options: dict[str, Any] = {
        "MinimumRealRange": 0.0001,
        "DedicatedQDQPair": False,
        "QDQKeepRemovableActivations": keep_removable_activations,
        "TensorQuantOverrides": overrides.get_dict(),
        "ActivationSymmetric": activation_symmetric,
        "WeightSymmetric": weight_symmetric,
        "CalibStridedMinMax": stride,
    }
    types = {activation_type, weight_type} | overrides.get_quant_types()
    if get_opset_version(model) < 21 and types & (WIDE_TYPES | NARROW_TYPES):
        options["UseQDQContribOps"] = True
    return StaticQuantConfig(
        calibration_data_reader,
        calibrate_method=calibrate_method,
        activation_type=activation_type,
        weight_type=weight_type,
        op_types_to_quantize=op_types_to_quantize or list(op_types),
        nodes_to_exclude=nodes_to_exclude,
        per_channel=per_channel,
        use_external_data_format=external,
        calibration_providers=calibration_providers,
        extra_options=options,
    )
