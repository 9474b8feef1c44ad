"""test_kernels.py - ONNX Runtime's quantized kernels compute what their operators say, whatever the attributes.

One model has a branch for every row: a Conv, the operator, and a Mul, all quantized, and an output. Each output is near
float's, and not further than without the runtime's optimiser, which puts the kernels in: where one computes something
else, onq must keep the node from it (src/quantize/ort/ort_forms.h).
"""
import itertools

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import calibtool
import sides
from common import onq
from running import each_output, session, sqnr

NEAR, LOSS = 25, 6  # dB: against float, and what kernels may lose of what the pairs leave
BRANCH = "branch"


def ints(*v):
    return np.array(v, dtype=np.int64)


def real(v):
    return np.float32(v)


def rows():
    """(operator, inputs, attributes). The branch, of shape [1, 4, 8, 8], is BRANCH among the inputs, or comes before them."""
    for ceil, counted, pads, stride in itertools.product((0, 1), (0, 1), ([0] * 4, [1] * 4, [0, 0, 1, 1]), (1, 2)):
        yield "AveragePool", [], {"kernel_shape": [3, 3], "strides": [stride] * 2, "pads": pads, "ceil_mode": ceil, "count_include_pad": counted}
    for auto_pad, counted in itertools.product(("SAME_UPPER", "SAME_LOWER", "VALID"), (0, 1)):
        yield "AveragePool", [], {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": auto_pad, "ceil_mode": 1, "count_include_pad": counted}
    for ceil, pads in itertools.product((0, 1), ([0] * 4, [1] * 4)):
        yield "MaxPool", [], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": pads, "ceil_mode": ceil}
    yield "MaxPool", [], {"kernel_shape": [2, 2], "dilations": [2, 3]}
    for mode, how in itertools.product(("nearest", "linear", "cubic"), ("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel")):
        yield "Resize", ["", real([1, 1, 2, 1.5])], {"mode": mode, "coordinate_transformation_mode": how}
    yield "Resize", ["", "", ints(1, 4, 5, 3)], {"mode": "linear"}
    for mode in ("linear", "cubic"):
        yield "Resize", ["", real([1, 1, 0.6, 0.5])], {"mode": mode, "antialias": 1}
    for axis in (1, 2, -1):
        yield "Softmax", [], {"axis": axis}
        yield "Concat", [BRANCH, BRANCH], {"axis": axis}
    for alpha in (0.0, 0.3, 2.0, -1.0):
        yield "LeakyRelu", [], {"alpha": alpha}
    for bounds in ([real(-0.5)], [real(-0.5), real(0.7)], ["", real(0.3)], [real(0.2), real(0.9)]):
        yield "Clip", bounds, {}
    for mode, value in (("constant", [real(1)]), ("constant", []), ("reflect", []), ("edge", [])):
        yield "Pad", [ints(0, 0, 1, 2, 0, 0, 0, 3), *value], {"mode": mode}
    for shape in ([], [1], [8], [4, 1, 1], [1, 4, 8, 1]):
        yield "Add", [np.full(shape, 0.7, np.float32)], {}
        yield "Mul", [np.full(shape, -0.7, np.float32)], {}
    yield "MatMul", [np.linspace(-1, 1, 40, dtype=np.float32).reshape(8, 5)], {}
    yield "Transpose", [], {"perm": [0, 2, 3, 1]}
    yield "Transpose", [], {}
    yield "Reshape", [ints(0, -1)], {}
    yield "Flatten", [], {"axis": -1}
    yield "Unsqueeze", [ints(-1, 0)], {}
    yield "Gather", [ints(-1, 2)], {"axis": -2}
    yield "Slice", [ints(-3), ints(100), ints(-1), ints(1)], {}
    yield "DepthToSpace", [], {"blocksize": 2, "mode": "CRD"}
    yield "InstanceNormalization", [np.ones(4, np.float32), np.zeros(4, np.float32)], {}
    yield "Where", ["mask", BRANCH, "half"], {}
    for op in ("GlobalAveragePool", "Sigmoid", "Relu"):
        yield op, [], {}


def network():
    rng = np.random.default_rng(3)
    inits, nodes = [sides.array("w", rng.normal(size=(4, 4, 1, 1))), sides.array("half", 0.5), sides.array("mask", rng.random((8, 8)) > 0.5, bool)], []
    for i, (op, inputs, attributes) in enumerate(rows()):
        words = []
        for k, item in enumerate(inputs if BRANCH in [v for v in inputs if isinstance(v, str)] else [BRANCH, *inputs]):
            words.append({BRANCH: f"a{i}"}.get(item, item) if isinstance(item, str) else f"k{i}_{k}")
            if not isinstance(item, str):
                inits.append(numpy_helper.from_array(np.asarray(item), words[-1]))
        nodes += [helper.make_node("Conv", ["x", "w"], [f"a{i}"], f"conv{i}"),
                  helper.make_node(op, words, [f"b{i}"], f"{i}_{op}_{attributes}", **attributes),
                  helper.make_node("Mul", [f"b{i}", "half"], [f"y{i}"], f"mul{i}")]
    names = {n.output[0].replace("b", "y"): n.name for n in nodes[1::3]}
    return sides.model(nodes, inits, (1, 4, 8, 8), dict.fromkeys(names), opset=19, ir_version=9), names


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kernels")
    model, names = network()
    samples = [{"x": s["x"] + np.float32(0.5)} for s in sides.feeds(np.random.default_rng(0), (1, 4, 8, 8))]
    onnx.save(model, folder / "m.onnx")
    calibtool.write_samples(folder / "samples", samples)
    return folder, names, samples, each_output(session(folder / "m.onnx"), samples)


@pytest.mark.parametrize("words", ["--activation_type quint8", "--activation_type qint8 --per_channel", "--quant_format qoperator",
                                   "--quant_format qoperator --activation_type qint8"])
def test_kernels(measured, words):
    folder, names, samples, want = measured
    out = folder / "out.onnx"
    onq("static", "-i", folder / "m.onnx", "-o", out, "--data", folder / "samples", "--no_verify", *words.split(), status=0)
    got, pairs = (each_output(session(out, optimised), samples) for optimised in (True, False))
    rows = [(names[y], sqnr(want[y], got[y]), sqnr(want[y], pairs[y])) for y in want]
    far = [f"{name}: {db:.1f} dB, {plain:.1f} without kernels" for name, db, plain in rows if db < NEAR or db < min(40, plain - LOSS)]
    assert len(rows) > 80 and far == []
