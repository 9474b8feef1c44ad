#!/usr/bin/env bash
# check-errors.sh — `err` may be NULL everywhere, so src/base/err.c alone looks at it or writes to it.
#
# Other files hand it to the functions of err.h. A function that has to know what failed keeps an onq_error of its own
# and hands it on with oq_error_give; one that reads an error that is there takes a `const onq_error *why`. A pointer to
# an error that may be missing is always called err, or this check would not see it. Prints each offence; exits 1 if any.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1

# PATTERN ADVICE — each line of a source that has the pattern outside comments
offences() {
    find src -name '*.[ch]' ! -path src/base/err.c -print0 | LC_ALL=C sort -z | xargs -0 grep -nHE -- "$1" |
        grep -vE '^[^:]+:[0-9]+:([^"]*/\*| \*)' | sed -E "s|^([^:]+:[0-9]+):.*|\1: $2|"
}

found=$(
    offences '(^|[^[:alnum:]_])err(->|\[)' 'err may be NULL: use the functions of base/err.h'
    offences '(^|[^[:alnum:]_ ]|[^[:alnum:]_*] |[;{]) *\*err([^[:alnum:]_]|$)' 'err may be NULL: hand the error on with oq_error_give'
    offences '(^|[(,]) *onq_error \*(why|e|error|one)[,)]' 'call it err, or make it const'
)
[ -z "$found" ] && exit 0
printf '%s\n' "$found"
echo "check-errors: $(printf '%s\n' "$found" | wc -l) offence(s)"
exit 1
