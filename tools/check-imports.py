#!/usr/bin/env python3
"""check-imports.py FILE... — what programs and libraries of Windows (PE32+ of x86-64) ask for when they are loaded.

A file may need what comes with that system and onq's own library, and nothing else; a library may export onq_ names only.
Prints a line for each file; exits 1 if anything is wrong.
"""
import struct
import sys
from pathlib import Path

WINDOWS = {"kernel32.dll", "msvcrt.dll", "ucrtbase.dll", "bcrypt.dll", "psapi.dll", "shell32.dll", "advapi32.dll", "user32.dll",
           "ntdll.dll", "onq.dll"}


class Wrong(Exception):
    pass


def text_at(data, at):
    return data[at:data.index(b"\0", at)].decode("utf-8", "replace")


def read_pe(data):
    """Names that a PE file imports from, and what it exports."""
    at = struct.unpack_from("<I", data, 0x3C)[0]
    if data[:2] != b"MZ" or data[at:at + 4] != b"PE\0\0":
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


def check(data):
    needed, given = read_pe(data)
    for name in needed:
        if name.lower() not in WINDOWS and not name.lower().startswith("api-ms-win-"):
            raise Wrong(f"needs {name}, which Windows does not have")
    for name in given:
        if not name.startswith("onq_"):
            raise Wrong(f"exports {name}")
    return needed, len(given)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__.splitlines()[0])
    bad = False
    for path in map(Path, sys.argv[1:]):
        try:
            needed, given = check(path.read_bytes())
            print(f"check-imports: {path.name}: needs {', '.join(needed)}; exports {given} names of onq")
        except (Wrong, struct.error, ValueError) as error:
            print(f"check-imports: {path}: {error if isinstance(error, Wrong) else 'is cut short'}")
            bad = True
    sys.exit(bad)


main()
