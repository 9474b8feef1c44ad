#!/usr/bin/env python3
"""static_quantize_runner on a folder as the model zoo has it (model.onnx, test_data_set_*): one import is different.

Usage: run.py [FOLDER [OUT]]
"""
import subprocess
import sys
from pathlib import Path

root = Path(__file__).resolve().parents[2]
folder = Path(sys.argv[1]) if len(sys.argv) > 1 else root / "examples/digits_cnn"
out = Path(sys.argv[2]) if len(sys.argv) > 2 else root / "build/examples/model_zoo_py"
out.mkdir(parents=True, exist_ok=True)

# python -m onnxruntime.quantization.static_quantize_runner, faster
runner = [sys.executable, "-m", "onq.quantization.static_quantize_runner"]
for name, options in {
    "a8w8": ["--activation_type", "qint8", "--weight_type", "qint8"],
    "a16w8": ["--activation_type", "qint16", "--weight_type", "qint8", "--per_channel"],
    "qoperator": ["--quant_format", "qoperator", "--calibration_method", "entropy"],
}.items():
    output = out / f"{folder.name}-{name}.onnx"
    subprocess.run([*runner, "-i", folder / "model.onnx", "-o", output, *options], check=True)
    print(f"{name}: {(folder / 'model.onnx').stat().st_size} bytes -> {output.stat().st_size}")
