/*
 * nb_bnb4.c — the 4-bit floats of bitsandbytes, as the reference's MatMulBnb4Quantizer stores
 * them: a block is `block` values of the transposed weight, one after another, divided by the
 * largest of them; each becomes the number of the nearest of 16 values (two to a byte, the first
 * one high). FP4 has a sign and three bits of float, NF4 the quantiles of a normal distribution.
 *
 * Blocks run on from one column into the next unless K is a multiple of the block. Then the weight
 * is read twice, for the largest values first.
 */
#include "quantize/nbits/nb_panel.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

/* Between the 16 values. */
static const float nf4_bounds[15] = {
    -0.8480964004993439f,  -0.6106329262256622f,  -0.4599952697753906f,   -0.33967943489551544f,
    -0.23460740596055984f, -0.13791173323988914f, -0.045525018125772476f, 0.03979014977812767f,
    0.1202552504837513f,   0.2035212516784668f,   0.2920137718319893f,    0.3893125355243683f,
    0.5016634166240692f,   0.6427869200706482f,   0.8614784181118011f};

/* Between the sizes of FP4, and their codes from the least on. */
static const float fp4_bounds[7] = {0.00260417f, 0.0859375f, 0.20833333f, 0.29166667f,
                                    0.4166667f,  0.583333f,  0.8333333f};
static const uint8_t fp4_codes[8] = {0, 1, 6, 7, 4, 5, 2, 3};

static uint8_t nf4_code(float x) {
    unsigned n = 0;
    for (unsigned i = 0; i < 15; i++)
        n += x > nf4_bounds[i];
    return (uint8_t)n;
}

static uint8_t fp4_code(float x) {
    unsigned n = 0;
    for (unsigned i = 0; i < 7; i++)
        n += fabsf(x) > fp4_bounds[i];
    return (uint8_t)(fp4_codes[n] + (x < 0.0f ? 8 : 0));
}

typedef struct bnb4 {
    uint8_t (*code)(float x);
    float *most; /* of each block, or NULL: blocks are those of panels */
    uint8_t *out;
    bool measure; /* the first of two times */
} bnb4;

static void put_code(uint8_t *out, uint64_t i, uint8_t code) {
    out[i / 2] = (uint8_t)(out[i / 2] | code << (i % 2 == 0 ? 4 : 0));
}

static float factor_of(float most) {
    const float f = most != 0.0f ? 1.0f / most : 0.0f;
    return isfinite(f) ? f : 0.0f; /* next to zero: so are the values */
}

/* Each column of the panel is a block. */
static void whole_panel(const oq_nb_task *t, oq_nb_panel *p, void *ctx) {
    const bnb4 *b = ctx;
    float most[OQ_NB_TILE] = {0};
    for (size_t r = 0; r < p->rows; r++)
        for (size_t c = 0; c < p->cols; c++) {
            const float v = fabsf(p->x[r * p->stride + c]);
            most[c] = v > most[c] ? v : most[c];
        }
    for (size_t c = 0; c < p->cols; c++) {
        const uint64_t first = (p->n0 + c) * t->k + p->b * t->block;
        const float factor = factor_of(most[c]);
        for (size_t r = 0; r < p->rows; r++)
            put_code(b->out, first + r, b->code(p->x[r * p->stride + c] * factor));
        b->most[first / t->block] = most[c];
    }
}

static void loose_panel(const oq_nb_task *t, oq_nb_panel *p, void *ctx) {
    const bnb4 *b = ctx;
    for (size_t c = 0; c < p->cols; c++)
        for (size_t r = 0; r < p->rows; r++) {
            const uint64_t i = (p->n0 + c) * t->k + p->b * t->block + r;
            const float v = p->x[r * p->stride + c];
            float *most = &b->most[i / t->block];
            if (b->measure)
                *most = fabsf(v) > *most ? fabsf(v) : *most;
            else
                put_code(b->out, i, b->code(v * factor_of(*most)));
        }
}

static onq_code quantize(const oq_nb_task *t, const oq_nb_sink *s, uint8_t (*code)(float x),
                         onq_error *err) {
    const uint64_t count = t->k * t->n, blocks = count / t->block + (count % t->block != 0);
    bnb4 b = {.code = code, .out = s->part[OQ_NB_Q]};
    b.most = oq_calloc(t->alloc, blocks, sizeof(float));
    OQ_TRY_ALLOC(b.most != NULL, err);
    onq_code rc = ONQ_OK;
    if (t->k % t->block == 0) {
        rc = oq_nb_panels(t, NULL, whole_panel, &b, err);
    } else {
        b.measure = true;
        rc = oq_nb_panels(t, NULL, loose_panel, &b, err);
        b.measure = false;
        if (rc == ONQ_OK)
            rc = oq_nb_panels(t, NULL, loose_panel, &b, err);
    }
    if (count % 2 != 0)
        put_code(b.out, count, code(0.0f));
    for (uint64_t i = 0; i < blocks; i++)
        oq_nb_put_real(t->real, s->part[OQ_NB_SCALE], i, (double)b.most[i]);
    oq_free(t->alloc, b.most, blocks * sizeof(float));
    return rc;
}

onq_code oq_nb_fp4(const oq_nb_task *t, const oq_nb_sink *s, onq_error *err) {
    return quantize(t, s, fp4_code, err);
}

onq_code oq_nb_nf4(const oq_nb_task *t, const oq_nb_sink *s, onq_error *err) {
    return quantize(t, s, nf4_code, err);
}
