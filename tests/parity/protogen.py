"""protogen.py - makes messages that set every field, and encodes them in every way the wire format allows.

Driven by protobuf descriptors, so that a field of the format cannot be forgotten. `Maker.covered` lists the
(message, field) pairs that were set; the tests compare it with the descriptors.

The encoder is our own: protobuf's writes one canonical form, but a reader must take packed numbers unpacked and the
other way round, packed runs in pieces, varints with needless bytes, singular messages in pieces (they merge),
scalars twice (the last counts), fields in any order, and unknown fields anywhere.
"""
import random
import struct

from google.protobuf.descriptor import FieldDescriptor as F

INT64 = [0, 1, -1, 127, 128, 300, 2**31, -2**31, 2**63 - 1, -2**63]
INT32 = [0, 1, -1, 127, 128, 300, 2**31 - 1, -2**31]
UINT64 = [0, 1, 127, 128, 2**32, 2**63, 2**64 - 1]
REALS = [0.0, -0.0, 1.5, -2.25, 3.0e38, 1e-45, float("inf"), float("-inf"), float("nan")]
TEXTS = ["", "a", "name_0", "über/ß", "with\0nul", "\x1b[31mred", "x" * 300]
BLOBS = [b"", b"\0", b"\xff\xfe not utf-8", bytes(range(256))]

VARINT = {F.TYPE_INT32, F.TYPE_INT64, F.TYPE_UINT32, F.TYPE_UINT64, F.TYPE_BOOL, F.TYPE_ENUM}
FIXED4 = {F.TYPE_FLOAT, F.TYPE_FIXED32, F.TYPE_SFIXED32}
FIXED8 = {F.TYPE_DOUBLE, F.TYPE_FIXED64, F.TYPE_SFIXED64}


class Maker:
    """Fills messages. Every field is set where depth allows; of a oneof one member, another each time."""

    def __init__(self, seed, depth=7):
        self.rng = random.Random(seed)
        self.depth = depth
        self.turn = {}
        self.covered = set()

    def scalar(self, field):
        r = self.rng
        if field.type == F.TYPE_ENUM:
            return r.choice([v.number for v in field.enum_type.values])
        if field.type == F.TYPE_BYTES:
            return r.choice(BLOBS)
        if field.type == F.TYPE_STRING:
            return r.choice(TEXTS)
        if field.type == F.TYPE_FLOAT:
            return struct.unpack("<f", struct.pack("<f", r.choice(REALS)))[0]
        if field.type == F.TYPE_DOUBLE:
            return r.choice(REALS)
        return r.choice({F.TYPE_INT32: INT32, F.TYPE_UINT64: UINT64}.get(field.type, INT64))

    def chosen(self, message):
        """The fields to set: all, but of each oneof one."""
        d = message.DESCRIPTOR
        fields = [f for f in d.fields if f.containing_oneof is None]
        for o in d.oneofs:
            k = self.turn.get(o.full_name, 0)
            self.turn[o.full_name] = k + 1
            fields.append(o.fields[k % len(o.fields)])
        return fields

    def fill(self, message, depth=0):
        for field in self.chosen(message):
            if field.message_type is not None:
                if depth >= self.depth:
                    continue
                if field.is_repeated:
                    for _ in range(self.rng.choice([1, 2]) if depth < 1 else 1):
                        self.fill(getattr(message, field.name).add(), depth + 1)
                else:
                    sub = getattr(message, field.name)
                    sub.SetInParent()
                    self.fill(sub, depth + 1)
            elif field.is_repeated:
                getattr(message, field.name).extend(self.scalar(field) for _ in range(self.rng.choice([1, 3, 40])))
            else:
                setattr(message, field.name, self.scalar(field))
            self.covered.add((message.DESCRIPTOR.full_name, field.name))
        return message


def all_fields(descriptors):
    """Every (message, field) that can be reached from these descriptors."""
    seen, todo = {}, list(descriptors)
    while todo:
        d = todo.pop()
        if d.full_name in seen:
            continue
        seen[d.full_name] = d
        todo += [f.message_type for f in d.fields if f.message_type is not None]
    return {(n, f.name) for n, d in seen.items() for f in d.fields}, seen


class Encoder:
    """Encodes a message; with wild=True in odd but legal ways, with unknown=True with fields nobody knows."""

    def __init__(self, seed, wild=True, unknown=False):
        self.rng = random.Random(seed)
        self.wild, self.unknown = wild, unknown
        self.unknown_at = set()

    def varint(self, v, padded=True):
        v &= 2**64 - 1
        out = bytearray()
        while v > 0x7f:
            out.append(v & 0x7f | 0x80)
            v >>= 7
        out.append(v)
        if padded and self.wild and len(out) < 5 and self.rng.random() < 0.1:  # needless bytes
            n = self.rng.randint(1, 5 - len(out))
            out[-1] |= 0x80
            out += b"\x80" * (n - 1) + b"\0"
        return bytes(out)

    def tag(self, number, wire):
        return self.varint(number << 3 | wire, padded=False)

    def block(self, number, data):
        return self.tag(number, 2) + self.varint(len(data)) + data

    def number(self, field, v):
        """(wire type, bytes) of one number."""
        if field.type in VARINT:
            return 0, self.varint(v)
        if field.type == F.TYPE_FLOAT:
            return 5, struct.pack("<f", v)
        if field.type == F.TYPE_DOUBLE:
            return 1, struct.pack("<d", v)
        raise ValueError(field.type)

    def repeated_numbers(self, field, values):
        out, i = [], 0
        while i < len(values):
            packed = self.rng.random() < 0.5 if self.wild else field.GetOptions().packed
            if packed:
                n = self.rng.randint(1, len(values) - i) if self.wild else len(values)
                out.append(self.block(field.number, b"".join(self.number(field, v)[1] for v in values[i:i + n])))
            else:
                n = 1
                wire, data = self.number(field, values[i])
                out.append(self.tag(field.number, wire) + data)
            i += n
        if self.wild and self.rng.random() < 0.1:
            out.append(self.block(field.number, b""))  # an empty packed run
        return out

    def pieces(self, message):
        """The encoded fields, each a list whose own order matters."""
        groups = []
        for field, value in message.ListFields():
            if field.message_type is not None:
                if field.is_repeated:
                    groups.append([self.block(field.number, self.encode(v)) for v in value])
                else:
                    groups.append(self.one_message(field, value))
            elif field.type in (F.TYPE_STRING, F.TYPE_BYTES):
                values = value if field.is_repeated else [value]
                data = [v.encode() if isinstance(v, str) else v for v in values]
                if self.wild and not field.is_repeated and self.rng.random() < 0.2:
                    data.insert(0, b"overwritten")
                groups.append([self.block(field.number, d) for d in data])
            elif field.is_repeated:
                groups.append(self.repeated_numbers(field, list(value)))
            else:
                values = [value]
                if self.wild and self.rng.random() < 0.2:
                    values.insert(0, field.enum_type.values[0].number if field.enum_type else 1)
                encoded = [self.number(field, v) for v in values]
                groups.append([self.tag(field.number, w) + d for w, d in encoded])
        return groups

    def one_message(self, field, value):
        """A singular message, perhaps in two pieces that a reader merges."""
        parts = [p for g in self.pieces(value) for p in g]
        extra = self.strangers(value.DESCRIPTOR) if self.unknown else []
        if not self.wild or len(parts) < 2 or self.rng.random() < 0.7:
            return [self.block(field.number, self.join(self.pieces(value), extra))]
        cut = self.rng.randint(1, len(parts) - 1)
        return [self.block(field.number, b"".join(parts[:cut])), self.block(field.number, b"".join(parts[cut:] + extra))]

    def strangers(self, descriptor):
        """Fields that the format does not have: every wire type, groups in groups, and a known number in a wrong type."""
        self.unknown_at.add(descriptor.full_name)
        known = {f.number for f in descriptor.fields}
        free = [n for n in (30, 99, 1000, 536870911) if n not in known]
        out = [self.tag(free[0], 0) + self.varint(2**64 - 1, padded=False), self.tag(free[1], 1) + b"8 bytes!",
               self.tag(free[2], 2) + b"\x05hello", self.tag(free[3], 5) + b"four",
               self.tag(free[0], 3) + self.tag(7, 3) + self.tag(1, 0) + b"\x2a" + self.tag(7, 4) + self.tag(free[0], 4)]
        odd = [f for f in descriptor.fields if f.type in (F.TYPE_STRING, F.TYPE_BYTES, F.TYPE_MESSAGE)]
        if odd:
            out.append(self.tag(odd[0].number, 0) + b"\x07")
        return out

    def join(self, groups, extra):
        """The groups mixed, each in its own order, and the strangers in theirs between them."""
        lists = [list(g) for g in groups if g] + ([list(extra)] if extra else [])
        out = []
        while lists:
            g = self.rng.choice(lists) if self.wild else lists[0]
            out.append(g.pop(0))
            if not g:
                lists.remove(g)
        return b"".join(out)

    def encode(self, message):
        return self.join(self.pieces(message), self.strangers(message.DESCRIPTOR) if self.unknown else [])
