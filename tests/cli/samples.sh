#!/usr/bin/env bash
# samples.sh — samples that say little about a model are noticed: constant, repeated, few, not scaled. Good ones are not.
if [ -z "${ONQ_ONNXRUNTIME-}" ] && [ -e "$ONQ_ROOT/build/runtime" ]; then
    export ONQ_ONNXRUNTIME=$ONQ_ROOT/build/runtime
fi
here=$ONQ_ROOT/examples/digits_cnn
model=$here/model.onnx
onq run "$model" --data "$here" --limit 1 >/dev/null 2>err || { cat err; exit 77; } # no runtime
onq preprocess -i "$model" -o infer.onnx -q

array() { # COUNT: the header of a .npy file with so many images of 28 x 28; the values follow on standard input
    local text="{'descr': '<f4', 'fortran_order': False, 'shape': ($1, 1, 28, 28), }"
    printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "$text"
    cat
}
values() { # COUNT WORD...: the float32 values, as hexadecimal words of four bytes, over and over
    local count=$1 all=''
    shift
    for word in "$@"; do all+="\\x${word:0:2}\\x${word:2:2}\\x${word:4:2}\\x${word:6:2}"; done
    # shellcheck disable=SC2059 # the bytes are the format
    for ((k = 0; k < count / $#; k++)); do printf "$all"; done
}
static() { onq static -i infer.onnx -o q.onnx --data "$1" >out 2>err || fail "$1: $(cat err)"; }
warns() { # FILE PART: this warning and no other
    static "$1"
    [ "$(grep -c warning err)" = 1 ] || fail "$1: not one warning: $(cat err)"
    grep -qF -e "$2" err || fail "$1: $(cat err) does not say '$2'"
}

static "$here"
[ ! -s err ] || fail "good samples: $(cat err)"

# 8 images of zeros; 2 samples of 8 images that are equal; 4 images with values between; 8 images of pixels.
head -c $((8 * 784 * 4)) /dev/zero | array 8 >zeros.npy
warns zeros.npy 'the samples hold nothing but 0: what is found with them says nothing about real data'
grep -q 'which says nothing of real data' out || fail "the verdict on zeros: $(cat out)"
grep -q 'good\|close to float' out && fail "the verdict on zeros: $(cat out)"

cp "$here/test_data_set_0/input_0.pb" one.pb
for k in 0 1 2; do mkdir -p "equal/test_data_set_$k"; cp one.pb "equal/test_data_set_$k/input_0.pb"; done
warns equal 'all 3 samples are equal; they say no more than one of them'
mkdir -p equal/test_data_set_3
cp "$here/test_data_set_1/input_0.pb" equal/test_data_set_3/
warns equal 'only 2 of 4 samples differ from each other'

values 784 0000003f 0000803e | array 1 >few.npy # 0.5 0.25
warns few.npy '1 sample is few: other data will go beyond the ranges that are found'
values $((8 * 784)) 00000000 00007f43 00004041 0000803f | array 8 >pixels.npy # 0 255 12 1
warns pixels.npy "input 'input' holds whole numbers from 0 to 255, as pixels that were not scaled do"

# Other commands that run samples say it too, once; JSON has it.
onq calibrate -i infer.onnx -o r.json --data zeros.npy >out 2>err
grep -q 'hold nothing but 0' err || fail "calibrate: $(cat err)"
onq bench infer.onnx q.onnx --data zeros.npy --runs 1 --json -q | says 'the samples hold nothing but 0' || fail "bench --json"
onq auto -i infer.onnx -o a.onnx --data zeros.npy --allow dynamic --time_limit 3 >out 2>err
[ "$(grep -c 'hold nothing but 0' err)" = 1 ] || fail "auto: $(cat err)"
onq debug --float_model infer.onnx --qdq_model q.onnx --data zeros.npy >out 2>err
[ "$(grep -c 'hold nothing but 0' err)" = 1 ] || fail "debug: $(cat err)"

# NaN in a sample: the sample is named, and of the tensors that get it only the first.
values $((8 * 784)) 0000c07f 0000803e 0000003f 0000803f | array 8 >nan.npy # NaN 0.25 0.5 1
onq calibrate -i infer.onnx -o r.json --data nan.npy --calibration_method entropy >out 2>err
grep -q "1 of 1 samples hold NaN, the first: sample 0 ('nan.npy" err || fail "NaN: $(cat err)"
[ "$(grep -c 'values are NaN and were left out, the first in sample 0' err)" = 3 ] || fail "NaN: $(cat err)"
grep -q 'warning: [0-9]* more tensors hold NaN, which were left out' err || fail "NaN: $(cat err)"
