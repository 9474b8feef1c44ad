/*
 * tune_stages.c — the stages of the search: whole models, then what refines the best of them.
 */
#include "tune/tune.h"
#include "tune/units/units.h"

#include <math.h>

onq_code oq_tune_static(oq_tune *t, oq_recipe *r, onq_error *err) {
    *r = (oq_recipe){.command = "static", .after = t->base};
    OQ_TRY(oq_recipe_add(r, t->arena, "per_channel", NULL, err));
    for (size_t i = 0; i < t->n_samples; i++)
        OQ_TRY(oq_recipe_add(r, t->arena, t->samples[i].name, t->samples[i].value, err));
    return ONQ_OK;
}

/* ---- whole models ---- */

/* Which operators are quantized at all: of all choices the one with the largest effect. */
static const struct {
    const char *label, *op_set;
} op_sets[] = {
    {"op_set all", NULL},
    {"op_set noout", "noout"},
    {"op_set linear", "linear"},
    {"op_set pays", "pays"},
};
#define SET_LINEAR 2 /* other than the one before it in outputs of MatMul and Gemm alone */

/* For labels. */
static const char *words_of_base(const oq_tune *t) {
    return t->base != NULL && t->base_float == t->other_base ? ", Conv over one axis as MatMul"
                                                             : "";
}

/* With the graphs inside of If, Loop and Scan quantized too, and without. */
static onq_code try_op_set(oq_tune *t, const char *label, const char *op_set, onq_error *err) {
    oq_candidate *v[2] = {NULL, NULL};
    for (int inner = 0; inner <= (t->inner ? 1 : 0); inner++) {
        oq_recipe r;
        OQ_TRY(oq_tune_static(t, &r, err));
        if (op_set != NULL)
            OQ_TRY(oq_recipe_add(&r, t->arena, "op_set", op_set, err));
        if (inner)
            OQ_TRY(oq_recipe_add(&r, t->arena, "enable_subgraph", NULL, err));
        const oq_str text = oq_str_format(t->arena, "%s%s%s", label, inner ? ", inner graphs" : "",
                                          words_of_base(t));
        OQ_TRY_ALLOC(text.p != NULL, err);
        OQ_TRY(oq_tune_try(t, &r, text.p, &v[inner], err));
    }
    /* The same model twice: nothing in there can be quantized. */
    if (v[0] != NULL && v[1] != NULL && v[0]->size == v[1]->size &&
        v[0]->score.objective == v[1]->score.objective)
        t->inner = false;
    return ONQ_OK;
}

#define FAR_SLOWER 1.5 /* no other set makes up for it */
#define CLEARLY_DB 2
#define TIME_A_DB  0.05 /* of the time, that a dB is worth */
#define IN_FLOAT   1.15 /* times the set: with results in float, for what biases hide of their gain */

/* The set with results of Conv in float, where it was tried and is worth its time; else NULL. */
static oq_candidate *with_floats(const oq_tune *t, const oq_candidate *set) {
    for (size_t i = 0; i < t->all.n; i++) {
        oq_candidate *c = t->all.v[i];
        const double gain = c->score.objective - set->score.objective;
        if (oq_tune_is_static(c) && oq_recipe_get(&c->recipe, OQ_TUNE_POINTWISE) != NULL &&
            oq_recipe_adds(&set->recipe, &c->recipe, OQ_TUNE_POINTWISE) &&
            !oq_score_is_wrong(&c->score) && gain > 0 &&
            c->ms < fmin(FAR_SLOWER, IN_FLOAT + TIME_A_DB * gain) * set->ms)
            return c;
    }
    return NULL;
}

/* The set "pays" need not be the fastest: units that gain nothing alone may gain between others. */
oq_candidate *oq_tune_fastest_set(const oq_tune *t, const oq_recipe *base) {
    oq_candidate *best = NULL, *floats = NULL;
    for (size_t i = 0; i < t->all.n; i++) {
        oq_candidate *c = t->all.v[i];
        const char *set = oq_recipe_get(&c->recipe, "op_set");
        if (!oq_tune_is_static(c) || set == NULL || c->recipe.after != base ||
            oq_recipe_get(&c->recipe, OQ_TUNE_POINTWISE) != NULL ||
            c->recipe.options.n >
                t->n_samples + 2 + (oq_recipe_get(&c->recipe, "enable_subgraph") != NULL))
            continue;
        const bool pays = strcmp(set, "pays") == 0;
        if (oq_score_is_wrong(&c->score))
            continue;
        /* Where it is no slower, fewer units in integers are less noise. */
        if (best == NULL || c->ms < (pays ? OQ_SET_FASTER : 1 / OQ_SET_FASTER) * best->ms)
            best = c;
    }
    if (best != NULL)
        floats = with_floats(t, best);
    return floats != NULL ? floats : best;
}

/* All sets but that of all operators; the one that pays first, which seldom is far from the fastest.
 */
static onq_code try_sets_of_other(oq_tune *t, const oq_candidate *before, onq_error *err) {
    for (size_t i = OQ_COUNT(op_sets); i-- > 1;) {
        OQ_TRY(try_op_set(t, op_sets[i].label, op_sets[i].op_set, err));
        OQ_TRY(oq_tune_time(t, err));
        const oq_candidate *after = oq_tune_fastest_set(t, t->base);
        if (before != NULL && after != NULL && after->ms > FAR_SLOWER * before->ms)
            break;
    }
    return ONQ_OK;
}

bool oq_tune_is_better_base(const oq_candidate *now, const oq_candidate *other) {
    if (other == NULL || now == NULL)
        return other != NULL;
    const double gain = other->score.objective - now->score.objective;
    return other->ms < now->ms / OQ_SET_FASTER ||
           (gain > CLEARLY_DB && other->ms < fmin(FAR_SLOWER, 1 + TIME_A_DB * gain) * now->ms);
}

static onq_code try_dynamic(oq_tune *t, onq_error *err) {
    /* Convolutions of integers whose ranges are found while they run take several times as long as
     * float ones. */
    if (!t->allow_dynamic || (t->mostly_conv && t->allow_static))
        return ONQ_OK;
    for (int inner = 0; inner <= (t->inner || t->inner_lstm ? 1 : 0); inner++) {
        oq_candidate *c = NULL;
        oq_recipe r = {.command = "dynamic", .after = t->base};
        OQ_TRY(oq_recipe_add(&r, t->arena, "per_channel", NULL, err));
        if (inner)
            OQ_TRY(oq_recipe_add(&r, t->arena, "enable_subgraph", NULL, err));
        const oq_str text =
            oq_str_format(t->arena, "dynamic%s%s", inner ? ", inner graphs" : "", words_of_base(t));
        OQ_TRY_ALLOC(text.p != NULL, err);
        OQ_TRY(oq_tune_try(t, &r, text.p, &c, err));
    }
    return ONQ_OK;
}

/* What was mostly convolution may be products now, whose ranges can be found while they run. */
static onq_code try_other_base(oq_tune *t, onq_error *err) {
    oq_candidate *before = NULL, *first = t->base_float;
    if (t->other_base == NULL || !t->allow_static)
        return ONQ_OK;
    OQ_TRY(oq_tune_time(t, err));
    before = oq_tune_fastest_set(t, t->base);
    OQ_TRY(oq_tune_set_base(t, t->other_base, err));
    OQ_TRY(try_sets_of_other(t, before, err));
    return oq_tune_is_better_base(before, oq_tune_fastest_set(t, t->base))
               ? try_dynamic(t, err)
               : oq_tune_set_base(t, first, err);
}

/* The recipe that everybody begins with. */
static onq_code try_plain(oq_tune *t, onq_error *err) {
    oq_candidate *c = NULL;
    oq_recipe r = {.command = "static", .after = t->base};
    for (size_t i = 0; i < t->n_samples; i++)
        OQ_TRY(oq_recipe_add(&r, t->arena, t->samples[i].name, t->samples[i].value, err));
    return oq_tune_try(t, &r, "op_set all, per tensor", &c, err);
}

static onq_code try_static(oq_tune *t, onq_error *err) {
    if (!t->allow_static)
        return ONQ_OK;
    for (size_t i = 0; i < OQ_COUNT(op_sets); i++)
        if (t->has_matmul || i != SET_LINEAR)
            OQ_TRY(try_op_set(t, op_sets[i].label, op_sets[i].op_set, err));
    OQ_TRY(try_other_base(t, err));
    return try_plain(t, err);
}

static onq_code try_qoperator(oq_tune *t, onq_error *err) {
    oq_candidate *c = NULL;
    oq_recipe r;
    if (!t->allow_qoperator)
        return ONQ_OK;
    OQ_TRY(oq_tune_static(t, &r, err));
    OQ_TRY(oq_recipe_add(&r, t->arena, "quant_format", "qoperator", err));
    return oq_tune_try(t, &r, "integer operators", &c, err);
}

/* Weights only; the products are computed in float, or by integers as the runtime likes. */
typedef struct weight_way {
    const char *label, *bits, *method;
    bool tables;  /* of embeddings too, which makes a small file */
    bool learned; /* from samples, which takes long: where 4 bits do not do without */
} weight_way;

static const weight_way weights[] = {
    {"weights of 8 bits", "8", NULL, false, false},
    {"weights of 4 bits", "4", NULL, false, false},
    {"weights of 4 bits, hqq", "4", "hqq", false, false},
    {"weights of 4 bits, gptq_hqq", "4", "gptq_hqq", false, true},
    {"weights and tables of 8 bits", "8", NULL, true, false},
    {"weights and tables of 4 bits", "4", NULL, true, false},
};

static onq_code weight_recipe(oq_tune *t, const weight_way *w, oq_recipe *r, onq_error *err) {
    *r = (oq_recipe){.command = "nbits", .after = t->base};
    OQ_TRY(oq_recipe_add(r, t->arena, "bits", w->bits, err));
    OQ_TRY(oq_recipe_add(r, t->arena, "accuracy_level", "4", err));
    if (w->method != NULL)
        OQ_TRY(oq_recipe_add(r, t->arena, "quant_method", w->method, err));
    if (w->tables) {
        OQ_TRY(oq_recipe_add(r, t->arena, "op_types_to_quantize", "MatMul,Gather", err));
        OQ_TRY(oq_recipe_add(r, t->arena, "all_weights", NULL, err));
    }
    if (!w->learned)
        return ONQ_OK;
    OQ_TRY(oq_recipe_add(r, t->arena, "mse", NULL, err));
    OQ_TRY(oq_recipe_add(r, t->arena, "actorder", NULL, err));
    for (size_t i = 0; i < t->n_samples; i++)
        OQ_TRY(oq_recipe_add(r, t->arena, t->samples[i].name, t->samples[i].value, err));
    return ONQ_OK;
}

static bool do_with_few_bits(const oq_tune *t) {
    for (size_t i = 0; i < t->all.n; i++) {
        const oq_candidate *c = t->all.v[i];
        const char *bits = oq_recipe_get(&c->recipe, "bits");
        if (c->ok && bits != NULL && strcmp(bits, "4") == 0 &&
            oq_targets_hold(&t->targets, &c->score))
            return true;
    }
    return false;
}

static onq_code try_nbits(oq_tune *t, onq_error *err) {
    for (size_t i = 0; i < OQ_COUNT(weights) && t->allow_nbits; i++) {
        oq_candidate *c = NULL;
        oq_recipe r;
        const weight_way *w = &weights[i];
        if ((w->tables && t->prefer != OQ_PREFER_SIZE) ||
            (w->learned && (!t->language || do_with_few_bits(t))))
            continue;
        OQ_TRY(weight_recipe(t, w, &r, err));
        OQ_TRY(oq_tune_try(t, &r, w->label, &c, err));
    }
    return ONQ_OK;
}

/* Preprocessing that does this and nothing else. */
static onq_code half_recipe(oq_tune *t, oq_recipe *r, const char *what, onq_error *err) {
    *r = (oq_recipe){.command = "preprocess"};
    OQ_TRY(oq_recipe_add(r, t->arena, "float16", what, err));
    OQ_TRY(oq_recipe_add(r, t->arena, "skip_optimization", NULL, err));
    OQ_TRY(oq_recipe_add(r, t->arena, "skip_symbolic_shape", NULL, err));
    return oq_recipe_add(r, t->arena, "skip_onnx_shape", NULL, err);
}

/* Weights alone take half of the file at float's speed; computing in float16 pays where the
 * provider has kernels for it. `after` has some of the model in integers; NULL: none. */
static onq_code try_float16(oq_tune *t, const oq_candidate *after, onq_error *err) {
    static const char *const ways[][2] = {{"weights", "weights in float16"}, {"all", "float16"}};
    for (size_t i = 0; i < OQ_COUNT(ways) && t->allow_float16; i++) {
        oq_candidate *c = NULL;
        oq_recipe r;
        OQ_TRY(half_recipe(t, &r, ways[i][0], err));
        r.after = after != NULL ? &after->recipe : t->base;
        const oq_str label =
            after != NULL ? oq_str_format(t->arena, "%s, the rest: %s", after->label, ways[i][1])
                          : oq_str_of(ways[i][1]);
        OQ_TRY_ALLOC(label.p != NULL, err);
        OQ_TRY(oq_tune_try(t, &r, label.p, &c, err));
    }
    return ONQ_OK;
}

/* What is float in the fastest model in integers that reaches the targets, or in the smallest. */
static onq_code halve_rest(oq_tune *t, onq_error *err) {
    bool reached = false;
    const oq_candidate *best = NULL;
    if (!t->allow_float16)
        return ONQ_OK;
    OQ_TRY(oq_tune_time(t, err));
    oq_choose(&t->all, &t->targets, t->prefer, &reached);
    for (size_t i = 0; i < t->all.n; i++) {
        const oq_candidate *c = t->all.v[i];
        if (!c->reached || c->exact || c == t->rival_found ||
            oq_recipe_get(&c->recipe, "float16") != NULL)
            continue;
        if (best == NULL || (t->prefer == OQ_PREFER_SIZE ? c->size < best->size : c->ms < best->ms))
            best = c;
    }
    return best != NULL ? try_float16(t, best, err) : ONQ_OK;
}

static onq_code try_rival(oq_tune *t, onq_error *err) {
    const oq_candidate rival = {.label = "the quantized model that was given",
                                .recipe = {.command = "given"},
                                .path = t->rival,
                                .size = t->rival_size};
    return t->rival != NULL ? oq_tune_add_model(t, &rival, &t->rival_found, err) : ONQ_OK;
}

/* What needs no samples is cheap and comes first: all that is allowed has its turn before the time
 * of a limit is over. */
onq_code oq_tune_search(oq_tune *t, onq_error *err) {
    for (oq_refinement how = 0; how < OQ_REFINEMENTS; how++)
        t->gained[how] = NAN;
    t->least_db = -INFINITY;
    OQ_TRY(oq_tune_floats(t, err));
    oq_tune_set_limit(t);
    OQ_TRY(try_rival(t, err));
    if (t->language)
        OQ_TRY(try_nbits(t, err));
    OQ_TRY(try_dynamic(t, err));
    OQ_TRY(try_nbits(t, err));
    OQ_TRY(try_float16(t, NULL, err));
    OQ_TRY(try_static(t, err));
    OQ_TRY(oq_tune_try_pointwise(t, err));
    OQ_TRY(try_qoperator(t, err));
    OQ_TRY(oq_tune_try_methods(t, err));
    OQ_TRY(oq_tune_units(t, err));
    OQ_TRY(oq_tune_correct_points(t, err));
    OQ_TRY(oq_tune_lstm(t, err));
    return halve_rest(t, err);
}

void oq_tune_end(oq_tune *t) {
    t->units = (oq_units){0}; /* its names go with the model */
    oq_tune_close_ready(t);
    oq_session_close(t->beside);
    t->beside = NULL;
    oq_model_free(t->base_model);
    t->base_model = NULL;
}
