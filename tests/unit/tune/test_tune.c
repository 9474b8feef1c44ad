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
    oq_meaning meaning;
    oq_division folds, again;
    onq_error err;
    char *made[MOST_CALLS]; /* the text of each recipe that was made */
    size_t n_made, n_dropped;
    const char *fails; /* recipes with this in their text cannot be made */
    onq_code failure;
    size_t stop_after; /* calls, then time is over; 0: never */
    double fold_noise; /* of a model that the second division calibrates, times that of others */
    size_t n_again;    /* models that it calibrated */
    const char *slow;  /* recipes with this in their text take longer than float */
    const char *later; /* recipes with this in their text take later_ms longer */
    double later_ms;
    const char *idle;            /* an option that changes nothing here */
    double calibrating, running; /* seconds that a sample takes; 0: time does not pass */
    double passed;
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
static double quality(const rig *r, const char *text) {
    static const struct {
        const char *part;
        double factor;
    } rows[] = {{"static", 0.3},           {"dynamic", 0.05},
                {"bits 4", 0.6},           {"bits 8", 0.01},
                {"float16", 0.001},        {"op_set noout", 0.6},
                {"op_set linear", 0.7},    {"op_set pays", 0.4},
                {"outlier_channels", 0.7}, {"double_activations", 0.3},
                {"equalize", 0.9},         {"calibration_method mse", 0.8},
                {"learned_rounding", 0.5}, {"bias_correction", 0.9},
                {"percentile", 0.6}};
    double noise = 1;
    if (strstr(text, "preprocess") != NULL && strstr(text, "float16") == NULL)
        return 0; /* prepared, it is the same model */
    for (size_t i = 0; i < OQ_COUNT(rows); i++)
        if (strstr(text, rows[i].part) != NULL &&
            (r->idle == NULL || strcmp(r->idle, rows[i].part) != 0))
            noise *= rows[i].factor;
    /* The noise of each unit in integers, whatever else there is. */
    if (strstr(text, "node_methods") != NULL)
        noise = 0.02 * (double)(count(text, "\":\"") - count(text, "\":\"float"));
    return noise;
}

/* Its text without the backslashes that stand before quotes in a command of Windows: heap. */
static char *text_of(const oq_recipe *recipe) {
    oq_buf text;
    size_t n = 0;
    oq_buf_init(&text, oq_alloc_default());
    oq_recipe_text(recipe, "IN", "OUT", &text);
    oq_buf_addc(&text, '\0');
    assert_false(text.failed);
    char *plain = strdup(text.p);
    oq_buf_release(&text);
    for (const char *p = plain; *p != '\0'; p++)
        if (*p != '\\')
            plain[n++] = *p;
    plain[n] = '\0';
    return plain;
}

static bool is_of(const oq_division *d, const oq_fold *fold) {
    for (size_t i = 0; i < d->n; i++)
        if (&d->folds[i] == fold)
            return true;
    return false;
}

/* Runs take their time by themselves, calibrating has it added. */
static double fake_now(void *ctx) {
    const rig *r = ctx;
    return r->passed + r->running * (double)r->engine.n_runs;
}

/* Calibrates sample by sample until there is no time left, as commands inside of a search do. */
static onq_code calibrate(rig *r, const oq_fold *fold, onq_error *err) {
    const size_t n = fold != NULL ? fold->n_calibrate : r->choose.all.n;
    for (size_t i = 0; i < n && r->calibrating > 0; i++) {
        r->passed += r->calibrating;
        if (fold != NULL && !oq_tune_goes_on(&r->t))
            return oq_fail(err, ONQ_E_RUNTIME, OQ_TUNE_NO_TIME);
        if (fold != NULL && oq_tune_overspends(&r->t))
            return oq_fail(err, ONQ_E_RUNTIME, OQ_TUNE_NO_EFFORT);
    }
    return ONQ_OK;
}

static onq_code make(void *ctx, const oq_recipe *recipe, const oq_fold *fold, const char **path,
                     uint64_t *size, onq_error *err) {
    rig *r = ctx;
    const bool again = is_of(&r->again, fold);
    char name[32];
    assert_true(r->n_made < MOST_CALLS);
    r->made[r->n_made++] = text_of(recipe);
    const char *said = r->made[r->n_made - 1];
    if (r->fails != NULL && strstr(said, r->fails) != NULL)
        return oq_fail(err, r->failure, "there is no kernel for it");
    OQ_TRY(calibrate(r, fold, err));
    bm b;
    r->n_again += again;
    fill(&b, r->large, quality(r, said) * (again ? r->fold_noise : 1));
    snprintf(name, sizeof name, "made%zu.onnx", r->n_made);
    *path = scratch_path(r->files, name);
    *size = (uint64_t)(1e9 * pow(0.9, (double)r->n_made)); /* later ones are smaller */
    assert_ok(oq_model_save(b.m, *path, NULL, err), *err);
    bm_end(&b);
    if (r->stop_after == r->n_made)
        r->t.deadline = oq_seconds() - 1;
    return ONQ_OK;
}

/* Times that hang on nothing but the recipe: integers are twice as fast as float, fewer of them take
 * longer. */
static double fake_clock(void *ctx, const oq_candidate *c) {
    const rig *r = ctx;
    double ms = 10;
    if (c->exact || c->recipe.command == NULL || c->recipe.prepares)
        return ms;
    char *text = text_of(&c->recipe);
    ms = strstr(text, "noout") != NULL ? 5.5 : strstr(text, "pays") != NULL ? 5 : 6;
    ms += strstr(text, "double_activations") != NULL ? 3 : 0;
    ms += 0.5 * (double)count(text, "\":\"float");
    if (r->later != NULL && strstr(text, r->later) != NULL)
        ms += r->later_ms;
    if (r->slow != NULL && strstr(text, r->slow) != NULL)
        ms = 20;
    free(text);
    return ms;
}

static void drop(void *ctx, const char *path) {
    rig *r = ctx;
    assert_int_equal(remove(path), 0);
    r->n_dropped++;
}

static void rig_begin_with(rig *r, scratch *files, bool large) {
    oq_source *source = NULL;
    oq_session *flt = NULL;
    *r = (rig){.files = files,
               .large = large,
               .err = ONQ_ERROR_INIT,
               .failure = ONQ_E_UNSUPPORTED,
               .fold_noise = 1};
    r->meaning = (oq_meaning){.links = r->links, .n = 1, .classes = 1};
    onq_error *err = &r->err;
    fill(&r->b, large, 0);
    oq_arena_init(&r->arena, oq_alloc_default());
    fake_engine_init(&r->engine, r->b.env);
    const char *path = scratch_path(files, "float.onnx");
    assert_ok(oq_model_save(r->b.m, path, NULL, err), *err);
    oq_trials_init(&r->choose, oq_alloc_default(), &r->meaning);
    const oq_source_options so = {.spec = large ? "random:2:1" : "random:8:1", .model = r->b.m};
    const oq_session_options o = {.model = r->b.m};
    assert_ok(oq_source_open(r->b.env, &so, &source, err), *err);
    assert_ok(oq_session_open(&r->engine.base, &o, &flt, err), *err);
    assert_ok(oq_trials_fill(&r->choose, source, flt, 1 << 20, err), *err);
    assert_ok(oq_trials_divide(&r->choose, 2, 0, &r->folds, err), *err);
    assert_ok(oq_trials_divide(&r->choose, 4, 1, &r->again, err), *err);
    oq_session_close(flt);
    oq_source_close(source);
    r->t = (oq_tune){.env = r->b.env,
                     .arena = &r->arena,
                     .engine = &r->engine.base,
                     .n_threads = 1,
                     .choose = &r->choose,
                     .folds = &r->folds,
                     .prefer = OQ_PREFER_ACCURACY,
                     .allow_static = true,
                     .allow_dynamic = true,
                     .max_float_units = SIZE_MAX,
                     .model = r->b.m,
                     .float_path = path,
                     .float_size = 2000,
                     .make = make,
                     .drop = drop,
                     .clock = fake_clock,
                     .ctx = r};
}

static void rig_begin(rig *r, scratch *files) {
    rig_begin_with(r, files, false);
}

static void rig_end(rig *r) {
    oq_tune_end(&r->t);
    oq_state_close(&r->t.state);
    for (size_t i = 0; i < r->n_made; i++)
        free(r->made[i]);
    oq_trials_release(&r->choose);
    oq_arena_release(&r->arena);
    assert_int_equal(r->engine.n_open, 0);
    bm_end(&r->b);
}

/* Samples for which there is no time are left out, but not all of them. */
static void filling_ends(void **state) {
    rig r;
    oq_source *source = NULL;
    oq_session *flt = NULL;
    oq_trials few, fewer;
    rig_begin_with(&r, *state, false);
    const oq_source_options so = {.spec = "random:8:1", .model = r.b.m};
    const oq_session_options o = {.model = r.b.m};
    oq_trials_init(&few, oq_alloc_default(), &r.meaning);
    few.until = oq_seconds() - 1;
    few.latest = few.until + 1000;
    assert_ok(oq_source_open(r.b.env, &so, &source, &r.err), r.err);
    assert_ok(oq_session_open(&r.engine.base, &o, &flt, &r.err), r.err);
    assert_ok(oq_trials_fill(&few, source, flt, 1 << 20, &r.err), r.err);
    assert_in_range(few.all.n, OQ_TRIALS_MIN, 7); /* several may be on their way */
    assert_int_equal(few.all.n + few.left_out, 8);
    oq_trials_release(&few);
    oq_trials_init(&fewer, oq_alloc_default(), &r.meaning);
    fewer.until = fewer.latest = oq_seconds() - 1;
    assert_ok(oq_source_seek(source, 0, &r.err), r.err);
    assert_ok(oq_trials_fill(&fewer, source, flt, 1 << 20, &r.err), r.err);
    assert_in_range(fewer.all.n, 1, OQ_TRIALS_MIN - 1);
    oq_trials_release(&fewer);
    oq_session_close(flt);
    oq_source_close(source);
    rig_end(&r);
}

static void want_sqnr(rig *r, double db) {
    const oq_target target = {OQ_METRIC_SQNR, db};
    assert_true(OQ_PUSH(&r->arena, &r->t.targets, target));
}

static void search(rig *r) {
    assert_ok(oq_tune_search(&r->t, &r->err), r->err);
}

static const oq_candidate *find(const rig *r, const char *label) {
    for (size_t i = 0; i < r->t.all.n; i++)
        if (strcmp(r->t.all.v[i]->label, label) == 0)
            return r->t.all.v[i];
    fail_msg("'%s' was not tried", label);
    return NULL;
}

static double db(const oq_candidate *c) {
    return oq_score_of(&c->score, OQ_METRIC_SQNR);
}

/* ---- whole models ---- */

/* Float first, then what needs no samples, then sets of operators, methods on the best of them, and
 * corrections, each once. */
static void order(void **state) {
    rig r;
    rig_begin(&r, *state);
    static const oq_recipe_option samples = {"data", "some"};
    r.t.samples = &samples;
    r.t.n_samples = 1;
    r.t.allow_qoperator = r.t.allow_nbits = r.t.allow_float16 = true;
    want_sqnr(&r, 400); /* nothing is enough */
    search(&r);
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
    assert_true(db(find(&r, "weights of 8 bits")) > db(find(&r, "dynamic")));
    assert_true(db(find(&r, "dynamic")) > db(find(&r, "op_set all")));
    assert_true(db(find(&r, "op_set all")) > db(find(&r, "weights of 4 bits")));
    rig_end(&r);
}

static size_t count_labels(const rig *r, const char *part) {
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
        rig r;
        size_t with = 0, without = 0;
        rig_begin(&r, *state);
        r.t.prefer = OQ_PREFER_SPEED;
        r.slow = "pays";
        r.t.allow_dynamic = false;
        r.idle = idle[k];
        want_sqnr(&r, 17);
        search(&r);
        assert_non_null(find(&r, "op_set noout, mse ranges"));
        /* They gain less than other ranges where they change nothing: once shows it. */
        assert_true(count_labels(&r, "percentile ranges") > 0);
        assert_int_equal(count_labels(&r, "noout, percentile ranges"), k == 0);
        for (size_t i = 0; i < r.n_made; i++) {
            const bool units = strstr(r.made[i], "node_methods") != NULL;
            with += units && strstr(r.made[i], "percentile") != NULL;
            without += units && strstr(r.made[i], "calibration_method") == NULL;
        }
        assert_true(k == 0 ? with > 0 && without == 0 : with == 0);
        rig_end(&r);
    }
    rig r;
    rig_begin(&r, *state);
    r.t.prefer = OQ_PREFER_SPEED;
    r.slow = "pays";
    r.t.allow_dynamic = false;
    r.idle = "bias_correction";
    want_sqnr(&r, 16);
    search(&r);
    assert_int_equal(count_labels(&r, "bias correction"), 1);
    rig_end(&r);
}

/* Where the first samples lose the target, neither the others nor the other folds are needed; where
 * they do not, each fold has its model. */
static void ends_what_is_lost(void **state) {
    rig r;
    rig_begin(&r, *state);
    want_sqnr(&r, 15);
    search(&r);
    oq_candidate *all = r.t.all.v[3], *dynamic = r.t.all.v[2];
    assert_string_equal(all->label, "op_set all");
    assert_true(all->partly && all->score.samples == 4);
    assert_true(!oq_targets_hold(&r.t.targets, &all->score));
    assert_true(!dynamic->partly && dynamic->score.samples == 8);
    const double some = db(all);
    assert_ok(oq_tune_complete(&r.t, all, &r.err), r.err);
    assert_true(!all->partly && all->score.samples == 8 && fabs(db(all) - some) < 3);
    size_t made[2] = {0};
    for (size_t i = 0; i < r.n_made; i++) {
        made[0] += strcmp(r.made[i], "onq static -i IN -o OUT --per_channel") == 0;
        made[1] += strcmp(r.made[i], "onq static -i IN -o OUT --per_channel --op_set pays "
                                     "--double_activations") == 0;
    }
    assert_int_equal(made[0], 1 + 2); /* the first fold, then both of them */
    assert_int_equal(made[1], 2);
    rig_end(&r);
}

/* Graphs inside are tried both ways; a language model begins with its weights. */
static void inner_graphs_and_language(void **state) {
    rig r;
    rig_begin(&r, *state);
    r.t.inner = r.t.language = r.t.allow_nbits = true;
    want_sqnr(&r, 400);
    search(&r);
    assert_string_equal(r.t.all.v[2]->label, "weights of 8 bits");
    assert_null(oq_recipe_get(&find(&r, "op_set all")->recipe, "enable_subgraph"));
    assert_non_null(
        oq_recipe_get(&find(&r, "op_set all, inner graphs")->recipe, "enable_subgraph"));
    assert_non_null(find(&r, "dynamic, inner graphs"));
    rig_end(&r);
}

/* What reaches the target and is as fast as anything can be ends the search. */
static void done_early(void **state) {
    rig r;
    oq_candidate *chosen = NULL;
    bool reached = false;
    rig_begin(&r, *state);
    r.t.prefer = OQ_PREFER_SPEED;
    want_sqnr(&r, 5);
    search(&r);
    for (size_t i = 0; i < r.t.all.n; i++)
        assert_null(strstr(r.t.all.v[i]->label, "double"));
    assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
    assert_true(reached);
    assert_non_null(strstr(chosen->label, "op_set pays"));
    rig_end(&r);
}

/* What is slower than the fastest set by less than a search is worth ends it as well. */
static void done_a_little_later(void **state) {
    double target = 0;
    for (int i = 0; i < 3; i++) {
        rig r;
        rig_begin(&r, *state);
        r.t.prefer = OQ_PREFER_SPEED;
        r.later = "outlier_channels";
        r.later_ms = i == 1 ? 0.15 : 0.5; /* of 10 that float takes */
        want_sqnr(&r, i == 0 ? 90 : target);
        search(&r);
        if (i == 0)
            target = db(find(&r, "op_set pays, outliers float")) - 0.5;
        else
            assert_int_equal(count_labels(&r, "mse") > 0, i == 2);
        rig_end(&r);
    }
}

/* ---- settling ---- */

/* The target becomes one that the candidate reaches, but its bound only with the slack. */
static void want_more_than_bound(rig *r, const oq_candidate *c) {
    const oq_figure *f = &c->score.figures[OQ_METRIC_SQNR];
    assert_true(f->bound < f->value);
    r->t.targets.v[0].value = f->bound + fmin((f->value - f->bound) / 2, 0.1);
    assert_true(oq_targets_hold(&r->t.targets, &c->score));
    assert_false(oq_tune_is_safe(&r->t, &c->score));
}

/* What reaches the target without any slack is not measured again. */
static void safe(void **state) {
    rig r;
    oq_candidate *chosen = NULL;
    bool reached = false;
    rig_begin(&r, *state);
    r.t.prefer = OQ_PREFER_SPEED;
    r.t.again = &r.again;
    want_sqnr(&r, 12);
    search(&r);
    assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
    assert_true(reached && oq_recipe_calibrates(&chosen->recipe));
    assert_true(oq_tune_is_safe(&r.t, &chosen->score));
    assert_int_equal(r.n_again, 0);
    assert_int_equal(chosen->report.samples, chosen->score.samples);
    rig_end(&r);
}

/* The one that is fastest does not reach the target when it is measured by another division: the
 * next safer one is taken, and what is no more accurate is not asked again. */
static void doubts(void **state) {
    rig r;
    oq_candidate *chosen = NULL;
    bool reached = false;
    rig_begin(&r, *state);
    r.t.prefer = OQ_PREFER_SPEED;
    r.t.allow_dynamic = false;
    r.t.again = &r.again;
    want_sqnr(&r, 12);
    search(&r);
    const oq_candidate *first = oq_choose(&r.t.all, &r.t.targets, r.t.prefer, &reached);
    assert_true(reached && oq_recipe_calibrates(&first->recipe));
    want_more_than_bound(&r, first);
    r.fold_noise = 4;
    assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
    assert_true(r.n_again >= 4);
    assert_true(first->doubted && !first->reached && chosen != first);
    assert_true(reached && oq_is_more_accurate(&r.t.targets, chosen, first));
    for (size_t i = 0; i < r.t.all.n; i++)
        assert_true(!r.t.all.v[i]->reached || r.t.all.v[i]->exact ||
                    !oq_recipe_calibrates(&r.t.all.v[i]->recipe) ||
                    oq_is_more_accurate(&r.t.targets, r.t.all.v[i], first));
    rig_end(&r);
}

/* Nothing holds: float, and not reached. */
static void nothing_holds(void **state) {
    rig r;
    oq_candidate *chosen = NULL;
    bool reached = true;
    rig_begin(&r, *state);
    r.t.prefer = OQ_PREFER_SPEED;
    r.t.allow_dynamic = false;
    r.t.again = &r.again;
    r.fold_noise = 1e6;
    want_sqnr(&r, 12);
    search(&r);
    const oq_candidate *best = NULL; /* and all others are less accurate */
    for (size_t i = 0; i < r.t.all.n; i++)
        if (!r.t.all.v[i]->exact && (best == NULL || db(r.t.all.v[i]) > db(best)))
            best = r.t.all.v[i];
    want_more_than_bound(&r, best);
    assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
    assert_true(!reached && chosen->exact);
    rig_end(&r);
}

/* Never slower than float as it was given, however accurate. */
static void never_slower(void **state) {
    rig r;
    oq_candidate *chosen = NULL;
    bool reached = false;
    rig_begin(&r, *state);
    r.t.prefer = OQ_PREFER_SPEED;
    r.slow = "onq";
    want_sqnr(&r, 5);
    search(&r);
    assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
    assert_true(reached && chosen->exact);
    rig_end(&r);
}

/* Three searches choose the same. */
static void the_same_again(void **state) {
    char label[128] = "";
    for (int i = 0; i < 3; i++) {
        rig r;
        oq_candidate *chosen = NULL;
        bool reached = false;
        rig_begin(&r, *state);
        r.t.prefer = OQ_PREFER_SPEED;
        r.t.again = &r.again;
        want_sqnr(&r, 20);
        search(&r);
        assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
        assert_true(reached);
        if (i > 0)
            assert_string_equal(chosen->label, label);
        snprintf(label, sizeof label, "%s", chosen->label);
        rig_end(&r);
    }
}

/* A quantized model that is there already is a candidate like any other. */
static void rival(void **state) {
    rig r;
    bm b;
    rig_begin(&r, *state);
    fill(&b, false, 0.01);
    r.t.rival = scratch_path(r.files, "rival.onnx");
    r.t.rival_size = 77;
    assert_ok(oq_model_save(b.m, r.t.rival, NULL, &r.err), r.err);
    bm_end(&b);
    want_sqnr(&r, 400);
    search(&r);
    assert_non_null(r.t.rival_found);
    assert_true(db(r.t.rival_found) > 30 && db(r.t.rival_found) < 60 && !r.t.rival_found->exact);
    assert_int_equal(r.t.rival_found->size, 77);
    rig_end(&r);
}

/* ---- what fails ---- */

static void a_failure_keeps_its_reason(void **state) {
    rig r;
    rig_begin(&r, *state);
    r.fails = "dynamic";
    want_sqnr(&r, 400);
    search(&r);
    const oq_candidate *c = find(&r, "dynamic");
    assert_false(c->ok);
    assert_null(c->path);
    assert_string_equal(c->why_not, "there is no kernel for it");
    assert_true(find(&r, "op_set all")->ok); /* the others were tried all the same */
    bool reached = false;
    assert_ptr_not_equal(oq_choose(&r.t.all, &r.t.targets, OQ_PREFER_SIZE, &reached), c);
    rig_end(&r);
}

/* Preparing fails: the model is taken as it is. */
static void cannot_be_prepared(void **state) {
    rig r;
    rig_begin(&r, *state);
    r.fails = "preprocess";
    want_sqnr(&r, 400);
    search(&r);
    assert_null(r.t.base);
    assert_true(find(&r, "op_set all")->ok);
    assert_null(find(&r, "op_set all")->recipe.after);
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
        want_sqnr(&r, 400);
        assert_true(oq_tune_is_fatal(codes[i]));
        assert_fails(oq_tune_search(&r.t, &r.err), codes[i], r.err, "no kernel");
        assert_non_null(strstr(r.made[r.n_made - 1], "noout"));
        rig_end(&r);
    }
    assert_false(oq_tune_is_fatal(ONQ_E_RUNTIME) || oq_tune_is_fatal(ONQ_E_UNSUPPORTED));
}

/* ---- time ---- */

static void time_ends(void **state) {
    rig r;
    rig_begin(&r, *state);
    r.t.deadline = oq_seconds() - 1;
    search(&r);
    assert_true(r.t.stopped);
    assert_int_equal(r.n_made, 0); /* not even float was measured */
    assert_true(r.t.flt != NULL && r.t.flt->ok && r.t.flt->score.samples == 0 && r.t.flt->ms > 0);
    assert_int_equal(r.t.missed, 1U << OQ_WAY_STATIC | 1U << OQ_WAY_DYNAMIC);
    assert_int_equal(r.t.turned, 0);
    rig_end(&r);
    rig_begin(&r, *state);
    r.stop_after = 2;
    search(&r);
    assert_true(r.t.stopped);
    assert_int_equal(r.n_made, 2); /* the second was begun in time, and given up */
    assert_int_equal(r.t.all.n, 3);
    assert_true(r.t.all.v[1]->ok && !r.t.all.v[2]->ok);
    assert_string_equal(r.t.all.v[2]->why_not, OQ_TUNE_NO_TIME);
    rig_end(&r);
}

/* Whatever the limit is, the answer is made by then: with all samples, and looked at. Where making
 * takes long and where running does. */
static void a_limit_is_kept(void **state) {
    static const double costs[][2] = {{1, 0.01}, {0.01, 1}, {0.5, 0.5}};
    for (size_t i = 0; i < OQ_COUNT(costs); i++) {
        for (double limit = 20; limit < 400; limit += 60) {
            rig r;
            oq_candidate *chosen = NULL;
            bool reached = false;
            rig_begin(&r, *state);
            r.t.prefer = OQ_PREFER_SPEED;
            r.slow = "pays";
            r.calibrating = costs[i][0];
            r.running = costs[i][1];
            r.t.now = fake_now;
            r.t.begin = fake_now(&r);
            r.t.deadline = r.t.begin + limit;
            want_sqnr(&r, 24);
            search(&r);
            assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
            const bool made = chosen != r.t.flt && oq_recipe_calibrates(&chosen->recipe);
            const double answer = made ? 8 * (r.calibrating + r.running) : 0;
            const double step = 4 * r.running + r.calibrating; /* between two looks */
            assert_true(fake_now(&r) + answer <= r.t.deadline + step);
            rig_end(&r);
        }
    }
}

/* Whatever it may cost, the answer is made within the limit; what a step takes is not known before.
 * Where nothing was left out, no limit would have found anything else. */
static void an_effort_is_kept(void **state) {
    static const double costs[][2] = {{0.004, 0.001}, {0.05, 0.01}, {0.3, 0.001}, {0.002, 0.02}};
    size_t n_left_out = 0, n_all = 0;
    for (size_t i = 0; i < OQ_COUNT(costs); i++) {
        char *unlimited = NULL;
        for (double effort = 0; effort < 200; effort += effort < 20 ? 5 : 30) {
            rig r;
            oq_candidate *chosen = NULL;
            bool reached = false;
            rig_begin(&r, *state);
            r.t.prefer = OQ_PREFER_SPEED;
            r.slow = "pays";
            r.t.again = &r.again;
            r.calibrating = costs[i][0];
            r.running = costs[i][1];
            r.t.cpu = fake_now;
            r.t.spending.began = fake_now(&r);
            r.t.effort = effort;
            want_sqnr(&r, 24);
            search(&r);
            assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
            const bool made = chosen != r.t.flt && oq_recipe_calibrates(&chosen->recipe);
            const double answer = made ? 8 * r.calibrating + 4 * r.running : 0;
            const double base = 24 * r.running; /* float, as it was given and prepared */
            const double spent = oq_tune_spent(&r.t) + answer;
            assert_true(effort == 0 || spent <= fmax(r.t.spending.limit, base) + r.calibrating);
            n_left_out += r.t.left_out.n > 0;
            n_all += effort > 0 && r.t.left_out.n == 0;
            if (effort == 0)
                unlimited = strdup(chosen->label);
            assert_true(effort > 0 || r.t.left_out.n == 0);
            if (r.t.left_out.n == 0)
                assert_string_equal(chosen->label, unlimited);
            rig_end(&r);
        }
        free(unlimited);
    }
    assert_true(n_left_out > 5 && n_all > 5);
}

/* What is given up while it is made is named, and is no news for a later search. */
static void what_costs_too_much(void **state) {
    rig r;
    rig_begin(&r, *state);
    want_sqnr(&r, 400);
    r.t.allow_dynamic = false;
    r.t.cpu = fake_now;
    r.calibrating = 0.9; /* the first guess is 0.015 s for a sample */
    r.t.effort = 30;
    search(&r);
    const oq_candidate *c = find(&r, "op_set all");
    assert_false(c->ok);
    assert_string_equal(c->why_not, OQ_TUNE_NO_EFFORT);
    assert_string_equal(r.t.left_out.v[0], "op_set all");
    assert_string_equal(r.t.left_out.v[1], "op_set noout"); /* which was not begun */
    assert_non_null(strstr(r.made[r.n_made - 1], "onq static -i IN -o OUT --per_channel"));
    assert_null(strstr(r.made[r.n_made - 1], "op_set"));
    assert_true(oq_tune_spent(&r.t) <= r.t.spending.limit && !r.t.stopped);
    rig_end(&r);
}

/* The one that is fastest cannot be measured again for what is left: it is not taken on trust. */
static void no_effort_to_confirm(void **state) {
    rig r;
    oq_candidate *chosen = NULL;
    bool reached = false;
    rig_begin(&r, *state);
    r.t.prefer = OQ_PREFER_SPEED;
    r.t.allow_dynamic = false;
    r.t.again = &r.again;
    want_sqnr(&r, 12);
    search(&r);
    const oq_candidate *first = oq_choose(&r.t.all, &r.t.targets, r.t.prefer, &reached);
    want_more_than_bound(&r, first);
    r.t.cpu = fake_now;
    r.t.spending.limit = 1e-9;
    assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
    assert_int_equal(r.n_again, 0);
    assert_true(chosen != first && (chosen->exact || oq_tune_is_safe(&r.t, &chosen->score)));
    rig_end(&r);
}

/* Candidates that have no time yet need some for it, as much as float took on this machine. */
static void timing_is_counted(void **state) {
    rig r;
    rig_begin(&r, *state);
    search(&r);
    r.t.clock = NULL;
    r.t.now = fake_now;
    r.t.flt->ms = 1000;
    r.t.raced = 0;
    const double one = oq_tune_race_seconds(&r.t, 1); /* the next candidate */
    assert_true(one >= 2 * 1.0);
    r.t.deadline = fake_now(&r) + r.t.slowest + one + 1;
    assert_true(oq_tune_has_time(&r.t, 0));
    assert_false(oq_tune_has_time(&r.t, 2));
    r.t.all.v[r.t.all.n - 1]->ms = 0;
    assert_true(r.t.all.v[r.t.all.n - 1]->ok);
    assert_false(oq_tune_has_time(&r.t, 0));
    r.t.raced = 100; /* on a busy machine */
    assert_true(oq_tune_race_seconds(&r.t, 1) >= 200);
    rig_end(&r);
}

/* Wherever the time is over, in whichever stage or while an answer is taken, no other candidate is
 * begun: at most the second half of the one that is being made. */
static void time_ends_every_stage(void **state) {
    bool stopped = true;
    size_t most = 0;
    for (size_t calls = 1; stopped; calls++) {
        rig r;
        oq_candidate *chosen = NULL;
        bool reached = false;
        rig_begin(&r, *state);
        r.t.prefer = OQ_PREFER_SPEED;
        r.slow = "pays";
        r.stop_after = calls;
        want_sqnr(&r, 24);
        search(&r);
        assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
        stopped = r.n_made >= calls;
        assert_true(r.n_made <= calls + 1);
        assert_non_null(chosen);
        most = calls;
        rig_end(&r);
    }
    assert_true(most > 20); /* it went through units and points too */
}

/* Units that gain nothing alone may gain together: where the set of those that pay is slow and
 * another one is fast, methods go on from that one, on all of its units. */
static void a_faster_set_than_what_pays(void **state) {
    rig r;
    oq_candidate *chosen = NULL;
    bool reached = false;
    rig_begin(&r, *state);
    r.t.prefer = OQ_PREFER_SPEED;
    r.slow = "pays";
    want_sqnr(&r, 22);
    search(&r);
    assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
    assert_true(reached && !chosen->exact && chosen->ms < 10);
    assert_string_equal(oq_recipe_get(&chosen->recipe, "op_set"), "noout");
    assert_non_null(find(&r, "op_set noout, double activations"));
    rig_end(&r);
}

/* ---- going on ---- */

/* What was measured is not made again; what failed is not tried again. */
static void goes_on_from_a_file(void **state) {
    rig first, second;
    const char *path = scratch_path(*state, "state.json");
    rig_begin(&first, *state);
    first.fails = "dynamic";
    want_sqnr(&first, 400);
    assert_ok(oq_state_open(&first.t.state, first.b.env, path, "a job", &first.err), first.err);
    first.stop_after = 4; /* prepared, dynamic, all operators, another that is given up */
    search(&first);
    rig_begin(&second, *state);
    want_sqnr(&second, 400);
    assert_ok(oq_state_open(&second.t.state, second.b.env, path, "a job", &second.err), second.err);
    search(&second);
    for (size_t i = 1; i < 4; i++) {
        const oq_candidate *was = first.t.all.v[i], *is = second.t.all.v[i];
        assert_string_equal(is->label, was->label);
        assert_true(is->ok == (i != 2) && is->ms == was->ms && is->size == was->size);
        assert_true(!is->ok || (db(is) == db(was) && is->score.figures[OQ_METRIC_SQNR].bound ==
                                                         was->score.figures[OQ_METRIC_SQNR].bound));
    }
    assert_string_equal(second.t.all.v[2]->why_not, "there is no kernel for it");
    assert_string_equal(second.made[0], "onq preprocess -i IN -o OUT"); /* what others begin with */
    assert_non_null(strstr(second.made[1], "noout"));                   /* the first that is new */
    rig_end(&first);
    rig_end(&second);
    /* Of another job it is refused. */
    rig_begin(&first, *state);
    assert_int_not_equal(
        oq_state_open(&first.t.state, first.b.env, path, "another job", &first.err), ONQ_OK);
    rig_end(&first);
}

/* ---- units ---- */

/* The noise of each unit alone is measured first, on models that are dropped again; then points of
 * the curve are made, until the fastest that reaches the targets is known. */
static void units(void **state) {
    rig r;
    oq_candidate *chosen = NULL;
    bool reached = false;
    rig_begin(&r, *state);
    r.t.allow_dynamic = false;
    r.t.prefer = OQ_PREFER_SPEED;
    r.slow = "pays";   /* though no unit gains alone, all together do */
    want_sqnr(&r, 24); /* what the noise of one unit leaves, but not that of two */
    search(&r);
    assert_non_null(r.t.choice);
    size_t points = 0;
    for (size_t i = 0; i < r.t.all.n; i++) {
        const oq_candidate *c = r.t.all.v[i];
        const char *of = strstr(c->label, " of 3 units in integers");
        if (of == NULL)
            continue;
        points++;
        assert_true(c->ok);
        assert_true((db(c) >= 24) == (c->label[0] <= '1'));
    }
    assert_true(points > 0);
    assert_ok(oq_tune_settle(&r.t, &chosen, &reached, &r.err), r.err);
    assert_true(reached && strncmp(chosen->label, "1 of 3 units", 12) == 0);
    rig_end(&r);
}

/* A model that leaves more units float than it may is none. */
static void float_units(void **state) {
    rig r;
    rig_begin(&r, *state);
    r.t.max_float_units = 2;
    r.t.allow_dynamic = false;
    want_sqnr(&r, 5);
    search(&r); /* the models of the test are float: all three units */
    for (size_t i = 2; i < r.t.all.n; i++) {
        assert_false(r.t.all.v[i]->ok);
        assert_string_equal(r.t.all.v[i]->why_not, "it leaves 3 units float (--max_float_units 2)");
    }
    assert_true(r.t.all.n >= 5);
    rig_end(&r);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_setup, scratch_teardown)
    const struct CMUnitTest tests[] = {
        TEST(filling_ends),
        TEST(order),
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
        TEST(a_failure_keeps_its_reason),
        TEST(cannot_be_prepared),
        TEST(what_ends_the_search),
        TEST(an_effort_is_kept),
        TEST(what_costs_too_much),
        TEST(no_effort_to_confirm),
        TEST(time_ends),
        TEST(time_ends_every_stage),
        TEST(a_limit_is_kept),
        TEST(timing_is_counted),
        TEST(a_faster_set_than_what_pays),
        TEST(goes_on_from_a_file),
        TEST(units),
        TEST(float_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
