/*
 * passes.h — the loops over activations: each tensor is read once, and all that is wanted of it is
 * taken on the way.
 *
 * Sixteen sums run side by side and are added up in doubles after every OQ_PASS_PIECE values, in
 * whatever vectors the machine has: results are the same to the last bit on all of them, and do not
 * depend on the number of workers, which take parts of fixed size.
 */
#pragma once

#include "base/pool.h"
#include "debug/measure/sums.h"

#define OQ_PASS_PIECE 1024

/* What a quantizer with one scale does. */
typedef struct oq_steps {
    float scale, lo, hi; /* of the integers, with the zero point subtracted */
    float least, most;   /* of the values that are not clipped */
} oq_steps;

/* Values that a quantizer gave out, kept narrow: their integers, less the least, in one byte or two
 * each. */
static inline size_t oq_steps_bytes(const oq_steps *s) {
    return s->hi - s->lo > 255 ? 2 : 1;
}
static inline float oq_steps_kept(const oq_steps *s, const void *kept, size_t i) {
    const int32_t q =
        oq_steps_bytes(s) == 1 ? ((const uint8_t *)kept)[i] : ((const uint16_t *)kept)[i];
    return (float)(q + (int32_t)s->lo) * s->scale;
}

/* Of the float model's values: their span, how many are clipped, what the quantizer loses, and how
 * they compare with what was kept of the quantized model. */
typedef struct oq_pass_float {
    oq_sums local; /* xx, ee, n; without steps only n */
    oq_sums cross; /* without kept values nothing */
    float lo, hi;
    uint64_t clipped;
} oq_pass_float;

/* Which sums are taken. */
typedef enum oq_pass_want { OQ_PASS_ALL, OQ_PASS_NOISE /* xx, ee, n */ } oq_pass_want;

typedef struct oq_passes {
    /* `kept` may be NULL, and `s` too if it is. Adds to *out. */
    void (*flt)(const float *x, const void *kept, size_t n, const oq_steps *s, oq_pass_float *out);
    /* `p` before and after the quantizer; what came out goes to `keep` (or NULL). Adds to *out. */
    void (*quantized)(const float *p, void *keep, size_t n, const oq_steps *s, oq_pass_want want,
                      oq_sums *out);
    /* x against y. Adds to *out. */
    void (*sums)(const float *x, const float *y, size_t n, oq_sums *out);
} oq_passes;

/* The variants this machine can run, the best first; NULL past the end. The last is portable. */
const oq_passes *oq_passes_at(size_t i);
static inline const oq_passes *oq_passes_best(void) {
    return oq_passes_at(0);
}

/* The same over large tensors, in parts on the pool (NULL: in the caller). */
onq_code oq_pass_float_run(oq_pool *pool, const float *x, const void *kept, size_t n,
                           const oq_steps *s, oq_pass_float *out, onq_error *err);
onq_code oq_pass_quantized_run(oq_pool *pool, const float *p, void *keep, size_t n,
                               const oq_steps *s, oq_pass_want want, oq_sums *out, onq_error *err);
onq_code oq_pass_sums_run(oq_pool *pool, const float *x, const float *y, size_t n, oq_sums *out,
                          onq_error *err);

/* One value through the quantizer. */
float oq_steps_apply(const oq_steps *s, float x);
