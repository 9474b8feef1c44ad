/*
 * histogram.c — layout of histograms, and the kernels that fill them. See histogram.h.
 *
 * The float32 kernel works in portions that stay in the first-level cache: guesses by vector
 * arithmetic, then one pass that corrects and counts. Values of neural networks repeat (zeros behind a
 * Relu), and adding to one counter again and again waits for the store before: four histograms
 * taken in turn avoid that.
 */
#include "calibrate/histogram.h"

#include "base/real.h"
#include "calibrate/npmath.h"

#include <math.h>
#include <string.h>

#define PORTION 512
#define COPIES 4
/* From here on clearing and adding up the copies costs less than they save. */
#define COPIES_FROM 8192
#define NONE UINT32_MAX

typedef float v8f __attribute__((vector_size(32)));
typedef int32_t v8i __attribute__((vector_size(32)));
#define INLINE static inline __attribute__((always_inline))

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
 * May bins be guessed by multiplication? In units of bins, with u = 2^-24: the product (x - first) x scale is wrong by
 * less than 4 u n, an edge by less than (2 + m / width) u n, where m is the greatest magnitude of
 * the range. Twice that is the distance from an edge below which a guess is looked at again.
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
    if (!h->uniform)
        return (uint32_t)search(h, x);
    const float width = rnd(h->type, h->last - h->first);
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
        memcpy(&x, v + i, sizeof(x));
        const uint32_t bin = h->lut[x];
        if (bin != NONE)
            h->count[bin]++;
    }
    return ONQ_OK;
}

/* ---- float32 ---- */

/* Bins of a portion by multiplication. A value so near an edge that rounding could put it on the
 * wrong side is marked UNSURE. The many values that lie on an edge are zeros and those a Clip has
 * cut off: the bins of zero and of the ends of the range are known. */
#define UNSURE INT32_MIN
typedef struct guessed {
    bool odd;      /* a value is not in the range, or NaN: the bins are not to be used */
    size_t unsure; /* how many are marked */
} guessed;

INLINE guessed guess(const oq_hist *h, const float *v, size_t n, int32_t *bin) {
    const float first = h->first, last = h->last, scale = h->scale;
    const float near_lo = h->unsure, near_hi = 1.0f - h->unsure;
    const int32_t top = (int32_t)h->n_bins - 1, zero_bin = h->zero_bin;
    const int32_t keep = h->abs ? INT32_MAX : -1;
    v8i bad = {0}, marks = {0};
    float buf[8];
    for (size_t i = 0; i < n; i += 8) {
        v8f a;
        if (n - i >= 8) {
            memcpy(&a, v + i, sizeof(a));
        } else { /* the rest: the last value again and again */
            for (size_t k = 0; k < 8; k++)
                buf[k] = v[i + k < n ? i + k : n - 1];
            memcpy(&a, buf, sizeof(a));
        }
        a = (v8f)((v8i)a & keep);
        bad |= ~((a >= first) & (a <= last));
        const v8f t = (a - first) * scale;
        v8i b = __builtin_convertvector(t, v8i);
        const v8f r = t - __builtin_convertvector(b, v8f);
        const v8i zero = a == 0, known = zero | (a == first) | (a == last);
        const v8i unsure = ~known & ((r < near_lo) | (r > near_hi)), over = (b > top) | (a == last);
        b = (over & top) | (~over & b);
        b = (zero & zero_bin) | (~zero & (b | (unsure & UNSURE)));
        marks -= unsure;
        memcpy(bin + i, &b, sizeof(b));
    }
    guessed g = {0};
    for (int k = 0; k < 8; k++) {
        g.odd |= bad[k] != 0;
        g.unsure += (size_t)marks[k];
    }
    return g;
}

/* The bin of a guess that is right or one off. */
INLINE size_t settle(const oq_hist *h, float x, int32_t guess_bin) {
    size_t i = (size_t)(guess_bin & INT32_MAX);
    if (h->abs)
        x = fabsf(x);
    i -= x < h->edges[i];
    i += (i + 1 < h->n_bins) & (x >= h->edges[i + 1]);
    return i;
}

/* Settles the marked ones of a portion, so that counting need not look. */
INLINE void settle_all(const oq_hist *h, const float *v, size_t n, guessed g, int32_t *bin) {
    if (g.unsure == 0)
        return;
    if (g.unsure > n / 16) { /* all of them, without a branch that is hard to foretell */
        for (size_t i = 0; i < n; i++)
            bin[i] = (int32_t)settle(h, v[i], bin[i]);
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (bin[i] < 0)
            bin[i] = (int32_t)settle(h, v[i], bin[i]);
}

INLINE void add_body(oq_hist *h, const float *v, size_t n) {
    int32_t bin[PORTION];
    for (size_t at = 0; at < n; at += PORTION) {
        const size_t m = n - at < PORTION ? n - at : PORTION;
        const guessed g = guess(h, v + at, m, bin);
        if (g.odd) {
            add_slow(h, v + at, m);
            continue;
        }
        settle_all(h, v + at, m, g, bin);
        for (size_t i = 0; i < m; i++)
            h->count[bin[i]]++;
    }
}

/* At most 2^32 - 1 values: the copies count in 32 bits. */
INLINE void add_copies_body(oq_hist *h, const float *v, size_t n, uint32_t *scratch) {
    int32_t bin[PORTION];
    uint32_t *const c0 = scratch, *const c1 = c0 + h->n_bins, *const c2 = c1 + h->n_bins,
                   *const c3 = c2 + h->n_bins;
    memset(c0, 0, COPIES * h->n_bins * sizeof(uint32_t));
    for (size_t at = 0; at < n; at += PORTION) {
        const size_t m = n - at < PORTION ? n - at : PORTION;
        const guessed g = guess(h, v + at, m, bin);
        if (g.odd) {
            add_slow(h, v + at, m);
            continue;
        }
        settle_all(h, v + at, m, g, bin);
        size_t i = 0;
        for (; i + COPIES <= m; i += COPIES) {
            c0[bin[i]]++;
            c1[bin[i + 1]]++;
            c2[bin[i + 2]]++;
            c3[bin[i + 3]]++;
        }
        for (; i < m; i++)
            c0[bin[i]]++;
    }
    for (size_t i = 0; i < h->n_bins; i++)
        h->count[i] += (uint64_t)c0[i] + c1[i] + c2[i] + c3[i];
}

static void add_plain(oq_hist *h, const float *v, size_t n, uint32_t *scratch) {
    if (scratch != NULL)
        add_copies_body(h, v, n, scratch);
    else
        add_body(h, v, n);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void add_avx2(oq_hist *h, const float *v, size_t n,
                                                     uint32_t *scratch) {
    if (scratch != NULL)
        add_copies_body(h, v, n, scratch);
    else
        add_body(h, v, n);
}
#endif

static void add_fast(oq_hist *h, const float *v, size_t n, uint32_t *scratch) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        add_avx2(h, v, n, scratch);
        return;
    }
#endif
    add_plain(h, v, n, scratch);
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
    if (h->type == OQ_FLOAT16)
        return add_f16(h, values, n, err);
    const float *v = values;
    if (h->scale == 0) {
        add_slow(h, v, n);
        return ONQ_OK;
    }
    const bool copies = n >= COPIES_FROM && n >= 4 * h->n_bins;
    if (copies && !scratch_fits(scratch, h->alloc, COPIES * h->n_bins))
        return oq_fail_nomem(err);
    for (size_t at = 0; at < n;) { /* in parts that 32 bits count */
        const size_t m = n - at < UINT32_MAX ? n - at : UINT32_MAX;
        add_fast(h, v + at, m, copies ? scratch->v : NULL);
        at += m;
    }
    return ONQ_OK;
}
