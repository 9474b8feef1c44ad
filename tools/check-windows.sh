#!/usr/bin/env bash
# check-windows.sh [PART...] — tries build/windows under wine against build/onq, the program of this machine. Parts:
#   bytes     every command on the bundled model, and on the shared ones where they are: the same files, text and status
#   paths     umlauts, Chinese, long paths, backslashes, drives, pipes, results that replace their input
#   hostile   damaged models of tests/fuzz/corpus: the same answer as on Linux, and no crash
# Wine is not Windows: docs/PACKAGES.md says what remains to be seen there. Prints what differs; exits 1 if anything does.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1
root=$PWD
theirs=$root/tools/wine-onq.sh
ours=$root/build/onq
models=${ONQ_MODELS:-$root/../shared/models}
work=$(mktemp -d) || exit 1
trap 'rm -rf -- "$work"' EXIT
export ORT_DISABLE_TELEMETRY=1 LC_ALL=C.UTF-8
passed=0 failed=0 skipped=0

[ -e build/windows/onq.exe ] && [ -x "$ours" ] || { echo "check-windows: make and make windows come first" >&2; exit 1; }
"$theirs" --version >"$work/version" 2>&1 || { cat "$work/version"; echo "check-windows: wine cannot run it"; exit 1; }

good() { passed=$((passed + 1)); }
bad() { # what, file...
    failed=$((failed + 1))
    echo "DIFFERS: $1"
    shift
    [ $# = 0 ] || head -n 12 -- "$@"
}

# Times, memory, processors and where the runtime is are not the same twice.
calm() { sed -E 's/[0-9]+(\.[0-9]+)? (s|ms|us|MB|MiB|KB)\b/N \2/g; s/\r$//' "$1"; }

# same NAME ARGUMENT... — both programs in a folder of their own; what they write, print and answer
same() {
    local name=$1 side status=()
    shift
    for side in ours theirs; do
        rm -rf "$work/$side"
        mkdir -p "$work/$side"
        (cd "$work/$side" && "${!side}" "$@" >../"$side.out" 2>../"$side.err" </dev/null)
        status+=($?)
        calm "$work/$side.out" >"$work/$side.said"
        calm "$work/$side.err" >>"$work/$side.said"
    done
    if [ "${status[0]}" != "${status[1]}" ]; then
        bad "$name: status ${status[0]} and ${status[1]}" "$work/theirs.said"
    elif ! diff -rq "$work/ours" "$work/theirs" >"$work/diff"; then
        bad "$name: files" "$work/diff"
    elif ! diff "$work/ours.said" "$work/theirs.said" >"$work/diff"; then
        bad "$name: text" "$work/diff"
    else
        good
    fi
}

part_bytes() {
    local m=$root/examples/digits_cnn/model.onnx d=$root/examples/digits_cnn command model
    for command in $("$ours" --list-commands); do same "$command --help" "$command" --help; done
    same "inspect" inspect "$m"
    same "inspect -o" inspect "$m" -o page.html
    same "ops" ops
    same "preprocess" preprocess -i "$m" -o p.onnx --optimizer builtin
    for command in minmax entropy percentile distribution; do
        same "static $command" static -i "$m" -o q.onnx --data "$d" --calibrate_method "$command"
    done
    same "static QOperator" static -i "$m" -o q.onnx --data "$d" --quant_format QOperator
    same "static per channel" static -i "$m" -o q.onnx --data "$d" --per_channel
    same "dynamic" dynamic -i "$m" -o q.onnx
    same "nbits" nbits -i "$m" -o q.onnx
    same "nbits hqq" nbits -i "$m" -o q.onnx --algo hqq
    same "calibrate" calibrate -i "$m" -o ranges.json --data "$d"
    same "run" run "$m" -o out --data "$d"
    same "legacy" legacy -i "$m" -o q.onnx
    same "convert" convert -i "$m" -o q.onnx --to float16
    "$ours" static -i "$m" -o "$work/int8.onnx" --data "$d" --quiet
    same "diff" diff "$m" "$work/int8.onnx"
    same "debug" debug "$m" "$work/int8.onnx" --data "$d"
    same "dequantize" dequantize -i "$work/int8.onnx" -o f.onnx
    for model in "$models"/{lstm_tagger,magika,ppocr_cls,tiny_llama,tiny_llama_ext,silero_vad}/*.onnx; do
        [ -e "$model" ] || continue
        same "inspect $model" inspect "$model"
        same "dynamic $model" dynamic -i "$model" -o q.onnx
        same "nbits $model" nbits -i "$model" -o q.onnx
    done
}

# answers NAME STATUS TEXT ARGUMENT... — what it says on Windows alone
answers() {
    local name=$1 wanted=$2 text=$3
    shift 3
    "$theirs" "$@" >"$work/said" 2>&1 </dev/null
    local status=$?
    if [ "$status" = "$wanted" ] && { [ -z "$text" ] || grep -qaE -- "$text" "$work/said"; }; then good; else bad "$name: status $status" "$work/said"; fi
}

part_paths() {
    local m=$root/examples/digits_cnn/model.onnx d=$root/examples/digits_cnn long deep location
    mkdir -p "$work/paths/größe 模型" && cd "$work/paths" || return
    cp "$m" "größe 模型/ä.onnx"
    "$ours" dynamic -i "$m" -o want.onnx --quiet
    answers "umlauts" 0 '' dynamic -i "größe 模型/ä.onnx" -o "größe 模型/é.onnx" --quiet
    cmp -s want.onnx "größe 模型/é.onnx" && good || bad "umlauts: bytes"
    answers "a name in the message" 1 'größe 模型/nö.onnx' inspect "größe 模型/nö.onnx"
    answers "backslashes" 0 '' dynamic -i 'größe 模型\ä.onnx' -o 'größe 模型\b.onnx' --quiet
    answers "a drive" 0 '' dynamic -i "Z:$work/paths/größe 模型/ä.onnx" -o "z:${work//\//\\}\\paths\\c.onnx" --quiet
    cmp -s want.onnx c.onnx && good || bad "a drive: bytes"
    long=$(printf 'long%.0s' {1..40})
    deep=$long/${long:0:100} # wine 8 does not know the path of an open folder that is longer than 260
    mkdir -p "$long" && cp "$m" "$deep.onnx"
    answers "a long path" 0 '' dynamic -i "$deep.onnx" -o "$deep.q.onnx" --quiet
    cmp -s want.onnx "$deep.q.onnx" && good || bad "a long path: bytes"
    "$theirs" dynamic -i - -o - --quiet <"$m" >piped.onnx && cmp -s want.onnx piped.onnx && good || bad "pipes"
    cp "$m" same.onnx
    answers "a result that replaces its input" 0 '' dynamic -i same.onnx -o same.onnx --force --quiet
    cmp -s want.onnx same.onnx && good || bad "a result that replaces its input: bytes"
    [ "$(find . -name '*.onq-*' | wc -l)" = 0 ] && good || bad "temporary files stay: $(find . -name '*.onq-*')"
    answers "--isolate" 1 'cannot limit a process' dynamic -i "$m" -o i.onnx --isolate
    [ ! -e i.onnx ] && good || bad "--isolate wrote something"
    tar -cf samples.tar -C "$d" eval.npz
    # wine's own `type` changes bytes.
    printf '%s\n' '#include <fcntl.h>' '#include <io.h>' '#include <stdio.h>' 'int main(int n, char **v) {' \
        'char b[4096]; size_t k; FILE *f = fopen(v[n - 1], "rb"); _setmode(1, _O_BINARY);' \
        'while (f && (k = fread(b, 1, sizeof b, f)) > 0) fwrite(b, 1, k, stdout); return !f; }' >cat.c
    x86_64-w64-mingw32-gcc -o cat.exe cat.c
    answers "exec:" 0 '' static -i "$m" -o e.onnx --data 'exec:cat.exe samples.tar' --quiet
    answers "exec: that fails" 1 'ended with status 1|no samples' static -i "$m" -o e2.onnx --data 'exec:cat.exe none' --quiet
    answers "a runtime that is none" 1 'not_a.dll' run "$m" --data "$d" --onnxruntime not_a.dll
    for location in 'C:x' 'nul' 'com1.bin' 'w.bin:stream' 'a\..\..\b' '..\w' 'w.' 'CON'; do
        python3 "$root/tests/windows/external.py" ext.onnx "$location"
        answers "external data in $location" 1 "external data '.*' (has|is|names|leaves)" dynamic -i ext.onnx -o ext_q.onnx
        [ ! -e ext_q.onnx ] || bad "external data in $location was taken"
    done
    cd "$root" || exit 1
}

part_hostile() {
    local file
    while IFS= read -r file; do same "inspect $file" inspect "$root/$file"; done \
        < <(find tests/fuzz/corpus/decode tests/fuzz/corpus/inspect tests/fuzz/corpus/qdq -type f | LC_ALL=C sort | awk 'NR % 9 == 1' | head -n 60)
}

# What is left out of a part, with its reason; the words after the name of a test in tests/windows/left_out.txt.
left_out() { # name
    awk -v name="$1" '$1 == name { sub(/^[^ ]+ +/, ""); print; exit }' tests/windows/left_out.txt
}

skip() { # name, reason
    skipped=$((skipped + 1))
    echo "skipped: $1: $2"
}

# The unit tests as programs of Windows; `portable.sh windows tests` builds them.
part_unit() {
    local program name
    bash tools/portable.sh windows tests || { bad "unit tests cannot be built"; return; }
    awk '/^unit\./ { print $1 }' tests/windows/left_out.txt >"$work/not_built"
    while IFS= read -r name; do skip "$name" "$(left_out "$name")"; done <"$work/not_built"
    for program in build/portable/windows/onq-tests/tests/unit_*.exe; do
        name=${program##*/unit_}
        name=unit.${name/_test_/.}
        name=${name%.exe}
        ! grep -qx "$name" "$work/not_built" || continue # of an earlier build
        if ONQ_ROOT=$root ONQ_BUILD=$root/build ONQ_ONNXRUNTIME=$root/build/windows/runtime PROGRAM=$root/$program \
            timeout 600 "$theirs" >"$work/said" 2>&1 </dev/null; then
            good
        else
            bad "$name: status $?" <(grep -aE 'FAILED|ERROR|error|: ' "$work/said" | tail -n 12)
        fi
    done
}

# tests/cli with the Windows program in the place of onq.
part_cli() {
    local script name why status
    mkdir -p build/windows/cli
    ln -sf "$theirs" build/windows/cli/onq
    for script in tests/cli/${ONQ_ONLY:-*}.sh; do
        name=cli.$(basename "$script" .sh)
        why=$(left_out "$name")
        if [ -n "$why" ]; then
            skip "$name" "$why"
            continue
        fi
        status=0
        ONQ_SYSTEM=windows ONQ=$root/build/windows/cli/onq ONQ_ONNXRUNTIME=$root/build/windows/runtime \
            timeout 1500 bash tests/harness/run_script.sh "$script" >"$work/said" 2>&1 || status=$?
        case $status in
        0) good ;;
        77) skip "$name" "$(tail -n 1 "$work/said")" ;;
        *) bad "$name: status $status" <(tail -n 12 "$work/said") ;;
        esac
    done
}

[ $# -gt 0 ] || set -- bytes paths hostile
for part in "$@"; do "part_$part"; done
echo "check-windows: $passed as they should be, $failed not, $skipped left out"
[ "$failed" = 0 ]
