#!/usr/bin/env bash
# run.sh — one calibration over the ranks of an MPI job, each with its share of the samples, and the model that comes of it.
# On a cluster mpirun gets a list of machines, or the scheduler starts onq-mpi (srun onq-mpi calibrate ...): the model
# and the samples are where every rank can read them. The ranges are those of one process, to the last bit.
set -eu
# shellcheck source=examples/setting.sh
. "$(dirname -- "$0")/../setting.sh"
command -v mpirun >/dev/null && command -v onq-mpi >/dev/null || { echo "no MPI, or onq-mpi was not built"; exit 77; }
ranks=${RANKS:-2}
step onq preprocess --input "$digits/model.onnx" --output "$out/infer.onnx"
step mpirun -n "$ranks" onq-mpi calibrate -i "$out/infer.onnx" --data "$digits" --method percentile -o "$out/ranges.json"
step onq calibrate -i "$out/infer.onnx" --data "$digits" --method percentile -o "$out/one.json"
cmp "$out/ranges.json" "$out/one.json"
rm -f "$out/int8.onnx"
step onq static -i "$out/infer.onnx" -o "$out/int8.onnx" --calibration_cache "$out/ranges.json" \
    --calibration_method percentile --per_channel
