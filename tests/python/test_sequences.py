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


def renamed(gru, path):
    """The same model with names of states that nobody knows, and that a pattern would misread."""
    import onnx

    m = onnx.load(gru)
    for node in m.graph.node:
        node.output[:] = ["later.(0)" if x == "hn" else x for x in node.output]
        node.input[:] = ["before" if x == "h0" else x for x in node.input]
    m.graph.input[1].name, m.graph.output[1].name = "before", "later.(0)"
    onnx.save(m, path)
    return path


@pytest.mark.parametrize("carry", [{"later.(0)": "before"}, ["later.*=before"], (r"later\.\(0\)=before",)])
def test_carry(gru, tmp_path, carry):
    model = renamed(gru, tmp_path / "m.onnx")
    steps = [{"x": s["x"], "before": s["h0"]} for s in sm.walk(gru, signals())[0]]
    quantize_static(str(model), str(tmp_path / "a.onnx"), Sequences(signals()), carry=carry)
    quantize_static(str(model), str(tmp_path / "b.onnx"), iter(steps))
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    found = []
    for reader, how in ((Sequences(signals()), carry), (iter(steps), None)):
        c = create_calibrator(str(model), augmented_model_path=str(tmp_path / "x.onnx"), carry=how)
        c.collect_data(reader)
        found.append({k: v.range_value for k, v in c.compute_data().items()})
    assert found[0] == found[1]


@pytest.mark.parametrize("carry,words", [
    ({"nothing": "h0"}, "no output matches"),
    ({"hn": "nothing"}, "output 'hn' would go to 'nothing', which is not an input"),
    ({"hn": "h0", "y": "h0"}, "outputs 'hn' and 'y' would both go to input 'h0'"),
    ({"hn": "x"}, "output 'hn' is FLOAT[1,1,8], and input 'x' takes FLOAT[1,1,6]"),
    (False, "input 'h0' is missing"),
])
def test_bad_carry(gru, tmp_path, carry, words):
    with pytest.raises(ValueError) as e:
        quantize_static(str(gru), str(tmp_path / "a.onnx"), Sequences(signals()), carry=carry)
    assert words in str(e.value) and "\n" not in str(e.value)
    assert not (tmp_path / "a.onnx").exists()


def test_carry_is_no_text(gru, tmp_path):
    with pytest.raises(TypeError, match="carry is a list"):
        quantize_static(str(gru), str(tmp_path / "a.onnx"), Sequences(signals()), carry="hn=h0")


def test_bad_step(gru, tmp_path):
    """One line that names the input and the step."""
    xs = [[{"x": np.zeros((1, 1, 6), np.float32)}, {"x": np.zeros((1, 2, 6), np.float32)}]]

    class Reader(Sequences):
        def __init__(self):
            self._all = xs
            self.rewind()

    with pytest.raises(ValueError, match="'x'") as e:
        quantize_static(str(gru), str(tmp_path / "a.onnx"), Reader())
    assert "\n" not in str(e.value)
