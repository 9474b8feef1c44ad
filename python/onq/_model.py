"""Models in memory. The package onnx is imported only where a ModelProto is given or asked for."""

from __future__ import annotations

import importlib.util
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

_LIMIT = (1 << 31) - 1  # what one protobuf message can hold


def onnx_package(what: str = "this call") -> Any:
    """The package onnx, for what needs it; without it an error says how to get it."""
    try:
        import onnx
    except ModuleNotFoundError as e:
        if e.name != "onnx":
            raise
        text = f"{what} needs the package onnx, which is not installed (pip install onq[onnx])"
        raise ModuleNotFoundError(text, name="onnx") from None
    return onnx


def has_onnx() -> bool:
    """True if the package onnx is installed."""
    return importlib.util.find_spec("onnx") is not None


def is_proto(model: object) -> bool:
    """True for a ModelProto: whoever has one has imported onnx."""
    onnx = sys.modules.get("onnx")
    return onnx is not None and isinstance(model, onnx.ModelProto)


def proto_bytes(model: onnx.ModelProto, *, reloaded: bool = False) -> bytes | None:
    """The serialized model, or None when one message cannot hold it.

    With `reloaded` as the reference has it after onnx.save_model with external data and onnx.load_model: tensors that
    were outside say that their data is inside. The model itself stays as it is.
    """
    if model.ByteSize() > _LIMIT:
        return None
    if not reloaded:
        return model.SerializeToString()
    from onnx.external_data_helper import _get_initializer_tensors

    marked = [t for t in _get_initializer_tensors(model) if _is_put_outside(t) and not t.HasField("data_location")]
    try:
        for tensor in marked:
            tensor.data_location = tensor.DEFAULT
        return model.SerializeToString()
    finally:
        for tensor in marked:
            tensor.ClearField("data_location")


def _is_put_outside(tensor: onnx.TensorProto) -> bool:
    """What onnx.save_model decides; it counts what Python takes for a bytes object too."""
    return tensor.HasField("raw_data") and sys.getsizeof(tensor.raw_data) >= 1024


def proto_of(files: list[tuple[str, bytes]]) -> onnx.ModelProto:
    """A ModelProto of a model and its external data, as the library keeps them in a result."""
    onnx = onnx_package("a model that is returned instead of written")
    from onnx.external_data_helper import ExternalDataInfo, _get_all_tensors, uses_external_data

    model = onnx.ModelProto()
    model.ParseFromString(files[0][1])
    data = dict(files[1:])
    for tensor in _get_all_tensors(model) if data else ():
        if uses_external_data(tensor):
            info = ExternalDataInfo(tensor)
            start = info.offset or 0
            content = data[info.location]
            tensor.raw_data = content[start : start + info.length if info.length else len(content)]
            tensor.data_location = onnx.TensorProto.DEFAULT
            del tensor.external_data[:]
    return model
