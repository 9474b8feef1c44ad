"""The first set of bench_causes.py: the thresholds of src/api/causes/causes.c were chosen with these cases in sight."""
import math
import os

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from causes_kit import MODELS, Case, Net, initializer, onq, pairs, replace, spoil, weights


def samples(folder, shape, draw, n=12, seed=5):
    rng = np.random.default_rng(seed)
    path = os.path.join(folder, "samples.npz")
    np.savez(path, x=np.stack([draw(rng, shape) for _ in range(n)]).astype(np.float32))
    return path


def normal(rng, shape):
    return rng.normal(size=shape)


def mlp(folder, seed=1, constants=False, weight_scale=None):
    net = Net([4, 64], seed, constants)
    x = "x"
    for i in range(4):
        x = net.op("Relu", net.dense(x, 64, 64, weight_scale))
    return net.save(f"{folder}/float.onnx", net.dense(x, 64, 16)), samples(folder, [4, 64], normal)


def cnn(folder, seed=2, scale=None, constants=False):
    net = Net([1, 8, 16, 16], seed, constants)
    x = "x"
    for i in range(4):
        x = net.op("Relu", net.conv(x, 8 if i == 0 else 16, 16, scale=scale))
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.save(f"{folder}/float.onnx", net.dense(x, 16, 10)), samples(folder, [1, 8, 16, 16], normal)


def uneven_cnn(folder):
    """Channels of very different size, which the next weights undo, as folded BatchNormalizations leave them."""
    net = Net([1, 8, 16, 16], 11)
    x, before = "x", np.ones(8)
    for i in range(4):
        after = 10.0 ** net.rng.uniform(-2, 0, size=16)
        w = net.rng.normal(size=(16, len(before), 3, 3)) / math.sqrt(len(before) * 9)
        w = w * after.reshape(-1, 1, 1, 1) / (before if i > 0 else 1 + 0 * before).reshape(1, -1, 1, 1)
        x = net.op("Relu", net.op("Conv", x, net.init(w), net.init(0.1 * after), pads=[1] * 4))
        before = after
        if i < 3:
            x = net.op("Mul", x, net.init((1 / after).reshape(1, -1, 1, 1)))
            before = np.ones(16)
    x = net.op("Flatten", net.op("GlobalAveragePool", net.op("Mul", x, net.init((1 / before).reshape(1, -1, 1, 1)))))
    return net.save(f"{folder}/float.onnx", net.dense(x, 16, 10)), samples(folder, [1, 8, 16, 16], normal)


def offset_input(folder):
    """Values near 5,000 whose small differences matter."""
    net = Net([4, 64], 12)
    x = net.op("Add", "x", net.init(np.float32(-5000)))
    for _ in range(3):
        x = net.op("Relu", net.dense(x, 64, 64))
    return (net.save(f"{folder}/float.onnx", net.dense(x, 64, 16)),
            samples(folder, [4, 64], lambda r, s: 5000 + r.normal(size=s)))


def log_net(folder, kind):
    """A spectrum: small positive values, then a function that is steep near zero."""
    net = Net([1, 8, 16, 16], 3)
    x = net.conv("x", 8, 16)
    x = net.op("Mul", x, x)
    x = net.op("Add", x, net.init(np.float32(1e-4)))
    if kind == "Log":
        x = net.op("Log", x)
    elif kind == "Reciprocal":
        x = net.op("Reciprocal", x)
    elif kind == "Sqrt":
        x = net.op("Div", net.init(np.float32(1)), net.op("Sqrt", x))
    for _ in range(3):
        x = net.op("Relu", net.conv(x, 16, 16))
    x = net.op("Flatten", net.op("GlobalAveragePool", x))
    return net.save(f"{folder}/float.onnx", net.dense(x, 16, 10)), samples(folder, [1, 8, 16, 16], normal)


def residual(folder):
    """Two large branches whose difference is small."""
    net = Net([4, 64], 4)
    h = net.op("Relu", net.dense("x", 64, 64))
    big = net.op("Mul", h, net.init(np.float32(40)))
    small = net.dense(h, 64, 64)
    x = net.op("Sub", net.op("Add", big, small), net.op("Mul", h, net.init(np.float32(40))))
    for _ in range(2):
        x = net.op("Relu", net.dense(x, 64, 64))
    return net.save(f"{folder}/float.onnx", net.dense(x, 64, 16)), samples(folder, [4, 64], normal)


def outlier_channel(folder):
    """Two channels are fifty times the others, and the next weights undo it."""
    net = Net([4, 64], 6)
    scale = np.ones(64)
    scale[[7, 30]] = 60
    x = "x"
    for i in range(3):
        y = net.op("Relu", net.dense(x, 64, 64, scale))
        w = net.rng.normal(size=(64, 64)) / 8 / scale.reshape(-1, 1)
        x = net.op("Relu", net.op("Add", net.op("MatMul", y, net.init(w)), net.init(0.1 * net.rng.normal(size=64))))
    return net.save(f"{folder}/float.onnx", net.dense(x, 64, 16)), samples(folder, [4, 64], normal)


def wide_input(folder):
    """An input with a few huge values, of which the model takes the logarithm itself."""
    net = Net([4, 64], 7)
    x = net.op("Log", net.op("Add", net.op("Abs", net.op("Mul", "x", net.init(np.float32(0.5)))),
                             net.init(np.float32(1))))
    for _ in range(3):
        x = net.op("Relu", net.dense(x, 64, 64))

    def draw(rng, shape):
        return np.exp(rng.normal(size=shape) * 3)

    return net.save(f"{folder}/float.onnx", net.dense(x, 64, 16)), samples(folder, [4, 64], draw)


def heavy_tails(folder):
    """A few values in a thousand are far out, and a Tanh makes them harmless."""
    net = Net([4, 256], 8)
    x = net.op("Tanh", net.op("Mul", "x", net.init(np.float32(0.8))))
    for _ in range(3):
        x = net.op("Relu", net.dense(x, 256, 256))

    def draw(rng, shape):
        v = rng.normal(size=shape)
        v[rng.random(shape) < 0.002] *= 200
        return v

    return net.save(f"{folder}/float.onnx", net.dense(x, 256, 16)), samples(folder, [4, 256], draw)


def layer_norm(folder):
    """A residual stream with two huge channels, which a LayerNormalization of small operators before each block undoes."""
    net = Net([4, 64], 9)
    huge = np.arange(64) % 32 == 0
    x = net.op("Add", net.dense("x", 64, 64), net.init(np.where(huge, 1500.0 * (-1.0) ** (np.arange(64) // 32), 0)))
    for _ in range(3):
        centred = net.op("Sub", x, net.op("ReduceMean", x, axes=[-1]))
        square = net.op("ReduceMean", net.op("Mul", centred, centred), axes=[-1])
        y = net.op("Div", centred, net.op("Sqrt", net.op("Add", square, net.init(np.float32(1e-5)))))
        y = net.op("Mul", y, net.init(np.where(huge, 0.002, 250.0)))
        x = net.op("Add", x, net.dense(net.op("Relu", net.dense(y, 64, 64)), 64, 64))
    x = net.op("Mul", x, net.init(np.where(huge, 0.0, 1.0)))
    return net.save(f"{folder}/float.onnx", net.dense(x, 64, 16)), samples(folder, [4, 64], normal)


def masked(folder):
    """Attention with a mask of -10,000."""
    net = Net([1, 16, 32], 10)
    mask = np.zeros((16, 16))
    mask[np.triu_indices(16, 1)] = -1e4
    x = "x"
    for _ in range(2):
        q, k, v = (net.dense(x, 32, 32) for _ in range(3))
        s = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 2, 1]))
        s = net.op("Add", net.op("Mul", s, net.init(np.float32(0.18))), net.init(mask))
        x = net.op("Add", x, net.dense(net.op("MatMul", net.op("Softmax", s, axis=-1), v), 32, 32))
    return net.save(f"{folder}/float.onnx", net.dense(x, 32, 16)), samples(folder, [1, 16, 32], normal)


def scale_weight(model, at=1, by=3.0):
    _, scale = weights(model)[at]
    replace(model, scale, numpy_helper.to_array(initializer(model, scale)) * by)


def scale_range(model, at, by):
    scale = pairs(model)[at].input[1]
    replace(model, scale, numpy_helper.to_array(initializer(model, scale)) * by)


def few_bits(model, at=1):
    name, _ = weights(model)[at]
    q = numpy_helper.to_array(initializer(model, name)).astype(np.int32)
    replace(model, name, np.clip(np.round(q / 32.0) * 32, -127, 127))


def shift_bias(model):
    names = {i.name: i for i in model.graph.initializer}
    node = next(n for n in model.graph.node if n.op_type == "DequantizeLinear" and n.input[0] in names
                and names[n.input[0]].data_type == TensorProto.INT32)
    q = numpy_helper.to_array(names[node.input[0]])
    replace(model, node.input[0], np.roll(q, 1) * 3)


# ---- cases ----


def case_static(make, options=(), then=None, causes=(), known=(), prepare=False):
    def run(folder):
        given, data = make(folder)
        base = given
        if prepare:
            base = f"{folder}/prepared.onnx"
            onq("preprocess", "-i", given, "-o", base, "-q")
        onq("static", "-i", base, "-o", f"{folder}/q.onnx", "--data", data, "-q", "--no_verify", *options)
        if then:
            spoil(f"{folder}/q.onnx", then)
        return Case(base, f"{folder}/q.onnx", data, data, [*options, *known], causes, [], [], "static")

    return run


def shared(name, limit=8):
    def make(folder):
        path = f"{folder}/float.onnx"
        onq("preprocess", "-i", f"{MODELS}/{name}/model.onnx", "-o", path, "-q")
        return path, f"{MODELS}/{name}"

    return make


def other_samples(make, draw):
    """Calibrated with samples of another kind than those that judge."""

    def run(folder):
        given, data = make(folder)
        x = np.load(data)["x"]
        rng = np.random.default_rng(3)
        np.savez(f"{folder}/other.npz", x=np.stack([draw(rng, x.shape[1:]) for _ in range(8)]).astype(np.float32))
        onq("static", "-i", given, "-o", f"{folder}/q.onnx", "--data", f"{folder}/other.npz", "-q", "--no_verify")
        return Case(given, f"{folder}/q.onnx", data, data, [], ("parameters",), [], [], "static")

    return run


FAULT = ("parameters",)
NONE = ()
PC = ["--per_channel"]


def uneven(n=16, by=80.0):
    return np.where(np.arange(n) % 8 == 0, by, 1.0)


CASES = {
    "weight scale x3 (cnn)": case_static(cnn, PC, scale_weight, FAULT),
    "weight scale /4 (mlp)": case_static(mlp, (), lambda m: scale_weight(m, 2, 0.25), FAULT),
    "range x8 (cnn)": case_static(cnn, PC, lambda m: scale_range(m, 1, 30.0), FAULT),
    "range /5 (mlp)": case_static(mlp, (), lambda m: scale_range(m, 3, 0.2), FAULT),
    "weight in 3 bits (cnn)": case_static(cnn, PC, few_bits, FAULT),
    "weight in 3 bits (mlp)": case_static(mlp, (), few_bits, FAULT),
    "biases rolled (cnn)": case_static(cnn, PC, shift_bias, FAULT),
    "other samples (mlp)": other_samples(mlp, lambda r, s: 0.1 * r.normal(size=s)),
    "other samples (cnn)": other_samples(cnn, lambda r, s: 0.15 * r.normal(size=s)),
    "zeros as samples (cnn)": other_samples(cnn, lambda r, s: np.zeros(s)),
    "per tensor (cnn)": case_static(uneven_cnn, (), None, ("per_channel",), PC),
    "per tensor (mlp)": case_static(lambda f: mlp(f, weight_scale=uneven(64, 60)), (), None,
                                    ("per_channel", "channels"), PC),
    "Log": case_static(lambda f: log_net(f, "Log"), PC, None, ("amplified",)),
    "Reciprocal": case_static(lambda f: log_net(f, "Reciprocal"), PC, None, ("amplified",)),
    "1 / Sqrt": case_static(lambda f: log_net(f, "Sqrt"), PC, None, ("amplified",)),
    "residual that cancels": case_static(residual, PC, None, ("amplified", "arithmetic")),
    "outlier channels": case_static(outlier_channel, PC, None, ("channels",)),
    "wide input, Log": case_static(wide_input, PC, None, ("input_range", "amplified")),
    "input with an offset": case_static(offset_input, PC, None, ("input_range", "amplified")),
    "heavy tails": case_static(heavy_tails, PC, None, ("stretched_ranges", "input_range")),
    "layer norm": case_static(layer_norm, PC, None, ("amplified", "arithmetic", "outputs")),
    "mask": case_static(masked, PC, None, ("mask",), ["--masks", "float"]),
    "constants (cnn)": case_static(lambda f: cnn(f, constants=True), PC, None, ("not_prepared",)),
    "constants (mlp)": case_static(lambda f: mlp(f, constants=True), PC, None, ("not_prepared",)),
    "healthy (cnn)": case_static(cnn, PC, None, NONE),
    "healthy (mlp)": case_static(mlp, PC, None, NONE),
    "healthy, equalised (mlp)": case_static(mlp, [*PC, "--equalize"], None, NONE),
    "healthy, smoothed (mlp)": case_static(mlp, [*PC, "--smooth_quant"], None, NONE),
    "healthy, bias corrected (cnn)": case_static(cnn, [*PC, "--bias_correction"], None, NONE),
    "healthy, doubled (mlp)": case_static(mlp, [*PC, "--double_activations"], None, NONE),
    "healthy, channel ranges (cnn)": case_static(cnn, [*PC, "--channel_ranges", "both"], None, NONE),
    "healthy, qoperator (cnn)": case_static(cnn, [*PC, "--quant_format", "qoperator"], None, NONE),
    "per tensor, qoperator": case_static(uneven_cnn, ["--quant_format", "qoperator"], None, ("per_channel",), PC),
}
REAL = {
    "digits_cnn": case_static(shared("digits_cnn"), (), None, NONE),
    "digits_cnn, weight x3": case_static(shared("digits_cnn"), PC, scale_weight, FAULT),
    "digits_cnn, range x6": case_static(shared("digits_cnn"), PC, lambda m: scale_range(m, 2, 6.0), FAULT),
    "efficientnet_lite0": case_static(shared("efficientnet_lite0"), (), None, ("per_channel",), PC),
    "ppocr_cls, weight / 4": case_static(shared("ppocr_cls"), PC, lambda m: scale_weight(m, 3, 0.25), FAULT),
}


