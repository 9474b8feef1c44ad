"""sides.py - what the reference and onq make of one model, side by side: for the tests that docs/DIFFERENCES.md rests on.

    both = sides.static(tmp_path, model, samples, per_channel=True)        # keywords: a case of quantcase.py
    both = sides.dynamic(tmp_path, model, samples, weight="quint8")
    both = sides.made(tmp_path, model, samples, reference, "preprocess")   # any call, any command
    both.expect("does not load: Unrecognized attribute", 35)

The outcome of a side is one of

    raises          with its message; for onq, with what it prints
    does not end    within SECONDS; the reference only
    does not load   in a session with default options
    does not run
    written         where there are no samples
    NN.N dB         the least SQNR of an output against the float model's, over all samples

expect() takes one for each side: "raises", "raises: a part of the message", or a number. The number is the most that the
reference reaches and the least that onq does; a pair of numbers is an interval for either.
"""
import math
import pathlib

import numpy as np
import onnx
from onnx import helper, numpy_helper

import calibtool
import quantcase
from common import onq
from running import SECONDS, Side, each_output, patience, session


class Both:
    def __init__(self, reference, onq, warnings):
        self.reference, self.onq, self.warnings = reference, onq, warnings

    def __str__(self):
        return f"reference: {self.reference} | onq: {self.onq}"

    def expect(self, reference, onq):
        good = self.reference.is_as(reference, lambda n: (-math.inf, n)) and self.onq.is_as(onq, lambda n: (n, math.inf))
        assert good, f"{self}; wanted reference: {reference} | onq: {onq}"
        return self

    def models(self):
        return onnx.load(self.reference.path), onnx.load(self.onq.path)


def made(folder, model, samples, reference, *words, seconds=SECONDS):
    """Both sides: reference(path, out) writes its file, `onq WORDS -i path -o out` the other."""
    folder = pathlib.Path(folder)
    path, ref, got = (folder / f"{n}.onnx" for n in ("float", "reference", "onq"))
    onnx.save(model, path)
    for p in (ref, got):
        p.unlink(missing_ok=True)
    left = Side(ref)
    try:
        with patience(seconds):
            reference(path, ref)
    except TimeoutError as e:
        left = Side(ref, "does not end", str(e))
    except Exception as e:  # noqa: BLE001 - the reference fails in many ways
        left = Side(ref, "raises", f"{type(e).__name__}: {e}")
    if left.state is None and not ref.exists():
        left = Side(ref, "raises", "no file was written")
    done = onq(*words, "-i", path, "-o", got)
    right = Side(got) if done.returncode == 0 else Side(got, "raises", done.stderr)
    want = each_output(session(path), samples) if samples else {}
    return Both(left.run(want, samples), right.run(want, samples), done.stderr)


def static(folder, model, samples, *words, seconds=SECONDS, **case):
    """Both sides of quantize_static; words: further options of onq alone."""
    data = pathlib.Path(folder) / "samples"
    if not data.exists():
        calibtool.write_samples(data, samples)
    bench = quantcase.Bench(folder)
    options = bench.options(case, pathlib.Path(folder) / "onq.onnx")
    return made(folder, model, samples, lambda path, out: bench.reference(case, path, None, out, samples),
                "static", "--data", data, *options, *words, seconds=seconds)


def dynamic(folder, model, samples, *words, **case):
    """Both sides of quantize_dynamic."""
    return made(folder, model, samples, lambda path, out: quantcase.dynamic_reference(case, path, out),
                "dynamic", *quantcase.dynamic_options(case), *words)


# ---- small models

def array(name, values, dtype=np.float32):
    return numpy_helper.from_array(np.asarray(values, dtype=dtype), name)


def info(name, shape, dtype=onnx.TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inits, x, y, opset=17, ir_version=8, dtype=onnx.TensorProto.FLOAT, domains=()):
    """A model of input x and output y, given as shapes, or of several, given as dictionaries of shapes."""
    ins, outs = ([info(n, s, dtype) for n, s in v.items()] for v in (
        x if isinstance(x, dict) else {"x": x}, y if isinstance(y, dict) else {"y": y}))
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(helper.make_graph(nodes, "g", ins, outs, inits), ir_version=ir_version, opset_imports=imports)


def feeds(rng, shape, n=4, dtype=np.float32):
    """Samples of input x."""
    return [{"x": rng.normal(size=shape).astype(dtype)} for _ in range(n)]
