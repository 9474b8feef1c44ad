#!/usr/bin/env python3
"""make_corpus.py - the seeds of the fuzz targets for models and tensors, small and committed.

    build/venv/bin/python tests/fuzz/make_corpus.py

Seeds are made by the onnx package (ordinary models), by tests/parity/opmodels.py (one for each kind of quantized
operator), by tests/parity/protogen.py (every field, odd encodings, unknown fields). Files that fuzzing found are kept: only seed_* are made anew. A
seed that several targets need is written for one of them; shared.txt names the folders that the others read.
"""
import io
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "parity"))
import opmodels  # noqa: E402
import protogen  # noqa: E402


def info(name, kind=TensorProto.FLOAT, shape=(2,)):
    return helper.make_tensor_value_info(name, kind, shape)


def wrap(nodes, inits=(), inputs=("x",), outputs=("y",), functions=(), opsets=None):
    g = helper.make_graph(nodes, "g", [info(i) for i in inputs], [info(o) for o in outputs], list(inits))
    opsets = opsets or [helper.make_opsetid("", 21)]
    return helper.make_model(g, ir_version=10, opset_imports=opsets, functions=list(functions), producer_name="onq")


def array(name, values, dtype=np.float32):
    return numpy_helper.from_array(np.asarray(values, dtype), name)


def models():
    yield "conv", wrap([helper.make_node("Conv", ["x", "w", "b"], ["t"], "conv", pads=[1, 1, 1, 1], group=1),
                        helper.make_node("Relu", ["t"], ["y"], "relu")],
                       [array("w", np.ones((2, 1, 3, 3))), array("b", [1, 2])])
    branch = [helper.make_graph([helper.make_node("Neg", ["x"], [o])], o, [], [info(o)]) for o in ("p", "q")]
    yield "if", wrap([helper.make_node("If", ["c"], ["y"], then_branch=branch[0], else_branch=branch[1])],
                     [array("c", True, np.bool_)])
    body = helper.make_graph([helper.make_node("Add", ["v", "w"], ["vo"]), helper.make_node("Identity", ["c"], ["co"])],
                             "body", [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("v")],
                             [info("co", TensorProto.BOOL, []), info("vo")])
    yield "loop", wrap([helper.make_node("Loop", ["", "", "x"], ["y"], body=body)], [array("w", [1, 2])])
    f = helper.make_function("local", "F", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])],
                             [helper.make_opsetid("", 21)])
    yield "function", wrap([helper.make_node("F", ["x"], ["y"], domain="local")], functions=[f],
                           opsets=[helper.make_opsetid("", 21), helper.make_opsetid("local", 1)])
    sparse = helper.make_sparse_tensor(array("s", [1, 2]), array("i", [0, 3], np.int64), [5])
    m = wrap([helper.make_node("Constant", [], ["k"], sparse_value=sparse), helper.make_node("Neg", ["x"], ["y"])])
    m.graph.sparse_initializer.append(sparse)
    yield "sparse", m
    t = TensorProto(name="w", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
    for k, v in (("location", "w.bin"), ("offset", "0"), ("length", "8")):
        t.external_data.add(key=k, value=v)
    yield "external", wrap([helper.make_node("Add", ["x", "w"], ["y"])], [t])
    yield "qdq", wrap([helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"], axis=0),
                       helper.make_node("MatMul", ["x", "d"], ["y"])],
                      [helper.make_tensor("q", TensorProto.INT4, [4], [1, -2, 3, -4]), array("s", [0.5]),
                       helper.make_tensor("z", TensorProto.INT4, [1], [0])])
    yield "chain", wrap([helper.make_node("Neg", [f"t{i}" if i else "x"], [f"t{i + 1}" if i < 9 else "y"]) for i in range(10)])


def old_models():
    """What the upgrader has to change."""
    def old(nodes, opset, inits=(), inputs=("x",)):
        return wrap(nodes, inits, inputs, opsets=[helper.make_opsetid("", opset)])
    node = helper.make_node
    yield "clip_pad", old([node("Clip", ["x"], ["a"], min=0.0, max=1.0), node("Pad", ["a"], ["y"], pads=[0, 1])], 7)
    yield "slice_topk", old([node("Slice", ["x"], ["a"], starts=[0], ends=[1]), node("TopK", ["a"], ["y", "i"], k=1)], 9)
    yield "upsample", old([node("Upsample", ["x"], ["a"], scales=[2.0]), node("Softmax", ["a"], ["y"], axis=0)], 8)
    yield "scatter", old([node("Scatter", ["x", "i", "x"], ["_v_9"]), node("ReduceSum", ["_v_9"], ["y"], axes=[0])], 10,
                         [array("i", [0, 1], np.int64)])
    yield "dropout", old([node("Dropout", ["x"], ["a"], ratio=0.5), node("Split", ["a"], ["y", "z"], split=[1, 1])], 11)
    yield "lstm", old([node("LSTM", ["x", "w", "r"], ["", "y"], hidden_size=1), node("Unsqueeze", ["y"], ["z"], axes=[0])], 12,
                      inputs=("x", "w", "r"))
    yield "groupnorm", old([node("GroupNormalization", ["x", "s", "s"], ["a"], num_groups=2),
                            node("DFT", ["a"], ["y"], axis=0)], 18, [array("s", [1, 2])])
    inner = helper.make_graph([node("Squeeze", ["a"], ["b"], axes=[0]), node("Softmax", ["b"], ["r"], axis=0)], "in", [],
                              [info("r")])
    yield "branches", old([node("Upsample", ["x", "s"], ["a"]), node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)],
                          9, [array("s", [2]), array("c", True, np.bool_)])
    yield "batchnorm", old([node("BatchNormalization", ["x", "x", "x", "x", "x"], ["y", "m", "v", "p", "q"])], 9)
    yield "scan", old([node("Scan", ["", "x"], ["y"], num_scan_inputs=1, body=inner)], 8)


def tensors():
    rng = np.random.default_rng(1)
    for name, number in TensorProto.DataType.items():
        if number == 0:
            continue
        if number == TensorProto.STRING:
            yield name, helper.make_tensor("s", number, [2], [b"a", b""])
            continue
        values = rng.integers(0, 2, 5) if "E8M0" not in name else np.ones(5)
        yield name + "_typed", helper.make_tensor("t", number, [5], values.tolist())
        yield name + "_raw", numpy_helper.from_array(numpy_helper.to_array(helper.make_tensor("r", number, [5], values.tolist())), "r")
    yield "empty", TensorProto(data_type=1, dims=[0, 3])
    yield "scalar", numpy_helper.from_array(np.float32(3.5), "s")
    yield "huge", TensorProto(data_type=1, dims=[2**31, 2**31], raw_data=b"12345678")


def debug_pairs():
    """A small float model and what became of it, in every format that the debugger reads."""
    rng = np.random.default_rng(2)
    node, ms = helper.make_node, [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    w = rng.normal(size=(8, 4)).astype(np.float32)
    plain = wrap([node("MatMul", ["x", "w"], ["t"], "mm"), node("Relu", ["t"], ["y"], "relu")], [array("w", w)])
    q8 = np.round(w * 30).astype(np.int8)
    act = [array("s", 0.1), array("z", 128, np.uint8)]
    pair = [node("QuantizeLinear", ["x", "s", "z"], ["x_QuantizeLinear_Output"]),
            node("DequantizeLinear", ["x_QuantizeLinear_Output", "s", "z"], ["x_DequantizeLinear_Output"])]

    def qdq(q, scale, zero, **attributes):
        return wrap([*pair, node("DequantizeLinear", ["w_quantized", "w_scale", "w_zero_point"], ["wd"], **attributes),
                     node("MatMul", ["x_DequantizeLinear_Output", "wd"], ["t"], "mm"), node("Relu", ["t"], ["y"], "relu")],
                    [*act, q, array("w_scale", scale), zero])

    yield "tensor", plain, qdq(array("w_quantized", q8, np.int8), 1 / 30, array("w_zero_point", 0, np.int8))
    yield "channel", plain, qdq(array("w_quantized", q8, np.int8), [1 / 30] * 4, array("w_zero_point", [0, 1, 2, 3], np.int8),
                                axis=1)
    four = helper.make_tensor("w_quantized", TensorProto.INT4, [8, 4], rng.integers(-8, 8, 32).tolist())
    zero = helper.make_tensor("w_zero_point", TensorProto.INT4, [2, 4], [0] * 8)
    yield "block", plain, qdq(four, np.full((2, 4), 0.2), zero, axis=0, block_size=4)
    yield "pair", plain, wrap([node("QuantizeLinear", ["w", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["d"]),
                               node("MatMul", ["x", "d"], ["t"], "mm"), node("Relu", ["t"], ["y"])], [array("w", w), *act])
    packed = rng.integers(0, 256, (4, 2, 2)).astype(np.uint8)
    yield "nbits", plain, wrap([node("MatMulNBits", ["x", "w_Q4", "sc", "zp"], ["t"], domain="com.microsoft", K=8, N=4, bits=4,
                                     block_size=4), node("Relu", ["t"], ["y"])],
                               [array("w_Q4", packed, np.uint8), array("sc", np.ones(8)), array("zp", [[136]] * 4, np.uint8)],
                               opsets=ms)
    yield "bnb4", plain, wrap([node("MatMulBnb4", ["x", "w_Bnb4", "sc"], ["t"], domain="com.microsoft", K=8, N=4, block_size=16,
                                    quant_type=1), node("Relu", ["t"], ["y"])],
                              [array("w_Bnb4", packed.ravel(), np.uint8), array("sc", [1, 2])], opsets=ms)
    table = wrap([node("Gather", ["w", "x"], ["y"], "g")], [array("w", w)])
    gather = {"domain": "com.microsoft", "block_size": 2, "quantize_axis": 1}
    yield "gather", table, wrap([node("GatherBlockQuantized", ["w_Q4", "x", "sc"], ["y"], "g", **gather)],
                                [helper.make_tensor("w_Q4", TensorProto.UINT4, [8, 4], [3] * 32), array("sc", np.ones((8, 2)))],
                                opsets=ms)
    yield "packed", table, wrap([node("GatherBlockQuantized", ["w_Q4", "x", "sc", "zp"], ["y"], "g", bits=4, **gather)],
                                [array("w_Q4", packed.reshape(8, 2), np.uint8), array("sc", np.ones((8, 2))),
                                 array("zp", np.full((8, 1), 136), np.uint8)], opsets=ms)
    yield "qlinear", plain, wrap([node("QuantizeLinear", ["x", "s", "z"], ["x_quantized"]),
                                  node("QLinearMatMul", ["x_quantized", "s", "z", "w_quantized", "s", "wz", "s", "z"],
                                       ["t_quantized"], "mm"), node("DequantizeLinear", ["t_quantized", "s", "z"], ["y"])],
                                 [*act, array("w_quantized", q8, np.int8), array("wz", 0, np.int8)])
    yield "integer", plain, wrap([node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
                                  node("MatMulInteger", ["q", "w_quantized", "z", "w_zero_point"], ["i"], "mm"),
                                  node("Cast", ["i"], ["f"], to=1), node("Mul", ["f", "w_scale"], ["y"])],
                                 [array("w_quantized", q8, np.int8), array("w_scale", 0.1), array("w_zero_point", 0, np.int8)])
    kernel = rng.normal(size=(2, 1, 1, 1)).astype(np.float32)
    normed = wrap([node("Conv", ["x", "k", "kb"], ["c"], "conv"), node("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"]),
                   node("Relu", ["n"], ["y"])], [array("k", kernel), array("kb", [1, 2])] + [array(i, [1, 2]) for i in "gbmv"])
    folded = [array("kf_quantized", np.round(kernel * 50), np.int8), array("bf_quantized", [3, 4], np.int32), array("s", 0.02),
              array("z", 0, np.int8), array("zb", 0, np.int32)]
    yield "folded", normed, wrap([node("DequantizeLinear", ["kf_quantized", "s", "z"], ["kd"]),
                                  node("DequantizeLinear", ["bf_quantized", "s", "zb"], ["bd"]),
                                  node("Conv", ["x", "kd", "bd"], ["n"], "conv"), node("Relu", ["n"], ["y"])], folded)
    added = wrap([node("Conv", ["x", "k"], ["c"], "conv"), node("Reshape", ["b", "sh"], ["r"]), node("Add", ["r", "c"], ["y"])],
                 [array("k", kernel), array("b", [1, 2]), array("sh", [1, 2, 1, 1], np.int64)])
    yield "added", added, wrap([node("DequantizeLinear", ["kf_quantized", "s", "z"], ["kd"]),
                                node("DequantizeLinear", ["bf_quantized", "s", "zb"], ["bd"]),
                                node("Conv", ["x", "kd", "bd"], ["y"], "conv")], folded)
    turned = wrap([node("Gemm", ["x", "w"], ["y"], "g", transB=1)], [array("w", w)])
    yield "turned", turned, wrap([node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
                                  node("MatMulInteger", ["q", "w_quantized", "z", "w_zero_point"], ["i"], "g"),
                                  node("Cast", ["i"], ["y"], to=1)],
                                 [array("w_quantized", q8.T, np.int8), array("w_scale", [0.1] * 8),
                                  array("w_zero_point", [0] * 8, np.int8)])


QUANTIZED = ("BatchNormalization", "Concat", "Constant.weight", "Conv", "Conv.tied", "Gather", "Gemm.beta", "If",
             "LayerNormalization", "MatMul.3d", "nodes.unnamed", "Pad.value", "Relu.chain", "Relu.output", "Softmax", "Split",
             "TopK", "Where")


def config_files():
    """A file for each row of the jobs in fuzz_config.c, and the model it is for."""
    conv, mm = opmodels.build("Conv", 17), opmodels.build("MatMul.3d", 17)
    names = [i.name for i in conv.graph.input] + [o for n in conv.graph.node for o in n.output]
    weight = next(i for n in conv.graph.node for i in n.input if i in {t.name for t in conv.graph.initializer})
    override = {names[0]: [{"scale": 0.5, "zero_point": 3, "quant_type": "QUInt8"}], names[-1]: [{"rmin": -1, "rmax": 2.5}],
                weight: [{"axis": 0, "symmetric": True, "quant_type": "QInt8"}]}
    convert = {names[0]: [{"quant_type": "QUInt8", "convert": {"quant_type": "QUInt16", "recv_nodes": [conv.graph.node[0].name]}}]}
    node, first = mm.graph.node[0].name or mm.graph.node[0].output[0], mm.graph.node[0]
    number = {"CLS": "numpy.ndarray", "data": -1.5, "dtype": "float32"}
    ranges = {"CLS": "TensorsData", "calibration_method": {"CLS": "CalibrationMethod", "value": "CalibrationMethod.MinMax"},
              "data": {n: {"CLS": "TensorData", "lowest": number, "highest": {**number, "data": 2}} for n in names}}
    yield 0, "overrides", override, conv
    yield 1, "convert", convert, conv
    yield 2, "plan", plan_of(conv), conv
    yield 3, "methods", {node: "outliers:1"}, mm
    yield 4, "costs", {"units": [{"key": "MatMul 2x2", "float_ms": 1.0, "int8_ms": 0.5, "int8_alone_ms": 0.7}]}, mm
    yield 5, "ranges", ranges, conv
    hist = {"hist": {**number, "data": [1, 2, 3], "dtype": "int64"}, "hist_edges": {**number, "data": [0, 1, 2, 3]},
            "bins": 3, "lowest": number, "highest": {**number, "data": 3}}
    yield 6, "histograms", {**ranges, "data": {n: {"CLS": "TensorData", **hist} for n in names}}, conv
    yield 7, "nodes", {node: {"bits": 4, "group_size": 16, "scheme": "asym"}, "other": "fp32"}, mm
    yield 8, "inputs", {first.input[0]: [128, 0.25]}, mm
    yield 9, "outputs", {first.output[0]: [0, 0.125]}, mm
    metrics = ("agreement", "sample_agreement", "sqnr", "cosine", "iou", "kl", "perplexity_rise", "accuracy_drop", "metric")
    row = {name + end: value for name in metrics for end, value in (("", "20.25"), ("_bound", "inf"))}
    row |= {"expected": "1", "objective": "1", "worst_tenth": "0.5", "accuracy": "nan", "ms": "1.5", "ms_noise": "0.1", "size": 7}
    yield 10, "state", {"format": "onq auto 2", "job": "a job", "rows": {"a": row, "b": {"why_not": "no"}}}, None
    yield 11, "labels", npy(np.array([1, 2], np.int64)), None


def plan_of(model):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        onnx.save(model, path / "m.onnx")
        subprocess.run([HERE.parents[1] / "build" / "onq", "static", "-i", path / "m.onnx", "-o", path / "q.onnx", "--data",
                        "random:2", "--plan", path / "plan.json", "--quiet"], check=True)
        return {**json.loads((path / "plan.json").read_text()), "model": "m.onnx"}


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def streams():
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.arange(3).reshape(1, 3)
    yield 0, "arrays", npy(x) + npy(x[:1])
    yield 1, "two_inputs", npy(x[:1]) + npy(y) + npy(x) + npy(np.tile(y, (2, 1)))
    z = io.BytesIO()
    np.savez_compressed(z, x=x, y=np.tile(y, (2, 1)))
    for number, name, form in ((1, "pax", tarfile.PAX_FORMAT), (0, "gnu", tarfile.GNU_FORMAT), (1, "ustar", tarfile.USTAR_FORMAT)):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=form) as tar:
            for member, data in (("d/" * 60 + "a.npz" if name != "ustar" else "a.npz", z.getvalue()), ("b.npy", npy(x)), ("c.txt", b"no")):
                info = tarfile.TarInfo(member)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        yield number, name, out.getvalue()[:8192]


OPTIONS = {  # the number of the command, then names and values
    "static": ["input", "a b.onnx", "per_channel", "true", "op_types_to_quantize", "Conv,MatMul", "+nodes_to_exclude", "a,b", "",
               "ActivationSymmetric=True", "", "TensorQuantOverrides={'x': [{'scale': np.float32(0.5)}]}", "memory", "1.5g", "-per_channel", ""],
    "lists": ["dim", "batch=1", "nodes_to_exclude", "re:^conv.*[0-9]$", "operand", "model.onnx", "image_mean", "0.5,0.25,1e-3", "",
              "QDQOpTypePerChannelSupportToAxis={\"MatMul\": 1, \"Gemm\": 0}", "", "OpTypesToExcludeOutputQuantization=[\"Conv\"]"],
    "wrong": ["thread", "2", "threads", "-1", "memory", "99999999999999999999t", "quant_format", "none", "", "Nonsense=1", "", "=",
              "limit", "0x10", "image_size", "224x"],
}


def talks():
    """What workers of --isolate say, see fuzz_isolate.c: name, what the caller has, frames."""
    hello, log, progress, following, rewind, opened, file, part, done, failed = range(6, 16)

    def frame(kind, *items):
        body = b"".join(i.to_bytes(8, "little") if isinstance(i, int) else len(i).to_bytes(8, "little") + i for i in items)
        return bytes([kind]) + len(body).to_bytes(2, "little") + body

    ranges = json.dumps({"CLASS": "TensorsData", "data": {"x": {"CLASS": "TensorData", "data": {"lowest": 0.0, "highest": 1.0}}}}).encode()
    result = frame(file, b"output", b"made", 5) + bytes([part, 5, 0]) + b"bytes"
    yield "result", 4, frame(log, 1, b"warning") + frame(progress, b"writing", 1, 2) + result + frame(done, 0, b"text\n", b"{}\n", 0)
    yield "two_files", 4, result + frame(file, b"output", b"made.data", 0) + frame(done, 1, b"", b"{}", 0)
    yield "samples", 1, frame(following) * 3 + frame(rewind) + frame(following) + frame(done, 0, b"", b"{}", 1, ranges)
    yield "data", 2, frame(opened, 0, b"data") + frame(opened, 1, b"x") + frame(failed, 3, 8, b"it failed")
    yield "again", 7, frame(hello, b"0.0.0")


def write(target, name, data):
    folder = HERE / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"seed_{name}").write_bytes(data)


def main():
    for old in (HERE / "corpus").glob("*/seed_*"):
        if old.parent.name in ("commands", "config", "debug", "decode", "diff", "options", "qdq", "roundtrip", "stream", "tensor",
                               "upgrade"):
            old.unlink()
    for name, m in models():
        write("decode", name, m.SerializeToString())
    for seed in range(2):
        m = protogen.Maker(seed, depth=3).fill(onnx.ModelProto())
        write("roundtrip", f"unknown_fields_{seed}", protogen.Encoder(seed, unknown=True).encode(m))
        write("decode", f"every_field_{seed}", protogen.Encoder(seed).encode(m))
    for name, m in old_models():
        write("upgrade", name, m.SerializeToString())
    for i, name in enumerate(QUANTIZED):  # the first byte chooses the options
        model = opmodels.build(name, 17).SerializeToString()
        write("qdq", name.lower().replace(".", "_"), bytes([i * 37 % 256]) + model)
        write("commands", name.lower().replace(".", "_"), bytes([i]) + model)
    for i, (name, m) in enumerate(models()):
        write("commands", name, bytes([i]) + m.SerializeToString())
    for number, prefix, names in ((11, "nbits", ("If",)), (12, "nbits_all", ("Constant.weight", "Gather", "Gemm.beta", "MatMul.3d")),
                                  (13, "nbits_qdq", ("Gemm.beta",)), (14, "k_quant", ("MatMul.3d",)), (15, "bnb4", ("MatMul.3d",))):
        for name in names:
            write("commands", f"{prefix}_{name.lower().replace('.', '_')}", bytes([number]) + opmodels.build(name, 17).SerializeToString())
    for name, a, b in debug_pairs():
        a, b = a.SerializeToString(), b.SerializeToString()
        write("diff", name, len(a).to_bytes(2, "little") + a + b)
    for name, m in models():
        m = m.SerializeToString()
        write("diff", name + "_same", len(m).to_bytes(2, "little") + m + m)
    for number, name, file, model in config_files():
        file = file if isinstance(file, bytes) else json.dumps(file).encode()
        model = model.SerializeToString() if model is not None else b""
        write("config", name, bytes([number]) + len(file).to_bytes(2, "little") + file + model)
    for number, name, data in streams():
        write("stream", name, bytes([number]) + data)
    for i, (name, pieces) in enumerate(OPTIONS.items()):
        for command in range(3):
            write("options", f"{name}_{command}", bytes([command * 5 + i]) + "\0".join(pieces).encode())
    for name, has, frames in talks():
        write("isolate", name, bytes([has]) + frames)
    for name, t in tensors():
        write("tensor", name, t.SerializeToString())
    write("tensor", "every_field", protogen.Encoder(1, unknown=True).encode(protogen.Maker(1).fill(TensorProto())))


if __name__ == "__main__":
    main()
