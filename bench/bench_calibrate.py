"""bench_calibrate.py - calibration: time and memory against the floor and against the reference, on the same samples in one run.

The floor is bench/floor.c: bare Run calls of the same runtime over the same samples with optimisation off, which is what
ranges equal to the reference's need; as many in flight as there are cores, one thread each, which is the cheapest way.
The reference's start-up and imports are counted apart; both write the cache. Medians of ONQ_ROUNDS (5) runs (of the reference,
which takes most of the time, 3 at most), taken in turns so that a busy moment meets all of them.

Budgets, in wall and in CPU time: MinMax 1.05 x the floor; Entropy, Percentile, Distribution 1.5 x; --fast 1.25 x the
optimised model's own inference. Samples that are all different widen the ranges to the end, so that nearly all of them run
twice: 2.6 x. `static`, which writes no cache, asks for the ends of the ranges alone and need not count: with every method it
takes at most 1.2 x what it takes with MinMax, and samples run once whatever they hold. Memory: a third of the reference's,
within the floor's plus 48 MiB at 8, 64 and 512 samples, and the same from run to run. Histogram methods take a fifth of the
reference's CPU time.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import BUILD, MODELS, ONQ, ROOT, Budgets, Cost, figure, once, samples_of

RUNS = int(os.environ.get("ONQ_ROUNDS", "5"))
FLOOR = str(BUILD / "bench" / "floor")
CORES = len(os.sched_getaffinity(0))
METHODS = ["minmax", "entropy", "percentile", "distribution"]
budgets = Budgets()

REFERENCE = r"""
import json, pathlib, resource, sys, time
sys.path.insert(0, sys.argv[1])
import numpy, onnx, onnxruntime, calibtool
from onnxruntime.quantization import calibrate
model, data, method, tmp = sys.argv[2:6]
samples = calibtool.read_samples(data)
def now():
    u = resource.getrusage(resource.RUSAGE_SELF)
    return time.monotonic(), u.ru_utime + u.ru_stime
start = now()
data = calibtool.reference(model, samples, method, tmp)
calibrate.save_tensors_data(data, pathlib.Path(tmp) / "reference.json")
end = now()
print(json.dumps([end[0] - start[0], end[1] - start[1], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def measure(args):
    """Wall seconds, CPU seconds and peak MiB of one process."""
    cost = once(args)
    if cost.status != 0:
        raise SystemExit(f"{' '.join(map(str, args))}: status {cost.status}")
    return cost.wall, cost.cpu, cost.peak


def reference(model, data, method, tmp):
    """The same of the reference's calibrator; None where it raises (histograms of minilm: a mask of -inf)."""
    done = subprocess.run(
        [sys.executable, "-c", REFERENCE, str(ROOT / "tests" / "parity"), str(model), str(data), method, str(tmp)],
        capture_output=True, text=True,
    )
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


def medians(jobs):
    """Each job RUNS times, in turns."""
    got = {name: [] for name in jobs}
    for i in range(RUNS):
        for name, job in jobs.items():
            if i == 0 or (None not in got[name] and (i < 3 or not name.endswith("reference"))):
                got[name].append(job())
    return {name: None if None in runs else [statistics.median(r[i] for r in runs) for i in range(3)]
            for name, runs in got.items()}


def cost(name, a, b, most, of="floor"):
    """Wall and CPU time of a over b."""
    for what, k in (("wall", 0), ("CPU", 1)):
        budgets.check(f"{name}, {what}", a[k] / b[k], most, f"x {of}")


def row(name, r, note=""):
    print(f"  {name:24} {r[0]:8.2f} s {r[1]:8.2f} CPU s {r[2]:8.0f} MiB  {note}", flush=True)


def floor_of(model, data, level=0, flight=CORES):
    return [FLOOR, model, data, level, flight, 1, 0]


def calibrate(model, data, method, tmp, *more):
    return [ONQ, "calibrate", "-i", model, "--data", data, "--quiet", "-o", tmp / "out.json", "--method", method, *more]


def speed(name, n, tmp):
    model = tmp / name / "model.onnx"
    model.parent.mkdir()
    shutil.copyfile(MODELS / name / "model.onnx", model)
    data = samples_of(MODELS / name, n, model.parent / "data")
    # The reference's reader asks for the model beside the samples.
    shutil.copyfile(model, data / "model.onnx")
    jobs = {"floor": lambda: measure(floor_of(model, data))}
    for m in METHODS:
        jobs[m] = lambda m=m: measure(calibrate(model, data, m, tmp))
        jobs[m + ", reference"] = lambda m=m: reference(model, data, m, tmp)
    got = medians(jobs)
    floor = got["floor"]
    print(f"{name}, {n} samples (median of {RUNS})")
    row("floor", floor)
    for m in METHODS:
        them = got[m + ", reference"]
        row(m, got[m])
        figure(f"calibrate, {m}, {n} samples: {name}", "onq", Cost(*got[m], 0))
        cost(f"{name} {m}, over the floor", got[m], floor, 1.05 if m == "minmax" else 1.5)
        if them is None:
            print("    reference                it fails")
            continue
        row("  reference", them, f"onq takes {got[m][0] / them[0]:.2f} of its time")
        figure(f"calibrate, {m}, {n} samples: {name}", "reference", Cost(*them, 0))
        budgets.check(f"{name} {m}, memory / reference", got[m][2] / them[2], 0.334, "of memory")
        if m != "minmax" and n >= 64:
            budgets.check(f"{name} {m}, CPU against the reference", got[m][1] / them[1], 0.2, "of the reference")


def different(name, n, tmp):
    """The hardest case for histograms: no sample comes twice, so that the range grows to the end."""
    model, data = MODELS / name / "model.onnx", f"random:{n}:7"
    jobs = {"floor": lambda: measure(floor_of(model, data))}
    for m in ("minmax", "entropy", "percentile"):
        jobs[m] = lambda m=m: measure(calibrate(model, data, m, tmp))
    got = medians(jobs)
    print(f"{name}, {n} samples, all different (median of {RUNS})")
    row("floor", got["floor"])
    for m in ("minmax", "entropy", "percentile"):
        row(m, got[m])
        cost(f"{name} {m}, all different, over the floor", got[m], got["floor"], 1.05 if m == "minmax" else 2.6)


def static(model, data, method, tmp):
    return [ONQ, "static", "-i", model, "-o", tmp / "out.onnx", "--data", data, "--quiet", "--no_verify",
            "--calibration_method", method]


def ends_alone(name, n, tmp):
    model, data = MODELS / name / "model.onnx", f"random:{n}:7"
    got = medians({m: lambda m=m: measure(static(model, data, m, tmp)) for m in METHODS})
    print(f"{name}, static, {n} samples, all different (median of {RUNS})")
    for m in METHODS:
        row(m, got[m])
        if m != "minmax":
            cost(f"{name} static, {m}, all different", got[m], got["minmax"], 1.2, "minmax")


def fast(name, n, tmp):
    model = tmp / (name + "_fast.onnx")
    measure([ONQ, "preprocess", "--input", MODELS / name / "model.onnx", "--output", model, "--quiet"])
    data = samples_of(MODELS / name, n, tmp / (name + "_fast"))
    jobs = {"optimised model": lambda: measure(floor_of(model, data, 99)),
            "minmax --fast": lambda: measure(calibrate(model, data, "minmax", tmp, "--fast"))}
    got = medians(jobs)
    print(f"{name}, preprocessed, {n} samples (median of {RUNS})")
    row("optimised model", got["optimised model"])
    row("minmax --fast", got["minmax --fast"])
    cost(f"{name} --fast", got["minmax --fast"], got["optimised model"], 1.25, "optimised")


def memory(name, counts, tmp):
    model = MODELS / name / "model.onnx"
    print(f"{name}: peak memory (MiB)")
    for n in counts:
        data = samples_of(MODELS / name, n, tmp / f"memory_{name}_{n}")
        floor = measure(floor_of(model, data))[2]
        for m in METHODS:
            peaks = [measure(calibrate(model, data, m, tmp))[2] for _ in range(3)]
            budgets.check(f"{name} {m}, {n} samples, MiB over the floor", max(peaks) - floor, 48, "MiB")
            budgets.check(f"{name} {m}, {n} samples, runs differ by", max(peaks) / min(peaks), 1.1, "of memory")


def main():
    if not (MODELS / "ppocr_cls").is_dir():
        print("no shared models")
        return 77
    with tempfile.TemporaryDirectory() as d:
        tmp = Path(d)
        speed("efficientnet_lite0", 64, tmp)
        speed("ppocr_cls", 128, tmp)
        speed("minilm", 64, tmp)
        speed("digits_cnn", 128, tmp)
        different("efficientnet_lite0", 64, tmp)
        different("ppocr_cls", 128, tmp)
        ends_alone("efficientnet_lite0", 64, tmp)
        ends_alone("ppocr_cls", 128, tmp)
        ends_alone("minilm", 64, tmp)
        fast("efficientnet_lite0", 64, tmp)
        memory("ppocr_cls", (8, 64, 512), tmp)
        memory("digits_cnn", (8, 64, 512), tmp)
        memory("efficientnet_lite0", (8, 32), tmp)
        memory("tiny_llama", (6, 64), tmp)
    budgets.close()


if __name__ == "__main__":
    sys.exit(main())
