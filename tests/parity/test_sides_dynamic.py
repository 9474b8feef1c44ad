"""test_sides_dynamic.py - what docs/DIFFERENCES.md says of dynamic quantization, both sides in numbers."""
import numpy as np
import onnx
import pytest
from onnx import helper

import compare
import quantcase
import sides
from sides import array, feeds, info, model

node = helper.make_node
IMAGE, MAPS = (1, 3, 8, 8), (1, 4, 6, 6)
MICROSOFT = "com.microsoft"


def op_types(path):
    return [n.op_type for n in onnx.load(path).graph.node]


@pytest.mark.difference("Gemm in dynamic quantization")
def test_gemm_excluded(tmp_path, rng):
    m = model([node("Gemm", ["x", "w", "b"], ["y"], "gemm")],
              [array("w", rng.normal(size=(8, 6))), array("b", rng.normal(size=6))], (4, 8), (4, 6))
    both = sides.dynamic(tmp_path, m, feeds(rng, (4, 8)), nodes_to_exclude=["gemm"]).expect((35, 60), np.inf)
    assert "MatMulInteger" in op_types(both.reference.path) and op_types(both.onq.path) == ["Gemm"]


@pytest.mark.difference("Gemm in dynamic quantization")
def test_gemm_shared(tmp_path, rng):
    m = model([node("Gemm", ["x", "w"], ["t"], "first", transB=1), node("Gemm", ["t", "w"], ["y"], "second", transB=1)],
              [array("w", rng.normal(size=(8, 8)))], (4, 8), (4, 8))
    both = sides.dynamic(tmp_path, m, feeds(rng, (4, 8))).expect(5, 36)
    assert [i.name for i in onnx.load(both.onq.path).graph.initializer if len(i.dims) == 2] == ["w_Transposed_quantized"]


@pytest.mark.difference("Gemm with a transB other than 0 and 1")
@pytest.mark.parametrize("number", [2, -1])
def test_trans_b(tmp_path, rng, number):
    m = model([node("Gemm", ["x", "w", "b"], ["y"], "gemm", transB=number)],
              [array("w", rng.normal(size=(8, 8))), array("b", rng.normal(size=8))], (4, 8), (4, 8))
    sides.dynamic(tmp_path, m, feeds(rng, (4, 8))).expect(5, 36)
    if number < 0:
        sides.static(tmp_path, m, feeds(rng, (4, 8)), format="qoperator", per_channel=True).expect(30, 30)


@pytest.mark.difference("Weights of Conv in Constant nodes, dynamic")
def test_conv_constant(tmp_path, rng):
    constant = node("Constant", [], ["w"], "k", value=array("", rng.normal(size=(4, 3, 3, 3))))
    m = model([constant, node("Conv", ["x", "w", "b"], ["y"], "conv")], [array("b", rng.normal(size=4))], IMAGE, MAPS)
    sides.dynamic(tmp_path, m, feeds(rng, IMAGE)).expect("raises: Expected w to be an initializer", 36)
    m = model([constant, node("Conv", ["x", "w"], ["y"], "conv")], [], IMAGE, MAPS)
    both = sides.dynamic(tmp_path, m, feeds(rng, IMAGE)).expect((36, 99), 36)
    assert compare.differences(both.reference.path, both.onq.path) == []


@pytest.mark.difference("Weights of Conv in Constant nodes, dynamic")
def test_conv_outer_weight(tmp_path, rng):
    """A Conv with a bias in a branch, its weight in the graph around."""
    def branch(k):
        return helper.make_graph([node("Conv", ["x", "w", "b"], [f"o{k}"], f"conv{k}")], f"branch{k}", [], [info(f"o{k}", MAPS)])

    m = model([node("ReduceSum", ["x"], ["s"], "sum", keepdims=0), node("Greater", ["s", "zero"], ["cond"], "greater"),
               node("If", ["cond"], ["y"], "if", then_branch=branch(0), else_branch=branch(1))],
              [array("w", rng.normal(size=(4, 3, 3, 3))), array("b", rng.normal(size=4)), array("zero", 0)], IMAGE, MAPS)
    sides.dynamic(tmp_path, m, feeds(rng, IMAGE), extra={"EnableSubgraph": True}).expect(
        "raises: Expected w to be an initializer", 36)


@pytest.mark.difference("Biases with an empty name, dynamic")
@pytest.mark.parametrize("op, weight, x, y", [("Conv", (4, 3, 3, 3), IMAGE, MAPS), ("Gemm", (8, 6), (4, 8), (4, 6))])
def test_no_bias(tmp_path, rng, op, weight, x, y):
    m = model([node(op, ["x", "w", ""], ["y"], "node")], [array("w", rng.normal(size=weight))], x, y)
    sides.dynamic(tmp_path, m, feeds(rng, x), op_types=[op, "MatMul"]).expect("does not load", 36)


@pytest.mark.difference("Types that onnx does not find, dynamic")
@pytest.mark.parametrize("op", ["MatMul", "Gemm"])
def test_unknown_types(tmp_path, rng, op):
    m = model([node("Gelu", ["x"], ["g"], "gelu", domain=MICROSOFT), node(op, ["g", "w"], ["t"], "first"),
               node("Relu", ["t"], ["r"], "relu"), node(op, ["r", "v"], ["y"], "second")],
              [array("w", rng.normal(size=(8, 6))), array("v", rng.normal(size=(6, 6)))], (4, 8), (4, 6), domains=[MICROSOFT])
    samples = feeds(rng, (4, 8))
    sides.dynamic(tmp_path, m, samples).expect("raises: Unable to find data type", 36)
    both = sides.dynamic(tmp_path, m, samples, extra={"DefaultTensorType": 1}).expect((36, 99), 36)
    assert compare.differences(both.reference.path, both.onq.path) == []


@pytest.mark.difference("GRU and RNN, dynamic")
@pytest.mark.parametrize("op, gates", [("GRU", 3), ("RNN", 1)])
def test_recurrent(tmp_path, rng, op, gates):
    m = model([node(op, ["x", "w", "r"], ["y"], "node", hidden_size=5)],
              [array("w", rng.normal(size=(1, 5 * gates, 6))), array("r", rng.normal(size=(1, 5 * gates, 5)))],
              (7, 1, 6), (7, 1, 1, 5))
    both = sides.dynamic(tmp_path, m, feeds(rng, (7, 1, 6)), op_types=[op]).expect((np.inf, np.inf), 30)
    assert op_types(both.reference.path) == [op]
    assert op_types(both.onq.path) == ["DequantizeLinear", "DequantizeLinear", op]


@pytest.mark.difference("Attention with an attention bias")
def test_attention_bias(tmp_path, rng):
    m = model([node("Attention", ["x", "w", "b", "", "", "ab"], ["y"], "attention", domain=MICROSOFT, num_heads=2)],
              [array("w", rng.normal(size=(8, 24))), array("b", rng.normal(size=24)),
               array("ab", rng.normal(size=(1, 2, 4, 4)) * 3)], (1, 4, 8), (1, 4, 8), domains=[MICROSOFT])
    both = sides.dynamic(tmp_path, m, feeds(rng, (1, 4, 8)), op_types=["Attention"]).expect(15, np.inf)
    assert op_types(both.reference.path)[-1] == "QAttention" and op_types(both.onq.path) == ["Attention"]


@pytest.mark.difference("Weights without values, dynamic")
@pytest.mark.parametrize("kind", ["MatMul", "Gemm"])
def test_empty_weight(tmp_path, rng, kind):
    """What the reference's file gives is left to chance: the memory may well be zero."""
    nodes = [node("MatMul", ["x", "w"], ["t"], "product"), node("Add", ["t", "b"], ["y"], "sum")]
    if kind == "Gemm":
        nodes = [node("Gemm", ["x", "w", "b"], ["y"], "product")]
    m = model(nodes, [array("w", np.zeros((0, 6))), array("b", rng.normal(size=6))], (4, 0), (4, 6))
    both = sides.dynamic(tmp_path, m, feeds(rng, (4, 0)))
    assert "MatMulInteger" in op_types(both.reference.path)
    assert op_types(both.onq.path) == ["MatMul", "Add"] and both.onq.is_as(np.inf, lambda n: (n, np.inf)), str(both)


@pytest.mark.difference("LSTM with layout 1")
def test_layout(tmp_path, rng):
    """The runtime's LSTM takes layout 0 only, so there is nothing to compare with."""
    m = model([node("LSTM", ["x", "w", "r"], ["y"], "lstm", hidden_size=5, layout=1)],
              [array("w", rng.normal(size=(1, 20, 6))), array("r", rng.normal(size=(1, 20, 5)))], (1, 7, 6), (1, 7, 1, 5))
    with pytest.raises(Exception, match="layout"):
        sides.dynamic(tmp_path, m, feeds(rng, (1, 7, 6)), op_types=["LSTM"])
    assert op_types(tmp_path / "reference.onnx") == ["DynamicQuantizeLSTM"]
    assert op_types(tmp_path / "onq.onnx") == ["LSTM"]


@pytest.mark.difference("Weights of LSTM")
@pytest.mark.parametrize("per_channel, symmetric, reference", [(False, True, 10), (False, False, 10), (True, True, "does not run"),
                                                               (True, False, "does not run")])
def test_lstm_shared(tmp_path, rng, per_channel, symmetric, reference):
    m = model([node("LSTM", ["x", "w", "r"], ["h"], "first", hidden_size=6), node("Squeeze", ["h", "one"], ["s"], "squeeze"),
               node("LSTM", ["s", "w", "r"], ["y"], "second", hidden_size=6)],
              [array("w", rng.normal(size=(1, 24, 6))), array("r", rng.normal(size=(1, 24, 6))), array("one", [1], np.int64)],
              (7, 1, 6), (7, 1, 1, 6))
    sides.dynamic(tmp_path, m, feeds(rng, (7, 1, 6)), op_types=["LSTM"], per_channel=per_channel,
                  extra={"WeightSymmetric": symmetric}).expect(reference, 25)


@pytest.mark.difference("Weights of LSTM")
@pytest.mark.parametrize("per_channel", [False, True])
def test_lstm_weight_read_as_float(tmp_path, rng, per_channel):
    """A weight that is also an output, and one that another node reads."""
    m = model([node("LSTM", ["x", "w", "r"], ["y"], "lstm", hidden_size=5), node("Neg", ["r"], ["n"], "neg")],
              [array("w", rng.normal(size=(1, 20, 6))), array("r", rng.normal(size=(1, 20, 5)))], (7, 1, 6), (7, 1, 1, 5))
    m.graph.output.extend([info("w", (1, 20, 6)), info("n", (1, 20, 5))])
    both = sides.dynamic(tmp_path, m, feeds(rng, (7, 1, 6)), op_types=["LSTM"], per_channel=per_channel)
    assert "DynamicQuantizeLSTM" in op_types(both.onq.path)
    assert both.onq.is_as(25, lambda n: (n, np.inf)), str(both)
    assert not both.reference.is_as(25, lambda n: (n, np.inf)), str(both)


@pytest.mark.difference("Weights of LSTM")
def test_lstm_asymmetric(tmp_path, rng):
    m = model([node("LSTM", ["x", "w", "r"], ["y"], "lstm", hidden_size=5)],
              [array("w", rng.normal(size=(1, 20, 6))), array("r", rng.normal(size=(1, 20, 5)))], (7, 1, 6), (7, 1, 1, 5))
    sides.dynamic(tmp_path, m, feeds(rng, (7, 1, 6)), op_types=["LSTM"], per_channel=True,
                  extra={"WeightSymmetric": False}).expect("does not run: zero point must be", 30)


@pytest.mark.difference("Weights of LSTM")
@pytest.mark.parametrize("per_channel", [False, True])
def test_lstm_one_weight(tmp_path, rng, per_channel):
    """W and R are one tensor."""
    m = model([node("LSTM", ["x", "w", "w"], ["y"], "lstm", hidden_size=6)], [array("w", rng.normal(size=(1, 24, 6)))], (7, 1, 6), (7, 1, 1, 6))
    both = sides.dynamic(tmp_path, m, feeds(rng, (7, 1, 6)), op_types=["LSTM"], per_channel=per_channel)
    both.expect("raises" if per_channel else (25, 99), 25)
    assert per_channel or compare.differences(both.reference.path, both.onq.path) == []


@pytest.mark.difference("Shapes that contradict one another, dynamic")
def test_contradiction(tmp_path):
    path = quantcase.MODELS / "silero_vad_op18_ifless" / "model.onnx"
    if not path.exists():
        pytest.skip("no shared models")
    with pytest.raises(Exception, match="Inferred shape and existing shape differ"):
        quantcase.dynamic_reference({"extra": {"EnableSubgraph": True}}, path, tmp_path / "reference.onnx")
    done = quantcase.onq("dynamic", "-i", path, "-o", tmp_path / "onq.onnx", "--enable_subgraph")
    assert done.returncode == 0 and quantcase.loads(tmp_path / "onq.onnx") is None
    inner = [n.op_type for n in onnx.load(tmp_path / "onq.onnx").graph.node if n.op_type == "If"
             for a in n.attribute for n in a.g.node]
    assert {"ConvInteger", "DynamicQuantizeLSTM"} & set(inner)
