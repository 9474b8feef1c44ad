"""test_sides_preprocess.py - what docs/DIFFERENCES.md says of `onq preprocess`: quant_pre_process, and onq."""
import contextlib

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnxruntime.quantization.execution_providers.qnn import qnn_preprocess_model
from onnxruntime.quantization.shape_inference import quant_pre_process

import quantcase
import sides
from sides import array, feeds, info, model

node = helper.make_node
IMAGE, MAPS = (1, 3, 8, 8), (1, 4, 6, 6)
MICROSOFT = "com.microsoft"


def preprocess(folder, m, samples, *words, **options):
    """options: of quant_pre_process, by the names that onq has for them too."""
    def reference(path, out):
        with contextlib.chdir(folder):  # where it may leave a file
            quant_pre_process(str(path), str(out), **options)

    return sides.made(folder, m, samples, reference, "preprocess", *(f"--{k}" for k, v in options.items() if v is True), *words)


def unknown_operator():
    return model([node("Relu", ["x"], ["a"], "first"), node("Mystery", ["a"], ["b"], "mystery", domain="nobody.knows"),
                  node("Concat", ["x", "x"], ["y"], "last", axis=0)], [], ["n", 4], [None, 4], domains=["nobody.knows"])


@pytest.mark.difference("Incomplete symbolic inference", "Temporary files of preprocessing")
def test_incomplete(tmp_path):
    both = preprocess(tmp_path, unknown_operator(), [], skip_optimization=True).expect(
        "raises: Incomplete symbolic shape inference", "written")
    assert "'mystery'" in both.warnings
    types = {v.name: v.type.tensor_type for v in onnx.load(both.onq.path).graph.output}
    assert types["y"].shape.dim[0].dim_param == "2*n"
    assert (tmp_path / "sym_shape_infer_temp.onnx").exists()
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    done = quantcase.onq("preprocess", "-i", tmp_path / "float.onnx", "-o", quiet / "m.onnx", "--skip_optimization", "--strict")
    assert done.returncode == 1 and "Mystery" in done.stderr and list(quiet.iterdir()) == []


@pytest.mark.difference("If with a constant condition")
def test_constant_if(tmp_path, rng):
    def branch(k):
        return helper.make_graph([node("Mul", ["x", f"k{k}"], [f"o{k}"], f"mul{k}")], f"branch{k}", [], [info(f"o{k}", (4, 8))],
                                 [array(f"k{k}", [1.0 + k])])

    m = model([node("If", ["c"], ["y"], "if", then_branch=branch(0), else_branch=branch(1))], [array("c", False, bool)],
              (4, 8), (4, 8))
    both = preprocess(tmp_path, m, feeds(rng, (4, 8)), skip_optimization=True)
    both.expect((np.inf, np.inf), np.inf)
    read = [{a.name: a.g.node[0].input[1] for a in x.graph.node[0].attribute} for x in both.models()]
    assert read == [{"then_branch": "k1", "else_branch": "k1"}, {"then_branch": "k0", "else_branch": "k1"}]


@pytest.mark.difference("Optimisation that fails")
def test_optimisation_fails(tmp_path):
    both = preprocess(tmp_path, unknown_operator(), [], skip_symbolic_shape=True).expect(
        "written", "raises: --optimizer builtin")
    assert len(onnx.load(both.reference.path).graph.node) == 3


@pytest.mark.difference("Preprocessing external data")
def test_external_data(tmp_path, rng):
    m = model([node("Conv", ["x", "w"], ["y"], "conv")], [array("w", rng.normal(size=(4, 3, 3, 3)))], IMAGE, MAPS)
    samples = feeds(rng, IMAGE)

    def reference(path, out):
        quant_pre_process(str(path), str(out), skip_symbolic_shape=True)

    onnx.save_model(m, tmp_path / "held.onnx", save_as_external_data=True, location="held.data", size_threshold=0)
    held = onnx.load(tmp_path / "held.onnx", load_external_data=False)
    both = sides.made(tmp_path, held, samples, reference, "preprocess", "--skip_symbolic_shape").expect("raises", 100)
    assert "held.data" in both.reference.text


@pytest.mark.difference("Preprocessing below opset 11")
@pytest.mark.parametrize("op, opset, mode, reference", [
    ("Upsample", 9, "nearest", "raises: No Adapter"), ("Upsample", 9, "linear", "raises: No Adapter"),
    ("Resize", 10, "linear", 15)])
@pytest.mark.parametrize("optimise", [True, False])
def test_below_opset_11(tmp_path, rng, op, opset, mode, reference, optimise):
    m = model([node("Conv", ["x", "w"], ["a"], "conv"), node(op, ["a", "s"], ["y"], "up", mode=mode)],
              [array("w", rng.normal(size=(4, 3, 3, 3))), array("s", [1, 1, 2, 2])], IMAGE, (1, 4, 12, 12), opset)
    both = preprocess(tmp_path, m, feeds(rng, IMAGE), skip_optimization=not optimise).expect(reference, 100)
    assert onnx.load(both.onq.path).opset_import[0].version == 11


@pytest.mark.difference("Preprocessing below opset 11")
def test_below_opset_7(tmp_path, rng):
    m = model([node("Conv", ["x", "w"], ["a"], "conv"), node("Sigmoid", ["a"], ["y"], "sigmoid")],
              [array("w", rng.normal(size=(4, 3, 3, 3)))], IMAGE, MAPS, 6)
    both = preprocess(tmp_path, m, feeds(rng, IMAGE), skip_optimization=True).expect((100, np.inf), 100)
    assert [x.opset_import[0].version for x in both.models()] == [11, 6] and "too old" in both.warnings


def with_inputs(m):
    """Every initializer an input too, as IR 3 wants it."""
    m.graph.input.extend(info(t.name, t.dims, t.data_type) for t in m.graph.initializer)
    return m


def equal_constants(rng, opset=11):
    """Two scalars and two vectors of the same values, which the runtime merges."""
    return with_inputs(model(
        [node("MatMul", ["x", "w"], ["a"], "a"), node("Mul", ["a", "k0"], ["b"], "b"), node("Add", ["b", "k1"], ["c"], "c"),
         node("Add", ["c", "v0"], ["d"], "d"), node("Mul", ["d", "v1"], ["y"], "y")],
        [array("w", rng.normal(size=(4, 4))), *(array(n, 2) for n in ("k0", "k1")), *(array(n, [3]) for n in ("v0", "v1"))],
        (2, 4), (2, 4), opset, ir_version=3))


def as_nodes(m):
    """The constants that are not the weight as Constant nodes, as PyTorch writes them."""
    constants = [t for t in m.graph.initializer if t.name != "w"]
    for t in constants:
        m.graph.initializer.remove(t)
        m.graph.input.remove(next(v for v in m.graph.input if v.name == t.name))
        m.graph.node.insert(0, node("Constant", [], [t.name], value=t))
    return m


@pytest.mark.difference("Preprocessing IR version 3")
@pytest.mark.parametrize("opset", [9, 11, 17])
@pytest.mark.parametrize("form", [lambda m: m, as_nodes], ids=["initializers", "nodes"])
def test_ir_3(tmp_path, rng, opset, form):
    both = preprocess(tmp_path, form(equal_constants(rng, opset)), feeds(rng, (2, 4))).expect("does not run", 100)
    lost, kept = ({v.name for v in x.graph.input} - {t.name for t in x.graph.initializer} for x in both.models())
    assert kept == {"x"} < lost


@pytest.mark.parametrize("ir", [3, 4, 8])
@pytest.mark.parametrize("words", [[], ["--optimizer", "builtin"], ["--skip_optimization"]], ids=lambda w: "_".join(w))
def test_initializers_that_are_inputs(tmp_path, rng, ir, words):
    """Through each optimiser and on through static, which optimises too when asked to."""
    norm = [array(n, rng.uniform(0.5, 2, size=4)) for n in "sbmv"]
    m = with_inputs(model([node("Conv", ["x", "w"], ["a"], "conv"), node("BatchNormalization", ["a", *"sbmv"], ["n"], "norm"),
                           node("Mul", ["n", "k0"], ["c"], "mul"), node("Add", ["c", "k1"], ["y"], "add")],
                          [array("w", rng.normal(size=(4, 3, 3, 3))), array("k0", 2), array("k1", 2), *norm], IMAGE, MAPS, 13, ir))
    samples = feeds(rng, IMAGE)
    both = preprocess(tmp_path, m, samples, *words).expect("does not run" if ir == 3 else (100, np.inf), 100)
    made = onnx.load(both.onq.path)
    if "builtin" in words:
        onnx.checker.check_model(made)
    if ir >= 4:
        assert {v.name for v in made.graph.input} == {v.name for v in m.graph.input}
    quantized = sides.static(tmp_path, made, samples, "--optimize_model").onq
    assert quantized.is_as(30, lambda n: (n, np.inf)), quantized


@pytest.mark.difference("Name of the file of external tensors")
def test_external_name(tmp_path, rng):
    """250 values are 1000 bytes, which Python keeps in 1033: both write them apart."""
    m = model([node("Add", ["x", "k"], ["y"], "add")], [array("k", rng.normal(size=(2, 125)))], (2, 125), (2, 125))

    def reference(path, out):
        quant_pre_process(str(path), str(out), skip_optimization=True, save_as_external_data=True, all_tensors_to_one_file=True,
                          external_data_size_threshold=1024)

    both = sides.made(tmp_path, m, feeds(rng, (2, 125)), reference, "preprocess", "--skip_optimization",
                      "--save_as_external_data", "--all_tensors_to_one_file", "--external_data_size_threshold", 1024)
    both.expect((100, np.inf), 100)
    theirs, mine = (onnx.load(s.path, load_external_data=False).graph.initializer[0] for s in (both.reference, both.onq))
    assert theirs.data_location == mine.data_location == TensorProto.EXTERNAL
    assert mine.external_data[0].value == f"{both.onq.path.name}.data" != theirs.external_data[0].value


# ---- QNN

def qnn(folder, m, samples, *words, **options):
    def reference(path, out):
        if not qnn_preprocess_model(path, out, **options):
            raise RuntimeError("nothing to do")

    return sides.made(folder, m, samples, reference, "preprocess", "--qnn", *words)


@pytest.mark.difference("QNN preparation")
def test_qnn_nothing(tmp_path, rng):
    m = model([node("Conv", ["x", "w"], ["y"], "conv")], [array("w", rng.normal(size=(4, 3, 3, 3)))], IMAGE, MAPS)
    qnn(tmp_path, m, feeds(rng, IMAGE)).expect("raises: nothing to do", 100)


def gelu(**kw):
    """As PyTorch writes it."""
    inits = {"r": 2**0.5, "o": 1.0, "h": 0.5}
    return model([node("Div", ["x", "r"], ["a"]), node("Erf", ["a"], ["b"]), node("Add", ["b", "o"], ["c"]),
                  node("Mul", ["x", "c"], ["d"]), node("Mul", ["d", "h"], ["y"])],
                 [array(k, v) for k, v in inits.items()], (2, 3, 4), **kw)


@pytest.mark.difference("QNN preparation")
def test_qnn_metadata(tmp_path, rng):
    m = gelu(y=(2, 3, 4))
    m.metadata_props.add(key="author", value="me")
    both = qnn(tmp_path, m, feeds(rng, (2, 3, 4))).expect("raises: cannot convert dictionary update sequence", 100)
    assert "author" in [p.key for p in onnx.load(both.onq.path).metadata_props]


@pytest.mark.difference("QNN preparation")
def test_qnn_output_inside(tmp_path, rng):
    """An output of the graph in the middle of what is put together."""
    m = gelu(y={"y": (2, 3, 4), "c": (2, 3, 4)})
    qnn(tmp_path, m, feeds(rng, (2, 3, 4))).expect("does not load", 100)


@pytest.mark.difference("QNN preparation")
def test_qnn_layernorm_axis(tmp_path, rng):
    m = model([node("ReduceMean", ["x"], ["m"], "mean", axes=[1]), node("Sub", ["x", "m"], ["d"]), node("Pow", ["d", "t"], ["p"]),
               node("ReduceMean", ["p"], ["v"], axes=[1]), node("Add", ["v", "e"], ["f"]), node("Sqrt", ["f"], ["g"]),
               node("Div", ["d", "g"], ["q"]), node("Mul", ["q", "w"], ["z"]), node("Add", ["z", "b"], ["y"])],
              [array("t", 2), array("e", 1e-5), array("w", np.ones(4) * 3), array("b", np.arange(4))], (2, 4, 4), (2, 4, 4))
    qnn(tmp_path, m, feeds(rng, (2, 4, 4)), "--fuse_layernorm", fuse_layernorm=True).expect(10, 100)


@pytest.mark.difference("QNN preparation")
def test_qnn_order(tmp_path, rng):
    """Channels last: a Transpose for each input, in the order of the graph; the reference iterates over a set."""
    m = model([node("Add", ["a", "b"], ["t"]), node("Add", ["t", "c"], ["y"])], [], dict.fromkeys("abc", IMAGE), IMAGE)
    onnx.save(m, tmp_path / "m.onnx")
    for order in ("abc", "cab"):
        done = quantcase.onq("preprocess", "--qnn", "-i", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx",
                             "--inputs_to_make_channel_last", *order)
        assert done.returncode == 0, done.stderr
        got = [n.output[0] for n in onnx.load(tmp_path / "q.onnx").graph.node if n.op_type == "Transpose"]
        assert got == [f"{n}_channel_first_0" for n in "abc"]
