#!/usr/bin/env bash
# portable.sh [TARGET [tests]] — builds onq to be passed on, in build/portable/TARGET:
#   x86_64, aarch64   for any Linux with glibc 2.28 or later (the machine's own without TARGET)
#   windows           onq.exe and onq.dll for Windows 10 and later on x86-64, which build/windows gets
#   macos             onq and libonq.dylib for macOS 14 and later on Apple silicon, which build/macos gets
# `make tarball`, `make windows`, `make macos` and the wheels take what comes out. With `tests`, for Windows, the unit
# tests instead, which build/portable/windows/onq-tests/tests gets (tools/check-windows.sh runs them).
#
# zig's C compiler has the symbols of every glibc, so that nothing newer than 2.28 is asked for, and the headers and the
# linker of macOS, which signs what it links ad hoc. For Windows it is Debian's mingw-w64. The libraries of
# packaging/portable/sources.txt are compiled with it and linked into libonq.
# What is downloaded (zig from PyPI, sources from a mirror of Debian) is kept in build/portable and checked by its sum.
set -eu
cd -- "$(dirname -- "$0")/.."
arch=${1:-$(uname -m)} tests=${2-}
glibc=2.28
zig_version=$(awk '$1 == "ziglang" { print $2; exit }' tools/wheels.txt)
mirror=${ONQ_DEBIAN_MIRROR:-http://deb.debian.org/debian}
jobs=${JOBS:-$(nproc)}
shared=$PWD/build/portable
home=$shared/$arch
prefix=$home/deps

fail() {
    printf 'portable: error: %s\n' "$*" >&2
    exit 1
}
case $arch in
x86_64 | aarch64) system=Linux target=$arch-linux-gnu.$glibc ;;
macos) system=Darwin target="aarch64-macos.14.0 -fvisibility=hidden" ;;
windows) system=Windows target= ;;
*) fail "no portable build for $arch" ;;
esac

quietly() { # command...; its output is shown when it fails
    "$@" >"$home/log" 2>&1 || {
        tail -n 30 "$home/log" >&2
        fail "${*:1:4} ... failed"
    }
}

# ---- the compiler

# Programs that CMake can call by one name.
tool() { # name, words of zig...
    local name=$1
    shift
    printf '#!/bin/sh\nexec %q %s "$@"\n' "$shared/zig/ziglang/zig" "$*" >"$home/bin/$name.new"
    chmod +x "$home/bin/$name.new"
    # A compiler that is younger than what it made would have it all made again.
    cmp -s "$home/bin/$name.new" "$home/bin/$name" || cp -p "$home/bin/$name.new" "$home/bin/$name"
    rm "$home/bin/$name.new"
}

get_compiler() {
    mkdir -p "$home/bin"
    if [ "$system" = Windows ]; then
        local name
        for name in gcc ar ranlib windres; do
            command -v "x86_64-w64-mingw32-$name" >/dev/null || fail "no x86_64-w64-mingw32-$name (tools/setup.sh windows)"
            ln -sf "$(command -v "x86_64-w64-mingw32-$name")" "$home/bin/$name"
        done
        ln -sf "$(command -v x86_64-w64-mingw32-gcc)" "$home/bin/cc"
    else
        get_zig
    fi
    toolchain
}

get_zig() {
    "$shared/zig/ziglang/zig" version 2>/dev/null | grep -qx "$zig_version" || {
        echo "portable: fetching zig $zig_version (PyPI)"
        rm -rf "$shared/zig"
        quietly python3 tools/fetch-wheel.py ziglang "$(uname -m)" "$shared/zig"
    }
    tool cc cc -target "$target" -fno-sanitize=undefined
    tool ar ar
    tool ranlib ranlib
}

toolchain() {
    local cross=
    case $arch in
    windows) cross="set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR AMD64)
set(CMAKE_RC_COMPILER $home/bin/windres)" ;;
    macos) cross="set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(CMAKE_OSX_SYSROOT \"\")
set(CMAKE_OSX_DEPLOYMENT_TARGET \"\")
set(CMAKE_INSTALL_NAME_TOOL true)" ;;
    "$(uname -m)") ;;
    *) cross="set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR $arch)" ;;
    esac
    cat >"$home/toolchain.cmake.new" <<CMAKE
$cross
set(CMAKE_C_COMPILER "$home/bin/cc")
set(CMAKE_AR "$home/bin/ar")
set(CMAKE_RANLIB "$home/bin/ranlib")
set(CMAKE_FIND_ROOT_PATH "$prefix")
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
CMAKE
    cmp -s "$home/toolchain.cmake.new" "$home/toolchain.cmake" || cp "$home/toolchain.cmake.new" "$home/toolchain.cmake"
    rm "$home/toolchain.cmake.new"
}

# ---- the libraries

get_source() { # name, sum, path; its folder is $home/src/NAME
    local file=$shared/sources/${3##*/}
    mkdir -p "$shared/sources"
    [ -f "$file" ] || python3 -c 'import sys, urllib.request as u; u.urlretrieve(sys.argv[1], sys.argv[2])' \
        "$mirror/$3" "$file.part" && { [ ! -f "$file.part" ] || mv "$file.part" "$file"; }
    echo "$2  $file" | sha256sum --quiet --check - || fail "$file is not the file it should be: remove it"
    rm -rf "$home/src/$1"
    mkdir -p "$home/src/$1"
    tar -C "$home/src/$1" --strip-components=1 -xf "$file"
}

with_cmake() { # name, options...
    local source=$home/src/$1 made=$home/made/$1
    shift
    quietly cmake -S "$source" -B "$made" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$home/toolchain.cmake" \
        -DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DBUILD_SHARED_LIBS=OFF \
        -DCMAKE_INSTALL_PREFIX="$prefix" -DCMAKE_INSTALL_LIBDIR="$prefix/lib" "$@"
    quietly cmake --build "$made" --parallel "$jobs" --target install
}

# Its own build does not know other systems when they are guests, and takes a Mac for one that has no fdopen.
build_zlib() {
    if [ "$system" != Linux ]; then
        local name objects=()
        for name in adler32 compress crc32 deflate infback inffast inflate inftrees trees uncompr zutil; do
            quietly "$home/bin/cc" -O3 -fPIC -Wno-deprecated-non-prototype -Dfdopen=fdopen -c "$home/src/zlib/$name.c" \
                -o "$home/src/zlib/$name.o"
            objects+=("$home/src/zlib/$name.o")
        done
        mkdir -p "$prefix/lib/pkgconfig" "$prefix/include"
        quietly "$home/bin/ar" rcs "$prefix/lib/libz.a" "${objects[@]}"
        cp "$home/src/zlib/zlib.h" "$home/src/zlib/zconf.h" "$prefix/include/"
        printf '%s\n' "Name: zlib" "Description: deflate" "Version: $version" \
            "Libs: -L$prefix/lib -lz" "Cflags: -I$prefix/include" >"$prefix/lib/pkgconfig/zlib.pc"
        return
    fi
    (
        cd "$home/src/zlib"
        export CC=$home/bin/cc AR=$home/bin/ar RANLIB=$home/bin/ranlib CHOST=$arch-linux-gnu
        export CFLAGS="-O3 -fPIC -Wno-deprecated-non-prototype"
        quietly ./configure --static --prefix="$prefix"
        quietly make -j "$jobs" install
    )
}
build_jansson() { with_cmake jansson -DJANSSON_BUILD_DOCS=OFF -DJANSSON_WITHOUT_TESTS=ON -DJANSSON_EXAMPLES=OFF; }
# One file; its own build cannot do without the shared library.
build_libspng() {
    quietly "$home/bin/cc" -O3 -fPIC -DSPNG_STATIC -I "$prefix/include" -c "$home/src/libspng/spng/spng.c" \
        -o "$home/src/libspng/spng.o"
    quietly "$home/bin/ar" rcs "$prefix/lib/libspng.a" "$home/src/libspng/spng.o"
    cp "$home/src/libspng/spng/spng.h" "$prefix/include/"
    printf '%s\n' "Name: spng" "Description: PNG" "Version: $version" "Requires: zlib" \
        "Libs: -L$prefix/lib -lspng" "Cflags: -I$prefix/include -DSPNG_STATIC" >"$prefix/lib/pkgconfig/spng.pc"
}
# SIMD gives the same pixels, sooner: nasm for x86-64, intrinsics of C for aarch64.
build_libjpeg-turbo() { with_cmake libjpeg-turbo -DENABLE_SHARED=OFF -DWITH_TURBOJPEG=OFF -DREQUIRE_SIMD=ON; }

# One file; the tests alone are linked with it.
build_cmocka() {
    local have="-DHAVE_IO_H=1 -DHAVE_MALLOC_H=1 -DHAVE_INTTYPES_H=1 -DHAVE_SIGNAL_H=1 -DHAVE_STRINGS_H=1 -DHAVE_TIME_H=1"
    have+=" -DHAVE_STRUCT_TIMESPEC=1 -DHAVE_CLOCK_GETTIME=1 -DHAVE_CLOCK_REALTIME=1 -DHAVE_GCC_THREAD_LOCAL_STORAGE=1"
    have+=" -DHAVE_SNPRINTF=1 -DHAVE_VSNPRINTF=1 -D__USE_MINGW_ANSI_STDIO=1"
    # shellcheck disable=SC2086  # several words
    quietly "$home/bin/cc" -O2 $have -I "$home/src/cmocka/include" -c "$home/src/cmocka/src/cmocka.c" -o "$home/src/cmocka/cmocka.o"
    quietly "$home/bin/ar" rcs "$prefix/lib/libcmocka.a" "$home/src/cmocka/cmocka.o"
    cp "$home/src/cmocka/include"/cmocka*.h "$prefix/include/"
    printf '%s\n' "Name: cmocka" "Description: unit tests" "Version: $version" "Libs: -L$prefix/lib -lcmocka" \
        "Cflags: -I$prefix/include" >"$prefix/lib/pkgconfig/cmocka.pc"
}

get_libraries() {
    local name version sum path licence mark
    while read -r name version sum path licence; do
        case $name in '' | '#'*) continue ;; cmocka) [ -n "$tests" ] || continue ;; esac
        mark=$prefix/.$name-$sum
        [ ! -e "$mark" ] || continue
        echo "portable: building $name $version for $arch"
        get_source "$name" "$sum" "$path"
        "build_$name"
        mkdir -p "$prefix/licences"
        [ "$licence" = - ] || cp "$home/src/$name/$licence" "$prefix/licences/$name-$version.txt"
        touch "$mark"
    done <packaging/portable/sources.txt
}

# ---- onq

build_onq() { # folder, ON or OFF (tests), target
    export PKG_CONFIG_LIBDIR=$prefix/lib/pkgconfig PKG_CONFIG_PATH=
    quietly cmake -S . -B "$home/$1" -G Ninja -DCMAKE_TOOLCHAIN_FILE="$home/toolchain.cmake" \
        -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_C_FLAGS_RELWITHDEBINFO="-O2 -DNDEBUG" \
        -DCMAKE_EXE_LINKER_FLAGS=-s -DCMAKE_SHARED_LINKER_FLAGS=-s -DONQ_BUNDLED_DEPENDENCIES=ON -DONQ_MPI=OFF \
        "-DONQ_TESTS=$2" -DCMAKE_INSTALL_LIBDIR=lib
    quietly cmake --build "$home/$1" --parallel "$jobs" --target "$3"
}

# Renamed into place: a program that runs meanwhile keeps the file that it has.
publish() { # folder, file...
    local folder=$1 file
    shift
    mkdir -p "$folder"
    for file in "$@"; do
        cp "$file" "$folder/.new" && mv -f "$folder/.new" "$folder/${file##*/}"
    done
}

mkdir -p "$home"
get_compiler
get_libraries
[ -z "$tests" ] || { build_onq onq-tests ON unit_tests; exit 0; }
build_onq onq OFF product
case $system in
Linux) bash tools/check-glibc.sh "$glibc" "$home"/onq/onq "$home"/onq/libonq.so ;;
Windows)
    publish build/windows "$home/onq/onq.exe" "$home/onq/onq.dll"
    python3 tools/check-imports.py build/windows/onq.exe build/windows/onq.dll
    ;;
Darwin)
    publish build/macos "$home/onq/onq" "$home/onq/libonq.dylib"
    python3 tools/check-imports.py build/macos/onq build/macos/libonq.dylib
    ;;
esac
