/*
 * tails.c — see tails.h.
 */
#include "calibrate/collect/tails.h"

/* Values that are looked at as one: most such pieces have nothing for a tail. */
#define PIECE 2048

void oq_tails_release(oq_tails *t, const onq_allocator *a) {
    oq_free(a, t->upper.v, 2 * t->most * sizeof(float));
    oq_free(a, t->lower.v, 2 * t->most * sizeof(float));
    *t = (oq_tails){0};
}

/* ---- one tail ---- */

static onq_code make_room(oq_tail *t, size_t most, const onq_allocator *a, onq_error *err) {
    if (t->v != NULL)
        return ONQ_OK;
    t->v = oq_alloc(a, 2 * most * sizeof(float));
    t->bar = -INFINITY;
    return t->v != NULL ? ONQ_OK : oq_fail_nomem(err);
}

/* Puts value number k of the order from the greatest to the least in its place, greater ones before
 * it and lesser ones after it (Hoare's Find). */
static void place(float *v, ptrdiff_t n, ptrdiff_t k) {
    ptrdiff_t from = 0, to = n - 1;
    while (from < to) {
        const float pivot = v[k];
        ptrdiff_t i = from, j = to;
        while (i <= j) {
            while (v[i] > pivot)
                i++;
            while (v[j] < pivot)
                j--;
            if (i <= j) {
                const float x = v[i];
                v[i++] = v[j];
                v[j--] = x;
            }
        }
        if (j < k)
            from = i;
        if (k < i)
            to = j;
    }
}

/* Keeps the `most` greatest and raises the bar to the greatest that goes. */
static void shrink(oq_tail *t, size_t most) {
    place(t->v, (ptrdiff_t)t->n, (ptrdiff_t)most);
    t->bar = t->v[most] > t->bar ? t->v[most] : t->bar;
    t->n = most;
}

static void push(oq_tail *t, size_t most, float x) {
    if (t->n == 2 * most)
        shrink(t, most);
    t->v[t->n++] = x;
}

/* ---- both ---- */

static onq_code make_both(oq_tails *t, const onq_allocator *a, onq_error *err) {
    OQ_TRY(make_room(&t->upper, t->most, a, err));
    return t->abs ? ONQ_OK : make_room(&t->lower, t->most, a, err);
}

static void push_all(oq_tails *t, const float *v, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const float x = t->abs ? fabsf(v[i]) : v[i];
        if (!(fabsf(x) <= FLT_MAX))
            continue;
        if (x > t->upper.bar)
            push(&t->upper, t->most, x);
        if (!t->abs && -x > t->lower.bar)
            push(&t->lower, t->most, -x);
    }
}

onq_code oq_tails_add(oq_tails *t, const onq_allocator *a, const float *v, size_t n, oq_extent *e,
                      onq_error *err) {
    OQ_TRY(make_both(t, a, err));
    for (size_t at = 0, m; at < n; at += m) {
        oq_extent piece = OQ_EXTENT_NONE;
        m = n - at < PIECE ? n - at : PIECE;
        oq_extent_add(&piece, v + at, m);
        const float greatest = t->abs ? fmaxf(-piece.lo, piece.hi) : piece.hi;
        if (greatest > t->upper.bar || (!t->abs && -piece.lo > t->lower.bar))
            push_all(t, v + at, m);
        oq_extent_merge(e, &piece);
    }
    return ONQ_OK;
}

static void merge_tail(oq_tail *t, size_t most, const oq_tail *other) {
    t->bar = other->bar > t->bar ? other->bar : t->bar;
    for (size_t i = 0; i < other->n; i++)
        if (other->v[i] >= t->bar) /* at the bar too: they tell that there are so many */
            push(t, most, other->v[i]);
}

onq_code oq_tails_merge(oq_tails *t, const onq_allocator *a, const oq_tails *other,
                        onq_error *err) {
    if (other->upper.v == NULL)
        return ONQ_OK;
    OQ_TRY(make_both(t, a, err));
    merge_tail(&t->upper, t->most, &other->upper);
    if (!t->abs)
        merge_tail(&t->lower, t->most, &other->lower);
    return ONQ_OK;
}

/* ---- counting ---- */

uint64_t oq_tails_count(const oq_tails *t, oq_hist *h, size_t *first, size_t *last) {
    const float upper = t->upper.bar, lower = t->abs ? -INFINITY : -t->lower.bar;
    uint64_t n = 0;
    for (size_t i = 0; i < t->upper.n; i++)
        if (t->upper.v[i] >= upper) {
            h->count[oq_hist_bin(h, t->upper.v[i])]++;
            n++;
        }
    for (size_t i = 0; i < t->lower.n; i++) {
        const float x = -t->lower.v[i];
        if (x <= lower && x < upper) { /* the others may be in the upper tail too */
            h->count[oq_hist_bin(h, x)]++;
            n++;
        }
    }
    *last = isfinite(upper) ? oq_hist_bin(h, upper) : 0;
    *first = isfinite(lower) && lower < upper ? oq_hist_bin(h, lower) : t->abs ? 0 : *last;
    return n;
}
