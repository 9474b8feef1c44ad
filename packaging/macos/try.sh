#!/bin/sh
# try.sh — run this on a Mac with Apple silicon, in the folder that was unpacked: the last line is "pass" or "fail".
# onq for macOS is built and linked on Linux, where it cannot be run: nobody has seen it work until this says so.
cd "$(dirname "$0")" || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

ok() { printf 'ok    %s\n' "$1"; }
no() {
    printf 'FAIL  %s\n' "$1"
    [ ! -s "$work/said" ] || head -n 5 "$work/said" | sed 's/^/      /'
    failed=1
}
try() { # what, command...
    what=$1
    shift
    if "$@" >"$work/said" 2>&1; then ok "$what"; else no "$what"; fi
}
says() { # what, text, command...
    what=$1 text=$2
    shift 2
    if "$@" >"$work/said" 2>&1 && grep -q "$text" "$work/said"; then ok "$what"; else no "$what"; fi
}
refused() { # what, text, command...
    what=$1 text=$2
    shift 2
    if "$@" >"$work/said" 2>&1; then no "$what: it was not refused"; return; fi
    if grep -q "$text" "$work/said"; then ok "$what"; else no "$what: it does not say '$text'"; fi
}
same() { # what, file, sum and size of the file that Linux writes
    if [ "$(cksum <"$2")" = "$3" ]; then ok "$1: the same bytes as on Linux"; else no "$1: other bytes than on Linux"; fi
}

[ "$(uname -sm)" = "Darwin arm64" ] || { echo "this is $(uname -sm), not a Mac with Apple silicon"; echo fail; exit 1; }
# What a browser has downloaded is held back until its mark is removed.
xattr -dr com.apple.quarantine . 2>/dev/null
try "the signature of the program" codesign --verify onq
try "the signature of the library" codesign --verify libonq.dylib
try "the program starts" ./onq --version
says "the runtime is found" '^ONNX Runtime 1' ./onq --version --verbose

# A model of one MatMul of [1,4] and [4,4], and an array for it as NumPy writes them.
m=$work/m.onnx
{
    printf '\010\010\072\220\001\012\024\012\001\170\012\001\167\022\001\171\032\001\156\042\006\115\141\164\115\165'
    printf '\154\022\001\147\052\113\010\004\010\004\020\001\102\001\167\112\100\000\000\200\077\000\000\000\100\000'
    printf '\000\100\100\000\000\200\100\000\000\200\077\000\000\000\100\000\000\100\100\000\000\200\100\000\000\200'
    printf '\077\000\000\000\100\000\000\100\100\000\000\200\100\000\000\200\077\000\000\000\100\000\000\100\100\000'
    printf '\000\200\100\132\023\012\001\170\022\016\012\014\010\001\022\010\012\002\010\001\012\002\010\004\142\023'
    printf '\012\001\171\022\016\012\014\010\001\022\010\012\002\010\001\012\002\010\004\102\004\012\000\020\015'
} >"$m"
{
    printf '\223NUMPY\001\000\166\000%-117s\n' "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 4), }"
    printf '\000\000\200\077\000\000\000\100\000\000\100\100\000\000\200\100'
} >"$work/x.npy"

says "inspect" 'MatMul 1' ./onq inspect "$m"
try "dynamic" ./onq dynamic -i "$m" -o "$work/d.onnx"
same "dynamic" "$work/d.onnx" "661312540 625"
try "nbits" ./onq nbits -i "$m" -o "$work/n.onnx"
same "nbits" "$work/n.onnx" "62787811 303"
try "static with random samples" ./onq static -i "$m" -o "$work/s.onnx" --data random:4
says "the model computes" 'min 10, max 40, mean 25' ./onq run "$m" --data "exec:cat '$work/x.npy'"
says "the result computes" 'FLOAT\[1,4\], min ' ./onq run "$work/s.onnx" --data random:2
refused "a sample program that fails" 'status 3' ./onq run "$m" --data "exec:cat '$work/x.npy'; exit 3" --quiet --limit 2
cp "$m" "$work/o.onnx"
try "a result in the place of its input" ./onq dynamic -i "$work/o.onnx" -o "$work/o.onnx" --force
same "a result in the place of its input" "$work/o.onnx" "661312540 625"
./onq dynamic -i - -o - --quiet <"$m" >"$work/p.onnx" 2>"$work/said"
same "pipes" "$work/p.onnx" "661312540 625"
mkdir "$work/größe 模型"
try "umlauts and Chinese" ./onq dynamic -i "$m" -o "$work/größe 模型/ä.onnx"
same "umlauts and Chinese" "$work/größe 模型/ä.onnx" "661312540 625"
refused "--isolate" 'cannot limit a process' ./onq dynamic -i "$m" -o "$work/i.onnx" --isolate
head -c 40 "$m" >"$work/cut.onnx"
refused "a damaged model" 'cut.onnx' ./onq dynamic -i "$work/cut.onnx" -o "$work/c.onnx" --quiet
if [ -e "$work/i.onnx" ] || [ -e "$work/c.onnx" ]; then no "something refused was written"; else ok "nothing refused was written"; fi
if [ -n "$(find "$work" -name '*.onq-*')" ]; then no "temporary files stay"; else ok "no temporary files stay"; fi

if [ "$failed" = 0 ]; then echo pass; else echo fail; fi
exit "$failed"
