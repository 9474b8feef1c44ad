/*
 * weights.h — a weight while it is measured: float values, integers, dequantized values.
 */
#ifndef OQ_DEBUG_WEIGHTS_H
#define OQ_DEBUG_WEIGHTS_H

#include "debug/debug.h"

typedef struct oq_debug_unpacked {
    uint64_t n;
    float *x;     /* the float weight */
    float *y;     /* dequantized, in the float weight's order */
    double *wide; /* the same in double; NULL unless the integers are int32 */
    int32_t *q;
    float *scale;
    double *zero;
    uint64_t n_groups;          /* of scales */
    bool has_zero;              /* a zero point that is not 0 */
    bool mixed;                 /* the scale no longer follows from the index of an element */
    uint64_t dim, inner, block; /* the axis of the scales; dim 0: one for all */
} oq_debug_unpacked;

/* The number of element i's scale, unless `mixed`. */
static inline uint64_t oq_debug_group(const oq_debug_unpacked *u, uint64_t i) {
    if (u->dim == 0)
        return 0;
    const uint64_t inner = i % u->inner, d = i / u->inner % u->dim, outer = i / u->inner / u->dim;
    if (u->block == 0)
        return d;
    return (outer * ((u->dim + u->block - 1) / u->block) + d / u->block) * u->inner + inner;
}
/* Float values, integers and dequantized values of w, in the arena. */
onq_code oq_debug_unpack(oq_debug *d, oq_debug_weight *w, oq_arena *a, oq_debug_unpacked *u,
                         onq_error *err);
/* Folds w->norm into the float values (folded.c). */
onq_code oq_debug_fold(oq_debug *d, const oq_debug_weight *w, oq_arena *a, float *x, uint64_t n,
                       onq_error *err);
/* Fills the results of w. */
onq_code oq_debug_weight_measure(oq_debug *d, oq_debug_weight *w, const oq_debug_unpacked *u,
                                 oq_arena *scratch, onq_error *err);
/* Histograms over a range that is known; no-ops when h has no bins. */
void oq_debug_hist_add(const oq_debug_hist *h, uint32_t *bins, const float *v, uint64_t n,
                       uint64_t step);
onq_code oq_debug_hist_make(oq_arena *a, oq_debug_hist *h, float lo, float hi, onq_error *err);

/* ---- a weight as two arrays (weight_values.c) ---- */

typedef struct oq_debug_values {
    oq_dtype truth_type, made_type;
    const void *truth, *made;
    size_t truth_bytes, made_bytes;
} oq_debug_values;

/* True if the reference's create_weight_matching would give it. */
bool oq_debug_is_reference(const oq_debug *d, const oq_debug_weight *w);
/* In the arena, or views of the float model. as_reference: with its type and its wrapping
 * around. */
onq_code oq_debug_weight_values(oq_debug *d, oq_debug_weight *w, bool as_reference, oq_arena *a,
                                oq_debug_values *out, onq_error *err);
/* v modulo 2^bits, as numpy subtracts in a type of so many bits. */
int32_t oq_debug_wrapped(int32_t v, unsigned bits, bool is_signed);

#endif
