#!/usr/bin/env bash
# diff.sh — statuses of diff, its bounds, and its JSON. That each planted difference is found is tested in
# tests/unit/onnx/test_compare.c and, with the onnx package's help, in tests/parity/test_diff.py.
cp "$ONQ_ROOT/examples/digits_cnn/model.onnx" a.onnx

onq diff a.onnx a.onnx
# One byte of a weight: the last of the file that belongs to an initializer is found by trying.
python=python3
command -v $python >/dev/null || exit 77
$python - <<'P'
data = bytearray(open("a.onnx", "rb").read())
data[len(data) // 2] ^= 1
open("b.onnx", "wb").write(data)
P
status=0
onq diff a.onnx b.onnx >out || status=$?
[ "$status" = 1 ] || fail "status $status"
grep -q "^value '.*': 1 of [0-9]* values differ, by up to .*; first at \[.*\]: .* vs .*$" out || fail "$(cat out)"
[ "$(tail -1 out)" = "1 differences: 1 value" ] || fail "$(tail -1 out)"
onq diff a.onnx b.onnx --ignore value || fail "--ignore value"
onq diff a.onnx b.onnx --tolerance 1e30 || fail "--tolerance"
status=0
onq diff a.onnx b.onnx --quiet >out || status=$?
[ "$status" = 1 ] && [ ! -s out ] || fail "--quiet: status $status"
status=0
onq diff a.onnx b.onnx --json >json || status=$?
[ "$status" = 1 ] || fail "--json: status $status"
$python -c 'import json; j = json.load(open("json")); assert not j["same"] and j["counts"] == {"value": 1}, j' ||
    fail "$(cat json)"
# A failure is reported as one, not as a difference.
status=0
onq diff a.onnx nothing.onnx >out 2>err || status=$?
[ "$status" = 1 ] && [ ! -s out ] && grep -q '^onq: error: nothing.onnx: ' err || fail "$(cat err)"
