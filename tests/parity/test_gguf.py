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
TYPES = {"F32": 0, "F16": 1, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14, "BF16": 30}


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
    if kind == "Q4_K":
        q = rng.integers(0, 16, (b, 8, 32)).astype(np.uint8)
        s, t = (rng.integers(0, 64, (b, 8)).astype(np.uint8) for _ in range(2))
        low = np.concatenate([s[:, :4] | s[:, 4:] >> 4 << 6, t[:, :4] | t[:, 4:] >> 4 << 6, s[:, 4:] & 15 | (t[:, 4:] & 15) << 4], 1)
        packed = (q[:, 0::2] | q[:, 1::2] << 4).reshape(b, 128)
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


def gguf(path, tensors, facts=()):
    """tensors: name -> (type, dims innermost first, bytes)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(facts) + 2)
    head += text("general.architecture") + struct.pack("<I", 8) + text("llama")
    head += text("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b")
    for key, value in facts:
        head += text("llama." + key) + struct.pack("<II", 4, value)
    at, body = 0, b""
    for name, (kind, dims, raw) in tensors.items():
        head += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", TYPES[kind], at)
        body += raw + b"\0" * (-len(raw) % 32)
        at = len(body)
    path.write_bytes(head + b"\0" * (-len(head) % 32) + body)


def unpermute(w):
    return w.reshape(HEADS, w.shape[0] // HEADS // 2, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def model(folder, kinds):
    """A layer with the names of an export, its GGUF file, and the float model with the same values."""
    rng = np.random.default_rng(4)
    shapes = {"attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, WIDTH), "ffn_up": (WIDTH, INNER), "ffn_down": (INNER, WIDTH)}
    tensors, values = {}, {}
    for (name, (k, n)), kind in zip(shapes.items(), kinds):
        raw, x = blocks(kind, rng, k * n)
        tensors[f"blk.0.{name}.weight"] = (kind, (k, n), raw)
        values[name] = x.reshape(n, k)
    for name, shape in (("blk.0.attn_norm", (WIDTH,)), ("token_embd", (WIDTH, VOCAB))):
        raw, x = blocks("F32" if len(shape) == 1 else "Q8_0", rng, int(np.prod(shape)))
        tensors[f"{name}.weight"] = ("F32" if len(shape) == 1 else "Q8_0", shape, raw)
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


@pytest.mark.parametrize("kinds", [("Q4_0",) * 4, ("Q4_1",) * 4, ("Q8_0",) * 4, ("Q4_0", "Q4_1", "Q8_0", "Q4_1")])
def test_blocks_stay(tmp_path, kinds):
    """The logits of the file, from a graph whose own weights are zeros."""
    empty, file, flt = model(tmp_path, kinds)
    done = onq("nbits", "-i", empty, "-o", tmp_path / "out.onnx", "--weights", file, "--json", status=0)
    assert json.loads(done.stdout)["weights"] == {"taken": 6, "exact": 4, "anew": 0}
    assert loads(tmp_path / "out.onnx") is None
    assert sqnr(outputs(flt, IDS), outputs(tmp_path / "out.onnx", IDS)) > 95


@pytest.mark.parametrize("kind", ["Q4_K", "Q6_K", "F16", "BF16", "F32"])
def test_quantized_anew(tmp_path, kind):
    """The bytes that the values of the file give, and with every node left float the values themselves."""
    empty, file, flt = model(tmp_path, (kind,) * 4)
    done = onq("nbits", "-i", empty, "-o", tmp_path / "out.onnx", "--weights", file, status=0)
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
