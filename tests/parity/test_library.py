"""test_library.py - the calls of onq.h that give results as data, through ctypes, against the reference: calibrators
in portions, ranges in and out, the augmented model, what a model holds, scales, arrays."""
import ctypes as C
import json
import pathlib

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization as Q
from onnxruntime.quantization import quant_utils
from onnxruntime.quantization.calibrate import CalibrationMethod, create_calibrator, save_tensors_data

from test_debug_calls import NEXT, Error, Library, OnqError, ReaderCalls, Tensor

NAMES = ("lowest", "highest", "avg", "std", "hist", "hist_edges", "bins")


class Range(C.Structure):
    _fields_ = [("name", C.c_char_p)] + [(n, Tensor) for n in NAMES] + [("bare", C.c_uint)]


class Bytes(C.Structure):
    _fields_ = [("label", C.c_char_p), ("data", C.c_void_p), ("size", C.c_size_t), ("folder", C.c_char_p),
                ("open", C.c_void_p), ("ctx", C.c_void_p)]


class Value(C.Structure):
    _fields_ = [("name", C.c_char_p), ("kind", C.c_uint), ("graph", C.c_size_t), ("dtype", C.c_int32),
                ("rank", C.c_size_t), ("dims", C.POINTER(C.c_int64)), ("symbols", C.POINTER(C.c_char_p)),
                ("scale", C.c_char_p), ("zero_point", C.c_char_p), ("axis", C.c_int64), ("block_size", C.c_int64),
                ("quantized", C.c_int32)]


class Node(C.Structure):
    _fields_ = [("name", C.c_char_p), ("op_type", C.c_char_p), ("domain", C.c_char_p),
                ("inputs", C.POINTER(C.c_char_p)), ("outputs", C.POINTER(C.c_char_p)), ("n_inputs", C.c_size_t),
                ("n_outputs", C.c_size_t), ("graph", C.c_size_t)]


class File(C.Structure):
    _fields_ = [("option", C.c_char_p), ("name", C.c_char_p), ("data", C.c_void_p), ("size", C.c_size_t)]


class Info(C.Structure):
    _fields_ = [("version", C.c_char * 32), ("path", C.c_char * 1024), ("providers", C.c_char * 512),
                ("cpu", C.c_char * 256)]


@pytest.fixture(scope="module")
def lib():
    lib = Library()
    for name in ("ranges_at", "ranges_find", "model_value", "model_node", "result_file", "result_ranges",
                 "ranges_method"):
        getattr(lib.c, "onq_" + name).restype = C.c_void_p
    lib.c.onq_ranges_count.restype = C.c_size_t
    lib.c.onq_model_opset.restype = C.c_int64
    return lib


def make_model(opset=13, wide=False):
    rng = np.random.default_rng(3)
    w = numpy_helper.from_array(rng.standard_normal((4, 3, 3, 3)).astype(np.float32), "w")
    b = numpy_helper.from_array(rng.standard_normal(4).astype(np.float32), "b")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", pads=[1, 1, 1, 1]),
         helper.make_node("Relu", ["c"], ["r"], "relu"),
         helper.make_node("Add", ["r", "c"], ["y"], "add")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 6, 6])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4, 6, 6])], [w, b])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def samples(seed, n=3, scale=1.0):
    rng = np.random.default_rng(seed)
    return [{"x": (rng.standard_normal((1, 3, 6, 6)) * scale).astype(np.float32)} for _ in range(n)]


class Feed(Q.CalibrationDataReader):
    def __init__(self, all):
        self.left = iter(all)

    def get_next(self):
        return next(self.left, None)


def reader_of(lib, feed):
    keep, left = [], iter(feed)

    def step(ctx, inputs, n):
        keep.clear()
        one = next(left, None)
        if one is None:
            return 0
        many = (Tensor * len(one))(*[lib.tensor(k, v, keep) for k, v in one.items()])
        keep.append(many)
        inputs[0], n[0] = C.cast(many, C.POINTER(Tensor)), len(one)
        return 1

    return ReaderCalls(NEXT(step), None)


def options(lib, command, **more):
    opts = C.c_void_p()
    lib.options_new(lib.env, command.encode(), C.byref(opts))
    for k, v in {"onnxruntime": pathlib.Path(onnxruntime.__file__).parent / "capi", **more}.items():
        lib.options_set(opts, k.encode(), str(v).encode())
    return opts


def as_dict(lib, ranges):
    out = {}
    for i in range(lib.c.onq_ranges_count(ranges)):
        r = C.cast(lib.c.onq_ranges_at(ranges, C.c_size_t(i)), C.POINTER(Range))[0]
        out[r.name.decode()] = {n: getattr(r, n).array() for n in NAMES if getattr(r, n).dtype}
    return out


METHODS = [("minmax", CalibrationMethod.MinMax, {}), ("minmax", CalibrationMethod.MinMax, {"moving_average": True}),
           ("minmax", CalibrationMethod.MinMax, {"symmetric": True}), ("entropy", CalibrationMethod.Entropy, {}),
           ("percentile", CalibrationMethod.Percentile, {}), ("percentile", CalibrationMethod.Percentile,
                                                              {"symmetric": False}),
           ("distribution", CalibrationMethod.Distribution, {})]


@pytest.mark.parametrize("portions", [1, 3])
@pytest.mark.parametrize("name,method,extra", METHODS)
def test_calibrator(lib, tmp_path, name, method, extra, portions):
    path = tmp_path / "m.onnx"
    onnx.save(make_model(), path)
    ref = create_calibrator(str(path), None, str(tmp_path / "aug.onnx"), method, extra_options=dict(extra))
    opts = options(lib, "calibrate", input=path, method=name, **{"calib_" + k: v for k, v in extra.items()})
    cal, got = C.c_void_p(), C.c_void_p()
    lib.calibrator_new(lib.env, opts, C.byref(cal))
    with pytest.raises(OnqError, match="no data is collected"):
        lib.calibrator_compute(cal, C.byref(got))
    for k in range(portions):
        ref.collect_data(Feed(samples(k, scale=1 + k)))
        reader = reader_of(lib, samples(k, scale=1 + k))
        lib.calibrator_collect(cal, C.byref(reader))
    want = ref.compute_data()
    lib.calibrator_compute(cal, C.byref(got))
    have = as_dict(lib, got)
    assert set(have) == set(want.keys())
    for tensor in have:
        for attr in NAMES:
            assert hasattr(want[tensor], attr) == (attr in have[tensor]), (tensor, attr)
            if attr not in have[tensor]:
                continue
            a = np.asarray(getattr(want[tensor], attr))
            b = have[tensor][attr]
            assert np.array_equal(a.reshape(b.shape).astype(b.dtype), b), (tensor, attr, a, b)
    # The file is the one that the reference writes, but for the order of tensors.
    save_tensors_data(want, tmp_path / "want.json")
    lib.ranges_save(got, str(tmp_path / "have.json").encode())
    assert json.loads((tmp_path / "want.json").read_text()) == json.loads((tmp_path / "have.json").read_text())
    # Built anew from its arrays, it is the same.
    again, loaded = C.c_void_p(), C.c_void_p()
    lib.ranges_new(lib.env, name.encode(), C.byref(again))
    for i in range(lib.c.onq_ranges_count(got)):
        lib.ranges_set(again, C.c_void_p(lib.c.onq_ranges_at(got, C.c_size_t(i))))
    lib.ranges_save(again, str(tmp_path / "again.json").encode())
    assert (tmp_path / "again.json").read_bytes() == (tmp_path / "have.json").read_bytes()
    lib.ranges_load(lib.env, str(tmp_path / "have.json").encode(), C.byref(loaded))
    assert lib.c.onq_ranges_count(loaded) == len(have)
    # An empty portion is nothing to MinMax and an error to the others, as there.
    reader = reader_of(lib, [])
    if method == CalibrationMethod.MinMax:
        ref.collect_data(Feed([]))
        lib.calibrator_collect(cal, C.byref(reader))
    else:
        with pytest.raises(ValueError):
            ref.collect_data(Feed([]))
        with pytest.raises(OnqError, match="no samples"):
            lib.calibrator_collect(cal, C.byref(reader))
    for handle in (got, again, loaded):
        lib.c.onq_ranges_free(handle)
    lib.c.onq_calibrator_free(cal)
    lib.c.onq_options_free(opts)


@pytest.mark.parametrize("name,method,extra,opset", [
    ("minmax", CalibrationMethod.MinMax, {}, 13), ("minmax", CalibrationMethod.MinMax, {"per_channel": True}, 13),
    ("minmax", CalibrationMethod.MinMax, {"per_channel": True}, 19), ("entropy", CalibrationMethod.Entropy, {}, 13)])
def test_augmented_model(lib, tmp_path, name, method, extra, opset):
    path = tmp_path / "m.onnx"
    onnx.save(make_model(opset), path)
    want = create_calibrator(str(path), None, str(tmp_path / "aug.onnx"), method,
                             extra_options=dict(extra)).get_augment_model()
    opts = options(lib, "calibrate", input=path, method=name, **{"calib_" + k: v for k, v in extra.items()})
    cal, data, size = C.c_void_p(), C.c_void_p(), C.c_size_t()
    lib.calibrator_new(lib.env, opts, C.byref(cal))
    lib.calibrator_augmented(cal, C.byref(data), C.byref(size))
    have = onnx.load_model_from_string(C.string_at(data, size.value))
    onnx.checker.check_model(have)
    for part in ("node", "output"):
        assert sorted(x.name for x in getattr(have.graph, part)) == sorted(x.name for x in getattr(want.graph, part))
    x = samples(0)[0]
    outputs = [o.name for o in have.graph.output]
    for a, b in zip(*[onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
                      .run(outputs, x) for m in (have, want)]):
        assert np.array_equal(a, b)
    lib.c.onq_calibrator_free(cal)
    lib.c.onq_options_free(opts)


def test_ranges_in_place_of_samples(lib, tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(make_model(), path)
    results = []
    for step in range(2):
        opts, result = options(lib, "static", input=path), C.c_void_p()
        lib.options_want_bytes(opts, b"output", b"q.onnx")
        reader = reader_of(lib, samples(1))
        if step == 0:
            lib.options_set_reader(opts, C.byref(reader))
        else:
            lib.options_set_ranges(opts, C.c_void_p(lib.c.onq_result_ranges(results[0])))
        lib.run(lib.env, opts, C.byref(result))
        results.append(result)
        lib.c.onq_options_free(opts)
    files = [C.cast(lib.c.onq_result_file(r, C.c_size_t(0)), C.POINTER(File))[0] for r in results]
    a, b = [C.string_at(f.data, f.size) for f in files]
    assert a == b and files[0].name == b"q.onnx"
    for r in results:
        lib.c.onq_result_free(r)


def test_what_a_model_holds(lib, tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(make_model(), path)
    q = tmp_path / "q.onnx"
    Q.quantize_static(str(path), str(q), Feed(samples(1)), per_channel=True)
    proto = onnx.load(q)
    raw = proto.SerializeToString()
    for by in ("path", "memory"):
        h = C.c_void_p()
        data = Bytes(label=b"q", data=C.cast(C.c_char_p(raw), C.c_void_p), size=len(raw))
        lib.model_open(lib.env, str(q).encode(), C.byref(data) if by == "memory" else None, C.byref(h))
        assert lib.c.onq_model_opset(h, b"") == next(o.version for o in proto.opset_import if not o.domain)
        nodes, i = [], 0
        while p := lib.c.onq_model_node(h, C.c_size_t(i)):
            n = C.cast(p, C.POINTER(Node))[0]
            nodes.append((n.name.decode(), n.op_type.decode(), [n.inputs[k].decode() for k in range(n.n_inputs)]))
            i += 1
        assert nodes == [(n.name, n.op_type, list(n.input)) for n in proto.graph.node]
        values, i = {}, 0
        while p := lib.c.onq_model_value(h, C.c_size_t(i)):
            v = C.cast(p, C.POINTER(Value))[0]
            values[v.name.decode()] = (i, v)
            i += 1
        x, w = values["x"][1], values["w_quantized"][1]
        assert (x.kind, x.dtype, [x.dims[k] for k in range(x.rank)], x.symbols[0]) == (1, 1, [-1, 3, 6, 6], b"n")
        assert (x.scale, x.zero_point, x.quantized) == (b"x_scale", b"x_zero_point", TensorProto.INT8)
        assert (w.kind, w.scale, w.axis, w.quantized) == (4, b"w_scale", 0, TensorProto.INT8)
        assert values["y"][1].kind == 2
        for init in proto.graph.initializer:
            t = Tensor()
            lib.model_data(h, C.c_size_t(values[init.name][0]), C.byref(t))
            assert np.array_equal(t.array(), numpy_helper.to_array(init))
        with pytest.raises(OnqError, match="not an initializer"):
            lib.model_data(h, C.c_size_t(values["x"][0]), C.byref(Tensor()))
        lib.c.onq_model_free(h)


def test_scale_and_zero_point(lib):
    rng = np.random.default_rng(5)
    limits = {np.uint8: (0, 255), np.int8: (-128, 127), np.uint16: (0, 65535), np.int16: (-32768, 32767)}
    for real, number in ((np.float32, 1), (np.float16, 10)):
        ends = [(0, 0), (-1, 1), (0, 5), (3, 9), (-7, -2), (-1e-30, 1e-30)]
        ends += [tuple(sorted(rng.standard_normal(2) * 10.0 ** rng.integers(-4, 4))) for _ in range(60)]
        for lo, hi in ends:
            lo, hi = np.array(lo, real), np.array(hi, real)
            for t, (qmin, qmax) in limits.items():
                for symmetric in (False, True):
                    for least in (None, 0.0001):
                        zp, scale = quant_utils.compute_scale_zp(lo, hi, np.array(qmin, t), np.array(qmax, t),
                                                                 symmetric, least)
                        s, z = C.c_double(), C.c_double()
                        lib.scale_zero_point(C.c_double(lo), C.c_double(hi), number, C.c_double(qmin),
                                             C.c_double(qmax), int(symmetric),
                                             C.byref(C.c_double(least)) if least is not None else None, C.byref(s),
                                             C.byref(z))
                        assert (s.value, z.value) == (float(scale), float(zp)), (lo, hi, t, symmetric, least)
    with pytest.raises(OnqError, match="qmin <= 0 <= qmax"):
        lib.scale_zero_point(C.c_double(0), C.c_double(1), 1, C.c_double(3), C.c_double(5), 0, None,
                             C.byref(C.c_double()), C.byref(C.c_double()))


def test_quantizing_arrays(lib):
    rng = np.random.default_rng(6)
    x = (rng.standard_normal((5, 6)) * 40).astype(np.float32)
    cases = [(TensorProto.INT8, np.int8), (TensorProto.UINT8, np.uint8), (TensorProto.INT16, np.int16),
             (TensorProto.UINT16, np.uint16), (TensorProto.INT4, np.int8), (TensorProto.UINT4, np.uint8)]
    for qtype, dtype in cases:
        for real in (np.float32, np.float16):
            zero = 3 if "U" in TensorProto.DataType.Name(qtype) else -2
            scales = {None: np.array(0.37, real), 0: (rng.random(5) + 0.1).astype(real),
                      1: (rng.random(6) + 0.1).astype(real), "block": (rng.random((5, 3)) + 0.1).astype(real)}
            for axis, scale in scales.items():
                keep = []
                zp = np.full(scale.shape, zero, dtype)
                wide = scale
                if axis == 0:
                    wide = scale[:, None]
                elif axis == "block":
                    wide = np.repeat(scale, 2, axis=1)
                for low, high in ((None, None), (-5, 6)):
                    want = quant_utils.quantize_nparray(qtype, x.astype(real), wide, np.array(zero, dtype), low, high)
                    out = np.zeros(x.shape, dtype)
                    tx, ts = lib.tensor("", x.astype(real), keep), lib.tensor("", scale, keep)
                    tz = lib.tensor("", zp, keep)
                    lib.quantize(C.byref(tx), C.byref(ts), C.byref(tz),
                                 C.c_int64(1 if axis in (None, "block") else axis),
                                 C.c_int64(2 if axis == "block" else 0),
                                 C.c_double(np.nan if low is None else low),
                                 C.c_double(np.nan if high is None else high), qtype,
                                 C.c_void_p(out.ctypes.data), C.c_size_t(out.nbytes))
                    assert np.array_equal(out, want), (qtype, real, axis, low)


def test_runtime_query(lib):
    info, err = Info(), Error()
    where = pathlib.Path(onnxruntime.__file__).parent / "capi"
    lib.runtime_query(lib.env, str(where).encode(), C.byref(info))
    assert info.version.decode() == onnxruntime.__version__
    assert info.path.decode().startswith(str(where))
    assert info.providers.decode().split(",") == onnxruntime.get_available_providers()
    assert lib.c.onq_runtime_query(lib.env, b"/nowhere", C.byref(info), C.byref(err)) == 50
