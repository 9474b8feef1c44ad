#!/usr/bin/env bash
# list-files.sh [PATTERN...] — the files of the source tree, or those whose path matches a pattern as case does. What git
# follows where this is a checkout; otherwise, in an unpacked archive, what is there but for what a build makes.
set -eu
cd -- "$(dirname -- "$0")/.."
all() {
    if [ -e .git ] && command -v git >/dev/null; then
        git ls-files
    else
        find . \( -path ./build -o -name __pycache__ -o -name .pytest_cache -o -name .git \) -prune -o -type f -print |
            sed 's|^\./||' | LC_ALL=C sort
    fi
}
all | while IFS= read -r file; do
    [ $# -gt 0 ] || echo "$file"
    for pattern in "$@"; do
        # shellcheck disable=SC2053,SC2254  # a pattern
        case $file in $pattern) echo "$file"; break ;; esac
    done
done
