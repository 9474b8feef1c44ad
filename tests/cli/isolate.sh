#!/usr/bin/env bash
# isolate.sh — --isolate: the same results, and a runtime that crashes, hangs, eats memory, writes or connects is an error
# message of the caller.
model=$ONQ_ROOT/examples/digits_cnn/model.onnx
mkdir tmp
export GCOV_ERROR_FILE=/dev/null # a coverage build cannot write its counters there, and would say so
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0 # which traces the process: it may not there
export TMPDIR=$PWD/tmp

# ---- results are those of the same process
onq dynamic -i "$model" -o a.onnx --no_verify >a.txt 2>/dev/null
onq dynamic -i "$model" -o b.onnx --no_verify --isolate >b.txt 2>/dev/null
cmp a.onnx b.onnx || fail "dynamic: other bytes"
# Names of nodes with a comma, from memory to memory.
onq dynamic -i - -o - --no_verify --isolate --nodes_to_exclude 'a\,b' <"$model" >c.onnx 2>err || fail "$(cat err)"
cmp a.onnx c.onnx || fail "dynamic by pipes: other bytes"
grep -q "'a,b'" err || fail "the name was taken apart: $(cat err)"
status=0
onq dynamic -i missing.onnx -o d.onnx --isolate >out 2>err || status=$?
[ "$status" = 1 ] && grep -q '^onq: error: missing\.onnx' err || fail "status $status: $(cat err)"
status=0
onq dynamic -i "$model" -o no/such/folder/d.onnx --isolate >out 2>err || status=$?
[ "$status" = 1 ] || fail "status $status: $(cat err)"

# ---- with the runtime, where there is one
if onq run "$model" --data random:1 -o run_a >/dev/null 2>err; then
    onq run "$model" --data random:1 -o run_b --isolate >/dev/null 2>&1
    diff -r run_a run_b || fail "run: other outputs"
    onq static -i "$model" --data random:3 -o a.onnx --plan a.json --calibration_cache a.cache --json >a.out 2>a.err
    onq static -i "$model" --data random:3 -o b.onnx --plan b.json --calibration_cache b.cache --json --isolate >b.out 2>b.err
    cmp a.onnx b.onnx || fail "static: other bytes"
    cmp a.cache b.cache || fail "static: another cache"
    diff a.json b.json || fail "static: another plan"
    diff a.err b.err || fail "static: other messages"
    diff <(sed 's/"[^"]*seconds[^"]*":.*//; s/[ab]\.onnx/x/' a.out) <(sed 's/"[^"]*seconds[^"]*":.*//; s/[ab]\.onnx/x/' b.out) ||
        fail "static: another result"
    onq calibrate -i "$model" --data random:3 -o b.cache --calibration_method percentile --isolate >/dev/null 2>&1
    onq calibrate -i "$model" --data random:3 -o a.cache --calibration_method percentile >/dev/null 2>&1
    cmp a.cache b.cache || fail "calibrate: other ranges"
    onq preprocess -i "$model" -o a.onnx >/dev/null 2>&1
    onq preprocess -i "$model" -o b.onnx --isolate >/dev/null 2>&1
    cmp a.onnx b.onnx || fail "preprocess: other bytes"
    onq bench "$model" --data random:1 --runs 1 --isolate >/dev/null 2>err || fail "bench: $(cat err)"
    onq debug --float_model "$model" --qdq_model b.onnx --data random:1 --isolate >/dev/null 2>err || fail "debug: $(cat err)"
fi

# ---- a runtime that misbehaves
compiler=$(command -v cc || command -v gcc || command -v clang) || { echo "no C compiler"; exit 77; }
"$compiler" -D_GNU_SOURCE -pthread -shared -fPIC -o fake.so "$ONQ_ROOT/tests/cli/isolate_fake.c"
export OUTSIDE=$PWD/outside VICTIM=$PWD/victim
mkdir outside result
echo precious >victim
# fake HOW OPTIONS... — the message is in err, and nothing is left behind.
fake() { # (a limit of its own: one that is not kept must not hang the test)
    how=$1
    shift
    status=0
    FAKE=$how timeout 60 "$ONQ" static -i "$model" --data random:1 -o result/q.onnx --onnxruntime ./fake.so --isolate "$@" >out 2>err || status=$?
    [ "$status" = 1 ] || fail "$how: status $status: $(cat err)"
    [ ! -s out ] || fail "$how: a result was printed"
    left=$(find tmp result outside -mindepth 1)
    [ -z "$left" ] || fail "$how: left behind: $left"
    [ "$(cat victim)" = precious ] || fail "$how: a file is gone"
}
only_line() { [ "$(wc -l <err)" = 1 ] && grep -q "$1" err || fail "$how: $(cat err)"; }
fake abort
only_line '^onq: error: the isolated process was ended by signal 6 (Aborted) while '
# The same without --isolate: the program ends, but says why; also when a thread keeps standard error for itself.
for how in abort hold; do
    status=0
    FAKE=$how timeout -s KILL 60 "$ONQ" static -i "$model" --data random:1 -o result/q.onnx --onnxruntime ./fake.so >out 2>err || status=$?
    [ "$status" = 1 ] && [ ! -s out ] && [ ! -e result/q.onnx ] || fail "$how in the program: status $status: $(cat err)"
    only_line '^onq: error: ONNX Runtime, or a library that it loads, ended the program'
done
fake crash
grep -q 'was ended by signal 11\|ended with status' err || fail "crash: $(cat err)" # a sanitizer turns the signal into a status
fake exit
grep -q '^onq: error: the isolated process ended with status 7 while ' err || fail "exit: $(cat err)"
fake hang --isolate_time 1
only_line '^onq: error: the isolated process was ended after 1 seconds while .*--isolate_time allows more'
fake flood --isolate_time 1
only_line '^onq: error: the isolated process was ended after 1 seconds while flooding .*--isolate_time allows more'
if ! nm "$ONQ" 2>/dev/null | says ' __asan_init\| __tsan_init'; then # a sanitizer takes more than any limit
    fake memory --isolate_memory 200m
    only_line '^onq: error: the isolated process was ended by signal 6 .* its memory was limited to 200 MB'
fi
fake outside
for line in 'internet: Permission denied' 'local: Permission denied' 'temporary: done'; do
    grep -qx "$line" err || fail "outside: $(cat err)"
done
if ! grep -q 'no Landlock' err; then
    for line in 'outside: Permission denied' 'rename: Permission denied' 'unlink: Permission denied'; do
        grep -qx "$line" err || fail "outside: $(cat err)"
    done
fi

# ---- stopped by a signal: as without isolation
(FAKE=hang exec "$ONQ" static -i "$model" --data random:1 -o result/q.onnx --onnxruntime ./fake.so --isolate >out 2>err) &
sleep 1
kill -TERM $!
status=0
wait $! || status=$?
[ "$status" = 143 ] || fail "SIGTERM: status $status: $(cat err)"
left=$(find tmp result -mindepth 1)
[ -z "$left" ] || fail "SIGTERM: left behind: $left"

# ---- wrong use
status=0
onq dynamic -i "$model" -o x.onnx --isolate --isolate_time 0 >out 2>err || status=$?
[ "$status" = 2 ] || fail "isolate_time 0: status $status"
status=0
ONQ_WORKER=$PWD/missing onq dynamic -i "$model" -o x.onnx --isolate >out 2>err || status=$?
[ "$status" = 1 ] && grep -q 'cannot be started' err || fail "no worker: $(cat err)"
status=0
ONQ_WORKER=$(type -P true) onq dynamic -i "$model" -o x.onnx --isolate >out 2>err || status=$?
[ "$status" = 1 ] && grep -q '^onq: error: ' err || fail "another program: $(cat err)"
