/*
 * test_tune.c — the search: what is tried and in which order, what is taken, what becomes of a
 * recipe that fails, and units.
 */
#include "tune_rig.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- whole models ---- */

/* Float first, then what needs no samples, then sets of operators, methods on the best of them, and
 * corrections, each once. */
static void order(void **state) {
    tune_rig r;
    tune_rig_begin(&r, *state, false);
    static const oq_recipe_option samples = {"data", "some"};
    r.t.samples = &samples;
    r.t.n_samples = 1;
    r.t.allow_qoperator = r.t.allow_nbits = r.t.allow_float16 = true;
    tune_rig_want(&r, 400); /* nothing is enough */
    tune_rig_search(&r);
    static const char *const labels[] = {
        "float",
        "float, prepared",
        "dynamic",
        "weights of 8 bits",
        "weights of 4 bits",
        "weights of 4 bits, hqq",
        "weights in float16",
        "float16",
        "op_set all",
        "op_set noout",
        "op_set linear",
        "op_set pays",
        "op_set all, per tensor",
        "integer operators",
        "op_set pays, outliers float",
        "op_set pays, double activations",
        "op_set pays, equalised",
        NULL,
    };
    for (size_t i = 0; labels[i] != NULL; i++)
        assert_string_equal(r.t.all.v[i]->label, labels[i]);
    assert_ptr_equal(r.t.flt, r.t.all.v[0]);
    assert_true(r.t.all.v[0]->exact && r.t.all.v[1]->exact && !r.t.all.v[2]->exact);
    assert_string_equal(r.made[0], "onq preprocess -i IN -o OUT");
    assert_string_equal(r.made[1], "onq dynamic -i IN -o OUT --per_channel");
    assert_string_equal(r.made[2], "onq nbits -i IN -o OUT --bits 8 --accuracy_level 4");
    assert_string_equal(r.made[7], "onq static -i IN -o OUT --per_channel --data some");
    assert_string_not_equal(r.made[8], r.made[7]); /* the first fold says that it is not enough */
    /* More noise, fewer decibels: every score is that of its own model. */
    assert_true(tune_rig_db(tune_rig_find(&r, "weights of 8 bits")) >
                tune_rig_db(tune_rig_find(&r, "dynamic")));
    assert_true(tune_rig_db(tune_rig_find(&r, "dynamic")) >
                tune_rig_db(tune_rig_find(&r, "op_set all")));
    assert_true(tune_rig_db(tune_rig_find(&r, "op_set all")) >
                tune_rig_db(tune_rig_find(&r, "weights of 4 bits")));
    tune_rig_end(&r);
}

static double ms_of(const oq_candidate *c, double rewritten) {
    const oq_recipe *base = c->recipe.after;
    return c->exact || c->recipe.command == NULL ? 10
           : base != NULL && base->options.n > 0 ? rewritten
                                                 : 6;
}

static double faster_rewritten(void *ctx, const oq_candidate *c) {
    (void)ctx;
    return ms_of(c, 4);
}

static double slower_rewritten(void *ctx, const oq_candidate *c) {
    (void)ctx;
    return ms_of(c, 9);
}

/* Where a Conv over one axis is better as a MatMul, ranges may be found while that runs, too. */
static void products_of_conv(void **state) {
    static const oq_recipe_option rewrite = {"rewrite", "conv1d"};
    for (int faster = 0; faster < 2; faster++) {
        tune_rig r;
        tune_rig_begin(&r, *state, false);
        oq_candidate other = {.label = "float, prepared, conv1d",
                              .recipe = {.command = "preprocess"},
                              .path = r.t.float_path,
                              .size = r.t.float_size,
                              .ms = 10,
                              .ok = true,
                              .exact = true};
        assert_true(OQ_PUSH(&r.arena, &other.recipe.options, rewrite));
        r.t.other_base = &other;
        r.t.clock = faster ? faster_rewritten : slower_rewritten;
        tune_rig_want(&r, 400);
        tune_rig_search(&r);
        size_t found = 0;
        for (size_t i = 0; i < r.t.all.n; i++)
            found += strcmp(r.t.all.v[i]->label, "dynamic, Conv over one axis as MatMul") == 0;
        tune_rig_find(&r, "op_set pays, Conv over one axis as MatMul");
        assert_int_equal(found, faster);
        tune_rig_end(&r);
    }
}

static size_t count_labels(const tune_rig *r, const char *part) {
    size_t n = 0;
    for (size_t i = 0; i < r->t.all.n; i++)
        n += strstr(r->t.all.v[i]->label, part) != NULL;
    return n;
}

/* Other ranges are tried on the fastest set. Where they clearly gain the units have them, else
 * those that every recipe shares; a correction that gained nothing is not tried again. */
static void refinements(void **state) {
    static const char *const idle[] = {NULL, "percentile"};
    for (size_t k = 0; k < OQ_COUNT(idle); k++) {
        tune_rig r;
        size_t with = 0, without = 0;
        tune_rig_begin(&r, *state, false);
        r.t.prefer = OQ_PREFER_SPEED;
        r.slow = "pays";
        r.t.allow_dynamic = false;
        r.idle = idle[k];
        tune_rig_want(&r, 17);
        tune_rig_search(&r);
        assert_non_null(tune_rig_find(&r, "op_set noout, mse ranges"));
        /* They gain less than other ranges where they change nothing: once shows it. */
        assert_true(count_labels(&r, "percentile ranges") > 0);
        assert_int_equal(count_labels(&r, "noout, percentile ranges"), k == 0);
        for (size_t i = 0; i < r.n_made; i++) {
            const bool units = strstr(r.made[i], "node_methods") != NULL;
            with += units && strstr(r.made[i], "percentile") != NULL;
            without += units && strstr(r.made[i], "calibration_method") == NULL;
        }
        assert_true(k == 0 ? with > 0 && without == 0 : with == 0);
        tune_rig_end(&r);
    }
    tune_rig r;
    tune_rig_begin(&r, *state, false);
    r.t.prefer = OQ_PREFER_SPEED;
    r.slow = "pays";
    r.t.allow_dynamic = false;
    r.idle = "bias_correction";
    tune_rig_want(&r, 16);
    tune_rig_search(&r);
    assert_int_equal(count_labels(&r, "bias correction"), 1);
    tune_rig_end(&r);
}

/* Where the first samples lose the target, neither the others nor the other folds are needed; where
 * they do not, each fold has its model. */
static void ends_what_is_lost(void **state) {
    tune_rig r;
    tune_rig_begin(&r, *state, false);
    tune_rig_want(&r, 15);
    tune_rig_search(&r);
    oq_candidate *all = r.t.all.v[3], *dynamic = r.t.all.v[2];
    assert_string_equal(all->label, "op_set all");
    assert_true(all->partly && all->score.samples == 4);
    assert_true(!oq_targets_hold(&r.t.targets, &all->score));
    assert_true(!dynamic->partly && dynamic->score.samples == 8);
    const double some = tune_rig_db(all);
    assert_ok(oq_tune_complete(&r.t, all, &r.err), r.err);
    assert_true(!all->partly && all->score.samples == 8 && fabs(tune_rig_db(all) - some) < 3);
    size_t made[2] = {0};
    for (size_t i = 0; i < r.n_made; i++) {
        made[0] += strcmp(r.made[i], "onq static -i IN -o OUT --per_channel") == 0;
        made[1] += strcmp(r.made[i], "onq static -i IN -o OUT --per_channel --op_set pays "
                                     "--double_activations") == 0;
    }
    assert_int_equal(made[0], 1 + 2); /* the first fold, then both of them */
    assert_int_equal(made[1], 2);
    tune_rig_end(&r);
}

/* Graphs inside are tried both ways; a language model begins with its weights. */
static void inner_graphs_and_language(void **state) {
    tune_rig r;
    tune_rig_begin(&r, *state, false);
    r.t.inner = r.t.language = r.t.allow_nbits = true;
    tune_rig_want(&r, 400);
    tune_rig_search(&r);
    assert_string_equal(r.t.all.v[2]->label, "weights of 8 bits");
    assert_null(oq_recipe_get(&tune_rig_find(&r, "op_set all")->recipe, "enable_subgraph"));
    assert_non_null(
        oq_recipe_get(&tune_rig_find(&r, "op_set all, inner graphs")->recipe, "enable_subgraph"));
    assert_non_null(tune_rig_find(&r, "dynamic, inner graphs"));
    tune_rig_end(&r);
}

/* What reaches the target and is as fast as anything can be ends the search. */
static void done_early(void **state) {
    tune_rig r;
    oq_candidate *chosen = NULL;
    bool reached = false;
    tune_rig_begin(&r, *state, false);
    r.t.prefer = OQ_PREFER_SPEED;
    tune_rig_want(&r, 5);
    tune_rig_search(&r);
    for (size_t i = 0; i < r.t.all.n; i++)
        assert_null(strstr(r.t.all.v[i]->label, "double"));
    assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
    assert_true(reached);
    assert_non_null(strstr(chosen->label, "op_set pays"));
    tune_rig_end(&r);
}

/* What is slower than the fastest set by less than a search is worth ends it as well. */
static void done_a_little_later(void **state) {
    double target = 0;
    for (int i = 0; i < 3; i++) {
        tune_rig r;
        tune_rig_begin(&r, *state, false);
        r.t.prefer = OQ_PREFER_SPEED;
        r.later = "outlier_channels";
        r.later_ms = i == 1 ? 0.15 : 0.5; /* of 10 that float takes */
        tune_rig_want(&r, i == 0 ? 90 : target);
        tune_rig_search(&r);
        if (i == 0)
            target = tune_rig_db(tune_rig_find(&r, "op_set pays, outliers float")) - 0.5;
        else
            assert_int_equal(count_labels(&r, "mse") > 0, i == 2);
        tune_rig_end(&r);
    }
}

/* ---- settling ---- */

/* What reaches the target without any slack is not measured again. */
static void safe(void **state) {
    tune_rig r;
    oq_candidate *chosen = NULL;
    bool reached = false;
    tune_rig_begin(&r, *state, false);
    r.t.prefer = OQ_PREFER_SPEED;
    r.t.again = &r.again;
    tune_rig_want(&r, 12);
    tune_rig_search(&r);
    assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
    assert_true(reached && oq_recipe_calibrates(&chosen->recipe));
    assert_true(oq_tune_is_safe(&r.t, &chosen->score));
    assert_int_equal(r.n_again, 0);
    assert_int_equal(chosen->report.samples, chosen->score.samples);
    tune_rig_end(&r);
}

/* The one that is fastest does not reach the target when it is measured by another division: the
 * next safer one is taken, and what is no more accurate is not asked again. */
static void doubts(void **state) {
    tune_rig r;
    oq_candidate *chosen = NULL;
    bool reached = false;
    tune_rig_begin(&r, *state, false);
    r.t.prefer = OQ_PREFER_SPEED;
    r.t.allow_dynamic = false;
    r.t.again = &r.again;
    tune_rig_want(&r, 12);
    tune_rig_search(&r);
    const oq_candidate *first = oq_choose(&r.t.all, &r.t.targets, r.t.prefer, &reached);
    assert_true(reached && oq_recipe_calibrates(&first->recipe));
    tune_rig_want_more(&r, first);
    r.fold_noise = 4;
    assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
    assert_true(r.n_again >= 4);
    assert_true(first->doubted && !first->reached && chosen != first);
    assert_true(reached && oq_is_more_accurate(&r.t.targets, chosen, first));
    for (size_t i = 0; i < r.t.all.n; i++)
        assert_true(!r.t.all.v[i]->reached || r.t.all.v[i]->exact ||
                    !oq_recipe_calibrates(&r.t.all.v[i]->recipe) ||
                    oq_is_more_accurate(&r.t.targets, r.t.all.v[i], first));
    tune_rig_end(&r);
}

/* Nothing holds: float, and not reached. */
static void nothing_holds(void **state) {
    tune_rig r;
    oq_candidate *chosen = NULL;
    bool reached = true;
    tune_rig_begin(&r, *state, false);
    r.t.prefer = OQ_PREFER_SPEED;
    r.t.allow_dynamic = false;
    r.t.again = &r.again;
    r.fold_noise = 1e6;
    tune_rig_want(&r, 12);
    tune_rig_search(&r);
    const oq_candidate *best = NULL; /* and all others are less accurate */
    for (size_t i = 0; i < r.t.all.n; i++)
        if (!r.t.all.v[i]->exact && (best == NULL || tune_rig_db(r.t.all.v[i]) > tune_rig_db(best)))
            best = r.t.all.v[i];
    tune_rig_want_more(&r, best);
    assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
    assert_true(!reached && chosen->exact);
    tune_rig_end(&r);
}

/* Never slower than float as it was given, however accurate. */
static void never_slower(void **state) {
    tune_rig r;
    oq_candidate *chosen = NULL;
    bool reached = false;
    tune_rig_begin(&r, *state, false);
    r.t.prefer = OQ_PREFER_SPEED;
    r.slow = "onq";
    tune_rig_want(&r, 5);
    tune_rig_search(&r);
    assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
    assert_true(reached && chosen->exact);
    tune_rig_end(&r);
}

/* Three searches choose the same. */
static void the_same_again(void **state) {
    char label[128] = "";
    for (int i = 0; i < 3; i++) {
        tune_rig r;
        oq_candidate *chosen = NULL;
        bool reached = false;
        tune_rig_begin(&r, *state, false);
        r.t.prefer = OQ_PREFER_SPEED;
        r.t.again = &r.again;
        tune_rig_want(&r, 20);
        tune_rig_search(&r);
        assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
        assert_true(reached);
        if (i > 0)
            assert_string_equal(chosen->label, label);
        snprintf(label, sizeof label, "%s", chosen->label);
        tune_rig_end(&r);
    }
}

/* A quantized model that is there already is a candidate like any other. */
static void rival(void **state) {
    tune_rig r;
    bm b;
    tune_rig_begin(&r, *state, false);
    tune_rig_model(&b, false, 0.01);
    r.t.rival = scratch_path(r.files, "rival.onnx");
    r.t.rival_size = 77;
    assert_ok(oq_model_save(b.m, r.t.rival, NULL, &r.err), r.err);
    bm_end(&b);
    tune_rig_want(&r, 400);
    tune_rig_search(&r);
    assert_non_null(r.t.rival_found);
    assert_true(tune_rig_db(r.t.rival_found) > 30 && tune_rig_db(r.t.rival_found) < 60 &&
                !r.t.rival_found->exact);
    assert_int_equal(r.t.rival_found->size, 77);
    tune_rig_end(&r);
}

/* Masks say nothing of noise, so candidates do: one that lacks 6 dB has four times what is allowed, and
 * what reaches the target is allowed however much the others lack. */
static void noise_of_other_targets(void **state) {
    tune_rig r;
    tune_rig_begin(&r, *state, false);
    tune_rig_want(&r, 400);
    tune_rig_search(&r);
    r.t.targets.v[0] = (oq_target){OQ_METRIC_IOU, 98};
    for (size_t i = 0; i < r.t.all.n; i++)
        if (!r.t.all.v[i]->exact)
            r.t.all.v[i]->ok = false;
    oq_candidate *c[] = {r.t.all.v[2], r.t.all.v[3]};
    assert_true(oq_tune_allowed_noise(&r.t, c[0]) == 1e-3); /* nothing is known */
    for (size_t i = 0; i < 2; i++) {
        const double kept = i == 0 ? 96 : 92;
        c[i]->ok = true;
        c[i]->partly = false;
        c[i]->score.samples = r.t.choose->all.n;
        c[i]->score.objective = i == 0 ? 20 : 10;
        c[i]->score.figures[OQ_METRIC_IOU] = (oq_figure){kept, kept, kept};
    }
    assert_true(fabs(oq_tune_allowed_noise(&r.t, c[1]) - 0.01 / 4) < 1e-6);
    assert_true(oq_tune_is_near(&r.t, c[0], 6.1) && !oq_tune_is_near(&r.t, c[0], 5.9));
    c[0]->score.figures[OQ_METRIC_IOU] = (oq_figure){99, 99, 99};
    assert_true(fabs(oq_tune_allowed_noise(&r.t, c[1]) - 0.01) < 1e-6);
    tune_rig_end(&r);
}

/* ---- what fails ---- */

static void a_failure_keeps_its_reason(void **state) {
    tune_rig r;
    tune_rig_begin(&r, *state, false);
    r.fails = "dynamic";
    tune_rig_want(&r, 400);
    tune_rig_search(&r);
    const oq_candidate *c = tune_rig_find(&r, "dynamic");
    assert_false(c->ok);
    assert_null(c->path);
    assert_string_equal(c->why_not, "there is no kernel for it");
    assert_true(tune_rig_find(&r, "op_set all")->ok); /* the others were tried all the same */
    bool reached = false;
    assert_ptr_not_equal(oq_choose(&r.t.all, &r.t.targets, OQ_PREFER_SIZE, &reached), c);
    tune_rig_end(&r);
}

/* Preparing fails: the model is taken as it is. */
static void cannot_be_prepared(void **state) {
    tune_rig r;
    tune_rig_begin(&r, *state, false);
    r.fails = "preprocess";
    tune_rig_want(&r, 400);
    tune_rig_search(&r);
    assert_null(r.t.base);
    assert_true(tune_rig_find(&r, "op_set all")->ok);
    assert_null(tune_rig_find(&r, "op_set all")->recipe.after);
    tune_rig_end(&r);
}

/* No memory, no room, the user: these end the search. */
static void what_ends_the_search(void **state) {
    static const onq_code codes[] = {ONQ_E_NOMEM, ONQ_E_CANCEL, ONQ_E_WRITE};
    for (size_t i = 0; i < OQ_COUNT(codes); i++) {
        tune_rig r;
        tune_rig_begin(&r, *state, false);
        r.fails = "op_set noout";
        r.failure = codes[i];
        tune_rig_want(&r, 400);
        assert_true(oq_tune_is_fatal(codes[i]));
        assert_fails(oq_tune_search(&r.t, &r.err), codes[i], r.err, "no kernel");
        assert_non_null(strstr(r.made[r.n_made - 1], "noout"));
        tune_rig_end(&r);
    }
    assert_false(oq_tune_is_fatal(ONQ_E_RUNTIME) || oq_tune_is_fatal(ONQ_E_UNSUPPORTED));
}

/* ---- units ---- */

/* The noise of each unit alone is measured first, on models that are dropped again; then points of
 * the curve are made, until the fastest that reaches the targets is known. */
static void units(void **state) {
    tune_rig r;
    oq_candidate *chosen = NULL;
    bool reached = false;
    tune_rig_begin(&r, *state, false);
    r.t.allow_dynamic = false;
    r.t.prefer = OQ_PREFER_SPEED;
    r.slow = "pays";       /* though no unit gains alone, all together do */
    tune_rig_want(&r, 24); /* what the noise of one unit leaves, but not that of two */
    tune_rig_search(&r);
    assert_non_null(r.t.choice);
    size_t points = 0;
    for (size_t i = 0; i < r.t.all.n; i++) {
        const oq_candidate *c = r.t.all.v[i];
        const char *of = strstr(c->label, " of 3 units in integers");
        if (of == NULL)
            continue;
        points++;
        assert_true(c->ok);
        assert_true((tune_rig_db(c) >= 24) == (c->label[0] <= '1'));
    }
    assert_true(points > 0);
    assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
    assert_true(reached && strncmp(chosen->label, "1 of 3 units", 12) == 0);
    tune_rig_end(&r);
}

/* A model that leaves more units float than it may is none. */
static void float_units(void **state) {
    tune_rig r;
    tune_rig_begin(&r, *state, false);
    r.t.max_float_units = 2;
    r.t.allow_dynamic = false;
    tune_rig_want(&r, 5);
    tune_rig_search(&r); /* the models of the test are float: all three units */
    for (size_t i = 2; i < r.t.all.n; i++) {
        assert_false(r.t.all.v[i]->ok);
        assert_string_equal(r.t.all.v[i]->why_not, "it leaves 3 units float (--max_float_units 2)");
    }
    assert_true(r.t.all.n >= 5);
    tune_rig_end(&r);
}

/* LSTMs in integers come after the fastest that reaches the targets, and after float. */
static void lstm(void **state) {
    for (int allowed = 0; allowed < 2; allowed++) {
        tune_rig r;
        oq_candidate *chosen = NULL;
        bool reached = false;
        tune_rig_begin(&r, *state, false);
        r.t.prefer = OQ_PREFER_SPEED;
        r.t.has_lstm = true;
        r.t.allow_dynamic = allowed > 0;
        tune_rig_want(&r, 5);
        tune_rig_search(&r);
        size_t n = 0;
        for (size_t i = 0; i < r.t.all.n; i++)
            n += strstr(r.t.all.v[i]->label, "LSTM") != NULL;
        assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
        assert_true(reached);
        assert_int_equal(strstr(chosen->label, "LSTM in integers") != NULL, allowed);
        assert_true(allowed > 0 ? n > 1 && n <= 4 : n == 0);
        if (allowed > 0) {
            assert_non_null(tune_rig_find(&r, "LSTM in integers"));
            assert_string_equal(chosen->recipe.after->command, "static");
            assert_string_equal(oq_recipe_get(&chosen->recipe, "op_types_to_quantize"), "LSTM");
        }
        tune_rig_end(&r);
    }
}

static bool drops(const char *command) {
    const char *at = strstr(command, " --drop_shapes");
    return at != NULL && at[strlen(" --drop_shapes")] == '\0';
}

/* Where float is clearly faster without shapes, all that comes after it leaves them out. */
static void without_shapes(void **state) {
    static const double cost[] = {0, 0.2, 1}; /* ms: no normalization, and of 10 */
    for (size_t i = 0; i < OQ_COUNT(cost); i++) {
        tune_rig r;
        size_t n = 0, dropped = 0;
        tune_rig_begin(&r, *state, false);
        r.shapes_ms = cost[i];
        tune_rig_want(&r, 400);
        tune_rig_search(&r);
        for (size_t k = 0; k < r.n_made; k++) {
            n += strncmp(r.made[k], "onq static", 10) == 0;
            dropped += strncmp(r.made[k], "onq static", 10) == 0 && drops(r.made[k]);
        }
        assert_true(n > 4);
        assert_int_equal(dropped, i == 2 ? n : 0);
        assert_int_equal(r.t.drops_shapes, i == 2);
        assert_string_equal(r.made[0], "onq preprocess -i IN -o OUT");
        assert_string_equal(r.made[1], i > 0
                                           ? "onq preprocess -i IN -o OUT --skip_optimization "
                                             "--skip_symbolic_shape --skip_onnx_shape --drop_shapes"
                                           : "onq dynamic -i IN -o OUT --per_channel");
        if (i == 2) {
            const oq_candidate *bare = tune_rig_find(&r, "float, prepared, without shapes");
            assert_true(bare->exact && r.t.base_float == bare);
            assert_string_equal(tune_rig_find(&r, "dynamic")->recipe.after->command, "preprocess");
            assert_false(r.t.base->drops_shapes);
            tune_rig_find(&r, "op_set pays, double activations"); /* later stages see the sets */
        }
        tune_rig_end(&r);
    }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        TEST(order),
        TEST(products_of_conv),
        TEST(refinements),
        TEST(ends_what_is_lost),
        TEST(inner_graphs_and_language),
        TEST(done_early),
        TEST(done_a_little_later),
        TEST(safe),
        TEST(doubts),
        TEST(nothing_holds),
        TEST(never_slower),
        TEST(the_same_again),
        TEST(rival),
        TEST(noise_of_other_targets),
        TEST(a_failure_keeps_its_reason),
        TEST(cannot_be_prepared),
        TEST(what_ends_the_search),
        TEST(units),
        TEST(float_units),
        TEST(lstm),
        TEST(without_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
