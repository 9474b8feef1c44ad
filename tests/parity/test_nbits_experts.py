"""test_nbits_experts.py - experts of MoE become QMoE; what stays float is told with its share and reason."""
import json

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from common import onq, refused
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

EXPERTS, HIDDEN, INNER, TOKENS = 4, 64, 128, 9
MS = "com.microsoft"


def stacks(seed, fused):
    rng = np.random.default_rng(seed)
    n = INNER * (2 if fused else 1)
    return {"w1": rng.normal(0, HIDDEN ** -0.5, (EXPERTS, n, HIDDEN)), "b1": rng.normal(0, 0.3, (EXPERTS, n)),
            "w2": rng.normal(0, INNER ** -0.5, (EXPERTS, HIDDEN, INNER)), "b2": rng.normal(0, 0.3, (EXPERTS, HIDDEN)),
            "w3": rng.normal(0, HIDDEN ** -0.5, (EXPERTS, INNER, HIDDEN))}


def model(path, activation="silu", bias=False, fc3=False, type=np.float32, seed=1, values=None, **more):
    """A router and its experts, then a product."""
    made = values or stacks(seed, activation == "swiglu")
    made["router"] = np.random.default_rng(seed + 7).normal(0, 1, (HIDDEN, EXPERTS))
    made["head"] = np.random.default_rng(seed + 8).normal(0, 0.1, (HIDDEN, 32))
    names = ["x", "p", "w1", "b1" if bias else "", "w2", "b2" if bias else "", *(["w3"] if fc3 else [])]
    while not names[-1]:
        names.pop()
    nodes = [h.make_node("MatMul", ["x", "router"], ["p"], name="route"),
             h.make_node("MoE", names, ["e"], name="experts", domain=MS, k=2, activation_type=activation, normalize_routing_weights=1, **more),
             h.make_node("MatMul", ["e", "head"], ["y"], name="head")]
    kind = h.np_dtype_to_tensor_dtype(np.dtype(type))
    used = {i for n in nodes for i in n.input}
    inits = [numpy_helper.from_array(v.astype(type), k) for k, v in made.items() if k in used]
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", kind, ["t", HIDDEN])], [h.make_tensor_value_info("y", kind, ["t", 32])], inits)
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17), h.make_opsetid(MS, 1)], ir_version=9), path)
    return path


def run(path, type=np.float32):
    x = np.random.default_rng(3).normal(size=(TOKENS, HIDDEN)).astype(type)
    return ort.InferenceSession(str(path)).run(None, {"x": x})[0].astype(np.float64)


def db(want, got):
    return 10 * np.log10((want ** 2).sum() / ((want - got) ** 2).sum())


def dequantized(path):
    """The stacks of a result, as its integers, scales and zero points say."""
    g = onnx.load(path).graph
    node = next(n for n in g.node if n.op_type == "QMoE")
    a = {x.name: h.get_attribute_value(x) for x in node.attribute}
    t = {x.name: numpy_helper.to_array(x) for x in g.initializer}
    bits, block = a["expert_weight_bits"], a["block_size"]
    values = {}
    for name, at, zeros in (("w1", 2, 11), ("w2", 5, 12)):
        q, scale = t[node.input[at]], t[node.input[at + 1]].astype(np.float64)

        def unpacked(b):
            return np.stack([b >> (bits * i) & (2 ** bits - 1) for i in range(8 // bits)], -1).reshape(*b.shape[:2], -1)
        zero = unpacked(t[node.input[zeros]])[..., :scale.shape[2]] if len(node.input) > zeros else np.full(scale.shape, 2 ** (bits - 1))
        values[name] = (unpacked(q).astype(np.float64) - np.repeat(zero, block, 2)) * np.repeat(scale, block, 2)
    return values


@pytest.mark.parametrize("activation,more", [("relu", {}), ("gelu", {}), ("silu", {}), ("swiglu", {"swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0})])
@pytest.mark.parametrize("words", ["", "--symmetric false", "--quant_method k_quant", "--block_size 16"])
def test_experts_compute_what_their_integers_say(tmp_path, activation, more, words):
    """QMoE computes with float what a MoE with the dequantized stacks computes, biases included."""
    values = stacks(1, activation == "swiglu")
    path = model(tmp_path / "f.onnx", activation, bias=True, values=dict(values), **more)
    onq("nbits", "-i", path, "-o", tmp_path / "q.onnx", "--op_types_to_quantize", "MoE", *words.split(), status=0)
    same = model(tmp_path / "s.onnx", activation, bias=True, values={**values, **dequantized(tmp_path / "q.onnx")}, **more)
    assert db(run(same), run(tmp_path / "q.onnx")) > 90
    assert 15 < db(run(path), run(tmp_path / "q.onnx")) < 40


@pytest.mark.parametrize("bits,words,least", [(8, "", 30), (4, "--accuracy_level 4", 15), (2, "--block_size 16", 1)])
def test_other_bits(tmp_path, bits, words, least):
    """8 and 2 bits, and int8 inputs: the runtime rounds what experts read."""
    path = model(tmp_path / "f.onnx")
    onq("nbits", "-i", path, "-o", tmp_path / "q.onnx", "--op_types_to_quantize", "MoE", "--bits", bits, *words.split(), status=0)
    same = model(tmp_path / "s.onnx", values={**stacks(1, False), **dequantized(tmp_path / "q.onnx")})
    assert db(run(same), run(tmp_path / "q.onnx")) > 35
    assert db(run(path), run(tmp_path / "q.onnx")) > least


def test_float16(tmp_path):
    path = model(tmp_path / "f.onnx", type=np.float16)
    onq("nbits", "-i", path, "-o", tmp_path / "q.onnx", "--op_types_to_quantize", "MoE", status=0)
    assert db(run(path, np.float16), run(tmp_path / "q.onnx", np.float16)) > 15


def test_default_leaves_them_and_says_so(tmp_path):
    """The reference knows no MoE: by default its bytes stay, and the share that is float is told with the reason."""
    path = model(tmp_path / "f.onnx")
    done = onq("nbits", "-i", path, "-o", tmp_path / "q.onnx", status=0)
    assert "MoE (not in op_types_to_quantize)" in done.stdout and "--op_types_to_quantize MatMul,MoE" in done.stdout
    done = onq("nbits", "-i", path, "-o", tmp_path / "q.onnx", "--json", "--force", status=0)
    left = json.loads(done.stdout)["left_float"]
    assert [r["op_type"] for r in left["reasons"]] == ["MoE"] and left["reasons"][0]["constants"] == 2
    assert left["bytes"] == left["reasons"][0]["bytes"] == 4 * 2 * EXPERTS * HIDDEN * INNER
    assert {n.op_type for n in onnx.load(tmp_path / "q.onnx").graph.node} == {"MatMulNBits", "MoE"}
    done = onq("nbits", "-i", path, "-o", tmp_path / "all.onnx", "--all_weights", "--json", status=0)
    assert json.loads(done.stdout)["left_float"]["bytes"] == 0
    assert {n.op_type for n in onnx.load(tmp_path / "all.onnx").graph.node} == {"MatMulNBits", "QMoE"}


@pytest.mark.parametrize("made,words,why", [
    ({"fc3": True}, "", "ONNX Runtime's CPU has no such experts"),
    ({"activation": "swiglu", "swiglu_fusion": 2}, "", "ONNX Runtime's CPU has no such experts"),
    ({}, "--quant_method hqq", "QMoE takes integers as zero points only"),
    ({}, "--bits 3", "QMoE takes 2, 4 and 8 bits"),
    ({}, "--block_size 256", "whole blocks only"),
    ({}, "--quant_format QDQ", "experts need QMoE"),
    ({}, "--target_bits 6", "--target_bits does not know"),
])
def test_nothing_is_left_silently(tmp_path, made, words, why):
    path = model(tmp_path / "f.onnx", **made)
    done = onq("nbits", "-i", path, "-o", tmp_path / "q.onnx", "--op_types_to_quantize", "MatMul,MoE", "--no_verify", "--json", *words.split(), status=0)
    reasons = json.loads(done.stdout)["left_float"]["reasons"]
    assert any(r["op_type"] == "MoE" and why in r["why"] for r in reasons), reasons


def test_samples_do_not_show_what_experts_read(tmp_path):
    """gptq rounds the products by samples and the experts to the nearest."""
    path = model(tmp_path / "f.onnx")
    x = np.random.default_rng(5).normal(size=(80, HIDDEN)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x[None])
    onq("nbits", "-i", path, "-o", tmp_path / "g.onnx", "--op_types_to_quantize", "MatMul,MoE", "--quant_method", "gptq", "--data", tmp_path / "x.npz", status=0)
    onq("nbits", "-i", path, "-o", tmp_path / "d.onnx", "--op_types_to_quantize", "MatMul,MoE", status=0)
    a, b = dequantized(tmp_path / "g.onnx"), dequantized(tmp_path / "d.onnx")
    assert (a["w1"] == b["w1"]).all() and (a["w2"] == b["w2"]).all()
    assert db(run(path), run(tmp_path / "g.onnx")) > 8  # the router has 4 bits too


def test_a_plan_repeats_it(tmp_path):
    path = model(tmp_path / "f.onnx")
    onq("nbits", "-i", path, "-o", tmp_path / "a.onnx", "--all_weights", "--plan", tmp_path / "p.json", status=0)
    onq("nbits", "-i", path, "-o", tmp_path / "b.onnx", "--from_plan", tmp_path / "p.json", status=0)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_older_runtimes(tmp_path):
    path = model(tmp_path / "f.onnx")
    words = "nbits", "-i", path, "-o", tmp_path / "q.onnx", "--op_types_to_quantize", "MoE"
    refused(onq(*words, "--for_runtime", "1.23"), "experts", "QMoE of 4 bits", "1.24 and later can")
    refused(onq(*words, "--accuracy_level", 4, "--for_runtime", "1.30"), "experts", "1.31 and later can")
    onq(*words, "--for_runtime", "1.24", status=0)
