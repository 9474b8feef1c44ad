#!/usr/bin/env python3
"""external.py FILE LOCATION — writes a model of one MatMul whose weight lies in the file LOCATION: 64 bytes."""
import sys


def field(number, data):
    """A field of protobuf: a whole number, or bytes."""
    if isinstance(data, int):
        return varint(number << 3) + varint(data)
    data = data.encode() if isinstance(data, str) else data
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def value(name, *dims):
    shape = b"".join(field(1, field(1, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))


def main(path, location):
    data = [("location", location), ("offset", "0"), ("length", "64")]
    weight = field(1, 4) + field(1, 4) + field(2, 1) + field(8, "w")
    weight += b"".join(field(13, field(1, k) + field(2, v)) for k, v in data) + field(14, 1)
    node = field(1, "x") + field(1, "w") + field(2, "y") + field(3, "n") + field(4, "MatMul")
    graph = field(1, node) + field(2, "g") + field(5, weight) + field(11, value("x", 1, 4)) + field(12, value("y", 1, 4))
    with open(path, "wb") as f:
        f.write(field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 13)))


main(*sys.argv[1:])
