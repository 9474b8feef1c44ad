/*
 * test_partial.c — collectors: shares in any order join to the whole, parts survive a file, damaged
 * parts are refused.
 */
#include "calibrate/partial.h"

#include "calibrate/method/method.h"
#include "flaky_alloc.h"
#include "scratch.h"
#include "testing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#define SAMPLES 12
#define VALUES  500

static onq_env *env;
static float data[SAMPLES][2][VALUES];

static int setup(void **state) {
    static scratch s;
    scratch_init(&s);
    env = onq_env_new(NULL);
    srand(5);
    for (size_t k = 0; k < SAMPLES; k++)
        for (size_t t = 0; t < 2; t++)
            for (size_t i = 0; i < VALUES; i++)
                data[k][t][i] =
                    (float)(rand() - RAND_MAX / 2) / (float)RAND_MAX * (float)(k % 5 + 1);
    *state = &s;
    return 0;
}

static int teardown(void **state) {
    onq_env_free(env);
    scratch_remove(*state);
    return 0;
}

static const oq_str names[] = {{"first", 5}, {"second", 6}, {"alias", 5}};

static void begin(oq_collector *c, const oq_cal_options *o) {
    onq_error err = ONQ_ERROR_INIT;
    assert_ok(oq_collect_init(c, env, o, names, 3, &err), err);
    c->v[0].rank = c->v[1].rank = 3;
    c->v[2].alias = 1;
}

static oq_datum datum(size_t k, size_t t) {
    static const int64_t dims[] = {1, 5, 100};
    return (oq_datum){.kind = OQ_DATUM_TENSOR,
                      .dtype = OQ_FLOAT,
                      .rank = 3,
                      .dims = dims,
                      .count = VALUES,
                      .data = data[k][t],
                      .size_bytes = sizeof data[k][t]};
}

static void see(oq_collector *c, size_t k) {
    onq_error err = ONQ_ERROR_INIT;
    c->sample = k;
    for (size_t t = 0; t < 2; t++) {
        const oq_datum d = datum(k, t);
        assert_ok(oq_collect_seen(c, t, &d, &err), err);
    }
}

static void layout(oq_collector *c) {
    onq_error err = ONQ_ERROR_INIT;
    for (size_t t = 0; t < 2; t++)
        assert_ok(oq_collect_layout(c, t, &err), err);
    c->pass = OQ_PASS_COUNT;
}

/* The result as the text of the cache. */
static oq_str result(oq_collector *c, scratch *s, oq_arena *a) {
    onq_error err = ONQ_ERROR_INIT;
    oq_ranges r;
    oq_str text;
    const char *path = scratch_path(s, "result.json");
    if (oq_cal_class_of(c->options.method)->histogram)
        assert_ok(oq_collect_end_chunk(c, &err), err);
    assert_ok(oq_collect_finish(c, &r, &err), err);
    assert_non_null(oq_ranges_find(&r, OQ_S("alias")));
    assert_ok(oq_ranges_save(&r, env, path, &err), err);
    oq_ranges_release(&r);
    assert_ok(oq_file_read_all(a, path, 1 << 24, &text, &err), err);
    return text;
}

static oq_cal_options option_set(int i) {
    oq_cal_options o;
    static const oq_cal_method methods[] = {
        OQ_CAL_MINMAX,     OQ_CAL_MINMAX,     OQ_CAL_MINMAX,      OQ_CAL_ENTROPY,
        OQ_CAL_PERCENTILE, OQ_CAL_PERCENTILE, OQ_CAL_DISTRIBUTION};
    oq_cal_defaults(&o, methods[i]);
    o.moving_average = i == 1;
    o.per_channel = i == 2;
    if (i == 5)
        o.symmetric = false;
    return o;
}

/* Runs the share k % n == share, as a shard of the program does. */
static void run_share(oq_collector *c, const oq_cal_options *o, size_t share, size_t n) {
    begin(c, o);
    const bool histogram = oq_cal_class_of(o->method)->histogram;
    for (size_t k = 0; k < SAMPLES; k++)
        if (histogram || k % n == share)
            see(c, k);
    if (!histogram)
        return;
    layout(c);
    for (size_t k = 0; k < SAMPLES; k++)
        if (k % n == share)
            see(c, k);
}

static void shares_join(void **state) {
    scratch *s = *state;
    onq_error err = ONQ_ERROR_INIT;
    for (int i = 0; i < 7; i++) {
        oq_arena a;
        oq_arena_init(&a, oq_alloc_default());
        const oq_cal_options o = option_set(i);
        oq_collector whole;
        run_share(&whole, &o, 0, 1);
        const oq_str want = result(&whole, s, &a);
        oq_collect_release(&whole);
        /* 5 shares, one of them empty when there are more shares than samples; joined in any
         * order */
        for (size_t n = 2; n <= 13; n += 11) {
            const char *paths[13];
            for (size_t k = 0; k < n; k++) {
                oq_collector c;
                char name[16];
                snprintf(name, sizeof name, "part%zu", k);
                const size_t share = (k * 5 + 3) % n;
                run_share(&c, &o, share, n);
                const oq_partial_meta m = {
                    .stage = OQ_STAGE_DONE, .share = share, .n_shares = n, .total = SAMPLES};
                assert_ok(oq_partial_save(&c, &m, scratch_path(s, name), &err), err);
                paths[k] = scratch_path(s, name);
                oq_collect_release(&c);
            }
            oq_collector joined;
            oq_partial_meta m;
            assert_ok(oq_partial_join(&joined, &m, env, paths, n, OQ_STAGE_DONE, &err), err);
            const oq_str got = result(&joined, s, &a);
            oq_collect_release(&joined);
            assert_int_equal(want.n, got.n);
            assert_memory_equal(want.p, got.p, want.n);
        }
        oq_arena_release(&a);
    }
}

/* Saved in the middle and taken up again: a checkpoint. */
static void goes_on(void **state) {
    scratch *s = *state;
    onq_error err = ONQ_ERROR_INIT;
    for (int i = 0; i < 7; i++) {
        oq_arena a;
        oq_arena_init(&a, oq_alloc_default());
        const oq_cal_options o = option_set(i);
        const bool histogram = oq_cal_class_of(o.method)->histogram;
        const char *path = scratch_path(s, "state");
        oq_collector whole, c;
        run_share(&whole, &o, 0, 1);
        const oq_str want = result(&whole, s, &a);
        oq_collect_release(&whole);
        begin(&c, &o);
        for (int pass = 0; pass <= histogram; pass++) {
            for (size_t k = 0; k < SAMPLES; k++) {
                see(&c, k);
                if (k % 3 != 1)
                    continue;
                oq_partial_meta m = {.stage = pass == 0 ? OQ_STAGE_EXTENT : OQ_STAGE_COUNT,
                                     .n_shares = 1,
                                     .total = SAMPLES,
                                     .next = k + 1};
                assert_ok(oq_partial_save(&c, &m, path, &err), err);
                oq_collect_release(&c);
                assert_ok(oq_partial_load(&c, &m, env, path, &err), err);
                assert_int_equal(m.next, k + 1);
            }
            if (histogram && pass == 0)
                layout(&c);
        }
        const oq_str got = result(&c, s, &a);
        oq_collect_release(&c);
        assert_int_equal(want.n, got.n);
        assert_memory_equal(want.p, got.p, want.n);
        oq_arena_release(&a);
    }
}

static const char *save_share(scratch *s, const char *name, const oq_cal_options *o,
                              oq_partial_meta m) {
    onq_error err = ONQ_ERROR_INIT;
    oq_collector c;
    run_share(&c, o, (size_t)m.share, (size_t)m.n_shares);
    assert_ok(oq_partial_save(&c, &m, scratch_path(s, name), &err), err);
    oq_collect_release(&c);
    return scratch_path(s, name);
}

static void do_not_join(void **state) {
    scratch *s = *state;
    const oq_cal_options o = option_set(0), other = option_set(1);
    const oq_partial_meta one = {.stage = OQ_STAGE_DONE, .n_shares = 2, .total = SAMPLES};
    oq_partial_meta two = one, of_three = one, half = one, model = one, total = one;
    two.share = model.share = total.share = 1;
    of_three.n_shares = 3;
    half.stage = OQ_STAGE_EXTENT;
    model.model_crc = 7;
    total.total = 99;
    const char *a = save_share(s, "a", &o, one);
    const struct {
        const char *second, *says;
    } bad[] = {
        {save_share(s, "again", &o, one), "shard 0 of 2 was given twice"},
        {save_share(s, "other", &other, two), "other options"},
        {save_share(s, "three", &o, of_three), "one of 3 shards"},
        {save_share(s, "half", &o, half), "a checkpoint of an unfinished run"},
        {save_share(s, "model", &o, model), "another model"},
        {save_share(s, "total", &o, total), "99 samples"},
        {scratch_path(s, "missing"), "missing"},
        {scratch_file(s, "text", "hello, world", 12), "not a calibration part"},
    };
    for (size_t i = 0; i < OQ_COUNT(bad); i++) {
        onq_error err = ONQ_ERROR_INIT;
        oq_collector c;
        oq_partial_meta m;
        const char *paths[] = {a, bad[i].second};
        const onq_code rc = oq_partial_join(&c, &m, env, paths, 2, OQ_STAGE_DONE, &err);
        assert_int_not_equal(rc, ONQ_OK);
        if (strstr(err.text, bad[i].says) == NULL)
            fail_msg("'%s' does not say '%s'", err.text, bad[i].says);
        assert_non_null(strstr(err.text, bad[i].second));
    }
    onq_error err = ONQ_ERROR_INIT;
    oq_collector c;
    oq_partial_meta m;
    assert_fails(oq_partial_join(&c, &m, env, &a, 1, OQ_STAGE_DONE, &err), ONQ_E_INVALID, err,
                 "1 of its 2 shards was given; add the others");
}

/* Every prefix and every flipped byte is refused; with the checksum made right again it may be
 * read, but never past its end (the sanitizers watch). */
static void damaged(void **state) {
    scratch *s = *state;
    oq_cal_options o = option_set(3);
    o.num_bins = 128;
    for (int i = 0; i < 2; i++) {
        const oq_cal_options set = i == 0 ? option_set(2) : o;
        const oq_partial_meta one = {.stage = OQ_STAGE_DONE, .n_shares = 1, .total = SAMPLES};
        const char *path = save_share(s, "whole", &set, one);
        oq_arena a;
        oq_arena_init(&a, oq_alloc_default());
        onq_error err = ONQ_ERROR_INIT;
        oq_str text;
        assert_ok(oq_file_read_all(&a, path, 1 << 24, &text, &err), err);
        uint8_t *p = oq_alloc(oq_alloc_default(), text.n);
        oq_collector c;
        oq_partial_meta m;
        for (size_t n = 0; n < text.n; n += 1 + n / 50) {
            memcpy(p, text.p, n);
            assert_int_not_equal(oq_partial_parse(&c, &m, env, p, n, &err), ONQ_OK);
            if (n < 12)
                continue;
            const uint32_t crc = (uint32_t)crc32_z(0, p + 12, n - 12);
            memcpy(p + 8, &crc, sizeof crc);
            assert_int_equal(oq_partial_parse(&c, &m, env, p, n, &err), ONQ_E_MALFORMED);
        }
        for (size_t at = 0; at < text.n; at++) {
            memcpy(p, text.p, text.n);
            p[at] ^= (uint8_t)(1 + at % 255);
            assert_int_equal(oq_partial_parse(&c, &m, env, p, text.n, &err), ONQ_E_MALFORMED);
            if (at < 12)
                continue;
            const uint32_t crc = (uint32_t)crc32_z(0, p + 12, text.n - 12);
            memcpy(p + 8, &crc, sizeof crc);
            if (oq_partial_parse(&c, &m, env, p, text.n, &err) == ONQ_OK)
                oq_collect_release(&c);
        }
        oq_free(oq_alloc_default(), p, text.n);
        oq_arena_release(&a);
    }
}

typedef struct sweep {
    const char *paths[2];
} sweep;

static onq_code join_body(const onq_allocator *a, void *ctx, onq_error *err) {
    sweep *w = ctx;
    onq_env *e = onq_env_new(a);
    if (e == NULL)
        return oq_fail_nomem(err);
    oq_ranges r = {0};
    onq_env_set_threads(e, 1);
    const onq_code rc = oq_calibrate_join(e, w->paths, 2, &r, err);
    oq_ranges_release(&r);
    onq_env_free(e);
    return rc;
}

static void no_memory(void **state) {
    scratch *s = *state;
    for (int i = 0; i < 7; i += 3) {
        const oq_cal_options o = option_set(i);
        const oq_partial_meta one = {.stage = OQ_STAGE_DONE, .n_shares = 2, .total = SAMPLES};
        oq_partial_meta two = one;
        two.share = 1;
        sweep w = {{save_share(s, "one", &o, one), save_share(s, "two", &o, two)}};
        assert_true(flaky_sweep(join_body, &w) > 5);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(shares_join, setup, teardown),
        cmocka_unit_test_setup_teardown(goes_on, setup, teardown),
        cmocka_unit_test_setup_teardown(do_not_join, setup, teardown),
        cmocka_unit_test_setup_teardown(damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(no_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
