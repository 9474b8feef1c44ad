#!/usr/bin/env bash
# check.sh [STEP...] — all steps of `make check`, or those named, with a summary. A step whose tool is absent is skipped and
# says so; one that fails does not stop the others.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1
export JOBS=${JOBS:-$(nproc)}
ctest=(ctest --parallel "$JOBS" --output-on-failure --no-tests=error)
skipped=77

need() { # program, package
    command -v "$1" >/dev/null && return 0
    echo "skipped: $1 is not installed (Debian: $2)"
    return "$skipped"
}

step_test() { make test; }

step_threads() {
    tools/build.sh tsan -DONQ_TESTS=ON && "${ctest[@]}" --test-dir build/tsan
}

step_clang() {
    need clang clang || return
    tools/build.sh clang -DONQ_TESTS=ON && "${ctest[@]}" --test-dir build/clang
}

step_tidy() {
    need clang-tidy clang-tidy || return
    tools/build.sh clang -DONQ_TESTS=ON || return 1
    # What that build compiles: CMakeLists.txt knows which files are of other systems, whose headers are not here.
    tools/list-files.sh 'src/*.c' 'cli/*.c' | while read -r file; do
        ! grep -qF "/$file\"" build/clang/compile_commands.json || echo "$file"
    done | xargs -n 1 -P "$JOBS" clang-tidy --quiet -p build/clang \
        --extra-arg=-UNDEBUG --extra-arg=-DOQ_ANALYZER --extra-arg=-Wno-unused-value
}

# Two of gcc 12's analyzer warnings are off (CMakePresets.json): it takes structures returned by value for uninitialized, and
# shifts of vectors for shifts of their masks. clang-tidy and valgrind watch those.
step_analyzer() {
    tools/build.sh analyzer objects
}

step_format() {
    need clang-format clang-format || return
    tools/list-files.sh '*.c' '*.h' | xargs clang-format --dry-run --Werror
}

step_shell() {
    need shellcheck shellcheck || return
    tools/list-files.sh '*.sh' .ci/run | grep -v '^tests/cli/' | xargs shellcheck --severity=warning
}

step_valgrind() {
    need valgrind valgrind || return
    tools/build.sh debug -DONQ_TESTS=ON || return 1
    local program status=0 count=0
    export ONQ_ROOT=$PWD ONQ_BUILD=$PWD/build/debug ONQ=$PWD/build/debug/onq ONQ_TEST_LOOSE=1
    for program in build/debug/tests/unit_*; do
        [ -x "$program" ] || continue
        [[ $program != *_budget ]] || continue # valgrind itself reads what these must leave unread
        count=$((count + 1))
        printf '%s ' "${program##*/}"
        if timeout 900 valgrind --quiet --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite \
            --suppressions=tests/harness/valgrind.supp "$program" >build/debug/valgrind.log 2>&1; then
            echo ok
        else
            echo "FAILED"
            tail -n 40 build/debug/valgrind.log
            status=1
        fi
    done
    [ "$count" -gt 0 ] && return "$status"
}

# A fresh seed each time, on the targets of the sanitizer build; then libFuzzer for a while.
step_fuzz() {
    tools/build.sh asan -DONQ_TESTS=ON || return 1
    export ONQ_FUZZ_SEED=${ONQ_FUZZ_SEED:-$(date +%s)} ONQ_FUZZ_ROUNDS=${ONQ_FUZZ_ROUNDS:-40000}
    echo "ONQ_FUZZ_SEED=$ONQ_FUZZ_SEED"
    "${ctest[@]}" --test-dir build/asan -L fuzz --timeout 900 || return 1
    need clang clang || return
    tools/fuzz.sh "${TIME:-900}"
}

# Hostile input of two further seeds, every fault of every command, and more moments to be killed at.
step_hostile() {
    tools/build.sh asan -DONQ_TESTS=ON || return 1
    local seed=${ONQ_HOSTILE_SEED:-$(date +%s)} status=0
    export ONQ_ROOT=$PWD ONQ_BUILD=$PWD/build/asan ONQ=$PWD/build/asan/onq
    build/venv/bin/python tests/hostile/campaign.py --seed "$seed" --each "${ONQ_HOSTILE_EACH:-8}" || status=1
    build/venv/bin/python tests/hostile/campaign.py --seed $((seed + 1)) --each "${ONQ_HOSTILE_EACH:-8}" || status=1
    build/asan/tests/hostile_faults all || status=1
    ONQ_HOSTILE_SEED=$seed ONQ_HOSTILE_ROUNDS=40 build/venv/bin/python -m pytest tests/hostile/test_crash.py || status=1
    return "$status"
}

# An hour of models from many threads at once, with memory flat; ONQ_LOAD_SECONDS says how long.
step_soak() {
    tools/build.sh release -DONQ_TESTS=ON || return 1
    ONQ_ROOT=$PWD ONQ_BUILD=$PWD/build build/tests/hostile_load 200 "${ONQ_LOAD_SECONDS:-3600}"
}

step_coverage() {
    need gcovr gcovr || return
    tools/coverage.sh
}

step_aarch64() {
    tools/setup.sh aarch64 || return 1
    need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu || return
    need qemu-aarch64 qemu-user || return
    tools/build.sh aarch64 -DONQ_TESTS=ON && "${ctest[@]}" --test-dir build/aarch64 -L 'unit|fuzz' --timeout 1500 || return 1
    tools/build.sh release product && step_aarch64_static
}

# Commands on 64-bit Arm, with that architecture's ONNX Runtime.
step_aarch64_static() {
    local qemu=$PWD/build/aarch64/qemu/usr/bin/qemu-aarch64 root=$PWD/build/aarch64/root here=examples/digits_cnn model
    local out=build/aarch64/static arm=$PWD/build/aarch64/static/onq-aarch64 shared=${ONQ_MODELS:-../shared/models}/ppocr_cls
    [ -x "$qemu" ] || qemu="qemu-aarch64"
    rm -rf "$out" && mkdir -p "$out" || return 1
    printf '#!/bin/sh\nexport ONQ_ONNXRUNTIME="${ONQ_ONNXRUNTIME:-%s}"\nexec %q -E %q %q "$@"\n' "$PWD/build/aarch64/runtime" "$qemu" \
        "LD_LIBRARY_PATH=$root/lib/aarch64-linux-gnu:$root/usr/lib/aarch64-linux-gnu" "$PWD/build/aarch64/onq" >"$arm"
    chmod +x "$arm"
    "$arm" run "$here/model.onnx" --data random:1 >/dev/null || { echo "skipped: ONNX Runtime does not run under $qemu"; return "$skipped"; }
    "$arm" preprocess -i "$here/model.onnx" -o "$out/infer.onnx" &&
        "$arm" static -i "$out/infer.onnx" -o "$out/int8.onnx" --data "$here" --per_channel &&
        build/onq preprocess -i "$here/model.onnx" -o "$out/infer-here.onnx" --quiet &&
        build/onq static -i "$out/infer-here.onnx" -o "$out/int8-here.onnx" --data "$here" --per_channel --quiet &&
        build/onq diff "$out/int8.onnx" "$out/int8-here.onnx" &&
        same_there "$here/model.onnx" "$here" || return 1
    [ ! -e "$shared/model.onnx" ] || same_there "$shared/model.onnx" "$shared" || return 1
    # verify starts that onq for a library of Arm; 8-bit sums do not saturate there, and do on x86 without VNNI.
    python3 tests/tools/saturating.py "$out/m.onnx" "$out/samples" &&
        build/onq static -i "$out/m.onnx" -o "$out/eight.onnx" --data "$out/samples" --no_verify --quiet &&
        build/onq static -i "$out/m.onnx" -o "$out/safe.onnx" --data "$out/samples" --no_verify --quiet --saturation_safe || return 1
    for model in eight safe; do
        build/onq verify "$out/$model.onnx" --float_model "$out/m.onnx" --data "$out/samples" --onnxruntime build/aarch64/runtime \
            --run_with "$arm" || return 1
    done
    haswell() {
        "${qemu%aarch64}x86_64" -cpu Haswell build/onq verify "$out/$1.onnx" --float_model "$out/m.onnx" --data "$out/samples" \
            --isolate=false
    }
    haswell safe && ! haswell eight
}

# same_there MODEL DATA — the same bytes as here, and outputs that are equal but for rounding. The ranges come from here:
# those that the runtime of Arm computes differ in the last digit.
same_there() {
    local words
    build/onq preprocess -i "$1" -o "$out/infer.onnx" --quiet &&
        build/onq calibrate -i "$out/infer.onnx" -o "$out/ranges.json" --data "$2" --limit 2 --quiet || return 1
    while read -r words; do
        rm -rf "$out"/outputs-*
        # shellcheck disable=SC2086  # several words
        build/onq $words -i "$out/infer.onnx" -o "$out/here.onnx" --quiet && "$arm" $words -i "$out/infer.onnx" -o "$out/there.onnx" --quiet &&
            cmp "$out/here.onnx" "$out/there.onnx" &&
            build/onq run "$out/here.onnx" -o "$out/outputs-here" --data "$2" --limit 1 --format npz --quiet &&
            "$arm" run "$out/here.onnx" -o "$out/outputs-there" --data "$2" --limit 1 --format npz --quiet &&
            python3 tests/tools/near.py "$out/outputs-here" "$out/outputs-there" 40 || { echo "$1: $words"; return 1; }
    done <<END
static --calibration_cache $out/ranges.json --per_channel --saturation_safe
static --calibration_cache $out/ranges.json --quant_format qoperator --reduce_range
dynamic --per_channel
nbits --symmetric false --op_types_to_quantize MatMul,Gemm
nbits --bits 8 --quant_method hqq --op_types_to_quantize MatMul,Gemm
END
}

step_packages() {
    tools/setup.sh package || return 1
    tools/try-packages.sh
}

# A function, so that the whole script is read before it runs: editing it meanwhile does no harm.
main() {
    local steps summary=() failed=0 step start result
    steps=(test threads clang tidy analyzer format shell valgrind hostile soak fuzz coverage aarch64 packages)
    [ $# -gt 0 ] && steps=("$@")
    for step in "${steps[@]}"; do
        declare -F "step_$step" >/dev/null || { echo "check: no step is called $step" >&2; exit 2; }
        printf '\n== %s\n' "$step"
        start=$SECONDS
        (step_"$step")
        case $? in
        0) result=ok ;;
        "$skipped") result=skipped ;;
        *)
            result=FAILED
            failed=$((failed + 1))
            ;;
        esac
        summary+=("$(printf '  %-10s %-8s %d s' "$step" "$result" $((SECONDS - start)))")
    done
    printf '\ncheck:\n'
    printf '%s\n' "${summary[@]}"
    [ "$failed" = 0 ]
}
{ main "$@"; exit; }
