#!/usr/bin/env bash
# check-unused.sh — every function of an internal header has a caller in the product: src/, cli/ or cli-mpi/.
#
# What only tests call belongs to tests/, what nothing calls is deleted. A use is any mention outside comments that is
# not the function's declaration or the head of its definition, which begin their lines (clang-format sees to that).
# Names put together by a macro (oq_rule_##rule) count as used where a row has the rest of the name. Prints each
# offence; exits 1 if any, also when a function below has got its caller and need not be listed any more.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1

# Functions that wait for their caller, each with the reason.
declare -A waiting=(
)

mapfile -t files < <(find src cli cli-mpi \( -name '*.[ch]' -o -name '*.def' \) 2>/dev/null | LC_ALL=C sort)

# Without comments; each line begins with its kind: h for a header's, d for a .def file's, c for the others'.
stripped() {
    awk '
    FNR == 1 { inside = 0; kind = FILENAME ~ /\.h$/ ? "h" : FILENAME ~ /\.def$/ ? "d" : "c" }
    {
        line = $0
        out = ""
        while (line != "") {
            if (inside) {
                at = index(line, "*/")
                if (at == 0) { line = "" } else { line = substr(line, at + 2); inside = 0 }
            } else {
                at = index(line, "/*")
                if (at == 0) { out = out line; line = "" }
                else { out = out substr(line, 1, at - 1); line = substr(line, at + 2); inside = 1 }
            }
        }
        print kind " " out
    }' "${files[@]}"
}

stripped | awk -v waiting="${!waiting[*]}" '
# A line that begins with a name, not with a space, # or }, declares or defines; after it come uses.
function note(text,   name) {
    while (match(text, /oq_[A-Za-z0-9_]+/)) {
        name = substr(text, RSTART, RLENGTH)
        text = substr(text, RSTART + RLENGTH)
        if (text ~ /^##/) prefixes[name] = 1; else used[name] = 1
    }
}
{
    kind = substr($0, 1, 1)
    text = substr($0, 3)
    if (kind == "d" || text ~ /^#/) {
        words = text
        gsub(/[^A-Za-z0-9_]+/, " ", words)
        n = split(words, word, " ")
        for (i = 1; i <= n; i++) rest[word[i]] = 1
    }
    if (text ~ /^[a-z]/ && match(text, /oq_[A-Za-z0-9_]+\(/)) {
        name = substr(text, RSTART, RLENGTH - 1)
        if (kind == "h") declared[name] = 1
        text = substr(text, RSTART + RLENGTH)
    }
    note(text)
}
END {
    n = split(waiting, list, " ")
    for (i = 1; i <= n; i++) waits[list[i]] = 1
    for (name in declared) {
        count++
        known = name in used
        for (prefix in prefixes)
            if (index(name, prefix) == 1 && (substr(name, length(prefix) + 1) in rest)) known = 1
        if (!known && !(name in waits)) { print name ": no caller in the product"; bad++ }
        if (known && (name in waits)) { print name ": has a caller now; take it off the list in check-unused.sh"; bad++ }
    }
    for (name in waits)
        if (!(name in declared)) { print name ": on the list in check-unused.sh, but there is no such function"; bad++ }
    if (bad > 0) { print "check-unused: " bad " offence(s)"; exit 1 }
    print "check-unused: " count " functions have callers"
}' | LC_ALL=C sort
exit "${PIPESTATUS[1]}"
