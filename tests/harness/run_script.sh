#!/usr/bin/env bash
# run_script.sh [--accept] SCRIPT — runs one shell test in a scratch folder of its own.
#
# The script runs under `bash -eu -o pipefail` with the functions of shell.sh, the built program first on PATH and ONQ,
# ONQ_ROOT and ONQ_BUILD set. Beside X.sh may lie
#   X.stdout.exact   standard output, byte for byte
#   X.stderr.glob    standard error, a shell pattern a line, in order
#   X.exit           the exit status, 0 when there is no such file
# --accept rewrites the first and the last from what came. An exit status of 77 means "skipped".
set -u

accept=0
[ "${1-}" = --accept ] && { accept=1; shift; }
script=$(realpath -- "$1") || exit 1
base=${script%.sh}
here=$(cd -- "$(dirname -- "$0")" && pwd)
ONQ_ROOT=${ONQ_ROOT:-$(cd -- "$here/../.." && pwd)}
ONQ_BUILD=${ONQ_BUILD:-$ONQ_ROOT/build}
ONQ=${ONQ:-$ONQ_BUILD/onq}
export ONQ_ROOT ONQ_BUILD ONQ PATH LC_ALL=C.UTF-8
PATH=$(dirname -- "$ONQ"):$PATH

scratch=$(mktemp -d) || exit 1
trap 'chmod -R u+rwx "$scratch" 2>/dev/null; rm -rf -- "$scratch"' EXIT
mkdir "$scratch/work"
(cd "$scratch/work" && BASH_ENV=$here/shell.sh exec bash -eu -o pipefail "$script") \
    >"$scratch/stdout" 2>"$scratch/stderr" </dev/null
status=$?

show() {
    printf -- '--- standard output\n'; cat "$scratch/stdout"
    printf -- '--- standard error\n'; cat "$scratch/stderr"
}

if [ "$status" = 77 ]; then
    show
    exit 77
fi
if [ "$accept" = 1 ]; then
    cp "$scratch/stdout" "$base.stdout.exact"
    if [ "$status" = 0 ]; then rm -f "$base.exit"; else echo "$status" >"$base.exit"; fi
    exit 0
fi

failed=0
wanted=0
[ -f "$base.exit" ] && wanted=$(cat "$base.exit")
if [ "$status" != "$wanted" ]; then
    echo "exit status $status, wanted $wanted"
    failed=1
fi
if [ -f "$base.stdout.exact" ] && ! diff -u "$base.stdout.exact" "$scratch/stdout"; then
    echo "standard output differs (run_script.sh --accept $script takes it over)"
    failed=1
fi
if [ -f "$base.stderr.glob" ]; then
    mapfile -t patterns <"$base.stderr.glob"
    mapfile -t lines <"$scratch/stderr"
    if [ "${#patterns[@]}" != "${#lines[@]}" ]; then
        echo "standard error has ${#lines[@]} lines, wanted ${#patterns[@]}"
        failed=1
    fi
    for i in "${!patterns[@]}"; do
        # shellcheck disable=SC2053  # the right side is a pattern
        if [[ "${lines[i]-}" != ${patterns[i]} ]]; then
            printf 'standard error line %d: "%s" does not match "%s"\n' \
                $((i + 1)) "${lines[i]-}" "${patterns[i]}"
            failed=1
        fi
    done
fi
show
exit "$failed"
