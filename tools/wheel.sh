#!/usr/bin/env bash
# wheel.sh — the Python package in build/dist. With PORTABLE=1 the library and the program are those of tools/portable.sh;
# without, they are built by this machine's compiler, and the wheel needs a glibc as new as it uses.
set -eu
cd -- "$(dirname -- "$0")/.."
mkdir -p build/dist
if [ -n "${PORTABLE-}" ]; then
    arch=$(uname -m)
    bash tools/portable.sh "$arch"
    export ONQ_BUILT_FOLDER=$PWD/build/portable/$arch/onq ONQ_NOTICES_FOLDER=$PWD/build/portable/$arch/deps/licences
fi
export ONQ_BUILD_FOLDER=$PWD/build/wheel
python3 python/build_backend/onq_build.py build/dist
