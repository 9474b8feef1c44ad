"""test_nbits_learn.py - gptq and awq: what they lose at the outputs, on samples they have not seen, beside plain rounding and
beside the reference's gptq."""
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import types

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from common import MODELS, ONQ, onq, runtime

WIDTH, INNER = 64, 128
CASES = [(4, 32), (4, 16), (2, 32), (8, 32)]


@pytest.fixture(scope="module")
def rng():
    return np.random.default_rng(11)


@pytest.fixture(scope="module")
def mixing(rng):
    """Inputs whose channels go together, some of them large: what there is to learn."""
    sizes = np.exp(rng.normal(size=WIDTH))
    return (rng.normal(size=(12, WIDTH)) * sizes).astype(np.float32)


def rows(rng, mixing, n):
    return (rng.normal(size=(n, 12)) @ mixing + 0.1 * rng.normal(size=(n, WIDTH))).astype(np.float32)


@pytest.fixture(scope="module")
def setup(tmp_path_factory, rng, mixing):
    """A gated layer between a Mul with a constant and the output, samples, and other samples."""
    folder = tmp_path_factory.mktemp("learn")
    weights = {"gain": rng.uniform(0.5, 2, WIDTH), "gate": rng.normal(size=(WIDTH, INNER)) / 8,
               "up": rng.normal(size=(WIDTH, INNER)) / 8, "down": rng.normal(size=(INNER, WIDTH)) / 10}
    node = helper.make_node
    nodes = [node("Mul", ["x", "gain"], ["h"], "norm"), node("MatMul", ["h", "gate"], ["g"], "gate"),
             node("MatMul", ["h", "up"], ["u"], "up"), node("Sigmoid", ["g"], ["s"], "sigmoid"), node("Mul", ["g", "s"], ["t"], "silu"),
             node("Mul", ["t", "u"], ["v"], "gated"), node("MatMul", ["v", "down"], ["y"], "down")]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "gated", [value("x", TensorProto.FLOAT, ["n", WIDTH])],
                              [value("y", TensorProto.FLOAT, ["n", WIDTH])],
                              [numpy_helper.from_array(w.astype(np.float32), k) for k, w in weights.items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "m.onnx")
    np.savez(folder / "x.npz", x=rows(rng, mixing, 16 * 24).reshape(16, 24, WIDTH))
    return folder / "m.onnx", folder / "x.npz", rows(rng, mixing, 300)


def outputs(path, x):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def loss(model, path, x):
    exact = outputs(model, x)
    return np.square(outputs(path, x) - exact, dtype=np.float64).sum() / np.square(exact, dtype=np.float64).sum()


def quantize(setup, tmp_path, method, *more):
    model, data, x = setup
    out = tmp_path / f"{method}{len(list(tmp_path.iterdir()))}.onnx"
    words = ["nbits", "-i", model, "-o", out, "--quant_method", method, "--quiet", *more]
    onq(*words, *(["--data", data] if method in ("gptq", "awq") else []), status=0)
    return loss(model, out, x), out


@pytest.mark.parametrize("bits, block", CASES)
def test_less_is_lost(bits, block, setup, tmp_path):
    how = ["--bits", bits, "--block_size", block]
    plain, _ = quantize(setup, tmp_path, "default", *how)
    gptq, _ = quantize(setup, tmp_path, "gptq", *how)
    awq, _ = quantize(setup, tmp_path, "awq", *how)
    assert gptq < 0.7 * plain and awq < 0.95 * plain, (plain, gptq, awq)


@pytest.mark.parametrize("more", [["--actorder"], ["--mse"], ["--symmetric=false"], ["--percdamp", "0.1"],
                                  ["--memory", "1"], ["--quant_format", "QDQ"]], ids=str)
def test_options(more, setup, tmp_path):
    plain, _ = quantize(setup, tmp_path, "default")
    learned, _ = quantize(setup, tmp_path, "gptq", *more)
    assert learned < 0.8 * plain, (plain, learned)


def test_one_scale_for_all_columns(setup, tmp_path):
    apart, _ = quantize(setup, tmp_path, "gptq")
    together, _ = quantize(setup, tmp_path, "gptq", "--perchannel=false")
    assert apart < together < 10 * apart


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_same_bytes_whatever_the_threads(method, setup, tmp_path):
    _, one = quantize(setup, tmp_path, method, "--threads", 1)
    _, three = quantize(setup, tmp_path, method, "--threads", 3)
    assert one.read_bytes() == three.read_bytes()


def test_times_and_temporary_files(setup, tmp_path):
    """--json says where the time of gptq went; no file stays of Hessians that --memory does not hold."""
    model, data, _ = setup
    temp = tmp_path / "temp"
    temp.mkdir()
    for memory in ("1g", "1k"):
        done = onq("nbits", "-i", model, "-o", tmp_path / "q.onnx", "--force", "--quant_method", "gptq", "--data", data, "--memory", memory, "--json", "-v",
                   status=0, env={**os.environ, **runtime(), "TMPDIR": str(temp)})
        told = json.loads(done.stdout)["gptq"]
        parts = [told[f"{what}_cpu_seconds"] for what in ("runs", "hessians", "rounding")]
        assert told["layers"] > 0 and told["samples"] > 0 and all(p > 0 for p in parts), told
        assert "s of processor time for runs of both models" in done.stderr
        assert not list(temp.iterdir())


class Reader:
    """As many passes as are asked for."""

    def __init__(self, samples):
        self.samples = samples
        self.left = iter(samples)

    def get_next(self):
        return next(self.left, None)

    def __iter__(self):
        return iter(self.samples)


@pytest.mark.difference("Integers of gptq")
@pytest.mark.parametrize("more, options", [([], {}), (["--actorder"], {"actorder": True}), (["--mse"], {"mse": True})])
@pytest.mark.parametrize("symmetric", [True, False])
def test_no_more_than_the_reference(symmetric, more, options, setup, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(Tensor=()))  # asked for, not used
    from onnxruntime.quantization.matmul_nbits_quantizer import GPTQWeightOnlyQuantConfig, MatMulNBitsQuantizer

    model, data, x = setup
    reader = Reader([{"x": sample} for sample in np.load(data)["x"]])
    config = GPTQWeightOnlyQuantConfig(calibration_data_reader=reader, **options)
    theirs = MatMulNBitsQuantizer(onnx.load(model), block_size=32, is_symmetric=symmetric, algo_config=config)
    theirs.process()
    theirs.model.save_model_to_file(tmp_path / "reference.onnx")
    ours, _ = quantize(setup, tmp_path, "gptq", f"--symmetric={symmetric}", *more)
    reference = loss(model, tmp_path / "reference.onnx", x)
    rounded, _ = quantize(setup, tmp_path, "gptq", f"--symmetric={symmetric}", "--sweeps", 0, *more)
    assert ours < rounded < 0.25 * reference, (ours, rounded, reference)


def test_awq_needs_no_node_after_a_constant(setup, tmp_path):
    _, out = quantize(setup, tmp_path, "awq")
    kinds = [n.op_type for n in onnx.load(out).graph.node]
    assert kinds.count("MatMulNBits") == 3
    assert kinds.count("Mul") <= 4  # three of its own, and one in front of `down`


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_weights_read_more_than_once(method, setup, tmp_path):
    """Twice from one tensor, and from a tensor that another weight reads too."""
    model = onnx.load(setup[0])
    node = helper.make_node
    model.graph.node.extend([node("MatMul", ["h", "up"], ["twice"], "twice"), node("Tanh", ["h"], ["th"], "tanh"),
                             node("MatMul", ["th", "gate"], ["third"], "third"), node("Add", ["twice", "third"], ["sum"], "sum"),
                             node("MatMul", ["sum", "down"], ["more"], "more"), node("Add", ["y", "more"], ["z"], "z")])
    model.graph.output[0].name = "z"
    onnx.save(model, tmp_path / "m.onnx")
    shared = (tmp_path / "m.onnx", *setup[1:])
    learned, out = quantize(shared, tmp_path, method)
    assert [n.op_type for n in onnx.load(out).graph.node].count("MatMulNBits") == 6
    assert learned < quantize(shared, tmp_path, "default")[0]


def test_samples_are_needed(setup, tmp_path):
    r = onq("nbits", "-i", setup[0], "-o", tmp_path / "o.onnx", "--quant_method", "gptq")
    assert r.returncode == 1 and "--data" in r.stderr and not (tmp_path / "o.onnx").exists()


@pytest.mark.skipif(not (MODELS / "minilm").exists(), reason="no shared models")
def test_minilm(tmp_path):
    """On samples that were left out."""
    model = MODELS / "minilm" / "model.onnx"
    lost = {}
    for method in ("default", "gptq", "awq"):
        out = tmp_path / f"{method}.onnx"
        onq("nbits", "-i", model, "-o", out, "--quant_method", method, "--quiet", "--data", MODELS / "minilm", "--hold_out", 3,
            status=0)
        float_, made = (onnxruntime.InferenceSession(p, providers=["CPUExecutionProvider"]) for p in (model, out))
        lost[method] = 0
        for i in (2, 5):
            folder = MODELS / "minilm" / f"test_data_set_{i}"
            feed = {}
            for k, name in enumerate(("input_ids", "attention_mask", "token_type_ids")):
                feed[name] = numpy_helper.to_array(onnx.load_tensor(folder / f"input_{k}.pb"))
            lost[method] += np.square(float_.run(None, feed)[0] - made.run(None, feed)[0]).sum()
    assert lost["gptq"] < 0.8 * lost["default"] and lost["awq"] < lost["default"], lost


def test_layers_make_up_for_layers(setup, tmp_path, rng, mixing):
    """The second layer is rounded towards what float makes, given what the first one makes in few bits: with the first in
    2 bits that is less loss than by the inputs of the float model (which --nodes_to_quantize down shows)."""
    config = tmp_path / "config.json"
    config.write_text('{"gate": {"bits": 2}, "up": {"bits": 2}}')
    both, _ = quantize(setup, tmp_path, "gptq", "--node_config", config)
    plain, _ = quantize(setup, tmp_path, "default", "--node_config", config)
    assert both < 0.6 * plain, (both, plain)


def test_few_rows(setup, tmp_path):
    model, data, _ = setup
    few = tmp_path / "few.npz"
    np.savez(few, x=np.load(data)["x"][:2, :8])
    for method in ("gptq", "awq"):
        how = ["nbits", "-i", model, "-o", tmp_path / "out.onnx", "--quant_method", method, "--no_verify"]
        done = onq(*how, "--data", few)
        assert re.search(f"{method}: (.) of \\1 layers met fewer rows than they have inputs", done.stderr), done.stderr
        assert "fewer rows" not in onq(*how, "--data", data).stderr


@pytest.mark.parametrize("words, least, most", [
    (["--bits", 2], 8, 30), (["--bits", 2, "--quant_method", "hqq"], 8, 30), (["--bits", 3], 2, 6),
    (["--bits", 2, "--quant_method", "awq", "--data"], 8, 30), (["--target_bits", 3.5], 2, 6),
    (["--target_bits", 4], 1.25, 2.5),
    (["--bits", 2, "--quant_method", "gptq", "--data"], 8, 30), (["--bits", 3, "--quant_method", "gptq", "--data"], None, None),
    (["--bits", 4], None, None), (["--target_bits", 5], None, None)])
def test_noise_is_told_before_anything_is_done(words, least, most, setup, tmp_path):
    """How much of the weights rounding takes away is measured, and is a warning where it is more than 2 %, or
    with gptq more than 8 %."""
    words = [*words, setup[1]] if words[-1] == "--data" else words
    done = onq("nbits", "-i", setup[0], "--dry_run", *words)
    assert done.returncode == 0, done.stderr
    found = re.search(r"rounding adds ([0-9.]+) % of noise to the weights: most models are of little use", done.stderr)
    assert (found is not None) == (least is not None), done.stderr
    assert found is None or least < float(found[1]) < most, found[0]


def test_noise_is_measured(tmp_path):
    """The number of bits does not decide: two hold weights that have four values, and four are few beside outliers."""
    rng = np.random.default_rng(0)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])
    for name, bits, warned in (("values", 2, False), ("outliers", 4, True)):
        w = rng.choice([-3.0, -1, 1, 3], (64, 64)) if bits == 2 else rng.standard_normal((64, 64))
        if name == "outliers":
            w[::16] *= 8
        graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y],
                                  [numpy_helper.from_array(w.astype(np.float32), "w")])
        path = tmp_path / f"{name}.onnx"
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), path)
        done = onq("nbits", "-i", path, "-o", tmp_path / "out.onnx", "--bits", bits, "--form", "packed")
        assert done.returncode == 0 and ("rounding adds" in done.stderr) == warned, (name, done.stderr)


def test_gptq_tells_what_the_last_layer_reads(setup, tmp_path):
    """Noise of the inputs of the last layer, as it is measured here; a warning where it is large."""
    def reads(path):
        m = onnx.load(path)
        m.graph.output.append(helper.make_tensor_value_info("v", TensorProto.FLOAT, None))
        x = np.load(setup[1])["x"].reshape(-1, WIDTH)
        s = onnxruntime.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"])
        return s.run(["v"], {"x": x})[0].astype(np.float64)

    want, out, told = reads(setup[0]), tmp_path / "out.onnx", []
    for bits in (2, 3, 4):
        done = onq("nbits", "-i", setup[0], "-o", out, "--quant_method", "gptq", "--bits", bits, "--data", setup[1],
                   "--no_verify", "--json", "--form", "blocks" if bits == 4 else "packed")
        told.append(json.loads(done.stdout)["gptq"]["noise"])
        found = np.square(reads(out) - want).sum() / np.square(want).sum()
        assert abs(told[-1] / found - 1) < 0.02
        assert ("the inputs of the last layer have" in done.stderr) == (told[-1] > 0.08), (told, done.stderr)
    assert told[0] > 3 * told[1] > 9 * told[2] > 0, told


@pytest.mark.parametrize("bits, warned", [(2, True), (4, False)])
def test_gptq_warns_of_what_it_could_not_make_up_for(bits, warned, tmp_path):
    """Inputs that have nothing to do with each other leave nothing to make up with."""
    deep(tmp_path / "m.onnx", 24, width=64)
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(1).standard_normal((8, 64, 64), dtype=np.float32))
    done = onq("nbits", "-i", tmp_path / "m.onnx", "-o", tmp_path / "out.onnx", "--quant_method", "gptq", "--bits", bits,
               "--block_size", "64", "--form", "packed", "--data", tmp_path / "x.npz", "--no_verify", "--json")
    noise = json.loads(done.stdout)["gptq"]["noise"]
    assert (noise > 0.08) == warned == ("the inputs of the last layer have" in done.stderr), (noise, done.stderr)


def deep(path, layers, width=512):
    """Layers one after another, with an input each that is scaled."""
    rng = np.random.default_rng(3)
    nodes, inits, at = [], [], "x"
    for i in range(layers):
        w = (rng.standard_normal((width, width), dtype=np.float32) / np.sqrt(width)).astype(np.float32)
        inits += [numpy_helper.from_array(w, f"w{i}"), numpy_helper.from_array(rng.uniform(0.9, 1.1, width).astype(np.float32), f"g{i}")]
        nodes += [helper.make_node("Mul", [at, f"g{i}"], [f"h{i}"], f"norm{i}"), helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"y{i}"], f"mm{i}")]
        at = f"y{i}"
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "deep", [value("x", TensorProto.FLOAT, ["n", width])], [value(at, TensorProto.FLOAT, ["n", width])], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path,
              save_as_external_data=True, location=path.name + ".data")


def peak(*words):
    """MiB that the program held at most. A process of its own starts it: what its parent held would count, too."""
    start = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True, stdout=2); " \
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024)"
    done = subprocess.run([sys.executable, "-S", "-c", start, ONQ, *map(str, words)], env={**os.environ, **runtime()}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return float(done.stdout)


@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_memory_does_not_grow_with_the_model(tmp_path, method):
    """64 layers more are 64 MiB more of float weights, which were in memory twice or three times."""
    held = []
    for layers in (8, 72):
        model, data = tmp_path / f"{layers}.onnx", tmp_path / "x.npz"
        deep(model, layers)
        np.savez(data, x=np.random.default_rng(4).standard_normal((2, 64, 512)).astype(np.float32))
        held.append(peak("nbits", "-i", model, "-o", tmp_path / "out.onnx", "--quant_method", method, "--data", data,
                         "--no_verify", "--sweeps", "0"))
    assert held[1] - held[0] < 40, held


def anonymous_peak(*words):
    """MiB that the program held at most beside the pages of files, which the system takes back where it needs them."""
    most, run = 0, subprocess.Popen([ONQ, *map(str, words)], env={**os.environ, **runtime()}, stdout=subprocess.DEVNULL)
    while run.poll() is None:
        try:
            told = pathlib.Path(f"/proc/{run.pid}/status").read_text(encoding="ascii")
        except OSError:
            break
        most = max([most, *(int(line.split()[1]) / 1024 for line in told.splitlines() if line.startswith("RssAnon"))])
        time.sleep(0.002)
    assert run.wait() == 0
    return most


def test_memory_of_choosing_bits_is_that_of_few_bits(tmp_path):
    """The session that measures harm has the float weights in their file and those of 4 bits in memory: 64 MiB of float weights
    more, of which the runtime made packed copies, are 10 MiB of 4 bits, once or twice."""
    held = []
    for layers in (8, 72):
        model, data = tmp_path / f"{layers}.onnx", tmp_path / "x.npz"
        deep(model, layers)
        np.savez(data, x=np.random.default_rng(4).standard_normal((2, 64, 512)).astype(np.float32))
        held.append(anonymous_peak("nbits", "-i", model, "-o", tmp_path / "out.onnx", "--target_bits", "4.5", "--data", data, "--no_verify"))
    assert held[1] - held[0] < 56, held


def deep_decoder(path, layers, width=512):
    """Hidden states to which layers add what two products make of them: `layers` MiB of weights in all."""
    rng = np.random.default_rng(3)
    node, nodes, inits, at = helper.make_node, [helper.make_node("Gather", ["table", "ids"], ["x0"], "embed")], [], "x0"

    def const(name, *shape):
        inits.append(numpy_helper.from_array((rng.standard_normal(shape, dtype=np.float32) / np.sqrt(shape[-1])).astype(np.float32), name))
        return name

    const("table", 64, width)
    for i in range(layers // 2):
        nodes += [node("SimplifiedLayerNormalization", [at, const(f"g{i}", width)], [f"n{i}"], f"norm{i}", axis=-1, epsilon=1e-5, stash_type=1),
                  node("MatMul", [f"n{i}", const(f"up{i}", width, width)], [f"u{i}"], f"up{i}"), node("Relu", [f"u{i}"], [f"r{i}"]),
                  node("MatMul", [f"r{i}", const(f"down{i}", width, width)], [f"d{i}"], f"down{i}"), node("Add", [at, f"d{i}"], [f"x{i + 1}"])]
        at = f"x{i + 1}"
    nodes += [node("SimplifiedLayerNormalization", [at, const("g", width)], ["n"], "norm", axis=-1, epsilon=1e-5, stash_type=1),
              node("MatMul", ["n", const("head", width, 64)], ["logits"], "head")]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "deep", [value("ids", TensorProto.INT64, ["n"])], [value("logits", TensorProto.FLOAT, ["n", 64])], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path,
              save_as_external_data=True, location=path.name + ".data")


def test_memory_does_not_grow_with_what_was_rotated(tmp_path):
    """What --rotate turned lies in a file without a name: its pages are given back once a session has them."""
    held = []
    for layers in (8, 72):
        model, data = tmp_path / f"{layers}.onnx", tmp_path / "ids.npz"
        deep_decoder(model, layers)
        np.savez(data, ids=np.arange(64))
        held.append(peak("nbits", "-i", model, "-o", tmp_path / "out.onnx", "--rotate", "--quant_method", "gptq", "--data", data,
                         "--no_verify", "--sweeps", "0"))
    assert held[1] - held[0] < 40, held


def added(path, rng, stream):
    """y = stream + (a @ first + bias) + (2 a) @ second; `stream` is made of x, or one row for all."""
    weights = {"first": rng.normal(size=(WIDTH, WIDTH)) / 8, "second": rng.normal(size=(WIDTH, WIDTH)) / 8,
               "bias": rng.normal(size=WIDTH), "two": np.array(2.0)}
    node = helper.make_node
    nodes = [node("Identity", ["x"], ["a"]), node("Mul", ["x", "two"], ["b"]),
             node("Tanh", ["x"], ["s"]) if stream == "x" else node("ReduceMean", ["x"], ["s"], axes=[0]),
             node("MatMul", ["a", "first"], ["m1"], "first"), node("Add", ["bias", "m1"], ["m1b"]), node("Add", ["s", "m1b"], ["s1"]),
             node("MatMul", ["b", "second"], ["m2"], "second"), node("Add", ["s1", "m2"], ["y"])]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "added", [value("x", TensorProto.FLOAT, ["n", WIDTH])], [value("y", TensorProto.FLOAT, ["n", WIDTH])],
                              [numpy_helper.from_array(np.asarray(w, np.float32), k) for k, w in weights.items()])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.mark.parametrize("stream", ["x", "row"])
def test_later_products_make_up_for_the_stream(stream, rng, setup, tmp_path):
    """Two bits for the first product lose much; the second, in eight bits, is added to the same sum and sees nearly the same inputs."""
    model, config = tmp_path / "added.onnx", tmp_path / "config.json"
    added(model, rng, stream)
    lost = {}
    for second in ("fp32", {"bits": 8}):
        config.write_text(json.dumps({"first": {"bits": 2}, "second": second}))
        lost[str(second)], _ = quantize((model, *setup[1:]), tmp_path, "gptq", "--node_config", config)
    kept, made_up = lost.values()
    assert made_up < 0.3 * kept, lost
