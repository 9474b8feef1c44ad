#!/usr/bin/env bash
# outputs.sh — outputs are looked at before the work begins: nothing can be overwritten by accident, and what cannot be
# written is reported at once. No runtime is needed: where the work began it would ask for one.

model=$ONQ_ROOT/examples/digits_cnn/model.onnx
cp "$ONQ_ROOT/tests/cli/digits_cnn.cache.json" cache.json
cp "$model" m.onnx
cp m.onnx before
export ONQ_ONNXRUNTIME=/nonexistent/libonnxruntime.so

# refuses STATUS PART WORDS...: status, and one line with PART.
refuses() {
    local want=$1 part=$2 status=0
    shift 2
    "$@" >stdout 2>stderr || status=$?
    [ "$status" = "$want" ] || fail "$*: status $status, wanted $want: $(cat stderr)"
    [ "$(wc -l <stderr)" = 1 ] || fail "$*: not one line: $(cat stderr)"
    grep -q -e "$part" stderr || fail "$*: '$(cat stderr)' does not say '$part'"
    cmp -s m.onnx before || fail "$*: the model has changed"
}

# The model itself, by every path.
ln -s m.onnx link.onnx
ln m.onnx hard.onnx
mkdir -p sub
for command in static dynamic preprocess qat legacy; do
    for path in m.onnx ./m.onnx sub/../m.onnx "$PWD/m.onnx" link.onnx hard.onnx; do
        refuses 2 'is the file that --input reads (--force' onq $command -i m.onnx -o "$path"
    done
    refuses 2 'is the file that --input reads (--force' onq $command -i link.onnx -o m.onnx
done
for words in "static -o q.onnx --plan m.onnx" "dynamic -o q.onnx --plan m.onnx" "calibrate -o m.onnx" \
    "calibrate -o c.json --checkpoint m.onnx"; do
    refuses 2 'is the file that --input reads (name another' onq $words -i m.onnx
done
refuses 2 'is the file that --qdq_model reads' onq debug --float_model before --qdq_model m.onnx -o m.onnx
refuses 2 'is the file that --tensor_quant_overrides reads' \
    onq static -i before -o q.onnx --tensor_quant_overrides m.onnx --plan m.onnx
rm hard.onnx

# Two outputs of one name: the last would be all that is left. The data of a model is an output of its own.
ln -s . here
for words in "static -o q.onnx --plan q.onnx" "static -o q.onnx --plan here/q.onnx" "static -o q.onnx --calibration_cache ./q.onnx" \
    "static -o q.onnx --plan q.onnx.data" "static -o q.onnx --plan c.json --calibration_cache c.json" \
    "calibrate -o c.json --checkpoint c.json" "auto -o q.onnx --report q.onnx" "auto -o q.onnx --resume q.onnx"; do
    refuses 2 'is the file of --[a-z]* too (name another' onq $words -i m.onnx
done
echo '{}' >c.json
refuses 2 'is the file of --output too' onq static -i m.onnx -o c.json --calibration_cache c.json
rm c.json here

# With --force it is replaced; a link is followed, and stays one. What is read beside survives until then.
onq dynamic -i m.onnx -o want.onnx >/dev/null
onq dynamic -i link.onnx -o link.onnx --force >/dev/null
[ -L link.onnx ] || fail "the link is gone"
cmp m.onnx want.onnx || fail "--force: another result"
cp before m.onnx
onq preprocess -i m.onnx -o ext.onnx --optimizer none --use_external_data_format --external_data_size_threshold 0 -q
onq dynamic -i ext.onnx -o wanted.onnx --use_external_data_format >/dev/null
onq dynamic -i ext.onnx -o ext.onnx --use_external_data_format --force >/dev/null
onq diff wanted.onnx ext.onnx >/dev/null || fail "--force with external data: another result"
onq preprocess -i m.onnx -o a.onnx --optimizer none --save_as_external_data --all_tensors_to_one_file \
    --external_data_location q.onnx.data --external_data_size_threshold 0 -q
cp q.onnx.data data_before
refuses 1 'q.onnx.data: holds the external data of the model that is read' \
    onq dynamic -i a.onnx -o q.onnx --use_external_data_format
cmp q.onnx.data data_before || fail "the data of the input is gone"
for words in "dynamic -o q.onnx.data" "inspect -o q.onnx.data" "calibrate -o q.onnx.data" "nbits -o q2.onnx --plan q.onnx.data"; do
    refuses 1 'q.onnx.data: holds the external data of the model that is read' onq $words -i a.onnx
    cmp q.onnx.data data_before || fail "$words: the data of the input is gone"
done
onq static -i m.onnx -o m.onnx --dry_run --calibration_cache cache.json >/dev/null 2>&1 || fail "--dry_run writes nothing"
cmp m.onnx before || fail "--dry_run wrote"

# What cannot be written.
mkdir -p dir
: >file
for words in "static -i m.onnx" "calibrate -i m.onnx" "preprocess -i m.onnx" "dynamic -i m.onnx" "legacy -i m.onnx" \
    "debug --float_model before --qdq_model m.onnx"; do
    refuses 1 'nowhere/q.onnx: its folder cannot be opened' onq $words -o nowhere/q.onnx
    refuses 1 'dir: is a folder\|dir: is not a regular file' onq $words -o dir
done
for option in plan calibration_cache; do
    refuses 1 'nowhere/x.json: its folder cannot be opened' onq static -i m.onnx -o q.onnx --$option nowhere/x.json
done
refuses 1 'nowhere/x: its folder cannot be opened' onq calibrate -i m.onnx -o c.json --checkpoint nowhere/x
refuses 1 'file: is not a folder' onq calibrate -i m.onnx -o c.json --table file
refuses 1 'file: is not a folder' onq run m.onnx --data random:1 -o file
refuses 1 'nowhere/x: the folder cannot be made' onq run m.onnx --data random:1 -o nowhere/x
[ ! -e q.onnx ] && [ ! -e c.json ] || fail "something was written"
[ "$(find . -name '.*onq*' | wc -l)" = 0 ] || fail "litter: $(ls -A)"

# A cache that is used is mentioned, with what it makes needless; its method need not be repeated.
onq static -i m.onnx -o q.onnx --calibration_cache cache.json --data nothing.npz >/dev/null 2>stderr
grep -q '^onq: cache.json: 16 ranges by MinMax are taken from it, and no sample is run; --data is not used: nothing.npz$' \
    stderr || fail "cache: $(cat stderr)"
onq static -i m.onnx -o q2.onnx --calibration_cache cache.json -q >/dev/null 2>stderr
[ ! -s stderr ] || fail "quiet: $(cat stderr)"
sed 's/CalibrationMethod.MinMax/CalibrationMethod.Entropy/' cache.json >entropy.json
onq static -i m.onnx -o q3.onnx --calibration_cache entropy.json >/dev/null 2>stderr || fail "$(cat stderr)"
grep -q 'ranges by Entropy' stderr || fail "entropy: $(cat stderr)"
cmp q.onnx q3.onnx || fail "the method changes how ranges are used"
refuses 1 'was made with Entropy, and MinMax is asked for' \
    onq static -i m.onnx -o q4.onnx --calibration_cache entropy.json --calibration_method minmax
