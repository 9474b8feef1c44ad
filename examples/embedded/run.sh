#!/usr/bin/env bash
# run.sh — builds run.c as a user of the static library does, and quantizes the bundled model inside it: first with enough
# memory, then with too little.
set -eu
# shellcheck source=examples/setting.sh
. "$(dirname -- "$0")/../setting.sh"
build=${ONQ_BUILD:-$root/build}
# shellcheck disable=SC2046  # words
step cc -O2 -I "$root/include" "$here/run.c" "$build/libonq.a" $(pkg-config --libs jansson libjpeg spng zlib) -ldl -lm -pthread \
    -o "$out/run"
step "$out/run" "$digits/model.onnx" "$out/small.onnx"
step onq inspect "$out/small.onnx"
if step "$out/run" "$digits/model.onnx" "$out/none.onnx" 20000; then echo "20 kB were enough?"; exit 1; fi
