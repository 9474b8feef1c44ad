"""bench_growth.py [PART...] - how cost grows: with nodes, samples, weights, cores and ranks; and what a start costs.

Each growth is a fit: the exponent of cost over size, 1 for linear, 0 for flat. The budget is on the exponent.

Parts: start, nodes, samples, weights, cores, ranks, shards. All of them take about five minutes on a quiet machine.

  nodes    chains of MatMul, Add and Relu of 1,000, 10,000 and 100,000 nodes with 64 weights, on every command; the exponent
           is that of CPU time between the two largest, for below that the start of a process and of the runtime counts. A
           table of names that no longer fits the caches makes linear work look like 1.1 to 1.2, hence the budget. What
           runs no model runs with --no_verify: verification is the runtime's session, which is measured beside it ("bare").
  samples  calibration of the bundled model with 8 to 4,096 samples: memory.
  weights  MatMuls of 4096 x 4096, 0.2 to 3.2 GB: memory.
  cores    calibration on one core and on all.
  ranks    onq-mpi with 1, 2 and 4 ranks. They share the cores of this machine: no more speed than cores is to be had.
  shards   parts of --shard: their bytes and the time --merge takes, over their number.
"""
import os
import shutil
import statistics
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from big_models import SIDE
from measure import BUILD, MODELS, ONQ, ROOT, Budgets, exponent, median, once, put, samples_of

DIGITS = ROOT / "examples" / "digits_cnn"
FOLDER = BUILD / "bench" / "growth"
NODES = tuple(map(int, os.environ.get("ONQ_GROWTH_NODES", "1000,10000,100000").split(",")))
SAMPLES = (8, 64, 512, 4096)
MATMULS = (3, 12, 48)  # 67 MB each
LINEAR = 1.2
FLAT = 0.05


def run(*words, env=None):
    cost = once([ONQ, *words, "--quiet"], env)
    if cost.status != 0:
        raise SystemExit(f"failed with {cost.status}: onq {' '.join(map(str, words))}")
    return cost


def fit(budgets, what, sizes, costs, most, unit, last=None):
    """Prints the costs and the exponent over all sizes, asserts that of the `last` sizes."""
    last = last or len(sizes)
    whole, end = exponent(sizes, costs), exponent(sizes[-last:], costs[-last:])
    shown = ", ".join(f"{c:.3g}" for c in costs)
    print(f"  {what:34s} {shown} {unit}; exponent {whole:.2f}")
    put("fit", what=what, sizes=sizes, costs=costs, unit=unit, exponent=whole, exponent_end=end)
    budgets.check(f"{what}, exponent", end, most, "" if unit == "MiB" else "exponent")


# ---- nodes ----

def chain(n, path, shared=64, side=8):
    """n nodes in a row. Weights are shared: the runtime's time for initializers grows with their square."""
    rng = np.random.default_rng(0)
    inits, nodes, last = [], [], "x"
    for i in range(shared):
        inits.append(numpy_helper.from_array((rng.standard_normal((side, side)) * 0.35).astype(np.float32), f"w{i}"))
        inits.append(numpy_helper.from_array((rng.standard_normal(side) * 0.1).astype(np.float32), f"b{i}"))
    for i in range(n // 3):
        nodes.append(helper.make_node("MatMul", [last, f"w{i % shared}"], [f"m{i}"], name=f"mm{i}"))
        nodes.append(helper.make_node("Add", [f"m{i}", f"b{i % shared}"], [f"a{i}"], name=f"ad{i}"))
        nodes.append(helper.make_node("Relu", [f"a{i}"], [f"r{i}"], name=f"re{i}"))
        last = f"r{i}"
    graph = helper.make_graph(nodes, "chain", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, side])],
                              [helper.make_tensor_value_info(last, TensorProto.FLOAT, [1, side])], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def node_jobs(n):
    """Every command, in an order that has the later ones' inputs made by the earlier."""
    model, out = chain(n, FOLDER / f"chain{n}.onnx"), FOLDER / f"out{n}.onnx"
    qdq, cache, prepared = (FOLDER / f"{kind}{n}" for kind in ("qdq.onnx", "cache.json", "prepared.onnx"))
    io = ["-i", model, "-o", out]
    alone = [*io, "--no_verify"]
    given = ["--calibration_cache", cache, "--no_verify"]
    data = ["--data", "random:2:1"]
    return {
        "bare inference (the floor)": ["run", model, *data, "--optimization", "none"],
        "calibrate": ["calibrate", "-i", model, "-o", cache, *data],
        "static, ranges given": ["static", "-i", model, "-o", qdq, *given],
        "static from samples": ["static", *alone, *data],
        "static, qoperator": ["static", *io, "--quant_format", "qoperator", *given],
        "dynamic": ["dynamic", *alone],
        "preprocess, builtin": ["preprocess", "-i", model, "-o", prepared, "--optimizer", "builtin"],
        "preprocess, shapes alone": ["preprocess", *io, "--skip_optimization"],
        "nbits": ["nbits", *alone, "--block_size", "16"],
        "bnb4": ["bnb4", *alone],
        "qat": ["qat", "-i", qdq, "-o", out, "--no_verify"],
        "legacy": ["legacy", *alone],
        "inspect": ["inspect", qdq],
        "diff": ["diff", model, model],
        "diff --ignore names": ["diff", model, model, "--ignore", "names"],
        "debug, weights": ["debug", "--float_model", model, "--qdq_model", qdq],
    }


def nodes(budgets):
    costs = {}
    for n in NODES:
        # The small ones are over before a process has started well: the least of some.
        for name, words in node_jobs(n).items():
            seen = [run(*words) for _ in range({NODES[0]: 5, NODES[1]: 3}.get(n, 1))]
            costs.setdefault(name, []).append(min(c.cpu for c in seen))
    print("nodes: CPU seconds of " + ", ".join(f"{n:,}" for n in NODES))
    for name, found in costs.items():
        if "floor" in name:
            print(f"  nodes: {name:27s} " + ", ".join(f"{c:.3g}" for c in found) +
                  f" s; exponent {exponent(NODES[-2:], found[-2:]):.2f}, of the runtime")
            put("fit", what=f"nodes: {name}", sizes=NODES, costs=found, unit="s", exponent=exponent(NODES, found),
                exponent_end=exponent(NODES[-2:], found[-2:]))
            continue
        fit(budgets, f"nodes: {name}", NODES, found, LINEAR, "s", last=2)
    bare = costs["bare inference (the floor)"][-1]
    print(f"  calibrating {NODES[-1]:,} nodes takes {costs['calibrate'][-1] / bare:.2f} times bare inference, two samples each")


# ---- start ----

def start(budgets):
    seen = sorted((once([ONQ, "--version"]) for _ in range(51)), key=lambda c: c.wall)
    budgets.check("onq --version: time", seen[len(seen) // 2].wall, 0.003, "s")
    budgets.check("onq --version: memory", max(c.peak for c in seen), 5, "MiB")
    plain, many = FOLDER / "plain.onnx", FOLDER / "many.onnx"
    chain(300, plain)
    model = onnx.load(plain)
    for i in range(50000):
        model.graph.initializer.append(numpy_helper.from_array(np.full(4, i, np.float32), f"unused{i}"))
    onnx.save(model, many)
    data = ["--data", "random:2:1"]
    cost = {p: median([run("static", "-i", p, "-o", FOLDER / "out.onnx", *data) for _ in range(3)]) for p in (plain, many)}
    print(f"  static of 300 nodes {cost[plain].cpu:.2f} s CPU, with 50,000 unused initializers {cost[many].cpu:.2f} s CPU")
    budgets.check("50,000 unused initializers: static takes more", cost[many].cpu - cost[plain].cpu, 1.0, "s")


# ---- samples ----

def samples(budgets):
    for method in ("minmax", "entropy", "percentile", "distribution"):
        costs = [run("calibrate", "-i", DIGITS / "model.onnx", "--data", f"random:{n}:1", "-o", FOLDER / "out.json",
                     "--method", method) for n in SAMPLES]
        what = f"samples: {method}"
        peaks = [c.peak for c in costs]
        fit(budgets, f"{what}, memory", SAMPLES, peaks, FLAT, "MiB", last=2)
        budgets.check(f"{what}, memory of {SAMPLES[-1]:,} less that of {SAMPLES[0]}", peaks[-1] - peaks[0], 48, "MiB")
        fit(budgets, f"{what}, CPU", SAMPLES, [c.cpu for c in costs], 1.05, "s", last=2)


# ---- weights ----

def wide(n, path):
    """n MatMuls with external data: one block of random numbers, rotated for each, so that none are equal."""
    block = np.random.default_rng(0).standard_normal(SIDE * SIDE, dtype=np.float32) * np.float32(0.02)
    inits, found, last = [], [], "x"
    with open(f"{path}.data", "wb") as f:
        for i in range(n):
            t = TensorProto(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[SIDE, SIDE], data_location=TensorProto.EXTERNAL)
            for k, v in (("location", path.name + ".data"), ("offset", f.tell()), ("length", block.nbytes)):
                t.external_data.add(key=k, value=str(v))
            at = 1009 * i
            f.write(block[at:].data)
            f.write(block[:at].data)
            inits.append(t)
            found.append(helper.make_node("MatMul", [last, t.name], [f"y{i}"], f"mm{i}"))
            last = f"y{i}"
    graph = helper.make_graph(found, "wide", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", SIDE])],
                              [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["n", SIDE])], inits)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString())
    return path


def weights(budgets):
    if shutil.disk_usage(FOLDER).free < 12 << 30:
        print("weights: skipped, there are less than 12 GB of disk")
        return
    jobs = {"dynamic": ["dynamic", "--no_verify"], "nbits": ["nbits", "--no_verify"], "bnb4": ["bnb4", "--no_verify"],
            "preprocess": ["preprocess", "--skip_optimization", "--save_as_external_data"], "inspect": None}
    costs = {name: [] for name in jobs}
    for n in MATMULS:
        model, out = wide(n, FOLDER / "wide.onnx"), FOLDER / "wide_out.onnx"
        for name, words in jobs.items():
            costs[name].append(run("inspect", model) if words is None else run(*words, "-i", model, "-o", out))
            for p in FOLDER.glob("wide_out*"):
                p.unlink()
        for p in FOLDER.glob("wide*"):
            p.unlink()
    sizes = [n * SIDE * SIDE * 4 / 1e9 for n in MATMULS]
    print("weights: " + ", ".join(f"{s:.2f}" for s in sizes) + " GB")
    for name, found in costs.items():
        fit(budgets, f"weights: {name}, memory", sizes, [c.peak for c in found], FLAT, "MiB", last=2)
        print(f"  {'':34s} " + ", ".join(f"{c.cpu:.2f}" for c in found) + " s CPU")


# ---- cores ----

def cores(budgets):
    have = sorted(os.sched_getaffinity(0))
    if len(have) < 2 or shutil.which("taskset") is None:
        print("cores: skipped, there is one core, or no taskset")
        return
    counts = [n for n in (1, 2, 4, 8, 16, 32, 64) if n < len(have)] + [len(have)]
    for name, n in (("efficientnet_lite0", 64), ("ppocr_cls", 1024), ("minilm", 128)):  # so many that the start does not show
        if not (MODELS / name).is_dir():
            print(f"cores: no {name} in {MODELS}")
            continue
        data = samples_of(MODELS / name, n, FOLDER / f"cores_{name}")
        words = [ONQ, "calibrate", "-i", MODELS / name / "model.onnx", "--data", data, "-o", FOLDER / "out.json", "-q"]
        seen = {c: [] for c in counts}
        for _ in range(3):  # in turns
            for c in counts:
                cpus = ",".join(map(str, have[:c]))
                seen[c].append(once(["taskset", "-c", cpus, *words]))
        best = {c: statistics.median(x.wall for x in found) for c, found in seen.items()}
        print(f"cores: {name}, {n} samples, wall: " + ", ".join(f"{c} {best[c]:.2f} s" for c in counts))
        put("fit", what=f"cores: {name}", sizes=counts, costs=[best[c] for c in counts], unit="s",
            exponent=exponent(counts, [best[c] for c in counts]), exponent_end=None)
        budgets.check(f"cores: 2 over 1, {name}", best[2] / best[1], 1 / 1.7, "of the time")


# ---- ranks and shards ----

def ranks(budgets):
    program = BUILD / "onq-mpi"
    if shutil.which("mpirun") is None or not program.exists():
        print("ranks: skipped, there is no mpirun or no onq-mpi")
        return
    env = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
           "OMPI_MCA_btl_vader_single_copy_mechanism": "none", "TMPDIR": str(FOLDER)}
    name = "efficientnet_lite0" if (MODELS / "efficientnet_lite0").is_dir() else None
    model = MODELS / name / "model.onnx" if name else DIGITS / "model.onnx"
    n = 32 if name else 1024
    for method in ("minmax", "entropy"):
        walls, first = {}, None
        for r in (1, 2, 4):
            out = FOLDER / f"ranks{r}.json"
            words = ["mpirun", "-n", str(r), program, "calibrate", "-i", model, "--data", f"random:{n}:1", "-o", out, "-q",
                     "--method", method]
            cost = median([once(words, env) for _ in range(3)])
            if cost.status != 0:
                raise SystemExit(f"failed with {cost.status}: {' '.join(map(str, words))}")
            walls[r] = cost.wall
            first = first or out.read_bytes()
            if r > 1:
                budgets.check(f"ranks: {r}, {method}, other bytes than one", int(out.read_bytes() != first), 0, "")
        print(f"ranks: {name or 'digits_cnn'}, {method}, {n} samples, wall: " +
              ", ".join(f"{r} {w:.2f} s" for r, w in walls.items()) +
              f"; all on this machine, sharing its {len(os.sched_getaffinity(0))} cores")
        put("fit", what=f"ranks: {method}", sizes=list(walls), costs=list(walls.values()), unit="s",
            exponent=exponent(list(walls), list(walls.values())), exponent_end=None)


def shards(budgets):
    """Parts of real models, their bytes, and the time to merge copies of them."""
    names = [p for p in ("efficientnet_lite0", "minilm", "ppocr_cls") if (MODELS / p).is_dir()]
    for name in ["digits_cnn", *names]:
        model = DIGITS / "model.onnx" if name == "digits_cnn" else MODELS / name / "model.onnx"
        found = {}
        for method in ("minmax", "percentile", "entropy", "distribution"):
            part = FOLDER / f"{name}.{method}.part"
            base = ["calibrate", "-i", model, "--data", "random:2:1", "--method", method]
            run(*base, "--shard", "1/2", "-o", part)
            found[method] = part.stat().st_size
        print(f"shards: {name}, bytes of a part: " + ", ".join(f"{m} {b:,}" for m, b in found.items()))
        put("parts", model=name, bytes=found)
    model = DIGITS / "model.onnx"
    base = ["calibrate", "-i", model, "--data", "random:128:1", "--method", "minmax"]
    counts = (8, 32, 128)
    costs = []
    for n in counts:
        parts = []
        for i in range(1, n + 1):
            parts.append(FOLDER / f"part.{i}")
            run(*base, "--shard", f"{i}/{n}", "--limit", str(n), "-o", parts[-1])
        costs.append(min(run("calibrate", "--merge", *parts, "-o", FOLDER / "merged.json").cpu for _ in range(3)))
        for p in parts:
            p.unlink()
    fit(budgets, "shards: --merge, CPU", counts, costs, 1.1, "s", last=2)


PARTS = {f.__name__: f for f in (start, nodes, samples, weights, cores, ranks, shards)}


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    budgets = Budgets()
    for name in sys.argv[1:] or PARTS:
        PARTS[name](budgets)
    shutil.rmtree(FOLDER)
    budgets.close()


if __name__ == "__main__":
    main()
