#!/usr/bin/env bash
# test_dist.sh — the source archive has every file of the tree and nothing else, is the same each time, and configures and
# checks itself without git.
set -eu
root=${ONQ_ROOT:?}
version=$(bash "$root/tools/version.sh")
export SOURCE_DATE_EPOCH=1700000000
archive=$root/$(bash "$root/tools/dist.sh")
first=$(sha256sum <"$archive")
bash "$root/tools/dist.sh" >/dev/null
[ "$first" = "$(sha256sum <"$archive")" ] || { echo "two archives of one tree differ"; exit 1; }

tar -xzf "$archive"
cd "onq-$version"
diff <(bash "$root/tools/list-files.sh" | LC_ALL=C sort) <(bash tools/list-files.sh) || { echo "files are missing or too many"; exit 1; }

# A git that fails, and that says so, stands for a machine without one.
mkdir ../bin
printf '#!/bin/sh\necho "git was called" >&2\nexit 1\n' >../bin/git
chmod +x ../bin/git
PATH=$PWD/../bin:$PATH
for check in layers unused options comments words; do
    bash "tools/check-$check.sh" >../log 2>&1 || { cat ../log; echo "check-$check.sh fails in the archive"; exit 1; }
    ! grep -q "git was called" ../log || { echo "check-$check.sh needs git"; exit 1; }
done

# What would be compiled is what is compiled in the tree.
cmake -S . -B ../out -G Ninja -DONQ_TESTS=ON >../log 2>&1 || { cat ../log; exit 1; }
! grep -q "git was called" ../log || { echo "configuring needs git"; exit 1; }
sources() { # folder, tree
    sed -n 's/^ *"file": "\(.*\)",*$/\1/p' "$1/compile_commands.json" | sed "s|^$1/||; s|^$2/||" | LC_ALL=C sort -u
}
diff <(sources "$(realpath "$ONQ_BUILD")" "$(realpath "$root")") <(sources "$(realpath ../out)" "$PWD") || { echo "sources differ"; exit 1; }
bash tools/dist.sh >/dev/null # an archive makes archives
cmp "$archive" "build/dist/onq-$version.tar.gz"
echo "archive: $(bash tools/list-files.sh | wc -l) files"
