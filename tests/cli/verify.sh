#!/usr/bin/env bash
# verify.sh — onq verify: a model in several runtimes, good and bad ones; libraries that are none; --for_runtime.
if [ -z "${ONQ_ONNXRUNTIME-}" ] && [ -e "$ONQ_ROOT/build/runtime" ]; then
    export ONQ_ONNXRUNTIME=$ONQ_ROOT/build/runtime
fi
export GCOV_ERROR_FILE=/dev/null # as in isolate.sh
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
here=$ONQ_ROOT/examples/digits_cnn
model=$here/model.onnx
onq run "$model" --data "$here" --limit 1 >/dev/null 2>err || { cat err; exit 77; } # no runtime
compiler=$(command -v cc || command -v gcc || command -v clang) || { echo "no C compiler"; exit 77; }

status() { # STATUS WORDS...: the words of onq end with it
    local want=$1 got=0
    shift
    onq "$@" >out 2>err || got=$?
    [ "$got" = "$want" ] || fail "$*: status $got, wanted $want: $(cat out err)"
}
has() { # FILE PATTERN
    grep -q -e "$2" "$1" || fail "$(cat "$1") does not say '$2'"
}

# ---- a good model
status 0 static -i "$model" -o q.onnx --data "$here" --per_channel
status 0 verify q.onnx --float_model "$model" --data "$here"
has out '^1\.[0-9.]* *good *[0-9.]* dB *[0-9.]* dB '
has out '^1 of 1 runtime load'
status 0 verify q.onnx --json
has out '"generated": true'
has out '"good": true'
status 0 verify q.onnx --isolate --data "$here"
has out ' good '
status 1 verify missing.onnx
has err '^onq: error: missing\.onnx'

# ---- an opset that no runtime knows yet: what helps was tried, and the command does it
status 0 preprocess -i "$model" -o new.onnx --optimizer none --opset 28 --no_verify
status 1 verify new.onnx --data "$here"
has out ' BAD '
has out 'it does not load: '
has out 'what helps, tried there: opset [0-9]* instead of 28'
words=$(sed -n 's/^    onq convert -i new.onnx -o OUT.onnx/-o old.onnx/p' out)
# shellcheck disable=SC2086  # several words
status 0 convert -i new.onnx $words
has out 'instead of 28'
status 0 verify old.onnx --float_model "$model" --data "$here"
status 0 verify old.onnx --float_model "$model" --data "$here" --json
has out '"sqnr_unoptimised": 200'

# ---- libraries that are no runtime: one line with the file and the reason, and nothing is written
"$compiler" -shared -fPIC '-DVERSION="1.17.3"' -o old.so "$ONQ_ROOT/tests/cli/verify_fake.c"
"$compiler" -shared -fPIC '-DVERSION="2.0.0"' -o new.so "$ONQ_ROOT/tests/cli/verify_fake.c"
"$compiler" -shared -fPIC -o none.so -x c - <<<'int nothing;'
cp old.so arm.so
machine='\xb7\x00'
[ "$(uname -m)" != aarch64 ] || machine='\x3e\x00'
# shellcheck disable=SC2059  # escapes
printf "$machine" | dd of=arm.so bs=1 seek=18 conv=notrunc status=none
echo "no library" >text.so
dll() { # FILE MACHINE: as the head of a DLL names it
    { printf 'MZ'; head -c 58 /dev/zero; printf '\100\0\0\0PE\0\0%b' "$2"; head -c 64 /dev/zero; } >"$1"
}
dll windows.dll '\0144\0206'
dll windows_arm.dll '\0144\0252'
printf 'MZ and nothing else' >cut.dll
head -c 4096 none.so >cut.so
head -c 64 none.so >head.so
printf '\177ELF' >four.so
printf '\317\372\355\376\014\0\0\001' >mac.dylib
mkdir empty
refused() { # LIBRARY PATTERN [COMMAND]
    local command
    for command in ${3:-static verify}; do
        if [ $command = static ]; then
            status 1 static -i "$model" -o no.onnx --data "$here" --onnxruntime "$1"
        else
            status 1 verify q.onnx --data "$here" --onnxruntime "$1"
        fi
        [ "$(wc -l <err)" = 1 ] || fail "$1: not one line: $(cat err)"
        has err "^onq: error: .*$1.*$2"
        [ ! -s out ] || fail "$1: $(cat out)"
        [ ! -e no.onnx ] || fail "$1: a result was written"
    done
}
refused ./old.so 'is too old: onq needs 1.18 or later'
refused ./new.so 'is too new: onq knows the functions of 1\.x'
refused ./none.so 'is not ONNX Runtime: it has no OrtGetApiBase'
refused ./arm.so 'it is a library for [a-z0-9-]*, and this onq is for '
refused ./text.so 'it is not a library'
refused ./four.so 'it is not a library'
refused ./head.so 'it is damaged: the file ends before the library does'
refused ./cut.so 'it is damaged: the file ends before the library does'
refused ./windows.dll 'it is a library for Windows, and this onq is for '
refused ./windows_arm.dll 'it is a library for Windows on Arm, and this onq is for '
refused ./cut.dll 'it is not a library'
refused ./mac.dylib 'it is a library for macOS, and this onq is for '
refused ./nothing.so 'cannot be loaded'
refused old.so 'is too old: onq needs 1.18 or later' # a name without a folder is that of a file here
mkfifo waits.so
refused ./waits.so 'it is not a file'
status 1 verify q.onnx --onnxruntime empty
has err "no ONNX Runtime is in the folder 'empty'"

# ---- several: each has a row, also one that crashes
"$compiler" -D_GNU_SOURCE -shared -fPIC -o fake.so "$ONQ_ROOT/tests/cli/isolate_fake.c"
real=$(onq verify q.onnx --json --data "$here" | sed -n 's/.*"runtime": "\(.*\)",/\1/p')
FAKE=abort status 1 verify q.onnx --data "$here" --onnxruntime ./fake.so --onnxruntime "$real" ./old.so
[ "$(grep -c ' BAD ' out)" = 2 ] || fail "$(cat out)"
has out ' good '
has out 'was ended by signal 6\|ended with status'
has out 'is too old'
has out '^1 of 3 runtimes'
FAKE=crash status 1 verify q.onnx --data "$here" --onnxruntime ./fake.so
has err "^onq: error: ONNX Runtime '.*fake\.so': .*was ended by signal 11\|fake\.so.*ended with status"
mkdir -p wheel/onnxruntime/capi
cp "$real" wheel/onnxruntime/capi/
status 0 verify q.onnx --data "$here" --onnxruntime wheel
has out '^1 of 1 runtime '
status 2 verify q.onnx --data - --onnxruntime ./fake.so "$real"
has err 'standard input can be read only once'

# ---- a node that the runtime computes wrongly when it optimises: it is found and named, and leaving it float helps
python3 "$ONQ_ROOT/tests/tools/wrong_pool.py" pool.onnx pool_q.onnx
status 1 verify pool_q.onnx --float_model pool.onnx --data random:4
has out "what helps, tried there: left float: node 'averagepool' (AveragePool)"
words=$(sed -n 's/^    onq static -i pool.onnx -o OUT.onnx//p' out)
# shellcheck disable=SC2086  # several words
status 0 static -i pool.onnx -o pool_s.onnx --data random:4 $words
status 0 verify pool_s.onnx --float_model pool.onnx --data random:4

# ---- --run_with: an onq of another CPU answers for a library of it
row='{"runtime": "arm.so", "version": "1.31.1", "machine": "cray", "good": true, "loads": true, "runs": true, "sqnr": 31.5}'
printf '#!/bin/sh\necho "$*" >words\necho %s\n' "'{\"runtimes\": [$row]}'" >there
printf '#!/bin/sh\nexit 3\n' >fails
printf '#!/bin/sh\necho "no answer"\n' >babbles
chmod +x there fails babbles
mkdir 'a folder'
cp q.onnx "a folder/it's.onnx"
status 0 verify "a folder/it's.onnx" --data "$here" --limit 3 --onnxruntime ./arm.so "$real" --run_with ./there
has out '^1\.31\.1 cray  *good  *31\.5 dB '
has out '^2 of 2 runtimes'
has words "^verify --json --quiet --isolate=false --input a folder/it's.onnx --data=$here --limit=3 --onnxruntime .*arm\.so$"
refused ./arm.so '--run_with starts an onq for it' verify
for word in fails:'the program ended with status 3' babbles:arm.so nothing:'ended with status 127'; do
    status 1 verify q.onnx --onnxruntime ./arm.so --run_with "./${word%%:*}"
    has err "^onq: error: ONNX Runtime .*arm\.so': --run_with: './${word%%:*}': .*${word#*:}"
done
status 0 verify q.onnx --data "$here" --isolate=false --onnxruntime "$real"
has out ' good '

# ---- --for_runtime
for version in 1.12 1.99 2.0 new; do
    status 2 dynamic -i "$model" -o no.onnx --for_runtime "$version"
    has err "for_runtime $version: it is not known what this version can run (known are 1.19 to 1.31"
done
[ ! -e no.onnx ] || fail "a result was written"
status 0 preprocess -i "$model" -o recent.onnx --optimizer none --opset 26 --no_verify
status 0 static -i recent.onnx -o s.onnx --data "$here" --for_runtime 1.20 --json
has out '"opset": 21'
has out '"changed": true'
status 0 dynamic -i "$model" -o same.onnx
status 0 dynamic -i "$model" -o for.onnx --for_runtime 1.31
cmp same.onnx for.onnx || fail "other bytes where nothing had to be changed"
has out 'for ONNX Runtime 1.31: nothing had to be changed'
status 0 auto -i recent.onnx -o auto.onnx --data "$here" --time_limit 5 --limit 4 --for_runtime 1.19 --json
has out 'for_runtime 1.19'
status 0 inspect auto.onnx
has out 'opset 21\|ai.onnx 21'
