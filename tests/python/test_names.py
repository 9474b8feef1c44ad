"""test_names.py - every public name of onnxruntime.quantization is here, or docs/PYTHON.md says why it is not."""
import fnmatch
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import types
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime.quantization
import pytest
from conftest import ROOT, Reader, build_cnn, draw

import onq.quantization as q

THEIRS = "onnxruntime.quantization"


def modules():
    """The modules of the reference. Folders without __init__.py are not found by walking."""
    folder = Path(onnxruntime.quantization.__path__[0])
    names = {THEIRS} | {m.name for m in pkgutil.walk_packages([str(folder)], f"{THEIRS}.")}
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        names.add(".".join([THEIRS, *(p for p in parts if p != "__init__")]))
    return sorted(names)


def is_theirs(name, value):
    """True for what the package defines itself, and for constants; not for what it imports from others."""
    if name.startswith("_") or name == "TYPE_CHECKING" or name == "logger":
        return False
    if isinstance(value, types.ModuleType):
        return value.__name__.startswith(THEIRS)
    if inspect.isclass(value) or inspect.isroutine(value):
        return (value.__module__ or "").startswith(THEIRS)
    return type(value).__module__ != "__future__"


def missing():
    """What is public there and not here, as `module.name` and `module.Class.name`."""
    for name in modules():
        there = importlib.import_module(name)
        short = name[len(THEIRS) + 1 :]
        try:
            here = importlib.import_module(f"onq.quantization.{short}".rstrip("."))
        except ModuleNotFoundError:
            yield short
            continue
        for key, value in vars(there).items():
            if not is_theirs(key, value):
                continue
            if not hasattr(here, key):
                yield f"{short}.{key}".lstrip(".")
            elif inspect.isclass(value) and value.__module__ == name:
                for member in vars(value):
                    if not member.startswith("_") and not hasattr(getattr(here, key), member):
                        yield f"{short}.{key}.{member}"


def explained():
    """The patterns of the table in docs/PYTHON.md."""
    text = (ROOT / "docs/PYTHON.md").read_text(encoding="utf-8")
    section = text.split("## Names that onq does not have")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


def test_every_name_is_here_or_explained():
    patterns, found = explained(), set(missing())
    unexplained = [name for name in sorted(found) if not any(fnmatch.fnmatchcase(name, p) for p in patterns)]
    assert not unexplained
    idle = [p for p in patterns if not any(fnmatch.fnmatchcase(name, p) for name in found)]
    assert not idle, "these names exist now"


def test_signatures():
    """The parameters of functions and classes, in their order; onq may have more after them."""
    wrong = []
    for name in modules():
        there = importlib.import_module(name)
        try:
            here = importlib.import_module("onq.quantization" + name[len(THEIRS) :])
        except ModuleNotFoundError:
            continue
        for key, value in vars(there).items():
            if not is_theirs(key, value) or value.__class__ is types.ModuleType or not callable(value) or not hasattr(here, key):
                continue
            try:
                wanted, given = (list(inspect.signature(v).parameters.values()) for v in (value, getattr(here, key)))
            except ValueError:
                continue
            if [p.name for p in wanted] == ["args", "kwds"]:  # an enumeration
                continue
            if [p.name for p in given][: len(wanted)] != [p.name for p in wanted]:
                wrong.append(f"{name}.{key}: {[p.name for p in given]}, not {[p.name for p in wanted]}")
    assert not wrong


# ---- names that CLIENTS of the reference use


def test_histogram_collector():
    import onnxruntime.quantization.calibrate as theirs

    import onq.quantization.calibrate as mine

    rng = np.random.default_rng(4)
    values = [{"a": [rng.normal(size=(4, 50)).astype("f4") * k for _ in range(3)], "b": rng.random(1000, "f4") * k} for k in (1, 3, 2)]
    for method, symmetric, bins in (("entropy", False, 512), ("percentile", True, 2048), ("percentile", False, 2048), ("distribution", False, 2048)):
        found = []
        for package in (theirs, mine):
            collector = package.HistogramCollector(method, symmetric, bins, 128, 99.9, "same")
            for portion in values:
                collector.collect(portion)
            found.append(collector.compute_collection_result())
        for name in ("a", "b"):
            a, b = (f[name] for f in found)
            if method == "distribution":
                a, b = ([getattr(x, k) for k in ("lowest", "highest", "avg", "std", "hist", "hist_edges")] for x in (a, b))
            assert all(np.array_equal(x, y) for x, y in zip(a, b, strict=True)), (method, name)
    with pytest.raises(ValueError, match="collect"):
        mine.HistogramCollector("entropy", False, 128, 128, 99, "same").compute_collection_result()
    with pytest.raises(TypeError, match="float32"):
        mine.HistogramCollector("entropy", False, 128, 128, 99, "same").collect({"a": np.zeros(3)})
    with pytest.raises(AttributeError, match="compute_collection_result"):
        mine.HistogramCollector("entropy", False, 128, 128, 99, "same").histogram_dict  # noqa: B018


def test_merge_range(cnn, tmp_path):
    for options in ({}, {"moving_average": True, "averaging_constant": 0.3}):
        found = []
        for package in (onnxruntime.quantization, q):
            calibrater = package.MinMaxCalibrater(cnn, augmented_model_path=str(tmp_path / "a.onnx"), **options)
            t, pair = package.TensorData, (np.float32(-1), np.float32(2))
            old = {"a": pair, "b": t(lowest=pair[0], highest=pair[1])}
            new = {"a": (np.float32(0), np.float32(5)), "b": t(lowest=np.float32(-7), highest=np.float32(1))}
            assert calibrater.merge_range({}, dict(new)) == new
            merged = calibrater.merge_range(old, new)
            found.append((merged["a"], merged["b"].range_value))
        assert found[0] == found[1]


def test_attributes_of_calibraters(cnn, tmp_path):
    kinds = []
    for package in (onnxruntime.quantization, q):
        path = tmp_path / f"{package.__name__}.onnx"
        calibrater = package.create_calibrator(cnn, ["Conv"], augmented_model_path=str(path))
        session = calibrater.infer_session
        kinds.append((calibrater.model_original_outputs, calibrater.num_model_outputs, [o.name for o in session.get_outputs()][:1]))
        assert set(session.run(None, draw(1)[0])[0].shape) == {1, 5}
        calibrater.clear_collected_data()
    assert kinds[0] == kinds[1]


def test_weights_as_arrays():
    import onnxruntime.quantization.matmul_bnb4_quantizer as their_bnb4
    import onnxruntime.quantization.matmul_nbits_quantizer as their_nbits

    import onq.quantization.matmul_bnb4_quantizer as my_bnb4
    import onq.quantization.matmul_nbits_quantizer as my_nbits

    weight = np.random.default_rng(5).normal(size=(50, 7)).astype(np.float32)
    for bits, form, symmetric in ((2, "QOperator", True), (4, "QOperator", False), (8, "QOperator", False), (4, "QDQ", True), (4, "QDQ", False)):
        made = []
        for module, package in ((their_nbits, onnxruntime.quantization), (my_nbits, q)):
            config = module.DefaultWeightOnlyQuantConfig(16, symmetric, quant_format=package.QuantFormat[form], bits=bits)
            made.append(module.DefaultWeightOnlyQuantizer(config).qbits_block_quant(weight))
        assert all(np.array_equal(a, b) for a, b in zip(*made, strict=True)), (bits, form, symmetric)
    for kind in (0, 1):
        a, b = (m.MatMulBnb4Quantizer(onnx.ModelProto(), kind, 16).bnb4_block_quant(weight) for m in (their_bnb4, my_bnb4))
        assert np.array_equal(a[0], b[0]) and np.array_equal(a[1], b[1])
    packed = np.arange(20, dtype=np.uint8)
    assert np.array_equal(their_nbits.transpose_packed_int4_matrix(packed, 8, 5), my_nbits.transpose_packed_int4_matrix(packed, 8, 5))
    assert my_nbits.quantize_matmul_4bits is their_nbits.quantize_matmul_4bits
    quantizer = my_nbits.MatMulNBitsQuantizer(build_cnn())
    assert isinstance(quantizer.node_quantizer, my_nbits.DefaultWeightOnlyQuantizer)


def test_tables_for_tensorrt(tmp_path, monkeypatch):
    """A table that onq writes is read by the reference's classes, and the other way round."""
    from onnxruntime.quantization.CalTableFlatBuffers.TrtTable import TrtTable as Theirs

    from onq.quantization.CalTableFlatBuffers.TrtTable import TrtTable as Mine

    monkeypatch.chdir(tmp_path)
    ranges = {name: q.TensorData(lowest=np.float32(-k), highest=np.float32(k)) for k, name in enumerate("ab", 1)}
    q.write_calibration_table(ranges)
    data = (tmp_path / "calibration.flatbuffers").read_bytes()
    for kind in (Theirs, Mine):
        table = kind.GetRootAs(data)
        rows = [table.Dict(i) for i in range(table.DictLength())]
        assert sorted((row.Key(), row.Value()) for row in rows) == [(b"a", b"1.0"), (b"b", b"2.0")]


def test_the_old_name_of_nbits(tmp_path):
    sys.modules.pop("onq.quantization.matmul_4bits_quantizer", None)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        old = importlib.import_module("onq.quantization.matmul_4bits_quantizer")
    assert any(issubclass(w.category, DeprecationWarning) and "matmul_nbits_quantizer" in str(w.message) for w in told)
    import onq.quantization.matmul_nbits_quantizer as new

    made = []
    for quantizer in (old.MatMul4BitsQuantizer(build_cnn(), 16, True), new.MatMulNBitsQuantizer(build_cnn(), 4, 16, True)):
        quantizer.process()
        made.append(quantizer.model.model)
    assert made[0] == made[1]
    assert old.DefaultWeightOnlyQuantConfig is new.DefaultWeightOnlyQuantConfig
    assert old.quantize_matmul_4bits is new.quantize_matmul_4bits


# ---- hooks that onq does not call


@pytest.mark.parametrize(
    ("name", "step", "words"),
    [
        ("qdq_quantizer.QDQQuantizer", "quantize_activation_tensor", "should_quantize_node"),
        ("onnx_quantizer.ONNXQuantizer", "quantize_bias_static", "TensorQuantOverrides"),
        ("base_quantizer.BaseQuantizer", "adjust_tensor_ranges", "TensorQuantOverrides"),
        ("calibrate.MinMaxCalibrater", "merge_range", "TensorsData"),
        ("calibrate.CalibraterBase", "select_tensors_to_calibrate", "op_types_to_calibrate"),
        ("calibrate.CalibraterBase", "create_inference_session", "set_execution_providers"),
        ("calibrate.HistogramCollector", "collect_value", "collect"),
        ("fusions.fusion.Fusion", "fuse", "ONNXModel"),
        ("matmul_nbits_quantizer.DefaultWeightOnlyQuantizer", "quantize_matmul", "customized_weight_config"),
    ],
)
def test_hooks_are_refused(name, step, words):
    """In a subclass, and as a function that is assigned to the class."""
    module, _, kind = name.rpartition(".")
    base = getattr(importlib.import_module(f"onq.quantization.{module}"), kind)
    with pytest.raises(TypeError, match=f"(?s)Mine overrides {step}.*{words}"):
        type("Mine", (base,), {step: lambda self, *_: None})
    before = base.__dict__.get(step)
    with pytest.raises(TypeError, match=f"(?s)given {step}.*{words}"):
        setattr(base, step, lambda self, *_: None)
    assert base.__dict__.get(step) is before
    derived = type("Mine", (base,), {"mine": 1, "steps": 3})
    with pytest.raises(TypeError, match="overrides"):
        type("Further", (derived,), {step: None})


def test_hooks_that_work(cnn, tmp_path):
    """Olive wraps augment_graph."""
    seen = []

    class Mine(q.MinMaxCalibrater):
        def augment_graph(self):
            super().augment_graph()
            seen.append(self.model_original_outputs)

        def compute_data(self):
            return super().compute_data()

    calibrater = Mine(cnn, augmented_model_path=str(tmp_path / "a.onnx"))
    calibrater.augment_graph()
    calibrater.collect_data(Reader(draw()))
    assert seen == [{"y"}] and len(calibrater.compute_data())


def test_names_of_steps_say_why():
    quantizer = q.QDQQuantizer(build_cnn(), False, False, 3, 2, None, [], [], ["Conv"], {})
    with pytest.raises(AttributeError, match="libonq does that step"):
        quantizer.quantize_weight_tensor  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        quantizer.nothing  # noqa: B018


def test_imports_alone():
    """Every module can be the first that is imported."""
    names = ["onq.quantization" + name[len(THEIRS) :] for name in modules() if importlib.util.find_spec("onq.quantization" + name[len(THEIRS) :].replace(".neural_compressor", "")) and "neural_compressor" not in name]
    code = "import importlib, sys\nfor name in sys.argv[1:]:\n    [sys.modules.pop(m) for m in list(sys.modules) if m.startswith('onq')]\n    importlib.import_module(name)"
    subprocess.run([sys.executable, "-c", code, *names], check=True)
