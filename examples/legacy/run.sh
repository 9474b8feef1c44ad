#!/usr/bin/env bash
# run.sh — the four modes of the first quantization tool, quantize(): integer or QLinear operators, with parameters of the
# inputs that are given (Static: params.json has [zero point, scale] for each tensor) or computed while the model runs.
set -eu
# shellcheck source=examples/setting.sh
. "$(dirname -- "$0")/../setting.sh"
step onq preprocess --input "$digits/model.onnx" --output "$out/infer.onnx"

# Ranges that `onq calibrate` finds, as zero point and scale. Outputs of QLinear operators need them in either mode.
step onq calibrate -i "$out/infer.onnx" -o "$out/ranges.json" --data "$digits"
"${PYTHON:-python3}" "$here/params.py" "$out/ranges.json" "$out/params.json"
inputs=(--input_quantization_params "$out/params.json")
outputs=(--output_quantization_params "$out/params.json")

quantize() { # mode, options...
    step onq legacy -i "$out/infer.onnx" -o "$out/$1.onnx" --quantization_mode "$@"
}
quantize IntegerOps_Dynamic
quantize IntegerOps_Static "${inputs[@]}"
quantize QLinearOps_Dynamic "${outputs[@]}"
quantize QLinearOps_Static "${inputs[@]}" "${outputs[@]}"
step onq bench "$out/infer.onnx" "$out"/IntegerOps_*.onnx "$out"/QLinearOps_*.onnx --data "$digits/eval.npz" \
    --labels "$digits/labels.npy" --runs 1
