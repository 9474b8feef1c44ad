"""test_search.py - what `onq debug --sensitivity` and `--bisect` promise is what the user gets: the list makes the model that was
measured, figures do not depend on how the graph is cut, units are products with their Relu or Clip, and time limits hold.
"""
import json
import shlex
import time

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import common


def network(path, blocks=6, clip=True):
    """Convolutions with channels of very different sizes, a skip connection, an Add and a pooling at the end."""
    rng = np.random.default_rng(7)
    nodes, inits, x = [], [numpy_helper.from_array(np.float32(0), "low"), numpy_helper.from_array(np.float32(6), "high")], "x"
    for i in range(blocks):
        w = rng.standard_normal((8, 8, 3, 3)) * 10.0 ** rng.uniform(-2 if i in (1, 4) else -0.2, 0, (8, 1, 1, 1)) * 0.3
        inits.append(numpy_helper.from_array(w.astype(np.float32), f"w{i}"))
        nodes.append(helper.make_node("Conv", [x, f"w{i}"], [f"c{i}"], f"conv{i}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Clip", [f"c{i}", "low", "high"], [f"r{i}"], f"clip{i}") if clip
                     else helper.make_node("Relu", [f"c{i}"], [f"r{i}"], f"relu{i}"))
        nodes.append(helper.make_node("Add", [f"r{i}", x], [f"a{i}"], f"add{i}"))
        x = f"a{i}"
    nodes.append(helper.make_node("GlobalAveragePool", [x], ["y"], "pool"))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 8, "h", "h"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8, 1, 1])], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    np.savez(path.parent / "data.npz", x=rng.standard_normal((6, 1, 8, 12, 12)).astype(np.float32))
    return path


@pytest.fixture
def case(tmp_path):
    path = network(tmp_path / "m.onnx")
    quantized = tmp_path / "q.onnx"
    common.onq("static", "-i", path, "-o", quantized, "--data", tmp_path / "data.npz")
    return path, quantized, tmp_path


def search(case, *words, as_json=True):
    path, quantized, folder = case
    done = common.onq("debug", "--float_model", path, "--qdq_model", quantized, "--data", folder / "data.npz", "--no_kernel_check",
                      *words, *(["--json"] if as_json else []))
    return json.loads(done.stdout) if as_json else done.stdout


def figure(model, other, samples):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    a, b = (onnxruntime.InferenceSession(str(m), options, providers=["CPUExecutionProvider"]) for m in (model, other))
    x, y = (np.concatenate([s.run(None, {"x": v})[0].ravel() for v in samples]).astype(np.float64) for s in (a, b))
    return 10 * np.log10((x ** 2).sum() / ((x - y) ** 2).sum())


def test_the_list_makes_what_was_measured(case):
    """A search on two samples; the figure is of all six, in a default session, of the model that the options make."""
    path, quantized, folder = case
    whole = search(case)["outputs"]["y"]["sqnr"]
    listed, overrides = folder / "list.txt", folder / "o.json"
    got = search(case, "--bisect", "--target_sqnr", whole + 8, "--exclude_list", listed, "--overrides", overrides)
    made = got["verified"]
    assert got["bisect"]["reached"] and made["samples"] == 6
    assert set(listed.read_text().split()) | {n for n in got["bisect"]["nodes_to_exclude"]} == set(got["bisect"]["nodes_to_exclude"])
    samples = np.load(folder / "data.npz")["x"]
    again = folder / "again.onnx"
    words = ["static", "-i", path, "-o", again, "--data", folder / "data.npz"]
    common.onq(*words, *made["options"].split())
    assert figure(path, again, samples) == pytest.approx(made["sqnr"], abs=0.3)
    assert made["sqnr"] > whole + 6 and "--keep_excluded_float" in made["options"]
    common.onq(*words, "--tensor_quant_overrides", overrides)
    assert figure(path, again, samples) == pytest.approx(made["overrides_sqnr"], abs=0.6)
    text = search(case, "--bisect", "--target_sqnr", whole + 8, "--exclude_list", listed, as_json=False)
    assert f"--nodes_to_exclude @{listed}" in text and "still in integers:" in text


def test_names_that_are_no_lines(case):
    """A name with a line of its own in it, one that looks like a pattern, a file or two names: the list and the options mean these nodes."""
    path, quantized, folder = case
    odd = ["@c", "a\nre:.*", "d,e", "[f]", "re:(b)*,", "g h"]
    for file in (path, quantized):
        model = onnx.load(file)
        for n in model.graph.node:
            if n.op_type == "Conv":
                n.name = odd[int(n.name[4:])]
        onnx.save(model, file)
    listed = folder / "list.txt"
    words = ["--bisect", "--target_sqnr", search(case)["outputs"]["y"]["sqnr"] + 8]
    got = search(case, *words, "--exclude_list", listed)
    want = set(odd) & set(got["bisect"]["nodes_to_exclude"])
    assert 0 < len(want) < 6
    for options in (["--nodes_to_exclude", f"@{listed}"], shlex.split(search(case, *words)["verified"]["options"])):
        options = [o for o in options if o != "--keep_excluded_float"]
        plan = folder / "plan.json"
        common.onq("static", "-i", path, "-o", folder / "again.onnx", "--data", folder / "data.npz", "--plan", plan, *options, status=0)
        left = {n["name"] for n in json.loads(plan.read_text())["nodes"] if n["op_type"] == "Conv" and n["treatment"] != "quantized"}
        assert left == want, options


def test_cuts_change_nothing(case):
    """With and without tensors that are kept, and beside sessions of whole models."""
    kept = search(case, "--sensitivity")["sensitivity"]
    none = search(case, "--sensitivity", "--memory", 1)["sensitivity"]
    assert [u["node"] for u in kept] == [u["node"] for u in none]
    for a, b in zip(kept, none):
        assert a["sqnr"] == pytest.approx(b["sqnr"], abs=0.01)
    assert sum(u["macs"] for u in kept) == pytest.approx(1)


def test_units_are_products_with_their_clip(tmp_path):
    path = network(tmp_path / "m.onnx")
    quantized = tmp_path / "q.onnx"
    common.onq("static", "-i", path, "-o", quantized, "--data", tmp_path / "data.npz", "--qdq_keep_removable_activations")
    units = {u["node"]: u.get("nodes_to_exclude") for u in search((path, quantized, tmp_path), "--sensitivity")["sensitivity"]}
    assert units["conv0"] == ["conv0", "clip0"] and "clip0" not in units and "add0" in units


def test_ranking_follows_the_outputs(case):
    got = search(case, "--sensitivity")
    first = got["ranking"][0]
    rows = {**got["weights"], **got["activations"]}
    assert rows[first]["node"] == got["sensitivity"][0]["node"] and rows[first]["effect"] == got["sensitivity"][0]["sqnr"]


def test_types_are_the_answer(tmp_path):
    """Every Mul is spoiled: the answer is the type, not a list of names."""
    rng = np.random.default_rng(5)
    nodes, inits, x = [], [], "x"
    for i in range(3):
        scale = np.ones(16, np.float32)
        scale[0] = 1e5
        inits += [numpy_helper.from_array(scale, f"s{i}"), numpy_helper.from_array(1 / scale, f"t{i}"),
                  numpy_helper.from_array((rng.standard_normal((16, 16)) * 0.25).astype(np.float32), f"w{i}")]
        nodes += [helper.make_node("Mul", [x, f"s{i}"], [f"a{i}"], f"up{i}"), helper.make_node("Mul", [f"a{i}", f"t{i}"], [f"b{i}"], f"down{i}"),
                  helper.make_node("MatMul", [f"b{i}", f"w{i}"], [f"c{i}"], f"mm{i}")]
        x = f"c{i}"
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 16])],
                              [helper.make_tensor_value_info(x, TensorProto.FLOAT, [4, 16])], inits)
    path, quantized = tmp_path / "m.onnx", tmp_path / "q.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    np.savez(tmp_path / "data.npz", x=rng.standard_normal((4, 4, 16)).astype(np.float32))
    common.onq("static", "-i", path, "-o", quantized, "--data", tmp_path / "data.npz")
    made = search((path, quantized, tmp_path), "--bisect", "--target_sqnr", 25)["verified"]
    assert made["op_types_to_exclude"] == ["Mul"] and made["options"] == "--op_types_to_exclude Mul --keep_excluded_float"
    assert made["integer_share"]["macs"] == 1
    common.onq("static", "-i", path, "-o", quantized, "--data", tmp_path / "data.npz", *made["options"].split())
    samples = np.load(tmp_path / "data.npz")["x"]
    assert figure(path, quantized, samples) == pytest.approx(made["sqnr"], abs=0.3)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.DOUBLE])
def test_outputs_of_other_floats(tmp_path, kind):
    """Verdict and effects are those of the same model with float32 outputs."""
    rows = {}
    for name, cast in (("single", None), ("other", kind)):
        folder = tmp_path / name
        folder.mkdir()
        path = network(folder / "m.onnx", 2)
        if cast is not None:
            m = onnx.load(path)
            m.graph.node.append(helper.make_node("Cast", ["y"], ["z"], "cast", to=cast))
            m.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", cast, ["n", 8, 1, 1]))
            onnx.save(m, path)
        common.onq("static", "-i", path, "-o", folder / "q.onnx", "--data", folder / "data.npz")
        found = search((path, folder / "q.onnx", folder), "--sensitivity")
        effects = {u["node"]: u["sqnr"] for u in found["sensitivity"]}
        rows[name] = found["diagnosis"]["judged"]["sqnr"], effects
    single, other = rows["single"], rows["other"]
    assert 5 < single[0] < 60 and abs(single[0] - other[0]) < 0.2
    assert len(single[1]) > 2 and all(abs(v - other[1][k]) < 0.5 for k, v in single[1].items())


def test_time_limit(case):
    """The limit ends the search; what was measured is told."""
    began = time.monotonic()
    got = search(case, "--sensitivity", "--time_limit", 0.001)
    assert got["time_limit_reached"] and time.monotonic() - began < 60
    assert "time limit" in search(case, "--sensitivity", "--time_limit", 0.001, as_json=False)
    assert "time_limit_reached" not in search(case, "--sensitivity", "--time_limit", 600)


def test_results_are_in_the_report(case):
    page = case[2] / "r.html"
    search(case, "--sensitivity", "-o", page)
    data = json.loads(page.read_text().split('id="data">')[1].split("</script>")[0])
    assert data["search"]["units"][0][4] is True and data["search"]["options"].startswith("--nodes_to_exclude")
    search(case, "-o", page)
    assert "search" not in json.loads(page.read_text().split('id="data">')[1].split("</script>")[0])


@pytest.mark.parametrize("words", [["--sensitivity"], ["--bisect", "--target_sqnr", 30]], ids=lambda w: w[0])
def test_jobs_give_the_same(case, words):
    seen = [search(case, *words, "--jobs", jobs, as_json=False) for jobs in (1, 2, 7)]
    assert seen[0] == seen[1] == seen[2] and "conv3" in seen[0]


def test_integer_operators_are_searched_as_pairs(tmp_path):
    """Clips that integer operators take in are there again, and both files make the model that reaches the target."""
    path, quantized = network(tmp_path / "m.onnx"), tmp_path / "q.onnx"
    words = ["static", "-i", path, "--data", tmp_path / "data.npz", "--quant_format", "qoperator"]
    common.onq(*words, "-o", quantized)
    case = path, quantized, tmp_path
    whole = search(case)["outputs"]["y"]["sqnr"]
    listed, methods = tmp_path / "list.txt", tmp_path / "methods.json"
    got = search(case, "--bisect", "--target_sqnr", whole + 6, "--exclude_list", listed, "--node_methods", methods)
    assert got["bisect"]["reached"] and "--keep_excluded_float" in got["verified"]["options"]
    names = {n.name for n in onnx.load(path).graph.node}
    assert set(got["bisect"]["nodes_to_exclude"]) <= names
    assert json.loads(methods.read_text()) == dict.fromkeys(got["bisect"]["nodes_to_exclude"], "float")
    again, other = tmp_path / "again.onnx", tmp_path / "other.onnx"
    common.onq(*words, "-o", again, *got["verified"]["options"].split())
    common.onq(*words, "-o", other, "--node_methods", methods)
    assert again.read_bytes() == other.read_bytes()
    assert figure(path, again, np.load(tmp_path / "data.npz")["x"]) == pytest.approx(got["verified"]["sqnr"], abs=0.3)


def test_methods_leave_the_same_nodes_float(case):
    path, quantized, folder = case
    whole = search(case)["outputs"]["y"]["sqnr"]
    methods = folder / "methods.json"
    got = search(case, "--bisect", "--target_sqnr", whole + 8, "--node_methods", methods)
    out = folder / "again.onnx"
    common.onq("static", "-i", path, "-o", out, "--data", folder / "data.npz", "--node_methods", methods, "--keep_excluded_float")
    assert figure(path, out, np.load(folder / "data.npz")["x"]) == pytest.approx(got["verified"]["sqnr"], abs=0.3)
