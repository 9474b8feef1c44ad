"""Cases for bench_causes.py that chose nothing: three sets of made models.

Each set has families of networks and troubles of its own. A trouble sits in the middle of a network, or in the file of
the quantized model. Its strength is the first of a list that does harm on samples which debug does not see; debug has
no part in that. A case says which causes are right and, where a tensor or node is at fault, which names the first cause
may mention.
"""
import math

import numpy as np
import onnx
from onnx import TensorProto

from causes_kit import Case, Net, onq, pairs, replace, sqnr, value_of

PC = ["--per_channel"]
HARM = 6.0  # dB that a spoil must cost
FAIR = 30.0  # dB that a spoiled model has at most
HEALTHY = 20.0  # dB that a healthy model has at least
POOR = 18.0  # dB that a model with a trouble inside has at most


# ---- families of networks ----


class Style:
    """How a family maps channels and spreads a vector over them."""

    def __init__(self, net, kind):
        self.net, self.kind, self.axis = net, kind, 2 if kind == "tokens" else 1

    def vec(self, v):
        v = np.asarray(v, np.float32)
        tail = {"1d": 1, "2d": 2}.get(self.kind, 0)
        return self.net.init(v.reshape(v.shape + (1,) * tail))

    def lin(self, x, n_in, n_out, scale=None, undo=None, k=1, uneven=True):
        net, dims = self.net, {"1d": 1, "2d": 2}.get(self.kind, 0)
        w = net.rng.normal(size=(n_out, n_in) + (k,) * dims) / math.sqrt(n_in * k**dims)
        b = 0.1 * net.rng.normal(size=n_out)
        if scale is not None:
            w, b = w * np.reshape(scale, (-1, 1) + (1,) * dims), b * scale
        if undo is not None:
            w = w / np.reshape(undo, (1, -1) + (1,) * dims)
        if net.uneven > 0 and uneven:  # a dead channel, and a huge weight that reads the dead one before it
            w[1], b[1] = 0, 0
            if x != "x":
                w[2, 1] *= 10.0**net.uneven
        if dims == 0:
            return net.op("Add", net.op("MatMul", x, net.init(w.T)), net.init(b))
        return net.op("Conv", x, net.init(w), net.init(b), pads=[k // 2] * (2 * dims))


def gemm(net, x, n_in, n_out):
    w = net.rng.normal(size=(n_in, n_out)) / math.sqrt(n_in)
    return net.op("Gemm", x, net.init(w), net.init(0.1 * net.rng.normal(size=n_out)))


def conv1d(net, middle):
    s, x = Style(net, "1d"), "x"
    x = net.op("LeakyRelu", s.lin(x, 6, 24, k=5), alpha=0.1)
    x = middle(s, x, 24)
    for _ in range(3):
        x = net.op("LeakyRelu", s.lin(x, 24, 24, k=3), alpha=0.1)
    return gemm(net, net.op("ReduceMean", x, axes=[2], keepdims=0), 24, 12)


def mobile(net, middle):
    s = Style(net, "2d")

    def relu6(v):
        return net.op("Clip", v, net.init(np.float32(0)), net.init(np.float32(6)))

    x = relu6(s.lin("x", 3, 24, k=3))
    x = middle(s, x, 24)
    for _ in range(3):
        y = relu6(s.lin(x, 24, 48))
        w = net.rng.normal(size=(48, 1, 3, 3)) / 2.0
        w[1] *= 10.0**net.uneven if net.uneven > 0 else 1.0
        y = relu6(net.op("Conv", y, net.init(w), net.init(0.1 * np.ones(48) * (np.arange(48) != 1)), pads=[1] * 4, group=48))
        x = net.op("Add", x, s.lin(y, 48, 24))
    return gemm(net, net.op("Flatten", net.op("GlobalAveragePool", x)), 24, 10)


def attention(net, s, x, n, mask=None):
    q, k, v = (s.lin(x, n, n) for _ in range(3))
    score = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 2, 1]))
    score = net.op("Div", score, net.init(np.float32(math.sqrt(n))))
    if mask is not None:
        score = net.op("Add", score, net.init(mask))
    return s.lin(net.op("MatMul", net.op("Softmax", score, axis=-1), v), n, n)


def encoder(net, middle):
    s, n = Style(net, "tokens"), 48

    def norm(v):
        gamma = 1 + 0.2 * net.rng.normal(size=n)
        return net.op("LayerNormalization", v, net.init(gamma), net.init(0.1 * net.rng.normal(size=n)), axis=-1)

    def gelu(v):
        e = net.op("Erf", net.op("Mul", v, net.init(np.float32(math.sqrt(0.5)))))
        return net.op("Mul", net.op("Mul", v, net.op("Add", e, net.init(np.float32(1)))), net.init(np.float32(0.5)))

    x = middle(s, s.lin("x", n, n), n)
    for _ in range(2):
        x = net.op("Add", x, attention(net, s, norm(x), n))
        x = net.op("Add", x, s.lin(gelu(s.lin(norm(x), n, 2 * n)), 2 * n, n))
    return s.lin(norm(x), n, 8)


def glu(net, middle):
    s = Style(net, "rows")
    x = middle(s, net.op("Tanh", s.lin("x", 40, 64)), 64)
    for _ in range(3):
        x = net.op("Add", x, s.lin(net.op("Mul", s.lin(x, 64, 64), net.op("Sigmoid", s.lin(x, 64, 64))), 64, 64))
    return s.lin(x, 64, 9)


def norm2d(net, x, n):
    gamma = 10.0 ** net.rng.uniform(-0.3, 0.3, size=n)
    live = 1.0 if net.uneven == 0 else (np.arange(n) != 1)
    stats = [gamma, live * 0.1 * net.rng.normal(size=n), live * 0.1 * net.rng.normal(size=n),
             net.rng.uniform(0.5, 2, size=n)]
    return net.op("BatchNormalization", x, *map(net.init, stats))


def resnet(net, middle):
    s = Style(net, "2d")
    x = net.op("Relu", s.lin("x", 4, 20, k=3))
    x = middle(s, x, 20)
    for _ in range(3):
        y = net.op("Relu", norm2d(net, s.lin(x, 20, 20, k=3), 20))
        x = net.op("Relu", net.op("Add", x, norm2d(net, s.lin(y, 20, 20, k=3), 20)))
    return gemm(net, net.op("Flatten", net.op("GlobalAveragePool", x)), 20, 10)


def unet(net, middle):
    s = Style(net, "2d")
    high = net.op("Relu", s.lin("x", 3, 16, k=3))
    high = middle(s, high, 16)
    low = net.op("MaxPool", high, kernel_shape=[2, 2], strides=[2, 2])
    low = net.op("Relu", s.lin(low, 16, 32, k=3))
    low = net.op("Relu", s.lin(low, 32, 32, k=3))
    w = net.rng.normal(size=(32, 16, 2, 2)) / math.sqrt(32)
    up = net.op("ConvTranspose", low, net.init(w), net.init(0.1 * net.rng.normal(size=16)), strides=[2, 2])
    x = net.op("Relu", s.lin(net.op("Concat", high, up, axis=1), 32, 16, k=3))
    return s.lin(x, 16, 4)


def mixer(net, middle):
    s = Style(net, "tokens")
    x = middle(s, s.lin("x", 32, 32), 32)
    for _ in range(3):
        t = net.op("Transpose", x, perm=[0, 2, 1])
        t = net.op("Transpose", s.lin(net.op("Relu", s.lin(t, 16, 32, uneven=False)), 32, 16, uneven=False),
                   perm=[0, 2, 1])
        x = net.op("Add", x, t)
        x = net.op("Add", x, s.lin(net.op("HardSwish", s.lin(x, 32, 64)), 64, 32))
    return s.lin(net.op("ReduceMean", x, axes=[1], keepdims=0), 32, 11)


def twins(net, middle):
    s = Style(net, "rows")
    w, b = net.rng.normal(size=(48, 64)) / 7, 0.1 * net.rng.normal(size=64)
    net.nodes.append(onnx.helper.make_node("Split", ["x"], ["left", "right"], name="split", axis=1))
    w, b = net.init(w), net.init(b)
    a, c = (net.op("Relu", net.op("Gemm", v, w, b)) for v in ("left", "right"))
    x = middle(s, net.op("Concat", net.op("Max", a, c), net.op("Add", a, c), axis=1), 128)
    for n in (128, 96, 64):
        x = net.op("Elu", s.lin(x, n, {128: 96, 96: 64, 64: 64}[n]))
    return s.lin(x, 64, 7)


SHAPES = {conv1d: [1, 6, 96], mobile: [1, 3, 24, 24], encoder: [1, 12, 48], glu: [6, 40],
          resnet: [1, 4, 20, 20], unet: [1, 3, 32, 32], mixer: [1, 16, 32], twins: [4, 96]}


# ---- troubles inside a network: (style, tensor, channels, strength) -> tensor ----


def t_log(s, x, n, k):
    y = s.lin(x, n, n)
    y = s.net.op("Add", s.net.op("Mul", y, y), s.net.init(np.float32(10.0**-k)))
    return s.net.op("Mul", s.net.op("Log", y), s.net.init(np.float32(0.3)))


def t_reciprocal(s, x, n, k):
    y = s.lin(x, n, n)
    y = s.net.op("Add", s.net.op("Abs", y), s.net.init(np.float32(10.0**-k)))
    return s.net.op("Tanh", s.net.op("Mul", s.net.op("Reciprocal", y), s.net.init(np.float32(10.0**-k * 3))))


def t_exp(s, x, n, k):
    y = s.net.op("Exp", s.net.op("Mul", s.lin(x, n, n), s.net.init(np.float32(k))))
    y = s.net.op("Div", y, s.net.op("ReduceMean", y, axes=[s.axis]))
    return s.net.op("Mul", y, s.net.init(np.float32(0.3)))


def t_div(s, x, n, k):
    low = s.net.op("Add", s.net.op("Abs", s.lin(x, n, n)), s.net.init(np.float32(10.0**-k)))
    return s.net.op("Tanh", s.net.op("Mul", s.net.op("Div", s.lin(x, n, n), low), s.net.init(np.float32(0.5))))


def t_sqrt(s, x, n, k):
    y = s.lin(x, n, n)
    for _ in range(k):
        y = s.net.op("Mul", y, y)
    for _ in range(k):
        y = s.net.op("Sqrt", y)
    return y


def t_softmax(s, x, n, k):
    y = s.net.op("Mul", s.lin(x, n, n), s.net.init(np.float32(k)))
    return s.net.op("Mul", s.net.op("Softmax", y, axis=s.axis), s.net.init(np.float32(4)))


def t_cancel(s, x, n, k):
    h, big = s.lin(x, n, n), s.net.init(np.float32(k))
    y = s.net.op("Add", s.net.op("Mul", h, big), s.lin(x, n, n))
    return s.net.op("Sub", y, s.net.op("Mul", h, big))


def t_skip_cancels(s, x, n, k):
    h = s.lin(x, n, n, scale=np.full(n, float(k)))
    y = s.net.op("Add", h, s.lin(x, n, n))
    return s.net.op("Add", y, s.net.op("Neg", h))


def t_outliers(s, x, n, k):
    scale = np.where(np.arange(n) % 11 == 5, float(k), 1.0)
    return s.net.op("Relu", s.lin(s.net.op("Relu", s.lin(x, n, n, scale=scale)), n, n, undo=scale))


def t_layer_norm(s, x, n, k):
    huge = np.arange(n) % 16 == 3
    y = s.net.op("Add", x, s.vec(np.where(huge, k * (-1.0) ** (np.arange(n) // 16), 0)))
    gamma = np.where(huge, 0.0, k / 4.0)
    return s.net.op("LayerNormalization", y, s.net.init(gamma), s.net.init(np.zeros(n)), axis=-1)


def t_rms_norm(s, x, n, k):
    size = np.where(np.arange(n) % 16 == 3, float(k), 1.0)
    y = s.net.op("Mul", x, s.vec(size))
    mean = s.net.op("ReduceMean", s.net.op("Pow", y, s.net.init(np.float32(2))), axes=[s.axis])
    y = s.net.op("Div", y, s.net.op("Sqrt", s.net.op("Add", mean, s.net.init(np.float32(1e-6)))))
    return s.net.op("Mul", y, s.vec(k / 4.0 / size))


def t_mask(s, x, n, k):
    tokens = SHAPES[encoder][1] if n == 48 else SHAPES[mixer][1]
    mask = np.where(np.triu(np.ones((tokens, tokens)), 1) > 0, -float(k), 0)
    return s.net.op("Add", x, attention(s.net, s, x, n, mask))


def t_dead(s, x, n, k):
    """Style.lin and its like do it: channels that are always zero, and huge weights that read them."""
    return x


def t_none(s, x, n, k):
    return x


# ---- samples ----


def normal(rng, shape):
    return rng.normal(size=shape)


def tails(rng, shape):
    v = rng.normal(size=shape)
    v[rng.random(shape) < 0.003] *= 150
    return v


def wide(rng, shape):
    return np.exp(2.5 * rng.normal(size=shape))


def far(rng, shape):
    return 2000 + rng.normal(size=shape)


def front(kind):
    """What stands between the input and the network, for inputs of an unusual kind."""
    def build(net):
        if kind == "tails":
            return net.op("Tanh", net.op("Mul", "x", net.init(np.float32(0.9))))
        if kind == "wide":
            return net.op("Mul", net.op("Log", net.op("Add", "x", net.init(np.float32(1)))), net.init(np.float32(0.4)))
        return net.op("Add", "x", net.init(np.float32(-2000)))
    return build


def save_samples(folder, name, shape, draw, n, seed):
    rng = np.random.default_rng(seed)
    path = f"{folder}/{name}.npz"
    x = np.stack([draw(rng, shape) for _ in range(n)])
    np.savez(path, x=x if x.dtype == np.int64 else x.astype(np.float32))
    return path


# ---- making the case of a family ----


class Unfit(RuntimeError):
    """The case is none: its trouble does no harm, or what should be healthy is not. It is not counted."""


def build(folder, family, seed, trouble=t_none, strength=0, draw=normal, before=None, constants=False, named=True):
    """The float model, and the names of the nodes of its trouble."""
    net = Net(SHAPES[family], seed, constants)
    net.uneven = strength if trouble is t_dead else 0
    block = []
    if before is not None:
        shift = before(net)
        block += [n.name for n in net.nodes if n.op_type != "Constant"]

    def middle(style, x, n):
        first = len(net.nodes)
        y = trouble(style, x, n, strength)
        block.extend(v.name for v in net.nodes[first:] if v.op_type != "Constant")
        return y

    out = family(net, middle)
    if before is not None:  # the first reader of the input reads what stands before it
        for n in net.nodes:
            if n.name not in block and "x" in n.input:
                n.input[list(n.input).index("x")] = shift
    path = net.save(f"{folder}/float.onnx", out)
    if not named:
        model = onnx.load(path)
        for n in model.graph.node:
            n.name = ""
        onnx.save(model, path)
        block = []
    return path, block


def static(folder, given, data, options, out="q.onnx"):
    onq("static", "-i", given, "-o", f"{folder}/{out}", "--data", data, "-q", "--no_verify", *options)
    return f"{folder}/{out}"


def made(family, seed, right, options=PC, strengths=(0,), spoils=None, prepared=False, other=None, command="static",
         where=None, **how):
    """A case. `strengths`: of the trouble inside; `spoils`: functions on the quantized model, tried in turn, each of
    which returns names; `other`: the kind of samples that calibrate."""

    def run(folder):
        for strength in strengths:
            given, block = build(folder, family, seed, strength=strength, **how)
            draw = how.get("draw", normal)
            data = save_samples(folder, "samples", SHAPES[family], draw, 8, seed + 1)
            hold = save_samples(folder, "hold", SHAPES[family], draw, 16, seed + 2)
            base = given
            if prepared:
                base = f"{folder}/prepared.onnx"
                onq("preprocess", "-i", given, "-o", base, "-q")
            if command == "static":
                calibrating = data
                if other is not None:
                    calibrating = save_samples(folder, "other", SHAPES[family], other, 8, seed + 3)
                q = static(folder, base, calibrating, options)
            else:
                q = f"{folder}/q.onnx"
                onq(command, "-i", base, "-o", q, "-q", *options)
            names = where or []
            now = sqnr(base, [q], hold)[0]
            if how.get("trouble", t_none) is t_none and not spoils:
                return Case(base, q, data, hold, options, right, names, block, command)
            if spoils:
                names = spoil_until(q, base, hold, spoils, now)
                if names is not None:
                    return Case(base, q, data, hold, options, right, names, block, command)
            elif now <= POOR:
                return Case(base, q, data, hold, options, right, names, block, command)
        raise Unfit("no strength does harm")

    run.of = (family, seed, right, dict(options=options, strengths=strengths, spoils=spoils, prepared=prepared,
                                        other=other, command=command, where=where, **how))
    return run


def spoil_until(path, base, hold, spoils, now):
    good = onnx.load(path)
    for spoil in spoils:
        model = onnx.ModelProto()
        model.CopyFrom(good)
        names = spoil(model)
        if names is None:
            continue
        onnx.save(model, path)
        if sqnr(base, [path], hold)[0] <= min(now - HARM, FAIR):
            return names
    onnx.save(good, path)
    return None


# ---- spoils of a quantized model: they change it and return the names that are right ----


def sites(model):
    """(integers, scale, names) of weights, QDQ, QOperator or dynamic."""
    names = {i.name: i for i in model.graph.initializer}
    out = []
    for n in model.graph.node:
        slots = {"QLinearConv": [(3, 4)], "QGemm": [(3, 4)], "QLinearMatMul": [(3, 4)]}.get(n.op_type, [])
        slots += [(0, 1)] if n.op_type == "DequantizeLinear" else []
        for value, scale in slots:
            if n.input[value] in names and len(names[n.input[value]].dims) >= 2:
                out.append((n.input[value], n.input[scale], [n.input[value].replace("_quantized", "").replace("_channels", "")]))
    if not out:  # MatMulIntegerToFloat and its like after dynamic
        out = [(i.name, i.name.replace("_quantized", "_scale"), [i.name.replace("_quantized", "")])
               for i in model.graph.initializer
               if i.name.endswith("_quantized") and len(i.dims) >= 2
               and i.name.replace("_quantized", "_scale") in names]
    return out


def weight_scale(at, by):
    def spoil(model):
        _, scale, names = sites(model)[at]
        replace(model, scale, value_of(model, scale) * by)
        return names
    return spoil


def one_channel(at, by):
    """The scale of one channel of a weight."""
    def spoil(model):
        _, scale, names = sites(model)[at]
        v = value_of(model, scale).copy()
        if v.ndim == 0 or v.size < 2:
            return None
        v[v.size // 3] *= by
        replace(model, scale, v)
        return names
    return spoil


def bits(at, n):
    def spoil(model):
        q, _, names = sites(model)[at]
        v, step = value_of(model, q).astype(np.int32), 2 ** (8 - n)
        low, high = (-128, 127) if value_of(model, q).dtype == np.int8 else (0, 255)
        replace(model, q, np.clip(np.round(v / step) * step, low, high))
        return names
    return spoil


def clipped(at, share):
    """The weight is clipped to a share of its range."""
    def spoil(model):
        q, _, names = sites(model)[at]
        v = value_of(model, q).astype(np.int32)
        if value_of(model, q).dtype != np.int8:
            return None
        replace(model, q, np.clip(v, -int(127 * share), int(127 * share)))
        return names
    return spoil


def act_range(at, by):
    def spoil(model):
        scales = [n.input[1] for n in pairs(model)] or \
            [n.input[6] for n in model.graph.node if n.op_type == "QLinearConv"]
        scale = scales[at % len(scales)]
        replace(model, scale, value_of(model, scale) * by)
        return [scale.replace("_scale", "")]
    return spoil


def bias(at):
    def spoil(model):
        names = {i.name: i for i in model.graph.initializer if i.data_type == TensorProto.INT32 and len(i.dims) == 1}
        used = [n.input[0] for n in model.graph.node if n.op_type == "DequantizeLinear" and n.input[0] in names]
        used += [n.input[8] for n in model.graph.node if n.op_type == "QLinearConv" and len(n.input) > 8]
        if not used:
            return None
        q = used[at % len(used)]
        replace(model, q, np.roll(value_of(model, q), 3) * 6)
        return [q.replace("_quantized", "")]
    return spoil


def swept(spoil, places, *strengths):
    """Every strength at every place, mildest first."""
    return [spoil(p, s) for s in strengths for p in places]


FAULT, NONE = ("parameters",), ()

SECOND = {
    # the file of the quantized model is wrong
    "weight scale up (conv1d)": made(conv1d, 101, FAULT, spoils=swept(weight_scale, (2, 1), 1.5, 3)),
    "weight scale down (glu)": made(glu, 102, FAULT, spoils=swept(weight_scale, (3, 5), 0.5, 0.2)),
    "one channel scaled (mobile)": made(mobile, 103, FAULT, spoils=swept(one_channel, (3, 1), 3, 8, 20)),
    "4 bits (conv1d)": made(conv1d, 104, FAULT, spoils=swept(bits, (1, 2), 4, 3, 2)),
    "4 bits (encoder)": made(encoder, 105, FAULT, spoils=swept(bits, (5, 0, 9), 4, 3, 2)),
    "weights clipped (glu)": made(glu, 106, FAULT, spoils=swept(clipped, (2, 4), 0.5, 0.25)),
    "range widened (encoder)": made(encoder, 107, FAULT, spoils=swept(act_range, (6, 14), 4, 16, 60)),
    "range widened (mobile)": made(mobile, 108, FAULT, spoils=swept(act_range, (4, 7), 4, 16, 60)),
    "range narrowed (conv1d)": made(conv1d, 109, FAULT, spoils=swept(act_range, (3, 2), 0.5, 0.25)),
    "biases (conv1d)": made(conv1d, 110, FAULT, spoils=[bias(1), bias(2)]),
    "quieter samples (mobile)": made(mobile, 111, FAULT, other=lambda r, s: 0.12 * r.normal(size=s)),
    "louder samples (glu)": made(glu, 112, FAULT, other=lambda r, s: 40 * r.normal(size=s)),
    "constant samples (encoder)": made(encoder, 113, FAULT, other=lambda r, s: np.full(s, 0.3)),
    "weight scale (qoperator, conv1d)": made(conv1d, 114, FAULT, [*PC, "--quant_format", "qoperator"],
                                             spoils=swept(weight_scale, (1, 2), 1.5, 3)),
    "range widened (unnamed, conv1d)": made(conv1d, 115, FAULT, spoils=swept(act_range, (2, 4), 8, 30), named=False),
    "weight scale (equalised, glu)": made(glu, 116, FAULT, [*PC, "--equalize"],
                                          spoils=swept(weight_scale, (2, 3), 2, 4)),
    # the network is hard
    "per tensor (conv1d)": made(conv1d, 117, ("per_channel",), (), strengths=(1.3, 2, 3), trouble=t_dead),
    "per tensor (mobile)": made(mobile, 118, ("per_channel",), (), strengths=(1.3, 2, 3), trouble=t_dead),
    "Log (conv1d)": made(conv1d, 119, ("amplified",), trouble=t_log, strengths=(4, 6)),
    "Reciprocal (mobile)": made(mobile, 120, ("amplified",), trouble=t_reciprocal, strengths=(1, 2, 3)),
    "Exp (glu)": made(glu, 121, ("amplified",), trouble=t_exp, strengths=(3, 5, 8)),
    "Div (conv1d)": made(conv1d, 122, ("amplified",), trouble=t_div, strengths=(1, 2, 3)),
    "Sqrt (encoder)": made(encoder, 123, ("amplified",), trouble=t_sqrt, strengths=(2, 3)),
    "residual that cancels (encoder)": made(encoder, 124, ("amplified", "arithmetic"), trouble=t_cancel,
                                            strengths=(15, 40)),
    "outlier channels (glu)": made(glu, 125, ("channels",), trouble=t_outliers, strengths=(25, 80, 300)),
    "outlier channels (conv1d)": made(conv1d, 126, ("channels",), trouble=t_outliers, strengths=(25, 80, 300)),
    "LayerNormalization (encoder)": made(encoder, 127, ("amplified", "channels"), trouble=t_layer_norm,
                                         strengths=(30, 120, 500)),
    "mask (encoder)": made(encoder, 128, ("mask",), trouble=t_mask, strengths=(1e4, 65504)),
    "wide input (glu)": made(glu, 129, ("input_range", "amplified"), draw=wide, before=front("wide")),
    "offset input (conv1d)": made(conv1d, 130, ("input_range", "amplified"), draw=far, before=front("far")),
    "heavy tails (glu)": made(glu, 131, ("stretched_ranges", "input_range"), draw=tails, before=front("tails")),
    "constants (conv1d)": made(conv1d, 132, ("not_prepared",), constants=True),
    "per tensor (dynamic, glu)": made(glu, 133, ("per_channel",), (), strengths=(1.3, 2, 3), trouble=t_dead, command="dynamic"),
    "weight scale (dynamic, glu)": made(glu, 134, FAULT, (), spoils=swept(weight_scale, (2, 3), 2, 4),
                                        command="dynamic"),
    "2 bits (nbits, glu)": made(glu, 135, ("few_bits",), ["--bits", "2", "--block_size", "64"], command="nbits"),
    # nothing is wrong
    "healthy (conv1d)": made(conv1d, 136, NONE),
    "healthy (encoder)": made(encoder, 137, NONE),
    "healthy, equalised (conv1d)": made(conv1d, 138, NONE, [*PC, "--equalize"]),
    "healthy, smoothed (encoder)": made(encoder, 139, NONE, [*PC, "--smooth_quant"]),
    "healthy, bias corrected (mobile)": made(mobile, 140, NONE, [*PC, "--bias_correction"]),
    "healthy, qoperator (mobile)": made(mobile, 141, NONE, [*PC, "--quant_format", "qoperator"]),
    "healthy, unnamed (conv1d)": made(conv1d, 142, NONE, named=False),
    "healthy, noout (encoder)": made(encoder, 143, NONE, [*PC, "--op_set", "noout"]),
    "healthy (dynamic, glu)": made(glu, 144, NONE, PC, command="dynamic"),
    "healthy, 8 bits (nbits, encoder)": made(encoder, 145, NONE, ["--bits", "8"], command="nbits"),
}

THIRD = {
    "weight scale up (unet)": made(unet, 201, FAULT, spoils=swept(weight_scale, (3, 4), 1.5, 3)),
    "weight scale down (twins)": made(twins, 202, FAULT, spoils=swept(weight_scale, (1, 2), 0.5, 0.2)),
    "one channel scaled (resnet)": made(resnet, 203, FAULT, spoils=swept(one_channel, (2, 5), 3, 8, 20),
                                        prepared=True),
    "4 bits (mixer)": made(mixer, 204, FAULT, spoils=swept(bits, (3, 6), 4, 3, 2)),
    "4 bits (unet)": made(unet, 205, FAULT, spoils=swept(bits, (2, 3), 4, 3, 2)),
    "weights clipped (mixer)": made(mixer, 206, FAULT, spoils=swept(clipped, (4, 2), 0.5, 0.25)),
    "weights clipped (resnet)": made(resnet, 207, FAULT, spoils=swept(clipped, (4, 2), 0.5, 0.25), prepared=True),
    "range widened (twins)": made(twins, 208, FAULT, spoils=swept(act_range, (5, 7), 4, 16, 60)),
    "range narrowed (unet)": made(unet, 209, FAULT, spoils=swept(act_range, (4, 2), 0.5, 0.25)),
    "biases (resnet)": made(resnet, 210, FAULT, spoils=[bias(3), bias(1)], prepared=True),
    "quieter samples (mixer)": made(mixer, 211, FAULT, other=lambda r, s: 0.1 * r.normal(size=s)),
    "louder samples (unet)": made(unet, 212, FAULT, other=lambda r, s: 30 * r.normal(size=s)),
    "samples of one sign (twins)": made(twins, 213, FAULT, other=lambda r, s: -np.abs(r.normal(size=s))),
    "range narrowed (qoperator, resnet)": made(resnet, 214, FAULT, [*PC, "--quant_format", "qoperator"],
                                               spoils=swept(act_range, (2, 4), 0.5, 0.2), prepared=True),
    "weight scale (unnamed, mixer)": made(mixer, 215, FAULT, spoils=swept(weight_scale, (3, 5), 2, 4), named=False),
    "weight scale (smoothed, mixer)": made(mixer, 216, FAULT, [*PC, "--smooth_quant"],
                                           spoils=swept(weight_scale, (3, 5), 2, 4)),
    "per tensor (resnet)": made(resnet, 217, ("per_channel",), (), trouble=t_dead, strengths=(1.3, 2, 3),
                                prepared=True),
    "per tensor (qoperator, unet)": made(unet, 218, ("per_channel",), ["--quant_format", "qoperator"], strengths=(1.3, 2, 3), trouble=t_dead),
    "Log (unet)": made(unet, 219, ("amplified",), trouble=t_log, strengths=(4, 6)),
    "Reciprocal (twins)": made(twins, 220, ("amplified",), trouble=t_reciprocal, strengths=(1, 2, 3)),
    "Softmax (mixer)": made(mixer, 221, ("amplified",), trouble=t_softmax, strengths=(16, 40, 100)),
    "Div (mixer)": made(mixer, 223, ("amplified",), trouble=t_div, strengths=(1, 2, 3)),
    "Sqrt (twins)": made(twins, 224, ("amplified",), trouble=t_sqrt, strengths=(2, 3)),
    "residual that cancels (resnet)": made(resnet, 225, ("amplified", "arithmetic"), trouble=t_skip_cancels,
                                           strengths=(40, 150, 600), prepared=True),
    "outlier channels (mixer)": made(mixer, 226, ("channels",), trouble=t_outliers, strengths=(25, 80, 300)),
    "outlier channels (unet)": made(unet, 227, ("channels",), trouble=t_outliers, strengths=(25, 80, 300)),
    "norm of uneven channels (mixer)": made(mixer, 228, ("amplified", "channels"), trouble=t_rms_norm,
                                            strengths=(30, 120)),
    "mask (mixer)": made(mixer, 229, ("mask",), trouble=t_mask, strengths=(1e4, 1e9)),
    "wide input (mixer)": made(mixer, 230, ("input_range", "amplified"), draw=wide, before=front("wide")),
    "offset input (unet)": made(unet, 231, ("input_range", "amplified"), draw=far, before=front("far")),
    "heavy tails (mixer)": made(mixer, 232, ("stretched_ranges", "input_range"), draw=tails, before=front("tails")),
    "constants (twins)": made(twins, 233, ("not_prepared",), constants=True),
    "per tensor (dynamic, mixer)": made(mixer, 234, ("per_channel",), (), strengths=(1.3, 2, 3), trouble=t_dead, command="dynamic"),
    "weight scale (dynamic, mixer)": made(mixer, 235, FAULT, (), spoils=swept(weight_scale, (2, 3), 2, 4),
                                          command="dynamic"),
    "2 bits (nbits, mixer)": made(mixer, 236, ("few_bits",), ["--bits", "2", "--block_size", "32"], command="nbits"),
    "healthy (unet)": made(unet, 237, NONE),
    "healthy (mixer)": made(mixer, 238, NONE),
    "healthy (resnet)": made(resnet, 239, NONE, prepared=True),
    "healthy, equalised (twins)": made(twins, 240, NONE, [*PC, "--equalize"]),
    "healthy, smoothed (mixer)": made(mixer, 251, NONE, [*PC, "--smooth_quant", "--smooth_quant_alpha", "0.2"]),
    "healthy, bias corrected (unet)": made(unet, 242, NONE, [*PC, "--bias_correction"]),
    "healthy, outlier channels (mixer)": made(mixer, 243, NONE, [*PC, "--outlier_channels", "4"]),
    "healthy, qoperator (unet)": made(unet, 244, NONE, [*PC, "--quant_format", "qoperator"]),
    "healthy, unnamed (twins)": made(twins, 245, NONE, named=False),
    "healthy (dynamic, mixer)": made(mixer, 246, NONE, PC, command="dynamic"),
    "healthy, 8 bits (nbits, twins)": made(twins, 247, NONE, ["--bits", "8"], command="nbits"),
}


# ---- the troubles of each set on the families of the other ----

OTHER = {conv1d: unet, mobile: resnet, encoder: mixer, glu: twins, unet: conv1d, resnet: mobile, mixer: encoder,
         twins: glu}


def moved(run):
    family, seed, right, how = run.of
    case = made(OTHER[family], seed + 300, right, **{**how, "prepared": OTHER[family] is resnet})

    def fit(folder):
        c = case(folder)
        if not right and sqnr(c.given, [c.made], c.hold)[0] < HEALTHY:
            raise Unfit("it is not healthy")
        return c

    return fit


FOURTH = {f"{name.split(' (')[0]} ({OTHER[run.of[0]].__name__}, {run.of[1] + 300})": moved(run)
          for name, run in [*SECOND.items(), *THIRD.items()][::2]}
