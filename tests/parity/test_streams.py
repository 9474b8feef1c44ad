"""Samples from programs: the examples in examples/samples, against the same arrays in files."""
import json
import subprocess
import sys

import numpy as np
from common import ONQ, ROOT

MODEL = ROOT / "examples/digits_cnn/model.onnx"
EXAMPLES = ROOT / "examples/samples"


def ranges(folder, data, method):
    out = folder / "cache.json"
    subprocess.run([str(ONQ), "calibrate", "-i", str(MODEL), "-o", str(out), "--method", method, "--quiet",
                    "--data", str(data)], check=True)
    return json.loads(out.read_text())


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
