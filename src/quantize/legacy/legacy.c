/*
 * legacy.c — the four modes of the first quantization tool.
 */
#include "quantize/legacy/legacy.h"

#include "base/text/nearest.h"
#include "onnx/check/check.h"
#include "onnx/edit.h"
#include "onnx/names.h"
#include "onnx/operators.h"
#include "quantize/number/qweight.h"
#include "quantize/ort/stamp.h"
#include "shape/shape.h"

/* A tensor in quantized form: names. */
typedef struct triple {
    oq_str q, scale, zero;
    uint64_t n;          /* scales */
    const float *scales; /* of a weight */
} triple;

typedef struct pass {
    const oq_legacy_job *job;
    oq_model *m;
    oq_graph *g;
    oq_arena *scratch, *keep;
    oq_index ix;
    oq_fresh names;
    int64_t opset;
    oq_map done; /* input or weight -> index in triples */
    OQ_VEC(triple) triples;
    OQ_VEC(oq_node *) out;         /* all nodes that the graph will have */
    OQ_VEC(oq_tensor *) new_inits; /* and the initializers that it will get */
} pass;

static bool is_static(const pass *p) {
    return p->job->mode == OQ_LEGACY_INTEGER_STATIC || p->job->mode == OQ_LEGACY_QLINEAR_STATIC;
}

static bool is_qlinear(const pass *p) {
    return p->job->mode >= OQ_LEGACY_QLINEAR_STATIC;
}

/* ---- emitting ---- */

static oq_str name_of(pass *p, oq_str base, const char *suffix) {
    return oq_fresh_tensor(&p->names, base, suffix);
}

/* Emits op(in...) -> out by a node of that name, or a new one; `attr` may be NULL. */
static onq_code emit(pass *p, const char *op, oq_str node_name, const oq_str *in, size_t n_in,
                     oq_str out, const char *attr, int64_t value, onq_error *err) {
    const oq_str name = oq_fresh_node(&p->names, node_name, "");
    oq_node *n = oq_node_make(p->keep, op, name, in, n_in, &out, 1);
    if (n == NULL || p->names.failed ||
        (attr != NULL && !oq_attr_set_int(p->keep, n, oq_str_of(attr), value)) ||
        !OQ_PUSH(p->scratch, &p->out, n))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

/* The same with a fresh output <base><suffix>, which *out gets. */
static onq_code step(pass *p, const char *op, oq_str base, const char *suffix, oq_str a, oq_str b,
                     oq_str *out, onq_error *err) {
    const oq_str in[2] = {a, b};
    *out = name_of(p, base, suffix);
    return emit(p, op, *out, in, b.p != NULL ? 2 : 1, *out, NULL, 0, err);
}

static onq_code add_tensor(pass *p, oq_tensor *t, onq_error *err) {
    return t != NULL && OQ_PUSH(p->scratch, &p->new_inits, t) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code add_real(pass *p, oq_str base, const char *suffix, double v, oq_str *out,
                         onq_error *err) {
    *out = name_of(p, base, suffix);
    oq_tensor *t = oq_tensor_new(p->keep, *out, OQ_FLOAT, NULL, 0);
    OQ_TRY_ALLOC(out->p != NULL && t != NULL, err);
    OQ_TRY(oq_tensor_set_typed_f(p->keep, t, &v, 1, err));
    return add_tensor(p, t, err);
}

static onq_code add_zero(pass *p, oq_str base, oq_dtype type, int64_t v, oq_str *out,
                         onq_error *err) {
    *out = name_of(p, base, "_zero_point");
    oq_tensor *t = oq_tensor_new(p->keep, *out, type, NULL, 0);
    OQ_TRY_ALLOC(out->p != NULL && t != NULL, err);
    OQ_TRY(oq_tensor_set_typed_i(p->keep, t, &v, 1, err));
    return add_tensor(p, t, err);
}

/* ---- inputs ---- */

static onq_code planned(const oq_given *plan, oq_str tensor, oq_qparam *out, onq_error *err) {
    const oq_plan_tensor *row = oq_given_activation(plan, tensor, false);
    if (row == NULL || row->scale == NULL || row->type != OQ_UINT8)
        return oq_fail(err, ONQ_E_CONFIG, "%s has no uint8 parameters for tensor '%.*s'",
                       plan->path, OQ_STR(tensor));
    *out = (oq_qparam){row->scale[0], row->zero[0]};
    return ONQ_OK;
}

static onq_code given(pass *p, oq_legacy_params *params, const char *option, oq_str tensor,
                      const oq_node *n, oq_qparam *out, onq_error *err) {
    if (p->job->given != NULL)
        return planned(p->job->given, tensor, out, err);
    const uint32_t i = oq_map_find(&params->map, tensor);
    oq_nearest near;
    if (i != OQ_MAP_NONE) {
        params->all.v[i].used = true;
        *out = params->all.v[i].q;
        return ONQ_OK;
    }
    oq_nearest_init(&near, tensor);
    for (size_t k = 0; k < params->all.n; k++)
        oq_nearest_offer(&near, params->all.v[k].name);
    const bool any = near.n > 0;
    return oq_fail(
        err, ONQ_E_CONFIG,
        "%s%s has no parameters for tensor '%.*s', which node '%.*s' (%.*s) needs%s%.*s%s",
        params->path != NULL ? params->path : "--", params->path != NULL ? "" : option,
        OQ_STR(tensor), OQ_STR(n->name), OQ_STR(n->op_type), any ? " (it has '" : "",
        OQ_STR(any ? near.best[0] : OQ_S("")), any ? "')" : "");
}

/* Scale and zero point by plain operators: opset 10 has no DynamicQuantizeLinear. The range is
 * widened to hold 0, and a range of nothing gets a tiny scale. */
static onq_code decomposed(pass *p, oq_str x, triple *t, onq_error *err) {
    const oq_str none = {0};
    oq_str lo, hi, zero, tiny, range, half, w, s, z, f, c;
    const oq_str in = x;
    lo = name_of(p, x, "_ReduceMin");
    OQ_TRY(emit(p, "ReduceMin", lo, &in, 1, lo, "keepdims", 0, err));
    hi = name_of(p, x, "_ReduceMax");
    OQ_TRY(emit(p, "ReduceMax", hi, &in, 1, hi, "keepdims", 0, err));
    OQ_TRY(add_real(p, x, "_fixed_zero", 0.0, &zero, err));
    OQ_TRY(add_real(p, x, "_smallest_scale", 1e-30, &tiny, err));
    OQ_TRY(add_real(p, x, "_quantization_range", 255.0, &range, err));
    OQ_TRY(add_real(p, x, "_half", 0.5, &half, err));
    OQ_TRY(step(p, "Min", x, "_lowest", lo, zero, &lo, err));
    OQ_TRY(step(p, "Max", x, "_highest", hi, zero, &hi, err));
    OQ_TRY(step(p, "Sub", x, "_width", hi, lo, &w, err));
    OQ_TRY(step(p, "Div", x, "_scale_raw", w, range, &s, err));
    OQ_TRY(step(p, "Max", x, "_scale", s, tiny, &t->scale, err));
    OQ_TRY(step(p, "Sub", x, "_below", zero, lo, &z, err));
    OQ_TRY(step(p, "Div", x, "_zero_point_raw", z, t->scale, &z, err));
    OQ_TRY(step(p, "Add", x, "_zero_point_up", z, half, &f, err));
    OQ_TRY(step(p, "Floor", x, "_zero_point_floor", f, none, &c, err));
    OQ_TRY(step(p, "Min", x, "_zero_point_clip", c, range, &c, err));
    t->zero = name_of(p, x, "_zero_point");
    return emit(p, "Cast", t->zero, &c, 1, t->zero, "to", OQ_UINT8, err);
}

static onq_code plan_tensor(pass *p, oq_plan_tensor row, onq_error *err) {
    return oq_plan_add_tensor(p->job->plan, row) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code plan_computed(pass *p, oq_str name, onq_error *err) {
    const oq_plan_tensor row = {
        .name = name, .axis = -1, .computed = true, .why = "computed while the model runs"};
    return plan_tensor(p, row, err);
}

static onq_code plan_given(pass *p, oq_str name, oq_qparam q, onq_error *err) {
    const oq_plan_tensor row = {.name = name, .type = OQ_UINT8, .axis = -1, .why = "given"};
    return oq_plan_add_scalar(p->job->plan, row, q.scale, q.zero_point) ? ONQ_OK
                                                                        : oq_fail_nomem(err);
}

static onq_code remember(pass *p, oq_str name, triple t, onq_error *err) {
    if (!OQ_PUSH(p->scratch, &p->triples, t) ||
        !oq_map_put(&p->done, name, (uint32_t)(p->triples.n - 1)))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

static onq_code quantize_input(pass *p, const oq_node *n, oq_str x, triple *t, onq_error *err) {
    const uint32_t known = oq_map_find(&p->done, x);
    if (known != OQ_MAP_NONE) {
        *t = p->triples.v[known];
        return ONQ_OK;
    }
    *t = (triple){.q = name_of(p, x, "_quantized"), .n = 1};
    const oq_str node_name = oq_fresh_node(&p->names, x, "_QuantizeLinear");
    OQ_TRY_ALLOC(t->q.p != NULL && node_name.p != NULL, err);
    if (!is_static(p))
        OQ_TRY(plan_computed(p, x, err));
    if (!is_static(p) && p->opset >= 11) {
        t->scale = name_of(p, x, "_scale");
        t->zero = name_of(p, x, "_zero_point");
        const oq_str made[3] = {t->q, t->scale, t->zero};
        oq_node *d = oq_node_make(p->keep, OQ_DYNAMIC_QUANTIZE_LINEAR, node_name, &x, 1, made, 3);
        OQ_TRY_ALLOC(d != NULL && OQ_PUSH(p->scratch, &p->out, d), err);
        return remember(p, x, *t, err);
    }
    if (is_static(p)) {
        oq_qparam q = {0};
        OQ_TRY(given(p, p->job->inputs, "input_quantization_params", x, n, &q, err));
        OQ_TRY(plan_given(p, x, q, err));
        OQ_TRY(add_real(p, x, "_scale", (double)q.scale, &t->scale, err));
        OQ_TRY(add_zero(p, x, OQ_UINT8, q.zero_point, &t->zero, err));
    } else {
        OQ_TRY(decomposed(p, x, t, err));
    }
    const oq_str in[3] = {x, t->scale, t->zero};
    oq_node *made = oq_node_make(p->keep, OQ_QUANTIZE_LINEAR, node_name, in, 3, &t->q, 1);
    OQ_TRY_ALLOC(made != NULL && OQ_PUSH(p->scratch, &p->out, made), err);
    return remember(p, x, *t, err);
}

/* ---- weights ---- */

static onq_code planned_weight(oq_given *plan, const oq_tensor *w, oq_dtype type, oq_qparams *q,
                               onq_error *err) {
    const oq_plan_tensor *row = oq_given_weight(plan, w->name, OQ_ROLE_WEIGHT);
    if (row == NULL || row->n != q->n || row->type != type)
        return oq_fail(err, ONQ_E_CONFIG, "%s does not have %llu scales of type %s for it",
                       plan->path, (unsigned long long)q->n, oq_qtype_name(type));
    memcpy(q->scale, row->scale, (size_t)q->n * sizeof *q->scale);
    memcpy(q->zero, row->zero, (size_t)q->n * sizeof *q->zero);
    return ONQ_OK;
}

static onq_code weight_params(pass *p, oq_tensor *w, bool channels, oq_qweight *qw, oq_qparams *q,
                              oq_dtype type, onq_error *err) {
    const oq_qspec spec = {.type = channels ? OQ_INT8 : type,
                           .real = OQ_FLOAT,
                           .symmetric = channels || type == OQ_INT8};
    OQ_TRY(
        oq_qweight_init(qw, p->m, w, channels ? OQ_QGROUP_CHANNEL : OQ_QGROUP_TENSOR, 0, 0, err));
    OQ_TRY(oq_qparams_init(q, p->keep, qw->n_params, err));
    if (p->job->given != NULL)
        return planned_weight(p->job->given, w, type, q, err);
    OQ_TRY(oq_qweight_params(qw, &spec, NULL, &p->m->env->alloc, q, err));
    /* One zero point for all channels: the middle of uint8. */
    for (uint64_t i = 0; channels && type == OQ_UINT8 && i < q->n; i++)
        q->zero[i] = 128;
    return ONQ_OK;
}

/* Scales as [C, 1, 1, ...] after an integer operator, as [C] in a QLinear one, or as a scalar. */
static onq_code add_scales(pass *p, const oq_tensor *w, const oq_qparams *q, bool channels,
                           oq_str *out, onq_error *err) {
    int64_t dims[16] = {(int64_t)q->n};
    size_t rank = channels ? 1 : 0;
    if (channels && !is_qlinear(p))
        for (; rank + 1 < w->dims.n && rank < OQ_COUNT(dims); rank++)
            dims[rank] = 1;
    *out = name_of(p, w->name, "_scale");
    oq_tensor *t = oq_tensor_new(p->keep, *out, OQ_FLOAT, dims, rank);
    OQ_TRY_ALLOC(out->p != NULL && t != NULL, err);
    OQ_TRY(oq_tensor_set_raw(p->keep, t, q->scale, q->n * sizeof(float), err));
    return add_tensor(p, t, err);
}

static onq_code quantize_weight(pass *p, oq_tensor *w, bool channels, triple *t, onq_error *err) {
    const uint32_t known = oq_map_find(&p->done, w->name);
    if (known != OQ_MAP_NONE) {
        *t = p->triples.v[known];
        return ONQ_OK;
    }
    const oq_dtype type = p->job->signed_weights ? OQ_INT8 : OQ_UINT8;
    const oq_producer *bytes = NULL;
    oq_qweight qw;
    oq_qparams q;
    OQ_TRY_IN(weight_params(p, w, channels, &qw, &q, type, err), err, "weight '%.*s'",
              OQ_STR(w->name));
    *t = (triple){.q = name_of(p, w->name, "_quantized"), .n = q.n, .scales = q.scale};
    oq_tensor *made = oq_tensor_new(p->keep, t->q, type, w->dims.v, w->dims.n);
    OQ_TRY_ALLOC(t->q.p != NULL && made != NULL, err);
    OQ_TRY(oq_qweight_producer(p->keep, &qw, type, &q, &bytes, err));
    oq_tensor_set_producer(made, bytes);
    OQ_TRY(add_tensor(p, made, err));
    const oq_plan_tensor row = {.name = w->name,
                                .role = OQ_ROLE_WEIGHT,
                                .type = type,
                                .axis = channels ? 0 : -1,
                                .scale = q.scale,
                                .zero = q.zero,
                                .n = q.n,
                                .why = "weight"};
    OQ_TRY(plan_tensor(p, row, err));
    OQ_TRY(add_scales(p, w, &q, channels, &t->scale, err));
    OQ_TRY(add_zero(p, w->name, type, q.zero[0], &t->zero, err));
    return remember(p, w->name, *t, err);
}

/* ---- operators ---- */

static bool is_conv(const oq_node *n) {
    return oq_op_traits_of(n->op_type)->product == OQ_CONV;
}

static bool has_bias(const oq_node *n) {
    return is_conv(n) && n->input.n > 2 && n->input.v[2].n != 0;
}

/* <node name>_quant of another type with the attributes of the node. */
static onq_code emit_main(pass *p, const oq_node *n, const char *op, const oq_str *in, size_t n_in,
                          oq_str out, onq_error *err) {
    const oq_str name = oq_fresh_node_of(&p->names, n, "_quant");
    oq_node *made = oq_node_make(p->keep, op, name, in, n_in, &out, 1);
    if (made == NULL || p->names.failed || !oq_node_share_attributes(p->keep, made, n) ||
        !OQ_PUSH(p->scratch, &p->out, made))
        return oq_fail_nomem(err);
    oq_node_carry(made, n);
    return ONQ_OK;
}

/* The float bias as [1, C, 1, ...]. */
static onq_code shaped_bias(pass *p, const oq_node *n, size_t rank, oq_str *out, onq_error *err) {
    const oq_str y = n->output.v[0];
    const oq_str shape_name = name_of(p, y, "_bias_reshape_shape");
    oq_tensor *t = NULL;
    OQ_TRY(oq_tensor_channel_shape(p->keep, shape_name, rank, &t, err));
    OQ_TRY(add_tensor(p, t, err));
    return step(p, "Reshape", y, "_bias_reshape", n->input.v[2], shape_name, out, err);
}

static onq_code integer_operator(pass *p, const oq_node *n, const triple *x, const triple *w,
                                 size_t rank, onq_error *err) {
    const bool conv = is_conv(n);
    const oq_str y = n->output.v[0], in[4] = {x->q, w->q, x->zero, w->zero};
    const oq_str sums = name_of(p, y, "_quantized_sums");
    oq_str real = name_of(p, y, "_sums_float"), scale, bias = {0};
    OQ_TRY(emit_main(p, n, conv ? "ConvInteger" : "MatMulInteger", in, 4, sums, err));
    OQ_TRY(emit(p, "Cast", real, &sums, 1, real, "to", OQ_FLOAT, err));
    OQ_TRY(step(p, "Mul", y, "_scales_mul", x->scale, w->scale, &scale, err));
    const oq_str factors[2] = {real, scale};
    if (!has_bias(n))
        return emit(p, "Mul", oq_str_cat(p->keep, y, OQ_S("_scale_mul")), factors, 2, y, NULL, 0,
                    err);
    OQ_TRY(step(p, "Mul", y, "_scaled", real, scale, &real, err));
    OQ_TRY(shaped_bias(p, n, rank, &bias, err));
    const oq_str sum[2] = {real, bias};
    return emit(p, "Add", oq_str_cat(p->keep, y, OQ_S("_bias_add")), sum, 2, y, NULL, 0, err);
}

/* int32 bias with scale = input scale x weight scale, which the graph computes: bias / scale,
 * rounded. */
static onq_code int32_bias(pass *p, const oq_node *n, const triple *x, const triple *w, oq_str *out,
                           onq_error *err) {
    const oq_str b = n->input.v[2], none = {0};
    oq_str scale, steps, half, whole;
    OQ_TRY(step(p, "Mul", n->output.v[0], "_bias_scale", x->scale, w->scale, &scale, err));
    OQ_TRY(step(p, "Div", n->output.v[0], "_bias_steps", b, scale, &steps, err));
    OQ_TRY(add_real(p, n->output.v[0], "_bias_half", 0.5, &half, err));
    OQ_TRY(step(p, "Add", n->output.v[0], "_bias_up", steps, half, &steps, err));
    OQ_TRY(step(p, "Floor", n->output.v[0], "_bias_floor", steps, none, &whole, err));
    *out = name_of(p, n->output.v[0], "_bias_quantized");
    return emit(p, "Cast", *out, &whole, 1, *out, "to", OQ_INT32, err);
}

static onq_code qlinear_operator(pass *p, const oq_node *n, const triple *x, const triple *w,
                                 onq_error *err) {
    const bool conv = is_conv(n);
    const oq_str y = n->output.v[0];
    oq_qparam q = {0};
    oq_str scale, zero, bias = {0};
    OQ_TRY(given(p, p->job->outputs, "output_quantization_params", y, n, &q, err));
    OQ_TRY(plan_given(p, y, q, err));
    OQ_TRY(add_real(p, y, "_scale", (double)q.scale, &scale, err));
    OQ_TRY(add_zero(p, y, OQ_UINT8, q.zero_point, &zero, err));
    if (has_bias(n))
        OQ_TRY(int32_bias(p, n, x, w, &bias, err));
    const oq_str in[9] = {x->q, x->scale, x->zero, w->q, w->scale, w->zero, scale, zero, bias};
    const oq_str out = name_of(p, y, "_quantized");
    OQ_TRY(
        emit_main(p, n, conv ? "QLinearConv" : "QLinearMatMul", in, has_bias(n) ? 9 : 8, out, err));
    const oq_str back[3] = {out, scale, zero};
    return emit(p, OQ_DEQUANTIZE_LINEAR, oq_str_cat(p->keep, y, OQ_S("_DequantizeLinear")), back, 3,
                y, NULL, 0, err);
}

/* ---- the pass ---- */

bool oq_legacy_knows(oq_str type) {
    const oq_op_traits *t = oq_op_traits_of(type);
    return t->form == OQ_FORM_FLOAT && (t->product == OQ_CONV || t->product == OQ_MATMUL);
}

static const char *unwanted(const pass *p, const oq_node *n, oq_tensor **weight) {
    if (!oq_legacy_knows(n->op_type))
        return "only Conv and MatMul are quantized in these modes";
    if (n->domain.n != 0 || n->input.n < 2 || n->output.n != 1)
        return "not an operator of ONNX";
    *weight = oq_index_init(&p->ix, n->input.v[1]);
    if (*weight == NULL)
        return "its weight is not constant";
    if ((*weight)->data_type.v != OQ_FLOAT)
        return "its weight is not float32";
    if (oq_tensor_is_empty(*weight))
        return OQ_WHY_EMPTY;
    const int32_t type = oq_shapes_elem_type(p->job->shapes, NULL, n->input.v[0]);
    if (type != 0 && type != OQ_FLOAT)
        return "its input is not float32";
    return NULL;
}

static onq_code visit(pass *p, oq_node *n, onq_error *err) {
    oq_tensor *weight = NULL;
    triple x, w;
    const oq_given *plan = p->job->given;
    const char *skip = plan != NULL ? oq_given_skip(plan, n) : NULL;
    const char *why = skip != NULL ? skip : unwanted(p, n, &weight);
    const oq_plan_node row = {.name = n->name,
                              .op_type = n->op_type,
                              .output = n->output.n > 0 ? n->output.v[0] : OQ_S(""),
                              .why = why != NULL ? why : "",
                              .by = skip != NULL ? OQ_BY_CHOICE : OQ_BY_RULE,
                              .fate = why == NULL ? OQ_FATE_QUANTIZED : OQ_FATE_FLOAT};
    OQ_TRY_ALLOC(oq_plan_add_node(p->job->plan, row), err);
    if (why != NULL)
        OQ_TRY(oq_node_blame(n, oq_given_refuse(plan, n, why, err), err));
    if (why != NULL)
        return OQ_PUSH(p->scratch, &p->out, n) ? ONQ_OK : oq_fail_nomem(err);
    const bool channels = p->job->per_channel && is_conv(n);
    OQ_TRY(quantize_input(p, n, n->input.v[0], &x, err));
    OQ_TRY(quantize_weight(p, weight, channels, &w, err));
    return is_qlinear(p) ? qlinear_operator(p, n, &x, &w, err)
                         : integer_operator(p, n, &x, &w, weight->dims.n, err);
}

static onq_code edit(pass *p, onq_error *err) {
    oq_model_touch(p->m);
    OQ_TRY_ALLOC(oq_graph_set_nodes(p->keep, p->g, p->out.v, p->out.n) &&
                     oq_graph_add_inits(p->keep, p->g, p->new_inits.v, p->new_inits.n),
                 err);
    OQ_TRY(oq_graph_prune_inits(p->m, p->g, err));
    return oq_stamp_producer(p->m, err);
}

static onq_code run(pass *p, onq_error *err) {
    uint32_t *order = NULL;
    OQ_TRY(oq_given_bind_nodes(p->job->given, p->m, err));
    OQ_TRY(oq_index_build(&p->ix, p->scratch, p->g, NULL, err));
    OQ_TRY(oq_topo_order(&p->ix, p->scratch, &order, err));
    OQ_TRY(oq_fresh_init(&p->names, p->scratch, p->m, err));
    for (size_t i = 0; i < p->g->node.n; i++)
        OQ_TRY(visit(p, p->g->node.v[order[i]], err));
    return p->job->decide_only ? ONQ_OK : edit(p, err);
}

onq_code oq_legacy_run(const oq_legacy_job *job, onq_error *err) {
    assert(job->shapes != NULL && job->plan != NULL);
    OQ_SCRATCH(scratch, &job->model->env->alloc);
    pass p = {.job = job,
              .m = job->model,
              .g = job->model->proto->graph,
              .scratch = &scratch,
              .keep = &job->model->arena,
              .opset = oq_model_opset(job->model, OQ_S(""))};
    oq_map_init(&p.done, &scratch);
    const onq_code rc = run(&p, err);
    if (rc == ONQ_OK && !job->decide_only)
        OQ_ASSERT_VALID(job->model);
    return rc;
}
