/*
 * test_calibrate.c — whole jobs over a fake engine: memory, shares, checkpoints and faults need no
 * runtime.
 */
#include "calibrate/calibrate.h"
#include "calibrate/method/method.h"

#include "build_model.h"
#include "calibrate/tensorrt_table.h"
#include "callback_source.h"
#include "fake_engine.h"
#include "flaky_alloc.h"
#include "flaky_io.h"
#include "no_threads.h"
#include "scratch.h"
#include "testing.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#define SAMPLES 9

static bool has_histogram(int m) {
    return oq_cal_class_of((oq_cal_method)m)->histogram;
}

/* x -> Neg -> Relu -> Add(x) -> y, with samples x[k][i] = some function of k and i. */
typedef struct rig {
    bm b;
    fake_engine engine;
    oq_source *source;
    oq_cal_options o;
    uint64_t fail_at; /* the sample that cannot be read; UINT64_MAX: none */
    uint64_t widest;  /* the sample with the widest range; those before it widen */
    oq_extent_memory *extents;
    bool slow; /* each sample takes long enough for a checkpoint after it */
} rig;

static onq_code give(void *ctx, uint64_t k, oq_arena *a, oq_datum *inputs, onq_error *err) {
    const rig *g = ctx;
    static const int64_t dims[] = {1, 3, 20};
    if (k == g->fail_at)
        return oq_fail(err, ONQ_E_READ, "sample %d went away", (int)k);
    float *v = oq_arena_array(a, 60, sizeof *v);
    if (v == NULL)
        return oq_fail_nomem(err);
    if (g->slow)
        usleep(25000);
    const float lower = (float)(k <= g->widest ? k : 0);
    for (uint64_t i = 0; i < 60; i++)
        v[i] = (float)((i * 7919 + k * 104729) % 1009) / 100.0f - 5.0f - lower;
    v[0] = 5.08f; /* the ends of what can come: only `lower` widens the range */
    v[1] = -5.0f - lower;
    inputs[0] = (oq_datum){.kind = OQ_DATUM_TENSOR,
                           .dtype = OQ_FLOAT,
                           .rank = 3,
                           .dims = dims,
                           .count = 60,
                           .data = v,
                           .size_bytes = 240};
    return ONQ_OK;
}

static void rig_begin(rig *g, const onq_allocator *a) {
    memset(g, 0, sizeof *g);
    g->fail_at = UINT64_MAX;
    g->widest = SAMPLES;
    bm_begin(&g->b, a, 13);
    if (g->b.m == NULL)
        return;
    bm_input(&g->b, "x", OQ_FLOAT, "N,3,M");
    bm_node(&g->b, "Neg", "n1", "x", "neg", "");
    bm_node(&g->b, "Relu", "n2", "neg", "relu", "");
    bm_node(&g->b, "Add", "n3", "relu x", "y", "");
    bm_output(&g->b, "y", OQ_FLOAT, "N,3,M");
    onq_env_set_threads(g->b.env, 1);
    fake_engine_init(&g->engine, g->b.env);
    oq_cal_defaults(&g->o, OQ_CAL_MINMAX);
}

static onq_code rig_source(rig *g, uint64_t share, uint64_t n_shares, oq_source **out,
                           onq_error *err) {
    const oq_source_options so = {.model = g->b.m, .share = share, .n_shares = n_shares};
    return callback_source_open(g->b.env, &so, give, g, SAMPLES, out, err);
}

static void rig_end(rig *g) {
    oq_source_close(g->source);
    assert_int_equal(g->engine.n_open, 0);
    bm_end(&g->b);
}

static onq_code rig_run(rig *g, const char *checkpoint, oq_ranges *out, onq_error *err) {
    const oq_cal_job job = {.model = g->b.m,
                            .engine = &g->engine.base,
                            .source = g->source,
                            .options = &g->o,
                            .checkpoint = checkpoint,
                            .extents = g->extents};
    return oq_calibrate(&job, out, err);
}

static int teardown(void **state) {
    flaky_io_disarm();
    return scratch_teardown(state);
}

static void same_ranges(const oq_ranges *a, const oq_ranges *b) {
    assert_int_equal(a->all.n, b->all.n);
    for (size_t i = 0; i < a->all.n; i++) {
        const oq_range *x = a->all.v[i], *y = oq_ranges_find(b, x->name);
        assert_non_null(y);
        assert_int_equal(x->lowest.n, y->lowest.n);
        assert_memory_equal(x->lowest.v, y->lowest.v, x->lowest.n * sizeof(double));
        assert_memory_equal(x->highest.v, y->highest.v, x->highest.n * sizeof(double));
        assert_int_equal(x->hist.n, y->hist.n);
        if (x->hist.i != NULL)
            assert_memory_equal(x->hist.i, y->hist.i, x->hist.n * sizeof(int64_t));
    }
}

static void minmax(void **state) {
    (void)state;
    rig g;
    oq_ranges r;
    onq_error err = ONQ_ERROR_INIT;
    double lo = 0, hi = 0;
    rig_begin(&g, NULL);
    assert_ok(rig_source(&g, 0, 0, &g.source, &err), err);
    assert_ok(rig_run(&g, NULL, &r, &err), err);
    assert_int_equal(r.all.n, 4); /* x neg relu y, in the order of the graph */
    assert_true(oq_str_is(r.all.v[0]->name, "x") && oq_str_is(r.all.v[3]->name, "y"));
    assert_true(oq_range_pair(oq_ranges_find(&r, OQ_S("relu")), &lo, &hi));
    double x_lo = 0, x_hi = 0;
    assert_true(oq_range_pair(oq_ranges_find(&r, OQ_S("x")), &x_lo, &x_hi));
    assert_true(lo == 0 && hi == -x_lo);
    assert_int_equal(g.engine.n_runs, SAMPLES);
    oq_ranges_release(&r);
    rig_end(&g);
}

/* Samples run again only when they were counted over a range that became wider later, and not all of
 * them could be kept; the result is the same. Four tensors of 240 bytes. */
static void kept_or_again(void **state) {
    (void)state;
    static const struct {
        uint64_t widest, kept; /* bytes */
        long runs;
    } ways[] = {{8, 960 * SAMPLES, SAMPLES},
                {8, 0, SAMPLES + 8},
                {8, 3000, SAMPLES + 8},
                {2, 960 * SAMPLES, SAMPLES},
                {2, 0, SAMPLES + 2},
                {2, 3000, SAMPLES + 2},
                {0, 0, SAMPLES},
                {8, 300, SAMPLES + 8}};
    for (int m = 0; m < OQ_CAL_METHODS; m++)
        for (size_t w = 0; has_histogram(m) && w < OQ_COUNT(ways); w++) {
            rig g;
            oq_ranges want, r;
            onq_error err = ONQ_ERROR_INIT;
            rig_begin(&g, NULL);
            oq_cal_defaults(&g.o, (oq_cal_method)m);
            g.o.symmetric = false; /* the least magnitude does not matter */
            g.widest = ways[w].widest;
            assert_ok(rig_source(&g, 0, 0, &g.source, &err), err);
            g.o.memory = 1 << 20;
            assert_ok(rig_run(&g, NULL, &want, &err), err);
            /* histograms take their part of it */
            const uint64_t bins = 4 * 12 * g.o.num_bins;
            g.o.memory = ways[w].kept > 0 ? (bins + ways[w].kept) * 8 / 7 + 1 : 0;
            g.engine.n_runs = 0;
            assert_ok(rig_run(&g, NULL, &r, &err), err);
            assert_int_equal(g.engine.n_runs, ways[w].runs);
            same_ranges(&want, &r);
            oq_ranges_release(&want);
            oq_ranges_release(&r);
            rig_end(&g);
        }
}

/* Any number of samples at once, whatever is kept: the same ranges. */
static void at_once(void **state) {
    (void)state;
    static const uint64_t memory[] = {0, 800000, 1 << 22};
    no_threads(false);
    for (int m = OQ_CAL_MINMAX; m < OQ_CAL_METHODS; m++)
        for (uint64_t widest = 0; widest < SAMPLES; widest += 4)
            for (size_t i = 0; i < OQ_COUNT(memory); i++) {
                rig g;
                oq_ranges want, r;
                onq_error err = ONQ_ERROR_INIT;
                rig_begin(&g, NULL);
                oq_cal_defaults(&g.o, (oq_cal_method)m);
                g.widest = widest;
                g.o.memory = memory[i];
                g.o.jobs = 1;
                assert_ok(rig_source(&g, 0, 0, &g.source, &err), err);
                assert_ok(rig_run(&g, NULL, &want, &err), err);
                for (g.o.jobs = 2; g.o.jobs <= 7; g.o.jobs += 5) {
                    assert_ok(rig_run(&g, NULL, &r, &err), err);
                    same_ranges(&want, &r);
                    oq_ranges_release(&r);
                }
                oq_ranges_release(&want);
                rig_end(&g);
            }
    no_threads(true);
}

/* With `fast` the tensor before a Relu is not observed and gets the Relu's range. */
static void fast(void **state) {
    (void)state;
    rig g;
    oq_ranges r;
    onq_error err = ONQ_ERROR_INIT;
    double a[2], b[2];
    rig_begin(&g, NULL);
    g.o.fast = true;
    assert_ok(rig_source(&g, 0, 0, &g.source, &err), err);
    assert_ok(rig_run(&g, NULL, &r, &err), err);
    assert_true(oq_range_pair(oq_ranges_find(&r, OQ_S("neg")), &a[0], &a[1]));
    assert_true(oq_range_pair(oq_ranges_find(&r, OQ_S("relu")), &b[0], &b[1]));
    assert_memory_equal(a, b, sizeof a);
    oq_ranges_release(&r);
    rig_end(&g);
}

static void selection(void **state) {
    (void)state;
    const oq_str relu = OQ_S("Relu"), none = OQ_S("Conv"), y = OQ_S("y");
    rig g;
    oq_ranges r;
    onq_error err = ONQ_ERROR_INIT;
    rig_begin(&g, NULL);
    assert_ok(rig_source(&g, 0, 0, &g.source, &err), err);
    g.o.op_types = &relu;
    g.o.n_op_types = 1;
    assert_ok(rig_run(&g, NULL, &r, &err), err);
    assert_int_equal(r.all.n, 2);
    oq_ranges_release(&r);
    g.o.op_types = &none;
    assert_fails(rig_run(&g, NULL, &r, &err), ONQ_E_UNSUPPORTED, err, "no float tensor");
    g.o.n_op_types = 0;
    g.o.only = &y;
    g.o.n_only = 1;
    assert_ok(rig_run(&g, NULL, &r, &err), err);
    assert_int_equal(r.all.n, 1);
    oq_ranges_release(&r);
    rig_end(&g);
}

static void bad_options(void **state) {
    (void)state;
    oq_cal_options o;
    onq_error err = ONQ_ERROR_INIT;
    oq_cal_defaults(&o, OQ_CAL_PERCENTILE);
    o.percentile = 101;
    assert_fails(oq_cal_check(&o, &err), ONQ_E_OPTION, err, "101");
    oq_cal_defaults(&o, OQ_CAL_DISTRIBUTION);
    o.num_bins = 511;
    assert_fails(oq_cal_check(&o, &err), ONQ_E_OPTION, err, "512");
    oq_cal_defaults(&o, OQ_CAL_ENTROPY);
    o.num_quantized_bins = 200;
    assert_fails(oq_cal_check(&o, &err), ONQ_E_OPTION, err, "200");
    oq_cal_defaults(&o, OQ_CAL_MINMAX);
    o.moving_average = true;
    o.averaging_constant = -1;
    assert_fails(oq_cal_check(&o, &err), ONQ_E_OPTION, err, "averaging");
    rig g;
    oq_ranges r;
    rig_begin(&g, NULL);
    assert_ok(rig_source(&g, 0, 0, &g.source, &err), err);
    g.o.stride = 4;
    assert_fails(rig_run(&g, NULL, &r, &err), ONQ_E_OPTION, err, "9 samples cannot be divided");
    rig_end(&g);
}

/* A run that fails at any sample of any pass goes on from its checkpoint and ends with the same
 * result. */
static void checkpoint_resumes(void **state) {
    scratch *s = *state;
    const char *path = scratch_path(s, "state");
    for (int m = OQ_CAL_MINMAX; m <= OQ_CAL_DISTRIBUTION; m++) {
        rig g;
        oq_ranges want, r;
        onq_error err = ONQ_ERROR_INIT;
        rig_begin(&g, NULL);
        oq_cal_defaults(&g.o, (oq_cal_method)m);
        assert_ok(rig_source(&g, 0, 0, &g.source, &err), err);
        assert_ok(rig_run(&g, NULL, &want, &err), err);
        const long runs = !has_histogram(m) ? SAMPLES : 2 * SAMPLES;
        for (long at = 1; at <= runs; at++) {
            unlink(path);
            g.engine.n_runs = 0;
            g.engine.fail_at_run = at;
            assert_int_not_equal(rig_run(&g, path, &r, &err), ONQ_OK);
            assert_non_null(strstr(err.text, "sample"));
            g.engine.fail_at_run = 0;
            assert_ok(rig_run(&g, path, &r, &err), err);
            same_ranges(&want, &r);
            oq_ranges_release(&r);
        }
        /* another job does not take it up */
        g.o.averaging_constant = 0.5;
        if (access(path, F_OK) == 0)
            assert_fails(rig_run(&g, path, &r, &err), ONQ_E_INVALID, err, "another job");
        oq_ranges_release(&want);
        rig_end(&g);
        unlink(path);
    }
}

/* Samples before the checkpoint are not run again in its pass, but are counted in the second. */
static void checkpoint_in_either_pass(void **state) {
    scratch *s = *state;
    const char *path = scratch_path(s, "state");
    static const long fail_at[] = {5, SAMPLES + 5};
    rig g;
    oq_ranges want, r;
    onq_error err = ONQ_ERROR_INIT;
    rig_begin(&g, NULL);
    oq_cal_defaults(&g.o, OQ_CAL_ENTROPY);
    assert_ok(rig_source(&g, 0, 0, &g.source, &err), err);
    assert_ok(rig_run(&g, NULL, &want, &err), err);
    g.slow = true;
    for (size_t i = 0; i < OQ_COUNT(fail_at); i++) {
        unlink(path);
        g.engine.n_runs = 0;
        g.engine.fail_at_run = fail_at[i];
        assert_int_not_equal(rig_run(&g, path, &r, &err), ONQ_OK);
        assert_int_equal(access(path, F_OK), 0);
        g.engine.fail_at_run = 0;
        assert_ok(rig_run(&g, path, &r, &err), err);
        assert_true(g.engine.n_runs < fail_at[i] + 2 * SAMPLES);
        same_ranges(&want, &r);
        oq_ranges_release(&r);
    }
    oq_ranges_release(&want);
    rig_end(&g);
}

static void faults(void **state) {
    scratch *s = *state;
    rig g;
    oq_ranges r;
    onq_error err = ONQ_ERROR_INIT;
    rig_begin(&g, NULL);
    assert_ok(rig_source(&g, 0, 0, &g.source, &err), err);
    g.fail_at = 4;
    assert_fails(rig_run(&g, NULL, &r, &err), ONQ_E_READ, err, "sample 4 went away");
    g.fail_at = UINT64_MAX;
    g.engine.fail_at_run = g.engine.n_runs + 3;
    assert_int_not_equal(rig_run(&g, NULL, &r, &err), ONQ_OK);
    assert_non_null(strstr(err.text, "sample"));
    /* a checkpoint that cannot be written */
    assert_ok(rig_run(&g, NULL, &r, &err), err);
    oq_ranges_release(&r);
    const char *no = scratch_path(s, "no/such/folder/state");
    const oq_cal_part part = {.n_shares = 1, .total = SAMPLES};
    const oq_cal_job job = {
        .model = g.b.m, .engine = &g.engine.base, .source = g.source, .options = &g.o};
    assert_fails(oq_calibrate_part(&job, &part, no, &err), ONQ_E_WRITE, err, "no/such/folder");
    rig_end(&g);
}

static void parts(void **state) {
    scratch *s = *state;
    for (int m = OQ_CAL_MINMAX; m <= OQ_CAL_DISTRIBUTION; m++) {
        rig g;
        oq_ranges want, r;
        onq_error err = ONQ_ERROR_INIT;
        rig_begin(&g, NULL);
        oq_cal_defaults(&g.o, (oq_cal_method)m);
        g.o.fast = true; /* aliases travel too */
        assert_ok(rig_source(&g, 0, 0, &g.source, &err), err);
        assert_ok(rig_run(&g, NULL, &want, &err), err);
        const char *paths[2] = {scratch_path(s, "p0"), scratch_path(s, "p1")};
        const char *ranges[2] = {scratch_path(s, "r0"), scratch_path(s, "r1")};
        for (int round = 0; round < (!has_histogram(m) ? 1 : 2); round++) {
            for (int only = round; only >= 0; only--)
                for (uint64_t k = 0; k < 2; k++) {
                    oq_source *own = NULL;
                    assert_ok(rig_source(&g, k, 2, &own, &err), err);
                    const oq_cal_job job = {
                        .model = g.b.m, .engine = &g.engine.base, .source = own, .options = &g.o};
                    const oq_cal_part part = {.share = k,
                                              .n_shares = 2,
                                              .total = SAMPLES,
                                              .all = g.source,
                                              .range_only = only == 1,
                                              .ranges = ranges,
                                              .n_ranges = round == 1 && only == 0 ? 2 : 0};
                    assert_ok(
                        oq_calibrate_part(&job, &part, only == 1 ? ranges[k] : paths[k], &err),
                        err);
                    oq_source_close(own);
                }
            assert_ok(oq_calibrate_join(g.b.env, paths, 2, &r, &err), err);
            same_ranges(&want, &r);
            oq_ranges_release(&r);
        }
        oq_ranges_release(&want);
        rig_end(&g);
    }
}

/* What some jobs saw of the samples serves others of the same and of other samples: to the bit, and
 * nothing runs. */
static void remembered(void **state) {
    (void)state;
    for (int symmetric = 0; symmetric < 2; symmetric++) {
        rig g;
        oq_extent_memory memory;
        onq_error err = ONQ_ERROR_INIT;
        rig_begin(&g, NULL);
        onq_env_set_threads(g.b.env, symmetric == 1 ? 4 : 1);
        g.o.symmetric = symmetric == 1;
        oq_extent_memory_init(&memory, &g.b.env->alloc);
        /* Thirds; the same again; all; what nobody saw. */
        const uint64_t shares[][2] = {{0, 3}, {1, 3}, {0, 0}, {2, 3}, {0, 0}, {1, 2}, {0, 2}};
        const bool runs[] = {true, true, true, false, false, false, false};
        for (size_t i = 0; i < OQ_COUNT(shares); i++) {
            oq_source *own = NULL;
            oq_ranges want, got;
            assert_ok(rig_source(&g, shares[i][0], shares[i][1], &own, &err), err);
            oq_cal_job job = {
                .model = g.b.m, .engine = &g.engine.base, .source = own, .options = &g.o};
            assert_ok(oq_calibrate(&job, &want, &err), err);
            job.extents = &memory;
            g.engine.n_runs = 0;
            assert_ok(oq_calibrate(&job, &got, &err), err);
            assert_int_equal(g.engine.n_runs > 0, runs[i]);
            same_ranges(&want, &got);
            oq_ranges_release(&want);
            oq_ranges_release(&got);
            oq_source_close(own);
        }
        /* Fewer tensors are among those that were seen; other ways to find ranges ask for more. */
        oq_source *own = NULL;
        oq_ranges got;
        const oq_str only[] = {OQ_S("y")};
        oq_cal_options few = g.o, others[] = {g.o, g.o, g.o};
        few.only = only;
        few.n_only = 1;
        others[0].moving_average = true;
        others[1].per_channel = true;
        oq_cal_defaults(&others[2], OQ_CAL_PERCENTILE);
        assert_ok(rig_source(&g, 0, 0, &own, &err), err);
        oq_cal_job job = {.model = g.b.m,
                          .engine = &g.engine.base,
                          .source = own,
                          .options = &few,
                          .extents = &memory};
        g.engine.n_runs = 0;
        assert_ok(oq_calibrate(&job, &got, &err), err);
        assert_int_equal(g.engine.n_runs, 0);
        assert_int_equal(got.all.n, 1);
        oq_ranges_release(&got);
        for (size_t i = 0; i < OQ_COUNT(others); i++) {
            job.options = &others[i];
            g.engine.n_runs = 0;
            assert_ok(oq_calibrate(&job, &got, &err), err);
            assert_true(g.engine.n_runs > 0);
            oq_ranges_release(&got);
        }
        oq_source_close(own);
        oq_extent_memory_release(&memory);
        rig_end(&g);
    }
}

static onq_code whole_job(const onq_allocator *a, void *ctx, onq_error *err) {
    const int *m = ctx;
    rig g;
    oq_ranges r = {0};
    rig_begin(&g, a);
    onq_code rc = g.b.failed || g.b.m == NULL ? oq_fail_nomem(err) : ONQ_OK;
    if (rc == ONQ_OK) {
        oq_cal_defaults(&g.o, (oq_cal_method)*m);
        g.o.memory = *m % 2 == 0 ? 1 << 20 : 0;
        rc = rig_source(&g, 0, 0, &g.source, err);
    }
    oq_extent_memory memory;
    oq_extent_memory_init(&memory, a);
    g.extents = &memory;
    if (rc == ONQ_OK)
        rc = rig_run(&g, NULL, &r, err); /* seen */
    oq_ranges_release(&r);
    if (rc == ONQ_OK)
        rc = rig_run(&g, NULL, &r, err); /* recalled, where the method may */
    oq_extent_memory_release(&memory);
    for (size_t i = 0; rc == ONQ_OK && i < r.all.n; i++) {
        const oq_range *x = r.all.v[i];
        flaky_give(a, x->name.p, x->name.n);
        flaky_give(a, x->lowest.v, x->lowest.n * sizeof(double));
        flaky_give(a, x->highest.v, x->highest.n * sizeof(double));
        flaky_give(a, x->hist.i, x->hist.i != NULL ? x->hist.n * sizeof(int64_t) : 0);
    }
    oq_ranges_release(&r);
    rig_end(&g);
    return rc;
}

static void no_memory(void **state) {
    (void)state;
    for (int m = OQ_CAL_MINMAX; m <= OQ_CAL_DISTRIBUTION; m++)
        assert_true(flaky_sweep(whole_job, &m) > 10);
}

static void table_refuses_channels(void **state) {
    scratch *s = *state;
    rig g;
    oq_ranges r;
    oq_out outs[OQ_TABLE_FILES];
    onq_error err = ONQ_ERROR_INIT;
    rig_begin(&g, NULL);
    g.o.per_channel = true;
    assert_ok(rig_source(&g, 0, 0, &g.source, &err), err);
    assert_ok(rig_run(&g, NULL, &r, &err), err);
    assert_int_equal(r.all.v[0]->lowest.n, 3);
    assert_fails(oq_table_write(&r, g.b.env, scratch_path(s, "table"), outs, &err),
                 ONQ_E_UNSUPPORTED, err, "per_channel");
    assert_int_equal(entry_count(s->dir), 0);
    oq_ranges_release(&r);
    rig_end(&g);
}

int main(void) {
    no_threads(true); /* allocations in one order */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(minmax),
        cmocka_unit_test(kept_or_again),
        cmocka_unit_test(at_once),
        cmocka_unit_test(fast),
        cmocka_unit_test(selection),
        cmocka_unit_test(bad_options),
        cmocka_unit_test_setup_teardown(checkpoint_resumes, scratch_setup, teardown),
        cmocka_unit_test_setup_teardown(checkpoint_in_either_pass, scratch_setup, teardown),
        cmocka_unit_test_setup_teardown(faults, scratch_setup, teardown),
        cmocka_unit_test_setup_teardown(parts, scratch_setup, teardown),
        cmocka_unit_test(remembered),
        cmocka_unit_test(no_memory),
        cmocka_unit_test_setup_teardown(table_refuses_channels, scratch_setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
