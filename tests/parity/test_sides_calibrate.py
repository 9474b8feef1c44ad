"""test_sides_calibrate.py - what docs/DIFFERENCES.md says of calibration: the reference's calibrators, and `onq calibrate`."""
import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization.static_quantize_runner import OnnxModelCalibrationDataReader

import calibtool
import sides
from sides import array, model

node = helper.make_node


def reference(folder, m, samples, method, op_types=None, **options):
    """The parsed cache, or the text of the error."""
    path = folder / "m.onnx"
    onnx.save(m, path)
    try:
        data = calibtool.reference(path, samples, method, folder, op_types, **options)
    except Exception as e:  # noqa: BLE001 - the reference fails in many ways
        return f"{type(e).__name__}: {e}"
    return calibtool.saved(data, folder / "reference.json")


def onq(folder, m, samples, method, op_types=None, words=(), **options):
    """The parsed cache, or what it says."""
    path, data = folder / "m.onnx", folder / "data"
    onnx.save(m, path)
    if not data.exists():
        calibtool.write_samples(data, samples)
    done = calibtool.onq("calibrate", "-i", path, "-o", folder / "onq.json", "--data", data, "--method", method, *words,
                         *(f"--calib_{k}={v}" for k, v in options.items()),
                         *(["--op_types_to_quantize", *op_types] if op_types else []), check=False)
    return calibtool.load_json(folder / "onq.json") if done.returncode == 0 else done.stderr


def ends(cache, name):
    return [float(np.ravel(t["data"] if isinstance(t, dict) else t)[0]) for t in
            (cache["data"][name]["lowest"], cache["data"][name]["highest"])]


def chain(shape, dtype=TensorProto.FLOAT):
    """What goes in is what is measured."""
    return model([node("Identity", ["x"], ["a"]), node("Neg", ["a"], ["y"])], [], shape, shape, dtype=dtype)


@pytest.mark.difference("Ranges that have no bins")
@pytest.mark.parametrize("values, method, symmetric", [
    ([1, 1 + 1e-7, 1, 1], "percentile", True), ([-3.4e38, 1, 1, 3e38], "entropy", False),
    ([-3.4e38, 0, 0, 0], "percentile", False)], ids=["narrow", "wide", "mask"])
def test_no_bins(tmp_path, values, method, symmetric):
    samples = [{"x": np.array([values], np.float32)}]
    assert "Too many bins for data range" in reference(tmp_path, chain((1, 4)), samples, method, symmetric=symmetric)
    low, high = ends(onq(tmp_path, chain((1, 4)), samples, method, symmetric=symmetric), "x")
    span = max(abs(v) for v in values)
    assert min(values) - 1e-3 * span <= low <= high <= max(values) + 1e-3 * span and np.isfinite([low, high]).all()


@pytest.mark.difference("Ranges that have no bins")
def test_no_bins_of_float16(tmp_path):
    """2,048 bins of the normal distribution in float16."""
    samples = [{"x": np.random.default_rng(1).normal(size=(1, 4000)).astype(np.float16)}]
    m = chain((1, 4000), TensorProto.FLOAT16)
    assert "Too many bins for data range" in reference(tmp_path, m, samples, "percentile")
    want = [samples[0]["x"].min(), samples[0]["x"].max()]
    assert np.allclose(ends(onq(tmp_path, m, samples, "percentile"), "x"), want, atol=0.01)


@pytest.mark.difference("Scalars per channel")
def test_scalars_per_channel(tmp_path):
    m = model([node("Mul", ["x", "s"], ["y"])], [], {"x": (2, 3), "s": ()}, (2, 3))
    samples = [{"x": np.ones((2, 3), np.float32), "s": np.array(v, np.float32)} for v in (2.5, 4)]
    assert "s_ReduceM" in reference(tmp_path, m, samples, "minmax", per_channel=True)
    got = onq(tmp_path, m, samples, "minmax", per_channel=True)["data"]["s"]
    assert [got[k]["data"] for k in ("lowest", "highest")] == [[2.5], [4.0]]


@pytest.mark.difference("The sign of a zero")
def test_sign_of_zero(tmp_path):
    """A histogram of zeros of both signs: numpy's ends depend on its vector width."""
    samples = [{"x": np.array([[0.0, -0.0, 0.0, 1.0]], np.float32)}]
    want, got = (tool(tmp_path, chain((1, 4)), samples, "entropy") for tool in (reference, onq))
    assert ends(want, "x") == ends(got, "x") == [0.0, 1.0]  # -0.0 == 0.0
    assert np.signbit(ends(got, "x")[0])
    rest = [f for f in calibtool.differences(want, got) if not ("0.0 and -0.0" in f or "-0.0 and 0.0" in f)]
    assert rest == []


@pytest.mark.difference("Nothing to calibrate")
def test_nothing(tmp_path):
    samples = [{"x": np.ones((1, 4), np.float32)}]
    assert reference(tmp_path, chain((1, 4)), samples, "minmax", ["Conv"])["data"] == {}
    assert "Histogram has not been collected" in reference(tmp_path, chain((1, 4)), samples, "entropy", ["Conv"])
    assert "no float tensor to calibrate" in onq(tmp_path, chain((1, 4)), samples, "minmax", ["Conv"])


@pytest.mark.difference("Nothing to calibrate")
@pytest.mark.parametrize("method", ["minmax", "entropy", "percentile", "distribution"])
@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_nothing_to_quantize(tmp_path, method, form):
    samples = [{"x": np.ones((1, 4), np.float32)}]
    both = sides.static(tmp_path, chain((1, 4)), samples, method=method, format=form)
    both.expect((100, np.inf) if method == "minmax" else "raises: Histogram has not been collected", 100)
    assert "nothing was quantized" in both.warnings


@pytest.mark.difference("Threads")
def test_threads(tmp_path):
    """Whatever --threads says, the ranges are those of the reference."""
    rng = np.random.default_rng(3)
    m = model([node("MatMul", ["x", "w"], ["y"])], [array("w", rng.normal(size=(512, 64)))], (32, 512), (32, 64))
    samples = [{"x": rng.normal(size=(32, 512)).astype(np.float32)} for _ in range(2)]
    want = reference(tmp_path, m, samples, "minmax")
    for n in (1, 2, 7):
        assert calibtool.differences(want, onq(tmp_path, m, samples, "minmax", words=["--threads", n])) == []


@pytest.mark.difference("Order of test_data_set folders")
def test_order_of_sets(tmp_path, monkeypatch):
    """The runner's reader follows os.listdir; in the order of numbers its moving averages are onq's."""
    rng = np.random.default_rng(5)
    path, count = tmp_path / "m.onnx", 20
    onnx.save(model([node("Mul", ["x", "k"], ["y"])], [array("k", [1.337])], (1, 8), (1, 8)), path)
    for i in range(count):
        folder = tmp_path / f"test_data_set_{i}"
        folder.mkdir()
        x = (rng.normal(size=(1, 8)) * 3).astype(np.float32)
        (folder / "input_0.pb").write_bytes(onnx.numpy_helper.from_array(x, "x").SerializeToString())

    def listed(order):
        names = [f"test_data_set_{i}" for i in order]
        with monkeypatch.context() as m:
            m.setattr(os, "listdir", lambda _, real=os.listdir: names if str(_) == str(tmp_path) else real(_))
            samples = list(iter(OnnxModelCalibrationDataReader(str(path)).get_next, None))
        data = calibtool.reference(path, samples, "minmax", tmp_path, moving_average=True)
        return calibtool.saved(data, tmp_path / "reference.json")

    numbers, any_order = listed(range(count)), [listed(rng.permutation(count)) for _ in range(5)]
    calibtool.onq("calibrate", "-i", path, "-o", tmp_path / "onq.json", "--method", "minmax", "--calib_moving_average")
    assert calibtool.differences(numbers, calibtool.load_json(tmp_path / "onq.json")) == []
    assert any(calibtool.differences(numbers, other) for other in any_order)


@pytest.mark.difference("float16 tensors between float32 operators")
def test_float16_roundings(tmp_path):
    """A Transpose between two Mul: the runtime leaves out a rounding where the reference does not look."""
    rng = np.random.default_rng(0)
    m = model([node("Mul", ["x", "k"], ["a"]), node("Transpose", ["a"], ["b"], perm=[1, 0]), node("Mul", ["b", "k"], ["c"]),
               node("Add", ["c", "k"], ["y"])], [array("k", [1.337], np.float16)], (32, 32), (32, 32), dtype=TensorProto.FLOAT16)
    samples = [{"x": (rng.normal(size=(32, 32)) * 3).astype(np.float16)} for _ in range(3)]
    want, got = (tool(tmp_path, m, samples, "minmax") for tool in (reference, onq))
    assert list(want["data"]) and set(want["data"]) == set(got["data"])
    for name in want["data"]:
        a, b = (np.array(ends(c, name), np.float16) for c in (want, got))
        assert (np.abs(a - b) <= np.spacing(np.abs(a))).all(), (name, a, b)
