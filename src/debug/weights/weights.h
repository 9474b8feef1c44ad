/*
 * weights.h — a weight while it is measured: float values, integers, dequantized values.
 */
#pragma once

#include "debug/debug.h"

/* How elements share numbers along an axis: element i has number i / inner % dim, or with blocks
 * one of its own for each block along the axis and each place after it. dim 0: one number for
 * all. */
typedef struct oq_debug_grid {
    uint64_t dim, inner, block;
} oq_debug_grid;

/* A weight, or elements in a row of it. */
typedef struct oq_debug_unpacked {
    uint64_t n, from; /* elements, and the first one's index in the weight */
    float *x;         /* the float weight */
    float *y;         /* dequantized, in the float weight's order */
    double *wide;     /* the same in double; NULL unless the integers are int32 */
    int32_t *q;
    float *scale;
    double *zero;
    uint64_t n_groups;  /* of scales */
    bool has_zero;      /* a zero point that is not 0 */
    bool mixed;         /* the scale no longer follows from the index of an element */
    oq_debug_grid grid; /* of the scales */
} oq_debug_unpacked;

/* Elements in a row with one number, or with numbers in a row. */
typedef struct oq_debug_stretch {
    uint64_t n, number;
    bool rising;
} oq_debug_stretch;

/* From element i on, at most `most`. */
static inline oq_debug_stretch oq_debug_stretch_at(const oq_debug_grid *g, uint64_t i,
                                                   uint64_t most) {
    oq_debug_stretch s = {.n = most};
    if (g->dim == 0)
        return s;
    const uint64_t inner = i % g->inner, d = i / g->inner % g->dim;
    const bool line = g->inner == 1; /* the axis is the last */
    if (g->block == 0) {
        s.rising = line;
        s.number = d;
        s.n = line ? g->dim - d : g->inner - inner;
    } else {
        const uint64_t outer = i / g->inner / g->dim, left = g->block - d % g->block;
        s.rising = !line;
        s.number = (outer * ((g->dim + g->block - 1) / g->block) + d / g->block) * g->inner + inner;
        s.n = !line ? g->inner - inner : left < g->dim - d ? left : g->dim - d;
    }
    s.n = s.n < most ? s.n : most;
    return s;
}
/* The number of element i's scale, unless `mixed`. */
static inline uint64_t oq_debug_group(const oq_debug_unpacked *u, uint64_t i) {
    return oq_debug_stretch_at(&u->grid, i, 1).number;
}
/* Float values, integers and dequantized values of w, in the arena. */
onq_code oq_debug_unpack(oq_debug *d, oq_debug_weight *w, oq_arena *a, oq_debug_unpacked *u,
                         onq_error *err);
/* Folds w->norm into the float values (folded.c). */
onq_code oq_debug_fold(oq_debug *d, const oq_debug_weight *w, oq_arena *a, float *x, uint64_t n,
                       onq_error *err);
/* True if elements in a row of w can be unpacked by themselves. */
bool oq_debug_is_plain(const oq_debug_weight *w);
/* Of a plain weight, what all its elements need; then elements from u->from on, as many as n, into
 * the room that u has for them. */
onq_code oq_debug_unpack_begin(oq_debug *d, oq_debug_weight *w, oq_arena *a, uint64_t room,
                               oq_debug_unpacked *u, onq_error *err);
onq_code oq_debug_unpack_some(oq_debug *d, oq_debug_weight *w, uint64_t from, uint64_t n,
                              oq_debug_unpacked *u, onq_error *err);

/* ---- figures (weight_measure.c) ---- */

/* What elements of a weight add up to. */
typedef struct oq_weight_sums {
    oq_sums sums, wrapped; /* wrapped: as the reference's integers wrap around */
    float lo, hi;
    double q_lo, q_hi;
    uint64_t n, clipped, pairs, hot_pairs;
    uint64_t n_groups; /* 0: what a good scale would give is not asked */
    float *group_lo, *group_hi;
    uint64_t *group_n;
    oq_debug_grid channels; /* dim 0: not shown */
    double *xx, *ee;
    float *channel_lo, *channel_hi;
} oq_weight_sums;

/* Elements that are measured together are a multiple of so many, from the first one on. */
uint64_t oq_weight_unit(const oq_debug_weight *w, uint64_t n);
/* `u` has the scales. Arrays are in the arena. */
onq_code oq_weight_sums_init(oq_weight_sums *s, const oq_debug_weight *w,
                             const oq_debug_unpacked *u, oq_arena *a, onq_error *err);
/* n: elements of the whole weight. */
void oq_weight_sums_add(oq_weight_sums *s, const oq_debug_weight *w, const oq_debug_unpacked *u,
                        uint64_t n);
void oq_weight_sums_join(oq_weight_sums *into, const oq_weight_sums *more);
/* Fills the results of w; the bins of its histograms are left empty. */
onq_code oq_debug_weight_finish(oq_debug *d, oq_debug_weight *w, const oq_debug_unpacked *u,
                                const oq_weight_sums *s, onq_error *err);
/* Histograms over a range that is known; no-ops when h has no bins. */
void oq_debug_hist_add(const oq_debug_hist *h, uint32_t *bins, const float *v, uint64_t n,
                       uint64_t step);
onq_code oq_debug_hist_make(oq_arena *a, oq_debug_hist *h, float lo, float hi, onq_error *err);

/* ---- weights that a method scaled (rescaled.c) ---- */

/* Fills `rescaled` of each weight; call when they are measured. */
onq_code oq_debug_find_rescaled(oq_debug *d, onq_error *err);
/* Marks the activations around such weights: their channels may be scaled too. */
onq_code oq_debug_mark_rescaled(oq_debug *d, onq_error *err);

/* ---- a weight as two arrays (weight_values.c) ---- */

typedef struct oq_debug_values {
    oq_dtype float_type, quantized_type;
    const void *flt, *quantized;
    size_t float_bytes, quantized_bytes;
} oq_debug_values;

/* True if the reference's create_weight_matching would give it. */
bool oq_debug_is_reference(const oq_debug *d, const oq_debug_weight *w);
/* In the arena, or views of the float model. as_reference: with its type and its wrapping
 * around. */
onq_code oq_debug_weight_values(oq_debug *d, oq_debug_weight *w, bool as_reference, oq_arena *a,
                                oq_debug_values *out, onq_error *err);
/* v modulo 2^bits, as numpy subtracts in a type of so many bits. */
int32_t oq_debug_wrapped(int32_t v, unsigned bits, bool is_signed);
