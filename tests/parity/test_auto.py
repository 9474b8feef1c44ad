"""`onq auto`: what it writes is what its commands make, its figures are numpy's, and it says no where it has to."""
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from common import ONQ, onq, runtime


def classifier(path, rng, classes=10):
    """Conv, Relu, pooling, Gemm: a small network with scores of classes."""
    w1 = rng.standard_normal((16, 3, 3, 3)).astype(np.float32) / 4
    w2 = rng.standard_normal((32, 16, 3, 3)).astype(np.float32) / 10
    w3 = rng.standard_normal((32, classes)).astype(np.float32)
    b = rng.standard_normal(classes).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w1"], ["c1"], name="conv1", pads=[1] * 4),
             helper.make_node("Relu", ["c1"], ["r1"], name="relu1"),
             helper.make_node("Conv", ["r1", "w2"], ["c2"], name="conv2", pads=[1] * 4, strides=[2, 2]),
             helper.make_node("Relu", ["c2"], ["r2"], name="relu2"),
             helper.make_node("GlobalAveragePool", ["r2"], ["p"], name="pool"),
             helper.make_node("Flatten", ["p"], ["f"], name="flat"),
             helper.make_node("Gemm", ["f", "w3", "b"], ["y"], name="gemm")]
    init = [numpy_helper.from_array(v, k) for k, v in {"w1": w1, "w2": w2, "w3": w3, "b": b}.items()]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 24, 24])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", classes])], init)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))


@pytest.fixture
def world(tmp_path):
    rng = np.random.default_rng(7)
    classifier(tmp_path / "m.onnx", rng)
    x = rng.standard_normal((40, 2, 3, 24, 24)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    return tmp_path, x


def auto(folder, *words, status=0, out="q.onnx"):
    r = onq("auto", "-i", folder / "m.onnx", "-o", folder / out, "--data", folder / "x.npz", *words, status=status)
    return json.loads(r.stdout) if "--json" in words and status == 0 else r


def outputs(path, x):
    s = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return [np.stack([s.run(None, {"x": k})[i] for k in x]).astype(np.float64) for i in range(len(s.get_outputs()))]


def noise_of(flt, made):
    return 10 * np.log10(np.square(flt).sum() / np.square(flt - made).sum())


def with_branch(path, inside):
    """A product, and an If of which a branch has another one, or only moves values as exporters write it."""
    rng = np.random.default_rng(4)
    w = [numpy_helper.from_array(rng.standard_normal((64, 64)).astype(np.float32), k) for k in "wv"]
    then = [helper.make_node("MatMul", ["a", "v"], ["t"])] if inside else [helper.make_node("Identity", ["a"], ["t"])]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    branches = {"then_branch": helper.make_graph(then, "t", [], [helper.make_tensor_value_info("t", TensorProto.FLOAT, None)]),
                "else_branch": helper.make_graph([helper.make_node("Neg", ["a"], ["e"])], "e", [],
                                                 [helper.make_tensor_value_info("e", TensorProto.FLOAT, None)])}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("ReduceMax", ["x"], ["m"], keepdims=0),
             helper.make_node("Greater", ["m", "zero"], ["c"]), helper.make_node("If", ["c"], ["y"], **branches)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])], [out],
                              [*w, numpy_helper.from_array(np.float32(0), "zero")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))


@pytest.mark.parametrize("inside", [False, True])
def test_inner_graphs_have_a_turn_where_they_have_products(tmp_path, inside):
    with_branch(tmp_path / "m.onnx", inside)
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(5).standard_normal((12, 4, 64)).astype(np.float32))
    j = auto(tmp_path, "--target", "sqnr=20", "--json")
    assert any("inner graphs" in c["label"] for c in j["candidates"]) == inside


def test_its_figures_hold_on_samples_that_nobody_saw(world):
    """The bound is below what other samples show, for the model that is written and the metric that was asked for."""
    folder, _ = world
    j = auto(folder, "--prefer", "size", "--target", "sqnr=20", "--json")
    assert j["target_reached"] and j["target"] == {"sqnr": 20}
    chosen = j["chosen"]
    assert chosen["bound"]["sqnr"] <= chosen["figure"]["sqnr"] == chosen["sqnr"]
    assert j["samples"]["used"] == 40 and j["samples"]["parts"] == 2 and j["samples"]["judged"] == 40
    fresh = np.random.default_rng(99).standard_normal((100, 2, 3, 24, 24)).astype(np.float32)
    flt, made = outputs(folder / "m.onnx", fresh)[0], outputs(folder / "q.onnx", fresh)[0]
    assert noise_of(flt, made) >= chosen["bound"]["sqnr"] - 1
    assert chosen["size"] == os.path.getsize(folder / "q.onnx")
    assert {"options", "cosine", "latency_ms", "commands"} <= set(chosen) and j["float"]["agreement"] == 100
    assert j["candidates"] and j["curve"]
    assert all(c["latency_ms"] > 0 for c in j["curve"])


def test_nothing_better_is_promised_than_was_seen(tmp_path):
    """Three rows of float's are nearly ties, of which some change, and the others are clear: errors and margins promise
    more than the rows showed."""
    rng = np.random.default_rng(7)
    w = rng.standard_normal((16, 10)).astype(np.float32)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], name="mm")], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 10])],
                              [numpy_helper.from_array(w, "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "m.onnx")
    x = rng.standard_normal((4000, 16)).astype(np.float32)
    order = np.sort(x @ w, axis=-1)
    order = np.argsort(order[:, -1] - order[:, -2])
    np.savez(tmp_path / "x.npz", x=x[np.concatenate([order[:3], order[-45:]])][:, None])
    j = auto(tmp_path, "--target", "agreement=90", "--json")
    judged = [c for c in j["candidates"] if "bound" in c and c["label"][:5] != "float"]
    assert any(c["figure"]["agreement"] < c["figure_without_close_calls"]["agreement"] for c in judged)
    for c in judged:
        assert c["bound"]["agreement"] <= c["figure"]["agreement"], c["label"]


def test_one_sample_alone_says_so(world):
    """Nothing is certain after one sample; that is no wrong result."""
    said = auto(world[0], "--limit", "2", "--target", "sqnr=200").stdout
    rows = [line for line in said.splitlines() if "(judged by its first sample alone)" in line]
    assert rows and all(re.match(r" +-?[0-9.]+ dB +- +[0-9.]+ ms", line) for line in rows), said
    assert "wrong" not in said


def test_what_is_written_is_calibrated_with_all_samples(world):
    """Its commands name all samples, and the ranges in the model are those of all of them."""
    folder, x = world
    j = auto(folder, "--prefer", "size", "--max_float_units", "0", "--json")
    assert all("hold_out" not in c and "--limit" not in c for c in j["chosen"]["commands"])
    written = (folder / "q.onnx").read_bytes()
    for command in j["chosen"]["commands"]:
        onq(*shlex.split(command)[1:], status=0)
    assert (folder / "q.onnx").read_bytes() == written
    if any("--calibration_method" in c for c in j["chosen"]["commands"]):
        return  # the ends of its ranges are others
    model = onnx.load(folder / "q.onnx")
    scales = {i.name: float(numpy_helper.to_array(i)) for i in model.graph.initializer if i.name == "x_scale"}
    assert scales["x_scale"] == pytest.approx((x.max() - x.min()) / 255, rel=1e-3)


def test_kinds_of_samples_that_alternate(tmp_path):
    """Every second sample is a hundred times larger. Divided by stride one kind would calibrate and the other judge."""
    rng = np.random.default_rng(3)
    classifier(tmp_path / "m.onnx", rng)
    x = rng.standard_normal((32, 1, 3, 24, 24)).astype(np.float32)
    x[1::2] *= 100
    np.savez(tmp_path / "x.npz", x=x)
    first = auto(tmp_path, "--target", "sqnr=20", "--prefer", "accuracy", "--json")
    np.savez(tmp_path / "x.npz", x=np.concatenate([x[0::2], x[1::2]]))
    second = auto(tmp_path, "--target", "sqnr=20", "--prefer", "accuracy", "--json")
    assert first["target_reached"] and second["target_reached"]
    # Which nodes integers pay for is measured in time, so only what does not hang on it is the same in both searches.
    figures = lambda j: {c["label"]: c.get("sqnr") for c in j["candidates"] if "pays" not in c["label"]}  # noqa: E731
    one, two = figures(first), figures(second)
    both = [k for k in one if k in two and one[k] is not None]
    assert len(both) >= 3 and all(one[k] == pytest.approx(two[k], abs=0.01) for k in both)


def test_a_softmax_that_is_written_out(tmp_path):
    rng = np.random.default_rng(5)
    classifier(tmp_path / "m.onnx", rng)
    model = onnx.load(tmp_path / "m.onnx")
    graph = model.graph
    graph.node[-1].output[0] = "logits"
    graph.node.extend([helper.make_node("Exp", ["logits"], ["e"], name="exp"),
                       helper.make_node("ReduceSum", ["e", "axes"], ["sum"], name="sum", keepdims=1),
                       helper.make_node("Div", ["e", "sum"], ["y"], name="div")])
    graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), "axes"))
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=rng.standard_normal((12, 2, 3, 24, 24)).astype(np.float32))
    j = auto(tmp_path, "--json", "--allow", "static")
    assert j["target"] == {"agreement": 99} and "written out" in j["target_why"]


def test_a_mean_of_softmax_results(tmp_path):
    """Rows that add up to one are probabilities of classes, whatever made them: by default, and where classes are asked for."""
    rng = np.random.default_rng(5)
    classifier(tmp_path / "m.onnx", rng)
    model = onnx.load(tmp_path / "m.onnx")
    graph = model.graph
    graph.node[-1].output[0] = "logits"
    graph.node.extend([helper.make_node("Softmax", ["logits"], ["first"], name="one", axis=-1),
                       helper.make_node("Mul", ["logits", "half"], ["cool"], name="cool"),
                       helper.make_node("Softmax", ["cool"], ["second"], name="other", axis=-1),
                       helper.make_node("Mean", ["first", "second"], ["y"], name="mean")])
    graph.initializer.append(numpy_helper.from_array(np.array(0.5, np.float32), "half"))
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=rng.standard_normal((12, 2, 3, 24, 24)).astype(np.float32))
    j = auto(tmp_path, "--json", "--allow", "static")
    assert j["target"] == {"agreement": 99} and "adds up to one" in j["target_why"]
    j = auto(tmp_path, "--json", "--allow", "static", "--target", "agreement=90")
    assert j["target"] == {"agreement": 90} and all(c["agreement"] is not None for c in j["candidates"] if not c.get("why_not"))


def masks(path, rng, shift):
    """A map of one probability for each pixel; `shift` says how many are above one half."""
    w1 = rng.standard_normal((8, 3, 3, 3)).astype(np.float32) / 4
    w2 = rng.standard_normal((1, 8, 1, 1)).astype(np.float32)
    b = np.array([shift], np.float32)
    nodes = [helper.make_node("Conv", ["x", "w1"], ["c"], name="conv1", pads=[1] * 4),
             helper.make_node("Relu", ["c"], ["r"], name="relu"),
             helper.make_node("Conv", ["r", "w2", "b"], ["logits"], name="conv2"),
             helper.make_node("Sigmoid", ["logits"], ["y"], name="map")]
    init = [numpy_helper.from_array(v, k) for k, v in {"w1": w1, "w2": w2, "b": b}.items()]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 24, 24])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 1, 24, 24])], init)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))


def test_masks(tmp_path):
    """iou is that of the pixels above one half, over all samples; what is no mask has none."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal((24, 1, 3, 24, 24)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    masks(tmp_path / "m.onnx", rng, 0)
    j = auto(tmp_path, "--json", "--target", "iou=90", "--prefer", "size", "--eval_data", tmp_path / "x.npz")
    assert j["target_reached"] and j["chosen"]["options"]["command"] != "float"
    a, b = (outputs(tmp_path / f, x)[0] > 0.5 for f in ("m.onnx", "q.onnx"))
    assert j["chosen"]["figure"]["iou"] == pytest.approx(100 * (a & b).sum() / (a | b).sum(), abs=0.02)
    assert j["chosen"]["bound"]["iou"] <= j["chosen"]["figure"]["iou"]
    masks(tmp_path / "m.onnx", rng, -99)
    assert "no number of the first output is above 0.5" in auto(tmp_path, "--target", "iou=90", status=1).stderr
    classifier(tmp_path / "m.onnx", rng)
    assert "does not hold probabilities" in auto(tmp_path, "--target", "iou=90", status=1).stderr


def test_a_quantized_model_is_refused(world):
    folder, _ = world
    onq("static", "-i", folder / "m.onnx", "-o", folder / "int8.onnx", "--data", folder / "x.npz", status=0)
    r = onq("auto", "-i", folder / "int8.onnx", "-o", folder / "none.onnx", "--data", folder / "x.npz", status=1)
    assert "quantized already" in r.stderr and not (folder / "none.onnx").exists()


def test_a_quantized_model_to_beat(world):
    folder, x = world
    onq("static", "-i", folder / "m.onnx", "-o", folder / "int8.onnx", "--data", folder / "x.npz", status=0)
    j = auto(folder, "--improve", folder / "int8.onnx", "--json")
    given = [c for c in j["candidates"] if "given" in c["label"]][0]
    assert j["chosen"]["sqnr"] is None or j["chosen"]["sqnr"] >= given["sqnr"]
    flt, made = outputs(folder / "m.onnx", x)[0], outputs(folder / "int8.onnx", x)[0]
    assert given["sqnr"] == pytest.approx(noise_of(flt, made), abs=0.05)


def test_a_quantized_model_that_misses_the_target_too(tmp_path):
    """Nothing else may be tried that is faster than float, so the given model stays, and nobody calls it the most
    accurate one."""
    rng = np.random.default_rng(9)
    init = [numpy_helper.from_array(rng.standard_normal((768, 768)).astype(np.float32) / 28, f"w{i}") for i in range(3)]
    nodes = [helper.make_node("MatMul", [f"t{i}", f"w{i}"], [f"t{i + 1}"], name=f"mm{i}") for i in range(3)]
    io = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 768]) for name in ("t0", "t3")]
    graph = helper.make_graph(nodes, "g", io[:1], io[1:], init)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", t0=rng.standard_normal((8, 64, 768)).astype(np.float32))
    onq("static", "-i", tmp_path / "m.onnx", "-o", tmp_path / "int8.onnx", "--data", tmp_path / "x.npz", status=0)
    r = onq("auto", "-i", tmp_path / "m.onnx", "-o", tmp_path / "out.onnx", "--data", tmp_path / "x.npz", "--improve",
            tmp_path / "int8.onnx", "--target", "sqnr=300", "--allow", "float16", status=0)
    assert "yours is the best" in r.stdout
    assert "as fast as yours reaches the target: yours was written" in r.stderr and "most accurate" not in r.stderr


def test_nodes_without_names_have_units(tmp_path):
    rng = np.random.default_rng(8)
    classifier(tmp_path / "m.onnx", rng)
    model = onnx.load(tmp_path / "m.onnx")
    for node in model.graph.node:
        node.name = ""
    onnx.save(model, tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=rng.standard_normal((8, 2, 3, 24, 24)).astype(np.float32))
    j = auto(tmp_path, "--target", "sqnr=70", "--max_float_units", "0", "--allow", "static", "--json")
    assert not j["target_reached"]
    assert any("units float" in c.get("why_not", "") for c in j["candidates"])


@pytest.mark.parametrize("words", [["--prefer", "size"], ["--prefer", "accuracy"], [],
                                   ["--prefer", "size", "--allow", "static,float16", "--target", "sqnr=20"],
                                   ["--prefer", "size", "--allow", "static,float16", "--target", "sqnr=55"]])
def test_its_commands_make_the_same_bytes(world, words):
    folder, _ = world
    auto(folder, "--recipe", folder / "again.sh", *words)
    first = (folder / "q.onnx").read_bytes()
    os.unlink(folder / "q.onnx")
    env = {**os.environ, **runtime(), "PATH": f"{os.path.dirname(ONQ)}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-e", str(folder / "again.sh")], env=env, check=True, capture_output=True)
    assert (folder / "q.onnx").read_bytes() == first


def test_a_target_that_nothing_reaches(world):
    """Float stays, and says so; --best_effort writes the most accurate; --strict writes nothing."""
    folder, x = world
    j = auto(folder, "--target", "sqnr=150", "--json")
    assert not j["target_reached"] and j["chosen"]["options"]["command"] in ("float", "preprocess")  # whichever is faster
    assert noise_of(*(outputs(folder / m, x[:4])[0] + 1e-12 * (m == "q.onnx") for m in ("m.onnx", "q.onnx"))) > 100
    r = auto(folder, "--target", "sqnr=150")
    assert "no candidate reaches the target" in r.stderr and "kept float" in r.stdout
    j = auto(folder, "--target", "sqnr=150", "--best_effort", "--json")
    made = [c for c in j["candidates"] if c["options"]["command"] in ("static", "dynamic") and c.get("sqnr") is not None]
    if any(c["latency_ms"] <= j["float"]["latency_ms"] for c in made):
        assert j["chosen"]["options"]["command"] != "float" and not j["target_reached"]
    r = auto(folder, "--target", "sqnr=150", "--strict", status=1, out="none.onnx")
    assert r.stderr.count("\n") == 1 and ("no candidate reaches the target" in r.stderr or "nothing could be" in r.stderr)
    assert not (folder / "none.onnx").exists()
    auto(folder, "--strict", "--best_effort", status=2, out="none.onnx")


def test_a_program_that_judges(world):
    folder, x = world
    script = folder / "judge.py"
    script.write_text("import os, sys\nprint('size is'); print(-os.path.getsize(sys.argv[1]))\n")
    command = f"python3 {script} {{model}}"
    j = auto(folder, "--evaluate", command, "--target", "metric=-100000000", "--prefer", "size", "--json")
    assert j["target_reached"] and j["chosen"]["metric"] == -os.path.getsize(folder / "q.onnx")
    r = auto(folder, "--evaluate", "false {model}", status=1, out="none.onnx")
    assert "--evaluate" in r.stderr and not (folder / "none.onnx").exists()
    assert "has no {model}" in auto(folder, "--evaluate", "true", status=2, out="none.onnx").stderr


def test_labels(world):
    folder, x = world
    flt = outputs(folder / "m.onnx", x)[0].argmax(-1)
    labels = flt.copy()
    labels[::3] = (labels[::3] + 1) % 10
    np.save(folder / "labels.npy", labels.reshape(-1))
    j = auto(folder, "--labels", folder / "labels.npy", "--target", "accuracy_drop=2", "--prefer", "size", "--json")
    assert j["float"]["accuracy"] == pytest.approx(100 * (flt == labels).mean())
    assert j["chosen"]["accuracy"] == pytest.approx(j["float"]["accuracy"] - j["chosen"]["figure"]["accuracy_drop"])
    assert j["chosen"]["bound"]["accuracy_drop"] >= j["chosen"]["figure"]["accuracy_drop"]
    np.save(folder / "labels.npy", labels.reshape(-1)[:-1])
    assert "labels" in auto(folder, "--labels", folder / "labels.npy", status=1, out="none.onnx").stderr


def test_eval_data_is_all_that_reports(world):
    folder, x = world
    np.savez(folder / "e.npz", x=x[:6] * 2)
    j = auto(folder, "--eval_data", folder / "e.npz", "--prefer", "size", "--json")
    assert (j["samples"]["used"], j["samples"]["eval_data"], j["samples"]["judged"]) == (40, 6, 6)
    flt, made = outputs(folder / "m.onnx", x[:6] * 2)[0], outputs(folder / "q.onnx", x[:6] * 2)[0]
    sqnr = 10 * np.log10(np.square(flt).sum() / np.square(flt - made).sum())
    assert j["chosen"]["sqnr"] == pytest.approx(sqnr, abs=0.05)


def test_nothing_to_quantize(tmp_path):
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"], name="e")], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(tmp_path / "m.onnx"))
    np.savez(tmp_path / "x.npz", x=np.ones((3, 4), np.float32))
    j = auto(tmp_path, "--json")
    assert outputs(tmp_path / "q.onnx", np.ones((1, 4), np.float32))[0].shape == (1, 4)
    assert j["chosen"]["sqnr"] is None
    onq("auto", "-i", tmp_path / "m.onnx", "-o", tmp_path / "none.onnx", "--data", tmp_path / "x.npz", "--strict", status=1)
    assert not (tmp_path / "none.onnx").exists()


def test_one_sample_and_no_time(world):
    folder, x = world
    j = auto(folder, "--limit", "1", "--json")
    assert j["samples"]["used"] == 1 and not j["target_reached"]  # one sample promises nothing
    assert j["float"]["bound"] == j["float"]["figure"]  # but float is float
    j = auto(folder, "--time_limit", "0.001", "--json", "--allow", "static,nbits")
    assert j["stopped_by_time_limit"] and (folder / "q.onnx").exists() and j["not_tried"] == ["static", "nbits"]
    assert "no time was left to try static, nbits" in auto(folder, "--time_limit", "0.001", "--force", "--allow", "static,nbits").stdout
    j = auto(folder, "--json", "--force", "--allow", "static,nbits", "--limit", "8")
    assert not j["stopped_by_time_limit"] and j["not_tried"] == []


def test_it_leaves_nothing_behind(world, tmp_path_factory):
    folder, _ = world
    scratch = tmp_path_factory.mktemp("scratch")
    env = {**os.environ, **runtime(), "TMPDIR": str(scratch)}
    words = ["auto", "-i", folder / "m.onnx", "-o", folder / "q.onnx", "--data", folder / "x.npz"]
    onq(*words, status=0, env=env)
    onq(*words, "--strict", "--target", "sqnr=150", status=1, env=env)
    assert not list(scratch.iterdir())
    assert sorted(p.name for p in folder.iterdir()) == ["m.onnx", "q.onnx", "x.npz"]


def test_the_page_has_every_candidate_and_its_commands(world):
    folder, _ = world
    j = auto(folder, "--report", folder / "page.html", "--json")
    page = (folder / "page.html").read_text(encoding="utf-8")
    text = page.split('id="data">')[1].split("</script>")[0]
    held = json.loads(text)
    assert [c["label"] for c in held["candidates"]] == [c["label"] for c in j["candidates"]]
    assert held["chosen"]["commands"] == j["chosen"]["commands"] and held["curve"]
    assert "<" not in text and "http://" not in page.replace("http://www.w3.org/2000/svg", "") and "src=" not in page


def test_it_goes_on_where_it_stopped(world):
    folder, x = world
    first = auto(folder, "--resume", folder / "state.json", "--prefer", "size", "--json")
    bytes_first = (folder / "q.onnx").read_bytes()
    rows = json.loads((folder / "state.json").read_text())["rows"]
    again = auto(folder, "--resume", folder / "state.json", "--prefer", "size", "--json")
    measured = lambda j: {c["label"]: (c.get("sqnr"), c.get("latency_ms")) for c in j["candidates"] if c["options"]["command"] != "float"}  # noqa: E731
    one, two = measured(first), measured(again)
    both = one.keys() & two.keys()
    assert len(both) >= 3 and all(one[k] == two[k] for k in both)
    # Float is timed anew, so on a busy machine the second search may think another candidate worth a try.
    if one.keys() == two.keys():
        assert (folder / "q.onnx").read_bytes() == bytes_first
        assert json.loads((folder / "state.json").read_text())["rows"] == rows
    # What few samples judged because it missed one target is judged by all of them for another.
    strict = auto(folder, "--resume", folder / "strict.json", "--target", "sqnr=60", "--json")
    assert any(c.get("judged_partly") for c in strict["candidates"])
    judged = lambda j: {c["label"]: (c.get("judged"), c.get("sqnr")) for c in j["candidates"] if not c.get("judged_partly")}  # noqa: E731
    lax, fresh = (judged(auto(folder, "--resume", folder / name, "--target", "sqnr=9", "--json")) for name in ("strict.json", "lax.json"))
    shared = [k for k in lax if k in fresh and lax[k][0]]
    assert len(shared) >= 3 and all(lax[k] == fresh[k] for k in shared)
    # Whatever changes the figures of a candidate makes it another search.
    np.save(folder / "labels.npy", outputs(folder / "m.onnx", x)[0].argmax(-1).reshape(-1))
    for other in (["--target", "cosine=0.5"], ["--max_float_units", 1], ["--labels", folder / "labels.npy"], ["--for_runtime", "1.20"]):
        assert "another search" in auto(folder, "--resume", folder / "state.json", *other, status=1, out="none.onnx").stderr, other
    np.savez(folder / "x.npz", x=np.concatenate([x[:39], x[:1]]))
    assert "another search" in auto(folder, "--resume", folder / "state.json", status=1, out="none.onnx").stderr
    np.savez(folder / "x.npz", x=x[:20])
    assert "another search" in auto(folder, "--resume", folder / "state.json", status=1, out="none.onnx").stderr
    (folder / "state.json").write_text("{}")
    assert "not the state" in auto(folder, "--resume", folder / "state.json", status=1, out="none.onnx").stderr


def test_other_ways_and_float_units(world):
    folder, _ = world
    j = auto(folder, "--allow", "qoperator", "--prefer", "size", "--target", "sqnr=10", "--json")
    assert j["chosen"]["options"]["quant_format"] == "qoperator"
    types = {n.op_type for n in onnx.load(folder / "q.onnx").graph.node}
    assert "QLinearConv" in types and "DequantizeLinear" in types
    j = auto(folder, "--max_float_units", "0", "--target", "sqnr=10", "--prefer", "size", "--json")
    made = onnx.load(folder / "q.onnx").graph
    pairs = {o for n in made.node if n.op_type == "DequantizeLinear" for o in n.output}
    products = [n for n in made.node if n.op_type in ("Conv", "Gemm", "MatMul")]
    assert j["chosen"]["options"]["command"] != "float" and all(n.input[0] in pairs for n in products)
    assert any("--max_float_units" in c.get("why_not", "") for c in j["candidates"])


def test_it_says_why_units_stay_float(tmp_path):
    """Every point of the curve has the units that it leaves float, with what each would leave in integers."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
    import causes_held as held
    model, _ = held.build(str(tmp_path), held.mobile, 7)
    data = held.save_samples(str(tmp_path), "samples", held.SHAPES[held.mobile], held.normal, 24, 1)
    words = ["auto", "-i", model, "-o", tmp_path / "q.onnx", "--data", data, "--prefer", "size", "--target", "sqnr=44"]
    j = json.loads(onq(*words, "--json").stdout)
    text = onq(*words, "--force").stdout
    # Times say which point is taken, and whether it is one.
    assert ("float: '" in text) == (re.search(r"^\d+ of \d+ units in integers.*: .* of float\)", text, re.M) is not None)
    points = [c for c in j["candidates"] if " units in integers" in c["label"] and c.get("float_units")]
    assert points
    for c in points:
        inside, of = (int(v) for v in re.match(r"(\d+) of (\d+) units", c["label"]).groups())
        alone = [u["sqnr_alone"] for u in c["float_units"]]
        assert len(alone) <= of - inside and alone == sorted(alone)


@pytest.mark.parametrize("target", ["kl=0.1", "perplexity_rise=2"])
def test_a_language_model_that_is_to_be_small(tmp_path, target):
    """Weights alone come first; the smallest that keeps its promise is taken, and other texts show what it promised."""
    import statemodels
    statemodels.decoder(tmp_path / "m.onnx", layers=2, width=64)
    rng = np.random.default_rng(11)
    texts = rng.integers(0, statemodels.VOCABULARY, (28, 1, 24))
    (tmp_path / "texts").mkdir()
    for i, ids in enumerate(texts[:20]):
        np.savez(tmp_path / "texts" / f"{i:02}.npz", input_ids=ids)
    j = json.loads(onq("auto", "-i", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", "--data", tmp_path / "texts", "--target",
                       target, "--prefer", "size", "--json").stdout)
    metric, value = target.split("=")
    kinds = [c["options"]["command"] for c in j["candidates"] if c["options"]["command"] not in ("float", "preprocess")]
    ways = [c["options"] for c in j["candidates"] if c["options"]["command"] == "nbits"]
    assert [w for w in ways if w.get("op_types_to_quantize") == "MatMul,Gather"]  # tables count where size does
    few = [c for c in j["candidates"] if c["options"].get("bits") == "4" and not c["options"].get("op_types_to_quantize")]
    learned = [c for c in few if c["options"].get("quant_method") == "gptq_hqq"]
    assert len(learned) == (not any(c["reached"] for c in few if c not in learned))
    assert kinds[0] == "nbits" and j["target"] == {metric: float(value)} and j["target_reached"]
    chosen = j["chosen"]
    assert chosen["figure"][metric] <= chosen["bound"][metric] <= float(value)
    judged = [c for c in [chosen, *j["candidates"]] if "kl" in c]
    assert judged or metric != "kl"
    for c in judged:
        least = [("close to float", .02, 90), ("good", .1, 75), ("fair", .3, 60), ("poor", np.inf, 0)]
        assert c["verdict"] == next(w for w, kl, top in least if c["kl"] <= kl and c["agreement"] >= top)
    assert chosen["size"] < 0.6 * j["float"]["size"]
    smaller = [c for c in j["candidates"] if c.get("size", 0) and c["size"] < 0.95 * chosen["size"]
               and c["latency_ms"] <= j["float"]["latency_ms"] and c.get("reached") and prefill_of(c, j["float"]) <= 1.25]
    assert not smaller
    assert seen_of(metric, tmp_path, texts[20:]) <= float(value)


def prefill_of(candidate, flt):
    """Its time for a text at once, as a part of float's."""
    return flt["prefill_tokens_per_second"] / candidate["prefill_tokens_per_second"]


@pytest.mark.parametrize("positions,length", [(256, 128), (100, 64)])
def test_a_decoder_is_timed_with_a_text_and_with_tokens(tmp_path, positions, length):
    """A text of 128 tokens, or of as many as the model takes, then one token with the states of the text: for every
    candidate, in the text, in JSON and on the page. Tokens decide, and the text of what is taken is not much slower."""
    import statemodels
    statemodels.decoder(tmp_path / "m.onnx", layers=2, width=128, heads=4, positions=positions)
    rng = np.random.default_rng(5)
    (tmp_path / "texts").mkdir()
    for i in range(12):
        np.savez(tmp_path / "texts" / f"{i:02}.npz", input_ids=rng.integers(0, statemodels.VOCABULARY, (1, 16)))
    words = ["auto", "-i", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx", "--data", tmp_path / "texts", "--resume", tmp_path / "s.json"]
    j = json.loads(onq(*words, "--json", "--report", tmp_path / "page.html").stdout)
    assert j["prefill_tokens"] == length
    flt, chosen = j["float"], j["chosen"]
    for c in [flt, chosen] + [c for c in j["candidates"] if "why_not" not in c]:
        assert c["decode_tokens_per_second"] == pytest.approx(1000 / c["latency_ms"], rel=1e-6)
        assert c["prefill_tokens_per_second"] > c["decode_tokens_per_second"]
    assert prefill_of(chosen, flt) <= 1.25 and chosen["latency_ms"] <= 1.02 * flt["latency_ms"]
    again = onq(*words, "--force").stdout
    assert f"prefill ({length} at once) and decode (one by one): tokens a second" in again
    for c in j["candidates"]:
        row = next(line for line in again.splitlines() if line.endswith(f"  {c['label']}"))
        assert re.search(r"  \d+\.\d +\d+\.\d  +[\d.]+ [kM]B  ", row), row
    assert re.search(r": prefill [\d.]+ tokens a second \([\d.]+ of float's time\), decode [\d.]+ \(", again)
    assert '"prefill_tokens"' in (tmp_path / "page.html").read_text()


def seen_of(metric, folder, texts):
    """The same figure of other texts, from the logits of both models."""
    def logs(path, ids):
        s = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        n = ids.shape[1]
        feed = {"input_ids": ids, "attention_mask": np.ones((1, n), np.int64), "position_ids": np.arange(n)[None]}
        for i in s.get_inputs():
            if i.name not in feed:
                feed[i.name] = np.zeros([d if isinstance(d, int) else 1 if k == 0 else 0 for k, d in enumerate(i.shape)], np.float32)
        x = s.run(None, feed)[0][0].astype(np.float64)
        return x - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)) - x.max(-1, keepdims=True)
    kl, rise = [], []
    for ids in texts:
        p, q = logs(folder / "m.onnx", ids), logs(folder / "q.onnx", ids)
        kl.append((np.exp(p) * (p - q)).sum(-1))
        at = np.arange(ids.shape[1] - 1), ids[0, 1:]
        rise.append(p[at] - q[at])
    return np.mean(kl) if metric == "kl" else 100 * np.expm1(np.mean(rise))


def test_float16(world):
    """Tried for the whole model and for what the best one leaves float, measured as all others are, and taken where it is smaller."""
    folder, x = world
    j = auto(folder, "--allow", "float16", "--prefer", "size", "--json")
    tried = {c["options"].get("float16") for c in j["candidates"]} - {None}
    assert tried == {"weights", "all"} and all(c["sqnr"] > 50 and c["latency_ms"] > 0 for c in j["candidates"] if c["sqnr"] is not None)
    assert j["chosen"]["options"]["float16"] in tried and j["chosen"]["size"] < 0.6 * j["float"]["size"]
    flt, made = outputs(folder / "m.onnx", x[:4])[0], outputs(folder / "q.onnx", x[:4])[0]
    assert 10 * np.log10(np.square(flt).sum() / np.square(flt - made).sum()) > 50
    j = auto(folder, "--allow", "dynamic,float16", "--prefer", "size", "--json", "--resume", folder / "state.json")
    after = [c for c in j["candidates"] if "after" in c["options"]]
    assert {c["options"]["after"]["command"] for c in after} == {"dynamic"} and len(after[0]["commands"]) == 3
    k = auto(folder, "--allow", "dynamic,float16", "--prefer", "size", "--json", "--resume", folder / "state.json")
    measured = lambda j: [(c["label"], c.get("sqnr"), c.get("latency_ms")) for c in j["candidates"] if c["options"]["command"] != "float"]  # noqa: E731
    assert measured(j) == measured(k)
    # Not asked for, it is not tried.
    assert not any("float16" in c["options"] for c in auto(folder, "--json")["candidates"])


def test_shared_ranges_are_those_of_the_candidate(world):
    """A candidate that corrects another takes its ranges; the command alone makes the same bytes from its own."""
    folder, x = world
    j = auto(folder, "--prefer", "accuracy", "--target", "sqnr=15", "--json", "--recipe", folder / "again.sh")
    assert j["chosen"]["options"]["command"] != "float"
    first = (folder / "q.onnx").read_bytes()
    env = {**os.environ, **runtime(), "PATH": f"{os.path.dirname(ONQ)}:{os.environ['PATH']}"}
    for c in j["candidates"]:
        if not {"equalize", "channel_ranges"} & set(c["options"]) or "bias_correction" not in c["options"]:
            continue
        for command in c["commands"]:
            subprocess.run(["sh", "-c", command], env=env, check=True, capture_output=True)
        made = outputs(folder / "q.onnx", x)[0]
        # Calibrated with all samples it is about as good as the folds say, or better.
        assert noise_of(outputs(folder / "m.onnx", x)[0], made) > c["sqnr"] - 1
    subprocess.run(["sh", "-e", str(folder / "again.sh")], env=env, check=True, capture_output=True)
    assert (folder / "q.onnx").read_bytes() == first
