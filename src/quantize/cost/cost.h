/*
 * cost.h — what a unit costs in float and in integers, and whether integers pay for it.
 *
 * Costs come from a file that `onq bench --units --json` wrote, by the shape of the unit; where it
 * has none, from rates of one machine (cost.c). They say which units gain, not how long a model
 * takes.
 */
#pragma once

#include "base/text/json.h"
#include "quantize/cost/unit.h"

/* Milliseconds of one run, by one thread; INFINITY: the runtime has no such kernel. */
typedef struct oq_unit_cost {
    double real;  /* in float */
    double inner; /* in integers, between integers */
    double alone; /* in integers, between floats: with QuantizeLinear and DequantizeLinear */
} oq_unit_cost;

typedef struct oq_unit_costs {
    oq_map keys; /* -> index in all */
    OQ_VEC(oq_unit_cost) all;
} oq_unit_costs;

/* Reads a file; ONQ_E_CONFIG says what is wrong with it. */
onq_code oq_unit_costs_load(oq_unit_costs *c, oq_arena *a, const onq_allocator *alloc,
                            const char *path, onq_error *err);

/* The unit's shape as a text: operator, sizes, attributes. p == NULL: out of memory. */
oq_str oq_unit_key(const oq_unit *u, oq_arena *a);
/* From the table (which may be NULL), else by the rates. */
oq_unit_cost oq_unit_cost_of(const oq_unit *u, const oq_unit_costs *c, oq_str key);
/* True if integers pay for a unit of that cost whatever is beside it, or between integers. */
bool oq_cost_pays_alone(const oq_unit_cost *c);
bool oq_cost_pays_inside(const oq_unit_cost *c);

/* One flag for each unit: it pays alone, or it pays inside and stands between units that pay. */
onq_code oq_units_pay(const oq_units *u, const oq_unit_costs *c, oq_arena *a, bool **out,
                      onq_error *err);

/* "dense", "depthwise" ... */
const char *oq_unit_kind_name(oq_unit_kind kind);
