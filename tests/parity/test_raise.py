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


@pytest.mark.difference("Resize and Upsample before opset 11")
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
    assert two.onq("--activation_type", "quint16", "--weight_type", "qint16", "--nodes_to_exclude", "scales") > 75
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


@pytest.mark.difference("Hardmax past opset 12")
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


# ---------------------------------------------------------------- float16

def constant(name, value):
    return helper.make_node("Constant", [], [name], name=name, value=numpy_helper.from_array(value, ""))


def cast(form, opset):
    """float32 outside; float16 between two Cast nodes."""
    rng = np.random.default_rng(1)
    w = rng.normal(size=(4, 3, 1, 1)).astype(np.float16)
    inits, nodes = {}, [helper.make_node("Cast", ["x"], ["h"], name="down", to=HALF)]
    if form == "constant":
        nodes += [constant("w", w), helper.make_node("Conv", ["h", "w"], ["t"], name="conv")]
    elif form == "initializer":
        inits["w"] = w
        nodes.append(helper.make_node("Conv", ["h", "w"], ["t"], name="conv"))
    elif form == "no weights":
        nodes.append(helper.make_node("Add", ["h", "h"], ["t"], name="add"))
    else:
        inits["w"] = w.astype(np.float32)
        nodes = [helper.make_node("Conv", ["x", "w"], ["u"], name="conv"),
                 helper.make_node("Cast", ["u"], ["t"], name="down", to=HALF)]
    nodes.append(helper.make_node("Cast", ["t"], ["y"], name="up", to=FLOAT))
    shape = [1, 3, 6, 6]
    return model(nodes, opset, {"x": (FLOAT, shape)}, {"y": (FLOAT, [None] * 4)}, inits, ir=8)


@pytest.mark.difference("float16 models below opset 19")
@pytest.mark.parametrize("form", ["constant", "initializer", "no weights", "cast"])
@pytest.mark.parametrize("opset", [13, 17])
def test_float16_after_a_cast(tmp_path, form, opset):
    two = Two(tmp_path, cast(form, opset))
    types = ["Conv", "Add", *(["Cast"] if form == "cast" else [])]
    ref, got = two.reference(op_types_to_quantize=types), two.onq("--op_types_to_quantize", *types)
    assert isinstance(ref, str) and "float16" in ref
    assert got > 30 and opset_of(two.out) == 19


@pytest.mark.parametrize("words", [["--op_types_to_quantize", "Conv"], ["--op_types_to_quantize", "MaxPool", "Reshape"],
                                   ["--nodes_to_exclude", "mul", "pool"]], ids=" ".join)
def test_float16_of_which_nothing_is_quantized(tmp_path, words):
    inits = {"w": np.full(3, .5, np.float16)}
    nodes = [helper.make_node("Mul", ["x", "w"], ["t"], name="mul"),
             helper.make_node("MaxPool", ["t"], ["y"], name="pool", kernel_shape=[2, 2])]
    m = model(nodes, 17, {"x": (HALF, [1, 2, 3, 3])}, {"y": (HALF, [None] * 4)}, inits, ir=8)
    two = Two(tmp_path, m)
    assert two.onq(*words) == np.inf and opset_of(two.out) == 17


# ---------------------------------------------------------------- opset 10

def old_bias(op, kind):
    rng = np.random.default_rng(1)
    inits = {"w": rng.normal(size=(4, 4, 1, 1)).astype(np.float32), "v": rng.normal(size=(4, 4, 1, 1)).astype(np.float32)}
    b = rng.normal(size=4).astype(np.float32)
    nodes = [constant("b", b)] if kind == "constant" else []
    if kind != "constant":
        inits["b"] = b
    nodes += [helper.make_node("Conv", ["x", "v"], ["h"], name="first"), helper.make_node(op, ["h", "w", "b"], ["t"], name="n"),
              helper.make_node("Conv", ["t", "v"], ["y"], name="last")]
    return model(nodes, 10, {"x": (FLOAT, [1, 4, 6, 6])}, {"y": (FLOAT, [None] * 4)}, inits)


@pytest.mark.difference("float biases and DepthToSpace at opset 10")
@pytest.mark.parametrize("op, kind, words, kw", [
    ("Conv", "initializer", ["--quantize_bias=false"], {"extra_options": {"QuantizeBias": False}}),
    ("Conv", "constant", [], {}), ("ConvTranspose", "constant", [], {}),
    ("Conv", "initializer", ["--nodes_to_exclude", "n"], {"nodes_to_exclude": ["n"]}),
    ("ConvTranspose", "initializer", ["--quant_format", "qoperator"], {"quant_format": Q.QuantFormat.QOperator}),
    ("Conv", "initializer", ["--quant_format", "qoperator", "--nodes_to_exclude", "n"],
     {"quant_format": Q.QuantFormat.QOperator, "nodes_to_exclude": ["n"]}),
])
def test_float_bias_at_opset_10(tmp_path, op, kind, words, kw):
    two = Two(tmp_path, old_bias(op, kind))
    kw = {"activation_type": Q.QuantType.QUInt8, **kw}
    ref, got = two.reference(**kw), two.onq(*words)
    assert isinstance(ref, str) and "Round" in ref
    assert got > 25 and opset_of(two.out) == 11 and "opset 11" in two.said


def test_quantized_bias_at_opset_10(tmp_path):
    """Nothing is raised where nothing has to be."""
    two = Two(tmp_path, old_bias("Conv", "initializer"))
    assert two.onq() > 25 and opset_of(two.out) == 10
    assert two.onq("--quant_format", "qoperator") > 25 and opset_of(two.out) == 10


@pytest.mark.difference("float biases and DepthToSpace at opset 10")
@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_depth_to_space_at_opset_10(tmp_path, form):
    rng = np.random.default_rng(1)
    inits = {"v": rng.normal(size=(4, 4, 1, 1)).astype(np.float32), "w": rng.normal(size=(4, 1, 1, 1)).astype(np.float32)}
    nodes = [helper.make_node("Conv", ["x", "v"], ["h"], name="first"),
             helper.make_node("DepthToSpace", ["h"], ["t"], name="d", blocksize=2),
             helper.make_node("Conv", ["t", "w"], ["y"], name="last")]
    m = model(nodes, 10, {"x": (FLOAT, [1, 4, 6, 6])}, {"y": (FLOAT, [None] * 4)}, inits)
    two = Two(tmp_path, m)
    for words, kw in (([], {}), (["--op_types_to_quantize", "Conv", "DepthToSpace"],
                                 {"op_types_to_quantize": ["Conv", "DepthToSpace"]})):
        ref = two.reference(quant_format=quantcase.FORMATS[form], activation_type=Q.QuantType.QUInt8, **kw)
        assert isinstance(ref, str) and "DepthToSpace" in ref
        assert two.onq("--quant_format", form, *words) > 25 and opset_of(two.out) == 11


# ---------------------------------------------------------------- int8 and movers from opset 21 on

MOVERS = {"MaxPool": ([], {"kernel_shape": [2, 2]}), "Reshape": ([[1, 4, 4, 9]], {}), "Transpose": ([], {"perm": [0, 1, 3, 2]}),
          "Slice": ([[0], [4], [2]], {}), "Unsqueeze": ([[0]], {})}


def moved(op, opset, tail):
    rng = np.random.default_rng(1)
    inits = {"w": rng.normal(size=(4, 4, 1, 1)).astype(np.float32)}
    extra, keys = MOVERS[op]
    inits.update({f"i{k}": np.array(v, np.int64) for k, v in enumerate(extra)})
    nodes = [helper.make_node("Conv", ["x", "w"], ["h"], name="conv"),
             helper.make_node(op, ["h", *(f"i{k}" for k in range(len(extra)))], ["t"], name="mover", **keys)]
    nodes += [helper.make_node(t, ["t"], [o], name=o) for t, o in tail]
    outs = [o for _, o in tail] or ["t"]
    return model(nodes, opset, {"x": (FLOAT, [1, 4, 6, 6])}, {o: (FLOAT, None) for o in outs}, inits, ir=10)


@pytest.mark.difference("int8 activations from opset 21 on")
@pytest.mark.parametrize("op", MOVERS)
@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_int8_and_movers(tmp_path, op, form):
    def both(tail, opset):
        two = Two(tmp_path, moved(op, opset, tail))
        kinds = {"activation_type": Q.QuantType.QInt8, "weight_type": Q.QuantType.QInt8, "nodes_to_exclude": ["mover"]}
        ref = two.reference(quant_format=quantcase.FORMATS[form], **kinds)
        got = two.onq("--quant_format", form, "--activation_type", "qint8", "--nodes_to_exclude", "mover")
        domains = [n.domain for n in onnx.load(two.out).graph.node if n.op_type == "DequantizeLinear"]
        return ref, got, domains.count("com.microsoft")

    for tail in ([], [("Abs", "y")]):
        ref, got, n = both(tail, 21)
        assert "output_dtype INT8 does not match" in ref
        assert got > 30 and n == 1
    for tail, opset in (([("Abs", "y"), ("Neg", "z")], 21), ([("Abs", "y")], 20)):
        ref, got, n = both(tail, opset)
        assert ref == got > 30 and n == 0  # the same file


# ---------------------------------------------------------------- float16 that the runtime does not fuse, or cannot scale

def half_concat(constant_input):
    rng = np.random.default_rng(1)
    inits = {"w": rng.normal(size=(3, 3, 1, 1)).astype(np.float16), "v": rng.normal(size=(4, 6, 1, 1)).astype(np.float16),
             "c": rng.normal(size=(1, 3, 6, 6)).astype(np.float16)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], name="a"),
             helper.make_node("Concat", ["a", "c" if constant_input else "x"], ["t"], name="cat", axis=1),
             helper.make_node("Conv", ["t", "v"], ["y"], name="y")]
    return model(nodes, 19, {"x": (HALF, [1, 3, 6, 6])}, {"y": (HALF, [None] * 4)}, inits, ir=9)


@pytest.mark.difference("Concat of float16")
@pytest.mark.parametrize("constant_input", [False, True])
def test_concat_of_float16(tmp_path, constant_input):
    two = Two(tmp_path, half_concat(constant_input))
    ref, got = two.reference(activation_type=Q.QuantType.QUInt8), two.onq()
    assert "QLinearConcat" in ref and got > 30
    wide = {"activation_type": Q.QuantType.QUInt16, "weight_type": Q.QuantType.QInt8}
    ref, got = two.reference(**wide), two.onq("--activation_type", "quint16")  # not fused, and the same but for a last digit
    assert abs(ref - got) < .1 and got > 30


@pytest.mark.difference("float16 scales that are too small")
@pytest.mark.parametrize("size, words, kinds", [
    (.5, ["--activation_type", "quint16", "--weight_type", "qint16"], (Q.QuantType.QUInt16, Q.QuantType.QInt16)),
    (.005, [], (Q.QuantType.QUInt8, Q.QuantType.QInt8)),
])
def test_small_float16_scales(tmp_path, size, words, kinds):
    rng = np.random.default_rng(1)
    inits = {"w": (rng.uniform(-1, 1, size=(4, 3, 1, 1)) * size).astype(np.float16)}
    m = model([helper.make_node("Conv", ["x", "w"], ["y"], name="conv")], 21, {"x": (HALF, [1, 3, 6, 6])},
              {"y": (HALF, [None] * 4)}, inits, ir=10)
    samples = [{"x": rng.uniform(-size, size, size=(1, 3, 6, 6)).astype(np.float16)} for _ in range(4)]
    samples = samples if size > .1 else [{"x": s["x"] / np.float16(size)} for s in samples]
    two = Two(tmp_path, m, samples)
    ref, got = two.reference(activation_type=kinds[0], weight_type=kinds[1]), two.onq(*words)
    assert ref < 5 and got > 30, (ref, got)


@pytest.mark.difference("float16 scales that are too small")
def test_tiny_float16_biases(tmp_path):
    """The runtime's WeightBiasQuantization spoils the bias; the result itself is right, and a warning says so."""
    rng = np.random.default_rng(1)
    inits = {"w": rng.uniform(-.5, .5, size=(4, 3, 1, 1)).astype(np.float16), "b": rng.uniform(-.3, .3, 4).astype(np.float16)}
    m = model([helper.make_node("Conv", ["x", "w", "b"], ["y"], name="conv")], 21, {"x": (HALF, [1, 3, 6, 6])},
              {"y": (HALF, [None] * 4)}, inits, ir=10)
    two = Two(tmp_path, m, [{"x": rng.uniform(-.5, .5, size=(1, 3, 6, 6)).astype(np.float16)} for _ in range(4)])
    ref = two.reference(activation_type=Q.QuantType.QInt16, weight_type=Q.QuantType.QInt16)
    got = two.onq("--activation_type", "qint16", "--weight_type", "qint16")
    assert ref < 5 and got < 5 and "'b' is the first" in two.said, (ref, got)


@pytest.mark.difference("float16 models below opset 19")
@pytest.mark.parametrize("opset", [17, 21, 23])
def test_restricted_asymmetric_float16(tmp_path, opset):
    """The reference's scales are float32 there, and of Softmax; histograms give float16 scales in both."""
    rng = np.random.default_rng(1)
    inits = {"w": rng.normal(size=(6, 6)).astype(np.float16)}
    m = model([helper.make_node("MatMul", ["x", "w"], ["y"], name="mm")], opset, {"x": (HALF, [4, 6])}, {"y": (HALF, [4, 6])},
              inits, ir=8)
    two = Two(tmp_path, m)
    ref = two.reference(activation_type=Q.QuantType.QUInt8, extra_options={"ActivationRestrictedAsymmetric": True})
    assert isinstance(ref, str) and "float" in ref
    assert two.onq("--activation_restricted_asymmetric") > 30


# ---------------------------------------------------------------- Softmax without an axis

@pytest.mark.difference("Softmax of older models, QOperator format")
@pytest.mark.parametrize("shape", [(3, 8), (2, 4, 5), (1, 2, 3, 4)], ids=str)
@pytest.mark.parametrize("opset", [11, 12, 13])
def test_softmax_without_an_axis(tmp_path, opset, shape):
    m = model([helper.make_node("Softmax", ["x"], ["y"], name="soft")], opset, {"x": (FLOAT, shape)}, {"y": (FLOAT, shape)})
    two = Two(tmp_path, m)
    ref = two.reference(quant_format=Q.QuantFormat.QOperator, activation_type=Q.QuantType.QUInt8)
    got = two.onq("--quant_format", "qoperator")
    assert got > 20
    assert ref < 10 if opset < 13 and len(shape) > 2 else ref == got
