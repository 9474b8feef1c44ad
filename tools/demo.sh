#!/usr/bin/env bash
# demo.sh — the whole trip on the bundled model, with the program that `make` built: look at it, prepare it, quantize it with
# real samples, run both over 2,000 digits that neither has seen, and ask where the accuracy goes. Run by `make demo`.
set -eu
cd -- "$(dirname -- "$0")/.."
here=examples/digits_cnn
out=build/demo
mkdir -p "$out"

step() { # prints the command, then runs it
    printf '\n$ %s\n' "$*"
    "$@"
}

step build/onq inspect "$here/model.onnx"
step build/onq preprocess --input "$here/model.onnx" --output "$out/model-infer.onnx"
step build/onq static -i "$out/model-infer.onnx" -o "$out/model-int8.onnx" --data "$here"
step build/onq dynamic -i "$out/model-infer.onnx" -o "$out/model-dynamic.onnx"
step build/onq bench "$out/model-infer.onnx" "$out/model-int8.onnx" "$out/model-dynamic.onnx" \
    --data "$here/eval.npz" --labels "$here/labels.npy" --runs 1
step build/onq debug --float_model "$out/model-infer.onnx" --qdq_model "$out/model-int8.onnx" --data "$here" \
    -o "$out/report.html"
printf '\nThe report is in %s: open it in a browser.\n' "$out/report.html"
