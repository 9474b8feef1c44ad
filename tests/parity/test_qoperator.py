"""test_qoperator.py - `onq static --quant_format qoperator` against the reference's QOperator format.

As test_qdq.py: a verdict for each case, "identical" unless KNOWN says otherwise and docs/DIFFERENCES.md says why.
"""
import functools

import onnx
import pytest
from onnx import numpy_helper

import common
import opmodels
import quantcase

# case id (a regular expression) -> verdict, section of docs/DIFFERENCES.md
KNOWN = [
    (r"op:Where.*", "only_onq", "Where in QOperator format"),
    (r"op:Where.*:force", "identical", None),
    (r"op:If@.*", "only_onq", "Inner graphs in QOperator format"),
    (r"real:bert_toy_fused.*", "only_onq", "Nodes that cannot be quantized leave nothing behind"),
    (r"real:ppocrv4_det.*", "only_onq", "Biases that are not initializers, QOperator"),
    (r"op:Gemm.dynamic_bias@.*", "differs", "Order of initializers"),
    (r"op:Gemm.dynamic_bias@11:per_channel", "ref_unloadable", "Weights per channel below opset 13"),
    (r"op:Gemm.beta@.*", "differs", "Gemm with alpha or beta in QOperator format"),
    (r"op:(Conv.tied|bias.numbered|nodes.unnamed)@.*", "differs", "Biases that several nodes read, QOperator format"),
    (r"op:Relu.output@.*", "differs", "Outputs in front of a Relu or Clip"),
    (r"op:Relu.(shared|chain)@.*", "differs", "Relu and Clip in QOperator format"),
    (r"op:MatMul.3d@.*:per_channel", "differs", "MatMul with weights that are not matrices, per channel"),
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return quantcase.Bench(tmp_path_factory.mktemp("qoperator"))


judge = functools.partial(quantcase.judge, KNOWN)


@quantcase.every_operator
def test_operator(bench, name, opset):
    model = opmodels.build(name, opset)
    key = f"{name}.{opset}"
    bench.add(key, model, opmodels.feeds(model))
    for variant, case in quantcase.VARIANTS.items():
        judge(f"op:{name}@{opset}:{variant}", bench.run(key, {"format": "qoperator", **case}))


OPTIONS = {
    "activation_symmetric": {"extra": {"ActivationSymmetric": True}},
    "weight_symmetric": {"extra": {"WeightSymmetric": True}},
    "weight_asymmetric": {"extra": {"WeightSymmetric": False}},
    "restricted": {"extra": {"ActivationRestrictedAsymmetric": True}},
    "min_range": {"extra": {"MinimumRealRange": 2.0}},
    "no_min_range": {"extra": {"MinimumRealRange": None}},
    "const_b": {"extra": {"MatMulConstBOnly": True}},
    "sigmoid_nnapi": {"extra": {"extra.Sigmoid.nnapi": True}},
    "reduce_range": {"reduce_range": True},
    "per_channel": {"per_channel": True},
    "per_channel_reduced": {"per_channel": True, "reduce_range": True},
    "uint8_weights": {"weight": "quint8"},
    "int8": {"activation": "qint8", "weight": "qint8"},
    "some_ops": {"op_types": ["Conv", "MatMul", "Add"]},
    "percentile": {"method": "percentile"},
    "entropy": {"method": "entropy"},
}


@pytest.mark.parametrize("option", OPTIONS)
def test_option(bench, option):
    case = OPTIONS[option]
    for opset in (13, 17):
        model = opmodels.mixed(opset)
        bench.add(f"mixed.{opset}", model, opmodels.feeds(model), (case.get("method", "minmax"),))
        judge(f"option:{option}@{opset}", bench.run(f"mixed.{opset}", {"format": "qoperator", **case}))


def test_names(bench):
    model = opmodels.mixed(17)
    bench.add("mixed.17", model, opmodels.feeds(model))
    names = [n.name for n in model.graph.node]
    judge("names:exclude", bench.run("mixed.17", {"format": "qoperator", "nodes_to_exclude": names[::3]}))
    judge("names:quantize", bench.run("mixed.17", {"format": "qoperator", "nodes_to_quantize": names[::2]}))



@pytest.mark.parametrize("name", common.model_names() or [pytest.param("", marks=pytest.mark.skip("no ../shared/models"))])
def test_real(bench, name):
    folder = quantcase.MODELS / name
    model = onnx.load(folder / "model.onnx")
    inputs = [v.name for v in model.graph.input]
    samples = []
    for sample in sorted(folder.glob("test_data_set_*"))[:2]:
        arrays = [numpy_helper.to_array(onnx.load_tensor(str(sample / f"input_{i}.pb"))) for i in range(len(inputs))]
        samples.append(dict(zip(inputs, arrays)))
    bench.add(f"real.{name}", model, samples)
    judge(f"real:{name}", bench.run(f"real.{name}", {"format": "qoperator"}))
    judge(f"real:{name}:per_channel", bench.run(f"real.{name}", {"format": "qoperator", "per_channel": True}))


@pytest.mark.difference("float 8 in QOperator format")
def test_float8(bench):
    """The reference raises at a bias, else writes a QLinearConv that does not load; onq says so beforehand."""
    case = {"format": "qoperator", "activation": "qfloat8e4m3fn", "weight": "qfloat8e4m3fn", "method": "distribution"}
    model = opmodels.build("Conv", 19)
    bench.add("float8", model, opmodels.feeds(model), ("distribution",))
    biased = bench.run("float8", case)
    assert "FLOAT8E4M3FN for operator Conv is not supported" in biased.ref_error, biased.text()
    for node in model.graph.node:
        if node.op_type == "Conv":
            del node.input[2:]
    bench.add("float8.plain", model, opmodels.feeds(model), ("distribution",))
    plain = bench.run("float8.plain", case, keep=True)
    assert plain.ref_error is None and "float8e4m3fn" in quantcase.loads(plain.ref), plain.text()
    for result in (biased, plain):
        assert result.status == 2 and "takes 8-bit integers" in result.stderr, result.stderr
