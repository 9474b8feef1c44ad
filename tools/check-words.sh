#!/usr/bin/env bash
# check-words.sh — comments, messages and documents in plain English: finds words that are nearly always wrong here.
#
# Looks at the comments and texts of C sources, and at the documents. Each rule is a word and what to write instead.
# Prints each offence; exits 1 if any.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1

# Comments and texts of C sources as "FILE:LINE: words"; a comment begins with "/* ".
words_of_c() {
    awk '
    FNR == 1 { inside = "" }
    {
        line = $0
        kept = ""
        while (line != "") {
            if (inside == "") {
                if (!match(line, /\/\*|"/)) break
                inside = substr(line, RSTART, RLENGTH)
                line = substr(line, RSTART + RLENGTH)
                kept = kept " " (inside == "/*" ? "/*" : "")
            } else if (inside == "/*") {
                at = index(line, "*/")
                kept = kept (at ? substr(line, 1, at - 1) " */" : line)
                line = at ? substr(line, at + 2) : ""
                if (at) inside = ""
            } else {
                at = match(line, /[^\\]"|^"/)
                kept = kept " " (at ? substr(line, 1, at) : line)
                line = at ? substr(line, at + RLENGTH) : ""
                inside = ""
            }
        }
        if (kept != "") print FILENAME ":" FNR ":" kept
    }' "$@"
}

words() {
    mapfile -t sources < <(find src cli include \( -name '*.[ch]' -o -name '*.def' \) | LC_ALL=C sort)
    words_of_c "${sources[@]}"
    grep -nH '' README.md CONTRIBUTING.md CHANGELOG.md docs/*.md docs/guides/*.md 2>/dev/null | sed 's/^\([^:]*:[0-9]*:\)/\1 /'
}

bad=0
# rule PATTERN ALLOWED ADVICE: lines that match PATTERN after all matches of ALLOWED are taken out.
rule() {
    local found
    found=$(sed -E "s/$2//g" "$text" | grep -E -- "$1") || return 0
    while IFS= read -r line; do
        echo "${line%%: *}: write $3:${line#*: }"
        bad=$((bad + 1))
    done <<<"$found"
}

text=$(mktemp)
trap 'rm -f "$text"' EXIT
words >"$text"
rule '\b[Bb]ehind\b' '\b([Ll]eav|[Ll]eft|[Ss]tay)[a-z]*( [a-z]+)? behind\b' '"after" for "behind"'
rule '\b(is|are) none of\b' '@@' '"is not one of"'
rule '\b(is|are) no (number|name|tensor|initializer|input|output|option|text|node|matrix|object|integer|element type)s?\b' \
    '\b[Tt]here (is|are) no\b' '"is not a"'
rule '\b([Tt]ells|[Tt]old|[Mm]ends)\b' '\*told|[Tt]ells the (kernel|user)' '"says", "reports", "avoids" or the like'
rule '/\* (Is|Are|Does|Do|Has|Have|Was|Were|Can|Will|Would|Did) [^*]*\?' '@@' 'a statement for a question'
if [ "$bad" -gt 0 ]; then
    echo "check-words: $bad offence(s)"
    exit 1
fi
echo "check-words: comments, messages and documents are plain"
