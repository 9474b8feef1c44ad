"""test_dynamic.py - `onq dynamic` against quantize_dynamic: operators at several opsets, options, real models.

A case passes when the two files are equal to the last bit, or when the reference fails and onq's result loads and runs.
What differs on purpose is in DIFFERENT, with the reason; docs/DIFFERENCES.md has the long form.
"""
import shutil
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization as Q

import common
import compare
import opmodels
from quantcase import MODELS, ONQ, dynamic_options, loads
from quantcase import dynamic_reference as reference

OPTIONS = {
    "plain": {},
    "uint8": {"weight": "quint8"},
    "per_channel": {"per_channel": True},
    "reduce_range": {"per_channel": True, "reduce_range": True},
    "all_matmul": {"extra": {"MatMulConstBOnly": False, "DefaultTensorType": 1}},
    "force": {"extra": {"ForceQuantizeNoInputCheck": True}},
    "asymmetric": {"extra": {"WeightSymmetric": False}},
    "subgraph": {"extra": {"EnableSubgraph": True}},
    "matmul_only": {"op_types": ["MatMul"]},
}

# (model, option) -> why it is not as the reference
DIFFERENT = {
    ("MatMul.3d", "per_channel"): "the reference's result fails when it is run; here the weight goes per tensor",
    ("MatMul.3d", "reduce_range"): "the same",
}


def command(case, path, out):
    return [ONQ, "dynamic", "-i", str(path), "-o", str(out), "--no_verify", *dynamic_options(case)]


def check(folder, path, case, key=None):
    ref, got = folder / "ref.onnx", folder / "got.onnx"
    error = None
    try:
        reference(case, path, ref)
    except Exception as e:  # noqa: BLE001 - the reference fails in many ways
        error = e
    done = subprocess.run(command(case, path, got), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert loads(got) is None, loads(got)
    if error is None:
        diffs = compare.differences(ref, got)
        if key in DIFFERENT:
            assert diffs, f"{key} is equal now: take it out of DIFFERENT"
        else:
            assert not diffs, "\n".join(diffs)
    for f in folder.iterdir():
        if f.name.startswith(("ref", "got")):
            f.unlink()
    return error


@pytest.mark.parametrize("opset", [11, 13, 17, 21])
@pytest.mark.parametrize("name", opmodels.NAMES)
def test_operator(tmp_path, name, opset):
    if not opmodels.exists(name, opset):
        pytest.skip("not at this opset")
    path = tmp_path / "model.onnx"
    onnx.save(opmodels.build(name, opset), path)
    for option in ("plain", "per_channel", "force"):
        check(tmp_path, path, OPTIONS[option], (name, option))


@pytest.mark.parametrize("option", OPTIONS)
def test_option(tmp_path, option):
    for i, model in enumerate((opmodels.mixed(17), opmodels.mixed(13))):
        path = tmp_path / f"model{i}.onnx"
        onnx.save(model, path)
        check(tmp_path, path, OPTIONS[option])


def test_names(tmp_path):
    path = tmp_path / "model.onnx"
    model = opmodels.mixed(17)
    onnx.save(model, path)
    names = [n.name for n in model.graph.node if n.op_type in ("Conv", "MatMul")]
    check(tmp_path, path, {"nodes_to_exclude": names[:1]})
    check(tmp_path, path, {"nodes_to_quantize": names[:1]})


@pytest.mark.parametrize("option", ["plain", "uint8", "reduce_range", "subgraph"])
@pytest.mark.parametrize("name", common.model_names() or [pytest.param("", marks=pytest.mark.skip("no ../shared/models"))])
def test_real(tmp_path, name, option):
    for f in (MODELS / name).glob("model*"):
        shutil.copy(f, tmp_path)
    check(tmp_path, tmp_path / "model.onnx", OPTIONS[option])


def test_external(tmp_path):
    b = opmodels.B(17)
    x = b.input("x", "n", 64)
    b.node("MatMul", [x, b.weight("w", 64, 64)], "y", name="mm")
    b.output("y")
    path = tmp_path / "model.onnx"
    onnx.save(b.model(), path, save_as_external_data=True, size_threshold=0, location="model.onnx.data")
    check(tmp_path, path, {"external": True})
    check(tmp_path, path, {})


def run(path, feeds):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, feeds)


def gemm(shared, trans=1):
    """Two Gemms; the second shares the weight of the first, or not."""
    rng = np.random.default_rng(1)
    w = [numpy_helper.from_array(rng.normal(size=(8, 8)).astype(np.float32), f"w{i}") for i in range(2)]
    nodes = [helper.make_node("Gemm", ["x", "w0"], ["a"], "g0", transB=trans),
             helper.make_node("Gemm", ["a", "w0" if shared else "w1"], ["y"], "g1", transB=trans)]
    vi = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4, 8]) for n in ("x", "y")]
    g = helper.make_graph(nodes, "g", vi[:1], vi[1:], w[:1] if shared else w)
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_shared_gemm_weight_stays_right(tmp_path):
    """The reference transposes a shared weight twice."""
    path, got = tmp_path / "m.onnx", tmp_path / "got.onnx"
    onnx.save(gemm(True), path)
    subprocess.run(command({}, path, got), check=True, capture_output=True)
    x = {"x": np.random.default_rng(2).normal(size=(4, 8)).astype(np.float32)}
    want, have = run(path, x)[0], run(got, x)[0]
    assert np.corrcoef(want.ravel(), have.ravel())[0, 1] > 0.999


def test_excluded_gemm_is_left_alone(tmp_path):
    """The reference renames it to g1_MatMul and quantizes it all the same."""
    path, got = tmp_path / "m.onnx", tmp_path / "got.onnx"
    onnx.save(gemm(False), path)
    subprocess.run(command({"nodes_to_exclude": ["g1"]}, path, got), check=True, capture_output=True)
    m = onnx.load(got)
    assert [n.op_type for n in m.graph.node if n.name == "g1"] == ["Gemm"]
    assert sum(n.op_type == "MatMulInteger" for n in m.graph.node) == 1


def test_nothing_beside_the_input(tmp_path):
    path, out = tmp_path / "in" / "m.onnx", tmp_path / "out" / "q.onnx"
    path.parent.mkdir()
    out.parent.mkdir()
    onnx.save(gemm(False), path)
    subprocess.run(command({}, path, out), check=True, capture_output=True)
    assert [p.name for p in path.parent.iterdir()] == ["m.onnx"]
    assert [p.name for p in out.parent.iterdir()] == ["q.onnx"]


@pytest.mark.parametrize("op, gates", [("GRU", 3), ("RNN", 1)])
@pytest.mark.parametrize("per_channel", [False, True])
def test_recurrent_when_listed(tmp_path, op, gates, per_channel):
    """The reference has nothing for GRU and RNN; listed by the user, their weights are stored as integers."""
    rng = np.random.default_rng(3)
    w = [numpy_helper.from_array(rng.normal(size=(1, gates * 8, 8)).astype(np.float32), f"w{i}") for i in range(2)]
    g = helper.make_graph([helper.make_node(op, ["x", "w0", "w1"], ["y"], "r", hidden_size=8)], "g",
                          [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 2, 8])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], w)
    path, got = tmp_path / "m.onnx", tmp_path / "got.onnx"
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    subprocess.run(command({}, path, got), check=True, capture_output=True)
    assert [n.op_type for n in onnx.load(got).graph.node] == [op]
    case = {"op_types": [op], "per_channel": per_channel}
    subprocess.run(command(case, path, got), check=True, capture_output=True)
    m = onnx.load(got)
    assert sorted(n.op_type for n in m.graph.node) == sorted([op, "DequantizeLinear", "DequantizeLinear"])
    assert {t.data_type for t in m.graph.initializer if t.name.endswith("_quantized")} == {TensorProto.INT8}
    x = {"x": rng.normal(size=(4, 2, 8)).astype(np.float32)}
    want, have = run(path, x)[0], run(got, x)[0]
    assert np.corrcoef(want.ravel(), have.ravel())[0, 1] > 0.99


def positive(op, opset):
    """Values that are all above 0 (or all below), then MatMul and Conv."""
    rng = np.random.default_rng(8)
    shift = numpy_helper.from_array(np.float32({"Sigmoid": 0, "Softmax": 0, "Add": 7, "Neg": -9}[op]), "shift")
    nodes = [helper.make_node("Add", ["x", "shift"], ["a"])]
    nodes.append(helper.make_node(op, ["a"] if op != "Add" else ["a", "shift"], ["p"]))
    if op == "Neg":
        nodes.append(helper.make_node("Neg", ["p"], ["n"]))
    last = nodes[-1].output[0]
    nodes += [helper.make_node("Conv", [last, "k"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Abs", ["c"], ["d"]),
              helper.make_node("MatMul", ["d", "w"], ["y"])]
    inits = [shift, numpy_helper.from_array(rng.normal(size=(4, 3, 3, 3)).astype(np.float32), "k"),
             numpy_helper.from_array(rng.normal(size=(8, 5)).astype(np.float32), "w")]
    g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [2, 3, 8, 8])],
                          [helper.make_tensor_value_info("y", 1, [2, 4, 8, 5])], inits)
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)], ir_version=6)


def sqnr(want, got):
    want, got = want.astype(np.float64), got.astype(np.float64)
    return 10 * np.log10((want ** 2).sum() / max(((want - got) ** 2).sum(), 1e-30))


@pytest.mark.difference("Dynamic quantization at opset 10")
@pytest.mark.parametrize("op", ["Sigmoid", "Softmax", "Add", "Neg"])
def test_opset_10(tmp_path, op):
    path, ref, got = (tmp_path / f"{n}.onnx" for n in ("model", "ref", "got"))
    onnx.save(positive(op, 10), path)
    feeds = {"x": np.random.default_rng(1).normal(size=(2, 3, 8, 8)).astype(np.float32)}
    done = subprocess.run([ONQ, "dynamic", "-i", str(path), "-o", str(got)], capture_output=True, text=True)
    assert done.returncode == 0 and "raised from opset 10 to 11" in done.stderr
    Q.quantize_dynamic(str(path), str(ref))
    want = run(path, feeds)[0]
    assert sqnr(want, run(ref, feeds)[0]) < 10
    assert sqnr(want, run(got, feeds)[0]) > 35
    done = subprocess.run([ONQ, "dynamic", "-i", str(path), "-o", str(got), "--op_types_to_quantize", "Gather"],
                          capture_output=True, text=True)
    assert done.returncode == 0 and "raised" not in done.stderr
