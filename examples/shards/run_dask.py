#!/usr/bin/env python3
"""One calibration on a Dask cluster: a task for each shard, merged at the end with `onq calibrate --merge`.

Usage: run_dask.py MODEL SAMPLES RANGES [SCHEDULER]

Without the address of a scheduler a small cluster is started on this machine. Workers need the program `onq` on their
path, and must see the model and the samples under the same names; what they find comes back as bytes, so that no folder
for results is shared. The ranges equal those of one `onq calibrate` over all samples, whatever the number of shards.
"""
import subprocess
import sys
import tempfile
from pathlib import Path

from distributed import Client, LocalCluster

SHARDS = 4
METHOD = ["--method", "entropy"]


def onq(*words):
    done = subprocess.run(["onq", "calibrate", *map(str, words), "--quiet"], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())


def shard(model, samples, number, ranges):
    """A part as bytes: of the first pass, or, given the parts of that, of the second. Runs on a worker."""
    with tempfile.TemporaryDirectory() as folder:
        parts = [Path(folder, f"range.{i}") for i in range(len(ranges))]
        for path, part in zip(parts, ranges):
            path.write_bytes(part)
        step = ["--ranges", *parts] if parts else ["--range_pass"]
        out = Path(folder, "part")
        onq("-i", model, "--data", samples, *METHOD, "--shard", f"{number}/{SHARDS}", "-o", out, *step)
        return out.read_bytes()


def calibrate(client, model, samples, output):
    numbers = range(1, SHARDS + 1)
    first = client.gather([client.submit(shard, model, samples, i, []) for i in numbers])
    second = client.gather([client.submit(shard, model, samples, i, first) for i in numbers])
    with tempfile.TemporaryDirectory() as folder:
        parts = [Path(folder, f"part.{i}") for i in numbers]
        for path, part in zip(parts, second):
            path.write_bytes(part)
        onq("--merge", *parts, "-o", output)


if __name__ == "__main__":
    model, samples, output, *scheduler = sys.argv[1:]
    # One thread for each worker process: onq uses the cores itself.
    cluster = None if scheduler else LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with Client(scheduler[0] if scheduler else cluster) as client:
        calibrate(client, Path(model).resolve(), Path(samples).resolve(), output)
        print(f"{output}: {SHARDS} shards on {len(client.scheduler_info()['workers'])} workers")
    if cluster is not None:
        cluster.close()
