#!/usr/bin/env python3
"""near.py A B DB — whether the outputs that `onq run --format npz` wrote to two folders are that near: the square of A's float32
values over that of the differences. Python's own library is enough."""
import math
import struct
import sys
import zipfile
from pathlib import Path


def values(folder):
    """All of them, in the order of samples and names."""
    found = []
    for path in sorted(Path(folder).glob("test_data_set_*/outputs.npz")):
        with zipfile.ZipFile(path) as f:
            for name in sorted(f.namelist()):
                data = f.read(name)
                start = 10 + struct.unpack("<H", data[8:10])[0]
                assert b"'<f4'" in data[:start], f"{path}: {name} is not float32"
                found += struct.unpack(f"<{(len(data) - start) // 4}f", data[start:])
    return found


def main(a, b, least):
    one, other = values(a), values(b)
    if not one or len(one) != len(other) or not all(map(math.isfinite, one + other)):
        sys.exit(f"{a} and {b} do not have the same outputs, or they are no numbers")
    noise = sum((x - y) ** 2 for x, y in zip(one, other))
    near = math.inf if noise == 0 else 10 * math.log10(max(sum(x * x for x in one), 1e-300) / noise)
    print(f"{a} and {b}: {near:.1f} dB")
    sys.exit(near < least)


main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
