"""judge.py - runs a command on a case and says what is wrong with how it went; an empty list is what all of this is for.

Whatever comes in: a status of 0, 1 or 2, within the limits of time and memory, without a word from a sanitizer. A refusal is one line
that names the file, free of control bytes, and leaves everything as it was, an old output too. A result is whole, nothing lies
beside it, and a model that was written loads and runs in ONNX Runtime wherever the model it came from does; where that does not,
the onnx package's checker takes it.
"""
import dataclasses
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import threading
import unicodedata

import commands
import numpy as np
import onnx
import onnxruntime
from cases import network
from common import ONQ, runtime
from onnx import TensorProto, numpy_helper

PATIENCE = float(os.environ.get("ONQ_HOSTILE_PATIENCE", "1"))  # for slower machines and valgrind
WINDOWS = os.environ.get("ONQ_SYSTEM") == "windows"  # the program runs under wine
SANITIZED = b"__asan_" in pathlib.Path(ONQ).read_bytes()
CPU_SECONDS = (10 if not SANITIZED else 40) * PATIENCE
WALL_SECONDS = 150 * PATIENCE  # a hang; not what a busy machine does to a run
MEMORY = (1 << 30) if not SANITIZED else (3 << 29)  # the sanitizer keeps what was freed for a while
OLD = b"what was there before"
MARK = b"onq-unknown-mark"
PLAIN = "only with graph optimisation off"  # the warning about results that the runtime's own fusions cannot take
ENVIRONMENT = {
    **os.environ, **runtime(), "LC_ALL": "C.UTF-8", "ORT_DISABLE_TELEMETRY": "1",
    "ASAN_OPTIONS": "detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1:exitcode=99:quarantine_size_mb=16",
    "LSAN_OPTIONS": f"suppressions='{pathlib.Path(__file__).parents[1] / 'harness' / 'lsan.supp'}':print_suppressions=0:exitcode=99",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1:exitcode=99",
}


@dataclasses.dataclass
class Ended:
    status: int
    out: str
    err: str
    cpu: float
    memory: int
    hung: bool


def environment_of(words):
    """verify runs models in a worker that may not trace, which looking for leaks needs."""
    asan = ENVIRONMENT["ASAN_OPTIONS"] + (":detect_leaks=0" if words[0] == "verify" else "")
    return {**ENVIRONMENT, "ASAN_OPTIONS": asan}


def homes(home):
    """Where temporary files and caches go. Wine has files of its own in these places, and starts anew when they are others."""
    return {} if WINDOWS else {"HOME": str(home), "TMPDIR": str(home), "XDG_CACHE_HOME": str(home)}


def run(words, cwd, home):
    """Runs onq; its temporary and cache folders are in `home`."""
    with open(home.parent / "stdout", "w+b") as out, open(home.parent / "stderr", "w+b") as err:
        job = subprocess.Popen([ONQ, *words], cwd=cwd, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                               env={**environment_of(words), **homes(home)})
        hung = threading.Event()

        def end():
            hung.set()
            job.kill()

        timer = threading.Timer(WALL_SECONDS, end)
        timer.start()
        _, status, usage = os.wait4(job.pid, 0)
        timer.cancel()
        job.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        return Ended(job.returncode, out.read().decode("utf-8", "backslashreplace"), err.read().decode("utf-8", "backslashreplace"),
                     usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10, hung.is_set())


def listing(folder):
    """Everything below a folder: path -> what it is and when it changed."""
    found = {}
    for root, folders, files in os.walk(folder):
        for name in folders + files:
            path = os.path.join(root, name)
            s = os.lstat(path)
            when = s.st_mtime_ns if stat.S_ISREG(s.st_mode) else 0
            found[os.path.relpath(path, folder)] = (stat.S_IFMT(s.st_mode), s.st_size if stat.S_ISREG(s.st_mode) else 0, when)
    return found


# ---- models in the runtime

NUMPY = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(double)": np.float64, "tensor(int64)": np.int64,
         "tensor(int32)": np.int32, "tensor(bool)": np.bool_, "tensor(uint8)": np.uint8, "tensor(int8)": np.int8}


def feed(session):
    """Inputs that fit, the same ones for the same model; None where there is no fitting."""
    rng = np.random.default_rng(5)
    made = {}
    for i in session.get_inputs():
        shape = [d if isinstance(d, int) and d >= 0 else 2 for d in i.shape]
        if i.type not in NUMPY or np.prod(shape, dtype=float) > 1e6:
            return None
        dtype = NUMPY[i.type]
        made[i.name] = rng.standard_normal(shape).astype(dtype) if np.dtype(dtype).kind == "f" else rng.integers(0, 2, shape).astype(dtype)
    return made


def computes(path, plain=False):
    """(None, outputs) of a model that loads and runs, or (why not, None). Loading alone counts where no inputs fit. `plain`: without optimisation."""
    options = onnxruntime.SessionOptions()
    if plain:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        inputs = feed(session)
        return None, None if inputs is None else session.run(None, inputs)
    except Exception as e:  # noqa: BLE001 - whatever the runtime or its binding says
        return f"{type(e).__name__}: {e}"[:300], None


def near(want, got):
    """Whether the outputs are those of the same network, quantized."""
    if want is None or got is None:
        return want is None
    if len(want) != len(got):
        return False
    for a, b in zip(want, got):
        a, b = np.asarray(a, dtype=np.float64).ravel(), np.asarray(b, dtype=np.float64).ravel()
        if a.shape != b.shape or not np.isfinite(b).all():
            return False
        length = np.linalg.norm(a) * np.linalg.norm(b)
        if length > 0 and a @ b < 0.7 * length:
            return False
    return True


# ---- models and the onnx package

def teach_checker():
    """ONNX Runtime has LayerNormalization at every opset, the package since 17 only."""
    known = onnx.defs.get_schema("LayerNormalization", 17)
    onnx.defs.register_schema(onnx.defs.OpSchema(
        known.name, known.domain, 1, inputs=known.inputs, outputs=known.outputs, attributes=list(known.attributes.values()),
        type_constraints=[(t.type_param_str, t.allowed_type_strs, t.description) for t in known.type_constraints]))


teach_checker()


def check_by_package(path):
    """Raises what the package finds wrong. IR versions that came after it change nothing that it looks at."""
    model = onnx.load(str(path), load_external_data=False)
    if model.ir_version > onnx.IR_VERSION:
        model.ir_version = onnx.IR_VERSION
        path = path.with_name("older.onnx")
        path.write_bytes(model.SerializeToString())
    onnx.checker.check_model(str(path))


class Judge:
    """Runs cases one at a time in a folder of its own."""

    def __init__(self, folder):
        self.folder = folder
        self.good = network().SerializeToString()
        self.last = None  # the case whose model `self.before` is about

    def wrong(self, case, name, old_output):
        """What is wrong, and how it ended."""
        row = commands.COMMANDS[name]
        work, home = self.folder / "work", self.folder / "home"
        for f in (work, home):
            shutil.rmtree(f, ignore_errors=True)
            f.mkdir(parents=True)
        if case.slot == "words":
            (work / "m.onnx").write_bytes(self.good)
        else:
            case.write(work)
        (work / "good.onnx").write_bytes(self.good)
        (work / "p.json").write_text(json.dumps({name: [100, 0.05] for name in ("X", "c", "r", "f", "Y")}))
        targets = [w for w in row.writes if "." in w and not os.path.lexists(work / w)]
        if old_output and case.slot not in ("output", "settings"):
            for w in targets:
                (work / w).write_bytes(OLD)
        before = listing(self.folder)
        ended = run(commands.words_of(row, case), work, home)
        after = listing(self.folder)
        for place in ("stdout", "stderr"):
            before.pop(place, None)
            after.pop(place, None)
        faults = list(self.conduct(case, name, row, ended, before, after))
        if not faults and ended.status == 0:
            faults = list(self.texts(name, ended, work))
        if not faults and ended.status == 0 and row.model and (work / "out.onnx").is_file():
            faults = list(self.result(case, name, work, plain=PLAIN in ended.err))
        return faults, ended

    def conduct(self, case, name, row, ended, before, after):
        """Status, words, limits, and what lies about."""
        if ended.hung:
            yield f"still running after {WALL_SECONDS:.0f} s"
            return
        if "Sanitizer" in ended.err or "runtime error:" in ended.err or ended.status == 99:
            yield "sanitizer: " + ended.err[-3000:]
            return
        if ended.status not in (0, 1, 2):
            yield f"status {ended.status}: {ended.err[-500:]}"
        allowance = case.allow.get(name, 1)
        if ended.cpu > CPU_SECONDS * allowance:
            yield f"{ended.cpu:.1f} s of CPU time"
        if ended.memory > MEMORY * allowance:
            yield f"{ended.memory >> 20} MiB"
        for text in (ended.out, ended.err):
            bad = [c for c in text if c != "\n" and (unicodedata.category(c) == "Cc")]
            if bad and not (case.slot == "words" and text is ended.out):
                yield f"control characters reach the terminal: {bad[:3]!r}"
        lines = [line for line in ended.err.split("\n") if line.startswith("onq: error: ")]
        differs = name.startswith(("diff", "verify")) and ended.status == 1 and not lines  # the answer is no
        if ended.status in (1, 2) and not differs:
            if len(lines) != 1 or len(ended.err) > 6000:
                yield f"not one line of error: {ended.err[:700]!r}"
            elif ended.status == 1 and case.files and not any(f in lines[0] for f in (*case.files, *row.reads)):
                yield f"the file is not named: {lines[0]}"
            elif ended.status == 2 and case.slot not in ("words", "output"):
                yield f"the command line is blamed: {lines[0]}"
        elif lines:
            yield f"status {ended.status}, and yet: {lines[0]}"
        if case.wants == "done" and ended.status != 0 and not differs and self.must_do(case, name):
            yield f"refused what is sound: {lines[0] if lines else ended.err[:300]}"
        if case.wants == "refused" and ended.status == 0:
            yield "taken, and it should not be"
        allowed = set(row.writes) | {f"{w}.data" for w in row.writes} if ended.status == 0 else set()
        if case.slot == "words":
            allowed |= {case.content[1].split("=", 1)[1]}
        if case.slot == "output" and case.name == "link-to-a-file":
            allowed |= {"old.onnx"}
        for path in sorted(set(before) | set(after)):
            top = pathlib.PurePath(path).parts[1] if "/" in path else path
            rescued = re.fullmatch(r"home/onq-ranges-\w+\.json", path) and pathlib.PurePath(path).name in ended.err
            if rescued and path not in before:
                continue
            if before.get(path) != after.get(path) and not (path.startswith("work/") and top in allowed) and path not in ("work", "home"):
                yield f"{'left behind' if path not in before else 'lost' if path not in after else 'changed'}: {path}"

    @staticmethod
    def texts(name, ended, work):
        """JSON is JSON in UTF-8; names from files are no markup of a page. What was there before is not looked at."""
        written = lambda pattern: [p for p in work.glob(pattern) if p.is_file() and p.read_bytes() != OLD]  # noqa: E731
        try:
            if name.endswith("-json"):
                json.loads(ended.out)
            for ranges in written("ranges.json"):
                json.loads(ranges.read_bytes().decode())
            for page in written("*.html"):
                text = page.read_bytes().decode()
                if text.count("<script") != 2 or text.count("</script") != 2 or "<img" in text:
                    yield f"{page.name}: markup from a name"
        except ValueError as e:
            yield f"what was written is no text: {e}"

    @staticmethod
    def must_do(case, name):
        """Commands that have a use for the network that the sound cases are."""
        if name == "kvcache":  # it is for decoders, and says so
            return False
        if case.slot != "model":
            return True
        if name == "auto" and case.name == "trained":  # it refuses what is quantized already
            return False
        return not name.startswith(("debug", "legacy-qlinear"))

    def result(self, case, name, work, plain):
        """The model that was written."""
        data = (work / "out.onnx").read_bytes()
        try:
            model = onnx.load_from_string(data)
        except Exception as e:  # noqa: BLE001
            yield f"Python cannot read the result: {e}"
            return
        for t in model.graph.initializer:
            if t.name.endswith("_scale") and t.data_type == TensorProto.FLOAT and case.cls not in ("names", "flips", "language"):
                if t.HasField("raw_data") or t.float_data:
                    values = numpy_helper.to_array(t)
                    if not (np.isfinite(values).all() and (values > 0).all()):
                        yield f"scale {t.name} is {values.ravel()[:3]}"
        if case.cls == "unknown fields" and not name.startswith(("preprocess", "auto", "static-16")) and case.name != "initializer" and MARK not in data:
            yield "unknown fields are lost"
        if case.heavy:
            return
        if self.last is not case:
            self.last, self.before = case, computes(work / "m.onnx")
        why, want = self.before
        failed, got = computes(work / "out.onnx", plain)
        if why is None and failed is not None:
            yield f"the result does not run, the model does: {failed}"
        elif why is None and case.right and not near(want, got):
            yield "the result computes something else"
        elif why is not None and failed is not None:
            try:
                check_by_package(work / "out.onnx")
            except Exception as e:  # noqa: BLE001 - ValidationError and what protobuf raises
                yield f"the result is not valid: {e}"[:400]
