#!/usr/bin/env bash
# test_mpi.sh — onq-mpi: four ranks on one machine give the result of one process, and a rank that fails is named.
program=$ONQ_BUILD/onq-mpi
[ -x "$program" ] || { echo "onq-mpi was not built"; exit 77; }
command -v mpirun >/dev/null || { echo "no mpirun"; exit 77; }
model=$ONQ_ROOT/examples/digits_cnn
cp "$model/model.onnx" .
"$ONQ" calibrate -i model.onnx --data random:1 -o probe.json --quiet 2>probe.err || {
    grep -q 'ONNX Runtime' probe.err && { echo "no ONNX Runtime"; exit 77; }
    cat probe.err
    exit 1
}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export OMPI_MCA_btl_vader_single_copy_mechanism=none TMPDIR=$PWD/tmp
mkdir tmp
ranks() { # number, words...
    local n=$1
    shift
    mpirun -n "$n" "$program" "$@"
}

for options in "--method CalibrationMethod.MinMax" "--method minmax --calib_moving_average" "--method minmax --calib_per_channel" \
    "--method entropy" "--method percentile" "--method percentile --calib_symmetric=false" "--method distribution"; do
    # shellcheck disable=SC2086  # several words
    "$ONQ" calibrate -i model.onnx --data "$model" -o want.json --quiet $options
    # shellcheck disable=SC2086
    ranks 4 calibrate -i model.onnx --data "$model" -o got.json --quiet $options
    cmp want.json got.json
done
# More ranks than samples, one rank, and the tables.
"$ONQ" calibrate -i model.onnx --data "$model" --limit 3 -o want.json --table want --quiet --method=percentile
ranks 5 calibrate -i model.onnx --data "$model" --limit 3 --output=got.json --table got --quiet --method=Percentile
cmp want.json got.json
for f in json cache flatbuffers; do cmp "want/calibration.$f" "got/calibration.$f"; done
ranks 1 calibrate -i model.onnx --data "$model" --limit 3 -ogot.json --quiet --method percentile
cmp want.json got.json

# A rank whose sample is broken: said once, with the rank; all end, nothing is written.
mkdir data
for i in $(seq 0 7); do cp -r "$model/test_data_set_$i" data/; done
head -c 100 "$model/test_data_set_6/input_0.pb" >data/test_data_set_6/input_0.pb
rm got.json
for method in minmax entropy; do
    status=0
    ranks 4 calibrate -i model.onnx --data data -o got.json --method $method >out 2>err || status=$?
    [ "$status" = 1 ] || { echo "status $status"; cat err; exit 1; }
    [ "$(grep -c '^onq-mpi: error:' err)" = 1 ] || { cat err; exit 1; }
    grep -q "^onq-mpi: error: rank 2 of 4: .*test_data_set_6" err || { cat err; exit 1; }
    [ ! -e got.json ]
done
# The command line is wrong: status 2, said once.
for words in "calibrate -i model.onnx" "calibrate -i model.onnx -o x --shard 1/2" "static -i model.onnx" \
    "calibrate -i model.onnx -o x --no_such_option"; do
    status=0
    # shellcheck disable=SC2086
    ranks 2 $words >out 2>err || status=$?
    [ "$status" = 2 ] || { echo "$words: status $status"; cat err; exit 1; }
    [ "$(grep -c '^onq-mpi: error:' err)" = 1 ] || { cat err; exit 1; }
done
# A rank that cannot write what it must.
status=0
ranks 2 calibrate -i model.onnx --data "$model" --limit 4 -o no/such/folder/x.json >out 2>err || status=$?
[ "$status" = 1 ] && grep -q '^onq-mpi: error: rank 0 of 2: .*no/such/folder' err || { cat err; exit 1; }
[ -z "$(find tmp -mindepth 1 -name '*onq-mpi*')" ] || { ls -A tmp; exit 1; }

# A rank that is killed: the job ends, and nothing is written.
mpirun -n 3 "$program" calibrate -i model.onnx --data random:1000000 -o got.json --quiet >out 2>err &
pid=$!
for _ in $(seq 500); do
    victim=$(pgrep -P "$pid" -x onq-mpi | tail -n 1) || true
    [ -z "$victim" ] || break
    sleep 0.02
done
[ -n "$victim" ] || { echo "no rank was started"; kill $pid; exit 1; }
sleep 0.3
kill -KILL "$victim"
status=0
wait $pid || status=$?
[ "$status" != 0 ]
[ ! -e got.json ]
