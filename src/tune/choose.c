/*
 * choose.c — see choose.h. Times decide only beyond the 5 % within which candidates count as equal,
 * and beyond their noise: else the same search would choose another model each time it is made.
 */
#include "tune/choose.h"

#include "base/text/number_text.h"

#include <math.h>

/* With so many rows the count of equal classes needs no help from a prediction. */
#define ROWS_ENOUGH 4000
#define MIN_CHANCE  0.05

static const char *const metric_names[OQ_METRICS] = {"agreement", "sqnr", "cosine", "accuracy_drop",
                                                     "metric"};

const char *oq_metric_name(oq_metric m) {
    return metric_names[m];
}

bool oq_metric_find(oq_str name, oq_metric *out) {
    for (int i = 0; i < OQ_METRICS; i++)
        if (oq_str_is(name, metric_names[i])) {
            *out = (oq_metric)i;
            return true;
        }
    return false;
}

onq_code oq_target_read(oq_str text, oq_target *out, onq_error *err) {
    const char *is = memchr(text.p, '=', text.n);
    const size_t at = is != NULL ? (size_t)(is - text.p) : 0;
    const oq_str name = {text.p, at};
    if (is == NULL || !oq_metric_find(name, &out->metric))
        return oq_fail(err, ONQ_E_OPTION,
                       "--target: '%.*s' is not METRIC=VALUE with agreement, sqnr, cosine, "
                       "accuracy_drop or metric",
                       OQ_STR(text));
    if (!oq_real_read(is + 1, &out->value))
        return oq_fail(err, ONQ_E_OPTION, "--target: '%s' is not a number", is + 1);
    const bool percent =
        out->metric == OQ_METRIC_AGREEMENT || out->metric == OQ_METRIC_ACCURACY_DROP;
    if ((percent && (out->value < 0 || out->value > 100)) ||
        (out->metric == OQ_METRIC_COSINE && (out->value < -1 || out->value > 1)))
        return oq_fail(err, ONQ_E_OPTION, "--target: %s cannot be %g (%s)",
                       oq_metric_name(out->metric), out->value,
                       percent ? "it is a percentage: 0 to 100" : "-1 to 1");
    return ONQ_OK;
}

/* How likely it is that so few rows agree, or fewer, when `percent` of all rows do. */
static double chance(const oq_score *s, double percent) {
    const double n = (double)s->rows, q = 1 - percent / 100;
    const double wrong = n * (1 - s->agreement / 100);
    double below = 0; /* fewer than `wrong` disagree */
    for (double k = 0; k + 0.5 < wrong; k++)
        below += exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) + k * log(q) +
                     (n - k) * log1p(-q));
    return 1 - below;
}

/* With few rows the noise decides, and the count has its say where it is no accident. */
static bool agrees(const oq_score *s, double percent, bool choosing) {
    if (!choosing || s->rows >= ROWS_ENOUGH || percent >= 100)
        return s->agreement >= percent;
    if (s->agreement >= percent)
        return s->expected + s->spread >= percent;
    return s->expected >= percent && chance(s, percent) >= MIN_CHANCE;
}

/* Labels say how many more answers are wrong; without them no more can be than disagree. */
static bool drops_less(const oq_targets *t, const oq_score *s, double percent, bool choosing) {
    if (!isnan(s->accuracy) && !isnan(t->float_accuracy))
        return t->float_accuracy - s->accuracy <= percent;
    return agrees(s, 100 - percent, choosing);
}

static bool holds(const oq_targets *t, const oq_target *x, const oq_score *s, bool choosing) {
    switch (x->metric) {
    case OQ_METRIC_AGREEMENT:
        return agrees(s, x->value, choosing);
    case OQ_METRIC_SQNR:
        return s->sqnr >= x->value;
    case OQ_METRIC_COSINE:
        return s->cosine >= x->value;
    case OQ_METRIC_ACCURACY_DROP:
        return drops_less(t, s, x->value, choosing);
    case OQ_METRIC_METRIC:
        return s->metric >= x->value;
    case OQ_METRICS:
        break;
    }
    return false;
}

bool oq_targets_hold(const oq_targets *t, const oq_score *s, bool choosing) {
    for (size_t i = 0; i < t->all.n; i++)
        if (!holds(t, &t->all.v[i], s, choosing))
            return false;
    return true;
}

/* ---- choosing ---- */

static bool is_float(const oq_candidate *c) {
    return c->recipe.command == NULL;
}

/* The user's own measure comes first, where there is one. */
static bool is_more_accurate(const oq_candidate *a, const oq_candidate *b) {
    if (!isnan(a->score.metric) && !isnan(b->score.metric) && a->score.metric != b->score.metric)
        return a->score.metric > b->score.metric;
    return a->score.objective > b->score.objective;
}

static bool is_better(const oq_candidate *a, const oq_candidate *b) {
    if (is_more_accurate(a, b) || is_more_accurate(b, a))
        return is_more_accurate(a, b);
    return a->recipe.options.n < b->recipe.options.n;
}

static double cost(const oq_candidate *c, oq_prefer prefer) {
    return prefer == OQ_PREFER_SIZE ? (double)c->size : c->ms > 0 ? c->ms : INFINITY;
}

static double noise(const oq_candidate *c, oq_prefer prefer) {
    return prefer == OQ_PREFER_SIZE ? 0 : fmin(c->ms_noise, OQ_NOISE_PART * c->ms);
}

/* Costs no more than `least` does, as far as the noise lets one say. */
static bool is_as_cheap(const oq_candidate *c, const oq_candidate *least, oq_prefer prefer) {
    return cost(c, prefer) - noise(c, prefer) <=
           OQ_EQUAL_PART * (cost(least, prefer) + noise(least, prefer));
}

/* Which candidates may be taken. */
typedef struct range {
    oq_prefer prefer;
    bool reached; /* the targets */
    bool with_float;
    const oq_candidate *least; /* as cheap as this one; NULL: whatever it costs */
} range;

static bool is_in(const oq_candidate *c, const range *r) {
    return c->ok && (c->reached || !r->reached) && (!is_float(c) || r->with_float) &&
           (r->least == NULL || is_as_cheap(c, r->least, r->prefer));
}

static oq_candidate *best_of(const oq_candidates *all, const range *r) {
    oq_candidate *best = NULL;
    for (size_t i = 0; i < all->n; i++)
        if (is_in(all->v[i], r) && (best == NULL || is_better(all->v[i], best)))
            best = all->v[i];
    return best;
}

static const oq_candidate *cheapest_of(const oq_candidates *all, const range *r) {
    const oq_candidate *least = NULL;
    for (size_t i = 0; i < all->n; i++)
        if (is_in(all->v[i], r) &&
            (least == NULL || cost(all->v[i], r->prefer) < cost(least, r->prefer)))
            least = all->v[i];
    return least;
}

oq_candidate *oq_choose(const oq_candidates *all, const oq_targets *t, oq_prefer prefer,
                        bool *reached) {
    *reached = false;
    for (size_t i = 0; i < all->n; i++) {
        oq_candidate *c = all->v[i];
        c->reached = c->ok && oq_targets_hold(t, &c->score, true);
        *reached |= c->reached && !is_float(c);
    }
    range r = {
        .prefer = prefer, .reached = *reached, .with_float = *reached && prefer == OQ_PREFER_SPEED};
    if (*reached && prefer != OQ_PREFER_ACCURACY)
        r.least = cheapest_of(all, &r);
    oq_candidate *best = best_of(all, &r);
    if (best == NULL) { /* nothing but float could be made */
        r.with_float = true;
        best = best_of(all, &r);
    }
    return best;
}

size_t oq_curve(const oq_candidates *all, size_t *order) {
    size_t n = 0;
    for (size_t i = 0; i < all->n; i++) {
        oq_candidate *c = all->v[i];
        bool beaten = !c->ok || c->ms <= 0;
        for (size_t k = 0; k < all->n && !beaten; k++) {
            const oq_candidate *o = all->v[k];
            beaten = k != i && o->ok && o->ms > 0 && o->ms <= c->ms && !is_more_accurate(c, o) &&
                     (o->ms < c->ms || is_more_accurate(o, c) || k < i);
        }
        c->on_curve = !beaten;
        if (beaten)
            continue;
        size_t at = n++;
        for (; at > 0 && all->v[order[at - 1]]->ms > c->ms; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    return n;
}

double oq_agreement_bound(double agreement, uint64_t rows) {
    const double n = (double)rows, p = agreement / 100, z = 1.96;
    if (rows == 0)
        return NAN;
    const double middle = p + z * z / (2 * n);
    const double spread = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n));
    return 100 * fmax(0, (middle - spread) / (1 + z * z / n));
}
