#!/usr/bin/env bash
# wine-onq.sh ARGUMENT... — the program of build/windows, or $PROGRAM, under wine, as if it were one of this system: the
# tests of tools/check-windows.sh run it. Lines of wine itself, and one that ONNX Runtime prints where there is no
# display, are left out.
set -u
root=$(cd -- "$(dirname -- "$(readlink -f -- "$0")")/.." && pwd)
export WINEDEBUG=-all WINEDLLOVERRIDES=${WINEDLLOVERRIDES:-"mscoree,mshtml="} WINEPREFIX=${WINEPREFIX:-$root/build/windows/wine}
exec 3>&2
{ "${WINE:-/usr/lib/wine/wine64}" "${PROGRAM:-$root/build/windows/onq.exe}" "$@" 2>&1 >&4 | grep -avE '^(wine: |Failed to create DXGI factory)' >&3; } 4>&1
exit "${PIPESTATUS[0]}"
