#!/usr/bin/env bash
# test.sh FOLDER [WORDS OF CTEST...] — runs the tests of a build folder, then says what was skipped, why, and how to run
# it, so that a green run cannot hide it, and ends with ctest's result.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1
folder=$1
shift
log=$folder/Testing/Temporary/LastTest.log

shown=$(mktemp) || exit 1
trap 'rm -f "$shown"' EXIT
ctest --parallel "${JOBS:-$(nproc)}" --output-on-failure --no-tests=error --test-dir "$folder" "$@" | tee "$shown"
status=${PIPESTATUS[0]}

# pytest names each skipped test with its reason; other tests that skip themselves say it in their output.
skipped() {
    awk '
    FNR == NR { if (/\(Skipped\)$/) whole[$3]; next } # what ctest says it did not run
    /^[0-9]+\/[0-9]+ Testing: / { name = $3; said = ""; next }
    /^SKIPPED \[[0-9]+\] / {
        n = substr($2, 2) + 0
        reason = $0
        sub(/^SKIPPED \[[0-9]+\] [^ ]+: /, "", reason)
        count[reason] += n
        if (!((reason, name) in known)) { known[reason, name]; where[reason] = where[reason] " " name }
        counted[name]
        next
    }
    /^Test time/ && name in whole && !(name in counted) { count[said]++; where[said] = where[said] " " name }
    /^(Command|Directory|Output|Test time|<end of output>|"|-+$)/ { next }
    NF { said = $0 }
    END { for (reason in count) printf "%d|%s|%s\n", count[reason], reason, substr(where[reason], 2) }' "$shown" "$log" | sort -t '|' -k 2
}

if [ -f "$log" ]; then
    lines=$(skipped)
    if [ -n "$lines" ]; then
        echo
        echo "skipped:"
        while IFS='|' read -r n reason names; do
            echo "  $n: $reason"
            echo "     ctest --test-dir $folder -R '^(${names// /|})\$'"
        done <<<"$lines"
        echo
        grep -E '^[0-9]+% tests passed|^Total Test time' "$shown" # the result is the last thing to see
    fi
fi
exit "$status"
