/*
 * units_noise.c — the noise of single units, all others float; see stage.h.
 */
#include "tune/units/stage.h"

#include <math.h>

#define PROBE_LIMIT   "6" /* samples that calibrate for it, some of them held out */
#define PROBE_SAMPLES 2   /* for the noise of one unit, at least ... */
#define PROBE_PART    8   /* ... and of those that judge a fold one in so many */
/* Units whose part of the noise is below this are good enough as they are. */
#define MIN_NOISE   0.01
#define MAX_PROBES  16  /* units that are measured alone; points of the curve correct the guesses */
#define MAX_SHARE   0.9 /* of the gain: units that give it are measured */
#define MAX_FURTHER 4   /* that are, by each further way */
#define FORESEEN    3   /* points of the curve for which measuring units leaves enough ... */
#define FIRST_UNITS 6   /* ... but for the first units: without them all points are guesses */

/* Another unit can be measured, and some points still be made; one of them made again with all
 * samples, and before that with other parts of them. */
static onq_code may_probe(const oq_unit_stage *s, oq_method way, bool *may, onq_error *err) {
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

/* Few samples may all be of one kind, and the units that look bad on them be the wrong ones. */
size_t oq_stage_probe_samples(size_t n_judge) {
    const size_t part = n_judge / PROBE_PART;
    return part > PROBE_SAMPLES ? part : PROBE_SAMPLES;
}

/* The noise of one unit quantized in this way, all others float. */
static onq_code probe(oq_unit_stage *s, size_t at, oq_method way, onq_error *err) {
    oq_menu *menu = &s->menus.all.v[at];
    oq_recipe r;
    oq_score score;
    bool made = false;
    for (size_t i = 0; i < s->menus.all.n; i++)
        s->ways[i] = i == at ? way : OQ_METHOD_FLOAT;
    OQ_TRY(oq_stage_with_ways(s, &r, err));
    /* The minmax ranges of scaled channels follow from those of the graph as it is; others are found
     * anew each time, and few samples do for an estimate. */
    if (oq_method_needs_samples(way) && oq_recipe_get(&r, "calibration_method") != NULL &&
        oq_recipe_get(&r, "limit") == NULL)
        OQ_TRY(oq_recipe_add(&r, s->t->arena, "limit", PROBE_LIMIT, err));
    OQ_TRY(oq_tune_probe(s->t, &r, oq_stage_probe_samples(s->t->folds->folds[0].n_judge), &score,
                         &made, err));
    s->n_probed++;
    s->probe[way] = fmax(s->probe[way], s->t->cost.made * s->t->spending.bare);
    OQ_TRY(oq_tune_look_at_pace(s->t, err));
    menu->rows[way].noise = made ? pow(10, -score.objective / 10) : INFINITY;
    menu->rows[way].known = isfinite(menu->rows[way].noise);
    return ONQ_OK;
}

/* The noise of the units that were not measured by this way: what all of them together have, as far
 * as it is known, without those that were; else as much for their work as these. */
void oq_stage_fill_noise(oq_unit_stage *s, oq_method way, const oq_candidate *all) {
    double noise = 0, work = 0, rest = 0;
    for (size_t i = 0; i < s->menus.all.n; i++) {
        const oq_menu *m = &s->menus.all.v[i];
        if (m->rows[way].known) {
            noise += m->rows[way].noise;
            work += m->macs;
        } else if (oq_stage_fits(m, way)) {
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
        if (m->rows[way].known || !oq_stage_fits(m, way) || m->rows[way].gain <= 0)
            continue;
        m->rows[way].noise =
            way == OQ_METHOD_PLAIN ? each * m->macs : fmin(plain->noise, each * m->macs);
        m->rows[way].known = m->rows[way].guessed = true;
    }
}

/* Those that most of the gain comes from are measured. */
onq_code oq_stage_probe_plain(oq_unit_stage *s, onq_error *err) {
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
    oq_stage_fill_noise(s, OQ_METHOD_PLAIN, s->from);
    return ONQ_OK;
}

/* A further way for units that make much of the noise, the heaviest first. */
onq_code oq_stage_probe_way(oq_unit_stage *s, oq_method way, const oq_candidate *all, double noise,
                            onq_error *err) {
    size_t tried = 0;
    bool may = true;
    for (size_t i = 0; i < s->menus.all.n && tried < MAX_FURTHER && may; i++) {
        const oq_menu *m = &s->menus.all.v[i];
        const oq_menu_row *plain = &m->rows[OQ_METHOD_PLAIN];
        if (!oq_stage_fits(m, way) || m->rows[way].gain <= 0 || !plain->known ||
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
        oq_stage_fill_noise(s, way, all);
    return ONQ_OK;
}

onq_code oq_stage_probe_further(oq_unit_stage *s, onq_error *err) {
    double sum = 0;
    for (size_t i = 0; i < s->menus.all.n; i++)
        sum += s->menus.all.v[i].rows[OQ_METHOD_PLAIN].noise;
    for (size_t k = 0; k < OQ_COUNT(oq_stage_everywhere); k++)
        if (oq_stage_everywhere[k].way != OQ_METHOD_BOTH || !s->t->channels_lose)
            OQ_TRY(oq_stage_probe_way(
                s, oq_stage_everywhere[k].way,
                oq_stage_with_option(s, s->from, oq_stage_everywhere[k].option), sum, err));
    return ONQ_OK;
}
