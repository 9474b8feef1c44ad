#!/usr/bin/env bash
# tarball.sh [ARCH] — build/dist/onq-VERSION-linux-ARCH.tar.gz: unpacked anywhere on a Linux with glibc 2.28 or later it
# works, with ONNX Runtime inside and nothing else needed. Built by tools/portable.sh.
set -eu
cd -- "$(dirname -- "$0")/.."
arch=${1:-$(uname -m)}
runtime=build/runtime
[ "$arch" = "$(uname -m)" ] || runtime=build/$arch/runtime
name=onq-$(bash tools/version.sh)-linux-$arch
home=build/portable/$arch
stage=$home/stage/$name
[ -s "$runtime/ThirdPartyNotices.txt" ] || { echo "tarball: no ONNX Runtime for $arch in $runtime (make setup)" >&2; exit 1; }

bash tools/portable.sh "$arch"
# What was built for another machine cannot print its own man pages: this machine's does.
[ -e "$home/onq/generated/stamp" ] || bash tools/gen-docs.sh build/onq "$home/onq/generated"
cmake -DONQ_RUNTIME_FOLDER="$PWD/$runtime" "$home/onq" >/dev/null
rm -rf "$home/stage"
cmake --install "$home/onq" --prefix "$stage" >/dev/null
doc=$stage/share/doc/onq
mkdir -p "$doc/libraries"
cp "$home"/deps/licences/* "$doc/libraries/"
cp CHANGELOG.md README.md "$doc/"
cp packaging/portable/README "$stage/README"
bash tools/check-glibc.sh 2.28 "$stage/bin/onq" "$stage/lib/libonq.so" "$stage"/lib/onq/libonnxruntime.so.*
bash tools/tar.sh "$home/stage" "$name"
