"""test_moved.py - tensors that take their parameters from others: moved constants, padded tensors, what follows a Softmax."""
import numpy as np
import pytest
from onnx import helper, numpy_helper

import compare
import sides


def ints(name, *v):
    return numpy_helper.from_array(np.array(v, dtype=np.int64), name)


def same(both):
    return compare.differences(both.reference.path, both.onq.path) == []


# ---- a table that is gathered from (or moved otherwise) and multiplied with

def tied(op, inputs, shape, reader="MatMul", rows=10, columns=6, more=(), **attrs):
    rng = np.random.default_rng(0)
    x, y = ((4, rows), (4, columns)) if reader == "MatMul" else ((4, columns), (4, rows))
    nodes = [helper.make_node(reader, ["x", "w"], ["y"], "product", **({"transB": 1} if reader == "Gemm" else {})),
             helper.make_node(op, ["w", *inputs], ["g"], "mover", **attrs), helper.make_node("Mul", ["g", "c"], ["z"], "mul")]
    inits = [sides.array("w", rng.normal(size=(rows, columns)) * np.geomspace(0.1, 1, columns)), sides.array("c", 2.5), *more]
    return sides.model(nodes, inits, {"x": x}, {"y": y, "z": shape}, 13), sides.feeds(rng, x)


RIGHT = {
    "gather": tied("Gather", ["i"], (3, 6), more=[ints("i", 5, 0, 7)]),
    "reshape": tied("Reshape", ["s"], (10, 6, 1), more=[ints("s", 10, 6, 1)]),
    "slice": tied("Slice", ["a", "b", "axes"], (5, 6), more=[ints("a", 2), ints("b", 7), ints("axes", 0)]),
    "transpose": tied("Transpose", [], (6, 10), "Gemm"),
    "unsqueeze": tied("Unsqueeze", ["s"], (1, 10, 6), "Gemm", more=[ints("s", 0)]),
}
WRONG = {
    "gather of rank 3": (tied("Gather", ["i"], (1, 3, 6), more=[numpy_helper.from_array(np.array([[5, 0, 7]]), "i")]), "does not run"),
    "gather, as many": (tied("Gather", ["i"], (1, 6, 6), more=[numpy_helper.from_array(np.array([[5, 0, 7, 1, 2, 3]]), "i")]), 15),
    "gather of columns": (tied("Gather", ["i"], (10, 3), more=[ints("i", 5, 0, 3)], axis=1), "does not run"),
    "transpose": (tied("Transpose", [], (6, 10)), "does not run"),
    "square": (tied("Transpose", [], (6, 6), rows=6), 15),
    "unsqueeze": (tied("Unsqueeze", ["s"], (1, 10, 6), more=[ints("s", 0)]), "does not run"),
    "rows": (tied("Gather", ["i"], (3, 6), "Gemm", more=[ints("i", 5, 0, 7)]), "does not run"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_channels_that_stay(tmp_path, name):
    """Where the channels come to lie along axis 1 the file is the reference's."""
    both = sides.static(tmp_path, *RIGHT[name], per_channel=True).expect((33, 60), 33)
    assert same(both)


@pytest.mark.difference("Constants per channel that are moved")
@pytest.mark.parametrize("name", WRONG)
def test_channels_that_move(tmp_path, name):
    (m, samples), reference = WRONG[name]
    sides.static(tmp_path, m, samples, per_channel=True).expect(reference, 33)


# ---- Pad

def padded(where, value, reader="Conv"):
    rng = np.random.default_rng(0)
    inits = [ints("pads", 0, 0, 1, 1, 0, 0, 1, 1), sides.array("w", rng.normal(size=(4, 3, 1, 1)))]
    nodes = []
    if where == "constant":
        nodes.append(helper.make_node("Constant", [], ["v"], value=numpy_helper.from_array(np.array(value, dtype=np.float32))))
    else:
        inits.append(sides.array("v", value))
    nodes += [helper.make_node("Conv", ["x", "w"], ["c"], "conv"), helper.make_node("Pad", ["c", "pads", "v"], ["p"], "pad")]
    if reader == "Conv":
        inits.append(sides.array("w1", rng.normal(size=(4, 4, 1, 1))))
        nodes.append(helper.make_node("Conv", ["p", "w1"], ["y"], "last"))
    else:
        nodes.append(helper.make_node("MaxPool", ["p"], ["y"], "last", kernel_shape=[3, 3]))
    size = 7 if reader == "Conv" else 5
    return sides.model(nodes, inits, (1, 3, 5, 5), (1, 4, size, size)), sides.feeds(rng, (1, 3, 5, 5))


@pytest.mark.difference("Pad with a value outside of the range, QOperator")
@pytest.mark.parametrize("where", ["initializer", "constant"])
@pytest.mark.parametrize("value, reference", [(5, 25), (-5, 20), (100, 3)])
def test_pad_outside(tmp_path, where, value, reference):
    sides.static(tmp_path, *padded(where, value), format="qoperator").expect(reference, 35)


@pytest.mark.parametrize("value, reader", [(0, "Conv"), (-0.5, "Conv"), (-3e38, "MaxPool")])
def test_pad_inside(tmp_path, value, reader):
    """To a MaxPool the lowest value of the range is as good as one below."""
    assert same(sides.static(tmp_path, *padded("initializer", value, reader), format="qoperator").expect((30, 60), 30))


# ---- Softmax, and what the runtime takes out after it

def attention(op, n, spread):
    rng = np.random.default_rng(0)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], "scores"), helper.make_node("Softmax", ["a"], ["s"], "softmax", axis=-1),
             helper.make_node(op, ["s"], ["d"], "between"), helper.make_node("MatMul", ["d", "v"], ["y"], "mix")]
    m = sides.model(nodes, [sides.array("w", rng.normal(size=(8, n)) * spread), sides.array("v", rng.normal(size=(n, 5)) + 1)],
                    (4, 8), (4, 5))
    return m, sides.feeds(rng, (4, 8))


@pytest.mark.difference("Softmax with flat values, then Dropout, Identity, Relu or Clip")
@pytest.mark.parametrize("op", ["Dropout", "Identity", "Relu", "Clip"])
@pytest.mark.parametrize("activation", ["quint8", "qint8"])
@pytest.mark.parametrize("n", [4, 64])
def test_flat_softmax(tmp_path, op, activation, n):
    sides.static(tmp_path, *attention(op, n, 0.02), activation=activation).expect(5, 38)


@pytest.mark.difference("Softmax of one value")
@pytest.mark.parametrize("case", [{}, {"activation": "qint8"}, {"format": "qoperator"}], ids=str)
def test_softmax_of_one(tmp_path, case):
    sides.static(tmp_path, *attention("Sigmoid", 1, 0.3), **case).expect(12, 38)


@pytest.mark.parametrize("case", [{"activation": "quint16"}, {"format": "qoperator", "activation": "qint8"}], ids=str)
def test_softmax_of_one_counts_right(tmp_path, case):
    assert same(sides.static(tmp_path, *attention("Sigmoid", 1, 0.3), **case).expect((35, 99), 35))


@pytest.mark.parametrize("n, spread, case", [(4, 0.3, {}), (16, 0.1, {}), (16, 1, {}), (16, 0.02, {"activation": "quint16"}),
                                             (16, 0.02, {"format": "qoperator"})], ids=str)
def test_other_softmax(tmp_path, n, spread, case):
    """Where the runtime counts right the file is the reference's."""
    assert same(sides.static(tmp_path, *attention("Identity", n, spread), **case).expect((35, 99), 35))
