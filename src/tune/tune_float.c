/*
 * tune_float.c — float models: as it was given, and prepared. Rewrites that change nothing but the
 * speed are timed here, and those that make it slower on this machine are left out. So are the
 * shapes that preparing declares: with them the runtime fuses an Add into a normalization, and its
 * kernel for both may be the slower one.
 */
#include "onnx/graph.h"
#include "onnx/operators.h"
#include "prepare/rewrite.h"
#include "tune/tune.h"
#include "tune/units/units.h"

#include <math.h>

/* A rewrite lets integers do more, so noise alone does not drop it. */
#define FLOAT_PART    0.15
#define SLOWER        1.04
#define EXACT_SAMPLES 1 /* of each fold */
/* Without shapes it must be faster by this much, and the clock runs this many times as long. */
#define SHAPES_COST   0.04
#define SHAPES_LONGER 2

static const char *const set_words[] = {
#define ROW(id, word) word,
    OQ_REWRITE_SETS(ROW)
#undef ROW
};

/* The sets of rewrites that find something to do in a model. */
static onq_code sets_that_apply(oq_tune *t, const char *path, unsigned *sets, onq_error *err) {
    static const oq_rewrite_set set_of[] = {
#define OQ_REWRITE(set, name, ops, what) OQ_REWRITE_##set,
#include "prepare/fuse/rewrite.def"
#undef OQ_REWRITE
    };
    oq_model *m = NULL;
    oq_rewrite_report report = {{0}};
    unsigned all = 0;
    *sets = 0;
    if (!oq_rewrite_word(OQ_S("all"), &all))
        return ONQ_OK;
    OQ_TRY(oq_model_open(t->env, path, &t->open, &m, err));
    const onq_code rc = oq_rewrite(m, all, &report, err);
    for (int i = 0; i < OQ_REWRITE_ROW_COUNT && rc == ONQ_OK; i++)
        *sets |= report.counts[i] > 0 ? 1U << set_of[i] : 0;
    oq_model_free(m);
    return rc;
}

static bool is_exact(const oq_candidate *c) {
    const double same = oq_score_of(&c->score, OQ_METRIC_AGREEMENT);
    return oq_score_of(&c->score, OQ_METRIC_SQNR) >= OQ_EXACT_DB && (isnan(same) || same >= 99.9);
}

/* *out NULL: it cannot be made, or is not the same model. */
static onq_code try_exact(oq_tune *t, const oq_recipe *r, const char *label, oq_candidate **out,
                          onq_error *err) {
    t->few = EXACT_SAMPLES; /* the same model, or another one: a few show it */
    const onq_code rc = oq_tune_try(t, r, label, out, err);
    t->few = 0;
    OQ_TRY(rc);
    if (*out == NULL)
        return ONQ_OK;
    (*out)->exact = is_exact(*out);
    if (!(*out)->exact) {
        (*out)->ok = false;
        (*out)->why_not = "prepared, it computes something else than the model that was given";
        *out = NULL;
    }
    return ONQ_OK;
}

/* Preprocessing with these rewrites, and an option besides. */
static onq_code prepare(oq_tune *t, unsigned sets, const char *name, const char *value,
                        oq_candidate **out, onq_error *err) {
    oq_recipe r = {.command = "preprocess", .prepares = true};
    oq_buf words;
    oq_buf_init(&words, &t->env->alloc);
    for (unsigned i = 0; i < OQ_COUNT(set_words); i++)
        if (sets & 1U << i)
            oq_buf_addf(&words, "%s%s", words.n > 0 ? "," : "", set_words[i]);
    const oq_str label = words.n == 0 ? OQ_S("float, prepared")
                                      : oq_str_format(t->arena, "float, prepared, %s", words.p);
    const char *list = words.n > 0 ? oq_arena_strdup(t->arena, words.p, words.n) : NULL;
    const bool failed = words.failed || label.p == NULL || (words.n > 0 && list == NULL);
    oq_buf_release(&words);
    if (failed)
        return oq_fail_nomem(err);
    if (list != NULL)
        OQ_TRY(oq_recipe_add(&r, t->arena, "rewrite", list, err));
    if (name != NULL)
        OQ_TRY(oq_recipe_add(&r, t->arena, name, value, err));
    return try_exact(t, &r, label.p, out, err);
}

/* Of a limited time float has a part, and integers the rest. */
static bool has_time(const oq_tune *t) {
    return t->deadline <= 0 || oq_tune_now(t) - t->begin < FLOAT_PART * (t->deadline - t->begin);
}

/* The rewrites of the sets without set i, and with it, as far as they were made: what it does to the
 * time. Of two sets the second is seen beside the model without any. */
typedef struct left_out {
    oq_candidate *without, *with;
} left_out;

static onq_code leave_each_out(oq_tune *t, unsigned sets, oq_candidate *plain, oq_candidate *all,
                               left_out *v, onq_error *err) {
    oq_candidate *alone = NULL; /* with one set, where there are two */
    for (unsigned i = 0; i < OQ_COUNT(set_words); i++) {
        const unsigned rest = sets & ~(1U << i);
        if (!(sets & 1U << i))
            continue;
        v[i] = (left_out){.with = all};
        if (rest == 0) {
            v[i].without = plain;
        } else if (alone != NULL) {
            v[i] = (left_out){.without = plain, .with = alone};
        } else if (has_time(t)) {
            OQ_TRY(prepare(t, rest, NULL, NULL, &v[i].without, err));
            alone = (rest & (rest - 1)) == 0 ? v[i].without : NULL;
        }
    }
    return oq_tune_time(t, err);
}

/* All that apply, without those that make it slower: each is left out in turn. */
static onq_code drop_slow_rewrites(oq_tune *t, unsigned sets, oq_candidate *plain,
                                   oq_candidate **best, onq_error *err) {
    left_out v[OQ_COUNT(set_words)] = {{0}};
    oq_candidate *all = NULL;
    unsigned kept = sets;
    *best = plain;
    OQ_TRY(prepare(t, sets, NULL, NULL, &all, err));
    if (all == NULL)
        return ONQ_OK;
    OQ_TRY(leave_each_out(t, sets, plain, all, v, err));
    for (unsigned i = 0; i < OQ_COUNT(set_words); i++)
        if (v[i].without != NULL && v[i].with->ms >= SLOWER * v[i].without->ms)
            kept &= ~(1U << i);
    if (kept == 0)
        return ONQ_OK;
    OQ_TRY(prepare(t, kept, NULL, NULL, best, err));
    OQ_TRY(oq_tune_time(t, err));
    if (*best == NULL)
        *best = all;
    return ONQ_OK;
}

static onq_code try_prepared(oq_tune *t, oq_candidate **best, onq_error *err) {
    oq_candidate *plain = NULL;
    unsigned sets = 0;
    *best = NULL;
    OQ_TRY(prepare(t, 0, NULL, NULL, &plain, err));
    if (plain == NULL) {
        OQ_TRY(prepare(t, 0, "optimizer", "builtin", best, err));
        return oq_tune_time(t, err);
    }
    OQ_TRY(oq_tune_ensure(t, plain, err));
    OQ_TRY(sets_that_apply(t, plain->path, &sets, err));
    *best = plain;
    if (sets == 0)
        return ONQ_OK;
    OQ_TRY(drop_slow_rewrites(t, sets, plain, best, err));
    const char *words = oq_recipe_get(&(*best)->recipe, "rewrite");
    if (!(sets & 1U << OQ_REWRITE_CONV1D) || (words != NULL && strstr(words, "conv1d") != NULL))
        return ONQ_OK;
    /* In float a Conv over one axis is faster as it is; in integers it may be a MatMul. */
    oq_candidate *other = NULL;
    OQ_TRY(prepare(t, sets, NULL, NULL, &other, err));
    t->other_base = other;
    return oq_tune_time(t, err);
}

/* ---- shapes ---- */

/* What is in a model that makes the runtime fuse more with shapes than without. */
typedef struct fusable {
    bool normalizes, open; /* open: a size is only known when it runs */
} fusable;

static bool is_open(const oq_value_info *v) {
    const oq_tensor_type *t = v->type != NULL ? v->type->tensor_type : NULL;
    for (size_t i = 0; t != NULL && t->shape != NULL && i < t->shape->dim.n; i++)
        if (!t->shape->dim.v[i]->dim_value.has)
            return true;
    return false;
}

/* Where all sizes are known the runtime finds the shapes by itself. */
static onq_code see_fusable(void *ctx, oq_graph *g, onq_error *err OQ_UNUSED) {
    fusable *f = ctx;
    for (size_t i = 0; i < g->node.n && !f->normalizes; i++)
        f->normalizes = oq_node_is(g->node.v[i], "LayerNormalization") ||
                        oq_node_is(g->node.v[i], "SimplifiedLayerNormalization") ||
                        oq_node_is(g->node.v[i], "ReduceMean");
    for (size_t i = 0; i < g->value_info.n && !f->open; i++)
        f->open = is_open(g->value_info.v[i]);
    return ONQ_OK;
}

static onq_code may_fuse(oq_tune *t, oq_candidate *c, bool *out, onq_error *err) {
    fusable f = {0};
    oq_model *m = NULL;
    OQ_TRY(oq_tune_ensure(t, c, err));
    OQ_TRY(oq_model_open(t->env, c->path, &t->open, &m, err));
    const onq_code rc = oq_walk_graphs(m->proto->graph, see_fusable, &f, err);
    oq_model_free(m);
    *out = f.normalizes && f.open;
    return rc;
}

/* Side by side, unless an earlier run did it. */
static onq_code time_both(oq_tune *t, oq_candidate *with, oq_candidate *without, onq_error *err) {
    oq_candidate *both[] = {with, without};
    if (without->ms > 0)
        return ONQ_OK;
    OQ_TRY(oq_tune_race(t, both, OQ_COUNT(both), SHAPES_LONGER * oq_tune_clock_seconds(t), err));
    for (size_t i = 0; i < OQ_COUNT(both); i++)
        OQ_TRY(oq_tune_remember(t, both[i], err));
    return ONQ_OK;
}

/* The prepared model without shapes, as the last step, which recipes get from then on. What they
 * begin with keeps its shapes: what is quantized hangs on some. */
static onq_code try_without_shapes(oq_tune *t, oq_candidate *best, oq_candidate **out,
                                   onq_error *err) {
    static const char *const options[] = {"skip_optimization", "skip_symbolic_shape",
                                          "skip_onnx_shape"};
    oq_recipe r = {.command = "preprocess", .drops_shapes = true, .after = &best->recipe};
    oq_candidate *c = NULL;
    bool may = false;
    OQ_TRY(may_fuse(t, best, &may, err));
    if (!may)
        return ONQ_OK;
    for (size_t i = 0; i < OQ_COUNT(options); i++)
        OQ_TRY(oq_recipe_add(&r, t->arena, options[i], NULL, err));
    const oq_str label = oq_str_format(t->arena, "%s, without shapes", best->label);
    OQ_TRY_ALLOC(label.p != NULL, err);
    OQ_TRY(try_exact(t, &r, label.p, &c, err));
    if (c == NULL)
        return ONQ_OK;
    OQ_TRY(time_both(t, best, c, err));
    t->drops_shapes = oq_is_clearly_faster(c, best, SHAPES_COST);
    *out = t->drops_shapes ? c : NULL;
    return ONQ_OK;
}

/* *bare: the same without shapes, if that is faster. */
static onq_code find_best(oq_tune *t, oq_candidate **best, oq_candidate **bare, onq_error *err) {
    OQ_TRY(try_prepared(t, best, err));
    return *best != NULL && t->other_base == NULL && has_time(t)
               ? try_without_shapes(t, *best, bare, err)
               : ONQ_OK;
}

onq_code oq_tune_set_base(oq_tune *t, oq_candidate *c, onq_error *err) {
    oq_model *m = NULL;
    if (c != NULL && c != t->flt)
        OQ_TRY(oq_tune_ensure(t, c, err));
    OQ_TRY(oq_model_open(t->env, c != NULL ? c->path : t->float_path, &t->open, &m, err));
    oq_model_free(t->base_model);
    t->base_model = m;
    t->base = c != NULL && c != t->flt ? &c->recipe : NULL;
    t->base_float = c != NULL ? c : t->flt;
    return oq_tune_find_units(t, m, err);
}

/* Opening it once more, scoring it, which takes no longer than to run it, and its clock. */
static double seconds_for_float(const oq_tune *t) {
    const oq_trials *set = t->choose;
    const double each = set->seconds / (double)set->steps.n;
    return 2 * t->opened + set->seconds + OQ_CLOCK_ROUNDS * each;
}

/* There is no time for anything but float, nor for its clock: what its samples took must do. */
static onq_code add_untimed(oq_tune *t, const oq_candidate *given, onq_error *err) {
    oq_candidate *c = OQ_NEW(t->arena, oq_candidate);
    OQ_TRY_ALLOC(c != NULL, err);
    *c = *given;
    c->score = oq_score_none();
    c->predicted = NAN;
    c->ms = 1e3 * t->choose->seconds / (double)t->choose->steps.n;
    c->ok = t->stopped = true;
    t->flt = c;
    OQ_TRY_ALLOC(OQ_PUSH(t->arena, &t->all, c), err);
    return oq_tune_set_base(t, NULL, err);
}

onq_code oq_tune_floats(oq_tune *t, onq_error *err) {
    const oq_candidate given = {
        .label = "float", .exact = true, .path = t->float_path, .size = t->float_size};
    oq_candidate *flt = NULL, *best = NULL, *bare = NULL;
    const size_t most = t->max_float_units;
    if (t->evaluate == NULL && !oq_tune_has_time(t, seconds_for_float(t)))
        return add_untimed(t, &given, err);
    OQ_TRY(oq_tune_session(t, t->model, t->n_threads, &t->beside, err));
    OQ_TRY(oq_tune_add_model(t, &given, &flt, err));
    t->max_float_units = SIZE_MAX;
    const onq_code rc = has_time(t) ? find_best(t, &best, &bare, err) : ONQ_OK;
    t->max_float_units = most;
    OQ_TRY(rc);
    if (best == NULL && !t->stopped && has_time(t))
        oq_warn(t->env, "the model is taken as it is: preparing failed: %.300s",
                t->all.v[t->all.n - 1]->why_not != NULL ? t->all.v[t->all.n - 1]->why_not : "");
    OQ_TRY(oq_tune_set_base(t, best, err));
    t->base_float = bare != NULL ? bare : t->base_float;
    return ONQ_OK;
}
