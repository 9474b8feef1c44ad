"""test_convert.py - `onq convert` and `onq dequantize`: what ONNX Runtime computes before and after, with and without its
optimiser.

A result in QDQ form computes what the input did: the same integers, and floats that differ in their last digits. A float
result is nearer to the float model than the quantized one was, because activations are not rounded any more. Models come
from onq itself, whose results are the reference's (test_qdq.py and its neighbours).
"""
import collections
import json
import pathlib

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import common
import opmodels
import running
from common import onq, refused

STATIC = {"qdq": ("static",), "qdq-channels": ("static", "--per_channel"), "qdq-16": ("static", "--activation_type", "quint16"),
          "qdq-contrib": ("static", "--use_qdq_contrib_ops", "--activation_type", "quint16", "--weight_type", "qint16"),
          "qoperator": ("static", "--quant_format", "qoperator"),
          "qoperator-channels": ("static", "--quant_format", "qoperator", "--per_channel")}
DYNAMIC = {"dynamic": ("dynamic",), "dynamic-channels": ("dynamic", "--per_channel")}
WEIGHTS = {"nbits": ("nbits",), "nbits-zeros": ("nbits", "--symmetric", "false", "--block_size", "16"), "nbits-8": ("nbits", "--bits", "8"),
           "nbits-2": ("nbits", "--bits", "2"), "nbits-hqq": ("nbits", "--quant_method", "hqq"), "nbits-qdq": ("nbits", "--quant_format", "QDQ"),
           "nbits-gather": ("nbits", "--op_types_to_quantize", "MatMul", "Gather"), "bnb4-nf4": ("bnb4",),
           "bnb4-fp4": ("bnb4", "--quant_type", "fp4", "--block_size", "16")}
QUANTIZED = ("Quant", "Integer", "QLinear", "NBits", "Bnb4", "QGemm", "QAttention", "QEmbed")


def operators(path):
    return collections.Counter(n.op_type for n in onnx.load(path, load_external_data=False).graph.node)


def left(path):
    """Quantized operators of a model."""
    return [op for op in operators(path) if any(word in op for word in QUANTIZED)]


class Case:
    """A float model, quantized, and its outputs."""

    def __init__(self, folder, model, words, samples):
        self.folder, self.samples = folder, samples
        self.source, self.made = folder / "float.onnx", folder / "made.onnx"
        onnx.save(model, self.source)
        self.words = words
        data = ()
        if words[0] == "static":
            np.savez(folder / "data.npz", **samples[0])
            data = ("--data", folder / "data.npz")
        onq(*words, *data, "-i", self.source, "-o", self.made, "--no_verify", "--quiet", status=0)
        self.flt = running.outputs(self.source, samples, False)
        self.before = running.outputs(self.made, samples, False)

    def convert(self, to, *more, status=0):
        out = self.folder / f"{to}.onnx"
        done = onq("convert", "-i", self.made, "-o", out, "--to", to, "--no_verify", "--quiet", *more, status=status)
        return out if status == 0 else done

    def near(self, path, least, optimised=False):
        assert running.sqnr(self.before, running.outputs(path, self.samples, optimised)) >= least

    def better(self, path):
        """Nearer to float than before, or as near as weights of that many bits are."""
        was, now = running.sqnr(self.flt, self.before), running.sqnr(self.flt, running.outputs(path, self.samples, False))
        assert now >= min(was - 1.0, 60.0), (was, now)


OPERATORS = [n for n in opmodels.NAMES if opmodels.exists(n, 17)]


@pytest.mark.parametrize("form", ["qdq-channels", "qoperator", "dynamic-channels"])
def test_every_operator(form, tmp_path):
    """To float, nothing quantized is left; to QDQ, the outputs are those of the input."""
    for name in OPERATORS:
        model = opmodels.build(name, 17)
        case = Case(tmp_path, model, {**STATIC, **DYNAMIC}[form], opmodels.feeds(model, 1))
        out = case.convert("float")
        assert left(out) == [], name
        case.better(out)
        case.near(case.convert("qdq"), 100.0)


@pytest.mark.parametrize("form", [*STATIC, *DYNAMIC])
def test_forms(form, tmp_path):
    model = opmodels.mixed(21 if "contrib" not in form else 17)
    case = Case(tmp_path, model, {**STATIC, **DYNAMIC}[form], opmodels.feeds(model, 2))
    out = case.convert("float")
    assert left(out) == []
    case.better(out)
    case.better(out)
    assert running.sqnr(running.outputs(out, case.samples, False), running.outputs(out, case.samples, True)) > 100
    case.near(case.convert("qdq"), 100.0)


@pytest.mark.parametrize("form", ["qdq", "qdq-channels"])
def test_qoperator(form, tmp_path):
    """Integer operators in place of pairs: at most one step of the output apart, and the same parameters on the way back."""
    n = collections.Counter()
    for name in ("Add", "AveragePool", "Concat", "Conv", "Gemm", "GlobalAveragePool", "LeakyRelu", "MatMul", "MaxPool", "Mul", "Reshape", "Sigmoid",
                 "Softmax", "Transpose"):
        if name not in OPERATORS:
            continue
        model = opmodels.build(name, 17)
        case = Case(tmp_path, model, STATIC[form], opmodels.feeds(model, 1))
        out = case.convert("qoperator")
        n.update(operators(out))
        for optimised in (False, True):
            case.near(out, 35.0, optimised)
        back = tmp_path / "back.onnx"
        onq("convert", "--to", "qdq", "-i", out, "-o", back, "--no_verify", "--quiet", status=0)
        case.near(back, 100.0)
        first, second = ({t.name: numpy_helper.to_array(t).tobytes() for t in onnx.load(p).graph.initializer} for p in (case.made, back))
        assert all(second[k] == v for k, v in first.items() if not k.endswith("bias_zero_point") and k in second), name
        assert {k for k in first if k.endswith("_scale")} <= set(second), name
    for op in ("QLinearConv", "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearMatMul", "QGemm", "QLinearConcat"):
        assert n[op] > 0, n


def language():
    """Gather, MatMul and Add: 50 words, 40 channels, K that is no multiple of a block."""
    b = opmodels.B(21, seed=3)
    b.input("ids", 1, 5, dtype=TensorProto.INT64)
    t = b.node("Gather", [b.weight("table", 50, 40), "ids"], "e")
    t = b.node("MatMul", [t, b.weight("w0", 40, 24)], "a")
    t = b.node("Add", [t, b.weight("b0", 24)], "c")
    t = b.node("MatMul", [t, b.weight("w1", 24, 17)], "y")
    b.output("y")
    return b.model()


@pytest.mark.parametrize("form", WEIGHTS)
def test_weights(form, tmp_path):
    """Weights of few bits are dequantized as the operator does it: the same outputs without the optimiser's int8 products."""
    samples = [{"ids": np.array([[1, 7, 49, 0, 3]])}]
    case = Case(tmp_path, language(), WEIGHTS[form], samples)
    out = case.convert("float")
    assert left(out) == []
    case.near(out, 100.0)
    case.near(out, 100.0, optimised=True)
    if form in ("nbits-hqq", "bnb4-nf4", "bnb4-fp4"):
        refused(case.convert("qdq", status=None), "node '", "(MatMul")
        case.near(case.convert("qdq", "--lossy"), 100.0)
        return
    if form == "nbits-2":  # the runtime has no kernel for it
        return
    pairs = case.convert("qdq")
    assert operators(pairs)["DequantizeLinear"] >= 2
    case.near(pairs, 100.0)
    back = tmp_path / "back.onnx"
    onq("convert", "--to", "nbits", "-i", pairs, "-o", back, "--no_verify", "--quiet", status=0)
    assert operators(back)["MatMulNBits"] == 2 and operators(back)["DequantizeLinear"] == 0
    case.near(back, 100.0)


@pytest.mark.parametrize("kind", ["aimet-0.6.1", "aimet-1.0.0", "aimet-2.0.0", "overrides"])
def test_encodings(kind, tmp_path):
    """Parameters in a file of another tool give the same quantization again; a partial file is completed by calibration."""
    model = opmodels.mixed(17)
    case = Case(tmp_path, model, STATIC["qdq-channels"], opmodels.feeds(model, 1))
    file, again = tmp_path / "e.json", tmp_path / "again.onnx"
    out = case.convert("float", "--encodings", file, "--encodings_format", kind)
    words = (*STATIC["qdq-channels"], "-i", out, "-o", again, "--encodings", file, "--data", tmp_path / "data.npz", "--no_verify", "--quiet")
    onq(*words, status=0)
    assert onq("diff", case.made, again).returncode == 0
    if kind != "aimet-1.0.0":
        return
    content = json.loads(file.read_text())
    assert {e["enc_type"] for e in content["param_encodings"]} == {"PER_CHANNEL", "PER_TENSOR"}
    del content["activation_encodings"][1:]
    file.write_text(json.dumps(content))
    onq(*words, status=0)
    case.near(again, 25.0)
    weight = next(e for e in content["param_encodings"] if e["bw"] == 8)
    weight["scale"] = [-1.0 for _ in weight["scale"]]
    file.write_text(json.dumps(content))
    refused(onq(*words), "e.json", f"tensor '{weight['name']}'")


AIMET = json.loads((pathlib.Path(__file__).parent / "aimet_encodings.json").read_text())


def aimet_weights(found):
    return [numpy_helper.from_array(np.array(w["values"], np.float32).reshape(w["shape"]), k) for k, w in found["weights"].items()]


def aimet_model():
    weights = aimet_weights(AIMET)
    nodes = [helper.make_node("Conv", ["x", "w0", "b0"], ["c"], "conv", pads=[1, 1, 1, 1], kernel_shape=[3, 3]), helper.make_node("Relu", ["c"], ["r"], "relu"),
             helper.make_node("GlobalAveragePool", ["r"], ["p"], "pool"), helper.make_node("Flatten", ["p"], ["f"], "flat"),
             helper.make_node("Gemm", ["f", "w1", "b1"], ["y"], "fc", transB=1)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [1, 3, 8, 8])], [helper.make_tensor_value_info("y", 1, [1, 10])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("version", ["0.6.1", "1.0.0", "2.0.0"])
def test_aimet(version, tmp_path):
    """Files that aimet-onnx exported: its parameters, and the outputs of its simulation to the last bit."""
    source, file, out = tmp_path / "m.onnx", tmp_path / "m.encodings", tmp_path / "q.onnx"
    onnx.save(aimet_model(), source)
    file.write_text(json.dumps(AIMET[version]))
    sample = {"x": np.array(AIMET["sample"], np.float32).reshape(1, 3, 8, 8)}
    np.savez(tmp_path / "data.npz", **sample)
    onq("static", "-i", source, "-o", out, "--encodings", file, "--data", tmp_path / "data.npz", "--per_channel", "--no_verify", status=0)
    made = {t.name: numpy_helper.to_array(t) for t in onnx.load(out).graph.initializer}
    for entry in AIMET["2.0.0"]["encodings"]:
        if entry["output_dtype"] != "int32" and entry["name"] != "f":  # what Flatten makes shares the parameters of p
            assert (made[entry["name"] + "_scale"] == np.array(entry["y_scale"], np.float32)).all(), entry["name"]
            assert (made[entry["name"] + "_zero_point"] == entry.get("y_zero_point", 0)).all(), entry["name"]
    assert (running.outputs(out, [sample], False).astype(np.float32) == np.array(AIMET["simulated"], np.float32)).all()


BLOCKS = json.loads((pathlib.Path(__file__).parent / "aimet_blocks.json").read_text())


def aimet_blocks_model():
    nodes = [helper.make_node("Conv", ["x", "wc", "bc"], ["c"], "conv", pads=[1] * 4, kernel_shape=[3, 3]), helper.make_node("Relu", ["c"], ["r"], "relu"),
             helper.make_node("Conv", ["r", "wp", "bp"], ["d"], "point", kernel_shape=[1, 1]), helper.make_node("GlobalAveragePool", ["d"], ["p"], "pool"),
             helper.make_node("Flatten", ["p"], ["f"], "flat"), helper.make_node("MatMul", ["f", "wm"], ["m"], "mul"),
             helper.make_node("Gemm", ["m", "wg", "bg"], ["y"], "fc", transB=1)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [1, 8, 5, 5])], [helper.make_tensor_value_info("y", 1, [1, 6])],
                              aimet_weights(BLOCKS))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def scales_of_blocks(entry, shape, axis):
    """The scales that a file of version 2.0.0 means, for each element of the weight."""
    scale = np.array(entry["y_scale"] if "y_scale" in entry else np.array(entry["per_channel_float_scale"]) * np.array(entry["per_block_int_scale"]), np.float32)
    return np.broadcast_to(np.repeat(scale, 4, axis), shape)


@pytest.mark.parametrize("version", ["1.0.0", "2.0.0"])
@pytest.mark.parametrize("kind", ["PER_BLOCK", "PER_BLOCK_asym", "LPBQ"])
def test_aimet_blocks(kind, version, tmp_path):
    """Weights in blocks that aimet-onnx exported: they lie on its grid, and the outputs are those of its simulation, but for two steps of 16 bits
    that another order of a sum gives. What convert writes of the result makes the same file again."""
    source, file, out, again = (tmp_path / n for n in ("m.onnx", "m.encodings", "q.onnx", "again.onnx"))
    onnx.save(aimet_blocks_model(), source)
    file.write_text(json.dumps(BLOCKS[kind][version]))
    sample = {"x": np.array(BLOCKS["sample"], np.float32).reshape(1, 8, 5, 5)}
    np.savez(tmp_path / "data.npz", **sample)
    words = ("--data", tmp_path / "data.npz", "--per_channel", "--no_verify", "--activation_type", "quint16", "--quiet")
    onq("static", "-i", source, "-o", out, "--encodings", file, *words, status=0)
    made = onnx.load(out)
    for entry in BLOCKS[kind]["2.0.0"]["encodings"]:
        if "block_size" in entry:
            node = next(n for n in made.graph.node if n.op_type == "DequantizeLinear" and n.input[0] == entry["name"] + "_quantized")
            got = next(numpy_helper.to_array(t) for t in made.graph.initializer if t.name == entry["name"] + "_scale")
            attributes = {a.name: a.i for a in node.attribute}
            assert attributes == {"axis": entry["axis"], "block_size": 4}
            shape = BLOCKS["weights"][entry["name"]]["shape"]
            assert (np.repeat(got, 4, entry["axis"]) == scales_of_blocks(entry, shape, entry["axis"])).all(), entry["name"]
    step = next(e["y_scale"] for e in BLOCKS[kind]["2.0.0"]["encodings"] if e["name"] == "y")
    want = np.array(BLOCKS[kind]["simulated"], np.float32)
    for optimised in (False, True):
        assert np.abs(running.outputs(out, [sample], optimised) - want).max() < 2.5 * step
    onq("convert", "-i", out, "-o", tmp_path / "f.onnx", "--to", "float", "--clips", "none", "--encodings", file, "--encodings_format", f"aimet-{version}",
        "--no_verify", "--quiet", status=0)
    assert kind == "PER_BLOCK_asym" or "PER_BLOCK" in file.read_text() or version == "2.0.0"
    onq("static", "-i", tmp_path / "f.onnx", "-o", again, "--encodings", file, *words, status=0)
    back = {t.name: numpy_helper.to_array(t) for t in onnx.load(again).graph.initializer}
    for t in made.graph.initializer:
        assert (back[t.name] == numpy_helper.to_array(t)).all(), t.name


def test_blocks_refused(tmp_path):
    """Blocks that do not fit: one line with the tensor. QOperator has none."""
    source, file = tmp_path / "m.onnx", tmp_path / "e.json"
    onnx.save(aimet_blocks_model(), source)
    np.savez(tmp_path / "data.npz", x=np.array(BLOCKS["sample"], np.float32).reshape(1, 8, 5, 5))
    words = ("static", "-i", source, "-o", tmp_path / "q.onnx", "--encodings", file, "--data", tmp_path / "data.npz", "--no_verify")
    file.write_text(json.dumps(BLOCKS["LPBQ"]["1.0.0"]))
    refused(onq(*words, "--quant_format", "QOperator"), "e.json", "encoded in blocks")
    for key, value, says in (("scale", [1.0], "1 scales for"), ("block_size", 0, "blocks of 0"), ("per_block_int_scale", ["a"], "not a number"),
                             ("per_block_int_scale", None, "per_block_int_scale")):
        content = json.loads(json.dumps(BLOCKS["LPBQ"]["1.0.0"]))
        entry = next(e for e in content["param_encodings"] if e["name"] == "wm")
        entry[key] = value
        if value is None:
            del entry[key]
        file.write_text(json.dumps(content))
        refused(onq(*words), "e.json: tensor 'wm'", says)


def test_packed_to_blocks_of_encodings(tmp_path):
    """MatMulNBits, its parameters as encodings, and the same integers again."""
    weight = np.random.default_rng(3).normal(0, 1, (64, 24)).astype(np.float32)
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], "mul")], "g", [helper.make_tensor_value_info("x", 1, [2, 64])],
                              [helper.make_tensor_value_info("y", 1, [2, 24])], [numpy_helper.from_array(weight, "w")])
    source, packed, plain, again, back, file = (tmp_path / n for n in ("m.onnx", "n.onnx", "f.onnx", "q.onnx", "b.onnx", "e.json"))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), source)
    np.savez(tmp_path / "data.npz", x=np.ones((2, 64), np.float32))
    onq("nbits", "-i", source, "-o", packed, "--block_size", "16", "--symmetric", "false", "--no_verify", "--quiet", status=0)
    onq("convert", "-i", packed, "-o", plain, "--to", "float", "--encodings", file, "--no_verify", "--quiet", status=0)
    onq("static", "-i", plain, "-o", again, "--encodings", file, "--data", tmp_path / "data.npz", "--activation_type", "quint16", "--no_verify", "--quiet", status=0)
    onq("convert", "-i", packed, "-o", back, "--to", "qdq", "--no_verify", "--quiet", status=0)
    ints = [next(t.raw_data for t in onnx.load(m).graph.initializer if t.data_type == TensorProto.UINT4 and list(t.dims) == [64, 24]) for m in (again, back)]
    assert ints[0] == ints[1]
    onq("nbits", "-i", source, "-o", packed, "--block_size", "16", "--no_verify", "--quiet", status=0)
    done = onq("convert", "-i", packed, "-o", plain, "--to", "float", "--encodings", file, "--no_verify", status=0)
    assert "1 tensors are not in it" in done.stderr  # its scales are negative, of which AIMET has none


def test_tensorrt_cache(tmp_path):
    """A calibration cache holds symmetric scales: the range is the larger end of what it was."""
    model = opmodels.build("Conv", 17)
    case = Case(tmp_path, model, STATIC["qdq"], opmodels.feeds(model, 1))
    file, again = tmp_path / "t.cache", tmp_path / "again.onnx"
    out = case.convert("float", "--encodings", file, "--encodings_format", "tensorrt")
    lines = file.read_text().splitlines()
    assert lines[0].startswith("TRT-") and len(lines) > 3
    onq("static", "--activation_type", "qint8", "--activation_symmetric", "-i", out, "-o", again, "--encodings", file, "--data", tmp_path / "data.npz",
        "--no_verify", "--quiet", status=0)
    scales = {t.name: float(numpy_helper.to_array(t)) for t in onnx.load(again).graph.initializer if t.name == "x_scale"}
    name, bits = next(line for line in lines if line.startswith("x: ")).rsplit(": ", 1)
    assert scales["x_scale"] == np.frombuffer(bytes.fromhex(bits)[::-1], np.float32)[0]
    case.near(again, 15.0)


@pytest.mark.parametrize("words", [("dynamic", "--per_channel"), ("static", "--quant_format", "QOperator", "--per_channel")])
def test_channels_below_opset_13(words, tmp_path):
    """Operators of integers have scales for each channel at opset 11, DequantizeLinear has them from 13 on: the result is raised."""
    model = opmodels.build("MatMul" if words[0] == "dynamic" else "Conv", 11)
    case = Case(tmp_path, model, words, opmodels.feeds(model, 1))
    assert onnx.load(case.made).opset_import[0].version < 13
    out = case.convert("qdq")
    assert next(o.version for o in onnx.load(out).opset_import if o.domain == "") == 13
    for optimised in (False, True):
        case.near(out, 40.0, optimised)


def test_relu_comes_back(tmp_path):
    """Quantizers remove Relu and Clip, because the range of the integers does their work."""
    for name, op in (("Relu", "Relu"), ("Clip", "Clip"), ("Relu.chain", "Clip")):
        model = opmodels.build(name, 17)
        case = Case(tmp_path, model, STATIC["qdq"], opmodels.feeds(model, 1))
        assert operators(case.made)[op] == 0
        out = case.convert("float")
        assert operators(out)[op] == 1
        case.better(out)
        assert operators(case.convert("float", "--clips", "none"))[op] == 0


def test_verifies_and_tells(tmp_path):
    """Without --no_verify the outputs are compared, and the summary says how far they are apart."""
    model = opmodels.build("Conv", 17)
    case = Case(tmp_path, model, STATIC["qdq"], opmodels.feeds(model, 1))
    out = tmp_path / "f.onnx"
    done = json.loads(onq("dequantize", "-i", case.made, "-o", out, "--json", status=0).stdout)
    assert done["pairs"] > 0 and done["weights"] >= 4 and 15 < done["sqnr"] < 80, done
    assert left(out) == []
    text = onq("convert", "--to", "float", "-i", case.made, "-o", out, status=0).stdout
    assert "dB from those of the input" in text
    dry = onq("convert", "--to", "float", "-i", case.made, "--dry_run", "--plan", tmp_path / "p.json", status=0)
    assert "nothing written" in dry.stdout
    plan = json.loads((tmp_path / "p.json").read_text())
    assert {"w0", "w1"} <= {t["name"] for t in plan["tensors"]}
    again = onq("convert", "--to", "float", "-i", case.source, "-o", out, "--quiet", status=0)
    assert "nothing in it had to be converted" in again.stderr
    out.unlink()
    refused(onq("convert", "--to", "float", "-i", case.source, "-o", out, "--strict"), "nothing in it has to be converted", "--strict")
    assert not out.exists()


@pytest.mark.parametrize("made, to", [("qdq-channels", "float"), ("qdq-channels", "qoperator"), ("qoperator", "float"), ("qoperator", "qdq")])
def test_from_plan(made, to, tmp_path):
    """A plan repeats the conversion with its options. Nodes that it leaves out stay as they are, and the result computes the same or comes nearer to
    float; what contradicts the model or itself is refused with node or tensor."""
    model = opmodels.mixed(17)
    case = Case(tmp_path, model, STATIC[made], opmodels.feeds(model, 1))
    plan, again = tmp_path / "p.json", tmp_path / "again.onnx"
    out = case.convert(to, "--plan", plan, *(("--partial",) if to == "qoperator" else ()))
    words = ("convert", "--from_plan", plan, "-i", case.made, "-o", again, "--no_verify")
    onq(*words, "--quiet", status=0)
    assert again.read_bytes() == out.read_bytes()
    content = json.loads(plan.read_text())
    there = {(n.op_type, n.output[0]) for n in onnx.load(case.made).graph.node}
    assert {(n["op_type"], n["output"]) for n in content["nodes"]} <= there  # nothing that the user never saw

    def edited(change):
        new = json.loads(json.dumps(content))
        change(new)
        plan.write_text(json.dumps(new))
        return onq(*words)

    operator = next(n for n in content["nodes"] if n["op_type"] not in ("QuantizeLinear", "DequantizeLinear")) if made == "qoperator" or to == "qoperator" else None
    if operator is not None:
        for change in (lambda c: c["nodes"].remove(operator), lambda c: c["nodes"][content["nodes"].index(operator)].update(treatment="float")):
            done = edited(change)
            assert done.returncode == 0, done.stderr
            assert "left as" in done.stdout
            kept = onnx.load(again)
            assert (operator["op_type"], operator["output"]) in {(n.op_type, n.output[0]) for n in kept.graph.node}
            for optimised in (False, True):
                case.near(again, 15.0 if to == "float" else 30.0, optimised)
    else:
        pair = next(n for n in content["nodes"] if n["op_type"] == "QuantizeLinear")
        reads = {n.output[0]: n.input[0] for n in onnx.load(case.made).graph.node if n.op_type == "DequantizeLinear"}
        both = [n for n in content["nodes"] if n is pair or reads.get(n["output"]) == pair["output"]]
        assert edited(lambda c: [c["nodes"].remove(n) for n in both]).returncode == 0
        assert {(n["op_type"], n["output"]) for n in both} <= {(n.op_type, n.output[0]) for n in onnx.load(again).graph.node}
        refused(edited(lambda c: c["nodes"].remove(pair)), f"node '{both[1]['name']}' (DequantizeLinear)", "the plan converts it and leaves")
        refused(edited(lambda c: c["nodes"].remove(both[1])), f"node '{both[1]['name']}' (DequantizeLinear)", "the plan leaves it and converts")
        tensor = next(t for t in content["tensors"] if "axis" not in t)
        refused(edited(lambda c: c["tensors"][content["tensors"].index(tensor)].update(scale=7.0)), "p.json", f"tensor '{tensor['name']}'")
    refused(edited(lambda c: c["nodes"][0].update(treatment="quantized")), "p.json", f"node '{content['nodes'][0]['name']}'", "quantizes nothing")
    refused(edited(lambda c: c["nodes"][0].update(output="nowhere")), "p.json", f"node '{content['nodes'][0]['name']}'", "not in the model")


def test_diff_and_inspect(tmp_path):
    """`diff --ignore form` compares what models stand for; `inspect` says which forms they can have."""
    model = opmodels.mixed(17)
    case = Case(tmp_path, model, STATIC["qdq-channels"], opmodels.feeds(model, 1))
    refused(case.convert("qoperator", status=None), "node 'deconv1' (ConvTranspose)", "--partial")
    integers = case.convert("qoperator", "--partial")
    assert onq("diff", case.made, integers).returncode == 1
    same = onq("diff", case.made, integers, "--ignore", "form")
    assert same.returncode == 0, same.stdout
    other = onnx.load(integers)
    scale = next(t for t in other.graph.initializer if t.name == "x_scale")
    scale.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(scale) * np.float32(2), "x_scale"))
    onnx.save(other, tmp_path / "other.onnx")
    found = onq("diff", case.made, tmp_path / "other.onnx", "--ignore", "form", status=1).stdout
    assert "value 'x': UINT8, scale" in found, found
    forms = json.loads(onq("inspect", case.made, "--json", status=0).stdout)["conversions"]
    assert not forms["qoperator"]["possible"] and "deconv1" in forms["qoperator"]["why"]
    assert forms["qdq"] == {"possible": True, "exact": True, "nodes": 0}
    forms = json.loads(onq("inspect", Case(tmp_path, opmodels.build("Conv", 17), STATIC["qdq"], opmodels.feeds(opmodels.build("Conv", 17), 1)).made,
                           "--json", status=0).stdout)["conversions"]
    assert forms["qoperator"] == {"possible": True, "exact": True, "nodes": forms["qoperator"]["nodes"]} and forms["qoperator"]["nodes"] > 0
    assert forms["float"]["possible"] and not forms["float"]["exact"] and forms["nbits"]["nodes"] == 0
    assert "conversions" not in json.loads(onq("inspect", case.source, "--json", status=0).stdout)


def test_float16(tmp_path):
    """Float, and then float16 inside; inputs and outputs stay float32."""
    model = opmodels.mixed(17)
    case = Case(tmp_path, model, STATIC["qoperator"], opmodels.feeds(model, 1))
    out = case.convert("float16")
    assert left(out) == [] and "Cast" in operators(out)
    assert any(t.data_type == TensorProto.FLOAT16 for t in onnx.load(out).graph.initializer)
    assert running.sqnr(running.outputs(case.convert("float"), case.samples, False), running.outputs(out, case.samples, False)) > 40


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_float32(kind, tmp_path):
    """No small floats are left, in inner graphs neither, except as types of inputs and outputs."""
    def branch(op, name):
        two = helper.make_node("Constant", [], [name + "_two"], value=helper.make_tensor("two", kind, [], [2.0]))
        return helper.make_graph([two, helper.make_node(op, ["y", name + "_two"], [name])], name, [], [helper.make_tensor_value_info(name, kind, None)])

    weight = np.random.default_rng(0).standard_normal(64)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("If", ["c"], ["z"], then_branch=branch("Mul", "t"), else_branch=branch("Add", "e")),
         helper.make_node("Cast", ["z"], ["f"], to=1), helper.make_node("Neg", ["f"], ["n"]), helper.make_node("Cast", ["n"], ["o"], to=kind)], "g",
        [helper.make_tensor_value_info("x", kind, [1, 8]), helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
        [helper.make_tensor_value_info("o", kind, [1, 8]), helper.make_tensor_value_info("z", kind, [1, 8])], [helper.make_tensor("w", kind, [8, 8], weight)])
    made, out = tmp_path / "m.onnx", tmp_path / "o.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), made)
    onq("convert", "--to", "float32", "-i", made, "-o", out, "--quiet", "--no_verify", status=0)
    result = onnx.load(out)
    onnx.checker.check_model(result, full_check=True)
    inside = [t for t in result.graph.initializer] + [a.t for n in result.graph.node for b in n.attribute for m in b.g.node for a in m.attribute]
    assert {t.data_type for t in inside} == {TensorProto.FLOAT} and operators(out)["Cast"] == 4
    assert [v.type.tensor_type.elem_type for v in [*result.graph.input, *result.graph.output]] == [kind, TensorProto.BOOL, kind, kind]
    if kind == TensorProto.FLOAT16:
        samples = [{"x": np.ones((1, 8), np.float16), "c": np.array(True)}]
        for optimised in (False, True):
            assert running.sqnr(running.outputs(made, samples, optimised), running.outputs(out, samples, optimised)) > 55
    else:  # the runtime has no kernels for it: what is float32 is what bfloat16 stands for
        assert (numpy_helper.to_array(result.graph.initializer[0]) == numpy_helper.to_array(graph.initializer[0]).astype(np.float32)).all()


@pytest.mark.parametrize("name", ["digits_cnn", "tiny_llama"])
def test_float16_and_back(name, tmp_path):
    """A quantized model with scales of float16, or one that computes in float16, in float32."""
    source = common.MODELS / name / "model.onnx"
    if not source.exists():
        pytest.skip("no shared models")
    half, out = tmp_path / "half.onnx", tmp_path / "out.onnx"
    onq("preprocess", "-i", source, "-o", half, "--float16", "all", "--quiet", status=0)
    done = json.loads(onq("convert", "--to", "float32", "-i", half, "-o", out, "--json", status=0).stdout)
    assert done["sqnr"] > 55
    assert not any(t.data_type == TensorProto.FLOAT16 for t in onnx.load(out).graph.initializer)
    assert set(operators(out)) <= set(operators(source)) | {"Cast"}


def test_lossy(tmp_path):
    """What has no exact counterpart is refused and named, or converted with its distance."""
    b = opmodels.B(17, seed=5)
    b.input("x", 6, 1, 8)
    b.node("LSTM", ["x", b.weight("w", 1, 64, 8, scale=0.3), b.weight("r", 1, 64, 16, scale=0.3)], ["y"], hidden_size=16)
    b.output("y")
    model = b.model()
    case = Case(tmp_path, model, ("dynamic",), opmodels.feeds(model, 1))
    assert "DynamicQuantizeLSTM" in operators(case.made)
    refused(case.convert("qdq", status=None), "LSTM_0_quant' (DynamicQuantizeLSTM)", "--lossy")
    done = json.loads(onq("convert", "--to", "qdq", "--lossy", "--json", "-i", case.made, "-o", tmp_path / "l.onnx", status=0).stdout)
    assert done["lossy"] == 1 and 20 < done["sqnr"] < 120


def test_inner_graphs_and_functions(tmp_path):
    """Pairs inside of If, and inside of a function."""
    scale, zero = numpy_helper.from_array(np.float32(0.05), "s"), numpy_helper.from_array(np.uint8(128), "z")
    pair = [helper.make_node("QuantizeLinear", ["v", "s", "z"], ["q"]), helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"])]
    body = [helper.make_node("Constant", [], ["s"], value=scale), helper.make_node("Constant", [], ["z"], value=zero),
            helper.make_node("Identity", ["i"], ["v"]), *pair, helper.make_node("Neg", ["d"], ["o"])]
    function = helper.make_function("own", "Fake", ["i"], ["o"], body, [helper.make_opsetid("", 17)])
    branch = [helper.make_graph([helper.make_node("Sigmoid", ["f"], ["v"]), *pair, helper.make_node(op, ["d"], ["b"])], op, [],
                                [helper.make_tensor_value_info("b", 1, [1, 4])]) for op in ("Neg", "Abs")]
    graph = helper.make_graph([helper.make_node("Fake", ["x"], ["f"], domain="own"),
                               helper.make_node("If", ["c"], ["y"], then_branch=branch[0], else_branch=branch[1])], "g",
                              [helper.make_tensor_value_info("x", 1, [1, 4]), helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
                              [helper.make_tensor_value_info("y", 1, [1, 4])], [scale, zero])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("own", 1)], functions=[function], ir_version=8)
    made, out = tmp_path / "m.onnx", tmp_path / "f.onnx"
    onnx.save(model, made)
    onq("dequantize", "-i", made, "-o", out, status=0)
    result = onnx.load(out)
    inside = [n.op_type for n in result.functions[0].node] + [n.op_type for a in result.graph.node[1].attribute for n in a.g.node]
    assert not any("Quant" in op for op in inside), inside
    samples = [{"x": np.array([[0.3, -0.2, 1.0, 2.0]], np.float32), "c": np.array(True)}]
    assert running.sqnr(running.outputs(made, samples, False), running.outputs(out, samples, False)) > 20


def test_contradictions(tmp_path):
    """One line with the node and the tensor."""
    def model(*nodes, more=()):
        inits = [numpy_helper.from_array(np.float32(0.1), "s"), numpy_helper.from_array(np.float32(0.2), "s2"),
                 numpy_helper.from_array(np.uint8(3), "z"), *more]
        graph = helper.make_graph(list(nodes), "g", [helper.make_tensor_value_info("x", 1, [1, 4])],
                                  [helper.make_tensor_value_info("y", 1, [1, 4])], inits)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
        return onq("dequantize", "-i", tmp_path / "m.onnx", "-o", tmp_path / "o.onnx", "--no_verify")

    quantize = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], name="first")
    refused(model(quantize, helper.make_node("DequantizeLinear", ["q", "s2", "z"], ["y"], name="second")), "node 'second'", "tensor 'q'", "'first'")
    refused(model(quantize, helper.make_node("Cast", ["q"], ["y"], to=1, name="odd")), "node 'odd' (Cast)", "tensor 'q'")
    ints = numpy_helper.from_array(np.ones((4, 4), np.int8), "w")
    refused(model(helper.make_node("MatMulInteger", ["wq", "w"], ["i"], name="half"), helper.make_node("Cast", ["i"], ["f"], to=1),
                  helper.make_node("Add", ["f", "x"], ["y"]), more=[ints, numpy_helper.from_array(np.ones((1, 4), np.int8), "wq")]),
            "node 'half' (MatMulInteger)")
    assert not (tmp_path / "o.onnx").exists()
