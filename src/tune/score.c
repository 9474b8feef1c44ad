/*
 * score.c — see score.h. All sums are in double and in the order of the samples.
 */
#include "tune/score.h"

#include "onnx/tensor.h"

#include <math.h>

/* Probabilities below this say nothing but "not this class": what quantization does to them
 * matters to nobody, and their logarithms would drown the rest. */
#define MIN_PROBABILITY 0.002

static bool is_real(const oq_datum *d) {
    const oq_dtype_info *info = oq_dtype_find((int64_t)d->dtype);
    return d->kind == OQ_DATUM_TENSOR && info != NULL && info->cls == OQ_CLASS_REAL;
}

static bool is_integer(const oq_datum *d) {
    const oq_dtype_info *info = oq_dtype_find((int64_t)d->dtype);
    return d->kind == OQ_DATUM_TENSOR && d->strings == NULL && info != NULL && !is_real(d) &&
           info->cls != OQ_CLASS_STRING && info->cls != OQ_CLASS_COMPLEX &&
           info->cls != OQ_CLASS_NONE;
}

static bool same_shape(const oq_datum *a, const oq_datum *b) {
    return a->kind == b->kind && a->dtype == b->dtype && oq_datum_same_dims(a, b);
}

uint64_t oq_rows_of(const oq_datum *d) {
    const uint64_t n = d->rank > 0 ? (uint64_t)d->dims[d->rank - 1] : 0;
    return (is_real(d) && n >= 2) ? d->count / n : 0;
}

static double real_at(const oq_datum *d, uint64_t i) {
    float f;
    if (d->dtype != OQ_FLOAT)
        return oq_raw_get_real(d->dtype, d->data, i);
    memcpy(&f, (const uint8_t *)d->data + i * sizeof f, sizeof f);
    return (double)f;
}

/* The value before the link, as far as it is known. */
static double before(oq_link link, double v) {
    const double least = MIN_PROBABILITY;
    if (link == OQ_LINK_SOFTMAX)
        return log(v > least ? v : least) - log(least);
    if (link == OQ_LINK_SIGMOID) {
        const double p = v < least ? least : v > 1 - least ? 1 - least : v;
        return log(p / (1 - p));
    }
    return v;
}

/* ---- margins ---- */

onq_code oq_margins_add(oq_margins *m, oq_arena *a, const oq_datum *d, oq_link link,
                        onq_error *err) {
    const uint64_t rows = oq_rows_of(d), n = rows > 0 ? d->count / rows : 0;
    for (uint64_t r = 0; r < rows; r++) {
        double best = -INFINITY, second = -INFINITY;
        for (uint64_t i = 0; i < n; i++) {
            const double v = before(link, real_at(d, r * n + i));
            if (v > best) {
                second = best;
                best = v;
            } else if (v > second) {
                second = v;
            }
        }
        if (!OQ_PUSH(a, m, (float)(best - second)))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

double oq_margins_expect(const float *margins, size_t n, double deviation, double *spread) {
    double sum = 0, squares = 0;
    if (n == 0)
        return NAN;
    for (size_t i = 0; i < n; i++) {
        /* The difference of two values has twice the variance: erfc(m / (sqrt 2 x sqrt 2 d)). */
        const double lost = deviation > 0 ? 0.5 * erfc((double)margins[i] / (2 * deviation)) : 0;
        sum += isfinite(lost) ? lost : 1;
        squares += isfinite(lost) ? lost * lost : 1;
    }
    const double mean = sum / (double)n;
    if (spread != NULL)
        *spread = 100 * sqrt(fmax(0, squares / (double)n - mean * mean) / (double)n);
    return 100 * (1 - mean);
}

double oq_margins_allow(const float *margins, size_t n, double percent) {
    double low = 0, high = 1e-6;
    while (high < 1e9 && oq_margins_expect(margins, n, high, NULL) >= percent) {
        low = high;
        high *= 4;
    }
    for (int i = 0; i < 40; i++) {
        const double middle = (low + high) / 2;
        *(oq_margins_expect(margins, n, middle, NULL) >= percent ? &low : &high) = middle;
    }
    return low;
}

void oq_link_power(const oq_datum *d, oq_link link, double *sum, uint64_t *n) {
    if (!is_real(d))
        return;
    for (uint64_t i = 0; i < d->count; i++) {
        const double v = before(link, real_at(d, i));
        *sum += v * v;
    }
    *n += d->count;
}

/* ---- sums ---- */

onq_code oq_scoring_init(oq_scoring *s, oq_arena *a, const oq_link *links, size_t n_outputs,
                         onq_error *err) {
    *s = (oq_scoring){.links = links, .n_outputs = n_outputs};
    s->sums = OQ_NEW_ARRAY(a, oq_score_sum, n_outputs + 1);
    return s->sums != NULL ? ONQ_OK : oq_fail_nomem(err);
}

static void add_linked(oq_score_sum *s, oq_link link, const oq_datum *a, const oq_datum *b) {
    const uint64_t row =
        a->rank > 0 && a->dims[a->rank - 1] > 0 ? (uint64_t)a->dims[a->rank - 1] : 1;
    for (uint64_t from = 0; from < a->count; from += row) {
        double shift = 0, squares = 0;
        for (uint64_t i = from; i < from + row; i++) {
            const double x = before(link, real_at(a, i)), e = before(link, real_at(b, i)) - x;
            s->signal += x * x;
            shift += e;
            squares += e * e;
        }
        s->noise += squares;
        s->shift_free += squares - shift * shift / (double)row;
    }
    s->n += a->count;
}

static void add_equal(oq_score_sum *s, const oq_datum *a, const oq_datum *b) {
    s->integers = true;
    for (uint64_t i = 0; i < a->count; i++)
        s->equal += oq_raw_get_int(a->dtype, a->data, i) == oq_raw_get_int(b->dtype, b->data, i);
    s->n += a->count;
}

/* There are labels for the rows of float's output: one of another shape has no right answers. */
static void count_right(oq_scoring *s, const oq_datum *truth, const oq_datum *d,
                        const int64_t *labels) {
    const uint64_t rows = oq_rows_of(truth), n = rows > 0 ? d->count / rows : 0;
    for (uint64_t r = 0; r < rows && same_shape(truth, d); r++)
        s->right += (int64_t)oq_datum_top(d, r * n, n) == labels[r];
    s->labelled += rows;
}

void oq_scoring_add(oq_scoring *s, const oq_datum *truth, const oq_datum *made, size_t n_made,
                    const int64_t *labels) {
    for (size_t k = 0; k < s->n_outputs; k++) {
        oq_score_sum *sum = &s->sums[k];
        if (k >= n_made || !same_shape(&truth[k], &made[k])) {
            sum->raw.differs = true;
        } else if (is_real(&truth[k])) {
            oq_agree_add(&sum->raw, &truth[k], &made[k]);
            add_linked(sum, s->links[k], &truth[k], &made[k]);
        } else if (is_integer(&truth[k])) {
            add_equal(sum, &truth[k], &made[k]);
        }
    }
    if (labels != NULL && n_made > 0)
        count_right(s, &truth[0], &made[0], labels);
    s->samples++;
}

/* ---- figures ---- */

static double decibels(double signal, double noise) {
    return isnan(noise) || isnan(signal) ? -INFINITY : oq_signal_to_noise(signal, noise);
}

static void end_first(const oq_scoring *s, oq_score *out) {
    const oq_score_sum *first = &s->sums[0];
    if (first->integers && first->n > 0) {
        out->agreement = out->expected = 100 * (double)first->equal / (double)first->n;
        out->rows = first->n;
    } else if (first->raw.rows > 0) {
        const double deviation = sqrt(fmax(first->shift_free, 0) / (double)first->n);
        out->agreement = 100 * oq_agree_top1(&first->raw);
        out->expected = isnan(first->noise)
                            ? 0
                            : oq_margins_expect(s->margins, s->n_margins, deviation, &out->spread);
        out->rows = first->raw.rows;
    }
}

void oq_scoring_end(const oq_scoring *s, oq_score *out) {
    *out = (oq_score){.agreement = NAN,
                      .expected = NAN,
                      .sqnr = INFINITY,
                      .cosine = 1,
                      .objective = INFINITY,
                      .accuracy = NAN,
                      .metric = NAN,
                      .samples = s->samples};
    for (size_t k = 0; k < s->n_outputs; k++) {
        const oq_score_sum *x = &s->sums[k];
        if (x->raw.differs) { /* another shape than float's is as wrong as can be */
            out->sqnr = out->objective = -INFINITY;
            out->cosine = -1;
        } else if (x->raw.n > 0 && (x->raw.aa > 0 || x->raw.noise > 0)) {
            out->sqnr = fmin(out->sqnr, decibels(x->raw.aa, x->raw.noise));
            out->cosine = fmin(out->cosine, isnan(x->raw.noise) ? -1 : oq_agree_cosine(&x->raw));
            out->objective = fmin(out->objective, decibels(x->signal, x->noise));
        }
    }
    if (s->n_outputs > 0)
        end_first(s, out);
    if (s->labelled > 0)
        out->accuracy = 100 * (double)s->right / (double)s->labelled;
}
