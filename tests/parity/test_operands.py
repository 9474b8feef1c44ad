"""test_operands.py - nodes whose inputs or outputs do not fit: ONNX Runtime refuses them when it loads or runs the model, and so does every
command, with the node's name, before it writes anything. What the runtime takes is taken.
"""
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

import quantcase

COMMANDS = {"dynamic": [], "static": ["--data", "random:1"], "qoperator": ["--data", "random:1", "--quant_format", "qoperator"],
            "preprocess": ["--skip_optimization"], "qat": [], "legacy": []}


def array(name, shape):
    return numpy_helper.from_array(np.random.default_rng(len(shape)).normal(size=shape).astype(np.float32), name)


def one(op, x, shapes, inputs=None, opset=17, outputs=("y",), **attributes):
    """A model of one node; shapes: of w, b, c ..."""
    names = [n for n, _ in zip("wbcdef", shapes)]
    node = helper.make_node(op, inputs or ["x", *names], outputs, "the_node", **attributes)
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", 1, x)], [helper.make_empty_tensor_value_info("y")],
                              [array(n, s) for n, s in zip(names, shapes) if s is not None])
    graph.output[0].type.tensor_type.elem_type = 1
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


IMAGE = [1, 3, 8, 8]
BAD = {
    "Conv.rank0": one("Conv", IMAGE, [[]]), "Conv.rank1": one("Conv", IMAGE, [[3]]), "Conv.rank2": one("Conv", IMAGE, [[4, 3]]),
    "Conv.rank3": one("Conv", IMAGE, [[4, 3, 3]]), "Conv.rank9": one("Conv", IMAGE, [[4, 3] + [1] * 7]),
    "Conv.channels": one("Conv", IMAGE, [[4, 5, 3, 3]]), "Conv.groups": one("Conv", IMAGE, [[4, 1, 3, 3]], group=3),
    "Conv.bias": one("Conv", IMAGE, [[4, 3, 3, 3], [5]]), "Conv.bias1": one("Conv", IMAGE, [[4, 3, 3, 3], [1]]),
    "Conv.bias0": one("Conv", IMAGE, [[4, 3, 3, 3], []]), "Conv.bias4": one("Conv", IMAGE, [[4, 3, 3, 3], [1, 4, 1, 1]]),
    "Conv.kernel": one("Conv", IMAGE, [[4, 3, 3, 3]], kernel_shape=[5, 5]), "Conv.alone": one("Conv", IMAGE, []),
    "Conv.empty": one("Conv", IMAGE, [], ["x", ""]), "Conv1d": one("Conv", [1, 3, 8], [[4, 2, 3]]),
    "ConvTranspose.channels": one("ConvTranspose", IMAGE, [[4, 3, 3, 3]]), "ConvTranspose.bias": one("ConvTranspose", IMAGE, [[3, 4, 3, 3], [3]]),
    "Gemm.rank0": one("Gemm", [4, 8], [[]]), "Gemm.rank1": one("Gemm", [4, 8], [[8]]), "Gemm.rank3": one("Gemm", [4, 8], [[1, 8, 4]]),
    "Gemm.inner": one("Gemm", [4, 8], [[7, 4]]), "Gemm.turned": one("Gemm", [4, 8], [[8, 4]], transB=1),
    "Gemm.bias": one("Gemm", [4, 8], [[8, 4], [5]]), "Gemm.bias2": one("Gemm", [4, 8], [[8, 4], [2, 4]]),
    "Gemm.bias3": one("Gemm", [4, 8], [[8, 4], [1, 1, 4]]), "Gemm.input3": one("Gemm", [1, 4, 8], [[8, 4]]),
    "MatMul.rank0": one("MatMul", [4, 8], [[]]), "MatMul.inner": one("MatMul", [4, 8], [[7, 4]]), "MatMul.vector": one("MatMul", [4, 8], [[7]]),
    "MatMul.batch": one("MatMul", [3, 4, 8], [[2, 8, 4]]), "MatMul.alone": one("MatMul", [4, 8], []),
    "MatMul.many": one("MatMul", [4, 8], [[8, 4]], ["x"] + ["w"] * 100001), "MatMul.first": one("MatMul", [4, 8], [[4, 7]], ["w", "x"]),
    "Add.three": one("Add", [4, 8], [[8], [8]]), "Relu.two": one("Relu", [4, 8], [[8]]),
    "Mul.outputs": one("Mul", [4, 8], [[8]], outputs=["y", "z"]), "Conv.outputs": one("Conv", IMAGE, [[4, 3, 3, 3]], outputs=["z", "y"]),
    "Add.outputs": one("Add", [4, 8], [[8]], outputs=["y", ""]),
    "MatMul.outputs": one("MatMul", [4, 8], [[8, 4]], outputs=["y", "z"]), "MaxPool.outputs": one("MaxPool", IMAGE, [], kernel_shape=[2, 2], outputs=["y", "z", "a"]),
    "LSTM.outputs": one("LSTM", [5, 1, 6], [[1, 16, 6], [1, 16, 4]], hidden_size=4, outputs=["y", "z", "a", "b"]),
    "LSTM.rank": one("LSTM", [5, 1, 6], [[16, 6], [1, 16, 4]], hidden_size=4), "LSTM.size": one("LSTM", [5, 1, 6], [[1, 16, 5], [1, 16, 4]], hidden_size=4),
    "LSTM.hidden": one("LSTM", [5, 1, 6], [[1, 16, 6], [1, 16, 5]], hidden_size=4),
    "LSTM.bias": one("LSTM", [5, 1, 6], [[1, 16, 6], [1, 16, 4], [1, 16]], hidden_size=4),
}
GOOD = {
    "Conv": one("Conv", IMAGE, [[4, 3, 3, 3], [4]]), "Conv.groups": one("Conv", [1, 6, 8, 8], [[6, 1, 3, 3], [6]], group=6, kernel_shape=[3, 3]),
    "Conv.3d": one("Conv", [1, 2, 5, 5, 5], [[4, 2, 3, 3, 3]]), "Conv.no_bias": one("Conv", IMAGE, [[4, 3, 3, 3]], ["x", "w", ""]),
    "ConvTranspose": one("ConvTranspose", [1, 4, 8, 8], [[4, 3, 3, 3], [6]], group=2),
    "Gemm": one("Gemm", [4, 8], [[8, 5], [5]]), "Gemm.turned": one("Gemm", [8, 4], [[5, 8], [4, 5]], transA=1, transB=1),
    "Gemm.scalar": one("Gemm", [4, 8], [[8, 5], []]), "Gemm.column": one("Gemm", [4, 8], [[8, 5], [4, 1]]), "Gemm.one": one("Gemm", [4, 8], [[8, 5], [1]]),
    "MatMul.vector": one("MatMul", [4, 8], [[8]]), "MatMul.row": one("MatMul", [8], [[8, 4]]), "MatMul.batch": one("MatMul", [1, 4, 8], [[2, 8, 4]]),
    "MatMul.batch4": one("MatMul", [2, 1, 4, 8], [[3, 8, 4]]), "MatMul.first": one("MatMul", [8, 4], [[2, 8]], ["w", "x"]),
    "MatMul.open": one("MatMul", ["n", "k"], [[8, 4]]), "LSTM": one("LSTM", [5, 1, 6], [[1, 16, 6], [1, 16, 4], [1, 32]], hidden_size=4),
    "LSTM.outputs": one("LSTM", [5, 1, 6], [[1, 16, 6], [1, 16, 4]], hidden_size=4, outputs=["y", "z", "a"]),
    "MaxPool.outputs": one("MaxPool", IMAGE, [], kernel_shape=[2, 2], outputs=["y", "z"]),
    "Split.outputs": one("Split", [4, 300], [], outputs=["y", *(f"z{i}" for i in range(299))], opset=11, axis=1), "other": one("Relu", [4, 8], []),
}


def runs(model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    try:
        s = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        x = [d.dim_value or {"n": 3, "k": 8}[d.dim_param] for d in model.graph.input[0].type.tensor_type.shape.dim]
        s.run(None, {"x": np.ones(x, np.float32)})
    except Exception:  # noqa: BLE001 - whatever it says
        return False
    return True


def quantize(folder, model, name):
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    command = "static" if name == "qoperator" else name
    return quantcase.onq(command, "-i", folder / "m.onnx", "-o", folder / "out.onnx", *COMMANDS[name])


@pytest.mark.parametrize("name", BAD)
def test_refused(tmp_path, name):
    assert not runs(BAD[name])
    for command in COMMANDS:
        done = quantize(tmp_path, BAD[name], command)
        assert done.returncode == 1 and not (tmp_path / "out.onnx").exists(), (command, done.stderr)
        assert f"m.onnx: node 'the_node' ({name.partition('.')[0].replace('1d', '')}): " in done.stderr


@pytest.mark.parametrize("name", GOOD)
def test_taken(tmp_path, name):
    assert runs(GOOD[name])
    for command in ("dynamic", "preprocess") if name == "MatMul.open" else ("dynamic", "static", "qoperator", "preprocess"):
        done = quantize(tmp_path, GOOD[name], command)
        assert done.returncode == 0 and runs(onnx.load(tmp_path / "out.onnx")), (command, done.stderr)


def test_wrong_value_info(tmp_path):
    """The runtime goes by what it infers, and so do we."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"], "a"), helper.make_node("MatMul", ["t", "v"], ["y"], "b")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [4, 8])], [helper.make_tensor_value_info("y", 1, [4, 5])],
                              [array("w", [8, 6]), array("v", [6, 5])], value_info=[helper.make_tensor_value_info("t", 1, [4, 7])])
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert runs(m)
    for command in ("dynamic", "static", "qoperator", "preprocess"):
        done = quantize(tmp_path, m, command)
        assert done.returncode == 0, (command, done.stderr)


def test_other_domains(tmp_path):
    """An operator of the same name of another domain is another operator."""
    m = one("MatMul", [4, 8], [], domain="mine")
    m.opset_import.append(helper.make_opsetid("mine", 1))
    assert quantize(tmp_path, m, "dynamic").returncode == 0
