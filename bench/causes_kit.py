"""What the sets of cases of bench_causes.py share: graphs that grow node by node, changes to quantized models, figures."""
import collections
import json
import math
import os
import subprocess

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
ONQ = os.environ.get("ONQ", os.path.join(HERE, "..", "build", "onq"))
MODELS = os.environ.get("ONQ_MODELS", os.path.join(HERE, "..", "..", "shared", "models"))

# float model, quantized model, samples for debug, samples that judge, options that made it, causes that are right
# (None: any), names of which the first cause must mention one, names of the nodes of the trouble, command
Case = collections.namedtuple("Case", "given made data hold options right names block command")


def onq(*words, check=True):
    run = subprocess.run([ONQ, *map(str, words)], capture_output=True, text=True)
    if check and run.returncode != 0:
        raise RuntimeError(f"onq {' '.join(map(str, words))}: {run.stderr.strip()}")
    return run.stdout


# ---- float models ----


class Net:
    """A graph that grows node by node; every method returns the name of the tensor that it makes."""

    def __init__(self, shape, seed=0, constants=False):
        self.rng = np.random.default_rng(seed)
        self.nodes, self.inits, self.n = [], [], 0
        self.shape, self.constants, self.kind = shape, constants, TensorProto.FLOAT

    def init(self, value):
        self.n += 1
        name = f"w{self.n}"
        value = np.asarray(value)
        tensor = numpy_helper.from_array(value if value.dtype in (np.int64, bool) else value.astype(np.float32), name)
        if self.constants:
            self.nodes.append(helper.make_node("Constant", [], [name], name=f"constant{self.n}", value=tensor))
        else:
            self.inits.append(tensor)
        return name

    def op(self, kind, *inputs, **attributes):
        self.n += 1
        name = f"t{self.n}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], name=f"{kind.lower()}_{self.n}", **attributes))
        return name

    def dense(self, x, n_in, n_out, scale=None):
        w = self.rng.normal(size=(n_in, n_out)) / math.sqrt(n_in)
        if scale is not None:
            w = w * scale
        return self.op("Add", self.op("MatMul", x, self.init(w)), self.init(0.1 * self.rng.normal(size=n_out)))

    def conv(self, x, n_in, n_out, k=3, scale=None):
        w = self.rng.normal(size=(n_out, n_in, k, k)) / math.sqrt(n_in * k * k)
        if scale is not None:
            w = w * np.asarray(scale).reshape(-1, 1, 1, 1)
        b = 0.1 * self.rng.normal(size=n_out)
        return self.op("Conv", x, self.init(w), self.init(b), pads=[k // 2] * 4)

    def save(self, path, out):
        graph = helper.make_graph(self.nodes, "net",
                                  [helper.make_tensor_value_info("x", self.kind, self.shape)],
                                  [helper.make_tensor_value_info(out, TensorProto.FLOAT, None)], self.inits)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        model = onnx.shape_inference.infer_shapes(model)
        onnx.save(model, path)
        return path


# ---- spoiling a quantized model ----


def initializer(model, name):
    return next(i for i in model.graph.initializer if i.name == name)


def replace(model, name, value):
    old = initializer(model, name)
    new = numpy_helper.from_array(np.asarray(value, numpy_helper.to_array(old).dtype), name)
    old.CopyFrom(new)


def pairs(model):
    """QuantizeLinear nodes of activations, in the order of the graph."""
    return [n for n in model.graph.node if n.op_type == "QuantizeLinear"]


def weights(model):
    """(initializer, scale) of weights: two axes and more."""
    names = {i.name: i for i in model.graph.initializer}
    return [(n.input[0], n.input[1]) for n in model.graph.node
            if n.op_type == "DequantizeLinear" and n.input[0] in names and len(names[n.input[0]].dims) >= 2]


def spoil(path, how):
    model = onnx.load(path)
    how(model)
    onnx.save(model, path)



def value_of(model, name):
    return numpy_helper.to_array(initializer(model, name))


def figure(v):
    return 60.0 if v is None or v > 60 else max(v, -20.0)


FLOATS = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)


def reals(path):
    """The outputs of a model that are no integers, which may be numbers of classes: half a class is no noise."""
    return {o.name for o in onnx.load(path, load_external_data=False).graph.output if o.type.tensor_type.elem_type in FLOATS}


def sqnr(given, paths, data, limit=16):
    """dB of the worst output of each model, as debug judges them, at most 60 and at least -20; NaN counts as -20."""
    out = json.loads(onq("bench", given, *paths, "--data", data, "--limit", limit, "--runs", 1, "--json"))
    names, found = reals(given), []
    for m in out["models"][1:]:
        a = m["agreement"]
        answers = [o["sqnr"] for o in a["outputs"] if o["name"] in names and o["name"] not in a["states"]]
        found.append(-20.0 if not a["finite"] else min(map(figure, answers)) if answers else figure(a["sqnr"]))
    return found
