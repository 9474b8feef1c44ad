"""report.py ROWS [--docs] - makes of the lines that a run of the benchmarks left: results.json, the goals, the charts, the table.

Beside ROWS: results.json (machine, versions, every row with its budget and verdict, costs, fits, goals), speed.svg, growth.svg,
figures.md. With --docs the charts go to docs/images and the table into README.md too; `make bench` does not do that, so that
a noisy run changes nothing in the tree.
"""
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

import chart
from goals import judge_all
from measure import ONQ, ROOT


# The jobs of the table and the chart, in order, and how they are labelled; "onq" and "reference" are the names of tools in
# figure lines.
JOBS = [
    ("static, ranges given: efficientnet_lite0", "static, ranges given: efficientnet_lite0"),
    ("static, ranges given: minilm", "static, ranges given: minilm"),
    ("static from samples: efficientnet_lite0", "static from samples: efficientnet_lite0"),
    ("static from samples: minilm", "static from samples: minilm"),
    ("calibrate, entropy, 128 samples: ppocr_cls", "entropy, 128 samples: ppocr_cls"),
    ("dynamic, 0.8 GB", "dynamic, 0.8 GB"),
    ("dynamic, 3.2 GB", "dynamic, 3.2 GB"),
    ("nbits, 0.8 GB", "4 bits, 0.8 GB"),
    ("nbits, 3.2 GB", "4 bits, 3.2 GB"),
    ("bnb4, 0.8 GB", "bnb4, 0.8 GB"),
    ("debug: efficientnet_lite0", "debug: efficientnet_lite0"),
]
BEGIN, END = "<!-- figures: made by bench/report.py -->", "<!-- figures end -->"


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def first_match(path, pattern):
    try:
        found = re.search(pattern, pathlib.Path(path).read_text(), re.M)
    except OSError:
        found = None
    return found.group(1).strip() if found else "unknown"


def machine():
    return {"cpu": first_match("/proc/cpuinfo", r"^model name\s*:\s*(.*)$"), "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "kernel": platform.release(), "arch": platform.machine(), "load": os.getloadavg()[0]}


def versions():
    found = {"python": platform.python_version()}
    for name in ("onnxruntime", "onnx", "numpy"):
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    try:
        found["onq"] = subprocess.run([ONQ, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        found["onq"] = None
    return found


def pairs(lines):
    """job -> tool -> cost, the last of each."""
    found = {}
    for f in lines:
        if f["kind"] == "figure" and f["status"] == 0:
            found.setdefault(f["job"], {})[f["tool"]] = f
    return {job: tools for job, tools in found.items() if "onq" in tools}


def mib(x):
    return f"{x / 1024:.1f} GiB" if x >= 1024 else f"{x:.0f} MiB"


def table(found):
    """The table of README, in Markdown."""
    out = ["| job | onq | reference | CPU time | memory |", "|---|---|---|---|---|"]
    for job, label in JOBS:
        if job not in found:
            continue
        mine, theirs = found[job]["onq"], found[job].get("reference")
        cells = [f"{chart.number(c['cpu'])} s, {mib(c['peak'])}" if c else "fails" for c in (mine, theirs)]
        less = [f"1/{chart.number(theirs[k] / mine[k])}" if theirs and mine[k] else "" for k in ("cpu", "peak")]
        out.append("| " + " | ".join([label, *cells, *less]) + " |")
    return "\n".join(out) + "\n"


def charts(lines, found, where):
    """The charts there are figures for: name -> SVG."""
    out = {}
    rows = [(label, found[job]["onq"]["cpu"], found[job].get("reference", {}).get("cpu")) for job, label in JOBS if job in found]
    if rows:
        out["speed.svg"] = chart.bars("CPU seconds, onq and the reference", where, rows)
    series = {f["what"].removeprefix("nodes: "): (f["sizes"], f["costs"])
              for f in lines if f["kind"] == "fit" and f["what"].startswith("nodes: ")}
    if series:
        out["growth.svg"] = chart.lines("CPU seconds over the number of nodes", where, series, "nodes")
    return out


def print_goals(goals):
    print("\n== goals")
    for g in goals:
        worst = "" if g["worst"] is None else f"{g['worst']:.3g} {g['unit']} at worst, goal {g['most']:.3g}"
        print(f"  {g['verdict']:14s} {g['goal']:78s} {worst}{g['note']}")
    count = {v: sum(g["verdict"] == v for g in goals) for v in ("met", "not met", "not concluded", "not measured")}
    print("  " + ", ".join(f"{n} {v}" for v, n in count.items()))


def put_in_readme(text):
    path = ROOT / "README.md"
    page = path.read_text()
    if BEGIN not in page or END not in page:
        raise SystemExit(f"README.md has no place for the table: {BEGIN}")
    head, rest = page.split(BEGIN, 1)
    path.write_text(f"{head}{BEGIN}\n{text}{END}{rest.split(END, 1)[1]}")


def main():
    rows_file = pathlib.Path(sys.argv[1])
    lines = read(rows_file)
    rows = [r for r in lines if r["kind"] == "row"]
    goals = judge_all(rows)
    here = machine()
    noisy = sum(r["verdict"] == "not concluded" for r in rows)
    where = f"{here['cpu']}, {here['cores']} cores; less is better"
    found = pairs(lines)
    made = charts(lines, found, where)
    made["figures.md"] = table(found)
    made["results.json"] = json.dumps(
        {"machine": here, "versions": versions(), "noise": {"rows_not_concluded": noisy, "most": max((r["noise"] for r in rows), default=0)},
         "rows": rows, "figures": [f for f in lines if f["kind"] == "figure"], "fits": [f for f in lines if f["kind"] == "fit"],
         "parts": [f for f in lines if f["kind"] == "parts"], "goals": goals}, indent=1)
    for name, text in made.items():
        rows_file.with_name(name).write_text(text)
    if "--docs" in sys.argv:
        images = ROOT / "docs" / "images"
        images.mkdir(exist_ok=True)
        for name, text in made.items():
            if name.endswith(".svg"):
                (images / name).write_text(text)
        put_in_readme(made["figures.md"])
    print_goals(goals)
    broken = [r for r in rows if r["verdict"] == "not met"]
    print(f"\n{len(rows)} rows: {len(rows) - len(broken) - noisy} within budget, {len(broken)} broken, {noisy} too noisy to conclude")
    for r in broken:
        print(f"  broken: {r['bench']}: {r['what']}: {r['value']:.3f} {r['unit']}, budget {r['budget']:.3f}")
    print(f"written: {', '.join(str(rows_file.with_name(n)) for n in made)}")


if __name__ == "__main__":
    main()
