#!/usr/bin/env bash
# random.sh — that samples are random is said once, however often a job opens them.
model=$ONQ_ROOT/examples/digits_cnn/model.onnx
letters=$ONQ_ROOT/examples/next_letter/model.onnx
while read -r words; do
    # shellcheck disable=SC2086 # several words
    onq $words --data random:4 >out 2>err || fail "$words: $(cat err)"
    [ "$(grep -c 'samples\{0,1\} of random values .*: for smoke runs' err)" = 1 ] || fail "$words: $(cat err)"
done <<END
static -i $model -o q.onnx
dynamic -i $model -o d.onnx
nbits -i $letters -o n.onnx
bnb4 -i $letters -o b.onnx
calibrate -i $model -o c.json
run $model
bench $model $model --runs 1
debug --float_model $model --qdq_model q.onnx
auto -i $model -o a.onnx --allow dynamic
END
