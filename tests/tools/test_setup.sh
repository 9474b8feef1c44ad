#!/usr/bin/env bash
# test_setup.sh — looking for what a build needs installs nothing and says in one line what is missing.
set -u
root=${ONQ_ROOT:?}
bin=$PWD/bin
mkdir -p bin tree/tools
cp "$root"/tools/setup.sh "$root"/tools/packages.txt "$root"/tools/wheels.txt tree/tools/

# A machine without libraries: pkg-config finds none, dpkg knows of none, and installing leaves a mark.
printf '#!/bin/sh\nexit 1\n' >bin/pkg-config
printf '#!/bin/sh\nexit 1\n' >bin/dpkg-query
for program in apt-get sudo pip; do printf '#!/bin/sh\ntouch %s/installed\n' "$PWD" >"bin/$program"; done
chmod +x bin/*

out=$(cd tree && PATH=$bin:$PATH bash tools/setup.sh --look build runtime 2>&1) && { echo "missing packages pass"; exit 1; }
grep -q "missing: .*libjansson-dev.*make setup" <<<"$out" || { echo "does not say what installs it: $out"; exit 1; }
grep -q "ONNX Runtime is not in build/runtime" <<<"$out" || { echo "silent about the runtime: $out"; exit 1; }
[ ! -e installed ] || { echo "looking installed something"; exit 1; }
[ ! -e tree/build ] || { echo "looking made a folder"; exit 1; }
if grep -qE 'lapacke|openmpi' <<<"$out"; then echo "asks for what onq does not use: $out"; exit 1; fi

# Where everything is there it says nothing of packages and succeeds.
printf '#!/bin/sh\nexit 0\n' >bin/pkg-config
for program in cc cmake ninja python3; do [ -x "$(command -v $program)" ] || exit 77; done
out=$(cd tree && PATH=$bin:$PATH bash tools/setup.sh --look build 2>&1) || { echo "refuses a ready machine: $out"; exit 1; }
[ -z "$out" ] || { echo "speaks without need: $out"; exit 1; }
