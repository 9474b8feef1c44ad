"""test_verify.py - the look at a result before it is kept: loaded and run as its users will, mended or refused.

Causes of results that do not load are mended elsewhere. So models that were wrecks once are asked for what must hold in
any case: a default job gives a model that loads, runs and is near float, and where the same job without the look gives a
wreck, the node that was left float is named.
"""
import json
import os
import signal
import subprocess
import time

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import sides
from common import ONQ, onq, runtime
from running import loads

FLOAT, HALF, INT64, STRING, BOOL = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.STRING,
                                    TensorProto.BOOL)
RNG = np.random.default_rng(5)


def value(name, shape, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def weight(name, *shape, kind=np.float32):
    return numpy_helper.from_array((RNG.standard_normal(shape) * 0.3).astype(kind), name)


def save(path, nodes, inputs, outputs, inits, opset=17):
    graph = helper.make_graph(nodes, "g", inputs, outputs, inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                                ir_version=10 if opset > 18 else 8), path)
    return path


def small(path, batch=2):
    """A MatMul and a Relu, twice."""
    return save(path, [helper.make_node("MatMul", ["x", "w"], ["a"], "first"), helper.make_node("Relu", ["a"], ["b"], "relu"),
                       helper.make_node("MatMul", ["b", "v"], ["y"], "second")],
                [value("x", [batch, 16])], [value("y", [batch, 8])], [weight("w", 16, 16), weight("v", 16, 8)])


def verified(done):
    """The "verify" object of a job that worked."""
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["verify"]


def runs(path, feed):
    """Outputs with default options, or why there are none."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feed)
    except Exception as e:  # noqa: BLE001 - every refusal counts
        return f"{type(e).__name__}: {e}"


def decibel(a, b):
    a, b = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    noise = ((a - b) ** 2).sum()
    return np.inf if noise == 0 else 10 * np.log10((a ** 2).sum() / noise)


# ---- sound results

JOBS = {
    "qdq": ["static", "--data", "random:3"],
    "qoperator": ["static", "--data", "random:3", "--quant_format", "qoperator"],
    "entropy": ["static", "--data", "random:3", "--calibration_method", "entropy"],
    "dynamic": ["dynamic"],
    "legacy": ["legacy"],
    "qat": ["qat"],
}


@pytest.mark.parametrize("name", JOBS)
def test_bytes_do_not_depend_on_it(tmp_path, name):
    model = small(tmp_path / "m.onnx")
    words = [*JOBS[name], "-i", model]
    looked = verified(onq(*words, "-o", tmp_path / "a.onnx", "--json"))
    plain = verified(onq(*words, "-o", tmp_path / "b.onnx", "--json", "--no_verify"))
    asked = verified(onq(*words, "-o", tmp_path / "c.onnx", "--json", "--verify"))
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes() == (tmp_path / "c.onnx").read_bytes()
    assert not plain["loaded"] and not plain["ran"] and plain["skipped"] == "--no_verify"
    assert asked["loaded"] and asked["ran"] and asked["retried"] == []
    if name != "qat":  # nothing was trained, so nothing is quantized
        assert looked["loaded"] and looked["ran"] and looked["seconds"] > 0
    if name not in ("qat", "legacy"):
        assert looked["sqnr"] > 25 and looked["output"] == "y" and not looked["poor"]


def test_figure_is_the_first_samples(tmp_path):
    """The first --check samples as one long vector, and the words that go with it."""
    model = small(tmp_path / "m.onnx")
    samples = RNG.standard_normal((6, 2, 16)).astype(np.float32)
    np.save(tmp_path / "x.npy", samples)
    words = ["static", "-i", model, "-o", tmp_path / "q.onnx", "--data", tmp_path / "x.npy"]
    for check in (4, 1, 6, 9):
        got = verified(onq(*words, "--json", *([] if check == 4 else ["--check", check])))
        n = min(check, 6)
        sides_ = [np.concatenate([runs(m, {"x": x})[0] for x in samples[:n]]) for m in (model, tmp_path / "q.onnx")]
        assert got["samples"] == n and got["sqnr"] == pytest.approx(decibel(*sides_), abs=0.2)
        assert got["top1_agreement"] == pytest.approx((sides_[0].argmax(1) == sides_[1].argmax(1)).mean())
    four = verified(onq(*words, "--json"))
    text = onq(*words).stdout
    assert f"outputs: {four['sqnr']:.1f} dB against float on 4 samples, the same top-1 in 8 of 8 rows, close to float\n" in text
    assert text.endswith(f"next: {four['next']} (shows what it gains)\n") and four["verdict"] == "close to float"
    assert four["next"] == f"onq bench {model} {tmp_path / 'q.onnx'} --data {tmp_path / 'x.npy'}"
    assert "verified in " in onq(*words, "-v").stderr and "verified" not in onq(*words).stderr


@pytest.mark.parametrize("command", ["static", "dynamic"])
def test_not_compared_when_told(tmp_path, command):
    """--check 0 looks whether the result is sound and says nothing of its outputs; the bytes are the same."""
    model = small(tmp_path / "m.onnx")
    words = [command, "-i", model, "--data", "random:5", "--json"]
    got = verified(onq(*words, "-o", tmp_path / "a.onnx", "--check", 0))
    assert got["ran"] and "sqnr" not in got and "verdict" not in got
    assert "outputs:" not in onq(*[w for w in words if w != "--json"], "-o", tmp_path / "a.onnx", "--check", 0).stdout
    assert verified(onq(*words, "-o", tmp_path / "b.onnx", "--check", 5))["samples"] == 5
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_dynamic_is_judged_on_samples(tmp_path):
    """Those beside the model or of --data; a source that is not there is an error."""
    model = small(tmp_path / "model.onnx")
    words = ["dynamic", "-i", model, "-o", tmp_path / "q.onnx", "--json"]
    assert verified(onq(*words))["generated"]
    samples = RNG.standard_normal((5, 2, 16)).astype(np.float32)
    for i, x in enumerate(samples):
        (tmp_path / f"test_data_set_{i}").mkdir()
        (tmp_path / f"test_data_set_{i}" / "input_0.pb").write_bytes(numpy_helper.from_array(x, "x").SerializeToString())
    got = verified(onq(*words))
    both = [np.concatenate([runs(m, {"x": x})[0] for x in samples[:4]]) for m in (model, tmp_path / "q.onnx")]
    assert not got["generated"] and got["samples"] == 4 and got["sqnr"] == pytest.approx(decibel(*both), abs=0.2)
    done = onq(*words, "--data", tmp_path / "none.npz")
    assert done.returncode == 1 and "none.npz" in done.stderr


def test_share_in_integers(tmp_path):
    """By weights and by work, not by nodes: the shapes are those of the samples."""
    model = save(tmp_path / "m.onnx",
                 [helper.make_node("Conv", ["x", "w"], ["a"], "heavy", pads=[1, 1, 1, 1]), helper.make_node("GlobalAveragePool", ["a"], ["p"], "pool"),
                  helper.make_node("Flatten", ["p"], ["f"], "flat"), helper.make_node("MatMul", ["f", "v"], ["y"], "light")],
                 [value("x", [1, 4, "h", "h"])], [value("y", [1, 100])], [weight("w", 8, 4, 3, 3), weight("v", 8, 100)])
    np.savez(tmp_path / "x.npz", x=RNG.standard_normal((3, 1, 4, 20, 20)).astype(np.float32))
    heavy, light = 400 * 8 * 36, 800
    for left, macs, weights in (("heavy", light / (heavy + light), 800 / 1088), ("light", heavy / (heavy + light), 288 / 1088), (None, 1, 1)):
        for form in ("qdq", "qoperator"):
            words = ["static", "-i", model, "-o", tmp_path / "q.onnx", "--data", tmp_path / "x.npz", "--quant_format", form,
                     *(["--nodes_to_exclude", left] if left else [])]
            share = json.loads(onq(*words, "--json").stdout)["integer_share"]
            assert share == {"weights": pytest.approx(weights), "macs": pytest.approx(macs)}, (left, form)
            assert f"in integers: {100 * weights:.1f} % of the weights, {100 * macs:.1f} % of the multiply-accumulates\n" in onq(*words).stdout
    dry = json.loads(onq(*words, "--json", "--dry_run").stdout)["integer_share"]
    assert dry["macs"] == 1


def test_poor_outputs_are_warned_of(tmp_path):
    """One value far out makes the range useless for the rest."""
    rows = RNG.standard_normal((16, 16)).astype(np.float32)
    save(tmp_path / "m.onnx", [helper.make_node("Mul", ["x", "s"], ["a"], "far"), helper.make_node("MatMul", ["a", "w"], ["b"], "mm"),
                               helper.make_node("Div", ["b", "s"], ["y"], "near")],
         [value("x", [2, 16])], [value("y", [2, 16])],
         [numpy_helper.from_array(np.array([1e6] + [1] * 15, np.float32), "s"),
          numpy_helper.from_array(np.eye(16, dtype=np.float32) + 0 * rows, "w")])
    done = onq("static", "-i", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", "--data", "random:2", "--op_types_to_quantize", "MatMul")
    assert done.returncode == 0 and (tmp_path / "q.onnx").exists()
    assert "which is poor" in done.stderr and "onq debug --float_model" in done.stderr and ", poor: expect wrong answers\n" in done.stdout
    assert "next: onq " in done.stdout


# ---- wrecks

def conv_concat_half(path):
    return save(path, [helper.make_node("Conv", ["x", "w"], ["a"], "c1"), helper.make_node("Conv", ["x", "v"], ["b"], "c2"),
                       helper.make_node("Concat", ["a", "b"], ["y"], "cat", axis=1)],
                [value("x", [1, 3, 8, 8], HALF)], [value("y", [1, 8, 6, 6], HALF)],
                [weight("w", 4, 3, 3, 3, kind=np.float16), weight("v", 4, 3, 3, 3, kind=np.float16)], 19), []


def float_bias_10(path):
    return save(path, [helper.make_node("Conv", ["x", "w", "b"], ["y"], "c1")], [value("x", [1, 3, 8, 8])],
                [value("y", [1, 4, 6, 6])], [weight("w", 4, 3, 3, 3), weight("b", 4)], 10), ["--extra", "QuantizeBias=false"]


def rank_3_channels(path):
    return save(path, [helper.make_node("MatMul", ["x", "w"], ["a"], "mm"), helper.make_node("MatMul", ["a", "v"], ["y"], "mm2")],
                [value("x", [2, 4, 8])], [value("y", [2, 4, 3])], [weight("w", 2, 8, 5), weight("v", 5, 3)], 13), ["--per_channel"]


def blocks_of_8_bits(path):
    return save(path, [helper.make_node("MatMul", ["x", "w"], ["y"], "mm")], [value("x", [2, 4, 32])], [value("y", [2, 4, 5])],
                [weight("w", 32, 5)], 21), ["--block_size", "16"]


def depth_to_space_10(path):
    return save(path, [helper.make_node("Conv", ["x", "w"], ["a"], "c1"),
                       helper.make_node("DepthToSpace", ["a"], ["y"], "d2s", blocksize=2)], [value("x", [1, 3, 8, 8])],
                [value("y", [1, 1, 12, 12])], [weight("w", 4, 3, 3, 3)], 10), ["--op_types_to_quantize", "Conv", "DepthToSpace"]


def many_concats_half(path):
    """Six nodes at fault: after some of them the operator is."""
    nodes, last, inits = [], "x", []
    for i in range(6):
        inits.append(weight(f"w{i}", 4, 4, 1, 1, kind=np.float16))
        nodes += [helper.make_node("Conv", [last, f"w{i}"], [f"c{i}"], f"conv{i}"),
                  helper.make_node("Concat", [f"c{i}", f"c{i}"], [f"d{i}"], f"cat{i}", axis=2),
                  helper.make_node("MaxPool", [f"d{i}"], [f"e{i}"], f"pool{i}", kernel_shape=[2, 1], strides=[2, 1])]
        last = f"e{i}"
    return save(path, nodes, [value("x", [1, 4, 8, 8], HALF)], [value(last, [1, 4, 8, 8], HALF)], inits, 19), []


@pytest.mark.parametrize("make", [conv_concat_half, float_bias_10, rank_3_channels, blocks_of_8_bits, depth_to_space_10,
                                  many_concats_half], ids=lambda f: f.__name__)
def test_wrecks(tmp_path, make):
    model, words = make(tmp_path / "m.onnx")
    inputs = onnx.load(model).graph.input
    feed = {i.name: RNG.uniform(-1, 1, [d.dim_value for d in i.type.tensor_type.shape.dim])
            .astype(np.float16 if i.type.tensor_type.elem_type == HALF else np.float32) for i in inputs}
    words = ["static", "-i", model, "--data", "random:4", *words]
    done = onq(*words, "-o", tmp_path / "q.onnx", "--json")
    left = verified(done)["retried"]
    got = runs(tmp_path / "q.onnx", feed)
    assert not isinstance(got, str), got
    assert decibel(runs(model, feed)[0], got[0]) > 20
    assert onq(*words, "-o", tmp_path / "plain.onnx", "--no_verify").returncode == 0
    without = runs(tmp_path / "plain.onnx", feed)
    assert isinstance(without, str) == bool(left), (left, without)
    if not left:
        assert (tmp_path / "plain.onnx").read_bytes() == (tmp_path / "q.onnx").read_bytes()
    names = {n.name for n in onnx.load(model).graph.node}
    for name in left:
        assert name in names
        assert len(left) > 3 or f"node '{name}'" in done.stderr
    if left:
        assert "stays float: quantized, the model does not" in done.stderr


def hole(path):
    """1 / x, whose smallest x quantization rounds to 0."""
    return save(path, [helper.make_node("MatMul", ["x", "w"], ["a"], "mm"), helper.make_node("MatMul", ["x2", "v"], ["b"], "mm2"),
                       helper.make_node("Add", ["b", "b"], ["z"], "add"), helper.make_node("Reciprocal", ["a"], ["y"], "inverse")],
                [value("x", [1, 4]), value("x2", [1, 4])], [value("y", [1, 4]), value("z", [1, 4])],
                [numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"), weight("v", 4, 4)])


def test_numbers_that_are_none(tmp_path):
    model = hole(tmp_path / "m.onnx")
    samples = np.array([[[1e-4, 1, 5, 10]], [[0.1, 1, 5, 10]]], np.float32)
    np.savez(tmp_path / "x.npz", x=samples, x2=samples)
    feed = {"x": samples[0], "x2": samples[0]}
    words = ["static", "-i", model, "--data", tmp_path / "x.npz", "--op_types_to_quantize", "MatMul"]
    assert onq(*words, "-o", tmp_path / "plain.onnx", "--no_verify").returncode == 0
    assert not np.isfinite(runs(tmp_path / "plain.onnx", feed)[0]).all()
    done = onq(*words, "-o", tmp_path / "q.onnx", "--json")
    assert verified(done)["retried"] == ["mm"], done.stderr
    assert "node 'mm' (MatMul) stays float: quantized, the model gives NaN or infinity: output 'y' has NaN" in done.stderr
    assert np.isfinite(runs(tmp_path / "q.onnx", feed)[0]).all()
    nodes = [n.op_type for n in onnx.load(tmp_path / "q.onnx").graph.node]
    assert nodes.count("DequantizeLinear") >= 2  # the other MatMul is quantized


@pytest.mark.difference("Results that do not load, do not run or are not finite")
def test_both_sides(tmp_path):
    sample = np.array([[1e-4, 1, 5, 10]], np.float32)
    model = onnx.load(hole(tmp_path / "m.onnx"))
    both = sides.static(tmp_path, model, [{"x": sample, "x2": sample}], op_types=["MatMul"])
    feed = {"x": sample, "x2": sample}
    assert np.isinf(runs(both.reference.path, feed)[0]).any()
    got = runs(both.onq.path, feed)
    assert np.isfinite(got[0]).all() and decibel(runs(tmp_path / "m.onnx", feed)[0], got[0]) > 20
    assert "node 'mm' (MatMul) stays float" in both.warnings


def test_nodes_without_names(tmp_path):
    model = onnx.load(hole(tmp_path / "m.onnx"))
    for n in model.graph.node:
        n.name = ""
    onnx.save(model, tmp_path / "m.onnx")
    one = np.array([[[1e-4, 1, 5, 10]]], np.float32)
    np.savez(tmp_path / "x.npz", x=one, x2=one)
    done = onq("static", "-i", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", "--data", tmp_path / "x.npz", "--op_types_to_quantize",
               "MatMul", "--json", "--plan", tmp_path / "plan.json")
    assert verified(done)["retried"] == ["a"]  # the tensor it makes
    rows = [n["why"] for n in json.loads((tmp_path / "plan.json").read_text())["nodes"] if n["op_type"] == "MatMul"]
    assert sorted(rows) == ["", "quantized, the model did not load or run"]


def test_float_has_none_either(tmp_path):
    """NaN in the float model's outputs is not quantization's fault."""
    model = save(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["a"], "mm"), helper.make_node("Sqrt", ["a"], ["y"], "root")],
                 [value("x", [2, 4])], [value("y", [2, 4])], [weight("w", 4, 4)])
    np.save(tmp_path / "x.npy", RNG.standard_normal((2, 2, 4)).astype(np.float32))
    words = ["static", "-i", model, "--data", tmp_path / "x.npy", "--op_types_to_quantize", "MatMul"]
    got = verified(onq(*words, "-o", tmp_path / "a.onnx", "--json"))
    assert got["ran"] and got["retried"] == []
    assert np.isnan(runs(model, {"x": np.load(tmp_path / "x.npy")[0]})[0]).any()


@pytest.mark.parametrize("words", [["--activation_type", "quint4"], ["--activation_type", "qfloat8e4m3fn", "--weight_type",
                                   "qfloat8e4m3fn", "--calibration_method", "distribution"]], ids=["4 bits", "float 8"])
def test_types_that_were_asked_for(tmp_path, words):
    """What the runtime has no kernels for is kept as the reference's, with a warning that says so."""
    model = save(tmp_path / "m.onnx", [helper.make_node("Conv", ["x", "w", "b"], ["a"], "c1"), helper.make_node("Relu", ["a"], ["r"], "r"),
                                       helper.make_node("Conv", ["r", "v", "b"], ["y"], "c2")], [value("x", [1, 4, 8, 8])],
                 [value("y", [1, 4, 4, 4])], [weight("w", 4, 4, 3, 3), weight("v", 4, 4, 3, 3), weight("b", 4)], 21)
    words = ["static", "-i", model, "--data", "random:3", *words]
    done = onq(*words, "-o", tmp_path / "q.onnx", "--json")
    assert verified(done)["ran"] and verified(done)["retried"] == []
    assert "only with graph optimisation off" in done.stderr
    assert loads(tmp_path / "q.onnx") is not None and loads(tmp_path / "q.onnx", optimised=False) is None
    onq(*words, "-o", tmp_path / "plain.onnx", "--no_verify")
    assert (tmp_path / "plain.onnx").read_bytes() == (tmp_path / "q.onnx").read_bytes()


# ---- what is at hand

def test_without_a_runtime(tmp_path):
    model = small(tmp_path / "m.onnx")
    env = {**os.environ, "ONQ_ONNXRUNTIME": str(tmp_path / "none.so")}

    def run(*words):
        return subprocess.run([ONQ, *map(str, words)], capture_output=True, text=True, env=env, timeout=60)

    for command in ("dynamic", "legacy"):
        done = run(command, "-i", model, "-o", tmp_path / "q.onnx", "--json")
        assert done.stderr == "" and verified(done)["skipped"] == "there is no ONNX Runtime"
        done = run(command, "-i", model, "-o", tmp_path / "asked.onnx", "--verify")
        assert done.returncode == 1 and "none.so" in done.stderr and not (tmp_path / "asked.onnx").exists()
    cache = tmp_path / "c.json"
    assert onq("calibrate", "-i", model, "-o", cache, "--data", "random:2").returncode == 0
    done = run("static", "-i", model, "-o", tmp_path / "s.onnx", "--calibration_cache", cache, "--json")
    assert verified(done)["skipped"] == "there is no ONNX Runtime"


def test_cache_instead_of_samples(tmp_path):
    model = small(tmp_path / "m.onnx")
    cache = tmp_path / "c.json"
    samples = RNG.standard_normal((2, 2, 16)).astype(np.float32)
    np.save(tmp_path / "x.npy", samples)
    assert onq("calibrate", "-i", model, "-o", cache, "--data", tmp_path / "x.npy").returncode == 0
    words = ["static", "-i", model, "-o", tmp_path / "q.onnx", "--calibration_cache", cache, "--json"]
    made_up = verified(onq(*words))
    assert made_up["loaded"] and made_up["ran"] and made_up["generated"] and "sqnr" not in made_up
    given = verified(onq(*words, "--data", tmp_path / "x.npy"))
    assert given["ran"] and not given["generated"] and given["sqnr"] > 25


def test_large_models_only_when_asked(tmp_path):
    side = 2048
    model = save(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", f"w{i}"] if i == 0 else [f"y{i}", f"w{i}"], [f"y{i + 1}"], f"m{i}")
                                       for i in range(3)], [value("x", [1, side])], [value("y3", [1, side])],
                 [weight(f"w{i}", side, side) for i in range(3)])
    words = ["dynamic", "-i", model, "-o", tmp_path / "q.onnx", "--json"]
    assert "large" in verified(onq(*words))["skipped"]
    assert verified(onq(*words, "--verify"))["ran"]


def odd_models(folder):
    yield "symbolic", small(folder / "symbolic.onnx", "N")
    branch = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["b"], "inner")], "then", [], [value("b", [2, 4])])
    other = helper.make_graph([helper.make_node("Identity", ["x"], ["b2"], "same")], "else", [], [value("b2", [2, 4])])
    yield "if", save(folder / "if.onnx", [helper.make_node("If", ["c"], ["i"], "if", then_branch=branch, else_branch=other),
                                          helper.make_node("MatMul", ["i", "w"], ["y"], "outer")],
                     [value("c", [], BOOL), value("x", [2, 4])], [value("y", [2, 4])], [weight("w", 4, 4)])
    yield "empty", save(folder / "empty.onnx", [helper.make_node("Concat", ["x", "e"], ["a"], "cat", axis=0),
                                                helper.make_node("MatMul", ["a", "w"], ["y"], "mm")],
                        [value("x", [2, 4]), value("e", [0, 4])], [value("y", [2, 4])], [weight("w", 4, 4)])
    yield "nothing", save(folder / "nothing.onnx", [helper.make_node("MatMul", ["e", "w"], ["y"], "mm")], [value("e", [0, 4])],
                          [value("y", [0, 4])], [weight("w", 4, 4)])
    yield "texts", save(folder / "texts.onnx", [helper.make_node("Identity", ["s"], ["t"], "copy"),
                                                helper.make_node("MatMul", ["x", "w"], ["y"], "mm")],
                        [value("s", [3], STRING), value("x", [2, 4])], [value("t", [3], STRING), value("y", [2, 4])], [weight("w", 4, 4)])
    yield "indices", save(folder / "indices.onnx", [helper.make_node("Gather", ["w", "i"], ["a"], "pick"),
                                                    helper.make_node("MatMul", ["a", "w"], ["y"], "mm")],
                          [value("i", [3], INT64)], [value("y", [3, 4])], [weight("w", 4, 4)])
    yield "sizes", save(folder / "sizes.onnx", [helper.make_node("MatMul", ["x", "w"], ["a"], "mm"), helper.make_node("Relu", ["a"], ["r"], "r"),
                                                helper.make_node("NonZero", ["r"], ["y"], "where")],
                        [value("x", [2, 4])], [value("y", None, INT64)], [weight("w", 4, 4)])
    yield "random", save(folder / "random.onnx", [helper.make_node("RandomNormalLike", ["x"], ["n"], "noise", seed=1.0),
                                                  helper.make_node("MatMul", ["n", "w"], ["y"], "mm")],
                         [value("x", [2, 4])], [value("y", [2, 4])], [weight("w", 4, 4)])


@pytest.mark.parametrize("command", ["static", "dynamic"])
def test_odd_models(tmp_path, command):
    for name, path in odd_models(tmp_path):
        words = [command, "-i", path, "--enable_subgraph", *(["--data", "random:2"] if command == "static" else [])]
        plain = onq(*words, "-o", tmp_path / "plain.onnx", "--no_verify")
        done = onq(*words, "-o", tmp_path / "q.onnx", "--json", "--verify")
        assert done.returncode == plain.returncode, (name, done.stderr, plain.stderr)
        if done.returncode == 0:
            assert verified(done)["loaded"] and verified(done)["ran"], (name, done.stdout)
            assert verified(done)["retried"] == [] and "poor" not in done.stderr, (name, done.stderr)
            assert (tmp_path / "plain.onnx").read_bytes() == (tmp_path / "q.onnx").read_bytes(), name


def test_both_words(tmp_path):
    model = small(tmp_path / "m.onnx")
    done = onq("dynamic", "-i", model, "-o", tmp_path / "q.onnx", "--verify", "--no_verify")
    assert done.returncode == 2 and "cannot be used together" in done.stderr
    assert verified(onq("dynamic", "-i", model, "-o", tmp_path / "q.onnx", "--verify=false", "--json"))["skipped"] == "--no_verify"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
def test_stopped_while_it_looks(tmp_path, number):
    """A Loop that takes its time: the run is not broken off, but nothing follows it and nothing is left."""
    body = helper.make_graph([helper.make_node("Add", ["v", "one"], ["v2"], "add"), helper.make_node("Identity", ["go"], ["go2"], "id")],
                             "body", [value("i", [], INT64), value("go", [], BOOL), value("v", [1, 4])],
                             [value("go2", [], BOOL), value("v2", [1, 4])])
    save(tmp_path / "m.onnx", [helper.make_node("Loop", ["n", "yes", "x"], ["a"], "loop", body=body),
                               helper.make_node("MatMul", ["a", "w"], ["y"], "mm")],
         [value("x", [1, 4])], [value("y", [1, 4])],
         [weight("w", 4, 4), numpy_helper.from_array(np.array(800_000, np.int64), "n"),
          numpy_helper.from_array(np.array(True), "yes"), numpy_helper.from_array(np.ones(4, np.float32), "one")])
    (tmp_path / "out").mkdir()
    job = subprocess.Popen([ONQ, "dynamic", "-i", "m.onnx", "-o", "out/q.onnx"], cwd=tmp_path, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True, env={**os.environ, **runtime()})
    time.sleep(0.4)
    if job.poll() is not None:
        pytest.skip(f"it was done before it could be asked to stop: {job.stderr.read()}")
    job.send_signal(number)
    _, stderr = job.communicate(timeout=120)
    assert job.returncode == -number and stderr == "onq: error: stopped by a signal; nothing was written\n"
    assert os.listdir(tmp_path / "out") == []


def test_wide_node_is_not_run_unasked(tmp_path):
    """The same with the inputs of one node: 10,000 take the runtime a minute, 4,000 take 2.5 s."""
    n = 10000
    model = save(tmp_path / "wide.onnx", [helper.make_node("Concat", ["x"] * n, ["y"], "wide", axis=0)], [value("x", [1])], [value("y", [n])], [])
    seen = verified(onq("static", "-i", model, "-o", tmp_path / "out.onnx", "--data", "random:1", "--json"))
    assert not seen["loaded"] and "graph is large" in seen["skipped"]


def test_long_graph_is_not_run_unasked(tmp_path):
    """The runtime's time for initializers grows with their square: above 8,192 a result is loaded only when asked."""
    n = 4200
    nodes = [helper.make_node("Sigmoid", [f"t{i}" if i else "x"], [f"t{i + 1}" if i + 1 < n else "y"], f"n{i}")
             for i in range(n)]
    model = save(tmp_path / "long.onnx", nodes, [value("x", [1, 2])], [value("y", [1, 2])], [])
    words = ["static", "-i", model, "-o", tmp_path / "out.onnx", "--data", "random:1", "--json"]
    seen = verified(onq(*words))
    assert not seen["loaded"] and "graph is large" in seen["skipped"]
    asked = verified(onq(*words, "--verify"))
    assert asked["loaded"] and "skipped" not in asked


def test_tensor_with_many_readers_is_not_run_unasked(tmp_path):
    """3,000 readers of a quantized tensor took the runtime 22 seconds."""
    n = 1100
    nodes = [helper.make_node("Sigmoid", ["x"], ["h"], "one")] + [helper.make_node("Sigmoid", ["h"], [f"y{i}"], f"n{i}") for i in range(n)]
    model = save(tmp_path / "fan.onnx", nodes, [value("x", [1, 2])], [value(f"y{i}", [1, 2]) for i in range(n)], [])
    seen = verified(onq("static", "-i", model, "-o", tmp_path / "out.onnx", "--data", "random:1", "--json"))
    assert not seen["loaded"] and "graph is large" in seen["skipped"]


# ---- what it suggests


def lines_to_type(done):
    """The commands that a result suggests."""
    assert done.returncode == 0, done.stderr
    found = [line[6:].rsplit(" (", 1)[0] for line in done.stdout.splitlines() if line.startswith(("next: ", "  or: "))]
    return found + [line.split("try --per_channel; ")[-1].split(": ")[-1].rsplit(" shows where", 1)[0]
                    for line in done.stderr.splitlines() if "shows where it is lost" in line]


def typed(folder, line):
    """Runs such a line in a shell, as it is printed."""
    (folder / "bin").mkdir(exist_ok=True)
    if not (folder / "bin/onq").exists():
        (folder / "bin/onq").symlink_to(ONQ)
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True, timeout=600,
                          env={**os.environ, **runtime(), "PATH": path}, check=False)


SUGGESTING = {
    "static": ["static", "--data", "x.npy"],
    "few samples": ["static", "--data", "x.npy", "--limit", "3"],
    "beside": ["static"],
    "program": ["static", "--data", "exec:cat x.npy"],
    "dynamic": ["dynamic"],
    "dynamic, samples": ["dynamic", "--data", "random:3"],
    "nbits": ["nbits", "--block_size", "16"],
    "bnb4": ["bnb4", "--block_size", "16"],
    "legacy": ["legacy"],
    "poor": ["static", "--data", "x.npy", "--activation_type", "qint8", "--extra", "CalibTensorRangeSymmetric=true",
             "--nodes_to_quantize", "far"],
}


@pytest.mark.parametrize("name", SUGGESTING)
@pytest.mark.parametrize("file", ["m.onnx", "a model of J\u00fcrgen's.onnx", "-m.onnx"])
def test_suggested_commands_work(tmp_path, name, file):
    """Every command that a result suggests does its job when it is typed as printed."""
    if name == "poor":
        save(tmp_path / file, [helper.make_node("Mul", ["x", "s"], ["a"], "scale"), helper.make_node("MatMul", ["a", "w"], ["b"], "far"),
                               helper.make_node("Div", ["b", "s"], ["y"], "near")], [value("x", [2, 16])], [value("y", [2, 16])],
             [numpy_helper.from_array(np.array([1e6] + [1] * 15, np.float32), "s"),
              numpy_helper.from_array(np.eye(16, dtype=np.float32), "w")])
    else:
        small(tmp_path / file)
    samples = RNG.standard_normal((6, 2, 16)).astype(np.float32)
    np.save(tmp_path / "x.npy", samples)
    if name == "beside":
        for i, x in enumerate(samples):
            (tmp_path / f"test_data_set_{i}").mkdir()
            (tmp_path / f"test_data_set_{i}/input_0.pb").write_bytes(numpy_helper.from_array(x, "x").SerializeToString())
    out = file.replace("m", "q", 1)
    lines = lines_to_type(onq(*SUGGESTING[name], f"--input=./{file}", f"--output=./{out}", cwd=tmp_path))
    assert lines, "nothing is suggested"
    assert name != "poor" or {line.split()[1] for line in lines} == {"auto", "debug"}
    for line in lines:
        done = typed(tmp_path, line)
        assert done.returncode == 0, f"{line}: {done.stderr}"


def test_nothing_is_suggested_where_models_are_no_files(tmp_path):
    model = small(tmp_path / "m.onnx")
    for words, kw in ((["-i", "-", "-o", tmp_path / "q.onnx"], {"stdin": open(model, "rb")}),  # noqa: SIM115
                      (["-i", model, "-o", model, "--force"], {})):
        done = onq("dynamic", *words, **kw)
        assert "outputs: " in done.stdout and lines_to_type(done) == []
    done = onq("dynamic", "-i", small(model), "-o", "-", text=False, errors=None)
    assert b"outputs: " in done.stderr and b"next: " not in done.stderr


def test_suggestions_have_the_options_of_the_job(tmp_path):
    """Options that say how samples are read and models run go along; those that the other command refuses do not."""
    model = save(tmp_path / "m.onnx", [helper.make_node("Conv", ["x", "w"], ["y"], "conv")], [value("x", ["n", 3, "h", "w"])],
                 [value("y", None)], [weight("w", 4, 3, 3, 3)])
    images = os.path.join(os.environ["ONQ_ROOT"], "examples/image_classification/test_images")
    words = ["static", "-i", model, "-o", tmp_path / "q.onnx", "--data", images, "--image_size", "24x16", "--image_mean", "0.5",
             "--hold_out", "3", "--limit", "4"]
    (line,) = lines_to_type(onq(*words))
    assert "--image_size 24x16" in line and "--limit 4" in line and "--hold_out" not in line
    assert typed(tmp_path, line).returncode == 0
    (line,) = lines_to_type(onq("dynamic", "-i", small(model, "n"), "-o", tmp_path / "q.onnx", "--dim", "n=5"))
    assert line.endswith("--data random:8 --dim n=5") and typed(tmp_path, line).returncode == 0


@pytest.mark.parametrize("command", ["static", "calibrate", "run", "bench", "auto"])
def test_options_for_images_are_not_silently_ignored(tmp_path, command):
    model = small(tmp_path / "m.onnx")
    words = {"run": ["run", model], "bench": ["bench", model, model, "--runs", 1]}
    done = onq(*words.get(command, [command, "-i", model, "-o", tmp_path / "q"]), "--data", "random:3", "--image_size", 8,
               "--image_mean", 0)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("onq: warning: --image_size has no effect: the samples are no images but ") == 1, done.stderr


# ---- language models ----

def bigrams(path, sharpness, words=1024):
    """Logits of the token that follows, by the token alone: what is far from float in distribution depends on sharpness,
    and the noise in dB does not."""
    rng = np.random.default_rng(3)
    table = rng.standard_normal((words, 64)).astype(np.float32)
    head = (rng.standard_normal((64, words)) * sharpness / 8).astype(np.float32)
    return save(path, [helper.make_node("Gather", ["table", "input_ids"], ["x"], "embed"),
                       helper.make_node("MatMul", ["x", "head"], ["logits"], "lm_head")],
                [value("input_ids", [1, "length"], INT64)], [value("logits", [1, "length", words])],
                [numpy_helper.from_array(table, "table"), numpy_helper.from_array(head, "head")])


def word_for(kl, top1):
    return next((w for w, k, t in (("close to float", .02, .9), ("good", .1, .75), ("fair", .3, .6)) if kl <= k and top1 >= t), "poor")


def test_language_models_have_one_verdict(tmp_path):
    """KL and the tokens that both prefer decide, whatever the noise: the same word in nbits, dynamic, debug and bench."""
    samples = tmp_path / "text"
    samples.mkdir()
    for i in range(4):
        np.savez(samples / f"{i}.npz", input_ids=RNG.integers(0, 1024, (1, 64)))
    seen, decibels = set(), []
    for sharpness, command, *options in ((4, "nbits"), (10, "nbits"), (24, "nbits"), (4, "nbits", "--bits", "8"), (4, "dynamic")):
        m, q = bigrams(tmp_path / "m.onnx", sharpness), tmp_path / "q.onnx"
        made = onq(command, "-i", m, "-o", q, "--data", samples, "--json", *options)
        look = json.loads(made.stdout)["verify"]
        word = word_for(look["kl"], look["top1"])
        assert look["verdict"] == word and look["poor"] == (word == "poor"), (sharpness, look)
        assert ("which is poor (a KL of less than 0.1 is good)" in made.stderr) == (word == "poor"), made.stderr
        d = json.loads(onq("debug", "--float_model", m, "--qdq_model", q, "--data", samples, "--json").stdout)["diagnosis"]
        assert d["kl"] == pytest.approx(look["kl"], rel=1e-3, abs=1e-7) and d["verdict"] == word
        onq("debug", "--float_model", m, "--qdq_model", q, "--data", samples, "-o", tmp_path / "r.html")
        assert f'"grade_text":"{word}"' in (tmp_path / "r.html").read_text()
        b = onq("bench", m, q, "--data", samples, "--runs", "1", "--json")
        assert json.loads(b.stdout)["models"][1]["language"]["verdict"] == word
        text = onq("bench", m, q, "--data", samples, "--runs", "1").stdout
        assert any(line.startswith(str(q)) and line.endswith(f"%  {word}") for line in text.splitlines()), text
        seen.add(word)
        if command == "nbits" and not options:
            decibels.append(look["sqnr"])
    assert seen == {"close to float", "good", "fair", "poor"}
    assert max(decibels) - min(decibels) < 1, "the noise is the same, the words are not"


def test_large_logits_have_a_verdict(tmp_path):
    """What is kept of runs grows with the model: 31 rows over 560,000 words are more than 64 MiB."""
    m, q, samples = bigrams(tmp_path / "m.onnx", 4, words=560000), tmp_path / "q.onnx", tmp_path / "text"
    samples.mkdir()
    np.savez(samples / "0.npz", input_ids=RNG.integers(0, 560000, (1, 31)))
    look = json.loads(onq("nbits", "-i", m, "-o", q, "--data", samples, "--json").stdout)["verify"]
    assert look["samples"] == 1 and look["kl"] > 0 and look["verdict"] == word_for(look["kl"], look["top1"])
