"""`nbits --rotate` with the runtime: a small decoder in three forms computes what it did, and other models are refused.

The forms are norms that are written out, SimplifiedLayerNormalization with SkipSimplifiedLayerNormalization, and a table
that is the last layer too. tests/unit/prepare/test_rotate.c has the rules one by one.
"""
import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto as T, helper as h, numpy_helper as nh

from common import onq, refused
from running import sqnr

D, F, V = 48, 64, 40


def decoder(path, skip, tied, after=False, positions=False):
    """after: a norm with a gain between a layer and the sum, as in Gemma; positions: rows of a second table are added."""
    rng = np.random.default_rng(5)
    inits, nodes = [], []

    def const(name, *shape):
        a = rng.standard_normal(shape).astype(np.float32)
        if len(shape) == 1:
            a = np.exp(a)  # a gain
        if len(shape) == 2:  # the hidden channel 3 is an outlier
            a[(3,) if shape[0] == D else (slice(None), 3)] *= 8
        inits.append(nh.from_array(a, name))
        return name

    def node(op, name, ins, outs=None, domain="", **attr):
        nodes.append(h.make_node(op, ins, outs or [name + "_y"], name=name, domain=domain, **attr))
        return (outs or [name + "_y"])[0]

    for name, v in (("two", 2), ("eps", 1e-5), ("one", 1)):
        inits.append(nh.from_array(np.float32(v), name))
    x, pending = node("Gather", "embed", [const("table", V, D), "ids"]), None
    if positions:
        x = node("Add", "placed", [x, node("Gather", "place", [const("places", V - 1, D), "zero"])])
        inits.append(nh.from_array(np.array([0]), "zero"))

    def norm(name, x, pending):
        g = const(name + "_gain", D)
        if skip and pending is None:
            return node("SimplifiedLayerNormalization", name, [x, g], axis=-1, epsilon=1e-5, stash_type=1), x
        if skip:
            outs = [name + "_y", "", "", name + "_x"]
            node("SkipSimplifiedLayerNormalization", name, [x, pending, g], outs, "com.microsoft", epsilon=1e-5)
            return outs[0], outs[3]
        x = x if pending is None else node("Add", name + "_add", [x, pending])
        v = node("ReduceMean", name + "_mean", [node("Pow", name + "_pow", [x, "two"])], axes=[-1], keepdims=1)
        v = node("Div", name + "_div", ["one", node("Sqrt", name + "_sqrt", [node("Add", name + "_eps", [v, "eps"])])])
        return node("Mul", name + "_mul", [g, node("Mul", name + "_unit", [x, v])]), x

    for i in range(2):
        y, x = norm(f"norm{i}", x, pending)
        u = node("Relu", f"act{i}", [node("MatMul", f"up{i}", [y, const(f"up{i}_w", D, F)])])
        pending = node("MatMul", f"down{i}", [u, const(f"down{i}_w", F, D)])
        pending = norm(f"after{i}", pending, None)[0] if after else pending
    y, _ = norm("last", x, pending)
    w = node("Transpose", "turn", ["table"], perm=[1, 0]) if tied else const("head_w", D, V)
    node("MatMul", "head", [y, w], ["logits"])
    g = h.make_graph(nodes, "g", [h.make_tensor_value_info("ids", T.INT64, ["n"])],
                     [h.make_tensor_value_info("logits", T.FLOAT, ["n", V])], inits)
    onnx.save(h.make_model(g, opset_imports=[h.make_opsetid("", 17), h.make_opsetid("com.microsoft", 1)], ir_version=8),
              path)


def logits(path):
    s = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    return s.run(None, {"ids": np.arange(V, dtype=np.int64)})[0]


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("tied", [False, True])
def test_same_function(tmp_path, skip, tied):
    m, r = str(tmp_path / "m.onnx"), str(tmp_path / "r.onnx")
    decoder(m, skip, tied)
    onq("nbits", "-i", m, "-o", r, "--rotate", "--nodes_to_exclude", "re:.*", status=0)
    was, now = onnx.load(m), onnx.load(r)
    assert sqnr(logits(m), logits(r)) > 110
    a, b = ({i.name: nh.to_array(i) for i in x.graph.initializer} for x in (was, now))
    assert not np.allclose(a["up0_w"], b["up0_w"]) and not np.allclose(a["table"], b["table"])
    assert np.abs(b["down0_w"]).max() < 0.7 * np.abs(a["down0_w"]).max()  # the outlier is spread


def test_less_is_lost(tmp_path):
    m = str(tmp_path / "m.onnx")
    decoder(m, False, False)
    lost = {}
    for name, more in (("plain", []), ("rotated", ["--rotate"])):
        q = str(tmp_path / f"{name}.onnx")
        onq("nbits", "-i", m, "-o", q, "--block_size", "16", *more, status=0)
        lost[name] = sqnr(logits(m), logits(q))
    assert lost["rotated"] > lost["plain"], lost


@pytest.mark.parametrize("case, why", [
    ({"after": True}, "node 'after0_mul' (Mul) makes them with a gain, which cannot go into a weight"),
    ({"after": True, "skip": True}, "node 'after0' (SimplifiedLayerNormalization) makes them"),
    ({"positions": True}, "node 'place' (Gather) adds rows of another table to them"),
])
def test_what_is_added_must_turn_too(tmp_path, case, why):
    """Sums of hidden states with what cannot be turned: the function would be another one."""
    m, out = str(tmp_path / "m.onnx"), tmp_path / "r.onnx"
    decoder(m, **{"skip": False, "tied": False, **case})
    refused(onq("nbits", "-i", m, "-o", out, "--rotate", status=1), why)
    assert not out.exists()


def test_refused(tmp_path):
    m = str(tmp_path / "m.onnx")
    decoder(m, False, False)
    model = onnx.load(m)
    model.graph.node.append(h.make_node("Relu", ["embed_y"], ["more"], name="more"))
    model.graph.output.append(h.make_tensor_value_info("more", T.FLOAT, ["n", D]))
    onnx.save(model, m)
    out = str(tmp_path / "r.onnx")
    refused(onq("nbits", "-i", m, "-o", out, "--rotate", status=1), "node 'more' (Relu) reads them")
    assert "--weights" in onq("nbits", "-i", m, "-o", out, "--rotate", "--weights", m, status=2).stderr
    assert not (tmp_path / "r.onnx").exists()
