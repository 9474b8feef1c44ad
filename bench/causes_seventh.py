"""The seventh set of cases for bench_causes.py, for what was mended with real and field models in sight.

Gated dilated convolutions, blocks of depthwise convolutions, a recurrent cell that is written out, heads of a detector,
an hourglass with Resize, waves of the inputs, cross-attention, points that share one network. Mistakes: all ranges or
one of them too wide, one operator in 4 bits, channels of a weight in another order, biases lost, samples of another kind.
It was written before debug had seen one of its models.
"""
import math

import numpy as np
from onnx import TensorProto, numpy_helper

from causes_held import (FAULT, NONE, PC, SHAPES, Style, act_range, bits, clipped, gemm, made, normal, swept, t_dead, t_exp,
                         t_log, t_outliers, t_reciprocal, weight_scale)
from causes_kit import initializer, pairs, replace, value_of
from causes_real import QO
from causes_sixth import attend, by_auto, healthy, heads

# ---- families ----


def wavenet(net, middle):
    s, n = Style(net, "1d"), 20
    x = middle(s, s.lin("x", 3, n), n)
    for gap in (1, 2, 4):
        w = [net.init(net.rng.normal(size=(n, n, 3)) / math.sqrt(3 * n)) for _ in range(2)]
        b = [net.init(0.1 * net.rng.normal(size=n)) for _ in range(2)]
        f, g = (net.op("Conv", x, w[i], b[i], pads=[gap] * 2, dilations=[gap]) for i in range(2))
        x = net.op("Add", x, s.lin(net.op("Mul", net.op("Tanh", f), net.op("Sigmoid", g)), n, n))
    return s.lin(net.op("Relu", x), n, 5)


def convnext(net, middle):
    s, n = Style(net, "2d"), 18
    x = middle(s, s.lin("x", 3, n, k=3), n)
    for _ in range(2):
        w = net.rng.normal(size=(n, 1, 5, 5)) / 5
        y = net.op("Conv", x, net.init(w), net.init(0.1 * net.rng.normal(size=n)), pads=[2] * 4, group=n)
        y = net.op("Transpose", y, perm=[0, 2, 3, 1])
        y = net.op("LayerNormalization", y, net.init(np.ones(n)), net.init(np.zeros(n)), axis=-1)
        y = net.op("Transpose", y, perm=[0, 3, 1, 2])
        y = s.lin(y, n, 3 * n)
        y = net.op("Mul", y, net.op("Sigmoid", net.op("Mul", y, net.init(np.float32(1.7)))))
        x = net.op("Add", x, net.op("Mul", s.lin(y, 3 * n, n), s.vec(np.full(n, 0.5))))
    return gemm(net, net.op("Flatten", net.op("GlobalAveragePool", x)), n, 13)


def unrolled(net, middle):
    """A gated recurrent cell, four steps of it written out, with shared weights."""
    s, n = Style(net, "rows"), 30
    x = middle(s, net.op("Tanh", s.lin("x", 40, 40)), 40)
    w = {k: net.init(net.rng.normal(size=(m, n)) / math.sqrt(m)) for k, m in (("z", 10), ("h", 10), ("uz", n), ("uh", n))}
    state = None
    for t in range(4):
        v = net.op("Slice", x, *(net.init(np.array([k], np.int64)) for k in (10 * t, 10 * t + 10, 1)))
        z, h = net.op("MatMul", v, w["z"]), net.op("MatMul", v, w["h"])
        if state is None:
            state = net.op("Mul", net.op("Sigmoid", z), net.op("Tanh", h))
            continue
        z = net.op("Sigmoid", net.op("Add", z, net.op("MatMul", state, w["uz"])))
        h = net.op("Tanh", net.op("Add", h, net.op("MatMul", state, w["uh"])))
        state = net.op("Add", state, net.op("Mul", z, net.op("Sub", h, state)))
    return s.lin(state, n, 8)


def detector(net, middle):
    """Scores and boxes of two sizes, joined."""
    s, n = Style(net, "2d"), 16
    x = net.op("Relu", s.lin("x", 3, n, k=3))
    x = middle(s, x, n)
    parts = []
    for _ in range(2):
        x = net.op("MaxPool", net.op("Relu", s.lin(x, n, n, k=3)), kernel_shape=[2, 2], strides=[2, 2])
        y = net.op("Relu", s.lin(x, n, n, k=3))
        both = net.op("Concat", net.op("Sigmoid", s.lin(y, n, 3)), net.op("Mul", net.op("Tanh", s.lin(y, n, 4)), s.vec(np.full(4, 2.0))),
                      axis=1)
        parts.append(net.op("Reshape", both, net.init(np.array([1, 7, -1], np.int64))))
    return net.op("Transpose", net.op("Concat", *parts, axis=2), perm=[0, 2, 1])


def hourglass(net, middle):
    s, n = Style(net, "2d"), 18
    x = net.op("Relu", s.lin("x", 2, n, k=3))
    x = middle(s, x, n)
    for _ in range(2):
        y = net.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
        y = net.op("Relu", s.lin(y, n, n, k=3))
        y = net.op("Resize", y, "", net.init(np.array([1, 1, 2, 2], np.float32)), mode="nearest")
        x = net.op("Sub", net.op("Add", s.lin(x, n, n), y), net.op("Mul", x, s.vec(0.3 * np.ones(n))))
    return s.lin(x, n, 4)


def waves(net, middle):
    """Sines and cosines of the inputs, and a network on them."""
    s = Style(net, "rows")
    v = net.op("MatMul", "x", net.init(net.rng.normal(size=(6, 24))))
    x = middle(s, net.op("Concat", net.op("Sin", v), net.op("Cos", v), axis=1), 48)
    for _ in range(3):
        x = net.op("Softplus", s.lin(x, 48, 48))
    return s.lin(x, 48, 4)


def crossed(net, middle):
    """Queries that are weights look at tokens."""
    s, n = Style(net, "tokens"), 36
    x = middle(s, s.lin("x", 22, n), n)
    for _ in range(2):
        q = net.op("Add", net.op("ReduceMean", x, axes=[1]), net.init(net.rng.normal(size=(1, 14, n))))
        a = attend(net, *(heads(net, s.lin(v, n, n), 14, 3, 12) for v in (q, x, x)), 14, n)
        x = net.op("Add", x, s.lin(net.op("Relu", s.lin(net.op("Add", x, a), n, 64)), 64, n))
    return s.lin(x, n, 9)


def points(net, middle):
    s, n = Style(net, "tokens"), 40
    x = middle(s, net.op("Relu", s.lin("x", 6, n)), n)
    x = net.op("Relu", s.lin(x, n, n))
    top = net.op("ReduceMax", x, axes=[1], keepdims=1)
    near = net.op("Expand", top, net.init(np.array([1, 50, n], np.int64)))
    x = net.op("Relu", s.lin(net.op("Concat", x, near, axis=2), 2 * n, n))
    return s.lin(net.op("ReduceMean", x, axes=[1], keepdims=0), n, 15)


SHAPES.update({wavenet: [1, 3, 80], convnext: [1, 3, 20, 20], unrolled: [5, 40], detector: [1, 3, 24, 24],
               hourglass: [1, 2, 24, 24], waves: [9, 6], crossed: [1, 14, 22], points: [1, 50, 6]})


# ---- troubles ----


def t_softplus(s, x, n, k):
    """The logarithm of one plus an exponential that is mostly tiny."""
    y = s.net.op("Exp", s.net.op("Mul", s.lin(x, n, n), s.net.init(np.float32(k))))
    y = s.net.op("Log", s.net.op("Add", y, s.net.init(np.float32(1e-3))))
    return s.net.op("Mul", y, s.net.init(np.float32(0.3)))


def t_unit_length(s, x, n, k):
    """Vectors brought to length one, after a channel that dwarfs the others was added; a gain takes it out again."""
    at = np.arange(n) == 7
    y = s.net.op("Add", s.lin(x, n, n), s.vec(np.where(at, float(k), 0)))
    length = s.net.op("Sqrt", s.net.op("ReduceSumSquare", y, axes=[s.axis]))
    return s.net.op("Mul", s.net.op("Div", y, length), s.vec(np.where(at, 0, float(k))))


def t_far_and_back(s, x, n, k):
    """A large constant is added before a product, and taken off after it."""
    w = s.net.rng.normal(size=(n, n)) / math.sqrt(n)
    dims = {"1d": 1, "2d": 2}.get(s.kind, 0)
    far = s.net.op("Add", x, s.net.init(np.float32(k)))
    if dims == 0:
        y = s.net.op("MatMul", far, s.net.init(w.T))
    else:
        y = s.net.op("Conv", far, s.net.init(w.reshape((n, n) + (1,) * dims)))
    return s.net.op("Sub", y, s.vec(k * w.sum(axis=1)))


def t_cube(s, x, n, k):
    """A high power, and the root of it."""
    y = s.net.op("Pow", s.net.op("Abs", s.lin(x, n, n)), s.net.init(np.float32(k)))
    return s.net.op("Pow", s.net.op("Add", y, s.net.init(np.float32(1e-9))), s.net.init(np.float32(1.0 / k)))


# ---- spoils ----


def all_ranges(by):
    """Ranges of all activations are too wide, as if they were of another model."""
    def spoil(model):
        scales = {n.input[1] for n in pairs(model)}
        for scale in scales:
            replace(model, scale, value_of(model, scale) * by)
        return [scale.replace("_scale", "") for scale in scales]
    return spoil


def backwards(at):
    """The output channels of a weight are in another order."""
    def spoil(model):
        names = [i.name for i in model.graph.initializer if i.data_type == TensorProto.INT8 and len(i.dims) >= 2]
        name = names[at % len(names)]
        v = value_of(model, name)
        replace(model, name, v[::-1] if v.ndim > 2 else v[:, ::-1])
        return [name.replace("_quantized", "").replace("_channels", "")]
    return spoil


def lost_biases(model):
    """Biases that became zero."""
    names = []
    for i in model.graph.initializer:
        if i.data_type == TensorProto.INT32 and len(i.dims) == 1 and i.dims[0] > 1:
            replace(model, i.name, np.zeros_like(numpy_helper.to_array(initializer(model, i.name))))
            names.append(i.name.replace("_quantized", ""))
    return names or None


# ---- samples ----


def counts(rng, shape):
    """Whole numbers, most of them small, some large."""
    return np.floor(rng.pareto(1.1, size=shape)).clip(0, 3000)


def count_front(net):
    return net.op("Mul", net.op("Log", net.op("Add", "x", net.init(np.float32(1)))), net.init(np.float32(0.7)))


AMP, HARD = ("amplified",), ("amplified", "arithmetic")

SEVENTH = {
    # the file of the quantized model is wrong
    "one operator in 4 bits (wavenet)": made(wavenet, 801, FAULT, spoils=swept(bits, (3, 5), 4, 3, 2)),
    "one operator in 3 bits (points)": made(points, 802, FAULT, spoils=swept(bits, (2, 1), 3, 2)),
    "one operator in 3 bits (qoperator, detector)": made(detector, 803, FAULT, [*PC, *QO], spoils=swept(bits, (1, 2), 3, 2)),
    "range of one tensor widened (hourglass)": made(hourglass, 804, FAULT, spoils=swept(act_range, (5, 9, 3), 6, 24, 90)),
    "range of one tensor widened (unrolled)": made(unrolled, 805, FAULT, spoils=swept(act_range, (7, 11), 6, 24, 90)),
    "all ranges too wide (convnext)": made(convnext, 806, FAULT, spoils=[all_ranges(v) for v in (4, 10, 25)]),
    "channels backwards (crossed)": made(crossed, 807, FAULT, spoils=[backwards(4), backwards(6)]),
    "channels backwards (detector)": made(detector, 808, FAULT, spoils=[backwards(2), backwards(1)]),
    "biases lost (hourglass)": made(hourglass, 809, FAULT, spoils=[lost_biases]),
    "weights clipped (waves)": made(waves, 810, FAULT, spoils=swept(clipped, (2, 3), 0.5, 0.3)),
    "weight scale (unrolled)": made(unrolled, 811, FAULT, spoils=swept(weight_scale, (1, 3), 1.6, 3)),
    "samples twenty times quieter (crossed)": made(crossed, 812, FAULT, other=lambda r, s: 0.05 * r.normal(size=s)),
    "whole numbers as samples (points)": made(points, 813, FAULT, other=lambda r, s: r.integers(0, 255, size=s) * 1.0),
    # the network is hard
    "per tensor (wavenet)": made(wavenet, 814, ("per_channel",), (), trouble=t_dead, strengths=(1.3, 2, 3)),
    "per tensor (qoperator, hourglass)": made(hourglass, 815, ("per_channel",), QO, trouble=t_dead, strengths=(1.3, 2, 3)),
    "per tensor (dynamic, points)": made(points, 816, ("per_channel",), (), trouble=t_dead, strengths=(1.3, 2, 3), command="dynamic"),
    "Log of an Exp (waves)": made(waves, 817, AMP, trouble=t_softplus, strengths=(2, 4, 6)),
    "Log (detector)": made(detector, 818, AMP, trouble=t_log, strengths=(4, 6)),
    "Reciprocal (hourglass)": made(hourglass, 819, AMP, trouble=t_reciprocal, strengths=(1, 2, 3)),
    "Exp (crossed)": made(crossed, 820, AMP, trouble=t_exp, strengths=(3, 5, 8, 14)),
    "unit length (points)": made(points, 821, ("amplified", "arithmetic", "channels"), trouble=t_unit_length, strengths=(30, 200, 1000)),
    "far and back (wavenet)": made(wavenet, 822, HARD, trouble=t_far_and_back, strengths=(20, 100, 400)),
    "power and root (convnext)": made(convnext, 823, AMP, trouble=t_cube, strengths=(3, 5)),
    "scaled channels (hourglass)": made(hourglass, 824, ("channels",), trouble=t_outliers, strengths=(30, 100, 400)),
    "scaled channels (points)": made(points, 825, ("channels",), trouble=t_outliers, strengths=(30, 100, 400)),
    "counts (unrolled)": made(unrolled, 826, ("input_range", "amplified"), draw=counts, before=count_front),
    "constants (crossed)": made(crossed, 827, ("not_prepared",), constants=True),
    "2 bits (nbits, points)": made(points, 828, ("few_bits",), ["--bits", "2", "--block_size", "64"], command="nbits"),
    # nothing is wrong
    "healthy (detector)": healthy(detector, 829),
    "healthy, equalised (hourglass)": healthy(hourglass, 830, [*PC, "--equalize"]),
    "healthy, smoothed (crossed)": healthy(crossed, 831, [*PC, "--smooth_quant"]),
    "healthy, bias corrected (convnext)": healthy(convnext, 832, [*PC, "--bias_correction"]),
    "healthy, qoperator (points)": healthy(points, 833, [*PC, *QO]),
    "healthy, made by auto (wavenet)": by_auto(wavenet, 834),
    "healthy (dynamic, unrolled)": healthy(unrolled, 835, PC, command="dynamic"),
    "healthy, unnamed (waves)": healthy(waves, 836, named=False),
}
