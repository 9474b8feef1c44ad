"""The built-in optimiser (`onq preprocess --optimizer builtin`): the model computes what it did before.

Every shared model; a small model for every row of fuse.def and every operator of fold.def. Outputs of the float model
and of the optimised one are compared by ONNX Runtime without its own optimisation.
"""
import collections
import json
import re
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import modeltool
from common import ONQ

SHARED = modeltool.shared_models()
rng = np.random.default_rng(5)


def optimize(src, out, *words):
    r = subprocess.run([ONQ, "preprocess", "-i", str(src), "-o", str(out), "--optimizer", "builtin", "--json", *words],
                       capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    return {x["what"]: x["count"] for x in json.loads(r.stdout)["rewrites"]}


def run(path, feed):
    o = onnxruntime.SessionOptions()
    o.log_severity_level = 4
    o.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), o, providers=["CPUExecutionProvider"]).run(None, feed)


def cosine(a, b):
    a, b = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    assert a.shape == b.shape
    if not a.any() or not b.any():
        return float(a.any() == b.any())
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def types(path):
    return collections.Counter(n.op_type for n in onnx.load(path, load_external_data=False).graph.node)


@pytest.mark.parametrize("path", SHARED, ids=[p.parent.name for p in SHARED])
def test_shared(path, tmp_path):
    out = tmp_path / "m.onnx"
    optimize(path, out)
    folder = sorted(path.parent.glob("test_data_set_*"))[0]
    model = onnx.load(path, load_external_data=False)
    inits = {t.name for t in model.graph.initializer}
    feed = {}
    for i, v in enumerate([v for v in model.graph.input if v.name not in inits]):
        t = onnx.TensorProto()
        t.ParseFromString((folder / f"input_{i}.pb").read_bytes())
        feed[v.name] = numpy_helper.to_array(t)
    for a, b in zip(run(path, feed), run(out, feed), strict=True):
        assert a.dtype == b.dtype and cosine(a, b) > 0.99999
    assert types(out)["Constant"] == 0
    if path.parent.name == "efficientnet_lite0":
        assert types(out)["BatchNormalization"] == 0
    # A tensor that survives keeps its name: no node output is new.
    before = {o for n in model.graph.node for o in n.output}
    after = {o for n in onnx.load(out, load_external_data=False).graph.node for o in n.output}
    assert after <= before


# ---- one case for every rewrite


def f32(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def make(nodes, inputs, outputs, inits, opset=17):
    g = helper.make_graph(
        [helper.make_node(n[0], n[1].split(), n[2].split(), **(n[3] if len(n) > 3 else {})) for n in nodes], "g",
        [helper.make_tensor_value_info(k, onnx.helper.np_dtype_to_tensor_dtype(v.dtype), s or v.shape)
         for k, (v, s) in inputs.items()],
        [helper.make_tensor_value_info(o, t, None) for o, t in outputs.items()],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in inits.items()])
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def bn(c):
    return {"s": f32(c), "o": f32(c), "m": f32(c), "v": np.abs(f32(c)) + 0.1}


X4 = {"x": (f32(2, 6, 5, 5), ["n", 6, 5, 5])}
X2 = {"x": (f32(3, 4), ["n", 4])}
Y = {"y": TensorProto.FLOAT}
BN = ("BatchNormalization", "a s o m v", "y", {"epsilon": 1e-3})
CASES = {
    "conv_bn": ([("Conv", "x w", "a"), BN], X4, Y, {"w": f32(8, 6, 3, 3), **bn(8)}, {"Conv": 1}),
    "conv_bias_bn": ([("Conv", "x w b", "a", {"group": 2}), BN], X4, Y,
                     {"w": f32(8, 3, 3, 3), "b": f32(8), **bn(8)}, {"Conv": 1}),
    "convtranspose_bn": ([("ConvTranspose", "x w b", "a", {"group": 3}), BN], X4, Y,
                         {"w": f32(6, 4, 3, 3), "b": f32(12), **bn(12)}, {"ConvTranspose": 1}),
    "gemm_bn": ([("Gemm", "x w b", "a", {"alpha": 0.5, "beta": 2.0, "transB": 1}), BN], X2, Y,
                {"w": f32(7, 4), "b": f32(7), **bn(7)}, {"Gemm": 1}),
    "matmul_bn": ([("MatMul", "x w", "a"), BN], X2, Y, {"w": f32(4, 7), **bn(7)}, {"Gemm": 1}),
    "shared_weight_bn": ([("Conv", "x w", "a"), BN, ("Conv", "x w", "z")], X4, {**Y, "z": 1},
                         {"w": f32(8, 6, 3, 3), **bn(8)}, {"Conv": 2}),
    "conv_used_twice": ([("Conv", "x w", "a"), BN, ("Relu", "a", "z")], X4, {**Y, "z": 1},
                        {"w": f32(8, 6, 3, 3), **bn(8)}, {"Conv": 1, "BatchNormalization": 1, "Relu": 1}),
    "conv_mul_add": ([("Conv", "x w", "a"), ("Mul", "k a", "b"), ("Add", "b c", "y")], X4, Y,
                     {"w": f32(8, 6, 3, 3), "k": f32(1, 8, 1, 1), "c": f32(8, 1, 1)}, {"Conv": 1}),
    "conv_div_sub": ([("Conv", "x w", "a"), ("Div", "a k", "b"), ("Sub", "b c", "y")], X4, Y,
                     {"w": f32(8, 6, 3, 3), "k": np.float32(3), "c": f32(8, 1, 1)}, {"Conv": 1}),
    "conv_add_not_by_channel": ([("Conv", "x w", "a"), ("Add", "a c", "y")], X4, Y,
                                {"w": f32(8, 6, 3, 3), "c": f32(3, 3)}, {"Conv": 1, "Add": 1}),
    "const_minus_conv": ([("Conv", "x w", "a"), ("Sub", "c a", "y")], X4, Y,
                         {"w": f32(8, 6, 3, 3), "c": f32(8, 1, 1)}, {"Conv": 1, "Sub": 1}),
    "matmul_add": ([("MatMul", "x w", "a"), ("Add", "b a", "y")], X2, Y, {"w": f32(4, 5), "b": f32(5)}, {"Gemm": 1}),
    "gemm_add": ([("Gemm", "x w", "a", {"alpha": 2.0}), ("Add", "a b", "y")], X2, Y,
                 {"w": f32(4, 5), "b": f32(1, 5)}, {"Gemm": 1}),
    "matmul_add_wide": ([("MatMul", "x w", "a"), ("Add", "a b", "y")], {"x": (f32(3, 1, 4), None)}, Y,
                        {"w": f32(4, 5), "b": f32(2, 5)}, {"MatMul": 1, "Add": 1}),
    "matmul_add_grows": ([("MatMul", "x w", "a"), ("Add", "a b", "y")], X2, Y,
                         {"w": f32(4, 5), "b": f32(2, 1, 5)}, {"MatMul": 1, "Add": 1}),
    "pad_conv": ([("Pad", "x p", "a"), ("Conv", "a w", "y", {"pads": [0, 1, 1, 0], "strides": [2, 2]})], X4, Y,
                 {"w": f32(8, 6, 3, 3), "p": np.array([0, 0, 1, 2, 0, 0, 3, 0])}, {"Conv": 1}),
    "pad_value_conv": ([("Pad", "x p k", "a"), ("Conv", "a w", "y")], X4, Y,
                       {"w": f32(8, 6, 3, 3), "p": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "k": np.float32(1)},
                       {"Pad": 1, "Conv": 1}),
    "pad_reflect_conv": ([("Pad", "x p", "a", {"mode": "reflect"}), ("Conv", "a w", "y")], X4, Y,
                         {"w": f32(8, 6, 3, 3), "p": np.array([0, 0, 1, 1, 0, 0, 1, 1])}, {"Pad": 1, "Conv": 1}),
    "pad_channel_conv": ([("Pad", "x p", "a"), ("Conv", "a w", "y")], X4, Y,
                         {"w": f32(8, 7, 3, 3), "p": np.array([0, 1, 1, 1, 0, 0, 1, 1])}, {"Pad": 1, "Conv": 1}),
    "identity": ([("Relu", "x", "a"), ("Identity", "a", "b"), ("Dropout", "b", "c d"), ("Neg", "c", "e"),
                  ("Identity", "e", "y")], X2, Y, {}, {"Relu": 1, "Neg": 1}),
    "identity_of_input": ([("Identity", "x", "y")], X2, Y, {}, {"Identity": 1}),
    "identity_twice": ([("Relu", "x", "a"), ("Identity", "a", "y"), ("Identity", "a", "z"), ("Neg", "a", "u")], X2,
                       {**Y, "z": 1, "u": 1}, {}, {"Relu": 1, "Identity": 1, "Neg": 1}),
    "identity_chain": ([("Identity", "x", "a0"), *[("Identity", f"a{i}", f"a{i + 1}") for i in range(40)],
                        ("Relu", "a40", "y")], X2, Y, {}, {"Relu": 1}),
    "still": ([("Cast", "x", "a", {"to": 1}), ("Transpose", "a", "b", {"perm": [0, 1]}), ("Pad", "b p", "c"),
               ("Concat", "c", "d", {"axis": 0}), ("Reshape", "d q", "e"), ("Neg", "e", "y")],
              {"x": (f32(3, 4), None)}, Y, {"p": np.array([0, 0, 0, 0]), "q": np.array([3, 4])}, {"Neg": 1}),
    "neutral": ([("Add", "x z", "a"), ("Mul", "o a", "b"), ("Sub", "b z", "c"), ("Div", "c o", "d"), ("Neg", "d", "y")],
                X2, Y, {"z": np.float32(0), "o": np.ones((1, 1), np.float32)}, {"Neg": 1}),
    "neutral_grows": ([("Mul", "x o", "a"), ("Neg", "a", "y")], X2, Y, {"o": np.ones((1, 1, 1), np.float32)},
                      {"Mul": 1, "Neg": 1}),
    "duplicate": ([("Relu", "x", "a"), ("Relu", "x", "b"), ("Softmax", "a", "c", {"axis": 1}),
                   ("Softmax", "b", "d", {"axis": 1}), ("Softmax", "b", "e", {"axis": 0}), ("Sum", "c d e", "y")], X2, Y,
                  {}, {"Relu": 1, "Softmax": 2, "Sum": 1}),
    "gelu_torch": ([("Div", "x r", "a"), ("Erf", "a", "b"), ("Add", "b o", "c"), ("Mul", "x c", "d"), ("Mul", "d h", "y")],
                   X2, Y, {"r": np.float32(2**0.5), "o": np.float32(1), "h": np.float32(0.5)}, {"Gelu": 1}),
    "gelu_torch_2": ([("Div", "x r", "a"), ("Erf", "a", "b"), ("Add", "b o", "c"), ("Mul", "x h", "d"), ("Mul", "d c", "y")],
                     X2, Y, {"r": np.float32(2**0.5), "o": np.float32(1), "h": np.float32(0.5)}, {"Gelu": 1}),
    "gelu_keras": ([("Div", "x r", "a"), ("Erf", "a", "b"), ("Add", "b o", "c"), ("Mul", "c h", "d"), ("Mul", "x d", "y")],
                   X2, Y, {"r": np.float32(2**0.5), "o": np.float32(1), "h": np.float32(0.5)}, {"Gelu": 1}),
    "gelu_tf": ([("Mul", "r x", "a"), ("Erf", "a", "b"), ("Add", "b o", "c"), ("Mul", "c h", "d"), ("Mul", "x d", "y")],
                X2, Y, {"r": np.float32(0.5**0.5), "o": np.float32(1), "h": np.float32(0.5)}, {"Gelu": 1}),
    "gelu_inside_used": ([("Div", "x r", "a"), ("Erf", "a", "b"), ("Add", "b o", "c"), ("Mul", "x c", "d"),
                          ("Mul", "d h", "y")], X2, {**Y, "b": 1},
                         {"r": np.float32(2**0.5), "o": np.float32(1), "h": np.float32(0.5)},
                         {"Div": 1, "Erf": 1, "Add": 1, "Mul": 2}),
    "layernorm": ([("ReduceMean", "x", "m", {"axes": [-1]}), ("Sub", "x m", "d"), ("Pow", "d t", "p"),
                   ("ReduceMean", "p", "v", {"axes": [1]}), ("Add", "v e", "f"), ("Sqrt", "f", "g"), ("Div", "d g", "h"),
                   ("Mul", "h w", "i"), ("Add", "i b", "y")], X2, Y,
                  {"t": np.float32(2), "e": np.float32(1e-5), "w": f32(4), "b": f32(4)}, {"LayerNormalization": 1}),
    "layernorm_other_axis": ([("ReduceMean", "x", "m", {"axes": [0]}), ("Sub", "x m", "d"), ("Mul", "d d", "p"),
                              ("ReduceMean", "p", "v", {"axes": [0]}), ("Add", "v e", "f"), ("Sqrt", "f", "g"),
                              ("Div", "d g", "h"), ("Mul", "h w", "i"), ("Add", "i b", "y")], X2, Y,
                             {"e": np.float32(1e-5), "w": f32(4), "b": f32(4)}, None),
    "shapes": ([("Shape", "x", "s"), ("Gather", "s i", "c"), ("Unsqueeze", "c i1", "u"), ("Concat", "m u", "t", {"axis": 0}),
                ("Reshape", "x t", "y")], X4, Y, {"i": np.array(1), "i1": np.array([0]), "m": np.array([-1])},
               None),
    "shapes_fixed": ([("Shape", "x", "s"), ("Gather", "s i", "c"), ("Unsqueeze", "c i1", "u"),
                      ("Concat", "m u", "t", {"axis": 0}), ("Reshape", "x t", "y")], {"x": (f32(2, 6, 5, 5), None)}, Y,
                     {"i": np.array(1), "i1": np.array([0]), "m": np.array([-1])}, {"Reshape": 1}),
}


def check(model, inputs, tmp_path):
    onnx.save(model, tmp_path / "a.onnx")
    counts = optimize(tmp_path / "a.onnx", tmp_path / "b.onnx")
    feed = {k: v for k, (v, _) in inputs.items()}
    for a, b in zip(run(tmp_path / "a.onnx", feed), run(tmp_path / "b.onnx", feed), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)
    return counts


@pytest.mark.parametrize("name", CASES)
def test_rewrite(name, tmp_path):
    nodes, inputs, outputs, inits, wanted = CASES[name]
    check(make(nodes, inputs, outputs, inits), inputs, tmp_path)
    if wanted is not None:
        assert dict(types(tmp_path / "b.onnx")) == wanted


def test_every_rewrite_has_a_case(tmp_path):
    rows = re.findall(r'^OQ_FUSE\((\w+), "[^"]*",\s*"([^"]*)"\)',
                      (modeltool.ROOT / "src/prepare/fuse/fuse.def").read_text(), re.M)
    seen = collections.Counter()
    for i, (nodes, inputs, outputs, inits, _) in enumerate(CASES.values()):
        d = tmp_path / str(i)
        d.mkdir()
        onnx.save(make(nodes, inputs, outputs, inits), d / "a.onnx")
        seen.update(optimize(d / "a.onnx", d / "b.onnx"))
    assert [name for name, what in rows if not seen[what]] == []


# ---- folding


I = np.array
FOLDS = {
    "Abs": [({"a": f32(3)}, {})], "Add": [({"a": f32(2, 1), "b": f32(3)}, {}), ({"a": I([1, 2]), "b": I(5)}, {})],
    "And": [({"a": I([True, False]), "b": I([True])}, {})],
    "Cast": [({"a": f32(4) * 10}, {"to": 7}), ({"a": I([0, 3])}, {"to": 9}), ({"a": I([1, 3])}, {"to": 10}),
             ({"a": f32(3)}, {"to": 11}), ({"a": I([True])}, {"to": 1})],
    "Ceil": [({"a": f32(5)}, {})],
    "Concat": [({"a": f32(2, 3), "b": f32(2, 1)}, {"axis": -1}), ({"a": I([1]), "b": I([2, 3])}, {"axis": 0})],
    "ConstantOfShape": [({"a": I([2, 3])}, {"value": numpy_helper.from_array(I([7], np.int64))}), ({"a": I([4])}, {})],
    "Cos": [({"a": f32(4)}, {})], "Div": [({"a": f32(4), "b": f32(4)}, {}), ({"a": I([-7, 7]), "b": I([2])}, {})],
    "Equal": [({"a": I([1, 2]), "b": I([1, 3])}, {})], "Exp": [({"a": f32(4)}, {})],
    "Expand": [({"a": f32(3, 1), "b": I([2, 1, 4])}, {})], "Flatten": [({"a": f32(2, 3, 4)}, {"axis": 2})],
    "Floor": [({"a": f32(5)}, {})],
    "Gather": [({"a": f32(4, 3), "b": I([[0, -1], [2, 1]])}, {"axis": 1}), ({"a": I([5, 6, 7]), "b": I(-2)}, {})],
    "Greater": [({"a": f32(4), "b": f32(1)}, {})], "GreaterOrEqual": [({"a": I([1, 2]), "b": I([2])}, {})],
    "Less": [({"a": I([1, 2]), "b": I([2])}, {})], "LessOrEqual": [({"a": I([1, 3]), "b": I([2])}, {})],
    "Log": [({"a": np.abs(f32(4))}, {})], "Max": [({"a": f32(4), "b": f32(4)}, {})], "Min": [({"a": I([1, 5]), "b": I(3)}, {})],
    "Mod": [({"a": I([-7, 7, 3]), "b": I([3, -3, 2])}, {}), ({"a": f32(4), "b": f32(4)}, {"fmod": 1}),
            ({"a": I([-7, 7]), "b": I([3])}, {"fmod": 1})],
    "Mul": [({"a": f32(4), "b": f32(2, 4)}, {}), ({"a": I([3, 4]), "b": I([-2])}, {})], "Neg": [({"a": I([3, -4])}, {})],
    "NonZero": [({"a": I([[1, 0], [2, 3]])}, {})], "Not": [({"a": I([True, False])}, {})],
    "Or": [({"a": I([True, False]), "b": I([False])}, {})],
    "Pow": [({"a": np.abs(f32(4)), "b": f32(4)}, {}), ({"a": I([2, 3]), "b": I([3, 0])}, {})],
    "Range": [({"a": I(2), "b": I(9), "c": I(3)}, {}), ({"a": I(9), "b": I(2), "c": I(-2)}, {}),
              ({"a": np.float32(0), "b": np.float32(1), "c": np.float32(0.3)}, {}), ({"a": I(3), "b": I(3), "c": I(1)}, {})],
    "Reciprocal": [({"a": f32(4)}, {})], "ReduceMax": [({"a": f32(3, 4)}, {"axes": [1], "keepdims": 0})],
    "ReduceMin": [({"a": f32(3, 4)}, {})], "ReduceProd": [({"a": I([2, 3, 4])}, {"keepdims": 0})],
    "ReduceSum": [({"a": f32(3, 4), "b": I([-2])}, {}), ({"a": I([[1, 2], [3, 4]])}, {"keepdims": 0})],
    "Relu": [({"a": f32(4)}, {})], "Reshape": [({"a": f32(2, 3, 4), "b": I([0, -1])}, {}), ({"a": f32(6), "b": I([2, 3])}, {})],
    "Shape": [({"a": f32(2, 3, 4)}, {}), ({"a": f32(2, 3, 4)}, {"start": -2, "end": 10})],
    "Sin": [({"a": f32(4)}, {})], "Size": [({"a": f32(2, 3)}, {})],
    "Slice": [({"a": f32(6, 5), "b": I([1, -1]), "c": I([5, -100]), "d": I([0, 1]), "e": I([2, -2])}, {}),
              ({"a": I([1, 2, 3, 4]), "b": I([-3]), "c": I([2**62])}, {}),
              ({"a": I([1, 2, 3, 4]), "b": I([10]), "c": I([-10]), "d": I([0]), "e": I([-1])}, {}),
              ({"a": I([1, 2, 3, 4]), "b": I([3]), "c": I([1])}, {})],
    "Sqrt": [({"a": np.abs(f32(4))}, {})], "Squeeze": [({"a": f32(1, 3, 1), "b": I([-1])}, {}), ({"a": f32(1, 3, 1)}, {})],
    "Sub": [({"a": f32(4), "b": f32(4)}, {})], "Tile": [({"a": f32(2, 3), "b": I([2, 3])}, {})],
    "Transpose": [({"a": f32(2, 3, 4)}, {"perm": [2, 0, 1]}), ({"a": f32(2, 3, 4)}, {})],
    "Unsqueeze": [({"a": f32(3, 2), "b": I([0, -1])}, {})],
    "Where": [({"a": I([[True], [False]]), "b": f32(3), "c": f32(2, 1)}, {})],
}


def test_every_fold_has_a_case():
    rows = re.findall(r"^OQ_EVAL\((\w+)\)", (modeltool.ROOT / "src/prepare/evaluate/evaluate.def").read_text(), re.M)
    assert rows == sorted(rows) and rows == sorted(FOLDS)


@pytest.mark.parametrize("op, i", [(op, i) for op, cases in FOLDS.items() for i in range(len(cases))])
def test_fold(op, i, tmp_path):
    inits, attributes = FOLDS[op][i]
    model = make([(op, " ".join(inits), "r", attributes), ("Identity", "x", "z")], {"x": (f32(1), None)}, {"z": 1}, inits)
    session = onnxruntime.InferenceSession(make_output(model).SerializeToString(), providers=["CPUExecutionProvider"])
    wanted = session.run(["r"], {"x": f32(1)})[0]
    g = model.graph
    # The folded tensor must stay visible: something that is not folded uses it.
    g.node.append(helper.make_node("Keep", ["r"], ["y"], domain="test.keeps"))
    g.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, None))
    model.opset_import.append(helper.make_opsetid("test.keeps", 1))
    onnx.save(model, tmp_path / "a.onnx")
    optimize(tmp_path / "a.onnx", tmp_path / "b.onnx")
    m = onnx.load(tmp_path / "b.onnx")
    got = {t.name: numpy_helper.to_array(t) for t in m.graph.initializer}
    assert "r" in got, [n.op_type for n in m.graph.node]
    assert got["r"].dtype == wanted.dtype and got["r"].shape == wanted.shape
    if np.issubdtype(wanted.dtype, np.floating):
        np.testing.assert_allclose(got["r"].astype(np.float64), wanted.astype(np.float64), rtol=3e-7, atol=1e-9)
    else:
        np.testing.assert_array_equal(got["r"], wanted)


def make_output(model):
    m = onnx.ModelProto()
    m.CopyFrom(model)
    inferred = onnx.shape_inference.infer_shapes(m)
    r = next((v for v in inferred.graph.value_info if v.name == "r"), None)
    m.graph.output.append(helper.make_tensor_value_info("r", r.type.tensor_type.elem_type, None))
    return m
