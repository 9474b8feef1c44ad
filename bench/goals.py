"""goals.py - the goals, each with the rows that show it: a goal without a row is "not measured", never silently met.

A row is named by its benchmark and a pattern of its name (re.search); every row that matches must be within `most`, or within
its own budget where `most` is None. `least` is how many rows there must be. `note` says why rows may be missing.
"""
import re

from measure import STILL, verdict

GOALS = [
    # what, benchmark, pattern, most, least rows, note
    ("start: under 3 ms", "bench_growth", r"^onq --version: time", 0.003, 1, ""),
    ("start: under 5 MiB", "bench_growth", r"^onq --version: memory", 5, 1, ""),
    ("static MinMax without inference: a twentieth of the reference's CPU", "bench_static", r"CPU without inference", 0.05, 5, ""),
    ("static: a third of the reference's memory", "bench_static", r"memory, .*/ reference", 1 / 3, 5, ""),
    ("static: the reference's bytes", "bench_static", r"results differ", 0, 5, ""),
    ("Entropy, Percentile, Distribution, 128 samples: a fifth of the reference's CPU", "bench_calibrate",
     r"against the reference", 0.2, 3, ""),
    ("histograms: memory flat in samples, within bare inference plus 48 MiB", "bench_calibrate", r"MiB over the floor", 48, 3, ""),
    ("MinMax at most 1.05 times bare inference", "bench_calibrate", r"minmax.*over the floor, ", 1.05, 1, ""),
    ("histograms at most 1.5 times bare inference", "bench_calibrate", r"(entropy|percentile|distribution).*over the floor, ", 1.5, 3, ""),
    ("a decoder, 32 texts of 64 steps: at most 1.3 times the bare loop", "bench_state", r"MinMax, 32 texts", 1.3, 2, ""),
    ("states: memory flat in texts and steps", "bench_state", r"memory of", None, 6, ""),
    ("--fast at most 1.25 times the optimised model's inference", "bench_calibrate", r"--fast", 1.25, 1, ""),
    ("dynamic, 0.8 and 3.2 GB: a tenth of the reference's CPU", "bench_dynamic", r"CPU / reference", 0.1, 2, ""),
    ("dynamic, 0.8 and 3.2 GB: under 300 MiB", "bench_dynamic", r"peak memory", 300, 2, ""),
    ("nbits, 0.8 and 3.2 GB: a third of the reference's CPU", "bench_nbits", r"nbits: CPU / reference", 1 / 3, 2, ""),
    ("nbits: both cores used", "bench_nbits", r"nbits: wall / CPU", 0.75, 2, "needs two cores"),
    ("nbits, 0.8 and 3.2 GB: under 300 MiB", "bench_nbits", r"nbits: peak memory", 300, 2, ""),
    ("bnb4, 0.8 and 3.2 GB: a fifth of the reference's CPU", "bench_nbits", r"bnb4: CPU / reference", 0.2, 2, ""),
    ("bnb4, 0.8 and 3.2 GB: under 300 MiB", "bench_nbits", r"bnb4: peak memory", 300, 2, ""),
    ("convert, 3.2 GB: twice the time of cp", "bench_convert", r"wall / cp", 2.0, 3, ""),
    ("convert, 3.2 GB: under 100 MiB", "bench_convert", r"peak memory", 100, 3, ""),
    ("HQQ on minilm: a tenth of the reference's CPU, no torch", "bench_nbits", r"^minilm, hqq", 0.1, 1,
     "the reference needs torch, which is not installed here"),
    ("GPTQ on minilm: a tenth of the reference's CPU, no torch", "bench_nbits", r"^minilm, gptq", 0.1, 1,
     "the reference needs torch, which is not installed here"),
    ("debug: a third of the reference's CPU", "bench_debug", r"CPU of the reference", 1 / 3, 2, ""),
    ("debug: memory flat in samples", "bench_debug", r"memory of 512 samples", 1.1, 1, ""),
    ("debug: at most 1.2 times both models bare", "bench_debug", r"both models bare", 1.2, 3, ""),
    ("preprocess with defaults succeeds on every model", "bench_preprocess", r"models that fail", 0, 1, ""),
    ("symbolic shape inference: a twentieth of the reference's time", "bench_preprocess", r"symbolic inference", None, 5, ""),
    ("nodes: every command linear up to 100,000", "bench_growth", r"^nodes: .*exponent", None, 10, ""),
    ("samples: memory flat from 8 to 4,096", "bench_growth", r"^samples: .*memory", None, 2, ""),
    ("weights: memory flat to 3.2 GB", "bench_growth", r"^weights: .*memory", None, 3, ""),
    ("2 cores: calibration 1.7 times as fast as on one", "bench_growth", r"^cores: 2 over 1", 1 / 1.7, 3, "needs two cores"),
    ("ranks: the same bytes with 1, 2 and 4", "bench_growth", r"^ranks: .*other bytes", 0, 2, "needs onq-mpi and mpirun"),
    ("50,000 unused initializers cost next to nothing", "bench_growth", r"^50,000 unused", None, 1, ""),
]


def judge(goal, rows):
    """The verdict of one goal: met, not met, not concluded or not measured; and the worst value."""
    what, bench, pattern, most, least, note = goal
    mine = [r for r in rows if r["bench"] == bench and re.search(pattern, r["what"])]
    worst = max(mine, key=lambda r: r["value"], default=None)
    ends = {verdict(r["value"], r["budget"] if most is None else most, r["unit"] in STILL, r["noise"]) for r in mine}
    if "not met" in ends:
        said = "not met"
    elif len(mine) < least:
        said = "not measured"
    else:
        said = "not concluded" if "not concluded" in ends else "met"
    return {"goal": what, "verdict": said, "rows": len(mine), "worst": worst and worst["value"], "unit": worst and worst["unit"],
            "most": most if most is not None or worst is None else worst["budget"], "note": note if said == "not measured" else ""}


def judge_all(rows):
    return [judge(g, rows) for g in GOALS]
