"""test_package.py - what the package is as a package: signatures, enumerations, errors, threads, memory, help."""
import ctypes
import importlib
import inspect
import logging
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import onnx
import onnxruntime
import onnxruntime.quantization as reference
import pytest
from conftest import Reader, build_cnn, draw

import onq
import onq.quantization as q
from onq.errors import OnqError

FUNCTIONS = ["quantize_static", "quantize_dynamic", "quantize", "get_qdq_config", "quant_pre_process", "load_tensors_data"]
FUNCTIONS += ["save_tensors_data", "write_calibration_table"]
CLASSES = ["QuantConfig", "StaticQuantConfig", "DynamicQuantConfig"]
MODULES = ["calibrate", "quant_utils", "quantize", "onnx_model", "registry", "shape_inference", "preprocess"]
MODULES += ["static_quantize_runner", "qdq_loss_debug", "tensor_quant_overrides", "fusions", "execution_providers.qnn"]


def defaults(fn):
    """Parameters with their defaults as texts, enumerations without their module."""
    out = {}
    for name, p in inspect.signature(fn).parameters.items():
        out[name] = str(p.default) if p.default is not inspect.Parameter.empty else None
    return out


@pytest.mark.parametrize("name", FUNCTIONS + CLASSES)
def test_signature(name):
    module = importlib.import_module("onnxruntime.quantization.quantize")
    theirs = getattr(reference, name, None) or getattr(module, name)
    mine = defaults(getattr(q, name))
    for parameter, default in defaults(theirs).items():
        assert mine[parameter] == default, parameter


def test_modules():
    for name in MODULES:
        importlib.import_module(f"onq.quantization.{name}")


@pytest.mark.parametrize("name", ["QuantType", "QuantFormat", "QuantizationMode", "CalibrationMethod"])
def test_enumeration(name):
    mine, theirs = getattr(q, name), getattr(reference, name)
    assert {m.name: (m.value, str(m)) for m in mine} == {m.name: (m.value, str(m)) for m in theirs}
    if name == "QuantType":
        assert {m.name: m.tensor_type for m in mine} == {m.name: m.tensor_type for m in theirs}
        assert mine.from_string("QUInt8") is mine.QUInt8
        with pytest.raises(ValueError):
            mine.from_string("QInt9")


def test_registries():
    from onnxruntime.quantization import registry as theirs

    from onq.quantization import registry as mine

    for name in ("QDQRegistry", "QLinearOpsRegistry", "IntegerOpsRegistry", "CommonOpsRegistry"):
        rows = [(op, c.__name__, c.__module__.rpartition(".")[2]) for op, c in getattr(theirs, name).items()]
        assert rows == [(op, c.__name__, c.__module__.rpartition(".")[2]) for op, c in getattr(mine, name).items()], name


def test_types_by_number(cnn, tmp_path):
    a = q.quantize_static(cnn, None, Reader(draw()), activation_type=onnx.TensorProto.UINT8)
    b = q.quantize_static(cnn, None, Reader(draw()), activation_type=reference.QuantType.QUInt8)
    assert a == b == q.quantize_static(cnn, None, Reader(draw()), activation_type=q.QuantType.QUInt8)


def test_mixed_imports(cnn):
    """Enumerations and configurations of onnxruntime.quantization itself, where a script changed one import only."""
    options = {"quant_format": reference.QuantFormat.QOperator, "weight_type": reference.QuantType.QUInt8}
    options |= {"activation_type": reference.QuantType.QUInt8, "calibrate_method": reference.CalibrationMethod.Entropy}
    mine = {k: getattr(q, type(v).__name__)[v.name] for k, v in options.items()}
    assert q.quantize_static(cnn, None, Reader(draw()), **options) == q.quantize_static(cnn, None, Reader(draw()), **mine)


def test_as_another_package(cnn, tmp_path):
    """A script for onnxruntime.quantization, unchanged: modules are not loaded twice."""
    code = f"""
import sys, onnxruntime, onq.quantization
sys.modules["onnxruntime.quantization"] = onq.quantization
from onnxruntime.quantization.calibrate import CalibrationMethod
from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config
from onnxruntime.quantization import quant_utils, CalibrationMethod as same, quantize
import onnxruntime.quantization.quant_utils as again
assert CalibrationMethod is same and again is quant_utils is sys.modules["onq.quantization.quant_utils"]
assert quant_utils.__name__ == quant_utils.__spec__.name == "onq.quantization.quant_utils"
sys.path.insert(0, {os.path.dirname(__file__)!r})
from conftest import Reader, draw
quantize({cnn!r}, {str(tmp_path / "out.onnx")!r}, get_qnn_qdq_config({cnn!r}, Reader(draw())))
"""
    subprocess.run([sys.executable, "-W", "error::ImportWarning", "-c", code], check=True)
    assert (tmp_path / "out.onnx").exists()


def test_onnx_is_not_imported(cnn, tmp_path):
    code = (
        "import sys, onq, onq.quantization as q\n"
        f"q.quantize_dynamic({cnn!r}, {str(tmp_path / 'out.onnx')!r})\n"
        f"print(onq.inspect({cnn!r}))\n"
        "assert 'onnx' not in sys.modules and 'onnxruntime' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda p: q.quantize_dynamic("nowhere.onnx", p), FileNotFoundError, "nowhere.onnx"),
        (lambda p: q.quantize_dynamic(b"bytes", p), TypeError, "ModelProto"),
        (lambda p: q.quantize_dynamic(build_cnn(), 5), TypeError, "not int"),
        (lambda p: q.quant_pre_process(build_cnn(), [p]), TypeError, "not list"),
        (lambda p: q.quantize(build_cnn(), p, 3), TypeError, "StaticQuantConfig"),
        (lambda p: q.quantize_dynamic(build_cnn(), p, weight_type="QInt9"), ValueError, "QInt9"),
        (lambda p: q.quantize_dynamic(build_cnn(), p, extra_options={"EnableSubgraph": "perhaps"}), ValueError, "perhaps"),
        (lambda p: q.load_tensors_data("nowhere.json"), FileNotFoundError, "nowhere.json"),
        (lambda p: q.TensorData(lowest=1.0), ValueError, "lowest"),
        (lambda p: q.TensorData(least=np.float32(1)), ValueError, "least"),
        (lambda p: q.quantize_dynamic(build_cnn(), "/nowhere/at/all.onnx"), OSError, "at/all.onnx"),
    ],
)
def test_errors(tmp_path, call, error, words):
    with pytest.raises(error, match=words):
        call(tmp_path / "out.onnx")


def test_output_by_bytes(tmp_path):
    """As other functions of Python take paths."""
    for name, quantize in (("pre.onnx", q.quant_pre_process), ("out.onnx", q.quantize_dynamic)):
        quantize(build_cnn(), os.fsencode(tmp_path / name))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.onnx", "pre.onnx"]


def override(**entry):
    return {"extra_options": {"TensorQuantOverrides": {"m1": [entry]}}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"extra_options": {"TensorQuantOverrides": {"none": [{"scale": 1.0, "zero_point": 0}]}}}, "is not present in the model"),
        (override(scale=np.float32(0.1)), "Must provide both 'scale' and 'zero_point'"),
        (override(scale=0.1, zero_point=0, rmax=3.0), "are invalid with 'scale' and 'zero_point'"),
        ({"activation_type": q.QuantType.QInt8, "weight_type": q.QuantType.QUInt8}, "doesn't support"),
        ({"activation_type": q.QuantType.QUInt16, "quant_format": q.QuantFormat.QOperator}, "16-bit"),
        ({"weight_type": q.QuantType.QFLOAT8E4M3FN}, "Distribution"),
        (override(quant_type={"quant_type": q.QuantType.QInt8}), "is not a quantization type"),
        (override(scale=np.float32("nan"), zero_point=0), "m1.*'scale' is nan"),
        ({"nodes_to_exclude": ["conv\0"]}, "embedded null"),
    ],
    ids=str,
)
def test_refused(cnn, tmp_path, options, words):
    with pytest.raises(ValueError, match=words):
        q.quantize_static(cnn, tmp_path / "out.onnx", Reader(draw()), **options)


def test_not_strict(cnn, tmp_path, monkeypatch):
    monkeypatch.setattr(q, "strict", False)
    q.quantize_static(
        cnn, tmp_path / "out.onnx", Reader(draw()), activation_type=q.QuantType.QInt8, weight_type=q.QuantType.QUInt8
    )
    assert (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("method", ["MinMax", "Entropy", "Percentile"])
def test_strict_about_histograms(tmp_path, monkeypatch, method):
    """The reference's histograms do not see nodes inside of If. onq's do, unless it is strict."""
    info = onnx.helper.make_tensor_value_info
    branches = [
        onnx.helper.make_graph([onnx.helper.make_node("Conv", ["x", "w"], [f"y{k}"], f"conv{k}")], f"b{k}", [], [info(f"y{k}", 1, None)])
        for k in (0, 1)
    ]
    node = onnx.helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    weight = onnx.numpy_helper.from_array(np.ones((4, 4, 1, 1), np.float32), "w")
    inputs = [info("x", 1, [1, 4, 6, 6]), info("c", onnx.TensorProto.BOOL, [])]
    graph = onnx.helper.make_graph([node], "g", inputs, [info("y", 1, [1, 4, 6, 6])], [weight])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8), tmp_path / "m.onnx")
    samples = [{"x": np.full((1, 4, 6, 6), k, np.float32), "c": np.array(k % 2 == 0)} for k in range(4)]

    def run(package):
        options = {"calibrate_method": package.CalibrationMethod[method], "extra_options": {"EnableSubgraph": True}}
        package.quantize_static(tmp_path / "m.onnx", tmp_path / "out.onnx", Reader(samples), **options)

    for package in (reference, q):
        if method == "MinMax":
            run(package)
        else:
            with pytest.raises(ValueError, match="(?i)histogram has not been collected"):
                run(package)
    monkeypatch.setattr(q, "strict", False)
    run(q)
    branches = [a.g for a in onnx.load(tmp_path / "out.onnx").graph.node[-1].attribute]
    assert all("QuantizeLinear" in {n.op_type for n in g.node} for g in branches)


@pytest.mark.parametrize("inside", ["MaxPool", "Conv"])
def test_strict_goes_inside(tmp_path, inside):
    """EnableSubgraph with QOperator: the reference takes both, and leaves what is inside float."""
    made = onnx.helper.make_node("MaxPool", ["h"], ["t"], kernel_shape=[2, 2])
    if inside == "Conv":
        made = onnx.helper.make_node("Conv", ["x", "w"], ["t"])
    info = onnx.helper.make_tensor_value_info
    branches = [
        onnx.helper.make_graph([node], "branch", [], [info(node.output[0], 1, None)])
        for node in (made, onnx.helper.make_node("Neg", ["x"], ["e"]))
    ]
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["h"]),
        onnx.helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    weight = onnx.numpy_helper.from_array(np.random.default_rng(1).normal(size=(4, 4, 1, 1)).astype(np.float32), "w")
    graph = onnx.helper.make_graph(
        nodes, "g", [info("x", 1, [1, 4, 6, 6]), info("c", onnx.TensorProto.BOOL, [])], [info("y", 1, None)], [weight]
    )
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8), tmp_path / "m.onnx")
    samples = [{"x": np.full((1, 4, 6, 6), k, np.float32), "c": np.array(k % 2 == 0)} for k in range(4)]
    for package in (reference, q):
        out = tmp_path / f"{package.__name__}.onnx"
        package.quantize_static(
            tmp_path / "m.onnx", out, Reader(samples), quant_format=package.QuantFormat.QOperator, extra_options={"EnableSubgraph": True}
        )
        onnxruntime.InferenceSession(out)


def test_unknown_key_is_told(cnn, tmp_path, caplog):
    q.quantize_dynamic(cnn, tmp_path / "out.onnx", extra_options={"NoSuchKey": 1})
    assert any("NoSuchKey" in r.getMessage() and r.name == "onq" for r in caplog.records)


def test_warnings_are_logged(cnn, tmp_path, caplog):
    q.quantize_dynamic(cnn, tmp_path / "out.onnx", nodes_to_exclude=["cnv"])
    told = [r for r in caplog.records if "cnv" in r.getMessage()]
    assert told and told[0].levelno == logging.WARNING


def test_strange_names(tmp_path):
    """Names with commas, patterns and files in front are names."""
    for name in ("a,b", "re:.*", "@file", "\\", "ü"):
        model = build_cnn()
        model.graph.node[4].name = name
        out = q.quantize_dynamic(model, None, nodes_to_exclude=[name])
        assert "MatMul" in [n.op_type for n in out.graph.node], name


def test_files_that_are_no_utf8(cnn, tmp_path):
    """As the system gives them to Python. A NUL would name another file."""
    folder = os.fsencode(tmp_path)
    shutil.copy(cnn, folder + b"/in\xff.onnx")
    q.quantize_dynamic(os.fsdecode(folder + b"/in\xff.onnx"), os.fsdecode(folder + b"/out\xff.onnx"))
    before = sorted(os.listdir(folder))
    assert before == [b"cnn.onnx", b"in\xff.onnx", b"out\xff.onnx"]
    with pytest.raises(ValueError, match="embedded null"):
        q.quantize_dynamic(cnn, str(tmp_path / "out") + "\0.onnx")
    assert sorted(os.listdir(folder)) == before


def test_tensors_that_are_no_utf8(cnn, tmp_path):
    """A model whose names are no UTF-8 runs; its ranges can be looked at."""
    data = pathlib.Path(cnn).read_bytes()
    (tmp_path / "m.onnx").write_bytes(data.replace(b"\x02m1", b"\x02m\xff"))
    calibrator = q.create_calibrator(tmp_path / "m.onnx", None, tmp_path / "augmented.onnx")
    calibrator.collect_data(Reader(draw()))
    assert "m\udcff" in calibrator.compute_data().data


def test_in_place(cnn):
    before = onnx.load(cnn)
    q.quantize_dynamic(cnn, cnn)
    assert onnx.load(cnn) == q.quantize_dynamic(before, None)


def test_two_threads(cnn):
    expected = q.quantize_static(cnn, None, Reader(draw(20)))
    found = []

    def work():
        for _ in range(3):
            found.append(q.quantize_static(cnn, None, Reader(draw(20))) == expected)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert found == [True] * 6


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_nothing_leaks(cnn, tmp_path):
    model = build_cnn()

    def once():
        q.quantize_dynamic(model, None)
        onq.inspect(cnn)
        with pytest.raises(OnqError):
            q.quantize_dynamic("nowhere.onnx", tmp_path / "x.onnx")

    for _ in range(20):
        once()
    begin = resident()
    for _ in range(200):
        once()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)
    assert resident() - begin < 8 << 20


def test_readers_do_not_leak(cnn):
    import gc
    import weakref

    reader = Reader(draw())
    gone = weakref.ref(reader)
    q.quantize_static(cnn, None, reader)
    del reader
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("delay", [0.05, 0.1, 0.15, 0.2, 0.25])
def test_ctrl_c(cnn, tmp_path, delay):
    """SIGINT ends a long job with KeyboardInterrupt, and nothing is written."""
    output = tmp_path / "out.onnx"
    code = f"""
import itertools, sys, numpy as np
sys.path.insert(0, {os.path.dirname(__file__)!r})
from conftest import *
from onq.quantization import quantize_static
def forever():
    for i in itertools.count():
        if i == 3:
            print("running", flush=True)
        yield draw(1)[0]
try:
    quantize_static({cnn!r}, {str(output)!r}, Reader(forever()))
except KeyboardInterrupt:
    print("stopped", flush=True)
"""
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert child.stdout.readline() == "running\n"
    time.sleep(delay)
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=60)[0] == "stopped\n"
    assert not output.exists()


def test_help_reads_well():
    for name in q.__all__:
        thing = getattr(q, name)
        assert name == "strict" or inspect.getdoc(thing), name
    text = inspect.getdoc(q.quantize_static)
    for parameter in inspect.signature(q.quantize_static).parameters:
        assert f"{parameter}:" in text, parameter


def test_convert(cnn, tmp_path):
    quantized = tmp_path / "q.onnx"
    onq.quantization.quantize_dynamic(cnn, quantized)
    pairs = onq.convert(quantized, to="qdq")
    assert "MatMulInteger" not in {n.op_type for n in pairs.model.graph.node} and pairs["to"] == "qdq"
    done = onq.dequantize(quantized, tmp_path / "f.onnx", no_verify=True)
    assert done.model is None and done["weights"] > 0
    assert not any("Quantize" in n.op_type for n in onnx.load(tmp_path / "f.onnx").graph.node)
    with pytest.raises(onq.OnqError, match="nonsense"):
        onq.convert(quantized, to="nonsense")


def test_verify(cnn, tmp_path):
    quantized = tmp_path / "q.onnx"
    onq.quantization.quantize_dynamic(cnn, quantized)
    found = onq.verify(quantized, "random:2", float_model=cnn)
    assert found and len(found["runtimes"]) == 1 and found["runtimes"][0]["sqnr"] > 10
    assert onq.verify(onnx.load(quantized))
    new = onnx.load(quantized)
    new.opset_import[0].version = 28
    assert not onq.verify(new)
    (tmp_path / "none.so").write_bytes(b"nothing")
    with pytest.raises(onq.OnqError, match="it is not a library"):
        onq.verify(quantized, onnxruntime=tmp_path / "none.so")
    both = onq.verify(quantized, onnxruntime=[tmp_path / "none.so", found["runtimes"][0]["runtime"]])
    assert not both and [row["good"] for row in both["runtimes"]] == [False, True]
    old = onq.convert(quantized, for_runtime="1.20")
    assert old["for_runtime"]["version"].startswith("1.20") and old.model is not None


def test_inspect_and_diff(cnn, tmp_path):
    found = onq.inspect(cnn)
    assert found["operators"]["Conv"] == 1 and "Conv" in str(found)
    out = tmp_path / "out.onnx"
    q.quantize_dynamic(cnn, out)
    assert not onq.diff(cnn, cnn)
    assert onq.diff(cnn, out) and onq.diff(onnx.load(cnn), onnx.load(out))
    assert not onq.diff(onnx.load(cnn), cnn)


def test_debug(cnn, tmp_path):
    quantized = q.quantize_static(cnn, None, Reader(draw()))
    found = onq.debug(cnn, quantized, Reader(draw()))
    assert found.weights["w2"]["sqnr"] > 30
    assert set(found.activations) >= {"c1", "m1"} or found.activations
    shown = found._repr_html_()
    assert shown.startswith("<iframe") and "w2" in shown
    found.save(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text() == found.html
    assert onq.debug(cnn, quantized).weights.keys() == found.weights.keys()


def test_auto(cnn, tmp_path):
    found = onq.auto(build_cnn(), data=Reader(draw(16)), target={"sqnr": 10}, allow=["dynamic"], prefer="size")
    assert found and found.model.graph.node and found.recipe.startswith("onq ")
    assert found["chosen"]["options"] == found.options and "float" in str(found)
    assert found._repr_html_()
    onq.auto(cnn, tmp_path / "out.onnx", Reader(draw(16)), target="sqnr=10", allow=["dynamic"])
    assert (tmp_path / "out.onnx").exists()


def test_auto_in_any_locale(tmp_path):
    """Names are no matter of the locale, and an input may be called `file`."""
    model = build_cnn()
    for names in (model.graph.input[0], *model.graph.node):
        for k, name in enumerate(getattr(names, "input", [])):
            names.input[k] = "file" if name == "x" else name
    model.graph.input[0].name = "file"
    model.graph.node[0].name = "Faltung \u00fc"
    onnx.save(model, tmp_path / "m.onnx")
    np.save(tmp_path / "x.npy", next(iter(draw(1)))["x"])
    script = ("import sys, numpy as np, onq; x = np.load(sys.argv[2]); "
              "found = onq.auto(sys.argv[1], data=[{'file': x}] * 6, target='sqnr=10', allow=['dynamic']); "
              "assert found.recipe and 'html' in found.html")
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "m.onnx"), str(tmp_path / "x.npy")], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr


def test_samples_by_path(cnn, tmp_path):
    folder = tmp_path / "samples"
    folder.mkdir()
    for i, sample in enumerate(draw()):
        np.savez(folder / f"{i}.npz", **sample)
    assert q.quantize_static(cnn, None, folder) == q.quantize_static(cnn, None, Reader(draw()))


COMMANDS = ["preprocess", "static_quantize_runner", "matmul_nbits_quantizer", "matmul_bnb4_quantizer"]


@pytest.mark.parametrize("name", COMMANDS)
def test_command_help(name):
    done = subprocess.run([sys.executable, "-m", f"onq.quantization.{name}", "--help"], capture_output=True, text=True)
    assert done.returncode == 0 and "--" in done.stdout
