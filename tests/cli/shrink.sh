#!/usr/bin/env bash
# shrink.sh — an input that becomes shorter while it is mapped: one line that names it and status 1, no crash.
compiler=$(command -v cc || command -v gcc || command -v clang) || { echo "no C compiler"; exit 77; }
"$compiler" -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -shared -fPIC -o shim.so "$ONQ_ROOT/tests/cli/shrink_shim.c"

model=$ONQ_ROOT/examples/digits_cnn/model.onnx
whole=$(stat -c %s "$model")
# Sanitizers want to be loaded first; here the shim may come before them.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0"

# shrunk SIZE COMMAND... — runs onq with input.onnx cut to SIZE bytes as soon as it is mapped.
shrunk() {
    local size=$1
    shift
    cp -- "$model" input.onnx
    status=0
    SHRINK_NAME=input.onnx SHRINK_SIZE=$size LD_PRELOAD=$PWD/shim.so "$ONQ" "$@" >out 2>err || status=$?
    [ "$(stat -c %s input.onnx)" = "$size" ] || fail "the shim did not shrink the file"
    [ "$status" = 1 ] || fail "$* at $size: status $status: $(cat err)"
    [ ! -s out ] || fail "$* at $size: a result was printed"
    [ "$(wc -l <err)" = 1 ] || fail "$* at $size: $(cat err)"
    grep -q '^onq: error: .*input\.onnx' err || fail "$* at $size: $(cat err)"
}

for size in 0 4096 8192; do
    shrunk $size inspect input.onnx
    grep -q 'input\.onnx: became shorter while it was read; try again when it is complete$' err || fail "$(cat err)"
    shrunk $size diff input.onnx "$model"
    shrunk $size diff "$model" input.onnx
done
# Not a page is lost, only the end of one: its bytes read as zeros, and there is no signal.
shrunk $((whole - 1)) inspect input.onnx

# Through a name that would drive the terminal.
mkdir $'a\e[31mb'
cp -- "$model" $'a\e[31mb/input.onnx'
status=0
SHRINK_NAME=input.onnx SHRINK_SIZE=0 LD_PRELOAD=$PWD/shim.so "$ONQ" inspect $'a\e[31mb/input.onnx' >out 2>err || status=$?
[ "$status" = 1 ] && grep -q 'became shorter' err || fail "status $status: $(cat err)"
! grep -q $'\e' err || fail "an escape sequence reached the terminal"
