#!/usr/bin/env python3
"""make.py [FOLDER] - builds each bad model byte by byte, and expected.tsv beside them.

The files are committed so that the quick tests need no Python; tests/hostile/test_malformed.py fails when they are
not what this script makes. A case is a function with the name of its file; it returns the bytes and says where
the fault must be found:

    stage    open: by oq_model_open    check: by oq_model_check
    code     the onq_code
    offset   the byte in the file, or -1
    word     what the message must contain
"""
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from wire import attribute, block, external, graph, model, node, num, opset, tag, tensor, text, value, varint  # noqa: E402

MALFORMED, INVALID, LIMIT, UNSUPPORTED, PATH, MISSING = 20, 21, 2, 30, 13, 14
CASES = []


NEG = node("Neg", ["x"], ["y"])


def with_tensor(t):
    return model(graph([NEG], [t]))


def case(stage, code, offset, word):
    def add(make):
        CASES.append((make.__name__, stage, code, offset, word, make))
        return make
    return add


# ---- not a model at all
@case("open", MALFORMED, -1, "empty")
def empty_file():
    return b""


@case("open", MALFORMED, 3, "damaged")
def text_file():
    return b"Hello, this is not a model.\n"


@case("open", MALFORMED, 2, "damaged")
def json_file():
    return b'{"ir_version": 8}\n'


@case("open", MALFORMED, 2, "damaged")
def zip_file():
    return b"PK\x03\x04\x14\0\0\0\x08\0"


@case("open", INVALID, -1, "no graph")
def no_graph():
    return num(1, 8) + opset()


@case("open", MALFORMED, 6, "damaged")
def zeros():
    return num(1, 8) + block(8, num(2, 13)) + b"\0" * 64


# ---- numbers and tags
@case("open", MALFORMED, 1, "longer than ten bytes")
def varint_too_long():
    return tag(1, 0) + b"\x80" * 9 + b"\x81\x01"


@case("open", MALFORMED, 1, "more than 64 bits")
def varint_too_large():
    return tag(1, 0) + b"\xff" * 9 + b"\x02"


@case("open", MALFORMED, 1, "ends inside a number")
def varint_cut():
    return tag(1, 0) + b"\x80\x80"


@case("open", MALFORMED, 2, "ends inside a number")
def tag_cut():
    return num(1, 8) + b"\x82"


@case("open", MALFORMED, 0, "number 0")
def field_zero():
    return b"\x00\x01"


@case("open", MALFORMED, 0, "no field has the number")
def field_too_large():
    return varint(2**35) + b"\x01"


@case("open", MALFORMED, 2, "wire type 6")
def wire_type_6():
    return num(1, 8) + tag(1, 6) + b"\x01"


@case("open", MALFORMED, 2, "wire type 7")
def wire_type_7():
    return num(1, 8) + tag(2, 7) + b"\x01"


@case("open", MALFORMED, 1, "ends inside a number")
def fixed32_cut():
    return tag(99 >> 3, 5) + b"abc"


@case("open", MALFORMED, 2, "ends inside a number")
def fixed64_cut():
    return tag(99, 1) + b"1234567"


# ---- lengths
@case("open", MALFORMED, 1, "goes past the end")
def length_past_end():
    return tag(7, 2) + varint(100) + b"short"


@case("open", MALFORMED, 1, "goes past the end")
def length_2_63():
    return tag(7, 2) + varint(2**63) + b"x"


@case("open", MALFORMED, 1, "goes past the end")
def length_negative():
    return tag(7, 2) + varint(-1) + b"x"


@case("open", MALFORMED, 1, "goes past the end")
def length_2_31():
    return tag(7, 2) + varint(2**31) + b"x"


@case("open", MALFORMED, 3, "goes past the end")
def child_longer_than_parent():
    return block(7, tag(1, 2) + varint(50) + b"node") + b"p" * 60


@case("open", MALFORMED, 5, "goes past the end")
def string_longer_than_its_node():
    return block(7, block(1, tag(4, 2) + varint(9) + b"Ne")) + b"p" * 60


@case("open", MALFORMED, None, "goes past the end")
def truncated_model():
    whole = with_tensor(tensor())
    truncated_model.offset = whole.index(tag(7, 2)) + 1
    return whole[:-30]


@case("open", MALFORMED, None, "packed")
def packed_floats_cut():
    a = attribute("v", 6, block(7, b"12345"))
    whole = model(graph([node("Neg", ["x"], ["y"], extra=a)]))
    packed_floats_cut.offset = whole.index(b"\x05" b"12345")
    return whole


@case("open", MALFORMED, None, "packed")
def float_data_cut():
    whole = with_tensor(tensor(data=block(4, b"1234567")))
    float_data_cut.offset = whole.index(b"\x07" b"1234567")
    return whole


@case("open", MALFORMED, None, "ends inside a number")
def dims_packed_cut():
    whole = with_tensor(block(1, b"\x02\x80") + num(2, 1) + text(8, "w"))
    dims_packed_cut.offset = whole.index(b"\x02\x80") + 1
    return whole


# ---- groups and depth
@case("open", MALFORMED, 1, "not begun")
def stray_end_group():
    return tag(3, 4) + num(1, 8)


@case("open", MALFORMED, 5, "not begun")
def end_of_another_group():
    return tag(99, 3) + num(1, 1) + tag(3, 4)


@case("open", MALFORMED, None, "ends inside a number")
def group_without_end():
    data = num(1, 8) + tag(99, 3) + num(1, 1)
    group_without_end.offset = len(data)
    return data


@case("open", MALFORMED, 101, "deeper than 100")
def groups_too_deep():
    return tag(9, 3) * 101 + tag(9, 4) * 101


@case("open", LIMIT, None, "deeper than 100")
def nested_too_deep():
    data = graph([NEG])
    for _ in range(40):
        data = graph([node("If", ["x"], ["y"], extra=block(5, text(1, "then_branch") + block(6, data) + num(20, 5)))])
    nested_too_deep.offset = None
    return model(data)


@case("open", LIMIT, None, "deeper than 100")
def types_too_deep():
    data = block(1, num(1, 1))
    for _ in range(120):
        data = block(4, block(1, data))
    types_too_deep.offset = None
    return model(graph([NEG]) + block(13, text(1, "t") + block(2, data)))


# ---- tensors
@case("check", INVALID, -1, "overflow")
def dims_overflow():
    return with_tensor(tensor(dims=(2**62, 4)))


@case("check", INVALID, -1, "overflow")
def dims_bytes_overflow():
    return with_tensor(tensor(dims=(2**62,), dtype=1))


@case("check", INVALID, -1, "dimension 1 is -3")
def dims_negative():
    return with_tensor(tensor(dims=(2, -3)))


@case("check", INVALID, -1, "raw data has 8 bytes")
def raw_data_short():
    return with_tensor(tensor(dims=(3,)))


@case("check", INVALID, -1, "need 4")
def raw_data_long():
    return with_tensor(tensor(dims=(1,)))


@case("check", INVALID, -1, "need 17179869184")
def raw_data_far_too_short():
    return with_tensor(tensor(dims=(2**32,)))


@case("check", INVALID, -1, "holds 0 values")
def tensor_without_data():
    return with_tensor(tensor(data=b""))


@case("check", INVALID, -1, "float_data holds 1")
def float_data_short():
    return with_tensor(tensor(data=block(4, b"1234")))


@case("check", INVALID, -1, "int64_data")
def int64_data_ends_inside():
    return with_tensor(tensor(dtype=7, data=block(7, b"\x01\x80")))


@case("check", INVALID, -1, "int32_data holds 2 values")
def int4_data_not_packed():
    return with_tensor(tensor(dtype=22, data=block(5, b"\x01\x02")))


@case("check", INVALID, -1, "data type 99")
def data_type_unknown():
    return with_tensor(tensor(dtype=99))


@case("check", INVALID, -1, "data type -1")
def data_type_negative():
    return with_tensor(tensor(dtype=-1))


@case("check", INVALID, -1, "no data type")
def data_type_missing():
    return with_tensor(num(1, 2) + text(8, "w") + text(9, b"\0" * 8))


@case("check", INVALID, -1, "strings")
def strings_in_raw_data():
    return with_tensor(tensor(dtype=8))


@case("check", INVALID, -1, "1 strings")
def strings_too_few():
    return with_tensor(tensor(dtype=8, data=text(6, "one")))


@case("check", INVALID, -1, "raw data has 8 bytes")
def constant_node_short():
    a = attribute("value", 4, block(5, tensor("k", (3,))))
    return model(graph([NEG, node("Constant", [], ["k"], "c", a)]))


@case("check", INVALID, -1, "lacks its indices")
def sparse_without_indices():
    return model(graph([NEG], extra=block(15, block(1, tensor("s")) + num(3, 4))))


@case("check", INVALID, -1, "indices")
def sparse_index_count():
    indices = tensor("i", (3,), 7, text(9, b"\0" * 24))
    return model(graph([NEG], extra=block(15, block(1, tensor("s")) + block(2, indices) + num(3, 4))))


# ---- external data
def external_case(name, code, word, **entries):
    CASES.append((name, "check", code, -1, word, lambda: with_tensor(external(**entries))))


external_case("external_absolute", PATH, "absolute", location="/etc/passwd", offset="0", length="8")
external_case("external_device", PATH, "absolute", location="/dev/zero", offset="0", length="8")
external_case("external_dotdot", PATH, "..", location="../../etc/passwd")
external_case("external_dotdot_inside", PATH, "..", location="a/../../x")
external_case("external_folder", PATH, "not a regular file", location=".")
external_case("external_nul", PATH, "NUL", location="data.bin\0.txt")
external_case("external_missing", MISSING, "cannot be opened", location="not_there.bin")
external_case("external_no_location", INVALID, "location", offset="0")
external_case("external_empty_location", INVALID, "location", location="")
external_case("external_offset_past_end", INVALID, "goes past the end", location="data.bin", offset="16", length="8")
external_case("external_offset_huge", INVALID, "goes past the end", location="data.bin", offset="9223372036854775807")
external_case("external_offset_overflow", INVALID, "offset", location="data.bin", offset="18446744073709551616")
external_case("external_offset_negative", INVALID, "offset", location="data.bin", offset="-8", length="8")
external_case("external_offset_text", INVALID, "offset", location="data.bin", offset="0x10", length="8")
external_case("external_offset_blank", INVALID, "offset", location="data.bin", offset=" 8", length="8")
external_case("external_length_wrong", INVALID, "need 8", location="data.bin", offset="0", length="16")
external_case("external_length_text", INVALID, "length", location="data.bin", offset="0", length="8 bytes")
external_case("external_memory_address", MISSING, "_ORT_MEM_ADDR_", location="*/_ORT_MEM_ADDR_/*", offset="4096",
              length="8")
external_case("external_long_location", PATH, "longer than a path", location="d/" * 2500 + "x")


@case("check", PATH, -1, "absolute")
def external_in_attribute():
    a = attribute("value", 4, block(5, external("k", location="/etc/passwd")))
    return model(graph([NEG, node("Constant", [], ["k"], "c", a)]))


@case("check", PATH, -1, "absolute")
def external_in_sparse():
    values = external("s", location="/etc/passwd")
    indices = tensor("i", (2,), 7, text(9, b"\0" * 16))
    return model(graph([NEG], extra=block(15, block(1, values) + block(2, indices) + num(3, 4))))


@case("check", PATH, -1, "absolute")
def external_in_subgraph():
    inner = graph([], [external("r", location="/etc/passwd")], [], ["r"])
    branches = b"".join(attribute(name, 5, block(6, inner)) for name in ("then_branch", "else_branch"))
    return model(graph([node("If", ["x"], ["y"], extra=branches)]))


@case("check", PATH, -1, "absolute")
def external_in_function():
    a = attribute("value", 4, block(5, external("k", location="/etc/passwd")))
    body = node("Constant", [], ["fy"], "c", a)
    f = text(1, "F") + text(5, "fy") + block(7, body) + block(9, num(2, 13)) + text(10, "local")
    return model(graph([NEG]), extra=block(25, f))


@case("check", INVALID, -1, "strings")
def external_strings():
    return with_tensor(external(dtype=8, location="data.bin"))


# ---- graphs
@case("check", INVALID, -1, "initializer 'w' occurs twice")
def duplicate_initializer():
    return model(graph([NEG], [tensor(), tensor()]))


@case("check", INVALID, -1, "input 'x' occurs twice")
def duplicate_input():
    return model(graph([NEG], inputs=("x", "x")))


@case("check", INVALID, -1, "also an output of node")
def duplicate_output():
    return model(graph([NEG, node("Abs", ["x"], ["y"], "m")]))


@case("check", INVALID, -1, "graph input")
def output_named_as_input():
    return model(graph([NEG, node("Abs", ["y"], ["x"], "m")]))


@case("check", INVALID, -1, "an initializer")
def output_named_as_initializer():
    return model(graph([NEG, node("Abs", ["y"], ["w"], "m")], [tensor()]))


@case("check", INVALID, -1, "cycle")
def cycle():
    return model(graph([node("Add", ["x", "b"], ["a"], "n1"), node("Neg", ["a"], ["b"], "n2"), NEG]))


@case("check", INVALID, -1, "'n' (Neg) is part of a cycle")
def cycle_of_one():
    return model(graph([node("Neg", ["y"], ["y"])]))


@case("check", INVALID, -1, "cycle")
def cycle_through_subgraph():
    inner = graph([node("Neg", ["y"], ["r"])], [], [], ["r"])
    return model(graph([node("If", ["x"], ["y"], extra=attribute("then_branch", 5, block(6, inner)))]))


@case("check", INVALID, -1, "input 'nowhere'")
def missing_input():
    return model(graph([node("Neg", ["nowhere"], ["y"])]))


@case("check", INVALID, -1, "output 'z'")
def missing_output():
    return model(graph([NEG], outputs=("y", "z")))


@case("check", INVALID, -1, "no op_type")
def missing_op_type():
    return model(graph([node("", ["x"], ["y"])]))


@case("check", INVALID, -1, "attribute 'axis' occurs twice")
def duplicate_attribute():
    a = attribute("axis", 2, num(3, 1))
    return model(graph([node("Neg", ["x"], ["y"], extra=a + a)]))


@case("check", INVALID, -1, "attribute 'then_branch' is empty")
def graph_attribute_without_graph():
    return model(graph([node("If", ["x"], ["y"], extra=attribute("then_branch", 5, b""))]))


@case("check", INVALID, -1, "element type 99")
def input_type_unknown():
    return model(graph([NEG], extra=block(13, value("t", 99))))


# ---- versions, domains, functions
def version_case(name, code, word, **k):
    CASES.append((name, "check", code, -1, word, lambda: model(graph([NEG]), **k)))


version_case("ir_missing", INVALID, "no ir_version", ir=None)
version_case("ir_zero", INVALID, "ir_version 0", ir=0)
version_case("ir_negative", INVALID, "ir_version -1", ir=-1)
version_case("ir_999", UNSUPPORTED, "ir_version 999", ir=999)
version_case("opset_missing", INVALID, "no opset", opsets=b"")
version_case("opset_zero", INVALID, "version 0", opsets=opset(0))
version_case("opset_negative", INVALID, "version -1", opsets=opset(-1))
version_case("opset_999", UNSUPPORTED, "opset 999", opsets=opset(999))
version_case("opset_twice", INVALID, "version 12", opsets=opset(13) + opset(12))
version_case("opset_of_another_domain", INVALID, "domain ''", opsets=opset(1, "com.microsoft"))


@case("check", INVALID, -1, "com.nobody")
def domain_not_imported():
    return model(graph([node("Neg", ["x"], ["y"], extra=text(7, "com.nobody"))]))


def function(name, calls):
    body = node(calls, ["a"], ["b"], "call", text(7, "local"))
    return block(25, text(1, name) + text(4, "a") + text(5, "b") + block(7, body) + block(9, text(1, "local") + num(2, 1))
                 + text(10, "local"))


@case("check", INVALID, -1, "calls itself")
def function_calls_itself():
    return model(graph([NEG]), extra=function("f", "f"))


@case("check", INVALID, -1, "calls itself")
def functions_call_each_other():
    return model(graph([NEG]), extra=function("f", "g") + function("g", "h") + function("h", "f"))


@case("check", INVALID, -1, "function 'f'")
def duplicate_function():
    return model(graph([NEG]), extra=function("f", "g") + function("f", "h"))


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    for old in folder.glob("*.onnx"):
        old.unlink()
    (folder / "data.bin").write_bytes(struct.pack("<4f", 1, 2, 3, 4))
    rows = []
    for name, stage, code, offset, word, make in CASES:
        data = make()
        if offset is None:  # found while building; "?" where it only matters that there is one
            offset = getattr(make, "offset")
        (folder / (name + ".onnx")).write_bytes(data)
        rows.append(f"{name}\t{stage}\t{code}\t{'?' if offset is None else offset}\t{word}\n")
    (folder / "expected.tsv").write_text("".join(rows))
    print(f"{len(rows)} files in {folder}")


if __name__ == "__main__":
    main()
