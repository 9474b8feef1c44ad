/*
 * choose.c — see choose.h. Times decide only beyond the 5 % within which candidates count as equal.
 */
#include "tune/choose.h"

#include <math.h>

/* With so many rows the count of equal classes needs no help from a prediction. */
#define ROWS_ENOUGH  4000
#define LEAST_CHANCE 0.05

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
    return s->expected >= percent && chance(s, percent) >= LEAST_CHANCE;
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

static double cost(const oq_candidate *c, oq_prefer prefer) {
    return prefer == OQ_PREFER_SIZE ? (double)c->size : c->ms > 0 ? c->ms : INFINITY;
}

/* The most accurate that costs no more than `most`; `reached`: of those that reach the targets. */
static oq_candidate *best_of(const oq_candidates *all, oq_prefer prefer, double most, bool reached,
                             bool with_float) {
    oq_candidate *best = NULL;
    for (size_t i = 0; i < all->n; i++) {
        oq_candidate *c = all->v[i];
        if (!c->ok || (reached && !c->reached) || (is_float(c) && !with_float) ||
            (prefer != OQ_PREFER_ACCURACY && cost(c, prefer) > most))
            continue;
        if (best == NULL || is_more_accurate(c, best))
            best = c;
    }
    return best;
}

oq_candidate *oq_choose(const oq_candidates *all, const oq_targets *t, oq_prefer prefer,
                        bool *reached) {
    double least = INFINITY;
    bool any = false;
    for (size_t i = 0; i < all->n; i++) {
        oq_candidate *c = all->v[i];
        c->reached = c->ok && oq_targets_hold(t, &c->score, true);
        any |= c->reached && !is_float(c);
    }
    *reached = any;
    if (!any) {
        oq_candidate *c = best_of(all, OQ_PREFER_ACCURACY, INFINITY, false, false);
        return c != NULL ? c : best_of(all, OQ_PREFER_ACCURACY, INFINITY, false, true);
    }
    const bool with_float = prefer == OQ_PREFER_SPEED;
    for (size_t i = 0; i < all->n; i++)
        if (all->v[i]->reached && (with_float || !is_float(all->v[i])))
            least = fmin(least, cost(all->v[i], prefer));
    return best_of(all, prefer, least * OQ_EQUAL_PART, true, with_float);
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
