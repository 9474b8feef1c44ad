"""nbitsmodel.py - random models and options for weight-only quantization.

model(seed) gives a model whose nodes are products, lookups and what stands around them: weights of odd shapes, tied and turned
ones, weights in branches, in Constant nodes, on the left, as inputs with a default, of unit and other batches; names that are
missing, twice there, or that the quantizer would give itself. case(seed, model) gives options as test_nbits.py names them.
"""
import random

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BLOCKS = [16, 32, 64, 128, 256]


def settings(seed):
    """What the model is drawn for: the reference's rtn and k_quant stop at odd numbers of blocks, and at branches."""
    r = random.Random(seed + 2000000)
    return {"method": r.choice(["default"] * 6 + ["rtn", "rtn", "k_quant", "k_quant"]), "block": r.choice(BLOCKS),
            "symmetric": r.random() < 0.5}


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)
        drawn = settings(seed)
        self.whole = drawn["method"] != "default" and self.r.random() < 0.85
        self.even = 2 * drawn["block"] if self.whole else 1
        self.rng = np.random.default_rng(seed)
        self.dtype = np.dtype(self.r.choice([np.float32] * 4 + [np.float16]))
        self.elem = helper.np_dtype_to_tensor_dtype(self.dtype)
        self.opset = self.r.choice([11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 21, 21, 22])
        self.nodes, self.inits, self.inputs, self.outputs, self.count = [], [], [], [], 0

    def fresh(self, stem):
        self.count += 1
        return f"{stem}{self.count}"

    def name(self):
        """Of a node. One in twelve has none."""
        return "" if self.r.random() < 0.08 else self.fresh(self.r.choice(["mm", "/layers.0/mlp/MatMul_", "node.", "a b"]))

    def array(self, *shape):
        kind = self.r.choice(["normal"] * 5 + ["zero", "constant", "large", "positive", "small"])
        w = self.rng.standard_normal(shape)
        if kind == "zero":
            w[..., 0] = 0
        elif kind == "constant":
            w[...] = 0.75
        elif kind == "large":
            w.flat[self.rng.integers(w.size)] = 60
        elif kind == "positive":
            w = np.abs(w)
        elif kind == "small":
            w *= 1e-3
        return w.astype(self.dtype)

    def weight(self, array, raw=None):
        name = self.fresh(self.r.choice(["w", "layers.0.weight", "W_Q4", "onnx::MatMul_"]))
        t = numpy_helper.from_array(array, name)
        if raw is None and self.dtype == np.float32 and self.r.random() < 0.15:  # typed, not raw
            t = helper.make_tensor(name, TensorProto.FLOAT, array.shape, array.ravel().tolist())
        self.inits.append(t)
        if self.r.random() < 0.08:
            self.inputs.append(helper.make_tensor_value_info(name, self.elem, array.shape))
        return name

    def input(self, shape):
        name = self.fresh("x")
        self.inputs.append(helper.make_tensor_value_info(name, self.elem, shape))
        return name

    def output(self, name, shape=None):
        self.outputs.append(helper.make_tensor_value_info(name, self.elem, shape))

    def sizes(self):
        if self.whole:
            return self.even * self.r.randint(1, 3) - self.r.choice([0, 0, 1]), self.r.choice([1, 2, 3, 5, 8, 16, 31, 40])
        return (self.r.choice([1, 3, 16, 24, 31, 32, 33, 64, 70, 96, 128, 129, 200]),
                self.r.choice([1, 2, 3, 5, 8, 16, 31, 40]))

    # ---- what is drawn

    def matmul(self):
        k, n = self.sizes()
        x, w, y = self.input(self.r.choice([["b", k], [2, k], ["b", "s", k], [k]])), self.weight(self.array(k, n)), self.fresh("y")
        self.nodes.append(helper.make_node("MatMul", [x, w], [y], name=self.name()))
        self.output(y)

    def chain(self):
        """Products and functions one after another, a bias between."""
        widths = [self.even, 2 * self.even] if self.whole else [16, 32, 33, 48, 64]
        k = self.r.choice(widths)
        x = self.input(["b", k])
        for _ in range(self.r.randint(2, 4)):
            n = self.r.choice(widths)
            y = self.fresh("t")
            self.nodes.append(helper.make_node("MatMul", [x, self.weight(self.array(k, n))], [y], name=self.name()))
            if self.r.random() < 0.4:
                b, z = self.weight(self.array(n)), self.fresh("t")
                self.nodes.append(helper.make_node("Add", [y, b], [z], name=self.name()))
                y = z
            x, k = self.fresh("t"), n
            self.nodes.append(helper.make_node(self.r.choice(["Relu", "Tanh", "Sigmoid"]), [y], [x], name=self.name()))
        self.output(x)

    def shared(self):
        """One weight for two nodes."""
        k, n = self.sizes()
        w = self.weight(self.array(k, n))
        for _ in range(2):
            y = self.fresh("y")
            self.nodes.append(helper.make_node("MatMul", [self.input(["b", k]), w], [y], name=self.name()))
            self.output(y)

    def tied(self):
        """A table that is looked up in and, turned, the last layer."""
        v, k = self.r.choice([20, 33, 64]), self.r.choice([16, 32, 40])
        table, ids = self.weight(self.array(v, k)), self.fresh("ids")
        e, t, y = self.fresh("e"), self.fresh("wt"), self.fresh("y")
        self.inputs.append(helper.make_tensor_value_info(ids, TensorProto.INT64, ["b", "s"]))
        self.nodes += [helper.make_node("Gather", [table, ids], [e], name=self.name()),
                       helper.make_node("Transpose", [table], [t], name=self.name(), perm=[1, 0]),
                       helper.make_node("MatMul", [e, t], [y], name=self.name())]
        self.output(y)

    def gather(self):
        shape, axis = self.r.choice([((7, 33), 0), ((12, 64), 0), ((5, 17), 1), ((3, 4, 40), 0), ((2, 50, 6), 2), ((9, 16), -1)])
        ids, y = self.fresh("ids"), self.fresh("y")
        self.inputs.append(helper.make_tensor_value_info(ids, self.r.choice([TensorProto.INT64, TensorProto.INT32]), ["n"]))
        attrs = {"axis": axis} if axis or self.r.random() < 0.5 else {}
        self.nodes.append(helper.make_node("Gather", [self.weight(self.array(*shape)), ids], [y], name=self.name(), **attrs))
        self.output(y)

    def batch(self):
        k, n = self.sizes()
        lead = self.r.choice([[1], [1, 1], [2], [1, 3]])
        x = self.input(self.r.choice([["b", k], ["b", "s", k], [k], [*lead, 5, k]]))
        y = self.fresh("y")
        self.nodes.append(helper.make_node("MatMul", [x, self.weight(self.array(*lead, k, n))], [y], name=self.name()))
        self.output(y)

    def odd(self):
        """Weights that are not simply constant: in a Constant node, on the left, behind an Identity, not there, a vector."""
        k, n = self.sizes()
        kind, y = self.r.choice(["constant", "left", "identity", "none", "vector", "gemm", "used"]), self.fresh("y")
        x = self.input([n, k] if kind == "none" else ["b", k])
        a = self.array(k, n)
        if kind == "constant":
            w = self.fresh("k")
            self.nodes.append(helper.make_node("Constant", [], [w], name=self.name(), value=numpy_helper.from_array(a, "")))
        elif kind == "identity":
            w = self.fresh("i")
            self.nodes.append(helper.make_node("Identity", [self.weight(a)], [w], name=self.name()))
        elif kind == "none":
            w = self.input([k, n])
        elif kind == "vector":
            w = self.weight(self.array(k))
        else:
            w = self.weight(a)
        if kind == "left":
            x, w = w, self.input([n, "b"])
        if kind == "gemm":
            self.nodes.append(helper.make_node("Gemm", [x, w, self.weight(self.array(n))], [y], name=self.name()))
        else:
            self.nodes.append(helper.make_node("MatMul", [x, w], [y], name=self.name()))
        if kind == "used":  # as float, too
            z = self.fresh("y")
            self.nodes.append(helper.make_node("Neg", [w], [z], name=self.name()))
            self.output(z)
        self.output(y)

    def branches(self):
        k, n = self.sizes()
        x, c, y = self.input(["b", k]), self.fresh("c"), self.fresh("y")
        self.inputs.append(helper.make_tensor_value_info(c, TensorProto.BOOL, []))
        outer = self.weight(self.array(k, n))
        bodies = []
        for _ in range(2):
            t, inits = self.fresh("t"), []
            w = outer
            if self.r.random() < 0.6:
                w = self.fresh("inner")
                inits = [numpy_helper.from_array(self.array(k, n), w)]
            nodes = [helper.make_node("MatMul", [x, w], [t], name=self.name())]
            out = helper.make_tensor_value_info(t, self.elem, None)
            bodies.append(helper.make_graph(nodes, self.fresh("g"), [], [out], inits))
        self.nodes.append(helper.make_node("If", [c], [y], name=self.name(), then_branch=bodies[0], else_branch=bodies[1]))
        self.output(y)

    def loop(self):
        k = self.r.choice([16, 33, 64])
        x, y, t, i, c, s, d = self.input(["b", k]), *(self.fresh(s) for s in ("y", "t", "i", "c", "s", "d"))
        w = self.fresh("inner")
        body = helper.make_graph(
            [helper.make_node("MatMul", [s, w], [t], name=self.name()), helper.make_node("Identity", [c], [d], name=self.name())],
            self.fresh("g"), [helper.make_tensor_value_info(i, TensorProto.INT64, []),
                              helper.make_tensor_value_info(c, TensorProto.BOOL, []),
                              helper.make_tensor_value_info(s, self.elem, None)],
            [helper.make_tensor_value_info(d, TensorProto.BOOL, []), helper.make_tensor_value_info(t, self.elem, None)],
            [numpy_helper.from_array(self.array(k, k), w)])
        trips, go = self.fresh("trips"), self.fresh("go")
        self.inits += [numpy_helper.from_array(np.array(2), trips), numpy_helper.from_array(np.array(True), go)]
        self.nodes.append(helper.make_node("Loop", [trips, go, x], [y], name=self.name(), body=body))
        self.output(y)


def model(seed):
    m = Maker(seed)
    kinds = ["matmul"] * 5 + ["chain"] * 2 + ["shared", "tied", "gather", "gather", "batch", "odd", "odd", *([] if m.whole else ["branches", "loop"])]
    for _ in range(m.r.randint(1, 5)):
        getattr(m, m.r.choice(kinds))()
    twice = [n for n in m.nodes if n.name]
    if len(twice) > 1 and m.r.random() < 0.05:
        twice[-1].name = twice[0].name
    graph = helper.make_graph(m.nodes, "g", m.inputs, m.outputs, m.inits)
    imports = [helper.make_opsetid("", m.opset)] + ([helper.make_opsetid("com.microsoft", 1)] if m.r.random() < 0.2 else [])
    return helper.make_model(graph, opset_imports=imports, ir_version=m.r.choice([7, 8, 9, 10]) if m.opset < 21 else 10)


def case(seed, m):
    r = random.Random(seed + 1000000)
    c = settings(seed)
    method = c["method"]
    if r.random() < 0.3:
        c["accuracy_level"] = r.choice([0, 1, 2, 3, 4])
    names = sorted({n.name for n in m.graph.node if n.name})
    products = [n.name for n in m.graph.node if n.op_type == "MatMul" and n.name]
    if r.random() < 0.25 and names:
        c["exclude"] = r.sample(names, min(len(names), r.randint(1, 2)))
    if method == "default":
        c["bits"] = r.choice([2, 4, 4, 4, 8])
        c["format"] = r.choice(["QOperator", "QOperator", "QDQ"])
        c["op_types"] = r.choice([None, None, ["MatMul"], ["MatMul", "Gather"], ["Gather"]])
        if c["op_types"] and "Gather" in c["op_types"] and r.random() < 0.5:
            c["axes"] = [("Gather", r.choice([0, 1, -1]))]
        if c["format"] == "QDQ" and r.random() < 0.4:
            c["channel_wise"] = True
        if r.random() < 0.15 and names:
            c["include"] = r.sample(names, 1)
    else:
        read = {n.input[1] for n in m.graph.node if n.op_type == "MatMul"}
        weights = [t.name for t in m.graph.initializer if t.name in read]
        if method == "rtn" and r.random() < 0.3:
            c["ratios"] = {w: r.choice([0.8, 0.9, 1.0]) for w in r.sample(weights, min(2, len(weights)))}
        if r.random() < 0.3 and products:
            c["node_config"] = {p: {"bits": r.choice([4, 8]), "group_size": r.choice(BLOCKS), "scheme": r.choice(["sym", "asym"])}
                                for p in r.sample(products, min(2, len(products)))}
    return c
