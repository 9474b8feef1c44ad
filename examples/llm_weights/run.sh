#!/usr/bin/env bash
# run.sh [MODEL] — weights of 4 and 8 bits for a language model: activations stay float, the file shrinks to a quarter or
# less, and MatMulNBits reads the small weights while it computes. No samples are needed, and no runtime; models larger
# than memory are fine. Without an argument a small stand-in is made (make_model.py, which needs the package onnx).
set -eu
# shellcheck source=examples/setting.sh
. "$(dirname -- "$0")/../setting.sh"
model=${1:-$out/model.onnx}
[ $# -gt 0 ] || "${PYTHON:-python3}" "$here/make_model.py" "$model"

step onq nbits -i "$model" -o "$out/int4.onnx" --bits 4 --block_size 32 --accuracy_level 4
step onq nbits -i "$model" -o "$out/k_quant.onnx" --bits 4 --block_size 32 --quant_method k_quant \
    --accuracy_level 4
step onq nbits -i "$model" -o "$out/int8.onnx" --bits 8 --block_size 64 --accuracy_level 4
step onq bnb4 -i "$model" -o "$out/nf4.onnx" --quant_type nf4
step onq bench "$model" "$out/int4.onnx" "$out/k_quant.onnx" "$out/int8.onnx" "$out/nf4.onnx" --data random:2 \
    --dim sequence=16 --runs 1
