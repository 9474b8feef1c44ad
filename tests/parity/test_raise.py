"""Raising the opset in the commands: the raised model computes what the model computed, and is raised only where its
result needs it.
"""
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization as Q

import quantcase

FLOAT, HALF = TensorProto.FLOAT, TensorProto.FLOAT16


def model(nodes, opset, inputs, outputs, inits=None, ir=6):
    def infos(d):
        return [helper.make_tensor_value_info(k, *v) for k, v in d.items()]

    g = helper.make_graph(nodes, "g", infos(inputs), infos(outputs),
                          [numpy_helper.from_array(v, k) for k, v in (inits or {}).items()])
    return helper.make_model(g, ir_version=ir, opset_imports=[helper.make_opsetid("", opset)])


def samples_of(m, n=4, seed=3):
    rng = np.random.default_rng(seed)
    kinds = {FLOAT: np.float32, HALF: np.float16}
    return [{v.name: rng.normal(size=[d.dim_value for d in v.type.tensor_type.shape.dim]).astype(
        kinds[v.type.tensor_type.elem_type]) for v in m.graph.input} for _ in range(n)]


def opset_of(path):
    return next(o.version for o in onnx.load(path).opset_import if o.domain in ("", "ai.onnx"))


def sqnr(want, got):
    if want.shape != got.shape:
        return -np.inf
    noise = ((want - got) ** 2).sum()
    return np.inf if noise == 0 else 10 * np.log10((want ** 2).sum() / noise)


class Two:
    """One model, quantized by both tools, measured against the float model as users run it."""

    def __init__(self, folder, m, samples=None):
        self.folder, self.samples = folder, samples or samples_of(m)
        self.path = folder / "float.onnx"
        onnx.save(m, self.path)
        np.savez(folder / "data.npz", **{k: np.stack([s[k] for s in self.samples]) for k in self.samples[0]})
        self.n = 0

    def db(self, path, against=None):
        why = quantcase.loads(path)
        if why is not None:
            return why
        try:
            return sqnr(quantcase.outputs(against or self.path, self.samples), quantcase.outputs(path, self.samples))
        except Exception as e:  # noqa: BLE001 - a model that does not run
            return str(e)

    def onq(self, *words, command="static", status=0, against=None):
        self.n += 1
        self.out = self.folder / f"onq{self.n}.onnx"
        data = ["--data", self.folder / "data.npz"] if command == "static" else []
        done = quantcase.onq(command, "-i", self.path, "-o", self.out, *data, *words)
        assert done.returncode == status, done.stderr
        self.said = done.stderr
        return self.db(self.out, against) if status == 0 else done.stderr

    def reference(self, **kw):
        self.n += 1
        self.ref = self.folder / f"ref{self.n}.onnx"
        try:
            Q.quantize_static(str(self.path), str(self.ref), quantcase.Reader(self.samples), **kw)
        except Exception as e:  # noqa: BLE001 - whatever it raises
            return f"{type(e).__name__}: {e}"
        return self.db(self.ref)


# ---------------------------------------------------------------- Resize and Upsample before opset 11

def resize(mode, scales, op="Resize", opset=10, shape=(1, 2, 7, 9)):
    rng = np.random.default_rng(1)
    inits = {"w": rng.normal(size=(shape[1], shape[1], 1, 1)).astype(np.float32), "s": np.array(scales, np.float32)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], name="conv"),
             helper.make_node(op, ["a", "s"], ["y"], name="resize", mode=mode)]
    return model(nodes, opset, {"x": (FLOAT, shape)}, {"y": (FLOAT, [None] * 4)}, inits)


SMALLER = (.3, .34, .4, .6, .75, .9, 1 / 3, .25)
SCALES = [[1, 1, s, s] for s in (*SMALLER, .5, 1.5, 1.7, 2.5, 2, 3)] + [[1, 1, .6, 1.7], [1, 1, 2, .75], [1, 1, .5, 2]]


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_old_resize(tmp_path, mode):
    """Quantized with 16 bits, which raises the opset to 21, and preprocessed: what opset 10 computed."""
    for scales in SCALES:
        two = Two(tmp_path, resize(mode, scales))
        text = f"{mode} {scales}"
        assert two.onq("--activation_type", "quint16", "--weight_type", "qint16") > 75, text
        assert opset_of(two.out) == 21, text
        for words in ([], ["--optimizer", "builtin"], ["--optimizer", "none", "--opset", "17"]):
            assert two.onq(*words, command="preprocess") > 100, f"{text} {words}"


@pytest.mark.difference("Raising the opset")
@pytest.mark.parametrize("scale", SMALLER)
def test_old_resize_of_the_reference(tmp_path, scale):
    """It forgets that coordinates were asymmetric; onq does not. A half needs nothing, and the files are equal."""
    two = Two(tmp_path, resize("nearest", [1, 1, scale, scale]))
    kinds = {"activation_type": Q.QuantType.QUInt16, "weight_type": Q.QuantType.QInt16}
    ref, got = two.reference(**kinds), two.onq("--activation_type", "quint16", "--weight_type", "qint16")
    assert got > 75 and (ref < 20 or scale in (.6, .9, .75)), (ref, got)


def test_old_resize_that_needs_nothing(tmp_path):
    for scales in ([1, 1, .5, .5], [1, 1, 2, 3], [1, 1, .5, 2]):
        two = Two(tmp_path, resize("nearest", scales))
        kinds = {"activation_type": Q.QuantType.QUInt16, "weight_type": Q.QuantType.QInt16}
        assert two.reference(**kinds) == two.onq("--activation_type", "quint16", "--weight_type", "qint16") > 75
        assert [n.SerializeToString() for n in onnx.load(two.ref).graph.node if n.op_type == "Resize"] == \
            [n.SerializeToString() for n in onnx.load(two.out).graph.node if n.op_type == "Resize"]


def test_old_resize_with_computed_scales(tmp_path):
    rng = np.random.default_rng(1)
    inits = {"w": rng.normal(size=(2, 2, 1, 1)).astype(np.float32), "half": np.array([1, 1, .5, 1.5], np.float32)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], name="conv"),
             helper.make_node("Mul", ["half", "f"], ["s"], name="scales"),
             helper.make_node("Resize", ["a", "s"], ["y"], name="resize", mode="nearest")]
    m = model(nodes, 10, {"x": (FLOAT, [1, 2, 7, 9]), "f": (FLOAT, [4])}, {"y": (FLOAT, [None] * 4)}, inits)
    samples = [{**s, "f": np.array([1, 1, f, f], np.float32)} for s, f in zip(samples_of(m), (1, 1.2, 1.9, 2.7))]
    two = Two(tmp_path, m, samples)
    assert two.onq("--activation_type", "quint16", "--weight_type", "qint16") > 75
    assert two.onq("--optimizer", "builtin", command="preprocess") > 100


def test_old_resize_that_no_opset_has(tmp_path):
    two = Two(tmp_path, resize("nearest", [1, 1, .6, 1.1], shape=(1, 2, 7, 5)))
    said = two.onq("--activation_type", "quint16", status=1)
    assert "'resize'" in said and not two.out.exists()


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_upsample_of_opset_10(tmp_path, mode):
    """Opset 10 has no Upsample, and the runtime does not load it. Raised, it is a Resize."""
    two = Two(tmp_path, resize(mode, [1, 1, 2, 3], "Upsample"))
    assert "deprecated" in quantcase.loads(two.path)
    same = tmp_path / "same.onnx"
    onnx.save(resize(mode, [1, 1, 2, 3], "Upsample", opset=9), same)
    assert two.onq("--activation_type", "quint16", "--weight_type", "qint16", against=same) > 75
    assert two.onq(against=same) > 35 and opset_of(two.out) == 11
    assert two.onq(command="dynamic", against=same) > 35
    for words in ([], ["--optimizer", "builtin"], ["--optimizer", "none"]):
        assert two.onq(*words, command="preprocess", against=same) > 100, words


# ---------------------------------------------------------------- Hardmax

def hardmax(axis, opset, shape=(2, 3, 4, 4)):
    rng = np.random.default_rng(1)
    inits = {"w": rng.normal(size=(3, 3, 1, 1)).astype(np.float32)}
    keys = {} if axis is None else {"axis": axis}
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], name="conv"),
             helper.make_node("Hardmax", ["a"], ["y"], name="hard", **keys)]
    return model(nodes, opset, {"x": (FLOAT, shape)}, {"y": (FLOAT, shape)}, inits)


@pytest.mark.difference("Raising the opset")
@pytest.mark.parametrize("opset", [9, 11, 12])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, 3, -1])
def test_hardmax_keeps_its_meaning(tmp_path, opset, axis):
    if axis == -1 and opset < 11:
        pytest.skip("no negative axis there")
    two = Two(tmp_path, hardmax(axis, opset))
    for words in (["--opset", "13"], ["--opset", "21", "--optimizer", "builtin"], ["--opset", "13", "--optimizer", "none"]):
        assert two.onq(*words, command="preprocess") == np.inf, words
    kinds = {"activation_type": Q.QuantType.QUInt16, "weight_type": Q.QuantType.QInt16}
    ref, got = two.reference(**kinds), two.onq("--activation_type", "quint16", "--weight_type", "qint16")
    assert got > 30
    assert ref == got if axis in (-1, 3) else ref < 10
