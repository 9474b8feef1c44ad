/*
 * stage.h — what the files of the room share: the stage of the search that decides for each unit.
 *
 * units.c runs it: units_list.c says which units there are and what they may gain, units_noise.c
 * measures the noise of some of them, and units_points.c makes points of the curve (menu.h) until the
 * fastest one that reaches the targets is known.
 */
#pragma once

#include "tune/units/units.h"

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
} oq_unit_stage;

/* ---- units_list.c ---- */

/* A way that can be tried on all units at once by an option of its own. */
typedef struct oq_stage_way {
    oq_method way;
    const char *option;
} oq_stage_way;
#define OQ_STAGE_WAYS 3
extern const oq_stage_way oq_stage_everywhere[OQ_STAGE_WAYS];

/* True if a candidate has an option besides those of the base, and no other. */
bool oq_stage_adds_option(const oq_candidate *base, const oq_candidate *c, const char *option);
/* That candidate, or NULL. */
const oq_candidate *oq_stage_with_option(const oq_unit_stage *s, const oq_candidate *base,
                                         const char *option);
/* The way is one for units like this. */
bool oq_stage_fits(const oq_menu *m, oq_method way);
/* Units that integers may make faster and whose name is theirs alone, heaviest first. */
onq_code oq_stage_list(oq_unit_stage *s, onq_error *err);
/* The recipe without what is said for each unit, or done in the end. */
onq_code oq_stage_plain_recipe(oq_unit_stage *s, const oq_recipe *from, oq_recipe *to,
                               onq_error *err);
/* The base with the ways of the stage. */
onq_code oq_stage_with_ways(oq_unit_stage *s, oq_recipe *r, onq_error *err);

/* ---- units_noise.c ---- */

/* On how many samples a unit is measured alone, where so many judge a fold. */
size_t oq_stage_probe_samples(size_t n_judge);
/* Measures units alone: those that most of the gain comes from, then further ways for some. */
onq_code oq_stage_probe_plain(oq_unit_stage *s, onq_error *err);
onq_code oq_stage_probe_further(oq_unit_stage *s, onq_error *err);
/* One further way, for units that make much of this noise; `all` has it for all units, or is NULL. */
onq_code oq_stage_probe_way(oq_unit_stage *s, oq_method way, const oq_candidate *all, double noise,
                            onq_error *err);
/* The noise of the units that were not measured by this way, from what is known. */
void oq_stage_fill_noise(oq_unit_stage *s, oq_method way, const oq_candidate *all);

/* ---- units_points.c ---- */

/* Makes the point after so many steps of the curve, unless it is there. */
onq_code oq_stage_try_point(oq_unit_stage *s, size_t n_steps, oq_candidate **out, onq_error *err);
/* The first step after which the predicted noise is no more than this. */
size_t oq_stage_step_of(const oq_unit_stage *s, double noise);
/* Units that stay float after so many steps. */
size_t oq_stage_float_units(const oq_unit_stage *s, size_t n_steps);
/* The first point that is predicted to be slower than what reaches the targets already. */
size_t oq_stage_first_useless(const oq_unit_stage *s);
/* A point with less accuracy than all units plain, though some have further ways that few samples
 * found better: these ways are struck from the menus. False: there is no such reason. */
bool oq_stage_strike_ways(oq_unit_stage *s, const oq_candidate *c);
/* Looks for the fastest point that reaches the targets; *reached: one was found that may be the
 * answer. */
onq_code oq_stage_find_point(oq_unit_stage *s, double allowed, bool *reached, onq_error *err);
