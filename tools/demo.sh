#!/usr/bin/env bash
# demo.sh — the whole trip on the bundled model, with the program that `make` built: look at it, prepare it, quantize it with
# real samples, run both over 2,000 digits that neither has seen, ask where the accuracy goes, and sum up. Run by `make demo`.
set -eu -o pipefail
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
step build/onq static -i "$out/model-infer.onnx" -o "$out/model-int8.onnx" --data "$here" --per_channel
step build/onq bench "$out/model-infer.onnx" "$out/model-int8.onnx" \
    --data "$here/eval.npz" --labels "$here/labels.npy" --runs 3 | tee "$out/bench.txt"
step build/onq debug --float_model "$out/model-infer.onnx" --qdq_model "$out/model-int8.onnx" --data "$here" \
    -o "$out/report.html"

# The rows of float and int8 once more, as what quantizing bought: size, best time and the share of right answers.
printf '\n%-8s %10s %14s %10s\n' '' size '2,000 digits' right
awk '$1 ~ /model-infer.onnx$/ { name = "before" } $1 ~ /model-int8.onnx$/ { name = "after" }
    name != "" && $NF ~ /%$/ { printf "%-8s %7s kB %11.0f ms %10s\n", name, $2, $3, $NF }
    { name = "" }' "$out/bench.txt"
printf '\nThe report is in %s: open it in a browser.\n' "$out/report.html"
