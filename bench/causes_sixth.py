"""The sixth set of cases for bench_causes.py: other families, troubles and mistakes than the sets before it, and shared models.

A conformer, concatenations that grow, a coder of signals, a recommender, gates of squeeze and excitation, products with
the matrix of a graph, a decoder with rotated positions, pictures in patches. Mistakes that people make: an older
checkpoint, two ranges swapped, a percentile that clips, samples in other units. Shared models
are calibrated and debugged with one half of their samples and judged with the other. It was written before debug had
seen one of its models.
"""
import math

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from causes_fifth import rolled, zero_point
from causes_held import (FAULT, HEALTHY, NONE, PC, SHAPES, Style, Unfit, act_range, bias, bits, build, clipped,
                         gemm, made, normal, one_channel, save_samples, spoil_until, static, swept, t_dead, t_layer_norm,
                         t_log, t_outliers, t_reciprocal, weight_scale)
from causes_kit import MODELS, Case, onq, pairs, replace, sqnr, value_of
from causes_real import QO, shared


# ---- families ----


def silu(net, x):
    return net.op("Mul", x, net.op("Sigmoid", x))


def rms(net, x, n):
    mean = net.op("ReduceMean", net.op("Mul", x, x), axes=[-1])
    y = net.op("Div", x, net.op("Sqrt", net.op("Add", mean, net.init(np.float32(1e-5)))))
    return net.op("Mul", y, net.init(1 + 0.1 * net.rng.normal(size=n)))


def heads(net, x, tokens, count, size):
    y = net.op("Reshape", x, net.init(np.array([-1, tokens, count, size], np.int64)))
    return net.op("Transpose", y, perm=[0, 2, 1, 3])


def attend(net, q, k, v, tokens, n, mask=None):
    score = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2]))
    score = net.op("Mul", score, net.init(np.float32((n / 4) ** -0.5)))
    if mask is not None:
        score = net.op("Add", score, mask)
    y = net.op("MatMul", net.op("Softmax", score, axis=-1), v)
    return net.op("Reshape", net.op("Transpose", y, perm=[0, 2, 1, 3]), net.init(np.array([-1, tokens, n], np.int64)))


def conformer(net, middle):
    """Half steps of a feed forward part, attention of four heads, a depthwise convolution over time."""
    s, n, t = Style(net, "tokens"), 52, 18
    x = middle(s, s.lin("x", 26, n), n)
    for _ in range(2):
        y = s.lin(silu(net, s.lin(x, n, 72)), 72, n)
        x = net.op("Add", x, net.op("Mul", y, net.init(np.float32(0.5))))
        q, k, v = (heads(net, s.lin(x, n, n), t, 4, n // 4) for _ in range(3))
        x = net.op("Add", x, s.lin(attend(net, q, k, v, t, n), n, n))
        c = net.op("Transpose", x, perm=[0, 2, 1])
        w = net.rng.normal(size=(n, 1, 5)) / 2.3
        c = silu(net, net.op("Conv", c, net.init(w), net.init(0.1 * net.rng.normal(size=n)), pads=[2, 2], group=n))
        x = net.op("LayerNormalization", net.op("Add", x, net.op("Transpose", c, perm=[0, 2, 1])),
                   net.init(1 + 0.1 * net.rng.normal(size=n)), net.init(0.1 * net.rng.normal(size=n)))
    return s.lin(x, n, 13)


def dense_net(net, middle):
    """Every layer reads all before it."""
    s = Style(net, "2d")
    x, n = middle(s, net.op("Relu", s.lin("x", 2, 12, k=3)), 12), 12
    for _ in range(4):
        y = net.op("Relu", s.lin(net.op("Relu", s.lin(x, n, 20)), 20, 8, k=3))
        x, n = net.op("Concat", x, y, axis=1), n + 8
    x = net.op("AveragePool", s.lin(x, n, 24), kernel_shape=[2, 2], strides=[2, 2])
    return gemm(net, net.op("Flatten", net.op("GlobalAveragePool", x)), 24, 14)


def coder(net, middle):
    """A signal down and up again: strided convolutions, Elu, ConvTranspose."""
    s, x = Style(net, "1d"), "x"
    for n_in, n_out in ((2, 18), (18, 30)):
        w = net.rng.normal(size=(n_out, n_in, 4)) / math.sqrt(4 * n_in)
        x = net.op("Elu", net.op("Conv", x, net.init(w), net.init(0.1 * net.rng.normal(size=n_out)), strides=[2], pads=[1, 1]))
    x = middle(s, x, 30)
    x = net.op("Add", x, s.lin(net.op("Elu", s.lin(x, 30, 36, k=3)), 36, 30, k=3))
    for n_in, n_out in ((30, 22), (22, 16)):
        w = net.rng.normal(size=(n_in, n_out, 4)) / math.sqrt(2 * n_in)
        b = net.init(0.1 * net.rng.normal(size=n_out))
        x = net.op("Elu", net.op("ConvTranspose", x, net.init(w), b, strides=[2], pads=[1, 1]))
    return s.lin(x, 16, 2, k=3)


def recommender(net, middle):
    """A deep part of dense layers beside products of pairs of factors, and a linear part."""
    s, n = Style(net, "rows"), 60
    x = middle(s, net.op("Relu", s.lin("x", 44, n)), n)
    deep = net.op("Relu", s.lin(net.op("Relu", s.lin(x, n, 84)), 84, 36))
    v = s.lin(x, n, 36)
    total = net.op("Mul", v, v)
    pairs_ = net.op("Sub", total, net.op("Mul", deep, net.init(np.float32(0.3))))
    return s.lin(net.op("Concat", deep, pairs_, "x", axis=1), 36 + 36 + 44, 5)


def excite(net, middle):
    """Squeeze and excitation with HardSwish."""
    s, n = Style(net, "2d"), 28
    x = middle(s, net.op("HardSwish", s.lin("x", 3, n, k=3)), n)
    for _ in range(3):
        y = net.op("HardSwish", s.lin(x, n, n, k=3))
        g = net.op("Relu", s.lin(net.op("GlobalAveragePool", y), n, 10))
        g = net.op("HardSigmoid", s.lin(g, 10, n), alpha=0.2, beta=0.5)
        x = net.op("Add", x, net.op("Mul", y, g))
    x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    return gemm(net, net.op("Flatten", net.op("GlobalAveragePool", x)), n, 17)


def message(net, middle):
    """Features of the nodes of a graph, mixed by its matrix."""
    s, n = Style(net, "tokens"), 44
    near = net.rng.random((20, 20)) < 0.2
    near = (near | near.T | np.eye(20, dtype=bool)).astype(np.float64)
    near /= near.sum(axis=1, keepdims=True)
    x = middle(s, net.op("Relu", s.lin("x", 15, n)), n)
    for _ in range(3):
        y = net.op("MatMul", net.init(near), s.lin(x, n, n))
        x = net.op("LeakyRelu", net.op("Add", y, s.lin(x, n, n)), alpha=0.05)
    return s.lin(net.op("ReduceMax", x, axes=[1], keepdims=0), n, 6)


def decoder(net, middle):
    """RMS norms, positions that are rotated, a causal mask, SwiGLU."""
    s, n, t = Style(net, "tokens"), 56, 16
    angle = np.outer(np.arange(t), 1.0 / 50 ** (np.arange(14) / 14))
    cos, sin = (net.init(f(angle).reshape(1, 1, t, 14)) for f in (np.cos, np.sin))
    mask = net.init(np.where(np.triu(np.ones((t, t)), 1) > 0, -net.mask, 0)) if net.mask else None

    def rotated(v):
        half = net.op("Concat", net.op("Neg", net.op("Slice", v, *(net.init(np.array([k], np.int64)) for k in (7, 14, 3)))),
                      net.op("Slice", v, *(net.init(np.array([k], np.int64)) for k in (0, 7, 3))), axis=3)
        return net.op("Add", net.op("Mul", v, cos), net.op("Mul", half, sin))

    x = middle(s, s.lin("x", 28, n), n)
    for _ in range(2):
        h = rms(net, x, n)
        q, k = (rotated(heads(net, s.lin(h, n, n), t, 4, 14)) for _ in range(2))
        v = heads(net, s.lin(h, n, n), t, 4, 14)
        x = net.op("Add", x, s.lin(attend(net, q, k, v, t, n, mask), n, n))
        h = rms(net, x, n)
        x = net.op("Add", x, s.lin(net.op("Mul", silu(net, s.lin(h, n, 76)), s.lin(h, n, 76)), 76, n))
    return s.lin(rms(net, x, n), n, 21)


def patches(net, middle):
    """A picture as tokens: a strided convolution, blocks, a mean."""
    s, n = Style(net, "tokens"), 40
    w = net.rng.normal(size=(n, 3, 4, 4)) / math.sqrt(48)
    x = net.op("Conv", "x", net.init(w), net.init(0.1 * net.rng.normal(size=n)), strides=[4, 4])
    x = net.op("Transpose", net.op("Reshape", x, net.init(np.array([0, n, -1], np.int64))), perm=[0, 2, 1])
    x = middle(s, net.op("Add", x, net.init(0.3 * net.rng.normal(size=(1, 36, n)))), n)
    for _ in range(2):
        norm = net.op("LayerNormalization", x, net.init(np.ones(n)), net.init(np.zeros(n)))
        q, k, v = (heads(net, s.lin(norm, n, n), 36, 4, 10) for _ in range(3))
        x = net.op("Add", x, s.lin(attend(net, q, k, v, 36, n), n, n))
        x = net.op("Add", x, s.lin(net.op("Relu", s.lin(x, n, 80)), 80, n))
    return gemm(net, net.op("ReduceMean", x, axes=[1], keepdims=0), n, 12)


SHAPES.update({conformer: [1, 18, 26], dense_net: [1, 2, 22, 22], coder: [1, 2, 64], recommender: [7, 44],
               excite: [1, 3, 18, 18], message: [1, 20, 15], decoder: [1, 16, 28], patches: [1, 3, 24, 24]})


def masked(value):
    def family(net, middle):
        net.mask = value
        return decoder(net, middle)

    SHAPES[family] = SHAPES[decoder]
    return family


# ---- troubles ----


def t_root(s, x, n, k):
    """A fourth root of products that are often near zero."""
    y = s.net.op("Abs", s.net.op("Mul", s.lin(x, n, n), s.lin(x, n, n)))
    for _ in range(k):
        y = s.net.op("Sqrt", y)
    return y


def t_log_softmax(s, x, n, k):
    """The logarithm of a Softmax that was written as its parts."""
    e = s.net.op("Exp", s.net.op("Mul", s.lin(x, n, n), s.net.init(np.float32(k))))
    p = s.net.op("Div", e, s.net.op("ReduceSum", e, s.net.init(np.array([s.axis], np.int64))))
    return s.net.op("Mul", s.net.op("Log", s.net.op("Add", p, s.net.init(np.float32(1e-6)))), s.net.init(np.float32(0.3)))


def t_centred(s, x, n, k):
    """The mean over the channels is taken off values that it dwarfs."""
    y = s.net.op("Add", s.lin(x, n, n), s.net.op("Mul", s.net.op("ReduceSum", x, s.net.init(np.array([s.axis], np.int64))),
                                                 s.net.init(np.float32(k))))
    return s.net.op("Sub", y, s.net.op("ReduceMean", y, axes=[s.axis]))


def t_sink(s, x, n, k):
    """Two channels of the residual are huge until a norm with small gains takes them back."""
    at = np.isin(np.arange(n), (4, 17))
    y = s.net.op("Add", x, s.vec(np.where(at, float(k), 0)))
    y = s.net.op("Add", y, s.lin(x, n, n))
    return s.net.op("Mul", s.net.op("Sub", y, s.vec(np.where(at, float(k), 0))), s.net.init(np.float32(0.7)))


def t_small_gain(s, x, n, k):
    """Channels of sizes that grow evenly over several powers of ten, and weights that undo it."""
    size = 10.0 ** np.linspace(-k / 2, k / 2, n)
    return s.net.op("Tanh", s.lin(s.net.op("Relu", s.lin(x, n, n, scale=size)), n, n, undo=size))


# ---- samples ----


def unit_column(rng, shape):
    """One column in other units than the rest: a time in seconds."""
    v = rng.normal(size=shape)
    v[..., 3] = 1.0e4 + 3000 * rng.random(shape[:-1])
    return v


def scaled_column(net):
    size = np.ones(SHAPES[recommender][1])
    size[3] = 3e-4
    return net.op("Mul", "x", net.init(size))


# ---- spoils ----


def swapped(a, b):
    """Two activations have each other's scale and zero point."""
    def spoil(model):
        p, q = pairs(model)[a], pairs(model)[b]
        for slot in (1, 2):
            u, v = value_of(model, p.input[slot]).copy(), value_of(model, q.input[slot]).copy()
            replace(model, p.input[slot], v)
            replace(model, q.input[slot], u)
        return [n.input[1].replace("_scale", "") for n in (p, q)]
    return spoil


def checkpoint(share):
    """Weights of an older checkpoint: each integer has moved."""
    def spoil(model):
        names = []
        for i in model.graph.initializer:
            if i.data_type == TensorProto.INT8 and len(i.dims) >= 2:
                v = numpy_helper.to_array(i).astype(np.float64)
                noise = np.random.default_rng(len(i.name)).normal(size=v.shape)
                replace(model, i.name, np.clip(np.round(v + share * v.std() * noise), -128, 127))
                names.append(i.name.replace("_quantized", "").replace("_channels", ""))
        return names or None
    return spoil


# ---- samples of another kind ----


def brighter(folder):
    """Digits that were not divided by 255."""
    rng = np.random.default_rng(9)
    x = np.load(f"{MODELS}/digits_cnn/eval.npz")["x"][rng.permutation(500)[:64]].reshape(8, 8, 1, 28, 28) * 255
    np.savez(f"{folder}/bright.npz", input=x.astype(np.float32))
    return f"{folder}/bright.npz"


def fit(run):
    """What should be healthy is."""
    def checked(folder):
        c = run(folder)
        if sqnr(c.given, [c.made], c.hold)[0] < HEALTHY:
            raise Unfit("it is not healthy")
        return c

    return checked


def healthy(*words, **how):
    return fit(made(*words[:2], NONE, *words[2:], **how))


def by_auto(family, seed):
    def run(folder):
        given, block = build(folder, family, seed)
        data = save_samples(folder, "samples", SHAPES[family], normal, 8, seed + 1)
        hold = save_samples(folder, "hold", SHAPES[family], normal, 16, seed + 2)
        onq("auto", "-i", given, "-o", f"{folder}/q.onnx", "--data", data, "-q", "--target", "sqnr=24", "--prefer", "size")
        return Case(given, f"{folder}/q.onnx", data, hold, [], NONE, [], block, "static")

    return fit(run)


AMP, HARD = ("amplified",), ("amplified", "arithmetic")

SIXTH = {
    # the file of the quantized model is wrong
    "older checkpoint (conformer)": made(conformer, 701, FAULT, spoils=[checkpoint(v) for v in (0.2, 0.4, 0.8)]),
    "older checkpoint (coder)": made(coder, 702, FAULT, spoils=[checkpoint(v) for v in (0.2, 0.4, 0.8)]),
    "ranges swapped (message)": made(message, 703, FAULT, spoils=[swapped(0, 3), swapped(1, 6), swapped(0, 9)]),
    "ranges swapped (excite)": made(excite, 704, FAULT, spoils=[swapped(0, 4), swapped(1, 8), swapped(2, 5)]),
    "weight scale (decoder)": made(decoder, 705, FAULT, spoils=swept(weight_scale, (4, 2), 1.7, 3.5)),
    "weight scale (dense)": made(dense_net, 706, FAULT, spoils=swept(weight_scale, (3, 5), 0.6, 0.3)),
    "one channel scaled (patches)": made(patches, 707, FAULT, spoils=swept(one_channel, (0, 3), 4, 12, 40)),
    "weights clipped (recommender)": made(recommender, 708, FAULT, spoils=swept(clipped, (1, 2), 0.4, 0.2)),
    "3 bits (coder)": made(coder, 709, FAULT, spoils=swept(bits, (2, 3, 1), 3, 2)),
    "weight rolled (message)": made(message, 710, FAULT, spoils=swept(rolled, (3, 1), 2)),
    "biases (dense)": made(dense_net, 711, FAULT, spoils=[bias(2), bias(4), bias(1)]),
    "range widened (qoperator, dense)": made(dense_net, 712, FAULT, [*PC, *QO], spoils=swept(act_range, (3, 5), 8, 30)),
    "range narrowed (patches)": made(patches, 713, FAULT, spoils=swept(act_range, (6, 12, 3), 0.5, 0.2, 0.05)),
    "zero point (recommender)": made(recommender, 714, FAULT, spoils=swept(zero_point, (4, 6), 40, 90)),
    "percentile that clips (coder)": made(coder, 715, ("parameters", "stretched_ranges"), [*PC, "--calibration_method", "percentile", "--calib_percentile", "80"]),
    "noise as samples (excite)": made(excite, 716, FAULT, other=lambda r, s: 90 * (r.random(s) - 0.5)),
    "samples without their mean (decoder)": made(decoder, 717, FAULT, other=lambda r, s: 0.05 * r.normal(size=s)),
    # the network is hard
    "per tensor (dense)": made(dense_net, 718, ("per_channel",), (), trouble=t_dead, strengths=(1.3, 2, 3)),
    "per tensor (qoperator, excite)": made(excite, 719, ("per_channel",), QO, trouble=t_dead, strengths=(1.3, 2, 3)),
    "per tensor (dynamic, decoder)": made(decoder, 720, ("per_channel",), (), trouble=t_dead, strengths=(1.3, 2, 3),
                                          command="dynamic"),
    "causal mask (decoder)": made(masked(1e4), 722, ("mask",)),
    "lowest float as mask (decoder)": made(masked(3.4028234e38), 723, ("mask",)),
    "fourth root (coder)": made(coder, 725, AMP, trouble=t_root, strengths=(2, 3, 4)),
    "log of a Softmax (message)": made(message, 726, AMP, trouble=t_log_softmax, strengths=(2, 4, 6)),
    "mean that dwarfs (conformer)": made(conformer, 727, HARD, trouble=t_centred, strengths=(2, 8, 30)),
    "huge residual (patches)": made(patches, 728, ("amplified", "arithmetic", "channels", "stretched_ranges"),
                                    trouble=t_sink, strengths=(100, 400, 1600)),
    "channels of many sizes (recommender)": made(recommender, 729, ("channels",), trouble=t_small_gain, strengths=(2, 3, 4)),
    "channels of many sizes (dense)": made(dense_net, 730, ("channels",), trouble=t_small_gain, strengths=(2, 3, 4)),
    "outlier channels (message)": made(message, 731, ("channels",), trouble=t_outliers, strengths=(30, 100, 400)),
    "LayerNormalization (conformer)": made(conformer, 732, ("amplified", "channels"), trouble=t_layer_norm, strengths=(30, 120, 500)),
    "Log (excite)": made(excite, 733, AMP, trouble=t_log, strengths=(4, 6)),
    "Reciprocal (patches)": made(patches, 734, AMP, trouble=t_reciprocal, strengths=(1, 2, 3)),
    "a time among the inputs (recommender)": made(recommender, 735, ("input_range", "amplified", "channels"), draw=unit_column,
                                                  before=scaled_column),
    "constants (message)": made(message, 737, ("not_prepared",), constants=True),
    "2 bits (nbits, decoder)": made(decoder, 738, ("few_bits",), ["--bits", "2", "--block_size", "32"], command="nbits"),
    # nothing is wrong
    "healthy (coder)": healthy(coder, 740),
    "healthy (dense)": healthy(dense_net, 741),
    "healthy (excite)": healthy(excite, 742),
    "healthy (patches)": healthy(patches, 743),
    "healthy, smoothed (conformer)": healthy(conformer, 744, [*PC, "--smooth_quant"]),
    "healthy, equalised (coder)": healthy(coder, 745, [*PC, "--equalize"]),
    "healthy, qoperator (excite)": healthy(excite, 746, [*PC, *QO]),
    "healthy, channel ranges (dense)": healthy(dense_net, 747, [*PC, "--channel_ranges", "both"]),
    "healthy, bias corrected (excite)": healthy(excite, 748, [*PC, "--bias_correction"]),
    "healthy, 16 bits (decoder)": healthy(decoder, 749, [*PC, "--activation_type", "quint16"]),
    "healthy (dynamic, conformer)": healthy(conformer, 750, PC, command="dynamic"),
    "healthy, 8 bits (nbits, message)": healthy(message, 751, ["--bits", "8"], command="nbits"),
    "healthy, made by auto (coder)": by_auto(coder, 752),
    # shared models
    "efficientnet, per tensor": shared("efficientnet_lite0", ("per_channel",), []),
    "magika, range narrowed": shared("magika", FAULT, spoils=swept(act_range, (4, 8, 2, 12), 0.3, 0.1)),
    "ppocrv4_det, range widened": shared("ppocrv4_det", FAULT, spoils=swept(act_range, (30, 12, 60), 8, 30, 100)),
    "digits_cnn, not divided by 255": shared("digits_cnn", FAULT, calibrate=brighter),
    "digits_cnn, not prepared": shared("digits_cnn", ("not_prepared", "per_channel"), [], prepared=False),
    "ppocr_cls, not prepared": shared("ppocr_cls", ("not_prepared",), prepared=False),
    "tiny_llama, 2 bits": shared("tiny_llama", FAULT, [*PC, "--op_types_to_quantize", "MatMul"], spoils=swept(bits, (3, 10), 3, 2)),
    "lstm_tagger": shared("lstm_tagger", NONE),
    "silero_vad_op18_ifless": shared("silero_vad_op18_ifless", NONE),
}
