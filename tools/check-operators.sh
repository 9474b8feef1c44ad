#!/usr/bin/env bash
# check-operators.sh — whether a node is a Constant, a QuantizeLinear or a DequantizeLinear is asked in one way: by the
# functions of src/onnx/operators.h, which check the domain.
#
# Their names are written there and in tables (.def) only; nodes are made with OQ_QUANTIZE_LINEAR and its like. The
# default domain has two spellings, which oq_domain_is_onnx and oq_domain_plain know. Prints each offence; exits 1 if
# any.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1

names='Constant|QuantizeLinear|DequantizeLinear|DynamicQuantizeLinear'
macros='OQ_CONSTANT|OQ_QUANTIZE_LINEAR|OQ_DEQUANTIZE_LINEAR|OQ_DYNAMIC_QUANTIZE_LINEAR'

# PATTERN ADVICE — each line of a source that has the pattern outside comments
offences() {
    find src -name '*.[ch]' ! -path src/onnx/operators.h -print0 | LC_ALL=C sort -z | xargs -0 grep -nHE -- "$1" |
        grep -vE '^[^:]+:[0-9]+:([^"]*/\*| \*)' | sed -E "s|^([^:]+:[0-9]+):.*|\1: $2|"
}

found=$(
    offences "\"($names)\"" 'use OQ_QUANTIZE_LINEAR and its like to make a node, oq_node_is_* to ask for one'
    offences "(oq_str_[a-z]+|oq_node_is|strcmp)\(.*\<($macros)\>" 'ask for the kind: oq_node_is_*'
    offences 'oq_str_(is|eq)\(.*"ai\.onnx"' 'use oq_domain_is_onnx or oq_domain_plain'
)
[ -z "$found" ] && exit 0
printf '%s\n' "$found"
echo "check-operators: $(printf '%s\n' "$found" | wc -l) offence(s)"
exit 1
