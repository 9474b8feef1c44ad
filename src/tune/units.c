/*
 * units.c — the part of the search that decides for each unit: noise of each way alone, a curve
 * over all of them (menu.h), and the fastest point of it that reaches the targets, found by making
 * some.
 */
#include "tune/units.h"

#include "onnx/graph.h"
#include "quantize/cost/unit_time.h"
#include "samples/agreement.h"

#include <math.h>
#include <stdlib.h>

#define PROBE_LIMIT   "12" /* samples that calibrate for it, some of them held out */
#define PROBE_SAMPLES 4    /* for the noise of one unit */
#define MUCH          0.2  /* of the work that pays: worth a method of its own */
#define GUESSES       3    /* points that the prediction chooses; then what is left is halved */
#define MAX_POINTS    7    /* of the curve that are made */
/* Units whose part of the noise is below this are good enough as they are. */
#define MIN_NOISE 0.01
/* Of float's time: the least gain of a unit that pays, however badly it was timed. */
#define MIN_GAIN    0.02
#define MAX_PROBES  32  /* units that are measured alone */
#define MAX_FURTHER 8   /* that are, by each further way */
#define SAFER       0.5 /* of the noise of what was doubted */

typedef struct oq_unit_stage {
    oq_tune *t;
    oq_recipe base; /* for the whole model */
    oq_menus menus;
    oq_unit_costs costs; /* by shape */
    oq_method *ways;
    bool whole; /* all products are integers in the base, not only those that gain alone */
    const oq_candidate *from;
} stage;

/* ---- what there is ---- */

onq_code oq_tune_find_units(oq_tune *t, oq_model *m, onq_error *err) {
    const oq_unit_sizes sizes = {.sample = &t->choose->all.v[0].sample};
    bool *pays = NULL;
    t->units = (oq_units){0};
    OQ_TRY(oq_units_find(&t->units, t->arena, m, &sizes, err));
    OQ_TRY(oq_units_pay(&t->units, NULL, t->arena, &pays, err));
    double matmul = 0, conv = 0, paying = 0, all_conv = 0, all_matmul = 0;
    for (size_t i = 0; i < t->units.all.n; i++) {
        const oq_unit *u = &t->units.all.v[i];
        const bool is_conv = u->product == OQ_CONV || u->product == OQ_CONV_TRANSPOSE;
        paying += pays[i] ? u->macs : 0;
        conv += pays[i] && is_conv ? u->macs : 0;
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

/* Units that are still there and read no DequantizeLinear. */
static onq_code count_float(const oq_tune *t, oq_model *m, oq_arena *a, size_t *n, onq_error *err) {
    oq_index ix;
    OQ_TRY(oq_index_build(&ix, a, m->proto->graph, NULL, err));
    for (size_t i = 0; i < m->proto->graph->node.n; i++) {
        const oq_node *node = m->proto->graph->node.v[i];
        const oq_node *from = node->input.n > 0 ? oq_index_producer(&ix, node->input.v[0]) : NULL;
        const bool integers = oq_node_is_dequantize(from);
        for (size_t k = 0; k < t->units.all.n && !integers; k++) {
            const oq_node *unit = t->units.all.v[k].node;
            if (oq_str_eq(oq_node_label(unit), oq_node_label(node)) &&
                oq_str_eq(unit->op_type, node->op_type)) {
                ++*n;
                break;
            }
        }
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

static onq_code c_name(stage *s, const oq_node *n, const char **out, onq_error *err) {
    *out = oq_str_cstr(s->t->arena, oq_node_label(n));
    return *out != NULL ? ONQ_OK : oq_fail_nomem(err);
}

static bool is_listed(const stage *s, const oq_unit *u) {
    for (size_t i = 0; i < s->menus.all.n; i++)
        if (oq_str_is(oq_node_label(u->node), s->menus.all.v[i].node))
            return true;
    return false;
}

/* The cost of a unit here: of its shape, which is timed once. */
static onq_code cost_of(stage *s, const oq_unit *u, oq_unit_cost *out, onq_error *err) {
    oq_tune *t = s->t;
    oq_session_options like = t->session;
    bool timed = false;
    const oq_str key = oq_unit_key(u, t->arena);
    OQ_TRY_ALLOC(key.p != NULL, err);
    const uint32_t at = oq_map_find(&s->costs.keys, key);
    if (at != OQ_MAP_NONE) {
        *out = s->costs.all.v[at];
        return ONQ_OK;
    }
    like.n_threads = t->n_threads;
    if (oq_tune_goes_on(t))
        OQ_TRY(oq_unit_time(t->engine, u, &like, out, &timed, err));
    if (!timed)
        *out = oq_unit_cost_of(u, NULL, key);
    return OQ_PUSH(t->arena, &s->costs.all, *out) &&
                   oq_map_put(&s->costs.keys, key, (uint32_t)s->costs.all.n - 1)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

/* Whether its neighbours are integers is not known: some of the way from one cost to the other; the
 * input of a MatMul is often quantized for several. A second product costs what one between
 * integers does, ranges of channels a pass at each end. */
static void set_gains(oq_menu *m, const oq_unit_cost *c) {
    const double ends = fmax(0, c->alone - c->inner);
    const double here = c->inner + ends / (m->is_matmul ? 4 : 2);
    m->rows[OQ_METHOD_FLOAT].known = true;
    m->rows[OQ_METHOD_PLAIN].gain = fmax(c->real - here, MIN_GAIN * c->real);
    m->rows[OQ_METHOD_BOTH].gain = c->real - here - ends / 2;
    m->rows[OQ_METHOD_OUTLIERS].gain = c->real - here - c->real / 20;
    m->rows[OQ_METHOD_DOUBLE].gain = c->real - here - c->inner;
}

/* Units that are timed alone do not tell what they gain in the model: their gains together are what
 * the whole gains, and each has a part of it by what it gains alone, or by its work. */
static void fit_gains(stage *s) {
    const double whole = s->t->base_float->ms - s->from->ms;
    double sum = 0, work = 0;
    for (size_t i = 0; i < s->menus.all.n; i++) {
        sum += s->menus.all.v[i].rows[OQ_METHOD_PLAIN].gain;
        work += s->menus.all.v[i].macs;
    }
    if (!(whole > 0) || !(sum > 0) || !(work > 0))
        return;
    for (size_t i = 0; i < s->menus.all.n; i++) {
        oq_menu *m = &s->menus.all.v[i];
        const double alone = m->rows[OQ_METHOD_PLAIN].gain;
        const double part = (alone / sum + m->macs / work) / 2 * whole;
        for (oq_method w = OQ_METHOD_PLAIN; w < OQ_METHODS; w++)
            m->rows[w].gain = part - (alone - m->rows[w].gain) * (whole / sum);
    }
}

static int by_macs(const void *x, const void *y) {
    const oq_menu *a = x, *b = y;
    return a->macs != b->macs ? (a->macs < b->macs ? 1 : -1) : strcmp(a->node, b->node);
}

/* Units that integers may make faster and whose name is theirs alone, heaviest first. */
static onq_code list_units(stage *s, onq_error *err) {
    oq_tune *t = s->t;
    oq_map_init(&s->costs.keys, t->arena);
    for (size_t i = 0; i < t->units.all.n; i++) {
        const oq_unit *u = &t->units.all.v[i];
        oq_menu menu = {.macs = u->macs, .is_matmul = u->product != OQ_CONV};
        oq_unit_cost cost;
        if ((!t->pays[i] && !s->whole) || oq_node_label(u->node).n == 0 || is_listed(s, u))
            continue;
        OQ_TRY(oq_progress(t->env, "timing units", i, t->units.all.n, err));
        OQ_TRY(cost_of(s, u, &cost, err));
        set_gains(&menu, &cost);
        OQ_TRY(c_name(s, u->node, &menu.node, err));
        if (u->act != NULL && oq_node_label(u->act).n > 0)
            OQ_TRY(c_name(s, u->act, &menu.act, err));
        OQ_TRY_ALLOC(OQ_PUSH(t->arena, &s->menus.all, menu), err);
    }
    fit_gains(s);
    if (s->menus.all.n > 0)
        qsort(s->menus.all.v, s->menus.all.n, sizeof *s->menus.all.v, by_macs);
    s->ways = OQ_NEW_ARRAY(t->arena, oq_method, s->menus.all.n + 1);
    return s->ways != NULL ? ONQ_OK : oq_fail_nomem(err);
}

/* The recipe without what is said for each unit, or done in the end. */
static onq_code plain_recipe(stage *s, const oq_recipe *from, oq_recipe *to, onq_error *err) {
    static const char *const names[] = {"bias_correction",  "learned_rounding",
                                        "channel_ranges",   "equalize",
                                        "outlier_channels", "double_activations"};
    *to = (oq_recipe){.command = from->command, .after = from->after};
    for (size_t i = 0; i < from->options.n; i++) {
        const oq_recipe_option *o = &from->options.v[i];
        bool left_out = false;
        for (size_t k = 0; k < OQ_COUNT(names); k++)
            left_out |= strcmp(o->name, names[k]) == 0;
        if (!left_out)
            OQ_TRY(oq_recipe_add(to, s->t->arena, o->name, o->value, err));
    }
    return ONQ_OK;
}

/* ---- noise ---- */

static onq_code with_ways(stage *s, oq_recipe *r, onq_error *err) {
    const char *text = oq_menus_text(&s->menus, s->ways, s->t->arena);
    OQ_TRY_ALLOC(text != NULL, err);
    OQ_TRY(oq_recipe_copy(&s->base, s->t->arena, r, err));
    for (size_t i = 0; i < s->menus.all.n; i++)
        r->methods |= UINT32_C(1) << s->ways[i];
    return oq_recipe_add(r, s->t->arena, "node_methods", text, err);
}

/* The noise of one unit quantized in this way, all others float. */
static onq_code probe(stage *s, size_t at, oq_method way, onq_error *err) {
    oq_menu *menu = &s->menus.all.v[at];
    oq_recipe r;
    oq_score score;
    bool made = false;
    for (size_t i = 0; i < s->menus.all.n; i++)
        s->ways[i] = i == at ? way : OQ_METHOD_FLOAT;
    OQ_TRY(with_ways(s, &r, err));
    /* What changes the graph is calibrated anew each time; few samples do for an estimate. */
    if (way != OQ_METHOD_PLAIN && oq_recipe_get(&r, "limit") == NULL)
        OQ_TRY(oq_recipe_add(&r, s->t->arena, "limit", PROBE_LIMIT, err));
    OQ_TRY(oq_tune_probe(s->t, &r, PROBE_SAMPLES, &score, &made, err));
    menu->rows[way].noise = made ? pow(10, -score.objective / 10) : INFINITY;
    menu->rows[way].known = isfinite(menu->rows[way].noise);
    return ONQ_OK;
}

/* The heaviest units. The others are taken to be as noisy for their work as these are. */
static onq_code probe_plain(stage *s, onq_error *err) {
    double sum = 0, work = 0;
    size_t i = 0;
    for (; i < s->menus.all.n && i < MAX_PROBES && oq_tune_goes_on(s->t); i++) {
        OQ_TRY(oq_progress(s->t->env, "units", i, s->menus.all.n, err));
        OQ_TRY(probe(s, i, OQ_METHOD_PLAIN, err));
        const oq_menu_row *row = &s->menus.all.v[i].rows[OQ_METHOD_PLAIN];
        sum += row->known ? row->noise : 0;
        work += row->known ? s->menus.all.v[i].macs : 0;
    }
    for (; i < s->menus.all.n && work > 0; i++) {
        s->menus.all.v[i].rows[OQ_METHOD_PLAIN].noise = sum * s->menus.all.v[i].macs / work;
        s->menus.all.v[i].rows[OQ_METHOD_PLAIN].known = true;
    }
    return ONQ_OK;
}

/* Further ways for units that make much of the noise, the heaviest first. */
static onq_code probe_further(stage *s, onq_error *err) {
    double sum = 0;
    for (size_t i = 0; i < s->menus.all.n; i++)
        sum += s->menus.all.v[i].rows[OQ_METHOD_PLAIN].noise;
    for (oq_method w = OQ_METHOD_BOTH; w < OQ_METHODS; w++)
        for (size_t i = 0, tried = 0; i < s->menus.all.n && oq_tune_goes_on(s->t); i++) {
            const oq_menu *m = &s->menus.all.v[i];
            const bool fits = (w == OQ_METHOD_BOTH) != m->is_matmul;
            if (!fits || m->rows[w].gain <= 0 || !m->rows[OQ_METHOD_PLAIN].known ||
                m->rows[OQ_METHOD_PLAIN].noise < MIN_NOISE * sum || tried >= MAX_FURTHER)
                continue;
            OQ_TRY(oq_progress(s->t->env, "units, further ways", i, s->menus.all.n, err));
            OQ_TRY(probe(s, i, w, err));
            tried++;
        }
    return ONQ_OK;
}

/* ---- points of the curve ---- */

static onq_code try_point(stage *s, size_t n_steps, oq_candidate **out, onq_error *err) {
    double noise = 0;
    size_t count[OQ_METHODS] = {0};
    oq_recipe r;
    oq_menus_at(&s->menus, n_steps, s->ways, &noise);
    for (size_t i = 0; i < s->menus.all.n; i++)
        count[s->ways[i]]++;
    OQ_TRY(with_ways(s, &r, err));
    const oq_str label = oq_str_format(s->t->arena, "%zu of %zu units in integers%s%s%s",
                                       s->menus.all.n - count[OQ_METHOD_FLOAT], s->menus.all.n,
                                       count[OQ_METHOD_BOTH] > 0 ? ", channel ranges" : "",
                                       count[OQ_METHOD_OUTLIERS] > 0 ? ", outliers" : "",
                                       count[OQ_METHOD_DOUBLE] > 0 ? ", double" : "");
    OQ_TRY_ALLOC(label.p != NULL, err);
    OQ_TRY(oq_tune_try(s->t, &r, label.p, out, err));
    if (*out != NULL)
        (*out)->predicted = -oq_decibels(noise);
    return ONQ_OK;
}

/* The first step after which the predicted noise is no more than this. */
static size_t step_of(const stage *s, double noise) {
    if (s->menus.noise <= noise)
        return 0;
    for (size_t k = 0; k < s->menus.steps.n; k++)
        if (s->menus.steps.v[k].noise <= noise)
            return k + 1;
    return s->menus.steps.n;
}

static size_t float_units(const stage *s, size_t n_steps) {
    size_t n = 0;
    double noise;
    oq_menus_at(&s->menus, n_steps, s->ways, &noise);
    for (size_t i = 0; i < s->menus.all.n; i++)
        n += s->ways[i] == OQ_METHOD_FLOAT;
    return n;
}

/* Looks for the fastest point that reaches the targets. The prediction says where to begin; what
 * was measured there says by how much it is wrong. */
static onq_code search_points(stage *s, const oq_candidate *base, onq_error *err) {
    const double allowed = oq_tune_allowed_noise(s->t, base);
    double factor = 1;
    size_t low = 0, high = s->menus.steps.n; /* points below low fail, high (all float) does not */
    while (high > 0 && float_units(s, high - 1) > s->t->max_float_units)
        high--;
    for (size_t i = 0; i < MAX_POINTS && low < high; i++) {
        oq_candidate *c = NULL;
        size_t at = step_of(s, allowed * factor);
        if (i >= GUESSES || at < low || at >= high)
            at = low + (high - low) / 2;
        OQ_TRY(try_point(s, at, &c, err));
        if (c == NULL)
            return ONQ_OK;
        const double measured = pow(10, -c->score.objective / 10);
        const double predicted = pow(10, -c->predicted / 10);
        if (measured > 0 && predicted > 0 && isfinite(measured))
            factor = predicted / measured;
        if (oq_targets_hold(&s->t->targets, &c->score))
            high = at;
        else
            low = at + 1;
    }
    return ONQ_OK;
}

/* ---- the stage ---- */

/* The curve begins with the fastest way of every unit. Where something about as fast reaches the
 * targets, nothing on it is worth a search. */
static bool is_fast_enough(const oq_tune *t, const oq_candidate *base) {
    for (size_t i = 0; i < t->all.n; i++) {
        const oq_candidate *c = t->all.v[i];
        if (c->ok && !c->exact && !c->doubted && oq_is_as_fast(c, base) &&
            oq_targets_hold(&t->targets, &c->score))
            return true;
    }
    return false;
}

/* Of the candidates that begin like the base, the most accurate: its ranges serve the units. */
static const oq_candidate *best_like(const oq_tune *t, const oq_candidate *base) {
    const oq_candidate *best = base;
    const char *set = oq_recipe_get(&base->recipe, "op_set");
    for (size_t i = 0; i < t->all.n; i++) {
        const oq_candidate *c = t->all.v[i];
        const char *own = oq_recipe_get(&c->recipe, "op_set");
        if (c->ok && own != NULL && strcmp(own, set) == 0 &&
            c->recipe.after == base->recipe.after && c->score.objective > best->score.objective)
            best = c;
    }
    return best;
}

onq_code oq_tune_units(oq_tune *t, onq_error *err) {
    const oq_candidate *from = oq_tune_fastest_set(t, t->base);
    if (from == NULL || t->choice != NULL || !oq_tune_goes_on(t) || is_fast_enough(t, from))
        return ONQ_OK;
    stage *s = OQ_NEW(t->arena, stage);
    OQ_TRY_ALLOC(s != NULL, err);
    *s = (stage){.t = t, .from = from};
    s->whole = strcmp(oq_recipe_get(&from->recipe, "op_set"), "pays") != 0;
    const oq_candidate *base = best_like(t, from);
    OQ_TRY(plain_recipe(s, &base->recipe, &s->base, err));
    OQ_TRY(list_units(s, err));
    if (s->menus.all.n == 0)
        return ONQ_OK;
    OQ_TRY(probe_plain(s, err));
    OQ_TRY(probe_further(s, err));
    if (t->stopped)
        return ONQ_OK;
    OQ_TRY(oq_menus_curve(&s->menus, t->arena, err));
    t->choice = s;
    return search_points(s, base, err);
}

onq_code oq_tune_safer(oq_tune *t, const oq_candidate *c, onq_error *err) {
    oq_candidate *made = NULL;
    stage *s = t->choice;
    if (s == NULL)
        return oq_tune_units(t, err);
    const double noise =
        isnan(c->predicted) ? pow(10, -c->score.objective / 10) : pow(10, -c->predicted / 10);
    const size_t at = step_of(s, SAFER * noise);
    if (at >= s->menus.steps.n || float_units(s, at) > t->max_float_units)
        return ONQ_OK;
    return try_point(s, at, &made, err);
}
