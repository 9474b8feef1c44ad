"""test_sides_debug.py - what docs/DIFFERENCES.md says of `onq debug`: qdq_loss_debug, and onq."""
import json
import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import qdq_loss_debug as ref

import quantcase
import sides
from sides import array, feeds, model

node = helper.make_node


def quantized(folder, m, samples, **case):
    """Paths of the float model, the reference's quantized one, and the samples."""
    both = sides.static(folder, m, samples, **case)
    assert both.reference.state == "runs", both
    return folder / "float.onnx", both.reference.path, folder / "samples"


def debug(float_model, qdq_model, *words):
    done = quantcase.onq("debug", "--float_model", float_model, "--qdq_model", qdq_model, "--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def sqnr(x, y):
    return 20 * math.log10(np.linalg.norm(x) / np.linalg.norm(x - y))


@pytest.mark.difference("Zero points that are not 0")
def test_zero_points(tmp_path, rng):
    w = rng.normal(size=(4, 3, 3, 3)).astype(np.float32)
    m = model([node("Conv", ["x", "w"], ["y"], "conv")], [array("w", w)], (1, 3, 8, 8), (1, 4, 6, 6))
    path, q, _ = quantized(tmp_path, m, feeds(rng, (1, 3, 8, 8)), weight="quint8", extra={"WeightSymmetric": False})
    match = ref.create_weight_matching(str(path), str(q))["w"]
    theirs = ref.compute_signal_to_quantization_noice_ratio(match["float"].ravel(), match["dequantized"].ravel())
    inits = {t.name: numpy_helper.to_array(t) for t in onnx.load(q).graph.initializer}
    truth = sqnr(w, (inits["w_quantized"].astype(np.float32) - inits["w_zero_point"]) * inits["w_scale"])
    mine = debug(path, q)["weights"]["w"]
    assert theirs < 5 and truth > 35
    assert mine["sqnr"] == pytest.approx(truth, abs=0.01) and mine["reference_sqnr"] == pytest.approx(theirs, abs=0.01)


@pytest.mark.difference("Scalars, missing counterparts, float16")
def test_scalar_weight(tmp_path, rng):
    m = model([node("MatMul", ["x", "w"], ["t"], "matmul"), node("Mul", ["t", "k"], ["y"], "mul")],
              [array("w", rng.normal(size=(6, 5))), array("k", 2.5)], (4, 6), (4, 5))
    path, q, _ = quantized(tmp_path, m, feeds(rng, (4, 6)))
    with pytest.raises(TypeError, match="has no len"):
        ref.compute_weight_error(ref.create_weight_matching(str(path), str(q)))
    got = debug(path, q)["weights"]
    assert got["k"]["sqnr"] > 50 and got["w"]["sqnr"] > 35


@pytest.mark.difference("Scalars, missing counterparts, float16")
def test_missing_counterpart(tmp_path, rng):
    m = model([node("Conv", ["x", "w"], ["c"], "conv"), node("Relu", ["c"], ["r"], "relu"), node("Conv", ["r", "v"], ["y"], "next")],
              [array("w", rng.normal(size=(4, 3, 3, 3))), array("v", rng.normal(size=(4, 4, 1, 1)))], (1, 3, 8, 8), (1, 4, 6, 6))
    samples = feeds(rng, (1, 3, 8, 8))
    path, q, data = quantized(tmp_path, m, samples, extra={"QDQKeepRemovableActivations": True})
    m.graph.node.remove(m.graph.node[1])  # the float model has no Relu
    m.graph.node[1].input[0] = "c"
    onnx.save(m, path)
    made = []
    for name, p in (("f", path), ("q", q)):
        ref.modify_model_output_intermediate_tensors(str(p), str(tmp_path / f"{name}.onnx"))
        made.append(ref.collect_activations(str(tmp_path / f"{name}.onnx"), quantcase.Reader(samples)))
    with pytest.raises(KeyError):
        ref.compute_activation_error(ref.create_activation_matching(made[1], made[0]))
    got = debug(path, q, "--data", data)
    assert [u["name"] for u in got["unmatched"]] == ["r"] and got["activations"]["x"]["xmodel_err"] > 35


@pytest.mark.difference("Scalars, missing counterparts, float16")
def test_float16_norms(tmp_path, rng):
    """Norms of float16 overflow past 65504: the reference has no ratio then."""
    w = (rng.normal(size=(64, 64)) * 3e3).astype(np.float16)
    m = model([node("MatMul", ["x", "w"], ["y"], "matmul")], [array("w", w, np.float16)], (4, 64), (4, 64), 19, 9,
              TensorProto.FLOAT16)
    path, q, _ = quantized(tmp_path, m, [{"x": rng.normal(size=(4, 64)).astype(np.float16) * np.float16(1e-3)}])
    match = ref.create_weight_matching(str(path), str(q))["w"]
    with np.errstate(all="ignore"):
        theirs = ref.compute_signal_to_quantization_noice_ratio(match["float"], match["dequantized"])
    mine = debug(path, q)["weights"]["w"]["sqnr"]
    assert math.isnan(theirs) and mine > 35


@pytest.mark.difference("Models that were preprocessed")
def test_preprocessed(tmp_path, rng):
    m = model([node("Conv", ["x", "w"], ["c"], "conv"), node("BatchNormalization", ["c", "s", "b", "m", "v"], ["y"], "norm")],
              [array("w", rng.normal(size=(4, 3, 3, 3))), array("s", rng.uniform(1, 2, 4)), array("b", rng.normal(size=4)),
               array("m", rng.normal(size=4)), array("v", rng.uniform(1, 2, 4))], (1, 3, 8, 8), (1, 4, 6, 6))
    before = tmp_path / "before.onnx"
    onnx.save(m, before)
    done = quantcase.onq("preprocess", "-i", before, "-o", tmp_path / "prepared.onnx")
    assert done.returncode == 0, done.stderr
    path, q, _ = quantized(tmp_path, onnx.load(tmp_path / "prepared.onnx"), feeds(rng, (1, 3, 8, 8)))
    assert ref.create_weight_matching(str(before), str(q)) == {}
    got, want = ({v["quantized"]: v["sqnr"] for v in debug(p, q)["weights"].values()} for p in (before, path))
    assert len(want) == 2 and got == pytest.approx(want, abs=0.05)
