#!/usr/bin/env bash
# wheels.sh [TARGET...] — Python packages in build/dist for x86_64, aarch64, windows and macos (all of them without
# TARGET), each built by tools/portable.sh, and the archives of Windows and macOS: program, library, header, ONNX Runtime,
# notices. Each wheel is unpacked again, and what is inside is asked what it links to.
set -eu
cd -- "$(dirname -- "$0")/.."
version=$(bash tools/version.sh)
mkdir -p build/dist
[ $# -gt 0 ] || set -- x86_64 aarch64 windows macos

tag() {
    case $1 in
    x86_64 | aarch64) echo "manylinux_2_28_$1" ;;
    windows) echo win_amd64 ;;
    macos) echo macosx_14_0_arm64 ;;
    esac
}

# The library and the program as a wheel has them.
natives() { # target, folder
    case $1 in
    windows) echo "$2/lib/onq.dll" "$2/bin/onq.exe" ;;
    macos) echo "$2/lib/libonq.dylib" "$2/bin/onq" ;;
    *) echo "$2"/lib/libonq.so.[0-9] "$2/bin/onq" ;;
    esac
}

check() { # target, file...
    local target=$1
    shift
    case $target in
    windows | macos) python3 tools/check-imports.py "$@" ;;
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

# The files of another system in one folder, build/portable/SYSTEM/stage/NAME.
lay_out() { # system, name, library of ONNX Runtime, files of onq...
    local system=$1 home=build/portable/$1/stage/$2 runtime=$3
    shift 3
    rm -rf "build/portable/$system/stage"
    mkdir -p "$home/include/onq" "$home/licences/onnxruntime" "$home/runtime"
    cp "$@" LICENSE README.md CHANGELOG.md "$home/"
    cp "build/$system/runtime/$runtime" "$home/runtime/"
    cp "build/$system/runtime/LICENSE" "build/$system/runtime/ThirdPartyNotices.txt" "$home/licences/onnxruntime/"
    cp include/onq/onq.h "$home/include/onq/"
    cp "build/portable/$system/deps/licences"/* "$home/licences/"
}

make_zip() {
    local name=onq-$version-windows-x86_64
    lay_out windows "$name" onnxruntime.dll build/windows/onq.exe build/windows/onq.dll build/portable/windows/onq/onq.dll.a
    python3 tools/zip.py build/portable/windows/stage "$name" "build/dist/$name.zip"
    echo "build/dist/$name.zip"
}

make_tarball() {
    local name=onq-$version-macos-arm64
    lay_out macos "$name" "$(basename build/macos/runtime/libonnxruntime.*.dylib)" build/macos/onq build/macos/libonq.dylib packaging/macos/try.sh
    bash tools/tar.sh build/portable/macos/stage "$name"
}

for target in "$@"; do
    bash tools/portable.sh "$target"
    make_wheel "$target"
    case $target in
    windows) make_zip ;;
    macos) make_tarball ;;
    esac
done
