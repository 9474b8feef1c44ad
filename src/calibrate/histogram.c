/*
 * histogram.c — layout of histograms, and the kernels that fill them. See histogram.h.
 *
 * float32 goes in portions that stay in the first-level cache: guesses by vector arithmetic
 * (hist_guess.c), then one pass that corrects and counts. Values of neural networks repeat (zeros
 * after a Relu), and adding to one counter again and again waits for the store before: four
 * counters for each bin, taken in turn, avoid that.
 */
#include "calibrate/histogram.h"

#include "base/real.h"
#include "calibrate/hist_guess.h"
#include "calibrate/npmath.h"

#include <math.h>
#include <string.h>

#define COPIES 4 /* add_many sums them explicitly */
/* From so many values a bin on, clearing and adding up the counters costs less than they save. */
#define COPIES_FROM 4
#define NONE        UINT32_MAX

static onq_code hist_alloc(oq_hist *h, const onq_allocator *a, oq_dtype type, bool abs,
                           size_t n_bins, onq_error *err) {
    *h = (oq_hist){.alloc = a, .type = type, .abs = abs, .n_bins = n_bins};
    if (n_bins == 0 || n_bins > OQ_HIST_MOST_BINS)
        return oq_fail(err, ONQ_E_LIMIT, "a histogram of %zu bins (1 to %u are possible)", n_bins,
                       OQ_HIST_MOST_BINS);
    h->edges = oq_calloc(a, n_bins + 1, sizeof(float));
    h->count = oq_calloc(a, n_bins, sizeof(uint64_t));
    if (h->edges == NULL || h->count == NULL) {
        oq_hist_release(h);
        return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

static bool edges_rise(const oq_hist *h) {
    for (size_t i = 0; i < h->n_bins; i++)
        if (!(h->edges[i] < h->edges[i + 1]))
            return false;
    return true;
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
 * May bins be guessed by multiplication? In units of bins, with u = 2^-24: the product (x - first)
 * x scale is wrong by less than 4 u n, an edge by less than (2 + m / width) u n, where m is the
 * greatest magnitude of the range. Twice that is the distance from an edge below which a guess is
 * looked at again.
 */
static void plan_guess(oq_hist *h) {
    const float width = h->last - h->first, scale = (float)h->n_bins / width;
    const double m = fmax(fabs((double)h->first), fabs((double)h->last));
    const double unsure = 2 * 0x1p-24 * (double)h->n_bins * (6 + m / (double)width);
    if (!isfinite(width) || !isfinite(scale) || scale < 0x1p-100f || !(unsure < 0.25))
        return;
    h->unsure = (float)unsure;
    h->scale = scale;
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
    if (type == OQ_FLOAT && edges_rise(h))
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

/* ---- numpy's own steps, one value at a time ---- */

static float rnd(oq_dtype type, float x) {
    return type == OQ_FLOAT16 ? oq_f16_to_f32(oq_f32_to_f16(x)) : x;
}

static uint32_t bin_slow(const oq_hist *h, float x) {
    if (h->abs)
        x = fabsf(x);
    if (!(x >= h->first && x <= h->last) || isinf(x))
        return NONE;
    const float width = rnd(h->type, h->last - h->first);
    if (!h->uniform || isinf(width))
        return (uint32_t)search(h, x);
    float f = rnd(h->type, x - h->first);
    f = rnd(h->type, rnd(h->type, f / width) * rnd(h->type, (float)h->n_bins));
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

static void add_slow(oq_hist *h, const float *v, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const uint32_t bin = bin_slow(h, v[i]);
        if (bin != NONE)
            h->count[bin]++;
    }
}

/* ---- float16: the bin of each of the 65,536 values ---- */

static onq_code add_f16(oq_hist *h, const uint16_t *v, size_t n, onq_error *err) {
    if (h->lut == NULL) {
        h->lut = oq_alloc(h->alloc, 65536 * sizeof(uint32_t));
        if (h->lut == NULL)
            return oq_fail_nomem(err);
        for (uint32_t k = 0; k < 65536; k++)
            h->lut[k] = bin_slow(h, oq_f16_to_f32((uint16_t)k));
    }
    for (size_t i = 0; i < n; i++) {
        uint16_t x;
        memcpy(&x, v + i, sizeof x);
        const uint32_t bin = h->lut[x];
        if (bin != NONE)
            h->count[bin]++;
    }
    return ONQ_OK;
}

/* ---- float32 ---- */

/* The bin of a value whose guess is marked; n_bins for one that is not counted. */
static size_t settle(const oq_hist *h, float x, int32_t guessed) {
    if (h->abs)
        x = fabsf(x);
    if (!(x >= h->first && x <= h->last))
        return h->n_bins;
    size_t i = (size_t)(guessed & INT32_MAX);
    if (i >= h->n_bins)
        i = h->n_bins - 1;
    i -= x < h->edges[i];
    i += (i + 1 < h->n_bins) & (x >= h->edges[i + 1]);
    return i;
}

static void settle_marked(const oq_hist *h, const float *v, size_t m, int32_t *bin) {
    for (size_t i = 0; i < m; i++)
        if (bin[i] < 0)
            bin[i] = (int32_t)settle(h, v[i], bin[i]);
}

static void add_few(oq_hist *h, const float *v, size_t n) {
    const oq_hist_guess_fn guess = oq_hist_guess_at(0);
    int32_t bin[OQ_HIST_PORTION];
    for (size_t at = 0; at < n; at += OQ_HIST_PORTION) {
        const size_t m = n - at < OQ_HIST_PORTION ? n - at : OQ_HIST_PORTION;
        guess(h, v + at, m, bin);
        for (size_t i = 0; i < m; i++) {
            size_t k = (uint32_t)bin[i];
            if (OQ_UNLIKELY(k >= h->n_bins)) { /* marked */
                k = settle(h, v[at + i], bin[i]);
                if (k >= h->n_bins)
                    continue;
            }
            h->count[k]++;
        }
    }
}

/* Counters that are taken in turn lie side by side: the few bins that most values fall into
 * share lines. At most 2^32 - 1 values: they count in 32 bits. */
static void add_many(oq_hist *h, const float *v, size_t n, uint32_t *counters) {
    const oq_hist_guess_fn guess = oq_hist_guess_at(0);
    int32_t bin[OQ_HIST_PORTION];
    memset(counters, 0, COPIES * (h->n_bins + 1) * sizeof(uint32_t));
    for (size_t at = 0; at < n; at += OQ_HIST_PORTION) {
        const size_t m = n - at < OQ_HIST_PORTION ? n - at : OQ_HIST_PORTION;
        const size_t marked = guess(h, v + at, m, bin);
        if (marked > m / 16) /* so many that looking for them in passing would not pay */
            settle_marked(h, v + at, m, bin);
        size_t i = 0;
        for (; i + COPIES <= m; i += COPIES) {
            uint64_t a, b; /* two bins each */
            memcpy(&a, bin + i, sizeof a);
            memcpy(&b, bin + i + 2, sizeof b);
            if (OQ_UNLIKELY(((a | b) & 0x8000000080000000u) != 0)) {
                settle_marked(h, v + at + i, COPIES, bin + i);
                memcpy(&a, bin + i, sizeof a);
                memcpy(&b, bin + i + 2, sizeof b);
            }
            counters[COPIES * (a & UINT32_MAX)]++;
            counters[COPIES * (a >> 32) + 1]++;
            counters[COPIES * (b & UINT32_MAX) + 2]++;
            counters[COPIES * (b >> 32) + 3]++;
        }
        settle_marked(h, v + at + i, m - i, bin + i);
        for (; i < m; i++)
            counters[COPIES * (size_t)bin[i]]++;
    }
    uint64_t *count = h->count;
    for (size_t i = 0; i < h->n_bins; i++) {
        const uint32_t *c = counters + COPIES * i;
        count[i] += ((uint64_t)c[0] + c[1]) + ((uint64_t)c[2] + c[3]);
    }
}

static bool scratch_fits(oq_hist_scratch *s, const onq_allocator *a, size_t n) {
    if (s->n >= n)
        return true;
    uint32_t *grown = oq_resize(a, s->v, s->n * sizeof(uint32_t), n * sizeof(uint32_t));
    if (grown == NULL)
        return false;
    *s = (oq_hist_scratch){grown, n};
    return true;
}

onq_code oq_hist_add(oq_hist *h, const void *values, size_t n, oq_hist_scratch *scratch,
                     onq_error *err) {
    assert(h->n_bins > 0);
    if (h->type == OQ_FLOAT16)
        return add_f16(h, values, n, err);
    const float *v = values;
    if (h->scale == 0) {
        add_slow(h, v, n);
        return ONQ_OK;
    }
    const bool copies = n / COPIES_FROM >= h->n_bins;
    if (copies && !scratch_fits(scratch, h->alloc, COPIES * (h->n_bins + 1)))
        return oq_fail_nomem(err);
    for (size_t at = 0; at < n;) { /* in parts that 32 bits count */
        const size_t m = n - at < UINT32_MAX ? n - at : UINT32_MAX;
        if (copies)
            add_many(h, v + at, m, scratch->v);
        else
            add_few(h, v + at, m);
        at += m;
    }
    return ONQ_OK;
}
