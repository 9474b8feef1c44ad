/*
 * histogram.c — layout of histograms, and how they are filled. See histogram.h.
 *
 * float32 goes in portions (hist_find.c). Values of neural networks repeat, and adding to one
 * counter again and again waits for the store before: four counters for each bin, taken in turn,
 * avoid that. Small counters keep it all in the first-level cache; before they can overflow they
 * are added up.
 */
#include "calibrate/collect/histogram.h"

#include "base/text/real.h"
#include "calibrate/collect/hist_find.h"
#include "calibrate/collect/npmath.h"

/* From so many values a bin on, clearing and adding up the counters costs less than they save. */
#define COPIES_FROM 2
#define NONE        UINT32_MAX

static onq_code hist_alloc(oq_hist *h, const onq_allocator *a, oq_dtype type, bool abs,
                           size_t n_bins, onq_error *err) {
    *h = (oq_hist){.alloc = a, .type = type, .abs = abs, .n_bins = n_bins};
    if (n_bins == 0 || n_bins > OQ_HIST_MAX_BINS)
        return oq_fail(err, ONQ_E_LIMIT, "a histogram of %zu bins (1 to %u are possible)", n_bins,
                       OQ_HIST_MAX_BINS);
    h->edges = oq_calloc(a, n_bins + 1, sizeof(float));
    h->count = oq_calloc(a, n_bins, sizeof(uint64_t));
    if (h->edges == NULL || h->count == NULL) {
        oq_hist_release(h);
        return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

/* The last bin whose left edge is not above x; edges may repeat. */
static size_t search(const oq_hist *h, float x) {
    size_t lo = 0, hi = h->n_bins;
    while (hi - lo > 1) {
        const size_t mid = lo + (hi - lo) / 2;
        if (h->edges[mid] <= x)
            lo = mid;
        else
            hi = mid;
    }
    return lo;
}

/*
 * May bins be guessed by multiplication? In units of bins, with u = 2^-24, where m is the greatest
 * magnitude of the range: x * scale + bias is wrong by less than (3 + 3 m / width) u n, an edge by
 * less than (2 + m / width) u n. A guess from that far below is right or one too low.
 */
static void plan_guess(oq_hist *h) {
    const float width = h->last - h->first, scale = (float)h->n_bins / width;
    const float step = width / (float)h->n_bins;
    const double m = fmax(fabs((double)h->first), fabs((double)h->last));
    const double below = 2 * 0x1p-24 * (double)h->n_bins * (6 + 4 * m / (double)width);
    if (!isfinite(width) || !isfinite(scale) || scale < 0x1p-100f || !(below < 0.25))
        return;
    for (size_t i = 0; i < h->n_bins; i++) {
        const float next = (float)(i + 1) * step + h->first;
        if (!(h->edges[i] < h->edges[i + 1]) || (i + 1 < h->n_bins && h->edges[i + 1] != next))
            return;
    }
    h->scale = scale;
    h->bias = (float)((double)-h->first * (double)scale - below);
    h->step = step;
    if (0 >= h->first && 0 <= h->last)
        h->zero_bin = (int32_t)search(h, 0);
}

onq_code oq_hist_uniform(oq_hist *h, const onq_allocator *a, oq_dtype type, bool abs, float first,
                         float last, size_t n_bins, onq_error *err) {
    OQ_TRY(hist_alloc(h, a, type, abs, n_bins, err));
    if (first == last) {
        first = oq_np_round(type, (double)first - 0.5);
        last = oq_np_round(type, (double)last + 0.5);
    }
    h->uniform = true;
    h->first = first;
    h->last = last;
    oq_np_linspace(type, first, last, n_bins, h->edges);
    if (type == OQ_FLOAT)
        plan_guess(h);
    return ONQ_OK;
}

onq_code oq_hist_edges(oq_hist *h, const onq_allocator *a, oq_dtype type, bool abs,
                       const float *edges, size_t n_bins, onq_error *err) {
    OQ_TRY(hist_alloc(h, a, type, abs, n_bins, err));
    memcpy(h->edges, edges, (n_bins + 1) * sizeof(float));
    h->first = edges[0];
    h->last = edges[n_bins];
    return ONQ_OK;
}

void oq_hist_trim(oq_hist *h) {
    oq_free(h->alloc, h->lut, 65536 * sizeof(uint32_t));
    h->lut = NULL;
}

void oq_hist_scratch_release(oq_hist_scratch *s, const onq_allocator *a) {
    oq_free(a, s->v, s->n * sizeof(uint32_t));
    *s = (oq_hist_scratch){0};
}

void oq_hist_release(oq_hist *h) {
    if (h->alloc == NULL)
        return;
    oq_hist_trim(h);
    oq_free(h->alloc, h->edges, (h->n_bins + 1) * sizeof(float));
    oq_free(h->alloc, h->count, h->n_bins * sizeof(uint64_t));
    *h = (oq_hist){0};
}

bool oq_hist_same_layout(const oq_hist *a, const oq_hist *b) {
    return a->type == b->type && a->abs == b->abs && a->uniform == b->uniform &&
           a->n_bins == b->n_bins &&
           memcmp(a->edges, b->edges, (a->n_bins + 1) * sizeof(float)) == 0;
}

/* ---- numpy's own steps, one value at a time ---- */

static uint32_t bin_slow(const oq_hist *h, float x) {
    if (h->abs)
        x = fabsf(x);
    if (!(x >= h->first && x <= h->last) || isinf(x))
        return NONE;
    const float width = oq_np_step(h->type, h->last - h->first);
    if (!h->uniform || isinf(width))
        return (uint32_t)search(h, x);
    float f = oq_np_step(h->type, x - h->first);
    f = oq_np_step(h->type, oq_np_step(h->type, f / width) * oq_np_step(h->type, (float)h->n_bins));
    if (!(f >= 0 && f <= (float)h->n_bins)) /* overflow: numpy has no bin for it */
        return (uint32_t)search(h, x);
    size_t i = (size_t)f;
    if (i >= h->n_bins)
        i = h->n_bins - 1;
    if (x < h->edges[i] && i > 0)
        i--;
    if (x >= h->edges[i + 1] && i != h->n_bins - 1)
        i++;
    return (uint32_t)i;
}

size_t oq_hist_bin(const oq_hist *h, float x) {
    const uint32_t bin = bin_slow(h, x);
    assert(bin != NONE);
    return bin;
}

void oq_hist_add_zeros(oq_hist *h, uint64_t n) {
    const uint32_t bin = bin_slow(h, 0);
    if (bin != NONE)
        h->count[bin] += n;
}

/* ---- float16: the bin of each of the 65,536 values ---- */

onq_code oq_hist_prepare(oq_hist *h, onq_error *err) {
    if (h->type != OQ_FLOAT16 || h->lut != NULL)
        return ONQ_OK;
    h->lut = oq_alloc(h->alloc, 65536 * sizeof(uint32_t));
    OQ_TRY_ALLOC(h->lut != NULL, err);
    for (uint32_t k = 0; k < 65536; k++)
        h->lut[k] = bin_slow(h, oq_f16_to_f32((uint16_t)k));
    return ONQ_OK;
}

/* ---- counting ---- */

/* The scratch has the counters of hist_find.h and after them 64 bits for each bin, for what was
 * added up to make room; or, when few values come, a list of their bins. */
typedef struct tally {
    oq_hist_scratch *s;
    size_t n_bins;
    const oq_hist_kernels *kernels;
} tally;

static uint16_t *counters_of(const oq_hist_scratch *s) {
    return (void *)s->v;
}

/* Words of 32 bits. */
static size_t counters_size(size_t n_bins) {
    return n_bins * OQ_HIST_COPIES / 2;
}

static uint64_t *sums_of(const oq_hist_scratch *s, size_t n_bins) {
    return (void *)(s->v + counters_size(n_bins));
}

static bool scratch_fits(oq_hist_scratch *s, const onq_allocator *a, size_t n) {
    if (s->n >= n)
        return true;
    uint32_t *grown = oq_resize(a, s->v, s->n * sizeof(uint32_t), n * sizeof(uint32_t));
    if (grown == NULL)
        return false;
    s->v = grown;
    s->n = n;
    return true;
}

static onq_code tally_begin(tally *t, const oq_hist *h, size_t n, oq_hist_scratch *s,
                            onq_error *err) {
    const bool listed = n / COPIES_FROM < h->n_bins;
    const size_t words = counters_size(h->n_bins);
    if (!scratch_fits(s, h->alloc, listed ? n + OQ_HIST_SPARE : words + 2 * h->n_bins))
        return oq_fail_nomem(err);
    *t = (tally){.s = s, .n_bins = h->n_bins, .kernels = oq_hist_kernels_at(0)};
    s->listed = listed;
    s->spilled = false;
    s->n_counted = 0;
    s->zeros = s->ends = s->first = s->last = 0;
    if (!listed)
        memset(s->v, 0, words * sizeof(uint32_t));
    return ONQ_OK;
}

/* Adds the small counters up and begins with them again. */
static void spill(const tally *t) {
    oq_hist_scratch *s = t->s;
    uint64_t *sums = sums_of(s, t->n_bins);
    if (!s->spilled)
        memset(sums, 0, t->n_bins * sizeof *sums);
    t->kernels->add_up(counters_of(s), t->n_bins, sums);
    memset(s->v, 0, counters_size(t->n_bins) * sizeof(uint32_t));
    s->spilled = true;
    s->n_counted = 0;
}

/* Room in the small counters for n values. One of them may get every fourth, and what is left over
 * of each few. */
static void make_room(const tally *t, size_t n) {
    const size_t most = n / 2 + OQ_HIST_COPIES;
    if (t->s->n_counted + most > UINT16_MAX)
        spill(t);
    t->s->n_counted += most;
}

static void count_list(const tally *t, const oq_hist_found *f) {
    oq_hist_scratch *s = t->s;
    s->zeros += f->zeros;
    s->ends += f->ends;
    if (s->listed) {
        memcpy(s->v + s->n_counted, f->bin, f->n * sizeof *f->bin);
        s->n_counted += f->n;
        return;
    }
    uint16_t *counters = counters_of(s);
    make_room(t, f->n);
    for (size_t i = 0; i < f->n; i++)
        counters[OQ_HIST_COPIES * (size_t)f->bin[i] + i % OQ_HIST_COPIES]++;
}

/* The kernels count what lies outside at the ends. */
static void note_outside(const tally *t, const oq_hist *h, const float *v, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const float x = h->abs ? fabsf(v[i]) : v[i];
        t->s->first += !(x >= h->first);
        t->s->last += x > h->last;
    }
}

static void count_portion(const tally *t, const oq_hist *h, const float *v, size_t n,
                          oq_hist_found *f) {
    make_room(t, n);
    t->kernels->count(h, v, n, counters_of(t->s), f);
    if (!f->inside)
        note_outside(t, h, v, n);
}

/* A portion for which there is no kernel. */
static void find_slow(const oq_hist *h, const void *values, size_t at, size_t n, oq_hist_found *f) {
    f->n = f->zeros = f->ends = 0;
    f->measured = f->inside = false;
    for (size_t i = at; i < at + n; i++) {
        uint32_t bin;
        if (h->type == OQ_FLOAT16) {
            uint16_t x;
            memcpy(&x, (const uint16_t *)values + i, sizeof x);
            bin = h->lut[x];
        } else {
            bin = bin_slow(h, ((const float *)values)[i]);
        }
        f->bin[f->n] = (int32_t)bin;
        f->n += bin != NONE;
    }
}

onq_code oq_hist_scan(const oq_hist *h, const void *values, size_t n, oq_hist_scratch *scratch,
                      oq_extent *e, onq_error *err) {
    assert(n <= OQ_HIST_MAX_SCAN && (e == NULL || h->type == OQ_FLOAT));
    const float *v = values;
    bool sparse = true;
    tally t = {0};
    OQ_TRY(tally_begin(&t, h, n, scratch, err));
    for (size_t at = 0, k = 0; at < n; at += OQ_HIST_PORTION, k++) {
        oq_hist_found f;
        const size_t m = n - at < OQ_HIST_PORTION ? n - at : OQ_HIST_PORTION;
        sparse = sparse || k % 8 == 0; /* looks every so often whether it would pay */
        if (h->scale != 0 && !sparse && !scratch->listed) {
            count_portion(&t, h, v + at, m, &f);
        } else {
            if (h->scale != 0)
                t.kernels->list(h, v + at, m, &f);
            else
                find_slow(h, values, at, m, &f);
            sparse = f.n < m / 2;
            count_list(&t, &f);
        }
        if (e != NULL && f.measured)
            oq_extent_merge(e, &(oq_extent){f.least, f.most, f.least_magnitude, m, 0, 0, 0});
        else if (e != NULL)
            oq_extent_add(e, v + at, m);
    }
    return ONQ_OK;
}

void oq_hist_commit(oq_hist *h, const oq_hist_scratch *s) {
    const size_t n = h->n_bins;
    uint64_t *count = h->count;
    if (s->listed)
        for (size_t i = 0; i < s->n_counted; i++)
            count[s->v[i]]++;
    else
        oq_hist_kernels_at(0)->add_up(counters_of(s), n, count);
    if (s->spilled) {
        const uint64_t *sums = sums_of(s, n);
        for (size_t i = 0; i < n; i++)
            count[i] += sums[i];
    }
    count[h->zero_bin] += s->zeros;
    count[0] -= s->first;
    count[n - 1] += s->ends - s->last;
}

onq_code oq_hist_add(oq_hist *h, const void *values, size_t n, oq_hist_scratch *scratch,
                     onq_error *err) {
    assert(h->n_bins > 0);
    const size_t size = h->type == OQ_FLOAT16 ? sizeof(uint16_t) : sizeof(float);
    OQ_TRY(oq_hist_prepare(h, err));
    for (size_t at = 0, m; at < n; at += m) {
        m = n - at < OQ_HIST_MAX_SCAN ? n - at : OQ_HIST_MAX_SCAN;
        OQ_TRY(oq_hist_scan(h, (const char *)values + at * size, m, scratch, NULL, err));
        oq_hist_commit(h, scratch);
    }
    return ONQ_OK;
}
