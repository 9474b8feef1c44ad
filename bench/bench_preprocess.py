"""bench_preprocess.py - symbolic shape inference of onq beside the reference's, and preprocessing as a whole.

    build/venv/bin/python bench/bench_preprocess.py [MODELS]

MODELS is a folder of models (default: ONQ_MODELS, else ../shared/models). The reference's symbolic inference raises on most
of them: its time is that until it raises, which flatters it. Of onq the inference alone is compared ("infer"), and the whole
process beside it, which reads and writes the model. bench_growth.py has long chains of nodes.

Budgets: preprocessing with defaults succeeds on every model; symbolic inference takes a twentieth of the reference's time, or
less than a millisecond where the reference gives up at once.
"""
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import onnx
import onnxruntime
from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

from measure import MODELS, ONQ, Budgets

os.environ.setdefault("ONQ_ONNXRUNTIME",
                      str(next((pathlib.Path(onnxruntime.__file__).parent / "capi").glob("libonnxruntime.so*"), "")))


def timed(fn, times=3):
    best = None
    for _ in range(times):
        t = time.perf_counter()
        fn()
        t = time.perf_counter() - t
        best = t if best is None else min(best, t)
    return best


def onq(*words):
    subprocess.run([ONQ, *map(str, words), "--quiet"], check=True, stderr=subprocess.DEVNULL)


def inference(path, out):
    """Seconds of the inference alone, as onq reports them."""
    words = [ONQ, "preprocess", "-i", str(path), "-o", str(out), "--skip_optimization", "--skip_onnx_shape", "--json"]
    return min(json.loads(subprocess.run(words, check=True, capture_output=True).stdout)["seconds_symbolic"]
               for _ in range(3))


def reference(path):
    """Seconds of the inference alone, and whether it ended well."""
    model = onnx.load(path)
    cwd = os.getcwd()
    with tempfile.TemporaryDirectory() as d, contextlib.redirect_stdout(io.StringIO()):
        os.chdir(d)  # it leaves files where it stands
        t = time.perf_counter()
        try:
            SymbolicShapeInference.infer_shapes(model, 2**31 - 1, False, False, 0)
            end = "ok"
        except Exception as e:  # noqa: BLE001 - that it fails is part of the result
            end = type(e).__name__
        t = time.perf_counter() - t
        os.chdir(cwd)
    return t, end


def main():
    models = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else MODELS
    paths = sorted(models.glob("*/model.onnx"))
    if not paths:
        print(f"no models in {models}")
        sys.exit(77)
    budgets, failed, found = Budgets(), 0, {}
    with tempfile.TemporaryDirectory() as d:
        out = pathlib.Path(d) / "out.onnx"
        print(f"{'model':24} {'reference s':>12} {'':16} {'infer s':>9} {'times':>7} {'onq s':>9} {'+ ort s':>9} {'builtin s':>9}")
        for path in paths:
            ref, end = reference(path)
            infer = inference(path, out)
            found[path.parent.name] = ref, infer
            own = timed(lambda: onq("preprocess", "-i", path, "-o", out, "--skip_optimization", "--skip_onnx_shape"))
            try:
                ort = timed(lambda: onq("preprocess", "-i", path, "-o", out), 1)
            except subprocess.CalledProcessError:
                failed += 1
                ort = float("nan")
            builtin = timed(lambda: onq("preprocess", "-i", path, "-o", out, "--optimizer", "builtin"), 1)
            print(f"{path.parent.name:24} {ref:12.3f} {end:16} {infer:9.4f} {ref / infer:7.0f} {own:9.3f} {ort:9.3f} {builtin:9.3f}")
    budgets.check(f"models that fail with defaults, of {len(paths)}", failed, 0, "")
    for name, (ref, infer) in found.items():
        if infer >= 0.001:
            budgets.check(f"{name}: symbolic inference / reference", infer / ref, 0.05, "x")
        else:
            budgets.check(f"{name}: symbolic inference", infer, 0.001, "s")
    budgets.close()


if __name__ == "__main__":
    main()
