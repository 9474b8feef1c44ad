"""diff and inspect against the onnx package: planted differences are found, other ways of writing the same model are
none, and what inspect counts is what the package counts.
"""
import collections
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import modeltool
from common import onq

SHARED = modeltool.shared_models()
TESTDATA = modeltool.testdata_models()
EXAMPLE = modeltool.ROOT / "examples" / "digits_cnn" / "model.onnx"
PLANTED_IN = [EXAMPLE] + [p for p in SHARED if p.parent.name in ("silero_vad", "magika", "tiny_llama_ext", "bert_toy_fused")]


def diff(a, b, *words):
    r = onq("diff", a, b, "--json", *words)
    assert r.returncode in (0, 1) and r.stdout, r.stderr
    j = json.loads(r.stdout)
    assert j["same"] == (r.returncode == 0)
    return j


# ---- planted differences: (name, kind, what to do); a plant returns False where the model has no place for it

def first(model, test):
    return next((n for n in model.graph.node if test(n)), None)


def weight(model, types=(TensorProto.FLOAT,)):
    return next((t for t in model.graph.initializer if t.data_type in types and np.prod(t.dims) > 0), None)


def value_bit(m):
    t = weight(m)
    if t is None:
        return False
    a = numpy_helper.to_array(t).copy()
    a.reshape(-1).view(np.uint32)[-1] ^= 1
    t.CopyFrom(numpy_helper.from_array(a, t.name))


def value_inner(m):
    for n in m.graph.node:
        for a in n.attribute:
            for t in a.g.node:
                for b in t.attribute:
                    if b.type == b.TENSOR and b.t.data_type == TensorProto.INT64:
                        v = numpy_helper.to_array(b.t)
                        b.t.CopyFrom(numpy_helper.from_array(np.asarray(v + 1), b.t.name))
                        return True
    return False


def dims(m):
    t = weight(m)
    if t is None:
        return False
    t.dims.append(1)


def dtype(m):
    t = weight(m)
    if t is None:
        return False
    t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(t).astype(np.float64), t.name))


def initializer_gone(m):
    if not m.graph.initializer:
        return False
    del m.graph.initializer[0]


def initializer_more(m):
    m.graph.initializer.append(numpy_helper.from_array(np.zeros(1, np.float32), "planted"))


def op_type(m):
    m.graph.node[0].op_type += "X"


def domain(m):
    m.graph.node[0].domain = "com.example"


def node_gone(m):
    del m.graph.node[-1]


def node_more(m):
    m.graph.node.append(helper.make_node("Identity", [m.graph.output[0].name], ["planted"]))


def input_swapped(m):
    n = first(m, lambda n: len(n.input) > 1 and n.input[0] != n.input[1])
    if n is None:
        return False
    n.input[0], n.input[1] = n.input[1], n.input[0]


def output_renamed(m):
    n = first(m, lambda n: n.output[0] not in [o.name for o in m.graph.output])
    old = n.output[0]
    n.output[0] = "planted"
    for k in m.graph.node:
        for i, name in enumerate(k.input):
            if name == old:
                k.input[i] = "planted"


def attribute(m):
    for n in m.graph.node:
        for a in n.attribute:
            if a.type == a.INTS and a.ints:
                a.ints[-1] += 1
                return True
            if a.type == a.INT:
                a.i += 1
                return True
            if a.type == a.FLOAT:
                a.f += 1
                return True
    return False


def attribute_tensor(m):
    for n in m.graph.node:
        for a in n.attribute:
            if a.type == a.TENSOR and a.t.data_type == TensorProto.INT64:
                v = numpy_helper.to_array(a.t)
                a.t.CopyFrom(numpy_helper.from_array(np.asarray(v + 1), a.t.name))
                return True
    return False


def attribute_gone(m):
    n = first(m, lambda n: n.attribute)
    if n is None:
        return False
    del n.attribute[0]


def attribute_more(m):
    m.graph.node[0].attribute.append(helper.make_attribute("planted", 1))


def input_type(m):
    m.graph.input[0].type.tensor_type.elem_type = TensorProto.BOOL


def input_name(m):
    m.graph.input[0].name = "planted"


def input_more(m):
    m.graph.input.append(helper.make_tensor_value_info("planted", TensorProto.FLOAT, [1]))


def output_more(m):
    m.graph.output.append(helper.make_tensor_value_info(m.graph.node[0].output[0], TensorProto.FLOAT, None))


def opset(m):
    m.opset_import[0].version += 1


def function(m):
    m.functions.append(helper.make_function("com.example", "F", ["a"], ["b"], [helper.make_node("Neg", ["a"], ["b"])],
                                            [helper.make_opsetid("", 13)]))


def s_node_name(m):
    m.graph.node[0].name = "planted"


def s_value_info(m):
    m.graph.value_info.append(helper.make_tensor_value_info("planted", TensorProto.FLOAT, [1]))


def s_doc(m):
    m.graph.doc_string = "planted"


def s_producer(m):
    m.producer_version = "planted"


def s_ir(m):
    m.ir_version += 1


def s_metadata(m):
    helper.set_model_props(m, {"planted": "1"})


def s_dim(m):
    d = m.graph.output[0].type.tensor_type.shape.dim
    if not d:
        return False
    d[0].dim_param = "planted"


def s_initializer_order(m):
    if len(m.graph.initializer) < 2:
        return False
    both = [m.graph.initializer[0], m.graph.initializer[1]]
    both = [TensorProto.FromString(t.SerializeToString()) for t in both]
    m.graph.initializer[0].CopyFrom(both[1])
    m.graph.initializer[1].CopyFrom(both[0])


HARD = [("value", value_bit), (("attribute", "value"), value_inner), ("initializer", dims), ("initializer", dtype),
        ("initializer", initializer_gone), ("initializer", initializer_more), ("node", op_type), ("node", domain),
        ("node", node_gone), ("node", node_more), ("node", input_swapped), ("node", output_renamed),
        ("attribute", attribute), ("attribute", attribute_tensor), ("attribute", attribute_gone),
        ("attribute", attribute_more), ("input", input_type), ("input", input_name), ("input", input_more),
        ("output", output_more), ("opset", opset), ("function", function)]
SOFT = [("node_name", s_node_name), ("value_info", s_value_info), ("doc_string", s_doc), ("producer", s_producer),
        ("ir_version", s_ir), ("metadata", s_metadata), ("dimension", s_dim), ("order", s_initializer_order)]


@pytest.mark.parametrize("path", PLANTED_IN, ids=lambda p: p.parent.name)
def test_planted(path, tmp_path):
    planted = 0
    original = onnx.load(str(path))  # external data inside
    a, b = tmp_path / "a.onnx", tmp_path / "b.onnx"
    onnx.save(original, str(a))
    assert diff(a, path)["differences"] == 0, "the same model in one file"
    for kinds, change in HARD + SOFT:
        m = onnx.ModelProto()
        m.CopyFrom(original)
        if change(m) is False:
            continue
        planted += 1
        b.write_bytes(m.SerializeToString())
        soft = (kinds, change) in SOFT
        for j in (diff(a, b), diff(b, a)):
            found = [k for k in ((kinds,) if isinstance(kinds, str) else kinds) if j["counts"].get(k)]
            assert found, f"{change.__name__}: {j}"
            assert j["same"] == soft, f"{change.__name__}: {j}"
        assert not diff(a, b, "--strict")["same"], change.__name__
    assert planted >= 20
    print(f"{planted} planted in {path.parent.name}")


@pytest.mark.parametrize("path", PLANTED_IN, ids=lambda p: p.parent.name)
def test_written_another_way(path, tmp_path):
    m = onnx.load(str(path))
    # typed fields instead of raw data
    for t in m.graph.initializer:
        if t.data_type == TensorProto.FLOAT and t.HasField("raw_data"):
            values = numpy_helper.to_array(t).reshape(-1)
            t.ClearField("raw_data")
            t.float_data.extend(values.tolist())
        elif t.data_type == TensorProto.INT64 and t.HasField("raw_data"):
            values = numpy_helper.to_array(t).reshape(-1)
            t.ClearField("raw_data")
            t.int64_data.extend(values.tolist())
    for n in m.graph.node:
        if n.domain == "":
            n.domain = "ai.onnx"
    typed = tmp_path / "typed.onnx"
    typed.write_bytes(m.SerializeToString())
    assert diff(path, typed)["differences"] == 0
    # external, one file and one per tensor
    for one in (True, False):
        out = tmp_path / f"external_{one}"
        out.mkdir()
        onnx.save_model(onnx.load(str(path)), str(out / "m.onnx"), save_as_external_data=True,
                        all_tensors_to_one_file=one, size_threshold=0)
        assert diff(path, out / "m.onnx")["differences"] == 0
    # every tensor called otherwise
    renamed = onnx.load(str(path))
    if any(a.HasField("g") for n in renamed.graph.node for a in n.attribute):
        return  # the simple renaming below does not look into subgraphs
    io = {v.name for v in list(renamed.graph.input) + list(renamed.graph.output)}
    for t in renamed.graph.initializer:
        t.name = t.name if t.name in io else "n_" + t.name
    inits = {t.name for t in renamed.graph.initializer}
    for n in renamed.graph.node:
        n.name = "n_" + n.name
        n.input[:] = [i if not i or i in io else "n_" + i for i in n.input]
        n.output[:] = [o if not o or o in io else "n_" + o for o in n.output]
    assert inits
    b = tmp_path / "renamed.onnx"
    onnx.save(renamed, str(b))
    assert diff(path, b)["differences"] > 0
    assert diff(path, b, "--ignore", "names")["differences"] == 0


# ---- inspect counts what the package counts

def graphs_of(graph):
    yield graph
    for n in graph.node:
        for a in n.attribute:
            for g in ([a.g] if a.HasField("g") else []) + list(a.graphs):
                yield from graphs_of(g)


def check_inspect(path):
    r = onq("inspect", path, "--json")
    assert r.returncode == 0, f"{path}: {r.stderr}"
    j = json.loads(r.stdout)
    m = onnx.load(str(path), load_external_data=False)
    nodes, ops, tensors, values = 0, collections.Counter(), 0, 0
    for nodes_of in [g.node for g in graphs_of(m.graph)] + [f.node for f in m.functions]:
        for n in nodes_of:
            nodes += 1
            ops[n.op_type if n.domain in ("", "ai.onnx") else f"{n.domain}:{n.op_type}"] += 1
            for a in n.attribute:
                for t in ([a.t] if a.HasField("t") else []) + list(a.tensors):
                    tensors, values = tensors + 1, values + int(np.prod(t.dims, dtype=np.int64))
                for s in ([a.sparse_tensor] if a.HasField("sparse_tensor") else []) + list(a.sparse_tensors):
                    for t in (s.values, s.indices):
                        tensors, values = tensors + 1, values + int(np.prod(t.dims, dtype=np.int64))
    for g in graphs_of(m.graph):
        for t in list(g.initializer) + [t for s in g.sparse_initializer for t in (s.values, s.indices)]:
            tensors, values = tensors + 1, values + int(np.prod(t.dims, dtype=np.int64))
    assert (j["nodes"], j["tensors"], j["parameters"]) == (nodes, tensors, values), path
    assert j["operators"] == dict(ops), path
    assert j["ir_version"] == m.ir_version
    assert [(o["domain"], o["version"]) for o in j["opset_import"]] == [(o.domain, o.version) for o in m.opset_import]
    inits = {t.name for t in m.graph.initializer}
    assert [v["name"] for v in j["inputs"]] == [v.name for v in m.graph.input if v.name not in inits]
    assert [v["name"] for v in j["outputs"]] == [v.name for v in m.graph.output]


def test_inspect_shared():
    if not SHARED:
        pytest.skip("no shared models: 0 inspected")
    for path in SHARED:
        check_inspect(path)
        assert diff(path, path)["same"]
    print(f"{len(SHARED)} shared models")


def test_inspect_testdata():
    if not TESTDATA:
        pytest.skip("libonnx-testdata is not installed: 0 of about 1,072 models inspected")
    for path in TESTDATA:
        check_inspect(path)
        assert diff(path, path)["soft_differences"] == 0, path
        assert diff(path, path, "--ignore", "names")["same"], path
    print(f"{len(TESTDATA)} models of libonnx-testdata")


# ---- what is quantized, in models the reference made

def test_inspect_quantized(tmp_path):
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static
    from onnxruntime.quantization.calibrate import CalibrationDataReader

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.left = iter([{"input": np.ones((1, 1, 28, 28), np.float32)}])

        def get_next(self):
            return next(self.left, None)

    def inspect(path):
        r = onq("inspect", path, "--json")
        assert r.returncode == 0, r.stderr
        return json.loads(r.stdout)["quantization"]

    def weights(q):
        return {(w["type"], w["granularity"]) for w in q["weights"]}

    out = tmp_path / "q.onnx"
    quantize_static(str(EXAMPLE), str(out), Reader(), quant_format=QuantFormat.QDQ, per_channel=True,
                    weight_type=QuantType.QInt8, activation_type=QuantType.QUInt8)
    q = inspect(out)
    assert q["formats"] == ["QDQ"]
    assert ("INT8", "per channel") in weights(q)
    assert {a["type"] for a in q["activations"]} == {"UINT8"}
    quantize_static(str(EXAMPLE), str(out), Reader(), quant_format=QuantFormat.QOperator, weight_type=QuantType.QInt8,
                    activation_type=QuantType.QInt8)
    q = inspect(out)
    assert "QOperator" in q["formats"] and ("INT8", "per tensor") in weights(q)
    quantize_dynamic(str(EXAMPLE), str(out))
    q = inspect(out)
    assert q["formats"] == ["integer"] and q["integer"] > 0
