"""bench_accuracy.py [MODEL] - what `onq auto` makes of real models, judged on samples that chose nothing.

`onq auto` gets a model and samples, and no other option but --target where a row names one. Beside it stand the
reference's default recipe and the same per channel, both after `preprocess`. All run as users run them: the runtime's
default options. Time is that of one thread, models taking turns, the least median of some rounds, as a part of float's.

Budgets are goals: the same answer as float (class, mask, nearest sentence) in percent, signal to noise in dB, time.
"""
import json
import os
import subprocess
import sys
import time

import numpy as np
import onnxruntime

from accuracy_data import tasks
from measure import BUILD, MODELS, ONQ, Budgets

REAL = MODELS.parent / "accuracy"
ROUNDS = int(os.environ.get("ONQ_ROUNDS", "5"))

# The same answer at least, dB at least, time at most; None: no goal.
GOALS = {
    "digits_cnn": (99.9, 41, None),
    "efficientnet_lite0": (99, 24.5, 0.5),
    "ppocr_cls": (99.6, None, None),
    "ppocrv4_det": (98.7, 25, 0.68),
    "magika": (99, 33, 0.65),
    "minilm, 34 dB": (98, None, 0.78),
    "minilm, 28 dB": (96, None, 0.5),
    "lstm_tagger": (99.9, None, 0.65),
}


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def sqnr(truth, other):
    """Over all samples, of the first output."""
    signal = sum(np.square(t[0], dtype=np.float64).sum() for t in truth)
    noise = sum(np.square(t[0].astype(np.float64) - o[0]).sum() for t, o in zip(truth, other))
    return 10 * np.log10(signal / noise) if noise else 199.0


def milliseconds(sessions, feeds):
    """Of each session a run, in turns."""
    least = [np.inf] * len(sessions)
    for _ in range(ROUNDS):
        taken = [[] for _ in sessions]
        for feed in feeds:
            for i, s in enumerate(sessions):
                begin = time.perf_counter()
                s.run(None, feed)
                taken[i].append(time.perf_counter() - begin)
        least = [min(a, float(np.median(t))) for a, t in zip(least, taken)]
    return [1000 * t for t in least]


def onq(*words):
    run = subprocess.run([ONQ, *map(str, words)], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        print(f"  failed: onq {' '.join(map(str, words))}\n  {run.stderr.strip()}")
    return run


def make(task, folder):
    """The models that are compared, by name; the first is float."""
    data = ["--data", task.data] if task.data else []
    prepared = folder / "prepared.onnx"
    if not task.data:  # its samples lie beside the model
        prepared = task.model.with_name("prepared.onnx")
    onq("preprocess", "-i", task.model, "-o", prepared)
    made = {"float": task.model}
    for name, options in (("reference", []), ("per channel", ["--per_channel"])):
        made[name] = folder / f"{name}.onnx"
        onq("static", "-i", prepared, "-o", made[name], *options, *data)
    made["auto"] = folder / "auto.onnx"
    begin = time.monotonic()
    run = onq("auto", "-i", task.model, "-o", made["auto"], "--json", *task.options, *data)
    seconds = time.monotonic() - begin
    chosen = json.loads(run.stdout).get("chosen", {}) if run.returncode == 0 else {}
    return made, seconds, chosen


def bench(task, folder, budgets):
    made, seconds, chosen = make(task, folder)
    made = {name: path for name, path in made.items() if path.exists()}
    sessions = {name: session(path) for name, path in made.items()}
    truth = [sessions["float"].run(None, feed) for feed in task.feeds]
    taken = dict(zip(sessions, milliseconds(list(sessions.values()), task.feeds[:30])))
    print(f"\n{task.name}: {len(task.feeds)} held-out samples; auto took {seconds:.0f} s")
    print(f"  chosen: {json.dumps(chosen.get('options', chosen))}")
    print(f"  {'':14s} {'same %':>8s} {'dB':>7s} {'ms':>8s} {'of float':>9s} {'MB':>7s}")
    rows = {}
    for name, s in sessions.items():
        outputs = truth if name == "float" else [s.run(None, feed) for feed in task.feeds]
        rows[name] = (task.same(truth, outputs), sqnr(truth, outputs), taken[name] / taken["float"])
        print(f"  {name:14s} {rows[name][0]:8.2f} {rows[name][1]:7.1f} {taken[name]:8.2f} {rows[name][2]:9.2f} "
              f"{made[name].stat().st_size / 1e6:7.2f}")
    same, noise, part = GOALS[task.name]
    got = rows.get("auto", (0, 0, 9))
    budgets.check(f"{task.name}: other answers than float", 100 - got[0], 100 - same + 1e-9, "%")
    if noise is not None:
        budgets.check(f"{task.name}: noise", -got[1], -noise, "dB")
    if part is not None:
        budgets.check(f"{task.name}: time", got[2], part, "of float's")


def main():
    if not MODELS.exists() or not REAL.exists():
        print("no shared models or data")
        sys.exit(77)
    budgets = Budgets()
    home = BUILD / "accuracy"
    for task in tasks(MODELS, REAL, home / "data", sys.argv[1] if len(sys.argv) > 1 else ""):
        folder = home / task.name.replace(", ", "_").replace(" ", "_")
        folder.mkdir(parents=True, exist_ok=True)
        bench(task, folder, budgets)
    budgets.close()


if __name__ == "__main__":
    main()
