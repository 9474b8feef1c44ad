#!/usr/bin/env bash
# wheels.sh [TARGET...] — Python packages in build/dist for x86_64, aarch64 and windows (all of them without TARGET),
# each built by tools/portable.sh, and the archive of Windows: program, library, header, ONNX Runtime, notices. Each is unpacked again, and what is inside is asked what it links to.
set -eu
cd -- "$(dirname -- "$0")/.."
version=$(bash tools/version.sh)
mkdir -p build/dist
[ $# -gt 0 ] || set -- x86_64 aarch64 windows

tag() {
    case $1 in
    x86_64 | aarch64) echo "manylinux_2_28_$1" ;;
    windows) echo win_amd64 ;;
    esac
}

# The library and the program as a wheel has them.
natives() { # target, folder
    case $1 in
    windows) echo "$2/lib/onq.dll" "$2/bin/onq.exe" ;;
    *) echo "$2"/lib/libonq.so.[0-9] "$2/bin/onq" ;;
    esac
}

check() { # target, file...
    local target=$1
    shift
    case $target in
    windows) python3 tools/check-imports.py "$@" ;;
    *) bash tools/check-glibc.sh 2.28 "$@" ;;
    esac
}

make_wheel() { # target
    local wheel unpacked=build/portable/$1/unpacked
    export ONQ_BUILT_FOLDER=$PWD/build/portable/$1/onq ONQ_NOTICES_FOLDER=$PWD/build/portable/$1/deps/licences
    wheel=$(ONQ_WHEEL_PLATFORM=$(tag "$1") python3 python/build_backend/onq_build.py build/dist)
    rm -rf "$unpacked"
    python3 -m zipfile -e "$wheel" "$unpacked"
    # shellcheck disable=SC2046  # two paths
    check "$1" $(natives "$1" "$unpacked/onq/_native")
    echo "$wheel"
}

make_zip() {
    local name=onq-$version-windows-x86_64 stage=build/portable/windows/stage
    rm -rf "$stage"
    mkdir -p "$stage/$name/include/onq" "$stage/$name/licences/onnxruntime" "$stage/$name/runtime"
    cp build/windows/onq.exe build/windows/onq.dll build/portable/windows/onq/onq.dll.a "$stage/$name/"
    cp build/windows/runtime/onnxruntime.dll "$stage/$name/runtime/"
    cp build/windows/runtime/LICENSE build/windows/runtime/ThirdPartyNotices.txt "$stage/$name/licences/onnxruntime/"
    cp include/onq/onq.h "$stage/$name/include/onq/"
    cp build/portable/windows/deps/licences/* "$stage/$name/licences/"
    cp LICENSE README.md CHANGELOG.md "$stage/$name/"
    python3 tools/zip.py "$stage" "$name" "build/dist/$name.zip"
    echo "build/dist/$name.zip"
}

for target in "$@"; do
    bash tools/portable.sh "$target"
    make_wheel "$target"
    [ "$target" != windows ] || make_zip
done
