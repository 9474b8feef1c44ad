/*
 * macs.c — see macs.h.
 */
#include "shape/macs.h"

#include "onnx/operators.h"

static double size_of(oq_sdim d) {
    return oq_sdim_is_num(d) && d.n > 0 ? (double)d.n : 1;
}

/* The product of dimensions [from, rank); 0 when the rank is not known. */
static double product(const oq_tensor_info *t, size_t from) {
    double n = t->has_shape ? 1 : 0;
    for (size_t i = from; t->has_shape && i < t->rank; i++)
        n *= size_of(t->dims[i]);
    return n;
}

double oq_tensor_extent(const oq_shapes *s, const oq_graph *g, oq_str name) {
    oq_tensor_info t;
    return oq_shapes_tensor(s, g, name, &t) ? product(&t, 0) : 0;
}

static bool input_at(const oq_shapes *s, const oq_graph *g, const oq_node *n, int slot,
                     oq_tensor_info *out) {
    return slot >= 0 && (size_t)slot < n->input.n && n->input.v[slot].n > 0 &&
           oq_shapes_tensor(s, g, n->input.v[slot], out) && out->has_shape;
}

static double dim_at(const oq_tensor_info *t, size_t axis) {
    return axis < t->rank ? size_of(t->dims[axis]) : 1;
}

/* X is [steps, batch, inputs], or [batch, steps, inputs]: either way each step of each row passes
 * through W and R once. */
static double recurrent(const oq_shapes *s, const oq_graph *g, const oq_node *n) {
    oq_tensor_info x, w, r;
    if (!input_at(s, g, n, 0, &x) || !input_at(s, g, n, 1, &w) || !input_at(s, g, n, 2, &r))
        return 0;
    return dim_at(&x, 0) * dim_at(&x, 1) * (product(&w, 0) + product(&r, 0));
}

/* Q, K and V of every token by one matrix, then two products of tokens with tokens. */
static double attention(const oq_shapes *s, const oq_graph *g, const oq_node *n) {
    oq_tensor_info x, w;
    if (!input_at(s, g, n, 0, &x) || !input_at(s, g, n, 1, &w) || x.rank < 3)
        return 0;
    const double rows = dim_at(&x, 0) * dim_at(&x, 1);
    return rows * product(&w, 0) + 2 * rows * dim_at(&x, 1) * dim_at(&w, 1) / 3;
}

double oq_node_work(const oq_shapes *s, const oq_graph *g, const oq_node *n) {
    const oq_op_traits *t = oq_op_traits_of(n->op_type);
    const oq_product kind = t->product != OQ_NO_PRODUCT ? t->product : t->work;
    oq_tensor_info x, w;
    if (n->output.n == 0)
        return 0;
    if (t->gates > 0 || oq_str_is(n->op_type, "DynamicQuantizeLSTM"))
        return recurrent(s, g, n);
    if (oq_str_is(n->op_type, "Attention") || oq_str_is(n->op_type, "QAttention"))
        return attention(s, g, n);
    if (kind == OQ_NO_PRODUCT || !input_at(s, g, n, 0, &x))
        return 0;
    const double out = oq_tensor_extent(s, g, n->output.v[0]);
    const bool has_weight = input_at(s, g, n, t->weight != 0 ? oq_op_slot(t->weight) : 1, &w);
    switch (kind) {
    case OQ_CONV:
        return has_weight ? out * product(&w, 1) : 0;
    case OQ_CONV_TRANSPOSE:
        return has_weight ? product(&x, 0) * product(&w, 1) : 0;
    case OQ_GEMM:
        return out * dim_at(&x, oq_gemm_turns_a(n) ? 0 : 1);
    case OQ_MATMUL:
        return x.rank > 0 ? out * dim_at(&x, x.rank - 1) : 0;
    case OQ_NO_PRODUCT:
        break;
    }
    return 0;
}

double oq_node_macs(const oq_shapes *s, const oq_graph *g, const oq_node *n) {
    return oq_op_traits_of(n->op_type)->form == OQ_FORM_FLOAT ? oq_node_work(s, g, n) : 0;
}

onq_code oq_input_fix(oq_model *m, oq_str name, const int64_t *dims, size_t rank, onq_error *err) {
    oq_graph *g = m->proto->graph;
    g->value_info.n = 0;
    for (size_t i = 0; i < g->input.n; i++) {
        const oq_type *t = g->input.v[i]->type;
        if (!oq_str_eq(g->input.v[i]->name, name) || t == NULL || t->tensor_type == NULL)
            continue;
        const oq_shape *shape = t->tensor_type->shape;
        if (shape == NULL || shape->dim.n != rank)
            continue;
        oq_shape *fresh = OQ_NEW(&m->arena, oq_shape);
        for (size_t k = 0; fresh != NULL && k < rank; k++) {
            oq_dim *d = OQ_NEW(&m->arena, oq_dim);
            OQ_TRY_ALLOC(d != NULL && OQ_PUSH(&m->arena, &fresh->dim, d), err);
            d->dim_value = OQ_I64(dims[k]);
        }
        OQ_TRY_ALLOC(fresh != NULL, err);
        t->tensor_type->shape = fresh;
    }
    return ONQ_OK;
}
