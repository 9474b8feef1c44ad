"""test_sides_qdq.py - what docs/DIFFERENCES.md says of static quantization in QDQ format, both sides in numbers."""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization as Q
from onnxruntime.quantization import static_quantize_runner

import calibtool
import compare
import quantcase
import sides
from sides import array, feeds, info, model

node = helper.make_node


def conv(rng, opset=17, **kw):
    return model([node("Conv", ["x", "w", "b"], ["c"], "conv"), node("Relu", ["c"], ["y"], "relu")],
                 [array("w", rng.normal(size=(4, 3, 3, 3))), array("b", rng.normal(size=4))],
                 (1, 3, 8, 8), (1, 4, 6, 6), opset, **kw)


# ---- types and opsets

@pytest.mark.difference("Weights per channel below opset 13")
@pytest.mark.parametrize("opset", [10, 11, 12])
def test_per_channel_below_13(tmp_path, rng, opset):
    m, samples = conv(rng, opset), feeds(rng, (1, 3, 8, 8))
    both = sides.static(tmp_path, m, samples, per_channel=True).expect("does not load: Unrecognized attribute: axis", 35)
    assert onnx.load(both.onq.path).opset_import[0].version == 13 and "13" in both.warnings
    both = sides.static(tmp_path, m, samples, per_channel=True, extra={"UseQDQContribOps": True})
    assert compare.differences(both.reference.path, both.onq.path) == []


@pytest.mark.difference("int8 activations with uint8 weights")
def test_int8_with_uint8(tmp_path, rng):
    m, samples = conv(rng), feeds(rng, (1, 3, 8, 8))
    case = {"activation": "qint8", "weight": "quint8"}
    sides.static(tmp_path, m, samples, **case).expect("raises: doesn't support data format", 35)
    sides.static(tmp_path, m, samples, format="qoperator", **case).expect("raises", "raises: no operators for QInt8")


@pytest.mark.difference("Softmax of older models")
def test_softmax_raised(tmp_path, rng):
    """The ranges are of the model as it was; 16-bit types raise it to 21."""
    m = model([node("MatMul", ["x", "w"], ["t"], "m"), node("Softmax", ["t"], ["p"], "softmax", axis=1),
               node("Transpose", ["p"], ["q"], "turn", perm=[0, 2, 1]), node("MatMul", ["q", "v"], ["y"], "n")],
              [array("w", rng.normal(size=(6, 5))), array("v", rng.normal(size=(4, 3)))], (2, 4, 6), (2, 5, 3), 11)
    samples = feeds(rng, (2, 4, 6))
    bench = quantcase.Bench(tmp_path)
    bench.add("float", m, samples)
    cache = tmp_path / "float.minmax.json"
    case = {"activation": "quint16"}
    sides.made(tmp_path, m, samples, lambda path, out: bench.reference(case, path, cache, out), "static",
               "--calibration_cache", cache, "--activation_type", "quint16").expect(
        "raises: Only an existing tensor can be modified", 35)


# ---- biases

def gemm(rng, bias, **attributes):
    return model([node("Gemm", ["x", "w", "b"], ["y"], "gemm", **attributes)],
                 [array("w", rng.normal(size=(8, 6))), array("b", bias)], (4, 8), (4, 6), 21, 10)


@pytest.mark.difference("Blocks and biases")
def test_blocks_and_biases(tmp_path, rng):
    m, samples = gemm(rng, rng.normal(size=6)), feeds(rng, (4, 8))
    both = sides.static(tmp_path, m, samples, op_types=["Gemm"], weight="qint4", extra={"BlockSize": 4})
    both.expect("raises: ValueError", 15)
    got = onnx.load(both.onq.path)
    assert "b" in {t.name for t in got.graph.initializer}


@pytest.mark.difference("Biases whose input or weight is not quantized")
def test_bias_without_scales(tmp_path, rng):
    """After an operator of com.microsoft nothing has a type, so the Gemm's input is not quantized."""
    m = model([node("Gelu", ["x"], ["t"], "gelu", domain="com.microsoft"), node("Gemm", ["t", "w", "b"], ["y"], "gemm")],
              [array("w", rng.normal(size=(8, 6))), array("b", rng.normal(size=6))], (4, 8), (4, 6), domains=["com.microsoft"])
    both = sides.static(tmp_path, m, feeds(rng, (4, 8))).expect("raises: Unable to get valid quantization scale", 38)
    assert "b" in {t.name for t in onnx.load(both.onq.path).graph.initializer}


@pytest.mark.difference("Gemm with a beta")
@pytest.mark.parametrize("beta", [2.0, 0.5, 0.0, -1.5])
@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
def test_beta(tmp_path, rng, beta, per_channel):
    m = gemm(rng, rng.normal(size=6) * 3, beta=beta)
    sides.static(tmp_path, m, feeds(rng, (4, 8)), per_channel=per_channel).expect(12, 35)


# ---- names

@pytest.mark.difference("Names that are taken")
@pytest.mark.parametrize("taken", ["x_scale", "x_zero_point", "t_scale", "w_quantized", "w_scale", "x_QuantizeLinear_Output",
                                   "x_DequantizeLinear_Output", "w_DequantizeLinear_Output"])
@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_taken_names(tmp_path, rng, taken, form):
    m = model([node("MatMul", ["x", "w"], ["t"], "m"), node("Add", ["t", taken], ["y"], "a")],
              [array("w", rng.normal(size=(6, 6))), array(taken, rng.normal(size=6) * 9)], (4, 6), (4, 6))
    both = sides.static(tmp_path, m, feeds(rng, (4, 6)), format=form)
    assert both.onq.db > 35, both
    clean = both.reference.state == "runs" and compare.differences(both.reference.path, both.onq.path) == []
    assert clean or both.reference.state != "runs" or both.reference.db < 10, both


# ---- Relu and Clip that are missed

def branches(reads, rng):
    """An If whose branches read a tensor on either side of a Relu."""
    def branch(k):
        return helper.make_graph([node("Mul", [reads, f"k{k}"], [f"o{k}"], f"mul{k}")], f"branch{k}", [],
                                 [info(f"o{k}", (1, 4, 6, 6))], [array(f"k{k}", [1.0 + k])])

    return model([node("Conv", ["x", "w"], ["c"], "conv"), node("Relu", ["c"], ["r"], "relu"),
                  node("ReduceSum", ["x"], ["s"], "sum", keepdims=0), node("Greater", ["s", "zero"], ["cond"], "greater"),
                  node("If", ["cond"], ["v"], "if", then_branch=branch(0), else_branch=branch(1)),
                  node("Add", ["v", "r"], ["y"], "add")],
                 [array("w", rng.normal(size=(4, 3, 3, 3))), array("zero", 0)], (1, 3, 8, 8), (1, 4, 6, 6))


@pytest.mark.difference("Activations that subgraphs read")
def test_subgraph_reads_relu(tmp_path, rng):
    samples = feeds(rng, (1, 3, 8, 8))
    sides.static(tmp_path, branches("c", rng), samples).expect("does not load", 35)


@pytest.mark.difference("Activations that subgraphs read")
@pytest.mark.parametrize("reader", ["n", "r"])
def test_dedicated_pairs(tmp_path, rng, reader):
    """With dedicated pairs a node that is not quantized, or the caller, reads what should be clipped past the pairs."""
    m = model([node("Conv", ["x", "w"], ["c"], "conv"), node("Relu", ["c"], ["r"], "relu"),
               node("Conv", ["r", "v"], ["d"], "next"), node("Conv", ["r", "u"], ["e"], "other"),
               node("Add", ["d", "e"], ["y"], "add"), *([node("Neg", ["r"], ["n"], "neg")] if reader == "n" else [])],
              [array("w", rng.normal(size=(4, 3, 3, 3))), *(array(n, rng.normal(size=(4, 4, 1, 1))) for n in "vu")],
              (1, 3, 8, 8), {"y": (1, 4, 6, 6), reader: (1, 4, 6, 6)})
    both = sides.static(tmp_path, m, feeds(rng, (1, 3, 8, 8)), extra={"DedicatedQDQPair": True})
    assert both.reference.dbs[reader] < 10 and both.onq.dbs[reader] > 30, both


@pytest.mark.difference("Activations that subgraphs read")
def test_subgraph_reads_clipped(tmp_path, rng):
    """The body reads the output of the Relu past the pair."""
    m = branches("r", rng)
    add = next(n for n in m.graph.node if n.op_type == "Add")
    add.input[0] = "r"
    m.graph.output.append(info("v", (1, 4, 6, 6)))
    m.graph.node.remove(add)
    m.graph.node.insert(2, add)
    both = sides.static(tmp_path, m, feeds(rng, (1, 3, 8, 8)))
    assert both.reference.dbs["v"] < 5 and both.onq.dbs["v"] > 35, both


@pytest.mark.difference("Activations that subgraphs read")
def test_relu_of_constant(tmp_path, rng):
    m = model([node("Conv", ["x", "k"], ["c"], "first"), node("Relu", ["k"], ["r"], "relu"),
               node("Conv", ["x", "r"], ["d"], "second"), node("Add", ["c", "d"], ["y"], "add")],
              [array("k", rng.normal(size=(4, 3, 3, 3)))], (1, 3, 8, 8), (1, 4, 6, 6))
    sides.static(tmp_path, m, feeds(rng, (1, 3, 8, 8))).expect("raises: KeyError", 35)
    sides.static(tmp_path, m, feeds(rng, (1, 3, 8, 8)), format="qoperator").expect(10, 30)


@pytest.mark.difference("Outputs in front of a Relu or Clip")
def test_output_before_relu(tmp_path, rng):
    m = model([node("Conv", ["x", "w"], ["c"], "conv"), node("Relu", ["c"], ["y"], "relu")],
              [array("w", rng.normal(size=(4, 3, 3, 3)))], (1, 3, 8, 8), {"c": (1, 4, 6, 6), "y": (1, 4, 6, 6)})
    both = sides.static(tmp_path, m, feeds(rng, (1, 3, 8, 8))).expect(8, 35)
    assert both.reference.dbs["y"] > 35, both.reference.dbs


# ---- models that are odd

@pytest.mark.difference("Tensors quantized already")
def test_quantized_already(tmp_path, rng):
    """MaxPool shares the parameters of its input, which is a DequantizeLinear of the model that a second node reads."""
    m = model([node("QuantizeLinear", ["x", "s", "z"], ["q"], "q"), node("DequantizeLinear", ["q", "s", "z"], ["d"], "d"),
               node("Conv", ["d", "v"], ["e"], "other"), node("MaxPool", ["d"], ["p"], "pool", kernel_shape=[2, 2]),
               node("Conv", ["p", "w"], ["c"], "conv"), node("Add", ["c", "e"], ["y"], "add")],
              [array("s", 0.03), array("z", 128, np.uint8), array("w", rng.normal(size=(4, 3, 1, 1))),
               array("v", rng.normal(size=(4, 3, 2, 2)))], (1, 3, 8, 8), (1, 4, 7, 7))
    sides.static(tmp_path, m, feeds(rng, (1, 3, 8, 8)), seconds=5).expect("does not end", 35)


@pytest.mark.difference("IR version 3")
def test_ir_3(tmp_path, rng):
    m = conv(rng, 10, ir_version=3)
    m.graph.input.extend([info("w", (4, 3, 3, 3)), info("b", (4,))])
    onnx.checker.check_model(m)
    both = sides.static(tmp_path, m, feeds(rng, (1, 3, 8, 8)))
    both.expect((30, 99), 35)
    assert "in initializer but not in graph input" in quantcase.checks(both.reference.path)
    assert quantcase.checks(both.onq.path) is None
    assert [x.ir_version for x in both.models()] == [3, 4]


@pytest.mark.difference("Order of nodes around subgraphs")
def test_order_around_if(tmp_path, rng):
    both = sides.static(tmp_path, branches("r", rng), feeds(rng, (1, 3, 8, 8)),
                        extra={"QDQKeepRemovableActivations": True}).expect((35, 99), 35)
    assert "Nodes in a graph must be topologically sorted" in quantcase.checks(both.reference.path)
    assert quantcase.checks(both.onq.path) is None


@pytest.mark.difference("Nodes that hold subgraphs")
def test_words_of_if(tmp_path, rng):
    m = branches("r", rng)
    at = next(n for n in m.graph.node if n.op_type == "If")
    at.doc_string = "why"
    both = sides.static(tmp_path, m, feeds(rng, (1, 3, 8, 8))).expect((35, 99), 35)
    assert [next(n for n in x.graph.node if n.op_type == "If").doc_string for x in both.models()] == ["", "why"]


# ---- overrides

@pytest.mark.difference("Overrides")
def test_override_for_all_channels(tmp_path, rng):
    """One dictionary with an axis: the reference gives the range to channel 0 only."""
    m, samples = conv(rng), feeds(rng, (1, 3, 8, 8))
    case = {"overrides": {"w": [{"axis": 0, "rmin": -3.0, "rmax": 3.0}]}}
    both = sides.static(tmp_path, m, samples, **case)
    scales = [numpy_helper.to_array(next(t for t in x.graph.initializer if t.name == "w_scale")) for x in both.models()]
    assert len(set(scales[0])) > 1 and len(set(scales[1])) == 1
    both.expect((30, 99), 30)


@pytest.mark.difference("Overrides")
@pytest.mark.parametrize("given, reference, onq", [
    ({"w": [{"axis": 0, "scale": 0.02, "zero_point": 0}]}, "raises: IndexError", 30),
    ({"c": [{"scale": 0.0, "zero_point": 0}]}, 0.1, "raises: tensor 'c'"),
    ({"c": [{"scale": -0.1, "zero_point": 0}]}, 10, "raises: tensor 'c'"),
    ({"c": [{"scale": 0.1, "zero_point": 999}]}, "raises", "raises: tensor 'c'"),
    ({"x": [{"quant_type": "quint8"}], "nothing": [{"quant_type": "quint8"}]}, (30, 99), "raises: 'nothing'"),
    ({"c": []}, "raises: TypeError", 30),
    ({"c": [{"scal": 0.1}]}, (30, 99), "raises: 'scal'"),
], ids=lambda v: str(v)[:40])
def test_override_values(tmp_path, rng, given, reference, onq):
    sides.static(tmp_path, conv(rng), feeds(rng, (1, 3, 8, 8)), overrides=given,
                 extra={"QDQKeepRemovableActivations": True}).expect(reference, onq)


# ---- types that the runtime's fusions do not know

@pytest.mark.difference("4-bit and float 8 activations")
@pytest.mark.parametrize("activation", ["qint4", "quint4"])
def test_4_bit_activations(tmp_path, rng, activation):
    """The same files; a Conv is fused into an operator that has no kernel, a Gemm is not."""
    convs = conv(rng, 21, ir_version=10)
    gemms = model([node("Gemm", ["x", "w"], ["t"], "first"), node("Sigmoid", ["t"], ["s"]), node("Gemm", ["s", "v"], ["y"], "last")],
                  [array("w", rng.normal(size=(8, 6))), array("v", rng.normal(size=(6, 6)))], (4, 8), (4, 6), 21, 10)
    for m, shape, outcome in ((convs, (1, 3, 8, 8), "does not load"), (gemms, (4, 8), (8, 30))):
        folder = tmp_path / str(len(shape))
        folder.mkdir()
        both = sides.static(folder, m, feeds(rng, shape), activation=activation).expect(outcome, outcome)
        assert compare.differences(both.reference.path, both.onq.path) == []
        assert quantcase.loads(both.onq.path, optimised=False) is None
        assert (outcome == "does not load") == ("graph optimisation off" in both.warnings)


@pytest.mark.difference("4-bit and float 8 activations")
def test_float_8_and_softmax(tmp_path, rng):
    m = model([node("MatMul", ["x", "w"], ["t"], "m"), node("Softmax", ["t"], ["y"], "softmax")],
              [array("w", rng.normal(size=(8, 6)))], (4, 8), (4, 6), 21, 10)
    both = sides.static(tmp_path, m, feeds(rng, (4, 8)), activation="qfloat8e4m3fn", weight="qfloat8e4m3fn",
                        method="distribution").expect("raises: AttributeError: Attributes 'avg' and/or 'std' missing", "does not load")
    assert quantcase.loads(both.onq.path, optimised=False) is None and "graph optimisation off" in both.warnings


@pytest.mark.difference("float16 models below opset 19")
@pytest.mark.parametrize("opset", [13, 17])
def test_float16_below_19(tmp_path, rng, opset):
    m = model([node("MatMul", ["x", "w"], ["y"], "m")], [array("w", rng.normal(size=(8, 6)), np.float16)], (4, 8), (4, 6), opset,
              dtype=TensorProto.FLOAT16)
    both = sides.static(tmp_path, m, feeds(rng, (4, 8), dtype=np.float16)).expect("does not load", 35)
    assert [x.opset_import[0].version for x in both.models()] == [opset, 19]


@pytest.mark.difference("Resize and Upsample before opset 11")
def test_resize_raised(tmp_path, rng):
    """16-bit activations raise the opset."""
    m = model([node("Conv", ["x", "w"], ["t"], "conv"), node("Resize", ["t", "s"], ["y"], "resize", mode="linear")],
              [array("w", rng.normal(size=(4, 3, 1, 1))), array("s", [1, 1, 2, 2])], (1, 3, 8, 8), (1, 4, 16, 16), 10)
    sides.static(tmp_path, m, feeds(rng, (1, 3, 8, 8)), activation="quint16", op_types=["Conv"]).expect(15, 38)


# ---- tensors in two roles

@pytest.mark.difference("Constants per channel that are moved")
def test_moved_constant(tmp_path, rng):
    """A Gather of rows of a weight whose channels are its rows (Gemm with transB)."""
    m = model([node("Gemm", ["x", "w"], ["t"], "gemm", transB=1), node("Gather", ["w", "rows"], ["g"], "gather"),
               node("MatMul", ["t", "g"], ["y"], "matmul")],
              [array("w", rng.normal(size=(6, 8)) * np.geomspace(0.1, 1, 6)[:, None]), array("rows", [5, 3, 1, 0, 2, 4], np.int64)],
              (4, 8), (4, 8))
    sides.static(tmp_path, m, feeds(rng, (4, 8)), per_channel=True).expect("does not run", 30)


@pytest.mark.difference("Outputs that are inputs")
def test_output_is_input(tmp_path, rng):
    m = model([node("Conv", ["x", "w"], ["y"], "conv")], [array("w", rng.normal(size=(4, 3, 3, 3)))], (1, 3, 8, 8),
              {"y": (1, 4, 6, 6), "x": (1, 3, 8, 8)})
    samples = feeds(rng, (1, 3, 8, 8))
    sides.static(tmp_path, m, samples).expect("raises: Graph is not a DAG", 35)
    both = sides.static(tmp_path, m, samples, format="qoperator").expect((35, 99), 35)
    assert compare.differences(both.reference.path, both.onq.path) == []


@pytest.mark.difference("Tensors quantized already")
def test_unknown_type_moved(tmp_path, rng):
    """The same loop, where a Transpose of a tensor of unknown type is quantized by force."""
    m = model([node("Gelu", ["x"], ["g"], "gelu", domain="com.microsoft"), node("Transpose", ["g"], ["y"], "turn", perm=[1, 0])],
              [], (4, 8), (8, 4), domains=["com.microsoft"])
    sides.static(tmp_path, m, feeds(rng, (4, 8)), seconds=3, extra={"ForceQuantizeNoInputCheck": True}).expect("does not end", 35)


# ---- defaults

@pytest.mark.difference("quantize_static and its runner")
def test_two_defaults(tmp_path, rng, monkeypatch):
    """Values of some 1e-6: with a range of at least 0.0001 one integer is left of them."""
    m, samples = conv(rng), [{"x": 1e-6 * s["x"]} for s in feeds(rng, (1, 3, 8, 8))]
    path, plain, runner, got = (tmp_path / f"{n}.onnx" for n in ("float", "plain", "runner", "onq"))
    onnx.save(m, path)
    calibtool.write_samples(tmp_path, samples)  # where the runner looks for them
    Q.quantize_static(str(path), str(plain), quantcase.Reader(samples))
    monkeypatch.setattr("sys.argv", ["static_quantize_runner", "-i", str(path), "-o", str(runner)])
    static_quantize_runner.main()
    assert plain.read_bytes() != runner.read_bytes()
    for wanted, words in (runner, []), (plain, ["--activation_type", "qint8", "--extra", "MinimumRealRange=None"]):
        assert quantcase.onq("static", "-i", path, "-o", got, *words).returncode == 0
        assert got.read_bytes() == wanted.read_bytes()

    def scale(path):
        return float(numpy_helper.to_array(next(i for i in onnx.load(path).graph.initializer if i.name == "x_scale")))
    assert scale(runner) == pytest.approx(0.0001 / 255) and scale(plain) < 1e-7
