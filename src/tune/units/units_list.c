/*
 * units_list.c — which units there are, and what each may gain; see stage.h.
 */
#include "tune/units/stage.h"

#include <math.h>
#include <stdlib.h>

/* Of float's time: the least gain of a unit that pays, however badly it was timed. */
#define MIN_GAIN 0.02

static onq_code c_name(oq_unit_stage *s, const oq_node *n, const char **out, onq_error *err) {
    *out = oq_str_cstr(s->t->arena, oq_node_label(n));
    return *out != NULL ? ONQ_OK : oq_fail_nomem(err);
}

static bool is_listed(const oq_unit_stage *s, const oq_unit *u) {
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

const oq_stage_way oq_stage_everywhere[OQ_STAGE_WAYS] = {
    {OQ_METHOD_BOTH, "channel_ranges"},
    {OQ_METHOD_OUTLIERS, "outlier_channels"},
    {OQ_METHOD_DOUBLE, "double_activations"},
};

bool oq_stage_adds_option(const oq_candidate *base, const oq_candidate *c, const char *option) {
    return c->ok && c->ms > 0 && oq_recipe_adds(&base->recipe, &c->recipe, option);
}

const oq_candidate *oq_stage_with_option(const oq_unit_stage *s, const oq_candidate *base,
                                         const char *option) {
    for (size_t i = 0; i < s->t->all.n; i++)
        if (oq_stage_adds_option(base, s->t->all.v[i], option))
            return s->t->all.v[i];
    return NULL;
}

bool oq_stage_fits(const oq_menu *m, oq_method way) {
    return way == OQ_METHOD_PLAIN || (way == OQ_METHOD_BOTH) != m->is_matmul;
}

/* What the whole model gains by integers, and what a way on all units costs of it, was timed. Each
 * unit has a part of both by what it gains alone, as the rates say, and by its work. */
static void fit_gains(oq_unit_stage *s) {
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
    for (size_t k = 0; k < OQ_COUNT(oq_stage_everywhere); k++) {
        const oq_candidate *c = oq_stage_with_option(s, s->from, oq_stage_everywhere[k].option);
        for (size_t i = 0; i < s->menus.all.n && c != NULL; i++) {
            oq_menu *m = &s->menus.all.v[i];
            const double part = m->rows[OQ_METHOD_PLAIN].gain;
            if (oq_stage_fits(m, oq_stage_everywhere[k].way) && of_kind[m->is_matmul] > 0)
                m->rows[oq_stage_everywhere[k].way].gain =
                    part - fmax(0, c->ms - s->from->ms) * part / of_kind[m->is_matmul];
        }
    }
}

static int by_macs(const void *x, const void *y) {
    const oq_menu *a = x, *b = y;
    return a->macs != b->macs ? (a->macs < b->macs ? 1 : -1) : strcmp(a->node, b->node);
}

onq_code oq_stage_list(oq_unit_stage *s, onq_error *err) {
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

onq_code oq_stage_plain_recipe(oq_unit_stage *s, const oq_recipe *from, oq_recipe *to,
                               onq_error *err) {
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

onq_code oq_stage_with_ways(oq_unit_stage *s, oq_recipe *r, onq_error *err) {
    const char *text = oq_menus_text(&s->menus, s->ways, s->t->arena);
    OQ_TRY_ALLOC(text != NULL, err);
    OQ_TRY(oq_recipe_copy(&s->base, s->t->arena, r, err));
    for (size_t i = 0; i < s->menus.all.n; i++)
        r->methods |= UINT32_C(1) << s->ways[i];
    return oq_recipe_add(r, s->t->arena, "node_methods", text, err);
}
