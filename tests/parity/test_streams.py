"""Samples from programs: the examples in examples/samples, against the same arrays in files."""
import json
import subprocess
import sys

import numpy as np
import onnx
from onnx import helper
from common import ONQ, ROOT

MODEL = ROOT / "examples/digits_cnn/model.onnx"
EXAMPLES = ROOT / "examples/samples"


def ranges(folder, data, method):
    out = folder / "cache.json"
    subprocess.run([str(ONQ), "calibrate", "-i", str(MODEL), "-o", str(out), "--method", method, "--quiet",
                    "--data", str(data)], check=True)
    return json.loads(out.read_text())


def test_large_arrays(tmp_path):
    """Beyond what is taken at once for an array that is promised: whole, and the next one begins where it ends."""
    info = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, ["n"]) for n in "xy"]
    onnx.save(helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", info[:1], info[1:]), ir_version=8,
                                opset_imports=[helper.make_opsetid("", 13)]), tmp_path / "m.onnx")
    arrays = [np.zeros(17 << 20, np.float32), np.zeros(4, np.float32), np.zeros(70 << 20, np.float32)]
    arrays[0][-1], arrays[1][-1], arrays[2][-1] = -5, 9, -7
    for n, low in ((2, -5), (3, -7)):
        with open(tmp_path / "stream", "wb") as f:
            for a in arrays[:n]:
                np.save(f, a)
        out = tmp_path / "cache.json"
        subprocess.run([str(ONQ), "calibrate", "-i", str(tmp_path / "m.onnx"), "-o", str(out), "--data", f"exec:cat {tmp_path / 'stream'}", "--quiet"], check=True)
        found = json.loads(out.read_text())["data"]["x"]
        assert (found["lowest"]["data"], found["highest"]["data"]) in ((low, 9), ([low], [9])), found


def test_examples_in_python(tmp_path):
    random = np.random.default_rng(1)
    np.savez(tmp_path / "noise.npz", input=np.stack([random.random((1, 1, 28, 28), dtype=np.float32)
                                                     for _ in range(8)]))
    random = np.random.default_rng(2)
    np.savez(tmp_path / "shards.npz", input=np.stack([random.random((1, 1, 28, 28), dtype=np.float32)
                                                      for _ in range(16)]))
    for method in ("minmax", "percentile"):
        noise = ranges(tmp_path, f"exec:{sys.executable} {EXAMPLES / 'noise.py'} 8", method)
        assert noise == ranges(tmp_path, tmp_path / "noise.npz", method)
        shards = ranges(tmp_path, f"exec:{sys.executable} {EXAMPLES / 'shards.py'}", method)
        assert shards == ranges(tmp_path, tmp_path / "shards.npz", method)
