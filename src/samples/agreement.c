/*
 * agreement.c — see agreement.h. Sums are kept in double; the order of the samples is the order of
 * the sums.
 */
#include "samples/agreement.h"

#include "onnx/tensor.h"

#include <math.h>

double oq_decibels(double ratio) {
    return 10 * log10(ratio);
}

double oq_signal_to_noise(double signal, double noise) {
    return noise == 0 ? INFINITY : oq_decibels(signal / noise);
}

static double value(const oq_datum *d, bool real, uint64_t i) {
    return real ? oq_datum_real(d, i) : (double)oq_raw_get_int(d->dtype, d->data, i);
}

uint64_t oq_datum_top(const oq_datum *d, uint64_t from, uint64_t n) {
    assert(from + n <= d->count);
    uint64_t best = 0;
    for (uint64_t i = 1; i < n; i++)
        if (value(d, true, from + i) > value(d, true, from + best))
            best = i;
    return best;
}

/* True if the row is a distribution; *sum gets the sum of e^(x - most). */
static bool is_distribution(const oq_datum *d, uint64_t from, uint64_t n, double most,
                            double *sum) {
    double plain = 0;
    bool positive = true;
    *sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        const double x = value(d, true, from + i);
        positive &= x >= 0;
        plain += x;
        *sum += exp(x - most);
    }
    return positive && fabs(plain - 1) < 1e-2;
}

void oq_confidence_add(const oq_datum *d, double *sum, uint64_t *rows) {
    const uint64_t row = d->rank > 0 ? (uint64_t)d->dims[d->rank - 1] : 1;
    for (uint64_t i = 0; row > 1 && i < d->count; i += row) {
        double power;
        const double most = value(d, true, i + oq_datum_top(d, i, row));
        *sum += is_distribution(d, i, row, most, &power) ? most : 1 / power;
        ++*rows;
    }
}

/* The numeric class of both, if they share one. */
static bool readable(const oq_datum *d, bool *real) {
    const oq_dtype_info *info = oq_dtype_find(d->dtype);
    if (info == NULL || info->cls == OQ_CLASS_STRING || info->cls == OQ_CLASS_COMPLEX ||
        info->cls == OQ_CLASS_NONE)
        return false;
    *real = info->cls == OQ_CLASS_REAL;
    return true;
}

/* One row of n values; where each has its largest. */
static void add_row(oq_agree *s, const oq_datum *a, bool real_a, const oq_datum *b, bool real_b,
                    uint64_t from, uint64_t n) {
    uint64_t top_a = 0, top_b = 0;
    double most_a = -INFINITY, most_b = -INFINITY;
    for (uint64_t i = 0; i < n; i++) {
        const double x = value(a, real_a, from + i), y = value(b, real_b, from + i);
        const double d = fabs(x - y);
        if (!isfinite(x))
            continue;
        s->wrecked |= !isfinite(y);
        s->n++;
        s->dot += x * y;
        s->aa += x * x;
        s->bb += y * y;
        s->noise += d * d;
        s->largest = d > s->largest ? d : s->largest;
        if (x > most_a) {
            most_a = x;
            top_a = i;
        }
        if (y > most_b) {
            most_b = y;
            top_b = i;
        }
    }
    if (n >= 2) {
        s->rows++;
        s->same += top_a == top_b;
    }
}

/* What is compared: of every `size` values those from `skip` on. */
typedef struct part {
    uint64_t size, skip;
} part;

static void add_part(oq_agree *s, const oq_datum *a, const oq_datum *b, const part *of) {
    bool real_a = false, real_b = false;
    if (a->kind != OQ_DATUM_TENSOR || b->kind != OQ_DATUM_TENSOR || !oq_datum_same_dims(a, b) ||
        !readable(a, &real_a) || !readable(b, &real_b)) {
        s->differs = true;
        return;
    }
    const uint64_t row = a->rank > 0 ? (uint64_t)a->dims[a->rank - 1] : 1;
    for (uint64_t i = 0; row > 0 && i < a->count; i += row)
        if (of == NULL || i % of->size >= of->skip)
            add_row(s, a, real_a, b, real_b, i, row);
}

void oq_agree_add(oq_agree *s, const oq_datum *a, const oq_datum *b) {
    add_part(s, a, b, NULL);
}

/* The only axis along which `past` is shorter, not the last; SIZE_MAX if there is no such axis. */
static size_t grown_axis(const oq_datum *a, const oq_datum *past) {
    size_t axis = SIZE_MAX;
    if (past == NULL || past->kind != OQ_DATUM_TENSOR || past->rank != a->rank)
        return SIZE_MAX;
    for (size_t i = 0; i < a->rank; i++) {
        if (past->dims[i] == a->dims[i])
            continue;
        if (axis != SIZE_MAX || past->dims[i] > a->dims[i])
            return SIZE_MAX;
        axis = i;
    }
    return axis + 1 < a->rank ? axis : SIZE_MAX;
}

void oq_state_added(const oq_datum *a, const oq_datum *past, uint64_t *size, uint64_t *skip) {
    const size_t axis = grown_axis(a, past);
    *size = a->count;
    *skip = 0;
    if (axis == SIZE_MAX || a->count == 0)
        return;
    assert(past->dims[axis] < a->dims[axis]);
    *size = 1;
    for (size_t i = axis; i < a->rank; i++)
        *size *= (uint64_t)a->dims[i];
    *skip = *size / (uint64_t)a->dims[axis] * (uint64_t)past->dims[axis];
}

void oq_agree_add_state(oq_agree *s, const oq_datum *a, const oq_datum *b, const oq_datum *past) {
    part of = {0};
    oq_state_added(a, past, &of.size, &of.skip);
    add_part(s, a, b, of.skip > 0 ? &of : NULL);
}

void oq_agree_join(oq_agree *s, const oq_agree *other) {
    assert(s != other && other->same <= other->rows);
    s->dot += other->dot;
    s->aa += other->aa;
    s->bb += other->bb;
    s->noise += other->noise;
    s->largest = other->largest > s->largest ? other->largest : s->largest;
    s->n += other->n;
    s->rows += other->rows;
    s->same += other->same;
    s->differs |= other->differs;
    s->wrecked |= other->wrecked;
}

double oq_agree_cosine(const oq_agree *s) {
    if (s->aa == 0 && s->bb == 0)
        return 1;
    if (s->aa == 0 || s->bb == 0)
        return 0;
    const double c = s->dot / (sqrt(s->aa) * sqrt(s->bb));
    return c > 1 ? 1 : c;
}

double oq_agree_sqnr(const oq_agree *s) {
    return oq_signal_to_noise(s->aa, s->noise);
}

double oq_agree_top1(const oq_agree *s) {
    return s->rows > 0 ? (double)s->same / (double)s->rows : NAN;
}
