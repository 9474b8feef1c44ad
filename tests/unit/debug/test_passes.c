/* test_passes.c — the loops over activations: every variant gives the same bits, and what a
 * plain loop in doubles gives; parts on a pool change nothing. */
#include "debug/measure/passes.h"

#include "testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST 100003

static float x[MOST], p[MOST];
static const oq_steps steps = {0.05f, -100, 155, -5.05f, 7.8f};
static const oq_steps wide = {0.0003f, -32768, 32767, -9.8307f, 9.8304f};

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
    const oq_steps halves = {0.5f, -32768, 32767, -16384.5f, 16384};
    for (int i = -40000; i < 40000; i += 7) {
        const double want = fmin(fmax(nearbyint(i * 0.3 / 0.5), -32768), 32767) * 0.5;
        assert_true(fabs((double)oq_steps_apply(&halves, (float)(i * 0.3)) - want) <= 0.5);
    }
}

static const void *kept_of(const oq_steps *s) {
    static uint16_t kept[MOST];
    for (size_t i = 0; i < MOST; i++) {
        const float q = oq_steps_apply(s, p[i]) / s->scale - s->lo;
        if (oq_steps_bytes(s) == 1)
            ((uint8_t *)kept)[i] = (uint8_t)lrintf(q);
        else
            kept[i] = (uint16_t)lrintf(q);
    }
    return kept;
}

static void check_float(const oq_passes *v, const oq_steps *s, const void *kept, size_t n) {
    oq_pass_float got = {.lo = INFINITY, .hi = -INFINITY}, alone = got, bare = got;
    double xx = 0, le = 0, yy = 0, ee = 0, ab = 0, top = 0, lo = INFINITY, hi = -INFINITY;
    uint64_t clipped = 0;
    for (size_t i = 0; i < n; i++) {
        const double e = (double)x[i] - (double)oq_steps_apply(s, x[i]);
        const double y = (double)oq_steps_apply(s, p[i]), d = (double)x[i] - y;
        xx += (double)x[i] * (double)x[i];
        le += e * e;
        yy += y * y;
        ee += d * d;
        ab += fabs(d);
        top = fmax(top, fabs(d));
        lo = fmin(lo, (double)x[i]);
        hi = fmax(hi, (double)x[i]);
        clipped += (uint64_t)(x[i] < s->least) + (uint64_t)(x[i] > s->most);
        assert_true(oq_steps_kept(s, kept, i) == oq_steps_apply(s, p[i]));
    }
    v->flt(x, kept, n, s, &got);
    v->flt(x, NULL, n, s, &alone);
    v->flt(x, NULL, n, NULL, &bare);
    assert_true(near(got.local.xx, xx) && near(got.local.ee, le) && got.local.n == n);
    assert_true(near(got.cross.xx, xx) && near(got.cross.yy, yy) && near(got.cross.ee, ee));
    assert_true(near(got.cross.abs_sum, ab) && near(got.cross.abs_max, top) && got.cross.n == n);
    assert_true(got.clipped == clipped && (double)got.lo == lo && (double)got.hi == hi);
    assert_true(alone.cross.n == 0 && alone.cross.xx == 0 && alone.clipped == clipped);
    assert_memory_equal(&alone.local, &got.local, sizeof got.local);
    assert_true(bare.local.xx == 0 && bare.clipped == 0 && (double)bare.lo == lo &&
                (double)bare.hi == hi);
}

static void check_quantized(const oq_passes *v, const oq_steps *s, const void *kept, size_t n) {
    static uint16_t keep[MOST];
    oq_sums all = {0}, noise = {0};
    double pp = 0, pe = 0, yy = 0, ab = 0, top = 0;
    for (size_t i = 0; i < n; i++) {
        const double y = (double)oq_steps_apply(s, p[i]), d = (double)p[i] - y;
        pp += (double)p[i] * (double)p[i];
        pe += d * d;
        yy += y * y;
        ab += fabs(d);
        top = fmax(top, fabs(d));
    }
    memset(keep, 0xa5, sizeof keep);
    v->quantized(p, keep, n, s, OQ_PASS_ALL, &all);
    v->quantized(p, NULL, n, s, OQ_PASS_NOISE, &noise);
    assert_memory_equal(keep, kept, n * oq_steps_bytes(s));
    assert_true(near(all.xx, pp) && near(all.ee, pe) && near(all.yy, yy) && all.n == n);
    assert_true(near(all.abs_sum, ab) && near(all.abs_max, top));
    assert_true(noise.xx == all.xx && noise.ee == all.ee && noise.n == n);
}

static void every_variant_is_right(void **state) {
    static const size_t sizes[] = {0, 1, 15, 16, 17, 1023, 1024, 1025, 5000, MOST};
    (void)state;
    fill();
    const oq_steps *const quantizers[] = {&steps, &wide};
    for (size_t q = 0; q < 2; q++) {
        const void *kept = kept_of(quantizers[q]);
        for (size_t k = 0; oq_passes_at(k) != NULL; k++)
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
                check_float(oq_passes_at(k), quantizers[q], kept, sizes[i]);
                check_quantized(oq_passes_at(k), quantizers[q], kept, sizes[i]);
            }
    }
}

/* Integers are found by a product with 1 / scale; where that and the quotient fall on different
 * sides of a half, as next to every half here, the quotient counts. */
static void products_round_as_quotients(void **state) {
    (void)state;
    static const float scales[] = {0.05f, 1, 3, 0.1f, 1.1754944e-38f, 1e-40f, 3e38f, 0.0078431377f};
    for (size_t i = 0; i < sizeof scales / sizeof *scales; i++)
        for (size_t k = 0; oq_passes_at(k) != NULL; k++) {
            static float in[16 * 1024];
            static uint8_t out[16 * 1024];
            const oq_steps s = {scales[i], -128, 127, -129 * scales[i], 128 * scales[i]};
            size_t n = 0;
            for (int half = -260; half <= 260; half++) {
                float v = (float)half / 2 * s.scale;
                for (int d = 0; d < 12; d++)
                    v = nextafterf(v, -INFINITY);
                for (int d = 0; d < 24; d++, v = nextafterf(v, INFINITY))
                    in[n++] = v;
            }
            const float odd[] = {NAN, INFINITY, -INFINITY, 3e38f, -3e38f, 0, -0.0f, 1e-45f};
            memcpy(in + n, odd, sizeof odd);
            n += sizeof odd / sizeof *odd;
            oq_sums sums = {0};
            oq_passes_at(k)->quantized(in, out, n, &s, OQ_PASS_ALL, &sums);
            for (size_t j = 0; j < n; j++)
                assert_true(oq_steps_kept(&s, out, j) == oq_steps_apply(&s, in[j]));
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
    oq_pass_float t = {.lo = INFINITY, .hi = -INFINITY};
    oq_sums q = {0}, s = {0};
    static uint8_t kept[2][10000];
    plain->quantized(p + 100, kept[0], 9999, &steps, OQ_PASS_ALL, &q);
    plain->flt(x + 100, kept[0], 9999, &steps, &t);
    plain->sums(x, p, 76, &s);
    for (size_t k = 0; k + 1 < n; k++) {
        oq_pass_float t2 = {.lo = INFINITY, .hi = -INFINITY};
        oq_sums q2 = {0}, s2 = {0};
        oq_passes_at(k)->quantized(p + 100, kept[1], 9999, &steps, OQ_PASS_ALL, &q2);
        oq_passes_at(k)->flt(x + 100, kept[1], 9999, &steps, &t2);
        oq_passes_at(k)->sums(x, p, 76, &s2);
        assert_memory_equal(kept[0], kept[1], sizeof kept[0]);
        assert_memory_equal(&t, &t2, sizeof t);
        assert_memory_equal(&q, &q2, sizeof q);
        assert_memory_equal(&s, &s2, sizeof s);
        /* NaN stays out of the span and shows in the sums */
        oq_pass_float odd = {.lo = INFINITY, .hi = -INFINITY};
        oq_passes_at(k)->flt(x, NULL, 100, &steps, &odd);
        assert_true(isnan(odd.local.xx) && isfinite(odd.lo) && isfinite(odd.hi));
    }
}

static void workers_change_nothing(void **state) {
    (void)state;
    static float big[3000000], quantized[3000000];
    static uint16_t kept[2][3000000];
    fill();
    for (size_t i = 0; i < 3000000; i++) {
        big[i] = x[i % MOST] + 0.001f * (float)(i % 17);
        quantized[i] = p[i % MOST];
    }
    onq_env *env = onq_env_new(NULL);
    oq_pool *pool = NULL;
    onq_error err = ONQ_ERROR_INIT;
    onq_env_set_threads(env, 3);
    assert_ok(oq_pool_new(env, &pool, &err), err);
    for (size_t n = 1; n <= 3000000; n = n * 3 + 1) {
        oq_pass_float a = {.lo = INFINITY, .hi = -INFINITY}, b = a;
        oq_sums c = {0}, d = {0}, e = {0}, f = {0};
        assert_ok(oq_pass_quantized_run(NULL, quantized, kept[0], n, &wide, OQ_PASS_ALL, &c, &err),
                  err);
        assert_ok(oq_pass_quantized_run(pool, quantized, kept[1], n, &wide, OQ_PASS_ALL, &d, &err),
                  err);
        assert_ok(oq_pass_float_run(NULL, big, kept[0], n, &wide, &a, &err), err);
        assert_ok(oq_pass_float_run(pool, big, kept[1], n, &wide, &b, &err), err);
        assert_ok(oq_pass_sums_run(NULL, big, quantized, n, &e, &err), err);
        assert_ok(oq_pass_sums_run(pool, big, quantized, n, &f, &err), err);
        assert_memory_equal(&a, &b, sizeof a);
        assert_memory_equal(&c, &d, sizeof c);
        assert_memory_equal(&e, &f, sizeof e);
        assert_true(a.local.n == n && a.cross.n == n && c.n == n && e.n == n);
    }
    oq_pool_free(pool);
    onq_env_free(env);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantizer_rounds_as_the_runtime),
        cmocka_unit_test(every_variant_is_right),
        cmocka_unit_test(products_round_as_quotients),
        cmocka_unit_test(variants_agree_to_the_bit),
        cmocka_unit_test(workers_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
