/*
 * cv_lift.c — every quantized operator as the float one between DequantizeLinear and QuantizeLinear.
 *
 * First the parameters of all quantized tensors are found: pairs and quantized operators name them,
 * and operators that only move values hand them on, in both directions. Then each node is replaced.
 */
#include "quantize/convert/cv.h"

#define IN(d, s, z)                                                                                \
    { OQ_SLOT_IN, d, s, z, 0 }
#define W(d, s, z, a)                                                                              \
    { OQ_SLOT_WEIGHT, d, s, z, a }
#define BIAS(d)                                                                                    \
    { OQ_SLOT_BIAS, d, -1, -1, 0 }
#define ASIS(d)                                                                                    \
    { OQ_SLOT_ASIS, d, -1, -1, 0 }
#define REST(d)                                                                                    \
    { OQ_SLOT_REST, d, -1, -1, 0 }
#define AXIS_GEMM OQ_AXIS_GEMM

const oq_cv_row oq_cv_rows[] = {
#define OQ_LIFT(domain, type, float_domain, float_type, output, ...)                               \
    {domain, type, float_domain, float_type, output, {__VA_ARGS__}},
#include "quantize/convert/lift.def"
#undef OQ_LIFT
};
const size_t oq_cv_row_count = OQ_COUNT(oq_cv_rows);

/* The row of a quantized operator, or NULL. */
static const oq_cv_row *row_of(const oq_node *n) {
    const oq_str domain = oq_domain_plain(n->domain);
    for (size_t i = 0; i < OQ_COUNT(oq_cv_rows); i++)
        if (oq_str_is(n->op_type, oq_cv_rows[i].type) && oq_str_is(domain, oq_cv_rows[i].domain))
            return &oq_cv_rows[i];
    return NULL;
}

int64_t oq_cv_slot_axis(const oq_cv_slot *in, const oq_node *n) {
    if (in->axis == OQ_AXIS_GEMM)
        return oq_gemm_turns_b(n) ? 0 : 1;
    return in->axis;
}

static const oq_cv_mover *mover_of(const oq_node *n) {
    static const oq_cv_mover movers[] = {
        {"ArgMax", false, true},        {"ArgMin", false, true},
        {"Concat", true, false},        {"DepthToSpace", false, false},
        {"Expand", false, false},       {"Flatten", false, false},
        {"Gather", false, false},       {"GatherElements", false, false},
        {"GatherND", false, false},     {"GlobalMaxPool", false, false},
        {"Identity", false, false},     {"Max", true, false},
        {"MaxPool", false, false},      {"Min", true, false},
        {"Pad", false, false},          {"ReduceMax", false, false},
        {"ReduceMin", false, false},    {"Reshape", false, false},
        {"Resize", false, false},       {"Slice", false, false},
        {"SpaceToDepth", false, false}, {"Split", false, false},
        {"Squeeze", false, false},      {"Tile", false, false},
        {"TopK", false, false},         {"Transpose", false, false},
        {"Unsqueeze", false, false},    {"Upsample", false, false},
    };
    for (size_t i = 0; oq_domain_is_onnx(n->domain) && i < OQ_COUNT(movers); i++)
        if (oq_str_is(n->op_type, movers[i].type))
            return &movers[i];
    return NULL;
}

/* ---- parameters ---- */

static oq_cv_param slot_param(const oq_node *n, const oq_cv_slot *in) {
    return (oq_cv_param){.scale = oq_node_input(n, (size_t)in->scale),
                         .zero = oq_node_input(n, (size_t)in->zero),
                         .axis = oq_cv_slot_axis(in, n)};
}

static oq_cv_param output_param(const oq_node *n, const oq_cv_row *row) {
    return (oq_cv_param){.scale = oq_node_input(n, (size_t)row->output),
                         .zero = oq_node_input(n, (size_t)row->output + 1),
                         .axis = 1};
}

static oq_cv_param rest_param(const oq_node *n, size_t at) {
    return (oq_cv_param){
        .scale = oq_node_input(n, at + 1), .zero = oq_node_input(n, at + 2), .axis = 1};
}

static onq_code know_row(oq_cv_scope *s, const oq_node *n, const oq_cv_row *row, onq_error *err) {
    for (size_t i = 0; i < OQ_CV_OPERANDS; i++) {
        const oq_cv_slot *in = &row->in[i];
        if (in->kind == OQ_SLOT_IN || in->kind == OQ_SLOT_WEIGHT) {
            const oq_cv_param p = slot_param(n, in);
            OQ_TRY(oq_cv_know(s, oq_node_input(n, (size_t)in->data), &p, err));
        }
        for (size_t k = (size_t)in->data; in->kind == OQ_SLOT_REST && k < n->input.n; k += 3) {
            const oq_cv_param p = rest_param(n, k);
            OQ_TRY(oq_cv_know(s, n->input.v[k], &p, err));
        }
    }
    if (row->output < 0 || oq_node_input(n, (size_t)row->output).n == 0 || n->output.n == 0)
        return ONQ_OK;
    const oq_cv_param p = output_param(n, row);
    return oq_cv_know(s, n->output.v[0], &p, err);
}

static onq_code know_node(oq_cv_scope *s, const oq_node *n, onq_error *err) {
    const oq_cv_row *row = row_of(n);
    if (row != NULL)
        return know_row(s, n, row, err);
    if (oq_op_traits_of(n->op_type)->kind == OQ_KIND_DYNAMIC && n->output.n == 3) {
        const oq_cv_param p = {.scale = n->output.v[1],
                               .zero = n->output.v[2],
                               .axis = 1,
                               .source = oq_node_input(n, 0)};
        return oq_cv_know(s, n->output.v[0], &p, err);
    }
    if (!oq_node_is_pair(n) || n->input.n < 2 || n->output.n == 0)
        return ONQ_OK;
    const oq_cv_param p = oq_cv_param_of(n);
    return oq_cv_know(s, oq_node_is_quantize(n) ? n->output.v[0] : n->input.v[0], &p, err);
}

static size_t data_inputs(const oq_cv_mover *m, const oq_node *n) {
    return m->all_in ? n->input.n : n->input.n > 0 ? 1 : 0;
}

static size_t data_outputs(const oq_cv_mover *m, const oq_node *n) {
    if (m->no_value)
        return 0;
    return oq_str_is(n->op_type, "Split") ? n->output.n : n->output.n > 0 ? 1 : 0;
}

static onq_code hand_on(oq_cv_scope *s, const oq_node *n, bool forward, onq_error *err) {
    const oq_cv_mover *m = mover_of(n);
    const oq_cv_param *p = NULL;
    if (m == NULL)
        return ONQ_OK;
    const size_t ins = data_inputs(m, n), outs = data_outputs(m, n);
    for (size_t i = 0; p == NULL && i < (forward ? ins : outs); i++)
        p = oq_cv_find(s, forward ? n->input.v[i] : n->output.v[i]);
    if (p == NULL)
        return ONQ_OK;
    const oq_cv_param copy = *p;
    for (size_t i = 0; i < (forward ? outs : ins); i++)
        OQ_TRY(oq_cv_know(s, forward ? n->output.v[i] : n->input.v[i], &copy, err));
    return ONQ_OK;
}

static onq_code know_all(oq_cv_scope *s, onq_error *err) {
    const oq_graph *g = s->graph;
    for (size_t i = 0; i < g->node.n; i++)
        OQ_TRY(know_node(s, g->node.v[i], err));
    for (size_t i = 0; i < g->node.n; i++)
        OQ_TRY(hand_on(s, g->node.v[i], true, err));
    for (size_t i = 0; i < g->node.n; i++)
        OQ_TRY(oq_cv_know_integer(s, g->node.v[i], err));
    for (size_t i = g->node.n; i-- > 0;)
        OQ_TRY(hand_on(s, g->node.v[i], false, err));
    return ONQ_OK;
}

/* ---- operators with a row ---- */

/* The scale of an int32 bias: the product of two scales, as a new constant. */
static onq_code bias_scale(oq_cv_scope *s, const oq_node *n, const oq_cv_param *x,
                           const oq_cv_param *w, oq_str bias, float alpha, oq_str *out,
                           onq_error *err) {
    oq_tensor *a = oq_cv_constant(s, x->scale), *b = oq_cv_constant(s, w->scale);
    float *xs = NULL, *ws = NULL;
    size_t n_x = 0, n_w = 0;
    if (a == NULL || b == NULL)
        return oq_cv_refuse(n, ONQ_E_UNSUPPORTED, err, "the scale of its bias '%.*s' is computed",
                            OQ_STR(bias));
    OQ_TRY(oq_tensor_floats(s->cv->model, a, &s->cv->scratch, &xs, &n_x, err));
    OQ_TRY(oq_tensor_floats(s->cv->model, b, &s->cv->scratch, &ws, &n_w, err));
    if (n_x != 1 || n_w == 0)
        return oq_cv_refuse(n, ONQ_E_INVALID, err, "its input has %zu scales", n_x);
    for (size_t i = 0; i < n_w; i++)
        ws[i] = xs[0] * ws[i] * alpha;
    const int64_t dim = (int64_t)n_w;
    *out = oq_cv_fresh(s, bias, "_quantized_scale");
    oq_tensor *t = oq_cv_init(s, (oq_str){0}, *out, OQ_FLOAT, &dim, n_w == 1 ? 0 : 1);
    OQ_TRY_ALLOC(t != NULL && oq_index_add_init(&s->index, t), err);
    return oq_tensor_set_raw(s->cv->arena, t, ws, n_w * sizeof *ws, err);
}

/* Where the channels of a weight lie, as a number that is not negative where the rank is known. */
static int64_t weight_axis(const oq_cv_scope *s, oq_str data, int64_t axis) {
    const oq_tensor *t = oq_cv_constant(s, data);
    return axis < 0 && t != NULL && t->dims.n > 0 ? axis + (int64_t)t->dims.n : axis;
}

static onq_code lift_operand(oq_cv_scope *s, const oq_node *n, const oq_cv_row *row, size_t i,
                             oq_node *made, onq_error *err) {
    const oq_cv_slot *in = &row->in[i];
    const oq_str data = oq_node_input(n, (size_t)in->data);
    oq_str out = data;
    oq_cv_param p = {0};
    if (data.n > 0 && (in->kind == OQ_SLOT_IN || in->kind == OQ_SLOT_WEIGHT)) {
        p = slot_param(n, in);
        if (p.scale.n == 0)
            return oq_cv_refuse(n, ONQ_E_INVALID, err, "tensor '%.*s' has no scale", OQ_STR(data));
        p.axis = weight_axis(s, data, p.axis);
        OQ_TRY(oq_cv_dequantize(s, data, &p, &out, err));
    } else if (data.n > 0 && in->kind == OQ_SLOT_BIAS) {
        const oq_cv_param x = slot_param(n, &row->in[0]), w = slot_param(n, &row->in[1]);
        OQ_TRY(bias_scale(s, n, &x, &w, data, oq_attr_float(n, "alpha", 1.0f), &p.scale, err));
        OQ_TRY(oq_cv_dequantize(s, data, &p, &out, err));
    }
    return oq_node_add_input(s->cv->arena, made, out) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code lift_rest(oq_cv_scope *s, const oq_node *n, size_t from, oq_node *made,
                          onq_error *err) {
    for (size_t k = from; k < n->input.n; k += 3) {
        const oq_cv_param p = rest_param(n, k);
        oq_str out = {0};
        if (p.scale.n == 0)
            return oq_cv_refuse(n, ONQ_E_INVALID, err, "tensor '%.*s' has no scale",
                                OQ_STR(n->input.v[k]));
        OQ_TRY(oq_cv_dequantize(s, n->input.v[k], &p, &out, err));
        OQ_TRY_ALLOC(oq_node_add_input(s->cv->arena, made, out), err);
    }
    return ONQ_OK;
}

/* Attributes that only the quantized operator has. */
static onq_code lift_attributes(const oq_cv_scope *s, const oq_node *n, oq_node *made,
                                onq_error *err) {
    const int64_t opset = oq_attr_int(n, "opset", s->cv->opset);
    if (oq_attr_int(n, "channels_last", 0) != 0)
        return oq_cv_refuse(n, ONQ_E_UNSUPPORTED, err, "its channels come last (channels_last)");
    if ((opset < 13) != (s->cv->opset < 13))
        return oq_cv_refuse(n, ONQ_E_UNSUPPORTED, err,
                            "it computes as in opset %lld, the model is of opset %lld",
                            (long long)opset, (long long)s->cv->opset);
    oq_attr_remove(made, "channels_last");
    oq_attr_remove(made, "opset");
    /* QGemm has no beta; exporters write it beside alpha. */
    if (oq_str_is(made->op_type, "Gemm") && oq_attr_find(n, "alpha") != NULL)
        OQ_TRY_ALLOC(oq_attr_set_float(s->cv->arena, made, OQ_S("beta"), 1.0f), err);
    return ONQ_OK;
}

/* Inputs that are left out at the end. */
static void trim(oq_node *n) {
    while (n->input.n > 0 && n->input.v[n->input.n - 1].n == 0)
        n->input.n--;
}

static onq_code lift_row(oq_cv_scope *s, const oq_node *n, const oq_cv_row *row, onq_error *err) {
    const bool quantized = row->output >= 0 && oq_node_input(n, (size_t)row->output).n > 0;
    oq_node *made = oq_cv_as(s, n, row->float_domain, row->float_type);
    OQ_TRY_ALLOC(made != NULL, err);
    for (size_t i = 0; i < OQ_CV_OPERANDS && row->in[i].kind != OQ_SLOT_NONE; i++)
        OQ_TRY(row->in[i].kind == OQ_SLOT_REST ? lift_rest(s, n, (size_t)row->in[i].data, made, err)
                                               : lift_operand(s, n, row, i, made, err));
    trim(made);
    OQ_TRY(lift_attributes(s, n, made, err));
    OQ_TRY(oq_cv_replaced(s, n, err));
    for (size_t i = 0; i < n->output.n; i++) {
        const oq_str out =
            i == 0 && quantized ? oq_cv_fresh(s, n->output.v[0], "") : n->output.v[i];
        OQ_TRY_ALLOC(oq_node_add_output(s->cv->arena, made, out), err);
    }
    OQ_TRY(oq_cv_emit(s, made, err));
    if (!quantized)
        return ONQ_OK;
    OQ_TRY_ALLOC(oq_map_put(&s->cv->lifted, made->output.v[0], 0), err);
    const oq_cv_param p = output_param(n, row);
    return oq_cv_quantize(s, made->output.v[0], &p, n->output.v[0], err);
}

/* ---- operators that move values ---- */

/* What a Pad of integers fills in: its third input, or the integer 0. */
static onq_code lift_pad(oq_cv_scope *s, const oq_node *n, oq_node *made, const oq_cv_param *p,
                         onq_error *err) {
    oq_str value = oq_node_input(n, 2);
    float scale = 0;
    int64_t zero = 0;
    oq_dtype type;
    if (!oq_str_is(oq_attr_str(n, "mode", "constant"), "constant"))
        return ONQ_OK;
    if (n->input.n < 2)
        return oq_cv_refuse(n, ONQ_E_UNSUPPORTED, err, "its padding is an attribute");
    if (value.n > 0 && oq_str_eq(value, p->zero)) {
        value = (oq_str){0}; /* the float 0, which it is without a value */
    } else if (value.n > 0) {
        OQ_TRY(oq_cv_dequantize(s, value, p, &value, err));
    } else {
        if (!oq_cv_scalar(s, p, &scale, &zero, &type))
            return oq_cv_refuse(n, ONQ_E_UNSUPPORTED, err,
                                "it pads with the integer 0, whose value is computed");
        const float x = (float)-zero * scale;
        value = oq_cv_fresh(s, n->output.v[0], "_pad_value");
        oq_tensor *t = oq_cv_init(s, (oq_str){0}, value, OQ_FLOAT, NULL, 0);
        OQ_TRY_ALLOC(t != NULL, err);
        OQ_TRY(oq_tensor_set_raw(s->cv->arena, t, &x, sizeof x, err));
    }
    while (made->input.n < 3)
        OQ_TRY_ALLOC(oq_node_add_input(s->cv->arena, made, OQ_S("")), err);
    made->input.v[2] = value;
    if (value.n == 0 && made->input.n == 3)
        made->input.n = 2;
    return ONQ_OK;
}

static onq_code lift_mover(oq_cv_scope *s, const oq_node *n, const oq_cv_mover *m, onq_error *err) {
    const size_t ins = data_inputs(m, n), outs = data_outputs(m, n);
    const oq_cv_param p = *oq_cv_find(s, n->input.v[0]);
    oq_node *made = oq_cv_as(s, n, "", m->type);
    OQ_TRY_ALLOC(made != NULL, err);
    if (oq_cv_has_many(s, p.scale))
        return oq_cv_refuse(n, ONQ_E_UNSUPPORTED, err,
                            "it moves tensor '%.*s', which has parameters for each channel",
                            OQ_STR(n->input.v[0]));
    for (size_t i = 0; i < n->input.n; i++) {
        oq_str in = n->input.v[i];
        const oq_cv_param *own = i < ins ? oq_cv_find(s, in) : NULL;
        if (i < ins && own != NULL && !oq_cv_same_params(s, own, &p))
            return oq_cv_refuse(n, ONQ_E_INVALID, err,
                                "tensors '%.*s' and '%.*s' have different parameters",
                                OQ_STR(n->input.v[0]), OQ_STR(in));
        if (i < ins)
            OQ_TRY(oq_cv_dequantize(s, in, &p, &in, err));
        OQ_TRY_ALLOC(oq_node_add_input(s->cv->arena, made, in), err);
    }
    if (oq_str_is(n->op_type, "Pad"))
        OQ_TRY(lift_pad(s, n, made, &p, err));
    for (size_t i = 0; i < n->output.n; i++)
        OQ_TRY_ALLOC(oq_node_add_output(s->cv->arena, made,
                                        i < outs && n->output.v[i].n > 0
                                            ? oq_cv_fresh(s, n->output.v[i], "")
                                            : n->output.v[i]),
                     err);
    OQ_TRY(oq_cv_emit(s, made, err));
    OQ_TRY(oq_cv_replaced(s, n, err));
    for (size_t i = 0; i < outs; i++)
        if (n->output.v[i].n > 0)
            OQ_TRY(oq_cv_quantize(s, made->output.v[i], &p, n->output.v[i], err));
    return ONQ_OK;
}

/* ---- all ---- */

static bool is_quantized(oq_cv_scope *s, const oq_node *n, const oq_cv_mover *m) {
    return m != NULL && n->input.n > 0 && n->input.v[0].n > 0 &&
           oq_cv_find(s, n->input.v[0]) != NULL;
}

/* True for quantized operators without a row. */
static bool has_rule(const oq_node *n) {
    const oq_op_traits *t = oq_op_traits_of(n->op_type);
    return t->form != OQ_FORM_FLOAT && t->kind != OQ_KIND_DYNAMIC && !oq_node_is_pair(n);
}

static onq_code lift_node(oq_cv_scope *s, uint32_t at, onq_error *err) {
    oq_node *n = s->graph->node.v[at];
    const oq_cv_row *row = row_of(n);
    const oq_cv_mover *m = mover_of(n);
    bool done = false;
    if (s->drop[at])
        return ONQ_OK;
    if ((row != NULL || is_quantized(s, n, m) || has_rule(n)) && oq_cv_leave(s, n))
        return oq_cv_emit(s, n, err);
    if (row != NULL)
        return lift_row(s, n, row, err);
    if (is_quantized(s, n, m))
        return lift_mover(s, n, m, err);
    OQ_TRY(oq_cv_lift_integer(s, at, &done, err));
    if (!done)
        OQ_TRY(oq_cv_lift_weights(s, at, &done, err));
    if (done)
        return ONQ_OK;
    const oq_form form = oq_op_traits_of(n->op_type)->form;
    if (form != OQ_FORM_FLOAT && oq_op_traits_of(n->op_type)->kind != OQ_KIND_DYNAMIC)
        return oq_cv_refuse(n, ONQ_E_UNSUPPORTED, err, "it has no counterpart in this form");
    return oq_cv_emit(s, n, err);
}

onq_code oq_cv_lift(oq_cv_scope *s, onq_error *err) {
    OQ_TRY(know_all(s, err));
    for (uint32_t i = 0; i < s->graph->node.n; i++)
        OQ_TRY(lift_node(s, i, err));
    return ONQ_OK;
}
