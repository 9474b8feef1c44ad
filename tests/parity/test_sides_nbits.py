"""test_sides_nbits.py - what docs/DIFFERENCES.md says of weight-only quantization, both sides in numbers."""
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import sides
import test_nbits as N
from common import MODELS, onq
from running import Side, checks, each_output, loads, session
from sides import array, feeds, info, model

node = helper.make_node


def both_sides(folder, m, samples, case, *words):
    return sides.made(folder, m, samples, lambda path, out: N.reference(case, path, out, add_import=False), "nbits",
                      *N.options(case), *words)


def matmul(rng, k=64, n=6, name="mm", opset=21):
    m = model([node("MatMul", ["x", "w"], ["y"], name)], [array("w", rng.normal(size=(k, n)))], (4, k), (4, n))
    m.opset_import[0].version = opset
    m.ir_version = 10
    return m


@pytest.mark.difference("Domains of rtn and k_quant")
@pytest.mark.parametrize("method", ["rtn", "k_quant"])
def test_import(tmp_path, rng, method):
    both = both_sides(tmp_path, matmul(rng), feeds(rng, (4, 64)), {"method": method}).expect((15, 60), (15, 60))
    assert "No opset import for domain 'com.microsoft'" in checks(both.reference.path)
    # the checker knows no MatMulNBits, and says so only where the domain is known
    assert checks(both.onq.path) is None or "No opset import" not in checks(both.onq.path)


@pytest.mark.difference("Odd numbers of blocks")
@pytest.mark.parametrize("method", ["rtn", "k_quant"])
def test_odd_blocks(tmp_path, rng, method):
    both_sides(tmp_path, matmul(rng, k=96), feeds(rng, (4, 96)), {"method": method, "symmetric": False}).expect(
        "raises: cannot reshape array", 17)


@pytest.mark.difference("Nodes that share a name, rtn and k_quant")
def test_nameless(tmp_path, rng):
    m = model([node("MatMul", ["x", "w"], ["t"]), node("Relu", ["t"], ["u"]), node("MatMul", ["u", "v"], ["y"])],
              [array("w", rng.normal(size=(64, 64))), array("v", rng.normal(size=(64, 6)))], (4, 64), (4, 6))
    both_sides(tmp_path, m, feeds(rng, (4, 64)), {"method": "rtn"}).expect("does not load", 15)


@pytest.mark.difference("Weights that several nodes read, rtn and k_quant")
def test_shared_rtn(tmp_path):
    m = N.shared()
    both = both_sides(tmp_path, m, None, {"method": "rtn"})
    left, right = both.models()
    assert "w0" in [t.name for t in left.graph.initializer]  # nothing reads it
    assert "w0" not in [t.name for t in right.graph.initializer]


@pytest.mark.difference("Weights that several nodes read, nbits in QDQ format")
def test_shared_qdq(tmp_path, rng):
    m = model([node("MatMul", ["x", "w"], ["t"], "first"), node("MatMul", ["t", "w"], ["y"], "second")],
              [array("w", rng.normal(size=(64, 64)))], (4, 64), (4, 64))
    m.opset_import[0].version, m.ir_version = 21, 10
    both = both_sides(tmp_path, m, feeds(rng, (4, 64)), {"format": "QDQ"}).expect("does not load", 12)
    assert [n.op_type for n in both.models()[1].graph.node] == ["DequantizeLinear", "MatMul", "MatMul"]


@pytest.mark.difference("Weights outside of a subgraph, nbits in QDQ format")
def test_outer_weight(tmp_path, rng):
    samples = [{"c": np.array(c), "x": rng.normal(size=(4, 40)).astype(np.float32)} for c in (True, False)]
    both_sides(tmp_path, N.nested(), samples, {"format": "QDQ"}).expect("does not load: Missing required weight", 12)


@pytest.mark.difference("Opsets below 21, nbits")
def test_opset(tmp_path, rng):
    m = model([node("ReduceMean", ["x"], ["t"], "mean", axes=[1], keepdims=1), node("Sub", ["x", "t"], ["u"], "sub"),
               node("MatMul", ["u", "w"], ["y"], "mm")], [array("w", rng.normal(size=(64, 6)))], (4, 64), (4, 6))
    m.opset_import[0].version = 13
    both_sides(tmp_path, m, feeds(rng, (4, 64)), {"format": "QDQ"}).expect("does not load", 15)


@pytest.mark.difference("Opsets below 21, nbits")
def test_opset_of_a_deep_weight(tmp_path, rng):
    """[1, 1, 64, 6]: the result gets its rank from a Max of int64."""
    m = model([node("MatMul", ["x", "w"], ["y"], "mm")], [array("w", rng.normal(size=(1, 1, 64, 6)))], (4, 64), (1, 1, 4, 6))
    m.opset_import[0].version = 11
    both = both_sides(tmp_path, m, feeds(rng, (4, 64)), {}).expect("does not load", 15)
    assert both.models()[1].opset_import[0].version == 12


def test_weight_that_may_be_fed(tmp_path, rng):
    """Who fed another one would change the Transpose, and not the integers: no input any more, as in the reference."""
    m = model([node("MatMul", ["x", "w"], ["y"], "mm"), node("Relu", ["w"], ["z"], "relu")], [array("w", rng.normal(size=(64, 6)))],
              (4, 64), (4, 6))
    m.graph.input.append(helper.make_tensor_value_info("w", 1, [64, 6]))
    m.graph.output.append(helper.make_tensor_value_info("z", 1, [64, 6]))
    both = both_sides(tmp_path, m, feeds(rng, (4, 64)), {}).expect((12, 60), 12)
    assert [[i.name for i in x.graph.input] for x in both.models()] == [["x"], ["x"]]


@pytest.mark.difference("Opsets below 21, nbits")
@pytest.mark.parametrize("name", ["minilm", "tiny_llama"])
def test_opset_real(tmp_path, name):
    path = MODELS / name / "model.onnx"
    if not path.exists():
        pytest.skip("no model")
    ref, got = tmp_path / "ref.onnx", tmp_path / "got.onnx"
    case = {"op_types": ["MatMul", "Gather"]}
    N.reference(case, path, ref)
    assert loads(ref) is not None
    done = onq("nbits", "-i", path, "-o", got, "--no_verify", *N.options(case))
    assert done.returncode == 0 and loads(got) is None
    weights = [{t.name: t.raw_data for t in onnx.load(p).graph.initializer if "_Q4" in t.name} for p in (ref, got)]
    assert weights[0] == weights[1] and len(weights[0]) > 3


@pytest.mark.difference("8 bits, nbits")
def test_8_bits(tmp_path, rng):
    both = both_sides(tmp_path, matmul(rng), feeds(rng, (4, 64)), {"bits": 8, "format": "QDQ"}).expect(np.inf, 35)
    assert [[n.op_type for n in m.graph.node] for m in both.models()] == [["MatMul"], ["DequantizeLinear", "MatMul"]]
    # with rtn the reference takes 4 bits without a word
    both = both_sides(tmp_path, matmul(rng), feeds(rng, (4, 64)), {"bits": 8, "method": "rtn"})
    both.expect((15, 25), "raises: --bits 8 needs --quant_method default")


@pytest.mark.difference("Odd numbers of weights, channel by channel")
def test_odd_channels(tmp_path, rng):
    both_sides(tmp_path, matmul(rng, k=33, n=5), feeds(rng, (4, 33)), {"format": "QDQ", "channel_wise": True}).expect(
        "raises", 12)


@pytest.mark.difference("Weights that are double, nbits")
def test_double(tmp_path, rng):
    w = numpy_helper.from_array(rng.normal(size=(64, 6)), "w")
    m = helper.make_model(helper.make_graph(
        [node("MatMul", ["x", "w"], ["y"], "mm")], "g", [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [4, 64])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, [4, 6])], [w]),
        opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    both = both_sides(tmp_path, m, [{"x": rng.normal(size=(4, 64))}], {}).expect("does not load", np.inf)
    assert "its weight is double" in both.warnings


@pytest.mark.difference("Weights that are not finite, nbits")
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("words", [["nbits"], ["nbits", "--quant_method", "k_quant"], ["bnb4"]])
def test_not_finite(tmp_path, rng, words, value):
    m = matmul(rng)
    w = numpy_helper.to_array(m.graph.initializer[0]).copy()
    w[3, 2] = value
    m.graph.initializer[0].CopyFrom(numpy_helper.from_array(w, "w"))
    path, out = tmp_path / "float.onnx", tmp_path / "out.onnx"
    onnx.save(m, path)
    done = onq(*words, "-i", path, "-o", out)
    assert done.returncode == 1 and "weight 'w' holds" in done.stderr and "row 3, column 2" in done.stderr
    assert not out.exists()
    N.reference({}, path, out)  # says nothing
    assert out.exists()


@pytest.mark.difference("Weights that the reference leaves float, nbits")
def test_all_weights(tmp_path, rng):
    w, v, e = rng.normal(size=(64, 32)), rng.normal(size=(32, 64)), rng.normal(size=(3, 32, 8))
    m = model([node("Constant", [], ["w"], "k", value=array("", w)), node("MatMul", ["x", "w"], ["a"], "constant"),
               node("Transpose", ["v"], ["vt"], "turn", perm=[1, 0]), node("MatMul", ["x", "vt"], ["b"], "turned"),
               node("Add", ["a", "b"], ["s"], "add"), node("MatMul", ["s", "e"], ["y"], "experts")],
              [array("v", v), array("e", e)], (4, 64), (3, 4, 8))
    m.opset_import[0].version, m.ir_version = 21, 10
    both = both_sides(tmp_path, m, feeds(rng, (4, 64)), {}).expect(np.inf, np.inf)  # what is not asked for stays
    for reason in ("in a Constant node", "after a Transpose", "a batch of matrices"):
        assert f"{reason} (--all_weights quantizes it)" in both.warnings
    both = both_sides(tmp_path, m, feeds(rng, (4, 64)), {}, "--all_weights").expect(np.inf, 12)
    kinds = [n.op_type for n in both.models()[1].graph.node]
    assert sorted(kinds) == ["Add", "DequantizeLinear", "MatMul", "MatMulNBits", "MatMulNBits"]


@pytest.mark.difference("Weights that the reference leaves float, nbits")
@pytest.mark.parametrize("bits, least", [(2, 3), (4, 15), (8, 35)])
def test_tied(tmp_path, rng, bits, least):
    """An embedding that is the last layer too: its integers are stored once."""
    table = array("table", rng.normal(size=(50, 64)))
    nodes = [node("Gather", ["table", "ids"], ["x"], "embed"), node("Transpose", ["table"], ["t"], "turn", perm=[1, 0]),
             node("MatMul", ["x", "t"], ["y"], "head")]
    m = helper.make_model(helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])], [info("y", ("n", 50))], [table]),
        opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    samples = [{"ids": np.arange(50)}]
    case = {"bits": bits, "op_types": ["MatMul", "Gather"]}
    both = both_sides(tmp_path, m, samples, case, "--all_weights", "--symmetric", "false")
    both.expect((15, 99) if bits == 4 else np.inf, least)
    got = both.models()[1]
    assert sorted(n.op_type for n in got.graph.node) == ["GatherBlockQuantized", "MatMulNBits", "Reshape"]
    assert len([t for t in got.graph.initializer if len(t.raw_data) >= 50 * 64 * bits // 8]) == 1


@pytest.mark.difference("Gemm, nbits")
def test_gemm(tmp_path, rng):
    nodes = [node("Gemm", ["x", "w", "b"], ["t"], "first", transB=1), node("Gemm", ["t", "v", "c"], ["y"], "second")]
    m = model(nodes, [array("w", rng.normal(size=(32, 64))), array("b", rng.normal(size=32)),
                      array("v", rng.normal(size=(32, 6))), array("c", rng.normal(size=(4, 6)))], (4, 64), (4, 6))
    m.opset_import[0].version, m.ir_version = 21, 10
    case = {"op_types": ["MatMul", "Gemm"]}
    for form in ("QOperator", "QDQ"):
        both_sides(tmp_path, m, feeds(rng, (4, 64)), {**case, "format": form}).expect(np.inf, 12)


def test_gemm_by_name(tmp_path, rng):
    nodes = [node("Gemm", ["x", "w"], ["y"], "first")]
    m = model(nodes, [array("w", rng.normal(size=(64, 6)))], (4, 64), (4, 6))
    made = both_sides(tmp_path, m, feeds(rng, (4, 64)), {"include": ["first"]}).expect(np.inf, 12).models()
    assert [[n.op_type for n in x.graph.node] for x in made] == [["Gemm"], ["MatMulNBits"]]


@pytest.mark.difference("Settings of single nodes")
def test_weight_with_two_settings(tmp_path, rng):
    m = model([node("MatMul", ["x", "w"], ["y"], "mm0"), node("MatMul", ["x", "w"], ["z"], "mm1")],
              [array("w", rng.normal(size=(64, 6)) + 2)], (4, 64), (4, 6))
    m.graph.output.append(helper.make_tensor_value_info("z", 1, [4, 6]))
    path, ref, got = tmp_path / "m.onnx", tmp_path / "ref.onnx", tmp_path / "got.onnx"
    onnx.save(m, path)
    config = {"mm0": {"scheme": "sym"}, "mm1": {"scheme": "asym"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    N.reference({"method": "rtn", "node_config": config}, path, ref)
    assert onq("nbits", "-i", path, "-o", got, "--no_verify", "--quant_method", "rtn", "--node_config", tmp_path / "config.json").returncode == 0
    samples = feeds(rng, (4, 64))
    want = each_output(session(path), samples)
    left, right = (Side(p).run(want, samples) for p in (ref, got))
    assert left.db < 8 < 12 < right.db, (left.db, right.db)


@pytest.mark.difference("Settings of single nodes")
def test_node_config(tmp_path, rng):
    m = N.matmuls([(64, 6), (128, 4), (64, 8), (64, 5)])
    config = {"mm0": {"bits": 8, "group_size": 16}, "mm1": {"scheme": "asym", "group_size": 64}, "mm2": "fp32"}
    path, ref, got = tmp_path / "m.onnx", tmp_path / "ref.onnx", tmp_path / "got.onnx"
    onnx.save(m, path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = ["-i", path, "-o", got, "--no_verify", "--node_config", tmp_path / "config.json"]
    case = {"method": "rtn", "exclude": ["mm2"], "node_config": {k: v for k, v in config.items() if k != "mm2"}}
    N.reference(case, path, ref)
    assert onq("nbits", *words, "--quant_method", "rtn").returncode == 0
    N.same(ref, got)  # rtn takes them in the reference too
    assert onq("nbits", *words).returncode == 0 and loads(got) is None
    bits = {n.name: [(a.name, a.i) for a in n.attribute if a.name in ("bits", "block_size")] for n in onnx.load(got).graph.node}
    assert bits == {"mm0_Q8": [("bits", 8), ("block_size", 16)], "mm1_Q4": [("bits", 4), ("block_size", 64)], "mm2": [],
                    "mm3_Q4": [("bits", 4), ("block_size", 32)]}


@pytest.mark.parametrize("words", [["nbits", "--op_types_to_quantize", "all", "--all_weights"],
                                   ["nbits", "--op_types_to_quantize", "MatMul,Gemm", "--all_weights", "--quant_format", "QDQ"],
                                   ["nbits", "--quant_method", "hqq", "--op_types_to_quantize", "MatMul,Gemm", "--all_weights"],
                                   ["nbits", "--quant_method", "hqq", "--op_types_to_quantize", "MatMul,Gemm", "--all_weights",
                                    "--form", "blocks"],
                                   ["nbits", "--quant_method", "rtn"], ["bnb4"]])
def test_debug_and_inspect(tmp_path, rng, words):
    """Every weight that is quantized is found again and measured, however it lies in the float model."""
    table = array("table", rng.normal(size=(64, 64)))
    nodes = [node("Gather", ["table", "ids"], ["x"], "embed"), node("Transpose", ["table"], ["t"], "turn", perm=[1, 0]),
             node("MatMul", ["x", "w"], ["h"], "hidden"), node("Gemm", ["h", "g"], ["i"], "gemm", transB=1),
             node("MatMul", ["i", "t"], ["y"], "head")]
    m = helper.make_model(helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])], [info("y", ("n", 64))],
        [table, array("w", rng.normal(size=(64, 32))), array("g", rng.normal(size=(64, 32)))]),
        opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path, out = tmp_path / "float.onnx", tmp_path / "out.onnx"
    onnx.save(m, path)
    assert onq(*words, "-i", path, "-o", out).returncode == 0
    done = onq("debug", "--float_model", path, "--qdq_model", out, "--json")
    report = json.loads(done.stdout)
    want = {"table", "w", "g"} if "--all_weights" in words else {"w"}
    assert set(report["weights"]) == want and not report["unmatched"]
    assert all(15 < w["sqnr"] < 30 for w in report["weights"].values())
    tied = json.loads(onq("inspect", path, "--json").stdout)["tied"]
    assert tied == [{"name": "table", "readers": 2}]
    seen = json.loads(onq("inspect", out, "--json").stdout)
    only = seen["quantization"]["weight_only"]
    if "Gather" in words or "all" in words:
        assert [t["readers"] for t in seen["tied"]] == [2]
    if "--quant_format" not in words:
        bits = 6.0 if "hqq" in words else {"bnb4": 4.5}.get(words[-1], 5.0)  # in either form of hqq
        assert all(abs(o.get("bits_per_weight", bits) - bits) < 0.01 for o in only)


@pytest.mark.difference("Zero points of hqq")
def test_hqq_form(tmp_path, rng):
    """The reference has float zero points as an input of MatMulNBits; here they are a product beside it, and on request
    that input. Both compute the same."""
    m = helper.make_model(helper.make_graph(
        [node("MatMul", ["x", "w"], ["y"], "mm")], "g", [info("x", ("n", 64))], [info("y", ("n", 32))],
        [array("w", rng.normal(size=(64, 32)))]), opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path = tmp_path / "float.onnx"
    onnx.save(m, path)
    x = {"x": rng.normal(size=(3, 64)).astype(np.float32)}
    got = {}
    for form in ("blocks", "auto"):
        out = tmp_path / f"{form}.onnx"
        assert onq("nbits", "-i", path, "-o", out, "--quant_method", "hqq", "--form", form).returncode == 0
        ops = [n.op_type for n in onnx.load(out).graph.node]
        assert ops == (["MatMulNBits"] if form == "blocks" else ["MatMulNBits", "Reshape", "ReduceSum", "MatMul", "Add"])
        import onnxruntime
        got[form] = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"]).run(None, x)[0]
    np.testing.assert_allclose(got["auto"], got["blocks"], rtol=1e-4, atol=1e-4)
    # The runtime refuses 8 bits with such zero points as an input, which is no default then.
    done = onq("nbits", "-i", path, "-o", tmp_path / "eight.onnx", "--quant_method", "hqq", "--bits", 8, "--verify")
    assert done.returncode == 0, done.stderr
    assert [n.op_type for n in onnx.load(tmp_path / "eight.onnx").graph.node] == ops
