#!/usr/bin/env bash
# report-picture.sh [FOLDER] — makes docs/images/report.png anew: the top of the report of `onq debug` with the effect of
# every unit, for the model.onnx with test_data_set_* of a folder (default: efficientnet_lite0 of ../shared/models or
# $ONQ_MODELS where it is, else the bundled model), quantized with the defaults of `onq static`.
#
# Needs Chromium and the Python of build/venv with Pillow (make setup). The times in it are those of the machine.
set -eu
cd -- "$(dirname -- "$0")/.."
onq=${ONQ:-$PWD/build/onq}
model=${1:-${ONQ_MODELS:-$PWD/../shared/models}/efficientnet_lite0}
[ -f "$model/model.onnx" ] || model=$PWD/examples/digits_cnn
model=$(realpath -- "$model")
out=$PWD/docs/images/report.png
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
    echo "report-picture: no Chromium (Debian: chromium)" >&2
    exit 1
}
scratch=$(mktemp -d)
trap 'rm -rf -- "$scratch"' EXIT
cd "$scratch"
"$onq" preprocess -q --input "$model/model.onnx" --output float.onnx
"$onq" static -q -i float.onnx -o int8.onnx --data "$model" --no_verify
ln -s "$model" samples
"$onq" debug -q --float_model float.onnx --qdq_model int8.onnx --data samples --sensitivity -o report.html >/dev/null
# One and a half times the size, then reduced to 256 colours: letters stay sharp.
"$browser" --headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking \
    --disable-component-update --disable-sync --hide-scrollbars --force-device-scale-factor=1.5 \
    --user-data-dir="$scratch/profile" --window-size=1180,1060 --virtual-time-budget=3000 \
    --screenshot="$scratch/full.png" "file://$scratch/report.html" 2>/dev/null
mkdir -p "$(dirname -- "$out")"
"${PYTHON:-$OLDPWD/build/venv/bin/python}" - full.png "$out" <<'P'
import sys
from PIL import Image
Image.open(sys.argv[1]).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(sys.argv[2], optimize=True)
P
size=$(stat -c %s "$out")
echo "$out: $size bytes"
[ "$size" -lt 150000 ] || { echo "report-picture: larger than 150 kB" >&2; exit 1; }
