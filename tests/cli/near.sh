#!/usr/bin/env bash
# near.sh — a file, folder or dimension that is not there: the error suggests what is nearly called so.
model=$ONQ_ROOT/examples/digits_cnn/model.onnx
cp "$model" efficientnet.onnx
mkdir -p photos models/test_data_set_0
cp "$model" models/small.onnx
cp "$ONQ_ROOT/tests/cli/digits_cnn.cache.json" ranges.json

says_error() { # PART WORDS...: one line with it, status 1 or 2
    local part=$1 status=0
    shift
    onq "$@" >out 2>err || status=$?
    [ "$status" = 1 ] || [ "$status" = 2 ] || fail "$*: status $status"
    grep -qF -e "$part" err || fail "$*: '$(cat err)' does not say '$part'"
    [ "$(wc -l <err)" = 1 ] || fail "$*: $(cat err)"
}

says_error "efficientnt.onnx: cannot be opened: No such file or directory (did you mean efficientnet.onnx?)" inspect efficientnt.onnx
says_error "ef.onnx: cannot be opened: No such file or directory (did you mean efficientnet.onnx?)" static -i ef.onnx -o q.onnx
says_error "(did you mean models/small.onnx?)" inspect models/smal.onnx
says_error "--data photo: No such file or directory (did you mean photos?)" static -i efficientnet.onnx -o q.onnx --data photo
says_error "the calibration cache 'rangs.json' does not exist (did you mean ranges.json?), and cannot be made: no samples" \
    static -i efficientnet.onnx -o q.onnx --calibration_cache rangs.json
says_error "--dim: no input has a dimension 'bach' (did you mean batch?" inspect efficientnet.onnx --dim bach=2
says_error "--dim: no input has a dimension 'other' (named are: batch;" inspect efficientnet.onnx --dim other=2

# What is not near is not suggested, nor is a name in another folder, nor anything where the file is there.
onq inspect nothing_like_it.onnx 2>err && fail "a missing file is read"
grep -q 'did you mean' err && fail "suggests: $(cat err)"
onq inspect nowhere/efficientnet.onnx 2>err && fail "a missing folder is read"
grep -q 'did you mean' err && fail "suggests: $(cat err)"
onq inspect ranges.json 2>err && fail "JSON is a model"
grep -q 'did you mean' err && fail "suggests: $(cat err)"
exit 0
