#!/usr/bin/env bash
# fuzz.sh SECONDS [TARGET...] — libFuzzer over all fuzz targets, or those named, which share the time; then a summary.
#
# What was learnt is kept in build/fuzz/corpus/TARGET from one run to the next, and made small again at the end of each; the
# seeds in tests/fuzz/corpus/TARGET and in the folders that tests/fuzz/shared.txt adds stay as they are. An input that breaks something is left in build/fuzz/finds, and the script
# fails: mend the cause and add the input to tests/fuzz/corpus/TARGET, where every run of the tests replays it.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1
total=${1:-300}
[[ $total =~ ^[1-9][0-9]*$ ]] || { echo "fuzz: '$total' is not a number of seconds" >&2; exit 2; }
shift || true
if ! command -v clang >/dev/null; then
    echo "fuzz: clang is not installed (Debian: clang)" >&2
    exit 77
fi
tools/build.sh fuzz -DONQ_TESTS=ON || exit 1

root=$PWD build=$PWD/build/fuzz
export ONQ_ROOT=$root ONQ_BUILD=$build UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export ASAN_OPTIONS=detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1
export LSAN_OPTIONS="suppressions='$root/tests/harness/lsan.supp':print_suppressions=0"

targets=("$@")
if [ "${#targets[@]}" = 0 ]; then
    for source in tests/fuzz/fuzz_*.c; do
        source=${source##*/fuzz_}
        targets+=("${source%.c}")
    done
fi
seconds=$((total / ${#targets[@]}))
[ "$seconds" -gt 0 ] || seconds=1
mkdir -p "$build/finds" "$build/log"

# User and system time of a command in seconds, into $cpu; its status is kept.
timed() {
    local times status TIMEFORMAT='%U %S'
    times=$({ time "$@" >>"$log" 2>&1; } 2>&1)
    status=$?
    cpu=$(awk -v a="$cpu" '{ print a + $1 + $2 }' <<<"$times")
    return "$status"
}

last() { grep -o "$1" "$log" | tail -n 1 | grep -o '[0-9]*$'; }

failed=0 sum=0
printf '%-11s %9s %9s %9s %9s %8s\n' target runs coverage features corpus 'cpu s'
for target in "${targets[@]}"; do
    program=$build/tests/fuzz_$target corpus=$build/corpus/$target log=$build/log/$target.log cpu=0 find=''
    [ -x "$program" ] || { echo "fuzz: there is no target '$target'" >&2; exit 2; }
    seeds=()
    while read -r folder; do
        [ ! -d "tests/$folder" ] || seeds+=("tests/$folder")
    done < <(echo "fuzz/corpus/$target"; awk -v target="$target" '$1 == target { print $2 }' tests/fuzz/shared.txt)
    mkdir -p "$corpus"
    rm -rf "$corpus.new"
    : >"$log"
    options=(-timeout=25 -rss_limit_mb=3000 "-artifact_prefix=$build/finds/$target-")
    timed "$program" -max_total_time="$seconds" -print_final_stats=1 -use_value_profile=1 "${options[@]}" \
        "$corpus" "${seeds[@]}" || { failed=$((failed + 1)) find='  FOUND SOMETHING'; }
    runs=$(last 'number_of_executed_units: *[0-9]*') coverage=$(last 'cov: [0-9]*') features=$(last 'ft: [0-9]*')
    mkdir "$corpus.new"
    if timed "$program" -merge=1 "${options[@]}" "$corpus.new" "$corpus" && [ -n "$(ls "$corpus.new")" ]; then
        rm -rf "$corpus" && mv "$corpus.new" "$corpus"
    else
        rm -rf "$corpus.new"
    fi
    files=$(find "$corpus" -type f | wc -l)
    printf '%-11s %9s %9s %9s %9s %8.1f%s\n' "$target" "${runs:-?}" "${coverage:-?}" "${features:-?}" "$files" "$cpu" "$find"
    sum=$(awk -v a="$sum" -v b="$cpu" 'BEGIN { print a + b }')
done
printf 'fuzz: %.0f seconds of CPU time over %d targets, %d with finds\n' "$sum" "${#targets[@]}" "$failed"
[ "$failed" = 0 ] || { echo "fuzz: the inputs are in build/fuzz/finds, what was said in build/fuzz/log" >&2; exit 1; }
