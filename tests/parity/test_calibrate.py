"""Calibration against the live reference: every method and option, to the bit.

Each case runs the reference's calibrator and `onq calibrate` on the same model and samples and compares the
two cache files number by number, by their bits, with the types and shapes that numpy gives them. Where
the reference fails or loses data, the test says so and asserts what onq does instead (docs/DIFFERENCES.md).
"""

import os
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest
from calibtool import (
    DIGITS,
    MODELS,
    ONQ,
    Reader,
    differences,
    load_json,
    model_names,
    onq,
    read_samples,
    ref,
    reference,
    saved,
    write_samples,
)
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

# Quantizable operators: fewer tensors where a model has very many.
SOME = ["Conv", "MatMul", "Gemm", "Add", "Clip", "Relu"]
LARGE = {"efficientnet_lite0": 3, "ppocrv4_det": 2, "minilm": 4, "ppocr_cls": 4, "magika": 4}

CASES = [
    ("minmax", {}),
    ("minmax", {"symmetric": True}),
    ("minmax", {"moving_average": True}),
    ("minmax", {"per_channel": True}),
    ("entropy", {}),
    ("percentile", {}),
    ("percentile", {"symmetric": False}),
    ("percentile", {"percentile": 99.0, "num_bins": 100}),
    ("distribution", {}),
]
SMALL_CASES = [
    ("entropy", {"num_bins": 256, "num_quantized_bins": 64}),
    ("entropy", {"num_bins": 301, "num_quantized_bins": 33}),
    ("entropy", {"num_bins": 129, "num_quantized_bins": 129, "symmetric": True}),
    ("percentile", {"percentile": 0.0}),
    ("percentile", {"percentile": 100.0, "symmetric": False}),
    ("percentile", {"percentile": 50.0, "num_bins": 7, "symmetric": False}),
    ("distribution", {"num_bins": 513}),
    ("minmax", {"symmetric": True, "moving_average": True, "averaging_constant": 0.3}),
    ("minmax", {"symmetric": True, "per_channel": True}),
    ("minmax", {"moving_average": True, "per_channel": True}),
]


def name_of(case):
    return "-".join([case[0], *(f"{k}={v}" for k, v in case[1].items())])


def same_shape(samples):
    """The samples shaped like the first: what a histogram of the reference can take."""
    shapes = [tuple(v.shape for v in s.values()) for s in samples]
    return [s for s, shape in zip(samples, shapes) if shape == shapes[0]]


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Copies of the shared models: the reference writes beside the model it reads."""
    folder = tmp_path_factory.mktemp("models")

    def get(name):
        if not (folder / name).exists():
            (folder / name).mkdir()
            for f in (MODELS / name).iterdir():
                if f.suffix in (".onnx", ".data"):
                    shutil.copyfile(f, folder / name / f.name)
        return folder / name / "model.onnx"

    return get


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """The bundled model, where the reference may write."""
    return shutil.copyfile(DIGITS / "model.onnx", tmp_path_factory.mktemp("digits") / "model.onnx")


def compare(model, samples, method, options, tmp, op_types=None, stride=None, more=()):
    want = saved(reference(model, samples, method, tmp, op_types, stride, **options), tmp / "want.json")
    got = calibrate(model, samples, method, options, tmp, op_types, stride, more)
    assert differences(want, got) == []
    return want


def calibrate(model, samples, method, options, tmp, op_types=None, stride=None, more=()):
    data = tmp / "data"
    shutil.rmtree(data, ignore_errors=True)
    write_samples(data, samples)
    args = [f"--calib_{k}={v}" for k, v in options.items()]
    if op_types:
        args += ["--op_types_to_quantize", *op_types]
    if stride:
        args += ["--calib_strided_minmax", stride]
    onq("calibrate", "-i", model, "-o", tmp / "got.json", "--data", data, "--method", method, *args, *more)
    return load_json(tmp / "got.json")


# ---- the shared models


@pytest.mark.parametrize("case", CASES, ids=name_of)
@pytest.mark.parametrize("name", model_names() or ["none"])
def test_shared_models(name, case, models, tmp_path):
    if name == "none":
        pytest.skip("no shared models: 0 tested")
    method, options = case
    samples = read_samples(MODELS / name, LARGE.get(name, 8))
    if method != "minmax" or "per_channel" in options:
        samples = same_shape(samples)
    op_types = SOME if name in LARGE and method != "minmax" else None
    try:
        compare(models(name), samples, method, options, tmp_path, op_types)
    except Fail as e:
        # A scalar has no axis 0 to reduce: the reference's model does not load. onq takes it as one channel.
        assert "per_channel" in options and "axis must be in [-rank, rank-1]. input rank was 0" in str(e).lower()
        calibrate(models(name), samples, method, options, tmp_path, op_types)
        compare(models(name), samples, method, options, tmp_path, ["Conv", "MatMul", "Gemm"])


@pytest.mark.parametrize("case", SMALL_CASES, ids=name_of)
def test_more_options(case, digits, tmp_path):
    method, options = case
    samples = read_samples(DIGITS, 5)
    op_types = ["Conv", "Gemm"] if method == "entropy" else None
    compare(digits, samples, method, options, tmp_path, op_types)


def test_sixty_four_samples(digits, tmp_path):
    rng = np.random.default_rng(5)
    samples = [{"input": rng.random((2, 1, 28, 28), dtype=np.float32)} for _ in range(64)]
    for method, options in [("minmax", {}), ("minmax", {"moving_average": True}), ("percentile", {})]:
        compare(digits, samples, method, options, tmp_path)


@pytest.mark.parametrize("stride", [1, 2, 6])
@pytest.mark.parametrize(
    "case",
    [
        ("minmax", {}),
        ("minmax", {"moving_average": True, "averaging_constant": 0.25}),
        ("minmax", {"symmetric": True, "moving_average": True}),
        ("entropy", {}),
        ("percentile", {}),
        ("percentile", {"symmetric": False}),
        ("distribution", {}),
    ],
    ids=name_of,
)
def test_strides(stride, case, digits, tmp_path):
    """CalibStridedMinMax: collect_data is called for every `stride` samples, ranges and histograms are merged."""
    samples = read_samples(DIGITS, 6)
    # Growing ranges, so that histograms have to be widened.
    samples = [{"input": s["input"] * np.float32(0.2 + k * 0.7)} for k, s in enumerate(samples)]
    compare(digits, samples, case[0], case[1], tmp_path, stride=stride)


def test_cache_is_read_both_ways(digits, tmp_path):
    """What onq writes the reference reads, and what it writes again is the same file."""
    samples = read_samples(DIGITS, 2)
    for method in ("minmax", "entropy", "percentile", "distribution"):
        got = calibrate(digits, samples, method, {}, tmp_path)
        loaded = ref.load_tensors_data(tmp_path / "got.json")
        assert loaded.calibration_method.name.lower() == method
        again = saved(loaded, tmp_path / "again.json")
        # Bare numbers come back as float32 arrays in the reference: the values are what counts.
        assert set(again["data"]) == set(got["data"])
        for name, td in loaded.items():
            raw = got["data"][name]["lowest"]
            raw = np.array(raw["data"] if isinstance(raw, dict) else raw, dtype=np.float32)
            assert np.array_equal(np.asarray(td.lowest), raw), name


def test_tables(digits, tmp_path):
    from onnxruntime.quantization import write_calibration_table

    samples = read_samples(DIGITS, 3)
    for method in ("minmax", "percentile"):
        want, got = tmp_path / method / "want", tmp_path / method / "got"
        want.mkdir(parents=True)
        write_calibration_table(reference(digits, samples, method, tmp_path), str(want))
        calibrate(digits, samples, method, {}, tmp_path, more=["--table", got])
        for file in ("calibration.cache", "calibration.flatbuffers"):
            assert (want / file).read_bytes() == (got / file).read_bytes(), file
        assert differences(load_json(want / "calibration.json"), load_json(got / "calibration.json")) == []


# ---- models of our own


def make(path, nodes, inputs, outputs, inits=(), opset=17):
    graph = helper.make_graph(nodes, "g", inputs, outputs, list(inits))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(model, path)
    return path


def info(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


ODD_CASES = [
    ("minmax", {}),
    ("minmax", {"symmetric": True}),
    ("minmax", {"moving_average": True}),
    ("entropy", {}),
    ("percentile", {}),
    ("percentile", {"symmetric": False}),
    ("distribution", {}),
]


@pytest.fixture
def chain(tmp_path):
    """x -> Identity -> Neg -> y: what goes in is what is measured."""
    nodes = [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["y"])]
    return make(tmp_path / "chain.onnx", nodes, [info("x", [None, 3, None])], [info("y", None)])


def draws(rng, shape, n):
    return [{"x": rng.normal(size=shape).astype(np.float32)} for _ in range(n)]


@pytest.mark.parametrize("case", ODD_CASES, ids=name_of)
def test_random_values(case, chain, tmp_path):
    rng = np.random.default_rng(11)
    for scale in (1.0, 1e-30, 1e30):
        samples = draws(rng, (2, 3, 1000), 3)
        for s in samples:
            s["x"] *= np.float32(scale)
        compare(chain, samples, *case, tmp_path)


@pytest.mark.parametrize("case", ODD_CASES, ids=name_of)
@pytest.mark.parametrize(
    "value", [0.0, -0.0, 5.0, -3.25, 1e-45, 3.0e38], ids=["zero", "minus_zero", "five", "negative", "denormal", "huge"]
)
def test_constant_values(case, value, chain, tmp_path):
    samples = [{"x": np.full((1, 3, 7), value, dtype=np.float32)} for _ in range(2)]
    try:
        compare(chain, samples, *case, tmp_path)
    except ValueError as e:
        # numpy refuses ranges that have no bins of their own; onq goes on.
        assert "bins" in str(e) or "finite" in str(e)
        got = calibrate(chain, samples, *case, tmp_path)
        assert set(got["data"]) == {"x", "a", "y"}


@pytest.mark.parametrize("case", ODD_CASES, ids=name_of)
def test_edges_of_bins(case, chain, tmp_path):
    """Values on and beside the edges of the bins."""
    edges = np.linspace(np.float32(-3), np.float32(3), 2049, dtype=np.float32)
    near = np.concatenate([edges, np.nextafter(edges, np.float32(9)), np.nextafter(edges, np.float32(-9))])
    near = np.clip(near, -3, 3).astype(np.float32)
    x = np.resize(near, (1, 3, 3000))
    compare(chain, [{"x": x}], *case, tmp_path)


@pytest.mark.parametrize("case", ODD_CASES[:3], ids=name_of)
def test_nan_minmax(case, chain, tmp_path):
    """ReduceMin and ReduceMax keep a NaN here and skip it there; onq repeats it exactly."""
    rng = np.random.default_rng(3)
    for size in (1, 2, 5, 8, 11, 33, 1000):
        samples = draws(rng, (1, 3, size), 4)
        for s in samples:
            s["x"][rng.random(s["x"].shape) < rng.random() * 0.9] = np.nan
        compare(chain, samples, *case, tmp_path)


@pytest.mark.parametrize("case", [c for c in ODD_CASES if c[0] != "minmax" and c != ("percentile", {})], ids=name_of)
def test_nan_histogram(case, chain, tmp_path):
    rng = np.random.default_rng(4)
    samples = draws(rng, (1, 3, 500), 3)
    for s in samples:
        s["x"][rng.random(s["x"].shape) < 0.1] = np.nan
    compare(chain, samples, *case, tmp_path)


def test_infinite_minmax(chain, tmp_path):
    samples = draws(np.random.default_rng(6), (1, 3, 50), 2)
    samples[1]["x"][0, 1, 7] = np.inf
    for case in ODD_CASES[:3]:
        compare(chain, samples, *case, tmp_path)


@pytest.mark.parametrize("case", [c for c in ODD_CASES if c[0] != "minmax"], ids=name_of)
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_nonfinite_histogram_differs(case, bad, chain, tmp_path):
    """The reference fails on infinities (and symmetric percentile on NaN). onq counts the finite values; an
    infinity makes the range infinite, as with MinMax."""
    samples = draws(np.random.default_rng(7), (1, 3, 50), 2)
    samples[0]["x"][0, 0, 3] = bad
    if not np.isnan(bad) or case == ("percentile", {}):
        with pytest.raises(ValueError, match="finite"):
            reference(chain, samples, *case[:1], tmp_path, **case[1])
    got = calibrate(chain, samples, *case, tmp_path)
    # Without these values the reference has the same ranges.
    flat = np.concatenate([s["x"].ravel() for s in samples])
    flat = flat[np.isfinite(flat)]
    want = collected(case, {"x": flat, "a": flat, "y": -flat})
    symmetric = case == ("percentile", {})
    for name, sign in (("x", 1), ("a", 1), ("y", -1)) if np.isinf(bad) else ():
        for key, end in (("lowest", -np.inf), ("highest", np.inf)):
            got_end = got["data"][name].pop(key)
            want_end = want["data"][name].pop(key)
            if symmetric or bad * sign == end:
                assert value_of(got_end) == end
            else:
                assert value_of(got_end) == value_of(want_end)
    assert differences(want["data"], got["data"]) == []
    r = onq("calibrate", "-i", chain, "-o", tmp_path / "x.json", "--data", tmp_path / "data", "--method", case[0])
    if np.isnan(bad):
        assert "tensor 'x': 1 of 300 values are NaN and were left out" in r.stderr
    else:
        assert "3 tensors hold an infinity (the first: 'x')" in r.stderr


def value_of(number):
    """A number of a cache, bare or in a numpy.array."""
    return number["data"] if isinstance(number, dict) else number


def collected(case, arrays):
    """The reference's collector on arrays, as a parsed cache."""
    import contextlib
    import io
    import tempfile
    from pathlib import Path

    method, options = case
    default = {"entropy": 128, "percentile": 2048, "distribution": 2048}[method]
    symmetric = options.get("symmetric", method == "percentile")
    with contextlib.redirect_stdout(io.StringIO()), tempfile.TemporaryDirectory() as d:
        c = ref.HistogramCollector(
            method, symmetric, options.get("num_bins", default), 128, options.get("percentile", 99.999), "same"
        )
        c.collect({k: [v] for k, v in arrays.items()})
        data = ref.TensorsData(ref.CalibrationMethod[method.capitalize()], c.compute_collection_result())
        return saved(data, Path(d) / "c.json")


@pytest.mark.difference("Samples of different shapes in histograms")
@pytest.mark.parametrize("case", [c for c in ODD_CASES if c[0] != "minmax"], ids=name_of)
def test_samples_of_different_shapes_differ(case, chain, tmp_path):
    """The reference cannot stack them ("inhomogeneous shape"); onq takes them one after the other."""
    rng = np.random.default_rng(8)
    samples = [{"x": rng.normal(size=(1, 3, n)).astype(np.float32)} for n in (10, 400, 33)]
    with pytest.raises(ValueError, match="inhomogeneous"):
        reference(chain, samples, case[0], tmp_path, **case[1])
    flat = np.concatenate([s["x"].ravel() for s in samples])
    want = collected(case, {"x": flat, "a": flat, "y": -flat})
    got = calibrate(chain, samples, *case, tmp_path)
    assert differences(want["data"], got["data"]) == []


@pytest.mark.difference("CalibMaxIntermediateOutputs")
def test_max_intermediate_outputs_differs(chain, tmp_path):
    """The reference drops what it has when the limit is reached; onq keeps every sample."""
    samples = [{"x": np.full((1, 3, 2), k, dtype=np.float32)} for k in range(1, 11)]
    whole = reference(chain, samples, "minmax", tmp_path)["x"].range_value
    assert [float(v[0]) for v in whole] == [1, 10]
    lost = reference(chain, samples, "minmax", tmp_path, max_intermediate_outputs=3)["x"].range_value
    assert [float(v[0]) for v in lost] == [10, 10]
    got = calibrate(chain, samples, "minmax", {"max_intermediate_outputs": 3}, tmp_path)
    assert got["data"]["x"]["lowest"]["data"] == [1.0]
    assert got["data"]["x"]["highest"]["data"] == [10.0]


@pytest.mark.parametrize("case", ODD_CASES, ids=name_of)
def test_empty_tensors(case, chain, tmp_path):
    samples = [{"x": np.zeros((1, 3, 0), dtype=np.float32)} for _ in range(2)]
    compare(chain, samples, *case, tmp_path)


@pytest.mark.parametrize("case", ODD_CASES, ids=name_of)
def test_float16(case, tmp_path):
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Mul", ["a", "k"], ["y"])]
    init = numpy_helper.from_array(np.array([1.5], dtype=np.float16), "k")
    half = TensorProto.FLOAT16
    model = make(tmp_path / "half.onnx", nodes, [info("x", [None, 64], half)], [info("y", None, half)], [init])
    rng = np.random.default_rng(9)
    method, options = case
    done = 0
    for scale in (1, 30, 0.01, 1000):
        samples = [{"x": (rng.normal(size=(8, 64)) * scale).astype(np.float16)} for _ in range(3)]
        for bins in [None] if method == "minmax" else [None, 200, 512]:
            more = {"num_bins": bins} if bins and (method != "distribution" or bins >= 512) else {}
            try:
                reference(model, samples, method, tmp_path, **options, **more)
            except ValueError as e: # 2,048 bins are more than a range of float16 can hold
                assert "Too many bins" in str(e)
                calibrate(model, samples, method, {**options, **more}, tmp_path)
                continue
            compare(model, samples, method, {**options, **more}, tmp_path)
            done += 1
    assert done > 0


@pytest.mark.parametrize("case", ODD_CASES, ids=name_of)
def test_scalars_and_shared_outputs(case, tmp_path):
    """A scalar input, a tensor with three readers one of which is the graph's output, an input that no node reads."""
    nodes = [
        helper.make_node("Mul", ["x", "s"], ["a"]),
        helper.make_node("Sigmoid", ["a"], ["b"]),
        helper.make_node("Tanh", ["a"], ["c"]),
        helper.make_node("Add", ["b", "c"], ["d"]),
        helper.make_node("ReduceSum", ["d"], ["e"], keepdims=0),
        helper.make_node("Identity", ["s"], ["f"]),
    ]
    model = make(
        tmp_path / "shared.onnx",
        nodes,
        [info("x", [None, 4]), info("s", []), info("unused", [2])],
        [info("a", None), info("e", None), info("f", None)],
    )
    rng = np.random.default_rng(10)
    samples = [
        {
            "x": rng.normal(size=(3, 4)).astype(np.float32),
            "s": np.array(rng.normal(), dtype=np.float32),
            "unused": np.zeros(2, dtype=np.float32),
        }
        for _ in range(3)
    ]
    compare(model, samples, *case, tmp_path)


def test_per_channel_shapes(tmp_path):
    """Ranks 1 to 4, batches of one and of several, and a rank that the model does not declare."""
    rng = np.random.default_rng(12)
    for k, shape in enumerate([(5,), (4, 6), (1, 3, 5), (2, 3, 5), (2, 3, 4, 5), (1, 7, 2, 2)]):
        nodes = [helper.make_node("Neg", ["x"], ["y"])]
        model = make(tmp_path / f"rank{k}.onnx", nodes, [info("x", [None] * len(shape))], [info("y", None)])
        samples = [{"x": rng.normal(size=shape).astype(np.float32)} for _ in range(3)]
        compare(model, samples, "minmax", {"per_channel": True}, tmp_path)
        compare(model, samples, "minmax", {"per_channel": True, "moving_average": True}, tmp_path)
    graph = helper.make_graph(
        [helper.make_node("Reshape", ["x", "s"], ["r"]), helper.make_node("Neg", ["r"], ["y"])],
        "g",
        [info("x", [None, None, None]), info("s", [None], TensorProto.INT64)],
        [info("y", None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "norank.onnx")
    samples = [
        {"x": rng.normal(size=(2, 3, 4)).astype(np.float32), "s": np.array([2, 3, 4], dtype=np.int64)}
        for _ in range(2)
    ]
    compare(tmp_path / "norank.onnx", samples, "minmax", {"per_channel": True}, tmp_path)


def test_constant_nodes(tmp_path):
    """Outputs of Constant nodes are calibrated in the reference, and must not change the kernels of their readers."""
    rng = np.random.default_rng(13)
    w = rng.normal(size=(96, 40)).astype(np.float32)
    nodes = [
        helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(w)),
        helper.make_node("Constant", [], ["one"], value_float=1.5),
        helper.make_node("Constant", [], ["many"], value_floats=[0.25] * 40),
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Mul", ["a", "one"], ["b"]),
        helper.make_node("Add", ["b", "many"], ["y"]),
    ]
    model = make(tmp_path / "constants.onnx", nodes, [info("x", [None, 96])], [info("y", None)])
    samples = [{"x": rng.normal(size=(1, 96)).astype(np.float32)} for _ in range(5)]
    for case in ODD_CASES:
        compare(model, samples, *case, tmp_path)
    compare(model, samples, "minmax", {}, tmp_path, ["MatMul"])


@pytest.mark.parametrize("case", ODD_CASES, ids=name_of)
def test_padded_tensors(case, tmp_path):
    """A tensor with zeros around it is counted from the one without: constant pads, pads that a run shows, pads that take
    values away or come from the sample, other constants, and magnitudes whose least is not zero."""
    pads = {"more": [0, 0, 1, 0, 0, 2], "less": [0, 0, -1, 0, 0, 2], "none": [0, 0, 0, 0, 0, 0]}
    inits = [helper.make_tensor(k, TensorProto.INT64, [6], v) for k, v in pads.items()]
    inits += [helper.make_tensor(k + "32", TensorProto.INT32, [6], v) for k, v in pads.items()]
    inits += [helper.make_tensor("half", TensorProto.FLOAT, [], [0.5]), helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0]),
              helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])]
    nodes = [helper.make_node("Cast", [k + "32"], [k + "_made"], to=TensorProto.INT64) for k in pads]
    nodes += [
        helper.make_node("Relu", ["x"], ["relu"]),
        helper.make_node("Abs", ["x"], ["abs"]),
        helper.make_node("Add", ["abs", "one"], ["far"]),  # away from zero
        helper.make_node("Constant", [], ["nought"], value=helper.make_tensor("v", TensorProto.FLOAT, [], [0.0])),
    ]
    outs = []
    for t in ("x", "relu", "far"):
        for name in (*pads, *(k + "_made" for k in pads), "given"):
            for fill in ("", "zero", "nought", "half"):
                outs.append(f"{t}_{name}_{fill}")
                nodes.append(helper.make_node("Pad", [t, name, fill] if fill else [t, name], outs[-1:]))
    nodes.append(helper.make_node("Pad", ["x_more_", "more"], ["twice"]))
    given = [[0, 0, 1, 0, 0, 1]] * 5 if case[0] != "minmax" else [[0, 0, 1, 0, 0, 1], [0, 0, -1, 0, 0, 3]] * 3
    model = make(tmp_path / "pads.onnx", nodes, [info("x", [1, 4, 300]), info("given", [6], TensorProto.INT64)],
                 [info(o, None) for o in [*outs, "twice"]], inits)
    rng = np.random.default_rng(3)
    samples = [{"x": rng.normal(size=(1, 4, 300)).astype(np.float32) * np.float32(1 + i % 3), "given": np.array(g, np.int64)}
               for i, g in enumerate(given)]
    compare(model, samples, *case, tmp_path)
    want = (tmp_path / "got.json").read_bytes()
    for more in (["--memory", "0"], ["--jobs", 1, "--memory", "0"], ["--jobs", 7, "--memory", "0"], ["--jobs", 2]):
        calibrate(model, samples, *case, tmp_path, more=more)
        assert (tmp_path / "got.json").read_bytes() == want, more
    # Pads that differ from sample to sample, of the same sum: more at one side, fewer at the other.
    for s, g in zip(samples, [[0, 0, 1, 0, 0, 1], [0, 0, -1, 0, 0, 3], [0, 0, 2, 0, 0, 0]] * 2):
        s["given"] = np.array(g, np.int64)
    compare(model, samples, *case, tmp_path)


def test_op_types(digits, tmp_path):
    samples = read_samples(DIGITS, 2)
    for op_types in (["Conv"], ["Relu", "Gemm"], ["Flatten"]):
        want = compare(digits, samples, "minmax", {}, tmp_path, op_types)
        assert 0 < len(want["data"]) < 16


# ---- ways to the same result


def test_random_numbers_are_drawn_in_order(tmp_path):
    """A model that draws random numbers runs its samples one by one, whatever --jobs says."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 64]) for name in "xy")
    g = helper.make_graph([helper.make_node("RandomNormal", [], ["r"], shape=[2, 64], seed=3.0),
                           helper.make_node("Add", ["x", "r"], ["y"])], "g", [x], [y])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(tmp_path / "m.onnx"))
    seen = set()
    for jobs in (1, 2, 7, 7):
        onq("calibrate", "-i", tmp_path / "m.onnx", "-o", tmp_path / "out.json", "--data", "random:200:1", "--jobs", jobs, "-q")
        seen.add((tmp_path / "out.json").read_bytes())
    assert len(seen) == 1


@pytest.mark.parametrize(
    "case", [*ODD_CASES, ("minmax", {"per_channel": True}), ("distribution", {"num_bins": 600})], ids=name_of
)
def test_same_result_every_way(case, digits, tmp_path):
    """Two passes, kept activations, samples at once, shares, parts of a range pass, checkpoints, threads: one result."""
    method, options = case
    base = ["calibrate", "-i", digits, "--data", DIGITS, "--limit", 7, "--method", method, "--quiet"]
    base += [f"--calib_{k}={v}" for k, v in options.items()]
    out = tmp_path / "out.json"
    onq(*base, "-o", out)
    want = out.read_bytes()
    for more in (["--memory", "0"], ["--memory", "8g"], ["--memory", "3m"], ["--checkpoint", tmp_path / "state"],
                 ["--jobs", 1], ["--jobs", 2], ["--jobs", 7, "--memory", "0"], ["--threads", 1]):
        onq(*base, "-o", out, *more)
        assert out.read_bytes() == want, more
    assert not (tmp_path / "state").exists()
    parts = [tmp_path / f"part{i}" for i in range(3)]
    for i, part in enumerate(parts):
        onq(*base, "-o", part, "--shard", f"{i + 1}/3")
    onq("calibrate", "--merge", *reversed(parts), "-o", out, "--quiet")
    assert out.read_bytes() == want
    if method != "minmax":
        ranges = [tmp_path / f"range{i}" for i in range(3)]
        for i, part in enumerate(ranges):
            onq(*base, "-o", part, "--shard", f"{i}/3", "--range_pass")
        for i, part in enumerate(parts):
            onq(*base, "-o", part, "--shard", f"{i}/3", "--ranges", *ranges)
        onq("calibrate", "--merge", *parts, "-o", out, "--quiet")
        assert out.read_bytes() == want


def test_static_quantizer_takes_the_cache(digits, tmp_path):
    """quantize_static of the reference, given onq's cache, writes the model it writes with its own."""
    from onnxruntime.quantization import CalibrationMethod, quantize_static

    samples = read_samples(DIGITS, 3)
    for method, kind in (("minmax", CalibrationMethod.MinMax), ("percentile", CalibrationMethod.Percentile)):
        quantize_static(str(digits), str(tmp_path / "want.onnx"), Reader(samples), calibrate_method=kind)
        calibrate(digits, samples, method, {}, tmp_path)
        quantize_static(
            str(digits),
            str(tmp_path / "got.onnx"),
            None,
            calibrate_method=kind,
            calibration_cache_path=tmp_path / "got.json",
        )
        assert (tmp_path / "want.onnx").read_bytes() == (tmp_path / "got.onnx").read_bytes()


@pytest.mark.difference("`--fast`")
@pytest.mark.parametrize("name", ["digits_cnn", "efficientnet_lite0", "ppocr_cls"])
@pytest.mark.parametrize("case", [("minmax", {}), ("percentile", {"symmetric": False})], ids=name_of)
def test_fast(name, case, digits, models, tmp_path):
    """The optimised graph's ranges: within a hundred-thousandth of the range, and a Relu's or Clip's input has its output's."""
    if name == "digits_cnn":
        model, samples = digits, read_samples(DIGITS, 3)
    elif name in model_names():
        model, samples = models(name), read_samples(MODELS / name, 2)
    else:
        pytest.skip("no shared models")
    plain = calibrate(model, samples, *case, tmp_path)["data"]
    fast = calibrate(model, samples, *case, tmp_path, more=["--fast"])["data"]
    assert list(plain) == list(fast)

    def pair(t):
        return [float(np.ravel(v["data"] if isinstance(v, dict) else v)[0]) for v in (t["lowest"], t["highest"])]

    graph = onnx.load(model, load_external_data=False).graph
    readers = {}
    for node in graph.node:
        for i in node.input:
            readers.setdefault(i, []).append(node)
    outputs = {o.name for o in graph.output} | {i.name for i in graph.input}
    aliases = 0
    for tensor in plain:
        a, b = pair(plain[tensor]), pair(fast[tensor])
        only = readers.get(tensor, [])
        if tensor not in outputs and len(only) == 1 and only[0].op_type in ("Relu", "Clip") and only[0].input[0] == tensor:
            assert b == pair(fast[only[0].output[0]])
            aliases += 1
            continue
        assert np.allclose(a, b, rtol=0, atol=1e-5 * max(abs(a[0]), abs(a[1]), 1e-30)), (tensor, a, b)
    assert aliases > 0


def test_fast_static(digits, tmp_path):
    """The same quantized model but for the last digits of its scales."""
    write_samples(tmp_path / "data", read_samples(DIGITS, 5))
    for name, more in ("plain", []), ("fast", ["--fast"]):
        onq("static", "-i", digits, "-o", tmp_path / f"{name}.onnx", "--data", tmp_path / "data", "--quiet", *more)
    a, b = (onnx.load(tmp_path / f"{name}.onnx").graph for name in ("plain", "fast"))
    assert [n.SerializeToString() for n in a.node] == [n.SerializeToString() for n in b.node]
    assert [t.name for t in a.initializer] == [t.name for t in b.initializer]
    scales = 0
    for x, y in zip(a.initializer, b.initializer):
        x, y = numpy_helper.to_array(x), numpy_helper.to_array(y)
        if x.dtype == np.float32:
            scales += 1
            assert np.allclose(x, y, rtol=1e-5, atol=0)
        else:  # a value may fall on the other side of a half
            assert np.abs(x.astype(np.int64) - y).max(initial=0) <= 1
    assert scales > 10


def peak(*args):
    """MiB."""
    p = subprocess.Popen([ONQ, *map(str, args)], stderr=subprocess.DEVNULL)
    _, status, use = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    assert p.returncode == 0
    return use.ru_maxrss / 1024


@pytest.mark.parametrize("more", [[], ["--fast"], ["--method", "percentile", "--memory", "0"]], ids=" ".join)
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16], ids=["float", "float16"])
def test_memory_of_one_sample(kind, more, tmp_path):
    """Tensors live as long as without observers: of sixty, 8 MiB each, never all at once."""
    count, size = 60, (8 << 20) // (4 if kind == TensorProto.FLOAT else 2)
    nodes = [helper.make_node("Add", [f"t{i}", "c"], [f"t{i + 1}"]) for i in range(count)]
    half = helper.make_tensor("c", kind, [1], [0.5])
    model = make(tmp_path / "m.onnx", nodes, [info("t0", [1, size], kind)], [info(f"t{count}", [1, size], kind)], [half])
    data = ["--data", "random:2", "--quiet"]
    floor = peak("run", model, *data, "--optimization", "none")
    assert peak("calibrate", "-i", model, *data, "-o", tmp_path / "c.json", *more) < floor + 48


P3 = """
import sys
sys.path.insert(0, sys.argv[1])
import calibtool
from pathlib import Path
samples = calibtool.read_samples(calibtool.DIGITS, 3)
data = calibtool.reference(sys.argv[2], samples, "distribution", sys.argv[3], scenario="p3")
calibtool.saved(data, Path(sys.argv[3]) / "want.json")
"""


@pytest.mark.difference("Scenario p3 of Distribution")
def test_scenario_p3(digits, tmp_path):
    """numpy's float32 power has other last digits with AVX-512 than without: to the bit without, nearly with."""
    from pathlib import Path

    here = str(Path(__file__).parent)
    samples = read_samples(DIGITS, 3)
    got = calibrate(digits, samples, "distribution", {"scenario": "p3"}, tmp_path)
    for plain in (True, False):
        env = dict(os.environ)
        if plain:
            env["NPY_DISABLE_CPU_FEATURES"] = "X86_V4 AVX512_ICL AVX512_SPR"
        subprocess.run([sys.executable, "-c", P3, here, digits, tmp_path], check=True, env=env)
        want = load_json(tmp_path / "want.json")
        if plain:
            assert differences(want, got) == []
        for name, t in want["data"].items():
            for key in ("avg", "std"):
                a, b = t[key]["data"], got["data"][name][key]["data"]
                assert a == pytest.approx(b, rel=1e-5, abs=1e-7), name


@pytest.mark.parametrize("method", ["minmax", "entropy", "percentile", "distribution"])
def test_inner_graphs_in_shards(method, tmp_path):
    """Each share takes one branch only; joined they have what one run has, inner tensors too."""

    def branch(name):
        nodes = [helper.make_node("MatMul", ["X", "W"], [name + "_m"]), helper.make_node("Relu", [name + "_m"], [name + "_o"])]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name + "_o", TensorProto.FLOAT, None)])

    rng = np.random.default_rng(6)
    graph = helper.make_graph(
        [helper.make_node("If", ["c"], ["y"], then_branch=branch("a"), else_branch=branch("b"))], "g",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [2, 4]), helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(rng.standard_normal((4, 4), dtype=np.float32), "W")],
    )
    model = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), model)
    write_samples(tmp_path / "data", [{"X": rng.standard_normal((2, 4), dtype=np.float32), "c": np.array(i >= 4)}
                                      for i in range(8)])
    words = ["calibrate", "-i", model, "--data", tmp_path / "data", "--method", method, "--enable_subgraph"]
    onq(*words, "-o", tmp_path / "one.json")
    for share in "12":
        onq(*words, "-o", tmp_path / share, "--shard", f"{share}/2")
    onq("calibrate", "--merge", tmp_path / "1", tmp_path / "2", "-o", tmp_path / "two.json")
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    assert {"a_m", "a_o", "b_m", "b_o"} <= set(load_json(tmp_path / "one.json")["data"])
