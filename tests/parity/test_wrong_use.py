"""test_wrong_use.py - models and files that are likely not what the user meant: onq says so."""
import json

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization.execution_providers import qnn

import quantcase

RNG = np.random.default_rng(12)


def conv_net(batchnorm=False, opset=17):
    """Conv (BatchNormalization) Relu MatMul."""
    weights = {"w": RNG.normal(size=(8, 3, 3, 3)), "m": RNG.normal(size=(6, 4))}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], "conv", pads=[1] * 4)]
    if batchnorm:
        weights |= {"s": np.ones(8), "b": np.zeros(8), "mean": np.zeros(8), "var": np.ones(8)}
        nodes.append(helper.make_node("BatchNormalization", ["c", "s", "b", "mean", "var"], ["n"], "norm"))
    nodes += [helper.make_node("Relu", ["n" if batchnorm else "c"], ["r"], "relu"),
              helper.make_node("MatMul", ["r", "m"], ["y"], "mat")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [1, 3, 6, 6])],
                              [helper.make_tensor_value_info("y", 1, [1, 8, 6, 4])],
                              [numpy_helper.from_array(v.astype(np.float32), k) for k, v in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def save(model, path):
    onnx.save(model, path)
    return path


def static(path, out, *words):
    return quantcase.onq("static", "-i", path, "-o", out, "--data", "random:2", *words)


@pytest.mark.parametrize("command", ["static", "dynamic"])
def test_not_preprocessed(tmp_path, command):
    """A warning by default, with what it costs; none after onq preprocess or the reference's."""
    path = save(conv_net(batchnorm=True), tmp_path / "m.onnx")
    data = ["--data", "random:2"] if command == "static" else ["--op_types_to_quantize", "Conv"]
    raw = quantcase.onq(command, "-i", path, "-o", tmp_path / "q.onnx", *data)
    assert "was not preprocessed: 1 BatchNormalization after Conv" in raw.stderr, raw.stderr
    assert "onq preprocess" in raw.stderr
    quantcase.onq("preprocess", "-i", path, "-o", tmp_path / "p.onnx")
    ready = quantcase.onq(command, "-i", tmp_path / "p.onnx", "-o", tmp_path / "q.onnx", *data)
    assert ready.returncode == 0 and "preprocess" not in ready.stderr, ready.stderr
    from onnxruntime.quantization import shape_inference
    shape_inference.quant_pre_process(str(path), str(tmp_path / "r.onnx"))
    ready = quantcase.onq(command, "-i", tmp_path / "r.onnx", "-o", tmp_path / "q.onnx", *data)
    assert ready.returncode == 0 and "preprocess" not in ready.stderr, ready.stderr


def test_not_preprocessed_without_cost(tmp_path):
    done = static(save(conv_net(), tmp_path / "m.onnx"), tmp_path / "q.onnx")
    assert done.returncode == 0 and "was not preprocessed" in done.stderr
    done = static(tmp_path / "m.onnx", tmp_path / "q.onnx", "--optimize_model")
    assert done.returncode == 0 and "was not preprocessed" not in done.stderr


def optimised(path, out, level):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    options.optimized_model_filepath = str(out)
    options.log_severity_level = 4
    onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return out


def test_optimised_for_one_cpu(tmp_path):
    path = save(conv_net(), tmp_path / "m.onnx")
    level = onnxruntime.GraphOptimizationLevel
    best = optimised(path, tmp_path / "best.onnx", level.ORT_ENABLE_ALL)
    if not any(n.domain == "com.microsoft.nchwc" for n in onnx.load(best).graph.node):
        pytest.skip("this CPU has no blocked layout")
    for command in (["static", "--data", "random:2"], ["dynamic"]):
        done = quantcase.onq(*command, "-i", best, "-o", tmp_path / "q.onnx")
        assert "optimised this model for one CPU" in done.stderr and "as it was exported" in done.stderr, done.stderr
    basic = optimised(path, tmp_path / "basic.onnx", level.ORT_ENABLE_BASIC)
    assert "optimised this model" not in static(basic, tmp_path / "q.onnx").stderr
    extended = optimised(path, tmp_path / "extended.onnx", level.ORT_ENABLE_EXTENDED)
    assert any(n.op_type == "FusedConv" for n in onnx.load(extended).graph.node)
    assert "past its basic level: 1 nodes" in static(extended, tmp_path / "q.onnx").stderr


@pytest.mark.parametrize("command", [["static", "--data", "random:2"],
                                     ["static", "--data", "random:2", "--quant_format", "qoperator"], ["dynamic"]])
def test_quantized_already(tmp_path, command):
    path = save(conv_net(), tmp_path / "m.onnx")
    once = quantcase.onq(*command, "-i", path, "-o", tmp_path / "once.onnx")
    assert once.returncode == 0 and "quantized already" not in once.stderr, once.stderr
    twice = quantcase.onq(*command, "-i", tmp_path / "once.onnx", "-o", tmp_path / "twice.onnx")
    assert "the model is quantized already" in twice.stderr and "float model" in twice.stderr, twice.stderr
    rest = quantcase.onq(*command, "-i", tmp_path / "once.onnx", "-o", tmp_path / "rest.onnx", "--op_types_to_quantize", "LSTM")
    assert "the model is quantized already" not in rest.stderr, rest.stderr  # what was named is still float


def test_nothing_quantized_and_its_reason(tmp_path):
    """The reason that held for most of the nodes that could be quantized."""
    double = helper.make_model(helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["a"], "one"), helper.make_node("MatMul", ["a", "w"], ["y"], "two")],
        "g", [helper.make_tensor_value_info("x", onnx.TensorProto.DOUBLE, [2, 4])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.DOUBLE, [2, 4])],
        [numpy_helper.from_array(RNG.normal(size=(4, 4)), "w")]), opset_imports=[helper.make_opsetid("", 17)],
        ir_version=10)
    save(double, tmp_path / "d.onnx")
    done = quantcase.onq("dynamic", "-q", "-i", tmp_path / "d.onnx", "-o", tmp_path / "q.onnx")
    assert done.returncode == 0
    assert done.stderr.startswith("onq: warning: nothing was quantized (2 of 2 nodes: "), done.stderr
    assert "double" in done.stderr
    done = quantcase.onq("legacy", "-q", "--strict", "-i", tmp_path / "d.onnx", "-o", tmp_path / "never.onnx")
    assert done.returncode == 1 and "nothing was quantized" in done.stderr, done.stderr
    assert not (tmp_path / "never.onnx").exists()


def test_legacy_names_without_use(tmp_path):
    path = save(conv_net(), tmp_path / "m.onnx")
    (tmp_path / "in.json").write_text(json.dumps({"x": [128, 0.02], "r": [0, 0.1], "nobody": [0, 1.0], "c": [0, 1.0]}))
    words = ["legacy", "-i", path, "--quantization_mode", "IntegerOps_Static",
             "--input_quantization_params", tmp_path / "in.json"]
    done = quantcase.onq(*words, "-o", tmp_path / "q.onnx")
    assert done.returncode == 0, done.stderr
    assert "tensor 'nobody' is not in the model, or belongs to no" in done.stderr and "tensor 'c' is not" in done.stderr
    assert "'x'" not in done.stderr and "'r'" not in done.stderr
    done = quantcase.onq(*words, "-o", tmp_path / "never.onnx", "--strict")
    assert done.returncode == 1 and "'nobody'" in done.stderr and not (tmp_path / "never.onnx").exists()


def test_debug_swapped_and_strangers(tmp_path):
    path = save(conv_net(), tmp_path / "m.onnx")
    done = static(path, tmp_path / "q.onnx")
    assert done.returncode == 0, done.stderr
    assert quantcase.onq("debug", "--float_model", path, "--qdq_model", tmp_path / "q.onnx").returncode == 0
    swapped = quantcase.onq("debug", "--float_model", tmp_path / "q.onnx", "--qdq_model", path)
    assert swapped.returncode == 1 and "swapped?" in swapped.stderr, swapped.stderr
    other = helper.make_model(helper.make_graph(
        [helper.make_node("Gemm", ["in", "k"], ["out"], "gemm")], "g",
        [helper.make_tensor_value_info("in", 1, [2, 4])], [helper.make_tensor_value_info("out", 1, [2, 5])],
        [numpy_helper.from_array(RNG.normal(size=(4, 5)).astype(np.float32), "k")]),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    save(other, tmp_path / "other.onnx")
    strangers = quantcase.onq("debug", "--float_model", tmp_path / "other.onnx", "--qdq_model", tmp_path / "q.onnx")
    assert strangers.returncode == 1 and "another model?" in strangers.stderr, strangers.stderr
    twice = quantcase.onq("debug", "--float_model", tmp_path / "q.onnx", "--qdq_model", tmp_path / "q.onnx")
    assert "the float model is itself quantized" in twice.stderr, twice.stderr


@pytest.mark.parametrize("side", ["inputs", "outputs"])
def test_channels_last_of_a_matrix(tmp_path, side):
    """The reference's words for it."""
    name = {"inputs": "a", "outputs": "b"}[side]
    matrix = helper.make_model(helper.make_graph(
        [helper.make_node("Gelu", ["a"], ["b"], "gelu")], "g", [helper.make_tensor_value_info("a", 1, [2, 4])],
        [helper.make_tensor_value_info("b", 1, [2, 4])]), opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    path = save(matrix, tmp_path / "m.onnx")
    option = f"{side}_to_make_channel_last"
    with pytest.raises(ValueError, match="to be of rank >= 3"):
        qnn.qnn_preprocess_model(str(path), str(tmp_path / "ref.onnx"), **{option: [name]})
    done = quantcase.onq("preprocess", "--qnn", "-i", path, "-o", tmp_path / "q.onnx", f"--{option}", name)
    assert done.returncode == 1, done.stderr
    assert f"Expected {side[:-1]} '{name}' to be of rank >= 3" in done.stderr, done.stderr


def test_cache_of_smooth_quant(tmp_path):
    """A cache made without SmoothQuant is computed again with it, and both tools say so in the key's name."""
    path, cache = save(conv_net(), tmp_path / "m.onnx"), tmp_path / "cache.json"
    assert static(path, tmp_path / "q.onnx", "--calibration_cache", cache).returncode == 0
    assert not json.loads(cache.read_text()).get("smooth_quant")
    done = static(path, tmp_path / "q.onnx", "--calibration_cache", cache, "--smooth_quant")
    assert done.returncode == 0, done.stderr
    assert "smooth_quant=false" in done.stderr.lower() and "smooth_quant=true" in done.stderr.lower(), done.stderr
    assert json.loads(cache.read_text())["smooth_quant"] is True
