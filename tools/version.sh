#!/usr/bin/env bash
# version.sh — the version of onq, as the public header has it.
set -eu
cd -- "$(dirname -- "$0")/.."
sed -n 's/^#define ONQ_VERSION_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\)$/\2/p' include/onq/onq.h | paste -sd .
