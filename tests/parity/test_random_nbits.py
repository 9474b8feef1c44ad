"""test_random_nbits.py - random models under random options of weight-only quantization, against the reference.

Each seed is a model and a set of options (nbitsmodel.py). Where the reference makes a model that loads, onq's is the same to
the last byte of every tensor, or one of the differences below, which docs/DIFFERENCES.md explains. Where the reference fails
or makes a model that does not load, onq's loads. One model in five has external data. ONQ_SEEDS=FROM:TO tries other seeds.
"""
import json
import os

import onnx
import pytest

import compare
import nbitsmodel
import quantcase
import test_nbits as N
from common import onq
from running import loads

FIRST, END = (int(x) for x in os.environ.get("ONQ_SEEDS", "0:120").split(":"))


def refusal(case):
    """What onq says of options that the reference ignores or stops at later."""
    if case.get("format") != "QDQ":
        return None
    if "Gather" in (case.get("op_types") or []):
        return "Gather needs --quant_format QOperator"
    return "the QDQ format has no 2 bits" if case["bits"] == 2 else None


def readers(graph, name):
    inner = [g for n in graph.node for a in n.attribute for g in ([a.g] if a.HasField("g") else [])]
    return sum(list(n.input).count(name) for n in graph.node) + sum(readers(g, name) for g in inner)


def on_purpose(model, case, found):
    """The section of docs/DIFFERENCES.md that says why two models that load differ."""
    if case.get("format") == "QDQ" and case["bits"] == 8:
        return "8 bits, nbits"
    names = [t.name for t in model.graph.initializer if readers(model.graph, t.name) > 1]
    left = [x for x in found if x.startswith("initializer: missing [")]
    if case["method"] != "default" and found == left and all(any(repr(n) in x for n in names) for x in left):
        return "Weights that several nodes read, rtn and k_quant"
    named = set(case.get("include") or [])
    if any(n.op_type == "Gemm" and n.name in named for n in model.graph.node):
        return "Gemm, nbits"
    set_apart = set(case.get("node_config") or [])
    if any(n.name in set_apart and set(n.input) & set(names) for n in model.graph.node):
        return "Settings of single nodes"
    return None


@pytest.mark.parametrize("seed", range(FIRST, END))
def test_random_nbits(tmp_path, seed):
    model = nbitsmodel.model(seed)
    case = nbitsmodel.case(seed, model)
    path, ref, got = (tmp_path / f"{n}.onnx" for n in ("m", "ref", "got"))
    words = N.options(case)
    if case.get("node_config"):
        (tmp_path / "nodes.json").write_text(json.dumps(case["node_config"]))
        words += ["--node_config", tmp_path / "nodes.json"]
    onnx.save(model, path, save_as_external_data=seed % 5 == 0, location="m.data", size_threshold=64)
    error = None
    try:
        N.reference(case, path, ref)
    except Exception as e:  # noqa: BLE001 - the reference fails in many ways
        error = e
    done = onq("nbits", "-i", path, "-o", got, "--no_verify", *words)
    text = f"seed {seed}: {' '.join(map(str, words))}\n{done.stderr}\nreference: {error!r}"
    if refusal(case):
        assert done.returncode == 2 and refusal(case) in done.stderr, text
        return
    assert done.returncode == 0 and loads(got) is None, f"{text}\n{loads(got)}"
    if error is not None or loads(ref) is not None:
        return
    found = compare.differences(ref, got)
    if found:
        why = on_purpose(model, case, found)
        assert why is not None and quantcase.has_section(why), "\n".join([text, *found])
