#!/usr/bin/env bash
# older.sh — with an older runtime: the same bytes, and --for_runtime writes what runs there.
here=$ONQ_ROOT/examples/digits_cnn
model=$here/model.onnx
older=$(find -L "$ONQ_ROOT/build/runtimes" -name 'libonnxruntime.so.1.21.*' 2>/dev/null | head -n 1) || older=
[ -n "$older" ] || { echo "no older runtime (tools/setup.sh older fetches it)"; exit 77; }
if [ -z "${ONQ_ONNXRUNTIME-}" ] && [ -e "$ONQ_ROOT/build/runtime" ]; then
    export ONQ_ONNXRUNTIME=$ONQ_ROOT/build/runtime
fi
onq run "$model" --data "$here" --limit 1 --onnxruntime "$older" >/dev/null 2>err || { cat err; exit 77; }
export GCOV_ERROR_FILE=/dev/null # as in isolate.sh
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0

# ---- ranges, and so results, do not depend on the version (methods that count values: from 1.23 on, docs/RUNTIMES.md)
for words in "" "--method entropy" "--per_channel --quant_format qoperator" "--activation_type quint16 --per_channel"; do
    # shellcheck disable=SC2086  # several words
    onq static -i "$model" -o new.onnx --data "$here" $words >/dev/null 2>&1
    # shellcheck disable=SC2086
    onq static -i "$model" -o old.onnx --data "$here" $words --onnxruntime "$older" >/dev/null 2>&1
    cmp new.onnx old.onnx || fail "static $words: other bytes with the older runtime"
done

good() { # MODEL: it is good in the older runtime
    onq verify "$1" --float_model "$model" --data "$here" --onnxruntime "$older" >out 2>err || fail "$1: $(cat out err)"
}
bad() {
    ! onq verify "$1" --float_model "$model" --data "$here" --onnxruntime "$older" >out 2>err || fail "$1: good: $(cat out)"
}
# ---- opset and IR
onq preprocess -i "$model" -o float26.onnx --optimizer none --opset 26 --no_verify >/dev/null 2>&1
onq static -i float26.onnx -o s26.onnx --data "$here" --no_verify >/dev/null
bad s26.onnx
onq static -i float26.onnx -o s.onnx --data "$here" --for_runtime 1.21 >/dev/null
good s.onnx
# ---- ConvInteger with int8 weights came with 1.24: uint8 in their place
onq dynamic -i "$model" -o d.onnx --op_types_to_quantize Conv --no_verify >/dev/null
bad d.onnx
grep -q 'what helps, tried there: the form uint8 instead of int8' out || fail "$(cat out)"
onq dynamic -i "$model" -o d_for.onnx --op_types_to_quantize Conv --for_runtime 1.21 >out
grep -q 'for ONNX Runtime 1.21: .*weights as uint8 instead of int8' out || fail "$(cat out)"
good d_for.onnx
# ---- MatMulNBits of 8 bits came with 1.22: DequantizeLinear in blocks in its place
nbits=(nbits -i "$model" --op_types_to_quantize MatMul,Gemm --bits)
onq "${nbits[@]}" 8 -o n8.onnx >/dev/null
if grep -q MatMulNBits n8.onnx; then
    bad n8.onnx
    grep -q 'what helps, tried there: .*DequantizeLinear in blocks' out || fail "$(cat out)"
fi
onq "${nbits[@]}" 8 -o n8_for.onnx --for_runtime 1.21 >out
good n8_for.onnx
onq "${nbits[@]}" 4 -o n4_for.onnx --for_runtime 1.21 >/dev/null
good n4_for.onnx
# ---- MatMulNBits of 2 bits has no other form there: refused by the node and the reason, with what runs instead
! onq "${nbits[@]}" 2 -o n2.onnx --for_runtime 1.21 >out 2>err || fail "2 bits: $(cat out)"
grep -q "^onq: error: .*node '.*' (MatMulNBits): ONNX Runtime 1.21 cannot run MatMulNBits of 2 bits" err || fail "$(cat err)"
[ ! -e n2.onnx ] || fail "a result was written"
grep -q 'what `onq nbits --form packed` writes runs in every version' err || fail "$(cat err)"
onq "${nbits[@]}" 2 -o n2.onnx --form packed --for_runtime 1.21 >/dev/null
good n2.onnx
