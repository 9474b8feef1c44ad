#!/usr/bin/env bash
# docs.sh — every command in the documents works as pasted, and every option they name exists.
#
# The `sh` blocks of a page are one script, run in a folder of its own with model.onnx, samples/, eval.npz, labels.npy,
# infer.onnx, int8.onnx, examples/, and stream.onnx, signals/, decoder.onnx, prompts/ (tests/tools/state_models.c); README.md, which speaks to someone in a fresh clone, gets examples/ only. A block
# that cannot run here has `<!-- not run: REASON -->` on the line before it. A line `# onq: ...` in a block is an answer
# that the commands before it give. docs/commands is left to help_examples.sh, which has the same lines.
if [ -z "${ONQ_ONNXRUNTIME-}" ] && [ -e "$ONQ_ROOT/build/runtime" ]; then
    export ONQ_ONNXRUNTIME=$ONQ_ROOT/build/runtime
fi
# Every option that a document names is one of some command; beside these: options of onq itself, of other programs
# (pkg-config, this project's scripts), a beginning (--calib_*) and one that is mistyped on purpose.
{
    for command in $(onq --list-commands); do onq --markdown "$command"; done
    echo --help --version --man --markdown --completion --list_commands --cflags --libs --accept --docs --calib_ --jsn
} | grep -oE -e '--[a-z][a-z_0-9]*' | sort -u >known
for page in README.md CONTRIBUTING.md SECURITY.md docs/*.md docs/guides/*.md examples/*.md examples/*/*.md; do
    for file in "$ONQ_ROOT"/$page; do
        [ -f "$file" ] || continue
        { grep -oE -e '(^|[^a-zA-Z0-9-])--[a-z][a-z_0-9-]+' "$file" || true; } | sed 's/^.*--//; s/-/_/g; s/^/--/' |
            sort -u | comm -23 - known >unknown
        [ ! -s unknown ] || fail "$file: no command has $(tr '\n' ' ' <unknown)"
    done
done

here=$ONQ_ROOT/examples/digits_cnn
mkdir -p files/samples
cp "$here/model.onnx" "$here/eval.npz" "$here/labels.npy" files
cp -r "$here"/test_data_set_* files/samples
(
    cd files
    onq run model.onnx --data samples --limit 1 >/dev/null 2>../err || { cat ../err; exit 77; } # no runtime
    onq preprocess -i model.onnx -o infer.onnx -q
    onq static -i infer.onnx -o int8.onnx --data samples -q >/dev/null
)
# Models with states, for the page that is about them.
[ ! -x "$ONQ_BUILD/tests/state_models" ] || "$ONQ_BUILD/tests/state_models" files

# The sh blocks of a page, with a mark before each; complains about what the page should not have.
blocks() {
    awk -v page="$1" '
    /^```/ {
        if (inside) { inside = 0; run = 0; next }
        inside = 1
        language = substr($0, 4)
        if (language !~ /^(sh|c|python|json|text|cmake)$/)
            print page ":" NR ": a block of \"" language "\", not sh, c, python, json, text or cmake" >"/dev/stderr"
        run = language == "sh" && before !~ /^<!-- not run: .+ -->$/
        if (run) print "echo \"" page ":" NR "\" >at"
        next
    }
    inside { if (run) print; next }
    /^    (\$ )?onq / { print page ":" NR ": a command outside of a block: it is not tested" >"/dev/stderr" }
    { before = $0 }
    END { if (inside) print page ": a block has no end" >"/dev/stderr" }' "$ONQ_ROOT/$1"
}

ran=0
for page in README.md $(cd "$ONQ_ROOT" && ls docs/*.md docs/guides/*.md); do
    folder=${page//\//.}.run
    mkdir "$folder"
    [ "$page" = README.md ] || cp -r files/. "$folder"
    cp -r "$ONQ_ROOT/examples" "$folder/examples"
    blocks "$page" >"$folder.sh" 2>bad
    [ ! -s bad ] || { cat bad; exit 1; }
    [ -s "$folder.sh" ] || continue
    [ "$page" != docs/guides/state.md ] || [ -e files/stream.onnx ] || continue # state_models needs cmocka
    (cd "$folder" && bash -eu -o pipefail "../$folder.sh" >../out 2>../err </dev/null) ||
        fail "$(cat "$folder/at"): failed: $(tail -3 err)"
    ! grep 'warning: nothing was quantized' err || fail "$page: a command does nothing with the files at hand"
    sed -n 's/^# \(onq: .*\)$/\1/p' "$folder.sh" | while IFS= read -r line; do
        grep -qxF -e "$line" out err || fail "$page shows '$line', which did not come"
    done
    rm -r "$folder"
    ran=$((ran + 1))
done
[ "$ran" -ge 5 ] || fail "only $ran pages have commands"

# C in README.md compiles; in docs/C_INTERFACE.md it is taken from the examples.
{
    printf '#include <onq/onq.h>\n#include <stdio.h>\nint main(void) {\n'
    awk '/^```/ { inside = $0 == "```c"; next } inside' "$ONQ_ROOT/README.md"
    printf 'return 0;\n}\n'
} >readme.c
"${CC:-cc}" -std=c11 -Wall -Wextra -Werror -fsyntax-only -I "$ONQ_ROOT/include" readme.c
awk '/^```/ { inside = $0 == "```c"; next } inside && NF { sub(/^ +/, ""); print }' "$ONQ_ROOT/docs/C_INTERFACE.md" |
    while IFS= read -r line; do
        grep -qF -e "$line" "$ONQ_ROOT"/examples/c/*.c || fail "docs/C_INTERFACE.md: '$line' is not in examples/c"
    done

# Every column that debug and bench print is a row of a table in docs/DEBUG.md.
cd files
{
    onq debug --float_model infer.onnx --qdq_model int8.onnx --data samples --sensitivity --limit 2 | grep '^rank '
    onq bench infer.onnx int8.onnx --data eval.npz --labels labels.npy --runs 1 | grep '^model '
    onq bench --units infer.onnx --data samples | grep '^count '
} 2>/dev/null >columns
[ "$(wc -l <columns)" = 3 ] || fail "tables: $(cat columns)"
awk -F'|' '/^\|/ { print $2 }' "$ONQ_ROOT/docs/DEBUG.md" | tr -s ' ,' '\n' | sort -u >explained
for word in $(cat columns); do
    grep -qxF -e "$word" explained || fail "docs/DEBUG.md does not explain the column '$word'"
done
