"""test_sides_qat.py - what docs/DIFFERENCES.md says of `onq qat`: quantize_qat of onnxruntime 1.8.1, and onq."""
import importlib
import sys
import types

import numpy as np
import onnx
import pytest

import qatmodels as Q
import sides
from quantcase import ROOT


@pytest.fixture(scope="module")
def tools():
    found = Q.old_tool()
    if found is None:
        pytest.skip("no onnxruntime 1.8.1: its wheel cannot be had")
    return found


def both(folder, tools, n, output):
    m = n.model(output)
    return sides.made(folder, m, [{"x": n.sample()}], lambda _, out: onnx.save(Q.old_quantize(tools, m), out), "qat")


def matmul(n, tensor, size=16):
    return n.op("MatMul", [tensor, n.weight(n.rng.normal(size=(16, size)) * 0.3, stored="float")])


@pytest.mark.difference("No optimiser before qat")
def test_no_optimiser(tmp_path, tools, monkeypatch):
    """The runtime drops a Dropout, which onq leaves. An initializer that nothing reads goes in both."""
    n = Q.Net([4, 16])
    a = n.op("Dropout", [n.pair(n.op("Sigmoid", ["x"]), 0.004, np.uint8(0))])
    n.init(np.ones(3, np.float32), "unread")
    m = n.model(matmul(n, a))
    monkeypatch.syspath_prepend(str(ROOT / "build" / "ort181"))
    calibrate = types.ModuleType("ortq181.calibrate")  # which needs a package that is not here, and is not used
    calibrate.CalibrationDataReader = calibrate.create_calibrator = object
    calibrate.CalibrationMethod = types.SimpleNamespace(MinMax=0)
    monkeypatch.setitem(sys.modules, "ortq181.calibrate", calibrate)
    whole = importlib.import_module("ortq181.quantize").quantize_qat
    b = sides.made(tmp_path, m, [{"x": n.sample()}], lambda path, out: whole(str(path), str(out)), "qat")
    b.expect((35, 99), 35)
    assert ["Dropout" in [x.op_type for x in y.graph.node] for y in b.models()] == [False, True]
    assert [any(x.name.startswith("unread") for x in y.graph.initializer) for y in b.models()] == [False, False]


@pytest.mark.difference("Pairs on inputs, weights and outputs")
@pytest.mark.parametrize("place", ["input", "weight", "output"])
def test_places(tmp_path, tools, place):
    n = Q.Net([4, 16])
    if place == "weight":
        y = n.op("MatMul", ["x", n.weight(n.rng.normal(size=(16, 8)) * 0.3)])
    else:
        y = matmul(n, n.learn("x") if place == "input" else n.op("Sigmoid", ["x"]))
    y = n.pair(y, 0.02, np.uint8(100)) if place == "output" else y
    both(tmp_path, tools, n, y).expect("raises: Remove fake-quantized node pair Error", 35)


@pytest.mark.difference("Trained tensors with two kinds of readers")
def test_two_kinds_of_readers(tmp_path, tools):
    n = Q.Net([4, 16])
    y = n.op("Add", [matmul(n, "x"), n.op("Neg", ["x"])])
    both(tmp_path, tools, n, y).expect("does not load: Duplicate definition of name", 35)


@pytest.mark.difference("Trained int8 zero points")
@pytest.mark.parametrize("zero", [3, -3])
def test_int8_zero_points(tmp_path, tools, zero):
    n = Q.Net([4, 16])
    y = matmul(n, n.pair(n.op("Tanh", ["x"]), 0.008, np.int8(zero)))
    both(tmp_path, tools, n, y).expect(10, 35)


@pytest.mark.difference("Two pairs on one tensor")
def test_two_pairs(tmp_path, tools):
    n = Q.Net([4, 16])
    a = n.op("Sigmoid", ["x"])
    one, two = n.pair(a, 0.0041, np.uint8(3)), n.pair(a, 0.0001, np.uint8(9))
    both(tmp_path, tools, n, n.op("Add", [matmul(n, one), matmul(n, two)])).expect(10, 35)
