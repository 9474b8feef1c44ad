#!/usr/bin/env bash
# gen-docs.sh ONQ OUTDIR — man pages and shell completions, printed by the program itself from its option tables.
#
# OUTDIR/man/onq.1, OUTDIR/man/onq-COMMAND.1 and OUTDIR/completion/onq.{bash,zsh,fish}; OUTDIR/stamp marks the end.
set -eu
onq=$1
out=$2
rm -rf -- "$out"
mkdir -p -- "$out/man" "$out/completion"

make_page() { # file, arguments...
    local file=$1
    shift
    "$onq" "$@" >"$out/$file" || { echo "gen-docs: $onq $* failed" >&2; exit 1; }
    [ -s "$out/$file" ] || { echo "gen-docs: $onq $* printed nothing" >&2; exit 1; }
}

if commands=$("$onq" --list-commands 2>/dev/null); then
    for command in $commands; do
        make_page "man/onq-$command.1" --man "$command"
    done
    make_page man/onq.1 --man
    for shell in bash zsh fish; do
        make_page "completion/onq.$shell" --completion "$shell"
    done
else
    echo "gen-docs: $onq has no --list-commands; no man pages"
fi
touch -- "$out/stamp"
