/*
 * test_histogram.c — the fast kernel gives the bins of numpy's own steps; portions and faults.
 */
#include "calibrate/collect/histogram.h"

#include "calibrate/collect/hist_find.h"
#include "flaky_alloc.h"
#include "testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* numpy's steps for one float32 value. */
static size_t numpy_bin(const oq_hist *h, float x) {
    const float f = (x - h->first) / (h->last - h->first) * (float)h->n_bins;
    size_t i = (size_t)f;
    if (i == h->n_bins)
        i--;
    if (x < h->edges[i])
        i--;
    if (x >= h->edges[i + 1] && i != h->n_bins - 1)
        i++;
    return i;
}

static float number(int kind, float first, float last, const float *edges, size_t n_bins) {
    const float u = (float)rand() / (float)RAND_MAX;
    switch (kind) {
    case 0:
        return first + u * (last - first);
    case 1: /* on an edge, or a step beside it */
        return nextafterf(edges[(size_t)rand() % (n_bins + 1)], rand() % 3 == 0   ? INFINITY
                                                                : rand() % 2 == 0 ? -INFINITY
                                                                                  : 0);
    case 2:
        return rand() % 2 == 0 ? first : last;
    default:
        return rand() % 3 == 0 ? 0 : u * last;
    }
}

static void fast_is_numpys(void **state) {
    (void)state;
    static float v[60000];
    static uint64_t want[5000];
    static const size_t bins[] = {1, 2, 7, 128, 2048, 4999};
    onq_error err = ONQ_ERROR_INIT;
    oq_hist_scratch scratch = {0};
    size_t n_fast = 0;
    srand(11);
    for (int round = 0; round < 300; round++) {
        const float t = ldexpf(0.5f + (float)rand() / (float)RAND_MAX, rand() % 60 - 30);
        const float first = round % 3 == 0 ? t / 3 : -t, last = t;
        const size_t n_bins = bins[(size_t)rand() % OQ_COUNT(bins)];
        const size_t n = round % 5 == 0 ? 60000 : (size_t)(rand() % 700);
        oq_hist h;
        assert_ok(
            oq_hist_uniform(&h, oq_alloc_default(), OQ_FLOAT, false, first, last, n_bins, &err),
            err);
        n_fast += h.scale != 0;
        memset(want, 0, sizeof want);
        for (size_t i = 0; i < n; i++) {
            v[i] = number(round % 4, first, last, h.edges, n_bins);
            v[i] = v[i] < first ? first : v[i] > last ? last : v[i];
            want[numpy_bin(&h, v[i])]++;
        }
        assert_ok(oq_hist_add(&h, v, n, &scratch, &err), err);
        assert_memory_equal(h.count, want, n_bins * sizeof(uint64_t));
        oq_hist_release(&h);
    }
    assert_true(n_fast > 250);
    oq_hist_scratch_release(&scratch, oq_alloc_default());
}

/* The extent that a kernel saw, where it says that it did. */
static void check_extent(const oq_hist_found *f, const float *v, size_t n, bool inside) {
    oq_extent e = OQ_EXTENT_NONE;
    oq_extent_add(&e, v, n);
    assert_true(f->inside == inside);
    assert_true(f->measured == (inside && e.hi != 0));
    if (!f->measured)
        return;
    assert_memory_equal(&e.lo, &f->least, sizeof(float));
    assert_memory_equal(&e.hi, &f->most, sizeof(float));
    assert_memory_equal(&e.lo_abs, &f->least_magnitude, sizeof(float));
}

/* Every kernel that the machine has counts numpy's bins, and finds the extent. */
static void kernels(void **state) {
    (void)state;
    onq_error err = ONQ_ERROR_INIT;
    size_t n_kernels = 0;
    for (size_t k = 0; oq_hist_kernels_at(k) != NULL; k++, n_kernels++) {
        const oq_hist_kernels *kernel = oq_hist_kernels_at(k);
        srand(17);
        for (int round = 0; round < 600; round++) {
            static float v[OQ_HIST_PORTION];
            static oq_hist_found f;
            static uint16_t counters[2048 * OQ_HIST_COPIES];
            uint64_t want[2048] = {0}, got[2048] = {0}, low = 0, high = 0;
            oq_hist h;
            const float t = ldexpf(0.7f, rand() % 40 - 20);
            const bool abs = round % 3 == 0, odd = round % 5 == 0, outside = round % 2 == 0;
            assert_ok(oq_hist_uniform(&h, oq_alloc_default(), OQ_FLOAT, abs, abs ? 0 : -t, t,
                                      odd ? 2047 : 128, &err),
                      err);
            assert_true(h.scale != 0);
            const size_t n = (size_t)rand() % OQ_HIST_PORTION + 1;
            for (size_t i = 0; i < n; i++) {
                const int kind = rand() % 50;
                v[i] = outside && kind == 0   ? NAN
                       : outside && kind == 1 ? 3 * t
                       : outside && kind == 2 ? -INFINITY
                       : outside && kind == 3 ? INFINITY
                       : kind < 17            ? (round % 7 == 0 ? -0.0f : 0)
                       : kind < 20            ? t
                                              : number(round % 4, -t, t, h.edges, h.n_bins);
                v[i] = !outside && !(fabsf(v[i]) <= t) ? t : v[i];
                v[i] = round % 11 == 0 && v[i] < 0 ? -v[i] : v[i]; /* nothing below zero */
                v[i] = round % 13 == 0 && v[i] > 0 ? -v[i] : v[i]; /* nothing above */
                const float x = abs ? fabsf(v[i]) : v[i];
                if (x >= h.first && x <= h.last)
                    want[numpy_bin(&h, x)]++;
                low += !(x >= h.first);
                high += x > h.last;
            }
            const bool inside = low + high == 0;
            kernel->list(&h, v, n, &f);
            check_extent(&f, v, n, inside);
            for (size_t i = 0; i < f.n; i++) {
                assert_true(f.bin[i] >= 0 && (size_t)f.bin[i] < h.n_bins);
                got[f.bin[i]]++;
            }
            got[h.zero_bin] += f.zeros;
            got[h.n_bins - 1] += f.ends;
            assert_memory_equal(got, want, sizeof want);

            want[0] += low;
            want[h.n_bins - 1] += high;
            memset(got, 0, sizeof got);
            memset(counters, 0, sizeof counters);
            kernel->count(&h, v, n, counters, &f);
            check_extent(&f, v, n, inside);
            kernel->add_up(counters, h.n_bins, got);
            assert_memory_equal(got, want, sizeof want);
            oq_hist_release(&h);
        }
    }
    assert_true(n_kernels >= 1);
}

/* Many values, in the ways of counting that few do not take. */
static void many(void **state) {
    (void)state;
    onq_error err = ONQ_ERROR_INIT;
    oq_hist_scratch scratch = {0};
    const size_t n = 300001;
    float *v = malloc(n * sizeof *v);
    assert_non_null(v);
    srand(3);
    for (int round = 0; round < 12; round++) {
        static const size_t bins[] = {128, 2048, 100, 7};
        uint64_t want[2048] = {0};
        oq_hist h;
        oq_extent e = OQ_EXTENT_NONE, whole = OQ_EXTENT_NONE;
        assert_ok(
            oq_hist_uniform(&h, oq_alloc_default(), OQ_FLOAT, false, -6, 6, bins[round % 4], &err),
            err);
        for (size_t i = 0; i < n; i++) {
            v[i] = round < 4 && i < n / 2              ? 0.25f
                   : round >= 8 && (i / 5000) % 2 == 0 ? 0
                   : round >= 8 && rand() % 1000 == 0  ? NAN
                   : round >= 8 && rand() % 1000 == 0  ? 100
                                                       : (float)(rand() % 24001 - 12000) / 2000;
            if (fabsf(v[i]) <= 6)
                want[numpy_bin(&h, v[i])]++;
        }
        oq_extent_add(&whole, v, n);
        assert_ok(oq_hist_scan(&h, v, n, &scratch, &e, &err), err);
        oq_hist_commit(&h, &scratch);
        assert_memory_equal(h.count, want, h.n_bins * sizeof(uint64_t));
        assert_true(e.lo == whole.lo && e.hi == whole.hi && e.lo_abs == whole.lo_abs);
        assert_true(e.count == whole.count && e.n_nan == whole.n_nan);
        assert_true(e.n_low_inf == whole.n_low_inf && e.n_high_inf == whole.n_high_inf);
        oq_hist_release(&h);
    }
    oq_hist_scratch_release(&scratch, oq_alloc_default());
    free(v);
}

static void left_out(void **state) {
    (void)state;
    const float v[] = {NAN, INFINITY, -INFINITY, 1.5f, -1.5f, 0.25f, 1, -1, -0.0f};
    onq_error err = ONQ_ERROR_INIT;
    oq_hist_scratch scratch = {0};
    oq_hist h;
    assert_ok(oq_hist_uniform(&h, oq_alloc_default(), OQ_FLOAT, false, -1, 1, 4, &err), err);
    assert_ok(oq_hist_add(&h, v, OQ_COUNT(v), &scratch, &err), err);
    const uint64_t want[] = {1, 0, 2, 1};
    assert_memory_equal(h.count, want, sizeof want);
    oq_hist_release(&h);
    assert_ok(oq_hist_uniform(&h, oq_alloc_default(), OQ_FLOAT, true, 0, 1, 4, &err), err);
    assert_ok(oq_hist_add(&h, v, OQ_COUNT(v), &scratch, &err), err);
    const uint64_t magnitudes[] = {1, 1, 0, 2};
    assert_memory_equal(h.count, magnitudes, sizeof magnitudes);
    oq_hist_release(&h);
    oq_hist_scratch_release(&scratch, oq_alloc_default());
}

static void no_width(void **state) {
    (void)state;
    const float v[] = {5, 5, 5};
    onq_error err = ONQ_ERROR_INIT;
    oq_hist_scratch scratch = {0};
    oq_hist h;
    assert_ok(oq_hist_uniform(&h, oq_alloc_default(), OQ_FLOAT, false, 5, 5, 10, &err), err);
    assert_true(h.edges[0] == 4.5f && h.edges[10] == 5.5f);
    assert_ok(oq_hist_add(&h, v, 3, &scratch, &err), err);
    assert_int_equal(h.count[5], 3);
    oq_hist_release(&h);
    oq_hist_scratch_release(&scratch, oq_alloc_default());
}

/* Edges that are not evenly spaced, and that repeat. */
static void given_edges(void **state) {
    (void)state;
    const float edges[] = {0, 1, 1, 4, 10}, v[] = {0, 0.5f, 1, 1, 3.9f, 4, 10, -1, 11, NAN, -4};
    onq_error err = ONQ_ERROR_INIT;
    oq_hist_scratch scratch = {0};
    oq_hist h;
    assert_ok(oq_hist_edges(&h, oq_alloc_default(), OQ_FLOAT, false, edges, 4, &err), err);
    assert_ok(oq_hist_add(&h, v, OQ_COUNT(v), &scratch, &err), err);
    const uint64_t want[] = {2, 0, 3, 2};
    assert_memory_equal(h.count, want, sizeof want);
    oq_hist_release(&h);
    oq_hist_scratch_release(&scratch, oq_alloc_default());
}

/* Ranges at the end of the float range: every value gets a bin, bins are in order. */
static void extreme_ranges(void **state) {
    (void)state;
    onq_error err = ONQ_ERROR_INIT;
    oq_hist_scratch scratch = {0};
    static const float ends[] = {3.4e38f, 1e-44f, 1e-40f, 2e38f};
    for (size_t k = 0; k < OQ_COUNT(ends); k++) {
        oq_hist h;
        const float t = ends[k], v[] = {-t, -t / 2, 0, t / 2, t};
        assert_ok(oq_hist_uniform(&h, oq_alloc_default(), OQ_FLOAT, false, -t, t, 2048, &err), err);
        assert_ok(oq_hist_add(&h, v, 5, &scratch, &err), err);
        uint64_t total = 0;
        for (size_t i = 0; i < 2048; i++)
            total += h.count[i];
        assert_int_equal(total, 5);
        assert_true(h.edges[0] == -t && h.edges[2048] == t);
        if (t > 1) /* a width past the greatest float: bins by their edges */
            assert_true(h.count[0] == 1 && h.count[1024] == 1 && h.count[2047] == 1);
        oq_hist_release(&h);
    }
    oq_hist_scratch_release(&scratch, oq_alloc_default());
}

static void too_many(void **state) {
    (void)state;
    onq_error err = ONQ_ERROR_INIT;
    oq_hist h;
    assert_fails(oq_hist_uniform(&h, oq_alloc_default(), OQ_FLOAT, false, 0, 1, 0, &err),
                 ONQ_E_LIMIT, err, "0 bins");
    assert_fails(
        oq_hist_uniform(&h, oq_alloc_default(), OQ_FLOAT, false, 0, 1, (size_t)1 << 40, &err),
        ONQ_E_LIMIT, err, "bins");
}

static onq_code fill(const onq_allocator *a, void *ctx, onq_error *err) {
    (void)ctx;
    static float v[40000];
    static uint16_t half[64];
    oq_hist_scratch scratch = {0};
    oq_hist h = {0}, g = {0};
    onq_code rc = oq_hist_uniform(&h, a, OQ_FLOAT, false, -1, 1, 2048, err);
    if (rc == ONQ_OK)
        rc = oq_hist_add(&h, v, 40000, &scratch, err);
    if (rc == ONQ_OK)
        rc = oq_hist_uniform(&g, a, OQ_FLOAT16, true, 0, 1, 128, err);
    if (rc == ONQ_OK)
        rc = oq_hist_add(&g, half, 64, &scratch, err);
    if (rc == ONQ_OK)
        assert_true(h.count[1024] == 40000 && g.count[0] == 64);
    oq_hist_release(&h);
    oq_hist_release(&g);
    oq_hist_scratch_release(&scratch, a);
    return rc;
}

static void no_memory(void **state) {
    (void)state;
    assert_true(flaky_sweep(fill, NULL) >= 6);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_is_numpys), cmocka_unit_test(kernels),  cmocka_unit_test(many),
        cmocka_unit_test(left_out),       cmocka_unit_test(no_width), cmocka_unit_test(given_edges),
        cmocka_unit_test(extreme_ranges), cmocka_unit_test(too_many), cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
