/*
 * operators.c — the traits of operators.def.
 */
#undef OQ_ANALYZER /* here are the functions themselves */
#include "onnx/operators.h"

#include "onnx/attr.h"

const oq_operator oq_operators[] = {
#define OQ_OPERATOR(domain, type, qdq, qlinear, integer, ...) {domain, type, {__VA_ARGS__}},
#include "onnx/operators.def"
#undef OQ_OPERATOR
};

const size_t oq_operator_count = OQ_COUNT(oq_operators);

const oq_operator *oq_operator_find(oq_str type) {
    size_t low = 0, high = oq_operator_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = oq_str_cmp(oq_str_of(oq_operators[middle].type), type);
        if (order == 0)
            return &oq_operators[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

const oq_op_traits *oq_op_traits_of(oq_str type) {
    static const oq_op_traits none = {.form = OQ_FORM_FLOAT};
    const oq_operator *o = oq_operator_find(type);
    return o != NULL ? &o->traits : &none;
}

/* ---- nodes ---- */

bool oq_node_is(const oq_node *n, const char *type) {
    return n != NULL && oq_str_is(n->op_type, type) && oq_domain_is_onnx(n->domain);
}

bool oq_node_is_swap(const oq_node *n) {
    if (!oq_node_is(n, "Transpose") || n->input.n != 1)
        return false;
    const oq_i64s *perm = oq_attr_ints(n, "perm");
    return perm == NULL || (perm->n == 2 && perm->v[0] == 1 && perm->v[1] == 0);
}

bool oq_node_is_any(const oq_node *n, const char *const *types, size_t count) {
    return n != NULL && oq_domain_is_onnx(n->domain) && oq_str_is_any(n->op_type, types, count);
}

/* OQ_KIND_OTHER for domains whose operators are not known. */
static oq_op_kind kind_of(const oq_node *n) {
    const oq_op_kind kind = n != NULL ? oq_op_traits_of(n->op_type)->kind : OQ_KIND_OTHER;
    if (kind == OQ_KIND_OTHER || oq_domain_is_onnx(n->domain))
        return kind;
    return kind != OQ_KIND_CONSTANT && oq_str_is(n->domain, "com.microsoft") ? kind : OQ_KIND_OTHER;
}

bool oq_node_is_constant(const oq_node *n) {
    return kind_of(n) == OQ_KIND_CONSTANT;
}

bool oq_node_is_quantize(const oq_node *n) {
    return kind_of(n) == OQ_KIND_QUANTIZE;
}

bool oq_node_feeds_quantize(const oq_index *ix, const oq_node *n) {
    for (size_t k = 0; k < n->output.n; k++) {
        const oq_value *v = n->output.v[k].n > 0 ? oq_index_find(ix, n->output.v[k]) : NULL;
        for (size_t i = 0; v != NULL && i < v->uses.n; i++)
            if (oq_node_is_quantize(ix->graph->node.v[v->uses.v[i].node]))
                return true;
    }
    return false;
}

bool oq_node_is_dequantize(const oq_node *n) {
    return kind_of(n) == OQ_KIND_DEQUANTIZE;
}

bool oq_node_is_pair(const oq_node *n) {
    const oq_op_kind kind = kind_of(n);
    return kind == OQ_KIND_QUANTIZE || kind == OQ_KIND_DEQUANTIZE;
}

oq_tensor *oq_node_constant(const oq_node *n) {
    const oq_attribute *value = oq_node_is_constant(n) ? oq_attr_find(n, "value") : NULL;
    return value != NULL ? value->t : NULL;
}

/* ---- traits ---- */

bool oq_op_takes_weight(const oq_op_traits *t, size_t slot) {
    if (t->form != OQ_FORM_FLOAT || (t->product == OQ_NO_PRODUCT && t->scale == 0))
        return false;
    return t->weight == OQ_IN(slot) || t->scale == OQ_IN(slot) || (t->either_side && slot == 0);
}

bool oq_gemm_turns_a(const oq_node *n) {
    return oq_attr_int(n, "transA", 0) != 0;
}

bool oq_gemm_turns_b(const oq_node *n) {
    return oq_attr_int(n, "transB", 0) != 0;
}

bool oq_op_channel_axis(const oq_node *n, int64_t *axis) {
    const oq_product product = oq_op_traits_of(n->op_type)->product;
    if (product == OQ_NO_PRODUCT)
        return false;
    const bool rows = product == OQ_CONV || oq_gemm_turns_b(n);
    *axis = rows ? 0 : 1;
    return true;
}

static onq_code see_random(void *ctx, oq_graph *g, onq_error *err OQ_UNUSED) {
    for (size_t i = 0; i < g->node.n; i++)
        *(bool *)ctx |= oq_op_traits_of(g->node.v[i]->op_type)->random;
    return ONQ_OK;
}

onq_code oq_model_is_random(const oq_model *m, bool *yes, onq_error *err) {
    *yes = false;
    for (size_t i = 0; i < m->proto->functions.n; i++) {
        const oq_function *f = m->proto->functions.v[i];
        for (size_t k = 0; k < f->node.n; k++)
            *yes |= oq_op_traits_of(f->node.v[k]->op_type)->random;
    }
    return oq_walk_graphs(m->proto->graph, see_random, yes, err);
}
