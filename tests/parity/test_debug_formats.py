"""test_debug_formats.py - `onq debug` on the formats that the reference's debugger does not know, against numpy.

Weight-only blocks of 2, 4 and 8 bits (MatMulNBits, DequantizeLinear over int4 and uint4), MatMulBnb4, GatherBlockQuantized,
blockwise QDQ of the static quantizer, float8. Each is dequantized here in the plainest way that the operator's text
allows; where ONNX Runtime runs the operator, its own result over an identity matrix is a second witness.
"""
import math

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization as Q

from test_debug import CLOSE, debug, nbits_numpy, quantize, sqnr

K, N = 70, 33  # no multiples of a block


def matmul_model(folder, shape=(K, N), seed=1):
    """Two products, one of them with outliers."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=shape).astype(np.float32)
    b = rng.normal(size=(shape[-1], 24)).astype(np.float32)
    b[3, 5] = 20
    model = helper.make_model(helper.make_graph(
        [helper.make_node("MatMul", ["x", "a"], ["t"], name="first"),
         helper.make_node("MatMul", ["t", "b"], ["y"], name="second")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*shape[:-2], 5, shape[-2]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [*shape[:-2], 5, 24])],
        [numpy_helper.from_array(a, "a"), numpy_helper.from_array(b, "b")]),
        opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path = folder / "f.onnx"
    onnx.save(model, path)
    return path, {"a": a, "b": b}


def inits_of(model):
    return {i.name: numpy_helper.to_array(i) for i in model.graph.initializer}


def check(got, name, flt, made):
    w = got["weights"][name]
    x, y = flt.ravel(), np.asarray(made, np.float32).ravel()
    assert math.isclose(w["sqnr"], sqnr(x, y), abs_tol=CLOSE), name
    assert math.isclose(w["max_abs_err"], np.abs(x - y).max(), rel_tol=1e-4)
    assert math.isclose(w["mean_abs_err"], np.abs(x - y).mean(), rel_tol=1e-4)
    assert math.isclose(w["cosine"], x @ y / np.linalg.norm(x) / np.linalg.norm(y), abs_tol=1e-5)
    assert w["range"] == pytest.approx([x.min(), x.max()])
    return w


def runtime_weight(node, model, rows):
    """What the runtime makes of the weight: the node alone, over an identity matrix."""
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info(node.input[0], TensorProto.FLOAT, [rows, rows])],
                              [helper.make_empty_tensor_value_info(node.output[0])],
                              [i for i in model.graph.initializer if i.name in node.input])
    one = helper.make_model(graph, opset_imports=model.opset_import, ir_version=10)
    session = onnxruntime.InferenceSession(one.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {node.input[0]: np.eye(rows, dtype=np.float32)})[0]


# ---- MatMulNBits

@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("block", [16, 32])
def test_nbits(bits, symmetric, block, tmp_path):
    tool = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer")
    path, flt = matmul_model(tmp_path)
    config = tool.DefaultWeightOnlyQuantConfig(block_size=block, is_symmetric=symmetric, bits=bits)
    q = tool.MatMulNBitsQuantizer(onnx.load(path), algo_config=config)
    q.process()
    model = q.model.model
    quantized = tmp_path / "q.onnx"
    onnx.save(model, quantized)
    got = debug(path, quantized, "random:2:1")
    nodes = {n.input[1][0]: n for n in model.graph.node if n.op_type == "MatMulNBits"}
    assert set(nodes) == {"a", "b"} and got["unmatched"] == []
    for name, n in nodes.items():
        made = nbits_numpy(n, inits_of(model))
        assert check(got, name, flt[name], made)["bits"] == bits
        if bits != 2:
            assert np.allclose(runtime_weight(n, model, made.shape[0]), made, atol=0.02 * np.abs(made).max())


def test_nbits_of_three_axes(tmp_path):
    """The reference takes [1, K, N] too."""
    tool = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer")
    path, flt = matmul_model(tmp_path, (1, K, N))
    config = tool.DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=True, bits=4)
    q = tool.MatMulNBitsQuantizer(onnx.load(path), algo_config=config)
    q.process()
    nodes = {n.input[1][0]: n for n in q.model.model.graph.node if n.op_type == "MatMulNBits"}
    if "a" not in nodes:
        pytest.skip("this version of the reference leaves it")
    onnx.save(q.model.model, tmp_path / "q.onnx")
    check(debug(path, tmp_path / "q.onnx"), "a", flt["a"], nbits_numpy(nodes["a"], inits_of(q.model.model)))


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_nbits_float_zero_points(dtype, tmp_path):
    """Zero points that are numbers, not packed (HQQ): made by hand."""
    path, flt = matmul_model(tmp_path)
    rng = np.random.default_rng(2)
    blocks = -(-K // 32)
    q = rng.integers(0, 256, (N, blocks, 16)).astype(np.uint8)
    s = rng.uniform(0.05, 0.2, (N * blocks,)).astype(np.float32)
    z = rng.uniform(6, 9, (N * blocks,)).astype(dtype)
    model = onnx.load(path)
    node = helper.make_node("MatMulNBits", ["x", "a_Q4", "a_scales", "a_zero_points"], ["t"], name="first_Q4",
                            domain="com.microsoft", K=K, N=N, bits=4, block_size=32)
    model.graph.node[0].CopyFrom(node)
    model.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in
                                   (("a_Q4", q), ("a_scales", s), ("a_zero_points", z)))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, tmp_path / "q.onnx")
    values = np.stack([q & 15, q >> 4], -1).reshape(N, blocks, 32).astype(np.float32)
    made = ((values - z.astype(np.float32).reshape(N, blocks, 1)) * s.reshape(N, blocks, 1)).reshape(N, -1)[:, :K].T
    check(debug(path, tmp_path / "q.onnx"), "a", flt["a"], made)


# ---- n-bit QDQ

@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("channel_wise", [True, False])
def test_nbits_qdq(symmetric, channel_wise, tmp_path):
    """Channel-wise and symmetric weights are stored turned around, with a Transpose after it."""
    tool = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer")
    path, flt = matmul_model(tmp_path, (64, 32))
    config = tool.DefaultWeightOnlyQuantConfig(block_size=16, is_symmetric=symmetric, bits=4, quant_format=Q.QuantFormat.QDQ,
                                               channel_wised_quantize=channel_wise)
    q = tool.MatMulNBitsQuantizer(onnx.load(path), algo_config=config)
    q.process()
    model = q.model.model
    quantized = tmp_path / "q.onnx"
    onnx.save(model, quantized)
    got = debug(path, quantized)
    compared = 0
    for n in model.graph.node:
        if n.op_type != "DequantizeLinear":
            continue
        session = onnxruntime.InferenceSession(
            helper.make_model(helper.make_graph([n], "g", [], [helper.make_empty_tensor_value_info(n.output[0])],
                                                [i for i in model.graph.initializer if i.name in n.input]),
                              opset_imports=model.opset_import, ir_version=10).SerializeToString(),
            providers=["CPUExecutionProvider"])
        made = session.run(None, {})[0]
        name = n.input[0][0]
        made = made if made.shape == flt[name].shape else made.T
        check(got, name, flt[name], made)
        compared += 1
    assert compared == 2
    assert any(n.op_type == "Transpose" for n in model.graph.node) == (symmetric and channel_wise)


@pytest.mark.parametrize("kind", ["INT4", "UINT4", "INT8", "UINT8", "INT16"])
@pytest.mark.parametrize("axis,block", [(0, 16), (1, 8), (0, 0), (1, 0), (None, 0)])
def test_qdq_by_hand(kind, axis, block, tmp_path):
    """DequantizeLinear in blocks, per channel and per tensor, with zero points, for every integer type."""
    path, flt = matmul_model(tmp_path, (K, N))
    x = flt["a"]
    number = getattr(TensorProto, kind)
    dtype = {"INT4": ml_dtypes.int4, "UINT4": ml_dtypes.uint4}.get(kind) or np.dtype(kind.lower()).type
    bits = {"INT4": 4, "UINT4": 4}.get(kind) or np.dtype(dtype).itemsize * 8
    lo, hi = (0, 2**bits - 1) if kind.startswith("U") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    rng = np.random.default_rng(3)
    if axis is None:
        shape = ()
    elif block:
        shape = tuple(-(-d // block) if i == axis else d for i, d in enumerate(x.shape))
    else:
        shape = (x.shape[axis],)
    scale = rng.uniform(0.5, 1.5, shape).astype(np.float32) * np.float32(8 / (hi - lo))
    zero = rng.integers((lo + hi) // 2 - 1, (lo + hi) // 2 + 2, shape)

    def spread(v):
        if axis is None:
            return v
        if block:
            return np.repeat(v, block, axis)[tuple(slice(0, d) for d in x.shape)]
        return np.expand_dims(v, 1 - axis)

    q = np.clip(np.round(x / spread(scale)) + spread(zero), lo, hi).astype(np.int64)
    made = (q - spread(zero)).astype(np.float32) * spread(scale)
    model = onnx.load(path)
    model.graph.node[0].input[1] = "a_DequantizeLinear_Output"
    attributes = {} if axis is None else {"axis": axis}
    if block:
        attributes["block_size"] = block
    node = helper.make_node("DequantizeLinear", ["a_quantized", "a_scale", "a_zero_point"], ["a_DequantizeLinear_Output"],
                            name="dq", **attributes)
    model.graph.node.insert(0, node)
    del model.graph.initializer[0]
    model.graph.initializer.append(numpy_helper.from_array(scale, "a_scale"))
    for name, v in (("a_quantized", q), ("a_zero_point", zero)):
        model.graph.initializer.append(helper.make_tensor(name, number, np.shape(v), np.asarray(v).astype(dtype).tobytes()
                                                          if bits >= 8 else np.asarray(v).ravel().tolist(), raw=bits >= 8))
    quantized = tmp_path / "q.onnx"
    onnx.save(model, quantized)
    w = check(debug(path, quantized), "a", x, made)
    assert w.get("block_size", 0) == block and w["type"] == kind
    clipped = ((q == lo) | (q == hi)) & (np.abs(x - made) > 0.75 * spread(scale))
    assert math.isclose(w["saturated"], clipped.mean(), abs_tol=1e-6)
    if axis is not None and not block:
        e = [sqnr(np.ascontiguousarray(x.take(i, axis)), np.ascontiguousarray(made.take(i, axis)))
             for i in range(x.shape[axis])]
        assert np.allclose(w["channel_sqnr"], e, atol=CLOSE) and w["worst_channel"] == int(np.argmin(e))
        assert w["largest_channel"] == int(np.argmax(np.abs(x).max(1 - axis)))


@pytest.mark.parametrize("kind", [Q.QuantType.QInt4, Q.QuantType.QUInt4, Q.QuantType.QInt8])
def test_static_blocks(kind, tmp_path):
    """The static quantizer's BlockSize."""
    path, flt = matmul_model(tmp_path, (64, 32))
    rng = np.random.default_rng(5)
    quantized = tmp_path / "q.onnx"
    try:
        quantize(path, quantized, [{"x": rng.normal(size=(5, 64)).astype(np.float32)} for _ in range(2)], weight_type=kind,
                 extra_options={"BlockSize": 16})
    except Exception as e:  # noqa: BLE001 - older versions do not know it
        pytest.skip(f"the reference does not make this model: {type(e).__name__}: {e}")
    model = onnx.load(quantized)
    inits, got, compared = inits_of(model), debug(path, quantized, "random:2:1"), 0
    for n in model.graph.node:
        if n.op_type != "DequantizeLinear" or n.input[0] not in inits or inits[n.input[1]].ndim != 2:
            continue
        a = {x.name: helper.get_attribute_value(x) for x in n.attribute}
        s, z = (np.repeat(inits[i].astype(np.float32), a["block_size"], a["axis"]) for i in n.input[1:3])
        q = inits[n.input[0]].astype(np.float32)
        cut = tuple(slice(0, d) for d in q.shape)
        name = n.input[0][: -len("_quantized")]
        check(got, name, flt[name], (q - z[cut]) * s[cut])
        compared += 1
    assert compared == 2


# ---- MatMulBnb4

NF4 = np.array([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
                -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725,
                0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023,
                1.0], np.float32)
FP4 = np.array([0.0, 0.00520833333333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25], np.float32)
FP4 = np.concatenate([FP4, -FP4])


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("block", [16, 64])
def test_bnb4(kind, block, tmp_path):
    tool = pytest.importorskip("onnxruntime.quantization.matmul_bnb4_quantizer")
    path, flt = matmul_model(tmp_path)
    q = tool.MatMulBnb4Quantizer(onnx.load(path), kind, block)
    q.process()
    model = q.model.model
    onnx.save(model, tmp_path / "q.onnx")
    got = debug(path, tmp_path / "q.onnx", "random:2:1")
    inits, nodes = inits_of(model), [n for n in model.graph.node if n.op_type == "MatMulBnb4"]
    assert len(nodes) == 2
    for n in nodes:
        a = {x.name: helper.get_attribute_value(x) for x in n.attribute}
        packed, absmax = inits[n.input[1]].ravel(), inits[n.input[2]]
        count = a["K"] * a["N"]
        codes = np.stack([packed >> 4, packed & 15], -1).ravel()[:count]
        flat = (NF4 if a["quant_type"] == 1 else FP4)[codes] * np.repeat(absmax, a["block_size"])[:count]
        made = flat.reshape(a["N"], a["K"]).T
        name = n.input[1][: -len("_Bnb4")]
        check(got, name, flt[name], made)
        assert np.allclose(runtime_weight(n, model, a["K"]), made, atol=1e-5)


# ---- GatherBlockQuantized

def gather_model(folder, rows=12, columns=64):
    rng = np.random.default_rng(7)
    table = rng.normal(size=(rows, columns)).astype(np.float32)
    model = helper.make_model(helper.make_graph(
        [helper.make_node("Gather", ["table", "i"], ["y"], name="gather")], "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, [rows])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, columns])],
        [numpy_helper.from_array(table, "table")]), opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path = folder / "f.onnx"
    onnx.save(model, path)
    return path, table


def gathered(model, rows):
    """All rows, as the runtime dequantizes them."""
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"i": np.arange(rows)})[0]


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("axis", [0, 1])
def test_gather_blocks(symmetric, axis, tmp_path):
    tool = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer")
    path, table = gather_model(tmp_path, rows=32 if axis == 0 else 12)
    config = tool.DefaultWeightOnlyQuantConfig(block_size=16, is_symmetric=symmetric, bits=4, op_types_to_quantize=("Gather",),
                                               quant_axes=(("Gather", axis),))
    q = tool.MatMulNBitsQuantizer(onnx.load(path), algo_config=config)
    q.process()
    model = q.model.model
    node = next(n for n in model.graph.node if n.op_type == "GatherBlockQuantized")
    onnx.save(model, tmp_path / "q.onnx")
    inits = inits_of(model)
    values, scale = inits[node.input[0]].astype(np.float32), inits[node.input[2]]
    zero = inits[node.input[3]].astype(np.float32) if len(node.input) > 3 and node.input[3] else np.zeros_like(scale)
    made = (values - np.repeat(zero, 16, axis)) * np.repeat(scale, 16, axis)
    assert np.allclose(gathered(model, len(table)), made)
    check(debug(path, tmp_path / "q.onnx"), "table", table, made)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [True, False])
def test_gather_packed(bits, zeros, tmp_path):
    """Numbers packed in uint8, as model builders write them: the runtime's result is the witness."""
    rows, columns, block = 12, 64, 16
    path, table = gather_model(tmp_path, rows, columns)
    rng = np.random.default_rng(8)
    q = rng.integers(0, 1 << bits, (rows, columns)).astype(np.uint8)
    z = rng.integers(0, 1 << bits, (rows, columns // block)).astype(np.uint8)
    scale = rng.uniform(0.1, 0.3, (rows, columns // block)).astype(np.float32)
    pack = (lambda v: (v[:, ::2] | (v[:, 1::2] << 4)).astype(np.uint8)) if bits == 4 else (lambda v: v)
    inputs = ["table_Q4", "i", "table_scales"] + (["table_zero_points"] if zeros else [])
    node = helper.make_node("GatherBlockQuantized", inputs, ["y"], name="gather_Q4", domain="com.microsoft", bits=bits,
                            block_size=block, gather_axis=0, quantize_axis=1)
    model = onnx.load(path)
    model.graph.node[0].CopyFrom(node)
    del model.graph.initializer[:]
    model.graph.initializer.extend([numpy_helper.from_array(pack(q), "table_Q4"),
                                    numpy_helper.from_array(scale, "table_scales")])
    if zeros:
        model.graph.initializer.append(numpy_helper.from_array(pack(z), "table_zero_points"))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, tmp_path / "q.onnx")
    point = z.astype(np.float32) if zeros else np.full(scale.shape, 1 << (bits - 1), np.float32)
    made = (q.astype(np.float32) - np.repeat(point, block, 1)) * np.repeat(scale, block, 1)
    assert np.allclose(gathered(model, rows), made)
    got = debug(path, tmp_path / "q.onnx")
    assert got["unmatched"] == [] and check(got, "table", table, made)["bits"] == bits


# ---- float8

@pytest.mark.parametrize("kind", ["FLOAT8E4M3FN", "FLOAT8E5M2"])
@pytest.mark.parametrize("axis", [None, 1])
def test_float8_by_hand(kind, axis, tmp_path):
    path, flt = matmul_model(tmp_path)
    x = flt["a"]
    dtype = {"FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn, "FLOAT8E5M2": ml_dtypes.float8_e5m2}[kind]
    scale = (np.abs(x).max(0 if axis else None) / 100).astype(np.float32)
    q = (x / scale).astype(dtype)
    model = onnx.load(path)
    model.graph.node[0].input[1] = "a_DequantizeLinear_Output"
    model.graph.node.insert(0, helper.make_node("DequantizeLinear", ["a_quantized", "a_scale", "a_zero_point"],
                                                ["a_DequantizeLinear_Output"], **({"axis": axis} if axis else {})))
    del model.graph.initializer[0]
    zero = np.zeros(np.shape(scale), dtype)
    model.graph.initializer.append(numpy_helper.from_array(scale, "a_scale"))
    for name, v in (("a_quantized", q), ("a_zero_point", zero)):
        model.graph.initializer.append(helper.make_tensor(name, getattr(TensorProto, kind), v.shape, v.tobytes(), raw=True))
    onnx.save(model, tmp_path / "q.onnx")
    w = check(debug(path, tmp_path / "q.onnx"), "a", x, q.astype(np.float32) * scale)
    assert w["type"] == kind and w["sqnr"] > 20


def test_float8(tmp_path):
    """The reference's own float8 models: weights and activations."""
    rng = np.random.default_rng(11)
    path, flt = matmul_model(tmp_path, (64, 32))
    samples = [{"x": rng.normal(size=(5, 64)).astype(np.float32)} for _ in range(3)]
    quantized = tmp_path / "q.onnx"
    kind = Q.QuantType.QFLOAT8E4M3FN
    try:
        quantize(path, quantized, samples, weight_type=kind, activation_type=kind,
                 calibrate_method=Q.CalibrationMethod.Distribution)
    except Exception as e:  # noqa: BLE001
        pytest.skip(f"the reference does not make this model: {type(e).__name__}: {e}")
    model = onnx.load(quantized)
    inits = inits_of(model)
    got = debug(path, quantized, "random:3:1")
    for name in flt:
        made = inits[name + "_quantized"].astype(np.float32) * inits[name + "_scale"].astype(np.float32)
        check(got, name, flt[name], made)
    assert {"x", "t", "y"} <= set(got["activations"]) and got["activations"]["t"]["qdq_err"] > 10


# ---- activations of models with integer operators

def test_dynamic_outputs(tmp_path):
    """A dynamic model has no constant scales for activations: the outputs show what it loses."""
    path, _ = matmul_model(tmp_path)
    quantized = tmp_path / "q.onnx"
    Q.quantize_dynamic(str(path), str(quantized))
    rng = np.random.default_rng(12)
    data = tmp_path / "samples.npz"
    xs = rng.normal(size=(4, 5, K)).astype(np.float32)
    np.savez(data, x=xs)
    got = debug(path, quantized, data)
    run = [onnxruntime.InferenceSession(str(p), providers=["CPUExecutionProvider"]) for p in (path, quantized)]
    y = [np.concatenate([s.run(None, {"x": x})[0] for x in xs]) for s in run]
    assert got["samples"] == 4
    assert math.isclose(got["outputs"]["y"]["sqnr"], sqnr(y[0].ravel(), y[1].ravel()), abs_tol=0.05)
    same_top = np.mean(y[0].argmax(-1) == y[1].argmax(-1))
    assert math.isclose(got["outputs"]["y"]["top1_agreement"], same_top, abs_tol=0.06)
