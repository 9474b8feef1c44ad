"""test_gguf.py - `onq nbits --weights FILE.gguf`: blocks that stay as they are, types that are quantized anew, names, rows of
rotary embeddings, and files that lie."""
import json
import struct

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from common import onq
from running import loads, outputs, sqnr

WIDTH, INNER, HEADS, VOCAB = 256, 512, 4, 96
TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q5_0": 6, "Q5_1": 7, "Q8_0": 8, "Q2_K": 10, "Q3_K": 11, "Q4_K": 12, "Q5_K": 13,
         "Q6_K": 14, "BF16": 30}


def blocks(kind, rng, n):
    """Bytes of n numbers in blocks of that type, and the numbers as floats: what ggml's documentation says of each."""
    half = lambda a: np.asarray(a, np.float16).view(np.uint8).reshape(-1, 2)
    if kind == "F32":
        x = rng.standard_normal(n).astype(np.float32)
        return x.tobytes(), x
    if kind in ("F16", "BF16"):
        x = rng.standard_normal(n).astype(np.float32)
        if kind == "F16":
            return x.astype(np.float16).tobytes(), x.astype(np.float16).astype(np.float32)
        top = (x.view(np.uint32) >> 16).astype(np.uint16)
        return top.tobytes(), (top.astype(np.uint32) << 16).view(np.float32)
    size = 256 if kind.endswith("K") else 32
    b = n // size
    d, m = (rng.uniform(0.001, 0.02, b).astype(np.float16) for _ in range(2))
    D, M = d.astype(np.float32)[:, None], m.astype(np.float32)[:, None]
    if kind == "Q8_0":
        q = rng.integers(-128, 128, (b, 32)).astype(np.int8)
        return np.hstack([half(d), q.view(np.uint8)]).tobytes(), (D * q).ravel()
    if kind in ("Q4_0", "Q4_1"):
        q = rng.integers(0, 16, (b, 32)).astype(np.uint8)
        packed = q[:, :16] | q[:, 16:] << 4
        if kind == "Q4_0":
            return np.hstack([half(d), packed]).tobytes(), (D * (q.astype(np.float32) - 8)).ravel()
        return np.hstack([half(d), half(-m), packed]).tobytes(), (D * q - M).ravel()
    if kind in ("Q5_0", "Q5_1"):
        q = rng.integers(0, 32, (b, 32)).astype(np.uint32)
        high = ((q >> 4) << np.arange(32, dtype=np.uint32)).sum(1).astype(np.uint32).view(np.uint8).reshape(b, 4)
        packed = (q[:, :16] & 15 | (q[:, 16:] & 15) << 4).astype(np.uint8)
        if kind == "Q5_0":
            return np.hstack([half(d), high, packed]).tobytes(), (D * (q.astype(np.float32) - 16)).ravel()
        return np.hstack([half(d), half(-m), high, packed]).tobytes(), (D * q.astype(np.float32) - M).ravel()
    if kind in ("Q2_K", "Q3_K"):
        q = rng.integers(0, 4 if kind == "Q2_K" else 8, (b, 2, 4, 32)).astype(np.uint8)
        low = (q[:, :, 0] & 3 | (q[:, :, 1] & 3) << 2 | (q[:, :, 2] & 3) << 4 | (q[:, :, 3] & 3) << 6).reshape(b, 64)
        if kind == "Q2_K":
            s, t = (rng.integers(0, 16, (b, 16)).astype(np.uint8) for _ in range(2))
            x = D * np.repeat(s, 16, 1) * q.reshape(b, 256) - M * np.repeat(t, 16, 1)
            return np.hstack([s | t << 4, low, half(d), half(m)]).tobytes(), x.astype(np.float32).ravel()
        s = rng.integers(0, 64, (b, 16)).astype(np.uint8)
        mask = ((q >> 2).reshape(b, 8, 32) << np.arange(8, dtype=np.uint8)[None, :, None]).sum(1).astype(np.uint8)
        scales = np.concatenate([s[:, :8] & 15 | (s[:, 8:] & 15) << 4,
                                 s[:, :4] >> 4 | s[:, 4:8] >> 4 << 2 | s[:, 8:12] >> 4 << 4 | s[:, 12:] >> 4 << 6], 1).astype(np.uint8)
        x = D * (np.repeat(s, 16, 1).astype(np.float32) - 32) * (q.reshape(b, 256).astype(np.float32) - 4)
        return np.hstack([mask, low, scales, half(d)]).tobytes(), x.astype(np.float32).ravel()
    if kind in ("Q4_K", "Q5_K"):
        q = rng.integers(0, 16 if kind == "Q4_K" else 32, (b, 8, 32)).astype(np.uint8)
        s, t = (rng.integers(0, 64, (b, 8)).astype(np.uint8) for _ in range(2))
        s[:, 3], t[:, 6] = 0, 0  # blocks of one value, and without a minimum
        low = np.concatenate([s[:, :4] | s[:, 4:] >> 4 << 6, t[:, :4] | t[:, 4:] >> 4 << 6, s[:, 4:] & 15 | (t[:, 4:] & 15) << 4], 1)
        packed = (q[:, 0::2] & 15 | (q[:, 1::2] & 15) << 4).reshape(b, 128)
        fifth = ((q >> 4) << np.arange(8, dtype=np.uint8)[None, :, None]).sum(1).astype(np.uint8)
        low = np.hstack([low, fifth]) if kind == "Q5_K" else low
        return np.hstack([half(d), half(m), low, packed]).tobytes(), (D[..., None] * s[..., None] * q - M[..., None] * t[..., None]).ravel()
    q = rng.integers(0, 64, (b, 2, 4, 32)).astype(np.uint8)
    s = rng.integers(-128, 128, (b, 2, 4, 2)).astype(np.int8)
    ql = np.stack([q[:, :, 0] & 15 | (q[:, :, 2] & 15) << 4, q[:, :, 1] & 15 | (q[:, :, 3] & 15) << 4], 2)
    qh = q[:, :, 0] >> 4 | q[:, :, 1] >> 4 << 2 | q[:, :, 2] >> 4 << 4 | q[:, :, 3] >> 4 << 6
    out = np.hstack([ql.reshape(b, 128), qh.reshape(b, 64), s.reshape(b, 16).view(np.uint8), half(d)])
    x = D[..., None, None] * np.repeat(s, 16, -1).reshape(q.shape).astype(np.float32) * (q.astype(np.float32) - 32)
    return out.tobytes(), x.ravel()


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def gguf(path, tensors, facts=(), architecture="llama"):
    """tensors: name -> (type, dims innermost first, bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(facts) + 2)
    head += text("general.architecture") + struct.pack("<I", 8) + text(architecture)
    head += text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    for key, value in facts:
        head += text(architecture + "." + key) + struct.pack("<II", 4, value)
    at, body = 0, b""
    for name, (kind, dims, raw) in tensors.items():
        head += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", TYPES[kind], at)
        body += raw + b"\0" * (-len(raw) % 32)
        at = len(body)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + body)


def unpermute(w):
    return w.reshape(HEADS, w.shape[0] // HEADS // 2, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def model(folder, kinds, table="Q8_0"):
    """A layer with the names of an export, its GGUF file, and the float model with the same values."""
    rng = np.random.default_rng(4)
    shapes = {"attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, WIDTH), "ffn_up": (WIDTH, INNER), "ffn_down": (INNER, WIDTH)}
    tensors, values = {}, {}
    for (name, (k, n)), kind in zip(shapes.items(), kinds):
        raw, x = blocks(kind, rng, k * n)
        tensors[f"blk.0.{name}.weight"] = (kind, (k, n), raw)
        values[name] = x.reshape(n, k)
    for name, shape in (("blk.0.attn_norm", (WIDTH,)), ("token_embd", (WIDTH, VOCAB))):
        kind = "F32" if len(shape) == 1 else table
        raw, x = blocks(kind, rng, int(np.prod(shape)))
        tensors[f"{name}.weight"] = (kind, shape, raw)
        values[name] = x.reshape(shape[::-1])
    gguf(folder / "w.gguf", tensors, [("attention.head_count", HEADS), ("attention.head_count_kv", HEADS)])
    for name in ("attn_q", "attn_k"):
        values[name] = unpermute(values[name])
    inits = {"model.embed_tokens.weight": values["token_embd"], "model.layers.0.input_layernorm.weight": values["blk.0.attn_norm"],
             "model.layers.0.self_attn.q_proj.MatMul.weight": values["attn_q"].T, "onnx::MatMul_7": values["attn_k"].T,
             "model.layers.0.mlp.up_proj.weight": values["ffn_up"].T, "model.layers.0.mlp.down_proj.weight": values["ffn_down"].T}
    node = helper.make_node
    nodes = [node("Gather", ["model.embed_tokens.weight", "ids"], ["x"], "/model/embed_tokens/Gather"),
             node("Mul", ["x", "model.layers.0.input_layernorm.weight"], ["h"], "/model/layers.0/input_layernorm/Mul"),
             node("MatMul", ["h", "model.layers.0.self_attn.q_proj.MatMul.weight"], ["q"], "/model/layers.0/self_attn/q_proj/MatMul"),
             node("MatMul", ["h", "onnx::MatMul_7"], ["k"], "/model/layers.0/self_attn/k_proj/MatMul"),
             node("Mul", ["q", "k"], ["a"], "times"), node("MatMul", ["a", "model.layers.0.mlp.up_proj.weight"], ["u"], "up"),
             node("MatMul", ["u", "model.layers.0.mlp.down_proj.weight"], ["y"], "down")]
    for name, given in (("float", inits), ("empty", {k: np.zeros_like(v) for k, v in inits.items()})):
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", WIDTH])],
                                  [numpy_helper.from_array(np.ascontiguousarray(v, np.float32), k) for k, v in given.items()])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / f"{name}.onnx")
    return folder / "empty.onnx", folder / "w.gguf", folder / "float.onnx"


IDS = [{"ids": np.arange(VOCAB)}]


@pytest.mark.parametrize("kinds", [("Q4_0",) * 4, ("Q4_1",) * 4, ("Q4_K",) * 4, ("Q8_0",) * 4, ("Q4_0", "Q4_1", "Q8_0", "Q4_1")])
def test_blocks_stay(tmp_path, kinds):
    """The logits of the file, from a graph whose own weights are zeros."""
    empty, file, flt = model(tmp_path, kinds)
    done = onq("nbits", "-i", empty, "-o", tmp_path / "out.onnx", "--weights", file, "--json", status=0)
    assert json.loads(done.stdout)["weights"] == {"taken": 6, "exact": 4, "anew": 0, "wider": 0, "unused": 0}
    assert loads(tmp_path / "out.onnx") is None
    assert sqnr(outputs(flt, IDS), outputs(tmp_path / "out.onnx", IDS)) > 95


@pytest.mark.parametrize("kind,exact", [("Q5_0", 4), ("Q5_1", 4), ("Q5_K", 4), ("Q6_K", 0)])
@pytest.mark.parametrize("level", [0, 4])
def test_five_and_six_bits(tmp_path, kind, exact, level):
    """They take 8 bits: what has 5 is as it was, what has 6 nearly so, and --bits is obeyed."""
    empty, file, flt = model(tmp_path, (kind,) * 4)
    done = onq("nbits", "-i", empty, "-o", tmp_path / "out.onnx", "--weights", file, "--accuracy_level", level, "--json", status=0)
    assert json.loads(done.stdout)["weights"] == {"taken": 6, "exact": exact, "anew": 4 - exact, "wider": 4, "unused": 0}
    assert "4 of 5 or 6 bits take 8" in onq("nbits", "-i", empty, "-o", tmp_path / "out.onnx", "--weights", file, "--accuracy_level", level, status=0).stdout
    assert {a.i for n in onnx.load(tmp_path / "out.onnx").graph.node if n.op_type == "MatMulNBits" for a in n.attribute if a.name == "bits"} == {8}
    assert sqnr(outputs(flt, IDS), outputs(tmp_path / "out.onnx", IDS)) > (20 if level == 4 else 33 if exact == 0 else 95)
    done = onq("nbits", "-i", empty, "-o", tmp_path / "four.onnx", "--weights", file, "--bits", 4, "--json", status=0)
    assert json.loads(done.stdout)["weights"] == {"taken": 6, "exact": 0, "anew": 4, "wider": 0, "unused": 0}


@pytest.mark.parametrize("kind", ["Q5_0", "Q5_1", "Q5_K", "Q6_K"])
def test_table_of_five_or_six_bits(tmp_path, kind):
    """A table takes 8 bits where --all_weights lets it, a node with settings of its own keeps them."""
    empty, file, flt = model(tmp_path, ("Q4_0",) * 4, kind)
    both = ("--op_types_to_quantize", "MatMul,Gather")
    onq("nbits", "-i", empty, "-o", tmp_path / "wide.onnx", "--weights", file, "--all_weights", *both, status=0)
    assert sqnr(outputs(flt, IDS), outputs(tmp_path / "wide.onnx", IDS)) > 30
    done = onq("nbits", "-i", empty, "-o", tmp_path / "narrow.onnx", "--weights", file, *both, "--json", status=0)
    assert json.loads(done.stdout)["weights"] == {"taken": 6, "exact": 4, "anew": 1, "wider": 0, "unused": 0}
    config = tmp_path / "nodes.json"
    config.write_text('{"up": {"bits": 8}}')
    done = onq("nbits", "-i", empty, "-o", tmp_path / "own.onnx", "--weights", file, "--node_config", config, "--json", status=0)
    assert json.loads(done.stdout)["weights"] == {"taken": 6, "exact": 3, "anew": 1, "wider": 0, "unused": 0}


@pytest.mark.parametrize("kind", ["Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q5_K", "Q6_K", "F16", "BF16", "F32"])
def test_quantized_anew(tmp_path, kind):
    """The bytes that the values of the file give, and with every node left float the values themselves."""
    empty, file, flt = model(tmp_path, (kind,) * 4)
    done = onq("nbits", "-i", empty, "-o", tmp_path / "out.onnx", "--weights", file, "--bits", 4, status=0)
    assert "4 quantized anew (which loses accuracy a second time)" in done.stdout
    onq("nbits", "-i", flt, "-o", tmp_path / "want.onnx", status=0)
    got, want = ({t.name: t.raw_data for t in onnx.load(tmp_path / f"{n}.onnx").graph.initializer} for n in ("out", "want"))
    assert {k: v for k, v in got.items() if "Q4" in k or "scales" in k} == {k: v for k, v in want.items() if "Q4" in k or "scales" in k}
    onq("nbits", "-i", empty, "-o", tmp_path / "floats.onnx", "--weights", file, "--nodes_to_exclude", "re:.*", status=0)
    assert sqnr(outputs(flt, IDS), outputs(tmp_path / "floats.onnx", IDS)) > 120


def test_asked_for(tmp_path):
    """--bits is obeyed, the map names tensors, the table is stored in the blocks of the file."""
    empty, file, flt = model(tmp_path, ("Q4_0",) * 4)
    done = onq("nbits", "-i", empty, "-o", tmp_path / "out.onnx", "--weights", file, "--bits", 8, status=0)
    assert "0 of them in its blocks, 4 quantized anew" in done.stdout
    done = onq("nbits", "-i", empty, "-o", tmp_path / "all.onnx", "--weights", file, "--op_types_to_quantize", "MatMul,Gather",
               "--all_weights", "--json", status=0)
    assert json.loads(done.stdout)["weights"]["exact"] == 5
    assert sqnr(outputs(flt, IDS), outputs(tmp_path / "all.onnx", IDS)) > 95
    m = onnx.load(empty)
    m.graph.node[3].name = "k"
    onnx.save(m, empty)
    done = onq("nbits", "-i", empty, "-o", tmp_path / "no.onnx", "--weights", file, status=1)
    assert "has no tensor for weight 'onnx::MatMul_7'" in done.stderr and not (tmp_path / "no.onnx").exists()
    names = tmp_path / "map.json"
    names.write_text('{"onnx::MatMul_7": "blk.0.ffn_up.weight"}')
    done = onq("nbits", "-i", empty, "-o", tmp_path / "no.onnx", "--weights", file, "--weights_map", names, status=1)
    assert "have other sizes" in done.stderr
    names.write_text('{"onnx::MatMul_7": "blk.0.attn_k.weight"}')
    onq("nbits", "-i", empty, "-o", tmp_path / "out.onnx", "--weights", file, "--weights_map", names, status=0)


def test_hostile(tmp_path):
    """Files that are cut off, or say what is not so, are refused with one line."""
    empty, file, _ = model(tmp_path, ("Q4_0",) * 4)
    good = file.read_bytes()
    head = good.index(b"blk.0.attn_q.weight")
    huge = struct.pack("<Q", 2 ** 63)
    bad = [good[:n] for n in (0, 3, 4, 8, 20, 24, 40, head, head + 25, len(good) // 2, len(good) - 33)]
    bad += [b"GGML" + good[4:], good[:4] + struct.pack("<I", 9) + good[8:], good[:8] + huge + good[16:], good[:16] + huge + good[24:],
            good[:24] + huge + good[32:], good[:head - 8] + huge + good[head:]]
    dims = head + len("blk.0.attn_q.weight")
    bad += [good[:dims] + struct.pack("<I", 77) + good[dims + 4:], good[:dims + 4] + huge + good[dims + 12:],
            good[:dims + 4] + struct.pack("<Q", 31) + good[dims + 12:], good[:dims + 20] + struct.pack("<I", 99) + good[dims + 24:],
            good[:dims + 24] + huge + good[dims + 32:]]
    out = tmp_path / "out.onnx"
    for i, data in enumerate(bad):
        file.write_bytes(data)
        done = onq("nbits", "-i", empty, "-o", out, "--weights", file)
        lines = done.stderr.strip().splitlines()
        assert done.returncode == 1 and len(lines) == 1 and "w.gguf" in lines[0], (i, done.returncode, done.stderr)
        assert not out.exists()


def gemma_like(folder, adds_one, architecture):
    """Four norms a layer, those of queries and keys, a bias: with the names of Gemma's and Qwen's exports."""
    rng = np.random.default_rng(8)
    names = {"input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
             "post_feedforward_layernorm": "post_ffw_norm", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
    raw, w = blocks("Q4_0", rng, WIDTH * WIDTH)
    bias = rng.standard_normal(WIDTH).astype(np.float32)
    tensors = {"blk.0.attn_q.weight": ("Q4_0", (WIDTH, WIDTH), raw), "blk.0.attn_q.bias": ("F32", (WIDTH,), bias.tobytes())}
    w = w.reshape(WIDTH, WIDTH)
    if architecture in ("llama", "smollm3"):
        w, bias = unpermute(w), unpermute(bias[:, None])[:, 0]
    inits = {"model.layers.0.self_attn.q_proj.weight": w.T, "model.layers.0.self_attn.q_proj.bias": bias}
    node = helper.make_node
    nodes, x = [node("MatMul", ["x", "model.layers.0.self_attn.q_proj.weight"], ["q"], "q"),
                node("Add", ["q", "model.layers.0.self_attn.q_proj.bias"], ["h"], "bias")], "h"
    if adds_one:
        inits["one"] = np.ones((), np.float32)
    for i, (name, tensor) in enumerate(names.items()):
        gain = rng.uniform(0.5, 2, WIDTH).astype(np.float32)
        tensors[f"blk.0.{tensor}.weight"] = ("F32", (WIDTH,), gain.tobytes())
        key = f"model.layers.0.{name}.weight"
        inits[key] = gain - 1 if adds_one else gain
        if adds_one:
            nodes.append(node("Add", [key, "one"], [f"g{i}"], f"plus{i}"))
        nodes.append(node("Mul", [x, f"g{i}" if adds_one else key], [f"n{i}"], f"norm{i}"))
        x = f"n{i}"
    gguf(folder / "w.gguf", tensors, [("attention.head_count", HEADS)], architecture)
    for file, given in (("float", inits), ("empty", {k: v if k == "one" else np.zeros_like(v) for k, v in inits.items()})):
        graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", WIDTH])],
                                  [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["n", WIDTH])],
                                  [numpy_helper.from_array(np.ascontiguousarray(v, np.float32), k) for k, v in given.items()])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / f"{file}.onnx")


@pytest.mark.parametrize("adds_one,architecture", [(False, "gemma3"), (True, "gemma3"), (False, "qwen2"), (False, "llama"), (False, "smollm3")])
def test_norms_and_biases(tmp_path, adds_one, architecture):
    """Each norm has its own tensor, the 1 of Gemma's gains is there once, biases are put back into order with their rows."""
    gemma_like(tmp_path, adds_one, architecture)
    done = onq("nbits", "-i", tmp_path / "empty.onnx", "-o", tmp_path / "out.onnx", "--weights", tmp_path / "w.gguf", "--json", status=0)
    assert json.loads(done.stdout)["weights"] == {"taken": 8, "exact": 1, "anew": 0, "wider": 0, "unused": 0}
    feed = [{"x": np.random.default_rng(1).standard_normal((8, WIDTH)).astype(np.float32)}]
    assert sqnr(outputs(tmp_path / "float.onnx", feed), outputs(tmp_path / "out.onnx", feed)) > 95


def test_names_of_the_file(tmp_path):
    """An initializer that is called like a tensor takes it, its rows in the order of the file."""
    empty, file, flt = model(tmp_path, ("Q4_0",) * 4)
    names = {"model.layers.0.input_layernorm.weight": "blk.0.attn_norm.weight", "onnx::MatMul_7": "blk.0.attn_k.weight"}
    for path in (empty, flt):
        m = onnx.load(path)
        for t in m.graph.initializer:
            if t.name == "onnx::MatMul_7":
                w = numpy_helper.to_array(t).T.reshape(HEADS, 2, WIDTH // HEADS // 2, WIDTH).swapaxes(1, 2).reshape(WIDTH, WIDTH)
                t.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(w.T), t.name))
            t.name = names.get(t.name, t.name)
        for i, n in enumerate(m.graph.node):
            n.name = f"node{i}" if set(n.input) & set(names) else n.name
            n.input[:] = [names.get(x, x) for x in n.input]
        onnx.save(m, path)
    done = onq("nbits", "-i", empty, "-o", tmp_path / "out.onnx", "--weights", file, "--json", status=0)
    assert json.loads(done.stdout)["weights"] == {"taken": 6, "exact": 4, "anew": 0, "wider": 0, "unused": 0} and not done.stderr.strip()
    assert sqnr(outputs(flt, IDS), outputs(tmp_path / "out.onnx", IDS)) > 95


def test_tensors_that_nothing_takes(tmp_path):
    """They are counted, and the first is named."""
    empty, file, _ = model(tmp_path, ("Q4_0",) * 4)
    m = onnx.load(empty)
    for t in m.graph.initializer:
        t.name = "gain" if "layernorm" in t.name else t.name
    m.graph.node[1].input[1], m.graph.node[1].name = "gain", "times_gain"
    onnx.save(m, empty)
    done = onq("nbits", "-i", empty, "-o", tmp_path / "out.onnx", "--weights", file, status=0)
    assert "no initializer takes 1 tensor of the file, the first is 'blk.0.attn_norm.weight'" in done.stderr
