"""test_readers.py - readers written in Python: those that work, and those that do not."""
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


def test_lists_for_arrays(expected):
    samples = [{"x": s["x"].tolist()} for s in draw(1)]
    with pytest.raises((ValueError, TypeError, RuntimeError), match="x"):
        quantized(Reader(samples))  # of float64, which the model does not take


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
        ({"x": np.zeros((1, 1, 8, 8), np.float64)}, (ValueError, RuntimeError)),
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
