"""The whole format: every field of every message, in every legal encoding, with unknown fields at every level."""
import subprocess

import onnx
import pytest
from google.protobuf.descriptor import FieldDescriptor as F
from onnx import onnx_data_pb2

import modeltool
import protogen

# Messages that share their row in schema.def, because they have the same fields.
SAME = {"TypeProto.SparseTensor": "TypeProto.Tensor", "TypeProto.Optional": "TypeProto.Sequence"}
ROOTS = [onnx.ModelProto, onnx_data_pb2.SequenceProto, onnx_data_pb2.MapProto, onnx_data_pb2.OptionalProto]


def row_name(descriptor):
    name = descriptor.full_name.removeprefix("onnx.")
    return SAME.get(name, name)


def schema_rows():
    text = subprocess.run([str(modeltool.BUILD / "tests" / "model_tool"), "schema"], capture_output=True, text=True,
                          check=True).stdout
    rows = {}
    for line in text.splitlines():
        message, number, name, kind, sub, group = line.split()
        rows[message, int(number)] = (name, kind, sub, int(group))
    return rows


def kinds_for(field):
    """The kinds of schema.def that may stand for a field."""
    if field.message_type is not None:
        return {"MSGS"} if field.is_repeated else {"MSG"}
    if field.type in (F.TYPE_STRING, F.TYPE_BYTES):
        return {"STRS"} if field.is_repeated else {"STR", "PAY"}
    if field.is_repeated:
        return {F.TYPE_FLOAT: {"F32S", "P4"}, F.TYPE_DOUBLE: {"P8"}}.get(field.type, {"I64S", "PV"})
    return {F.TYPE_INT64: {"I64"}, F.TYPE_FLOAT: {"F32"}, F.TYPE_INT32: {"I32"}, F.TYPE_ENUM: {"I32"}}[field.type]


def test_the_table_has_every_field():
    """A field missing in schema.def would survive as an unknown one; this is what finds it."""
    rows = schema_rows()
    _, messages = protogen.all_fields(r.DESCRIPTOR for r in ROOTS)
    wanted = set()
    for d in messages.values():
        for f in d.fields:
            key = (row_name(d), f.number)
            wanted.add(key)
            assert key in rows, f"schema.def lacks {d.full_name}.{f.name}"
            name, kind, sub, group = rows[key]
            assert name == f.name and kind in kinds_for(f), (d.full_name, f.name, rows[key])
            if f.message_type is not None:
                assert sub == row_name(f.message_type), (d.full_name, f.name, rows[key])
            assert (group != 0) == (f.containing_oneof is not None), (d.full_name, f.name)
    assert set(rows) == wanted, f"schema.def has what the format has not: {set(rows) - wanted}"


def depth_of(root):
    """Deep enough for every message to stand somewhere; the tests assert that it is."""
    return 6 if root is onnx.ModelProto else 4


def inline(message):
    """Tensors of random bytes that say they lie in other files would have to be found there."""
    for field, value in message.ListFields():
        if field.message_type is not None:
            for m in value if field.is_repeated else [value]:
                inline(m)
    if message.DESCRIPTOR.name == "TensorProto":
        message.data_location = onnx.TensorProto.DEFAULT


def round_trip(tool, message_type, data, tmp_path):
    src, out = tmp_path / "in.bin", tmp_path / "out.bin"
    src.write_bytes(data)
    tool("message", row_name(message_type.DESCRIPTOR), src, out)
    want, got = message_type(), message_type()
    want.ParseFromString(data)
    got.ParseFromString(out.read_bytes())
    found = modeltool.difference(want, got, message_type.DESCRIPTOR.name)
    assert found is None, found
    return want


@pytest.mark.parametrize("root", ROOTS, ids=lambda r: r.DESCRIPTOR.name)
def test_every_field(tool, tmp_path, root):
    covered = set()
    for seed in range(3):
        maker = protogen.Maker(seed, depth=depth_of(root))
        message = maker.fill(root())
        covered |= maker.covered
        data = message.SerializeToString()
        round_trip(tool, root, data, tmp_path)
        want = round_trip(tool, root, protogen.Encoder(seed, wild=False).encode(message), tmp_path)
        assert modeltool.difference(message, want) is None
        want = round_trip(tool, root, protogen.Encoder(seed, wild=True).encode(message), tmp_path)
        assert modeltool.difference(message, want) is None, "the encoder of the test is wrong"
    wanted, _ = protogen.all_fields([root.DESCRIPTOR])
    assert covered == wanted, f"never set: {sorted(wanted - covered)}"


@pytest.mark.parametrize("root", ROOTS, ids=lambda r: r.DESCRIPTOR.name)
def test_unknown_fields_everywhere(tool, tmp_path, root):
    at = set()
    for seed in range(3):
        message = protogen.Maker(100 + seed, depth=depth_of(root)).fill(root())
        for wild in (False, True):
            encoder = protogen.Encoder(seed, wild=wild, unknown=True)
            round_trip(tool, root, encoder.encode(message), tmp_path)
            at |= encoder.unknown_at
    _, messages = protogen.all_fields([root.DESCRIPTOR])
    assert at == set(messages), f"no unknown field in {set(messages) - at}"


def test_a_model_through_the_front(tool, tmp_path):
    """The same through open and save, which every command uses: reencoded, and untouched byte for byte."""
    for seed in range(3):
        message = protogen.Maker(200 + seed, depth=5).fill(onnx.ModelProto())
        inline(message)
        data = protogen.Encoder(seed, wild=True, unknown=True).encode(message)
        src, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
        src.write_bytes(data)
        tool("reencode", src, out)
        want, got = onnx.ModelProto(), onnx.ModelProto()
        want.ParseFromString(data)
        got.ParseFromString(out.read_bytes())
        assert modeltool.difference(want, got) is None
        tool("save", src, out)
        assert out.read_bytes() == data


def test_every_data_type_number():
    """dtype.def has every type of the format. Types newer than the package are not compared."""
    import re
    text = (modeltool.ROOT / "src" / "onnx" / "dtype.def").read_text()
    rows = {name: int(number) for number, name in re.findall(r"^OQ_DTYPE\((\d+), (\w+),", text, re.M)}
    for name, number in onnx.TensorProto.DataType.items():
        if number != 0:
            assert rows.get(name) == number
    assert sorted(rows.values()) == list(range(1, len(rows) + 1))
