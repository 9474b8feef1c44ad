/*
 * qo_rules_direct.c — operators that run on quantized tensors as they are: Reshape, MaxPool,
 * Resize, Split, Pad.
 */
#include "quantize/qoperator/qo_rule.h"

onq_code oq_qo_rule_direct(oq_qo *q, oq_node *n, onq_error *err) {
    if (!oq_qo_is_float(q, n->input.v[0]))
        return oq_qo_leave(q, n, "its input is not float", err);
    return oq_qo_direct(q, n, err);
}

onq_code oq_qo_rule_maxpool(oq_qo *q, oq_node *n, onq_error *err) {
    if (oq_qo_opset(q) < 12)
        return oq_qo_leave(q, n, "8-bit MaxPool came with opset 12", err);
    if (oq_qo_config(q)->activation_type == OQ_FLOAT8E4M3FN)
        return oq_qo_leave(q, n, "MaxPool has no float 8", err);
    return oq_qo_rule_direct(q, n, err);
}

onq_code oq_qo_rule_resize(oq_qo *q, oq_node *n, onq_error *err) {
    if (oq_qo_opset(q) < 11)
        return oq_qo_leave(q, n, "8-bit Resize came with opset 11", err);
    const oq_attribute *mode = oq_attr_find(n, "mode");
    if (mode != NULL && oq_str_is(mode->s, "cubic"))
        return oq_qo_leave(q, n, "ONNX Runtime's cubic Resize takes floats only", err);
    if (oq_attr_int(n, "antialias", 0) != 0 && oq_qo_config(q)->activation_type == OQ_INT8)
        return oq_qo_leave(q, n, "ONNX Runtime's antialiasing is wrong below zero", err);
    return oq_qo_rule_direct(q, n, err);
}

onq_code oq_qo_rule_split(oq_qo *q, oq_node *n, onq_error *err) {
    oq_arena *a = oq_qo_arena(q);
    oq_qo_value *in = NULL, *out = NULL;
    if (!oq_qo_is_float(q, n->input.v[0]))
        return oq_qo_leave(q, n, "its input is not float", err);
    if (!oq_qo_can(q, n, 0, &oq_qo_as_activation))
        return oq_qo_leave(q, n, NULL, err);
    oq_node *made = oq_qo_node_new(q, n, "Split", false);
    OQ_TRY_ALLOC(made != NULL, err);
    OQ_TRY(oq_qo_input(q, n, 0, &oq_qo_as_activation, &in, err));
    OQ_TRY_ALLOC(oq_node_add_input(a, made, in->q), err);
    for (size_t i = 1; i < n->input.n; i++)
        OQ_TRY_ALLOC(oq_node_add_input(a, made, n->input.v[i]), err);
    for (size_t i = 0; i < n->output.n; i++) {
        /* The reference forgets the underscore here. */
        OQ_TRY(oq_qo_output_like(q, n->output.v[i], "quantized", in, &out, err));
        OQ_TRY_ALLOC(oq_node_add_output(a, made, out->q), err);
    }
    return oq_qo_emit(q, made, err);
}

/* The number that is padded with, quantized as the tensor is: *name replaces it. */
static onq_code pad_value(oq_qo *q, const oq_node *n, const oq_qo_value *in, oq_str *name,
                          onq_error *err) {
    oq_arena *a = oq_qo_arena(q);
    oq_tensor *t = oq_qo_init(q, n->input.v[2]);
    *name = oq_fresh_tensor(oq_qo_names(q), n->input.v[2], "_quantized");
    OQ_TRY_ALLOC(name->p != NULL, err);
    if (t != NULL) {
        const oq_dtype type = oq_qo_config(q)->activation_type;
        oq_tensor *made = oq_tensor_new(a, *name, type, t->dims.v, t->dims.n);
        OQ_TRY(oq_qo_add_init(q, made, err));
        return oq_qo_quantize_later(q, t, made, in, err);
    }
    const oq_str node_name = oq_fresh_node(oq_qo_names(q), n->input.v[2], "_QuantizeLinear");
    oq_str real = {0};
    OQ_TRY(oq_qo_wide(q, n->input.v[2], &real, err));
    const oq_str from[3] = {real, in->scale, in->zero};
    return oq_qo_emit(q, oq_node_make(a, OQ_QUANTIZE_LINEAR, node_name, from, 3, name, 1), err);
}

/* True if the range of the quantized tensor holds x, except for one step. */
static bool holds(const oq_qo_value *v, double x) {
    const oq_qtype_info *info = oq_qtype_find(v->type);
    const double scale = (double)v->param.scale, zero = (double)v->param.zero_point;
    return info == NULL || info->is_float ||
           (x >= ((double)info->full.min - zero - 1.0) * scale &&
            x <= ((double)info->full.max - zero + 1.0) * scale);
}

static bool holds_one(const oq_qo_value *v, const oq_num *x) {
    return !oq_num_has(x) || x->n != 1 || x->v == NULL || holds(v, x->v[0]);
}

/* True if only MaxPools read it. To them the lowest value of the range is as good as one below. */
static bool is_for_maxima(const oq_qo *q, oq_str name) {
    const oq_value *v = oq_index_find(oq_qo_index(q), name);
    if (v == NULL || v->is_output)
        return false;
    for (size_t i = 0; i < v->uses.n; i++)
        if (!oq_node_is(oq_qo_index(q)->graph->node.v[v->uses.v[i].node], "MaxPool"))
            return false;
    return true;
}

/* True if the padding value is in the range that the output takes over from the input. Where the
 * value is computed, the range of the output decides. */
static bool pads_in_range(const oq_qo *q, const oq_node *n, const oq_qo_value *in) {
    const oq_range *r = oq_qo_range(q, n->output.v[0]);
    double x = 0.0;
    if (!in->has_param || n->input.n < 3 || n->input.v[2].n == 0)
        return true;
    if (oq_constant_real(oq_qo_model(q), oq_qo_index(q), n->input.v[2], &x))
        return holds(in, x) || (x < 0.0 && is_for_maxima(q, n->output.v[0]));
    return r == NULL || (holds_one(in, &r->lowest) && holds_one(in, &r->highest));
}

onq_code oq_qo_rule_pad(oq_qo *q, oq_node *n, onq_error *err) {
    const oq_qo_value *in = oq_qo_value_of(q, n->input.v[0]);
    oq_qo_value *out = NULL;
    if (!oq_qo_is_float(q, n->input.v[0]))
        return oq_qo_leave(q, n, "its input is not float", err);
    if (oq_qo_opset(q) < 11 || in == NULL)
        return oq_qo_leave(q, n,
                           in == NULL ? "its input is not quantized"
                                      : "Pad takes 8-bit tensors from opset 11 on",
                           err);
    const bool constant = oq_str_is(oq_attr_str(n, "mode", "constant"), "constant");
    if (constant && !pads_in_range(q, n, in))
        return oq_qo_leave(q, n, "it pads with a value outside of its input's range", err);
    oq_node *made = oq_qo_copy(q, n);
    OQ_TRY_ALLOC(made != NULL, err);
    if (constant) {
        if (n->input.n > 2 && n->input.v[2].n != 0) {
            OQ_TRY(pad_value(q, n, in, &made->input.v[2], err));
        } else if (n->input.n == 2) {
            /* 0 is the zero point. */
            OQ_TRY_ALLOC(oq_node_add_input(oq_qo_arena(q), made, in->zero), err);
        } else if (n->input.n > 2) {
            made->input.v[2] = in->zero;
        }
    } else if (n->input.n > 2) {
        made->input.v[2] = OQ_S(""); /* nothing reads it, and a float one has the wrong type */
    }
    OQ_TRY(oq_qo_output_like(q, n->output.v[0], "_quantized", in, &out, err));
    return oq_qo_emit_moved(q, made, in, out, err);
}
