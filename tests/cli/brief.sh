#!/usr/bin/env bash
# brief.sh — what commands print is short and explains itself: the first of many differences, a legend under a
# table.
model=$ONQ_ROOT/examples/digits_cnn/model.onnx
cache=$ONQ_ROOT/tests/cli/digits_cnn.cache.json

cp "$cache" cache.json
onq static -i "$model" -o q.onnx --calibration_cache cache.json --op_types_to_quantize Conv >out 2>err

# diff shows five of each kind and counts the rest.
onq diff "$model" q.onnx >out && fail "the models are equal"
[ "$(grep -c '^initializer ' out)" -le 5 ] || fail "diff: $(cat out)"
grep -q '^initializer: \.\.\. [0-9]* more (--limit 0 shows all)$' out || fail "diff: $(cat out)"
[ "$(wc -l <out)" -le 40 ] || fail "diff: $(wc -l <out) lines"
onq diff "$model" q.onnx --limit 0 >all || true
[ "$(wc -l <all)" -gt "$(wc -l <out)" ] || fail "--limit 0 shows no more"

# debug explains its columns under the table.
onq debug --float_model "$model" --qdq_model q.onnx >out 2>err
grep -q 'here: lost by this quantizer alone\. qdq: before and after it,$' out || fail "debug: $(cat out)"
