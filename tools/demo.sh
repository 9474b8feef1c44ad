#!/usr/bin/env bash
# demo.sh — the main job on the bundled model, with the program that `make` built. Run by `make demo`.
set -eu
cd -- "$(dirname -- "$0")/.."

step() { # prints the command, then runs it
    printf '\n$ %s\n' "$*"
    "$@"
}

step build/onq inspect examples/digits_cnn/model.onnx
