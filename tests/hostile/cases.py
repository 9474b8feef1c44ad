"""cases.py - the register of hostile cases, and the sound models that they spoil.

A family is a generator function with a class of bad input; it gives pairs of a name and a content. The content of a model is
its bytes, a ModelProto, or a function that gets the folder and writes what it likes there. Families draw from the Random they
are given and from nothing else, so a seed says all.

    slot    what is bad: model (every command meets it), or what only some commands read: overrides, settings, samples,
            images, gguf, output, words (the command line)
    files   names of which one must be in a refusal
    wants   refused or done, where only that is right; else either may come
    right   a result must compute what the model computed
    heavy   the runtime takes too long over it to load the result as well
    always  commands that run it in every sample: what was found once and mended
    allow   by command: how many times the limits of time and memory it may take, where honest work takes that
"""
import dataclasses
import os
import random
import typing

import numpy as np
from onnx import TensorProto, helper, numpy_helper


@dataclasses.dataclass
class Case:
    cls: str
    name: str
    content: typing.Any
    slot: str = "model"
    files: tuple = ("m.onnx",)
    wants: str = ""
    right: bool = False
    heavy: bool = False
    always: tuple = ()
    allow: dict = dataclasses.field(default_factory=dict)

    def write(self, folder):
        if callable(self.content):
            made = self.content(folder)
            if made is None:
                return
            data = made
        else:
            data = self.content
        (folder / "m.onnx").write_bytes(data if isinstance(data, bytes) else data.SerializeToString())


FAMILIES = []


def family(cls, **fields):
    def register(make):
        FAMILIES.append((cls, fields, make))
        return make

    return register


def everything(seed):
    """All cases of a seed, in a fixed order."""
    found = []
    for cls, fields, make in FAMILIES:
        r = random.Random(f"{seed}:{cls}:{make.__name__}")
        for name, content, *more in make(r):
            found.append(Case(cls, name, content, **{**fields, **(more[0] if more else {})}))
    names = [(c.cls, c.name) for c in found]
    assert len(names) == len(set(names)), [n for n in names if names.count(n) > 1]
    return found


# ---- sound models

def array(name, values, dtype=np.float32):
    return numpy_helper.from_array(np.asarray(values, dtype=dtype), name)


def normal(name, *shape, seed=3):
    """Weights that are the same in every process."""
    return array(name, np.random.default_rng([seed, *map(ord, name)]).standard_normal(shape))


def value(name, dims, dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, dims)


def wrap(nodes, inputs, outputs, weights, opset=13, ir=8, **more):
    graph = helper.make_graph(nodes, "g", inputs, outputs, weights, **more)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def network(opset=13, ir=8, nodes=None, more=()):
    """Conv, Relu, Flatten, MatMul."""
    nodes = nodes or [
        helper.make_node("Conv", ["X", "W", "B"], ["c"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "relu"),
        helper.make_node("Flatten", ["r"], ["f"], "flat"),
        helper.make_node("MatMul", ["f", "M"], ["Y"], "mm"),
    ]
    weights = [normal("W", 4, 3, 3, 3), normal("B", 4), normal("M", 64, 5)]
    return wrap(nodes, [value("X", [1, 3, 4, 4])], [value("Y", [1, 5])], weights + list(more), opset, ir)


def language(opset=17):
    """Gather, MatMul, Add, LayerNormalization, Gemm, Softmax."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"], "embed"),
        helper.make_node("MatMul", ["e", "K"], ["k"], "keys"),
        helper.make_node("Add", ["k", "e"], ["s"], "skip"),
        helper.make_node("LayerNormalization", ["s", "g1", "g2"], ["n"], "norm", axis=-1),
        helper.make_node("Gemm", ["n", "G", "H"], ["l"], "head", transB=1),
        helper.make_node("Softmax", ["l"], ["P"], "out", axis=-1),
    ]
    weights = [normal("table", 9, 32), normal("K", 32, 32), normal("g1", 32), normal("g2", 32), normal("G", 7, 32), normal("H", 7)]
    return wrap(nodes, [value("ids", ["n"], TensorProto.INT64)], [value("P", ["n", 7])], weights, opset)


def branches(opset=13):
    """An If with a MatMul in each branch."""

    def body(name):
        return helper.make_graph([helper.make_node("MatMul", ["X", name], [f"{name}_out"], f"mm_{name}")], f"branch_{name}", [],
                                 [value(f"{name}_out", [2, 8])], [normal(name, 8, 8)])

    nodes = [helper.make_node("ReduceSum", ["X"], ["total"], "sum", keepdims=0),
             helper.make_node("Greater", ["total", "zero"], ["yes"], "greater"),
             helper.make_node("If", ["yes"], ["I"], "if", then_branch=body("A"), else_branch=body("B")),
             helper.make_node("MatMul", ["I", "M"], ["Y"], "mm")]
    return wrap(nodes, [value("X", [2, 8])], [value("Y", [2, 5])], [array("zero", 0.0), normal("M", 8, 5)], opset)


def trained():
    """A fake-quantized MatMul: pairs on its input and on its weight."""
    nodes = []
    for name in ("x", "w"):
        nodes += [helper.make_node("QuantizeLinear", [name, "s", "z"], [f"{name}q"], f"q_{name}"),
                  helper.make_node("DequantizeLinear", [f"{name}q", "s", "z"], [f"{name}d"], f"d_{name}")]
    nodes.append(helper.make_node("MatMul", ["xd", "wd"], ["y"], "mm"))
    return wrap(nodes, [value("x", [1, 8])], [value("y", [1, 4])],
                [normal("w", 8, 4), array("s", 0.02), array("z", 128, np.uint8)])


BASES = {"network": network, "language": language, "branches": branches, "trained": trained}


def base(r):
    name = r.choice(["network", "network", "language", "branches", "trained"])
    return name, BASES[name]()


def damaged(change, model=None):
    """A sound model after one change in place."""
    model = model if model is not None else network()
    change(model)
    return model


def put(folder, name, data):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def sound(folder):
    """The model beside a file that is bad."""
    put(folder, "m.onnx", network().SerializeToString())


def fifo(path):
    os.mkfifo(path)
