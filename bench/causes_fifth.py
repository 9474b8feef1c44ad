"""The fifth set of cases for bench_causes.py: families, operators and troubles that the others have not.

Chains of Gemm, ConvTranspose, InstanceNormalization, GroupNormalization from its parts, attention whose mask comes
from Where and the ids, tables that Gather reads, an LSTM and a GRU beside products, bodies of Loop and If. It was
written before debug had seen one of its models.
"""
import math

import numpy as np
import onnx
from onnx import TensorProto, helper

from causes_held import (FAULT, NONE, PC, SHAPES, Style, act_range, bits, build, gemm, made, normal, save_samples,
                         sites, swept, t_dead, weight_scale)
from causes_kit import Case, Net, onq, pairs, replace, value_of

QO = ["--quant_format", "qoperator"]
SUB = [*PC, "--enable_subgraph"]


# ---- families ----


def chain(net, middle):
    """Gemm after Gemm, with transposed weights, PRelu and Softplus."""
    s, x, widths = Style(net, "rows"), "x", [56, 80, 72, 64, 48, 40]

    def layer(v, n_in, n_out):
        w, b = net.rng.normal(size=(n_out, n_in)) / math.sqrt(n_in), 0.1 * net.rng.normal(size=n_out)
        if net.uneven > 0:
            w[1], b[1] = 0, 0
            if v != "x":
                w[2, 1] *= 10.0**net.uneven
        return net.op("Gemm", v, net.init(w), net.init(b), transB=1)

    x = net.op("PRelu", layer(x, 56, 80), net.init(np.full(80, 0.2)))
    x = middle(s, x, 80)
    for i in range(1, 5):
        x = net.op("PRelu", layer(x, widths[i], widths[i + 1]), net.init(np.full(widths[i + 1], 0.2)))
    return layer(x, 40, 6)


def generator(net, middle):
    """A picture from a vector: Gemm, Reshape, ConvTranspose."""
    s = Style(net, "2d")
    x = net.op("Relu", gemm(net, "x", 24, 16 * 16))
    x = net.op("Reshape", x, net.init(np.array([-1, 16, 4, 4], np.int64)))
    x = middle(s, x, 16)
    for n_in, n_out in ((16, 16), (16, 12), (12, 8)):
        w = net.rng.normal(size=(n_in, n_out, 4, 4)) / math.sqrt(4 * n_in)
        b = net.init(0.1 * net.rng.normal(size=n_out))
        x = net.op("LeakyRelu", net.op("ConvTranspose", x, net.init(w), b, strides=[2, 2], pads=[1] * 4), alpha=0.2)
    return net.op("Tanh", s.lin(x, 8, 3, k=3))


def group_norm(net, x, n, groups):
    y = net.op("Reshape", x, net.init(np.array([0, groups, -1], np.int64)))
    y = net.op("InstanceNormalization", y, net.init(np.ones(groups)), net.init(np.zeros(groups)))
    y = net.op("Reshape", y, net.op("Shape", x))
    gamma = (1 + 0.2 * net.rng.normal(size=n)).reshape(n, 1, 1)
    return net.op("Add", net.op("Mul", y, net.init(gamma)), net.init(0.1 * net.rng.normal(size=(n, 1, 1))))


def diffusion(net, middle):
    """Blocks of a denoiser: GroupNormalization from its parts, SiLU, Conv, residuals, Resize."""
    s = Style(net, "2d")
    x = middle(s, s.lin("x", 3, 16, k=3), 16)
    for _ in range(2):
        y = group_norm(net, x, 16, 4)
        y = s.lin(net.op("Mul", y, net.op("Sigmoid", y)), 16, 16, k=3)
        x = net.op("Add", x, y)
    x = net.op("Resize", x, "", net.init(np.array([1, 1, 2, 2], np.float32)), mode="nearest")
    return s.lin(net.op("Relu", s.lin(x, 16, 16, k=3)), 16, 3, k=3)


def style_net(net, middle):
    """InstanceNormalization after every Conv, Pad by reflection."""
    s = Style(net, "2d")
    x = "x"
    for n_in, n_out in ((3, 16), (16, 24)):
        x = net.op("Pad", x, net.init(np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)), mode="reflect")
        w = net.rng.normal(size=(n_out, n_in, 3, 3)) / math.sqrt(9 * n_in)
        x = net.op("Conv", x, net.init(w), net.init(0.1 * net.rng.normal(size=n_out)))
        gamma, beta = 1 + 0.2 * net.rng.normal(size=n_out), 0.1 * net.rng.normal(size=n_out)
        x = net.op("Relu", net.op("InstanceNormalization", x, net.init(gamma), net.init(beta)))
    x = middle(s, x, 24)
    x = net.op("Relu", s.lin(x, 24, 24, k=3))
    return s.lin(net.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2]), 24, 5)


def embed(net, n_ids, n):
    table = net.rng.normal(size=(n_ids, n))
    if net.uneven > 0:  # rows that are rare and huge
        table[5::17] *= 10.0**net.uneven
    return net.op("Gather", net.init(table), "x")


def classifier(net, middle):
    """Ids through a table, attention with a mask of padded places from Where, a mean, Gemm."""
    net.kind = TensorProto.INT64
    s, n = Style(net, "tokens"), 40
    x = middle(s, net.op("LayerNormalization", embed(net, 120, n), net.init(np.ones(n)), net.init(np.zeros(n))), n)
    for _ in range(2):
        q, k, v = (s.lin(x, n, n) for _ in range(3))
        score = net.op("Mul", net.op("MatMul", q, net.op("Transpose", k, perm=[0, 2, 1])), net.init(np.float32(n**-0.5)))
        if net.mask:
            pad = net.op("Unsqueeze", net.op("Equal", "x", net.init(np.array(0, np.int64))),
                         net.init(np.array([1], np.int64)))
            score = net.op("Where", pad, net.init(np.float32(-net.mask)), score)
        y = s.lin(net.op("MatMul", net.op("Softmax", score, axis=-1), v), n, n)
        x = net.op("LayerNormalization", net.op("Add", x, y), net.init(np.ones(n)), net.init(np.zeros(n)))
    return gemm(net, net.op("ReduceMean", x, axes=[1], keepdims=0), n, 8)


def recurrent(kind, gates):
    def family(net, middle):
        """A recurrence between products; its own weights stay float."""
        s, n = Style(net, "tokens"), 32
        x = middle(s, net.op("Relu", s.lin("x", 20, n)), n)
        x = net.op("Transpose", x, perm=[1, 0, 2])
        w, r = (net.rng.normal(size=(1, gates * n, n)) / math.sqrt(n) for _ in range(2))
        net.nodes.append(helper.make_node(kind, [x, net.init(w), net.init(r)], ["steps"], name=kind.lower(), hidden_size=n))
        x = net.op("Transpose", net.op("Squeeze", "steps", net.init(np.array([1], np.int64))), perm=[1, 0, 2])
        return s.lin(net.op("Relu", s.lin(x, n, 64)), 64, 10)

    family.__name__ = kind.lower()
    return family


lstm, gru = recurrent("LSTM", 4), recurrent("GRU", 3)


def body_net(net, prefix):
    """A graph inside another: its nodes and weights are its own."""
    inner = Net(None, 0)
    inner.rng, inner.uneven, inner.n = net.rng, net.uneven, 0
    inner.op_plain, inner.init_plain = inner.op, inner.init

    def rename(make):
        def run(*v, **k):
            name = make(*v, **k)
            new = f"{prefix}_{name}"
            for t in inner.inits[-1:]:
                if t.name == name:
                    t.name = new
            for node in inner.nodes[-1:]:
                for i, o in enumerate(node.output):
                    if o == name:
                        node.output[i] = new
                        node.name = f"{prefix}_{node.name}"
            return new
        return run

    inner.op, inner.init = rename(inner.op_plain), rename(inner.init_plain)
    return inner


def looped(net, middle):
    """A Loop refines a state four times; the trouble is in its body."""
    s = Style(net, "rows")
    x = net.op("Relu", s.lin("x", 32, 48))
    inner = body_net(net, "body")
    si = Style(inner, "rows")
    first = len(inner.nodes)
    y = middle(si, si.lin("body_state", 48, 48), 48)
    y = inner.op("Relu", si.lin(y, 48, 48))
    y = inner.op("Mul", inner.op("Add", y, "body_state"), inner.init(np.float32(0.6)))
    net.inside = [n.name for n in inner.nodes[first:]]
    again = inner.op("Identity", "body_more")
    f, b, i = TensorProto.FLOAT, TensorProto.BOOL, TensorProto.INT64
    info = helper.make_tensor_value_info
    body = helper.make_graph(inner.nodes, "body", [info("body_i", i, []), info("body_more", b, []), info("body_state", f, [6, 48])],
                             [info(again, b, []), info(y, f, [6, 48])], inner.inits)
    x = net.op("Loop", net.init(np.array(4, np.int64)), net.init(np.array(True)), x, body=body)
    return s.lin(x, 48, 9)


def branched(net, middle):
    """An If whose branch depends on the sample; the trouble is in the branch that is taken more often."""
    s = Style(net, "rows")
    x = net.op("Relu", s.lin("x", 32, 48))
    total = net.op("ReduceMean", "x", keepdims=0)
    graphs = []
    for part in ("yes", "no"):
        inner = body_net(net, part)
        si = Style(inner, "rows")
        y = si.lin(x, 48, 48)
        y = middle(si, y, 48) if part == "yes" else y
        y = inner.op("Relu", si.lin(y, 48, 48))
        graphs.append(helper.make_graph(inner.nodes, part, [], [helper.make_tensor_value_info(y, TensorProto.FLOAT, [6, 48])],
                                        inner.inits))
    x = net.op("If", net.op("Less", total, net.init(np.float32(0.3))), then_branch=graphs[0], else_branch=graphs[1])
    return s.lin(x, 48, 9)


def ids(rng, shape):
    v = rng.integers(1, 120, size=shape)
    v[..., rng.integers(5, shape[-1] + 1):] = 0
    return v.astype(np.int64)


SHAPES.update({chain: [8, 56], generator: [2, 24], diffusion: [1, 3, 16, 16], style_net: [1, 3, 20, 20],
               classifier: [2, 14], lstm: [2, 10, 20], gru: [2, 10, 20], looped: [6, 32], branched: [6, 32]})
Net.mask = 0


def with_mask(value):
    def family(net, middle):
        net.mask = value
        return classifier(net, middle)

    SHAPES[family] = SHAPES[classifier]
    return family


# ---- troubles ----


def t_pow(s, x, n, k):
    """One by the root of a square that is often near zero."""
    y = s.lin(x, n, n)
    y = s.net.op("Add", s.net.op("Mul", y, y), s.net.init(np.float32(10.0**-k)))
    y = s.net.op("Pow", y, s.net.init(np.float32(-0.5)))
    return s.net.op("Tanh", s.net.op("Mul", y, s.net.init(np.float32(3 * 10.0 ** (-k / 2)))))


def t_variance(s, x, n, k):
    """The mean of squares minus the square of the mean, far from zero."""
    y = s.net.op("Add", s.lin(x, n, n), s.net.init(np.float32(k)))
    mean = s.net.op("ReduceMean", y, axes=[s.axis])
    squares = s.net.op("ReduceMean", s.net.op("Mul", y, y), axes=[s.axis])
    var = s.net.op("Relu", s.net.op("Sub", squares, s.net.op("Mul", mean, mean)))
    small = s.net.op("Sqrt", s.net.op("Add", var, s.net.init(np.float32(1e-3))))
    return s.net.op("Div", s.net.op("Sub", y, mean), small)


def t_flat_instance(s, x, n, k):
    """InstanceNormalization of channels that vary little about a large mean."""
    y = s.net.op("Add", s.net.op("Tanh", s.lin(x, n, n)), s.vec(np.full(n, float(k))))
    return s.net.op("InstanceNormalization", y, s.net.init(np.ones(n)), s.net.init(np.zeros(n)))


def t_gate(s, x, n, k):
    """A few channels are huge before a Tanh that saturates them."""
    scale = np.where(np.arange(n) % 13 == 4, float(k), 1.0)
    return s.net.op("Tanh", s.net.op("Mul", s.lin(x, n, n), s.vec(scale)))


# ---- spoils ----


def zero_point(at, by):
    def spoil(model):
        q = pairs(model)[at]
        z = value_of(model, q.input[2])
        info = np.iinfo(z.dtype)
        replace(model, q.input[2], np.clip(int(z) + by, info.min, info.max))
        return [q.input[0], q.input[2].replace("_zero_point", "")]
    return spoil


def rolled(at, by):
    """The channels of a weight are in a wrong order."""
    def spoil(model):
        q, _, names = sites(model)[at]
        replace(model, q, np.roll(value_of(model, q), by, axis=-1))
        return names
    return spoil


def all_of(kind, n):
    """Every weight of one operator in n bits."""
    def spoil(model):
        names = []
        for at, (q, _, name) in enumerate(sites(model)):
            dq = next((v for v in model.graph.node if v.op_type == "DequantizeLinear" and v.input[0] == q), None)
            if dq is None or any(v.op_type == kind for v in model.graph.node if dq.output[0] in v.input):
                bits(at, n)(model)
                names += name
        return names or None
    return spoil


def graphs_of(model):
    todo = [model.graph]
    while todo:
        g = todo.pop()
        yield g
        todo += [a.g for n in g.node for a in n.attribute if a.type == onnx.AttributeProto.GRAPH]


def inner_scale(by):
    """The scale of a weight in a body."""
    def spoil(model):
        for g in list(graphs_of(model))[1:]:
            values = {i.name: i for h in graphs_of(model) for i in h.initializer}
            for n in g.node:
                if n.op_type == "DequantizeLinear" and n.input[0] in values and len(values[n.input[0]].dims) >= 2:
                    t = values[n.input[1]]
                    t.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(t) * np.float32(by), t.name))
                    return [n.input[0].replace("_quantized", "")]
        return None
    return spoil


# ---- models that auto made, and one in which an override takes bits away ----


def by_auto(family, seed):
    def run(folder):
        given, block = build(folder, family, seed)
        data = save_samples(folder, "samples", SHAPES[family], normal, 8, seed + 1)
        hold = save_samples(folder, "hold", SHAPES[family], normal, 16, seed + 2)
        onq("auto", "-i", given, "-o", f"{folder}/q.onnx", "--data", data, "-q", "--target", "sqnr=25", "--prefer", "size")
        return Case(given, f"{folder}/q.onnx", data, hold, [], NONE, [], block, "static")

    return run


def unnamed_constants(family, seed):
    return made(family, seed, ("not_prepared",), constants=True, named=False)


FIFTH = {
    # the file of the quantized model is wrong
    "zero point (chain)": made(chain, 601, FAULT, spoils=swept(zero_point, (2, 4), 30, 60, 100)),
    "zero point (generator)": made(generator, 602, FAULT, spoils=swept(zero_point, (3, 5), 20, 50)),
    "weight rolled (chain)": made(chain, 603, FAULT, spoils=swept(rolled, (2, 3), 1)),
    "weight rolled (style)": made(style_net, 604, FAULT, spoils=swept(rolled, (1, 2), 1)),
    "ConvTranspose in few bits (generator)": made(generator, 605, FAULT, spoils=[all_of("ConvTranspose", n) for n in (4, 3, 2)]),
    "Gemm in few bits (chain)": made(chain, 606, FAULT, spoils=[all_of("Gemm", n) for n in (4, 3, 2)]),
    "range narrowed (diffusion)": made(diffusion, 607, FAULT, spoils=swept(act_range, (5, 9, 3), 0.5, 0.2)),
    "range widened (lstm)": made(lstm, 608, FAULT, spoils=swept(act_range, (1, 2, 4), 10, 60)),
    "weight scale (classifier)": made(classifier, 609, FAULT, spoils=swept(weight_scale, (1, 4), 2, 4), draw=ids),
    "weight scale (qoperator, chain)": made(chain, 610, FAULT, [*PC, *QO], spoils=swept(weight_scale, (2, 1), 2, 4)),
    "weight scale (in a Loop)": made(looped, 611, FAULT, SUB, spoils=[inner_scale(2), inner_scale(4)]),
    "positive samples (chain)": made(chain, 612, FAULT, other=lambda r, s: 0.2 * np.abs(r.normal(size=s))),
    "one id as samples (classifier)": made(classifier, 613, FAULT, other=lambda r, s: np.full(s, 7, np.int64), draw=ids),
    # the network is hard
    "per tensor (qoperator, chain)": made(chain, 614, ("per_channel",), QO, trouble=t_dead, strengths=(1.3, 2, 3)),
    "per tensor (lstm)": made(lstm, 615, ("per_channel",), (), trouble=t_dead, strengths=(1.3, 2, 3)),
    "per tensor (dynamic, chain)": made(chain, 616, ("per_channel",), (), trouble=t_dead, strengths=(1.3, 2, 3),
                                        command="dynamic"),
    "table with huge rows (classifier)": made(classifier, 617, ("arithmetic", "stretched_ranges", "channels", "amplified"),
                                              trouble=t_dead, strengths=(1, 1.5, 2), draw=ids),
    "mask by Where (classifier)": made(with_mask(1e4), 618, ("mask",), draw=ids),
    "lowest float as mask (classifier)": made(with_mask(3.4028234e38), 619, ("mask",), draw=ids),
    "Pow (chain)": made(chain, 620, ("amplified",), trouble=t_pow, strengths=(2, 3, 4)),
    "Pow (gru)": made(gru, 621, ("amplified",), trouble=t_pow, strengths=(2, 3, 4)),
    "variance far from zero (chain)": made(chain, 622, ("amplified", "arithmetic"), trouble=t_variance, strengths=(10, 30)),
    "InstanceNormalization (diffusion)": made(diffusion, 623, ("amplified",), trouble=t_flat_instance, strengths=(20, 60, 120, 200)),
    "huge before Tanh (lstm)": made(lstm, 624, ("channels", "stretched_ranges", "amplified"), trouble=t_gate,
                                    strengths=(50, 200, 800)),
    "Pow (in a Loop)": made(looped, 625, ("amplified",), SUB, trouble=t_pow, strengths=(2, 3, 4)),
    "2 bits (nbits, classifier)": made(classifier, 627, ("few_bits",), ["--bits", "2", "--block_size", "32"],
                                       command="nbits", draw=ids),
    "constants without names (chain)": unnamed_constants(chain, 628),
    "constants without names (style)": unnamed_constants(style_net, 629),
    # nothing is wrong
    "healthy (generator)": made(generator, 630, NONE),
    "healthy (chain)": made(chain, 641, NONE),
    "healthy (lstm)": made(lstm, 632, NONE),
    "healthy, in an If": made(branched, 633, NONE, SUB),
    "healthy, in a Loop": made(looped, 634, NONE, SUB),
    "healthy, unnamed (diffusion)": made(diffusion, 635, NONE, named=False),
    "healthy, 16 bits (gru)": made(gru, 636, NONE, [*PC, "--activation_type", "quint16"]),
    "healthy, learned rounding (chain)": made(chain, 637, NONE, [*PC, "--learned_rounding"]),
    "healthy (dynamic, lstm)": made(lstm, 638, NONE, PC, command="dynamic"),
    "healthy, made by auto (chain)": by_auto(chain, 639),
    "healthy, made by auto (generator)": by_auto(generator, 640),
}
