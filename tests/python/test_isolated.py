"""test_isolated.py - jobs in a process of their own: the same models, and a crash there is an error here."""
import os
import shutil
import subprocess

import onnx
import pytest
from conftest import ROOT, Reader, build_cnn, draw

import onq
from onq.quantization import CalibrationMethod, create_calibrator, quantize_dynamic, quantize_static


def test_the_same_models(tmp_path):
    onnx.save(build_cnn(), tmp_path / "m.onnx")
    quantize_static(str(tmp_path / "m.onnx"), str(tmp_path / "a.onnx"), Reader(draw(4)))
    quantize_dynamic(build_cnn(), str(tmp_path / "c.onnx"))
    with onq.isolated(memory="8g", time=600):
        quantize_static(str(tmp_path / "m.onnx"), str(tmp_path / "b.onnx"), Reader(draw(4)))
        quantize_dynamic(build_cnn(), str(tmp_path / "d.onnx"))
    assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()
    assert (tmp_path / "c.onnx").read_bytes() == (tmp_path / "d.onnx").read_bytes()


def test_a_reader_that_raises(tmp_path):
    class Bad(Reader):
        def get_next(self):
            raise ZeroDivisionError("mine")

    with onq.isolated(), pytest.raises(ZeroDivisionError, match="mine"):
        quantize_static(build_cnn(), str(tmp_path / "a.onnx"), Bad(draw(1)))
    assert not (tmp_path / "a.onnx").exists()


def test_a_crash_is_an_error(tmp_path, monkeypatch):
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    fake = tmp_path / "fake.so"
    subprocess.run([compiler, "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", fake, ROOT / "tests/cli/isolate_fake.c"], check=True)
    monkeypatch.setenv("FAKE", "abort")
    monkeypatch.setenv("ONQ_ONNXRUNTIME", str(fake))
    monkeypatch.setenv("ONQ_ISOLATE", "1")
    with pytest.raises(onq.OnqError, match="ended by signal 6"):
        quantize_static(build_cnn(), str(tmp_path / "a.onnx"), Reader(draw(1)))
    assert os.listdir(tmp_path) == ["fake.so"]


def test_what_cannot_be_isolated_is_refused(tmp_path):
    onnx.save(build_cnn(), tmp_path / "m.onnx")
    with onq.isolated(), pytest.raises(onq.OnqError, match="whole commands"):
        calibrator = create_calibrator(str(tmp_path / "m.onnx"), calibrate_method=CalibrationMethod.MinMax)
        calibrator.collect_data(Reader(draw(1)))
