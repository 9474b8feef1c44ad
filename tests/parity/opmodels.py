"""opmodels.py - small float models, one operator each, at any opset; and a few larger ones that mix operators.

build(name, opset) gives the model of one operator: a Conv (or MatMul) in front, so that its input is quantized, and a
Mul after it, so that its output is read by an operator that is quantized too. NAMES lists them; exists(name, opset) says
whether the operator is there at that opset.
"""
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class B:
    """A model under construction."""

    def __init__(self, opset, seed=0):
        self.opset = opset
        self.rng = np.random.default_rng(seed)
        self.nodes, self.inits, self.inputs, self.outputs = [], [], [], []

    def const(self, name, array):
        self.inits.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weight(self, name, *shape, scale=1.0):
        return self.const(name, (self.rng.normal(size=shape) * scale).astype(np.float32))

    def ints(self, name, *v):
        return self.const(name, np.array(v, dtype=np.int64))

    def input(self, name, *shape, dtype=TensorProto.FLOAT):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, list(shape)))
        return name

    def output(self, name, dtype=TensorProto.FLOAT, shape=None):
        self.outputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def node(self, op, inputs, outputs, name=None, **attrs):
        outputs = [outputs] if isinstance(outputs, str) else outputs
        self.nodes.append(helper.make_node(op, inputs, outputs, name if name is not None else f"{op}_{len(self.nodes)}",
                                           **attrs))
        return outputs[0]

    def model(self):
        graph = helper.make_graph(self.nodes, "g", self.inputs, self.outputs, self.inits)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)],
                                  ir_version=10 if self.opset > 18 else 8, producer_name="test")
        outputs = onnx.shape_inference.infer_shapes(model).graph.output  # with shapes
        del model.graph.output[:]
        model.graph.output.extend(outputs)
        return model


def head(b):
    """x -> Conv -> t, of shape 1x4x8x8."""
    b.input("x", 1, 3, 8, 8)
    return b.node("Conv", ["x", b.weight("w0", 4, 3, 3, 3), b.weight("b0", 4)], "t", pads=[1, 1, 1, 1])


def tail(b, t):
    b.node("Mul", [t, b.weight("c9", 1)], "y")
    b.output("y")


def simple(op, *more, **attrs):
    """op(t, *initializers made by functions of b)."""

    def make(b):
        t = head(b)
        tail(b, b.node(op, [t] + [f(b) if callable(f) else f for f in more], "u", **attrs))

    return make


def attr_or_input(op, attr, v, since):
    """An attribute that became an input."""

    def make(b):
        t = head(b)
        if b.opset >= since:
            tail(b, b.node(op, [t, b.ints("axes", *v)], "u"))
        else:
            tail(b, b.node(op, [t], "u", **{attr: list(v)}))

    return make


def _conv(b):
    t = head(b)
    tail(b, b.node("Conv", [t, b.weight("w1", 6, 4, 1, 1), b.weight("b1", 6)], "u"))


def _conv_no_bias(b):
    t = head(b)
    tail(b, b.node("Conv", [t, b.weight("w1", 6, 4, 3, 3)], "u"))


def _conv_dynamic(b):
    t = head(b)
    b.input("k", 2, 4, 3, 3)
    tail(b, b.node("Conv", [t, "k"], "u"))


def _conv_tied(b):
    """Two convolutions share weight and bias."""
    t = head(b)
    w, c = b.weight("w1", 4, 4, 1, 1), b.weight("b1", 4)
    t = b.node("Conv", [t, w, c], "u1")
    t = b.node("Conv", [t, w, c], "u2")
    tail(b, b.node("Conv", [t, w, c], "u3"))


def _conv_transpose(b):
    t = head(b)
    tail(b, b.node("ConvTranspose", [t, b.weight("w1", 4, 5, 2, 2), b.weight("b1", 5)], "u", strides=[2, 2]))


def _conv_small_scale(b):
    """A bias that int32 cannot hold unless the weight's scale is raised."""
    t = head(b)
    w = b.weight("w1", 6, 4, 1, 1, scale=1e-7)
    tail(b, b.node("Conv", [t, w, b.const("b1", np.array([3e3, -4e3, 0, 1, 2, 5e3], dtype=np.float32))], "u"))


def _gemm(trans, beta=None, bias=True):
    def make(b):
        t = head(b)
        t = b.node("Flatten", [t], "f")
        w = b.weight("w1", *((5, 256) if trans else (256, 5)))
        attrs = {"transB": 1} if trans else {}
        if beta is not None:
            attrs["beta"] = beta
        tail(b, b.node("Gemm", [t, w] + ([b.weight("b1", 5)] if bias else []), "u", **attrs))

    return make


def _gemm_dynamic_bias(b):
    t = head(b)
    t = b.node("Flatten", [t], "f")
    b.input("c", 5)
    tail(b, b.node("Gemm", [t, b.weight("w1", 256, 5), "c"], "u"))


def _matmul(b):
    t = head(b)
    tail(b, b.node("MatMul", [t, b.weight("w1", 8, 5)], "u"))


def _matmul_left(b):
    t = head(b)
    tail(b, b.node("MatMul", [b.weight("w1", 5, 8), t], "u"))


def _matmul_3d(b):
    t = head(b)
    tail(b, b.node("MatMul", [t, b.weight("w1", 4, 8, 5)], "u"))


def _matmul_dynamic(b):
    t = head(b)
    s = b.node("Transpose", [t], "s", perm=[0, 1, 3, 2])
    tail(b, b.node("MatMul", [t, s], "u"))


def _clip(b):
    t = head(b)
    tail(b, b.node("Clip", [t, b.const("lo", np.float32(0)), b.const("hi", np.float32(6))], "u"))


def _relu_shared(b):
    """A Relu whose input something else reads, so it stays."""
    t = head(b)
    u = b.node("Relu", [t], "u")
    tail(b, b.node("Add", [u, t], "v"))


def _relu_chain(b):
    t = head(b)
    u = b.node("Relu", [t], "u")
    tail(b, b.node("Clip", [u, b.const("lo", np.float32(0)), b.const("hi", np.float32(1))], "v"))


def _relu_output(b):
    """A Relu that makes an output of the graph, after a tensor that is one too."""
    t = head(b)
    b.node("Relu", [t], "y")
    b.output("y")
    b.output("t")


def _relu_float(b):
    """A Relu in front of everything: its input is not quantized."""
    b.input("x", 1, 3, 8, 8)
    t = b.node("Relu", ["x"], "r")
    t = b.node("Conv", [t, b.weight("w0", 4, 3, 3, 3)], "t")
    tail(b, t)


def _split(b):
    t = head(b)
    if b.opset >= 13:
        b.node("Split", [t, b.ints("sizes", 1, 3)], ["u1", "u2"], axis=1)
    else:
        b.node("Split", [t], ["u1", "u2"], axis=1, split=[1, 3])
    b.node("Mul", ["u1", b.weight("c8", 1)], "y1")
    b.output("y1")
    tail(b, "u2")


def _slice(b):
    t = head(b)
    tail(b, b.node("Slice", [t, b.ints("s", 1), b.ints("e", 3), b.ints("a", 1)], "u"))


def _pad(value=None, mode=None):
    def make(b):
        t = head(b)
        more = [b.ints("pads", 0, 0, 1, 1, 0, 0, 1, 1)]
        if value is not None:
            more.append(b.const("v", np.float32(value)))
        tail(b, b.node("Pad", [t] + more, "u", **({"mode": mode} if mode else {})))

    return make


def _pad_constant_node(b):
    t = head(b)
    b.node("Constant", [], "v", value=numpy_helper.from_array(np.float32(0)))
    tail(b, b.node("Pad", [t, b.ints("pads", 0, 0, 1, 1, 0, 0, 1, 1), "v"], "u"))


def _resize(b):
    t = head(b)
    tail(b, b.node("Resize", [t, b.weight("roi", 0), b.const("s", np.array([1, 1, 2, 2], dtype=np.float32))], "u",
                   mode="nearest"))


def _gather(b):
    b.input("i", 2, 3, dtype=TensorProto.INT64)
    g = b.node("Gather", [b.weight("table", 7, 8), "i"], "g")
    tail(b, b.node("MatMul", [g, b.weight("w1", 8, 4)], "u"))


def _gather_activation(b):
    t = head(b)
    tail(b, b.node("Gather", [t, b.ints("i", 0, 2)], "u", axis=1))


def _gather_float(b):
    """A Gather whose input is not quantized: it stays, unless forced."""
    b.input("x", 5, 8)
    g = b.node("Gather", ["x", b.ints("i", 0, 2)], "g")
    tail(b, b.node("MatMul", [g, b.weight("w1", 8, 4)], "u"))


def _gather_elements(b):
    t = head(b)
    i = b.const("i", np.zeros((1, 4, 8, 2), dtype=np.int64))
    tail(b, b.node("GatherElements", [t, i], "u", axis=3))


def _where(b):
    t = head(b)
    s = b.node("Mul", [t, b.weight("c8", 1)], "s")
    c = b.const("cond", np.arange(8) % 2 == 0)
    tail(b, b.node("Where", [c, t, s], "u"))


def _where_float(b):
    """One branch is a graph input that nothing else quantizes."""
    t = head(b)
    b.input("z", 1, 4, 8, 8)
    tail(b, b.node("Where", [b.const("cond", np.arange(8) % 2 == 0), t, "z"], "u"))


def _instance_norm(b):
    t = head(b)
    tail(b, b.node("InstanceNormalization", [t, b.weight("s1", 4), b.weight("b1", 4)], "u"))


def _layer_norm(b):
    t = head(b)
    tail(b, b.node("LayerNormalization", [t, b.weight("s1", 8), b.weight("b1", 8)], "u"))


def _layer_norm_no_bias(b):
    t = head(b)
    tail(b, b.node("LayerNormalization", [t, b.weight("s1", 4, 8, 8)], "u", axis=1))


def _batch_norm(b):
    t = head(b)
    v = b.const("v1", np.abs(b.rng.normal(size=4)).astype(np.float32) + 0.5)
    tail(b, b.node("BatchNormalization", [t, b.weight("s1", 4), b.weight("b1", 4), b.weight("m1", 4), v], "u"))


def _topk(b):
    t = head(b)
    b.node("TopK", [t, b.ints("k", 3)], ["u", "idx"])
    b.output("idx", TensorProto.INT64)
    tail(b, "u")


def _cumsum(b):
    t = head(b)
    tail(b, b.node("CumSum", [t, b.const("ax", np.int64(2))], "u"))


def _concat(b):
    t = head(b)
    s = b.node("Sigmoid", [t], "s")
    tail(b, b.node("Concat", [t, s, b.weight("c8", 1, 2, 8, 8)], "u", axis=1))


def _softmax_output(b):
    t = head(b)
    b.node("Softmax", [t], "y", axis=1)
    b.output("y")


def _argmax(b):
    t = head(b)
    b.node("ArgMax", [t], "y", axis=1)
    b.output("y", TensorProto.INT64)


def _add_const(b):
    t = head(b)
    tail(b, b.node("Add", [t, b.weight("c8", 4, 1, 1)], "u"))


def _constant_weight(b):
    """A weight in a Constant node."""
    b.input("x", 1, 3, 8, 8)
    b.node("Constant", [], "w0", value=numpy_helper.from_array(b.rng.normal(size=(4, 3, 3, 3)).astype(np.float32)))
    tail(b, b.node("Conv", ["x", "w0"], "t"))


def _unnamed(b):
    """Nodes without names that share a bias."""
    b.input("x", 1, 3, 8, 8)
    c = b.weight("b0", 4)
    t = b.node("Conv", ["x", b.weight("w0", 4, 3, 1, 1), c], "t", name="")
    t = b.node("Conv", [t, b.weight("w1", 4, 4, 1, 1), c], "t1", name="")
    tail(b, t)


def _numbered_bias(b):
    """Shared biases whose copies must not be called like something that exists."""
    b.input("x", 1, 3, 8, 8)
    c = b.weight("b", 4)
    b.weight("b7", 4)
    t = b.node("Conv", ["x", b.weight("w0", 4, 3, 1, 1), c], "t")
    t = b.node("Conv", [t, b.weight("w1", 4, 4, 1, 1), c], "t1")
    t = b.node("Conv", [t, b.weight("w2", 4, 4, 1, 1), "b7"], "t2")
    t = b.node("Conv", [t, b.weight("w3", 4, 4, 1, 1), c], "t3")
    t = b.node("Conv", [t, b.weight("w4", 4, 4, 1, 1), "b7"], "t4")
    tail(b, t)


def _twice(b):
    """A node that reads a tensor twice, and two readers."""
    t = head(b)
    u = b.node("Mul", [t, t], "u")
    tail(b, b.node("Add", [u, t], "v"))


def _if(b):
    """A subgraph that reads tensors of the graph around."""
    t = head(b)
    u = b.node("Relu", [t], "u")
    then = helper.make_graph([helper.make_node("Add", ["u", "b0r"], ["a1"], "add_in")], "then", [],
                             [helper.make_tensor_value_info("a1", TensorProto.FLOAT, None)],
                             [numpy_helper.from_array(np.ones((4, 1, 1), dtype=np.float32), "b0r")])
    other = helper.make_graph([helper.make_node("Neg", ["u"], ["a2"], "neg_in")], "else", [],
                              [helper.make_tensor_value_info("a2", TensorProto.FLOAT, None)])
    b.node("If", [b.const("c", np.array(True))], "i", then_branch=then, else_branch=other)
    tail(b, b.node("Add", ["i", u], "v"))


MODELS = {
    "Conv": (_conv, 11), "Conv.no_bias": (_conv_no_bias, 11), "Conv.dynamic": (_conv_dynamic, 11),
    "Conv.tied": (_conv_tied, 11), "Conv.small_scale": (_conv_small_scale, 11),
    "ConvTranspose": (_conv_transpose, 11),
    "Gemm": (_gemm(False), 11), "Gemm.transB": (_gemm(True), 11), "Gemm.beta": (_gemm(True, 0.5), 11),
    "Gemm.no_bias": (_gemm(False, bias=False), 11), "Gemm.dynamic_bias": (_gemm_dynamic_bias, 11),
    "MatMul": (_matmul, 11), "MatMul.left": (_matmul_left, 11), "MatMul.3d": (_matmul_3d, 11),
    "MatMul.dynamic": (_matmul_dynamic, 11),
    "Clip": (_clip, 11), "Relu": (simple("Relu"), 11), "Relu.shared": (_relu_shared, 11),
    "Relu.chain": (_relu_chain, 11), "Relu.output": (_relu_output, 11), "Relu.float": (_relu_float, 11),
    "Reshape": (simple("Reshape", lambda b: b.ints("shape", 1, -1)), 11),
    "Transpose": (simple("Transpose", perm=[0, 2, 3, 1]), 11),
    "Squeeze": (attr_or_input("Squeeze", "axes", [0], 13), 11),
    "Unsqueeze": (attr_or_input("Unsqueeze", "axes", [0], 13), 11),
    "Flatten": (simple("Flatten"), 11), "Resize": (_resize, 11),
    "MaxPool": (simple("MaxPool", kernel_shape=[2, 2]), 11),
    "AveragePool": (simple("AveragePool", kernel_shape=[2, 2]), 11),
    "Slice": (_slice, 11),
    "Pad": (_pad(), 11), "Pad.zero": (_pad(0.0), 11), "Pad.value": (_pad(1.5), 11),
    "Pad.reflect": (_pad(mode="reflect"), 11), "Pad.edge": (_pad(mode="edge"), 11),
    "Pad.wrap": (_pad(mode="wrap"), 19), "Pad.constant_node": (_pad_constant_node, 11),
    "Split": (_split, 11), "Gather": (_gather, 11), "Gather.activation": (_gather_activation, 11),
    "Gather.float": (_gather_float, 11), "GatherElements": (_gather_elements, 11),
    "Where": (_where, 11), "Where.float": (_where_float, 11),
    "InstanceNormalization": (_instance_norm, 11), "LayerNormalization": (_layer_norm, 17),
    "LayerNormalization.no_bias": (_layer_norm_no_bias, 17), "BatchNormalization": (_batch_norm, 11),
    "TopK": (_topk, 11), "CumSum": (_cumsum, 11),
    "Add": (_add_const, 11), "Mul": (_twice, 11), "Sigmoid": (simple("Sigmoid"), 11),
    "LeakyRelu": (simple("LeakyRelu", alpha=0.1), 11), "Softmax": (simple("Softmax", axis=1), 11),
    "Softmax.output": (_softmax_output, 11), "Concat": (_concat, 11),
    "GlobalAveragePool": (simple("GlobalAveragePool"), 11), "ArgMax": (_argmax, 11),
    # not in the reference's registries: quantized only when listed
    "Tanh": (simple("Tanh"), 11), "Sub": (simple("Sub", lambda b: b.weight("c8", 1)), 11),
    "Div": (simple("Div", lambda b: b.const("c8", np.array([2], dtype=np.float32))), 11),
    "ReduceMean": (simple("ReduceMean"), 11), "Erf": (simple("Erf"), 11), "Identity": (simple("Identity"), 11),
    "Gelu": (simple("Gelu"), 20), "HardSigmoid": (simple("HardSigmoid"), 11),
    # shapes of graphs rather than operators
    "Constant.weight": (_constant_weight, 11), "nodes.unnamed": (_unnamed, 11), "bias.numbered": (_numbered_bias, 11),
    "If": (_if, 11),
}
NAMES = sorted(MODELS)


def exists(name, opset):
    return opset >= MODELS[name][1]


def build(name, opset):
    b = B(opset, seed=sum(name.encode()))
    MODELS[name][0](b)
    model = b.model()
    onnx.checker.check_model(model)
    return model


def mixed(opset=17):
    """A bit of everything: convolutions with a residual, pooling, a small attention, a classifier."""
    b = B(opset, seed=7)
    b.input("x", 1, 3, 16, 16)
    t = b.node("Conv", ["x", b.weight("c1.w", 8, 3, 3, 3), b.weight("c1.b", 8)], "c1", "conv1", pads=[1, 1, 1, 1])
    r = b.node("Relu", [t], "r1", "relu1")
    t = b.node("Conv", [r, b.weight("c2.w", 8, 8, 3, 3), b.weight("c2.b", 8)], "c2", "conv2", pads=[1, 1, 1, 1])
    t = b.node("Add", [t, r], "a1", "add1")
    t = b.node("Clip", [t, b.const("zero", np.float32(0)), b.const("six", np.float32(6))], "k1", "clip1")
    t = b.node("MaxPool", [t], "p1", "pool1", kernel_shape=[2, 2], strides=[2, 2])
    t = b.node("ConvTranspose", [t, b.weight("c3.w", 8, 8, 2, 2), b.weight("c3.b", 8)], "d1", "deconv1", strides=[2, 2])
    t = b.node("AveragePool", [t], "p2", "pool2", kernel_shape=[4, 4], strides=[4, 4])
    t = b.node("Reshape", [t, b.ints("shape1", 1, 8, 16)], "s1", "reshape1")
    t = b.node("Transpose", [t], "s2", "transpose1", perm=[0, 2, 1])
    q = b.node("MatMul", [t, b.weight("q.w", 8, 8)], "q", "q_proj")
    k = b.node("MatMul", [t, b.weight("k.w", 8, 8)], "k", "k_proj")
    v = b.node("MatMul", [t, b.weight("v.w", 8, 8)], "v", "v_proj")
    kt = b.node("Transpose", [k], "kt", "transpose2", perm=[0, 2, 1])
    s = b.node("MatMul", [q, kt], "qk", "scores")
    s = b.node("Softmax", [s], "sm", "softmax", axis=-1)
    t2 = b.node("MatMul", [s, v], "att", "attend")
    t = b.node("Add", [t2, t], "a2", "add2")
    if opset >= 17:
        t = b.node("LayerNormalization", [t, b.weight("ln.s", 8), b.weight("ln.b", 8)], "ln", "norm1")
    t = b.node("Sigmoid", [t], "sg", "gate")
    t = b.node("Mul", [t, t2], "m1", "mul1")
    t = b.node("Flatten", [t], "f1", "flatten")
    b.node("Gemm", [t, b.weight("fc.w", 10, 128), b.weight("fc.b", 10)], "y", "fc", transB=1)
    b.output("y")
    return b.model()


def feeds(model, n=3, seed=1):
    """n samples for the model's inputs."""
    rng = np.random.default_rng(seed)
    inits = {t.name for t in model.graph.initializer}
    out = []
    for _ in range(n):
        feed = {}
        for v in model.graph.input:
            if v.name in inits:
                continue
            tt = v.type.tensor_type
            shape = [d.dim_value or 2 for d in tt.shape.dim]
            dtype = helper.tensor_dtype_to_np_dtype(tt.elem_type)
            if np.issubdtype(dtype, np.floating):
                feed[v.name] = rng.normal(size=shape).astype(dtype)
            else:
                feed[v.name] = rng.integers(0, 4, size=shape).astype(dtype)
        out.append(feed)
    return out
