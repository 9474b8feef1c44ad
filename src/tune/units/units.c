/*
 * units.c — the part of the search that decides for each unit: noise of each way alone, a curve
 * over all of them (menu.h), and the fastest point of it that reaches the targets, found by making
 * some.
 */
#include "onnx/edit.h"
#include "onnx/operators.h"
#include "quantize/ort/pointwise.h"
#include "tune/units/stage.h"

#include <math.h>

#define MUCH        0.2 /* of the work that pays: worth a method of its own */
#define ROUNDING_DB 3   /* that rounding gains where nothing was rounded yet */
#define SAFER       0.7 /* of the noise of what was doubted */
#define RANGES_DB   1   /* that other ranges must gain to be those of all units */

/* ---- what there is ---- */

static const oq_tensor *weight_of(const oq_model *m, const oq_unit *u) {
    return oq_graph_find_init(m->proto->graph, oq_node_input(u->node, 1));
}

onq_code oq_tune_find_units(oq_tune *t, oq_model *m, onq_error *err) {
    const oq_unit_sizes sizes = {.sample = &t->choose->steps.v[0].sample};
    bool *pays = NULL;
    t->units = (oq_units){0};
    t->has_pointwise = false;
    OQ_TRY(oq_units_find(&t->units, t->arena, m, &sizes, err));
    OQ_TRY(oq_units_pay(&t->units, NULL, t->arena, &pays, err));
    double matmul = 0, conv = 0, paying = 0, all_conv = 0, all_matmul = 0;
    for (size_t i = 0; i < t->units.all.n; i++) {
        const oq_unit *u = &t->units.all.v[i];
        const bool is_conv = u->product == OQ_CONV || u->product == OQ_CONV_TRANSPOSE;
        paying += pays[i] ? u->macs : 0;
        conv += pays[i] && is_conv ? u->macs : 0;
        t->has_pointwise |= pays[i] && u->act == NULL && oq_is_pointwise(u->node, weight_of(m, u));
        matmul += pays[i] && !is_conv ? u->macs : 0;
        all_conv += is_conv ? u->macs : 0;
        all_matmul += is_conv ? 0 : u->macs;
    }
    t->pays = pays;
    t->has_matmul = matmul > MUCH * paying || all_matmul > t->units.macs / 2;
    t->has_conv = conv > MUCH * paying;
    t->mostly_conv = t->units.macs > 0 && all_conv > t->units.macs / 2;
    return ONQ_OK;
}

/* A unit is found again in another model by its operator and its label. */
static oq_str unit_key(oq_arena *a, const oq_node *n) {
    return oq_str_format(a, "%.*s %.*s", OQ_STR(n->op_type), OQ_STR(oq_node_label(n)));
}

/* Units that are still there and read no DequantizeLinear. */
static onq_code count_float(const oq_tune *t, oq_model *m, oq_arena *a, size_t *n, onq_error *err) {
    oq_index ix;
    oq_map units;
    oq_str key;
    oq_map_init(&units, a);
    for (size_t k = 0; k < t->units.all.n; k++)
        if ((key = unit_key(a, t->units.all.v[k].node)).p == NULL || !oq_map_put(&units, key, 0))
            return oq_fail_nomem(err);
    OQ_TRY(oq_index_build(&ix, a, m->proto->graph, NULL, err));
    for (size_t i = 0; i < m->proto->graph->node.n; i++) {
        const oq_node *node = m->proto->graph->node.v[i];
        const oq_node *from = node->input.n > 0 ? oq_index_producer(&ix, node->input.v[0]) : NULL;
        const bool integers = oq_node_is_dequantize(from);
        OQ_TRY_ALLOC((key = unit_key(a, node)).p != NULL, err);
        *n += !integers && oq_map_has(&units, key);
    }
    return ONQ_OK;
}

onq_code oq_tune_check_units(const oq_tune *t, const char *path, onq_error *err) {
    oq_model *m = NULL;
    oq_arena scratch;
    size_t n = 0;
    OQ_TRY(oq_model_open(t->env, path, &t->open, &m, err));
    oq_arena_init(&scratch, &t->env->alloc);
    onq_code rc = count_float(t, m, &scratch, &n, err);
    if (rc == ONQ_OK && n > t->max_float_units)
        rc = oq_fail(err, ONQ_E_UNSUPPORTED, "it leaves %zu units float (--max_float_units %zu)", n,
                     t->max_float_units);
    oq_arena_release(&scratch);
    oq_model_free(m);
    return rc;
}

/* ---- rounded points ---- */

/* What rounding is counted on to gain: as much as it did where it was tried, and before that a
 * guess. Only double activations leave no more noise than that of weights. */
static double rounding_gain(const oq_unit_stage *s) {
    const double gained = s->t->gained[OQ_REFINE_ROUNDING];
    bool doubled = false;
    for (size_t i = 0; i < s->menus.all.n; i++)
        doubled |= s->menus.all.v[i].rows[OQ_METHOD_DOUBLE].known;
    return !doubled ? 0 : isnan(gained) ? ROUNDING_DB : fmax(0, gained);
}

static onq_code affords_rounding(const oq_unit_stage *s, bool *may, onq_error *err) {
    oq_recipe r;
    OQ_TRY(oq_recipe_copy(&s->base, s->t->arena, &r, err));
    OQ_TRY(oq_recipe_add(&r, s->t->arena, "learned_rounding", NULL, err));
    *may = oq_tune_affords_rounding(s->t, &r);
    OQ_TRY(oq_tune_decide(s->t, may, err));
    return *may ? ONQ_OK : oq_tune_leave_out(s->t, "learned rounding of units", err);
}

/* Rounding leaves less noise of double activations, and of no other way: only there it is the noise of
 * weights alone. */
static onq_code scale_doubles(oq_unit_stage *s, double db, onq_error *err) {
    for (size_t i = 0; i < s->menus.all.n; i++)
        s->menus.all.v[i].rows[OQ_METHOD_DOUBLE].noise *= pow(10, -db / 10);
    OQ_TRY(oq_menus_curve(&s->menus, s->t->arena, err));
    s->end = oq_stage_first_useless(s);
    return ONQ_OK;
}

/* The first point that is rounded costs most, for later ones have its weights: so points are rounded
 * from the first one on. Where that cannot be paid, or does not do, the points must do without. */
static onq_code search_points(oq_unit_stage *s, const oq_candidate *base, onq_error *err) {
    const double allowed = oq_tune_allowed_noise(s->t, base), gain = rounding_gain(s);
    bool reached = false;
    if (gain > 0 && !s->rounded)
        OQ_TRY(affords_rounding(s, &s->rounds, err));
    if (!s->rounds)
        return oq_stage_find_point(s, allowed, &reached, err);
    OQ_TRY(scale_doubles(s, gain, err));
    OQ_TRY(oq_stage_find_point(s, allowed, &reached, err));
    if (reached)
        return ONQ_OK;
    s->rounds = false;
    OQ_TRY(scale_doubles(s, -gain, err));
    return oq_stage_find_point(s, allowed, &reached, err);
}

/* Where rounded double activations of all units were measured, and are not good enough, every other
 * way has more noise: those units become float that have most of it, and no more need be known. */
static onq_code round_doubles(oq_unit_stage *s, const oq_candidate *base, bool *reached,
                              onq_error *err) {
    const oq_candidate *all = oq_stage_with_option(s, s->from, "double_activations");
    const double gain = s->t->gained[OQ_REFINE_ROUNDING];
    const size_t n = s->menus.all.n;
    *reached = false;
    if (all == NULL || !(gain > 0))
        return ONQ_OK;
    OQ_TRY(affords_rounding(s, &s->rounds, err));
    if (!s->rounds)
        return ONQ_OK;
    oq_menu *fresh = OQ_NEW_ARRAY(s->t->arena, oq_menu, n);
    OQ_TRY_ALLOC(fresh != NULL, err);
    memcpy(fresh, s->menus.all.v, n * sizeof *fresh);
    oq_stage_fill_noise(s, OQ_METHOD_PLAIN, s->from);
    OQ_TRY(oq_stage_probe_way(s, OQ_METHOD_DOUBLE, all, 0, err));
    for (size_t i = 0; i < n; i++)
        s->menus.all.v[i].rows[OQ_METHOD_PLAIN].known = false;
    OQ_TRY(scale_doubles(s, gain, err));
    s->t->choice = s;
    s->rounded = true;
    OQ_TRY(oq_stage_find_point(s, oq_tune_allowed_noise(s->t, base), reached, err));
    if (*reached)
        return ONQ_OK;
    memcpy(s->menus.all.v, fresh, n * sizeof *fresh);
    s->rounds = false;
    return ONQ_OK;
}

/* ---- the stage ---- */

/* The base with other ranges where they clearly gain: they serve the units. */
static const oq_candidate *with_best_ranges(const oq_unit_stage *s) {
    const oq_candidate *best = s->from;
    for (size_t i = 0; i < s->t->all.n; i++) {
        const oq_candidate *c = s->t->all.v[i];
        if (oq_stage_adds_option(s->from, c, "calibration_method") &&
            c->score.objective > best->score.objective + (best == s->from ? RANGES_DB : 0))
            best = c;
    }
    return best;
}

onq_code oq_tune_units(oq_tune *t, onq_error *err) {
    OQ_TRY(oq_tune_time(t, err));
    const oq_candidate *from = oq_tune_fastest_set(t, t->base);
    if (from == NULL || t->choice != NULL || !oq_tune_goes_on(t) || oq_tune_is_done(t, from))
        return ONQ_OK;
    oq_unit_stage *s = OQ_NEW(t->arena, oq_unit_stage);
    OQ_TRY_ALLOC(s != NULL, err);
    *s = (oq_unit_stage){.t = t, .from = from};
    bool reached = false;
    s->whole = strcmp(oq_recipe_get(&from->recipe, "op_set"), "pays") != 0;
    const oq_candidate *base = with_best_ranges(s);
    const char *ranges = oq_recipe_get(&base->recipe, "calibration_method");
    OQ_TRY(oq_stage_plain_recipe(s, &from->recipe, &s->base, err));
    if (ranges != NULL)
        OQ_TRY(oq_recipe_add(&s->base, t->arena, "calibration_method", ranges, err));
    OQ_TRY(oq_stage_list(s, err));
    if (s->menus.all.n == 0)
        return ONQ_OK;
    OQ_TRY(round_doubles(s, base, &reached, err));
    if (reached)
        return ONQ_OK;
    OQ_TRY(oq_stage_probe_plain(s, err));
    OQ_TRY(oq_stage_probe_further(s, err));
    if (t->stopped)
        return ONQ_OK;
    OQ_TRY(oq_menus_curve(&s->menus, t->arena, err));
    t->choice = s;
    s->end = oq_stage_first_useless(s);
    return search_points(s, base, err);
}

onq_code oq_tune_safer(oq_tune *t, const oq_candidate *c, onq_error *err) {
    oq_candidate *made = NULL;
    oq_unit_stage *s = t->choice;
    if (s == NULL)
        return oq_tune_units(t, err);
    const double noise =
        isnan(c->predicted) ? pow(10, -c->score.objective / 10) : pow(10, -c->predicted / 10);
    const size_t at = oq_stage_step_of(s, SAFER * noise);
    if (at >= s->menus.steps.n || oq_stage_float_units(s, at) > t->max_float_units)
        return ONQ_OK;
    return oq_stage_try_point(s, at, &made, err);
}
