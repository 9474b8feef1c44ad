"""bench_state.py - models with states: calibrating a decoder against the bare loop, and memory in steps and sequences.

The bare loop is bench/floor.c: the runtime's Run for the text and for each token after it, optimisation off, the cache
handed on as the runtime's own values, nothing copied, observed or kept; as many texts at once as there are cores. Medians
of ONQ_ROUNDS (5) runs, taken in turns. Budgets: 32 texts of 64 steps take at most 1.3 times the loop, in wall and in CPU
time. The peak of memory with 128 texts is that with 8, and with 256 steps that with 16, but for the cache of the texts that
run at once; `run` and `bench` keep to that too.
"""
import os
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
from measure import BUILD, ONQ, ROOT, Budgets, once

sys.path.insert(0, str(ROOT / "tests" / "parity"))
import statemodels  # noqa: E402

RUNS = int(os.environ.get("ONQ_ROUNDS", "5"))
CORES = len(os.sched_getaffinity(0))
LAYERS, WIDTH, HEADS, VOCABULARY, LENGTH = 4, 256, 4, 2000, 16
budgets = Budgets()


def cost(args):
    c = once(args)
    if c.status != 0:
        raise SystemExit(f"{' '.join(map(str, args))}: status {c.status}")
    return c


def texts(folder, n):
    folder.mkdir()
    rng = np.random.default_rng(n)
    for k in range(n):
        np.savez(folder / f"{k:03}.npz", input_ids=rng.integers(0, VOCABULARY, (1, LENGTH)))
    return folder


def speed(model, data, tmp):
    generate = 63
    jobs = {"bare loop": [BUILD / "bench" / "floor", model, data, 0, CORES, 1, 0, generate]}
    for method in ("minmax", "entropy"):
        jobs[method] = [ONQ, "calibrate", "-i", model, "--data", data, "--generate", generate, "--method", method,
                        "--quiet", "-o", tmp / "out.json"]
    got = {name: [] for name in jobs}
    for _ in range(RUNS):
        for name, job in jobs.items():
            got[name].append(cost(job))
    middle = {name: (statistics.median(c.wall for c in runs), statistics.median(c.cpu for c in runs))
              for name, runs in got.items()}
    for name, (wall, cpu) in middle.items():
        print(f"  {name:12} {wall:7.2f} s {cpu:7.2f} CPU s")
    for k, what in enumerate(("wall", "CPU")):
        budgets.check(f"MinMax, 32 texts of 64 steps, {what}", middle["minmax"][k] / middle["bare loop"][k], 1.3,
                      "x bare loop")
        # Every step runs twice, and the second pass counts histograms.
        budgets.check(f"Entropy, 32 texts of 64 steps, {what}", middle["entropy"][k] / middle["bare loop"][k], 3.0,
                      "x bare loop")


def memory(model, tmp):
    cache = 2 * LAYERS * WIDTH * 4 / 2**20  # MiB of one token
    commands = {
        "calibrate": lambda data, n: ["calibrate", "-i", model, "--data", data, "--generate", n, "--method", "minmax",
                                      "-o", tmp / "out.json"],
        "run": lambda data, n: ["run", model, "--data", data, "--generate", n],
        "bench": lambda data, n: ["bench", model, model, "--data", data, "--generate", n, "--runs", 1],
    }
    for name, words in commands.items():
        peaks = {}
        for n, steps in ((8, 64), (32, 64), (128, 64), (32, 16), (32, 256)):
            data = tmp / f"texts{n}"
            peaks[n, steps] = cost([ONQ, *words(data, steps - 1), "--quiet"]).peak
            print(f"  {name:10} {n:4} texts {steps:4} steps {peaks[n, steps]:8.1f} MiB")
        budgets.check(f"{name}: memory of 128 texts over 8", peaks[128, 64] / peaks[8, 64], 1.1, "x")
        # A step holds the cache a few times: as it goes in, as it comes out, and as it is kept, for each model.
        more = 6 * cache * (256 - 16) * CORES * (3 if name == "bench" else 1)
        budgets.check(f"{name}: memory of 256 steps over 16", peaks[32, 256] / (peaks[32, 16] + more), 1.1,
                      "x, with the cache")


def main():
    with tempfile.TemporaryDirectory() as folder:
        tmp = Path(folder)
        model = statemodels.decoder(tmp / "decoder.onnx", layers=LAYERS, width=WIDTH, heads=HEADS,
                                    vocabulary=VOCABULARY, positions=512)
        for n in (8, 32, 128):
            texts(tmp / f"texts{n}", n)
        speed(model, tmp / "texts32", tmp)
        memory(model, tmp)
    budgets.close()


if __name__ == "__main__":
    sys.exit(main())
