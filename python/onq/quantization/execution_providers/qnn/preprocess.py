"""qnn_preprocess_model: what a float model needs before it is quantized for QNN."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ...._job import Job
from ...fusions import FusionGelu, FusionLayerNormalization  # noqa: F401 - names that programs import from here
from ...onnx_model import ONNXModel  # noqa: F401
from .fusion_lpnorm import FusionLpNormalization  # noqa: F401
from .fusion_spacetodepth import FusionSpaceToDepth  # noqa: F401

if TYPE_CHECKING:
    import onnx


def qnn_preprocess_model(
    model_input: str | Path | onnx.ModelProto,
    model_output: str | Path,
    exclude_initializer_from_input: bool = False,
    fuse_layernorm: bool = False,
    save_as_external_data: bool = False,
    all_tensors_to_one_file: bool = False,
    external_data_location: str | None = None,
    external_data_size_threshold: int = 1024,
    external_data_convert_attribute: bool = False,
    inputs_to_make_channel_last: list[str] | None = None,
    outputs_to_make_channel_last: list[str] | None = None,
    dynamic_input_shapes: list[tuple[str, str]] | None = None,
) -> bool:
    """Prepares a model for QNN: shapes, optimisation, and nodes put together as Gelu, LpNormalization, SpaceToDepth.

    Args:
        model_input: a path or a ModelProto.
        model_output: the file to write, where anything changed.
        exclude_initializer_from_input: initializers are not graph inputs.
        fuse_layernorm: put LayerNormalization together too.
        save_as_external_data: write the weights outside of the model file.
        all_tensors_to_one_file: all of them to one file.
        external_data_location: the name of that file.
        external_data_size_threshold: smaller tensors stay in the model file.
        external_data_convert_attribute: accepted; tensors in attributes stay in the model file.
        inputs_to_make_channel_last: inputs that get their channels as the last axis.
        outputs_to_make_channel_last: outputs that do.
        dynamic_input_shapes: fixed shapes of inputs, [("input", "1,3,256,256")].

    Returns:
        True if the model was changed, and written.
    """
    output = Path(model_output)
    # Where nothing changed the output stays as it is, so the files are moved there last.
    with tempfile.TemporaryDirectory(prefix=".onq.", dir=output.parent) as folder, Job("preprocess") as job:
        job.set_model("input", model_input)
        job.set("output", os.path.join(folder, output.name))
        job.set("qnn", True)
        job.set("fuse_layernorm", bool(fuse_layernorm))
        job.set("exclude_initializer_from_input", bool(exclude_initializer_from_input))
        job.set("save_as_external_data", bool(save_as_external_data))
        job.set("all_tensors_to_one_file", bool(all_tensors_to_one_file))
        job.set("external_data_location", external_data_location)
        job.set("external_data_size_threshold", external_data_size_threshold)
        job.add("inputs_to_make_channel_last", inputs_to_make_channel_last)
        job.add("outputs_to_make_channel_last", outputs_to_make_channel_last)
        for name, shape in dynamic_input_shapes or ():
            job.add("dynamic_input_shapes", [f"{name}={str(shape).replace(' ', '').replace(',', 'x')}"])
        changed = job.run().data["changed"]
        for name in os.listdir(folder) if changed else ():
            os.replace(os.path.join(folder, name), output.parent / name)
    return changed
