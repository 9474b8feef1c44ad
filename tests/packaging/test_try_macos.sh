#!/usr/bin/env bash
# test_try_macos.sh — packaging/macos/try.sh, which a person runs on a Mac, asks for what onq really does: run here, it says
# "pass" where onq behaves as on a Mac, and "fail" with the reason where one answer is another.
[ -d "$ONQ_ROOT/build/runtime" ] || { echo "no build/runtime (make setup)"; exit 77; }
mkdir fake
cp "$ONQ_ROOT/packaging/macos/try.sh" .
printf '#!/bin/sh\necho Darwin arm64\n' >fake/uname
printf '#!/bin/sh\n[ -e "$2" ]\n' >fake/codesign
cat >onq <<'S'
#!/bin/sh
case "$* " in *'--isolate '*) echo "onq: error: --isolate: this system cannot limit a process" >&2; exit 1 ;; esac
exec "$ONQ" "$@"
S
chmod +x onq fake/*
touch libonq.dylib
export ONQ

# STATUS, LAST LINE, LINES THAT SAY FAIL
ends() {
    local status=0
    PATH=$PWD/fake:$PATH sh ./try.sh >said 2>&1 || status=$?
    [ "$status" = "$1" ] && [ "$(tail -n 1 said)" = "$2" ] && [ "$(grep '^FAIL' said)" = "$3" ] || { cat said; fail "status $status"; }
}
ends 0 pass ''
cp onq whole
sed 's/cannot limit/can limit/' whole >onq
ends 1 fail "FAIL  --isolate: it does not say 'cannot limit a process'"
sed 's/^exec.*/"$ONQ" "$@" || exit; case "$1" in nbits) printf x >>"$5" ;; esac/' whole >onq
ends 1 fail 'FAIL  nbits: other bytes than on Linux'
cp whole onq
rm libonq.dylib
ends 1 fail 'FAIL  the signature of the library'
touch libonq.dylib
printf '#!/bin/sh\necho Linux x86_64\n' >fake/uname
ends 1 fail ''
