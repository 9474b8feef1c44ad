/*
 * units.c — the part of the search that decides for each unit: noise of each way alone, a curve
 * over all of them (menu.h), and the fastest point of it that reaches the targets, found by making
 * some.
 */
#include "tune/units.h"

#include "onnx/edit.h"
#include "onnx/operators.h"
#include "quantize/ort/pointwise.h"
#include "samples/agreement.h"

#include <math.h>
#include <stdlib.h>

#define PROBE_LIMIT   "6" /* samples that calibrate for it, some of them held out */
#define PROBE_SAMPLES 2   /* for the noise of one unit */
#define MUCH          0.2 /* of the work that pays: worth a method of its own */
#define GUESSES       3   /* points that the prediction chooses; then what is left is halved */
#define ROUNDING_DB   3   /* that rounding gains where nothing was rounded yet */
#define MAX_POINTS    6   /* of the curve that are made */
/* Units whose part of the noise is below this are good enough as they are. */
#define MIN_NOISE 0.01
/* Of float's time: the least gain of a unit that pays, however badly it was timed. */
#define MIN_GAIN    0.02
#define MAX_PROBES  16  /* units that are measured alone; points of the curve correct the guesses */
#define MAX_SHARE   0.9 /* of the gain: units that give it are measured */
#define MAX_FURTHER 4   /* that are, by each further way */
#define FORESEEN    3   /* points of the curve for which measuring units leaves enough ... */
#define FIRST_UNITS 6   /* ... but for the first units: without them all points are guesses */
#define SAFER       0.7 /* of the noise of what was doubted */
#define LAST        0.8 /* of what is allowed, where no other point can be paid */
#define AIM         0.9 /* of the noise that is allowed: the bound is to reach the target too */
#define RANGES_DB   1   /* that other ranges must gain to be those of all units */
#define PREDICTED   1.25 /* times the best time: a point that is slower, however it was predicted */

typedef struct oq_unit_stage {
    oq_tune *t;
    oq_recipe base; /* for the whole model */
    oq_menus menus;
    oq_method *ways;
    bool whole; /* all products are integers in the base, not only those that gain alone */
    const oq_candidate *from;
    bool rounds;  /* points with double activations have learned rounding too */
    bool rounded; /* and were looked for, without the other ways */
    size_t end;   /* the first point that is slower than what reaches the targets already */
    double probe[OQ_METHODS]; /* seconds of the processor that measuring one unit took at most */
    size_t n_probed;
} stage;

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

/* Ways that were tried on all units at once. */
static const struct {
    oq_method way;
    const char *option;
} everywhere[] = {
    {OQ_METHOD_BOTH, "channel_ranges"},
    {OQ_METHOD_OUTLIERS, "outlier_channels"},
    {OQ_METHOD_DOUBLE, "double_activations"},
};

/* True if a candidate has an option besides those of the base, and no other. */
static bool adds_option(const oq_candidate *base, const oq_candidate *c, const char *option) {
    return c->ok && c->ms > 0 && oq_recipe_adds(&base->recipe, &c->recipe, option);
}

/* That candidate, or NULL. */
static const oq_candidate *with_option(const stage *s, const oq_candidate *base,
                                       const char *option) {
    for (size_t i = 0; i < s->t->all.n; i++)
        if (adds_option(base, s->t->all.v[i], option))
            return s->t->all.v[i];
    return NULL;
}

static bool fits(const oq_menu *m, oq_method way) {
    return way == OQ_METHOD_PLAIN || (way == OQ_METHOD_BOTH) != m->is_matmul;
}

/* What the whole model gains by integers, and what a way on all units costs of it, was timed. Each
 * unit has a part of both by what it gains alone, as the rates say, and by its work. */
static void fit_gains(stage *s) {
    const double whole = s->t->base_float->ms - s->from->ms;
    double sum = 0, work = 0, of_kind[2] = {0};
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
        of_kind[m->is_matmul] += part;
    }
    for (size_t k = 0; k < OQ_COUNT(everywhere); k++) {
        const oq_candidate *c = with_option(s, s->from, everywhere[k].option);
        for (size_t i = 0; i < s->menus.all.n && c != NULL; i++) {
            oq_menu *m = &s->menus.all.v[i];
            const double part = m->rows[OQ_METHOD_PLAIN].gain;
            if (fits(m, everywhere[k].way) && of_kind[m->is_matmul] > 0)
                m->rows[everywhere[k].way].gain =
                    part - fmax(0, c->ms - s->from->ms) * part / of_kind[m->is_matmul];
        }
    }
}

static int by_macs(const void *x, const void *y) {
    const oq_menu *a = x, *b = y;
    return a->macs != b->macs ? (a->macs < b->macs ? 1 : -1) : strcmp(a->node, b->node);
}

/* Units that integers may make faster and whose name is theirs alone, heaviest first. */
static onq_code list_units(stage *s, onq_error *err) {
    oq_tune *t = s->t;
    for (size_t i = 0; i < t->units.all.n; i++) {
        const oq_unit *u = &t->units.all.v[i];
        oq_menu menu = {.macs = u->macs, .is_matmul = u->product != OQ_CONV};
        if ((!t->pays[i] && !s->whole) || oq_node_label(u->node).n == 0 || is_listed(s, u))
            continue;
        const oq_str key = oq_unit_key(u, t->arena);
        OQ_TRY_ALLOC(key.p != NULL, err);
        const oq_unit_cost cost = oq_unit_cost_of(u, NULL, key);
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
    static const char *const names[] = {
        "bias_correction",  "learned_rounding",   "channel_ranges",    "equalize",
        "outlier_channels", "double_activations", "calibration_method"};
    *to = (oq_recipe){
        .command = from->command, .drops_shapes = from->drops_shapes, .after = from->after};
    for (size_t i = 0; i < from->options.n; i++) {
        const oq_recipe_option *o = &from->options.v[i];
        if (!oq_str_is_any(oq_str_of(o->name), names, OQ_COUNT(names)))
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

/* The dearest that a point may be. */
static onq_code any_point(const stage *s, oq_recipe *r, onq_error *err) {
    OQ_TRY(oq_recipe_copy(&s->base, s->t->arena, r, err));
    for (size_t i = 0; i < s->menus.all.n; i++)
        for (oq_method way = OQ_METHOD_PLAIN; way < OQ_METHODS; way++)
            if (s->menus.all.v[i].rows[way].known)
                r->methods |= UINT32_C(1) << way;
    return ONQ_OK;
}

/* Another unit can be measured, and some points still be made; one of them made again with all
 * samples, and before that with other parts of them. */
static onq_code may_probe(const stage *s, oq_method way, bool *may, onq_error *err) {
    const oq_tune *t = s->t;
    const double scored = 2 * t->opening + t->spending.bare;
    const double point =
        oq_spending_next(&t->spending, &s->base, t->folds->folds[0].n_calibrate) + scored;
    const double answer = 2 * oq_spending_answer(&t->spending, &s->base, 1) + scored;
    const double probes = s->probe[way] * (way == OQ_METHOD_PLAIN ? 1 + MAX_FURTHER : 1);
    const double points = s->n_probed < FIRST_UNITS ? 1 : FORESEEN;
    *may = oq_tune_goes_on(s->t);
    if (!*may)
        return ONQ_OK;
    *may = oq_tune_affords_seconds(t, probes + points * point + answer);
    OQ_TRY(oq_tune_decide(s->t, may, err));
    return *may ? ONQ_OK : oq_tune_leave_out(s->t, "measuring more units alone", err);
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
    /* The minmax ranges of scaled channels follow from those of the graph as it is; others are found
     * anew each time, and few samples do for an estimate. */
    if (oq_method_needs_samples(way) && oq_recipe_get(&r, "calibration_method") != NULL &&
        oq_recipe_get(&r, "limit") == NULL)
        OQ_TRY(oq_recipe_add(&r, s->t->arena, "limit", PROBE_LIMIT, err));
    OQ_TRY(oq_tune_probe(s->t, &r, PROBE_SAMPLES, &score, &made, err));
    s->n_probed++;
    s->probe[way] = fmax(s->probe[way], s->t->cost.made * s->t->spending.bare);
    OQ_TRY(oq_tune_look_at_pace(s->t, err));
    menu->rows[way].noise = made ? pow(10, -score.objective / 10) : INFINITY;
    menu->rows[way].known = isfinite(menu->rows[way].noise);
    return ONQ_OK;
}

/* The noise of the units that were not measured by this way: what all of them together have, as far
 * as it is known, without those that were; else as much for their work as these. */
static void fill_noise(stage *s, oq_method way, const oq_candidate *all) {
    double noise = 0, work = 0, rest = 0;
    for (size_t i = 0; i < s->menus.all.n; i++) {
        const oq_menu *m = &s->menus.all.v[i];
        if (m->rows[way].known) {
            noise += m->rows[way].noise;
            work += m->macs;
        } else if (fits(m, way)) {
            rest += m->macs;
        }
    }
    const double whole = all != NULL ? pow(10, -all->score.objective / 10) : 0;
    const double each = whole > noise && rest > 0 ? (whole - noise) / rest
                        : work > 0                ? noise / work
                                                  : INFINITY;
    for (size_t i = 0; i < s->menus.all.n && isfinite(each); i++) {
        oq_menu *m = &s->menus.all.v[i];
        const oq_menu_row *plain = &m->rows[OQ_METHOD_PLAIN];
        if (m->rows[way].known || !fits(m, way) || m->rows[way].gain <= 0)
            continue;
        m->rows[way].noise =
            way == OQ_METHOD_PLAIN ? each * m->macs : fmin(plain->noise, each * m->macs);
        m->rows[way].known = m->rows[way].guessed = true;
    }
}

/* Those that most of the gain comes from are measured. */
static onq_code probe_plain(stage *s, onq_error *err) {
    double gained = 0, gain = 0;
    bool may = false;
    for (size_t k = 0; k < s->menus.all.n; k++)
        gain += fmax(0, s->menus.all.v[k].rows[OQ_METHOD_PLAIN].gain);
    for (size_t i = 0; i < s->menus.all.n && i < MAX_PROBES && gained <= MAX_SHARE * gain; i++) {
        OQ_TRY(may_probe(s, OQ_METHOD_PLAIN, &may, err));
        if (!may)
            break;
        OQ_TRY(oq_progress(s->t->env, "units", i, s->menus.all.n, err));
        OQ_TRY(probe(s, i, OQ_METHOD_PLAIN, err));
        gained += fmax(0, s->menus.all.v[i].rows[OQ_METHOD_PLAIN].gain);
    }
    fill_noise(s, OQ_METHOD_PLAIN, s->from);
    return ONQ_OK;
}

/* A further way for units that make much of the noise, the heaviest first. */
static onq_code probe_way(stage *s, oq_method way, const oq_candidate *all, double noise,
                          onq_error *err) {
    size_t tried = 0;
    bool may = true;
    for (size_t i = 0; i < s->menus.all.n && tried < MAX_FURTHER && may; i++) {
        const oq_menu *m = &s->menus.all.v[i];
        const oq_menu_row *plain = &m->rows[OQ_METHOD_PLAIN];
        if (!fits(m, way) || m->rows[way].gain <= 0 || !plain->known ||
            plain->noise < MIN_NOISE * noise)
            continue;
        OQ_TRY(may_probe(s, way, &may, err));
        if (!may)
            break;
        OQ_TRY(oq_progress(s->t->env, "units, further ways", i, s->menus.all.n, err));
        OQ_TRY(probe(s, i, way, err));
        tried++;
    }
    if (tried > 0 || all != NULL)
        fill_noise(s, way, all);
    return ONQ_OK;
}

static onq_code probe_further(stage *s, onq_error *err) {
    double sum = 0;
    for (size_t i = 0; i < s->menus.all.n; i++)
        sum += s->menus.all.v[i].rows[OQ_METHOD_PLAIN].noise;
    for (size_t k = 0; k < OQ_COUNT(everywhere); k++)
        if (everywhere[k].way != OQ_METHOD_BOTH || !s->t->channels_lose)
            OQ_TRY(probe_way(s, everywhere[k].way, with_option(s, s->from, everywhere[k].option),
                             sum, err));
    return ONQ_OK;
}

/* ---- points of the curve ---- */

static int by_noise(const void *a, const void *b) {
    const oq_float_unit *x = a, *y = b;
    return x->sqnr < y->sqnr ? -1 : x->sqnr > y->sqnr;
}

/* Why units stay float: what the menus know of them in integers. */
static onq_code list_floats(const stage *s, oq_candidate *c, onq_error *err) {
    for (size_t i = 0; i < s->menus.all.n && c->floats.n < s->menus.all.n; i++) {
        const oq_menu *m = &s->menus.all.v[i];
        const oq_menu_row *plain = &m->rows[OQ_METHOD_PLAIN];
        if (s->ways[i] != OQ_METHOD_FLOAT || !plain->known)
            continue;
        const oq_float_unit u = {m->node, -oq_decibels(plain->noise), plain->gain, plain->guessed};
        OQ_TRY_ALLOC(OQ_PUSH(s->t->arena, &c->floats, u), err);
    }
    if (c->floats.n > 1)
        qsort(c->floats.v, c->floats.n, sizeof *c->floats.v, by_noise);
    return ONQ_OK;
}

/* The candidate that has the same way for all units by an option; NULL: there is none. */
static oq_candidate *find_made(const stage *s) {
    const oq_method way = s->ways[0];
    const char *option = NULL;
    for (size_t i = 0; i < s->menus.all.n; i++)
        if (s->ways[i] != way || !fits(&s->menus.all.v[i], way))
            return NULL;
    for (size_t k = 0; k < OQ_COUNT(everywhere); k++)
        if (everywhere[k].way == way)
            option = everywhere[k].option;
    for (size_t i = 0; i < s->t->all.n && (way == OQ_METHOD_PLAIN || option != NULL); i++) {
        oq_candidate *c = s->t->all.v[i];
        const oq_candidate base = {.recipe = s->base};
        if (c->ok && (option != NULL ? adds_option(&base, c, option)
                                     : oq_recipe_equal(&c->recipe, &s->base)))
            return c;
    }
    return NULL;
}

static onq_code try_point(stage *s, size_t n_steps, oq_candidate **out, onq_error *err) {
    double noise = 0;
    size_t count[OQ_METHODS] = {0};
    oq_recipe r;
    oq_menus_at(&s->menus, n_steps, s->ways, &noise);
    for (size_t i = 0; i < s->menus.all.n; i++)
        count[s->ways[i]]++;
    const bool rounds = s->rounds && count[OQ_METHOD_DOUBLE] > 0;
    *out = rounds ? NULL : find_made(s);
    if (*out != NULL) {
        (*out)->predicted = -oq_decibels(noise);
        return ONQ_OK;
    }
    OQ_TRY(with_ways(s, &r, err));
    if (rounds)
        OQ_TRY(oq_recipe_add(&r, s->t->arena, "learned_rounding", NULL, err));
    const oq_str label = oq_str_format(s->t->arena, "%zu of %zu units in integers%s%s%s%s",
                                       s->menus.all.n - count[OQ_METHOD_FLOAT], s->menus.all.n,
                                       count[OQ_METHOD_BOTH] > 0 ? ", channel ranges" : "",
                                       count[OQ_METHOD_OUTLIERS] > 0 ? ", outliers" : "",
                                       count[OQ_METHOD_DOUBLE] > 0 ? ", double" : "",
                                       rounds ? ", learned rounding" : "");
    OQ_TRY_ALLOC(label.p != NULL, err);
    OQ_TRY(oq_tune_try(s->t, &r, label.p, out, err));
    if (*out == NULL)
        return ONQ_OK;
    (*out)->predicted = -oq_decibels(noise);
    if (rounds)
        oq_spending_serve(&s->t->spending);
    return (*out)->floats.n == 0 ? list_floats(s, *out, err) : ONQ_OK;
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

/* It holds, and need not be measured again, or can be. */
static onq_code may_be_answer(oq_tune *t, const oq_candidate *c, bool *may, onq_error *err) {
    *may = oq_targets_hold(&t->targets, &c->score);
    if (!*may || oq_tune_is_safe(t, &c->score))
        return ONQ_OK;
    *may = oq_tune_affords_again(t, c);
    return oq_tune_decide(t, may, err);
}

/* With what reaches the targets already, points that are predicted to be slower have no use: the
 * first of them. */
static size_t first_useless(const stage *s) {
    const oq_tune *t = s->t;
    double least = INFINITY;
    size_t n = 0;
    if (t->prefer != OQ_PREFER_SPEED || t->base_float->ms <= s->from->ms)
        return s->menus.steps.n; /* times say nothing, or gains are no times (fit_gains) */
    for (size_t i = 0; i < t->all.n; i++)
        if (t->all.v[i]->ok && t->all.v[i]->ms > 0 &&
            oq_targets_hold(&t->targets, &t->all.v[i]->score))
            least = fmin(least, t->all.v[i]->ms);
    while (n < s->menus.steps.n &&
           t->base_float->ms - s->menus.steps.v[n].gain <= PREDICTED * least)
        n++;
    return n < s->menus.steps.n ? n + 1 : n;
}

static size_t last_allowed(const stage *s) {
    size_t n = s->end;
    while (n > 0 && float_units(s, n - 1) > s->t->max_float_units)
        n--;
    return n;
}

/* True if nothing between the points is faster than the last of them by what is worth a search. */
static bool is_narrow(const stage *s, size_t low, size_t high) {
    const oq_tune *t = s->t;
    const double first = low == 0 ? s->menus.gain : s->menus.steps.v[low - 1].gain;
    assert(low <= high && high <= s->menus.steps.n);
    if (t->prefer != OQ_PREFER_SPEED || t->base_float->ms <= s->from->ms || high == 0)
        return false; /* times say nothing, or gains are no times (fit_gains) */
    return first - s->menus.steps.v[high - 1].gain < OQ_WORTH_TIME * t->flt->ms;
}

/* A point with all its folds, the answer that it becomes, and another point cannot all be paid: the
 * first one must do. */
static onq_code is_last_chance(const stage *s, bool *last, onq_error *err) {
    const oq_tune *t = s->t;
    const double n = (double)t->folds->n;
    oq_recipe r;
    OQ_TRY(any_point(s, &r, err));
    const double made = oq_spending_next(&t->spending, &r, t->folds->folds[0].n_calibrate);
    const double point = n * (made + t->opening) + t->spending.bare;
    *last = !oq_tune_affords_seconds(t, 2 * point + oq_spending_answer(&t->spending, &r, 1));
    return oq_tune_decide(s->t, last, err);
}

/* Looks for the fastest point that reaches the targets. The prediction says where to begin; what was
 * measured there says by how much it is wrong. *reached: one was found that may be the answer. */
static onq_code find_point(stage *s, double allowed, bool *reached, onq_error *err) {
    double factor = 1;
    bool found = false;                     /* `high` was made, and holds */
    size_t low = 0, high = last_allowed(s); /* points below low fail, high (all float) does not */
    for (size_t i = 0; i < MAX_POINTS && low < high; i++) {
        oq_candidate *c = NULL;
        bool last = false;
        OQ_TRY(is_last_chance(s, &last, err));
        /* Nothing is kept to measure a rounded point again: its own bound must do. */
        const double aim = AIM * (s->rounds ? SAFER : last ? LAST : 1);
        size_t next = step_of(s, aim * allowed * factor);
        if (i >= GUESSES || next < low || next >= high)
            next = low + (high - low) / 2;
        assert(low <= next && next < high);
        OQ_TRY(try_point(s, next, &c, err));
        if (c == NULL)
            break;
        const double measured = pow(10, -c->score.objective / 10);
        const double predicted = pow(10, -c->predicted / 10);
        if (measured > 0 && predicted > 0 && isfinite(measured))
            factor = predicted / measured;
        allowed = fmin(allowed, measured * pow(10, -oq_tune_lack(s->t, c) / 10));
        bool holds = false;
        OQ_TRY(may_be_answer(s->t, c, &holds, err));
        /* What rounding gains says nothing of the noise of single units. */
        const bool corrected =
            i < GUESSES && !s->rounds && oq_menus_correct(&s->menus, s->ways, measured);
        if (corrected) {
            OQ_TRY(oq_menus_curve(&s->menus, s->t->arena, err));
            s->end = first_useless(s);
            factor = 1;
            low = 0;
            high = last_allowed(s);
        } else if (holds) {
            high = next;
        } else {
            low = next + 1;
        }
        found = !corrected && (found || holds);
        *reached |= holds;
        if (found && low < high && is_narrow(s, low, high))
            break;
    }
    return ONQ_OK;
}

/* What rounding is counted on to gain: as much as it did where it was tried, and before that a
 * guess. Only double activations leave no more noise than that of weights. */
static double rounding_gain(const stage *s) {
    const double gained = s->t->gained[OQ_REFINE_ROUNDING];
    bool doubled = false;
    for (size_t i = 0; i < s->menus.all.n; i++)
        doubled |= s->menus.all.v[i].rows[OQ_METHOD_DOUBLE].known;
    return !doubled ? 0 : isnan(gained) ? ROUNDING_DB : fmax(0, gained);
}

static onq_code affords_rounding(const stage *s, bool *may, onq_error *err) {
    oq_recipe r;
    OQ_TRY(oq_recipe_copy(&s->base, s->t->arena, &r, err));
    OQ_TRY(oq_recipe_add(&r, s->t->arena, "learned_rounding", NULL, err));
    *may = oq_tune_affords_rounding(s->t, &r);
    OQ_TRY(oq_tune_decide(s->t, may, err));
    return *may ? ONQ_OK : oq_tune_leave_out(s->t, "learned rounding of units", err);
}

/* Rounding leaves less noise of double activations, and of no other way: only there it is the noise of
 * weights alone. */
static onq_code scale_doubles(stage *s, double db, onq_error *err) {
    for (size_t i = 0; i < s->menus.all.n; i++)
        s->menus.all.v[i].rows[OQ_METHOD_DOUBLE].noise *= pow(10, -db / 10);
    OQ_TRY(oq_menus_curve(&s->menus, s->t->arena, err));
    s->end = first_useless(s);
    return ONQ_OK;
}

/* The first point that is rounded costs most, for later ones have its weights: so points are rounded
 * from the first one on. Where that cannot be paid, or does not do, the points must do without. */
static onq_code search_points(stage *s, const oq_candidate *base, onq_error *err) {
    const double allowed = oq_tune_allowed_noise(s->t, base), gain = rounding_gain(s);
    bool reached = false;
    if (gain > 0 && !s->rounded)
        OQ_TRY(affords_rounding(s, &s->rounds, err));
    if (!s->rounds)
        return find_point(s, allowed, &reached, err);
    OQ_TRY(scale_doubles(s, gain, err));
    OQ_TRY(find_point(s, allowed, &reached, err));
    if (reached)
        return ONQ_OK;
    s->rounds = false;
    OQ_TRY(scale_doubles(s, -gain, err));
    return find_point(s, allowed, &reached, err);
}

/* Where rounded double activations of all units were measured, and are not good enough, every other
 * way has more noise: those units become float that have most of it, and no more need be known. */
static onq_code round_doubles(stage *s, const oq_candidate *base, bool *reached, onq_error *err) {
    const oq_candidate *all = with_option(s, s->from, "double_activations");
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
    fill_noise(s, OQ_METHOD_PLAIN, s->from);
    OQ_TRY(probe_way(s, OQ_METHOD_DOUBLE, all, 0, err));
    for (size_t i = 0; i < n; i++)
        s->menus.all.v[i].rows[OQ_METHOD_PLAIN].known = false;
    OQ_TRY(scale_doubles(s, gain, err));
    s->t->choice = s;
    s->rounded = true;
    OQ_TRY(find_point(s, oq_tune_allowed_noise(s->t, base), reached, err));
    if (*reached)
        return ONQ_OK;
    memcpy(s->menus.all.v, fresh, n * sizeof *fresh);
    s->rounds = false;
    return ONQ_OK;
}

/* ---- the stage ---- */

/* The base with other ranges where they clearly gain: they serve the units. */
static const oq_candidate *with_best_ranges(const stage *s) {
    const oq_candidate *best = s->from;
    for (size_t i = 0; i < s->t->all.n; i++) {
        const oq_candidate *c = s->t->all.v[i];
        if (adds_option(s->from, c, "calibration_method") &&
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
    stage *s = OQ_NEW(t->arena, stage);
    OQ_TRY_ALLOC(s != NULL, err);
    *s = (stage){.t = t, .from = from};
    bool reached = false;
    s->whole = strcmp(oq_recipe_get(&from->recipe, "op_set"), "pays") != 0;
    const oq_candidate *base = with_best_ranges(s);
    const char *ranges = oq_recipe_get(&base->recipe, "calibration_method");
    OQ_TRY(plain_recipe(s, &from->recipe, &s->base, err));
    if (ranges != NULL)
        OQ_TRY(oq_recipe_add(&s->base, t->arena, "calibration_method", ranges, err));
    OQ_TRY(list_units(s, err));
    if (s->menus.all.n == 0)
        return ONQ_OK;
    OQ_TRY(round_doubles(s, base, &reached, err));
    if (reached)
        return ONQ_OK;
    OQ_TRY(probe_plain(s, err));
    OQ_TRY(probe_further(s, err));
    if (t->stopped)
        return ONQ_OK;
    OQ_TRY(oq_menus_curve(&s->menus, t->arena, err));
    t->choice = s;
    s->end = first_useless(s);
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
