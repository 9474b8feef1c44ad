#!/usr/bin/env python3
"""train.py HELD_OUT TEXT... — how the files of this folder were made: a model of language in small, trained on the texts given.

It reads 16 letters and says which comes next. model.onnx, eval.npz and labels.npy (2,000 places of HELD_OUT, which it is
not trained on) and samples.npz (512 places of the others) are written beside this file. Needs numpy and onnx. The texts
were docs/guides/accuracy.md, held out, and the other pages of docs, README.md and CONTRIBUTING.md.
"""
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ALPHABET = "\n abcdefghijklmnopqrstuvwxyz0123456789.,:;-_`'\"()[]{}<>=/*|+#@!?"
LETTERS, CONTEXT, WIDTH, HIDDEN = 64, 16, 16, 96
EPOCHS, BATCH = 20, 256
assert len(ALPHABET) == LETTERS
here = Path(__file__).resolve().parent
random = np.random.default_rng(19)


def places(file):
    """Every run of CONTEXT letters, and the letter behind it."""
    text = Path(file).read_text().lower()
    ids = np.array([ALPHABET.index(c) for c in text if c in ALPHABET])
    windows = np.lib.stride_tricks.sliding_window_view(ids, CONTEXT + 1)
    return windows[:, :-1], windows[:, -1]


def some(x, y, count):
    rows = random.choice(len(x), count, replace=False)
    return x[rows], y[rows]


held_out, *others = sys.argv[1:]
x, y = (np.concatenate(parts) for parts in zip(*map(places, others)))
p = {
    "embedding": random.normal(0, 0.3, (LETTERS, WIDTH)),
    "hidden.weight": random.normal(0, (2 / (CONTEXT * WIDTH)) ** 0.5, (CONTEXT * WIDTH, HIDDEN)),
    "hidden.bias": np.zeros(HIDDEN),
    "head.weight": random.normal(0, HIDDEN**-0.5, (HIDDEN, LETTERS)),
    "head.bias": np.zeros(LETTERS),
}
p = {name: value.astype(np.float32) for name, value in p.items()}
mean, square = ({name: np.zeros_like(value) for name, value in p.items()} for _ in range(2))
step = 0
for epoch in range(EPOCHS):
    order, loss = random.permutation(len(x)), 0.0
    rate = 3e-3 * 0.5 * (1 + np.cos(np.pi * epoch / EPOCHS))
    for at in range(0, len(order) - BATCH, BATCH):
        ids, want = x[order[at : at + BATCH]], y[order[at : at + BATCH]]
        e = p["embedding"][ids].reshape(BATCH, -1)
        h = np.maximum(e @ p["hidden.weight"] + p["hidden.bias"], 0)
        z = h @ p["head.weight"] + p["head.bias"]
        z = np.exp(z - z.max(1, keepdims=True))
        z /= z.sum(1, keepdims=True)
        loss -= np.log(z[np.arange(BATCH), want]).sum()
        z[np.arange(BATCH), want] -= 1
        z /= BATCH
        dh = z @ p["head.weight"].T * (h > 0)
        de = np.zeros_like(p["embedding"])
        np.add.at(de, ids, (dh @ p["hidden.weight"].T).reshape(BATCH, CONTEXT, WIDTH))
        g = {"embedding": de, "hidden.weight": e.T @ dh, "hidden.bias": dh.sum(0), "head.weight": h.T @ z, "head.bias": z.sum(0)}
        step += 1
        for name in p:  # Adam
            mean[name] += 0.1 * (g[name] - mean[name])
            square[name] += 0.001 * (g[name] ** 2 - square[name])
            p[name] -= rate * (mean[name] / (1 - 0.9**step)) / (np.sqrt(square[name] / (1 - 0.999**step)) + 1e-8)
    print(f"epoch {epoch + 1}: {loss / len(order):.3f}", flush=True)

node = helper.make_node
graph = helper.make_graph(
    [
        node("Gather", ["embedding", "letters"], ["embedded"], "embed"),
        node("Flatten", ["embedded"], ["flat"], "flatten"),
        node("MatMul", ["flat", "hidden.weight"], ["hidden.product"], "hidden/MatMul"),
        node("Add", ["hidden.product", "hidden.bias"], ["hidden.sum"], "hidden/Add"),
        node("Relu", ["hidden.sum"], ["hidden"], "hidden/Relu"),
        node("MatMul", ["hidden", "head.weight"], ["head.product"], "head/MatMul"),
        node("Add", ["head.product", "head.bias"], ["logits"], "head/Add"),
    ],
    "next_letter",
    [helper.make_tensor_value_info("letters", TensorProto.INT64, ["batch", CONTEXT])],
    [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", LETTERS])],
    [numpy_helper.from_array(value, name) for name, value in p.items()],
)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
onnx.checker.check_model(model)
onnx.save(model, here / "model.onnx")
ids, want = some(*places(held_out), 2000)
np.savez_compressed(here / "eval.npz", letters=ids)
np.save(here / "labels.npy", want.astype(np.int16))
np.savez_compressed(here / "samples.npz", letters=some(x, y, 512)[0])
