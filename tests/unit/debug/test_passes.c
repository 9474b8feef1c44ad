/* test_passes.c — the loops over activations: every variant gives the same bits, and what a
 * plain loop in doubles gives; parts on a pool change nothing. */
#include "debug/passes.h"

#include "testing.h"

#include <math.h>
#include <stdlib.h>

#define MOST 100003

static float x[MOST], p[MOST], copy[MOST];
static const oq_steps steps = {0.05f, -100, 155, -5.05f, 7.8f};

static void fill(void) {
    uint32_t seed = 1;
    for (size_t i = 0; i < MOST; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = ((float)(seed >> 8) / 16777216.0f - 0.5f) * 20;
        p[i] = x[i] + ((float)(seed & 255u) / 256.0f - 0.5f) * 0.3f;
    }
}

static bool near(double a, double b) {
    return fabs(a - b) <= 1e-6 * fabs(b) + 1e-12;
}

static void quantizer_rounds_as_the_runtime(void **state) {
    (void)state;
    const oq_steps one = {1, -128, 127, -129, 128};
    const float in[] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 126.6f, 127.5f, 1e9f, -1e9f, -128.4f, 0};
    const float out[] = {0, 2, 2, 0, -2, 127, 127, 127, -128, -128, 0};
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        assert_true(oq_steps_apply(&one, in[i]) == out[i]);
    assert_true(oq_steps_apply(&one, NAN) == -128);
    assert_true(oq_steps_apply(&one, INFINITY) == 127);
    const oq_steps wide = {0.5f, -32768, 32767, -16384.5f, 16384};
    for (int i = -40000; i < 40000; i += 7) {
        const double want = fmin(fmax(nearbyint(i * 0.3 / 0.5), -32768), 32767) * 0.5;
        assert_true(fabs((double)oq_steps_apply(&wide, (float)(i * 0.3)) - want) <= 0.5);
    }
}

static void check_truth(const oq_passes *v, size_t n) {
    oq_pass_truth got = {.lo = INFINITY, .hi = -INFINITY}, bare = got;
    double xx = 0, ee = 0, lo = INFINITY, hi = -INFINITY;
    uint64_t clipped = 0;
    for (size_t i = 0; i < n; i++) {
        const double d = (double)x[i] - (double)oq_steps_apply(&steps, x[i]);
        xx += (double)x[i] * (double)x[i];
        ee += d * d;
        lo = fmin(lo, (double)x[i]);
        hi = fmax(hi, (double)x[i]);
        clipped += (uint64_t)(x[i] < steps.least) + (uint64_t)(x[i] > steps.most);
        copy[i] = 0;
    }
    v->truth(x, copy, n, &steps, &got);
    v->truth(x, NULL, n, NULL, &bare);
    assert_true(near(got.local.xx, xx) && near(got.local.ee, ee) && got.local.n == n);
    assert_true(got.clipped == clipped && (double)got.lo == lo && (double)got.hi == hi);
    assert_true(bare.local.xx == 0 && bare.clipped == 0 && (double)bare.lo == lo &&
                (double)bare.hi == hi);
    assert_memory_equal(copy, x, n * sizeof *x);
}

static void check_pair(const oq_passes *v, size_t n) {
    oq_pass_pair got = {0};
    double pp = 0, pe = 0, yy = 0, ee = 0, ab = 0, top = 0;
    for (size_t i = 0; i < n; i++) {
        const double y = (double)oq_steps_apply(&steps, p[i]), d = (double)x[i] - y;
        pp += (double)p[i] * (double)p[i];
        pe += ((double)p[i] - y) * ((double)p[i] - y);
        yy += y * y;
        ee += d * d;
        ab += fabs(d);
        top = fmax(top, fabs(d));
    }
    v->pair(x, p, n, &steps, &got);
    assert_true(near(got.qdq.xx, pp) && near(got.qdq.ee, pe) && got.qdq.n == n);
    assert_true(near(got.cross.yy, yy) && near(got.cross.ee, ee) && near(got.cross.abs_sum, ab));
    assert_true(near(got.cross.abs_max, top) && got.cross.n == n);
}

static void every_variant_is_right(void **state) {
    static const size_t sizes[] = {0, 1, 15, 16, 17, 1023, 1024, 1025, 5000, MOST};
    (void)state;
    fill();
    for (size_t k = 0; oq_passes_at(k) != NULL; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            check_truth(oq_passes_at(k), sizes[i]);
            check_pair(oq_passes_at(k), sizes[i]);
        }
}

/* Not near: the same bits. */
static void variants_agree_to_the_bit(void **state) {
    (void)state;
    fill();
    x[77] = NAN;
    p[4000] = INFINITY;
    size_t n = 0;
    while (oq_passes_at(n) != NULL)
        n++;
    assert_true(n >= 1);
    const oq_passes *plain = oq_passes_at(n - 1);
    oq_pass_truth t = {.lo = INFINITY, .hi = -INFINITY};
    oq_pass_pair q = {0};
    oq_sums s = {0};
    plain->truth(x + 100, NULL, 9999, &steps, &t);
    plain->pair(x + 100, p + 100, 3000, &steps, &q);
    plain->sums(x, p, 76, &s);
    for (size_t k = 0; k + 1 < n; k++) {
        oq_pass_truth t2 = {.lo = INFINITY, .hi = -INFINITY};
        oq_pass_pair q2 = {0};
        oq_sums s2 = {0};
        oq_passes_at(k)->truth(x + 100, NULL, 9999, &steps, &t2);
        oq_passes_at(k)->pair(x + 100, p + 100, 3000, &steps, &q2);
        oq_passes_at(k)->sums(x, p, 76, &s2);
        assert_memory_equal(&t, &t2, sizeof t);
        assert_memory_equal(&q, &q2, sizeof q);
        assert_memory_equal(&s, &s2, sizeof s);
        /* NaN stays out of the span and shows in the sums */
        oq_pass_truth odd = {.lo = INFINITY, .hi = -INFINITY};
        oq_passes_at(k)->truth(x, NULL, 100, &steps, &odd);
        assert_true(isnan(odd.local.xx) && isfinite(odd.lo) && isfinite(odd.hi));
    }
}

static void workers_change_nothing(void **state) {
    (void)state;
    static float big[3000000], made[3000000];
    fill();
    for (size_t i = 0; i < 3000000; i++) {
        big[i] = x[i % MOST] + 0.001f * (float)(i % 17);
        made[i] = p[i % MOST];
    }
    onq_env *env = onq_env_new(NULL);
    oq_pool *pool = NULL;
    onq_error err = ONQ_ERROR_INIT;
    onq_env_set_threads(env, 3);
    assert_ok(oq_pool_new(env, &pool, &err), err);
    for (size_t n = 1; n <= 3000000; n = n * 3 + 1) {
        oq_pass_truth a = {.lo = INFINITY, .hi = -INFINITY}, b = a;
        oq_pass_pair c = {0}, d = {0};
        oq_sums e = {0}, f = {0};
        assert_ok(oq_pass_truth_run(NULL, big, NULL, n, &steps, &a, &err), err);
        assert_ok(oq_pass_truth_run(pool, big, NULL, n, &steps, &b, &err), err);
        assert_ok(oq_pass_pair_run(NULL, big, made, n, &steps, &c, &err), err);
        assert_ok(oq_pass_pair_run(pool, big, made, n, &steps, &d, &err), err);
        assert_ok(oq_pass_sums_run(NULL, big, made, n, &e, &err), err);
        assert_ok(oq_pass_sums_run(pool, big, made, n, &f, &err), err);
        assert_memory_equal(&a, &b, sizeof a);
        assert_memory_equal(&c, &d, sizeof c);
        assert_memory_equal(&e, &f, sizeof e);
        assert_true(a.local.n == n && c.cross.n == n && e.n == n);
    }
    oq_pool_free(pool);
    onq_env_free(env);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantizer_rounds_as_the_runtime),
        cmocka_unit_test(every_variant_is_right),
        cmocka_unit_test(variants_agree_to_the_bit),
        cmocka_unit_test(workers_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
