#!/usr/bin/env bash
# extra.sh — values as Python and JSON write them give the result that the plain spelling gives.

model=$ONQ_ROOT/examples/digits_cnn/model.onnx
cp "$ONQ_ROOT/tests/cli/digits_cnn.cache.json" cache.json
static() { onq static -i "$model" -o "$@" --per_channel --calibration_cache cache.json -q >/dev/null; }

# same PLAIN OTHER...: every other value of --extra makes the file that the plain one makes, and not that of none.
static none.onnx
same() {
    local other
    static plain.onnx --extra "$1"
    cmp -s plain.onnx none.onnx && fail "--extra $1 changes nothing"
    shift
    for other; do
        static other.onnx --extra "$other"
        cmp plain.onnx other.onnx || fail "--extra $other"
    done
}
same OpTypesToExcludeOutputQuantization=Conv,Gemm 'OpTypesToExcludeOutputQuantization=["Conv", "Gemm"]' \
    "OpTypesToExcludeOutputQuantization=['Conv','Gemm',]" "OpTypesToExcludeOutputQuantization=('Conv', 'Gemm')"
same QuantizeBias=false QuantizeBias=False
same QDQKeepRemovableActivations=true QDQKeepRemovableActivations=True
printf '{"input": [{"quant_type": "qint8", "rmin": -2.5, "rmax": 1}]}' >over.json
same TensorQuantOverrides=over.json "TensorQuantOverrides=$(cat over.json)" \
    "TensorQuantOverrides={'input': [{'quant_type': QuantType.QInt8, 'rmin': np.array(-2.5), 'rmax': np.float32(1.)}]}"
static named.onnx --tensor_quant_overrides "$(cat over.json)"
cmp named.onnx plain.onnx || fail "--tensor_quant_overrides TEXT"

# Options that are lists take them too; a name may begin with a bracket.
static plain.onnx --op_types_to_quantize Conv,Gemm
for other in '["Conv", "Gemm"]' "['Conv', 'Gemm']" '[Conv, Gemm]' "('Conv','Gemm')"; do
    static other.onnx --op_types_to_quantize "$other"
    cmp plain.onnx other.onnx || fail "--op_types_to_quantize $other"
done
static plain.onnx --op_per_channel_axis Gemm 0
static other.onnx --op_per_channel_axis '{"Gemm": 0}'
cmp plain.onnx other.onnx || fail "--op_per_channel_axis {...}"
onq static -i "$model" -o never.onnx --nodes_to_exclude '[odd' --strict --calibration_cache cache.json 2>err && fail "[odd"
grep -qF "'[odd'" err || fail "$(cat err)"

# The reference's names of enumerations and of parameters.
onq dynamic --model_input "$model" --model_output named.onnx --weight_type QuantType.QUInt8 -q --no_verify
onq dynamic -i "$model" -o plain.onnx --weight_type quint8 -q --no_verify
cmp named.onnx plain.onnx || fail "--model_input"
onq static -i "$model" -o a.onnx --calibration_cache cache.json --activation_type QuantType.QInt8 \
    --weight_type QuantType.QInt16 --calibration_method CalibrationMethod.MinMax --quant_format QuantFormat.QDQ -q
onq static -i "$model" -o b.onnx --calibration_cache cache.json --activation_type qint8 --weight_type qint16 -q
cmp a.onnx b.onnx || fail "QuantType.QInt8"
onq legacy -i "$model" -o a.onnx --quantization_mode QuantizationMode.IntegerOps_Dynamic -q
onq legacy -i "$model" -o b.onnx -q
cmp a.onnx b.onnx || fail "QuantizationMode.IntegerOps_Dynamic"

# What cannot be read says what would do.
for bad in 'OpTypesToExcludeOutputQuantization=["Conv"' 'QDQOpTypePerChannelSupportToAxis={"Gemm"}' \
    'QDQOpTypePerChannelSupportToAxis={"Gemm": 0.5}' 'TensorQuantOverrides={"input": '; do
    status=0
    onq static -i "$model" -o never.onnx --calibration_cache cache.json --extra "$bad" 2>err || status=$?
    [ "$status" = 2 ] && grep -q '(expected: ' err || fail "$bad: $status $(cat err)"
    [ ! -e never.onnx ] || fail "$bad: wrote a file"
done
