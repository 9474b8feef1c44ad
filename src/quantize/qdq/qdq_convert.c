/*
 * qdq_convert.c — a tensor with two quantized types (mixed precision): its maker writes the first,
 * some or all of its readers get the second.
 *
 *   all readers         T -> Q1 -> DQ1 -> Q2 -> DQ2 -> readers
 *   some readers        T -> Q1 -> DQ1 -> readers of the first type
 *                             \--> DQ1' -> Q2 -> DQ2 -> readers of the second
 *
 * An output of the graph keeps its name: on DQ2 in the first case, on DQ1 in the second.
 */
#include "quantize/qdq/qdq_emit.h"

/* Names of nodes; the same name counts once. */
typedef struct nameset {
    oq_map map;
    size_t n;
} nameset;

static bool add(nameset *s, oq_str name) {
    if (oq_map_has(&s->map, name))
        return true;
    s->n++;
    return oq_map_put(&s->map, name, 0);
}

/* Readers by node name: some read the first type, some the second. */
typedef struct readers {
    nameset all, second;
    size_t n_first; /* of all, how many are not in second */
} readers;

static onq_code find_readers(oq_qdq *q, oq_qdq_tensor *t, const oq_override *convert, readers *r,
                             onq_error *err) {
    bool ok = true;
    oq_map_init(&r->all.map, q->arena);
    oq_map_init(&r->second.map, q->arena);
    r->all.n = r->second.n = r->n_first = 0;
    for (size_t i = 0; i < t->receivers.n; i++)
        ok &= add(&r->all, oq_qdq_node_at(q, t->receivers.v[i])->name);
    if (convert->has_recv)
        for (size_t i = 0; i < convert->recv_nodes.n; i++)
            ok &= add(&r->second, convert->recv_nodes.v[i]);
    else
        for (size_t i = 0; i < t->receivers.n; i++)
            ok &= add(&r->second, oq_qdq_node_at(q, t->receivers.v[i])->name);
    for (size_t i = 0; i < t->receivers.n; i++)
        if (!oq_map_has(&r->second.map, oq_qdq_node_at(q, t->receivers.v[i])->name))
            r->n_first++;
    return ok ? ONQ_OK : oq_fail_nomem(err);
}

/* Nodes whose name is (or is not) in the set of the second type read `name` instead. */
static void rewire(oq_qdq *q, const oq_qdq_tensor *t, const readers *r, bool second, oq_str name) {
    for (size_t i = 0; i < t->uses.n; i++) {
        oq_node *n = q->nodes[t->uses.v[i].node].node;
        const bool in_second = oq_map_has(&r->second.map, n->name);
        if (second ? in_second : oq_map_has(&r->all.map, n->name) && !in_second)
            n->input.v[t->uses.v[i].slot] = name;
    }
}

static oq_str tensor_name(oq_qdq *q, oq_str base, const char *suffix) {
    return oq_fresh_tensor(q->names, base, suffix);
}

/* Q1 and DQ1; *q_out is what Q1 makes, *dq_out what DQ1 makes. */
static onq_code emit_first(oq_qdq *q, oq_qdq_tensor *t, const readers *r, bool all, oq_str *q_out,
                           oq_str *dq_out, onq_error *err) {
    const bool is_output = oq_qdq_is_made_output(t);
    oq_qdq_op op = {.quantize = true, .in = t->name, .value = t->value, .axis = -1};
    if (is_output) {
        op.in = tensor_name(q, t->name, "_QuantizeLinear_Input");
        oq_qdq_replace_outputs(q, t, op.in);
    }
    op.out = *q_out = tensor_name(q, t->name, "_QuantizeLinear_Output");
    op.name = oq_fresh_node(q->names, t->name, "_QuantizeLinear");
    OQ_TRY(oq_qdq_add_node(q, &op, err));

    *dq_out = is_output && !all ? t->name : tensor_name(q, t->name, "_DequantizeLinear_Output");
    if (r->n_first > 0 && !(is_output && !all))
        rewire(q, t, r, false, *dq_out);
    op = (oq_qdq_op){.in = *q_out, .out = *dq_out, .value = t->value, .axis = -1};
    op.name = oq_fresh_node(q->names, t->name, "_DequantizeLinear");
    return oq_qdq_add_node(q, &op, err);
}

/* Q2 and DQ2, reading `in`. */
static onq_code emit_second(oq_qdq *q, oq_qdq_tensor *t, const readers *r, bool all, oq_str in,
                            onq_error *err) {
    const oq_str stem = oq_str_cat(q->arena, t->name, OQ_S("_convert"));
    OQ_TRY_ALLOC(stem.p != NULL, err);
    oq_qdq_op op = {.quantize = true, .in = in, .value = t->converted, .axis = -1};
    op.out = tensor_name(q, stem, "_QuantizeLinear_Output");
    op.name = oq_fresh_node(q->names, stem, "_QuantizeLinear");
    OQ_TRY(oq_qdq_add_node(q, &op, err));

    const bool keeps_name = oq_qdq_is_made_output(t) && all;
    const oq_str out = keeps_name ? t->name : tensor_name(q, stem, "_DequantizeLinear_Output");
    if (r->second.n > 0 && !keeps_name)
        rewire(q, t, r, true, out);
    op = (oq_qdq_op){.in = op.out, .out = out, .value = t->converted, .axis = -1};
    op.name = oq_fresh_node(q->names, stem, "_DequantizeLinear");
    return oq_qdq_add_node(q, &op, err);
}

onq_code oq_qdq_emit_converted(oq_qdq *q, oq_qdq_tensor *t, const oq_override *convert,
                               onq_error *err) {
    readers r;
    oq_str first_q, first_dq;
    if (q->config->dedicated_qdq_pair && t->receivers.n > 1)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "tensor '%.*s': 'convert' does not go with dedicated QDQ pairs",
                       OQ_STR(t->name));
    OQ_TRY(find_readers(q, t, convert, &r, err));
    const bool all = r.second.n == r.all.n;
    OQ_TRY(emit_first(q, t, &r, all, &first_q, &first_dq, err));
    oq_str second_in = first_dq;
    if (!all) {
        const oq_str stem = oq_str_cat(q->arena, t->name, OQ_S("_convert"));
        const oq_str clone = oq_str_cat(q->arena, t->name, OQ_S("_convert_clone"));
        OQ_TRY_ALLOC(stem.p != NULL && clone.p != NULL, err);
        oq_qdq_op op = {.in = first_q, .value = t->value, .axis = -1};
        op.out = second_in = tensor_name(q, stem, "_QuantizeLinear_Input");
        op.name = oq_fresh_node(q->names, clone, "_DequantizeLinear");
        OQ_TRY(oq_qdq_add_node(q, &op, err));
    }
    return emit_second(q, t, &r, all, second_in, err);
}
