/*
 * choose.c — see choose.h. Times decide only beyond their noise: else the same search would choose
 * another model each time it is made. What reaches the targets hangs on no time at all.
 */
#include "tune/choose.h"

#include "base/text/number_text.h"

#include <math.h>

/* ---- targets ---- */

static onq_code refuse_target(oq_str text, onq_error *err) {
    char names[256] = "";
    size_t n = 0;
    for (int m = 0; m < OQ_METRICS; m++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s",
                              m == 0               ? ""
                              : m < OQ_METRICS - 1 ? ", "
                                                   : " or ",
                              oq_metric_of((oq_metric)m)->name);
    assert(n < sizeof names);
    return oq_fail(err, ONQ_E_OPTION, "--target: '%.*s' is not METRIC=VALUE with %s", OQ_STR(text),
                   names);
}

onq_code oq_target_read(oq_str text, oq_target *out, onq_error *err) {
    const char *is = memchr(text.p, '=', text.n);
    const oq_str name = {text.p, is != NULL ? (size_t)(is - text.p) : 0};
    if (is == NULL || !oq_metric_find(name, &out->metric))
        return refuse_target(text, err);
    if (!oq_real_read(is + 1, &out->value))
        return oq_fail(err, ONQ_E_OPTION, "--target: '%s' is not a number", is + 1);
    const oq_metric_info *m = oq_metric_of(out->metric);
    if (out->value < m->least || out->value > m->most)
        return oq_fail(err, ONQ_E_OPTION, "--target: %s cannot be %g (%s)", m->name, out->value,
                       m->percent    ? "it is a percentage: 0 to 100"
                       : m->most > 1 ? "0 and more"
                                     : "-1 to 1");
    return ONQ_OK;
}

static bool holds(const oq_target *x, const oq_score *s) {
    const oq_metric_info *m = oq_metric_of(x->metric);
    const oq_figure *f = &s->figures[x->metric];
    if (isnan(f->clear) || isnan(f->bound))
        return false;
    return m->less ? f->clear <= x->value && f->bound <= x->value + m->slack
                   : f->clear >= x->value && f->bound >= x->value - m->slack;
}

bool oq_targets_hold(const oq_targets *t, const oq_score *s) {
    for (size_t i = 0; i < t->n; i++)
        if (!holds(&t->v[i], s))
            return false;
    return true;
}

static double sum_of(const oq_scoring *s, double (*part)(const oq_sample_score *v)) {
    double sum = 0;
    for (size_t i = 0; i < s->all.n; i++)
        sum += part(&s->all.v[i]);
    return sum;
}

#define PART(name, what)                                                                           \
    static double name(const oq_sample_score *v) {                                                 \
        return (double)(what);                                                                     \
    }
PART(rows_of, v->rows)
PART(flips_of, v->flips)
PART(sequences_of, v->sequences)
PART(broken_of, v->broken)
PART(texts_of, v->texts)
PART(changed_of, v->changed)
PART(divergence_of, v->text.wrecked || v->text.differs ? INFINITY : v->text.kl)
PART(predictions_of, v->text.rows)
PART(floats_of, v->detected.flt)
PART(boxes_of, v->detected.both)
PART(apart_of, v->detected.apart)
PART(mask_of, v->mask_any)
PART(mask_apart_of, v->mask_apart)

static bool noise_is_lost(double db, const oq_scoring *some, const oq_scoring *whole) {
    for (size_t k = 0; k < some->n_outputs; k++) {
        const oq_agree *made = &some->sums[k].raw;
        if (made->differs || isnan(made->noise) ||
            made->noise > whole->sums[k].raw.aa * pow(10, -db / 10))
            return true;
    }
    return false;
}

static bool answers_are_lost(const oq_target *x, const oq_scoring *some, const oq_scoring *whole,
                             double (*changed)(const oq_sample_score *v),
                             double (*of)(const oq_sample_score *v)) {
    const double n = some->margins.n > 0 ? (double)oq_scoring_clear_changes(some, x->metric, whole)
                                         : sum_of(some, changed);
    return n > (1 - x->value / 100) * sum_of(whole, of);
}

static bool is_lost(const oq_target *x, const oq_scoring *some, const oq_scoring *whole) {
    switch (x->metric) {
    case OQ_METRIC_AGREEMENT:
        return answers_are_lost(x, some, whole, flips_of, rows_of);
    case OQ_METRIC_SAMPLE_AGREEMENT:
        return answers_are_lost(x, some, whole, broken_of, sequences_of);
    case OQ_METRIC_TEXT_AGREEMENT:
        return answers_are_lost(x, some, whole, changed_of, texts_of);
    case OQ_METRIC_SQNR:
        return noise_is_lost(x->value, some, whole);
    case OQ_METRIC_KL:
        return sum_of(some, divergence_of) > x->value * sum_of(whole, predictions_of);
    case OQ_METRIC_DETECTIONS: /* the other samples may have all that float has, and no more */
        return sum_of(some, apart_of) >
               (1 - x->value / 100) *
                   (sum_of(some, boxes_of) + sum_of(whole, boxes_of) - 2 * sum_of(some, floats_of));
    case OQ_METRIC_IOU: { /* pixels that only one of both has are in the union, too */
        const double apart = sum_of(some, mask_apart_of);
        return apart > (1 - x->value / 100) * (sum_of(whole, mask_of) + apart);
    }
    case OQ_METRIC_COSINE:
    case OQ_METRIC_NEIGHBOURS:
    case OQ_METRIC_PERPLEXITY_RISE:
    case OQ_METRIC_ACCURACY_DROP:
    case OQ_METRIC_METRIC:
    case OQ_METRICS:
        break;
    }
    return false;
}

bool oq_targets_are_lost(const oq_targets *t, const oq_scoring *some, const oq_scoring *whole) {
    for (size_t i = 0; i < t->n; i++)
        if (is_lost(&t->v[i], some, whole))
            return true;
    return false;
}

bool oq_targets_are_missed(const oq_targets *t, const oq_score *s) {
    for (size_t i = 0; i < t->n; i++) {
        const oq_target *x = &t->v[i];
        const oq_figure *f = &s->figures[x->metric];
        const double best = 2 * f->clear - f->bound; /* as far above as the bound is below */
        if (isfinite(best) && (oq_metric_of(x->metric)->less ? best > x->value : best < x->value))
            return true;
    }
    return false;
}

/* A figure as something of which less is better, and which is a mean over samples. */
static double as_loss(const oq_metric_info *m, oq_metric metric, double v) {
    return metric == OQ_METRIC_SQNR ? pow(10, -v / 10) : m->less ? v : (m->percent ? 100 : 1) - v;
}

/* Noise goes with the square of errors; how many answers they turn, with the errors. */
static bool is_power(oq_metric m) {
    return m == OQ_METRIC_SQNR || m == OQ_METRIC_COSINE || m == OQ_METRIC_KL ||
           m == OQ_METRIC_PERPLEXITY_RISE;
}

static double lack_of(const oq_target *x, double v, double goal, double part) {
    const oq_metric_info *m = oq_metric_of(x->metric);
    const double loss = part * as_loss(m, x->metric, v), allowed = as_loss(m, x->metric, goal);
    if (!(loss > allowed))
        return 0;
    return allowed > 0 ? (is_power(x->metric) ? 10 : 20) * log10(loss / allowed) : INFINITY;
}

double oq_targets_lack(const oq_targets *t, const oq_score *s, uint64_t of) {
    double most = 0;
    for (size_t i = 0; i < t->n; i++) {
        const oq_target *x = &t->v[i];
        const oq_metric_info *m = oq_metric_of(x->metric);
        const oq_figure *f = &s->figures[x->metric];
        const bool some = s->samples < of;
        const double part = some && !is_power(x->metric) ? (double)s->samples / (double)of : 1;
        if (x->metric == OQ_METRIC_METRIC || isnan(f->clear))
            continue;
        most = fmax(most, lack_of(x, f->clear, x->value, part));
        if (!some && isfinite(f->bound))
            most = fmax(
                most, lack_of(x, f->bound, m->less ? x->value + m->slack : x->value - m->slack, 1));
    }
    return most;
}

uint64_t oq_samples_needed(const oq_targets *t, const oq_score *s) {
    double most = 0;
    for (size_t i = 0; i < t->n; i++) {
        const oq_target *x = &t->v[i];
        const oq_metric_info *m = oq_metric_of(x->metric);
        const oq_figure *f = &s->figures[x->metric];
        const double least = m->less ? x->value + m->slack : x->value - m->slack;
        const double loss = as_loss(m, x->metric, f->clear);
        const double room = as_loss(m, x->metric, least) - loss;
        const double now = as_loss(m, x->metric, f->bound) - loss;
        if (holds(x, s))
            continue;
        if (isnan(f->clear) || !(room > 0) || (m->less ? f->clear > x->value : f->clear < x->value))
            return 0;
        /* A spread shrinks with the root of the number, what is rare with the number. */
        const double part = isfinite(now) ? now / room : 4;
        most = fmax(most, (double)s->samples * (loss > 0 ? part * part : part));
    }
    return most < 1e9 ? (uint64_t)ceil(most) : 0;
}

/* ---- choosing ---- */

static bool has_better_figure(const oq_target *x, const oq_score *a, const oq_score *b) {
    const double v = oq_score_of(a, x->metric), w = oq_score_of(b, x->metric);
    return oq_metric_of(x->metric)->less ? v < w : v > w;
}

bool oq_is_more_accurate(const oq_targets *t, const oq_candidate *a, const oq_candidate *b) {
    const double x = oq_score_of(&a->score, OQ_METRIC_METRIC),
                 y = oq_score_of(&b->score, OQ_METRIC_METRIC);
    if (a->exact != b->exact)
        return a->exact;
    if (!isnan(x) && !isnan(y) && x != y) /* the user's own measure comes first */
        return x > y;
    if (t->n > 0 && t->v[0].metric == OQ_METRIC_SQNR)
        return oq_score_of(&a->score, OQ_METRIC_SQNR) > oq_score_of(&b->score, OQ_METRIC_SQNR);
    if (t->n > 0 && isinf(a->score.objective) && a->score.objective == b->score.objective)
        return has_better_figure(&t->v[0], &a->score, &b->score); /* numbers have no noise */
    return a->score.objective > b->score.objective;
}

static bool is_better(const oq_targets *t, const oq_candidate *a, const oq_candidate *b) {
    if (oq_is_more_accurate(t, a, b) || oq_is_more_accurate(t, b, a))
        return oq_is_more_accurate(t, a, b);
    return a->recipe.options.n < b->recipe.options.n;
}

static double cost(const oq_candidate *c, oq_prefer prefer) {
    return prefer == OQ_PREFER_SIZE ? (double)c->size : c->ms > 0 ? c->ms : INFINITY;
}

bool oq_is_as_fast(const oq_candidate *a, const oq_candidate *b) {
    const double noise = fmin(a->ms_noise + b->ms_noise, OQ_NOISE_PART * b->ms);
    return a->ms > 0 && a->ms <= b->ms + noise;
}

bool oq_is_clearly_faster(const oq_candidate *c, const oq_candidate *than, double part) {
    const double gain = than->ms - c->ms;
    return gain > part * than->ms && gain > fmax(than->ms_noise, c->ms_noise) &&
           c->prefill_ms <= (1 + part) * than->prefill_ms;
}

bool oq_is_no_slower(const oq_candidate *c, const oq_candidate *given) {
    return oq_is_as_fast(c, given) && c->prefill_ms <= OQ_MAX_PREFILL * given->prefill_ms;
}

/* Costs no more than `least` does, as far as one can say. */
static bool is_as_cheap(const oq_candidate *c, const oq_candidate *least, oq_prefer prefer) {
    if (prefer == OQ_PREFER_SPEED && c->exact && !least->exact)
        return c->ms > 0 && (1 - OQ_SESSIONS_PART) * c->ms <= least->ms;
    return prefer == OQ_PREFER_SIZE ? (double)c->size <= (1 + OQ_NOISE_PART) * (double)least->size
                                    : oq_is_as_fast(c, least);
}

/* Which candidates may be taken. */
typedef struct range {
    oq_prefer prefer;
    bool integers, floats;
    const oq_candidate *given; /* nothing that is slower; NULL: however slow */
    const oq_candidate *least; /* as cheap as this one; NULL: whatever it costs */
} range;

static bool is_in(const oq_candidate *c, const range *r) {
    return c->ok && c->reached && (c->exact ? r->floats : r->integers) &&
           (r->given == NULL || c == r->given || oq_is_no_slower(c, r->given)) &&
           (r->least == NULL || is_as_cheap(c, r->least, r->prefer));
}

static oq_candidate *best_of(const oq_candidates *all, const oq_targets *t, const range *r) {
    oq_candidate *best = NULL;
    for (size_t i = 0; i < all->n; i++)
        if (is_in(all->v[i], r) && (best == NULL || is_better(t, all->v[i], best)))
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

static const oq_candidate *given_of(const oq_candidates *all) {
    return all->n > 0 && all->v[0]->recipe.command == NULL ? all->v[0] : NULL;
}

oq_candidate *oq_choose(const oq_candidates *all, const oq_targets *t, oq_prefer prefer,
                        bool *reached) {
    *reached = false;
    for (size_t i = 0; i < all->n; i++) {
        oq_candidate *c = all->v[i];
        c->reached = c->ok && (c->exact || (!c->doubted && !oq_score_is_wrong(&c->score) &&
                                            oq_targets_hold(t, &c->score)));
        *reached |= c->reached && !c->exact;
    }
    range r = {.prefer = *reached ? prefer : OQ_PREFER_SPEED,
               .integers = *reached,
               .floats = !*reached || prefer == OQ_PREFER_SPEED,
               .given = given_of(all)};
    if (!r.floats && cheapest_of(all, &r) == NULL)
        r.given = NULL;
    if (r.prefer != OQ_PREFER_ACCURACY)
        r.least = cheapest_of(all, &r);
    return best_of(all, t, &r);
}

oq_candidate *oq_choose_nearest(const oq_candidates *all, const oq_targets *t) {
    const oq_candidate *given = given_of(all);
    oq_candidate *best = NULL;
    for (size_t i = 0; i < all->n; i++) {
        oq_candidate *c = all->v[i];
        if (c->ok && !c->exact && !oq_score_is_wrong(&c->score) &&
            (given == NULL || oq_is_no_slower(c, given)) && (best == NULL || is_better(t, c, best)))
            best = c;
    }
    return best;
}

#define MUCH_FASTER 0.75

/* The highest whole number that its figures and bounds reach, without the slack of a bound. */
static double reached_without_doubt(const oq_candidate *c, oq_metric m) {
    const oq_figure *f = &c->score.figures[m], *again = &c->report.figures[m];
    double least = fmin(f->clear, f->bound);
    if (isnan(f->clear) || isnan(f->bound))
        return NAN;
    if (c->report.samples > 0)
        least = fmin(least, fmin(again->clear, again->bound));
    return floor(least);
}

const oq_candidate *oq_choose_cheaper(const oq_candidates *all, const oq_targets *t,
                                      const oq_candidate *taken, double *value) {
    const oq_candidate *given = given_of(all), *best = NULL;
    const oq_metric m = t->n == 1 ? t->v[0].metric : OQ_METRIC_METRIC;
    if (m != OQ_METRIC_SQNR && !oq_metric_of(m)->percent)
        return NULL;
    for (size_t i = 0; i < all->n; i++) {
        const oq_candidate *c = all->v[i];
        if (!c->ok || c->exact || c->partly || oq_score_is_wrong(&c->score) || !(c->ms > 0) ||
            c->ms > MUCH_FASTER * taken->ms || (given != NULL && !oq_is_no_slower(c, given)))
            continue;
        const double v = reached_without_doubt(c, m);
        if (!(v < t->v[0].value && v >= t->v[0].value - OQ_LITTLE_LESS))
            continue;
        if (best == NULL || v > *value || (v == *value && c->ms < best->ms)) {
            best = c;
            *value = v;
        }
    }
    return best;
}

size_t oq_curve(const oq_candidates *all, const oq_targets *t, size_t *order) {
    size_t n = 0;
    for (size_t i = 0; i < all->n; i++) {
        oq_candidate *c = all->v[i];
        bool beaten = !c->ok || c->ms <= 0;
        for (size_t k = 0; k < all->n && !beaten; k++) {
            const oq_candidate *o = all->v[k];
            beaten = k != i && o->ok && o->ms > 0 && o->ms <= c->ms &&
                     !oq_is_more_accurate(t, c, o) &&
                     (o->ms < c->ms || oq_is_more_accurate(t, o, c) || k < i);
        }
        c->on_curve = !beaten;
        if (beaten)
            continue;
        size_t at = n++;
        for (; at > 0 && all->v[order[at - 1]]->ms > c->ms; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    assert(n <= all->n);
    return n;
}
