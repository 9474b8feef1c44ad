"""bench_debug.py - `onq debug` beside running both models bare, in memory over the number of samples, the size and opening
of a large report, and beside the reference's qdq_loss_debug.

Budgets of comparing both models (--quick): at most 1.2 times the slower of both models bare, one sample at a time on all
cores, and 1.2 times both of them one after the other with as many samples at once as the debugger has (graph optimisation
off, as the debugger and the reference run them); faster than the reference; a search at most a few times the float
model's own runs for each unit; the report of a model of 5,000 nodes below 20 MB and open within 2 seconds. Of all of
debug, with the cause: within ten times bare inference, or 10 s of CPU time; memory flat in the number of samples. Bare
runs of one sample wait busily between nodes and the debugger does not, so CPU and wall time are both shown; the budget is
on the median wall time of rounds in turn.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parent.parent / "tests" / "parity")]
from measure import BUILD, MODELS, ONQ, PYTHON, ROOT, Budgets, figure, once, rounds  # noqa: E402

os.environ.setdefault("ONQ", ONQ)  # for the modules of tests/parity
os.environ.setdefault("ONQ_ROOT", str(ROOT))
ROUNDS = int(os.environ.get("ONQ_ROUNDS", "5"))
FOLDER = BUILD / "bench" / "debug"
SAMPLES = {"efficientnet_lite0": 24, "minilm": 32, "digits_cnn": 1024, "ppocr_cls": 32, "tiny_llama": 32}
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

REFERENCE = """
import sys, numpy as np, onnxruntime
from onnxruntime.quantization import CalibrationDataReader, qdq_loss_debug as r
class Reader(CalibrationDataReader):
    def __init__(self, inputs):
        rng = np.random.default_rng(1)
        kinds = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32}
        one = lambda i: rng.integers(0, 2, [d if isinstance(d, int) else 1 for d in i.shape]).astype(kinds[i.type])
        self.samples = iter([{i.name: one(i) for i in inputs} for _ in range(int(sys.argv[4]))])
    def get_next(self):
        return next(self.samples, None)
got = []
for i, m in enumerate(sys.argv[1:3]):
    a = sys.argv[3] + f"/augmented{i}.onnx"
    r.modify_model_output_intermediate_tensors(m, a)
    inputs = onnxruntime.InferenceSession(m, providers=["CPUExecutionProvider"]).get_inputs()
    got.append(r.collect_activations(a, Reader(inputs)))
match = r.create_activation_matching(got[1], got[0])
for m in match.values():
    r.compute_signal_to_quantization_noice_ratio(m["pre_qdq"], m["post_qdq"])
    if "float" in m:
        r.compute_signal_to_quantization_noice_ratio(m["float"], m["post_qdq"])
weights = r.create_weight_matching(sys.argv[1], sys.argv[2])
r.compute_weight_error({k: v for k, v in weights.items() if v["float"].ndim})
"""


def quantized(name):
    path, out = MODELS / name / "model.onnx", FOLDER / f"{name}.onnx"
    if not path.exists():
        print(f"{name}: no such model in {MODELS}")
        return None, None
    subprocess.run([ONQ, "static", "-q", "-i", path, "-o", out, "--data", path.parent, "--limit", "2"], check=True)
    return path, out


def debug(path, out, n, *more):
    return [ONQ, "debug", "-q", "--float_model", path, "--qdq_model", out, "--data", f"random:{n}:1", *more]


def compare(path, out, n, *more):
    """Without the search for a cause, which has a budget of its own and makes the model again."""
    return debug(path, out, n, "--quick", *more)


def times(name, n, budgets):
    path, out = quantized(name)
    if path is None:
        return
    bare = [ONQ, "run", "-q", "--data", f"random:{n}:1", "--optimization", "none"]
    got = rounds({"float model": [*bare, path, "--jobs", "1"], "quantized model": [*bare, out, "--jobs", "1"],
                  "float at once": [*bare, path], "quantized at once": [*bare, out],
                  "debug": compare(path, out, n, "--no_kernel_check"), "debug with kernels": compare(path, out, n),
                  "debug, one job": compare(path, out, n, "--no_kernel_check", "--jobs", "1")}, ROUNDS)
    print(f"{name}, {n} samples")
    for k, c in got.items():
        print(f"  {k:20s} {c}")
    slower = max(got["float model"].wall, got["quantized model"].wall)
    both = got["float at once"].wall + got["quantized at once"].wall
    cpu = got["float at once"].cpu + got["quantized at once"].cpu
    print(f"  CPU {got['debug'].cpu / cpu:.2f} x both bare, with the optimised run {got['debug with kernels'].cpu / cpu:.2f} x; "
          f"speed-up over one job {got['debug, one job'].wall / got['debug'].wall:.2f} x")
    budgets.check(f"{name}: time of the slower model bare", got["debug"].wall / slower, 1.2, "x")
    budgets.check(f"{name}: time of both models bare, samples at once", got["debug"].wall / both, 1.2, "x")
    budgets.check(f"{name}: the same with the optimised run", got["debug with kernels"].wall / both, 1.5, "x")


def search(name, n, budgets):
    """Tries run what they change: a unit costs less than one run of the float model on all samples."""
    path, out = quantized(name)
    if path is None:
        return
    data = ["--data", f"random:{n}:1"]
    got = rounds({"float model": [ONQ, "run", "-q", *data, "--optimization", "none", "--jobs", "1", path],
                  "sensitivity": compare(path, out, n, "--no_kernel_check", "--sensitivity", "--json"),
                  "sensitivity, one job": compare(path, out, n, "--no_kernel_check", "--sensitivity", "--jobs", "1")}, 1)
    found = json.loads(subprocess.run(compare(path, out, n, "--no_kernel_check", "--sensitivity", "--json"), check=True,
                                      capture_output=True, text=True).stdout)
    units = len(found["sensitivity"])
    print(f"{name}, sensitivity of {units} units, {n} samples")
    for k, c in got.items():
        print(f"  {k:20s} {c}")
    print(f"  speed-up over one job {got['sensitivity, one job'].wall / got['sensitivity'].wall:.2f} x")
    budgets.check(f"{name}: CPU of a unit, of the float model's on these samples",
                  got["sensitivity"].cpu / units / got["float model"].cpu, 0.5, "x")


def budget(name, n, budgets):
    """All of debug within ten times bare inference (loading the float model and running the samples) or 10 s of CPU time."""
    path, out = quantized(name)
    if path is None:
        return
    data = ["--data", path.parent, "--limit", n]
    bare = once([ONQ, "run", "-q", "--jobs", "1", *data, path])
    words = [ONQ, "debug", "-q", "--float_model", path, "--qdq_model", out, *data]
    quick, whole = once([*words, "--quick"]), once(words)
    print(f"{name}, {n} samples: bare {bare.cpu:.2f} s of CPU, --quick {quick.cpu / bare.cpu:.1f} x, debug {whole.cpu:.2f} s, "
          f"{whole.cpu / bare.cpu:.1f} x")
    # A try that has begun is finished: one more bare inference or so.
    budgets.check(f"{name}: CPU of debug, of its budget", whole.cpu / max(10 * bare.cpu, 10), 1.2, "x")


def memory(name, budgets):
    path, out = quantized(name)
    if path is None:
        return
    peaks = [once(debug(path, out, n)).peak for n in (8, 64, 512)]
    print(f"{name}: " + ", ".join(f"{n} samples {p:.0f} MiB" for n, p in zip((8, 64, 512), peaks)))
    budgets.check(f"{name}: memory of 512 samples over 8", peaks[2] / peaks[0], 1.1, "of memory")


def reference(name, n, budgets):
    path, out = quantized(name)
    if path is None:
        return
    mine = rounds({"debug": compare(path, out, n)}, 3)["debug"]
    theirs = once([PYTHON, "-c", REFERENCE, path, out, FOLDER, n])
    print(f"{name}, {n} samples, weights and activations\n  onq debug  {mine}\n  reference  {theirs}")
    figure(f"debug: {name}", "onq", mine)
    figure(f"debug: {name}", "reference", theirs)
    if theirs.status == 0:
        budgets.check(f"{name}: CPU of the reference", mine.cpu / theirs.cpu, 0.5, "x")
        budgets.check(f"{name}: memory of the reference", mine.peak / theirs.peak, 0.5, "of memory")


def large(budgets):
    from test_report import large_models

    path, out = large_models(FOLDER, 5000)
    page = FOLDER / "page.html"
    cost = once(compare(path, out, 2, "--no_kernel_check", "-o", page))
    print(f"5,000 nodes: {cost}")
    budgets.check("report of 5,000 nodes: size", page.stat().st_size / 1e6, 20, "MB")
    if BROWSER is None:
        print("  no Chromium: the report is not opened")
        return
    text = page.read_text()
    test = FOLDER / "page.test.html"
    end = text.rindex("</body>")
    test.write_text(text[:end] + '<script>document.body.append(Object.assign(document.createElement("pre"), {id: "seen", '
                    "textContent: JSON.stringify(performance.now())}))</script>" + text[end:])
    seen = []
    for _ in range(3):
        done = subprocess.run([BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                               f"--user-data-dir={FOLDER / 'profile'}", "--dump-dom", test.as_uri()],
                              capture_output=True, text=True, timeout=120)
        seen.append(json.loads(re.search(r'<pre id="seen">(.*?)</pre>', done.stdout).group(1)) / 1000)
    budgets.check("report of 5,000 nodes: opens in", min(seen), 2, "s")


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    budgets = Budgets()
    if not MODELS.is_dir():
        print(f"no models in {MODELS}")
        sys.exit(77)
    begin = time.monotonic()
    for name, n in SAMPLES.items():
        times(name, n, budgets)
    search("ppocrv4_det", 2, budgets)
    search("efficientnet_lite0", 4, budgets)
    for name in ("digits_cnn", "ppocr_cls", "magika", "minilm", "efficientnet_lite0", "ppocrv4_det"):
        budget(name, 8, budgets)
    memory("digits_cnn", budgets)
    memory("tiny_llama", budgets)
    reference("digits_cnn", 256, budgets)
    reference("efficientnet_lite0", 4, budgets)
    large(budgets)
    print(f"  {time.monotonic() - begin:.0f} s in all")
    budgets.close()


if __name__ == "__main__":
    main()
