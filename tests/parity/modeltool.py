"""modeltool.py - drives build/tests/model_tool, compares messages field by field, finds models to test on.

Messages are compared by their descriptors, so a field cannot be forgotten: presence, order of repeated
fields, bits of floats, and unknown fields count.
"""
import pathlib
import struct
import subprocess

from google.protobuf import unknown_fields
from google.protobuf.descriptor import FieldDescriptor

from common import BUILD, MODELS, ROOT  # noqa: F401 - for those who import them from here


class ToolError(Exception):
    def __init__(self, code, offset, text):
        super().__init__(text)
        self.code, self.offset, self.text = code, offset, text


class Tool:
    """One model_tool process that serves many commands."""

    def __init__(self):
        self.process = subprocess.Popen([str(BUILD / "tests" / "model_tool"), "-"], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, encoding="utf-8", errors="replace")

    def __call__(self, *words):
        self.process.stdin.write("\t".join(str(w) for w in words) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().rstrip("\n")
        if answer == "ok":
            return
        if not answer.startswith("error "):
            raise RuntimeError(f"model_tool died on {words}: {answer!r}, status {self.process.poll()}")
        _, code, offset, text = answer.split(" ", 3)
        raise ToolError(int(code), int(offset), text)

    def close(self):
        self.process.stdin.close()
        return self.process.wait()


def shared_models():
    return sorted(MODELS.glob("*/model.onnx"))


def testdata_models():
    """Every .onnx of Debian's libonnx-testdata, or none where it is not installed."""
    try:
        listing = subprocess.run(["dpkg", "-L", "libonnx-testdata"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return sorted(pathlib.Path(p) for p in listing.splitlines() if p.endswith(".onnx"))


def _scalar(field, value):
    """Floats by their bits: a NaN equals itself, 0.0 differs from -0.0."""
    if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT:
        return struct.pack("<f", value)
    if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
        return struct.pack("<d", value)
    return value


def _unknown(message):
    """Unknown fields as comparable values, in order."""
    out = []
    for f in unknown_fields.UnknownFieldSet(message):
        data = f.data
        if f.wire_type == 3:
            data = _unknown_set(data)
        out.append((f.field_number, f.wire_type, data))
    return out


def _unknown_set(group):
    return [(f.field_number, f.wire_type, _unknown_set(f.data) if f.wire_type == 3 else f.data) for f in group]


def difference(a, b, where=""):
    """The first difference of two messages as text, or None."""
    if a.DESCRIPTOR.full_name != b.DESCRIPTOR.full_name:
        return f"{where}: {a.DESCRIPTOR.full_name} against {b.DESCRIPTOR.full_name}"
    for field in a.DESCRIPTOR.fields:
        at = f"{where}.{field.name}"
        x, y = getattr(a, field.name), getattr(b, field.name)
        if field.is_repeated:
            if len(x) != len(y):
                return f"{at}: {len(x)} elements against {len(y)}"
            for i, (u, v) in enumerate(zip(x, y)):
                if field.message_type is not None:
                    found = difference(u, v, f"{at}[{i}]")
                    if found:
                        return found
                elif _scalar(field, u) != _scalar(field, v):
                    return f"{at}[{i}]: {u!r} against {v!r}"
            continue
        if field.has_presence and a.HasField(field.name) != b.HasField(field.name):
            return f"{at}: {'there' if a.HasField(field.name) else 'absent'} against the opposite"
        if field.message_type is not None:
            if a.HasField(field.name):
                found = difference(x, y, at)
                if found:
                    return found
        elif _scalar(field, x) != _scalar(field, y):
            return f"{at}: {x!r} against {y!r}"
    if _unknown(a) != _unknown(b):
        return f"{where}: unknown fields {_unknown(a)} against {_unknown(b)}"
    return None
