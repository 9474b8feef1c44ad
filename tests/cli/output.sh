#!/usr/bin/env bash
# output.sh — results to standard output, messages to standard error, and what happens when the first cannot be written.
model=$ONQ_ROOT/examples/digits_cnn/model.onnx

# Nothing but the result on standard output; --json is one object.
onq inspect "$model" >out 2>err
[ -s out ] && [ ! -s err ] || fail "inspect: $(cat err)"
onq inspect "$model" --json >json 2>err
[ "$(head -c 1 json)" = '{' ] && [ "$(tail -c 2 json)" = '}' ] && [ ! -s err ] || fail "inspect --json"
if command -v python3 >/dev/null; then
    python3 -c 'import json, sys; j = json.load(open("json")); sys.exit(j["nodes"] != 15)' || fail "not the JSON"
fi
onq inspect "$model" --json --quiet | cmp - json || fail "--quiet --json prints the object all the same"
[ -z "$(onq inspect "$model" --quiet 2>&1)" ] || fail "--quiet is not quiet"

# The same words every time, whatever the number of threads.
for threads in 1 2 7; do
    onq inspect "$model" --threads $threads | cmp - out || fail "--threads $threads"
done

# Standard output that cannot be written is a failure.
if [ -w /dev/full ]; then
    status=0
    onq inspect "$model" >/dev/full 2>err || status=$?
    [ "$status" = 1 ] || fail "/dev/full: status $status"
    grep -q '^onq: error: cannot write to standard output: No space left on device$' err || fail "$(cat err)"
fi
# A reader that goes away: quietly, as any filter.
set +o pipefail
{ onq --man inspect 2>err && echo 0 >status || echo $? >status; } | true
set -o pipefail
[ ! -s err ] || fail "closed pipe: $(cat err)"
[[ $(cat status) = 141 || $(cat status) = 0 ]] || fail "closed pipe: status $(cat status)"

# No bar where standard error is not a terminal.
onq diff "$model" "$model" 2>err >out
[ ! -s err ] || fail "$(cat err)"
# On a terminal nothing is left behind either; wine draws one of its own (tests/windows/console.py).
if [ "${ONQ_SYSTEM-}" != windows ] && script -qec true /dev/null >/dev/null 2>&1 </dev/null; then # a pseudo-terminal can be had
    script -qec "onq diff $model $model" /dev/null >typescript </dev/null
    [ "$(tr -d '\r' <typescript)" = "no differences" ] || fail "on a terminal: $(cat -v typescript)"
fi
