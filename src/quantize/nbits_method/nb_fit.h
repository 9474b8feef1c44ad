/*
 * nb_fit.h — scale and zero point of one block, for methods that search: which range loses least,
 * where every weight counts as much as its inputs are large.
 */
#pragma once

#include "quantize/nbits/nb_task.h"

typedef struct oq_nb_grid {
    oq_dtype real; /* of the scale as it is stored */
    unsigned bits;
    bool symmetric;
    double shrink; /* ranges down to this part of the whole are tried; 1: none */
    unsigned steps;
} oq_nb_grid;

/* n weights, `stride` apart. `power` are their n weights in the error, or NULL: all alike. Returns
 * the error, the sum of power x the square of what is lost. */
double oq_nb_fit(const oq_nb_grid *g, const double *w, size_t n, size_t stride, const float *power,
                 float *scale, float *zero);
/* The integer of a weight. */
static inline double oq_nb_round(const oq_nb_grid *g, double w, float scale, float zero) {
    const double most = (double)((1u << g->bits) - 1);
    const double q =
        scale != 0.0f ? __builtin_rint(w / (double)scale) + (double)zero : (double)zero;
    return q < 0 ? 0 : q > most ? most : q;
}
