"""Small models with states: a GRU and an LSTM with states outside, decoders with a cache, one of them merged by If."""

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto as T
from onnx import helper as h
from onnx import numpy_helper

VOCABULARY, WIDTH, HEADS = 50, 16, 2
DEPTH = WIDTH // HEADS


def weight(rng, *shape):
    return rng.normal(0, 1 / np.sqrt(shape[-2]), shape).astype(np.float32)


def save(path, nodes, inputs, outputs, inits):
    inits = [numpy_helper.from_array(np.ascontiguousarray(v), k) for k, v in inits.items()]
    graph = h.make_graph(nodes, "g", inputs, outputs, inits)
    domains = {"", *(n.domain for n in nodes)}
    model = h.make_model(graph, opset_imports=[h.make_opsetid(d, 17 if d == "" else 1) for d in sorted(domains)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, path)
    return path


def cached(name, layer, merged):
    """The cache with the new part behind it; where the model is merged, in the branch that uses the past."""
    past, new, present = f"past_key_values.{layer}.{name}", f"{name[0]}2_{layer}", f"present.{layer}.{name}"
    if not merged:
        return [h.make_node("Concat", [past, new], [present], axis=2)]
    info = h.make_tensor_value_info
    join = h.make_graph([h.make_node("Concat", [past, new], [f"{name}_a{layer}"], axis=2)], "with_past", [],
                        [info(f"{name}_a{layer}", T.FLOAT, None)])
    alone = h.make_graph([h.make_node("Identity", [new], [f"{name}_b{layer}"])], "without_past", [],
                         [info(f"{name}_b{layer}", T.FLOAT, None)])
    return [h.make_node("If", ["branch"], [present], then_branch=join, else_branch=alone)]


def attention(k, x, merged):
    """The nodes of layer k from tensor x to y_k."""
    node = h.make_node
    nodes = []
    for c in "qkv":
        nodes += [
            node("MatMul", [x, f"w{c}_{k}"], [f"{c}0_{k}"]),
            node("Reshape", [f"{c}0_{k}", "shape4"], [f"{c}1_{k}"]),
            node("Transpose", [f"{c}1_{k}"], [f"{c}2_{k}"], perm=[0, 2, 1, 3]),
        ]
    nodes += cached("key", k, merged) + cached("value", k, merged)
    return nodes + [
        node("Transpose", [f"present.{k}.key"], [f"kt_{k}"], perm=[0, 1, 3, 2]),
        node("MatMul", [f"q2_{k}", f"kt_{k}"], [f"s0_{k}"]),
        node("Mul", [f"s0_{k}", "scale"], [f"s1_{k}"]),
        node("Where", ["seen", f"s1_{k}", "low"], [f"s2_{k}"]),
        node("Softmax", [f"s2_{k}"], [f"a_{k}"], axis=-1),
        node("MatMul", [f"a_{k}", f"present.{k}.value"], [f"c0_{k}"]),
        node("Transpose", [f"c0_{k}"], [f"c1_{k}"], perm=[0, 2, 1, 3]),
        node("Reshape", [f"c1_{k}", "shape3"], [f"c2_{k}"]),
        node("MatMul", [f"c2_{k}", f"wo_{k}"], [f"c3_{k}"]),
        node("Add", [x, f"c3_{k}"], [f"y_{k}"]),
    ]


def decoder(path, merged=False, seed=0, layers=1, width=WIDTH, heads=HEADS, vocabulary=VOCABULARY, positions=128):
    """Layers of attention, causal by position_ids. input_ids, attention_mask, position_ids, a cache for each layer."""
    rng = np.random.default_rng(seed)
    node = h.make_node
    depth = width // heads
    inits = {
        "emb": weight(rng, vocabulary, width) * 3,
        "pos": weight(rng, positions, width),
        "wl": weight(rng, width, vocabulary) * 2,
        "shape4": np.array([0, 0, heads, depth]),
        "shape3": np.array([0, 0, width]),
        "scale": np.array(1 / np.sqrt(depth), np.float32),
        "one": np.array(1),
        "zero": np.array(0),
        "low": np.array(-30, np.float32),
        "axes": np.array([1, 2]),
    }
    nodes = [
        node("Gather", ["emb", "input_ids"], ["e"]),
        node("Gather", ["pos", "position_ids"], ["p"]),
        node("Add", ["e", "p"], ["x"]),
        node("Shape", ["attention_mask"], ["sizes"]),
        node("Gather", ["sizes", "one"], ["total"]),
        node("Range", ["zero", "total", "one"], ["keys"]),
        node("Unsqueeze", ["position_ids", "axes"], ["rows0"]),
        node("Transpose", ["rows0"], ["rows"], perm=[0, 1, 3, 2]),
        node("LessOrEqual", ["keys", "rows"], ["seen"]),
    ]
    if merged:
        inits["axis0"] = np.array([0])
        nodes += [node("Squeeze", ["use_cache_branch", "axis0"], ["branch"])]
    for k in range(layers):
        inits.update({f"w{x}_{k}": weight(rng, width, width) for x in "qkvo"})
        nodes += attention(k, "x" if k == 0 else f"y_{k - 1}", merged)
    nodes += [node("Tanh", [f"y_{layers - 1}"], ["yt"]), node("MatMul", ["yt", "wl"], ["logits"])]
    info = h.make_tensor_value_info
    caches = [f"{k}.{n}" for k in range(layers) for n in ("key", "value")]
    inputs = [info(n, T.INT64, ["batch", s]) for n, s in
              (("input_ids", "length"), ("attention_mask", "total"), ("position_ids", "length"))]
    inputs += [info(f"past_key_values.{n}", T.FLOAT, ["batch", heads, "past", depth]) for n in caches]
    if merged:
        inputs += [info("use_cache_branch", T.BOOL, [1])]
    outputs = [info("logits", T.FLOAT, ["batch", "length", vocabulary])]
    outputs += [info(f"present.{n}", T.FLOAT, ["batch", heads, "total", depth]) for n in caches]
    return save(path, nodes, inputs, outputs, inits)


def grouped(path, seed=0, layers=2, heads=4, kv_heads=2, depth=16, vocabulary=VOCABULARY, type=np.float32):
    """A decoder as the builder of onnxruntime-genai writes it: GroupQueryAttention that rotates and keeps the cache."""
    rng = np.random.default_rng(seed)
    node, info, width = h.make_node, h.make_tensor_value_info, heads * depth
    elem = h.np_dtype_to_tensor_dtype(np.dtype(type))
    angles = np.outer(np.arange(256), 100.0 ** (-np.arange(0, depth, 2) / depth))
    inits = {"emb": weight(rng, vocabulary, width) * 3, "wl": weight(rng, width, vocabulary) * 2, "cos": np.cos(angles), "sin": np.sin(angles)}
    nodes = [
        node("Gather", ["emb", "input_ids"], ["x_0"]),
        node("ReduceSum", ["attention_mask", "axis"], ["tokens"]),
        node("Sub", ["tokens", "one"], ["last"]),
        node("Squeeze", ["last", "axis"], ["last1"]),
        node("Cast", ["last1"], ["seqlens"], to=T.INT32),
        node("Shape", ["attention_mask"], ["sizes"]),
        node("Gather", ["sizes", "place"], ["total0"]),
        node("Cast", ["total0"], ["total"], to=T.INT32),
    ]
    for k in range(layers):
        inits.update({f"wq_{k}": weight(rng, width, width), f"wk_{k}": weight(rng, width, kv_heads * depth),
                      f"wv_{k}": weight(rng, width, kv_heads * depth), f"wo_{k}": weight(rng, width, width)})
        nodes += [node("MatMul", [f"x_{k}", f"w{c}_{k}"], [f"{c}_{k}"]) for c in "qkv"]
        nodes += [
            node("GroupQueryAttention", [f"q_{k}", f"k_{k}", f"v_{k}", f"past_key_values.{k}.key", f"past_key_values.{k}.value",
                                         "seqlens", "total", "cos", "sin"],
                 [f"a_{k}", f"present.{k}.key", f"present.{k}.value"], name=f"attn_{k}", domain="com.microsoft",
                 num_heads=heads, kv_num_heads=kv_heads, do_rotary=1),
            node("MatMul", [f"a_{k}", f"wo_{k}"], [f"o_{k}"]),
            node("Add", [f"x_{k}", f"o_{k}"], [f"x_{k + 1}"]),
        ]
    nodes += [node("Tanh", [f"x_{layers}"], ["t"]), node("MatMul", ["t", "wl"], ["logits"])]
    inits = {n: v.astype(type) for n, v in inits.items()} | {"axis": np.array([1]), "one": np.array([1]), "place": np.array(1)}
    caches = [f"{k}.{n}" for k in range(layers) for n in ("key", "value")]
    inputs = [info("input_ids", T.INT64, ["batch", "length"]), info("attention_mask", T.INT64, ["batch", "total"])]
    inputs += [info(f"past_key_values.{n}", elem, ["batch", kv_heads, "past", depth]) for n in caches]
    outputs = [info("logits", elem, ["batch", "length", vocabulary])]
    outputs += [info(f"present.{n}", elem, ["batch", kv_heads, "total", depth]) for n in caches]
    return save(path, nodes, inputs, outputs, inits)


def recurrent(path, kind, seed=1):
    """x and states in, y and states out; a step at a time."""
    rng = np.random.default_rng(seed)
    size, hidden, gates = 6, 8, {"GRU": 3, "LSTM": 4}[kind]
    inits = {
        "W": weight(rng, 1, gates * hidden, size),
        "R": weight(rng, 1, gates * hidden, hidden),
        "wo": weight(rng, hidden, 4),
        "axis": np.array([1]),
    }
    info = h.make_tensor_value_info
    names = [("h0", "hn")] + ([("c0", "cn")] if kind == "LSTM" else [])
    inputs = [info("x", T.FLOAT, [1, 1, size])] + [info(a, T.FLOAT, [1, 1, hidden]) for a, _ in names]
    outputs = [info("y", T.FLOAT, [1, 1, 4])] + [info(b, T.FLOAT, [1, 1, hidden]) for _, b in names]
    nodes = [
        h.make_node(kind, ["x", "W", "R", "", ""] + [a for a, _ in names], ["Y"] + [b for _, b in names],
                    hidden_size=hidden),
        h.make_node("Squeeze", ["Y", "axis"], ["Y1"]),
        h.make_node("MatMul", ["Y1", "wo"], ["y"]),
    ]
    return save(path, nodes, inputs, outputs, inits)


def session(path, optimised=False):
    options = ort.SessionOptions()
    options.log_severity_level = 3
    if not optimised:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(str(path), options)


def speak(model, texts, generate=0, optimised=False):
    """The steps of a decoder as the reference would get them, one dictionary each, and the logits of each."""
    s = session(model, optimised)
    names = [i.name for i in s.get_inputs()]
    steps, logits = [], []
    for parts in texts:
        key = value = np.zeros((1, HEADS, 0, DEPTH), np.float32)
        todo = list(parts)
        for k in range(len(parts) + generate):
            ids = todo[k]
            past, length = key.shape[2], ids.shape[1]
            step = {
                "input_ids": ids,
                "attention_mask": np.ones((1, past + length), np.int64),
                "position_ids": np.arange(past, past + length)[None],
                "past_key_values.0.key": key,
                "past_key_values.0.value": value,
            }
            if "use_cache_branch" in names:
                step["use_cache_branch"] = np.array([past > 0])
            out, key, value = s.run(None, step)
            steps.append(step)
            logits.append(out)
            if len(todo) == k + 1:
                todo.append(out[:, -1].argmax(-1)[:, None])
    return steps, logits


def walk(model, sequences, optimised=False):
    """The steps of a recurrent model, and its y in each."""
    s = session(model, optimised)
    states = [i.name for i in s.get_inputs()][1:]
    steps, ys = [], []
    for xs in sequences:
        now = {n: np.zeros((1, 1, 8), np.float32) for n in states}
        for x in xs:
            step = {"x": x, **now}
            y, *left = s.run(None, step)
            now = dict(zip(states, left))
            steps.append(step)
            ys.append(y)
    return steps, ys
