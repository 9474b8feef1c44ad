/*
 * cv_lower.c — float operators between pairs as operators of integers: the rows of lift.def read from
 * right to left.
 *
 * A node whose inputs are dequantized and whose only reader quantizes again becomes the quantized
 * operator, if that has kernels for these types. Operators that move values become those of integers.
 * Everything else that stands between pairs is refused, or keeps them, which computes the same.
 */
#include "quantize/convert/cv.h"

/* A quantized operand: what DequantizeLinear reads. */
typedef struct operand {
    oq_str data;
    oq_cv_param param;
    oq_dtype type;
} operand;

static bool is_byte(oq_dtype t) {
    return t == OQ_UINT8 || t == OQ_INT8;
}

static oq_dtype zero_type(oq_cv_scope *s, const oq_cv_param *p) {
    const oq_tensor *t = oq_cv_constant(s, p->zero);
    return t != NULL ? (oq_dtype)t->data_type.v : OQ_UNDEFINED;
}

static bool has_float_scale(oq_cv_scope *s, const oq_cv_param *p, uint64_t *n) {
    const oq_tensor *t = oq_cv_constant(s, p->scale);
    onq_error ignored = ONQ_ERROR_INIT;
    return t != NULL && t->data_type.v == OQ_FLOAT && p->block == 0 &&
           oq_tensor_count(t, n, &ignored) == ONQ_OK;
}

/* The DequantizeLinear that makes a tensor; NULL. */
static const oq_node *dequantizer(const oq_cv_scope *s, oq_str name) {
    const oq_index *owner = &s->index;
    const oq_value *v = name.n > 0 ? oq_index_resolve(&owner, name) : NULL;
    const oq_node *n = v != NULL ? oq_value_node(owner, v) : NULL;
    return oq_node_is_dequantize(n) && n->input.n >= 2 ? n : NULL;
}

/* An 8-bit tensor with one scale, or with scales along `axis` (INT64_MIN: none are allowed). */
static bool find_operand(oq_cv_scope *s, oq_str name, int64_t axis, operand *out) {
    const oq_node *dq = dequantizer(s, name);
    uint64_t n = 0;
    if (dq == NULL)
        return false;
    *out = (operand){.data = dq->input.v[0], .param = oq_cv_param_of(dq)};
    out->type = zero_type(s, &out->param);
    if (!is_byte(out->type) || !has_float_scale(s, &out->param, &n))
        return false;
    if (n == 1)
        return true;
    const oq_tensor *t = oq_cv_constant(s, out->data);
    const int64_t rank = t != NULL ? (int64_t)t->dims.n : 0;
    const int64_t have = out->param.axis < 0 ? out->param.axis + rank : out->param.axis;
    return axis != INT64_MIN && t != NULL && have == (axis < 0 ? axis + rank : axis);
}

/* The only reader of the node's result, if that is a QuantizeLinear of one scale. */
static uint32_t quantizer(oq_cv_scope *s, oq_str name, oq_cv_param *p) {
    const oq_value *v = oq_index_find(&s->index, name);
    uint64_t n = 0;
    if (v == NULL || v->is_output || v->uses.n != 1 || v->uses.v[0].slot != 0)
        return OQ_NO_NODE;
    const oq_node *q = s->graph->node.v[v->uses.v[0].node];
    if (!oq_node_is_quantize(q) || q->input.n < 2 || q->output.n != 1)
        return OQ_NO_NODE;
    *p = oq_cv_param_of(q);
    return is_byte(zero_type(s, p)) && has_float_scale(s, p, &n) && n == 1 ? v->uses.v[0].node
                                                                           : OQ_NO_NODE;
}

/* ---- operators with a row ---- */

/* Why a node keeps its pairs. */
#define NO_OPERATOR   "it has no operator of integers"
#define NOT_QUANTIZED "its result is not quantized, to 8 bits and for no other reader"
#define OTHER_OPERAND "an input is not a tensor of 8 bits with one scale, or one for each channel"
#define OTHER_TYPES   "there are no kernels for its types"
#define OTHER_BIAS    "its bias is not int32, with the product of both scales as its scale"
#define OTHER_PARAMS  "it moves values from one scale and zero point to others"

/* The row by which a float operator is lowered. */
static const oq_cv_row *row_for(const oq_cv_scope *s, const oq_node *n) {
    for (size_t i = 0; i < oq_cv_row_count; i++) {
        const oq_cv_row *r = &oq_cv_rows[i];
        if (r->output < 0 || !oq_str_is(n->op_type, r->float_type) ||
            !oq_str_is(oq_domain_plain(n->domain), r->float_domain))
            continue;
        if (oq_str_is(n->op_type, "ReduceMean"))
            return NULL; /* its axes are an input since opset 18, the quantized one has attributes */
        if (oq_str_is(n->op_type, "Softmax") && s->cv->opset < 13)
            return NULL;
        if (oq_str_is(n->op_type, "Gemm") &&
            (oq_attr_float(n, "alpha", 1.0f) != 1.0f || oq_attr_float(n, "beta", 1.0f) != 1.0f))
            return NULL;
        return r;
    }
    return NULL;
}

/* An int32 bias whose scales are the products of those of input and weight. */
static bool find_bias(oq_cv_scope *s, oq_str name, const operand *x, const operand *w,
                      oq_str *out) {
    const oq_node *dq = dequantizer(s, name);
    onq_error ignored = ONQ_ERROR_INIT;
    float *a = NULL, *b = NULL, *c = NULL;
    int64_t *zero = NULL;
    size_t n_a = 0, n_b = 0, n_c = 0, n_zero = 0;
    oq_arena *mem = &s->cv->scratch;
    oq_model *m = s->cv->model;
    if (dq == NULL)
        return false;
    const oq_tensor *t = oq_cv_constant(s, dq->input.v[0]);
    oq_tensor *scale = oq_cv_constant(s, dq->input.v[1]);
    oq_tensor *z = oq_cv_constant(s, oq_node_input(dq, 2));
    if (t == NULL || t->data_type.v != OQ_INT32 || scale == NULL ||
        (z == NULL && oq_node_input(dq, 2).n > 0) ||
        oq_tensor_floats(m, oq_cv_constant(s, x->param.scale), mem, &a, &n_a, &ignored) != ONQ_OK ||
        oq_tensor_floats(m, oq_cv_constant(s, w->param.scale), mem, &b, &n_b, &ignored) != ONQ_OK ||
        oq_tensor_floats(m, scale, mem, &c, &n_c, &ignored) != ONQ_OK ||
        (z != NULL && oq_tensor_i64s(m, z, mem, &zero, &n_zero, &ignored) != ONQ_OK))
        return false;
    for (size_t i = 0; i < n_zero; i++)
        if (zero[i] != 0)
            return false;
    if (n_a != 1 || (n_c != n_b && n_c != 1 && n_b != 1))
        return false;
    for (size_t i = 0; i < n_b || i < n_c; i++)
        if (c[n_c == 1 ? 0 : i] != a[0] * b[n_b == 1 ? 0 : i])
            return false;
    *out = dq->input.v[0];
    return true;
}

/* What kernels there are: integers of one type; unsigned inputs take weights of either. */
static bool types_fit(oq_dtype x, oq_dtype w, oq_dtype y, bool weight) {
    return x == y && (w == x || (weight && x == OQ_UINT8));
}

#define MAX_SLOTS 9

static void put(oq_str in[MAX_SLOTS], const oq_cv_slot *slot, const operand *o) {
    in[slot->data] = o->data;
    in[slot->scale] = o->param.scale;
    in[slot->zero] = o->param.zero;
}

/* Fills the inputs of the quantized operator; where it does not take this node, returns why. */
static const char *gather_inputs(oq_cv_scope *s, const oq_node *n, const oq_cv_row *row,
                                 const oq_cv_param *y, oq_str in[MAX_SLOTS], size_t *count) {
    operand first = {0};
    const oq_dtype out = zero_type(s, y);
    for (size_t i = 0; i < OQ_CV_OPERANDS && row->in[i].kind != OQ_SLOT_NONE; i++) {
        const oq_cv_slot *slot = &row->in[i];
        const oq_str name = oq_node_input(n, i);
        operand o = {0};
        switch (slot->kind) {
        case OQ_SLOT_IN:
        case OQ_SLOT_WEIGHT:
            if (!find_operand(s, name,
                              slot->kind == OQ_SLOT_WEIGHT ? oq_cv_slot_axis(slot, n) : INT64_MIN,
                              &o))
                return OTHER_OPERAND;
            if (first.data.n == 0)
                first = o;
            if (!types_fit(first.type, o.type, out, slot->kind == OQ_SLOT_WEIGHT))
                return OTHER_TYPES;
            put(in, slot, &o);
            break;
        case OQ_SLOT_BIAS: {
            operand w = {0};
            if (name.n > 0 &&
                (!find_operand(s, oq_node_input(n, 1), oq_cv_slot_axis(&row->in[1], n), &w) ||
                 !find_bias(s, name, &first, &w, &in[slot->data])))
                return OTHER_BIAS;
            break;
        }
        default:
            in[slot->data] = name;
        }
        for (int k = 0; k < MAX_SLOTS; k++)
            if (in[k].n > 0 && *count < (size_t)k + 1)
                *count = (size_t)k + 1;
    }
    in[row->output] = y->scale;
    in[row->output + 1] = y->zero;
    if (*count < (size_t)row->output + 2)
        *count = (size_t)row->output + 2;
    return NULL;
}

static bool add_attributes(oq_cv_scope *s, oq_node *made) {
    oq_arena *a = s->cv->arena;
    if (oq_str_is(made->op_type, "QLinearSoftmax"))
        return oq_attr_set_int(a, made, OQ_S("opset"), s->cv->opset);
    if (oq_str_is(made->op_type, "QLinearGlobalAveragePool"))
        return oq_attr_set_int(a, made, OQ_S("channels_last"), 0);
    if (oq_str_is(made->op_type, "QGemm"))
        oq_attr_remove(made, "beta");
    return true;
}

/* A copy of the node as another one, called as quantizers call it. */
static oq_node *make(oq_cv_scope *s, const oq_node *n, const char *domain, const char *type) {
    oq_node *made = oq_cv_as(s, n, domain, type);
    if (made != NULL && n->name.n > 0)
        made->name = oq_fresh_node_of(&s->cv->names, n, "_quant");
    return made;
}

/* `made` takes the place of node n and of the nodes that quantize its outputs. */
static onq_code finish(oq_cv_scope *s, const oq_node *n, oq_node *made, onq_error *err) {
    oq_cv_param y;
    for (size_t i = 0; i < n->output.n; i++) {
        const uint32_t q = quantizer(s, n->output.v[i], &y);
        OQ_TRY_ALLOC(oq_node_add_output(s->cv->arena, made, s->graph->node.v[q]->output.v[0]), err);
        s->drop[q] = true;
    }
    OQ_TRY(oq_cv_replaced(s, n, err));
    return oq_cv_emit(s, made, err);
}

/* *why is set where the node cannot be lowered. */
static onq_code lower_row(oq_cv_scope *s, const oq_node *n, const oq_cv_row *row, const char **why,
                          onq_error *err) {
    oq_str in[MAX_SLOTS] = {{0}};
    oq_cv_param y;
    size_t count = 0;
    const uint32_t q = n->output.n == 1 ? quantizer(s, n->output.v[0], &y) : OQ_NO_NODE;
    *why = q == OQ_NO_NODE ? NOT_QUANTIZED : gather_inputs(s, n, row, &y, in, &count);
    if (*why != NULL)
        return ONQ_OK;
    oq_node *made = make(s, n, row->domain, row->type);
    OQ_TRY_ALLOC(made != NULL && add_attributes(s, made), err);
    for (size_t i = 0; i < count; i++)
        OQ_TRY_ALLOC(oq_node_add_input(s->cv->arena, made, in[i].p != NULL ? in[i] : OQ_S("")),
                     err);
    return finish(s, n, made, err);
}

static onq_code lower_concat(oq_cv_scope *s, const oq_node *n, const oq_cv_row *row,
                             const char **why, onq_error *err) {
    oq_cv_param y;
    operand o;
    const uint32_t q = n->output.n == 1 ? quantizer(s, n->output.v[0], &y) : OQ_NO_NODE;
    *why = q == OQ_NO_NODE ? NOT_QUANTIZED : NULL;
    for (size_t i = 0; *why == NULL && i < n->input.n; i++)
        if (!find_operand(s, n->input.v[i], INT64_MIN, &o))
            *why = OTHER_OPERAND;
        else if (o.type != zero_type(s, &y))
            *why = OTHER_TYPES;
    if (*why != NULL)
        return ONQ_OK;
    oq_node *made = make(s, n, row->domain, row->type);
    OQ_TRY_ALLOC(made != NULL && oq_node_add_input(s->cv->arena, made, y.scale) &&
                     oq_node_add_input(s->cv->arena, made, y.zero),
                 err);
    for (size_t i = 0; i < n->input.n; i++) {
        (void)find_operand(s, n->input.v[i], INT64_MIN, &o);
        OQ_TRY_ALLOC(oq_node_add_input(s->cv->arena, made, o.data) &&
                         oq_node_add_input(s->cv->arena, made, o.param.scale) &&
                         oq_node_add_input(s->cv->arena, made, o.param.zero),
                     err);
    }
    return finish(s, n, made, err);
}

/* ---- operators that move values ---- */

/* Those that compute the same with bytes, in every runtime since their opset. */
static bool moves_bytes(const oq_cv_scope *s, const oq_node *n) {
    static const struct {
        const char *type;
        int64_t since;
    } types[] = {{"Flatten", 9}, {"Gather", 1},    {"MaxPool", 12},  {"Pad", 13},
                 {"Reshape", 5}, {"Slice", 10},    {"Split", 2},     {"Squeeze", 11},
                 {"Tile", 6},    {"Transpose", 1}, {"Unsqueeze", 11}};
    for (size_t i = 0; oq_domain_is_onnx(n->domain) && i < OQ_COUNT(types); i++)
        if (oq_str_is(n->op_type, types[i].type))
            return s->cv->opset >= types[i].since;
    return oq_node_is(n, "Resize") && s->cv->opset >= 11 &&
           oq_str_is(oq_attr_str(n, "mode", "nearest"), "nearest");
}

/* What stands before pairs that follow each other, as many as there are. */
static oq_str before_pairs(const oq_cv_scope *s, oq_str name) {
    for (;;) {
        const oq_node *dq = dequantizer(s, name);
        const oq_node *q = dq != NULL ? oq_index_producer(&s->index, dq->input.v[0]) : NULL;
        if (!oq_node_is_quantize(q) || q->input.n == 0)
            return name;
        name = q->input.v[0];
    }
}

/* True for the constant 0.0, quantized or not. */
static bool is_zero(oq_cv_scope *s, oq_str name) {
    onq_error ignored = ONQ_ERROR_INIT;
    oq_span raw = {0};
    name = before_pairs(s, name);
    const oq_node *dq = dequantizer(s, name);
    if (dq != NULL)
        return oq_node_input(dq, 2).n > 0 && oq_cv_same(s, dq->input.v[0], dq->input.v[2]);
    oq_tensor *t = oq_cv_constant(s, name);
    return t != NULL && t->data_type.v == OQ_FLOAT &&
           oq_model_data(s->cv->model, t, &raw, &ignored) == ONQ_OK && raw.n == sizeof(float) &&
           oq_raw_get_real(OQ_FLOAT, raw.p, 0) == 0.0;
}

/* The integer that a Pad fills in: the zero point for 0, or what its value was quantized to. */
static bool find_pad_value(oq_cv_scope *s, const oq_node *n, const operand *o, oq_str *out) {
    const oq_str name = oq_node_input(n, 2);
    const oq_tensor *zero = oq_cv_constant(s, o->param.zero);
    operand value;
    *out = o->param.zero;
    if (name.n == 0 || is_zero(s, name))
        return zero != NULL && zero->dims.n == 0;
    if (!find_operand(s, name, INT64_MIN, &value))
        return false;
    *out = value.data;
    return oq_cv_same_params(s, &value.param, &o->param);
}

/* Why an operator cannot move integers; NULL: it can, those of *o. */
static const char *why_not_move(oq_cv_scope *s, const oq_node *n, operand *o) {
    oq_cv_param y;
    if (!moves_bytes(s, n) || n->input.n == 0 || (oq_node_is(n, "MaxPool") && n->output.n != 1))
        return NO_OPERATOR;
    if (!find_operand(s, n->input.v[0], INT64_MIN, o))
        return OTHER_OPERAND;
    for (size_t i = 0; i < n->output.n; i++)
        if (quantizer(s, n->output.v[i], &y) == OQ_NO_NODE)
            return NOT_QUANTIZED;
        else if (!oq_cv_same_params(s, &o->param, &y) || zero_type(s, &y) != o->type)
            return OTHER_PARAMS;
    oq_str value;
    return oq_node_is(n, "Pad") && !find_pad_value(s, n, o, &value) ? OTHER_OPERAND : NULL;
}

static onq_code lower_mover(oq_cv_scope *s, const oq_node *n, const char **why, onq_error *err) {
    operand o = {0};
    *why = why_not_move(s, n, &o);
    if (*why != NULL)
        return ONQ_OK;
    oq_node *made = oq_cv_as(s, n, "", oq_str_cstr(s->cv->arena, n->op_type));
    OQ_TRY_ALLOC(made != NULL, err);
    for (size_t i = 0; i < n->input.n; i++)
        OQ_TRY_ALLOC(oq_node_add_input(s->cv->arena, made, i == 0 ? o.data : n->input.v[i]), err);
    if (oq_node_is(n, "Pad")) {
        while (made->input.n < 3)
            OQ_TRY_ALLOC(oq_node_add_input(s->cv->arena, made, OQ_S("")), err);
        (void)find_pad_value(s, n, &o, &made->input.v[2]);
    }
    return finish(s, n, made, err);
}

/* True for an operator between pairs: one that reads what is dequantized, and has a quantized weight or
 * a result that is quantized. Others compute in float in both forms. */
static bool is_between(const oq_cv_scope *s, const oq_node *n) {
    bool reads = false, quantized = false;
    for (size_t i = 0; i < n->input.n; i++) {
        const oq_node *dq = dequantizer(s, n->input.v[i]);
        reads |= dq != NULL;
        quantized |= dq != NULL && oq_cv_constant(s, dq->input.v[0]) != NULL;
    }
    for (size_t i = 0; i < n->output.n; i++) {
        const oq_value *v = oq_index_find(&s->index, n->output.v[i]);
        for (size_t k = 0; v != NULL && k < v->uses.n; k++)
            quantized |=
                v->uses.v[k].slot == 0 && oq_node_is_quantize(s->graph->node.v[v->uses.v[k].node]);
    }
    return reads && quantized && !oq_node_is_pair(n);
}

onq_code oq_cv_to_qoperator(oq_cv_scope *s, onq_error *err) {
    const oq_graph *g = s->graph;
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        const char *why = NULL;
        if (s->drop[i])
            continue;
        if (is_between(s, n) && oq_cv_leave(s, n)) {
            OQ_TRY(oq_cv_emit(s, n, err));
            continue;
        }
        const oq_cv_row *row = row_for(s, n);
        if (row == NULL)
            OQ_TRY(lower_mover(s, n, &why, err));
        else
            OQ_TRY(row->in[0].kind == OQ_SLOT_REST ? lower_concat(s, n, row, &why, err)
                                                   : lower_row(s, n, row, &why, err));
        if (why != NULL && is_between(s, n))
            OQ_TRY(oq_cv_stays(s, n, why, err));
        if (why != NULL)
            OQ_TRY(oq_cv_emit(s, n, err));
    }
    return ONQ_OK;
}
