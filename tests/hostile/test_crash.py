"""test_crash.py - processes that are stopped, killed or starved at any moment, and processes that meet at one output.

Whatever happens, an output is what was there before or the whole result. SIGINT and SIGTERM leave nothing else; after SIGKILL at most a
hidden file named after its target may stay, where the system has no files without a name. $ONQ_HOSTILE_ROUNDS moments are tried for
each command and signal (default 4), drawn by $ONQ_HOSTILE_SEED.
"""
import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import time

import pytest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "parity"))

from common import ONQ, ROOT, runtime  # noqa: E402

ROUNDS = int(os.environ.get("ONQ_HOSTILE_ROUNDS", "4"))
SEED = int(os.environ.get("ONQ_HOSTILE_SEED", "1"))
MODEL = ROOT / "examples" / "digits_cnn" / "model.onnx"
OLD = b"what was there before"
JOBS = {
    "static": ["static", "-i", str(MODEL), "-o", "out/q", "--data", "random:40"],
    "entropy": ["static", "-i", str(MODEL), "-o", "out/q", "--data", "random:8", "--method", "entropy"],
    "dynamic": ["dynamic", "-i", str(MODEL), "-o", "out/q"],
    "nbits": ["nbits", "-i", str(MODEL), "-o", "out/q", "--op_types_to_quantize", "all", "--quant_method", "hqq"],
    "preprocess": ["preprocess", "-i", str(MODEL), "-o", "out/q"],
    "calibrate": ["calibrate", "-i", str(MODEL), "-o", "out/q", "--data", "random:40", "--method", "percentile"],
    "legacy": ["legacy", "-i", str(MODEL), "-o", "out/q"],
    "bnb4": ["bnb4", "-i", str(MODEL), "-o", "out/q"],
}
ENVIRONMENT = {**os.environ, **runtime(), "LC_ALL": "C.UTF-8"}


def start(words, folder, **more):
    return subprocess.Popen([ONQ, *words], cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            env={**ENVIRONMENT, "TMPDIR": str(folder / "tmp"), "HOME": str(folder / "tmp")}, **more)


@pytest.fixture
def folder(tmp_path):
    for name in ("out", "tmp"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """What each job writes when nothing happens, and how long it takes."""
    made = {}
    for name, words in JOBS.items():
        where = tmp_path_factory.mktemp(name)
        (where / "out").mkdir()
        (where / "tmp").mkdir()
        begun = time.monotonic()
        job = start(words, where)
        err = job.communicate(timeout=300)[1]
        assert job.returncode == 0, err
        made[name] = (where / "out" / "q").read_bytes(), time.monotonic() - begun
    return made


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda s: s.name)
@pytest.mark.parametrize("name", JOBS)
def test_stopped_at_any_moment(name, number, folder, wanted):
    result, span = wanted[name]
    r = random.Random(f"{SEED}:{name}:{number}")
    out = folder / "out" / "q"
    for _ in range(ROUNDS):
        out.write_bytes(OLD)
        moment = r.random() * span
        job = start(JOBS[name], folder)
        time.sleep(moment)
        with contextlib.suppress(ProcessLookupError):
            job.send_signal(number)
        err = job.communicate(timeout=300)[1].decode()
        assert job.returncode in (0, -number), (moment, job.returncode, err)
        assert out.read_bytes() in ((OLD, result) if number == signal.SIGKILL else (result,) if job.returncode == 0 else (OLD, result)), moment
        beside = {p.name for p in (folder / "out").iterdir()} - {"q"}
        if number == signal.SIGKILL:
            beside = {b for b in beside if not b.startswith(".q.onq-")}
        else:
            assert not os.listdir(folder / "tmp"), moment
        assert not beside, (moment, beside)


def no_room(bytes_left):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_left, bytes_left))

    return limit


@pytest.mark.parametrize("name", JOBS)
def test_no_room(name, folder, wanted):
    """A limit on the size of files: one line, and the old output stays."""
    result, _ = wanted[name]
    out = folder / "out" / "q"
    for room in (0, 1, len(result) // 2, len(result) - 1):
        out.write_bytes(OLD)
        job = start(JOBS[name], folder, preexec_fn=no_room(room))
        err = job.communicate(timeout=300)[1].decode()
        assert job.returncode == 1, (room, err)
        assert [line for line in err.splitlines() if line.startswith("onq: error: ")] == [err.splitlines()[-1]], err
        assert out.read_bytes() == OLD and os.listdir(folder / "out") == ["q"], room
        for kept in (folder / "tmp").iterdir():  # ranges that took a calibration to find: the message says where they are
            assert str(kept) in err
            kept.unlink()


@contextlib.contextmanager
def mounted(where, *options):
    """A small file system of its own, where one may be mounted."""
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", ",".join(["size=64k", *options]), "tmpfs", str(where)], capture_output=True)
    if done.returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(where)], check=True)


@pytest.mark.parametrize("name", JOBS)
def test_full_disk(name, folder, wanted):
    with mounted(folder / "out"):
        (folder / "out" / "q").write_bytes(OLD)
        (folder / "out" / "other").write_bytes(bytes(50000))
        job = start(JOBS[name], folder)
        err = job.communicate(timeout=300)[1].decode()
        if job.returncode == 0:
            assert (folder / "out" / "q").read_bytes() == wanted[name][0]
        else:
            assert job.returncode == 1 and "out/" in err.splitlines()[-1], err
            assert (folder / "out" / "q").read_bytes() == OLD
        assert sorted(os.listdir(folder / "out")) == ["other", "q"]


@pytest.mark.parametrize("name", JOBS)
def test_read_only_folder(name, folder):
    with mounted(folder / "out", "ro"):
        job = start(JOBS[name], folder)
        err = job.communicate(timeout=300)[1].decode()
        assert job.returncode == 1 and "out/q" in err.splitlines()[-1], err
        assert not os.listdir(folder / "out") and not os.listdir(folder / "tmp")


@pytest.mark.parametrize("name", JOBS)
def test_few_open_files(name, folder, wanted):
    """However few, either they suffice or the message says what is wrong, and what was there stays."""
    (folder / "out" / "q").write_bytes(OLD)
    for most in range(4, 24):
        job = start(JOBS[name], folder, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (most, most)))
        err = job.communicate(timeout=300)[1].decode()
        if job.returncode == 0:
            assert (folder / "out" / "q").read_bytes() == wanted[name][0]
            break
        if job.returncode == 1:  # 127: the loader of programs has too few already
            assert "Too many open files" in err.splitlines()[-1], err
        assert job.returncode in (1, 127), err
        assert (folder / "out" / "q").read_bytes() == OLD
    assert job.returncode == 0, err
    assert os.listdir(folder / "out") == ["q"] and not os.listdir(folder / "tmp")


@pytest.mark.parametrize("pair", [("static", "dynamic"), ("nbits", "nbits"), ("calibrate", "legacy"), ("preprocess", "bnb4")], ids="-".join)
def test_two_at_one_output(pair, folder, wanted):
    """Both end well, and the output is one of the two results, whole."""
    for _ in range(ROUNDS):
        jobs = [start(JOBS[name], folder) for name in pair]
        for job in jobs:
            err = job.communicate(timeout=300)[1]
            assert job.returncode == 0, err
        assert (folder / "out" / "q").read_bytes() in [wanted[name][0] for name in pair]
        assert os.listdir(folder / "out") == ["q"]


def test_two_at_one_output_with_data_beside_it(folder):
    """A model and its external data belong together, whoever came last."""
    import onnx

    words = [["dynamic", "-i", str(MODEL), "-o", "out/q.onnx", "--use_external_data_format"],
             ["nbits", "-i", str(MODEL), "-o", "out/q.onnx", "--use_external_data_format", "--op_types_to_quantize", "all"]]
    for _ in range(ROUNDS):
        jobs = [start(w, folder) for w in words]
        for job in jobs:
            err = job.communicate(timeout=300)[1]
            assert job.returncode == 0, err
        onnx.load(str(folder / "out" / "q.onnx"))
        assert sorted(os.listdir(folder / "out")) in (["q.onnx"], ["q.onnx", "q.onnx.data"])
