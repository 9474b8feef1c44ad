"""gguf_cases.py - weights in GGUF files that are cut, flipped, or say what is not so."""
import struct

from cases import family, normal, put, value, wrap
from onnx import TensorProto, helper

TABLE = {"Q8_0": (8, 272), "Q4_0": (2, 144), "Q4_1": (3, 160), "Q5_0": (6, 176), "Q5_1": (7, 192), "Q2_K": (10, 84), "Q3_K": (11, 110),
         "Q4_K": (12, 144), "Q5_K": (13, 176), "Q6_K": (14, 210), "F16": (1, 512), "BF16": (30, 512), "F32": (0, 1024)}  # number, bytes of 256
ROWS, COLUMNS = 256, 2


def graph():
    nodes = [helper.make_node("MatMul", ["X", "model.layers.0.mlp.up_proj.weight"], ["a"], "up"),
             helper.make_node("Mul", ["a", "model.norm.weight"], ["Y"], "scale")]
    return wrap(nodes, [value("X", ["n", ROWS])], [value("Y", ["n", COLUMNS], TensorProto.FLOAT)],
                [normal("model.layers.0.mlp.up_proj.weight", ROWS, COLUMNS), normal("model.norm.weight", COLUMNS)], 17)


def text(s):
    return struct.pack("<Q", len(s)) + s


def fact(key, kind, raw):
    return text(key) + struct.pack("<I", kind) + raw


def tensor(name, kind, dims, offset):
    return text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset)


FACTS = [fact(b"general.architecture", 8, text(b"llama")), fact(b"llama.attention.head_count", 4, struct.pack("<I", 4)),
         fact(b"tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 2) + text(b"a") + text(b"b"))]
NORM = tensor(b"output_norm.weight", 0, [COLUMNS], 0)
BODY = struct.pack(f"<{COLUMNS}f", *range(COLUMNS)).ljust(32, b"\0")


def file(kind="Q4_0", facts=FACTS, tensors=None, counts=None, version=3, magic=b"GGUF", align=32):
    number, size = TABLE[kind]
    tensors = tensors or [NORM, tensor(b"blk.0.ffn_up.weight", number, [ROWS, COLUMNS], 32)]
    n_tensors, n_facts = counts or (len(tensors), len(facts))
    head = magic + struct.pack("<IQQ", version, n_tensors, n_facts) + b"".join(facts) + b"".join(tensors)
    return head + b"\0" * (-len(head) % align) + BODY + bytes(i % 100 + 1 for i in range(size)) * COLUMNS


def with_file(data):
    def write(folder):
        put(folder, "w.gguf", data)
        return graph()

    return write


def case(what, data, **more):
    return what, with_file(data), more


REFUSED = {"wants": "refused"}


@family("gguf", slot="gguf", files=("w.gguf",))
def sound_and_cut(r):
    for kind in TABLE:
        yield case(f"sound-{kind}", file(kind), wants="done")
    yield case("sound-version-2", file(version=2), wants="done")
    yield case("sound-align-64", file(facts=FACTS + [fact(b"general.alignment", 4, struct.pack("<I", 64))], align=64), wants="done")
    for kind in TABLE:
        data = file(kind)
        for n in range(0, len(data), 3 if kind == "Q4_0" else 41):
            yield case(f"cut-{kind}-{n}", data[:n], **REFUSED)
    yield "missing", lambda folder: graph(), REFUSED
    yield "folder", lambda folder: (folder / "w.gguf").mkdir() or graph(), REFUSED


@family("gguf", slot="gguf", files=("w.gguf", "m.onnx"))
def flipped(r):
    for i in range(390):
        data = bytearray(file(r.choice(list(TABLE))))
        for _ in range(r.choice((1, 1, 1, 2, 5))):
            data[r.randrange(len(data) if i % 3 == 0 else 330)] = r.choice((0, 1, 127, 128, 255, r.randrange(256)))
        yield case(f"bytes-{i}", bytes(data))
    for i in range(60):
        data = bytearray(file())
        at = r.randrange(320)
        data[at:at + 8] = struct.pack("<Q", r.choice((0, 1, 2**31, 2**32 - 1, 2**32, 2**61, 2**63, 2**64 - 1, 2**64 - 8, 2**64 - 31)))
        yield case(f"number-{i}", bytes(data))


@family("gguf", slot="gguf", files=("w.gguf",), **REFUSED)
def lies(r):
    up, name = b"blk.0.ffn_up.weight", "blk.0.ffn_up.weight"
    huge = (2**31, 2**32, 2**59, 2**61, 2**63 - 1, 2**63, 2**64 - 1)
    for n in huge:
        yield case(f"tensors-{n}", file(counts=(n, 3)))
        yield case(f"values-{n}", file(counts=(2, n)))
        yield case(f"rows-{n}", file(tensors=[NORM, tensor(up, 2, [n, COLUMNS], 32)]))
        yield case(f"columns-{n}", file(tensors=[NORM, tensor(up, 2, [ROWS, n], 32)]))
        yield case(f"both-{n}", file(tensors=[NORM, tensor(up, 2, [n, n], 32)]))
        yield case(f"offset-{n}", file(tensors=[NORM, tensor(up, 2, [ROWS, COLUMNS], n)]))
        yield case(f"text-{n}", file(facts=[FACTS[0][:20] + b"", text(b"k") + struct.pack("<IQ", 8, n)]))
        yield case(f"key-{n}", file(facts=[struct.pack("<Q", n) + b"k"]))
        yield case(f"list-{n}", file(facts=[fact(b"k", 9, struct.pack("<IQ", 4, n))]))
        yield case(f"texts-{n}", file(facts=[fact(b"k", 9, struct.pack("<IQ", 8, n))]))
        yield case(f"name-{n}", file(tensors=[NORM, struct.pack("<Q", n) + up]))
    for rank in (5, 77, 2**32 - 1):
        yield case(f"rank-{rank}", file(tensors=[NORM, text(up) + struct.pack("<I", rank) + b"\1" * 64]))
    for version in (0, 1, 4, 3 << 24):
        yield case(f"version-{version}", file(version=version))
    for kind in (4, 5, 31, 99, 2**31, 2**32 - 1):
        yield case(f"type-{kind}", file(tensors=[NORM, tensor(up, kind, [ROWS, COLUMNS], 32)]))
    for kind in (9, 13, 2**32 - 1):
        yield case(f"value-kind-{kind}", file(facts=[fact(b"k", kind, b"\0" * 16)]))
        yield case(f"list-kind-{kind}", file(facts=[fact(b"k", 9, struct.pack("<IQ", kind, 1) + b"\0" * 8)]))
    for what, raw in (("0", (4, struct.pack("<I", 0))), ("3", (4, struct.pack("<I", 3))), ("huge", (10, struct.pack("<Q", 2**63))),
                      ("negative", (5, struct.pack("<i", -32))), ("nan", (6, struct.pack("<f", float("nan")))), ("half", (6, struct.pack("<f", 0.5))),
                      ("text", (8, text(b"32")))):
        yield case(f"alignment-{what}", file(facts=FACTS + [fact(b"general.alignment", *raw)]))
    yield case("magic", file(magic=b"GGML"))
    yield case("twice", file(tensors=[NORM, tensor(up, 2, [ROWS, COLUMNS], 32), tensor(up, 2, [ROWS, COLUMNS], 32)]))
    yield case("not-whole-blocks", file(tensors=[NORM, tensor(up, 2, [31, COLUMNS], 32)]))
    yield case("no-dimensions", file(tensors=[NORM, tensor(up, 2, [], 32)]))
    yield case("a-dimension-of-0", file(tensors=[NORM, tensor(up, 2, [ROWS, 0], 32)]))
    yield case("transposed", file(tensors=[NORM, tensor(up, 0, [COLUMNS, ROWS], 32)], kind="F32"), wants="")
    yield case("no-tensors", file(tensors=[], counts=(0, 3)))
    yield case("name-of-zeros", file(tensors=[NORM, tensor(b"\0" * len(name), 2, [ROWS, COLUMNS], 32)]))
    yield case("not-utf8", file(tensors=[NORM, tensor(b"\xff\x1b[31m", 2, [ROWS, COLUMNS], 32)]))
    for kind, (_, size) in TABLE.items():
        yield case(f"scales-nan-{kind}", file(kind)[:-COLUMNS * size] + b"\xff\x7f" * (size // 2 * COLUMNS))
