"""test_mse.py - --calibration_method mse: near the best range there is, the same in shares and from a cache."""
import json

import numpy as np
import onnx
import pytest
from onnx import helper

import quantcase
from sides import array, model


def write(folder, samples):
    """x -> Relu -> MatMul -> y."""
    nodes = [helper.make_node("Relu", ["x"], ["r"], "relu"), helper.make_node("MatMul", ["r", "w"], ["y"], "product")]
    w = array("w", np.random.default_rng(1).normal(size=(64, 8)))
    onnx.save(model(nodes, [w], (16, 64), (16, 8)), folder / "m.onnx")
    np.savez(folder / "data.npz", x=np.stack(samples).astype(np.float32))
    return ["-i", folder / "m.onnx", "--data", folder / "data.npz"]


def ranges(path):
    data = json.loads(path.read_text())["data"]
    return {name: tuple(float(np.ravel(r[end]["data"])[0]) for end in ("lowest", "highest")) for name, r in data.items()}


def calibrate(folder, words, *more):
    out = folder / "cache.json"
    done = quantcase.onq("calibrate", *words, "--method", "mse", "-o", out, *more)
    assert done.returncode == 0, done.stderr
    return out


def error(x, lo, hi, levels=256):
    """Of 8 bits with an exact zero."""
    scale = (hi - lo) / (levels - 1)
    zero = np.rint(-lo / scale)
    return np.mean((x - (np.clip(np.rint(x / scale) + zero, 0, levels - 1) - zero) * scale) ** 2)


def least_error(x, symmetric=False):
    best = np.inf
    for hi in np.linspace(max(x.max(), 0) / 100, max(x.max(), 0), 100):
        for lo in [-hi] if symmetric else np.linspace(min(x.min(), 0), min(x.min(), 0) / 100, 100) if x.min() < 0 else [0.0]:
            best = min(best, error(x, lo, hi))
    return best


def heavy(rng):
    return rng.standard_t(3, size=(16, 64))


def skewed(rng):
    return np.exp(rng.normal(size=(16, 64))) - 1


def even(rng):
    return rng.uniform(-1, 3, size=(16, 64))


@pytest.mark.parametrize("draw", [heavy, skewed, even])
@pytest.mark.parametrize("symmetric", [False, True], ids=["free", "symmetric"])
def test_near_the_best(tmp_path, draw, symmetric):
    rng = np.random.default_rng(7)
    samples = [draw(rng) for _ in range(4)]
    found = ranges(calibrate(tmp_path, write(tmp_path, samples), "--calib_symmetric", symmetric))
    x = np.stack(samples).ravel()
    for name, values in (("x", x), ("r", np.maximum(x, 0))):
        lo, hi = found[name]
        assert lo <= 0 <= hi and hi <= values.max() * 1.001
        if symmetric:
            assert lo == -hi
        elif name == "r":
            assert lo == 0
        assert error(values, lo, hi) <= 1.1 * least_error(values, symmetric), (name, lo, hi)
    if not symmetric:
        assert error(x, *found["x"]) <= 1.01 * error(x, x.min(), x.max())


def test_rare_values_are_cut_off(tmp_path):
    """One large value among thousands of small ones."""
    rng = np.random.default_rng(12)
    samples = [rng.uniform(-1, 1, size=(16, 64)) for _ in range(8)]
    samples[0][0, 0] = 30
    lo, hi = ranges(calibrate(tmp_path, write(tmp_path, samples)))["x"]
    assert hi < 29.9 and -1.05 < lo < -0.9, (lo, hi)


def test_shares_and_cache(tmp_path):
    rng = np.random.default_rng(8)
    words = write(tmp_path, [heavy(rng) for _ in range(6)])
    whole = calibrate(tmp_path, words).read_bytes()
    parts = [tmp_path / f"part{i}" for i in (1, 2)]
    for i, part in enumerate(parts):
        done = quantcase.onq("calibrate", *words, "--method", "mse", "--shard", f"{i + 1}/2", "-o", part)
        assert done.returncode == 0, done.stderr
    done = quantcase.onq("calibrate", "--merge", *parts, "-o", tmp_path / "joined.json")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "joined.json").read_bytes() == whole
    made = []
    for more in (["--calibration_method", "mse"], ["--calibration_cache", tmp_path / "joined.json"]):
        done = quantcase.onq("static", *words, "-o", tmp_path / "q.onnx", *more)
        assert done.returncode == 0, done.stderr
        made.append((tmp_path / "q.onnx").read_bytes())
    assert made[0] == made[1]
    assert "ranges by MSE are taken from it" in done.stderr


@pytest.mark.parametrize("value", [0.0, 5.0, -3.25, 1e-45, 3.0e38])
def test_constant_values(tmp_path, value):
    found = ranges(calibrate(tmp_path, write(tmp_path, [np.full((16, 64), value)] * 2)))
    lo, hi = found["x"]
    assert np.isfinite([lo, hi]).all() and min(lo, 0) <= value * 0.999 if value < 0 else hi >= value * 0.999


def test_wide_types_cut_nothing_off(tmp_path):
    rng = np.random.default_rng(9)
    samples = [heavy(rng) for _ in range(2)]
    words = write(tmp_path, samples)
    done = quantcase.onq("static", *words, "-o", tmp_path / "q.onnx", "--calibration_method", "mse", "--activation_type",
                         "quint16", "--calibration_cache", tmp_path / "wide.json")
    assert done.returncode == 0, done.stderr
    x = np.stack(samples)
    assert ranges(tmp_path / "wide.json")["x"][1] > 0.999 * x.max()
