"""`onq preprocess` against quant_pre_process and qnn_preprocess_model, live.

The same nodes (in order, with names, attributes) and the same initializers bit for bit; shapes at least as complete
as the reference's and never in contradiction; nothing left behind. Where the reference raises, onq must not.
"""
import contextlib
import subprocess
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization.execution_providers.qnn import qnn_preprocess_model
from onnxruntime.quantization.shape_inference import quant_pre_process

import common
import modeltool

SHARED = modeltool.shared_models()
IDS = [p.parent.name for p in SHARED]
shared = pytest.mark.parametrize("path", SHARED, ids=IDS)


def onq(*words, status=0, cwd=None):
    return common.onq(*words, status=status, cwd=cwd)


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
    ref, got = assert_same(ref_dir / "m.onnx", got_dir / "m.onnx")
    listed = [[v.name for v in m.graph.value_info] for m in (ref, got)]
    assert not set(listed[0]) - set(listed[1])  # outputs are among them
    if shapes(ref) == shapes(got) and listed[0] == listed[1]:
        assert (ref_dir / "m.onnx").read_bytes() == (got_dir / "m.onnx").read_bytes()


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


@pytest.mark.parametrize("optimizer", ["ort", "builtin", "none"])
def test_external_data(tmp_path, optimizer):
    path = modeltool.ROOT / "examples" / "digits_cnn" / "model.onnx"
    plain = tmp_path / "plain.onnx"
    onq("preprocess", "-i", path, "-o", plain, "--optimizer", optimizer)
    wanted = [bits(t) for t in onnx.load(plain).graph.initializer]
    sizes = {t.name: len(numpy_helper.to_array(t).tobytes()) for t in onnx.load(plain).graph.initializer}
    for limit in (0, 1024, 10**9):
        large = sorted(n for n, b in sizes.items() if b >= limit)
        for one, location in ((True, None), (True, "w.bin"), (False, None)):
            d = tmp_path / f"{limit}_{one}_{location}"
            d.mkdir()
            onq("preprocess", "-i", path, "-o", d / "m.onnx", "--optimizer", optimizer, "--save_as_external_data",
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


@pytest.mark.difference("Preprocessing external data")
def test_external_data_and_optimisation(tmp_path):
    """The reference's command refuses the two together, and optimises no model that has its weights outside."""
    path = modeltool.ROOT / "examples" / "digits_cnn" / "model.onnx"
    done = subprocess.run([sys.executable, "-m", "onnxruntime.quantization.preprocess", "--input", path,
                           "--output", tmp_path / "ref.onnx", "--save_as_external_data"], capture_output=True,
                          text=True, cwd=tmp_path)
    assert "does not support external data yet" in done.stderr and not (tmp_path / "ref.onnx").exists(), done.stderr
    onq("preprocess", "-i", path, "-o", tmp_path / "got.onnx", "--save_as_external_data", "--all_tensors_to_one_file")
    onq("preprocess", "-i", path, "-o", tmp_path / "plain.onnx")
    assert (tmp_path / "got.onnx.data").exists()
    assert_same(tmp_path / "plain.onnx", tmp_path / "got.onnx")
    outside = tmp_path / "outside.onnx"
    onnx.save(onnx.load(path), outside, save_as_external_data=True, location="outside.bin", size_threshold=0)
    e = reference(str(outside), tmp_path / "ref.onnx", skip_symbolic_shape=True)
    assert e is not None
    onq("preprocess", "-i", outside, "-o", tmp_path / "again.onnx", "--skip_symbolic_shape")
    onq("preprocess", "-i", path, "-o", tmp_path / "plain.onnx", "--skip_symbolic_shape")
    assert_same(tmp_path / "plain.onnx", tmp_path / "again.onnx")


# ---- refusals


@pytest.mark.parametrize("words, text", [
    (["--skip_optimization", "--skip_onnx_shape", "--skip_symbolic_shape"], "skipped"),
    (["--optimizer", "none", "--skip_onnx_shape", "--skip_symbolic_shape"], "skipped"),
    (["--skip_optimization", "--optimizer", "builtin"], "cannot be used together"),
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


# ---- opsets


def old_model(opset, op, mode="nearest"):
    inits = {"w": np.random.default_rng(1).random((4, 3, 3, 3), np.float32)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"], name="c", pads=[1, 1, 1, 1])]
    if op == "Upsample" and opset < 9:
        nodes.append(helper.make_node("Upsample", ["a"], ["y"], name="u", mode=mode, scales=[1.0, 1.0, 2.0, 2.0]))
    elif op in ("Upsample", "Resize"):
        inits["s"] = np.array([1, 1, 2, 2], np.float32)
        nodes.append(helper.make_node(op, ["a", "s"], ["y"], name="u", mode=mode))
    else:
        nodes.append(helper.make_node(op, ["a"], ["y"], name="u"))
    g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [1, 3, 4, 4])],
                          [helper.make_tensor_value_info("y", 1, None)],
                          [numpy_helper.from_array(v, k) for k, v in inits.items()])
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)], ir_version=6)


@pytest.mark.parametrize("opset", [7, 8, 9, 10])
@pytest.mark.parametrize("words", [[], ["--skip_optimization"]], ids=["ort", "none"])
def test_old_opset(opset, words, tmp_path):
    onnx.save(old_model(opset, "Softmax"), tmp_path / "in.onnx")
    e = reference(str(tmp_path / "in.onnx"), tmp_path / "r.onnx", skip_symbolic_shape=True, skip_optimization=bool(words))
    assert e is None
    onq("preprocess", "-i", tmp_path / "in.onnx", "-o", tmp_path / "m.onnx", "--skip_symbolic_shape", *words)
    ref, got = assert_same(tmp_path / "r.onnx", tmp_path / "m.onnx")
    assert ref.ir_version == got.ir_version


@pytest.mark.parametrize("opset, op", [(7, "Upsample"), (8, "Upsample"), (9, "Upsample"), (10, "Resize"), (9, "Softmax")])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("words", [[], ["--opset", "13"], ["--opset", "21", "--optimizer", "builtin"],
                                   ["--opset", "17", "--skip_optimization"]], ids=lambda w: "_".join(w))
def test_opset_raised(opset, op, mode, words, tmp_path):
    """The reference raises on Upsample (no adapter) and changes what Resize computes; the result must not change."""
    onnx.save(old_model(opset, op, mode), tmp_path / "in.onnx")
    onq("preprocess", "-i", tmp_path / "in.onnx", "-o", tmp_path / "m.onnx", *words)
    m = onnx.load(tmp_path / "m.onnx")
    assert next(o.version for o in m.opset_import if not o.domain) == (int(words[1]) if words else 11)
    onnx.checker.check_model(m)
    x = np.random.default_rng(2).random((1, 3, 4, 4), np.float32)
    a, b = session(tmp_path / "in.onnx").run(None, {"x": x})[0], session(tmp_path / "m.onnx").run(None, {"x": x})[0]
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("opset", [9, 10, 11])
@pytest.mark.parametrize("words", [[], ["skip_optimization"], ["skip_optimization", "skip_symbolic_shape"],
                                   ["skip_optimization", "skip_onnx_shape"], ["skip_onnx_shape"]], ids="_".join)
def test_where_data_lies(opset, words, tmp_path):
    """After raising the opset the reference reads large tensors from another file, and then they say where their data is."""
    m = old_model(opset, "Softmax")
    m.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.random.default_rng(1).random((12, 3, 3, 3), np.float32), "w"))
    onnx.save(m, tmp_path / "in.onnx")
    assert reference(str(tmp_path / "in.onnx"), tmp_path / "r.onnx", **dict.fromkeys(words, True)) is None
    onq("preprocess", "-i", tmp_path / "in.onnx", "-o", tmp_path / "m.onnx", *(f"--{w}" for w in words))
    says = [[(t.name, t.HasField("data_location")) for t in onnx.load(tmp_path / p).graph.initializer] for p in ("r.onnx", "m.onnx")]
    assert says[0] == says[1]


def test_oldest_opsets_stay(tmp_path):
    m = old_model(10, "Sigmoid")
    m.opset_import[0].version = 6
    onnx.save(m, tmp_path / "in.onnx")
    r = onq("preprocess", "-i", tmp_path / "in.onnx", "-o", tmp_path / "m.onnx", "--optimizer", "builtin")
    assert "too old" in r.stderr and onnx.load(tmp_path / "m.onnx").opset_import[0].version == 6
    onq("preprocess", "-i", tmp_path / "in.onnx", "-o", tmp_path / "n.onnx", "--opset", "13", status=1)
    only(tmp_path, "in.onnx", "m.onnx")


# ---- QNN


def qnn_reference(path, out, **kw):
    with contextlib.chdir(out.parent):
        try:
            return qnn_preprocess_model(path, out, **kw), None
        except Exception as e:  # noqa: BLE001 - any failure counts
            return False, e


def graph(nodes, inputs, outputs, inits, opset=17, ir=8):
    g = helper.make_graph([helper.make_node(n[0], n[1].split(), n[2].split(), **(n[3] if len(n) > 3 else {})) for n in nodes],
                          "g", [helper.make_tensor_value_info(k, 1, s) for k, s in inputs.items()],
                          [helper.make_tensor_value_info(k, 1, s) for k, s in outputs.items()],
                          [numpy_helper.from_array(np.asarray(v), k) for k, v in inits.items()])
    return helper.make_model(g, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


HALF = {"r": np.float32(2**0.5), "i": np.float32(0.5**0.5), "o": np.float32(1), "h": np.float32(0.5)}
XY = ({"x": ["n", 3, 4]}, {"y": None})


def norm(axes, pow_=True, cast=False):
    square = ("Pow", "d t", "p") if pow_ else ("Mul", "d d", "p")
    return [("ReduceMean", "x", "m", {"axes": axes, "name": "first"}), ("Sub", "x m", "d"), square,
            ("ReduceMean", "p", "v", {"axes": axes}), ("Add", "v e", "f"), ("Sqrt", "f", "g"), ("Div", "d g", "q"),
            ("Mul", "q w", "z"), ("Add", "z b", "y")]


NORM = {"t": np.float32(2), "e": np.float32(1e-5), "w": np.ones(4, np.float32) * 3, "b": np.arange(4, dtype=np.float32)}
S2D = [("Reshape", "x s1", "a"), ("Transpose", "a", "b", {"perm": [0, 1, 2, 4, 3, 5]}), ("Reshape", "b s2", "c"),
       ("Transpose", "c", "d", {"perm": [0, 1, 3, 2]}), ("Reshape", "d s3", "e"),
       ("Transpose", "e", "f", {"perm": [0, 2, 1, 3, 4]}), ("Reshape", "f s4", "y")]
S2DI = {"s1": [1, 3, 4, 2, 4, 2], "s2": [1, 3, 16, 4], "s3": [1, 3, 4, 4, 4], "s4": [1, 12, 4, 4]}
LP = [("ReduceL2", "x", "a", {"axes": [-1], "keepdims": 1}), ("Clip", "a k", "b"), ("Shape", "x", "s"),
      ("Expand", "b s", "c"), ("Div", "x c", "y")]
QNN = {
    "torch": ([("Div", "x r", "a"), ("Erf", "a", "b"), ("Add", "b o", "c"), ("Mul", "x c", "d"), ("Mul", "d h", "y")], *XY,
              HALF, {}),
    "torch_half_first": ([("Div", "x r", "a"), ("Erf", "a", "b"), ("Add", "o b", "c"), ("Mul", "h x", "d"),
                          ("Mul", "d c", "y")], *XY, HALF, {}),
    "keras": ([("Div", "x r", "a"), ("Erf", "a", "b"), ("Add", "b o", "c"), ("Mul", "c h", "d"), ("Mul", "x d", "y")], *XY,
              HALF, {}),
    "tensorflow": ([("Mul", "i x", "a"), ("Erf", "a", "b"), ("Add", "b o", "c"), ("Mul", "c h", "d"), ("Mul", "x d", "y")],
                   *XY, HALF, {}),
    "twice": ([("Div", "x r", "a", {"name": "Gelu_fused_Erf_4"}), ("Erf", "a", "b"), ("Add", "b o", "c"), ("Mul", "x c", "d"),
               ("Mul", "d h", "z"), ("Relu", "z", "k", {"name": "Gelu_fused_Erf_7"}), ("Div", "k r", "a2"), ("Erf", "a2", "b2"),
               ("Add", "b2 o", "c2"), ("Mul", "k c2", "d2"), ("Mul", "d2 h", "y")], *XY, HALF, {}),
    "other_constant": ([("Div", "x r", "a"), ("Erf", "a", "b"), ("Add", "b o", "c"), ("Mul", "x c", "d"), ("Mul", "d o", "y")],
                       *XY, HALF, {}),
    "layernorm": (norm([-1]), *XY, NORM, {"fuse_layernorm": True}),
    "layernorm_axis": (norm([2], False), *XY, NORM, {"fuse_layernorm": True}),
    "layernorm_off": (norm([-1]), *XY, NORM, {}),
    "lpnorm": (LP, {"x": [2, 3, 4]}, {"y": None}, {"k": np.float32(1e-12)}, {}),
    "lpnorm_epsilon": (LP, {"x": [2, 3, 4]}, {"y": None}, {"k": np.float32(1e-6)}, {}),
    "spacetodepth": (S2D, {"x": [1, 3, 8, 8]}, {"y": None}, {k: np.array(v) for k, v in S2DI.items()}, {}),
    "channel_last": ([("Conv", "x w", "a", {"name": "Transpose_channel_3"}), ("Relu", "a", "y")], {"x": [1, 3, 8, 8]},
                     {"y": [1, 4, 6, 6]}, {"w": np.ones((4, 3, 3, 3), np.float32)},
                     {"inputs_to_make_channel_last": ["x"], "outputs_to_make_channel_last": ["y"]}),
    "channel_last_input": ([("Relu", "x", "a"), ("Add", "a x", "y")], {"x": [1, 3, 8]}, {"y": None}, {},
                           {"inputs_to_make_channel_last": ["x"]}),
    "fixed": ([("Conv", "x w", "a"), ("Add", "a k", "y")], {"x": ["n", 3, "h", 8], "k": ["n", 1, 1, 1]},
              {"y": ["n", 4, "q", 6]}, {"w": np.ones((4, 3, 3, 3), np.float32)},
              {"dynamic_input_shapes": [("x", "2,3,9,8"), ("k", "2,1,1,1")]}),
    "initializer_input": ([("Add", "x w", "y")], {"x": [2], "w": [2]}, {"y": None}, {"w": np.ones(2, np.float32)},
                          {"exclude_initializer_from_input": True}),
}


def qnn_words(kw):
    out = ["--qnn"]
    for k, v in kw.items():
        if v is True:
            out.append(f"--{k}")
        elif k == "dynamic_input_shapes":
            for name, dims in v:
                out += ["--dynamic_input_shapes", f"{name}={dims}"]
        else:
            out += [f"--{k}", *v]
    return out


@pytest.mark.parametrize("name", QNN)
def test_qnn(name, tmp_path):
    nodes, inputs, outputs, inits, kw = QNN[name]
    ref_dir, got_dir = tmp_path / "ref", tmp_path / "got"
    ref_dir.mkdir()
    got_dir.mkdir()
    onnx.save(graph(nodes, inputs, outputs, inits), tmp_path / "in.onnx")
    made, e = qnn_reference(tmp_path / "in.onnx", ref_dir / "m.onnx", **kw)
    assert e is None
    onq("preprocess", "-i", tmp_path / "in.onnx", "-o", got_dir / "m.onnx", *qnn_words(kw), cwd=got_dir)
    only(got_dir, "m.onnx")
    assert loads(got_dir / "m.onnx") is None
    if not made:
        return  # the runtime put it together already, and every node has a name
    ref, got = assert_same(ref_dir / "m.onnx", got_dir / "m.onnx")
    assert shapes_of(ref.graph.input) == shapes_of(got.graph.input)
    assert shapes_of(ref.graph.output) == shapes_of(got.graph.output)


def shapes_of(values):
    return [(v.name, [d.dim_value or d.dim_param for d in v.type.tensor_type.shape.dim]) for v in values]


@shared
def test_qnn_shared(path, tmp_path):
    ref_dir, got_dir = tmp_path / "ref", tmp_path / "got"
    ref_dir.mkdir()
    got_dir.mkdir()
    made, e = qnn_reference(path, ref_dir / "m.onnx", fuse_layernorm=True)
    onq("preprocess", "-i", path, "-o", got_dir / "m.onnx", "--qnn", "--fuse_layernorm", cwd=got_dir)
    only(got_dir, "m.onnx")
    if e is not None or not made:
        pytest.skip(f"the reference {'raises ' + type(e).__name__ if e else 'has nothing to do'}: {str(e)[:80]}")
    assert_same(ref_dir / "m.onnx", got_dir / "m.onnx")


@pytest.mark.parametrize("words, status, text", [
    (["--fuse_layernorm"], 2, "--qnn"),
    (["--dynamic_input_shapes", "x=1,3"], 2, "--qnn"),
    (["--qnn", "--dynamic_input_shapes", "1,3"], 2, "1"),
    (["--qnn", "--dynamic_input_shapes", "x=1,a"], 2, "NAME"),
    (["--qnn", "--dynamic_input_shapes", "nothing=1,3"], 1, "nothing"),
    (["--qnn", "--dynamic_input_shapes", "x=1,2,3"], 1, "dimensions"),
    (["--qnn", "--dynamic_input_shapes", "x=2,5,4,4"], 1, "cannot become"),
    (["--qnn", "--inputs_to_make_channel_last", "nothing"], 1, "nothing"),
])
def test_qnn_refused(words, status, text, tmp_path):
    onnx.save(graph([("Relu", "x", "y")], {"x": [2, 3, 4, 4]}, {"y": None}, {}), tmp_path / "in.onnx")
    r = onq("preprocess", "-i", tmp_path / "in.onnx", "-o", tmp_path / "m.onnx", *words, status=status)
    assert text in r.stderr
    only(tmp_path, "in.onnx")


def test_drop_shapes(tmp_path):
    """Nothing else changes, in no command: the same bytes but for value_info, which is gone, in inner graphs too."""
    rng = np.random.default_rng(5)
    w = [numpy_helper.from_array(rng.normal(size=(64, 64)).astype(np.float32), name) for name in ("w0", "w1")]
    w += [numpy_helper.from_array(np.ones(64, np.float32), "scale")]
    inner = [helper.make_graph([helper.make_node("Relu", ["n"], [f"r{i}"]), helper.make_node("Neg", [f"r{i}"], [f"o{i}"])],
                               f"g{i}", [], [helper.make_tensor_value_info(f"o{i}", TensorProto.FLOAT, ["a", "b", 64])])
             for i in range(2)]
    nodes = [helper.make_node("MatMul", ["x", "w0"], ["m"], name="first"), helper.make_node("Add", ["x", "m"], ["s"]),
             helper.make_node("LayerNormalization", ["s", "scale"], ["n"]),
             helper.make_node("If", ["c"], ["i"], then_branch=inner[0], else_branch=inner[1]),
             helper.make_node("MatMul", ["i", "w1"], ["y"], name="last")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["a", "b", 64]),
                                           helper.make_tensor_value_info("c", TensorProto.BOOL, [])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b", 64])], w)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    np.savez(tmp_path / "d.npz", x=rng.normal(size=(1, 3, 64)).astype(np.float32), c=np.array(True))
    onq("preprocess", "-i", tmp_path / "m.onnx", "-o", tmp_path / "p.onnx")

    def graphs(g):
        return [g] + [x for n in g.node for a in n.attribute if a.HasField("g") for x in graphs(a.g)]

    for words in (["preprocess"], ["static", "--data", tmp_path / "d.npz"], ["dynamic"], ["nbits"],
                  ["static", "--data", tmp_path / "d.npz", "--quant_format", "qoperator"]):
        made = []
        for more in ([], ["--drop_shapes"]):
            onq(*words, "-i", tmp_path / "p.onnx", "-o", tmp_path / "o.onnx", *more)
            made.append(onnx.load(tmp_path / "o.onnx"))
        with_shapes, without = made
        assert with_shapes.graph.value_info, words
        assert not any(g.value_info for g in graphs(without.graph)), words
        for g in graphs(with_shapes.graph):
            g.ClearField("value_info")
        assert with_shapes.SerializeToString(deterministic=True) == without.SerializeToString(deterministic=True), words
    onq("preprocess", "-i", tmp_path / "p.onnx", "-o", tmp_path / "only.onnx", "--skip_optimization", "--skip_onnx_shape",
        "--skip_symbolic_shape", "--drop_shapes")
    assert not onnx.load(tmp_path / "only.onnx").graph.value_info
