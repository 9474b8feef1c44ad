/*
 * unit_time.h — how long a unit takes in float and in integers on this machine.
 *
 * Models of one node are made with the unit's sizes and attributes, and run in turns: in float,
 * with integers at both ends, and with integers between floats. The least of the rounds' medians
 * counts, so a busy moment does not.
 */
#pragma once

#include "engine/engine.h"
#include "quantize/cost/cost.h"

/* `like` gives provider, custom operators and threads. A unit whose sizes are not known or too
 * large is not timed: *timed is false. */
onq_code oq_unit_time(oq_engine *e, const oq_unit *u, const oq_session_options *like,
                      oq_unit_cost *out, bool *timed, onq_error *err);

/* Numbers that follow no pattern a kernel could use: floats of about -1 to 1, or bytes for any
 * other type. In the arena; NULL when out of memory. */
void *oq_timed_values(oq_arena *a, oq_dtype type, uint64_t n);
