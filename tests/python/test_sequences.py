"""Readers that give sequences: a list of samples is one, and states go from step to step."""

import numpy as np
import pytest
import statemodels as sm

import onq
from onq.quantization import CalibrationMethod, create_calibrator, quantize_static


@pytest.fixture(scope="module")
def gru(tmp_path_factory):
    return sm.recurrent(tmp_path_factory.mktemp("gru") / "gru.onnx", "GRU")


class Sequences:
    def __init__(self, xs):
        self._all = [[{"x": x} for x in one] for one in xs]
        self.rewind()

    def rewind(self):
        self._next = iter(self._all)

    def get_next(self):
        return next(self._next, None)


def signals():
    return np.random.default_rng(5).normal(size=(3, 6, 1, 1, 6)).astype(np.float32)


@pytest.mark.parametrize("method", [CalibrationMethod.MinMax, CalibrationMethod.Entropy])
def test_calibrator(gru, tmp_path, method):
    steps, _ = sm.walk(gru, signals())
    found = []
    for reader in (Sequences(signals()), iter(steps)):
        c = create_calibrator(str(gru), augmented_model_path=str(tmp_path / "a.onnx"), calibrate_method=method)
        c.collect_data(reader)
        found.append(c.compute_data())
    assert set(found[0].keys()) == set(found[1].keys())
    for name in found[0].keys():
        assert found[0][name].range_value == found[1][name].range_value


def test_static(gru, tmp_path):
    steps, _ = sm.walk(gru, signals())
    for name, reader in (("a", Sequences(signals())), ("b", iter(steps))):
        quantize_static(str(gru), str(tmp_path / f"{name}.onnx"), reader)
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_isolated(gru, tmp_path):
    """The marks of steps reach the worker."""
    quantize_static(str(gru), str(tmp_path / "a.onnx"), Sequences(signals()))
    with onq.isolated(memory="8g", time=600):
        quantize_static(str(gru), str(tmp_path / "b.onnx"), Sequences(signals()))
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
