#!/usr/bin/env bash
# completion.sh — the completion of bash really completes; those of zsh and fish are read by their shells where there
# are such shells.
onq --completion bash >onq.bash
onq --completion zsh >_onq
onq --completion fish >onq.fish
bash -n onq.bash

# What bash offers for a command line whose last word is being typed.
cat >offer.bash <<'B'
source ./onq.bash
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_onq 2>/dev/null
printf '%s\n' "${COMPREPLY[@]}" | sort
B
offer() { bash offer.bash onq "$@"; }
has() { # wanted, words...
    local wanted=$1
    shift
    offer "$@" | says -x -e "$wanted" || fail "onq $*: no $wanted in: $(offer "$@" | tr '\n' ' ')"
}
for command in $(onq --list-commands); do
    has "$command" "${command:0:2}"
    has --json "$command" --js
    has --threads "$command" --thr
    has "$command" help "${command:0:2}"
done
has --version --ver
has --data_root inspect a.onnx --data_
has --data-root inspect a.onnx --data-
[ "$(offer inspect --data-root x --js)" = --json ] || fail "after a value"
[ -z "$(offer nonsense --js)" ] || fail "an unknown command completes"
has zsh --completion z
# Every choice of every enumeration is offered after its option.
row='^\| .*`--([a-z_0-9]+) [^`]*` \| .*\(one of ([^;)]*)'
for command in $(onq --list-commands); do
    while IFS= read -r line; do
        [[ $line =~ $row ]] || continue
        option=${BASH_REMATCH[1]}
        for choice in ${BASH_REMATCH[2]//,/ }; do
            has "$choice" "$command" "--$option" "${choice:0:1}"
            has "$choice" "$command" "--$option" = "${choice:0:1}"
        done
    done < <(onq --markdown "$command")
done

if command -v zsh >/dev/null; then
    zsh -n _onq || fail "zsh does not read its completion"
else
    echo "no zsh: its completion is not read" >&2
fi
if command -v fish >/dev/null; then
    fish --no-execute onq.fish || fail "fish does not read its completion"
    fish -c 'source onq.fish; complete -C "onq ins"' | says '^inspect' || fail "fish: onq ins"
    fish -c 'source onq.fish; complete -C "onq inspect --js"' | says '^--json' || fail "fish: --js"
else
    echo "no fish: its completion is not read" >&2
fi
