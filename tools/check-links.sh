#!/usr/bin/env bash
# check-links.sh — links of the documents lead somewhere: files that are in the tree, and headings that are in the page;
# docs/README.md has a link to every page of docs/ and docs/guides/.
#
# Looks at links and images of all Markdown files under version control but for those with a scheme (https:). Anchors
# are made of headings as GitHub makes them. Prints each offence; exits 1 if any.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1

# The anchors of a page: headings outside of blocks in lower case, without punctuation, with dashes for blanks.
anchors() {
    awk '/^```/ { inside = !inside; next }
    !inside && /^#+ / {
        sub(/^#+ +/, "")
        $0 = tolower($0)
        gsub(/\]\([^)]*\)/, "")
        gsub(/[^a-z0-9 _-]/, "")
        gsub(/ /, "-")
        print seen[$0]++ ? $0 "-" seen[$0] - 1 : $0
    }' "$1"
}

# The targets of a page's links, one a line, with their lines. What is in code is not a link.
links() {
    awk '/^```/ { inside = !inside; next }
    inside { next }
    {
        gsub(/`[^`]*`/, "")
        while (match($0, /\]\([^) ]+\)/)) {
            print NR, substr($0, RSTART + 2, RLENGTH - 3)
            $0 = substr($0, RSTART + RLENGTH)
        }
    }' "$1"
}

bad=0
say() {
    echo "$1"
    bad=$((bad + 1))
}
mapfile -t pages < <({ git ls-files --cached --others --exclude-standard '*.md' 2>/dev/null || find . -name '*.md'; } | sort)
for page in "${pages[@]}"; do
    [ -f "$page" ] || continue
    while read -r line target; do
        case $target in
        *:*) continue ;;
        esac
        file=${target%%#*}
        anchor=
        [[ $target == *\#* ]] && anchor=${target#*#}
        path=$page
        [ -z "$file" ] || path=$(dirname "$page")/$file
        if [ ! -e "$path" ]; then
            say "$page:$line: $target: there is no such file"
        elif [ -n "$anchor" ] && ! anchors "$path" | grep -qxF -e "$anchor"; then
            say "$page:$line: $target: no heading of $path makes this anchor"
        fi
    done < <(links "$page")
done
# The index has every page and guide.
if [ -f docs/README.md ]; then
    for page in docs/*.md docs/guides/*.md; do
        { [ -f "$page" ] && [ "$page" != docs/README.md ]; } || continue
        links docs/README.md | grep -qE " ${page#docs/}(#.*)?$" || say "docs/README.md: no link to $page"
    done
fi
[ "$bad" = 0 ] || { echo "check-links: $bad offence(s)"; exit 1; }
