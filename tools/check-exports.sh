#!/usr/bin/env bash
# check-exports.sh [LIBRARY] — every symbol that libonq.so defines for others begins with onq_, and every function of
# include/onq/onq.h marked ONQ_API is among them.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1
library=${1:-build/libonq.so}

symbols=$(nm -D --defined-only -- "$library") || exit 1
exported=$(awk '{print $NF}' <<<"$symbols" | sed 's/@.*//' | LC_ALL=C sort -u)
if [ -z "$exported" ]; then
    echo "check-exports: $library exports nothing"
    exit 1
fi
if foreign=$(grep -v '^onq_' <<<"$exported"); then
    echo "check-exports: $library exports what does not begin with onq_:"
    printf '%s\n' "$foreign"
    exit 1
fi
if ! ls src/api/*.c >/dev/null 2>&1; then
    echo "check-exports: $(wc -l <<<"$exported") symbols, all onq_ (no src/api yet: onq.h is not compared)"
    exit 0
fi
declared=$(tr '\n' ' ' <include/onq/onq.h | grep -oE 'ONQ_API [^;(]*\(' |
    grep -oE 'onq_[a-z0-9_]+ *\($' | tr -d ' (' | LC_ALL=C sort -u)
if missing=$(LC_ALL=C comm -23 <(printf '%s\n' "$declared") <(printf '%s\n' "$exported") | grep .); then
    echo "check-exports: declared in onq.h, not exported by $library:"
    printf '%s\n' "$missing"
    exit 1
fi
echo "check-exports: $(wc -l <<<"$exported") symbols, all onq_"
