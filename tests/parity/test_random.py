"""test_random.py - random models under random options, against the reference.

Each seed is a model with samples and one set of options for each command (randmodel.py). Where the reference makes a model
that runs and is near the float model, onq's is the same: nodes, names, initializers bit for bit; the order of initializers,
value_infos and the IR version may differ. Where the reference fails, onq gives a model that runs, or one line that says why not.
ONQ_SEEDS=FROM:TO tries other seeds.
"""
import collections
import contextlib
import os

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto
from onnxruntime.quantization.shape_inference import quant_pre_process

import calibtool
import compare
import quantcase
import randmodel
from running import Side, each_output, patience, session

FIRST, END = (int(x) for x in os.environ.get("ONQ_SEEDS", "0:120").split(":"))
SEEDS = range(FIRST, END)

FAR = 10  # dB
# Where the reference leaves it float, or quantizes by other steps.
OTHERWISE = ("GRU and RNN, dynamic", "Inside If, Loop and Scan, static", "Dynamic quantization at opset 10")


def runs(path, feed):
    """None when the model loads and runs, else why not. Fusions of the runtime that fail are not the model's fault."""
    why = None
    for level in (onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = level
        try:
            onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feed)
        except Exception as e:  # noqa: BLE001 - every refusal counts
            why = why or f"{type(e).__name__}: {e}"
        else:
            return None
    return why


def plain(path):
    """The model without what may differ."""
    m = onnx.load(path)
    m.ir_version = max(4, m.ir_version)
    inits = sorted(m.graph.initializer, key=lambda t: t.name)
    del m.graph.initializer[:]
    m.graph.initializer.extend(inits)
    del m.graph.value_info[:]
    for v in [*m.graph.input, *m.graph.output]:
        v.type.tensor_type.ClearField("shape")
    return m


def differences(ref, got):
    for path in (ref, got):
        onnx.save(plain(path), f"{path}.plain")
    return compare.differences(f"{ref}.plain", f"{got}.plain")


class Try:
    """One seed: the folder with model and samples, and the two results of each command."""

    def __init__(self, seed, folder):
        self.seed, self.folder = seed, folder
        self.path, self.ref, self.got = (folder / f"{n}.onnx" for n in ("m", "ref", "got"))
        self.model, self.samples = randmodel.model(seed)
        onnx.save(self.model, self.path)
        calibtool.write_samples(folder, self.samples)

    def judge(self, reference, words, on_purpose=None):
        """on_purpose: the section of docs/DIFFERENCES.md that says why the results differ."""
        if on_purpose is not None:
            assert quantcase.has_section(on_purpose), on_purpose
        error = None
        try:
            with patience():
                reference()
        except Exception as e:  # noqa: BLE001 - the reference fails in many ways
            error = e
        done = quantcase.onq(*words)
        text = f"seed {self.seed}: {' '.join(map(str, words))}\n{done.stderr}\nreference: {error!r}"
        assert done.returncode in (0, 1), text
        sound = error is None and runs(self.ref, self.samples[0]) is None
        if done.returncode == 1:
            assert not sound and "onq: error: " in done.stderr, text
            return
        why = runs(self.got, self.samples[0])
        if why is not None and error is None and not sound and not differences(self.ref, self.got):
            return  # both make the same
        assert why is None, f"{text}\n{why}"
        found = differences(self.ref, self.got) if sound else []
        if found:
            self.compare("\n".join([text, *found]), on_purpose)

    def compare(self, text, on_purpose):
        """Two results that differ. On purpose: onq's is no further from the float model. Else the reference's does not run
        as users run it, or is far from the float model, where onq's is not."""
        whole = self.folder / "whole.onnx"  # without external data, which the runtime does not take everywhere
        onnx.save(self.model, whole)
        want = each_output(session(whole), self.samples)
        theirs, ours = (Side(p).run(want, self.samples) for p in (self.ref, self.got))
        if theirs.state == "runs" and on_purpose is None:
            assert ours.state == "runs" and ours.db > theirs.db + FAR, f"{text}\nreference: {theirs} | onq: {ours}"
        elif theirs.state == "runs":
            least = min(theirs.db - quantcase.SLACK, quantcase.LEAST if on_purpose in OTHERWISE else np.inf)
            if "which is poor" in text and (on_purpose in OTHERWISE or theirs.db < FAR):
                least = -np.inf  # it says so
            assert ours.state == "runs" and ours.db >= least, f"{text}\n{on_purpose}: reference: {theirs} | onq: {ours}"


@pytest.fixture
def trial(request, tmp_path):
    return Try(request.param, tmp_path)


def each_seed(seeds):
    return pytest.mark.parametrize("trial", seeds, indirect=True, ids=lambda s: f"seed{s}")


def is_half(m):
    return any(v.type.tensor_type.elem_type == TensorProto.FLOAT16 for v in m.graph.input)


def has(m, *op_types):
    return any(n.op_type in op_types for n in m.graph.node)


def readers(m):
    """How many inputs of nodes read each initializer."""
    inits = {t.name for t in m.graph.initializer}
    return collections.Counter(i for n in m.graph.node for i in n.input if i in inits)


# ---- static

def sums_one(m):
    """True if a Softmax goes along an axis of size 1."""
    graph = onnx.shape_inference.infer_shapes(m).graph
    sizes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in [*graph.value_info, *graph.input, *graph.output]}
    axes = {n.input[0]: next((a.i for a in n.attribute if a.name == "axis"), -1) for n in graph.node if n.op_type == "Softmax"}
    return any(sizes.get(name) and sizes[name][axis] == 1 for name, axis in axes.items())


def static_differs(m, case):
    weighted = [n for n in m.graph.node if n.op_type in ("Conv", "Gemm", "MatMul")]
    count, rank = readers(m), {t.name: len(t.dims) for t in m.graph.initializer}
    if is_half(m):
        return "float16 models below opset 19" if case["format"] == "qdq" else "float16 in QOperator format"
    if sums_one(m):
        return "Softmax of one value"
    if case["extra"].get("EnableSubgraph") and has(m, "If"):
        return "Inside If, Loop and Scan, static"
    if case["format"] == "qoperator" and has(m, "Relu", "Clip"):
        return "Relu and Clip in QOperator format"
    outputs = {o.name for o in m.graph.output}
    if any(n.op_type in ("Relu", "Clip") and n.output[0] in case.get("overrides", {}) for n in m.graph.node):
        return "Relu and Clip that the range does not replace"
    if any(n.op_type in ("Relu", "Clip") and n.input[0] in outputs for n in m.graph.node):
        return "Outputs in front of a Relu or Clip"
    if case.get("per_channel") and any(n.op_type == "MatMul" and rank.get(n.input[1], 2) != 2 for n in weighted):
        return "MatMul with weights that are not matrices, per channel"
    if case["format"] == "qoperator":
        shared = any(count[i] > 1 for n in weighted for i in n.input[1:])
        return "Biases that several nodes read, QOperator format" if shared else None
    flat = all(rank.get(i, 1) == 1 for n in weighted for i in n.input[2:])
    return None if flat or not case.get("per_channel") else "Biases that are not vectors"


def check_static(trial):
    case = randmodel.static(trial.seed, trial.model)
    bench = quantcase.Bench(trial.folder)
    words = ["static", "-i", trial.path, "-o", trial.got, "--data", trial.folder, *bench.options(case, trial.got)]
    trial.judge(lambda: bench.reference(case, trial.path, None, trial.ref, trial.samples), words,
                static_differs(trial.model, case))


@each_seed(SEEDS)
def test_static(trial):
    check_static(trial)


@each_seed(SEEDS[::5])
def test_external_data(trial):
    """All tensors in a file of their own, shapes of Reshape and the like too."""
    model = onnx.ModelProto()
    model.CopyFrom(trial.model)
    onnx.save_model(model, trial.path, save_as_external_data=True, location="m.data", size_threshold=0)
    check_static(trial)


# ---- dynamic

def branches_share_names(m):
    for n in m.graph.node:
        names = collections.Counter(x.name for a in n.attribute for x in a.g.node if x.name)
        if n.op_type == "If" and any(count > 1 for count in names.values()):
            return True
    return False


def dynamic_differs(m, case):
    excluded, count = set(case.get("nodes_to_exclude") or []), readers(m)
    rank = {t.name: len(t.dims) for t in m.graph.initializer}
    for n in m.graph.node:
        if n.op_type == "GRU" and "GRU" in (case.get("op_types") or []):
            return "GRU and RNN, dynamic"
        if n.op_type == "Gemm" and (n.name in excluded or count[n.input[1]] > 1):
            return "Gemm in dynamic quantization"
        if n.op_type == "LSTM" and any(count[i] > 1 for i in n.input[1:3]):
            return "Weights of LSTM"
        if n.op_type == "MatMul" and case.get("per_channel") and rank.get(n.input[1], 2) != 2:
            return "MatMul with weights that are not matrices, per channel"
    if is_half(m):
        return "float16 and bfloat16, dynamic"
    if case["extra"].get("EnableSubgraph") and branches_share_names(m):
        return "Names that are taken"
    return "Dynamic quantization at opset 10" if m.opset_import[0].version == 10 else None


@each_seed(SEEDS)
def test_dynamic(trial):
    case = randmodel.dynamic(trial.seed, trial.model)
    words = ["dynamic", "-i", trial.path, "-o", trial.got, *quantcase.dynamic_options(case)]
    trial.judge(lambda: quantcase.dynamic_reference(case, trial.path, trial.ref), words,
                dynamic_differs(trial.model, case))


# ---- preprocess

@each_seed(SEEDS[::2])
def test_preprocess(trial):
    case = randmodel.preprocess(trial.seed)

    def reference():
        with contextlib.chdir(trial.folder):
            quant_pre_process(str(trial.path), str(trial.ref), **case)

    words = ["preprocess", "-i", trial.path, "-o", trial.got] + [f"--{k}" for k, v in case.items() if v]
    trial.judge(reference, words, "If with a constant condition" if has(trial.model, "If") else
                "Preprocessing below opset 11" if has(trial.model, "Resize") else None)
