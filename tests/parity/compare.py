"""compare.py - is one quantized model the other, to the last bit?

differences(ref, got) lists what differs, worst first; an empty list means that the two files say the same: the
same nodes in the same order with the same names, inputs, outputs, attributes; the same initializers in the same
order, in the same storage (typed or raw), bit for bit; the same inputs, outputs, opsets, value_infos, metadata.

Left out, because the reference loses it and onq keeps it: doc strings and metadata of nodes that hold subgraphs or
replace others. And the order of nodes where the reference puts one in front of what its subgraphs read, and onq does not.
"""
import onnx


def _loses(node):
    return any(a.HasField("g") or a.graphs for a in node.attribute)


def _replaces(node):
    """A quantized operator in the place of a float one, or the MatMul of a Gemm."""
    if node.op_type == "MatMul" and ("_MatMul" in (node.output[0][-7:], node.name[-7:]) or node.input[1].endswith("_Transposed")):
        return True
    if node.op_type == "Split" and node.output[0].endswith("quantized"):
        return True
    return node.name.endswith("_quant") or node.op_type.startswith(("QLinear", "QGemm", "QAttention", "QEmbed",
                                                                    "DynamicQuantize", "ConvInteger", "MatMulInteger"))


def _strip(graph):
    for node in graph.node:
        if _loses(node) or _replaces(node):
            node.ClearField("doc_string")
            node.ClearField("metadata_props")
        for a in node.attribute:
            if a.HasField("g"):
                _strip(a.g)
            for g in a.graphs:
                _strip(g)


def _inner_uses(graph):
    """Names that a subgraph takes from outside."""
    made = {i.name for i in graph.initializer} | {i.name for i in graph.input} | {o for n in graph.node for o in n.output}
    used = {o.name for o in graph.output}
    for n in graph.node:
        used.update(n.input)
        for a in n.attribute:
            for g in ([a.g] if a.HasField("g") else []) + list(a.graphs):
                used |= _inner_uses(g)
    return used - made


def _is_sorted(graph):
    """True if every node comes after what it and its subgraphs read."""
    later = {o for n in graph.node for o in n.output}
    for n in graph.node:
        needs = set(n.input)
        for a in n.attribute:
            for g in ([a.g] if a.HasField("g") else []) + list(a.graphs):
                needs |= _inner_uses(g)
        if needs & later:
            return False
        later -= set(n.output)
    return True


def _short(message):
    text = " ".join(str(message).split())
    return text if len(text) < 300 else text[:300] + "..."


def _lists(kind, ref, got, key):
    """Differences of two ordered lists of named messages."""
    out = []
    rk, gk = [key(x) for x in ref], [key(x) for x in got]
    if rk != gk:
        missing = [k for k in rk if k not in set(gk)]
        extra = [k for k in gk if k not in set(rk)]
        if missing:
            out.append(f"{kind}: missing {missing[:6]} ({len(missing)})")
        if extra:
            out.append(f"{kind}: extra {extra[:6]} ({len(extra)})")
        if not missing and not extra:
            at = next(i for i, (a, b) in enumerate(zip(rk, gk)) if a != b)
            out.append(f"{kind}: another order from {at} on: {rk[at]} vs {gk[at]}")
    by_key = {key(x): x for x in got}
    for x in ref:
        y = by_key.get(key(x))
        if y is not None and x.SerializeToString(deterministic=True) != y.SerializeToString(deterministic=True):
            out.append(f"{kind} {key(x)}: {_short(x)} vs {_short(y)}")
            if len(out) > 8:
                break
    return out


def differences(ref, got):
    """Both are paths of models."""
    r, g = onnx.load(str(ref)), onnx.load(str(got))
    _strip(r.graph)
    _strip(g.graph)
    if r == g:
        return []
    if not _is_sorted(r.graph) and _is_sorted(g.graph):
        place = {tuple(n.output): i for i, n in enumerate(g.graph.node)}
        nodes = sorted(r.graph.node, key=lambda n: place.get(tuple(n.output), len(place)))
        del r.graph.node[:]
        r.graph.node.extend(nodes)
        if r == g:
            return []
    out = _lists("node", r.graph.node, g.graph.node, lambda n: (n.op_type, tuple(n.output)))
    out += _lists("initializer", r.graph.initializer, g.graph.initializer, lambda t: t.name)
    out += _lists("input", r.graph.input, g.graph.input, lambda v: v.name)
    out += _lists("output", r.graph.output, g.graph.output, lambda v: v.name)
    out += _lists("opset", r.opset_import, g.opset_import, lambda o: o.domain)
    out += _lists("metadata", r.metadata_props, g.metadata_props, lambda p: p.key)
    for name in ("ir_version", "producer_name", "producer_version", "domain", "model_version", "doc_string"):
        if getattr(r, name) != getattr(g, name):
            out.append(f"{name}: {getattr(r, name)!r} vs {getattr(g, name)!r}")
    out += _lists("value_info", r.graph.value_info, g.graph.value_info, lambda v: v.name)
    return out or ["the models differ in a field that has no name here"]
