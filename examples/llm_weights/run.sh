#!/usr/bin/env bash
# run.sh [MODEL] — weights of few bits for a language model: activations stay float, the file shrinks to a quarter or less,
# and MatMulNBits reads the small weights while it computes. No samples are needed (gptq makes use of them), and no
# runtime; models larger than memory are fine. Without an argument, examples/next_letter, with how often it is right.
#
# run.c gives 8 bits to weights that lose too much with 4; run.py is what scripts for onnxruntime do.
set -eu
# shellcheck source=examples/setting.sh
. "$(dirname -- "$0")/../setting.sh"
letters=$root/examples/next_letter
model=${1:-$letters/model.onnx}

for bits in 8 4 2; do
    step onq nbits -i "$model" -o "$out/int$bits.onnx" --bits "$bits" --block_size 32 --accuracy_level 4
done
step onq nbits -i "$model" -o "$out/k_quant.onnx" --bits 4 --block_size 32 --quant_method k_quant --accuracy_level 4
step onq bnb4 -i "$model" -o "$out/nf4.onnx" --quant_type nf4
models=("$model" "$out"/int[842].onnx "$out/k_quant.onnx" "$out/nf4.onnx")
if [ $# = 0 ]; then
    step onq nbits -i "$model" -o "$out/gptq.onnx" --quant_method gptq --data "$letters/samples.npz" --accuracy_level 4
    step onq bench "${models[@]}" "$out/gptq.onnx" --data "$letters/eval.npz" --labels "$letters/labels.npy" --runs 3
else
    step onq bench "${models[@]}" --data random:2 --runs 1
fi
