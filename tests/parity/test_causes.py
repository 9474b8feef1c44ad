"""test_causes.py - `onq debug` names the cause: models spoiled in one known way, and healthy ones.

The cases are those of bench/bench_causes.py, which measures all of them; here are some of each kind. What is printed as
the remedy is run, and must bring what was promised.
"""
import importlib.util
import json
import pathlib

import pytest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench" / "bench_causes.py"
spec = importlib.util.spec_from_file_location("bench_causes", BENCH)
bench = importlib.util.module_from_spec(spec)
spec.loader.exec_module(bench)

SOME = ["weight scale x3 (cnn)", "range /5 (mlp)", "biases rolled (cnn)", "other samples (mlp)", "per tensor (cnn)", "Log",
        "residual that cancels", "outlier channels", "mask", "constants (mlp)", "healthy (mlp)", "healthy, equalised (mlp)",
        "per tensor, qoperator"]


def diagnose(given, made, data, *more):
    out = json.loads(bench.onq("debug", "--float_model", given, "--qdq_model", made, "--data", data, "--json", *more))
    return out.get("diagnosis")


@pytest.mark.parametrize("name", SOME)
def test_first_cause_is_right_and_its_command_keeps_its_promise(name, tmp_path):
    run, right = bench.CASES[name]
    given, made, data, _, _ = run(str(tmp_path))
    x = diagnose(given, made, data)
    first = x["causes"][0]["cause"] if x["causes"] else "none"
    assert first in (right or ("none",)), x["causes"]
    if not x["causes"]:
        assert x["healthy"]
        return
    better = bench.run_commands(x["command"], str(tmp_path))
    assert bench.sqnr(given, better, data) == pytest.approx(x["causes"][-1]["sqnr"], abs=0.5)
    # Nobody is told to do what was done: the new model has no such cause.
    again = diagnose(given, better, data)
    assert not again["causes"] or again["causes"][0]["cause"] != first


def test_weights_in_constants_are_named_first(tmp_path):
    run, _ = bench.CASES["constants (cnn)"]
    given, made, data, _, _ = run(str(tmp_path))
    x = diagnose(given, made, data)
    assert "Constant nodes" in x["causes"][0]["text"]
    assert x["command"].startswith("onq preprocess ")


def test_the_spoiled_tensor_is_named(tmp_path):
    run, _ = bench.CASES["weight scale x3 (cnn)"]
    given, made, data, _, _ = run(str(tmp_path))
    name = bench.weights(bench.onnx.load(made))[1][0].removesuffix("_quantized")
    assert f"'{name}'" in diagnose(given, made, data)["causes"][0]["text"]


def test_quick_makes_nothing(tmp_path):
    run, _ = bench.CASES["Log"]
    given, made, data, _, _ = run(str(tmp_path))
    assert diagnose(given, made, data, "--quick") is None


def test_nodes_of_integer_operators_have_the_names_that_exclude_them(tmp_path):
    run, _ = bench.CASES["healthy, qoperator (cnn)"]
    given, made, data, _, _ = run(str(tmp_path))
    out = json.loads(bench.onq("debug", "--float_model", given, "--qdq_model", made, "--data", data, "--json"))
    names = {n.name for n in bench.onnx.load(given).graph.node}
    assert {w["node"] for w in out["weights"].values()} <= names
