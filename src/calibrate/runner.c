/*
 * runner.c — runs samples through an observed session and drives the collectors.
 *
 * After the first sample several run at once (flight.h). Each lane has a collector of its own, and
 * they are joined as those of different shares are: the ranges have the same bits. What becomes of
 * each sample is decided in runner_fate.c.
 */
#include "calibrate/runner_parts.h"

#include "calibrate/collect/collect_int.h"
#include "calibrate/sizes.h"

/* Where nobody says how many samples there are. */
#define LIKELY_SAMPLES 1024

/* ---- observing ---- */

/* How many zeros go around a tensor, or how many values are taken away. */
static void watch(oq_lane *l, size_t number, const oq_datum *d) {
    bool adds = d->dtype == OQ_INT64;
    for (size_t i = 0; adds && i < d->count; i++)
        adds = ((const int64_t *)d->data)[i] >= 0;
    if (adds)
        l->adds_at[number] = l->c->sample + 1;
}

static onq_code measure(oq_lane *l, size_t tensor, const oq_datum *d, onq_error *err) {
    const size_t watched = l->r->watched[tensor];
    if (l->c->v[tensor].padded == 0)
        return oq_collect_seen(l->c, tensor, d, err);
    const bool adds = watched == 0 || l->adds_at[watched - 1] == l->c->sample + 1;
    return oq_collect_seen_padded(l->c, tensor, d, adds, err);
}

static onq_code seen(void *ctx, size_t index, const oq_datum *d, onq_error *err) {
    oq_lane *l = ctx;
    oq_runner *r = l->r;
    if (index >= r->n_names) {
        watch(l, index - r->n_names, d);
        return ONQ_OK;
    }
    const size_t tensor = r->tensors[index];
    if (l->c->pass == OQ_PASS_COUNT) {
        const oq_tstat *t = &r->c.v[tensor];
        const bool counted =
            t->settled || (l->since != NULL && l->c->sample >= l->since[tensor].since);
        return counted || oq_tstat_follows(t) ? ONQ_OK : oq_collect_seen(l->c, tensor, d, err);
    }
    OQ_TRY(measure(l, tensor, d, err));
    if (l->keep.on) {
        oq_runner_reserve(l, d->size_bytes);
        oq_keep_add(&l->keep, tensor, d);
    }
    return ONQ_OK;
}

/* Between operators that it runs in float32 the runtime leaves out the rounding to float16. An
 * observer in the way would make it round, and what follows would have other last digits than in
 * the reference. */
static bool has_half(const oq_runner *r) {
    for (size_t i = 0; i < r->n_names; i++)
        if (r->types[i] == OQ_FLOAT16)
            return true;
    return false;
}

/* The samples that run first. */
static oq_source *first_source(const oq_runner *r) {
    const oq_cal_part *p = r->part;
    const bool measures_all = p != NULL && p->all != NULL && p->n_ranges == 0 && !p->range_only &&
                              oq_runner_is_histogram(r);
    return measures_all ? p->all : r->job->source;
}

/* What the model does not say about the sizes of tensors, the first sample does. */
static onq_code find_sizes(oq_runner *r, onq_error *err) {
    size_t known = 0;
    while (known < r->n_names && r->bytes[known] > 0)
        known++;
    const oq_sample *s = known < r->n_names ? oq_source_peek(first_source(r), r->start) : NULL;
    if (s == NULL || (r->job->walker != NULL && s->step > 0))
        return ONQ_OK;
    if (r->job->walker == NULL)
        return oq_sizes_like(r->job->model, s, r->names, r->n_names, r->bytes, err);
    oq_sample full;
    OQ_TRY(oq_walk_fill(&r->lanes[0].walk, s, &r->arena, &full, err));
    return oq_sizes_like(r->job->model, &full, r->names, r->n_names, r->bytes, err);
}

/* A padded tensor is compared with the one it pads when it is seen: they keep to the order of the
 * graph. */
static onq_code keep_order(oq_runner *r, onq_error *err) {
    bool *ordered = OQ_NEW_ARRAY(&r->arena, bool, r->c.n);
    OQ_TRY_ALLOC(ordered != NULL, err);
    for (size_t i = 0; i < r->c.n; i++)
        if (r->c.v[i].padded > 0)
            ordered[i] = ordered[r->c.v[i].padded - 1] = true;
    for (size_t i = 0; i < r->n_names; i++)
        if (ordered[r->tensors[i]])
            r->bytes[i] = 0;
    return ONQ_OK;
}

static onq_code open_beside(oq_lane *l, onq_error *err) {
    if (l->r->job->walker == NULL)
        return ONQ_OK;
    return oq_session_share(l->session, &l->observer, &l->beside, err);
}

static onq_code open_session(oq_runner *r, onq_error *err) {
    oq_session_options o = r->job->session;
    o.model = r->job->model;
    o.n_threads = OQ_THREADS_RUNTIME;
    o.level = r->job->options->fast ? OQ_OPT_ALL : OQ_OPT_NONE;
    o.observe_beside = has_half(r);
    o.observer = &r->lanes[0].observer;
    o.observed_types = r->types;
    /* In an optimised graph nodes are new, and the runtime's order is another. */
    if (!o.observe_beside && !r->job->options->fast) {
        OQ_TRY(find_sizes(r, err));
        OQ_TRY(keep_order(r, err));
        o.observed_bytes = r->bytes;
    }
    o.alone = r->job->options->jobs != 1 && r->meta.total > 2;
    OQ_TRY(oq_session_open(r->job->engine, &o, &r->lanes[0].session, err));
    return open_beside(&r->lanes[0], err);
}

static onq_code open_lane(oq_lane *l, onq_error *err) {
    oq_runner *r = l->r;
    l->adds_at = OQ_NEW_ARRAY(&r->arena, uint64_t, r->n_watched + 1);
    OQ_TRY_ALLOC(l->adds_at != NULL, err);
    if (r->job->walker != NULL)
        oq_walk_init(&l->walk, r->job->walker, &r->env->alloc);
    l->walk.borrows = true;
    if (!oq_runner_is_histogram(r))
        return ONQ_OK;
    return oq_keep_init(&l->keep, &r->env->alloc, r->c.n, err);
}

onq_code oq_runner_open(oq_runner *r, onq_error *err) {
    const oq_cal_part *p = r->part;
    const bool ranges_given = p != NULL && (p->range_only || p->n_ranges > 0);
    for (unsigned i = 0; i < OQ_FLIGHT_LANES; i++)
        r->lanes[i] =
            (oq_lane){.r = r,
                      .c = i == 0 ? &r->c : NULL,
                      .observer = {r->names, r->n_names + r->n_watched, seen, &r->lanes[i]}};
    /* A range pass counts nothing, and a run that may be taken up by another would not know what
     * was kept. */
    r->notes_fates = oq_runner_is_histogram(r) && r->job->checkpoint == NULL && !ranges_given &&
                     r->job->walker == NULL && oq_runner_need(r) == OQ_NEED_COUNTS;
    r->keeps = r->notes_fates;
    r->counts_ahead = r->keeps && r->job->options->stride == 0;
    r->keep_left = r->keeps ? oq_runner_keep_limit(r) : 0;
    r->c.locks = &r->locks;
    if (r->job->walker != NULL)
        OQ_TRY(oq_past_look_init(&r->past, &r->arena, r->job->walker, err));
    if (oq_runner_is_histogram(r) && oq_runner_need(r) == OQ_NEED_TAILS) {
        r->c.tail_samples = r->meta.total != OQ_CAL_ALL ? r->meta.total : LIKELY_SAMPLES;
        r->c.tail_room = oq_runner_memory(r) / 16 / sizeof(float);
    }
    if (r->counts_ahead)
        OQ_TRY(oq_ahead_init(&r->ahead, &r->env->alloc, &r->locks, r->c.n, err));
    OQ_TRY(open_lane(&r->lanes[0], err));
    return open_session(r, err);
}

/* The first lane's session goes last: the others share it. */
void oq_runner_close_sessions(oq_runner *r) {
    for (unsigned i = OQ_FLIGHT_LANES; r->lanes != NULL && i-- > 0;) {
        oq_session_close(r->lanes[i].beside);
        oq_session_close(r->lanes[i].session);
        r->lanes[i].session = r->lanes[i].beside = NULL;
    }
}

void oq_runner_free(oq_runner *r) {
    if (r == NULL)
        return;
    const onq_allocator *alloc = &r->env->alloc;
    oq_runner_close_sessions(r);
    for (unsigned i = 0; r->lanes != NULL && i < OQ_FLIGHT_LANES; i++) {
        oq_keep_release(&r->lanes[i].keep);
        if (r->lanes[i].walk.of != NULL)
            oq_walk_release(&r->lanes[i].walk);
    }
    oq_ahead_release(&r->ahead);
    oq_collect_release(&r->c);
    oq_arena_release(&r->arena);
    pthread_mutex_destroy(&r->lock);
    for (size_t i = 0; i < OQ_CAL_LOCKS; i++)
        pthread_mutex_destroy(&r->locks.v[i]);
    oq_free(alloc, r, sizeof *r);
}

onq_code oq_runner_see_fixed(const oq_runner *r, oq_collector *c, onq_error *err) {
    for (size_t i = 0; i < r->fixed.n; i++)
        OQ_TRY(oq_collect_seen(c, r->fixed.v[i].tensor, r->fixed.v[i].d, err));
    return ONQ_OK;
}

/* MinMax: all n samples have run, those before a checkpoint too. */
onq_code oq_runner_fixed_in_all(oq_runner *r, uint64_t n, onq_error *err) {
    if (n == 0 || oq_collect_keeps_rows(&r->c))
        return ONQ_OK;
    OQ_TRY(oq_runner_see_fixed(r, &r->c, err));
    for (size_t i = 0; i < r->fixed.n; i++)
        r->c.v[r->fixed.v[i].tensor].n_samples = n;
    return ONQ_OK;
}

onq_code oq_runner_count_fixed(oq_runner *r, uint64_t n_samples, onq_error *err) {
    for (size_t i = 0; i < r->fixed.n; i++) {
        const oq_fixed_tensor *f = &r->fixed.v[i];
        if (r->c.v[f->tensor].settled) /* shares of one sample are those of all */
            continue;
        OQ_TRY(oq_collect_count_times(&r->c, f->tensor, f->d->data, (size_t)f->d->count, n_samples,
                                      err));
    }
    return ONQ_OK;
}

/* ---- samples with NaN: what is calibrated with them is not what the model will see ---- */

/* In blocks, which compilers make vectors of. The data need not be aligned. */
static bool has_nan_f32(const char *p, uint64_t n) {
    enum { BLOCK = 64 };
    float x[BLOCK] = {0};
    for (uint64_t i = 0; i < n; i += BLOCK) {
        const size_t m = n - i < BLOCK ? (size_t)(n - i) : BLOCK;
        uint32_t found = 0;
        memcpy(x, p + i * sizeof *x, m * sizeof *x);
        for (size_t k = 0; k < BLOCK; k++)
            found |= isnan(x[k]) ? 1 : 0;
        if (found)
            return true;
    }
    return false;
}

static bool has_nan(const oq_datum *d) {
    const char *p = d->data;
    bool found = false;
    if (d->kind != OQ_DATUM_TENSOR)
        return false;
    if (d->dtype == OQ_FLOAT)
        return has_nan_f32(p, d->count);
    for (uint64_t i = 0; d->dtype == OQ_FLOAT16 && i < d->count; i++) {
        uint16_t x;
        memcpy(&x, p + i * sizeof x, sizeof x);
        found |= (x & 0x7fff) > 0x7c00;
    }
    return found;
}

static onq_code look_for_nan(oq_runner *r, const oq_sample *s, onq_error *err) {
    size_t i = 0;
    while (i < s->n_inputs && !has_nan(&s->inputs[i]))
        i++;
    if (i == s->n_inputs)
        return ONQ_OK;
    pthread_mutex_lock(&r->lock);
    const bool first = r->n_nan_samples++ == 0 || s->number < r->nan_number;
    if (first) {
        r->nan_number = s->number;
        r->nan_first = oq_str_format(&r->arena, "sample %llu ('%s'), input '%.*s'",
                                     (unsigned long long)s->number, s->name,
                                     OQ_STR(r->lanes[0].session->inputs.v[i].name));
    }
    const bool noted = !first || r->nan_first.p != NULL;
    pthread_mutex_unlock(&r->lock);
    return noted ? ONQ_OK : oq_fail_nomem(err);
}

void oq_runner_tell(oq_runner *r) {
    if (r->past.of != NULL)
        oq_past_look_tell(&r->past, r->env);
    if (r->n_nan_samples > 0)
        oq_warn(r->env, "%llu of %llu samples hold NaN, the first: %.*s",
                (unsigned long long)r->n_nan_samples, (unsigned long long)r->meta.total,
                OQ_STR(r->nan_first));
    r->n_nan_samples = 0;
}

/* ---- samples that are run ---- */

/* True if the run of this sample is to be recorded. It is not where an output has no declared kind:
 * such an output may not be a value that can be stored. */
static bool is_recorded(const oq_runner *r, uint64_t number) {
    const oq_ios *out = &r->lanes[0].session->outputs;
    bool known = true;
    for (size_t i = 0; i < out->n; i++)
        known = known && out->v[i].kind != OQ_DATUM_NONE;
    return known && r->job->first != NULL && oq_record_wants(r->job->first, number);
}

/* Before a run; false if there is nothing to run the sample for. */
static bool prepare(oq_lane *l, const oq_sample *s) {
    oq_runner *r = l->r;
    l->since = NULL;
    l->c->sample = s->number;
    l->c->sample_name = s->name;
    if (!r->notes_fates)
        return true;
    if (l->c->pass == OQ_PASS_EXTENT) {
        oq_runner_decide_fate(l, s);
        return true;
    }
    const uint8_t fate = oq_runner_fate(r, s->number);
    if (fate == OQ_SAMPLE_AHEAD)
        l->since = r->ahead.v;
    return oq_runner_runs_again(r, fate, s->number);
}

/* In the first pass; others see the same steps. */
static bool looks_at_past(const oq_lane *l) {
    return l->r->past.of != NULL && l->c->pass == OQ_PASS_EXTENT;
}

static onq_code look_before(oq_lane *l, const oq_sample *s, onq_error *err) {
    oq_runner *r = l->r;
    if (!looks_at_past(l))
        return ONQ_OK;
    pthread_mutex_lock(&r->lock);
    const onq_code rc = oq_past_look_before(&r->past, &r->arena, &l->walk, s, err);
    pthread_mutex_unlock(&r->lock);
    return rc;
}

/* Runs a sample in a lane, and records it if `record` is not NULL. */
static onq_code run_sample(oq_lane *l, const oq_sample *s, oq_record *record, onq_error *err) {
    oq_runner *r = l->r;
    oq_outputs out = {0};
    if (!prepare(l, s))
        return ONQ_OK;
    const bool looks = looks_at_past(l) && s->step == 0;
    const bool keeps = record != NULL || (r->job->walker != NULL && !s->last) ||
                       (looks && oq_past_look_wants(&l->walk, s));
    oq_session *session = l->turned ? l->beside : l->session;
    l->turned = r->job->walker != NULL && !l->turned;
    onq_code rc = oq_sample_run(session, NULL, s, keeps ? &out : NULL, err);
    if (rc == ONQ_OK && looks) {
        pthread_mutex_lock(&r->lock);
        oq_past_look_after(&r->past, &l->walk, s, out.v);
        pthread_mutex_unlock(&r->lock);
    }
    if (rc == ONQ_OK && r->job->walker != NULL) {
        rc = oq_walk_take(&l->walk, s, out.v, out.n, err);
        rc = rc == ONQ_OK ? rc : oq_error_in(err, rc, "sample '%s'", s->name);
    }
    l->c->sample_name = NULL;
    if (rc != ONQ_OK)
        return rc;
    if (record != NULL)
        OQ_TRY(oq_record_keep(record, s->inputs, s->n_inputs, out.v, out.n, err));
    if (oq_collect_keeps_rows(l->c))
        return oq_runner_see_fixed(r, l->c, err);
    return r->notes_fates && l->c->pass == OQ_PASS_EXTENT ? oq_runner_note_fate(l, s, err) : ONQ_OK;
}

/* The same for a sample that may be a raw step. */
static onq_code walk_sample(oq_lane *l, const oq_sample *s, oq_record *record, onq_error *err) {
    if (l->c->pass == OQ_PASS_EXTENT)
        OQ_TRY(look_for_nan(l->r, s, err));
    if (l->r->job->walker == NULL)
        return run_sample(l, s, record, err);
    oq_arena arena;
    oq_sample full;
    oq_arena_init(&arena, &l->r->env->alloc);
    onq_code rc = look_before(l, s, err);
    if (rc == ONQ_OK)
        rc = oq_walk_fill(&l->walk, s, &arena, &full, err);
    if (rc != ONQ_OK)
        rc = oq_error_in(err, rc, "sample '%s'", s->name);
    else
        rc = run_sample(l, &full, record, err);
    oq_arena_release(&arena);
    return rc;
}

/* ---- several at once ---- */

static onq_code open_lanes(oq_runner *r, unsigned n, onq_error *err) {
    r->n_lanes = 1;
    for (unsigned i = 1; i < n; i++) {
        oq_lane *l = &r->lanes[i];
        OQ_TRY(oq_session_share(r->lanes[0].session, &l->observer, &l->session, err));
        OQ_TRY(open_beside(l, err));
        OQ_TRY(open_lane(l, err));
        r->n_lanes++;
    }
    /* As many lanes as cores: each keeps to its own. Fewer leave cores to the runtime's threads. */
    if (n < oq_env_threads(r->env))
        oq_session_wake(r->lanes[0].session);
    return ONQ_OK;
}

/* Decided once, by what the first sample added to the memory. A run that others may take up goes
 * sample by sample, and so do chunks. */
static onq_code decide_lanes(oq_runner *r, uint64_t before, onq_error *err) {
    const oq_cal_options *o = r->job->options;
    unsigned n = 1;
    if (r->job->checkpoint == NULL && o->stride == 0)
        OQ_TRY(oq_flight_decide(r->env, r->job->model, (unsigned)o->jobs, before,
                                oq_runner_memory(r), &n, err));
    return open_lanes(r, n, err);
}

static onq_code start_lane(oq_runner *r, oq_lane *l, onq_error *err) {
    OQ_TRY(oq_collect_init(&l->own, r->env, r->job->options, r->all_names, r->c.n, err));
    oq_collect_like(&l->own, &r->c);
    l->c = &l->own;
    if (r->c.pass == OQ_PASS_COUNT)
        oq_collect_follow(&l->own, &r->c);
    return ONQ_OK;
}

static const char *pass_name(const oq_runner *r) {
    return r->c.pass == OQ_PASS_COUNT ? "calibrating, second pass" : "calibrating";
}

/* One pass over samples of a source. */
typedef struct passing {
    oq_runner *r;
    uint64_t to;     /* OQ_CAL_ALL: the end */
    uint64_t before; /* resident bytes before the first sample */
    bool at_once;    /* samples run in several lanes now */
} passing;

/* The first sample runs alone and shows what a run costs; those that are recorded do so in their
 * order. */
static onq_code ask_lanes(void *ctx, uint64_t at, unsigned *n, onq_error *err) {
    passing *p = ctx;
    oq_runner *r = p->r;
    if (r->n_lanes == 0)
        p->before = oq_os_resident();
    if (r->n_lanes <= 1 || p->to - at <= 1 || is_recorded(r, at))
        return ONQ_OK;
    for (unsigned i = 1; i < r->n_lanes; i++)
        OQ_TRY(start_lane(r, &r->lanes[i], err));
    p->at_once = true;
    *n = r->n_lanes;
    return ONQ_OK;
}

static onq_code run_turn(void *ctx, const oq_turn *t, onq_error *err) {
    const passing *p = ctx;
    oq_runner *r = p->r;
    const oq_sample *s = &t->samples[0];
    oq_lane *l = &r->lanes[p->at_once ? t->lane : 0];
    l->c->place = t->at;
    l->strays |= r->c.by_sample != NULL && s->number != r->numbers[t->at];
    if (p->at_once)
        return walk_sample(l, s, NULL, err);
    OQ_TRY(walk_sample(l, s, is_recorded(r, s->number) ? r->job->first : NULL, err));
    if (r->n_lanes == 0)
        OQ_TRY(decide_lanes(r, p->before, err));
    /* A run that is taken up begins with a sequence. */
    return r->job->walker == NULL || s->last ? oq_runner_save(r, t->at + 1, err) : ONQ_OK;
}

/* What the other lanes have gathered. */
static onq_code join_lanes(oq_runner *r, onq_code rc, onq_error *err) {
    for (unsigned i = 1; i < r->n_lanes; i++) {
        oq_lane *l = &r->lanes[i];
        if (l->c == NULL)
            continue;
        if (rc == ONQ_OK && r->c.pass == OQ_PASS_EXTENT)
            rc = oq_collect_merge(&r->c, &l->own, err);
        oq_collect_release(&l->own);
        l->c = NULL;
    }
    return rc;
}

onq_code oq_runner_samples(oq_runner *r, oq_source *src, uint64_t from, uint64_t to,
                           onq_error *err) {
    passing p = {.r = r, .to = to};
    const oq_sweep sweep = {.env = r->env,
                            .model = {.source = src},
                            .ctx = &p,
                            .from = from,
                            .n = to != OQ_CAL_ALL ? to - from : 0,
                            .run = run_turn,
                            .lanes = ask_lanes,
                            .whole_sequences = r->job->walker != NULL,
                            .what = pass_name(r)};
    if (from < to)
        OQ_TRY(join_lanes(r, oq_sweep_run(&sweep, err), err));
    if (to == OQ_CAL_ALL && oq_source_count(src) == 0)
        return oq_fail(err, ONQ_E_INVALID, "%s: there are no samples", oq_source_text(src));
    if (to == OQ_CAL_ALL)
        to = r->meta.total = oq_source_count(src);
    return oq_runner_is_histogram(r) ? ONQ_OK : oq_runner_fixed_in_all(r, to, err);
}
