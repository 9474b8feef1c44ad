#!/usr/bin/env bash
# streams.sh — models on standard input and standard output: the same bytes as through files.
model=$ONQ_ROOT/examples/digits_cnn/model.onnx

onq dynamic -i "$model" -o file.onnx --no_verify >text
onq dynamic -i - -o - --no_verify <"$model" >stream.onnx 2>err
cmp file.onnx stream.onnx || fail "dynamic: other bytes"
grep -q 'nodes quantized' err || fail "the summary is not on standard error: $(cat err)"
onq preprocess -i "$model" -o prepared.onnx --optimizer builtin >text
onq preprocess -i - -o - --optimizer builtin <"$model" 2>err | cmp - prepared.onnx || fail "preprocess: other bytes"
onq dynamic -i - -o - --quiet --no_verify <"$model" 2>err | cmp - file.onnx || fail "--quiet: other bytes"
[ ! -s err ] || fail "--quiet: $(cat err)"
onq dynamic -i "$model" -o - --json --no_verify 2>json >stream.onnx
grep -q '^{' json || fail "--json: $(cat json)"

# One of two models, as an operand or an option.
onq inspect - <"$model" | sed 's/^<stdin>:/X:/' >a
onq inspect "$model" | sed "s|^$model:|X:|" >b
cmp a b || fail "inspect"
onq diff - "$model" <"$model" >text || fail "diff"
onq debug --float_model "$model" --qdq_model - <file.onnx >text || fail "debug"

refused() {
    local status=0 wanted=$1 part=$2
    shift 2
    "$@" >out 2>err <"$model" || status=$?
    [ "$status" = "$wanted" ] || fail "$*: status $status"
    grep -q "$part" err || fail "$*: $(cat err)"
    [ ! -s out ] || fail "$*: wrote to standard output"
}
refused 2 'read once' onq diff - -
refused 2 'read once' onq static -i - -o x.onnx --data -
refused 2 'one stream' onq dynamic -i - -o - --use_external_data_format
refused 2 'a folder' onq run - -o - --data random:1
head -c 100 "$model" >cut
status=0
onq dynamic -i - -o - <cut >out 2>err || status=$?
[ "$status" = 1 ] && [ ! -s out ] || fail "half a model: status $status"
grep -q '^onq: error: <stdin>: ' err || fail "$(cat err)"
status=0
onq dynamic -i - -o - --nodes_to_exclude 're:(' <"$model" >out 2>err || status=$?
[ "$status" = 2 ] && [ ! -s out ] || fail "a wrong pattern: status $status"

# From here on with the runtime.
onq calibrate -i "$model" -o - --data random:2 --quiet >cache.json 2>err || {
    grep -q 'ONNX Runtime was not found' err && exit 77
    fail "$(cat err)"
}
onq calibrate -i "$model" -o want.json --data random:2 --quiet 2>err
cmp cache.json want.json || fail "calibrate -o -"

# Samples from archives, programs and standard input. (One sample here is 2,000 images.)
mkdir set
for name in a b c; do cp "$ONQ_ROOT/examples/digits_cnn/eval.npz" set/$name.npz; done
tar -c -f set.tar set
onq calibrate -i "$model" -o want.json --data set --limit 1 --quiet
for data in set.tar 'exec:cat set.tar' 'exec:tar -c set; exit 0'; do
    onq calibrate -i "$model" -o have.json --data "$data" --limit 1 --quiet || fail "$data"
    cmp want.json have.json || fail "$data: other ranges"
done
onq calibrate -i "$model" -o have.json --data - --limit 1 --quiet <set.tar
cmp want.json have.json || fail "--data -: other ranges"
touch -d '2001-01-01' old
onq calibrate -i "$model" -o have.json --data "exec:$ONQ_ROOT/examples/samples/folder.sh . $PWD/old" --limit 1 --quiet
cmp want.json have.json || fail "folder.sh: other ranges"
refused 1 "ended with status 3" onq run "$model" --data 'exec:cat set.tar; exit 3'
refused 1 'no samples' onq run "$model" --data 'exec:true'
refused 1 'neither a tar archive' onq run "$model" --data 'exec:echo hello'
refused 1 'cut off' onq run "$model" --data 'exec:head -c 5000 set.tar'
refused 2 'needs a command' onq run "$model" --data 'exec:'
# A second pass: of a file, or of what was kept; else the reason is given.
onq calibrate -i "$model" -o have.json --data set.tar --method percentile --memory 1k --quiet || fail "two passes"
# (Samples that widen no range are looked at once: an image of large numbers comes last.)
{
    printf '\223NUMPY\001\000v\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 28, 28), }"
    head -c 3136 /dev/zero | tr '\0' B # 48.6 in each
} >large.npy
tar -c -f wider.tar set/a.npz set/b.npz large.npy
refused 1 'raise --memory' onq calibrate -i "$model" -o x.json --method percentile --memory 1k --data 'exec:cat wider.tar'
[ ! -e x.json ] || fail "an output of a job that failed"
# A program that is not needed any more does not keep the job waiting.
timeout 20 "$ONQ" run "$model" --data 'exec:cat set.tar set.tar; sleep 60' --limit 1 >out || fail "--limit waits"

# A stream without a sample is refused by every command that needs one; none waits for it for ever.
for data in exec:true -; do
    while read -r words; do
        status=0
        # shellcheck disable=SC2086 # several words
        timeout 60 onq $words --data "$data" </dev/null >out 2>err || status=$?
        [ "$status" = 1 ] && grep -q 'no samples in it$' err || fail "$words --data $data: status $status: $(cat err)"
    done <<END
run $model
bench $model $model
calibrate -i $model -o none.json
static -i $model -o none.onnx
static -i $model -o none.onnx --bias_correction
auto -i $model -o none.onnx
debug --float_model $model --qdq_model $model
END
    [ ! -e none.onnx ] && [ ! -e none.json ] || fail "something was written"
done
