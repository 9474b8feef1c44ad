"""bench_dynamic.py - dynamic quantization of large models beside the reference, `cp` and the memory's own speed.

Budgets: at most 1.5 times cp of the input in the page cache (or what reading it twice at the memory's speed takes, if that
is more), under 300 MiB, a tenth of the reference's CPU.
"""
import os
import shutil
import time

import numpy as np

import big_models
from measure import BUILD, ONQ, PYTHON, Budgets, figure, once, rounds

ROUNDS = int(os.environ.get("ONQ_ROUNDS", "3"))


def read_seconds(path):
    """Twice the time in which numpy finds the largest number on one core: the floor of any quantizer that needs a range
    first."""
    best = 1e9
    for _ in range(2):
        begin = time.monotonic()
        for p in big_models.files(path):
            a = np.memmap(p, dtype=np.uint8, mode="r")
            a = a[: a.size // 8 * 8].view(np.uint64)
            for i in range(0, a.size, 1 << 21):
                a[i : i + (1 << 21)].max()
        best = min(best, time.monotonic() - begin)
    return 2 * best


def bench(name, n, external, budgets):
    folder = BUILD / "bench" / "dynamic"
    folder.mkdir(parents=True, exist_ok=True)
    model = big_models.make(folder / "model.onnx", n, external)
    out, copies = folder / "out.onnx", folder / "copies"
    script = ("import sys; from onnxruntime.quantization import quantize_dynamic as q; "
              f"q(sys.argv[1], sys.argv[2], use_external_data_format={external})")

    def before():
        big_models.remove(out)
        shutil.rmtree(copies, ignore_errors=True)
        os.sync()

    big_models.cache(model)
    onq = [ONQ, "dynamic", "-i", model, "-o", out] + (["--use_external_data_format"] if external else [])
    copy = ["sh", "-c", f"mkdir {copies} && cp {' '.join(big_models.files(model))} {copies}"]
    got = rounds({"cp": copy, "onq dynamic": onq}, ROUNDS, before)
    before()
    got["reference"] = once([PYTHON, "-c", script, model, out])
    floor = max(1.5 * got["cp"].wall, read_seconds(model))
    print(f"{name}: {sum(os.path.getsize(p) for p in big_models.files(model)) / 1e9:.2f} GB")
    for k, c in got.items():
        print(f"  {k:14s} {c}")
    size = big_models.size(n)
    figure(f"dynamic, {size}", "onq", got["onq dynamic"])
    figure(f"dynamic, {size}", "reference", got["reference"])
    budgets.check(f"{size}: wall / (1.5 cp, or reading twice)", got["onq dynamic"].wall / floor, 1.0, "x")
    budgets.check(f"{size}: peak memory", got["onq dynamic"].peak, 300, "MiB")
    budgets.check(f"{size}: CPU / reference", got["onq dynamic"].cpu / got["reference"].cpu, 0.1, "x")
    shutil.rmtree(folder)


def main():
    budgets = Budgets()
    bench("12 MatMuls inline", 12, False, budgets)
    bench("48 MatMuls, external data", 48, True, budgets)
    budgets.close()


if __name__ == "__main__":
    main()
