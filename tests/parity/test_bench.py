"""`onq bench`: the numbers of agreement are numpy's; libraries of custom operators; runtimes that are too old."""
import json
import os
import shutil
import subprocess

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import modeltool
from common import onq, refused



def linear(path, w, output="y", name="x"):
    g = helper.make_graph([helper.make_node("MatMul", [name, "w"], [output])], "g",
                          [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", w.shape[0]])],
                          [helper.make_tensor_value_info(output, TensorProto.FLOAT, ["n", w.shape[1]])],
                          [numpy_helper.from_array(w, "w")])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))


@pytest.fixture
def pair(tmp_path):
    rng = np.random.default_rng(5)
    w = rng.standard_normal((20, 10)).astype(np.float32)
    v = w + 0.2 * rng.standard_normal(w.shape).astype(np.float32)
    linear(tmp_path / "a.onnx", w)
    linear(tmp_path / "b.onnx", v, output="other_name")
    x = rng.standard_normal((6, 4, 20)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    return tmp_path, w, v, x


def run(path, x):
    o = ort.SessionOptions()
    o.intra_op_num_threads = 1
    s = ort.InferenceSession(str(path), o, providers=["CPUExecutionProvider"])
    return np.stack([s.run(None, {"x": k})[0] for k in x]).astype(np.float64)


def test_agreement(pair):
    tmp_path, w, v, x = pair
    a, b = tmp_path / "a.onnx", tmp_path / "b.onnx"
    r = onq("bench", a, b, a, "--data", tmp_path / "x.npz", "--json", "--runs", 30, "--threads", 1)
    assert r.returncode == 0, r.stderr
    got = json.loads(r.stdout)
    assert got["samples"] == 6 and len(got["models"]) == 3
    first, other, same = got["models"]
    assert "agreement" not in first
    ya, yb = run(a, x), run(b, x)
    agreement = other["agreement"]
    cosine = (ya * yb).sum() / np.sqrt((ya * ya).sum() * (yb * yb).sum())
    sqnr = 10 * np.log10((ya * ya).sum() / ((ya - yb) ** 2).sum())
    top1 = (ya.argmax(-1) == yb.argmax(-1)).mean()
    assert 0 < top1 < 1
    assert agreement["cosine"] == pytest.approx(cosine, rel=1e-12)
    assert agreement["sqnr"] == pytest.approx(sqnr, rel=1e-9)
    assert agreement["top1"] == pytest.approx(top1)
    assert agreement["max_difference"] == pytest.approx(np.abs(ya - yb).max(), rel=1e-12)
    assert agreement["outputs"][0]["name"] == "y"
    assert same["agreement"]["cosine"] == 1 and same["agreement"]["sqnr"] is None and same["agreement"]["top1"] == 1
    for m in got["models"]:
        t = m["latency_ms"]
        assert m["runs"] == 30 and 0 < t["min"] <= t["median"] <= t["p90"] <= t["max"]
        assert m["throughput"] == pytest.approx(1000 / t["mean"])
        assert m["size"] == os.path.getsize(m["model"])
    text = onq("bench", a, b, "--data", tmp_path / "x.npz", "--runs", 5).stdout.splitlines()
    assert len(text) == 3 and "median ms" in text[0] and "SQNR" in text[0]


def test_worst_output_first(tmp_path):
    """Several outputs: the table shows the worst one, never a pool; all are listed, worst first."""
    rng = np.random.default_rng(8)
    w = rng.standard_normal((16, 16)).astype(np.float32)

    def model(path, noise):
        names = ["large", "small", "same"]
        inits = [numpy_helper.from_array((w + k * rng.standard_normal(w.shape)).astype(np.float32), f"w{i}")
                 for i, k in enumerate(noise)]
        gain = [numpy_helper.from_array(np.float32(g), f"g{i}") for i, g in enumerate((1000.0, 0.01, 1.0))]
        nodes = [n for i, name in enumerate(names) for n in (helper.make_node("MatMul", ["x", f"w{i}"], [f"m{i}"]),
                                                             helper.make_node("Mul", [f"m{i}", f"g{i}"], [name]))]
        g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [4, 16])],
                              [helper.make_tensor_value_info(n, 1, [4, 16]) for n in names], inits + gain)
        onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))

    model(tmp_path / "a.onnx", (0, 0, 0))
    model(tmp_path / "b.onnx", (0.001, 0.5, 0))
    words = ["bench", tmp_path / "a.onnx", tmp_path / "b.onnx", "--data", "random:3", "--runs", 2]
    agreement = json.loads(onq(*words, "--json").stdout)["models"][1]["agreement"]
    assert [o["name"] for o in agreement["outputs"]] == ["small", "large", "same"]
    assert agreement["worst_output"] == "small" and agreement["outputs"][0]["sqnr"] == agreement["sqnr"] < 12
    assert agreement["outputs"][1]["sqnr"] > 50 and agreement["outputs"][2]["sqnr"] is None
    text = onq(*words).stdout.splitlines()
    assert f"{agreement['sqnr']:.2f}" in text[2]
    below = text[text.index("") + 1:]
    assert "worst first" in below[0] and [line.split()[-1] for line in below[1:]] == ["small", "large", "same"]


@pytest.mark.parametrize("words,part", [
    (["dynamic"], "ConvInteger"),
    (["static", "--data", "random:2", "--activation_type", "quint16"], "have 16 bits"),
    (["static", "--data", "random:2", "--weight_type", "quint8"], "weights are uint8"),
    (["static", "--data", "random:2"], "depthwise or grouped"),
], ids=["dynamic", "16 bits", "u8u8", "plain"])
def test_slow_parts_are_named(tmp_path, words, part):
    """What makes a quantized model slow is in it, whatever the clock says; a float model has none of it."""
    rng = np.random.default_rng(2)
    g = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["a"], "dense", pads=[1, 1, 1, 1]), helper.make_node("Conv", ["a", "v"], ["y"], "depth", group=8)], "g",
        [helper.make_tensor_value_info("x", 1, [1, 4, 8, 8])], [helper.make_tensor_value_info("y", 1, [1, 8, 6, 6])],
        [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in (("w", (8, 4, 3, 3)), ("v", (8, 1, 3, 3)))])
    onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), str(tmp_path / "m.onnx"))
    assert onq(*words, "-i", tmp_path / "m.onnx", "-o", tmp_path / "q.onnx").returncode == 0
    done = onq("bench", tmp_path / "m.onnx", tmp_path / "q.onnx", "--data", "random:2", "--runs", 5, "--json")
    first, other = json.loads(done.stdout)["models"]
    assert "slow_parts" not in first and any(part in text for text in other["slow_parts"]), other
    assert isinstance(other["slower_than_first"], bool)
    text = onq("bench", tmp_path / "m.onnx", tmp_path / "q.onnx", "--data", "random:2", "--runs", 5).stdout
    assert text.splitlines()[0].split()[3:9] == ["min", "ms", "median", "ms", "p90", "ms"]
    assert ("slower than float" in text) == (part in text) or part == "depthwise or grouped"


def test_beside_the_first_model(pair):
    tmp_path, w, v, x = pair
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    shutil.copy(tmp_path / "b.onnx", elsewhere)
    for k in range(3):
        folder = tmp_path / f"test_data_set_{k}"
        folder.mkdir()
        (folder / "input_0.pb").write_bytes(numpy_helper.from_array(x[k], "x").SerializeToString())
    r = onq("bench", tmp_path / "a.onnx", elsewhere / "b.onnx", "--runs", 3, "--json")
    assert r.returncode == 0, r.stderr
    assert json.loads(r.stdout)["samples"] == 3


def test_outputs_that_cannot_be_compared(pair):
    tmp_path, w, v, x = pair
    linear(tmp_path / "c.onnx", w[:, :7])
    r = onq("bench", tmp_path / "a.onnx", tmp_path / "c.onnx", "--data", tmp_path / "x.npz", "--runs", 2, "--json")
    assert r.returncode == 0, r.stderr
    assert json.loads(r.stdout)["models"][1]["agreement"]["cosine"] is None
    linear(tmp_path / "d.onnx", w, name="another_input")
    refused(onq("bench", tmp_path / "a.onnx", tmp_path / "d.onnx", "--data", tmp_path / "x.npz"), "d.onnx",
            "another_input")
    assert onq("bench").returncode == 2


def test_external_data_counts(tmp_path):
    w = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    linear(tmp_path / "a.onnx", w)
    onnx.save(onnx.load(str(tmp_path / "a.onnx")), str(tmp_path / "b.onnx"), save_as_external_data=True,
              location="b.bin", size_threshold=0)
    r = onq("bench", tmp_path / "b.onnx", "--data", "random:2", "--quiet", "--json", "--runs", 2)
    assert r.returncode == 0, r.stderr
    assert json.loads(r.stdout)["models"][0]["size"] == os.path.getsize(tmp_path / "b.onnx") + w.nbytes


# ---------------------------------------------------------------- libraries made for the test
@pytest.fixture(scope="module")
def compiler():
    cc = shutil.which("cc") or shutil.which("gcc")
    if cc is None:
        pytest.skip("no C compiler: 0 libraries made")
    return cc


def build(compiler, path, source):
    (path.parent / "source.c").write_text(source)
    subprocess.run([compiler, "-std=c17", "-shared", "-fPIC", "-D_GNU_SOURCE", f"-I{modeltool.ROOT}/src",
                    f"-I{modeltool.ROOT}/include", "-o", path, path.parent / "source.c"], check=True)


CUSTOM = r"""
#include "engine/ort_api.h"
static const void *const *table;
static const char *name(const oq_ort_custom_op *o) { return "Twice"; }
static const char *provider(const oq_ort_custom_op *o) { return NULL; }
static int type(const oq_ort_custom_op *o, size_t i) { return 1; }
static size_t one(const oq_ort_custom_op *o) { return 1; }
static int zero(const oq_ort_custom_op *o, size_t i) { return 0; }
static void *create(const oq_ort_custom_op *o, const void *api, const OrtKernelInfo *i) { return (void *)1; }
static void destroy(void *k) {}
static void compute(void *k, OrtKernelContext *c) {
    OrtStatus *(*input)(const OrtKernelContext *, size_t, const OrtValue **) = (void *)table[90];
    OrtStatus *(*output)(OrtKernelContext *, size_t, const int64_t *, size_t, OrtValue **) = (void *)table[91];
    OrtStatus *(*data)(OrtValue *, void **) = (void *)table[51];
    const OrtValue *in;
    OrtValue *out;
    float *x, *y;
    int64_t n = 3;
    input(c, 0, &in);
    output(c, 0, &n, 1, &out);
    data((OrtValue *)in, (void **)&x);
    data(out, (void **)&y);
    for (int i = 0; i < 3; i++) y[i] = 2 * x[i];
}
static const oq_ort_custom_op op = {.version = 12, .create = create, .get_name = name, .get_provider = provider,
    .get_input_type = type, .get_input_count = one, .get_output_type = type, .get_output_count = one,
    .compute = compute, .destroy = destroy, .get_input_characteristic = zero, .get_output_characteristic = zero};
OrtStatus *RegisterCustomOps(OrtSessionOptions *o, const void *base) {
    const void *(*get)(uint32_t) = *(void *const *)base;
    table = get(12);
    OrtStatus *(*make)(const char *, OrtCustomOpDomain **) = (void *)table[26];
    OrtStatus *(*add)(OrtCustomOpDomain *, const oq_ort_custom_op *) = (void *)table[27];
    OrtStatus *(*use)(OrtSessionOptions *, OrtCustomOpDomain *) = (void *)table[28];
    OrtCustomOpDomain *d;
    OrtStatus *s = make("test.domain", &d);
    if (s == NULL) s = add(d, &op);
    return s != NULL ? s : use(o, d);
}
"""


def test_custom_operators(compiler, tmp_path):
    build(compiler, tmp_path / "twice.so", CUSTOM)
    g = helper.make_graph([helper.make_node("Twice", ["x"], ["y"], domain="test.domain")], "g",
                          [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])])
    sets = [helper.make_opsetid("", 13), helper.make_opsetid("test.domain", 1)]
    onnx.save(helper.make_model(g, opset_imports=sets, ir_version=8), str(tmp_path / "m.onnx"))
    np.save(tmp_path / "x.npy", np.array([1, -2, 3], np.float32))
    words = ["run", tmp_path / "m.onnx", "--data", tmp_path / "x.npy", "-o", tmp_path / "out", "--format", "npz"]
    refused(onq(*words), "m.onnx", "Twice")
    r = onq(*words, "--custom_ops", tmp_path / "twice.so")
    assert r.returncode == 0, r.stderr
    assert list(np.load(tmp_path / "out" / "test_data_set_0" / "outputs.npz")["y"]) == [2, -4, 6]


def test_old_runtime(compiler, tmp_path):
    build(compiler, tmp_path / "libonnxruntime.so.1.10.0", """
        #include <stddef.h>
        #include <stdint.h>
        static const void *get(uint32_t v) { return v > 10 ? NULL : &get; }
        static const char *version(void) { return "1.10.0"; }
        static const struct { const void *(*get)(uint32_t); const char *(*version)(void); } base = {get, version};
        const void *OrtGetApiBase(void) { return &base; }
    """)
    linear(tmp_path / "a.onnx", np.zeros((2, 2), np.float32))
    for where in (tmp_path, tmp_path / "libonnxruntime.so.1.10.0"):
        refused(onq("run", tmp_path / "a.onnx", "--data", "random:1", "--quiet", "--onnxruntime", where), "1.10.0",
                "too old", "1.18")


def test_throughput(pair):
    tmp_path, *_ = pair
    words = ["bench", tmp_path / "a.onnx", tmp_path / "b.onnx", "--data", tmp_path / "x.npz", "--runs", 40, "--throughput"]
    r = onq(*words, "--jobs", 3, "--json")
    assert r.returncode == 0, r.stderr
    for m in json.loads(r.stdout)["models"]:
        f = m["in_flight"]
        assert f["jobs"] == 3 and f["runs"] == 40 and f["throughput"] > 0
        assert f["scaling"] == pytest.approx(f["throughput"] / f["throughput_of_one"])
    r = onq(*words)
    assert r.returncode == 0 and "scaling" in r.stdout, r.stderr
    for wrong in (words[:-1] + ["--jobs", 2], ["bench", tmp_path / "a.onnx", "--units", "--throughput"]):
        r = onq(*wrong)
        assert r.returncode == 2 and "--throughput" in r.stderr, r.stderr


def test_the_command_for_units_works(tmp_path):
    """Where nothing in a quantized model explains its time, the command that looks further works as it is printed."""
    rng = np.random.default_rng(3)

    def chain(path, *sizes):
        names = ["x", *(f"t{i}" for i in range(len(sizes) - 2)), "y"]
        nodes = [helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]], f"m{i}") for i in range(len(sizes) - 1)]
        inits = [numpy_helper.from_array((rng.standard_normal(s) / 9).astype(np.float32), f"w{i}") for i, s in enumerate(zip(sizes, sizes[1:]))]
        g = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [64, sizes[0]])],
                              [helper.make_tensor_value_info("y", 1, [64, sizes[-1]])], inits)
        onnx.save(helper.make_model(g, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)

    chain(tmp_path / "-small.onnx", 16, 16)
    chain(tmp_path / "large.onnx", 16, 1024, 1024, 1024, 16)
    onq("static", "-i", tmp_path / "large.onnx", "-o", tmp_path / "q.onnx", "--data", "random:2", "--op_set", "noout", status=0)
    done = onq("bench", "--data", "random:2", "--runs", 5, "--", "-small.onnx", "q.onnx", cwd=tmp_path, status=0)
    line = next(line for line in done.stdout.splitlines() if "shows which nodes gain" in line)
    words = line.split(": ", 1)[1].split(" shows which")[0].split()
    assert words == ["onq", "bench", "--units", "./-small.onnx", "--data", "random:2"]
    assert "integers" in onq(*words[1:], cwd=tmp_path, status=0).stdout
