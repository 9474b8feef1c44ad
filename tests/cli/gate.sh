#!/usr/bin/env bash
# gate.sh — --target as a gate: status 1 and one line where a result is too far from float, and warnings in every --json.
if [ -z "${ONQ_ONNXRUNTIME-}" ] && [ -e "$ONQ_ROOT/build/runtime" ]; then
    export ONQ_ONNXRUNTIME=$ONQ_ROOT/build/runtime
fi
here=$ONQ_ROOT/examples/digits_cnn
model=$here/model.onnx
onq run "$model" --data "$here" --limit 1 >/dev/null 2>err || { cat err; exit 77; } # no runtime

status() { # STATUS WORDS...: the words of onq end with it
    local want=$1 got=0
    shift
    onq "$@" >out 2>err || got=$?
    [ "$got" = "$want" ] || fail "$*: status $got, wanted $want: $(cat out err)"
}
has() { # FILE PART
    grep -qF -e "$2" "$1" || fail "$(cat "$1") does not say '$2'"
}

# static: reached, and not; the figure of all samples; the file is there in both cases.
status 0 static -i "$model" -o q.onnx --data "$here" --per_channel --target sqnr=20 --target agreement=95 cosine=0.99
has out 'target sqnr=20 reached: '
has out 'target agreement=95 reached: '
has out 'target cosine=0.99 reached: 0.99'
has out 'on 20 samples'
status 1 static -i "$model" -o far.onnx --data "$here" --target sqnr=90
has err 'warning: target sqnr=90 not reached: '
test -s far.onnx
status 1 static -i "$model" -o far2.onnx --data "$here" --target sqnr=90 -q
has err 'target sqnr=90 not reached: '
status 1 static -i "$model" -o far3.onnx --data "$here" --target sqnr=90 --strict
has err '(nothing is written because of --strict)'
test ! -e far3.onnx
status 0 static -i "$model" -o few.onnx --data "$here" --target sqnr=20 --check 4
has out 'on 4 samples'

# Other quantizing commands have it too.
status 0 dynamic -i "$model" -o d.onnx --data "$here" --target sqnr=10
status 1 dynamic -i "$model" -o d.onnx --data "$here" --target cosine=1

# JSON has the figures and everything that was warned of, also with --quiet.
status 1 static -i "$model" -o j.onnx --data random:4 --target sqnr=90 --json -q
tr -d ' \n' <out >flat
has flat '"targets":[{"metric":"sqnr","target":90,"measured":'
has flat '"reached":false}]'
has flat '"warnings":["'
has out 'for smoke runs'
has out 'target sqnr=90 not reached'

# bench compares with the first model; labels give another figure.
eval=(--data "$here/eval.npz" --labels "$here/labels.npy" --limit 10 --runs 1)
status 0 bench "$model" q.onnx "${eval[@]}" --target sqnr=20 --target accuracy_drop=5
has out 'q.onnx: target accuracy_drop=5 reached: '
status 1 bench "$model" q.onnx far.onnx "${eval[@]}" --target sqnr=90
[ "$(grep -c 'not reached' err)" = 2 ] || fail "two models miss the target: $(cat err)"
grep -q 'slower than float' out && fail "one run says that a model is slower: $(cat out)"

# What cannot be measured, or contradicts itself, is refused.
status 2 static -i "$model" -o x.onnx --data "$here" --target sqnr=90 --no_verify
status 2 static -i "$model" -o x.onnx --data "$here" --target accuracy_drop=1
has err 'onq bench --labels'
status 2 static -i "$model" -o x.onnx --data "$here" --target agreement=101
status 2 static -i "$model" -o x.onnx --data "$here" --target sqrn=1
status 2 bench "$model" --data "$here" --target sqnr=1
status 1 dynamic -i "$model" -o x.onnx --target sqnr=1 --limit 1 --data "$ONQ_ROOT/nowhere"
test ! -e x.onnx
mkdir alone
cp "$model" alone/model.onnx
status 1 dynamic -i alone/model.onnx -o x.onnx --target sqnr=1
has err 'there are no samples (give --data)'
test ! -e x.onnx

# Every command that ends well says in JSON what it warned of.
onq inspect "$model" --json | tr -d ' \n' >flat
has flat '"warnings":[]'
onq ops --json | tr -d ' \n' >flat
has flat '"warnings":[]'
