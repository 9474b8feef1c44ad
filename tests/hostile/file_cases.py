"""file_cases.py - what commands read and write beside the model: overrides and other settings, samples, images, the output, and
the command line itself."""
import functools
import io
import json
import os
import pathlib
import re
import struct
import subprocess
import tarfile
import tempfile
import zipfile
import zlib

import numpy as np
from cases import family, fifo, language, network, put, sound
from common import ONQ, runtime
from onnx import TensorProto, helper, numpy_helper

# ---- texts as JSON

JSON_TEXTS = {
    "empty": "", "blank": "  ", "null": "null", "number": "7", "text": '"x"', "list": "[]", "open": "{", "comma": '{"W": [{}],}',
    "single-quotes": "{'W': [{}]}", "comment": '{} // x', "two": "{} {}", "twice": '{"W": [{"scale": 1}], "W": [{"scale": 2}]}', "nan": '{"W": NaN}',
    "bare": "{W: 1}", "not-utf8": b'{"\xff": 1}', "nul": b'{"W\0": 1}', "bom": b"\xef\xbb\xbf{}", "escape": '{"W\\ud800": 1}', "control": '{"a\x01": 1}',
    "big-number": '{"W": 1e999}', "long-number": '{"W": ' + "9" * 5000 + "}", "binary": bytes(range(256)), "utf16": "{}".encode("utf-16"),
    "deep": '{"W":' * 65 + "1" + "}" * 65, "very-deep": "[" * 100000 + "]" * 100000, "model": network().SerializeToString(),
    "many": "{" + ",".join(f'"t{i}": [{{}}]' for i in range(20000)) + "}",
}


def text_file(name, data):
    def write(folder):
        sound(folder)
        put(folder, name, data)

    return write


def odd_files(name):
    """What any file may be instead."""

    def instead(make):
        def write(folder):
            sound(folder)
            make(folder / name)

        return write

    yield "missing", instead(lambda path: None)
    yield "folder", instead(lambda path: path.mkdir())
    yield "fifo", instead(fifo)
    yield "device", instead(lambda path: path.symlink_to("/dev/zero"))
    yield "link-to-itself", instead(lambda path: path.symlink_to(path.name))


@family("overrides", slot="overrides", files=("o.json", "m.onnx"))
def overrides(r):
    for what, data in JSON_TEXTS.items():
        yield what, text_file("o.json", data)
    yield from odd_files("o.json")
    yield "50-mb", text_file("o.json", b'{"W": [{"scale": "' + b"x" * (50 << 20) + b'"}]}')

    def one(what, tensor, given, **more):
        return what, text_file("o.json", json.dumps({tensor: given})), more

    refused = {"wants": "refused"}
    for key in ("scale", "rmin", "rmax"):
        for what, bad in {"zero": 0, "negative": -1, "null": None, "text": "1", "list": [1], "object": {}, "true": True, "huge": 1e300,
                          "tiny": 1e-300, "big-integer": 10**30}.items():
            yield one(f"{key}-{what}", "c", [{key: bad, **({"zero_point": 0} if key == "scale" else {})}])
        for word in ("NaN", "Infinity", "-Infinity"):
            yield f"{key}-{word}", text_file("o.json", f'{{"c": [{{"{key}": {word}, "zero_point": 0}}]}}'), refused
    for bad in (-1, 256, 2**63, 1.5, "0", None, [0], {}):
        yield one(f"zero-point-{type(bad).__name__}-{bad}", "c", [{"scale": 0.1, "zero_point": bad}], **refused)
    for bad in ("qint7", "", "QInt8 ", 3, None, [], {"quant_type": "QInt8"}, "qint8\0"):
        yield one(f"type-{bad!r}", "c", [{"quant_type": bad}], **refused)
    for key, bad in [("symmetric", "yes"), ("symmetric", 1), ("reduce_range", None), ("axis", "0"), ("axis", None), ("axis", 1.5), ("nonsense", 1),
                     ("convert", 1), ("convert", {}), ("convert", {"quant_type": 5}), ("convert", {"quant_type": "QInt8", "recv_nodes": "x"}),
                     ("convert", {"quant_type": "QInt8", "recv_nodes": ["nobody"]})]:
        yield one(f"{key}-{json.dumps(bad)}", "c", [{key: bad}])
    for tensor, channels in [("W", 4), ("M", 5), ("M", 64), ("W", 3)]:
        for axis in (-9, -4, -2, -1, 0, 1, 2, 3, 4, 9, 2**62):
            yield one(f"axis-{tensor}-{channels}-{axis}", tensor, [{"axis": axis, "quant_type": "QInt8"}])
            yield one(f"axis-scales-{tensor}-{channels}-{axis}", tensor, [
                {"scale": 0.01 + i / 1000, "zero_point": 0, "axis": axis, "quant_type": "QInt8"} for i in range(channels)])
    for n in (0, 2, 3, 5, 4000):
        yield one(f"channels-{n}", "W", [{"scale": 0.01, "zero_point": 0, "axis": 0}] * n)
    for what, given in {"object": {}, "null": None, "number": 1, "list-of-lists": [[]], "list-of-null": [None], "text": "x"}.items():
        yield one(f"of-a-tensor-{what}", "c", given)
    for name in ("nobody", "", "W\0", "\u202e", "x" * 100000):
        yield one(f"name-{name[:9]!r}", name, [{"quant_type": "QInt8"}])
    yield one("range-turned", "c", [{"rmin": 3, "rmax": -3}])
    yield one("range-and-scale", "c", [{"rmin": -3, "rmax": 3, "scale": 1, "zero_point": 0}])
    yield one("scale-alone", "c", [{"scale": 1.0}])
    yield one("bias", "B", [{"scale": 0.1, "zero_point": 3}])
    yield one("bias-type", "B", [{"quant_type": "QInt8"}])
    yield one("output-16", "Y", [{"quant_type": "QUInt16"}], always=("overrides-qoperator",))
    yield one("input-4", "X", [{"quant_type": "QUInt4", "symmetric": False, "axis": -1, "rmin": -0.6}], always=("overrides-channels",))
    kinds = ["QInt8", "QUInt8", "QInt16", "QUInt16", "QInt4", "QUInt4"]
    for i in range(40):
        given = {}
        for tensor in r.sample(["X", "c", "r", "f", "Y", "W", "M", "B"], r.choice([1, 2, 3])):
            entry = {}
            for key, draw in [("quant_type", lambda: r.choice(kinds)), ("symmetric", lambda: r.random() < 0.5), ("reduce_range", lambda: r.random() < 0.5),
                              ("axis", lambda: r.choice([-1, 0, 1, 2])), ("rmin", lambda: -r.random()), ("rmax", lambda: r.random()),
                              ("scale", r.random), ("zero_point", lambda: r.choice([0, 0, 1, 8, 100, 128]))]:
                if r.random() < 0.3:
                    entry[key] = draw()
            if r.random() < 0.2:
                entry["convert"] = {"quant_type": r.choice(kinds), **({"recv_nodes": [r.choice(["relu", "flat", "mm"])]} if r.random() < 0.5 else {})}
            given[tensor] = [entry] * r.choice([1, 1, 1, 4, 5])
        yield f"random-{i}", text_file("o.json", json.dumps(given))


@family("settings", slot="settings", files=("s.json", "m.onnx"))
def settings(r):
    for what, data in JSON_TEXTS.items():
        yield what, text_file("s.json", data)
    yield from odd_files("s.json")
    for what, given in {
        "entries-null": {"X": None, "mm": None}, "entries-text": {"X": "x", "mm": "x"}, "entries-list": {"X": [1, 2, 3], "mm": []},
        "entries-pair": {"X": [0, -1.0], "c": [300, 1.0]}, "entries-object": {"X": {}, "mm": {"bits": 99, "group_size": -1}},
        "entries-bits": {"mm": {"bits": "4"}}, "entries-block": {"mm": {"group_size": 7}}, "entries-scheme": {"mm": {"scheme": "x"}},
        "cache-empty": {"CLS": "TensorsData"}, "cache-data": {"CLS": "TensorsData", "data": [], "calibration_method": 1},
        "cache-names": {"CLS": "TensorsData", "data": {"X": 1}, "calibration_method": {"CLS": "CalibrationMethod", "value": "CalibrationMethod.MinMax"}},
        "cache-method": {"CLS": "TensorsData", "data": {}, "calibration_method": {"CLS": "CalibrationMethod", "value": "CalibrationMethod.Nothing"}},
        "cache-range": {"CLS": "TensorsData", "data": {n: {"CLS": "TensorData", "lowest": {"data": [5.0], "dtype": "float32", "CLS": "numpy.array"}, "highest": {
            "data": [-5.0], "dtype": "float32", "CLS": "numpy.array"}} for n in "XcrfY"}, "calibration_method": {"CLS": "CalibrationMethod", "value": "CalibrationMethod.MinMax"}},
        "cache-count": {"CLS": "TensorsData", "data": {n: {"CLS": "TensorData", "lowest": {"data": [], "dtype": "float32", "CLS": "numpy.array"}, "highest": {
            "data": [1.0, 2.0], "dtype": "float99", "CLS": "numpy.array"}} for n in "XcrfY"}, "calibration_method": {"CLS": "CalibrationMethod", "value": "CalibrationMethod.MinMax"}},
        "plan-empty": {"nodes": [], "tensors": []}, "plan-version": {"onq_plan": 999}, "plan-nodes": {"nodes": 5}, "methods": {"mm": "nothing", "conv": 3},
        "costs": {"units": [{"name": "conv", "float_us": -1}]},
    }.items():
        yield what, text_file("s.json", json.dumps(given))


ODD_JSON = [None, True, -1, 0, 2**31, 2**63, -2**63, 10**40, 1e308, -0.0, "", "x", "NaN", "\0", "\u202e\x1b[31m", [], [[]], {}, {"CLS": "numpy.array"}, ["X"] * 3, 1.5]


def places(tree):
    """Every (container, key) of a JSON tree."""
    for key, v in tree.items() if isinstance(tree, dict) else enumerate(tree):
        yield tree, key
        if isinstance(v, (dict, list)):
            yield from places(v)


@functools.cache
def made_by_onq():
    """A plan and a cache that the sound network has."""
    with tempfile.TemporaryDirectory() as folder:
        sound(pathlib.Path(folder))
        subprocess.run([ONQ, "static", "-q", *"-i m.onnx -o q.onnx --data random:2 --plan plan.json --calibration_cache cache.json".split()], cwd=folder, check=True,
                       env={**os.environ, **runtime()}, capture_output=True)
        return {what: (pathlib.Path(folder) / f"{what}.json").read_text() for what in ("plan", "cache")}


@family("settings", slot="settings", files=("s.json", "m.onnx"))
def changed_settings(r):
    for what, text in made_by_onq().items():
        for i in range(60):
            tree = json.loads(text)
            for _ in range(r.choice([1, 1, 2])):
                container, key = r.choice(list(places(tree)))
                change = r.choice(["odd", "odd", "drop", "twice"])
                if change == "odd":
                    container[key] = r.choice(ODD_JSON)
                elif change == "drop":
                    del container[key]
                elif isinstance(container, list):
                    container.append(container[key])
                else:
                    container[f"{key}_"] = container[key]
            yield f"{what}-changed-{i}", text_file("s.json", json.dumps(tree))


# ---- samples: s/test_data_set_0/input_0.pb, s.npy, s.npz

def pb_set(data, name="input_0.pb", folder_name="test_data_set_0"):
    def write(folder):
        sound(folder)
        put(folder, f"s/{folder_name}/{name}", data)

    return write


IMAGE = np.random.default_rng(1).standard_normal((1, 3, 4, 4)).astype(np.float32)


@family("samples .pb", slot="samples s", files=("s/", "s:", "s ", "'s'", "m.onnx", "input_0"))
def samples_pb(r):
    good = numpy_helper.from_array(IMAGE, "X")
    data = good.SerializeToString()
    yield "sound", pb_set(data), {"wants": "done"}
    for i in range(8):
        yield f"cut-{i}", pb_set(data[:r.randrange(len(data))])
        flipped = bytearray(data)
        flipped[r.choice([r.randrange(len(data)), r.randrange(12), len(data) - 1 - r.randrange(5)])] ^= 1 << r.randrange(8)
        yield f"flip-{i}", pb_set(bytes(flipped))
    for what, a in {"rank": IMAGE[0], "shape": IMAGE[:, :2], "double": IMAGE.astype(np.float64), "integers": IMAGE.astype(np.int32),
                    "empty": IMAGE[:0], "scalar": np.float32(1)}.items():
        yield what, pb_set(numpy_helper.from_array(np.asarray(a), "X").SerializeToString())
    for what, v in {"nan": np.nan, "inf": np.inf, "-inf": -np.inf, "huge": 3e38, "denormal": 1e-42, "zero": 0, "constant": 0.5}.items():
        spoiled = IMAGE.copy()
        spoiled.flat[7] = v
        yield what, pb_set(numpy_helper.from_array(spoiled, "X").SerializeToString())
        yield f"all-{what}", pb_set(numpy_helper.from_array(np.full_like(IMAGE, v), "X").SerializeToString())
    t = TensorProto()
    t.CopyFrom(good)
    t.dims[:] = [2**40, 3, 4, 4]
    yield "dims-large", pb_set(t.SerializeToString()), {"wants": "refused"}
    t.dims[:] = [-1, 3, 4, 4]
    yield "dims-negative", pb_set(t.SerializeToString()), {"wants": "refused"}
    t.CopyFrom(good)
    t.ClearField("raw_data")
    t.data_location = TensorProto.EXTERNAL
    for what, location in [("passwd", "/etc/passwd"), ("above", "../../m.onnx"), ("device", "/dev/zero"), ("memory", "*/_ORT_MEM_ADDR_/*")]:
        del t.external_data[:]
        t.external_data.add(key="location", value=location)
        yield f"external-{what}", pb_set(t.SerializeToString()), {"wants": "refused"}
    yield "wrong-name", pb_set(data, "input_7.pb")
    yield "wrong-folder", pb_set(data, folder_name="data")
    yield "number-huge", pb_set(data, folder_name="test_data_set_99999999999999999999")
    yield "two-inputs", lambda folder: (pb_set(data)(folder), put(folder, "s/test_data_set_0/input_1.pb", data), None)[2]
    yield "model-instead", pb_set(network().SerializeToString())
    yield "text", pb_set(b"hello")
    yield "empty-file", pb_set(b"")
    yield "no-files", lambda folder: (sound(folder), (folder / "s/test_data_set_0").mkdir(parents=True), None)[2]
    yield "no-folders", lambda folder: (sound(folder), (folder / "s").mkdir(), None)[2]
    yield "fifo", lambda folder: (pb_set(data)(folder), (folder / "s/test_data_set_0/input_0.pb").unlink(), fifo(
        folder / "s/test_data_set_0/input_0.pb"), None)[3]
    yield "device", lambda folder: (sound(folder), (folder / "s").symlink_to("/dev/zero"), None)[2]
    yield "device-inside", lambda folder: (pb_set(data, "x.pb")(folder), (folder / "s/test_data_set_0/input_0.pb").symlink_to("/dev/zero"), None)[2]
    yield "folders-5000", lambda folder: (sound(folder), [(folder / f"s/test_data_set_{i}").mkdir(parents=True) for i in range(5000)], None)[2]
    yield "odd-name", lambda folder: (sound(folder), put(folder, "s/test_data_set_0/input_0\x1b[31m.pb", data), None)[2]


def npy(a, version=None, order="C"):
    out = io.BytesIO()
    np.lib.format.write_array(out, np.asarray(a, order=order), version=version)
    return out.getvalue()


def header(text, payload=b"\0" * 192, version=1):
    raw = text.encode("latin-1")
    raw += b" " * (-(len(raw) + 11) % 64) + b"\n"
    size = struct.pack("<H", len(raw) & 65535) if version == 1 else struct.pack("<I", len(raw))
    return b"\x93NUMPY" + bytes([version, 0]) + size + raw + payload


def single(name, data):
    def write(folder):
        sound(folder)
        put(folder, name, data)

    return write


def describe(descr="'<f4'", order="False", shape="(1, 3, 4, 4)", more=""):
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, {more}}}"


@family("samples .npy", slot="samples s.npy", files=("s.npy", "m.onnx"))
def samples_npy(r):
    data = npy(IMAGE)
    yield "sound", single("s.npy", data), {"wants": "done"}
    yield "several", single("s.npy", npy(np.stack([IMAGE] * 3))), {"wants": "done"}
    yield "fortran", single("s.npy", npy(IMAGE, order="F")), {"wants": "done"}
    yield "big-endian", single("s.npy", npy(IMAGE.astype(">f4"))), {"wants": "done"}
    for i in range(10):
        yield f"cut-{i}", single("s.npy", data[:r.randrange(len(data))])
        flipped = bytearray(data)
        flipped[r.randrange(130)] ^= 1 << r.randrange(8)
        yield f"flip-{i}", single("s.npy", bytes(flipped))
    for what, text in {"pickled": describe("'|O'"), "structured": describe("[('a', '<f4')]"), "negative": describe(shape="(-1, 3, 4, 4)"),
                       "large": describe(shape="(9223372036854775807, 3, 4, 4)"), "overflow": describe(shape="(4294967296, 4294967296, 4, 4)"),
                       "huge": describe(shape="(1099511627776,)"), "long-tuple": describe(shape="(" + "1," * 3000 + ")"), "code": describe(shape="__import__('os')"),
                       "extra": describe(more="'x': 1"), "no-shape": "{'descr': '<f4', 'fortran_order': False}", "nested": describe(shape="(" * 200 + ")" * 200),
                       "width-0": describe("'<f0'"), "width-huge": describe("'<f99999999999'"), "unicode": describe("'<U4'"), "nul": describe("'<f\\x004'"),
                       "order-text": describe(order="'no'"), "float-dims": describe(shape="(1.0, 3, 4, 4)"), "dims-text": describe(shape="('1',)"),
                       "zero": describe(shape="(0, 3, 4, 4)"), "scalar": describe(shape="()"), "double": describe("'<f8'"), "empty": "", "text": "hello"}.items():
        yield what, single("s.npy", header(text))
    yield "header-bomb", single("s.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"{" * 100)
    yield "header-long", single("s.npy", header(describe(more="'x': '" + "y" * 60000 + "'"), version=2))
    yield "version-9", single("s.npy", header(describe(), version=9))
    yield "longer", single("s.npy", data + bytes(1000))
    yield "nan", single("s.npy", npy(np.full_like(IMAGE, np.nan)))
    for what, make in odd_files("s.npy"):
        yield f"file-{what}", make


def archive(*members, method=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        for name, data in members:
            z.writestr(name, data)
    return out.getvalue()


@family("samples .npz", slot="samples s.npz", files=("s.npz", "m.onnx"))
def samples_npz(r):
    data = archive(("X.npy", npy(IMAGE)))
    yield "sound", single("s.npz", data), {"wants": "done"}
    for i in range(10):
        yield f"cut-{i}", single("s.npz", data[:r.randrange(len(data))])
        flipped = bytearray(data)
        for _ in range(r.choice([1, 3])):
            flipped[r.choice([r.randrange(60), len(data) - 1 - r.randrange(90), r.randrange(len(data))])] ^= 1 << r.randrange(8)
        yield f"flip-{i}", single("s.npz", bytes(flipped))
    yield "bomb", single("s.npz", archive(("X.npy", header(describe(shape="(100, 1, 3, 4, 4)"), bytes(64 << 20)))))
    yield "bomb-claimed", single("s.npz", archive(("X.npy", header(describe(shape="(4000000, 1, 3, 4, 4)"), bytes(1 << 20)))))
    yield "twice", single("s.npz", archive(("X.npy", npy(IMAGE)), ("X.npy", npy(IMAGE))))
    yield "no-arrays", single("s.npz", archive())
    yield "other-name", single("s.npz", archive(("Y.npy", npy(IMAGE))))
    yield "more-names", single("s.npz", archive(("X.npy", npy(IMAGE)), ("Z.npy", npy(IMAGE))))
    yield "climbing-name", single("s.npz", archive(("../X.npy", npy(IMAGE))))
    yield "odd-name", single("s.npz", archive(("X\x1b[31m.npy", npy(IMAGE))))
    yield "pickled", single("s.npz", archive(("X.npy", header(describe("'|O'")))))
    yield "members-50000", lambda folder: single("s.npz", archive(*((f"{i}.npy", b"") for i in range(50000))))(folder)
    yield "method-bzip2", single("s.npz", archive(("X.npy", npy(IMAGE)), method=zipfile.ZIP_BZIP2))
    encrypted = bytearray(data)
    encrypted[6] |= 1
    encrypted[data.rindex(b"PK\1\2") + 8] |= 1
    yield "encrypted", single("s.npz", bytes(encrypted))
    for what, at, width, v in [("size-32", 24, 4, 2**32 - 1), ("packed-32", 20, 4, 2**32 - 2), ("offset", 42, 4, 2**32 - 2), ("name-length", 28, 2, 65535),
                               ("offset-self", 42, 4, data.rindex(b"PK\1\2")), ("crc", 16, 4, 1)]:
        changed = bytearray(data)
        start = data.rindex(b"PK\1\2") + at
        changed[start:start + width] = v.to_bytes(width, "little")
        yield f"directory-{what}", single("s.npz", bytes(changed))
    # Sizes and offsets of 64 bits, as the extra field has them.
    end = data.rindex(b"PK\5\6")
    at = data.rindex(b"PK\1\2")
    for what, sizes in {"sound": (len(npy(IMAGE)), None), "most": (2**64 - 1, 2**64 - 1), "large": (2**62, None)}.items():
        row = bytearray(data[at:end])
        packed = int.from_bytes(row[20:24], "little") if sizes[1] is None else sizes[1]
        row[20:28] = b"\xff" * 8
        row[30:32] = (20).to_bytes(2, "little")
        row += struct.pack("<HHQQ", 1, 16, sizes[0], packed)
        tail = bytearray(data[end:])
        tail[12:16] = len(row).to_bytes(4, "little")
        yield f"zip64-{what}", single("s.npz", data[:at] + bytes(row) + bytes(tail)), {} if what == "sound" else {"wants": "refused"}
    yield "absolute-name", single("s.npz", archive(("/etc/X.npy", npy(IMAGE))))
    yield "inside-a-folder", single("s.npz", archive(("sub/X.npy", npy(IMAGE))))
    yield "comment", single("s.npz", data[:-2] + b"\xff\xff" + b"PK\5\6" * 16383 + b"xyz")
    for what, make in odd_files("s.npz"):
        yield f"file-{what}", make


# ---- streams: s.tar, and what a program writes

def tar_of(*members):
    """Members: (name, data), or (name, data, dict of TarInfo's fields)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as t:
        for name, data, *more in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            for key, v in (more[0] if more else {}).items():
                setattr(info, key, v)
            t.addfile(info, io.BytesIO(data) if info.isreg() else None)
    return out.getvalue()


def resized(data, size):
    """The first header with these twelve bytes as its size, and a checksum that fits."""
    head = bytearray(data[:512])
    head[124:136] = size
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + data[512:]


@family("samples .tar", slot="samples s.tar", files=("s.tar", "m.onnx"))
def samples_tar(r):
    one = npy(IMAGE)
    data = tar_of(("a.npy", one))
    done, refused = {"wants": "done"}, {"wants": "refused"}
    yield "sound", single("s.tar", data), done
    yield "npz", single("s.tar", tar_of(("a.npz", archive(("X.npy", one))))), done
    yield "twice", single("s.tar", tar_of(("a.npy", one), ("a.npy", one))), done
    for name in ("/etc/passwd.npy", "../../a.npy", "a\nb.npy", "a\x1b[31m.npy", "x" * 5000 + ".npy", "\udcff.npy", "<b>.npy"):
        yield f"name-{name[:14]!r}", single("s.tar", tar_of((name, one))), done
        yield f"name-of-nothing-{name[:14]!r}", single("s.tar", tar_of((name, b"nothing"))), refused
    for what, kind, to in [("link", tarfile.SYMTYPE, "/etc/passwd"), ("hard-link", tarfile.LNKTYPE, "b.npy"), ("fifo", tarfile.FIFOTYPE, ""),
                           ("device", tarfile.CHRTYPE, ""), ("folder", tarfile.DIRTYPE, ""), ("unknown", b"Z", "")]:
        member = ("a.npy", b"", {"type": kind, "linkname": to})
        yield what, single("s.tar", tar_of(member)), {**refused, "always": ("auto", "bench") if what == "link" else ()}
        yield f"{what}-and-file", single("s.tar", tar_of(member, ("b.npy", one))), done
    for what, size in {"octal-most": b"77777777777\0", "no-number": b"zzzzzzzzzzz\0", "minus": b"-0000000001\0", "binary-most": b"\x80" + b"\xff" * 11,
                       "binary-minus": b"\xff" * 12, "binary-4g": b"\x80" + (2**32 - 1).to_bytes(11, "big"), "blank": b" " * 12, "short": b"1\0" + b"\0" * 10}.items():
        yield f"size-{what}", single("s.tar", resized(data, size)), refused
    yield "checksum", single("s.tar", data[:100] + b"9" + data[101:]), refused
    for what, fields in {"size": {"size": "99999999999"}, "size-minus": {"size": "-1"}, "path": {"path": "p" * 70000 + ".npy"}, "sparse": {
            "GNU.sparse.major": "1", "GNU.sparse.minor": "0"}}.items():
        made = tarfile.TarInfo("a.npy")
        made.size, made.pax_headers = len(one), fields
        yield f"pax-{what}", single("s.tar", made.tobuf(tarfile.PAX_FORMAT) + one + bytes(-len(one) % 512 + 1024))
    text = b"999999999 size=5\n"
    bad = tarfile.TarInfo("x")
    bad.size, bad.type = len(text), tarfile.XHDTYPE
    yield "pax-length", single("s.tar", bad.tobuf(tarfile.USTAR_FORMAT) + text + bytes(-len(text) % 512) + data)
    for i in range(10):
        yield f"cut-{i}", single("s.tar", data[:r.randrange(len(data))])
        flipped = bytearray(data)
        flipped[r.randrange(700)] ^= 1 << r.randrange(8)
        yield f"flip-{i}", single("s.tar", bytes(flipped))
    yield "empty", single("s.tar", b""), refused
    yield "only-zeros", single("s.tar", bytes(10240)), refused
    yield "compressed", single("s.tar", zlib.compress(data)), refused
    yield "members-20000", lambda folder: single("s.tar", tar_of(*((f"{i}.txt", b"") for i in range(20000)), ("a.npy", one)))(folder), {**done, "heavy": True}
    yield "bomb-inside", single("s.tar", tar_of(("a.npz", archive(("X.npy", header(describe(shape="(100, 1, 3, 4, 4)"), bytes(64 << 20))))))), refused
    for what, make in odd_files("s.tar"):
        yield f"file-{what}", make, refused


@family("samples exec", slot="samples exec:./feed", files=("exec:./feed", "m.onnx"))
def samples_of_programs(r):
    def program(data, last="", first=""):
        def write(folder):
            sound(folder)
            put(folder, "stream", data)
            put(folder, "feed", f"#!/bin/sh\n{first}\ncat stream\n{last}\n").chmod(0o755)

        return write

    one = npy(IMAGE)
    done, refused = {"wants": "done"}, {"wants": "refused"}
    yield "arrays", program(one * 3), done
    yield "tar", program(tar_of(("a.npy", one), ("b.npy", one))), done
    yield "nothing", program(b""), refused
    yield "text", program(b"hello"), refused
    yield "fails", program(one * 2, "exit 3"), refused
    yield "killed", program(one * 2, "kill -9 $$"), refused
    yield "cut", program(one * 2 + one[:-1]), refused
    yield "cut-header", program(one + one[:50]), refused
    yield "other-type", program(npy(IMAGE.astype(np.int32))), refused
    yield "nan", program(one + npy(np.full_like(IMAGE, np.nan)))
    # A promise of gigabytes that nothing follows costs neither time nor memory.
    for what, shape in {"3-gb": "(16000000, 1, 3, 4, 4)", "most": "(22369620, 1, 3, 4, 4)", "past-the-limit": "(30000000, 1, 3, 4, 4)", "overflow": "(4294967296, 4294967296)"}.items():
        yield f"promise-{what}", program(header(describe(shape=shape))), refused
    yield "prefix-long", program(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"{" * 100), refused
    yield "missing-program", lambda folder: sound(folder), refused
    yield "folder-instead", lambda folder: (sound(folder), (folder / "feed").mkdir(), None)[2], refused


# ---- images

def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width=4, height=4, depth=8, color=2, rows=None, extra=b""):
    lanes = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}.get(color, 3)
    if rows is None:
        rows = b"".join(b"\0" + bytes((x * 7) & 255 for x in range((width * lanes * depth + 7) // 8)) for _ in range(height))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, 0)) + extra
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


# 8x8 grey, baseline: small enough to write down.
JPEG = bytes.fromhex(
    "ffd8ffe000104a46494600010100000100010000ffdb004300080606070605080707070909080a0c140d0c0b0b0c1912130f141d1a1f1e1d1a1c1c20242e2720222c231c1c28"
    "37292c30313434341f27393d38323c2e333432ffc0000b080008000801011100ffc4001f0000010501010101010100000000000000000102030405060708090a0bffc400b510"
    "0002010303020403050504040000017d01020300041105122131410613516107227114328191a1082342b1c11552d1f02433627282090a161718191a25262728292a34353637"
    "38393a434445464748494a535455565758595a636465666768696a737475767778797a838485868788898a92939495969798999aa2a3a4a5a6a7a8a9aab2b3b4b5b6b7b8b9ba"
    "c2c3c4c5c6c7c8c9cad2d3d4d5d6d7d8d9dae1e2e3e4e5e6e7e8e9eaf1f2f3f4f5f6f7f8f9faffda0008010100003f00fbfa28a2803fffd9")


def progressive(width, height, scans):
    """A grey image in so many scans: one of a first coefficient, and then the same of all others, each four bytes of data."""
    def scan(first, last, data):
        return b"\xff\xda\0\x08\1\1\0" + bytes([first, last, 0]) + data

    def table(kind, symbol):
        return b"\xff\xc4\0\x14" + bytes([kind, 1] + [0] * 15 + [symbol])

    return (b"\xff\xd8\xff\xdb\0\x43\0" + b"\1" * 64 + b"\xff\xc2" + struct.pack(">HBHHB", 11, 8, height, width, 1) + b"\1\x11\0" + table(0, 0) + table(0x10, 0xe0)
            + scan(0, 0, bytes(8)) + scan(1, 63, bytes(4)) * scans + b"\xff\xd9")


@family("images", slot="samples s", files=("s/", "s:", "s ", "'s'", "m.onnx"))
def images(r):
    def folder_of(name, data):
        def write(folder):
            sound(folder)
            put(folder, f"s/{name}", data)

        return write

    for color, depths in {0: (1, 2, 4, 8, 16), 2: (8, 16), 4: (8, 16), 6: (8, 16)}.items():
        for depth in depths:
            yield f"png-{color}-{depth}", folder_of("a.png", png(depth=depth, color=color)), {"wants": "done"}
    yield "png-1x1", folder_of("a.png", png(1, 1)), {"wants": "done"}
    for what, size in {"wide": (2**31 - 1, 1), "square": (60000, 60000), "zero": (0, 4), "negative": (2**32 - 1, 4)}.items():
        yield f"png-{what}", folder_of("a.png", png(*size, rows=b"\0" * 100))
    for name in ("<img src=x onerror=alert(1)>", "a\nonq: error: forged", "\x1b[31m", "\udcff\udcfe", "-o", "$(touch x)", "'", " "):
        yield f"name-{name!r}", folder_of(f"{name}.png", png()), {"wants": "done"}
        yield f"name-of-nothing-{name!r}", folder_of(f"{name}.png", b"hello"), {"wants": "refused"}
    yield "png-palette-missing", folder_of("a.png", png(color=3))
    yield "png-palette-short", folder_of("a.png", png(color=3, extra=chunk(b"PLTE", b"\1\2\3")))
    yield "png-color-5", folder_of("a.png", png(color=5))
    yield "png-depth-3", folder_of("a.png", png(depth=3))
    yield "png-text-bomb", folder_of("a.png", png(extra=chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(32 << 20)))))
    yield "png-profile-bomb", folder_of("a.png", png(extra=chunk(b"iCCP", b"k\0\0" + zlib.compress(bytes(32 << 20)))))
    for what, data in [("png", png()), ("jpg", JPEG)]:
        for i in range(8):
            yield f"{what}-cut-{i}", folder_of(f"a.{what}", data[:r.randrange(len(data))])
            flipped = bytearray(data)
            for _ in range(r.choice([1, 2])):
                flipped[r.randrange(len(data))] ^= 1 << r.randrange(8)
            yield f"{what}-flip-{i}", folder_of(f"a.{what}", bytes(flipped))
    at = JPEG.index(b"\xff\xc0")
    for what, where, new in [("large", 5, b"\xff\xff\xff\xff"), ("flat", 5, b"\0\0\0\x08"), ("twelve-bits", 4, b"\x0c"), ("four-components", 9, b"\4"),
                             ("no-components", 9, b"\0"), ("progressive", 1, b"\xc2"), ("lossless", 1, b"\xc3"), ("arithmetic", 1, b"\xc9")]:
        changed = bytearray(JPEG)
        changed[at + where:at + where + len(new)] = new
        yield f"jpg-{what}", folder_of("a.jpg", bytes(changed))
    exif = b"Exif\0\0II*\0\x08\0\0\0\xff\xff" + b"\x12\1\3\0\1\0\0\0\xff\xff\0\0" * 3
    yield "jpg-exif", folder_of("a.jpg", JPEG[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + JPEG[2:])
    yield "jpg-comment", folder_of("a.jpg", JPEG[:2] + (b"\xff\xfe\xff\xff" + b"x" * 65533) * 100 + JPEG[2:])
    yield "jpg", folder_of("a.jpg", JPEG), {"wants": "done"}
    yield "jpg-scans-50", folder_of("a.jpg", progressive(64, 64, 50)), {"wants": "done"}
    yield "jpg-scans-3000", folder_of("a.jpg", progressive(8000, 8000, 3000)), {"wants": "refused", "always": ("run",)}
    yield "jpg-named-png", folder_of("a.png", JPEG)
    yield "gif", folder_of("a.png", b"GIF89a" + bytes(20))
    yield "text", folder_of("a.jpg", b"hello")
    yield "empty", folder_of("a.jpg", b"")
    yield "device", lambda folder: (folder_of("b.png", png())(folder), (folder / "s/a.png").symlink_to("/dev/zero"), None)[2]
    yield "fifo", lambda folder: (folder_of("b.png", png())(folder), fifo(folder / "s/a.png"), None)[2]
    yield "folder", lambda folder: (folder_of("b.png", png())(folder), (folder / "s/a.png").mkdir(), None)[2]
    yield "mixed", lambda folder: (folder_of("b.png", png())(folder), put(folder, "s/c.npy", npy(IMAGE)), None)[2]


# ---- where the output goes

@family("outputs", slot="output", files=("out", "m.onnx"))
def outputs(r):
    def place(make):
        def write(folder):
            sound(folder)
            make(folder, folder / "out.onnx")

        return write

    refused = {"wants": "refused"}
    yield "folder", place(lambda f, out: out.mkdir()), refused
    yield "full-device", place(lambda f, out: out.symlink_to("/dev/full")), refused
    yield "fifo", place(lambda f, out: fifo(out)), refused
    yield "link-to-missing-folder", place(lambda f, out: out.symlink_to("missing/out.onnx")), refused
    yield "link-to-itself", place(lambda f, out: out.symlink_to("out.onnx")), refused
    yield "link-to-the-input", place(lambda f, out: out.symlink_to("m.onnx")), refused
    yield "hard-link-to-the-input", place(lambda f, out: os.link(f / "m.onnx", out)), refused
    yield "file-of-the-kernel", place(lambda f, out: out.symlink_to("/proc/version")), refused
    yield "link-to-a-file", place(lambda f, out: (put(f, "old.onnx", b"old"), out.symlink_to("old.onnx"))), {"wants": "done"}
    yield "old-output", place(lambda f, out: put(f, "out.onnx", b"old")), {"wants": "done"}
    yield "data-is-a-folder", place(lambda f, out: (f / "out.onnx.data").mkdir())


# ---- the command line

def option_rows():
    """Long options of each command that take a value, from its help."""
    rows = []
    names = subprocess.run([ONQ, "--list-commands"], capture_output=True, text=True, check=True).stdout.split()
    for command in names:
        page = subprocess.run([ONQ, command, "--help"], capture_output=True, text=True, check=True).stdout
        for found in re.finditer(r"^ +(?:-\w, )? *--(\w+)(.*)$", page, re.M):
            rows.append((command, found[1]))
    return list(dict.fromkeys(rows))


ODD_VALUES = ["", " ", "-1", "0", "99999999999999999999999", "nan", "inf", "1e999", "0x10", "\u0663", "\x1b[31m", "a\nb", "%s%n", "@missing", "@.", "@/dev/zero",
              "{", "[1,2", "re:[", "re:(a*)*b", ",", ",,,", "\\", "=", "a=b=c", ":", "MatMul:x", "x" * 100000, "true", "None", "-", "--", "m.onnx", "/dev/zero", ".", "1/0", "7/3",
              "random:0", "random:-1", "random:99999999999999999999", "random:1:x", "exec:false", "exec:", "http://x/"]


@family("words", slot="words", files=())
def words(r):
    for command, option in option_rows():
        if option in ("help", "evaluate", "time_limit"):
            continue
        for value in r.sample(ODD_VALUES, 3):
            yield f"{command}-{option}-{value[:12]!r}", [command, f"--{option}={value}"]
