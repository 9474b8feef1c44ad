"""test_sides_qoperator.py - what docs/DIFFERENCES.md says of static quantization in QOperator format, both sides in numbers."""
import numpy as np
import onnx
import pytest
from onnx import helper

import compare
import sides
from sides import array, feeds, info, model

node = helper.make_node
IMAGE, MAPS = (1, 3, 8, 8), (1, 4, 6, 6)
MICROSOFT = "com.microsoft"


def static(folder, m, samples, **case):
    return sides.static(folder, m, samples, format="qoperator", **case)


def op_types(path):
    return [n.op_type for n in onnx.load(path).graph.node]


@pytest.mark.difference("What is said of nodes")
def test_words_of_nodes(tmp_path, rng):
    conv = node("Conv", ["x", "w"], ["y"], "conv", doc_string="from a notebook")
    conv.metadata_props.add(key="author", value="me")
    conv.MergeFromString(b"\xfa\x3e\x03new")  # field 1007, which no format has
    both = static(tmp_path, model([conv], [array("w", rng.normal(size=(4, 3, 3, 3)))], IMAGE, MAPS), feeds(rng, IMAGE))
    reference, onq = ([n for n in onnx.load(side.path).graph.node if n.op_type == "QLinearConv"][0]
                      for side in (both.reference, both.onq))
    assert (reference.doc_string, len(reference.metadata_props)) == ("", 0)
    assert (onq.doc_string, onq.metadata_props[0].value) == ("from a notebook", "me")
    assert b"\xfa\x3e\x03new" in onq.SerializeToString()


@pytest.mark.difference("Nodes in any order")
def test_nodes_in_any_order(tmp_path, rng):
    m = model([node("MatMul", ["c", "v"], ["y"], "second"), node("MatMul", ["x", "w"], ["c"], "first")],
              [array("w", rng.normal(size=(8, 8))), array("v", rng.normal(size=(8, 4)))], (2, 8), (2, 4))
    static(tmp_path, m, feeds(rng, (2, 8))).expect("raises: unknown initializers/tensors", 30)


# ---- inputs that exist in quantized form only

@pytest.mark.difference("Where in QOperator format")
def test_where(tmp_path, rng):
    m = model([node("Conv", ["x", "w"], ["c"], "first"), node("Conv", ["x", "v"], ["d"], "second"),
               node("Where", ["mask", "c", "d"], ["e"], "where"), node("Conv", ["e", "u"], ["y"], "third")],
              [array("w", rng.normal(size=(4, 3, 3, 3))), array("v", rng.normal(size=(4, 3, 3, 3))),
               array("u", rng.normal(size=(4, 4, 1, 1))), array("mask", rng.normal(size=MAPS) > 0, bool)], IMAGE, MAPS)
    samples = feeds(rng, IMAGE)
    static(tmp_path, m, samples).expect("raises: Invalid model with unknown initializers/tensors", 33)
    both = static(tmp_path, m, samples, extra={"ForceQuantizeNoInputCheck": True})
    assert compare.differences(both.reference.path, both.onq.path) == []


@pytest.mark.difference("Where that is not chosen, QOperator format")
@pytest.mark.parametrize("choice", [{"op_types": ["Conv"]}, {"nodes_to_exclude": ["where"]}], ids=lambda c: next(iter(c)))
def test_where_that_is_not_chosen(tmp_path, rng, choice):
    m = model([node("Conv", ["x", "w"], ["c"], "first"), node("Where", ["mask", "c", "c"], ["e"], "where"),
               node("Conv", ["e", "u"], ["y"], "second")],
              [array("w", rng.normal(size=(4, 3, 3, 3))), array("u", rng.normal(size=(4, 4, 1, 1))),
               array("mask", rng.normal(size=MAPS) > 0, bool)], IMAGE, MAPS)
    both = static(tmp_path, m, feeds(rng, IMAGE), extra={"ForceQuantizeNoInputCheck": True}, **choice)
    assert "QLinearWhere" in op_types(both.reference.path) and "Where" in op_types(both.onq.path), both
    assert both.expect(60, 30)


@pytest.mark.difference("Options that do not go together")
def test_options_that_do_not_go_together(tmp_path, rng):
    m = model([node("Conv", ["x", "w"], ["y"], "conv")], [array("w", rng.normal(size=(4, 3, 3, 3)))], IMAGE, MAPS, 21)
    both = static(tmp_path, m, feeds(rng, IMAGE), extra={"BlockSize": 2})
    both.expect(60, "raises: --block_size is for --quant_format qdq only")


@pytest.mark.difference("Inner graphs in QOperator format")
def test_inner_graph(tmp_path, rng):
    def branch(k):
        return helper.make_graph([node("Mul", ["c", f"k{k}"], [f"o{k}"], f"mul{k}")], f"branch{k}", [],
                                 [info(f"o{k}", MAPS)], [array(f"k{k}", [1.0 + k])])

    m = model([node("Conv", ["x", "w"], ["c"], "conv"), node("Conv", ["c", "u"], ["d"], "next"),
               node("ReduceSum", ["x"], ["s"], "sum", keepdims=0), node("Greater", ["s", "zero"], ["cond"], "greater"),
               node("If", ["cond"], ["v"], "if", then_branch=branch(0), else_branch=branch(1)),
               node("Add", ["v", "d"], ["y"], "add")],
              [array("w", rng.normal(size=(4, 3, 3, 3))), array("u", rng.normal(size=(4, 4, 1, 1))), array("zero", 0)],
              IMAGE, MAPS)
    static(tmp_path, m, feeds(rng, IMAGE)).expect("raises: Invalid model with unknown initializers/tensors", 33)


@pytest.mark.difference("Nodes that cannot be quantized leave nothing behind")
@pytest.mark.parametrize("inputs, error, least", [(["c", "g"], "'NoneType' object is not iterable", 33),
                                                  (["g", "w2"], "object has no attribute 'extend'", 33)], ids=str)
def test_unknown_types(tmp_path, rng, inputs, error, least):
    """After an operator of com.microsoft a tensor has no type, so no scale, and the MatMul stays float."""
    m = model([node("Conv", ["x", "w"], ["c"], "conv"), node("Gelu", ["c"], ["g"], "gelu", domain=MICROSOFT),
               node("MatMul", inputs, ["y"], "matmul")],
              [array("w", rng.normal(size=(4, 3, 3, 3))), array("w2", rng.normal(size=(6, 6)))], IMAGE, MAPS,
              domains=[MICROSOFT])
    both = static(tmp_path, m, feeds(rng, IMAGE)).expect(f"raises: {error}", least)
    assert op_types(both.onq.path) == ["QuantizeLinear", "QLinearConv", "DequantizeLinear", "Gelu", "MatMul"]


@pytest.mark.difference("Resize that is cubic or smoothed, QOperator")
@pytest.mark.parametrize("attributes, activation, reference", [({"mode": "cubic"}, "quint8", "does not run"),
                                                               ({"mode": "linear", "antialias": 1}, "qint8", 10)], ids=str)
def test_resize(tmp_path, rng, attributes, activation, reference):
    m = model([node("Conv", ["x", "w"], ["c"], "conv"), node("Resize", ["c", "", "scales"], ["y"], "resize", **attributes)],
              [array("w", rng.normal(size=(3, 3, 1, 1))), array("scales", [1, 1, 0.5, 0.5])], IMAGE, (1, 3, 4, 4), opset=18)
    both = static(tmp_path, m, feeds(rng, IMAGE), activation=activation).expect(reference, 35)
    assert op_types(both.onq.path) == ["QuantizeLinear", "QLinearConv", "DequantizeLinear", "Resize"]


@pytest.mark.difference("Averages of windows that hang over")
@pytest.mark.parametrize("format", ["qdq", "qoperator"])
@pytest.mark.parametrize("size, pads, mended", [(8, [0] * 4, "count_include_pad"), (8, [1] * 4, "Max"), (9, [0] * 4, None), (9, [1] * 4, None)])
def test_average_past_the_end(tmp_path, rng, format, size, pads, mended):
    """With 9 rows the last window of three ends at the end: nothing is mended, and the files are the same."""
    ends = (size + 2 * pads[0] - 3 + 1) // 2 + 1
    m = model([node("Conv", ["x", "w"], ["c"], "conv"), node("Conv", ["p", "w"], ["y"], "last"),
               node("AveragePool", ["c"], ["p"], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=pads, ceil_mode=1, count_include_pad=1)],
              [array("w", rng.normal(size=(3, 3, 1, 1)))], (1, 3, size, size), (1, 3, ends, ends))
    m.graph.node.insert(1, m.graph.node.pop())
    samples = [{"x": s["x"] + 1} for s in feeds(rng, (1, 3, size, size))]
    both = sides.static(tmp_path, m, samples, format=format)
    if mended is None:
        assert compare.differences(both.expect((25, 99), 25).reference.path, both.onq.path) == []
        return
    both.expect(18, 25)
    pool = next(n for n in onnx.load(both.onq.path).graph.node if n.op_type.endswith("AveragePool"))
    assert mended == "Max" or [a.i for a in pool.attribute if a.name == mended] == [0]
    assert ("Max" in op_types(both.onq.path)) == (mended == "Max")


# ---- weights and biases

@pytest.mark.difference("MatMul with weights that are not matrices, per channel")
@pytest.mark.parametrize("weight, x, y", [((8,), (2, 4, 8), (2, 4)), ((2, 8, 5), (2, 4, 8), (2, 4, 5)),
                                          ((1, 2, 8, 5), (1, 2, 4, 8), (1, 2, 4, 5))], ids=str)
def test_matmul_ranks(tmp_path, rng, weight, x, y):
    m, samples = model([node("MatMul", ["x", "w"], ["y"], "m")], [array("w", rng.normal(size=weight))], x, y), feeds(rng, x)
    static(tmp_path, m, samples, per_channel=True).expect("does not run", 36)
    sides.dynamic(tmp_path, m, samples, per_channel=True).expect("does not load" if len(weight) == 1 else "does not run", 36)


@pytest.mark.difference("Gemm with alpha or beta in QOperator format")
@pytest.mark.parametrize("alpha, beta", [(1, 2), (1, 0.5), (2, 1), (0.5, 3), (0.25, -2)])
def test_alpha_and_beta(tmp_path, rng, alpha, beta):
    m = model([node("Gemm", ["x", "w", "b"], ["y"], "gemm", alpha=float(alpha), beta=float(beta))],
              [array("w", rng.normal(size=(8, 6))), array("b", rng.normal(size=6) * 3)], (4, 8), (4, 6))
    static(tmp_path, m, feeds(rng, (4, 8))).expect(10, 38)


def two_convs(rng):
    return model([node("Conv", ["x", "w", "b"], ["t"], "first"), node("Conv", ["t", "v", "b"], ["y"], "second")],
                 [array("w", rng.normal(size=(6, 6, 1, 1))), array("v", rng.normal(size=(6, 6, 1, 1)) * 10),
                  array("b", rng.normal(size=6) * 3)], (1, 6, 4, 4), (1, 6, 4, 4))


def bias_then_input(rng):
    return model([node("Gemm", ["x", "w", "b"], ["t"], "gemm"), node("Add", ["t", "b"], ["y"], "add")],
                 [array("w", rng.normal(size=(6, 6))), array("b", rng.normal(size=6) * 3)], (4, 6), (4, 6))


def input_then_bias(rng):
    return model([node("Add", ["x", "b"], ["t"], "add"), node("Gemm", ["t", "w", "b"], ["y"], "gemm")],
                 [array("w", rng.normal(size=(6, 6))), array("b", rng.normal(size=6) * 3)], (4, 6), (4, 6))


def weight_of_two_axes(rng):
    return model([node("MatMul", ["x", "w"], ["t"], "m"), node("Gemm", ["t", "w"], ["y"], "gemm", transB=1)],
                 [array("w", rng.normal(size=(6, 6)) * np.geomspace(0.01, 1, 6))], (6, 6), (6, 6))


def weight_and_input(rng):
    return model([node("MatMul", ["x", "w"], ["t"], "m"), node("Add", ["t", "w"], ["y"], "add")],
                 [array("w", rng.normal(size=(6, 6)))], (6, 6), (6, 6))


@pytest.mark.difference("Biases that several nodes read, QOperator format")
@pytest.mark.parametrize("make, reference", [(two_convs, 15), (bias_then_input, "does not load"),
                                             (input_then_bias, "does not load"), (weight_of_two_axes, 25),
                                             (weight_and_input, "does not load")], ids=lambda v: getattr(v, "__name__", ""))
def test_shared(tmp_path, rng, make, reference):
    m = make(rng)
    samples = feeds(rng, [d.dim_value for d in m.graph.input[0].type.tensor_type.shape.dim])
    static(tmp_path, m, samples, per_channel=make is weight_of_two_axes).expect(reference, 33)


@pytest.mark.difference("Biases that are not initializers, QOperator")
@pytest.mark.parametrize("how", ["Constant", "computed", "missing"])
def test_conv_bias(tmp_path, rng, how):
    """The Conv stays float where its bias is not an initializer; an empty name is not a bias."""
    b = rng.normal(size=4)
    before = {"Constant": [node("Constant", [], ["b"], "bias", value=array("", b))],
              "computed": [node("Abs", ["b0"], ["b"], "bias")], "missing": []}[how]
    m = model([*before, node("Conv", ["x", "w", "" if how == "missing" else "b"], ["y"], "conv")],
              [array("w", rng.normal(size=(4, 3, 3, 3))), *([array("b0", b)] if how == "computed" else [])], IMAGE, MAPS)
    both = static(tmp_path, m, feeds(rng, IMAGE)).expect("raises: 'NoneType' object has no attribute 'data_type'", 36)
    assert ("QLinearConv" in op_types(both.onq.path)) == (how == "missing")


@pytest.mark.difference("Order of initializers")
def test_order_of_initializers(tmp_path, rng):
    m = model([node("MatMul", ["x", "v"], ["t"], "first"), node("Gemm", ["t", "w", "b"], ["u"], "gemm"),
               node("MatMul", ["u", "v2"], ["y"], "last")],
              [array("v", rng.normal(size=(8, 8))), array("w", rng.normal(size=(8, 6))), array("v2", rng.normal(size=(6, 6)))],
              {"x": (4, 8), "b": (6,)}, (4, 6))
    samples = [{"x": rng.normal(size=(4, 8)).astype("f"), "b": rng.normal(size=6).astype("f")} for _ in range(3)]
    both = static(tmp_path, m, samples)
    both.expect((33, 99), both.reference.db)
    ref, got = both.models()
    names = [[t.name for t in x.graph.initializer] for x in (ref, got)]
    assert names[0] != names[1] and sorted(names[0]) == sorted(names[1])
    ordered = {t.name: t for t in ref.graph.initializer}
    del ref.graph.initializer[:]
    ref.graph.initializer.extend(ordered[n] for n in names[1])
    onnx.save(ref, both.reference.path)
    assert compare.differences(both.reference.path, both.onq.path) == []


# ---- graphs inside

@pytest.mark.difference("Inside If, Loop and Scan, static")
@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_inside(tmp_path, rng, form):
    def branch(k):
        return helper.make_graph([node("Conv", ["x", f"w{k}"], [f"o{k}"], f"conv{k}")], f"branch{k}", [],
                                 [info(f"o{k}", MAPS)], [array(f"w{k}", rng.normal(size=(4, 3, 3, 3)))])

    m = model([node("ReduceSum", ["x"], ["s"], "sum", keepdims=0), node("Greater", ["s", "zero"], ["cond"], "greater"),
               node("If", ["cond"], ["v"], "if", then_branch=branch(0), else_branch=branch(1)),
               node("Conv", ["v", "u"], ["y"], "after")],
              [array("u", rng.normal(size=(4, 4, 1, 1))), array("zero", 0)], IMAGE, MAPS)
    both = sides.static(tmp_path, m, feeds(rng, IMAGE, 12), format=form, extra={"EnableSubgraph": True})

    def inside(path):
        return {n.op_type for x in onnx.load(path).graph.node for a in x.attribute for n in a.g.node}

    both.expect((33, 99) if form == "qdq" else "raises", 30)
    assert form == "qoperator" or inside(both.reference.path) == {"Conv"}
    assert inside(both.onq.path) & {"QLinearConv", "DequantizeLinear"}
