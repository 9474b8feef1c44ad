/*
 * channel_stats.c — see channel_stats.h.
 */
#include "prepare/channels/channel_stats.h"

#include "engine/slice/stepper.h"
#include "engine/sweep.h"

oq_channel_stats *oq_channel_stats_new(oq_arena *a, oq_str name, bool is_image, uint64_t n) {
    oq_channel_stats *s = OQ_NEW(a, oq_channel_stats);
    if (s == NULL || n >= SIZE_MAX / sizeof(double))
        return NULL;
    *s = (oq_channel_stats){.name = name, .is_image = is_image, .n = n};
    s->low = OQ_NEW_ARRAY(a, float, n + 1);
    s->high = OQ_NEW_ARRAY(a, float, n + 1);
    s->squares = OQ_NEW_ARRAY(a, double, n + 1);
    return s->low != NULL && s->high != NULL && s->squares != NULL ? s : NULL;
}

float oq_channel_most(const oq_channel_stats *s, uint64_t channel) {
    assert(!s->skip && channel < s->n);
    return fmaxf(fabsf(s->low[channel]), fabsf(s->high[channel]));
}

/* One run of values of one channel. Zero is in every range. */
static void see_run(oq_channel_stats *s, uint64_t channel, const uint8_t *p, uint64_t n) {
    float low = s->low[channel], high = s->high[channel];
    double sum = 0.0;
    for (uint64_t i = 0; i < n; i++) {
        float v;
        memcpy(&v, p + i * sizeof v, sizeof v);
        low = v < low ? v : low;
        high = v > high ? v : high;
        sum += (double)v * (double)v;
    }
    s->low[channel] = low;
    s->high[channel] = high;
    s->squares[channel] += sum;
}

typedef struct watch {
    OQ_VEC(oq_channel_stats *) seen;
} watch;

static onq_code seen(void *ctx, size_t index, const oq_datum *x, onq_error *err) {
    oq_channel_stats *s = ((watch *)ctx)->seen.v[index];
    (void)err;
    const size_t axis = s->is_image ? 1 : x->rank - 1;
    if (x->dtype != OQ_FLOAT || x->rank < 2 || x->dims[axis] < 0 ||
        (uint64_t)x->dims[axis] != s->n) {
        s->skip = true;
        return ONQ_OK;
    }
    uint64_t inner = 1;
    for (size_t i = axis + 1; i < x->rank; i++)
        inner *= (uint64_t)x->dims[i];
    if (inner == 0 || x->count == 0)
        return ONQ_OK;
    const uint8_t *p = x->data;
    for (uint64_t i = 0; i < x->count / inner; i++)
        see_run(s, i % s->n, p + i * inner * sizeof(float), inner);
    s->count += x->count / s->n;
    return ONQ_OK;
}

static onq_code run_samples(const oq_channel_job *job, oq_session *session, onq_error *err) {
    const oq_sweep sweep = {.env = job->model->env,
                            .model = {.source = job->source, .session = session},
                            .what = job->what};
    return oq_sweep_run(&sweep, err);
}

static onq_code run_whole(const oq_channel_job *job, watch *w, const oq_str *names,
                          onq_error *err) {
    const oq_observer observer = {names, w->seen.n, seen, w};
    oq_session_options options = job->session;
    oq_session *session = NULL;
    options.model = job->model;
    options.level = OQ_OPT_NONE;
    options.observer = &observer;
    OQ_TRY(oq_session_open(job->engine, &options, &session, err));
    const onq_code rc = run_samples(job, session, err);
    oq_session_close(session);
    return rc;
}

/* ---- in slices ---- */

/* The first product that reads each tensor, in the order of the graph; false: one has none. */
static bool find_stops(const oq_graph *g, watch *w, oq_str *names, uint32_t *stops) {
    size_t n = 0;
    for (size_t i = 0; i < g->node.n && n < w->seen.n; i++) {
        const oq_node *node = g->node.v[i];
        for (size_t k = n; k < w->seen.n && node->input.n > 1; k++)
            if (oq_str_eq(node->input.v[0], w->seen.v[k]->name)) {
                oq_channel_stats *s = w->seen.v[k];
                w->seen.v[k] = w->seen.v[n];
                w->seen.v[n] = s;
                names[k] = names[n];
                names[n] = s->name;
                stops[n++] = (uint32_t)i;
                break;
            }
    }
    return n == w->seen.n;
}

typedef struct stop {
    watch *w;
    size_t index;
} stop;

static onq_code seen_at(void *ctx, size_t sample, const oq_datum *x, onq_error *err) {
    const stop *at = ctx;
    (void)sample;
    return seen(at->w, at->index, x, err);
}

static onq_code run_slices(const oq_channel_job *job, watch *w, const oq_str *names,
                           const uint32_t *stops, onq_error *err) {
    oq_stepper_options o = {.slice = {.engine = job->engine,
                                      .session = job->session,
                                      .model = job->model,
                                      .proto = job->model->proto},
                            .stops = stops,
                            .n_stops = w->seen.n,
                            .memory = job->slices};
    oq_stepper *stepper = NULL;
    o.slice.session.n_threads = OQ_THREADS_RUNTIME;
    OQ_TRY(oq_stepper_new(&o, job->source, &stepper, err));
    onq_code rc = ONQ_OK;
    for (size_t i = 0; i < w->seen.n && rc == ONQ_OK; i++) {
        stop at = {w, i};
        rc = oq_progress(job->model->env, job->what, i, w->seen.n, err);
        if (rc == ONQ_OK)
            rc = oq_stepper_go(stepper, i, &names[i], 1, seen_at, &at, err);
    }
    oq_stepper_free(stepper);
    return rc;
}

/* ---- memory ---- */

void oq_channel_memory_init(oq_channel_memory *m, const onq_allocator *alloc) {
    *m = (oq_channel_memory){0};
    oq_arena_init(&m->arena, alloc);
    oq_map_init(&m->map, &m->arena);
}

void oq_channel_memory_release(oq_channel_memory *m) {
    oq_arena_release(&m->arena);
    *m = (oq_channel_memory){0};
}

static void copy_stats(oq_channel_stats *to, const oq_channel_stats *from) {
    to->skip = from->skip;
    to->count = from->count;
    memcpy(to->low, from->low, from->n * sizeof *from->low);
    memcpy(to->high, from->high, from->n * sizeof *from->high);
    memcpy(to->squares, from->squares, from->n * sizeof *from->squares);
}

/* False: it must be seen. */
static bool recall(const oq_channel_memory *m, oq_channel_stats *s) {
    const uint32_t at = m != NULL ? oq_map_find(&m->map, s->name) : OQ_MAP_NONE;
    if (at == OQ_MAP_NONE || m->all.v[at]->n != s->n || m->all.v[at]->is_image != s->is_image)
        return false;
    copy_stats(s, m->all.v[at]);
    return true;
}

static onq_code remember(oq_channel_memory *m, const oq_channel_stats *s, onq_error *err) {
    if (m == NULL || oq_map_find(&m->map, s->name) != OQ_MAP_NONE)
        return ONQ_OK;
    const oq_str name = oq_str_copy(&m->arena, s->name);
    oq_channel_stats *copy =
        name.p != NULL ? oq_channel_stats_new(&m->arena, name, s->is_image, s->n) : NULL;
    if (copy == NULL || !oq_map_put(&m->map, name, (uint32_t)m->all.n) ||
        !OQ_PUSH(&m->arena, &m->all, copy))
        return oq_fail_nomem(err);
    copy_stats(copy, s);
    return ONQ_OK;
}

/* ---- all of them ---- */

/* Those of them that memory does not have. */
static onq_code list_unseen(const oq_channel_job *job, oq_channel_stats *const *all, size_t n,
                            oq_arena *scratch, watch *w, oq_str *names, onq_error *err) {
    for (size_t i = 0; i < n; i++) {
        if (all[i]->skip || recall(job->memory, all[i]))
            continue;
        names[w->seen.n] = all[i]->name;
        OQ_TRY_ALLOC(OQ_PUSH(scratch, &w->seen, all[i]), err);
    }
    return ONQ_OK;
}

onq_code oq_channel_stats_run(const oq_channel_job *job, oq_channel_stats *const *all, size_t n,
                              oq_arena *scratch, onq_error *err) {
    watch w = {0};
    oq_str *names = OQ_NEW_ARRAY(scratch, oq_str, n + job->n_ahead + 1);
    OQ_TRY_ALLOC(names != NULL, err);
    OQ_TRY(list_unseen(job, all, n, scratch, &w, names, err));
    const bool runs = w.seen.n > 0;
    OQ_TRY(list_unseen(job, job->ahead, job->n_ahead, scratch, &w, names, err));
    if (!runs)
        return ONQ_OK;
    uint32_t *stops = OQ_NEW_ARRAY(scratch, uint32_t, w.seen.n + 1);
    OQ_TRY_ALLOC(stops != NULL, err);
    onq_code rc = job->slices > 0 && find_stops(job->model->proto->graph, &w, names, stops)
                      ? run_slices(job, &w, names, stops, err)
                      : run_whole(job, &w, names, err);
    for (size_t i = 0; i < w.seen.n && rc == ONQ_OK; i++)
        rc = remember(job->memory, w.seen.v[i], err);
    return rc;
}
