/*
 * smooth.c — SmoothQuant: which tensors, how large their channels are, and the scales.
 *
 * smooth_edit.c changes the model.
 */
#include "prepare/smooth_parts.h"

#include "onnx/attr.h"
#include "onnx/operators.h"

#include <math.h>

#define LEAST 1e-5f

/* ---- which nodes ---- */

/* Axis of the channels that the weight in input 1 meets, in x and in the weight; false when the
 * node is not one for this. */
static bool find_axes(const oq_node *n, const oq_tensor *w, bool *x_is_image, size_t *w_axis) {
    const oq_op_traits *traits = oq_op_traits_of(n->op_type);
    const oq_product product = traits->form == OQ_FORM_FLOAT ? traits->product : OQ_NO_PRODUCT;
    *x_is_image = product == OQ_CONV;
    switch (product) {
    case OQ_CONV:
        *w_axis = 1;
        return oq_attr_int(n, "group", 1) == 1 && w->dims.n >= 3;
    case OQ_MATMUL:
        *w_axis = 0;
        return w->dims.n == 2;
    case OQ_GEMM:
        *w_axis = oq_attr_int(n, "transB", 0) != 0 ? 1 : 0;
        return w->dims.n == 2 && oq_attr_int(n, "transA", 0) == 0;
    case OQ_CONV_TRANSPOSE:
    case OQ_NO_PRODUCT:
        break;
    }
    return false;
}

static onq_code add_reader(oq_smoothing *s, oq_node *n, oq_tensor *w, bool image, size_t w_axis,
                           onq_error *err) {
    const oq_str x = n->input.v[0];
    const uint32_t found = oq_map_find(&s->map, x);
    oq_smooth_tensor *t = found != OQ_MAP_NONE ? s->all.v[found] : NULL;
    const uint64_t channels = (uint64_t)w->dims.v[w_axis];
    if (t == NULL) {
        t = OQ_NEW(s->arena, oq_smooth_tensor);
        if (t == NULL || !oq_map_put(&s->map, x, (uint32_t)s->all.n) ||
            !OQ_PUSH(s->arena, &s->all, t))
            return oq_fail_nomem(err);
        t->name = x;
        t->is_image = image;
        t->n = channels;
        t->stats = oq_channel_stats_new(s->arena, x, image, channels);
        t->scale = OQ_NEW_ARRAY(s->arena, float, channels + 1);
        if (t->stats == NULL || t->scale == NULL)
            return oq_fail_nomem(err);
    }
    if (t->is_image != image || t->n != channels) {
        t->stats->skip = true; /* readers that see different channels */
        return ONQ_OK;
    }
    const oq_smooth_reader r = {n, w, w_axis};
    return OQ_PUSH(s->arena, &t->readers, r) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code find_tensors(oq_smoothing *s, onq_error *err) {
    const oq_graph *g = s->ix.graph;
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        bool image;
        size_t w_axis;
        if (n->input.n < 2 || n->input.v[0].n == 0 || n->domain.n > 0)
            continue;
        const oq_value *w = oq_index_find(&s->ix, n->input.v[1]);
        const oq_value *x = oq_index_find(&s->ix, n->input.v[0]);
        if (w == NULL || w->init == NULL || w->init->data_type.v != OQ_FLOAT || x == NULL ||
            x->init != NULL || !find_axes(n, w->init, &image, &w_axis))
            continue;
        OQ_TRY(add_reader(s, n, w->init, image, w_axis, err));
    }
    return ONQ_OK;
}

static onq_code observe(oq_smoothing *s, onq_error *err) {
    const oq_smooth_job *job = s->job;
    const oq_channel_job seen = {.model = job->model,
                                 .engine = job->engine,
                                 .source = job->source,
                                 .session = job->session,
                                 .what = "SmoothQuant"};
    oq_channel_stats **all = OQ_NEW_ARRAY(s->arena, oq_channel_stats *, s->all.n + 1);
    if (all == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < s->all.n; i++)
        all[i] = s->all.v[i]->stats;
    return oq_channel_stats_run(&seen, all, s->all.n, s->arena, err);
}

/* ---- scales ---- */

/* Largest magnitude of the weight for each of its channels. */
static onq_code weight_most(oq_smoothing *s, const oq_smooth_reader *r, float *most,
                            onq_error *err) {
    oq_span data;
    uint64_t count, inner = 1;
    OQ_TRY(oq_model_data(s->job->model, r->weight, &data, err));
    OQ_TRY(oq_tensor_count(r->weight, &count, err));
    for (size_t i = r->w_axis + 1; i < r->weight->dims.n; i++)
        inner *= (uint64_t)r->weight->dims.v[i];
    const uint64_t along = (uint64_t)r->weight->dims.v[r->w_axis];
    for (uint64_t i = 0; i < count; i++) {
        float v;
        memcpy(&v, data.p + i * sizeof v, sizeof v);
        float *m = &most[i / inner % along];
        v = fabsf(v);
        if (v > *m)
            *m = v;
    }
    return ONQ_OK;
}

static onq_code compute_scales(oq_smoothing *s, oq_smooth_tensor *t, onq_error *err) {
    const float alpha = (float)s->job->alpha;
    float *weights = OQ_NEW_ARRAY(s->arena, float, t->n + 1);
    if (weights == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < t->readers.n; i++)
        OQ_TRY(weight_most(s, &t->readers.v[i], weights, err));
    for (uint64_t c = 0; c < t->n; c++) {
        /* A channel that is always zero has nothing to move. */
        t->scale[c] = 1.0f;
        const float most = oq_channel_most(t->stats, c);
        if (!(most > 0.0f) || !(weights[c] > 0.0f))
            continue;
        const float below = fmaxf(powf(weights[c], 1.0f - alpha), LEAST);
        t->scale[c] = fmaxf(powf(most, alpha) / below, LEAST);
        if (!isfinite(t->scale[c]))
            t->stats->skip = true;
    }
    return ONQ_OK;
}

static onq_code run(oq_smoothing *s, onq_error *err) {
    OQ_TRY(oq_index_build(&s->ix, s->arena, s->job->model->proto->graph, NULL, err));
    OQ_TRY(oq_fresh_init(&s->names, s->arena, s->job->model, err));
    OQ_TRY(find_tensors(s, err));
    OQ_TRY(observe(s, err));
    for (size_t i = 0; i < s->all.n; i++) {
        oq_smooth_tensor *t = s->all.v[i];
        if (!t->stats->skip)
            OQ_TRY(compute_scales(s, t, err));
        if (t->stats->skip)
            continue;
        OQ_TRY(oq_smooth_apply(s, t, err));
        s->job->n_tensors++;
    }
    return oq_smooth_finish(s, err);
}

onq_code oq_smooth(oq_smooth_job *job, onq_error *err) {
    oq_arena scratch;
    oq_arena_init(&scratch, &job->model->env->alloc);
    oq_smoothing s = {.job = job, .arena = &scratch};
    oq_map_init(&s.map, &scratch);
    job->n_tensors = job->n_folded = 0;
    const onq_code rc = run(&s, err);
    oq_arena_release(&scratch);
    return rc;
}
