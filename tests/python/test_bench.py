"""test_bench.py - the logic of the benchmarks: fits of growth, noise, goals, charts, the report."""
import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import chart  # noqa: E402
import goals  # noqa: E402
import measure  # noqa: E402


def test_exponent_of_growth():
    sizes = [1000, 10000, 100000]
    assert measure.exponent(sizes, [s * 3e-6 for s in sizes]) == pytest.approx(1)
    assert measure.exponent(sizes, [s**2 * 1e-9 for s in sizes]) == pytest.approx(2)
    assert measure.exponent(sizes, [40, 40, 40]) == pytest.approx(0)
    with pytest.raises(ValueError):
        measure.exponent([5], [1])
    with pytest.raises(ValueError):
        measure.exponent([1, 2], [1])


def readings(*times):
    """A machine whose spins take these times, each reading three of them."""
    left = [t for t in times for _ in range(3)]
    return lambda: left.pop(0)


def test_noise_is_what_the_spin_lost(tmp_path):
    noise = measure.Noise(spin=readings(1.0, 1.0, 1.6, 1.0, 1.0), path=tmp_path / "spin")
    assert noise.around() == pytest.approx(0)
    assert noise.around() == pytest.approx(0.6)  # after the row
    assert noise.around() == pytest.approx(0.6)  # before it
    assert noise.around() == pytest.approx(0)
    # The next benchmark of the run is measured by the same best.
    later = measure.Noise(spin=readings(1.5, 1.5), path=tmp_path / "spin")
    assert later.around() == pytest.approx(0.5)


def test_verdict():
    assert measure.verdict(1.0, 2.0, False, 9.0) == "met"
    assert measure.verdict(3.0, 2.0, False, 0.0) == "not met"
    assert measure.verdict(3.0, 2.0, False, 0.5) == "not concluded"
    assert measure.verdict(300, 200, True, 0.5) == "not met"  # memory does not depend on who has the cores


def row(bench, what, value, budget=1.0, unit="x", noise=0.0):
    return {"bench": bench, "what": what, "value": value, "budget": budget, "unit": unit, "noise": noise,
            "verdict": measure.verdict(value, budget, unit in measure.STILL, noise)}


def test_goals():
    goal = ("memory", "bench_a", r"^peak", 300, 2, "why not")
    assert goals.judge(goal, [])["verdict"] == "not measured"
    assert goals.judge(goal, [])["note"] == "why not"
    one = row("bench_a", "peak of one", 100, 400, "MiB")
    assert goals.judge(goal, [one])["verdict"] == "not measured"  # two rows are asked for
    assert goals.judge(goal, [one, one])["verdict"] == "met"
    # The goal is stricter than the row's own budget.
    assert goals.judge(goal, [one, row("bench_a", "peak", 350, 400, "MiB")])["verdict"] == "not met"
    late = ("time", "bench_a", r"time", 1, 1, "")
    assert goals.judge(late, [row("bench_a", "time", 2, 1, "x", 0.9)])["verdict"] == "not concluded"
    assert goals.judge(late, [row("bench_b", "time", 2)])["verdict"] == "not measured"


def test_every_goal_is_of_a_benchmark():
    for _, bench, *_ in goals.GOALS:
        assert (ROOT / "bench" / f"{bench}.py").exists()


def test_charts_are_svg_alone():
    bars = chart.bars("a < b", "where", [("job & more", 0.03, 12.0), ("alone", 2.0, None)])
    lines = chart.lines("growth", "where", {"dynamic": ([1000, 10000], [0.01, 0.1]), "the floor": ([1000, 10000], [0.1, 1])},
                        "nodes")
    for text in (bars, lines):
        xml.etree.ElementTree.fromstring(text)
        assert "prefers-color-scheme: dark" in text
        assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert "job &amp; more" in bars and "a &lt; b" in bars
    with pytest.raises(ValueError):
        chart.bars("none", "", [])


def test_report(tmp_path):
    rows = tmp_path / "rows.jsonl"
    figure = {"kind": "figure", "bench": "bench_dynamic", "job": "dynamic, 0.8 GB", "wall": 1, "peak": 64, "status": 0}
    fit = {"kind": "fit", "bench": "bench_growth", "what": "nodes: dynamic", "sizes": [10, 100], "costs": [0.1, 1], "unit": "s",
           "exponent": 1, "exponent_end": 1}
    lines = [{"kind": "row", **row("bench_growth", "onq --version: memory", 2.6, 5, "MiB")},
             {"kind": "row", **row("bench_growth", "onq --version: time", 0.009, 0.003, "s", 0.9)},
             {**figure, "tool": "onq", "cpu": 0.5}, {**figure, "tool": "reference", "cpu": 12.5, "peak": 2440}, fit]
    rows.write_text("".join(json.dumps(line) + "\n" for line in lines))
    run = subprocess.run([sys.executable, ROOT / "bench" / "report.py", rows], capture_output=True, text=True, check=True)
    got = json.loads((tmp_path / "results.json").read_text())
    said = {g["goal"]: g["verdict"] for g in got["goals"]}
    assert said["start: under 5 MiB"] == "met"
    assert said["start: under 3 ms"] == "not concluded"
    assert said["debug: memory flat in samples"] == "not measured"
    assert "1 too noisy to conclude" in run.stdout
    assert {"cpu", "cores"} <= set(got["machine"]) and {"onq", "onnxruntime"} <= set(got["versions"])
    assert "| dynamic, 0.8 GB | 0.5 s, 64 MiB | 12 s, 2.4 GiB |" in (tmp_path / "figures.md").read_text()
    for name in ("speed.svg", "growth.svg"):
        xml.etree.ElementTree.parse(tmp_path / name)
