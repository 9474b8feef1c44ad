"""Models with states: ranges, models and figures from sequences equal those of their steps stored one by one.

What the reference gets are the steps of a loop over onnxruntime, with states, masks and positions in them; onq gets
texts or signals and makes the steps itself.
"""

import io
import json
import math
import os
import re
import shutil
import subprocess
import tarfile
import time

import numpy as np
import onnx
import onnxruntime
import pytest
import statemodels as sm
from calibtool import differences, load_json, onq, reference, saved, write_samples
from common import BUILD, ONQ
from quantcase import METHODS

CASES = [
    ("minmax", {}),
    ("minmax", {"moving_average": True}),
    ("percentile", {}),
    ("entropy", {}),
    ("distribution", {}),
]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    d = tmp_path_factory.mktemp("state")
    sm.decoder(d / "decoder.onnx")
    sm.decoder(d / "merged.onnx", merged=True)
    sm.recurrent(d / "gru.onnx", "GRU")
    sm.recurrent(d / "lstm.onnx", "LSTM")
    return d


def texts(seed=3, n=5):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, sm.VOCABULARY, (1, 4 + k)) for k in range(n)]


def signals(seed=4, n=3, steps=9):
    return np.random.default_rng(seed).normal(size=(n, steps, 1, 1, 6)).astype(np.float32)


def store_texts(folder, all_texts):
    folder.mkdir()
    for k, ids in enumerate(all_texts):
        np.savez(folder / f"{k:02}.npz", input_ids=ids)
    return folder


def store(path, xs):
    np.savez(path, x=xs)
    return path


def check(out, model, steps, method, options, tmp_path):
    want = saved(reference(model, steps, method, tmp_path, **options), tmp_path / "reference.json")
    assert differences(load_json(out), want) == []


def words(method, options):
    return ["--method", method] + [f"--calib_{k}" for k, v in options.items() if v is True]


@pytest.mark.parametrize("method,options", CASES)
@pytest.mark.parametrize("name", ["decoder", "merged"])
def test_ranges_of_generated_text(made, tmp_path, name, method, options):
    model = made / f"{name}.onnx"
    data = store_texts(tmp_path / "texts", texts())
    steps, _ = sm.speak(model, [[t] for t in texts()], generate=6)
    for jobs in (1, 2):
        onq("calibrate", "-i", model, "--data", data, "--generate", 6, *words(method, options), "--jobs", jobs,
            "-o", tmp_path / f"{jobs}.json")
    assert (tmp_path / "1.json").read_bytes() == (tmp_path / "2.json").read_bytes()
    if method == "minmax":
        check(tmp_path / "1.json", model, steps, method, options, tmp_path)
    # The reference's histograms fail where samples differ in shape; onq's of the stored steps must do.
    write_samples(tmp_path / "steps", steps)
    onq("calibrate", "-i", model, "--data", tmp_path / "steps", "--no_carry", *words(method, options), "-o",
        tmp_path / "stored.json")
    assert differences(load_json(tmp_path / "1.json"), load_json(tmp_path / "stored.json")) == []


@pytest.mark.parametrize("method,options", CASES)
def test_ranges_of_each_method(made, tmp_path, method, options):
    model, data = made / "gru.onnx", store(tmp_path / "x.npz", signals())
    onq("calibrate", "-i", model, "--data", data, "--steps_axis", 0, *words(method, options), "-o", tmp_path / "c.json")
    check(tmp_path / "c.json", model, sm.walk(model, signals())[0], method, options, tmp_path)


@pytest.mark.parametrize("kind", ["gru", "lstm"])
@pytest.mark.parametrize("form", ["axis", "folders", "tar", "own axis"])
def test_ranges_of_signals(made, tmp_path, kind, form):
    model, xs = made / f"{kind}.onnx", signals()
    more = []
    if form == "axis":
        data, more = store(tmp_path / "x.npz", xs), ["--steps_axis", 0]
    elif form == "own axis":
        data, more = tmp_path / "x", ["--steps_axis", 0]
        data.mkdir()
        for k, x in enumerate(xs):
            np.savez(data / f"{k}.npz", x=x[:, 0])  # [steps, 1, 6] for an input of [1, 1, 6]
    elif form == "folders":
        data = tmp_path / "f"
        for k, x in enumerate(xs):
            (data / f"{k}").mkdir(parents=True)
            for t in range(len(x)):
                np.savez(data / f"{k}" / f"{t:03}.npz", x=x[t])
    else:
        data = tmp_path / "x.tar"
        with tarfile.open(data, "w") as tar:
            for k, x in enumerate(xs):
                for t in range(len(x)):
                    b = io.BytesIO()
                    np.savez(b, x=x[t])
                    entry = tarfile.TarInfo(f"{k}/step{t:03}.npz")
                    entry.size = len(b.getvalue())
                    tar.addfile(entry, io.BytesIO(b.getvalue()))
    onq("calibrate", "-i", model, "--data", data, *more, "--method", "minmax", "-o", tmp_path / "c.json")
    check(tmp_path / "c.json", model, sm.walk(model, xs)[0], "minmax", {}, tmp_path)


def test_carry_by_rule(made, tmp_path):
    model, data = made / "lstm.onnx", store(tmp_path / "x.npz", signals())
    plain = ["calibrate", "-i", model, "--data", data, "--steps_axis", 0, "--method", "minmax", "-o"]
    onq(*plain, tmp_path / "a.json")
    onq(*plain, tmp_path / "b.json", "--carry", r"(.)n=\10")
    onq(*plain, tmp_path / "c.json", "--carry", "hn=h0", "--carry", "cn=c0")
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "c.json").read_bytes()


@pytest.mark.parametrize("method", ["minmax", "percentile"])
def test_shards_count_sequences(made, tmp_path, method):
    model, data = made / "decoder.onnx", store_texts(tmp_path / "texts", texts())
    base = ["calibrate", "-i", model, "--data", data, "--generate", 4, "--method", method]
    onq(*base, "-o", tmp_path / "whole.json")
    parts = [tmp_path / f"{k}.part" for k in (1, 2)]
    shown = [onq(*base, "--shard", f"{k}/2", "-o", parts[k - 1]).stdout for k in (1, 2)]
    assert "15 of 25 samples" in shown[1 if "10 of" in shown[0] else 0]
    onq("calibrate", "--merge", *parts, "-o", tmp_path / "merged.json")
    assert (tmp_path / "whole.json").read_bytes() == (tmp_path / "merged.json").read_bytes()
    onq(*base, "--checkpoint", tmp_path / "check", "-o", tmp_path / "resumed.json")
    assert (tmp_path / "whole.json").read_bytes() == (tmp_path / "resumed.json").read_bytes()
    onq(*base, "--isolate", "-o", tmp_path / "isolated.json")
    assert (tmp_path / "whole.json").read_bytes() == (tmp_path / "isolated.json").read_bytes()


MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
       "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


@pytest.mark.skipif(shutil.which("mpirun") is None or not (BUILD / "onq-mpi").exists(), reason="no onq-mpi or mpirun")
@pytest.mark.parametrize("method,more", [("minmax", []), ("minmax", ["--calib_moving_average"]), ("entropy", []),
                                         ("percentile", [])])
def test_ranks_count_sequences(made, tmp_path, method, more):
    """Each rank walks through whole sequences; the bytes are those of one process."""
    data = store_texts(tmp_path / "texts", texts())
    words_of_job = ["calibrate", "-i", made / "decoder.onnx", "--data", data, "--generate", 4, "--method", method, *more,
                    "--quiet", "-o"]
    onq(*words_of_job, tmp_path / "one.json")
    for ranks in (2, 3):
        subprocess.run(["mpirun", "-n", str(ranks), BUILD / "onq-mpi", *map(str, words_of_job), tmp_path / "many.json"],
                       env={**os.environ, **MPI, "TMPDIR": str(tmp_path)}, check=True, timeout=120)
        assert (tmp_path / "one.json").read_bytes() == (tmp_path / "many.json").read_bytes()
        (tmp_path / "many.json").unlink()


@pytest.mark.parametrize("method", ["minmax", "percentile"])
def test_taken_up_at_a_sequence(tmp_path, method):
    """A job that is killed somewhere in a sequence goes on with the beginning of one, to the same bytes."""
    model = sm.decoder(tmp_path / "m.onnx", layers=2, width=128, heads=4, vocabulary=500)
    data = store_texts(tmp_path / "texts", texts(n=40))
    words_of_job = ["calibrate", "-i", model, "--data", data, "--generate", 40, "--method", method]
    onq(*words_of_job, "-o", tmp_path / "whole.json")
    check = tmp_path / "check"
    words_of_job += ["--checkpoint", check, "-o", tmp_path / "c.json", "--verbose"]
    job = subprocess.Popen([ONQ, *map(str, words_of_job)], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    for _ in range(2000):
        if check.exists() or job.poll() is not None:
            break
        time.sleep(0.005)
    job.kill()
    job.wait()
    if not check.exists():
        pytest.skip("the job was over before it could be killed")
    assert not (tmp_path / "c.json").exists()
    r = onq(*words_of_job)
    taken_up = re.search(r"continuing after sample (\d+) of 1640", r.stderr)
    assert taken_up is not None and int(taken_up.group(1)) % 41 == 0, r.stderr
    assert (tmp_path / "whole.json").read_bytes() == (tmp_path / "c.json").read_bytes()


def test_static_is_that_of_the_stored_steps(made, tmp_path):
    model, data = made / "decoder.onnx", store_texts(tmp_path / "texts", texts())
    steps, _ = sm.speak(model, [[t] for t in texts()], generate=5)
    write_samples(tmp_path / "steps", steps)
    for more in ([], ["--per_channel", "--bias_correction"]):
        onq("static", "-i", model, "--data", data, "--generate", 5, *more, "-o", tmp_path / "a.onnx")
        onq("static", "-i", model, "--data", tmp_path / "steps", "--no_carry", *more, "-o", tmp_path / "b.onnx")
        assert (tmp_path / "a.onnx").read_bytes() == (tmp_path / "b.onnx").read_bytes()


def test_run_generates(made, tmp_path):
    data = store_texts(tmp_path / "texts", texts())
    for name in ("decoder", "merged"):
        model = made / f"{name}.onnx"
        _, logits = sm.speak(model, [[t] for t in texts()], generate=6, optimised=True)
        want = [int(x[0, -1].argmax()) for x in logits]
        lines = onq("run", model, "--data", data, "--generate", 6).stdout.splitlines()
        assert [int(x) for line in lines for x in line.split(":")[1].split()] == want
        found = json.loads(onq("run", model, "--data", data, "--generate", 6, "--json").stdout)["samples"]
        assert [s["tokens"] for s in found] == [[x] for x in want]
        assert [(s["sequence"], s["step"]) for s in found] == [(k // 7, k % 7) for k in range(35)]


def test_text_in_steps(made, tmp_path):
    """Token by token, the logits are those of the text at once."""
    model, data = made / "decoder.onnx", store_texts(tmp_path / "texts", texts(n=2))
    onq("run", model, "--data", data, "--format", "npz", "-o", tmp_path / "whole")
    onq("run", model, "--data", data, "--steps_axis", 1, "--format", "npz", "-o", tmp_path / "steps")
    at = 0
    for k, t in enumerate(texts(n=2)):
        whole = np.load(tmp_path / "whole" / f"test_data_set_{k}" / "outputs.npz")["logits"]
        for j in range(t.shape[1]):
            step = np.load(tmp_path / "steps" / f"test_data_set_{at}" / "outputs.npz")["logits"]
            assert np.allclose(step[0, 0], whole[0, j], atol=1e-5)
            at += 1


def log_softmax(x):
    x = x.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def test_bench_judges_texts(made, tmp_path):
    model, data = made / "decoder.onnx", store_texts(tmp_path / "texts", texts())
    onq("static", "-i", model, "--data", data, "-o", tmp_path / "q.onnx")
    found = json.loads(onq("bench", model, tmp_path / "q.onnx", "--data", data, "--runs", 1, "--json").stdout)
    p = [log_softmax(x[0]) for x in sm.speak(model, [[t] for t in texts()], optimised=True)[1]]
    q = [log_softmax(x[0]) for x in sm.speak(tmp_path / "q.onnx", [[t] for t in texts()], optimised=True)[1]]
    kl = np.mean([v for a, b in zip(p, q) for v in (np.exp(a) * (a - b)).sum(-1)])
    top = np.mean([v for a, b in zip(p, q) for v in a.argmax(-1) == b.argmax(-1)])
    loss = [np.mean([-x[j, t[0, j + 1]] for x, t in zip(y, texts()) for j in range(t.shape[1] - 1)]) for y in (p, q)]
    said = found["models"][1]["language"]
    assert math.isclose(said["kl"], kl, rel_tol=1e-6)
    assert said["top1"] == top
    assert math.isclose(said["perplexity"], math.exp(loss[1]), rel_tol=1e-6)
    assert math.isclose(found["models"][0]["language"]["perplexity"], math.exp(loss[0]), rel_tol=1e-6)
    agreement = found["models"][1]["agreement"]
    assert [x["name"] for x in agreement["outputs"]] == ["logits"]
    assert sorted(x["name"] for x in agreement["states"]) == ["present.0.key", "present.0.value"]


@pytest.mark.parametrize("name", ["decoder", "lstm"])
def test_sequences_at_once(made, tmp_path, name):
    """However many run at once, results and their order are the same."""
    if name == "decoder":
        source = ["--data", store_texts(tmp_path / "texts", texts(n=9)), "--generate", 7]
    else:
        source = ["--data", store(tmp_path / "x.npz", signals(n=9)), "--steps_axis", 0]
    shown = []
    for jobs in (1, 2, 4):
        words_of_run = ["run", made / f"{name}.onnx", *source, "--jobs", jobs, "--all"]
        onq(*words_of_run, "--format", "npz", "-o", tmp_path / f"{jobs}")
        shown.append((onq(*words_of_run).stdout, onq(*words_of_run, "--json").stdout))
    assert shown[0] == shown[1] == shown[2]
    files = sorted(p.relative_to(tmp_path / "1") for p in (tmp_path / "1").rglob("*.npz"))
    assert len(files) == (72 if name == "decoder" else 81)
    for f in files:
        assert (tmp_path / "1" / f).read_bytes() == (tmp_path / "4" / f).read_bytes()


def sqnr(a, b):
    a, b = np.concatenate(a).astype(np.float64), np.concatenate(b).astype(np.float64)
    return 10 * np.log10((a ** 2).sum() / ((a - b) ** 2).sum())


def bench(*words_of_bench):
    return json.loads(onq("bench", *words_of_bench, "--runs", 1, "--json").stdout)["models"]


def test_bench_along_signals(made, tmp_path):
    """Place by place, free and with float's states; and sequences whose classes are the same throughout."""
    model, data, xs = made / "lstm.onnx", store(tmp_path / "x.npz", signals(n=5)), signals(n=5)
    onq("dynamic", "-i", model, "-o", tmp_path / "q.onnx", "--op_types_to_quantize", "LSTM,MatMul")
    found = bench(model, tmp_path / "q.onnx", "--data", data, "--steps_axis", 0)[1]["agreement"]
    steps, flt = sm.walk(model, xs, optimised=True)
    _, free = sm.walk(tmp_path / "q.onnx", xs, optimised=True)
    s = sm.session(tmp_path / "q.onnx", optimised=True)
    forced = [s.run(None, x)[0] for x in steps]
    n = xs.shape[1]
    for way, ys in (("free", free), ("forced", forced)):
        want = [sqnr([flt[k * n + t] for k in range(5)], [ys[k * n + t] for k in range(5)]) for t in range(n)]
        assert np.allclose(found["along"][way], want, atol=1e-3)
    assert found["along"]["free"][0] == found["along"]["forced"][0]
    assert found["along"]["free"][1:] != found["along"]["forced"][1:]
    assert (found["along"]["place"], found["along"]["figure"], found["along"]["output"]) == ("step", "sqnr", "y")
    kept = [all(flt[i].argmax() == free[i].argmax() for i in range(k * n, k * n + n)) for k in range(5)]
    assert found["sequences"] == 5 and found["sample_agreement"] == 100 * sum(kept) / 5
    want = sum(kept) * 20
    for target, status in ((want, 0), (want + 0.1, 1)):
        if target > 100:
            continue
        r = onq("bench", model, tmp_path / "q.onnx", "--data", data, "--steps_axis", 0, "--runs", 1, "--target",
                f"sample_agreement={target}", check=False)
        assert r.returncode == status
    assert "its own states" in onq("bench", model, tmp_path / "q.onnx", "--data", data, "--steps_axis", 0, "--runs",
                                   1).stdout


def test_bench_along_texts(made, tmp_path):
    """By token; generated ones are those of float, and count for the perplexity once they are known."""
    model, data = made / "decoder.onnx", store_texts(tmp_path / "texts", texts())
    onq("static", "-i", model, "--data", data, "-o", tmp_path / "q.onnx")
    found = bench(model, tmp_path / "q.onnx", "--data", data, "--generate", 5)
    steps, flt = sm.speak(model, [[t] for t in texts()], generate=5, optimised=True)
    lines = [[s["input_ids"] for s in steps[k * 6:k * 6 + 6]] for k in range(5)]
    _, free = sm.speak(tmp_path / "q.onnx", lines, optimised=True)
    s = sm.session(tmp_path / "q.onnx", optimised=True)
    forced = [s.run(None, x)[0] for x in steps]
    for way, logits in (("free", free), ("forced", forced)):
        by_token = {}
        for step, a, b in zip(steps, flt, logits):
            p, q = log_softmax(a[0]), log_softmax(b[0])
            for at, kl in zip(step["position_ids"][0], (np.exp(p) * (p - q)).sum(-1)):
                by_token.setdefault(int(at), []).append(kl)
        want = [np.mean(by_token[k]) for k in range(len(by_token))]
        assert np.allclose(found[1]["agreement"]["along"][way], want, rtol=1e-3, atol=1e-7)
    loss = []
    for k in range(5):
        rows = np.concatenate([log_softmax(x[0]) for x in free[k * 6:k * 6 + 6]])
        ids = np.concatenate([x[0] for x in lines[k]])
        loss += [-rows[j, ids[j + 1]] for j in range(len(ids) - 1)]
    assert found[1]["language"]["predictions"] == len(loss)
    assert math.isclose(found[1]["language"]["perplexity"], math.exp(np.mean(loss)), rel_tol=1e-5)


def rival(model, quantized, *more):
    """What auto finds of a model that it is asked to beat, on all samples, and what it says of these."""
    out = model.parent / "auto.onnx"
    found = json.loads(onq("auto", "-i", model, "--improve", quantized, *more, "--allow", "dynamic", "-o", out,
                           "--json").stdout)
    given = [c for c in found["candidates"] if c["label"] == "the quantized model that was given"]
    return given[0], found["samples"]


def test_auto_judges_whole_signals(made, tmp_path):
    """With the candidate's own states; a signal counts as kept if no step of it changes its class."""
    n, steps_each, q = 40, 9, tmp_path / "q.onnx"
    model, xs = made / "lstm.onnx", signals(n=n, seed=8)
    data = store(tmp_path / "x.npz", xs)
    onq("dynamic", "-i", model, "-o", q, "--op_types_to_quantize", "LSTM,MatMul")
    steps, flt = sm.walk(model, xs, optimised=True)
    _, free = sm.walk(q, xs, optimised=True)
    s = sm.session(q, optimised=True)
    forced = [s.run(None, x)[0] for x in steps]
    targets = ["--target", "sqnr=1", "--target", "agreement=1", "--target", "sample_agreement=1"]
    found, samples = rival(model, q, "--data", data, "--steps_axis", 0, *targets)
    same = np.array([a.argmax() == b.argmax() for a, b in zip(flt, free)]).reshape(n, steps_each)
    assert 0 < same.all(1).sum() < n
    assert math.isclose(found["figure"]["sqnr"], sqnr(flt, free), abs_tol=0.01)
    assert abs(sqnr(flt, free) - sqnr(flt, forced)) > 0.1
    assert math.isclose(found["figure"]["agreement"], 100 * same.mean(), abs_tol=1e-6)
    assert math.isclose(found["figure"]["sample_agreement"], 100 * same.all(1).mean(), abs_tol=1e-6)
    assert (samples["given"], samples["used"], samples["steps"]) == (n, n, n * steps_each)
    said = onq("auto", "-i", model, "--data", data, "--steps_axis", 0, "--limit", 9, "--allow", "dynamic", "-o",
               tmp_path / "a.onnx").stdout
    assert "9 sequences in 2 parts: each judges what the others calibrated" in said
    assert "they have 81 steps; each candidate goes through them with its own states" in said
    (tmp_path / "steps").mkdir()
    for i, step in enumerate(steps[:9]):
        np.savez(tmp_path / "steps" / f"{i}.npz", **step)
    said = onq("auto", "-i", model, "--data", tmp_path / "steps", "--allow", "dynamic", "-o", tmp_path / "a.onnx").stdout
    assert "each is one run of the model: errors that its states carry on to the next are not measured" in said


def test_auto_follows_the_text_of_float(made, tmp_path):
    """With --generate a candidate reads what float wrote, with its own cache; all of it counts for the perplexity."""
    model, q, data = made / "decoder.onnx", tmp_path / "q.onnx", store_texts(tmp_path / "texts", texts())
    onq("static", "-i", model, "--data", data, "-o", q)
    steps, flt = sm.speak(model, [[t] for t in texts()], generate=5, optimised=True)
    lines = [[s["input_ids"] for s in steps[k * 6:k * 6 + 6]] for k in range(5)]
    _, free = sm.speak(q, lines, optimised=True)
    kl, rise = [], []
    for k in range(5):
        p, r = (np.concatenate([log_softmax(x[0]) for x in v[k * 6:k * 6 + 6]]) for v in (flt, free))
        ids = np.concatenate([x[0] for x in lines[k]])
        kl += list((np.exp(p) * (p - r)).sum(-1))
        rise += [p[j, ids[j + 1]] - r[j, ids[j + 1]] for j in range(len(ids) - 1)]
    found, samples = rival(model, q, "--data", data, "--generate", 5, "--target", "kl=9", "--target",
                           "perplexity_rise=90")
    assert math.isclose(found["figure"]["kl"], np.mean(kl), rel_tol=1e-3)
    assert math.isclose(found["figure"]["perplexity_rise"], 100 * math.expm1(np.mean(rise)), rel_tol=1e-3)
    assert (samples["given"], samples["steps"]) == (5, 30)


def test_auto_leaves_out_whole_sequences(made, tmp_path):
    """What does not fit is counted in sequences, and none is cut."""
    data = store(tmp_path / "x.npz", signals(n=200))
    r = onq("auto", "-i", made / "lstm.onnx", "--data", data, "--steps_axis", 0, "--memory", "1m", "--allow",
            "dynamic", "-o", tmp_path / "a.onnx", "--json")
    samples = json.loads(r.stdout)["samples"]
    assert samples["given"] == 200 and 1 < samples["used"] < 200 and samples["steps"] == 9 * samples["used"]
    assert f"{200 - samples['used']} of 200 sequences do not fit in --memory" in r.stderr


def test_debug_along(made, tmp_path):
    """The figures of bench; and of states only what a run adds, which a past that both share would hide."""
    model, data = made / "decoder.onnx", store_texts(tmp_path / "texts", texts())
    onq("static", "-i", model, "--data", data, "-o", tmp_path / "q.onnx")
    source = ["--data", data, "--generate", 5]
    found = json.loads(onq("debug", "--float_model", model, "--qdq_model", tmp_path / "q.onnx", *source, "--quick",
                           "--json", "-o", tmp_path / "page.html").stdout)
    of_bench = bench(model, tmp_path / "q.onnx", *source)[1]["agreement"]["along"]
    assert found["along"] == of_bench
    steps, _ = sm.speak(model, [[t] for t in texts()], generate=5)
    flt, s = sm.session(model), sm.session(tmp_path / "q.onnx")
    a, b = [], []
    for step in steps:
        past = step["past_key_values.0.key"].shape[2]
        a.append(flt.run(["present.0.key"], step)[0][:, :, past:].ravel())
        b.append(s.run(["present.0.key"], step)[0][:, :, past:].ravel())
    assert math.isclose(found["outputs"]["present.0.key"]["sqnr"], sqnr(a, b), abs_tol=0.01)
    page = (tmp_path / "page.html").read_text()
    assert '"along":' in page
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is not None:
        dom = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
                              (tmp_path / "page.html").as_uri()], capture_output=True, text=True, timeout=120).stdout
        plot = dom[dom.index('id="along-plot"'):].split("</figure>")[0]
        assert plot.count("<path") == 2 and "token 1" in plot


def test_carry_of_the_user_counts_in_verdicts(made, tmp_path):
    """States with names that are not known are no answers either, once they are named."""
    text = (made / "gru.onnx").read_bytes()
    m = onnx.load_from_string(text)
    for node in m.graph.node:
        node.output[:] = ["later" if x == "hn" else x for x in node.output]
        node.input[:] = ["before" if x == "h0" else x for x in node.input]
    m.graph.input[1].name, m.graph.output[1].name = "before", "later"
    onnx.save(m, tmp_path / "m.onnx")
    data = store(tmp_path / "x.npz", signals())
    source = ["--data", data, "--steps_axis", 0, "--carry", "later=before"]
    said = onq("static", "-i", tmp_path / "m.onnx", *source, "-o", tmp_path / "q.onnx").stdout
    line = next(x for x in said.splitlines() if x.startswith("outputs: "))
    assert " of 2" not in line, line  # "output 'y' of 2" where the state counts
    agreement = bench(tmp_path / "m.onnx", tmp_path / "q.onnx", *source)[1]["agreement"]
    assert [x["name"] for x in agreement["states"]] == ["later"]
    found = json.loads(onq("debug", "--float_model", tmp_path / "m.onnx", "--qdq_model", tmp_path / "q.onnx", *source,
                           "--quick", "--json").stdout)
    assert found["outputs"]["later"]["state"] is True


def test_warns_of_texts_without_a_beginning(made, tmp_path):
    model = made / "decoder.onnx"
    steps, _ = sm.speak(model, [[t] for t in texts()], generate=1)
    for name, some in (("all", steps), ("late", steps[1::2])):
        write_samples(tmp_path / name, some)
        data = ["--data", tmp_path / name]
        few = ["nbits", "-i", model, "--block_size", 16, "-o", tmp_path / "q.onnx", *data]
        for command in (["calibrate", "-i", model, *data, "--method", "minmax", "-o", tmp_path / "c.json"], few,
                        [*few, "--quant_method", "gptq"],
                        ["static", "-i", model, *data, "-o", tmp_path / "s.onnx"],
                        ["debug", "--float_model", model, "--qdq_model", tmp_path / "q.onnx", *data],
                        ["bench", model, tmp_path / "q.onnx", *data],
                        ["auto", "-i", model, *data, "--allow", "nbits", "-o", tmp_path / "a.onnx"]):
            said = onq(*command).stderr
            assert said.count("all samples begin with a past") == (name == "late"), (command[0], said)


def warnings_of(tmp_path, model, data, *more):
    r = onq("calibrate", "-i", model, "--data", data, *more, "--method", "minmax", "-o", tmp_path / "c.json")
    return r.stderr


@pytest.mark.parametrize("past,words_of_warning", [
    ("own", None),
    ("zeros", "values of 'past_key_values.0.key' are nothing but 0"),
    ("small", "times smaller than what the model adds"),
    ("large", "times larger than what the model adds"),
])
def test_warns_of_a_past_that_no_run_made(made, tmp_path, past, words_of_warning):
    model = made / "decoder.onnx"
    steps, _ = sm.speak(model, [[t] for t in texts()], generate=1)
    scale = {"own": 1, "zeros": 0, "small": 0.1, "large": 8}[past]
    for step in steps:
        for name in ("past_key_values.0.key", "past_key_values.0.value"):
            step[name] = (step[name] * scale).astype(np.float32)
    write_samples(tmp_path / "steps", steps)
    said = warnings_of(tmp_path, model, tmp_path / "steps")
    assert ("a past that no run of this model made" in said) == (words_of_warning is not None)
    assert words_of_warning is None or (words_of_warning in said and "leave the states out" in said)


@pytest.mark.parametrize("brings", ["own", "rounded", "other"])
def test_warns_of_states_of_another_model(made, tmp_path, brings):
    """In the middle of a sequence: those of the step before, also in another precision, are not worth a word."""
    model, xs = made / "gru.onnx", signals()
    steps, _ = sm.walk(model, xs)
    rng = np.random.default_rng(0)
    for k in range(len(steps)):
        h = steps[k]["h0"]
        if brings == "rounded":
            h = h.astype(np.float16).astype(np.float32)
        elif brings == "other" and k % 9 > 0:
            h = rng.normal(size=h.shape).astype(np.float32)
        folder = tmp_path / "data" / f"{k // 9}"
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(folder / f"{k % 9:03}.npz", x=steps[k]["x"], h0=h)
    said = warnings_of(tmp_path, model, tmp_path / "data")
    assert ("a state that this model did not give" in said) == (brings == "other")
    if brings == "other":
        assert "24 of 24 steps" in said and "step 1 of" in said and "whose 'h0' is not the 'hn' of the step before" in said


def test_warns_of_states_that_are_made_up(made, tmp_path):
    """Frames one by one begin with zeros each; sequences, and frames with states, do not."""
    model, xs = made / "gru.onnx", signals()
    store(tmp_path / "one.npz", xs.reshape(-1, 1, 1, 6))
    store(tmp_path / "many.npz", xs)
    write_samples(tmp_path / "steps", sm.walk(model, xs)[0])
    words_of_warning = "every sample is one step with states of zeros"
    assert words_of_warning in warnings_of(tmp_path, model, tmp_path / "one.npz")
    assert words_of_warning not in warnings_of(tmp_path, model, tmp_path / "many.npz", "--steps_axis", 0)
    assert words_of_warning not in warnings_of(tmp_path, model, tmp_path / "steps")
    said = warnings_of(tmp_path, model, "random:4")
    assert "for smoke runs; accuracy needs real data" in said


def test_bench_decodes(made, tmp_path):
    """The table of positions has 128 rows: longer texts have no figure."""
    model, data = made / "decoder.onnx", store_texts(tmp_path / "texts", texts(n=1))
    found = json.loads(onq("bench", model, "--data", data, "--runs", 1, "--decode", "--json").stdout)["models"][0]
    assert [x["length"] for x in found["decode"]] == [1, 128, 1024]
    assert found["decode"][0]["prefill_tokens_per_second"] > 0 and found["decode"][0]["decode_tokens_per_second"] > 0
    assert all("decode_tokens_per_second" not in x for x in found["decode"][1:])
    signal = store(tmp_path / "x.npz", signals())
    r = onq("bench", made / "gru.onnx", "--data", signal, "--steps_axis", 0, "--runs", 1, "--decode", check=False)
    assert r.returncode == 2 and "--decode is for decoders with states" in r.stderr


def step_with_past(model, folder):
    """One step in the middle of a text: three tokens after five."""
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(8)
    feed = {}
    for i in session.get_inputs():
        if "past" in i.name:
            feed[i.name] = rng.normal(size=[1 if not isinstance(d, int) and k == 0 else d if isinstance(d, int) else 5
                                            for k, d in enumerate(i.shape)]).astype(np.float32)
        elif i.name == "input_ids":
            feed[i.name] = rng.integers(0, sm.VOCABULARY, (1, 3))
        elif "mask" in i.name:
            feed[i.name] = np.ones((1, 8), np.int64)
        else:
            feed[i.name] = np.arange(5, 8)[None]
    np.savez(folder / "step.npz", **{k: v[None] for k, v in feed.items()})
    return feed


def figures_of_states(model, quantized, folder):
    """dB of what one step adds to each state; the copied past is exact and would hide it."""
    feed, out = step_with_past(model, folder), []
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    a, b = (onnxruntime.InferenceSession(str(m), options, providers=["CPUExecutionProvider"]) for m in (model, quantized))
    for name in ("present.0.key", "present.0.value"):
        x, y = (s.run([name], feed)[0][:, :, 5:].astype(np.float64) for s in (a, b))
        out.append(10 * np.log10((x**2).sum() / ((x - y)**2).sum()))
    return out


def test_debug_compares_what_a_step_adds_to_states(made, tmp_path):
    model, quantized = made / "decoder.onnx", tmp_path / "q.onnx"
    onq("static", "-i", model, "--data", store_texts(tmp_path / "texts", texts()), "--generate", 3, "-o", quantized)
    want = figures_of_states(model, quantized, tmp_path)
    found = json.loads(onq("debug", "--float_model", model, "--qdq_model", quantized, "--data", tmp_path / "step.npz",
                           "--no_carry", "--quick", "--json").stdout)
    assert [found["outputs"][k]["sqnr"] for k in ("present.0.key", "present.0.value")] == pytest.approx(want, abs=.01)


@pytest.mark.parametrize("command", ["dynamic", "static"])
def test_says_why_a_gru_stays_float(made, tmp_path, command):
    data = store(tmp_path / "x.npz", signals(n=8))
    said = onq(command, "-i", made / "gru.onnx", "--data", data, "--steps_axis", 0, "-o", tmp_path / "q.onnx").stdout
    assert "the runtime has no integer kernel for it" in said and "1.6 to 1.9 times as long" in said


def test_an_empty_past_is_called_empty(made, tmp_path):
    said = onq("static", "-i", made / "decoder.onnx", "--data", store_texts(tmp_path / "texts", texts()), "-o", tmp_path / "q.onnx").stderr
    assert "is empty in every sample and stays float" in said and "holds an infinity" not in said, said
    said = onq("calibrate", "-i", made / "decoder.onnx", "--data", tmp_path / "texts", "-o", tmp_path / "ranges.json").stderr
    assert "no values in any sample" in said and "an infinity" not in said, said


def test_every_command_takes_sequences(made, tmp_path):
    model, data = made / "decoder.onnx", store_texts(tmp_path / "texts", texts())
    source = ["--data", data, "--generate", 3]
    onq("static", "-i", model, *source, "-o", tmp_path / "q.onnx")
    said = onq("dynamic", "-i", model, *source, "-o", tmp_path / "d.onnx").stdout
    assert "for the prefill, and half of it to decode" in said and "--generate 3 --decode (shows what it gains)" in said
    said = onq("nbits", "-i", model, *source, "--quant_method", "gptq", "--block_size", 16, "-o",
               tmp_path / "n.onnx").stdout
    assert "--decode" in said or "onq auto" in said
    found = json.loads(onq("debug", "--float_model", model, "--qdq_model", tmp_path / "q.onnx", *source,
                           "--json").stdout)
    assert found["activations"]
    assert {k: v.get("state", False) for k, v in found["outputs"].items()} == {
        "logits": False, "present.0.key": True, "present.0.value": True}
    assert onq("bench", model, tmp_path / "q.onnx", *source, "--runs", 2).stdout
    assert "prefill" in onq("auto", "-i", model, *source, "--time_limit", 20, "-o", tmp_path / "a.onnx").stdout


@pytest.mark.parametrize("arguments,words_of_error", [
    (["--carry", "nothing=h0"], "--carry nothing=h0: no output matches"),
    (["--carry", "hn=nothing"], "output 'hn' would go to 'nothing', which is not an input"),
    (["--carry", "(h|c)n=h0"], "outputs 'hn' and 'cn' would both go to input 'h0'"),
    (["--carry", "hn=x"], "output 'hn' is FLOAT[1,1,8], and input 'x' takes FLOAT[1,1,6]"),
    (["--no_carry", "--carry", "hn=h0"], "--no_carry and --carry cannot be combined"),
    (["--generate", "3"], "--generate is for decoders with states"),
    (["--steps_axis", "1"], "input 'x'"),
])
def test_bad_input(made, tmp_path, arguments, words_of_error):
    data = store(tmp_path / "x.npz", signals())
    axis = [] if "--steps_axis" in arguments else ["--steps_axis", 0]
    r = onq("run", made / "lstm.onnx", "--data", data, *axis, *arguments, check=False)
    assert r.returncode in (1, 2)
    assert len(r.stderr.splitlines()) == 1 and words_of_error in r.stderr


def doubling(path, out_type=onnx.TensorProto.FLOAT):
    """A state that does not fit where it goes: twice as long, or of another type, which only a run shows."""
    h, T = onnx.helper, onnx.TensorProto
    nodes = [h.make_node("Concat", ["s", "s"], ["twice"], axis=0), h.make_node("Add", ["x", "x"], ["y"]),
             h.make_node("Cast", ["twice"], ["sN"], to=out_type)]
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, [2]),
                                      h.make_tensor_value_info("s", T.FLOAT, [4])],
                         [h.make_tensor_value_info("y", T.FLOAT, [2]),
                          h.make_tensor_value_info("sN", out_type, ["n"])])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.parametrize("command", ["run", "calibrate", "bench", "static", "debug"])
def test_shapes_that_do_not_follow(tmp_path, command):
    """One line that names both tensors and the step, and nothing is written."""
    model = doubling(tmp_path / "m.onnx")
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 2), np.float32))
    first = {"run": [model], "bench": [model, model], "debug": ["--float_model", model, "--qdq_model", model]}
    out = ["-o", tmp_path / "out"] if command in ("calibrate", "static") else []
    r = onq(command, *first.get(command, ["-i", model]), "--data", tmp_path / "x.npz", "--steps_axis", 0, "--carry",
            "sN=s", *out, check=False)
    errors = [x for x in r.stderr.splitlines() if "error:" in x]
    assert r.returncode in (1, 2) and len(errors) == 1, r.stderr
    said = "--carry sN=s: output 'sN' is FLOAT[8], and input 's' takes FLOAT[4]" if command == "static" else \
        "step 0: output 'sN' cannot go to input 's'"  # `static` infers shapes first
    assert said in errors[0] and (command == "static" or "sample 'x.npz" in errors[0])
    assert not (tmp_path / "out").exists()


def test_types_that_differ(tmp_path):
    model = doubling(tmp_path / "m.onnx", onnx.TensorProto.DOUBLE)
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 2), np.float32))
    r = onq("run", model, "--data", tmp_path / "x.npz", "--steps_axis", 0, "--carry", "sN=s", check=False)
    assert r.returncode == 2 and "output 'sN' is DOUBLE[n], and input 's' takes FLOAT[4]" in r.stderr


def rated(path):
    """Steps that are multiplied by a rate, which has no axis for steps."""
    h, T = onnx.helper, onnx.TensorProto
    nodes = [h.make_node("Mul", ["x", "rate"], ["scaled"]), h.make_node("Add", ["scaled", "s"], ["sN"]),
             h.make_node("Identity", ["sN"], ["y"])]
    graph = h.make_graph(nodes, "g", [h.make_tensor_value_info("x", T.FLOAT, [2]),
                                      h.make_tensor_value_info("rate", T.FLOAT, []),
                                      h.make_tensor_value_info("s", T.FLOAT, [2])],
                         [h.make_tensor_value_info("y", T.FLOAT, [2]), h.make_tensor_value_info("sN", T.FLOAT, [2])])
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_one_value_for_all_steps_of_a_sequence(tmp_path):
    """Several sequences in one file: an array that leaves out the axis of steps has one value a sequence."""
    model, x = rated(tmp_path / "m.onnx"), np.ones((2, 3, 2), np.float32)
    run = ["run", model, "--data", tmp_path / "x.npz", "--steps_axis", 0, "--carry", "sN=s", "--json"]
    for rate in (np.array([2, 5], np.float32), np.array([[2, 2, 2], [5, 5, 5]], np.float32)):
        np.savez(tmp_path / "x.npz", x=x, rate=rate)
        found = json.loads(onq(*run).stdout)["samples"]
        assert [v["max"] for s in found for v in s["outputs"] if v["name"] == "y"] == [2, 4, 6, 5, 10, 15]
    for rate, said in ((np.float32(2), "'rate' has none: give 'rate' a first axis of 2 as well"),
                       (np.ones(3, np.float32), "array 'rate' has 3 samples, 'x' has 2")):
        np.savez(tmp_path / "x.npz", x=x, rate=rate)
        r = onq(*run, check=False)
        assert r.returncode in (1, 2) and said in r.stderr and len(r.stderr.splitlines()) == 1


def test_methods_are_known():
    assert {m for m, _ in CASES} <= set(METHODS)


def test_inspect_shows_states_in_a_line(tmp_path):
    """States of layers that differ in their number only are one line, with --all a line each; JSON has all of them."""
    model = tmp_path / "m.onnx"
    sm.decoder(model, layers=4)
    told = onq("inspect", model).stdout
    assert re.search(r"  past_key_values\.0\.key to past_key_values\.3\.key  FLOAT\[.*\], 4 of them\n", told), told
    assert told.count("past_key_values.") == 4 and told.count("present.") == 4
    assert onq("inspect", model, "--all").stdout.count("past_key_values.") == 8
    assert len(json.loads(onq("inspect", model, "--json").stdout)["inputs"]) == 11
    sm.decoder(model, layers=3)
    assert "of them" not in onq("inspect", model).stdout
