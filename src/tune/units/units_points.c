/*
 * units_points.c — points of the curve are made until the fastest that reaches the targets is known;
 * see stage.h.
 */
#include "samples/agreement.h"
#include "tune/units/stage.h"

#include <math.h>
#include <stdlib.h>

#define GUESSES    3    /* points that the prediction chooses; then what is left is halved */
#define MAX_POINTS 6    /* of the curve that are made */
#define ROUNDED    0.7  /* of the noise that other points aim at: their own bound must do */
#define LAST       0.8  /* of what is allowed, where no other point can be paid */
#define AIM        0.9  /* of the noise that is allowed: the bound is to reach the target too */
#define WORSE_DB   2    /* than all units as they are */
#define PREDICTED  1.25 /* times the best time: a point that is slower, however it was predicted */

static int by_noise(const void *a, const void *b) {
    const oq_float_unit *x = a, *y = b;
    return x->sqnr < y->sqnr ? -1 : x->sqnr > y->sqnr;
}

/* Why units stay float: what the menus know of them in integers. */
static onq_code list_floats(const oq_unit_stage *s, oq_candidate *c, onq_error *err) {
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
static oq_candidate *find_made(const oq_unit_stage *s) {
    const oq_method way = s->ways[0];
    const char *option = NULL;
    for (size_t i = 0; i < s->menus.all.n; i++)
        if (s->ways[i] != way || !oq_stage_fits(&s->menus.all.v[i], way))
            return NULL;
    for (size_t k = 0; k < OQ_COUNT(oq_stage_everywhere); k++)
        if (oq_stage_everywhere[k].way == way)
            option = oq_stage_everywhere[k].option;
    for (size_t i = 0; i < s->t->all.n && (way == OQ_METHOD_PLAIN || option != NULL); i++) {
        oq_candidate *c = s->t->all.v[i];
        const oq_candidate base = {.recipe = s->base};
        if (c->ok && (option != NULL ? oq_stage_adds_option(&base, c, option)
                                     : oq_recipe_equal(&c->recipe, &s->base)))
            return c;
    }
    return NULL;
}

onq_code oq_stage_try_point(oq_unit_stage *s, size_t n_steps, oq_candidate **out, onq_error *err) {
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
    OQ_TRY(oq_stage_with_ways(s, &r, err));
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

size_t oq_stage_step_of(const oq_unit_stage *s, double noise) {
    if (s->menus.noise <= noise)
        return 0;
    for (size_t k = 0; k < s->menus.steps.n; k++)
        if (s->menus.steps.v[k].noise <= noise)
            return k + 1;
    return s->menus.steps.n;
}

size_t oq_stage_float_units(const oq_unit_stage *s, size_t n_steps) {
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
size_t oq_stage_first_useless(const oq_unit_stage *s) {
    const oq_tune *t = s->t;
    double least = INFINITY;
    size_t n = 0;
    if (t->prefer != OQ_PREFER_SPEED || t->base_float->ms <= s->from->ms)
        return s->menus.steps.n; /* times say nothing, or gains are no times (fit_gains) */
    for (size_t i = 0; i < t->all.n; i++)
        if (t->all.v[i]->ok && t->all.v[i]->ms > 0 && !t->all.v[i]->doubted &&
            oq_targets_hold(&t->targets, &t->all.v[i]->score))
            least = fmin(least, t->all.v[i]->ms);
    while (n < s->menus.steps.n &&
           t->base_float->ms - s->menus.steps.v[n].gain <= PREDICTED * least)
        n++;
    return n < s->menus.steps.n ? n + 1 : n;
}

static size_t last_allowed(const oq_unit_stage *s) {
    size_t n = s->end;
    while (n > 0 && oq_stage_float_units(s, n - 1) > s->t->max_float_units)
        n--;
    return n;
}

/* True if nothing between the points is faster than the last of them by what is worth a search. */
static bool is_narrow(const oq_unit_stage *s, size_t low, size_t high) {
    const oq_tune *t = s->t;
    const double first = low == 0 ? s->menus.gain : s->menus.steps.v[low - 1].gain;
    assert(low <= high && high <= s->menus.steps.n);
    if (t->prefer != OQ_PREFER_SPEED || t->base_float->ms <= s->from->ms || high == 0)
        return false; /* times say nothing, or gains are no times (fit_gains) */
    return first - s->menus.steps.v[high - 1].gain < OQ_WORTH_TIME * t->flt->ms;
}

/* The dearest that a point may be. */
static onq_code any_point(const oq_unit_stage *s, oq_recipe *r, onq_error *err) {
    OQ_TRY(oq_recipe_copy(&s->base, s->t->arena, r, err));
    for (size_t i = 0; i < s->menus.all.n; i++)
        for (oq_method way = OQ_METHOD_PLAIN; way < OQ_METHODS; way++)
            if (s->menus.all.v[i].rows[way].known)
                r->methods |= UINT32_C(1) << way;
    return ONQ_OK;
}

/* A point with all its folds, the answer that it becomes, and another point cannot all be paid: the
 * first one must do. */
static onq_code is_last_chance(const oq_unit_stage *s, bool *last, onq_error *err) {
    const oq_tune *t = s->t;
    const double n = (double)t->folds->n;
    oq_recipe r;
    OQ_TRY(any_point(s, &r, err));
    const double made = oq_spending_next(&t->spending, &r, t->folds->folds[0].n_calibrate);
    const double point = n * (made + t->opening) + t->spending.bare;
    *last = !oq_tune_affords_seconds(t, 2 * point + oq_spending_answer(&t->spending, &r, 1));
    return oq_tune_decide(s->t, last, err);
}

bool oq_stage_strike_ways(oq_unit_stage *s, const oq_candidate *c) {
    uint32_t bad = 0;
    if (!(c->score.objective < s->from->score.objective - WORSE_DB))
        return false;
    for (size_t i = 0; i < s->menus.all.n; i++)
        bad |= UINT32_C(1) << s->ways[i];
    bad &= ~(UINT32_C(1) << OQ_METHOD_FLOAT | UINT32_C(1) << OQ_METHOD_PLAIN);
    for (size_t i = 0; i < s->menus.all.n; i++)
        for (oq_method way = OQ_METHOD_PLAIN; way < OQ_METHODS; way++)
            if (bad & UINT32_C(1) << way)
                s->menus.all.v[i].rows[way].known = false;
    return bad != 0;
}

/* Looks for the fastest point that reaches the targets. The prediction says where to begin; what was
 * measured there says by how much it is wrong. *reached: one was found that may be the answer. */
onq_code oq_stage_find_point(oq_unit_stage *s, double allowed, bool *reached, onq_error *err) {
    double factor = 1;
    bool found = false;                     /* `high` was made, and holds */
    size_t low = 0, high = last_allowed(s); /* points below low fail, high (all float) does not */
    for (size_t i = 0; i < MAX_POINTS && low < high; i++) {
        oq_candidate *c = NULL;
        bool last = false;
        OQ_TRY(is_last_chance(s, &last, err));
        /* Nothing is kept to measure a rounded point again: its own bound must do. */
        const double aim = AIM * (s->rounds ? ROUNDED : last ? LAST : 1);
        size_t next = oq_stage_step_of(s, aim * allowed * factor);
        if (i >= GUESSES || next < low || next >= high)
            next = low + (high - low) / 2;
        assert(low <= next && next < high);
        OQ_TRY(oq_stage_try_point(s, next, &c, err));
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
        const bool struck = !holds && oq_stage_strike_ways(s, c);
        const bool corrected =
            struck || (i < GUESSES && !s->rounds && oq_menus_correct(&s->menus, s->ways, measured));
        if (corrected) {
            OQ_TRY(oq_menus_curve(&s->menus, s->t->arena, err));
            s->end = oq_stage_first_useless(s);
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
