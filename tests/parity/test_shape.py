"""Shape inference against onnx, the reference's symbolic inference and what ONNX Runtime really produces.

Models: Debian's libonnx-testdata, the node tests inside the onnx package, and the shared real models; where one of
these is not there the test says so and goes on with the others. For the node tests, variants are made in which
outputs are not declared and input sizes are names, so that inference has to do the work.
"""
import collections
import os

import onnx
import pytest
import shapetool as st

# (operator, what differs): where onnx 1.22 is wrong and onq is not.
ONNX_IS_WRONG = {
    "Attention": "sizes that are names become 0",
    "MeanVarianceNormalization": "the numbers of unk__N count names inside the function's body",
    "STFT": "the default of onesided is 1, onnx takes 0",
    "Loop": "the shape of a sequence's elements is taken from the empty one before the loop",
}


def package_models():
    folder = os.path.join(os.path.dirname(onnx.__file__), "backend", "test", "data")
    return sorted(st.glob.glob(os.path.join(folder, "*", "*", "*.onnx")))


NODE_MODELS = st.testdata_models() + package_models()
SHARED = st.shared_models()


def say(text):
    print(text, flush=True)


@pytest.fixture(scope="module", autouse=True)
def whats_there():
    say(f"libonnx-testdata: {len(st.testdata_models())} models, onnx package: {len(package_models())}, "
        f"shared: {len(SHARED)}")
    if not NODE_MODELS and not SHARED:
        pytest.skip("no models to test on")


def bare(model):
    """No declared outputs, no value_infos."""
    for g in st.walk(model.graph):
        del g.value_info[:]
        for o in g.output:
            o.ClearField("type")


def each_input_dim(model, change):
    inits = {t.name for t in model.graph.initializer}
    for i in model.graph.input:
        t = i.type
        while t.WhichOneof("value") in ("sequence_type", "optional_type"):
            t = getattr(t, t.WhichOneof("value")).elem_type
        if i.name not in inits and t.WhichOneof("value") == "tensor_type" and t.tensor_type.HasField("shape"):
            for k, d in enumerate(t.tensor_type.shape.dim):
                change(i.name, k, d)


def same_names(model):
    """Equal input sizes get equal names."""
    bare(model)

    def change(name, axis, d):
        if d.WhichOneof("value") == "dim_value" and d.dim_value > 1:
            d.dim_param = f"n{d.dim_value}"
    each_input_dim(model, change)


def own_names(model):
    """Every input dimension has a name of its own."""
    bare(model)

    def change(name, axis, d):
        d.dim_param = f"{name}_{axis}"
    each_input_dim(model, change)


def open_batch(model):
    bare(model)

    def change(name, axis, d):
        if axis == 0:
            d.Clear()
    each_input_dim(model, change)


def no_rank(model):
    bare(model)
    for i in model.graph.input:
        if i.type.WhichOneof("value") == "tensor_type":
            i.type.tensor_type.ClearField("shape")


VARIANTS = {"declared": lambda m: None, "bare": bare, "same_names": same_names, "own_names": own_names,
            "open_batch": open_batch, "no_rank": no_rank}


def variants(tmp_path, which, models):
    """[(original, variant's file)]"""
    pairs = []
    for k, f in enumerate(models):
        if which == "declared":
            pairs.append((f, f))
            continue
        model = onnx.load(f)
        VARIANTS[which](model)
        path = str(tmp_path / f"{k}.onnx")
        onnx.save(model, path)
        pairs.append((f, path))
    return pairs


def label(path):
    return "/".join(path.split(os.sep)[-3:-1])


@pytest.mark.parametrize("which", VARIANTS)
def test_plain_is_what_onnx_says(tmp_path, which):
    pairs = variants(tmp_path, which, NODE_MODELS)
    pairs += [(f, f) for f in SHARED] if which == "declared" else []
    found = st.run_tool([p for _, p in pairs], "--plain")
    total, wrong, known = 0, [], collections.Counter()
    for original, path in pairs:
        model = onnx.load(path, load_external_data=False)
        want = st.of_model(onnx.shape_inference.infer_shapes(model))
        assert "error" not in found[path], found[path]
        for g, w, got in zip(st.walk(model.graph), want, found[path]["graphs"]):
            for name, op in st.made(g).items():
                total += 1
                if w.get(name) == got.get(name):
                    continue
                if op in ONNX_IS_WRONG and st.elem_of(w.get(name)) == st.elem_of(got.get(name)):
                    known[op] += 1
                else:
                    wrong.append((label(original), op, name, w.get(name), got.get(name)))
    say(f"{which}: {total} values, {len(wrong)} differ, onnx is wrong in {dict(known)}")
    assert not wrong, wrong[:20]


def test_plain_does_not_read_external_data(tmp_path):
    """The reference infers over the file; onnx then fails wherever a shape depends on external values."""
    total, n, wrong = 0, 0, []
    for k, f in enumerate(SHARED + NODE_MODELS[::5]):
        model = onnx.load(f)
        if not model.graph.initializer:
            continue
        path = str(tmp_path / f"{k}.onnx")
        onnx.save_model(model, path, save_as_external_data=True, size_threshold=0, location=f"{k}.data")
        n += 1
        onnx.shape_inference.infer_shapes_path(path, path + ".inferred")
        want = st.of_model(onnx.load(path + ".inferred", load_external_data=False))
        got = st.run_tool([path], "--plain")[path]["graphs"]
        for g, w, o in zip(st.walk(model.graph), want, got):
            for name, op in st.made(g).items():
                total += 1
                if w.get(name) != o.get(name) and op not in ONNX_IS_WRONG:
                    wrong.append((label(f), op, name, w.get(name), o.get(name)))
    say(f"external data: {n} models, {total} values, {len(wrong)} differ")
    assert not wrong, wrong[:10]


def test_plain_write_leaves_what_onnx_leaves(tmp_path):
    pairs = variants(tmp_path, "own_names", NODE_MODELS[::3]) + [(f, f) for f in SHARED if "_ext" not in f]
    folder = tmp_path / "out"
    folder.mkdir()
    wrong, total = [], 0
    for original, path in pairs:
        result = st.run_tool([path], "--plain", "--write", str(folder))[path]
        got = onnx.load(str(folder / f"{result['number']}.onnx"))
        want = onnx.shape_inference.infer_shapes(onnx.load(path))
        for gw, gg in zip(st.walk(want.graph), st.walk(got.graph)):
            ops = st.made(gg)
            if any(op in ONNX_IS_WRONG for op in ops.values()):
                continue
            for part in ("input", "output", "value_info"):
                a = [(v.name, st.of_type(v.type)) for v in getattr(gw, part)]
                b = [(v.name, st.of_type(v.type)) for v in getattr(gg, part)]
                total += len(a)
                if a != b:
                    wrong.append((label(original), part, [x for x in zip(a, b) if x[0] != x[1]][:3], len(a), len(b)))
    say(f"{len(pairs)} models, {total} value_infos, {len(wrong)} lists differ")
    assert not wrong, wrong[:10]


def differ(ours, theirs):
    """Do two types contradict each other?"""
    if ours is None or theirs is None:
        return False
    if st.elem_of(ours) and st.elem_of(theirs) and st.elem_of(ours) != st.elem_of(theirs):
        return True
    a, b = st.dims_of(ours), st.dims_of(theirs)
    if a is None or b is None:
        return False
    return len(a) != len(b) or any(isinstance(x, int) and isinstance(y, int) and x != y for x, y in zip(a, b))


def real_shapes(original):
    """Values and inputs of each stored data set that the runtime takes."""
    for folder in sorted(st.glob.glob(os.path.join(os.path.dirname(original), "test_data_set_*")))[:3]:
        try:
            yield st.run_all(original, folder)
        except Exception:  # noqa: BLE001 - operators and types that the CPU build has not
            return


def check_real(types, values, feeds):
    binding = {}
    for name, v in feeds.items():
        for d, real in zip(st.dims_of(types.get(name)) or [], getattr(v, "shape", [])):
            if isinstance(d, str):
                binding.setdefault(d, real)
    return st.contradictions(types, values, binding)


@pytest.mark.parametrize("which", ["bare", "own_names"])
def test_symbolic_finds_no_less_and_contradicts_nobody(tmp_path, which):
    pairs = variants(tmp_path, which, st.testdata_models()) + [(f, f) for f in SHARED]
    found = st.run_tool([p for _, p in pairs])
    count = collections.defaultdict(lambda: [0, 0, 0])
    less, against, no_rule = [], [], collections.Counter()
    for original, path in pairs:
        model = onnx.load(path)
        assert "error" not in found[path], found[path]
        no_rule.update(found[path]["no_rule"])
        graphs = list(st.walk(model.graph))
        plain = st.of_model(onnx.shape_inference.infer_shapes(model, data_prop=True))
        ref = st.reference_symbolic(model, tmp_path)
        symbolic = st.of_model(ref) if ref is not None else None
        if symbolic is None or len(symbolic) != len(graphs):
            symbolic = [{} for _ in graphs]
        real = None
        for k, g in enumerate(graphs):
            for name, op in st.made(g).items():
                ours, a, b = found[path]["graphs"][k].get(name), plain[k].get(name), symbolic[k].get(name)
                theirs = st.is_full(a) or st.is_full(b)
                row = count[op]
                row[0] += 1
                row[1] += st.is_full(ours)
                row[2] += theirs
                if theirs and not st.is_full(ours):
                    full = a if st.is_full(a) else b
                    # A full shape that the runtime contradicts is not a gain.
                    if not (k == 0 and any(check_real({**found[path]["graphs"][0], name: full}, {name: v[name]}, f)
                                           for v, f in real_shapes(original) if name in v)):
                        less.append((label(original), op, name, ours, a, b))
                for source, t in (("onnx", a), ("reference", b)):
                    if not differ(ours, t):
                        continue
                    # Who is right? The runtime says.
                    if real is None:
                        real = [(v, check_real(found[path]["graphs"][0], v, f)) for v, f in real_shapes(original)]
                    judged = k == 0 and any(name in v and not any(x[0] == name for x in bad) for v, bad in real)
                    if not judged and not (source == "onnx" and op in ONNX_IS_WRONG):
                        against.append((label(original), source, op, name, ours, t))
    for op in sorted(count, key=lambda x: -count[x][0])[:400]:
        n, mine, theirs = count[op]
        say(f"{which}: {op}: {n} values, onq {mine}, onnx and symbolic_shape_infer {theirs}")
    total = [sum(c[i] for c in count.values()) for i in range(3)]
    say(f"{which}: {total[0]} values, full shapes: onq {total[1]}, onnx and symbolic_shape_infer together {total[2]}; "
        f"operators without a rule: {dict(no_rule)}; theirs alone: {len(less)}")
    assert not no_rule
    assert total[1] >= total[2]
    # onnx believes the shape declared for the elements of a sequence that is empty there.
    assert [x for x in less if x[0] != "node/test_loop16_seq_none"] == []
    assert not against, against[:20]


@pytest.mark.parametrize("which", ["bare", "same_names", "own_names", "open_batch"])
def test_runtime_produces_what_was_inferred(tmp_path, which):
    models = [f for f in NODE_MODELS if os.path.isdir(os.path.join(os.path.dirname(f), "test_data_set_0"))]
    pairs = variants(tmp_path, which, models[::4] if which != "bare" else models)
    pairs += [(f, f) for f in SHARED] if which == "bare" else []
    found = st.run_tool([p for _, p in pairs])
    ran, values_checked, wrong = 0, 0, []
    for original, path in pairs:
        for values, feeds in real_shapes(original):
            ran += 1
            values_checked += len(values)
            wrong += [(label(original), *x) for x in check_real(found[path]["graphs"][0], values, feeds)]
    say(f"{which}: {ran} runs, {values_checked} values, {len(wrong)} contradictions")
    assert ran > 0
    assert not wrong, wrong[:20]


@pytest.mark.skipif(not SHARED, reason="no shared models")
def test_auto_merge_agrees_with_the_runtime():
    found = st.run_tool(SHARED, "--auto_merge")
    for f in SHARED:
        for values, feeds in real_shapes(f):
            assert not check_real(found[f]["graphs"][0], values, feeds)


def test_auto_merge_makes_names_one(tmp_path):
    node = [onnx.helper.make_node("Add", ["a", "b"], ["c"]), onnx.helper.make_node("Relu", ["c"], ["d"])]
    value = onnx.helper.make_tensor_value_info
    g = onnx.helper.make_graph(node, "g", [value("a", 1, ["x", 4]), value("b", 1, ["y", 4])], [value("d", 1, None)])
    path = str(tmp_path / "m.onnx")
    onnx.save(onnx.helper.make_model(g, opset_imports=[onnx.helper.make_opsetid("", 17)]), path)
    assert st.run_tool([path])[path]["graphs"][0]["d"][2] == ["Max(x, y)", 4]
    merged = st.run_tool([path], "--auto_merge")[path]["graphs"][0]
    assert merged["d"][2] == ["x", 4] and merged["b"][2] == ["x", 4]


def test_guess_output_rank(tmp_path):
    node = [onnx.helper.make_node("Mystery", ["a"], ["c"], domain="some.where")]
    value = onnx.helper.make_tensor_value_info
    g = onnx.helper.make_graph(node, "g", [value("a", 1, ["x", 4])], [onnx.ValueInfoProto(name="c")])
    path = str(tmp_path / "m.onnx")
    onnx.save(onnx.helper.make_model(g, opset_imports=[onnx.helper.make_opsetid("", 17),
                                                       onnx.helper.make_opsetid("some.where", 1)]), path)
    assert st.run_tool([path])[path]["graphs"][0]["c"] is None
    assert st.run_tool([path], "--guess")[path]["graphs"][0]["c"] == [
        "tensor", 1, ["Mystery_0_o0__d0", "Mystery_0_o0__d1"]]


SIZES = {"n": 2, "m": 3, "s": 5, "t": 5, "h": 6, "w": 7, "k": 4, "a": 2, "b": 3, "c": 4, "p": 3, "v": 11, "r": 2, "i": 3,
         "j": 4}


def case_model(case):
    """(model, inputs, output names) of a line of cases.txt with numbers for its names; None if it is not a plain one."""
    import numpy as np
    domain, typ, version, ins, attributes, outs, _ = case
    names, inputs, inits, feeds = [], [], [], {}
    random = np.random.default_rng(1)
    for k, text in enumerate(ins):
        name = "" if text == "_" else f"x{k}"
        names.append(name)
        constant = st.case_constant(text)
        if constant is not None:
            constant.name = name
            inits.append(constant)
        elif name:
            t = st.case_type(text)
            if t is None or t[1] is None:
                return None
            dims = [SIZES[d] if isinstance(d, str) else d for d in t[1]]
            inputs.append(onnx.helper.make_tensor_value_info(name, t[0], dims))
            dtype = onnx.helper.tensor_dtype_to_np_dtype(t[0])
            if t[0] == onnx.TensorProto.STRING:
                feeds[name] = np.full(dims, "a b", dtype=object)
            elif np.dtype(dtype).kind == "f":
                feeds[name] = np.asarray(random.random(dims) * 0.5 + 0.1).astype(dtype)
            else:
                feeds[name] = np.full(dims, t[0] == onnx.TensorProto.BOOL).astype(dtype)
    outputs = [f"y{k}" for k in range(len(outs))]
    node = onnx.helper.make_node(typ, names, outputs, domain=domain)
    node.attribute.extend(st.case_attribute(k, v) for k, v in attributes.items())
    graph = onnx.helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name=o) for o in outputs], inits)
    opsets = [onnx.helper.make_opsetid("", 17 if domain else version)]
    opsets += [onnx.helper.make_opsetid(domain, version)] if domain else []
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), feeds, outputs


def run_forked(model, feeds, outputs):
    """[(shape, dtype)], or a text; in a process of its own, since some kernels crash on such small models."""
    import pickle
    import onnxruntime as ort
    r, w = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            options = ort.SessionOptions()
            options.log_severity_level = 4
            session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
            answer = [(v.shape, str(v.dtype)) if hasattr(v, "shape") else None for v in session.run(outputs, feeds)]
        except Exception as e:  # noqa: BLE001
            answer = str(e)
        os.write(w, pickle.dumps(answer))
        os._exit(0)
    os.close(w)
    with os.fdopen(r, "rb") as f:
        data = f.read()
    os.waitpid(child, 0)
    return pickle.loads(data) if data else "crashed"


def test_cases_are_what_the_runtime_does():
    """The expectations of the unit tests' cases.txt, run by ONNX Runtime where it has a CPU kernel."""
    import numpy as np
    ran, wrong, operators = 0, [], set()
    for case in st.read_cases():
        built = case_model(case)
        answer = run_forked(*built) if built is not None else ""
        if isinstance(answer, str):
            continue
        ran += 1
        operators.add(case[:2])
        binding = dict(SIZES)
        for name, text, real in zip(built[2], case[5], answer):
            t = st.case_type(text)
            if t is None or t[1] is None or real is None:
                continue
            value = np.empty(real[0], dtype=real[1])
            wrong += [(case[6], *x) for x in st.contradictions({name: ["tensor", *t]}, {name: value}, binding)]
    contrib = len([o for o in operators if o[0] == "com.microsoft"])
    say(f"{ran} cases run, {len(operators)} operators, {contrib} of them com.microsoft's; {len(wrong)} wrong")
    assert not wrong, wrong[:10]
    assert ran > 300 and contrib > 50
