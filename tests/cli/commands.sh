#!/usr/bin/env bash
# commands.sh — what must hold for every command, by a loop over the table: a new command is tested the moment it is
# listed.

count=0
for command in $(onq --list-commands); do
    count=$((count + 1))

    # Help, on standard output, in 80 columns, by three ways.
    onq "$command" --help >help 2>err || fail "$command --help: status $?"
    test ! -s err || fail "$command --help wrote to standard error"
    [[ $(head -1 help) == "usage: onq $command"* ]] || fail "$command --help: $(head -1 help)"
    # The usage shows what an empty command line is refused for.
    status=0
    onq "$command" >out 2>err </dev/null || status=$?
    missing=$(sed -n "s/^onq: error: '$command' needs \(.*\) (try .*/\1/p" err)
    [ "$status" = 0 ] || [ "$status:${missing:+said}" = 2:said ] || fail "$command: $status, $(cat err)"
    grep -q -F -e "$missing" <(head -1 help) || fail "$command --help does not show $missing: $(head -1 help)"
    wide=$(awk 'length > 80' help)
    [ -z "$wide" ] || fail "$command --help: wider than 80: $wide"
    if grep -n '[[:space:]]$' help; then fail "$command --help: blanks at the end of a line"; fi
    onq "$command" -h | cmp - help || fail "$command -h differs"
    onq help "$command" | cmp - help || fail "help $command differs"
    onq "$command" --nonsense --help | cmp - help || fail "$command: no help when the rest is wrong"
    for option in quiet verbose json help; do
        grep -q -e "--$option" help || fail "$command: no --$option"
    done
    for heading in Examples 'Exit status'; do
        grep -q "^$heading:$" help || fail "$command --help: no $heading"
    done
    # All take these, also where they mean nothing and help does not show them.
    for option in --threads=1 --verify=no --no_verify=no --check=1; do
        status=0
        onq "$command" "$option" --jsn >out 2>err || status=$?
        [ "$status" = 2 ] && grep -q "'--jsn'" err || fail "$command $option: $(cat err)"
    done

    # An unknown option: status 2, one line, with a suggestion where there is one.
    status=0
    onq "$command" --jsn >out 2>err || status=$?
    [ "$status" = 2 ] || fail "$command --jsn: status $status"
    [ ! -s out ] || fail "$command --jsn wrote to standard output"
    line="onq: error: unknown option '--jsn' (did you mean --json? try 'onq $command --help')"
    [ "$(cat err)" = "$line" ] || fail "$command --jsn: $(cat err)"

    # Too much on the command line, and an option without its value.
    for words in "--threads" "--threads x" "--threads -1" "--json=maybe" "--threads 2 a b c d e --verify=7"; do
        status=0
        # shellcheck disable=SC2086  # words
        onq "$command" $words >out 2>err || status=$?
        [ "$status" = 2 ] || fail "$command $words: status $status: $(cat err)"
        [ "$(wc -l <err)" = 1 ] || fail "$command $words: more than one line: $(cat err)"
        grep -q "^onq: error: .*try 'onq $command --help')$" err || fail "$command $words: $(cat err)"
    done

    # A man page that groff reads without a warning and shows as it is.
    onq --man "$command" >page.1
    grep -qi "^\.TH ONQ-$command 1" page.1 || fail "$command: no man page"
    if command -v groff >/dev/null; then
        groff -man -Tutf8 -ww -z page.1 2>warnings || true
        [ ! -s warnings ] || fail "$command: man page: $(head -3 warnings)"
        # No word is cut at the end of a line: names are copied from there.
        groff -man -Tutf8 -rLL=80n page.1 >shown
        if grep -n $'\xe2\x80\x90$' shown; then fail "$command: man page: a word is cut"; fi
    fi
done
[ "$count" -gt 0 ] || fail "no commands"

onq --man >page.1
if command -v groff >/dev/null; then
    groff -man -Tutf8 -ww -z page.1 2>warnings || true
    [ ! -s warnings ] || fail "man page of onq: $(head -3 warnings)"
fi
onq --help >help
for command in $(onq --list-commands); do
    grep -q "^  $command " help || fail "onq --help does not list $command"
done
awk 'length > 80 { print; bad = 1 } END { exit bad }' help || fail "onq --help: wider than 80"

# The reference in docs/ is what the tables say.
out_of_date() { diff -u "$1" - || fail "$1 is out of date: run tools/update-docs.sh"; }
onq --markdown | out_of_date "$ONQ_ROOT/docs/CLI.md"
for command in $(onq --list-commands); do
    onq --markdown "$command" | out_of_date "$ONQ_ROOT/docs/commands/$command.md"
done
for page in "$ONQ_ROOT"/docs/commands/*.md; do
    command=$(basename "$page" .md)
    onq --list-commands | says -x "$command" || fail "$page: there is no such command"
done
