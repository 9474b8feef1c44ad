#!/usr/bin/env bash
# test_facts.sh — what the packages say of names and versions is what its one home says, and symbols newer than a limit are
# found.
set -eu
cd "${ONQ_ROOT:?}"
scratch=$OLDPWD

# ONNX Runtime's version: the engine's header has it.
runtime=$(sed -n 's/^#define OQ_ORT_RELEASE_TEXT *"\(.*\)".*/\1/p' src/engine/*.h)
[ -n "$runtime" ]
for arch in x86_64 aarch64; do
    grep -Eqx "onnxruntime +$runtime +$arch +[0-9a-f]{64}" tools/wheels.txt || { echo "tools/wheels.txt: no runtime $runtime for $arch"; exit 1; }
done
grep -q "libonnxruntime.so.$runtime)" cmake/install.cmake || { echo "cmake/install.cmake: another runtime"; exit 1; }
grep -q "onnxruntime==$runtime" tests/requirements.txt || { echo "tests/requirements.txt: another runtime"; exit 1; }
oldest=$(sed -n 's/^#define OQ_ORT_API_TEXT *"\(.*\)".*/\1/p' src/engine/*.h)
grep -qF "\"onnxruntime>=$oldest\"" python/pyproject.toml || { echo "pyproject.toml: not from runtime $oldest on"; exit 1; }
tr "\n" " " <README.md | grep -F "need ONNX Runtime $oldest or later" >/dev/null || { echo "README.md: not from runtime $oldest on"; exit 1; }
grep -qF -- "- onnxruntime-cpp >=$oldest" packaging/conda/recipe.yaml || { echo "recipe.yaml: not from runtime $oldest on"; exit 1; }
grep -q "default=\"$(bash tools/version.sh)\"" packaging/conda/recipe.yaml || { echo "recipe.yaml: another version"; exit 1; }

# The table of packages: as many columns as its heading has names, and Debian's build needs nothing that it lacks.
awk '/^# debian / { want = NF - 1 } !/^[#[]/ && NF && NF != want { print "packages.txt: " $0; bad = 1 } END { exit bad }' \
    tools/packages.txt
known=" $(awk '!/^[#[]/ && NF { print $1 }' tools/packages.txt | tr '\n' ' ') debhelper-compat "
for name in $(sed -n '/^Build-Depends:/,/^Standards/p' packaging/debian/control |
    grep -v '^Standards' | sed 's/^Build-Depends://; s/([^)]*)//g; s/,/ /g'); do
    case $known in *" $name "*) ;; *) echo "control: $name is not in tools/packages.txt"; exit 1 ;; esac
done

# Other systems are told their own names.
for row in 'fedora|dnf install .*jansson-devel' 'arch|pacman -S .*jansson' 'alpine|apk add .*jansson-dev' \
    'opensuse-leap|zypper install .*libjansson-devel' 'rocky|dnf install' 'debian|make setup'; do
    id=${row%%|*}
    like=
    [ "$id" != rocky ] || like='ID_LIKE="rhel centos fedora"'
    mkdir -p "$scratch/bin" "$scratch/tree/tools"
    cp tools/setup.sh tools/packages.txt tools/wheels.txt "$scratch/tree/tools/"
    for program in pkg-config dpkg-query; do
        printf '#!/bin/sh\nexit 1\n' >"$scratch/bin/$program"
        chmod +x "$scratch/bin/$program"
    done
    printf 'ID="%s"\n%s\n' "$id" "$like" >"$scratch/os-release"
    out=$(cd "$scratch/tree" && ONQ_OS_RELEASE=$scratch/os-release PATH=$scratch/bin:$PATH bash tools/setup.sh --look build 2>&1) &&
        { echo "$id: missing packages pass"; exit 1; }
    grep -q "${row#*|}" <<<"$out" || { echo "$id: $out"; exit 1; }
done

# Symbols.
library=$ONQ_BUILD/libonq.so
bash tools/check-glibc.sh 2.99 "$library" "$ONQ" || { echo "glibc 2.99 is not enough"; exit 1; }
out=$(bash tools/check-glibc.sh 2.16 "$library" 2>&1) && { echo "newer symbols are not found"; exit 1; }
grep -q 'needs more than glibc 2.16: .*getrandom@GLIBC_2.25' <<<"$out" || { echo "$out"; exit 1; }
bash tools/check-glibc.sh 2.28 "$scratch/none" 2>/dev/null && { echo "a missing file passes"; exit 1; }
portable=build/portable/$(uname -m)/onq
[ ! -f "$portable/libonq.so" ] || bash tools/check-glibc.sh 2.28 "$portable/libonq.so" "$portable/onq"
echo "facts: one home each"
