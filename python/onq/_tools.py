"""What the reference has no counterpart for: inspect, diff and debug."""

from __future__ import annotations

import html
import itertools
import os
import zipfile
from typing import TYPE_CHECKING, Any

from ._job import Job, Result
from ._model import onnx_package
from ._samples import check_sample, next_function

if TYPE_CHECKING:
    import onnx

    Model = str | os.PathLike[str] | onnx.ModelProto


class _Answer:
    """A result that prints as the program prints it; `data` has all of it."""

    def __init__(self, result: Result):
        self.text = result.text
        self.data: dict[str, Any] = result.data
        self.warnings = result.warnings

    def __repr__(self) -> str:
        return self.text.rstrip("\n")

    def __getitem__(self, key: str) -> Any:
        return self.data[key]


class Inspected(_Answer):
    """What `inspect` found: print it, or read `data`."""


class Difference(_Answer):
    """What `diff` found. True where the models differ."""

    def __init__(self, result: Result):
        super().__init__(result)
        self.equal = result.status == 0

    def __bool__(self) -> bool:
        return not self.equal


class _Report(_Answer):
    """An answer with a report, one HTML file that needs no network (`html`); a notebook shows it."""

    def __init__(self, result: Result, report: str):
        super().__init__(result)
        self.html = report

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the report."""
        with open(path, "w", encoding="utf-8") as f:
            f.write(self.html)

    def _repr_html_(self) -> str:
        if not self.html:
            return f"<pre>{html.escape(self.text)}</pre>"
        # A document of its own: its styles and scripts stay inside.
        return f'<iframe srcdoc="{html.escape(self.html)}" style="width: 100%; height: 640px; border: 0"></iframe>'


class Debugged(_Report):
    """What `debug` found: `weights` and `activations` by name."""

    @property
    def weights(self) -> dict[str, dict[str, Any]]:
        """{"name": {"sqnr": dB, ...}}"""
        return self.data.get("weights", {})

    @property
    def activations(self) -> dict[str, dict[str, Any]]:
        """{"name": {"qdq_err": dB, "xmodel_err": dB, ...}}"""
        return self.data.get("activations", {})


class Chosen(_Report):
    """What `auto` chose: `options` and figures, all candidates in `data`, the commands that make it again in `recipe`."""

    def __init__(self, result: Result, report: str, recipe: str, model: onnx.ModelProto | None):
        super().__init__(result, report)
        self.recipe = recipe
        self.model = model

    def __bool__(self) -> bool:
        return bool(self.data.get("target_reached"))

    @property
    def options(self) -> dict[str, Any]:
        """The options that made the model."""
        return self.data["chosen"]["options"]


def _set_samples(job: Job, data: object) -> None:
    """A source as `--data` takes it, or a reader."""
    if isinstance(data, (str, os.PathLike)):
        job.set("data", data)
    elif data is not None:
        job.set_reader(data)


def inspect(model: Model) -> Inspected:
    """Says what is in a model: inputs, outputs, operators, sizes, what is quantized and what could be.

    Args:
        model: a path or a ModelProto.
    """
    with Job("inspect") as job:
        job.set_model("operand", model)
        return Inspected(job.run())


def diff(a: Model, b: Model, **options: Any) -> Difference:
    """Compares two models as graphs: nodes, attributes, initializers, values.

    Args:
        a, b: paths or ModelProtos.
        **options: options of `onq diff`, by name.

    Returns:
        A Difference, which is false where there is none.
    """
    with Job("diff") as job:
        job.set_model("operand", a)
        job.set_model("operand", b)
        job.set_all(options)
        return Difference(job.run())


class Converted(_Answer):
    """What `convert` did, figures in `data`; `model` is the result where it was not written to a file."""

    def __init__(self, result: Result, model: onnx.ModelProto | None):
        super().__init__(result)
        self.model = model


def convert(model: Model, output: str | os.PathLike[str] | None = None, *, to: str | None = None, **options: Any) -> Converted:
    """Turns a quantized model into another form, or into float.

    Args:
        model: the quantized model, a path or a ModelProto.
        output: the file to write; None keeps the result in memory (`model` of what is returned).
        to: "float", "float16", "float32", "qdq", "qoperator" or "nbits". None: the form that it has, where
            `for_runtime` is given.
        **options: further options of `onq convert`, by name, as `ranges="ranges.json"`.
    """
    with Job("convert") as job:
        job.set_model("input", model)
        path = job.folder() / "converted.onnx" if output is None else output
        job.set("output", os.fsdecode(path))
        if to is not None:
            job.set("to", to)
        job.set_all(options)
        result = job.run()
        return Converted(result, onnx_package().load(path) if output is None else None)


def dequantize(model: Model, output: str | os.PathLike[str] | None = None, **options: Any) -> Converted:
    """Turns a quantized model into a float one: `convert` to "float"."""
    return convert(model, output, to="float", **options)


class Verified(_Answer):
    """What `verify` found, a row of `data["runtimes"]` for each runtime; true where all of them are good."""

    def __bool__(self) -> bool:
        return bool(self.data["good"])


def verify(
    model: Model, data: object = None, *, float_model: Model | None = None, onnxruntime: Any = None, **options: Any
) -> Verified:
    """Loads and runs a model in one or several versions of ONNX Runtime.

    Args:
        model: a path or a ModelProto.
        data: samples: an object with get_next, or a source as `onq verify --data` takes it.
        float_model: the model before quantization, whose outputs the others are compared with.
        onnxruntime: libraries, or folders of them; the runtime that onq uses without.
        **options: further options of `onq verify`, by name.
    """
    with Job("verify") as job:
        job.set_model("operand", model)
        if float_model is not None:
            job.set_model("float_model", float_model)
        _set_samples(job, data)
        if onnxruntime is not None:
            job.clear("onnxruntime")  # which a job has set, to the library of the package onnxruntime
            job.add("onnxruntime", [onnxruntime] if isinstance(onnxruntime, (str, os.PathLike)) else onnxruntime)
        job.set_all(options)
        return Verified(job.run())


def debug(float_model: Model, quantized_model: Model, data_reader: object = None, **options: Any) -> Debugged:
    """Shows where a quantized model loses accuracy.

    Args:
        float_model: the model before quantization, a path or a ModelProto.
        quantized_model: the quantized one.
        data_reader: samples: an object with get_next, or a source as `onq debug --data` takes it. Without samples
            only the weights are compared.
        **options: further options of `onq debug`, by name, as `sensitivity=True`.

    Returns:
        A Debugged. In a notebook it shows the report.
    """
    with Job("debug") as job:
        job.set_model("float_model", float_model)
        job.set_model("qdq_model", quantized_model)
        job.want_bytes("output", "report.html")
        _set_samples(job, data_reader)
        job.set_all(options)
        result = job.run()
        return Debugged(result, result.files["output"][0][1].decode())


def auto(
    model: Model, output: str | os.PathLike[str] | None = None, data: object = None, *, target: object = None, **options: Any
) -> Chosen:
    """Looks for the fastest quantized model that is accurate enough.

    Args:
        model: the float model, a path or a ModelProto.
        output: the file to write; None keeps the result in memory (`model` of what is returned).
        data: samples: an object with get_next, or a source as `onq auto --data` takes it.
        target: what the result must reach, as "agreement=99" or {"sqnr": 30}.
        **options: further options of `onq auto`, by name, as `prefer="size"` or `time_limit=60`.

    Returns:
        A Chosen, which is false where nothing reached the target.
    """
    with Job("auto") as job:
        # The search reads model and samples many times: they are files.
        job.set("input", _as_file(job, model))
        job.set("data", _as_folder(job, data))
        job.set("output", job.folder() / "quantized.onnx" if output is None else os.fsdecode(output))
        report, recipe = job.folder() / "report.html", job.folder() / "recipe"
        job.set("recipe", recipe)
        if job.knows("report"):
            job.set("report", report)
        for metric in [target] if isinstance(target, str) else [f"{k}={v}" for k, v in (target or {}).items()]:
            job.set("target", metric)
        job.set_all(options)
        result = job.run()
        made = None
        if output is None and (job.folder() / "quantized.onnx").exists():
            onnx = onnx_package()

            made = onnx.load(job.folder() / "quantized.onnx")
        return Chosen(result, *(p.read_text("utf-8", "surrogateescape") if p.exists() else "" for p in (report, recipe)), made)


def _as_file(job: Job, model: Model) -> str | os.PathLike[str]:
    if isinstance(model, (str, os.PathLike)):
        return model
    onnx = onnx_package()

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    path = job.folder() / "model.onnx"
    onnx.save_model(copy, path, save_as_external_data=True)
    return path


def _as_folder(job: Job, data: object) -> str | os.PathLike[str] | None:
    """Samples of a reader as .npz files."""
    if data is None or isinstance(data, (str, os.PathLike)):
        return data
    import numpy as np

    folder, following = job.folder() / "samples", next_function(data)
    folder.mkdir()
    for i in itertools.count():
        sample = following()
        if not sample:
            return folder
        with zipfile.ZipFile(folder / f"{i:08d}.npz", "w") as arrays:  # np.savez has no place for an input named `file`
            for name, array in check_sample(sample).items():
                with arrays.open(f"{name}.npy", "w", force_zip64=True) as f:
                    np.lib.format.write_array(f, array)
