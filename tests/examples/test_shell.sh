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
    [llm_weights]="int4.onnx k_quant.onnx int8.onnx nf4.onnx"
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
    if [ "$status" = 77 ] || { [ "$name" = llm_weights ] && [ ! -x "$python" ]; }; then
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
! grep -l 'right' "$scratch"/*.log | xargs -r grep -E ' [0-8]?[0-9]\.[0-9]+%$' || { echo "the accuracy above is lost"; exit 1; }

# The same in C.
mkdir "$scratch/c"
"$ONQ_BUILD/tests/example_image_classification" examples/digits_cnn/model.onnx examples/image_classification/test_images \
    "$scratch/c" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
cmp "$scratch/c/quant.onnx" "$scratch/image_classification/quant.onnx"
[ -s "$scratch/c/report.html" ]
"$ONQ_BUILD/tests/example_embedded" examples/digits_cnn/model.onnx "$scratch/c/small.onnx"
cmp "$scratch/c/small.onnx" "$scratch/embedded/small.onnx"
