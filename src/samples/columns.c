/*
 * columns.c — see columns.h.
 */
#include "samples/columns.h"

#include <math.h>

#define MIN_LOOK 8 /* rows that say whether columns are classes */
/* How much of the variance of coordinates or grades is between the means of columns: .92 to .98 in
 * landmarks of faces, eyes and hands, and .01 to .04 in logits of 10 and 1,000 classes. */
#define FIXED_COLUMNS 0.8
#define SUM_ERROR     1e-3 /* of probabilities in float16 */

static bool has_columns(const oq_datum *d) {
    return d->kind == OQ_DATUM_TENSOR && d->rank >= 1 && oq_dtype_is_float(d->dtype) &&
           d->dims[d->rank - 1] >= 2;
}

onq_code oq_columns_begin(oq_columns *c, const oq_datum *d, oq_arena *a, onq_error *err) {
    *c = (oq_columns){0};
    if (!has_columns(d))
        return ONQ_OK;
    c->n = (uint64_t)d->dims[d->rank - 1];
    c->sequence = d->rank > 2;
    c->sums = OQ_NEW_ARRAY(a, double, c->n);
    OQ_TRY_ALLOC(c->sums != NULL, err);
    return ONQ_OK;
}

bool oq_columns_add(oq_columns *c, const oq_datum *d) {
    if (c->sums == NULL || !has_columns(d) || d->dims[d->rank - 1] != (int64_t)c->n)
        return false;
    double sum = 0;
    for (uint64_t i = 0; i < d->count; i++) {
        const double x = oq_datum_real(d, i);
        sum = i % c->n == 0 ? x : sum + x;
        c->other_sum |= (i + 1) % c->n == 0 && !(fabs(sum - 1) <= SUM_ERROR);
        c->sums[i % c->n] += x;
        c->squares += x * x;
        c->above |= x > 0;
        c->below |= x < 0;
        c->large |= x > 1;
    }
    c->rows += d->count / c->n;
    return true;
}

/* The share of the variance that the means of the columns have. */
static double share_of_means(const oq_columns *c) {
    const double rows = (double)c->rows, all = rows * (double)c->n;
    double sum = 0, means = 0;
    for (uint64_t k = 0; k < c->n; k++) {
        sum += c->sums[k];
        means += c->sums[k] * c->sums[k] / rows;
    }
    const double base = sum * sum / all;
    return c->squares > base ? (means - base) / (c->squares - base) : 0;
}

oq_columns_kind oq_columns_kind_of(const oq_columns *c) {
    if (c->sums == NULL || c->rows < MIN_LOOK)
        return OQ_COLUMNS_SCORES;
    if (c->above != c->below)
        return OQ_COLUMNS_ONE_SIGN;
    return !c->sequence && share_of_means(c) > FIXED_COLUMNS ? OQ_COLUMNS_APART : OQ_COLUMNS_SCORES;
}

bool oq_columns_are_probabilities(const oq_columns *c) {
    return c->sums != NULL && c->rows >= MIN_LOOK && !c->below && !c->other_sum;
}

bool oq_columns_are_numbers(const oq_columns *c) {
    const oq_columns_kind kind = oq_columns_kind_of(c);
    return kind == OQ_COLUMNS_APART || (kind == OQ_COLUMNS_ONE_SIGN && c->large);
}
