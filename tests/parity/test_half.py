"""test_half.py - float16 and bfloat16 models: dynamic quantization and QOperator put Cast around the integer operators.

The judge is the float16 model itself, run as users run it, and the same model in float32 as the reference quantizes it: the
integers of the weights are equal.
"""
import collections

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization as Q

import compare
import quantcase

F32, F16, BF16 = TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BFLOAT16
MS = {"domain": "com.microsoft"}


class Case:
    """Nodes and float constants; `build` makes the model in any float type."""

    def __init__(self, nodes, consts, x, y, others=(), xtype=None, ytype=None):
        self.nodes, self.x, self.y, self.others, self.xtype, self.ytype = nodes, x, y, others, xtype, ytype
        rng = np.random.default_rng(len(nodes) + 7)
        self.consts = {k: (rng.normal(size=s) * 0.3).astype(np.float16).astype(np.float32) for k, s in consts.items()}

    def build(self, kind, opset):
        def tensor(name, v):
            if kind == BF16:
                return helper.make_tensor(name, BF16, v.shape, v.ravel().tolist())
            return numpy_helper.from_array(v.astype(np.float16 if kind == F16 else np.float32), name)

        inits = [tensor(k, v) for k, v in self.consts.items()] + [numpy_helper.from_array(np.array(v), k) for k, v in self.others]
        info = helper.make_tensor_value_info
        counted = {"Split": {"num_outputs": 2}} if opset >= 18 else {}
        nodes = [helper.make_node(op, i, o, f"node_{o[0]}", **a, **counted.get(op, {})) for op, i, o, a in self.nodes]
        graph = helper.make_graph(nodes, "g",
                                  [info("x", self.xtype or kind, self.x)], [info("y", self.ytype or kind, self.y)], inits)
        domains = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=domains, ir_version=9 if opset < 21 else 10)

    def sample(self, seed=1):
        rng = np.random.default_rng(seed)
        if self.xtype in (TensorProto.INT32, TensorProto.INT64):
            return rng.integers(0, 8, size=self.x).astype(np.int32 if self.xtype == TensorProto.INT32 else np.int64)
        return rng.normal(size=self.x).astype(np.float16)


PADS = {"pads": [1, 1, 1, 1]}
CONV = [("Conv", ["x", "w", "b"], ["c"], PADS), ("Relu", ["c"], ["r"], {}), ("Conv", ["r", "w2"], ["y"], {})]
CASES = {
    "MatMul": Case([("MatMul", ["x", "w"], ["y"], {})], {"w": (96, 16)}, [4, 96], [4, 16]),
    "MatMul.chain": Case([("MatMul", ["x", "w"], ["a"], {}), ("MatMul", ["a", "w2"], ["b"], {}), ("Relu", ["b"], ["r"], {}),
                          ("MatMul", ["r", "w2"], ["y"], {})], {"w": (96, 16), "w2": (16, 16)}, [4, 96], [4, 16]),
    "MatMul.large": Case([("MatMul", ["x", "w"], ["y"], {})], {"w": (2048, 8)}, [4, 2048], [4, 8]),
    "Gemm": Case([("Gemm", ["x", "w", "b"], ["a"], {"transB": 1}), ("Sigmoid", ["a"], ["s"], {}), ("Gemm", ["s", "w2"], ["y"], {})],
                 {"w": (16, 32), "b": (16,), "w2": (16, 8)}, [4, 32], [4, 8]),
    "Conv": Case(CONV, {"w": (6, 3, 3, 3), "b": (6,), "w2": (4, 6, 3, 3)}, [1, 3, 8, 8], [1, 4, 6, 6]),
    "Conv.net": Case([("Conv", ["x", "w", "b"], ["c"], PADS), ("Clip", ["c", "zero", "six"], ["r"], {}),
                      ("MaxPool", ["r"], ["m"], {"kernel_shape": [2, 2], "strides": [2, 2]}), ("Conv", ["m", "w2"], ["d"], PADS),
                      ("Add", ["d", "m"], ["a"], {}), ("LeakyRelu", ["a"], ["l"], {}), ("AveragePool", ["l"], ["v"], {"kernel_shape": [2, 2]}),
                      ("Mul", ["v", "v"], ["q"], {}), ("Concat", ["q", "v"], ["t"], {"axis": 1}), ("Pad", ["t", "pads"], ["p"], {}),
                      ("Resize", ["p", "", "scales"], ["z"], {"mode": "nearest"}), ("GlobalAveragePool", ["z"], ["g"], {}),
                      ("Flatten", ["g"], ["f"], {}), ("Split", ["f"], ["s1", "s2"], {"axis": 1}), ("Softmax", ["s1"], ["e"], {}),
                      ("MatMul", ["s2", "w3"], ["k"], {}), ("Add", ["e", "k"], ["y"], {})],
                     {"w": (6, 3, 3, 3), "b": (6,), "w2": (6, 6, 3, 3), "w3": (6, 6)}, [1, 3, 8, 8], [1, 6],
                     [("pads", [0, 0, 1, 1, 0, 0, 1, 1]), ("scales", np.array([1, 1, 2, 2], np.float32))]),
    "Gather": Case([("Gather", ["t", "x"], ["y"], {})], {"t": (8, 6)}, [5], [5, 6], xtype=TensorProto.INT64),
    "Gather.MatMul": Case([("Gather", ["t", "x"], ["e"], {}), ("Transpose", ["e"], ["p"], {"perm": [1, 0]}), ("MatMul", ["p", "w"], ["y"], {})],
                          {"t": (8, 64), "w": (64, 6)}, [64], [64, 6], xtype=TensorProto.INT64),
    "Gather.tied": Case([("Gather", ["t", "x"], ["e"], {}), ("MatMul", ["e", "w"], ["m"], {}), ("Transpose", ["t"], ["u"], {"perm": [1, 0]}),
                         ("MatMul", ["m", "u"], ["y"], {})], {"t": (8, 64), "w": (64, 64)}, [5], [5, 8], xtype=TensorProto.INT64),
    "LSTM": Case([("LSTM", ["x", "w", "r", "b"], ["h", "last"], {"hidden_size": 5}), ("Squeeze", ["last", "axis"], ["s"], {}),
                  ("MatMul", ["s", "k"], ["y"], {})], {"w": (1, 20, 6), "r": (1, 20, 5), "b": (1, 40), "k": (5, 3)},
                 [7, 2, 6], [2, 3], [("axis", [0])]),
    "Attention": Case([("Attention", ["x", "w", "b"], ["a"], {"num_heads": 2, **MS}), ("MatMul", ["a", "w2"], ["y"], {})],
                      {"w": (16, 48), "b": (48,), "w2": (16, 4)}, [2, 5, 16], [2, 5, 4]),
    "EmbedLayerNormalization": Case(
        [("EmbedLayerNormalization", ["x", "", "word", "place", "", "gamma", "beta"], ["e", "mask"], {"epsilon": 1e-5, **MS}),
         ("MatMul", ["e", "w"], ["y"], {})],
        {"word": (8, 16), "place": (5, 16), "gamma": (16,), "beta": (16,), "w": (16, 4)}, [2, 5], [2, 5, 4], xtype=TensorProto.INT32),
    "mixed": Case([("MatMul", ["x", "w"], ["a"], {}), ("Cast", ["a"], ["f"], {"to": F32}), ("MatMul", ["f", "w32"], ["y"], {})],
                  {"w": (32, 16)}, [4, 32], [4, 8], [("w32", np.linspace(-1, 1, 128, dtype=np.float32).reshape(16, 8))], ytype=F32),
}
CASES["Conv.net"].consts.update(zero=np.float32(0), six=np.float32(6))


def db(want, got):
    want, got = np.asarray(want, np.float64), np.asarray(got, np.float64)
    assert np.isfinite(got).all()
    return 10 * np.log10((want ** 2).sum() / max(((want - got) ** 2).sum(), 1e-30))


def run(model, x):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    data = str(model) if not isinstance(model, onnx.ModelProto) else model.SerializeToString()
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def write(folder, case, kind, opset, name="float.onnx"):
    onnx.save(case.build(kind, opset), folder / name)
    return folder / name


def quantize(folder, case, kind, opset, words):
    path, out = write(folder, case, kind, opset), folder / "quantized.onnx"
    done = quantcase.onq(words[0], "-i", path, "-o", out, *words[1:])
    assert done.returncode == 0, done.stderr
    assert quantcase.loads(out) is None and quantcase.loads(out, optimised=False) is None
    return out, done.stderr


def integers(path):
    """The bytes of all 8-bit constants that are no zero points."""
    return sorted(numpy_helper.to_array(t).tobytes() for t in onnx.load(path).graph.initializer
                  if t.data_type in (TensorProto.INT8, TensorProto.UINT8) and numpy_helper.to_array(t).size > 16)


def kinds(path):
    return collections.Counter(n.op_type for n in onnx.load(path).graph.node)


class Reader(Q.CalibrationDataReader):
    def __init__(self, samples):
        self.rest = iter(samples)

    def get_next(self):
        return next(self.rest, None)


INTEGER = ("MatMulInteger", "ConvInteger", "QAttention", "DynamicQuantizeLSTM", "QEmbedLayerNormalization", "Gather")


@pytest.mark.difference("float16 and bfloat16, dynamic")
@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("name", CASES)
def test_dynamic(tmp_path, name, opset, per_channel):
    case, words = CASES[name], ["dynamic"] + ["--per_channel"] * per_channel
    out, _ = quantize(tmp_path, case, F16, opset, words)
    x = case.sample()
    want = run(tmp_path / "float.onnx", x)
    assert db(want, run(out, x)) > 25
    single = write(tmp_path, case, F32, opset, "float32.onnx")
    Q.quantize_dynamic(str(single), str(tmp_path / "ref32.onnx"), per_channel=per_channel)
    assert integers(out) == integers(tmp_path / "ref32.onnx")
    assert {k: v for k, v in kinds(out).items() if k in INTEGER} == \
        {k: v for k, v in kinds(tmp_path / "ref32.onnx").items() if k in INTEGER}
    if name == "MatMul":
        Q.quantize_dynamic(str(tmp_path / "float.onnx"), str(tmp_path / "ref.onnx"))
        assert quantcase.loads(tmp_path / "ref.onnx") is not None


def in_float32(model):
    """The same with float32 inputs and outputs: numpy has no bfloat16."""
    m = onnx.ModelProto()
    m.CopyFrom(model)
    for value in (*m.graph.input, *m.graph.output):
        if value.type.tensor_type.elem_type == BF16:
            value.type.tensor_type.elem_type = F32
            is_input = value in m.graph.input
            for n in m.graph.node:
                names = n.input if is_input else n.output
                for k, t in enumerate(names):
                    names[k] = t + "_half" if t == value.name else t
            ends = [value.name, value.name + "_half"] if is_input else [value.name + "_half", value.name]
            m.graph.node.insert(0 if is_input else len(m.graph.node), helper.make_node("Cast", ends[:1], ends[1:], to=BF16 if is_input else F32))
    return m


@pytest.mark.parametrize("opset", [17, 21])
@pytest.mark.parametrize("op, gates", [("GRU", 3), ("RNN", 1)])
def test_recurrent(tmp_path, op, gates, opset):
    case = Case([(op, ["x", "w", "r"], ["y"], {"hidden_size": 8})], {"w": (1, gates * 8, 8), "r": (1, gates * 8, 8)}, [4, 2, 8], [4, 1, 2, 8])
    out, _ = quantize(tmp_path, case, F16, opset, ["dynamic", "--op_types_to_quantize", op])
    assert kinds(out)["DequantizeLinear"] == 2
    x = case.sample()
    assert db(run(tmp_path / "float.onnx", x), run(out, x)) > 25


BRAIN = {name: CASES[name] for name in ("MatMul", "MatMul.large", "LSTM", "Gather", "Gather.MatMul")}
BRAIN["Gemm"] = Case([("Gemm", ["x", "w"], ["y"], {})], {"w": (32, 8)}, [4, 32], [4, 8])
BRAIN["Conv"] = Case([("Conv", ["x", "w", "b"], ["c"], PADS), ("Conv", ["c", "w2", "b2"], ["y"], {})],
                     {"w": (6, 3, 3, 3), "b": (6,), "w2": (4, 6, 3, 3), "b2": (4,)}, [1, 3, 8, 8], [1, 4, 6, 6])


@pytest.mark.difference("float16 and bfloat16, dynamic")
@pytest.mark.parametrize("name", BRAIN)
def test_bfloat16_dynamic(tmp_path, name):
    """The runtime does not compute in bfloat16: the float model does not load, nor does the reference's; the quantized one does."""
    case, out = BRAIN[name], tmp_path / "quantized.onnx"
    path = write(tmp_path, case, BF16, 17)
    done = quantcase.onq("dynamic", "-i", path, "-o", out)
    assert done.returncode == 0, done.stderr
    assert name == "Gather" or quantcase.loads(path) is not None
    if name == "MatMul":
        Q.quantize_dynamic(str(path), str(tmp_path / "ref.onnx"))
        assert quantcase.loads(tmp_path / "ref.onnx") is not None
    assert quantcase.loads(out) is None
    x = case.sample() if case.xtype else case.sample().astype(np.float32)
    assert db(run(write(tmp_path, case, F32, 17, "float32.onnx"), x), run(in_float32(onnx.load(out)), x)) > 25


def test_bfloat16_that_stays(tmp_path):
    """What still computes in bfloat16 is named."""
    case = Case([("MatMul", ["x", "w"], ["a"], {}), ("Add", ["a", "b"], ["y"], {})], {"w": (32, 8), "b": (8,)}, [4, 32], [4, 8])
    done = quantcase.onq("dynamic", "-i", write(tmp_path, case, BF16, 17), "-o", tmp_path / "out.onnx")
    assert done.returncode == 0 and "bfloat16" in done.stderr and "'node_y' (Add)" in done.stderr


SOUND = ("MatMul", "MatMul.chain", "MatMul.large", "Gather", "Gather.MatMul", "Gather.tied", "mixed")  # in the reference, from opset 21 on


@pytest.mark.difference("float16 in QOperator format")
@pytest.mark.parametrize("words", [[], ["--per_channel"], ["--activation_type", "qint8"]], ids=["plain", "channel", "int8"])
@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("name", [n for n in CASES if n not in ("LSTM", "Attention")])
def test_qoperator(tmp_path, name, opset, words):
    case = CASES[name]
    x = case.sample()
    np.savez(tmp_path / "data.npz", x=x[None])
    extra = ["--quant_format", "qoperator", "--data", tmp_path / "data.npz", *words]
    out, _ = quantize(tmp_path, case, F16, opset, ["static", *extra])
    want = run(tmp_path / "float.onnx", x)
    assert db(want, run(out, x)) > (15 if name == "Conv.net" else 22)
    if (name in SOUND and opset == 21) or words:
        return
    single = write(tmp_path, case, F32, opset, "float32.onnx")
    feed = x if case.xtype else x.astype(np.float32)
    static = {"quant_format": Q.QuantFormat.QOperator, "activation_type": Q.QuantType.QUInt8}
    try:
        Q.quantize_static(str(single), str(tmp_path / "ref32.onnx"), Reader([{"x": feed}]), **static)
    except AttributeError:
        return  # types that onnx does not find
    got, ref = kinds(out), kinds(tmp_path / "ref32.onnx")
    assert integers(out) == integers(tmp_path / "ref32.onnx")
    if name != "mixed":
        # one Cast for each place where a 16-bit tensor is quantized, or dequantized
        assert got["Cast"] <= ref["QuantizeLinear"] + ref["DequantizeLinear"]
    if name == "Conv":
        assert got == ref + collections.Counter({"Cast": 2})
        Q.quantize_static(str(tmp_path / "float.onnx"), str(tmp_path / "ref.onnx"), Reader([{"x": x}]), **static)
        assert quantcase.loads(tmp_path / "ref.onnx") is not None


@pytest.mark.parametrize("mode", ["dynamic", "static"])
def test_left_alone(tmp_path, mode):
    """--keep_float16 false."""
    case = CASES["Conv"]
    np.savez(tmp_path / "data.npz", x=case.sample()[None])
    words = [mode, "--keep_float16", "false"] + (["--quant_format", "qoperator", "--data", tmp_path / "data.npz"] if mode == "static" else [])
    out, said = quantize(tmp_path, case, F16, 17, words)
    assert kinds(out) == kinds(tmp_path / "float.onnx")
    assert "keep_float16" in said


@pytest.mark.parametrize("name", SOUND)
def test_as_the_reference(tmp_path, name):
    """From opset 21 on QLinearMatMul takes float16 scales: the reference's file is sound, and ours is that file."""
    case = CASES[name]
    x = case.sample()
    np.savez(tmp_path / "data.npz", x=x[None])
    out, _ = quantize(tmp_path, case, F16, 21, ["static", "--quant_format", "qoperator", "--data", tmp_path / "data.npz"])
    Q.quantize_static(str(tmp_path / "float.onnx"), str(tmp_path / "ref.onnx"), Reader([{"x": x}]),
                      quant_format=Q.QuantFormat.QOperator, activation_type=Q.QuantType.QUInt8)
    assert not compare.differences(tmp_path / "ref.onnx", out)


@pytest.mark.difference("float16 in QOperator format")
@pytest.mark.parametrize("where", ["weight", "input"])
def test_small_scales(tmp_path, where):
    """A scale below the least normal float16 becomes 1 in the reference, and nothing is left; float32 holds it."""
    case = Case([("MatMul", ["x", "w"], ["y"], {})], {"w": (32, 8)}, [4, 32], [4, 8])
    x = case.sample()
    if where == "weight":
        case.consts["w"] *= 0.004
    else:
        x = (x * 0.001).astype(np.float16)
    np.savez(tmp_path / "data.npz", x=x[None])
    out, _ = quantize(tmp_path, case, F16, 21, ["static", "--quant_format", "qoperator", "--data", tmp_path / "data.npz"])
    Q.quantize_static(str(tmp_path / "float.onnx"), str(tmp_path / "ref.onnx"), Reader([{"x": x}]), per_channel=False,
                      quant_format=Q.QuantFormat.QOperator, activation_type=Q.QuantType.QUInt8)
    want = run(tmp_path / "float.onnx", x)
    assert db(want, run(tmp_path / "ref.onnx", x)) < 3
    assert db(want, run(out, x)) > 30


@pytest.mark.parametrize("words", [["dynamic"], ["dynamic", "--enable_subgraph"], ["dynamic", "--enable_subgraph", "--matmul_const_b_only=false"],
                                   ["static", "--quant_format", "qoperator"], ["static", "--quant_format", "qoperator", "--enable_subgraph"]],
                         ids=" ".join)
def test_inner(tmp_path, words):
    """Branches read float16 tensors that exist around them as integers or float32 only."""
    rng = np.random.default_rng(2)

    def array(name, *shape):
        return numpy_helper.from_array((rng.normal(size=shape) * 0.3).astype(np.float16), name)

    def branch(k):
        nodes = [helper.make_node("MatMul", ["a", "outer"], [f"p{k}"], f"p{k}"), helper.make_node("MatMul", [f"p{k}", f"w{k}"], [f"q{k}"], f"q{k}"),
                 helper.make_node("Add", [f"q{k}", "a"], [f"y{k}"], f"y{k}")]
        return helper.make_graph(nodes, f"branch{k}", [], [helper.make_tensor_value_info(f"y{k}", F16, [4, 16])], [array(f"w{k}", 16, 16)])

    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], "a"),
             helper.make_node("If", ["go"], ["i"], "if", then_branch=branch(1), else_branch=branch(2)),
             helper.make_node("MatMul", ["i", "outer"], ["y"], "y")]
    g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", F16, [4, 32])], [helper.make_tensor_value_info("y", F16, [4, 16])],
                          [array("w", 32, 16), array("outer", 16, 16), numpy_helper.from_array(np.array(True), "go")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "float.onnx")
    x = rng.normal(size=(4, 32)).astype(np.float16)
    np.savez(tmp_path / "data.npz", x=x[None])
    out = tmp_path / "out.onnx"
    done = quantcase.onq(*words, *(["--data", tmp_path / "data.npz"] if words[0] == "static" else []), "-i", tmp_path / "float.onnx", "-o", out)
    assert done.returncode == 0, done.stderr
    assert quantcase.checks(out) is None
    assert db(run(tmp_path / "float.onnx", x), run(out, x)) > 25
