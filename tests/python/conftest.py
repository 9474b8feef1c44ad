"""conftest.py - the package as it lies in python/, over the libonq of the build; models and readers that the tests share."""
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "tests/parity")]
build = Path(os.environ.get("ONQ_BUILD", ROOT / "build"))
os.environ.setdefault("ONQ_LIBRARY", str(build / "libonq.so"))
os.environ["PYTHONPATH"] = f"{ROOT / 'python'}:{os.environ.get('PYTHONPATH', '')}"  # for python -m

import numpy as np  # noqa: E402
import onnx  # noqa: E402
import pytest  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


def build_cnn(opset=13):
    """Conv, Relu, MaxPool, Reshape, MatMul, Add: input (batch, 1, 8, 8), output (batch, 5)."""
    rng = np.random.default_rng(3)

    def const(name, *shape):
        return numpy_helper.from_array(rng.normal(0, 0.3, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], "relu"),
        helper.make_node("MaxPool", ["r1"], ["p1"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Reshape", ["p1", "shape"], ["f1"], "reshape"),
        helper.make_node("MatMul", ["f1", "w2"], ["m1"], "matmul"),
        helper.make_node("Add", ["m1", "b2"], ["y"], "add"),
    ]
    shape = numpy_helper.from_array(np.array([-1, 64], np.int64), "shape")
    graph = helper.make_graph(
        nodes,
        "cnn",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 5])],
        [const("w1", 4, 1, 3, 3), const("b1", 4), shape, const("w2", 64, 5), const("b2", 5)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 8
    return model


def draw(n=3, seed=1):
    """Samples of build_cnn."""
    rng = np.random.default_rng(seed)
    return [{"x": rng.normal(0, 1, (1, 1, 8, 8)).astype(np.float32)} for _ in range(n)]


class Reader:
    """A reader of both packages: get_next and nothing more."""

    def __init__(self, samples):
        self.samples = iter(samples)

    def get_next(self):
        return next(self.samples, None)


@pytest.fixture
def cnn(tmp_path):
    """build_cnn in a file."""
    path = tmp_path / "cnn.onnx"
    onnx.save(build_cnn(), path)
    return str(path)
