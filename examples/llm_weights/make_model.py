#!/usr/bin/env python3
"""make_model.py FILE — a small stand-in for a language model: an embedding and two blocks of MatMul with random weights.

Weights only get fewer bits here, so that what the model was trained for does not matter. Needs the package onnx.
"""
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, HIDDEN, INNER = 512, 128, 352
random = np.random.default_rng(7)


def weight(name, *shape):
    return numpy_helper.from_array((random.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32), name)


nodes, weights, x = [helper.make_node("Gather", ["embedding", "ids"], ["x0"], "embed")], [weight("embedding", VOCABULARY, HIDDEN)], "x0"
for i in range(2):
    weights += [weight(f"up{i}", HIDDEN, INNER), weight(f"gate{i}", HIDDEN, INNER), weight(f"down{i}", INNER, HIDDEN)]
    nodes += [
        helper.make_node("MatMul", [x, f"up{i}"], [f"u{i}"], f"block{i}/up"),
        helper.make_node("MatMul", [x, f"gate{i}"], [f"g{i}"], f"block{i}/gate"),
        helper.make_node("Sigmoid", [f"g{i}"], [f"s{i}"], f"block{i}/sigmoid"),
        helper.make_node("Mul", [f"u{i}", f"s{i}"], [f"m{i}"], f"block{i}/mul"),
        helper.make_node("MatMul", [f"m{i}", f"down{i}"], [f"d{i}"], f"block{i}/down"),
        helper.make_node("Add", [x, f"d{i}"], [f"x{i + 1}"], f"block{i}/add"),
    ]
    x = f"x{i + 1}"
weights.append(weight("head", HIDDEN, VOCABULARY))
nodes.append(helper.make_node("MatMul", [x, "head"], ["logits"], "head"))
graph = helper.make_graph(
    nodes,
    "language_model",
    [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "sequence"])],
    [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "sequence", VOCABULARY])],
    weights,
)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), sys.argv[1])
