"""test_near.py - static quantization computes what the float model computes, in both formats.

For what the reference gets wrong (docs/DIFFERENCES.md) or does not do: there is no file to compare with, so the model is run.
"""
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import opmodels
import quantcase
from sides import array, feeds, info, model

FORMATS = ("qdq", "qoperator")


def quantize(folder, m, samples, *words):
    """The path of the result; checked, and loaded with and without the runtime's optimisations."""
    onnx.save(m, folder / "float.onnx")
    np.savez(folder / "data.npz", **{k: np.stack([s[k] for s in samples]) for k in samples[0]})
    out = folder / "quantized.onnx"
    done = quantcase.onq("static", "-i", folder / "float.onnx", "-o", out, "--data", folder / "data.npz", *words)
    assert done.returncode == 0, done.stderr
    assert quantcase.checks(out) is None
    assert quantcase.loads(out) is None and quantcase.loads(out, optimised=False) is None
    return out


def distance(folder, quantized, samples, optimised=True):
    """Largest difference of the outputs, as a part of the largest value."""
    want, got = (quantcase.outputs(p, samples, optimised) for p in (folder / "float.onnx", quantized))
    return np.abs(want - got).max() / np.abs(want).max()


@pytest.mark.parametrize("alpha, beta", [(1, 2), (1, 0.5), (1, 0), (1, -1.5), (2, 1), (0.5, 3), (0.25, -2)])
@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
@pytest.mark.parametrize("fmt", FORMATS)
def test_gemm(tmp_path, alpha, beta, per_channel, fmt):
    rng = np.random.default_rng(1)
    node = helper.make_node("Gemm", ["x", "w", "b"], ["y"], "gemm", alpha=float(alpha), beta=float(beta))
    m = model([node], [array("w", rng.normal(size=(8, 6))), array("b", rng.normal(size=6) * 3)], (4, 8), (4, 6))
    samples = feeds(rng, (4, 8))
    out = quantize(tmp_path, m, samples, "--quant_format", fmt, "--per_channel", per_channel)
    assert distance(tmp_path, out, samples) < 0.03


@pytest.mark.parametrize("fmt", FORMATS)
def test_infinite_bias(tmp_path, fmt):
    """A bias that masks with an infinity stays float."""
    rng = np.random.default_rng(9)
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["t"], "masked"), helper.make_node("Softmax", ["t"], ["s"], "softmax"),
             helper.make_node("MatMul", ["s", "v"], ["y"], "after")]
    m = model(nodes, [array("w", rng.normal(size=(8, 6))), array("b", [0, 1, -np.inf, 2, -np.inf, 0]),
                      array("v", rng.normal(size=(6, 3)))], (4, 8), (4, 3))
    samples = feeds(rng, (4, 8))
    out = quantize(tmp_path, m, samples, "--quant_format", fmt)
    assert distance(tmp_path, out, samples) < 0.05


def shared_conv(rng):
    """Two Conv of very different weights, one bias."""
    return model([helper.make_node("Conv", ["x", "w", "b"], ["t"], "c1"), helper.make_node("Conv", ["t", "v", "b"], ["y"], "c2")],
                 [array("w", rng.normal(size=(6, 6, 1, 1))), array("v", rng.normal(size=(6, 6, 1, 1)) * 10),
                  array("b", rng.normal(size=6) * 3)], (1, 6, 4, 4), (1, 6, 4, 4))


def bias_then_input(rng):
    """A bias that an Add reads afterwards."""
    return model([helper.make_node("Gemm", ["x", "w", "b"], ["t"], "g"), helper.make_node("Add", ["t", "b"], ["y"], "a")],
                 [array("w", rng.normal(size=(6, 6))), array("b", rng.normal(size=6) * 3)], (4, 6), (4, 6))


def input_then_bias(rng):
    """An Add's constant that is a bias afterwards."""
    return model([helper.make_node("Add", ["x", "b"], ["t"], "a"), helper.make_node("Gemm", ["t", "w", "b"], ["y"], "g")],
                 [array("w", rng.normal(size=(6, 6))), array("b", rng.normal(size=6) * 3)], (4, 6), (4, 6))


def two_axes(rng):
    """One weight, its channels along another axis for each of its nodes, and an Add that wants none."""
    w = rng.normal(size=(6, 6)) * np.geomspace(0.01, 1, 6)
    return model([helper.make_node("MatMul", ["x", "w"], ["t"], "m"), helper.make_node("Gemm", ["t", "w"], ["u"], "g", transB=1),
                  helper.make_node("Add", ["u", "w"], ["y"], "a")], [array("w", w)], (6, 6), (6, 6))


@pytest.mark.parametrize("make", [shared_conv, bias_then_input, input_then_bias, two_axes], ids=lambda f: f.__name__)
@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
@pytest.mark.parametrize("fmt", FORMATS)
def test_shared(tmp_path, make, per_channel, fmt):
    rng = np.random.default_rng(2)
    m = make(rng)
    samples = feeds(rng, [d.dim_value for d in m.graph.input[0].type.tensor_type.shape.dim])
    out = quantize(tmp_path, m, samples, "--quant_format", fmt, "--per_channel", per_channel)
    assert distance(tmp_path, out, samples) < 0.03


@pytest.mark.parametrize("name", ["Relu.shared", "Relu.chain", "Clip", "If", "Relu.output"])
@pytest.mark.parametrize("words", [(), ("--extra", "DedicatedQDQPair=true")], ids=" ".join)
@pytest.mark.parametrize("fmt", FORMATS)
def test_removed_activations(tmp_path, name, words, fmt):
    """A Relu or Clip goes away only where nothing misses it."""
    m = opmodels.build(name, 17)
    samples = opmodels.feeds(m)
    out = quantize(tmp_path, m, samples, "--quant_format", fmt, *words)
    assert distance(tmp_path, out, samples) < (0.2 if name == "Relu.chain" else 0.05)


# ---- inside If, Loop and Scan (--enable_subgraph)

def branches(rng, outer):
    """If: Conv, Relu, MatMul and Add in both branches; weights of the branches, or of the graph around and shared by both."""
    w = {"w": rng.normal(size=(4, 3, 3, 3)), "b": rng.normal(size=4), "m": rng.normal(size=(6, 5)), "c": rng.normal(size=5)}

    def branch(k):
        use = {n: n if outer else f"{n}{k}" for n in w}
        nodes = [helper.make_node("Conv", ["x", use["w"], use["b"]], [f"t{k}"], f"conv{k}"),
                 helper.make_node("Relu", [f"t{k}"], [f"r{k}"], f"relu{k}"),
                 helper.make_node("MatMul", [f"r{k}", use["m"]], [f"u{k}"], f"matmul{k}"),
                 helper.make_node("Add" if k else "Mul", [f"u{k}", use["c"]], [f"o{k}"], f"add{k}")]
        inits = [] if outer else [array(use[n], v * (1 + k)) for n, v in w.items()]
        return helper.make_graph(nodes, f"branch{k}", [], [info(f"o{k}", (1, 4, 6, 5))], inits)

    nodes = [helper.make_node("ReduceSum", ["x"], ["s"], "sum", keepdims=0),
             helper.make_node("Greater", ["s", "zero"], ["cond"], "greater"),
             helper.make_node("If", ["cond"], ["v"], "if", then_branch=branch(0), else_branch=branch(1)),
             helper.make_node("Relu", ["v"], ["vr"], "last"),
             helper.make_node("MatMul", ["vr", "m2"], ["y"], "after")]
    inits = [array("zero", 0), array("m2", rng.normal(size=(5, 3)))]
    return model(nodes, inits + ([array(n, v) for n, v in w.items()] if outer else []), (1, 3, 8, 8), (1, 4, 6, 3))


def inner_weights(rng):
    return branches(rng, False)


def outer_weights(rng):
    return branches(rng, True)


def used_in_and_out(rng):
    """One weight and one activation, read by the main graph and by both branches."""
    def branch(k):
        nodes = [helper.make_node("MatMul", ["t", "w"], [f"a{k}"], f"in{k}"),
                 helper.make_node("Add", [f"a{k}", "b"], [f"o{k}"], f"plus{k}")]
        return helper.make_graph(nodes, f"branch{k}", [], [info(f"o{k}", (4, 6))])

    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"], "outside"),
             helper.make_node("ReduceSum", ["x"], ["s"], "sum", keepdims=0),
             helper.make_node("Greater", ["s", "zero"], ["cond"], "greater"),
             helper.make_node("If", ["cond"], ["v"], "if", then_branch=branch(0), else_branch=branch(1)),
             helper.make_node("Relu", ["t"], ["r"], "relu"),
             helper.make_node("Add", ["v", "r"], ["y"], "sum_up")]
    return model(nodes, [array("zero", 0), array("w", rng.normal(size=(6, 6)) / 2), array("b", rng.normal(size=6))],
                 (4, 6), (4, 6))


def same_names(rng):
    """Both branches call their tensors the same, of very different sizes, and nodes have no names."""
    def branch(size):
        nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["t"]), helper.make_node("Reshape" if size > 1 else "Mul", [
            "t", "shape" if size > 1 else "t"], ["u"]), helper.make_node("Gemm", ["u", "w", "b"], ["o"])]
        return helper.make_graph(nodes, "branch", [], [info("o", (4, 6))],
                                 [array("w", rng.normal(size=(6, 6)) * size), array("b", rng.normal(size=6))])

    nodes = [helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0), helper.make_node("Greater", ["s", "zero"], ["cond"]),
             helper.make_node("If", ["cond"], ["y"], then_branch=branch(1), else_branch=branch(3))]
    return model(nodes, [array("zero", 0), numpy_helper.from_array(np.array([4, 6]), "shape")], (4, 6), (4, 6))


def loop(rng):
    """Loop: the state times a weight of the graph around, plus one of the body; nested If inside."""
    inner = [helper.make_graph([helper.make_node("Gemm", ["t", "w", "b"], [f"g{k}"], f"gemm{k}", transB=k)], f"case{k}", [],
                               [info(f"g{k}", (4, 6))]) for k in (0, 1)]
    nodes = [helper.make_node("MatMul", ["h", "w"], ["p"], "step"), helper.make_node("Add", ["p", "c"], ["t"], "shift"),
             helper.make_node("Equal", ["i", "one"], ["is_one"], "which"),
             helper.make_node("If", ["is_one"], ["g"], "either", then_branch=inner[0], else_branch=inner[1]),
             helper.make_node("Tanh", ["g"], ["next"], "squash"), helper.make_node("Identity", ["go"], ["more"], "on")]
    body = helper.make_graph(nodes, "body", [info("i", (), onnx.TensorProto.INT64), info("go", (), onnx.TensorProto.BOOL),
                                             info("h", (4, 6))],
                             [info("more", (), onnx.TensorProto.BOOL), info("next", (4, 6))], [array("c", rng.normal(size=6))])
    inits = [array("w", rng.normal(size=(6, 6)) / 2), array("b", rng.normal(size=6)),
             numpy_helper.from_array(np.array(3), "times"), numpy_helper.from_array(np.array(1), "one")]
    return model([helper.make_node("Loop", ["times", "", "x"], ["y"], "loop", body=body)], inits, (4, 6), (4, 6))


def scan(rng):
    """Scan over the rows of x: a MatMul, and a Conv of the state."""
    nodes = [helper.make_node("Add", ["h", "row"], ["a"], "join"), helper.make_node("MatMul", ["a", "w"], ["m"], "mix"),
             helper.make_node("Sigmoid", ["m"], ["hn"], "gate"), helper.make_node("Identity", ["hn"], ["out"], "give")]
    body = helper.make_graph(nodes, "body", [info("h", (1, 6)), info("row", (1, 6))], [info("hn", (1, 6)), info("out", (1, 6))])
    inits = [array("w", rng.normal(size=(6, 6))), array("h0", rng.normal(size=(1, 6)))]
    return model([helper.make_node("Scan", ["h0", "x"], ["last", "y"], "scan", body=body, num_scan_inputs=1)], inits,
                 (5, 1, 6), (5, 1, 6))


def inner_nodes(graph):
    for n in graph.node:
        for a in n.attribute:
            for g in ([a.g] if a.type == onnx.AttributeProto.GRAPH else a.graphs):
                yield from g.node
                yield from inner_nodes(g)


QUANTIZED = ("DequantizeLinear", "QLinearConv", "QLinearMatMul", "QGemm", "QLinearAdd")


@pytest.mark.parametrize("make", [inner_weights, outer_weights, used_in_and_out, same_names, loop, scan],
                         ids=lambda f: f.__name__)
@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("words", [(), ("--per_channel",), ("--activation_type", "qint8"), ("--method", "percentile"),
                                   ("--extra", "AddQDQPairToWeight=true"), ("--extra", "DedicatedQDQPair=true")], ids=" ".join)
def test_inner(tmp_path, make, fmt, words):
    rng = np.random.default_rng(3)
    m = make(rng)
    samples = feeds(rng, [d.dim_value for d in m.graph.input[0].type.tensor_type.shape.dim], 12)
    out = quantize(tmp_path, m, samples, "--enable_subgraph", "--quant_format", fmt, *words)
    got = onnx.load(out)
    assert any(n.op_type in QUANTIZED for n in inner_nodes(got.graph))
    assert distance(tmp_path, out, samples) < (0.25 if make is loop else 0.06)  # in a loop errors grow
    if make is outer_weights and "AddQDQPairToWeight=true" not in words:  # once, in the graph around
        assert not any(len(g.initializer) and g.initializer[0].name.startswith("w_q") for g in
                       (a.g for n in got.graph.node for a in n.attribute))
        assert sum(t.name.startswith("w_quantized") for t in got.graph.initializer) == 1
        assert not any(t.name == "w" for t in got.graph.initializer)


@pytest.mark.parametrize("make", [inner_weights, outer_weights, used_in_and_out, same_names, loop, scan],
                         ids=lambda f: f.__name__)
def test_inner_16_bits(tmp_path, make):
    rng = np.random.default_rng(3)
    m = make(rng)
    samples = feeds(rng, [d.dim_value for d in m.graph.input[0].type.tensor_type.shape.dim], 12)
    out = quantize(tmp_path, m, samples, "--enable_subgraph", "--activation_type", "qint16", "--weight_type", "qint16")
    assert distance(tmp_path, out, samples) < 0.002


@pytest.mark.parametrize("fmt", FORMATS)
def test_inner_not_run(tmp_path, fmt):
    """No sample takes the second branch: it stays float, and a warning says so."""
    rng = np.random.default_rng(4)
    m = inner_weights(rng)
    samples = [{"x": np.abs(s["x"])} for s in feeds(rng, (1, 3, 8, 8))]
    words = ("--enable_subgraph", "--quant_format", fmt)
    out = quantize(tmp_path, m, samples, *words)
    inside = {n.name for n in inner_nodes(onnx.load(out).graph)}
    assert "conv1" in inside and "matmul1" in inside
    done = quantcase.onq("static", "-i", tmp_path / "float.onnx", "-o", out, "--data", tmp_path / "data.npz", *words)
    assert "4 nodes inside If, Loop and Scan stay float because no sample got there" in done.stderr
    assert distance(tmp_path, out, samples) < 0.06


def test_inner_left_alone(tmp_path):
    """Without the option the branches stay as they are, and a warning names it."""
    rng = np.random.default_rng(5)
    m = outer_weights(rng)
    out = quantize(tmp_path, m, feeds(rng, (1, 3, 8, 8)))
    assert [n.SerializeToString() for n in inner_nodes(onnx.load(out).graph)] == \
        [n.SerializeToString() for n in inner_nodes(m.graph)]
    done = quantcase.onq("static", "-i", tmp_path / "float.onnx", "-o", out, "--data", tmp_path / "data.npz")
    assert "8 nodes inside If, Loop and Scan stay float (--enable_subgraph quantizes such nodes)" in done.stderr


def inlined(m, branch):
    """The model with one branch of its only If in place of the If."""
    out = onnx.ModelProto()
    out.CopyFrom(m)
    node = next(n for n in out.graph.node if n.op_type == "If")
    g = onnx.GraphProto()
    g.CopyFrom(next(a.g for a in node.attribute if a.name == branch))
    nodes = list(out.graph.node)
    at = next(i for i, n in enumerate(nodes) if n.op_type == "If")
    ends = [helper.make_node("Identity", [o.name], [name], f"end{i}") for i, (o, name) in enumerate(zip(g.output, node.output))]
    del out.graph.node[:]
    out.graph.node.extend(nodes[:at] + list(g.node) + ends + nodes[at + 1:])
    out.graph.initializer.extend(g.initializer)
    return out


def stored(folder, count):
    names = [v.name for v in onnx.load(folder / "model.onnx").graph.input]
    return [{n: numpy_helper.to_array(onnx.load_tensor(str(folder / f"test_data_set_{k}" / f"input_{j}.pb")))
             for j, n in enumerate(names)} for k in range(count)]


def shared_model(name):
    folder = quantcase.MODELS / name
    if not folder.exists():
        pytest.skip("0 shared models: set ONQ_MODELS")
    return folder


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
def test_inner_as_the_reference(tmp_path, fmt, per_channel):
    """silero_vad_op18_ifless: the branch that runs becomes what the reference makes of it as a main graph.

    In QOperator format: what onq makes of it, for the reference loses a Relu (docs/DIFFERENCES.md)."""
    folder = shared_model("silero_vad_op18_ifless")
    samples = stored(folder, 4)
    flat = tmp_path / "flat.onnx"
    m = onnx.load(folder / "model.onnx")
    onnx.save(m, tmp_path / "float.onnx")
    kinds = {b: inlined(m, b) for b in ("then_branch", "else_branch")}
    branch = [b for b, f in kinds.items() if same_outputs(tmp_path, f, samples)]
    onnx.save(kinds[branch[0]], flat)
    ref, got = tmp_path / "ref.onnx", tmp_path / "got.onnx"
    kwargs = {"quant_format": quantcase.FORMATS[fmt], "per_channel": per_channel, "activation_type": quantcase.TYPES["quint8"],
              "weight_type": quantcase.TYPES["qint8"], "extra_options": {"MinimumRealRange": 0.0001}}
    if fmt == "qdq":
        quantcase.Q.quantize_static(str(flat), str(ref), quantcase.Reader(samples), **kwargs)
    else:
        quantcase.onq("static", "-i", flat, "-o", ref, "--data", folder, "--limit", 4, "--quant_format", fmt,
                      "--per_channel", per_channel)
    done = quantcase.onq("static", "-i", tmp_path / "float.onnx", "-o", got, "--data", folder, "--limit", 4,
                         "--enable_subgraph", "--quant_format", fmt, "--per_channel", per_channel)
    assert done.returncode == 0, done.stderr
    assert np.array_equal(quantcase.outputs(ref, samples), quantcase.outputs(got, samples))


def same_outputs(folder, flat, samples):
    onnx.save(flat, folder / "try.onnx")
    try:
        return np.allclose(quantcase.outputs(folder / "try.onnx", samples), quantcase.outputs(folder / "float.onnx", samples))
    except Exception:  # noqa: BLE001 - the other branch does not take these shapes
        return False


def test_inner_overrides(tmp_path):
    """Overrides of inner tensors hold with the option, and name it without; presets see inner operators."""
    rng = np.random.default_rng(8)
    m = outer_weights(rng)
    samples = feeds(rng, (1, 3, 8, 8), 8)
    over = tmp_path / "over.json"
    over.write_text('{"t0": [{"scale": 0.125, "zero_point": 7}], "m": [{"quant_type": "quint8"}]}')
    out = quantize(tmp_path, m, samples, "--enable_subgraph", "--tensor_quant_overrides", over, "--preset", "qdq",
                   "--qdq_keep_removable_activations")
    got = onnx.load(out)
    values = {t.name: numpy_helper.to_array(t) for n in got.graph.node for a in n.attribute for t in a.g.initializer}
    assert values["t0_scale"] == np.float32(0.125) and values["t0_zero_point"] == 7
    assert next(t for t in got.graph.initializer if t.name == "m_quantized").data_type == onnx.TensorProto.UINT8
    assert any(n.op_type == "DequantizeLinear" for n in inner_nodes(got.graph))
    done = quantcase.onq("static", "-i", tmp_path / "float.onnx", "-o", out, "--data", tmp_path / "data.npz",
                         "--tensor_quant_overrides", over)
    assert done.returncode == 1 and "tensor 't0': it is inside an If" in done.stderr


@pytest.mark.parametrize("name", ["silero_vad", "silero_vad_op18_ifless"])
@pytest.mark.parametrize("words", [(), ("--per_channel",), ("--lift_constants",)], ids=" ".join)
@pytest.mark.parametrize("fmt", FORMATS)
def test_silero(tmp_path, name, words, fmt):
    folder = shared_model(name)
    out = tmp_path / "quantized.onnx"
    done = quantcase.onq("static", "-i", folder / "model.onnx", "-o", out, "--enable_subgraph", "--quant_format", fmt,
                         "--op_types_to_quantize", "Conv,Relu,MatMul,Gemm", *words)
    assert done.returncode == 0, done.stderr
    assert quantcase.checks(out) is None and quantcase.loads(out) is None
    assert any(n.op_type in QUANTIZED for n in inner_nodes(onnx.load(out).graph))
    assert np.isfinite(quantcase.outputs(out, stored(folder, 3))).all()


@pytest.mark.parametrize("name", ["silero_vad", "silero_vad_op18_ifless"])
def test_silero_16_bits(tmp_path, name):
    """With 16 bits the numbers are those of the float model."""
    folder = shared_model(name)
    out = tmp_path / "quantized.onnx"
    done = quantcase.onq("static", "-i", folder / "model.onnx", "-o", out, "--enable_subgraph", "--activation_type", "qint16",
                         "--weight_type", "qint16", "--op_types_to_quantize", "Conv,Relu,MatMul,Gemm", "--lift_constants")
    assert done.returncode == 0, done.stderr
    for sample in stored(folder, 3):
        want, got = (quantcase.outputs(p, [sample]) for p in (folder / "model.onnx", out))
        assert np.abs(want - got).max() < 0.02 * np.abs(want).max()


# ---- Resize of older models

@pytest.mark.parametrize("mode, factor", [("nearest", 2), ("nearest", 1.5), ("linear", 2), ("linear", 1.5)])
@pytest.mark.parametrize("op, opset, want", [("Upsample", 9, 11), ("Resize", 10, 21)])
def test_old_resize(tmp_path, mode, factor, op, opset, want):
    """Raised past opset 10, it computes what it did; where the converter's Resize does too, it is the converter's."""
    rng = np.random.default_rng(6)
    size = int(8 * factor)
    nodes = [helper.make_node("Conv", ["x", "w"], ["t"], "conv"), helper.make_node(op, ["t", "s"], ["y"], "resize", mode=mode)]
    m = model(nodes, [array("w", rng.normal(size=(4, 3, 1, 1))), array("s", [1, 1, factor, factor])], (1, 3, 8, 8),
              (1, 4, size, size), opset)
    samples = feeds(rng, (1, 3, 8, 8))
    static = ["--activation_type", "quint16" if want == 21 else "quint8", "--op_types_to_quantize", "Conv"]
    paths = [quantize(tmp_path, m, samples, *static)]
    assert distance(tmp_path, paths[0], samples) < 0.02
    if want == 11:
        paths.append(tmp_path / "dynamic.onnx")
        done = quantcase.onq("dynamic", "-i", tmp_path / "float.onnx", "-o", paths[1], "--op_types_to_quantize", "MatMul")
        assert done.returncode == 0, done.stderr
        assert distance(tmp_path, paths[1], samples) < 1e-6
    for path in paths:
        got = onnx.load(path)
        assert got.opset_import[0].version == want
        names = {a.name for n in got.graph.node if n.op_type == "Resize" for a in n.attribute}
        assert ("coordinate_transformation_mode" in names) == (mode != "nearest" or factor != 2)


# ---- numbers that are not float32

STAYS = {"other": "2 nodes stay float because their values are bfloat16 or double (convert the model to float32); the first is 'm' (MatMul)",
         "bfloat16": "2 nodes stay bfloat16, for which ONNX Runtime has almost no kernels on a CPU"}


@pytest.mark.parametrize("kind, words, text", [
    (kind, words, text) for kind, texts in (("FLOAT16", (None, None, None)), ("BFLOAT16", ("bfloat16", None, "other")),
                                            ("DOUBLE", ("other",) * 3))
    for words, text in zip((("static", "--quant_format", "qoperator", "--data", "random:2"), ("dynamic",), ("static", "--data", "random:2")), texts)])
def test_other_numbers(tmp_path, kind, words, text):
    """What is left float for its type is counted and named, with what to do."""
    kind = getattr(onnx.TensorProto, kind)

    def weight(name, *shape):
        return helper.make_tensor(name, kind, shape, np.random.default_rng(7).normal(size=int(np.prod(shape))).tolist())

    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"], "m"), helper.make_node("MatMul", ["t", "v"], ["y"], "n")]
    graph = helper.make_graph(nodes, "g", [info("x", (4, 8), kind)], [info("y", (4, 3), kind)],
                              [weight("w", 8, 6), weight("v", 6, 3)])
    m = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(m, tmp_path / "m.onnx")
    out = tmp_path / "q.onnx"
    done = quantcase.onq(*words, "-i", tmp_path / "m.onnx", "-o", out)
    assert done.returncode == 0, done.stderr
    assert quantcase.checks(out) is None
    if kind != onnx.TensorProto.BFLOAT16 or text is None:  # the runtime's MatMul has no bfloat16
        assert quantcase.loads(out) is None
    assert any(n.op_type != "MatMul" for n in onnx.load(out).graph.node) == (text is None)
    assert text is None or STAYS[text] in done.stderr


# ---- types in QOperator format

@pytest.mark.parametrize("activation", quantcase.TYPES)
@pytest.mark.parametrize("weight", quantcase.TYPES)
def test_qoperator_types(tmp_path, activation, weight):
    """Every pair is refused in one line, or its result loads and is near."""
    m = opmodels.mixed(17)
    samples = opmodels.feeds(m)
    words = ("--quant_format", "qoperator", "--activation_type", activation, "--weight_type", weight, "--method",
             "distribution" if "float8" in activation + weight else "minmax")
    if {activation, weight} <= {"qint8", "quint8"} and (activation, weight) != ("qint8", "quint8"):
        assert distance(tmp_path, quantize(tmp_path, m, samples, *words), samples) < 0.2
        return
    onnx.save(m, tmp_path / "float.onnx")
    done = quantcase.onq("static", "-i", tmp_path / "float.onnx", "-o", tmp_path / "q.onnx", *words)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "error" in done.stderr
    assert not (tmp_path / "q.onnx").exists()


# ---- models that are quantized in part

@pytest.mark.parametrize("words", [("static",), ("static", "--per_channel"), ("static", "--quant_format", "qoperator"), ("dynamic",)],
                         ids=" ".join)
@pytest.mark.parametrize("first", [("--op_types_to_quantize", "Conv"), ("--op_types_to_quantize", "Conv,Relu,MatMul,Gemm"), ()],
                         ids=" ".join)
def test_again(tmp_path, first, words):
    """What is quantized already stays, the rest follows, and no name is given twice."""
    m = opmodels.mixed(17)
    samples = opmodels.feeds(m)
    half = quantize(tmp_path, m, samples, *first)
    out = tmp_path / "again.onnx"
    data = ("--data", tmp_path / "data.npz") if words[0] == "static" else ()
    done = quantcase.onq(*words, "-i", half, "-o", out, *data)
    assert done.returncode == 0, done.stderr
    assert quantcase.checks(out) is None and quantcase.loads(out) is None
    assert distance(tmp_path, out, samples) < 0.2
