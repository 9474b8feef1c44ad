#!/usr/bin/env bash
# check-glibc.sh VERSION FILE... — fails when a program or library asks for symbols of a glibc newer than VERSION, and
# names them.
set -eu
limit=$1
shift
status=0
for file in "$@"; do
    [ -f "$file" ] || { echo "check-glibc: $file is not there" >&2; exit 1; }
    newer=$(objdump -T -- "$file" | awk -v limit="$limit" '
        match($0, /GLIBC_[0-9]+\.[0-9]+/) {
            split(substr($0, RSTART + 6, RLENGTH - 6), has, ".")
            split(limit, may, ".")
            if (has[1] > may[1] || (has[1] == may[1] && has[2] + 0 > may[2] + 0))
                print $NF "@GLIBC_" has[1] "." has[2]
        }' | sort -u | tr '\n' ' ')
    [ -z "$newer" ] || { echo "check-glibc: $file needs more than glibc $limit: $newer" >&2; status=1; }
done
exit "$status"
