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
import qatmodels
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


def round_trip(folder, model, *words, command="static", again=()):
    """The two files, which must be the same, and the plan. `again`: options that no plan holds."""
    a, b, plan = folder / "a.onnx", folder / "b.onnx", folder / "plan.json"
    done = quantcase.onq(command, "-i", model, "-o", a, "--plan", plan, *words)
    if done.returncode != 0:
        return None  # refused; others test that
    onq(command, "-i", model, "-o", b, "--from_plan", plan, "--plan", folder / "again.json", *again)
    assert a.read_bytes() == b.read_bytes(), words
    first, second = (json.loads((folder / n).read_text()) for n in ("plan.json", "again.json"))
    assert [n["treatment"] for n in first["nodes"]] == [n["treatment"] for n in second["nodes"]]
    onq(command, "-i", model, "--dry_run", "--plan", folder / "dry.json", *words)
    assert json.loads((folder / "dry.json").read_text()) == first
    return first


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


def text_net(folder):
    """A table, products with two weights that two nodes share, and a branch."""
    rng = np.random.default_rng(5)
    inits = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n)
             for n, s in (("table", (50, 32)), ("a", (32, 64)), ("b", (64, 32)), ("c", (32, 64)), ("k", (64,)))]
    nodes = [helper.make_node("Gather", ["table", "ids"], ["t"], name="embed"),
             helper.make_node("MatMul", ["t", "a"], ["m1"], name="one"),
             helper.make_node("Relu", ["m1"], ["r"], name="relu"),
             helper.make_node("MatMul", ["r", "b"], ["m2"], name="two"),
             helper.make_node("Add", ["t", "m2"], ["s"], name="sum"),
             helper.make_node("MatMul", ["s", "a"], ["m3"], name="three"),
             helper.make_node("Gemm", ["flat", "c", "k"], ["y"], name="last"),
             helper.make_node("Reshape", ["s", "two_dims"], ["flat"], name="flatten"),
             helper.make_node("ReduceMean", ["m3"], ["z"], name="mean")]
    nodes[6], nodes[7] = nodes[7], nodes[6]
    inits.append(numpy_helper.from_array(np.array([-1, 32], dtype=np.int64), "two_dims"))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 4])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
                               helper.make_tensor_value_info("z", TensorProto.FLOAT, None)], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), folder / "m.onnx")
    calibtool.write_samples(folder, [{"ids": rng.integers(0, 50, (1, 4))} for _ in range(4)])
    return folder / "m.onnx"


@pytest.mark.parametrize("net", [conv_net, text_net], ids=["conv", "text"])
@pytest.mark.parametrize("words", [
    [], ["--per_channel"], ["--reduce_range"], ["--weight_type", "quint8"], ["--nodes_to_exclude", "fc,one"],
    ["--op_types_to_quantize", "MatMul,Gather"],
], ids=lambda w: " ".join(w) or "default")
def test_unedited_dynamic(tmp_path, net, words):
    plan = round_trip(tmp_path, net(tmp_path), *words, command="dynamic")
    assert any(n["treatment"] == "quantized" for n in plan["nodes"])


@pytest.mark.parametrize("seed", range(FIRST, min(END, FIRST + 30)))
def test_unedited_dynamic_random(tmp_path, seed):
    model, _ = randmodel.model(seed)
    onnx.save(model, tmp_path / "m.onnx")
    round_trip(tmp_path, tmp_path / "m.onnx", *(["--per_channel"] if seed % 2 else []), command="dynamic")


@pytest.mark.parametrize("net", ["conv_net", "mlp", "residual", "shared", "activations_only"])
@pytest.mark.parametrize("form", ["integer", "qoperator", "qdq"])
def test_unedited_trained(tmp_path, net, form):
    onnx.save(getattr(qatmodels, net)()[1], tmp_path / "m.onnx")
    assert round_trip(tmp_path, tmp_path / "m.onnx", "--quant_format", form, command="qat") is not None


def params_file(folder, name, tensors_of):
    path = folder / name
    path.write_text(json.dumps({t: [10, 0.05] for t in tensors_of}))
    return path


@pytest.mark.parametrize("per_channel", [[], ["--per_channel"]], ids=["tensor", "channel"])
@pytest.mark.parametrize("mode", ["IntegerOps_Dynamic", "IntegerOps_Static", "QLinearOps_Dynamic", "QLinearOps_Static"])
def test_unedited_legacy(tmp_path, mode, per_channel):
    words = ["--quantization_mode", mode, *per_channel]
    files = [params_file(tmp_path, "in.json", ["x"]), params_file(tmp_path, "out.json", ["c"])]
    if "Static" in mode:
        words += ["--input_quantization_params", files[0]]
    if "QLinear" in mode:
        words += ["--output_quantization_params", files[1]]
    model = conv_net(tmp_path)
    assert round_trip(tmp_path, model, *words, command="legacy") is not None
    for f in files:  # the plan has the parameters
        f.unlink()
    onq("legacy", "-i", model, "-o", tmp_path / "c.onnx", "--from_plan", tmp_path / "plan.json")
    assert (tmp_path / "c.onnx").read_bytes() == (tmp_path / "a.onnx").read_bytes()


FEW_BITS = [
    [], ["--bits", "8"], ["--bits", "2"], ["--block_size", "16"], ["--symmetric", "false"], ["--quant_format", "QDQ"],
    ["--quant_format", "QDQ", "--block_size", "-1"], ["--quant_format", "QDQ", "--channel_wised_quantize"],
    ["--op_types_to_quantize", "MatMul,Gather,Gemm"], ["--all_weights", "--op_types_to_quantize", "all", "--bits", "8"],
    ["--quant_method", "rtn"], ["--quant_method", "hqq"], ["--quant_method", "k_quant"], ["--accuracy_level", "4"],
    ["--nodes_to_exclude", "two"], ["--nodes_to_include", "last"], ["--target_bits", "5"], ["--mixed", "last"],
    ["--node_config", "CONFIG"],
]


@pytest.mark.parametrize("words", FEW_BITS, ids=lambda w: " ".join(w) or "default")
def test_unedited_nbits(tmp_path, words):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"one": {"bits": 8, "scheme": "asym"}, "three": "fp32"}))
    words = [str(config) if w == "CONFIG" else w for w in words]
    model = text_net(tmp_path)
    plan = round_trip(tmp_path, model, *words, command="nbits")
    assert all("bits" in n for n in plan["nodes"] if n["treatment"] == "quantized")
    config.unlink()  # the plan has what it said
    onq("nbits", "-i", model, "-o", tmp_path / "c.onnx", "--from_plan", tmp_path / "plan.json")
    assert (tmp_path / "c.onnx").read_bytes() == (tmp_path / "a.onnx").read_bytes()


@pytest.mark.parametrize("words", [["--quant_method", "gptq"], ["--quant_method", "awq"], ["--target_bits", "5"]], ids=" ".join)
def test_unedited_samples(tmp_path, words):
    model = text_net(tmp_path)
    data = ["--data", tmp_path]
    assert round_trip(tmp_path, model, *words, *data, command="nbits", again=data) is not None


@pytest.mark.parametrize("words", [[], ["--quant_type", "fp4"], ["--block_size", "16"], ["--nodes_to_exclude", "one"]],
                         ids=lambda w: " ".join(w) or "default")
def test_unedited_bnb4(tmp_path, words):
    assert round_trip(tmp_path, text_net(tmp_path), *words, command="bnb4") is not None


def follow(folder, command, model, edit, *words):
    """What comes of an edited plan."""
    plan = folder / "plan.json"
    onq(command, "-i", model, "-o", folder / "a.onnx", "--plan", plan, *words)
    p = json.loads(plan.read_text())
    edit(p, {n["name"]: n for n in p["nodes"]}, tensors(p))
    plan.write_text(json.dumps(p))
    return quantcase.onq(command, "-i", model, "-o", folder / "b.onnx", "--from_plan", plan)


def test_edited_dynamic(tmp_path):
    def edit(p, nodes, rows):
        nodes["one"]["treatment"] = "float"
        rows["b"]["scale"], rows["b"]["zero_point"] = 0.5, 3
        p["tensors"] = [t for t in p["tensors"] if t["name"] != "s"]
    done = follow(tmp_path, "dynamic", text_net(tmp_path), edit)
    assert done.returncode == 0, done.stderr
    m = onnx.load(tmp_path / "b.onnx")
    kinds = {n.name: n.op_type for n in m.graph.node}
    inits = {t.name: numpy_helper.to_array(t) for t in m.graph.initializer}
    assert kinds["one"] == "MatMul" and kinds["two_quant"] == "MatMulInteger" and kinds["three"] == "MatMul"
    assert inits["b_scale"] == 0.5 and inits["b_zero_point"] == 3


def test_edited_nbits(tmp_path):
    def edit(p, nodes, rows):
        nodes["two"].update(bits=8, block_size=16, symmetric=False)
        nodes["three"]["treatment"] = "float"
    done = follow(tmp_path, "nbits", text_net(tmp_path), edit)
    assert done.returncode == 0, done.stderr
    nodes = {n.name: n for n in onnx.load(tmp_path / "b.onnx").graph.node}
    two = nodes["two_Q8"]
    assert len(two.input) == 4 and {a.name: a.i for a in two.attribute}["block_size"] == 16
    assert nodes["three"].op_type == "MatMul" and nodes["one_Q4"].op_type == "MatMulNBits"


def test_edited_bnb4(tmp_path):
    def edit(p, nodes, rows):
        nodes["one"]["block_size"] = 128
        p["tensors"] = [t for t in p["tensors"] if t["name"] != "b"]
    done = follow(tmp_path, "bnb4", text_net(tmp_path), edit)
    assert done.returncode == 0, done.stderr
    nodes = {n.name: n for n in onnx.load(tmp_path / "b.onnx").graph.node}
    assert {a.name: a.i for a in nodes["one_Bnb4"].attribute}["block_size"] == 128
    assert nodes["two"].op_type == "MatMul"


def test_edited_legacy(tmp_path):
    def edit(p, nodes, rows):
        nodes["conv"]["treatment"] = "float"
    done = follow(tmp_path, "legacy", conv_net(tmp_path), edit)
    assert done.returncode == 0, done.stderr
    assert "ConvInteger" not in {n.op_type for n in onnx.load(tmp_path / "b.onnx").graph.node}


def test_kept_relu_qoperator(tmp_path):
    def edit(_, nodes, rows):
        assert nodes["relu"]["treatment"] == "removed"
        nodes["relu"]["treatment"] = "quantized"
    m, _ = edited(tmp_path, edit, "--quant_format", "qoperator")
    assert any(n.op_type == "Relu" for n in m.graph.node)


@pytest.mark.parametrize("command, node, change, says", [
    ("nbits", "one", {"bits": 5}, "node 'one' (MatMul): bits: 5 is not one of 2, 3, 4, 8"),
    ("nbits", "one", {"block_size": 24}, "node 'one' (MatMul): block size 24"),
    ("nbits", "one", {"block_size": -1}, "node 'one' (MatMul): a whole column"),
    ("nbits", "sum", {"treatment": "quantized"}, "not supported in this mode"),
    ("nbits", "one", {"bits": "4"}, "node 'one': 'bits', 'block_size'"),
    ("bnb4", "one", {"bits": 8}, "node 'one' (MatMul): method nf4 has no 8 bits"),
    ("dynamic", "mean", {"treatment": "quantized"}, "node 'mean' (ReduceMean): "),
    ("dynamic", "one", {"treatment": "removed"}, "only nodes that clip, as Relu does, can be"),
    ("legacy", "sum", {"treatment": "quantized"}, "only Conv and MatMul are quantized in these modes"),
])
def test_refused(tmp_path, command, node, change, says):
    done = follow(tmp_path, command, text_net(tmp_path), lambda p, nodes, rows: nodes[node].update(change))
    assert done.returncode == 1 and says in done.stderr and not (tmp_path / "b.onnx").exists(), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_refused_rows(tmp_path):
    def scales(p, nodes, rows):
        rows["b"]["scale"], rows["b"]["zero_point"], rows["b"]["axis"] = [1.0, 2.0], [0, 0], 1
    model = text_net(tmp_path)
    done = follow(tmp_path, "dynamic", model, scales)
    assert done.returncode == 1 and "weight 'b' needs 1 scales and has 2 in the plan" in done.stderr

    def types(p, nodes, rows):
        rows["b"]["type"] = "int16"
    done = follow(tmp_path, "dynamic", model, types)
    assert done.returncode == 1 and "8-bit" in done.stderr


def test_plan_of_another_command(tmp_path):
    model = text_net(tmp_path)
    onq("nbits", "-i", model, "--dry_run", "--plan", tmp_path / "plan.json")
    done = quantcase.onq("dynamic", "-i", model, "-o", tmp_path / "b.onnx", "--from_plan", tmp_path / "plan.json")
    assert done.returncode == 1 and "it is a plan of `onq nbits`, not of `onq dynamic`" in done.stderr
