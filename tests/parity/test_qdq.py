"""test_qdq.py - `onq static`, QDQ, against quantize_static of the reference: the same file.

Every case ends in a verdict (quantcase.Result.verdict). "identical" is what is wanted; any other must be announced in
KNOWN with the section of docs/DIFFERENCES.md that says why, so that the list can only change knowingly.
"""
import functools
import itertools

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import common
import opmodels
import quantcase
import sides

# case id (a regular expression) -> verdict, section of docs/DIFFERENCES.md
KNOWN = [
    (r"op:(?!Constant).*@11:per_channel", "ref_unloadable", "Weights per channel below opset 13"),
    (r"type:qint8,quint8(,.*)?", "only_onq", "int8 activations with uint8 weights"),
    (r"type:qu?int4,.*", "runtime_bug", "4-bit and float 8 activations"),
    (r"type:(?!qfloat8)\w+,qfloat8e4m3fn(,.*)?", "both_refuse", None),
    (r"type:qfloat8e4m3fn,(?!qfloat8)\w+(,.*)?", "both_refuse", None),
    (r"type:qfloat8e4m3fn,qfloat8e4m3fn(,.*)?", "runtime_bug", "4-bit and float 8 activations"),
    (r"option:block_gemm.*", "only_onq", "Blocks and biases"),
    (r"half:17(,channel)?", "ref_unloadable", "float16 models below opset 19"),
    (r"half:\d+,softmax.*", "ref_unloadable", "float16 models below opset 19"),
    (r"half:\d+,int16", "differs", "float16 scales that are too small"),
    (r"raised:Softmax.*@11", "only_onq", "Softmax of older models"),
    (r"(op|raised):Relu.output@.*", "differs", "Outputs in front of a Relu or Clip"),
    (r"op:Relu.output@11:per_channel", "ref_unloadable", "Weights per channel below opset 13"),
    (r"(op|raised):If@.*", "ref_invalid", "Activations that subgraphs read"),
    (r"op:If@11:per_channel", "ref_unloadable", "Weights per channel below opset 13"),
    (r"(op|raised):Gemm.beta@.*", "differs", "Gemm with a beta"),
    (r"op:Gemm.beta@11:per_channel", "ref_unloadable", "Weights per channel below opset 13"),
    (r"op:MatMul.3d@.*:per_channel", "differs", "MatMul with weights that are not matrices, per channel"),
    (r"op:MatMul.3d@11:per_channel", "ref_unloadable", "Weights per channel below opset 13"),
    (r"real:bert_toy_fused.*", "only_onq", "Biases whose input or weight is not quantized"),
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return quantcase.Bench(tmp_path_factory.mktemp("qdq"))


judge = functools.partial(quantcase.judge, KNOWN)


# ---- every operator

VARIANTS = {
    **quantcase.VARIANTS,
    "all": {"op_types": "all"},
    "dedicated": {"extra": {"DedicatedQDQPair": True}},
}


@quantcase.every_operator
def test_operator(bench, name, opset):
    model = opmodels.build(name, opset)
    key = f"{name}.{opset}"
    bench.add(key, model, opmodels.feeds(model))
    for variant, case in VARIANTS.items():
        if case.get("op_types") == "all":
            case = {"op_types": sorted({n.op_type for n in model.graph.node})}
        judge(f"op:{name}@{opset}:{variant}", bench.run(key, case))


# ---- every option, alone and in pairs

OPTIONS = {
    "activation_symmetric": {"extra": {"ActivationSymmetric": True}},
    "restricted": {"extra": {"ActivationRestrictedAsymmetric": True}},
    "weight_asymmetric": {"extra": {"WeightSymmetric": False}},
    "weight_symmetric": {"weight": "quint8", "extra": {"WeightSymmetric": True}},
    "force": {"extra": {"ForceQuantizeNoInputCheck": True}},
    "const_b": {"extra": {"MatMulConstBOnly": True}},
    "weight_pair": {"extra": {"AddQDQPairToWeight": True}},
    "no_output": {"extra": {"OpTypesToExcludeOutputQuantization": ["Conv", "MatMul", "Relu"]}},
    "no_output2": {"extra": {"OpTypesToExcludeOutputQuantization": ["Add", "Reshape", "Softmax", "Gemm"]}},
    "dedicated": {"extra": {"DedicatedQDQPair": True}},
    "axis": {"per_channel": True, "extra": {"QDQOpTypePerChannelSupportToAxis": {"MatMul": 0}}},
    "axis_negative": {"per_channel": True,
                      "extra": {"QDQOpTypePerChannelSupportToAxis": {"MatMul": -1, "LayerNormalization": 0}}},
    "no_bias": {"extra": {"QuantizeBias": False}},
    "contrib": {"extra": {"UseQDQContribOps": True}},
    "no_range": {"extra": {"MinimumRealRange": None}},
    "wide_range": {"extra": {"MinimumRealRange": 2.5}},
    "keep": {"extra": {"QDQKeepRemovableActivations": True}},
    "no_adjust": {"extra": {"QDQDisableWeightAdjustForInt32Bias": True}},
    "subgraph": {"extra": {"EnableSubgraph": True}},
    "reduce": {"reduce_range": True},
    "per_channel": {"per_channel": True},
    "exclude": {"nodes_to_exclude": ["conv2", "softmax"]},
    "only": {"nodes_to_quantize": ["conv1", "fc", "q_proj"]},
    "types": {"op_types": ["Conv", "MatMul"]},
    "types2": {"op_types": ["Conv", "Add", "Relu", "Reshape", "Transpose", "MaxPool", "Softmax", "Gemm"]},
    "entropy": {"method": "entropy"},
    "percentile": {"method": "percentile"},
    "distribution": {"method": "distribution"},
    "block_matmul": {"op_types": ["MatMul"], "extra": {"BlockSize": 4}},
    "block_matmul_u4": {"op_types": ["MatMul"], "weight": "quint4", "extra": {"BlockSize": 16}},
    "block_matmul_channel": {"op_types": ["MatMul"], "per_channel": True, "weight": "qint4", "extra": {"BlockSize": 2}},
    "block_gemm": {"op_types": ["MatMul", "Gemm"], "extra": {"BlockSize": 32}},
    "preset_qdq": {"preset": "qdq"},
    "preset_qdq_channel": {"preset": "qdq", "per_channel": True},
    "preset_qdq_exclude": {"preset": "qdq", "nodes_to_exclude": ["gate"]},
    "preset_qnn": {"preset": "qnn"},
    "preset_qnn_channel": {"preset": "qnn", "per_channel": True, "weight": "qint8"},
    "preset_qnn_16": {"preset": "qnn", "activation": "quint16"},
    "preset_qnn_16s": {"preset": "qnn", "activation": "qint16", "weight": "qint8"},
}
PAIRED = ["activation_symmetric", "weight_asymmetric", "force", "weight_pair", "no_output", "dedicated", "no_bias",
          "contrib", "keep", "reduce", "per_channel", "exclude", "types", "no_range"]


def merged(a, b):
    out = {**a, **b}
    if "extra" in a and "extra" in b:
        out["extra"] = {**a["extra"], **b["extra"]}
    return out


def add_mixed(bench, opset):
    model = opmodels.mixed(opset)
    bench.add(f"mixed.{opset}", model, opmodels.feeds(model), quantcase.METHODS)
    return f"mixed.{opset}"


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("option", OPTIONS)
def test_option(bench, option, opset):
    judge(f"option:{option}", bench.run(add_mixed(bench, opset), OPTIONS[option]))


@pytest.mark.parametrize("pair", list(itertools.combinations(PAIRED, 2)), ids="+".join)
def test_option_pair(bench, pair):
    judge(f"pair:{pair[0]},{pair[1]}", bench.run(add_mixed(bench, 17), merged(OPTIONS[pair[0]], OPTIONS[pair[1]])))


@pytest.mark.parametrize("activation", quantcase.TYPES)
def test_types(bench, activation):
    key = add_mixed(bench, 21)
    for weight in quantcase.TYPES:
        case = {"activation": activation, "weight": weight}
        if "qfloat8e4m3fn" in (activation, weight):
            case["method"] = "distribution"
        judge(f"type:{activation},{weight}", bench.run(key, case))
        judge(f"type:{activation},{weight},channel", bench.run(key, {**case, "per_channel": True}))
    if activation == "qfloat8e4m3fn":  # with Softmax the reference fails
        for per_channel in (False, True):
            result = bench.run(key, {"activation": activation, "weight": activation, "method": "distribution",
                                     "nodes_to_exclude": ["softmax"], "per_channel": per_channel})
            assert result.diffs == [] and result.plain_load_error is None, result.text()


# ---- results that need a higher opset than the model has

@pytest.mark.parametrize("name, opset", [(n, o) for n in opmodels.NAMES for o in (11, 13, 17) if opmodels.exists(n, o)])
def test_raised_opset(bench, name, opset):
    model = opmodels.build(name, opset)
    bench.add(f"{name}.{opset}", model, opmodels.feeds(model))
    judge(f"raised:{name}@{opset}", bench.run(f"{name}.{opset}", {"activation": "quint16"}))


# ---- overrides

OVERRIDES = {
    "activation_params": {"c1": [{"scale": 0.05, "zero_point": 7}]},
    "activation_type": {"att": [{"quant_type": "qint8"}]},
    "activation_range": {"c2": [{"rmin": -3.0, "rmax": 5.0}]},
    "activation_symmetric": {"q": [{"symmetric": True}], "k": [{"symmetric": True}]},
    "weight_params": {"c1.w": [{"scale": 0.02, "zero_point": 0}]},
    "weight_type": {"q.w": [{"quant_type": "quint8"}], "fc.w": [{"quant_type": "quint8", "symmetric": True}]},
    "weight_range": {"v.w": [{"rmin": -1.0, "rmax": 1.0}]},
    "weight_reduced": {"c2.w": [{"reduce_range": True}]},
    "channel_params": {"fc.w": [{"axis": 0, "scale": 0.01 * (i + 1), "zero_point": 0} for i in range(10)]},
    "channel_range": {"c1.w": [{"axis": 0, "rmin": -1.0 - i, "rmax": 1.0 + i} for i in range(8)]},
    "channel_axis": {"k.w": [{"axis": -2}]},
    "channel_range_later": {"c1.w": [{"axis": 0}, {}] + [{"rmin": -0.5, "rmax": 0.25 + i} for i in range(5)]
                            + [{"rmax": 0.5}]},
    "params_and_symmetric": {"q": [{"symmetric": True}],
                             "c1": [{"quant_type": "quint8", "symmetric": True, "scale": 0.05, "zero_point": 3}]},
    "bias_as_weight": {"c2.b": [{"quant_type": "qint8"}]},
    "bias_params": {"fc.b": [{"scale": 0.125, "zero_point": 3}]},
    "convert": {"a1": [{"quant_type": "quint8", "convert": {"quant_type": "qint8"}}]},
    "convert_some": {"s2": [{"convert": {"quant_type": "qint8", "recv_nodes": ["q_proj", "add2"]}}]},
    "convert_output": {"y": [{"convert": {"quant_type": "qint8"}}]},
    "convert_params": {"r1": [{"convert": {"quant_type": "qint8", "scale": 0.1, "zero_point": -3,
                                           "recv_nodes": ["add1"]}}]},
    "many": {"c1": [{"scale": 0.05, "zero_point": 7}], "q.w": [{"quant_type": "quint8"}],
             "att": [{"symmetric": True, "convert": {"quant_type": "qint8", "recv_nodes": ["mul1"]}}]},
}


@pytest.mark.parametrize("name", OVERRIDES)
@pytest.mark.parametrize("per_channel", [False, True], ids=["tensor", "channel"])
def test_override(bench, name, per_channel):
    judge(f"override:{name}", bench.run(add_mixed(bench, 17), {"overrides": OVERRIDES[name],
                                                               "per_channel": per_channel}))


MIXED = {
    "one": {"att": [{"quant_type": "qint8"}]},
    "two": {"a1": [{"quant_type": "qint8"}], "sg": [{"quant_type": "qint8", "symmetric": True}]},
    "input": {"x": [{"quant_type": "qint8"}]},
    "output": {"y": [{"quant_type": "qint8"}]},
    "branch": {"s2": [{"quant_type": "qint8"}]},
}


@pytest.mark.parametrize("name", MIXED)
def test_mixed_precision(bench, name):
    judge(f"mixed:{name}", bench.run(add_mixed(bench, 17), {"preset": "qnn", "overrides": MIXED[name]}))
    judge(f"mixed:{name}", bench.run(add_mixed(bench, 17), {"preset": "qnn", "overrides": MIXED[name],
                                                            "per_channel": True, "weight": "qint8"}))


@pytest.mark.parametrize("name", MIXED)
def test_mixed_without_converts(bench, name):
    """add_qtype_converts=False: the overrides as they are."""
    judge(f"mixed:{name}", bench.run(add_mixed(bench, 17), {"preset": "qnn", "overrides": MIXED[name],
                                                            "add_qtype_converts": False}))


# What the reference refuses in words that people search for; onq says the same.
REFUSED = {
    "no_zero": ({"c1": [{"scale": 0.0}]}, "Must provide both 'scale' and 'zero_point'"),
    "no_scale": ({"c1": [{"zero_point": 3}]}, "Must provide both 'scale' and 'zero_point'"),
    "range": ({"c1": [{"scale": 0.0, "zero_point": 0, "rmax": 10.0}]},
              "option(s) [rmax] are invalid with 'scale' and 'zero_point'"),
    "symmetric": ({"c1": [{"scale": 0.0, "zero_point": 0, "symmetric": True}]},
                  "option(s) [symmetric] are invalid with 'scale' and 'zero_point'"),
    "reduced": ({"c1.w": [{"scale": 0.0, "zero_point": 0, "reduce_range": True}]},
                "option(s) [reduce_range] are invalid with 'scale' and 'zero_point'"),
    "one_end": ({"c1.w": [{"axis": 0, "rmin": 0.0}]}, "Must provide both 'rmin' and 'rmax' if one is provided"),
    "nobody": ({"nobody": [{"symmetric": True}]}, "is not present in the model"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_override(bench, name):
    overrides, words = REFUSED[name]
    result = bench.run(add_mixed(bench, 17), {"overrides": overrides})
    assert words in result.ref_error, result.ref_error
    assert result.status == 1 and words in result.stderr, result.stderr


# One dictionary for each channel without an axis: the axis of the operator, or the only one of that size.
NO_AXIS = {
    "conv": {"c1.w": [{"scale": 0.01 * (i + 1), "zero_point": 0} for i in range(8)]},
    "gemm": {"fc.w": [{"scale": 0.02 * (i + 1), "zero_point": 0} for i in range(10)]},
    "bias": {"c2.b": [{"quant_type": "qint8", "rmin": -1.0, "rmax": 1.0 + i} for i in range(8)]},
    "later": {"c1.w": [{"quant_type": "qint8"}, {}] + [{"rmin": -0.5, "rmax": 0.5}] * 6},
}


def test_axis_of_a_weight_that_stays_float(bench):
    """No pair has an axis, so the opset stays."""
    case = {"overrides": {"fc.w": [{"axis": 0}]}, "per_channel": True, "op_types": ["Add", "Mul"]}
    judge("override:unused_axis", bench.run(add_mixed(bench, 11), case))


@pytest.mark.difference("Overrides")
@pytest.mark.parametrize("name", NO_AXIS)
def test_override_without_axis(bench, name):
    (tensor, channels), = NO_AXIS[name].items()
    without = bench.run(add_mixed(bench, 17), {"overrides": {tensor: channels}}, keep=True)
    with_axis = bench.run(add_mixed(bench, 17), {"overrides": {tensor: [{**channels[0], "axis": 0}, *channels[1:]]}},
                          keep=True)
    assert "axis" in without.ref_error and without.status == 0, without.text()
    assert with_axis.verdict == "identical", with_axis.text()
    assert without.got.read_bytes() == with_axis.got.read_bytes()


@pytest.mark.difference("Overrides")
def test_override_leniency(bench):
    """What the two tools take and what they refuse, where they are not of one mind."""
    name = add_mixed(bench, 17)
    unknown = bench.run(name, {"overrides": {"c1": [{"colour": 1, "symmetric": True}]}})
    assert unknown.ref_error is None and unknown.status == 1 and "'colour' is unknown" in unknown.stderr
    second = {"q": [{"symmetric": True}], "c1": [{"scale": 0.0, "zero_point": 0}]}
    zero = bench.run(name, {"overrides": second})
    assert zero.ref_error is None and zero.status == 1 and "is not a positive float" in zero.stderr
    empty = bench.run(name, {"overrides": {"c1.w": []}})
    assert "IndexError" in empty.ref_error and empty.verdict == "only_onq", empty.text()
    one = bench.run(name, {"overrides": {"c1.w": [{"axis": 0, "scale": 0.01, "zero_point": 0}]}})
    assert "IndexError" in one.ref_error and one.verdict == "only_onq", one.text()
    some = [{"axis": 0}, {"scale": 0.1, "zero_point": 0}] + [{}] * 6
    later = bench.run(name, {"overrides": {"c1.w": some}})
    assert later.ref_error is None and later.status == 1 and "for all channels or for none" in later.stderr
    wide = bench.run(name, {"format": "qoperator", "overrides": {"c2.b": [{"quant_type": "qint16"}]}})
    assert wide.verdict == "identical", wide.text()
    small = bench.run(name, {"overrides": {"q": [{"symmetric": True}], "fc.w": [{"quant_type": "qint4"}]}})
    assert small.verdict == "ref_unloadable", small.text()
    for without_effect in ("c1", "kt"):  # in front of a Relu that goes, and moved
        small = bench.run(name, {"overrides": {"q": [{"symmetric": True}], without_effect: [{"quant_type": "qint4"}]}})
        assert small.verdict == "identical" and "com.microsoft" not in small.stderr, small.text()
    wide = bench.run(name, {"format": "qoperator", "overrides": {"c1": [{"quant_type": "qint16"}]}}, keep=True)
    assert quantcase.loads(wide.ref) is not None and wide.status == 1, wide.text()


# ---- numbers: ranges of all sizes through every type

@pytest.mark.parametrize("activation", ["qint8", "quint8", "qint16", "quint16", "qint4", "quint4"])
def test_ranges(bench, activation):
    """A chain of Sub, each tensor with a range of its own: scales and zero points to the last bit."""
    rng = np.random.default_rng(3)
    b = opmodels.B(21)
    t = b.input("x", 4)
    data = {}
    for i in range(120):
        t = b.node("Sub", [t, b.weight(f"w{i}", 1, scale=10.0 ** rng.uniform(-6, 4))], f"t{i}")
    b.output(t)
    model = b.model()
    key = f"ranges.{activation}"
    path = bench.add(key, model, opmodels.feeds(model))
    for i in range(-1, 120):
        size = 10.0 ** rng.uniform(-8, 6)
        lo, hi = np.sort(rng.normal(size=2) * size + (rng.random() < 0.3) * size * rng.normal() * 3)
        if rng.random() < 0.1:
            hi = lo
        name = "x" if i < 0 else f"t{i}"
        data[name] = quantcase.C.TensorData(lowest=np.array([lo], dtype=np.float32),
                                            highest=np.array([hi], dtype=np.float32))
    quantcase.C.save_tensors_data(quantcase.C.TensorsData(quantcase.METHODS["minmax"], data),
                                  path.with_suffix("").with_name(f"{key}.minmax.json"))
    for extra in ({}, {"MinimumRealRange": None}, {"ActivationSymmetric": True}, {"ActivationRestrictedAsymmetric": True},
                  {"MinimumRealRange": 3.0}):
        case = {"activation": activation, "op_types": ["Sub"], "extra": extra}
        result = bench.run(key, case)
        assert result.diffs == [], result.text()


# ---- float16

def half(opset, softmax=False):
    b = opmodels.B(opset, seed=11)

    def weight(name, *shape):
        return b.const(name, b.rng.normal(size=shape).astype(np.float16))

    b.input("x", 1, 3, 8, 8, dtype=onnx.TensorProto.FLOAT16)
    t = b.node("Conv", ["x", weight("w0", 4, 3, 3, 3), weight("b0", 4)], "t")
    t = b.node("Relu", [t], "r")
    t = b.node("Conv", [t, weight("w1", 5, 4, 1, 1), weight("b1", 5)], "u")
    t = b.node("MatMul", [t, weight("w2", 6, 7)], "v")
    if softmax:
        t = b.node("Softmax", [t], "s")
    b.node("Mul", [t, weight("c", 1)], "y")
    b.output("y", onnx.TensorProto.FLOAT16)
    return b.model()


@pytest.mark.parametrize("opset", [17, 19, 21])
@pytest.mark.parametrize("softmax", [False, True], ids=["", "softmax"])
def test_half(bench, opset, softmax):
    model = half(opset, softmax)
    key = f"half.{opset}.{softmax}"
    bench.add(key, model, opmodels.feeds(model))
    for name, case in (("", {}), (",channel", {"per_channel": True}), (",int16", {"activation": "qint16"}),
                       (",contrib", {"extra": {"UseQDQContribOps": True}})):
        judge(f"half:{opset}{',softmax' if softmax else ''}{name}", bench.run(key, case))


# ---- real models

@pytest.mark.parametrize("name", common.model_names() or [None])
def test_real(bench, name):
    if name is None:
        pytest.skip("0 shared models: set ONQ_MODELS")
    folder = quantcase.MODELS / name
    model = onnx.load(str(folder / "model.onnx"))
    inits = {t.name for t in model.graph.initializer}
    inputs = [v.name for v in model.graph.input if v.name not in inits]
    samples = []
    for k in range(2):
        feed = {}
        for j, i in enumerate(inputs):
            t = onnx.TensorProto()
            t.ParseFromString((folder / f"test_data_set_{k}" / f"input_{j}.pb").read_bytes())
            feed[i] = numpy_helper.to_array(t)
        samples.append(feed)
    bench.add(f"real.{name}", model, samples)
    judge(f"real:{name}", bench.run(f"real.{name}", {}))
    judge(f"real:{name}:int8", bench.run(f"real.{name}", {"activation": "qint8", "weight": "qint8"}))
    judge(f"real:{name}:per_channel", bench.run(f"real.{name}", {"per_channel": True}))


# ---- from samples to the file, calibration included

@pytest.mark.parametrize("method", quantcase.METHODS)
def test_live(tmp_path, method):
    model = opmodels.mixed(17)
    both = sides.static(tmp_path, model, opmodels.feeds(model, 4), method=method)
    if method == "distribution":  # deviations are no bounds: "Relu and Clip that the range does not replace"
        both.expect((0, 20), both.reference.db)
    else:
        assert quantcase.compare.differences(both.reference.path, both.onq.path) == []


def test_smooth_quant(bench):
    """SmoothQuant changes nothing of what the float model computes, and folds what it can."""
    b = opmodels.B(21, seed=5)
    b.input("x", 1, 6, 16)
    scale = np.ones(16, dtype=np.float32)
    scale[3] = 60.0  # the channel with outliers
    t = b.node("LayerNormalization", ["x", b.const("ln.s", scale), b.weight("ln.b", 16)], "n", "norm")
    q = b.node("MatMul", [t, b.weight("q", 16, 16)], "q1", "mq")
    k = b.node("MatMul", [t, b.weight("k", 16, 16)], "k1", "mk")
    b.node("Mul", [q, k], "y", "mul")
    b.output("y")
    model = b.model()
    samples = opmodels.feeds(model, 6)
    path = bench.folder / "smooth.onnx"
    onnx.save(model, path)
    np.savez(bench.folder / "smooth.npz", x=np.stack([s["x"] for s in samples]))

    def sqnr(*words):
        out = bench.folder / "smooth.q.onnx"
        done = quantcase.onq("static", "-i", path, "-o", out, "--data", bench.folder / "smooth.npz", *words)
        assert done.returncode == 0, done.stderr
        want, have = (quantcase.outputs(m, samples) for m in (path, out))
        nodes = [n.name for n in onnx.load(out).graph.node]
        return 10 * np.log10((want ** 2).sum() / ((want - have) ** 2).sum()), nodes

    wide = ["--activation_type", "qint16", "--weight_type", "qint16"]
    fine, nodes = sqnr(*wide, "--smooth_quant")
    assert fine > 60 and not any("smooth_mul" in n for n in nodes)
    unfolded, nodes = sqnr(*wide, "--smooth_quant", "--smooth_quant_folding=false")
    assert unfolded > 60 and sum("smooth_mul" in n for n in nodes) == 1
    plain, _ = sqnr()
    smooth, _ = sqnr("--smooth_quant")
    assert smooth > plain + 1, (plain, smooth)


# ---- numbers that have no scale

@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_infinities_stay_float(tmp_path, form):
    """A mask of -inf: the reference gives it an infinite scale."""
    b = opmodels.B(17)
    b.input("x", 1, 4, 8)
    t = b.node("MatMul", ["x", b.weight("w", 8, 4)], "s")
    mask = np.where(np.tril(np.ones((4, 4))) > 0, 0, -np.inf).astype(np.float32)
    t = b.node("Add", [t, b.const("mask", mask)], "masked")
    t = b.node("Softmax", [t], "p", axis=-1)
    b.node("MatMul", [t, "x"], "y")
    b.output("y")
    model, path, got = b.model(), tmp_path / "m.onnx", tmp_path / "got.onnx"
    onnx.save(model, path)
    samples = opmodels.feeds(model)
    np.savez(tmp_path / "data.npz", x=np.stack([s["x"] for s in samples]))
    done = quantcase.onq("static", "-i", path, "-o", got, "--data", tmp_path / "data.npz", "--quant_format", form)
    assert done.returncode == 0, done.stderr
    assert form == "qoperator" or "'mask' holds an infinity" in done.stderr
    inits = {t.name: numpy_helper.to_array(t) for t in onnx.load(got).graph.initializer}
    np.testing.assert_array_equal(inits["mask"], mask)
    assert all(np.all(np.isfinite(v)) for k, v in inits.items() if k.endswith("_scale"))
    want, have = (quantcase.outputs(p, samples) for p in (path, got))
    assert np.abs(want - have).max() < 0.1
