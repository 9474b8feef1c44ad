"""Calibration: time and memory against the floor and against the reference, on the same samples in one run.

The floor is ONNX Runtime running the plain float model over the same samples with optimisation off, which is what ranges
equal to the reference's need (`onq run --optimization none`). The reference's start-up and imports are counted apart; both write
the cache. All take as many threads as the runtime takes by itself. Medians of ONQ_BENCH_RUNS (5) runs (of the reference, which
takes most of the time, 3 at most), taken in turns so that a busy moment meets all of them; a ratio is the smaller of wall time's and CPU time's, since a shared machine spoils either.

Budgets (issue 4): MinMax 1.25 x the floor; Entropy, Percentile, Distribution 2.5 x, and 5 x when a second pass is forced;
peak memory within the floor's plus 48 MiB at 8, 64 and 512 samples when activations are not kept; all ahead of the reference,
histogram methods with a fifth of its CPU time. --fast is measured on the preprocessed model, where Conv and Clip can be fused: half of the
default is the goal, 0.6 the budget.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(os.environ.get("ONQ_ROOT", Path(__file__).resolve().parents[1]))
ONQ = os.environ.get("ONQ", str(ROOT / "build" / "onq"))
MODELS = Path(os.environ.get("ONQ_MODELS", ROOT.parent / "shared" / "models"))
RUNS = int(os.environ.get("ONQ_BENCH_RUNS", "5"))
METHODS = ["minmax", "entropy", "percentile", "distribution"]
broken = []

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
    begin = time.monotonic()
    p = subprocess.Popen(list(map(str, args)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    err = p.stderr.read()
    _, status, use = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, args))}: {err}")
    return time.monotonic() - begin, use.ru_utime + use.ru_stime, use.ru_maxrss / 1024


def reference(model, data, method, tmp):
    out = subprocess.run(
        [sys.executable, "-c", REFERENCE, str(ROOT / "tests" / "parity"), str(model), str(data), method, str(tmp)],
        capture_output=True, text=True, check=True,
    ).stdout
    return json.loads(out.splitlines()[-1])


def medians(jobs):
    """Each job RUNS times, in turns."""
    got = {name: [] for name in jobs}
    for i in range(RUNS):
        for name, job in jobs.items():
            if i < 3 or not name.endswith("reference"):
                got[name].append(job())
    return {name: [statistics.median(r[i] for r in runs) for i in range(3)] for name, runs in got.items()}


def ratio(a, b):
    return min(a[0] / b[0], a[1] / b[1])


def budget(what, value, most):
    mark = "ok" if value <= most else "BROKEN"
    if mark != "ok":
        broken.append(what)
    return f"{value:.2f} of {most:g} {mark}"


def row(name, r, note=""):
    print(f"  {name:24} {r[0]:8.2f} s {r[1]:8.2f} CPU s {r[2]:8.0f} MiB  {note}", flush=True)


def samples_of(folder, n, out):
    """n samples: those of the folder again and again."""
    sets = sorted(folder.glob("test_data_set_*"), key=lambda p: int(p.name.rsplit("_", 1)[1]))
    out.mkdir()
    for i in range(n):
        (out / f"test_data_set_{i}").symlink_to(sets[i % len(sets)].resolve())
    return out


def speed(name, n, tmp):
    model = tmp / name / "model.onnx"
    model.parent.mkdir()
    shutil.copyfile(MODELS / name / "model.onnx", model)
    data = samples_of(MODELS / name, n, model.parent / "data")
    # The reference's reader asks for the model beside the samples.
    shutil.copyfile(model, data / "model.onnx")
    base = [ONQ, "calibrate", "-i", model, "--data", data, "--quiet", "-o", tmp / "out.json", "--method"]
    jobs = {"floor": lambda: measure([ONQ, "run", model, "--data", data, "--optimization", "none", "--quiet"])}
    for m in METHODS:
        jobs[m] = lambda m=m: measure([*base, m])
        if m != "minmax":
            jobs[m + ", two passes"] = lambda m=m: measure([*base, m, "--memory", "0"])
        jobs[m + ", reference"] = lambda m=m: reference(model, data, m, tmp)
    got = medians(jobs)
    floor = got["floor"]
    print(f"{name}, {n} samples (median of {RUNS})")
    row("floor", floor)
    for m in METHODS:
        most = 1.25 if m == "minmax" else 2.5
        row(m, got[m], "x floor " + budget(f"{name} {m}", ratio(got[m], floor), most))
        two = m + ", two passes"
        if two in got:
            row(two, got[two], "x floor " + budget(f"{name} {two}", ratio(got[two], floor), 5))
        them = got[m + ", reference"]
        share = f"onq takes {got[m][1] / them[1]:.2f} of its CPU, {got[m][0] / them[0]:.2f} of its time"
        if m != "minmax" and n >= 64:
            share += ": " + budget(f"{name} {m} against the reference", ratio(got[m], them), 0.2)
        row("  reference", them, share)
        if ratio(got[m], them) >= 1:
            broken.append(f"{name} {m}: not ahead of the reference")


def fast(name, n, tmp):
    model = tmp / (name + "_fast.onnx")
    measure([ONQ, "preprocess", "--input", MODELS / name / "model.onnx", "--output", model, "--quiet"])
    data = samples_of(MODELS / name, n, tmp / (name + "_fast"))
    jobs = {}
    for m in ("minmax", "entropy"):
        job = [ONQ, "calibrate", "-i", model, "--data", data, "--quiet", "-o", tmp / "out.json", "--method", m, "--memory", "0"]
        jobs[m] = lambda job=job: measure(job)
        jobs[m + " --fast"] = lambda job=job: measure([*job, "--fast"])
    got = medians(jobs)
    print(f"{name}, preprocessed, {n} samples (median of {RUNS})")
    for m in ("minmax", "entropy"):
        row(m, got[m])
        quick = m + " --fast"
        row(quick, got[quick], "x default " + budget(f"{name} {quick}", ratio(got[quick], got[m]), 0.6))


def memory(name, counts, tmp):
    model = MODELS / name / "model.onnx"
    print(f"{name}: peak memory with activations not kept (MiB)")
    for n in counts:
        data = samples_of(MODELS / name, n, tmp / f"memory_{name}_{n}")
        floor = measure([ONQ, "run", model, "--data", data, "--optimization", "none", "--quiet"])[2]
        line = f"  {n:4} samples: floor {floor:6.0f}"
        for m in METHODS:
            peak = measure([ONQ, "calibrate", "-i", model, "--data", data, "--quiet", "-o", tmp / "out.json", "--method",
                            m, "--memory", "0"])[2]
            line += f", {m} +{peak - floor:.0f}"
            if peak > floor + 48:
                broken.append(f"{name} {m}: {peak - floor:.0f} MiB over the floor at {n} samples")
        print(line, flush=True)


def main():
    if not (MODELS / "ppocr_cls").is_dir():
        print("no shared models")
        return 77
    with tempfile.TemporaryDirectory() as d:
        tmp = Path(d)
        speed("ppocr_cls", 128, tmp)
        speed("efficientnet_lite0", 16, tmp)
        fast("efficientnet_lite0", 32, tmp)
        memory("ppocr_cls", (8, 64, 512), tmp)
        memory("digits_cnn", (8, 64, 512), tmp)
        memory("efficientnet_lite0", (8, 32), tmp)
    for b in broken:
        print("broken:", b)
    return 1 if broken else 0


sys.exit(main())
