/*
 * bench_compare.c — see bench_compare.h.
 *
 * Samples run one after another with the sessions that are timed later: that warms them up.
 * Sequences of models with states run at once: their steps are small, and many.
 */
#include "api/bench/bench_compare.h"

#include <inttypes.h>

typedef oq_bench_contender contender;

typedef struct comparing {
    oq_bench *b;
    size_t n_outputs; /* of the first model */
    size_t *forced;   /* by contender: its place among the models of the sweep, or 0 */
    oq_tally *slots;  /* by slot and contender */
    uint64_t steps[OQ_SWEEP_SLOTS];
} comparing;

/* ---- one step ---- */

static void find_outputs(const comparing *x, const contender *c, const oq_outputs *o,
                         const oq_datum **out) {
    for (size_t k = 0; k < x->n_outputs; k++)
        out[k] = c->counterparts[k] < o->n ? &o->v[c->counterparts[k]] : NULL;
}

static onq_code compare_one(comparing *x, const oq_turn *t, size_t i, onq_error *err) {
    oq_bench *b = x->b;
    const contender *c = &b->v[i];
    assert(i < b->n && t->slot < OQ_SWEEP_SLOTS && t->outputs != NULL);
    assert(x->forced[i] == 0 || x->forced[i] >= b->n);
    OQ_SCRATCH(arena, &b->job->env->alloc);
    const oq_datum **quantized = OQ_NEW_ARRAY(&arena, const oq_datum *, 2 * x->n_outputs + 1);
    OQ_TRY_ALLOC(quantized != NULL, err);
    const oq_outputs *forced = x->forced[i] > 0 ? &t->outputs[x->forced[i]] : NULL;
    find_outputs(x, c, &t->outputs[i], quantized);
    if (forced != NULL)
        find_outputs(x, c, forced, quantized + x->n_outputs);
    const oq_tally_step step = {.inputs = t->full[0].inputs,
                                .flt = t->outputs[0].v,
                                .quantized = quantized,
                                .forced = forced != NULL && forced->n > 0 ? quantized + x->n_outputs
                                                                          : NULL,
                                .has_forced = forced != NULL,
                                .step = t->samples[0].step};
    return oq_tally_add(&x->slots[t->slot * b->n + i], &step, err);
}

static onq_code begin_slot(comparing *x, unsigned slot, onq_error *err) {
    for (size_t i = 0; i < x->b->n; i++)
        OQ_TRY(oq_tally_init(&x->slots[slot * x->b->n + i], &x->b->job->env->alloc, &x->b->roles,
                             x->n_outputs, err));
    return ONQ_OK;
}

static onq_code compare_sample(void *ctx, const oq_turn *t, onq_error *err) {
    comparing *x = ctx;
    oq_bench *b = x->b;
    if (x->steps[t->slot]++ == 0)
        OQ_TRY(begin_slot(x, t->slot, err));
    for (size_t i = 0; i < b->n; i++) {
        contender *c = &b->v[i];
        if (b->labels.v != NULL && t->outputs[i].n > 0)
            OQ_TRY(oq_labels_count(&b->labels, &t->outputs[i].v[0], &c->rows, &c->right, err));
        OQ_TRY(compare_one(x, t, i, err));
    }
    return ONQ_OK;
}

static void drop_slot(comparing *x, unsigned slot) {
    for (size_t i = 0; i < x->b->n; i++)
        oq_tally_release(&x->slots[slot * x->b->n + i]);
    x->steps[slot] = 0;
}

static onq_code join_sequence(void *ctx, unsigned slot, onq_error *err) {
    comparing *x = ctx;
    assert(slot < OQ_SWEEP_SLOTS);
    oq_bench *b = x->b;
    for (size_t i = 0; i < b->n; i++)
        OQ_TRY(oq_tally_join(&b->v[i].tally, &x->slots[slot * b->n + i], err));
    b->n_samples += x->steps[slot];
    drop_slot(x, slot);
    return ONQ_OK;
}

/* ---- all of them ---- */

oq_sweep_model oq_bench_model(const contender *c) {
    return (oq_sweep_model){
        .source = c->source, .session = c->session, .path = c->path, .walker = c->walker};
}

static onq_code check_counts(oq_bench *b, onq_error *err) {
    OQ_TRY(oq_source_measure(b->v[0].source, err));
    const uint64_t total = oq_source_count(b->v[0].source);
    for (size_t i = 1; i < b->n; i++) {
        OQ_TRY(oq_source_measure(b->v[i].source, err));
        if (oq_source_count(b->v[i].source) != total)
            return oq_fail(err, ONQ_E_INVALID,
                           "%s: has %" PRIu64 " samples, the first model has %" PRIu64,
                           b->v[i].path, oq_source_count(b->v[i].source), total);
    }
    return ONQ_OK;
}

/* The output that corresponds to output k of the first model: of the same name, else at the same
 * place. */
static size_t counterpart(const oq_bench *b, const contender *c, size_t k) {
    const oq_str name = b->v[0].session->outputs.v[k].name;
    for (size_t i = 0; i < c->session->outputs.n; i++)
        if (oq_str_eq(c->session->outputs.v[i].name, name))
            return i;
    return k < c->session->outputs.n ? k : SIZE_MAX;
}

/* False where a state has another type, such as a cache of integers. */
static bool takes_states(const contender *first, const contender *c) {
    const oq_walker *w = c->walker, *of = first->walker;
    for (size_t i = 0; i < w->roles.carry.n; i++) {
        const oq_io *in = &w->in.v[w->roles.carry.v[i].in];
        for (size_t k = 0; k < of->in.n; k++)
            if (oq_str_eq(of->in.v[k].name, in->name) && of->in.v[k].dtype != in->dtype)
                return false;
    }
    return true;
}

static onq_code begin_contender(comparing *x, contender *c, onq_error *err) {
    oq_bench *b = x->b;
    c->counterparts = OQ_NEW_ARRAY(&b->job->arena, size_t, x->n_outputs + 1);
    OQ_TRY_ALLOC(c->counterparts != NULL, err);
    for (size_t k = 0; k < x->n_outputs; k++)
        c->counterparts[k] = counterpart(b, c, k);
    OQ_TRY(oq_tally_init(&c->tally, &b->job->env->alloc, &b->roles, x->n_outputs, err));
    if (c == b->v || c->walker == NULL || b->v[0].walker == NULL || !takes_states(&b->v[0], c))
        return ONQ_OK;
    return oq_session_share(c->session, NULL, &c->forced, err);
}

/* The models of the sweep: all contenders, then those with the first model's states. */
static onq_code list_models(comparing *x, oq_sweep_model **out, size_t *n, onq_error *err) {
    oq_bench *b = x->b;
    oq_sweep_model *models = OQ_NEW_ARRAY(&b->job->arena, oq_sweep_model, 2 * b->n);
    OQ_TRY_ALLOC(models != NULL, err);
    *n = b->n;
    for (size_t i = 0; i < b->n; i++) {
        contender *c = &b->v[i];
        OQ_TRY(begin_contender(x, c, err));
        models[i] = oq_bench_model(c);
        if (c->forced == NULL)
            continue;
        x->forced[i] = *n;
        models[(*n)++] = (oq_sweep_model){.session = c->forced, .path = c->path, .forced = true};
    }
    assert(*n >= b->n && *n <= 2 * b->n);
    *out = models;
    return ONQ_OK;
}

onq_code oq_bench_compare(oq_bench *b, onq_error *err) {
    assert(b->n > 0 && b->v[0].session != NULL);
    comparing x = {.b = b,
                   .n_outputs = b->v[0].session->outputs.n,
                   .forced = OQ_NEW_ARRAY(&b->job->arena, size_t, b->n),
                   .slots = OQ_NEW_ARRAY(&b->job->arena, oq_tally, OQ_SWEEP_SLOTS * b->n)};
    oq_sweep_model *models = NULL;
    size_t n_models = 0;
    OQ_TRY_ALLOC(x.forced != NULL && x.slots != NULL, err);
    OQ_TRY(check_counts(b, err));
    OQ_TRY(list_models(&x, &models, &n_models, err));
    /* Labels are counted in the order of the samples. */
    const bool at_once = b->v[0].walker != NULL && b->labels.v == NULL;
    const oq_sweep sweep = {
        .env = b->job->env,
        .models = models,
        .n_models = n_models,
        .ctx = &x,
        .take = compare_sample,
        .end = join_sequence,
        .whole_sequences = true,
        .wide = {.model = at_once ? b->v[0].model : NULL, .memory = oq_memory_share()},
        .what = "compare"};
    const onq_code rc = oq_sweep_run(&sweep, err);
    for (unsigned i = 0; i < OQ_SWEEP_SLOTS; i++)
        drop_slot(&x, i);
    return rc;
}

void oq_bench_compare_close(contender *c) {
    oq_tally_release(&c->tally);
    oq_session_close(c->forced);
}
