"""test_qat.py - `onq qat`: models trained with fake quantization, in all three formats.

The judge of numbers is the fake-quantized model itself, run as it is: the result must agree within one quantization step
of the last layer. Trained scales and zero points must survive to the last bit. Structure is compared with quantize_qat of
onnxruntime 1.8.1 where that tool works (pairs after nodes only), from the Python files of its wheel.
"""
import json
import subprocess

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import qatmodels as Q
from quantcase import MODELS, ONQ

FORMATS = ("integer", "qdq", "qoperator")
INTEGER = {"ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul", "QGemm", "QLinearAdd"}

NETS = {
    "conv": lambda: Q.conv_net(),
    "conv.output": lambda: Q.conv_net(output=True),
    "conv.channels": lambda: Q.conv_net(axis=0),
    "conv.int8": lambda: Q.conv_net(act="int8"),
    "conv.int8.output": lambda: Q.conv_net(act="int8", output=True),
    "conv.integers": lambda: Q.conv_net(stored="ints", axis=0),
    "conv.chain": lambda: Q.conv_net(form="chain"),
    "conv.chain.channels": lambda: Q.conv_net(form="chain", axis=0),
    "conv.matmul": lambda: Q.conv_net(gemm=False, bias=False),
    "mlp": lambda: Q.mlp(),
    "mlp.int8": lambda: Q.mlp(act="int8"),
    "mlp.inverse": lambda: Q.mlp(form="inverse"),
    "mlp.bounds": lambda: Q.mlp(form="bounds"),
    "mlp.channels": lambda: Q.mlp(axis=1),
    "mlp.gemm": lambda: Q.mlp(gemm=True),
    "mlp.gemm.channels": lambda: Q.mlp(gemm=True, axis=0),
    "residual": lambda: Q.residual(),
    "residual.int8": lambda: Q.residual(act="int8"),
    "shared": lambda: Q.shared(),
    "shared.apart": lambda: Q.shared(same=False),
}


def onq(folder, model, *words, name="got.onnx", code=0):
    path = folder / "in.onnx"
    if isinstance(model, onnx.ModelProto):
        onnx.save(model, path)
    else:
        path = model
    done = subprocess.run([ONQ, "qat", "-i", str(path), "-o", str(folder / name), "--no_verify", *words], capture_output=True,
                          text=True, timeout=120)
    assert done.returncode == code, done.stderr
    return done


def step(values, trained=None, symmetric=False):
    """One step of the last layer: what its output was trained with, else what its range gives."""
    if trained is not None:
        return float(trained) * 1.0001
    if symmetric:
        return float(np.abs(values).max()) / 127
    return (max(float(values.max()), 0.0) - min(float(values.min()), 0.0)) / 255


def inits(model):
    return {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}


def fake_pairs(model):
    """QuantizeLinear with DequantizeLinear after it."""
    makers = {o: n for n in model.graph.node for o in n.output}
    return [n.name for n in model.graph.node if n.op_type == "DequantizeLinear"
            and n.input[0] in makers and makers[n.input[0]].op_type == "QuantizeLinear"]


def triples(model):
    """(scale, zero point) of all that is quantized with constants, whatever node holds them."""
    values, found = inits(model), set()
    for node in model.graph.node:
        for a, b in zip(node.input, list(node.input)[1:]):
            if a in values and b in values and values[a].dtype == np.float32 and values[b].dtype in (np.int8, np.uint8):
                found.add(key(values[a], values[b]))
        if node.op_type in ("ConvInteger", "MatMulInteger"):
            for zero in list(node.input)[2:4]:
                if zero in values:
                    name = zero.replace("_zero_point", "_scale").replace("_one", "")
                    for scale in (values.get(name), values.get(name + "_channels")):
                        if scale is not None:
                            found.add(key(scale, np.broadcast_to(values[zero], scale.shape)))
    return found


def key(scale, zero):
    """The same for int8 with zero point z and uint8 with z + 128."""
    shift = 128 if zero.dtype == np.int8 else 0
    return (np.asarray(scale, np.float32).tobytes(), (np.asarray(zero).astype(np.int64) + shift).ravel().tobytes())


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("net", NETS)
def test_agrees_with_the_trained_model(tmp_path, net, form):
    n, model = NETS[net]()
    onq(tmp_path, model, "--quant_format", form)
    got = onnx.load(tmp_path / "got.onnx")
    onnx.checker.check_model(got)
    for seed in (77, 78):
        x = np.random.default_rng(seed).normal(size=n.shape).astype(np.float32)
        want = Q.run(model, x)
        limit = step(want, n.last_scale if ".output" in net else None, "int8" in net)
        error = np.abs(Q.run(tmp_path / "got.onnx", x) - want).max()
        assert error <= limit, (error, limit)
    if form == "qdq":
        floats = [t.name for t in got.graph.initializer if t.data_type == TensorProto.FLOAT and len(t.dims) > 1]
        assert not floats, "weights are stored as integers"
        kinds = {i.name: i.data_type for i in got.graph.initializer}
        makers = {o: m for m in got.graph.node for o in m.output}
        for node in got.graph.node:
            if node.op_type in ("Conv", "Gemm") and len(node.input) > 2:
                assert kinds[makers[node.input[2]].input[0]] == TensorProto.INT32, "bias"
    else:
        assert INTEGER & {m.op_type for m in got.graph.node}
        assert not {"Conv", "MatMul", "Gemm"} & {m.op_type for m in got.graph.node}
        assert not fake_pairs(got)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("net", ["conv", "conv.channels", "conv.int8", "conv.integers", "mlp", "mlp.gemm.channels",
                                 "residual", "shared.apart", "conv.chain.channels"])
def test_trained_parameters_survive(tmp_path, net, form):
    n, model = NETS[net]()
    onq(tmp_path, model, "--quant_format", form)
    found = triples(onnx.load(tmp_path / "got.onnx"))
    for tensor, (scale, zero) in n.trained.items():
        assert key(scale, zero) in found, tensor


@pytest.mark.parametrize("form", FORMATS)
def test_integers_of_weights_survive(tmp_path, form):
    """Stored integers, -128 among them, come out as they went in."""
    n = Q.Net([2, 8])
    w = np.arange(-128, 128, 2, dtype=np.int8).reshape(8, 16)
    stored = n.op("DequantizeLinear", [n.init(w), n.init(np.float32(0.0137)), n.init(np.int8(0))])
    onq(tmp_path, n.model(n.op("MatMul", [n.pair("x", 0.02, np.uint8(128)), stored])), "--quant_format", form)
    values = inits(onnx.load(tmp_path / "got.onnx"))
    assert any(v.dtype == np.int8 and v.shape == w.shape and (v == w).all() for v in values.values())


def edge_axis(n, r):
    w = r.normal(size=(8, 3)).astype(np.float32)
    return n.op("MatMul", [n.learn("x"), n.pair(n.init(w), np.full(8, 0.02, np.float32), np.zeros(8, np.int8), axis=0)])


def edge_zero_points(n, r):
    w = n.init((r.normal(size=(4, 3, 3, 3)) * 0.4).astype(np.float32))
    zeros = np.array([120, 128, 130, 100], np.uint8)
    return n.op("Conv", [n.learn("x"), n.pair(w, np.full(4, 0.02, np.float32), zeros, axis=0)])


def edge_transposed(n, r):
    return n.op("ConvTranspose", [n.learn("x"), n.weight(r.normal(size=(3, 4, 3, 3)))])


def edge_bias(n, r):
    return n.op("Conv", [n.learn("x"), n.weight(r.normal(size=(4, 3, 3, 3))), n.weight(np.linspace(-1, 1, 4))])


def edge_clip(n, r):
    """Clip to 0..6 in front of a range that goes further: it has to stay."""
    y = n.op("Conv", [n.learn("x"), n.weight(r.normal(size=(4, 3, 3, 3)))])
    y = n.op("Clip", [y, n.init(np.float32(0)), n.init(np.float32(1.5))])
    return n.op("Conv", [n.pair(y, 0.04, np.uint8(30)), n.weight(r.normal(size=(2, 4, 1, 1)))])


def edge_twice(n, r):
    return n.op("MatMul", [n.learn(n.learn(n.op("Relu", ["x"])), stretch=1.3), n.weight(r.normal(size=(8, 3)))])


def edge_output_of_input(n, r):
    return n.learn("x")


EDGES = {"axis": edge_axis, "zero_points": edge_zero_points, "transposed": edge_transposed, "bias": edge_bias,
         "clip": edge_clip, "twice": edge_twice, "output_of_input": edge_output_of_input}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("edge", EDGES)
def test_edges(tmp_path, edge, form):
    """What the operators cannot hold: it stays float, with the trained numbers."""
    n = Q.Net([2, 3, 6, 6] if edge in ("zero_points", "transposed", "bias", "clip") else [2, 8])
    model = n.model(EDGES[edge](n, n.rng))
    onq(tmp_path, model, "--quant_format", form)
    want = Q.run(model, n.sample())
    assert np.abs(Q.run(tmp_path / "got.onnx", n.sample()) - want).max() <= step(want)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("opset", [10, 11, 12, 17])
def test_opsets(tmp_path, opset, form):
    n = Q.Net([2, 8], opset)
    y = n.op("MatMul", [n.learn("x"), n.weight(n.rng.normal(size=(8, 5)))])
    model = n.model(n.op("MatMul", [n.op("Tanh", [y]), n.init(n.rng.normal(size=(5, 3)).astype(np.float32))]))
    onq(tmp_path, model, "--quant_format", form)
    want = Q.run(model, n.sample())
    assert np.abs(Q.run(tmp_path / "got.onnx", n.sample()) - want).max() <= 3 * step(want)  # the last is dynamic


def test_types_that_are_asked_for(tmp_path):
    n, model = Q.mlp(act="int8")
    onq(tmp_path, model, "--quant_format", "qdq")
    kept = {v.dtype.name for k, v in inits(onnx.load(tmp_path / "got.onnx")).items() if k.endswith("zero_point")}
    assert kept == {"int8"}
    onq(tmp_path, model, "--quant_format", "qdq", "--activation_type", "quint8", "--weight_type", "quint8")
    shifted = {v.dtype.name for k, v in inits(onnx.load(tmp_path / "got.onnx")).items() if k.endswith("zero_point")}
    assert shifted == {"uint8"}
    want = Q.run(model, n.sample())
    assert np.abs(Q.run(tmp_path / "got.onnx", n.sample()) - want).max() <= step(want)


def test_choice_of_nodes(tmp_path):
    n, model = Q.conv_net()
    convs = [m.name for m in model.graph.node if m.op_type == "Conv"]

    def kinds(*words):
        onq(tmp_path, model, *words)
        Q.run(tmp_path / "got.onnx", n.sample())
        return [m.op_type for m in onnx.load(tmp_path / "got.onnx").graph.node]

    assert kinds("--nodes_to_exclude", convs[0]).count("ConvInteger") == 1
    assert kinds("--nodes_to_quantize", convs[1]).count("ConvInteger") == 1
    assert kinds("--op_types_to_quantize", "MatMul").count("ConvInteger") == 0
    assert kinds("--op_types_to_quantize", "Conv").count("MatMulInteger") == 0


def test_external_data(tmp_path):
    n, model = Q.mlp()
    onq(tmp_path, model, "--use_external_data_format")
    assert (tmp_path / "got.onnx.data").exists() or not any(
        len(t.raw_data) > 1024 for t in onnx.load(tmp_path / "got.onnx").graph.initializer)
    Q.run(tmp_path / "got.onnx", n.sample())


def test_what_is_no_fake_quantization_stays(tmp_path):
    """A QuantizeLinear with a computed scale, and a pair whose halves differ."""
    n = Q.Net([2, 8])
    s = n.op("Abs", [n.init(np.float32(0.02))])
    z = n.init(np.uint8(128))
    a = n.op("DequantizeLinear", [n.op("QuantizeLinear", ["x", s, z]), s, z])
    one, two = n.init(np.float32(0.02)), n.init(np.float32(0.03))
    b = n.op("DequantizeLinear", [n.op("QuantizeLinear", [a, one, z]), two, z])
    model = n.model(n.op("MatMul", [b, n.init(np.ones((8, 3), np.float32))]))
    done = onq(tmp_path, model)
    assert "stay as they are" in done.stderr and "no fake quantization" in done.stderr
    want = Q.run(model, n.sample())
    assert np.abs(Q.run(tmp_path / "got.onnx", n.sample()) - want).max() <= 2 * step(want)


@pytest.mark.parametrize("scale", [0.0, -0.1, float("nan"), float("inf")])
def test_impossible_scales_are_refused(tmp_path, scale):
    n = Q.Net([2, 8])
    model = n.model(n.op("MatMul", [n.pair("x", scale, np.uint8(128)), n.init(np.ones((8, 3), np.float32))]))
    done = onq(tmp_path, model, code=1)
    assert "scale" in done.stderr and not (tmp_path / "got.onnx").exists()


def test_unknown_types_are_refused(tmp_path):
    assert "is not one of qint8, quint8" in onq(tmp_path, Q.mlp()[1], "--weight_type", "qint4", code=2).stderr


def test_report(tmp_path):
    n, model = Q.residual()
    told = json.loads(onq(tmp_path, model, "--json").stdout)
    assert told["trained_weights"] == 3 and told["trained_activations"] == 4 and told["fake_left"] == 0


def test_quant_of_qonnx(tmp_path):
    """Quant(x, scale, zero point, bits): cannot be run here, so numpy says what it would give."""
    n = Q.Net([3, 8])
    r = n.rng
    w = (r.normal(size=(8, 5)) * 0.3).astype(np.float32)
    bits, zero = n.init(np.float32(8)), n.init(np.float32(0))
    sx, sw = np.float32(0.021), (np.abs(w).max(0, keepdims=True) / 127).astype(np.float32)
    n.nodes.append(helper.make_node("Quant", ["x", n.init(sx), zero, bits], ["xq"], "qx", signed=1, narrow=0,
                                    rounding_mode="ROUND", domain="qonnx.custom_op.general"))
    n.nodes.append(helper.make_node("Quant", [n.init(w), n.init(sw), zero, bits], ["wq"], "qw", signed=1, narrow=0,
                                    rounding_mode="ROUND", domain="qonnx.custom_op.general"))
    onq(tmp_path, n.model(n.op("MatMul", ["xq", "wq"])))
    x = n.sample()
    want = (np.clip(np.round(x / sx), -128, 127) * sx) @ (np.clip(np.round(w / sw), -128, 127) * sw)
    assert "MatMulInteger" in {m.op_type for m in onnx.load(tmp_path / "got.onnx").graph.node}
    assert np.abs(Q.run(tmp_path / "got.onnx", x) - want).max() < 1e-5


# ---- a net that was really trained


def train(seed=11, steps=300):
    """Two classes of rings, an MLP of 2-16-16-2 trained with fake quantization (straight-through gradients) in numpy."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, 600)
    angle, radius = rng.uniform(0, 2 * np.pi, 600), np.where(labels, 1.6, 0.7) + rng.normal(size=600) * 0.15
    x = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype(np.float32)
    sizes = [2, 16, 16, 2]
    w = [(rng.normal(size=(a, b)) / np.sqrt(a)).astype(np.float32) for a, b in zip(sizes, sizes[1:])]
    b = [np.zeros(k, np.float32) for k in sizes[1:]]
    acts = [(np.float32(4 / 255), np.uint8(128)), (np.float32(5 / 255), np.uint8(0)), (np.float32(6 / 255), np.uint8(0))]

    def fake(v, s, z):
        return ((Q.quantize(v, s, z).astype(np.float32) - np.float32(z)) * s).astype(np.float32)

    def weights():
        return [(np.float32(np.abs(m).max() / 127), np.int8(0)) for m in w]

    for _ in range(steps):
        qw = [fake(m, *p) for m, p in zip(w, weights())]
        h, kept = x, []
        for i in range(3):
            a = fake(h, *acts[i])
            kept.append(a)
            h = a @ qw[i] + b[i]
            h = np.maximum(h, 0) if i < 2 else h
        p = np.exp(h - h.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        g = (p - np.eye(2)[labels]).astype(np.float32) / len(x)
        for i in (2, 1, 0):
            gw, gb = kept[i].T @ g, g.sum(0)
            g = (g @ qw[i].T) * (kept[i] > 0)
            w[i] -= np.float32(0.8) * gw
            b[i] -= np.float32(0.8) * gb
    n = Q.Net([len(x), 2], seed=seed)
    y = "x"
    for i in range(3):
        s, z = weights()[i]
        y = n.op("Gemm", [n.pair(y, *acts[i]), n.pair(n.init(w[i], "w"), s, z), n.init(b[i], "b")])
        y = n.op("Relu", [y]) if i < 2 else y
    return n.model(y), x, labels, w[2]


@pytest.mark.parametrize("form", FORMATS)
def test_a_trained_net(tmp_path, form):
    model, x, labels, last = train()
    want = Q.run(model, x)
    assert (want.argmax(1) == labels).mean() > 0.95, "the training worked"
    onq(tmp_path, model, "--quant_format", form)
    got = Q.run(tmp_path / "got.onnx", x)
    error = np.abs(got - want).max(1)
    # where a number of the hidden layer lies between two steps, rounding may go the other way: one step of the last
    # layer's input times its largest weight
    assert error.max() <= step(want) + np.float32(6 / 255) * np.abs(last).max()
    assert np.quantile(error, 0.99) <= step(want)
    assert (got.argmax(1) == want.argmax(1)).mean() > 0.995


@pytest.mark.parametrize("form", FORMATS)
def test_digits(tmp_path, form):
    """The real convolutional net with pairs put in by the reference (QDQ with float weights): QDQ in."""
    from onnxruntime import quantization as R
    from quantcase import Reader
    folder = MODELS / "digits_cnn"
    if not folder.exists():
        print("1 model absent: digits_cnn")
        pytest.skip("no digits_cnn")
    samples = []
    for d in sorted(folder.glob("test_data_set_*"))[:8]:
        t = onnx.TensorProto()
        t.ParseFromString((d / "input_0.pb").read_bytes())
        samples.append(numpy_helper.to_array(t))
    folded, fake = tmp_path / "folded.onnx", tmp_path / "fake.onnx"
    subprocess.run([ONQ, "preprocess", "-i", str(folder / "model.onnx"), "-o", str(folded), "--optimizer", "builtin"],
                   check=True, capture_output=True, timeout=120)
    name = onnx.load(folded).graph.input[0].name
    R.quantize_static(str(folded), str(fake), Reader([{name: s} for s in samples]),
                      activation_type=R.QuantType.QUInt8, weight_type=R.QuantType.QInt8, per_channel=True,
                      extra_options={"AddQDQPairToWeight": True, "QuantizeBias": False})
    onq(tmp_path, fake, "--quant_format", form)
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    a, b = (onnxruntime.InferenceSession(str(p), options, providers=["CPUExecutionProvider"])
            for p in (fake, tmp_path / "got.onnx"))
    trained = float(inits(onnx.load(fake))["logits_scale"])
    for s in samples:
        want, got = a.run(None, {name: s})[0], b.run(None, {name: s})[0]
        assert np.abs(got - want).max() <= step(want, trained)
        assert (got.argmax(-1) == want.argmax(-1)).all()


# ---- quantize_qat of onnxruntime 1.8.1


def plain(v):
    """A node as tuples, attributes by name."""
    return (v.op_type, v.name, list(v.input), list(v.output), v.domain,
            sorted((a.name, str(helper.get_attribute_value(a))) for a in v.attribute))


OPTIONS = {
    "plain": ({}, []),
    "per_channel": ({"per_channel": True}, ["--per_channel"]),
    "reduce_range": ({"reduce_range": True}, ["--reduce_range"]),
    "int8_weights": ({"weight": "QInt8"}, ["--weight_type", "qint8"]),
    "matmul_only": ({"op_types": ["MatMul"]}, ["--op_types_to_quantize", "MatMul"]),
    "without_one": ({"exclude": ["conv_10"]}, ["--nodes_to_exclude", "conv_10"]),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("option", OPTIONS)
def test_structure_of_quantize_qat(tmp_path, option, bias):
    tools = Q.old_tool()
    if tools is None:
        print("1 reference absent: the wheel of onnxruntime 1.8.1 cannot be had")
        pytest.skip("no onnxruntime 1.8.1")
    said, words = OPTIONS[option]
    n, model = Q.activations_only(bias=bias)
    onq(tmp_path, model, *words)
    want, got = Q.old_quantize(tools, model, **said), onnx.load(tmp_path / "got.onnx")
    assert [plain(v) for v in got.graph.node] == [plain(v) for v in want.graph.node]
    a, b = inits(want), inits(got)
    used = {i for v in want.graph.node for i in v.input}
    assert set(b) == set(a) & used
    for name in b:
        assert a[name].dtype == b[name].dtype and a[name].shape == b[name].shape, name
        assert a[name].tobytes() == b[name].tobytes(), name
    Q.run(tmp_path / "got.onnx", n.sample())
