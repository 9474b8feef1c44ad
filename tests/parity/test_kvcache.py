"""test_kvcache.py - caches of integers: written, run in onnxruntime with the cache carried, and compared with numpy."""
import json

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import statemodels
from common import onq, refused
from onnx import numpy_helper

LAYERS, HEADS, DEPTH = 2, 2, 16


def store(folder, texts):
    folder.mkdir()
    for i, ids in enumerate(texts):
        np.savez(folder / f"t{i}.npz", input_ids=ids)
    return folder


def texts(n=8, length=24, seed=5):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, statemodels.VOCABULARY, (1, length)) for _ in range(n)]


def run(model, ids, type, depth=DEPTH, first=8):
    """The logits of a text and its caches: the first tokens at once, then one after another with the cache."""
    s = ort.InferenceSession(str(model))
    names = [i.name for i in s.get_inputs()][2:]
    past = [np.zeros((1, HEADS, 0, depth), type)] * len(names)
    logits = []
    cuts = [0, *range(first, ids.shape[1] + 1)]
    for a, b in zip(cuts, cuts[1:]):
        out, *past = s.run(None, {"input_ids": ids[:, a:b], "attention_mask": np.ones((1, b), np.int64), **dict(zip(names, past))})
        logits.append(out)
    return np.concatenate(logits, 1).astype(np.float64), past


def kl(want, got):
    p, q = (x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in (want, got))
    return (np.exp(p) * (p - q)).sum(-1).mean()


def constants(path):
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}


def largest(model, all_texts, per_channel):
    """What numpy finds: by channel, keys together with the channel that rotation mixes them with."""
    most = None
    for ids in all_texts:
        now = []
        for k, cache in enumerate(run(model, ids, np.float32)[1]):
            x = np.abs(cache[0].astype(np.float64))
            if k % 2 == 0:
                x = np.hypot(x, np.roll(x, DEPTH // 2, -1))
            now.append(x.max(1))
        most = now if most is None else [np.maximum(a, b) for a, b in zip(most, now)]
    return [m if per_channel else m.max() for m in most]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kvcache")
    return statemodels.grouped(folder / "float.onnx", layers=LAYERS), store(folder / "texts", texts())


@pytest.mark.parametrize("bits,per_channel,least", [(8, True, 5e-4), (8, False, 5e-4), (4, True, 0.02), (4, False, 0.05)])
def test_both_ends_run(made, tmp_path, bits, per_channel, least):
    model, data = made
    out = tmp_path / "int.onnx"
    done = onq("kvcache", "-i", model, "-o", out, "--data", data, "--bits", bits, "--per_channel", per_channel, "--json", status=0)
    told = json.loads(done.stdout)
    onnx.checker.check_model(onnx.load(out))
    for path, formats, count in ((model, [], 0), (out, ["cache"], LAYERS)):
        seen = json.loads(onq("inspect", path, "--json", status=0).stdout)["quantization"]
        assert seen["formats"] == formats and seen["cache"] == count
    # The scales are those of numpy.
    inits = constants(out)
    top = 127 if bits == 8 else 7
    for i, most in enumerate(largest(model, texts(), per_channel)):
        scale = inits[f"attn_{i // 2}.{'kv'[i % 2]}_scale"]
        assert scale.shape == ((1, HEADS, 1, DEPTH) if per_channel else (1,))
        np.testing.assert_allclose(scale.ravel(), np.ravel(most) / top, rtol=1e-5)
    # A text that nobody has seen, with the cache carried.
    ids = texts(1, 40, 99)[0]
    want = run(model, ids, np.float32)[0]
    got = run(out, ids, np.int8 if bits == 8 else np.uint8, DEPTH if bits == 8 else DEPTH // 2)[0]
    assert 0 < kl(want, got) < least
    if bits == 8:  # and of one whose values all fit
        floats, caches = run(model, texts()[0], np.float32)[1], run(out, texts()[0], np.int8)[1]
        for i, (a, b) in enumerate(zip(floats, caches)):
            scale = inits[f"attn_{i // 2}.{'kv'[i % 2]}_scale"]
            assert b.dtype == np.int8 and ((a - b * scale) ** 2).mean() < 1e-3 * (a ** 2).mean()
    assert told["caches"] == LAYERS and told["bits"] == bits
    assert told["token_bytes_before"] == LAYERS * 2 * HEADS * DEPTH * 4
    assert told["token_bytes_after"] == LAYERS * 2 * HEADS * DEPTH * bits // 8


def test_judged_on_other_texts(made, tmp_path):
    """Scales of the other texts are judged on the second and the sixth, and bench finds the same."""
    model, data = made
    held = store(tmp_path / "held", [t for i, t in enumerate(texts()) if i % 4 == 1])
    used = store(tmp_path / "used", [t for i, t in enumerate(texts()) if i % 4 != 1])
    told = json.loads(onq("kvcache", "-i", model, "-o", tmp_path / "a.onnx", "--data", data, "--json", status=0).stdout)["judged"]
    onq("kvcache", "-i", model, "-o", tmp_path / "b.onnx", "--data", used, status=0)
    assert told["held_out"] and told["sequences"] == 2
    compared = json.loads(onq("bench", model, tmp_path / "b.onnx", "--data", held, "--runs", 1, "--json", status=0).stdout)
    language = compared["models"][1]["language"]
    assert language["kl"] == pytest.approx(told["kl"], rel=1e-3)
    assert language["perplexity"] == pytest.approx(told["perplexity"], rel=1e-6)
    one = store(tmp_path / "one", texts(1))
    assert not json.loads(onq("kvcache", "-i", model, "-o", tmp_path / "c.onnx", "--data", one, "--json", status=0).stdout)["judged"]["held_out"]


@pytest.mark.parametrize("bits", [8, 4])
def test_samples_with_empty_caches(made, tmp_path, bits):
    """Samples may hold the empty caches of float, as other tools want them: they stand for no past in integers, too."""
    model, data = made
    (tmp_path / "whole").mkdir()
    names = [i.name for i in onnx.load(model).graph.input if i.name.startswith("past")]
    for file in data.iterdir():
        np.savez(tmp_path / "whole" / file.name, **np.load(file), **{n: np.zeros((1, HEADS, 0, DEPTH), np.float32) for n in names})
    told = []
    for i, samples in enumerate((data, tmp_path / "whole")):
        words = ["kvcache", "-i", model, "-o", tmp_path / f"{i}.onnx", "--data", samples, "--bits", bits, "--json"]
        told.append(json.loads(onq(*words, status=0).stdout)["judged"])
        onq("bench", model, tmp_path / f"{i}.onnx", "--data", samples, "--runs", 1, status=0)
    assert told[0] == told[1]
    assert (tmp_path / "0.onnx").read_bytes() == (tmp_path / "1.onnx").read_bytes()
    # A past that is there is not dropped.
    past = {n: np.zeros((1, HEADS, 2, DEPTH), np.float32) for n in names}
    (tmp_path / "past").mkdir()
    np.savez(tmp_path / "past" / "0.npz", input_ids=texts(1)[0], attention_mask=np.ones((1, 26), np.int64), **past)
    refused(onq("bench", model, tmp_path / "0.onnx", "--data", tmp_path / "past", "--runs", 1, "--quiet"),
            "input 'past_key_values.0.key': got FLOAT[1,2,2,16], expected")


def test_steps_carry_the_cache(made, tmp_path):
    """Bench walks along with both models, each with its own cache; the types differ, so neither can take the other's."""
    model, data = made
    out = tmp_path / "int.onnx"
    onq("kvcache", "-i", model, "-o", out, "--data", data, "--steps_axis", 1, status=0)
    done = onq("bench", model, out, "--data", data, "--steps_axis", 1, "--runs", 1, "--json", status=0)
    got = json.loads(done.stdout)["models"][1]["language"]["kl"]
    want = np.mean([kl(run(model, t, np.float32, first=1)[0], run(out, t, np.int8, first=1)[0]) for t in texts()])
    assert got == pytest.approx(want, rel=0.02)
    generated = json.loads(onq("kvcache", "-i", model, "-o", out, "--data", data, "--generate", 4, "--json", "--force", status=0).stdout)
    assert generated["judged"]["kl"] > 0


def test_float16_and_weights_of_four_bits(tmp_path):
    """The command takes what others made."""
    half = statemodels.grouped(tmp_path / "half.onnx", type=np.float16)
    data = store(tmp_path / "texts", texts(4))
    onq("kvcache", "-i", half, "-o", tmp_path / "half8.onnx", "--data", data, status=0)
    assert np.isfinite(run(tmp_path / "half8.onnx", texts(1)[0], np.int8)[0]).all()
    model = statemodels.grouped(tmp_path / "float.onnx")
    onq("nbits", "-i", model, "-o", tmp_path / "q4.onnx", "--block_size", 16, status=0)
    onq("kvcache", "-i", tmp_path / "q4.onnx", "-o", tmp_path / "q4c8.onnx", "--data", data, status=0)
    want, got = run(tmp_path / "q4.onnx", texts(1)[0], np.float32)[0], run(tmp_path / "q4c8.onnx", texts(1)[0], np.int8)[0]
    assert 0 < kl(want, got) < 1e-3


def test_the_file_of_scales(made, tmp_path):
    """Keys and sizes as the builder of onnxruntime-genai reads them; the numbers are those of the model."""
    model, data = made
    onq("kvcache", "-i", model, "-o", tmp_path / "int.onnx", "--scales", tmp_path / "s.json", "--data", data, status=0)
    scales = json.loads((tmp_path / "s.json").read_text())
    inits = constants(tmp_path / "int.onnx")
    assert scales["qmax"] == 128 and scales["layer_ids"] == [0, 1] and set(scales["scales"]) == {"k_scales", "v_scales"}
    for k in range(LAYERS):
        for side in "kv":
            got = np.array(scales["scales"][f"{side}_scales"][k], np.float32)
            assert got.shape == (HEADS * DEPTH,) and (got == inits[f"attn_{k}.{side}_scale"].ravel()).all()
    onq("kvcache", "-i", model, "--scales", tmp_path / "t.json", "--data", data, "--per_channel", "false", status=0)
    assert all(len(v) == 1 for v in json.loads((tmp_path / "t.json").read_text())["scales"]["k_scales"])


def change(model, path, edit):
    m = onnx.load(model)
    edit(m)
    onnx.save(m, path)
    return path


def attention(m):
    return [n for n in m.graph.node if n.op_type == "GroupQueryAttention"]


def test_refusals(made, tmp_path):
    model, data = made

    def words(path, *more):
        return onq("kvcache", "-i", path, "-o", tmp_path / "no.onnx", "--data", data, *more)
    refused(words(statemodels.decoder(tmp_path / "plain.onnx")), "no node is a GroupQueryAttention")
    onq("kvcache", "-i", model, "-o", tmp_path / "int.onnx", "--data", data, status=0)
    refused(words(tmp_path / "int.onnx"), "attn_0", "quantized already")

    refused(words(model, "--for_runtime", "1.26", "-q"), "attn_0", "1.26 cannot run", "1.27 and later can")
    onq("kvcache", "-i", model, "-o", tmp_path / "later.onnx", "--data", data, "--for_runtime", "1.27", status=0)

    def measured(m):
        m.graph.node.append(onnx.helper.make_node("Shape", ["past_key_values.0.key"], ["sizes_of_it"]))
        m.graph.output.append(onnx.helper.make_tensor_value_info("sizes_of_it", onnx.TensorProto.INT64, [4]))
    shaped = change(model, tmp_path / "shaped.onnx", measured)
    refused(words(shaped, "--bits", 4), "attn_0", "a Shape reads")
    onq("kvcache", "-i", shaped, "-o", tmp_path / "shaped8.onnx", "--data", data, status=0)

    def also_read(m):
        m.graph.node.append(onnx.helper.make_node("Identity", ["present.1.key"], ["copy"]))
        m.graph.output.append(onnx.helper.make_tensor_value_info("copy", onnx.TensorProto.FLOAT, None))
    refused(words(change(model, tmp_path / "read.onnx", also_read)), "attn_1", "also read elsewhere")

    def no_output(m):
        kept = [o for o in m.graph.output if o.name != "present.0.value"]
        del m.graph.output[:]
        m.graph.output.extend(kept)
    refused(words(change(model, tmp_path / "none.onnx", no_output)), "attn_0", "not outputs of the model")

    def wrecked(m):
        w = next(t for t in m.graph.initializer if t.name == "wv_1")
        w.CopyFrom(numpy_helper.from_array(np.full((64, 32), np.nan, np.float32), "wv_1"))
    done = words(change(model, tmp_path / "nan.onnx", wrecked))
    assert done.returncode == 1 and "present.1.value" in done.stderr and "NaN" in done.stderr
    assert not (tmp_path / "no.onnx").exists()
