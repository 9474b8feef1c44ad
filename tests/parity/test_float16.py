"""`preprocess --float16`: half of the file, near float, and nothing that the runtime refuses or float16 cannot hold."""
import json
import re

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, defs, helper, numpy_helper

import opmodels
from common import ROOT, onq

RNG = np.random.default_rng(16)


def tensor(name, values):
    return numpy_helper.from_array(np.asarray(values, np.float32), name)


def info(name, shape, kind=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def save(path, nodes, inputs, outputs, inits, opset=17):
    graph = helper.make_graph(nodes, "g", inputs, outputs, inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)


def network(path, far=1.0):
    """Conv, Relu, pooling, reshaped by a computed shape, MatMul, Add: far is the largest value of a weight."""
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1] * 4), helper.make_node("Relu", ["c"], ["r"], "relu"),
             helper.make_node("Shape", ["r"], ["s"], "shape"), helper.make_node("Slice", ["s", "zero", "two"], ["front"], "front"),
             helper.make_node("Concat", ["front", "rest"], ["to"], "to", axis=0), helper.make_node("Reshape", ["r", "to"], ["f"], "flat"),
             helper.make_node("MatMul", ["f", "v"], ["m"], "matmul"), helper.make_node("Constant", [], ["b"], "constant", value=tensor("", RNG.normal(size=40))),
             helper.make_node("Add", ["m", "b"], ["a"], "add"), helper.make_node("Mul", ["a", "far"], ["d"], "far"),
             helper.make_node("Div", ["d", "far"], ["y"], "near")]
    integers = [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in {"zero": [0], "two": [2], "rest": [64]}.items()]
    save(path, nodes, [info("x", ["n", 3, 8, 8])], [info("y", ["n", 8, 40]), info("f", ["n", 8, 64])],
         [tensor("w", RNG.normal(size=(8, 3, 3, 3)) / 5), tensor("v", RNG.normal(size=(64, 40)) / 8), tensor("far", [far]), *integers])
    return RNG.normal(size=(2, 3, 8, 8)).astype(np.float32)


def halve(folder, what, *words, status=0):
    done = onq("preprocess", "-i", folder / "m.onnx", "-o", folder / "h.onnx", "--float16", what, "--optimizer", "none", "--json", *words)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)["float16"] if status == 0 else done.stderr


def decibels(folder, feed, levels=(0, 99)):
    """Of the worst output, with the runtime's optimisations and without."""
    worst = np.inf
    for level in levels:
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel(level)
        a, b = (ort.InferenceSession(str(folder / name), options, providers=["CPUExecutionProvider"]).run(None, feed)
                for name in ("m.onnx", "h.onnx"))
        for x, y in zip(a, b, strict=True):
            assert x.dtype == y.dtype and x.shape == y.shape
            noise = ((x.astype(float) - y) ** 2).sum()
            worst = min(worst, np.inf if noise == 0 else 10 * np.log10((x.astype(float) ** 2).sum() / noise))
    return worst


@pytest.mark.parametrize("what", ["weights", "all"])
def test_it_is_half_and_near_float(tmp_path, what):
    x = network(tmp_path / "m.onnx")
    made = halve(tmp_path, what)
    model = onnx.load(tmp_path / "h.onnx")
    onnx.checker.check_model(model, full_check=True)
    types = {t.name: t.data_type for t in model.graph.initializer}
    assert types["v_float16"] == TensorProto.FLOAT16 and "v" not in types
    assert decibels(tmp_path, {"x": x}) > 55
    computed = {n.name for n in model.graph.node if any(i.endswith("_float16") for i in n.input) and n.op_type != "Cast"}
    if what == "weights":
        assert made == {"weights": 1, "nodes": 0} and not computed and types["w"] == TensorProto.FLOAT
    else:
        assert made["nodes"] == len(computed - {"shape", "flat"}) and {"conv", "relu", "matmul", "add", "near"} <= computed
    assert [(i.name, i.type.tensor_type.elem_type) for i in [*model.graph.input, *model.graph.output]] == [("x", 1), ("y", 1), ("f", 1)]


@pytest.mark.parametrize("what", ["weights", "all"])
def test_what_float16_cannot_hold_stays(tmp_path, what):
    """1e30 would be infinite, and tiny weights zero."""
    x = network(tmp_path / "m.onnx", far=1e30)
    halve(tmp_path, what)
    assert decibels(tmp_path, {"x": x}) > 50
    types = {t.name: t.data_type for t in onnx.load(tmp_path / "h.onnx").graph.initializer}
    assert types["far"] == TensorProto.FLOAT
    save(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "tiny"], ["y"], "m")], [info("x", [1, 64])], [info("y", [1, 64])],
         [tensor("tiny", RNG.normal(size=(64, 64)) * 1e-9)])
    assert "nothing in it can be float16" in halve(tmp_path, what, "--strict", status=1)
    assert halve(tmp_path, what) == {"weights": 0, "nodes": 0}


def test_inner_graphs(tmp_path):
    """Nodes inside compute as before and find the floats they take from outside; their weights are stored as float16."""
    branch = lambda name, op: helper.make_graph([helper.make_node(op, ["a", name + "_w"], [name], name)], name, [], [info(name, None)],  # noqa: E731
                                                [tensor(name + "_w", RNG.normal(size=(16, 64)))])
    save(tmp_path / "m.onnx", [helper.make_node("MatMul", ["x", "w"], ["a"], "first"),
                               helper.make_node("If", ["yes"], ["y"], "choice", then_branch=branch("then", "Add"), else_branch=branch("else", "Mul"))],
         [info("x", [16, 32]), info("yes", [], TensorProto.BOOL)], [info("y", None)], [tensor("w", RNG.normal(size=(32, 64)))])
    feed = {"x": RNG.normal(size=(16, 32)).astype(np.float32)}
    for what, made in (("weights", {"weights": 3, "nodes": 0}), ("all", {"weights": 3, "nodes": 1})):
        assert halve(tmp_path, what) == made
        for yes in (True, False):
            assert decibels(tmp_path, {**feed, "yes": np.array(yes)}) > 55


def test_integers_stay_integers(tmp_path):
    """Of a quantized model the float rest is float16; the runtime still computes the others in integers."""
    x = network(tmp_path / "f.onnx")
    np.save(tmp_path / "x.npy", x[None])
    onq("static", "-i", tmp_path / "f.onnx", "-o", tmp_path / "m.onnx", "--data", tmp_path / "x.npy", "--nodes_to_exclude", "matmul,add,far,near", status=0)

    def integer_kernels(name):
        options = ort.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / "o.onnx")
        ort.InferenceSession(str(tmp_path / name), options, providers=["CPUExecutionProvider"])
        return sum(n.op_type.startswith("QLinear") for n in onnx.load(tmp_path / "o.onnx").graph.node)

    for what in ("weights", "all"):
        made = halve(tmp_path, what)
        assert made["weights"] > 0 and (made["nodes"] > 0) == (what == "all")
        assert integer_kernels("h.onnx") == integer_kernels("m.onnx") > 0
        assert decibels(tmp_path, {"x": x}, levels=(99,)) > 45


def test_names_that_are_taken(tmp_path):
    save(tmp_path / "m.onnx", [helper.make_node("MatMul", ["w_float16", "w"], ["y"], "w_cast")], [info("w_float16", [4, 32])],
         [info("y", [4, 32])], [tensor("w", RNG.normal(size=(32, 32)))])
    for what in ("weights", "all"):
        halve(tmp_path, what)
        onnx.checker.check_model(str(tmp_path / "h.onnx"), full_check=True)
        assert decibels(tmp_path, {"w_float16": RNG.normal(size=(4, 32)).astype(np.float32)}) > 55


@pytest.mark.parametrize("what", ["weights", "all"])
def test_operators_with_empty_inputs(tmp_path, what):
    """A recurrent operator, which the runtime cannot load in float16, and a Clip without its lower bound."""
    sizes = {"w": (1, 32, 16), "r": (1, 32, 8), "v": (8, 40)}
    save(tmp_path / "m.onnx", [helper.make_node("LSTM", ["x", "w", "r", "", "", "h"], ["a", "", "c"], "lstm", hidden_size=8),
                               helper.make_node("Clip", ["a", "", "most"], ["b"], "clip"), helper.make_node("MatMul", ["b", "v"], ["y"], "m")],
         [info("x", [5, 2, 16]), info("h", [1, 2, 8])], [info("y", None), info("c", None)],
         [*(tensor(k, RNG.normal(size=s)) for k, s in sizes.items()), tensor("most", 0.5)])
    assert halve(tmp_path, what)["weights"] > 1
    assert decibels(tmp_path, {"x": RNG.normal(size=(5, 2, 16)).astype(np.float32), "h": np.zeros((1, 2, 8), np.float32)}) > 50


@pytest.mark.parametrize("opset", [11, 17, 21])
@pytest.mark.parametrize("name", opmodels.NAMES)
def test_operators(tmp_path, name, opset):
    """Models of one operator each load and are near float, whether the operator is in the table or not."""
    if not opmodels.exists(name, opset):
        pytest.skip("there is none at this opset")
    model = opmodels.build(name, opset)
    onnx.save(model, tmp_path / "m.onnx")
    feed = {}
    initialized = {t.name for t in model.graph.initializer}
    for i in model.graph.input:
        kind = helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type)
        shape = [d.dim_value or 2 for d in i.type.tensor_type.shape.dim]
        if i.name not in initialized:
            feed[i.name] = RNG.normal(size=shape).astype(kind) if kind == np.float32 else np.ones(shape, kind)
    try:
        ort.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"]).run(None, feed)
    except Exception as e:  # noqa: BLE001 - what the runtime refuses in float says nothing
        pytest.skip(str(e)[:80])
    for what in ("weights", "all"):
        done = onq("preprocess", "-i", tmp_path / "m.onnx", "-o", tmp_path / "h.onnx", "--float16", what, "--optimizer", "none")
        assert done.returncode == 0, done.stderr
        if what == "all":
            assert "_float16" in str(onnx.load(tmp_path / "h.onnx").graph.node), "nothing was turned"
        assert decibels(tmp_path, feed) > 30


def test_wrong_use(tmp_path):
    network(tmp_path / "m.onnx")
    words = ["preprocess", "-i", tmp_path / "m.onnx", "-o", tmp_path / "h.onnx", "--float16"]
    assert onq(*words, "half").returncode == onq(*words, "all", "--qnn").returncode == onq(*words, "all", "--fuse", "Gelu").returncode == 2


def test_the_table_is_onnx_s():
    """From the opset on that half.def names, every float input and output of the operator may be float16."""
    rows = re.findall(r'^OQ_HALF\("(\w+)", (\d+), (\w+)\)$', (ROOT / "src/prepare/half.def").read_text(), re.M)
    assert len(rows) > 60 and rows == sorted(rows)
    for name, since, _ in rows:
        for version in range(int(since), defs.onnx_opset_version() + 1):
            schema = defs.get_schema(name, version)
            allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
            for formal in [*schema.inputs, *schema.outputs]:
                types = allowed.get(formal.type_str, [formal.type_str])
                further = name in ("LayerNormalization", "BatchNormalization") and formal.name not in ("X", "Y", "Scale", "B", "scale")
                assert "tensor(float)" not in types or "tensor(float16)" in types or further, f"{name} {version}: {formal.name}"
