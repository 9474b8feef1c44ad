#!/usr/bin/env python3
"""external.py FILE LOCATION — writes a model of one MatMul whose weight lies in the file LOCATION: 64 bytes."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "hostile"))
from wire import block, external, model, node, text, value  # noqa: E402


def main(path, location):
    weight = external("w", (4, 4), location=location, offset="0", length="64")
    graph = block(1, node("MatMul", ["x", "w"], ["y"])) + text(2, "g") + block(5, weight)
    Path(path).write_bytes(model(graph + block(11, value("x", dims=(1, 4))) + block(12, value("y", dims=(1, 4)))))


main(*sys.argv[1:])
