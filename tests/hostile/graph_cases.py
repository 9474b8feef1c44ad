"""graph_cases.py - models that decode, and whose numbers, names, edges, types or versions do not fit."""
import pathlib
import sys

import numpy as np
import onnx
from cases import array, base, branches, damaged, family, language, network, normal, trained, value, wrap
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "parity"))
import opmodels  # noqa: E402


# ---- sizes and types of tensors

@family("dims", files=("m.onnx", "random:2"))
def dims(r):
    for what, values in {"negative": [-4, 3, 3, 3], "large": [2**62, 3, 3, 3], "overflow": [2**32, 2**32, 1, 1],
                         "bytes-overflow": [2**62], "other": [5, 3, 3, 3], "none": [0, 3, 3, 3], "flat": [108], "scalar": [],
                         "many": [1] * 20 + [108], "minus-one": [-1, 3, 3, 3], "two-negative": [-4, -3, 3, 3]}.items():
        yield what, damaged(lambda m: m.graph.initializer[0].dims.__setitem__(slice(None), values))
    for i in range(12):
        m = base(r)[1]
        t = r.choice(m.graph.initializer)
        t.dims[:] = [r.choice([-1, 0, 1, 2, 3, 5, 8, 2**31, 2**32 + 1, 2**63 - 1]) for _ in range(r.randrange(6))]
        yield f"random-{i}", m
    for i, size in enumerate((0, 1, 3, 431, 433, 864)):
        yield f"payload-{size}", damaged(lambda m: setattr(m.graph.initializer[0], "raw_data", (m.graph.initializer[0].raw_data * 2)[:size]))

    def typed(m, count):
        m.graph.initializer[0].ClearField("raw_data")
        m.graph.initializer[0].float_data.extend([1.0] * count)

    for count in (0, 5, 107, 109):
        yield f"float-data-{count}", damaged(lambda m: typed(m, count))
    yield "both-payloads", damaged(lambda m: m.graph.initializer[0].float_data.extend([1.0] * 108))
    for what, dim in {"zero": 0, "negative": -1, "large": 2**40, "2^63": 2**63 - 1}.items():
        yield f"input-{what}", damaged(lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", dim))
    yield "input-axes", damaged(lambda m: [m.graph.input[0].type.tensor_type.shape.dim.add() for _ in range(300000)]), {"wants": "refused"}
    yield "input-2^31-elements", damaged(lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", 2**26))


@family("types")
def types(r):
    known = [v for k, v in TensorProto.DataType.items() if v]
    for kind in known:
        name = TensorProto.DataType.Name(kind).lower()
        for index, shape in [(0, (4, 3, 3, 3)), (2, (64, 5))]:
            m = network()
            old = m.graph.initializer[index]
            try:
                if kind == TensorProto.STRING:
                    made = helper.make_tensor(old.name, kind, shape, [b"x"] * int(np.prod(shape)))
                else:
                    made = numpy_helper.from_array(np.random.default_rng(1).integers(0, 3, shape).astype(
                        helper.tensor_dtype_to_np_dtype(kind)), old.name)
            except (TypeError, ValueError, KeyError):
                continue
            old.CopyFrom(made)
            yield f"weight-{index}-{name}", m
        yield f"label-{name}", damaged(lambda m: setattr(m.graph.initializer[0], "data_type", kind))
        yield f"input-{name}", damaged(lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", kind))
    for kind in (-1, 0, 27, 99, 2**31 - 1):
        yield f"weight-of-{kind}", damaged(lambda m: setattr(m.graph.initializer[0], "data_type", kind))
        yield f"input-of-{kind}", damaged(lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", kind))
    for kind, dtype in [(TensorProto.FLOAT16, np.float16), (TensorProto.DOUBLE, np.float64)]:
        m = network()
        m.graph.input[0].type.tensor_type.elem_type = m.graph.output[0].type.tensor_type.elem_type = kind
        for t in m.graph.initializer:
            t.CopyFrom(array(t.name, numpy_helper.to_array(t), dtype))
        yield f"all-{np.dtype(dtype).name}", m
    yield "no-type", damaged(lambda m: m.graph.input[0].ClearField("type"))
    yield "wrong-value-info", damaged(lambda m: m.graph.value_info.append(value("c", [9], TensorProto.INT64)))
    yield "value-info-twice", damaged(lambda m: m.graph.value_info.extend([value("c", [1, 4, 4, 4])] * 2))
    for kind in ("sequence_type", "map_type", "optional_type", "sparse_tensor_type"):
        def other(m, k=kind):
            m.graph.input[0].type.Clear()
            getattr(m.graph.input[0].type, k).SetInParent()
        yield f"input-{kind}", damaged(other)


# ---- names

QUANTIZER_NAMES = ("X_scale", "W_quantized", "X_QuantizeLinear_Output", "c_zero_point", "X_quantized", "W_scale", "W_zero_point",
                   "c_scale", "X_QuantizeLinear", "X_DequantizeLinear_Output", "c_DequantizeLinear_Output", "r_zero_point", "M_quantized", "M_Q4", "M_scales",
                   "M_Q4G32", "M_DequantizeLinear_Output", "f_quantized", "B_quantized", "B_quantized_scale", "X_scale_mul",
                   "mm_quant", "conv_quant", "M_Bnb4", "M_absmax", "M_zp", "r_QuantizeLinear_Output", "Y_QuantizeLinear_Input",
                   "Y_scale", "c_QuantizeLinear_Output", "Y_output_quantized", "c_quantized", "Y_quantized", "Y_MatMulInteger_output")


@family("names")
def names(r):
    done = {"wants": "done", "right": True}
    for taken in QUANTIZER_NAMES:
        def edge(m, t=taken):
            m.graph.node[0].output[0] = m.graph.node[1].input[0] = t
        yield f"edge-{taken}", damaged(edge), done
        yield f"node-{taken}", damaged(lambda m: setattr(m.graph.node[1], "name", taken)), done
        yield f"weight-{taken}", network(more=[array(taken, [1.0, 2.0, 3.0])]), done
    yield "weight-all", network(more=[array(t, [1.0, 2.0, 3.0]) for t in QUANTIZER_NAMES]), done
    yield "initializer-twice", damaged(lambda m: m.graph.initializer.append(m.graph.initializer[0])), {"wants": "refused"}
    yield "node-twice", damaged(lambda m: setattr(m.graph.node[1], "name", "conv"))
    yield "output-twice", damaged(lambda m: m.graph.node[1].output.__setitem__(0, "c")), {"wants": "refused"}
    yield "no-names", damaged(lambda m: [setattr(n, "name", "") for n in m.graph.node]), done
    yield "input-and-weight", damaged(lambda m: m.graph.input.append(value("W", [4, 3, 3, 3])))
    yield "input-twice", damaged(lambda m: m.graph.input.append(m.graph.input[0])), {"wants": "refused"}
    yield "graph-output-twice", damaged(lambda m: m.graph.output.append(m.graph.output[0]))
    yield "output-is-input", damaged(lambda m: setattr(m.graph.output[0], "name", "X"))
    yield "output-is-weight", damaged(lambda m: setattr(m.graph.output[0], "name", "W"))
    yield "output-of-nothing", damaged(lambda m: setattr(m.graph.output[0], "name", "nothing")), {"wants": "refused"}
    for what, index in [("input", 0), ("node", 1)]:
        yield f"empty-{what}", damaged(lambda m: setattr(m.graph.input[0] if what == "input" else m.graph.node[1], "name", ""))
    yield "empty-output", damaged(lambda m: m.graph.node[0].output.__setitem__(0, ""))
    yield "empty-weight", damaged(lambda m: setattr(m.graph.initializer[0], "name", ""))
    yield "inner-as-outer", damaged(lambda m: setattr(m.graph.node[2].attribute[0].g.initializer[0], "name", "M"), branches())
    yield "inner-as-quantized", damaged(lambda m: m.graph.node[2].attribute[0].g.initializer.append(normal("M_quantized", 8, 8)),
                                        branches()), {"wants": "done"}


ODD_TEXTS = {"markup": "</script><script>alert(1)</script><img src=x onerror=alert(2)>", "nul": "a\0b", "escape": "a\x1b[31mb", "newline": "a\nonq: error: forged", "long": "n" * 10**6, "blank": " ",
             "quotes": "'\"`$(id)", "percent": "%s%n%x", "bidi": "a\u202eb", "accents": "na\u00efve \u540d\u524d", "slash": "../../x",
             "return": "a\rb", "delete": "a\x7fb", "c1": "a\u0085b\u009bc"}


@family("strings")
def strings(r):
    def everywhere(m, old, new):
        for n in m.graph.node:
            for part in (n.input, n.output):
                for i, name in enumerate(part):
                    if name == old:
                        part[i] = new
        for t in [*m.graph.initializer, *m.graph.input, *m.graph.output]:
            if t.name == old:
                t.name = new

    for what, s in ODD_TEXTS.items():
        yield f"node-{what}", damaged(lambda m: setattr(m.graph.node[0], "name", s))
        for name, part in [("c", "edge"), ("W", "weight"), ("X", "input"), ("Y", "output")]:
            yield f"{part}-{what}", damaged(lambda m: everywhere(m, name, s)), {"right": True}
        yield f"operator-{what}", damaged(lambda m: setattr(m.graph.node[0], "op_type", s))
        yield f"domain-{what}", damaged(lambda m: setattr(m.graph.node[0], "domain", s))
        yield f"import-{what}", damaged(lambda m: m.opset_import.append(helper.make_opsetid(s, 1)))
        yield f"missing-{what}", damaged(lambda m: m.graph.node[1].input.__setitem__(0, s))
        yield f"attribute-{what}", damaged(lambda m: setattr(m.graph.node[0].attribute[0], "name", s))
        yield f"doc-{what}", damaged(lambda m: (setattr(m, "doc_string", s), setattr(m.graph, "name", s), setattr(
            m, "producer_name", s), m.metadata_props.add(key=s, value=s)))
        yield f"dim-{what}", damaged(lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_param", s))
    whole = network()
    whole.doc_string = "docdoc"
    data = whole.SerializeToString()
    for what, old in [("node", b"relu"), ("doc", b"docd"), ("operator", b"Relu")]:
        for kind, new in [("bytes", b"\xff\xfe\xfd\xfc"), ("cut", b"ab\xe4\xbd"), ("surrogate", b"a\xed\xa0\x80"), ("overlong", b"ab\xc0\xaf")]:
            yield f"{what}-not-utf8-{kind}", data.replace(old, new)
    edge = damaged(lambda m: everywhere(m, "c", "cccc")).SerializeToString()
    yield "edge-not-utf8", edge.replace(b"cccc", b"c\xff\xfec")


# ---- edges, sizes of graphs

@family("graphs")
def graphs(r):
    refused = {"wants": "refused"}
    yield "cycle", damaged(lambda m: m.graph.node[0].input.__setitem__(0, "r")), refused
    yield "cycle-of-one", damaged(lambda m: m.graph.node[1].input.__setitem__(0, "r")), refused
    yield "missing-input", damaged(lambda m: m.graph.node[1].input.__setitem__(0, "nowhere")), refused
    yield "no-nodes", damaged(lambda m: m.graph.ClearField("node"))
    yield "no-inputs", damaged(lambda m: m.graph.ClearField("input")), refused
    yield "no-outputs", damaged(lambda m: m.graph.ClearField("output"))
    yield "no-graph", damaged(lambda m: m.ClearField("graph")), refused
    yield "empty-graph", damaged(lambda m: (m.graph.Clear(), setattr(m.graph, "name", "g")))
    yield "node-without-outputs", damaged(lambda m: m.graph.node[0].ClearField("output")), refused
    yield "node-without-operator", damaged(lambda m: m.graph.node[0].ClearField("op_type")), refused
    yield "unknown-operator", damaged(lambda m: setattr(m.graph.node[0], "op_type", "Nonsense"))
    yield "unknown-domain", damaged(lambda m: setattr(m.graph.node[0], "domain", "nowhere.example")), refused
    yield "unused-nodes", damaged(lambda m: m.graph.node.append(helper.make_node("MatMul", ["f", "M"], ["unused"], "dead"))), {
        "wants": "done", "right": True}

    def unsorted(m):
        nodes = list(m.graph.node)[::-1]
        del m.graph.node[:]
        m.graph.node.extend(nodes)

    yield "unsorted", damaged(unsorted)
    yield "branch-without-output", damaged(lambda m: m.graph.node[2].attribute[0].g.ClearField("output"), branches())
    yield "branch-missing", damaged(lambda m: m.graph.node[2].attribute.pop(), branches()), refused
    yield "branch-reads-later", damaged(lambda m: m.graph.node[2].attribute[0].g.node[0].input.__setitem__(0, "Y"), branches()), refused
    yield "branch-shadows", damaged(lambda m: m.graph.node[2].attribute[0].g.node[0].output.__setitem__(0, "total"), branches())

    def chain(op, count):
        names = ["X", *(f"t{i}" for i in range(1, count)), "Y"]
        return network(nodes=[helper.make_node(op, [a] if op == "Relu" else [a, a], [b], f"n{b}") for a, b in zip(names, names[1:])])

    # The runtime loads 50,000 nodes for each candidate of auto; a histogram of percentile takes 16 KiB, and is counted in two places.
    yield "chain-50000", lambda folder: chain("Relu", 50000), {"heavy": True, "allow": {"auto": 3, "calibrate-percentile": 2}}
    yield "chain-add-3000", lambda folder: chain("Add", 3000), {"heavy": True}
    yield "fan-5000", lambda folder: network(nodes=[helper.make_node("Relu", ["X"], [f"t{i}"], f"n{i}") for i in range(5000)] + [
        helper.make_node("Sum", [f"t{i}" for i in range(5000)], ["Y"], "sum")]), {"heavy": True}
    yield "fan-matmul-1000", lambda folder: network(nodes=[helper.make_node("MatMul", ["X", "Q"], [f"t{i}"], f"n{i}") for i in range(
        1000)] + [helper.make_node("Sum", [f"t{i}" for i in range(1000)], ["Y"], "sum")], more=[normal("Q", 4, 4)]), {"heavy": True}
    yield "unused-weights-50000", lambda folder: network(more=[array(f"u{i}", [1.0]) for i in range(50000)]), {"heavy": True}
    yield "unused-inputs-2000", lambda folder: damaged(lambda m: m.graph.input.extend([value(f"i{i}", [1]) for i in range(2000)])), {
        "heavy": True}
    yield "outputs-2000", lambda folder: wrap([helper.make_node("Relu", ["X"], [f"o{i}"]) for i in range(2000)], [value("X", [2])], [
        value(f"o{i}", [2]) for i in range(2000)], []), {"heavy": True}


@family("holes", wants="refused")
def holes(r):
    """Lists of which nothing can be left out, and inputs that are absent or have a name: elsewhere ONNX Runtime crashes."""
    inner = [helper.make_graph([helper.make_node("Neg", ["X"], [o]) for o in outs], "branch", [], [value(o, None) for o in outs])
             for outs in (("a", "b"), ("c", "d"))]
    several = {kind: (lambda names, kind=kind, more=more: helper.make_node(kind, names, ["made"], **more)) for kind, more in {
        "Sum": {}, "Max": {}, "Min": {}, "Mean": {}, "Concat": {"axis": 0}, "SequenceConstruct": {},
        "Einsum": {"equation": "abcd,abcd->abcd"}}.items()}
    nodes = {f"{kind}-{at}": make(["X" if i != at else "" for i in range(3)]) for kind, make in several.items() for at in range(3)}
    for at in range(2):
        names = ["made" if i != at else "" for i in range(2)]
        nodes[f"Split-{at}"] = helper.make_node("Split", ["X"], names, axis=2)
        nodes[f"If-{at}"] = helper.make_node("If", ["yes"], names, then_branch=inner[0], else_branch=inner[1])
    nodes["BatchNormalization"] = helper.make_node("BatchNormalization", ["X", *["k"] * 4], ["made", "", "more"], training_mode=1)
    nodes["LayerNormalization"] = helper.make_node("LayerNormalization", ["X", "k", ""], ["made"], axis=1)
    nodes["DFT"] = helper.make_node("DFT", ["X", "", ""], ["made"])
    for what, node in nodes.items():
        m = network(opset=17, more=[array("k", [1, 1, 1]), numpy_helper.from_array(np.array(True), "yes")])
        m.graph.node.append(node)
        yield what, m


# ---- what a graph may hold beside nodes and tensors

@family("sparse")
def sparse(r):
    """A weight as a sparse initializer, and as a Constant node's value."""

    def made(place, values=(1.0, 2.0), indices=(0, 63), dims=(64, 5), kind=np.int64, shape=None, name="M", spoil=None):
        m = network()
        t = helper.make_sparse_tensor(array(name, values), array("i", np.asarray(indices).reshape(shape or (-1,)), kind), list(dims))
        if spoil:
            spoil(t)
        del m.graph.initializer[2]
        if place == "constant":
            m.graph.node.insert(0, helper.make_node("Constant", [], ["M"], "sparse", sparse_value=t))
        else:
            m.graph.sparse_initializer.append(t)
        return m

    text = helper.make_tensor("M", TensorProto.STRING, [2], [b"a", b"b"])
    changes = {
        "sound": {},
        "pairs": {"indices": [0, 1, 63, 4], "shape": (2, 2)},
        "unordered": {"indices": (63, 0)},
        "twice": {"indices": (3, 3)},
        "too-few": {"indices": (3,)},
        "too-many": {"indices": (1, 2, 3)},
        "of-int32": {"kind": np.int32},
        "rank-3": {"indices": range(6), "shape": (1, 2, 3)},
        "dims-negative": {"dims": (-64, 5)},
        "dims-overflow": {"dims": (2**32, 2**32)},
        "dims-gigantic": {"dims": (2**20, 2**20)},
        "no-dims": {"dims": ()},
        "zero": {"dims": (0, 5)},
        "no-name": {"name": ""},
        "taken-name": {"name": "W"},
        "no-values": {"spoil": lambda t: t.ClearField("values")},
        "no-indices": {"spoil": lambda t: t.ClearField("indices")},
        "empty": {"spoil": lambda t: t.Clear()},
        "values-of-text": {"spoil": lambda t: t.values.CopyFrom(text)},
    }
    outside = {"past-the-end": (0, 320), "negative": (-1, 3), "most": (0, 2**63 - 1)}
    for place in ("initializer", "constant"):
        for what, more in changes.items():
            yield f"{place}-{what}", made(place, **more)
        for what, indices in outside.items():
            yield f"{place}-{what}", made(place, indices=indices), {"wants": "refused"}
        yield f"{place}-pair-past-the-end", made(place, indices=[0, 1, 64, 4], shape=(2, 2)), {"wants": "refused"}


@family("functions")
def functions(r):
    refused = {"wants": "refused"}

    def model(*bodies, call="F0", inputs=("c",), outputs=("r",)):
        m = network(ir=9)
        m.opset_import.append(helper.make_opsetid("d", 1))
        for i, (takes, gives, nodes) in enumerate(bodies):
            m.functions.append(helper.make_function("d", f"F{i}", takes, gives, nodes, [helper.make_opsetid("", 13), helper.make_opsetid("d", 1)]))
        m.graph.node[1].CopyFrom(helper.make_node(call, inputs, outputs, "call", domain="d"))
        return m

    def call(name, domain="d", a="a", b="b"):
        return helper.make_node(name, [a], [b], domain=domain)

    relu = (["a"], ["b"], [call("Relu", "")])
    yield "sound", model(relu), {"wants": "done", "right": True}
    yield "itself", model((["a"], ["b"], [call("F0")])), refused
    yield "each-other", model((["a"], ["b"], [call("F1")]), (["a"], ["b"], [call("F0")])), refused
    yield "itself-inside-a-branch", model((["a"], ["b"], [helper.make_node("If", ["a"], ["b"], then_branch=helper.make_graph([call("F0", a="a", b="t")], "t", [], [
        value("t", None)]), else_branch=helper.make_graph([call("Relu", "", "a", "e")], "e", [], [value("e", None)]))])), refused
    yield "twice", damaged(lambda m: m.functions.append(m.functions[0]), model(relu)), refused
    yield "too-many-inputs", model(relu, inputs=["c", "c", "c"])
    yield "too-many-outputs", model(relu, outputs=["r", "s"])
    yield "no-inputs", model(relu, inputs=[])
    yield "output-of-nothing", model((["a"], ["nothing"], [call("Relu", "")])), refused
    yield "input-of-nothing", model((["a"], ["b"], [call("Relu", "", "nothing")])), refused
    yield "input-twice", model((["a", "a"], ["b"], [call("Relu", "")]), inputs=["c", "c"])
    yield "takes-a-weight-of-the-graph", model((["a"], ["b"], [helper.make_node("MatMul", ["a", "M"], ["b"])])), refused
    yield "unsorted", model((["a"], ["b"], [call("Relu", "", "t", "b"), call("Relu", "", "a", "t")]))
    yield "cycle", model((["a"], ["b"], [call("Relu", "", "t", "b"), call("Relu", "", "b", "t")])), refused
    yield "no-body", model((["a"], ["b"], []))
    yield "named-like-an-operator", damaged(lambda m: (setattr(m.functions[0], "domain", ""), setattr(m.functions[0], "name", "Relu"), setattr(
        m.graph.node[1], "domain", ""), setattr(m.graph.node[1], "op_type", "Relu")), model(relu))
    yield "other-opset", damaged(lambda m: setattr(m.functions[0].opset_import[0], "version", 7), model(relu))
    yield "no-opset", damaged(lambda m: m.functions[0].ClearField("opset_import"), model(relu))
    yield "other-overload", damaged(lambda m: setattr(m.functions[0], "overload", "x"), model(relu))
    yield "attribute-missing", damaged(lambda m: m.functions[0].attribute.append("alpha"), model(relu))
    yield "attribute-reference", damaged(lambda m: (m.functions[0].node[0].attribute.add(name="alpha", ref_attr_name="nobody", type=1), setattr(
        m.functions[0].node[0], "op_type", "Elu")), model(relu))
    yield "reference-outside", damaged(lambda m: m.graph.node[0].attribute.add(name="group", ref_attr_name="nobody", type=2))


@family("scopes")
def scopes(r):
    """Names of inner graphs and of those around them."""

    def inner(change):
        return damaged(lambda m: change(m.graph.node[2].attribute[0].g, m), branches())

    yield "shadows-input", inner(lambda g, m: g.input.append(value("X", [2, 8])))
    yield "shadows-weight", inner(lambda g, m: g.initializer.append(normal("M", 8, 8)))
    yield "shadows-later-output", inner(lambda g, m: g.node[0].output.__setitem__(0, "Y"))
    yield "both-branches-same-names", damaged(lambda m: m.graph.node[2].attribute[1].g.CopyFrom(m.graph.node[2].attribute[0].g), branches())
    yield "reads-own-output-outside", inner(lambda g, m: g.node[0].input.__setitem__(0, "I"))
    yield "output-from-outside", inner(lambda g, m: setattr(g.output[0], "name", "X"))
    yield "output-is-weight", inner(lambda g, m: setattr(g.output[0], "name", g.initializer[0].name))
    yield "outputs-two", inner(lambda g, m: g.output.append(value("X", [2, 8])))
    yield "no-nodes", inner(lambda g, m: g.ClearField("node"))
    yield "unsorted", inner(lambda g, m: g.node.insert(0, helper.make_node("Relu", [g.node[0].output[0]], ["after"])))
    yield "weight-of-the-other-branch", inner(lambda g, m: g.node[0].input.__setitem__(1, "B"))
    yield "branch-in-the-wrong-operator", damaged(lambda m: m.graph.node[0].attribute.append(m.graph.node[2].attribute[0]), branches())
    yield "branch-as-list", damaged(lambda m: (m.graph.node[2].attribute[0].graphs.append(m.graph.node[2].attribute[0].g), m.graph.node[2].attribute[0].ClearField(
        "g")), branches())
    yield "same-graph-100-times", damaged(lambda m: m.graph.node[2].attribute.extend([m.graph.node[2].attribute[0]] * 100), branches())


@family("versions")
def versions(r):
    for opset in (0, -1, 1, 5, 7, 8, 9, 10, 11, 12, 14, 17, 19, 21, 22, 23, 24, 25, 26, 30, 999, 2**31, 2**62):
        yield f"opset-{opset}", network(opset=opset), {"wants": "refused"} if opset in (0, -1, 999, 2**31, 2**62) else {}
        yield f"language-opset-{opset}", language(opset=opset)
    for ir in (0, -1, 1, 2, 3, 4, 7, 12, 13, 14, 999):
        yield f"ir-{ir}", network(ir=ir)
    yield "no-opset", damaged(lambda m: m.ClearField("opset_import")), {"wants": "refused"}
    yield "opset-twice", damaged(lambda m: m.opset_import.append(helper.make_opsetid("", 12))), {"wants": "refused"}
    yield "opset-spelled-out", damaged(lambda m: setattr(m.opset_import[0], "domain", "ai.onnx"))
    for domain, version in [("com.microsoft", 0), ("com.microsoft", 999), ("com.microsoft", -1), ("ai.onnx.ml", 999), ("nowhere", 1)]:
        yield f"{domain}-{version}", damaged(lambda m: m.opset_import.append(helper.make_opsetid(domain, version)))


# ---- values

@family("weights")
def weights(r):
    for what, number in {"nan": np.nan, "inf": np.inf, "-inf": -np.inf, "huge": 3e38, "denormal": 1e-42, "zero": 0.0,
                         "constant": 0.7, "negative": -0.7, "minus-zero": -0.0}.items():
        for index, shape in enumerate([(4, 3, 3, 3), (4,), (64, 5)]):
            for part in ("all", "one", "channel"):
                m = network()
                spoiled = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
                if part == "all":
                    spoiled[...] = number
                elif part == "one":
                    spoiled.flat[1] = number
                else:
                    spoiled[1] = number
                m.graph.initializer[index].CopyFrom(array("WBM"[index], spoiled))
                yield f"{'WBM'[index]}-{part}-{what}", m
        m = language()
        m.graph.initializer[1].CopyFrom(array("K", np.full((32, 32), number)))
        yield f"K-{what}", m
    for scale in (0.0, -0.02, np.nan, np.inf, 1e-45, 3e38):
        yield f"trained-scale-{scale}", damaged(lambda m: m.graph.initializer[1].CopyFrom(array("s", scale)), trained())
    for shape in ((0,), (2,), (4,), (8,), (1, 1)):
        yield f"trained-scale-shape-{'x'.join(map(str, shape))}", damaged(lambda m: m.graph.initializer[1].CopyFrom(
            array("s", np.full(shape, 0.02))), trained())
    for dtype in (np.int8, np.int32, np.uint16, np.float32):
        yield f"trained-zero-{np.dtype(dtype).name}", damaged(lambda m: m.graph.initializer[2].CopyFrom(array("z", 3, dtype)), trained())
    m = network()
    m.graph.initializer[0].CopyFrom(array("W", np.random.default_rng(1).standard_normal((4, 3, 3, 3)) * 1e30))
    m.graph.initializer[1].CopyFrom(array("B", [1e38, -1e38, 1e-30, 0]))
    yield "products-overflow", m
    m = network()
    m.graph.initializer[0].CopyFrom(array("W", np.random.default_rng(1).standard_normal((4, 3, 3, 3)) * 1e-30))
    m.graph.initializer[1].CopyFrom(array("B", [1e3, -1e3, 1, 0]))
    yield "bias-saturates", m


# ---- operators: how many inputs, of which ranks and channels, with which attributes

OPSETS = (11, 13, 17, 21)


def operator(r):
    while True:
        name, opset = r.choice(opmodels.NAMES), r.choice(OPSETS)
        if opmodels.exists(name, opset):
            return name, opmodels.build(name, opset)


@family("operands")
def operands(r):
    for i in range(90):
        name, m = operator(r)
        kinds = []
        for _ in range(r.choice([1, 1, 2])):
            n = r.choice(m.graph.node)
            kind = r.choice(["reshape", "reshape", "resize", "resize", "drop", "add", "empty", "swap", "retype", "outputs"])
            kinds.append(kind)
            constants = [t for t in m.graph.initializer if t.name in n.input] or list(m.graph.initializer)
            if kind in ("reshape", "resize", "retype") and constants:
                t = r.choice(constants)
                a = numpy_helper.to_array(t)
                if kind == "reshape":
                    rank = r.choice([0, 1, 2, 3, 4, 5, 9])
                    shape = [a.size] + [1] * (rank - 1) if rank else []
                    r.shuffle(shape)
                    a = a.ravel()[:1].reshape([]) if rank == 0 else a.reshape(shape)
                elif kind == "resize":
                    shape = [max(0, d + r.choice([-1, 0, 0, 1, 3])) for d in a.shape]
                    a = np.resize(a, shape)
                else:
                    a = a.astype(r.choice([np.float16, np.float64, np.int32, np.int64, np.uint8, np.bool_]))
                t.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(a).reshape(a.shape), t.name))
            elif kind == "drop" and len(n.input):
                del n.input[r.randrange(len(n.input)):]
            elif kind == "add":
                n.input.extend([r.choice([*n.input, *(t.name for t in m.graph.initializer)])] * r.choice([1, 1, 2, 300]) if n.input else [])
            elif kind == "empty" and len(n.input):
                n.input[r.randrange(len(n.input))] = ""
            elif kind == "swap" and len(n.input) > 1:
                a, b = r.randrange(len(n.input)), r.randrange(len(n.input))
                n.input[a], n.input[b] = n.input[b], n.input[a]
            elif kind == "outputs":
                n.output.extend([f"more{j}" for j in range(r.choice([1, 2, 9]))])
        yield f"{i}-{name}-{'-'.join(kinds)}", m


@family("operands")
def listed_operands(r):
    """Those that a runtime refuses, each."""
    image, matrix = [1, 3, 8, 8], [4, 8]

    def one(op, x, shapes, inputs=None, opset=17, **attributes):
        w = [normal(n, *s) for n, s in zip("wbcdef", shapes)]
        node = helper.make_node(op, inputs or ["x", *(t.name for t in w)], ["y"], "the_node", **attributes)
        return wrap([node], [value("x", x)], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [f"d{i}" for i in range(len(x))])], w, opset)

    for rank in (0, 1, 2, 3, 5, 9):
        yield f"conv-weight-rank-{rank}", one("Conv", image, [([4, 3] + [1] * 9)[:rank]])
    for rank in (0, 1, 3, 4):
        yield f"gemm-weight-rank-{rank}", one("Gemm", matrix, [([1, 1, 8, 4])[4 - rank:]])
        yield f"matmul-weight-rank-{rank}", one("MatMul", matrix, [([2, 3, 8, 4])[4 - rank:]])
    for count in (0, 1, 3, 100001):
        yield f"matmul-{count}-inputs", one("MatMul", matrix, [[8, 4]], ["x", *["w"] * (count - 1)][:count])
        yield f"conv-{count}-inputs", one("Conv", image, [[4, 3, 3, 3]], ["x", *["w"] * (count - 1)][:count])
        yield f"gemm-{count}-inputs", one("Gemm", matrix, [[8, 4]], ["x", *["w"] * (count - 1)][:count])
    for other in (0, 7, 9):
        yield f"gemm-inner-{other}", one("Gemm", matrix, [[other, 4]])
        yield f"matmul-inner-{other}", one("MatMul", matrix, [[other, 4]])
        yield f"conv-channels-{other}", one("Conv", image, [[4, other, 3, 3]])
    for bias in ([], [1], [5], [2, 4], [1, 1, 4], [0]):
        what = "x".join(map(str, bias)) or "scalar"
        yield f"gemm-bias-{what}", one("Gemm", matrix, [[8, 4], bias])
        yield f"conv-bias-{what}", one("Conv", image, [[4, 3, 3, 3], bias])
    for group in (-1, 0, 2, 3, 7, 2**62):
        yield f"conv-group-{group}", one("Conv", image, [[6, 1, 3, 3]], group=group)
    for hidden in (0, -1, 3, 5):
        yield f"lstm-hidden-{hidden}", one("LSTM", [5, 1, 6], [[1, 16, 6], [1, 16, 4], [1, 32]], hidden_size=hidden)
    for axis in (-9, -2, 0, 2, 9):
        m = one("Gather", [2], [[8, 32]], ["w", "x"], axis=axis)
        m.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
        yield f"gather-axis-{axis}", m
    yield "conv-weight-from-a-node", damaged(lambda m: (m.graph.node.insert(0, helper.make_node("Identity", ["w"], ["v"], "id")), m.graph.node[
        1].input.__setitem__(1, "v")), one("Conv", image, [[4, 3, 3, 3]]))
    yield "weight-shared-by-two", wrap([helper.make_node("Conv", ["x", "w"], ["a"], "one"), helper.make_node("Conv", ["x", "w"], ["b"], "two", strides=[
        2, 2]), helper.make_node("Flatten", ["a"], ["y"]), helper.make_node("Flatten", ["b"], ["z"])], [value("x", image)], [
            value("y", None), value("z", None)], [normal("w", 4, 3, 3, 3)]), {"wants": "done", "right": True}


@family("attributes")
def attributes(r):
    numbers = [-(2**63), -(2**31), -9, -2, -1, 0, 1, 2, 7, 99, 2**31, 2**62, 2**63 - 1]
    for i in range(60):
        name, m = operator(r)
        nodes = [n for n in m.graph.node if n.attribute] or list(m.graph.node)
        n = r.choice(nodes)
        kind = r.choice(["number", "number", "list", "list", "drop", "twice", "type", "unknown", "text"])
        a = r.choice(n.attribute) if n.attribute else n.attribute.add(name="axis", type=onnx.AttributeProto.INT)
        if kind == "number":
            a.i = r.choice(numbers)
            a.f = r.choice([0.0, -1.0, float("nan"), float("inf"), 1e38])
            if a.ints:
                a.ints[r.randrange(len(a.ints))] = r.choice(numbers)
        elif kind == "list":
            values = [r.choice(numbers) for _ in range(r.choice([0, 1, 2, 3, 4, 5, 8, 500]))]
            a.ints[:] = values
        elif kind == "drop":
            n.attribute.remove(a)
        elif kind == "twice":
            n.attribute.append(a)
        elif kind == "type":
            a.type = r.randrange(0, 15)
        elif kind == "unknown":
            n.attribute.append(helper.make_attribute("nonsense", 1))
        else:
            a.s = b"NOT" + bytes([r.randrange(256)])
        yield f"{i}-{name}-{kind}", m


def quantized_operators():
    """Operators that a quantizer rewrites, each with its attributes."""
    for name in opmodels.NAMES:
        for opset in (17, 13, 21):
            if opmodels.exists(name, opset):
                m = opmodels.build(name, opset)
                if any(n.attribute for n in m.graph.node):
                    yield name, m
                break


@family("attribute types")
def attribute_types(r):
    """Every attribute of every operator as each other type, with the field of that type set; and there twice."""
    other = {"int": 7, "float": 1.5, "text": "x", "ints": [1, 2], "floats": [1.0], "texts": ["x"], "tensor": array("t", [1.0]),
             "graph": helper.make_graph([], "g", [], [])}
    for name, m in quantized_operators():
        for i, n in enumerate(m.graph.node):
            for k, a in enumerate(n.attribute):
                for what, v in other.items():
                    made = helper.make_attribute(a.name, v)
                    if made.type == a.type:
                        continue
                    spoiled = onnx.ModelProto()
                    spoiled.CopyFrom(m)
                    spoiled.graph.node[i].attribute[k].CopyFrom(made)
                    yield f"{name}-{i}-{n.op_type}-{a.name}-{what}", spoiled
                twice = onnx.ModelProto()
                twice.CopyFrom(m)
                twice.graph.node[i].attribute.append(helper.make_attribute(a.name, 3))
                yield f"{name}-{i}-{n.op_type}-{a.name}-twice", twice
