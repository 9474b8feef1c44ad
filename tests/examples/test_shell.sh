#!/usr/bin/env bash
# test_shell.sh — every example in shell and in C does its job, and leaves what it says.
set -eu
cd "${ONQ_ROOT:?}"
scratch=$OLDPWD
"$ONQ" run examples/digits_cnn/model.onnx --data random:1 >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 77; } # no runtime
python=build/venv/bin/python
export ONQ_BUILD PYTHON=python3
[ ! -x "$python" ] || PYTHON=$PWD/$python
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none TMPDIR=$scratch

declare -A makes=(
    [image_classification]="infer.onnx quant.onnx report.html"
    [model_zoo]="digits_cnn-a8w8.onnx digits_cnn-a16w8.onnx"
    [llm_weights]="int2.onnx int4.onnx int8.onnx k_quant.onnx nf4.onnx gptq.onnx"
    [qat]="integer.onnx qdq.onnx qoperator.onnx"
    [legacy]="IntegerOps_Dynamic.onnx IntegerOps_Static.onnx QLinearOps_Dynamic.onnx QLinearOps_Static.onnx"
    [shards]="minmax.json entropy.json int8.onnx"
    [mpi]="ranges.json int8.onnx"
    [embedded]="small.onnx"
)
for script in examples/*/run.sh; do
    name=$(basename "$(dirname "$script")")
    [ -n "${makes[$name]-}" ] || { echo "$name: not known here"; exit 1; }
    status=0
    OUT=$scratch/$name bash "$script" >"$scratch/$name.log" 2>&1 || status=$?
    if [ "$status" = 77 ]; then
        echo "$name: skipped"
        continue
    fi
    [ "$status" = 0 ] || { cat "$scratch/$name.log"; echo "$name: status $status"; exit 1; }
    for file in ${makes[$name]}; do
        [ -s "$scratch/$name/$file" ] || { echo "$name: $file was not made"; exit 1; }
    done
    unset "makes[$name]"
    echo "$name"
done
# What they show is worth showing: digits are recognised by all models, letters are guessed but for 2 bits.
right() { # example, least share for every model but those that match the rest
    awk -v least="$2" -v but="${3:-^$}" '/ right$/ { on = 1; next } !NF { on = 0 }
        on && $1 !~ but { n++; if ($NF + 0 < least) { print; bad = 1 } } END { exit bad || n < 2 }' "$scratch/$1.log" ||
        { echo "$1: the accuracy above is lost, or not shown"; exit 1; }
}
for name in image_classification legacy qat; do right "$name" 95; done
right llm_weights 55 int2

# The same in C.
run() { # name, arguments...
    mkdir -p "$scratch/c/$1"
    "$ONQ_BUILD/tests/example_$1" "${@:2}" >"$scratch/log" 2>&1 || { cat "$scratch/log"; echo "example_$1 failed"; exit 1; }
    echo "$1 in C"
}
same() { # name, files of the shell's...
    local file
    for file in "${@:2}"; do cmp "$scratch/c/$1/$file" "$scratch/$1/$file"; done
}
digits=examples/digits_cnn
c=$scratch/c
run image_classification "$digits/model.onnx" examples/image_classification/test_images "$c/image_classification"
same image_classification quant.onnx
[ -s "$c/image_classification/report.html" ]
run embedded "$digits/model.onnx" "$c/embedded/small.onnx"
same embedded small.onnx
run model_zoo "$c/model_zoo" "$digits"
same model_zoo digits_cnn-a8w8.onnx digits_cnn-a16w8.onnx
run qat "$scratch/qat/trained.onnx" "$c/qat"
same qat integer.onnx qdq.onnx qoperator.onnx
run legacy "$scratch/legacy/infer.onnx" "$digits" "$c/legacy"
same legacy IntegerOps_Dynamic.onnx IntegerOps_Static.onnx QLinearOps_Dynamic.onnx QLinearOps_Static.onnx
run shards "$scratch/shards/infer.onnx" "$digits" "$c/shards" 3
cmp "$c/shards/ranges.json" "$scratch/shards/minmax.json"
letters=examples/next_letter/model.onnx
run llm_weights "$letters" "$c/llm_weights/mixed.onnx" 21
grep -q ' 4 bits  ' "$scratch/log" && grep -q ' 8 bits  ' "$scratch/log" || { cat "$scratch/log"; echo "all weights alike"; exit 1; }
size() { stat -c %s "$1"; }
[ "$(size "$c/llm_weights/mixed.onnx")" -gt "$(size "$scratch/llm_weights/int4.onnx")" ]
[ "$(size "$c/llm_weights/mixed.onnx")" -lt "$(size "$scratch/llm_weights/int8.onnx")" ]

# Real models, where they lie beside this tree.
models=${ONQ_MODELS:-../shared/models}
if [ -d "$models/ppocr_cls" ]; then
    OUT=$scratch/zoo bash examples/model_zoo/run.sh "$models/ppocr_cls" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
    [ -s "$scratch/zoo/ppocr_cls-a8w8.onnx" ]
    echo "model_zoo: ppocr_cls"
fi
if [ -f "$models/tiny_llama/model.onnx" ]; then
    "$ONQ_BUILD/tests/example_llm_weights" "$models/tiny_llama/model.onnx" "$scratch/llama.onnx" 20 >"$scratch/log" 2>&1 ||
        { cat "$scratch/log"; exit 1; }
    [ "$(($(size "$scratch/llama.onnx") * 2))" -lt "$(size "$models/tiny_llama/model.onnx")" ]
    echo "llm_weights: tiny_llama"
fi
