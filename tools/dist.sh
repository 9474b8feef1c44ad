#!/usr/bin/env bash
# dist.sh — the source archive build/dist/onq-VERSION.tar.gz: every file of the tree, nothing that was built. It builds and
# passes its tests without git. The same files give the same archive.
set -eu
cd -- "$(dirname -- "$0")/.."
name=onq-$(bash tools/version.sh)
date=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
mkdir -p build/dist
list=$(mktemp)
trap 'rm -f -- "$list"' EXIT
bash tools/list-files.sh >"$list"
tar --create --format=ustar --sort=name --mtime="@$date" --owner=0 --group=0 --numeric-owner --mode=u+rwX,go=rX \
    --transform="s|^|$name/|" --files-from="$list" | gzip -9n >"build/dist/$name.tar.gz.new"
mv -- "build/dist/$name.tar.gz.new" "build/dist/$name.tar.gz"
echo "build/dist/$name.tar.gz"
