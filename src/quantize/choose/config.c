/*
 * config.c — defaults, and which nodes are chosen.
 */
#include "quantize/choose/config.h"

#include "quantize/choose/selection.h"
#include "quantize/plan.h"
#include "quantize/rules.h"

void oq_qconfig_init(oq_qconfig *c, oq_arena *arena) {
    *c = (oq_qconfig){
        .arena = arena,
        .activation_type = OQ_INT8,
        .weight_type = OQ_INT8,
        .weight_symmetric = OQ_UNSET,
        .matmul_const_b_only = OQ_UNSET,
        .quantize_bias = true,
        .sort_nodes = true,
        .keep_float16 = true,
        .smooth_quant_alpha = 0.5,
        .smooth_quant_folding = true,
    };
    oq_pick_init(&c->op_types, arena);
    oq_pick_init(&c->nodes_to_quantize, arena);
    oq_pick_init(&c->nodes_to_exclude, arena);
    oq_pick_init(&c->exclude_output_ops, arena);
    oq_node_methods_init(&c->methods, arena);
    oq_pick_init(&c->op_types_to_exclude, arena);
    oq_map_init(&c->left, arena);
    oq_map_init(&c->added, arena);
    oq_map_init(&c->float_outputs, arena);
    oq_map_init(&c->doubled, arena);
    oq_map_init(&c->unsound, arena);
}

void oq_qconfig_release(oq_qconfig *c) {
    oq_pick_release(&c->op_types);
    oq_pick_release(&c->nodes_to_quantize);
    oq_pick_release(&c->nodes_to_exclude);
    oq_pick_release(&c->exclude_output_ops);
    oq_pick_release(&c->op_types_to_exclude);
}

onq_code oq_qconfig_add_float(oq_qconfig *c, oq_str name, onq_error *err) {
    OQ_TRY_ALLOC(oq_map_put(&c->added, name, 0), err);
    return oq_pick_add(&c->nodes_to_exclude, name, err);
}

bool oq_qconfig_axis(const oq_qconfig *c, oq_str op_type, int64_t *axis) {
    for (size_t i = 0; i < c->op_axis.n; i++) {
        if (oq_str_eq(c->op_axis.v[i].op_type, op_type)) {
            *axis = c->op_axis.v[i].axis;
            return true;
        }
    }
    return false;
}

bool oq_qconfig_weight_symmetric(const oq_qconfig *c, oq_dtype type) {
    if (c->weight_symmetric != OQ_UNSET)
        return c->weight_symmetric == OQ_YES;
    const oq_qtype_info *t = oq_qtype_find(type);
    return t != NULL && t->is_signed;
}

const char *oq_qconfig_skip(oq_qconfig *c, const oq_node *n, unsigned modes) {
    if (n->output.n > 0 && oq_map_has(&c->unsound, n->output.v[0]))
        return OQ_WHY_UNSOUND;
    if (c->given != NULL && c->given->bound)
        return oq_given_skip(c->given, n);
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
        return oq_pick_is_empty(&c->op_types) ? OQ_WHY_MODE : "not in op_types_to_quantize";
    if (oq_pick_has(&c->nodes_to_exclude, n->name))
        return oq_map_has(&c->added, n->name)
                   ? "added by a method (as --outlier_channels); kept float"
                   : "in nodes_to_exclude";
    if (oq_pick_has(&c->op_types_to_exclude, n->op_type))
        return "in op_types_to_exclude";
    return oq_left_why(c, n);
}
