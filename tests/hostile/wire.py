"""wire.py - the wire format of protobuf and the messages of ONNX, byte by byte."""


def varint(v):
    v &= 2**64 - 1
    out = bytearray()
    while v > 127:
        out.append(v & 127 | 128)
        v >>= 7
    return bytes(out + bytes([v]))


def tag(number, wire):
    return varint(number << 3 | wire)


def num(number, v):
    return tag(number, 0) + varint(v)


def block(number, data):
    return tag(number, 2) + varint(len(data)) + data


def text(number, s):
    return block(number, s.encode() if isinstance(s, str) else s)


# ---- messages
def opset(version=13, domain=""):
    return block(8, (text(1, domain) if domain else b"") + num(2, version))


def model(graph, ir=8, opsets=None, extra=b""):
    return (num(1, ir) if ir is not None else b"") + block(7, graph) + (opset() if opsets is None else opsets) + extra


def value(name, elem=1, dims=(2,)):
    shape = b"".join(block(1, num(1, d)) for d in dims)
    return text(1, name) + block(2, block(1, num(1, elem) + block(2, shape)))


def node(op, ins, outs, name="n", extra=b""):
    return b"".join(text(1, i) for i in ins) + b"".join(text(2, o) for o in outs) + text(3, name) + text(4, op) + extra


def attribute(name, kind, data):
    return block(5, text(1, name) + data + num(20, kind))


def tensor(name="w", dims=(2,), dtype=1, data=None):
    raw = text(9, b"\0" * 8) if data is None else data
    return b"".join(num(1, d) for d in dims) + num(2, dtype) + text(8, name) + raw


def external(name="w", dims=(2,), dtype=1, **entries):
    """A tensor whose bytes lie elsewhere."""
    e = b"".join(block(13, text(1, k) + text(2, v)) for k, v in entries.items())
    return tensor(name, dims, dtype, e + num(14, 1))


def graph(nodes=(), inits=(), inputs=("x",), outputs=("y",), extra=b""):
    out = b"".join(block(1, n) for n in nodes) + text(2, "g") + b"".join(block(5, t) for t in inits)
    out += b"".join(block(11, value(i)) for i in inputs) + b"".join(block(12, value(o)) for o in outputs)
    return out + extra
