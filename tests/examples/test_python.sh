#!/usr/bin/env bash
# test_python.sh — every example in Python does its job with the Python package, and makes what the commands make.
set -eu
cd "${ONQ_ROOT:?}"
scratch=$OLDPWD
python=$PWD/build/venv/bin/python
[ -x "$python" ] || { echo "no build/venv (make setup)"; exit 77; }
export PYTHONPATH=$PWD/python PYTHONDONTWRITEBYTECODE=1 ONQ_LIBRARY=$ONQ_BUILD/libonq.so ONQ_PROGRESS=0
ONQ_ONNXRUNTIME=${ONQ_ONNXRUNTIME:-$PWD/build/runtime}
export ONQ_ONNXRUNTIME
digits=examples/digits_cnn
run() { # script, arguments...
    "$python" "examples/$1" "${@:2}" >"$scratch/log" 2>&1 || { cat "$scratch/log"; echo "$1 failed"; exit 1; }
    echo "$1"
}

run image_classification/run.py "$scratch/images"
onq preprocess --input "$digits/model.onnx" --output "$scratch/infer.onnx" --quiet
onq static -i "$scratch/infer.onnx" -o "$scratch/quant.onnx" --per_channel --data examples/image_classification/test_images \
    --image-mean 0 --image-std 1 --quiet --activation_type quint8
onq diff "$scratch/images/quant.onnx" "$scratch/quant.onnx"
grep -q '<html' "$scratch/images/report.html"

run model_zoo/run.py "$digits" "$scratch/zoo"
[ "$(ls "$scratch"/zoo/digits_cnn-*.onnx | wc -l)" = 3 ]

run llm_weights/run.py examples/next_letter/model.onnx "$scratch/llm4.onnx"
grep -q MatMulNBits "$scratch/log"

onq static -i "$scratch/infer.onnx" -o "$scratch/trained.onnx" --data "$digits" --add_qdq_pair_to_weight \
    --disable_quantize_bias --quiet
run qat/run.py "$scratch/trained.onnx" "$scratch/qat.onnx"
grep -q ConvInteger "$scratch/log"

mkdir "$scratch/legacy"
run legacy/run.py "$digits" "$scratch/legacy"
for mode in IntegerOps_Dynamic:ConvInteger IntegerOps_Static:ConvInteger QLinearOps_Dynamic:QLinearConv QLinearOps_Static:QLinearConv; do
    grep -q "^${mode%:*} .*'${mode#*:}'" "$scratch/log" || { cat "$scratch/log"; exit 1; }
done
onq bench "$digits/model.onnx" "$scratch"/legacy/*Ops_*.onnx --data "$digits/eval.npz" --labels "$digits/labels.npy" --runs 1 >"$scratch/log"
! grep -E ' ([0-8]?[0-9]\.[0-9]+)%$' "$scratch/log" || { echo "legacy/run.py: accuracy is lost"; exit 1; }

# A cluster of two workers on this machine.
if "$python" -c 'import distributed' 2>/dev/null; then
    DASK_TEMPORARY_DIRECTORY=$scratch run shards/run_dask.py "$scratch/infer.onnx" "$digits" "$scratch/dask.json"
    onq calibrate -i "$scratch/infer.onnx" --data "$digits" --method entropy -o "$scratch/whole.json" --quiet
    cmp "$scratch/dask.json" "$scratch/whole.json"
else
    echo "shards/run_dask.py: skipped, no package distributed (make setup)"
fi
