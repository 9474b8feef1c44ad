#!/usr/bin/env python3
"""Weights of 4 bits for a language model, as scripts for onnxruntime's matmul_nbits_quantizer do it.

Usage: run.py MODEL OUT
"""
import sys
from pathlib import Path

import onnx

import onq
from onq.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

model, out = Path(sys.argv[1]), Path(sys.argv[2])
config = DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=True, accuracy_level=4)
quantizer = MatMulNBitsQuantizer(onnx.load(model), algo_config=config)
quantizer.process()
quantizer.model.save_model_to_file(str(out))
print(f"{model.stat().st_size} bytes -> {out.stat().st_size}: {onq.inspect(str(out))['operators']}")
