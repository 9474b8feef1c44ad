#!/usr/bin/env bash
# test_foreign.sh — recipes of Windows lack nothing, and the reader of foreign programs sees what is wrong with one.
python3 "$ONQ_ROOT/tools/recipes.py" --lint

mkdir -p tree/tools tree/include/onq tree/packaging
cp "$ONQ_ROOT/tools/recipes.py" tree/tools/
cp "$ONQ_ROOT/include/onq/onq.h" tree/include/onq/
wrong() { # FILE, COMMAND OF SED, WHAT IT SAYS — one thing in a recipe is changed
    rm -rf tree/packaging/*
    cp -r "$ONQ_ROOT"/packaging/winget "$ONQ_ROOT"/packaging/scoop tree/packaging/
    sed -i "$2" "tree/packaging/$1"
    if python3 tree/tools/recipes.py --lint >said; then fail "recipes.py does not see: $1: $2"; fi
    says -F -- "$3" <said || { cat said; exit 1; }
}
wrong winget/onq.installer.yaml.in '/InstallerSha256/d' 'lacks InstallerSha256'
wrong winget/onq.installer.yaml.in 's/@SHA256@/0/' 'is not a sum'
wrong winget/onq.yaml.in 's/@VERSION@/@OTHER@/' 'is left over'
wrong winget/onq.locale.en-US.yaml.in 's/"//g' 'needs quotes'
wrong scoop/onq.json.in 's/"bin"/"bin" "x"/' 'delimiter'
wrong scoop/onq.json.in '/"license"/d' 'lacks license'

# A program of this system, one that is cut short, and nothing.
for file in "$ONQ" /dev/null; do
    if python3 "$ONQ_ROOT/tools/check-imports.py" "$file" >said; then fail "$file passes"; fi
done
printf 'MZ' >short
if python3 "$ONQ_ROOT/tools/check-imports.py" short >said; then fail "a cut program passes"; fi
says 'cut short' <said

# Libraries of macOS, made up: one that is good, and others with one thing wrong.
cat >macho.py <<'P'
import hashlib, struct, sys
file, needs, export, machine, signed = sys.argv[1:]
name = b"_" + export.encode() + b"\0"
trie = b"\0\1" + name + bytes([3 + len(name)]) + b"\2\0\0\0"
path = needs.encode().ljust(56, b"\0")
size = 32 + 80 + 24 + 16 + 16
commands = struct.pack("<6I", 0xC, 80, 24, 2, 0, 0) + path + struct.pack("<6I", 0x32, 24, 1, 14 << 16, 14 << 16, 0)
commands += struct.pack("<4I", 0x80000033, 16, size, len(trie))
body = struct.pack("<8I", 0xFEEDFACF, int(machine, 0), 0, 6, 4 if signed != "none" else 3, size - 32, 0, 0) + commands
place = size + len(trie)
body += struct.pack("<4I", 0x1D, 16, place, 12 + 8 + 44 + 32) + trie
sums = hashlib.sha256(body).digest()
directory = struct.pack(">9I4BI", 0xFADE0C02, 76, 0x20001, 2, 44, 0, 0, 1, len(body), 32, 2, 0, 12, 0) + sums
blob = struct.pack(">5I", 0xFADE0CC0, 20 + len(directory), 1, 0, 20) + directory
open(file, "wb").write(body.replace(b"onq_", b"onq-") + blob if signed == "changed" else body + blob)
P
system=/usr/lib/libSystem.B.dylib arm=0x0100000C
macho() { python3 macho.py made "$@" && python3 "$ONQ_ROOT/tools/check-imports.py" made >said; }
macho $system onq_version $arm yes || { cat said; fail "a good library does not pass"; }
says -xF "check-imports: made: needs $system; exports 1 names of onq" <said
unlike() { # WHAT IT SAYS, ARGUMENTS OF macho
    local text=$1
    shift
    if macho "$@"; then fail "passes: $*"; fi
    says -F -- "$text" <said || { cat said; fail "does not say '$text'"; }
}
unlike 'needs /opt/homebrew/lib/libjpeg.8.dylib' /opt/homebrew/lib/libjpeg.8.dylib onq_version $arm yes
unlike 'exports json_loads' $system json_loads $arm yes
unlike 'is not for Apple silicon' $system onq_version 0x01000007 yes
unlike 'is not signed' $system onq_version $arm none
unlike 'its signature does not fit' $system onq_version $arm changed
