#!/usr/bin/env bash
# The wheel in a fresh virtual environment: it is made, installed with pip, finds ONNX Runtime in the package onnxruntime
# without importing it, quantizes, and its program runs. numpy and onnxruntime are those of build/venv.
set -eu
root=${ONQ_ROOT:-$(cd -- "$(dirname -- "$0")/../.." && pwd)}
python=$root/build/venv/bin/python
[ -x "$python" ] || { echo "no build/venv (make setup)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset ONQ_LIBRARY ONQ_ONNXRUNTIME PYTHONPATH
export JOBS=${JOBS:-2}

make -s -C "$root" wheel >"$work/log" || { cat "$work/log"; exit 1; }
wheel=$(tail -n 1 "$work/log")
case $wheel in *-py3-none-manylinux_*.whl) ;; *) echo "not a manylinux wheel: $wheel"; exit 1 ;; esac

# What the library needs is on every Linux or lies next to it, and that is where it looks.
"$python" -m zipfile -e "$root/$wheel" "$work/unpacked"
native=$work/unpacked/onq/_native/lib
dynamic=$(readelf -d "$native"/libonq.so.0)
grep -qF 'runpath: [$ORIGIN]' <<<"$dynamic" || { echo "libonq.so.0 does not look beside itself:"; echo "$dynamic"; exit 1; }
for name in $(sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' <<<"$dynamic"); do
    case $name in
    libc.so.* | libm.so.* | libdl.so.* | libpthread.so.* | libz.so.* | libgcc_s.so.* | ld-linux*) ;;
    *) [ -f "$native/$name" ] || { echo "$name is not in the wheel"; exit 1; } ;;
    esac
done

[ "$(readelf -d "$native/../bin/onq" | grep -c 'runpath: .*\$ORIGIN/\.\./lib')" = 1 ] || { echo "bin/onq does not find its library"; exit 1; }

# Every symbol has a home, and the copies are found, whatever the loader would take otherwise.
loaded=$(env -i ldd -r "$native/libonq.so.0" 2>&1)
! grep -E 'undefined symbol|not found' <<<"$loaded" || exit 1
for copy in "$native"/lib[!o]*.so.*; do
    [ ! -e "$copy" ] || grep -qF "=> $copy" <<<"$loaded" || { echo "$copy is not used:"; echo "$loaded"; exit 1; }
done

# What belongs in it is there, with a licence for each copy, and nothing that was left lying about.
contents=$(cd "$work/unpacked" && find . -type f -printf '%P\n')
for name in onq/__init__.py onq/py.typed onq/quantization/__init__.py onq/_native/bin/onq onq/_native/lib/libonq.so.0; do
    grep -qxF "$name" <<<"$contents" || { echo "$name is not in the wheel"; exit 1; }
done
[ "$(grep -c 'licenses/lib.*copyright$' <<<"$contents")" -ge "$(find "$native" -type f -name "lib*" ! -name "libonq*" | wc -l)" ] || { echo "licences are missing:"; echo "$contents"; exit 1; }
! grep -E '\.pyc$|__pycache__|\.data$|\.onnx$|^(src|tests|build)/' <<<"$contents" || { echo "this does not belong in a wheel"; exit 1; }

"$python" -m venv "$work/venv"
site=$("$work/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
"$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/others.pth"
"$work/venv/bin/pip" install -q --no-index --no-deps --disable-pip-version-check "$root/$wheel"

cd "$work"
cat >use.py <<'PY'
import sys
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

w = numpy_helper.from_array(np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32), "w")
x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, k]) for n, k in (("x", 8), ("y", 4)))
graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], "m")], "g", [x], [y], [w])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "m.onnx")

import onq
from onq.quantization import quantize_static

samples = iter([{"x": np.ones((1, 8), np.float32)}, None])
quantize_static("m.onnx", "q.onnx", type("Reader", (), {"get_next": lambda self: next(samples)})())
assert "onnxruntime" not in sys.modules
assert "QuantizeLinear" in onq.inspect("q.onnx")["operators"]
assert "_native" in onq._library.library_path().as_posix()
for line in open("/proc/self/maps"):  # nothing comes from the machine that the wheel brings along
    if any(f"/lib{name}" in line for name in ("jansson", "jpeg", "spng")):
        assert "/_native/lib/" in line, line
print(onq.__version__)
PY
version=$("$work/venv/bin/python" use.py 2>/dev/null)
"$work/venv/bin/onq" --version | grep -F "$version" >/dev/null
"$work/venv/bin/onq" run q.onnx --data random:1 >/dev/null 2>&1
"$work/venv/bin/python" -m onq.quantization.static_quantize_runner --help >/dev/null

echo "wheel: $(basename "$wheel") installs and runs"
