/*
 * histogram.c — layout of histograms, and the kernels that fill them. See histogram.h.
 *
 * float32 goes in portions that stay in the first-level cache: bins by vector arithmetic
 * (hist_find.c), then one pass that counts them. Values of neural networks repeat, and adding to
 * one counter again and again waits for the store before: four counters for each bin, taken in
 * turn, avoid that. With few bins a counter for each pair of them does, and needs half of the
 * stores.
 */
#include "calibrate/histogram.h"

#include "base/real.h"
#include "calibrate/hist_find.h"
#include "calibrate/npmath.h"

#include <math.h>
#include <string.h>

#define COPIES 4 /* add_turns sums them explicitly */
/* From so many values a bin on, clearing and adding up the counters costs less than they save. */
#define COPIES_FROM 4
/* The same for pairs, which have up to 2^OQ_HIST_PAIR_BITS bins each and fill the first-level cache. */
#define PAIRS      ((size_t)1 << 2 * OQ_HIST_PAIR_BITS)
#define PAIRS_FROM 32768
#define NONE       UINT32_MAX

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

/* How the bins found are counted; what is best depends on how many come. */
typedef enum tally_way {
    ONE_BY_ONE, /* few values */
    IN_TURN,    /* COPIES counters for each bin, side by side */
    IN_PAIRS,   /* a counter for each pair of bins */
} tally_way;

typedef struct tally {
    tally_way way;
    oq_hist *h;
    const oq_hist_kernels *kernels;
    uint32_t *counters; /* in turn */
    uint16_t *pairs;    /* of bins a, b: [b][a] */
    size_t n_pairs;     /* counted since the table was empty: one counter may have them all */
} tally;

static void count_one_by_one(oq_hist *h, const int32_t *bin, size_t n) {
    for (size_t i = 0; i < n; i++)
        h->count[bin[i]]++;
}

/* Counters that are taken in turn lie side by side: the few bins that most values fall into share
 * lines. */
static void count_in_turn(const oq_hist_found *f, uint32_t *counters) {
    size_t i = 0;
    for (; i + COPIES <= f->n; i += COPIES) {
        uint64_t a, b; /* two bins each */
        memcpy(&a, f->bin + i, sizeof a);
        memcpy(&b, f->bin + i + 2, sizeof b);
        counters[COPIES * (a & UINT32_MAX)]++;
        counters[COPIES * (a >> 32) + 1]++;
        counters[COPIES * (b & UINT32_MAX) + 2]++;
        counters[COPIES * (b >> 32) + 3]++;
    }
    for (; i < f->n; i++)
        counters[COPIES * (size_t)f->bin[i]]++;
}

static void add_turns(oq_hist *h, const uint32_t *counters) {
    uint64_t *count = h->count;
    for (size_t i = 0; i < h->n_bins; i++) {
        const uint32_t *c = counters + COPIES * i;
        count[i] += ((uint64_t)c[0] + c[1]) + ((uint64_t)c[2] + c[3]);
    }
}

/* One counter for two values: half of the stores, which are what counting costs. */
static void count_in_pairs(oq_hist *h, const oq_hist_found *f, oq_hist_pair_fn find_pairs,
                           uint16_t *pairs) {
    uint16_t pair[OQ_HIST_PORTION / 2 + OQ_HIST_SPARE];
    const size_t n = f->n / 2;
    if (n > 0)
        find_pairs(f->bin, n, pair);
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        pairs[pair[i]]++;
        pairs[pair[i + 1]]++;
        pairs[pair[i + 2]]++;
        pairs[pair[i + 3]]++;
    }
    for (; i < n; i++)
        pairs[pair[i]]++;
    count_one_by_one(h, f->bin + 2 * n, f->n - 2 * n);
}

typedef uint16_t v16h __attribute__((vector_size(32)));
typedef uint32_t v16w __attribute__((vector_size(64)));

/* Adds the table's sums to the bins, and empties it. */
static void add_pairs(oq_hist *h, uint16_t *pairs) {
    enum { SIDE = 1 << OQ_HIST_PAIR_BITS, BLOCKS = SIDE / 16 };
    v16w column[BLOCKS] = {{0}};
    for (size_t k = 0; k < h->n_bins; k++) {
        v16w row = {0};
        for (size_t j = 0; j < BLOCKS; j++) {
            v16h x;
            memcpy(&x, pairs + k * SIDE + 16 * j, sizeof x);
            const v16w wide = __builtin_convertvector(x, v16w);
            row += wide;
            column[j] += wide;
        }
        for (size_t j = 0; j < 16; j++)
            h->count[k] += row[j];
    }
    for (size_t k = 0; k < h->n_bins; k++)
        h->count[k] += column[k / 16][k % 16];
    memset(pairs, 0, PAIRS * sizeof *pairs);
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

static onq_code tally_begin(tally *t, oq_hist *h, size_t n, oq_hist_scratch *scratch,
                            onq_error *err) {
    size_t words = 0;
    *t = (tally){.h = h, .way = ONE_BY_ONE, .kernels = oq_hist_kernels_at(0)};
    if (h->n_bins <= (size_t)1 << OQ_HIST_PAIR_BITS && n >= PAIRS_FROM) {
        t->way = IN_PAIRS;
        words = PAIRS * sizeof(uint16_t) / sizeof(uint32_t);
    } else if (n / COPIES_FROM >= h->n_bins) {
        t->way = IN_TURN;
        words = COPIES * h->n_bins;
    }
    if (!scratch_fits(scratch, h->alloc, words))
        return oq_fail_nomem(err);
    if (words > 0)
        memset(scratch->v, 0, words * sizeof(uint32_t));
    t->counters = scratch->v;
    t->pairs = (void *)scratch->v;
    return ONQ_OK;
}

static void tally_add(tally *t, const oq_hist_found *f) {
    oq_hist *h = t->h;
    if (t->way == IN_TURN)
        count_in_turn(f, t->counters);
    else if (t->way == ONE_BY_ONE)
        count_one_by_one(h, f->bin, f->n);
    else {
        if (t->n_pairs + f->n / 2 > UINT16_MAX) {
            add_pairs(h, t->pairs);
            t->n_pairs = 0;
        }
        count_in_pairs(h, f, t->kernels->pair, t->pairs);
        t->n_pairs += f->n / 2;
    }
    h->count[h->zero_bin] += f->zeros;
    h->count[h->n_bins - 1] += f->ends;
    h->count[0] -= f->outside; /* in the list, or about to be added: not below zero in the end */
}

static void tally_end(tally *t) {
    if (t->way == IN_TURN)
        add_turns(t->h, t->counters);
    else if (t->way == IN_PAIRS)
        add_pairs(t->h, t->pairs);
}

/* At most 2^32 - 1 values: they count in 32 bits. */
static onq_code add_f32(oq_hist *h, const float *v, size_t n, oq_hist_scratch *scratch,
                        oq_extent *e, onq_error *err) {
    int32_t least = INT32_MAX, most = INT32_MIN, least_magnitude = INT32_MAX;
    bool sparse = true;
    tally t;
    OQ_TRY(tally_begin(&t, h, n, scratch, err));
    for (size_t at = 0, k = 0; at < n; at += OQ_HIST_PORTION, k++) {
        oq_hist_found f;
        const size_t m = n - at < OQ_HIST_PORTION ? n - at : OQ_HIST_PORTION;
        sparse = sparse || k % 8 == 0; /* looks every so often whether it would pay */
        t.kernels->find(h, v + at, m, sparse, &f);
        sparse = sparse && f.n < m / 2;
        tally_add(&t, &f);
        least = f.least < least ? f.least : least;
        most = f.most > most ? f.most : most;
        least_magnitude = f.least_magnitude < least_magnitude ? f.least_magnitude : least_magnitude;
    }
    tally_end(&t);
    if (e != NULL && n > 0)
        oq_extent_add_keys(e, v, n, least, most, least_magnitude);
    return ONQ_OK;
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
    for (size_t at = 0; at < n;) { /* in parts that 32 bits count */
        const size_t m = n - at < UINT32_MAX ? n - at : UINT32_MAX;
        OQ_TRY(add_f32(h, v + at, m, scratch, NULL, err));
        at += m;
    }
    return ONQ_OK;
}

onq_code oq_hist_measure(oq_hist *h, const float *v, size_t n, oq_hist_scratch *scratch,
                         oq_extent *e, onq_error *err) {
    assert(h->type == OQ_FLOAT);
    if (h->scale != 0 && n < UINT32_MAX)
        return add_f32(h, v, n, scratch, e, err);
    oq_extent_add(e, v, n);
    return oq_hist_add(h, v, n, scratch, err);
}
