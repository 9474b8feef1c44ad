"""char_model.py - a small language model that was really trained, for measuring what weight-only quantization costs.

It reads characters of Python's own library, which every machine that runs this has, and predicts the next one: blocks of
RMSNorm, causal attention and a gated feed-forward layer, as large language models have them. Trained here with numpy in a
few minutes, once; `make` writes it as an ONNX model next to text it has not seen.
"""
import pathlib
import sys
import sysconfig

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH, INNER, HEADS, LAYERS, LENGTH = 192, 512, 6, 3, 96
BATCH, STEPS, RATE = 16, 700, 3e-3
SYMBOLS = 96  # printable ASCII and the end of a line


# ---- text ----

def corpus():
    """Characters as numbers: to train on, and of other files to judge by."""
    files = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))
    parts = ["".join(p.read_text(encoding="utf-8", errors="ignore") for p in files[i::8]) for i in range(8)]
    def numbers(text):
        raw = np.frombuffer(text.encode("ascii", "ignore"), np.uint8).astype(np.int64)
        raw = raw[((raw >= 32) & (raw < 127)) | (raw == 10)]
        return np.where(raw == 10, SYMBOLS - 1, raw - 32)
    return numbers("".join(parts[1:])), numbers(parts[0])


# ---- the network, forwards and backwards ----

def new_weights(rng):
    def matrix(rows, columns, gain=1.0):
        return (rng.standard_normal((rows, columns)) * gain / np.sqrt(rows)).astype(np.float32)
    w = {"symbols": matrix(SYMBOLS, WIDTH, 0.3 * np.sqrt(SYMBOLS)), "places": matrix(LENGTH, WIDTH, 0.3 * np.sqrt(LENGTH)),
         "norm": np.ones(WIDTH, np.float32), "head": matrix(WIDTH, SYMBOLS)}
    for i in range(LAYERS):
        for name in ("q", "k", "v", "o"):
            w[f"{name}{i}"] = matrix(WIDTH, WIDTH, 0.5 if name == "o" else 1.0)
        w[f"gate{i}"], w[f"up{i}"], w[f"down{i}"] = matrix(WIDTH, INNER), matrix(WIDTH, INNER), matrix(INNER, WIDTH, 0.5)
        w[f"norm_a{i}"], w[f"norm_b{i}"] = np.ones(WIDTH, np.float32), np.ones(WIDTH, np.float32)
    return w


def norm(x, gain):
    root = 1 / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-5)
    return x * root * gain, (x, root, gain)


def norm_back(d, kept):
    x, root, gain = kept
    unit = x * root
    inner = d * gain
    return root * (inner - unit * np.mean(inner * unit, -1, keepdims=True)), (d * unit).reshape(-1, WIDTH).sum(0)


def times(x, w):
    return (x.reshape(-1, w.shape[0]) @ w).reshape(*x.shape[:-1], w.shape[1])


def times_back(d, x, w):
    flat = d.reshape(-1, w.shape[1])
    return (flat @ w.T).reshape(x.shape), x.reshape(-1, w.shape[0]).T @ flat


def heads(x):
    return x.reshape(*x.shape[:2], HEADS, -1).transpose(0, 2, 1, 3)


def merged(x):
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], WIDTH)


def attend(h, w, i, mask):
    q, k, v = (heads(times(h, w[f"{n}{i}"])) for n in "qkv")
    scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(WIDTH / HEADS).astype(np.float32) + mask
    share = np.exp(scores - scores.max(-1, keepdims=True))
    share /= share.sum(-1, keepdims=True)
    mixed = merged(share @ v)
    return times(mixed, w[f"o{i}"]), (h, q, k, v, share, mixed)


def attend_back(d, kept, w, i, grads):
    h, q, k, v, share, mixed = kept
    d, grads[f"o{i}"] = times_back(d, mixed, w[f"o{i}"])
    d = heads(d)
    d_share = d @ v.transpose(0, 1, 3, 2)
    d_scores = share * (d_share - (d_share * share).sum(-1, keepdims=True)) / np.sqrt(WIDTH / HEADS).astype(np.float32)
    out = np.zeros_like(h)
    for name, part in (("q", d_scores @ k), ("k", d_scores.transpose(0, 1, 3, 2) @ q),
                       ("v", share.transpose(0, 1, 3, 2) @ d)):
        more, grads[f"{name}{i}"] = times_back(merged(part), h, w[f"{name}{i}"])
        out += more
    return out


def feed(h, w, i):
    gate, up = times(h, w[f"gate{i}"]), times(h, w[f"up{i}"])
    open_ = 1 / (1 + np.exp(-gate))
    inner = gate * open_ * up
    return times(inner, w[f"down{i}"]), (h, gate, up, open_, inner)


def feed_back(d, kept, w, i, grads):
    h, gate, up, open_, inner = kept
    d, grads[f"down{i}"] = times_back(d, inner, w[f"down{i}"])
    a, grads[f"gate{i}"] = times_back(d * up * open_ * (1 + gate * (1 - open_)), h, w[f"gate{i}"])
    b, grads[f"up{i}"] = times_back(d * gate * open_, h, w[f"up{i}"])
    return a + b


def causal(n):
    return np.triu(np.full((n, n), -1e4, np.float32), 1)


def step(w, text, wanted):
    """Loss and gradients of a batch."""
    mask, kept, grads = causal(text.shape[1]), [], {}
    x = w["symbols"][text] + w["places"][:text.shape[1]]
    for i in range(LAYERS):
        h, a = norm(x, w[f"norm_a{i}"])
        y, b = attend(h, w, i, mask)
        x = x + y
        h, c = norm(x, w[f"norm_b{i}"])
        y, e = feed(h, w, i)
        x = x + y
        kept.append((a, b, c, e))
    h, last = norm(x, w["norm"])
    scores = times(h, w["head"])
    likely = np.exp(scores - scores.max(-1, keepdims=True))
    likely /= likely.sum(-1, keepdims=True)
    rows = np.arange(wanted.size)
    flat = likely.reshape(-1, SYMBOLS)
    loss = -np.log(flat[rows, wanted.ravel()]).mean()
    flat[rows, wanted.ravel()] -= 1
    d, grads["head"] = times_back(likely / np.float32(wanted.size), h, w["head"])
    d, grads["norm"] = norm_back(d, last)
    for i in reversed(range(LAYERS)):
        a, b, c, e = kept[i]
        more, grads[f"norm_b{i}"] = norm_back(feed_back(d, e, w, i, grads), c)
        d = d + more
        more, grads[f"norm_a{i}"] = norm_back(attend_back(d, b, w, i, grads), a)
        d = d + more
    grads["places"] = np.zeros_like(w["places"])
    grads["places"][:text.shape[1]] = d.sum(0)
    grads["symbols"] = np.zeros_like(w["symbols"])
    np.add.at(grads["symbols"], text, d)
    return loss, grads


def train(text, say):
    rng = np.random.default_rng(5)
    w = new_weights(rng)
    slow = {k: (np.zeros_like(v), np.zeros_like(v)) for k, v in w.items()}
    for n in range(1, STEPS + 1):
        at = rng.integers(0, len(text) - LENGTH - 1, BATCH)[:, None] + np.arange(LENGTH + 1)
        loss, grads = step(w, text[at][:, :-1], text[at][:, 1:])
        rate = RATE * min(1, n / 50) * (0.05 + 0.95 * 0.5 * (1 + np.cos(np.pi * n / STEPS)))
        for k, g in grads.items():
            first, second = slow[k]
            first += 0.1 * (g - first)
            second += 0.01 * (g * g - second)
            w[k] -= np.float32(rate) * (first / (1 - 0.9 ** n)) / (np.sqrt(second / (1 - 0.99 ** n)) + 1e-8)
        if n % 50 == 0:
            say(f"  step {n} of {STEPS}: {loss:.3f} nats a character")
    return w


# ---- ONNX ----

def to_onnx(w):
    nodes, weights = [], [numpy_helper.from_array(v, k) for k, v in w.items()]

    def constant(name, value, dtype=np.float32):
        weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def op(kind, *inputs, name=None, **attributes):
        name = name or f"{kind}_{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [name + "_out"], name, **attributes))
        return name + "_out"

    small, root, two = constant("small", 1e-5), constant("root", np.sqrt(WIDTH / HEADS)), constant("two", 2)
    apart, together = constant("apart", [0, 0, HEADS, WIDTH // HEADS], np.int64), constant("together", [0, 0, WIDTH], np.int64)

    def normed(x, gain):
        mean = op("ReduceMean", op("Pow", x, two), axes=[-1], keepdims=1)
        return op("Mul", op("Div", x, op("Sqrt", op("Add", mean, small))), gain)

    def split(x, perm):
        return op("Transpose", op("Reshape", x, apart), perm=perm)

    zero, one, both = constant("zero", [0], np.int64), constant("one", [1], np.int64), constant("axes", [0, 1], np.int64)
    seq = op("Slice", op("Shape", "ids"), one, constant("end", [2], np.int64))
    square = op("Concat", seq, seq, axis=0)
    mask = op("Slice", constant("mask", causal(LENGTH)), constant("start", [0, 0], np.int64), square, both)
    x = op("Add", op("Gather", "symbols", "ids"), op("Slice", "places", zero, seq, zero))
    for i in range(LAYERS):
        h = normed(x, f"norm_a{i}")
        q, v = (split(op("MatMul", h, f"{n}{i}", name=f"layer{i}.{n}"), [0, 2, 1, 3]) for n in "qv")
        k = split(op("MatMul", h, f"k{i}", name=f"layer{i}.k"), [0, 2, 3, 1])
        share = op("Softmax", op("Add", op("Div", op("MatMul", q, k), root), mask), axis=-1)
        mixed = op("Reshape", op("Transpose", op("MatMul", share, v), perm=[0, 2, 1, 3]), together)
        x = op("Add", x, op("MatMul", mixed, f"o{i}", name=f"layer{i}.o"))
        h = normed(x, f"norm_b{i}")
        gate = op("MatMul", h, f"gate{i}", name=f"layer{i}.gate")
        inner = op("Mul", op("Mul", gate, op("Sigmoid", gate)), op("MatMul", h, f"up{i}", name=f"layer{i}.up"))
        x = op("Add", x, op("MatMul", inner, f"down{i}", name=f"layer{i}.down"))
    nodes.append(helper.make_node("MatMul", [normed(x, "norm"), "head"], ["scores"], "head"))
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "seq"])
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["batch", "seq", SYMBOLS])
    graph = helper.make_graph(nodes, "char_model", [ids], [scores], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def make(folder, say=print):
    """The model, samples to calibrate on (.npz) and text to judge by (rows of LENGTH + 1 numbers); made once."""
    folder = pathlib.Path(folder)
    model, data = folder / "char_model.onnx", folder / "char_model.npz"
    seen, unseen = corpus()
    if not model.exists():
        folder.mkdir(parents=True, exist_ok=True)
        say(f"training a model of {sum(v.size for v in new_weights(np.random.default_rng(0)).values()):,} parameters")
        made = to_onnx(train(seen, say))
        onnx.checker.check_model(made)
        onnx.save(made, model)
    rng = np.random.default_rng(6)
    at = rng.integers(0, len(seen) - LENGTH, 48)[:, None] + np.arange(LENGTH)
    np.savez(data, ids=seen[at][:, None])
    rows = unseen[:len(unseen) // (LENGTH + 1) * (LENGTH + 1)].reshape(-1, LENGTH + 1)
    return model, data, rows[rng.choice(len(rows), 200, replace=False)]


if __name__ == "__main__":
    make(sys.argv[1] if len(sys.argv) > 1 else "build/char_model")
