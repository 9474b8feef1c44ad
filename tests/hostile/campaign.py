#!/usr/bin/env python3
"""campaign.py - hostile input against every command: classes x commands, one table, and every fault that was found.

    campaign.py [--seed N] [--each N] [--jobs N] [--class TEXT] [--command TEXT] [--case TEXT] [--keep FOLDER]

A seed decides everything. --each N runs N cases of each class with each command (what `make test` does, with the cases that found
something once and without heavy ones); without it all of them run. $ONQ is the program; run it with the sanitizer build. --keep leaves the folder of each case that
failed. Exit status 1 if anything was wrong.
"""
import argparse
import collections
import multiprocessing
import os
import pathlib
import random
import shutil
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "parity"))
sys.path.insert(0, str(HERE))
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import bytes_cases  # noqa: E402,F401 - they register themselves
import cases  # noqa: E402
import commands  # noqa: E402
import file_cases  # noqa: E402,F401
import gguf_cases  # noqa: E402,F401
import graph_cases  # noqa: E402,F401
import judge  # noqa: E402


def choose(found, seed, each, args):
    """The pairs of case and command to run, cases in order."""
    cells = collections.defaultdict(list)
    for index, case in enumerate(found):
        for name, row in commands.COMMANDS.items():
            if judge.WINDOWS and (case.cls == "samples exec" or (case.cls, case.name) == ("outputs", "link-to-missing-folder")):
                continue  # a program for the shell of this system (check-windows.sh has others); wine sees no such link
            if commands.takes(row, case) and args.command in name and getattr(args, "class") in case.cls and args.case in case.name:
                cells[case.cls, name].append(index)
    chosen = set()
    for (cls, name), indices in cells.items():
        r = random.Random(f"{seed}:{cls}:{name}")
        light = [i for i in indices if not found[i].heavy]  # a few seconds each with a sanitizer: where all run
        some = indices if each is None else r.sample(light, min(each, len(light)))
        chosen |= {(i, name) for i in some}
        chosen |= {(i, name) for i in indices if name in found[i].always}
    return sorted(chosen)


def work(number, seed, folder, keep, todo, done):
    """A process: takes pairs until there are none. It says which before it begins, for the runtime may take it along."""
    found = cases.everything(seed)
    here = pathlib.Path(folder) / str(number)
    here.mkdir()
    one = judge.Judge(here)
    while (pair := todo.get()) is not None:
        index, name = pair
        done.put(("begin", number, pair))
        try:
            faults, ended = one.wrong(found[index], name, old_output=(index + len(name)) % 2 == 0)
        except Exception as e:  # noqa: BLE001 - a fault of the campaign itself: shown as one
            faults, ended = [f"campaign: {type(e).__name__}: {e}"], None
        if faults and keep:
            shutil.copytree(here / "work", pathlib.Path(keep) / f"{found[index].cls}-{found[index].name}-{name}".replace("/", "_")[:120], symlinks=True,
                            dirs_exist_ok=True, ignore=lambda top, names: [n for n in names if not (pathlib.Path(top) / n).is_file()
                                                                          and not (pathlib.Path(top) / n).is_dir()])
        done.put(("end", number, (pair, faults, ended and (ended.status, ended.cpu, ended.memory))))
    done.put(("over", number, None))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--seed", type=int, default=int(os.environ.get("ONQ_HOSTILE_SEED", "1")))
    p.add_argument("--each", type=int, default=int(os.environ["ONQ_HOSTILE_EACH"]) if os.environ.get("ONQ_HOSTILE_EACH") else None)
    p.add_argument("--jobs", type=int, default=int(os.environ.get("JOBS", os.cpu_count() or 1)))
    p.add_argument("--class", default="")
    p.add_argument("--command", default="")
    p.add_argument("--case", default="")
    p.add_argument("--keep")
    args = p.parse_args()
    found = cases.everything(args.seed)
    pairs = choose(found, args.seed, args.each, args)
    begun = time.time()
    folder = tempfile.mkdtemp(prefix="onq-hostile-")
    failures, ends = [], {}
    try:
        for pair, faults, how in results(args, folder, pairs):
            ends[pair] = how
            if faults:
                failures.append((pair, faults))
                case = found[pair[0]]
                print(f"FAILED {case.cls}: {case.name} / {pair[1]}", *(f"    {f}" for f in faults), sep="\n", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table(found, ends, failures)
    known = [h for h in ends.values() if h is not None]
    counts = collections.Counter(h[0] for h in known)
    print(f"\nseed {args.seed}: {len({i for i, _ in pairs})} cases, {len(pairs)} runs in {time.time() - begun:.0f} s: "
          + ", ".join(f"{n} ended with {s}" for s, n in sorted(counts.items()))
          + f"; most CPU {max((h[1] for h in known), default=0):.1f} s, most memory {max((h[2] for h in known), default=0) >> 20} MiB; "
          + f"{len(failures)} failed")
    sys.exit(1 if failures else 0)


def results(args, folder, pairs):
    """Runs the pairs on several processes; gives (pair, faults, end) as they come. A process that dies is a fault of its pair."""
    context = multiprocessing.get_context("spawn")
    todo, done = context.Queue(), context.Queue()
    for pair in pairs:
        todo.put(pair)
    workers, busy, number = {}, {}, 0

    def start():
        nonlocal number
        workers[number] = context.Process(target=work, args=(number, args.seed, folder, args.keep, todo, done))
        workers[number].start()
        todo.put(None)
        number += 1

    for _ in range(max(1, min(args.jobs, len(pairs)))):
        start()
    while workers:
        try:
            kind, who, what = done.get(timeout=1)
        except Exception:  # noqa: BLE001 - queue.Empty
            for who, process in list(workers.items()):
                if not process.is_alive() and process.exitcode != 0:
                    del workers[who]
                    if who in busy:
                        yield busy.pop(who), [f"the runtime took the judge along (exit status {process.exitcode})"], None
                    start()
            continue
        if kind == "begin":
            busy[who] = what
        elif kind == "end":
            busy.pop(who, None)
            yield what
        else:
            workers.pop(who).join()


def table(found, ends, failures):
    """Runs by class and command."""
    names = [n for n in commands.COMMANDS if any(n == pair[1] for pair in ends)]
    runs = collections.Counter((found[i].cls, name) for i, name in ends)
    bad = collections.Counter((found[i].cls, name) for (i, name), _ in failures)
    classes = list(dict.fromkeys(c.cls for c in found if any(runs[c.cls, n] for n in names)))
    width = max([len(n) for n in names], default=0)
    print("\n" + " " * width + "".join(f" {c:>13}" for c in classes))
    for name in names:
        print(f"{name:{width}}" + "".join(f" {str(runs[c, name] or '.') + (f' ({bad[c, name]}!)' if bad[c, name] else ''):>13}" for c in classes))


if __name__ == "__main__":
    main()
