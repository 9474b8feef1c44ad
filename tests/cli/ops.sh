#!/usr/bin/env bash
# ops.sh — the list of operators: selection by mode, opset and name, and its JSON.

onq ops >all
[ "$(tail -1 all)" = "$(($(wc -l <all) - 2 - $(grep -c ':$' all))) operators" ] || fail "$(tail -1 all)"
grep -qE '^Conv +1 +x +x +x +- +x +x  11 22$' all || fail "$(grep '^Conv ' all)"
grep -qE '^Abs +1 +- +- +- +- +- +x  13$' all || fail "$(grep '^Abs ' all)"
# Those that dynamic quantizes by default, and those it must be asked for.
[ "$(onq ops --mode dynamic | awk '$2 ~ /^[0-9]+$/ { printf "%s ", $1 }')" = \
    "Conv Gather Gemm LSTM MatMul Transpose Attention EmbedLayerNormalization " ] || fail "$(onq ops --mode dynamic)"
[ "$(onq ops --mode dynamic-listed | awk '$2 ~ /^[0-9]+$/ { printf "%s ", $1 }')" = "GRU RNN " ] || fail "listed"
[ "$(onq ops --mode legacy | tail -1)" = "2 operators" ] || fail "legacy"
# By opset and by name, in any case.
onq ops GridSample --opset 15 | says -x "0 operators" || fail "GridSample is of opset 16"
onq ops gridsample --opset 16 | says -x "1 operator" || fail "GridSample at 16"
onq ops Conv --json >json
grep -q '"since": 1' json && grep -q '"dynamic": true' json || fail "$(cat json)"
status=0
onq ops Cnv >out 2>err || status=$?
[ "$status" = 2 ] && grep -q "no operator is called 'Cnv' (did you mean .*Conv" err || fail "$(cat err)"
