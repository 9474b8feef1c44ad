#!/usr/bin/env python3
"""quantize_qat, as onnxruntime had it until 1.8.1. Usage: run.py TRAINED OUT"""
import sys

import onq
from onq.quantization import quantize_qat

quantize_qat(sys.argv[1], sys.argv[2])
print(onq.inspect(sys.argv[2])["operators"])
