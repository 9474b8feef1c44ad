"""Round trip: what onq reads and writes again equals what the onnx package reads.

Every .onnx of Debian's libonnx-testdata and every shared model is decoded and encoded again field by field, saved
untouched, and taken through the layouts of external data.
"""
import pathlib

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import modeltool

TESTDATA = modeltool.testdata_models()
SHARED = modeltool.shared_models()


def read(path):
    m = onnx.ModelProto()
    m.ParseFromString(pathlib.Path(path).read_bytes())
    return m


def load(path):
    """With external data inside, as raw_data."""
    return onnx.load(str(path), load_external_data=True)


def check_one(tool, path, out):
    tool("reencode", path, out)
    found = modeltool.difference(read(path), read(out), "model")
    assert found is None, f"{path}: {found}"
    tool("save", path, out)
    assert out.read_bytes() == path.read_bytes(), f"{path}: saved untouched, the bytes differ"


def test_testdata(tool, tmp_path):
    if not TESTDATA:
        pytest.skip("libonnx-testdata is not installed: 0 of about 1,072 models tested")
    for path in TESTDATA:
        check_one(tool, path, tmp_path / "out.onnx")
    print(f"{len(TESTDATA)} models of libonnx-testdata")
    assert len(TESTDATA) > 1000


@pytest.mark.parametrize("path", SHARED, ids=lambda p: p.parent.name)
def test_shared(tool, tmp_path, path):
    out = tmp_path / "out.onnx"
    for data in path.parent.glob("model.onnx?*"):
        (tmp_path / data.name).write_bytes(data.read_bytes())
    tool("reencode", path, out)
    found = modeltool.difference(read(path), read(out), "model")
    assert found is None, found
    if not any(t.data_location == TensorProto.EXTERNAL for t in read(path).graph.initializer):
        tool("save", path, out)
        assert out.read_bytes() == path.read_bytes()


def test_some_models_were_there():
    if not SHARED:
        pytest.skip("no shared models: 0 tested")
    assert len(SHARED) >= 10


# ---------------------------------------------------------------- external data
def tensors_of(graph):
    yield from graph.initializer
    for node in graph.node:
        for a in node.attribute:
            if a.HasField("t"):
                yield a.t
            yield from a.tensors
            if a.HasField("g"):
                yield from tensors_of(a.g)


def entries(t):
    return {e.key: e.value for e in t.external_data}


def sample():
    """Weights of several types and sizes, some in a subgraph and in Constant nodes, in raw and typed storage."""
    rng = np.random.default_rng(7)
    big = numpy_helper.from_array(rng.standard_normal((64, 33)).astype(np.float32), "big")
    small = numpy_helper.from_array(np.arange(3, dtype=np.int64), "small")
    half = numpy_helper.from_array(rng.standard_normal((40, 30)).astype(np.float16), "half")
    empty = numpy_helper.from_array(np.zeros((0, 4), np.float32), "empty")
    typed = helper.make_tensor("typed", TensorProto.FLOAT, [600], rng.standard_normal(600).tolist())
    text = helper.make_tensor("text", TensorProto.STRING, [400], [b"word%d" % i for i in range(400)])
    nibbles = helper.make_tensor("nibbles", TensorProto.INT4, [2001], (rng.integers(-8, 8, 2001)).tolist())
    inner = numpy_helper.from_array(rng.standard_normal(500).astype(np.float64), "inner")
    branch = helper.make_graph([helper.make_node("Identity", ["inner"], ["r0"])], "branch", [],
                               [helper.make_tensor_value_info("r0", TensorProto.DOUBLE, [500])], [inner])
    constant = numpy_helper.from_array(rng.integers(0, 255, 3000).astype(np.uint8), "k")
    nodes = [helper.make_node("Constant", [], ["kt"], value=constant),
             helper.make_node("If", ["c"], ["r"], then_branch=branch, else_branch=branch)]
    g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
                          [helper.make_tensor_value_info("r", TensorProto.DOUBLE, None)],
                          [big, small, half, empty, typed, text, nibbles])
    return helper.make_model(g, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


def same_values(a, b, base_a=None, base_b=None):
    """The same graph, tensors by value wherever they are stored."""
    ta, tb = list(tensors_of(a.graph)), list(tensors_of(b.graph))
    assert [t.name for t in ta] == [t.name for t in tb]
    for x, y in zip(ta, tb):
        assert x.data_type == y.data_type and list(x.dims) == list(y.dims), x.name
        if x.data_type == TensorProto.STRING:
            assert list(x.string_data) == list(y.string_data)
            continue
        u = numpy_helper.to_array(x, str(base_a) if base_a else "")
        v = numpy_helper.to_array(y, str(base_b) if base_b else "")
        assert u.tobytes() == v.tobytes(), x.name


def strip(m):
    """The model without its tensors' storage."""
    c = onnx.ModelProto()
    c.CopyFrom(m)
    for t in tensors_of(c.graph):
        for f in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "external_data",
                  "data_location"):
            t.ClearField(f)
    return c


@pytest.mark.parametrize("attributes", [False, True])
@pytest.mark.parametrize("threshold", [0, 1024])
def test_one_file(tool, tmp_path, attributes, threshold):
    src, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    m = sample()
    src.write_bytes(m.SerializeToString())
    words = ["one", "location=weights.bin", f"threshold={threshold}"]
    if attributes:
        words.append("attributes")
    tool("save", src, out, *words)
    got = read(out)
    assert modeltool.difference(strip(m), strip(got), "model") is None
    same_values(m, got, None, tmp_path)
    end = 0
    moved = set()
    for t in tensors_of(got.graph):
        if t.data_location != TensorProto.EXTERNAL:
            continue
        e = entries(t)
        assert e["location"] == "weights.bin"
        assert int(e["length"]) >= threshold
        assert int(e["offset"]) == end, "one tensor begins where the one before it ends, as onnx writes them"
        end = int(e["offset"]) + int(e["length"])
        moved.add(t.name)
    assert {"big", "half", "inner"} <= moved
    assert "typed" not in moved  # onnx leaves numbers in typed fields inside
    assert ("k" in moved) == attributes
    assert "text" not in moved
    assert ("small" in moved) == (threshold == 0)
    assert (tmp_path / "weights.bin").stat().st_size == end
    assert modeltool.difference(strip(m), strip(load(out)), "model") is None


def test_one_file_each_and_inline_again(tool, tmp_path):
    src = tmp_path / "in.onnx"
    m = sample()
    src.write_bytes(m.SerializeToString())
    sub = tmp_path / "each"
    sub.mkdir()
    tool("save", src, sub / "out.onnx", "each", "threshold=1024", "attributes")
    got = read(sub / "out.onnx")
    same_values(m, got, None, sub)
    places = [entries(t)["location"] for t in tensors_of(got.graph) if t.data_location == TensorProto.EXTERNAL]
    # The two branches of the If hold the same tensor name: still one file each.
    assert len(places) == len(set(places)) and len(places) >= 5
    assert sorted(p.name for p in sub.iterdir()) == sorted(places + ["out.onnx"])
    assert all(int(entries(t).get("offset", 0)) == 0 for t in tensors_of(got.graph))

    tool("save", sub / "out.onnx", tmp_path / "inline.onnx", "touch")
    back = read(tmp_path / "inline.onnx")
    assert not any(t.data_location == TensorProto.EXTERNAL for t in tensors_of(back.graph))
    same_values(m, back)
    assert modeltool.difference(strip(m), strip(back), "model") is None


@pytest.mark.parametrize("one", [True, False])
def test_reads_what_onnx_writes(tool, tmp_path, one):
    path = tmp_path / "in.onnx"
    m = sample()
    c = onnx.ModelProto()
    c.CopyFrom(m)
    onnx.save_model(c, str(path), save_as_external_data=True, all_tensors_to_one_file=one,
                    location="all.bin" if one else None, size_threshold=16, convert_attribute=True)
    out = tmp_path / "back.onnx"
    tool("check", path)
    tool("save", path, out, "touch")
    back = read(out)
    assert not any(t.data_location == TensorProto.EXTERNAL for t in tensors_of(back.graph))
    same_values(m, back)
    # And without a change of layout: the model file says the same.
    tool("reencode", path, out)
    assert modeltool.difference(read(path), read(out), "model") is None


def test_replaces_its_own_files(tool, tmp_path):
    """Saving over the model and over the very data file it reads from."""
    path = tmp_path / "m.onnx"
    m = sample()
    path.write_bytes(m.SerializeToString())
    tool("save", path, path, "one", "location=m.data", "threshold=0")
    same_values(m, read(path), None, tmp_path)
    tool("save", path, path, "one", "location=m.data", "threshold=0", "touch")
    same_values(m, read(path), None, tmp_path)
    tool("save", path, path, "touch")
    same_values(m, read(path))
    assert sorted(p.name for p in tmp_path.iterdir()) in (["m.data", "m.onnx"], ["m.onnx"])


def test_offset_and_length_may_be_absent(tool, tmp_path):
    data = np.arange(8, dtype=np.float32)
    (tmp_path / "d.bin").write_bytes(data.tobytes())
    t = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[8], data_location=TensorProto.EXTERNAL)
    t.external_data.add(key="location", value="d.bin")
    g = helper.make_graph([], "g", [], [], [t])
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(g, ir_version=8).SerializeToString())
    tool("save", path, tmp_path / "o.onnx", "touch")
    assert numpy_helper.to_array(read(tmp_path / "o.onnx").graph.initializer[0]).tobytes() == data.tobytes()
