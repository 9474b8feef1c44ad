"""test_bias.py - biases that are not vectors, that int32 does not hold, that are not initializers."""
import itertools

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import compare
import sides

M, K, N = 5, 8, 6
SHAPES = {"[]": (), "[1]": (1,), "[1,1]": (1, 1), "[M,1]": (M, 1), "[N]": (N,), "[1,N]": (1, N), "[M,N]": (M, N)}


def gemm(shape, turned=0, alpha=1.0, beta=1.0, more=()):
    """A Gemm whose channels have very different sizes."""
    rng = np.random.default_rng(3)
    w = rng.normal(size=(K, N)) * np.geomspace(0.1, 2, N)
    node = helper.make_node("Gemm", ["x", "w", "b"], ["t" if more else "y"], "gemm", transB=turned, alpha=alpha, beta=beta)
    inits = [sides.array("w", w.T if turned else w), sides.array("b", rng.normal(size=shape) * 2 + 1)]
    return sides.model([node, *more], inits, (M, K), (M, N)), sides.feeds(rng, (M, K))


@pytest.mark.difference("Biases that are not vectors")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("fmt", ["qdq", "qoperator"])
def test_shapes_per_channel(tmp_path, shape, fmt):
    m, samples = gemm(SHAPES[shape])
    both = sides.static(tmp_path, m, samples, format=fmt, per_channel=True)
    assert both.onq.db > 38, both
    if shape == "[N]":
        assert compare.differences(both.reference.path, both.onq.path) == []
    else:
        assert both.reference.state == "raises", both


@pytest.mark.parametrize("shape, turned, factors", list(itertools.product(["[]", "[M,1]", "[N]"], [0, 1], [(0.5, 2.0), (2.0, -1.0)])),
                         ids=str)
def test_shapes_and_factors(tmp_path, shape, turned, factors):
    """Per channel, one number for all columns is as many integers, each in the scale of its column."""
    m, samples = gemm(SHAPES[shape], turned, *factors)
    sides.static(tmp_path, m, samples, format="qoperator", per_channel=True).expect(15 if shape == "[N]" else "raises", 38)


def test_repeated_and_read_as_float(tmp_path):
    """Who else reads the bias reads it in its own shape."""
    m, samples = gemm((), more=[helper.make_node("Add", ["t", "b"], ["y"], "add")])
    assert sides.static(tmp_path, m, samples, format="qoperator", per_channel=True).onq.db > 35


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_per_tensor(tmp_path, shape):
    m, samples = gemm(SHAPES[shape])
    both = sides.static(tmp_path, m, samples, format="qoperator").expect((30, 99), 30)
    assert compare.differences(both.reference.path, both.onq.path) == []


def computed(op, where):
    """A weight that is not an initializer and has a tiny scale, and a large bias."""
    rng = np.random.default_rng(4)
    shape, x, y = ((4, 3, 1, 1), (1, 3, 6, 6), (1, 4, 6, 6)) if op == "Conv" else ((8, 4), (2, 8), (2, 4))
    w = (rng.normal(size=shape) * 1e-9).astype(np.float32)
    nodes = {"Identity": [helper.make_node("Identity", ["v"], ["w"])],
             "Constant": [helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(w))]}[where]
    nodes.append(helper.make_node(op, ["x", "w", "b"], ["y"], "node"))
    return sides.model(nodes, [sides.array("v", w), sides.array("b", rng.normal(size=4) * 3)], x, y), sides.feeds(rng, x)


@pytest.mark.difference("Biases of computed weights")
@pytest.mark.parametrize("op", ["Conv", "Gemm"])
@pytest.mark.parametrize("where", ["Identity", "Constant"])
@pytest.mark.parametrize("fmt", ["qdq", "qoperator"])
def test_computed_weight(tmp_path, op, where, fmt):
    """The scale of such a weight cannot be raised: where int32 does not hold the bias, it stays float."""
    m, samples = computed(op, where)
    sides.static(tmp_path, m, samples, format=fmt, extra={"MinimumRealRange": None}).expect(20, 35)


@pytest.mark.parametrize("fmt", ["qdq", "qoperator"])
def test_clipped_bias_is_told(tmp_path, fmt):
    """A weight with given parameters keeps them; what its bias loses is said by name."""
    m, samples = computed("Gemm", "Identity")
    del m.graph.node[0]
    m.graph.node[0].input[1] = "v"
    over = {"v": [{"scale": 1e-12, "zero_point": 0}]}
    both = sides.static(tmp_path, m, samples, format=fmt, overrides=over, extra={"QDQDisableWeightAdjustForInt32Bias": True})
    assert "bias 'b' exceeds the range of int32 and is clipped" in both.warnings


# ---- biases that are not initializers

@pytest.mark.difference("Biases that are not initializers, QOperator")
@pytest.mark.parametrize("where, error", [("constant", "'data_type'"), ("computed", "'data_type'"), ("empty", "'data_type'")])
def test_conv_bias(tmp_path, where, error):
    rng = np.random.default_rng(5)
    b = rng.normal(size=4).astype(np.float32)
    nodes = {"constant": [helper.make_node("Constant", [], ["b"], value=numpy_helper.from_array(b))],
             "computed": [helper.make_node("Identity", ["v"], ["b"])], "empty": []}[where]
    nodes.append(helper.make_node("Conv", ["x", "w", "" if where == "empty" else "b"], ["y"], "conv"))
    m = sides.model(nodes, [sides.array("w", rng.normal(size=(4, 3, 1, 1))), sides.array("v", b)], (1, 3, 6, 6), (1, 4, 6, 6))
    sides.static(tmp_path, m, sides.feeds(rng, (1, 3, 6, 6)), format="qoperator").expect(f"raises: {error}", 35)


def test_gemm_with_an_empty_bias(tmp_path):
    """As there, the node stays float: its file is the better one."""
    rng = np.random.default_rng(6)
    m = sides.model([helper.make_node("Gemm", ["x", "w", ""], ["y"], "gemm")], [sides.array("w", rng.normal(size=(8, 4)))], (2, 8), (2, 4))
    both = sides.static(tmp_path, m, sides.feeds(rng, (2, 8)), format="qoperator").expect((38, 60), 38)
    assert compare.differences(both.reference.path, both.onq.path) == []
    assert [n.op_type for n in onnx.load(both.onq.path).graph.node].count("Gemm") == 1


# ---- types of overrides

@pytest.mark.parametrize("kind", ["qint16", "qint4"])
def test_override_types_in_qoperator(tmp_path, kind):
    """A type that no QLinear operator takes is refused by the tensor's name where it counts, and only there."""
    rng = np.random.default_rng(7)
    nodes = [helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv"), helper.make_node("Tanh", ["c"], ["t"], "first"),
             helper.make_node("Tanh", ["t"], ["y"], "second")]
    m = sides.model(nodes, [sides.array("w", rng.normal(size=(4, 3, 1, 1))), sides.array("b", rng.normal(size=4))], (1, 3, 6, 6),
                    (1, 4, 6, 6))
    samples = sides.feeds(rng, (1, 3, 6, 6))
    for tensor in "bt":
        both = sides.static(tmp_path, m, samples, format="qoperator", overrides={tensor: [{"quant_type": kind}]})
        assert compare.differences(both.reference.path, both.onq.path) == [], tensor
    for tensor in "xwc":
        both = sides.static(tmp_path, m, samples, format="qoperator", overrides={tensor: [{"quant_type": kind}]})
        assert both.reference.state in ("raises", "does not load")
        assert f"tensor '{tensor}': --quant_format qoperator takes 8-bit integers only" in both.onq.text
