/*
 * weights.h — a weight while it is measured: float values, quantized numbers, dequantized values.
 */
#ifndef OQ_DEBUG_WEIGHTS_H
#define OQ_DEBUG_WEIGHTS_H

#include "debug/debug.h"

typedef struct oq_dbg_unpacked {
    uint64_t n;
    float *x;     /* the float weight */
    float *y;     /* dequantized, in the float weight's order */
    double *wide; /* the same in double; NULL unless the numbers are int32 */
    int32_t *q;
    float *scale;
    double *zero;
    uint64_t n_groups; /* of scales */
    bool has_zero;     /* a zero point that is not 0 */
    bool mixed;        /* element i does not tell its scale any more */
    uint64_t dim, inner, block; /* the axis of the scales; dim 0: one for all */
} oq_dbg_unpacked;

/* The number of element i's scale, unless `mixed`. */
uint64_t oq_dbg_group(const oq_dbg_unpacked *u, uint64_t i);
/* Fills the results of w. */
onq_code oq_dbg_weight_measure(oq_debug *d, oq_dbg_weight *w, const oq_dbg_unpacked *u,
                               oq_arena *scratch, onq_error *err);
/* Histograms over a range that is known; no-ops when h has no bins. */
void oq_dbg_hist_add(oq_dbg_hist *h, uint32_t *bins, const float *v, uint64_t n, uint64_t step);
onq_code oq_dbg_hist_make(oq_arena *a, oq_dbg_hist *h, float lo, float hi, onq_error *err);

#endif
