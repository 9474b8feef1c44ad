#!/usr/bin/env bash
# run.sh — one calibration in four shards, which may run at any time on any machine, then merged: the ranges are those of
# one run over all samples, to the last bit. Methods with histograms find the ranges first, all shards, and take the
# histograms after that. run_dask.py beside this does the same on a Dask cluster, examples/mpi under MPI.
set -eu
# shellcheck source=examples/setting.sh
. "$(dirname -- "$0")/../setting.sh"
shards=4
rm -f "$out"/*
step onq preprocess --input "$digits/model.onnx" --output "$out/infer.onnx"

# minmax: one pass
for i in $(seq "$shards"); do
    step onq calibrate -i "$out/infer.onnx" --data "$digits" --shard "$i/$shards" -o "$out/minmax.$i"
done
step onq calibrate --merge "$out"/minmax.[0-9]* -o "$out/minmax.json"

# entropy: two passes
for i in $(seq "$shards"); do
    step onq calibrate -i "$out/infer.onnx" --data "$digits" --method entropy --shard "$i/$shards" --range_pass \
        -o "$out/first.$i"
done
for i in $(seq "$shards"); do
    step onq calibrate -i "$out/infer.onnx" --data "$digits" --method entropy --shard "$i/$shards" -o "$out/second.$i" \
        --ranges "$out"/first.[0-9]*
done
step onq calibrate --merge "$out"/second.[0-9]* -o "$out/entropy.json"

step onq calibrate -i "$out/infer.onnx" --data "$digits" --method entropy -o "$out/entropy.whole.json"
cmp "$out/entropy.json" "$out/entropy.whole.json"
step onq static -i "$out/infer.onnx" -o "$out/int8.onnx" --calibration_cache "$out/entropy.json" \
    --calibration_method entropy --per_channel
