"""test_manners.py - errors as Python has them, messages in Python's words, no onnx where it is not needed, types."""
import logging
import os
import subprocess
import sys
import textwrap

import numpy as np
import onnx
import onnxruntime.quantization as reference
import pytest
from conftest import ROOT, Reader, build_cnn, draw

import onq
import onq.quantization as q
from onq import _words
from onq._job import Job
from onq.errors import OnqError

# ---- files


def outcome(package, model, output):
    try:
        package.quantize_dynamic(model, output)
    except OSError as e:
        return next(kind for kind in (FileNotFoundError, IsADirectoryError, PermissionError, OSError) if isinstance(e, kind))


def test_files_that_are_no_files(cnn, tmp_path):
    """The built-in exceptions that the reference raises. Those of inputs are onnx's there, or the runtime's."""
    (tmp_path / "folder").mkdir()
    for output, kind in ((tmp_path / "nowhere/out.onnx", FileNotFoundError), (tmp_path / "folder", IsADirectoryError)):
        assert outcome(reference, cnn, output) is outcome(q, cnn, output) is kind
    assert outcome(q, tmp_path / "none.onnx", tmp_path / "out.onnx") is FileNotFoundError
    assert outcome(q, tmp_path / "folder", tmp_path / "out.onnx") is IsADirectoryError
    with pytest.raises(OnqError):
        q.quantize_dynamic(cnn, tmp_path / "folder")


def test_files_without_permission(cnn, tmp_path):
    """A file without permission to write is meant to stay, for the superuser too; folders hold him not."""
    output = tmp_path / "out.onnx"
    output.write_bytes(b"")
    output.chmod(0o444)
    assert outcome(q, cnn, output) is PermissionError
    if os.geteuid() == 0:
        pytest.skip("the superuser may write everywhere")
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    assert outcome(reference, cnn, folder / "out.onnx") is outcome(q, cnn, folder / "out.onnx") is PermissionError


def test_a_model_that_may_only_be_read(tmp_path):
    """That it may not be written has nothing to do with data that is missing."""
    model = build_cnn()
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    (tmp_path / "m.onnx").chmod(0o444)
    (tmp_path / "w.data").unlink()
    with pytest.raises(FileNotFoundError, match="w.data"):
        q.quantize_dynamic(tmp_path / "m.onnx", tmp_path / "out.onnx")


# ---- words


def test_messages_are_in_pythons_words(cnn, tmp_path, caplog):
    q.quantize_dynamic(cnn, tmp_path / "a.onnx", nodes_to_exclude=["nothing"], extra_options={"AddQDQPairToWeight": True})
    q.quantize_static(
        cnn, tmp_path / "b.onnx", Reader(draw()), quant_format=q.QuantFormat.QOperator, extra_options={"DedicatedQDQPair": True}
    )
    told = [r.getMessage() for r in caplog.records if r.name == "onq"]
    assert told and not [text for text in told if "--" in text]
    assert any(text.startswith("extra_options['AddQDQPairToWeight']") for text in told), told
    assert any("nodes_to_exclude" in text for text in told) and any("quant_pre_process" in text for text in told)
    with pytest.raises(ValueError, match="^(?!.*--)"):
        q.quantize_dynamic(cnn, tmp_path / "c.onnx", extra_options={"EnableSubgraph": "perhaps"})


def test_words_name_options_that_exist():
    """The table of words follows that of the keys of extra_options."""
    with Job("static") as job:
        for option, key in _words.KEYS.items():
            assert job.knows(option), option
        for key in ("ActivationSymmetric", "DedicatedQDQPair"):
            job.set("extra", f"{key}=true")
    assert _words.in_python("--extra BlockSize and --block_size", "static") == "extra_options['BlockSize'] and extra_options['BlockSize']"
    assert _words.in_python("--lift_constants", "static") == "the option lift_constants of the command onq"
    assert _words.in_python("a--b and x --data y", "static") == "a--b and x calibration_data_reader y"
    assert _words.in_python("pip download --no-deps it", "static") == "pip download --no-deps it"


def test_the_root_logger_is_left_alone(cnn, tmp_path):
    code = f"""
        import logging, onq.quantization as q
        q.quantize_dynamic({cnn!r}, {str(tmp_path / "out.onnx")!r})
        assert not logging.getLogger().handlers and logging.getLogger("onq").level == logging.NOTSET
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


# ---- without the package onnx

WITHOUT = """
import sys
for name in ("onnx", "ml_dtypes"):
    sys.modules[name] = None
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("onnx", "ml_dtypes"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name in ("onnx", "ml_dtypes") else real(name, *rest)
sys.meta_path.insert(0, Blocker())
for name in ("onnx", "ml_dtypes"):
    del sys.modules[name]
import numpy as np, onq, onq.quantization as q
from onq.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer
from onq.quantization.execution_providers.qnn import qnn_preprocess_model
model, folder = sys.argv[1:]
class Reader:
    def __init__(self): self.rows = iter([{"x": np.ones((1, 1, 8, 8), np.float32)}] * 2)
    def get_next(self): return next(self.rows, None)
out = lambda name: f"{folder}/{name}.onnx"
"""


def test_paths_need_no_onnx(cnn, tmp_path):
    code = WITHOUT + """
q.quant_pre_process(model, out("pre"))
q.quantize_dynamic(model, out("dynamic"))
q.quantize_static(model, out("static"), Reader())
q.quantize_static(model, out("operators"), Reader(), quant_format=q.QuantFormat.QOperator, calibrate_method=q.CalibrationMethod.Entropy)
q.quantize(model, out("config"), q.get_qdq_config(model, Reader()))
q.quantize(model, out("dynamic2"), q.DynamicQuantConfig())
q.quantize(model, out("nbits"), DefaultWeightOnlyQuantConfig(block_size=16))
qnn_preprocess_model(model, out("qnn"))
calibrator = q.create_calibrator(model, augmented_model_path=out("augmented"))
calibrator.collect_data(Reader())
q.write_calibration_table(calibrator.compute_data().data, folder)
onq.inspect(model), onq.diff(model, out("static")), onq.debug(model, out("static"), Reader())
assert "onnx" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, cnn, str(tmp_path)], check=True)
    config = q.get_qdq_config(cnn, Reader([{"x": np.ones((1, 1, 8, 8), np.float32)}] * 2))
    q.quantize(cnn, tmp_path / "with.onnx", config)
    assert (tmp_path / "with.onnx").read_bytes() == (tmp_path / "config.onnx").read_bytes()


@pytest.mark.parametrize(
    "call",
    [
        "q.quantize_dynamic(model, None)",
        "MatMulNBitsQuantizer(model)",
        "q.create_calibrator(model, augmented_model_path=out('a')).model",
        "q.quant_utils.load_model_with_shape_infer(model)",
        "q.get_qdq_config(model, Reader(), nodes_to_exclude=lambda model, node: True)",
    ],
)
def test_what_needs_onnx_says_so(cnn, tmp_path, call):
    code = WITHOUT + f"""
try:
    {call}
except ModuleNotFoundError as e:
    assert "pip install onq[onnx]" in str(e) and e.name == "onnx", e
else:
    raise AssertionError("it worked")
"""
    subprocess.run([sys.executable, "-c", code, cnn, str(tmp_path)], check=True)


# ---- types


def test_a_typical_script_passes_mypy(tmp_path):
    pytest.importorskip("mypy")
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            '''
            from __future__ import annotations

            from collections.abc import Iterator

            import numpy as np

            import onq
            from onq.quantization import (
                CalibrationDataReader,
                CalibrationMethod,
                QuantFormat,
                QuantType,
                create_calibrator,
                quant_pre_process,
                quantize_dynamic,
                quantize_static,
            )


            class Reader(CalibrationDataReader):
                def __init__(self, count: int) -> None:
                    self.rows: Iterator[dict[str, np.ndarray]] = iter([{"x": np.zeros((1, 3), np.float32)} for _ in range(count)])

                def get_next(self) -> dict[str, np.ndarray] | None:
                    return next(self.rows, None)


            def main() -> None:
                quant_pre_process("model.onnx", "pre.onnx", skip_symbolic_shape=True)
                quantize_static(
                    "pre.onnx",
                    "int8.onnx",
                    Reader(8),
                    quant_format=QuantFormat.QDQ,
                    activation_type=QuantType.QUInt8,
                    calibrate_method=CalibrationMethod.Entropy,
                    extra_options={"ActivationSymmetric": True},
                )
                quantize_dynamic("model.onnx", "dynamic.onnx", weight_type=QuantType.QUInt8, per_channel=True)
                calibrator = create_calibrator("model.onnx", ["Conv"])
                calibrator.collect_data(Reader(2))
                for name, data in calibrator.compute_data().items():
                    print(name, data.range_value)
                found = onq.inspect("int8.onnx")
                print(found["operators"])
                with onq.as_onnxruntime():
                    pass


            main()
            '''
        )
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": str(ROOT / "python")},
    )
    mine = [line for line in done.stdout.splitlines() if "script.py" in line]
    assert not mine and "error" not in done.stderr, done.stdout + done.stderr
