"""common.py - what all Python tests share: where things are, and the program."""
import importlib.util
import os
import pathlib
import subprocess

ROOT = pathlib.Path(os.environ.get("ONQ_ROOT", pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("ONQ_BUILD", ROOT / "build"))
ONQ = os.path.abspath(os.environ.get("ONQ", BUILD / "onq"))
MODELS = pathlib.Path(os.environ.get("ONQ_MODELS", ROOT.parent / "shared" / "models"))


def model_names():
    """Of the shared models; empty where there are none."""
    return sorted(p.parent.name for p in MODELS.glob("*/model.onnx"))


def runtime():
    """Makes onq load the runtime of this Python. A program of Windows cannot: there the variable is set already."""
    if os.environ.get("ONQ_SYSTEM") == "windows":
        return {}
    package = pathlib.Path(importlib.util.find_spec("onnxruntime").origin).parent
    return {"ONQ_ONNXRUNTIME": str(next(package.glob("capi/libonnxruntime.so.*")))}


def onq(*words, status=None, **kw):
    """Runs the program; `status` is what it has to end with. Other keywords are subprocess.run's."""
    options = {"capture_output": True, "text": True, "errors": "replace", "timeout": 600, "env": {**os.environ, **runtime()}}
    done = subprocess.run([ONQ, *map(str, words)], **{**options, **kw})
    assert status is None or done.returncode == status, f"{words}: {done.returncode}: {done.stderr}"
    return done


def refused(done, *parts):
    """Status 1, and one line of error that has all the parts."""
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("onq: error: "), done.stderr
    for part in parts:
        assert part in done.stderr, done.stderr
