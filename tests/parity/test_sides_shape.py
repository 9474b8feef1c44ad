"""test_sides_shape.py - what docs/DIFFERENCES.md says of shape inference: onnx or symbolic_shape_infer.py, and onq."""
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import shapetool as st
import sides

node = helper.make_node
INT64 = TensorProto.INT64


def model(nodes, inputs, outputs=None, opset=17, domains=(), **inits):
    """inputs: name -> dims, or (dims, type); all outputs of nodes are outputs of the graph, unless given."""
    ins = [sides.info(n, *(v if isinstance(v, tuple) else (v,))) for n, v in inputs.items()]
    outs = [onnx.ValueInfoProto(name=o) for o in outputs or [o for n in nodes for o in n.output]]
    graph = helper.make_graph(nodes, "g", ins, outs, [numpy_helper.from_array(np.asarray(v), k) for k, v in inits.items()])
    return helper.make_model(graph, ir_version=10, opset_imports=[
        helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)])


def dims(types, name):
    return st.dims_of(types[0].get(name)) if types is not None else None


def by_onnx(m, name):
    return dims(st.of_model(onnx.shape_inference.infer_shapes(m)), name)


def by_reference(m, folder, name, *ways):
    found = st.reference_symbolic(m, folder, ways or (False,))
    return dims(st.of_model(found) if found is not None else None, name)


def by_onq(m, folder, name, *options):
    path = str(folder / "m.onnx")
    onnx.save(m, path)
    return dims(st.run_tool([path], *options)[path]["graphs"], name)


# ---- onnx

@pytest.mark.difference("Attention with named sizes")
def test_attention(tmp_path):
    m = model([node("Attention", ["q", "k", "v"], ["y"], q_num_heads=2, kv_num_heads=2)],
              {"q": ["b", 4, 8], "k": ["b", "s", 8], "v": ["b", "s", "h"]}, opset=23)
    assert by_onnx(m, "y") == ["b", 4, 0]
    assert by_onq(m, tmp_path, "y", "--plain") == ["b", 4, "unk__0"]
    assert by_onq(m, tmp_path, "y") == ["b", 4, "2*floor(h/2)"]


@pytest.mark.difference("MeanVarianceNormalization and unk__N")
def test_numbers_of_unk(tmp_path):
    m = model([node("MeanVarianceNormalization", ["x"], ["m"]), node("NonZero", ["m"], ["z"])], {"x": [None, 3, 4, 4]})
    assert [by_onnx(m, n) for n in "mz"] == [["unk__1", 3, 4, 4], [4, "unk__2"]]
    assert [by_onq(m, tmp_path, n, "--plain") for n in "mz"] == [["unk__0", 3, 4, 4], [4, "unk__1"]]


@pytest.mark.difference("Domains that are not imported")
def test_unknown_domain(tmp_path):
    m = model([node("Mystery", ["x"], ["m"], domain="some.where"), node("Relu", ["x"], ["y"])], {"x": [2, 3]})
    with pytest.raises(onnx.shape_inference.InferenceError, match="No opset import for domain some.where"):
        by_onnx(m, "y")
    assert [by_onq(m, tmp_path, n, "--plain") for n in "my"] == [None, [2, 3]]


# ---- symbolic_shape_infer.py

@pytest.mark.difference("Symbolic inference that goes on")
def test_goes_on(tmp_path):
    """An operator that nobody knows stops the reference."""
    m = model([node("Mystery", ["x"], ["m"], domain="some.where"), node("Concat", ["x", "x"], ["y"], axis=0)], {"x": ["n", 3]},
              domains=["some.where"])
    assert st.reference_symbolic(m, tmp_path) is None
    assert by_onq(m, tmp_path, "m") is None and by_onq(m, tmp_path, "y") == ["2*n", 3]


@pytest.mark.difference("Names that are broadcast")
def test_broadcast(tmp_path):
    m = model([node("Add", ["a", "b"], ["y"])], {"a": ["n", 4], "b": ["m", 4]})
    assert by_reference(m, tmp_path, "y", False) is None and by_reference(m, tmp_path, "y", True) in (["n", 4], ["m", 4])
    assert by_onq(m, tmp_path, "y") == ["Max(n, m)", 4]
    assert by_onq(m, tmp_path, "y", "--auto_merge") == ["n", 4]


@pytest.mark.difference("Existing value_infos")
def test_value_infos(tmp_path):
    m = model([node("Mystery", ["x"], ["m"], domain="some.where"), node("Relu", ["m"], ["y"])], {"x": [2, 3]}, ["y"],
              domains=["some.where"])
    m.graph.value_info.append(sides.info("m", [5, 6]))
    assert by_reference(m, tmp_path, "y", False, True) is None
    assert by_onq(m, tmp_path, "y") == [5, 6]


@pytest.mark.difference("One normal form of expressions")
def test_normal_form(tmp_path):
    m = model([node("Conv", ["x", "k"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1])], {"x": [1, 3, "h", "w"]},
              k=np.zeros((4, 3, 3, 3), np.float32))
    assert by_reference(m, tmp_path, "y") == [1, 4, "floor(h/2 - 1/2) + 1", "floor(w/2 - 1/2) + 1"]
    assert by_onq(m, tmp_path, "y") == [1, 4, "floor(h/2 + 1/2)", "floor(w/2 + 1/2)"]


@pytest.mark.difference("Names that are not names")
@pytest.mark.parametrize("name", ["?", "None", "-1", "unk__0"])
def test_no_names(tmp_path, name):
    """Two sizes that may differ are joined: the reference takes them for one."""
    m = model([node("Concat", ["a", "b"], ["y"], axis=0)], {"a": [name, 4], "b": [name, 4]})
    assert by_reference(m, tmp_path, "y") == [f"2*{name}", 4]
    assert by_onq(m, tmp_path, "y") == ["a_d0 + b_d0", 4]


def empty():
    return np.zeros(0, np.int64)


WRONG = {  # name -> model, feeds of the runtime, the reference's shape
    "Split": (lambda: model([node("Split", ["x", "s"], ["y", "z"], axis=0)], {"x": [6, 4], "s": ([2], INT64)}),
              {"x": (6, 4), "s": np.array([2, 4])}, [3, 4]),
    "Slice": (lambda: model([node("Slice", ["x", "a", "b", "axes"], ["y"])], {"x": [6, 4], "axes": ([1], INT64)},
                            a=np.array([1]), b=np.array([3])), {"x": (6, 4), "axes": np.array([1])}, [2, 4]),
    "ReduceSum": (lambda: model([node("ReduceSum", ["x", "axes"], ["y"], keepdims=0)], {"x": [6, 4]}, axes=empty()),
                  {"x": (6, 4)}, [6, 4]),
    "ReduceMean": (lambda: model([node("ReduceMean", ["x", "axes"], ["y"], keepdims=0)], {"x": [6, 4]}, opset=18, axes=empty()),
                   {"x": (6, 4)}, [6, 4]),
    "GatherND": (lambda: model([node("GatherND", ["x", "i"], ["y"], batch_dims=1)], {"x": [2, 3, 4], "i": ([2, 1], INT64)}),
                 {"x": (2, 3, 4), "i": np.array([[0], [1]])}, [2, 3, 4]),
    "SoftmaxCrossEntropyLoss": (lambda: model([node("SoftmaxCrossEntropyLoss", ["x", "l"], ["y"], reduction="none")],
                                              {"x": [2, 5, 4], "l": ([2, 4], INT64)}, opset=13),
                                {"x": (2, 5, 4), "l": np.zeros((2, 4), np.int64)}, []),
    "Squeeze": (lambda: model([node("Squeeze", ["x", "axes"], ["y"])], {"x": [1, 3, 1], "axes": ([1], INT64)}),
                {"x": (1, 3, 1), "axes": np.array([0])}, [3]),
    "Resize axes": (lambda: model([node("Resize", ["x", "", "", "s"], ["y"], axes=[2, 3])], {"x": [1, 3, 8, 8]}, opset=18,
                                  s=np.array([4, 4])), {"x": (1, 3, 8, 8)}, [4, 4]),
    "Resize aspect": (lambda: model([node("Resize", ["x", "", "", "s"], ["y"], keep_aspect_ratio_policy="not_larger",
                                          axes=[2, 3])], {"x": [1, 3, 8, 8]}, opset=18, s=np.array([4, 6])),
                      {"x": (1, 3, 8, 8)}, [4, 6]),
    "Reshape": (lambda: model([node("Reshape", ["x", "s"], ["y"], allowzero=1)], {"x": [0, 3]}, s=np.array([3, 0])),
                {"x": (0, 3)}, [3, 3]),
    "Slice backwards": (lambda: model([node("Slice", ["x", "a", "b", "axes", "step"], ["y"])], {"x": [6, 4]}, a=np.array([1]),
                                      b=np.array([-20]), axes=np.array([0]), step=np.array([-1])), {"x": (6, 4)}, [1, 4]),
    "GatherBlockQuantized": (lambda: model([node("GatherBlockQuantized", ["d", "i", "s"], ["y"], domain="com.microsoft", bits=4,
                                                 block_size=16)], {"i": ([3], INT64)}, domains=["com.microsoft"],
                                           d=np.zeros((8, 16), np.uint8), s=np.ones((8, 2), np.float32)),
                             {"i": np.array([0, 1, 2])}, [3, 16]),
}


@pytest.mark.difference("Shapes that the reference gets wrong")
@pytest.mark.parametrize("name", WRONG)
def test_wrong(tmp_path, name):
    """What the runtime makes contradicts the reference and not onq, whose names may be any size."""
    make, feed, wrong = WRONG[name]
    m = make()
    assert by_reference(m, tmp_path, "y") == wrong
    feed = {k: np.ones(v, np.float32) if isinstance(v, tuple) else v for k, v in feed.items()}
    session = onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
    real = list(session.run(["y"], feed)[0].shape)
    got = by_onq(m, tmp_path, "y")
    assert real != wrong and len(real) == len(got), (real, got)
    assert all(g == r for g, r in zip(got, real) if isinstance(g, int)), (real, got)
