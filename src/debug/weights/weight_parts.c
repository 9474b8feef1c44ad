/*
 * weight_parts.c — all weights, measured on all cores.
 *
 * A weight is cut into parts of a fixed size, so figures have the same bits whatever the number of
 * threads; a part is read a few elements at a time, so a weight is never in memory as a whole.
 * Where elements cannot be read by themselves (blocks of bits, a weight that was folded or
 * transposed) the weight is one part, and a large one waits for its turn: there is one such in
 * memory at a time.
 */
#include "base/pool.h"
#include "debug/weights/weights.h"
#include "onnx/tensor.h"

#define SOME      16384     /* elements that are read at once */
#define PART      (1 << 20) /* of one task, or more, so that a weight has at most ... */
#define MAX_PARTS 16
#define LARGE     (1 << 22) /* unpacked at once only one at a time */
#define MAX_SHOWN 200000    /* elements that go into a histogram */
#define MAX_SLOTS 32

typedef struct part {
    uint32_t weight;
    uint64_t from, n, of; /* elements; of the whole weight */
    bool plain;
} part;

/* What a task makes. */
typedef struct slot {
    oq_arena arena;
    oq_debug_unpacked u; /* of a plain weight the last elements only, but all scales */
    oq_weight_sums sums;
} slot;

typedef struct measuring {
    oq_debug *d;
    OQ_VEC(part) parts;
    slot slots[MAX_SLOTS];
    size_t n_slots;
    slot total; /* of the parts of the current weight so far */
} measuring;

/* ---- the parts ---- */

static onq_code touch(oq_model *m, oq_tensor *t, onq_error *err) {
    oq_span ignored;
    return t != NULL ? oq_model_data(m, t, &ignored, err) : ONQ_OK;
}

/* The first to ask a model for data changes it; the tasks only read. */
static onq_code touch_weight(oq_debug *d, oq_debug_weight *w, onq_error *err) {
    oq_tensor *const quantized[] = {w->quantized, w->scale, w->zero, w->scale2};
    OQ_TRY(touch(d->flt, w->flt, err));
    OQ_TRY(touch(d->flt, w->norm_bias, err));
    for (size_t i = 0; i < OQ_COUNT(quantized); i++)
        OQ_TRY(touch(d->quantized, quantized[i], err));
    for (size_t i = 1; w->norm != NULL && i < w->norm->input.n; i++)
        OQ_TRY(touch(d->flt, oq_index_constant(&d->float_index, w->norm->input.v[i]), err));
    return ONQ_OK;
}

static uint64_t round_up(uint64_t n, uint64_t unit) {
    return (n + unit - 1) / unit * unit;
}

/* Elements that are read at once: whole units. */
static uint64_t some_of(const oq_debug_weight *w, uint64_t n) {
    return round_up(SOME, oq_weight_unit(w, n));
}

static onq_code cut(oq_debug *d, uint32_t i, oq_arena *a, measuring *c, onq_error *err) {
    oq_debug_weight *w = &d->weights.v[i];
    part p = {.weight = i};
    onq_code rc = touch_weight(d, w, err);
    if (rc == ONQ_OK)
        rc = oq_tensor_count(w->flt, &p.of, err);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "weight '%.*s'", OQ_STR(w->name));
    p.plain = oq_debug_is_plain(w);
    uint64_t size = p.of;
    if (p.plain) {
        size = p.of / MAX_PARTS > PART ? p.of / MAX_PARTS : PART;
        size = round_up(size, some_of(w, p.of));
    }
    do {
        p.n = p.of - p.from < size ? p.of - p.from : size;
        OQ_TRY_ALLOC(OQ_PUSH(a, &c->parts, p), err);
        p.from += p.n;
    } while (p.from < p.of);
    return ONQ_OK;
}

/* ---- a part ---- */

static onq_code measure_plain(oq_debug *d, oq_debug_weight *w, const part *p, slot *s,
                              onq_error *err) {
    const uint64_t some = some_of(w, p->of), end = p->from + p->n;
    OQ_TRY(oq_debug_unpack_begin(d, w, &s->arena, some, &s->u, err));
    OQ_TRY(oq_weight_sums_init(&s->sums, w, &s->u, &s->arena, err));
    for (uint64_t at = p->from; at < end; at += some) {
        const uint64_t n = end - at < some ? end - at : some;
        OQ_TRY(oq_debug_unpack_some(d, w, at, n, &s->u, err));
        oq_weight_sums_add(&s->sums, w, &s->u, p->of);
    }
    return ONQ_OK;
}

static onq_code measure_whole(oq_debug *d, oq_debug_weight *w, slot *s, onq_error *err) {
    s->u = (oq_debug_unpacked){0};
    OQ_TRY(oq_debug_unpack(d, w, &s->arena, &s->u, err));
    OQ_TRY(oq_weight_sums_init(&s->sums, w, &s->u, &s->arena, err));
    oq_weight_sums_add(&s->sums, w, &s->u, s->u.n);
    return ONQ_OK;
}

static onq_code measure(oq_debug *d, const part *p, slot *s, onq_error *err) {
    oq_debug_weight *w = &d->weights.v[p->weight];
    oq_arena_init(&s->arena, &d->env->alloc);
    const onq_code rc = p->plain ? measure_plain(d, w, p, s, err) : measure_whole(d, w, s, err);
    if (rc == ONQ_OK)
        return rc;
    oq_arena_release(&s->arena);
    return oq_error_in(err, rc, "weight '%.*s'", OQ_STR(w->name));
}

static bool is_late(const part *p) {
    return !p->plain && p->of > LARGE;
}

static onq_code make(void *ctx, size_t i, unsigned worker, onq_error *err) {
    measuring *c = ctx;
    const part *p = &c->parts.v[i];
    (void)worker;
    return is_late(p) ? ONQ_OK : measure(c->d, p, &c->slots[i % c->n_slots], err);
}

/* Every so many elements, before and after. */
static onq_code fill_histograms(oq_debug *d, oq_debug_weight *w, const part *p, slot *s,
                                onq_error *err) {
    oq_debug_unpacked *u = &s->u;
    const uint64_t step = p->of / MAX_SHOWN + 1;
    for (uint64_t at = 0; at < p->of; at += p->plain ? step : p->of) {
        if (p->plain)
            OQ_TRY(oq_debug_unpack_some(d, w, at, 1, u, err));
        oq_debug_hist_add(&w->hist, w->hist.flt, u->x, u->n, step);
        oq_debug_hist_add(&w->hist, w->hist.quantized, u->y, u->n, step);
    }
    return ONQ_OK;
}

static void drop(slot *s) {
    if (s->arena.alloc != NULL)
        oq_arena_release(&s->arena);
    *s = (slot){0};
}

/* In the order of the parts, in the caller. */
static onq_code take(void *ctx, size_t i, unsigned worker, onq_error *err) {
    measuring *c = ctx;
    const part *p = &c->parts.v[i];
    slot *s = &c->slots[i % c->n_slots], *total = &c->total;
    oq_debug_weight *w = &c->d->weights.v[p->weight];
    (void)worker;
    if (is_late(p))
        OQ_TRY(measure(c->d, p, s, err));
    if (p->from == 0) {
        *total = *s;
    } else {
        oq_weight_sums_join(&total->sums, &s->sums);
        oq_arena_release(&s->arena);
    }
    *s = (slot){0};
    if (p->from + p->n < p->of)
        return ONQ_OK;
    onq_code rc = oq_debug_weight_finish(c->d, w, &total->u, &total->sums, err);
    if (rc == ONQ_OK && c->d->histograms)
        rc = fill_histograms(c->d, w, p, total, err);
    drop(total);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "weight '%.*s'", OQ_STR(w->name));
    return oq_progress(c->d->env, "weights", p->weight + 1, c->d->weights.n, err);
}

onq_code oq_debug_weights(oq_debug *d, onq_error *err) {
    measuring c = {.d = d};
    oq_pool *pool = NULL;
    onq_code rc = ONQ_OK;
    OQ_SCRATCH(list, &d->env->alloc);
    for (uint32_t i = 0; i < d->weights.n; i++)
        OQ_GO(cut(d, i, &list, &c, err));
    OQ_GO(oq_pool_new(d->env, &pool, err));
    c.n_slots = 2 * oq_pool_workers(pool) < MAX_SLOTS ? 2 * oq_pool_workers(pool) : MAX_SLOTS;
    OQ_GO(oq_pool_pipeline(pool, c.parts.n, c.n_slots, make, take, &c, err));
done:
    oq_pool_free(pool);
    for (size_t i = 0; i < MAX_SLOTS; i++) /* of parts that no one took */
        drop(&c.slots[i]);
    drop(&c.total);
    return rc;
}
