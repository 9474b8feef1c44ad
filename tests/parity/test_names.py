"""test_names.py - names that are taken: every name that onq gives to a node or a tensor is put into the model first, as the
name of a node and as that of a tensor. The result must load, run, and compute what it did.
"""
import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization as Q

import qatmodels
import quantcase
from common import onq


def array(rng, name, *shape):
    return numpy_helper.from_array((rng.normal(size=shape) * 0.3).astype(np.float32), name)


def float_model(named=True):
    """Conv with bias, Pad by a computed value, Softmax, Gemm both ways, MatMul of two activations, LSTM, Gather."""
    rng = np.random.default_rng(3)
    nodes = [
        ("Conv", ["x", "w1", "b1"], ["c1"], {"pads": [1, 1, 1, 1]}), ("Relu", ["c1"], ["r1"], {}),
        ("Identity", ["zero"], ["pad"], {}), ("Pad", ["r1", "pads", "pad"], ["p1"], {}),
        ("Conv", ["p1", "w2", "b2"], ["c2"], {}), ("Sigmoid", ["c2"], ["s"], {}), ("Mul", ["c2", "s"], ["m"], {}),
        ("GlobalAveragePool", ["m"], ["g"], {}), ("Flatten", ["g"], ["f"], {}),
        ("Gemm", ["f", "w3", "b3"], ["d1"], {"transB": 1}), ("Gemm", ["d1", "w4"], ["d2"], {}),
        ("Gather", ["table", "d2i"], ["e"], {}), ("Transpose", ["d2"], ["t"], {"perm": [1, 0]}),
        ("MatMul", ["t", "d2"], ["q"], {}), ("Softmax", ["q"], ["k"], {"axis": -1}), ("MatMul", ["k", "w5"], ["v"], {}),
        ("Unsqueeze", ["v", "axis"], ["u"], {}), ("LSTM", ["u", "lw", "lr"], ["l"], {"hidden_size": 4}),
        ("Reshape", ["l", "flat"], ["n"], {}), ("Concat", ["n", "v", "e"], ["y"], {"axis": 1})]
    inits = [array(rng, "w1", 4, 3, 3, 3), array(rng, "b1", 4), array(rng, "w2", 6, 4, 3, 3), array(rng, "b2", 6),
             array(rng, "w3", 8, 6), array(rng, "b3", 8), array(rng, "w4", 8, 6), array(rng, "table", 9, 4),
             array(rng, "w5", 6, 6), array(rng, "lw", 1, 16, 6), array(rng, "lr", 1, 16, 4),
             numpy_helper.from_array(np.float32(0), "zero"), numpy_helper.from_array(np.array([0, 0, 1, 1, 0, 0, 1, 1]), "pads"),
             numpy_helper.from_array(np.array([1, 0, 5, 3, 2, 8]), "d2i"), numpy_helper.from_array(np.array([1]), "axis"),
             numpy_helper.from_array(np.array([6, 4]), "flat")]
    graph = helper.make_graph(
        [helper.make_node(op, i, o, f"node_{o[0]}" if named else None, **a) for op, i, o, a in nodes], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [6, 14])], inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def names(model):
    """Names of nodes, and of tensors."""
    g = model.graph
    tensors = {n for node in g.node for n in (*node.input, *node.output)} | {t.name for t in g.initializer}
    return {n.name for n in g.node if n.name}, {t for t in tensors if t and not t.startswith("crowd_")}


def crowd(model, nodes, tensors, as_init):
    """The model with those names taken."""
    m = onnx.ModelProto()
    m.CopyFrom(model)
    x = m.graph.input[0].name
    have, have_tensors = names(m)
    for i, name in enumerate(sorted(nodes - have)):
        m.graph.node.append(helper.make_node("Identity", [x], [f"crowd_{i}"], name))
    for i, name in enumerate(sorted(tensors - have_tensors)):
        if as_init and i % 2:
            m.graph.initializer.append(numpy_helper.from_array(np.float32(7), name))
            m.graph.node.append(helper.make_node("Identity", [name], [f"crowd_reads_{i}"]))
        else:
            m.graph.node.append(helper.make_node("Identity", [x], [name]))
    return m


def sqnr(want, got):
    want, got = want.astype(np.float64), got.astype(np.float64)
    return 10 * np.log10((want ** 2).sum() / max(((want - got) ** 2).sum(), 1e-30))


def run(model, x):
    data = model if isinstance(model, str) else model.SerializeToString()
    return onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def quantize(folder, model, words, more=()):
    onnx.save(model, folder / "float.onnx")
    out = folder / "quantized.onnx"
    done = quantcase.onq(words[0], "-i", folder / "float.onnx", "-o", out, *words[1:], *more)
    assert done.returncode == 0, done.stderr
    assert quantcase.checks(out) is None
    assert quantcase.loads(out) is None and quantcase.loads(out, optimised=False) is None
    return out


def kinds(path):
    nodes = onnx.load(path).graph.node
    return sorted(n.op_type for n in nodes if n.op_type not in ("Identity", "Constant"))


def check_crowded(folder, model, x, words, more=()):
    """Every name that the result has and the model has not is put into the model, twice over."""
    out = quantize(folder, model, words, more)
    plain, want = kinds(out), run(str(out), x)
    nodes, tensors = names(onnx.load(out))
    for as_init in (False, True):
        m = crowd(model, nodes, tensors, as_init)
        out = quantize(folder, m, words, more)
        assert kinds(out) == plain
        got = onnx.load(out)
        assert len({n.name for n in got.graph.node if n.name}) == len([n for n in got.graph.node if n.name])
        np.testing.assert_array_equal(run(str(out), x), want)
        more_nodes, more_tensors = names(got)
        nodes, tensors = nodes | more_nodes, tensors | more_tensors


STATIC = {
    "qdq": ["static", "--quant_format", "qdq"],
    "qdq.channel": ["static", "--quant_format", "qdq", "--per_channel"],
    "qoperator": ["static", "--quant_format", "qoperator"],
    "qoperator.channel": ["static", "--quant_format", "qoperator", "--per_channel"],
}


@pytest.mark.parametrize("named", [True, False], ids=["named", "nameless"])
@pytest.mark.parametrize("mode", STATIC)
def test_static(tmp_path, mode, named):
    m, x = float_model(named), np.random.default_rng(1).normal(size=(1, 3, 6, 6)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x[None])
    check_crowded(tmp_path, m, x, STATIC[mode], ["--data", tmp_path / "data.npz"])


DYNAMIC = {"plain": [], "channel": ["--per_channel"], "all": ["--matmul_const_b_only=false", "--per_channel"]}


@pytest.mark.parametrize("named", [True, False], ids=["named", "nameless"])
@pytest.mark.parametrize("mode", DYNAMIC)
def test_dynamic(tmp_path, mode, named):
    m, x = float_model(named), np.random.default_rng(1).normal(size=(1, 3, 6, 6)).astype(np.float32)
    check_crowded(tmp_path, m, x, ["dynamic", *DYNAMIC[mode]])


@pytest.mark.difference("Names that are taken")
@pytest.mark.parametrize("taken", ["c1_bias_add", "c1_output_quantized_cast", "node_c1_quant_scales_mul",
                                   "node_c1_quant_output_scale_mul", "node_d1_Add", "node_d1_MatMul_quant"])
def test_dynamic_reference(tmp_path, taken):
    """The runtime refuses two nodes of one name, which the reference makes."""
    m = crowd(float_model(), {taken}, set(), False)
    x = np.random.default_rng(1).normal(size=(1, 3, 6, 6)).astype(np.float32)
    onnx.save(m, tmp_path / "float.onnx")
    Q.quantize_dynamic(str(tmp_path / "float.onnx"), str(tmp_path / "ref.onnx"))
    assert quantcase.loads(tmp_path / "ref.onnx") is not None
    out = quantize(tmp_path, m, ["dynamic"])
    assert sqnr(run(m, x), run(str(out), x)) > 20


def named_alike():
    """Two products, then three Relu, all of one name; the last node has a doc_string and a field that nobody knows."""
    rng = np.random.default_rng(6)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], "same"), helper.make_node("Relu", ["a"], ["b"], "same"),
             helper.make_node("MatMul", ["b", "v"], ["c"], "same"), helper.make_node("Sigmoid", ["c"], ["d"], "same"),
             helper.make_node("Sigmoid", ["d"], ["y"], "same", doc_string="kept")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [1, 6])],
                              [helper.make_tensor_value_info("y", 1, [1, 5])], [array(rng, "w", 6, 8), array(rng, "v", 8, 5)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.difference("Nodes of one name")
@pytest.mark.parametrize("words", [["dynamic"], ["nbits", "--block_size", "16"], ["preprocess"], ["static", "--data", "random:8"]])
def test_nodes_of_one_name(tmp_path, words):
    """The runtime refuses them, and so the reference fails or writes what does not load; here the later ones are renamed."""
    m = named_alike()
    onnx.save(m, tmp_path / "float.onnx")
    assert quantcase.loads(tmp_path / "float.onnx") is not None
    if words[0] == "dynamic":
        Q.quantize_dynamic(str(tmp_path / "float.onnx"), str(tmp_path / "ref.onnx"))
        assert quantcase.loads(tmp_path / "ref.onnx") is not None
    done = onq(*words, "-i", tmp_path / "float.onnx", "-o", tmp_path / "out.onnx")
    assert done.returncode == 0, done.stderr
    assert "the name of another, which ONNX Runtime refuses" in done.stderr and "the first was 'same' and is 'same_1'" in done.stderr
    out = onnx.load(tmp_path / "out.onnx")
    names = [n.name for n in out.graph.node if n.name]
    assert len(set(names)) == len(names) and "same" in names
    assert quantcase.loads(tmp_path / "out.onnx") is None
    for k, n in enumerate(m.graph.node):
        n.name = f"n{k}"
    x = np.random.default_rng(1).normal(size=(1, 6)).astype(np.float32)
    assert sqnr(run(m, x), run(str(tmp_path / "out.onnx"), x)) > 10


@pytest.mark.parametrize("words", [["static", "--data", "random:8", "--op_types_to_quantize", "MatMul"], ["dynamic"]])
def test_nodes_that_stay_keep_what_they_have(tmp_path, words):
    """doc_string, attributes in their order and fields that no version of ONNX knows are those of the input."""
    m = named_alike()
    for k, n in enumerate(m.graph.node):
        n.name = f"n{k}"
    kept = m.graph.node[4]
    kept.MergeFromString(b"\xfa\x3f\x03abc")  # field 1023, three bytes
    onnx.save(m, tmp_path / "float.onnx")
    done = onq(*words, "-i", tmp_path / "float.onnx", "-o", tmp_path / "out.onnx")
    assert done.returncode == 0, done.stderr
    out = [n for n in onnx.load(tmp_path / "out.onnx").graph.node if n.name == "n4"]
    assert len(out) == 1 and out[0].doc_string == "kept"
    assert out[0].SerializeToString().endswith(b"\xfa\x3f\x03abc")


@pytest.mark.parametrize("fmt", ["integer", "qdq", "qoperator"])
@pytest.mark.parametrize("net", ["conv", "mlp"])
def test_qat(tmp_path, net, fmt):
    n, m = qatmodels.conv_net() if net == "conv" else qatmodels.mlp()
    check_crowded(tmp_path, m, n.sample(), ["qat", "--quant_format", fmt])


@pytest.mark.parametrize("mode", ["IntegerOps_Static", "IntegerOps_Dynamic", "QLinearOps_Static", "QLinearOps_Dynamic"])
def test_legacy(tmp_path, mode):
    rng = np.random.default_rng(4)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv"), helper.make_node("MatMul", ["c", "v"], ["y"], "mul")], "g",
        [helper.make_tensor_value_info("x", 1, [1, 3, 6, 6])], [helper.make_tensor_value_info("y", 1, [1, 4, 4, 5])],
        [array(rng, "w", 4, 3, 3, 3), array(rng, "b", 4), array(rng, "v", 4, 5)])
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=7)
    words = ["legacy", "--quantization_mode", mode]
    for option, tensors in (("input", "xc"), ("output", "cy")):
        (tmp_path / option).write_text(json.dumps({t: [128, 0.03] for t in tensors}))
        words += [f"--{option}_quantization_params", tmp_path / option]
    check_crowded(tmp_path, m, rng.normal(size=(1, 3, 6, 6)).astype(np.float32), words)


def test_notes_of_inspect_are_plain_text(tmp_path):
    """A name from a model cannot command a terminal, whatever says it."""
    weight = numpy_helper.from_array(np.ones((2, 2), np.float32), "\x1b[31mred")
    graph = helper.make_graph([helper.make_node("\x1b[31mred", ["x", "\x1b[31mred"], ["y"], "m", domain="\x1b[31mred")], "g",
                              [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 2]) for n in ("x", "\x1b[31mred")],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13), helper.make_opsetid("\x1b[31mred", 1)], ir_version=3),
              tmp_path / "m.onnx")
    done = onq("inspect", tmp_path / "m.onnx", status=0)
    assert "note: " in done.stdout and "\\x1b[31mred" in done.stdout and "\x1b" not in done.stdout + done.stderr
