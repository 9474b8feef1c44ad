"""test_plan.py - plans: rows for every node and quantized tensor in every mode, and plans that are read back.

A plan that was not edited gives the same bytes, whatever the model and the options, with no samples and no option but
--from_plan. Edits do what they say.
"""
import json
import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import calibtool
import quantcase
import randmodel

FIRST, END = (int(x) for x in os.environ.get("ONQ_SEEDS", "0:60").split(":"))


def onq(*words):
    done = quantcase.onq(*words)
    assert done.returncode == 0, f"{' '.join(map(str, words))}\n{done.stderr}"
    return done


def conv_net(folder, opset=13):
    rng = np.random.default_rng(3)
    inits = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n)
             for n, s in (("w1", (8, 3, 3, 3)), ("b1", (8,)), ("w2", (8, 4)), ("b2", (4,)))]
    nodes = [helper.make_node("Conv", ["x", "w1", "b1"], ["c"], name="conv"),
             helper.make_node("Relu", ["c"], ["r"], name="relu"),
             helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
             helper.make_node("Flatten", ["p"], ["f"], name="flat"),
             helper.make_node("Gemm", ["f", "w2", "b2"], ["y"], name="fc")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), folder / "m.onnx")
    calibtool.write_samples(folder, [{"x": rng.standard_normal((1, 3, 8, 8)).astype(np.float32)} for _ in range(4)])
    return folder / "m.onnx"


def round_trip(folder, model, *words):
    """The two files, which must be the same, and the plan."""
    a, b, plan = folder / "a.onnx", folder / "b.onnx", folder / "plan.json"
    done = quantcase.onq("static", "-i", model, "-o", a, "--plan", plan, *words)
    if done.returncode != 0:
        return None  # refused; others test that
    onq("static", "-i", model, "-o", b, "--from_plan", plan, "--plan", folder / "again.json")
    assert a.read_bytes() == b.read_bytes(), words
    return json.loads(plan.read_text())


@pytest.mark.parametrize("words", [
    [], ["--per_channel"], ["--quant_format", "qoperator"], ["--quant_format", "qoperator", "--per_channel"],
    ["--dedicated_qdq_pair"], ["--add_qdq_pair_to_weight"], ["--use_qdq_contrib_ops"], ["--disable_quantize_bias"],
    ["--activation_type", "quint16", "--weight_type", "qint8"], ["--weight_type", "qint4"], ["--preset", "qnn"],
    ["--nodes_to_exclude", "conv"], ["--op_types_to_quantize", "Conv,Gemm"], ["--op_types_to_exclude_output_quantization", "Conv"],
    ["--calibration_method", "entropy"], ["--qdq_keep_removable_activations"], ["--reduce_range"],
    ["--extra", "ActivationSymmetric=true"], ["--extra", "BlockSize=2", "--op_types_to_quantize", "Gemm"],
], ids=lambda w: " ".join(w) or "default")
@pytest.mark.parametrize("opset", [13, 21])
def test_unedited(tmp_path, words, opset):
    plan = round_trip(tmp_path, conv_net(tmp_path, opset), "--data", tmp_path, *words)
    if plan is None:
        pytest.skip("refused")
    assert plan["tensors"] and {n["name"] for n in plan["nodes"]} == {"conv", "relu", "pool", "flat", "fc"}


@pytest.mark.parametrize("seed", range(FIRST, END))
def test_unedited_random(tmp_path, seed):
    model, samples = randmodel.model(seed)
    onnx.save(model, tmp_path / "m.onnx")
    calibtool.write_samples(tmp_path, samples)
    case = randmodel.static(seed, model)
    words = quantcase.Bench(tmp_path).options(case, tmp_path / "a.onnx")
    round_trip(tmp_path, tmp_path / "m.onnx", "--data", tmp_path, *words)


def tensors(plan, role=None):
    return {t["name"]: t for t in plan["tensors"] if role in (None, t["role"])}


def test_every_mode_has_rows(tmp_path):
    model, plan = conv_net(tmp_path), tmp_path / "plan.json"
    def rows(command, *words):
        onq(command, "-i", model, "-o", tmp_path / "out.onnx", "--plan", plan, *words)
        return json.loads(plan.read_text())

    for words in ([], ["--quant_format", "qoperator"]):
        p = rows("static", "--data", tmp_path, *words)
        assert set(tensors(p, "weight")) == {"w1", "w2"} and set(tensors(p, "bias")) == {"b1", "b2"}
        assert {"x", "f", "y"} <= set(tensors(p, "activation"))
        assert {n["name"]: n["treatment"] for n in p["nodes"]}["relu"] == "removed"
    p = rows("dynamic")
    assert {"w1"} <= set(tensors(p, "weight"))
    assert "computed" in tensors(p, "activation")["x"]["why"] and "scale" not in tensors(p, "activation")["x"]
    p = rows("legacy")
    assert tensors(p, "weight")["w1"]["axis"] == 0 and "computed" in tensors(p, "activation")["x"]["why"]
    p = rows("qat", "--quant_format", "integer")
    assert set(tensors(p, "weight"))


def edited(folder, edit, *words):
    """The model that an edited plan gives."""
    model, plan = conv_net(folder), folder / "plan.json"
    onq("static", "-i", model, "-o", folder / "a.onnx", "--data", folder, "--plan", plan, *words)
    p = json.loads(plan.read_text())
    edit(p, {n["name"]: n for n in p["nodes"]}, tensors(p))
    plan.write_text(json.dumps(p))
    onq("static", "-i", model, "-o", folder / "b.onnx", "--from_plan", plan)
    m = onnx.load(folder / "b.onnx")
    return m, {t.name: numpy_helper.to_array(t) for t in m.graph.initializer}


@pytest.mark.parametrize("words", [[], ["--quant_format", "qoperator"]], ids=["qdq", "qoperator"])
def test_edited_scale(tmp_path, words):
    def edit(_, nodes, rows):
        rows["x"]["scale"], rows["x"]["zero_point"] = 0.25, 100
        rows["w2"]["scale"] = 0.5
    _, inits = edited(tmp_path, edit, *words)
    assert inits["x_scale"] == 0.25 and inits["x_zero_point"] == 100 and inits["w2_scale"] == 0.5
    if not words:  # the bias follows its input and its weight
        assert np.allclose(inits["b1_quantized_scale"], 0.25 * inits["w1_scale"])


@pytest.mark.parametrize("words", [[], ["--quant_format", "qoperator"]], ids=["qdq", "qoperator"])
def test_edited_treatment(tmp_path, words):
    def edit(_, nodes, rows):
        nodes["fc"]["treatment"] = "float"
    m, _ = edited(tmp_path, edit, *words)
    fc = next(n for n in m.graph.node if n.op_type == "Gemm")
    assert list(fc.input[1:]) == ["w2", "b2"]
    assert not any("w2" in t.name and "quantized" in t.name for t in m.graph.initializer)


def test_kept_relu(tmp_path):
    def edit(_, nodes, rows):
        assert nodes["relu"]["treatment"] == "removed"
        nodes["relu"]["treatment"] = "quantized"
    m, _ = edited(tmp_path, edit)
    assert any(n.op_type == "Relu" for n in m.graph.node)


def test_dropped_tensor(tmp_path):
    def edit(p, nodes, rows):
        p["tensors"] = [t for t in p["tensors"] if t["name"] not in ("y", "b2")]
    m, _ = edited(tmp_path, edit)
    fc = next(n for n in m.graph.node if n.op_type == "Gemm")
    assert fc.output[0] == "y" and fc.input[2] == "b2"


def test_options_of_the_command_line_win(tmp_path):
    model, plan = conv_net(tmp_path), tmp_path / "plan.json"
    onq("static", "-i", model, "-o", tmp_path / "a.onnx", "--data", tmp_path, "--plan", plan)
    onq("static", "-i", model, "-o", tmp_path / "b.onnx", "--from_plan", plan, "--add_qdq_pair_to_weight")
    assert any(t.name == "w1" for t in onnx.load(tmp_path / "b.onnx").graph.initializer)


@pytest.mark.parametrize("text, says", [
    ("{", "plan.json"), ("{}", "'nodes' or 'tensors' is missing"),
    ('{"nodes": [], "tensors": [], "options": {"nonsense": "1"}}', "no option 'nonsense'"),
    ('{"nodes": [{"name": "conv", "op_type": "Gemm", "output": "c", "treatment": "quantized"}], "tensors": []}',
     "is a Gemm in the plan, but a Conv in the model"),
])
def test_wrong_plan(tmp_path, text, says):
    model = conv_net(tmp_path)
    (tmp_path / "plan.json").write_text(text)
    done = quantcase.onq("static", "-i", model, "-o", tmp_path / "b.onnx", "--from_plan", tmp_path / "plan.json")
    assert done.returncode == 1 and says in done.stderr and not (tmp_path / "b.onnx").exists(), done.stderr


def test_dry_run_leaves_nothing(tmp_path):
    model, plan = conv_net(tmp_path), tmp_path / "plan.json"
    onq("static", "-i", model, "--data", tmp_path, "--plan", plan, "--dry_run")
    assert tensors(json.loads(plan.read_text())) and not (tmp_path / "a.onnx").exists()
