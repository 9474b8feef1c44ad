"""test_axes.py - scales of weights lie where the runtime's 8-bit operators take them, or a warning says that they do not."""
import numpy as np
import pytest
from onnx import helper

import compare
import sides

FORMATS = ("qdq", "qoperator")


def matmul(weight, x, y, opset=21):
    rng = np.random.default_rng(1)
    m = sides.model([helper.make_node("MatMul", ["x", "w"], ["y"], "matmul")], [sides.array("w", rng.normal(size=weight))], x, y,
                    opset, ir_version=10)
    return m, sides.feeds(rng, x)


def read_twice(order, rows, columns):
    """One weight, its output channels along another axis for each of its readers."""
    rng = np.random.default_rng(2)
    w = rng.normal(size=(rows, columns)) * np.geomspace(0.05, 1, rows).reshape(rows, 1)
    plain = helper.make_node("MatMul", ["x" if order == "plain first" else "t", "w"], ["t" if order == "plain first" else "y"], "plain")
    turned = helper.make_node("Gemm", ["x" if order != "plain first" else "t", "w", *["b"] * (rows == columns)], ["t" if order != "plain first" else "y"],
                              "turned", transB=1)
    nodes, size = ([plain, turned], rows) if order == "plain first" else ([turned, plain], columns)
    m = sides.model(nodes, [sides.array("w", w), sides.array("b", rng.normal(size=rows))], (4, size), (4, size), 13)
    return m, sides.feeds(rng, (4, size))


def same(both):
    return compare.differences(both.reference.path, both.onq.path) == []


MATRICES = {"rank 1": ((8,), (4, 8), (4,)), "rank 3": ((2, 8, 6), (2, 4, 8), (2, 4, 6)), "square": ((2, 8, 8), (2, 4, 8), (2, 4, 8)),
            "one": ((1, 8, 6), (2, 4, 8), (2, 4, 6)), "rank 4": ((2, 3, 8, 6), (2, 3, 4, 8), (2, 3, 4, 6))}


@pytest.mark.difference("MatMul with weights that are not matrices, per channel")
@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("fmt", FORMATS)
def test_no_matrix(tmp_path, name, fmt):
    m, samples = matmul(*MATRICES[name])
    both = sides.static(tmp_path, m, samples, format=fmt, per_channel=True)
    fails = name != "rank 1" or fmt == "qoperator"
    both.expect("does not run: QLinearMatMul" if fails else (35, 60), 35)
    assert fails or same(both)


@pytest.mark.parametrize("name", MATRICES)
def test_no_matrix_16_bits(tmp_path, name):
    """Other types are not fused: as the reference has it."""
    m, samples = matmul(*MATRICES[name])
    assert same(sides.static(tmp_path, m, samples, activation="quint16", per_channel=True).expect((40, 99), 40))


@pytest.mark.difference("Weights read along two axes, per channel")
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("order, rows, columns, qdq, qoperator", [
    ("plain first", 8, 8, 5, 12), ("plain first", 8, 6, "does not run", "does not run"), ("turned first", 8, 8, 10, 12)])
def test_read_twice(tmp_path, order, rows, columns, qdq, qoperator, fmt):
    m, samples = read_twice(order, rows, columns)
    sides.static(tmp_path, m, samples, format=fmt, per_channel=True).expect(qdq if fmt == "qdq" else qoperator, 33)


@pytest.mark.parametrize("case", [{"activation": "quint16", "per_channel": True}, {}], ids=str)
@pytest.mark.parametrize("order", ["plain first", "turned first"])
def test_read_twice_and_right(tmp_path, order, case):
    """What is not fused, or has one scale, is as the reference has it."""
    m, samples = read_twice(order, 8, 8)
    assert same(sides.static(tmp_path, m, samples, **case).expect((33, 99), 33))


def convolutions(inner, order):
    """A Conv and a ConvTranspose of one weight [3, inner, 2], whose channels differ in size."""
    rng = np.random.default_rng(3)
    w = rng.normal(size=(3, inner, 2)) * np.geomspace(0.02, 1, 3).reshape(3, 1, 1)
    names = {"Conv": ("x", "t"), "ConvTranspose": ("t", "y")} if order == "plain first" else {"ConvTranspose": ("x", "t"), "Conv": ("t", "y")}
    nodes = [helper.make_node(op, [i, "w"], [o], op.lower(), group=3 if op == "Conv" and inner == 1 else 1) for op, (i, o) in names.items()]
    x, y = (1, 3, 9), (1, 1 if inner == 1 else 3, 9)
    return sides.model(nodes, [sides.array("w", w)], x, y, 17), sides.feeds(rng, x)


@pytest.mark.difference("Weights read along two axes, per channel")
@pytest.mark.parametrize("order, reference", [("plain first", (5, 30)), ("turned first", (40, 60))])
def test_convolutions_read_twice(tmp_path, order, reference):
    """ConvTranspose has no 8-bit kernel, so the last axis does harm where it is not the Conv's."""
    sides.static(tmp_path, *convolutions(3, order), per_channel=True).expect(reference, 35)


def test_convolutions_with_one_channel(tmp_path):
    """One scale is that of all channels."""
    assert same(sides.static(tmp_path, *convolutions(1, "plain first"), per_channel=True).expect((25, 60), 25))


AXES = [{"per_channel": True, "extra": {"QDQOpTypePerChannelSupportToAxis": {"MatMul": 0}}},
        {"overrides": {"w": [{"axis": 0, "quant_type": "qint8"}]}}]


@pytest.mark.parametrize("case", AXES, ids=["option", "override"])
@pytest.mark.parametrize("columns", [8, 6])
def test_axis_that_was_asked_for(tmp_path, case, columns):
    """It is written as it was asked for, and a warning says what the runtime makes of it."""
    m, samples = matmul((8, columns), (4, 8), (4, columns))
    both = sides.static(tmp_path, m, samples, "--no_verify", **case)
    assert same(both) and both.onq.state == ("runs" if columns == 8 else "does not run") and (both.onq.db or 0) < 15
    assert "weight 'w' of node 'matmul' (MatMul) has its channels along axis 0" in both.warnings
    assert "fails when it is run, or computes something else" in both.warnings
    both = sides.static(tmp_path, m, samples, activation="quint16", **case).expect((40, 99), 40)
    assert "has its channels" not in both.warnings


@pytest.mark.parametrize("weight", ["qint8", "quint8"])
def test_blocks_of_8_bits(tmp_path, weight):
    m, samples = matmul((8, 6), (4, 8), (4, 6))
    both = sides.static(tmp_path, m, samples, "--no_verify", weight=weight, extra={"BlockSize": 4})
    assert same(both) and both.onq.state == "does not run"
    assert "weight 'w' of node 'matmul' (MatMul) is quantized in blocks of 4" in both.warnings
    for case in ({"extra": {"BlockSize": 8}}, {"extra": {"BlockSize": 4}, "weight": "qint4"},
                 {"extra": {"BlockSize": 4}, "activation": "quint16"}):
        both = sides.static(tmp_path, m, samples, **{"weight": weight, **case}).expect((18, 99), 18)
        assert "blocks" not in both.warnings


def test_override_in_qoperator(tmp_path):
    m, samples = matmul((8, 6), (4, 8), (4, 6))
    case = {"overrides": {"w": [{"axis": 0, "quant_type": "qint8"}]}, "per_channel": True}
    sides.static(tmp_path, m, samples, format="qoperator", **case).expect("raises: unexpected axis", "raises: along axis 0")
