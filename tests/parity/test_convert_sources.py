"""test_convert_sources.py - every quantized operator that `onq convert` reads, made by hand, one model each: ONNX Runtime runs both ends.

The runtime has no kernel of QLinearReduceMean; the C tests have its row. To QDQ the outputs are the same, or one step of an output apart where a sum lies between two integers; to float they are as near
as the rounding of activations leaves them (`dB`). Operators stand in the main graph, and once inside of If, Loop, Scan and a
function.
"""
import numpy as np
import onnx
import pytest
from onnx import TensorProto as T
from onnx import helper, numpy_helper

import running
from common import onq, refused

R = np.random.default_rng(7)
MS = "com.microsoft"
CASES = {}


@pytest.fixture(autouse=True)
def seeded():
    """The same numbers for a case, whatever ran before it."""
    global R
    R = np.random.default_rng(7)


def case(name, to_float=30.0, to_qdq=35.0, refuses=None):
    """A function that returns (nodes, constants, inputs, output shape or None, output type)."""
    def keep(fn):
        CASES[name] = (fn, to_float, to_qdq, refuses)
        return fn
    return keep


def model(nodes, constants, inputs, kind=T.FLOAT):
    infos = [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for k, v in inputs.items()]
    inits = [c if isinstance(c, onnx.TensorProto) else numpy_helper.from_array(np.asarray(c), k) for k, c in constants.items()]
    for t, k in zip(inits, constants):
        t.name = k
    graph = helper.make_graph(nodes, "g", infos, [helper.make_tensor_value_info("y", kind, None)], inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid(MS, 1)], ir_version=10)


def real(*shape, scale=1.0):
    return (R.standard_normal(shape) * scale).astype(np.float32)


def pair(name):
    """QuantizeLinear of an input with scale s and zero point z."""
    return helper.make_node("QuantizeLinear", [name, "s", "z"], [name + "_q"], name + "_quantize")


def ends(node, extra, inputs, **more):
    """Inputs quantized, the node, its result dequantized."""
    constants = {"s": np.float32(0.03), "z": np.uint8(120), "sy": np.float32(more.pop("sy", 0.06)), "zy": np.uint8(more.pop("zy", 110)), **extra}
    last = helper.make_node("DequantizeLinear", ["y_q", "sy", "zy"], ["y"], "dequantize")
    return [*(pair(k) for k in inputs), node, last], constants, inputs


def weights(*shape, channels=None):
    return {"w": R.integers(-127, 128, shape).astype(np.int8), "sw": np.full(channels or (), 0.01, np.float32) * (1 + np.arange(channels or 1, dtype=np.float32) if channels else 1),
            "zw": np.zeros(channels or (), np.int8)}


for channels in (None, 6):
    @case(f"QLinearConv{'-channels' if channels else ''}", 25.0)
    def conv(channels=channels):
        node = helper.make_node("QLinearConv", ["x_q", "s", "z", "w", "sw", "zw", "sy", "zy", "b"], ["y_q"], "node", pads=[1, 1, 1, 1])
        return ends(node, {**weights(6, 3, 3, 3, channels=channels), "b": R.integers(-500, 500, 6).astype(np.int32)}, {"x": real(1, 3, 5, 5)}, sy=1.2 if channels else 0.1)


@case("QLinearMatMul")
def matmul():
    return ends(helper.make_node("QLinearMatMul", ["x_q", "s", "z", "w", "sw", "zw", "sy", "zy"], ["y_q"], "node"), weights(8, 5), {"x": real(4, 8)}, sy=0.1)


@case("QGemm")
def gemm():
    node = helper.make_node("QGemm", ["x_q", "s", "z", "w", "sw", "zw", "b", "sy", "zy"], ["y_q"], "node", domain=MS, transB=1, alpha=0.5)
    return ends(node, {**weights(5, 8), "b": R.integers(-500, 500, 5).astype(np.int32)}, {"x": real(4, 8)})


@case("QGemm-float")
def gemm_float():
    node = helper.make_node("QGemm", ["x_q", "s", "z", "w", "sw", "zw"], ["y"], "node", domain=MS)
    nodes, constants, inputs = ends(node, weights(8, 5), {"x": real(4, 8)})
    return nodes[:-1], constants, inputs


for op in ("Add", "Mul"):
    @case("QLinear" + op, 20.0)
    def binary(op=op):
        return ends(helper.make_node("QLinear" + op, ["x_q", "s", "z", "b_q", "s", "z", "sy", "zy"], ["y_q"], "node", domain=MS), {}, {"x": real(4, 8), "b": real(4, 8)})


for op, attributes in (("Sigmoid", {}), ("LeakyRelu", {"alpha": 0.2}), ("AveragePool", {"kernel_shape": [2, 2], "pads": [1, 0, 0, 1]}), ("GlobalAveragePool", {"channels_last": 0})):
    @case("QLinear" + op, 20.0)
    def unary(op=op, attributes=attributes):
        node = helper.make_node("QLinear" + op, ["x_q", "s", "z", "sy", "zy"], ["y_q"], "node", domain=MS, **attributes)
        return ends(node, {}, {"x": real(1, 3, 6, 6)}, sy=0.03 if op != "Sigmoid" else 0.004, zy=110 if op != "Sigmoid" else 0)


@case("QLinearSoftmax", 20.0)
def softmax():
    return ends(helper.make_node("QLinearSoftmax", ["x_q", "s", "z", "sy", "zy"], ["y_q"], "node", domain=MS, axis=1, opset=13), {}, {"x": real(4, 8)}, sy=0.004, zy=0)


@case("QLinearConcat")
def concat():
    return ends(helper.make_node("QLinearConcat", ["sy", "zy", "x_q", "s", "z", "b_q", "s", "z"], ["y_q"], "node", domain=MS, axis=1), {}, {"x": real(4, 8), "b": real(4, 3)})


@case("QLinearWhere")
def where():
    node = helper.make_node("QLinearWhere", ["c", "x_q", "s", "z", "b_q", "s", "z", "sy", "zy"], ["y_q"], "node", domain=MS)
    return ends(node, {"c": R.integers(0, 2, (4, 8)).astype(bool)}, {"x": real(4, 8), "b": real(4, 8)})


@case("QLinearGlobalAveragePool-last", refuses="channels_last")
def pool_last():
    return ends(helper.make_node("QLinearGlobalAveragePool", ["x_q", "s", "z", "sy", "zy"], ["y_q"], "node", domain=MS, channels_last=1), {}, {"x": real(1, 6, 6, 3)})


@case("QAttention", 25.0, 90.0)
def attention():
    node = helper.make_node("QAttention", ["x_q", "w", "b", "s", "sw", "", "z", "zw"], ["y"], "node", domain=MS, num_heads=2)
    nodes, constants, inputs = ends(node, {**weights(8, 24), "sw": np.float32(0.004), "b": real(24, scale=0.1)}, {"x": real(1, 5, 8)})
    return nodes[:-1], constants, inputs


@case("QEmbedLayerNormalization", 90.0, 90.0)
def embed():
    t = lambda *s: R.integers(0, 255, s).astype(np.uint8)  # noqa: E731
    names = ("word", "position", "segment", "gamma", "beta")
    constants = {"word": t(20, 8), "position": t(10, 8), "segment": t(2, 8), "gamma": t(8), "beta": t(8)}
    constants |= {k + "_s": np.float32(0.01) for k in names} | {k + "_z": np.uint8(100) for k in names}
    inputs = ["ids", "segments", *names, "mask", *(k + "_s" for k in names), *(k + "_z" for k in names)]
    node = helper.make_node("QEmbedLayerNormalization", inputs, ["y", "m"], "node", domain=MS)
    return [node], constants, {"ids": np.array([[1, 5, 19]], np.int32), "segments": np.array([[0, 1, 1]], np.int32), "mask": np.array([[1, 1, 0]], np.int32)}


def integers(op, shape, w, **attributes):
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"], "dynamic"), helper.make_node(op, ["q", "w", "qz", "zw"], ["i"], "node", **attributes),
             helper.make_node("Cast", ["i"], ["f"], "cast", to=1), helper.make_node("Mul", ["qs", "sw"], ["m"], "scales"), helper.make_node("Mul", ["f", "m"], ["y"], "scaled")]
    return nodes, w, {"x": real(*shape)}


@case("ConvInteger", to_qdq=90.0)
def conv_integer():
    return integers("ConvInteger", (1, 3, 5, 5), weights(6, 3, 3, 3), pads=[1, 1, 1, 1])


@case("MatMulInteger", to_qdq=90.0)
def matmul_integer():
    return integers("MatMulInteger", (4, 8), weights(8, 5))


@case("DynamicQuantizeMatMul", to_qdq=90.0)
def dynamic_matmul():
    return [helper.make_node("DynamicQuantizeMatMul", ["x", "w", "sw", "zw", "b"], ["y"], "node", domain=MS)], {**weights(8, 5), "b": real(5)}, {"x": real(4, 8)}


@case("MatMulIntegerToFloat", to_qdq=90.0)
def matmul_to_float():
    node = helper.make_node("MatMulIntegerToFloat", ["x_q", "w", "s", "sw", "z", "zw", "b"], ["y"], "node", domain=MS)
    nodes, constants, inputs = ends(node, {**weights(8, 5), "b": real(5)}, {"x": real(4, 8)})
    return nodes[:-1], constants, inputs


@case("DynamicQuantizeLSTM", 25.0, refuses="--lossy")
def lstm():
    q = lambda *s: R.integers(0, 255, s).astype(np.uint8)  # noqa: E731
    constants = {"w": q(1, 8, 24), "r": q(1, 6, 24), "b": real(1, 48, scale=0.1), "ws": np.array([0.005], np.float32), "wz": np.array([128], np.uint8),
                 "rs": np.array([0.005], np.float32), "rz": np.array([128], np.uint8)}
    node = helper.make_node("DynamicQuantizeLSTM", ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"], ["y"], "node", domain=MS, hidden_size=6)
    return [node], constants, {"x": real(4, 1, 8)}


def nbits(bits, block=16, k=40, n=12, zeros=None, bias=False, groups=None, kind=np.float32):
    blocks = -(-k // block)
    constants = {"w": R.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8), "ws": (R.random((n, blocks)) * 0.05 + 0.01).astype(kind)}
    inputs = ["x", "w", "ws", "", "", ""]
    if zeros == "packed":
        constants["wz"] = R.integers(0, 256, (n, -(-blocks * bits // 8))).astype(np.uint8)
    elif zeros == "float":
        constants["wz"] = (R.random((n, blocks)) * 2 ** bits).astype(kind)
    if zeros:
        inputs[3] = "wz"
    if groups is not None:
        constants["g"], inputs[4] = groups, "g"
    if bias:
        constants["b"], inputs[5] = real(n).astype(kind), "b"
    while not inputs[-1]:
        inputs.pop()
    node = helper.make_node("MatMulNBits", inputs, ["y"], "node", domain=MS, K=k, N=n, bits=bits, block_size=block)
    return [node], constants, {"x": real(3, k).astype(kind)}


for bits in (2, 4, 8):
    case(f"MatMulNBits-{bits}", 100.0, 100.0)(lambda bits=bits: nbits(bits, zeros="packed"))
case("MatMulNBits-plain", 100.0, 100.0)(lambda: nbits(4))
case("MatMulNBits-bias", 100.0, 100.0)(lambda: nbits(4, bias=True))
case("MatMulNBits-float", 100.0, 100.0, "--lossy")(lambda: nbits(4, zeros="float"))
case("MatMulNBits-odd", 100.0, 100.0)(lambda: nbits(4, k=40, n=7, zeros="packed"))
case("MatMulNBits-order", 100.0, 100.0)(lambda: nbits(4, k=32, groups=np.repeat(np.arange(2), 16).astype(np.int32)))
case("MatMulNBits-groups", 100.0, 100.0, "--lossy")(lambda: nbits(4, k=32, groups=R.permutation(np.repeat(np.arange(2), 16)).astype(np.int32)))
case("MatMulNBits-groups-zeros", refuses="zero points beside 'g'")(lambda: nbits(4, k=32, zeros="packed", groups=R.permutation(np.repeat(np.arange(2), 16)).astype(np.int32)))
case("MatMulNBits-float16", 45.0, 45.0)(lambda: nbits(4, kind=np.float16))


@case("MatMulBnb4", 100.0, 100.0, "--lossy")
def bnb4():
    constants = {"w": R.integers(0, 256, 40 * 12 // 2).astype(np.uint8), "m": (R.random(40 * 12 // 16) + 0.1).astype(np.float32)}
    node = helper.make_node("MatMulBnb4", ["x", "w", "m"], ["y"], "node", domain=MS, K=40, N=12, block_size=16, quant_type=1)
    return [node], constants, {"x": real(3, 40)}


for bits in (4, 8):
    @case(f"GatherBlockQuantized-{bits}", 100.0, 100.0)
    def gather(bits=bits):
        constants = {"t": R.integers(0, 256, (10, 32 * bits // 8)).astype(np.uint8), "ts": (R.random((10, 2)) + 0.1).astype(np.float32)}
        node = helper.make_node("GatherBlockQuantized", ["t", "x", "ts"], ["y"], "node", domain=MS, bits=bits, block_size=16, gather_axis=0, quantize_axis=1)
        return [node], constants, {"x": np.array([[1, 9, 0]], np.int64)}


def dequantized(data, scale, zero=None, domain="", **attributes):
    """A constant that is dequantized and added."""
    inputs = ["w", "ws", *(["wz"] if zero is not None else [])]
    nodes = [helper.make_node("DequantizeLinear", inputs, ["d"], "node", domain=domain, **attributes), helper.make_node("Add", ["x", "d"], ["y"], "add")]
    return nodes, {"w": data, "ws": scale, **({"wz": zero} if zero is not None else {})}, {"x": real(4, 8)}


case("float8", 100.0, 100.0)(lambda: dequantized(helper.make_tensor("w", T.FLOAT8E4M3FN, [4, 8], real(32)), np.float32(0.5), helper.make_tensor("wz", T.FLOAT8E4M3FN, [], [0.0])))
case("int16", 100.0, 100.0)(lambda: dequantized(R.integers(-30000, 30000, (4, 8)).astype(np.int16), np.float32(1e-4), np.int16(12)))
case("int16-contrib", 100.0, 100.0)(lambda: dequantized(R.integers(0, 60000, (4, 8)).astype(np.uint16), np.float32(1e-4), np.uint16(12), MS))
case("int4-channels", 100.0, 100.0)(lambda: dequantized(helper.make_tensor("w", T.INT4, [4, 8], R.integers(-8, 8, 32)), real(8) ** 2, axis=1))
case("int8-blocks", 100.0, 100.0)(lambda: dequantized(R.integers(-128, 127, (4, 8)).astype(np.int8), real(4, 2) ** 2, axis=1, block_size=4))


@pytest.mark.parametrize("name", CASES)
def test_source(name, tmp_path):
    fn, to_float, to_qdq, refuses = CASES[name]
    nodes, constants, inputs = fn()
    made = model(nodes, constants, inputs, T.FLOAT16 if name.endswith("float16") else T.FLOAT)
    if name.startswith("QEmbed"):
        made.graph.output[0].type.tensor_type.elem_type = T.FLOAT
    source = tmp_path / "source.onnx"
    onnx.save(made, source)
    before = running.outputs(source, [inputs], False)
    results = {}
    for to in ("float", "float32", "qdq"):
        out = tmp_path / f"{to}.onnx"
        done = onq("convert", "--to", to, "-i", source, "-o", out, "--no_verify", "--quiet")
        if refuses is not None and (to == "qdq" or "lossy" not in refuses):
            refused(done, "node 'node'", refuses)
            if "lossy" not in refuses:
                return
            onq("convert", "--to", to, "-i", source, "-o", out, "--no_verify", "--quiet", "--lossy", status=0)
        else:
            assert done.returncode == 0, done.stderr
        results[to] = {n.op_type for n in onnx.load(out).graph.node}
        if bits2(name, to):
            continue
        for optimised in (False, True):
            if to == "qdq" and optimised and "NBits" in name:
                continue  # MatMulNBits again, in int8: docs/CONVERT.md
            least = to_qdq if to == "qdq" and refuses is None else to_float
            got = running.sqnr(before, running.outputs(out, [inputs], optimised))
            assert got >= least, (to, optimised, got)
    assert not any("Quant" in op or op.startswith(("Q", "MatMulN", "MatMulB")) for op in results["float"]), results
    assert not any(op.startswith("QL") or "Integer" in op or op in ("QGemm", "QAttention") for op in results["qdq"]), results


def bits2(name, to):
    """The runtime has no DequantizeLinear of 2 bits."""
    return name == "MatMulNBits-2" and to == "qdq"


def inside(kind):
    """The pair and the product with a quantized weight, inside of something."""
    inner = [helper.make_node("QuantizeLinear", ["v", "s", "z"], ["q"]), helper.make_node("QLinearMatMul", ["q", "s", "z", "w", "sw", "zw", "sy", "zy"], ["m"], "product"),
             helper.make_node("DequantizeLinear", ["m", "sy", "zy"], ["o"])]
    turn = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], np.int8)  # keeps lengths, turn after turn
    w = {**weights(4, 4), "w": 64 * turn, "sw": np.float32(0.49 / 64)}  # 0.5 would end in ties of rounding
    constants = {"s": np.float32(0.03), "z": np.uint8(120), "sy": np.float32(0.03), "zy": np.uint8(120), **w, "yes": np.array(True), "three": np.array(3, np.int64)}
    info = lambda n, s: helper.make_tensor_value_info(n, 1, s)  # noqa: E731
    if kind == "If":
        body = [helper.make_graph([helper.make_node("Identity", ["x"], ["v"]), *inner], k, [], [info("o", [2, 4])]) for k in ("a", "b")]
        nodes, functions = [helper.make_node("If", ["yes"], ["y"], then_branch=body[0], else_branch=body[1])], []
    elif kind == "Loop":
        body = helper.make_graph([*inner, helper.make_node("Identity", ["c"], ["c2"])], "body",
                                 [helper.make_tensor_value_info("i", T.INT64, []), helper.make_tensor_value_info("c", T.BOOL, []), info("v", [2, 4])],
                                 [helper.make_tensor_value_info("c2", T.BOOL, []), info("o", [2, 4])])
        nodes, functions = [helper.make_node("Loop", ["three", "yes", "x"], ["y"], body=body)], []
    elif kind == "Scan":
        body = helper.make_graph([helper.make_node("Unsqueeze", ["r", "zero"], ["v"]), *inner], "body", [info("r", [4])], [info("o", [1, 4])])
        nodes, functions = [helper.make_node("Scan", ["x"], ["y"], body=body, num_scan_inputs=1)], []
        constants["zero"] = np.array([0], np.int64)
    else:
        own = [helper.make_node("Constant", [], [k], value=numpy_helper.from_array(np.asarray(v), k)) for k, v in constants.items() if k in ("s", "z", "sy", "zy", *w)]
        functions = [helper.make_function("own", "Own", ["v"], ["o"], [*own, *inner], [helper.make_opsetid("", 21)])]
        nodes, constants = [helper.make_node("Own", ["x"], ["y"], domain="own")], {}
    result = model(nodes, constants, {"x": real(2, 4)})
    result.functions.extend(functions)
    if functions:
        result.opset_import.append(helper.make_opsetid("own", 1))
    return result


@pytest.mark.parametrize("kind", ["If", "Loop", "Scan", "function"])
def test_inside(kind, tmp_path):
    source, samples = tmp_path / "source.onnx", [{"x": np.clip(real(2, 4), -1.7, 1.7)}]
    onnx.save(inside(kind), source)
    before = running.outputs(source, samples, False)
    for to, least in (("qdq", 35.0), ("float", 20.0)):
        out = tmp_path / f"{to}.onnx"
        onq("convert", "--to", to, "-i", source, "-o", out, "--no_verify", "--quiet", status=0)
        assert b"QLinear" not in out.read_bytes() and (to == "qdq" or b"QuantizeLinear" not in out.read_bytes())
        for optimised in (False, True):
            assert running.sqnr(before, running.outputs(out, samples, optimised)) >= least, (to, optimised)


def damaged(name, change):
    """A case with its constants or nodes changed."""
    nodes, constants, inputs = CASES[name][0]()
    change({n.name: n for n in nodes}, constants)
    return model(nodes, constants, inputs)


def cut(key, n):
    return lambda nodes, constants: constants.update({key: constants[key].ravel()[:n].copy()})


def swap(node, slot, value):
    def change(nodes, constants):
        nodes[node].input[slot] = value
    return change


def grow(key, size):
    return lambda nodes, constants: constants.update({key: np.full(size, 0.1 if constants[key].dtype == np.float32 else 0, constants[key].dtype)})


# Half-quantized, contradictory, foreign: the case, what is done to it, and what the line has to name.
WRONG = [("QLinearConv", swap("node", 4, ""), ("node 'node' (QLinearConv)", "input 4 is missing")), ("QLinearMatMul", grow("sw", 3), ("node 'node' (QLinearMatMul)", "'sw'")),
         ("QLinearMatMul", swap("dequantize", 1, "s"), ("node 'dequantize'", "'y_q'")), ("QGemm", grow("sw", 3), ("node 'node' (QGemm)", "'sw'")),
         ("MatMulInteger", swap("node", 2, "zw"), ("node 'node' (MatMulInteger)", "'q'")), ("MatMulInteger", swap("scaled", 1, "x"), ("node 'node' (MatMulInteger)",)),
         ("ConvInteger", swap("scales", 0, "sw"), ("node 'node' (ConvInteger)", "'q'")), ("DynamicQuantizeMatMul", grow("sw", 3), ("tensor 'w'", "'zw'")),
         ("DynamicQuantizeLSTM", grow("ws", 5), ("node 'node' (DynamicQuantizeLSTM)", "'w'")), ("MatMulNBits-4", cut("ws", 7), ("node 'node' (MatMulNBits)", "'ws'")),
         ("MatMulNBits-4", cut("w", 50), ("node 'node' (MatMulNBits)", "'w'")), ("MatMulNBits-4", cut("wz", 3), ("node 'node' (MatMulNBits)", "'wz'")),
         ("MatMulBnb4", cut("m", 3), ("node 'node' (MatMulBnb4)", "'m'")), ("GatherBlockQuantized-4", grow("ts", (3, 2)), ("node 'node' (GatherBlockQuantized)", "'ts'", "'t'")),
         ("int16", grow("ws", (3,)), ("node 'node' (DequantizeLinear)", "tensor 'w'", "'wz'")), ("int8-blocks", grow("ws", (4, 3)), ("node 'node' (DequantizeLinear)", "'ws'", "'w'")),
         ("int4-channels", grow("ws", (5,)), ("node 'node' (DequantizeLinear)", "'ws'", "'w'"))]


@pytest.mark.parametrize("at", range(len(WRONG)))
def test_contradictions(at, tmp_path):
    """One line with the node and the tensor, and no output."""
    name, change, says = WRONG[at]
    source, out = tmp_path / "source.onnx", tmp_path / "out.onnx"
    onnx.save(damaged(name, change), source)
    refused(onq("convert", "--to", "float", "-i", source, "-o", out, "--no_verify"), *says)
    assert not out.exists()
