#!/usr/bin/env bash
# static.sh — `onq static` on the bundled model with a cache of ranges, so that no runtime is needed: results, refusals
# and what they leave behind.

model=$ONQ_ROOT/examples/digits_cnn/model.onnx
cache=$ONQ_ROOT/tests/cli/digits_cnn.cache.json
cp "$cache" cache.json

static() { onq static -i "$model" --calibration_cache cache.json "$@"; }

# refuses STATUS PART WORDS...: status, one line with PART, no output, an old output untouched.
refuses() {
    local want=$1 part=$2 status=0
    shift 2
    echo old >out.onnx
    "$@" -o out.onnx >stdout 2>stderr || status=$?
    [ "$status" = "$want" ] || fail "$*: status $status, wanted $want: $(cat stderr)"
    [ "$(grep -c '^onq: error: ' stderr)" = 1 ] || fail "$*: not one line: $(cat stderr)"
    grep -q -e "$part" stderr || fail "$*: '$(cat stderr)' does not say '$part'"
    [ ! -s stdout ] || fail "$*: wrote to standard output"
    [ "$(cat out.onnx)" = old ] || fail "$*: the old output is gone"
    [ "$(find . -name '*.tmp*' -o -name '.*onq*' | wc -l)" = 0 ] || fail "$*: litter: $(ls -A)"
}

# It works, replaces what was there, and is the same with any number of threads.
echo old >q1.onnx
static -o q1.onnx >text || fail "static failed"
grep -q '^12 of 15 nodes quantized, 3 removed$' text || fail "summary: $(cat text)"
grep -q 'Relu: 3 removed' text || fail "summary: $(cat text)"
static -o q2.onnx --threads 1 >/dev/null
cmp q1.onnx q2.onnx || fail "threads change the result"
static -o q3.onnx --per_channel >/dev/null
cmp -s q1.onnx q3.onnx && fail "--per_channel changes nothing"

# Over its own input.
cp "$model" self.onnx
onq static -i self.onnx -o self.onnx --calibration_cache cache.json --force >/dev/null
cmp self.onnx q1.onnx || fail "over its own input: another result"

# External data: a file beside, replaced and not appended to.
static -o ext.onnx --use_external_data_format >/dev/null
size=$(stat -c %s ext.onnx.data)
static -o ext.onnx --use_external_data_format >/dev/null
[ "$size" = "$(stat -c %s ext.onnx.data)" ] || fail "external data grew"
onq diff q1.onnx ext.onnx >/dev/null || fail "external data changes the model"

# --dry_run writes nothing, --plan writes all of it.
static --dry_run --plan plan.json -o dry.onnx >text
[ ! -e dry.onnx ] || fail "--dry_run wrote a model"
grep -q 'nothing written' text || fail "dry run: $(cat text)"
grep -q '"op_type": "Gemm"' plan.json || fail "no Gemm in the plan"
grep -q '"why": "input scale x weight scale"' plan.json || fail "no bias in the plan"
static --json -o q4.onnx | says '"quantized": 12' || fail "--json"

# The command line itself: 2.
refuses 2 'float 8 is for both activations and weights' static --weight_type qfloat8e4m3fn
refuses 2 'float 8 needs --calibration_method distribution' \
    static --weight_type qfloat8e4m3fn --activation_type qfloat8e4m3fn
refuses 2 'takes 8-bit integers, not QInt16 with QInt8' static --quant_format qoperator --activation_type qint16
refuses 2 'takes 8-bit integers, not QUInt8 with QInt4' static --quant_format qoperator --weight_type qint4
refuses 2 'no operators for QInt8 activations with QUInt8 weights' static --quant_format qoperator --activation_type qint8 --weight_type quint8
refuses 2 'block_size is for --quant_format qdq' static --quant_format qoperator --block_size 16
refuses 2 'cannot be used together' static --quantize_bias --disable_quantize_bias
refuses 2 "unknown key 'WeightSymetric' (did you mean WeightSymmetric" static --extra WeightSymetric=true
refuses 2 "pattern 're:(': " static --nodes_to_exclude 're:('
status=0
onq static -i "$model" >/dev/null 2>err || status=$?
[ "$status" = 2 ] && grep -q 'needs --output' err || fail "no output: $status $(cat err)"

# The job: 1.
refuses 1 'was made with MinMax, and Entropy is asked for' static --method entropy
refuses 1 "no node is a 'Convv' (did you mean 'Conv'?)" static --op_types_to_quantize Convv --strict
refuses 1 'not a calibration cache' onq static -i "$model" --calibration_cache "$model"
sed 's/"input": {"lowest"/"other": {"lowest"/' "$cache" >less.json
refuses 1 "no range for tensor 'input'" onq static -i "$model" --calibration_cache less.json
for text in '{' '[]' '{"nobody": [{"symmetric": true}]}' '{"input": [{"scale": 0.1}]}' \
    '{"input": [{"scale": 0, "zero_point": 0}]}' '{"input": [{"scale": 1, "zero_point": 256}]}'; do
    printf '%s' "$text" >over.json
    refuses 1 'over.json' static --tensor_quant_overrides over.json
done
refuses 1 'missing.json' static --tensor_quant_overrides missing.json

# Names that no node has.
static -o q5.onnx --nodes_to_exclude /c1/Conw 2>err >/dev/null
grep -q "no node is called '/c1/Conw'; the nearest is '/c1/Conv'" err || fail "no suggestion: $(cat err)"
cmp q1.onnx q5.onnx || fail "a name that no node has changes the result"
refuses 1 "did you mean '/c1/Conv'" static --strict --nodes_to_exclude /c1/Conw
static -o q6.onnx --nodes_to_exclude 're:^/c' >text
grep -q 'Conv: 3 left float (in nodes_to_exclude)' text || fail "pattern: $(cat text)"

# Methods of single nodes.
echo '{"/c1/Conv": "float", "/c2/Conv": "plain"}' >methods.json
static -o q7.onnx --nodes_to_exclude 're:^/c' --node_methods methods.json >text
grep -q 'Conv: 1 quantized; 1 left float (float in node_methods); 1 left float (in nodes_to_exclude)' text || fail "methods: $(cat text)"
echo '{"/c1/Conw": "plain"}' >methods.json
static -o q8.onnx --node_methods methods.json 2>err >/dev/null
grep -q "node_methods: no node is called '/c1/Conw'; the nearest is '/c1/Conv'" err || fail "no suggestion: $(cat err)"
cmp q1.onnx q8.onnx || fail "a method for no node changes the result"
refuses 1 "did you mean '/c1/Conv'" static --strict --node_methods methods.json
for text in '{' '[]' '{"/c1/Conv": "int8"}' '{"/c1/Conv": "outliers:0"}' '{"/c1/Conv": 1}'; do
    printf '%s' "$text" >methods.json
    refuses 1 'methods.json' static --node_methods methods.json
done
