"""One weight quantized by itself, for programs that ask the quantizers of few bits for it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._job import Job
from .._model import onnx_package, proto_of

_NAME = "w"


def quantize_weight(command: str, weight: np.ndarray, set_options: Callable[[Job], None]) -> dict[str, np.ndarray]:
    """The initializers that a MatMul with this weight gets from a command, by what follows the weight's name."""
    if weight.ndim != 2:
        raise ValueError(f"Current {command} block quantization only supports 2D tensors!")
    onnx = onnx_package("quantizing a single weight")
    tensor = onnx.numpy_helper.from_array(weight, _NAME)
    sides = [onnx.helper.make_tensor_value_info(name, tensor.data_type, None) for name in ("x", "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("MatMul", ["x", _NAME], ["y"], "m")], "g", sides[:1], sides[1:], [tensor])
    with Job(command) as job:
        job.set_model("input", onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10))
        job.want_bytes("output", "quantized")
        job.set("no_verify", True)
        set_options(job)
        made = proto_of(job.run().files["output"])
    return {i.name.removeprefix(_NAME): onnx.numpy_helper.to_array(i) for i in made.graph.initializer}
