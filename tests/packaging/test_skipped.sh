#!/usr/bin/env bash
# test_skipped.sh — tools/test.sh, which `make test` ends with, says what was skipped, why, and how to run it; its status is
# that of the tests.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir "$scratch/tests"
cat >"$scratch/tests/CTestTestfile.cmake" <<'C'
add_test(good "/bin/sh" "-c" "echo fine")
add_test(pages "/bin/sh" "-c" "echo 's'; echo 'SKIPPED [12] tests/parity/test_report.py:31: no Chromium (Debian: chromium): the report is not looked at'; exit 77")
add_test(partly "/bin/sh" "-c" "echo 'SKIPPED [2] tests/x.py:9: no Chromium (Debian: chromium): the report is not looked at'; echo '3 passed'")
add_test(shell "/bin/sh" "-c" "echo 'no build/venv (make setup)'; exit 77")
set_tests_properties(pages shell PROPERTIES SKIP_RETURN_CODE 77)
C
run() { # STATUS
    local status=0
    JOBS=1 bash "${ONQ_ROOT:?}/tools/test.sh" "$scratch/tests" >"$scratch/out" 2>&1 || status=$?
    [ "$status" = "$1" ] || { echo "status $status, wanted $1"; cat "$scratch/out"; exit 1; }
}
has() { grep -qxF -e "$1" "$scratch/out" || { echo "does not say '$1':"; cat "$scratch/out"; exit 1; }; }

run 0
has 'skipped:'
has '  14: no Chromium (Debian: chromium): the report is not looked at'
has "     ctest --test-dir $scratch/tests -R '^(pages|partly)\$'"
has '  1: no build/venv (make setup)'
has "     ctest --test-dir $scratch/tests -R '^(shell)\$'"
tail -n 8 "$scratch/out" | grep -q '^skipped:$' || { echo "not at the end:"; cat "$scratch/out"; exit 1; }
tail -n 2 "$scratch/out" | grep -q '^100% tests passed, 0 tests failed out of 4$' || { echo "no result at the end"; exit 1; }

echo 'add_test(bad "/bin/false")' >>"$scratch/tests/CTestTestfile.cmake"
run 8
has 'skipped:'
printf 'add_test(good "/bin/sh" "-c" "echo fine")\n' >"$scratch/tests/CTestTestfile.cmake"
run 0
! grep -q '^skipped:' "$scratch/out" || { echo "nothing was skipped"; cat "$scratch/out"; exit 1; }

# The browser is installed by what `make test` asks for, and CI runs that.
grep -A 2 '^test:' "$ONQ_ROOT/Makefile" | grep -q 'SETUP) .*pages' || { echo "make test does not install the browser"; exit 1; }
awk '/^\[/ { section = $0 } $1 == "chromium" { print section }' "$ONQ_ROOT/tools/packages.txt" | grep -qx '\[pages\]'
grep -q '^exec make test$' "$ONQ_ROOT/.ci/run"
echo "skipped tests are named"
