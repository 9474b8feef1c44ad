"""quantcase.py - one static quantization, done by the reference and by onq, and compared.

A case is a dictionary that says the same to both:

    model        ModelProto or path
    format       qdq | qoperator
    activation, weight   names of types: quint8, qint8, ...
    method       minmax | entropy | percentile | distribution
    per_channel, reduce_range, op_types, nodes_to_quantize, nodes_to_exclude
    extra        extra_options by their own names (MinimumRealRange is 0.0001, CalibTensorRangeSymmetric false, as in onq)
    overrides    TensorQuantOverrides with names of types
    preset       qdq | qnn: get_qdq_config or get_qnn_qdq_config (add_qtype_converts is an argument of the latter)

Both read the same calibration cache, which holds a range for every float tensor, so no model is run twice and what is
compared is quantization alone.
"""
import json
import logging
import pathlib
import re

import numpy as np
import onnx
import onnxruntime
import pytest
from onnxruntime import quantization as Q
from onnxruntime.quantization import calibrate as C
from onnxruntime.quantization.execution_providers import qnn

import compare
import opmodels
from common import MODELS, ONQ, ROOT, onq  # noqa: F401 - for those who import them from here
from running import Side, checks, each_output, loads, outputs, session  # noqa: F401

TYPES = {"qint8": Q.QuantType.QInt8, "quint8": Q.QuantType.QUInt8, "qint16": Q.QuantType.QInt16,
         "quint16": Q.QuantType.QUInt16, "qint4": Q.QuantType.QInt4, "quint4": Q.QuantType.QUInt4,
         "qfloat8e4m3fn": Q.QuantType.QFLOAT8E4M3FN}
METHODS = {"minmax": C.CalibrationMethod.MinMax, "entropy": C.CalibrationMethod.Entropy,
           "percentile": C.CalibrationMethod.Percentile, "distribution": C.CalibrationMethod.Distribution}
FORMATS = {"qdq": Q.QuantFormat.QDQ, "qoperator": Q.QuantFormat.QOperator}

# What every format is tried with on every operator.
VARIANTS = {
    "": {},
    "per_channel": {"per_channel": True},
    "int8": {"activation": "qint8"},
    "force": {"extra": {"ForceQuantizeNoInputCheck": True}},
}
every_operator = pytest.mark.parametrize("name, opset", [pytest.param(name, opset, id=f"{name}@{opset}")
                                                         for name in opmodels.NAMES for opset in (11, 13, 17, 21)
                                                         if opmodels.exists(name, opset)])
logging.getLogger().setLevel(logging.ERROR)


class Reader(Q.CalibrationDataReader):
    def __init__(self, samples):
        self.samples, self.at, self.end = samples, 0, len(samples)

    def get_next(self):
        if self.at >= self.end:
            return None
        self.at += 1
        return self.samples[self.at - 1]

    def __len__(self):
        return len(self.samples)

    def set_range(self, start_index, end_index):
        self.at, self.end = start_index, min(end_index, len(self.samples))


def dynamic_reference(case, path, out):
    """quantize_dynamic for a case: weight, per_channel, reduce_range, op_types, nodes, extra, external."""
    Q.quantize_dynamic(str(path), str(out), weight_type=TYPES[case.get("weight", "qint8")],
                       per_channel=case.get("per_channel", False), reduce_range=case.get("reduce_range", False),
                       op_types_to_quantize=case.get("op_types"), nodes_to_exclude=case.get("nodes_to_exclude"),
                       nodes_to_quantize=case.get("nodes_to_quantize"), extra_options=dict(case.get("extra", {})),
                       use_external_data_format=case.get("external", False))


def dynamic_options(case):
    """The same as options of `onq dynamic`."""
    words = ["--weight_type", case.get("weight", "qint8")]
    words += [f"--{flag}" for flag in ("per_channel", "reduce_range") if case.get(flag)]
    for name, option in (("op_types", "op_types_to_quantize"), ("nodes_to_quantize", "nodes_to_quantize"),
                         ("nodes_to_exclude", "nodes_to_exclude")):
        for v in case.get(name) or []:
            words += [f"--{option}", v]
    for k, v in case.get("extra", {}).items():
        words += ["--extra", f"{k}={str(v).lower()}"]
    if case.get("external"):
        words.append("--use_external_data_format")
    return words


class Bench:
    """A folder with models, their caches and results."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.n = 0
        self.samples = {}

    def add(self, name, model, samples, methods=("minmax",)):
        """Saves the model and calibrates all its float tensors."""
        path = self.folder / f"{name}.onnx"
        self.samples[name] = samples
        if not path.exists():
            onnx.save(model, path)
        for method in methods:
            cache = self.folder / f"{name}.{method}.json"
            if cache.exists():
                continue
            try:
                calibrator = C.create_calibrator(path, None, str(self.folder / "augmented.onnx"), METHODS[method])
                calibrator.collect_data(Reader(samples))
                C.save_tensors_data(calibrator.compute_data(), cache)
            except Exception:  # noqa: BLE001 - the reference does not calibrate every graph this way
                self.range_by_running(model, samples, method, cache)
        return path

    def range_by_running(self, model, samples, method, cache):
        """Ranges of a graph that the reference's calibrators refuse (If with a histogram): by plain runs."""
        m = onnx.shape_inference.infer_shapes(model)
        names = [v.name for v in list(m.graph.value_info) + list(m.graph.input)
                 if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT]
        made = {o for n in m.graph.node for o in n.output}
        for v in m.graph.value_info:
            if v.name in names and v.name in made:
                m.graph.output.append(v)
        outs = list(dict.fromkeys(o.name for o in m.graph.output))
        session = onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
        data = {}
        for feed in samples:
            values = dict(zip(outs, session.run(outs, feed)), **feed)
            for k, v in values.items():
                if v.dtype == np.float32:
                    lo, hi = data.get(k, (np.inf, -np.inf))
                    data[k] = (min(lo, v.min()), max(hi, v.max()))
        data = {k: C.TensorData(lowest=np.float32(a), highest=np.float32(b)) for k, (a, b) in data.items()}
        C.save_tensors_data(C.TensorsData(METHODS[method], data), cache)

    # ---- the two tools

    def reference(self, case, path, cache, out, samples=None):
        """Ranges come from the cache, or where it is None from the samples."""
        reader = None if samples is None else Reader(samples)
        extra = {"MinimumRealRange": 0.0001, "CalibTensorRangeSymmetric": False}
        extra.update(case.get("extra", {}))
        over = {k: [self.typed(d) for d in v] for k, v in case.get("overrides", {}).items()}
        kwargs = dict(activation_type=TYPES[case.get("activation", "quint8")],
                      per_channel=case.get("per_channel", False), calibrate_method=METHODS[case.get("method", "minmax")],
                      op_types_to_quantize=case.get("op_types"), nodes_to_exclude=case.get("nodes_to_exclude"))
        preset = case.get("preset")
        if preset:
            kwargs["weight_type"] = TYPES[case.get("weight", "quint8" if preset == "qnn" else "qint8")]
            if preset == "qdq":
                config = Q.get_qdq_config(str(path), None, tensor_quant_overrides=over,
                                          reduce_range=case.get("reduce_range", False),
                                          extra_options=case.get("extra"), **kwargs)
            else:
                config = qnn.get_qnn_qdq_config(str(path), None, init_overrides=over,
                                                add_qtype_converts=case.get("add_qtype_converts", True), **kwargs)
                config.extra_options.update(case.get("extra", {}))
            Q.quantize_static(str(path), str(out), reader, calibrate_method=config.calibrate_method,
                              quant_format=config.quant_format, activation_type=config.activation_type,
                              weight_type=config.weight_type, op_types_to_quantize=config.op_types_to_quantize,
                              nodes_to_exclude=config.nodes_to_exclude, per_channel=config.per_channel,
                              reduce_range=config.reduce_range, extra_options=config.extra_options,
                              use_external_data_format=config.use_external_data_format, calibration_cache_path=cache)
            return
        if over:
            extra["TensorQuantOverrides"] = over
        Q.quantize_static(str(path), str(out), reader, quant_format=FORMATS[case.get("format", "qdq")],
                          weight_type=TYPES[case.get("weight", "qint8")], reduce_range=case.get("reduce_range", False),
                          nodes_to_quantize=case.get("nodes_to_quantize"), extra_options=extra,
                          calibration_cache_path=cache, **kwargs)

    @staticmethod
    def typed(d):
        """A dictionary of overrides as the reference wants it: types, numpy scalars, sets."""
        out = {}
        for k, v in d.items():
            if k == "quant_type":
                v = TYPES[v]
            elif k in ("scale", "rmin", "rmax"):
                v = np.array(v, dtype=np.float32)
            elif k == "zero_point":
                v = np.array(v)
            elif k == "recv_nodes":
                v = set(v)
            elif k == "convert":
                v = Bench.typed(v)
            out[k] = v
        return out

    def options(self, case, out):
        """What the case says, as options of `onq static`."""
        words = []
        if "format" in case:
            words += ["--quant_format", case["format"]]
        if "activation" in case:
            words += ["--activation_type", case["activation"]]
        if "weight" in case:
            words += ["--weight_type", case["weight"]]
        if "method" in case:
            words += ["--calibration_method", case["method"]]
        if "preset" in case:
            words += ["--preset", case["preset"]]
        if "add_qtype_converts" in case:
            words += ["--add_qtype_converts", str(case["add_qtype_converts"])]
        for flag in ("per_channel", "reduce_range"):
            if case.get(flag):
                words.append(f"--{flag}")
        for name, option in (("op_types", "op_types_to_quantize"), ("nodes_to_quantize", "nodes_to_quantize"),
                             ("nodes_to_exclude", "nodes_to_exclude")):
            for v in case.get(name) or []:
                words += [f"--{option}", v]
        for k, v in case.get("extra", {}).items():
            if isinstance(v, dict):
                v = ",".join(f"{a}:{b}" for a, b in v.items())
            elif isinstance(v, (list, tuple)):
                v = ",".join(v)
            elif v is None:
                v = "none"
            words += ["--extra", f"{k}={str(v).lower() if isinstance(v, bool) else v}"]
        if "overrides" in case:
            over = self.folder / f"{out.stem}.overrides.json"
            over.write_text(json.dumps(case["overrides"]))
            words += ["--tensor_quant_overrides", str(over)]
        return words

    def run(self, name, case, keep=False):
        """A Result of the case on the model that was added under that name; its files stay with `keep`."""
        self.n += 1
        method = case.get("method", "minmax")
        path, cache = self.folder / f"{name}.onnx", self.folder / f"{name}.{method}.json"
        ref, got = self.folder / f"{self.n}.ref.onnx", self.folder / f"{self.n}.got.onnx"
        result = Result(case)
        result.ref, result.got = ref, got
        try:
            self.reference(case, path, cache, ref)
        except Exception as e:  # noqa: BLE001 - the reference fails in many ways
            result.ref_error = f"{type(e).__name__}: {e}"
        # Not looked at in the runtime, which would mend what is to be compared as it is.
        words = ["static", "-i", path, "-o", got, "--calibration_cache", cache, "--no_verify", *self.options(case, got)]
        done = onq(*words)
        result.command = " ".join(map(str, words))
        result.stderr = done.stderr
        result.status = done.returncode
        if done.returncode == 0:
            result.load_error = loads(got)
            result.check_error = None if checks(path) else checks(got)
            if result.load_error:
                result.plain_load_error = loads(got, optimised=False)
            if result.ref_error is None:
                result.diffs = compare.differences(ref, got)
                if result.diffs or result.load_error:
                    result.ref_load_error = loads(ref)
                    result.ref_check_error = checks(ref)
            if result.ref_error or result.diffs:
                result.measure(path, ref, got, self.samples[name])
        for f in (ref, got):
            if f.exists() and not keep:
                f.unlink()
        return result


class Result:
    def __init__(self, case):
        self.case = case
        self.command = ""
        self.check_error = self.ref_check_error = None
        self.ref_error = self.load_error = self.plain_load_error = self.ref_load_error = None
        self.diffs = None
        self.theirs = self.ours = None  # Side, where the files differ
        self.status = None
        self.stderr = ""
        self.ref = self.got = None

    def measure(self, path, ref, got, samples):
        """How near either result is to the float model."""
        want = each_output(session(path), samples)
        self.theirs = Side(ref, "raises", self.ref_error) if self.ref_error else Side(ref)
        self.ours = Side(got)
        for side in (self.theirs, self.ours):
            side.run(want, samples)

    @property
    def verdict(self):
        """identical; else what is the matter:

        both_refuse     neither tool does it
        only_onq        the reference fails, onq's result loads
        ref_unloadable  the reference's result does not load, onq's does
        ref_invalid     the reference's result is refused by onnx's checker, onq's is not
        runtime_bug     loads only without the runtime's optimisations; so does the reference's, if there is one
        refused, unloadable, invalid (for onnx's checker), differs   onq's fault
        """
        if self.status != 0:
            return "both_refuse" if self.ref_error else "refused"
        if self.check_error:
            return "invalid"
        if self.load_error and not self.plain_load_error and (self.ref_error or
                                                              (not self.diffs and self.ref_load_error)):
            return "runtime_bug"
        if self.load_error:
            return "unloadable"
        if self.ref_error:
            return "only_onq"
        if not self.diffs:
            return "identical"
        if self.ref_load_error:
            return "ref_unloadable"
        return "ref_invalid" if self.ref_check_error else "differs"

    def text(self):
        return (f"{self.verdict}\n{self.command}\nreference: {self.theirs} | onq: {self.ours}\nref: {self.ref_error} {self.ref_load_error}\nonq: {self.status} "
                f"{self.stderr[-600:]} {self.load_error} {self.check_error}\n" + "\n".join(self.diffs or []))


# ---- what is expected

ON_PURPOSE = ("differs", "only_onq", "ref_unloadable", "ref_invalid")
LEAST = 5  # dB that a result reaches where there is none of the reference's; ppocrv4_det has 7.7
SLACK = 1  # dB that one output may lose where another wins many


def has_section(heading):
    """Is it a heading of docs/DIFFERENCES.md?"""
    return f"\n## {heading}\n" in (ROOT / "docs" / "DIFFERENCES.md").read_text()


def judge(known, name, result):
    """The verdict is identical, or what the last row of `known` that fits the name announces.

    A row: regular expression, verdict, section of docs/DIFFERENCES.md that says why. What differs on purpose runs, and is no
    further from the float model than the reference's result.
    """
    want, section = "identical", None
    for pattern, verdict, where in known:
        if re.fullmatch(pattern, name):
            want, section = verdict, where
    assert section is None or has_section(section), f"docs/DIFFERENCES.md has no section '{section}'"
    assert result.verdict == want, f"{name}: wanted {want}\n{result.text()}"
    if want in ON_PURPOSE:
        least = result.theirs.db - SLACK if result.theirs.state == "runs" else LEAST
        assert result.ours.state == "runs" and result.ours.db >= least, f"{name}\n{result.text()}"
