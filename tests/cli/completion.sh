#!/usr/bin/env bash
# completion.sh — the completions of bash, zsh and fish really complete; the latter where there are such shells.
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
    has --quiet "$command" --qu
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

# Names from the model on the line, wherever it stands, also in a list of several; keys of --extra.
cp "$ONQ_ROOT/examples/digits_cnn/model.onnx" .
onq inspect model.onnx --json >/dev/null
node=$(onq --complete nodes '' inspect model.onnx | head -1)
[ -n "$node" ] || fail "the model has no node with a name"
for line in "static -i model.onnx" "static --input_model model.onnx" "static --input = model.onnx" \
    "dynamic --model_input model.onnx -o x.onnx"; do
    # shellcheck disable=SC2086  # words
    has "$node" $line --nodes_to_exclude "${node:0:3}"
    # shellcheck disable=SC2086
    has Conv $line --op_types_to_quantize C
done
has "$node" static -i model.onnx --nodes-to-exclude other "${node:0:3}"
has "x,$node" static -i model.onnx --nodes_to_exclude "x,${node:0:3}"
has MaxPool static -i model.onnx --op_types_to_exclude Conv Max
has ActivationSymmetric= static --extra Act
has op_type debug --float_model model.onnx --groups op
has "$node" debug --float_model model.onnx --groups block "${node:0:3}"
[ -z "$(offer static -i nothing.onnx --nodes_to_exclude x)" ] || fail "names of no model"
[ -z "$(offer dynamic --extra CalibP)" ] || fail "a key that dynamic has no use for"
# A name is data: the shell runs nothing of it.
onq --complete nodes '' inspect nothing.onnx model.onnx >/dev/null
[ "${#node}" -ge 7 ] || fail "the name '$node' has no room for \$(>ran)"
odd="\$(>ran)$(printf '%*s' $((${#node} - 7)) '' | tr ' ' x)"
sed "s|$node|$odd|g" model.onnx >odd.onnx
onq --complete nodes '$' inspect odd.onnx | says -xF -e "$odd" || fail "no node is called $odd"
offer static -i odd.onnx --nodes_to_exclude '$' >/dev/null
[ ! -e ran ] || fail "completion ran what a node is called"
if onq run model.onnx --data random:1 >/dev/null 2>&1; then
    has CPU static --provider C
fi

# What zsh offers at the end of a command line: a shell on a terminal of its own gets the line and a tab, and writes down
# what compadd is given.
cat >offer.zsh <<'Z'
zmodload zsh/zpty || exit 77
zpty shell zsh -f -i
tell() { zpty -w shell "$1"; }
: >offers
rm -f finished
tell 'fpath=($PWD $fpath); autoload -Uz compinit; compinit -u -D; bindkey "^I" complete-word'
tell 'compadd() { local -a hits; [[ " $argv " == *" -"[OAD]" "* ]] || { builtin compadd -A hits "$@"; print -rl -- $hits >>offers }; builtin compadd "$@" }'
tell 'finish() { : >finished; exit }; zle -N finish; bindkey "^X" finish; print rea""dy'
while zpty -r shell line; do [[ $line == ready* ]] && break; done
zpty -n -w shell "$1"$'\t'$'\x18'
while zpty -r shell line; do :; done
[[ -e finished ]]
Z
if command -v zsh >/dev/null; then
    zsh -n _onq || fail "zsh does not read its completion"
    while IFS='|' read -r line wanted; do
        timeout 60 zsh -f offer.zsh "$line" || fail "zsh: '$line' did not finish"
        grep -qxF -e "$wanted" offers || fail "zsh: $line: no $wanted in: $(sort -u offers | tr '\n' ' ')"
    done <<LINES
onq ins|inspect
onq --ver|--version
onq help sta|static
onq inspect --js|--json
onq static --per-ch|--per_channel
onq static --calibration_method e|entropy
onq static --calibration_method=e|entropy
onq static --extra Act|ActivationSymmetric=
onq static -i mod|model.onnx
onq static -i model.onnx --op_types_to_quantize Max|MaxPool
onq static -i model.onnx --op_types_to_quantize Conv Max|MaxPool
onq static -i model.onnx --op_types_to_quantize Conv Relu --json --qui|--quiet
onq static -i model.onnx --nodes_to_exclude ${node:0:3}|$node
onq static -i model.onnx --nodes_to_exclude other,${node:0:3}|$node
LINES
else
    echo "no zsh: its completion is not tried" >&2
fi
if command -v fish >/dev/null; then
    fish --no-execute onq.fish || fail "fish does not read its completion"
    fish -c 'source onq.fish; complete -C "onq ins"' | says '^inspect' || fail "fish: onq ins"
    fish -c 'source onq.fish; complete -C "onq inspect --js"' | says '^--json' || fail "fish: --js"
    fish -c 'source onq.fish; complete -C "onq static -i model.onnx --op_types_to_quantize Max"' | says '^MaxPool' ||
        fail "fish: operators of the model"
else
    echo "no fish: its completion is not tried" >&2
fi
