"""test_debug_calls.py - the calls of onq.h that stand for the functions of the reference's qdq_loss_debug, through ctypes.

Each call is compared with its counterpart: the augmented model, the activations it gives, the matching, the arrays and
the errors. The wrapper below is what a binding needs and no more.
"""
import ctypes as C
import logging
import math
import os
import pathlib

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization as Q
from onnxruntime.quantization import qdq_loss_debug as ref

from common import BUILD
from quantcase import Reader
from test_debug import CLOSE, lifted, need, quantize, samples_of

LIBRARY = BUILD / "libonq.so"
NONE = C.c_size_t(-1).value


class Error(C.Structure):
    _fields_ = [("code", C.c_int), ("offset", C.c_int64), ("text", C.c_char * 1024)]


class Tensor(C.Structure):
    _fields_ = [("name", C.c_char_p), ("dtype", C.c_int32), ("rank", C.c_size_t), ("dims", C.POINTER(C.c_int64)),
                ("data", C.c_void_p), ("size", C.c_size_t), ("strings", C.POINTER(C.c_char_p)),
                ("strides", C.POINTER(C.c_int64))]

    def array(self):
        dtype = helper.tensor_dtype_to_np_dtype(self.dtype)
        raw = C.string_at(self.data, self.size) if self.size else b""
        return np.frombuffer(raw, dtype).reshape([self.dims[i] for i in range(self.rank)])


class WeightRow(C.Structure):
    _fields_ = [("name", C.c_char_p), ("flt", Tensor), ("dequantized", Tensor)]


class ActivationRow(C.Structure):
    _fields_ = [("name", C.c_char_p), ("pre", C.c_size_t), ("post", C.c_size_t), ("flt", C.c_size_t)]


NEXT = C.CFUNCTYPE(C.c_int, C.c_void_p, C.POINTER(C.POINTER(Tensor)), C.POINTER(C.c_size_t))
LOG = C.CFUNCTYPE(None, C.c_void_p, C.c_int, C.c_char_p)


class ReaderCalls(C.Structure):
    _fields_ = [("next", NEXT), ("ctx", C.c_void_p), ("rewind", C.c_void_p), ("count", C.c_uint64)]


class OnqError(Exception):
    pass


class Library:
    """The calls, with an error as an exception."""

    def __init__(self):
        self.c = C.CDLL(str(LIBRARY))
        for name in ("onq_env_new", "onq_activations_name", "onq_activations_at", "onq_activation_match_at",
                     "onq_weight_match_name"):
            getattr(self.c, name).restype = C.c_void_p
        for name in ("onq_activations_count", "onq_activation_match_count", "onq_weight_match_count"):
            getattr(self.c, name).restype = C.c_size_t
        self.env = C.c_void_p(self.c.onq_env_new(None))
        self.said = []
        self._log = LOG(lambda ctx, level, text: self.said.append(text.decode()))
        self.c.onq_env_set_log(self.env, self._log, None)

    def __getattr__(self, name):
        def call(*args):
            err = Error()
            code = getattr(self.c, "onq_" + name)(*args, C.byref(err))
            if code:
                raise OnqError(code, err.text.decode())
        return call

    # modify_model_output_intermediate_tensors

    def modify(self, source, target, op_types=(), external=False):
        ops = (C.c_char_p * max(len(op_types), 1))(*[o.encode() for o in op_types])
        self.debug_modify_model(self.env, os.fsencode(source), os.fsencode(target), ops, C.c_size_t(len(op_types)),
                                int(external))

    # collect_activations

    def tensor(self, name, a, keep):
        a = np.ascontiguousarray(a)
        t = Tensor(name=name.encode(), dtype=helper.np_dtype_to_tensor_dtype(a.dtype), rank=a.ndim, size=a.nbytes)
        dims = (C.c_int64 * max(a.ndim, 1))(*a.shape)
        t.dims = C.cast(dims, C.POINTER(C.c_int64))
        if a.dtype == object:
            texts = (C.c_char_p * max(a.size, 1))(*[str(v).encode() for v in a.ravel()])
            t.strings = C.cast(texts, C.POINTER(C.c_char_p))
            keep.append(texts)
        t.data = a.ctypes.data
        keep += [a, dims]
        return t

    def options(self, model, **more):
        opts = C.c_void_p()
        self.options_new(self.env, b"run", C.byref(opts))
        runtime = pathlib.Path(onnxruntime.__file__).parent / "capi"
        for k, v in {"input": model, "onnxruntime": runtime, **more}.items():
            self.options_set(opts, k.encode(), os.fsencode(str(v)))
        return opts

    def collect(self, model, samples=None, **more):
        opts, out, keep = self.options(model, **more), C.c_void_p(), []
        left = iter(samples) if samples is not None else None

        def step(ctx, inputs, n):
            keep.clear()
            try:
                feed = next(left, None)
            except Exception:  # noqa: BLE001 - anything at all stops the job
                return -1
            if feed is None:
                return 0
            many = (Tensor * max(len(feed), 1))(*[self.tensor(k, v, keep) for k, v in feed.items()])
            keep.append(many)
            inputs[0], n[0] = C.cast(many, C.POINTER(Tensor)), len(feed)
            return 1

        reader = ReaderCalls(NEXT(step), None)
        try:
            self.activations_collect(self.env, opts, C.byref(reader) if samples is not None else None, C.byref(out))
        finally:
            self.c.onq_options_free(opts)
        return out

    def arrays(self, handle):
        out = {}
        for i in range(self.c.onq_activations_count(handle)):
            n = C.c_size_t()
            p = self.c.onq_activations_at(handle, C.c_size_t(i), C.byref(n))
            rows = C.cast(p, C.POINTER(Tensor))
            name = C.string_at(self.c.onq_activations_name(handle, C.c_size_t(i))).decode()
            out[name] = [rows[k].array() for k in range(n.value)]
        return out

    def activations(self, arrays, keep):
        out = C.c_void_p()
        self.activations_new(self.env, C.byref(out))
        for name, many in arrays.items():
            for a in many:
                t = self.tensor(name, a, keep)
                self.activations_add(out, name.encode(), C.byref(t))
        return out

    # create_activation_matching and compute_activation_error

    def match(self, qdq, flt):
        out = C.c_void_p()
        self.activation_match_new(qdq, flt, C.byref(out))
        rows = {}
        for i in range(self.c.onq_activation_match_count(out)):
            r = C.cast(self.c.onq_activation_match_at(out, C.c_size_t(i)), C.POINTER(ActivationRow))[0]
            qdq_err, xmodel_err = C.c_double(), C.c_double()
            self.activation_match_error(out, C.c_size_t(i), C.byref(qdq_err), C.byref(xmodel_err))
            rows[r.name.decode()] = (r.pre, r.post, r.flt, qdq_err.value, xmodel_err.value)
        self.c.onq_activation_match_free(out)
        return rows

    # create_weight_matching and compute_weight_error

    def weights(self, a, b, extended=False):
        out, rows = C.c_void_p(), {}
        self.weight_match_new(self.env, os.fsencode(a), os.fsencode(b), int(extended), C.byref(out))
        for i in range(self.c.onq_weight_match_count(out)):
            row, error = C.POINTER(WeightRow)(), C.c_double()
            self.weight_match_error(out, C.c_size_t(i), C.byref(error))
            self.weight_match_at(out, C.c_size_t(i), C.byref(row))
            rows[row[0].name.decode()] = (row[0].flt.array(), row[0].dequantized.array(), error.value)
        self.c.onq_weight_match_free(out)
        return rows

    def noise(self, x, y):
        keep, out = [], C.c_double()
        many = [(Tensor * max(len(v), 1))(*[self.tensor("t", a, keep) for a in v]) for v in (x, y)]
        self.sqnr(many[0], C.c_size_t(len(x)), many[1], C.c_size_t(len(y)), C.byref(out))
        return out.value


@pytest.fixture(scope="module")
def onq():
    return Library()


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=True)


# ---- models: modify_model_output_intermediate_tensors

@pytest.mark.parametrize("op_types", [(), ("Conv", "MatMul")])
@pytest.mark.parametrize("name", ["digits_cnn", "ppocr_cls", "tiny_llama_ext", "lstm_tagger"])
def test_modify(name, op_types, onq, tmp_path):
    path = need(name)
    mine, theirs = tmp_path / "mine.onnx", tmp_path / "theirs.onnx"
    onq.modify(path, mine, op_types)
    ref.modify_model_output_intermediate_tensors(str(path), str(theirs), list(op_types))
    a, b = onnx.load(mine), onnx.load(theirs)

    def parts(m):
        shape = [i for i in m.graph.initializer if i.name.startswith("LinearReshape_")]
        assert len(shape) == 1 and numpy_helper.to_array(shape[0]).tolist() == [-1]
        reshapes = {n.output[0]: (n.op_type, n.name, n.input[0]) for n in m.graph.node
                    if shape[0].name in n.input}
        outputs = {o.name: o.SerializeToString() for o in m.graph.output}
        nodes = [n.SerializeToString(deterministic=True) for n in m.graph.node if shape[0].name not in n.input]
        info = {v.name: (v.type.tensor_type.elem_type, len(v.type.tensor_type.shape.dim)) for v in m.graph.value_info}
        return reshapes, outputs, nodes, info, {p.key: p.value for p in m.metadata_props}

    assert parts(a) == parts(b)
    assert len(parts(a)[0]) > (0 if name == "lstm_tagger" and op_types else 3)


def test_modify_external(onq, tmp_path):
    path = need("digits_cnn")
    out = tmp_path / "big.onnx"
    onq.modify(path, out, external=True)
    model = onnx.load(out, load_external_data=False)
    assert any(i.data_location == TensorProto.EXTERNAL for i in model.graph.initializer)
    assert {p.name for p in tmp_path.iterdir()} == {"big.onnx", "big.onnx.data"}
    onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])


def test_modify_refused(onq, tmp_path):
    path = need("digits_cnn")
    once = tmp_path / "once.onnx"
    onq.modify(path, once)
    with pytest.raises(OnqError, match="already"):
        onq.modify(once, tmp_path / "twice.onnx")
    with pytest.raises(OnqError):
        onq.modify(tmp_path / "none.onnx", tmp_path / "x.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["once.onnx"]


# ---- activations

@pytest.mark.parametrize("name,setting", [
    ("digits_cnn", dict(per_channel=True)), ("ppocr_cls", dict()), ("tiny_llama_ext", dict(weight_type=Q.QuantType.QUInt8)),
    ("magika", dict(activation_type=Q.QuantType.QInt8, extra_options={"DedicatedQDQPair": True}))])
def test_activations(name, setting, onq, tmp_path):
    """Augment, collect, match, compare: each step equals the reference's on the same input."""
    path, data = lifted(name, tmp_path)
    samples = samples_of(data / "model.onnx", 2)
    quantized = quantize(path, tmp_path / "q.onnx", samples, **setting)
    sets, arrays, keep = [], [], []
    for which, model in (("q", quantized), ("f", path)):
        augmented = tmp_path / f"{which}.augmented.onnx"
        onq.modify(model, augmented)
        sets.append(onq.collect(augmented, samples))
        arrays.append(onq.arrays(sets[-1]))
        theirs = ref.collect_activations(str(augmented), Reader(samples))
        assert list(arrays[-1]) == list(theirs)
        for k, many in theirs.items():
            assert all(same_bits(x, y) for x, y in zip(arrays[-1][k], many, strict=True)), k
    got = onq.match(*sets)
    match = ref.create_activation_matching(*arrays)
    assert list(got) == list(match) and match
    names = [list(a) for a in arrays]
    for k, m in match.items():
        pre, post, flt, qdq_err, xmodel_err = got[k]
        assert arrays[0][names[0][pre]] is m["pre_qdq"] and arrays[0][names[0][post]] is m["post_qdq"]
        assert (arrays[1][names[1][flt]] is m["float"]) if "float" in m else flt == NONE
        if "float" in m:
            want = ref.compute_activation_error({k: m})[k]
            assert math.isclose(qdq_err, want["qdq_err"], abs_tol=CLOSE) or math.isnan(want["qdq_err"])
            assert math.isclose(xmodel_err, want["xmodel_err"], abs_tol=CLOSE) or math.isnan(want["xmodel_err"])
    # the same from arrays of the caller's, and without the float model
    lent = onq.activations(arrays[0], keep)
    alone = onq.match(lent, None)
    assert {k: v[:2] for k, v in alone.items()} == {k: v[:2] for k, v in got.items()}
    assert all(v[2] == NONE and math.isnan(v[4]) for v in alone.values())
    for s in (*sets, lent):
        onq.c.onq_activations_free(s)


def test_matching_of_names(onq):
    """Every rule, and which of two that claim a name wins."""
    a = np.arange(3, dtype=np.float32)
    names = ["a", "a_DequantizeLinear_Output", "b_QuantizeLinear_Input", "b", "c", "c_DequantizeLinear_Output_1",
             "d_DequantizeLinear_Output", "e_QuantizeLinear_Input", "f", "f_DequantizeLinear_Output",
             "f_DequantizeLinear_Output_1", "g_DequantizeLinear_Output_1", "g_DequantizeLinear_Output", "g",
             "_DequantizeLinear_Output", "", "f_QuantizeLinear_Input"]
    qdq = {n: [a + i] for i, n in enumerate(names)}
    flt = {n: [a] for n in ("a", "c", "g", "")}
    match = ref.create_activation_matching(qdq, flt)
    keep = []
    x, y = onq.activations(qdq, keep), onq.activations(flt, keep)
    got = onq.match(x, y)
    assert list(got) == list(match) and len(got) == 6
    for k, m in match.items():
        assert (names[got[k][0]], names[got[k][1]]) == tuple(
            next(n for n in names if qdq[n] is m[w]) for w in ("pre_qdq", "post_qdq"))
        assert (got[k][2] != NONE) == ("float" in m)
    for s in (x, y):
        onq.c.onq_activations_free(s)


def test_collect_from_data(onq, tmp_path):
    """Without a reader the samples are --data; the same as with one."""
    path = need("digits_cnn")
    augmented = tmp_path / "a.onnx"
    onq.modify(path, augmented, ("Conv",))
    a, b = onq.collect(augmented, data=path.parent, limit=2), onq.collect(augmented, samples_of(path, 2))
    x, y = onq.arrays(a), onq.arrays(b)
    assert list(x) == list(y) and all(same_bits(p, q) for k in x for p, q in zip(x[k], y[k], strict=True))
    for s in (a, b):
        onq.c.onq_activations_free(s)


def test_collect_refused(onq, tmp_path):
    path = need("digits_cnn")
    augmented = tmp_path / "a.onnx"
    onq.modify(path, augmented)
    feed = samples_of(path, 1)[0]
    name = next(iter(feed))
    with pytest.raises(OnqError, match="no samples"):
        onq.collect(augmented, [])
    with pytest.raises(OnqError, match=f"input '{name}' is missing"):
        onq.collect(augmented, [{"other": feed[name]}])
    with pytest.raises(OnqError, match="the reader stopped the job"):
        def failing():
            yield feed
            raise ValueError
        onq.collect(augmented, failing())
    with pytest.raises(OnqError):
        onq.collect(augmented, [{name: feed[name].astype(np.float64)}])


# ---- weights

@pytest.mark.parametrize("setting", [
    dict(), dict(per_channel=True), dict(weight_type=Q.QuantType.QUInt8), dict(weight_type=Q.QuantType.QInt16,
    extra_options={"UseQDQContribOps": True}), dict(extra_options={"QuantizeBias": False})])
@pytest.mark.parametrize("name", ["digits_cnn", "tiny_llama_ext"])
def test_weights(name, setting, onq, tmp_path):
    path, data = lifted(name, tmp_path)
    quantized = quantize(path, tmp_path / "q.onnx", samples_of(data / "model.onnx", 2), **setting)
    match = ref.create_weight_matching(str(path), str(quantized))
    got = onq.weights(path, quantized)
    assert list(got) == list(match) and match
    for k, m in match.items():
        assert same_bits(got[k][0], m["float"]), k
        assert same_bits(got[k][1], m["dequantized"]), (k, got[k][1].dtype, m["dequantized"].dtype)
    many = {k: {w: np.atleast_1d(a) for w, a in m.items()} for k, m in match.items()}
    for k, v in ref.compute_weight_error(many).items():
        assert math.isclose(got[k][2], v, abs_tol=CLOSE), k
    more = onq.weights(path, quantized, extended=True)
    assert set(got) <= set(more)


@pytest.mark.parametrize("make", ["dynamic", "qoperator"])
def test_weights_of_other_models(make, onq, tmp_path):
    """Where the reference finds nothing, the extended matching does."""
    path = need("digits_cnn")
    out = tmp_path / "q.onnx"
    if make == "dynamic":
        Q.quantize_dynamic(str(path), str(out))
    else:
        quantize(path, out, samples_of(path, 2), quant_format=Q.QuantFormat.QOperator)
    assert onq.weights(path, out) == {} == ref.create_weight_matching(str(path), str(out))
    more = onq.weights(path, out, extended=True)
    assert len(more) >= 3
    for x, y, error in more.values():
        assert x.shape == y.shape and math.isclose(error, onq.noise([x], [y]), abs_tol=CLOSE) and error > 20


def test_weights_not_found(onq, tmp_path, caplog):
    """A weight that the float model lacks is reported and left out, as in the reference."""
    path = need("digits_cnn")
    quantized = quantize(path, tmp_path / "q.onnx", samples_of(path, 2))
    model = onnx.load(path)
    gone = next(i.name for i in model.graph.initializer if i.name + "_quantized" in
                {j.name for j in onnx.load(quantized).graph.initializer})
    for n in model.graph.node:
        n.input[:] = ["elsewhere" if i == gone else i for i in n.input]
    for i in model.graph.initializer:
        i.name = "elsewhere" if i.name == gone else i.name
    other = tmp_path / "other.onnx"
    onnx.save(model, other)
    with caplog.at_level(logging.ERROR):
        theirs = ref.create_weight_matching(str(other), str(quantized))
    onq.said.clear()
    assert set(onq.weights(other, quantized)) == set(theirs) and gone not in theirs
    assert any(gone in s for s in onq.said)
    assert "elsewhere" in onq.weights(other, quantized, extended=True)


@pytest.mark.difference("The calls of onq.h")
def test_weights_without_axis(onq, tmp_path):
    """A scale for each channel and no axis: DequantizeLinear is defined along axis 1, the reference takes the last one."""
    rng = np.random.default_rng(5)
    w, scale = rng.normal(size=(3, 4, 4)).astype(np.float32), np.array([0.01, 0.02, 0.04, 0.08], np.float32)
    q = np.clip(np.round(w / scale.reshape(1, 4, 1)), -127, 127).astype(np.int8)
    x, y = (helper.make_tensor_value_info(n, 1, (3, 4, 4)) for n in "xy")
    add = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [numpy_helper.from_array(w, "w")])
    pair = helper.make_graph(
        [helper.make_node("DequantizeLinear", ["w_quantized", "w_scale", "w_zero_point"], ["w_DequantizeLinear_Output"]),
         helper.make_node("Add", ["x", "w_DequantizeLinear_Output"], ["y"])], "g", [x], [y],
        [numpy_helper.from_array(v, n) for n, v in (("w_quantized", q), ("w_scale", scale), ("w_zero_point", np.zeros(4, np.int8)))])
    for name, graph in (("f", add), ("q", pair)):
        onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / f"{name}.onnx")
    paths = str(tmp_path / "f.onnx"), str(tmp_path / "q.onnx")
    theirs, mine = ref.create_weight_matching(*paths)["w"]["dequantized"], onq.weights(*paths)["w"][1]
    assert np.array_equal(mine, q * scale.reshape(1, 4, 1)) and np.array_equal(theirs, q * scale)


@pytest.mark.difference("The calls of onq.h")
def test_no_float_tensor(onq):
    """Without a float counterpart the reference stops; here xmodel_err is NaN."""
    a = np.arange(3, dtype=np.float32)
    qdq = {"a": [a], "a_DequantizeLinear_Output": [a + 1]}
    with pytest.raises(KeyError, match="float"):
        ref.compute_activation_error(ref.create_activation_matching(qdq, {}))
    keep = []
    x, y = onq.activations(qdq, keep), onq.activations({}, keep)
    (row,) = onq.match(x, y).values()
    assert math.isnan(row[4]) and row[3] == pytest.approx(ref.compute_signal_to_quantization_noice_ratio([a], [a + 1]))
    for s in (x, y):
        onq.c.onq_activations_free(s)


# ---- compute_signal_to_quantization_noice_ratio

@pytest.mark.parametrize("dtypes", [(np.float32, np.float32), (np.float32, np.float64), (np.float64, np.float64),
                                    (np.float16, np.float16), (np.float16, np.float32)])
@pytest.mark.parametrize("scale", [1e-30, 1e-5, 1.0, 300.0, 1e25])
def test_noise(dtypes, scale, onq):
    rng = np.random.default_rng(4)
    with np.errstate(over="ignore", invalid="ignore"):
        x = [(rng.normal(size=(n, 7)) * scale).astype(dtypes[0]) for n in (1, 400, 3)]
        y = [(a.astype(np.float64) + rng.normal(size=a.shape) * scale / 50).astype(dtypes[1]) for a in x]
        try:
            want = ref.compute_signal_to_quantization_noice_ratio(x, y)
        except ValueError:  # log10(0): the noise overflowed
            want = -math.inf
    got = onq.noise(x, y)
    assert got == want or math.isclose(got, want, abs_tol=CLOSE) or (math.isnan(got) and math.isnan(want))


def test_noise_of_lists(onq):
    a = np.arange(12, dtype=np.float32)
    zero = np.zeros(4, np.float32)
    cases = [([a], [a]), ([zero], [zero]), ([zero], [a[:4]]), ([a[:5], a[5:]], [a[:7] + 1, a[7:] - 1]),
             ([a.reshape(3, 4)], [a.reshape(3, 4) + 0.5]), ([np.array([np.nan, 1], np.float32)], [a[:2]]),
             ([a[:0], a], [a, a[:0]])]
    for x, y in cases:
        want = ref.compute_signal_to_quantization_noice_ratio(x, y)
        got = onq.noise(x, y)
        assert math.isclose(got, want, abs_tol=CLOSE) or (math.isnan(got) and math.isnan(want)), (x, y)
    for x, y, why in (([a], [a, a], "number of tensors"), ([a], [a[:3]], "number of elements"), ([], [], "no tensors"),
                      ([a.astype(np.int32)], [a], "only float")):
        with pytest.raises(OnqError, match=why):
            onq.noise(x, y)
