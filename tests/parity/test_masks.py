"""test_masks.py - attention masks in calibration: -inf stays float in every method, finite masks are reported."""
import json
import re

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization as Q

import calibtool
import quantcase

METHODS = ["minmax", "entropy", "percentile", "distribution"]
MINILM = quantcase.MODELS / "minilm"
T = 16


def attention(mask, place="input", softmax=True):
    """Scores of a product plus a mask, Softmax, and what they weigh. The mask lets an even half through."""
    rng = np.random.default_rng(5)
    table = np.where(np.arange(T) % 2 == 0, 0, mask).astype(np.float32)[None, :]
    weights = {k: rng.normal(size=(T, T)).astype(np.float32) for k in ("wq", "wv")}
    inits = [numpy_helper.from_array(w, k) for k, w in weights.items()]
    nodes, inputs = [], [helper.make_tensor_value_info("x", TensorProto.FLOAT, [T, T])]
    if place == "input":
        inputs.append(helper.make_tensor_value_info("mask", TensorProto.FLOAT, [1, T]))
    elif place == "constant":
        nodes.append(helper.make_node("Constant", [], ["mask"], name="mask_node", value=numpy_helper.from_array(table)))
    else:
        inits.append(numpy_helper.from_array(table, "mask"))
    nodes += [helper.make_node("MatMul", ["x", "wq"], ["scores"], name="scores_node"),
              helper.make_node("Add", ["scores", "mask"], ["masked"], name="mask_add")]
    last = "masked"
    if softmax:
        nodes += [helper.make_node("Softmax", ["masked"], ["p"], name="softmax"),
                  helper.make_node("MatMul", ["p", "wv"], ["y"], name="weigh")]
        last = "y"
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info(last, TensorProto.FLOAT, [T, T])], inits)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    samples = [{"x": rng.normal(size=(T, T)).astype(np.float32)} for _ in range(4)]
    if place == "input":
        for s in samples:
            s["mask"] = table
    return model, samples


class Case:
    def __init__(self, folder, *args, built=None, **kw):
        self.folder = folder
        self.path = folder / "model.onnx"
        model, self.samples = built if built is not None else attention(*args, **kw)
        onnx.save(model, self.path)
        calibtool.write_samples(folder / "data", self.samples)
        self.float = quantcase.outputs(self.path, self.samples)

    def static(self, *words, name="q.onnx"):
        out = self.folder / name
        r = quantcase.onq("static", "-i", self.path, "-o", out, "--data", self.folder / "data", *words)
        return r, out

    def db(self, path):
        got = quantcase.outputs(path, self.samples)
        noise = np.sum((got - self.float) ** 2)
        return float(10 * np.log10(np.sum(self.float**2) / noise)) if np.isfinite(noise) else -np.inf

    def reference(self, method, form="qdq"):
        out = self.folder / "ref.onnx"
        Q.quantize_static(str(self.path), str(out), quantcase.Reader(self.samples), quant_format=quantcase.FORMATS[form],
                          calibrate_method=quantcase.METHODS[method], activation_type=Q.QuantType.QUInt8,
                          weight_type=Q.QuantType.QInt8)
        return self.db(out)


@pytest.mark.difference("Values that are not finite in histograms")
@pytest.mark.parametrize("place", ["input", "constant", "initializer"])
@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize("method", METHODS)
def test_infinite_mask_stays_float(method, form, place, tmp_path):
    case = Case(tmp_path, -np.inf, place)
    if method == "minmax":
        assert not case.reference(method, form) > 5
    else:
        with pytest.raises(ValueError, match="finite"):
            case.reference(method, form)
    r, out = case.static("--quant_format", form, "--calibration_method", method)
    assert r.returncode == 0, r.stderr
    assert case.db(out) > 30
    assert re.search(r"tensor '(mask|masked)' holds an infinity and stays float", r.stderr), r.stderr
    assert "--nodes_to_exclude" not in r.stderr


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize("method", METHODS[1:])
def test_infinite_mask_through_files(method, form, tmp_path):
    """calibrate and shards write what static does by itself."""
    case = Case(tmp_path, -np.inf)
    words = ["--quant_format", form, "--calibration_method", method]
    _, whole = case.static(*words)
    flag = ["--method", method, "--calib_symmetric=false", "--data", tmp_path / "data"]
    cache = tmp_path / "c.json"
    r = quantcase.onq("calibrate", "-i", case.path, "-o", cache, *flag)
    assert r.returncode == 0 and "hold an infinity" in r.stderr
    _, cached = case.static(*words, "--calibration_cache", cache, name="cached.onnx")
    assert whole.read_bytes() == cached.read_bytes()
    for k in (1, 2):
        quantcase.onq("calibrate", "-i", case.path, "-o", tmp_path / f"p{k}", *flag, "--shard", f"{k}/2")
    merged = tmp_path / "m.json"
    quantcase.onq("calibrate", "--merge", tmp_path / "p1", tmp_path / "p2", "-o", merged)
    assert merged.read_bytes() == cache.read_bytes()
    data = json.loads(cache.read_text())["data"]
    assert [calibtool_value(data["masked"][k]) == -np.inf for k in ("lowest", "highest")] == [True, False]


def calibtool_value(number):
    return number["data"] if isinstance(number, dict) else number


@pytest.mark.difference("Values that are not finite")
@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_infinite_bias_is_named(form, tmp_path):
    """QOperator: not 'no range for the output', but the bias by its name. The reference's outputs are lost."""
    rng = np.random.default_rng(1)
    bias = rng.normal(size=4).astype(np.float32)
    bias[2] = -np.inf
    inits = [numpy_helper.from_array(v, k) for k, v in {
        "w": rng.normal(size=(4, 3, 1, 1)).astype(np.float32), "bias": bias,
        "v": rng.normal(size=(2, 4, 1, 1)).astype(np.float32)}.items()]
    nodes = [helper.make_node("Conv", ["x", "w", "bias"], ["c"], name="conv"),
             helper.make_node("Sigmoid", ["c"], ["s"], name="sig"),
             helper.make_node("Conv", ["s", "v"], ["y"], name="conv2")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 5, 5])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], inits)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    samples = [{"x": rng.normal(size=(1, 3, 5, 5)).astype(np.float32)} for _ in range(3)]
    case = Case(tmp_path, built=(model, samples))
    assert not case.reference("minmax", form) > 10
    r, out = case.static("--quant_format", form)
    assert r.returncode == 0, r.stderr
    assert "tensor 'bias' holds an infinity and stays float" in r.stderr, r.stderr
    assert "no range for the output" not in r.stdout
    assert case.db(out) > 30


WIDE = "so wide a range that most values are lost"


def excluded(stderr):
    """The advice of the warning, as words of a command."""
    return re.search(r"--nodes_to_exclude (\S+)", stderr).group(1)


@pytest.mark.difference("Masks that are finite")
@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize("mask, words", [
    (-3.4028235e38, []), (-1e30, []), (-1e9, []), (-65504, []), (-1e4, []),
    (-3.4028235e38, ["--calibration_method", "percentile"]), (-1e9, ["--calibration_method", "percentile"]),
    (-1e4, ["--activation_type", "qint8", "--activation_symmetric"]), (-1e9, ["--calib_tensor_range_symmetric"]),
    (-3.4028235e38, ["--activation_type", "quint16"])], ids=str)
def test_finite_mask_is_told(mask, words, form, tmp_path):
    if form == "qoperator" and "quint16" in words:
        pytest.skip("16 bits are for qdq")
    case = Case(tmp_path, mask, "input")
    r, out = case.static("--quant_format", form, *words)
    assert r.returncode == 0, r.stderr
    assert not case.db(out) > 10
    if not words:
        assert not case.reference("minmax", form) > 10
    assert WIDE in r.stderr and "'masked'" in r.stderr, r.stderr
    r, out = case.static("--quant_format", form, *words, "--nodes_to_exclude", excluded(r.stderr))
    assert WIDE not in r.stderr, r.stderr
    assert case.db(out) > 30


@pytest.mark.parametrize("mask, words", [(-8, []), (-100, []), (-1e4, ["--activation_type", "quint16"])], ids=str)
def test_sane_range_is_not_told(mask, words, tmp_path):
    case = Case(tmp_path, mask)
    r, out = case.static(*words)
    assert WIDE not in r.stderr and case.db(out) > 20


FORMS = ["qdq", "qoperator"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["float", "clamp"])
@pytest.mark.parametrize("place", ["input", "constant", "initializer"])
@pytest.mark.parametrize("mask", [-3.4028235e38, -1e9, -1e4], ids=str)
def test_masks_option(mask, place, how, form, tmp_path):
    """The accuracy returns either way; clamped, the nodes around stay quantized."""
    case = Case(tmp_path, mask, place)
    plan = tmp_path / "p.json"
    r, out = case.static("--quant_format", form)
    assert not case.db(out) > 10 and WIDE in r.stderr
    r, out = case.static("--quant_format", form, "--masks", how, "--plan", plan)
    assert r.returncode == 0 and WIDE not in r.stderr, r.stderr
    assert case.db(out) > (30 if how == "float" else 20), case.db(out)
    rows = {n["name"]: n for n in json.loads(plan.read_text())["nodes"]}
    if how == "float":
        assert rows["softmax"]["treatment"] == "float" and "masks" in rows["softmax"]["why"]
    else:
        assert rows["softmax"]["treatment"] == "quantized"
        vast = mask < -1e30 and place != "input"  # a constant of such values overflows in 8 bits
        assert rows["mask_add"]["treatment"] == ("float" if vast else "quantized")
        low = next(t for t in json.loads(plan.read_text())["tensors"] if t["name"] == "masked")
        assert low["scale"] < 0.5
    r = quantcase.onq("static", "-i", case.path, "-o", tmp_path / "again.onnx", "--from_plan", plan)
    assert r.returncode == 0 and (tmp_path / "again.onnx").read_bytes() == out.read_bytes(), r.stderr


@pytest.mark.parametrize("method, more", [("entropy", []), ("entropy", ["--calib_num_bins", "2048"]),
                                          ("percentile", ["--calib_num_bins", "256"])])
def test_masks_in_every_method(method, more, tmp_path):
    """Those that cut the ranges of other tensors, too, lose by that whatever is done about the mask."""
    case = Case(tmp_path, -1e4)
    plan = tmp_path / "p.json"
    r, out = case.static("--calibration_method", method, *more)
    assert WIDE in r.stderr and not case.db(out) > 10
    for how in ("float", "clamp"):
        r, out = case.static("--calibration_method", method, *more, "--masks", how, "--plan", plan)
        assert r.returncode == 0 and WIDE not in r.stderr, r.stderr
        masked = [t for t in json.loads(plan.read_text())["tensors"] if t["name"] == "masked"]
        assert [t["scale"] < 0.5 for t in masked] == ([] if how == "float" else [True])
        assert more or case.db(out) > 15, (how, case.db(out))


def test_clamp_without_softmax_stays_float(tmp_path):
    """A sum that leaves the model must keep its values: nothing is clamped."""
    case = Case(tmp_path, -1e9, softmax=False)
    r, out = case.static("--masks", "clamp", "--plan", tmp_path / "p.json")
    rows = {n["name"]: n for n in json.loads((tmp_path / "p.json").read_text())["nodes"]}
    assert rows["mask_add"]["treatment"] == "float" and case.db(out) > 60
    assert "nodes around 2 stay float" in r.stderr, r.stderr


def test_mask_without_softmax(tmp_path):
    """Where a model gives the masked scores out; the outputs that are not masked are lost."""
    case = Case(tmp_path, -1e9, softmax=False)
    r, _ = case.static()
    assert WIDE in r.stderr
    r, _ = case.static("--nodes_to_exclude", excluded(r.stderr))
    assert WIDE not in r.stderr


def test_nodes_without_names(tmp_path):
    model, samples = attention(-1e9)
    for n in model.graph.node:
        n.name = ""
    case = Case(tmp_path, built=(model, samples))
    r, _ = case.static()
    assert WIDE in r.stderr and "--masks float leaves the nodes around float" in r.stderr


@pytest.mark.skipif(not MINILM.is_dir(), reason="the shared models are not there")
def test_minilm(tmp_path):
    """Masks of -3.4e38 in six layers: 16 bits are nothing without the exclusion."""
    samples = calibtool.read_samples(MINILM, 4)
    want = quantcase.outputs(MINILM / "model.onnx", samples)
    words = ["static", "-i", MINILM / "model.onnx", "--activation_type", "quint16", "--per_channel", "-o"]

    def db(path):
        return 10 * np.log10(np.sum(want**2) / np.sum((quantcase.outputs(path, samples) - want) ** 2))

    r = quantcase.onq(*words, tmp_path / "a.onnx")
    assert WIDE in r.stderr and db(tmp_path / "a.onnx") < 3
    names = excluded(r.stderr)
    assert len(names.split(",")) == 13
    r = quantcase.onq(*words, tmp_path / "b.onnx", "--nodes_to_exclude", names)
    assert WIDE not in r.stderr and db(tmp_path / "b.onnx") > 14
