/*
 * trained_match.c — recognises fake quantization, from its last node backwards.
 */
#include "quantize/trained/trained_parts.h"

#include "onnx/operators.h"
#include "quantize/number/qtype.h"

static const oq_node *node_at(const oq_trained_look *l, uint32_t i) {
    return l->ix.graph->node.v[i];
}

static oq_tensor *constant(const oq_trained_look *l, oq_str name) {
    return name.n != 0 ? oq_index_init(&l->ix, name) : NULL;
}

static bool is_real(const oq_tensor *t) {
    return t != NULL && (t->data_type.v == OQ_FLOAT || t->data_type.v == OQ_FLOAT16);
}

static bool type_fits(const oq_trained_look *l, oq_dtype type) {
    const oq_qtype_info *info = oq_qtype_find(type);
    return info != NULL && !info->is_float && (l->any_type || type == OQ_INT8 || type == OQ_UINT8);
}

static onq_code check_scales(const oq_node *n, const float *v, size_t count, onq_error *err) {
    for (size_t i = 0; i < count; i++)
        if (!isfinite(v[i]) || v[i] <= 0.0f)
            return oq_fail(
                err, ONQ_E_INVALID,
                "node '%.*s' (%.*s): scale %zu is %g, but a trained scale must be positive",
                OQ_STR(oq_node_label(n)), OQ_STR(n->op_type), i, (double)v[i]);
    return ONQ_OK;
}

/* ---- QuantizeLinear and DequantizeLinear ---- */

typedef struct linear {
    float *scale;
    int64_t *zero;
    size_t n;
    int64_t axis;
    oq_dtype type, real;
} linear;

/* The parameters of a QuantizeLinear or DequantizeLinear; found is false when they are not
 * constant. */
static onq_code read_linear(const oq_trained_look *l, const oq_node *n, oq_dtype bare, linear *out,
                            bool *found, onq_error *err) {
    oq_tensor *scale = constant(l, oq_node_input(n, 1)), *zero = constant(l, oq_node_input(n, 2));
    size_t n_zero = 0;
    *found = false;
    if (!is_real(scale) || scale->dims.n > 1 || (oq_node_input(n, 2).n != 0 && zero == NULL) ||
        oq_attr_int(n, "block_size", 0) != 0)
        return ONQ_OK;
    OQ_TRY(oq_tensor_floats(l->model, scale, l->arena, &out->scale, &out->n, err));
    OQ_TRY(check_scales(n, out->scale, out->n, err));
    out->type = zero != NULL ? (oq_dtype)zero->data_type.v : bare;
    out->real = (oq_dtype)scale->data_type.v;
    out->axis = out->n > 1 ? oq_attr_int(n, "axis", 1) : -1;
    if (oq_qtype_find(out->type) == NULL && out->type != OQ_INT32)
        return ONQ_OK;
    if (zero != NULL && out->type != OQ_INT32 && oq_qtype_find(out->type)->is_float)
        return ONQ_OK;
    if (zero != NULL) {
        OQ_TRY(oq_tensor_i64s(l->model, zero, l->arena, &out->zero, &n_zero, err));
    } else {
        out->zero = OQ_NEW_ARRAY(l->arena, int64_t, out->n);
        n_zero = out->n;
        OQ_TRY_ALLOC(out->zero != NULL, err);
    }
    if (n_zero != out->n)
        return oq_fail(
            err, ONQ_E_INVALID,
            "node '%.*s' (%.*s): it has %zu scales and %zu zero points, which must be equally many",
            OQ_STR(oq_node_label(n)), OQ_STR(n->op_type), out->n, n_zero);
    *found = out->n > 0;
    return ONQ_OK;
}

static void take_linear(const linear *p, oq_trained_fake *out) {
    out->scale = p->scale;
    out->zero = p->zero;
    out->n = p->n;
    out->axis = p->axis;
    out->type = p->type;
    out->real = p->real;
}

bool oq_trained_same(const oq_trained_fake *a, const oq_trained_fake *b) {
    if (a->n != b->n || a->type != b->type || a->axis != b->axis)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (a->scale[i] != b->scale[i] || a->zero[i] != b->zero[i])
            return false;
    return true;
}

static bool same_linear(const linear *a, const linear *b) {
    oq_trained_fake x = {0}, y = {0};
    take_linear(a, &x);
    take_linear(b, &y);
    return oq_trained_same(&x, &y);
}

static onq_code match_linear(oq_trained_look *l, uint32_t i, oq_trained_fake *out, bool *found,
                             onq_error *err) {
    const oq_node *dq = node_at(l, i);
    const oq_value *v = oq_index_find(&l->ix, oq_node_input(dq, 0));
    oq_tensor *ints = constant(l, oq_node_input(dq, 0));
    linear after = {0}, before = {0};
    *found = false;
    if (ints != NULL) {
        OQ_TRY(read_linear(l, dq, (oq_dtype)ints->data_type.v, &after, found, err));
        if (!*found)
            return ONQ_OK;
        out->ints = ints;
        *found = after.real == OQ_FLOAT && (after.type == OQ_INT32 || type_fits(l, after.type)) &&
                 after.type == (oq_dtype)ints->data_type.v;
    } else {
        const oq_node *q = oq_value_node(&l->ix, v);
        if (!oq_node_is_quantize(q) || !oq_domain_is_onnx(q->domain))
            return ONQ_OK;
        const oq_dtype bare = (oq_dtype)oq_attr_int(q, "output_dtype", OQ_UINT8);
        OQ_TRY(read_linear(l, q, bare == OQ_UNDEFINED ? OQ_UINT8 : bare, &before, found, err));
        if (!*found)
            return ONQ_OK;
        OQ_TRY(read_linear(l, dq, before.type, &after, found, err));
        *found = *found && same_linear(&before, &after) && type_fits(l, before.type) &&
                 (after.n == 1 || constant(l, oq_node_input(q, 0)) != NULL);
        out->in = oq_node_input(q, 0);
        out->nodes[out->n_nodes++] = v->producer;
    }
    out->nodes[out->n_nodes++] = i;
    take_linear(&after, out);
    return ONQ_OK;
}

/* ---- chains of plain operators ---- */

typedef struct chain {
    oq_tensor *scale, *inverse, *added, *subtracted;
    bool round, clip;
    double low_value, high_value;
} chain;

/* The operand of a node that is constant, and the other one. */
static oq_tensor *split_operands(const oq_trained_look *l, const oq_node *n, bool either,
                                 oq_str *other) {
    oq_tensor *t = constant(l, oq_node_input(n, 1));
    *other = oq_node_input(n, 0);
    if (t == NULL && either) {
        t = constant(l, oq_node_input(n, 0));
        *other = oq_node_input(n, 1);
    }
    return is_real(t) ? t : NULL;
}

/* The node that makes `name`, if nothing else reads it; OQ_NO_NODE otherwise. */
static uint32_t only_maker(const oq_trained_look *l, oq_str name) {
    const oq_value *v = oq_index_find(&l->ix, name);
    return v == NULL || v->uses.n != 1 || v->is_output || v->init != NULL ? OQ_NO_NODE
                                                                          : v->producer;
}

static onq_code one_number(const oq_trained_look *l, oq_tensor *t, double *out, bool *found,
                           onq_error *err) {
    float *v = NULL;
    size_t n = 0;
    *found = false;
    if (!is_real(t))
        return ONQ_OK;
    OQ_TRY(oq_tensor_floats(l->model, t, l->arena, &v, &n, err));
    *found = n == 1;
    if (n == 1)
        *out = (double)v[0];
    return ONQ_OK;
}

/* Clip with both bounds, as attributes (before opset 11) or inputs. */
static onq_code read_clip(const oq_trained_look *l, const oq_node *n, chain *c, bool *found,
                          onq_error *err) {
    const oq_attribute *low = oq_attr_find(n, "min"), *high = oq_attr_find(n, "max");
    *found = low != NULL && high != NULL;
    if (*found) {
        c->low_value = (double)low->f.v;
        c->high_value = (double)high->f.v;
        return ONQ_OK;
    }
    OQ_TRY(one_number(l, constant(l, oq_node_input(n, 1)), &c->low_value, found, err));
    if (*found)
        OQ_TRY(one_number(l, constant(l, oq_node_input(n, 2)), &c->high_value, found, err));
    return ONQ_OK;
}

/* Goes back from the last Mul; `at` ends at the tensor that is quantized. */
static onq_code walk_chain(oq_trained_look *l, chain *c, oq_str *at, oq_trained_fake *out,
                           bool *found, onq_error *err) {
    *found = false;
    while (out->n_nodes < OQ_TRAINED_NODES - 1) {
        const uint32_t i = only_maker(l, *at);
        if (i == OQ_NO_NODE)
            return ONQ_OK;
        const oq_node *n = node_at(l, i);
        bool ok = false;
        out->nodes[out->n_nodes++] = i;
        if (oq_node_is(n, "Sub") && !c->clip && !c->round && c->subtracted == NULL) {
            c->subtracted = split_operands(l, n, false, at);
            ok = c->subtracted != NULL;
        } else if (oq_node_is(n, "Clip") && !c->clip && c->added == NULL) {
            c->clip = true;
            OQ_TRY(read_clip(l, n, c, &ok, err));
            *at = oq_node_input(n, 0);
        } else if (oq_node_is(n, "Round") && !c->round) {
            c->round = ok = true;
            *at = oq_node_input(n, 0);
        } else if (oq_node_is(n, "Add") && c->added == NULL && (c->clip || c->round)) {
            c->added = split_operands(l, n, true, at);
            ok = c->added != NULL;
        } else if (oq_node_is(n, "Div") || oq_node_is(n, "Mul")) {
            c->inverse = split_operands(l, n, oq_node_is(n, "Mul"), at);
            *found = c->inverse != NULL && c->clip && c->round;
            return ONQ_OK;
        }
        if (!ok)
            return ONQ_OK;
    }
    return ONQ_OK;
}

/* The constant as one number for each channel, or one for all. */
static onq_code spread(const oq_trained_look *l, oq_tensor *t, size_t n, const float **out,
                       bool *found, onq_error *err) {
    float *v = NULL;
    size_t count = 0;
    OQ_TRY(oq_tensor_floats(l->model, t, l->arena, &v, &count, err));
    *found = count == n;
    *out = v;
    if (count == 1 && n > 1) {
        float *many = OQ_NEW_ARRAY(l->arena, float, n);
        OQ_TRY_ALLOC(many != NULL, err);
        for (size_t i = 0; i < n; i++)
            many[i] = v[0];
        *out = many;
        *found = true;
    }
    return ONQ_OK;
}

/* The axis along which a constant of n > 1 values lies in a tensor of that rank; -1 when there is
 * none. */
static int64_t axis_of(const oq_tensor *t, size_t rank) {
    int64_t axis = -1;
    for (size_t i = 0; i < t->dims.n; i++) {
        if (t->dims.v[i] == 1)
            continue;
        if (axis >= 0 || t->dims.n > rank)
            return -1;
        axis = (int64_t)(rank - t->dims.n + i);
    }
    return axis;
}

/* Type and zero points from the bounds of Clip. */
static bool settle_chain(const chain *c, const float *zero, size_t n, int64_t *zeros,
                         oq_dtype *type) {
    const double low = c->low_value, width = c->high_value - c->low_value;
    if (rint(low) != low || (width != 255.0 && !(width == 254.0 && low == -127.0)))
        return false;
    if (zero == NULL) {
        /* Clip is in steps from zero: its lower bound says where zero is. */
        const bool is_signed = low == -128.0 || low == -127.0;
        if (!is_signed && (low > 0.0 || low < -255.0))
            return false;
        *type = is_signed ? OQ_INT8 : OQ_UINT8;
        for (size_t i = 0; i < n; i++)
            zeros[i] = is_signed ? 0 : (int64_t)-low;
        return true;
    }
    if (low != 0.0 && low != -128.0 && low != -127.0)
        return false;
    *type = low == 0.0 ? OQ_UINT8 : OQ_INT8;
    for (size_t i = 0; i < n; i++) {
        const double z = (double)zero[i];
        if (rint(z) != z || z < low || z > c->high_value)
            return false;
        zeros[i] = (int64_t)z;
    }
    return true;
}

static bool is_inverse(bool divides, float scale, float factor) {
    return divides ? scale == factor : fabs((double)scale * (double)factor - 1.0) < 1e-5;
}

static onq_code read_chain(oq_trained_look *l, const chain *c, const oq_node *first,
                           oq_trained_fake *out, bool *found, onq_error *err) {
    float *scale = NULL;
    const float *factor = NULL, *added = NULL, *subtracted = NULL;
    const oq_tensor *in = constant(l, out->in);
    OQ_TRY(oq_tensor_floats(l->model, c->scale, l->arena, &scale, &out->n, err));
    *found = out->n > 0;
    if (*found)
        OQ_TRY(spread(l, c->inverse, out->n, &factor, found, err));
    if (*found && c->added != NULL)
        OQ_TRY(spread(l, c->added, out->n, &added, found, err));
    if (*found && c->subtracted != NULL)
        OQ_TRY(spread(l, c->subtracted, out->n, &subtracted, found, err));
    *found = *found && (c->added == NULL) == (c->subtracted == NULL);
    for (size_t i = 0; *found && i < out->n; i++)
        *found = is_inverse(oq_node_is(first, "Div"), scale[i], factor[i]) &&
                 (added == NULL || added[i] == subtracted[i]);
    int64_t *zeros = OQ_NEW_ARRAY(l->arena, int64_t, out->n);
    OQ_TRY_ALLOC(zeros != NULL, err);
    *found = *found && settle_chain(c, added, out->n, zeros, &out->type);
    out->scale = scale;
    out->zero = zeros;
    out->real = (oq_dtype)c->scale->data_type.v;
    out->axis = out->n > 1 && in != NULL ? axis_of(c->scale, in->dims.n) : -1;
    *found = *found && (out->n == 1 || out->axis >= 0);
    return *found ? check_scales(first, scale, out->n, err) : ONQ_OK;
}

static onq_code match_chain(oq_trained_look *l, uint32_t i, oq_trained_fake *out, bool *found,
                            onq_error *err) {
    chain c = {0};
    oq_str at = {0};
    *found = false;
    c.scale = split_operands(l, node_at(l, i), true, &at);
    if (c.scale == NULL)
        return ONQ_OK;
    OQ_TRY(walk_chain(l, &c, &at, out, found, err));
    if (!*found)
        return ONQ_OK;
    out->in = at;
    const oq_node *first = node_at(l, out->nodes[out->n_nodes - 1]);
    out->nodes[out->n_nodes++] = i;
    return read_chain(l, &c, first, out, found, err);
}

/* ---- Quant of qonnx ---- */

static onq_code match_quant(oq_trained_look *l, uint32_t i, oq_trained_fake *out, bool *found,
                            onq_error *err) {
    const oq_node *n = node_at(l, i);
    oq_tensor *scale = constant(l, oq_node_input(n, 1)), *zero = constant(l, oq_node_input(n, 2));
    const oq_tensor *in = constant(l, oq_node_input(n, 0));
    double bits = 0;
    float *v = NULL;
    const float *z = NULL;
    const oq_str rounding = oq_attr_str(n, "rounding_mode", "ROUND");
    *found = false;
    if (!is_real(scale) || !is_real(zero) || !oq_str_is(rounding, "ROUND"))
        return ONQ_OK;
    OQ_TRY(one_number(l, constant(l, oq_node_input(n, 3)), &bits, found, err));
    if (!*found || bits != 8.0) {
        *found = false;
        return ONQ_OK;
    }
    OQ_TRY(oq_tensor_floats(l->model, scale, l->arena, &v, &out->n, err));
    OQ_TRY(spread(l, zero, out->n, &z, found, err));
    int64_t *zeros = OQ_NEW_ARRAY(l->arena, int64_t, out->n);
    OQ_TRY_ALLOC(zeros != NULL, err);
    const bool is_signed = oq_attr_int(n, "signed", 1) != 0;
    const chain c = {.low_value = is_signed ? -128.0 : 0.0,
                     .high_value = is_signed ? 127.0 : 255.0};
    *found = *found && out->n > 0 && settle_chain(&c, z, out->n, zeros, &out->type);
    out->in = oq_node_input(n, 0);
    out->scale = v;
    out->zero = zeros;
    out->real = (oq_dtype)scale->data_type.v;
    out->axis = out->n > 1 && in != NULL ? axis_of(scale, in->dims.n) : -1;
    out->nodes[out->n_nodes++] = i;
    *found = *found && (out->n == 1 || out->axis >= 0);
    return *found ? check_scales(n, v, out->n, err) : ONQ_OK;
}

/* ---- all ---- */

static bool is_quant(const oq_node *n) {
    return oq_str_is(n->op_type, "Quant") &&
           (oq_str_starts(n->domain, OQ_S("qonnx")) || oq_str_is(n->domain, "onnx.brevitas") ||
            oq_str_starts(n->domain, OQ_S("finn")));
}

onq_code oq_trained_match(oq_trained_look *l, uint32_t i, oq_trained_fake *out, bool *found,
                          onq_error *err) {
    const oq_node *n = node_at(l, i);
    *out = (oq_trained_fake){.axis = -1};
    *found = false;
    if (n->output.n == 0 || n->input.n < 2)
        return ONQ_OK;
    out->out = n->output.v[0];
    if (oq_node_is_dequantize(n) && oq_domain_is_onnx(n->domain))
        return match_linear(l, i, out, found, err);
    if (oq_node_is(n, "Mul"))
        return match_chain(l, i, out, found, err);
    return is_quant(n) ? match_quant(l, i, out, found, err) : ONQ_OK;
}
