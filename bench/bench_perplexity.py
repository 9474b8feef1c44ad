"""bench_perplexity.py - what weight-only quantization costs a language model that was trained (char_model.py).

Perplexity a character on text of other files than it was trained and calibrated on; size of the file. The first run
trains the model, which takes some minutes.

Budgets: at 4 bits no method costs more than a twentieth of the perplexity; GPTQ and AWQ are no worse than plain rounding
at 4 bits, and better at a mix of 2 and 4 and at 2.
"""
import subprocess

import numpy as np
import onnxruntime

import char_model
from measure import BUILD, ONQ, Budgets


# Scales of float32 for every 32 weights are one bit more each: target_bits counts it.
BITS = {"4": ["--bits", 4], "2 and 4": ["--target_bits", 4], "2": ["--bits", 2]}
METHODS = ["default", "hqq", "gptq", "awq"]


def perplexity(path, rows):
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    lost = []
    for row in rows:
        scores = session.run(None, {"ids": row[None, :-1]})[0][0].astype(np.float64)
        scores -= scores.max(-1, keepdims=True)
        likely = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
        lost.append(-likely[np.arange(len(row) - 1), row[1:]].mean())
    return float(np.exp(np.mean(lost)))


def quantize(model, data, out, bits, method):
    words = [ONQ, "nbits", "-i", model, "-o", out, "--quant_method", method, "--block_size", 32, *BITS[bits]]
    if method in ("gptq", "awq"):
        words += ["--data", data]
    run = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        print(f"  {bits:>8s} {method:8s} failed: {run.stderr.strip()}")
    return run.returncode == 0


def main():
    folder = BUILD / "char_model"
    model, data, rows = char_model.make(folder)
    exact = perplexity(model, rows)
    print(f"  {'bits':>8s} {'method':8s} {'perplexity':>11s} {'MB':>7s}")
    print(f"  {'32':>8s} {'float':8s} {exact:11.4f} {model.stat().st_size / 1e6:7.2f}")
    got = {}
    for bits in BITS:
        for method in METHODS:
            out = folder / "quantized.onnx"
            if quantize(model, data, out, bits, method):
                got[bits, method] = perplexity(out, rows)
                print(f"  {bits:>8s} {method:8s} {got[bits, method]:11.4f} {out.stat().st_size / 1e6:7.2f}")
    budgets = Budgets()
    worst = 1e9
    for method in METHODS:
        budgets.check(f"{method}, 4 bits: perplexity of float's", got.get(("4", method), worst) / exact, 1.05, "times")
    for bits, most in (("4", 1.005), ("2 and 4", 1), ("2", 1)):
        for method in ("gptq", "awq"):
            part = got.get((bits, method), worst) / got.get((bits, "default"), 1)
            budgets.check(f"{method}, {bits} bits: perplexity of plain rounding's", part, most, "times")
    budgets.close()


if __name__ == "__main__":
    main()
