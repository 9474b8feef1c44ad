"""The eighth set of cases for bench_causes.py: real models that are spoiled in one known way, or healthy.

The models are the shared ones and those of the field (FIELD names the folder, as for causes_real.py). What is wrong and
the names that are right are fixed here, before debug has seen one of the cases; how strong it must be is decided by the
samples that judge. Where plain options already leave a poor model, only the operators are quantized that leave a good
one, so that one thing is wrong and not two.
"""
import glob
import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from causes_held import (FAULT, HARM, HEALTHY, NONE, PC, POOR, Unfit, act_range, bits, clipped, one_channel, spoil_until, static,
                         swept, weight_scale)
from causes_kit import Case, onq, pairs, replace, sqnr, value_of
from causes_real import PATTERNS, QO, field_model, shared_model
from causes_seventh import backwards

OPS = "--op_types_to_quantize"
MATMUL, NOOUT = [*PC, OPS, "MatMul"], [*PC, "--op_set", "noout"]


# ---- samples ----


def rewritten(folder, name, change):
    """A folder of the samples of another, of which each array of floats, or each of integers, was changed."""
    out = f"{folder}/{name}_changed"
    os.makedirs(out, exist_ok=True)
    for number, path in enumerate(sorted(glob.glob(f"{folder}/{name}/*"))):
        if os.path.isdir(path):
            tensors = [onnx.load_tensor(p) for p in sorted(glob.glob(f"{path}/input_*.pb"))]
            arrays = {t.name: numpy_helper.to_array(t) for t in tensors}
        else:
            arrays = dict(np.load(path))
        rng = np.random.default_rng(1)
        arrays = {k: np.asarray(change(rng, v), v.dtype) if v.size > 1 else v for k, v in arrays.items()}
        np.savez(f"{out}/{number:03}.npz", **arrays)
    return out


def scaled(by, plus=0.0):
    return lambda rng, v: v * by + plus


def noise(size):
    return lambda rng, v: size * rng.normal(size=v.shape)


def powers(rng, v):
    """What a model of logarithms was given before its logarithm."""
    return 10.0 ** v.astype(np.float64)


# ---- float models that are changed ----


def init(graph, name, value):
    graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
    return name


def values_of(graph):
    return {i.name: i for i in graph.initializer}


def readers(graph, name):
    return [n for n in graph.node if name in n.input]


def rename_output(graph, name, new):
    """The node that makes `name` makes `new`; what read it reads that."""
    for n in graph.node:
        n.output[:] = [new if o == name else o for o in n.output]
        n.input[:] = [new if i == name else i for i in n.input]


def at_end(build, output=0):
    """Nodes behind an output; `build` takes the graph and a tensor, returns the nodes up to the new output."""
    def edit(model):
        g = model.graph
        name = g.output[output].name
        rename_output(g, name, "end_before")
        g.node.extend(build(g, "end_before", name))
    return edit


def log_of(eps, by=1.0):
    def build(g, x, y):
        e, k = init(g, "end_eps", np.float32(eps)), init(g, "end_by", np.float32(by))
        return [helper.make_node("Add", [x, e], ["end_added"], name="end_add"),
                helper.make_node("Log", ["end_added"], ["end_logged"], name="end_log"),
                helper.make_node("Mul", ["end_logged", k], [y], name="end_mul")]
    return build


def log_softmax(g, x, y):
    """Log probabilities written out, as some exporters do."""
    return [helper.make_node("Softmax", [x], ["end_soft"], name="end_softmax", axis=-1), *log_of(1e-7)(g, "end_soft", y)]


def reciprocal(eps):
    def build(g, x, y):
        e = init(g, "end_eps", np.float32(eps))
        return [helper.make_node("Add", [x, e], ["end_added"], name="end_add"),
                helper.make_node("Reciprocal", ["end_added"], [y], name="end_reciprocal")]
    return build


def odds(g, x, y):
    """p / (1 - p)."""
    one = init(g, "end_one", np.float32(1 + 1e-4))
    return [helper.make_node("Sub", [one, x], ["end_rest"], name="end_sub"),
            helper.make_node("Div", [x, "end_rest"], [y], name="end_div")]


def log_in_front(model):
    """The model takes powers, and their logarithm itself."""
    g = model.graph
    name = g.input[0].name
    for n in g.node:
        n.input[:] = ["front_log10" if i == name else i for i in n.input]
    eps, k = init(g, "front_eps", np.float32(1e-9)), init(g, "front_by", np.float32(1 / np.log(10)))
    nodes = [helper.make_node("Add", [name, eps], ["front_added"], name="front_add"),
             helper.make_node("Log", ["front_added"], ["front_logged"], name="front_log"),
             helper.make_node("Mul", ["front_logged", k], ["front_log10"], name="front_mul"), *g.node]
    del g.node[:]
    g.node.extend(nodes)


def masked(value, at):
    """A causal mask for the attention that has the Softmax number `at`, of any length."""
    def edit(model):
        g = model.graph
        soft = [n for n in g.node if n.op_type == "Softmax"][at]
        x = soft.input[0]
        minus = helper.make_tensor("mask_value", TensorProto.FLOAT, [1], [value])
        low = [init(g, n, np.array([v], np.int64)) for n, v in (("mask_from", -2), ("mask_to", 2**31), ("mask_one", 1))]
        ones = helper.make_tensor("mask_ones", TensorProto.FLOAT, [1], [1.0])
        nodes = [helper.make_node("Shape", [x], ["mask_shape"], name="mask_shape_of"),
                 helper.make_node("Slice", ["mask_shape", *low[:2]], ["mask_dims"], name="mask_slice"),
                 helper.make_node("ConstantOfShape", ["mask_dims"], ["mask_full"], name="mask_fill", value=ones),
                 helper.make_node("CumSum", ["mask_full", init(g, "mask_a0", np.int64(0))], ["mask_rows"], name="mask_sum0"),
                 helper.make_node("CumSum", ["mask_full", init(g, "mask_a1", np.int64(1))], ["mask_cols"], name="mask_sum1"),
                 helper.make_node("Greater", ["mask_cols", "mask_rows"], ["mask_later"], name="mask_greater"),
                 helper.make_node("ConstantOfShape", ["mask_dims"], ["mask_minus"], name="mask_fill2", value=minus),
                 helper.make_node("Where", ["mask_later", "mask_minus", init(g, "mask_zero", np.float32(0))], ["mask_added"],
                                  name="mask_where"),
                 helper.make_node("Add", [x, "mask_added"], ["mask_scores"], name="mask_add")]
        soft.input[0] = "mask_scores"
        where = list(g.node).index(soft)
        rest = list(g.node)
        del g.node[:]
        g.node.extend(rest[:where] + nodes + rest[where:])
    return edit


def homogeneous(graph, name):
    """The tensor that products read behind a Relu or a pool, and its readers."""
    for _ in range(3):
        users = readers(graph, name)
        if len(users) != 1 or users[0].op_type not in ("Relu", "LeakyRelu", "MaxPool", "AveragePool"):
            break
        name = users[0].output[0]
    return name, readers(graph, name)


def channels(at, by, share=12):
    """Every `share`-th channel of a Conv or MatMul is `by` times as large, and read by weights as much smaller: the
    function stays. `at`: the number of the pair of products that can be changed so."""
    def edit(model):
        g, found = model.graph, 0
        inits = values_of(g)
        outputs = {o.name for o in g.output}
        for n in list(g.node):
            if n.op_type != "Conv" or n.input[1] not in inits:
                continue
            name, users = homogeneous(g, n.output[0])
            w = numpy_helper.to_array(inits[n.input[1]])
            fits = all(u.op_type == "Conv" and u.input[0] == name and u.input[1] in inits
                       and inits[u.input[1]].dims[1] == w.shape[0] for u in users)
            shared = any(len(readers(g, i)) > 1 for v in (n, *users) for i in v.input[1:])
            if not users or not fits or shared or {n.output[0], name} & outputs:
                continue
            if found < at:
                found += 1
                continue
            k = np.where(np.arange(w.shape[0]) % share == share // 2, np.float32(by), np.float32(1))
            for i in n.input[1:]:
                v = numpy_helper.to_array(inits[i])
                inits[i].CopyFrom(numpy_helper.from_array(v * k.reshape((-1,) + (1,) * (v.ndim - 1)), i))
            for u in users:
                v = numpy_helper.to_array(inits[u.input[1]])
                inits[u.input[1]].CopyFrom(numpy_helper.from_array(v / k.reshape(1, -1, *(1,) * (v.ndim - 2)), u.input[1]))
            return
        raise Unfit("no pair of products")
    return edit


def norm_channels(at, by, share=48):
    """The same of the gains of a normalisation and the MatMul nodes that alone read it."""
    def edit(model):
        g, found = model.graph, 0
        inits = values_of(g)
        for n in g.node:
            gains = [i for i in n.input if i in inits and len(inits[i].dims) == 1 and inits[i].dims[0] > 64]
            products = readers(g, n.output[0])
            if n.op_type != "Mul" or not gains or not products:
                continue
            if any(p.op_type != "MatMul" or p.input[1] not in inits for p in products):
                continue
            if found < at:
                found += 1
                continue
            size = inits[gains[0]].dims[0]
            k = np.where(np.arange(size) % share == share // 2, np.float32(by), np.float32(1))
            inits[gains[0]].CopyFrom(numpy_helper.from_array(numpy_helper.to_array(inits[gains[0]]) * k, gains[0]))
            for p in products:
                v = numpy_helper.to_array(inits[p.input[1]])
                inits[p.input[1]].CopyFrom(numpy_helper.from_array(v / k[:, None], p.input[1]))
            return
        raise Unfit("no normalisation that only products read")
    return edit


def to_constants(model):
    """Weights in Constant nodes."""
    g = model.graph
    moved = [i for i in g.initializer if i.data_type == TensorProto.FLOAT and len(i.dims) >= 1]
    nodes = [helper.make_node("Constant", [], [i.name], name=f"constant_{k}", value=i) for k, i in enumerate(moved)]
    rest, kept = list(g.node), [i for i in g.initializer if i not in moved]
    del g.node[:], g.initializer[:]
    g.node.extend(nodes + rest)
    g.initializer.extend(kept)


# ---- quantized models that are spoiled ----


def zero_point(at, by):
    """The zero point of one activation is another."""
    def spoil(model):
        nodes = pairs(model)
        name = nodes[at % len(nodes)].input[2]
        v = value_of(model, name).astype(np.int32)
        low, high = (0, 255) if value_of(model, name).dtype == np.uint8 else (-128, 127)
        moved = v + by if v + by <= high else v - by
        replace(model, name, np.clip(moved, low, high))
        return [name.replace("_zero_point", "")]
    return spoil


def biases(share, by):
    """A share of the integers of all biases are another multiple of themselves."""
    def spoil(model):
        names = []
        for i in model.graph.initializer:
            v = numpy_helper.to_array(i)
            if v.dtype == np.int32 and v.ndim == 1 and v.size > 1 and v.any():
                v = v.copy()
                v[:: max(1, round(1 / share))] *= by
                replace(model, i.name, v)
                names.append(i.name.replace("_quantized", ""))
        return names or None
    return spoil


# ---- cases ----


def case(find, right, options=PC, edit=None, spoils=None, other=None, data_too=None, prepared=True, command="static"):
    """`edit`: changes the float model; `spoils`: change the quantized one, tried in turn; `other`: changes the samples
    that calibrate; `data_too`: changes all samples, for a model that takes others."""
    def run(folder):
        path, data, hold = find(folder)
        base = f"{folder}/float.onnx"
        onq("preprocess", "-i", path, "-o", base, "-q") if prepared else onnx.save(onnx.load(path), base)
        if edit is not None:
            model = onnx.load(base)
            edit(model)
            if prepared:
                del model.graph.value_info[:]
                model = onnx.shape_inference.infer_shapes(model)
            onnx.save(model, base)
        if data_too is not None:
            data, hold = (rewritten(folder, name, data_too) for name in ("data", "hold"))
        q, names, plain = f"{folder}/q.onnx", [], POOR + HARM
        if other is not None:
            plain = sqnr(base, [static(folder, base, data, options)], hold)[0]
        if command == "static":
            static(folder, base, rewritten(folder, "data", other) if other is not None else data, options)
        else:
            onq(command, "-i", base, "-o", q, "-q", "--no_verify", *options)
        now = sqnr(base, [q], hold)[0]
        if spoils:
            names = spoil_until(q, base, hold, spoils, now)
            if names is None:
                raise Unfit(f"no strength does harm to {now:.1f} dB")
        elif right == NONE and now < HEALTHY or right not in (NONE, ("not_prepared",)) and now > min(POOR, plain - HARM):
            raise Unfit(f"it has {now:.1f} dB")
        return Case(base, q, data, hold, options, right, names, [], command)

    return run


def by_auto(find, target):
    def run(folder):
        path, data, hold = find(folder)
        q = f"{folder}/q.onnx"
        onq("auto", "-i", path, "-o", q, "--data", data, "-q", "--target", f"sqnr={target}", "--prefer", "size", "--best_effort",
            "--time_limit", "60")
        now = sqnr(path, [q], hold)[0]
        if now < HEALTHY:
            raise Unfit(f"it has {now:.1f} dB")
        return Case(path, q, data, hold, [], NONE, [], [], "static")

    return run


def of(name):
    return field_model(name, PATTERNS[name]) if name in PATTERNS else shared_model(name)


AMP = ("amplified", "arithmetic")
PRE = ("input_range", "amplified")

EIGHTH = {
    # the file of the quantized model is wrong
    "one Conv in few bits (efficientnet)": case(of("efficientnet_lite0"), FAULT, spoils=swept(bits, (12, 3, 30), 4, 3, 2)),
    "one MatMul in few bits (bge)": case(of("bge"), FAULT, NOOUT, spoils=swept(bits, range(3, 70, 8), 3, 2)),
    "one Conv in few bits (qoperator, cls)": case(of("ppocr_cls"), FAULT, [*PC, *QO], spoils=swept(bits, range(1, 40, 4), 4, 3, 2)),
    "a weight in few bits (dynamic, nsnet2)": case(of("nsnet2"), FAULT, PC, spoils=swept(bits, (1, 0), 4, 3, 2), command="dynamic"),
    "range twenty times too wide (rec)": case(of("rec"), FAULT, spoils=swept(act_range, range(4, 150, 12), 20)),
    "range twenty times too wide (oww)": case(of("oww"), FAULT, spoils=swept(act_range, (7, 3, 15), 20)),
    "range twenty times too wide (qoperator, cls)": case(of("ppocr_cls"), FAULT, [*PC, *QO], spoils=swept(act_range, (11, 30, 4), 20)),
    "range halved (cls)": case(of("ppocr_cls"), FAULT, spoils=swept(act_range, range(1, 90, 8), 0.5, 0.25)),
    "range halved (oww)": case(of("oww"), FAULT, spoils=swept(act_range, (9, 1), 0.5, 0.25)),
    "range halved (digits_cnn)": case(of("digits_cnn"), FAULT, spoils=swept(act_range, (0, 2, 1), 0.5, 0.25)),
    "zero point (nsnet2)": case(of("nsnet2"), FAULT, spoils=swept(zero_point, (5, 2), 20, 60)),
    "zero point (oww)": case(of("oww"), FAULT, spoils=swept(zero_point, (8, 2), 20, 60)),
    "zero point (cls)": case(of("ppocr_cls"), FAULT, spoils=swept(zero_point, range(1, 90, 8), 20, 60, 120)),
    "scale of a weight (bge)": case(of("bge"), FAULT, NOOUT, spoils=swept(weight_scale, (14, 30), 1.5, 3)),
    "scale of a weight (tiny_llama)": case(of("tiny_llama"), FAULT, MATMUL, spoils=swept(weight_scale, (4, 11), 1.5, 3)),
    "scale of one channel (efficientnet)": case(of("efficientnet_lite0"), FAULT, spoils=swept(one_channel, range(2, 40, 4), 4, 12, 40)),
    "biases (centerface)": case(of("centerface"), FAULT, spoils=[biases(s, b) for s in (0.1, 0.5) for b in (0, -3)]),
    "biases (rec)": case(of("rec"), FAULT, spoils=[biases(s, b) for s in (0.1, 0.5) for b in (0, -3)]),
    "channels backwards (nsnet2)": case(of("nsnet2"), FAULT, spoils=[backwards(1), backwards(0)]),
    "weight clipped (pitch)": case(of("pitch"), FAULT, spoils=swept(clipped, range(8), 0.5, 0.25)),
    "dark pictures (efficientnet)": case(of("efficientnet_lite0"), FAULT, other=scaled(0.15, -0.8)),
    "pictures not normalised (det)": case(of("ppocrv4_det"), FAULT, other=scaled(127.5, 127.5)),
    "pictures divided by 255 (centerface)": case(of("centerface"), FAULT, other=scaled(1 / 255)),
    "noise (rec)": case(of("rec"), FAULT, other=noise(0.1)),
    "silence (nsnet2)": case(of("nsnet2"), FAULT, other=lambda rng, v: -7.5 + 0.2 * rng.normal(size=v.shape)),
    "quiet sound (pitch)": case(of("pitch"), FAULT, other=scaled(0.01)),
    "noise (oww)": case(of("oww"), FAULT, other=noise(0.3)),
    "one token again and again (minilm)": case(of("minilm"), FAULT, NOOUT,
                                               other=lambda rng, v: np.full(v.shape, v.flat[0])),
    # the network is hard
    "per tensor (efficientnet)": case(of("efficientnet_lite0"), ("per_channel",), []),
    "per tensor (rec)": case(of("rec"), ("per_channel",), []),
    "per tensor (centerface)": case(of("centerface"), ("per_channel",), []),
    "channels (rec)": case(of("rec"), ("channels",), edit=channels(1, 100)),
    "channels (digits_cnn)": case(of("digits_cnn"), ("channels",), edit=channels(0, 100)),
    "channels (tiny_llama)": case(of("tiny_llama"), ("channels",), MATMUL, edit=norm_channels(2, 100)),
    "channels (centerface)": case(of("centerface"), ("channels",), edit=channels(3, 100)),
    "mask (rec)": case(of("rec"), ("mask",), edit=masked(-1e4, 0)),
    "mask (bge)": case(of("bge"), ("mask",), edit=masked(-1e4, 4)),
    "log of probabilities (magika)": case(of("magika"), AMP, edit=at_end(log_of(1e-9))),
    "log probabilities (efficientnet)": case(of("efficientnet_lite0"), AMP, edit=at_end(log_softmax)),
    "log of gains (nsnet2)": case(of("nsnet2"), AMP, edit=at_end(log_of(1e-5, 8.7))),
    "log of a map (pitch)": case(of("pitch"), AMP, edit=at_end(log_of(1e-5))),
    "odds (cls)": case(of("ppocr_cls"), AMP, edit=at_end(odds)),
    "reciprocal (magika)": case(of("magika"), AMP, edit=at_end(reciprocal(1e-3))),
    "powers as input (nsnet2)": case(of("nsnet2"), PRE, edit=log_in_front, data_too=powers),
    "powers as input (oww)": case(of("oww"), PRE, edit=log_in_front, data_too=powers),
    "constants (oww)": case(of("oww"), ("not_prepared",), edit=to_constants, prepared=False),
    "constants (nsnet2)": case(of("nsnet2"), ("not_prepared",), edit=to_constants, prepared=False),
    "not preprocessed (rec)": case(of("rec"), ("not_prepared", "per_channel"), [], prepared=False),
    "2 bits (nbits, bge)": case(of("bge"), ("few_bits",), ["--bits", "2", "--block_size", "64"], command="nbits"),
    "2 bits (nbits, tiny_llama)": case(of("tiny_llama"), ("few_bits",), ["--bits", "2", "--block_size", "64"], command="nbits"),
    # nothing is wrong
    "healthy (cls)": case(of("ppocr_cls"), NONE),
    "healthy, equalised (digits_cnn)": case(of("digits_cnn"), NONE, [*PC, "--equalize"]),
    "healthy, equalised (cls)": case(of("ppocr_cls"), NONE, [*PC, "--equalize"]),
    "healthy, smoothed (nsnet2)": case(of("nsnet2"), NONE, [*PC, "--smooth_quant"]),
    "healthy, bias corrected (oww)": case(of("oww"), NONE, [*PC, "--bias_correction"]),
    "healthy, qoperator (nsnet2)": case(of("nsnet2"), NONE, [*PC, *QO]),
    "healthy (lstm_tagger)": case(of("lstm_tagger"), NONE),
    "healthy, subgraphs (silero)": case(of("silero_vad"), NONE, [*PC, "--enable_subgraph"]),
    "healthy, 8 bits (nbits, bge)": case(of("bge"), NONE, ["--bits", "8"], command="nbits"),
    "healthy, by auto (minilm)": by_auto(of("minilm"), 26),
    "healthy, by auto (det)": by_auto(of("ppocrv4_det"), 26),
    "healthy, by auto (pitch)": by_auto(of("pitch"), 26),
    "healthy, by auto (nsnet2)": by_auto(of("nsnet2"), 26),
}
