/*
 * runner_job.c — a job from its beginning to its ranges: select the tensors, take up a checkpoint,
 * run chunks, shares and portions of samples (runner.c).
 *
 * Passes are as collect.h draws them. With a checkpoint the state is written every so often
 * (partial.h) and a later call goes on from there; then nothing is kept or counted ahead.
 */
#include "calibrate/collect/collect_int.h"
#include "calibrate/runner_parts.h"
#include "calibrate/select.h"

/* ---- tensors ---- */

/* Parts and checkpoints hold what each tensor has by itself. */
static bool follows_pads(const oq_runner *r) {
    const oq_cal_options *o = r->job->options;
    return oq_runner_is_histogram(r) && r->part == NULL && r->job->checkpoint == NULL &&
           oq_runner_need(r) != OQ_NEED_TAILS && !o->inner && !o->fast;
}

/* Padded tensors follow those without the zeros, and what says how many there are is watched. */
static onq_code watch_pads(oq_runner *r, const oq_cal_targets *targets, const oq_map *map,
                           onq_error *err) {
    oq_map watched;
    oq_map_init(&watched, &r->arena);
    for (size_t i = 0; i < targets->all.n; i++) {
        const oq_cal_target *t = &targets->all.v[i];
        if (t->padded.p == NULL)
            continue;
        r->c.v[i].padded = oq_map_find(map, t->padded) + 1;
        if (t->pads.p == NULL)
            continue;
        uint32_t number = oq_map_find(&watched, t->pads);
        if (number == OQ_MAP_NONE) {
            number = (uint32_t)r->n_watched++;
            r->names[r->n_names + number] = t->pads;
            r->types[r->n_names + number] = OQ_INT64;
            OQ_TRY_ALLOC(oq_map_put(&watched, t->pads, number), err);
        }
        r->watched[i] = number + 1;
    }
    return ONQ_OK;
}

static onq_code make_collector(oq_runner *r, onq_error *err) {
    oq_cal_targets targets;
    OQ_TRY(oq_cal_select(r->job->model, r->job->shapes, r->job->options, &r->arena, &targets, err));
    if (follows_pads(r))
        OQ_TRY(oq_cal_select_pads(r->job->model, &r->arena, &targets, err));
    const size_t n = targets.all.n;
    oq_map map;
    oq_map_init(&map, &r->arena);
    r->names = OQ_NEW_ARRAY(&r->arena, oq_str, 2 * n);
    r->types = OQ_NEW_ARRAY(&r->arena, oq_dtype, 2 * n);
    r->bytes = OQ_NEW_ARRAY(&r->arena, uint64_t, 2 * n);
    r->tensors = OQ_NEW_ARRAY(&r->arena, size_t, n);
    r->watched = OQ_NEW_ARRAY(&r->arena, size_t, n);
    oq_str *all = r->all_names = OQ_NEW_ARRAY(&r->arena, oq_str, n);
    if (r->names == NULL || r->types == NULL || r->bytes == NULL || r->tensors == NULL ||
        r->watched == NULL || all == NULL)
        return oq_fail_nomem(err);
    for (size_t i = 0; i < n; i++) {
        const oq_cal_target *t = &targets.all.v[i];
        all[i] = t->name;
        OQ_TRY_ALLOC(oq_map_put(&map, t->name, (uint32_t)i), err);
        if (t->constant != NULL &&
            !OQ_PUSH(&r->arena, &r->fixed, (oq_fixed_tensor){i, t->constant}))
            return oq_fail_nomem(err);
        if (t->alias_of.p != NULL || t->constant != NULL)
            continue;
        r->names[r->n_names] = t->name;
        r->types[r->n_names] = t->type;
        r->bytes[r->n_names] = t->bytes;
        r->tensors[r->n_names++] = i;
    }
    OQ_TRY(oq_collect_init(&r->c, r->env, r->job->options, all, n, err));
    for (size_t i = 0; i < n; i++) {
        const oq_cal_target *t = &targets.all.v[i];
        r->c.v[i].rank = t->rank;
        if (t->alias_of.p != NULL)
            r->c.v[i].alias = oq_map_find(&map, t->alias_of) + 1;
    }
    return watch_pads(r, &targets, &map, err);
}

/* ---- memory ---- */

static onq_code check_counts(const oq_runner *r, onq_error *err) {
    const uint64_t n = r->meta.total, stride = r->job->options->stride;
    if (n == 0)
        return oq_fail(err, ONQ_E_INVALID, "%s: no data is collected: there are no samples",
                       oq_source_text(r->job->source));
    if (stride > 0 && n != OQ_CAL_ALL && n % stride != 0)
        return oq_fail(
            err, ONQ_E_OPTION,
            "%llu samples cannot be divided into strides of %llu (choose another stride, or "
            "another number of samples with limit)",
            (unsigned long long)n, (unsigned long long)stride);
    if (stride > 0 && r->job->walker != NULL)
        return oq_fail(err, ONQ_E_OPTION,
                       "strides would cut sequences: a model with states is calibrated without");
    if (stride > 0 && r->part != NULL)
        return oq_fail(err, ONQ_E_OPTION, "strides and shards cannot be used together");
    return ONQ_OK;
}

#define MEMORY_ROOM ((uint64_t)64 << 20) /* bytes, for what a pass sees by sample */

/* Sample by sample there is one extent of each tensor, and no more is asked for. */
static bool may_recall(const oq_runner *r) {
    const oq_cal_job *job = r->job;
    const oq_cal_options *o = job->options;
    return job->extents != NULL && !oq_runner_is_histogram(r) && !oq_collect_keeps_rows(&r->c) &&
           !o->per_channel && !o->inner && !o->fast && r->part == NULL && job->checkpoint == NULL &&
           job->first == NULL && job->walker == NULL;
}

static onq_code recall(oq_runner *r, onq_error *err) {
    const oq_cal_job *job = r->job;
    OQ_TRY(oq_source_measure(job->source, err));
    const uint64_t n = r->meta.total = oq_source_count(job->source);
    OQ_TRY(check_counts(r, err));
    const oq_seen_tensor **seen = OQ_NEW_ARRAY(&r->arena, const oq_seen_tensor *, r->n_names + 1);
    r->numbers = OQ_NEW_ARRAY(&r->arena, uint64_t, n + 1);
    OQ_TRY_ALLOC(seen != NULL && r->numbers != NULL, err);
    for (uint64_t i = 0; i < n; i++)
        r->numbers[i] = oq_source_number(job->source, i);
    r->recalled = true;
    for (size_t i = 0; i < r->n_names && r->recalled; i++) {
        seen[i] = oq_extent_memory_find(job->extents, r->names[i], r->numbers, n);
        r->recalled = seen[i] != NULL;
    }
    for (size_t i = 0; i < r->n_names && r->recalled; i++)
        OQ_TRY(oq_collect_recall(&r->c, r->tensors[i], seen[i], r->numbers, n, err));
    if (r->recalled)
        return oq_runner_fixed_in_all(r, n, err);
    if (n > MEMORY_ROOM / sizeof(oq_seen_extent) / (r->c.n + 1))
        return ONQ_OK;
    r->c.by_sample = OQ_NEW_ARRAY(&r->arena, oq_seen_extent, r->c.n * n + 1);
    OQ_TRY_ALLOC(r->c.by_sample != NULL, err);
    r->c.n_by_sample = n;
    for (size_t i = 0; i < r->c.n * n; i++)
        r->c.by_sample[i] = (oq_seen_extent){NAN, NAN};
    return ONQ_OK;
}

static onq_code remember(const oq_runner *r, onq_error *err) {
    const uint64_t n = r->c.n_by_sample;
    for (unsigned i = 0; i < OQ_FLIGHT_LANES; i++)
        if (r->lanes[i].strays)
            return ONQ_OK;
    for (size_t i = 0; i < r->n_names && r->c.by_sample != NULL; i++) {
        const size_t at = r->tensors[i];
        if (r->c.v[at].n_samples > 0)
            OQ_TRY(oq_extent_memory_keep(r->job->extents, r->names[i], r->c.v[at].type,
                                         r->c.by_sample + at * n, r->numbers, n, err));
    }
    return ONQ_OK;
}

/* ---- checkpoints ---- */

static bool same_job(const oq_runner *r, const oq_collector *c, const oq_partial_meta *m) {
    bool same = oq_cal_options_equal(&c->options, &r->c.options) && c->n == r->c.n &&
                m->share == r->meta.share && m->n_shares == r->meta.n_shares &&
                m->total == r->meta.total && m->model_size == r->meta.model_size &&
                m->model_crc == r->meta.model_crc && m->next <= m->total && m->base <= m->next;
    for (size_t i = 0; same && i < c->n; i++)
        same = oq_str_eq(c->v[i].name, r->c.v[i].name) && c->v[i].alias == r->c.v[i].alias;
    return same;
}

/* Takes up the state of an earlier run, if there is one. */
static onq_code resume(oq_runner *r, onq_error *err) {
    const char *path = r->job->checkpoint;
    oq_collector c;
    oq_partial_meta m;
    r->saved_at = oq_seconds();
    if (path == NULL || (!oq_os_may(path, OQ_IS_THERE) && errno == ENOENT))
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
    oq_info(r->env, "%s: continuing after sample %llu of %llu%s", path, (unsigned long long)m.next,
            (unsigned long long)m.total, m.stage == OQ_STAGE_COUNT ? " of the second pass" : "");
    return ONQ_OK;
}

/* About a tenth of the time goes into checkpoints, and there is one every ten seconds at least. */
onq_code oq_runner_save(oq_runner *r, uint64_t next, onq_error *err) {
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

/* ---- chunks ---- */

/* Both looks at the samples [base, end). */
static onq_code run_chunk(oq_runner *r, uint64_t base, uint64_t end, onq_error *err) {
    oq_source *src = r->job->source;
    r->meta.base = base;
    uint64_t from = r->start > base ? r->start : base;
    uint64_t upto = end;
    if (r->c.pass == OQ_PASS_EXTENT) {
        OQ_TRY(oq_runner_samples(r, src, from, end, err));
        if (end == OQ_CAL_ALL)
            end = r->meta.total;
        OQ_TRY(oq_runner_first_look_ends(r, err));
        from = base;
        upto = base + oq_runner_again(r, end - base);
    }
    r->start = 0;
    if (upto > from)
        OQ_TRY(oq_runner_samples(r, src, from, upto, err));
    oq_runner_forget(r);
    OQ_TRY(oq_runner_count_fixed(r, end - base, err));
    return oq_collect_end_chunk(&r->c, err);
}

onq_code oq_runner_all(oq_runner *r, onq_error *err) {
    const uint64_t total = r->meta.total, stride = r->job->options->stride;
    if (r->recalled)
        return ONQ_OK;
    if (!oq_runner_is_histogram(r)) {
        OQ_TRY(oq_runner_samples(r, r->job->source, r->start, total, err));
        return remember(r, err);
    }
    if (stride == 0)
        return run_chunk(r, r->meta.base, total, err);
    for (uint64_t base = r->meta.base; base < total; base += stride)
        OQ_TRY(run_chunk(r, base, base + stride < total ? base + stride : total, err));
    return ONQ_OK;
}

/* ---- shares ---- */

/* Extents of all samples: of the range passes, or by looking at all of them here. */
static onq_code measure_all(oq_runner *r, onq_error *err) {
    const oq_cal_part *p = r->part;
    if (p->n_ranges == 0)
        return oq_runner_samples(r, p->all, r->start, oq_source_count(p->all), err);
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

onq_code oq_runner_share(oq_runner *r, const char *path, onq_error *err) {
    const uint64_t n = oq_source_count(r->job->source);
    const bool histogram = oq_runner_is_histogram(r);
    oq_stage stage = OQ_STAGE_DONE;
    if (!histogram || r->part->range_only) {
        OQ_TRY(oq_runner_samples(r, r->job->source, r->start, n, err));
        stage = histogram ? OQ_STAGE_RANGE : OQ_STAGE_DONE;
    } else {
        uint64_t from = r->start, upto = n;
        if (r->c.pass == OQ_PASS_EXTENT) {
            OQ_TRY(measure_all(r, err));
            OQ_TRY(oq_runner_first_look_ends(r, err));
            from = 0;
            upto = oq_runner_again(r, n);
        }
        if (upto > from)
            OQ_TRY(oq_runner_samples(r, r->job->source, from, upto, err));
        OQ_TRY(oq_runner_count_fixed(r, n, err));
    }
    r->meta.stage = stage;
    r->meta.base = r->meta.next = 0;
    return oq_partial_save(&r->c, &r->meta, path, err);
}

/* ---- jobs ---- */

static onq_code start(oq_runner *r, onq_error *err) {
    const oq_cal_options *o = r->job->options;
    const oq_cal_part *p = r->part;
    oq_source *const whole = p != NULL && p->all != NULL ? p->all : r->job->source;
    OQ_TRY(oq_cal_check(o, err));
    r->meta = (oq_partial_meta){.n_shares = 1, .stage = OQ_STAGE_EXTENT};
    /* Chunks, shares and checkpoints go by numbers. */
    if (o->stride > 0 || p != NULL || r->job->checkpoint != NULL)
        OQ_TRY(oq_source_measure(whole, err));
    r->meta.total = oq_source_count(whole) > 0 ? oq_source_count(whole) : OQ_CAL_ALL;
    if (p != NULL) {
        r->meta.share = p->share;
        r->meta.n_shares = p->n_shares;
        r->meta.total = p->total;
    }
    OQ_TRY(check_counts(r, err));
    if (p != NULL || r->job->checkpoint != NULL)
        oq_partial_model(&r->meta, r->job->model);
    OQ_TRY(make_collector(r, err));
    OQ_TRY(resume(r, err));
    r->start = r->meta.next;
    if (may_recall(r))
        OQ_TRY(recall(r, err));
    return r->recalled ? ONQ_OK : oq_runner_open(r, err);
}

static onq_code begin(oq_runner *r, onq_error *err) {
    oq_arena_init(&r->arena, &r->env->alloc);
    pthread_mutex_init(&r->lock, NULL);
    for (size_t i = 0; i < OQ_CAL_LOCKS; i++)
        pthread_mutex_init(&r->locks.v[i], NULL);
    r->lanes = OQ_NEW_ARRAY(&r->arena, oq_lane, OQ_FLIGHT_LANES);
    OQ_TRY_ALLOC(r->lanes != NULL, err);
    return start(r, err);
}

onq_code oq_runner_new(const oq_cal_job *job, const oq_cal_part *part, oq_runner **out,
                       onq_error *err) {
    const onq_env *env = job->engine->env;
    oq_runner *r = oq_calloc(&env->alloc, 1, sizeof *r);
    *out = NULL;
    OQ_TRY_ALLOC(r != NULL, err);
    *r = (oq_runner){.job = job, .part = part, .env = env};
    const onq_code rc = begin(r, err);
    if (rc == ONQ_OK)
        *out = r;
    else
        oq_runner_free(r);
    return rc;
}

/* A collector like the runner's that has seen nothing. */
static onq_code empty_collector(oq_runner *r, onq_error *err) {
    oq_collector fresh;
    OQ_TRY(oq_collect_init(&fresh, r->env, r->job->options, r->all_names, r->c.n, err));
    oq_collect_like(&fresh, &r->c);
    fresh.locks = r->c.locks;
    oq_collect_release(&r->c);
    r->c = fresh;
    return ONQ_OK;
}

onq_code oq_runner_next(oq_runner *r, onq_error *err) {
    const uint64_t n = oq_source_count(r->job->source);
    r->meta.total = n > 0 ? n : OQ_CAL_ALL;
    r->start = 0;
    if (!oq_runner_is_histogram(r))
        return empty_collector(r, err);
    r->n_lanes = r->n_lanes > 1 ? 1 : r->n_lanes; /* what lanes count joins a first portion only */
    return ONQ_OK;
}

bool oq_runner_is_histogram(const oq_runner *r) {
    return oq_cal_class_of(r->job->options->method)->histogram;
}

onq_code oq_runner_finish(oq_runner *r, oq_ranges *out, onq_error *err) {
    return oq_collect_finish(&r->c, out, err);
}
