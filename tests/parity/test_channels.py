"""Ranges for channels (`static --channel_ranges`, `--equalize`): the float model computes what it did, results gain, and no
pair has a scale for each channel of an activation."""
import collections
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from common import onq
from test_methods import f32, measure, static

rng = np.random.default_rng(8)
F = np.float32
C = 16
SPREAD = np.exp(2 * rng.standard_normal(C)).astype(F)  # how much the channels differ


def model(path, nodes, inits, shape=("n", C, "h", "w"), opset=13):
    g = helper.make_graph(
        [helper.make_node(n[0], n[1].split(), n[2].split(), name=n[2].split()[0] + "_node", **(n[3] if len(n) > 3 else {}))
         for n in nodes], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in inits.items()])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)


S = {"three": F(3), "zero": F(0), "six": F(6)}
SWISH = [("HardSigmoid", "c", "h", {"alpha": 1 / 6, "beta": 0.5}), ("Mul", "c h", "y")]
IN = {"w": f32(C, C, 3, 3) / SPREAD.reshape(1, C, 1, 1), "b": f32(C)}
OUT = {"w": f32(C, C, 3, 3) * SPREAD.reshape(C, 1, 1, 1), "b": f32(C) * SPREAD}
DW = {"w": f32(C, 1, 3, 3), "b": f32(C)}
WIDE = SPREAD.reshape(C, 1, 1)
CASES = {
    # nodes, constants, what to ask for, dB gained at least, folded
    "in_mul": ([("Mul", "x k", "m"), ("Conv", "m w b", "y")], {**IN, "k": WIDE}, "in", 3, True),
    "in_mul_add": ([("Mul", "x k", "m"), ("Add", "m d", "a"), ("Conv", "a w b", "y")], {**IN, "k": WIDE, "d": F([0.5])}, "in", 3,
                   True),
    "in_through_relu": ([("Mul", "x k", "m"), ("Relu", "m", "r"), ("Conv", "r w b", "y")], {**IN, "k": WIDE}, "in", 3, True),
    "in_two_readers": ([("Mul", "x k", "m"), ("Conv", "m w b", "c"), ("Conv", "m w b", "d"), ("Add", "c d", "y")],
                       {**IN, "k": WIDE}, "in", 3, True),
    "in_not_foldable": ([("Mul", "x k", "m"), ("Sigmoid", "m", "s"), ("Mul", "m s", "u"), ("Conv", "u w b", "y")],
                        {**IN, "k": WIDE}, "in", 3, False),
    "in_depthwise": ([("Mul", "x k", "m"), ("Conv", "m w b", "y", {"group": C})], {**DW, "k": WIDE}, "in", 0, True),
    "out": ([("Conv", "x w b", "c"), ("Mul", "c k", "y")], {**OUT, "k": 1 / WIDE}, "out", 6, None),
    "out_relu": ([("Conv", "x w b", "c"), ("Relu", "c", "r"), ("Mul", "r k", "y")], {**OUT, "k": 1 / WIDE}, "out", 6, None),
    "out_swish": ([("Conv", "x w b", "c"), *SWISH], OUT, "out", -3, None),
    "out_clip": ([("Conv", "x w b", "c"), ("Clip", "c zero six", "r"), ("Mul", "r k", "y")], {**OUT, **S, "k": 1 / WIDE}, "out", -3,
                 None),
    "out_depthwise": ([("Conv", "x w b", "c", {"group": C}), ("Mul", "c k", "y")],
                      {"w": DW["w"] * SPREAD.reshape(C, 1, 1, 1), "b": DW["b"], "k": 1 / WIDE}, "out", 6, None),
    "both": ([("Mul", "x k", "m"), ("Conv", "m w b", "c"), ("Mul", "c j", "y")],
             {"w": IN["w"] * SPREAD.reshape(C, 1, 1, 1), "b": OUT["b"], "k": WIDE, "j": 1 / WIDE}, "both", 6, True),
}


@pytest.fixture
def data(tmp_path):
    np.savez(tmp_path / "d.npz", x=rng.standard_normal((6, 1, C, 9, 9)).astype(F))
    return tmp_path, np.load(tmp_path / "d.npz")["x"]


def check_pairs(path):
    """Scales of activations are single numbers."""
    m = onnx.load(path)
    sizes = {t.name: int(np.prod(t.dims)) if t.dims else 1 for t in m.graph.initializer}
    assert all(sizes[n.input[1]] == 1 for n in m.graph.node if n.op_type == "QuantizeLinear")


@pytest.mark.parametrize("name", CASES)
def test_case(name, data):
    folder, x = data
    nodes, inits, where, gain, folded = CASES[name]
    model(folder / "m.onnx", nodes, inits)
    static(folder, "plain.onnx", "--op_set", "noout")
    r = static(folder, "q.onnx", "--op_set", "noout", "--channel_ranges", where, "-v")
    plain, before = measure(folder, "plain.onnx", x)
    db, ops = measure(folder, "q.onnx", x)
    assert db > plain + gain, (plain, db)
    assert ops["QLinearConv"] == before["QLinearConv"] > 0
    check_pairs(folder / "q.onnx")
    if folded is not None:
        assert ("(0 folded)" not in r.stderr) == folded, r.stderr
    # Whatever the number of threads.
    static(folder, "q1.onnx", "--op_set", "noout", "--channel_ranges", where, "--threads", "1")
    assert (folder / "q.onnx").read_bytes() == (folder / "q1.onnx").read_bytes()


def test_float_model_is_the_same(data):
    """All nodes float again by a method: what is left is the float model with scales, which is exact."""
    folder, x = data
    nodes, inits, _, _, _ = CASES["both"]
    model(folder / "m.onnx", nodes, inits)
    # 16-bit types leave next to nothing of quantization noise: scales that are wrong would show.
    static(folder, "q.onnx", "--op_set", "noout", "--channel_ranges", "both", "--activation_type", "quint16", "--weight_type",
           "qint16", "--extra", "WeightSymmetric=true")
    assert measure(folder, "q.onnx", x)[0] > 50


def test_judged_by_the_model_as_it_came(data):
    """The figure that is reported is the one against the input, not against the changed float model."""
    folder, x = data
    nodes, inits, _, _, _ = CASES["both"]
    model(folder / "m.onnx", nodes, inits)
    r = static(folder, "q.onnx", "--op_set", "noout", "--channel_ranges", "both", "--rewrite", "all", "--check", "6", "--json")
    assert abs(json.loads(r.stdout)["verify"]["sqnr"] - measure(folder, "q.onnx", x)[0]) < 0.1


def test_node_methods(data):
    folder, x = data
    model(folder / "m.onnx", [("Mul", "x k", "m"), ("Conv", "m w b", "c"), ("Conv", "c v", "d"), ("Mul", "d j", "y")],
          {**IN, "k": WIDE, "v": OUT["w"], "j": 1 / WIDE})
    (folder / "methods.json").write_text(json.dumps({"c_node": "in", "d_node": "out"}))
    r = static(folder, "q.onnx", "--op_set", "noout", "--node_methods", folder / "methods.json", "-v")
    assert "1 products with scales for those of the input (1 folded), 1 of the output" in r.stderr
    static(folder, "plain.onnx", "--op_set", "noout")
    assert measure(folder, "q.onnx", x)[0] > measure(folder, "plain.onnx", x)[0] + 3


def test_equalize(tmp_path):
    """MatMul too; a LayerNormalization takes the factors."""
    k = 32
    x = rng.standard_normal((6, 1, 7, k)).astype(F)
    wide = np.exp(2 * rng.standard_normal(k)).astype(F)
    model(tmp_path / "m.onnx", [("LayerNormalization", "x g h", "l"), ("MatMul", "l w", "y")],
          {"g": wide, "h": f32(k), "w": f32(k, k) / wide[:, None]}, ("n", "t", k), 17)
    np.savez(tmp_path / "d.npz", x=x)
    static(tmp_path, "plain.onnx", "--op_set", "noout")
    r = static(tmp_path, "q.onnx", "--op_set", "noout", "--equalize", "-v")
    assert "1 products with scales for those of the input (1 folded)" in r.stderr
    plain, _ = measure(tmp_path, "plain.onnx", x)
    db, ops = measure(tmp_path, "q.onnx", x)
    assert db > plain + 6 and ops["MatMulIntegerToFloat"] == 1 and ops["Mul"] == 0


def test_nothing_to_gain(data):
    """Channels that are alike get no scales."""
    folder, _ = data
    model(folder / "m.onnx", [("Conv", "x w", "y")], {"w": f32(C, C, 3, 3)})
    r = static(folder, "q.onnx", "--op_set", "noout", "--equalize", "-v")
    assert "0 products with scales" in r.stderr
    assert collections.Counter(n.op_type for n in onnx.load(folder / "q.onnx").graph.node)["Mul"] == 0


def test_a_channel_that_is_dead_in_the_samples(data):
    """It keeps a range: values that come later are not cut to nothing."""
    folder, x = data
    x[:, :, 3] = 0
    np.savez(folder / "d.npz", x=x)
    model(folder / "m.onnx", [("Mul", "x k", "m"), ("Conv", "m w", "y")], {"w": IN["w"], "k": WIDE})
    static(folder, "q.onnx", "--op_set", "noout", "--channel_ranges", "both")
    assert np.isfinite(measure(folder, "q.onnx", x)[0])
    x[:, :, 3] = 0.03
    assert measure(folder, "q.onnx", x)[0] > 15


def test_words(data):
    folder, _ = data
    model(folder / "m.onnx", [("Conv", "x w", "y")], {"w": f32(C, C, 3, 3)})
    assert "--op_set linear" in static(folder, "q.onnx", "--channel_ranges", "both").stderr
    r = static(folder, "q.onnx", "--equalize", "--smooth_quant", status=2)
    assert "--equalize and --smooth_quant cannot be used together" in r.stderr
    r = onq("static", "-i", folder / "m.onnx", "-o", folder / "q.onnx", "--channel_ranges", "sideways", status=2)
    assert "none" in r.stderr
