/*
 * channels_fold.c — a factor for each channel of a tensor, put into constants upstream: of Mul, Div
 * and Add, the rows of Conv, the columns of Gemm and MatMul, normalizations. Operators that a
 * positive factor passes through are passed.
 *
 * A first walk only looks; when it gets to an end the second one changes.
 */
#include "prepare/channels/channels_parts.h"

#define DEPTH 8

/* f(k x) = k f(x) for k > 0, channel by channel. */
static bool passes(const oq_node *n, bool is_image) {
    const oq_scaling scaling = oq_op_traits_of(n->op_type)->scaling;
    return n->output.n == 1 && oq_domain_is_onnx(n->domain) &&
           (scaling == OQ_SCALES || (is_image && scaling == OQ_SCALES_CHANNELS));
}

oq_tensor *oq_channel_weight(const oq_channel_state *s, const oq_node *n) {
    return oq_index_init(&s->ix, n->input.v[1]);
}

/* ---- constants ---- */

/* One number, or one for each channel, in the shape that it is broadcast from. */
static bool fits(const oq_tensor *t, const oq_channel_factor *f) {
    const size_t axis = f->is_image ? 1 : f->rank - 1;
    if (t == NULL || t->data_type.v != OQ_FLOAT || t->dims.n > OQ_CHANNEL_AXES ||
        (f->is_image && t->dims.n > f->rank))
        return false;
    for (size_t k = 0; k < t->dims.n; k++) {
        const bool is_channel = f->is_image ? f->rank - t->dims.n + k == axis : k + 1 == t->dims.n;
        if (t->dims.v[k] != 1 && !(is_channel && (uint64_t)t->dims.v[k] == f->n))
            return false;
    }
    return true;
}

/* The shape of a constant with a number for each channel: as many axes as it had, or as are
 * needed. */
static size_t shape_of(const oq_tensor *t, const oq_channel_factor *f,
                       int64_t dims[OQ_CHANNEL_AXES]) {
    const size_t least = f->is_image ? f->rank - 1 : 1;
    const size_t rank = t->dims.n > least ? t->dims.n : least;
    for (size_t k = 0; k < rank; k++)
        dims[k] = 1;
    dims[f->is_image ? rank - least : rank - 1] = (int64_t)f->n;
    return rank;
}

/* The constant times the factors; `inverse`: divided by them. */
static onq_code scale_constant(oq_channel_state *s, oq_node *n, size_t slot,
                               const oq_channel_factor *f, bool inverse, onq_error *err) {
    oq_tensor *t = oq_index_init(&s->ix, n->input.v[slot]);
    int64_t dims[OQ_CHANNEL_AXES];
    float *v = NULL, *out = OQ_NEW_ARRAY(&s->once, float, f->n + 1);
    size_t count = 0;
    oq_str name;
    OQ_TRY_ALLOC(out != NULL, err);
    OQ_TRY(oq_channel_values(s, t, &v, &count, err));
    for (uint64_t c = 0; c < f->n; c++) {
        const double old = (double)v[count == 1 ? 0 : c];
        out[c] = (float)(inverse ? old / (double)f->v[c] : old * (double)f->v[c]);
    }
    OQ_TRY(
        oq_channel_constant(s, t->name, "_channels", out, dims, shape_of(t, f, dims), &name, err));
    n->input.v[slot] = name;
    return ONQ_OK;
}

static oq_tensor *vector(const oq_channel_state *s, const oq_node *n, size_t slot, uint64_t count) {
    oq_tensor *t = oq_index_init(&s->ix, oq_node_input(n, slot));
    return t != NULL && t->data_type.v == OQ_FLOAT && t->dims.n == 1 &&
                   (uint64_t)t->dims.v[0] == count
               ? t
               : NULL;
}

static onq_code scale_vector(oq_channel_state *s, oq_node *n, size_t slot, const float *factor,
                             onq_error *err) {
    oq_tensor *t = oq_index_init(&s->ix, n->input.v[slot]);
    float *v = NULL;
    size_t count = 0;
    oq_str name;
    OQ_TRY(oq_channel_values(s, t, &v, &count, err));
    for (size_t c = 0; c < count; c++)
        v[c] *= factor[c];
    OQ_TRY(oq_channel_constant(s, t->name, "_channels", v, t->dims.v, 1, &name, err));
    n->input.v[slot] = name;
    return ONQ_OK;
}

/* ---- products ---- */

/* The axis of the weight that counts outputs. */
static size_t row_axis(const oq_node *n) {
    return oq_node_is(n, "Conv") || oq_gemm_turns_b(n) ? 0 : 1;
}

onq_code oq_channel_scale_rows(oq_channel_state *s, oq_node *n, const float *factor,
                               onq_error *err) {
    oq_tensor *w = oq_channel_weight(s, n);
    float *v = NULL;
    size_t count = 0, inner = 1;
    oq_str name;
    OQ_TRY(oq_channel_values(s, w, &v, &count, err));
    for (size_t k = row_axis(n) + 1; k < w->dims.n; k++)
        inner *= (size_t)w->dims.v[k];
    const size_t rows = (size_t)w->dims.v[row_axis(n)];
    for (size_t i = 0; i < count; i++)
        v[i] *= factor[i / inner % rows];
    OQ_TRY(oq_channel_constant(s, w->name, "_channels", v, w->dims.v, w->dims.n, &name, err));
    n->input.v[1] = name;
    return n->input.n > 2 && n->input.v[2].n > 0 ? scale_vector(s, n, 2, factor, err) : ONQ_OK;
}

bool oq_channel_has_rows(const oq_channel_state *s, const oq_node *n, uint64_t count) {
    const bool conv = oq_node_is(n, "Conv");
    if (n->input.n < 2 || !(conv || oq_node_is(n, "Gemm") || oq_node_is(n, "MatMul")))
        return false;
    const oq_tensor *w = oq_index_init(&s->ix, n->input.v[1]);
    return w != NULL && w->data_type.v == OQ_FLOAT && (conv ? w->dims.n >= 3 : w->dims.n == 2) &&
           (uint64_t)w->dims.v[row_axis(n)] == count &&
           (n->input.n < 3 || n->input.v[2].n == 0 || vector(s, n, 2, count) != NULL);
}

/* ---- the walk ---- */

/* The slot of the constant of a Mul, Div, Add or Sub; -1: there is none that fits. */
static int constant_slot(const oq_channel_state *s, const oq_node *n, const oq_channel_factor *f) {
    const bool second = oq_node_is(n, "Div") || oq_node_is(n, "Sub");
    for (int slot = second ? 1 : 0; slot < 2 && n->input.n == 2; slot++)
        if (fits(oq_index_init(&s->ix, n->input.v[slot]), f) &&
            oq_index_init(&s->ix, n->input.v[1 - slot]) == NULL)
            return slot;
    return -1;
}

static bool is_normalization(const oq_channel_state *s, const oq_node *n,
                             const oq_channel_factor *f) {
    if (f->is_image)
        return (oq_node_is(n, "BatchNormalization") || oq_node_is(n, "InstanceNormalization")) &&
               vector(s, n, 1, f->n) != NULL && vector(s, n, 2, f->n) != NULL;
    return oq_node_is(n, "LayerNormalization") && oq_attr_int(n, "axis", -1) == -1 &&
           n->output.n == 1 && vector(s, n, 1, f->n) != NULL &&
           (n->input.n < 3 || n->input.v[2].n == 0 || vector(s, n, 2, f->n) != NULL);
}

/* One end or step of the walk; *next is where it goes on, empty at an end. */
static onq_code step(oq_channel_state *s, oq_node *n, const oq_channel_factor *f, bool change,
                     bool *ok, oq_str *next, onq_error *err) {
    *ok = true;
    *next = (oq_str){0};
    if (oq_node_is(n, "Mul") || oq_node_is(n, "Div") || oq_node_is(n, "Add") ||
        oq_node_is(n, "Sub")) {
        const int slot = constant_slot(s, n, f);
        *ok = slot >= 0;
        if (*ok && (oq_node_is(n, "Add") || oq_node_is(n, "Sub")))
            *next = n->input.v[1 - slot];
        return *ok && change ? scale_constant(s, n, (size_t)slot, f, oq_node_is(n, "Div"), err)
                             : ONQ_OK;
    }
    if (passes(n, f->is_image)) {
        *next = n->input.v[0];
        return ONQ_OK;
    }
    if (is_normalization(s, n, f)) {
        for (size_t slot = 1; change && slot < 3 && slot < n->input.n; slot++)
            if (n->input.v[slot].n > 0)
                OQ_TRY(scale_vector(s, n, slot, f->v, err));
        return ONQ_OK;
    }
    *ok = oq_node_is(n, "Conv") == f->is_image && oq_channel_has_rows(s, n, f->n);
    return *ok && change ? oq_channel_scale_rows(s, n, f->v, err) : ONQ_OK;
}

static onq_code walk(oq_channel_state *s, const oq_channel_factor *f, bool change, bool *ok,
                     onq_error *err) {
    oq_str at = f->name;
    size_t readers = f->readers;
    *ok = false;
    for (unsigned depth = 0; depth < DEPTH; depth++) {
        const oq_value *v = oq_index_find(&s->ix, at);
        if (v == NULL || v->is_output || v->producer == OQ_NO_NODE || v->uses.n != readers)
            return ONQ_OK;
        bool fine = false;
        if (change)
            OQ_TRY(oq_channel_moved(s, at, oq_channel_seen(s, at), f->v, err));
        OQ_TRY(step(s, s->ix.graph->node.v[v->producer], f, change, &fine, &at, err));
        if (!fine)
            return ONQ_OK;
        if (at.n == 0) {
            *ok = true;
            return ONQ_OK;
        }
        readers = 1;
    }
    return ONQ_OK;
}

onq_code oq_channel_fold(oq_channel_state *s, const oq_channel_factor *f, bool *folded,
                         onq_error *err) {
    OQ_TRY(walk(s, f, false, folded, err));
    return *folded ? walk(s, f, true, folded, err) : ONQ_OK;
}
