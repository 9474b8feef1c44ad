/*
 * selection.c — see selection.h.
 */
#include "quantize/choose/selection.h"

#include "base/keyed.h"
#include "onnx/graph.h"
#include "quantize/choose/reach.h"

const char *oq_left_why(const oq_qconfig *c, const oq_node *n) {
    static const char *const texts[] = {
        [OQ_LEFT_ARITHMETIC] = "not in op_set: neither a product nor moving or clipping values",
        [OQ_LEFT_DEPTHWISE] = "op_set pays: integers make a depthwise convolution no faster",
        [OQ_LEFT_POOLED] = "op_set pays: integers make a convolution of one place no faster",
        [OQ_LEFT_PAIR] = "op_set pays: integers make a product of two activations no faster",
        [OQ_LEFT_TRANSPOSE] = "not in op_set: the runtime has no integer ConvTranspose",
        [OQ_LEFT_SLOWER] = "op_set pays: integers make a product of this size no faster",
        [OQ_LEFT_LIGHT] = "not among the heaviest",
        [OQ_LEFT_BETWEEN] = "op_set pays: the node before it stays float",
        [OQ_LEFT_MASK] = "masks: one stretches the range of its tensor"};
    const uint32_t at =
        n->output.n > 0 ? oq_map_find(&c->left, n->output.v[0]) : (uint32_t)OQ_MAP_NONE;
    return at != OQ_MAP_NONE ? texts[at] : NULL;
}

/* Conv, Gemm, MatMul and what keeps the values of their tensors or clips them. */
static bool is_linear(oq_str type) {
    const oq_op_traits *t = oq_op_traits_of(type);
    return (t->product != OQ_NO_PRODUCT && t->product != OQ_CONV_TRANSPOSE) || t->clips ||
           t->in_linear;
}

onq_code oq_leave_node(oq_qconfig *c, const oq_node *n, oq_left why, onq_error *err) {
    if (n->output.n == 0 || n->output.v[0].n == 0 || oq_map_has(&c->left, n->output.v[0]) ||
        oq_node_methods_find(&c->methods, n) != NULL)
        return ONQ_OK;
    return oq_map_put(&c->left, n->output.v[0], (uint32_t)why) ? ONQ_OK : oq_fail_nomem(err);
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
    oq_qconfig *c = ctx;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        const oq_op_traits *t = oq_op_traits_of(n->op_type);
        if (!is_linear(n->op_type))
            OQ_TRY(oq_leave_node(
                c, n, t->product == OQ_CONV_TRANSPOSE ? OQ_LEFT_TRANSPOSE : OQ_LEFT_ARITHMETIC,
                err));
    }
    return ONQ_OK;
}

/* ---- units ---- */

static onq_code leave_unit(oq_qconfig *c, const oq_unit *u, oq_left why, onq_error *err) {
    OQ_TRY(oq_leave_node(c, u->node, why, err));
    return u->act != NULL ? oq_leave_node(c, u->act, OQ_LEFT_BETWEEN, err) : ONQ_OK;
}

static onq_code leave_slow(oq_qconfig *c, const oq_selection *s, onq_error *err) {
    static const oq_left why[OQ_UNIT_KINDS] = {
        [OQ_UNIT_DENSE] = OQ_LEFT_SLOWER,        [OQ_UNIT_GROUPED] = OQ_LEFT_SLOWER,
        [OQ_UNIT_DEPTHWISE] = OQ_LEFT_DEPTHWISE, [OQ_UNIT_POOLED] = OQ_LEFT_POOLED,
        [OQ_UNIT_PAIR] = OQ_LEFT_PAIR,           [OQ_UNIT_TRANSPOSE] = OQ_LEFT_TRANSPOSE};
    bool *pays = NULL;
    OQ_TRY(oq_units_pay(s->units, s->costs, c->arena, &pays, err));
    for (size_t i = 0; i < s->units->all.n; i++)
        if (!pays[i])
            OQ_TRY(leave_unit(c, &s->units->all.v[i], why[s->units->all.v[i].kind], err));
    return ONQ_OK;
}

static onq_code leave_all(void *ctx, oq_graph *g, onq_error *err) {
    oq_qconfig *c = ctx;
    for (size_t i = 0; i < g->node.n; i++)
        OQ_TRY(oq_leave_node(c, g->node.v[i], OQ_LEFT_LIGHT, err));
    return ONQ_OK;
}

static void take_back(oq_qconfig *c, const oq_node *n) {
    (void)oq_map_remove(&c->left, n->output.v[0]);
}

/* Everything is left float but the heaviest dense units that are let through so far. */
static onq_code keep_heaviest(oq_qconfig *c, oq_model *m, const oq_selection *s, onq_error *err) {
    const oq_units *units = s->units;
    oq_keyed *v = OQ_NEW_ARRAY(c->arena, oq_keyed, units->all.n + 1);
    size_t n = 0;
    OQ_TRY_ALLOC(v != NULL, err);
    for (size_t i = 0; i < units->all.n; i++)
        if (units->all.v[i].kind == OQ_UNIT_DENSE &&
            oq_qconfig_skip(c, units->all.v[i].node, s->modes) == NULL)
            v[n++] = (oq_keyed){-units->all.v[i].macs, (uint32_t)i};
    oq_keyed_sort(v, n);
    OQ_TRY(oq_reach_graphs(m, c, leave_all, c, err));
    for (size_t i = 0; i < n && i < s->heaviest; i++) {
        const oq_unit *u = &units->all.v[v[i].at];
        take_back(c, u->node);
        if (u->act != NULL)
            take_back(c, u->act);
    }
    return ONQ_OK;
}

onq_code oq_selection_choose_nodes(oq_qconfig *c, oq_model *m, const oq_selection *s,
                                   onq_error *err) {
    if (s->set >= OQ_SET_LINEAR)
        OQ_TRY(oq_reach_graphs(m, c, leave_types, c, err));
    if (s->set == OQ_SET_PAYS)
        OQ_TRY(leave_slow(c, s, err));
    return s->heaviest > 0 ? keep_heaviest(c, m, s, err) : ONQ_OK;
}
