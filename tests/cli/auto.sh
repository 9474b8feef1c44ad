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

# says EXPRESSION: true of the answer j in the file json and of its effort e
says() {
    python3 -c "import json; j = json.load(open('json')); e = j['effort']; assert $1" || fail "$1: $(cat json)"
}

refuses 2 "'speed' is not METRIC=VALUE" --target speed
refuses 2 "'taste=1' is not METRIC=VALUE" --target taste=1
refuses 2 "'much' is not a number" --target sqnr=much
refuses 2 'needs --evaluate COMMAND' --target metric=1
refuses 2 'needs --labels FILE' --target accuracy_drop=1
refuses 2 'has no {model}' --evaluate 'true'
refuses 2 "'int3' is not one of" --allow static,int3
refuses 2 "'cheap' is not one of speed, size, accuracy" --prefer cheap
refuses 2 'effort' --effort -1
refuses 1 'nowhere' --recipe nowhere/again.sh
refuses 1 'nowhere' --report nowhere/page.html
onq auto -i "$model" 2>stderr && fail "no output was needed"
grep -q "'auto' needs --output" stderr || fail "$(cat stderr)"

# ---- with the runtime, where there is one
data=$ONQ_ROOT/examples/digits_cnn
if onq run "$model" --data random:1 -o run >/dev/null 2>&1; then
    # The program of --evaluate: only whole lines are numbers, it is ended in time, and its status counts.
    word=$(printf 'a%.0s' {1..511})
    search="--data $data --time_limit 1 --limit 16"
    refuses 1 'printed no number' $search --evaluate "echo ${word}77; : {model}"
    refuses 1 'ended with status 3' $search --evaluate 'exit 3; : {model}'
    began=$SECONDS
    refuses 1 'longer than --time_limit' $search --evaluate 'sleep 100; : {model}'
    [ $((SECONDS - began)) -lt 60 ] || fail "--evaluate: the program was not ended"
    onq auto -i "$model" -o out.onnx $search --evaluate 'echo 5; echo " 7 "; echo x; : {model}' --target metric=7 --json >json 2>err ||
        fail "$(cat err)"
    rm out.onnx
    # What may cost no more than a moment leaves nearly all out, and says so; what costs less than it may, nothing.
    search="--data $data --limit 16 --prefer size"
    onq auto -i "$model" -o out.onnx $search --effort 0.1 >out 2>err || fail "$(cat err)"
    grep -q '^left out, for it would have cost too much: .*op_set all.* (--effort 0.1 allows' out || fail "$(cat out)"
    onq auto -i "$model" -o out.onnx $search --effort 0.1 --json >json 2>err || fail "$(cat err)"
    says 'e["left_out"].index("op_set all") >= 0 and j["chosen"]["options"]["command"] == "float"'
    onq auto -i "$model" -o out.onnx $search --json >json 2>err || fail "$(cat err)"
    says 'e["left_out"] == [] and 0 < e["cpu_seconds"] <= e["limit_cpu_seconds"] and e["limit_cpu_seconds"] >= 6'
    onq auto -i "$model" -o out.onnx $search --effort 0 >out 2>err || fail "$(cat err)"
    ! grep -q '^left out' out || fail "$(cat out)"
    rm out.onnx
    # A state belongs to one search: labels, the limit on float units and the runtime are part of it.
    search="--data $data --time_limit 20 --limit 16 --allow dynamic --resume state.json"
    onq auto -i "$model" -o out.onnx $search >out 2>err || fail "$(cat err)"
    onq auto -i "$model" -o out.onnx $search >out 2>err || fail "going on: $(cat err)"
    rm out.onnx
    refuses 1 'state of another search' $search --max_float_units 3
    {
        printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "{'descr': '|i1', 'fortran_order': False, 'shape': (128,), }"
        head -c 128 /dev/zero
    } >labels.npy
    refuses 1 'state of another search' $search --labels labels.npy
fi
echo ok
