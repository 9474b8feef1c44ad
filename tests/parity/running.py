"""running.py - models in the runtime: whether they load, what they compute, how near two of them are."""
import contextlib
import io
import math
import signal

import numpy as np
import onnx
import onnxruntime

SECONDS = 60


def session(path, optimised=True):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def loads(path, optimised=True):
    """None when ONNX Runtime takes the model, else why not."""
    try:
        session(path, optimised)
    except Exception as e:  # noqa: BLE001 - every refusal counts
        return f"{type(e).__name__}: {e}"
    return None


def checks(path):
    """None when onnx's checker takes the model, else why not."""
    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as e:
        return str(e)
    return None


def each_output(s, samples):
    """All values of each output, over the samples, by name."""
    names = [o.name for o in s.get_outputs()]
    runs = [s.run(names, feed) for feed in samples]
    return {n: np.concatenate([np.asarray(r[i], dtype=np.float64).ravel() for r in runs]) for i, n in enumerate(names)}


def outputs(path, samples, optimised=True):
    """All outputs of a model over the samples, in one array."""
    s = session(path, optimised)
    return np.concatenate([np.asarray(o, dtype=np.float64).ravel() for feed in samples for o in s.run(None, feed)])


def sqnr(want, got):
    """dB; minus infinity where a value is not finite that should be."""
    sound = np.isfinite(want)
    if got.shape != want.shape or not np.isfinite(got[sound]).all():
        return -math.inf
    noise = np.sum((want[sound] - got[sound]) ** 2)
    return math.inf if noise == 0 else 10 * math.log10(max(np.sum(want[sound] ** 2), 1e-300) / noise)


class Side:
    """The outcome of one tool: see sides.py."""

    def __init__(self, path, state=None, text=""):
        self.path, self.state, self.text, self.db, self.dbs = path, state, text, None, {}

    def run(self, want, samples):
        """Loads and runs the model, unless it was not written, or there is nothing to run it on."""
        if self.state is None and not samples:
            self.state = "written"
        if self.state is not None:
            return self
        try:
            s = session(self.path)
        except Exception as e:  # noqa: BLE001 - every refusal counts
            self.state, self.text = "does not load", str(e)
            return self
        try:
            got = each_output(s, samples)
        except Exception as e:  # noqa: BLE001
            self.state, self.text = "does not run", str(e)
            return self
        self.dbs = {n: sqnr(want[n], got[n]) if n in got else -math.inf for n in want}
        self.state, self.db = "runs", min(self.dbs.values())
        return self

    def __str__(self):
        return f"{self.db:.1f} dB" if self.state == "runs" else f"{self.state} ({' '.join(self.text.split())[:200]})"

    def is_as(self, expected, interval):
        """expected as in sides.Both.expect(); interval: what a bare number means."""
        if isinstance(expected, str):
            state, _, text = expected.partition(": ")
            return self.state == state and text in self.text
        low, high = expected if isinstance(expected, tuple) else interval(expected)
        return self.state == "runs" and low <= self.db <= high


@contextlib.contextmanager
def patience(seconds=SECONDS):
    """Ends a reference that loops for ever, and keeps what it prints to itself."""
    def late(*_):
        raise TimeoutError("the reference does not end")

    old = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), \
                np.errstate(all="ignore"):
            yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)
