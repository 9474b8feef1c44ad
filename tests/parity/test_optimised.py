"""test_verify.py - what `onq verify` calls bad where the runtime's optimiser changes the outputs.

The optimiser puts a kernel in place of an AveragePool with ceil_mode and count_include_pad between pairs, which divides the
last sum by another number. Here that output is nearly all there is.
"""
import json

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from common import onq


def pool(path, quantized, sign=1):
    """An AveragePool over 9 values by windows of 8, times sign."""
    c = {"s": np.float32(0.01), "z": np.uint8(128), "sign": np.float32(sign)}
    nodes = [helper.make_node("AveragePool", ["d" if quantized else "x"], ["p"], kernel_shape=[1, 8], strides=[1, 8],
                              ceil_mode=1, count_include_pad=1)]
    if quantized:
        nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]), helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
                 *nodes, helper.make_node("QuantizeLinear", ["p", "s", "z"], ["r"]), helper.make_node("DequantizeLinear", ["r", "s", "z"], ["e"])]
    nodes.append(helper.make_node("Mul", ["e" if quantized else "p", "sign"], ["y"]))
    shape = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 1, 1, 9])
    out = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 1, 1, 2])
    graph = helper.make_graph(nodes, "g", [shape], [out], [numpy_helper.from_array(np.array(v), k) for k, v in c.items()])
    m = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    m.ir_version = 9
    onnx.save(m, path)
    return path


@pytest.mark.parametrize("sign,good", [(None, False), (1, False), (-1, True)], ids=["no float model", "its float model", "far from both"])
def test_optimised_differs(tmp_path, sign, good):
    """Bad where nothing else is known, and where it is farther from float; not where float is as far from the other."""
    q = pool(tmp_path / "q.onnx", True)
    x = np.full((4, 1, 1, 1, 9), 0.01, np.float32)
    x[..., 8] = np.array([1.0, -1.0, 0.8, 1.2]).reshape(4, 1, 1, 1)
    np.savez(tmp_path / "x.npz", x=x)
    words = [] if sign is None else ["--float_model", pool(tmp_path / "f.onnx", False, sign)]
    done = onq("verify", q, "--data", tmp_path / "x.npz", "--json", *words, status=0 if good else 1)
    row = json.loads(done.stdout)["runtimes"][0]
    assert row["good"] == good and row["optimised_sqnr"] < 10
    if not good:
        assert "with the runtime's optimisations" in row["why"]
