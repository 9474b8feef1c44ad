"""onq: ONNX Runtime's quantization tooling, rebuilt as a C library and driven from Python.

`onq.quantization` has the names, signatures and defaults of `onnxruntime.quantization`: a script changes its import and
runs faster, and writes the same model (docs/PYTHON.md has the figures and the exceptions). Beside it:

    onq.inspect(model)          what is in a model, and what could be quantized
    onq.diff(a, b)              how two models differ
    onq.debug(a, b, reader)     where a quantized model loses accuracy; shows a report in a notebook
    onq.auto(model, ...)        looks for the best quantized model by itself
    onq.convert(model, to=...)  a quantized model in another form; onq.dequantize(model): as float
    onq.verify(model, ...)      whether a model loads, runs and computes the same in several versions of ONNX Runtime
    onq.as_onnxruntime()        puts onq.quantization in the place of onnxruntime.quantization, for a while or for good
    onq.isolated()              what is called inside `with` runs in a process of its own, for models not trusted
    onq.quantize(model, ...)    the four modes of the first quantization tool, ModelProto in and out

Errors are in `onq.errors`. ONQ_PROGRESS=1 shows progress (by the package tqdm, if it is there).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import errors
from ._isolation import isolated
from ._library import version as _version
from ._tools import Chosen, Converted, Debugged, Difference, Inspected, Verified, auto, convert, debug, dequantize, diff, inspect, verify
from .errors import OnqError
from .legacy import QuantizationMode, quantize

if TYPE_CHECKING:
    from .as_reference import _Placed


def as_onnxruntime() -> _Placed:
    """Puts onq.quantization in the place of onnxruntime.quantization for this process (onq.as_reference)."""
    from .as_reference import as_onnxruntime as place

    return place()


def __getattr__(name: str) -> object:
    if name == "__version__":
        return _version()
    raise AttributeError(f"module 'onq' has no attribute {name!r}")


__all__ = [
    "Chosen",
    "Converted",
    "Debugged",
    "Difference",
    "Inspected",
    "OnqError",
    "QuantizationMode",
    "Verified",
    "as_onnxruntime",
    "auto",
    "convert",
    "debug",
    "dequantize",
    "diff",
    "errors",
    "inspect",
    "isolated",
    "quantize",
    "verify",
]
