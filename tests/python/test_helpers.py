"""test_helpers.py - quant_utils, overrides, models and loss debugging give what those of onnxruntime.quantization give."""
import copy
import zlib

import numpy as np
import onnx
import pytest
from conftest import Reader, build_cnn, draw
from onnx import TensorProto as T
from onnxruntime.quantization import matmul_bnb4_quantizer as their_bnb4
from onnxruntime.quantization import matmul_nbits_quantizer as their_nbits
from onnxruntime.quantization import qdq_loss_debug as their_debug
from onnxruntime.quantization import quant_utils as theirs
from onnxruntime.quantization.calibrate import TensorData as TheirData
from onnxruntime.quantization.onnx_model import ONNXModel as TheirModel
from onnxruntime.quantization.tensor_quant_overrides import TensorQuantOverridesHelper as TheirOverrides

from onq._job import Job
from onq.quantization import QuantizationMode, matmul_bnb4_quantizer, matmul_nbits_quantizer, qdq_loss_debug, quantize_static
from onq.quantization import quant_utils as mine
from onq.quantization.calibrate import TensorData, entropy
from onq.quantization.cuda_quantizer import pack_weights_for_cuda_mixed_gemm
from onq.quantization.onnx_model import ONNXModel
from onq.quantization.onnx_quantizer import ONNXQuantizer
from onq.quantization.tensor_quant_overrides import TensorQuantOverridesHelper

INTEGERS = [T.INT8, T.UINT8, T.INT16, T.UINT16, T.INT4, T.UINT4]
rng = np.random.default_rng(5)


def equal(a, b):
    """The same values in the same types and shapes."""
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("reduced", [False, True])
@pytest.mark.parametrize("kind", INTEGERS)
def test_scale_and_zero_point(kind, symmetric, reduced):
    qmin, qmax = mine.get_qmin_qmax_for_qType(kind, reduced, symmetric)
    assert all(map(equal, (qmin, qmax), theirs.get_qmin_qmax_for_qType(kind, reduced, symmetric)))
    ends = [(-1, 2), (0, 0), (0.5, 3), (-3, -1), (1e-40, 2e-40), (-1e30, 1e30)]
    for dtype in (np.float32, np.float16, np.float64):
        for low, high in ends:
            for least in (None, 0.001):
                with np.errstate(over="ignore", invalid="ignore"):
                    words = [np.array(low, dtype), np.array(high, dtype), qmin, qmax, symmetric, least]
                    if not np.isfinite(words[0]) or not np.isfinite(words[1]):
                        continue
                    a, b = mine.compute_scale_zp(*words), theirs.compute_scale_zp(*words)
                assert all(map(equal, a, b)), (dtype, low, high, least, a, b)


@pytest.mark.parametrize("kind", INTEGERS)
@pytest.mark.parametrize("symmetric", [False, True])
def test_quantize_data(kind, symmetric):
    for dtype in (np.float32, np.float16):
        data = rng.normal(0, 2, 50).astype(dtype)
        for words in ({}, {"reduce_range": True}, {"rmin_override": -1.0, "rmax_override": 0.5}, {"min_real_range": 20.0}):
            a, b = (m.quantize_data(data, kind, symmetric, **words) for m in (mine, theirs))
            assert all(map(equal, a, b)), words


def test_float8():
    for dtype in (np.float32, np.float16):
        data = rng.normal(0, 2, 50).astype(dtype)
        assert all(map(equal, mine.quantize_data(data, T.FLOAT8E4M3FN, False), theirs.quantize_data(data, T.FLOAT8E4M3FN, False)))
    with pytest.raises(ValueError):
        mine.compute_scale_zp_float8(T.FLOAT8E5M2, np.float32(1))


def test_snap():
    for low, high in ((-1, 2), (0, 0), (0.5, 3), (-3, -1), (0, 5)):
        for least in (None, 0.0, 0.1):
            words = [np.float32(low), np.float32(high), 0, 255, least]
            assert all(map(equal, mine.snap_zero_point_to_uint8(*words), theirs.snap_zero_point_to_uint8(*words)))


@pytest.mark.parametrize("kind", [T.INT8, T.UINT8, T.INT4, T.UINT4])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_initializers(kind, axis):
    weight = onnx.numpy_helper.from_array(rng.normal(0, 1, (12, 10)).astype(np.float32), "w")
    data = onnx.numpy_helper.to_array(weight)
    qmin, qmax = mine.get_qmin_qmax_for_qType(kind)
    if axis is None:
        zero, scale = mine.compute_scale_zp(data.min(), data.max(), qmin, qmax)
    else:
        pairs = [mine.compute_scale_zp(c.min(), c.max(), qmin, qmax) for c in np.moveaxis(data, axis, 0)]
        zero, scale = (np.array([p[i] for p in pairs]) for i in (0, 1))
    a, b = (m.quantize_onnx_initializer(weight, kind, zero, scale, axis) for m in (mine, theirs))
    assert a == b
    if axis is not None:
        for size in (4, 5, 16):
            parts = [m.compute_scale_zp_blocked(data, kind, axis, size, False) for m in (mine, theirs)]
            assert all(map(equal, *parts))
            a, b = (m.quantize_onnx_initializer(weight, kind, *parts[0], axis, block_size=size) for m in (mine, theirs))
            assert a == b
    with pytest.raises(NotImplementedError):
        mine.compute_scale_zp_blocked(data[None], kind, 0, 4, True)


def test_pack():
    for n in (0, 1, 2, 7, 64):
        data = rng.integers(0, 256, n).astype(np.uint8).tobytes()
        assert mine.pack_bytes_to_4bit(data) == theirs.pack_bytes_to_4bit(data)


def test_tables(tmp_path):
    for package, kind in ((mine, TensorData), (theirs, TheirData)):
        folder = tmp_path / package.__name__
        folder.mkdir()
        data = {n: kind(lowest=np.float32(-i), highest=np.float32(i / 3)) for i, n in enumerate(("b", "a", "long/name:0"))}
        package.write_calibration_table(data, str(folder))
    for name in ("calibration.json", "calibration.cache", "calibration.flatbuffers"):
        assert (tmp_path / mine.__name__ / name).read_bytes() == (tmp_path / theirs.__name__ / name).read_bytes(), name


def test_opsets_and_names():
    for opset in (9, 10, 12, 20, 21):
        model = build_cnn(opset)
        for weight in (mine.QuantType.QInt8, mine.QuantType.QInt16, mine.QuantType.QFLOAT8E4M3FN):
            if opset < 10 and weight != mine.QuantType.QInt8:
                continue
            a = mine.update_opset_version(copy.deepcopy(model), weight)
            b = theirs.update_opset_version(copy.deepcopy(model), theirs.QuantType[weight.name])
            assert mine.get_opset_version(a) == theirs.get_opset_version(b)
    for name in ("add_quant_suffix", "add_quant_input_suffix", "add_quant_output_suffix", "add_dequant_suffix",
                 "add_dequant_input_suffix", "add_dequant_output_suffix"):  # fmt: skip
        assert getattr(mine, name)("x") == getattr(theirs, name)("x")
    assert mine.FLOAT8_TYPES == theirs.FLOAT8_TYPES and mine.ms_domain == theirs.ms_domain


def test_entropy():
    from onnxruntime.quantization.calibrate import entropy as their_entropy

    p, q = rng.random(20), rng.random(20)
    for base in (None, 2.0):
        assert np.allclose(entropy(p, q, base), their_entropy(p, q, base))
    assert entropy([1.0, 0.0], [0.5, 0.5]) == np.float32(np.log(2))
    with pytest.raises(AssertionError):
        entropy(p, q, base=-1)


def test_models():
    """topological_sort, replace_gemm_with_matmul, remove_unused_constant."""
    for transposed in (0, 1):
        both = []
        for kind in (TheirModel, ONNXModel):
            model = build_cnn()
            if transposed:
                model.graph.initializer[3].CopyFrom(onnx.numpy_helper.from_array(np.ones((5, 64), np.float32), "w2"))
            nodes = [*model.graph.node[:4], onnx.helper.make_node("Gemm", ["f1", "w2", "b2"], ["y"], "g", transB=transposed)]
            kept = [onnx.NodeProto.FromString(n.SerializeToString()) for n in reversed(nodes)]
            del model.graph.node[:]
            model.graph.node.extend(kept)
            model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones(3, np.float32), "unused"))
            wrapped = kind(model)
            wrapped.replace_gemm_with_matmul()
            wrapped.topological_sort()
            wrapped.remove_unused_constant()
            both.append(wrapped.model)
        inits = [{i.name: onnx.numpy_helper.to_array(i).tolist() for i in m.graph.initializer} for m in both]
        assert list(both[0].graph.node) == list(both[1].graph.node) and inits[0] == inits[1]


OVERRIDES = [
    {},
    {"c1": [{"quant_type": "QUInt16"}]},
    {"none": [{}]},
    {"c1": {}},
    {"c1": [3]},
    {"c1": [{"scale": 1.0}]},
    {"c1": [{"scale": 1.0, "zero_point": 0, "symmetric": True}]},
    {"c1": [{"reduce_range": True}]},
    {"c1": [{"convert": {}}]},
    {"c1": [{"quant_type": "QUInt8", "convert": {"quant_type": "QUInt8"}}]},
    {"w1": [{"convert": {"quant_type": "QUInt8"}}]},
    {"w1": [{"axis": 0}]},
    {"w1": [{"axis": 9}]},
    {"w1": [{"axis": 0}, {}]},
    {"w1": [{"axis": 0, "rmin": 1.0}]},
    {"w1": [{"axis": 0, "scale": 1.0, "zero_point": 0}, {}, {}, {}]},
    {"w1": [{"axis": 0}, {"axis": 1}, {}, {}]},
    {"c1": [{"axis": 0}]},
]


@pytest.mark.parametrize("overrides", OVERRIDES, ids=str)
def test_overrides(overrides):
    initializers = {i.name: i for i in build_cnn().graph.initializer}
    answers = []
    for kind, package in ((TensorQuantOverridesHelper, mine), (TheirOverrides, theirs)):

        def typed(value):
            if isinstance(value, dict):
                return {k: package.QuantType[v] if k == "quant_type" else typed(v) for k, v in value.items()}
            return [typed(v) for v in value] if isinstance(value, list) else value

        helper = kind(typed(overrides))
        valid, why = helper.is_valid(initializers, {"c1", "m1"}, package.QuantType.QUInt8)
        answers.append((valid, why is None))
    assert answers[0] == answers[1]


# ---- weights of few bits


def matmul():
    """One MatMul with 64 x 32 weights."""
    weight = onnx.numpy_helper.from_array(np.random.default_rng(2).normal(0, 1, (64, 32)).astype(np.float32), "w")
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"], "m")],
        "g",
        [onnx.helper.make_tensor_value_info("x", T.FLOAT, [3, 64])],
        [onnx.helper.make_tensor_value_info("y", T.FLOAT, [3, 32])],
        [weight],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)


def parts(model):
    """Nodes and initializers, to compare."""
    return [str(n) for n in model.graph.node], {i.name: onnx.numpy_helper.to_array(i).tobytes() for i in model.graph.initializer}


@pytest.mark.parametrize("words", [{}, {"bits": 8}, {"block_size": 32, "is_symmetric": True}, {"quant_format": "QDQ"}], ids=str)
def test_nbits(words):
    both = []
    for module, package in ((matmul_nbits_quantizer, mine), (their_nbits, theirs)):
        options = {k: package.QuantFormat[v] if k == "quant_format" else v for k, v in words.items()}
        quantizer = module.MatMulNBitsQuantizer(matmul(), **options)
        quantizer.process()
        both.append(parts(quantizer.model.model))
    assert both[0] == both[1]


def test_nbits_configs(tmp_path):
    for name in ("RTNWeightOnlyQuantConfig", "KQuantWeightOnlyQuantConfig", "HQQWeightOnlyQuantConfig"):
        config = getattr(matmul_nbits_quantizer, name)()
        quantizer = matmul_nbits_quantizer.MatMulNBitsQuantizer(matmul(), block_size=32, algo_config=config)
        quantizer.process()
        assert quantizer.model.nodes()[0].op_type == "MatMulNBits", name
    with pytest.raises(NotImplementedError):
        matmul_nbits_quantizer.DefaultWeightOnlyQuantConfig(channel_wised_quantize=True)
    with pytest.raises(AssertionError):
        matmul_nbits_quantizer.MatMulNBitsQuantizer(matmul(), bits=5)
    quantizer = matmul_nbits_quantizer.MatMulNBitsQuantizer(matmul(), nodes_to_exclude=["m"])
    quantizer.process()
    assert quantizer.model.nodes()[0].op_type == "MatMul"


def test_nbits_commands(tmp_path):
    onnx.save(matmul(), tmp_path / "m.onnx")
    words = ["--input_model", str(tmp_path / "m.onnx"), "--output_model"]
    matmul_nbits_quantizer.main([*words, str(tmp_path / "n.onnx"), "--block_size", "16", "--symmetric", "False"])
    matmul_bnb4_quantizer.main([*words, str(tmp_path / "b.onnx"), "--quant_type", "0"])
    assert onnx.load(tmp_path / "n.onnx").graph.node[0].op_type == "MatMulNBits"
    assert onnx.load(tmp_path / "b.onnx").graph.node[0].op_type == "MatMulBnb4"
    with pytest.raises(SystemExit, match="awq --data"):
        matmul_nbits_quantizer.main([*words, str(tmp_path / "v.onnx"), "--quant_method", "nvidia_awq", "--cache_dir", "c"])
    with pytest.raises(SystemExit, match="exists"):
        matmul_nbits_quantizer.main([*words, str(tmp_path / "n.onnx")])


@pytest.mark.parametrize("kind", [0, 1])
def test_bnb4(kind):
    both = []
    for module in (matmul_bnb4_quantizer, their_bnb4):
        quantizer = module.MatMulBnb4Quantizer(matmul(), kind, 64)
        quantizer.process()
        both.append(parts(quantizer.model.model))
    assert both[0] == both[1]


CUDA = {(4, 80): 1292153458, (4, 90): 3816696584, (8, 80): 2666173701, (8, 90): 2089893550}


def test_cuda_layout():
    """A permutation of the weights; the sums are those of onnxruntime's packer."""
    sums = {}
    for bits in (4, 8):
        raw = np.random.default_rng(0).integers(0, 256, (64, 128 * bits // 8)).astype(np.uint8)
        for arch in (80, 90):
            packed = pack_weights_for_cuda_mixed_gemm(raw, 64, 128, bits, arch)
            assert packed.dtype == np.int8 and packed.size == raw.size
            sums[bits, arch] = zlib.crc32(packed.tobytes())
            if bits == 8:
                assert np.array_equal(np.sort(packed.view(np.uint8)), np.sort(raw, None))
    assert sums == CUDA
    with pytest.raises(ValueError):
        pack_weights_for_cuda_mixed_gemm(raw, 60, 128, 8)


@pytest.mark.parametrize("make", [
    lambda m: ONNXQuantizer(m, False, False, QuantizationMode.IntegerOps, False, "QInt8", "QUInt8", None, [], [], ["MatMul"])
    .quantize_model,
    lambda m: matmul_nbits_quantizer.MatMulNBitsQuantizer(m).process,
    lambda m: matmul_bnb4_quantizer.MatMulBnb4Quantizer(m, 1, 64).process,
], ids=["dynamic", "nbits", "bnb4"])
def test_objects_do_as_functions(monkeypatch, make):
    """While `strict` holds, a result is not looked at: that could leave nodes float, which the reference quantizes."""
    said = []
    monkeypatch.setattr(Job, "set", lambda job, name, value, set=Job.set: (said.append((name, value)), set(job, name, value)))
    make(matmul())()
    assert ("no_verify", True) in said


# ---- loss debugging


def test_loss_debug(cnn, tmp_path):
    quantized = str(tmp_path / "q.onnx")
    quantize_static(cnn, quantized, Reader(draw()))
    a, b = (m.create_weight_matching(cnn, quantized) for m in (qdq_loss_debug, their_debug))
    assert a.keys() == b.keys() and all(equal(a[n][k], b[n][k]) for n in a for k in ("float", "dequantized"))
    errors = qdq_loss_debug.compute_weight_error(a)
    assert np.allclose(list(errors.values()), [their_debug.compute_weight_error(b)[n] for n in errors])

    found = []
    for module, name in ((qdq_loss_debug, "mine"), (their_debug, "theirs")):
        activations = []
        for model, label in ((quantized, "q"), (cnn, "f")):
            augmented = str(tmp_path / f"{name}.{label}.onnx")
            module.modify_model_output_intermediate_tensors(model, augmented)
            reader = Reader(draw())
            samples = iter(lambda r=reader: r.get_next(), None)
            activations.append(module.collect_activations(augmented, reader if module is qdq_loss_debug else samples))
        match = module.create_activation_matching(*activations)
        found.append((activations, match, module.compute_activation_error(match)))
    for ours, its in zip(found[0][0], found[1][0]):
        assert ours.keys() == its.keys() and all(equal(x, y) for n in ours for x, y in zip(ours[n], its[n]))
    assert found[0][1].keys() == found[1][1].keys()
    for name, errors in found[0][2].items():
        assert np.allclose(list(errors.values()), list(found[1][2][name].values()))
    alone = qdq_loss_debug.create_activation_matching(found[0][0][0])
    assert alone and all(list(e) == ["qdq_err"] for e in qdq_loss_debug.compute_activation_error(alone).values())
    with pytest.raises(KeyError):
        their_debug.compute_activation_error(alone)
    with pytest.raises(RuntimeError, match="No data"):
        qdq_loss_debug.collect_activations(str(tmp_path / "mine.f.onnx"), Reader([]))
    with pytest.raises(RuntimeError):
        qdq_loss_debug.compute_signal_to_quantization_noice_ratio([np.ones(2)], [])
