"""big_models.py - the large models of the benchmarks: n MatMuls of 4096 x 4096 float32, inline or with external data.

The weights are different random numbers, so that nothing is sparse and nothing is shared.
"""
import os
import pathlib

import numpy as np
from onnx import TensorProto, helper

SIDE = 4096


def make(path, n, external):
    """Writes the model unless it is there; returns its path."""
    path = pathlib.Path(path)
    if path.exists():
        return path
    nodes, inits, last = [], [], "x"
    for i in range(n):
        t = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[SIDE, SIDE])
        w = (np.random.default_rng(i).standard_normal((SIDE, SIDE), dtype=np.float32) * np.float32(0.02)).tobytes()
        if external:
            with open(f"{path}.data", "ab") as f:
                offset = f.tell()
                f.write(w)
            t.data_location = TensorProto.EXTERNAL
            for k, v in (("location", path.name + ".data"), ("offset", str(offset)), ("length", str(len(w)))):
                t.external_data.add(key=k, value=v)
        else:
            t.raw_data = w
        inits.append(t)
        nodes.append(helper.make_node("MatMul", [last, t.name], [f"y{i}"], f"mm{i}"))
        last = f"y{i}"
    shape = ["n", SIDE]
    graph = helper.make_graph(nodes, "big", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info(last, TensorProto.FLOAT, shape)], inits)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with open(path, "wb") as f:
        f.write(model.SerializeToString())
    return path


def size(n):
    """The weights of n MatMuls, as a text."""
    return f"{n * SIDE ** 2 * 4 / 1e9:.1f} GB"


def files(path):
    return [p for p in (str(path), f"{path}.data") if os.path.exists(p)]


def cache(path):
    """Brings the files into the page cache."""
    for p in files(path):
        with open(p, "rb") as f:
            while f.read(1 << 24):
                pass


def remove(path):
    for p in files(path):
        os.remove(p)
