/*
 * nb_default.c — blocks rounded to the nearest, bit for bit as the reference has it: MLAS for
 * MatMulNBits (MlasQuantizeBlockwise), MLAS for DequantizeLinear (MlasQDQQuantizeBlockwise), numpy
 * for GatherBlockQuantized (quantize_ndarray).
 *
 * MLAS rounds halves away from zero; numpy rounds them to even. All loops go over the columns of a
 * panel, which is what the compiler makes vectors of.
 */
#include "quantize/nbits/nb_panel.h"

#include "base/text/real.h"
#include "quantize/number/qparam.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#define MAGIC 12582912.0f
/* The number before 0.5: adding it and cutting rounds halves up, and what is just below a half
 * stays below. */
#define HALF 0.49999997f

typedef struct columns {
    float lo[OQ_NB_TILE], hi[OQ_NB_TILE];
    float scale[OQ_NB_TILE]; /* as it is stored */
    float factor[OQ_NB_TILE];
    float zero[OQ_NB_TILE];
} columns;

OQ_NB_INLINE void find_ranges(const oq_nb_panel *p, float *restrict lo, float *restrict hi) {
    for (size_t c = 0; c < p->cols; c++)
        lo[c] = hi[c] = p->x[c];
    for (size_t r = 1; r < p->rows; r++) {
        const float *restrict x = p->x + r * p->stride;
        for (size_t c = 0; c < p->cols; c++) {
            lo[c] = x[c] < lo[c] ? x[c] : lo[c];
            hi[c] = x[c] > hi[c] ? x[c] : hi[c];
        }
    }
}

/* ---- MLAS ---- */

/* The zero point of a range that holds 0: roundf within the integers. */
static float zero_of(float lo, float scale, float most) {
    const float at = scale != 0.0f ? 0.0f - lo / scale : lo;
    return at < 0.0f ? 0.0f : at > most ? most : roundf(at);
}

OQ_NB_INLINE void mlas_params(const oq_nb_task *t, const oq_nb_panel *p, columns *k) {
    const float most = (float)((1u << t->bits) - 1), half = (float)(1u << (t->bits - 1));
    /* bfloat16 is computed in float32; only what is stored is rounded. */
    const oq_dtype real = t->real == OQ_FLOAT16 ? OQ_FLOAT16 : OQ_FLOAT;
    for (size_t c = 0; c < p->cols; c++) {
        const float lo = k->lo[c] < 0.0f ? k->lo[c] : 0.0f, hi = k->hi[c] > 0.0f ? k->hi[c] : 0.0f;
        const float peak = fabsf(k->hi[c]) > fabsf(k->lo[c]) ? k->hi[c] : k->lo[c];
        const float exact = t->symmetric ? -peak / half : (hi - lo) / most;
        k->scale[c] = real == OQ_FLOAT ? exact : oq_real_round(real, (double)exact);
        k->zero[c] = t->symmetric ? half : zero_of(lo, exact, most);
        k->factor[c] = k->scale[c] != 0.0f ? 1.0f / k->scale[c] : 0.0f;
        if (!isfinite(k->factor[c])) /* a scale next to zero: so are the values */
            k->factor[c] = 0.0f;
    }
}

OQ_NB_INLINE void mlas_round(const oq_nb_panel *p, const columns *k, float most) {
    for (size_t r = 0; r < p->rows; r++) {
        const float *restrict x = p->x + r * p->stride;
        uint8_t *restrict q = p->q + r * OQ_NB_TILE;
        for (size_t c = 0; c < p->cols; c++) {
            float v = x[c] * k->factor[c] + k->zero[c];
            v = v > 0.0f ? v : 0.0f;
            v = v < most ? v : most;
            q[c] = (uint8_t)(int32_t)(v + HALF);
        }
    }
}

/* The same, but the zero point is added to what is rounded already. */
OQ_NB_INLINE void mlas_round_qdq(const oq_nb_panel *p, const columns *k, float most) {
    for (size_t r = 0; r < p->rows; r++) {
        const float *restrict x = p->x + r * p->stride;
        uint8_t *restrict q = p->q + r * OQ_NB_TILE;
        for (size_t c = 0; c < p->cols; c++) {
            const float v = x[c] * k->factor[c];
            const float rounded = (float)(int32_t)(v < 0.0f ? v - HALF : v + HALF);
            float at = rounded + k->zero[c];
            at = at > 0.0f ? at : 0.0f;
            at = at < most ? at : most;
            q[c] = (uint8_t)(int32_t)at;
        }
    }
}

OQ_NB_INLINE void mlas_body(const oq_nb_task *t, oq_nb_panel *p, void *ctx) {
    const float most = (float)((1u << t->bits) - 1);
    columns k;
    (void)ctx;
    find_ranges(p, k.lo, k.hi);
    mlas_params(t, p, &k);
    if (t->rule == OQ_NB_QDQ)
        mlas_round_qdq(p, &k, most);
    else
        mlas_round(p, &k, most);
    for (size_t c = 0; c < p->cols; c++) {
        p->scale[c] = (double)k.scale[c];
        p->zero[c] = k.zero[c];
    }
}

OQ_NB_PANEL(mlas, mlas_body)

/* ---- numpy ---- */

static float round_even(float v, float low, float high) {
    v = v > low ? v : low;
    v = v < high ? v : high;
    return (v + MAGIC) - MAGIC;
}

static void numpy_params(const oq_nb_task *t, const oq_nb_panel *p, oq_dtype real, columns *k) {
    const float most = (float)((1u << t->bits) - 1), half = (float)(1u << (t->bits - 1));
    for (size_t c = 0; c < p->cols; c++) {
        const float lo = k->lo[c] < 0.0f ? k->lo[c] : 0.0f, hi = k->hi[c] > 0.0f ? k->hi[c] : 0.0f;
        const float peak = fabsf(k->hi[c]) > fabsf(k->lo[c]) ? k->hi[c] : k->lo[c];
        const float range = oq_real_round(real, (double)(hi - lo));
        k->scale[c] = oq_real_round(real, (double)(t->symmetric ? peak / -half : range / most));
        k->zero[c] = half;
        if (!t->symmetric && k->scale[c] != 0.0f)
            k->zero[c] = round_even(oq_real_round(real, (double)(-lo / k->scale[c])), 0.0f, most);
    }
}

static void numpy_panel(const oq_nb_task *t, oq_nb_panel *p, void *ctx) {
    const float most = (float)((1u << t->bits) - 1), half = (float)(1u << (t->bits - 1));
    const oq_dtype real = t->real == OQ_FLOAT16 ? OQ_FLOAT16 : OQ_FLOAT;
    const bool narrow = real != OQ_FLOAT;
    columns k;
    (void)ctx;
    find_ranges(p, k.lo, k.hi);
    numpy_params(t, p, real, &k);
    for (size_t r = 0; r < p->rows; r++) {
        const float *x = p->x + r * p->stride;
        uint8_t *q = p->q + r * OQ_NB_TILE;
        for (size_t c = 0; c < p->cols; c++) {
            float v = k.scale[c] != 0.0f ? x[c] / k.scale[c] : 0.0f;
            v = narrow ? oq_real_round(real, (double)v) : v;
            if (!isfinite(v))
                v = 0.0f;
            if (t->symmetric)
                v = round_even(v, -half, half - 1.0f) + half;
            else if (narrow)
                v = round_even(oq_real_round(real, (double)(v + k.zero[c])), 0.0f, most);
            else
                v = round_even(v + k.zero[c], 0.0f, most);
            q[c] = (uint8_t)(int32_t)v;
        }
    }
    for (size_t c = 0; c < p->cols; c++) {
        p->scale[c] = (double)k.scale[c];
        p->zero[c] = k.zero[c];
    }
}

onq_code oq_nb_default(const oq_nb_task *t, const oq_nb_sink *s, onq_error *err) {
    if (oq_nb_is_centred(t)) { /* which the reference does not have */
        oq_nb_task plain = *t;
        plain.mean = NULL; /* where inputs are known, they are for measuring only */
        return oq_nb_range(&plain, s, err);
    }
    return oq_nb_panels(t, s, t->rule == OQ_NB_GATHER ? numpy_panel : OQ_NB_BEST(mlas), NULL, err);
}
