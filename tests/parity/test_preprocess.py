"""`onq preprocess` against quant_pre_process and qnn_preprocess_model, live.

The same nodes (in order, with names, attributes) and the same initializers bit for bit; shapes at least as complete
as the reference's and never in contradiction; nothing left behind. Where the reference raises, onq must not.
"""
import contextlib
import os
import pathlib
import subprocess

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization.shape_inference import quant_pre_process

import modeltool

ONQ = os.path.abspath(os.environ.get("ONQ", modeltool.BUILD / "onq"))
SHARED = modeltool.shared_models()
IDS = [p.parent.name for p in SHARED]
shared = pytest.mark.parametrize("path", SHARED, ids=IDS)


def runtime():
    if "ONQ_ONNXRUNTIME" in os.environ:
        return {}
    found = sorted((pathlib.Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"))
    return {"ONQ_ONNXRUNTIME": str(found[0])} if found else {}


def onq(*words, status=0, cwd=None):
    r = subprocess.run([ONQ, *map(str, words)], capture_output=True, text=True, errors="replace", cwd=cwd,
                       env={**os.environ, **runtime()})
    assert r.returncode == status, f"{words}: {r.returncode}: {r.stderr}"
    return r


def reference(path, out, **kw):
    """None when it raises: what it leaves in the working folder stays in the folder of the result."""
    with contextlib.chdir(out.parent):
        try:
            quant_pre_process(path, out, **kw)
        except Exception as e:  # noqa: BLE001 - any failure counts
            return e
    return None


def strip(node):
    """Without what has no meaning (an empty domain that is written or not) and the shapes of inner graphs."""
    n = onnx.NodeProto()
    n.CopyFrom(node)
    if n.domain in ("", "ai.onnx"):
        n.ClearField("domain")
    for a in n.attribute:
        for g in [a.g] if a.HasField("g") else a.graphs:
            g.ClearField("value_info")
            for v in [*g.input, *g.output]:
                v.ClearField("type")
            nodes = [strip(x) for x in g.node]
            g.ClearField("node")
            g.node.extend(nodes)
    return n


def bits(t):
    return (t.name, tuple(t.dims), t.data_type, numpy_helper.to_array(t).tobytes() if t.data_type != TensorProto.STRING
            else tuple(t.string_data))


def shapes(m):
    out = {}
    for v in [*m.graph.value_info, *m.graph.input, *m.graph.output]:
        t = v.type.tensor_type
        if v.type.HasField("tensor_type") and t.HasField("shape"):
            out[v.name] = [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in t.shape.dim]
    return out


def assert_same(ref_path, got_path):
    ref, got = onnx.load(ref_path), onnx.load(got_path)
    a, b = [strip(n) for n in ref.graph.node], [strip(n) for n in got.graph.node]
    for x, y in zip(a, b):
        assert x.SerializeToString(deterministic=True) == y.SerializeToString(deterministic=True), f"{x}\n{y}"
    assert len(a) == len(b)
    assert [bits(t) for t in ref.graph.initializer] == [bits(t) for t in got.graph.initializer]
    assert [(p.key, p.value) for p in ref.metadata_props] == [(p.key, p.value) for p in got.metadata_props]
    assert [(o.domain, o.version) for o in ref.opset_import] == [(o.domain, o.version) for o in got.opset_import]
    assert [v.name for v in ref.graph.input] == [v.name for v in got.graph.input]
    assert [v.name for v in ref.graph.output] == [v.name for v in got.graph.output]
    rs, gs = shapes(ref), shapes(got)
    assert not set(rs) - set(gs)
    for name, dims in rs.items():
        assert len(dims) == len(gs[name]), name
        for x, y in zip(dims, gs[name]):
            assert x == y or not isinstance(x, int), f"{name}: {dims} vs {gs[name]}"
    return ref, got


def session(path):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def loads(path):
    """None when ONNX Runtime takes the model, else why not."""
    try:
        session(path)
    except Exception as e:  # noqa: BLE001 - every refusal counts
        return f"{type(e).__name__}: {e}"
    return None


def only(folder, *names):
    assert sorted(p.name for p in folder.iterdir()) == sorted(names)


# ---- the default path


@shared
@pytest.mark.parametrize("symbolic", [False, True], ids=["plain", "symbolic"])
def test_same_as_reference(path, symbolic, tmp_path):
    ref_dir, got_dir = tmp_path / "ref", tmp_path / "got"
    ref_dir.mkdir()
    got_dir.mkdir()
    e = reference(str(path), ref_dir / "m.onnx", skip_symbolic_shape=not symbolic)
    r = onq("preprocess", "--input", path, "--output", got_dir / "m.onnx",
            *([] if symbolic else ["--skip_symbolic_shape"]), cwd=got_dir)
    only(got_dir, "m.onnx")
    assert loads(got_dir / "m.onnx") is None
    if e is not None:
        pytest.skip(f"the reference raises {type(e).__name__}: {str(e)[:80]} (onq: {r.stdout.strip()})")
    assert_same(ref_dir / "m.onnx", got_dir / "m.onnx")


@shared
def test_skip_optimization(path, tmp_path):
    ref_dir, got_dir = tmp_path / "ref", tmp_path / "got"
    ref_dir.mkdir()
    got_dir.mkdir()
    e = reference(str(path), ref_dir / "m.onnx", skip_symbolic_shape=True, skip_optimization=True)
    onq("preprocess", "-i", path, "-o", got_dir / "m.onnx", "--skip_symbolic_shape", "--skip-optimization", cwd=got_dir)
    only(got_dir, "m.onnx")
    assert e is None
    assert_same(ref_dir / "m.onnx", got_dir / "m.onnx")


# ---- external data


def test_external_data(tmp_path):
    path = next(p for p in SHARED if p.parent.name == "digits_cnn")
    plain = tmp_path / "plain.onnx"
    onq("preprocess", "-i", path, "-o", plain, "--skip_optimization")
    wanted = [bits(t) for t in onnx.load(plain).graph.initializer]
    sizes = {t.name: len(numpy_helper.to_array(t).tobytes()) for t in onnx.load(plain).graph.initializer}
    for limit in (0, 1024, 10**9):
        large = sorted(n for n, b in sizes.items() if b >= limit)
        for one, location in ((True, None), (True, "w.bin"), (False, None)):
            d = tmp_path / f"{limit}_{one}_{location}"
            d.mkdir()
            onq("preprocess", "-i", path, "-o", d / "m.onnx", "--skip_optimization", "--save_as_external_data",
                "--external_data_size_threshold", limit, *(["--all_tensors_to_one_file"] if one else []),
                *(["--external_data_location", location] if location else []))
            m = onnx.load(d / "m.onnx", load_external_data=False)
            assert sorted(t.name for t in m.graph.initializer if t.data_location == TensorProto.EXTERNAL) == large
            assert [bits(t) for t in onnx.load(d / "m.onnx").graph.initializer] == wanted
            if not large:
                only(d, "m.onnx")
            elif one:
                only(d, "m.onnx", location or "m.onnx.data")
            else:
                assert len(list(d.iterdir())) == 1 + len(large)


# ---- refusals


@pytest.mark.parametrize("words, text", [
    (["--skip_optimization", "--skip_onnx_shape", "--skip_symbolic_shape"], "skipped"),
    (["--optimizer", "none", "--skip_onnx_shape", "--skip_symbolic_shape"], "skipped"),
    (["--save_as_external_data"], "external data"),
    (["--optimizer", "ort", "--save_as_external_data"], "external data"),
    (["--skip_optimization", "--optimizer", "builtin"], "exclude"),
    (["--optimizer", "fast"], "fast"),
    (["--int_max", "many"], "int_max"),
    (["--int_max", "0"], "int_max"),
])
def test_refused(words, text, tmp_path):
    path = SHARED[0] if SHARED else "model.onnx"
    r = onq("preprocess", "-i", path, "-o", tmp_path / "m.onnx", *words, status=2)
    assert text in r.stderr and r.stderr.startswith("onq: error: ")
    only(tmp_path)


def unknown_operator(path):
    """A graph that the runtime refuses and onq can leave as it is."""
    g = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["a"], name="r"),
         helper.make_node("Mystery", ["a"], ["b"], name="m", domain="nobody.knows"),
         helper.make_node("Relu", ["b"], ["y"], name="s")],
        "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("nobody.knows", 1)],
                                ir_version=9), path)


def test_runtime_refuses(tmp_path):
    unknown_operator(tmp_path / "in.onnx")
    r = onq("preprocess", "-i", tmp_path / "in.onnx", "-o", tmp_path / "m.onnx", status=1)
    assert "--optimizer builtin" in r.stderr
    only(tmp_path, "in.onnx")
    r = onq("preprocess", "-i", tmp_path / "in.onnx", "-o", tmp_path / "m.onnx", "--skip_optimization")
    assert "incomplete" in r.stderr and "'m'" in r.stderr
    (tmp_path / "m.onnx").unlink()
    r = onq("preprocess", "-i", tmp_path / "in.onnx", "-o", tmp_path / "m.onnx", "--skip_optimization", "--strict",
            status=1)
    assert "Mystery" in r.stderr
    only(tmp_path, "in.onnx")
    onq("preprocess", "-i", tmp_path / "in.onnx", "-o", tmp_path / "m.onnx", "--skip_optimization",
        "--guess_output_rank")
    assert len(shapes(onnx.load(tmp_path / "m.onnx"))["b"]) == 2
