#!/usr/bin/env bash
# coverage.sh — which branches the unit tests, the commands of tests/cli, the faults and the load of tests/hostile and the fuzz
# targets take. Those of the codec, the resolver of external data, the writer and the option parser must all be taken, or be
# explained in tests/coverage/explained.txt.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1
jobs=${JOBS:-$(nproc)}
command -v gcovr >/dev/null || { echo "coverage: gcovr is not installed (Debian: gcovr)" >&2; exit 77; }
tools/build.sh coverage -DONQ_TESTS=ON || exit 1
find build/coverage -name '*.gcda' -delete
# Not those of --isolate: a process that may write nowhere cannot write its counters, and says so among its own messages.
ctest --parallel "$jobs" --output-on-failure --no-tests=error --test-dir build/coverage --exclude-regex '\.cli\.isolate$' --quiet || {
    echo "coverage: failed:" >&2
    cat build/coverage/Testing/Temporary/LastTestsFailed.log >&2
    exit 1
}
gcovr --root . --filter 'src/' --filter 'cli/' --exclude-throw-branches -j "$jobs" \
    --exclude-branches-by-pattern '.*\b(assert|static_assert|OQ_ASSERT_VALID)\(.*' \
    --json build/coverage/branches.json --txt build/coverage/summary.txt --print-summary build/coverage || exit 1
echo "by file: build/coverage/summary.txt"
python3 tools/coverage.py build/coverage/branches.json
