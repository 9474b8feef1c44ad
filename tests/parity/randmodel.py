"""randmodel.py - random float models and random options, from a seed.

model(seed) gives a model of 3 to 15 nodes that ONNX Runtime runs, and samples for it. Drawn are operators, shapes, opset,
IR version, names, how constants are stored (initializer, Constant node, graph input too, after an Identity), and what is
an output of the graph. static(seed, model), dynamic(seed, model) and preprocess(seed) give options for the two tools.
"""
import random

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

MS = "com.microsoft"
NP = {TensorProto.FLOAT: np.float32, TensorProto.FLOAT16: np.float16, TensorProto.DOUBLE: np.float64,
      TensorProto.INT64: np.int64, TensorProto.INT32: np.int32, TensorProto.BOOL: np.bool_}


class Net:
    """A model that grows by one random node at a time; `pool` holds the tensors that can be read."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.rng = np.random.default_rng(seed)
        r = self.r
        self.opset = r.choice([9, 10, 11, 11, 12, 13, 13, 14, 15, 16, 17, 17, 18, 19, 20, 21, 21, 22, 23, 24])
        self.dtype = TensorProto.FLOAT if r.random() < 0.95 else TensorProto.FLOAT16
        self.nodes, self.inits, self.inputs, self.fixed = [], [], [], []
        self.pool, self.weights, self.ms = [], {}, False
        self.style = r.choice(["plain", "plain", "path", "unnamed", "same", "odd"])
        self.const_nodes, self.reuse = r.choice([0, 0, 0.2]), r.choice([0, 0.1, 0.4])
        self.also_input = r.choice([0, 0, 0, 0.3])
        self.n = 0

    # ---- pieces

    def name(self, what="t"):
        self.n += 1
        return {"path": f"/net/{what}.{self.n}", "odd": f"{what} {self.n}:0"}.get(self.style, f"{what}{self.n}")

    def node_name(self, op):
        self.n += 1
        return {"unnamed": "", "same": f"{op}", "path": f"/net/{op}/{self.n}"}.get(self.style, f"{op}_{self.n}")

    def const(self, array, what="c", plain=False):
        array = np.asarray(array)
        name = self.name(what)
        t = numpy_helper.from_array(array, name)
        if self.r.random() < 0.1 and array.dtype == np.float32:  # typed instead of raw storage
            t = helper.make_tensor(name, TensorProto.FLOAT, array.shape, array.ravel().tolist())
        chance = self.r.random()
        if chance < self.const_nodes and not plain:
            if array.dtype == np.float32 and self.opset >= 12 and array.ndim < 2 and array.size and self.r.random() < 0.3:
                value = {"value_float": float(array)} if array.ndim == 0 else {"value_floats": array.tolist()}
            elif array.dtype == np.int64 and self.opset >= 12 and array.ndim == 1 and array.size and self.r.random() < 0.3:
                value = {"value_ints": array.tolist()}
            else:
                value = {"value": t}
            self.nodes.append(helper.make_node("Constant", [], [name], self.node_name("Constant"), **value))
            return name
        self.inits.append(t)
        if not plain and self.r.random() < self.also_input:
            self.fixed.append(helper.make_tensor_value_info(name, t.data_type, array.shape))
        if not plain and self.r.random() < 0.03:
            out = self.name("same")
            self.nodes.append(helper.make_node("Identity", [name], [out], self.node_name("Identity")))
            return out
        return name

    def weight(self, *shape, what="w", low=None):
        """Random numbers of that shape, perhaps some that are there already."""
        if self.r.random() < self.reuse and self.weights.get(shape) and low is None:
            return self.r.choice(self.weights[shape])
        kind = self.r.random()
        value = self.rng.normal(size=shape) * self.r.choice([1, 1, 0.1, 3])
        if kind < 0.06:
            value = value * 0
        elif kind < 0.12:
            value = np.abs(value)
        elif kind < 0.16:
            value = -np.abs(value)
        elif kind < 0.20:
            value = value * 1e-5
        elif kind < 0.24 and value.ndim > 1:
            value[0] = 0
        elif kind < 0.27:
            value = np.full(shape, 0.75)
        elif kind < 0.29:
            value = value * 1e4
        if low is not None:
            value = np.abs(value) + low
        name = self.const(value.astype(NP[self.dtype]), what)
        self.weights.setdefault(shape, []).append(name)
        return name

    def ints(self, *v, plain=False):
        return self.const(np.array(v, dtype=np.int64), "i", plain)

    def node(self, op, inputs, shape, outs=1, keep=True, **attrs):
        """Adds a node whose outputs have the shape; `shape` may be a list of shapes."""
        domain = attrs.pop("domain", "")
        self.ms = self.ms or domain == MS
        shapes = shape if outs > 1 else [shape]
        outputs = [self.name() for _ in range(outs)]
        n = helper.make_node(op, inputs, outputs, self.node_name(op), domain=domain, **attrs)
        if self.r.random() < 0.1:
            n.doc_string = "said"
        self.nodes.append(n)
        if keep:
            for o, s in zip(outputs, shapes):
                self.pool.append((o, tuple(s)))
        return outputs[0] if outs == 1 else outputs

    def take(self, test):
        """A tensor of the pool that passes the test, most often a late one; else a new input."""
        found = [t for t in self.pool if test(t[1])]
        if not found:
            return None
        return found[-1] if self.r.random() < 0.6 else self.r.choice(found)

    def input(self, *shape):
        name = self.name("x")
        self.inputs.append(helper.make_tensor_value_info(name, self.dtype, shape))
        self.pool.append((name, shape))
        return name, shape


def spatial(d):
    return lambda s: len(s) == d + 2 and min(s[2:]) >= 1


def _conv(n):
    d = n.r.choice([1, 2, 2, 2, 2, 3])
    t = n.take(spatial(d)) or n.input(1, n.r.choice([2, 3, 4]), *[n.r.choice([5, 6, 8])] * d)
    x, s = t
    groups = n.r.choice([1, 1, 1, s[1], 2])
    if s[1] % groups:
        groups = 1
    m = groups * n.r.choice([1, 2, 3])
    k = n.r.choice([1, 2, 3])
    k = min(k, *s[2:])
    inputs = [x, n.weight(m, s[1] // groups, *[k] * d)]
    if n.r.random() < 0.6:
        inputs.append(n.weight(m, what="b"))
    attrs, out = {"group": groups}, [q - k + 1 for q in s[2:]]
    how = n.r.random()
    if how < 0.2:
        attrs["auto_pad"] = n.r.choice(["SAME_UPPER", "SAME_LOWER"])
        out = list(s[2:])
    elif how < 0.5:
        attrs["pads"] = [1] * (2 * d)
        out = [q + 2 for q in out]
    if n.r.random() < 0.5:
        attrs["kernel_shape"] = [k] * d
    n.node("Conv", inputs, (s[0], m, *out), **attrs)


def _conv_transpose(n):
    d = n.r.choice([1, 2, 2])
    x, s = n.take(spatial(d)) or n.input(1, n.r.choice([2, 3, 4]), *[5] * d)
    groups = s[1] if n.r.random() < 0.2 else 1
    m = n.r.choice([1, 2, 3])
    inputs = [x, n.weight(s[1], m, *[2] * d)]
    if n.r.random() < 0.5:
        inputs.append(n.weight(m * groups, what="b"))
    n.node("ConvTranspose", inputs, (s[0], m * groups, *[q * 2 for q in s[2:]]), strides=[2] * d, group=groups)


def _gemm(n):
    x, s = n.take(lambda s: len(s) == 2) or n.input(n.r.choice([1, 3]), n.r.choice([4, 8]))
    ta, tb, m = n.r.random() < 0.2, n.r.random() < 0.5, n.r.choice([1, 3, 5])
    rows, k = (s[1], s[0]) if ta else s
    if n.r.random() < 0.9:
        inputs = [x, n.weight(*((m, k) if tb else (k, m)))]
    else:
        inputs = [x, n.input(*((m, k) if tb else (k, m)))[0]]
    how = n.r.random()
    if how < 0.4:
        inputs.append(n.weight(m, what="b"))
    elif how < 0.5:
        inputs.append(n.weight(what="b") if n.opset > 10 else n.weight(1, what="b"))
    elif how < 0.6:
        inputs.append(n.weight(1, m, what="b"))
    elif how < 0.65:
        inputs.append(n.weight(rows, m, what="b"))
    elif how < 0.7:
        inputs.append(n.input(rows, m)[0])
    elif n.opset < 11:
        inputs.append(n.weight(m, what="b"))
    attrs = {"transA": int(ta)} if ta else {}
    if tb or n.r.random() < 0.2:
        attrs["transB"] = int(tb)
    if n.r.random() < 0.2:
        attrs["alpha"] = n.r.choice([1.0, 0.5]) if len(inputs) < 3 else 1.0
    if n.r.random() < 0.2:
        attrs["beta"] = 1.0
    n.node("Gemm", inputs, (rows, m), **attrs)


def _matmul(n):
    x, s = n.take(lambda s: len(s) >= 2) or n.input(*n.r.choice([(3, 4), (2, 3, 4), (1, 2, 3, 4)]))
    m, how = n.r.choice([2, 4, 5]), n.r.random()
    if how < 0.6:
        n.node("MatMul", [x, n.weight(s[-1], m)], (*s[:-1], m))
    elif how < 0.7:
        n.node("MatMul", [x, n.weight(*s[:-2], s[-1], m)], (*s[:-1], m))
    elif how < 0.8:
        n.node("MatMul", [n.weight(m, s[-2]), x], (*s[:-2], m, s[-1]))
    elif how < 0.85:
        n.node("MatMul", [x, n.weight(s[-1])], s[:-1])
    else:
        perm = [*range(len(s) - 2), len(s) - 1, len(s) - 2]
        t = n.node("Transpose", [x], (*s[:-2], s[-1], s[-2]), perm=perm)
        n.node("MatMul", [x, t], (*s[:-1], s[-2]))


def _binary(n):
    op = n.r.choice(["Add", "Add", "Mul", "Mul", "Sub", "Div"])
    x, s = n.take(lambda s: True) or n.input(1, 3, 6, 6)
    how = n.r.random()
    low = 0.5 if op == "Div" else None
    if how < 0.35:
        other = n.weight(*n.r.choice([(), (1,), s[-1:], s]), low=low)
    elif how < 0.5 and len(s) > 2:
        other = n.weight(s[1], *[1] * (len(s) - 2), low=low)
    elif how < 0.9 and op != "Div":
        same = n.take(lambda q: q == s)
        other = same[0]
    else:
        other = n.weight(*s, low=low)
    inputs = [x, other]
    if op in ("Add", "Mul") and n.r.random() < 0.3:
        inputs.reverse()
    n.node(op, inputs, s)


def _unary(n):
    x, s = n.take(lambda s: True) or n.input(1, 3, 6, 6)
    op = n.r.choice(["Relu", "Relu", "Relu", "Clip", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "HardSwish", "Softmax",
                     "Identity", "Erf", "Gelu", "Elu", "HardSigmoid", "PRelu", "Dropout", "Neg", "Abs", "Cast"])
    if op == "HardSwish" and n.opset < 14 or op == "Gelu" and n.opset < 20:
        op = "Tanh"
    if op == "Clip":
        lo, hi = n.r.choice([(0, 6), (-1, 1), (0.5, 2), (0, 1), (-1, 6)])
        if n.opset < 11:
            n.node("Clip", [x], s, **n.r.choice([{"min": float(lo), "max": float(hi)}, {"min": 0.0}, {}]))
            return
        one = [n.const(np.array(v, dtype=NP[n.dtype])) for v in (lo, hi)]
        n.node("Clip", [x, *n.r.choice([one, one, one[:1], ["", one[1]], []])], s)
    elif op == "PRelu":
        n.node(op, [x, n.weight(*n.r.choice([(1,), s[-1:]]))], s)
    elif op == "Cast":
        n.node(op, [n.node(op, [x], s, keep=False, to=TensorProto.DOUBLE)], s, to=n.dtype)
    elif op == "Softmax":
        n.node(op, [x], s, **n.r.choice([{}, {"axis": len(s) - 1}, {"axis": 1 if len(s) > 1 else 0},
                                         {"axis": -1 if n.opset > 10 else 0}]))
    else:
        n.node(op, [x], s, **({"alpha": 0.1} if op == "LeakyRelu" else {}))


def _pool(n):
    x, s = n.take(spatial(2)) or n.input(1, 3, 8, 8)
    op = n.r.choice(["MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "ReduceMean"])
    if op == "ReduceMean":
        if n.opset < 18:
            n.node(op, [x], (*s[:2], 1, 1), axes=[2, 3])
        else:
            n.node(op, [x, n.ints(2, 3)], (*s[:2], 1, 1))
    elif op.startswith("Global"):
        n.node(op, [x], (*s[:2], 1, 1))
    elif min(s[2:]) >= 2:
        n.node(op, [x], (*s[:2], s[2] // 2, s[3] // 2), kernel_shape=[2, 2], strides=[2, 2])


def _norm(n):
    op = n.r.choice(["BatchNormalization", "LayerNormalization", "InstanceNormalization"])
    x, s = n.take(lambda s: len(s) >= 3) or n.input(1, 3, 6, 6)
    if op == "BatchNormalization":
        n.node(op, [x, *[n.weight(s[1]) for _ in range(3)], n.weight(s[1], low=0.5)], s)
    elif op == "InstanceNormalization":
        n.node(op, [x, n.weight(s[1]), n.weight(s[1])], s)
    elif n.opset >= 17:
        more = [n.weight(s[-1])] + ([n.weight(s[-1])] if n.r.random() < 0.7 else [])
        n.node(op, [x, *more], s, **n.r.choice([{}, {"axis": -1}, {"epsilon": 0.001}]))


def _move(n):
    x, s = n.take(lambda s: len(s) >= 2) or n.input(2, 3, 4)
    op = n.r.choice(["Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Concat", "Split", "Slice", "Pad",
                     "Resize", "Gather", "GatherElements", "Where", "TopK", "CumSum", "Expand", "Tile", "DepthToSpace",
                     "Shape"])
    size = int(np.prod(s))
    if op == "Reshape":
        n.node(op, [x, n.ints(s[0], -1)], (s[0], size // max(1, s[0])))
    elif op == "Flatten":
        n.node(op, [x], (s[0], size // max(1, s[0])))
    elif op == "Transpose":
        perm = list(range(len(s)))
        n.r.shuffle(perm)
        n.node(op, [x], [s[p] for p in perm], perm=perm)
    elif op == "Squeeze" and s[0] == 1:
        args, attrs = ([x, n.ints(0)], {}) if n.opset >= 13 else ([x], {"axes": [0]})
        n.node(op, args, s[1:], **attrs)
    elif op == "Unsqueeze" and len(s) < 5:
        args, attrs = ([x, n.ints(0)], {}) if n.opset >= 13 else ([x], {"axes": [0]})
        n.node(op, args, (1, *s), **attrs)
    elif op == "Concat":
        same = n.take(lambda q: q == s)
        more = [same[0]] + ([n.weight(s[0], 2, *s[2:])] if n.r.random() < 0.4 else [])
        n.node(op, [x, *more], (s[0], 2 * s[1] + 2 * (len(more) - 1), *s[2:]), axis=1)
    elif op == "Split" and s[1] > 1:
        parts = [1, s[1] - 1]
        args, attrs = ([x, n.ints(*parts)], {}) if n.opset >= 13 else ([x], {"split": parts})
        n.node(op, args, [(s[0], p, *s[2:]) for p in parts], outs=2, axis=1, **attrs)
    elif op == "Slice" and s[-1] > 1:
        a = len(s) - 1
        if n.opset < 10:
            n.node(op, [x], (*s[:-1], s[-1] - 1), starts=[1], ends=[s[-1]], axes=[a])
        else:
            n.node(op, [x, n.ints(1), n.ints(1 << 31), n.ints(a)] + ([n.ints(1)] if n.r.random() < 0.3 else []),
                   (*s[:-1], s[-1] - 1))
    elif op == "Pad":
        mode = n.r.choice(["constant", "constant", "reflect", "edge"])
        mode = "constant" if s[-1] < 2 else mode
        pads = [0] * (len(s) - 1) + [1] + [0] * (len(s) - 1) + [1]
        attrs = {"mode": mode} if mode != "constant" or n.r.random() < 0.5 else {}
        if n.opset < 11:
            n.node(op, [x], (*s[:-1], s[-1] + 2), pads=pads, value=float(n.r.choice([0, 1.5])), **attrs)
        else:
            more = [n.const(np.array(n.r.choice([0, 0, 1.5, -2]), dtype=NP[n.dtype]))] if n.r.random() < 0.5 else []
            n.node(op, [x, n.ints(*pads), *more], (*s[:-1], s[-1] + 2), **attrs)
    elif op == "Resize" and len(s) == 4:
        scale = n.const(np.array([1, 1, 2, 2], dtype=np.float32))
        args = [x, scale] if n.opset < 11 else [x, "" if n.opset >= 13 else n.const(np.zeros(0, np.float32)), scale]
        n.node(op, args, (*s[:2], 2 * s[2], 2 * s[3]), mode=n.r.choice(["nearest", "linear"]))
    elif op == "Gather":
        n.node(op, [x, n.ints(0, 0)], (s[0], 2, *s[2:]), axis=1)
    elif op == "GatherElements" and n.opset >= 11:
        n.node(op, [x, n.const(np.zeros((*s[:-1], 2), np.int64))], (*s[:-1], 2), axis=len(s) - 1)
    elif op == "Where":
        same = n.take(lambda q: q == s)
        other = same[0] if n.r.random() < 0.6 else n.weight(*n.r.choice([(), s]))
        args = [x, other]
        n.r.shuffle(args)
        n.node(op, [n.const(np.arange(s[-1]) % 2 == 0), *args], s)
    elif op == "TopK":
        n.node(op, [x, n.ints(1)], [(*s[:-1], 1), (*s[:-1], 1)], outs=2, keep=False)
        n.pool.append((n.nodes[-1].output[0], (*s[:-1], 1)))
    elif op == "CumSum" and n.opset >= 11:
        n.node(op, [x, n.const(np.int64(len(s) - 1))], s)
    elif op == "Expand":
        n.node(op, [x, n.ints(2, *[1] * len(s))], (2, *s))
    elif op == "Tile":
        n.node(op, [x, n.ints(*[1] * (len(s) - 1), 2)], (*s[:-1], 2 * s[-1]))
    elif op == "DepthToSpace" and len(s) == 4 and s[1] % 4 == 0:
        n.node(op, [x], (s[0], s[1] // 4, 2 * s[2], 2 * s[3]), blocksize=2)
    elif op == "Shape":
        q = n.node(op, [x], (len(s),), keep=False)
        n.node("Reshape", [x, q], s)


def _recurrent(n):
    op = n.r.choice(["LSTM", "GRU", "LSTM"])
    x, s = n.take(lambda s: len(s) == 3) or n.input(3, 2, 4)
    h, g, d = 3, 4 if op == "LSTM" else 3, n.r.choice([1, 1, 2])
    inputs = [x, n.weight(d, g * h, s[2]), n.weight(d, g * h, h)]
    if n.r.random() < 0.7:
        inputs.append(n.weight(d, 2 * g * h, what="b"))
        if n.r.random() < 0.3:
            inputs += ["", n.const(np.zeros((d, s[1], h), NP[n.dtype]))]
    shapes = [(s[0], d, s[1], h), (d, s[1], h), (d, s[1], h)][:g - 1]
    n.node(op, inputs, shapes, outs=len(shapes), hidden_size=h, **({"direction": "bidirectional"} if d == 2 else {}))


def _contrib(n):
    op = n.r.choice(["Attention", "EmbedLayerNormalization", "Gelu", "SkipLayerNormalization", "FastGelu", "QuickGelu"])
    x, s = n.take(lambda s: len(s) == 3 and s[2] % 2 == 0) or n.input(1, 3, 4)
    if op == "Attention":
        n.node(op, [x, n.weight(s[2], 3 * s[2]), n.weight(3 * s[2], what="b")], s, domain=MS, num_heads=2)
    elif op == "EmbedLayerNormalization":
        ids = [n.name("ids") for _ in range(2)]
        n.inputs += [helper.make_tensor_value_info(i, TensorProto.INT32, (1, 3)) for i in ids]
        n.node(op, [*ids, n.weight(6, 4), n.weight(5, 4), n.weight(4, 4), n.weight(4), n.weight(4)],
               [(1, 3, 4), (1,)], outs=2, keep=False, domain=MS)
        n.pool.append((n.nodes[-1].output[0], (1, 3, 4)))
    elif op == "SkipLayerNormalization":
        same = n.take(lambda q: q == s)
        n.node(op, [x, same[0], n.weight(s[2]), n.weight(s[2])], s, domain=MS, epsilon=0.01)
    else:
        n.node(op, [x], s, domain=MS)


def _branch(n):
    """An If whose branches read a tensor of the graph around them, and weights from inside and outside."""
    x, s = n.take(lambda s: len(s) >= 2) or n.input(3, 4)
    bodies = []
    for k in range(2):
        w, t = n.weight(s[-1], 4), [n.name(f"in{k}_") for _ in range(4)]
        inner = [numpy_helper.from_array(n.rng.normal(size=(4,)).astype(NP[n.dtype]), t[0])]
        if n.r.random() < 0.5:
            inner.append(numpy_helper.from_array(n.rng.normal(size=(s[-1], 4)).astype(NP[n.dtype]), t[1]))
            w = t[1]
        nodes = [helper.make_node("MatMul", [x, w], [t[2]], n.node_name("MatMul")),
                 helper.make_node(n.r.choice(["Add", "Mul"]), [t[2], t[0]], [t[3]], n.node_name("Add"))]
        if n.r.random() < 0.4:
            nodes.append(helper.make_node("Relu", [t[3]], [t[3] + "r"], n.node_name("Relu")))
        out = nodes[-1].output[0]
        bodies.append(helper.make_graph(nodes, f"body{k}", [], [helper.make_tensor_value_info(out, n.dtype, None)], inner))
    cond = n.const(np.array(n.r.random() < 0.5), plain=True)
    n.node("If", [cond], (*s[:-1], 4), then_branch=bodies[0], else_branch=bodies[1])


def _embedding(n):
    ids = n.name("ids")
    n.inputs.append(helper.make_tensor_value_info(ids, TensorProto.INT64, (2, 3)))
    n.node("Gather", [n.weight(5, 4), ids], (2, 3, 4))


DRAW = [_conv] * 5 + [_matmul] * 4 + [_gemm] * 3 + [_binary] * 5 + [_unary] * 6 + [_move] * 7 + [_pool, _pool, _norm,
        _norm, _conv_transpose, _recurrent, _contrib, _embedding, _branch]


def model(seed):
    """The model of a seed and its samples: of the first draw that makes one that runs."""
    for k in range(100):
        found = draw(seed + k * 1000003)
        if found is not None:
            return found
    raise RuntimeError(f"seed {seed} makes no model")


def draw(seed):
    """One draw, or None."""
    n = Net(seed)
    r = n.r
    for _ in range(r.randint(3, 15)):
        r.choice(DRAW)(n)
    if not n.nodes:
        return None
    ir = {9: 4, 10: 5, 11: 6, 12: 7, 13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11,
          24: 12}[n.opset]
    if r.random() < 0.1:
        ir = 8 if ir < 8 else ir
    if r.random() < 0.05 and n.opset < 13:
        ir = 3
        known = {v.name for v in n.fixed}
        n.fixed += [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in n.inits if t.name not in known]
    read = {i for x in n.nodes for i in x.input}
    made = [(o, x) for x in n.nodes for o in x.output if x.op_type != "Constant"]
    outs = [o for o, _ in made if o not in read]
    outs += [o for o, _ in made if o in read and r.random() < 0.08]
    if r.random() < 0.03 and n.inits:
        outs.append(r.choice(n.inits).name)
    if r.random() < 0.03 and n.inputs:
        outs.append(r.choice(n.inputs).name)
    if r.random() < 0.1:
        n.inits.append(numpy_helper.from_array(np.zeros((0, 3), np.float32), "empty"))
    if r.random() < 0.1:
        n.inits.append(numpy_helper.from_array(np.float64(3), "unused"))
    order = n.inputs + n.fixed if r.random() < 0.7 else n.fixed + n.inputs
    return finish(n, ir, list(dict.fromkeys(outs)), order)


def finish(n, ir, outs, order):
    r = n.r
    imports = [helper.make_opsetid("", n.opset)]
    if n.ms:
        imports.append(helper.make_opsetid(MS, 1))
    elif r.random() < 0.05:
        imports.append(helper.make_opsetid("ai.onnx.ml", 2))
    graph = helper.make_graph(n.nodes, r.choice(["g", "main graph"]), order, [], n.inits)
    m = helper.make_model(graph, opset_imports=imports, ir_version=ir, producer_name="test")
    if r.random() < 0.1:
        m.doc_string, m.graph.doc_string = "a model", "a graph"
        m.metadata_props.add(key="author", value="nobody")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    m.graph.output.extend(helper.make_empty_tensor_value_info(o) for o in outs)
    try:
        s = onnxruntime.InferenceSession(m.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001 - not every draw is a model
        return None
    types = {"tensor(float)": 1, "tensor(float16)": 10, "tensor(double)": 11, "tensor(int64)": 7, "tensor(bool)": 9,
             "tensor(int32)": 6}
    del m.graph.output[:]
    with_shape = r.random() < 0.8
    for o in s.get_outputs():
        m.graph.output.append(helper.make_tensor_value_info(o.name, types[o.type], o.shape if with_shape else None))
    if r.random() < 0.3:
        try:
            m = onnx.shape_inference.infer_shapes(m)
        except Exception:  # noqa: BLE001
            pass
    samples = feeds(m, n.rng)
    try:
        s.run(None, samples[0])
    except Exception:  # noqa: BLE001 - sizes that do not fit
        return None
    if r.random() < 0.2:  # the first dimension of the inputs is open
        for v in m.graph.input:
            if v.name not in {t.name for t in n.inits} and v.type.tensor_type.shape.dim and r.random() < 0.7:
                d = v.type.tensor_type.shape.dim[0]
                d.dim_param = f"N{d.dim_value}"  # the same name for the same size
    return m, samples


def feeds(m, rng, count=3):
    """Samples for the inputs that are not initializers."""
    inits = {t.name for t in m.graph.initializer}
    out = []
    for _ in range(count):
        feed = {}
        for v in m.graph.input:
            if v.name in inits:
                continue
            shape = [d.dim_value for d in v.type.tensor_type.shape.dim]
            dtype = NP[v.type.tensor_type.elem_type]
            feed[v.name] = (rng.normal(size=shape).astype(dtype) if np.issubdtype(dtype, np.floating)
                            else rng.integers(0, 3, size=shape).astype(dtype))
        out.append(feed)
    return out


# ---- options

FLAGS = ["ActivationSymmetric", "ForceQuantizeNoInputCheck", "MatMulConstBOnly", "AddQDQPairToWeight", "DedicatedQDQPair",
         "UseQDQContribOps", "QDQKeepRemovableActivations", "QDQDisableWeightAdjustForInt32Bias", "EnableSubgraph",
         "CalibTensorRangeSymmetric"]


def names(r, m):
    """Some operator types, node names to take and to leave, by chance."""
    out = {}
    ops = sorted({n.op_type for n in m.graph.node})
    nodes = sorted({n.name for n in m.graph.node if n.name})
    if r.random() < 0.15:
        out["op_types"] = ops
    elif r.random() < 0.15:
        out["op_types"] = r.sample(ops, (len(ops) + 1) // 2)
    if nodes and r.random() < 0.15:
        out["nodes_to_exclude"] = r.sample(nodes, r.randint(1, min(3, len(nodes))))
    if nodes and r.random() < 0.1:
        out["nodes_to_quantize"] = r.sample(nodes, r.randint(1, len(nodes)))
    return out


def static(seed, m):
    r = random.Random(seed + 1)
    case = {"format": "qdq" if r.random() < 0.65 else "qoperator"}
    pair = r.choice([("quint8", "qint8")] * 4 + [("quint8", "quint8"), ("qint8", "qint8"), ("qint8", "qint8")])
    if case["format"] == "qdq" and r.random() < 0.25:
        pair = r.choice([("quint16", "qint8"), ("qint16", "qint8"), ("quint16", "quint8"), ("quint8", "qint4"),
                         ("quint16", "qint16"), ("qint8", "qint16"), ("quint8", "quint4"), ("quint16", "qint4")])
    case["activation"], case["weight"] = pair
    if r.random() < 0.4:
        case["per_channel"] = True
    if r.random() < 0.15:
        case["reduce_range"] = True
    case["method"] = r.choice(["minmax", "minmax", "entropy", "percentile", "distribution"])
    extra = {k: True for k in FLAGS if r.random() < 0.1}
    if r.random() < 0.15:
        extra["WeightSymmetric"] = r.random() < 0.5
    if r.random() < 0.1:
        extra["QuantizeBias"] = False
    if r.random() < 0.1:
        extra["MinimumRealRange"] = r.choice([None, 0.5, 1e-6])
    if r.random() < 0.1:
        extra["OpTypesToExcludeOutputQuantization"] = r.sample(sorted({n.op_type for n in m.graph.node}), 1)
    if r.random() < 0.1 and case.get("per_channel"):
        extra["QDQOpTypePerChannelSupportToAxis"] = r.choice([{"MatMul": 0}, {"MatMul": 1, "Gemm": -1}, {"Conv": 1}])
    if r.random() < 0.05 and case["method"] == "minmax":
        extra["CalibMovingAverage"] = True
    if r.random() < 0.05 and case["method"] == "percentile":
        extra["CalibPercentile"] = 95.0
    case["extra"] = extra
    case.update(names(r, m))
    if case["format"] == "qdq" and r.random() < 0.15:
        case["overrides"] = overrides(r, m)
    return case


def overrides(r, m):
    """Overrides of one to three tensors."""
    weights = {t.name: t for t in m.graph.initializer if t.data_type == TensorProto.FLOAT and len(t.dims) > 1}
    inits = {t.name for t in m.graph.initializer}
    acts = [o for n in m.graph.node for o in n.output if o] + [i.name for i in m.graph.input if i.name not in inits]
    out = {}
    for name in r.sample(acts + sorted(weights), min(r.randint(1, 3), len(acts))):
        how = r.random()
        if name in weights and how < 0.5:
            out[name] = [{"axis": r.randrange(len(weights[name].dims)), "quant_type": r.choice(["qint8", "quint8"])}]
        elif how < 0.4:
            out[name] = [{"scale": 0.05, "zero_point": r.choice([0, 7])}]
        elif how < 0.6:
            out[name] = [{"quant_type": r.choice(["quint16", "qint16", "qint8"])}]
        elif how < 0.75:
            out[name] = [{"symmetric": True}, ]
        elif how < 0.9:
            out[name] = [{"rmin": -2.0, "rmax": 2.5}]
        elif name in acts:
            out[name] = [{"quant_type": "quint8", "convert": {"quant_type": "quint16"}}]
    return out


def dynamic(seed, m):
    r = random.Random(seed + 2)
    case = {"weight": r.choice(["qint8", "quint8"])}
    if r.random() < 0.4:
        case["per_channel"] = True
    if r.random() < 0.2:
        case["reduce_range"] = True
    extra = {k: True for k in ("ForceQuantizeNoInputCheck", "EnableSubgraph") if r.random() < 0.15}
    if r.random() < 0.3:
        extra["MatMulConstBOnly"] = r.random() < 0.5
    if r.random() < 0.15:
        extra["WeightSymmetric"] = r.random() < 0.5
    if r.random() < 0.3:
        extra["DefaultTensorType"] = 1
    case["extra"] = extra
    case.update(names(r, m))
    return case


def preprocess(seed):
    r = random.Random(seed + 3)
    case = {"skip_symbolic_shape": r.random() < 0.5, "skip_optimization": r.random() < 0.4,
            "skip_onnx_shape": r.random() < 0.2}
    if all(case.values()):
        case["skip_onnx_shape"] = False
    case["auto_merge"] = r.random() < 0.3
    return case
