"""test_quantizers.py - quantizer objects, their registries and their subclasses, beside the reference's."""
import copy

import onnx
import onnxruntime.quantization as reference
import onnxruntime.quantization.matmul_bnb4_quantizer
import onnxruntime.quantization.matmul_nbits_quantizer
import onnxruntime.quantization.onnx_quantizer
import onnxruntime.quantization.operators.conv
import onnxruntime.quantization.registry
import pytest
from conftest import Reader, build_cnn, draw

import onq.quantization as q
import onq.quantization.matmul_bnb4_quantizer
import onq.quantization.matmul_nbits_quantizer
import onq.quantization.onnx_quantizer
import onq.quantization.registry as registry
from onq.quantization.operators.conv import QDQConv
from onq.quantization.operators.qdq_base_operator import QDQOperatorBase

TYPES = (onnx.TensorProto.INT8, onnx.TensorProto.UINT8)


def ranges(model, tmp_path):
    """Ranges of a model, by the reference's own calibrater."""
    path = tmp_path / "float.onnx"
    onnx.save(model, path)
    calibrater = reference.create_calibrator(path, None, augmented_model_path=str(tmp_path / "augmented.onnx"))
    calibrater.collect_data(Reader(draw(4)))
    return calibrater.compute_data()


def make(package, kind, model, found, types, **more):
    """A quantizer object of a package: QDQ, QLinear or Integer."""
    extra = more.pop("extra_options", {})
    choice = ([], [], types, extra)
    if kind == "QDQ":
        return more.pop("base", package.QDQQuantizer)(model, False, False, *TYPES, found, *choice)
    base = more.pop("base", package.onnx_quantizer.ONNXQuantizer)
    mode = package.quant_utils.QuantizationMode
    if kind == "QLinear":
        return base(model, False, False, mode.QLinearOps, True, *TYPES, found, *choice)
    return base(model, False, False, mode.IntegerOps, False, *TYPES, None, *choice)


ALL = {
    "QDQ": list(dict.fromkeys([*reference.registry.QLinearOpsRegistry, *reference.registry.QDQRegistry])),
    "QLinear": list(reference.registry.QLinearOpsRegistry),
    "Integer": list(reference.registry.IntegerOpsRegistry),
}


def two_matmuls():
    """A product of two activations, which MatMulConstBOnly leaves float, and one with a weight."""
    helper, numpy = onnx.helper, pytest.importorskip("numpy")
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [4, 4])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [4, 4])
    w = onnx.numpy_helper.from_array(numpy.random.default_rng(3).normal(size=(4, 4)).astype("float32"), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"], "weight"), helper.make_node("MatMul", ["a", "x"], ["y"], "both")]
    graph = helper.make_graph(nodes, "g", [x], [y], [w])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def rows(model):
    return sorted((n.op_type, n.name, tuple(n.input), tuple(n.output)) for n in model.graph.node)


def wide_cnn(opset=17):
    """build_cnn with a weight that the reference writes apart when it saves and loads a model."""
    model = build_cnn(opset)
    weight = next(i for i in model.graph.initializer if i.name == "w2")
    values = onnx.numpy_helper.to_array(weight)
    weight.CopyFrom(onnx.numpy_helper.from_array(values.repeat(5, axis=1), "w2"))
    model.graph.node[4].output[0], model.graph.node[5].input[0] = "m1", "m1"
    model.graph.node[5].input[1] = "b3"
    model.graph.initializer.append(onnx.numpy_helper.from_array(values[0].repeat(5), "b3"))
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 25
    return model


def both(make_quantizer, tmp_path):
    """What a quantizer object of either package holds, and what it writes."""
    for package in (reference, q):
        quantizer = make_quantizer(package)
        quantizer.process() if hasattr(quantizer, "process") else quantizer.quantize_model()
        held = quantizer.model.model.SerializeToString(deterministic=True)
        quantizer.model.save_model_to_file(tmp_path / "saved.onnx", False)
        yield held, (tmp_path / "saved.onnx").read_bytes()


@pytest.mark.parametrize("inferred", [False, True])
@pytest.mark.parametrize("kind", ALL)
def test_same_model_as_the_reference(kind, inferred, tmp_path):
    """Before it is saved too: the nodes are not sorted yet, and large tensors say where their data is."""
    model = wide_cnn()
    found = ranges(model, tmp_path)
    if inferred:
        model = reference.quant_utils.load_model_with_shape_infer(tmp_path / "float.onnx")
    theirs, mine = both(lambda package: make(package, kind, copy.deepcopy(model), found, ALL[kind]), tmp_path)
    assert theirs == mine


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_16_bits_keep_the_opset(opset, tmp_path):
    """quantize_static raises the opset to 21; QDQQuantizer takes pairs of com.microsoft."""
    model = wide_cnn(opset)
    found = ranges(model, tmp_path)
    types = (onnx.TensorProto.INT16, onnx.TensorProto.UINT16)
    theirs, mine = both(
        lambda package: package.QDQQuantizer(copy.deepcopy(model), False, False, *types, found, [], [], ALL["QDQ"], {}), tmp_path
    )
    assert theirs == mine


@pytest.mark.parametrize("kind", ["QOperator", "QDQ", "bnb4"])
def test_same_weights_of_few_bits(kind, tmp_path):
    def quantizer(package):
        if kind == "bnb4":
            return package.matmul_bnb4_quantizer.MatMulBnb4Quantizer(wide_cnn(21), 1, 64)
        form = package.QuantFormat[kind]
        return package.matmul_nbits_quantizer.MatMulNBitsQuantizer(wide_cnn(21), block_size=16, quant_format=form)

    theirs, mine = both(quantizer, tmp_path)
    assert theirs == mine


@pytest.mark.parametrize("overrides", [{"none": [{"scale": 1.0}]}, {"m1": [{"scale": 1.0}]}, {"m1": {"scale": 1.0}}])
def test_overrides_are_checked_when_it_is_made(overrides, tmp_path):
    found = ranges(build_cnn(), tmp_path)
    for package in (reference, q):
        with pytest.raises(ValueError, match="none|m1|scale"):
            make(package, "QDQ", build_cnn(), found, ALL["QDQ"], extra_options={"TensorQuantOverrides": dict(overrides)})


def test_which_models_are_changed(tmp_path):
    """Olive goes on with the model that it gave to MatMulBnb4Quantizer. The reference changes some models in their place."""
    inferred = tmp_path / "float.onnx"
    found = ranges(wide_cnn(21), tmp_path)
    for kind in ("QDQ", "QLinear", "Integer", "inferred", "default", "rtn", "bnb4"):
        changed = []
        for package in (reference, q):
            given = wide_cnn(21)
            if kind == "bnb4":
                quantizer = package.matmul_bnb4_quantizer.MatMulBnb4Quantizer(given, 1, 64)
            elif kind in ("default", "rtn"):
                module = package.matmul_nbits_quantizer
                config = module.RTNWeightOnlyQuantConfig() if kind == "rtn" else module.DefaultWeightOnlyQuantConfig(16)
                quantizer = module.MatMulNBitsQuantizer(given, block_size=16, algo_config=config)
            elif kind == "inferred":
                given = reference.quant_utils.load_model_with_shape_infer(inferred)
                quantizer = make(package, "QDQ", given, found, ALL["QDQ"])
            else:
                quantizer = make(package, kind, given, found, ALL[kind])
            before = given.SerializeToString()
            quantizer.process() if hasattr(quantizer, "process") else quantizer.quantize_model()
            changed.append(given.SerializeToString() != before)
        assert changed[0] == changed[1], kind


@pytest.mark.parametrize("extra", [{}, {"MatMulConstBOnly": True}, {"MatMulConstBOnly": False}])
def test_defaults_are_those_of_the_class(extra):
    """MatMulConstBOnly is set by quantize_dynamic, not by the class."""
    models = []
    for package in (reference, q):
        quantizer = make(package, "Integer", two_matmuls(), None, ["MatMul"], extra_options=dict(extra))
        quantizer.quantize_model()
        models.append(rows(quantizer.model.model))
    assert models[0] == models[1]


# ---- hooks


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("keep", ["nothing", "Conv", "first"])
def test_should_quantize_node_is_called(kind, keep, tmp_path):
    found = ranges(build_cnn(), tmp_path)
    models = []
    for package in (reference, q):
        base = package.QDQQuantizer if kind == "QDQ" else package.onnx_quantizer.ONNXQuantizer
        seen = []

        class Mine(base):
            def should_quantize_node(self, node):
                seen.append(node.op_type)  # noqa: B023
                if keep == "nothing":
                    return False
                if keep == "Conv" and node.op_type != "Conv":
                    return False
                if keep == "first" and len({*seen}) > 2:  # noqa: B023
                    return False
                return super().should_quantize_node(node)

        quantizer = make(package, kind, build_cnn(), found, ALL[kind], base=Mine)
        quantizer.quantize_model()
        assert seen
        models.append(rows(quantizer.model.model))
    if keep != "first":  # the reference asks about a node more than once
        assert models[0] == models[1]


def test_should_quantize_node_sees_inner_graphs():
    """With EnableSubgraph the nodes inside of If are asked about, as in the reference."""
    helper = onnx.helper
    weight = next(i for i in two_matmuls().graph.initializer)
    info = helper.make_tensor_value_info
    branches = [
        helper.make_graph([helper.make_node("MatMul", ["x", "w"], [f"y{k}"], f"inner{k}")], f"b{k}", [], [info(f"y{k}", 1, [4, 4])])
        for k in (0, 1)
    ]
    node = helper.make_node("If", ["c"], ["y"], "if", then_branch=branches[0], else_branch=branches[1])
    inputs = [info("x", 1, [4, 4]), info("c", onnx.TensorProto.BOOL, [])]
    graph = helper.make_graph([node], "g", inputs, [info("y", 1, [4, 4])], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    class Mine(q.onnx_quantizer.ONNXQuantizer):
        def should_quantize_node(self, node):
            return node.name == "inner1"

    made = make(q, "Integer", model, None, ["MatMul"], base=Mine, extra_options={"EnableSubgraph": True}).quantize_model()
    kinds = [{n.op_type for n in a.g.node} for a in made.graph.node[-1].attribute]
    names = [a.name for a in made.graph.node[-1].attribute]
    assert "MatMul" in kinds[names.index("then_branch")] and "MatMulInteger" in kinds[names.index("else_branch")]


def test_nodes_that_cannot_be_told_apart_are_refused(tmp_path):
    model = two_matmuls()
    for node in model.graph.node:
        node.name = ""

    class Mine(q.onnx_quantizer.ONNXQuantizer):
        def should_quantize_node(self, node):
            return "w" in node.input

    with pytest.raises(ValueError, match="no names"):
        make(q, "Integer", model, None, ["MatMul"], base=Mine).quantize_model()


@pytest.mark.parametrize("name", ["quantize_activation_tensor", "quantize_bias_static_impl", "calc_quant_params"])
def test_steps_cannot_be_overridden(name):
    with pytest.raises(TypeError, match=f"{name}.*should_quantize_node"):
        type("Mine", (q.QDQQuantizer,), {name: lambda self, *_: None})
    type("Fine", (q.QDQQuantizer,), {"quantize_model": lambda self: None, "mine": 1})


def test_questions(tmp_path):
    found = ranges(build_cnn(), tmp_path)
    for kind in ALL:
        theirs, mine = (make(package, kind, build_cnn(), found, ALL[kind]) for package in (reference, q))
        names = {n for node in theirs.model.model.graph.node for n in (*node.input, *node.output)} | {"none"}
        assert {n: v.type for n, v in theirs.value_infos.items()} == {n: v.type for n, v in mine.value_infos.items()}
        for name in names:
            assert theirs.is_input_a_initializer(name) == mine.is_input_a_initializer(name)
            assert bool(theirs.is_valid_quantize_weight(name)) == mine.is_valid_quantize_weight(name)
            if kind != "QDQ" and name != "none":
                assert bool(theirs.is_float_tensor(name)) == mine.is_float_tensor(name), name
        for node in theirs.model.model.graph.node:
            assert theirs.should_quantize_node(node) == mine.should_quantize_node(node)
        for number in (onnx.TensorProto.INT8, onnx.TensorProto.UINT8, onnx.TensorProto.INT16):
            assert theirs.is_weight_symmetric(number) == mine.is_weight_symmetric(number)


# ---- registries


@pytest.fixture
def editable():
    """Registries of both packages, put back afterwards."""
    names = ("IntegerOpsRegistry", "QLinearOpsRegistry", "QDQRegistry")
    all_ = [getattr(module, name) for module in (reference.registry, registry) for name in names]
    saved = [dict(r) for r in all_]
    yield
    for r, rows_ in zip(all_, saved):
        r.clear()
        r.update(rows_)


def same(call):
    models = [rows(call(package)) for package in (reference, q)]
    assert models[0] == models[1]
    return models[0]


def static(package, tmp_path, **options):
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    onnx.save(build_cnn(), path)
    package.quantize_static(path, out, Reader(draw(4)), **options)
    return onnx.load(out)


def test_an_operator_taken_out_is_not_quantized(editable, tmp_path):
    for r in (reference.registry, registry):
        r.IntegerOpsRegistry.pop("MatMul")
        del r.QLinearOpsRegistry["Conv"]
        del r.QDQRegistry["Conv"]

    def dynamic(package):
        path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
        onnx.save(build_cnn(), path)
        package.quantize_dynamic(path, out)
        return onnx.load(out)

    assert not any(op == "MatMulInteger" for op, *_ in same(dynamic))
    assert any(op == "Conv" for op, *_ in same(lambda p: static(p, tmp_path, quant_format=p.QuantFormat.QOperator)))
    same(lambda p: static(p, tmp_path))


def test_an_operator_of_one_registry_only_raises(editable, tmp_path):
    del registry.QDQRegistry["Conv"]
    with pytest.raises(NotImplementedError, match="QLinearOpsRegistry"):
        static(q, tmp_path)
    static(q, tmp_path, op_types_to_quantize=["Relu"])


def test_an_operator_may_be_added(editable, tmp_path):
    for r, base in ((reference.registry, reference.operators.qdq_base_operator.QDQOperatorBase), (registry, QDQOperatorBase)):
        r.QDQRegistry["Exp"] = base
    same(lambda p: static(p, tmp_path))
    registry.QDQRegistry.update({"Conv": QDQConv})
    assert registry.QDQRegistry.setdefault("Conv") is QDQConv
    for op, value in (("Conv", QDQOperatorBase), ("Conv", lambda *_: None), ("Relu", type("Mine", (QDQOperatorBase,), {}))):
        with pytest.raises(TypeError, match=f"QDQRegistry..{op}.*nodes_to_exclude"):
            registry.QDQRegistry[op] = value
    with pytest.raises(TypeError):
        registry.IntegerOpsRegistry["Gemm"] = QDQOperatorBase


def test_values_can_be_called_and_copied(tmp_path):
    found = ranges(build_cnn(), tmp_path)
    quantizer = make(q, "QDQ", build_cnn(), found, ALL["QDQ"])
    node = quantizer.model.model.graph.node[0]
    made = registry.CreateQDQQuantizer(quantizer, node)
    assert type(made) is registry.QDQRegistry.get(node.op_type, QDQOperatorBase) and made.node is node
    with pytest.raises(NotImplementedError, match="quantize_static"):
        made.quantize()
    quantizer = make(q, "Integer", build_cnn(), found, ALL["Integer"])
    assert isinstance(registry.CreateOpQuantizer(quantizer, node), registry.QuantOperatorBase)
    assert copy.deepcopy(registry.QDQRegistry) == copy.copy(registry.QDQRegistry) == registry.QDQRegistry
