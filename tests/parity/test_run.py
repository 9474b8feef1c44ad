"""`onq run` gives the bits that onnxruntime gives in Python, and refuses what it refuses.

Every shared model, and the node models of Debian's libonnx-testdata (one in ONQ_RUN_EVERY, 4 by default): the same
inputs, optimisation level and number of threads. Sequences and optionals are among the inputs and outputs.
"""
import os
import pathlib
import re

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import modeltool
from common import onq, refused

LEVELS = {
    "none": ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


def session(path, level="all", threads=1):
    o = ort.SessionOptions()
    o.graph_optimization_level = LEVELS[level]
    o.intra_op_num_threads = threads
    o.inter_op_num_threads = 1
    o.log_severity_level = 4
    return ort.InferenceSession(str(path), o, providers=["CPUExecutionProvider"])


def read_value(path, type_text):
    data = pathlib.Path(path).read_bytes()
    if type_text.startswith("optional"):
        m = onnx.OptionalProto()
        m.ParseFromString(data)
        return numpy_helper.to_optional(m)
    if type_text.startswith("seq"):
        m = onnx.SequenceProto()
        m.ParseFromString(data)
        return numpy_helper.to_list(m)
    m = onnx.TensorProto()
    m.ParseFromString(data)
    return numpy_helper.to_array(m)


def same(a, b):
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    if a is None or b is None:
        return a is b
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind in "OSU" or b.dtype.kind in "OSU":
        text = lambda x: [v.decode() if isinstance(v, bytes) else str(v) for v in x.ravel()]
        return a.shape == b.shape and text(a) == text(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def inputs_of(s, folder):
    return {i.name: read_value(folder / f"input_{k}.pb", i.type) for k, i in enumerate(s.get_inputs())}


def check_model(path, out, level, limit=None):
    s = session(path, level)
    words = ["run", path, "-o", out, "--threads", 1, "--optimization", level]
    r = onq(*words, *(["--limit", limit] if limit else []))
    assert r.returncode == 0, r.stderr
    folders = sorted(path.parent.glob("test_data_set_*"), key=lambda p: int(p.name.rsplit("_", 1)[1]))[:limit]
    for folder in folders:
        wanted = s.run(None, inputs_of(s, folder))
        for k, (o, w) in enumerate(zip(s.get_outputs(), wanted)):
            got = read_value(out / folder.name / f"output_{k}.pb", o.type)
            assert same(got, w), f"{folder.name} output {k} ({o.name})"
    assert len(list(out.iterdir())) == len(folders)
    return len(folders)


SHARED = modeltool.shared_models()


@pytest.mark.parametrize("level", ["none", "all"])
@pytest.mark.parametrize("path", SHARED, ids=lambda p: p.parent.name)
def test_shared(tmp_path, path, level):
    check_model(path, tmp_path / "out", level, limit=3)


def test_some_models_were_there():
    if not SHARED:
        pytest.skip("no shared models: 0 tested")
    assert len(SHARED) >= 10


def test_node_models(tmp_path):
    every = int(os.environ.get("ONQ_RUN_EVERY", "4"))
    models = [p for p in modeltool.testdata_models() if (p.parent / "test_data_set_0").is_dir()]
    if not models:
        pytest.skip("libonnx-testdata is not installed: 0 models tested")
    # Those with sequences and optionals always.
    always, never = re.compile("sequence|optional|string"), re.compile("bernoulli|random|dropout|multinomial")
    chosen = [p for i, p in enumerate(models)
              if (i % every == 0 or always.search(p.parent.name)) and not never.search(p.parent.name)]
    ran, refused, wrong = 0, [], []
    for i, path in enumerate(chosen):
        out = tmp_path / str(i)
        try:
            s = session(path)
            for folder in path.parent.glob("test_data_set_*"):
                s.run(None, inputs_of(s, folder))
        except Exception as e:  # the runtime's refusal, whatever its class
            if "No corresponding Numpy type" in str(e):
                continue  # Python's own limit
            r = onq("run", path, "-o", out, "--threads", 1)
            lines = r.stderr.strip().splitlines()
            if r.returncode != 1 or len(lines) != 1 or not lines[0].startswith("onq: error: ") or out.exists():
                wrong.append(f"{path.parent.name}: Python refuses ({str(e)[:100]}), onq: {r.returncode} {r.stderr}")
            refused.append(path.parent.name)
            continue
        try:
            check_model(path, out, "all")
            ran += 1
        except AssertionError as e:
            wrong.append(f"{path.parent.name}: {e}")
    print(f"{ran} models run, {len(refused)} refused by both, of {len(models)}")
    assert not wrong, "\n".join(wrong)
    assert ran > 0.6 * len(chosen)


# ---------------------------------------------------------------- where the weights lie
def make_linear(path, rows=4096, storage="raw", **save):
    """y = x w + b with a weight large enough to be left in the file."""
    rng = np.random.default_rng(1)
    w = rng.standard_normal((rows, 8)).astype(np.float32)
    if storage == "raw":
        t = numpy_helper.from_array(w, "w")
    elif storage == "typed":
        t = helper.make_tensor("w", TensorProto.FLOAT, w.shape, w.ravel())
    nodes = [helper.make_node("MatMul", ["x", "w"], ["xw"]), helper.make_node("Add", ["xw", "b"], ["y"])]
    inits = [numpy_helper.from_array(np.arange(8, dtype=np.float32), "b")]
    if storage == "constant":
        nodes.insert(0, helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(w, "v")))
    elif storage == "int64":
        # varints: has to go through memory
        n = (w * 1000).astype(np.int64)
        inits.append(helper.make_tensor("n", TensorProto.INT64, n.shape, n.ravel()))
        nodes.insert(0, helper.make_node("Cast", ["n"], ["w"], to=TensorProto.FLOAT))
    elif storage == "double":
        inits.append(helper.make_tensor("n", TensorProto.DOUBLE, w.shape, w.astype(np.float64).ravel()))
        nodes.insert(0, helper.make_node("Cast", ["n"], ["w"], to=TensorProto.FLOAT))
    else:
        inits.append(t)
    g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", rows])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 8])], inits)
    m = helper.make_model(g, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(m, str(path), **save)
    np.savez(path.parent / "x.npz", x=rng.standard_normal((2, rows)).astype(np.float32))


def run_linear(tmp_path, path):
    r = onq("run", path, "--data", path.parent / "x.npz", "-o", tmp_path / "out", "--threads", 1)
    assert r.returncode == 0, r.stderr
    got = read_value(tmp_path / "out" / "test_data_set_0" / "output_0.pb", "tensor")
    wanted = session(path).run(None, {"x": np.load(path.parent / "x.npz")["x"]})[0]
    assert same(got, wanted)


@pytest.mark.parametrize("storage", ["raw", "typed", "constant", "int64", "double"])
def test_storage(tmp_path, storage):
    make_linear(tmp_path / "m.onnx", storage=storage)
    run_linear(tmp_path, tmp_path / "m.onnx")


@pytest.mark.parametrize("one", [True, False])
def test_external(tmp_path, one):
    make_linear(tmp_path / "m.onnx", save_as_external_data=True, all_tensors_to_one_file=one, size_threshold=0)
    run_linear(tmp_path, tmp_path / "m.onnx")


def test_external_in_a_subfolder_and_model_elsewhere(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").mkdir()
    make_linear(tmp_path / "real" / "m.onnx")
    (tmp_path / "link" / "m.onnx").symlink_to(tmp_path / "real" / "m.onnx")
    (tmp_path / "link" / "x.npz").symlink_to(tmp_path / "real" / "x.npz")
    run_linear(tmp_path, tmp_path / "link" / "m.onnx")


def test_relative_path(tmp_path):
    make_linear(tmp_path / "m.onnx")
    r = onq("run", "m.onnx", "--data", "x.npz", cwd=tmp_path)
    assert r.returncode == 0, r.stderr


# ---------------------------------------------------------------- refusals
def test_no_runtime(tmp_path):
    make_linear(tmp_path / "m.onnx")
    run = lambda *w, **kw: onq("run", tmp_path / "m.onnx", "--data", tmp_path / "x.npz", *w, **kw)
    refused(run("--onnxruntime", tmp_path / "nothing.so"), "--onnxruntime", "nothing.so")
    refused(run("--onnxruntime", tmp_path), "--onnxruntime", "no libonnxruntime.so")
    (tmp_path / "empty.so").write_bytes(b"not a library")
    refused(run(env={**os.environ, "ONQ_ONNXRUNTIME": str(tmp_path / "empty.so")}), "ONQ_ONNXRUNTIME", "empty.so")


def test_provider(tmp_path):
    make_linear(tmp_path / "m.onnx")
    run = lambda *w: onq("run", tmp_path / "m.onnx", "--data", tmp_path / "x.npz", *w)
    for name in ("CPU", "cpu", "CPUExecutionProvider"):
        assert run("--provider", name).returncode == 0
    refused(run("--provider", "CUDA"), "CUDA", "CPU")
    refused(run("--provider", "QNN"), "QNN", "not supported in this build")
    refused(run("--provider", "Nonsense"), "Nonsense", "Unknown provider")


def test_custom_ops_library(tmp_path):
    make_linear(tmp_path / "m.onnx")
    r = onq("run", tmp_path / "m.onnx", "--data", tmp_path / "x.npz", "--custom_ops", tmp_path / "none.so")
    refused(r, "none.so")


def test_model_the_runtime_refuses(tmp_path):
    g = helper.make_graph([helper.make_node("NoSuchOperator", ["x"], ["y"], name="the_node")], "g",
                          [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(tmp_path / "m.onnx"))
    refused(onq("run", tmp_path / "m.onnx", "--data", "random:1", "--quiet"), "m.onnx", "NoSuchOperator")


def test_node_that_fails_is_named(tmp_path):
    g = helper.make_graph([helper.make_node("Reshape", ["x", "s"], ["y"], name="the_node")], "g",
                          [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                          [numpy_helper.from_array(np.array([7, 11], np.int64), "s")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(tmp_path / "m.onnx"))
    r = onq("run", tmp_path / "m.onnx", "--data", "random:1", "--quiet", "--dim", "n=5", "-o", tmp_path / "out")
    refused(r, "node 'the_node' (Reshape)", "random sample 0")
    assert not (tmp_path / "out").exists()


def test_failure_leaves_old_outputs(tmp_path):
    make_linear(tmp_path / "m.onnx")
    folder = tmp_path / "out" / "test_data_set_0"
    folder.mkdir(parents=True)
    (folder / "output_0.pb").write_bytes(b"old")
    x = np.load(tmp_path / "x.npz")["x"]
    data = tmp_path / "data"
    data.mkdir()
    np.savez(data / "a.npz", x=x)
    (data / "b.npz").write_bytes((data / "a.npz").read_bytes()[:-100])
    refused(onq("run", tmp_path / "m.onnx", "--data", data, "-o", tmp_path / "out"), "b.npz")
    assert (folder / "output_0.pb").read_bytes() == b"old"
    assert sorted(p.name for p in (tmp_path / "out").rglob("*")) == ["output_0.pb", "test_data_set_0"]


def test_npz_outputs(tmp_path):
    make_linear(tmp_path / "m.onnx")
    r = onq("run", tmp_path / "m.onnx", "--data", tmp_path / "x.npz", "-o", tmp_path / "out", "--format", "npz",
            "--threads", 1)
    assert r.returncode == 0, r.stderr
    got = np.load(tmp_path / "out" / "test_data_set_0" / "outputs.npz")
    x = np.load(tmp_path / "x.npz")["x"]
    assert got.files == ["y"] and same(got["y"], session(tmp_path / "m.onnx").run(None, {"x": x})[0])


JOBS = (1, 2, 7)


@pytest.mark.parametrize("words", [["-o"], ["--all"], ["-o", "--format", "npz"]], ids=" ".join)
def test_jobs_give_the_same(tmp_path, words):
    path = modeltool.MODELS / "digits_cnn" / "model.onnx"
    if not path.exists():
        pytest.skip(f"no such model: {path}")
    seen = []
    for jobs in JOBS:
        out = tmp_path / f"out{jobs}"
        more = [w for word in words for w in ([word, out] if word == "-o" else [word])]
        r = onq("run", path, "--data", "random:23:1", "--json", "--jobs", jobs, *more)
        assert r.returncode == 0, r.stderr
        files = {p.relative_to(out): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()} if "-o" in words else {}
        assert len(files) == (23 if "-o" in words else 0)
        seen.append((r.stdout.replace(str(out), "OUT"), files))
    assert seen[0] == seen[1] == seen[2] and any(seen[0])


def test_random_numbers_are_drawn_in_order(tmp_path):
    g = helper.make_graph([helper.make_node("RandomNormal", [], ["r"], shape=[2, 64], seed=3.0),
                           helper.make_node("Add", ["x", "r"], ["y"])], "g",
                          [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 64])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 64])])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(tmp_path / "m.onnx"))
    seen = [onq("run", tmp_path / "m.onnx", "--data", "random:40:1", "--all", "--jobs", j).stdout for j in JOBS]
    assert seen[0] == seen[1] == seen[2] and seen[0].count("mean") == 40


@pytest.mark.parametrize("jobs", JOBS)
def test_first_failure_of_several(tmp_path, jobs):
    """Samples of two lengths; a Reshape refuses those from number 5 on."""
    g = helper.make_graph([helper.make_node("Reshape", ["x", "s"], ["y"], name="the_node")], "g",
                          [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
                          [numpy_helper.from_array(np.array([2, -1], np.int64), "s")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(tmp_path / "m.onnx"))
    data = tmp_path / "data"
    data.mkdir()
    for k in range(12):
        np.savez(data / f"s{k:02}.npz", x=np.zeros(4 if k < 5 else 5, np.float32))
    r = onq("run", tmp_path / "m.onnx", "--data", data, "--quiet", "-o", tmp_path / "out", "--jobs", jobs)
    refused(r, "s05.npz")
    assert not (tmp_path / "out").exists()
