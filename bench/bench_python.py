"""bench_python.py - one Python script, run with either import: onnxruntime.quantization and onq.quantization, side by side.

The whole script is timed, from the start of Python to its end, and the call alone. Models of ../shared/models, or the
bundled one. Budget: no call takes longer than the reference's, and the files are the same.
"""
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

from measure import BUILD, MODELS, PYTHON, ROOT, Budgets, rounds

ROUNDS = int(os.environ.get("ONQ_ROUNDS", "3"))
NAMES = ["efficientnet_lite0", "minilm", "ppocrv4_det"]

SCRIPT = """
import logging, os, sys, time
logging.disable(logging.ERROR)
package, job, model, output = sys.argv[1:]
begin = time.perf_counter()
exec("from %s import CalibrationDataReader, CalibrationMethod, QuantType, quantize_dynamic, quantize_static" % package)
import numpy as np
import onnx

class Reader(CalibrationDataReader):
    def __init__(self, model):
        folder = os.path.dirname(model)
        names = [i.name for i in onnx.load(model, load_external_data=False).graph.input]
        self.samples = []
        for data in sorted(d for d in os.listdir(folder) if d.startswith("test_data_set_")):
            files = [os.path.join(folder, data, "input_%d.pb" % i) for i in range(len(names))]
            tensors = [onnx.TensorProto.FromString(open(f, "rb").read()) for f in files if os.path.exists(f)]
            self.samples.append(dict(zip(names, map(onnx.numpy_helper.to_array, tensors))))
        self.samples = iter(self.samples)
    def get_next(self):
        return next(self.samples, None)

reader = Reader(model)
imported = time.perf_counter()
if job == "dynamic":
    quantize_dynamic(model, output)
else:
    method = CalibrationMethod.Entropy if job == "entropy" else CalibrationMethod.MinMax
    quantize_static(model, output, reader, activation_type=QuantType.QUInt8, calibrate_method=method)
with open(output + ".seconds", "a") as f:
    print(repr(time.perf_counter() - imported), file=f)
"""


def bench(name, model, folder, budgets):
    print(f"{name}")
    packages = {"onq": "onq.quantization", "onnxruntime": "onnxruntime.quantization"}
    for job in ("static", "entropy", "dynamic"):
        outputs = {p: folder / f"{name}.{job}.{p}.onnx" for p in packages}
        words = {p: [PYTHON, "-c", SCRIPT, module, job, model, outputs[p]] for p, module in packages.items()}
        costs = rounds(words, ROUNDS)
        if any(c.status != 0 for c in costs.values()):
            budgets.broken += costs["onq"].status != 0  # the reference fails on some models
            continue
        seconds = {p: pathlib.Path(f"{outputs[p]}.seconds").read_text().split() for p in packages}
        calls = {p: statistics.median(map(float, found)) for p, found in seconds.items()}
        for p, cost in costs.items():
            print(f"  {job:8s} {p:12s} {cost}, the call {calls[p]:7.3f} s")
        budgets.check(f"{job}: call of onq against onnxruntime's", calls["onq"] / calls["onnxruntime"], 1.0, "times")
        differ = outputs["onq"].read_bytes() != outputs["onnxruntime"].read_bytes()
        budgets.check(f"{job}: files that differ", int(differ), 0, "")


def main():
    os.environ["PYTHONPATH"] = str(ROOT / "python")
    os.environ.update(ONQ_LIBRARY=str(BUILD / "libonq.so"), ONQ_PROGRESS="0")
    budgets = Budgets()
    found = {n: MODELS / n for n in NAMES if (MODELS / n / "model.onnx").exists()}
    found = found or {"digits_cnn": ROOT / "examples" / "digits_cnn"}
    with tempfile.TemporaryDirectory(prefix="onq-bench.") as temporary:
        folder = pathlib.Path(temporary)
        for name, source in found.items():
            shutil.copytree(source, folder / name)
            for f in folder.rglob("*"):
                f.chmod(0o755 if f.is_dir() else 0o644)
            bench(name, folder / name / "model.onnx", folder, budgets)
    budgets.close()


if __name__ == "__main__":
    sys.exit(main())
