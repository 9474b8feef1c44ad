"""measure.py - runs commands and reports wall seconds, CPU seconds and peak memory of each; and keeps the budgets."""
import os
import statistics
import sys
import time


class Cost:
    def __init__(self, wall, cpu, peak, status):
        self.wall, self.cpu, self.peak, self.status = wall, cpu, peak, status

    def __str__(self):
        return f"{self.wall:8.2f} s wall {self.cpu:8.2f} s CPU {self.peak:8.0f} MiB"


def once(words, env=None):
    """One run in a child of its own; its output is thrown away."""
    begin = time.monotonic()
    pid = os.fork()
    if pid == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        try:
            os.execvpe(words[0], [str(w) for w in words], {**os.environ, **(env or {})})
        except OSError:
            os._exit(127)
    _, status, use = os.wait4(pid, 0)
    return Cost(time.monotonic() - begin, use.ru_utime + use.ru_stime, use.ru_maxrss / 1024,
                os.waitstatus_to_exitcode(status))


def rounds(jobs, n, before=None):
    """Runs jobs (name -> words) in turn, n times over, so that each sees the same machine; the median by wall time."""
    seen = {name: [] for name in jobs}
    for _ in range(n):
        for name, words in jobs.items():
            if before:
                before()
            seen[name].append(once(words))
    out = {}
    for name, costs in seen.items():
        if any(c.status != 0 for c in costs):
            print(f"  {name}: failed with {[c.status for c in costs]}")
        costs.sort(key=lambda c: c.wall)
        out[name] = costs[len(costs) // 2]
        out[name].cpu = statistics.median(c.cpu for c in costs)
        out[name].peak = max(c.peak for c in costs)
    return out


class Budgets:
    """Prints each budget; close() exits with 1 when one is broken."""

    def __init__(self):
        self.broken = 0

    def check(self, what, value, most, unit):
        ok = value <= most
        self.broken += not ok
        print(f"  {'ok    ' if ok else 'BROKEN'} {what:46s} {value:9.3f} {unit}, budget {most:.3f}")

    def close(self):
        sys.exit(1 if self.broken else 0)
