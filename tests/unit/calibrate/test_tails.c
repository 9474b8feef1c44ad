/*
 * test_tails.c — where the tails of a tensor settle its percentiles, they are what all counts give.
 */
#include "calibrate/collect/collect.h"

#include "calibrate/method/method.h"
#include "flaky_alloc.h"
#include "testing.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLES = 6, LANES = 3, MAX_VALUES = 20000 };

static float values[SAMPLES][MAX_VALUES];

static float uniform(void) {
    return (float)rand() / (float)RAND_MAX;
}

static float bell(void) {
    float sum = -6;
    for (int i = 0; i < 12; i++)
        sum += uniform();
    return sum;
}

/* Values as layers give them: spread, clipped at both ends, mostly zero, few different ones. */
static float number(int kind) {
    const float x = bell();
    switch (kind) {
    case 0:
        return x;
    case 1:
        return x < 0 ? 0 : x > 1.5f ? 1.5f : x;
    case 2:
        return x < 2 ? 0 : x * x;
    case 3:
        return (float)(rand() % 4) - 1;
    case 4:
        return 2.5f;
    case 5:
        return rand() % 1000 == 0 ? INFINITY : rand() % 1000 == 1 ? NAN : -expf(x);
    default:
        return rand() % 3000 == 0 ? 40 * x : x;
    }
}

typedef struct job {
    oq_cal_options options;
    size_t n; /* values of a sample */
    unsigned n_lanes;
} job;

static void begin(oq_collector *c, const onq_env *env, const job *j, bool tails) {
    const oq_str name = OQ_S("t");
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_collect_init(c, env, &j->options, &name, 1, &err), err);
    c->options.bounds_only = tails;
    c->tail_samples = tails ? SAMPLES : 0;
    c->tail_room = SIZE_MAX;
}

static void see(oq_collector *c, const job *j, int sample) {
    onq_error err = ONQ_ERROR_INIT;
    const int64_t dims[] = {(int64_t)j->n};
    const oq_datum d = {.kind = OQ_DATUM_TENSOR,
                        .dtype = OQ_FLOAT,
                        .rank = 1,
                        .dims = dims,
                        .count = j->n,
                        .data = values[sample],
                        .size_bytes = j->n * sizeof(float)};
    c->sample = (uint64_t)sample;
    assert_ok(oq_collect_seen(c, 0, &d, &err), err);
}

static void end(oq_collector *c, oq_ranges *out) {
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_collect_end_chunk(c, &err), err);
    assert_ok(oq_collect_finish(c, out, &err), err);
    oq_collect_release(c);
}

/* Both passes over all samples. */
static void count_all(const onq_env *env, const job *j, oq_ranges *out) {
    oq_collector c;
    onq_error err = ONQ_ERROR_INIT;
    begin(&c, env, j, false);
    for (int i = 0; i < SAMPLES; i++)
        see(&c, j, i);
    assert_ok(oq_collect_layout(&c, 0, &err), err);
    c.pass = OQ_PASS_COUNT;
    for (int i = 0; i < SAMPLES; i++)
        see(&c, j, i);
    end(&c, out);
}

/* One pass, samples spread over lanes. False if that does not settle it. */
static bool keep_tails(const onq_env *env, const job *j, oq_ranges *out) {
    oq_collector c, lanes[LANES];
    onq_error err = ONQ_ERROR_INIT;
    begin(&c, env, j, true);
    see(&c, j, 0);
    for (unsigned k = 0; k < j->n_lanes; k++) {
        begin(&lanes[k], env, j, false);
        oq_collect_like(&lanes[k], &c);
    }
    for (int i = 1; i < SAMPLES; i++)
        see(j->n_lanes > 0 && i % 2 == 0 ? &lanes[(unsigned)i / 2 % j->n_lanes] : &c, j, i);
    for (unsigned k = 0; k < j->n_lanes; k++) {
        assert_ok(oq_collect_merge(&c, &lanes[k], &err), err);
        oq_collect_release(&lanes[k]);
    }
    assert_ok(oq_collect_layout(&c, 0, &err), err);
    const bool settled = c.v[0].settled;
    end(&c, out);
    return settled;
}

static void tails_give_percentiles(void **state) {
    (void)state;
    static const double percentiles[] = {99.999, 99.99, 99.95, 99.9, 99.8};
    onq_env *env = onq_env_new(NULL);
    unsigned settled = 0, rounds = 0;
    srand(5);
    for (; rounds < 420; rounds++) {
        job j = {.n = 1 + (size_t)rand() % (rounds % 3 == 0 ? 50 : MAX_VALUES),
                 .n_lanes = rounds % (LANES + 1)};
        oq_cal_defaults(&j.options, OQ_CAL_PERCENTILE);
        j.options.symmetric = rounds % 2 == 0;
        j.options.percentile = percentiles[rounds / 7 % OQ_COUNT(percentiles)];
        for (int i = 0; i < SAMPLES; i++)
            for (size_t k = 0; k < j.n; k++)
                values[i][k] = number((int)(rounds % 7));
        oq_ranges want, got;
        count_all(env, &j, &want);
        if (keep_tails(env, &j, &got)) {
            settled++;
            assert_memory_equal(want.all.v[0]->lowest.v, got.all.v[0]->lowest.v, sizeof(double));
            assert_memory_equal(want.all.v[0]->highest.v, got.all.v[0]->highest.v, sizeof(double));
            assert_int_equal(want.all.v[0]->lowest.bare, got.all.v[0]->lowest.bare);
            assert_false(oq_num_has(&got.all.v[0]->hist));
        }
        oq_ranges_release(&want);
        oq_ranges_release(&got);
    }
    print_message("%u of %u settled\n", settled, rounds);
    assert_true(settled > rounds * 9 / 10);
    onq_env_free(env);
}

/* Of values that come in any order and any portions, the tails hold the greatest and the least. */
static void tails_hold_the_ends(void **state) {
    (void)state;
    const onq_allocator *a = oq_alloc_default();
    onq_error err = ONQ_ERROR_INIT;
    oq_tails t = {.most = 50}, other = {.most = 50};
    oq_extent e = OQ_EXTENT_NONE;
    static float v[9000];
    for (int i = 0; i < 9000; i++)
        v[i] = (float)((i * 7919) % 9000); /* each number once */
    assert_ok(oq_tails_add(&t, a, v, 5000, &e, &err), err);
    assert_ok(oq_tails_add(&other, a, v + 5000, 4000, &e, &err), err);
    assert_ok(oq_tails_merge(&t, a, &other, &err), err);
    assert_true(e.lo == 0 && e.hi == 8999 && e.count == 9000);
    oq_hist h;
    assert_ok(oq_hist_uniform(&h, a, OQ_FLOAT, false, -0.5f, 8999.5f, 9000, &err), err);
    size_t first = 0, last = 0;
    assert_true(oq_tails_count(&t, &h, &first, &last) >= 100);
    assert_true(first >= 49 && first < 100 && last <= 8950 && last >= 8899);
    for (size_t i = 0; i < 9000; i++)
        if (i != first && i != last) /* the bars: thrown away in one of the two, or not */
            assert_int_equal(h.count[i], i < first || i > last);
    oq_hist_release(&h);
    oq_tails_release(&t, a);
    oq_tails_release(&other, a);
}

/* Nothing that is not finite, and no more than there is. */
static void few_values(void **state) {
    (void)state;
    const onq_allocator *a = oq_alloc_default();
    onq_error err = ONQ_ERROR_INIT;
    oq_tails t = {.most = 8, .abs = true};
    oq_extent e = OQ_EXTENT_NONE;
    const float v[] = {-3, NAN, INFINITY, 1, -INFINITY, FLT_MAX};
    assert_ok(oq_tails_add(&t, a, v, 6, &e, &err), err);
    assert_int_equal(t.upper.n, 3);
    assert_null(t.lower.v);
    oq_tails_release(&t, a);
}

static onq_code fill(const onq_allocator *a, void *ctx, onq_error *err) {
    (void)ctx;
    oq_tails t = {.most = 20}, other = {.most = 20};
    oq_extent e = OQ_EXTENT_NONE;
    onq_code rc = oq_tails_add(&other, a, values[0], 500, &e, err);
    if (rc == ONQ_OK)
        rc = oq_tails_merge(&t, a, &other, err);
    oq_tails_release(&t, a);
    oq_tails_release(&other, a);
    return rc;
}

static void no_memory(void **state) {
    (void)state;
    assert_true(flaky_sweep(fill, NULL) >= 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tails_give_percentiles),
        cmocka_unit_test(tails_hold_the_ends),
        cmocka_unit_test(few_values),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
