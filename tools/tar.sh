#!/usr/bin/env bash
# tar.sh FOLDER NAME — build/dist/NAME.tar.gz of FOLDER/NAME: the same files give the same bytes.
set -eu
cd -- "$(dirname -- "$0")/.."
date=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || stat -c %Y CHANGELOG.md)}
mkdir -p build/dist
tar --create --sort=name --mtime="@$date" --owner=0 --group=0 --numeric-owner -C "$1" "$2" | gzip -9n >"build/dist/$2.tar.gz.new"
mv -- "build/dist/$2.tar.gz.new" "build/dist/$2.tar.gz"
echo "build/dist/$2.tar.gz"
