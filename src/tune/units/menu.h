/*
 * menu.h — a menu for each unit, and the curve that a choice from all menus gives.
 *
 * A unit (a product with its Relu or Clip) may stay float or be quantized by one of several
 * methods. Each way has a noise and a time. Noise adds up over units, so one measurement of each
 * way of each unit predicts every combination. The curve begins with the fastest way of every unit
 * and ends with all of them float; each step changes one unit, where the most noise goes for the
 * least time.
 */
#pragma once

#include "base/vec.h"
#include "quantize/choose/node_method.h"

typedef struct oq_menu_row {
    bool known;   /* on the menu */
    bool guessed; /* its noise was not measured: that of others, by its work */
    double noise; /* of the outputs, as a part of their power; 0 of float */
    double gain;  /* time that it saves against float */
} oq_menu_row;

typedef struct oq_menu {
    const char *node, *act; /* names; act NULL: it has none */
    double macs;
    bool is_matmul;
    oq_menu_row rows[OQ_METHODS]; /* FLOAT is always known; the others as they were measured */
} oq_menu;

/* One step of the curve: unit `at` gets the way `to`. */
typedef struct oq_menu_step {
    size_t at;
    oq_method to;
    double noise, gain; /* of all units after it */
} oq_menu_step;

typedef struct oq_menus {
    OQ_VEC(oq_menu) all;
    oq_method *first;   /* the fastest way of each */
    double noise, gain; /* of these */
    OQ_VEC(oq_menu_step) steps;
} oq_menus;

/* Finds the curve; ONQ_E_NOMEM. */
onq_code oq_menus_curve(oq_menus *m, oq_arena *a, onq_error *err);
/* The ways of all units after so many steps, into ways[all.n]; noise is what they predict. */
void oq_menus_at(const oq_menus *m, size_t n_steps, oq_method *ways, double *noise);
/* Where units with these ways have another noise than the menus predict, it is that of the rows that
 * were guessed: they are corrected. False: there are few, or they are about right. */
bool oq_menus_correct(oq_menus *m, const oq_method *ways, double measured);
/* The methods as text for --node_methods. In the arena; NULL when out of memory. */
const char *oq_menus_text(const oq_menus *m, const oq_method *ways, oq_arena *a);
