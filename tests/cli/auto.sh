#!/usr/bin/env bash
# auto.sh — `onq auto` before a runtime is needed: wrong use, and what it leaves behind.

model=$ONQ_ROOT/examples/digits_cnn/model.onnx

# refuses STATUS PART WORDS...
refuses() {
    local want=$1 part=$2 status=0
    shift 2
    onq auto -i "$model" -o out.onnx "$@" >stdout 2>stderr || status=$?
    [ "$status" = "$want" ] || fail "$*: status $status, wanted $want: $(cat stderr)"
    [ "$(grep -c '^onq: error: ' stderr)" = 1 ] || fail "$*: not one line: $(cat stderr)"
    grep -q -e "$part" stderr || fail "$*: '$(cat stderr)' does not say '$part'"
    [ ! -e out.onnx ] || fail "$*: wrote a model"
}

refuses 2 "'speed' is not METRIC=VALUE" --target speed
refuses 2 "'taste=1' is not METRIC=VALUE" --target taste=1
refuses 2 "'much' is not a number" --target sqnr=much
refuses 2 'needs --evaluate COMMAND' --target metric=1
refuses 2 'needs --labels FILE' --target accuracy_drop=1
refuses 2 'has no {model}' --evaluate 'true'
refuses 2 "'int3' is not one of" --allow static,int3
refuses 2 "'cheap' is not one of speed, size, accuracy" --prefer cheap
refuses 1 'nowhere' --recipe nowhere/again.sh
refuses 1 'nowhere' --report nowhere/page.html
onq auto -i "$model" 2>stderr && fail "no output was needed"
grep -q "'auto' needs --output" stderr || fail "$(cat stderr)"
echo ok
