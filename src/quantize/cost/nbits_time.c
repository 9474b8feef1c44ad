/*
 * nbits_time.c — see nbits_time.h.
 */
#include "quantize/cost/nbits_time.h"

#include "onnx/edit.h"
#include "quantize/cost/unit_time.h"
#include "quantize/qoperator/qoperator.h"

#define ROUNDS     4
#define RUNS       3
#define OPSET      21
#define IR_VERSION 10

typedef enum form { FORM_REAL, FORM_NBITS, FORM_INT8, FORMS } form;

typedef struct trial {
    oq_model *m;
    oq_nb_made made;
    oq_session *s;
    double best[2]; /* seconds */
} trial;

typedef struct timing {
    oq_engine *e;
    const oq_nb_config *config;
    const oq_nb_speed *speed;
    oq_arena arena;
    float *x; /* OQ_NB_ROWS_MANY rows */
    float *w;
} timing;

/* ---- one model ---- */

/* y<i> = x w<i>; all weights have the same values. */
static onq_code add_product(timing *k, trial *t, uint64_t i, onq_error *err) {
    const int64_t dims[] = {(int64_t)k->speed->k, (int64_t)k->speed->n}, out[] = {-1, dims[1]};
    oq_arena *a = &t->m->arena;
    oq_graph *g = t->m->proto->graph;
    const oq_str names[] = {OQ_S("x"), oq_str_format(a, "w%llu", (unsigned long long)i)};
    const oq_str y = oq_str_format(a, "y%llu", (unsigned long long)i);
    const oq_str node = oq_str_format(a, "mm%llu", (unsigned long long)i);
    if (names[1].p == NULL || y.p == NULL || node.p == NULL)
        return oq_fail_nomem(err);
    oq_tensor *w = oq_tensor_new(a, names[1], OQ_FLOAT, dims, 2);
    oq_node *n = oq_node_make(a, "MatMul", node, names, 2, &y, 1);
    oq_value_info *to = oq_value_info_new(a, y, OQ_FLOAT, out, 2, true);
    if (w == NULL || n == NULL || to == NULL || !oq_graph_add_init(a, g, w) ||
        !oq_graph_add_node(a, g, n) || !OQ_PUSH(a, &g->output, to))
        return oq_fail_nomem(err);
    oq_tensor_set_view(w, k->w, k->speed->k * k->speed->n * sizeof(float));
    return ONQ_OK;
}

static onq_code make_real(timing *k, trial *t, onq_error *err) {
    const int64_t in[] = {-1, (int64_t)k->speed->k};
    OQ_TRY(oq_model_new(k->e->env, IR_VERSION, OPSET, &t->m, err));
    oq_arena *a = &t->m->arena;
    oq_value_info *from = oq_value_info_new(a, OQ_S("x"), OQ_FLOAT, in, 2, true);
    if (from == NULL || !OQ_PUSH(a, &t->m->proto->graph->input, from))
        return oq_fail_nomem(err);
    for (uint64_t i = 0; i == 0 || i < k->speed->copies; i++)
        OQ_TRY(add_product(k, t, i, err));
    return ONQ_OK;
}

/* The node as it is quantized in the model, whatever lists say. */
static onq_code make_nbits(timing *k, trial *t, oq_plan *plan, onq_error *err) {
    oq_qconfig lists;
    oq_nb_config c;
    oq_qconfig_init(&lists, &k->arena);
    oq_nb_config_init(&c, &lists);
    c.how = k->config->how;
    c.qdq = k->config->qdq;
    c.form = k->config->form;
    c.bnb4 = k->config->bnb4;
    c.channel_wise = k->config->channel_wise;
    const oq_nb_job job = {.model = t->m, .config = &c, .plan = plan, .made = &t->made};
    return oq_nb_run(&job, err);
}

static onq_code make_int8(timing *k, trial *t, oq_plan *plan, onq_error *err) {
    oq_qconfig c;
    oq_qrun run;
    oq_qconfig_init(&c, &k->arena);
    c.activation_type = OQ_UINT8;
    oq_qrun_init(&run, &c);
    const oq_qo_job job = {.model = t->m, .run = &run, .plan = plan};
    return oq_qo_run(&job, err);
}

static onq_code open_trial(timing *k, trial *t, form f, const oq_session_options *like,
                           onq_error *err) {
    oq_session_options o = *like;
    oq_plan plan;
    oq_plan_init(&plan, &k->arena);
    t->best[0] = t->best[1] = INFINITY;
    OQ_TRY(make_real(k, t, err));
    if (f == FORM_NBITS)
        OQ_TRY(make_nbits(k, t, &plan, err));
    if (f == FORM_INT8)
        OQ_TRY(make_int8(k, t, &plan, err));
    o.model = t->m;
    o.level = OQ_OPT_ALL;
    o.no_spinning = true;
    return oq_session_open(k->e, &o, &t->s, err);
}

/* ---- timing ---- */

static onq_code run_trial(const timing *k, trial *t, size_t many, onq_error *err) {
    const int64_t rows = many != 0 ? OQ_NB_ROWS_MANY : OQ_NB_ROWS_ONE;
    const int64_t dims[] = {rows, (int64_t)k->speed->k};
    const uint64_t count = (uint64_t)rows * k->speed->k;
    const oq_datum in = {.kind = OQ_DATUM_TENSOR,
                         .dtype = OQ_FLOAT,
                         .rank = 2,
                         .dims = dims,
                         .count = count,
                         .data = k->x,
                         .size_bytes = count * sizeof(float)};
    for (int i = 0; i < RUNS; i++) {
        const double begin = oq_seconds();
        OQ_TRY(oq_session_run(t->s, &in, 1, NULL, err));
        t->best[many] = fmin(t->best[many], oq_seconds() - begin);
    }
    return ONQ_OK;
}

static onq_code time_all(timing *k, trial *trials, const oq_session_options *like, onq_error *err) {
    uint64_t n_weights, n_inputs;
    if (!oq_mul(k->speed->k, k->speed->n, &n_weights) ||
        !oq_mul(k->speed->k, OQ_NB_ROWS_MANY, &n_inputs))
        return oq_fail(err, ONQ_E_LIMIT, "the weight is too large");
    k->w = oq_timed_values(&k->arena, OQ_FLOAT, n_weights);
    k->x = oq_timed_values(&k->arena, OQ_FLOAT, n_inputs);
    OQ_TRY_ALLOC(k->w != NULL && k->x != NULL, err);
    for (size_t f = 0; f < FORMS; f++)
        OQ_TRY(open_trial(k, &trials[f], (form)f, like, err));
    for (int r = 0; r < ROUNDS; r++)
        for (size_t f = 0; f < FORMS; f++)
            for (size_t many = 0; many < 2; many++)
                OQ_TRY(run_trial(k, &trials[f], many, err));
    return ONQ_OK;
}

onq_code oq_nb_time(oq_engine *e, const oq_session_options *like, const oq_nb_config *config,
                    oq_nb_speed *out, onq_error *err) {
    trial trials[FORMS] = {0};
    timing k = {.e = e, .config = config, .speed = out};
    oq_arena_init(&k.arena, &e->env->alloc);
    const onq_code rc = time_all(&k, trials, like, err);
    for (size_t many = 0; many < 2 && rc == ONQ_OK; many++) {
        out->nbits[many] = trials[FORM_NBITS].best[many] / trials[FORM_REAL].best[many];
        out->int8[many] = trials[FORM_INT8].best[many] / trials[FORM_REAL].best[many];
    }
    for (size_t f = 0; f < FORMS; f++) {
        if (trials[f].s != NULL)
            oq_session_close(trials[f].s);
        oq_nb_made_release(&trials[f].made);
        oq_model_free(trials[f].m);
    }
    oq_arena_release(&k.arena);
    return rc;
}
