"""llm_model.py - a real language model for bench/llm.py: the weights and the vocabulary of a GGUF file of a Llama-like
model as an ONNX decoder with states, in float, and text as its tokens.

Tensors of the types F32, F16, Q4_0, Q4_1 and Q8_0 are known. The decoder has a batch of one; inputs and outputs have the
names of the exporters: input_ids, attention_mask, position_ids, past_key_values.N.key, logits, present.N.key.
"""
import re
import struct

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


# ---- GGUF ----

class Gguf:
    """What a file says of itself (`about`), and its tensors."""

    NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def __init__(self, data):
        self.data, self.at = data, 0
        magic, version, tensors, pairs = self.take("4sIQQ")
        assert magic == b"GGUF" and version in (2, 3), (magic, version)
        self.about = {}
        for _ in range(pairs):
            key = self.text()
            self.about[key] = self.value(*self.take("I"))
        self.tensors = {}
        for _ in range(tensors):
            name, (rank,) = self.text(), self.take("I")
            dims, (kind, offset) = self.take(f"{rank}Q"), self.take("IQ")
            self.tensors[name] = (dims[::-1], kind, offset)
        align = self.about.get("general.alignment", 32)
        self.begin = (self.at + align - 1) // align * align

    def take(self, layout):
        got = struct.unpack_from("<" + layout, self.data, self.at)
        self.at += struct.calcsize("<" + layout)
        return got

    def text(self):
        (n,) = self.take("Q")
        self.at += n
        return bytes(self.data[self.at - n:self.at]).decode("utf-8", "replace")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, n = self.take("IQ")
            if inner in self.NUMBERS:
                return list(self.take(f"{n}{self.NUMBERS[inner]}"))
            return [self.value(inner) for _ in range(n)]
        return self.take(self.NUMBERS[kind])[0]

    def tensor(self, name):
        dims, kind, offset = self.tensors[name]
        n, at = int(np.prod(dims)), self.begin + offset
        if kind in (0, 1):
            return np.frombuffer(self.data, np.float32 if kind == 0 else np.float16, n, at).astype(np.float32).reshape(dims)
        size = {2: 18, 3: 20, 8: 34}[kind]
        rows = np.frombuffer(self.data, np.uint8, n // 32 * size, at).reshape(-1, size)
        scale = rows[:, :2].copy().view(np.float16).astype(np.float32)
        if kind == 8:
            return (rows[:, 2:].view(np.int8) * scale).reshape(dims)
        nibbles = np.concatenate([rows[:, size - 16:] & 15, rows[:, size - 16:] >> 4], 1).astype(np.float32)
        low = rows[:, 2:4].copy().view(np.float16).astype(np.float32) if kind == 3 else -8 * scale
        return (nibbles * scale + low).reshape(dims)


# ---- text ----

def words(gguf):
    """A function that turns text into tokens: the byte-pair encoding of the file."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    shown = {b: chr(b) for b in plain}
    shown.update({b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in shown)})
    number = {t: i for i, t in enumerate(gguf.about["tokenizer.ggml.tokens"])}
    rank = {tuple(m.split(" ")): i for i, m in enumerate(gguf.about["tokenizer.ggml.merges"])}
    split = re.compile(r"'(?:[stmd]|re|ve|ll)|\d| ?[^\W\d_]+| ?[^\s\w]+|_+|\s+(?!\S)|\s+")
    known = {}

    def encode_word(word):
        parts = [shown[b] for b in word.encode()]
        while len(parts) > 1:
            best = min(range(len(parts) - 1), key=lambda i: rank.get((parts[i], parts[i + 1]), len(rank)))
            if (parts[best], parts[best + 1]) not in rank:
                break
            parts[best:best + 2] = [parts[best] + parts[best + 1]]
        return [number[p] for p in parts if p in number]

    def encode(text):
        ids = []
        for word in split.findall(text):
            if word not in known:
                known[word] = encode_word(word)
            ids += known[word]
        return ids
    return encode


# ---- the graph ----

class Graph:
    def __init__(self):
        self.nodes, self.inits, self.n = [], {}, 0

    def op(self, kind, *inputs, name=None, out=None, **attributes):
        self.n += 1
        out = out or f"t{self.n}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name or f"{kind}_{self.n}", **attributes))
        return out

    def const(self, name, values):
        self.inits.setdefault(name, numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def ints(self, *values):
        return self.const("ints_" + "_".join(map(str, values)), np.array(values, np.int64))


def unturned(w, heads):
    """Rows of query and key projections as an export has them; the file has them in pairs."""
    return w.reshape(heads, w.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(w.shape)


def write_decoder(gguf, path):
    a = {k.split(".", 1)[1]: v for k, v in gguf.about.items() if k.startswith("llama.")}
    width, heads, groups, layers = a["embedding_length"], a["attention.head_count"], a["attention.head_count_kv"], a["block_count"]
    depth, g = width // heads, Graph()
    many = heads // groups

    def norm(x, name, key):
        mean = g.op("ReduceMean", g.op("Mul", x, x), axes=[-1], keepdims=1)
        root = g.op("Sqrt", g.op("Add", mean, g.const("eps", np.float32(a["attention.layer_norm_rms_epsilon"]))))
        return g.op("Mul", g.op("Div", x, root), g.const(name, gguf.tensor(key)))

    def product(x, name, key, turn=0):
        w = gguf.tensor(key)
        w = unturned(w, turn) if turn else w
        return g.op("MatMul", x, g.const(name + ".weight", w.T), name="/" + name.replace(".", "/").replace("layers/", "layers.") + "/MatMul")

    def rope(x, cos, sin):
        low, high = (g.op("Slice", x, g.ints(i * depth // 2), g.ints((i + 1) * depth // 2), g.ints(-1)) for i in (0, 1))
        return g.op("Add", g.op("Mul", x, cos), g.op("Mul", g.op("Concat", g.op("Neg", high), low, axis=-1), sin))

    table = gguf.tensor("token_embd.weight")
    x = g.op("Gather", g.const("model.embed_tokens.weight", table), "input_ids", name="/model/embed_tokens/Gather")
    places = np.arange(a["context_length"])[:, None] / a.get("rope.freq_base", 10000.0) ** (np.arange(0, depth, 2) / depth)
    turns = np.concatenate([places, places], 1)
    cos, sin = (g.op("Unsqueeze", g.op("Gather", g.const(n, f(turns).astype(np.float32)), "position_ids"), g.ints(1))
                for n, f in (("cos", np.cos), ("sin", np.sin)))
    cos_q, sin_q = (g.op("Unsqueeze", t, g.ints(1)) for t in (cos, sin))
    total = g.op("Gather", g.op("Shape", "attention_mask"), g.const("one", np.int64(1)))
    keys = g.op("Range", g.const("nought", np.int64(0)), total, "one")
    seen = g.op("LessOrEqual", keys, g.op("Unsqueeze", "position_ids", g.ints(2)))
    mask = g.op("Where", seen, g.const("zero", np.float32(0)), g.const("never", np.float32(-1e9)))
    mask = g.op("Unsqueeze", mask, g.ints(1, 2))
    value, states, after = helper.make_tensor_value_info, [], []
    for i in range(layers):
        own, blk = f"model.layers.{i}", f"blk.{i}"
        h = norm(x, own + ".input_layernorm.weight", blk + ".attn_norm.weight")
        q = product(h, own + ".self_attn.q_proj", blk + ".attn_q.weight", heads)
        k = product(h, own + ".self_attn.k_proj", blk + ".attn_k.weight", groups)
        v = product(h, own + ".self_attn.v_proj", blk + ".attn_v.weight")
        q = g.op("Transpose", g.op("Reshape", q, g.ints(1, -1, groups, many, depth)), perm=[0, 2, 3, 1, 4])
        k, v = (g.op("Transpose", g.op("Reshape", t, g.ints(1, -1, groups, depth)), perm=[0, 2, 1, 3]) for t in (k, v))
        q, k = rope(q, cos_q, sin_q), rope(k, cos, sin)
        pair = []
        for name, t in (("key", k), ("value", v)):
            states.append(value(f"past_key_values.{i}.{name}", TensorProto.FLOAT, [1, groups, "past", depth]))
            after.append(value(f"present.{i}.{name}", TensorProto.FLOAT, [1, groups, "total", depth]))
            t = g.op("Concat", f"past_key_values.{i}.{name}", t, out=f"present.{i}.{name}", axis=2)
            pair.append(g.op("Unsqueeze", t, g.ints(2)))
        scores = g.op("Mul", g.op("MatMul", q, g.op("Transpose", pair[0], perm=[0, 1, 2, 4, 3])), g.const("root", np.float32(depth ** -0.5)))
        mixed = g.op("MatMul", g.op("Softmax", g.op("Add", scores, mask), axis=-1), pair[1])
        mixed = g.op("Reshape", g.op("Transpose", mixed, perm=[0, 3, 1, 2, 4]), g.ints(1, -1, width))
        x = g.op("Add", x, product(mixed, own + ".self_attn.o_proj", blk + ".attn_output.weight"))
        h = norm(x, own + ".post_attention_layernorm.weight", blk + ".ffn_norm.weight")
        gate = product(h, own + ".mlp.gate_proj", blk + ".ffn_gate.weight")
        up = product(h, own + ".mlp.up_proj", blk + ".ffn_up.weight")
        h = g.op("Mul", g.op("Mul", gate, g.op("Sigmoid", gate)), up)
        x = g.op("Add", x, product(h, own + ".mlp.down_proj", blk + ".ffn_down.weight"))
    head = gguf.tensor("output.weight" if "output.weight" in gguf.tensors else "token_embd.weight")
    x = norm(x, "model.norm.weight", "output_norm.weight")
    g.op("MatMul", x, g.const("lm_head.weight", head.T), name="/lm_head/MatMul", out="logits")
    ids = [value(n, TensorProto.INT64, [1, s]) for n, s in (("input_ids", "length"), ("attention_mask", "total"), ("position_ids", "length"))]
    out = [value("logits", TensorProto.FLOAT, [1, "length", head.shape[0]])]
    graph = helper.make_graph(g.nodes, "decoder", ids + states, out + after, list(g.inits.values()))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_name(path.name + ".data").unlink(missing_ok=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path,
              save_as_external_data=True, location=path.name + ".data")
