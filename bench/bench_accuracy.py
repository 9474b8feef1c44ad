"""bench_accuracy.py [MODEL] - what `onq auto` makes of real models, judged on samples that chose nothing.

`onq auto` gets a model and samples, and no other option but --target where a row names one. Beside it stand the
plain recipes (PLAIN), after `preprocess`: none of them may be better at auto's time or less. With FIELD set to a
folder of m/ and d/MODEL/{cal,hold} the models of public packages that accuracy_data.py names are tasks too. All run as users run them: the runtime's
default options. Time is the processor time of one thread, models taking turns, the least median of some rounds, as a part of float's.

For each model it prints what auto promises (figure and bound of its target), what the held-out samples show of the same
metric, and the cost: the processor time of the search as a multiple of running float once over the samples. Models of
which that takes less than LEAST seconds are too small for a goal of cost: opening sessions takes longer. Small models
are searched three times: each answer must keep its promise, and their times may differ by SPREAD.

Budgets are goals: the same answer as float (class, mask, nearest sentence) in percent, signal to noise in dB, time; that
the promise holds, within half a point or 1 dB; and the cost.
"""
import json
import os
import resource
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


# What people would do by hand: auto is never worse than any of these at its time or less.
PLAIN = [("reference", "static", []), ("per channel", "static", ["--per_channel"]),
         ("pays", "static", ["--per_channel", "--op_set", "pays"]), ("dynamic", "dynamic", ["--per_channel"])]
AS_FAST = 0.02  # of float's time: times tell no more apart
AS_GOOD = 1.0   # dB

COST = 30  # times float over the samples
LEAST = 0.2  # seconds of float over the samples
SPREAD = 0.05  # of float's time
SEARCHES = {"digits_cnn": 3, "ppocr_cls": 3, "magika": 3, "silero_vad": 3}


def kl(flt, other):
    """The mean divergence of float's distribution over the last axis."""
    def log_softmax(x):
        x = x.astype(np.float64) - x.max(-1, keepdims=True)
        return x - np.log(np.exp(x).sum(-1, keepdims=True))
    rows = []
    for t, o in zip(flt, other):
        p, q = log_softmax(t[0]), log_softmax(o[0])
        rows.append((np.exp(p) * (p - q)).sum(-1).ravel())
    return np.mean(np.concatenate(rows))


def same_samples(flt, other):
    """Samples all of whose rows have float's class."""
    return 100 * np.mean([t[0].shape == o[0].shape and (t[0].argmax(-1) == o[0].argmax(-1)).all()
                          for t, o in zip(flt, other)])


def same_rows(flt, other):
    if flt[0][0].shape[-1:] == (1,):  # one probability
        return 100 * np.mean(np.concatenate([((t[0] > 0.5) == (o[0] > 0.5)).ravel() for t, o in zip(flt, other)]))
    return 100 * np.mean(np.concatenate([(t[0].argmax(-1) == o[0].argmax(-1)).ravel() for t, o in zip(flt, other)]))


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def sqnr(flt, other):
    """Over all samples, of the first output: the others of these models are states."""
    if any(t[0].shape != o[0].shape for t, o in zip(flt, other)):
        return -np.inf
    signal = sum(np.square(t[0], dtype=np.float64).sum() for t in flt)
    noise = sum(np.square(t[0].astype(np.float64) - o[0]).sum() for t, o in zip(flt, other))
    return 10 * np.log10(signal / noise) if noise else 199.0


def milliseconds(sessions, feeds):
    """Of each session a run, in turns."""
    least = [np.inf] * len(sessions)
    for _ in range(ROUNDS):
        taken = [[] for _ in sessions]
        for feed in feeds:
            for i, s in enumerate(sessions):
                begin = time.thread_time()
                s.run(None, feed)
                taken[i].append(time.thread_time() - begin)
        least = [min(a, float(np.median(t))) for a, t in zip(least, taken)]
    return [1000 * t for t in least]


def onq(*words):
    run = subprocess.run([ONQ, *map(str, words)], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        print(f"  failed: onq {' '.join(map(str, words))}\n  {run.stderr.strip()}")
    return run


def make(task, folder):
    """What auto is compared with, by name; the first is float."""
    data = ["--data", task.data] if task.data else []
    prepared = folder / "prepared.onnx"
    if not task.data:  # its samples lie beside the model
        prepared = task.model.with_name("prepared.onnx")
    onq("preprocess", "-i", task.model, "-o", prepared)
    made = {"float": task.model}
    for name, command, options in PLAIN:
        made[name] = folder / f"{name}.onnx"
        made[name].unlink(missing_ok=True)
        onq(command, "-i", prepared, "-o", made[name], *options, *(data if command == "static" else []))
    return made


def search(task, path):
    """Seconds of the processor that one search took, and what it says."""
    data = ["--data", task.data] if task.data else []
    begin = cpu_seconds()
    run = onq("auto", "-i", task.model, "-o", path, "--json", *task.options, *data)
    return cpu_seconds() - begin, json.loads(run.stdout) if run.returncode == 0 else {}


METRICS = {"agreement": same_rows, "sample_agreement": same_samples, "sqnr": sqnr, "kl": kl}
SLACK = {"sqnr": 1, "kl": 0}


def check_promise(task, found, flt, outputs, budgets):
    """What auto said of samples that nobody has seen, and what they show."""
    chosen = found["chosen"]
    for metric, target in found["target"].items():
        if metric not in METRICS or not found["target_reached"] or chosen["options"]["command"] == "float":
            print(f"  target {metric}={target}: {'reached' if found['target_reached'] else 'not reached, and said'}; "
                  f"{chosen['label']}")
            continue
        unseen = METRICS[metric](flt, outputs)
        print(f"  target {metric}={target}: promised {chosen['bound'][metric]:.2f} ({chosen['figure'][metric]:.2f} on its own "
              f"samples), unseen samples {unseen:.2f}")
        missing = unseen - target if metric == "kl" else target - unseen
        budgets.check(f"{task.name}: {metric} short of its target on unseen samples", missing, SLACK.get(metric, 0.5),
                      "dB" if metric == "sqnr" else "" if metric == "kl" else "points")


def check_cost(task, found, seconds, budgets):
    bare = found["samples"]["used"] * found["float"]["latency_ms"] / 1000
    print(f"  cost: {seconds:.1f} s of the processor, {seconds / bare:.0f} times float over the samples")
    if bare >= LEAST:
        budgets.check(f"{task.name}: cost of the search", seconds / bare, COST, "times float")


def bench(task, folder, budgets):
    made, answers = make(task, folder), {}
    for i in range(SEARCHES.get(task.name, 1)):
        name = "auto" if i == 0 else f"auto, search {i + 1}"
        made[name] = folder / f"auto{i}.onnx"
        answers[name] = search(task, made[name])
    made = {name: path for name, path in made.items() if path.exists()}
    sessions = {name: session(path) for name, path in made.items()}
    flt = [sessions["float"].run(None, feed) for feed in task.feeds]
    taken = dict(zip(sessions, milliseconds(list(sessions.values()), task.feeds[:30])))
    print(f"\n{task.name}: {len(task.feeds)} held-out samples")
    print(f"  {'':14s} {'same %':>8s} {'dB':>7s} {'ms':>8s} {'of float':>9s} {'MB':>7s}")
    rows = {}
    for name, s in sessions.items():
        outputs = flt if name == "float" else [s.run(None, feed) for feed in task.feeds]
        rows[name] = (task.same(flt, outputs), sqnr(flt, outputs), taken[name] / taken["float"])
        print(f"  {name:14s} {rows[name][0]:8.2f} {rows[name][1]:7.1f} {taken[name]:8.2f} {rows[name][2]:9.2f} "
              f"{made[name].stat().st_size / 1e6:7.2f}")
        seconds, found = answers.get(name, (0, {}))
        if found:
            print(f"  chosen: {found['chosen']['label']}")
            check_promise(task, found, flt, outputs, budgets)
            check_cost(task, found, seconds, budgets)
    check_plain(task, rows, budgets)
    parts = [rows[name][2] for name in answers if name in rows]
    if len(parts) > 1:
        budgets.check(f"{task.name}: times of {len(parts)} searches apart", max(parts) - min(parts), SPREAD, "of float's")
    check_goals(task, rows.get("auto", (0, 0, 9)), budgets)


def check_plain(task, rows, budgets):
    """The most accurate plain recipe that takes no longer than auto's answer."""
    if "auto" not in rows:
        return
    same, noise, part = rows["auto"]
    plain = {name: rows[name] for name, _, _ in PLAIN if name in rows and rows[name][2] <= part + AS_FAST}
    if not plain:
        print("  no plain recipe is as fast as auto's answer")
        return
    best = max(plain, key=lambda name: plain[name][1])
    print(f"  best plain recipe of its time or less: {best}, {plain[best][0]:.2f} %, {plain[best][1]:.1f} dB, "
          f"{plain[best][2]:.2f} of float")
    budgets.check(f"{task.name}: less accurate than the plain recipe '{best}'", plain[best][1] - noise, AS_GOOD, "dB")
    budgets.check(f"{task.name}: fewer equal answers than '{best}'", plain[best][0] - same, 100 / len(task.feeds) + 1e-9, "points")


def check_goals(task, got, budgets):
    same, noise, part = GOALS.get(task.name, (None, None, None))
    if same is not None:
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
