"""test_op_set.py - integers only where they pay: --op_set, --heaviest, --op_types_to_exclude, and what ONNX Runtime's
optimisers make of the results (WeightBiasQuantization, MatMulAddFusion), looked up in the model it optimised."""
import collections
import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import calibtool
import quantcase

RNG = np.random.default_rng(14)


def weight(name, *shape, spread=None):
    """With `spread`, channels of very different size, which one scale for all of them serves badly."""
    w = RNG.normal(size=shape).astype(np.float32) / np.sqrt(np.prod(shape[1:]))
    if spread is not None:
        w *= np.geomspace(1, spread, shape[0]).astype(np.float32).reshape(-1, *[1] * (len(shape) - 1))
    return numpy_helper.from_array(w.astype(np.float32), name)


def save(path, nodes, inits, shape, samples, out="y"):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)], inits)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    calibtool.write_samples(path.parent / "data", samples)
    return path


def chain(path):
    """Convolutions in a row, the middle one with channels of very different size and a Clip."""
    inits = [weight("w1", 8, 3, 3, 3), weight("w2", 8, 8, 3, 3, spread=1e-3), weight("w3", 8, 8, 3, 3),
             numpy_helper.from_array(np.float32(-0.5), "lo"), numpy_helper.from_array(np.float32(3), "hi")]
    nodes = [helper.make_node("Conv", ["x", "w1"], ["a"], name="first", pads=[1] * 4),
             helper.make_node("Conv", ["a", "w2"], ["b"], name="middle", pads=[1] * 4),
             helper.make_node("Clip", ["b", "lo", "hi"], ["c"], name="clip"),
             helper.make_node("Conv", ["c", "w3"], ["y"], name="last", pads=[1] * 4)]
    samples = [{"x": RNG.normal(size=(1, 3, 16, 16)).astype(np.float32)} for _ in range(4)]
    return save(path, nodes, inits, [1, 3, 16, 16], samples)


def perceptron(path, rows):
    """Two products with a bias; rows are the axes before the last."""
    inits = [weight("w1", 16, 32), weight("b1", 32), weight("w2", 32, 8), weight("b2", 8)]
    nodes = [helper.make_node("MatMul", ["x", "w1"], ["m1"], name="m1"),
             helper.make_node("Add", ["m1", "b1"], ["h"], name="a1"),
             helper.make_node("Tanh", ["h"], ["t"], name="tanh"),
             helper.make_node("MatMul", ["t", "w2"], ["m2"], name="m2"),
             helper.make_node("Add", ["b2", "m2"], ["y"], name="a2")]
    known = [r if isinstance(r, int) else 3 for r in rows]
    samples = [{"x": RNG.normal(size=(*known, 16)).astype(np.float32)} for _ in range(4)]
    return save(path, nodes, inits, [*rows, 16], samples), samples


def static(path, *words, name="q.onnx"):
    out = path.parent / name
    r = quantcase.onq("static", "-i", path, "-o", out, "--data", path.parent / "data", "--per_channel", *words)
    return r, out


def optimised(path):
    """Counts of operators in the graph that ONNX Runtime runs."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path) + ".opt"
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return collections.Counter(n.op_type for n in onnx.load(options.optimized_model_filepath).graph.node)


def optimised_weight(path, node):
    """The type of a node's weight in the graph that ONNX Runtime runs, before it is dequantized."""
    optimised(path)
    graph = onnx.load(str(path) + ".opt").graph
    makers = {o: n for n in graph.node for o in n.output}
    types = {t.name: t.data_type for t in graph.initializer}
    name = next(n.input[1] for n in graph.node if n.name == node)
    return types[makers[name].input[0] if name in makers else name]


def samples_of(path):
    return [{"x": numpy_helper.to_array(onnx.load_tensor(p))}
            for p in sorted((path.parent / "data").glob("*/input_0.pb"))]


def db(path, other):
    a, b = (quantcase.outputs(p, samples_of(path)) for p in (path, other))
    return 10 * np.log10(np.sum(a**2) / max(np.sum((a - b) ** 2), 1e-30))


# ---- the trap of excluded nodes ----


def test_excluded_conv_is_quantized_by_the_runtime(tmp_path):
    """The reference's file, and a warning that names the node; protected, the node computes in float."""
    path = chain(tmp_path / "m.onnx")
    r, plain = static(path, "--nodes_to_exclude", "middle,clip")
    assert r.returncode == 0, r.stderr
    assert "1 node has float weights" in r.stderr and "'middle': " in r.stderr, r.stderr
    assert "dB" in r.stderr and "--keep_excluded_float" in r.stderr
    assert optimised(plain)["QLinearConv"] + optimised(plain)["DequantizeLinear"] > 2  # its weight is int8
    r, kept = static(path, "--nodes_to_exclude", "middle,clip", "--keep_excluded_float", name="kept.onnx")
    assert r.returncode == 0 and "float weights" not in r.stderr, r.stderr
    ops = optimised(kept)
    assert ops["QLinearConv"] == 2 and ops["Conv"] + ops["FusedConv"] == 1, ops
    weights = {t.name: t for t in onnx.load(kept).graph.initializer}
    assert weights["w2"].data_type == TensorProto.FLOAT


def test_reference_file_without_protection(tmp_path):
    path = chain(tmp_path / "m.onnx")
    _, plain = static(path, "--nodes_to_exclude", "middle,clip")
    assert not any(n.op_type == "Max" for n in onnx.load(plain).graph.node)


def test_heaviest_protects(tmp_path):
    path = chain(tmp_path / "m.onnx")
    r, out = static(path, "--heaviest", "2", "--nodes_to_exclude", "middle")
    assert r.returncode == 0, r.stderr
    ops = optimised(out)
    assert ops["QLinearConv"] == 2 and ops["Conv"] + ops["FusedConv"] == 1, ops


# ---- the trap of biases ----


@pytest.mark.parametrize("rows", [[4], ["n"], [2, 4], [1, 2, 4], ["n", 4], ["n", "m"]])
def test_products_stay_integer(rows, tmp_path):
    path, _ = perceptron(tmp_path / "m.onnx", rows)
    r, out = static(path, "--op_set", "noout")
    assert r.returncode == 0, r.stderr
    ops = optimised(out)
    assert ops["MatMulIntegerToFloat"] == 2 and ops["Gemm"] == 0 and ops["MatMul"] == 0, ops
    assert db(path, out) > 30


def test_bias_without_guard_is_lost(tmp_path):
    """The reference's option for the same outputs loses the integer product: what the guard is for."""
    path, _ = perceptron(tmp_path / "m.onnx", [2, 4])
    r, out = static(path, "--op_set", "linear", "--op_types_to_exclude_output_quantization", "MatMul")
    assert r.returncode == 0, r.stderr
    assert optimised(out)["MatMulIntegerToFloat"] == 0 and optimised(out)["Gemm"] == 2


# ---- which nodes ----


def fates(plan):
    return {n["name"]: n for n in json.loads(plan.read_text())["nodes"]}


def test_sets_and_plans(tmp_path):
    """Reasons are in the plan, a plan gives the same bytes, and a dry run decides the same."""
    path, _ = perceptron(tmp_path / "m.onnx", [2, 4])
    plan = tmp_path / "p.json"
    for words in (["--op_set", "linear"], ["--op_set", "noout"], ["--op_set", "pays"], ["--heaviest", "1"],
                  ["--op_types_to_exclude", "MatMul"], ["--op_set", "noout", "--nodes_to_exclude", "m2"]):
        r, out = static(path, *words, "--plan", plan)
        assert r.returncode == 0, r.stderr
        rows = fates(plan)
        again = tmp_path / "again.onnx"
        r = quantcase.onq("static", "-i", path, "-o", again, "--from_plan", plan)
        assert r.returncode == 0 and again.read_bytes() == out.read_bytes(), (words, r.stderr)
        dry = tmp_path / "dry.json"
        r, _ = static(path, *words, "--plan", dry, "--dry_run", name="none.onnx")
        assert r.returncode == 0 and fates(dry) == rows, words
        if words[0] == "--op_set" and words[1] == "noout":
            assert rows["a1"]["treatment"] == "float" and "not in op_set" in rows["a1"]["why"]
            assert rows["m1"]["treatment"] == "quantized"
        if words[0] == "--heaviest":
            assert rows["m1"]["treatment"] == "quantized" and rows["m2"]["why"] == "not among the heaviest"
        if words[0] == "--op_types_to_exclude":
            assert rows["m1"]["why"] == "in op_types_to_exclude"


def test_all_is_the_reference(tmp_path):
    path, _ = perceptron(tmp_path / "m.onnx", [2, 4])
    _, a = static(path)
    _, b = static(path, "--op_set", "all", "--heaviest", "0", name="b.onnx")
    assert a.read_bytes() == b.read_bytes()


def test_heaviest_by_the_sample(tmp_path):
    """With symbolic sizes the multiply-accumulates are those of the first sample."""
    inits = [weight("w1", 4, 3, 3, 3), weight("w2", 24, 40)]
    nodes = [helper.make_node("Conv", ["x", "w1"], ["a"], name="conv", pads=[1] * 4),
             helper.make_node("ReduceMean", ["a"], ["r"], name="mean", axes=[2], keepdims=0),
             helper.make_node("MatMul", ["r", "w2"], ["y"], name="linear")]
    for size, wanted in ((24, "conv"), (1, "linear")):
        folder = tmp_path / str(size)
        folder.mkdir()
        samples = [{"x": RNG.normal(size=(1, 3, size, 24)).astype(np.float32)} for _ in range(2)]
        path = save(folder / "m.onnx", nodes, inits, [1, 3, "h", 24], samples)
        r, _ = static(path, "--heaviest", "1", "--plan", folder / "p.json")
        assert r.returncode == 0, r.stderr
        quantized = [n for n, row in fates(folder / "p.json").items() if row["treatment"] == "quantized"]
        assert quantized == [wanted]


def test_qoperator(tmp_path):
    path, _ = perceptron(tmp_path / "m.onnx", [2, 4])
    r, _ = static(path, "--quant_format", "qoperator", "--op_set", "noout")
    assert r.returncode == 2 and "QLinearMatMul has no float output" in r.stderr
    r, out = static(path, "--quant_format", "qoperator", "--op_set", "linear")
    ops = collections.Counter(n.op_type for n in onnx.load(out).graph.node)
    assert r.returncode == 0 and ops["QLinearMatMul"] == 2 and ops["Add"] == 2, r.stderr
    r, out = static(path, "--quant_format", "qoperator", "--heaviest", "1")
    ops = collections.Counter(n.op_type for n in onnx.load(out).graph.node)
    assert r.returncode == 0 and ops["QLinearMatMul"] == 1 and ops["MatMul"] == 1, r.stderr


def test_transpose_stays_float(tmp_path):
    """ConvTranspose has no integer kernel: pairs around it are noise alone."""
    inits = [weight("w1", 4, 3, 3, 3), weight("w2", 4, 4, 2, 2)]
    nodes = [helper.make_node("Conv", ["x", "w1"], ["a"], name="conv", pads=[1] * 4),
             helper.make_node("ConvTranspose", ["a", "w2"], ["y"], name="up", strides=[2, 2])]
    samples = [{"x": RNG.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(2)]
    path = save(tmp_path / "m.onnx", nodes, inits, [1, 3, 8, 8], samples)
    r, everything = static(path, name="all.onnx")
    assert optimised(everything)["ConvTranspose"] == 1  # with pairs around
    r, out = static(path, "--op_set", "linear")
    assert r.returncode == 0 and optimised(out)["QLinearConv"] == 1
    assert db(path, out) > db(path, everything)


def test_float_transpose_between_integers(tmp_path):
    """Between two quantized Conv the runtime would quantize its weight again."""
    inits = [weight("w1", 4, 3, 3, 3), weight("w2", 4, 4, 2, 2, spread=1e-3), weight("w3", 4, 4, 3, 3)]
    nodes = [helper.make_node("Conv", ["x", "w1"], ["a"], name="conv", pads=[1] * 4),
             helper.make_node("ConvTranspose", ["a", "w2"], ["b"], name="up", strides=[2, 2]),
             helper.make_node("Conv", ["b", "w3"], ["y"], name="last", pads=[1] * 4)]
    samples = [{"x": RNG.normal(size=(1, 3, 8, 8)).astype(np.float32)} for _ in range(2)]
    path = save(tmp_path / "m.onnx", nodes, inits, [1, 3, 8, 8], samples)
    r, trapped = static(path, "--op_types_to_exclude", "ConvTranspose", name="trapped.onnx")
    assert "'up': " in r.stderr and optimised_weight(trapped, "up") == TensorProto.INT8
    r, out = static(path, "--op_set", "linear")
    assert r.returncode == 0 and "float weights" not in r.stderr, r.stderr
    assert optimised_weight(out, "up") == TensorProto.FLOAT


# ---- costs ----


def test_units_are_timed(tmp_path):
    """Every shape once, in the form that --unit_costs reads; how long things take is not looked at."""
    path = chain(tmp_path / "m.onnx")
    r = quantcase.onq("bench", "--units", path, "--json")
    assert r.returncode == 0, r.stderr
    (tmp_path / "costs.json").write_text(r.stdout)
    rows = json.loads(r.stdout)["units"]
    assert [row["kind"] for row in rows] == ["dense"] * 3 and sum(row["count"] for row in rows) == 3
    assert all(0 < row[k] < 1e4 for row in rows for k in ("float_ms", "integer_ms", "alone_ms"))
    assert sum(row["macs"] for row in rows) == 8 * 16 * 16 * 9 * (3 + 8 + 8)
    r, _ = static(path, "--op_set", "pays", "--unit_costs", tmp_path / "costs.json")
    assert r.returncode == 0, r.stderr
    text = quantcase.onq("bench", "--units", path, "--threads", "2")
    assert text.returncode == 0 and text.stdout.count("Conv 1x") == 3
    r = quantcase.onq("bench", "--units", path, path)
    assert r.returncode == 2 and "--units is for one model, not for 2" in r.stderr


def test_costs_decide(tmp_path):
    path = chain(tmp_path / "m.onnx")
    rows = json.loads(quantcase.onq("bench", "--units", path, "--json").stdout)["units"]
    for row in rows:
        slow = row["first"] == "middle"
        row.update(float_ms=1, integer_ms=2 if slow else 0.2, alone_ms=3 if slow else 0.3)
    (tmp_path / "costs.json").write_text(json.dumps({"units": rows}))
    r, out = static(path, "--op_set", "pays", "--unit_costs", tmp_path / "costs.json", "--plan", tmp_path / "p.json")
    plan = fates(tmp_path / "p.json")
    assert [plan[n]["treatment"] for n in ("first", "middle", "clip", "last")] == ["quantized", "float", "float",
                                                                                     "quantized"]
    assert "no faster" in plan["middle"]["why"]
    ops = optimised(out)
    assert ops["QLinearConv"] == 2 and ops["Conv"] + ops["FusedConv"] == 1, ops
    (tmp_path / "bad.json").write_text("{}")
    r, _ = static(path, "--op_set", "pays", "--unit_costs", tmp_path / "bad.json")
    assert r.returncode == 1 and "bad.json: has no list" in r.stderr


@pytest.mark.parametrize("kind", ["depthwise", "pooled", "gemm", "attention", "transpose"])
def test_every_kind_is_timed(kind, tmp_path):
    """The models of one node that are timed are valid, and the integer ones become integer operators."""
    image = {"depthwise": (weight("w", 8, 1, 3, 3), dict(group=8), "Conv", [1, 8, 8, 8]),
             "pooled": (weight("w", 4, 8, 1, 1), {}, "Conv", [1, 8, 1, 1]),
             "transpose": (weight("w", 8, 4, 2, 2), dict(strides=[2, 2]), "ConvTranspose", [1, 8, 8, 8]),
             "gemm": (weight("w", 5, 8), dict(transB=1), "Gemm", [3, 8]),
             "attention": (None, {}, "MatMul", [2, 8, 8])}[kind]
    w, attributes, op, shape = image
    inputs = ["x", "w"] if w is not None else ["x", "x"]
    path = save(tmp_path / "m.onnx", [helper.make_node(op, inputs, ["y"], name="n", **attributes)],
                [w] if w is not None else [], shape, [])
    r = quantcase.onq("bench", "--units", path, "--json")
    assert r.returncode == 0, r.stderr
    (row,) = json.loads(r.stdout)["units"]
    assert row["kind"] == {"gemm": "dense"}.get(kind, kind)
    assert (row["integer_ms"] is None) == (kind == "transpose")


@pytest.mark.parametrize("words", [["--op_set", "pays"], ["--op_set", "noout"], ["--heaviest", "1"]], ids=" ".join)
def test_pairs_of_the_model_stay(tmp_path, words):
    """A pair that the model has clips; float nodes after it went past it."""
    scales = [numpy_helper.from_array(np.float32(0.002), "s1"), numpy_helper.from_array(np.float32(0.001), "s2"),
              numpy_helper.from_array(np.uint8(128), "z")]
    nodes = [helper.make_node("QuantizeLinear", ["x", "s1", "z"], ["q1"]), helper.make_node("DequantizeLinear", ["q1", "s1", "z"], ["d1"]),
             helper.make_node("QuantizeLinear", ["d1", "s2", "z"], ["q2"]), helper.make_node("DequantizeLinear", ["q2", "s2", "z"], ["d2"]),
             helper.make_node("MatMul", ["d2", "w"], ["y"], name="product")]
    sample = RNG.normal(size=(2, 8)).astype(np.float32)
    path = save(tmp_path / "m.onnx", nodes, [weight("w", 8, 8), *scales], [2, 8], [{"x": sample}])
    r, out = static(path, *words)
    assert r.returncode == 0, r.stderr
    want, got = (onnxruntime.InferenceSession(p).run(None, {"x": sample})[0] for p in (path, out))
    assert np.abs(want - got).max() < 0.05 * np.abs(want).max()
