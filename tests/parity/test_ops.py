"""test_ops.py - `onq ops` lists what the quantizers really take: the registries of the reference, and what plans of small
models say of each operator."""
import json

import onnx
import pytest
from onnxruntime.quantization import registry

import opmodels
from common import onq


def listed(mode):
    rows = json.loads(onq("ops", "--mode", mode, "--json", status=0).stdout)["operators"]
    return {r["type"] for r in rows}


@pytest.mark.parametrize("mode, known", [
    ("qdq", {*registry.QDQRegistry, *registry.QLinearOpsRegistry}),
    ("qoperator", set(registry.QLinearOpsRegistry)),
    ("dynamic", {*registry.IntegerOpsRegistry, "Gemm"}),  # which becomes MatMul first
])
def test_lists_are_the_registries(mode, known):
    assert listed(mode) == known


@pytest.mark.parametrize("name", [n for n in opmodels.MODELS if "." not in n and n != "If"])
def test_static_takes_what_is_listed(name, tmp_path):
    """A node of a listed operator is left float for its own reasons only; of another operator always."""
    onnx.save(opmodels.build(name, 21), tmp_path / "m.onnx")
    onq("static", "-i", tmp_path / "m.onnx", "--dry_run", "--plan", tmp_path / "p.json", "--data", "random:1", "-q", status=0)
    nodes = json.loads((tmp_path / "p.json").read_text())["nodes"]
    unknown = {n["op_type"] for n in nodes if "not supported in this mode" in n.get("why", "")}
    types = {n["op_type"] for n in nodes}
    assert name in types and unknown == types - listed("qdq")
