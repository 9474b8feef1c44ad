#!/usr/bin/env python3
"""check-imports.py FILE... — what programs and libraries of Windows and macOS ask for when they are loaded.

They are PE32+ of x86-64 and Mach-O of 64-bit Arm. A file may need what comes with that system and onq's own library, and
nothing else; a library may export onq_ names only. macOS runs only what is signed: the signature has to be there and to fit.
Prints a line for each file; exits 1 if anything is wrong.
"""
import hashlib
import struct
import sys
from pathlib import Path

WINDOWS = {"kernel32.dll", "msvcrt.dll", "ucrtbase.dll", "bcrypt.dll", "psapi.dll", "shell32.dll", "advapi32.dll", "user32.dll",
           "ntdll.dll", "onq.dll"}
MACOS = {"/usr/lib/libSystem.B.dylib", "@rpath/libonq.dylib"}
MACOS_VERSION = 14
MACOS_LINKER = {"__dso_handle", "_mh_dylib_header"}  # marks of the library itself, which zig's linker exports
# Load commands of Mach-O.
NEEDED = {0xC, 0x80000018, 0x8000001F, 0x20, 0x80000023}
RPATH, SIGNATURE, BUILD_VERSION, DYLD_INFO, EXPORTS_TRIE = 0x8000001C, 0x1D, 0x32, 0x80000022, 0x80000033
LIBRARY = 6


class Wrong(Exception):
    pass


def text_at(data, at):
    return data[at:data.index(b"\0", at)].decode("utf-8", "replace")


def read_pe(data):
    """Names that a PE file imports from, and what it exports."""
    at = struct.unpack_from("<I", data, 0x3C)[0]
    if data[at:at + 4] != b"PE\0\0":
        raise Wrong("is not a program of Windows")
    machine, n_sections, size = struct.unpack_from("<HH12xH", data, at + 4)
    if machine != 0x8664 or struct.unpack_from("<H", data, at + 24)[0] != 0x20B:
        raise Wrong("is not for x86-64")
    sections = [struct.unpack_from("<8x4I", data, at + 24 + size + 40 * i) for i in range(n_sections)]

    def place(address):
        for length, start, raw, offset in sections:
            if start <= address < start + max(length, raw):
                return address - start + offset
        raise Wrong("an address is in no section")

    exports, imports = (struct.unpack_from("<I", data, at + 24 + 112 + 8 * i)[0] for i in range(2))
    needed, given = [], []
    if imports:
        row = place(imports)
        while name := struct.unpack_from("<I", data, row + 12)[0]:
            needed.append(text_at(data, place(name)))
            row += 20
    if exports:
        row = place(exports)
        n, names = struct.unpack_from("<I", data, row + 24)[0], struct.unpack_from("<I", data, row + 32)[0]
        given = [text_at(data, place(struct.unpack_from("<I", data, place(names) + 4 * i)[0])) for i in range(n)]
    return needed, given


def check_pe(data):
    needed, given = read_pe(data)
    for name in needed:
        if name.lower() not in WINDOWS and not name.lower().startswith("api-ms-win-"):
            raise Wrong(f"needs {name}, which Windows does not have")
    return needed, given


def number(data, at):
    """An unsigned number of 7 bits a byte, and where it ends."""
    value = shift = 0
    while data[at] & 0x80:
        value, shift, at = value | (data[at] & 0x7F) << shift, shift + 7, at + 1
    return value | data[at] << shift, at + 1


def names_in_trie(trie):
    """The exported names, which are kept letter by letter in a tree."""
    found, rest, seen = [], [(0, b"")] if trie else [], set()
    while rest:
        at, name = rest.pop()
        if at in seen:
            raise Wrong("its exports go in circles")
        seen.add(at)
        size, at = number(trie, at)
        if size:
            found.append(name.decode().removeprefix("_"))
        at += size
        for _ in range(trie[at]):
            end = trie.index(b"\0", at + 1)
            child, after = number(trie, end + 1)
            rest.append((child, name + trie[at + 1:end]))
            at = after - 1
    return found


def check_signature(data, place, size):
    """Signed ad hoc: a list of sums of the pages before it, all of which have to fit."""
    blob = data[place:place + size]
    magic, _, n = struct.unpack_from(">3I", blob)
    rows = [struct.unpack_from(">2I", blob, 12 + 8 * i) for i in range(n)]
    directory = next((blob[at:] for kind, at in rows if kind == 0), None)
    if magic != 0xFADE0CC0 or directory is None:
        raise Wrong("its signature cannot be read")
    flags, sums, _, _, n_pages, limit, width, kind, _, shift = struct.unpack_from(">6I4B", directory, 12)
    if not flags & 2:
        raise Wrong("is not signed ad hoc")
    if limit != place or kind != 2 or width != 32 or n_pages != -(-limit >> shift):
        raise Wrong("its signature does not cover it")
    for i in range(n_pages):
        page = data[i << shift:min(i + 1 << shift, limit)]
        if hashlib.sha256(page).digest() != directory[sums + width * i:sums + width * (i + 1)]:
            raise Wrong("its signature does not fit")


def check_macho(data):
    machine, _, kind, n_commands = struct.unpack_from("<4I", data, 4)
    if machine != 0x0100000C:
        raise Wrong("is not for Apple silicon")
    needed, trie, signed, system, at = [], b"", False, None, 32
    for _ in range(n_commands):
        command, size, first, second = struct.unpack_from("<4I", data, at)
        if command in NEEDED:
            needed.append(text_at(data, at + first))
        elif command == RPATH and not text_at(data, at + first).startswith("@loader_path"):
            raise Wrong(f"looks for libraries in {text_at(data, at + first)}")
        elif command == BUILD_VERSION:
            system = first, second >> 16
        elif command == EXPORTS_TRIE:
            trie = data[first:first + second]
        elif command == DYLD_INFO:
            place, length = struct.unpack_from("<2I", data, at + 40)
            trie = data[place:place + length]
        elif command == SIGNATURE:
            check_signature(data, first, second)
            signed = True
        at += max(size, 8)
    if not signed:
        raise Wrong("is not signed")
    if system is None or system[0] != 1 or system[1] > MACOS_VERSION:
        raise Wrong(f"is not for macOS {MACOS_VERSION}")
    for name in needed:
        if name not in MACOS:
            raise Wrong(f"needs {name}, which macOS does not have")
    return needed, names_in_trie(trie) if kind == LIBRARY else []


def check(data):
    if data[:2] == b"MZ":
        needed, given = check_pe(data)
    elif data[:4] == b"\xcf\xfa\xed\xfe":
        needed, given = check_macho(data)
    else:
        raise Wrong("is a program of neither Windows nor macOS")
    for name in given:
        if not name.startswith("onq_") and name not in MACOS_LINKER:
            raise Wrong(f"exports {name}")
    return needed, sum(name.startswith("onq_") for name in given)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__.splitlines()[0])
    bad = False
    for path in map(Path, sys.argv[1:]):
        try:
            needed, given = check(path.read_bytes())
            print(f"check-imports: {path.name}: needs {', '.join(needed)}; exports {given} names of onq")
        except (Wrong, struct.error, ValueError, IndexError) as error:
            print(f"check-imports: {path}: {error if isinstance(error, Wrong) else 'is cut short'}")
            bad = True
    sys.exit(bad)


main()
