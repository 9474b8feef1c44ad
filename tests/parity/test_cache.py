"""test_cache.py - what a cache of ranges remembers, what becomes of ranges when writing fails, and samples with NaN."""
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import tarfile

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization as Q
from onnxruntime.quantization import calibrate as C

import calibtool
import quantcase


def network(relu=True, size=12, op="MatMul"):
    """MatMul, Add, perhaps Relu, MatMul. Weights of 64 bytes and more."""
    rng = np.random.default_rng(3)
    inits = [numpy_helper.from_array(rng.normal(size=(size, size)).astype(np.float32), n) for n in ("w", "v")]
    inits.append(numpy_helper.from_array(rng.normal(size=size).astype(np.float32), "b"))
    nodes = [helper.make_node(op, ["x", "w"], ["a"], name="first"), helper.make_node("Add", ["a", "b"], ["c"], name="add")]
    nodes.append(helper.make_node("Relu" if relu else "Neg", ["c"], ["d"], name="act"))
    nodes.append(helper.make_node(op, ["d", "v"], ["y"], name="last"))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, size])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, size])], inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def case(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(network(), path)
    samples = [{"x": np.random.default_rng(k).normal(0.3, 1, (5, 12)).astype(np.float32)} for k in range(4)]
    calibtool.write_samples(tmp_path / "data", samples)
    return path, samples, tmp_path


def static(path, out, *words, **kw):
    return quantcase.onq("static", "-i", path, "-o", out, "--data", path.parent / "data", *words, **kw)


def calibrate(path, out, *words):
    r = quantcase.onq("calibrate", "-i", path, "-o", out, "--data", path.parent / "data", *words)
    assert r.returncode == 0, r.stderr
    return r


def pairs(cache):
    """Ranges of a cache, as numbers."""
    number = lambda v: float(np.asarray(v["data"] if isinstance(v, dict) else v).ravel()[0])  # noqa: E731
    data = json.loads(pathlib.Path(cache).read_text())["data"]
    return {k: (number(v["lowest"]), number(v["highest"])) for k, v in data.items()}


SYMMETRIC = "its ranges were made symmetric"


@pytest.mark.difference("Two defaults of Percentile")
def test_percentile_has_two_defaults(case):
    """static_quantize_runner sets CalibTensorRangeSymmetric to false; create_calibrator, and quantize_static where the key
    is not given, make symmetric ranges. static follows the first, calibrate the second; the option of either gives the
    other's, to the bit."""
    path, samples, tmp = case
    for name, extra in (("runner", {"CalibTensorRangeSymmetric": False}), ("plain", {})):
        Q.quantize_static(str(path), str(tmp / "ref.onnx"), quantcase.Reader(samples),
                          calibrate_method=Q.CalibrationMethod.Percentile, calibration_cache_path=tmp / f"{name}.json",
                          extra_options={"CalibPercentile": 90.0, **extra})
    c = C.create_calibrator(str(path), None, str(tmp / "aug.onnx"), C.CalibrationMethod.Percentile,
                            extra_options={"percentile": 90.0})
    c.collect_data(quantcase.Reader(samples))
    C.save_tensors_data(c.compute_data(), tmp / "ref_calibrate.json")
    assert pairs(tmp / "runner.json") != pairs(tmp / "plain.json") == pairs(tmp / "ref_calibrate.json")

    method = ["--calibration_method", "percentile", "--calib_percentile", "90"]
    static(path, tmp / "q.onnx", *method, "--calibration_cache", tmp / "s.json")
    calibrate(path, tmp / "c.json", *method)
    assert pairs(tmp / "s.json") == pairs(tmp / "runner.json")
    assert pairs(tmp / "c.json") == pairs(tmp / "ref_calibrate.json")
    calibrate(path, tmp / "c_off.json", *method, "--calib_symmetric=false")
    static(path, tmp / "q_on.onnx", *method, "--calib_symmetric", "--calibration_cache", tmp / "s_on.json")
    assert pairs(tmp / "c_off.json") == pairs(tmp / "s.json")
    assert pairs(tmp / "s_on.json") == pairs(tmp / "c.json")
    for command, option in (("static", "--calib_symmetric"), ("calibrate", "--calib_symmetric")):
        text = " ".join(quantcase.onq(command, "--help").stdout.split())
        assert option in text and "create_calibrator" in text and "static_quantize_runner" in text


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy", "distribution"])
def test_cache_knows_whether_it_is_symmetric(method, relu, tmp_path):
    """The reference's files and ours: which they are shows in the numbers."""
    path = tmp_path / "m.onnx"
    onnx.save(network(relu), path)
    samples = [{"x": np.random.default_rng(k).normal(-0.2, 1, (3, 12)).astype(np.float32)} for k in range(3)]
    calibtool.write_samples(tmp_path / "data", samples)
    for symmetric in (True, False):
        name = tmp_path / f"{symmetric}.json"
        calibrate(path, name, "--method", method, f"--calib_symmetric={symmetric}")
        files = [name]
        if method in ("minmax", "percentile"):
            c = C.create_calibrator(str(path), None, str(tmp_path / "aug.onnx"), quantcase.METHODS[method],
                                    extra_options={"symmetric": symmetric})
            c.collect_data(quantcase.Reader(samples))
            files.append(tmp_path / f"ref{symmetric}.json")
            C.save_tensors_data(c.compute_data(), files[1])
        for file in files:
            for asked in (True, False):
                r = static(path, tmp_path / "q.onnx", "--calibration_cache", file, f"--calib_tensor_range_symmetric={asked}")
                assert r.returncode == 0, r.stderr
                told = "--calib_tensor_range_symmetric is" in r.stderr
                assert told == (method in ("minmax", "percentile") and asked != symmetric), (file, asked, r.stderr)
                assert (SYMMETRIC in r.stderr) == (told and symmetric)
        assert C.load_tensors_data(name).calibration_method == quantcase.METHODS[method]


def test_cache_knows_its_method(case):
    path, _, tmp = case
    calibrate(path, tmp / "c.json", "--method", "percentile", "--calib_symmetric=false")
    r = static(path, tmp / "a.onnx", "--calibration_cache", tmp / "c.json")
    assert r.returncode == 0 and "ranges by Percentile are taken from it" in r.stderr, r.stderr
    assert f"--data is not used: {tmp / 'data'}" in r.stderr
    static(path, tmp / "b.onnx", "--calibration_cache", tmp / "c.json", "--calibration_method", "percentile")
    assert (tmp / "a.onnx").read_bytes() == (tmp / "b.onnx").read_bytes()
    r = static(path, tmp / "c.onnx", "--calibration_cache", tmp / "c.json", "--calibration_method", "minmax")
    assert r.returncode == 1 and "was made with Percentile, and MinMax is asked for" in r.stderr
    assert not (tmp / "c.onnx").exists()


def limited(words, size, folder):
    """Runs onq where files cannot grow past `size`: as a full disk."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return subprocess.run([quantcase.ONQ, *map(str, words)], capture_output=True, text=True, preexec_fn=limit,
                          env={**os.environ, "TMPDIR": str(folder)}, timeout=60)


@pytest.mark.parametrize("with_cache", [False, True])
def test_ranges_survive_a_full_disk(with_cache, tmp_path):
    path, kept = tmp_path / "m.onnx", tmp_path / "kept"
    kept.mkdir()
    onnx.save(network(size=64), path)
    calibtool.write_samples(tmp_path / "data", [{"x": np.random.default_rng(1).normal(size=(2, 64)).astype(np.float32)}])
    words = ["static", "-i", path, "-o", tmp_path / "q.onnx", "--data", tmp_path / "data"]
    cache = ["--calibration_cache", tmp_path / "c.json"] if with_cache else []
    r = limited(words + cache, 4096, kept)
    assert r.returncode == 1 and not (tmp_path / "q.onnx").exists()
    assert len(re.findall("^onq: error: ", r.stderr, re.M)) == 1, r.stderr
    found = re.search(r"the ranges are kept: --calibration_cache (\S+)\)", r.stderr)
    assert (found is None) == with_cache, r.stderr
    file = tmp_path / "c.json" if with_cache else pathlib.Path(found.group(1))
    assert list(kept.glob("*.json")) == ([] if with_cache else [file])
    r = quantcase.onq(*words, "--calibration_cache", file)
    assert r.returncode == 0 and "no sample is run" in r.stderr
    assert static(path, tmp_path / "again.onnx").returncode == 0
    assert (tmp_path / "q.onnx").read_bytes() == (tmp_path / "again.onnx").read_bytes()


@pytest.mark.parametrize("method", ["minmax", "entropy", "percentile"])
def test_nan_names_the_sample(method, case):
    path, samples, tmp = case
    samples[2]["x"][1, 3] = np.nan
    np.savez(tmp / "set.npz", x=np.stack([s["x"] for s in samples]))
    r = quantcase.onq("calibrate", "-i", path, "-o", tmp / "c.json", "--data", tmp / "set.npz", "--method", method)
    assert r.returncode == 0, r.stderr
    assert re.search(r"1 of 4 samples hold NaN, the first: sample 2 \('.*set.npz.*'\), input 'x'", r.stderr), r.stderr
    if method != "minmax":
        assert re.search(r"tensor 'x': 1 of 240 values are NaN and were left out, the first in sample 2 \('.*set.npz", r.stderr)


@pytest.mark.parametrize("form", ["folder", "arrays", "tar", "program", "input"])
def test_nan_names_the_file(form, case):
    path, samples, tmp = case
    samples[2]["x"][1, 3] = np.nan
    names = [f"s{i}.npz" for i in range(len(samples))]
    (tmp / "f").mkdir()
    for name, s in zip(names, samples):
        np.savez(tmp / "f" / name, **s)
    with tarfile.open(tmp / "s.tar", "w") as t:
        for name in names:
            t.add(tmp / "f" / name, name)
    np.save(tmp / "x.npy", np.stack([s["x"] for s in samples]))
    data = {"folder": tmp / "f", "arrays": tmp / "x.npy", "tar": tmp / "s.tar", "program": f"exec:cat {tmp / 's.tar'}", "input": "-"}[form]
    with open(tmp / "s.tar", "rb") as stream:
        r = subprocess.run([quantcase.ONQ, "calibrate", "-i", path, "-o", tmp / "c.json", "--data", data], stdin=stream, capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    named = "x.npy sample 2" if form == "arrays" else "s2.npz"
    assert re.search(rf"1 of 4 samples hold NaN, the first: sample 2 \('.*{named}'\), input 'x'", r.stderr), r.stderr


def test_nan_range_names_the_sample(case):
    """All samples give NaN: the reference writes a scale of NaN or stops, onq says which sample it was."""
    path, samples, tmp = case
    for s in samples:
        s["x"][:] = np.nan
    calibtool.write_samples(tmp / "bad", samples)
    r = quantcase.onq("static", "-i", path, "-o", tmp / "q.onnx", "--data", tmp / "bad")
    assert r.returncode == 1 and not (tmp / "q.onnx").exists()
    assert re.search(r"error: .*'\w+'.*the range holds NaN, first from sample 0 \('test_data_set_0'\)", r.stderr), r.stderr


@pytest.mark.difference("Nothing to calibrate")
@pytest.mark.parametrize("method", ["entropy", "percentile", "distribution"])
def test_histograms_of_nothing(method, case):
    """quantize_static fails where no tensor is calibrated; onq says that there is nothing to do and writes the model."""
    path, samples, tmp = case
    with pytest.raises(ValueError, match="Histogram has not been collected"):
        Q.quantize_static(str(path), str(tmp / "ref.onnx"), quantcase.Reader(samples), op_types_to_quantize=["Conv"],
                          calibrate_method=quantcase.METHODS[method])
    r = static(path, tmp / "q.onnx", "--op_types_to_quantize", "Conv", "--calibration_method", method)
    assert r.returncode == 0 and "nothing" in r.stderr
    assert np.array_equal(quantcase.outputs(path, samples), quantcase.outputs(tmp / "q.onnx", samples))


@pytest.mark.difference("Output over the input")
@pytest.mark.parametrize("mode", ["static", "dynamic"])
def test_output_over_the_input(mode, case):
    path, samples, tmp = case
    before = path.read_bytes()
    words = [mode, "-i", path, "-o", path] + (["--data", tmp / "data"] if mode == "static" else [])
    r = quantcase.onq(*words)
    assert r.returncode == 2 and "--force replaces it" in r.stderr and path.read_bytes() == before
    r = quantcase.onq(*words, "--force")
    assert r.returncode == 0 and path.read_bytes() != before, r.stderr
    path.write_bytes(before)
    if mode == "static":
        Q.quantize_static(str(path), str(path), quantcase.Reader(samples))
    else:
        Q.quantize_dynamic(str(path), str(path))
    assert path.read_bytes() != before


METHODS = [("entropy",), ("percentile",), ("percentile", "--calib_symmetric"), ("percentile", "--calib_percentile", "99.9"),
           ("percentile", "--calib_percentile", "97"), ("percentile", "--calib_percentile", "100"), ("distribution",),
           ("entropy", "--calib_num_bins", "512"), ("mse",)]


@pytest.mark.parametrize("method", METHODS, ids=" ".join)
def test_ends_alone_are_the_same(case, method):
    """Without a cache only the ends of the ranges are asked for, and most samples need not be counted: the model is the same
    to the byte. A column of zeros and a clipped one make ties at the ends; a Constant is the same in every sample."""
    path, samples, tmp = case
    model = onnx.load(path)
    model.graph.node.insert(0, helper.make_node("Constant", [], ["b"], name="bias", value=model.graph.initializer.pop()))
    onnx.save(model, path)
    for k, s in enumerate(samples):
        s["x"][:, 0] = 0
        s["x"][:, 1] = min(k, 2)
    shutil.rmtree(tmp / "data")
    calibtool.write_samples(tmp / "data", samples)
    words = ["--calibration_method", *method, "--no_verify"]
    for jobs in ("1", "2", "7"):
        (tmp / "c.json").unlink(missing_ok=True)
        assert static(path, tmp / "counted.onnx", *words, "--jobs", jobs, "--calibration_cache", tmp / "c.json").returncode == 0
        assert static(path, tmp / "ends.onnx", *words, "--jobs", jobs).returncode == 0
        assert (tmp / "counted.onnx").read_bytes() == (tmp / "ends.onnx").read_bytes()
