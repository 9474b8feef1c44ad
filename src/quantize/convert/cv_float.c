/*
 * cv_float.c — pairs are taken out of the graph: who read what DequantizeLinear made reads what
 * QuantizeLinear was given, or the floats that a constant stands for.
 *
 * A QuantizeLinear also clips. Quantizers rely on that and remove a Relu or Clip before it; it is put
 * back where the range of the integers shows it (oq_convert_clips). Integers that the model takes or
 * gives stay what they are, with the pair's node beside them.
 */
#include "quantize/convert/cv.h"

#include "base/text/real.h"
#include "quantize/number/clip.h"
#include "quantize/rules.h"

#include <math.h>

#define MAX_SPAN  1000.0 /* between bounds that somebody wrote */
#define MAX_STEPS 64     /* back through the graph, to see whether values can be negative */

typedef struct strip {
    oq_cv_scope *s;
    oq_map map; /* a name that goes -> index in to */
    oq_strs to;
    size_t first_row; /* of the plan that is this graph's */
    oq_map clipped;   /* what a new Relu or Clip makes -> index in clips */
    OQ_VEC(oq_node *) clips;
} strip;

static oq_str final_name(const strip *t, oq_str name) {
    for (size_t i = 0; i <= t->to.n; i++) {
        const uint32_t at = oq_map_find(&t->map, name);
        if (at == OQ_MAP_NONE)
            return name;
        name = t->to.v[at];
    }
    return name;
}

static onq_code replace(strip *t, oq_str name, oq_str by, onq_error *err) {
    oq_arena *a = &t->s->cv->scratch;
    return OQ_PUSH(a, &t->to, by) && oq_map_put(&t->map, name, (uint32_t)(t->to.n - 1))
               ? ONQ_OK
               : oq_fail_nomem(err);
}

/* ---- can it be negative? ---- */

static bool never_negative(oq_cv_scope *s, oq_str name, int *steps);

static bool all_inputs(oq_cv_scope *s, const oq_node *n, size_t count, int *steps) {
    for (size_t i = 0; i < count && i < n->input.n; i++)
        if (!never_negative(s, n->input.v[i], steps))
            return false;
    return count > 0 && n->input.n > 0;
}

static bool starts_at_zero(oq_cv_scope *s, const oq_cv_param *p) {
    float scale = 0;
    int64_t zero = 0;
    oq_dtype type;
    const oq_qtype_info *info;
    return oq_cv_scalar(s, p, &scale, &zero, &type) && (info = oq_qtype_find(type)) != NULL &&
           !info->is_float && zero == info->full.min;
}

static bool never_negative(oq_cv_scope *s, oq_str name, int *steps) {
    static const char *const always[] = {"Relu", "Sigmoid",     "Softmax",  "Abs",
                                         "Exp",  "HardSigmoid", "Softplus", "Sqrt"};
    static const char *const like_first[] = {"MaxPool",       "AveragePool", "GlobalAveragePool",
                                             "GlobalMaxPool", "Dropout",     "ReduceMean"};
    static const char *const like_all[] = {"Add", "Mul", "Concat"};
    const oq_node *n = oq_index_producer(&s->index, name);
    oq_bounds b;
    if (n == NULL || --*steps < 0)
        return false;
    if (oq_node_is_dequantize(n)) {
        const oq_cv_param p = oq_cv_param_of(n);
        return starts_at_zero(s, &p);
    }
    if (oq_node_is_any(n, always, OQ_COUNT(always)))
        return true;
    if (oq_node_is_any(n, like_first, OQ_COUNT(like_first)))
        return all_inputs(s, n, 1, steps);
    if (oq_node_is(n, "Mul") && n->input.n == 2 && oq_str_eq(n->input.v[0], n->input.v[1]))
        return true; /* a square */
    if (oq_node_is_any(n, like_all, OQ_COUNT(like_all)))
        return all_inputs(s, n, n->input.n, steps);
    if (oq_node_is(n, "Clip"))
        return oq_clip_bounds(s->cv->model, &s->index, n, &b) && b.low >= 0.0;
    if (oq_op_traits_of(n->op_type)->repeats >= OQ_REPEATS_SOME)
        return all_inputs(s, n, 1, steps);
    return false;
}

/* ---- clips ---- */

/* The nearest number of at most two digits; true if x is that, but for rounding to float32. */
static bool is_round(double x, double *out) {
    const double size = fabs(x);
    if (size == 0.0 || !isfinite(size)) {
        *out = 0.0;
        return size == 0.0;
    }
    const double unit = pow(10.0, floor(log10(size)) - 1.0);
    *out = round(x / unit) * unit;
    return fabs(*out - x) <= 5e-7 * size;
}

/* Bounds that a person wrote: a range whose length is a round number, and which begins at a round
 * number, except for the rounding of its zero point. A range that samples gave is hardly ever so,
 * except where masks add their -10000 or less. */
static bool find_written(double lo, double hi, double scale, oq_bounds *out) {
    double span = 0.0, begin = 0.0, end = 0.0;
    if (hi - lo > MAX_SPAN || !is_round(hi - lo, &span))
        return false;
    (void)is_round(lo, &begin);
    if (fabs(begin - lo) > 0.5 * scale * 1.0001 || !is_round(begin + span, &end))
        return false;
    *out = (oq_bounds){begin, end};
    return true;
}

/* Operators whose results lie between bounds of their own. */
static bool is_bounded(const oq_cv_scope *s, oq_str name) {
    static const char *const types[] = {"Clip", "Sigmoid", "Tanh", "Softmax", "HardSigmoid", "Erf",
                                        "Sin",  "Cos",     "Relu", "Cast",    "OneHot"};
    const oq_node *n = oq_index_producer(&s->index, name);
    if (oq_node_is_any(n, types, OQ_COUNT(types)))
        return true;
    if (oq_node_is(n, "Where") && n->input.n == 3 && oq_cv_constant(s, n->input.v[1]) != NULL &&
        oq_cv_constant(s, n->input.v[2]) != NULL)
        return true;
    return n == NULL || oq_node_is_dequantize(n) ||
           oq_op_traits_of(n->op_type)->repeats >= OQ_REPEATS_SOME;
}

/* The Relu or Clip that a QuantizeLinear stands for; false: none. */
static bool find_bounds(oq_cv_scope *s, const oq_node *q, oq_bounds *out) {
    const oq_cv_param p = oq_cv_param_of(q);
    const oq_convert_clips how = s->cv->job->clips;
    const oq_str x = q->input.v[0];
    float scale = 0;
    int64_t zero = 0;
    oq_dtype type;
    int steps = MAX_STEPS;
    const oq_node *maker = oq_index_producer(&s->index, x);
    if (how == OQ_CLIPS_NONE || !oq_cv_scalar(s, &p, &scale, &zero, &type) || maker == NULL ||
        oq_cv_constant(s, x) != NULL)
        return false;
    /* After other operators, and those that move values, no quantizer removes anything. */
    if (how == OQ_CLIPS_AUTO && (oq_rules_quantized_in(maker->op_type) == 0 ||
                                 oq_op_traits_of(maker->op_type)->repeats != OQ_REPEATS_NOTHING ||
                                 oq_node_is(maker, "Pad")))
        return false;
    const oq_qtype_info *info = oq_qtype_find(type);
    if (info == NULL || info->is_float)
        return false;
    *out = (oq_bounds){(double)(info->full.min - zero) * (double)scale,
                       (double)(info->full.max - zero) * (double)scale};
    if (how == OQ_CLIPS_ALL ||
        (!is_bounded(s, x) && find_written(out->low, out->high, (double)scale, out)))
        return true;
    *out = (oq_bounds){0.0, (double)INFINITY};
    return zero == info->full.min && !never_negative(s, x, &steps);
}

static onq_code add_bound(oq_cv_scope *s, oq_node *clip, oq_str base, double x, const char *suffix,
                          oq_dtype real, onq_error *err) {
    const float v = (float)x;
    const uint16_t h = oq_f32_to_f16(v);
    const oq_str name = oq_cv_fresh(s, base, suffix);
    oq_tensor *t = oq_cv_init(s, (oq_str){0}, name, real, NULL, 0);
    OQ_TRY_ALLOC(t != NULL && oq_node_add_input(s->cv->arena, clip, name), err);
    return oq_tensor_set_raw(s->cv->arena, t, real == OQ_FLOAT16 ? (const void *)&h : &v,
                             real == OQ_FLOAT16 ? sizeof h : sizeof v, err);
}

static onq_code make_clip(strip *t, const oq_node *q, const oq_bounds *b, oq_str from, oq_str to,
                          onq_error *err) {
    oq_cv_scope *s = t->s;
    const bool relu = b->low == 0.0 && isinf(b->high);
    const oq_tensor *scale = oq_cv_constant(s, q->input.v[1]);
    const oq_dtype real = (oq_dtype)scale->data_type.v;
    if (!relu && s->cv->opset < 11)
        return oq_cv_refuse(q, ONQ_E_UNSUPPORTED, err,
                            "a Clip of tensor '%.*s' would have to be restored, which needs opset "
                            "11 (--clips none leaves it out)",
                            OQ_STR(to));
    oq_node *n =
        oq_node_make(s->cv->arena, relu ? "Relu" : "Clip",
                     oq_fresh_node(&s->cv->names, oq_cv_plain_name(to), relu ? "_Relu" : "_Clip"),
                     &from, 1, &to, 1);
    OQ_TRY_ALLOC(n != NULL, err);
    if (!relu) {
        OQ_TRY(add_bound(s, n, to, b->low, "_clip_min", real, err));
        OQ_TRY(add_bound(s, n, to, b->high, "_clip_max", real, err));
    }
    s->cv->job->n_clips++;
    if (!OQ_PUSH(&s->cv->scratch, &t->clips, n) ||
        !oq_map_put(&t->clipped, to, (uint32_t)(t->clips.n - 1)))
        return oq_fail_nomem(err);
    return oq_cv_emit(s, n, err);
}

static bool are_alike(const oq_value_info *a, const oq_value_info *b) {
    const oq_tensor_type *x = a->type != NULL ? a->type->tensor_type : NULL;
    const oq_tensor_type *y = b->type != NULL ? b->type->tensor_type : NULL;
    if (x == NULL || y == NULL || x->elem_type.v != y->elem_type.v || x->shape == NULL ||
        y->shape == NULL || x->shape->dim.n != y->shape->dim.n)
        return false;
    for (size_t i = 0; i < x->shape->dim.n; i++) {
        const oq_dim *p = x->shape->dim.v[i], *q = y->shape->dim.v[i];
        if (p->dim_value.v != q->dim_value.v || !oq_str_eq(p->dim_param, q->dim_param))
            return false;
    }
    return true;
}

/* Quantizers leave the value_info of the tensor that was between an operator and the Relu or Clip that
 * they removed, beside that of `x`, but for constants: before it if x is what the Relu made
 * (step -1), after it if x is what the operator made (step 1). Its name, or an empty one. */
static oq_str find_name_beside(const oq_cv_scope *s, oq_str x, int step) {
    const oq_graph *g = s->graph;
    size_t i = 0;
    while (i < g->value_info.n && !oq_str_eq(g->value_info.v[i]->name, x))
        i++;
    const oq_value_info *mine = i < g->value_info.n ? g->value_info.v[i] : NULL;
    for (i += (size_t)step; mine != NULL && i < g->value_info.n; i += (size_t)step) {
        const oq_value_info *v = g->value_info.v[i];
        const oq_value *made = oq_index_find(&s->index, v->name);
        const oq_node *maker = oq_index_producer(&s->index, v->name);
        if ((maker != NULL && oq_op_traits_of(maker->op_type)->kind == OQ_KIND_CONSTANT) ||
            (made != NULL && made->init != NULL))
            continue;
        return maker == NULL && are_alike(v, mine) && oq_map_has(&s->cv->dead, v->name)
                   ? v->name
                   : (oq_str){0};
    }
    return (oq_str){0};
}

static bool rename_output(oq_node *n, oq_str from, oq_str to) {
    for (size_t i = 0; i < n->output.n; i++)
        if (oq_str_eq(n->output.v[i], from)) {
            n->output.v[i] = to;
            return true;
        }
    return false;
}

/* Puts back what a QuantizeLinear did beside quantizing. *before gets the name of what the new node
 * reads; its p is NULL where there is none. */
static onq_code restore(strip *t, oq_node *q, oq_str *before, onq_error *err) {
    oq_cv_scope *s = t->s;
    const oq_str x = q->input.v[0];
    oq_bounds b;
    *before = (oq_str){0};
    if (!find_bounds(s, q, &b))
        return ONQ_OK;
    const oq_value *v = oq_index_find(&s->index, x);
    oq_node *producer = oq_index_producer(&s->index, x);
    if (v->uses.n == 1 && !v->is_output && !oq_node_is_dequantize(producer) &&
        !oq_map_has(&s->cv->lifted, x)) {
        *before = find_name_beside(s, x, -1);
        if (before->n == 0)
            *before = oq_cv_fresh(s, x, "_before_clip");
        OQ_TRY_ALLOC(before->p != NULL && rename_output(producer, x, *before), err);
        return make_clip(t, q, &b, *before, x, err);
    }
    *before = x;
    q->input.v[0] = find_name_beside(s, x, 1);
    if (q->input.v[0].n == 0)
        q->input.v[0] = oq_cv_fresh(s, x, "_clipped");
    return q->input.v[0].p != NULL ? make_clip(t, q, &b, x, q->input.v[0], err)
                                   : oq_fail_nomem(err);
}

/* ---- the plan ---- */

/* A node of a pair goes. */
static onq_code note_pair(oq_cv_scope *s, const oq_node *n, onq_error *err) {
    s->cv->job->n_pairs++;
    return oq_cv_note(s, n, err);
}

static onq_code note_tensor(oq_cv_scope *s, oq_str name, oq_str same_as, const oq_node *pair,
                            onq_error *err) {
    const oq_cv_param p = oq_cv_param_of(pair);
    float scale = 0;
    int64_t zero = 0;
    oq_dtype type;
    if (s->cv->job->plan == NULL || !oq_cv_scalar(s, &p, &scale, &zero, &type))
        return ONQ_OK;
    const oq_plan_tensor row = {
        .name = name, .type = type, .axis = -1, .same_as = same_as, .why = "from its pair"};
    return oq_plan_add_scalar(s->cv->job->plan, row, scale, (int32_t)zero) ? ONQ_OK
                                                                           : oq_fail_nomem(err);
}

/* How the scales of blocks lie, which were found to fit the weight. Where the node that reads the
 * weight has its channels along the same axis, other tools have no name for it. */
static void set_blocks(const oq_cv_scope *s, const oq_tensor *scale, const oq_node *dq,
                       oq_plan_tensor *row) {
    const oq_value *v = oq_index_find(&s->index, dq->output.v[0]);
    row->axis += row->axis < 0 ? (int64_t)scale->dims.n : 0;
    row->block = (uint64_t)oq_attr_int(dq, "block_size", 0);
    row->rank = scale->dims.n;
    row->blocks = (uint64_t)scale->dims.v[row->axis];
    row->inner = 1;
    for (size_t d = (size_t)row->axis + 1; d < row->rank; d++)
        row->inner *= (uint64_t)scale->dims.v[d];
    for (size_t i = 0; v != NULL && i < v->uses.n; i++) {
        int64_t axis = 0;
        if (!oq_op_channel_axis(s->graph->node.v[v->uses.v[i].node], &axis) || axis == row->axis)
            row->n = 0;
    }
}

static onq_code note_constant(oq_cv_scope *s, const oq_tensor *made, const oq_tensor *ints,
                              oq_tensor *scale, oq_tensor *zero, const oq_node *dq,
                              onq_error *err) {
    const int64_t block = oq_attr_int(dq, "block_size", 0);
    float *scales = NULL;
    int64_t *zeros = NULL;
    size_t n = 0, n_zero = 0;
    if (s->cv->job->plan == NULL || (block != 0 && !s->cv->job->with_blocks))
        return ONQ_OK;
    OQ_TRY(oq_tensor_floats(s->cv->model, scale, s->cv->job->plan->arena, &scales, &n, err));
    if (zero != NULL && oq_dtype_find(zero->data_type.v)->cls != OQ_CLASS_REAL)
        OQ_TRY(oq_tensor_i64s(s->cv->model, zero, &s->cv->scratch, &zeros, &n_zero, err));
    int32_t *kept = OQ_NEW_ARRAY(s->cv->job->plan->arena, int32_t, n + 1);
    OQ_TRY_ALLOC(kept != NULL, err);
    for (size_t i = 0; zeros != NULL && i < n && i < n_zero; i++)
        kept[i] = (int32_t)zeros[i];
    oq_plan_tensor row = {.name = made->name,
                          .role = ints->data_type.v == OQ_INT32 ? OQ_ROLE_BIAS : OQ_ROLE_WEIGHT,
                          .type = (oq_dtype)ints->data_type.v,
                          .axis = n > 1 || block != 0 ? oq_attr_int(dq, "axis", 1) : -1,
                          .scale = scales,
                          .zero = kept,
                          .n = n,
                          .why = "from its pair"};
    if (block != 0)
        set_blocks(s, scale, dq, &row);
    return oq_plan_add_tensor(s->cv->job->plan, row) ? ONQ_OK : oq_fail_nomem(err);
}

/* ---- constants ---- */

static bool is_graph_output(const oq_cv_scope *s, oq_str name) {
    const oq_value *v = oq_index_find(&s->index, name);
    return v != NULL && v->is_output;
}

static onq_code fold(strip *t, const oq_node *dq, oq_tensor *ints, onq_error *err) {
    oq_cv_scope *s = t->s;
    const oq_cv_param p = oq_cv_param_of(dq);
    oq_tensor *scale = oq_cv_constant(s, p.scale), *zero = oq_cv_constant(s, p.zero);
    const oq_str out = dq->output.v[0];
    oq_cv_values v;
    if (scale == NULL || (zero == NULL && p.zero.n > 0))
        return oq_cv_refuse(dq, ONQ_E_UNSUPPORTED, err,
                            "the parameters of tensor '%.*s' are computed", OQ_STR(dq->input.v[0]));
    const oq_str key = oq_str_format(&s->cv->scratch, "%.*s|%.*s|%.*s|%lld", (int)dq->input.v[0].n,
                                     dq->input.v[0].p, (int)p.scale.n, p.scale.p, (int)p.zero.n,
                                     p.zero.n > 0 ? p.zero.p : "", (long long)p.axis);
    const uint32_t have = key.p != NULL ? oq_map_find(&s->made, key) : OQ_MAP_NONE;
    if (have != OQ_MAP_NONE && !is_graph_output(s, out))
        return replace(t, out, s->floats.v[have], err);
    OQ_TRY(oq_node_blame(
        dq, oq_cv_values_linear(s->cv->model, ints, scale, zero, p.axis, p.block, &v, err), err));
    /* The reference's biases are called after what is dequantized. */
    const bool same = is_graph_output(s, out) || oq_str_eq(out, oq_cv_plain_name(dq->input.v[0]));
    const oq_str name = same ? out : oq_cv_fresh(s, dq->input.v[0], "");
    oq_tensor *made = oq_cv_init(s, same ? (oq_str){0} : dq->input.v[0], name, v.real, ints->dims.v,
                                 ints->dims.n);
    if (key.p == NULL || made == NULL || !OQ_PUSH(&s->cv->scratch, &s->floats, name) ||
        !oq_map_put(&s->made, key, (uint32_t)(s->floats.n - 1)))
        return oq_fail_nomem(err);
    OQ_TRY(oq_cv_values_payload(s->cv->model, made, &v, err));
    OQ_TRY(note_constant(s, made, ints, scale, zero, dq, err));
    OQ_TRY(note_pair(s, dq, err));
    s->cv->job->n_weights++;
    return oq_str_eq(name, out) ? ONQ_OK : replace(t, out, name, err);
}

/* ---- pairs ---- */

/* The node that makes a tensor in the graph as it is now, or NULL. */
static oq_node *maker_of(const strip *t, oq_str name) {
    const uint32_t clip = oq_map_find(&t->clipped, name);
    return clip != OQ_MAP_NONE ? t->clips.v[clip] : oq_index_producer(&t->s->index, name);
}

/* DequantizeLinear gives way to the float tensor `x`, which gets the name of what it made where that
 * is an output of the graph, or the name that the tensor had before it was quantized. */
static onq_code bypass(strip *t, const oq_node *dq, oq_str x, onq_error *err) {
    oq_cv_scope *s = t->s;
    const oq_str out = dq->output.v[0];
    const bool is_output = is_graph_output(s, out);
    x = final_name(t, x);
    OQ_TRY(note_pair(s, dq, err));
    oq_node *maker = maker_of(t, x);
    /* What reads integers gets a name from the quantizer; other names are those of the float model. */
    const bool named = oq_map_has(&t->clipped, x) &&
                       oq_map_has(&s->cv->lifted, maker->input.v[0]) &&
                       !oq_str_ends(out, OQ_S("_DequantizeLinear_Output"));
    if ((is_output || named || oq_str_eq(out, oq_cv_plain_name(dq->input.v[0]))) && maker != NULL &&
        !is_graph_output(s, x) && rename_output(maker, x, out))
        return replace(t, x, out, err);
    if (!is_output)
        return replace(t, out, x, err);
    return oq_cv_emit(s,
                      oq_node_make(s->cv->arena, "Identity",
                                   oq_fresh_node(&s->cv->names, out, "_Identity"), &x, 1, &out, 1),
                      err);
}

static onq_code contradict(oq_cv_scope *s, const oq_node *q, const oq_node *dq, onq_error *err) {
    (void)s;
    return oq_cv_refuse(dq, ONQ_E_INVALID, err,
                        "tensor '%.*s' has other parameters here than in node '%.*s' (%.*s)",
                        OQ_STR(dq->input.v[0]), OQ_STR(oq_node_label(q)), OQ_STR(q->op_type));
}

static onq_code strip_dequantize(strip *t, oq_node *dq, onq_error *err) {
    oq_cv_scope *s = t->s;
    const oq_index *owner = &s->index;
    if (dq->input.n < 2 || dq->output.n != 1)
        return oq_cv_refuse(dq, ONQ_E_INVALID, err, "its inputs or outputs are missing");
    const bool left = oq_cv_leave(s, dq);
    oq_tensor *ints = oq_cv_constant(s, dq->input.v[0]);
    if (ints != NULL && !left)
        return fold(t, dq, ints, err);
    const oq_value *v = oq_index_resolve(&owner, dq->input.v[0]);
    const oq_node *from = v != NULL && ints == NULL ? oq_value_node(owner, v) : NULL;
    if (from != NULL &&
        (left ? oq_cv_is_asked(s, from) : oq_node_is_quantize(from) && oq_cv_is_left(s, from)))
        return oq_cv_refuse(
            dq, ONQ_E_CONFIG, err,
            "the plan %s it and %s node '%.*s' (%.*s), which makes its input '%.*s'",
            left ? "leaves" : "converts", left ? "converts" : "leaves", OQ_STR(oq_node_label(from)),
            OQ_STR(from->op_type), OQ_STR(dq->input.v[0]));
    if (left)
        return oq_cv_emit(s, dq, err);
    if (from == NULL) { /* an input of the model, of a loop's body or of a function */
        s->cv->job->n_kept++;
        return oq_cv_emit(s, dq, err);
    }
    const oq_cv_param mine = oq_cv_param_of(dq);
    if (oq_node_is_quantize(from)) {
        const oq_cv_param theirs = oq_cv_param_of(from);
        return oq_cv_same_params(s, &mine, &theirs) ? bypass(t, dq, from->input.v[0], err)
                                                    : contradict(s, from, dq, err);
    }
    if (oq_op_traits_of(from->op_type)->kind == OQ_KIND_DYNAMIC && from->output.n == 3)
        return oq_str_eq(mine.scale, from->output.v[1]) && oq_str_eq(mine.zero, from->output.v[2])
                   ? bypass(t, dq, from->input.v[0], err)
                   : contradict(s, from, dq, err);
    if (oq_cv_is_left(s, from) && !oq_cv_is_asked(s, dq))
        return oq_cv_emit(s, dq, err);
    return oq_cv_refuse(dq, ONQ_E_UNSUPPORTED, err,
                        "tensor '%.*s' comes from node '%.*s' (%.*s), which has no float form",
                        OQ_STR(dq->input.v[0]), OQ_STR(oq_node_label(from)), OQ_STR(from->op_type));
}

static onq_code strip_quantize(strip *t, oq_node *q, onq_error *err) {
    oq_cv_scope *s = t->s;
    oq_str before;
    if (q->input.n < 2 || q->output.n != 1)
        return oq_cv_refuse(q, ONQ_E_INVALID, err, "its inputs or outputs are missing");
    if (oq_cv_leave(s, q))
        return oq_cv_emit(s, q, err);
    if (is_graph_output(s, q->output.v[0]))
        s->cv->job->n_kept++;
    else
        OQ_TRY(note_pair(s, q, err));
    OQ_TRY(restore(t, q, &before, err));
    OQ_TRY(note_tensor(s, q->input.v[0], (oq_str){0}, q, err));
    if (before.p != NULL)
        OQ_TRY(note_tensor(s, before, q->input.v[0], q, err));
    return oq_cv_emit(s, q, err);
}

/* A node that reads integers and was not lifted. */
static onq_code check_reader(oq_cv_scope *s, oq_node *n, onq_error *err) {
    for (size_t i = 0; i < n->input.n && !oq_cv_is_left(s, n); i++) {
        const oq_index *owner = &s->index;
        const oq_value *v = n->input.v[i].n > 0 ? oq_index_resolve(&owner, n->input.v[i]) : NULL;
        const oq_node *from = v != NULL ? oq_value_node(owner, v) : NULL;
        if (from != NULL && oq_node_is_quantize(from))
            return oq_cv_refuse(n, ONQ_E_UNSUPPORTED, err,
                                "it reads the quantized tensor '%.*s', and has no float form",
                                OQ_STR(n->input.v[i]));
    }
    return oq_cv_emit(s, n, err);
}

static void patch_plan(const strip *t) {
    oq_plan *p = t->s->cv->job->plan;
    for (size_t i = t->first_row; p != NULL && i < p->tensors.n; i++) {
        p->tensors.v[i].name = final_name(t, p->tensors.v[i].name);
        p->tensors.v[i].same_as = final_name(t, p->tensors.v[i].same_as);
    }
}

onq_code oq_cv_to_float(oq_cv_scope *s, onq_error *err) {
    oq_graph *g = s->graph;
    strip t = {.s = s};
    t.first_row = s->cv->job->plan != NULL ? s->cv->job->plan->tensors.n : 0;
    oq_map_init(&t.map, &s->cv->scratch);
    oq_map_init(&t.clipped, &s->cv->scratch);
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        OQ_TRY(oq_node_is_dequantize(n) ? strip_dequantize(&t, n, err)
               : oq_node_is_quantize(n) ? strip_quantize(&t, n, err)
                                        : check_reader(s, n, err));
    }
    g->quantization_annotation.n = 0;
    patch_plan(&t);
    for (size_t i = 0; i < t.to.n; i++)
        t.to.v[i] = final_name(&t, t.to.v[i]);
    OQ_TRY(oq_cv_settle(s, err));
    return t.to.n > 0 ? oq_graph_replace_many(s->cv->model, g, &t.map, t.to.v, err) : ONQ_OK;
}
