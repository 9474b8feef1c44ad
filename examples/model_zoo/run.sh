#!/usr/bin/env bash
# run.sh [FOLDER...] — quantizes models that lie as the model zoo has them: FOLDER/model.onnx beside test_data_set_0,
# test_data_set_1 ... with inputs, as static_quantize_runner expects. Without arguments, the bundled digits_cnn.
#
# Each is quantized twice, with 8-bit and with 16-bit activations, and both are measured against float on the folder's
# own samples. run.py beside this does it with the runner of the Python package.
set -eu
# shellcheck source=examples/setting.sh
. "$(dirname -- "$0")/../setting.sh"
[ $# -gt 0 ] || set -- "$digits"

for folder in "$@"; do
    name=$(basename -- "$folder")
    step onq preprocess --input "$folder/model.onnx" --output "$out/$name-infer.onnx"
    step onq static -i "$out/$name-infer.onnx" -o "$out/$name-a8w8.onnx" --data "$folder" --per_channel
    step onq static -i "$out/$name-infer.onnx" -o "$out/$name-a16w8.onnx" --data "$folder" --per_channel \
        --activation_type quint16 --weight_type qint8
    step onq bench "$out/$name-infer.onnx" "$out/$name-a8w8.onnx" "$out/$name-a16w8.onnx" --data "$folder" --runs 3
done
