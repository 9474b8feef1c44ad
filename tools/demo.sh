#!/usr/bin/env bash
# demo.sh — the whole trip on the bundled model, with the program that `make` built: look at it, prepare it, quantize it with
# real samples, run both over 2,000 digits that neither has seen, ask where the accuracy goes, and sum up. Run by `make demo`.
set -eu -o pipefail
cd -- "$(dirname -- "$0")/.."
here=examples/digits_cnn
out=build/demo
mkdir -p "$out"

step() { # what for, command...; prints both, then runs it
    printf '\n# %s\n$ %s\n' "$1" "${*:2}"
    "${@:2}"
}

step "What is in the model, and what could be quantized?" \
    build/onq inspect "$here/model.onnx"
step "Prepare it: shapes, and what can be folded." \
    build/onq preprocess --input "$here/model.onnx" --output "$out/model-infer.onnx"
step "Quantize it: 8 bits, ranges from 20 sets of samples." \
    build/onq static -i "$out/model-infer.onnx" -o "$out/model-int8.onnx" --data "$here" --per_channel
# One thread: the figures of a machine that has other work are worth something too.
step "Run both on 2,000 digits that neither has seen." \
    build/onq bench "$out/model-infer.onnx" "$out/model-int8.onnx" \
    --data "$here/eval.npz" --labels "$here/labels.npy" --runs 7 --threads 1 | tee "$out/bench.txt"
step "Where does accuracy go? The five tensors that lose most; all of them are in the report." \
    build/onq debug --float_model "$out/model-infer.onnx" --qdq_model "$out/model-int8.onnx" --data "$here" --top 5 \
    -o "$out/report.html"

# The rows of float and int8 once more, as what quantizing bought: size, best time and the share of right answers.
printf '\n# What it bought\n%-8s %10s %14s %10s\n' '' size '2,000 digits' right
awk '$1 ~ /model-infer.onnx$/ { name = "before" } $1 ~ /model-int8.onnx$/ { name = "after" }
    name != "" && $NF ~ /%$/ {
        printf "%-8s %7s kB %11.0f ms %10s\n", name, $2, $3, $NF
        if (name == "after")
            printf "%-8s %9.1fx %13.2fx %+9.2f\n", "gain", size / $2, time / $3, $NF - right
        size = $2; time = $3; right = $NF + 0
    }
    { name = "" }' "$out/bench.txt"
printf '\nThe report is in %s: open it in a browser.\nNow yours:  build/onq static -i MODEL -o INT8 --data SAMPLES\n' "$out/report.html"
