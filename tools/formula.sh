#!/usr/bin/env bash
# formula.sh [URL [HOMEPAGE]] — build/dist/onq.rb, the formula for Homebrew, from packaging/homebrew/onq.rb.in and the
# source archive. URL is where that is published; without one, the file itself.
set -eu
cd -- "$(dirname -- "$0")/.."
archive=$(bash tools/dist.sh)
url=${1:-file://$PWD/$archive}
sum=$(sha256sum "$archive" | cut -d ' ' -f 1)
sed "s|@URL@|$url|; s|@SHA256@|$sum|; s|@HOMEPAGE@|${2:-${url%/*}}|" packaging/homebrew/onq.rb.in >build/dist/onq.rb
echo build/dist/onq.rb
