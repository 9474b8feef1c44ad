#!/usr/bin/env bash
# usage.sh — every convention of the command line, on inspect and diff; what comes out is in usage.stdout.exact.
model=$ONQ_ROOT/examples/digits_cnn/model.onnx
cp "$model" a.onnx
cp "$model" ./-dash.onnx

# Prints the words, the status, and what came out (its first line, of both streams).
try() {
    local status=0
    onq "$@" >out 2>err || status=$?
    printf '$ onq %s\n%d' "$*" "$status"
    [ ! -s out ] || printf ' out: %s' "$(head -1 out)"
    [ ! -s err ] || printf ' err: %s' "$(cat err)"
    printf '\n'
}

echo "# the program's own"
try --version
try -V
status=0
onq >out 2>err || status=$?
echo "nothing: $status, $(wc -c <out) bytes of output, $(head -1 err)"
try help nonsense
try nonsense
try inspct
try quantize
try quantize_static
try version
try debug a.onnx a.onnx
try --verison
try --quiet inspect a.onnx
try --completion
try --completion tcsh

echo "# flags: alone, with a value, grouped; - and _ alike"
try inspect a.onnx --quiet
try inspect a.onnx --quiet=true
try inspect a.onnx --quiet True
try inspect a.onnx --quiet no
try inspect a.onnx -q
try inspect -aq a.onnx
try inspect a.onnx --quiet=perhaps
try inspect -qz a.onnx
try inspect a.onnx --data-root .
try inspect a.onnx --data_root .
try inspect a.onnx --DATA-root=.

echo "# operands, and the option that replaces the model"
try inspect
try inspect -i a.onnx
try inspect --input a.onnx
try inspect --input_model a.onnx
try inspect --input-model-path=a.onnx
try inspect -ia.onnx
try inspect -i=a.onnx
try inspect -i
try inspect -i -q
try inspect a.onnx b.onnx
try inspect -i a.onnx b.onnx
try diff a.onnx
try diff a.onnx a.onnx a.onnx
try inspect -q -- -dash.onnx
try inspect -- -q
try inspect -dash.onnx
try inspect -input a.onnx

echo "# numbers, with a sign too; optional values"
try diff a.onnx a.onnx --tolerance 1e-3
try diff a.onnx a.onnx --tolerance -1
try diff a.onnx a.onnx --tolerance=-1
try diff a.onnx a.onnx --tolerance abc
try diff a.onnx a.onnx --tolerance
try diff a.onnx a.onnx --tolerance --quiet
try diff a.onnx a.onnx -n5
try diff a.onnx a.onnx -n 5
try diff a.onnx a.onnx --limit 5.5
try diff a.onnx a.onnx --verbose
try diff a.onnx a.onnx --verbose 2
try diff a.onnx a.onnx -v2
try diff a.onnx a.onnx -vq
try diff --verbose a.onnx a.onnx
try diff a.onnx a.onnx --verbose 9

echo "# lists: commas, words, repeated, from a file"
printf 'opset\nnode\n' >kinds
try diff a.onnx a.onnx --ignore opset,node
try diff a.onnx a.onnx --ignore opset node
try diff a.onnx a.onnx --ignore opset --ignore node
try diff a.onnx a.onnx --ignore @kinds
try diff --ignore opset node -- a.onnx a.onnx
try diff a.onnx a.onnx --ignore nodes
try diff a.onnx a.onnx --ignore @nothing
try diff a.onnx a.onnx --ignore
try diff a.onnx a.onnx --ignore 'a\,b'

echo "# what is not a model: status 1, one line"
try inspect nothing.onnx
try inspect .
try inspect /dev/null
printf '' >empty.onnx
try inspect empty.onnx
printf 'hello, this is text\n' >text.onnx
try inspect text.onnx
head -c 1000 a.onnx >cut.onnx
try inspect cut.onnx
try inspect $'bell\a.onnx'
