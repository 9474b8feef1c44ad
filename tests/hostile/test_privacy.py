"""test_privacy.py - no connection is made and nothing is left behind: not by the program, the library or the Python package.

ONNX Runtime writes a session file into the temporary folder and a database of events into the cache folder from the moment it is
loaded, unless ORT_DISABLE_TELEMETRY is set; here it is not, and both folders stay empty. strace, where it is there, sees sockets.
"""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "parity"))

from common import BUILD, ONQ, ROOT, runtime  # noqa: E402

MODEL = ROOT / "examples" / "digits_cnn" / "model.onnx"
PROGRAMS = {
    "static": [ONQ, "static", "-i", MODEL, "-o", "q.onnx", "--data", "random:2"],
    "isolated": [ONQ, "static", "-i", MODEL, "-o", "q.onnx", "--data", "random:2", "--isolate"],
    "dynamic": [ONQ, "dynamic", "-i", MODEL, "-o", "q.onnx"],
    "run": [ONQ, "run", MODEL, "--data", "random:1"],
    "debug": [ONQ, "debug", "--float_model", MODEL, "--qdq_model", MODEL, "--data", "random:1"],
    "auto": [ONQ, "auto", "-i", MODEL, "-o", "q.onnx", "--data", "random:2", "--time_limit", "1"],
    "C": ["./calibrate", MODEL, "random:2"],
    "Python": [sys.executable, "-c", f"""
import numpy as np
from onq.quantization import quantize_dynamic, quantize_static
class Reader:
    left = 2
    def get_next(self):
        self.left -= 1
        return {{"input": np.zeros((1, 1, 28, 28), np.float32)}} if self.left >= 0 else None
quantize_dynamic({str(MODEL)!r}, "d.onnx")
quantize_static({str(MODEL)!r}, "q.onnx", Reader())
import onnxruntime
onnxruntime.InferenceSession("q.onnx")
"""],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_sent_or_left(name, tmp_path):
    homes = {v: tmp_path / v for v in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")}
    for home in homes.values():
        home.mkdir()
    environment = {**os.environ, **runtime(), **{v: str(p) for v, p in homes.items()}, "PYTHONPATH": str(ROOT / "python"),
                   "ONQ_LIBRARY": str(BUILD / "libonq.so"), "ONQ_PROGRESS": "0", "LD_LIBRARY_PATH": str(BUILD), "ASAN_OPTIONS": "detect_leaks=0"}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    if name == "C":
        subprocess.run(["cc", "-I", ROOT / "include", ROOT / "examples" / "c" / "calibrate.c", "-o", tmp_path / "calibrate", "-L", BUILD, "-lonq",
                        "-lm"], check=True)
    seen = tmp_path / "strace"
    trace = ["strace", "-f", "-qq", "-e", "trace=socket,connect,sendto,sendmsg", "-o", seen] if shutil.which("strace") else []
    done = subprocess.run([*trace, *PROGRAMS[name]], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for home in homes.values():
        assert sorted(home.rglob("*")) == []
    calls = [line for line in seen.read_text().splitlines() if "socket(" in line or "connect(" in line] if trace else []
    assert calls == []
