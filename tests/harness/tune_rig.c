/*
 * tune_rig.c — see tune_rig.h.
 */
#include "tune_rig.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void tune_rig_model(bm *b, bool large, double noise) {
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
static double quality(const tune_rig *r, const char *text) {
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
    if (strstr(text, "node_methods") != NULL) {
        const double doubled = r->doubled > 0 ? (double)count(text, "\":\"double") : 0;
        noise = 0.02 * ((double)(count(text, "\":\"") - count(text, "\":\"float")) - doubled) +
                r->doubled * doubled;
        if (doubled > 0 && strstr(text, "learned_rounding") != NULL)
            noise /= 2;
    }
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

double tune_rig_now(void *ctx) {
    const tune_rig *r = ctx;
    return r->passed + r->running * (double)r->engine.n_runs;
}

double tune_rig_slowness(void *ctx) {
    const tune_rig *r = ctx;
    const double least = 1.05; /* runs differ on a quiet machine, too */
    return least * (r->busy > 0 && tune_rig_now(ctx) >= r->busy_from ? r->busy : 1);
}

double tune_rig_cpu(void *ctx) {
    const tune_rig *r = ctx;
    const double quiet = tune_rig_now(ctx);
    return quiet + fmax(0, r->busy - 1) * fmax(0, quiet - r->busy_from);
}

/* Calibrates sample by sample until there is no time left, as commands inside of a search do. */
static onq_code calibrate(tune_rig *r, const oq_fold *fold, onq_error *err) {
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
    tune_rig *r = ctx;
    const bool again = is_of(&r->again, fold);
    char name[32];
    assert_true(r->n_made < TUNE_RIG_CALLS);
    r->made[r->n_made++] = text_of(recipe);
    const char *said = r->made[r->n_made - 1];
    if (r->fails != NULL && strstr(said, r->fails) != NULL)
        return oq_fail(err, r->failure, "there is no kernel for it");
    OQ_TRY(calibrate(r, fold, err));
    bm b;
    r->n_again += again;
    tune_rig_model(&b, r->large, quality(r, said) * (again ? r->fold_noise : 1));
    if (r->shapes_ms > 0) {
        bm_node(&b, "ReduceMean", "mean", "x", "m", "axes=[-1]");
        bm_info(&b, "m", OQ_FLOAT, "n,1");
    }
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
    const tune_rig *r = ctx;
    double ms = 10;
    const bool bare = c->recipe.drops_shapes && c->recipe.after != NULL;
    if (c->exact || c->recipe.command == NULL || c->recipe.prepares)
        return ms;
    if (bare && strcmp(c->recipe.command, "preprocess") == 0)
        return ms - r->shapes_ms;
    char *text = text_of(&c->recipe);
    ms = strstr(text, "noout") != NULL ? 5.5 : strstr(text, "pays") != NULL ? 5 : 6;
    ms += strstr(text, "double_activations") != NULL ? 3 : 0;
    ms += 0.5 * (double)count(text, "\":\"float");
    if (r->later != NULL && strstr(text, r->later) != NULL)
        ms += r->later_ms;
    if (r->slow != NULL && strstr(text, r->slow) != NULL)
        ms = 20;
    if (strstr(text, "LSTM") != NULL) /* after integers it takes what they left */
        ms = c->recipe.after != NULL && strcmp(c->recipe.after->command, "static") == 0 ? 3 : 8;
    free(text);
    return bare ? ms - r->shapes_ms : ms;
}

static void drop(void *ctx, const char *path) {
    tune_rig *r = ctx;
    assert_int_equal(remove(path), 0);
    r->n_dropped++;
}

void tune_rig_begin(tune_rig *r, scratch *files, bool large) {
    oq_source *source = NULL;
    oq_session *flt = NULL;
    *r = (tune_rig){.files = files,
                    .large = large,
                    .err = ONQ_ERROR_INIT,
                    .failure = ONQ_E_UNSUPPORTED,
                    .fold_noise = 1};
    r->meaning = (oq_meaning){.links = r->links, .n = 1, .classes = 1};
    onq_error *err = &r->err;
    tune_rig_model(&r->b, large, 0);
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
    assert_ok(oq_trials_look(&r->choose, err), *err);
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

void tune_rig_end(tune_rig *r) {
    oq_tune_end(&r->t);
    oq_state_close(&r->t.state);
    for (size_t i = 0; i < r->n_made; i++)
        free(r->made[i]);
    oq_trials_release(&r->choose);
    oq_arena_release(&r->arena);
    assert_int_equal(r->engine.n_open, 0);
    bm_end(&r->b);
}

void tune_rig_want(tune_rig *r, double db) {
    const oq_target target = {OQ_METRIC_SQNR, db};
    assert_true(OQ_PUSH(&r->arena, &r->t.targets, target));
}

void tune_rig_search(tune_rig *r) {
    assert_ok(oq_tune_search(&r->t, &r->err), r->err);
}

const oq_candidate *tune_rig_find(const tune_rig *r, const char *label) {
    for (size_t i = 0; i < r->t.all.n; i++)
        if (strcmp(r->t.all.v[i]->label, label) == 0)
            return r->t.all.v[i];
    fail_msg("'%s' was not tried", label);
    return NULL;
}

double tune_rig_db(const oq_candidate *c) {
    return oq_score_of(&c->score, OQ_METRIC_SQNR);
}

void tune_rig_want_more(tune_rig *r, const oq_candidate *c) {
    const oq_figure *f = &c->score.figures[OQ_METRIC_SQNR];
    assert_true(f->bound < f->value);
    r->t.targets.v[0].value = f->bound + fmin((f->value - f->bound) / 2, 0.3);
    assert_true(oq_targets_hold(&r->t.targets, &c->score));
    assert_false(oq_tune_is_safe(&r->t, &c->score));
}
