/*
 * test_tune.c — the search: what is tried and in which order, what is taken, what becomes of a
 * recipe that fails, time that ends, and going on from a file.
 *
 * Models are made by the test. That of a recipe is the float model with noise on its weights, as much
 * as `quality` says for its options; so the order of the candidates' accuracy is known.
 */
#include "tune/tune.h"

#include "build_model.h"
#include "fake_engine.h"
#include "scratch.h"
#include "testing.h"
#include "tune/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MOST_CALLS 200

typedef struct rig {
    oq_tune t;
    scratch *files;
    bm b; /* the float model */
    bool large;
    oq_arena arena;
    fake_engine engine;
    oq_trials choose;
    oq_link links[1];
    onq_error err;
    char *made[MOST_CALLS]; /* the text of each recipe that was made */
    size_t n_made, n_dropped;
    const char *fails; /* recipes with this in their text cannot be made */
    onq_code failure;
    size_t stop_after; /* calls, then time is over; 0: never */
} rig;

/* x through three products: [1,8], or so large that integers pay, which takes longer. */
static void fill(bm *b, bool large, double noise) {
    const int side = large ? 128 : 8;
    const char *const shape = large ? "16,128" : "1,8";
    static float w[128 * 128];
    bm_begin(b, NULL, 13);
    bm_input(b, "x", OQ_FLOAT, shape);
    for (int i = 0; i < 3; i++) {
        char name[8], node[8], in[16], out[8];
        for (int k = 0; k < side * side; k++)
            w[k] = (float)(sin(k * 1.3 + i) + noise * cos(k * 2.9 + i));
        snprintf(name, sizeof name, "w%d", i);
        snprintf(node, sizeof node, "mm%d", i);
        snprintf(in, sizeof in, i == 0 ? "x w%d" : "t%d w%d", i == 0 ? 0 : i - 1, i);
        snprintf(out, sizeof out, i == 2 ? "y" : "t%d", i);
        bm_f32(b, name, large ? "128,128" : "8,8", w);
        bm_node(b, "MatMul", node, in, out, "");
    }
    bm_output(b, "y", OQ_FLOAT, shape);
}

static size_t count(const char *text, const char *part) {
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, part)) != NULL; p++)
        n++;
    return n;
}

/* How much noise a recipe leaves: its options lower it, some more than others. */
static double quality(const char *text) {
    static const struct {
        const char *part;
        double factor;
    } rows[] = {{"static", 0.3},
                {"dynamic", 0.05},
                {"bits 4", 0.6},
                {"bits 8", 0.01},
                {"preprocess", 0.001},
                {"op_set noout", 0.6},
                {"op_set pays", 0.4},
                {"outlier_channels", 0.7},
                {"double_activations", 0.3},
                {"equalize", 0.9},
                {"calibration_method mse", 0.8},
                {"learned_rounding", 0.5},
                {"bias_correction", 0.9}};
    double noise = 1;
    for (size_t i = 0; i < OQ_COUNT(rows); i++)
        if (strstr(text, rows[i].part) != NULL)
            noise *= rows[i].factor;
    /* The noise of each unit in integers, whatever else there is. */
    if (strstr(text, "node_methods") != NULL)
        noise = 0.02 * (double)(count(text, "\":\"") - count(text, "\":\"float"));
    return noise;
}

static onq_code make(void *ctx, const oq_recipe *recipe, const char **path, uint64_t *size,
                     onq_error *err) {
    rig *r = ctx;
    oq_buf text;
    char name[32];
    oq_buf_init(&text, oq_alloc_default());
    oq_recipe_text(recipe, "IN", "OUT", &text);
    oq_buf_addc(&text, '\0');
    assert_true(!text.failed && r->n_made < MOST_CALLS);
    r->made[r->n_made++] = strdup(text.p);
    oq_buf_release(&text);
    const char *said = r->made[r->n_made - 1];
    if (r->fails != NULL && strstr(said, r->fails) != NULL)
        return oq_fail(err, r->failure, "there is no kernel for it");
    bm b;
    fill(&b, r->large, quality(said));
    snprintf(name, sizeof name, "made%zu.onnx", r->n_made);
    *path = scratch_path(r->files, name);
    *size = (uint64_t)(1e6 * pow(0.8, (double)r->n_made)); /* later ones are smaller */
    assert_ok(oq_model_save(b.m, *path, NULL, err), *err);
    bm_end(&b);
    if (r->stop_after == r->n_made)
        r->t.deadline = oq_seconds() - 1;
    return ONQ_OK;
}

static void drop(void *ctx, const char *path) {
    rig *r = ctx;
    assert_int_equal(remove(path), 0);
    r->n_dropped++;
}

static void rig_begin_with(rig *r, scratch *files, bool large) {
    oq_source *source = NULL;
    oq_session *truth = NULL;
    *r = (rig){.files = files, .large = large, .err = ONQ_ERROR_INIT, .failure = ONQ_E_UNSUPPORTED};
    onq_error *err = &r->err;
    fill(&r->b, large, 0);
    oq_arena_init(&r->arena, oq_alloc_default());
    fake_engine_init(&r->engine, r->b.env);
    const char *path = scratch_path(files, "float.onnx");
    assert_ok(oq_model_save(r->b.m, path, NULL, err), *err);
    oq_trials_init(&r->choose, oq_alloc_default(), r->links);
    const oq_source_options so = {.spec = large ? "random:1:1" : "random:4:1", .model = r->b.m};
    const oq_session_options o = {.model = r->b.m};
    assert_ok(oq_source_open(r->b.env, &so, &source, err), *err);
    assert_ok(oq_session_open(&r->engine.base, &o, &truth, err), *err);
    assert_ok(oq_trials_fill(&r->choose, source, truth, 1 << 20, err), *err);
    oq_session_close(truth);
    oq_source_close(source);
    r->t = (oq_tune){.env = r->b.env,
                     .arena = &r->arena,
                     .engine = &r->engine.base,
                     .n_threads = 1,
                     .choose = &r->choose,
                     .prefer = OQ_PREFER_ACCURACY,
                     .allow_static = true,
                     .allow_dynamic = true,
                     .max_float_units = SIZE_MAX,
                     .model = r->b.m,
                     .float_path = path,
                     .float_size = 2000,
                     .make = make,
                     .drop = drop,
                     .ctx = r};
    r->t.targets.float_accuracy = NAN;
}

static void rig_begin(rig *r, scratch *files) {
    rig_begin_with(r, files, false);
}

static void rig_end(rig *r) {
    oq_state_close(&r->t.state);
    for (size_t i = 0; i < r->n_made; i++)
        free(r->made[i]);
    oq_trials_release(&r->choose);
    oq_arena_release(&r->arena);
    assert_int_equal(r->engine.n_open, 0);
    bm_end(&r->b);
}

static void want_sqnr(rig *r, double db) {
    const oq_target target = {OQ_METRIC_SQNR, db};
    assert_true(OQ_PUSH(&r->arena, &r->t.targets.all, target));
}

static void search(rig *r) {
    assert_ok(oq_tune_search(&r->t, &r->err), r->err);
}

/* The labels of what was tried, in their order, a line each. */
static void assert_tried(const rig *r, const char *const *labels) {
    size_t i = 0;
    for (; labels[i] != NULL; i++) {
        if (i >= r->t.all.n)
            fail_msg("'%s' was not tried", labels[i]);
        assert_string_equal(r->t.all.v[i]->label, labels[i]);
    }
    if (i < r->t.all.n)
        fail_msg("'%s' was tried", r->t.all.v[i]->label);
}

static const oq_candidate *find(const rig *r, const char *label) {
    for (size_t i = 0; i < r->t.all.n; i++)
        if (strcmp(r->t.all.v[i]->label, label) == 0)
            return r->t.all.v[i];
    fail_msg("'%s' was not tried", label);
    return NULL;
}

/* ---- whole models ---- */

/* Whole models first, then methods on the best of them, then corrections, each once. */
static void order(void **state) {
    rig r;
    rig_begin(&r, *state);
    static const oq_recipe_option samples = {"data", "some"};
    r.t.samples = &samples;
    r.t.n_samples = 1;
    r.t.allow_qoperator = r.t.allow_nbits = r.t.allow_float16 = true;
    r.t.inner = true;
    search(&r);
    static const char *const labels[] = {
        "all operators",
        "linear operators",
        "where integers pay",
        "dynamic",
        "integer operators",
        "weights of 4 bits",
        "weights of 8 bits",
        "weights in float16",
        "float16",
        /* the two most accurate of `static`, so far */
        "where integers pay, mse ranges",
        "linear operators, mse ranges",
        "where integers pay, mse ranges, bias correction",
        "where integers pay, bias correction",
        NULL,
    };
    assert_tried(&r, labels);
    assert_int_equal(r.t.n_tried, r.n_made);
    assert_string_equal(r.made[0],
                        "onq static -i IN -o OUT --per_channel --enable_subgraph --data some");
    assert_string_equal(r.made[3], "onq dynamic -i IN -o OUT --per_channel --enable_subgraph");
    assert_string_equal(r.made[5], "onq nbits -i IN -o OUT --bits 4 --accuracy_level 4");
    /* More noise, fewer decibels: every score is that of its own model. */
    assert_true(find(&r, "weights of 8 bits")->score.sqnr > find(&r, "dynamic")->score.sqnr);
    assert_true(find(&r, "dynamic")->score.sqnr > find(&r, "all operators")->score.sqnr);
    assert_true(find(&r, "all operators")->score.sqnr > find(&r, "weights of 4 bits")->score.sqnr);
    assert_int_equal(find(&r, "dynamic")->score.samples, 4);
    rig_end(&r);
}

/* Where integers pay for products, methods for them are tried on what quantizes just these; learned
 * rounding goes with double activations. */
static void methods(void **state) {
    rig r;
    rig_begin_with(&r, *state, true);
    r.t.allow_dynamic = false;
    r.fails = "node_methods"; /* whole models only */
    search(&r);
    assert_true(r.t.has_matmul && !r.t.has_conv && !r.t.mostly_conv);
    static const char *const labels[] = {
        "all operators",
        "linear operators",
        "where integers pay",
        "where integers pay, outliers float",
        "where integers pay, double activations",
        "where integers pay, equalised",
        "where integers pay, double activations, mse ranges",
        "where integers pay, outliers float, mse ranges",
        "where integers pay, double activations, learned rounding",
        "where integers pay, double activations, mse ranges, learned rounding",
        "where integers pay, double activations, mse ranges, learned rounding, bias correction",
        "where integers pay, double activations, learned rounding, bias correction",
        NULL,
    };
    assert_tried(&r, labels);
    rig_end(&r);
}

static void what_is_taken(void **state) {
    rig r;
    bool reached = false;
    rig_begin(&r, *state);
    r.t.allow_nbits = true;
    search(&r);
    const oq_candidate *best = oq_choose(&r.t.all, &r.t.targets, OQ_PREFER_ACCURACY, &reached);
    assert_string_equal(best->label, "weights of 8 bits");
    assert_true(reached); /* there is no target */
    /* The smallest that reaches the target; later ones are smaller here. */
    const double least = find(&r, "dynamic")->score.sqnr;
    want_sqnr(&r, least - 0.01);
    best = oq_choose(&r.t.all, &r.t.targets, OQ_PREFER_SIZE, &reached);
    assert_true(reached && best->score.sqnr >= least - 0.01);
    for (size_t i = 0; i < r.t.all.n; i++)
        assert_true(r.t.all.v[i]->score.sqnr < least - 0.01 || r.t.all.v[i]->size >= best->size);
    /* None does: the most accurate, and it is said. */
    want_sqnr(&r, 500);
    best = oq_choose(&r.t.all, &r.t.targets, OQ_PREFER_SIZE, &reached);
    assert_false(reached);
    assert_string_equal(best->label, "weights of 8 bits");
    rig_end(&r);
}

/* ---- what fails ---- */

static void a_failure_keeps_its_reason(void **state) {
    rig r;
    rig_begin(&r, *state);
    r.fails = "dynamic";
    search(&r);
    const oq_candidate *c = find(&r, "dynamic");
    assert_false(c->ok);
    assert_null(c->path);
    assert_string_equal(c->why_not, "there is no kernel for it");
    assert_true(find(&r, "all operators")->ok); /* the others were tried all the same */
    assert_true(r.t.all.n > 4);
    bool reached = false;
    assert_ptr_not_equal(oq_choose(&r.t.all, &r.t.targets, OQ_PREFER_SIZE, &reached), c);
    rig_end(&r);
}

/* No memory, no room, the user: these end the search. */
static void what_ends_the_search(void **state) {
    static const onq_code codes[] = {ONQ_E_NOMEM, ONQ_E_CANCEL, ONQ_E_WRITE};
    for (size_t i = 0; i < OQ_COUNT(codes); i++) {
        rig r;
        rig_begin(&r, *state);
        r.fails = "op_set noout";
        r.failure = codes[i];
        assert_true(oq_tune_is_fatal(codes[i]));
        assert_fails(oq_tune_search(&r.t, &r.err), codes[i], r.err, "no kernel");
        assert_int_equal(r.n_made, 2);
        rig_end(&r);
    }
    assert_false(oq_tune_is_fatal(ONQ_E_RUNTIME) || oq_tune_is_fatal(ONQ_E_UNSUPPORTED));
}

/* A model that the engine does not take is a failure of its recipe, too. */
static void a_model_that_does_not_run(void **state) {
    rig r;
    rig_begin(&r, *state);
    r.t.allow_dynamic = false;
    r.engine.fail_at_run = r.engine.n_runs + 4 * 26 + 3; /* float is scored and timed before */
    search(&r);
    size_t failed = 0;
    for (size_t i = 0; i < r.t.all.n; i++)
        if (!r.t.all.v[i]->ok) {
            failed++;
            assert_non_null(strstr(r.t.all.v[i]->why_not, "told to fail"));
        }
    assert_true(failed <= 1 && r.t.all.n > 3);
    rig_end(&r);
}

/* ---- time ---- */

static void time_ends(void **state) {
    rig r;
    rig_begin(&r, *state);
    r.t.deadline = oq_seconds() - 1;
    search(&r);
    assert_true(r.t.stopped);
    assert_int_equal(r.n_made, 0); /* float alone was measured */
    assert_true(r.t.truth != NULL && r.t.truth->score.samples == 4);
    rig_end(&r);
    rig_begin(&r, *state);
    r.stop_after = 2;
    search(&r);
    assert_true(r.t.stopped);
    assert_int_equal(r.n_made, 2); /* the second was begun in time, and counts */
    assert_int_equal(r.t.all.n, 2);
    assert_true(r.t.all.v[1]->ok);
    rig_end(&r);
}

/* ---- going on ---- */

/* What was measured is not made again; what failed is not tried again. */
static void goes_on_from_a_file(void **state) {
    rig first, second;
    bool reached = false;
    const char *path = scratch_path(*state, "state.json");
    rig_begin(&first, *state);
    first.fails = "op_set noout";
    assert_ok(oq_state_open(&first.t.state, first.b.env, path, "a job", &first.err), first.err);
    first.stop_after = 3;
    search(&first);
    assert_int_equal(first.t.all.n, 3);
    rig_begin(&second, *state);
    assert_ok(oq_state_open(&second.t.state, second.b.env, path, "a job", &second.err), second.err);
    search(&second);
    for (size_t i = 0; i < 3; i++) {
        const oq_candidate *was = first.t.all.v[i], *is = second.t.all.v[i];
        assert_string_equal(is->label, was->label);
        assert_true(is->ok == (i != 1) && is->ms == was->ms && is->size == was->size);
        assert_true(!is->ok || is->score.sqnr == was->score.sqnr);
        assert_null(is->path);
    }
    assert_string_equal(second.t.all.v[1]->why_not, "there is no kernel for it");
    assert_non_null(strstr(second.made[0], "dynamic")); /* the first that is new */
    const size_t before = second.n_made;
    oq_candidate *best = oq_choose(&second.t.all, &second.t.targets, OQ_PREFER_ACCURACY, &reached);
    assert_ok(oq_tune_report(&second.t, best, &second.choose, &second.err), second.err);
    assert_string_equal(best->label, "dynamic");
    assert_true(best->report.sqnr == best->score.sqnr);
    assert_int_equal(second.n_made, before); /* its model is there; that of a row is made, once */
    assert_ok(oq_tune_ensure(&second.t, second.t.all.v[0], &second.err), second.err);
    assert_ok(oq_tune_ensure(&second.t, second.t.all.v[0], &second.err), second.err);
    assert_int_equal(second.n_made, before + 1);
    assert_string_equal(second.made[before], first.made[0]);
    rig_end(&first);
    rig_end(&second);
    /* Of another job it is refused. */
    rig_begin(&first, *state);
    assert_int_not_equal(
        oq_state_open(&first.t.state, first.b.env, path, "another job", &first.err), ONQ_OK);
    rig_end(&first);
}

/* ---- units ---- */

/* Three units; the targets ask for less noise than any whole model has. */
static void begin_units(rig *r, scratch *files, double db) {
    static const bool all[3] = {true, true, true};
    oq_candidate *c = NULL;
    oq_recipe recipe;
    rig_begin(r, files);
    want_sqnr(r, db);
    assert_ok(oq_tune_find_units(&r->t, r->b.m, &r->err), r->err);
    assert_int_equal(r->t.units.all.n, 3);
    r->t.pays = all; /* small as they are */
    oq_candidate *truth = OQ_NEW(&r->arena, oq_candidate);
    assert_non_null(truth);
    *truth = (oq_candidate){.label = "float", .ok = true, .path = r->t.float_path, .ms = 1};
    r->t.truth = truth;
    const oq_session_options o = {.model = r->b.m};
    assert_ok(oq_session_open(&r->engine.base, &o, &r->t.beside, &r->err), r->err);
    assert_ok(oq_tune_static(&r->t, &recipe, &r->err), r->err);
    assert_ok(oq_recipe_add(&recipe, &r->arena, "op_set", "pays", &r->err), r->err);
    assert_ok(oq_tune_try(&r->t, &recipe, "base", &c, &r->err), r->err);
    assert_non_null(c);
}

/* The noise of each unit alone is measured first, on models that are dropped again; then points of
 * the curve are made, until the fastest that reaches the targets is known. */
static void units(void **state) {
    rig r;
    bool reached = false;
    begin_units(&r, *state, 25); /* what the noise of one unit leaves, but not that of two */
    assert_ok(oq_tune_units(&r.t, &r.err), r.err);
    assert_true(r.n_dropped >= 3);
    for (size_t i = 1; i <= 3; i++) {
        assert_non_null(strstr(r.made[i], "--node_methods"));
        assert_int_equal(count(r.made[i], "\":\"float"), 2);
    }
    const size_t points = r.t.all.n - 1;
    assert_int_equal(r.n_made, 1 + r.n_dropped + points);
    for (size_t i = 1; i < r.t.all.n; i++) {
        const oq_candidate *c = r.t.all.v[i];
        assert_non_null(strstr(c->label, " of 3 units in integers"));
        assert_true(c->ok && isfinite(c->predicted));
        assert_true((c->score.sqnr >= 25) == (c->label[0] <= '1'));
    }
    const oq_candidate *best = oq_choose(&r.t.all, &r.t.targets, OQ_PREFER_ACCURACY, &reached);
    assert_true(reached && strncmp(best->label, "1 of 3 units", 12) == 0);
    oq_session_close(r.t.beside);
    rig_end(&r);
}

/* Where the base reaches the targets already, and where time is over, nothing is made. */
static void units_are_left_alone(void **state) {
    for (int late = 0; late < 2; late++) {
        rig r;
        begin_units(&r, *state, late ? 25 : 1);
        if (late)
            r.t.deadline = oq_seconds() - 1;
        assert_ok(oq_tune_units(&r.t, &r.err), r.err);
        assert_int_equal(r.n_made, 1);
        assert_int_equal(r.t.all.n, 1);
        oq_session_close(r.t.beside);
        rig_end(&r);
    }
}

/* A model that leaves more units float than it may is none. */
static void float_units(void **state) {
    rig r;
    rig_begin(&r, *state);
    r.t.max_float_units = 2;
    r.t.allow_dynamic = false;
    search(&r); /* the models of the test are float: all three units */
    assert_true(r.t.all.n >= 3);
    for (size_t i = 0; i < r.t.all.n; i++) {
        assert_false(r.t.all.v[i]->ok);
        assert_string_equal(r.t.all.v[i]->why_not, "it leaves 3 units float (--max_float_units 2)");
    }
    rig_end(&r);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        TEST(order),
        TEST(methods),
        TEST(what_is_taken),
        TEST(a_failure_keeps_its_reason),
        TEST(what_ends_the_search),
        TEST(a_model_that_does_not_run),
        TEST(time_ends),
        TEST(goes_on_from_a_file),
        TEST(units),
        TEST(units_are_left_alone),
        TEST(float_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
