"""test_search_bodies.py - the search for nodes to leave float inside If, Loop and Scan: what it writes makes, with `onq static`, the
model that it measured, in both formats.
"""
import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import common

N = 16
info = helper.make_tensor_value_info
FLOAT = TensorProto.FLOAT


def layer(nodes, inits, prefix, x, rng, uneven=0.0, product="MatMul"):
    """A product and a Relu; with `uneven`, columns of very different sizes, which one scale cannot hold."""
    w = rng.standard_normal((N, N)) / 4 * 10.0 ** -rng.uniform(0, uneven, N)
    w[:, 3] *= 1 if uneven == 0 else 30
    inits.append(numpy_helper.from_array(w.astype(np.float32), f"{prefix}_w"))
    nodes.append(helper.make_node(product, [x, f"{prefix}_w"], [f"{prefix}_m"], f"{prefix}_matmul"))
    nodes.append(helper.make_node("Relu", [f"{prefix}_m"], [f"{prefix}_r"], f"{prefix}_relu"))
    return f"{prefix}_r"


def even_out(nodes, inits, prefix, x, like):
    """Makes the columns alike again, so that the small ones count."""
    w = next(numpy_helper.to_array(i) for i in inits if i.name == like)
    inits.append(numpy_helper.from_array((1 / np.abs(w).max(axis=0)).astype(np.float32), f"{prefix}_even"))
    nodes.append(helper.make_node("Mul", [x, f"{prefix}_even"], [f"{prefix}_y"], f"{prefix}_mul"))
    return f"{prefix}_y"


def body_of(kind, rng, product):
    """Nodes and initializers of a body over its input `s`; its second layer is the bad one."""
    nodes, inits = [], []
    x = "s"
    if kind == "If":  # the runtime ends the process where a branch in QOperator format reads a tensor that was quantized outside
        nodes.append(helper.make_node("Abs", ["outer"], ["s"], "abs"))
    x = layer(nodes, inits, "good", x, rng)
    x = layer(nodes, inits, "bad", x, rng, 2.5, product)
    x = even_out(nodes, inits, "bad", x, "bad_w")
    return nodes, inits, x


def model(path, kind, product="MatMul"):
    rng = np.random.default_rng(3)
    nodes, inits = [], []
    x = layer(nodes, inits, "first", "x", rng)
    nodes.append(helper.make_node("Identity", [x], ["outer"], "outer_identity"))
    inner, weights, y = body_of(kind, rng, product)
    if kind == "Loop":
        inner.append(helper.make_node("Identity", ["more"], ["again"], "again"))
        body = helper.make_graph(inner, "body", [info("i", TensorProto.INT64, []), info("more", TensorProto.BOOL, []), info("s", FLOAT, [4, N])],
                                 [info("again", TensorProto.BOOL, []), info(y, FLOAT, [4, N])], weights)
        inits += [numpy_helper.from_array(np.array(2), "trips"), numpy_helper.from_array(np.array(True), "go")]
        nodes.append(helper.make_node("Loop", ["trips", "go", "outer"], ["z"], "loop", body=body))
    elif kind == "If":
        other, more = [], []
        other.append(helper.make_node("Abs", ["outer"], ["other_s"], "other_abs"))
        z = layer(other, more, "other", "other_s", rng)
        nodes.append(helper.make_node("ReduceMax", ["x"], ["top"], "top", keepdims=0))
        inits.append(numpy_helper.from_array(np.float32(1.9), "least"))
        nodes.append(helper.make_node("Greater", ["top", "least"], ["cond"], "greater"))
        nodes.append(helper.make_node("If", ["cond"], ["z"], "choice", then_branch=helper.make_graph(inner, "yes", [], [info(y, FLOAT, [4, N])], weights),
                                      else_branch=helper.make_graph(other, "no", [], [info(z, FLOAT, [4, N])], more)))
    else:
        body = helper.make_graph(inner, "body", [info("s", FLOAT, [4, N])], [info(y, FLOAT, [4, N])], weights)
        inits.append(numpy_helper.from_array(np.array([0]), "front"))
        nodes.append(helper.make_node("Unsqueeze", ["outer", "front"], ["steps"], "unsqueeze"))
        nodes.append(helper.make_node("Scan", ["steps"], ["scanned"], "scan", body=body, num_scan_inputs=1))
        nodes.append(helper.make_node("Squeeze", ["scanned", "front"], ["z"], "squeeze"))
    y = layer(nodes, inits, "last", "z", rng)
    graph = helper.make_graph(nodes, "g", [info("x", FLOAT, [4, N])], [info(y, FLOAT, [4, N])], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    np.savez(path.parent / "data.npz", x=rng.standard_normal((6, 4, N)).astype(np.float32))
    return path


def figure(path, other, folder):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    a, b = (onnxruntime.InferenceSession(str(m), options, providers=["CPUExecutionProvider"]) for m in (path, other))
    samples = np.load(folder / "data.npz")["x"]
    x, y = (np.concatenate([s.run(None, {"x": v})[0].ravel() for v in samples]).astype(np.float64) for s in (a, b))
    return 10 * np.log10((x ** 2).sum() / ((x - y) ** 2).sum())


@pytest.mark.parametrize("kind, fmt, product", [*((k, f, "MatMul") for k in ("Loop", "If", "Scan") for f in ("qdq", "qoperator")), ("Loop", "qdq", "Gemm")])
def test_the_set_of_a_body_makes_what_was_measured(tmp_path, kind, fmt, product):
    """A Gemm that is left float between pairs would be quantized again by the runtime: --keep_excluded_float works in bodies."""
    path = model(tmp_path / "m.onnx", kind, product)
    words = ["static", "-i", path, "--data", tmp_path / "data.npz", "--enable_subgraph", "--quant_format", fmt]
    quantized, again = tmp_path / "q.onnx", tmp_path / "again.onnx"
    common.onq(*words, "-o", quantized, "--no_verify")
    before = figure(path, quantized, tmp_path)
    listed, methods = tmp_path / "list.txt", tmp_path / "methods.json"
    got = json.loads(common.onq("debug", "--float_model", path, "--qdq_model", quantized, "--data", tmp_path / "data.npz", "--quick", "--json",
                                "--bisect", "--target_sqnr", before + 8, "--exclude_list", listed, "--node_methods", methods).stdout)
    assert got["sensitivity"][0]["node"] == "bad_matmul", [u["node"] for u in got["sensitivity"]]
    assert got["bisect"]["reached"] and "bad_matmul" in got["bisect"]["nodes_to_exclude"]
    assert "last_matmul" not in got["bisect"]["nodes_to_exclude"], "the smallest set has no node that is not needed"
    units = {u["node"] for u in got["sensitivity"]}
    assert {"first_matmul", "good_matmul", "last_matmul"} <= units and not {"loop", "choice", "scan"} & units
    assert got["verified"]["sqnr"] > before + 6 and 0 < got["verified"]["integer_share"]["macs"] < 1
    assert got["verified"]["integer_share"]["weights"] == pytest.approx(
        1 - 256 / 1024 if kind != "If" else 1 - 256 / 1280, abs=0.1)
    for extra in (["--nodes_to_exclude", f"@{listed}", "--keep_excluded_float"], ["--node_methods", methods]):
        common.onq(*words, "-o", again, *extra, "--no_verify")
        assert figure(path, again, tmp_path) == pytest.approx(got["verified"]["sqnr"], abs=0.7)


def test_the_diagnosis_looks_into_bodies(tmp_path):
    """The model is made again with --enable_subgraph, so a scale that is wrong inside the body is found by its name."""
    path = model(tmp_path / "m.onnx", "Loop")
    quantized = tmp_path / "q.onnx"
    common.onq("static", "-i", path, "--data", tmp_path / "data.npz", "--enable_subgraph", "--per_channel", "-o", quantized, "--no_verify")
    healthy = onnx.load(quantized)
    body = next(n for n in healthy.graph.node if n.op_type == "Loop").attribute[0].g
    dq = next(n for n in body.node if n.op_type == "DequantizeLinear" and n.input[0].startswith("good_w"))
    scale = next(i for g in (body, healthy.graph) for i in g.initializer if i.name == dq.input[1])
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(4), scale.name))
    onnx.save(healthy, quantized)
    got = json.loads(common.onq("debug", "--float_model", path, "--qdq_model", quantized, "--data", tmp_path / "data.npz", "--json").stdout)
    first = got["diagnosis"]["causes"][0]
    assert first["cause"] == "parameters" and "good_w" in first["text"], first
    assert "--enable_subgraph" in got["diagnosis"]["command"]


def test_a_branch_reads_a_copy_of_what_is_quantized_outside(tmp_path):
    """Quantized anew, the copy would be a pair that ONNX Runtime 1.31.1 ends the process over when it optimises."""
    rng = np.random.default_rng(5)
    nodes, inits = [], []
    nodes.append(helper.make_node("Identity", [layer(nodes, inits, "first", "x", rng)], ["outer"], "copy"))
    branches = {}
    for word in ("then", "else"):
        inner, weights = [], []
        y = layer(inner, weights, word, "outer", rng)
        branches[f"{word}_branch"] = helper.make_graph(inner, word, [], [info(y, FLOAT, [4, N])], weights)
    inits.append(numpy_helper.from_array(np.float32(1.9), "least"))
    nodes += [helper.make_node("ReduceMax", ["x"], ["top"], "top", keepdims=0), helper.make_node("Greater", ["top", "least"], ["cond"], "greater"),
              helper.make_node("If", ["cond"], ["z"], "choice", **branches)]
    graph = helper.make_graph(nodes, "g", [info("x", FLOAT, [4, N])], [info("z", FLOAT, [4, N])], inits)
    path, out = tmp_path / "m.onnx", tmp_path / "q.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    np.savez(tmp_path / "data.npz", x=rng.standard_normal((6, 4, N)).astype(np.float32))
    common.onq("static", "-i", path, "-o", out, "--data", tmp_path / "data.npz", "--quant_format", "qoperator", "--enable_subgraph")
    inner = [n.op_type for n in onnx.load(out).graph.node if n.op_type == "If" for a in n.attribute for n in a.g.node]
    assert inner.count("QLinearMatMul") == 2 and "QuantizeLinear" not in inner
    assert figure(path, out, tmp_path) > 25
