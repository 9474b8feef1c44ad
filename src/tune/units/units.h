/*
 * units.h — the stage of the search that decides for each unit.
 */
#pragma once

#include "tune/tune.h"
#include "tune/units/menu.h"

/* What units the prepared model has, and which of them integers may make faster. Names are views of
 * the model. */
onq_code oq_tune_find_units(oq_tune *t, oq_model *m, onq_error *err);
/* ONQ_E_UNSUPPORTED when the model at `path` leaves more units float than it may. */
onq_code oq_tune_check_units(const oq_tune *t, const char *path, onq_error *err);
/* After whole models were tried: adds points of the curve to the candidates. */
onq_code oq_tune_units(oq_tune *t, onq_error *err);
/* Adds a point of the curve that has less noise than a candidate which was doubted. */
onq_code oq_tune_safer(oq_tune *t, const oq_candidate *c, onq_error *err);
