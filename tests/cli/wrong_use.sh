#!/usr/bin/env bash
# wrong_use.sh — what is likely not meant is said: nothing quantized, names that nothing has, files that have no use.

model=$ONQ_ROOT/examples/digits_cnn/model.onnx
cp "$ONQ_ROOT/tests/cli/digits_cnn.cache.json" cache.json
static() { onq static -i "$model" -o out.onnx --calibration_cache cache.json "$@"; }
dynamic() { onq dynamic -i "$model" -o out.onnx "$@"; }
legacy() { onq legacy -i "$model" -o out.onnx "$@"; }
qat() { onq qat -i "$model" -o out.onnx "$@"; }

# warns PART WORDS...: status 0, a warning with PART.
warns() {
    local part=$1
    shift
    "$@" >stdout 2>stderr || fail "$*: status $?: $(cat stderr)"
    grep -q -F -e "$part" stderr || fail "$*: '$(cat stderr)' does not say '$part'"
}

# refuses STATUS PART WORDS...: one line with PART, and no output.
refuses() {
    local want=$1 part=$2 status=0
    shift 2
    rm -f out.onnx
    "$@" >stdout 2>stderr || status=$?
    [ "$status" = "$want" ] || fail "$*: status $status, wanted $want: $(cat stderr)"
    grep '^onq: error: ' stderr | says -F -e "$part" || fail "$*: '$(cat stderr)' does not say '$part'"
    [ ! -e out.onnx ] || fail "$*: wrote a file"
}

# silent PART WORDS...: status 0, and PART is not said.
silent() {
    local part=$1
    shift
    "$@" >stdout 2>stderr || fail "$*: status $?"
    ! grep -q -F -e "$part" stderr || fail "$*: '$(cat stderr)'"
}

# Nothing was quantized: said though -q hides warnings, with the reason; an error with --strict.
nothing=(--nodes_to_exclude 're:.')
for format in qdq qoperator; do
    warns 'warning: nothing was quantized (15 of 15 nodes: in nodes_to_exclude)' \
        static -q --quant_format $format "${nothing[@]}"
    [ "$(wc -l <stderr)" = 1 ] || fail "-q: $(cat stderr)"
    refuses 1 'nothing was quantized (15 of 15 nodes: in nodes_to_exclude)' \
        static --strict --quant_format $format "${nothing[@]}"
done
warns 'nothing was quantized (' dynamic -q "${nothing[@]}"
refuses 1 'nothing was quantized (' dynamic -q --strict "${nothing[@]}"
warns 'nothing was quantized (' qat -q "${nothing[@]}"
refuses 1 'nothing was quantized (' qat --strict "${nothing[@]}"
warns 'not in op_types_to_quantize)' static -q --op_types_to_quantize conv
silent 'nothing was quantized' static -q

# Operator types, whatever option takes them; the nearest one, whatever its case.
for option in op_types_to_quantize op_types_to_exclude_output_quantization; do
    warns "--$option: no node is a 'conv'; the nearest is 'Conv'" static --$option conv Gemm
    refuses 1 "--$option: no node is a 'Cnv' (did you mean 'Conv'?)" static --strict --$option Cnv
    silent "no node is a 'LSTM'" static --$option Conv LSTM
done
warns "--op_per_channel_axis: no node is a 'Gem'; the nearest is 'Gemm'" static --per_channel --op_per_channel_axis Gem 0
warns "no node is a 'Conc'" static --extra OpTypesToExcludeOutputQuantization=Conc
warns "no node is a 'MatMull'" dynamic --op_types_to_quantize MatMull Conv
warns "no node is a 'Convv'; the nearest is 'Conv'" qat --op_types_to_quantize Convv
# What is far is not suggested.
warns "no node is called 'nosuch'" static --nodes_to_exclude nosuch
grep -q 'nearest' stderr && fail "far: $(cat stderr)"
warns "no node is called 'zz'" static --nodes_to_exclude zz
grep -q 'nearest' stderr && fail "far: $(cat stderr)"

# Overrides.
echo '{"inptu": [{"symmetric": true}]}' >over.json
refuses 1 "tensor 'inptu': it is not present in the model (did you mean input?)" static --tensor_quant_overrides over.json
echo '{"input": [{"convert": {"quant_type": "qint8", "recv_nodes": ["/c1/Conw"]}}]}' >over.json
warns "over.json: no node is called '/c1/Conw'; the nearest is '/c1/Conv'" static --tensor_quant_overrides over.json
refuses 1 "over.json: no node is called '/c1/Conw'" static --strict --tensor_quant_overrides over.json

# Files of the legacy modes.
echo '{"inptu": [0, 0.1]}' >in.json
refuses 1 "has no parameters for tensor 'input', which node '/c1/Conv' (Conv) needs (it has 'inptu')" \
    legacy --quantization_mode IntegerOps_Static --input_quantization_params in.json
warns '--input_quantization_params has no effect with --quantization_mode IntegerOps_Dynamic' \
    legacy --input_quantization_params in.json

# A model that is quantized already.
static -q
cp out.onnx quantized.onnx
for command in static dynamic legacy; do
    options=()
    [ $command = static ] && options=(--calibration_cache cache.json)
    onq $command -i quantized.onnx -o twice.onnx "${options[@]}" >/dev/null 2>stderr || true
    grep -q 'warning: the model is quantized already: it has 38 QuantizeLinear and DequantizeLinear' stderr ||
        fail "$command of a quantized model: $(cat stderr)"
done
onq qat -i quantized.onnx -o twice.onnx 2>stderr >/dev/null
! grep -q 'quantized already' stderr || fail "qat: $(cat stderr)"

# What a newcomer types: the message says what to write instead.
refuses 2 "unknown option '--quant_format' (an option of static, nbits, qat;" dynamic --quant_format qdq
refuses 2 "unexpected argument 'a.onnx' (models are given with --input and --output;" static a.onnx
refuses 2 "unexpected argument 'a.onnx' (models are given with --float_model and --qdq_model;" \
    onq debug --float_model "$model" --qdq_model "$model" a.onnx
refuses 2 "--extra: ActivationSymmetric: 'maybe' is not true or false" static --extra ActivationSymmetric=maybe
refuses 2 "--target: agreement cannot be 200 (it is a percentage: 0 to 100;" \
    onq auto -i "$model" -o out.onnx --data random:4 --target agreement=200
refuses 2 "--target: cosine cannot be 2 (-1 to 1;" onq auto -i "$model" -o out.onnx --data random:4 --target cosine=2
refuses 2 "bits: 5 is not one of 2, 3, 4, 8" onq nbits -i "$model" -o out.onnx --bits 5
refuses 1 "not a source of samples (a folder, .npz, .npy, .tar," onq static -i "$model" -o out.onnx --data "$model"
warns "not supported in this mode; Gemm: not in op_types_to_quantize)" onq nbits -i "$model" -o out.onnx
warns '(onq static and onq dynamic quantize such a model)' qat
mkdir -p pets/dog
refuses 1 'pets: no samples in it (wanted: test_data_set_* folders, JPEG or PNG images, .npz or .npy files; other folders in it are not' \
    onq static -i "$model" -o out.onnx --data pets
refuses 1 "expected FLOAT[batch,1,28,28] (in Python: .astype('float32'))" \
    onq static -i "$model" -o out.onnx --data "$ONQ_ROOT/examples/digits_cnn/labels.npy"

# Counts and reasons are those of what was asked.
[ "$(onq ops Conv | tail -1)" = '1 operator' ] || fail "$(onq ops Conv)"
onq dynamic -q -i "$model" -o dynamic.onnx
onq inspect dynamic.onnx | says 'without float weights, which gains little (' || fail "$(onq inspect dynamic.onnx)"

# The file is named even where the message begins with the same letters.
cp "$ONQ_ROOT/examples/digits_cnn/model.onnx" n
onq dynamic -i n -o o.onnx --nodes_to_exclude 're:.*' --strict 2>err && fail "nothing was quantized and the status is 0"
grep -q '^onq: error: n: nothing was quantized' err || fail "$(cat err)"
onq dynamic -i n.onnx -o o.onnx 2>err && fail "there is no n.onnx"
[ "$(grep -o 'n\.onnx' err | wc -l)" = 1 ] || fail "named twice: $(cat err)"
