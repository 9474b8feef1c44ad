#!/usr/bin/env bash
# check-windows.sh [PART...] — tries build/windows under wine against build/onq, the program of this machine. Parts:
#   bytes     every command on the bundled model, and on the shared ones where they are: the same files, text and status
#   paths     umlauts, Chinese, long paths, backslashes, drives, servers, pipes, results that replace an open file
#   console   a console: letters of several bytes, its width, Ctrl-C
#   hostile   damaged models of tests/hostile and tests/fuzz/corpus: the same answer as on Linux, and no crash; then the
#             campaign of tests/hostile with one case of each class for each command
#   unit      the unit tests, built for Windows; tests/windows/left_out.txt says which are not, and why
#   cli       tests/cli with this program in the place of onq
#   python    the wheel (tools/wheels.sh windows) in a Python of Windows, against build/venv: the same files. The variable
#             ONQ_WINDOWS_PYTHON is the folder of that Python, with numpy, onnx and a recent
#             msvcp140.dll in it (docs/PACKAGES.md); left out without it
# Wine is not Windows: docs/PACKAGES.md says what remains to be seen there. Prints what differs; exits 1 if anything does.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1
root=$PWD
theirs=$root/tools/wine-onq.sh
ours=$root/build/onq
models=${ONQ_MODELS:-$root/../shared/models}
work=$(mktemp -d) || exit 1
trap 'stop_wine; rm -rf -- "$work"' EXIT
export ORT_DISABLE_TELEMETRY=1 LC_ALL=C.UTF-8
passed=0 failed=0 skipped=0

[ -e build/windows/onq.exe ] && [ -x "$ours" ] || { echo "check-windows: make and make windows come first" >&2; exit 1; }

# What stands for Windows itself is started once, with no stream of ours: each program would wait for it to end otherwise.
export WINEPREFIX=${WINEPREFIX:-$root/build/windows/wine}
server=$(command -v wineserver64 wineserver /usr/lib/wine/wineserver64 /usr/lib/wine/wineserver | head -n 1)
stop_wine() { [ -z "$server" ] || "$server" -k >/dev/null 2>&1; }
start_wine() {
    stop_wine
    mkdir -p "$WINEPREFIX" # or the server does not start, and every program waits until one of its own has
    [ -z "$server" ] || "$server" -p </dev/null >/dev/null 2>&1 || echo "check-windows: $server does not start: all will take long"
    WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml=" timeout 300 "${WINE:-/usr/lib/wine/wine64}" build/windows/onq.exe --version \
        </dev/null >/dev/null 2>&1
    timeout 60 "$theirs" --version >"$work/version" 2>&1 ||
        { cat "$work/version"; echo "check-windows: wine cannot run it"; exit 1; }
}

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
    local name=$1 side answer=()
    shift
    for side in ours theirs; do
        rm -rf "${work:?}/$side"
        mkdir -p "$work/$side"
        (cd "$work/$side" && "${!side}" "$@" >../"$side.out" 2>../"$side.err" </dev/null)
        answer+=($?)
        calm "$work/$side.out" >"$work/$side.said"
        calm "$work/$side.err" >>"$work/$side.said"
    done
    if [ "${answer[0]}" != "${answer[1]}" ]; then
        bad "$name: status ${answer[0]} and ${answer[1]}" "$work/theirs.said"
    elif ! diff -rq "$work/ours" "$work/theirs" >"$work/diff"; then
        bad "$name: files" "$work/diff"
    elif ! diff "$work/ours.said" "$work/theirs.said" >"$work/diff"; then
        bad "$name: text" "$work/diff"
    else
        good
    fi
}

# alike NAME PATTERN ARGUMENT... — both programs end well and say so
alike() {
    local name=$1 pattern=$2 side
    shift 2
    for side in ours theirs; do
        rm -rf "${work:?}/$side"
        mkdir -p "$work/$side"
        if ! (cd "$work/$side" && "${!side}" "$@" >../"$side.said" 2>&1 </dev/null) || ! grep -qE -- "$pattern" "$work/$side.said"; then
            bad "$name: $side" "$work/$side.said"
            return
        fi
    done
    good
}

part_bytes() {
    local m=$root/examples/digits_cnn/model.onnx d=$root/examples/digits_cnn letter=$root/examples/next_letter command model
    for command in $("$ours" --list-commands); do same "$command --help" "$command" --help; done
    same "inspect" inspect "$m"
    same "inspect -o" inspect "$m" -o page.html
    same "ops" ops
    same "preprocess" preprocess -i "$m" -o p.onnx --optimizer builtin
    # The runtimes of two systems put nodes in another order.
    alike "preprocess by the runtime" '' preprocess -i "$m" -o p.onnx
    "$ours" diff "$work/ours/p.onnx" "$work/theirs/p.onnx" >"$work/said" 2>&1 && good || bad "preprocess by the runtime: diff" "$work/said"
    for command in minmax entropy percentile distribution; do
        same "static $command" static -i "$m" -o q.onnx --data "$d" --calibrate_method "$command"
    done
    same "static QOperator" static -i "$m" -o q.onnx --data "$d" --quant_format QOperator
    same "static per channel" static -i "$m" -o q.onnx --data "$d" --per_channel
    same "dynamic" dynamic -i "$m" -o q.onnx
    same "nbits" nbits -i "$m" -o q.onnx
    for command in rtn k_quant hqq; do same "nbits $command" nbits -i "$m" -o q.onnx --quant_method "$command"; done
    same "nbits QDQ" nbits -i "$m" -o q.onnx --quant_format QDQ
    same "bnb4" bnb4 -i "$m" -o q.onnx
    # Linux takes OpenBLAS for these where it is installed, whose last digits differ: not here.
    mkdir -p "$work/no_blas" && : >"$work/no_blas/libopenblas.so.0" && : >"$work/no_blas/liblapack.so.3"
    for command in gptq gptq_hqq awq; do
        LD_LIBRARY_PATH=$work/no_blas same "nbits $command" nbits -i "$letter/model.onnx" -o q.onnx --quant_method "$command" \
            --data "$letter/samples.npz" --limit 16
    done
    same "calibrate" calibrate -i "$m" -o ranges.json --data "$d"
    same "run" run "$m" -o out --data "$d"
    same "legacy" legacy -i "$m" -o q.onnx
    same "legacy, signed" legacy -i "$m" -o q.onnx --per_channel false --asymmetric_input_types
    "$ours" static -i "$m" -o "$work/int8.onnx" --data "$d" --quiet
    "$ours" dynamic -i "$m" -o "$work/dynamic.onnx" --quiet
    "$ours" nbits -i "$letter/model.onnx" -o "$work/nbits.onnx" --quiet
    for command in float32 qoperator; do same "convert --to $command" convert -i "$work/int8.onnx" -o q.onnx --to "$command"; done
    same "convert --to qdq" convert -i "$work/dynamic.onnx" -o q.onnx --to qdq
    same "convert --to qdq, weights" convert -i "$work/nbits.onnx" -o q.onnx --to qdq
    same "convert --for_runtime" convert -i "$work/dynamic.onnx" -o q.onnx --for_runtime 1.20
    same "qat" qat -i "$work/int8.onnx" -o q.onnx
    same "qat to QDQ" qat -i "$work/int8.onnx" -o q.onnx --quant_format qdq
    same "diff" diff "$m" "$work/int8.onnx"
    same "debug" debug "$m" "$work/int8.onnx" --data "$d"
    same "debug -o" debug "$m" "$work/int8.onnx" --data "$d" -o page.html
    same "dequantize" dequantize -i "$work/int8.onnx" -o f.onnx
    # What these find depends on the time.
    alike "bench" '"sample_agreement": (9[0-9.]*|100)' bench "$m" "$work/int8.onnx" --data "$d" --runs 1 --json
    alike "auto" '"(command|chosen)"' auto -i "$m" -o q.onnx --data "$d" --prefer size --time_limit 20 --json
    alike "verify" '"good": true' verify "$work/int8.onnx" --float_model "$m" --data "$d" --isolate=false --json
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
    x86_64-w64-mingw32-gcc -municode -O1 -o helper.exe "$root/tests/windows/helper.c" || { bad "helper.c"; return; }
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
    answers "exec:" 0 '' static -i "$m" -o e.onnx --data 'exec:helper.exe cat samples.tar' --quiet
    "$ours" static -i "$m" -o want_e.onnx --data samples.tar --quiet
    cmp -s e.onnx want_e.onnx && good || bad "exec: bytes"
    answers "exec: that fails" 1 'ended with status 1|no samples' static -i "$m" -o e2.onnx --data 'exec:helper.exe cat none' --quiet
    echo 97.5 >figure
    answers "--evaluate" 0 '"metric": 97.5' auto -i "$m" -o a.onnx --data "$d" --time_limit 5 --target metric=90 \
        --evaluate 'helper.exe cat figure {model}' --json
    cp "$m" held.onnx
    PROGRAM=$PWD/helper.exe "$theirs" hold held.onnx "Z:$root/build/windows/onq.exe" dynamic -i held.onnx -o held.onnx --force --quiet &&
        cmp -s want.onnx held.onnx && good || bad "a result that replaces a file which another program has open and mapped"
    [ "$(find . -name '*.onq-*' | wc -l)" = 0 ] && good || bad "temporary files stay: $(find . -name '*.onq-*')"
    for location in 'C:x' 'nul' 'com1.bin' 'w.bin:stream' 'a\..\..\b' '..\w' 'w.' 'CON'; do
        python3 "$root/tests/windows/external.py" ext.onnx "$location"
        answers "external data in $location" 1 "external data '.*' (has|is|names|leaves)" dynamic -i ext.onnx -o ext_q.onnx
        [ ! -e ext_q.onnx ] || bad "external data in $location was taken"
    done
    part_servers
    part_runtimes
    cd "$root" || exit 1
}

# A link of this system that leads out of the folder stands for a junction, which wine 8 cannot make; a folder stands for a server.
part_servers() {
    mkdir -p in out "$WINEPREFIX/dosdevices/unc/server"
    ln -sfn "$PWD" "$WINEPREFIX/dosdevices/unc/server/share"
    cp "$root/examples/digits_cnn/model.onnx" unc.onnx
    answers "a server" 0 '' dynamic -i '\\server\share\unc.onnx' -o '//server/share/unc_q.onnx' --quiet
    cmp -s want.onnx unc_q.onnx && good || bad "a server: bytes"
    answers "a path with a question mark" 0 '' dynamic -i "\\\\?\\Z:${PWD//\//\\}\\unc.onnx" -o question.onnx --quiet
    cmp -s want.onnx question.onnx && good || bad "a path with a question mark: bytes"
    rm "$WINEPREFIX/dosdevices/unc/server/share"
    answers "a server that is not there" 1 'nobody.*cannot be opened' inspect '\\nobody\share\none.onnx'
    answers "a drive that is not there" 1 'Q:.*cannot be opened' inspect 'Q:\none.onnx'
    answers "a device to read" 1 'NUL: is a device' inspect NUL
    answers "a device to write" 1 'is not a regular file' dynamic -i unc.onnx -o com1
    answers "a name that Windows does not allow" 1 'a<b.onnx: .*Windows allows no such name' dynamic -i unc.onnx -o 'a<b.onnx'
    head -c 64 /dev/zero >out/w.bin
    ln -sfn ../out in/link
    python3 "$root/tests/windows/external.py" in/ext.onnx link/w.bin
    answers "external data through a link" 1 "external data 'link/w.bin' is a link that leads out" dynamic -i in/ext.onnx -o in/q.onnx
    answers "external data in a folder that is allowed" 0 '' dynamic -i in/ext.onnx -o in/q.onnx --data_root out --quiet
}

# Libraries that are no runtime for this program: one line each, and nothing is written.
part_runtimes() {
    local d=$root/examples/digits_cnn file why
    x86_64-w64-mingw32-gcc -shared '-DVERSION="1.17.3"' -o old.dll "$root/tests/cli/verify_fake.c"
    x86_64-w64-mingw32-gcc -shared '-DVERSION="2.0.0"' -o new.dll "$root/tests/cli/verify_fake.c"
    echo 'int nothing;' | x86_64-w64-mingw32-gcc -shared -o none.dll -x c -
    echo 'int needed(void) { return 1; }' | x86_64-w64-mingw32-gcc -shared -o gone.dll -x c - -Wl,--out-implib,gone.a
    echo 'int needed(void); int needs(void) { return needed(); }' >needs.c
    x86_64-w64-mingw32-gcc -shared -o needs.dll needs.c gone.a
    rm gone.dll
    cp old.dll arm.dll
    # The machine is after the four letters PE, whose place is at 60: 0xaa64 is 64-bit Arm.
    printf '\x64\xaa' | dd of=arm.dll bs=1 seek=$(($(od -An -tu4 -j60 -N4 old.dll) + 4)) conv=notrunc status=none
    head -c 4096 "$root/build/windows/runtime/onnxruntime.dll" >cut.dll
    echo "no library" >text.dll
    cp "$(find -L "$root/build/runtime" -name 'libonnxruntime.so*' | head -n 1)" linux.dll
    while IFS='|' read -r file why; do
        answers "a runtime that is none: $file" 1 "^onq: error: .*$file.*$why" static -i "$d/model.onnx" -o no.onnx --data "$d" --onnxruntime "$file"
        [ "$(wc -l <"$work/said")" = 1 ] && [ ! -e no.onnx ] || bad "$file: not one line, or a result" "$work/said"
        answers "verify: $file" 1 "^onq: error: .*$file.*$why" verify "$d/model.onnx" --data "$d" --isolate=false --onnxruntime "$file"
    done <<'END'
old.dll|is too old: onq needs 1.18 or later
new.dll|is too new: onq knows the functions of 1
none.dll|is not ONNX Runtime: it has no OrtGetApiBase
arm.dll|it is a library for Windows on Arm, and this onq is for Windows
cut.dll|it is damaged
text.dll|it is not a library
linux.dll|it is a library for Linux
needs.dll|a library that it needs was not found
not_a.dll|there is no such file
END
}

part_console() {
    if WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml=" timeout 600 python3 tests/windows/console.py "${WINE:-/usr/lib/wine/wine64}" \
        "$root/build/windows/onq.exe" "$root/examples/digits_cnn/model.onnx" >"$work/said" 2>&1; then
        good
    else
        bad "a console" "$work/said"
    fi
}

part_hostile() {
    local file
    while IFS= read -r file; do same "inspect $file" inspect "$root/$file"; done \
        < <(find tests/fuzz/corpus/decode tests/fuzz/corpus/inspect tests/fuzz/corpus/qdq -type f | LC_ALL=C sort)
    for file in tests/hostile/malformed/*.onnx; do
        case $file in *external_memory_address*) # a name that Windows does not allow: refused for that
            answers "$file" 1 'has a character that no file' dynamic -i "$root/$file" -o q.onnx
            continue ;;
        esac
        same "inspect $file" inspect "$root/$file"
        same "dynamic $file" dynamic -i "$root/$file" -o q.onnx
    done
    campaign
}

# Every class of bad input with every command; what is judged is said in tests/hostile/judge.py.
campaign() {
    local status=0
    ONQ_SYSTEM=windows ONQ=$theirs ONQ_ONNXRUNTIME=$root/build/windows/runtime ONQ_HOSTILE_PATIENCE=4 \
        build/venv/bin/python tests/hostile/campaign.py --each 1 >"$work/said" 2>&1 || status=$?
    cp "$work/said" build/windows/campaign.txt
    if [ "$status" = 0 ]; then good; else bad "the campaign: build/windows/campaign.txt" <(tail -n 12 "$work/said"); fi
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

part_python() {
    local python=${ONQ_WINDOWS_PYTHON-} wheel
    if [ -z "$python" ]; then
        skip python "ONQ_WINDOWS_PYTHON does not say where a Python of Windows is"
        return
    fi
    wheel=$(find build/dist -name 'onq-*-win_amd64.whl' 2>/dev/null | head -n 1)
    [ -n "$wheel" ] || { bad "no wheel of Windows in build/dist"; return; }
    mkdir -p "$work"/python/{ours,theirs,wheel}
    python3 -m zipfile -e "$wheel" "$work/python/wheel"
    ONQ_LIBRARY=build/libonq.so PYTHONPATH=python build/venv/bin/python tests/windows/package.py examples "$work/python/ours" >"$work/said" 2>&1 ||
        bad "package.py here" "$work/said"
    # ucrtbase and others of Microsoft may lie beside it: numpy asks for more of them than wine 8 has. It wants pipes.
    WINEDLLOVERRIDES="mscoree,mshtml=;ucrtbase,msvcp140,vcruntime140,vcruntime140_1=n,b" PYTHONHOME="Z:$python" \
        PYTHONPATH="Z:$work/python/wheel" ONQ_ONNXRUNTIME=$root/build/windows/runtime PROGRAM=$python/python.exe timeout 600 "$theirs" tests/windows/package.py examples \
        "Z:$work/python/theirs" 2>&1 </dev/null | cat >"$work/said"
    if [ "${PIPESTATUS[0]}" != 0 ]; then
        bad "package.py under wine" "$work/said"
    elif diff -rq "$work/python/ours" "$work/python/theirs" >"$work/diff"; then
        passed=$((passed + $(find "$work/python/ours" -type f | wc -l)))
    else
        bad "the files of package.py" "$work/diff"
    fi
}

# A function, so that the whole script is read before it runs.
main() {
    [ $# -gt 0 ] || set -- bytes paths console hostile unit cli python
    local part before
    start_wine
    for part in "$@"; do
        before="$passed $failed $skipped"
        "part_$part"
        # shellcheck disable=SC2086  # three words
        counted "$part" $before
    done
    echo "check-windows: $passed as they should be, $failed not, $skipped left out"
    [ "$failed" = 0 ]
}

counted() { # part, passed, failed and skipped before it
    printf '%-8s %d as they should be, %d not, %d left out\n' "$1:" $((passed - $2)) $((failed - $3)) $((skipped - $4))
}
{ main "$@"; exit; }
