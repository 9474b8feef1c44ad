#!/usr/bin/env bash
# inspect.sh — what inspect reports about the bundled model, word for word; lists of nodes and tensors.
cp "$ONQ_ROOT/examples/digits_cnn/model.onnx" model.onnx
onq inspect model.onnx
onq inspect model.onnx --json
onq inspect model.onnx --nodes
onq inspect model.onnx --tensors --dim batch=2 | head -3
onq inspect model.onnx --nodes --json | grep -c '"computes": "float"'
onq inspect model.onnx --dim bach=2 || echo "status $?"
