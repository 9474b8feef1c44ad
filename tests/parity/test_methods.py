"""Methods for single products (`static --outlier_channels`, `--double_activations`, `--node_methods`): what they gain, what
they must not change, and that ONNX Runtime multiplies integers."""
import collections
import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from common import onq

rng = np.random.default_rng(3)
F = np.float32
K, N = 48, 32
WIDE = [5, 17, 40]  # channels whose values are large


def f32(*shape):
    return rng.standard_normal(shape).astype(F)


def inputs(rank, n=6):
    x = rng.standard_normal((n, 1, 9, K) if rank == 3 else (n, 9, K)).astype(F)
    x[..., WIDE] *= F(60)
    return x


def make(path, nodes, shape, inits, opset=17, output="y"):
    g = helper.make_graph(
        [helper.make_node(n[0], n[1].split(), n[2].split(), name=n[2].split()[0] + "_node", **(n[3] if len(n) > 3 else {}))
         for n in nodes], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in inits.items()])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)


def session(path, optimized=None):
    o = onnxruntime.SessionOptions()
    o.log_severity_level = 4
    if optimized is not None:
        o.optimized_model_filepath = str(optimized)
    return onnxruntime.InferenceSession(str(path), o, providers=["CPUExecutionProvider"])


def measure(folder, name, x):
    """SQNR of folder/name against folder/m.onnx, and the operators that the runtime runs."""
    a, b = session(folder / "m.onnx"), session(folder / name, folder / "optimized.onnx")
    want = np.concatenate([a.run(None, {"x": v})[0].ravel() for v in x]).astype(np.float64)
    got = np.concatenate([b.run(None, {"x": v})[0].ravel() for v in x])
    ops = collections.Counter(n.op_type for n in onnx.load(folder / "optimized.onnx").graph.node)
    return 10 * np.log10((want**2).sum() / ((want - got) ** 2).sum()), ops


def static(folder, out, *words, status=0, check=True):
    return onq("static", "-i", folder / "m.onnx", "-o", folder / out, "--data", folder / "d.npz", "--per_channel", *words,
               status=status)


SHAPES = {"3d": (3, ["n", "t", K]), "3d_static": (3, [1, 9, K]), "2d": (2, ["n", K]), "2d_static": (2, [9, K])}


@pytest.fixture(params=SHAPES)
def product(request, tmp_path):
    rank, shape = SHAPES[request.param]
    x = inputs(rank)
    make(tmp_path / "m.onnx", [("MatMul", "x w", "a"), ("Add", "a b", "c"), ("Relu", "c", "y")], shape,
         {"w": f32(K, N) * np.exp(f32(K, 1)), "b": f32(N)})
    np.savez(tmp_path / "d.npz", x=x)
    return tmp_path, x


def test_outliers(product):
    folder, x = product
    static(folder, "plain.onnx", "--op_set", "noout")
    said = static(folder, "x3.onnx", "--op_set", "noout", "--outlier_channels", "3").stdout
    assert "added by a method (as --outlier_channels); kept float" in said and "nodes_to_exclude" not in said  # none was given
    plain, ops = measure(folder, "plain.onnx", x)
    assert ops["MatMulIntegerToFloat"] == 1
    db, ops = measure(folder, "x3.onnx", x)
    assert db > plain + 6
    assert ops["MatMulIntegerToFloat"] == 1 and ops["MatMul"] + ops["FusedMatMul"] + ops["Gemm"] == 1 and ops["Clip"] == 0


def test_double(product):
    folder, x = product
    static(folder, "plain.onnx", "--op_set", "noout")
    static(folder, "double.onnx", "--op_set", "noout", "--double_activations")
    plain, _ = measure(folder, "plain.onnx", x)
    db, ops = measure(folder, "double.onnx", x)
    assert db > plain + 4  # the weight's own noise is what is left
    assert ops["MatMulIntegerToFloat"] == 2 and ops["MatMul"] == 0 and ops["Gemm"] == 0
    m = onnx.load(folder / "double.onnx")
    weights = [t for t in m.graph.initializer if list(t.dims) == [K, N]]
    assert len(weights) == 1 and weights[0].data_type == TensorProto.INT8  # both products share it


def test_by_default_nothing_is_new(product):
    folder, _ = product
    static(folder, "a.onnx")
    static(folder, "b.onnx", "--outlier_channels", "0", "--double_activations", "false")
    assert (folder / "a.onnx").read_bytes() == (folder / "b.onnx").read_bytes()


@pytest.fixture
def attention(tmp_path):
    """Three products of one input, which a float Add reads too."""
    x = inputs(3)
    make(tmp_path / "m.onnx",
         [("Sigmoid", "x", "s"), ("Mul", "x s", "u"), ("MatMul", "u w1", "a"), ("MatMul", "u w2", "b"), ("MatMul", "u w3", "c"),
          ("Mul", "a b", "d"), ("Add", "d c", "e"), ("Add", "e u", "y")], ["n", "t", K],
         {"w1": f32(K, K) / 60, "w2": f32(K, K) / 60, "w3": f32(K, K)})
    np.savez(tmp_path / "d.npz", x=x)
    return tmp_path, x


def test_products_of_one_input(attention):
    folder, x = attention
    static(folder, "plain.onnx", "--op_set", "noout")
    plain, ops = measure(folder, "plain.onnx", x)
    assert ops["MatMulIntegerToFloat"] == 3 and ops["QuantizeLinear"] == 1
    static(folder, "x.onnx", "--op_set", "noout", "--outlier_channels", "3")
    db, ops = measure(folder, "x.onnx", x)
    assert db > plain + 6 and ops["MatMulIntegerToFloat"] == 3 and ops["Gather"] == 1 and ops["QuantizeLinear"] == 1
    static(folder, "d.onnx", "--op_set", "noout", "--double_activations")
    db, ops = measure(folder, "d.onnx", x)
    assert db > plain + 6 and ops["MatMulIntegerToFloat"] == 6 and ops["QuantizeLinear"] == 2


def test_float_readers_read_floats(attention):
    """The Add beside the products gets u itself, where outputs of products stay float."""
    folder, _ = attention
    static(folder, "q.onnx", "--op_set", "noout")
    add = next(n for n in onnx.load(folder / "q.onnx").graph.node if n.name == "y_node")
    assert "u" in add.input
    static(folder, "ref.onnx", "--op_set", "linear")
    add = next(n for n in onnx.load(folder / "ref.onnx").graph.node if n.name == "y_node")
    assert "u" not in add.input


def test_node_methods(attention):
    folder, x = attention
    (folder / "methods.json").write_text(json.dumps({"a_node": "outliers:3", "b_node": "double", "c_node": "float"}))
    static(folder, "q.onnx", "--op_set", "noout", "--node_methods", folder / "methods.json")
    _, ops = measure(folder, "q.onnx", x)
    assert ops["MatMulIntegerToFloat"] == 3 and ops["MatMul"] == 2
    # The file says more than the general option.
    (folder / "methods.json").write_text(json.dumps({"a_node": "plain"}))
    static(folder, "q.onnx", "--op_set", "noout", "--double_activations", "--node_methods", folder / "methods.json")
    _, ops = measure(folder, "q.onnx", x)
    assert ops["MatMulIntegerToFloat"] == 5


def test_threads_and_runs_do_not_matter(attention):
    folder, _ = attention
    for words in (["--outlier_channels", "2"], ["--double_activations"]):
        static(folder, "a.onnx", "--op_set", "noout", *words)
        static(folder, "b.onnx", "--op_set", "noout", *words, "--threads", "1")
        assert (folder / "a.onnx").read_bytes() == (folder / "b.onnx").read_bytes()


def test_conv_as_product(tmp_path):
    """A Conv over one axis: bytes are padded, cut and joined, and the residual too."""
    x = rng.standard_normal((5, 1, 6, 20)).astype(F)
    make(tmp_path / "m.onnx", [("Conv", "x w b", "c", {"pads": [2, 2]}), ("Relu", "c", "y")], ["n", 6, "t"],
         {"w": f32(16, 6, 5), "b": f32(16)})
    np.savez(tmp_path / "d.npz", x=x)
    static(tmp_path, "q.onnx", "--rewrite", "conv1d", "--op_set", "noout")
    plain, ops = measure(tmp_path, "q.onnx", x)
    assert ops["MatMulIntegerToFloat"] == 1 and ops["Conv"] == 0 and ops["QuantizeLinear"] == 1
    m = onnx.load(tmp_path / "q.onnx")
    q = next(n for n in m.graph.node if n.op_type == "QuantizeLinear")
    assert [n.op_type for n in m.graph.node if q.output[0] in n.input] == ["Pad"]
    static(tmp_path, "d.onnx", "--rewrite", "conv1d", "--op_set", "noout", "--double_activations")
    db, ops = measure(tmp_path, "d.onnx", x)
    assert db > plain + 3 and ops["MatMulIntegerToFloat"] == 2


def residual(folder):
    """A residual branch of 1 x 1: float nodes read its last Conv, integers the first."""
    w = {"w1": f32(24, 8, 1, 1), "w2": f32(24, 1, 3, 3), "w3": f32(8, 24, 1, 1), "b3": f32(8), "w4": f32(8, 8, 3, 3)}
    make(folder / "m.onnx", [("Conv", "x w1", "a"), ("Relu", "a", "b"), ("Conv", "b w2", "c", {"group": 24, "pads": [1] * 4}),
                             ("Relu", "c", "d"), ("Conv", "d w3 b3", "e"), ("Add", "e x", "f"),
                             ("Conv", "f w4", "y", {"pads": [1] * 4})], ["n", 8, 14, 14], w)
    x = rng.standard_normal((8, 1, 8, 14, 14)).astype(F) * np.exp(f32(8, 1, 1))
    np.savez(folder / "d.npz", x=x)
    return x


@pytest.mark.parametrize("words", [[], ["--bias_correction"], ["--learned_rounding", "--bias_correction"]], ids=" ".join)
def test_conv_of_one_element_as_product(tmp_path, words):
    """Its result is float where float nodes read it: the noise of its rounding is gone, and integers are multiplied."""
    x = residual(tmp_path)
    static(tmp_path, "plain.onnx", "--op_set", "noout", *words)
    said = static(tmp_path, "floats.onnx", "--op_set", "noout", "--pointwise_matmul", "-v", *words)
    assert "1 Conv were written as MatMul" in said.stderr
    plain, before = measure(tmp_path, "plain.onnx", x)
    floats, after = measure(tmp_path, "floats.onnx", x)
    assert floats > plain + 0.5
    assert before["QLinearConv"] == 4 and after["QLinearConv"] == 3
    assert after["MatMulIntegerToFloat"] == 1 and after["MatMul"] == after["Conv"] == 0
    names = [n.name for n in onnx.load(tmp_path / "floats.onnx").graph.node if n.op_type == "MatMul"]
    assert names == ["e_node"]
    static(tmp_path, "one.onnx", "--op_set", "noout", "--pointwise_matmul", "--threads", "1", *words)
    assert (tmp_path / "floats.onnx").read_bytes() == (tmp_path / "one.onnx").read_bytes()


def test_conv_of_one_element_that_stays(tmp_path):
    """Where integers read its result it is as fast as it was, and the file is the same."""
    residual(tmp_path)
    static(tmp_path, "plain.onnx")
    said = static(tmp_path, "same.onnx", "--pointwise_matmul").stderr
    assert "--pointwise_matmul changed nothing" in said
    assert (tmp_path / "plain.onnx").read_bytes() == (tmp_path / "same.onnx").read_bytes()
    said = static(tmp_path, "no.onnx", "--pointwise_matmul", "--quant_format", "qoperator", status=2).stderr
    assert "--pointwise_matmul is for --quant_format qdq" in said


def test_conv_of_one_element_with_channel_ranges(tmp_path):
    """A result that stays float needs no ranges for its channels."""
    x = residual(tmp_path)
    static(tmp_path, "both.onnx", "--op_set", "noout", "--channel_ranges", "both")
    static(tmp_path, "floats.onnx", "--op_set", "noout", "--channel_ranges", "both", "--pointwise_matmul")
    both, _ = measure(tmp_path, "both.onnx", x)
    floats, ops = measure(tmp_path, "floats.onnx", x)
    assert floats > both - 0.5 and ops["MatMulIntegerToFloat"] == 1


def test_conv_of_one_element_follows_from_a_plan(tmp_path):
    residual(tmp_path)
    static(tmp_path, "a.onnx", "--op_set", "noout", "--pointwise_matmul", "--plan", tmp_path / "plan.json")
    onq("static", "-i", tmp_path / "m.onnx", "-o", tmp_path / "b.onnx", "--from_plan", tmp_path / "plan.json", status=0)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_plan(attention):
    """Double activations follow from a plan; what needs samples is refused."""
    folder, _ = attention
    static(folder, "a.onnx", "--op_set", "noout", "--double_activations", "--plan", folder / "plan.json")
    onq("static", "-i", folder / "m.onnx", "-o", folder / "b.onnx", "--from_plan", folder / "plan.json", status=0)
    assert (folder / "a.onnx").read_bytes() == (folder / "b.onnx").read_bytes()
    static(folder, "a.onnx", "--op_set", "noout", "--outlier_channels", "2", "--plan", folder / "plan.json")
    r = onq("static", "-i", folder / "m.onnx", "-o", folder / "b.onnx", "--from_plan", folder / "plan.json", status=2)
    assert "--outlier_channels and --from_plan cannot be used together" in r.stderr


def test_refusals(attention):
    folder, _ = attention
    for words, part in ((["--outlier_channels", "2", "--double_activations"], "cannot be used together"),
                        (["--outlier_channels", "2", "--quant_format", "qoperator"], "is for --quant_format qdq"),
                        (["--double_activations", "--quant_format", "qoperator"], "is for --quant_format qdq"),
                        (["--outlier_channels", "2", "--calibration_cache", folder / "c.json"], "cannot be used together")):
        assert part in static(folder, "q.onnx", *words, status=2).stderr


def test_methods_that_do_not_fit(tmp_path):
    x = rng.standard_normal((3, 1, 3, 8, 8)).astype(F)
    make(tmp_path / "m.onnx", [("Conv", "x w", "c"), ("Relu", "c", "y")], ["n", 3, 8, 8], {"w": f32(4, 3, 3, 3)})
    np.savez(tmp_path / "d.npz", x=x)
    (tmp_path / "methods.json").write_text(json.dumps({"c_node": "double", "y_node": "outliers"}))
    r = static(tmp_path, "q.onnx", "--node_methods", tmp_path / "methods.json")
    assert "node 'c_node' (Conv): double is for MatMul" in r.stderr
    assert "node 'y_node' (Relu): outliers is for Conv, Gemm and MatMul" in r.stderr
    assert "quantized plainly" in r.stderr
