"""quant_pre_process: what a float model needs before it is quantized."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from .._model import onnx_package
from .._job import Job
from .fusions.replace_upsample_with_resize import ReplaceUpsampleWithResize  # noqa: F401 - names that programs import
from .onnx_model import ONNXModel  # noqa: F401
from .quant_utils import add_pre_process_metadata, save_and_reload_model_with_shape_infer  # noqa: F401

if TYPE_CHECKING:
    import onnx

_DEPRECATED = {"input_model_path": "input_model"}
_OLDEST = 7  # the opset from which on libonq raises models
_LEAST = 11  # the opset that a prepared model has at least


def _opset(model: str | Path | onnx.ModelProto) -> int:
    from .._tools import inspect

    return next((o["version"] for o in inspect(model)["opset_import"] if o["domain"] in ("", "ai.onnx")), 0)


def _raised(model: str | Path | onnx.ModelProto) -> onnx.ModelProto:
    """A model of a very old opset, raised by onnx itself."""
    onnx = onnx_package()
    import onnx.version_converter

    proto = model if isinstance(model, onnx.ModelProto) else onnx.load(os.fspath(model))
    return onnx.version_converter.convert_version(proto, _LEAST)


def quant_pre_process(
    input_model: str | Path | onnx.ModelProto | None = None,
    output_model_path: str | Path | None = None,
    skip_optimization: bool = False,
    skip_onnx_shape: bool = False,
    skip_symbolic_shape: bool = False,
    auto_merge: bool = False,
    int_max: int = 2**31 - 1,
    guess_output_rank: bool = False,
    verbose: int = 0,
    save_as_external_data: bool = False,
    all_tensors_to_one_file: bool = False,
    external_data_location: str | None = None,
    external_data_size_threshold: int = 1024,
    **deprecated_kwargs,
) -> None:
    """Infers symbolic shapes, optimises the graph, infers shapes as onnx does, and marks the model as prepared.

    Args:
        input_model: a path or a ModelProto.
        output_model_path: the file to write.
        skip_optimization, skip_onnx_shape, skip_symbolic_shape: steps to leave out.
        auto_merge: dimensions of different names that must be equal become one.
        int_max: from here on a bound of Slice means `to the end`.
        guess_output_rank: the output of an unknown operator has the rank of its first input.
        verbose: 0 to 3, how much is logged.
        save_as_external_data: write the weights outside of the model file.
        all_tensors_to_one_file: all of them to one file.
        external_data_location: the name of that file.
        external_data_size_threshold: smaller tensors stay in the model file.
        **deprecated_kwargs: input_model_path, an older name of input_model.
    """
    for old, new in _DEPRECATED.items():
        if old in deprecated_kwargs:
            logging.getLogger("onq").warning("%s is the old name of %s", old, new)
            input_model = deprecated_kwargs.pop(old) if input_model is None else input_model
    if deprecated_kwargs:
        raise TypeError(f"quant_pre_process has no argument {next(iter(deprecated_kwargs))!r}")
    if input_model is None:
        raise TypeError("quant_pre_process needs an input_model, a path or a ModelProto")
    if output_model_path is None:
        raise TypeError("quant_pre_process needs an output_model_path")
    opset = _opset(input_model)
    if 0 < opset < _OLDEST:
        input_model = _raised(input_model)
        opset = _LEAST
    with Job("preprocess") as job:
        job.set_model("input", input_model)
        job.set("output", os.fsdecode(output_model_path))
        job.set("force", True)
        for name, value in (
            ("skip_optimization", skip_optimization),
            ("skip_onnx_shape", skip_onnx_shape),
            ("skip_symbolic_shape", skip_symbolic_shape),
            ("auto_merge", auto_merge),
            ("guess_output_rank", guess_output_rank),
            ("save_as_external_data", save_as_external_data),
            ("all_tensors_to_one_file", all_tensors_to_one_file),
        ):
            job.set(name, bool(value))
        if skip_optimization and skip_onnx_shape and skip_symbolic_shape:
            # Even then the opset is raised where it is lower, and the model is marked.
            job.set("opset", max(_LEAST, opset))
        job.set("int_max", int_max)
        job.set("verbose", min(max(int(verbose), 0), 3))
        job.set("external_data_location", external_data_location)
        job.set("external_data_size_threshold", external_data_size_threshold)
        job.run()
