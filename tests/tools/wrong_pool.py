#!/usr/bin/env python3
"""wrong_pool.py FLOAT QUANTIZED — writes a model of a MaxPool and an AveragePool, and the same with pairs of
QuantizeLinear and DequantizeLinear in between: ONNX Runtime computes such an AveragePool wrongly when it optimises the
second (docs/RUNTIMES.md)."""
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "hostile"))
from wire import attribute, block, model, node, num, opset, tensor, text, value  # noqa: E402


def ints(name, *values):
    return attribute(name, 7, b"".join(num(8, v) for v in values))


def flag(name):
    return attribute(name, 2, num(3, 1))


def write(path, pairs):
    names, made, nodes = iter("abcdefgh"), "x", b""

    def pair(x):
        q, d = next(names), next(names)
        return block(1, node("QuantizeLinear", [x, "s", "z"], [q], q)) + block(1, node("DequantizeLinear", [q, "s", "z"], [d], d)), d

    for i, (op, extra) in enumerate([("MaxPool", ints("kernel_shape", 1, 1)),
                                     ("AveragePool", ints("kernel_shape", 2, 2) + ints("strides", 2, 2) +
                                      flag("ceil_mode") + flag("count_include_pad"))]):
        if pairs:
            more, made = pair(made)
            nodes += more
        out = f"pooled{i}"
        nodes += block(1, node(op, [made], [out], op.lower(), extra))
        made = out
    if pairs:
        more, made = pair(made)
        nodes += more
    graph = nodes + block(1, node("Identity", [made], ["y"], "last")) + text(2, "g")
    if pairs:
        graph += block(5, tensor("s", (), data=text(9, struct.pack("<f", 0.04)))) + block(5, tensor("z", (), 3, text(9, b"\0")))
    graph += block(11, value("x", dims=(1, 1, 5, 5))) + block(12, value("y", dims=(1, 1, 3, 3)))
    Path(path).write_bytes(model(graph, opsets=opset(19), ir=9))


write(sys.argv[1], False)
write(sys.argv[2], True)
