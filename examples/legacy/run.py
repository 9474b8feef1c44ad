#!/usr/bin/env python3
"""quantize() of the first tool: a ModelProto goes in, a ModelProto comes out. Usage: run.py MODEL OUT"""
import sys

import onnx

from onq import QuantizationMode, quantize

model = onnx.load(sys.argv[1])
quantized = quantize(model, per_channel=False, quantization_mode=QuantizationMode.IntegerOps_Dynamic)
onnx.save(quantized, sys.argv[2])
print(sorted({node.op_type for node in quantized.graph.node}))
