/*
 * calibrate.c — runs the samples through an observed session and drives the collector.
 *
 * A job is: select tensors, open one session whose observer is the collector, run passes over the
 * samples, find the ranges. Passes are as collect.h draws them; a histogram method's second look
 * comes from what was kept (keep.h), all tensors at once on all cores, or from running the samples
 * again. With a checkpoint the state is written every so often (partial.h) and a later call goes on
 * from there; then nothing is kept.
 *
 * After the first samples several run at once (flight.h). Each lane has a collector of its own, and
 * they are joined as those of different shares are: the ranges have the same bits.
 */
#include "calibrate/calibrate.h"

#include "base/pool.h"
#include "calibrate/keep.h"
#include "calibrate/method.h"
#include "calibrate/partial.h"
#include "calibrate/select.h"
#include "engine/flight.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <unistd.h>

typedef struct fixed_tensor {
    size_t tensor; /* in the collector */
    const oq_datum *d;
} fixed_tensor;

/* What one sample that runs needs for itself. */
typedef struct lane {
    struct runner *r;
    oq_collector *c; /* lane 0: the runner's; else `own` */
    oq_collector own;
    oq_session *session;
    oq_observer observer;
    oq_keep keep;
    bool keep_this; /* the running sample is one that will be counted */
} lane;

typedef struct runner {
    const oq_cal_job *job;
    const oq_cal_part *part; /* or NULL */
    const onq_env *env;
    oq_arena arena;
    oq_collector c;
    oq_partial_meta meta;
    oq_str *names; /* observed */
    oq_dtype *types;
    size_t *tensors; /* their indices in the collector */
    size_t n_names;
    oq_str *all_names;          /* of the collector's tensors */
    OQ_VEC(fixed_tensor) fixed; /* outputs of Constant nodes: the same in every sample */
    lane *lanes;
    unsigned n_lanes;    /* 0: not decided yet */
    pthread_mutex_t nan; /* for n_nan_samples, nan_first and nan_number */
    uint64_t start; /* of the pass that runs: taken up from a checkpoint, else its first sample */
    double saved_at, save_cost; /* seconds */
    uint64_t n_nan_samples;     /* whose inputs hold NaN */
    uint64_t nan_number;        /* of the first of them */
    oq_str nan_first;           /* in words */
} runner;

#define ALL OQ_FLIGHT_ALL /* samples, where their number is not known yet */

static bool is_histogram(const runner *r) {
    return oq_cal_class_of(r->job->options->method)->histogram;
}

/* ---- observing ---- */

static onq_code seen(void *ctx, size_t index, const oq_datum *d, onq_error *err) {
    lane *l = ctx;
    const size_t tensor = l->r->tensors[index];
    OQ_TRY(oq_collect_seen(l->c, tensor, d, err));
    if (l->keep.on && l->keep_this && l->c->pass == OQ_PASS_EXTENT)
        oq_keep_add(&l->keep, tensor, d);
    return ONQ_OK;
}

/* Between operators that it runs in float32 the runtime leaves out the rounding to float16. An
 * observer in the way would make it round, and what follows would have other last digits than in
 * the reference. */
static bool has_half(const runner *r) {
    for (size_t i = 0; i < r->n_names; i++)
        if (r->types[i] == OQ_FLOAT16)
            return true;
    return false;
}

static onq_code open_session(runner *r, onq_error *err) {
    oq_session_options o = r->job->session;
    o.model = r->job->model;
    o.n_threads = OQ_THREADS_RUNTIME;
    o.level = r->job->options->fast ? OQ_OPT_ALL : OQ_OPT_NONE;
    o.observe_beside = has_half(r);
    o.observer = &r->lanes[0].observer;
    o.observed_types = r->types;
    return oq_session_open(r->job->engine, &o, &r->lanes[0].session, err);
}

/* ---- tensors ---- */

static onq_code make_collector(runner *r, onq_error *err) {
    oq_cal_targets targets;
    OQ_TRY(oq_cal_select(r->job->model, r->job->shapes, r->job->options, &r->arena, &targets, err));
    const size_t n = targets.all.n;
    oq_map map;
    oq_map_init(&map, &r->arena);
    r->names = OQ_NEW_ARRAY(&r->arena, oq_str, n);
    r->types = OQ_NEW_ARRAY(&r->arena, oq_dtype, n);
    r->tensors = OQ_NEW_ARRAY(&r->arena, size_t, n);
    oq_str *all = r->all_names = OQ_NEW_ARRAY(&r->arena, oq_str, n);
    if (r->names == NULL || r->types == NULL || r->tensors == NULL || all == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < n; i++) {
        const oq_cal_target *t = &targets.all.v[i];
        all[i] = t->name;
        if (!oq_map_put(&map, t->name, (uint32_t)i))
            return oq_fail_nomem(err);
        if (t->constant != NULL && !OQ_PUSH(&r->arena, &r->fixed, (fixed_tensor){i, t->constant}))
            return oq_fail_nomem(err);
        if (t->alias_of.p != NULL || t->constant != NULL)
            continue;
        r->names[r->n_names] = t->name;
        r->types[r->n_names] = t->type;
        r->tensors[r->n_names++] = i;
    }
    OQ_TRY(oq_collect_init(&r->c, r->env, r->job->options, all, n, err));
    for (size_t i = 0; i < n; i++) {
        const oq_cal_target *t = &targets.all.v[i];
        r->c.v[i].rank = t->rank;
        if (t->alias_of.p != NULL)
            r->c.v[i].alias = oq_map_find(&map, t->alias_of) + 1;
    }
    return ONQ_OK;
}

/* ---- checkpoints ---- */

static bool same_job(const runner *r, const oq_collector *c, const oq_partial_meta *m) {
    bool same = oq_cal_options_equal(&c->options, &r->c.options) && c->n == r->c.n &&
                m->share == r->meta.share && m->n_shares == r->meta.n_shares &&
                m->total == r->meta.total && m->model_size == r->meta.model_size &&
                m->model_crc == r->meta.model_crc && m->next <= m->total && m->base <= m->next;
    for (size_t i = 0; same && i < c->n; i++)
        same = oq_str_eq(c->v[i].name, r->c.v[i].name) && c->v[i].alias == r->c.v[i].alias;
    return same;
}

/* Takes up the state of an earlier run, if there is one. */
static onq_code resume(runner *r, onq_error *err) {
    const char *path = r->job->checkpoint;
    oq_collector c;
    oq_partial_meta m;
    r->saved_at = oq_seconds();
    if (path == NULL || (access(path, F_OK) != 0 && errno == ENOENT))
        return ONQ_OK;
    OQ_TRY(oq_partial_load(&c, &m, r->env, path, err));
    const bool counts = r->part == NULL || !r->part->range_only;
    if (!(m.stage == OQ_STAGE_EXTENT || (m.stage == OQ_STAGE_COUNT && counts)) ||
        !same_job(r, &c, &m)) {
        oq_collect_release(&c);
        return oq_fail(err, ONQ_E_INVALID,
                       "%s: is the checkpoint of another job (model, samples or options differ); "
                       "remove it or name another file",
                       path);
    }
    oq_collect_release(&r->c);
    r->c = c;
    r->meta.stage = m.stage;
    r->meta.base = m.base;
    r->meta.next = m.next;
    oq_info(r->env, "%s: going on after sample %llu of %llu%s", path, (unsigned long long)m.next,
            (unsigned long long)m.total, m.stage == OQ_STAGE_COUNT ? " of the second pass" : "");
    return ONQ_OK;
}

/* Writes a checkpoint when the last one was long ago for what it costs (about a tenth of the
 * time, and every ten seconds at least). `next` is the next to run. */
static onq_code save_state(runner *r, uint64_t next, onq_error *err) {
    const double now = oq_seconds(), pause = 0.02 + 10 * r->save_cost;
    if (r->job->checkpoint == NULL || now - r->saved_at < (pause < 10 ? pause : 10))
        return ONQ_OK;
    r->meta.next = next;
    r->meta.stage = r->c.pass == OQ_PASS_COUNT ? OQ_STAGE_COUNT : OQ_STAGE_EXTENT;
    OQ_TRY(oq_partial_save(&r->c, &r->meta, r->job->checkpoint, err));
    r->saved_at = oq_seconds();
    r->save_cost = r->saved_at - now;
    return ONQ_OK;
}

/* ---- passes ---- */

static const char *pass_name(const runner *r) {
    if (r->c.pass == OQ_PASS_COUNT)
        return "calibrating, second pass";
    return "calibrating";
}

static bool is_own(const runner *r, const oq_sample *s) {
    return r->part == NULL || s->number % r->part->n_shares == r->part->share;
}

/* What Constant nodes give: MinMax sees it with each sample, a histogram once a pass. */
static onq_code see_fixed(const runner *r, oq_collector *c, onq_error *err) {
    for (size_t i = 0; i < r->fixed.n; i++)
        OQ_TRY(oq_collect_seen(c, r->fixed.v[i].tensor, r->fixed.v[i].d, err));
    return ONQ_OK;
}

static onq_code count_fixed(runner *r, uint64_t n_samples, onq_error *err) {
    for (size_t i = 0; i < r->fixed.n; i++) {
        const fixed_tensor *f = &r->fixed.v[i];
        OQ_TRY(oq_collect_count_times(&r->c, f->tensor, f->d->data, (size_t)f->d->count, n_samples,
                                      err));
    }
    return ONQ_OK;
}

/* ---- samples with NaN: what is calibrated with them is not what the model will see ---- */

static bool has_nan(const oq_datum *d) {
    const char *p = d->data; /* not aligned */
    bool found = false;
    const bool tensor = d->kind == OQ_DATUM_TENSOR;
    for (uint64_t i = 0; tensor && d->dtype == OQ_FLOAT && i < d->count; i++) {
        float x;
        memcpy(&x, p + i * sizeof x, sizeof x);
        found |= isnan(x);
    }
    for (uint64_t i = 0; tensor && d->dtype == OQ_FLOAT16 && i < d->count; i++) {
        uint16_t x;
        memcpy(&x, p + i * sizeof x, sizeof x);
        found |= (x & 0x7fff) > 0x7c00;
    }
    return found;
}

static onq_code look_for_nan(runner *r, const oq_sample *s, onq_error *err) {
    size_t i = 0;
    while (i < s->n_inputs && !has_nan(&s->inputs[i]))
        i++;
    if (i == s->n_inputs)
        return ONQ_OK;
    pthread_mutex_lock(&r->nan);
    const bool first = r->n_nan_samples++ == 0 || s->number < r->nan_number;
    if (first) {
        r->nan_number = s->number;
        r->nan_first = oq_str_format(&r->arena, "sample %llu ('%s'), input '%.*s'",
                                     (unsigned long long)s->number, s->name,
                                     OQ_STR(r->lanes[0].session->inputs.v[i].name));
    }
    const bool noted = !first || r->nan_first.p != NULL;
    pthread_mutex_unlock(&r->nan);
    return noted ? ONQ_OK : oq_fail_nomem(err);
}

static void tell_of_nan(const runner *r) {
    if (r->n_nan_samples > 0)
        oq_warn(r->env, "%llu of %llu samples hold NaN, the first: %.*s",
                (unsigned long long)r->n_nan_samples, (unsigned long long)r->meta.total,
                OQ_STR(r->nan_first));
}

/* ---- samples that are run ---- */

/* True if the run of this sample is to be recorded. It is not where an output has no declared kind:
 * such an output may not be a value that can be stored. */
static bool is_recorded(const runner *r, uint64_t number) {
    const oq_ios *out = &r->lanes[0].session->outputs;
    bool known = true;
    for (size_t i = 0; i < out->n; i++)
        known = known && out->v[i].kind != OQ_DATUM_NONE;
    return known && r->job->first != NULL && oq_record_wants(r->job->first, number);
}

/* Runs a sample in a lane, and records it if `record` is not NULL. */
static onq_code run_sample(lane *l, const oq_sample *s, oq_record *record, onq_error *err) {
    runner *r = l->r;
    oq_outputs out = {0};
    l->c->sample = s->number;
    l->keep_this = is_own(r, s);
    if (l->c->pass == OQ_PASS_EXTENT)
        OQ_TRY(look_for_nan(r, s, err));
    l->c->sample_name = s->name;
    const onq_code rc =
        oq_session_run(l->session, s->inputs, s->n_inputs, record != NULL ? &out : NULL, err);
    l->c->sample_name = NULL;
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "sample '%s'", s->name);
    if (record != NULL)
        OQ_TRY(oq_record_keep(record, s->inputs, s->n_inputs, out.v, out.n, err));
    return is_histogram(r) ? ONQ_OK : see_fixed(r, l->c, err);
}

/* ---- several at once ---- */

/* What samples that run at once may add to the memory of one, unless a limit is given. */
#define FLIGHT_MEMORY ((uint64_t)48 << 20)

/* More lanes, and a share of what may be kept for each. */
static onq_code open_lanes(runner *r, unsigned n, onq_error *err) {
    r->n_lanes = 1;
    for (unsigned i = 1; i < n; i++) {
        lane *l = &r->lanes[i];
        OQ_TRY(oq_session_share(r->lanes[0].session, &l->observer, &l->session, err));
        OQ_TRY(oq_keep_init(&l->keep, &r->env->alloc, r->c.n,
                            r->lanes[0].keep.on ? r->lanes[0].keep.limit / n : 0, err));
        r->n_lanes++;
    }
    r->lanes[0].keep.limit /= n;
    return ONQ_OK;
}

/* Decided once, by what the first sample added to the memory. A run that others may take up goes
 * sample by sample, and so do chunks. */
static onq_code decide_lanes(runner *r, uint64_t before, onq_error *err) {
    const oq_cal_options *o = r->job->options;
    const uint64_t now = oq_flight_resident(), one = now > before ? now - before : 0;
    const uint64_t memory = o->memory == OQ_CAL_MEMORY_AUTO ? FLIGHT_MEMORY : o->memory;
    unsigned n = 1;
    if (r->job->checkpoint == NULL && o->stride == 0)
        n = o->jobs > 0 ? (unsigned)o->jobs : oq_flight_lanes(r->env, one, memory);
    return open_lanes(r, n < OQ_CAL_MAX_JOBS ? n : OQ_CAL_MAX_JOBS, err);
}

static onq_code start_lane(runner *r, lane *l, onq_error *err) {
    OQ_TRY(oq_collect_init(&l->own, r->env, r->job->options, r->all_names, r->c.n, err));
    for (size_t i = 0; i < r->c.n; i++) {
        l->own.v[i].rank = r->c.v[i].rank;
        l->own.v[i].alias = r->c.v[i].alias;
    }
    l->c = &l->own;
    return r->c.pass == OQ_PASS_COUNT ? oq_collect_follow(&l->own, &r->c, err) : ONQ_OK;
}

static onq_code fly(void *ctx, unsigned number, const oq_sample *s, onq_error *err) {
    runner *r = ctx;
    return run_sample(&r->lanes[number], s, NULL, err);
}

/* The next n samples of the source, `done` of `total` having run. */
static onq_code run_flight(runner *r, oq_source *src, uint64_t n, uint64_t done, uint64_t total,
                           onq_error *err) {
    const oq_flight f = {.env = r->env, .source = src, .n_lanes = r->n_lanes, .run = fly, .ctx = r};
    onq_code rc = ONQ_OK;
    for (unsigned i = 1; rc == ONQ_OK && i < r->n_lanes; i++)
        rc = start_lane(r, &r->lanes[i], err);
    if (rc == ONQ_OK)
        rc = oq_flight_run(&f, n, pass_name(r), done, total, err);
    for (unsigned i = 1; i < r->n_lanes; i++) {
        lane *l = &r->lanes[i];
        if (rc == ONQ_OK)
            rc = oq_collect_merge(&r->c, &l->own, err);
        if (l->c != NULL)
            oq_collect_release(&l->own);
        l->c = NULL;
    }
    return rc;
}

/* Nothing is counted from what is kept unless all of it was. */
static void settle_keep(runner *r) {
    bool on = true;
    for (unsigned i = 0; i < r->n_lanes; i++)
        on = on && r->lanes[i].keep.on;
    for (unsigned i = 0; !on && i < r->n_lanes; i++)
        oq_keep_drop(&r->lanes[i].keep);
}

/* The number of samples was not known, and k of them have been run. */
static bool ends_here(runner *r, uint64_t k) {
    if (r->meta.total != ALL || k == 0)
        return false;
    r->meta.total = k;
    return true;
}

/* Samples [from, to) of the source in the current pass; to ALL: as many as there are. The first runs alone and shows what a run
 * costs; those that are recorded do so in their order. */
static onq_code run_samples(runner *r, oq_source *src, uint64_t from, uint64_t to, onq_error *err) {
    OQ_TRY(oq_source_seek(src, from, err));
    for (uint64_t k = from; k < to; k++) {
        const oq_sample *s = NULL;
        const uint64_t before = r->n_lanes == 0 ? oq_flight_resident() : 0;
        if (r->n_lanes > 1 && to - k > 1 && !is_recorded(r, k)) {
            OQ_TRY(run_flight(r, src, to == ALL ? ALL : to - k, k, to == ALL ? 0 : to, err));
            ends_here(r, oq_source_count(src));
            break;
        }
        OQ_TRY(oq_progress(r->env, pass_name(r), k, to == ALL ? 0 : to, err));
        OQ_TRY(oq_source_next(src, &s, err));
        if (s == NULL && ends_here(r, k))
            break;
        if (s == NULL)
            return oq_fail(err, ONQ_E_READ, "%s: ended after %llu of %llu samples",
                           oq_source_text(src), (unsigned long long)k, (unsigned long long)to);
        OQ_TRY(run_sample(&r->lanes[0], s, is_recorded(r, s->number) ? r->job->first : NULL, err));
        if (r->n_lanes == 0)
            OQ_TRY(decide_lanes(r, before, err));
        OQ_TRY(save_state(r, k + 1, err));
    }
    settle_keep(r);
    if (to == ALL)
        to = r->meta.total;
    return oq_progress(r->env, pass_name(r), to, to, err);
}

typedef struct counting {
    runner *r;
    oq_hist_scratch *scratch; /* by worker */
} counting;

static onq_code count_task(void *ctx, size_t i, unsigned worker, onq_error *err) {
    counting *k = ctx;
    runner *r = k->r;
    const size_t tensor = r->tensors[i];
    for (unsigned m = 0; m < r->n_lanes; m++) {
        const oq_kept_list *list = &r->lanes[m].keep.lists[tensor];
        for (size_t j = 0; j < list->n; j++)
            OQ_TRY(oq_collect_count(&r->c, tensor, list->v[j].p, list->v[j].n, &k->scratch[worker],
                                    err));
    }
    return ONQ_OK;
}

/* The second look at what was kept: tensors side by side. */
static onq_code count_kept(runner *r, onq_error *err) {
    oq_pool *pool = NULL;
    counting k = {.r = r};
    OQ_TRY(oq_pool_new(r->env, &pool, err));
    const unsigned workers = oq_pool_workers(pool);
    onq_code rc = ONQ_OK;
    k.scratch = oq_calloc(&r->env->alloc, workers, sizeof *k.scratch);
    if (k.scratch == NULL)
        rc = oq_fail_nomem(err);
    else
        rc = oq_pool_run(pool, r->n_names, count_task, &k, err);
    for (unsigned i = 0; k.scratch != NULL && i < workers; i++)
        oq_hist_scratch_release(&k.scratch[i], &r->env->alloc);
    oq_free(&r->env->alloc, k.scratch, workers * sizeof *k.scratch);
    oq_pool_free(pool);
    return rc;
}

/* All samples of the chunk were measured. */
static onq_code layout_all(runner *r, onq_error *err) {
    OQ_TRY(see_fixed(r, &r->c, err));
    for (size_t i = 0; i < r->n_names; i++)
        OQ_TRY(oq_collect_layout(&r->c, r->tensors[i], err));
    for (size_t i = 0; i < r->fixed.n; i++)
        OQ_TRY(oq_collect_layout(&r->c, r->fixed.v[i].tensor, err));
    r->c.pass = OQ_PASS_COUNT;
    return ONQ_OK;
}

/* Both looks at the samples [base, end). */
static onq_code run_chunk(runner *r, uint64_t base, uint64_t end, onq_error *err) {
    oq_source *src = r->job->source;
    r->meta.base = base;
    uint64_t from = r->start > base ? r->start : base;
    if (r->c.pass == OQ_PASS_EXTENT) {
        OQ_TRY(run_samples(r, src, from, end, err));
        if (end == ALL)
            end = r->meta.total;
        OQ_TRY(layout_all(r, err));
        from = base;
    }
    r->start = 0;
    if (r->lanes[0].keep.on) {
        OQ_TRY(count_kept(r, err));
        for (unsigned i = 0; i < r->n_lanes; i++)
            OQ_TRY(oq_keep_restart(&r->lanes[i].keep, err));
    } else {
        OQ_TRY(run_samples(r, src, from, end, err));
    }
    OQ_TRY(count_fixed(r, end - base, err));
    return oq_collect_end_chunk(&r->c, err);
}

static onq_code run_histogram(runner *r, onq_error *err) {
    const uint64_t total = r->meta.total, stride = r->job->options->stride;
    if (stride == 0)
        return run_chunk(r, r->meta.base, total, err);
    for (uint64_t base = r->meta.base; base < total; base += stride)
        OQ_TRY(run_chunk(r, base, base + stride < total ? base + stride : total, err));
    return ONQ_OK;
}

/* ---- shares ---- */

/* Extents of all samples: of the range passes, or by looking at all of them here. */
static onq_code measure_all(runner *r, onq_error *err) {
    const oq_cal_part *p = r->part;
    if (p->n_ranges == 0) {
        const uint64_t n = oq_source_count(p->all);
        OQ_TRY(run_samples(r, p->all, r->start, n, err));
        return ONQ_OK;
    }
    oq_collector c;
    oq_partial_meta m;
    OQ_TRY(oq_partial_join(&c, &m, r->env, p->ranges, p->n_ranges, OQ_STAGE_RANGE, err));
    onq_code rc = ONQ_OK;
    if (!oq_cal_options_equal(&c.options, &r->c.options) || m.total != r->meta.total ||
        m.model_crc != r->meta.model_crc || m.model_size != r->meta.model_size)
        rc = oq_fail(err, ONQ_E_INVALID,
                     "%s: is the range pass of another job (model, samples or options differ)",
                     p->ranges[0]);
    if (rc == ONQ_OK)
        rc = oq_collect_merge(&r->c, &c, err);
    oq_collect_release(&c);
    return rc;
}

static onq_code run_part(runner *r, const char *path, onq_error *err) {
    const uint64_t n = oq_source_count(r->job->source);
    const bool histogram = is_histogram(r);
    oq_stage stage = OQ_STAGE_DONE;
    if (!histogram || r->part->range_only) {
        OQ_TRY(run_samples(r, r->job->source, r->start, n, err));
        stage = histogram ? OQ_STAGE_RANGE : OQ_STAGE_DONE;
    } else {
        uint64_t from = r->start;
        if (r->c.pass == OQ_PASS_EXTENT) {
            OQ_TRY(measure_all(r, err));
            OQ_TRY(layout_all(r, err));
            from = 0;
        }
        if (r->lanes[0].keep.on)
            OQ_TRY(count_kept(r, err));
        else
            OQ_TRY(run_samples(r, r->job->source, from, n, err));
        OQ_TRY(count_fixed(r, n, err));
    }
    r->meta.stage = stage;
    r->meta.base = r->meta.next = 0;
    return oq_partial_save(&r->c, &r->meta, path, err);
}

/* ---- jobs ---- */

static onq_code check_counts(const runner *r, onq_error *err) {
    const uint64_t n = r->meta.total, stride = r->job->options->stride;
    if (n == 0)
        return oq_fail(err, ONQ_E_INVALID, "%s: no data is collected: there are no samples",
                       oq_source_text(r->job->source));
    if (stride > 0 && n != ALL && n % stride != 0)
        return oq_fail(
            err, ONQ_E_OPTION,
            "%llu samples cannot be divided into strides of %llu (choose another stride, or "
            "another number of samples with limit)",
            (unsigned long long)n, (unsigned long long)stride);
    if (stride > 0 && r->part != NULL)
        return oq_fail(err, ONQ_E_OPTION, "strides and shards cannot be used together");
    return ONQ_OK;
}

static onq_code start(runner *r, onq_error *err) {
    const oq_cal_options *o = r->job->options;
    const oq_cal_part *p = r->part;
    oq_source *const whole = p != NULL && p->all != NULL ? p->all : r->job->source;
    OQ_TRY(oq_cal_check(o, err));
    r->meta = (oq_partial_meta){.n_shares = 1, .stage = OQ_STAGE_EXTENT};
    /* Chunks, shares and checkpoints go by numbers. */
    if (o->stride > 0 || p != NULL || r->job->checkpoint != NULL)
        OQ_TRY(oq_source_measure(whole, err));
    r->meta.total = oq_source_count(whole) > 0 ? oq_source_count(whole) : ALL;
    if (p != NULL) {
        r->meta.share = p->share;
        r->meta.n_shares = p->n_shares;
        r->meta.total = p->total;
    }
    OQ_TRY(check_counts(r, err));
    oq_partial_model(&r->meta, r->job->model);
    OQ_TRY(make_collector(r, err));
    for (unsigned i = 0; i < OQ_CAL_MAX_JOBS; i++)
        r->lanes[i] = (lane){.r = r,
                             .c = i == 0 ? &r->c : NULL,
                             .observer = {r->names, r->n_names, seen, &r->lanes[i]}};
    OQ_TRY(resume(r, err));
    r->start = r->meta.next;
    /* A range pass keeps nothing, nor does a run that may be taken up by another. */
    const bool keeps = is_histogram(r) && r->job->checkpoint == NULL &&
                       (p == NULL || (!p->range_only && p->n_ranges == 0));
    const uint64_t limit = o->memory == OQ_CAL_MEMORY_AUTO ? FLIGHT_MEMORY : o->memory;
    OQ_TRY(oq_keep_init(&r->lanes[0].keep, &r->env->alloc, r->c.n, keeps ? limit : 0, err));
    return open_session(r, err);
}

/* The first lane's session goes last: the others share it. */
static void close_sessions(runner *r) {
    for (unsigned i = OQ_CAL_MAX_JOBS; r->lanes != NULL && i-- > 0;) {
        oq_session_close(r->lanes[i].session);
        r->lanes[i].session = NULL;
    }
}

static void finish(runner *r) {
    close_sessions(r);
    for (unsigned i = 0; r->lanes != NULL && i < OQ_CAL_MAX_JOBS; i++)
        oq_keep_release(&r->lanes[i].keep);
    oq_collect_release(&r->c);
    oq_arena_release(&r->arena);
    pthread_mutex_destroy(&r->nan);
}

static onq_code begin(runner *r, const oq_cal_job *job, const oq_cal_part *part, onq_error *err) {
    *r = (runner){.job = job, .part = part, .env = job->engine->env};
    oq_arena_init(&r->arena, &r->env->alloc);
    pthread_mutex_init(&r->nan, NULL);
    r->lanes = OQ_NEW_ARRAY(&r->arena, lane, OQ_CAL_MAX_JOBS);
    if (r->lanes == NULL)
        return oq_fail_nomem(err);
    return start(r, err);
}

onq_code oq_calibrate(const oq_cal_job *job, oq_ranges *out, onq_error *err) {
    assert(job->model != NULL && job->engine != NULL && job->source != NULL);
    runner r;
    onq_code rc = ONQ_OK;
    *out = (oq_ranges){0};
    OQ_GO(begin(&r, job, NULL, err));
    if (is_histogram(&r))
        OQ_GO(run_histogram(&r, err));
    else
        OQ_GO(run_samples(&r, job->source, r.start, r.meta.total, err));
    close_sessions(&r); /* their memory is not needed for what follows */
    tell_of_nan(&r);
    OQ_GO(oq_collect_finish(&r.c, out, err));
done:
    finish(&r);
    return rc;
}

onq_code oq_calibrate_part(const oq_cal_job *job, const oq_cal_part *part, const char *path,
                           onq_error *err) {
    runner r;
    onq_code rc = ONQ_OK;
    OQ_GO(begin(&r, job, part, err));
    rc = run_part(&r, path, err);
    tell_of_nan(&r);
done:
    finish(&r);
    return rc;
}

onq_code oq_calibrate_join(const onq_env *env, const char *const *paths, size_t n, oq_ranges *out,
                           onq_error *err) {
    oq_collector c;
    oq_partial_meta m;
    *out = (oq_ranges){0};
    OQ_TRY(oq_partial_join(&c, &m, env, paths, n, OQ_STAGE_DONE, err));
    onq_code rc = ONQ_OK;
    if (oq_cal_class_of(c.options.method)->histogram)
        rc = oq_collect_end_chunk(&c, err);
    if (rc == ONQ_OK)
        rc = oq_collect_finish(&c, out, err);
    oq_collect_release(&c);
    return rc;
}

/* ---- portions ---- */

struct oq_calibration {
    oq_cal_job job;
    oq_cal_options options;
    runner r;
    bool begun, broken;
    bool has_ranges;
    oq_ranges ranges; /* MinMax: of all portions so far */
};

onq_code oq_calibration_open(const oq_cal_job *job, oq_calibration **out, onq_error *err) {
    *out = NULL;
    OQ_TRY(oq_cal_check(job->options, err));
    oq_calibration *c = oq_calloc(&job->engine->env->alloc, 1, sizeof *c);
    if (c == NULL)
        return oq_fail_nomem(err);
    c->job = *job;
    c->options = *job->options;
    c->job.options = &c->options;
    *out = c;
    return ONQ_OK;
}

void oq_calibration_close(oq_calibration *c) {
    if (c == NULL)
        return;
    const onq_allocator *alloc = &c->job.engine->env->alloc;
    if (c->begun)
        finish(&c->r);
    if (c->has_ranges)
        oq_ranges_release(&c->ranges);
    oq_free(alloc, c, sizeof *c);
}

/* A collector like the runner's that has seen nothing. */
static onq_code empty_collector(runner *r, onq_error *err) {
    oq_collector fresh;
    OQ_TRY(oq_collect_init(&fresh, r->env, r->job->options, r->all_names, r->c.n, err));
    for (size_t i = 0; i < r->c.n; i++) {
        fresh.v[i].rank = r->c.v[i].rank;
        fresh.v[i].alias = r->c.v[i].alias;
    }
    oq_collect_release(&r->c);
    r->c = fresh;
    return ONQ_OK;
}

static onq_code begin_portion(oq_calibration *c, oq_source *source, onq_error *err) {
    runner *r = &c->r;
    c->job.source = source;
    if (!c->begun) {
        const onq_code rc = begin(r, &c->job, NULL, err);
        c->begun = rc == ONQ_OK;
        if (rc != ONQ_OK)
            finish(r);
        return rc;
    }
    r->meta.total = oq_source_count(source) > 0 ? oq_source_count(source) : ALL;
    r->start = 0;
    if (!is_histogram(r))
        return empty_collector(r, err);
    r->n_lanes = r->n_lanes > 1 ? 1 : r->n_lanes; /* what lanes count joins a first portion only */
    return ONQ_OK;
}

/* merge_range: the new ranges into the old. */
static onq_code join_ranges(const oq_cal_options *o, oq_ranges *all, const oq_ranges *more,
                            onq_error *err) {
    for (size_t i = 0; i < more->all.n; i++) {
        const oq_range *from = more->all.v[i];
        oq_range *to = oq_ranges_find(all, from->name);
        if (to == NULL || to->lowest.n != from->lowest.n)
            return oq_fail(err, ONQ_E_INVALID,
                           "tensor '%.*s' has other channels in this portion than in those before",
                           OQ_STR(from->name));
        for (size_t k = 0; k < to->lowest.n; k++)
            oq_cal_join(o, to->lowest.type, &to->lowest.v[k], &to->highest.v[k], from->lowest.v[k],
                        from->highest.v[k]);
    }
    return ONQ_OK;
}

static onq_code add_minmax(oq_calibration *c, onq_error *err) {
    oq_ranges more;
    OQ_TRY(oq_collect_finish(&c->r.c, &more, err));
    if (!c->has_ranges) {
        /* Tensors whose values are only moved share the arrays of one range; joined, each needs its
         * own. */
        c->has_ranges = oq_ranges_clone(&c->ranges, more.arena.alloc, &more);
        oq_ranges_release(&more);
        return c->has_ranges ? ONQ_OK : oq_fail_nomem(err);
    }
    const onq_code rc = join_ranges(&c->options, &c->ranges, &more, err);
    oq_ranges_release(&more);
    return rc;
}

onq_code oq_calibration_collect(oq_calibration *c, oq_source *source, onq_error *err) {
    runner *r = &c->r;
    if (c->broken)
        return oq_fail(err, ONQ_E_INVALID,
                       "a portion of samples failed before; begin with a new calibrator");
    OQ_TRY(begin_portion(c, source, err));
    if (is_histogram(r)) {
        c->broken = true;
        OQ_TRY(run_chunk(r, 0, r->meta.total, err));
        c->broken = false;
    } else {
        const onq_code rc = run_samples(r, source, 0, r->meta.total, err);
        if (rc == ONQ_E_INVALID && c->has_ranges && oq_source_is_empty(source)) {
            oq_error_clear(err);
            return ONQ_OK;
        }
        OQ_TRY(rc);
        OQ_TRY(add_minmax(c, err));
    }
    tell_of_nan(r);
    r->n_nan_samples = 0;
    return ONQ_OK;
}

onq_code oq_calibration_result(oq_calibration *c, oq_ranges *out, onq_error *err) {
    *out = (oq_ranges){0};
    if (!c->begun || c->broken || (!is_histogram(&c->r) && !c->has_ranges))
        return oq_fail(err, ONQ_E_INVALID, "no data is collected");
    if (is_histogram(&c->r))
        return oq_collect_finish(&c->r.c, out, err);
    return oq_ranges_clone(out, &c->r.env->alloc, &c->ranges) ? ONQ_OK : oq_fail_nomem(err);
}
