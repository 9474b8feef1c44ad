"""test_saturation.py - --saturation_safe: products as x86 CPUs without VNNI compute them (vpmaddubsw: two products of
an unsigned and a signed byte, added and clipped to 16 bits) are the exact ones."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import calibtool
import quantcase


def build(path):
    """A Conv, a Gemm and a MatMul with weights that are normal: 7 of 8 bits are what a few pairs need."""
    rng = np.random.default_rng(10)
    w = {"wc": rng.normal(size=(8, 6, 3, 3)), "wg": rng.normal(size=(16, 8)), "wm": rng.normal(size=(16, 10))}
    inits = [numpy_helper.from_array((v / np.sqrt(v[0].size)).astype(np.float32), k) for k, v in w.items()]
    nodes = [helper.make_node("Conv", ["x", "wc"], ["a"], name="conv", pads=[1] * 4),
             helper.make_node("Relu", ["a"], ["r"], name="relu"),
             helper.make_node("ReduceMean", ["r"], ["p"], name="pool", axes=[2, 3], keepdims=0),
             helper.make_node("Gemm", ["p", "wg"], ["g"], name="gemm", transB=1),
             helper.make_node("MatMul", ["g", "wm"], ["y"], name="matmul")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 6, 8, 8])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    calibtool.write_samples(path.parent / "data",
                            [{"x": rng.normal(size=(1, 6, 8, 8)).astype(np.float32)} for _ in range(4)])
    return path


def rows(path):
    """The weights of every product as [sums, depth], in the order in which the runtime adds."""
    t = {i.name: numpy_helper.to_array(i) for i in onnx.load(path).graph.initializer}
    conv = t["wc_quantized"]
    return {"conv": conv.transpose(0, 2, 3, 1).reshape(len(conv), -1), "gemm": t["wg_quantized"],
            "matmul": t["wm_quantized"].T}


def vpmaddubsw(a, b):
    """Pairs of products of unsigned and signed bytes, added and clipped."""
    a, b = a.astype(np.int64), b.astype(np.int64)
    if b.shape[-1] % 2:
        a, b = (np.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, 1)]) for v in (a, b))
    p = a * b
    return np.clip(p[..., 0::2] + p[..., 1::2], -32768, 32767).sum(-1)


def is_exact(path):
    """With random inputs, and with those that are worst for each weight."""
    rng = np.random.default_rng(1)
    for w in rows(path).values():
        for a in (rng.integers(0, 256, (200, 1, w.shape[1])), 255 * (w > 0)[None], 255 * (w < 0)[None]):
            if not np.array_equal(vpmaddubsw(a, w), (a.astype(np.int64) * w).sum(-1)):
                return False
    return True


def static(path, *words, name="q.onnx"):
    out = path.parent / name
    r = quantcase.onq("static", "-i", path, "-o", out, "--data", path.parent / "data", *words)
    return r, out


@pytest.mark.parametrize("channels", [[], ["--per_channel"]], ids=str)
@pytest.mark.parametrize("activation", ["quint8", "qint8"])
def test_products_are_exact(activation, channels, tmp_path):
    path = build(tmp_path / "m.onnx")
    words = ["--activation_type", activation, *channels]
    _, plain = static(path, *words, name="plain.onnx")
    assert not is_exact(plain)
    _, seven = static(path, *words, "--reduce_range", name="seven.onnx")
    assert is_exact(seven)
    r, safe = static(path, *words, "--saturation_safe", "--plan", tmp_path / "p.json")
    assert r.returncode == 0, r.stderr
    assert is_exact(safe)
    assert "two products would pass 16 bits" in (tmp_path / "p.json").read_text()
    # More than seven bits are left.
    assert max(np.abs(w.astype(int)).max() for w in rows(safe).values()) > 64
    r = quantcase.onq("static", "-i", path, "-o", tmp_path / "again.onnx", "--from_plan", tmp_path / "p.json")
    assert r.returncode == 0 and (tmp_path / "again.onnx").read_bytes() == safe.read_bytes()


def test_what_it_is_for(tmp_path):
    path = build(tmp_path / "m.onnx")
    r, _ = static(path, "--saturation_safe", "--quant_format", "qoperator")
    assert r.returncode == 2 and "--saturation_safe is for --quant_format qdq" in r.stderr
    r, _ = static(path, "--saturation_safe", "--weight_symmetric", "false")
    assert r.returncode == 2 and "needs symmetric weights" in r.stderr
    r, _ = static(path, "--saturation_safe", "--weight_type", "quint8")
    assert r.returncode == 0 and "has no effect on QUInt8 weights" in r.stderr
    _, a = static(path, "--weight_type", "quint8", name="a.onnx")
    _, b = static(path, "--weight_type", "quint8", "--saturation_safe", name="b.onnx")
    assert a.read_bytes() == b.read_bytes()
