#!/usr/bin/env bash
# deb.sh — Debian packages in build/dist: onq (program, library, ONNX Runtime), libonq-dev, onq-mpi. Made by Debian's own
# tools from the source archive and packaging/debian, in build/deb.
set -eu
cd -- "$(dirname -- "$0")/.."
version=$(bash tools/version.sh)
home=$PWD/build/deb
tree=$home/onq-$version
command -v dpkg-buildpackage dh >/dev/null || { echo "deb: debhelper is missing (apt-get install debhelper)" >&2; exit 1; }

archive=$(bash tools/dist.sh)
rm -rf "$home"
mkdir -p "$home"
tar -C "$home" -xzf "$archive"
cp -r packaging/debian "$tree/debian"
cp -rL build/runtime "$tree/debian/runtime"
date=$(date -R -d "@$(stat -c %Y "$tree/CHANGELOG.md")")
cat >"$tree/debian/changelog" <<CHANGELOG
onq ($version-1) unstable; urgency=medium

  * See CHANGELOG.md.

 -- the onq authors <onq@packages.debian.org>  $date
CHANGELOG
bash packaging/debian/copyright.sh "$tree/debian/runtime" >"$tree/debian/copyright"

cd "$tree"
export DEB_BUILD_OPTIONS="parallel=${JOBS:-$(nproc)} ${DEB_BUILD_OPTIONS-}"
dpkg-buildpackage --build=binary --unsigned-changes --unsigned-source >"$home/log" 2>&1 ||
    { tail -n 30 "$home/log" >&2; echo "deb: dpkg-buildpackage failed" >&2; exit 1; }
cd - >/dev/null
rm -f build/dist/*.deb
mv "$home"/*.deb build/dist/
ls build/dist/*_"$version"-1_*.deb
