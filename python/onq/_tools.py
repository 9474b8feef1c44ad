"""What the reference has no counterpart for: inspect, diff and debug."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ._job import Job, Result

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


class Debugged(_Answer):
    """What `debug` found: `weights` and `activations` by name; a notebook shows the report (`html`)."""

    def __init__(self, result: Result):
        super().__init__(result)
        files = result.files.get("output")
        self.html: str = files[0][1].decode() if files else ""

    @property
    def weights(self) -> dict[str, dict[str, Any]]:
        """{"name": {"sqnr": dB, ...}}"""
        return self.data.get("weights", {})

    @property
    def activations(self) -> dict[str, dict[str, Any]]:
        """{"name": {"qdq_err": dB, "xmodel_err": dB, ...}}"""
        return self.data.get("activations", {})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the report, one HTML file that needs no network."""
        with open(path, "w", encoding="utf-8") as f:
            f.write(self.html)

    def _repr_html_(self) -> str:
        # A document of its own: its styles and scripts stay inside.
        quoted = self.html.replace("&", "&amp;").replace('"', "&quot;")
        return f'<iframe srcdoc="{quoted}" style="width: 100%; height: 640px; border: 0"></iframe>'


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
        for name, value in options.items():
            job.set(name, value)
        return Difference(job.run())


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
        if isinstance(data_reader, (str, os.PathLike)):
            job.set("data", data_reader)
        elif data_reader is not None:
            job.set_reader(data_reader)
        for name, value in options.items():
            if isinstance(value, (list, tuple, set)):
                job.add(name, value)
            else:
                job.set(name, value)
        return Debugged(job.run())
