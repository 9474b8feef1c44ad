#!/usr/bin/env bash
# run.sh [PATTERN] — runs the benchmarks one after the other and prints what they print. Run by `make bench`.
#
# A benchmark is bench/bench_*.c (built in build/bench), bench/bench_*.sh or bench/bench_*.py (run with build/venv). Each
# prints its figures and exits non-zero when a budget is broken; 77 means skipped. PATTERN keeps those whose name has it.
# At the end bench/report.py says which goals are met and writes build/bench/results.json and the charts. A budget that is
# broken while others have the cores is "too noisy to conclude": that is said, and does not fail the run.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1
export ONQ_ROOT=$PWD ONQ_BUILD=${ONQ_BUILD:-$PWD/build}
export ONQ=${ONQ:-$ONQ_BUILD/onq}
export ONQ_BENCH_ROWS=$ONQ_BUILD/bench/rows.jsonl
pattern=${1-}
ran=0
broken=()
mkdir -p "$ONQ_BUILD/bench"
rm -f "$ONQ_BUILD/bench/spin"
: >"$ONQ_BENCH_ROWS"

shopt -s nullglob
for file in bench/bench_*.c bench/bench_*.sh bench/bench_*.py; do
    name=$(basename "$file")
    [[ $name == *"$pattern"* ]] || continue
    case $name in
    *.c) command=("$ONQ_BUILD/bench/${name%.c}") ;;
    *.sh) command=(bash "$file") ;;
    *.py) command=(build/venv/bin/python "$file") ;;
    esac
    printf '\n== %s\n' "${name%.*}"
    "${command[@]}"
    status=$?
    if [ "$status" = 77 ]; then
        echo "skipped"
        continue
    fi
    ran=$((ran + 1))
    [ "$status" = 0 ] || broken+=("${name%.*}")
done

build/venv/bin/python bench/report.py "$ONQ_BENCH_ROWS" || broken+=(report)
printf '\nbench: %d run, %d broken%s\n' "$ran" "${#broken[@]}" "${broken[*]:+: ${broken[*]}}"
[ "${#broken[@]}" = 0 ] && [ "$ran" -gt 0 ]
