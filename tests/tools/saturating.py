#!/usr/bin/env python3
"""saturating.py MODEL FOLDER — writes a model whose 8-bit sums saturate where a CPU adds two products in 16 bits, and
samples for it: a MatMul of [4,64] and [64,16] with all values near their largest. Python's own library is enough."""
import random
import struct
import sys
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "hostile"))
from wire import block, model, node, tensor, text, value  # noqa: E402


def floats(n, low, signs=(1,)):
    return struct.pack(f"<{n}f", *(random.uniform(low, 1) * signs[i % len(signs)] for i in range(n)))


def main(path, folder):
    random.seed(5)
    weight = tensor("w", (64, 16), data=text(9, floats(64 * 16, 0.8, (1, -1))))
    body = block(1, node("MatMul", ["x", "w"], ["y"])) + text(2, "g") + block(5, weight)
    body += block(11, value("x", dims=(4, 64))) + block(12, value("y", dims=(4, 16)))
    Path(path).write_bytes(model(body))
    Path(folder).mkdir(exist_ok=True)
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4, 64), }".ljust(117) + b"\n"
    for i in range(4):
        with zipfile.ZipFile(Path(folder, f"{i}.npz"), "w") as f:
            f.writestr("x.npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + floats(256, 0.7))


main(*sys.argv[1:])
