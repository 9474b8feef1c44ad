"""test_calibrators.py - create_calibrator, collect_data again and again, compute_data: the ranges of the reference, bit for bit."""
import json

import numpy as np
import onnx
import onnxruntime.quantization as reference
import pytest
from conftest import Reader, draw

import onq.quantization as q
from onq.quantization.calibrate import CalibraterBase

CASES = [
    ("MinMax", {}),
    ("MinMax", {"symmetric": True}),
    ("MinMax", {"moving_average": True, "averaging_constant": 0.2}),
    ("MinMax", {"per_channel": True}),
    ("Entropy", {}),
    ("Entropy", {"num_bins": 256, "num_quantized_bins": 64}),
    ("Percentile", {}),
    ("Percentile", {"symmetric": False, "percentile": 99.0}),
    ("Distribution", {}),
    ("Distribution", {"scenario": "p3"}),
]


def ranges(package, model, method, portions, options, tmp_path, **words):
    calibrator = package.create_calibrator(
        model,
        augmented_model_path=str(tmp_path / f"{package.__name__}.augmented.onnx"),
        calibrate_method=package.CalibrationMethod[method],
        extra_options=options,
        **words,
    )
    for samples in portions:
        calibrator.collect_data(Reader(samples))
    return calibrator.compute_data()


def text(data):
    """All that is known of all tensors, with types and shapes."""
    from onnxruntime.quantization.calibrate import CalibrationCacheEncoder as Theirs

    from onq.quantization.calibrate import CalibrationCacheEncoder as Mine

    kind = Mine if isinstance(data, q.TensorsData) else Theirs
    return json.loads(json.dumps(data.to_dict(), cls=kind, sort_keys=True))


@pytest.mark.parametrize(("method", "options"), CASES, ids=str)
@pytest.mark.parametrize("portions", [1, 3])
def test_ranges(cnn, tmp_path, method, options, portions):
    samples = draw(6)
    parts = [samples[i * 6 // portions : (i + 1) * 6 // portions] for i in range(portions)]
    if options.get("per_channel") and portions > 1:
        pytest.skip("the reference cannot join ranges of channels")
    a, b = (ranges(p, cnn, method, parts, options, tmp_path) for p in (q, reference))
    if options.get("scenario") == "p3":  # cube roots of numpy differ from one CPU to the next
        assert all(np.allclose(a[n].avg_std, b[n].avg_std, rtol=1e-6) for n in b)
        return
    assert text(a) == text(b)


def test_chosen_operators(cnn, tmp_path):
    for types in (["MatMul"], ["Conv", "Add"]):
        a, b = (ranges(p, cnn, "MinMax", [draw()], {}, tmp_path, op_types_to_calibrate=types) for p in (q, reference))
        assert text(a) == text(b)


def test_augmented(cnn, tmp_path):
    """Nodes and outputs by the reference's names; the order and two random names are its own."""
    for method in ("MinMax", "Percentile"):
        models = []
        for package in (q, reference):
            path = tmp_path / f"{package.__name__}.onnx"
            made = package.create_calibrator(
                cnn, augmented_model_path=str(path), calibrate_method=package.CalibrationMethod[method]
            ).get_augment_model()
            assert {o.name for o in onnx.load(path).graph.output} == {o.name for o in made.graph.output}
            models.append(made)
        for field in ("node", "output"):
            names = [{x.name for x in getattr(m.graph, field)} for m in models]
            assert names[0] == names[1]


def test_compute_between(cnn, tmp_path):
    calibrator = q.create_calibrator(cnn, augmented_model_path=tmp_path / "a.onnx")
    with pytest.raises(ValueError, match="No data"):
        calibrator.compute_data()
    with pytest.raises(ValueError, match="No data"):
        calibrator.collect_data(Reader([]))
    calibrator.collect_data(Reader(draw(2)))
    first = calibrator.compute_data()["y"].range_value
    calibrator.collect_data(Reader([{"x": 10 * s["x"]} for s in draw(2)]))
    second = calibrator.compute_data()["y"].range_value
    assert second[0] < first[0] and second[1] > first[1]
    calibrator.set_execution_providers(["CPUExecutionProvider"])
    with pytest.raises(ValueError, match="No data"):
        calibrator.compute_data()


def test_wrong_readers(cnn, tmp_path):
    calibrator = q.create_calibrator(cnn, augmented_model_path=tmp_path / "a.onnx")

    class Broken:
        def get_next(self):
            raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        calibrator.collect_data(Broken())
    with pytest.raises((ValueError, RuntimeError)):
        calibrator.collect_data(Reader([{"x": np.zeros((1, 2), np.float32)}]))
    calibrator.collect_data(Reader(draw()))
    assert len(calibrator.compute_data()) > 0


def test_wrong_arguments(cnn, tmp_path):
    with pytest.raises(ValueError, match="model path"):
        CalibraterBase(7)
    with pytest.raises(ValueError, match="averaging"):
        q.MinMaxCalibrater(cnn, moving_average=True, averaging_constant=2)
    with pytest.raises(ValueError, match="Method"):
        q.create_calibrator(cnn, calibrate_method="none")
    with pytest.raises(FileNotFoundError):
        q.create_calibrator("nowhere.onnx", augmented_model_path=tmp_path / "a.onnx")


def test_save_and_load(cnn, tmp_path):
    for method in ("MinMax", "Entropy"):
        found = ranges(q, cnn, method, [draw()], {}, tmp_path)
        q.save_tensors_data(found, tmp_path / "deep/down/cache.json")
        again, its = (package.load_tensors_data(tmp_path / "deep/down/cache.json") for package in (q, reference))
        assert text(again) == text(its) and again.calibration_method.name == method
        assert all(again[n].range_value == found[n].range_value for n in found)
        out = q.quantize_static(
            cnn,
            None,
            None,
            calibrate_method=q.CalibrationMethod[method],
            calibration_cache_path=tmp_path / "deep/down/cache.json",
        )
        assert any(n.op_type == "QuantizeLinear" for n in out.graph.node)


def test_cache(cnn, tmp_path, caplog):
    """quantize_static with a cache: written, read, of another method, of SmoothQuant."""
    cache = tmp_path / "new/cache.json"
    a = q.quantize_static(cnn, None, Reader(draw()), calibration_cache_path=cache)
    assert q.quantize_static(cnn, None, None, calibration_cache_path=cache) == a
    with pytest.raises(ValueError, match="MinMax"):
        q.quantize_static(cnn, None, None, calibration_cache_path=cache, calibrate_method=q.CalibrationMethod.Entropy)
    data = json.loads(cache.read_text())
    cache.write_text(json.dumps({**data, "smooth_quant": True}))
    assert q.quantize_static(cnn, None, Reader(draw()), calibration_cache_path=cache) == a
    assert any("smooth_quant" in r.getMessage() for r in caplog.records)
    assert json.loads(cache.read_text())["smooth_quant"] is False
    with pytest.raises(ValueError, match="not a file"):
        q.quantize_static(cnn, None, Reader(draw()), calibration_cache_path=tmp_path)
