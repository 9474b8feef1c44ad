/*
 * passes.h — the loops over activations: each tensor is read once, and all that is wanted of it is
 * taken on the way.
 *
 * Sixteen sums run side by side and are added up in doubles after every OQ_PASS_PIECE values, in
 * whatever vectors the machine has: results are the same to the last bit on all of them, and do not
 * depend on the number of workers, which take parts of fixed size.
 */
#ifndef OQ_DEBUG_PASSES_H
#define OQ_DEBUG_PASSES_H

#include "base/pool.h"
#include "debug/sums.h"

#define OQ_PASS_PIECE 1024

/* What a quantizer with one scale does. */
typedef struct oq_steps {
    float scale, lo, hi; /* of the integers, with the zero point subtracted */
    float least, most;   /* of the values that are not clipped */
} oq_steps;

/* Of the float model's values: their span, how many are clipped, what the quantizer loses. */
typedef struct oq_pass_truth {
    oq_sums local; /* xx, ee, n; without steps only n */
    float lo, hi;
    uint64_t clipped;
} oq_pass_truth;

/* Of the values before quantization and the float model's. */
typedef struct oq_pass_pair {
    oq_sums qdq;   /* before against after: xx, ee, n */
    oq_sums cross; /* the float model against after: all */
} oq_pass_pair;

typedef struct oq_passes {
    /* `copy` (or NULL) gets the values; `s` may be NULL. Adds to *out. */
    void (*truth)(const float *x, float *copy, size_t n, const oq_steps *s, oq_pass_truth *out);
    /* `p` goes through the quantizer; x is the float model's value, or p itself. Adds to *out. */
    void (*pair)(const float *x, const float *p, size_t n, const oq_steps *s, oq_pass_pair *out);
    /* x against y. Adds to *out. */
    void (*sums)(const float *x, const float *y, size_t n, oq_sums *out);
} oq_passes;

/* The variants this machine can run, the best first; NULL past the end. The last is portable. */
const oq_passes *oq_passes_at(size_t i);
static inline const oq_passes *oq_passes_best(void) {
    return oq_passes_at(0);
}

/* The same over large tensors, in parts on the pool (NULL: in the caller). */
onq_code oq_pass_truth_run(oq_pool *pool, const float *x, float *copy, size_t n, const oq_steps *s,
                           oq_pass_truth *out, onq_error *err);
onq_code oq_pass_pair_run(oq_pool *pool, const float *x, const float *p, size_t n,
                          const oq_steps *s, oq_pass_pair *out, onq_error *err);
onq_code oq_pass_sums_run(oq_pool *pool, const float *x, const float *y, size_t n, oq_sums *out,
                          onq_error *err);

/* One value through the quantizer. */
float oq_steps_apply(const oq_steps *s, float x);

#endif
