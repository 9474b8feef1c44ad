/*
 * runner_fate.c — what a histogram method does with each sample: it is kept, counted ahead, or run
 * again in the second pass.
 *
 * A histogram is looked at twice. In the first pass samples are kept if memory allows that for all
 * of them (keep.h); else they are counted ahead (ahead.h) once the ranges have stopped growing.
 * What became of each is noted by its number; those that were not counted, or over too narrow a
 * range, run again, and of these only the tensors it concerns are counted.
 */
#include "calibrate/runner_parts.h"

#include "base/pool.h"
#include "calibrate/collect/collect_int.h"

/* What samples that run at once may add to the memory of one, unless a limit is given; and what may
 * be kept. */
#define DEFAULT_MEMORY ((uint64_t)48 << 20)

uint64_t oq_runner_memory(const oq_runner *r) {
    const uint64_t asked = r->job->options->memory;
    return asked == OQ_CAL_MEMORY_AUTO ? DEFAULT_MEMORY : asked;
}

/* Bytes of the histograms. */
static uint64_t hist_bytes(const oq_runner *r) {
    const uint64_t bin = sizeof(float) + sizeof(uint64_t);
    return (uint64_t)r->n_names * r->job->options->num_bins * bin;
}

uint64_t oq_runner_keep_limit(const oq_runner *r) {
    const uint64_t limit = oq_runner_memory(r);
    const uint64_t other = hist_bytes(r) + limit / 8;
    return limit > other ? limit - other : 0;
}

uint8_t oq_runner_fate(const oq_runner *r, uint64_t number) {
    return number < r->fates.n ? r->fates.v[number] : OQ_SAMPLE_AGAIN;
}

static bool is_own(const oq_runner *r, const oq_sample *s) {
    return r->part == NULL || s->sequence % r->part->n_shares == r->part->share;
}

/* Room for a sample as large as the largest so far; the first may take all there is. */
static bool reserve(oq_runner *r, oq_keep *k) {
    const uint64_t need = r->keep_most > 0 ? r->keep_most : r->keep_left;
    if (!r->keeps || need == 0 || need > r->keep_left)
        return false;
    r->keep_left -= need;
    k->limit = k->used + need;
    return true;
}

void oq_runner_reserve(oq_lane *l, uint64_t bytes) {
    oq_runner *r = l->r;
    oq_keep *k = &l->keep;
    const uint64_t more = bytes > k->limit - k->used ? bytes - (k->limit - k->used) : 0;
    if (more == 0)
        return;
    pthread_mutex_lock(&r->lock);
    if (more <= r->keep_left) {
        r->keep_left -= more;
        k->limit += more;
    }
    pthread_mutex_unlock(&r->lock);
}

void oq_runner_decide_fate(oq_lane *l, const oq_sample *s) {
    oq_runner *r = l->r;
    pthread_mutex_lock(&r->lock);
    if (!is_own(r, s))
        l->fate = OQ_SAMPLE_NONE;
    else if (reserve(r, &l->keep))
        l->fate = OQ_SAMPLE_KEPT;
    else
        l->fate = r->counts_ahead && oq_ahead_pays(&r->ahead, s->number) ? OQ_SAMPLE_AHEAD
                                                                         : OQ_SAMPLE_AGAIN;
    /* Only the first samples are kept: the others would find less and less room. */
    r->keeps = r->keeps && (l->fate == OQ_SAMPLE_KEPT || l->fate == OQ_SAMPLE_NONE);
    pthread_mutex_unlock(&r->lock);
    if (l->fate == OQ_SAMPLE_KEPT)
        oq_keep_begin(&l->keep);
    l->c->ahead = r->counts_ahead ? &r->ahead : NULL;
    l->c->ahead_counts = l->fate == OQ_SAMPLE_AHEAD;
}

/* True if all samples take more than may be kept, when each takes so much. To copy values and count
 * them later costs about as much as to run the sample again: it pays only where the second pass is
 * saved. */
static bool is_too_much(const oq_runner *r, uint64_t each) {
    const uint64_t shares = r->meta.n_shares, own = r->meta.total / shares;
    return r->meta.total != OQ_CAL_ALL && each > 0 && oq_runner_keep_limit(r) / each < own;
}

/* Gives back what was reserved and not used. */
static void end_keep(oq_lane *l) {
    oq_runner *r = l->r;
    const uint64_t from = l->keep.from;
    bool whole = oq_keep_end(&l->keep);
    if (whole && r->keep_most == 0 && is_too_much(r, l->keep.used - from)) {
        oq_keep_clear(&l->keep);
        r->keep_left = 0;
        whole = false;
    }
    if (!whole) {
        l->fate = OQ_SAMPLE_AGAIN;
        r->keeps = false;
    }
    const uint64_t took = l->keep.used > from ? l->keep.used - from : 0;
    r->keep_left += l->keep.limit - l->keep.used;
    l->keep.limit = l->keep.used;
    r->keep_most = took > r->keep_most ? took : r->keep_most;
}

onq_code oq_runner_note_fate(oq_lane *l, const oq_sample *s, onq_error *err) {
    oq_runner *r = l->r;
    bool noted = true;
    l->c->ahead = NULL;
    pthread_mutex_lock(&r->lock);
    if (l->fate == OQ_SAMPLE_KEPT)
        end_keep(l);
    while (noted && r->fates.n <= s->number)
        noted = OQ_PUSH(&r->arena, &r->fates, OQ_SAMPLE_NONE);
    if (noted)
        r->fates.v[s->number] = l->fate;
    pthread_mutex_unlock(&r->lock);
    return noted ? ONQ_OK : oq_fail_nomem(err);
}

/* True if the first pass has seen all that the method needs. */
static bool has_all(const oq_runner *r) {
    const oq_cal_need need = oq_runner_need(r);
    for (size_t i = 0; need == OQ_NEED_TAILS && i < r->n_names; i++)
        if (r->c.v[r->tensors[i]].has_next && !r->c.v[r->tensors[i]].settled)
            return false;
    return need != OQ_NEED_COUNTS;
}

bool oq_runner_runs_again(const oq_runner *r, uint8_t fate, uint64_t number) {
    return fate == OQ_SAMPLE_AGAIN || (fate == OQ_SAMPLE_AHEAD && number < r->ahead.most);
}

uint64_t oq_runner_again(const oq_runner *r, uint64_t all) {
    uint64_t n = 0, last = 0;
    if (has_all(r))
        return 0;
    if (r->fates.n == 0)
        return all;
    for (uint64_t i = 0; i < r->fates.n; i++) {
        const bool own = r->fates.v[i] != OQ_SAMPLE_NONE;
        n += own ? 1 : 0;
        if (own && oq_runner_runs_again(r, r->fates.v[i], i))
            last = n;
    }
    return last;
}

void oq_runner_forget(oq_runner *r) {
    r->fates.n = 0;
    r->counts_ahead = false; /* what is counted already decides the layout from now on */
    r->keeps = r->keep_left > 0 || r->keep_most > 0;
    r->keep_most = 0;
    r->keep_left = r->keeps ? oq_runner_keep_limit(r) : 0;
    for (unsigned i = 0; i < r->n_lanes; i++)
        oq_keep_clear(&r->lanes[i].keep);
}

/* ---- between the passes ---- */

typedef struct counting {
    oq_runner *r;
    oq_hist_scratch *scratch; /* by worker */
} counting;

static onq_code count_task(void *ctx, size_t i, unsigned worker, onq_error *err) {
    counting *k = ctx;
    oq_runner *r = k->r;
    const size_t tensor = r->tensors[i];
    for (unsigned m = 0; m < r->n_lanes && !oq_tstat_follows(&r->c.v[tensor]); m++) {
        const oq_kept_list *list = &r->lanes[m].keep.lists[tensor];
        for (size_t j = 0; j < list->n; j++)
            OQ_TRY(oq_collect_count(&r->c, tensor, list->v[j].p, list->v[j].n, &k->scratch[worker],
                                    err));
    }
    return ONQ_OK;
}

/* What was kept, tensors side by side. */
static onq_code count_kept(oq_runner *r, onq_error *err) {
    oq_pool *pool = NULL;
    counting k = {.r = r};
    uint64_t used = 0;
    for (unsigned i = 0; i < r->n_lanes; i++)
        used += r->lanes[i].keep.used;
    if (used == 0)
        return ONQ_OK;
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

static onq_code layout_observed(oq_runner *r, bool padded, onq_error *err) {
    for (size_t k = 0; k < r->n_names; k++) {
        const size_t tensor = r->tensors[k];
        const oq_tstat *t = &r->c.v[tensor];
        if ((t->padded != 0) != padded)
            continue;
        OQ_TRY(oq_collect_layout(&r->c, tensor, err));
        if (r->counts_ahead && t->apart)
            oq_ahead_lose(&r->ahead, tensor);
        if (r->counts_ahead)
            oq_ahead_settle(&r->ahead, &r->c, tensor);
    }
    return ONQ_OK;
}

static onq_code layout_all(oq_runner *r, onq_error *err) {
    OQ_TRY(oq_runner_see_fixed(r, &r->c, err));
    OQ_TRY(layout_observed(r, false, err));
    OQ_TRY(layout_observed(r, true, err)); /* they follow the others */
    for (size_t i = 0; i < r->fixed.n; i++)
        OQ_TRY(oq_collect_layout(&r->c, r->fixed.v[i].tensor, err));
    r->c.pass = OQ_PASS_COUNT;
    return ONQ_OK;
}

onq_code oq_runner_first_look_ends(oq_runner *r, onq_error *err) {
    OQ_TRY(layout_all(r, err));
    OQ_TRY(count_kept(r, err));
    for (unsigned i = 0; i < r->n_lanes; i++)
        oq_keep_clear(&r->lanes[i].keep);
    return ONQ_OK;
}
