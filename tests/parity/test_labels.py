"""test_labels.py - `onq bench --labels`: accuracy as Python counts it; and quantization that keeps it.

The bundled digits: 8-bit QDQ must stay within 0.3 points of float on 2,000 digits that training has not seen.
"""
import json
import subprocess

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from common import ONQ, ROOT

HERE = ROOT / "examples" / "digits_cnn"


def bench(*words):
    return subprocess.run([ONQ, "bench", *map(str, words), "--runs", "1", "--json"], capture_output=True, text=True,
                          timeout=600)


def test_accuracy(tmp_path):
    q = tmp_path / "q.onnx"
    done = subprocess.run([ONQ, "static", "-i", HERE / "model.onnx", "-o", q, "--data", HERE], capture_output=True,
                          text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    done = bench(HERE / "model.onnx", q, "--data", HERE / "eval.npz", "--labels", HERE / "labels.npy")
    assert done.returncode == 0, done.stderr
    first, second = json.loads(done.stdout)["models"]
    x, y = np.load(HERE / "eval.npz")["input"], np.load(HERE / "labels.npy")
    session = onnxruntime.InferenceSession(str(HERE / "model.onnx"), providers=["CPUExecutionProvider"])
    want = (session.run(None, {"input": x})[0].argmax(1) == y).mean()
    assert abs(first["accuracy"] - want) < 1e-9 and first["labelled"] == 2000
    assert second["accuracy"] > first["accuracy"] - 0.003


def test_bad_labels(tmp_path):
    np.save(tmp_path / "few.npy", np.zeros(3, dtype=np.int64))
    np.save(tmp_path / "real.npy", np.zeros(2000))
    (tmp_path / "text.npy").write_text("no numbers")
    np.save(tmp_path / "many.npy", np.zeros(2001, dtype=np.int64))
    np.save(tmp_path / "eleven.npy", np.r_[np.zeros(7, dtype=np.int64), np.full(1993, 10)])
    np.save(tmp_path / "below.npy", np.full(2000, -1))
    for name, says in (("few.npy", "has 3 labels"), ("real.npy", "labels must be integers"), ("text.npy", "text.npy"),
                       ("many.npy", "has 2001 labels, but the first output has 2000 rows"),
                       ("eleven.npy", "label 10 at 7 is not one of the 10 classes"),
                       ("below.npy", "label -1 at 0 is not one of the 10 classes")):
        done = bench(HERE / "model.onnx", "--data", HERE / "eval.npz", "--labels", tmp_path / name)
        assert done.returncode == 1 and says in done.stderr and done.stderr.count("\n") == 1, done.stderr
    done = bench(HERE / "model.onnx", "--data", HERE / "eval.npz", "--labels", tmp_path / "many.npy", "--limit", 5)
    assert done.returncode == 0, done.stderr  # a limit may leave labels over


def test_output_without_classes(tmp_path):
    """A regression: one value a row, which no label can name."""
    graph = helper.make_graph([helper.make_node("ReduceMean", ["x"], ["y"], axes=[1])], "g",
                              [helper.make_tensor_value_info("x", 1, [1, 4])],
                              [helper.make_tensor_value_info("y", 1, [1, 1])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "m.onnx")
    np.save(tmp_path / "labels.npy", np.zeros(3, dtype=np.int64))
    done = bench(tmp_path / "m.onnx", "--data", "random:3", "--labels", tmp_path / "labels.npy")
    assert done.returncode == 1 and "labels do not fit" in done.stderr, done.stderr
