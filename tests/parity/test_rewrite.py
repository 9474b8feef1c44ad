"""Exact rewrites (`--rewrite` of preprocess and static): the model computes what it did before.

A small model for every row of rewrite.def and for what must be left alone; shared models where they are there.
"""
import collections
import json
import re

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import modeltool
from common import MODELS, onq

rng = np.random.default_rng(11)
F = np.float32


def f32(*shape):
    return rng.standard_normal(shape).astype(F)


def make(nodes, inputs, inits, opset=17):
    g = helper.make_graph(
        [helper.make_node(n[0], n[1].split(), n[2].split(), name=n[2].split()[0] + "_node", **(n[3] if len(n) > 3 else {}))
         for n in nodes], "g",
        [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), s or v.shape)
         for k, (v, s) in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in inits.items()])
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def run(path, feed, level=onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL):
    o = onnxruntime.SessionOptions()
    o.log_severity_level = 4
    o.graph_optimization_level = level
    return onnxruntime.InferenceSession(str(path), o, providers=["CPUExecutionProvider"]).run(None, feed)


def sqnr(a, b):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    assert a.shape == b.shape
    noise = ((a - b) ** 2).sum()
    return 999.0 if noise == 0 else 10 * np.log10((a**2).sum() / noise)


def types(path):
    return collections.Counter(n.op_type for n in onnx.load(path).graph.node)


X4 = {"x": (f32(2, 6, 8, 5), ["n", 6, "h", "w"])}
X3 = {"x": (f32(2, 5, 12), ["n", 5, 12])}
T3 = {"x": (f32(2, 5, 13), ["n", 5, "t"])}
SOUND = {"x": (f32(2, 1, 216), ["n", 1, 216])}
SOUND_ANY = {"x": (f32(2, 1, 216), ["n", 1, "t"])}
X2 = {"x": (f32(3, 4), ["n", 4])}
S = {"three": F(3), "zero": F(0), "six": F(6), "sixth": F(1 / 6)}
GATE = [("Add", "x three", "a"), ("Clip", "a zero six", "c")]
G = {"r": F(np.sqrt(2 / np.pi)), "k": F(0.044715), "one": F(1), "half": F(0.5), "two": F(2), "cube": F(3)}
IDS = {"x": (np.array([[[0], [6], [3]], [[7], [-1], [99]]], np.int32), ["n", 3, 1])}
ONEHOT = [("Equal", "x k", "e"), ("Cast", "e", "c", {"to": 1}), ("MatMul", "c w", "y")]
K = {"k": np.arange(7, dtype=np.int32).reshape(1, 1, 7), "w": f32(7, 4)}
CASES = {
    "conv_mul_add": ([("Conv", "x w", "a"), ("Mul", "k a", "b"), ("Add", "b c", "y")], X4,
                     {"w": f32(8, 6, 3, 3), "k": f32(1), "c": f32(8, 1, 1)}, {"Conv": 1}),
    "matmul_mul": ([("MatMul", "x w", "a"), ("Mul", "k a", "y")], X3, {"w": f32(12, 7), "k": f32(7)}, {"MatMul": 1}),
    "matmul_div": ([("MatMul", "x w", "a"), ("Div", "a k", "y")], X3, {"w": f32(12, 7), "k": F(3)}, {"MatMul": 1}),
    "gemm_mul": ([("Gemm", "x w b", "a", {"transB": 1, "beta": 0.5, "alpha": 2.0}), ("Mul", "a k", "y")], X2,
                 {"w": f32(7, 4), "b": f32(7), "k": f32(1, 7)}, {"Gemm": 1}),
    "matmul_mul_by_row": ([("MatMul", "x w", "a"), ("Mul", "k a", "y")], X3, {"w": f32(12, 5), "k": f32(5, 1)},
                          {"MatMul": 1, "Mul": 1}),
    "matmul_mul_grows": ([("MatMul", "x w", "a"), ("Mul", "k a", "y")], X3, {"w": f32(12, 5), "k": f32(1, 1, 1, 5)},
                         {"MatMul": 1, "Mul": 1}),
    "number_over_matmul": ([("MatMul", "x w", "a"), ("Div", "k a", "y")], X3, {"w": f32(12, 5), "k": F(2)},
                           {"MatMul": 1, "Div": 1}),
    "hardswish_div": ([*GATE, ("Mul", "x c", "m"), ("Div", "m six", "y")], X4, S, {"HardSigmoid": 1, "Mul": 1}),
    "hardswish_mul": ([*GATE, ("Mul", "c x", "m"), ("Mul", "sixth m", "y")], X4, S, {"HardSigmoid": 1, "Mul": 1}),
    "hardswish_gate_first": ([*GATE, ("Div", "c six", "g"), ("Mul", "x g", "y")], X4, S, {"HardSigmoid": 1, "Mul": 1}),
    "hardsigmoid": ([*GATE, ("Mul", "c sixth", "y")], X4, S, {"HardSigmoid": 1}),
    "hardswish_of_other": ([*GATE, ("Mul", "three c", "m"), ("Div", "m six", "y")], X4, S, {"Add": 1, "Clip": 1, "Mul": 1, "Div": 1}),
    "hardswish_relu6": ([("Add", "x zero", "a"), ("Clip", "a zero six", "c"), ("Mul", "x c", "m"), ("Div", "m six", "y")], X4,
                        S, {"Add": 1, "Clip": 1, "Mul": 1, "Div": 1}),
    "six_over": ([*GATE, ("Mul", "x c", "m"), ("Div", "six m", "y")], {"x": (np.abs(f32(2, 3)) + 1, None)}, S,
                 {"Add": 1, "Clip": 1, "Mul": 1, "Div": 1}),
    "gelu_jax": ([("Mul", "k x", "a"), ("Mul", "x a", "b"), ("Mul", "x b", "c"), ("Add", "x c", "d"), ("Mul", "r d", "e"),
                  ("Tanh", "e", "t"), ("Add", "one t", "f"), ("Mul", "half f", "g"), ("Mul", "x g", "y")], X3, G,
                 {"FastGelu": 1}),
    "gelu_pow": ([("Pow", "x cube", "a"), ("Mul", "a k", "b"), ("Add", "x b", "c"), ("Mul", "c r", "d"), ("Tanh", "d", "t"),
                  ("Add", "t one", "f"), ("Mul", "x half", "g"), ("Mul", "g f", "y")], X3, G, {"FastGelu": 1}),
    "gelu_factored": ([("Mul", "x x", "a"), ("Mul", "a k", "b"), ("Add", "b one", "c"), ("Mul", "x r", "d"), ("Mul", "d c", "e"),
                       ("Tanh", "e", "t"), ("Add", "t one", "f"), ("Mul", "x f", "g"), ("Div", "g two", "y")], X3, G,
                      {"FastGelu": 1}),
    "gelu_other_constant": ([("Pow", "x cube", "a"), ("Mul", "a half", "b"), ("Add", "x b", "c"), ("Mul", "c r", "d"),
                             ("Tanh", "d", "t"), ("Add", "t one", "f"), ("Mul", "x half", "g"), ("Mul", "g f", "y")], X3, G, None),
    "tanh_alone": ([("Tanh", "x", "y")], X3, {}, {"Tanh": 1}),
    "onehot": (ONEHOT, IDS, K, {"Squeeze": 1, "Clip": 1, "Add": 1, "Gather": 1}),
    "onehot_expanded": ([("Expand", "x s", "z"), ("Equal", "k z", "e"), *ONEHOT[1:]], {"x": (IDS["x"][0], None)},
                        {**K, "s": np.array([2, 3, 7])}, {"Squeeze": 1, "Clip": 1, "Add": 1, "Gather": 1}),
    "onehot_of_another_count": (ONEHOT, IDS, {**K, "k": K["k"] + 1}, {"Equal": 1, "Cast": 1, "MatMul": 1}),
    "onehot_repeated": ([("Expand", "x s", "z"), ("Equal", "k z", "e"), *ONEHOT[1:]],
                        {"x": (np.array([[[1], [2], [3]]], np.int32), None)}, {**K, "s": np.array([4, 3, 7])},
                        {"Expand": 1, "Equal": 1, "Cast": 1, "MatMul": 1}),
    "conv1d": ([("Conv", "x w b", "y", {"pads": [2, 1]})], T3, {"w": f32(6, 5, 3), "b": f32(6)},
               {"Transpose": 2, "Pad": 1, "Slice": 3, "Concat": 1, "MatMul": 1, "Add": 1}),
    "conv1d_stride": ([("Conv", "x w", "y", {"strides": [2], "dilations": [2], "pads": [1, 0]})], T3, {"w": f32(6, 5, 3)},
                      {"Transpose": 2, "Pad": 1, "Slice": 3, "Concat": 1, "MatMul": 1}),
    "conv1d_blocks": ([("Conv", "x w b", "y", {"strides": [3], "pads": [3, 0]})], X3, {"w": f32(6, 5, 6), "b": f32(6)},
                      {"Transpose": 2, "Pad": 1, "Reshape": 1, "Slice": 2, "Concat": 1, "MatMul": 1, "Add": 1}),
    # windows of a spectrum: rows at the end that no window reaches, and a length that is not known
    "conv1d_windows": ([("Conv", "x w", "y", {"strides": [10]})], SOUND, {"w": f32(6, 1, 80)},
                       {"Transpose": 2, "Slice": 9, "Reshape": 1, "Concat": 1, "MatMul": 1}),
    "conv1d_windows_apart": ([("Conv", "x w", "y", {"strides": [32]})], SOUND, {"w": f32(6, 1, 80)},  # blocks of 16
                             {"Transpose": 2, "Slice": 6, "Reshape": 1, "Concat": 1, "MatMul": 1}),
    "conv1d_windows_with_gaps": ([("Conv", "x w", "y", {"strides": [60]})], SOUND_ANY, {"w": f32(6, 1, 20)},
                                 {"Transpose": 2, "Shape": 1, "Gather": 1, "Div": 1, "Mul": 1, "Slice": 2, "Reshape": 1,
                                  "MatMul": 1}),
    "conv1d_windows_unknown": ([("Conv", "x w", "y", {"strides": [10], "pads": [4, 3]})], SOUND_ANY, {"w": f32(6, 1, 80)},
                               {"Transpose": 2, "Pad": 1, "Shape": 1, "Gather": 1, "Div": 1, "Mul": 1, "Slice": 9,
                                "Reshape": 1, "Concat": 1, "MatMul": 1}),
    "conv1d_one": ([("Conv", "x w", "y")], T3, {"w": f32(6, 5, 1)}, {"Transpose": 2, "MatMul": 1}),
    "conv1d_one_strided": ([("Conv", "x w", "y", {"strides": [3]})], T3, {"w": f32(6, 5, 1)},
                           {"Transpose": 2, "Slice": 1, "MatMul": 1}),
    "conv_k_by_1": ([("Conv", "x w b", "y", {"pads": [1, 0, 2, 0], "strides": [2, 1]})], X4, {"w": f32(7, 6, 3, 1), "b": f32(7)},
                    {"Transpose": 2, "Pad": 1, "Slice": 3, "Concat": 1, "MatMul": 1, "Add": 1}),
    "conv_1_by_k": ([("Conv", "x w", "y", {"auto_pad": "VALID"})], X4, {"w": f32(7, 6, 1, 3)},
                    {"Transpose": 2, "Slice": 3, "Concat": 1, "MatMul": 1}),
    "conv_2d": ([("Conv", "x w", "y")], X4, {"w": f32(7, 6, 3, 3)}, {"Conv": 1}),
    "conv_1_by_1": ([("Conv", "x w", "y")], X4, {"w": f32(7, 6, 1, 1)}, {"Conv": 1}),
    "conv1d_groups": ([("Conv", "x w", "y", {"group": 5})], T3, {"w": f32(10, 1, 3)}, {"Conv": 1}),
    "conv1d_same": ([("Conv", "x w", "y", {"auto_pad": "SAME_UPPER"})], T3, {"w": f32(10, 5, 3)}, {"Conv": 1}),
    "conv_strided_across": ([("Conv", "x w", "y", {"strides": [1, 2]})], X4, {"w": f32(7, 6, 3, 1)}, {"Conv": 1}),
}


def rewrite(src, out, words="all"):
    text = onq("preprocess", "-i", src, "-o", out, "--optimizer", "none", "--rewrite", words, "--json", status=0).stdout
    return {x["what"]: x["count"] for x in json.loads(text)["rewrites"]}


@pytest.mark.parametrize("name", CASES)
def test_case(name, tmp_path):
    nodes, inputs, inits, wanted = CASES[name]
    a, b = tmp_path / "a.onnx", tmp_path / "b.onnx"
    onnx.save(make(nodes, inputs, inits), a)
    rewrite(a, b)
    feed = {k: v for k, (v, _) in inputs.items()}
    for level in (onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL, onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL):
        assert sqnr(run(a, feed, level)[0], run(b, feed, level)[0]) > (90 if "gelu" in name else 100)
    if wanted is not None:
        assert dict(types(b)) == wanted
    onnx.checker.check_model(onnx.load(b))


def test_every_row_has_a_case(tmp_path):
    rows = re.findall(r'^OQ_REWRITE\(\w+, (\w+), "[^"]*",\s*"([^"]*)"\)',
                      (modeltool.ROOT / "src/prepare/fuse/rewrite.def").read_text(), re.M)
    seen = collections.Counter()
    for i, (nodes, inputs, inits, _) in enumerate(CASES.values()):
        onnx.save(make(nodes, inputs, inits), tmp_path / f"{i}.onnx")
        seen.update(rewrite(tmp_path / f"{i}.onnx", tmp_path / "b.onnx"))
    assert len(rows) == 7 and [name for name, what in rows if not seen[what]] == []


def of_branches():
    """Two branches with a Conv whose weight is the main graph's, as exporters write a model for two sampling rates."""
    def branch(k):
        nodes = [helper.make_node("Conv", ["x", "w"], [f"y{k}"], strides=[k], name=f"conv{k}")]
        return helper.make_graph(nodes, f"b{k}", [], [helper.make_tensor_value_info(f"y{k}", TensorProto.FLOAT, None)])

    m = make([("Identity", "x", "y")], SOUND, {"w": f32(6, 1, 80)})
    node = helper.make_node("If", ["which"], ["y"], then_branch=branch(10), else_branch=branch(20))
    m.graph.node[0].CopyFrom(node)
    m.graph.input.append(helper.make_tensor_value_info("which", TensorProto.BOOL, []))
    return m


def test_weights_around_a_branch(tmp_path):
    onnx.save(of_branches(), tmp_path / "a.onnx")
    assert sum(rewrite(tmp_path / "a.onnx", tmp_path / "b.onnx").values()) == 2
    for which in (True, False):
        feed = {"x": SOUND["x"][0], "which": np.array(which)}
        assert sqnr(run(tmp_path / "a.onnx", feed)[0], run(tmp_path / "b.onnx", feed)[0]) > 100
    onnx.checker.check_model(onnx.load(tmp_path / "b.onnx"))
    assert [i.name for i in onnx.load(tmp_path / "b.onnx").graph.initializer] == []


def test_words(tmp_path):
    nodes, inputs, inits, _ = CASES["hardswish_div"]
    a, b = tmp_path / "a.onnx", tmp_path / "b.onnx"
    onnx.save(make(nodes, inputs, inits), a)
    assert rewrite(a, b, "constants,onehot") == {}
    assert len(rewrite(a, b, "constants,hardswish")) == 1
    r = onq("preprocess", "-i", a, "-o", b, "--rewrite", "hardswich", status=2)
    assert "--rewrite: 'hardswich' is not all, none" in r.stderr


def test_nodes_keep_their_names(tmp_path):
    """Users name nodes: a Conv that became a MatMul still has its name."""
    nodes, inputs, inits, _ = CASES["conv1d"]
    onnx.save(make(nodes, inputs, inits), tmp_path / "a.onnx")
    rewrite(tmp_path / "a.onnx", tmp_path / "b.onnx")
    assert [n.op_type for n in onnx.load(tmp_path / "b.onnx").graph.node if n.name == "y_node"] == ["MatMul"]


def test_static(tmp_path):
    """static rewrites before it quantizes: the same as preprocess --rewrite first."""
    nodes = [("Conv", "x w", "a"), ("Mul", "k a", "b"), ("Relu", "b", "y")]
    onnx.save(make(nodes, X4, {"w": f32(8, 6, 3, 3), "k": f32(1)}), tmp_path / "a.onnx")
    rewrite(tmp_path / "a.onnx", tmp_path / "b.onnx", "constants")
    np.savez(tmp_path / "d.npz", x=X4["x"][0])
    for src, out, words in (("a", "qa", ["--rewrite", "constants"]), ("b", "qb", [])):
        onq("static", "-i", tmp_path / f"{src}.onnx", "-o", tmp_path / f"{out}.onnx", "--data", tmp_path / "d.npz", *words,
            status=0)
    assert types(tmp_path / "qa.onnx") == types(tmp_path / "qb.onnx")
    assert types(tmp_path / "qa.onnx")["Mul"] == 0
    feed = {"x": X4["x"][0]}
    assert sqnr(run(tmp_path / "qb.onnx", feed)[0], run(tmp_path / "qa.onnx", feed)[0]) > 100


SHARED = [("ppocrv4_det", {"Clip": 0, "Div": 0, "HardSigmoid": 34}), ("magika", {"Tanh": 0, "FastGelu": 2, "Conv": 0, "Gather": 1})]


@pytest.mark.parametrize("name, wanted", SHARED, ids=[s[0] for s in SHARED])
def test_shared(name, wanted, tmp_path):
    path = MODELS / name / "model.onnx"
    if not path.exists():
        pytest.skip("no shared models")
    out = tmp_path / "m.onnx"
    onq("preprocess", "-i", path, "-o", out, "--rewrite", "all", "--opset", "13", status=0)
    t = onnx.TensorProto()
    t.ParseFromString((path.parent / "test_data_set_0" / "input_0.pb").read_bytes())
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: numpy_helper.to_array(t)}
    assert sqnr(session.run(None, feed)[0], run(out, feed)[0]) > 90
    got = types(out)
    assert {k: got[k] for k in wanted} == wanted
