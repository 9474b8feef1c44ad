/*
 * selection.c — see selection.h.
 */
#include "quantize/choose/selection.h"

#include "base/keyed.h"
#include "onnx/graph.h"
#include "quantize/choose/reach.h"

/* Conv, Gemm, MatMul and what keeps the values of their tensors or clips them. */
static bool is_linear(oq_str type) {
    const oq_op_traits *t = oq_op_traits_of(type);
    return (t->product != OQ_NO_PRODUCT && t->product != OQ_CONV_TRANSPOSE) || t->clips ||
           t->in_linear;
}

onq_code oq_selection_choose_outputs(oq_qconfig *c, const oq_selection *s, onq_error *err) {
    c->keep_excluded_float |= s->set >= OQ_SET_LINEAR || s->heaviest > 0;
    if (s->set < OQ_SET_NOOUT)
        return ONQ_OK;
    c->keep_products = true;
    OQ_TRY(oq_pick_add(&c->exclude_output_ops, OQ_S("MatMul"), err));
    return oq_pick_add(&c->exclude_output_ops, OQ_S("Gemm"), err);
}

/* ---- operators ---- */

static onq_code leave_types(void *ctx, oq_graph *g, onq_error *err) {
    oq_qrun *r = ctx;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        const oq_op_traits *t = oq_op_traits_of(n->op_type);
        if (!is_linear(n->op_type))
            OQ_TRY(oq_qrun_leave(
                r, n, t->product == OQ_CONV_TRANSPOSE ? OQ_LEFT_TRANSPOSE : OQ_LEFT_ARITHMETIC,
                err));
    }
    return ONQ_OK;
}

/* ---- units ---- */

static onq_code leave_unit(oq_qrun *r, const oq_unit *u, oq_left why, onq_error *err) {
    OQ_TRY(oq_qrun_leave(r, u->node, why, err));
    return u->act != NULL ? oq_qrun_leave(r, u->act, OQ_LEFT_BETWEEN, err) : ONQ_OK;
}

static onq_code leave_slow(oq_qrun *r, const oq_selection *s, onq_error *err) {
    static const oq_left why[OQ_UNIT_KINDS] = {
        [OQ_UNIT_DENSE] = OQ_LEFT_SLOWER,        [OQ_UNIT_GROUPED] = OQ_LEFT_SLOWER,
        [OQ_UNIT_DEPTHWISE] = OQ_LEFT_DEPTHWISE, [OQ_UNIT_POOLED] = OQ_LEFT_POOLED,
        [OQ_UNIT_PAIR] = OQ_LEFT_PAIR,           [OQ_UNIT_TRANSPOSE] = OQ_LEFT_TRANSPOSE};
    bool *pays = NULL;
    OQ_TRY(oq_units_pay(s->units, s->costs, r->config->arena, &pays, err));
    for (size_t i = 0; i < s->units->all.n; i++)
        if (!pays[i])
            OQ_TRY(leave_unit(r, &s->units->all.v[i], why[s->units->all.v[i].kind], err));
    return ONQ_OK;
}

static onq_code leave_all(void *ctx, oq_graph *g, onq_error *err) {
    oq_qrun *r = ctx;
    for (size_t i = 0; i < g->node.n; i++)
        OQ_TRY(oq_qrun_leave(r, g->node.v[i], OQ_LEFT_LIGHT, err));
    return ONQ_OK;
}

static void take_back(oq_qrun *r, const oq_node *n) {
    (void)oq_map_remove(&r->left, n->output.v[0]);
}

/* Everything is left float but the heaviest dense units that are let through so far. */
static onq_code keep_heaviest(oq_qrun *r, oq_model *m, const oq_selection *s, onq_error *err) {
    const oq_units *units = s->units;
    oq_keyed *v = OQ_NEW_ARRAY(r->config->arena, oq_keyed, units->all.n + 1);
    size_t n = 0;
    OQ_TRY_ALLOC(v != NULL, err);
    for (size_t i = 0; i < units->all.n; i++)
        if (units->all.v[i].kind == OQ_UNIT_DENSE &&
            oq_qrun_skip(r, units->all.v[i].node, s->modes) == NULL)
            v[n++] = (oq_keyed){-units->all.v[i].macs, (uint32_t)i};
    oq_keyed_sort(v, n);
    OQ_TRY(oq_reach_graphs(m, r->config, leave_all, r, err));
    for (size_t i = 0; i < n && i < s->heaviest; i++) {
        const oq_unit *u = &units->all.v[v[i].at];
        take_back(r, u->node);
        if (u->act != NULL)
            take_back(r, u->act);
    }
    return ONQ_OK;
}

onq_code oq_selection_choose_nodes(oq_qrun *r, oq_model *m, const oq_selection *s, onq_error *err) {
    if (s->set >= OQ_SET_LINEAR)
        OQ_TRY(oq_reach_graphs(m, r->config, leave_types, r, err));
    if (s->set == OQ_SET_PAYS)
        OQ_TRY(leave_slow(r, s, err));
    return s->heaviest > 0 ? keep_heaviest(r, m, s, err) : ONQ_OK;
}
