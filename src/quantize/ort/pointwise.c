/*
 * pointwise.c — see pointwise.h.
 */
#include "quantize/ort/pointwise.h"

#include "onnx/edit.h"
#include "onnx/operators.h"
#include "onnx/tensor.h"

#include <stdio.h>

#define MAX_RANK 8

typedef struct pointwise {
    oq_model *m;
    oq_arena *scratch;
    oq_fresh names;
    oq_index ix;
    OQ_VEC(oq_node *) nodes; /* of the graph as it will be */
} pointwise;

/* One Conv and what goes into it. */
typedef struct spot {
    oq_node *conv;
    const oq_node *x, *w; /* their DequantizeLinear */
    oq_tensor *weight;
    float *bias; /* NULL: none */
    size_t n_bias;
    size_t rank, out, in; /* axes of x; channels */
} spot;

/* ---- which ---- */

static bool are_all(const oq_i64s *v, int64_t want) {
    for (size_t i = 0; v != NULL && i < v->n; i++)
        if (v->v[i] != want)
            return false;
    return true;
}

bool oq_is_pointwise(const oq_node *n, const oq_tensor *weight) {
    if (!oq_node_is(n, "Conv") || weight == NULL || weight->dims.n < 3 ||
        weight->dims.n > MAX_RANK || n->output.n != 1 || oq_attr_int(n, "group", 1) != 1 ||
        !are_all(oq_attr_ints(n, "strides"), 1) || !are_all(oq_attr_ints(n, "pads"), 0))
        return false;
    for (size_t i = 2; i < weight->dims.n; i++)
        if (weight->dims.v[i] != 1)
            return false;
    return weight->dims.v[0] > 0 && weight->dims.v[1] > 0;
}

static bool has_8_bits(int64_t type) {
    return type == OQ_INT8 || type == OQ_UINT8;
}

/* A DequantizeLinear of 8 bits to float32 with so many scales, or with one. */
static onq_code fits(const pointwise *p, const oq_node *dq, size_t channels, bool *out,
                     onq_error *err) {
    uint64_t n = 0;
    const bool whole =
        oq_node_is_dequantize(dq) && dq->input.n == 3 && oq_attr_int(dq, "block_size", 0) == 0;
    const oq_tensor *scale = whole ? oq_index_init(&p->ix, dq->input.v[1]) : NULL;
    const oq_tensor *zero = whole ? oq_index_init(&p->ix, dq->input.v[2]) : NULL;
    *out = false;
    if (scale == NULL || zero == NULL || scale->data_type.v != OQ_FLOAT ||
        !has_8_bits(zero->data_type.v) || scale->dims.n > 1)
        return ONQ_OK;
    OQ_TRY(oq_tensor_count(scale, &n, err));
    *out = n == 1 || n == channels;
    return ONQ_OK;
}

/* The numbers of a constant bias, float or int32; *v stays NULL where it is something else. */
static onq_code read_bias(const pointwise *p, oq_str name, float **v, size_t *n, onq_error *err) {
    oq_tensor *t = oq_index_init(&p->ix, name);
    const oq_node *dq = t == NULL ? oq_index_producer(&p->ix, name) : NULL;
    if (t != NULL && t->data_type.v == OQ_FLOAT)
        return oq_tensor_floats(p->m, t, p->scratch, v, n, err);
    if (!oq_node_is_dequantize(dq) || dq->input.n < 2)
        return ONQ_OK;
    t = oq_index_init(&p->ix, dq->input.v[0]);
    oq_tensor *s = oq_index_init(&p->ix, dq->input.v[1]);
    float *scale = NULL;
    int64_t *sums = NULL;
    size_t n_scale = 0;
    if (t == NULL || s == NULL || t->data_type.v != OQ_INT32 || s->data_type.v != OQ_FLOAT)
        return ONQ_OK;
    OQ_TRY(oq_tensor_i64s(p->m, t, p->scratch, &sums, n, err));
    OQ_TRY(oq_tensor_floats(p->m, s, p->scratch, &scale, &n_scale, err));
    if (n_scale != 1 && n_scale != *n)
        return ONQ_OK;
    *v = OQ_NEW_ARRAY(p->scratch, float, *n + 1);
    OQ_TRY_ALLOC(*v != NULL, err);
    for (size_t i = 0; i < *n; i++)
        (*v)[i] = (float)((double)sums[i] * (double)scale[n_scale == 1 ? 0 : i]);
    return ONQ_OK;
}

static onq_code find_spot(const pointwise *p, oq_node *n, spot *s, bool *found, onq_error *err) {
    bool x = false, w = false;
    *found = false;
    *s = (spot){.conv = n,
                .x = oq_index_producer(&p->ix, oq_node_input(n, 0)),
                .w = oq_index_producer(&p->ix, oq_node_input(n, 1))};
    if (!oq_node_is_dequantize(s->x) || !oq_node_is_dequantize(s->w))
        return ONQ_OK;
    s->weight = oq_index_init(&p->ix, s->w->input.v[0]);
    if (!oq_is_pointwise(n, s->weight) || !has_8_bits(s->weight->data_type.v))
        return ONQ_OK;
    s->rank = s->weight->dims.n;
    s->out = (size_t)s->weight->dims.v[0];
    s->in = (size_t)s->weight->dims.v[1];
    OQ_TRY(fits(p, s->x, 1, &x, err));
    OQ_TRY(fits(p, s->w, s->out, &w, err));
    const oq_str bias = oq_node_input(n, 2);
    if (bias.n > 0)
        OQ_TRY(read_bias(p, bias, &s->bias, &s->n_bias, err));
    *found = x && w && (bias.n == 0 || (s->bias != NULL && s->n_bias == s->out));
    return ONQ_OK;
}

/* ---- writing ---- */

/* A node after those that are there, called after the Conv, with one output of a new name. */
static oq_node *add(pointwise *p, const spot *s, const char *op, const oq_str *in, size_t n_in,
                    oq_str *out) {
    char suffix[32];
    snprintf(suffix, sizeof suffix, "_%s", op);
    const oq_str name = oq_fresh_node(&p->names, oq_node_label(s->conv), suffix);
    const oq_str made = oq_fresh_tensor(&p->names, s->conv->output.v[0], suffix);
    oq_node *n = !p->names.failed ? oq_node_make(&p->m->arena, op, name, in, n_in, &made, 1) : NULL;
    *out = made;
    return n != NULL && OQ_PUSH(p->scratch, &p->nodes, n) ? n : NULL;
}

/* Channels from axis 1 to the last, or back. */
static onq_code add_transpose(pointwise *p, const spot *s, bool back, oq_str in, oq_str *out,
                              onq_error *err) {
    int64_t perm[MAX_RANK] = {0};
    for (size_t i = 1; i < s->rank; i++)
        perm[i] = back ? (int64_t)(i == 1 ? s->rank - 1 : i - 1)
                       : (int64_t)(i == s->rank - 1 ? 1 : i + 1);
    oq_node *n = add(p, s, "Transpose", &in, 1, out);
    return n != NULL && oq_attr_set_ints(&p->m->arena, n, OQ_S("perm"), perm, s->rank)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

/* A DequantizeLinear of its own, for the runtime fuses a node that alone reads it. */
static onq_code add_dequantize(pointwise *p, const spot *s, const oq_node *like, oq_str in,
                               oq_str *out, onq_error *err) {
    const oq_str all[3] = {in, like->input.v[1], like->input.v[2]};
    oq_node *n = add(p, s, OQ_DEQUANTIZE_LINEAR, all, 3, out);
    OQ_TRY_ALLOC(n != NULL, err);
    n->domain = like->domain;
    return like != s->w || oq_attr_set_int(&p->m->arena, n, OQ_S("axis"), 1) ? ONQ_OK
                                                                             : oq_fail_nomem(err);
}

static onq_code add_constant(pointwise *p, oq_str name, oq_dtype type, const int64_t *dims,
                             size_t rank, const void *v, size_t bytes, onq_error *err) {
    oq_arena *a = &p->m->arena;
    oq_tensor *t = name.p != NULL ? oq_tensor_new(a, name, type, dims, rank) : NULL;
    OQ_TRY_ALLOC(t != NULL && oq_graph_add_init(a, p->m->proto->graph, t), err);
    return oq_tensor_set_raw(a, t, v, bytes, err);
}

/* w[o][i] as a matrix whose row i has the o. */
static onq_code add_matrix(pointwise *p, const spot *s, oq_str *name, onq_error *err) {
    const int64_t dims[2] = {(int64_t)s->in, (int64_t)s->out};
    oq_span raw;
    OQ_TRY(oq_model_data(p->m, s->weight, &raw, err));
    assert(raw.n == s->in * s->out);
    uint8_t *v = OQ_NEW_ARRAY(p->scratch, uint8_t, raw.n + 1);
    OQ_TRY_ALLOC(v != NULL, err);
    for (size_t o = 0; o < s->out; o++)
        for (size_t i = 0; i < s->in; i++)
            v[i * s->out + o] = raw.p[o * s->in + i];
    *name = oq_fresh_tensor(&p->names, s->weight->name, "_matrix");
    return add_constant(p, *name, (oq_dtype)s->weight->data_type.v, dims, 2, v, raw.n, err);
}

static onq_code add_bias(pointwise *p, const spot *s, oq_str *y, onq_error *err) {
    const int64_t dims[1] = {(int64_t)s->out};
    if (s->bias == NULL)
        return ONQ_OK;
    for (size_t i = 0; i < s->out; i++)
        s->bias[i] = -s->bias[i];
    const oq_str name = oq_fresh_tensor(&p->names, oq_node_label(s->conv), "_bias_negated");
    OQ_TRY(add_constant(p, name, OQ_FLOAT, dims, 1, s->bias, s->out * sizeof *s->bias, err));
    return add(p, s, "Sub", (oq_str[]){*y, name}, 2, y) != NULL ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code write_product(pointwise *p, const spot *s, onq_error *err) {
    oq_str matrix, x, w, y;
    OQ_TRY(add_matrix(p, s, &matrix, err));
    OQ_TRY(add_transpose(p, s, false, s->x->input.v[0], &x, err));
    OQ_TRY(add_dequantize(p, s, s->x, x, &x, err));
    OQ_TRY(add_dequantize(p, s, s->w, matrix, &w, err));
    oq_node *product = add(p, s, "MatMul", (oq_str[]){x, w}, 2, &y);
    OQ_TRY_ALLOC(product != NULL, err);
    /* It has the name of the Conv, by which users know it. */
    if (s->conv->name.n > 0)
        product->name = s->conv->name;
    oq_node_carry(product, s->conv);
    OQ_TRY(add_bias(p, s, &y, err));
    OQ_TRY(add_transpose(p, s, true, y, &y, err));
    p->nodes.v[p->nodes.n - 1]->output.v[0] = s->conv->output.v[0];
    return ONQ_OK;
}

static onq_code write_all(pointwise *p, const oq_map *chosen, size_t *count, onq_error *err) {
    oq_graph *g = p->m->proto->graph;
    OQ_TRY(oq_fresh_init(&p->names, p->scratch, p->m, err));
    OQ_TRY(oq_index_build(&p->ix, p->scratch, g, NULL, err));
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        spot s;
        bool found = false;
        if (n->output.n > 0 && oq_map_has(chosen, n->output.v[0]))
            OQ_TRY(find_spot(p, n, &s, &found, err));
        if (found)
            OQ_TRY(write_product(p, &s, err));
        else
            OQ_TRY_ALLOC(OQ_PUSH(p->scratch, &p->nodes, n), err);
        *count += found;
    }
    if (*count == 0)
        return ONQ_OK;
    OQ_TRY_ALLOC(oq_graph_set_nodes(&p->m->arena, g, p->nodes.v, p->nodes.n), err);
    return oq_graph_prune(p->m, g, err);
}

onq_code oq_pointwise_apply(oq_model *m, const oq_map *chosen, size_t *n, onq_error *err) {
    *n = 0;
    if (chosen->count == 0)
        return ONQ_OK;
    OQ_SCRATCH(scratch, &m->env->alloc);
    pointwise p = {.m = m, .scratch = &scratch};
    return write_all(&p, chosen, n, err);
}
