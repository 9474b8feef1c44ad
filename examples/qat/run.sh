#!/usr/bin/env bash
# run.sh [MODEL] — a model that was trained with fake quantization becomes the integer model that its scales describe: no
# samples, no runtime. MODEL is one that a framework exported, with QuantizeLinear and DequantizeLinear around
# activations and weights; without it, such pairs are put around those of the bundled model.
set -eu
# shellcheck source=examples/setting.sh
. "$(dirname -- "$0")/../setting.sh"
trained=${1:-$out/trained.onnx}
if [ $# = 0 ]; then
    step onq preprocess --input "$digits/model.onnx" --output "$out/infer.onnx"
    step onq static -i "$out/infer.onnx" -o "$trained" --data "$digits" --add_qdq_pair_to_weight --disable_quantize_bias
fi

for format in integer qdq qoperator; do
    step onq qat -i "$trained" -o "$out/$format.onnx" --quant_format "$format"
done
[ $# -gt 0 ] || step onq bench "$trained" "$out/integer.onnx" "$out/qdq.onnx" "$out/qoperator.onnx" \
    --data "$digits/eval.npz" --labels "$digits/labels.npy" --runs 1
