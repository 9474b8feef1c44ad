"""test_convert_trips.py - there and back: QDQ and QOperator -> float and ranges -> the same quantization; QDQ -> QOperator -> QDQ;
the shared models through every edge, with and without the runtime's optimiser.

What does not come back to the byte is in a table with its reason:

bias     one bias of two products: it was quantized once for each, and floats that were rounded to different grids are two now
relu     a range that begins at 0 without a Relu having been there: the Relu that is restored is removed again, but its value_info stays
clamped  the scale of a weight was raised, so that its bias fits into int32, which the rounded weight does not show
order    the reference sorts nodes, so the order in which the float model had them, and with it that of initializers, is not in the file
digit    a scale that is computed from two rounded ends of a weight has another last digit; --encodings keeps it
names    a float weight beside its quantized twin: the second float gets another name
"""
import collections

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import common
import opmodels
import running
from common import onq

FORMS = {"qdq": ("static",), "qdq-channels": ("static", "--per_channel"), "qoperator": ("static", "--quant_format", "qoperator"),
         "qdq-16": ("static", "--activation_type", "quint16"), "dynamic": ("dynamic",), "nbits": ("nbits",), "bnb4": ("bnb4",)}
NOT_SAME = {"qdq": {"GlobalAveragePool": "relu", "If": "relu", "Mul": "relu", "nodes.unnamed": "bias"},
            "qdq-channels": {"Conv.small_scale": "clamped", "GlobalAveragePool": "relu", "If": "relu", "Mul": "relu", "nodes.unnamed": "bias"},
            "qoperator": {"Conv.tied": "bias", "GlobalAveragePool": "relu", "Mul": "relu", "bias.numbered": "bias", "nodes.unnamed": "bias"}}
# Reasons with which the nodes, parameters and integers are still the same.
EQUAL = {"relu", "order"}
SHARED = {"bert_toy_fused": {"qdq": "order", "qoperator": "names"}, "digits_cnn": {}, "lstm_tagger": {}, "magika": {"qdq": "relu", "qoperator": "relu"},
          "ppocr_cls": {}, "silero_vad": {}, "silero_vad_op18_ifless": {}, "tiny_llama": {"qdq": "order", "qoperator": "order"}}


def trip(folder, source, words, data):
    """The quantized model, and what is quantized again from its float form and ranges."""
    made, real, again, ranges = (folder / n for n in ("made.onnx", "float.onnx", "again.onnx", "ranges.json"))
    onq(*words, *data, "-i", source, "-o", made, "--no_verify", "--quiet", status=0)
    onq("convert", "--to", "float", "-i", made, "-o", real, "--ranges", ranges, "--no_verify", "--quiet", status=0)
    onq(*words, "-i", real, "-o", again, "--calibration_cache", ranges, "--no_verify", "--quiet", status=0)
    return made, again


def judge(made, again, reason, what):
    if reason is None:
        assert made.read_bytes() == again.read_bytes(), what
        return
    assert made.read_bytes() != again.read_bytes(), f"{what} comes back now: take it out of the table"
    if reason in EQUAL:
        done = onq("diff", made, again)
        assert done.returncode == 0 or what == "GlobalAveragePool", (what, done.stdout)


@pytest.mark.parametrize("form", NOT_SAME)
def test_operators(form, tmp_path):
    """Every operator: the same bytes, except for those in the table."""
    for name in opmodels.NAMES:
        if not opmodels.exists(name, 17):
            continue
        model = opmodels.build(name, 17)
        onnx.save(model, tmp_path / "s.onnx")
        np.savez(tmp_path / "d.npz", **opmodels.feeds(model, 1)[0])
        made, again = trip(tmp_path, tmp_path / "s.onnx", FORMS[form], ("--data", tmp_path / "d.npz"))
        judge(made, again, NOT_SAME[form].get(name), name)


@pytest.mark.parametrize("name", SHARED)
def test_shared(name, tmp_path):
    source = common.MODELS / name / "model.onnx"
    if not source.exists():
        pytest.skip("no shared models")
    for form in ("qdq", "qoperator"):
        made, again = trip(tmp_path, source, FORMS[form], ("--data", source.parent, "--limit", "2"))
        judge(made, again, SHARED[name].get(form), f"{name}, {form}")


def feeds(source):
    names = [i.name for i in running.session(source).get_inputs()]
    tensors = [onnx.load_tensor(p) for p in sorted((source.parent / "test_data_set_0").glob("input_*.pb"))]
    return [{t.name or names[i]: numpy_helper.to_array(t) for i, t in enumerate(tensors)}]


def params(path):
    return {t.name: numpy_helper.to_array(t).tobytes() for t in onnx.load(path).graph.initializer if t.name.endswith(("_scale", "_zero_point"))}


# Edges whose ends compute the same, and by how many dB at least: integers are the same integers, floats differ in their last
# digits, and an int8 step may fall on the other side in a sum. A float result is compared with the float model.
EXACT = {"qdq": 100.0, "qoperator": 25.0, "nbits": 100.0}
EDGES = {"bert_toy_fused": ("qdq-channels", "dynamic", "nbits"), "digits_cnn": ("qdq-channels", "qoperator", "dynamic"),
         "lstm_tagger": ("qdq-channels", "qoperator", "dynamic"), "magika": ("qdq-channels", "dynamic", "bnb4"), "tiny_llama": ("qdq-channels", "nbits", "bnb4")}
REFUSED = {("dynamic", "lstm_tagger", "qdq"): "DynamicQuantizeLSTM", ("bnb4", "magika", "qdq"): "MatMulBnb4", ("bnb4", "tiny_llama", "qdq"): "MatMulBnb4"}


@pytest.mark.parametrize("name", EDGES)
def test_edges(name, tmp_path):
    """Every form of the shared models in every other form."""
    source = common.MODELS / name / "model.onnx"
    if not source.exists():
        pytest.skip("no shared models")
    samples, flt, seen = feeds(source), None, collections.Counter()
    flt = running.outputs(source, samples, False)
    for form in EDGES[name]:
        made, out, back = (tmp_path / n for n in ("made.onnx", "out.onnx", "back.onnx"))
        data = ("--data", source.parent, "--limit", "2") if FORMS[form][0] == "static" else ()
        onq(*FORMS[form], *data, "-i", source, "-o", made, "--no_verify", "--quiet", status=0)
        before = {o: running.outputs(made, samples, o) for o in (False, True)}
        for to in ("float", "float32", "float16", "qdq", "qoperator", "nbits"):
            partial = ("--partial",) if to in ("qoperator", "nbits") else ()
            done = onq("convert", "--to", to, "-i", made, "-o", out, "--no_verify", "--quiet", *partial)
            word = REFUSED.get((form, name, to))
            if word is not None:
                common.refused(done, word, "--lossy")
                onq("convert", "--to", to, "-i", made, "-o", out, "--no_verify", "--quiet", "--lossy", status=0)
                assert running.sqnr(before[False], running.outputs(out, samples, False)) > 40
                continue
            assert done.returncode == 0, done.stderr
            seen[to] += "nothing in it" not in done.stderr
            after = {o: running.outputs(out, samples, o) for o in (False, True)}
            if to in EXACT:
                assert running.sqnr(before[False], after[False]) >= EXACT[to], (form, to)
                # The optimiser multiplies weights in blocks in int8: docs/CONVERT.md.
                assert running.sqnr(before[True], after[True]) >= (35.0 if form == "nbits" else EXACT[to]), (form, to)
            else:
                assert running.sqnr(flt, after[False]) >= min(running.sqnr(flt, before[False]) - 1.0, 40.0), (form, to)
                assert running.sqnr(after[False], after[True]) >= (50.0 if to == "float16" else 100.0), (form, to)
            if to == "qoperator" and form.startswith("qdq"):
                onq("convert", "--to", "qdq", "-i", out, "-o", back, "--no_verify", "--quiet", status=0)
                first, second = params(made), params(back)
                assert all(second[k] == v for k, v in first.items() if k in second) and len(second) > len(first) // 2, form
                assert running.sqnr(before[False], running.outputs(back, samples, False)) >= 100.0
    assert seen["float"] and seen["qdq"] + seen["qoperator"]
