"""quantize_static, quantize_dynamic, quantize_qat, quantize, and the configurations they take.

The functions translate their arguments into options; libonq does the work.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import quantization as _package
from .._job import Job, Result
from .._model import has_onnx, is_proto, onnx_package, proto_of
from .._samples import Strided
from ._options import set_carry, set_choice, set_extra, set_providers, set_types
from .calibrate import (  # noqa: F401 - the last three for programs
    CalibrationDataReader,
    CalibrationMethod,
    TensorsData,
    cache_text,
    create_calibrator,
    load_tensors_data,
    save_tensors_data,
)
from .onnx_quantizer import ONNXQuantizer  # noqa: F401
from .qdq_quantizer import QDQQuantizer  # noqa: F401
from .qtypes import (
    NARROW_TYPES,
    WIDE_TYPES,
    QuantFormat,
    QuantizationMode,
    QuantType,
    member_of,
    quant_format_of,
    quant_type_of,
)
from .quant_utils import (  # noqa: F401 - some for programs
    MODEL_SIZE_THRESHOLD,
    get_opset_version,
    load_model_with_shape_infer,
    model_has_infer_metadata,
    model_has_pre_process_metadata,
    save_and_reload_model_with_shape_infer,
    update_opset_version,
)
from .registry import IntegerOpsRegistry, QDQRegistry, QLinearOpsRegistry  # noqa: F401
from .tensor_quant_overrides import TensorQuantOverridesHelper

if TYPE_CHECKING:
    import onnx

    Model = str | os.PathLike[str] | onnx.ModelProto

__all__ = [
    "DynamicQuantConfig",
    "QuantConfig",
    "QuantizationMode",
    "StaticQuantConfig",
    "check_static_quant_arguments",
    "get_qdq_config",
    "quantize",
    "quantize_dynamic",
    "quantize_qat",
    "quantize_static",
]


class QuantConfig:
    """What static and dynamic quantization have in common; every argument is an attribute."""

    def __init__(
        self,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=None,
        nodes_to_quantize=None,
        nodes_to_exclude=None,
        per_channel=False,
        reduce_range=False,
        use_external_data_format=False,
    ) -> None:
        """
        Args:
            activation_type: type of activations.
            weight_type: type of weights.
            op_types_to_quantize: operator types to quantize; all that are supported by default.
            nodes_to_quantize: names of nodes; only these are quantized.
            nodes_to_exclude: names of nodes that stay as they are.
            per_channel: quantize weights per channel.
            reduce_range: quantize weights with one bit less (7 of 8).
            use_external_data_format: write the weights to a file of their own, as models above 2 GB need it.
        """
        self.op_types_to_quantize = op_types_to_quantize or []
        self.per_channel = per_channel
        self.reduce_range = reduce_range
        self.weight_type = weight_type
        self.activation_type = activation_type
        self.nodes_to_quantize = nodes_to_quantize or []
        self.nodes_to_exclude = nodes_to_exclude or []
        self.use_external_data_format = use_external_data_format


class StaticQuantConfig(QuantConfig):
    """The arguments of quantize_static, for quantize."""

    def __init__(
        self,
        calibration_data_reader: CalibrationDataReader,
        calibrate_method=CalibrationMethod.MinMax,
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=None,
        nodes_to_quantize=None,
        nodes_to_exclude=None,
        per_channel=False,
        reduce_range=False,
        use_external_data_format=False,
        calibration_providers=None,
        extra_options=None,
    ):
        """All arguments are those of quantize_static."""
        super().__init__(
            activation_type=activation_type,
            weight_type=weight_type,
            op_types_to_quantize=op_types_to_quantize,
            nodes_to_quantize=nodes_to_quantize,
            nodes_to_exclude=nodes_to_exclude,
            per_channel=per_channel,
            reduce_range=reduce_range,
            use_external_data_format=use_external_data_format,
        )
        self.calibration_data_reader = calibration_data_reader
        self.calibrate_method = calibrate_method
        self.quant_format = quant_format
        self.calibration_providers = calibration_providers
        self.extra_options = extra_options or {}


class DynamicQuantConfig(QuantConfig):
    """The arguments of quantize_dynamic, for quantize."""

    def __init__(
        self,
        weight_type=QuantType.QInt8,
        op_types_to_quantize=None,
        nodes_to_quantize=None,
        nodes_to_exclude=None,
        per_channel=False,
        reduce_range=False,
        use_external_data_format=False,
        extra_options=None,
    ) -> None:
        """All arguments are those of quantize_dynamic."""
        super().__init__(
            op_types_to_quantize=op_types_to_quantize,
            per_channel=per_channel,
            reduce_range=reduce_range,
            weight_type=weight_type,
            nodes_to_quantize=nodes_to_quantize,
            nodes_to_exclude=nodes_to_exclude,
            use_external_data_format=use_external_data_format,
        )
        self.extra_options = extra_options or {}


# ---- what the reference refuses


def check_static_quant_arguments(quant_format: QuantFormat, activation_type: QuantType, weight_type: QuantType) -> None:
    """Raises ValueError for types that onnxruntime.quantization does not put together."""
    pair = f"activation_type={activation_type}, weight_type={weight_type}"
    if activation_type == QuantType.QInt8 and weight_type == QuantType.QUInt8:
        raise ValueError(f"ONNXRuntime quantization doesn't support data format: {pair}")
    if (activation_type == QuantType.QFLOAT8E4M3FN) != (weight_type == QuantType.QFLOAT8E4M3FN):
        raise ValueError(f"ONNXRuntime quantization doesn't support data format: {pair}")
    if (activation_type in WIDE_TYPES or weight_type in WIDE_TYPES) and quant_format != QuantFormat.QDQ:
        raise ValueError("Only QuantFormat.QDQ supports 16-bit quantization types.")


# ---- static


def _set_cache(job: Job, path: str | os.PathLike[str] | None) -> None:
    if path is None:
        return
    path = Path(path)
    if path.exists() and not path.is_file():
        raise ValueError(f"calibration_cache_path is not a file: {path}")
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
    job.set("calibration_cache", path)


def static_job(
    job: Job,
    *,
    quant_format,
    activation_type,
    weight_type,
    per_channel,
    reduce_range,
    op_types_to_quantize,
    nodes_to_quantize,
    nodes_to_exclude,
    extra_options,
) -> None:
    """Sets the options of `static` that quantize_static and the quantizer objects share."""
    job.set("quant_format", quant_format)
    set_types(job, activation_type=activation_type, weight_type=weight_type)
    job.set("per_channel", bool(per_channel))
    job.set("reduce_range", bool(reduce_range))
    set_choice(job, quant_format_of(quant_format), op_types_to_quantize, nodes_to_quantize, nodes_to_exclude)
    # The command has the default of static_quantize_runner, quantize_static has none.
    extra = {"MinimumRealRange": None, **(extra_options or {})}
    if _package.strict:
        if quant_format == QuantFormat.QOperator:
            job.set("float8_operators", True)
        elif per_channel:  # the default, which holds for weights of every rank when it is said
            extra["QDQOpTypePerChannelSupportToAxis"] = {"MatMul": 1, **(extra.get("QDQOpTypePerChannelSupportToAxis") or {})}
    set_extra(job, extra)


def set_output(job: Job, model_output: str | os.PathLike[str] | None, use_external_data_format: bool = False) -> None:
    """Sets where the result goes: a file, or memory."""
    if model_output is None:
        job.want_bytes("output", "quantized")
    else:
        job.set("output", os.fsdecode(model_output))
        job.set("force", True)  # the reference replaces what it reads
    if use_external_data_format:
        job.set("use_external_data_format", True)
    if _package.strict and job.knows("no_verify"):
        job.set("no_verify", True)  # which could leave nodes float


def give(result: Result, model_output: object) -> onnx.ModelProto | None:
    """The quantized model, where it was not written to a file."""
    return proto_of(result.files["output"]) if model_output is None else None


def quantize_static(
    model_input: str | Path | onnx.ModelProto,
    model_output: str | Path | None,
    calibration_data_reader: CalibrationDataReader | None = None,
    quant_format=QuantFormat.QDQ,
    op_types_to_quantize=None,
    per_channel=False,
    reduce_range=False,
    activation_type=QuantType.QInt8,
    weight_type=QuantType.QInt8,
    nodes_to_quantize=None,
    nodes_to_exclude=None,
    use_external_data_format=False,
    calibrate_method=CalibrationMethod.MinMax,
    calibration_providers=None,
    extra_options=None,
    calibration_cache_path: str | Path | None = None,
    optimize_model: bool = False,
    carry: Mapping[str, str] | Iterable[str] | bool | None = None,
):
    """Quantizes a model with ranges of its activations that samples give, and writes it.

    Args:
        model_input: a path or a ModelProto.
        model_output: the path to write; None returns the model as a ModelProto instead.
        calibration_data_reader: gives samples: get_next returns {input name: array}, and None at the end. An iterable
            of dictionaries serves too, and a folder or file as `onq static --data` takes it. A list of dictionaries is
            a sequence of steps. It may be None if calibration_cache_path names a file that exists.
        quant_format: QuantFormat.QDQ (QuantizeLinear and DequantizeLinear around float operators) or
            QuantFormat.QOperator (quantized operators).
        op_types_to_quantize: operator types, as ["Conv"]; all that are supported by default.
        per_channel: quantize weights per channel.
        reduce_range: quantize weights with one bit less, for CPUs without VNNI.
        activation_type: type of activations. QUInt8 for x86, QInt8 for ARM and GPUs.
        weight_type: type of weights.
        nodes_to_quantize: names of nodes; only these are quantized.
        nodes_to_exclude: names of nodes that stay float.
        use_external_data_format: write the weights to a file of their own. Done by itself above 2 GB.
        calibrate_method: how ranges are found: MinMax, Entropy, Percentile or Distribution (for float 8).
        calibration_providers: execution providers for running the model; ["CPUExecutionProvider"] by default.
        extra_options: a dictionary of further options:
            ActivationSymmetric, WeightSymmetric: symmetric ranges (False; True for signed weights).
            ActivationRestrictedAsymmetric: zero points of uint8 activations are 0 or 128.
            EnableSubgraph: quantize the bodies of If, Loop and Scan too.
            ForceQuantizeNoInputCheck: quantize operators that only move values even if their input is float.
            MatMulConstBOnly: quantize MatMul only with a constant second input.
            AddQDQPairToWeight: keep weights float and put a pair after them.
            OpTypesToExcludeOutputQuantization: operator types whose outputs stay float.
            DedicatedQDQPair: pairs of its own for every node.
            QDQOpTypePerChannelSupportToAxis: {"MatMul": 1}, the axis of channels.
            CalibTensorRangeSymmetric, CalibMovingAverage, CalibMovingAverageConstant, CalibMaxIntermediateOutputs,
            CalibPercentile, CalibStridedMinMax: see the methods of calibration.
            QuantizeBias: quantize biases (True).
            SmoothQuant, SmoothQuantAlpha, SmoothQuantFolding: move outliers of activations into the weights first.
            UseQDQContribOps: pairs of the domain com.microsoft.
            MinimumRealRange: make every range at least this wide.
            TensorQuantOverrides: {"tensor": [{...}]} with quant_type, scale, zero_point, symmetric, reduce_range,
            rmin, rmax, axis, convert.
            QDQKeepRemovableActivations: keep Relu and Clip where a range could replace them.
            QDQDisableWeightAdjustForInt32Bias: do not raise weight scales that are too small for an int32 bias.
            BlockSize: quantize weights in blocks (opset 21).
        calibration_cache_path: a JSON file of ranges. If it exists it is read and no sample is run, else it is written.
        optimize_model: let ONNX Runtime optimise the model first.
        carry: which outputs are states and go into which inputs at the next step of a sequence: {"hn": "h0"}, or as
            `onq static --carry` takes it; found by common names by default; False turns it off.

    Raises:
        ValueError: for arguments that do not fit, and where onnxruntime.quantization refuses the job; set
            `onq.quantization.strict = False` to have it done.
    """
    extra_options = extra_options or {}
    activation_type, weight_type = quant_type_of(activation_type), quant_type_of(weight_type)
    quant_format, calibrate_method = quant_format_of(quant_format), member_of(CalibrationMethod, calibrate_method)
    if QuantType.QFLOAT8E4M3FN in (activation_type, weight_type) and calibrate_method != CalibrationMethod.Distribution:
        raise ValueError("Only Distribution calibration method is supported for float quantization.")
    has_cache = calibration_cache_path is not None and Path(calibration_cache_path).is_file()
    if calibration_data_reader is None and not has_cache:
        raise ValueError("Either calibration_data_reader or an existing calibration_cache_path must be provided.")
    if _package.strict:
        check_static_quant_arguments(quant_format, activation_type, weight_type)
    with Job("static") as job:
        job.set_model("input", model_input, reloaded=True)
        set_output(job, model_output, use_external_data_format)
        static_job(
            job,
            quant_format=quant_format,
            activation_type=activation_type,
            weight_type=weight_type,
            per_channel=per_channel,
            reduce_range=reduce_range,
            op_types_to_quantize=op_types_to_quantize,
            nodes_to_quantize=nodes_to_quantize,
            nodes_to_exclude=nodes_to_exclude,
            extra_options=extra_options,
        )
        job.set("calibration_method", calibrate_method)
        if calibrate_method == CalibrationMethod.Percentile and "CalibTensorRangeSymmetric" not in extra_options:
            job.set("calib_tensor_range_symmetric", True)  # the default of create_calibrator
        job.set("as_reference", bool(_package.strict))
        if optimize_model:
            job.set("optimize_model", True)
        set_providers(job, calibration_providers)
        set_carry(job, carry)
        _set_cache(job, calibration_cache_path)
        if isinstance(calibration_data_reader, (str, os.PathLike)):
            job.set("data", calibration_data_reader)
        elif calibration_data_reader is not None:
            stride = extra_options.get("CalibStridedMinMax")
            reader = Strided(calibration_data_reader, stride) if stride else calibration_data_reader
            two_passes = calibrate_method != CalibrationMethod.MinMax or bool(extra_options.get("SmoothQuant"))
            job.set_reader(reader, may_rewind=two_passes)
        return give(job.run(), model_output)


def quantize_with_ranges(model: Model, tensors_range: TensorsData | Mapping | None, **options: Any) -> onnx.ModelProto:
    """What QDQQuantizer and ONNXQuantizer do: quantize with ranges that are known, and leave the nodes unsorted."""
    with Job("static") as job:
        # The reference's objects save and load a model that does not say that its shapes are inferred.
        job.set_model("input", model, reloaded=not model_has_infer_metadata(model))
        set_output(job, None)
        job.set("sort_nodes", False)
        job.set("keep_opset", True)
        static_job(job, **options)
        ranges = tensors_range
        if not isinstance(ranges, TensorsData):
            ranges = TensorsData(CalibrationMethod.MinMax, dict(ranges or {}))
        job.set("calibration_method", ranges.calibration_method)
        job.set_file("calibration_cache", cache_text(ranges))
        return give(job.run(), None)


# ---- dynamic, qat


def quantize_dynamic(
    model_input: str | Path | onnx.ModelProto,
    model_output: str | Path | None,
    op_types_to_quantize=None,
    per_channel=False,
    reduce_range=False,
    weight_type=QuantType.QInt8,
    nodes_to_quantize=None,
    nodes_to_exclude=None,
    use_external_data_format=False,
    extra_options=None,
):
    """Quantizes the weights of a model, and has its activations quantized while it runs, and writes it.

    Args:
        model_input: a path or a ModelProto.
        model_output: the path to write; None returns the model as a ModelProto instead.
        op_types_to_quantize: operator types, as ["MatMul"]; all that are supported by default.
        per_channel: quantize weights per channel.
        reduce_range: quantize weights with one bit less, for CPUs without VNNI.
        weight_type: QuantType.QInt8 or QUInt8.
        nodes_to_quantize: names of nodes; only these are quantized.
        nodes_to_exclude: names of nodes that stay float.
        use_external_data_format: write the weights to a file of their own. Done by itself above 2 GB.
        extra_options: ActivationSymmetric, WeightSymmetric, EnableSubgraph, ForceQuantizeNoInputCheck and
            MatMulConstBOnly (True by default), as in quantize_static; DefaultTensorType, the type of tensors whose
            type cannot be inferred.
    """
    with Job("dynamic") as job:
        job.set_model("input", model_input)
        set_output(job, model_output, use_external_data_format)
        dynamic_job(job, weight_type, per_channel, reduce_range, extra_options)
        set_choice(job, None, op_types_to_quantize, nodes_to_quantize, nodes_to_exclude)
        return give(job.run(), model_output)


def dynamic_job(job: Job, weight_type, per_channel, reduce_range, extra_options) -> None:
    """Sets the options of `dynamic` that quantize_dynamic and ONNXQuantizer share."""
    set_types(job, weight_type=weight_type)
    job.set("per_channel", bool(per_channel))
    job.set("reduce_range", bool(reduce_range))
    if _package.strict:  # types that onnx does not find are refused
        extra_options = {"DefaultTensorType": "none", **(extra_options or {})}
    set_extra(job, extra_options)


def quantize_qat(
    model_input: str | Path | onnx.ModelProto,
    model_output: str | Path | None,
    op_types_to_quantize=[],  # noqa: B006
    per_channel=False,
    reduce_range=False,
    activation_type=QuantType.QUInt8,
    weight_type=QuantType.QUInt8,
    nodes_to_quantize=[],  # noqa: B006
    nodes_to_exclude=[],  # noqa: B006
    use_external_data_format=False,
):
    """Turns a model with the fake quantization of quantization-aware training into integer operators, and writes it.

    Args:
        model_input: a path or a ModelProto.
        model_output: the path to write; None returns the model as a ModelProto instead.
        op_types_to_quantize, nodes_to_quantize, nodes_to_exclude: what to quantize, as in quantize_dynamic.
        per_channel, reduce_range: for weights without trained parameters.
        activation_type, weight_type: QuantType.QUInt8 or QInt8.
        use_external_data_format: write the weights to a file of their own.
    """
    with Job("qat") as job:
        job.set_model("input", model_input)
        set_output(job, model_output, use_external_data_format)
        set_types(job, activation_type=activation_type, weight_type=weight_type)
        job.set("per_channel", bool(per_channel))
        job.set("reduce_range", bool(reduce_range))
        set_choice(job, None, op_types_to_quantize, nodes_to_quantize, nodes_to_exclude)
        return give(job.run(), model_output)


# ---- by configuration


def quantize(
    model_input: str | Path | onnx.ModelProto,
    model_output: str | Path | None,
    quant_config: QuantConfig,
):
    """Quantizes a model as a configuration says.

    Args:
        model_input: a path or a ModelProto.
        model_output: the path to write; None returns the model as a ModelProto instead.
        quant_config: a StaticQuantConfig, a DynamicQuantConfig, or a WeightOnlyQuantConfig.
    """
    shared = ("op_types_to_quantize", "nodes_to_quantize", "nodes_to_exclude", "per_channel", "reduce_range")
    shared += ("weight_type", "use_external_data_format", "extra_options")
    static = ("calibration_data_reader", "calibrate_method", "quant_format", "activation_type", "calibration_providers")
    if isinstance(quant_config, StaticQuantConfig):
        arguments = {name: getattr(quant_config, name) for name in shared + static}
        return quantize_static(model_input, model_output, **arguments)
    if isinstance(quant_config, DynamicQuantConfig):
        arguments = {name: getattr(quant_config, name) for name in shared}
        return quantize_dynamic(model_input, model_output, **arguments)

    from .matmul_nbits_quantizer import WeightOnlyQuantConfig, quantize_weights

    if isinstance(quant_config, WeightOnlyQuantConfig):
        return quantize_weights(model_input, model_output, quant_config)
    raise TypeError(
        "a quantization configuration is a StaticQuantConfig, a DynamicQuantConfig or a WeightOnlyQuantConfig, not a "
        f"{type(quant_config).__name__}"
    )


def load_for_config(model_input: Model) -> tuple[onnx.ModelProto, bool]:
    """The graph of a model, and whether its result needs external data."""
    onnx = onnx_package()
    from onnx.external_data_helper import uses_external_data

    model = model_input if is_proto(model_input) else onnx.load_model(os.fspath(model_input), load_external_data=False)
    external = any(uses_external_data(init) for init in model.graph.initializer)
    return model, external or model.ByteSize() >= MODEL_SIZE_THRESHOLD


def _needs_contrib(opset: int, types: set[QuantType]) -> bool:
    """4-bit types need pairs of com.microsoft below opset 21, unless 16-bit types raise the model to it."""
    if opset >= 21 or types & WIDE_TYPES:
        return False
    return bool(types & NARROW_TYPES)


def _facts(path: str | os.PathLike[str]) -> tuple[dict[str, None], bool, int]:
    """The operators of a model, whether its result needs external data, and its opset, without the package onnx."""
    from .._tools import inspect

    found = inspect(path)
    types = dict.fromkeys(name.rpartition("::")[2] for name in found["operators"])
    opset = next((o["version"] for o in found["opset_import"] if o["domain"] in ("", "ai.onnx")), 0)
    return types, found["storage"]["external"] > 0 or found["size"] >= MODEL_SIZE_THRESHOLD, opset


def get_qdq_config(
    model_input: str | Path | onnx.ModelProto,
    calibration_data_reader: CalibrationDataReader,
    calibrate_method=CalibrationMethod.MinMax,
    calibrate_args: dict[str, Any] | None = None,
    activation_type=QuantType.QUInt8,
    weight_type=QuantType.QInt8,
    activation_symmetric: bool = False,
    weight_symmetric: bool | None = None,
    per_channel: bool = False,
    reduce_range: bool = False,
    keep_removable_activations: bool = False,
    min_real_range: float | None = None,
    tensor_quant_overrides: dict[str, list[dict[str, Any]]] | None = None,
    calibration_providers: list[str] | None = None,
    op_types_to_quantize: list[str] | None = None,
    nodes_to_exclude: list[str] | Callable[[onnx.ModelProto, onnx.NodeProto], bool] | None = None,
    extra_options: dict | None = None,
) -> StaticQuantConfig:
    """A configuration that quantizes all operators of a model.

    Args:
        model_input: a path or a ModelProto.
        calibration_data_reader: gives samples.
        calibrate_method: how ranges are found.
        calibrate_args: symmetric, moving_average, averaging_constant, max_intermediate_outputs, percentile.
        activation_type, weight_type: types of activations and weights.
        activation_symmetric, weight_symmetric: symmetric ranges; weights of signed types have them by default.
        per_channel, reduce_range: as in quantize_static.
        keep_removable_activations: keep Relu and Clip where a range could replace them.
        min_real_range: make every range at least this wide.
        tensor_quant_overrides: overrides of single tensors.
        calibration_providers: execution providers for running the model.
        op_types_to_quantize: operator types; by default all but Cast, QuantizeLinear and DequantizeLinear.
        nodes_to_exclude: names of nodes, or a function of model and node that says which to exclude.
        extra_options: options of quantize_static that override the ones made here.

    Returns:
        A StaticQuantConfig for quantize.
    """
    overrides = TensorQuantOverridesHelper(copy.deepcopy(tensor_quant_overrides or {}))
    excluded = set() if nodes_to_exclude is None or callable(nodes_to_exclude) else set(nodes_to_exclude)
    if is_proto(model_input) or callable(nodes_to_exclude) or has_onnx():
        model, external = load_for_config(model_input)
        opset = get_opset_version(model)
        op_types: dict[str, None] = {}
        for node in model.graph.node:
            if node.name in excluded or (op_types_to_quantize and node.op_type not in op_types_to_quantize):
                continue
            if callable(nodes_to_exclude) and nodes_to_exclude(model, node):
                excluded.add(node.name)
            else:
                op_types[node.op_type] = None
    else:
        op_types, external, opset = _facts(model_input)
    for kept in ("Cast", "DequantizeLinear", "QuantizeLinear"):
        op_types.pop(kept, None)
    options: dict[str, Any] = {
        "MinimumRealRange": min_real_range,
        "QDQKeepRemovableActivations": keep_removable_activations,
        "ActivationSymmetric": activation_symmetric,
        "WeightSymmetric": weight_symmetric,
        "ForceQuantizeNoInputCheck": True,
        "TensorQuantOverrides": overrides.get_dict(),
    }
    for name, key in (
        ("symmetric", "CalibTensorRangeSymmetric"),
        ("moving_average", "CalibMovingAverage"),
        ("averaging_constant", "CalibMovingAverageConstant"),
        ("max_intermediate_outputs", "CalibMaxIntermediateOutputs"),
        ("percentile", "CalibPercentile"),
    ):
        if name in (calibrate_args or {}):
            options[key] = calibrate_args[name]
    types = {quant_type_of(activation_type), quant_type_of(weight_type)}
    if _needs_contrib(opset, types | overrides.get_quant_types()):
        options["UseQDQContribOps"] = True
    options.update(extra_options or {})
    return StaticQuantConfig(
        calibration_data_reader,
        calibrate_method=calibrate_method,
        quant_format=QuantFormat.QDQ,
        activation_type=activation_type,
        weight_type=weight_type,
        op_types_to_quantize=op_types_to_quantize or list(op_types),
        nodes_to_exclude=list(excluded),
        per_channel=per_channel,
        reduce_range=reduce_range,
        use_external_data_format=external,
        calibration_providers=calibration_providers,
        extra_options=options,
    )
