/*
 * nb_inc.c — the two methods that the reference took from Intel's neural compressor, bit for
 * bit: rtn (quant_tensor) and k_quant (quant_tensor_k_quant_cpu).
 *
 * They are numpy there: ranges and sums in the weight's type, the division in double. A sum's value
 * depends on its order, and numpy's order on how the array lies in memory: a weight with several
 * blocks to a column was copied block by block, and its sums are pairwise; with one block to a
 * column it is still the transposed weight, and the rows are added one after another.
 */
#include "quantize/nbits/nb_panel.h"

#include "quantize/number/qparam.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#define MAGIC64 6755399441055744.0 /* 1.5 * 2^52: adding it rounds to integers, halves to even */
#define MAGIC32 12582912.0f
#define LANES   16 /* columns that k_quant works on at a time */
#define STEPS   20
#define DEPTH   64 /* halvings of any number of rows */

OQ_NB_INLINE void round_column(const oq_nb_task *t, oq_nb_panel *p, size_t c) {
    const double scale = p->scale[c], zero = (double)p->zero[c];
    const double most = (double)((1u << t->bits) - 1);
    for (size_t r = 0; r < p->rows; r++) {
        double v = (double)p->x[r * p->stride + c] / scale + zero;
        v = v > 0.0 ? v : 0.0;
        v = v < most ? v : most;
        p->q[r * OQ_NB_TILE + c] = (uint8_t)(int32_t)((v + MAGIC64) - MAGIC64);
    }
}

/* ---- rtn ---- */

OQ_NB_INLINE void rtn_params(const oq_nb_task *t, oq_nb_panel *p, size_t c, float lo, float hi) {
    const oq_dtype real = t->real == OQ_FLOAT16 ? OQ_FLOAT16 : OQ_FLOAT;
    const double most = (double)((1u << t->bits) - 1);
    if (t->ratio != 1.0) {
        const float ratio = oq_real_round(real, t->ratio);
        lo = oq_real_mul(real, lo, ratio);
        hi = oq_real_mul(real, hi, ratio);
    }
    p->scale[c] = 1.0;
    if (t->symmetric) {
        const float peak = fabsf(lo) > fabsf(hi) ? fabsf(lo) : fabsf(hi);
        if (peak > 0.0f)
            p->scale[c] = (double)oq_real_mul(real, peak, 2.0f) / most;
        p->zero[c] = (float)(1u << (t->bits - 1));
        return;
    }
    if (lo != hi)
        p->scale[c] = (double)oq_real_add(real, hi, -lo) / most;
    const double zero = nearbyint((0.0 - (double)lo) / p->scale[c]);
    p->zero[c] = (float)(zero < 0.0 ? 0.0 : zero > most ? most : zero);
}

OQ_NB_INLINE void rtn_body(const oq_nb_task *t, oq_nb_panel *p, void *ctx OQ_UNUSED) {
    for (size_t c = 0; c < p->cols; c++) {
        float lo = p->x[c], hi = p->x[c];
        for (size_t r = 1; r < p->rows; r++) {
            const float v = p->x[r * p->stride + c];
            lo = v < lo ? v : lo;
            hi = v > hi ? v : hi;
        }
        rtn_params(t, p, c, lo, hi);
        round_column(t, p, c);
    }
}

OQ_NB_PANEL(rtn, rtn_body)

onq_code oq_nb_rtn(const oq_nb_task *t, const oq_nb_sink *s, onq_error *err) {
    return oq_nb_panels(t, s, OQ_NB_BEST(rtn), NULL, err);
}

/* ---- k_quant ---- */

/* LANES columns of a panel. */
typedef struct lanes {
    const oq_nb_task *t;
    size_t rows;
    bool pairwise;
    float most;
    float *x, *w, *q, *tmp; /* rows of LANES: values, their weights, integers, room */
    float lo[LANES], hi[LANES], scale[LANES], best[LANES], sum_w[LANES], sum_x[LANES];
} lanes;

/* numpy's pairwise sum of at most 128 rows. */
OQ_NB_INLINE void sum_some(const float *x, size_t rows, float *restrict out) {
    float r[8][LANES];
    size_t i = 8;
    if (rows < 8) {
        for (size_t c = 0; c < LANES; c++)
            out[c] = -0.0f;
        for (i = 0; i < rows; i++)
            for (size_t c = 0; c < LANES; c++)
                out[c] += x[i * LANES + c];
        return;
    }
    memcpy(r, x, sizeof r);
    for (; i < rows - rows % 8; i += 8)
        for (size_t j = 0; j < 8; j++)
            for (size_t c = 0; c < LANES; c++)
                r[j][c] += x[(i + j) * LANES + c];
    for (size_t c = 0; c < LANES; c++)
        out[c] = ((r[0][c] + r[1][c]) + (r[2][c] + r[3][c])) +
                 ((r[4][c] + r[5][c]) + (r[6][c] + r[7][c]));
    for (; i < rows; i++)
        for (size_t c = 0; c < LANES; c++)
            out[c] += x[i * LANES + c];
}

/* More rows are halved until they are 128 or less, the halves' sums are added. `todo` has ranges
 * that wait; one of no rows means: add the last two sums. */
OQ_NB_INLINE void sum_pairwise(const float *x, size_t rows, float *out) {
    struct range {
        size_t from, rows;
    } todo[2 * DEPTH];
    float done[DEPTH][LANES];
    size_t n_todo = 0, n_done = 0;
    if (rows <= 128) {
        sum_some(x, rows, out);
        return;
    }
    todo[n_todo++] = (struct range){0, rows};
    while (n_todo > 0) {
        const struct range r = todo[--n_todo];
        const size_t half = r.rows / 2 - (r.rows / 2) % 8;
        if (r.rows == 0) {
            n_done--;
            for (size_t c = 0; c < LANES; c++)
                done[n_done - 1][c] += done[n_done][c];
        } else if (r.rows <= 128) {
            sum_some(x + r.from * LANES, r.rows, done[n_done++]);
        } else {
            todo[n_todo++] = (struct range){0, 0};
            todo[n_todo++] = (struct range){r.from + half, r.rows - half};
            todo[n_todo++] = (struct range){r.from, half};
        }
    }
    memcpy(out, done[0], sizeof done[0]);
}

OQ_NB_INLINE void sum_rows(const lanes *k, const float *x, float *out) {
    if (k->pairwise) {
        sum_pairwise(x, k->rows, out);
        return;
    }
    memcpy(out, x, LANES * sizeof *out);
    for (size_t i = 1; i < k->rows; i++)
        for (size_t c = 0; c < LANES; c++)
            out[c] += x[i * LANES + c];
}

/* The values' weights (their size and the root of their mean square) and first sums. */
OQ_NB_INLINE void begin_lanes(lanes *k) {
    const size_t n = k->rows * LANES;
    float mean[LANES];
    for (size_t i = 0; i < n; i++)
        k->tmp[i] = k->x[i] * k->x[i];
    sum_rows(k, k->tmp, mean);
    for (size_t c = 0; c < LANES; c++) {
        mean[c] = sqrtf(mean[c] / (float)k->rows);
        k->lo[c] = k->hi[c] = k->x[c];
    }
    for (size_t i = 0; i < n; i += LANES)
        for (size_t c = 0; c < LANES; c++) {
            const float v = k->x[i + c];
            k->w[i + c] = mean[c] + fabsf(v);
            k->lo[c] = v < k->lo[c] ? v : k->lo[c];
            k->hi[c] = v > k->hi[c] ? v : k->hi[c];
        }
    sum_rows(k, k->w, k->sum_w);
    for (size_t i = 0; i < n; i++)
        k->tmp[i] = k->w[i] * k->x[i];
    sum_rows(k, k->tmp, k->sum_x);
}

OQ_NB_INLINE void round_lanes(lanes *k, const float *factor) {
    for (size_t i = 0; i < k->rows * LANES; i += LANES)
        for (size_t c = 0; c < LANES; c++) {
            float v = factor[c] * (k->x[i + c] - k->lo[c]);
            v = v > 0.0f ? v : 0.0f;
            v = v < k->most ? v : k->most;
            k->q[i + c] = (v + MAGIC32) - MAGIC32;
        }
}

/* The weighted error of scale * q + least. */
OQ_NB_INLINE void measure_lanes(lanes *k, const float *scale, const float *least, float *out) {
    for (size_t i = 0; i < k->rows * LANES; i += LANES)
        for (size_t c = 0; c < LANES; c++) {
            const float d = scale[c] * k->q[i + c] + least[c] - k->x[i + c];
            k->tmp[i + c] = k->w[i + c] * (d * d);
        }
    sum_rows(k, k->tmp, out);
}

/* The line through the values that suits the integers k->q best. */
OQ_NB_INLINE void fit_lanes(lanes *k, float *scale, float *least) {
    const size_t n = k->rows * LANES;
    float sum_l[LANES], sum_l2[LANES], sum_xl[LANES];
    for (size_t i = 0; i < n; i++)
        k->tmp[i] = k->w[i] * k->q[i];
    sum_rows(k, k->tmp, sum_l);
    for (size_t i = 0; i < n; i++)
        k->tmp[i] = (k->w[i] * k->q[i]) * k->q[i];
    sum_rows(k, k->tmp, sum_l2);
    for (size_t i = 0; i < n; i++)
        k->tmp[i] = (k->w[i] * k->q[i]) * k->x[i];
    sum_rows(k, k->tmp, sum_xl);
    for (size_t c = 0; c < LANES; c++) {
        const float d = k->sum_w[c] * sum_l2[c] - sum_l[c] * sum_l[c];
        scale[c] = (k->sum_w[c] * sum_xl[c] - k->sum_x[c] * sum_l[c]) / d;
        least[c] = (sum_l2[c] * k->sum_x[c] - sum_l[c] * sum_xl[c]) / d;
    }
}

/* Tries scales around the plain one. As in the reference the range's lower end moves with what is
 * found, and the next try starts from there. */
OQ_NB_INLINE void search_lanes(lanes *k) {
    float factor[LANES], scale[LANES], least[LANES], error[LANES];
    for (size_t c = 0; c < LANES; c++) {
        factor[c] = k->lo[c] != k->hi[c] ? k->most / (k->hi[c] - k->lo[c]) : 1.0f;
        k->scale[c] = 1.0f / factor[c];
    }
    round_lanes(k, factor);
    measure_lanes(k, k->scale, k->lo, k->best);
    for (int step = 0; step < STEPS; step++) {
        const float most = (float)(-1.0 + 0.1 * step + (double)k->most);
        for (size_t c = 0; c < LANES; c++)
            factor[c] = k->lo[c] != k->hi[c] ? most / (k->hi[c] - k->lo[c]) : 1.0f;
        round_lanes(k, factor);
        fit_lanes(k, scale, least);
        measure_lanes(k, scale, least, error);
        for (size_t c = 0; c < LANES; c++)
            if (error[c] < k->best[c]) {
                k->best[c] = error[c];
                k->scale[c] = scale[c];
                k->lo[c] = least[c];
            }
    }
}

OQ_NB_INLINE void k_quant_body(const oq_nb_task *t, oq_nb_panel *p, void *ctx) {
    lanes *k = ctx;
    k->rows = p->rows;
    for (size_t c0 = 0; c0 < p->cols; c0 += LANES) {
        const size_t n = p->cols - c0 < LANES ? p->cols - c0 : LANES;
        for (size_t r = 0; r < p->rows; r++)
            for (size_t c = 0; c < LANES; c++)
                k->x[r * LANES + c] = c < n ? p->x[r * p->stride + c0 + c] : 0.0f;
        begin_lanes(k);
        search_lanes(k);
        for (size_t c = 0; c < n; c++) {
            const float zero = nearbyintf(-k->lo[c] / k->scale[c]);
            p->zero[c0 + c] = zero > 0.0f ? (zero < k->most ? zero : k->most) : 0.0f;
            p->scale[c0 + c] = (double)k->scale[c];
            round_column(t, p, c0 + c);
        }
    }
}

OQ_NB_PANEL(k_quant, k_quant_body)

onq_code oq_nb_k_quant(const oq_nb_task *t, const oq_nb_sink *s, onq_error *err) {
    const size_t cells = (size_t)t->block * LANES, bytes = 4 * cells * sizeof(float);
    float *room = oq_alloc(t->alloc, bytes);
    OQ_TRY_ALLOC(room != NULL, err);
    lanes k = {.t = t,
               .pairwise = t->blocks > 1 || t->n == 1,
               .most = (float)((1u << t->bits) - 1),
               .x = room,
               .w = room + cells,
               .q = room + 2 * cells,
               .tmp = room + 3 * cells};
    const onq_code rc = oq_nb_panels(t, s, OQ_NB_BEST(k_quant), &k, err);
    oq_free(t->alloc, room, bytes);
    return rc;
}
