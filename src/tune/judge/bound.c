/*
 * bound.c — see bound.h.
 */
#include "tune/judge/bound.h"

#include "base/keyed.h"
#include "base/vec.h"

#include <math.h>
#include <stdlib.h>

/* Of the rows, whose root is how many of the least margins count as spread evenly. */
#define EVEN     1.5
#define MIN_EVEN 4
/* Of what is expected: margins and errors are not quite independent. */
#define OF_MODEL 0.5

double oq_student(size_t freedom) {
    static const double least[] = {INFINITY, 6.314, 2.920, 2.353, 2.132, 2.015,
                                   1.943,    1.895, 1.860, 1.833, 1.812};
    if (freedom < OQ_COUNT(least))
        return least[freedom];
    /* The first terms of the expansion about the normal distribution: right to 0.002 from here. */
    const double z = 1.6449, n = (double)freedom;
    return z + (z * z * z + z) / (4 * n) + (5 * pow(z, 5) + 16 * z * z * z + 3 * z) / (96 * n * n);
}

/* The error of the mean of the folds' own ratios: what hangs on the samples that calibrated. */
static double between_folds(const oq_loss *v, size_t n, double mean) {
    double squares = 0;
    size_t folds = 0;
    unsigned last = 0;
    for (size_t i = 0; i < n; i++)
        last = v[i].fold > last ? v[i].fold : last;
    for (unsigned k = 0; k <= last; k++) {
        double lost = 0, of = 0;
        for (size_t i = 0; i < n; i++) {
            lost += v[i].fold == k ? v[i].lost : 0;
            of += v[i].fold == k ? v[i].of : 0;
        }
        if (of <= 0)
            continue;
        squares += (lost / of - mean) * (lost / of - mean);
        folds++;
    }
    return folds > 1 ? sqrt(squares / (double)(folds * (folds - 1))) : 0;
}

oq_ratio oq_ratio_of(const oq_loss *v, size_t n) {
    double lost = 0, of = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        lost += v[i].lost;
        of += v[i].of;
    }
    oq_ratio r = {.value = of > 0 ? lost / of : NAN, .error = INFINITY, .n = n};
    if (n < 2 || !(of > 0))
        return r;
    if (!isfinite(lost)) {
        r.error = 0;
        return r;
    }
    for (size_t i = 0; i < n; i++) {
        const double apart = v[i].lost - r.value * v[i].of;
        squares += apart * apart;
    }
    const double over_samples = sqrt(squares * (double)n / (double)(n - 1)) / of;
    r.error = fmax(over_samples, between_folds(v, n, r.value));
    assert(r.error >= 0 || isnan(r.error));
    return r;
}

double oq_ratio_bound(const oq_ratio *r) {
    if (r->n < 2 || isnan(r->value))
        return INFINITY;
    return r->value + oq_student(r->n - 1) * r->error;
}

/* ---- answers that change ---- */

static float *sorted(const float *v, size_t n, oq_arena *a) {
    float *copy = OQ_NEW_ARRAY(a, float, n + 1);
    if (copy == NULL)
        return NULL;
    memcpy(copy, v, n * sizeof *v);
    qsort(copy, n, sizeof *copy, oq_by_float);
    return copy;
}

/* How many of the sorted values are less than x, or not more. */
static size_t count_below(const float *v, size_t n, float x, bool or_equal) {
    size_t low = 0, high = n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (v[middle] < x || (or_equal && v[middle] == x))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

onq_code oq_flips_chances(const oq_flips *f, oq_arena *a, double *chance, onq_error *err) {
    const float *errors = sorted(f->errors, f->n, a);
    OQ_TRY_ALLOC(errors != NULL, err);
    const float most = f->n > 0 ? 2 * errors[f->n - 1] : 0;
    for (size_t i = 0; i < f->n; i++) {
        const size_t above = f->n - count_below(errors, f->n, f->margins[i], true);
        chance[i] = (double)(above + (most > f->margins[i])) / (double)(f->n + 1);
        assert(chance[i] >= 0 && chance[i] <= 1);
    }
    return ONQ_OK;
}

/* Margins that rise; those before the edge count as spread evenly from zero to it. */
typedef struct spread {
    const float *v;
    size_t n, before;
    double edge;
} spread;

static spread spread_margins(const float *rising, size_t n) {
    assert(n > 0);
    const size_t some = (size_t)sqrt(EVEN * (double)n);
    const size_t least = some < MIN_EVEN ? MIN_EVEN : some, before = least < n ? least : n - 1;
    return (spread){.v = rising, .n = n, .before = before, .edge = (double)rising[before]};
}

/* The part of all margins that an error is larger than. */
static double reach(const spread *s, double error) {
    if (error <= 0)
        return 0;
    const double even = (double)s->before / (double)s->n;
    return error < s->edge
               ? error / s->edge * even
               : fmax(even, (double)count_below(s->v, s->n, (float)error, false) / (double)s->n);
}

/* Sums over one sample. */
typedef struct reached {
    double sum, of, near;
} reached;

static reached reach_of(const oq_flips *f, const oq_flip_rows *rows, const spread *s, double most) {
    const float middle = s->v[(s->n - 1) / 2];
    reached out = {0};
    for (uint64_t i = rows->first; i < rows->first + rows->n; i++) {
        const double error = (double)f->errors[i];
        out.near += (double)f->margins[i] < s->edge;
        if (f->margins[i] > middle)
            continue;
        out.sum += (reach(s, error) + reach(s, fmin(-error, most))) / 2;
        out.of++;
    }
    return out;
}

static double largest_error(const oq_flips *f) {
    double most = 0;
    for (size_t i = 0; i < f->n; i++)
        most = fmax(most, (double)f->errors[i]);
    return most;
}

onq_code oq_flips_expect(const oq_flips *f, const oq_flip_rows *samples, size_t n_samples,
                         oq_arena *a, oq_ratio *out, onq_error *err) {
    const float *rising = sorted(f->margins, f->n, a);
    oq_loss *sums = OQ_NEW_ARRAY(a, oq_loss, n_samples + 1),
            *near = OQ_NEW_ARRAY(a, oq_loss, n_samples + 1);
    double of = 0;
    OQ_TRY_ALLOC(rising != NULL && sums != NULL && near != NULL, err);
    const spread s = spread_margins(rising, f->n);
    const double most = largest_error(f);
    for (size_t i = 0; i < n_samples; i++) {
        const reached x = reach_of(f, &samples[i], &s, most);
        sums[i] = (oq_loss){x.sum, x.of, samples[i].fold};
        near[i] = (oq_loss){x.near, (double)samples[i].n, samples[i].fold};
        of += x.of;
    }
    const oq_ratio small = oq_ratio_of(near, n_samples);
    const double of_density = small.value > 0 ? small.error / small.value : 1;
    *out = oq_ratio_of(sums, n_samples);
    out->value = (out->value * of + reach(&s, 2 * most) / 2) / (of + 1);
    out->error = hypot(out->error, out->value * hypot(of_density, OF_MODEL));
    return ONQ_OK;
}

double oq_flips_unseen(const oq_flips *f) {
    double least = INFINITY, sum = 0;
    for (size_t i = 0; i < f->n; i++)
        least = fmin(least, (double)f->margins[i]);
    for (size_t i = 0; i < f->n; i++)
        sum += f->errors[i] <= 0 ? 0 : least > 0 ? fmin(1, (double)f->errors[i] / least) : 1;
    return f->n > 0 ? sum / (double)f->n / (double)(f->n + 1) : 0;
}

onq_code oq_flips_hits(const oq_flips *f, oq_arena *a, double *hit, onq_error *err) {
    const float *margins = sorted(f->margins, f->n, a);
    OQ_TRY_ALLOC(margins != NULL, err);
    for (size_t i = 0; i < f->n; i++)
        hit[i] = (double)count_below(margins, f->n, f->errors[i], false) / (double)f->n;
    return ONQ_OK;
}
