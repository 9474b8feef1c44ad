#!/usr/bin/env python3
"""measure_runtimes.py [--only CASE] — what each version of ONNX Runtime can run, measured; writes src/quantize/ort/runtime.def.

Needs build/onq, build/venv and the runtimes of `tools/setup.sh runtimes`. Each case is a small model with inputs and the
output that numpy computes for it. `onq run` runs it in every runtime, with the runtime's optimisations and without. What
comes of it is one character for each version:

    +   right with optimisations and without (35 dB or more from numpy; an 8-bit product has 40 and more)
    o   right only with graph optimisation off
    x   runs and computes something else
    -   does not load or run
"""
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx.reference
from onnx import TensorProto as T
from onnx import helper, numpy_helper

ROOT = Path(__file__).resolve().parent.parent
ONQ = ROOT / "build/onq"
OUT = ROOT / "src/quantize/ort/runtime.def"
RIGHT = 35.0
ROWS, K, N = 17, 256, 96  # of products with weights of few bits: large enough for the kernels that large models get
MS = "com.microsoft"
random = np.random.default_rng(7)
CASES = []


def case(name, about):
    def add(make):
        CASES.append((name, about, make))
        return make
    return add


# ---- models

def model(nodes, inputs, outputs, constants, opset, ir=None):
    """Inputs and outputs are names of float tensors with their shapes; constants are TensorProtos or arrays by name."""
    inits = [c if isinstance(c, onnx.TensorProto) else numpy_helper.from_array(c, k) for k, c in constants.items()]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(k, T.FLOAT, s) for k, s in inputs.items()],
                              [helper.make_tensor_value_info(k, T.FLOAT, s) for k, s in outputs.items()], inits)
    domains = {n.domain for n in nodes if n.domain}
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)])
    m.ir_version = ir or (13 if opset >= 25 else 10 if opset >= 21 else 9)
    return m


def packed(name, kind, values):
    """A tensor of 2 or 4 bits, two or four values to a byte."""
    bits = 2 if kind in (T.INT2, T.UINT2) else 4
    flat = values.astype(np.int64).ravel() & (2**bits - 1)
    per = 8 // bits
    flat = np.concatenate([flat, np.zeros(-len(flat) % per, np.int64)]).reshape(-1, per)
    data = sum(flat[:, i] << (bits * i) for i in range(per)).astype(np.uint8).tobytes()
    return helper.make_tensor(name, kind, list(values.shape), data, raw=True)


LOW, HIGH = {}, {}
for kind, low, high in ((T.INT4, -8, 7), (T.UINT4, 0, 15), (T.INT2, -2, 1), (T.UINT2, 0, 3), (T.INT8, -128, 127), (T.UINT8, 0, 255),
                        (T.INT16, -32768, 32767), (T.UINT16, 0, 65535)):
    LOW[kind], HIGH[kind] = low, high
ARRAY = {T.INT8: np.int8, T.UINT8: np.uint8, T.INT16: np.int16, T.UINT16: np.uint16}


def integers(name, kind, values):
    return numpy_helper.from_array(values.astype(ARRAY[kind]), name) if kind in ARRAY else packed(name, kind, values)


def drawn(kind, shape):
    return random.integers(LOW[kind], HIGH[kind] + 1, shape)


def quantized(x, scale, zero, kind):
    q = np.clip(np.rint(x / scale) + zero, LOW[kind], HIGH[kind])
    return (q - zero) * scale


# ---- pairs

def pair_model(kind, domain, opset):
    """x through a pair, times a weight of 8 bits."""
    x = random.normal(size=(4, 16)).astype(np.float32)
    w, ws = drawn(T.INT8, (16, 8)), np.float32(0.01)
    scale = np.float32(8 / (HIGH[kind] - LOW[kind]))
    zero = 0 if LOW[kind] < 0 else (HIGH[kind] + 1) // 2
    c = {"s": scale, "z": integers("z", kind, np.array(zero)), "ws": ws, "w": integers("w", T.INT8, w),
         "wz": np.array(0, np.int8)}
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], domain=domain),
             helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], domain=domain),
             helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], domain=domain),
             helper.make_node("MatMul", ["d", "wd"], ["y"])]
    want = quantized(x.astype(np.float64), scale, zero, kind) @ (w * float(ws))
    return model(nodes, {"x": [4, 16]}, {"y": [4, 8]}, c, opset), {"x": x}, want


for _name, _kind in (("int8", T.INT8), ("uint8", T.UINT8)):
    case(f"pair_{_name}", f"pairs of {_name}")(lambda k=_kind: pair_model(k, "", 13))
for _name, _kind in (("int16", T.INT16), ("uint16", T.UINT16), ("int4", T.INT4), ("uint4", T.UINT4)):
    case(f"pair_{_name}", f"pairs of {_name} of ONNX (opset 21)")(lambda k=_kind: pair_model(k, "", 21))
    case(f"pair_{_name}_ms", f"pairs of {_name} of com.microsoft")(lambda k=_kind: pair_model(k, MS, 17))


def float8_model():
    x = random.normal(size=(4, 16)).astype(np.float32)
    import ml_dtypes
    scale = np.float32(0.05)
    want = (x / scale).astype(ml_dtypes.float8_e4m3fn).astype(np.float64) * scale
    zero = helper.make_tensor("z", T.FLOAT8E4M3FN, [], b"\0", raw=True)
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"])]
    return model(nodes, {"x": [4, 16]}, {"y": [4, 16]}, {"s": scale, "z": zero}, 19), {"x": x}, want


case("pair_float8", "pairs of float8e4m3fn (opset 19)")(float8_model)


def weight_model(kind, block, axis, with_zero, opset):
    """A weight of few bits, dequantized by channel (block 0) or in blocks along an axis, and MatMul."""
    x = random.normal(size=(ROWS, K)).astype(np.float32)
    w = drawn(kind, (K, N))
    shape = (N,) if block == 0 else (K // block, N) if axis == 0 else (K, N // block)
    s = random.uniform(0.01, 0.1, shape).astype(np.float32)
    z = drawn(kind, shape) if with_zero else None
    c = {"w": integers("w", kind, w), "s": s}

    def spread(a):
        return a if block == 0 else np.repeat(a, block, axis)
    if with_zero:
        c["z"] = integers("z", kind, z)
    wide = (w - (spread(z) if with_zero else 0)) * spread(s).astype(np.float64)
    attributes = {"axis": 1} if block == 0 else {"axis": axis, "block_size": block}
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"] + ["z"] * with_zero, ["d"], **attributes),
             helper.make_node("MatMul", ["x", "d"], ["y"])]
    return model(nodes, {"x": [ROWS, K]}, {"y": [ROWS, N]}, c, opset), {"x": x}, x.astype(np.float64) @ wide


for _name, _kind, _opset in (("int4", T.INT4, 21), ("uint4", T.UINT4, 21), ("int8", T.INT8, 21), ("uint8", T.UINT8, 21), ("int2", T.INT2, 25),
                             ("uint2", T.UINT2, 25)):
    if _kind not in (T.INT8, T.UINT8):
        case(f"channel_{_name}", f"weights of {_name} by channel")(lambda k=_kind, o=_opset: weight_model(k, 0, 1, False, o))
    for _zero in (False, True):
        _end, _about = ("_zero", " with zero points") if _zero else ("", "")
        case(f"blocks_{_name}{_end}", f"weights of {_name} in blocks along axis 0{_about}, MatMul")(
            lambda k=_kind, o=_opset, z=_zero: weight_model(k, 32, 0, z, o))
    case(f"blocks_{_name}_axis1", f"weights of {_name} in blocks along axis 1, MatMul")(
        lambda k=_kind, o=_opset: weight_model(k, 32, 1, False, o))


# ---- weights of few bits

def nbits_model(bits, zero, level, block=32, n=None, k=None, bias=False):
    n, k = n or N, k or K
    x = random.normal(size=(ROWS, k)).astype(np.float32)
    blocks = k // block
    w = random.integers(0, 2**bits, (n, blocks, block))
    s = random.uniform(0.01, 0.1, (n, blocks)).astype(np.float32)
    per = 8 // bits
    data = sum(w.reshape(n, blocks, -1, per)[..., i] << (bits * i) for i in range(per)).astype(np.uint8)
    c = {"w": data, "s": s.reshape(-1)}
    names, z = ["x", "w", "s"], np.full((n, blocks), 2.0**(bits - 1))
    if zero == "packed":
        z = random.integers(0, 2**bits, (n, blocks)).astype(np.float64)
        padded = np.concatenate([z, np.zeros((n, -blocks % per))], 1).astype(np.int64).reshape(n, -1, per)
        c["z"] = sum(padded[..., i] << (bits * i) for i in range(per)).astype(np.uint8).reshape(-1)
        names.append("z")
    elif zero == "float":
        z = random.uniform(0, 2**bits - 1, (n, blocks)).astype(np.float32)
        c["z"] = z.reshape(-1)
        names.append("z")
    wide = ((w - z[..., None].astype(np.float64)) * s[..., None].astype(np.float64)).reshape(n, k)
    want = x.astype(np.float64) @ wide.T
    if bias:
        c["b"] = random.normal(size=n).astype(np.float32)
        names += [""] * (5 - len(names)) + ["b"]
        want = want + c["b"]
    node = helper.make_node("MatMulNBits", names, ["y"], domain=MS, K=k, N=n, bits=bits, block_size=block, accuracy_level=level)
    return model([node], {"x": [ROWS, k]}, {"y": [ROWS, n]}, c, 17), {"x": x}, want


for _bits in (2, 4, 8):
    for _zero, _about in (("", "symmetric"), ("packed", "with packed zero points"), ("float", "with float zero points")):
        for _level in (0, 4):
            _name = f"nbits{_bits}{'_' + _zero if _zero else ''}{'_level4' if _level else ''}"
            case(_name, f"MatMulNBits of {_bits} bits {_about}{', accuracy level 4' if _level else ''}")(
                lambda b=_bits, z=_zero, v=_level: nbits_model(b, z, v))
case("nbits4_block16", "MatMulNBits of 4 bits in blocks of 16")(lambda: nbits_model(4, "", 0, block=16))
case("nbits4_block128", "MatMulNBits of 4 bits in blocks of 128")(lambda: nbits_model(4, "", 0, block=128))
case("nbits4_block256", "MatMulNBits of 4 bits in blocks of 256")(lambda: nbits_model(4, "", 0, block=256))
case("nbits4_block512", "MatMulNBits of 4 bits in blocks of 512")(lambda: nbits_model(4, "", 0, block=512, k=512))
case("nbits4_bias", "MatMulNBits of 4 bits with a bias")(lambda: nbits_model(4, "", 0, bias=True))


def gather_model(bits, kind, with_zero, in_bytes=False):
    block, rows, width = 16, 12, 32
    w = drawn(kind, (rows, width))
    s = random.uniform(0.01, 0.1, (rows, width // block)).astype(np.float32)
    z = drawn(kind, s.shape) if with_zero else np.zeros(s.shape, np.int64)
    c = {"s": s, "i": np.array([3, 0, 11, 7], np.int64)}
    attributes = {"gather_axis": 0, "quantize_axis": 1, "block_size": block}
    if bits == 8 or in_bytes:
        attributes["bits"] = bits
    c["w"] = integers("w", kind, w) if not in_bytes else (w[:, ::2] + 16 * w[:, 1::2]).astype(np.uint8)
    if with_zero:
        c["z"] = integers("z", kind, z) if not in_bytes else (z[:, ::2] + 16 * z[:, 1::2]).astype(np.uint8)
    elif LOW[kind] == 0:
        z = np.full(s.shape, 2**(bits - 1))
    wide = (w - np.repeat(z, block, 1)) * np.repeat(s, block, 1).astype(np.float64)
    node = helper.make_node("GatherBlockQuantized", ["w", "i", "s"] + ["z"] * with_zero, ["g"], domain=MS, **attributes)
    add = helper.make_node("Add", ["g", "x"], ["y"])
    m = model([node, add], {"x": [1, 32]}, {"y": [4, 32]}, c, 21)
    return m, {"x": np.zeros((1, 32), np.float32)}, wide[c["i"]]


case("gather_int4", "GatherBlockQuantized of int4")(lambda: gather_model(4, T.INT4, False))
case("gather_uint4_zero", "GatherBlockQuantized of uint4 with zero points")(lambda: gather_model(4, T.UINT4, True))
case("gather_bytes4", "GatherBlockQuantized of 4 bits in bytes")(lambda: gather_model(4, T.UINT4, False, in_bytes=True))
case("gather_bytes4_zero", "GatherBlockQuantized of 4 bits in bytes with zero points")(lambda: gather_model(4, T.UINT4, True, in_bytes=True))
case("gather_uint8", "GatherBlockQuantized of 8 bits")(lambda: gather_model(8, T.UINT8, False))
case("gather_uint8_zero", "GatherBlockQuantized of 8 bits with zero points")(lambda: gather_model(8, T.UINT8, True))


# ---- integer operators

def linear_model(op, domain, more, compute, shape, **attributes):
    """QuantizeLinear, an operator of integers, DequantizeLinear. `more` are constants by the order of its inputs."""
    x = random.uniform(-1, 1, shape).astype(np.float32)
    xs, xz, ys, yz = np.float32(2 / 255), np.uint8(128), np.float32(0.05), np.uint8(110)
    c = {"xs": xs, "xz": xz, "ys": ys, "yz": yz, **{k: v for k, v in more.items() if isinstance(v, np.ndarray)}}
    names = ["q", "xs", "xz", *more]
    names = [n if n != "ys_yz" else "ys" for n in names]
    flat = []
    for n in names:
        flat += ["ys", "yz"] if n == "ys" else [n]
    nodes = [helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]),
             helper.make_node(op, flat, ["r"], domain=domain, **attributes),
             helper.make_node("DequantizeLinear", ["r", "ys", "yz"], ["y"])]
    exact = compute(quantized(x.astype(np.float64), xs, 128, T.UINT8))
    want = quantized(exact, ys, 110, T.UINT8)
    return model(nodes, {"x": list(shape)}, {"y": list(want.shape)}, c, 17), {"x": x}, want


def product_model():
    w = drawn(T.INT8, (16, 8)).astype(np.int8)
    return linear_model("QLinearMatMul", "", {"w": w, "ws": np.array(0.01, np.float32), "wz": np.array(0, np.int8), "ys_yz": None},
                        lambda x: x @ (w * 0.01), (4, 16))


def conv_model():
    w = drawn(T.INT8, (4, 3, 1, 1)).astype(np.int8)
    ws = np.array([0.01, 0.02, 0.005, 0.01], np.float32)
    return linear_model("QLinearConv", "", {"w": w, "ws": ws, "wz": np.zeros(4, np.int8), "ys_yz": None},
                        lambda x: np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0] * ws[:, None].astype(np.float64)), (1, 3, 5, 5))


def gemm_model():
    w = drawn(T.INT8, (16, 8)).astype(np.int8)
    b = random.integers(-500, 500, 8).astype(np.int32)
    scale = float(np.float32(2 / 255)) * 0.01
    return linear_model("QGemm", MS, {"w": w, "ws": np.array(0.01, np.float32), "wz": np.array(0, np.int8), "b": b, "ys_yz": None},
                        lambda x: x @ (w * 0.01) + b * scale, (4, 16))


case("QLinearMatMul", "QLinearMatMul")(product_model)
case("QLinearConv", "QLinearConv by channel")(conv_model)
case("QGemm", "QGemm of com.microsoft")(gemm_model)
_b = {"w": np.full((1, 16), 140, np.uint8), "ws": np.array(0.02, np.float32), "wz": np.array(128, np.uint8), "ys_yz": None}
case("QLinearAdd", "QLinearAdd of com.microsoft")(lambda: linear_model("QLinearAdd", MS, _b, lambda x: x + 0.24, (4, 16)))
case("QLinearMul", "QLinearMul of com.microsoft")(lambda: linear_model("QLinearMul", MS, _b, lambda x: x * 0.24, (4, 16)))
case("QLinearSigmoid", "QLinearSigmoid of com.microsoft")(
    lambda: linear_model("QLinearSigmoid", MS, {"ys_yz": None}, lambda x: 1 / (1 + np.exp(-x)), (4, 16)))
case("QLinearLeakyRelu", "QLinearLeakyRelu of com.microsoft")(
    lambda: linear_model("QLinearLeakyRelu", MS, {"ys_yz": None}, lambda x: np.where(x < 0, 0.5 * x, x), (4, 16), alpha=0.5))
case("QLinearSoftmax", "QLinearSoftmax of com.microsoft")(
    lambda: linear_model("QLinearSoftmax", MS, {"ys_yz": None}, lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True), (4, 4), axis=1, opset=13))
case("QLinearAveragePool", "QLinearAveragePool of com.microsoft")(
    lambda: linear_model("QLinearAveragePool", MS, {"ys_yz": None}, lambda x: x.reshape(1, 3, 2, 2, 2, 2).mean((3, 5)), (1, 3, 4, 4),
                         kernel_shape=[2, 2], strides=[2, 2]))
case("QLinearGlobalAveragePool", "QLinearGlobalAveragePool of com.microsoft")(
    lambda: linear_model("QLinearGlobalAveragePool", MS, {"ys_yz": None}, lambda x: x.mean((2, 3), keepdims=True), (1, 3, 4, 4), channels_last=0))


def concat_model():
    m, feed, _ = linear_model("QLinearSigmoid", MS, {"ys_yz": None}, lambda x: x, (4, 16))
    m.graph.node[1].op_type = "QLinearConcat"
    m.graph.node[1].input[:] = ["ys", "yz", "q", "xs", "xz", "q", "xs", "xz"]
    m.graph.node[1].attribute.append(helper.make_attribute("axis", 0))
    m.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 8
    x = quantized(feed["x"].astype(np.float64), np.float32(2 / 255), 128, T.UINT8)
    return m, feed, quantized(np.concatenate([x, x]), np.float32(0.05), 110, T.UINT8)


def where_model():
    m, feed, _ = linear_model("QLinearSigmoid", MS, {"ys_yz": None}, lambda x: x, (4, 16))
    mask = (np.arange(16) % 3 == 0).reshape(1, 16)
    m.graph.initializer.append(numpy_helper.from_array(mask, "mask"))
    m.graph.node[1].op_type = "QLinearWhere"
    m.graph.node[1].input[:] = ["mask", "q", "xs", "xz", "q", "ys", "yz", "ys", "yz"]
    x = feed["x"].astype(np.float64)
    q = np.clip(np.rint(x / np.float32(2 / 255)) + 128, 0, 255)
    exact = np.where(mask, (q - 128) * float(np.float32(2 / 255)), (q - 110) * float(np.float32(0.05)))
    return m, feed, quantized(exact, np.float32(0.05), 110, T.UINT8)


case("QLinearConcat", "QLinearConcat of com.microsoft")(concat_model)
case("QLinearWhere", "QLinearWhere of com.microsoft")(where_model)


def dynamic_model():
    x = random.normal(size=(4, 16)).astype(np.float32)
    w = drawn(T.INT8, (16, 8)).astype(np.int8)
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), helper.make_node("MatMulInteger", ["q", "w", "z"], ["i"]),
             helper.make_node("Cast", ["i"], ["f"], to=T.FLOAT), helper.make_node("Mul", ["s", "ws"], ["t"]),
             helper.make_node("Mul", ["f", "t"], ["y"])]
    low, high = min(0, float(x.min())), max(0, float(x.max()))
    scale = np.float32((high - low) / 255)
    want = quantized(x.astype(np.float64), scale, np.rint(-low / scale), T.UINT8) @ (w * 0.01)
    return model(nodes, {"x": [4, 16]}, {"y": [4, 8]}, {"w": w, "ws": np.array(0.01, np.float32)}, 17), {"x": x}, want


case("MatMulInteger", "DynamicQuantizeLinear and MatMulInteger")(dynamic_model)


def conv_integer(kind):
    x = random.normal(size=(1, 3, 5, 5)).astype(np.float32)
    w = drawn(kind, (4, 3, 1, 1))
    zero = 0 if LOW[kind] < 0 else 128
    c = {"w": integers("w", kind, w), "wz": integers("wz", kind, np.array(zero)), "ws": np.array(0.01, np.float32)}
    nodes = [helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]), helper.make_node("ConvInteger", ["q", "w", "z", "wz"], ["i"]),
             helper.make_node("Cast", ["i"], ["f"], to=T.FLOAT), helper.make_node("Mul", ["s", "ws"], ["t"]),
             helper.make_node("Mul", ["f", "t"], ["y"])]
    low, high = min(0, float(x.min())), max(0, float(x.max()))
    scale = np.float32((high - low) / 255)
    q = quantized(x.astype(np.float64), scale, np.rint(-low / scale), T.UINT8)
    want = np.einsum("nchw,oc->nohw", q, (w[:, :, 0, 0] - zero) * 0.01)
    return model(nodes, {"x": [1, 3, 5, 5]}, {"y": [1, 4, 5, 5]}, c, 17), {"x": x}, want


case("ConvInteger", "ConvInteger with an int8 weight")(lambda: conv_integer(T.INT8))
case("ConvInteger_uint8", "ConvInteger with a uint8 weight")(lambda: conv_integer(T.UINT8))


def between(node, constants, compute, shape, low=-1, opset=17, scale=2 / 255, out=0.05):
    """A float operator between pairs of uint8, as the runtime fuses them."""
    x = random.uniform(low, 1, shape).astype(np.float32)
    xs, ys = np.float32(scale), np.float32(out)
    c = {"xs": xs, "xz": np.uint8(128), "ys": ys, "yz": np.uint8(110), **constants}
    nodes = [helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]), helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["d"]), *node,
             helper.make_node("QuantizeLinear", ["r", "ys", "yz"], ["p"]), helper.make_node("DequantizeLinear", ["p", "ys", "yz"], ["y"])]
    want = quantized(compute(quantized(x.astype(np.float64), xs, 128, T.UINT8)), ys, 110, T.UINT8)
    return model(nodes, {"x": list(shape)}, {"y": list(want.shape)}, c, opset), {"x": x}, want


def gemm_alpha():
    w = drawn(T.INT8, (16, 8)).astype(np.int8)
    b, bs = random.integers(-500, 500, 8).astype(np.int32), np.array(2 / 255 * 0.01, np.float32)
    nodes = [helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]), helper.make_node("DequantizeLinear", ["b", "bs"], ["bd"]),
             helper.make_node("Gemm", ["d", "wd", "bd"], ["r"], alpha=2.0)]
    return between(nodes, {"w": w, "ws": np.array(0.01, np.float32), "wz": np.array(0, np.int8), "b": b, "bs": bs},
                   lambda x: 2 * x @ (w * 0.01) + b * float(bs), (4, 16))


def resize_linear():
    nodes = [helper.make_node("Resize", ["d", "", "scales"], ["r"], mode="linear", coordinate_transformation_mode="asymmetric")]

    def double(x):
        y = x
        for axis in (2, 3):
            after = np.concatenate([np.take(y, range(1, y.shape[axis]), axis), np.take(y, [-1], axis)], axis)
            y = np.stack([y, (y + after) / 2], axis + 1).reshape([n * 2 if i == axis else n for i, n in enumerate(y.shape)])
        return y
    return between(nodes, {"scales": np.array([1, 1, 2, 2], np.float32)}, double, (1, 2, 4, 4), out=0.01)


def tied_embedding():
    w = drawn(T.UINT8, (N, K)).astype(np.uint8)
    x = random.normal(size=(3, K)).astype(np.float32)
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["d"]), helper.make_node("Gather", ["d", "i"], ["e"]),
             helper.make_node("Add", ["e", "x"], ["h"]), helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]),
             helper.make_node("MatMul", ["h", "t"], ["y"])]
    wide = (w.astype(np.float64) - 120) * 0.01
    return model(nodes, {"x": [3, K]}, {"y": [3, N]}, {"w": w, "s": np.array(0.01, np.float32), "z": np.array(120, np.uint8),
                                                        "i": np.array([1, 5, 2], np.int64)}, 17), {"x": x}, (wide[[1, 5, 2]] + x) @ wide.T


def pool_overhang():
    nodes = [helper.make_node("AveragePool", ["d"], ["r"], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1, count_include_pad=1)]

    def mean(x):
        y = np.zeros((1, 1, 3, 3))
        for i in range(3):
            for k in range(3):
                y[0, 0, i, k] = x[0, 0, 2 * i:2 * i + 2, 2 * k:2 * k + 2].mean()
        return y
    return between(nodes, {}, mean, (1, 1, 5, 5), low=0.2, opset=19, out=0.01)


def softmax_single():
    return between([helper.make_node("Softmax", ["d"], ["r"], axis=1)], {}, lambda x: np.ones_like(x), (8, 1), opset=13, out=1 / 128)


case("fuse_gemm_alpha", "Gemm with alpha 2 between pairs")(gemm_alpha)
case("fuse_resize_linear", "Resize (linear) between pairs")(resize_linear)
case("fuse_tied_embedding", "a uint8 table that Gather and MatMul read")(tied_embedding)
case("fuse_pool_overhang", "AveragePool with ceil_mode and count_include_pad between pairs")(pool_overhang)
case("fuse_softmax_single", "Softmax of single values between pairs")(softmax_single)


# ---- experts and caches

def experts_model(bits, with_zero, level=0, block=32):
    """Two experts for each token, silu, weights in blocks."""
    tokens, experts, hidden, inner = 9, 4, 64, 128
    x, p = random.normal(size=(tokens, hidden)).astype(np.float32), random.normal(size=(tokens, experts)).astype(np.float32)
    c, wide = {}, []
    for i, (n, k) in enumerate(((inner, hidden), (hidden, inner)), 1):
        q = random.integers(0, 2**bits, (experts, n, k))
        s = (random.uniform(0.5, 1, (experts, n, k // block)) / 2**bits / np.sqrt(k)).astype(np.float32)
        z = random.integers(0, 2**bits, s.shape) if with_zero else np.full(s.shape, 2**(bits - 1))

        def bytes_of(a):
            per = 8 // bits
            a = np.concatenate([a, np.zeros((*a.shape[:2], -a.shape[2] % per), np.int64)], 2).reshape(*a.shape[:2], -1, per)
            return sum(a[..., j] << (bits * j) for j in range(per)).astype(np.uint8)
        c[f"w{i}"], c[f"s{i}"] = bytes_of(q), s
        if with_zero:
            c[f"z{i}"] = bytes_of(z)
        wide.append((q - np.repeat(z, block, 2)) * np.repeat(s, block, 2).astype(np.float64))
    names = ["x", "p", "w1", "s1", "", "w2", "s2"] + (["", "", "", "", "z1", "z2"] if with_zero else [])
    node = helper.make_node("QMoE", names, ["y"], domain=MS, k=2, activation_type="silu", normalize_routing_weights=1,
                            expert_weight_bits=bits, block_size=block, **({"accuracy_level": level} if level else {}))
    want = np.zeros((tokens, hidden))
    for t in range(tokens):
        top = np.argsort(-p[t])[:2]
        share = np.exp(p[t][top].astype(np.float64))
        for e, part in zip(top, share / share.sum()):
            a = wide[0][e] @ x[t]
            want[t] += part * (wide[1][e] @ (a / (1 + np.exp(-a))))
    return model([node], {"x": [tokens, hidden], "p": [tokens, experts]}, {"y": [tokens, hidden]}, c, 17), {"x": x, "p": p}, want


for _bits in (2, 4, 8):
    for _zero in (False, True):
        case(f"moe{_bits}{'_zero' if _zero else ''}", f"QMoE of {_bits} bits in blocks{' with zero points' if _zero else ''}")(
            lambda b=_bits, z=_zero: experts_model(b, z))
case("moe4_level4", "QMoE of 4 bits in blocks, accuracy level 4")(lambda: experts_model(4, False, 4))


def cache_model(bits, per_channel):
    """Attention of one head with a past of 6 tokens in a cache of integers, and one token more."""
    heads, past, size = 2, 6, 16
    q, k, v = (random.normal(size=(1, 1, heads * size)).astype(np.float32) for _ in range(3))
    top = 2**(bits - 1) - 1
    scale = random.uniform(2, 3, (2, 1, heads, 1, size) if per_channel else (2, 1)).astype(np.float32) / top
    spread = scale.reshape(2, heads, 1, size) if per_channel else scale.reshape(2, 1, 1, 1)
    old = random.integers(-top, top + 1, (2, heads, past, size))
    new = np.clip(np.rint(np.stack([k, v]).reshape(2, heads, 1, size) / spread), -top - 1, top)
    keys, values = np.concatenate([old, new], 2) * spread.astype(np.float64)
    scores = np.einsum("hd,hld->hl", q.reshape(heads, size).astype(np.float64), keys) / np.sqrt(size)
    part = np.exp(scores - scores.max(-1, keepdims=True))
    want = np.einsum("hl,hld->hd", part / part.sum(-1, keepdims=True), values).reshape(1, 1, -1)
    stored = old.astype(np.int8) if bits == 8 else ((old[..., ::2] + 8) | ((old[..., 1::2] + 8) << 4)).astype(np.uint8)
    c = {"past_k": stored[:1], "past_v": stored[1:], "k_scale": scale[0], "v_scale": scale[1],
         "last": np.array([past], np.int32), "total": np.array(past + 1, np.int32)}
    kind = "PER_CHANNEL" if per_channel else "PER_TENSOR"
    names = ["q", "k", "v", "past_k", "past_v", "last", "total", "", "", "", "", "", "k_scale", "v_scale"]
    node = helper.make_node("GroupQueryAttention", names, ["y", "now_k", "now_v"], domain=MS, num_heads=heads, kv_num_heads=heads,
                            k_quant_type=kind, v_quant_type=kind, kv_cache_bit_width=bits)
    wide = [1, 1, heads * size]
    return model([node], {"q": wide, "k": wide, "v": wide}, {"y": wide}, c, 17), {"q": q, "k": k, "v": v}, want


for _bits in (4, 8):
    for _kind in ("tensor", "channel"):
        case(f"cache{_bits}_{_kind}", f"GroupQueryAttention with a cache of {_bits} bits, scales by {_kind}")(
            lambda b=_bits, k=_kind: cache_model(b, k == "channel"))


# ---- running

def decibels(want, got):
    if want.shape != got.shape or not np.isfinite(got).all():
        return -math.inf
    noise = float(((want - got) ** 2).sum())
    return math.inf if noise == 0 else 10 * math.log10(float((want**2).sum()) / noise)


def run(folder, name, library, level):
    """dB from numpy, or the reason why it does not run."""
    out = Path(folder) / "out"
    done = subprocess.run([ONQ, "run", f"{name}.onnx", "--data", f"{name}.npz", "-o", out, "--format", "npz", "--optimization", level,
                           "--onnxruntime", library, "--quiet"], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"status {done.returncode}"
    found = next(out.glob("*/outputs.npz"))
    return decibels(np.load(Path(folder) / f"{name}.want.npy"), np.load(found)["y"].astype(np.float64))


def mark(folder, name, library, log):
    found = {level: run(folder, name, library, level) for level in ("none", "all")}
    right = {level: not isinstance(f, str) and f >= RIGHT for level, f in found.items()}
    log.append({"case": name, "runtime": library.name, **{k: v if isinstance(v, str) else round(min(v, 999), 1) for k, v in found.items()}})
    if all(right.values()):
        return "+"
    if right["none"]:
        return "o"
    return "-" if isinstance(found["none"], str) else "x"


def plain_model(opset, ir):
    """Operators that opsets from 22 on changed: that an opset is known says little if their kernels are missing."""
    def node(op, more=(), **attributes):
        inputs = [f"v{len(nodes)}" if nodes else "x", *more]
        nodes.append(helper.make_node(op, inputs, [f"v{len(nodes) + 1}"], **attributes))
    nodes = []
    c = {"w": random.normal(size=(4, 3, 3, 3)).astype(np.float32), "one": np.ones(4, np.float32), "nil": np.zeros(4, np.float32),
         "s": np.array(0.02, np.float32), "z": np.array(128, np.uint8), "shape": np.array([1, 1, 4], np.int64),
         "axes": np.array([0], np.int64), "pads": np.array([0, 0, 0, 0, 0, 1], np.int64),
         "gw": random.normal(size=(1, 6, 5)).astype(np.float32), "gr": random.normal(size=(1, 6, 2)).astype(np.float32)}
    node("Conv", ["w"])
    node("InstanceNormalization", ["one", "nil"])
    for op in "Elu", "Selu", "HardSigmoid", "HardSwish", "Softplus", "Softsign", "Sin", "Tanh":
        node(op)
    node("MaxPool", kernel_shape=[2, 2])
    node("AveragePool", kernel_shape=[2, 2])
    node("QuantizeLinear", ["s", "z"])
    node("DequantizeLinear", ["s", "z"])
    node("GlobalAveragePool")
    node("Flatten")
    node("Cast", to=T.FLOAT16)
    node("Cast", to=T.FLOAT)
    node("Reshape", ["shape"])
    node("Pad", ["pads"])
    node("Transpose", perm=[0, 1, 2])
    node("GRU", ["gw", "gr"], hidden_size=2)
    node("Squeeze", ["axes"])
    node("Unsqueeze", ["axes"])
    node("Identity")
    nodes[-1].output[0] = "y"
    m = model(nodes, {"x": [1, 3, 8, 8]}, {"y": [1, 1, 1, 2]}, c, opset, ir)
    x = random.normal(size=(1, 3, 8, 8)).astype(np.float32)
    old = onnx.ModelProto.FromString(m.SerializeToString())
    old.opset_import[0].version, old.ir_version = 22, 10
    return m, {"x": x}, onnx.reference.ReferenceEvaluator(old).run(None, {"x": x})[0]


# DequantizeLinear in blocks before MatMul, which the runtime fuses to MatMulNBits with integer activations: in more forms.

def blocks_model(kind, block, with_zero, rows=ROWS, k=K, n=N, axis=0, bias=False, turned=False, batch=False):
    """`turned`: the weight is stored by output and turned by Transpose; `batch`: x has three dimensions."""
    shape = (1, rows, k) if batch else (rows, k)
    x = random.normal(size=shape).astype(np.float32)
    w = drawn(kind, (n, k) if turned else (k, n))
    along = 1 if turned else axis
    parts = [-(-size // block) if i == along else size for i, size in enumerate(w.shape)]
    s = random.uniform(0.01, 0.1, parts).astype(np.float32)
    z = drawn(kind, parts) if with_zero else np.zeros(parts, np.int64)

    def spread(a):
        return np.repeat(a, block, along).take(range(w.shape[along]), along)
    wide = (w - spread(z)) * spread(s).astype(np.float64)
    c = {"w": integers("w", kind, w), "s": s, **({"z": integers("z", kind, z)} if with_zero else {})}
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"] + ["z"] * with_zero, ["d"], axis=along, block_size=block)]
    if turned:
        nodes.append(helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]))
    nodes.append(helper.make_node("MatMul", ["x", "t" if turned else "d"], ["m" if bias else "y"]))
    want = x.astype(np.float64) @ (wide.T if turned else wide)
    if bias:
        c["b"] = random.normal(size=n).astype(np.float32)
        nodes.append(helper.make_node("Add", ["m", "b"], ["y"]))
        want = want + c["b"]
    return model(nodes, {"x": list(shape)}, {"y": [*shape[:-1], n]}, c, 21), {"x": x}, want


FORMS = {"row": {"rows": 1}, "tail": {"k": 240}, "odd": {"n": 95}, "batch": {"batch": True}, "bias": {"bias": True}, "axis1": {"axis": 1}}
KINDS = T.INT4, T.UINT4, T.INT8, T.UINT8
case("fuse_blocks", "weights of 4 and 8 bits in blocks of 16 to 256, with and without zero points, MatMul")(
    lambda: [blocks_model(k, b, z) for k in KINDS for b in (16, 64, 128, 256) for z in (False, True)])
case("fuse_blocks_forms", "the same: one row, a last block that is not full, odd columns, three dimensions, a bias, axis 1")(
    lambda: [blocks_model(k, 32, True, **more) for k in KINDS for more in FORMS.values()])
case("fuse_blocks_turned", "the same, with a weight that Transpose turns")(lambda: [blocks_model(k, 32, True, turned=True) for k in KINDS])


def write(folder, name, made):
    m, feed, want = made
    (Path(folder) / f"{name}.onnx").write_bytes(m.SerializeToString())
    np.savez(Path(folder) / f"{name}.npz", **feed)
    np.save(Path(folder) / f"{name}.want.npy", want)


def highest(folder, library, numbers, make, log):
    best = 0
    for n in numbers:
        write(folder, "limit", make(n))
        best = n if mark(folder, "limit", library, log) == "+" else best
    return best


# ---- what opsets brought

def news(least=22):
    """Operators, attributes and inputs that came with an opset from `least` on: a model that has them cannot go below it."""
    rows = []
    newest = onnx.defs.onnx_opset_version()
    for op in sorted({s.name for s in onnx.defs.get_all_schemas() if s.domain == ""}):
        for to in range(least, newest + 1):
            now = onnx.defs.get_schema(op, to) if onnx.defs.has(op, max_inclusive_version=to, domain="") else None
            if now is None or now.since_version != to:
                continue
            if not onnx.defs.has(op, max_inclusive_version=to - 1, domain=""):
                rows.append(f'OQ_NEW_OPERATOR({to}, "{op}")')
                continue
            before = onnx.defs.get_schema(op, to - 1)
            rows += [f'OQ_NEW_ATTRIBUTE({to}, "{op}", "{a}")' for a in sorted(set(now.attributes) - set(before.attributes))]
            if now.max_input > before.max_input:
                rows.append(f'OQ_NEW_INPUTS({to}, "{op}", {before.max_input})')
    return sorted(rows, key=lambda r: (int(r.split("(")[1].split(",")[0]), r))


HEAD = """/*
 * runtime.def — what versions of ONNX Runtime can run. Made by bench/measure_runtimes.py, which measured
 * it with the wheels of PyPI; not edited by hand. The CPU provider, x86-64.
 *
 *   OQ_RUNTIME(minor, version, opset, ir)   the newest opset and IR that it loads
 *   OQ_CAN(name, marks, about)              one character for each OQ_RUNTIME, in its order:
 *       +  right with optimisations and without    o  right only with graph optimisation off
 *       x  runs and computes something else        -  does not load or run
 *   OQ_NEW_OPERATOR(opset, type), OQ_NEW_ATTRIBUTE(opset, type, name), OQ_NEW_INPUTS(opset, type, n)
 *       what came with an opset: an operator, an attribute, inputs after the first n. A model that
 *       has it cannot be written for an older opset.
 */
"""
MACROS = "OQ_RUNTIME", "OQ_CAN", "OQ_NEW_OPERATOR", "OQ_NEW_ATTRIBUTE", "OQ_NEW_INPUTS"


def table(rows):
    """A file that includes it defines the macros that it wants."""
    given = [f"#ifndef {m}\n#define {m}(...)\n#endif" for m in MACROS]
    return "\n".join([HEAD.rstrip("\n"), *given, *rows, *(f"#undef {m}" for m in MACROS)]) + "\n"


def main():
    only = sys.argv[2] if sys.argv[1:2] == ["--only"] else None
    libraries = sorted(Path(os.environ.get("ONQ_RUNTIMES", ROOT / "build/runtimes")).glob("*/libonnxruntime.so.1.*"), key=lambda p: [int(n) for n in p.parent.name.split(".")])
    log, rows = [], []
    with tempfile.TemporaryDirectory() as folder:
        if only is None:
            for lib in libraries:
                opset = highest(folder, lib, range(20, onnx.defs.onnx_opset_version() + 1), lambda n: plain_model(n, 10), log)
                ir = highest(folder, lib, range(9, onnx.IR_VERSION + 1), lambda n: plain_model(17, n), log)
                rows.append(f'OQ_RUNTIME({lib.parent.name.split(".")[1]}, "{lib.parent.name}", {opset}, {ir})')
                print(rows[-1], flush=True)
        for name, about, make in CASES:
            if only is not None and only not in name:
                continue
            made = make()
            marks = ["+"] * len(libraries)
            for one in made if isinstance(made, list) else [made]:  # of several models the worst
                write(folder, name, one)
                marks = [max(worst, mark(folder, name, lib, log), key="+ox-".index) for worst, lib in zip(marks, libraries)]
            marks = "".join(marks)
            rows.append(f'OQ_CAN({name}, "{marks}", "{about}")')
            print(rows[-1], flush=True)
    (ROOT / "build/runtimes.json").write_text("\n".join(json.dumps(row) for row in log) + "\n")
    if only is None:
        OUT.write_text(table(rows + news()))


if __name__ == "__main__":
    main()
