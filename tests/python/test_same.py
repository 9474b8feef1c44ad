"""test_same.py - the same calls through onnxruntime.quantization and onq.quantization give the same models."""

import numpy as np
import onnx
import onnxruntime.quantization as reference
import pytest
from conftest import Reader, build_cnn, draw
from onnx import helper, numpy_helper
from onnxruntime.quantization.execution_providers import qnn as reference_qnn

import compare
import onq.quantization
import randmodel
from onq.quantization.execution_providers import qnn



def same(a, b):
    """Fails where two model files differ (compare.py)."""
    found = compare.differences(a, b)
    assert not found, found


def both(call, tmp_path):
    """Runs call(package, output) with both packages and compares."""
    outputs = []
    for package in (reference, onq.quantization):
        output = str(tmp_path / f"{package.__name__}.onnx")
        call(package, output)
        outputs.append(output)
    same(*outputs)


# Seeds without a case of docs/DIFFERENCES.md.
SEEDS = [0, 2, 4, 6, 7, 8, 10, 12, 15, 16, 17, 18, 19, 21]

STATIC = [
    {},
    {"activation_type": "QUInt8", "per_channel": True},
    {"activation_type": "QUInt8", "weight_type": "QUInt8", "reduce_range": True},
    {"activation_type": "QUInt16", "weight_type": "QInt8"},
    {"quant_format": "QOperator", "activation_type": "QUInt8", "weight_type": "QUInt8"},
    {"op_types_to_quantize": ["MatMul"], "extra_options": {"AddQDQPairToWeight": True}},
    {"nodes_to_exclude": ["conv"], "extra_options": {"ActivationSymmetric": True, "MinimumRealRange": 0.1}},
    {"nodes_to_quantize": ["conv", "matmul"], "extra_options": {"DedicatedQDQPair": True, "QuantizeBias": False}},
    {"extra_options": {"CalibMovingAverage": True, "CalibMovingAverageConstant": 0.3}},
    {"extra_options": {"OpTypesToExcludeOutputQuantization": ["Conv"], "QDQKeepRemovableActivations": True}},
    {"per_channel": True, "extra_options": {"QDQOpTypePerChannelSupportToAxis": {"MatMul": 0}}},
]
STATIC += [{"calibrate_method": m} for m in ("Entropy", "Percentile", "Distribution")]
ENUMS = {"activation_type": "QuantType", "weight_type": "QuantType", "quant_format": "QuantFormat"}
ENUMS["calibrate_method"] = "CalibrationMethod"


def translate(package, options):
    """The options with enumerations of the package."""
    return {k: getattr(package, ENUMS[k])[v] if k in ENUMS else v for k, v in options.items()}


@pytest.mark.parametrize("options", STATIC, ids=str)
def test_static(cnn, tmp_path, options):
    def call(package, output):
        package.quantize_static(cnn, output, Reader(draw()), **translate(package, options))

    both(call, tmp_path)


@pytest.mark.parametrize("options", [{}, {"per_channel": True}, {"weight_type": "QUInt8", "reduce_range": True}], ids=str)
def test_dynamic(cnn, tmp_path, options):
    both(lambda package, output: package.quantize_dynamic(cnn, output, **translate(package, options)), tmp_path)


WHERE = {
    "computed": (["Sigmoid"], False),
    "moved": (["MaxPool"], False),
    "computed, then moved": (["Sigmoid", "MaxPool"], False),
    "computed, also float": (["Sigmoid"], True),
    "moved, then computed": (["MaxPool", "Sigmoid"], False),
}


@pytest.mark.parametrize("case", WHERE)
def test_where_in_qoperator(tmp_path, case):
    """A Where stays as it is: fine for both packages or for neither, whatever made its input."""
    op_types, also_float = WHERE[case]
    names = ["x"] + [f"t{i}" for i, _ in enumerate(op_types)]
    attributes = {"MaxPool": {"kernel_shape": [1, 1]}}
    nodes = [
        helper.make_node(op, [a], [b], op, **attributes.get(op, {}))
        for op, a, b in zip(op_types, names, names[1:])
    ]
    nodes.append(helper.make_node("Where", ["which", names[-1], "x"], ["y"], "where"))
    if also_float:
        nodes.append(helper.make_node("Neg", [names[-1]], ["z"], "neg"))
    outputs = [helper.make_tensor_value_info(n, 1, [1, 1, 8, 8]) for n in ["y", "z"][: 1 + also_float]]
    which = numpy_helper.from_array(np.arange(8) % 2 == 0, "which")
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [1, 1, 8, 8])], outputs, [which])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    results = []
    for package in (reference, onq.quantization):
        output = str(tmp_path / f"{package.__name__}.onnx")
        try:
            package.quantize_static(model, output, Reader(draw()), quant_format=package.QuantFormat.QOperator)
            results.append(output)
        except (ValueError, RuntimeError):
            results.append(None)
    assert (results[0] is None) == (results[1] is None), results
    if results[0] is not None:
        same(*results)


def test_proto(tmp_path):
    both(lambda package, output: package.quantize_dynamic(build_cnn(), output), tmp_path)
    both(lambda package, output: package.quantize_static(build_cnn(), output, Reader(draw())), tmp_path)


def build_large():
    """Large tensors that stay float: raw, and as a list of floats; and one of the size from which on they count."""
    draw_ = np.random.default_rng(4)
    raw = lambda name, *dims: numpy_helper.from_array(draw_.normal(size=dims).astype(np.float32), name)  # noqa: E731
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], "first"), helper.make_node("Add", ["a", "big"], ["b"], "add"),
             helper.make_node("MatMul", ["b", "v"], ["c"], "second"), helper.make_node("Mul", ["c", "list"], ["y"], "times"),
             helper.make_node("Add", ["edge", "short"], ["z"], "rest")]
    inits = [raw("w", 32, 64), raw("big", 16, 64), raw("v", 64, 300), helper.make_tensor("list", 1, [300], [1.0] * 300),
             raw("edge", 248), raw("short", 1)]
    graph = helper.make_graph(nodes, "large", [helper.make_tensor_value_info("x", 1, [16, 32])],
                              [helper.make_tensor_value_info("y", 1, [16, 300]), helper.make_tensor_value_info("z", 1, [248])], inits)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("command", ["static", "dynamic"])
def test_large_tensors_of_a_proto(tmp_path, command):
    """The reference saves a ModelProto with its data outside and loads it: bytes are the same, and the model is not touched."""
    written = []
    for package in (reference, onq.quantization):
        model, output = build_large(), tmp_path / f"{package.__name__}.onnx"
        before = model.SerializeToString()
        samples = [{"x": np.random.default_rng(i).normal(size=(16, 32)).astype(np.float32)} for i in range(3)]
        if command == "static":
            package.quantize_static(model, output, Reader(samples), op_types_to_quantize=["MatMul"], nodes_to_exclude=["second"])
        else:
            package.quantize_dynamic(model, output, nodes_to_exclude=["second"])
        written.append(output.read_bytes())
    assert written[0] == written[1]
    assert model.SerializeToString() == before
    assert sum(t.HasField("data_location") for t in onnx.load_from_string(written[1]).graph.initializer) == 3  # big, v, edge


EXTERNAL = {
    "static": lambda p, m, out, ext: p.quantize_static(m, out, Reader(draw()), use_external_data_format=ext),
    "channels": lambda p, m, out, ext: p.quantize_static(m, out, Reader(draw()), per_channel=True, use_external_data_format=ext),
    "dynamic": lambda p, m, out, ext: p.quantize_dynamic(m, out, use_external_data_format=ext),
    "preprocess": lambda p, m, out, ext: p.quant_pre_process(
        m, out, save_as_external_data=ext, all_tensors_to_one_file=True, external_data_location="w.data"
    ),
    "each": lambda p, m, out, ext: p.quant_pre_process(m, out, save_as_external_data=ext),
    "qnn": lambda p, m, out, ext: p.execution_providers.qnn.qnn_preprocess_model(
        m, out, save_as_external_data=ext, inputs_to_make_channel_last=["x"]
    ),
}


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("command", EXTERNAL)
def test_external_data(tmp_path, command, external):
    """Every file is the same: which tensors are outside, where they begin, and what says so in the model."""
    rng = np.random.default_rng(5)
    model = build_cnn(17)
    # Two large tensors, so that one has an offset; 1,000 bytes count as 1,024 there; one in a typed field.
    for name, shape in (("w1", (32, 1, 3, 3)), ("b1", (32,)), ("w2", (512, 5))):
        old = next(i for i in model.graph.initializer if i.name == name)
        old.CopyFrom(numpy_helper.from_array(rng.normal(0, 0.3, shape).astype(np.float32), name))
    shape = next(i for i in model.graph.initializer if i.name == "shape")
    shape.CopyFrom(numpy_helper.from_array(np.array([-1, 512], np.int64), "shape"))
    model.graph.node.append(helper.make_node("Add", ["y", "t"], ["z"], "typed"))
    model.graph.node.append(helper.make_node("Mul", ["z", "h"], ["u"], "half"))
    model.graph.initializer.append(helper.make_tensor("t", 1, [400, 1], rng.normal(0, 1, 400).tolist()))
    model.graph.initializer.append(numpy_helper.from_array(rng.normal(0, 1, (250, 1, 1)).astype(np.float32), "h"))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("u", 1, [250, 400, 5]))
    files = []
    for package in (reference, onq.quantization):
        folder = tmp_path / package.__name__
        folder.mkdir()
        onnx.save(model, tmp_path / "in.onnx")
        EXTERNAL[command](package, str(tmp_path / "in.onnx"), str(folder / "out.onnx"), external)
        files.append({p.name: p.read_bytes() for p in folder.iterdir()})
    assert files[0].keys() == files[1].keys()
    assert files[0] == files[1]


def test_configs(cnn, tmp_path):
    def static(package, output):
        config = package.StaticQuantConfig(Reader(draw()), activation_type=package.QuantType.QUInt8, per_channel=True)
        package.quantize(cnn, output, config)

    both(static, tmp_path)
    both(lambda package, output: package.quantize(cnn, output, package.DynamicQuantConfig(reduce_range=True)), tmp_path)


@pytest.mark.parametrize("exclude", [None, ["add"], lambda model, node: node.op_type == "MatMul"], ids=["none", "list", "call"])
def test_qdq_config(cnn, tmp_path, exclude):
    def call(package, output):
        overrides = {"m1": [{"quant_type": package.QuantType.QUInt16}]}
        config = package.get_qdq_config(
            cnn, Reader(draw()), tensor_quant_overrides=overrides, nodes_to_exclude=exclude, min_real_range=0.01
        )
        package.quantize(cnn, output, config)

    both(call, tmp_path)


@pytest.mark.parametrize("activation", ["QUInt8", "QUInt16"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_qnn_config(cnn, tmp_path, activation, per_channel):
    modules = {reference: reference_qnn, onq.quantization: qnn}

    def call(package, output):
        overrides = {"m1": [{"quant_type": package.QuantType.QUInt16}]} if activation == "QUInt8" else None
        config = modules[package].get_qnn_qdq_config(
            cnn,
            Reader(draw()),
            activation_type=package.QuantType[activation],
            init_overrides=overrides,
            per_channel=per_channel,
        )
        package.quantize(cnn, output, config)

    both(call, tmp_path)


def test_preprocess(cnn, tmp_path):
    both(lambda package, output: package.quant_pre_process(cnn, output), tmp_path)
    both(lambda package, output: package.quant_pre_process(cnn, output, skip_optimization=True, auto_merge=True), tmp_path)


def test_quantizer_object(cnn, tmp_path):
    import numpy as np

    def call(package, output):
        model = onnx.shape_inference.infer_shapes(onnx.load(cnn))
        ends = {"lowest": np.float32(-2), "highest": np.float32(3)}
        ranges = {name: package.TensorData(**ends) for name in ("x", "c1", "r1", "p1", "f1", "m1", "y")}
        kind = package.QuantType.QInt8
        quantizer = package.QDQQuantizer(model, False, False, kind, kind, ranges, [], [], ["Conv", "MatMul"], {})
        quantizer.quantize_model()
        quantizer.model.save_model_to_file(output)

    both(call, tmp_path)


def attempt(package, path, output, samples, **options):
    """None, or the exception."""
    try:
        options = translate(package, {"activation_type": "QUInt8", **options})
        package.quantize_static(path, output, Reader(samples), **options)
    except Exception as e:  # noqa: BLE001 - whatever it raises
        return e
    return None


@pytest.mark.parametrize("seed", SEEDS)
def test_random(tmp_path, seed):
    """Models of randmodel.py, per channel and with a histogram method too."""
    model, samples = randmodel.model(seed)[:2]
    path = str(tmp_path / "model.onnx")
    onnx.save(model, path)
    for options in ({}, {"per_channel": True}, {"calibrate_method": "Percentile"}, {"quant_format": "QOperator"}):
        outputs = [str(tmp_path / f"{package.__name__}.onnx") for package in (reference, onq.quantization)]
        failed = attempt(reference, path, outputs[0], samples, **options)
        if failed is None:
            failed = attempt(onq.quantization, path, outputs[1], samples, **options)
            assert failed is None, (options, failed)
            same(*outputs)


def erf_model(domain=True):
    """Div, Erf, Add, Mul, Mul: Gelu of x; and ReduceMean ... : LayerNormalization of it."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    values = {"root2": np.sqrt(2.0), "one": 1.0, "half": 0.5, "two": 2.0, "eps": 1e-5}
    inits = [numpy_helper.from_array(np.array(v, np.float32), k) for k, v in values.items()]
    inits += [numpy_helper.from_array(np.array([-1], np.int64), "axes")]
    inits += [numpy_helper.from_array(np.array(v, np.float32), k) for k, v in (("w", [1, 2, 3]), ("b", [3, 2, 1]))]
    lines = [
        ("Mul", "x half h"), ("Div", "x root2 d"), ("Erf", "d e"), ("Add", "e one a"), ("Mul", "a h g"),
        ("ReduceMean", "g axes m"), ("Sub", "g m s"), ("Pow", "s two p"), ("ReduceMean", "p axes v"),
        ("Add", "v eps ve"), ("Sqrt", "ve q"), ("Div", "s q n"), ("Mul", "n w nw"), ("Add", "nw b y"),
    ]  # fmt: skip
    nodes = []
    for op, words in lines:
        *inputs, output = words.split()
        nodes.append(helper.make_node(op, inputs, [output], name=f"{op}_{output}"))
    shape = [2, 4, 3]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        inits,
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def test_fusions():
    from onnxruntime.quantization import fusions as theirs
    from onnxruntime.quantization.onnx_model import ONNXModel as TheirModel

    from onq.quantization import fusions as mine
    from onq.quantization.onnx_model import ONNXModel

    for name in ("FusionGelu", "FusionLayerNormalization"):
        a, b = TheirModel(erf_model()), ONNXModel(erf_model())
        assert getattr(theirs, name)(a).apply() and getattr(mine, name)(b).apply()
        assert sorted(map(str, a.nodes())) == sorted(map(str, b.nodes()))
        assert {i.name for i in a.initializer()} == {i.name for i in b.initializer()}
        assert not getattr(mine, name)(b).apply()


def test_qnn_preprocess(cnn, tmp_path):
    modules = {reference: reference_qnn, onq.quantization: qnn}
    changed = []
    onnx.save(erf_model(), tmp_path / "erf.onnx")

    def call(package, output):
        changed.append(modules[package].qnn_preprocess_model(str(tmp_path / "erf.onnx"), output, fuse_layernorm=True))

    both(call, tmp_path)
    assert changed == [True, True]
    output = tmp_path / "unchanged.onnx"
    assert qnn.qnn_preprocess_model(cnn, output) is reference_qnn.qnn_preprocess_model(cnn, str(output)) is False
    assert not output.exists()


def test_float8_operators(tmp_path):
    """What the reference writes, though no runtime loads it."""

    def call(package, output):
        kinds = {"activation_type": "QFLOAT8E4M3FN", "weight_type": "QFLOAT8E4M3FN", "quant_format": "QOperator"}
        options = translate(package, {**kinds, "calibrate_method": "Distribution"})
        package.quantize_static(build_cnn(19), output, Reader(draw()), op_types_to_quantize=["MatMul"], **options)

    both(call, tmp_path)


def test_types_that_onnx_does_not_find():
    from onnx import TensorProto, helper, numpy_helper
    import numpy as np

    weights = [numpy_helper.from_array(np.eye(4, dtype=np.float32), name) for name in ("w1", "w2")]
    nodes = [
        helper.make_node("FusedMatMul", ["x", "w1"], ["t"], domain="com.microsoft"),
        helper.make_node("MatMul", ["t", "w2"], ["u"]),
        helper.make_node("MatMul", ["u", "w1"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in ("x", "y")]
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(helper.make_graph(nodes, "g", ends[:1], ends[1:], weights), opset_imports=opsets, ir_version=8)
    for package in (reference, onq.quantization):
        with pytest.raises(RuntimeError, match="u"):
            package.quantize_dynamic(model, "unused.onnx", op_types_to_quantize=["MatMul"])
    out = onq.quantization.quantize_dynamic(model, None, extra_options={"DefaultTensorType": 1})
    assert [n.op_type for n in out.graph.node].count("MatMulInteger") == 2
