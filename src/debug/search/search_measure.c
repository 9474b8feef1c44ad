/*
 * search_measure.c — the model of the set that a search found, made and measured as its users will
 * run it, before it is proposed to anybody. See search_parts.h.
 *
 * Searches measure with the runtime's optimisations off, on a few samples. A user's session has
 * them on, and they undo some of what was left float (quantize/ort/ort_forms.h): so the model is
 * protected as `--keep_excluded_float` protects it, and all samples are run.
 */
#include "debug/search/search_parts.h"

#include "engine/sweep.h"
#include "onnx/codec/schema.h"
#include "onnx/edit.h"
#include "onnx/names.h"
#include "onnx/operators.h"
#include "onnx/tidy.h"
#include "quantize/ort/ort_forms.h"
#include "shape/macs.h"

typedef struct making {
    oq_searching *g;
    oq_arena arena;
    oq_model_proto *own; /* the model's, while another is in its place */
} making;

/* ---- the model ---- */

typedef struct replacing {
    oq_model *m;
    const oq_map *from;
    const oq_str *to;
} replacing;

static onq_code replace_in(void *ctx, oq_graph *graph, onq_error *err) {
    const replacing *r = ctx;
    return oq_graph_replace_many(r->m, graph, r->from, r->to, err);
}

static onq_code prune_in(void *ctx, oq_graph *graph, onq_error *err) {
    return oq_graph_prune(ctx, graph, err);
}

/* Nodes that stand where a pair was go; what read them reads what they read. */
static onq_code take_out(making *k, onq_error *err) {
    oq_searching *g = k->g;
    oq_model *m = g->d->quantized;
    oq_map from;
    OQ_VEC(oq_str) to = {0};
    oq_map_init(&from, &k->arena);
    for (size_t i = 0; i < g->pairs.n; i++) {
        const oq_search_pair *p = &g->pairs.v[i];
        const oq_value *out = oq_index_find(p->ix, p->dq->output.v[0]);
        if (p->like != NULL || out == NULL || out->is_output || !oq_search_is_off(g, p))
            continue;
        if (!oq_map_put(&from, p->dq->output.v[0], (uint32_t)to.n) ||
            !OQ_PUSH(&k->arena, &to, p->inputs.v[0]))
            return oq_fail_nomem(err);
    }
    replacing r = {.m = m, .from = &from, .to = to.v};
    OQ_TRY(oq_walk_graphs(m->proto->graph, replace_in, &r, err));
    return oq_walk_graphs(m->proto->graph, prune_in, m, err);
}

static onq_code protect(making *k, onq_error *err) {
    oq_model *m = k->g->d->quantized;
    oq_fresh names;
    size_t n = 0;
    OQ_TRY(oq_fresh_init(&names, &k->arena, m, err));
    OQ_TRY(oq_forms_protect(m, &names, &n, err));
    return oq_model_sort_all(m, NULL, err);
}

/* A copy of the model as `excluded` says takes its place until `end_copy`. */
static onq_code begin_copy(making *k, onq_error *err) {
    oq_searching *g = k->g;
    oq_model *m = g->d->quantized;
    k->own = m->proto;
    oq_search_apply(g);
    oq_model_proto *copy = oq_message_clone(&m->arena, OQ_SCHEMA_model_proto, m->proto);
    oq_search_put_back(g);
    OQ_TRY_ALLOC(copy != NULL, err);
    m->proto = copy;
    return take_out(k, err);
}

static void end_copy(making *k) {
    k->g->d->quantized->proto = k->own;
}

/* ---- 16 bits instead ---- */

static onq_code wide_inits(making *k, const oq_debug_act *a, oq_str *scale, oq_str *zero,
                           onq_error *err) {
    oq_model *m = k->g->d->quantized;
    const double step = fmax((a->q_hi - a->q_lo) / 65535, 1e-30);
    float *s = OQ_NEW(&m->arena, float);
    uint16_t *z = OQ_NEW(&m->arena, uint16_t);
    *scale = oq_str_cat(&m->arena, a->post, OQ_S("_onq_scale16"));
    *zero = oq_str_cat(&m->arena, a->post, OQ_S("_onq_zero16"));
    OQ_TRY_ALLOC(s != NULL && z != NULL && scale->p != NULL && zero->p != NULL, err);
    *s = (float)step;
    *z = (uint16_t)fmin(65535, fmax(0, nearbyint(-a->q_lo / step)));
    oq_tensor *ts = oq_tensor_new(&m->arena, *scale, OQ_FLOAT, NULL, 0);
    oq_tensor *tz = oq_tensor_new(&m->arena, *zero, OQ_UINT16, NULL, 0);
    if (ts == NULL || tz == NULL || !oq_graph_add_init(&m->arena, m->proto->graph, ts) ||
        !oq_graph_add_init(&m->arena, m->proto->graph, tz))
        return oq_fail_nomem(err);
    oq_tensor_set_view(ts, (const uint8_t *)s, sizeof *s);
    oq_tensor_set_view(tz, (const uint8_t *)z, sizeof *z);
    return ONQ_OK;
}

/* True if one of the nodes in the set makes the tensor. */
static bool is_made_by_set(const oq_searching *g, oq_str pre) {
    for (size_t i = 0; pre.p != NULL && i < g->s->nodes.n; i++) {
        const oq_node *n = oq_debug_node_of(&g->s->nodes.v[i]);
        if (g->s->nodes.v[i].excluded && oq_str_among(pre, n->output.v, n->output.n))
            return true;
    }
    return false;
}

typedef struct widening {
    const oq_debug_act *a;
    oq_str scale, zero, between;
} widening;

static onq_code widen_in(void *ctx, oq_graph *graph, onq_error *err) {
    widening *w = ctx;
    (void)err;
    for (size_t n = 0; n < graph->node.n; n++) {
        oq_node *node = graph->node.v[n];
        const bool q = oq_node_is_quantize(node);
        if (!oq_node_is_pair(node) || node->input.n < 3 ||
            !oq_str_eq(node->input.v[0], q ? w->a->pre : w->between))
            continue;
        if (q)
            w->between = node->output.v[0];
        node->domain = OQ_S("com.microsoft");
        node->input.v[1] = w->scale;
        node->input.v[2] = w->zero;
    }
    return ONQ_OK;
}

/* The pairs after the nodes of the set get 16 bits, over the range that they have. */
static onq_code widen(making *k, onq_error *err) {
    oq_searching *g = k->g;
    oq_model *m = g->d->quantized;
    for (size_t i = 0; i < g->d->acts.n; i++) {
        widening w = {.a = &g->d->acts.v[i]};
        if (w.a->n_params != 1 || w.a->integer || !is_made_by_set(g, w.a->pre))
            continue;
        OQ_TRY(wide_inits(k, w.a, &w.scale, &w.zero, err));
        OQ_TRY(oq_walk_graphs(m->proto->graph, widen_in, &w, err));
    }
    return oq_model_set_opset(m, OQ_S("com.microsoft"), 1, err);
}

/* ---- measuring ---- */

static onq_code open_both(making *k, oq_sweep_model models[2], onq_error *err) {
    oq_searching *g = k->g;
    oq_session_options o = g->run->session;
    o.no_spinning = true;
    o.model = g->d->flt;
    o.level = OQ_OPT_NONE;
    OQ_TRY(oq_session_open(g->run->engine, &o, &models[0].session, err));
    o.model = g->d->quantized;
    o.level = OQ_OPT_ALL;
    return oq_session_open(g->run->engine, &o, &models[1].session, err);
}

typedef struct verifying {
    const oq_searching *g;
    oq_search_sum *sums; /* by output */
    uint64_t n;
} verifying;

static onq_code compare_outputs(void *ctx, const oq_turn *t, onq_error *err) {
    verifying *v = ctx;
    const oq_outputs *flt = &t->outputs[0], *quantized = &t->outputs[1];
    for (size_t i = 0; i < v->g->n_outputs && i < flt->n && i < quantized->n; i++)
        OQ_TRY(oq_search_sum_add(v->g, &v->sums[i], &flt->v[i], &quantized->v[i], err));
    v->n++;
    return ONQ_OK;
}

static onq_code run_all(making *k, oq_search_score *out, uint64_t *n, onq_error *err) {
    oq_searching *g = k->g;
    oq_sweep_model models[] = {{.source = g->run->float_source, .path = g->d->flt->path},
                               {.source = g->run->quantized_source, .path = g->d->quantized->path}};
    verifying v = {.g = g, .sums = OQ_NEW_ARRAY(&k->arena, oq_search_sum, g->n_outputs + 1)};
    const oq_sweep sweep = {.env = g->d->env,
                            .models = models,
                            .n_models = OQ_COUNT(models),
                            .ctx = &v,
                            .take = compare_outputs,
                            .what = "verifying"};
    OQ_TRY_ALLOC(v.sums != NULL, err);
    onq_code rc = open_both(k, models, err);
    if (rc == ONQ_OK)
        rc = oq_sweep_run(&sweep, err);
    oq_session_close(models[0].session);
    oq_session_close(models[1].session);
    *n = v.n;
    if (rc == ONQ_OK)
        *out = oq_search_score_of(v.sums, g->n_outputs);
    return rc;
}

/* One model: the set float, or with 16 bits. What the runtime refuses has no figure. */
static onq_code measure_quantized(oq_searching *g, bool wide, oq_search_score *out, uint64_t *n,
                                  onq_error *err) {
    making k = {.g = g};
    onq_error why = ONQ_ERROR_INIT;
    assert(!g->keep_acts);
    oq_arena_init(&k.arena, &g->d->env->alloc);
    g->keep_acts = wide;
    onq_code rc = begin_copy(&k, &why);
    if (rc == ONQ_OK && wide)
        rc = widen(&k, &why);
    if (rc == ONQ_OK)
        rc = protect(&k, &why);
    if (rc == ONQ_OK)
        rc = run_all(&k, out, n, &why);
    end_copy(&k);
    g->keep_acts = false;
    oq_arena_release(&k.arena);
    if (rc == ONQ_OK)
        return rc;
    if (rc != ONQ_E_RUNTIME)
        return oq_error_give(err, rc, &why);
    oq_warn(g->d->env, "the set that was found could not be verified: %s", why.text);
    return ONQ_OK;
}

/* ---- what is left in integers ---- */

typedef struct counting {
    oq_searching *g;
    const oq_shapes *shapes;
    double *macs;     /* by s->nodes */
    size_t next;      /* row of s->nodes: they are in the order of this walk */
    double all, left; /* bodies count once, however often they run */
} counting;

/* `graph` is a copy of one that was searched, with the same nodes. */
static onq_code count_graph(void *ctx, oq_graph *graph, onq_error *err) {
    counting *c = ctx;
    const oq_debug_search *s = c->g->s;
    (void)err;
    for (uint32_t i = 0; i < graph->node.n; i++) {
        const oq_node *node = graph->node.v[i];
        const double n = oq_node_macs(c->shapes, graph, node);
        c->all += n;
        if (c->next >= s->nodes.n || s->nodes.v[c->next].node != i ||
            !oq_str_eq(s->nodes.v[c->next].name, node->name))
            continue;
        c->left += s->nodes.v[c->next].excluded ? 0 : n;
        c->macs[c->next++] = n;
    }
    return ONQ_OK;
}

static onq_code count_macs(oq_searching *g, const oq_shapes *shapes, onq_error *err) {
    oq_debug_search *s = g->s;
    counting c = {.g = g, .shapes = shapes, .macs = OQ_NEW_ARRAY(g->arena, double, s->nodes.n + 1)};
    OQ_TRY_ALLOC(c.macs != NULL, err);
    OQ_TRY(oq_walk_graphs(g->d->quantized->proto->graph, count_graph, &c, err));
    const double all = c.all, *macs = c.macs;
    for (size_t i = 0; i < s->units.n; i++)
        for (size_t k = 0; all > 0 && k < s->units.v[i].nodes.n; k++)
            s->units.v[i].macs += macs[s->units.v[i].nodes.v[k]] / all;
    if (all > 0)
        s->macs = c.left / all;
    return ONQ_OK;
}

static onq_code count_floats(void *ctx, oq_graph *graph, onq_error *err) {
    uint64_t n = 0;
    (void)err;
    for (size_t i = 0; i < graph->initializer.n; i++)
        if (oq_dtype_is_float(graph->initializer.v[i]->data_type.v) &&
            oq_tensor_count(graph->initializer.v[i], &n, NULL) == ONQ_OK)
            *(double *)ctx += (double)n;
    return ONQ_OK;
}

static onq_code count_weights(oq_searching *g, onq_error *err) {
    const oq_debug *d = g->d;
    oq_map out;
    double all = 0, left = 0;
    uint64_t n = 0;
    oq_map_init(&out, g->arena);
    for (size_t i = 0; i < g->s->nodes.n; i++)
        if (g->s->nodes.v[i].excluded && !oq_map_put(&out, g->s->nodes.v[i].name, 0))
            return oq_fail_nomem(err);
    OQ_TRY(oq_walk_graphs(d->flt->proto->graph, count_floats, &all, err));
    for (size_t i = 0; i < d->weights.n; i++)
        if (!oq_map_has(&out, d->weights.v[i].node) &&
            oq_tensor_count(d->weights.v[i].flt, &n, NULL) == ONQ_OK)
            left += (double)n;
    if (all > 0)
        g->s->weights = fmin(1, left / all);
    return ONQ_OK;
}

/* Gives the inputs the sizes of the first sample. */
static onq_code fix_inputs(oq_searching *g, onq_error *err) {
    const oq_sample *sample = NULL;
    oq_ios in;
    OQ_TRY(oq_model_inputs(g->d->quantized, g->arena, &in, err));
    OQ_TRY(oq_source_seek(g->run->quantized_source, 0, err));
    OQ_TRY(oq_source_next(g->run->quantized_source, &sample, err));
    for (size_t i = 0; sample != NULL && i < in.n && i < sample->n_inputs; i++)
        if (sample->inputs[i].kind == OQ_DATUM_TENSOR)
            OQ_TRY(oq_input_fix(g->d->quantized, in.v[i].name, sample->inputs[i].dims,
                                sample->inputs[i].rank, err));
    return ONQ_OK;
}

static onq_code count_work(oq_searching *g, onq_error *err) {
    const oq_shape_options how = {.symbolic = true};
    oq_model *m = g->d->quantized;
    oq_model_proto *const own = m->proto;
    oq_shapes *shapes = NULL;
    m->proto = oq_message_clone(g->arena, OQ_SCHEMA_model_proto, own);
    onq_code rc = m->proto != NULL ? fix_inputs(g, err) : oq_fail_nomem(err);
    if (rc == ONQ_OK)
        rc = oq_shapes_infer(m, &how, &shapes, err);
    if (rc == ONQ_OK)
        rc = count_macs(g, shapes, err);
    oq_shapes_free(shapes);
    m->proto = own;
    return rc == ONQ_OK ? count_weights(g, err) : rc;
}

/* Operators of which every quantized node is in the set. */
static onq_code find_types(oq_searching *g, onq_error *err) {
    oq_debug_search *s = g->s;
    for (size_t i = 0; i < s->nodes.n; i++) {
        size_t all = 0, in = 0;
        bool first = true;
        for (size_t k = 0; k < s->nodes.n; k++) {
            if (!oq_str_eq(s->nodes.v[k].op, s->nodes.v[i].op))
                continue;
            first &= k >= i;
            all++;
            in += s->nodes.v[k].excluded;
        }
        if (first && all == in && all >= 2 && !OQ_PUSH(g->arena, &s->types, s->nodes.v[i].op))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

onq_code oq_search_verify(oq_searching *g, onq_error *err) {
    oq_debug_search *s = g->s;
    oq_search_score quantized = {NAN, NAN}, wide = {NAN, NAN};
    uint64_t n = 0;
    if (s->bisected && (!s->reached || s->n_excluded == 0))
        return count_work(g, err);
    for (size_t i = 0; i < s->nodes.n; i++)
        g->excluded[i] = s->nodes.v[i].excluded;
    OQ_TRY(find_types(g, err));
    OQ_TRY(count_work(g, err));
    OQ_TRY(measure_quantized(g, false, &quantized, &s->quantized_samples, err));
    s->quantized_sqnr = quantized.sqnr;
    s->quantized_agreement = quantized.agreement;
    if (g->target->overrides)
        OQ_TRY(measure_quantized(g, true, &wide, &n, err));
    s->wide_sqnr = wide.sqnr;
    return ONQ_OK;
}
