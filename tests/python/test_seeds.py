"""test_seeds.py - the code and the commands that the documentation of the first tools prints, with only the import changed."""
import subprocess
import sys

import numpy as np
import onnx
import pytest
from conftest import Reader, build_cnn, draw
from onnx import numpy_helper

DYNAMIC = """
import onnx
from onnxruntime.quantization import quantize_dynamic, QuantType

model_fp32 = 'path/to/the/model.onnx'
model_quant = 'path/to/the/model.quant.onnx'
quantized_model = quantize_dynamic(model_fp32, model_quant, weight_type=QuantType.QUInt8)
"""

QAT = """
import onnx
from onnxruntime.quantization import quantize_qat, QuantType

model_fp32 = 'path/to/the/model.onnx'
model_quant = 'path/to/the/model.quant.onnx'
quantized_model = quantize_qat(model_fp32, model_quant)
"""

FIRST = """
import onnx
from quantize import quantize, QuantizationMode

# Load the onnx model
model = onnx.load('path/to/the/model.onnx')
# Quantize
quantized_model = quantize(model, per_channel=False, quantization_mode=QuantizationMode.IntegerOps_Dynamic)
# Save the quantized model
onnx.save(quantized_model, 'path/to/the/quantized_model.onnx')
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder of the samples' paths, with a model in it."""
    folder = tmp_path / "path/to/the"
    folder.mkdir(parents=True)
    onnx.save(build_cnn(), folder / "model.onnx")
    monkeypatch.chdir(tmp_path)
    return folder


def changed(code):
    """The sample with its import changed."""
    return code.replace("from onnxruntime.quantization", "from onq.quantization").replace("from quantize import", "from onq import")


def operators(path):
    return [n.op_type for n in onnx.load(path).graph.node]


def test_dynamic(place):
    exec(changed(DYNAMIC), {})
    assert "MatMulInteger" in operators(place / "model.quant.onnx")


def test_qat(place):
    model = build_cnn()
    graph = model.graph
    graph.initializer.extend(
        [numpy_helper.from_array(np.float32(0.05), "s"), numpy_helper.from_array(np.uint8(128), "z")]
    )
    pair = [
        onnx.helper.make_node("QuantizeLinear", ["f1", "s", "z"], ["f1q"], "q"),
        onnx.helper.make_node("DequantizeLinear", ["f1q", "s", "z"], ["f1d"], "dq"),
    ]
    graph.node[4].input[0] = "f1d"
    nodes = [*graph.node[:4], *pair, *graph.node[4:]]
    kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in nodes]
    del graph.node[:]
    graph.node.extend(kept)
    onnx.save(model, place / "model.onnx")
    exec(changed(QAT), {})
    assert "MatMulInteger" in operators(place / "model.quant.onnx")


def test_first_tool(place):
    exec(changed(FIRST), {})
    assert "MatMulInteger" in operators(place / "quantized_model.onnx")


@pytest.mark.parametrize("mode", ["IntegerOps_Static", "IntegerOps_Dynamic", "QLinearOps_Static", "QLinearOps_Dynamic"])
def test_modes(mode):
    from onq import QuantizationMode, quantize

    params = {"x": [np.uint8(128), np.float32(0.02)], "f1": [np.uint8(0), np.float32(0.02)]}
    made = {"c1": [np.uint8(128), np.float32(0.03)], "m1": [np.uint8(128), np.float32(0.05)]}
    model = build_cnn()
    before = model.SerializeToString()
    out = quantize(
        model,
        quantization_mode=QuantizationMode[mode],
        input_quantization_params=params if "Static" in mode else None,
        output_quantization_params=made if "QLinear" in mode else None,
    )
    assert model.SerializeToString() == before
    names = {n.op_type for n in out.graph.node}
    assert ("QLinearMatMul" if "QLinear" in mode else "MatMulInteger") in names


def test_static_of_the_fourth(tmp_path):
    """All arguments that the fourth seed prints, among them optimize_model."""
    from onq.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    onnx.save(build_cnn(), tmp_path / "m.onnx")
    quantize_static(
        tmp_path / "m.onnx",
        tmp_path / "q.onnx",
        Reader(draw()),
        quant_format=QuantFormat.QOperator,
        op_types_to_quantize=[],
        per_channel=False,
        reduce_range=False,
        activation_type=QuantType.QUInt8,
        weight_type=QuantType.QUInt8,
        nodes_to_quantize=[],
        nodes_to_exclude=[],
        optimize_model=True,
        use_external_data_format=False,
        calibrate_method=CalibrationMethod.MinMax,
        extra_options={},
    )
    assert "QLinearConv" in operators(tmp_path / "q.onnx")


def test_runner_and_preprocess(tmp_path):
    """The commands of the first and the third seed."""
    onnx.save(build_cnn(), tmp_path / "model.onnx")
    for i, sample in enumerate(draw(3)):
        folder = tmp_path / f"test_data_set_{i}"
        folder.mkdir()
        (folder / "input_0.pb").write_bytes(numpy_helper.from_array(sample["x"]).SerializeToString())
    for words in (
        "preprocess --input model.onnx --output model-infer.onnx",
        "preprocess --input model.onnx --output model-opt.onnx --skip_symbolic_shape True",
        "static_quantize_runner -i model-infer.onnx -o model_quant.onnx",
        "static_quantize_runner -i model.onnx -o q1.onnx --activation_type qint8 --weight_type qint16",
        "static_quantize_runner -i model.onnx -o q2.onnx --activation_type qint16 --weight_type qint16 --quantize_bias",
        "static_quantize_runner -i model.onnx -o q3.onnx --activation_type qint16 --weight_type qint8 --per_channel",
    ):
        module, *rest = words.split()
        subprocess.run([sys.executable, "-m", f"onq.quantization.{module}", *rest], cwd=tmp_path, check=True)
    assert "QuantizeLinear" in operators(tmp_path / "model_quant.onnx")
    encoding = tmp_path / "encoding.json"
    encoding.write_text('{"m1": [{"scale": 0.005, "zero_point": 12}]}')
    words = ["-i", "model.onnx", "-o", "q4.onnx", "--tensor_quant_overrides", str(encoding)]
    subprocess.run([sys.executable, "-m", "onq.quantization.static_quantize_runner", *words], cwd=tmp_path, check=True)
    inits = {i.name: numpy_helper.to_array(i) for i in onnx.load(tmp_path / "q4.onnx").graph.initializer}
    assert any(v == 12 for k, v in inits.items() if k.endswith("zero_point") and v.ndim == 0)
