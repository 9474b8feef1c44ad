/*
 * nb_fit.h — scales and zero points of blocks, for methods that search: which range loses least,
 * where every weight counts as much as its inputs are large.
 */
#pragma once

#include "quantize/nbits/nb_panel.h"

typedef struct oq_nb_grid {
    oq_dtype real; /* of the scale as it is stored */
    unsigned bits;
    bool symmetric;
    bool real_zero; /* zero points are not rounded */
    bool centred;   /* the zero point is the middle of the integers: no integer stands for 0 */
    double shrink;  /* ranges down to this part of the whole are tried; 1: none */
    unsigned steps;
    unsigned spare; /* up to so many of the highest integers are left unused: weights that were
                     * quantized before lie on a grid, but need not reach both of its ends */
} oq_nb_grid;

/* One block of up to OQ_NB_TILE columns: `rows` rows of weights, `stride` apart. `power` says how
 * much each row counts in the error, or is NULL: all alike. Returns the error of all columns: the
 * sum of power x the square of what is lost. */
double oq_nb_fit(const oq_nb_grid *g, const double *w, size_t rows, size_t cols, size_t stride,
                 const double *power, float *scale, float *zero);
/* Moves the scales that oq_nb_fit found, and zero points that are not rounded, to where the error is
 * least with the integers as they are, as long as that lowers it. */
void oq_nb_refit(const oq_nb_grid *g, const double *w, size_t rows, size_t cols, size_t stride,
                 const double *power, float *scale, float *zero);
/* The integer of a weight. */
static inline double oq_nb_round(const oq_nb_grid *g, double w, float scale, float zero) {
    const double most = (double)((1u << g->bits) - 1);
    const double q =
        __builtin_rint(scale != 0.0f ? w / (double)scale + (double)zero : (double)zero);
    return q < 0 ? 0 : q > most ? most : q;
}
