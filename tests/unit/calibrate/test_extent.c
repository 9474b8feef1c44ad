/*
 * test_extent.c — the runtime's and numpy's rules for least and greatest.
 */
#include "calibrate/collect/extent.h"

#include "testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static float better(bool least, float a, float b) {
    return (least ? b < a : b > a) ? b : a;
}

/* The rule of extent.h in its plainest form: packets of four, two at a time, then what is left. */
static float plain(const float *v, size_t n, bool least) {
    float r[8];
    const size_t two = n / 8 * 8, four = n / 4 * 4;
    if (four == 0) {
        float best = v[0];
        for (size_t i = 1; i < n; i++)
            best = better(least, best, v[i]);
        return best;
    }
    memcpy(r, v, (two > 0 ? 8 : 4) * sizeof(float));
    if (two > 0) {
        for (size_t i = 8; i < two; i++)
            r[i % 8] = better(least, r[i % 8], v[i]);
        for (size_t k = 0; k < 4; k++)
            r[k] = better(least, r[k], r[k + 4]);
        for (size_t k = 0; k < 4 && four > two; k++)
            r[k] = better(least, r[k], v[two + k]);
    }
    float best = better(least, better(least, r[0], r[2]), better(least, r[1], r[3]));
    for (size_t i = four; i < n; i++)
        best = better(least, best, v[i]);
    return best;
}

static bool same(float a, float b) {
    return (isnan(a) && isnan(b)) || memcmp(&a, &b, sizeof a) == 0;
}

static void runtime_rule(void **state) {
    (void)state;
    static float v[3000];
    srand(7);
    for (int round = 0; round < 600; round++) {
        const size_t n = round < 200 ? (size_t)round / 2 + 1 : (size_t)(rand() % 3000) + 1;
        const int kind = round % 4;
        for (size_t i = 0; i < n; i++) {
            v[i] = (float)rand() / (float)RAND_MAX - 0.5f;
            if (kind == 1 && rand() % 3 == 0)
                v[i] = NAN;
            if (kind == 2)
                v[i] = rand() % 4 == 0 ? -0.0f : rand() % 3 == 0 ? 0.0f : fabsf(v[i]);
            if (kind == 3 && rand() % 5 == 0)
                v[i] = rand() % 2 == 0 ? INFINITY : -INFINITY;
        }
        float lo, hi;
        /* any alignment */
        float *at = v + (n < 2990 ? round % 3 : 0);
        oq_extent_runtime(at, n, &lo, &hi);
        assert_true(same(lo, plain(at, n, true)));
        assert_true(same(hi, plain(at, n, false)));
    }
}

static void nothing(void **state) {
    (void)state;
    float lo, hi;
    oq_extent_runtime(NULL, 0, &lo, &hi);
    assert_true(lo == INFINITY && hi == -INFINITY);
    oq_extent e = OQ_EXTENT_NONE;
    oq_extent_add(&e, NULL, 0);
    assert_true(e.lo > e.hi && e.count == 0);
}

static void finite_rule(void **state) {
    (void)state;
    const float v[] = {3, NAN, -0.0f, 2, INFINITY, 0.0f, -INFINITY, 5, 7, 7.5f, 1e-40f, 4};
    oq_extent e = OQ_EXTENT_NONE;
    oq_extent_add(&e, v, OQ_COUNT(v));
    assert_true(e.lo == 0 && signbit(e.lo) && e.hi == 7.5f && e.lo_abs == 0);
    assert_int_equal(e.count, OQ_COUNT(v));
    assert_int_equal(e.n_nan, 1);
    assert_int_equal(e.n_low_inf, 1);
    assert_int_equal(e.n_high_inf, 1);
    const float odd[] = {NAN, INFINITY};
    oq_extent none = OQ_EXTENT_NONE;
    oq_extent_add(&none, odd, 2);
    assert_true(none.lo > none.hi && none.n_nan == 1 && none.n_low_inf + none.n_high_inf == 1);
}

/* Portions in any order give one result. */
static void merges(void **state) {
    (void)state;
    static float v[5000];
    srand(3);
    for (int round = 0; round < 100; round++) {
        for (size_t i = 0; i < 5000; i++)
            v[i] = rand() % 9 == 0
                       ? (rand() % 2 ? 0.0f : -0.0f)
                       : ((float)rand() - (float)(round % 3) * (float)RAND_MAX / 2) / 1e6f;
        oq_extent whole = OQ_EXTENT_NONE, joined = OQ_EXTENT_NONE;
        oq_extent_add(&whole, v, 5000);
        for (size_t at = 5000; at > 0;) {
            const size_t n = (size_t)rand() % 900 % at + 1;
            oq_extent part = OQ_EXTENT_NONE;
            oq_extent_add(&part, v + at - n, n);
            oq_extent_merge(&joined, &part);
            at -= n;
        }
        assert_memory_equal(&whole.lo, &joined.lo, 3 * sizeof(float));
        assert_int_equal(whole.count, joined.count);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runtime_rule),
        cmocka_unit_test(nothing),
        cmocka_unit_test(finite_rule),
        cmocka_unit_test(merges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
