#!/usr/bin/env bash
# arguments.sh — odd but possible words of a command line: each is an option, a value or a refusal that names it.
model=$ONQ_ROOT/examples/digits_cnn/model.onnx

# refused MESSAGE WORDS... — status 2 and one line that holds MESSAGE.
refused() {
    local message=$1 status=0
    shift
    onq "$@" >out 2>err || status=$?
    [ "$status" = 2 ] || fail "$*: status $status: $(cat err)"
    [ "$(wc -l <err)" = 1 ] && grep -qF -- "$message" err || fail "$*: $(cat err)"
}
long=$(printf 'x%.0s' {1..200})
refused 'a\x1b[31mb' dynamic -i "$model" --a$'\e[31mb' 1
refused 'x\x7fy' dynamic -x$'\x7fy' -- "x"$'\x7f'"y"
refused "unknown option '-\\x1b' in '-q\\x1b'" dynamic $'-q\e'
refused "unknown option '--xxxx" dynamic "--$long"
refused "unknown option '-x'" dynamic "-$long"
refused "unknown option '--i'" dynamic --i "$model"
refused "unknown option '-?'" dynamic '-?'
refused "unknown option '-?' in '-q?'" dynamic '-q?'
refused '--quiet' dynamic -vq=maybe -i "$model" -o x.onnx
refused 'is not a number' static -i "$model" -o x.onnx --calib_percentile "$long"
refused 'is too large a size' static -i "$model" -o x.onnx --memory "$(printf '1%.0s' {1..80})"
refused 'is not a whole number' static -i "$model" -o x.onnx --op_per_channel_axis =1
refused 'there is no number after' static -i "$model" -o x.onnx --op_per_channel_axis MatMul
refused 'is not KEY=VALUE' static -i "$model" -o x.onnx --extra =1
refused 'is not one of' static -i "$model" -o x.onnx --weight_type "$long"
refused 'is not one of' static -i "$model" -o x.onnx --weight_type Other.QuantType.x
refused "'MyQuantType.QInt8' is not one of" static -i "$model" -o x.onnx --weight_type MyQuantType.QInt8
refused "unexpected argument ''" dynamic -i "$model" -o x.onnx -v ''
refused "unexpected argument 'word'" dynamic -i "$model" -o x.onnx --extra EnableSubgraph=True word
refused '-.5 is out of range' static -i "$model" -o x.onnx --calib_percentile -.5

# taken WORDS...
taken() { onq "$@" >out 2>err || fail "$*: $(cat err)"; }
taken dynamic -qv2 -i "$model" -o a.onnx --no_verify
taken dynamic -q=true -i="$model" -oa.onnx --no_verify
taken dynamic --help=true
taken dynamic -h
taken dynamic -i "$model" -o a.onnx --no_verify --weight_type onnxruntime.quantization.QuantType.QUInt8
taken dynamic -i "$model" -o a.onnx --no_verify --extra EnableSubgraph=True MatMulConstBOnly=False -q
taken preprocess -i "$model" -o each.onnx --optimizer none --save_as_external_data --all_tensors_to_one_file false

# Names for external data that would leave the folder or hide the model.
for name in a/b ../b each.onnx; do
    status=0
    onq preprocess -i "$model" -o each.onnx --optimizer none --save_as_external_data --all_tensors_to_one_file \
        --external_data_location "$name" >out 2>err || status=$?
    [ "$status" = 1 ] && grep -q "external data location '$name'" err || fail "$name: status $status: $(cat err)"
done
