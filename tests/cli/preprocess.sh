#!/usr/bin/env bash
# preprocess.sh — preprocess without a runtime: the built-in optimiser, shapes alone, refusals, what stays behind.
cp "$ONQ_ROOT/examples/digits_cnn/model.onnx" a.onnx
export ONQ_ONNXRUNTIME=$PWD/nothing

onq preprocess --input a.onnx --output b.onnx --optimizer builtin >out || fail "builtin: $?"
grep -q '^[0-9]* nodes -> [0-9]* nodes, shapes of \([0-9]*\) of \1 tensors in ' out || fail "$(cat out)"
onq inspect b.onnx | says BatchNormalization && fail "BatchNormalization is left"
# What is prepared once stays as it is.
onq preprocess -i b.onnx -o c.onnx --optimizer builtin --quiet
cmp b.onnx c.onnx || fail "not the same the second time"
# One thread or many: the same bytes.
onq preprocess -i a.onnx -o d.onnx --optimizer builtin --threads 1 --quiet
cmp b.onnx d.onnx || fail "threads change the result"
onq preprocess -i a.onnx -o d.onnx --skip_optimization --json >json
python3 -c 'import json; j = json.load(open("json")); assert j["nodes_before"] == j["nodes_after"] > 0, j' || fail "$(cat json)"
# In place.
cp a.onnx e.onnx
onq preprocess -i e.onnx -o e.onnx --optimizer builtin --quiet --force
cmp b.onnx e.onnx || fail "in place"
# The runtime is missing: the old output survives, and the error says what to do.
status=0
onq preprocess -i a.onnx -o e.onnx 2>err || status=$?
[ "$status" = 1 ] && grep -q -e '--optimizer builtin' err && [ "$(wc -l <err)" = 1 ] || fail "status $status: $(cat err)"
cmp b.onnx e.onnx || fail "the old output is gone"

refused() {
    local status=0
    onq preprocess -i a.onnx -o x.onnx "$@" >out 2>err || status=$?
    [ "$status" = 2 ] && [ ! -s out ] && [ "$(wc -l <err)" = 1 ] || fail "$*: status $status: $(cat out err)"
}
refused --skip_optimization --skip_onnx_shape --skip_symbolic_shape
refused --optimizer none --skip_onnx_shape --skip_symbolic_shape
refused --skip_optimization --optimizer ort
refused --optimizer other
refused --opset 6
refused --fuse_layernorm
refused --int_max 0
[ -z "$(ls -A | grep -v -x -e '[a-e].onnx' -e out -e err -e json)" ] || fail "left behind: $(ls -A)"
