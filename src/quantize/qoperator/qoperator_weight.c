/*
 * qoperator_weight.c — weights and biases of the QLinear and integer operators.
 *
 * While nodes are emitted a weight is only registered: its three initializers (scale, zero point,
 * quantized bytes) are put into the graph empty. When all nodes are done, the parameters of all
 * weights are computed in parallel, the scales that int32 biases need raised, and the initializers
 * filled; quantized bytes are producers, so they are computed as the model is written.
 */
#include "quantize/qoperator/qo_state.h"

#include "base/pool.h"

static oq_arena *keep(const oq_qo_shared *sh) {
    return &sh->job.model->arena;
}

/* ---- registering ---- */

/* What a Gemm's weight was before it was turned for MatMul, or NULL. */
static oq_tensor *origin_of(const oq_qo_shared *sh, const oq_tensor *t) {
    for (size_t i = 0; i < sh->turned.n; i++)
        if (sh->turned.v[i].tensor == t)
            return sh->turned.v[i].origin;
    return NULL;
}

static void set_spec(const oq_qo_shared *sh, const oq_qo_how *how, const oq_override *o,
                     bool channels, oq_qo_weight *w) {
    const oq_qconfig *c = sh->job.run->config;
    oq_qspec *s = &w->spec;
    s->type = how->type != OQ_UNDEFINED ? how->type
              : how->is_weight          ? c->weight_type
                                        : c->activation_type;
    if (o != NULL && o->has_type)
        s->type = o->type;
    /* As the reference: the weights' rule holds for whatever has the weights' type. */
    s->symmetric = channels || s->type == c->weight_type ? oq_qconfig_weight_symmetric(c, s->type)
                                                         : c->activation_symmetric;
    s->symmetric = s->symmetric || how->symmetric;
    s->reduced = c->reduce_range && how->reduce;
    if (o != NULL && o->symmetric != OQ_UNSET)
        s->symmetric = o->symmetric == OQ_YES;
    if (o != NULL && o->reduce_range != OQ_UNSET)
        s->reduced = o->reduce_range == OQ_YES;
    s->has_min_range = c->has_min_real_range;
    s->min_range = c->min_real_range;
}

/* Parameters or ranges that the user gave. */
static onq_code take_overrides(oq_qo_shared *sh, const oq_tensor_override *over, oq_qo_weight *w,
                               onq_error *err) {
    const oq_override *first = &over->channels.v[0];
    w->given = oq_override_has_params(first);
    if (!w->given && !oq_override_any_range(over))
        return ONQ_OK;
    w->clamps = OQ_NEW_ARRAY(sh->arena, oq_qclamp, w->params.n + 1);
    OQ_TRY_ALLOC(w->clamps != NULL, err);
    for (uint64_t i = 0; i < w->params.n; i++) {
        const oq_override *o = oq_override_channel(over, (size_t)i);
        w->clamps[i] = (oq_qclamp){o->has_rmin, o->has_rmax, o->rmin, o->rmax};
        if (w->given) {
            w->params.scale[i] = oq_real_round(oq_qweight_scale_type(&w->w), (double)o->scale);
            w->params.zero[i] = (int32_t)o->zero;
        }
    }
    return ONQ_OK;
}

/* Everything about the weight as a plan says it. */
static onq_code take_plan(oq_qo_shared *sh, const oq_tensor *t, oq_qo_weight *w, onq_error *err) {
    oq_given *given = sh->job.run->given;
    const oq_plan_tensor *row =
        oq_given_weight(given, t->name, w->is_weight ? OQ_ROLE_WEIGHT : OQ_ROLE_ACTIVATION);
    if (row == NULL || row->n != w->params.n)
        return oq_fail(err, ONQ_E_CONFIG,
                       "%s: weight '%.*s' needs %llu scales and has %llu in the plan", given->path,
                       OQ_STR(t->name), (unsigned long long)w->params.n,
                       row != NULL ? (unsigned long long)row->n : 0ull);
    OQ_TRY(oq_qo_check_type(t->name, row->type, err));
    memcpy(w->params.scale, row->scale, (size_t)row->n * sizeof(float));
    memcpy(w->params.zero, row->zero, (size_t)row->n * sizeof(int32_t));
    w->spec.type = row->type;
    w->given = true;
    w->adjusted = row->adjusted;
    return ONQ_OK;
}

/* The three empty initializers. Parameters are a scalar, or have one dimension. */
static onq_code add_tensors(oq_qo *owner, oq_qo_weight *w, oq_qo_value *v, onq_error *err) {
    oq_arena *a = keep(owner->sh);
    const oq_tensor *t = w->init;
    const int64_t n = (int64_t)w->params.n;
    const size_t rank = v->has_axis ? 1 : 0;
    v->q = oq_fresh_tensor(&owner->sh->names, t->name, "_quantized");
    v->scale = oq_fresh_tensor(&owner->sh->names, t->name, "_scale");
    v->zero = oq_fresh_tensor(&owner->sh->names, t->name, "_zero_point");
    OQ_TRY_ALLOC(v->q.p != NULL && v->scale.p != NULL && v->zero.p != NULL, err);
    w->scale = oq_tensor_new(a, v->scale, v->real, &n, rank);
    w->zero = oq_tensor_new(a, v->zero, v->type, &n, rank);
    w->quantized = oq_tensor_new(a, v->q, v->type, t->dims.v, t->dims.n);
    OQ_TRY(oq_qo_add_init(owner, w->scale, err));
    OQ_TRY(oq_qo_add_init(owner, w->zero, err));
    return oq_qo_add_init(owner, w->quantized, err);
}

/* The same values with the first two dimensions as one. */
static onq_code join_rows(oq_qo_shared *sh, const oq_tensor *t, oq_tensor **out, onq_error *err) {
    const int64_t dims[2] = {t->dims.v[0] * t->dims.v[1], t->dims.v[2]};
    oq_tensor *flat = OQ_NEW(keep(sh), oq_tensor);
    OQ_TRY_ALLOC(flat != NULL, err);
    *flat = *t;
    memset(&flat->dims, 0, sizeof flat->dims);
    for (size_t i = 0; i < 2; i++)
        OQ_TRY_ALLOC(OQ_PUSH(keep(sh), &flat->dims, dims[i]), err);
    *out = flat;
    return ONQ_OK;
}

/* An override per channel holds where the operator has channels along that axis. */
static onq_code check_channels(const oq_tensor *t, const oq_tensor_override *over, bool channels,
                               int64_t axis, onq_error *err) {
    const int64_t rank = (int64_t)t->dims.n, wanted = over->channels.v[0].axis;
    if (channels && (axis < 0 ? axis + rank : axis) == (wanted < 0 ? wanted + rank : wanted))
        return ONQ_OK;
    return oq_fail(err, ONQ_E_CONFIG,
                   "weight '%.*s': its override has channels along axis %lld, and it is quantized "
                   "%s here (%s)",
                   OQ_STR(t->name), (long long)wanted, channels ? "along another" : "as a whole",
                   channels ? "give it the operator's axis"
                            : "use --per_channel, or --quant_format qdq");
}

/* Quantized as it lies in the file, and turned when it is written; the axis there. */
static int64_t lay_turned(oq_qo_weight *w, const oq_tensor *origin, int64_t axis) {
    w->batch = 1;
    w->rows = (uint64_t)origin->dims.v[0];
    w->cols = (uint64_t)origin->dims.v[1];
    return 1 - (axis < 0 ? axis + 2 : axis);
}

onq_code oq_qo_register_weight(oq_qo *q, oq_qo *owner, oq_tensor *t, const oq_qo_how *how,
                               oq_qo_value **out, onq_error *err) {
    oq_qo_shared *sh = q->sh;
    oq_tensor *origin = origin_of(sh, t);
    const oq_tensor_override *over =
        oq_overrides_find(sh->job.overrides, origin != NULL ? origin->name : t->name);
    oq_qo_weight *w = OQ_NEW(sh->arena, oq_qo_weight);
    oq_qo_value *v = OQ_NEW(sh->arena, oq_qo_value);
    OQ_TRY_ALLOC(w != NULL && v != NULL, err);
    bool channels = how->channels || (sh->job.run->config->per_channel && how->per_channel);
    int64_t axis = how->axis;
    if (sh->job.run->config->trained && over != NULL)
        channels = oq_qo_trained_axis(q, t->name, &axis);
    if (!sh->job.run->config->trained && oq_override_is_channel(over))
        OQ_TRY(check_channels(t, over, channels, axis, err));
    const int64_t shown = axis;
    if (origin != NULL)
        axis = lay_turned(w, origin, axis);
    w->init = t;
    w->axis = !channels ? -1 : shown < 0 ? shown + (int64_t)t->dims.n : shown;
    w->is_weight = how->is_weight;
    oq_tensor *source = origin != NULL ? origin : t;
    if (how->rows)
        OQ_TRY(join_rows(sh, t, &source, err));
    OQ_TRY_IN(oq_qweight_init(&w->w, sh->job.model, source,
                              channels ? OQ_QGROUP_CHANNEL : OQ_QGROUP_TENSOR, axis, 0, err),
              err, "weight '%.*s'", OQ_STR(t->name));
    w->w.wide = sh->casts;
    set_spec(sh, how, over != NULL ? &over->channels.v[0] : NULL, channels, w);
    if (over != NULL && over->channels.v[0].has_type && oq_qo_is_static(q))
        OQ_TRY(oq_qo_check_type(t->name, w->spec.type, err));
    OQ_TRY(oq_qparams_init(&w->params, keep(sh), w->w.n_params, err));
    if (sh->job.run->given != NULL)
        OQ_TRY(take_plan(sh, t, w, err));
    else if (over != NULL)
        OQ_TRY(take_overrides(sh, over, w, err));
    *v = (oq_qo_value){.name = t->name,
                       .weight = w,
                       .type = w->spec.type,
                       .axis = shown,
                       .has_axis = channels,
                       .real = oq_qweight_scale_type(&w->w)};
    OQ_TRY(oq_qo_elem(owner, t->name, &v->elem, err));
    OQ_TRY(add_tensors(owner, w, v, err));
    OQ_TRY_ALLOC(OQ_PUSH(sh->arena, &sh->weights, w), err);
    *out = v;
    return oq_qo_alias(owner, t->name, v, err);
}

/* The int32 tensor of a bias: its last dimension, which is 1 or absent, becomes `repeat`. */
static oq_tensor *bias_integers(oq_arena *a, oq_str name, const oq_tensor *bias, uint64_t repeat) {
    const int64_t n = (int64_t)repeat;
    if (repeat > 1 && bias->dims.n == 0)
        return oq_tensor_new(a, name, OQ_INT32, &n, 1);
    oq_tensor *t = oq_tensor_new(a, name, OQ_INT32, bias->dims.v, bias->dims.n);
    if (t != NULL && repeat > 1)
        t->dims.v[t->dims.n - 1] = n;
    return t;
}

onq_code oq_qo_bias_tensor(oq_qo *q, const oq_node *n, oq_str bias, const oq_qo_value *input,
                           const oq_qo_value *weight, float factor, oq_str *out, onq_error *err) {
    const oq_qo_value *there = oq_qo_value_of(q, bias);
    if (there != NULL && factor == 1.0f && there->bias_weight != NULL &&
        oq_str_eq(there->bias_input->scale, input->scale) &&
        oq_str_eq(there->bias_weight->scale, weight->scale)) {
        *out = there->q;
        return ONQ_OK;
    }
    oq_arena *a = keep(q->sh);
    oq_tensor *t = oq_qo_init_in_path(q, bias);
    oq_qo_value *v = OQ_NEW(q->arena, oq_qo_value);
    OQ_TRY_ALLOC(v != NULL, err);
    const uint64_t n_scales = weight->weight != NULL ? weight->weight->params.n : 1;
    const bool wide = !oq_bias_fits(t->dims.v, t->dims.n, n_scales);
    v->name = bias;
    v->type = OQ_INT32;
    v->bias_input = input;
    v->bias_weight = weight;
    v->real = oq_qo_scale_type(q, t->data_type.v);
    OQ_TRY(oq_qo_elem(q, bias, &v->elem, err));
    v->has_axis = n_scales > 1;
    v->q = oq_fresh_tensor(&q->sh->names, bias, "_quantized");
    OQ_TRY_ALLOC(v->q.p != NULL, err);
    v->scale = oq_fresh_tensor(&q->sh->names, v->q, "_scale");
    v->zero = oq_fresh_tensor(&q->sh->names, v->q, "_zero_point");
    const int64_t count = (int64_t)n_scales;
    oq_qo_bias b = {.init = t,
                    .input = input,
                    .weight = weight,
                    .factor = factor,
                    .repeat = wide ? n_scales : 1,
                    .node = n->name};
    b.quantized = bias_integers(a, v->q, t, b.repeat);
    b.scale = oq_tensor_new(a, v->scale, v->real, &count, 1);
    b.zero = oq_tensor_new(a, v->zero, OQ_INT32, &count, n_scales > 1 ? 1 : 0);
    OQ_TRY(oq_qo_add_init(q, b.quantized, err));
    OQ_TRY(oq_qo_add_init(q, b.scale, err));
    OQ_TRY(oq_qo_add_init(q, b.zero, err));
    OQ_TRY_ALLOC(OQ_PUSH(q->sh->arena, &q->sh->biases, b), err);
    *out = v->q;
    /* Who reads the bias as float reads it dequantized, unless it was multiplied or repeated, or
     * exists in another form. */
    return there != NULL || factor != 1.0f || wide ? ONQ_OK : oq_qo_alias(q, bias, v, err);
}

/* ---- deciding ---- */

static onq_code compute(void *ctx, size_t i, unsigned worker, onq_error *err) {
    const oq_qo_shared *sh = ctx;
    oq_qo_weight *w = sh->weights.v[i];
    (void)worker;
    if (w->given)
        return ONQ_OK;
    onq_code rc =
        oq_qweight_params(&w->w, &w->spec, w->clamps, &sh->job.model->env->alloc, &w->params, err);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "weight '%.*s'", OQ_STR(w->init->name));
}

static onq_code compute_all(oq_qo_shared *sh, onq_error *err) {
    oq_pool *pool = NULL;
    OQ_TRY(oq_pool_new(sh->job.model->env, &pool, err));
    onq_code rc = oq_pool_run(pool, sh->weights.n, compute, sh, err);
    oq_pool_free(pool);
    return rc;
}

static bool all_zero(const oq_qparams *p) {
    for (uint64_t i = 0; i < p->n; i++)
        if (p->zero[i] != 0)
            return false;
    return p->n > 0;
}

/* Puts a tensor in front of another in the draft; nothing when either is elsewhere. */
static void move_before(oq_qo *q, const oq_tensor *t, const oq_tensor *anchor) {
    size_t from = q->new_inits.n, to = from;
    for (size_t i = 0; i < q->new_inits.n; i++) {
        if (q->new_inits.v[i] == t)
            from = i;
        if (q->new_inits.v[i] == anchor)
            to = i;
    }
    if (from >= to || to == q->new_inits.n)
        return;
    oq_tensor *moved = q->new_inits.v[from];
    memmove(&q->new_inits.v[from], &q->new_inits.v[from + 1],
            (to - 1 - from) * sizeof(oq_tensor *));
    q->new_inits.v[to - 1] = moved;
}

/* Each number `repeat` times. */
static onq_code repeat_each(oq_arena *a, float **v, size_t *n, uint64_t repeat, onq_error *err) {
    uint64_t all = 0;
    float *out = NULL;
    if (repeat == 1)
        return ONQ_OK;
    if (oq_mul(*n, repeat, &all))
        out = OQ_NEW_ARRAY(a, float, all);
    OQ_TRY_ALLOC(out != NULL, err);
    for (uint64_t i = 0; i < all; i++)
        out[i] = (*v)[i / repeat];
    *v = out;
    *n = all;
    return ONQ_OK;
}

/* The values of a bias and the scale of its node's input. */
static onq_code bias_numbers(const oq_qo_shared *sh, const oq_qo_bias *b, oq_reals *bias,
                             float *input_scale, onq_error *err) {
    assert(b->repeat > 0 && b->factor != 0.0f);
    float *v = NULL;
    size_t n = 0;
    OQ_TRY(oq_tensor_floats(sh->job.model, b->init, sh->arena, &v, &n, err));
    for (size_t i = 0; b->factor != 1.0f && i < n; i++)
        v[i] *= b->factor;
    OQ_TRY(repeat_each(sh->arena, &v, &n, b->repeat, err));
    *bias = (oq_reals){v, n, oq_qo_shared_scale_type(sh, b->init->data_type.v)};
    *input_scale =
        b->input->weight != NULL ? b->input->weight->params.scale[0] : b->input->param.scale;
    return ONQ_OK;
}

/* Raises the scale of a weight that is too small for its bias. */
static onq_code adjust_for_bias(oq_qo_shared *sh, const oq_qo_bias *b, onq_error *err) {
    const oq_qconfig *c = sh->job.run->config;
    oq_qo_weight *w = b->weight->weight;
    oq_qo *top = sh->drafts.v[sh->drafts.n - 1];
    const bool per_channel = c->per_channel;
    oq_reals bias;
    float input_scale;
    OQ_TRY(bias_numbers(sh, b, &bias, &input_scale, err));
    const oq_reals input = {&input_scale, 1, b->input->real};
    const bool again =
        w != NULL && sh->job.run->given != NULL && w->adjusted; /* the plan has the scale */
    if (again || (w != NULL && !w->given && w->spec.type == OQ_INT8 && c->weight_type == OQ_INT8 &&
                  all_zero(&w->params) && bias.n > 0 && (!per_channel || bias.n == w->params.n) &&
                  oq_bias_adjust(bias, input, w->params.scale, w->params.n, b->weight->real,
                                 per_channel) > 0)) {
        /* The reference removes both and adds them again. */
        move_before(top, w->scale, b->quantized);
        move_before(top, w->quantized, b->quantized);
        sh->job.plan->n_weight_adjusted++;
        w->adjusted = true;
    }
    return ONQ_OK;
}

static onq_code fill_bias(oq_qo_shared *sh, const oq_qo_bias *b, onq_error *err) {
    oq_arena *a = keep(sh);
    const oq_qo_weight *w = b->weight->weight; /* NULL: computed, with the scale of its range */
    const oq_reals weight = {w != NULL ? w->params.scale : &b->weight->param.scale,
                             w != NULL ? w->params.n : 1, b->weight->real};
    oq_reals bias;
    float input_scale;
    OQ_TRY(bias_numbers(sh, b, &bias, &input_scale, err));
    const oq_reals input = {&input_scale, 1, b->input->real};
    float *scales = OQ_NEW_ARRAY(a, float, weight.n);
    int32_t *out = OQ_NEW_ARRAY(a, int32_t, bias.n);
    OQ_TRY_ALLOC(scales != NULL && out != NULL, err);
    oq_dtype product = OQ_FLOAT;
    bool nan = false;
    oq_bias_scales(input, weight, scales, &product);
    const uint64_t clipped =
        oq_bias_quantize(bias, (oq_reals){scales, weight.n, product}, out, &nan);
    if (nan)
        return oq_fail(err, ONQ_E_INVALID,
                       "bias '%.*s' of node '%.*s' holds NaN or infinity (exclude the node)",
                       OQ_STR(b->init->name), OQ_STR(b->node));
    if (clipped > 0) {
        sh->job.plan->n_bias_saturated++;
        oq_bias_warn_clipped(sh->job.model->env, b->init->name);
    }
    OQ_TRY(oq_tensor_set_raw(a, b->quantized, out, bias.n * sizeof *out, err));
    for (uint64_t i = 0; i < weight.n; i++) {
        scales[i] = oq_real_round(bias.real, (double)scales[i]);
        if (!isfinite(scales[i]))
            return oq_fail(err, ONQ_E_INVALID,
                           "the scale of bias '%.*s' of node '%.*s' is not finite: the ranges of "
                           "its input and weight are too large (exclude the node)",
                           OQ_STR(b->init->name), OQ_STR(b->node));
    }
    OQ_TRY(oq_reals_store(a, b->scale, scales, weight.n, err));
    const oq_plan_tensor row = {.name = b->init->name,
                                .role = OQ_ROLE_BIAS,
                                .type = OQ_INT32,
                                .axis = weight.n > 1 ? (int64_t)b->quantized->dims.n - 1 : -1,
                                .scale = scales,
                                .n = weight.n,
                                .why = "input scale x weight scale"};
    OQ_TRY_ALLOC(oq_plan_add_tensor(sh->job.plan, row), err);
    if (weight.n == 1)
        return oq_tensor_set_typed_i(a, b->zero, &(int64_t){0}, 1, err);
    int32_t *zeros = OQ_NEW_ARRAY(a, int32_t, weight.n);
    OQ_TRY_ALLOC(zeros != NULL, err);
    oq_tensor_set_view(b->zero, zeros, weight.n * sizeof *zeros);
    return ONQ_OK;
}

/* ---- filling ---- */

/* Quantized bytes of a weight that is written transposed. */
typedef struct turned_bytes {
    const oq_producer *inner;
    const onq_allocator *alloc;
    uint64_t batch, rows, cols;
} turned_bytes;

static onq_code make_turned(const oq_producer *self, uint8_t *out, onq_error *err) {
    const turned_bytes *t = self->ctx;
    const uint64_t rows = t->rows, cols = t->cols;
    uint8_t *flat = oq_alloc(t->alloc, self->size);
    OQ_TRY_ALLOC(flat != NULL, err);
    onq_code rc = t->inner->make(t->inner, flat, err);
    for (uint64_t b = 0; rc == ONQ_OK && b < t->batch; b++) {
        const uint8_t *from = flat + b * rows * cols;
        uint8_t *to = out + b * rows * cols;
        /* in tiles, so that both sides stay in the cache */
        for (uint64_t r0 = 0; r0 < rows; r0 += 64)
            for (uint64_t c0 = 0; c0 < cols; c0 += 64)
                for (uint64_t c = c0; c < cols && c < c0 + 64; c++)
                    for (uint64_t r = r0; r < rows && r < r0 + 64; r++)
                        to[c * rows + r] = from[r * cols + c];
    }
    oq_free(t->alloc, flat, self->size);
    return rc;
}

static onq_code plan_weight(oq_qo_shared *sh, const oq_qo_weight *w, onq_error *err) {
    const oq_plan_tensor row = {.name = w->init->name,
                                .role = w->is_weight ? OQ_ROLE_WEIGHT : OQ_ROLE_ACTIVATION,
                                .type = w->spec.type,
                                .axis = w->axis,
                                .scale = w->params.scale,
                                .zero = w->params.zero,
                                .n = w->params.n,
                                .adjusted = w->adjusted,
                                .why = w->adjusted    ? "scale raised for an int32 bias"
                                       : w->given     ? "override"
                                       : w->is_weight ? "weight"
                                                      : "constant input"};
    return oq_plan_add_tensor(sh->job.plan, row) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code fill_weight(oq_qo_shared *sh, oq_qo_weight *w, onq_error *err) {
    oq_arena *a = keep(sh);
    const oq_producer *p = NULL;
    int64_t *zero = OQ_NEW_ARRAY(sh->arena, int64_t, w->params.n);
    double *scale = OQ_NEW_ARRAY(sh->arena, double, w->params.n);
    OQ_TRY_ALLOC(zero != NULL && scale != NULL, err);
    for (uint64_t i = 0; i < w->params.n; i++) {
        zero[i] = w->params.zero[i];
        scale[i] = (double)w->params.scale[i];
    }
    if (w->adjusted)
        OQ_TRY(oq_reals_store(a, w->scale, w->params.scale, w->params.n, err));
    else
        OQ_TRY(oq_tensor_set_typed_f(a, w->scale, scale, w->params.n, err));
    if (oq_qtype_find(w->spec.type)->is_float)
        OQ_TRY(oq_tensor_set_typed_f(a, w->zero, OQ_NEW_ARRAY(sh->arena, double, w->params.n),
                                     w->params.n, err));
    else
        OQ_TRY(oq_tensor_set_typed_i(a, w->zero, zero, w->params.n, err));
    OQ_TRY(oq_qweight_producer(a, &w->w, w->spec.type, &w->params, &p, err));
    if (w->batch != 0) {
        turned_bytes *t = OQ_NEW(a, turned_bytes);
        oq_producer *outer = OQ_NEW(a, oq_producer);
        OQ_TRY_ALLOC(t != NULL && outer != NULL, err);
        *t = (turned_bytes){p, &sh->job.model->env->alloc, w->batch, w->rows, w->cols};
        *outer = (oq_producer){.size = p->size, .make = make_turned, .ctx = t};
        p = outer;
    }
    oq_tensor_set_producer(w->quantized, p);
    return ONQ_OK;
}

static onq_code fill_pad(oq_qo_shared *sh, const oq_qo_pad *p, onq_error *err) {
    const oq_qo_weight *w = p->like->weight;
    float scale = w != NULL ? w->params.scale[0] : p->like->param.scale;
    int32_t zero = w != NULL ? w->params.zero[0] : p->like->param.zero_point;
    const oq_qparams params = {&scale, &zero, 1};
    const oq_dtype type = sh->job.run->config->activation_type;
    oq_qweight c;
    uint64_t bytes = 0;
    OQ_TRY(oq_qweight_init(&c, sh->job.model, p->init, OQ_QGROUP_TENSOR, 0, 0, err));
    OQ_TRY(oq_qweight_bytes(&c, type, &bytes, err));
    uint8_t *out = oq_arena_alloc(keep(sh), bytes);
    OQ_TRY_ALLOC(out != NULL, err);
    OQ_TRY(oq_qweight_quantize(&c, type, &params, out, err));
    oq_tensor_set_view(p->quantized, out, bytes);
    return ONQ_OK;
}

onq_code oq_qo_decide(oq_qo_shared *sh, onq_error *err) {
    OQ_TRY(compute_all(sh, err));
    for (size_t i = 0; i < sh->biases.n; i++)
        OQ_TRY(adjust_for_bias(sh, &sh->biases.v[i], err));
    for (size_t i = 0; i < sh->biases.n; i++)
        OQ_TRY(fill_bias(sh, &sh->biases.v[i], err));
    for (size_t i = 0; i < sh->weights.n; i++)
        OQ_TRY(plan_weight(sh, sh->weights.v[i], err));
    return ONQ_OK;
}

onq_code oq_qo_fill(oq_qo_shared *sh, onq_error *err) {
    for (size_t i = 0; i < sh->weights.n; i++)
        OQ_TRY(fill_weight(sh, sh->weights.v[i], err));
    for (size_t i = 0; i < sh->pads.n; i++)
        OQ_TRY(fill_pad(sh, &sh->pads.v[i], err));
    return ONQ_OK;
}

onq_code oq_qo_turn_weight(oq_qo *q, const oq_qo_value *v, bool rows, onq_error *err) {
    oq_qo_weight *w = v->weight;
    assert(w->init->dims.n == 3);
    const int64_t *d = w->init->dims.v;
    w->batch = (uint64_t)d[0];
    w->rows = (uint64_t)d[1];
    w->cols = (uint64_t)d[2];
    const int64_t turned[3] = {d[0], d[2], d[1]};
    memcpy(w->quantized->dims.v, turned, sizeof turned);
    if (!rows)
        return ONQ_OK;
    oq_tensor *params[2] = {w->scale, w->zero};
    for (size_t i = 0; i < 2; i++) {
        params[i]->dims.n = 0;
        if (!OQ_PUSH(oq_qo_arena(q), &params[i]->dims, d[0]) ||
            !OQ_PUSH(oq_qo_arena(q), &params[i]->dims, d[1]))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

bool oq_qo_is_turned(const oq_qo_value *v) {
    return v->weight != NULL && v->weight->batch != 0;
}

void oq_qo_move_last(oq_qo *q, const oq_qo_value *v) {
    assert(v->weight != NULL);
    for (oq_qo *at = q; at != NULL; at = at->parent) {
        for (size_t i = at->new_inits.n; i > 0; i--) {
            oq_tensor *t = at->new_inits.v[i - 1];
            if (t != v->weight->quantized)
                continue;
            OQ_REMOVE_AT(&at->new_inits, i - 1);
            at->new_inits.v[at->new_inits.n++] = t;
            return;
        }
    }
}
