"""bench_static.py - static quantization of real models beside the reference.

Two jobs on each: from a cache of ranges (no model is run: everything but inference, so --no_verify), and the whole way from
samples, verification included. The bare inference of the same samples, unoptimised as both tools calibrate, is shown as the
floor of the second.

Budgets: without inference a twentieth of the reference's CPU and a third of its memory or less; from samples a third of its
memory, or no more than bare inference needs where that is more (the runtime holds the weights); the two results are the
same file.
"""
import os
import shutil
import sys

from measure import BUILD, MODELS, ONQ, PYTHON, Budgets, figure, once, rounds

ROUNDS = int(os.environ.get("ONQ_ROUNDS", "3"))
NAMES = ["efficientnet_lite0", "minilm", "ppocrv4_det", "magika", "tiny_llama"]

REFERENCE = """
import logging, sys
from onnxruntime import quantization as q
from onnxruntime.quantization.static_quantize_runner import OnnxModelCalibrationDataReader as R
logging.disable(logging.ERROR)
model, out, cache = sys.argv[1:]
q.quantize_static(model, out, None if cache == "read" else R(model), activation_type=q.QuantType.QUInt8,
                  extra_options={"MinimumRealRange": 0.0001},
                  calibration_cache_path=None if cache == "none" else model + ".cache.json")
"""
FLOOR = """
import sys, onnxruntime
from onnxruntime.quantization.static_quantize_runner import OnnxModelCalibrationDataReader as R
o = onnxruntime.SessionOptions()
o.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
s = onnxruntime.InferenceSession(sys.argv[1], o, providers=["CPUExecutionProvider"])
r = R(sys.argv[1])
while (feed := r.get_next()) is not None:
    s.run(None, feed)
"""


def bench(name, folder, budgets):
    shutil.copytree(MODELS / name, folder / name)
    for f in folder.rglob("*"):
        f.chmod(0o755 if f.is_dir() else 0o644)
    model, ours, theirs = folder / name / "model.onnx", folder / "onq.onnx", folder / "reference.onnx"
    cache = f"{model}.cache.json"
    once([PYTHON, "-c", REFERENCE, model, theirs, "write"])
    jobs = {
        "onq, ranges given": [ONQ, "static", "-i", model, "-o", ours, "--no_verify", "--calibration_cache",
                              cache],
        "reference, ranges given": [PYTHON, "-c", REFERENCE, model, theirs, "read"],
        "onq, from samples": [ONQ, "static", "-i", model, "-o", ours],
        "reference, from samples": [PYTHON, "-c", REFERENCE, model, theirs, "none"],
        "bare inference": [PYTHON, "-c", FLOOR, model],
    }
    got = rounds(jobs, ROUNDS)
    print(f"{name}: {model.stat().st_size / 1e6:.1f} MB")
    for k, c in got.items():
        print(f"  {k:24s} {c}")
    for job in ("ranges given", "from samples"):
        words = f"static, {job}: {name}" if job == "ranges given" else f"static {job}: {name}"
        for tool in ("onq", "reference"):
            figure(words, tool, got[f"{tool}, {job}"])
    same = ours.exists() and ours.read_bytes() == theirs.read_bytes()
    budgets.check(f"{name}: CPU without inference / reference",
                  got["onq, ranges given"].cpu / got["reference, ranges given"].cpu, 0.05, "x")
    budgets.check(f"{name}: memory, ranges given / reference",
                  got["onq, ranges given"].peak / got["reference, ranges given"].peak, 1 / 3, "of memory")
    # The runtime holds the weights: what it needs bare may be more than a third of what the reference needs.
    least = max(1 / 3, got["bare inference"].peak / got["reference, from samples"].peak)
    budgets.check(f"{name}: memory, from samples / reference",
                  got["onq, from samples"].peak / got["reference, from samples"].peak, least, "of memory")
    budgets.check(f"{name}: the results differ", 0 if same else 1, 0, "")
    shutil.rmtree(folder / name)


def main():
    if not MODELS.is_dir():
        print(f"no models in {MODELS}: set ONQ_MODELS")
        sys.exit(77)
    folder = BUILD / "bench" / "static"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    budgets = Budgets()
    for name in NAMES:
        bench(name, folder, budgets)
    shutil.rmtree(folder)
    budgets.close()


if __name__ == "__main__":
    main()
