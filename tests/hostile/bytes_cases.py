"""bytes_cases.py - files whose bytes are wrong: cut, flipped, of impossible lengths, too deep, or no model at all."""
import functools
import os
import pathlib

import wire
from cases import BASES, base, damaged, family, fifo, language, network, put
from onnx import TensorProto, helper

MALFORMED = pathlib.Path(__file__).parent / "malformed"


@family("sound", wants="done", right=True)
def sound_models(r):
    for name, make in BASES.items():
        yield name, make()


@family("cut")
def cuts(r):
    for i in range(16):
        name, model = base(r)
        data = model.SerializeToString()
        yield f"{i}-{name}", data[:r.randrange(len(data))]


@family("flips")
def flips(r):
    for i in range(60):
        name, model = base(r)
        data = bytearray(model.SerializeToString())
        # Weights are most of the bytes, and the least of the structure, which lies at both ends.
        where = r.choice([lambda: r.randrange(len(data)), lambda: r.randrange(400), lambda: len(data) - 1 - r.randrange(400)])
        for _ in range(r.choice([1, 1, 2, 5])):
            at = where() % len(data)
            if r.random() < 0.6:
                data[at] ^= 1 << r.randrange(8)
            else:
                data[at] = r.choice([0, 1, 127, 128, 255, r.randrange(256)])
        yield f"{i}-{name}", bytes(data)


@family("flips")
def splices(r):
    for i in range(20):
        name, model = base(r)
        data = model.SerializeToString()
        a, b = sorted(r.randrange(len(data)) for _ in range(2))
        b = min(b, a + 60)
        other = base(r)[1].SerializeToString()
        at = r.randrange(len(other))
        made = {"drop": data[:a] + data[b:], "twice": data[:b] + data[a:], "other": data[:a] + other[at:at + 50] + data[b:],
                "zeros": data[:a] + bytes(b - a) + data[b:]}
        how = r.choice(list(made))
        yield f"splice-{i}-{name}-{how}", made[how]


@family("lengths")
def lengths(r):
    whole = network().SerializeToString()
    for path in sorted(MALFORMED.glob("*.onnx")):
        if not path.name.startswith("external"):
            yield path.stem, path.read_bytes()
    for number, what in [(1, "nodes"), (5, "initializers"), (8, "sparse"), (11, "inputs"), (12, "outputs"), (13, "values"),
                         (14, "annotations"), (16, "metadata"), (99, "unknown")]:
        yield f"empty-{what}", wire.model(wire.tag(number, 2) + b"\0" + b"".join([wire.tag(number, 2) + b"\0"] * 300000)), {
            "heavy": True}
    for number, what in [(8, "opsets"), (14, "metadata"), (20, "training"), (25, "functions"), (99, "unknown")]:
        yield f"empty-model-{what}", whole + (wire.tag(number, 2) + b"\0") * 300000, {"heavy": True}
    for n in (2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1):
        yield f"graph-of-{n}", wire.num(1, 8) + wire.tag(7, 2) + wire.varint(n) + b"x" * 50
        yield f"raw-data-of-{n}", wire.model(wire.graph([wire.node("Neg", ["x"], ["y"])], [
            wire.tensor(data=wire.tag(9, 2) + wire.varint(n) + b"x" * 8)]))
    yield "dims-of-a-million", wire.model(wire.graph([wire.node("MatMul", ["x", "w"], ["y"])], [
        wire.tensor(dims=[1] * 10**6, data=wire.text(9, b"\0" * 4))]))
    yield "inputs-of-a-node", wire.model(wire.graph([wire.node("Concat", ["x"] * 10**5, ["y"])])), {
        "heavy": True, "always": ("nbits-k_quant",)}
    # Numbers may be written with more bytes than they need, up to ten.
    for n in (2, 9):
        yield f"number-of-{n + 1}-bytes", wire.tag(1, 0) + b"\x88" + b"\x80" * (n - 1) + b"\0" + whole[2:], {"wants": "done"}
    # A singular message that comes twice is merged, as protobuf says.
    half = network()
    rest = network()
    half.graph.ClearField("node")
    rest.graph.ClearField("initializer")
    rest.graph.ClearField("input")
    rest.graph.ClearField("output")
    yield "graph-in-two-parts", half.SerializeToString() + wire.block(7, rest.graph.SerializeToString()), {"wants": "done"}


def around(number, before, size, after):
    """What stands before and after `size` bytes to make them a block with `before` and `after` in it."""
    return wire.tag(number, 2) + wire.varint(len(before) + size + len(after)) + before, after


def nested(depth, body, frame):
    """`frame` says what stands before and after so many bytes. The body is not copied at each level: that would take hours."""
    heads, tails, size = [], [], len(body)
    for level in range(depth):
        head, tail = frame(level, size)
        heads.append(head)
        tails.append(tail)
        size += len(head) + len(tail)
    return b"".join([*reversed(heads), body, *tails])


@functools.cache  # one for all commands
def deep_graph(depth):
    """If in If, written by hand: the Python package cannot serialize what is so deep."""

    def leaf(name):
        return wire.block(1, wire.node("Identity", ["x"], [name])) + wire.text(2, "g") + wire.block(12, wire.value(name))

    def frame(level, size):
        before, after = around(6, b"", size, b"")
        before, after = around(5, wire.text(1, "then_branch") + before, size, after + wire.num(20, 5))
        other = wire.attribute("else_branch", 5, wire.block(6, leaf(f"e{level}")))
        before, after = around(1, wire.node("If", ["c"], [f"o{level}"]) + before, size, after + other)
        return before, after + wire.text(2, "g") + wire.block(12, wire.value(f"o{level}"))

    condition = wire.text(1, "c") + wire.block(2, wire.block(1, wire.num(1, TensorProto.BOOL) + wire.block(2, b"")))
    return wire.model(nested(depth, leaf("y"), frame) + wire.block(11, wire.value("x")) + wire.block(11, condition))


def deep_type(depth):
    def frame(level, size):
        before, after = around(1, b"", size, b"")
        return around(4, before, size, after)

    kind = nested(depth, wire.block(1, wire.num(1, 1)), frame)
    return wire.model(wire.graph([wire.node("Identity", ["x"], ["y"])]) + wire.block(11, wire.text(1, "s") + wire.block(2, kind)))


def deep_group(depth):
    return network().SerializeToString() + wire.tag(500, 3) * depth + wire.tag(500, 4) * depth


def doubling(levels):
    """Functions that each call the one before twice."""
    model = network(ir=9)
    model.opset_import.append(helper.make_opsetid("d", 1))
    for i in range(levels):
        nodes = [helper.make_node(f"F{i - 1}", [x], [y], domain="d") for x, y in [("a", "t"), ("t", "b")]] if i else [
            helper.make_node("Relu", ["a"], ["b"])]
        model.functions.append(helper.make_function("d", f"F{i}", ["a"], ["b"], nodes,
                                                    [helper.make_opsetid("", 13), helper.make_opsetid("d", 1)]))
    model.graph.node[1].op_type, model.graph.node[1].domain = f"F{levels - 1}", "d"
    return model


@family("depth")
def depths(r):
    for depth in (5, 20, 49, 99, 100, 5000, 100000):
        yield f"graphs-{depth}", lambda folder, n=depth: deep_graph(n), {"heavy": depth > 20, "right": True}
    for depth in (1, 15, 16, 17, 90, 100000):
        yield f"types-{depth}", lambda folder, n=depth: deep_type(n), {"heavy": depth > 20}
    for depth in (1, 99, 101, 100000):
        yield f"groups-{depth}", lambda folder, n=depth: deep_group(n)
    for levels in (5, 18, 40, 300):
        yield f"functions-{levels}", lambda folder, n=levels: doubling(n), {"heavy": levels > 5}


@family("unknown fields", wants="done", right=True)
def unknown(r):
    """Kept where they are: the judge looks for the mark."""
    mark = wire.text(900, b"onq-unknown-mark") + wire.num(901, 7) + wire.tag(902, 5) + b"abcd" + wire.tag(903, 1) + b"abcdefgh"
    whole = network()
    yield "model", whole.SerializeToString() + mark
    yield "graph", whole.SerializeToString() + wire.block(7, mark)

    def inside(part):
        """The mark inside the message that has this text: the lengths around it are made anew."""
        m = network()
        if part == "node":
            raw = m.graph.node[0].SerializeToString() + mark
            del m.graph.node[0]
            return m.SerializeToString() + wire.block(7, wire.block(1, raw))
        if part == "initializer":
            raw = m.graph.initializer[2].SerializeToString() + mark
            del m.graph.initializer[2]
            return m.SerializeToString() + wire.block(7, wire.block(5, raw))
        raw = m.graph.input[0].SerializeToString() + mark
        del m.graph.input[0]
        return m.SerializeToString() + wire.block(7, wire.block(11, raw))

    for part in ("node", "initializer", "input"):
        yield part, inside(part)
    yield "doc-strings", damaged(lambda m: [setattr(n, "doc_string", "onq-unknown-mark") for n in m.graph.node])


@family("no model", wants="refused")
def no_model(r):
    yield "empty", b""
    yield "text", b"hello world\n" * 100
    yield "zeros", bytes(1000)
    yield "ones", b"\xff" * 1000
    yield "json", b'{"ir_version": 8}'
    yield "zip", b"PK\x03\x04" + bytes(100)
    yield "random", bytes(r.randrange(256) for _ in range(5000))
    yield "huge-and-empty", lambda folder: os.truncate(put(folder, "m.onnx", b""), 1 << 34)
    yield "missing", lambda folder: None
    yield "folder", lambda folder: (folder / "m.onnx").mkdir()
    yield "fifo", lambda folder: fifo(folder / "m.onnx")
    yield "link-to-nothing", lambda folder: (folder / "m.onnx").symlink_to("nothing")
    yield "link-to-itself", lambda folder: (folder / "m.onnx").symlink_to("m.onnx")
    for device in ("zero", "null", "full", "random", "tty", "stdin"):
        yield f"device-{device}", lambda folder, d=device: (folder / "m.onnx").symlink_to(f"/dev/{d}")
    yield "memory-of-the-process", lambda folder: (folder / "m.onnx").symlink_to("/proc/self/mem")
    yield "file-of-the-kernel", lambda folder: (folder / "m.onnx").symlink_to("/proc/self/maps")


# ---- data that lies elsewhere

def outside(location, where="initializer", offset=None, length=None, prepare=None, checksum=None):
    """The network with one tensor's bytes at a location. `prepare` makes what is there."""

    def write(folder):
        model = network()
        weight = model.graph.initializer[0]
        raw = weight.raw_data
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", offset), ("length", length), ("checksum", checksum)):
            if value is not None:
                weight.external_data.add(key=key, value=value)
        if where == "constant":
            model.graph.node.insert(0, helper.make_node("Constant", [], ["W"], "constant", value=weight))
            del model.graph.initializer[0]
        elif where == "sparse":
            weight.name = "W"
            weight.dims[:] = [108]
            model.graph.sparse_initializer.add(values=weight, indices=helper.make_tensor("", TensorProto.INT64, [108], range(108)),
                                               dims=[4, 3, 3, 3])
            del model.graph.initializer[0]
        elif where == "unused attribute":
            model.graph.node[0].attribute.append(helper.make_attribute("other", weight))
            weight.CopyFrom(network().graph.initializer[0])
        if prepare is not None:
            prepare(folder, raw)
        return model

    return write


@family("external data")
def external(r):
    here = lambda folder, raw: put(folder, "w.bin", raw)  # noqa: E731
    yield "sound", outside("w.bin", prepare=here), {"wants": "done", "right": True}
    yield "sound-in-a-folder", outside("sub/w.bin", prepare=lambda f, raw: put(f, "sub/w.bin", raw)), {"wants": "done", "right": True}
    refused = {"wants": "refused"}
    for where in ("initializer", "constant", "sparse", "unused attribute"):
        for what, location in [("absolute", "/etc/passwd"), ("above", "../w.bin"), ("above-inside", "sub/../../w.bin"),
                               ("missing", "no.bin"), ("folder", "."), ("nothing", ""), ("device", "/dev/zero"),
                               ("memory", "*/_ORT_MEM_ADDR_/*"), ("nul", "w.bin\0x"), ("long", "a" * 5000), ("many", "a/" * 3000 + "w")]:
            yield f"{where}-{what}", outside(location, where, prepare=here), refused
    whole = str(108 * 4)
    for what, offset, length in [("offset-past-end", "9999999", None), ("offset-text", "abc", None), ("offset-negative", "-4", whole),
                                 ("offset-2^64", str(2**64), whole), ("offset-2^63", str(2**63), whole), ("offset-hex", "0x0", whole),
                                 ("offset-float", "0.0", whole), ("offset-blank", " 0", whole), ("offset-plus", "+0", whole),
                                 ("length-short", "0", "4"), ("length-long", "0", "4000"), ("length-text", "0", "many"),
                                 ("length-negative", "0", "-1"), ("length-2^64", "0", str(2**64 + 432)), ("sum-overflows", str(2**64 - 1), whole)]:
        yield what, outside("w.bin", offset=offset, length=length, prepare=here), refused
    yield "short-file", outside("w.bin", prepare=lambda f, raw: put(f, "w.bin", raw[:-1])), refused
    yield "empty-file", outside("w.bin", prepare=lambda f, raw: put(f, "w.bin", b"")), refused
    yield "fifo", outside("w.bin", prepare=lambda f, raw: fifo(f / "w.bin")), refused
    yield "link-inside", outside("w.bin", prepare=lambda f, raw: (put(f, "v.bin", raw), (f / "w.bin").symlink_to("v.bin"))), {
        "wants": "done"}
    yield "link-outside", outside("w.bin", prepare=lambda f, raw: (f / "w.bin").symlink_to("/etc/passwd")), refused
    yield "link-to-device", outside("w.bin", prepare=lambda f, raw: (f / "w.bin").symlink_to("/dev/zero")), refused
    yield "link-to-fd", outside("w.bin", prepare=lambda f, raw: (f / "w.bin").symlink_to("/proc/self/fd/0")), refused
    yield "folder-link-outside", outside("d/passwd", prepare=lambda f, raw: (f / "d").symlink_to("/etc")), refused
    yield "hard-link", outside("w.bin", prepare=lambda f, raw: os.link(put(f, "v.bin", raw), f / "w.bin")), refused
    long = lambda folder, raw: put(folder, "w.bin", bytes(64) + raw + bytes(64))  # noqa: E731
    yield "inside-a-larger-file", outside("w.bin", offset="64", length=whole, prepare=long), {"wants": "done", "right": True}
    yield "offset-odd", outside("w.bin", offset="63", length=whole, prepare=long)
    yield "keys-twice", lambda folder: damaged(lambda m: m.graph.initializer[0].external_data.add(key="location", value="/etc/passwd"), outside(
        "w.bin", prepare=here)(folder))
    yield "overlapping", lambda folder: damaged(lambda m: (m.graph.initializer[1].ClearField("raw_data"), setattr(m.graph.initializer[1], "data_location", 1), [
        m.graph.initializer[1].external_data.add(key=k, value=v) for k, v in (("location", "w.bin"), ("offset", "8"), ("length", "16"))]), outside(
            "w.bin", prepare=here)(folder)), {"wants": "done"}
    yield "and-raw-data", lambda folder: damaged(lambda m: setattr(m.graph.initializer[0], "raw_data", bytes(432)), outside("w.bin", prepare=here)(folder))
    yield "unknown-key", lambda folder: damaged(lambda m: m.graph.initializer[0].external_data.add(key="nonsense", value="x" * 10**6), outside(
        "w.bin", prepare=here)(folder))
    yield "unicode-digits", outside("w.bin", offset="\u0660", length=whole, prepare=here), refused
    yield "checksum", outside("w.bin", checksum="0" * 40, prepare=here)
    yield "the-output", outside("out.onnx.data", prepare=lambda f, raw: put(f, "out.onnx.data", raw)), {"wants": ""}
    yield "the-model-itself", outside("m.onnx", offset="0", length=whole), {}


@family("language")
def language_bytes(r):
    """Damage where the weight-only commands look."""
    whole = bytearray(language().SerializeToString())
    for i in range(10):
        data = bytearray(whole)
        for _ in range(3):
            data[r.choice([r.randrange(700), len(data) - 1 - r.randrange(300)])] ^= 1 << r.randrange(8)
        yield f"flips-{i}", bytes(data)
    for name, index in [("K", 1), ("G", 4), ("table", 0)]:
        for dims in ([0, 32], [32, 0], [1, 0], [32], [], [1, 32, 32], [2, 16, 32], [1] * 9 + [32, 32]):
            m = language()
            t = m.graph.initializer[index]
            keep = t.raw_data
            count = 1
            for d in dims:
                count *= d
            t.dims[:] = dims
            t.raw_data = (keep * 8)[:4 * count]
            yield f"{name}-dims-{'x'.join(map(str, dims)) or 'scalar'}", m, {"always": ("calibrate",) if dims == [0, 32] else ()}
