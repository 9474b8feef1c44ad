#!/usr/bin/env bash
# copyright.sh RUNTIME — debian/copyright: onq's licence from LICENSE, ONNX Runtime's from the folder it was unpacked to.
set -eu
cd -- "$(dirname -- "$0")/../.."
field() { sed 's/^$/./; s/^/ /'; } # text as a field's continuation
licence() { sed '1,/^Copyright/d' "$1" | sed '/./,$!d' | field; }
cat <<TEXT
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: onq

Files: *
Copyright: $(sed -n 's/^Copyright (c) //p' LICENSE)
License: Expat

Files: debian/runtime/*
Copyright: $(sed -n 's/^Copyright (c) //p' "$1/LICENSE" | tr -d '\r')
License: Expat
Comment: ONNX Runtime as its makers publish it on PyPI, for use by onq. The licences of what is part of it are in
 /usr/share/doc/onq/onnxruntime/ThirdPartyNotices.txt.

License: Expat
$(licence LICENSE)
TEXT
