/*
 * convert.c — the walk over all graphs of a model, and the steps of a conversion.
 */
#include "quantize/convert/convert.h"

#include "onnx/check/check.h"
#include "onnx/tidy.h"
#include "quantize/convert/cv.h"
#include "quantize/ort/result_opset.h"

/* ---- one graph ---- */

static onq_code scope_init(oq_cv_scope *s, oq_cv *cv, oq_graph *g, const oq_cv_scope *parent,
                           onq_error *err) {
    *s = (oq_cv_scope){.cv = cv, .graph = g, .parent = parent};
    OQ_TRY(oq_index_build(&s->index, &cv->scratch, g, parent != NULL ? &parent->index : NULL, err));
    s->drop = OQ_NEW_ARRAY(&cv->scratch, bool, g->node.n + 1);
    oq_map_init(&s->params, &cv->scratch);
    oq_map_init(&s->made, &cv->scratch);
    return s->drop != NULL ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_cv_settle(oq_cv_scope *s, onq_error *err) {
    oq_graph *g = s->graph;
    oq_node **list = OQ_NEW_ARRAY(s->cv->arena, oq_node *, s->out.n + 1);
    OQ_TRY_ALLOC(list != NULL, err);
    if (s->out.n > 0)
        memcpy(list, s->out.v, s->out.n * sizeof *list);
    g->node.v = list;
    g->node.n = s->out.n;
    g->node.cap = s->out.n + 1;
    return oq_index_build(&s->index, &s->cv->scratch, g,
                          s->parent != NULL ? &s->parent->index : NULL, err);
}

static onq_code walk_graph(oq_cv *cv, oq_graph *g, const oq_cv_scope *parent, oq_cv_step step,
                           int depth, onq_error *err) {
    oq_cv_scope s;
    if (depth > OQ_MAX_GRAPH_DEPTH)
        return oq_fail(err, ONQ_E_LIMIT, "graphs are nested more than %d deep", OQ_MAX_GRAPH_DEPTH);
    OQ_TRY(scope_init(&s, cv, g, parent, err));
    OQ_TRY(step(&s, err));
    OQ_TRY(oq_cv_settle(&s, err));
    for (size_t i = 0; i < g->node.n; i++) {
        oq_graph_cursor at = {0};
        for (oq_graph *inner; (inner = oq_node_next_graph(g->node.v[i], &at)) != NULL;)
            OQ_TRY(walk_graph(cv, inner, &s, step, depth + 1, err));
    }
    return ONQ_OK;
}

/* ---- functions ---- */

static bool add_infos(oq_arena *a, const oq_strs *names, oq_graph *g, bool outputs) {
    for (size_t i = 0; i < names->n; i++) {
        oq_value_info *v = OQ_NEW(a, oq_value_info);
        if (v == NULL)
            return false;
        v->name = names->v[i];
        if (!(outputs ? OQ_PUSH(a, &g->output, v) : OQ_PUSH(a, &g->input, v)))
            return false;
    }
    return true;
}

/* The body of a function as a graph. */
static oq_graph *graph_of(oq_cv *cv, const oq_function *f) {
    oq_graph *g = OQ_NEW(cv->arena, oq_graph);
    if (g == NULL || !add_infos(cv->arena, &f->input, g, false) ||
        !add_infos(cv->arena, &f->output, g, true))
        return NULL;
    for (size_t i = 0; i < f->node.n; i++)
        if (!OQ_PUSH(cv->arena, &g->node, f->node.v[i]))
            return NULL;
    return g;
}

/* The graph as the body again: a function has no initializers, so they become Constant nodes. */
static onq_code body_of(oq_cv *cv, oq_graph *g, oq_function *f, onq_error *err) {
    f->node.n = 0;
    for (size_t i = 0; i < g->initializer.n; i++) {
        oq_tensor *t = g->initializer.v[i];
        oq_node *n = oq_node_make(cv->arena, OQ_CONSTANT, (oq_str){0}, NULL, 0, &t->name, 1);
        if (n == NULL || !oq_attr_set_tensor(cv->arena, n, OQ_S("value"), t) ||
            !OQ_PUSH(cv->arena, &f->node, n))
            return oq_fail_nomem(err);
    }
    for (size_t i = 0; i < g->node.n; i++)
        OQ_TRY_ALLOC(OQ_PUSH(cv->arena, &f->node, g->node.v[i]), err);
    return ONQ_OK;
}

static onq_code prune(oq_cv *cv, oq_graph *g, onq_error *err) {
    for (size_t i = 0; i < g->node.n; i++) {
        oq_graph_cursor at = {0};
        for (oq_graph *inner; (inner = oq_node_next_graph(g->node.v[i], &at)) != NULL;)
            OQ_TRY(prune(cv, inner, err));
    }
    return oq_graph_prune_new(cv->model, g, &cv->dead, err);
}

/* All steps for one body; steps after the first see what the ones before them made. */
static onq_code convert_graph(oq_cv *cv, oq_graph *g, const oq_cv_step *steps, onq_error *err) {
    OQ_TRY(oq_graph_find_dead(cv->model, g, &cv->dead, err));
    for (; *steps != NULL; steps++) {
        OQ_TRY(walk_graph(cv, g, NULL, *steps, 0, err));
        OQ_TRY(prune(cv, g, err));
    }
    return ONQ_OK;
}

static onq_code convert_all(oq_cv *cv, const oq_cv_step *steps, onq_error *err) {
    oq_model_proto *p = cv->model->proto;
    OQ_TRY(convert_graph(cv, p->graph, steps, err));
    for (size_t i = 0; i < p->functions.n; i++) {
        oq_function *f = p->functions.v[i];
        oq_graph *g = graph_of(cv, f);
        OQ_TRY_ALLOC(g != NULL, err);
        OQ_TRY(oq_fresh_add(&cv->names, g, err));
        const onq_code rc = convert_graph(cv, g, steps, err);
        if (rc != ONQ_OK)
            return oq_error_in(err, rc, "function '%.*s'", OQ_STR(f->name));
        OQ_TRY(body_of(cv, g, f, err));
    }
    return ONQ_OK;
}

/* ---- the conversion ---- */

/* The opset that integers in blocks need: 4 and 8 bits came with 21, 2 bits with 25. */
static onq_code find_opset(void *ctx, oq_graph *g, onq_error *err) {
    int64_t *need = ctx;
    (void)err;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        const oq_op_traits *t = oq_op_traits_of(n->op_type);
        const int64_t least = oq_attr_int(n, "bits", 4) == 2 ? 25 : 21;
        if (t->form == OQ_FORM_WEIGHT_ONLY && oq_str_is(n->domain, OQ_MICROSOFT) && *need < least)
            *need = least;
    }
    return ONQ_OK;
}

static onq_code raise(oq_cv *cv, onq_error *err) {
    oq_model *m = cv->model;
    int64_t need = 0;
    if (cv->job->to != OQ_TO_QDQ && cv->job->to != OQ_TO_BLOCKS)
        return ONQ_OK;
    OQ_TRY(oq_walk_graphs(m->proto->graph, find_opset, &need, err));
    if (need > cv->opset) {
        OQ_TRY(oq_opset_raise(m, need, "integers in blocks need it", false, err));
        cv->opset = need;
    }
    return need > 0 ? oq_model_raise_ir(m, need == 25 ? 13 : 10, err) : ONQ_OK;
}

static onq_code run(oq_cv *cv, onq_error *err) {
    static const oq_cv_step steps[][3] = {
        [OQ_TO_FLOAT] = {oq_cv_lift, oq_cv_to_float, NULL},
        [OQ_TO_QDQ] = {oq_cv_lift, NULL, NULL},
        [OQ_TO_QOPERATOR] = {oq_cv_to_qoperator, NULL, NULL},
        [OQ_TO_NBITS] = {oq_cv_to_nbits, NULL, NULL},
        [OQ_TO_BLOCKS] = {oq_cv_to_blocks, NULL, NULL},
        [OQ_TO_UINT8] = {oq_cv_to_uint8, NULL, NULL},
    };
    oq_model *m = cv->model;
    oq_model_touch(m);
    OQ_TRY(oq_cv_begin(cv, err));
    OQ_TRY(raise(cv, err));
    OQ_TRY(oq_fresh_init(&cv->names, &cv->scratch, m, err));
    OQ_TRY(oq_model_raise_ir(m, 4, err)); /* initializers that are not inputs */
    OQ_TRY(convert_all(cv, steps[cv->job->to], err));
    OQ_TRY(oq_graph_prune_inits(m, m->proto->graph, err));
    OQ_TRY(oq_model_sort_all(m, NULL, err));
    if (cv->job->to == OQ_TO_QDQ && cv->has_channels)
        OQ_TRY(oq_opset_raise(m, 13, "scales of channels need it", false, err));
    if (cv->used_microsoft && oq_model_opset(m, OQ_S(OQ_MICROSOFT)) == 0)
        OQ_TRY(oq_model_set_opset(m, OQ_S(OQ_MICROSOFT), 1, err));
    return ONQ_OK;
}

onq_code oq_convert_run(oq_convert_job *job, onq_error *err) {
    oq_cv cv = {.job = job, .model = job->model, .arena = &job->model->arena};
    cv.opset = oq_model_opset(job->model, OQ_S(""));
    oq_arena_init(&cv.scratch, &job->model->env->alloc);
    oq_map_init(&cv.lifted, &cv.scratch);
    oq_map_init(&cv.dead, &cv.scratch);
    const onq_code rc = run(&cv, err);
    oq_arena_release(&cv.scratch);
    if (rc == ONQ_OK)
        OQ_ASSERT_VALID(job->model);
    return rc;
}
