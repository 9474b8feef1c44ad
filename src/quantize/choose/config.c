/*
 * config.c — see config.h.
 */
#include "quantize/choose/config.h"

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
