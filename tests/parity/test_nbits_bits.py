"""test_nbits_bits.py - `onq nbits --target_bits` and `--mixed`: bits where they are needed."""
import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import calibtool
from common import MODELS, onq
from running import loads, outputs, sqnr


def chain(seed=0, k=96, layers=6):
    """Layers one after another; one of them is multiplied by 20 on its way to the output, another by 0.01."""
    rng = np.random.default_rng(seed)
    nodes, inits, at, sums = [], [], "x", []
    for i in range(layers):
        w = (rng.standard_normal((k, k)) / np.sqrt(k)).astype(np.float32)
        inits.append(numpy_helper.from_array(w, f"layers.{i}.weight"))
        nodes.append(helper.make_node("MatMul", ["x", f"layers.{i}.weight"], [f"p{i}"], f"/layers.{i}/v_proj/MatMul"))
        inits.append(numpy_helper.from_array(np.float32(20 if i == 2 else 0.01 if i == 4 else 1), f"f{i}"))
        nodes.append(helper.make_node("Mul", [f"p{i}", f"f{i}"], [f"m{i}"], f"mul{i}"))
        sums.append(f"m{i}")
    nodes.append(helper.make_node("Sum", sums, ["y"], "sum"))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", k])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", k])], inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def samples(n, k=96, seed=5):
    rng = np.random.default_rng(seed)
    return [{"x": rng.standard_normal((8, k)).astype(np.float32)} for _ in range(n)]


def spent(path, out, *words):
    done = onq("nbits", "-i", path, "-o", out, "--json", *words)
    assert done.returncode == 0, done.stderr
    assert loads(out) is None
    return json.loads(done.stdout)["bits"]


def stored(path, source):
    """Bits a weight of the products, scales counted."""
    m, count = onnx.load(path), sum(np.prod(t.dims) for t in onnx.load(source).graph.initializer if len(t.dims) == 2)
    return sum(8 * len(t.raw_data) for t in m.graph.initializer if len(t.dims) >= 2) / count


@pytest.mark.parametrize("target", [3.5, 4.7, 6, 9.5, 32])
def test_target(tmp_path, target):
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(chain(), path)
    bits = spent(path, out, "--target_bits", str(target))
    assert bits["got"] <= target + 1e-9 and abs(stored(out, path) - bits["got"]) < 0.01
    assert bits["got"] > target - 1.2 and not bits["measured"]
    want = outputs(path, samples(2))
    assert sqnr(want, outputs(out, samples(2))) > {3.5: 4, 4.7: 8, 6: 12, 9.5: 35, 32: 100}[target]


def test_samples_tell(tmp_path):
    """The same bits, spent by what reaches the output: nearer to float, on samples that were not looked at."""
    path, data = tmp_path / "m.onnx", tmp_path / "samples"
    onnx.save(chain(), path)
    calibtool.write_samples(data, samples(4))
    plain = spent(path, tmp_path / "plain.onnx", "--target_bits", "5")
    told = spent(path, tmp_path / "told.onnx", "--target_bits", "5", "--data", data)
    assert told["measured"] and told["got"] <= 5 and plain["got"] <= 5
    assert told["weights"]["layers.2.weight"] == 8 and told["weights"]["layers.4.weight"] == 2
    held = samples(4, seed=77)
    want = outputs(path, held)
    a, b = (sqnr(want, outputs(tmp_path / f"{n}.onnx", held)) for n in ("plain", "told"))
    assert b > a + 5, (a, b)


def test_wrong_use(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(chain(), path)
    out = tmp_path / "out.onnx"
    for words, text in ((["--target_bits", "2"], "the fewest bits that are possible here are 2.50"),
                        (["--target_bits", "4.5", "--bits", "4"], "leave --bits and --mixed out"),
                        (["--bits", "8", "--quant_method", "rtn"], "--bits 8 needs --quant_method default"),
                        (["--bits", "5"], "bits: 5 is not one of 2, 3, 4, 8"),
                        (["--bits", "3", "--quant_method", "hqq"], "method hqq has no 3 bits"),
                        (["--bits", "3", "--quant_format", "QDQ"], "has no 3 bits"),
                        (["--form", "packed", "--quant_format", "QDQ"], "needs --quant_format QOperator"),
                        (["--block_size", "48"], "block size 48"), (["--block_size", "-1"], "needs --quant_format QDQ"),
                        (["--bits", "2", "--quant_format", "QDQ"], "has no 2 bits"),
                        (["--quant_method", "hqq", "--quant_format", "QDQ"], "not integers"),
                        (["--op_types_to_quantize", "Gather", "--quant_format", "QDQ"], "Gather needs"),
                        (["--op_types_to_quantize", "Conv"], "there are MatMul, Gather, Gemm and MoE"),
                        (["--ratios", "w=2", "--quant_method", "rtn"], "is not WEIGHT=RATIO"),
                        (["--ratios", "w=0.5"], "needs --quant_method rtn"),
                        (["--quant_axes", "MatMul:1"], "blocks of MatMul lie along axis 0"),
                        (["--channel_wised_quantize"], "needs --quant_format QDQ")):
        done = onq("nbits", "-i", path, "-o", out, *words)
        assert done.returncode == 2 and text in done.stderr, (words, done.stderr)
    assert not out.exists()


@pytest.mark.parametrize("text, words", [
    ('{"/layers.0/v_proj/MatMul": {"bits": 5}}', "bits: 5 is not one of 2, 3, 4, 8"),
    ('{"/layers.0/v_proj/MatMul": {"group_size": 31}}', "block size 31"),
    ('{"/layers.0/v_proj/MatMul": {"scheme": "odd"}}', "'scheme' is neither"),
    ('{"/layers.0/v_proj/MatMul": {"Bits": 4}}', "unknown key 'Bits'"),
    ('{"/layers.0/v_proj/MatMul": 4}', "neither an object nor"),
    ("[1]", "not an object"), ("{", "config.json"),
])
def test_wrong_config(tmp_path, text, words):
    path, config = tmp_path / "m.onnx", tmp_path / "config.json"
    onnx.save(chain(), path)
    config.write_text(text)
    done = onq("nbits", "-i", path, "-o", tmp_path / "out.onnx", "--node_config", config)
    assert done.returncode == 1 and words in done.stderr and "config.json" in done.stderr, done.stderr
    config.write_text('{"nobody": {"bits": 8}}')
    done = onq("nbits", "-i", path, "-o", tmp_path / "out.onnx", "--node_config", config)
    assert done.returncode == 0 and "--node_config: no node is called 'nobody'" in done.stderr


def eights(path):
    return {n.name[:-3] for n in onnx.load(path).graph.node if n.name.endswith("_Q8")}


def test_mixed(tmp_path):
    """use_more_bits of llama.cpp: the first and last eighth, and every third between."""
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(chain(layers=16), path)
    assert onq("nbits", "-i", path, "-o", out, "--mixed", "layers").returncode == 0
    want = {i for i in range(16) if i < 2 or i >= 14 or (i - 2) % 3 == 2}
    assert eights(out) == {f"/layers.{i}/v_proj/MatMul" for i in want}
    done = onq("nbits", "-i", path, "-o", out, "--mixed", "last")
    assert done.returncode == 0 and "no node is known" in done.stderr and eights(out) == set()


def test_mixed_llama(tmp_path):
    path, out = MODELS / "tiny_llama" / "model.onnx", tmp_path / "out.onnx"
    if not path.exists():
        pytest.skip("no model")
    assert onq("nbits", "-i", path, "-o", out, "--mixed", "k_quant_last", "--quant_method", "k_quant").returncode == 0
    assert len(eights(out)) == 1


def test_forecast(tmp_path):
    """A line about the speed: from what is known, and timed where --verify asks for it."""
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(chain(), path)
    for words, text in ((["--bits", "8"], "unpacks weights of 2 and 8 bits"),
                        (["--quant_method", "hqq", "--form", "blocks"], "are not integers"),
                        (["--quant_method", "hqq"], "matrices as small as these"),
                        ([], "matrices as small as these"), (["--accuracy_level", "4"], None),
                        (["--bits", "8", "--accuracy_level", "4"], None)):
        done = onq("nbits", "-i", path, "-o", out, *words)
        lines = [line for line in done.stdout.splitlines() if line.startswith("speed: ")]
        assert len(lines) == (text is not None) and (text is None or text in lines[0]), done.stdout
    for words in (["nbits", "--accuracy_level", "4"], ["nbits", "--quant_format", "QDQ"], ["bnb4"]):
        done = onq(*words, "-i", path, "-o", out, "--verify", "--json")
        (row,) = json.loads(done.stdout)["forecast"]
        assert (row["K"], row["N"]) == (96, 96) and min(row[k] for k in row) > 0
        assert "speed: a product with 96 x 96 weights takes" in onq(*words, "-i", path, "-o", out, "--verify").stdout


@pytest.mark.parametrize("target, bits, block", [(3.2, 2, 32), (4.5, 4, 64), (5, 4, 32), (6, 4, 32), (9, 8, 32)])
def test_never_worse_than_uniform(tmp_path, target, bits, block):
    """Without samples no weight has more noise than with the same bits for all, of the same size or less."""
    path = tmp_path / "m.onnx"
    onnx.save(chain(k=128, layers=12), path)
    got = spent(path, tmp_path / "mix.onnx", "--target_bits", str(target))
    assert got["got"] <= target and all(v >= bits or v == 0 for v in got["weights"].values())
    assert onq("nbits", "-i", path, "-o", tmp_path / "uniform.onnx", "--bits", str(bits), "--block_size", str(block)).returncode == 0
    held = samples(4, k=128, seed=77)
    want = outputs(path, held)
    mix, uniform = (sqnr(want, outputs(tmp_path / f"{n}.onnx", held)) for n in ("mix", "uniform"))
    assert mix >= uniform - 0.01, (mix, uniform)


def test_target_and_node_config(tmp_path):
    """What single nodes were given counts in the average and stays."""
    path, config, out = tmp_path / "m.onnx", tmp_path / "config.json", tmp_path / "out.onnx"
    onnx.save(chain(), path)
    config.write_text('{"/layers.1/v_proj/MatMul": {"bits": 8, "group_size": 16}, "/layers.3/v_proj/MatMul": "fp32"}')
    bits = spent(path, out, "--target_bits", "6", "--node_config", config)
    assert bits["fixed"] == 1 and "layers.1.weight" not in bits["weights"] and "layers.3.weight" not in bits["weights"]
    made = {n.name: n for n in onnx.load(out).graph.node}
    fixed = {a.name: a.i for a in made["/layers.1/v_proj/MatMul_Q8"].attribute}
    assert (fixed["bits"], fixed["block_size"]) == (8, 16) and "/layers.3/v_proj/MatMul" in made
    sizes = sum(8 * len(t.raw_data) for t in onnx.load(out).graph.initializer
                if any(part in t.name for part in ("Q", "scales", "offsets", "zero_points")) and len(t.dims) >= 2)
    assert abs(sizes / (5 * 96 * 96) - bits["got"]) < 0.01 and bits["got"] <= 6
    done = onq("nbits", "-i", path, "-o", out, "--target_bits", "3.5", "--node_config", config)
    assert done.returncode == 2 and "and with the nodes of --node_config" in done.stderr


@pytest.mark.parametrize("unlike", [False, True])
def test_weighed_by_layers_and_kinds(tmp_path, unlike):
    """More weights than are weighed one by one: few runs, and the layer that counts is found all the same; so is, in
    that layer, a weight that counts unlike the others of its kind."""
    rng, k, layers = np.random.default_rng(0), 32, 20
    nodes, inits, sums = [], [], []
    for i in range(layers):
        for kind, factor in (("q_proj", 0.05), ("v_proj", 1), ("down_proj", 1)):
            name = f"layers.{i}.{kind}.weight"
            inits.append(numpy_helper.from_array((rng.standard_normal((k, k)) / np.sqrt(k)).astype(np.float32), name))
            heavy = 30 * (20 if unlike and kind == "q_proj" else 0.05 if unlike else 1) if i == 7 else 1
            inits.append(numpy_helper.from_array(np.float32(factor * heavy), name + "_f"))
            nodes.append(helper.make_node("MatMul", ["x", name], [name + "_p"], f"/layers.{i}/{kind}/MatMul"))
            nodes.append(helper.make_node("Mul", [name + "_p", name + "_f"], [name + "_m"]))
            sums.append(name + "_m")
    nodes.append(helper.make_node("Sum", sums, ["y"], "sum"))
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", k])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", k])], inits)
    path, data = tmp_path / "m.onnx", tmp_path / "samples"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    calibtool.write_samples(data, samples(4, k=k))
    bits = spent(path, tmp_path / "out.onnx", "--target_bits", "5.3", "--data", data)
    # looking, layers, kinds, three weights alone, choices with four samples
    assert bits["measured"] and bits["runs"] <= 4 + 20 + 3 + 3 + 6 * 4
    heavy = [bits["weights"][f"layers.7.{kind}.weight"] for kind in (["q_proj"] if unlike else ["v_proj", "down_proj"])]
    assert set(heavy) == {8}, bits["weights"]


@pytest.mark.parametrize("level", ["0", "4"])
@pytest.mark.parametrize("shape", [("b", 96), (2, "t", 96), None])
def test_sums(tmp_path, shape, level):
    """hqq with its zero points as a product with sums of blocks: the values that MatMulNBits has with them as an input."""
    rng = np.random.default_rng(1)
    inits = [numpy_helper.from_array(rng.standard_normal((96, n)).astype(np.float32) + 0.3, f"w{n}") for n in (40, 64)]
    nodes = [helper.make_node("Relu", ["x"], ["r"], "relu")] if shape else [helper.make_node("Squeeze", ["x"], ["r"], "relu")]
    nodes += [helper.make_node("MatMul", ["r", f"w{n}"], [f"y{n}"], f"mm{n}") for n in (40, 64)]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape or (1, "b", 96))],
                              [helper.make_tensor_value_info(f"y{n}", TensorProto.FLOAT, None) for n in (40, 64)], inits)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    for form in ("blocks", "sums", "auto"):
        assert onq("nbits", "-i", path, "-o", tmp_path / f"{form}.onnx", "--quant_method", "hqq", "--form", form,
                   "--accuracy_level", level).returncode == 0
    x = [{"x": rng.standard_normal([2 if isinstance(d, int) and d == 2 else 3 if isinstance(d, str) else d
                                    for d in (shape or (1, "b", 96))]).astype(np.float32)}]
    want = outputs(tmp_path / "blocks.onnx", x)
    assert sqnr(want, outputs(tmp_path / "sums.onnx", x)) > (100 if level == "0" else 30)
    made = onnx.load(tmp_path / "sums.onnx")
    assert sum(n.op_type == "ReduceSum" for n in made.graph.node) == 1 and (tmp_path / "auto.onnx").read_bytes() == (
        tmp_path / "sums.onnx").read_bytes()
    ops = [n.op_type for n in onnx.load(tmp_path / "blocks.onnx").graph.node]
    assert "ReduceSum" not in ops


def unpack(packed, bits, n, k, block):
    """Integers of 4 bits less 8, N x K: what the nodes before MatMulNBits make of packed ones, from the description in
    nb_widen.c."""
    p = packed.astype(np.int64)
    if bits == 2:
        wide = np.stack([p[0] & 0xCC, (p[0] << 2) & 0xCC]) | 0x22
    else:
        wide = np.concatenate([p & 0xEE, [(p[0] & 0x11) << 1 | (p[1] & 0x11) << 2 | (p[2] & 0x11) << 3]]) | 0x11
    wide = wide.reshape(n, -1)
    return np.stack([wide & 15, wide >> 4], -1).reshape(n, -1)[:, :k] - 8


@pytest.mark.parametrize("bits, block, k", [(3, 32, 96), (2, 32, 96), (3, 16, 40), (2, 128, 200), (3, 64, 96)])
def test_packed(tmp_path, bits, block, k):
    """Weights of 2 and 3 bits: what they are in the file is what the model computes, and the errors are those of the
    nearest of the levels -3 -1 1 3 or -7 .. 7."""
    rng = np.random.default_rng(bits)
    w, n = rng.standard_normal((k, 24)).astype(np.float32), 24
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"], "mm")], "g",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", k])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", n])], [numpy_helper.from_array(w, "w")])
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    done = onq("nbits", "-i", path, "-o", out, "--bits", str(bits), "--block_size", str(block), "--form", "packed")
    assert done.returncode == 0, done.stderr
    made = {t.name: numpy_helper.to_array(t) for t in onnx.load(out).graph.initializer}
    assert made[f"w_Q{bits}"].size == n * -(-k // block) * block * bits // 8 and made["w_scales"].dtype == np.float16
    scale = np.repeat(made["w_scales"].astype(np.float32), block, 1)[:, :k]
    real = (unpack(made[f"w_Q{bits}"], bits, n, k, block) * scale).T
    x = [{"x": rng.standard_normal((5, k)).astype(np.float32)}]
    for optimised in (True, False):
        assert np.allclose(outputs(out, x, optimised).reshape(5, n), x[0]["x"] @ real, atol=1e-3)
    step = 2 * scale.T * 2 ** (3 - bits)
    inside = np.abs(w) <= step * (2**bits - 1) / 2
    assert np.all(np.abs(real - w)[inside] <= step[inside] / 2 * 1.01) and np.mean(inside) > 0.8


@pytest.mark.parametrize("words", [["--quant_method", "hqq"], ["--bits", "8"], ["--symmetric", "false"], ["--quant_method", "k_quant"]],
                         ids="-".join)
def test_packed_scales(tmp_path, words):
    """Scales and offsets as float16: a smaller file, and nothing that matters is lost."""
    path = tmp_path / "m.onnx"
    onnx.save(chain(), path)
    for form in ("auto", "packed"):
        assert onq("nbits", "-i", path, "-o", tmp_path / f"{form}.onnx", "--form", form, *words).returncode == 0
    a, b = tmp_path / "auto.onnx", tmp_path / "packed.onnx"
    saved = (2 if "hqq" in words else 1) * 16 / 32
    assert abs(stored(a, path) - stored(b, path) - saved) < 0.01
    assert sqnr(outputs(a, samples(2)), outputs(b, samples(2))) > 50


def test_level_auto(tmp_path):
    path, data, out = tmp_path / "m.onnx", tmp_path / "samples", tmp_path / "out.onnx"
    onnx.save(chain(), path)
    calibtool.write_samples(data, samples(2))
    done = onq("nbits", "-i", path, "-o", out, "--accuracy_level", "auto", "--data", data, "--verify", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["accuracy_level"]
    levels = {a.i for n in onnx.load(out).graph.node for a in n.attribute if a.name == "accuracy_level"}
    assert levels == ({4} if told["chosen"] == 4 else set()) and min(told["decode_time"], told["prefill_time"]) > 0
    assert told["sqnr_0"] > 10 and told["sqnr_4"] > 10 and loads(out) is None


def tied(path):
    """A table that is looked up in and, after a Transpose, is the last layer; and a layer between."""
    rng = np.random.default_rng(3)
    inits = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in (("table", (64, 32)), ("w", (32, 32)))]
    nodes = [helper.make_node("Gather", ["table", "ids"], ["x"], "embed"), helper.make_node("MatMul", ["x", "w"], ["h"], "mm"),
             helper.make_node("Transpose", ["table"], ["t"], "turn", perm=[1, 0]), helper.make_node("MatMul", ["h", "t"], ["y"], "lm_head")]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 64])], inits)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


def tables(path):
    """Integers that were made of the table."""
    return [t.name for t in onnx.load(path).graph.initializer if t.name in ("table_Q4", "table_Q8")]


@pytest.mark.parametrize("node", [None, "lm_head", "embed"])
def test_tied_table_once(tmp_path, node):
    """--mixed last, or settings of one of the two nodes: the table is stored once, with 8 bits."""
    path, out, config = tmp_path / "m.onnx", tmp_path / "out.onnx", tmp_path / "c.json"
    tied(path)
    config.write_text(json.dumps({node: {"bits": 8}}))
    more = ["--mixed", "last"] if node is None else ["--node_config", config]
    done = onq("nbits", "-i", path, "-o", out, "--op_types_to_quantize", "MatMul,Gather", "--all_weights", *more)
    assert done.returncode == 0 and loads(out) is None, done.stderr
    assert tables(out) == ["table_Q8"]


def test_tied_table_with_settings_of_both(tmp_path):
    """Who gives both nodes settings gets what both say; a last layer that stays float does not hold the table."""
    path, out, config = tmp_path / "m.onnx", tmp_path / "out.onnx", tmp_path / "c.json"
    tied(path)
    for how, names in (({"lm_head": {"bits": 8}, "embed": {"bits": 4}}, {"table_Q4", "table_Q8"}), ({"lm_head": "fp32"}, {"table_Q4"})):
        config.write_text(json.dumps(how))
        done = onq("nbits", "-i", path, "-o", out, "--op_types_to_quantize", "MatMul,Gather", "--all_weights", "--node_config", config)
        assert done.returncode == 0 and loads(out) is None, done.stderr
        assert set(tables(out)) == names


def test_weights_that_were_in_few_bits_before_count(tmp_path):
    """The share of weights in few bits is that of the file, not of this run; the scales that were made before are float."""
    path, half, out = tmp_path / "m.onnx", tmp_path / "half.onnx", tmp_path / "out.onnx"
    tied(path)
    assert onq("nbits", "-i", path, "-o", half, "--block_size", "16").returncode == 0
    assert "in few bits: 33.3 % of the weights" in onq("nbits", "-i", path, "-o", half).stdout
    again = onq("nbits", "-i", half, "-o", out, "--op_types_to_quantize", "MatMul,Gather", "--all_weights")
    assert again.returncode == 0 and float(again.stdout.split("in few bits: ")[1].split(" %")[0]) > 95, again.stdout
    last = onq("nbits", "-i", out, "-o", tmp_path / "same.onnx")
    assert float(last.stdout.split("in few bits: ")[1].split(" %")[0]) > 90, last.stdout


def test_speed_of_a_mix(tmp_path):
    """Where a part of the weights has 8 bits, the hint says how many."""
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(chain(), path)
    (tmp_path / "c.json").write_text(json.dumps({"/layers.2/v_proj/MatMul": {"bits": 8}}))
    assert "; here 17 % of the weights are such" in onq("nbits", "-i", path, "-o", out, "--node_config", tmp_path / "c.json").stdout
    assert "are such" not in onq("nbits", "-i", path, "-o", out, "--bits", "8").stdout


def test_says_what_stays_float(tmp_path):
    rng = np.random.default_rng(3)
    inits = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in (("table", (64, 32)), ("w", (32, 32)))]
    nodes = [helper.make_node("Gather", ["table", "ids"], ["x"], "embed"), helper.make_node("MatMul", ["x", "w"], ["a"], "mm")]
    nodes += [helper.make_node(op, ["a" if i == 0 else f"n{i - 1}"], [f"n{i}"], op) for i, op in enumerate(("Relu", "Sigmoid", "Tanh", "Neg"))]
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])],
                              [helper.make_tensor_value_info("n3", TensorProto.FLOAT, ["n", 32])], inits)
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    done = onq("nbits", "-i", path, "-o", out)
    assert "8.2 kB of Gather (not in op_types_to_quantize): 'table'" in done.stdout, done.stdout
    assert "4 other operators: 4 left float" in done.stdout and done.stdout.count("left float") == 2
    told = json.loads(onq("nbits", "-i", path, "-o", out, "--json").stdout)["left_float"]
    assert told["bytes"] == 8192 and told["largest"] == "table" and 0.5 < told["share_of_file"] < 1
