/*
 * activations.c — both models run over the same samples; their tensors are compared as they pass.
 *
 * Both models are loaded at once. For each sample the quantized model runs first, then the float
 * model (moment.h). Optimisation is off in both, as in the reference's collect_activations. The
 * first sample runs alone and shows what a sample costs; then several run at once (sweep.h), so
 * that one lane may run the float model while another runs the quantized one. Nothing but sums is kept from one sample to the next.
 */
#include "debug/measure/moment.h"

#include "engine/sweep.h"
#include "samples/agreement.h"
#include "samples/language.h"

/* What an observer of one of the models is given. */
typedef struct eye {
    struct lane *lane;
    const oq_watch *watch;
} eye;

typedef struct lane {
    oq_moments moments;
    eye eyes[2];
    oq_observer see[2];                 /* float, quantized */
    oq_session *flt, *quantized, *fast; /* fast: as the runtime optimises it */
    oq_outputs o_float, o_quantized, o_fast;
    onq_error refused; /* the runtime's, of the fast session; code ONQ_OK: none */
} lane;

typedef struct running {
    oq_debug *d;
    const oq_debug_run *run;
    oq_watch flt, quantized;
    lane lanes[OQ_FLIGHT_LANES];
    unsigned n_lanes;
    oq_roles roles;  /* of the float model's inputs and outputs */
    uint64_t before; /* resident bytes before the first sample */
    bool large;      /* the float model: its weights are not copied */
    oq_pool *pool;
} running;

/* ---- outputs ---- */

/* Of a state only what this run added to it. */
static void add_output(oq_sums *s, const oq_datum *x, const float *y, const oq_datum *past) {
    const float *v = x->data;
    uint64_t size = 0, skip = 0;
    oq_state_added(x, past, &size, &skip);
    for (uint64_t i = 0; size > 0 && i < x->count; i += size)
        oq_sums_add(s, v + i + skip, y + i + skip, size - skip);
}

/* An output of one sample. */
static void add_to_sample(oq_debug_sample *one, const float *x, const float *y, uint64_t n,
                          uint64_t row) {
    oq_sums s = {0};
    oq_sums_add_noise(&s, x, y, n);
    const double db = s.ee <= 0 ? (double)INFINITY : oq_sums_sqnr(&s);
    one->sqnr = isnan(db) || db < one->sqnr ? db : one->sqnr;
    if (one->rows == 0)
        oq_rows_add(&one->rows, &one->same, x, y, n, row);
}

/* Logits of one sample. */
static void add_text(running *r, const oq_sample *sample, size_t output, const oq_datum *x,
                     const oq_datum *y) {
    const oq_language *l = &r->roles.language;
    if (!l->is || output != l->logits)
        return;
    const oq_lm_text text = {.ids = l->causal ? &sample->inputs[l->ids] : NULL,
                             .mask = l->mask != OQ_NOWHERE ? &sample->inputs[l->mask] : NULL};
    oq_lm_add(&r->d->text, &text, x, y);
}

/* What float gave, of the first sample and each after it. */
static onq_code add_columns(oq_debug *d, size_t output, const oq_datum *x, bool first,
                            onq_error *err) {
    oq_columns *c = &d->outputs.v[output].columns;
    if (first)
        OQ_TRY(oq_columns_begin(c, x, &d->arena, err));
    if (!oq_columns_add(c, x))
        c->sums = NULL; /* not of one shape: nothing is known */
    return ONQ_OK;
}

/* Coordinates and grades have no largest one that counts. */
static void drop_numbers(oq_debug *d) {
    for (size_t i = 0; i < d->outputs.n; i++) {
        oq_debug_output *o = &d->outputs.v[i];
        if (oq_columns_are_numbers(&o->columns))
            o->rows = o->same_plain = o->rows_optimised = o->same_optimised = 0;
    }
}

/* One output of a run against what the float model gave. `floats` holds values of other types. */
static onq_code compare_output(running *r, const oq_sample *sample, size_t i, const oq_datum *x,
                               const oq_datum *y, oq_debug_sample *one, oq_arena *floats,
                               onq_error *err) {
    oq_debug_output *o = &r->d->outputs.v[i];
    const bool optimised = one == NULL;
    oq_datum flt = *x;
    flt.data = oq_datum_floats(x, floats);
    flt.dtype = OQ_FLOAT;
    const float *a = flt.data, *b = oq_datum_floats(y, floats);
    OQ_TRY_ALLOC(a != NULL && b != NULL, err);
    const uint64_t row = x->rank > 0 ? (uint64_t)x->dims[x->rank - 1] : 0;
    const oq_datum *past = o->state ? oq_roles_past(&r->roles, sample->inputs, i) : NULL;
    add_output(optimised ? &o->optimised : &o->plain, &flt, b, past);
    oq_rows_add(optimised ? &o->rows_optimised : &o->rows,
                optimised ? &o->same_optimised : &o->same_plain, a, b, x->count, row);
    if (optimised)
        return ONQ_OK;
    if (x->count > 0 && !o->state)
        add_to_sample(one, a, b, x->count, row);
    add_text(r, sample, i, x, y);
    return add_columns(r->d, i, &flt, one->number == 0, err);
}

static bool are_comparable(const oq_datum *x, const oq_datum *y) {
    return y != NULL && x->kind == OQ_DATUM_TENSOR && y->kind == OQ_DATUM_TENSOR &&
           x->count == y->count && oq_dtype_is_float(x->dtype) && oq_dtype_is_float(y->dtype);
}

/* The outputs of one run against what the float model gave; of the run without optimisation also in
 * `one`, which is not NULL then. */
static onq_code compare_outputs(running *r, lane *l, const oq_sample *sample, oq_debug_sample *one,
                                onq_error *err) {
    oq_debug *d = r->d;
    const bool optimised = one == NULL;
    assert(d->outputs.n == l->flt->outputs.n);
    bool any = false;
    const oq_session *s = optimised ? l->fast : l->quantized;
    const oq_outputs *out = optimised ? &l->o_fast : &l->o_quantized;
    onq_code rc = ONQ_OK;
    oq_arena floats;
    oq_arena_init(&floats, &d->env->alloc);
    for (size_t i = 0; i < d->outputs.n && rc == ONQ_OK; i++) {
        const oq_datum *x = &l->o_float.v[i], *y = NULL;
        for (size_t k = 0; k < s->outputs.n; k++)
            if (oq_str_eq(s->outputs.v[k].name, l->flt->outputs.v[i].name))
                y = &out->v[k];
        if (y == NULL && i < out->n)
            y = &out->v[i];
        if (!are_comparable(x, y))
            continue;
        rc = compare_output(r, sample, i, x, y, one, &floats, err);
        any |= x->count > 0;
    }
    oq_arena_release(&floats);
    return rc == ONQ_OK && one != NULL && any ? oq_debug_worst_add(d, one, err) : rc;
}

/* The runtime cannot run what its own optimisation makes (float8, blocks): nothing to compare. */
static void no_kernels(oq_debug *d, const onq_error *why) {
    oq_warn(d->env, "the kernels are not compared: with the runtime's optimisations, %s",
            why->text[0] != '\0' ? why->text : d->quantized->path);
    d->has_kernel = false;
    d->n_kernel = 0;
    for (size_t i = 0; i < d->outputs.n; i++) {
        oq_debug_output *o = &d->outputs.v[i];
        o->optimised = (oq_sums){0};
        o->rows_optimised = o->same_optimised = 0;
    }
}

/* ---- lanes ---- */

static onq_code seen(void *ctx, size_t index, const oq_datum *t, onq_error *err) {
    const eye *e = ctx;
    return oq_moments_see(&e->lane->moments, e->watch->uses.v[index], t, err);
}

static onq_code begin_lane(running *r, lane *l, onq_error *err) {
    const oq_watch *const watches[] = {&r->flt, &r->quantized};
    for (size_t k = 0; k < OQ_COUNT(watches); k++) {
        l->eyes[k] = (eye){l, watches[k]};
        l->see[k] = (oq_observer){watches[k]->names.v, watches[k]->names.n, seen, &l->eyes[k]};
    }
    return oq_moments_init(&l->moments, r->d, l != r->lanes ? &r->lanes[0].moments : NULL, err);
}

static const oq_observer *observer(const oq_observer *see) {
    return see->n_names > 0 ? see : NULL;
}

static onq_code open_session(running *r, oq_model *m, const oq_observer *see, oq_opt_level level,
                             oq_session **out, onq_error *err) {
    oq_session_options o = r->run->session;
    o.model = m;
    o.observer = see;
    o.level = level;
    o.no_spinning = true; /* the cores are wanted between two nodes, and by the other sessions */
    o.alone = r->run->jobs != 1 && oq_source_count(r->run->float_source) != 1;
    /* The fast one is as users run it, and kernels of few bits are what is looked at. */
    o.no_turning = r->large && level == OQ_OPT_NONE;
    o.no_packing = r->large && m == r->d->flt;
    const onq_code rc = oq_session_open(r->run->engine, &o, out, err);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", m->path);
}

/* The float model; the quantized one, as it is and as the runtime optimises it. These two read the
 * same model, which one thread at a time may do. */
static onq_code open_model(void *ctx, size_t i, unsigned worker, onq_error *err) {
    running *r = ctx;
    lane *l = &r->lanes[0];
    (void)worker;
    if (i == 0)
        return open_session(r, r->d->flt, observer(&l->see[0]), OQ_OPT_NONE, &l->flt, err);
    OQ_TRY(open_session(r, r->d->quantized, observer(&l->see[1]), OQ_OPT_NONE, &l->quantized, err));
    if (!r->run->kernel)
        return ONQ_OK;
    onq_error why = ONQ_ERROR_INIT;
    const onq_code rc = open_session(r, r->d->quantized, NULL, OQ_OPT_ALL, &l->fast, &why);
    if (rc == ONQ_E_RUNTIME) {
        l->refused = why;
        l->refused.code = rc;
        return ONQ_OK;
    }
    return rc == ONQ_OK ? rc : oq_error_give(err, rc, &why);
}

/* Both models at once, unless libraries of custom operators register with the runtime. */
static onq_code open_models(running *r, onq_error *err) {
    if (r->run->session.n_custom_ops == 0)
        return oq_pool_run(r->pool, 2, open_model, r, err);
    for (size_t i = 0; i < 2; i++)
        OQ_TRY(open_model(r, i, 0, err));
    return ONQ_OK;
}

static onq_code open_first(running *r, onq_error *err) {
    oq_debug *d = r->d;
    lane *l = &r->lanes[0];
    OQ_TRY(begin_lane(r, l, err));
    r->n_lanes = 1;
    l->moments.alone = true;
    l->moments.pool = r->pool;
    uint64_t bytes = 0;
    OQ_TRY(oq_model_size(d->flt, &bytes, err));
    r->large = bytes > OQ_LARGE_MODEL;
    OQ_TRY(open_models(r, err));
    d->has_kernel = l->fast != NULL;
    if (l->refused.code != ONQ_OK)
        no_kernels(d, &l->refused);
    const oq_ios *outs = &l->flt->outputs;
    if (r->run->roles != NULL)
        r->roles = *r->run->roles;
    else
        OQ_TRY(oq_roles_find(&d->arena, &l->flt->inputs, outs, &r->roles, err));
    for (size_t i = 0; i < outs->n; i++) {
        const oq_debug_output o = {.name = oq_str_copy(&d->arena, outs->v[i].name),
                                   .state = r->roles.states[i] && r->roles.n_states < outs->n};
        if (o.name.p == NULL || !OQ_PUSH(&d->arena, &d->outputs, o))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

/* The others, once the first sample has shown what one adds to the memory. */
static onq_code open_others(running *r, uint64_t before, onq_error *err) {
    const oq_debug_run *run = r->run;
    const uint64_t samples = oq_source_count(run->float_source);
    const lane *first = &r->lanes[0];
    unsigned n = 1, more = 1;
    OQ_TRY(oq_flight_decide(r->d->env, r->d->flt, run->jobs, before, run->memory, &n, err));
    OQ_TRY(
        oq_flight_decide(r->d->env, r->d->quantized, run->jobs, before, run->memory, &more, err));
    n = n < more ? n : more;
    if (samples > 0 && n >= samples) /* the first has run */
        n = samples > 1 ? (unsigned)samples - 1 : 1;
    assert(n > 0 && n <= OQ_FLIGHT_LANES);
    while (r->n_lanes < n) {
        lane *l = &r->lanes[r->n_lanes++];
        OQ_TRY(begin_lane(r, l, err));
        OQ_TRY(oq_session_share(first->flt, observer(&l->see[0]), &l->flt, err));
        OQ_TRY(oq_session_share(first->quantized, observer(&l->see[1]), &l->quantized, err));
        if (first->fast != NULL)
            OQ_TRY(oq_session_share(first->fast, NULL, &l->fast, err));
    }
    if (n < oq_env_threads(r->d->env)) { /* cores are left to the runtime's threads */
        oq_session_wake(first->flt);
        oq_session_wake(first->quantized);
        if (first->fast != NULL)
            oq_session_wake(first->fast);
    }
    return ONQ_OK;
}

static void close_lanes(running *r) {
    while (r->n_lanes > 0) { /* the first last: the others are shares of it */
        lane *l = &r->lanes[--r->n_lanes];
        oq_session_close(l->flt);
        oq_session_close(l->quantized);
        oq_session_close(l->fast);
        oq_moments_release(&l->moments);
    }
}

/* ---- the runs ---- */

static onq_code run_both(const oq_debug *d, lane *l, const oq_sample *a, const oq_sample *b,
                         onq_error *err) {
    bool again = true;
    while (again) {
        oq_moments_begin(&l->moments);
        OQ_TRY(oq_sample_run(l->quantized, d->quantized->path, b, &l->o_quantized, err));
        OQ_TRY(oq_sample_run(l->flt, d->flt->path, a, &l->o_float, err));
        OQ_TRY(oq_moments_end(&l->moments, &again, err));
    }
    return ONQ_OK;
}

/* A sample of both models in one lane, and of the quantized one as the runtime optimises it. */
static onq_code run_sample(void *ctx, const oq_turn *t, onq_error *err) {
    running *r = ctx;
    const oq_debug *d = r->d;
    lane *l = &r->lanes[t->lane];
    const oq_sample *quantized = &t->samples[1];
    OQ_TRY(run_both(d, l, &t->samples[0], quantized, err));
    l->refused.code = ONQ_OK;
    if (l->fast == NULL)
        return ONQ_OK;
    onq_error why = ONQ_ERROR_INIT;
    const onq_code rc = oq_sample_run(l->fast, d->quantized->path, quantized, &l->o_fast, &why);
    if (rc == ONQ_E_RUNTIME) {
        l->refused = why;
        l->refused.code = rc;
        return ONQ_OK;
    }
    return rc == ONQ_OK ? rc : oq_error_give(err, rc, &why);
}

/* In the order of the samples. */
static onq_code fold_sample(void *ctx, const oq_turn *t, onq_error *err) {
    running *r = ctx;
    assert(t->lane < r->n_lanes);
    oq_debug *d = r->d;
    lane *l = &r->lanes[t->lane];
    const bool kernel = d->has_kernel;
    oq_debug_sample one = {.name = t->samples[0].name, .number = d->n_samples, .sqnr = INFINITY};
    d->n_samples++;
    oq_moments_fold(&l->moments);
    OQ_TRY(compare_outputs(r, l, &t->samples[0], &one, err));
    if (!kernel)
        return ONQ_OK;
    if (l->refused.code != ONQ_OK) {
        no_kernels(d, &l->refused);
        return ONQ_OK;
    }
    d->n_kernel++;
    return compare_outputs(r, l, &t->samples[0], NULL, err);
}

/* The first sample shows what one costs. Those that plan the sums run alone too; the rest runs at
 * once. */
static onq_code ask_lanes(void *ctx, uint64_t at, unsigned *n, onq_error *err) {
    running *r = ctx;
    if (at == 0)
        r->before = oq_os_resident();
    if (at == 1)
        OQ_TRY(open_others(r, r->before, err));
    if (r->n_lanes == 1 || oq_moments_pending(r->d))
        return ONQ_OK;
    for (unsigned i = 0; i < r->n_lanes; i++) {
        r->lanes[i].moments.alone = false;
        r->lanes[i].moments.pool = NULL;
    }
    *n = r->n_lanes;
    return ONQ_OK;
}

static onq_code run_all(running *r, onq_error *err) {
    const oq_sweep_model models[] = {
        {.source = r->run->float_source, .path = r->d->flt->path},
        {.source = r->run->quantized_source, .path = r->d->quantized->path},
    };
    const oq_sweep sweep = {.env = r->d->env,
                            .models = models,
                            .n_models = OQ_COUNT(models),
                            .ctx = r,
                            .run = run_sample,
                            .take = fold_sample,
                            .lanes = ask_lanes,
                            .what = "samples"};
    OQ_TRY(oq_sweep_run(&sweep, err));
    return r->d->n_samples > 0 ? ONQ_OK
                               : oq_fail(err, ONQ_E_INVALID, "there are no samples to run");
}

/* The figure of all values, which is the reference's; where they have none, that of the others. */
static double figure(const oq_sums *all, const oq_sums *rest) {
    const double db = all->n > 0 ? oq_sums_sqnr(all) : (double)NAN;
    return isfinite(db) || rest->n == 0 ? db : oq_sums_sqnr(rest);
}

static onq_code finish(oq_debug *d, onq_error *err) {
    size_t kept = 0;
    for (size_t i = 0; i < d->acts.n; i++) {
        oq_debug_act *a = &d->acts.v[i];
        if (a->masked == 0)
            a->rest_qdq = a->rest_cross = (oq_sums){0};
        a->qdq_err = figure(&a->qdq, &a->rest_qdq);
        a->xmodel_err = figure(&a->cross, &a->rest_cross);
        a->local_err = a->local.n > 0 ? oq_sums_sqnr(&a->local) : NAN;
        if (a->trouble == NULL && a->qdq.n == 0 && a->cross.n == 0)
            a->trouble = "no sample reached it, or it is always empty";
        if (a->trouble != NULL) {
            OQ_TRY(oq_debug_leave(d, a->name, false, a->trouble, err));
            continue;
        }
        d->acts.v[kept++] = *a;
    }
    d->acts.n = kept;
    return ONQ_OK;
}

onq_code oq_debug_activations(oq_debug *d, const oq_debug_run *run, onq_error *err) {
    assert(run->engine != NULL && run->float_source != NULL && run->quantized_source != NULL);
    running r = {.d = d, .run = run};
    onq_code rc = ONQ_OK;
    OQ_GO(oq_pool_new(d->env, &r.pool, err));
    OQ_GO(oq_moments_watch(d, &r.flt, &r.quantized, err));
    OQ_GO(open_first(&r, err));
    OQ_GO(run_all(&r, err));
    drop_numbers(d);
    OQ_GO(finish(d, err));
done:
    close_lanes(&r);
    oq_pool_free(r.pool);
    return rc;
}
