/*
 * bound.c — see bound.h.
 */
#include "tune/judge/bound.h"

#include "base/keyed.h"
#include "base/vec.h"

#include <math.h>
#include <stdlib.h>

/* Of the rows, whose root is how many of the least margins count as spread evenly. Where rows are
 * many, the density rises within as many as of a few. */
#define EVEN     1.5
#define EVEN_ANY 0.0625
#define MIN_EVEN 4
/* Of the rows, whose margins say how they thin out toward zero; by as much as 99 of 100 such samples
 * would show, at least. */
#define THIN_PART 0.33
#define THIN_Z    2.326
/* Of what is expected: margins and errors are not quite independent. */
#define OF_MODEL     0.5
#define OF_MODEL_ANY 0.25 /* where errors are of rows with small margins alone */
#define LOW_PART     20   /* of all rows: one in so many has one of the least margins */
#define NORMAL_TAILS 3    /* mean fourth power over the squared mean square, of a normal spread */
#define LOW_TIMES    2    /* as many as are spread, at least */

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
    double lost = 0, of = 0, squares = 0, fourth = 0;
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        lost += v[i].lost;
        of += v[i].of;
        most = fmax(most, v[i].lost);
    }
    oq_ratio r = {.value = of > 0 ? lost / of : NAN,
                  .error = INFINITY,
                  .n = n,
                  .of = n > 0 ? of / (double)n : 0,
                  .most = most};
    if (n < 2 || !(of > 0))
        return r;
    if (!isfinite(lost)) {
        r.error = 0;
        return r;
    }
    for (size_t i = 0; i < n; i++) {
        const double apart = v[i].lost - r.value * v[i].of;
        squares += apart * apart;
        fourth += apart * apart * apart * apart;
    }
    r.alike = fourth > 0 ? (size_t)fmin((double)n, NORMAL_TAILS * squares * squares / fourth) : n;
    const double over_samples = sqrt(squares * (double)n / (double)(n - 1)) / of;
    r.error = fmax(over_samples, between_folds(v, n, r.value));
    assert(r.error >= 0 || isnan(r.error));
    return r;
}

static double bound(const oq_ratio *r, double value, size_t n) {
    if (r->n < 2 || isnan(value))
        return INFINITY;
    return fmax(value, 0) + oq_student(n > 2 ? n - 1 : 1) * r->error;
}

double oq_ratio_bound(const oq_ratio *r) {
    return bound(r, r->value, r->n);
}

double oq_ratio_bound_of_sums(const oq_ratio *r, double undecided) {
    const double n = (double)r->n, next = fmax(r->most, undecided) / r->of;
    return bound(r, (n * r->value + next) / (n + 1), r->alike);
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

/* Margins that rise; those before the edge count as spread from zero to it: the part of them below a
 * margin goes with this power of it, 1 where they are spread evenly. */
typedef struct spread {
    const float *v;
    size_t n, before;
    double edge, power;
} spread;

static spread spread_margins(const float *rising, size_t n, double of_rows) {
    assert(n > 0);
    const size_t some = (size_t)sqrt(of_rows * (double)n);
    const size_t least = some < MIN_EVEN ? MIN_EVEN : some, before = least < n ? least : n - 1;
    return (spread){
        .v = rising, .n = n, .before = before, .edge = (double)rising[before], .power = 1};
}

/* Where all answers are clear, hardly any margin lies near zero, and to spread the least of them
 * evenly would promise far less than is kept. The power by which margins thin out is the reciprocal
 * of the mean logarithm of how far they lie below the next one. */
static double thinning(const float *rising, size_t n, size_t before) {
    const size_t part = (size_t)(THIN_PART * (double)n);
    const size_t some = part > before ? part : before, k = some < n ? some : n - 1;
    const double edge = k > 0 ? (double)rising[k] : 0;
    double sum = 0;
    if (!(edge > 0) || !isfinite(edge))
        return 1;
    for (size_t i = 0; i < k; i++)
        sum += log(edge / fmax((double)rising[i], 1e-9 * edge));
    return sum > 0 ? fmax(1, (double)k / sum * (1 - THIN_Z / sqrt((double)k))) : 1;
}

/* The part of all margins that an error is larger than. */
static double reach(const spread *s, double error) {
    if (error <= 0)
        return 0;
    const double even = (double)s->before / (double)s->n;
    return error < s->edge
               ? pow(error / s->edge, s->power) * even
               : fmax(even, (double)count_below(s->v, s->n, (float)error, false) / (double)s->n);
}

/* How far the number of small margins may be wrong, as a part of it. `near` is for n values. */
static double density_error(const oq_flips *f, const oq_flip_rows *samples, size_t n,
                            const spread *s, oq_loss *near) {
    for (size_t i = 0; i < n; i++) {
        near[i] = (oq_loss){0, (double)samples[i].n, samples[i].fold};
        for (uint64_t k = samples[i].first; k < samples[i].first + samples[i].n; k++)
            near[i].lost += (double)f->margins[k] < s->edge;
    }
    const oq_ratio small = oq_ratio_of(near, n);
    return small.value > 0 ? small.error / small.value : 1;
}

/* Sums over one sample. */
typedef struct reached {
    double losses, gains, of;
} reached;

/* Of rows with a margin of this or less. A gain is no more than the largest loss. */
static reached reach_of(const oq_flips *f, const oq_flip_rows *rows, const spread *s, double least,
                        double most) {
    reached out = {0};
    for (uint64_t i = rows->first; i < rows->first + rows->n; i++) {
        const double error = (double)f->errors[i];
        if ((double)f->margins[i] > least)
            continue;
        out.losses += reach(s, error);
        out.gains += reach(s, fmin(-error, most));
        out.of++;
    }
    return out;
}

static double largest_error(const oq_flips *f, double least) {
    double most = 0;
    for (size_t i = 0; i < f->n; i++)
        if ((double)f->margins[i] <= least)
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
    spread s = spread_margins(rising, f->n, EVEN);
    s.power = thinning(rising, f->n, s.before);
    const double most = largest_error(f, INFINITY), middle = (double)rising[(f->n - 1) / 2];
    for (size_t i = 0; i < n_samples; i++) {
        const reached x = reach_of(f, &samples[i], &s, middle, most);
        sums[i] = (oq_loss){(x.losses + x.gains) / 2, x.of, samples[i].fold};
        of += x.of;
    }
    *out = oq_ratio_of(sums, n_samples);
    out->value = (out->value * of + reach(&s, 2 * most) / 2) / (of + 1);
    out->error = hypot(
        out->error, out->value * hypot(density_error(f, samples, n_samples, &s, near), OF_MODEL));
    return ONQ_OK;
}

/* The margin that so many rows do not exceed. */
static double low_margin(const spread *s) {
    const size_t part = s->n / LOW_PART, least = LOW_TIMES * s->before;
    const size_t low = part > least ? part : least, most = s->n / 2;
    return (double)s->v[low < most ? low : most];
}

onq_code oq_flips_expect_any(const oq_flips *f, const oq_flip_rows *samples, size_t n_samples,
                             oq_arena *a, oq_ratio *out, onq_error *err) {
    const float *rising = sorted(f->margins, f->n, a);
    oq_loss *near = OQ_NEW_ARRAY(a, oq_loss, n_samples + 1);
    reached *v = OQ_NEW_ARRAY(a, reached, n_samples + 1), all = {0};
    double answers = 0;
    OQ_TRY_ALLOC(rising != NULL && near != NULL && v != NULL, err);
    const spread s = spread_margins(rising, f->n, EVEN_ANY);
    const double low = low_margin(&s), most = largest_error(f, low);
    for (size_t i = 0; i < n_samples; i++) {
        v[i] = reach_of(f, &samples[i], &s, low, most);
        all.losses += v[i].losses;
        all.gains += v[i].gains;
        all.of += v[i].of;
        answers += (double)samples[i].answers;
    }
    const double density = density_error(f, samples, n_samples, &s, near);
    const double each = (double)f->n / all.of; /* rows for each of these */
    const bool lean = all.losses >= all.gains;
    for (size_t i = 0; i < n_samples; i++)
        near[i] = (oq_loss){fmin(each * (lean ? v[i].losses : (v[i].losses + v[i].gains) / 2),
                                 (double)samples[i].answers),
                            (double)samples[i].answers, samples[i].fold};
    *out = oq_ratio_of(near, n_samples);
    out->value += each * reach(&s, 2 * most) / 2 / fmax(answers, 1);
    out->error = hypot(out->error, out->value * hypot(density, OF_MODEL_ANY));
    return ONQ_OK;
}

onq_code oq_flips_power(const oq_flips *f, oq_arena *a, double *out, onq_error *err) {
    const float *rising = sorted(f->margins, f->n, a);
    double sum = 0, n = 0;
    OQ_TRY_ALLOC(rising != NULL, err);
    const spread s = spread_margins(rising, f->n, EVEN_ANY);
    const double low = low_margin(&s);
    for (size_t i = 0; i < f->n; i++)
        if ((double)f->margins[i] <= low) {
            sum += (double)f->errors[i] * (double)f->errors[i];
            n++;
        }
    assert(n > 0);
    *out = sum / n;
    return ONQ_OK;
}

double oq_flips_any(double rows) {
    return -expm1(-rows);
}
