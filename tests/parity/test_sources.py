"""What --data reads is what numpy, onnx and Pillow read: an Identity model shows its input, bit for bit."""
import io
import os
import struct
import zipfile

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from common import onq, refused

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: 0 image tests run")

NUMPY_TYPES = ["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
               "bool", "complex64", "complex128"]
RUNS_IDENTITY = [t for t in NUMPY_TYPES if not t.startswith("complex")]  # what the runtime has Identity for


def identity(path, *inputs):
    """Each input is (name, ONNX type, shape)."""
    nodes = [helper.make_node("Identity", [n], [n + "_out"]) for n, _, _ in inputs]
    g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(n, t, s) for n, t, s in inputs],
                          [helper.make_tensor_value_info(n + "_out", t, s) for n, t, s in inputs])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), str(path))
    return path


def onnx_type(dtype):
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def outputs(tmp_path, model, source, *words):
    out = tmp_path / "out"
    data = [] if source is None else ["--data", source]
    r = onq("run", model, *data, "-o", out, "--quiet", *words)
    assert r.returncode == 0, r.stderr
    samples = []
    for k in range(len(list(out.iterdir()))):
        folder = out / f"test_data_set_{k}"
        values = []
        for i in range(len(list(folder.iterdir()))):
            m = onnx.TensorProto()
            m.ParseFromString((folder / f"output_{i}.pb").read_bytes())
            values.append(numpy_helper.to_array(m))
        samples.append(values)
    return samples


def some(dtype, shape, seed=0):
    rng = np.random.default_rng(seed)
    if np.dtype(dtype) == bool:
        return rng.integers(0, 2, shape).astype(bool)
    if np.dtype(dtype).kind in "iu":
        i = np.iinfo(dtype)
        return rng.integers(i.min, i.max, shape, dtype=dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)


def equal(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# ---------------------------------------------------------------- .npy and .npz
@pytest.mark.parametrize("dtype", RUNS_IDENTITY)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("byteorder", ["<", ">"])
def test_npy(tmp_path, dtype, order, byteorder):
    x = some(dtype, (2, 3, 4))
    model = identity(tmp_path / "m.onnx", ("x", onnx_type(dtype), [2, 3, 4]))
    np.save(tmp_path / "x.npy", np.asarray(x, order=order).astype(np.dtype(dtype).newbyteorder(byteorder), order="K"))
    [[got]] = outputs(tmp_path, model, tmp_path / "x.npy")
    assert equal(got, x)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("compressed", [True, False])
def test_npz_samples_along_the_first_axis(tmp_path, order, compressed):
    a, b = some("float32", (7, 2, 5), 1), some("int64", (7,), 2)
    model = identity(tmp_path / "m.onnx", ("a", TensorProto.FLOAT, [2, "n"]), ("b", TensorProto.INT64, []))
    save = np.savez_compressed if compressed else np.savez
    save(tmp_path / "x.npz", a=np.asarray(a, order=order), b=b, unused=np.zeros(3))
    got = outputs(tmp_path, model, tmp_path / "x.npz")
    assert len(got) == 7
    assert all(equal(g[0], a[k]) and equal(g[1], b[k]) for k, g in enumerate(got))
    (tmp_path / "out").rename(tmp_path / "first")
    assert len(outputs(tmp_path, model, tmp_path / "x.npz", "--limit", 3)) == 3


def test_npz_one_sample_a_file(tmp_path):
    model = identity(tmp_path / "m.onnx", ("x", TensorProto.FLOAT, ["n", 4]))
    folder = tmp_path / "d"
    folder.mkdir()
    xs = [some("float32", (n, 4), n) for n in (3, 1, 5)]  # of different shapes
    for k, x in enumerate(xs):
        np.savez_compressed(folder / f"s{k}.npz", x=x)
    got = outputs(tmp_path, model, folder)
    assert len(got) == 3 and all(equal(g[0], x) for g, x in zip(got, xs))


def test_npy_folder(tmp_path):
    model = identity(tmp_path / "m.onnx", ("/in/a", TensorProto.FLOAT, [3]), ("b", TensorProto.INT32, [2, 2]))
    folder = tmp_path / "d"
    folder.mkdir()
    a, b = some("float32", (5, 3)), some("int32", (5, 2, 2))
    np.save(folder / "_in_a.npy", a)
    np.save(folder / "b.npy", b)
    got = outputs(tmp_path, model, folder)
    assert len(got) == 5 and all(equal(g[0], a[k]) and equal(g[1], b[k]) for k, g in enumerate(got))
    (folder / "b.npy").unlink()
    refused(onq("run", model, "--data", folder), "b.npy", "'b'")


def test_npy_versions_and_scalars(tmp_path):
    x = np.float32(2.5)
    model = identity(tmp_path / "m.onnx", ("x", TensorProto.FLOAT, []))
    for version in [(1, 0), (2, 0), (3, 0)]:
        with open(tmp_path / "x.npy", "wb") as f:
            np.lib.format.write_array(f, np.asarray(x), version=version)
        [[got]] = outputs(tmp_path, model, tmp_path / "x.npy")
        assert equal(got, np.asarray(x))


def test_texts(tmp_path):
    model = identity(tmp_path / "m.onnx", ("x", TensorProto.STRING, ["n"]))
    texts = np.array(["", "abc", "größer", "日本", "a\U0001f600b"])
    for arr in (texts, texts.astype(texts.dtype.newbyteorder(">"))):
        np.save(tmp_path / "x.npy", arr)
        [[got]] = outputs(tmp_path, model, tmp_path / "x.npy")
        assert [t if isinstance(t, str) else t.decode() for t in got] == list(texts)
    np.save(tmp_path / "x.npy", np.array([b"x", b"yz\xff"]))
    r = onq("run", model, "--data", tmp_path / "x.npy", "--quiet", "-o", tmp_path / "o2")
    assert r.returncode == 0, r.stderr


def test_bfloat16_and_float8_arrays(tmp_path):
    for dtype, t in [(ml_dtypes.bfloat16, TensorProto.BFLOAT16), (ml_dtypes.float8_e4m3fn, TensorProto.FLOAT8E4M3FN)]:
        x = np.arange(6, dtype=np.float32).astype(dtype)
        model = identity(tmp_path / "m.onnx", ("x", t, [6]))
        np.save(tmp_path / "x.npy", x)
        [[got]] = outputs(tmp_path, model, tmp_path / "x.npy")
        assert got.tobytes() == x.tobytes()


def test_zip64_member(tmp_path):
    x = some("float32", (4, 4))
    body = io.BytesIO()
    np.save(body, x)
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as z:
        with z.open("x.npy", "w", force_zip64=True) as f:
            f.write(body.getvalue())
        z.comment = b"a comment after the directory"
    model = identity(tmp_path / "m.onnx", ("x", TensorProto.FLOAT, [4, 4]))
    [[got]] = outputs(tmp_path, model, tmp_path / "x.npz")
    assert equal(got, x)


def bad_npy(tmp_path, header, data=b"\0" * 64):
    text = header.encode("latin1")
    return (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\0" + struct.pack("<H", len(text)) + text + data)


@pytest.mark.parametrize("header,part", [
    ("{'descr': '|O', 'fortran_order': False, 'shape': (4,), }", "pickled"),
    ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (4,), }", "structured"),
    ("{'descr': '<f4', 'fortran_order': False, 'shape': (4,", "tuple"),
    ("{'descr': '<f4', 'fortran_order': False, 'shape': (9999,), }", "bytes"),
    ("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8), }", "64 bits"),
    ("{'descr': '<f4', 'fortran_order': False, 'shape': (-4,), }", "tuple"),
    ("{'descr': '<f4', 'fortran_order': 7, 'shape': (4,), }", "bool"),
    ("{'descr': '<f4', 'shape': (4,), }", "must have"),
    ("{'descr': '<f16', 'fortran_order': False, 'shape': (4,), }", "numpy kind 'f'"),
    ("{'descr': '<M8[ns]', 'fortran_order': False, 'shape': (4,), }", "M8"),
    ("__import__('os').system('x')", "dictionary"),
    ("", "empty"),
])
def test_bad_headers(tmp_path, header, part):
    model = identity(tmp_path / "m.onnx", ("x", TensorProto.FLOAT, ["n"]))
    bad_npy(tmp_path, header)
    refused(onq("run", model, "--data", tmp_path / "x.npy"), "x.npy", part)


def test_header_bomb(tmp_path):
    model = identity(tmp_path / "m.onnx", ("x", TensorProto.FLOAT, ["n"]))
    text = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }" + b" " * 20000
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x02\0" + struct.pack("<I", len(text)) + text + b"\0" * 16)
    refused(onq("run", model, "--data", tmp_path / "x.npy"), "10000")
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x02\0\xff\xff\xff\xff")
    refused(onq("run", model, "--data", tmp_path / "x.npy"), "10000")


def test_zip_bomb(tmp_path):
    model = identity(tmp_path / "m.onnx", ("x", TensorProto.FLOAT, ["n"]))
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(16 << 20, np.float32))
    refused(onq("run", model, "--data", tmp_path / "x.npz"), "zip bomb")


def test_damaged_archives(tmp_path):
    model = identity(tmp_path / "m.onnx", ("x", TensorProto.FLOAT, [64]))
    np.savez(tmp_path / "x.npz", x=some("float32", (64,)))
    whole = (tmp_path / "x.npz").read_bytes()
    at = whole.index(b"NUMPY") + 200
    for name, data in {
        "cut": whole[:-40], "empty": b"", "text": b"hello", "checksum": whole[:at] + b"\x55" + whole[at + 1:],
        "front": whole[100:],
    }.items():
        (tmp_path / "y.npz").write_bytes(data)
        r = onq("run", model, "--data", tmp_path / "y.npz")
        assert r.returncode == 1, name
        refused(r, "y.npz")


@pytest.mark.parametrize("x,parts", [
    (np.zeros(4, np.float64), ("DOUBLE[4]", "FLOAT[n,3]")),
    (np.zeros((2, 4), np.float32), ("FLOAT[2,4]", "FLOAT[n,3]")),
    (np.zeros((1, 1, 2, 3), np.float32), ("FLOAT[1,1,2,3]", "FLOAT[n,3]")),
])
def test_samples_that_do_not_fit(tmp_path, x, parts):
    model = identity(tmp_path / "m.onnx", ("x", TensorProto.FLOAT, ["n", 3]))
    np.savez(tmp_path / "s.npz", x=x)
    refused(onq("run", model, "--data", tmp_path / "s.npz"), "s.npz", "'x'", *parts)


def test_names_of_arrays(tmp_path):
    model = identity(tmp_path / "m.onnx", ("x", TensorProto.FLOAT, [3]), ("y", TensorProto.FLOAT, [3]))
    np.savez(tmp_path / "s.npz", a=np.zeros(3, np.float32), b=np.zeros(3, np.float32))
    refused(onq("run", model, "--data", tmp_path / "s.npz"), "array 'x': no array has the name", "a, b")
    np.savez(tmp_path / "s.npz", x=np.zeros((5, 3), np.float32), y=np.zeros(3, np.float32))
    refused(onq("run", model, "--data", tmp_path / "s.npz"), "an axis for 5 samples, 'y' has none")
    np.savez(tmp_path / "s.npz", x=np.zeros((5, 3), np.float32), y=np.zeros((4, 3), np.float32))
    refused(onq("run", model, "--data", tmp_path / "s.npz"), "4 samples", "'x' has 5")
    np.save(tmp_path / "x.npy", np.zeros(3, np.float32))
    refused(onq("run", model, "--data", tmp_path / "x.npy"), "one input", "2")


# ---------------------------------------------------------------- test_data_set folders
def write_set(folder, *tensors):
    folder.mkdir(parents=True, exist_ok=True)
    for k, t in enumerate(tensors):
        (folder / f"input_{k}.pb").write_bytes(t.SerializeToString())


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("dtype", RUNS_IDENTITY + ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_pb(tmp_path, dtype, raw):
    if hasattr(ml_dtypes, dtype):
        x = some("float32", (2, 3)).astype(getattr(ml_dtypes, dtype))
    else:
        x = some(dtype, (2, 3))
    t = onnx_type(x.dtype)
    model = identity(tmp_path / "m.onnx", ("x", t, [2, 3]))
    write_set(tmp_path / "test_data_set_0",
              numpy_helper.from_array(x) if raw else helper.make_tensor("x", t, x.shape, x.ravel()))
    [[got]] = outputs(tmp_path, model, None)
    assert got.tobytes() == x.tobytes() and got.shape == x.shape


def test_sets_in_order_of_their_numbers(tmp_path):
    model = identity(tmp_path / "m.onnx", ("x", TensorProto.INT64, []))
    for k in (0, 1, 2, 10, 11, 9):
        write_set(tmp_path / "d" / f"test_data_set_{k}", numpy_helper.from_array(np.int64(k)))
    r = onq("run", model, "--data", tmp_path / "d", "--json")
    names = [s.split('"')[1] for s in r.stdout.replace(" ", "").split('"name":')[1:] if "test_data_set" in s]
    assert names == [f"test_data_set_{k}" for k in (0, 1, 2, 9, 10, 11)]


def test_sets_that_do_not_fit(tmp_path):
    model = identity(tmp_path / "m.onnx", ("x", TensorProto.FLOAT, [2]), ("y", TensorProto.INT64, ["n"]))
    x, y = numpy_helper.from_array(np.zeros(2, np.float32), "x"), numpy_helper.from_array(np.zeros(3, np.int64), "y")
    run = lambda: onq("run", model)
    refused(run(), "no test_data_set_* folders")
    write_set(tmp_path / "test_data_set_0", x)
    refused(run(), "test_data_set_0", "input_1.pb", "'y'")
    write_set(tmp_path / "test_data_set_0", y, x)
    refused(run(), "test_data_set_0", "got INT64[3], expected FLOAT[2]", "order")
    write_set(tmp_path / "test_data_set_0", x, y)
    write_set(tmp_path / "test_data_set_3", x, y)
    whole = x.SerializeToString()
    for name, data in {"cut": whole[:-1], "empty": b"", "garbage": b"\xff" * 40,
                       "short": onnx.TensorProto(data_type=1, dims=[2], raw_data=b"1234").SerializeToString(),
                       "negative": onnx.TensorProto(data_type=1, dims=[-2]).SerializeToString(),
                       "huge": onnx.TensorProto(data_type=1, dims=[1 << 62, 1 << 62]).SerializeToString(),
                       "type": onnx.TensorProto(data_type=77, dims=[2], raw_data=b"12345678").SerializeToString(),
                       "external": onnx.TensorProto(data_type=1, dims=[2], data_location=1).SerializeToString()}.items():
        (tmp_path / "test_data_set_3" / "input_0.pb").write_bytes(data)
        r = run()
        assert r.returncode == 1, name
        refused(r, "test_data_set_3", "input_0.pb")


def test_dim(tmp_path):
    model = identity(tmp_path / "m.onnx", ("x", TensorProto.FLOAT, ["batch", 2]))
    [[got]] = outputs(tmp_path, model, "random:1", "--dim", "batch=5")
    assert got.shape == (5, 2)
    r = onq("run", model, "--data", "random:1", "--dim", "nothing=5")
    assert r.returncode == 2 and "named are: batch" in r.stderr
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 2), np.float32))
    refused(onq("run", model, "--data", tmp_path / "x.npz", "--dim", "batch=5"), "FLOAT[3,2]", "FLOAT[5,2]")


def test_random(tmp_path):
    kinds = [("float16", TensorProto.FLOAT16), ("float32", TensorProto.FLOAT), ("float64", TensorProto.DOUBLE),
             ("int64", TensorProto.INT64), ("bool", TensorProto.BOOL), ("uint8", TensorProto.UINT8)]
    model = identity(tmp_path / "m.onnx", *[(n, t, ["n", 50]) for n, t in kinds])
    a = outputs(tmp_path, model, "random:3:7")
    (tmp_path / "out").rename(tmp_path / "a")
    b = outputs(tmp_path, model, "random:3:7")
    (tmp_path / "out").rename(tmp_path / "b")
    c = outputs(tmp_path, model, "random:3:8")
    assert all(equal(x, y) for s, t in zip(a, b) for x, y in zip(s, t))
    assert not equal(a[0][1], c[0][1]) and not equal(a[0][1], a[1][1])
    x = a[0][1]
    assert x.min() >= -1 and x.max() < 1 and x.std() > 0.4
    assert set(a[0][3].ravel()) == {0, 1}
    for bad in ("random:", "random:x", "random:0", "random:3:x"):
        assert onq("run", model, "--data", bad).returncode == 2


def test_random_of_an_input_too_large(tmp_path):
    model = identity(tmp_path / "m.onnx", ("x", TensorProto.FLOAT, [1024, 1024, 1024]))
    for words in (["run", model], ["bench", model], ["debug", "--float_model", model, "--qdq_model", model],
                  *([c, "-i", model, "-o", tmp_path / "o"] for c in ("calibrate", "auto"))):
        r = onq(*words, "--data", "random:2")
        refused(r, f"{model}: ", "input 'x'", "256 MiB")
        assert not (tmp_path / "o").exists()


# ---------------------------------------------------------------- images
MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def picture(mode, size, seed=0):
    rng = np.random.default_rng(seed)
    w, h = size
    y, x = np.mgrid[0:h, 0:w]
    base = (127 + 120 * np.sin(x / 7 + seed) * np.cos(y / 5))[..., None] + rng.integers(-40, 40, (h, w, 4))
    p = np.clip(base, 0, 255).astype(np.uint8)
    if mode == "L":
        return Image.fromarray(p[..., 0])
    if mode == "LA":
        return Image.fromarray(p[..., :2], "LA")
    return Image.fromarray(p[..., :3] if mode == "RGB" else p, mode)


def as_example(im, size):
    """The way of the example's resnet50_data_reader: resize by default, paste on RGB."""
    out = Image.new("RGB", size)
    out.paste(im.resize(size))
    return np.asarray(out)


def normal(pixels):
    return ((pixels * (1 / 255) - MEAN) / STD).astype(np.float32).transpose(2, 0, 1)[None]


def run_image(tmp_path, im, size, *words, name="p.png", shape=None, **save):
    folder = tmp_path / "images"
    folder.mkdir(exist_ok=True)
    im.save(folder / name, **save)
    w, h = size
    model = identity(tmp_path / "m.onnx", ("x", TensorProto.FLOAT, shape or ["n", 3, h, w]))
    [[got]] = outputs(tmp_path, model, folder, *words)
    return got, Image.open(folder / name)


@pytest.mark.parametrize("size", [(224, 224), (30, 41), (100, 7), (64, 48), (65, 97)])
@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
def test_png_as_pillow(tmp_path, mode, size):
    got, im = run_image(tmp_path, picture(mode, (97, 65)), size)
    assert im.mode == mode
    assert equal(got, normal(as_example(im, size)))


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize("how", [{}, {"progressive": True}, {"subsampling": 0}, {"quality": 30}])
def test_jpeg_as_pillow(tmp_path, mode, how):
    im = picture("RGB", (150, 113)).convert(mode)
    got, im = run_image(tmp_path, im, (64, 64), name="p.JPG", format="jpeg", **how)
    assert im.mode == mode
    assert equal(got, normal(as_example(im, (64, 64))))


def test_palette_and_bilevel(tmp_path):
    for im in (picture("RGB", (90, 70)).convert("P", palette=Image.Palette.ADAPTIVE, colors=37),
               picture("L", (90, 70)).convert("1")):
        got, im = run_image(tmp_path, im, (50, 40))
        assert im.mode in "P1"
        assert equal(got, normal(as_example(im, (50, 40))))
        (tmp_path / "out").rename(tmp_path / im.mode)


def chunk(kind, data):
    import zlib
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def raw_png(width, height, bits, color, rows, *extra):
    import zlib
    head = struct.pack(">IIBBBBB", width, height, bits, color, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(extra)
            + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + r for r in rows))) + chunk(b"IEND", b""))


def test_sixteen_bits_keep_their_high_byte(tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "images"
    folder.mkdir()
    for color, channels in ((0, 1), (2, 3), (4, 2), (6, 4)):
        v = rng.integers(0, 65536, (5, 6, channels))
        if channels % 2 == 0:
            v[..., -1] = 65535
        (folder / "p.png").write_bytes(raw_png(6, 5, 16, color, [r.astype(">u2").tobytes() for r in v]))
        model = identity(tmp_path / "m.onnx", ("x", TensorProto.FLOAT, [1, 3, 5, 6]))
        [[got]] = outputs(tmp_path, model, folder)
        (tmp_path / "out").rename(tmp_path / f"out{color}")
        high = (v >> 8).astype(np.uint8)
        rgb = high[..., :3] if channels >= 3 else np.repeat(high[..., :1], 3, 2)
        assert equal(got, normal(rgb))


def test_few_bits_of_grey(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    for bits in (2, 4):
        v = np.arange(16).reshape(2, 8) % (1 << bits)
        per = 8 // bits
        rows = [bytes(sum(int(x) << (8 - bits * (i + 1)) for i, x in enumerate(r[k:k + per])) for k in range(0, 8, per))
                for r in v]
        (folder / "p.png").write_bytes(raw_png(8, 2, bits, 0, rows))
        model = identity(tmp_path / "m.onnx", ("x", TensorProto.FLOAT, [1, 3, 2, 8]))
        [[got]] = outputs(tmp_path, model, folder)
        (tmp_path / "out").rename(tmp_path / f"out{bits}")
        assert equal(got, normal(np.asarray(Image.open(folder / "p.png").convert("RGB"))))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path, orientation):
    from PIL import ImageOps
    exif = Image.Exif()
    exif[0x0112] = orientation
    for name, how in (("p.jpg", {}), ("p.png", {})):
        got, im = run_image(tmp_path, picture("RGB", (40, 24)), (32, 32), name=name, exif=exif, **how)
        assert equal(got, normal(as_example(ImageOps.exif_transpose(im), (32, 32))))
        (tmp_path / "out").rename(tmp_path / (name + "_out"))
        (tmp_path / "images" / name).unlink()


def test_options_of_images(tmp_path):
    im = picture("RGB", (60, 40))
    words = ["--image-mean", "123.68,116.78,103.94", "--image-std", "1", "--image-scale", "1"]
    got, im = run_image(tmp_path, im, (32, 32), *words)
    p = as_example(im, (32, 32)).astype(np.float64)
    assert equal(got, (p - [123.68, 116.78, 103.94]).astype(np.float32).transpose(2, 0, 1)[None])
    again = lambda k: (tmp_path / "out").rename(tmp_path / f"o{k}")
    again(0)
    got, im = run_image(tmp_path, im, (32, 32), "--image-color", "bgr", "--image-mean", "0", "--image-std", "1")
    assert equal(got, (p * (1 / 255)).astype(np.float32)[..., ::-1].transpose(2, 0, 1)[None])
    again(1)
    got, im = run_image(tmp_path, im, (32, 32), shape=[1, 32, 32, 3])
    assert equal(got, normal(p).transpose(0, 2, 3, 1))
    again(2)
    got, im = run_image(tmp_path, im, (32, 32), "--image-mean", "0", "--image-std", "1", shape=[1, 1, 32, 32])
    grey = np.asarray(Image.fromarray(p.astype(np.uint8)).convert("L"))
    assert equal(got, (grey * (1 / 255)).astype(np.float32)[None, None])
    again(3)
    got, im = run_image(tmp_path, im, (32, 32), "--image-size", "20x30", shape=["n", 3, "h", "w"])
    assert got.shape == (1, 3, 20, 30) and equal(got, normal(as_example(im, (30, 20))))


def test_crop_and_pad(tmp_path):
    got, im = run_image(tmp_path, picture("RGB", (90, 60)), (32, 32), "--image-resize", "crop")
    w = im.resize((48, 32)).crop((8, 0, 40, 32))
    assert equal(got, normal(np.asarray(w)))
    (tmp_path / "out").rename(tmp_path / "o")
    got, im = run_image(tmp_path, im, (32, 32), "--image-resize", "pad")
    w = Image.new("RGB", (32, 32))
    w.paste(im.resize((32, 21)), (0, 5))
    assert equal(got, normal(np.asarray(w)))


def test_integer_pixels_and_batches(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    ims = [picture("RGB", (20, 20), k) for k in range(5)]
    for k, im in enumerate(ims):
        im.save(folder / f"{k}.png")
    (folder / "notes.txt").write_text("not an image")
    model = identity(tmp_path / "m.onnx", ("x", TensorProto.UINT8, [2, 20, 20, 3]))
    got = outputs(tmp_path, model, folder)
    assert len(got) == 2
    for k, [g] in enumerate(got):
        assert equal(g, np.stack([np.asarray(im) for im in ims[2 * k:2 * k + 2]]))
    r = onq("run", model, "--data", folder, "--image-mean", "1")
    assert r.returncode == 2 and "UINT8" in r.stderr


def test_bad_images(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    model = identity(tmp_path / "m.onnx", ("x", TensorProto.FLOAT, [1, 3, 8, 8]))
    refused(onq("run", model, "--data", folder), "no samples")
    jpeg, png = io.BytesIO(), io.BytesIO()
    picture("RGB", (50, 50)).save(jpeg, "jpeg")
    picture("RGB", (50, 50)).save(png, "png")
    jpeg, png = jpeg.getvalue(), png.getvalue()
    huge = raw_png(60000, 60000, 8, 2, [b""])
    for name, data in {"a.jpg": b"", "b.jpg": b"hello", "c.jpg": jpeg[:len(jpeg) // 2], "d.png": png[:len(png) // 2],
                       "e.png": png[:60] + b"\x77" + png[61:], "f.png": huge, "g.jpg": jpeg[:30],
                       "h.png": raw_png(3, 3, 8, 3, [b"\0\1\2"] * 3),
                       "i.jpg": jpeg.replace(b"\xff\xc0\0\x11\x08\0\x32\0\x32", b"\xff\xc0\0\x11\x08\xff\xff\xff\xff")}.items():
        (folder / name).write_bytes(data)
        r = onq("run", model, "--data", folder)
        assert r.returncode == 1, name
        refused(r, name)
        (folder / name).unlink()
    # One pixel is enough.
    Image.new("RGB", (1, 1), (9, 8, 7)).save(folder / "one.png")
    [[got]] = outputs(tmp_path, model, folder)
    assert equal(got, normal(np.full((8, 8, 3), [9, 8, 7])))
    two = identity(tmp_path / "m2.onnx", ("x", TensorProto.FLOAT, [1, 3, 8, 8]), ("y", TensorProto.FLOAT, [1]))
    refused(onq("run", two, "--data", folder), "one input")
    flat = identity(tmp_path / "m3.onnx", ("x", TensorProto.FLOAT, [1, 8]))
    refused(onq("run", flat, "--data", folder), "four axes")
    free = identity(tmp_path / "m4.onnx", ("x", TensorProto.FLOAT, [1, 3, "h", "w"]))
    refused(onq("run", free, "--data", folder), "--image-size")


def test_what_is_no_source(tmp_path):
    model = identity(tmp_path / "m.onnx", ("x", TensorProto.FLOAT, [1]))
    refused(onq("run", model, "--data", tmp_path / "nothing"), "nothing")
    (tmp_path / "x.txt").write_text("hello")
    refused(onq("run", model, "--data", tmp_path / "x.txt"), "x.txt")
    os.mkfifo(tmp_path / "x.npy")
    refused(onq("run", model, "--data", tmp_path / "x.npy", timeout=20), "x.npy")
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    np.save(mixed / "x.npy", np.zeros(1, np.float32))
    np.savez(mixed / "x.npz", x=np.zeros(1, np.float32))
    refused(onq("run", model, "--data", mixed), "which of them")


@pytest.mark.parametrize("words, said", [
    ([], "8x6, stretch, 1/255, ImageNet mean and deviation (default); input -2.118..2.64"),
    (["--image-scale", "1", "--image-mean", "127", "--image-std", "128", "--image-resize", "crop"],
     "8x6, crop, times 1, mean 127, deviation 128; input -0.9922..1"),
    (["--image-color", "bgr", "--image-mean", "0.5,0.25,0", "--image-resize", "pad"],
     "8x6, BGR, pad, 1/255, mean 0.5 0.25 0, ImageNet deviation 0.225 0.224 0.229; input -2.222..4.367"),
])
def test_what_is_done_to_images_is_said(tmp_path, words, said):
    """One line with size, resizing, scale, mean and deviation, and the values that come of it."""
    model = identity(tmp_path / "m.onnx", ("x", TensorProto.FLOAT, [1, 3, 8, 6]))
    (tmp_path / "photos").mkdir()
    for k, shade in enumerate((0, 255)):
        Image.new("RGB", (6, 8), (shade,) * 3).save(tmp_path / "photos" / f"{k}.png")
    r = onq("run", model, "--data", tmp_path / "photos", *words)
    assert r.returncode == 0 and f"images: {said}\n" in r.stderr, r.stderr
    assert "images:" not in onq("run", model, "--data", tmp_path / "photos", *words, "--quiet").stderr


def test_uint8_images_stay_as_they_are(tmp_path):
    model = identity(tmp_path / "m.onnx", ("x", TensorProto.UINT8, [1, 3, 4, 4]))
    (tmp_path / "photos").mkdir()
    for k, shade in enumerate((7, 200)):
        Image.new("RGB", (4, 4), (shade,) * 3).save(tmp_path / "photos" / f"{k}.png")
    assert "images: 4x4, stretch, pixels as they are; input 7..200\n" in onq("run", model, "--data",
                                                                          tmp_path / "photos").stderr
