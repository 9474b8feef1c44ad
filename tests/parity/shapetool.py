"""What onq, onnx, the reference's symbolic inference and ONNX Runtime say about the shapes of a model.

Shapes are compared as [kind, elem_type, dims or None] for each value of each graph; graphs come outermost first, each
followed by the graphs inside it. A dimension is a number, a text or None.
"""
import glob
import json
import logging
import os
import re
import subprocess

import onnx

from common import BUILD, MODELS, ROOT

TOOL = os.path.join(BUILD, "tests", "infer_shapes")
TESTDATA = os.environ.get("ONQ_ONNX_TESTDATA", "/usr/share/libonnx-testdata/data")
KINDS = {"tensor_type": "tensor", "sparse_tensor_type": "sparse", "sequence_type": "sequence",
         "optional_type": "optional", "map_type": "map", "opaque_type": "opaque"}


def testdata_models():
    return sorted(glob.glob(os.path.join(TESTDATA, "*", "*", "*.onnx")))


def shared_models():
    return sorted(glob.glob(os.path.join(MODELS, "*", "model.onnx")))


def run_tool(files, *options):
    """{file: result of the C tool}; many files in one run."""
    found = {}
    for i in range(0, len(files), 200):
        out = subprocess.run([TOOL, *options, *files[i:i + 200]], capture_output=True, text=True, check=True)
        for line in out.stdout.splitlines():
            r = json.loads(line)
            found[r["file"]] = r
    assert len(found) == len(set(files))
    return found


def walk(graph):
    yield graph
    for node in graph.node:
        for a in node.attribute:
            for g in ([a.g] if a.HasField("g") else []) + list(a.graphs):
                yield from walk(g)


def of_type(tp):
    case = tp.WhichOneof("value")
    if case is None:
        return None
    if case in ("tensor_type", "sparse_tensor_type"):
        t = getattr(tp, case)
        dims = None
        if t.HasField("shape"):
            dims = []
            for d in t.shape.dim:
                which = d.WhichOneof("value")
                dims.append(None if which is None else getattr(d, which))
        return [KINDS[case], t.elem_type, dims]
    if case in ("sequence_type", "optional_type"):
        return [KINDS[case], 0, of_type(getattr(tp, case).elem_type)]
    if case == "map_type":
        return [KINDS[case], tp.map_type.key_type, of_type(tp.map_type.value_type)]
    return [KINDS[case], 0, None]


def of_graph(graph):
    """{name: type} from a graph's own lists: later ones win, as in the quantizer."""
    out = {}
    for vi in list(graph.value_info) + list(graph.output) + list(graph.input):
        t = of_type(vi.type)
        if t is not None or vi.name not in out:
            out[vi.name] = t
    return out


def of_model(model):
    return [of_graph(g) for g in walk(model.graph)]


def made(graph):
    """{output name: op type} of the graph's nodes."""
    return {o: (n.domain + "::" if n.domain else "") + n.op_type for n in graph.node for o in n.output if o}


def is_unk(d):
    return isinstance(d, str) and re.fullmatch(r"unk__\d+", d) is not None


def dims_of(t):
    """Dims of a tensor, or of what a sequence or optional holds; None when there are none."""
    while t is not None and t[0] in ("sequence", "optional"):
        t = t[2]
    return t[2] if t is not None and t[0] in ("tensor", "sparse") else None


def elem_of(t):
    while t is not None and t[0] in ("sequence", "optional"):
        t = t[2]
    return t[1] if t is not None else 0


def is_full(t, count_unk=False):
    if t is not None and t[0] in ("map", "opaque"):
        return True
    if t is not None and t[0] in ("sequence", "optional") and t[2] is not None and t[2][0] == "map":
        return True
    d = dims_of(t)
    return d is not None and elem_of(t) != 0 and all(x is not None and (count_unk or not is_unk(x)) for x in d)


def names_in(model):
    """Every dim_param of the inputs."""
    out = set()
    for i in model.graph.input:
        for d in dims_of(of_type(i.type)) or []:
            if isinstance(d, str):
                out.add(d)
    return out


TOKEN = re.compile(r"\s*(?:(\d+)|(floor|Min|Max)\s*\(|(\*\*|[-+*/(),])|(.))", re.S)


class Expression:
    """Value of a dimension's text under a binding of names; the longest known name at a place is taken."""

    def __init__(self, text, binding):
        self.text, self.at, self.binding = text, 0, binding
        self.names = sorted(binding, key=len, reverse=True)

    def peek(self):
        while self.at < len(self.text) and self.text[self.at] == " ":
            self.at += 1
        return self.text[self.at:]

    def take(self, word):
        if self.peek().startswith(word):
            self.at += len(word)
            return True
        return False

    def factor(self):
        from fractions import Fraction
        if self.take("-"):
            return -self.factor()
        for n in self.names:
            if self.peek().startswith(n):
                self.at += len(n)
                return self.power(Fraction(self.binding[n]))
        for word, fn in (("floor(", lambda a: Fraction(a[0].__floor__())), ("Min(", min), ("Max(", max)):
            if self.take(word):
                args = [self.sum()]
                while self.take(","):
                    args.append(self.sum())
                assert self.take(")"), self.text
                return self.power(fn(args))
        if self.take("("):
            v = self.sum()
            assert self.take(")"), self.text
            return self.power(v)
        m = re.match(r"\d+", self.peek())
        if not m:
            raise KeyError(self.peek())
        self.at += m.end()
        return self.power(Fraction(int(m.group())))

    def power(self, v):
        while self.peek().startswith("**"):
            self.at += 2
            v = v ** int(self.factor())
        return v

    def product(self):
        v = self.factor()
        while True:
            if self.peek().startswith("*") and not self.peek().startswith("**"):
                self.at += 1
                v *= self.factor()
            elif self.take("/"):
                v /= self.factor()
            else:
                return v

    def sum(self):
        v = self.product()
        while True:
            if self.take("+"):
                v += self.product()
            elif self.take("-"):
                v -= self.product()
            else:
                return v

    def value(self):
        v = self.sum()
        if self.peek():
            raise KeyError(self.peek())
        return int(v) if v.denominator == 1 else v


def evaluate(dim, binding):
    """The number a dimension is, or None when it holds a name that is not bound."""
    if isinstance(dim, int):
        return dim
    if dim is None:
        return None
    if dim in binding:
        return binding[dim]
    try:
        return Expression(dim, binding).value()
    except KeyError:
        return None


def read_value(path, type_proto):
    """A test_data_set value as ONNX Runtime takes it, or NotImplemented for kinds it has no plain form of."""
    from onnx import numpy_helper
    with open(path, "rb") as f:
        data = f.read()
    case = type_proto.WhichOneof("value")
    if case == "tensor_type":
        return numpy_helper.to_array(onnx.TensorProto.FromString(data))
    if case == "sequence_type" and type_proto.sequence_type.elem_type.WhichOneof("value") == "tensor_type":
        seq = onnx.SequenceProto.FromString(data)
        return [numpy_helper.to_array(t) for t in seq.tensor_values]
    return NotImplemented


def run_all(path, folder):
    """({value: array}, {input: array}) of the main graph, run by ONNX Runtime on the inputs in `folder`.

    Raises when the runtime does not take the model.
    """
    import onnxruntime as ort
    model = onnx.load(path)
    inits = {t.name for t in model.graph.initializer}
    feeds = {}
    wanted = [i for i in model.graph.input]
    given = [i for i in wanted if i.name not in inits]
    for k, i in enumerate(given):
        file = os.path.join(folder, f"input_{k}.pb")
        if not os.path.exists(file):
            raise FileNotFoundError(file)
        v = read_value(file, i.type)
        if v is NotImplemented:
            raise NotImplementedError(i.name)
        feeds[i.name] = v
    have = {o.name for o in model.graph.output} | {i.name for i in wanted} | inits
    for name in made(model.graph):
        if name not in have:
            have.add(name)
            model.graph.output.append(onnx.ValueInfoProto(name=name))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    # External data is found beside the model.
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", os.path.dirname(path))
    loaded = onnx.load(path, load_external_data=False)
    loaded.graph.output.extend(model.graph.output[len(loaded.graph.output):])
    session = ort.InferenceSession(loaded.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds))), feeds


def contradictions(types, values, binding):
    """[(name, ours, real)] where a real shape is not what `types` says; names are bound on first sight."""
    bad = []
    for name, value in values.items():
        t = types.get(name)
        if t is None or not hasattr(value, "shape"):
            continue
        dims = dims_of(t) if t[0] == "tensor" else None
        if t[0] == "tensor" and t[1] and onnx.helper.tensor_dtype_to_np_dtype(t[1]) != value.dtype:
            # Types numpy has no name for come back as their storage.
            if value.dtype.name not in ("uint8", "int8", "uint16", "object") and t[1] != onnx.TensorProto.STRING:
                bad.append((name, t, value.dtype.name))
        if dims is None:
            continue
        if len(dims) != value.ndim:
            bad.append((name, t, value.shape))
            continue
        for d, real in zip(dims, value.shape):
            v = evaluate(d, binding)
            if v is None and isinstance(d, str) and re.fullmatch(r"[A-Za-z_][\w:.$/]*", d):
                binding[d] = real
            elif v is not None and v != real:
                bad.append((name, t, value.shape))
                break
    return bad


ELEMENTS = {"bf": 16, "f": 1, "h": 10, "d": 11, "i8": 3, "u8": 2, "i16": 5, "u16": 4, "i32": 6, "u32": 12, "i64": 7,
            "b": 9, "s": 8}
DOMAINS = {"ms": "com.microsoft", "ml": "ai.onnx.ml", "train": "ai.onnx.preview.training", "preview": "ai.onnx.preview",
           "aten": "org.pytorch.aten"}


def split_outside(text, sep):
    """Parts between separators that are outside of brackets and quotes."""
    parts, depth, part, quoted = [], 0, "", False
    for ch in text:
        quoted ^= ch == "'"
        depth += 0 if quoted else (ch in "[({") - (ch in "])}")
        if ch == sep and depth == 0 and not quoted:
            parts.append(part)
            part = ""
        else:
            part += ch
    return [p.strip() for p in parts + [part] if p.strip()]


def read_cases():
    """[(domain, type, version, [inputs], {attributes}, [outputs], line)] of tests/unit/shape/cases.txt."""
    out = []
    with open(os.path.join(ROOT, "tests", "unit", "shape", "cases.txt"), encoding="utf-8") as f:
        for line in f.read().splitlines():
            if not line or line.startswith("#"):
                continue
            head, rest = line.split(":", 1)
            left, right = rest.rsplit("->", 1)
            inputs, _, attrs = left.partition(";")
            attributes = dict(a.split("=", 1) for a in split_outside(attrs, " "))
            for op in head.split():
                name, versions = op.split("@")
                prefix, _, typ = name.rpartition(".")
                for v in versions.split(","):
                    out.append((DOMAINS.get(prefix, ""), typ, int(v), split_outside(inputs, " "), attributes,
                                split_outside(right, " "), line))
    return out


def case_type(text):
    """(elem_type, dims or None) of a plain tensor in a case."""
    m = re.fullmatch(r"(bf|f|h|d|i8|u8|i16|u16|i32|u32|i64|b|s)(\[(.*)\])?", text)
    if not m:
        return None
    dims = None if m.group(2) is None else [int(d) if re.fullmatch(r"-?\d+", d) else d
                                            for d in split_outside(m.group(3), ",")]
    return ELEMENTS[m.group(1)], dims


def case_constant(text):
    from onnx import numpy_helper
    import numpy as np
    m = re.fullmatch(r"(bf|f|h|d|i8|u8|i16|u16|i32|u32|i64|b)([{(])(.*)[})]", text)
    if not m:
        return None
    dtype = onnx.helper.tensor_dtype_to_np_dtype(ELEMENTS[m.group(1)])
    values = [float(x) if "." in x else int(x) for x in m.group(3).split(",") if x]
    return numpy_helper.from_array(np.array(values if m.group(2) == "{" else values[0], dtype))


def case_attribute(name, text):
    if text.startswith("t:"):
        return onnx.helper.make_attribute(name, case_constant(text[2:]))
    if text.startswith("tp:"):
        e, d = case_type(text[3:])
        return onnx.helper.make_attribute(name, onnx.helper.make_tensor_type_proto(e, d))
    if text.startswith("s["):
        return onnx.helper.make_attribute(name, [x.strip("'") for x in text[2:-1].split(",")])
    if text.startswith("f["):
        return onnx.helper.make_attribute(name, [float(x) for x in text[2:-1].split(",")])
    if text.startswith("["):
        return onnx.helper.make_attribute(name, [int(x) for x in text[1:-1].split(",")])
    if text.startswith("'"):
        return onnx.helper.make_attribute(name, text.strip("'"))
    if text.endswith("f"):
        return onnx.helper.make_attribute(name, float(text[:-1]))
    return onnx.helper.make_attribute(name, int(text))


def reference_symbolic(model, folder, ways=(False, True)):
    """What symbolic_shape_infer.py finds, with auto_merge if it needs it; None when it raises. ways: of auto_merge."""
    from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference
    logging.disable(logging.CRITICAL)
    back = os.getcwd()
    os.chdir(folder)  # it leaves its half-done model in the working folder
    try:
        for auto_merge in ways:
            copy = onnx.ModelProto.FromString(model.SerializeToString())
            try:
                found = SymbolicShapeInference.infer_shapes(copy, 2**31 - 1, auto_merge, False, 0)
            except BaseException:  # noqa: BLE001 - asserts, IndexErrors, AttributeErrors: all happen
                continue
            if found is not None:
                return found
        return None
    finally:
        os.chdir(back)
        logging.disable(logging.NOTSET)
