#!/usr/bin/env bash
# check-runtimes.sh [VERSION...] — what --for_runtime writes is good in that version of ONNX Runtime, or refused in one line.
#
# Without versions: all of tools/wheels.txt. Every command is tried on the bundled model, as it is and at opset 26, and on
# the models of ../shared/models or $ONQ_MODELS that are there. `make check-runtimes` fetches the runtimes and runs this.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1
onq=$PWD/build/onq
models=${ONQ_MODELS:-../shared/models}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
good=0 refused=0 bad=0

try() { # VERSION MODEL DATA WORDS...
    local version=$1 model=$2 data=$3 status=0
    shift 3
    rm -f "$work/out.onnx" "$work/out.onnx.data"
    "$onq" "$@" -i "$model" -o "$work/out.onnx" --for_runtime "$version" >"$work/log" 2>&1 || status=$?
    if [ "$status" != 0 ]; then
        if [ "$(grep -c '^onq: error: ' "$work/log")" = 1 ] && grep -q "ONNX Runtime $version" "$work/log" && [ ! -e "$work/out.onnx" ]; then
            refused=$((refused + 1))
        else
            bad=$((bad + 1))
            printf '%s %s %s: status %s: %s\n' "$version" "$model" "$*" "$status" "$(tail -n 1 "$work/log")"
        fi
    elif "$onq" verify "$work/out.onnx" --float_model "$model" --data "$data" --limit 2 --onnxruntime "$library" >"$work/log" 2>&1; then
        good=$((good + 1))
    else
        bad=$((bad + 1))
        printf '%s %s %s: %s\n' "$version" "$model" "$*" "$(cat "$work/log")"
    fi
}

try_all() { # VERSION MODEL DATA
    local version=$1 model=$2 data=$3 words
    while read -r words; do
        # shellcheck disable=SC2086  # several words
        try "$version" "$model" "$data" $words
    done <<END
static --data $data --limit 2
static --data $data --limit 2 --per_channel --quant_format qoperator
static --data $data --limit 2 --activation_type quint16
dynamic
nbits --bits 4 --op_types_to_quantize MatMul,Gemm,Gather
nbits --bits 4 --quant_format QDQ
nbits --bits 4 --quant_method hqq
nbits --bits 8
nbits --bits 8 --symmetric false
nbits --bits 2
nbits --bits 2 --form packed
nbits --bits 3 --symmetric false
convert
END
}

# shellcheck disable=SC2046  # a word a version
[ $# -gt 0 ] || set -- $(awk '$1 == "onnxruntime" { split($2, v, "."); print v[1] "." v[2] }' tools/wheels.txt | sort -uV)
"$onq" preprocess -i examples/digits_cnn/model.onnx -o "$work/opset26.onnx" --optimizer none --opset 26 --no_verify >/dev/null 2>&1 || exit 1
for version in "$@"; do
    library=$(find -L build/runtimes -name "libonnxruntime.so.$version.*" 2>/dev/null | head -n 1)
    [ -n "$library" ] || { echo "check-runtimes: no runtime $version in build/runtimes (tools/setup.sh runtimes)"; exit 1; }
    try_all "$version" examples/digits_cnn/model.onnx examples/digits_cnn
    try_all "$version" "$work/opset26.onnx" examples/digits_cnn
    try "$version" "$work/opset26.onnx" examples/digits_cnn auto --data examples/digits_cnn --limit 8 --time_limit 5
    for name in tiny_llama minilm ppocr_cls lstm_tagger; do
        [ ! -e "$models/$name/model.onnx" ] || try_all "$version" "$models/$name/model.onnx" "$models/$name"
    done
done
echo "check-runtimes: $good results are good in their runtime, $refused were refused by node and reason, $bad are wrong"
[ "$bad" = 0 ]
