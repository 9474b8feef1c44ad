#!/usr/bin/env python3
"""package.py EXAMPLES FOLDER — the main calls of the Python package on the bundled models; what they write goes into FOLDER.

tools/check-windows.sh runs it in a Python of Windows and in this machine's, and compares the files."""
import json
import sys
from pathlib import Path

import numpy as np
import onq.quantization as q
from onq.quantization.calibrate import CalibrationMethod
from onq.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer
from onq.quantization.shape_inference import quant_pre_process


class Reader(q.CalibrationDataReader):
    def __init__(self, path, n=20):
        self.rows = iter(np.load(path)["input"][:n])

    def get_next(self):
        row = next(self.rows, None)
        return None if row is None else {"input": row[None]}


def main(examples, folder):
    examples, folder = Path(examples), Path(folder)
    digits, samples = str(examples / "digits_cnn" / "model.onnx"), examples / "digits_cnn" / "eval.npz"

    def out(name):
        return str(folder / name)
    q.quantize_dynamic(digits, out("dynamic.onnx"))
    q.quantize_dynamic(digits, out("größe 模型.onnx"), per_channel=True)
    quant_pre_process(digits, out("infer.onnx"), skip_optimization=True)
    q.quantize_static(digits, out("static.onnx"), Reader(samples), per_channel=True)
    for method in ("Entropy", "Percentile", "Distribution"):
        q.quantize_static(digits, out(f"{method}.onnx"), Reader(samples), calibrate_method=CalibrationMethod[method])
    q.quantize_static(digits, out("operators.onnx"), Reader(samples), quant_format=q.QuantFormat.QOperator)
    calibrator = q.create_calibrator(digits, augmented_model_path=str(folder.parent / "augmented.onnx"))
    calibrator.collect_data(Reader(samples))
    ranges = calibrator.compute_data().data
    (folder / "ranges.json").write_text(json.dumps({k: [float(np.squeeze(v)) for v in r.range_value] for k, r in ranges.items()}))
    small = MatMulNBitsQuantizer(str(examples / "next_letter" / "model.onnx"), block_size=32, is_symmetric=True)
    small.process()
    small.model.save_model_to_file(out("nbits.onnx"), False)
    try:
        q.quantize_dynamic(out("missing.onnx"), out("never.onnx"))
    except Exception as e:  # noqa: BLE001 - which one is what is compared
        (folder / "missing.txt").write_text(type(e).__name__)


main(*sys.argv[1:])
