"""measure.py - what the benchmarks share: runs of commands with their cost, the noise of the machine, fits of growth, budgets.

A row is one budget: what was measured, the value, the most it may be. Rows, costs and fits go to the file that
ONQ_BENCH_ROWS names, a line of JSON each; report.py makes the results, the goals and the charts of them.

Noise: a spin of known work is timed on all cores before, between and after the rows. Where it took much longer than at best,
others had the cores: a time that breaks its budget then is *not concluded* rather than broken. Memory is not affected.
"""
import hashlib
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time

# Where things are. run.sh says so; the defaults are for a benchmark that is run by itself.
ROOT = pathlib.Path(os.environ.get("ONQ_ROOT", pathlib.Path(__file__).resolve().parents[1])).resolve()
BUILD = pathlib.Path(os.environ.get("ONQ_BUILD", ROOT / "build")).resolve()
ONQ = os.environ.get("ONQ", str(BUILD / "onq"))
PYTHON = str(BUILD / "venv" / "bin" / "python")
MODELS = pathlib.Path(os.environ.get("ONQ_MODELS", ROOT.parent / "shared" / "models"))

# A spin this much slower than the fastest of the run: too noisy to conclude.
NOISE_LIMIT = 0.25
# Units that say nothing about time.
STILL = {"MiB", "MB", "bytes", "", "%", "dB", "count", "of memory"}


class Cost:
    def __init__(self, wall, cpu, peak, status):
        self.wall, self.cpu, self.peak, self.status = wall, cpu, peak, status

    def __str__(self):
        return f"{self.wall:8.2f} s wall {self.cpu:8.2f} s CPU {self.peak:8.0f} MiB"


LAUNCH = BUILD / "bench" / "launch"


def once(words, env=None):
    """One run in a process of its own; its output is thrown away. launch.c says why it is not started from here."""
    if not LAUNCH.exists():
        raise SystemExit(f"{LAUNCH} is not built: make bench builds it")
    with tempfile.NamedTemporaryFile("r", prefix="onq-cost.") as told:
        subprocess.run([LAUNCH, told.name, *map(str, words)], env={**os.environ, **(env or {})}, check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wall, cpu, peak, status = told.read().split()
    return Cost(float(wall), float(cpu), int(peak) / 1024, int(status))


def median(costs):
    """The run of median wall time, with the median of CPU time and the largest memory."""
    costs = sorted(costs, key=lambda c: c.wall)
    middle = costs[len(costs) // 2]
    return Cost(middle.wall, statistics.median(c.cpu for c in costs), max(c.peak for c in costs),
                next((c.status for c in costs if c.status != 0), 0))


def best(costs):
    """The least wall time and the least CPU time of all runs, with the largest memory: what others took of the machine is left out."""
    return Cost(min(c.wall for c in costs), min(c.cpu for c in costs), max(c.peak for c in costs), median(costs).status)


def rounds(jobs, n, before=None, pick=median):
    """Runs jobs (name -> words) in turn, n times over, so that each sees the same machine; the median by wall time."""
    seen = {name: [] for name in jobs}
    for _ in range(n):
        for name, words in jobs.items():
            if before:
                before()
            seen[name].append(once(words))
    for name, costs in seen.items():
        if any(c.status != 0 for c in costs):
            print(f"  {name}: failed with {[c.status for c in costs]}")
    return {name: pick(costs) for name, costs in seen.items()}


def samples_of(folder, n, out):
    """n samples: those of the folder again and again."""
    sets = sorted(folder.glob("test_data_set_*"), key=lambda p: int(p.name.rsplit("_", 1)[1]))
    out.mkdir()
    for i in range(n):
        (out / f"test_data_set_{i}").symlink_to(sets[i % len(sets)].resolve())
    return out


# ---- growth ----

def exponent(sizes, costs):
    """The slope of log(cost) over log(size) by least squares: 1 is linear, 0 is flat."""
    if len(sizes) != len(costs) or len(set(sizes)) < 2:
        raise ValueError("a fit needs two sizes or more, and a cost for each")
    x = [math.log(s) for s in sizes]
    y = [math.log(max(c, 1e-9)) for c in costs]
    mx, my = statistics.fmean(x), statistics.fmean(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y)) / sum((a - mx) ** 2 for a in x)


# ---- noise ----

def spin_once(block=bytes(1 << 20), times=8):
    """Seconds that each core takes for the same work, all cores at once (hashing lets go of the interpreter's lock)."""
    def work():
        for _ in range(times):
            hashlib.sha256(block).digest()
    threads = [threading.Thread(target=work) for _ in range(len(os.sched_getaffinity(0)))]
    begin = time.perf_counter()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return time.perf_counter() - begin


class Noise:
    """Readings of the spin. The fastest is kept in a file, so that all benchmarks of a run are measured by one."""

    def __init__(self, spin=spin_once, path=None, limit=NOISE_LIMIT):
        self.spin, self.path, self.limit = spin, path, limit
        self.best = math.inf
        if path is not None and path.exists():
            self.best = float(path.read_text() or "inf")
        self.last = self.read()

    def read(self):
        """One reading: the median of three."""
        self.last = statistics.median(self.spin() for _ in range(3))
        if self.last < self.best:
            self.best = self.last
            if self.path is not None:
                self.path.write_text(repr(self.best))
        return self.last

    def around(self):
        """How much slower than at best the spin was before or after what was just measured: 0 is a quiet machine."""
        before = self.last
        return max(before, self.read()) / self.best - 1

    def is_too_much(self, noise):
        return noise > self.limit


def verdict(value, most, is_still, noise, limit=NOISE_LIMIT):
    """What a row says. What is met in spite of noise is met."""
    if value <= most:
        return "met"
    return "not concluded" if not is_still and noise > limit else "not met"


# ---- rows ----

def put(kind, **what):
    """A line for report.py."""
    path = os.environ.get("ONQ_BENCH_ROWS")
    if path:
        with open(path, "a") as f:
            f.write(json.dumps({"kind": kind, "bench": pathlib.Path(sys.argv[0]).stem, **what}) + "\n")


def figure(job, tool, cost):
    """What a job cost with a tool ("onq", "reference", "floor"), for tables and charts."""
    put("figure", job=job, tool=tool, wall=cost.wall, cpu=cost.cpu, peak=cost.peak, status=cost.status)


def spin_file():
    rows = os.environ.get("ONQ_BENCH_ROWS")
    return pathlib.Path(rows).with_name("spin") if rows else None


MARKS = {"met": "ok    ", "not met": "BROKEN", "not concluded": "NOISY "}


class Budgets:
    """Prints each budget; close() exits with 1 when one is broken."""

    def __init__(self):
        self.broken = 0
        self.open = 0
        self.noise = Noise(path=spin_file())

    def check(self, what, value, most, unit):
        noise = self.noise.around()
        said = verdict(value, most, unit in STILL, noise)
        self.broken += said == "not met"
        self.open += said == "not concluded"
        late = f"; too noisy to conclude: a spin took {100 * noise:.0f} % longer than at best" if said == "not concluded" else ""
        print(f"  {MARKS[said]} {what:46s} {value:9.3f} {unit}, budget {most:.3f}{late}", flush=True)
        put("row", what=what, value=value, budget=most, unit=unit, verdict=said, noise=round(noise, 3))

    def close(self):
        sys.exit(1 if self.broken else 0)
