#!/usr/bin/env bash
# test_faults.sh — calibration that is killed, starved or fed broken samples: a clear error, nothing half-written, and a
# killed run that is started again ends with the result of an unbroken one. Prints the seed of its random moments.
model=$ONQ_ROOT/examples/digits_cnn
cp "$model/model.onnx" .
"$ONQ" calibrate -i model.onnx --data random:1 -o probe.json --quiet 2>probe.err || {
    grep -q 'ONNX Runtime' probe.err && { echo "no ONNX Runtime"; exit 77; }
    cat probe.err
    exit 1
}
rm probe.json probe.err
RANDOM=${ONQ_SEED:-$((($(date +%s) * 31 + $$) % 32768))}
echo "seed $RANDOM (ONQ_SEED)"

fails() { # pattern of the message, command...
    local pattern=$1 status=0
    shift
    "$@" >out 2>err || status=$?
    [ "$status" = 1 ] || { echo "status $status, wanted 1: $*"; cat out err; return 1; }
    [ "$(grep -vc '^onq: warning:' err)" = 1 ] || { echo "not one line:"; cat err; return 1; }
    grep -q -- "$pattern" err || { echo "no '$pattern' in:"; cat err; return 1; }
    rm out err
}

# Killed at random moments. At least one checkpoint must have been taken up, or the test shows nothing.
for method in minmax percentile; do
    job=(calibrate -i model.onnx --data random:600:5 --method "$method")
    begun=$(date +%s%N)
    "$ONQ" "${job[@]}" -o want.json --quiet
    span=$((($(date +%s%N) - begun) / 1000000 + 1)) # milliseconds: moments lie anywhere in a run, on a slow machine too
    mkdir run
    kills=0
    resumed=0
    while [ $kills -lt 20 ]; do
        "$ONQ" "${job[@]}" -o run/got.json --checkpoint run/state --quiet &
        pid=$!
        moment=$((RANDOM % span))
        sleep "$((moment / 1000)).$(printf %03d $((moment % 1000)))"
        if kill -KILL $pid 2>/dev/null; then
            kills=$((kills + 1))
        fi
        wait $pid 2>/dev/null || true
        [ ! -e run/state ] || resumed=$((resumed + 1))
        if [ -e run/got.json ]; then
            cmp want.json run/got.json
            rm run/got.json
            # Nothing is left of a finished run; one killed between its result and its tidying may leave the state.
        fi
    done
    "$ONQ" "${job[@]}" -o run/got.json --checkpoint run/state --quiet
    cmp want.json run/got.json
    [ ! -e run/state ]
    [ $resumed -gt 3 ] || { echo "only $resumed runs left a checkpoint"; exit 1; }
    # A kill in the middle of a rename may leave a temporary file, hidden and named after its target.
    litter=$(find run -type f ! -name got.json ! -name '.state.onq-*' ! -name '.got.json.onq-*' | wc -l)
    [ "$litter" = 0 ] || { find run; exit 1; }
    rm -r run
    echo "$method: $kills kills, $resumed checkpoints"
done

# A checkpoint of another job, and one that is damaged.
"$ONQ" calibrate -i model.onnx --data random:600:5 -o x.json --checkpoint state --quiet &
pid=$!
for _ in $(seq 100); do [ -e state ] && break; sleep 0.02; done
kill -KILL $pid 2>/dev/null || true
wait $pid 2>/dev/null || true
if [ -e state ] && [ ! -e x.json ]; then
    fails 'checkpoint of another job' "$ONQ" calibrate -i model.onnx --data random:600:6 --method entropy -o y.json --checkpoint state
    printf 'x' | dd of=state bs=1 seek=40 conv=notrunc status=none
    fails 'damaged' "$ONQ" calibrate -i model.onnx --data random:600:5 -o y.json --checkpoint state
    [ ! -e y.json ]
fi
rm -f state x.json

# A sample that is cut off, in the middle.
mkdir data
for i in $(seq 0 19); do cp -r "$model/test_data_set_$i" data/; done
head -c 100 "$model/test_data_set_7/input_0.pb" >data/test_data_set_7/input_0.pb
echo old >out.json
fails "test_data_set_7" "$ONQ" calibrate -i model.onnx --data data -o out.json
fails "test_data_set_7" "$ONQ" calibrate -i model.onnx --data data -o out.json --method entropy --memory 0
[ "$(cat out.json)" = old ]

# A sample that vanishes while the job runs.
cp "$model/test_data_set_7/input_0.pb" data/test_data_set_7/input_0.pb
for i in $(seq 20 900); do ln -s "$(realpath data)/test_data_set_$((i % 20))" "data/test_data_set_$i"; done
"$ONQ" calibrate -i model.onnx --data data -o out.json --method percentile --checkpoint state --quiet 2>err &
pid=$!
# The first checkpoint tells that samples run: the folder was listed before.
for _ in $(seq 500); do [ -e state ] && break; sleep 0.02; done
rm data/test_data_set_880
status=0
wait $pid || status=$?
[ "$status" = 1 ] || { echo "status $status"; cat err; exit 1; }
grep -q test_data_set_880 err
[ "$(cat out.json)" = old ]
# With the sample back the job goes on where it was.
cp -r "$model/test_data_set_0" data/test_data_set_880
"$ONQ" calibrate -i model.onnx --data data -o out.json --method percentile --checkpoint state --verbose 2>err
grep -q 'continuing after sample' err
"$ONQ" calibrate -i model.onnx --data data -o want.json --method percentile --quiet
cmp want.json out.json
[ ! -e state ]

# No room: the old result stays and nothing lies beside it.
mkdir full
echo old >full/cache.json
(
    trap '' XFSZ
    ulimit -f 8
    fails 'cache.json' "$ONQ" calibrate -i model.onnx --data random:2 --method distribution -o full/cache.json
    fails 'part' "$ONQ" calibrate -i model.onnx --data random:2 --method distribution --shard 1/1 -o full/part
    fails 'calibration' "$ONQ" calibrate -i model.onnx --data random:2 --method distribution --table full -o full/cache.json
)
[ "$(cat full/cache.json)" = old ]
[ "$(ls -A full)" = cache.json ]

# Parts that do not make one job.
for i in 1 2 3; do "$ONQ" calibrate -i model.onnx --data random:9:1 --shard $i/3 -o part$i --quiet; done
"$ONQ" calibrate -i model.onnx --data random:9:1 --shard 2/3 --method entropy -o other --quiet
fails '2 of its 3 shards were given; add the others' "$ONQ" calibrate --merge part1 part2 -o joined.json
fails 'was given twice' "$ONQ" calibrate --merge part1 part2 part2 -o joined.json
fails 'other options' "$ONQ" calibrate --merge part1 other part3 -o joined.json
fails 'not a calibration part' "$ONQ" calibrate --merge part1 part2 model.onnx -o joined.json
[ ! -e joined.json ]
"$ONQ" calibrate --merge part1 part2 part3 -o joined.json --quiet
"$ONQ" calibrate -i model.onnx --data random:9:1 -o single.json --quiet
cmp single.json joined.json
