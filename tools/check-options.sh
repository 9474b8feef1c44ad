#!/usr/bin/env bash
# check-options.sh — every option that a job reads by its name is a row of some table of options, and no option is written
# in two tables.
#
# A name in oq_opt_*(..., "name") or OQ_CHOSEN(..., "name", ...) must be that of a row: in a file that has rows of its
# own, one of them, of shared_rows.h or of option_groups.c; in a file that several commands share, any. A key in oq_extra_*(..., "Key") must be a
# row of extra.def.
#
# Options that several commands have are one row of shared_rows.h. A row whose name is another's, and that means another
# thing, says what after "Own sense:" in a comment before it. Prints each offence; exits 1 if any.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1

rows() { # FILE... — the names in OQ_FLAG("name", ...) and the like
    grep -hozP '\bOQ_(BOOL|FLAG|FLAG_ON|INT|REAL|SIZE|TEXT|PATH|ENUM|LIST|PAIRS)\(\s*"\K[a-z0-9_]+' "$@" | tr '\0' '\n'
}
own_rows() { # the same, without rows that have a sense of their own, a line "FILE:NAME" for each
    local kind='OQ_(BOOL|FLAG|FLAG_ON|INT|REAL|SIZE|TEXT|PATH|ENUM|LIST|PAIRS)'
    grep -HozP "(/\\* Own sense:[^*]*\\*/\s*)?\b$kind\(\s*\"[a-z0-9_]+" "$@" | tr '\n\0' ' \n' | grep -v '/\* Own sense:' |
        sed -E 's/^([^:]*):.*"/\1:/'
}
reads() { # FILE — "FUNCTION NAME" for each literal
    grep -hozP '\b(oq_opt_(?!same)[a-z]\w*|oq_extra_(find|flag)|OQ_CHOSEN)\([^",;]*,\s*"\w+"' "$1" | tr '\0\n' '\n ' |
        sed -E 's/^(\w+)\(.*"(\w+)"$/\1 \2/'
}

common=(src/api/options/option_groups.c src/api/options/shared_rows.h)
mapfile -t files < <(find src/api -name '*.c' -o -name shared_rows.h | LC_ALL=C sort)
everywhere=" $(rows "${files[@]}" | sort -u | tr '\n' ' ')"
shared=" $(rows "${common[@]}" | tr '\n' ' ')"
keys=" $(grep -ohP '^OQ_EXTRA\("\K\w+' src/api/options/extra.def | tr '\n' ' ')"
bad=0
checked=0
for file in "${files[@]}"; do
    own=$(rows "$file" | tr '\n' ' ')
    known=$everywhere
    [ -z "$own" ] || known="$shared$own"
    while read -r function name; do
        checked=$((checked + 1))
        case $function in
            oq_extra_*) list=$keys ;;
            *) list=$known ;;
        esac
        [[ $list == *" $name "* ]] && continue
        echo "$file: $function: there is no option '$name'"
        bad=$((bad + 1))
    done < <(reads "$file")
done
while read -r name; do
    echo "option '$name' is written in more than one table; make it one row of src/api/options/shared_rows.h:"
    own_rows "${files[@]}" | sed -n "s/:$name\$//p" | sed 's/^/    /'
    bad=$((bad + 1))
done < <(own_rows "${files[@]}" | sed 's/.*://' | sort | uniq -d)
[ "$checked" -gt 0 ] || { echo "check-options: no reads found"; exit 1; }
if [ "$bad" -gt 0 ]; then
    echo "check-options: $bad offence(s)"
    exit 1
fi
echo "check-options: $checked reads name options that exist, each written once"
