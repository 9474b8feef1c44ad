#!/usr/bin/env bash
# examples.sh — the programs of examples/c do what their first lines say.
model=$ONQ_ROOT/examples/digits_cnn/model.onnx
programs=$ONQ_BUILD/tests
if [ -z "${ONQ_ONNXRUNTIME-}" ] && [ -e "$ONQ_ROOT/build/runtime" ]; then
    export ONQ_ONNXRUNTIME=$ONQ_ROOT/build/runtime
fi

# Without a runtime: weights.
onq dynamic -i "$model" -o dynamic.onnx --no_verify --quiet
"$programs/example_weight_error" "$model" dynamic.onnx >out || fail "weight_error"
[ "$(wc -l <out)" -ge 1 ] && grep -q ' dB  ' out || fail "weight_error: $(cat out)"
"$programs/example_weight_error" "$model" nothing.onnx 2>err && fail "weight_error: a missing file"
grep -q 'nothing.onnx: cannot be opened' err || fail "$(cat err)"
for program in quantize calibrate weight_error; do
    "$programs/example_$program" 2>err && fail "$program without arguments"
    grep -q '^usage: ' err || fail "$program: $(cat err)"
done

onq run "$model" --data random:1 >out 2>err || { cat err; exit 77; } # no runtime
"$programs/example_quantize" "$model" q.onnx >out 2>err || fail "quantize: $(cat err)"
grep -q 'nodes quantized' out || fail "quantize: $(cat out)"
onq inspect q.onnx | says '^quantized: ' || fail "quantize: not quantized"
"$programs/example_quantize" q.onnx.cut q2.onnx 2>err && fail "quantize: a missing file"
head -c 500 "$model" >cut
"$programs/example_quantize" cut q2.onnx 2>err && fail "quantize: half a model"
grep -q '^cut: not an ONNX model' err || fail "$(cat err)"

"$programs/example_calibrate" "$model" random:4:1 random:4:2 >out || fail "calibrate"
[ "$(grep -c 'ranges, the widest reaches' out)" = 2 ] || fail "calibrate: $(cat out)"
"$programs/example_calibrate" "$model" random:4 nowhere >out 2>err && fail "calibrate: a missing folder"
grep -q 'nowhere' err || fail "$(cat err)"
