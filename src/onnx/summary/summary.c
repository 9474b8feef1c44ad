/*
 * summary.c — counts a model: operators, tensors, storage. See summary.h; what is quantized is
 * found in summary_quant.c.
 */
#include "onnx/summary/summary.h"
#include "onnx/graph.h"
#include "onnx/summary/summary_parts.h"
#include "onnx/tensor.h"

/* ---- operators ---- */

static int by_count(const void *x, const void *y) {
    const oq_op_count *a = x, *b = y;
    if (a->count != b->count)
        return a->count > b->count ? -1 : 1;
    const int d = oq_str_cmp(a->domain, b->domain);
    return d != 0 ? d : oq_str_cmp(a->op_type, b->op_type);
}

/* Most frequent first, then by name. */
static void op_count_sort(oq_op_counts *v) {
    if (v->n > 1)
        qsort(v->v, v->n, sizeof *v->v, by_count);
}

/* Adds one to an operator's count. */
static onq_code op_count_add(oq_arena *a, oq_op_counts *v, oq_map *map, const oq_node *n,
                             onq_error *err) {
    const oq_str domain = oq_domain_plain(n->domain);
    oq_str key = n->op_type;
    if (domain.n != 0) {
        key = oq_str_cat(a, domain, OQ_S("\n"));
        if (key.p != NULL)
            key = oq_str_cat(a, key, n->op_type);
        OQ_TRY_ALLOC(key.p != NULL, err);
    }
    const uint32_t at = oq_map_find(map, key);
    if (at != OQ_MAP_NONE) {
        v->v[at].count++;
        return ONQ_OK;
    }
    const oq_op_count fresh = {domain, n->op_type, 1};
    OQ_TRY_ALLOC(oq_map_put(map, key, (uint32_t)v->n) && OQ_PUSH(a, v, fresh), err);
    return ONQ_OK;
}

/* ---- tensors and where they lie ---- */

typedef struct tensor_walk {
    oq_summary_walk *w;
    oq_model *model;
} tensor_walk;

static onq_code count_external(tensor_walk *t, const oq_tensor *x, uint64_t bytes, onq_error *err) {
    oq_summary *s = t->w->s;
    const oq_file *file;
    uint64_t offset, length;
    OQ_TRY(oq_model_external(t->model, x, &file, &offset, &length, err));
    oq_str location = {NULL, 0};
    for (size_t i = 0; i < x->external_data.n; i++)
        if (oq_str_is(x->external_data.v[i]->key, "location"))
            location = x->external_data.v[i]->value;
    uint32_t at = oq_map_find(&t->w->files, location);
    if (at == OQ_MAP_NONE) {
        at = (uint32_t)s->files.n;
        const oq_external_sum fresh = {.location = location};
        if (!OQ_PUSH(t->w->arena, &s->files, fresh) || !oq_map_put(&t->w->files, location, at))
            return oq_fail_nomem(err);
    }
    s->files.v[at].tensors++;
    s->files.v[at].bytes += bytes;
    s->external_bytes += bytes;
    return ONQ_OK;
}

static onq_code count_tensor(void *ctx, oq_tensor *x, bool in_attribute OQ_UNUSED, onq_error *err) {
    tensor_walk *t = ctx;
    oq_summary *s = t->w->s;
    uint64_t count, bytes = 0;
    OQ_TRY(oq_tensor_count(x, &count, err));
    if (x->data_type.v == OQ_STRING) {
        for (size_t i = 0; i < x->string_data.n; i++)
            bytes += x->string_data.v[i].n;
    } else if (oq_dtype_find(x->data_type.v) != NULL) {
        OQ_TRY(oq_tensor_bytes(x, &bytes, err));
    } else {
        return oq_fail(err, ONQ_E_INVALID,
                       "tensor '%.*s' has data type %d, which ONNX does not have", OQ_STR(x->name),
                       (int)x->data_type.v);
    }
    oq_tensor_sum *sum = &s->by_type[x->data_type.v];
    sum->tensors++;
    s->total.tensors++;
    /* Sizes are checked one by one, their sum may still be absurd: no overflow, then. */
    if (!oq_add(sum->elements, count, &sum->elements) || !oq_add(sum->bytes, bytes, &sum->bytes) ||
        !oq_add(s->total.elements, count, &s->total.elements) ||
        !oq_add(s->total.bytes, bytes, &s->total.bytes))
        return oq_fail(err, ONQ_E_INVALID, "tensor '%.*s': the tensors pass 2^64 bytes",
                       OQ_STR(x->name));
    if (oq_tensor_is_external(x))
        return count_external(t, x, bytes, err);
    if (x->raw_data.present)
        s->raw_bytes += bytes;
    else
        s->typed_bytes += bytes;
    return ONQ_OK;
}

/* ---- graphs ---- */

static void note(uint64_t *count, oq_str *first, oq_str name) {
    if ((*count)++ == 0)
        *first = name;
}

static void count_values(oq_summary *s, const oq_index *ix) {
    for (size_t i = 0; i < ix->values.n; i++) {
        const oq_value *v = &ix->values.v[i];
        if (v->init != NULL) {
            if (v->uses.n == 0 && !v->is_output)
                note(&s->unused_inits, &s->unused_init, v->name);
            if (v->is_input)
                note(&s->input_inits, &s->input_init, v->name);
        } else if (v->producer != OQ_NO_NODE) {
            s->values++;
            if (v->info != NULL && v->info->type != NULL)
                s->values_typed++;
        }
    }
}

static void count_node_oddities(oq_summary *s, const oq_index *ix, const oq_node *n) {
    bool used = n->output.n == 0;
    for (size_t i = 0; i < n->output.n && !used; i++) {
        const oq_value *v = oq_index_find(ix, n->output.v[i]);
        used = v != NULL && n->output.v[i].n != 0 && (v->uses.n != 0 || v->is_output);
    }
    if (!used)
        note(&s->dead_nodes, &s->dead_node, oq_node_label(n));
    if (oq_str_is(n->op_type, "BatchNormalization") && n->input.n > 0) {
        const oq_node *p = oq_index_producer(ix, n->input.v[0]);
        if (p != NULL && oq_str_is(p->op_type, "Conv"))
            s->conv_batchnorm++;
    }
}

static onq_code count_graph(oq_summary_walk *w, oq_graph *g, const oq_index *parent, int depth,
                            onq_error *err) {
    if (depth > OQ_MAX_GRAPH_DEPTH)
        return oq_fail(err, ONQ_E_LIMIT, "graphs are nested more than %d deep", OQ_MAX_GRAPH_DEPTH);
    oq_index ix;
    OQ_TRY(oq_index_build(&ix, w->arena, g, parent, err));
    w->s->graphs++;
    count_values(w->s, &ix);
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        w->s->nodes++;
        OQ_TRY(op_count_add(w->arena, &w->s->ops, &w->ops, n, err));
        count_node_oddities(w->s, &ix, n);
        OQ_TRY(oq_summary_quant_node(w, &ix, n, err));
        oq_graph_cursor at = {0};
        for (oq_graph *sub; (sub = oq_node_next_graph(n, &at)) != NULL;)
            OQ_TRY(count_graph(w, sub, &ix, depth + 1, err));
    }
    return ONQ_OK;
}

/* A function's body as a graph of its nodes: it has no initializers. */
static onq_code count_function(oq_summary_walk *w, const oq_function *f, onq_error *err) {
    oq_graph body = {0};
    body.node.v = f->node.v;
    body.node.n = f->node.n;
    oq_index ix;
    OQ_TRY(oq_index_build(&ix, w->arena, &body, NULL, err));
    w->s->graphs++;
    for (size_t i = 0; i < f->node.n; i++) {
        w->s->nodes++;
        OQ_TRY(op_count_add(w->arena, &w->s->ops, &w->ops, f->node.v[i], err));
        OQ_TRY(oq_summary_quant_node(w, &ix, f->node.v[i], err));
        oq_graph_cursor at = {0};
        for (oq_graph *sub; (sub = oq_node_next_graph(f->node.v[i], &at)) != NULL;)
            OQ_TRY(count_graph(w, sub, &ix, 1, err));
    }
    return ONQ_OK;
}

bool oq_summary_uses(const oq_summary *s, oq_str domain) {
    const bool is_onnx = oq_domain_is_onnx(domain);
    for (size_t i = 0; i < s->ops.n; i++)
        if (is_onnx ? s->ops.v[i].domain.n == 0 : oq_str_eq(s->ops.v[i].domain, domain))
            return true;
    return false;
}

onq_code oq_summary_make(oq_summary *s, oq_arena *a, oq_model *m, const oq_modes *modes,
                         onq_error *err) {
    memset(s, 0, sizeof *s);
    oq_summary_walk w = {.s = s, .modes = modes, .arena = a};
    oq_map_init(&w.ops, a);
    oq_map_init(&w.files, a);
    oq_map_init(&w.read, a);
    for (size_t i = 0; i < OQ_MODE_COUNT; i++)
        oq_map_init(&w.counted[i], a);
    tensor_walk t = {&w, m};
    OQ_TRY(oq_walk_tensors(m, count_tensor, &t, err));
    if (m->proto->graph != NULL)
        OQ_TRY(count_graph(&w, m->proto->graph, NULL, 1, err));
    for (size_t i = 0; i < m->proto->functions.n; i++)
        OQ_TRY(count_function(&w, m->proto->functions.v[i], err));
    op_count_sort(&s->ops);
    for (size_t i = 0; i < OQ_MODE_COUNT; i++)
        op_count_sort(&s->can[i].ops);
    return ONQ_OK;
}

/* ---- types as text ---- */

static void dims_text(oq_buf *b, const oq_shape *shape) {
    if (shape == NULL)
        return;
    oq_buf_addc(b, '[');
    for (size_t i = 0; i < shape->dim.n; i++) {
        const oq_dim *d = shape->dim.v[i];
        oq_buf_adds(b, i > 0 ? ", " : "");
        if (d->dim_value.has)
            oq_buf_addf(b, "%lld", (long long)d->dim_value.v);
        else if (d->dim_param.n != 0)
            oq_buf_add_safe(b, d->dim_param);
        else
            oq_buf_addc(b, '?');
    }
    oq_buf_addc(b, ']');
}

void oq_type_text(oq_buf *b, const oq_type *t) {
    /* Types nest; each level closes one parenthesis after the innermost. The decoder bounds the
     * depth. */
    size_t open = 0;
    for (; t != NULL; open++) {
        if (t->tensor_type != NULL || t->sparse_tensor_type != NULL) {
            const oq_tensor_type *x =
                t->tensor_type != NULL ? t->tensor_type : t->sparse_tensor_type;
            oq_buf_addf(b, "%s%s", t->tensor_type != NULL ? "" : "sparse ",
                        oq_dtype_name(x->elem_type.v));
            dims_text(b, x->shape);
            break;
        }
        if (t->sequence_type != NULL || t->optional_type != NULL) {
            oq_buf_adds(b, t->sequence_type != NULL ? "sequence(" : "optional(");
            t = (t->sequence_type != NULL ? t->sequence_type : t->optional_type)->elem_type;
        } else if (t->map_type != NULL) {
            oq_buf_addf(b, "map(%s, ", oq_dtype_name(t->map_type->key_type.v));
            t = t->map_type->value_type;
        } else {
            oq_buf_adds(b, t->opaque_type != NULL ? "opaque" : "?");
            break;
        }
    }
    if (t == NULL)
        oq_buf_addc(b, '?');
    for (; open > 0; open--)
        oq_buf_addc(b, ')');
}
