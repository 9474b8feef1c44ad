"""test_found.py - what the campaign found once, each by name, with the message that is right.

The campaign itself (campaign.py) draws its cases; here they stay whatever is drawn.
"""
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "parity")]

import bytes_cases  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
from cases import BASES, array, branches, damaged, network, normal, put, value  # noqa: E402
from common import ONQ, runtime  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402

WRITERS = {
    "dynamic": [], "qat": [], "legacy": [], "bnb4": [], "nbits": ["--op_types_to_quantize", "all"], "preprocess": ["--skip_optimization"],
    "preprocess ": ["--optimizer", "builtin"],
}


def onq(folder, *words):
    return subprocess.run([ONQ, *words], cwd=folder, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
                          env={**os.environ, **runtime()})


def refused(done, *parts):
    assert done.returncode == 1, done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith("onq: error: "), done.stderr
    for part in parts:
        assert part in line, line


def input_type(m):
    m.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT16


def sequence_of_nothing(m):
    m.graph.input[0].type.Clear()
    m.graph.input[0].type.sequence_type.SetInParent()


WRONG = {  # the model, and what the runtime calls wrong in it
    "unknown attribute": (damaged(lambda m: m.graph.node[0].attribute.append(helper.make_attribute("nonsense", 1))), "nonsense"),
    "attribute of another type": (damaged(lambda m: setattr(m.graph.node[0].attribute[0], "type", 1)), "pads"),
    "too many outputs": (damaged(lambda m: m.graph.node[1].output.append("more")), "relu"),
    "unknown operator": (damaged(lambda m: setattr(m.graph.node[0], "op_type", "Cgnv")), "Cgnv"),
    "branch missing": (damaged(lambda m: m.graph.node[2].attribute.pop(), branches()), "branch"),
    "type of an input": (damaged(input_type), "uint16"),
    "sequence of nothing": (damaged(sequence_of_nothing), "type"),
}


@pytest.mark.parametrize("command", WRITERS)
@pytest.mark.parametrize("what", WRONG)
def test_model_that_the_runtime_calls_wrong(what, command, tmp_path):
    """No command passes on what no runtime takes, unless --no_verify says so."""
    model, part = WRONG[what]
    put(tmp_path, "m.onnx", model.SerializeToString())
    words = [command.strip(), "-i", "m.onnx", "-o", "q.onnx", *WRITERS[command]]
    refused(onq(tmp_path, *words), "m.onnx", part)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.onnx"]


@pytest.mark.parametrize("command", WRITERS)
def test_model_that_is_beyond_the_runtime(command, tmp_path):
    """An operator of somebody else's, a type without a kernel: the model may be sound, and is taken."""
    for name, model in {"domain": damaged(lambda m: (setattr(m.graph.node[1], "domain", "somebody.else"), m.opset_import.append(
            helper.make_opsetid("somebody.else", 1)))), "version": network(opset=7)}.items():
        put(tmp_path, "m.onnx", model.SerializeToString())
        done = onq(tmp_path, command.strip(), "-i", "m.onnx", "-o", f"{name}.onnx", *WRITERS[command])
        assert done.returncode == 0 or "opset" in done.stderr, done.stderr


CARRIERS = {
    "static": ["--data", "random:2"], "static ": ["--data", "random:2", "--quant_format", "qoperator"], **WRITERS,
    "nbits ": ["--op_types_to_quantize", "all", "--quant_format", "QDQ"], "nbits  ": ["--quant_method", "rtn"], "nbits   ": ["--all_weights"],
}


@pytest.mark.parametrize("base", ["network", "language", "branches", "trained"])
@pytest.mark.parametrize("command", CARRIERS)
def test_what_nodes_carry(command, base, tmp_path):
    """doc_string, metadata and fields of formats to come stay with the node that takes another's place. What is taken away for good (a Relu
    that the range replaces, pairs of a trained model) takes its own along."""
    model = BASES[base]()
    marks = {}
    for i, n in enumerate(model.graph.node):
        n.doc_string = f"doc{i}."
        n.metadata_props.add(key=f"key{i}.", value="x")
        n.MergeFromString(b"\xfa\x3e\x05new%d." % i)  # field 1007, which no format has
        if n.op_type not in ("Relu", "QuantizeLinear", "DequantizeLinear"):
            marks[n.op_type] = [f"{word}{i}.".encode() for word in ("doc", "key", "new")]
    put(tmp_path, "m.onnx", model.SerializeToString())
    done = onq(tmp_path, command.strip(), "-i", "m.onnx", "-o", "q.onnx", *CARRIERS[command])
    assert done.returncode == 0, done.stderr
    data = (tmp_path / "q.onnx").read_bytes()
    assert {op: [m for m in words if m not in data] for op, words in marks.items()} == {op: [] for op in marks}


@pytest.mark.parametrize("base", ["network", "language", "branches", "trained"])
@pytest.mark.parametrize("command", [*WRITERS, "static", "static ", "preprocess  "])
def test_nodes_in_any_order(command, base, tmp_path):
    """The runtime takes them so, and the result is that of the sorted model."""
    more = {"static": ["--data", "random:2"], "static ": ["--data", "random:2", "--quant_format", "qoperator"], "preprocess  ": []}
    model = BASES[base]()
    put(tmp_path, "sorted.onnx", model.SerializeToString())
    nodes = list(model.graph.node)[::-1]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    put(tmp_path, "m.onnx", model.SerializeToString())
    for name in ("sorted", "m"):
        done = onq(tmp_path, command.strip(), "-i", f"{name}.onnx", "-o", f"{name}.q.onnx", *{**WRITERS, **more}[command])
        assert done.returncode == 0, done.stderr
    a, b = (onnx.load(str(tmp_path / f"{name}.q.onnx")) for name in ("sorted", "m"))
    ops = [sorted((n.op_type, *n.output) for n in x.graph.node) for x in (a, b)]
    assert ops[0] == ops[1]
    onnx.checker.check_model(b)
    onnxruntime.InferenceSession(str(tmp_path / "m.q.onnx"))


@pytest.mark.parametrize("words", [["--optimize_model"], []], ids=["optimised", "plain"])
def test_functions_that_would_become_too_much(words, tmp_path):
    put(tmp_path, "m.onnx", bytes_cases.doubling(300).SerializeToString())
    refused(onq(tmp_path, "static", "-i", "m.onnx", "-o", "q.onnx", "--data", "random:1", *words), "m.onnx", "functions that call functions")


@pytest.mark.parametrize("where", ["initializer", "constant"])
def test_calibrate_names_the_model(where, tmp_path):
    """Also of what the runtime would find wrong itself."""
    put(tmp_path, "m.onnx", bytes_cases.outside("no.bin", where)(tmp_path).SerializeToString())
    refused(onq(tmp_path, "calibrate", "-i", "m.onnx", "-o", "r.json", "--data", "random:1"), "m.onnx: ", "no.bin")


@pytest.mark.parametrize("side", ["float", "quantized"])
def test_debug_and_bench_name_the_file_at_fault(side, tmp_path):
    put(tmp_path, "good.onnx", network().SerializeToString())
    pair = ["m.onnx", "good.onnx"] if side == "float" else ["good.onnx", "m.onnx"]
    for change, part in [(lambda m: m.graph.node[1].input.__setitem__(0, "r"), "cycle"),
                         (lambda m: m.graph.initializer[0].dims.__setitem__(0, -4), "dimension"),
                         (lambda m: setattr(m.graph.initializer[0], "data_type", 99), "data type 99")]:
        put(tmp_path, "m.onnx", damaged(change).SerializeToString())
        for more in ([], ["--data", "random:1"]):
            refused(onq(tmp_path, "debug", "--float_model", pair[0], "--qdq_model", pair[1], *more), "m.onnx: ", part)
        refused(onq(tmp_path, "bench", *pair, "--data", "random:1", "--runs", "1"), "m.onnx: ", part)


NAMELESS = {  # models whose input random samples cannot be made for
    "no type": lambda m: m.graph.input[0].ClearField("type"),
    "no element type": lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 0),
    "no shape": lambda m: m.graph.input[0].type.tensor_type.ClearField("shape"),
}


@pytest.mark.parametrize("what", NAMELESS)
def test_random_samples_name_the_model(what, tmp_path):
    put(tmp_path, "m.onnx", damaged(NAMELESS[what]).SerializeToString())
    put(tmp_path, "good.onnx", network().SerializeToString())
    for words in (["run", "m.onnx"], ["debug", "--float_model", "m.onnx", "--qdq_model", "good.onnx"], ["bench", "m.onnx", "good.onnx"],
                  ["static", "-i", "m.onnx", "-o", "q.onnx"]):
        done = onq(tmp_path, *words, "--data", "random:1")
        refused(done, "onq: error: m.onnx: random: ", "input 'X'")
        assert done.stderr.count("m.onnx: ") == 1, done.stderr


def test_run_checks_the_model(tmp_path):
    """The runtime takes the last of two versions, and says nothing."""
    put(tmp_path, "m.onnx", damaged(lambda m: m.opset_import.append(helper.make_opsetid("", 12))).SerializeToString())
    refused(onq(tmp_path, "run", "m.onnx", "--data", "random:1"), "m.onnx: ", "as version 13 and as version 12")


@pytest.mark.parametrize("change", [lambda m: m.graph.initializer.append(m.graph.initializer[0]), lambda m: m.graph.input.append(m.graph.input[0]),
                                    lambda m: m.graph.node.append(m.graph.node[1])], ids=["initializer", "input", "output"])
def test_diff_without_names_needs_one_of_each(change, tmp_path):
    """What nodes compute is not known where a name has two meanings; an initializer that is the default of an input is none."""
    put(tmp_path, "m.onnx", damaged(change).SerializeToString())
    put(tmp_path, "good.onnx", network().SerializeToString())
    put(tmp_path, "default.onnx", damaged(lambda m: m.graph.input.append(value("W", [4, 3, 3, 3]))).SerializeToString())
    for pair in (["m.onnx", "good.onnx"], ["good.onnx", "m.onnx"]):
        done = onq(tmp_path, "diff", *pair, "--ignore", "names")
        assert done.returncode == 1 and (done.stdout or "m.onnx: tensor '" in done.stderr and "occurs twice" in done.stderr), done
    assert onq(tmp_path, "diff", "default.onnx", "default.onnx", "--ignore", "names").returncode == 0


@pytest.mark.parametrize("words", [["inspect", "m.onnx"], ["debug", "--float_model", "m.onnx", "--qdq_model", "m.onnx"]], ids=lambda w: w[0])
def test_branch_missing(words, tmp_path):
    """Also where no runtime looks."""
    put(tmp_path, "m.onnx", damaged(lambda m: m.graph.node[2].attribute.pop(), branches()).SerializeToString())
    refused(onq(tmp_path, *words), "m.onnx: ", "node 'if' (If): it has no graph")


@pytest.mark.parametrize("command", ["dynamic", "nbits", "legacy"])
def test_loop_without_end(tmp_path, command):
    """Commands that need no samples run the float model unasked: not for ever."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("MatMul", ["s", "w"], ["t"])], "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []), helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("s", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []), helper.make_tensor_value_info("t", TensorProto.FLOAT, None)])
    graph = helper.make_graph(
        [helper.make_node("Loop", ["", "", "x"], ["h"], body=body), helper.make_node("MatMul", ["h", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 32])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 32])],
        [normal("w", 32, 32)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    done = onq(tmp_path, command, "-i", "m.onnx", "-o", "out.onnx", "-v")
    assert done.returncode == 0, done.stderr
    assert "longer than 5 seconds" in done.stderr
    onnxruntime.InferenceSession(tmp_path / "out.onnx")


HOLES = {  # lists of which nothing can be left out: ONNX Runtime crashes where something is
    "Split output 1": helper.make_node("Split", ["x"], ["a", ""], axis=0),
    "Split output 0": helper.make_node("Split", ["x"], ["", "a"], axis=0),
    "Sum input 1": helper.make_node("Sum", ["x", "", "x"], ["a"]),
    "Concat input 1": helper.make_node("Concat", ["x", ""], ["a"], axis=0),
    "Einsum input 1": helper.make_node("Einsum", ["x", ""], ["a"], equation="ij,jk->ik"),
    "LayerNormalization input 2": helper.make_node("LayerNormalization", ["x", "k", ""], ["a"]),
    "DFT input 2": helper.make_node("DFT", ["x", "", ""], ["a"]),
    "BatchNormalization output 1": helper.make_node("BatchNormalization", ["x", *["k"] * 4], ["a", "", "b"], training_mode=1),
}


@pytest.mark.parametrize("hole", HOLES)
def test_holes_in_lists(tmp_path, hole):
    kind, what, number = hole.split()
    graph = helper.make_graph(
        [HOLES[hole], helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in ("y", "a")], [normal("w", 8, 8), array("k", [1] * 8)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    for words in (["run", "m.onnx", "--data", "random:1"], ["dynamic", "-i", "m.onnx", "-o", "o.onnx"], ["inspect", "m.onnx"],
                  ["preprocess", "-i", "m.onnx", "-o", "o.onnx"], ["static", "-i", "m.onnx", "-o", "o.onnx", "--data", "random:1"]):
        refused(onq(tmp_path, *words), "m.onnx: ", f"({kind}): {what} {number} has no name")
        assert not (tmp_path / "o.onnx").exists()


@pytest.mark.parametrize("command", ["dynamic", "nbits"])
def test_constant_that_swells(tmp_path, command):
    """A few bytes that ask for 4 GB: the runtime computes constants when it loads a model, which nobody asked for here."""
    graph = helper.make_graph(
        [helper.make_node("Pad", ["k", "pads"], ["p"]), helper.make_node("ReduceMax", ["p"], ["most"], keepdims=0),
         helper.make_node("Add", ["x", "most"], ["a"]), helper.make_node("MatMul", ["a", "w"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 32])], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 32])],
        [normal("w", 32, 32), array("k", [1]), array("pads", [10**9, 0], "int64")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    done = onq(tmp_path, command, "-i", "m.onnx", "-o", "out.onnx", "-v")
    assert done.returncode == 0 and "256 MiB" in done.stderr, done.stderr
