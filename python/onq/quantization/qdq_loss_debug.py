"""Where a quantized model loses accuracy, call by call: tensors of both models, matched and compared.

`onq.debug` does all of it at once, with the memory of one sample. These functions give the tensors themselves:

    modify_model_output_intermediate_tensors("model.onnx", "augmented.onnx")
    activations = collect_activations("augmented.onnx", reader)
    errors = compute_activation_error(create_activation_matching(quantized_activations, activations))
    errors = compute_weight_error(create_weight_matching("model.onnx", "quantized.onnx"))
"""

from __future__ import annotations

import ctypes as c
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy

from .. import _library as L
from .._job import Job
from .._samples import Samples
from .._tensors import copy_out, fill_all
from ..errors import OnqError, error_of
from ._options import set_providers
from .calibrate import CalibraterBase, CalibrationDataReader  # noqa: F401 - some names are for programs
from .onnx_model import ONNXModel  # noqa: F401
from .quant_utils import (  # noqa: F401
    DEQUANT_OP_NAME,
    DEQUANT_OUTPUT_SUFFIX,
    QUANT_INPUT_SUFFIX,
    TENSOR_NAME_QUANT_SUFFIX,
    find_by_name,
    load_model_with_shape_infer,
)

_LEVELS = ("none", "basic", "extended", "all")


def modify_model_output_intermediate_tensors(
    input_model_path: str | Path,
    output_model_path: str | Path,
    op_types_for_saving: Sequence[str] | None = None,
    save_as_external_data: bool = False,
) -> None:
    """Writes a model whose tensors are outputs, NAME_ReshapedSavedOutput of one axis each.

    Args:
        input_model_path: the model.
        output_model_path: the file to write.
        op_types_for_saving: only tensors at nodes of these operators; all float tensors by default.
        save_as_external_data: write the weights to a file next to it.
    """
    types = [L.text(t) for t in op_types_for_saving or ()]
    array = (L.TEXT * max(1, len(types)))(*types)
    with Job("debug") as job:
        paths = (L.text(os.fspath(input_model_path)), L.text(os.fspath(output_model_path)))
        job.call("onq_debug_modify_model", job.env, *paths, array, len(types), int(save_as_external_data))


def collect_activations(
    augmented_model: str,
    input_reader: CalibrationDataReader,
    session_options=None,
    execution_providers: Sequence[str] | None = None,
) -> dict[str, list[numpy.ndarray]]:
    """Runs a model of modify_model_output_intermediate_tensors and collects its tensors.

    Args:
        augmented_model: the model's path.
        input_reader: gives samples.
        session_options: onnxruntime.SessionOptions; their level of optimisation and number of threads are used. By
            default nothing is optimised.
        execution_providers: where the model runs; the CPU by default.

    Returns:
        The tensors by name, one for each sample.
    """
    lib = L.library()
    with Job("run") as job:
        job.set("input", augmented_model)
        if session_options is not None:
            level = int(session_options.graph_optimization_level)
            job.set("optimization", _LEVELS[min(level, 3)])
            if session_options.intra_op_num_threads:
                job.set("threads", session_options.intra_op_num_threads)
        set_providers(job, execution_providers)
        samples = Samples(input_reader, may_rewind=False, model=augmented_model)
        handle = L.HANDLE()
        arguments = (job.env, job.options, c.byref(samples.struct), c.byref(handle))
        try:
            job.call("onq_activations_collect", *arguments, samples=samples)
            return _activations(lib, handle)
        except OnqError:
            if samples.count == 0:
                raise RuntimeError("No data is collected while running augmented model!") from None
            raise
        finally:
            lib.onq_activations_free(handle)


def _activations(lib: c.CDLL, handle: L.HANDLE) -> dict[str, list[numpy.ndarray]]:
    tensors: dict[str, list[numpy.ndarray]] = {}
    n = c.c_size_t()
    for i in range(lib.onq_activations_count(handle)):
        rows = lib.onq_activations_at(handle, i, c.byref(n))
        tensors[L.name_of(lib.onq_activations_name(handle, i))] = [copy_out(rows[k]) for k in range(n.value)]
    return tensors


def create_activation_matching(
    qdq_activations: Mapping[str, Sequence[numpy.ndarray]],
    float_activations: Mapping[str, Sequence[numpy.ndarray]] | None = None,
) -> dict[str, dict[str, Sequence[numpy.ndarray]]]:
    """Pairs the tensors of a quantized model before and after quantization, and with those of the float model.

    Args:
        qdq_activations: what collect_activations gave for the quantized model.
        float_activations: and for the float model.

    Returns:
        {"name": {"pre_qdq": [...], "post_qdq": [...], "float": [...]}}
    """
    matches: dict[str, dict[str, Sequence[numpy.ndarray]]] = {}
    for tensor, values in qdq_activations.items():
        if tensor.endswith(QUANT_INPUT_SUFFIX):
            name = tensor.removesuffix(QUANT_INPUT_SUFFIX)
            before, after = values, qdq_activations.get(name)
        elif tensor.endswith((DEQUANT_OUTPUT_SUFFIX, f"{DEQUANT_OUTPUT_SUFFIX}_1")):
            name = tensor.removesuffix("_1").removesuffix(DEQUANT_OUTPUT_SUFFIX)
            before, after = qdq_activations.get(name), values
        else:
            continue
        if before is not None and after is not None:
            matches[name] = {"pre_qdq": before, "post_qdq": after}
    for name, match in matches.items() if float_activations else ():
        if float_activations.get(name) is not None:
            match["float"] = float_activations[name]
    return matches


def create_weight_matching(
    float_model_path: str | Path, qdq_model_path: str | Path
) -> dict[str, dict[str, numpy.ndarray]]:
    """Finds the weights of a quantized model in the float model.

    Returns:
        {"name": {"float": array, "dequantized": array}}
    """
    lib = L.library()
    matches: dict[str, dict[str, numpy.ndarray]] = {}
    with Job("debug") as job:
        handle, row = L.HANDLE(), c.POINTER(L.WeightRow)()
        paths = (L.text(os.fspath(float_model_path)), L.text(os.fspath(qdq_model_path)))
        try:
            job.call("onq_weight_match_new", job.env, *paths, 0, c.byref(handle))
            for i in range(lib.onq_weight_match_count(handle)):
                job.call("onq_weight_match_at", handle, i, c.byref(row))
                match = row.contents
                matches[L.name_of(match.name)] = {"float": copy_out(match.flt), "dequantized": copy_out(match.dequantized)}
        finally:
            lib.onq_weight_match_free(handle)
    return matches


def compute_signal_to_quantization_noice_ratio(
    x: Sequence[numpy.ndarray] | numpy.ndarray, y: Sequence[numpy.ndarray] | numpy.ndarray
) -> float:
    """Signal to noise of y against x in dB, over all elements together (the name is spelled as in onnxruntime)."""
    left, right = ([a] if isinstance(a, numpy.ndarray) else list(a) for a in (x, y))
    if len(left) != len(right):
        raise RuntimeError("Unequal number of tensors to compare!")
    kinds = {a.dtype.name for a in left + right}
    if len(kinds) != 1 or not kinds <= {"float32", "float16", "float64"}:
        left, right = ([numpy.asarray(a, dtype=numpy.float64) for a in side] for side in (left, right))
    xs, keep_x = fill_all(left)
    ys, keep_y = fill_all(right)
    out, err = c.c_double(), L.Error()
    code = L.library().onq_sqnr(xs, len(left), ys, len(right), c.byref(out), err)
    del keep_x, keep_y
    if code:
        raise error_of(code, err.text.decode(errors="replace"))
    return out.value


def compute_weight_error(
    weights_match: Mapping[str, Mapping[str, numpy.ndarray]],
    err_func: Callable[[numpy.ndarray, numpy.ndarray], float] = compute_signal_to_quantization_noice_ratio,
) -> dict[str, float]:
    """The error of each weight that create_weight_matching found."""
    return {name: err_func(match["float"], match["dequantized"]) for name, match in weights_match.items()}


def compute_activation_error(
    activations_match: Mapping[str, Mapping[str, Sequence[numpy.ndarray]]],
    err_func: Callable[
        [Sequence[numpy.ndarray], Sequence[numpy.ndarray]], float
    ] = compute_signal_to_quantization_noice_ratio,
) -> dict[str, dict[str, float]]:
    """The errors of each activation that create_activation_matching found.

    Returns:
        {"name": {"qdq_err": before against after quantization, "xmodel_err": float model against quantized}}
    """
    errors: dict[str, dict[str, float]] = {}
    for name, match in activations_match.items():
        errors[name] = {"qdq_err": err_func(match["pre_qdq"], match["post_qdq"])}
        if match.get("float"):
            errors[name]["xmodel_err"] = err_func(match["float"], match["post_qdq"])
    return errors
