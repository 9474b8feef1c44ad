#!/usr/bin/env bash
# build.sh PRESET [-DOPTION=VALUE...] [TARGET...] — configures when it must, then builds.
#
# Configuring again is ninja's own work when a CMake file changed. It is needed here for a new folder, one that was
# left half-configured, one of another checkout or generator, one older than the presets, and for options that differ.
set -u
cd -- "$(dirname -- "$0")/.." || exit 1
preset=$1
shift
folder=build/$preset
[ "$preset" = release ] && folder=build

options=() targets=()
for word in "$@"; do
    case $word in
    -D*) options+=("$word") ;;
    *) targets+=("$word") ;;
    esac
done

cached() { sed -n "s/^$1:[A-Z]*=//p" "$folder/CMakeCache.txt" 2>/dev/null; }

configure=0
[ -f "$folder/build.ninja" ] && [ -f "$folder/CMakeCache.txt" ] || configure=1
[ CMakePresets.json -nt "$folder/build.ninja" ] && configure=1
if [ -f "$folder/CMakeCache.txt" ]; then
    if [ "$(cached CMAKE_HOME_DIRECTORY)" != "$PWD" ] || [ "$(cached CMAKE_GENERATOR)" != Ninja ]; then
        rm -rf "$folder/CMakeCache.txt" "$folder/CMakeFiles"
        configure=1
    fi
fi
for option in "${options[@]}"; do
    pair=${option#-D}
    [ "$(cached "${pair%%=*}")" = "${pair#*=}" ] || configure=1
done

if [ "$configure" = 1 ]; then
    echo "build: configuring $folder ($preset)"
    mkdir -p "$folder"
    if ! cmake --preset "$preset" "${options[@]}" >"$folder/configure.log" 2>&1; then
        cat "$folder/configure.log" >&2
        exit 1
    fi
    grep -E ' (is|are) skipped' "$folder/configure.log"
fi
jobs=${JOBS:-$(nproc)}
if [ "${#targets[@]}" -gt 0 ]; then
    exec cmake --build "$folder" --parallel "$jobs" --target "${targets[@]}"
fi
exec cmake --build "$folder" --parallel "$jobs"
