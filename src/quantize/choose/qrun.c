/*
 * qrun.c — see qrun.h.
 */
#include "quantize/choose/qrun.h"

#include "quantize/rules.h"

void oq_qrun_init(oq_qrun *r, oq_qconfig *config) {
    *r = (oq_qrun){.config = config};
    oq_map_init(&r->left, config->arena);
    oq_map_init(&r->added, config->arena);
    oq_map_init(&r->float_outputs, config->arena);
    oq_map_init(&r->doubled, config->arena);
    oq_map_init(&r->pointwise, config->arena);
    oq_map_init(&r->unsound, config->arena);
}

onq_code oq_qrun_leave(oq_qrun *r, const oq_node *n, oq_left why, onq_error *err) {
    if (n->output.n == 0 || n->output.v[0].n == 0 || oq_map_has(&r->left, n->output.v[0]) ||
        oq_node_methods_find(&r->config->methods, n) != NULL)
        return ONQ_OK;
    return oq_map_put(&r->left, n->output.v[0], (uint32_t)why) ? ONQ_OK : oq_fail_nomem(err);
}

const char *oq_qrun_left_why(const oq_qrun *r, const oq_node *n) {
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
        n->output.n > 0 ? oq_map_find(&r->left, n->output.v[0]) : (uint32_t)OQ_MAP_NONE;
    return at != OQ_MAP_NONE ? texts[at] : NULL;
}

static const char *why_unlisted(const oq_node *n) {
    const bool recurrent = oq_str_eq(n->op_type, OQ_S("GRU")) || oq_str_eq(n->op_type, OQ_S("RNN"));
    return recurrent ? OQ_WHY_RECURRENT : OQ_WHY_MODE;
}

const char *oq_qrun_skip(oq_qrun *r, const oq_node *n, unsigned modes) {
    oq_qconfig *c = r->config;
    if (n->output.n > 0 && oq_map_has(&r->unsound, n->output.v[0]))
        return OQ_WHY_UNSOUND;
    if (r->given != NULL && r->given->bound)
        return oq_given_skip(r->given, n);
    const oq_node_method *method = oq_node_methods_find(&c->methods, n);
    if (method != NULL && method->method == OQ_METHOD_FLOAT)
        return "float in node_methods";
    if (method != NULL && (oq_rules_modes(n->op_type) & modes) != 0)
        return NULL;
    if (!oq_pick_is_empty(&c->nodes_to_quantize) && !oq_pick_has(&c->nodes_to_quantize, n->name))
        return "not in nodes_to_quantize";
    /* By the type alone, as the reference does. */
    const oq_op_kind kind = oq_op_traits_of(n->op_type)->kind;
    if (kind == OQ_KIND_QUANTIZE || kind == OQ_KIND_DEQUANTIZE)
        return "is quantized already";
    const bool listed = c->op_types_all ||
                        (oq_pick_is_empty(&c->op_types) ? (oq_rules_modes(n->op_type) & modes) != 0
                                                        : oq_pick_has(&c->op_types, n->op_type));
    if (!listed)
        return oq_pick_is_empty(&c->op_types) ? why_unlisted(n) : "not in op_types_to_quantize";
    if (oq_map_has(&r->added, n->name))
        return "added by a method (as --outlier_channels); kept float";
    if (oq_pick_has(&c->nodes_to_exclude, n->name))
        return "in nodes_to_exclude";
    if (oq_pick_has(&c->op_types_to_exclude, n->op_type))
        return "in op_types_to_exclude";
    return oq_qrun_left_why(r, n);
}
