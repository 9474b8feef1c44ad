"""qatmodels.py - models with fake quantization, made with known scales.

A Net builds a float graph; `pair` puts a fake quantization after a tensor (or a weight) in one of the forms that
exporters write. What was put is kept in `trained`: tensor -> (scale, zero point).
"""
import importlib
import shutil
import subprocess
import sys
import types
import zipfile

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from quantcase import ROOT

LIMITS = {"uint8": (0, 255), "int8": (-128, 127)}


def params(values, kind="uint8"):
    """Scale and zero point of one tensor, as training would have left them: no round numbers."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    if kind == "int8":
        return np.float32(max(-low, high, 1e-3) / 127), np.int8(0)
    scale = np.float32(max(high - low, 1e-3) / 255)
    return scale, np.uint8(np.clip(round(-low / float(scale)), 0, 255))


class Net:
    def __init__(self, shape, opset=13, seed=0, form="qdq"):
        self.nodes, self.inits, self.form, self.opset = [], [], form, opset
        self.rng = np.random.default_rng(seed)
        self.shape, self.trained, self.types = shape, {}, {}
        self.count = 0

    def name(self, what):
        self.count += 1
        return f"{what}_{self.count}"

    def init(self, value, what="c"):
        name = self.name(what)
        self.inits.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def op(self, kind, inputs, n_out=1, **attributes):
        node = self.name(kind.lower())
        outputs = [f"{node}_out{i}" if i else f"{node}_out" for i in range(n_out)]
        self.nodes.append(helper.make_node(kind, inputs, outputs, node, **attributes))
        return outputs[0] if n_out == 1 else outputs

    def values(self, tensor):
        """What the net so far gives for the sample."""
        if tensor == "x":
            return self.sample()
        return run(self.model(tensor), self.sample())

    def sample(self):
        return np.random.default_rng(77).normal(size=self.shape).astype(np.float32)

    def learn(self, tensor, kind="uint8", stretch=1.0):
        """A pair whose parameters fit what the tensor holds, zero included."""
        scale, zero = params(self.values(tensor) * np.float32(stretch), kind)
        return self.pair(tensor, scale, zero)

    def pair(self, tensor, scale, zero, axis=None, form=None, shape=None):
        """A fake quantization after `tensor`; returns what it makes."""
        self.trained[tensor] = (np.asarray(scale, np.float32), np.asarray(zero))
        self.last_scale = np.max(scale)  # of the pair that was put last
        form = form or self.form
        attributes = {} if axis is None else {"axis": axis}
        if form == "qdq":
            s, z = self.init(np.asarray(scale, np.float32), "scale"), self.init(np.asarray(zero), "zero")
            q = self.op("QuantizeLinear", [tensor, s, z], **attributes)
            return self.op("DequantizeLinear", [q, s, z], **attributes)
        low, high = LIMITS[np.asarray(zero).dtype.name]
        spread = (lambda v: np.asarray(v, np.float32).reshape(shape)) if shape else (lambda v: np.asarray(v, np.float32))
        s, z = self.init(spread(scale), "scale"), self.init(spread(zero), "zero")
        lo, hi = self.init(np.float32(low)), self.init(np.float32(high))
        if form == "chain":
            x = self.op("Add", [self.op("Round", [self.op("Div", [tensor, s])]), z])
            x = self.op("Clip", [x, lo, hi])
            return self.op("Mul", [self.op("Sub", [x, z]), s])
        if form == "inverse":  # Mul by 1/scale, Clip before Round
            x = self.op("Add", [self.op("Mul", [tensor, self.init(spread(1 / np.float32(scale)))]), z])
            x = self.op("Round", [self.op("Clip", [x, lo, hi])])
            return self.op("Mul", [self.op("Sub", [x, z]), s])
        if form == "bounds":  # the zero point is in the bounds of Clip
            x = self.op("Round", [self.op("Div", [tensor, s])])
            x = self.op("Clip", [x, self.init(np.float32(low - int(zero))), self.init(np.float32(high - int(zero)))])
            return self.op("Mul", [x, s])
        raise ValueError(form)

    def weight(self, value, kind="int8", axis=None, stored="pair"):
        """A weight with its fake quantization: `pair` after the float, `ints` as DequantizeLinear of integers."""
        value = np.asarray(value, np.float32)
        if axis is None:
            scale, zero = params(value, kind)
        else:
            both = [params(np.take(value, i, axis), kind) for i in range(value.shape[axis])]
            scale, zero = (np.array([b[i] for b in both]) for i in range(2))
        if stored == "float":
            return self.init(value, "w")
        if stored == "ints":
            return self.ints(value, scale, zero, axis)
        shape = None if axis is None else [-1 if i == axis else 1 for i in range(value.ndim)]
        return self.pair(self.init(value, "w"), scale, zero, axis, shape=shape)

    def ints(self, value, scale, zero, axis=None):
        shape = [1] * value.ndim
        if axis is not None:
            shape[axis] = -1
        q = quantize(value, np.reshape(scale, shape), np.reshape(zero, shape))
        attributes = {} if axis is None else {"axis": axis}
        out = self.op("DequantizeLinear", [self.init(q, "wq"), self.init(np.asarray(scale, np.float32)),
                                           self.init(np.asarray(zero))], **attributes)
        self.trained[out] = (np.asarray(scale, np.float32), np.asarray(zero))
        return out

    def model(self, output, ir=8):
        graph = helper.make_graph(
            self.nodes, "trained", [helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)], self.inits)
        domains = [helper.make_opsetid("", self.opset)]
        if any(n.domain for n in self.nodes):
            domains.append(helper.make_opsetid("qonnx.custom_op.general", 1))
        m = helper.make_model(graph, opset_imports=domains, ir_version=ir)
        for o in m.graph.output:
            o.type.tensor_type.ClearField("shape")
        return m


def run(model, x):
    """The first output, computed as the graph says: no optimisation."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def quantize(value, scale, zero):
    zero = np.asarray(zero)
    info = np.iinfo(zero.dtype)
    steps = np.round(np.asarray(value, np.float32) / np.asarray(scale, np.float32)) + zero.astype(np.float32)
    return np.clip(steps, info.min, info.max).astype(zero.dtype)


def conv_net(form="qdq", act="uint8", axis=None, stored="pair", opset=13, output=False, seed=1, bias=True, gemm=True):
    """Conv, Relu, MaxPool, Conv, Relu, average, Gemm: pairs on the input, after each Relu and on every weight."""
    n = Net([2, 3, 12, 12], opset, seed, form)
    r = n.rng
    x = n.learn("x", act)
    extra = [n.init(r.normal(size=8).astype(np.float32) * 0.3, "b")] if bias else []
    y = n.op("Conv", [x, n.weight(r.normal(size=(8, 3, 3, 3)) * 0.2, axis=axis, stored=stored)] + extra, pads=[1] * 4)
    y = n.learn(n.op("Relu", [y]), act)
    y = n.op("MaxPool", [y], kernel_shape=[2, 2], strides=[2, 2])
    y = n.op("Conv", [y, n.weight(r.normal(size=(6, 8, 3, 3)) * 0.2, axis=axis, stored=stored)], group=1)
    y = n.learn(n.op("Relu", [y]), act)
    y = n.learn(n.op("GlobalAveragePool", [y]), act)
    y = n.op("Flatten", [y])
    if gemm:
        w = n.weight(r.normal(size=(5, 6)) * 0.5, axis=None if axis is None else 0, stored=stored)
        y = n.op("Gemm", [y, w, n.init(r.normal(size=5).astype(np.float32), "b")], transB=1)
    else:
        y = n.op("MatMul", [y, n.weight(r.normal(size=(6, 5)) * 0.5, stored=stored)])
    if output:
        y = n.learn(y, act)
    return n, n.model(y)


def mlp(form="qdq", act="uint8", axis=None, stored="pair", gemm=False, opset=13, seed=2):
    n = Net([4, 16], opset, seed, form)
    r = n.rng
    y = n.learn("x", act)
    for i, (a, b) in enumerate([(16, 24), (24, 12), (12, 7)]):
        if gemm:
            w = n.weight(r.normal(size=(b, a)) * 0.3, axis=None if axis is None else 0, stored=stored)
            y = n.op("Gemm", [y, w, n.init(r.normal(size=b).astype(np.float32) * 0.2)], transB=1)
        else:
            w = n.weight(r.normal(size=(a, b)) * 0.3, axis=None if axis is None else 1, stored=stored)
            y = n.op("Add", [n.op("MatMul", [y, w]), n.init(r.normal(size=b).astype(np.float32) * 0.2)])
        if i < 2:
            y = n.learn(n.op("Relu", [y]), act)
    return n, n.model(y)


def residual(form="qdq", act="uint8", stored="pair", seed=3):
    """x -> Conv -> Relu -> (Conv -> +) -> Relu -> Conv: the shortcut and the branch have pairs of their own."""
    n = Net([1, 4, 8, 8], 13, seed, form)
    r = n.rng
    x = n.learn("x", act)
    a = n.op("Relu", [n.op("Conv", [x, n.weight(r.normal(size=(4, 4, 3, 3)) * 0.2, stored=stored)], pads=[1] * 4)])
    a = n.learn(a, act)
    b = n.op("Conv", [a, n.weight(r.normal(size=(4, 4, 3, 3)) * 0.2, stored=stored)], pads=[1] * 4)
    b = n.learn(b, act)
    c = n.learn(n.op("Relu", [n.op("Add", [a, b])]), act)
    return n, n.model(n.op("Conv", [c, n.weight(r.normal(size=(3, 4, 1, 1)) * 0.4, stored=stored)]))


def shared(same=True, form="qdq", seed=4):
    """One activation with a pair for each of its two readers: equal, or with other parameters."""
    n = Net([1, 3, 6, 6], 13, seed, form)
    r = n.rng
    a = n.op("Sigmoid", ["x"])
    one = n.pair(a, 0.0041, np.uint8(3))
    two = n.pair(a, 0.0041 if same else 0.0053, np.uint8(3) if same else np.uint8(9))
    y = n.op("Conv", [one, n.weight(r.normal(size=(4, 3, 3, 3)) * 0.2)])
    z = n.op("Conv", [two, n.weight(r.normal(size=(4, 3, 3, 3)) * 0.2)])
    return n, n.model(n.op("Add", [y, z]))


def activations_only(seed=5, bias=True, per="uint8", opset=13):
    """What quantize_qat of 1.8.1 takes: pairs after nodes, none on the input or on weights."""
    n = Net([1, 3, 10, 10], opset, seed)
    r = n.rng
    x = n.op("Sigmoid", ["x"])
    x = n.pair(x, 0.0039, np.uint8(2))
    extra = [n.init(r.normal(size=6).astype(np.float32), "b")] if bias else []
    y = n.op("Conv", [x, n.init((r.normal(size=(6, 3, 3, 3)) * 0.2).astype(np.float32), "w")] + extra)
    y = n.pair(n.op("Relu", [y]), 0.0123, np.uint8(0))
    y = n.op("Conv", [y, n.init((r.normal(size=(4, 6, 3, 3)) * 0.2).astype(np.float32), "w")], strides=[2, 2])
    y = n.op("Flatten", [n.op("Relu", [y])])  # no pair here: dynamic
    y = n.op("MatMul", [y, n.init((r.normal(size=(36, 9)) * 0.2).astype(np.float32), "w")])
    y = n.pair(n.op("Tanh", [y]), 0.0078, np.uint8(128))
    y = n.op("MatMul", [y, n.init((r.normal(size=(9, 4)) * 0.2).astype(np.float32), "w")])
    return n, n.model(y)


# ---- quantize_qat of onnxruntime 1.8.1

def old_tool():
    """The module onnx_quantizer of the wheel, or None."""
    home = ROOT / "build" / "ort181"
    if not (home / "ortq181").exists():
        home.mkdir(parents=True, exist_ok=True)
        words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "onnxruntime==1.8.1",
                 "--python-version", "3.9", "--only-binary=:all:", "--platform", "manylinux2014_x86_64", "-d", str(home)]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            return None
        wheels = list(home.glob("*.whl"))
        if done.returncode != 0 or not wheels:
            return None
        with zipfile.ZipFile(wheels[0]) as z:
            z.extractall(home, [f for f in z.namelist() if f.startswith("onnxruntime/quantization/")])
        shutil.move(home / "onnxruntime" / "quantization", home / "ortq181")
        (home / "ortq181" / "__init__.py").write_text("")
        wheels[0].unlink()
    if not hasattr(onnx, "mapping"):
        onnx.mapping = types.SimpleNamespace(TENSOR_TYPE_TO_NP_TYPE={
            TensorProto.INT8: np.dtype("int8"), TensorProto.UINT8: np.dtype("uint8"), TensorProto.FLOAT: np.dtype("float32")})
    sys.path.insert(0, str(home))
    try:
        return importlib.import_module("ortq181.onnx_quantizer"), importlib.import_module("ortq181.quant_utils")
    finally:
        sys.path.pop(0)


def old_quantize(tools, model, per_channel=False, reduce_range=False, weight="QUInt8", exclude=(),
                 op_types=("Conv", "MatMul", "Attention", "LSTM", "Gather", "EmbedLayerNormalization")):
    """What quantize_qat makes of the model, without the runtime's optimiser before it."""
    quantizer, utils = tools
    return quantizer.ONNXQuantizer(
        onnx.ModelProto.FromString(model.SerializeToString()), per_channel, reduce_range, utils.QuantizationMode.IntegerOps,
        False, getattr(utils.QuantType, weight), utils.QuantType.QUInt8, None, [], list(exclude),
        list(op_types)).quantize_model()
