#!/usr/bin/env bash
# inspect.sh — what inspect reports about the bundled model, word for word.
cp "$ONQ_ROOT/examples/digits_cnn/model.onnx" model.onnx
onq inspect model.onnx
onq inspect model.onnx --json
