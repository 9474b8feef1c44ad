"""The opset upgrader against onnx's version converter, live: the same nodes, names, attributes, initializers and
value_infos, over every operator that changed, over variants of those whose nodes have to change, over random graphs
with subgraphs and awkward names, and over the shared models. Then what the converter cannot do, run before and after.

The converter infers shapes first; onq leaves that to its caller, so here the onnx package does it for both.
"""
import collections
import random
import re

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx.version_converter import convert_version

import modeltool

OLDEST, NEWEST = 7, onnx.defs.onnx_opset_version()
FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


# ---------------------------------------------------------------- comparing
def opset_of(model):
    return next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))


def upgraded(tool, model, target, tmp_path):
    src, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    src.write_bytes(model.SerializeToString())
    tool("upgrade", src, out, target)
    m = onnx.ModelProto()
    m.ParseFromString(out.read_bytes())
    return m


def forget_metadata(graph):
    """The converter drops it; onq keeps it."""
    graph.ClearField("metadata_props")
    for v in (*graph.input, *graph.output, *graph.value_info):
        v.ClearField("metadata_props")
    for node in graph.node:
        node.ClearField("metadata_props")
        for a in node.attribute:
            if a.HasField("g"):
                forget_metadata(a.g)


def without_opsets(model):
    m = onnx.ModelProto()
    m.CopyFrom(model)
    forget_metadata(m.graph)
    opsets = sorted(("" if o.domain == "ai.onnx" else o.domain, o.version) for o in m.opset_import)
    m.ClearField("opset_import")
    return opsets, m


def check(tool, model, target, tmp_path):
    """None when both agree, or why the converter failed."""
    try:
        want = convert_version(model, target)
    except Exception as e:  # noqa: BLE001 - it throws whatever C++ throws
        return str(e).split("\n")[0] or type(e).__name__
    got = upgraded(tool, onnx.shape_inference.infer_shapes(model), target, tmp_path)
    (a, x), (b, y) = without_opsets(want), without_opsets(got)
    assert a == b
    found = modeltool.difference(x, y, "model")
    assert found is None, found
    return None


# ---------------------------------------------------------------- models
def info(name, kind=FLOAT, shape=(2, 3, 4, 4)):
    return helper.make_tensor_value_info(name, kind, shape)


def wrap(nodes, opset, inputs=None, outputs=None, inits=(), ir=8, extra_opsets=()):
    inputs = [info("x")] if inputs is None else inputs
    outputs = [info("y", FLOAT, None)] if outputs is None else outputs
    g = helper.make_graph(nodes, "g", inputs, outputs, list(inits))
    return helper.make_model(g, ir_version=ir, opset_imports=[helper.make_opsetid("", opset), *extra_opsets])


def one(op, opset, n_in=1, n_out=1, x=None, **attributes):
    """One node between an Identity and an Identity: its tensors are inside."""
    x = info("x") if x is None else x
    ins = ["t"] + [f"i{k}" for k in range(1, n_in)]
    outs = ["u"] + [f"o{k}" for k in range(1, n_out)]
    nodes = [helper.make_node("Identity", ["x"], ["t"], "before"), helper.make_node(op, ins, outs, "node", **attributes),
             helper.make_node("Identity", ["u"], ["y"], "after")]
    return wrap(nodes, opset, [x] + [info(i) for i in ins[1:]])


def values(name, *v):
    return numpy_helper.from_array(np.array(v, np.float32), name)


# ---------------------------------------------------------------- the table
def history():
    h = collections.defaultdict(list)
    for s in onnx.defs.get_all_schemas_with_history():
        if s.domain == "":
            h[s.name].append(s)
    return {name: sorted(v, key=lambda s: s.since_version) for name, v in h.items()}


def test_the_table_has_every_change():
    text = (modeltool.ROOT / "src" / "onnx" / "upgrade" / "upgrade.def").read_text()
    rows = re.findall(r'^OQ_UP(?:_SAME)?\((\d+), "(\w+)"', text, re.M)
    rows = [(int(v), op) for v, op in rows]
    assert rows == sorted(set(rows)), "rows in the order of opset and name, each once"
    wanted = {(s.since_version, op) for op, v in history().items() for s in v[1:] if s.since_version > OLDEST}
    assert wanted <= set(rows), f"no row: {wanted - set(rows)}"
    # A package newer than the reference's brought opset 28 and a version of Attention that 1.22 lacks; an Upsample that
    # opset 10 no longer has is taken all the same.
    assert {r for r in rows if r[0] <= NEWEST} - wanted <= {(25, "Attention"), (11, "Upsample")}


# ---------------------------------------------------------------- every operator
def default_attribute(name, kind):
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["inner"])], "body", [], [info("inner")])
    tensor = values("", 1, 2)
    return {AttributeProto.INT: 1, AttributeProto.FLOAT: 0.5, AttributeProto.STRING: "x", AttributeProto.INTS: [1, 2],
            AttributeProto.FLOATS: [1.0, 2.0], AttributeProto.STRINGS: ["a"], AttributeProto.TENSOR: tensor,
            AttributeProto.GRAPH: graph, AttributeProto.TYPE_PROTO: info("t").type}[kind]


def generic(schema, opset):
    """A node of the operator with the inputs it must have and every attribute that can be given."""
    attributes = {}
    for name, a in schema.attributes.items():
        kind = AttributeProto.AttributeType.Value(a.type.name)
        if kind in (AttributeProto.SPARSE_TENSOR, AttributeProto.GRAPHS, AttributeProto.TENSORS, AttributeProto.TYPE_PROTO):
            continue
        if schema.name == "Constant" and name != "value":
            continue
        attributes[name] = default_attribute(name, kind)
    if "axis" in attributes and schema.name == "Split":
        attributes["axis"] = 0
    if schema.name == "BatchNormalization" and "spatial" in attributes:
        attributes["spatial"] = 1
    if schema.name == "Pad":
        attributes["mode"] = "constant"  # another mode keeps a value that is no longer an attribute
    n_in, n_out = max(schema.min_input, 0), max(schema.min_output, 1)
    ins, outs = [f"x{k}" for k in range(n_in)], [f"y{k}" for k in range(n_out)]
    node = helper.make_node(schema.name, ins, outs, "node", **attributes)
    return wrap([node], opset, [info(i) for i in ins], [info(o, FLOAT, None) for o in outs])


def schema_at(versions, opset):
    return [s for s in versions if s.since_version <= opset][-1]


DIFFERENT = ("Hardmax",)  # test_raise.py: the converter changes what it computes


def test_every_operator(tool, tmp_path):
    same, failed = 0, {}
    for op, versions in sorted(history().items()):
        for s in versions[1:]:
            if s.since_version <= OLDEST:
                continue
            before = schema_at(versions, s.since_version - 1)
            if before.deprecated or op in DIFFERENT:
                continue
            m = generic(before, s.since_version - 1)
            for target in {s.since_version, NEWEST}:
                why = check(tool, m, target, tmp_path)
                if why is None:
                    same += 1
                else:
                    failed[op, s.since_version, target] = why
    # GroupNormalization: the converter leaves scales by group, which is wrong from opset 21 on.
    assert {k[0] for k in failed} <= {"Scan", "GroupNormalization"}, failed
    assert same > 600


def test_every_operator_from_seven(tool, tmp_path):
    """All the way: from the oldest opset an operator is in to every newer one."""
    same = 0
    for op, versions in sorted(history().items()):
        first = max(OLDEST, versions[0].since_version)
        s = schema_at(versions, first)
        if s.deprecated or op in ("Scan", "GroupNormalization", *DIFFERENT) or first == NEWEST:
            continue
        for target in (11, 13, 18, 21, NEWEST):
            if target > first:
                assert check(tool, generic(s, first), target, tmp_path) is None, op
                same += 1
    assert same > 500


# ---------------------------------------------------------------- nodes that have to change
def variants():
    for rank in range(0, 6):
        shape = (2, 3, 4, 5, 6)[:rank]
        for axis in [None, *range(-rank, rank)]:
            for op in ("Softmax", "LogSoftmax", "Hardmax"):
                if op == "Hardmax" and axis not in (-1, rank - 1) and (axis is not None or rank != 2):
                    continue  # DIFFERENT
                extra = {} if axis is None else {"axis": axis}
                yield f"{op}_rank{rank}_axis{axis}", one(op, 11, x=info("x", FLOAT, shape), **extra)
    for axis in (0, 1, 2, -1, -2):
        yield f"Softmax_unknown_rank_{axis}", one("Softmax", 12, x=info("x", FLOAT, None), axis=axis)
    for keys in ({}, {"min": 0.0}, {"max": 6.0}, {"min": -1.5, "max": 6.25}):
        yield f"Clip_{'_'.join(keys)}", one("Clip", 9, **keys)
    for keys in ({"pads": [0, 0, 1, 1, 0, 0, 1, 1]}, {"pads": [0] * 8, "mode": "reflect"}, {"pads": [0] * 8, "mode": "constant"},
                 {"pads": [1] * 8, "mode": "constant", "value": 2.5}, {"pads": [1] * 8, "mode": "edge"}):
        yield f"Pad_{len(str(keys))}", one("Pad", 9, **keys)
        yield f"Pad_ir3_{len(str(keys))}", with_ir(one("Pad", 9, **keys), 3)
    for axes in (None, [0], [2, 3], [-1]):
        extra = {} if axes is None else {"axes": axes}
        for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare", "ReduceProd"):
            yield f"{op}_{axes}", one(op, 11, keepdims=0, **extra)
        yield f"Squeeze_{axes}", one("Squeeze", 11, **extra)
        yield f"Unsqueeze_{axes}", one("Unsqueeze", 9, **(extra or {"axes": [0]}))
    for keys in ({"starts": [1], "ends": [2]}, {"starts": [0, 1], "ends": [9, -1], "axes": [2, 3]}):
        yield f"Slice_{len(keys)}", one("Slice", 8, **keys)
    for keys in ({"split": [1, 2], "axis": 1}, {"axis": 1}, {"split": [1, 1]}):
        yield f"Split_{'_'.join(keys)}_{len(str(keys))}", one("Split", 11, n_out=2, **keys)
        yield f"Split13_{'_'.join(keys)}", one("Split", 13, n_out=3, **{k: v for k, v in keys.items() if k != "split"})
    yield "Split_with_sizes", one("Split", 13, n_in=2, n_out=2)
    for keys in ({}, {"ratio": 0.25}):
        yield f"Dropout_{len(keys)}", one("Dropout", 10, **keys)
        yield f"Dropout_mask_{len(keys)}", one("Dropout", 7, n_out=2, **keys)
    yield "TopK", one("TopK", 9, n_out=2, k=2, axis=-1)
    for mode in ("nearest", "linear"):
        yield f"Upsample_attribute_{mode}", one("Upsample", 8, mode=mode, scales=[1.0, 1.0, 2.0, 2.0])
        yield f"Upsample_input_{mode}", one("Upsample", 9, n_in=2, mode=mode)
        yield f"Resize_{mode}", one("Resize", 10, n_in=2, mode=mode)
    yield "Upsample_default", one("Upsample", 9, n_in=2)
    yield "Resize_unknown_rank", one("Resize", 10, n_in=2, x=info("x", FLOAT, None))
    for axis in (None, 1, -1):
        yield f"Scatter_{axis}", one("Scatter", 9, n_in=3, **({} if axis is None else {"axis": axis}))
    for op in ("GRU", "LSTM", "RNN"):
        yield op, one(op, 11, n_in=3, n_out=2, hidden_size=4)
        yield op + "_layout", one(op, 12, n_in=3, n_out=1, hidden_size=4, layout=0)
    yield "BatchNormalization", one("BatchNormalization", 8, n_in=5, spatial=1, epsilon=0.1)
    yield "BatchNormalization_no_spatial", one("BatchNormalization", 7, n_in=5)
    yield "RoiAlign", one("RoiAlign", 10, n_in=3, output_height=2)
    yield "RoiAlign_mode", one("RoiAlign", 15, n_in=3, coordinate_transformation_mode="half_pixel")
    yield "LpPool", one("LpPool", 11, kernel_shape=[2, 2])
    yield "DFT_no_length", one("DFT", 17, axis=2)
    yield "DFT_length", one("DFT", 17, n_in=2)
    for mode in ("bilinear", "bicubic", "nearest", None):
        yield f"GridSample_{mode}", one("GridSample", 16, n_in=2, **({"mode": mode} if mode else {}))


def with_ir(m, ir):
    m.ir_version = ir
    return m


@pytest.mark.parametrize("name,model", list(variants()), ids=lambda v: v if isinstance(v, str) else "")
def test_variant(tool, tmp_path, name, model):
    for target in (10, 11, 13, 18, NEWEST):
        if target <= opset_of(model):
            continue
        assert check(tool, model, target, tmp_path) is None
        # The same with the changed node's tensor as output of the graph.
        out = onnx.ModelProto()
        out.CopyFrom(model)
        out.graph.node.pop()
        out.graph.output[0].name = "u"
        assert check(tool, out, target, tmp_path) is None


@pytest.mark.parametrize("known", [None, [2, 3], ["n", 3]], ids=["open", "known", "named"])
@pytest.mark.parametrize("also_input", [False, True], ids=["constant", "input"])
@pytest.mark.parametrize("inner", [False, True], ids=["main", "branch"])
def test_constants_as_outputs(tool, tmp_path, known, also_input, inner):
    w = numpy_helper.from_array(np.ones((2, 3), np.float32), "w")
    out = helper.make_tensor_value_info("w", FLOAT, known)
    if inner:
        def branch(name):
            v = numpy_helper.from_array(np.ones((2, 3), np.float32), name)
            return helper.make_graph([], name, [], [helper.make_tensor_value_info(name, FLOAT, known)], [v])
        nodes = [helper.make_node("If", ["c"], ["y"], name="i", then_branch=branch("t"), else_branch=branch("e"))]
    else:
        nodes = [helper.make_node("Relu", ["w"], ["y"], name="r")]
    given = [helper.make_tensor_value_info("c", BOOL, [])]
    given += [helper.make_tensor_value_info("w", FLOAT, [2, 3])] * also_input
    g = helper.make_graph(nodes, "g", given, [helper.make_tensor_value_info("y", FLOAT, None), out], [w])
    m = helper.make_model(g, opset_imports=[helper.make_opsetid("", 11)], ir_version=6)
    assert check(tool, m, 21, tmp_path) is None


@pytest.mark.parametrize("known", [None, [2, 3], ["n", 3]], ids=["open", "known", "named"])
@pytest.mark.parametrize("given", [None, [2, 3], ["m", 3]], ids=["open", "known", "named"])
def test_inputs_as_outputs(tool, tmp_path, known, given):
    m = wrap([helper.make_node("Relu", ["x"], ["y"], name="r")], 11, [info("x", FLOAT, given)],
             [info("y", FLOAT, None), info("x", FLOAT, known)])
    assert check(tool, m, 21, tmp_path) is None


def test_omitted_inputs_and_outputs(tool, tmp_path):
    nodes = [helper.make_node("LSTM", ["x", "w", "r", "", "", "h"], ["", "y", ""], "lstm", hidden_size=4),
             helper.make_node("Dropout", ["y"], ["z", ""], "drop")]
    m = wrap(nodes, 11, [info(i, FLOAT, None) for i in ("x", "w", "r", "h")], [info("z", FLOAT, None)])
    assert check(tool, m, NEWEST, tmp_path) is None


# ---------------------------------------------------------------- names
def test_names_that_are_taken(tool, tmp_path):
    """Tensors that are called _v_N already, as after a first conversion, in every place."""
    rng = random.Random(5)
    for _ in range(40):
        names = [f"_v_{k}" for k in rng.sample(range(1, 40), 12)] + ["_v_007", "_v_", "_v_x"]
        rng.shuffle(names)
        a, b, c, d, e, w, v = names[:7]
        nodes = [helper.make_node("Clip", [a], [b], min=0.0, max=1.0), helper.make_node("Add", [b, w], [c]),
                 helper.make_node("Pad", [c], [d], pads=[0, 0, 1, 1, 0, 0, 1, 1]),
                 helper.make_node("Slice", [d], [e], starts=[0], ends=[1]), helper.make_node("Softmax", [e], ["y"], axis=1)]
        m = wrap(nodes, 9, [info(a)], inits=[values(w, 1), values(v, 2)], ir=rng.choice([3, 4, 8]))
        if m.ir_version < 4:
            m.graph.input.extend([info(w, FLOAT, [1]), info(v, FLOAT, [1])])
        first = rng.choice([10, 11, 13])
        assert check(tool, m, first, tmp_path) is None
        if m.ir_version >= 4:  # before it the converter's own result has an initializer that is not an input
            assert check(tool, convert_version(m, first), NEWEST, tmp_path) is None


def branch(rng, outer, k, depth):
    """A subgraph that changes on the way and takes names from outside."""
    t = [f"b{k}_{depth}_{i}" for i in range(6)]
    nodes = [helper.make_node("Clip", [rng.choice(outer)], [t[0]], min=0.0),
             helper.make_node("Squeeze", [t[0]], [t[1]], axes=[0]) if rng.random() < 0.5
             else helper.make_node("Unsqueeze", [t[0]], [t[1]], axes=[0]),
             helper.make_node("ReduceMean", [t[1]], [t[2]], axes=[1], keepdims=1),
             helper.make_node("Softmax", [t[2]], [t[3]], axis=rng.choice([0, 1, 2, -1]))]
    last = t[3]
    if depth < 2 and rng.random() < 0.5:
        nodes.append(helper.make_node("If", ["c"], [t[4]], then_branch=branch(rng, outer + t[:2], k, depth + 1),
                                      else_branch=branch(rng, outer, k + 100, depth + 1)))
        last = t[4]
    if rng.random() < 0.3:
        nodes.append(helper.make_node("Pad", [last], [t[5]], pads=[0, 0, 0, 0]))
        last = t[5]
    return helper.make_graph(nodes, f"branch{k}", [], [info(last, FLOAT, None)])


def random_model(rng, opset):
    have, nodes = ["x"], []
    makers = [
        lambda i, o: helper.make_node("Relu", [i], [o]),
        lambda i, o: helper.make_node("Add", [i, "w"], [o]),
        lambda i, o: helper.make_node("Clip", [i], [o], min=-1.0) if opset < 11 else helper.make_node("Clip", [i], [o]),
        lambda i, o: helper.make_node("Pad", [i], [o], pads=[0] * 8) if opset < 11 else helper.make_node("Neg", [i], [o]),
        lambda i, o: helper.make_node("Slice", [i], [o], starts=[0], ends=[2], axes=[2]) if opset < 10
        else helper.make_node("Abs", [i], [o]),
        lambda i, o: helper.make_node("Softmax", [i], [o], axis=rng.choice([0, 1, 2, 3, -1, -2])),
        lambda i, o: helper.make_node("ReduceMax", [i], [o], axes=[1]) if opset < 18 else helper.make_node("Exp", [i], [o]),
        lambda i, o: helper.make_node("Dropout", [i], [o]),
        lambda i, o: helper.make_node("Upsample", [i, "s"], [o]) if opset == 9 else helper.make_node("Sigmoid", [i], [o]),
        lambda i, o: helper.make_node("Scatter", [i, "j", i], [o]) if opset in (9, 10) else helper.make_node("Tanh", [i], [o]),
        lambda i, o: helper.make_node("Gelu", [i], [o], domain="com.microsoft"),
        lambda i, o: helper.make_node("If", ["c"], [o], then_branch=branch(rng, have[-4:], len(nodes), 0),
                                      else_branch=branch(rng, have[-2:], 50 + len(nodes), 0)) if opset < 13
        else helper.make_node("Identity", [i], [o]),
    ]
    for k in range(rng.randint(3, 14)):
        out = f"t{k}" if rng.random() < 0.8 else f"_v_{rng.randint(1, 90)}"
        if out in have:
            out = f"t{k}"
        nodes.append(rng.choice(makers)(rng.choice(have[-3:]), out))
        nodes[-1].name = f"node{k}" if rng.random() < 0.7 else ""
        have.append(out)
    inits = [values("w", 1, 2, 3, 4), values("s", 1, 1, 2, 2),
             numpy_helper.from_array(np.zeros((2, 3, 4, 4), np.int64), "j")]
    outs = rng.sample(have[1:], min(2, len(have) - 1)) + [have[-1]]
    outs = list(dict.fromkeys(outs))
    return wrap(nodes, opset, [info("x"), info("c", BOOL, [])], [info(o, FLOAT, None) for o in outs], inits,
                extra_opsets=[helper.make_opsetid("com.microsoft", 1)])


def test_random_graphs(tool, tmp_path):
    rng = random.Random(77)
    same, failed = 0, collections.Counter()
    for _ in range(300):
        m = random_model(rng, rng.choice([7, 8, 9, 9, 10, 11, 12, 13, 17]))
        why = check(tool, m, rng.choice([10, 11, 13, 18, 21, NEWEST]) if opset_of(m) < 10 else NEWEST, tmp_path)
        if why is None:
            same += 1
        else:
            failed[why[:60]] += 1
    # The converter gives up where a Softmax that it splits is used inside a branch.
    assert same > 200, (same, failed)


# ---------------------------------------------------------------- real models
@pytest.mark.parametrize("path", modeltool.shared_models(), ids=lambda p: p.parent.name)
def test_shared(tool, tmp_path, path):
    m = onnx.load(str(path), load_external_data=False)
    for target in (19, 21):
        if opset_of(m) >= target:
            continue
        why = check(tool, m, target, tmp_path)
        # bert_toy_fused has LayerNormalization in opset 12, before there was one: the converter gives up.
        assert why is None or path.parent.name == "bert_toy_fused", why


# ---------------------------------------------------------------- what the converter cannot do
def run(model, feed):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, feed)


def same_results(before, after, feed):
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(after))
    for a, b in zip(run(before, feed), run(after, feed)):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


X = np.random.default_rng(3).standard_normal((2, 6, 4, 4)).astype(np.float32)


@pytest.mark.difference("GroupNormalization past opset 20")
def test_group_normalization(tool, tmp_path):
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=3)
    m = wrap([node], 18, [info("x", FLOAT, [2, 6, 4, 4])], [info("y", FLOAT, [2, 6, 4, 4])],
             [values("s", 1, 2, 3), values("b", 0.5, 0.25, 0)])
    with pytest.raises(Exception, match="Incompatible dimensions"):
        run(convert_version(m, 21), {"x": X})
    got = upgraded(tool, m, 21, tmp_path)
    same_results(m, got, {"x": X})
    # One group a channel: the same numbers mean the same, nothing has to change.
    m.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 3
    assert len(upgraded(tool, m, 21, tmp_path).graph.node) == 1


@pytest.mark.difference("Clip and Pad of float16 and double")
@pytest.mark.parametrize("kind,np_type", [(TensorProto.FLOAT16, np.float16), (TensorProto.DOUBLE, np.float64)])
def test_constants_have_the_type_of_the_tensor(tool, tmp_path, kind, np_type):
    for keys in ({"min": -0.5}, {"max": 0.5}, {"min": -0.5, "max": 0.75}):
        m = wrap([helper.make_node("Clip", ["x"], ["y"], **keys)], 9, [info("x", kind, [2, 6])], [info("y", kind, [2, 6])])
        got = upgraded(tool, m, 13, tmp_path)
        onnx.checker.check_model(got, full_check=True)
        x = X[:, :, 0, 0].astype(np_type)
        with pytest.raises(Exception, match="Type Error"):
            run(convert_version(m, 13), {"x": x})
        want = np.clip(x, keys.get("min", -np.inf), keys.get("max", np.inf)).astype(np_type)
        np.testing.assert_array_equal(run(got, {"x": x})[0], want)
    m = wrap([helper.make_node("Pad", ["x"], ["y"], pads=[0, 1, 0, 0], value=2.0)], 9, [info("x", kind, [2, 6])],
             [info("y", kind, [2, 7])])
    with pytest.raises(Exception, match="Type Error"):
        run(convert_version(m, 13), {"x": x})
    want = np.pad(x, ((0, 0), (1, 0)), constant_values=2.0)
    np.testing.assert_array_equal(run(upgraded(tool, m, 13, tmp_path), {"x": x})[0], want)


@pytest.mark.difference("Pad that is not constant")
def test_pad_of_another_mode_loses_its_value(tool, tmp_path):
    """The converter leaves the attribute, which Pad of opset 11 does not have."""
    m = wrap([helper.make_node("Pad", ["x"], ["y"], pads=[0, 1, 0, 1], mode="edge", value=2.0)], 9, [info("x", FLOAT, [2, 6])],
             [info("y", FLOAT, [2, 8])])
    with pytest.raises(onnx.checker.ValidationError):
        onnx.checker.check_model(convert_version(m, 13))
    got = upgraded(tool, m, 13, tmp_path)
    onnx.checker.check_model(got, full_check=True)
    x = X[:, :, 0, 0]
    with pytest.raises(Exception, match="Unrecognized attribute: value"):
        run(convert_version(m, 13), {"x": x})
    np.testing.assert_array_equal(run(got, {"x": x})[0], np.pad(x, ((0, 0), (1, 1)), mode="edge"))


@pytest.mark.difference("Softmax inside If and Loop")
def test_split_softmax_used_in_a_branch(tool, tmp_path):
    inner = [helper.make_graph([helper.make_node(op, ["t"], [f"r_{op}"])], op, [], [info(f"r_{op}", FLOAT, [2, 6, 4, 4])])
             for op in ("Neg", "Exp")]
    m = wrap([helper.make_node("Softmax", ["x"], ["t"], axis=1), helper.make_node("If", ["c"], ["y"], then_branch=inner[0],
                                                                                 else_branch=inner[1])],
             11, [info("x", FLOAT, [2, 6, 4, 4]), info("c", BOOL, [])], [info("y", FLOAT, [2, 6, 4, 4])])
    assert "replaceInputWith" in check(tool, m, 13, tmp_path)
    got = upgraded(tool, m, 13, tmp_path)
    for c in (True, False):
        same_results(m, got, {"x": X, "c": np.array(c)})


@pytest.mark.difference("Names of a split Softmax")
def test_name_of_a_split_softmax(tool, tmp_path):
    """`t_intermediate` is taken."""
    m = wrap([helper.make_node("Abs", ["x"], ["t_intermediate"]), helper.make_node("Softmax", ["x"], ["t"], axis=1),
              helper.make_node("Add", ["t", "t_intermediate"], ["y"])], 11, [info("x", FLOAT, [2, 6, 4, 4])],
             [info("y", FLOAT, [2, 6, 4, 4])])
    with pytest.raises(Exception, match="Duplicate definition of name"):
        run(convert_version(m, 13), {"x": X})
    got = upgraded(tool, m, 13, tmp_path)
    assert any("t_intermediate_" in n.output for n in got.graph.node)
    same_results(m, got, {"x": X})


@pytest.mark.difference("What the converter drops")
def test_what_the_converter_loses(tool, tmp_path):
    """Functions, metadata and annotations stay; functions are raised, too."""
    f = helper.make_function("local", "F", ["a"], ["b"], [helper.make_node("Squeeze", ["a"], ["t"], axes=[0]),
                                                          helper.make_node("Unsqueeze", ["t"], ["b"], axes=[0])],
                             [helper.make_opsetid("", 11)])
    m = wrap([helper.make_node("F", ["x"], ["y"], domain="local")], 11, [info("x", FLOAT, [1, 6])], [info("y", FLOAT, [1, 6])],
             extra_opsets=[helper.make_opsetid("local", 1)])
    m.functions.append(f)
    m.metadata_props.add(key="k", value="v")
    m.graph.node[0].metadata_props.add(key="n", value="v")
    m.graph.quantization_annotation.add(tensor_name="x")
    m.graph.doc_string = "doc"
    got = upgraded(tool, m, 13, tmp_path)
    want = convert_version(m, 13)
    assert not (want.functions or want.graph.node[0].metadata_props or want.graph.quantization_annotation)
    assert [n.op_type for n in got.functions[0].node] == ["Constant", "Squeeze", "Constant", "Unsqueeze"]
    assert got.functions[0].opset_import[0].version == 13
    assert got.metadata_props == m.metadata_props and got.graph.doc_string == "doc"
    assert got.graph.node[0].metadata_props == m.graph.node[0].metadata_props
    assert got.graph.quantization_annotation == m.graph.quantization_annotation
    same_results(m, got, {"x": X[:1, :, 0, 0]})


@pytest.mark.difference("Operators that onnx does not know")
def test_contrib_operator_of_the_default_domain(tool, tmp_path):
    """LayerNormalization before opset 17 is the runtime's own; the converter fails on it."""
    m = wrap([helper.make_node("LayerNormalization", ["x", "s"], ["y"], axis=-1)], 12, [info("x", FLOAT, [2, 6, 4, 4])],
             inits=[values("s", 1, 2, 3, 4)])
    assert "No Adapter From Version $16 for LayerNormalization" in check(tool, m, 21, tmp_path)
    got = upgraded(tool, m, 21, tmp_path)
    np.testing.assert_allclose(run(m, {"x": X})[0], run(got, {"x": X})[0], rtol=1e-6)


@pytest.mark.difference("BatchNormalization with five outputs")
def test_training_batch_normalization(tool, tmp_path):
    node = helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y", "m1", "v1", "sm", "sv"])
    m = wrap([node], 9, [info(i, FLOAT, None) for i in ("x", "s", "b", "m", "v")])
    assert "outputs 4 and 5 are not supported" in check(tool, m, 14, tmp_path)
    got = upgraded(tool, m, 14, tmp_path)
    assert list(got.graph.node[0].output) == ["y", "m1", "v1"]
    assert got.graph.node[0].attribute[0].name == "training_mode"


@pytest.mark.difference("What the converter drops")
def test_sparse_initializers(tool, tmp_path):
    m = wrap([helper.make_node("ReduceSum", ["x"], ["t"], axes=[1]), helper.make_node("Add", ["t", "s"], ["y"])], 11)
    m.graph.sparse_initializer.append(helper.make_sparse_tensor(values("s", 1), numpy_helper.from_array(np.array([0])), [4]))
    assert "Input s is undefined" in check(tool, m, 13, tmp_path)
    got = upgraded(tool, m, 13, tmp_path)
    assert got.graph.sparse_initializer == m.graph.sparse_initializer
    assert [n.op_type for n in got.graph.node] == ["Constant", "ReduceSum", "Add"]


@pytest.mark.parametrize("imports", [
    [{"version": 11}], [{"version": 11}, {"domain": "com.microsoft", "version": 1}],
    [{"domain": "com.microsoft"}, {"version": 11}], [{"domain": "", "version": 11}, {"domain": "ai.onnx.ml", "version": 2}],
], ids=["no domain", "no domain, another", "no version", "both"])
def test_imports_are_written_in_full(tool, tmp_path, imports):
    """What the model leaves out of an import is in the converter's, so that files differ where it is not."""
    m = wrap([helper.make_node("Relu", ["x"], ["y"])], 11)
    m.ClearField("opset_import")
    for fields in imports:
        m.opset_import.add(**fields)
    want, got = convert_version(m, 13), upgraded(tool, m, 13, tmp_path)
    assert [o.SerializeToString() for o in got.opset_import] == [o.SerializeToString() for o in want.opset_import]


@pytest.mark.difference("Imports of ai.onnx")
def test_the_right_opset_is_raised(tool, tmp_path):
    """The converter raises the first import when none has the empty name."""
    m = wrap([helper.make_node("Relu", ["x"], ["y"])], 11)
    m.ClearField("opset_import")
    m.opset_import.extend([helper.make_opsetid("com.microsoft", 1), helper.make_opsetid("ai.onnx", 11)])
    got = upgraded(tool, m, 13, tmp_path)
    assert [(o.domain, o.version) for o in convert_version(m, 13).opset_import] == [("com.microsoft", 3), ("ai.onnx", 11)]
    assert [(o.domain, o.version) for o in got.opset_import] == [("com.microsoft", 1), ("ai.onnx", 13)]


@pytest.mark.parametrize("op,opset,code,word,attributes", [
    ("BatchNormalization", 8, 30, "spatial", {"spatial": 0}), ("TopK", 9, 21, "'k' is missing", {}),
    ("Slice", 9, 21, "'starts' is missing", {"ends": [1]}), ("Upsample", 8, 21, "'scales' is missing", {}),
    ("Pad", 10, 21, "'pads' is missing", {}), ("Scan", 8, 30, "sequence lengths", {"num_scan_inputs": 1})])
def test_refusals(tool, tmp_path, op, opset, code, word, attributes):
    with pytest.raises(modeltool.ToolError) as e:
        upgraded(tool, one(op, opset, **attributes), 21, tmp_path)
    assert e.value.code == code and word in e.value.text and "'node'" in e.value.text


def test_out_of_range(tool, tmp_path):
    m = wrap([helper.make_node("Relu", ["x"], ["y"])], 13)
    for target, code in ((29, 30), (999, 30)):
        with pytest.raises(modeltool.ToolError) as e:
            upgraded(tool, m, target, tmp_path)
        assert e.value.code == code
    assert modeltool.difference(upgraded(tool, m, 11, tmp_path), m) is None  # nothing to do
    m.opset_import[0].version = 6
    with pytest.raises(modeltool.ToolError):
        upgraded(tool, m, 11, tmp_path)


# ---------------------------------------------------------------- run before and after
def runnable():
    x, feed = info("x", FLOAT, [2, 6, 4, 4]), {"x": X}
    for op in ("Softmax", "LogSoftmax"):
        for axis in (0, 1, 2, 3, -1, -3):
            yield f"{op}{axis}", wrap([helper.make_node(op, ["x"], ["y"], axis=axis)], 11, [x]), feed
    yield "clip", wrap([helper.make_node("Clip", ["x"], ["y"], min=-0.5, max=0.5)], 9, [x]), feed
    yield "pad", wrap([helper.make_node("Pad", ["x"], ["y"], pads=[0, 0, 1, 2, 0, 0, 1, 0], value=1.5)], 9, [x]), feed
    yield "slice", wrap([helper.make_node("Slice", ["x"], ["y"], starts=[1, 0], ends=[5, 3], axes=[1, 3])], 9, [x]), feed
    yield "reduce", wrap([helper.make_node("ReduceSum", ["x"], ["t"], axes=[1], keepdims=1),
                          helper.make_node("ReduceMean", ["t"], ["y"], axes=[2, 3])], 11, [x]), feed
    yield "squeeze", wrap([helper.make_node("Unsqueeze", ["x"], ["t"], axes=[0, 3]),
                           helper.make_node("Squeeze", ["t"], ["y"], axes=[0])], 11, [x]), feed
    yield "split", wrap([helper.make_node("Split", ["x"], ["a", "b"], axis=1, split=[2, 4]),
                         helper.make_node("Split", ["b"], ["c", "d"], axis=1), helper.make_node("Add", ["c", "d"], ["y"])],
                        11, [x]), feed
    yield "topk", wrap([helper.make_node("TopK", ["x"], ["y", "i"], k=2, axis=1)], 9, [x],
                       [info("y", FLOAT, None), info("i", INT64, None)]), feed
    yield "upsample", wrap([helper.make_node("Upsample", ["x"], ["t"], scales=[1.0, 1.0, 2.0, 2.0]),
                            helper.make_node("Relu", ["t"], ["y"])], 8, [x]), feed
    yield "batchnorm", wrap([helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], ["y"])], 8, [x],
                            inits=[values(n, 1, 2, 3, 4, 5, 6) for n in "sbmv"]), feed
    yield "dropout", wrap([helper.make_node("Dropout", ["x"], ["y"], ratio=0.3)], 10, [x]), feed


@pytest.mark.parametrize("name,model,feed", list(runnable()), ids=lambda v: v if isinstance(v, str) else "")
def test_runs_the_same(tool, tmp_path, name, model, feed):
    for target in (13, 18, 21):
        same_results(model, upgraded(tool, onnx.shape_inference.infer_shapes(model), target, tmp_path), feed)
