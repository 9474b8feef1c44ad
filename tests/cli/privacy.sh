#!/usr/bin/env bash
# privacy.sh — a run leaves no files of the runtime: no events, no identifier, no session file.

unset ORT_DISABLE_TELEMETRY
mkdir home tmp
HOME=$PWD/home TMPDIR=$PWD/tmp XDG_CACHE_HOME=$PWD/home/cache onq run "$ONQ_ROOT/examples/digits_cnn/model.onnx" --data random:1 \
    -o out >/dev/null 2>stderr || { grep -q 'ONNX Runtime' stderr && exit 77; fail "run: $(cat stderr)"; }
HOME=$PWD/home TMPDIR=$PWD/tmp XDG_CACHE_HOME=$PWD/home/cache onq static -i "$ONQ_ROOT/examples/digits_cnn/model.onnx" \
    --data random:2 -o q.onnx >/dev/null 2>stderr || fail "static: $(cat stderr)"
left=$(find home tmp -mindepth 1)
[ -z "$left" ] || fail "files were left: $left"
