/*
 * test_padded.c — the histogram of a tensor with zeros around it, made from that of the tensor
 * without them, is what counting it gives.
 */
#include "calibrate/collect/collect_int.h"
#include "calibrate/method/method.h"
#include "testing.h"

#include <math.h>
#include <stdlib.h>

#define SAMPLES 6
#define VALUES  300

static const oq_str names[] = {{"bare", 4}, {"padded", 6}};
static float bare[SAMPLES][VALUES], padded[SAMPLES][2 * VALUES];
static size_t n_padded[SAMPLES];
static bool zeros[SAMPLES]; /* the sample's padding is of zeros, and takes nothing away */

static float draw(int round) {
    const float x = (float)(rand() - RAND_MAX / 2) / (float)RAND_MAX;
    switch (round % 6) {
    case 0:
        return x;
    case 1:
        return x < 0 ? 0 : x;
    case 2:
        return x < 0 ? -0.0f : -x;
    case 3:
        return 2 + x;
    case 4:
        return rand() % 40 == 0 ? NAN : rand() % 40 == 0 ? INFINITY : x;
    default:
        return NAN;
    }
}

static void make_samples(int round) {
    for (size_t k = 0; k < SAMPLES; k++) {
        const size_t more = round % 4 == 0 ? 0 : (size_t)rand() % VALUES;
        zeros[k] = round % 5 != 0 || k != 3;
        n_padded[k] = VALUES + more;
        for (size_t i = 0; i < VALUES; i++)
            bare[k][i] = padded[k][more / 2 + i] = draw(round) * (float)(k % 3 + 1);
        for (size_t i = 0; i < n_padded[k]; i++)
            if (i < more / 2 || i >= more / 2 + VALUES)
                padded[k][i] = zeros[k] ? 0 : 5;
        if (!zeros[k])
            padded[k][0] = -7;
    }
}

static oq_datum datum(const float *v, size_t n) {
    return (oq_datum){.kind = OQ_DATUM_TENSOR,
                      .dtype = OQ_FLOAT,
                      .count = n,
                      .data = v,
                      .size_bytes = n * sizeof(float)};
}

static void look(oq_collector *c, onq_error *err) {
    for (size_t k = 0; k < SAMPLES; k++) {
        const oq_datum a = datum(bare[k], VALUES), b = datum(padded[k], n_padded[k]);
        c->sample = k;
        assert_ok(oq_collect_seen(c, 0, &a, err), *err);
        if (c->pass == OQ_PASS_EXTENT && c->v[1].padded != 0)
            assert_ok(oq_collect_seen_padded(c, 1, &b, zeros[k], err), *err);
        else if (!oq_tstat_follows(&c->v[1]))
            assert_ok(oq_collect_seen(c, 1, &b, err), *err);
    }
}

/* Both looks at a chunk; whether the tensor followed. */
static bool chunk(oq_collector *c) {
    onq_error err = ONQ_ERROR_INIT;
    look(c, &err);
    for (size_t i = 0; i < 2; i++)
        assert_ok(oq_collect_layout(c, i, &err), err);
    c->pass = OQ_PASS_COUNT;
    const bool follows = oq_tstat_follows(&c->v[1]);
    look(c, &err);
    assert_ok(oq_collect_end_chunk(c, &err), err);
    return follows;
}

static void same(const oq_tstat *a, const oq_tstat *b) {
    assert_true(oq_hist_same_layout(&a->hist, &b->hist));
    assert_memory_equal(a->hist.count, b->hist.count, a->hist.n_bins * sizeof(uint64_t));
    assert_memory_equal(&a->min, &b->min, sizeof a->min);
    assert_memory_equal(&a->max, &b->max, sizeof a->max);
    assert_true(a->min_bare == b->min_bare && a->max_bare == b->max_bare);
    assert_int_equal(a->n_values, b->n_values);
    assert_int_equal(a->n_nan, b->n_nan);
    assert_int_equal(a->n_low_inf, b->n_low_inf);
    assert_int_equal(a->n_high_inf, b->n_high_inf);
    assert_int_equal(a->n_samples, b->n_samples);
}

static bool has_histogram(int m) {
    return oq_cal_class_of((oq_cal_method)m)->histogram;
}

static void follows_the_other(void **state) {
    (void)state;
    onq_env *env = onq_env_new(NULL);
    size_t n_followed = 0, n_rounds = 0;
    srand(23);
    for (int m = 0; m < OQ_CAL_METHODS; m++)
        for (int round = 0; round < (has_histogram(m) ? 60 : 0); round++, n_rounds++) {
            onq_error err = ONQ_ERROR_INIT;
            oq_collector counted, derived;
            oq_cal_options o;
            oq_cal_defaults(&o, (oq_cal_method)m);
            o.num_bins = round % 2 == 0 ? o.num_bins : o.num_bins + 1;
            assert_ok(oq_collect_init(&counted, env, &o, names, 2, &err), err);
            assert_ok(oq_collect_init(&derived, env, &o, names, 2, &err), err);
            derived.v[1].padded = 1;
            for (int part = 0; part < (round % 3 == 0 ? 2 : 1); part++) {
                make_samples(round);
                chunk(&counted);
                n_followed += chunk(&derived);
                same(&counted.v[0], &derived.v[0]);
                same(&counted.v[1], &derived.v[1]);
            }
            oq_collect_release(&counted);
            oq_collect_release(&derived);
        }
    assert_true(n_followed > n_rounds / 2 && n_followed < n_rounds * 5 / 4);
    onq_env_free(env);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(follows_the_other)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
