#!/usr/bin/env bash
# run.sh — a classifier of images in three parts, as the example of onnxruntime has them: prepare the float model, quantize it
# with a folder of images, and find where the accuracy goes. run.c and run.py beside this do the same.
set -eu
# shellcheck source=examples/setting.sh
. "$(dirname -- "$0")/../setting.sh"
# What the model was trained on: pixels from 0 to 1. A model of ImageNet needs none of this.
pixels=(--image-mean 0 --image-std 1)

step onq preprocess --input "$digits/model.onnx" --output "$out/infer.onnx"
step onq static --input_model "$out/infer.onnx" --output_model "$out/quant.onnx" --per_channel \
    --calibrate_dataset "$here/test_images" "${pixels[@]}"
step onq debug --float_model "$out/infer.onnx" --qdq_model "$out/quant.onnx" \
    --calibrate_dataset "$here/test_images" "${pixels[@]}" -o "$out/report.html"

# What the three parts were for: 2,000 digits that neither model has seen.
step onq bench "$out/infer.onnx" "$out/quant.onnx" --data "$digits/eval.npz" --labels "$digits/labels.npy" --runs 1
