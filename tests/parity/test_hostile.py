"""Bad models against every quantizing command: a clean refusal or a right result, every time.

A small network is damaged in many ways: cut, bits flipped, numbers and names that do not fit, weights that are NaN,
external data that leads elsewhere. Whatever comes in, a command ends with status 0, 1 or 2 within the time limit. A refusal
is one line that names the file, with no control byte in it, and leaves nothing behind. A result loads in ONNX Runtime
wherever the input does, and its scales are finite and positive. That each fault is found where it is, with the right words,
is tested on tests/malformed and in the unit tests; here it is that nothing slips through.
"""
import random
import subprocess

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

from common import ONQ

SECONDS = 60  # far above what any case takes on a busy machine; a hang is what is looked for
COMMANDS = {
    "inspect": ["inspect", "m.onnx"],
    "dynamic": ["dynamic", "-i", "m.onnx", "-o", "out.onnx"],
    "nbits": ["nbits", "-i", "m.onnx", "-o", "out.onnx", "--op_types_to_quantize", "all"],
    "nbits-qdq": ["nbits", "-i", "m.onnx", "-o", "out.onnx", "--quant_format", "QDQ", "--all_weights"],
    "bnb4": ["bnb4", "-i", "m.onnx", "-o", "out.onnx"],
    "dynamic-channels": ["dynamic", "-i", "m.onnx", "-o", "out.onnx", "--per_channel", "--enable_subgraph"],
    "preprocess": ["preprocess", "-i", "m.onnx", "-o", "out.onnx"],
    "preprocess-builtin": ["preprocess", "-i", "m.onnx", "-o", "out.onnx", "--optimizer", "builtin"],
    "static": ["static", "-i", "m.onnx", "-o", "out.onnx", "--data", "random:2"],
    "static-qoperator": ["static", "-i", "m.onnx", "-o", "out.onnx", "--data", "random:2", "--quant_format", "qoperator",
                         "--per_channel"],
    "qat": ["qat", "-i", "m.onnx", "-o", "out.onnx"],
    "legacy": ["legacy", "-i", "m.onnx", "-o", "out.onnx"],
    "run": ["run", "m.onnx", "--data", "random:1"],
}
CASES = {}  # name -> bytes of the model
NUMBERS = np.random.default_rng(3)


def tensor(name, values, dtype=np.float32):
    return numpy_helper.from_array(np.asarray(values, dtype=dtype), name)


def network(opset=13, ir=8, nodes=None, more=()):
    nodes = nodes or [
        helper.make_node("Conv", ["X", "W", "B"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Flatten", ["r"], ["f"], "flat"),
        helper.make_node("MatMul", ["f", "M"], ["Y"], "mm"),
    ]
    weights = [tensor("W", NUMBERS.standard_normal((4, 3, 3, 3))), tensor("B", NUMBERS.standard_normal(4)),
               tensor("M", NUMBERS.standard_normal((64, 5)))]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("X", TensorProto.FLOAT, [1, 3, 4, 4])],
                              [helper.make_tensor_value_info("Y", TensorProto.FLOAT, None)], weights + list(more))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def case(name, model):
    CASES[name] = model if isinstance(model, bytes) else model.SerializeToString()


def damage(name):
    """The function changes a whole model in place."""

    def register(change):
        model = network()
        change(model)
        case(name, model)

    return register


# ---- bytes

WHOLE = network().SerializeToString()
RANDOM = random.Random(1)
case("whole", WHOLE)
for i in range(12):
    case(f"cut-{i}", WHOLE[:RANDOM.randrange(len(WHOLE))])
for i in range(40):
    data = bytearray(WHOLE)
    for _ in range(RANDOM.choice([1, 1, 2, 5])):
        data[RANDOM.randrange(len(data)) if i % 2 else RANDOM.randrange(400)] ^= 1 << RANDOM.randrange(8)
    case(f"flip-{i}", bytes(data))
for i in range(25):
    data = bytearray(WHOLE)
    data[len(data) - 1 - RANDOM.randrange(400)] = RANDOM.randrange(256)
    case(f"tail-{i}", bytes(data))
case("empty", b"")
case("text", b"hello world\n" * 100)
case("zeros", bytes(1000))
case("ones", b"\xff" * 1000)
case("empty-messages", b"\x3a\x80\x89\x7a" + b"\x0a\x00" * 1000000)
case("not-utf8", WHOLE.replace(b"relu", b"\xff\xfe\x00\x1b"))
case("escape-sequence", WHOLE.replace(b"conv", b"c\x1b[0"))

# ---- numbers

for what, value in {"nan": np.nan, "inf": np.inf, "-inf": -np.inf, "huge": 3e38, "denormal": 1e-42, "zero": 0.0,
                    "constant": 0.7}.items():
    spoiled = NUMBERS.standard_normal((4, 3, 3, 3)).astype(np.float32)
    spoiled[1] = value
    for index, values in enumerate([spoiled, np.full(4, value), np.full((64, 5), value)]):
        model = network()
        model.graph.initializer[index].CopyFrom(tensor("WBM"[index], values))
        case(f"weight-{index}-{what}", model)
for dtype in (np.float16, np.float64, np.int32):
    model = network()
    model.graph.initializer[0].CopyFrom(tensor("W", NUMBERS.standard_normal((4, 3, 3, 3)), dtype))
    case(f"weight-{np.dtype(dtype).name}", model)
for opset in (0, -1, 1, 7, 10, 12, 21, 24, 30, 999, 2**62):
    case(f"opset-{opset}", network(opset=opset))
for ir in (0, -1, 1, 3, 12, 999):
    case(f"ir-{ir}", network(ir=ir))
for what, dims in {"negative": [-4, 3, 3, 3], "large": [2**62, 3, 3, 3], "overflow": [2**32, 2**32, 1, 1],
                   "other": [5, 3, 3, 3], "none": [0, 3, 3, 3], "flat": [108], "many": [1] * 20 + [108]}.items():
    model = network()
    model.graph.initializer[0].dims[:] = dims
    case(f"dims-{what}", model)


@damage("no-elements")
def _(m):
    m.graph.initializer[0].dims[0] = 0
    m.graph.initializer[0].raw_data = b""


@damage("type-unknown")
def _(m):
    m.graph.initializer[0].data_type = 99


@damage("typed-short")
def _(m):
    m.graph.initializer[0].ClearField("raw_data")
    m.graph.initializer[0].float_data.extend([1.0] * 5)


# ---- names and edges

@damage("initializer-twice")
def _(m):
    m.graph.initializer.append(m.graph.initializer[0])


@damage("node-name-twice")
def _(m):
    m.graph.node[1].name = "conv"


@damage("output-twice")
def _(m):
    m.graph.node[1].output[0] = "c"


@damage("no-names")
def _(m):
    for n in m.graph.node:
        n.name = ""


# Names that a quantizer would give.
for taken in ("X_scale", "W_quantized", "X_QuantizeLinear_Output", "c_zero_point", "X_quantized"):
    model = network()
    model.graph.node[0].output[0] = model.graph.node[1].input[0] = taken
    case(f"taken-{taken}", model)
case("taken-all", network(more=[tensor(t, [1.0, 2.0, 3.0]) for t in (
    "W_scale", "W_zero_point", "W_quantized", "c_scale", "X_quantized", "X_QuantizeLinear_Output", "r_zero_point",
    "M_quantized", "f_quantized", "X_scale", "c_DequantizeLinear_Output", "B_quantized", "B_quantized_scale")]))


@damage("long-name")
def _(m):
    m.graph.node[0].output[0] = m.graph.node[1].input[0] = "n" * 1000000


@damage("cycle")
def _(m):
    m.graph.node[0].input[0] = "r"


@damage("input-missing")
def _(m):
    m.graph.node[1].input[0] = "nowhere"


@damage("no-nodes")
def _(m):
    m.graph.ClearField("node")


@damage("no-graph")
def _(m):
    m.ClearField("graph")


@damage("null-graph")
def _(m):
    m.graph.Clear()


@damage("one-input")
def _(m):
    del m.graph.node[0].input[1:]


@damage("no-output")
def _(m):
    del m.graph.node[0].output[:]


@damage("unknown-operator")
def _(m):
    m.graph.node[0].op_type = "Nonsense"


@damage("unknown-domain")
def _(m):
    m.graph.node[0].domain = "nowhere.example"


@damage("unsorted")
def _(m):
    nodes = list(m.graph.node)[::-1]
    del m.graph.node[:]
    m.graph.node.extend(nodes)


for what, values in {"short": [1], "large": [2**62] * 4, "negative": [-(2**62)] * 4}.items():
    model = network()
    model.graph.node[0].attribute[0].ints[:] = values
    case(f"pads-{what}", model)
for group in (0, -1, 7):
    model = network()
    model.graph.node[0].attribute.append(helper.make_attribute("group", group))
    case(f"group-{group}", model)


@damage("attribute-of-another-type")
def _(m):
    m.graph.node[0].attribute[0].type = 1


@damage("input-without-type")
def _(m):
    m.graph.input[0].ClearField("type")


@damage("input-huge")
def _(m):
    m.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2**40


@damage("output-of-nothing")
def _(m):
    m.graph.output[0].name = "nothing"


@damage("weight-is-input-too")
def _(m):
    m.graph.input.append(helper.make_tensor_value_info("W", TensorProto.FLOAT, [4, 3, 3, 3]))


@damage("wrong-value-info")
def _(m):
    m.graph.value_info.append(helper.make_tensor_value_info("c", TensorProto.INT64, [9]))


# ---- external data

for what, location, offset in [("absolute", "/etc/passwd", None), ("above", "../m.onnx", None), ("missing", "no.bin", None),
                               ("itself", "m.onnx", None), ("behind-the-end", "m.onnx", "999999"),
                               ("no-number", "m.onnx", "abc"), ("negative", "m.onnx", "-1"), ("2^64", "m.onnx", str(2**64)),
                               ("folder", ".", None), ("nothing", "", None), ("device", "/dev/zero", None),
                               ("memory", "*/_ORT_MEM_ADDR_/*", "140000000000")]:
    model = network()
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    if offset is not None:
        weight.external_data.add(key="offset", value=offset)
    case(f"external-{what}", model)

# ---- size and depth

chain = ["X", *(f"t{i}" for i in range(1, 20000)), "Y"]
case("chain", network(nodes=[helper.make_node("Relu", [a], [b], f"n{b}") for a, b in zip(chain, chain[1:])]))
case("fan", network(nodes=[helper.make_node("MatMul", ["X", "M"], [f"t{i}"], f"n{i}") for i in range(2000)]
                    + [helper.make_node("Sum", [f"t{i}" for i in range(2000)], ["Y"], "sum")]))


def nested(depth):
    """If in If, written by hand: the Python package cannot serialize what is so deep."""

    def block(number, data):
        n, size = len(data), bytearray()
        while n > 127:
            size.append(n & 127 | 128)
            n >>= 7
        return bytes([number << 3 | 2]) + bytes(size) + bytes([n]) + data

    body = block(1, block(1, b"a") + block(2, b"b") + block(4, b"Identity")) + block(2, b"g")
    for _ in range(depth):
        attribute = block(1, b"then_branch") + block(6, body) + b"\xa0\x01\x05"
        body = block(1, block(2, b"o") + block(4, b"If") + block(5, attribute)) + block(2, b"g")
    return block(7, body) + b"\x08\x08" + block(8, b"\x10\x0d")


for depth in (5, 99, 5000):
    case(f"nested-{depth}", nested(depth))


def doubling(levels):
    """Functions that each call the one before twice."""
    model = network(ir=9)
    model.opset_import.append(helper.make_opsetid("d", 1))
    for i in range(levels):
        calls = [("a", "t"), ("t", "b")]
        nodes = [helper.make_node(f"F{i - 1}", [x], [y], domain="d") for x, y in calls] if i else [
            helper.make_node("Relu", ["a"], ["b"])]
        model.functions.append(helper.make_function("d", f"F{i}", ["a"], ["b"], nodes,
                                                    [helper.make_opsetid("", 13), helper.make_opsetid("d", 1)]))
    model.graph.node[1].op_type, model.graph.node[1].domain = f"F{levels - 1}", "d"
    return model


case("functions-5", doubling(5))
case("functions-40", doubling(40))


# ---- the test

def loads(data):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception:  # whatever the runtime or its binding says: it does not load
        return False
    return True


def check_refusal(folder, status, err):
    assert not (folder / "out.onnx").exists(), "an output was left behind"
    lines = [line for line in err.split("\n") if line.startswith("onq: error: ")]
    assert len(lines) == 1 and len(err) < 6000, err[:1000]
    assert all(c >= " " or c == "\n" for c in err), repr(err[:1000])
    assert status == 2 or "m.onnx" in lines[0] or "random" in lines[0], lines[0]


def check_result(folder, name):
    data = (folder / "out.onnx").read_bytes()
    (folder / "out.onnx").unlink()
    if name.startswith(("functions", "external")):
        return  # the runtime would expand them; the other file is not here
    if not loads(data):
        assert not loads(CASES[name]), "the result does not load, the input does"
    assert name != "not-utf8", "Python cannot read such names"
    for t in onnx.load_from_string(data).graph.initializer:
        if t.name.endswith("_scale") and t.data_type == TensorProto.FLOAT and not name.startswith("taken"):
            values = numpy_helper.to_array(t)
            assert np.isfinite(values).all() and (values > 0).all(), t.name


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("name", CASES)
def test_bad_model(name, command, tmp_path):
    (tmp_path / "m.onnx").write_bytes(CASES[name])
    r = subprocess.run([ONQ, *COMMANDS[command]], cwd=tmp_path, capture_output=True, timeout=SECONDS, stdin=subprocess.DEVNULL)
    err = r.stderr.decode("utf-8", "replace")
    assert r.returncode in (0, 1, 2), err[-1000:]
    assert {p.name for p in tmp_path.iterdir()} <= {"m.onnx", "out.onnx"}
    if r.returncode != 0:
        check_refusal(tmp_path, r.returncode, err)
    elif command not in ("inspect", "run"):
        check_result(tmp_path, name)
