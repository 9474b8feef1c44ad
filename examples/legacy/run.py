#!/usr/bin/env python3
"""quantize() of the first tool, in its four modes: a ModelProto goes in, a ModelProto comes out.

Three of them want parameters: zero points and scales, here from a calibration over the model's own samples.
Usage: run.py FOLDER OUT, with FOLDER/model.onnx beside FOLDER/test_data_set_*
"""
import sys
from pathlib import Path

import numpy as np
import onnx

from onq import QuantizationMode, quantize
from onq.quantization import CalibrationDataReader, create_calibrator


class Sets(CalibrationDataReader):
    """The first input of each set of samples."""

    def __init__(self, folder, name):
        self._files = iter(sorted(folder.glob("test_data_set_*/input_0.pb")))
        self._name = name

    def get_next(self):
        file = next(self._files, None)
        return file and {self._name: onnx.numpy_helper.to_array(onnx.load_tensor(file))}


folder, out = map(Path, sys.argv[1:])
model = onnx.load(folder / "model.onnx")
calibrator = create_calibrator(folder / "model.onnx", augmented_model_path=str(out / "augmented.onnx"))
calibrator.collect_data(Sets(folder, model.graph.input[0].name))
params = {}
for name, found in calibrator.compute_data().items():
    low, high = (float(np.ravel(edge)[0]) for edge in found.range_value)
    low, high = min(low, 0.0), max(high, 0.0)
    scale = (high - low) / 255 or 1.0
    params[name] = [np.uint8(round(-low / scale)), np.float32(scale)]

for mode in QuantizationMode:
    given = {"input_quantization_params": params} if mode.name.endswith("Static") else {}
    if mode.name.startswith("QLinear"):
        given["output_quantization_params"] = params
    quantized = quantize(model, per_channel=False, quantization_mode=mode, **given)
    onnx.save(quantized, out / f"{mode.name}.onnx")
    print(mode.name, sorted({node.op_type for node in quantized.graph.node}))
