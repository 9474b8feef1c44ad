#!/usr/bin/env bash
# help_examples.sh — every example that help shows works as it stands, in the order of the commands and in a folder with
# the files that src/api/options/example.def names.
if [ -z "${ONQ_ONNXRUNTIME-}" ] && [ -e "$ONQ_ROOT/build/runtime" ]; then
    export ONQ_ONNXRUNTIME=$ONQ_ROOT/build/runtime
fi
here=$ONQ_ROOT/examples/digits_cnn
cp "$here/model.onnx" "$here/eval.npz" "$here/labels.npy" .
cp "$ONQ_ROOT/examples/next_letter/model.onnx" language.onnx
cp "$ONQ_ROOT/examples/next_letter/samples.npz" texts.npz
mkdir samples
"$ONQ_BUILD/tests/state_models" . # grouped.onnx, a decoder with a cache, and prompts/
cp -r "$here"/test_data_set_* samples
onq run model.onnx --data samples --limit 1 >out 2>err || { cat err; exit 77; } # no runtime
onq static -i model.onnx -o trained.onnx --data samples -q >/dev/null # QDQ, as training exports it

count=0
for command in $(onq --list-commands); do
    # The lines of the part "Examples" that are indented by four, joined where a backslash ends them.
    onq "$command" --help | awk '/^Examples:$/ { on = 1; next } /^$/ { on = 0 } on && /^    /' >"lines.$command"
    [ -s "lines.$command" ] || fail "$command --help has no example"
    while IFS= read -r line; do
        [[ $line == onq\ * ]] || fail "$command --help: '$line' is no command of onq"
        status=0
        bash -c "$line" >out 2>err </dev/null || status=$?
        # The two models of diff's examples do differ.
        [[ $line == onq\ diff* ]] && { [ "$status" = 1 ] || fail "$line: $status"; status=0; }
        [ "$status" = 0 ] || fail "$line: status $status: $(cat err)"
        # An example that has nothing to do on these files would pass for nothing.
        ! grep -q 'warning: nothing was quantized' err || fail "$line: $(cat err)"
        count=$((count + 1))
    done < <(sed -e ':a' -e '/\\$/N; s/\\\n */ /; ta' -e 's/^ *//' "lines.$command")
done
[ "$count" -ge 25 ] || fail "only $count examples"
