/*
 * product_forms.c — see product_forms.h.
 */
#include "quantize/ort/product_forms.h"

#include "onnx/edit.h"
#include "onnx/operators.h"

#define MAX_SLICES 64

typedef struct forms {
    oq_product_forms *p;
    oq_arena *arena;
    oq_index ix;
    oq_map residuals; /* output of a QuantizeLinear -> index in names */
    oq_strs names;    /* the quantized residual */
} forms;

/* How an input came from x: Pad, Reshape, Slices and Concat, each of which may be absent. */
typedef struct moving {
    oq_node *pad, *reshape, *slices[MAX_SLICES], *concat;
    size_t n_slices;
    oq_str x; /* what is moved */
} moving;

/* Halves of a pair with a zero point. */
static bool is_full_q(const oq_node *n) {
    return oq_node_is_quantize(n) && n->input.n == 3;
}
static bool is_full_dq(const oq_node *n) {
    return oq_node_is_dequantize(n) && n->input.n == 3;
}

/* The node that makes `name`, when `readers` uses are all that the tensor has. */
static oq_node *maker(const forms *f, oq_str name, size_t readers) {
    const oq_value *v = oq_index_find(&f->ix, name);
    return v != NULL && !v->is_output && v->uses.n == readers ? oq_value_node(&f->ix, v) : NULL;
}

/* ---- float readers ---- */

/* What a pair was put after, where a float node made it or it is an input; empty: neither. */
static oq_str before_pair(const forms *f, oq_str name) {
    const oq_node *dq = oq_index_producer(&f->ix, name);
    const oq_node *q = is_full_dq(dq) ? oq_index_producer(&f->ix, dq->input.v[0]) : NULL;
    /* A pair that was there before is part of what the model computes. */
    if (!is_full_q(q) || oq_map_has(f->p->made, q->output.v[0]))
        return (oq_str){0};
    const oq_value *x = oq_index_find(&f->ix, q->input.v[0]);
    const oq_node *n = oq_value_node(&f->ix, x);
    const bool is_float = n != NULL ? oq_map_has(f->p->made, n->output.v[0])
                                    : x != NULL && x->is_input && x->init == NULL;
    return is_float ? q->input.v[0] : (oq_str){0};
}

static onq_code read_floats(forms *f, onq_error *err) {
    oq_graph *g = f->p->m->proto->graph;
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        if (n->output.n == 0 || !oq_map_has(f->p->read, n->output.v[0]))
            continue;
        for (size_t k = 0; k < n->input.n; k++) {
            const oq_str x = n->input.v[k].n > 0 ? before_pair(f, n->input.v[k]) : (oq_str){0};
            if (x.n > 0)
                n->input.v[k] = x;
        }
    }
    return oq_index_build(&f->ix, f->arena, g, NULL, err);
}

/* ---- needless Clip ---- */

/* One number, in double. */
static bool number(const forms *f, oq_str name, double *out) {
    oq_tensor *t = name.n > 0 ? oq_index_init(&f->ix, name) : NULL;
    oq_span data;
    uint64_t n = 0;
    if (t == NULL || oq_dtype_find(t->data_type.v) == NULL || t->data_type.v == OQ_STRING ||
        oq_tensor_count(t, &n, NULL) != ONQ_OK || n != 1 ||
        oq_model_data(f->p->m, t, &data, NULL) != ONQ_OK)
        return false;
    *out = oq_raw_get_real((oq_dtype)t->data_type.v, data.p, 0);
    return true;
}

static bool is_needless(const forms *f, const oq_node *clip, const oq_node *q) {
    double low, high, scale, zero;
    const oq_tensor *z = oq_index_init(&f->ix, q->input.v[2]);
    if (clip->input.n != 3 || z == NULL ||
        (z->data_type.v != OQ_UINT8 && z->data_type.v != OQ_INT8) ||
        !number(f, clip->input.v[1], &low) || !number(f, clip->input.v[2], &high) ||
        !number(f, q->input.v[1], &scale) || !number(f, q->input.v[2], &zero))
        return false;
    const double least = z->data_type.v == OQ_UINT8 ? 0 : -128;
    return fabs(low - (least - zero) * scale) < scale &&
           fabs(high - (least + 255 - zero) * scale) < scale;
}

static onq_code drop_clips(forms *f, onq_error *err) {
    oq_graph *g = f->p->m->proto->graph;
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *q = g->node.v[i];
        const oq_node *clip = is_full_q(q) ? maker(f, q->input.v[0], 1) : NULL;
        if (oq_node_is(clip, "Clip") && is_needless(f, clip, q))
            q->input.v[0] = clip->input.v[0];
    }
    return oq_index_build(&f->ix, f->arena, g, NULL, err);
}

/* ---- early pairs ---- */

static bool is_plain_pad(const oq_node *n) {
    return oq_node_is(n, "Pad") && n->input.n == 2 &&
           oq_str_is(oq_attr_str(n, "mode", "constant"), "constant");
}

/* Reads the chain upwards from the input of a QuantizeLinear; false when there is none. */
static bool find_moving(const forms *f, oq_str name, size_t readers, moving *m) {
    oq_str at = name;
    *m = (moving){0};
    oq_node *n = maker(f, at, readers);
    if (oq_node_is(n, "Concat") && n->input.n <= MAX_SLICES) {
        m->concat = n;
        for (size_t i = 0; i < n->input.n; i++) {
            oq_node *slice = maker(f, n->input.v[i], 1);
            if (!oq_node_is(slice, "Slice") ||
                !oq_str_eq(slice->input.v[0], m->n_slices == 0 ? slice->input.v[0] : at))
                return false;
            at = slice->input.v[0];
            m->slices[m->n_slices++] = slice;
        }
        n = maker(f, at, m->n_slices);
    }
    if (m->concat == NULL)
        return false;
    if (oq_node_is(n, "Reshape") && n->input.n == 2) {
        m->reshape = n;
        at = n->input.v[0];
        n = maker(f, at, 1);
    }
    if (is_plain_pad(n)) {
        m->pad = n;
        at = n->input.v[0];
    }
    m->x = at;
    return true;
}

/* What is known of a tensor's type is not true of it any more. */
static void forget_type(forms *f, oq_str name) {
    oq_graph *g = f->p->m->proto->graph;
    size_t kept = 0;
    for (size_t i = 0; i < g->value_info.n; i++)
        if (!oq_str_eq(g->value_info.v[i]->name, name))
            g->value_info.v[kept++] = g->value_info.v[i];
    g->value_info.n = kept;
}

/* x -> Q -> Pad, Slice, Concat -> DQ instead of x -> Pad, Slice, Concat -> Q -> DQ. */
static onq_code quantize_early(forms *f, oq_node *q, const moving *m, onq_error *err) {
    oq_arena *a = &f->p->m->arena;
    const oq_str last = m->concat->output.v[0], out = q->output.v[0];
    const oq_str early = oq_fresh_tensor(f->p->names, m->x, "_QuantizeLinear_Early");
    oq_node *first = m->pad != NULL ? m->pad : m->reshape;
    OQ_TRY_ALLOC(early.p != NULL, err);
    q->input.v[0] = m->x;
    q->output.v[0] = early;
    if (first != NULL)
        first->input.v[0] = early;
    for (size_t i = 0; i < m->n_slices; i++) {
        if (first == NULL)
            m->slices[i]->input.v[0] = early;
        forget_type(f, m->slices[i]->output.v[0]);
    }
    if (m->pad != NULL && !oq_node_add_input(a, m->pad, q->input.v[2]))
        return oq_fail_nomem(err);
    if (m->pad != NULL)
        forget_type(f, m->pad->output.v[0]);
    if (m->reshape != NULL)
        forget_type(f, m->reshape->output.v[0]);
    forget_type(f, last);
    m->concat->output.v[0] = out;
    return ONQ_OK;
}

static onq_code quantize_all_early(forms *f, onq_error *err) {
    oq_graph *g = f->p->m->proto->graph;
    for (size_t i = 0; i < g->node.n; i++) {
        moving m;
        oq_node *q = g->node.v[i];
        if (is_full_q(q) && find_moving(f, q->input.v[0], 1, &m) &&
            oq_index_init(&f->ix, q->input.v[2]) != NULL)
            OQ_TRY(quantize_early(f, q, &m, err));
    }
    return oq_index_build(&f->ix, f->arena, g, NULL, err);
}

/* ---- double activations ---- */

static oq_node *add_node(forms *f, const oq_node *like, const char *suffix, oq_str out) {
    oq_arena *a = &f->p->m->arena;
    oq_node *n = oq_node_make(a, "", (oq_str){0}, like->input.v, like->input.n, &out, 1);
    const oq_str name = oq_fresh_node(f->p->names, oq_node_label(like), suffix);
    if (n == NULL || name.p == NULL || out.p == NULL)
        return NULL;
    n->op_type = like->op_type;
    n->domain = like->domain;
    n->name = name;
    n->attribute = like->attribute; /* shared: neither is changed */
    return oq_graph_add_node(a, f->p->m->proto->graph, n) ? n : NULL;
}

/* A node of its own that does what `like` does. */
static onq_code copy_node(forms *f, const oq_node *like, oq_node **out, onq_error *err) {
    *out = add_node(f, like, "_Residual",
                    oq_fresh_tensor(f->p->names, like->output.v[0], "_Residual"));
    return *out != NULL ? ONQ_OK : oq_fail_nomem(err);
}

/* The scale and zero point of the residual. */
static onq_code add_params(forms *f, const oq_node *q, oq_str *scale, oq_str *zero,
                           onq_error *err) {
    oq_model *m = f->p->m;
    oq_tensor *s = oq_index_init(&f->ix, q->input.v[1]), *z = oq_index_init(&f->ix, q->input.v[2]);
    float *v = NULL;
    size_t n = 0;
    OQ_TRY(oq_tensor_floats(m, s, f->arena, &v, &n, err));
    const float step = v[0] / 254.0f;
    const uint8_t middle = z->data_type.v == OQ_UINT8 ? 128 : 0;
    *scale = oq_fresh_tensor(f->p->names, q->input.v[1], "_Residual");
    *zero = oq_fresh_tensor(f->p->names, q->input.v[2], "_Residual");
    oq_tensor *ts = scale->p != NULL ? oq_tensor_new(&m->arena, *scale, OQ_FLOAT, NULL, 0) : NULL;
    oq_tensor *tz =
        zero->p != NULL ? oq_tensor_new(&m->arena, *zero, (oq_dtype)z->data_type.v, NULL, 0) : NULL;
    if (ts == NULL || tz == NULL || !oq_graph_add_init(&m->arena, m->proto->graph, ts) ||
        !oq_graph_add_init(&m->arena, m->proto->graph, tz))
        return oq_fail_nomem(err);
    OQ_TRY(oq_tensor_set_raw(&m->arena, ts, &step, sizeof step, err));
    return oq_tensor_set_raw(&m->arena, tz, &middle, sizeof middle, err);
}

/* q2 of the header, from the QuantizeLinear and one of its DequantizeLinear. */
static onq_code add_residual(forms *f, const oq_node *q, const oq_node *dq, oq_str *out,
                             oq_str params[2], onq_error *err) {
    oq_arena *a = &f->p->m->arena;
    oq_node *back, *second;
    OQ_TRY(add_params(f, q, &params[0], &params[1], err));
    OQ_TRY(copy_node(f, dq, &back, err));
    back->input.v[0] = q->output.v[0];
    const oq_str lost = oq_fresh_tensor(f->p->names, q->input.v[0], "_Lost");
    const oq_str name = oq_fresh_node(f->p->names, q->input.v[0], "_Lost");
    const oq_str in[2] = {back->output.v[0], q->input.v[0]};
    oq_node *sub =
        lost.p != NULL && name.p != NULL ? oq_node_make(a, "Sub", name, in, 2, &lost, 1) : NULL;
    OQ_TRY_ALLOC(sub != NULL && oq_graph_add_node(a, f->p->m->proto->graph, sub), err);
    OQ_TRY(copy_node(f, q, &second, err));
    second->input.v[0] = lost;
    second->input.v[1] = params[0];
    second->input.v[2] = params[1];
    *out = second->output.v[0];
    return ONQ_OK;
}

/* The moving of bytes once more, for the residual. */
static onq_code copy_moving(forms *f, const moving *m, oq_str x, oq_str zero, oq_str *out,
                            onq_error *err) {
    oq_node *n;
    if (m->pad != NULL) {
        OQ_TRY(copy_node(f, m->pad, &n, err));
        n->input.v[0] = x;
        n->input.v[2] = zero;
        x = n->output.v[0];
    }
    if (m->reshape != NULL) {
        OQ_TRY(copy_node(f, m->reshape, &n, err));
        n->input.v[0] = x;
        x = n->output.v[0];
    }
    oq_node *concat;
    OQ_TRY(copy_node(f, m->concat, &concat, err));
    for (size_t i = 0; i < m->n_slices; i++) {
        OQ_TRY(copy_node(f, m->slices[i], &n, err));
        n->input.v[0] = x;
        concat->input.v[i] = n->output.v[0];
    }
    *out = concat->output.v[0];
    return ONQ_OK;
}

/* What is quantized before a MatMul: by q, and moved if there is anything between. */
typedef struct source {
    const oq_node *q, *dq;
    moving m;
    bool moved;
} source;

/* Pads of bytes have a third input. */
static bool find_moved(const forms *f, oq_str name, moving *m) {
    oq_node *concat = oq_index_producer(&f->ix, name);
    *m = (moving){.concat = concat};
    if (!oq_node_is(concat, "Concat") || concat->input.n > MAX_SLICES)
        return false;
    for (size_t i = 0; i < concat->input.n; i++) {
        m->slices[m->n_slices] = oq_index_producer(&f->ix, concat->input.v[i]);
        if (!oq_node_is(m->slices[m->n_slices++], "Slice"))
            return false;
    }
    assert(m->n_slices > 0); /* a Concat of nothing is refused before */
    m->x = m->slices[0]->input.v[0];
    oq_node *n = oq_index_producer(&f->ix, m->x);
    if (oq_node_is(n, "Reshape")) {
        m->reshape = n;
        m->x = n->input.v[0];
        n = oq_index_producer(&f->ix, m->x);
    }
    if (oq_node_is(n, "Pad") && n->input.n == 3) {
        m->pad = n;
        m->x = n->input.v[0];
    }
    return true;
}

static bool is_one(const forms *f, oq_str name, bool zero) {
    const oq_tensor *t = oq_index_init(&f->ix, name);
    uint64_t n = 0;
    return t != NULL && oq_tensor_count(t, &n, NULL) == ONQ_OK && n == 1 &&
           (zero ? t->data_type.v == OQ_UINT8 || t->data_type.v == OQ_INT8
                 : t->data_type.v == OQ_FLOAT);
}

static bool find_source(const forms *f, const oq_node *n, source *s) {
    s->dq = oq_index_producer(&f->ix, n->input.v[0]);
    if (!is_full_dq(s->dq))
        return false;
    s->q = oq_index_producer(&f->ix, s->dq->input.v[0]);
    s->moved = find_moved(f, s->dq->input.v[0], &s->m);
    if (s->moved)
        s->q = oq_index_producer(&f->ix, s->m.x);
    return is_full_q(s->q) && is_one(f, s->q->input.v[1], false) &&
           is_one(f, s->q->input.v[2], true);
}

/* The quantized residual that products of one input share. */
static onq_code find_residual(forms *f, const source *s, oq_str out[3], onq_error *err) {
    const oq_str key = s->dq->input.v[0];
    const uint32_t at = oq_map_find(&f->residuals, key);
    if (at != OQ_MAP_NONE) {
        memcpy(out, &f->names.v[at], 3 * sizeof *out);
        return ONQ_OK;
    }
    OQ_TRY(add_residual(f, s->q, s->dq, &out[0], &out[1], err));
    if (s->moved)
        OQ_TRY(copy_moving(f, &s->m, out[0], out[2], &out[0], err));
    OQ_TRY_ALLOC(oq_map_put(&f->residuals, key, (uint32_t)f->names.n), err);
    for (size_t i = 0; i < 3; i++)
        OQ_TRY_ALLOC(OQ_PUSH(f->arena, &f->names, out[i]), err);
    return ONQ_OK;
}

static onq_code double_product(forms *f, oq_node *n, onq_error *err) {
    oq_arena *a = &f->p->m->arena;
    const oq_node *w = n->input.n == 2 ? oq_index_producer(&f->ix, n->input.v[1]) : NULL;
    source s;
    oq_str residual[3]; /* values, scale, zero point */
    oq_node *own, *low, *low_w, *product;
    if (!oq_node_is(n, "MatMul") || !is_full_dq(w) || !find_source(f, n, &s))
        return ONQ_OK;
    OQ_TRY(find_residual(f, &s, residual, err));
    OQ_TRY(copy_node(f, s.dq, &own, err));
    OQ_TRY(copy_node(f, s.dq, &low, err));
    OQ_TRY(copy_node(f, w, &low_w, err));
    OQ_TRY(copy_node(f, n, &product, err));
    for (size_t i = 0; i < 3; i++)
        low->input.v[i] = residual[i];
    product->input.v[0] = low->output.v[0];
    product->input.v[1] = low_w->output.v[0];
    const oq_str y = n->output.v[0], high = oq_fresh_tensor(f->p->names, y, "_Coarse");
    const oq_str name = oq_fresh_node(f->p->names, oq_node_label(n), "_Both");
    const oq_str in[2] = {high, product->output.v[0]};
    oq_node *sub =
        high.p != NULL && name.p != NULL ? oq_node_make(a, "Sub", name, in, 2, &y, 1) : NULL;
    OQ_TRY_ALLOC(sub != NULL && oq_graph_add_node(a, f->p->m->proto->graph, sub), err);
    n->input.v[0] = own->output.v[0];
    n->output.v[0] = high;
    f->p->n_doubled++;
    return ONQ_OK;
}

static onq_code double_all(forms *f, onq_error *err) {
    oq_graph *g = f->p->m->proto->graph;
    const size_t n_nodes = g->node.n;
    for (size_t i = 0; i < n_nodes; i++) {
        oq_node *n = g->node.v[i];
        if (n->output.n == 1 && oq_map_has(f->p->doubled, n->output.v[0]))
            OQ_TRY(double_product(f, n, err));
    }
    return ONQ_OK;
}

onq_code oq_product_forms_apply(oq_product_forms *p, onq_error *err) {
    oq_arena scratch;
    forms f = {.p = p, .arena = &scratch};
    oq_arena_init(&scratch, &p->m->env->alloc);
    oq_map_init(&f.residuals, &scratch);
    onq_code rc = oq_index_build(&f.ix, &scratch, p->m->proto->graph, NULL, err);
    if (rc == ONQ_OK)
        rc = read_floats(&f, err);
    if (rc == ONQ_OK)
        rc = drop_clips(&f, err);
    if (rc == ONQ_OK)
        rc = quantize_all_early(&f, err);
    if (rc == ONQ_OK && p->doubled->count > 0)
        rc = double_all(&f, err);
    /* A DequantizeLinear that nothing reads any more. */
    if (rc == ONQ_OK)
        rc = oq_graph_prune(p->m, p->m->proto->graph, err);
    oq_arena_release(&scratch);
    return rc;
}
