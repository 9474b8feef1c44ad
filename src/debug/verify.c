/*
 * verify.c — see verify.h.
 */
#include "debug/verify.h"

#include "engine/sweep.h"
#include "onnx/operators.h"
#include "samples/agreement.h"
#include "samples/columns.h"

#include <math.h>

/* The size of an output may depend on its values (NonZero): then there is nothing to compare.
 * Integers and texts are not compared either: a different class is not noise. Items nest no deeper
 * than a type, which is checked when a model is read. */
static void add(oq_agree *s, const oq_datum *a, const oq_datum *b) {
    if (a->kind == OQ_DATUM_TENSOR && b->kind == OQ_DATUM_TENSOR && oq_dtype_is_float(a->dtype) &&
        a->dtype == b->dtype && oq_datum_same_dims(a, b))
        oq_agree_add(s, a, b);
    for (size_t i = 0; a->n_items == b->n_items && i < a->n_items; i++)
        add(s, &a->items[i], &b->items[i]);
}

static double decibel(const oq_agree *s) {
    const double db = oq_agree_sqnr(s);
    return db > OQ_GRADE_EQUAL ? OQ_GRADE_EQUAL : db;
}

/* Rows of scores are classes; a longer output is a map or a sequence of states. */
static bool has_scores(const oq_datum *d) {
    return d->kind == OQ_DATUM_TENSOR && (d->rank == 1 || d->rank == 2) && d->dims[d->rank - 1] > 1;
}

/* One output, from all runs. */
static void judge(const oq_agree *sum, oq_str name, bool scores, oq_verdict *v) {
    if (sum->n == 0 || sum->aa == 0)
        return;
    v->n_outputs++;
    if (scores && v->rows == 0) {
        v->rows = sum->rows;
        v->same = sum->same;
    }
    if (!v->measured || oq_agree_cosine(sum) < v->cosine)
        v->cosine = oq_agree_cosine(sum);
    if (v->measured && decibel(sum) >= v->sqnr)
        return;
    v->measured = true;
    v->sqnr = decibel(sum);
    v->output = name;
}

/* What the runtime says of the model; anything else that failed is an error. */
static onq_code take(onq_code rc, oq_verify_end end, oq_verdict *v, onq_error *err) {
    if (rc != ONQ_E_RUNTIME)
        return rc == ONQ_OK ? rc : oq_error_give(err, rc, &v->why);
    v->end = end;
    return ONQ_OK;
}

/* What a run gave against what float gave. */
static void add_run(const oq_roles *roles, const oq_record_run *run, const oq_outputs *out,
                    size_t n, oq_agree *sums, oq_verdict *v) {
    const oq_language *l = &roles->language;
    for (size_t k = 0; k < run->n_outputs && k < out->n && k < n; k++)
        add(&sums[k], &run->outputs[k], &out->v[k]);
    if (!v->speaks || l->logits >= run->n_outputs || l->logits >= out->n)
        return;
    const oq_lm_text text = {.ids = l->causal ? &run->inputs[l->ids] : NULL,
                             .mask = l->mask != OQ_NOWHERE ? &run->inputs[l->mask] : NULL};
    oq_lm_add(&v->text, &text, &run->outputs[l->logits], &out->v[l->logits]);
}

/* Runs all of the record and adds up what its outputs say; a run that fails is the verdict. */
static onq_code run_all(oq_session *s, const oq_record *r, const oq_roles *roles, oq_agree *sums,
                        oq_verdict *v, onq_error *err) {
    for (size_t i = 0; i < r->runs.n; i++) {
        const oq_record_run *run = &r->runs.v[i];
        oq_outputs out = {0};
        OQ_TRY(oq_progress(s->engine->env, "verifying", i, r->runs.n, err));
        const double began = oq_seconds();
        OQ_TRY(take(oq_session_run(s, run->inputs, run->n_inputs, &out, &v->why), OQ_VERIFY_NOT_RUN,
                    v, err));
        const double took = oq_seconds() - began;
        v->seconds = i == 0 || took < v->seconds ? took : v->seconds;
        if (v->end != OQ_VERIFY_GOOD)
            return ONQ_OK;
        add_run(roles, run, &out, s->outputs.n, sums, v);
        v->n_runs++;
    }
    v->ran = v->n_runs > 0;
    return ONQ_OK;
}

/* True if what float gave in all runs is no scores of classes: coordinates and grades. */
static onq_code holds_numbers(const oq_record *r, size_t output, oq_arena *a, bool *yes,
                              onq_error *err) {
    oq_columns c;
    *yes = false;
    OQ_TRY(oq_columns_begin(&c, &r->runs.v[0].outputs[output], a, err));
    for (size_t i = 0; i < r->runs.n; i++)
        if (output >= r->runs.v[i].n_outputs || !oq_columns_add(&c, &r->runs.v[i].outputs[output]))
            return ONQ_OK;
    *yes = oq_columns_are_numbers(&c);
    return ONQ_OK;
}

static onq_code judge_all(const oq_session *s, const oq_record *r, const oq_roles *roles,
                          const oq_agree *sums, oq_arena *a, oq_verdict *v, onq_error *err) {
    const oq_record_run *first = &r->runs.v[0];
    for (size_t i = 0; i < first->n_outputs && i < s->outputs.n; i++) {
        if (sums[i].wrecked) {
            v->end = OQ_VERIFY_NOT_FINITE;
            (void)oq_fail(
                &v->why, ONQ_E_RUNTIME,
                "output '%.*s' has NaN or infinity where the float model has finite values",
                OQ_STR(s->outputs.v[i].name));
            return ONQ_OK;
        }
        if (roles->states[i] && roles->n_states < s->outputs.n)
            continue; /* no answer of the model */
        bool scores = i == 0 && r->classes, numbers = false;
        if (!scores && has_scores(&first->outputs[i])) {
            OQ_TRY(holds_numbers(r, i, a, &numbers, err));
            scores = !numbers;
        }
        judge(&sums[i], s->outputs.v[i].name, scores, v);
    }
    return ONQ_OK;
}

static onq_code run(oq_session *s, const oq_session_options *how, const oq_record *r, oq_verdict *v,
                    onq_error *err) {
    const onq_allocator *alloc = &s->engine->env->alloc;
    bool random = false;
    if (r == NULL || r->runs.n == 0 || r->runs.v[0].n_inputs != s->inputs.n)
        return ONQ_OK;
    OQ_TRY(oq_model_is_random(how->model, &random, err));
    OQ_SCRATCH(arena, alloc);
    oq_roles roles;
    if (r->roles != NULL)
        roles = *r->roles;
    else
        OQ_TRY(oq_roles_find(&arena, &s->inputs, &s->outputs, &roles, err));
    v->n_states = roles.n_states;
    v->speaks = roles.language.is;
    oq_agree *sums = OQ_NEW_ARRAY(&arena, oq_agree, s->outputs.n + 1);
    OQ_TRY_ALLOC(sums != NULL, err);
    OQ_TRY(run_all(s, r, &roles, sums, v, err));
    return v->ran && !random ? judge_all(s, r, &roles, sums, &arena, v, err) : ONQ_OK;
}

onq_code oq_verify(oq_engine *e, const oq_session_options *how, const oq_record *r, oq_verdict *v,
                   onq_error *err) {
    oq_session *s = NULL;
    *v = (oq_verdict){.why = ONQ_ERROR_INIT};
    OQ_TRY(oq_progress(e->env, "verifying", 0, 0, err));
    OQ_TRY(take(oq_session_open(e, how, &s, &v->why), OQ_VERIFY_NOT_LOADED, v, err));
    onq_code rc = ONQ_OK;
    if (v->end == OQ_VERIFY_GOOD)
        rc = run(s, how, r, v, err);
    oq_session_close(s);
    return rc;
}

static bool wants_more(void *ctx, uint64_t at) {
    return oq_record_wants(ctx, at);
}

static onq_code keep_run(void *ctx, const oq_turn *t, onq_error *err) {
    const oq_sample *s = &t->samples[0];
    return oq_record_keep(ctx, s->inputs, s->n_inputs, t->outputs[0].v, t->outputs[0].n, err);
}

void oq_verify_fill(oq_sweep *s, oq_record *r) {
    s->ctx = r;
    s->more = wants_more;
    s->take = keep_run;
}

onq_code oq_verify_record(oq_engine *e, const oq_session_options *how, oq_source *source,
                          oq_record *r, onq_error *err) {
    oq_session *s = NULL;
    OQ_TRY(oq_session_open(e, how, &s, err));
    oq_sweep sweep = {.env = e->env,
                      .model = {.source = source, .session = s},
                      .what = "verifying",
                      .total = r->most};
    oq_verify_fill(&sweep, r);
    const onq_code rc = oq_sweep_run(&sweep, err);
    oq_session_close(s);
    return rc;
}

const char *oq_verify_text(oq_verify_end end) {
    static const char *const texts[] = {"is good", "does not load", "does not run",
                                        "gives NaN or infinity"};
    assert((size_t)end < OQ_COUNT(texts));
    return texts[end];
}

oq_graded oq_verify_graded(const oq_verdict *v, double floor) {
    assert(v->same <= v->rows);
    return (oq_graded){.sqnr = v->measured ? v->sqnr : (double)NAN,
                       .floor = floor,
                       .rows = v->rows,
                       .same = v->same,
                       .text = v->speaks ? &v->text : NULL};
}
