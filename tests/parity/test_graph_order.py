"""The reference's own node order and initializer cleaning, live: ONNXModel.topological_sort and clean_initializers."""
import random

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization.onnx_model import ONNXModel

import modeltool

SHARED = modeltool.shared_models()


def parse(data):
    m = onnx.ModelProto()
    m.ParseFromString(data)
    return m


def ours(tool, command, model, tmp_path):
    src, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    src.write_bytes(model.SerializeToString())
    tool(command, src, out)
    return parse(out.read_bytes())


def check_sort(tool, model, tmp_path):
    """True when it could be sorted; both must agree about that, too."""
    ref = ONNXModel(parse(model.SerializeToString()))
    try:
        ref.topological_sort()
    except AssertionError:
        with pytest.raises(modeltool.ToolError) as e:
            ours(tool, "sort", model, tmp_path)
        assert e.value.code == 21
        return False
    got = ours(tool, "sort", model, tmp_path)
    assert modeltool.difference(ref.model, got) is None
    return True


def check_prune(tool, model, tmp_path):
    ref = ONNXModel(parse(model.SerializeToString()))
    try:
        ref.clean_initializers()
    except ValueError:  # of two initializers of one name that is a graph input, too; onq removes both
        names = [t.name for t in model.graph.initializer]
        assert len(names) != len(set(names))
        return
    got = ours(tool, "prune", model, tmp_path)
    same_lists(ref.model.graph, got.graph)


def same_lists(a, b):
    names = [t.name for t in a.initializer], [t.name for t in b.initializer]
    assert names[0] == names[1] or sorted(names[0]) == sorted(names[1]) and "twice" in a.doc_string
    assert [v.name for v in a.input] == [v.name for v in b.input]
    for x, y in zip(a.node, b.node):
        subs = [{at.name: at.g for at in n.attribute if at.HasField("g")} for n in (x, y)]
        assert subs[0].keys() == subs[1].keys()
        for k in subs[0]:
            same_lists(subs[0][k], subs[1][k])


def random_model(rng):
    """A graph with the corners that matter: names twice, empty names, shadowed ones, nodes in any order."""
    pool = [f"{rng.choice('abmzé')}{i}" for i in range(12)]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in rng.sample(pool, rng.randint(1, 4))]
    inits = [numpy_helper.from_array(np.zeros(1, np.float32), n) for n in rng.sample(pool, rng.randint(0, 4))]
    if inits and rng.random() < 0.2:
        inits.append(inits[0])
    have = [v.name for v in inputs] + [t.name for t in inits]
    nodes = []
    for i in range(rng.randint(0, 14)):
        ins = [rng.choice(have + [""] * 2 + (["nowhere"] if rng.random() < 0.02 else [])) for _ in range(rng.randint(0, 4))]
        outs = [f"{rng.choice('abmz')}_{rng.randint(0, 40)}" for _ in range(rng.randint(1, 2))]
        if rng.random() < 0.05:
            outs[0] = rng.choice(have)
        if rng.random() < 0.1:
            outs.append("")
        attributes = {}
        if rng.random() < 0.15:
            inner = helper.make_node("Neg", [rng.choice(have)], ["inner"])
            unused = numpy_helper.from_array(np.zeros(1, np.float32), rng.choice(pool))
            attributes["body"] = helper.make_graph([inner], "body", [], [helper.make_tensor_value_info("inner", 1, [1])],
                                                   [unused])
        nodes.append(helper.make_node(rng.choice(["Add", "Conv"]), ins, outs, name=f"n{i}", **attributes))
        have += [o for o in outs if o]
    rng.shuffle(nodes)
    names = [t.name for t in inits]
    # Of two equal ones the reference takes away the first, whichever it found unused: only the order differs.
    doc = "twice" if len(names) != len(set(names)) else ""
    out = helper.make_tensor_value_info(rng.choice(have), TensorProto.FLOAT, [1])
    return helper.make_model(helper.make_graph(nodes, "g", inputs, [out], inits, doc_string=doc), ir_version=8)


def test_random_graphs(tool, tmp_path):
    rng = random.Random(20240607)
    sorted_, refused = 0, 0
    for _ in range(1000):
        m = random_model(rng)
        if check_sort(tool, m, tmp_path):
            sorted_ += 1
        else:
            refused += 1
        check_prune(tool, m, tmp_path)
    assert sorted_ > 500 and refused > 10, (sorted_, refused)


@pytest.mark.parametrize("path", SHARED, ids=lambda p: p.parent.name)
def test_shared(tool, tmp_path, path):
    m = onnx.load(str(path), load_external_data=False)
    for t in m.graph.initializer:  # the order does not depend on the weights
        for f in ("raw_data", "external_data", "float_data", "data_location"):
            t.ClearField(f)
    check_sort(tool, m, tmp_path)
    check_prune(tool, m, tmp_path)
    nodes = list(m.graph.node)
    random.Random(1).shuffle(nodes)
    m.graph.ClearField("node")
    m.graph.node.extend(nodes)
    check_sort(tool, m, tmp_path)
