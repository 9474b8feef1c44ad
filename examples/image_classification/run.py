#!/usr/bin/env python3
"""A classifier of images in three parts: the run.py and run_qdq_debug.py of onnxruntime's example, with onq's import.

The reader of samples is all that is specific to the model; it needs Pillow. Usage: run.py [OUT]
"""
import sys
from pathlib import Path

import numpy as np
from PIL import Image

import onq
from onq.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onq.quantization.shape_inference import quant_pre_process

here = Path(__file__).resolve().parent
out = Path(sys.argv[1] if len(sys.argv) > 1 else here.parents[1] / "build/examples/image_classification_py")
out.mkdir(parents=True, exist_ok=True)


class Images(CalibrationDataReader):
    """The images of a folder, pixels from 0 to 1."""

    def __init__(self, folder: Path):
        self._files = iter(sorted(folder.glob("*.png")))

    def get_next(self):
        file = next(self._files, None)
        if file is None:
            return None
        pixels = np.asarray(Image.open(file).convert("L"), np.float32) / 255
        return {"input": pixels[None, None]}


model, infer, quant = here.parent / "digits_cnn/model.onnx", out / "infer.onnx", out / "quant.onnx"
quant_pre_process(str(model), str(infer))
quantize_static(
    str(infer),
    str(quant),
    Images(here / "test_images"),
    quant_format=QuantFormat.QDQ,
    per_channel=True,
    activation_type=QuantType.QUInt8,
    weight_type=QuantType.QInt8,
)
found = onq.debug(str(infer), str(quant), Images(here / "test_images"))
(out / "report.html").write_text(found.html)
print(f"{model.stat().st_size} bytes -> {quant.stat().st_size}; {len(found.weights)} weights, {len(found.activations)} activations compared")
