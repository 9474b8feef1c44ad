"""test_legacy.py - `onq legacy`: the four modes on Conv and MatMul, run in ONNX Runtime against float.

There is no reference to compare with; the seed's text says which operators come out, and how far the numbers may be from
float follows from the scales: each input and each weight is off by at most half a step, so a sum of k products is off by at most
sum(|x|) dw + sum(|w|) dx + k dx dw, and a QLinear output by half a step of its own (and clips outside its range).
"""
import itertools
import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import common
MODES = ["IntegerOps_Static", "IntegerOps_Dynamic", "QLinearOps_Static", "QLinearOps_Dynamic"]
TYPES = {("Conv", "Integer"): "ConvInteger", ("MatMul", "Integer"): "MatMulInteger",
         ("Conv", "QLinear"): "QLinearConv", ("MatMul", "QLinear"): "QLinearMatMul"}


def conv(dims, group, bias):
    rng = np.random.default_rng(len(dims) * 7 + group)
    c = 4
    w = (rng.normal(size=(8, c // group) + (3,) * len(dims)) * np.linspace(0.2, 3, 8).reshape((8,) + (1,) * (len(dims) + 1)))
    inits = [numpy_helper.from_array(w.astype(np.float32), "w")]
    names = ["x", "w"]
    if bias:
        inits.append(numpy_helper.from_array(rng.normal(size=8).astype(np.float32), "b"))
        names.append("b")
    node = helper.make_node("Conv", names, ["y"], "node", group=group, pads=[1] * (2 * len(dims)))
    x = rng.normal(size=(2, c) + dims).astype(np.float32)
    return node, inits, x, w.astype(np.float32)


def matmul(batch):
    rng = np.random.default_rng(5)
    w = rng.normal(size=(6, 5)).astype(np.float32)
    x = (rng.normal(size=batch + (4, 6)) + 0.5).astype(np.float32)
    return helper.make_node("MatMul", ["x", "w"], ["y"], "node"), [numpy_helper.from_array(w, "w")], x, w


CASES = {"conv1d": lambda: conv((9,), 1, False), "conv2d": lambda: conv((6, 6), 1, False),
         "conv2d_bias": lambda: conv((6, 6), 1, True), "conv_grouped": lambda: conv((6, 6), 2, True),
         "matmul": lambda: matmul(()), "matmul_batched": lambda: matmul((3,))}


def build(case, opset):
    node, inits, x, w = CASES[case]()
    g = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * x.ndim)], inits)
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)], ir_version=6), x, w


def run(model, feeds):
    data = model if isinstance(model, str) else model.SerializeToString()
    return onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)[0]


def params(v):
    lo, hi = min(float(v.min()), 0.0), max(float(v.max()), 0.0)
    scale = (hi - lo) / 255
    return [int(round(-lo / scale)), scale]


def onq(*words):
    return common.onq("legacy", "--no_verify", *words)


def bound(model, x, w, dx, dw):
    """The largest error of a sum, element by element: by running |x| and |w| through the float model."""
    def with_weight(array):
        m = onnx.ModelProto()
        m.CopyFrom(model)
        for t in m.graph.initializer:
            if t.name == "w":
                t.CopyFrom(numpy_helper.from_array(array.astype(np.float32), "w"))
            elif t.name == "b":
                t.CopyFrom(numpy_helper.from_array(np.zeros_like(numpy_helper.to_array(t)), "b"))
        return m
    ones = np.ones_like(w)
    per_weight = run(with_weight(ones * dw), {"x": np.abs(x)})
    per_input = run(with_weight(np.abs(w)), {"x": np.full_like(x, dx)})
    both = run(with_weight(ones * dw), {"x": np.full_like(x, dx)})
    return per_weight + per_input + both


@pytest.mark.parametrize("mode, per_channel, asymmetric, opset",
                         list(itertools.product(MODES, [True, False], [False, True], [10, 11, 13])))
def test_modes(tmp_path, mode, per_channel, asymmetric, opset):
    for case in CASES:
        model, x, w = build(case, opset)
        want = run(model, {"x": x})
        path, got = tmp_path / f"{case}.onnx", tmp_path / f"{case}.q.onnx"
        onnx.save(model, path)
        (tmp_path / "in.json").write_text(json.dumps({"x": params(x)}))
        (tmp_path / "out.json").write_text(json.dumps({"y": params(want)}))
        words = ["-i", path, "-o", got, "--quantization_mode", mode, f"--per_channel={per_channel}"]
        words += ["--asymmetric_input_types"] if asymmetric else []
        if "Static" in mode:
            words += ["--input_quantization_params", tmp_path / "in.json"]
        if "QLinear" in mode:
            words += ["--output_quantization_params", tmp_path / "out.json"]
        done = onq(*words)
        assert done.returncode == 0, done.stderr
        m = onnx.load(got)
        onnx.checker.check_model(m)
        ops = [n.op_type for n in m.graph.node]
        kind = "QLinear" if "QLinear" in mode else "Integer"
        op = "Conv" if "conv" in case else "MatMul"
        assert TYPES[op, kind] in ops and op not in ops
        dynamic = "Dynamic" in mode
        assert ("DynamicQuantizeLinear" in ops) == (dynamic and opset >= 11)
        assert ("ReduceMin" in ops) == (dynamic and opset == 10)
        q = next(t for t in m.graph.initializer if t.name == "w_quantized")
        assert q.data_type == (TensorProto.INT8 if asymmetric else TensorProto.UINT8)
        scale = numpy_helper.to_array(next(t for t in m.graph.initializer if t.name == "w_scale"))
        assert scale.size == (w.shape[0] if per_channel and op == "Conv" else 1)
        have = run(str(got), {"x": x})
        dx = params(x)[1] / 2 * 1.01
        dw = (scale.reshape((-1,) + (1,) * (w.ndim - 1)) if scale.size > 1 else float(scale.ravel()[0])) / 2 * 1.01
        allowed = bound(model, x, w, dx, dw)
        if kind == "QLinear":
            allowed = allowed + params(want)[1] * 0.51
            if case in ("conv2d_bias", "conv_grouped"):
                allowed = allowed + params(x)[1] * float(scale.max())
        assert (np.abs(have - want) <= allowed + 1e-5).all(), (case, np.abs(have - want).max(), allowed.min())


def simple(tmp_path, opset=11):
    model, x, _ = build("matmul", opset)
    path = tmp_path / "m.onnx"
    onnx.save(model, path)
    return path, x


@pytest.mark.parametrize("text, says", [
    ('{"other": [0, 1.0]}', "tensor 'x', which node 'node' (MatMul) needs"), ('{"x": [0, 0]}', "positive"),
    ('{"x": [0, -1.0]}', "positive"), ('{"x": [300, 1.0]}', "outside"), ('{"x": [0.5, 1.0]}', "not an integer"),
    ('{"x": [0]}', "must be [zero_point, scale]"), ('{"x": [0, "a"]}', "not a number"), ("[1]", "object"), ('{"x": [0, 1e400]}', ""),
])
def test_bad_parameters(tmp_path, text, says):
    path, _ = simple(tmp_path)
    (tmp_path / "p.json").write_text(text)
    done = onq("-i", path, "-o", tmp_path / "q.onnx", "--quantization_mode", "IntegerOps_Static",
               "--input_quantization_params", tmp_path / "p.json")
    assert done.returncode == 1 and says in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert not (tmp_path / "q.onnx").exists()


def test_refusals(tmp_path):
    path, _ = simple(tmp_path)
    done = onq("-i", path, "-o", tmp_path / "q.onnx", "--nbits", 7)
    assert done.returncode == 2 and "8 bits only" in done.stderr
    done = onq("-i", path, "-o", tmp_path / "q.onnx", "--quantization_mode", "QLinearOps_Dynamic")
    assert done.returncode == 2 and "output_quantization_params" in done.stderr


def test_old_opset(tmp_path):
    path, x = simple(tmp_path, 9)
    done = onq("-i", path, "-o", tmp_path / "q.onnx")
    assert done.returncode == 1 and "--opset" in done.stderr
    done = onq("-i", path, "-o", tmp_path / "q.onnx", "--opset", 11)
    assert done.returncode == 0, done.stderr
    assert run(str(tmp_path / "q.onnx"), {"x": x}).shape == (4, 5)
