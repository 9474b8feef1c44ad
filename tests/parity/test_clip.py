"""test_clip.py - a Relu or Clip goes only where the quantized range clips as it does.

Where the bounds stand (attributes, initializers, Constant nodes, computed, graph inputs), what they are, what is around
the node, how ranges are made; in both formats. Where the reference's file is sound, onq's is the same.
"""
import itertools

import numpy as np
import pytest
from onnx import helper, numpy_helper

import compare
import sides

FORMATS = ("qdq", "qoperator")
SHAPE = (1, 3, 6, 6)


def held(where, name, value):
    """Nodes, initializers and graph inputs that make a bound."""
    if where == "initializer":
        return [], [sides.array(name, value)], {}
    if where == "constant":
        return [helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.float32(value)))], [], {}
    if where == "number":
        return [helper.make_node("Constant", [], [name], value_float=float(value))], [], {}
    if where == "moved":
        wide = numpy_helper.from_array(np.array([value], dtype=np.float64))
        return [helper.make_node("Constant", [], [f"{name}_wide"], value=wide),
                helper.make_node("Squeeze", [f"{name}_wide"], [f"{name}_flat"]),
                helper.make_node("Identity", [f"{name}_flat"], [f"{name}_same"]),
                helper.make_node("Cast", [f"{name}_same"], [name], to=1)], [], {}
    if where == "computed":
        return [helper.make_node("ReduceMax", ["x"], [f"{name}_most"], keepdims=0),
                helper.make_node("Mul", [f"{name}_most", f"{name}_zero"], [f"{name}_none"]),
                helper.make_node("Add", [f"{name}_none", f"{name}_value"], [name])], \
            [sides.array(f"{name}_zero", 0), sides.array(f"{name}_value", value)], {}
    return [], [], {name: ()}  # input


def around(shape, clip, rng):
    """Nodes around clip(input, output), and their weights."""
    weights = [sides.array(f"w{i}", rng.normal(size=(3, 3, 1, 1)) / 2) for i in range(2)]
    first, last = helper.make_node("Conv", ["x", "w0"], ["c"], "first"), helper.make_node("Conv", ["r", "w1"], ["y"], "last")
    pool = helper.make_node("MaxPool", ["c"], ["p"], "pool", kernel_shape=[2, 2], pads=[0, 0, 1, 1])
    return {
        "between": [first, clip("c", "r"), last],
        "end": [first, clip("c", "y")],
        "relu_before": [first, helper.make_node("Relu", ["c"], ["q"], "relu"), clip("q", "r"), last],
        "relu_after": [first, clip("c", "q"), helper.make_node("Relu", ["q"], ["r"], "relu"), last],
        "pool": [first, pool, clip("p", "r"), last],
        "shared": [first, clip("c", "r"), helper.make_node("Add", ["c", "r"], ["y"], "add")],
        "first": [clip("x", "r"), last],
    }[shape], weights


def clipped(where, low, high, shape, seed=0):
    """A model with one Clip, and its samples."""
    rng = np.random.default_rng(seed)
    nodes, inits, inputs, names, attrs = [], [], {"x": SHAPE}, [], {}
    for name, value in (("min", low), ("max", high)):
        if value is None or where == "attribute":
            attrs.update({} if value is None else {name: float(value)})
            names.append("")
            continue
        n, i, more = held(where, name, value)
        nodes, inits, inputs = nodes + n, inits + i, {**inputs, **more}
        names.append(name)
    while names and names[-1] == "":
        names.pop()

    def clip(a, b):
        return helper.make_node("Clip", [a, *names], [b], "clip", **(attrs if where == "attribute" else {}))

    more, weights = around(shape, clip, rng)
    m = sides.model(nodes + more, inits + weights, inputs, SHAPE, 10 if where == "attribute" else 13)
    bounds = {k: np.array(v, dtype=np.float32) for k, v in (("min", low), ("max", high)) if k in inputs}
    return m, [{**s, **bounds} for s in sides.feeds(rng, SHAPE)]


def left(both):
    return sum(n.op_type in ("Clip", "Relu") for n in both.models()[1].graph.node)


def same(both):
    return compare.differences(both.reference.path, both.onq.path) == []


WHERE = ("attribute", "initializer", "constant", "number", "moved", "computed", "input")


@pytest.mark.parametrize("where, fmt", list(itertools.product(WHERE, FORMATS)))
def test_where_bounds_stand(tmp_path, where, fmt):
    """A constant bound is found wherever it stands, and the file is the reference's; what is not known is kept."""
    m, samples = clipped(where, -0.5, 1, "between")
    both = sides.static(tmp_path, m, samples, format=fmt).expect((33, 99), 33)
    known = where not in ("computed", "input")
    assert same(both) == known and left(both) == (not known)


# bounds, and whether a range from 0 to what was seen clips as they do
BOUNDS = [((0, None), True), ((None, 0.5), True), ((0, 1), True), ((-10, 10), True), ((1e-6, None), True),
          ((None, -0.3), False), ((0.4, None), False), ((0.4, 1.2), False), ((-1.2, -0.3), False), ((0.5, 0.5), False)]


@pytest.mark.parametrize("bounds, done", BOUNDS, ids=lambda v: str(v))
@pytest.mark.parametrize("activation", ["quint8", "qint8"])
@pytest.mark.parametrize("fmt", FORMATS)
def test_bounds(tmp_path, bounds, done, activation, fmt):
    m, samples = clipped("constant", *bounds, "between")
    both = sides.static(tmp_path, m, samples, format=fmt, activation=activation)
    both.expect((30, 99) if done else 20, 30)
    assert same(both) == done and left(both) == (not done)


@pytest.mark.difference("Relu and Clip that the range does not replace")
@pytest.mark.parametrize("where, bounds, shape, case, reference", [
    ("initializer", (0.4, None), "between", {}, 12),
    ("constant", (0.4, 1.2), "end", {}, 8),
    ("initializer", (-1.2, -0.3), "between", {"per_channel": True}, 9),
    ("initializer", (0, 1), "between", {"overrides": {"r": [{"symmetric": True}]}}, 8),
    ("initializer", (0, 1), "between", {"overrides": {"r": [{"rmin": -1.0, "rmax": 1.0}]}}, 8),
    ("initializer", (0, 1), "end", {"extra": {"OpTypesToExcludeOutputQuantization": ["Clip"]}}, 3),
], ids=str)
def test_lost_in_qdq(tmp_path, where, bounds, shape, case, reference):
    m, samples = clipped(where, *bounds, shape)
    both = sides.static(tmp_path, m, samples, **case).expect(reference, 30)
    assert left(both) == 1


@pytest.mark.parametrize("bounds, case", [
    ((0, 1), {"extra": {"CalibTensorRangeSymmetric": True}}), ((0, 1), {"method": "distribution"}),
    ((-0.5, 2), {"extra": {"ActivationRestrictedAsymmetric": True}}),
], ids=str)
def test_ranges_that_options_widen(tmp_path, bounds, case):
    """The file is the reference's, and a warning says what is wrong and what mends it."""
    m, samples = clipped("initializer", *bounds, "between")
    both = sides.static(tmp_path, m, samples, **case)
    assert same(both) and left(both) == 0
    assert "do not clip in their place" in both.warnings and "--qdq_keep_removable_activations" in both.warnings
    kept = sides.static(tmp_path, m, samples, **{**case, "extra": {**case.get("extra", {}), "QDQKeepRemovableActivations": True}})
    assert left(kept) == 1 and "do not clip" not in kept.warnings


@pytest.mark.parametrize("where", ["computed", "input"])
@pytest.mark.difference("Relu and Clip that the range does not replace")
def test_bound_that_changes(tmp_path, where):
    """The range of all samples does not clip as the bound of one."""
    rng = np.random.default_rng(1)
    more = {"m": ()} if where == "input" else {}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], "conv"), helper.make_node("Clip", ["c", "", "m"], ["y"], "clip")]
    if where == "computed":
        nodes.insert(0, helper.make_node("ReduceMean", ["x"], ["m"], keepdims=0))
    m = sides.model(nodes, [sides.array("w", rng.normal(size=(3, 3, 1, 1)))], {"x": SHAPE, **more}, SHAPE)
    samples = [{"x": s["x"] + i, **({"m": np.array(i, dtype=np.float32)} if more else {})} for i, s in enumerate(sides.feeds(rng, SHAPE))]
    for fmt in FORMATS:
        folder = tmp_path / fmt
        folder.mkdir()
        sides.static(folder, m, samples, format=fmt).expect(14, 33)


@pytest.mark.difference("Relu and Clip in QOperator format")
@pytest.mark.parametrize("where, bounds, shape, case, reference", [
    ("initializer", (0, None), "shared", {}, 10),
    ("constant", (0, None), "shared", {}, 10),
    ("constant", (0, 1), "pool", {}, 14),
    ("number", (0.4, None), "between", {}, 12),
    ("moved", (None, 0.3), "relu_before", {}, 20),
    ("constant", (0, 1), "between", {"extra": {"CalibTensorRangeSymmetric": True}}, 8),
], ids=str)
def test_lost_in_qoperator(tmp_path, where, bounds, shape, case, reference):
    m, samples = clipped(where, *bounds, shape)
    both = sides.static(tmp_path, m, samples, format="qoperator", **case).expect(reference, 30)
    assert left(both) == 1


@pytest.mark.parametrize("shape, fmt", list(itertools.product(["relu_before", "relu_after"], FORMATS)))
def test_one_after_the_other(tmp_path, shape, fmt):
    """The last range must clip as both do: an override that does not keeps one of them."""
    m, samples = clipped("initializer", -5, 5, shape)
    both = sides.static(tmp_path, m, samples, format=fmt, overrides={"r": [{"rmin": -2.0, "rmax": 5.0}]})
    assert both.onq.db > 28 and left(both) >= (fmt == "qdq")


@pytest.mark.parametrize("activation", ["quint16", "qint16"])
def test_16_bits(tmp_path, activation):
    m, samples = clipped("constant", 0.4, 1.2, "between")
    sides.static(tmp_path, m, samples, activation=activation, weight=activation).expect(9, 60)


def test_fast(tmp_path):
    """--fast does not observe what a Clip reads; where the Clip stays, its range is there all the same."""
    m, samples = clipped("constant", 0.4, 1.2, "between")
    for fmt in FORMATS:
        folder = tmp_path / fmt
        folder.mkdir()
        assert sides.static(folder, m, samples, "--fast", format=fmt).onq.db > 30


def test_float8(tmp_path):
    """Float 8 does not clip: the file is the reference's, and a warning says what it lost."""
    m, samples = clipped("initializer", 0, None, "between")
    case = {"activation": "qfloat8e4m3fn", "weight": "qfloat8e4m3fn", "method": "distribution"}
    both = sides.static(tmp_path, m, samples, **case)
    assert same(both) and "1 Relu and Clip were removed" in both.warnings
    both = sides.static(tmp_path, m, samples, "--qdq_keep_removable_activations", **case)
    assert left(both) == 1 and "were removed" not in both.warnings
