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
#define LANES   8 /* columns that k_quant works on at a time */
#define STEPS   20
#define DEPTH   64 /* halvings of any number of rows */

/* Columns from c on. */
OQ_NB_INLINE void round_columns(const oq_nb_task *t, oq_nb_panel *p, size_t c, size_t n) {
    const double most = (double)((1u << t->bits) - 1), *scale = p->scale + c;
    const float *zero = p->zero + c;
    for (size_t r = 0; r < p->rows; r++) {
        const float *x = p->x + r * p->stride + c;
        uint8_t *q = p->q + r * OQ_NB_TILE + c;
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            double v = (double)x[i] / scale[i] + (double)zero[i];
            v = v > 0.0 ? v : 0.0;
            v = v < most ? v : most;
            q[i] = (uint8_t)(int32_t)((v + MAGIC64) - MAGIC64);
        }
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
    }
    round_columns(t, p, 0, p->cols);
}

OQ_NB_PANEL(rtn, rtn_body)

onq_code oq_nb_rtn(const oq_nb_task *t, const oq_nb_sink *s, onq_error *err) {
    return oq_nb_panels(t, s, OQ_NB_BEST(rtn), NULL, err);
}

/* ---- k_quant ---- */

/* One value of each column. */
typedef float vec __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));
typedef int32_t ivec __attribute__((vector_size(LANES * sizeof(float)), aligned(4)));

/* LANES columns of a panel. */
typedef struct lanes {
    size_t rows;
    bool pairwise;
    float most;
    vec *x, *w, *q; /* rows: values, their weights, integers */
    vec lo, hi, scale, best, sum_w, sum_x;
    vec tried, least; /* scale * q + least is what is tried */
} lanes;

/* What sums are taken of. */
typedef enum term { SQUARE, WEIGHT, WEIGHTED, INTEGER, INTEGER_SQUARE, PRODUCT, ERROR } term;

OQ_NB_INLINE void add_term(const lanes *k, term what, size_t i, vec *to) {
    if (what == SQUARE)
        *to += k->x[i] * k->x[i];
    else if (what == WEIGHT)
        *to += k->w[i];
    else if (what == WEIGHTED)
        *to += k->w[i] * k->x[i];
    else if (what == INTEGER)
        *to += k->w[i] * k->q[i];
    else if (what == INTEGER_SQUARE)
        *to += (k->w[i] * k->q[i]) * k->q[i];
    else if (what == PRODUCT)
        *to += (k->w[i] * k->q[i]) * k->x[i];
    else {
        const vec d = k->tried * k->q[i] + k->least - k->x[i];
        *to += k->w[i] * (d * d);
    }
}

OQ_NB_INLINE void choose(const ivec *mask, const vec *a, vec *to) {
    *to = (vec)((*mask & (ivec)*a) | (~*mask & (ivec)*to));
}

/* numpy's pairwise sum of at most 128 rows. It begins with -0, which changes nothing. */
OQ_NB_INLINE void sum_some(const lanes *k, term what, size_t from, size_t rows, vec *out) {
    vec r[8];
    const size_t whole = rows < 8 ? 0 : rows - rows % 8;
    for (size_t j = 0; j < 8; j++)
        r[j] = -(vec){0};
    for (size_t i = 0; i < whole; i += 8)
#pragma GCC unroll 8
        for (size_t j = 0; j < 8; j++)
            add_term(k, what, from + i + j, &r[j]);
    *out = whole == 0 ? r[0] : ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    for (size_t i = whole; i < rows; i++)
        add_term(k, what, from + i, out);
}

/* More rows are halved until they are 128 or less, the halves' sums are added. `todo` has ranges
 * that wait; one of no rows means: add the last two sums. */
OQ_NB_INLINE void sum_pairwise(const lanes *k, term what, vec *out) {
    struct range {
        size_t from, rows;
    } todo[2 * DEPTH];
    vec done[DEPTH];
    size_t n_todo = 0, n_done = 0;
    todo[n_todo++] = (struct range){0, k->rows};
    while (n_todo > 0) {
        const struct range r = todo[--n_todo];
        const size_t half = r.rows / 2 - (r.rows / 2) % 8;
        if (r.rows == 0) {
            n_done--;
            done[n_done - 1] += done[n_done];
        } else if (r.rows <= 128) {
            sum_some(k, what, r.from, r.rows, &done[n_done++]);
        } else {
            todo[n_todo++] = (struct range){0, 0};
            todo[n_todo++] = (struct range){r.from + half, r.rows - half};
            todo[n_todo++] = (struct range){r.from, half};
        }
    }
    *out = done[0];
}

OQ_NB_INLINE void sum_rows(const lanes *k, term what, vec *out) {
    if (k->pairwise && k->rows <= 128) {
        sum_some(k, what, 0, k->rows, out);
    } else if (k->pairwise) {
        sum_pairwise(k, what, out);
    } else {
        vec sum = -(vec){0};
        for (size_t i = 0; i < k->rows; i++)
            add_term(k, what, i, &sum);
        *out = sum;
    }
}

/* The values' weights (their size and the root of their mean square) and first sums. */
OQ_NB_INLINE void begin_lanes(lanes *k) {
    vec mean, lo = k->x[0], hi = k->x[0];
    sum_rows(k, SQUARE, &mean);
    for (size_t c = 0; c < LANES; c++)
        mean[c] = sqrtf(mean[c] / (float)k->rows);
    for (size_t i = 0; i < k->rows; i++) {
        const vec v = k->x[i];
        const ivec less = v<lo, more = v> hi;
        k->w[i] = mean + (vec)((ivec)v & INT32_MAX);
        choose(&less, &v, &lo);
        choose(&more, &v, &hi);
    }
    k->lo = lo;
    k->hi = hi;
    sum_rows(k, WEIGHT, &k->sum_w);
    sum_rows(k, WEIGHTED, &k->sum_x);
}

OQ_NB_INLINE void round_lanes(lanes *k, const vec *by) {
    const vec lo = k->lo, factor = *by, most = (vec){0} + k->most;
    for (size_t i = 0; i < k->rows; i++) {
        vec v = factor * (k->x[i] - lo);
        v = (vec)((ivec)v & (v > 0.0f));
        const ivec over = ~(v < most);
        choose(&over, &most, &v);
        k->q[i] = (v + MAGIC32) - MAGIC32;
    }
}

/* The line through the values that suits the integers k->q best. */
OQ_NB_INLINE void fit_lanes(lanes *k) {
    vec sum_l, sum_l2, sum_xl;
    sum_rows(k, INTEGER, &sum_l);
    sum_rows(k, INTEGER_SQUARE, &sum_l2);
    sum_rows(k, PRODUCT, &sum_xl);
    const vec d = k->sum_w * sum_l2 - sum_l * sum_l;
    k->tried = (k->sum_w * sum_xl - k->sum_x * sum_l) / d;
    k->least = (sum_l2 * k->sum_x - sum_l * sum_xl) / d;
}

/* What makes the range of each column `most` integers wide. */
OQ_NB_INLINE void factor_of(const lanes *k, float most, vec *out) {
    const ivec wide = k->lo != k->hi;
    const vec factor = most / (k->hi - k->lo);
    *out = (vec){0} + 1.0f;
    choose(&wide, &factor, out);
}

/* Tries scales around the plain one. As in the reference the range's lower end moves with what is
 * found, and the next try starts from there. */
OQ_NB_INLINE void search_lanes(lanes *k) {
    vec factor, error;
    factor_of(k, k->most, &factor);
    k->scale = k->tried = 1.0f / factor;
    k->least = k->lo;
    round_lanes(k, &factor);
    sum_rows(k, ERROR, &k->best);
    for (int step = 0; step < STEPS; step++) {
        factor_of(k, (float)(-1.0 + 0.1 * step + (double)k->most), &factor);
        round_lanes(k, &factor);
        fit_lanes(k);
        sum_rows(k, ERROR, &error);
        const ivec better = error < k->best;
        choose(&better, &error, &k->best);
        choose(&better, &k->tried, &k->scale);
        choose(&better, &k->least, &k->lo);
    }
}

OQ_NB_INLINE void k_quant_body(const oq_nb_task *t, oq_nb_panel *p, void *ctx) {
    lanes *k = ctx;
    k->rows = p->rows;
    for (size_t c0 = 0; c0 < p->cols; c0 += LANES) {
        const size_t n = p->cols - c0 < LANES ? p->cols - c0 : LANES;
        for (size_t r = 0; r < p->rows; r++) {
            k->x[r] = (vec){0};
            memcpy(&k->x[r], p->x + r * p->stride + c0, n * sizeof(float));
        }
        begin_lanes(k);
        search_lanes(k);
        for (size_t c = 0; c < n; c++) {
            const float zero = nearbyintf(-k->lo[c] / k->scale[c]);
            p->zero[c0 + c] = zero > 0.0f ? (zero < k->most ? zero : k->most) : 0.0f;
            p->scale[c0 + c] = (double)k->scale[c];
        }
        round_columns(t, p, c0, n);
    }
}

OQ_NB_PANEL(k_quant, k_quant_body)

onq_code oq_nb_k_quant(const oq_nb_task *t, const oq_nb_sink *s, onq_error *err) {
    const size_t bytes = 3 * (size_t)t->block * sizeof(vec);
    vec *room = oq_alloc(t->alloc, bytes);
    OQ_TRY_ALLOC(room != NULL, err);
    lanes k = {.pairwise = t->blocks > 1 || t->n == 1,
               .most = (float)((1u << t->bits) - 1),
               .x = room,
               .w = room + t->block,
               .q = room + 2 * t->block};
    const onq_code rc = oq_nb_panels(t, s, OQ_NB_BEST(k_quant), &k, err);
    oq_free(t->alloc, room, bytes);
    return rc;
}
