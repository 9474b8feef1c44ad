"""test_causes.py - `onq debug` names the cause: models spoiled in one known way, and healthy ones.

The cases are those of bench/bench_causes.py, which measures all of them; here are some of each kind. What is printed as
the remedy is run, and must bring what was promised.
"""
import json
import os
import pathlib
import sys

import numpy as np
import onnx
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import bench_causes as bench  # noqa: E402
import causes_held as held  # noqa: E402
from causes_first import CASES  # noqa: E402
from causes_sixth import SIXTH  # noqa: E402
from causes_kit import Net, onq, pairs, replace, sqnr, value_of, weights  # noqa: E402

SOME = ["weight scale x3 (cnn)", "range /5 (mlp)", "biases rolled (cnn)", "other samples (mlp)", "per tensor (cnn)", "Log",
        "residual that cancels", "outlier channels", "heavy tails", "input with an offset", "mask", "constants (mlp)", "healthy (mlp)", "healthy, equalised (mlp)",
        "per tensor, qoperator"]
HELD = ["one channel scaled (mobile)", "per tensor (dynamic, glu)", "weight scale (dynamic, glu)", "2 bits (nbits, glu)",
        "healthy, 8 bits (nbits, encoder)"]
THIRD = ["healthy, outlier channels (mixer)"]


def diagnose(given, made, data, *more):
    out = json.loads(onq("debug", "--float_model", given, "--qdq_model", made, "--data", data, "--json", *more))
    return out.get("diagnosis")


@pytest.mark.parametrize("name", SOME + HELD + THIRD)
def test_first_cause_is_right_and_its_command_keeps_its_promise(name, tmp_path):
    c = {**held.THIRD, **CASES, **held.SECOND}[name](str(tmp_path))
    given, made, data, right = c.given, c.made, c.data, c.right
    x = diagnose(given, made, data)
    first = x["causes"][0]["cause"] if x["causes"] else "none"
    assert first in (right or ("none",)), x["causes"]
    if not x["causes"]:
        assert x["healthy"]
        return
    better = bench.run_commands(x["command"], str(tmp_path))
    assert sqnr(given, [better], data, limit=8)[0] == pytest.approx(x["causes"][-1]["sqnr"], abs=0.5)
    # Nobody is told to do what was done: the new model has no such cause.
    again = diagnose(given, better, data)
    assert not again["causes"] or again["causes"][0]["cause"] != first


def test_weights_in_constants_are_named_first(tmp_path):
    given, made, data = CASES["constants (cnn)"](str(tmp_path))[:3]
    x = diagnose(given, made, data)
    assert "Constant nodes" in x["causes"][0]["text"]
    assert x["command"].startswith("onq preprocess ")
    # No weight shows whether channels had scales of their own: they get them.
    assert "--per_channel" in x["command"]
    # The graph shows it, so it is made before anything else: the budget may end.
    assert x["tried"][0]["cause"] == "not_prepared"


def test_the_spoiled_tensor_is_named(tmp_path):
    given, made, data = CASES["weight scale x3 (cnn)"](str(tmp_path))[:3]
    name = weights(onnx.load(made))[1][0].removesuffix("_quantized")
    assert f"'{name}'" in diagnose(given, made, data)["causes"][0]["text"]


def test_quick_makes_nothing(tmp_path):
    given, made, data = CASES["Log"](str(tmp_path))[:3]
    assert diagnose(given, made, data, "--quick") is None


def test_nodes_of_integer_operators_have_the_names_that_exclude_them(tmp_path):
    given, made, data = CASES["healthy, qoperator (cnn)"](str(tmp_path))[:3]
    out = json.loads(onq("debug", "--float_model", given, "--qdq_model", made, "--data", data, "--json"))
    names = {n.name for n in onnx.load(given).graph.node}
    assert {w["node"] for w in out["weights"].values()} <= names


def test_weights_that_the_runtime_quantizes_again_are_the_cause(tmp_path):
    given, _ = held.build(str(tmp_path), held.conv1d, 7, trouble=held.t_dead, strength=2)
    data = held.save_samples(str(tmp_path), "samples", held.SHAPES[held.conv1d], held.normal, 8, 1)
    products = [n.name for n in onnx.load(given).graph.node if n.op_type == "Conv"][1:]
    made = held.static(str(tmp_path), given, data, ["--per_channel", "--nodes_to_exclude", ",".join(products)])
    x = diagnose(given, made, data)
    assert x["causes"][0]["cause"] == "requantized"
    assert "--keep_excluded_float" in x["command"] and x["causes"][0]["sqnr"] > x["sqnr"] + 20


def test_a_mask_is_named_first_though_another_remedy_gains_more(tmp_path):
    c = CASES["mask"](str(tmp_path))
    x = diagnose(c.given, c.made, c.data)
    tried = {t["cause"]: t["sqnr"] for t in x["tried"]}
    assert x["causes"][0]["cause"] == "mask" and tried["mask"] >= x["sqnr"] + 2.5


def test_the_remedy_is_clocked_beside_the_model(tmp_path):
    c = CASES["Log"](str(tmp_path))
    # On a busy machine noise may be larger than the difference: then no time is given, of neither.
    tries = [diagnose(c.given, c.made, c.data) for _ in range(3)]
    assert all(("ms" in x) == ("ms" in x["causes"][-1]) for x in tries)
    assert any(x.get("ms", 0) > 0 and x["causes"][-1]["ms"] > 0 for x in tries)
    texts = [onq("debug", "--float_model", c.given, "--qdq_model", c.made, "--data", c.data) for _ in range(3)]
    assert any(" ms instead of " in text for text in texts)
    assert "ms" not in diagnose(c.given, c.made, c.data, "--no_kernel_check")


def test_weights_of_4_bits_are_the_cause(tmp_path):
    given = held.build(str(tmp_path), held.glu, 5)[0]
    data = held.save_samples(str(tmp_path), "samples", held.SHAPES[held.glu], held.normal, 8, 1)
    x = diagnose(given, held.static(str(tmp_path), given, data, ["--per_channel", "--weight_type", "qint4"]), data)
    assert x["causes"][0]["cause"] == "few_bits" and "--weight_type" not in x["command"]


def test_symmetric_ranges_are_the_cause(tmp_path):
    """Inputs far from zero, and Relus, use half of a symmetric range."""
    given = held.build(str(tmp_path), held.twins, 5)[0]
    data = held.save_samples(str(tmp_path), "samples", held.SHAPES[held.twins], lambda r, s: 8 + r.normal(size=s), 8, 1)
    words = ["--per_channel", "--activation_symmetric", "--activation_type", "qint8"]
    x = diagnose(given, held.static(str(tmp_path), given, data, words), data)
    assert x["causes"][0]["cause"] == "symmetric" and "--activation_symmetric" not in x["command"]


def test_preprocessing_is_tried_where_norms_were_not_folded(tmp_path):
    given = held.build(str(tmp_path), held.resnet, 5, trouble=held.t_dead, strength=2)[0]
    data = held.save_samples(str(tmp_path), "samples", held.SHAPES[held.resnet], held.normal, 8, 1)
    x = diagnose(given, held.static(str(tmp_path), given, data, []), data)
    assert "not_prepared" in {t["cause"] for t in x["tried"]}


def test_the_budget_is_ten_times_bare_inference_or_the_floor(tmp_path):
    c = CASES["Log"](str(tmp_path))
    x = diagnose(c.given, c.made, c.data)["budget"]
    assert x["limit_cpu_seconds"] == pytest.approx(max(10 * x["bare_cpu_seconds"], 10))
    assert 0 < x["bare_cpu_seconds"] < x["cpu_seconds"]


def test_what_is_tried_is_what_the_table_says(tmp_path):
    """Remedies of the table; the nodes that the model leaves float stay float."""
    c = CASES["Log"](str(tmp_path))
    x = diagnose(c.given, c.made, c.data)
    assert x["samples"] == 8  # of twelve
    assert {"parameters", "stretched_ranges", "amplified"} <= {t["cause"] for t in x["tried"]}
    given = held.build(str(tmp_path), held.encoder, 5, trouble=held.t_layer_norm, strength=120)[0]
    data = held.save_samples(str(tmp_path), "samples", held.SHAPES[held.encoder], held.normal, 8, 1)
    product = [n.name for n in onnx.load(given).graph.node if n.op_type == "MatMul"][1]
    x = diagnose(given, held.static(str(tmp_path), given, data, ["--per_channel", "--nodes_to_exclude", product]), data)
    options = x["tried"][0]["options"]
    assert options["nodes_to_exclude"] == product and "per_channel" in options
    assert {"shifted_means", "arithmetic", "outputs"} <= {t["cause"] for t in x["tried"]}


def test_what_the_tensors_speak_for_is_tried_first(tmp_path):
    """The table has stretched ranges before amplifiers; nothing speaks for them in one case, and much in the other."""
    for name, first, second in (("Log", "amplified", "stretched_ranges"), ("heavy tails", "stretched_ranges", "input_range")):
        os.makedirs(tmp_path / first)
        c = CASES[name](str(tmp_path / first))
        tried = [t["cause"] for t in diagnose(c.given, c.made, c.data)["tried"]]
        assert tried.index(first) < tried.index(second), tried


def test_a_log_of_powers_leaves_the_results_of_products_float(tmp_path):
    """Spectra: what products give is squared, mixed and made a logarithm; the first product itself does no harm."""
    net = Net([1, 1, 2000], 3)
    rng, at = net.rng, np.arange(100)
    waves = [f(2 * np.pi * np.outer(np.arange(40), at) / 100).reshape(40, 1, 100) * np.hanning(100) for f in (np.cos, np.sin)]
    powers = [net.op("Mul", v, v) for v in (net.op("Conv", "x", net.init(w), strides=[50]) for w in waves)]
    bands = net.op("MatMul", net.init(np.abs(rng.normal(size=(12, 40)))), net.op("Add", *powers))
    logs = net.op("Log", net.op("Add", bands, net.init(np.float32(1e-3))))
    given = net.save(f"{tmp_path}/float.onnx", net.op("Max", logs, net.init(np.float32(np.log(0.1)))))
    data = held.save_samples(str(tmp_path), "samples", [1, 1, 2000],
                             lambda r, s: r.normal(size=s) * np.exp(np.linspace(-3, 1, s[2])), 8, 1)
    x = diagnose(given, held.static(str(tmp_path), given, data, ["--per_channel"]), data)
    first = x["causes"][0]
    assert first["cause"] == "amplified" and "Log 'log_" in first["text"], x["causes"]
    assert "and so must the results of Conv." in first["text"]
    assert "--op_types_to_exclude_output_quantization Conv" in first["command"]
    near = next(t for t in x["tried"] if t["cause"] == "amplified")
    assert first["sqnr"] > max(near["sqnr"], x["sqnr"]) + 5 and first["integer_macs"] > 0.4


def test_the_nodes_that_the_remedy_leaves_float_go_to_a_file(tmp_path):
    c = CASES["Log"](str(tmp_path))
    x = diagnose(c.given, c.made, c.data)
    names = x["tried"][[t["cause"] for t in x["tried"]].index("amplified")]["options"]["nodes_to_exclude"].split(",")
    assert ",".join(names) in x["command"]
    listed = tmp_path / "floats.txt"
    to_file = diagnose(c.given, c.made, c.data, "--exclude_list", str(listed))
    assert listed.read_text().splitlines() == names and f"--nodes_to_exclude @{listed}" in to_file["command"]
    a, b = ((tmp_path / v) for v in ("a", "b"))
    for folder, found in ((a, x), (b, to_file)):
        folder.mkdir()
        bench.run_commands(found["command"], str(folder))
    assert (a / "better.onnx").read_bytes() == (b / "better.onnx").read_bytes()


def test_smaller_blocks_and_more_bits_are_tried(tmp_path):
    c = held.SECOND["2 bits (nbits, glu)"](str(tmp_path))
    tried = [t["options"] for t in diagnose(c.given, c.made, c.data)["tried"]]
    assert {"32"} <= {str(t.get("block_size")) for t in tried} and {"4"} <= {str(t.get("bits")) for t in tried}


def few_samples(tmp_path):
    """Samples of two kinds in turns: one of them alone says little of the other's ranges."""
    given = held.build(str(tmp_path), held.conv1d, 5)[0]
    rng = np.random.default_rng(3)
    x = np.stack([(4.0 if i % 2 else 1.0) * rng.normal(size=held.SHAPES[held.conv1d]) for i in range(8)])
    np.savez(tmp_path / "samples.npz", x=x.astype(np.float32))
    data = f"{tmp_path}/samples.npz"
    return given, held.static(str(tmp_path), given, data, ["--per_channel"]), data


def test_a_good_model_is_calibrated_without_some_samples(tmp_path):
    given, made, data = few_samples(tmp_path)
    x = diagnose(given, made, data)
    half = x["half_of_the_samples"]
    held.static(str(tmp_path), given, data, ["--per_channel", "--hold_out", "2"], "half.onnx")
    np.savez(tmp_path / "between.npz", x=np.load(data)["x"][1::2])
    between, all_of_them = (sqnr(given, [f"{tmp_path}/half.onnx"], v, limit=8)[0] for v in (f"{tmp_path}/between.npz", data))
    assert half["sqnr"] == pytest.approx(between, abs=0.2) and half["samples"] == 4
    assert abs(between - all_of_them) > 0.2
    # What is made then is judged by the same samples.
    assert all(c["sqnr_before"] >= half["sqnr"] - 0.1 for c in x["causes"])
    assert x["sqnr"] >= 20 > half["sqnr"] and not x["healthy"] and "hold_out" not in x.get("command", "")
    text = onq("debug", "--float_model", given, "--qdq_model", made, "--data", data)
    assert f"Too few samples: calibrated with every other one and judged on 4 of the others, the outputs have {half['sqnr']:.1f} dB" in text
    onq("debug", "--float_model", given, "--qdq_model", made, "--data", data, "-o", f"{tmp_path}/page.html")
    assert f'"half":"Too few samples: calibrated with every other one and judged on 4' in (tmp_path / "page.html").read_text()
    # Where the caller holds out samples, this is not done on top of it.
    assert "half_of_the_samples" not in diagnose(given, made, data, "--hold_out", "4")


def uneven(folder, small, in_turns):
    """Half of the channels are small. Eight others have two features; in turns: one that every other sample lacks."""
    net = Net([200, 40], 5)
    first, second = net.rng.normal(size=(40, 32)) / 6, net.rng.normal(size=(32, 6)) / 6
    first[39] = 0
    if in_turns:
        first[:, :8] = np.where(np.arange(40) == 39, 1, 0)[:, None]
    sizes = np.where(np.arange(32) < 16, 1.0, small)
    hidden = net.op("Relu", net.op("MatMul", "x", net.init(first * sizes)))
    given = net.save(f"{folder}/float.onnx", net.op("MatMul", hidden, net.init(second / sizes[:, None])))
    x = net.rng.normal(size=(8, 200, 40))
    x[:, :, 39] = np.where(np.arange(8) % 2, 1.0, 0.05)[:, None]
    np.savez(f"{folder}/samples.npz", x=x.astype(np.float32))
    return given, held.static(str(folder), given, f"{folder}/samples.npz", ["--per_channel"]), f"{folder}/samples.npz"


@pytest.mark.parametrize("small, good", [(0.1, True), (0.03, False)])
def test_what_helps_only_the_samples_that_calibrate_is_no_cause(tmp_path, small, good):
    """Ranges for each channel fit their samples best; where others need more, they lose."""
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    x = diagnose(*uneven(tmp_path / "a", small, False))
    first = x["causes"][0]
    assert (x["sqnr"] >= 20) == good and first["cause"] == "channels"
    assert not any("dismissed" in t for t in x["tried"])
    # The gain that is printed is the one on samples that did not calibrate.
    assert first["apart"] == x["apart"] and first["apart"]["sqnr"] > first["apart"]["sqnr_before"] + 3
    cases = [str(tmp_path / "a" / v) for v in ("float.onnx", "q.onnx", "samples.npz")]
    text = onq("debug", "--float_model", cases[0], "--qdq_model", cases[1], "--data", cases[2])
    assert (f"Remedy, made and measured: {x['apart']['sqnr']:.1f} dB instead of {x['apart']['sqnr_before']:.1f} dB on "
            f"samples that did not calibrate; on those that did, {first['sqnr']:.1f} dB") in text
    given, made, data = uneven(tmp_path / "b", small, True)
    x = diagnose(given, made, data)
    best = max(x["tried"], key=lambda t: t["sqnr"])
    assert best["cause"] == "channels" and best["dismissed"] and best["sqnr"] > x["sqnr"] + 6
    assert (x["sqnr"] >= 20) == good == x["healthy"] and "channels" not in [c["cause"] for c in x["causes"]]
    # A good model is not told what nothing shows: there are no samples to judge by, or they are held out already.
    if good:
        assert diagnose(given, made, data, "--limit", "1")["healthy"]
    held_out = diagnose(given, made, data, "--hold_out", "4")
    assert [c["cause"] for c in held_out["causes"]] == ([] if good else ["channels"])


def test_a_good_model_is_not_told_what_gains_only_on_its_samples(tmp_path):
    """Gains too small for a fault are told (test_cause_choice.c) if samples that did not calibrate have them too."""
    for in_turns, lost in ((False, False), (True, True)):
        folder = tmp_path / str(in_turns)
        folder.mkdir()
        given, made, data = uneven(folder, 0.2, in_turns)
        x = diagnose(given, made, data)
        over = [t for t in x["tried"] if t["cause"] == "channels" and t["sqnr"] > x["sqnr"] + 2.6]
        assert x["healthy"] and over and all("apart" in t for t in over)
        for t in over:
            gain = t["apart"]["sqnr"] - t["apart"]["sqnr_before"]
            assert t.get("dismissed", False) == (gain < 2.5) and (gain < -5) == lost
        text = onq("debug", "--float_model", given, "--qdq_model", made, "--data", data)
        assert "Cause: no fault was found." in text and ("It can be better still" in text) == any(not t.get("dismissed") for t in over)


def test_the_verdict_is_of_all_samples_everywhere(tmp_path):
    """Samples after those that remedies are measured on lose much more; text, JSON and page have one figure."""
    given = held.build(str(tmp_path), held.conv1d, 5)[0]
    data = held.save_samples(str(tmp_path), "samples", held.SHAPES[held.conv1d], held.normal, 8, 1)
    made = held.static(str(tmp_path), given, data, ["--per_channel"])
    x = np.load(data)["x"]
    np.savez(tmp_path / "more.npz", x=np.concatenate([x, 30 * x, 30 * x]))
    found = json.loads(onq("debug", "--float_model", given, "--qdq_model", made, "--data", f"{tmp_path}/more.npz", "--json"))
    d = found["diagnosis"]
    assert d["samples"] == 8 and d["judged"]["samples"] == 24 and d["sqnr"] > 20 > d["judged"]["sqnr"]
    assert not d["healthy"] and not d["causes"]
    assert d["judged"]["sqnr"] == min(o["sqnr_optimised"] for o in found["outputs"].values())
    page = tmp_path / "page.html"
    text = onq("debug", "--float_model", given, "--qdq_model", made, "--data", f"{tmp_path}/more.npz", "-o", page)
    figure = f"{d['judged']['sqnr']:.1f} dB"
    assert f"the output SQNR is {figure}" in text and "over 24 samples, as ONNX Runtime runs the model" in text
    assert f": {figure} (" in text and "Cause: none was found on the first 8 samples, where the model is good" in text
    assert "\"none\":\"Cause: none was found on the first 8 samples" in page.read_text()


def test_a_shifted_zero_point_is_named(tmp_path):
    """A range that is only shifted by a part of its width."""
    given = held.build(str(tmp_path), held.glu, 5)[0]
    data = held.save_samples(str(tmp_path), "samples", held.SHAPES[held.glu], held.normal, 8, 1)
    made = held.static(str(tmp_path), given, data, ["--per_channel"])
    model = onnx.load(made)
    q = pairs(model)[3]
    replace(model, q.input[2], value_of(model, q.input[2]).astype(int) + 25)
    onnx.save(model, made)
    first = diagnose(given, made, data)["causes"][0]
    assert first["cause"] == "parameters" and f"'{q.input[0]}'" in first["text"], first


def test_of_a_tensor_and_its_parts_the_tensor_is_named(tmp_path):
    """A Split gives its parts the range of the whole: the fault is where the range comes from."""
    net = Net([4, 40], 5)
    x = net.op("Relu", net.dense("x", 40, 40))
    net.nodes.append(onnx.helper.make_node("Split", [x], ["left", "right"], name="split", axis=1))
    y = net.op("Add", net.dense("right", 20, 30), net.dense("left", 20, 30))
    given = net.save(f"{tmp_path}/float.onnx", net.dense(y, 30, 6))
    data = held.save_samples(str(tmp_path), "samples", [4, 40], held.normal, 8, 1)
    made = held.static(str(tmp_path), given, data, ["--per_channel"])
    model = onnx.load(made)
    q = next(n for n in pairs(model) if n.input[0] == x)
    replace(model, q.input[1], value_of(model, q.input[1]) * 30)
    onnx.save(model, made)
    first = diagnose(given, made, data)["causes"][0]
    assert first["cause"] == "parameters" and f"activation '{x}'" in first["text"], first


def sure_scores(tmp_path):
    """Scores that hide what is before them: on these samples the first class always wins."""
    net = Net([4, 40], 5)
    x = "x"
    for _ in range(4):
        x = net.op("Relu", net.dense(x, 40, 40))
    first = net.init(np.where(np.arange(6) == 0, 30.0, 0.0))
    given = net.save(f"{tmp_path}/float.onnx", net.op("Softmax", net.op("Add", net.dense(x, 40, 6), first), axis=-1))
    data = held.save_samples(str(tmp_path), "samples", [4, 40], held.normal, 8, 1)
    return given, held.static(str(tmp_path), given, data, ["--per_channel"]), data


@pytest.mark.parametrize("by, named", [(20, True), (1.6, False), (0.2, True), (0.95, False)])
def test_a_range_that_does_not_fit_is_named_though_the_outputs_are_good(tmp_path, by, named):
    given, made, data = sure_scores(tmp_path)
    assert diagnose(given, made, data)["healthy"]
    model = onnx.load(made)
    q = pairs(model)[2]
    replace(model, q.input[1], value_of(model, q.input[1]) * by)
    onnx.save(model, made)
    x = diagnose(given, made, data)
    assert x["sqnr"] > 20 and x["healthy"] != named, x["causes"]
    if named:
        first = x["causes"][0]
        assert first["cause"] == "parameters" and f"'{q.input[0]}'" in first["text"]
        assert ("hardly show it" in first["text"]) == (first["sqnr"] - x["sqnr"] < 2.5)


def test_a_weight_of_few_bits_is_named_though_the_outputs_are_good(tmp_path):
    given, made, data = sure_scores(tmp_path)
    model = onnx.load(made)
    name, _ = weights(model)[1]
    replace(model, name, np.round(value_of(model, name).astype(float) / 32) * 32)
    onnx.save(model, made)
    first = diagnose(given, made, data)["causes"][0]
    assert first["cause"] == "parameters" and f"'{name.removesuffix('_quantized')}'" in first["text"]


def probabilities_that_vanish(tmp_path):
    """A probability that 8 bits make zero, and its reciprocal."""
    net = Net([4, 40], 5)
    x = net.op("Relu", net.dense(net.op("Relu", net.dense("x", 40, 40)), 40, 40))
    x = net.op("Softmax", net.dense(x, 40, 6, scale=30), axis=-1)
    out = net.op("Reciprocal", net.op("Add", x, net.init(np.float32(1e-4))))
    given = net.save(f"{tmp_path}/float.onnx", out)
    data = held.save_samples(str(tmp_path), "samples", [4, 40], held.normal, 8, 1)
    return given, held.static(str(tmp_path), given, data, ["--per_channel"]), data


def test_outputs_that_are_not_finite_are_no_equal_ones(tmp_path):
    given, made, data = probabilities_that_vanish(tmp_path)
    agreement = json.loads(onq("bench", given, made, "--data", data, "--runs", 1, "--json"))["models"][1]["agreement"]
    assert agreement["sqnr"] is None and not agreement["finite"]
    assert " nan     nan " in onq("bench", given, made, "--data", data, "--runs", 1)
    text = onq("debug", "--float_model", given, "--qdq_model", made, "--data", data)
    assert "the output SQNR is NaN or infinity" in text and "Cause: Reciprocal " in text
    assert "NaN or infinity after it" in text and "samples.npz sample 0 nan" in text
    assert sqnr(given, [made], data) == [-20]


def test_a_widened_range_is_named_and_not_the_bias_that_follows_it(tmp_path):
    """The bias of an integer operator has the scale of its input: it is coarse when that range is too wide."""
    c = SIXTH["range widened (qoperator, dense)"](str(tmp_path))
    first = diagnose(c.given, c.made, c.data)["causes"][0]
    assert first["cause"] == "parameters" and f"activation '{c.names[0]}'" in first["text"], (c.names, first)


@pytest.mark.parametrize("form", ["qdq", "qoperator"])
def test_without_a_cause_the_least_set_is_made(tmp_path, form):
    """A Sin of large values, which no remedy of the table knows."""

    def waves(style, x, n, k):
        return style.net.op("Sin", style.lin(style.net.op("Tanh", style.lin(x, n, n)), n, n, scale=k * np.ones(n)))

    given = held.build(str(tmp_path), held.glu, 5, trouble=waves, strength=60)[0]
    data = held.save_samples(str(tmp_path), "samples", held.SHAPES[held.glu], held.normal, 8, 1)
    x = diagnose(given, held.static(str(tmp_path), given, data, ["--per_channel", "--quant_format", form]), data)
    best = x["float_set"]
    assert not x["causes"] and not x["healthy"] and best["sqnr"] >= 19 and 0 < best["units"] < best["of"]
    made = bench.run_commands(best["command"], str(tmp_path))
    assert sqnr(given, [made], data, limit=8)[0] == pytest.approx(best["sqnr"], abs=0.5)
    text = onq("debug", "--float_model", given, "--qdq_model", f"{tmp_path}/q.onnx", "--data", data, "-o", f"{tmp_path}/page.html")
    page = (tmp_path / "page.html").read_text()
    assert f"none was found. {best['units']} of {best['of']} units must stay float" in page and '"cause_samples":8' in page
    assert "Cause: none was found." in text and "units left float, made and measured" in text


def sure_rows(tmp_path, kind):
    """The same with Gemm nodes, which have biases, in each of the forms that quantized weights have."""
    net = Net([4, 64], 5)
    x = "x"
    for _ in range(6):
        x = net.op("Relu", held.gemm(net, x, 64, 64) if kind in ("qdq", "qoperator") else net.dense(x, 64, 64))
    first = net.init(np.where(np.arange(6) == 0, 30.0, 0.0))
    given = net.save(f"{tmp_path}/float.onnx", net.op("Softmax", net.op("Add", net.dense(x, 64, 6), first), axis=-1))
    data = held.save_samples(str(tmp_path), "samples", [4, 64], held.normal, 8, 1)
    made = f"{tmp_path}/q.onnx"
    if kind in ("qdq", "qoperator"):
        held.static(str(tmp_path), given, data, ["--per_channel", "--quant_format", kind])
    else:
        words = ["--per_channel"] if kind == "dynamic" else ["--bits", "8", "--block_size", "32"]
        onq(kind, "-i", given, "-o", made, "-q", "--no_verify", *words)
    return given, made, data


def block_scale(model):
    n = [n for n in model.graph.node if n.op_type == "MatMulNBits"][2]
    v = value_of(model, n.input[2]).copy()
    v.flat[7] *= 8
    replace(model, n.input[2], v)
    return [n.input[1][:3]]


def lost_bias(model):
    from causes_ninth import lost_bias as lose
    return lose(2)(model)


def zero_point(model):
    from causes_eighth import zero_point as move
    return move(3, 90)(model)


def older(model):
    from causes_sixth import checkpoint
    return checkpoint(0.3)(model)


OUT_OF_SIGHT = {
    "qdq": [held.one_channel(2, 8), held.weight_scale(1, 0.2), held.act_range(3, 20), held.act_range(3, 0.2), lost_bias, zero_point, older],
    "qoperator": [held.one_channel(2, 8), held.weight_scale(1, 5), lost_bias],
    "dynamic": [held.one_channel(2, 8), held.weight_scale(1, 5), held.bits(1, 3)],
    "nbits": [block_scale],
}


@pytest.mark.parametrize("kind", OUT_OF_SIGHT)
def test_what_stands_out_is_named_in_every_form(tmp_path, kind):
    given, made, data = sure_rows(tmp_path, kind)
    assert diagnose(given, made, data)["healthy"]
    good = onnx.load(made)
    for spoil in OUT_OF_SIGHT[kind]:
        model = onnx.ModelProto()
        model.CopyFrom(good)
        names = spoil(model)
        onnx.save(model, made)
        x = diagnose(given, made, data)
        first = x["causes"][0] if x["causes"] else {"cause": "none"}
        assert first["cause"] == "parameters" and any(f"'{n}" in first["text"] for n in names), (spoil, names, first)


def test_a_fault_beside_a_larger_cause_is_named_too(tmp_path):
    c = CASES["Log"](str(tmp_path))
    assert [v["cause"] for v in diagnose(c.given, c.made, c.data)["causes"]] == ["amplified"]
    model = onnx.load(c.made)
    names = held.one_channel(0, 2.5)(model)
    onnx.save(model, c.made)
    x = diagnose(c.given, c.made, c.data)
    first, last = x["causes"][0], x["causes"][-1]
    assert first["cause"] == "amplified" and last["cause"] == "parameters" and names[0] in last["text"], x["causes"]
    assert last["command"] == first["command"] == x["command"]
    text = onq("debug", "--float_model", c.given, "--qdq_model", c.made, "--data", c.data)
    assert "  and: The parameters of weight" in text and "Mended alone: " in text and "Mended: " in text
    assert "Remedy against all of it, made and measured over the first 8 samples: " in text


def test_a_range_that_the_same_options_do_not_give_is_named(tmp_path):
    """Where only Conv is quantized, its output before a Relu has a range, which debug cannot ask for."""
    net = Net([1, 3, 12, 12], 5)
    x, between = "x", []
    for n_in in (3, 12, 12, 12):
        x = net.conv(x, n_in, 12)
        between.append(x)
        x = net.op("Relu", x)
    given = net.save(f"{tmp_path}/float.onnx", x)
    data = held.save_samples(str(tmp_path), "samples", [1, 3, 12, 12], held.normal, 8, 1)
    made = held.static(str(tmp_path), given, data, ["--per_channel", "--op_types_to_quantize", "Conv"])
    model = onnx.load(made)
    q = next(n for n in pairs(model) if n.input[0] == between[1])
    replace(model, q.input[1], value_of(model, q.input[1]) * 60)
    onnx.save(model, made)
    first = diagnose(given, made, data)["causes"][0]
    assert first["cause"] == "parameters" and f"activation '{between[1]}'" in first["text"], first


def test_what_would_not_be_finished_within_the_budget_is_given_up(tmp_path):
    """Weights of eight million values: each remedy takes long beside the runs of the samples."""
    net = Net([1, 1024], 5)
    x = "x"
    for _ in range(8):
        x = net.op("Tanh", net.dense(x, 1024, 1024, scale=np.where(np.arange(1024) == 3, 400.0, 1.0)))
    given = net.save(f"{tmp_path}/float.onnx", x)
    data = held.save_samples(str(tmp_path), "samples", [1, 1024], held.normal, 8, 1)
    x = diagnose(given, held.static(str(tmp_path), given, data, ["--activation_symmetric"]), data)
    assert x["budget"]["cpu_seconds"] < 1.05 * x["budget"]["limit_cpu_seconds"], x["budget"]


def test_a_weight_of_one_output_is_not_taken_for_a_scaled_one(tmp_path):
    """A factor for each of its rows explains all of its values, whatever they are."""
    net = Net([4, 40], 5)
    x = net.op("Relu", net.dense(net.op("Relu", net.dense("x", 40, 40)), 40, 40))
    given = net.save(f"{tmp_path}/float.onnx", net.dense(x, 40, 1))
    data = held.save_samples(str(tmp_path), "samples", [4, 40], held.normal, 8, 1)
    made = held.static(str(tmp_path), given, data, ["--per_channel"])
    model = onnx.load(made)
    older(model)
    onnx.save(model, made)
    found = json.loads(onq("debug", "--float_model", given, "--qdq_model", made, "--data", data, "--json"))
    assert not any("rescaled_sqnr" in w for w in found["weights"].values())
    assert found["diagnosis"]["causes"][0]["cause"] == "parameters"


def test_numbers_of_classes_are_no_values_to_the_bench(tmp_path):
    """A class more or less is another class; how far apart their numbers are says nothing."""
    net = Net([30, 40], 5)
    net.nodes.append(onnx.helper.make_node("ArgMax", [net.dense(net.op("Relu", net.dense("x", 40, 40)), 40, 60)], ["classes"], axis=-1))
    scores = net.nodes[-1].input[0]
    given = net.save(f"{tmp_path}/float.onnx", scores)
    model = onnx.load(given)
    model.graph.output.append(onnx.helper.make_tensor_value_info("classes", onnx.TensorProto.INT64, None))
    onnx.save(model, given)
    data = held.save_samples(str(tmp_path), "samples", [30, 40], held.normal, 8, 1)
    made = held.static(str(tmp_path), given, data, [])
    outputs = json.loads(onq("bench", given, made, "--data", data, "--limit", 16, "--runs", 1, "--json"))["models"][1]["agreement"]["outputs"]
    figures = {o["name"]: o["sqnr"] for o in outputs}
    assert figures["classes"] < figures[scores] - 6
    assert sqnr(given, [made], data) == [pytest.approx(figures[scores])]
    assert diagnose(given, made, data)["judged"]["sqnr"] == pytest.approx(figures[scores], abs=0.1)


@pytest.mark.parametrize("turned", [False, True])
def test_a_weight_of_one_output_that_was_smoothed_is_no_fault(tmp_path, turned):
    """The factors are those of the Mul before it, which the model shows."""
    net = Net([4, 40], 5)
    x = net.op("Tanh", "x")
    w = net.init(net.rng.normal(size=(1, 40) if turned else (40, 1)) / 6)
    given = net.save(f"{tmp_path}/float.onnx", net.op("Gemm", x, w, net.init(np.zeros(1)), transB=int(turned)))
    data = held.save_samples(str(tmp_path), "samples", [4, 40], held.normal, 8, 1)
    made = held.static(str(tmp_path), given, data, ["--per_channel", "--smooth_quant"])
    model = onnx.load(made)
    found = json.loads(onq("debug", "--float_model", given, "--qdq_model", made, "--data", data, "--json"))
    assert "rescaled_sqnr" in found["weights"][w], found["weights"][w]
    assert "parameters" not in {v["cause"] for v in found["diagnosis"]["causes"]}
    # Another weight behind the same Mul is a fault.
    name = next(i.name for i in model.graph.initializer if i.name.startswith(w) and len(i.dims) == 2)
    replace(model, name, np.roll(value_of(model, name), 7))
    onnx.save(model, made)
    found = json.loads(onq("debug", "--float_model", given, "--qdq_model", made, "--data", data, "--json"))
    assert "rescaled_sqnr" not in found["weights"][w] and found["diagnosis"]["causes"][0]["cause"] == "parameters"


@pytest.mark.parametrize("at, by", [(2, 30), (5, 0.1), (9, 40)])
def test_a_fault_beside_weights_in_constants_is_named_after_them(tmp_path, at, by):
    """Of an activation, and of the constants themselves, which the quantizer takes for activations."""
    given, made, data = CASES["constants (mlp)"](str(tmp_path))[:3]
    assert [v["cause"] for v in diagnose(given, made, data)["causes"]] == ["not_prepared"]
    model = onnx.load(made)
    names = held.act_range(at, by)(model)
    onnx.save(model, made)
    x = diagnose(given, made, data)
    assert [v["cause"] for v in x["causes"]] == ["not_prepared", "parameters"], x["causes"]
    assert f"activation '{names[0]}'" in x["causes"][1]["text"]
    assert x["command"] == x["causes"][0]["command"] == x["causes"][1]["command"]
    text = onq("debug", "--float_model", given, "--qdq_model", made, "--data", data)
    assert "It goes away with the first remedy." in text and "Mended alone" not in text


def test_causes_of_which_a_later_one_calibrates_have_their_gain_on_other_samples(tmp_path):
    c = held.SECOND["per tensor (conv1d)"](str(tmp_path))
    x = diagnose(c.given, c.made, c.data)
    assert [v["cause"] for v in x["causes"]] == ["per_channel", "channels"]
    assert "apart" not in x["causes"][0] and x["causes"][1]["apart"]["sqnr"] == x["apart"]["sqnr"]
    assert x["apart"]["sqnr_before"] < x["causes"][1]["apart"]["sqnr_before"]
    text = onq("debug", "--float_model", c.given, "--qdq_model", c.made, "--data", c.data)
    assert (f"made and measured: {x['apart']['sqnr']:.1f} dB instead of {x['apart']['sqnr_before']:.1f} dB on "
            "samples that did not calibrate; on those that did, ") in text
