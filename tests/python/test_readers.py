"""test_readers.py - readers written in Python: those that work, and those that do not."""
import logging

import numpy as np
import onnx
import pytest
from conftest import Reader, build_cnn, draw

import onq
from onq.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantType,
    quantize_dynamic,
    quantize_static,
)


def quantized(reader, **options):
    """The quantized model in memory, as bytes."""
    return quantize_static(build_cnn(), None, reader, **options).SerializeToString(deterministic=True)


@pytest.fixture(scope="module")
def expected():
    return {m: quantized(Reader(draw(6)), calibrate_method=m) for m in (CalibrationMethod.MinMax, CalibrationMethod.Entropy)}


class Inherited(CalibrationDataReader):
    def __init__(self, samples):
        self.samples = iter(samples)

    def get_next(self):
        return next(self.samples, None)


class Rewinding(Reader):
    """Has rewind, as many readers do."""

    def __init__(self, samples):
        self.all = samples
        self.rewind()

    def rewind(self):
        self.samples = iter(self.all)


class OneBuffer(Reader):
    """Gives the same array again and again, with other values."""

    def __init__(self, samples):
        super().__init__(samples)
        self.buffer = np.empty((1, 1, 8, 8), np.float32)

    def get_next(self):
        sample = next(self.samples, None)
        if sample is None:
            return None
        self.buffer[...] = sample["x"]
        return {"x": self.buffer}


class Strides(Reader):
    """Gives arrays that are not contiguous."""

    def get_next(self):
        sample = next(self.samples, None)
        return None if sample is None else {"x": np.asfortranarray(sample["x"])[:, :, ::1, :]}


class Wide(Reader):
    """Gives every second element of a larger array, backwards in one axis."""

    def get_next(self):
        sample = next(self.samples, None)
        if sample is None:
            return None
        large = np.zeros((1, 1, 16, 16), np.float32)
        large[:, :, ::2, ::2] = sample["x"][:, :, ::-1, :]
        return {"x": large[:, :, ::2, ::2][:, :, ::-1, :]}


@pytest.mark.parametrize("kind", [Inherited, Rewinding, OneBuffer, Strides, Wide, list, iter])
def test_same_samples(kind, expected):
    for method, model in expected.items():
        assert quantized(kind(draw(6)), calibrate_method=method) == model





def test_raises(cnn, tmp_path):
    class Broken(Reader):
        def get_next(self):
            raise LookupError("no such file")

    output = tmp_path / "out.onnx"
    with pytest.raises(LookupError, match="no such file"):
        quantize_static(cnn, output, Broken([]))
    assert not output.exists()


@pytest.mark.parametrize(
    ("sample", "error"),
    [
        ([1, 2], TypeError),
        ("x", TypeError),
        ({"x": object()}, (TypeError, ValueError, RuntimeError)),
        ({3: np.zeros(2, np.float32)}, TypeError),
        ({"x": np.zeros((1, 1, 8, 8), np.int32)}, (ValueError, RuntimeError)),
        ({"x": np.zeros((1, 8), np.float32)}, (ValueError, RuntimeError)),
        ({"z": np.zeros((1, 1, 8, 8), np.float32)}, (ValueError, RuntimeError)),
    ],
    ids=["list", "text", "object", "key", "type", "shape", "name"],
)
def test_wrong_sample(cnn, tmp_path, sample, error):
    output = tmp_path / "out.onnx"
    for before in ([], draw(1)):
        with pytest.raises(error):
            quantize_static(cnn, output, Reader([*before, sample]))
        assert not output.exists()


def test_empty(cnn, tmp_path):
    for samples in ([], [{}], [None]):
        with pytest.raises(ValueError):
            quantize_static(cnn, tmp_path / "out.onnx", Reader(samples))
    with pytest.raises(TypeError, match="get_next"):
        quantize_static(cnn, tmp_path / "out.onnx", 7)
    with pytest.raises(ValueError, match="calibration_data_reader"):
        quantize_static(cnn, tmp_path / "out.onnx")


def test_calls_back(cnn, tmp_path, expected):
    """A reader may use the library itself."""

    class Inside(Reader):
        def get_next(self):
            assert onq.inspect(cnn)["nodes"] == 6
            quantize_dynamic(cnn, tmp_path / "inside.onnx")
            return super().get_next()

    assert quantized(Inside(draw(6))) == expected[CalibrationMethod.MinMax]
    assert onnx.load(tmp_path / "inside.onnx").graph.node


class Ranged(Reader):
    """Has __len__ and set_range, for CalibStridedMinMax."""

    def __init__(self, samples):
        self.all, self.asked = samples, []

    def __len__(self):
        return len(self.all)

    def set_range(self, start_index, end_index):
        self.asked.append((start_index, end_index))
        self.samples = iter(self.all[start_index:end_index])


def test_strided(expected):
    reader = Ranged(draw(6))
    assert quantized(reader, extra_options={"CalibStridedMinMax": 2}) == expected[CalibrationMethod.MinMax]
    assert reader.asked == [(0, 2), (2, 4), (4, 6)]
    with pytest.raises(ValueError, match="divisible"):
        quantized(Ranged(draw(5)), extra_options={"CalibStridedMinMax": 2})


def test_interrupt(cnn, tmp_path):
    class Interrupted(Reader):
        def get_next(self):
            sample = super().get_next()
            if sample is None:
                raise KeyboardInterrupt
            return sample

    with pytest.raises(KeyboardInterrupt):
        quantize_static(cnn, tmp_path / "out.onnx", Interrupted(draw()), activation_type=QuantType.QUInt8)
    assert not (tmp_path / "out.onnx").exists()


# ---- what a value may be


class WithArray:
    def __init__(self, array):
        self._held = array

    def __array__(self, dtype=None, copy=None):
        return self._held if dtype is None else self._held.astype(dtype)


class WithDlpack:
    def __init__(self, array):
        self._held = array

    def __dlpack__(self, **how):
        return self._held.__dlpack__(**how)

    def __dlpack_device__(self):
        return self._held.__dlpack_device__()


class Learning:
    """As a tensor of torch that has a gradient: numpy() refuses until it is detached."""

    def __init__(self, array):
        self._held = array

    def numpy(self):
        raise RuntimeError("Can't call numpy() on Tensor that requires grad.")

    def detach(self):
        return self

    def cpu(self):
        return WithArray(self._held)


def ortvalue(array):
    import onnxruntime

    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


VALUES = {
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(a.tolist()),
    "list of arrays": list,
    "float64": lambda a: a.astype(np.float64),
    "big-endian": lambda a: a.astype(">f4"),
    "__array__": WithArray,
    "__dlpack__": WithDlpack,
    "torch": Learning,
    "OrtValue": ortvalue,
}


@pytest.mark.parametrize("kind", VALUES)
def test_values_of_every_kind(kind, expected):
    samples = [{"x": VALUES[kind](s["x"])} for s in draw(6)]
    assert quantized(Reader(samples)) == expected[CalibrationMethod.MinMax]


def test_numbers_and_arrays_without_axes(tmp_path):
    """An input without axes takes a number, an array without axes, and a list is refused with both types."""
    helper = onnx.helper
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 2])
    k = helper.make_tensor_value_info("k", onnx.TensorProto.INT64, [])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 2])
    w = onnx.numpy_helper.from_array(np.eye(2, dtype=np.float32), "w")
    nodes = [
        helper.make_node("Cast", ["k"], ["f"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Add", ["x", "f"], ["s"]),
        helper.make_node("MatMul", ["s", "w"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [x, k], [y], [w])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    square = [[1.0, 2.0], [3.0, 4.0]]
    results = set()
    for number in (3, np.int64(3), np.array(3)):
        result = quantize_static(path, None, Reader([{"x": square, "k": number}]))
        results.add(result.SerializeToString(deterministic=True))
    assert len(results) == 1
    for bad, said in (({"x": square, "k": "three"}, "input 'k'.*int64"), ({"x": [[1, 2], [3]], "k": 3}, "input 'x'.*float32"),
                      ({"x": object(), "k": 3}, "input 'x'.*float32")):
        with pytest.raises(TypeError, match=f"sample 1: {said}"):
            quantize_static(path, None, Reader([{"x": square, "k": 3}, bad]))


def test_messages_are_on_the_logger_of_the_package(caplog, monkeypatch):
    """The root logger is neither used nor configured."""
    monkeypatch.setattr(logging, "basicConfig", lambda **_: pytest.fail("the root logger was configured"))
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logger = logging.getLogger("onq")
    seen = []
    monkeypatch.setattr(logger, "handle", seen.append)
    quantize_dynamic(build_cnn(), None, nodes_to_exclude=["no_such_node"])
    assert seen and all(record.name == "onq" for record in seen)
