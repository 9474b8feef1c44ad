/*
 * figures.c — what the scores of samples amount to: the figures of each target and their bounds. See
 * score.h.
 */
#include "base/keyed.h"
#include "tune/judge/score.h"

#include <math.h>
#include <stdlib.h>

/* Of the median margin: a row that float hardly decides. */
#define CLOSE_PART 0.05

oq_score oq_score_none(void) {
    oq_score s = {.expected = NAN, .objective = NAN, .worst_tenth = NAN, .accuracy = NAN};
    for (size_t i = 0; i < OQ_METRICS; i++)
        s.figures[i] = (oq_figure){NAN, NAN, NAN};
    return s;
}

void oq_score_set(oq_score *s, oq_metric m, double value) {
    assert(m < OQ_METRICS);
    s->figures[m] = (oq_figure){value, value, value};
}

double oq_score_promise(const oq_score *s, oq_metric m) {
    const oq_figure *f = &s->figures[m];
    const bool better = oq_metric_of(m)->less ? f->bound < f->value : f->bound > f->value;
    return better ? f->value : f->bound;
}

bool oq_score_is_wrong(const oq_score *s) {
    const double db = s->figures[OQ_METRIC_SQNR].value;
    return isnan(db) || (isinf(db) && db < 0);
}

static double decibels(double signal, double noise) {
    return isnan(noise) || isnan(signal) ? -INFINITY : oq_signal_to_noise(signal, noise);
}

/* Of a ratio of noise to signal. */
static double as_decibels(double ratio) {
    return ratio > 0 ? -oq_decibels(ratio) : INFINITY;
}

typedef struct ending {
    const oq_scoring *s;
    oq_arena *a; /* for what is needed on the way */
    oq_loss *losses;
    oq_score *out;
} ending;

/* Fills losses from the verdicts. */
#define LOSSES(e, what_is_lost, of_what)                                                           \
    for (size_t i_ = 0; i_ < (e)->s->all.n; i_++) {                                                \
        const oq_sample_score *v = &(e)->s->all.v[i_];                                             \
        (e)->losses[i_] = (oq_loss){(double)(what_is_lost), (double)(of_what), v->fold};           \
    }

static oq_ratio ratio_of(const ending *e) {
    return oq_ratio_of(e->losses, e->s->all.n);
}

static void worse(oq_figure *f, double value, double bound) {
    f->value = f->clear = fmin(f->value, value);
    f->bound = fmin(f->bound, bound);
}

/* Noise of one more row, if float hardly decided it: where most are decided, a Softmax or Sigmoid hides
 * the noise of all of these, and a few others have nearly all that is seen. Two probabilities of one
 * half change by a quarter of what the margin between them does. */
static double undecided_noise(const oq_scoring *s, size_t output) {
    const size_t n = s->margins.n;
    const oq_link link = s->meaning->links[output];
    double squares = 0;
    if (output != s->meaning->classes || link == OQ_LINK_NONE || n == 0)
        return 0;
    for (size_t i = 0; i < n; i++)
        squares += (double)s->errors.v[i] * (double)s->errors.v[i];
    const double each = squares / (double)n / 16;
    return link == OQ_LINK_SOFTMAX ? 2 * each : each;
}

static void end_outputs(ending *e) {
    oq_figure *db = &e->out->figures[OQ_METRIC_SQNR], *cosine = &e->out->figures[OQ_METRIC_COSINE];
    *db = (oq_figure){INFINITY, INFINITY, INFINITY};
    *cosine = (oq_figure){1, 1, 1};
    e->out->objective = INFINITY;
    for (size_t k = 0; k < e->s->n_outputs; k++) {
        const oq_score_sum *x = &e->s->sums[k];
        if (x->raw.differs || isnan(x->raw.noise) || isnan(x->raw.aa)) {
            /* another shape than float's is as wrong as can be */
            worse(db, -INFINITY, -INFINITY);
            worse(cosine, -1, -1);
            e->out->objective = -INFINITY;
        } else if (x->raw.n > 0 && (x->raw.aa > 0 || x->raw.noise > 0)) {
            LOSSES(e, v->noise[k], v->signal[k]);
            oq_ratio r = ratio_of(e);
            worse(db, decibels(x->raw.aa, x->raw.noise),
                  as_decibels(oq_ratio_bound_of_sums(&r, undecided_noise(e->s, k))));
            LOSSES(e, v->angle[k], 1);
            r = ratio_of(e);
            const double far = isfinite(r.error) ? oq_student(r.n - 1) * r.error : 2;
            const double together = oq_agree_cosine(&x->raw);
            worse(cosine, together, fmin(together, 1 - r.value) - far);
            e->out->objective = fmin(e->out->objective, decibels(x->signal, x->noise));
        }
    }
}

/* dB of a sample, of its worst output. */
static double sample_db(const ending *e, size_t i) {
    const oq_sample_score *v = &e->s->all.v[i];
    double least = INFINITY;
    for (size_t k = 0; k < e->s->n_outputs; k++)
        if (v->signal[k] > 0 || v->noise[k] > 0)
            least = fmin(least, oq_signal_to_noise(v->signal[k], v->noise[k]));
    return least;
}

static onq_code end_worst(ending *e, onq_error *err) {
    const size_t n = e->s->all.n, tenth = (n + 9) / 10;
    oq_keyed *order = OQ_NEW_ARRAY(e->a, oq_keyed, n + 1);
    double ratio = 0;
    OQ_TRY_ALLOC(order != NULL, err);
    for (size_t i = 0; i < n; i++)
        order[i] = (oq_keyed){sample_db(e, i), (uint32_t)i};
    oq_keyed_sort(order, n);
    for (size_t i = 0; i < n && i < OQ_WORST; i++, e->out->n_worst++) {
        e->out->worst[i] = e->s->all.v[order[i].at].number;
        e->out->worst_db[i] = order[i].key;
    }
    for (size_t i = 0; i < tenth; i++)
        ratio += pow(10, -order[i].key / 10) / (double)tenth;
    e->out->worst_tenth = n > 0 ? as_decibels(ratio) : NAN;
    return ONQ_OK;
}

static double percent_kept(double lost) {
    return fmax(0, 100 * (1 - lost));
}

/* The margin that divides close calls from the others; 0 without rows. */
static onq_code close_margin(const float *margins, size_t n, oq_arena *a, double *out,
                             onq_error *err) {
    *out = 0;
    if (n == 0)
        return ONQ_OK;
    float *v = OQ_NEW_ARRAY(a, float, n);
    OQ_TRY_ALLOC(v != NULL, err);
    memcpy(v, margins, n * sizeof *v);
    qsort(v, n, sizeof *v, oq_by_float);
    *out = CLOSE_PART * (double)v[n / 2];
    return ONQ_OK;
}

onq_code oq_scoring_find_close(oq_scoring *s, onq_error *err) {
    const oq_text_values *events = &s->text.margins;
    OQ_SCRATCH(scratch, s->arena->alloc);
    OQ_TRY(close_margin(s->margins.v, s->margins.n, &scratch, &s->close, err));
    return close_margin(events->v, events->n, &scratch, &s->text_close, err);
}

static bool is_clear_flip(const oq_flips *f, size_t i, double close) {
    return f->errors[i] > f->margins[i] && (double)f->margins[i] >= close;
}

/* What changes or not: a row, a sequence with any of its rows, a text with any of its events, or the
 * neighbour of an embedding. */
typedef enum answers { ANSWER_ROWS, ANSWER_SEQUENCES, ANSWER_TEXTS, ANSWER_NEIGHBOURS } answers;

/* A sample's answers in the list of rows that errors may hit. */
typedef struct answer_rows {
    uint64_t n, first, rows;
    const uint32_t *counts; /* rows of each answer; NULL: all have as many */
} answer_rows;

static answer_rows rows_of(const oq_scoring *s, size_t sample, answers what) {
    const oq_sample_score *v = &s->all.v[sample];
    switch (what) {
    case ANSWER_NEIGHBOURS:
        return (answer_rows){v->embeddings, v->first_embedding, v->embeddings, NULL};
    case ANSWER_TEXTS:
        return (answer_rows){v->texts, v->first_event, v->events, s->text.counts.v + v->first_text};
    case ANSWER_SEQUENCES:
        return (answer_rows){v->sequences, v->first_row, v->rows, NULL};
    case ANSWER_ROWS:
        break;
    }
    return (answer_rows){v->rows, v->first_row, v->rows, NULL};
}

/* An answer is many rows. */
static bool is_any_row(answers what) {
    return what == ANSWER_SEQUENCES || what == ANSWER_TEXTS;
}

static oq_flips flips_of(const oq_scoring *s, answers what) {
    return what == ANSWER_TEXTS ? (oq_flips){s->text.margins.v, s->text.errors.v, s->text.margins.n}
                                : (oq_flips){s->margins.v, s->errors.v, s->margins.n};
}

/* Answers that changed and are no close calls, and of how many: rows of which none is clear are none
 * of a sequence. */
typedef struct clear_answers {
    uint64_t changed, of;
} clear_answers;

static clear_answers count_clear(const oq_scoring *s, const oq_flips *f, answers what,
                                 double close) {
    clear_answers out = {0};
    for (size_t i = 0; i < s->all.n; i++) {
        const answer_rows x = rows_of(s, i, what);
        uint64_t row = x.first;
        for (uint64_t k = 0; k < x.n && f->n > 0; k++) {
            const uint64_t end = row + (x.counts != NULL ? x.counts[k] : x.rows / x.n);
            bool changed = false, decided = is_any_row(what);
            for (; row < end; row++) {
                changed |= is_clear_flip(f, row, close);
                decided |= (double)f->margins[row] >= close;
            }
            out.changed += changed;
            out.of += decided;
        }
    }
    return out;
}

uint64_t oq_scoring_clear_changes(const oq_scoring *s, oq_metric m, const oq_scoring *whole) {
    const answers what = m == OQ_METRIC_AGREEMENT          ? ANSWER_ROWS
                         : m == OQ_METRIC_SAMPLE_AGREEMENT ? ANSWER_SEQUENCES
                                                           : ANSWER_TEXTS;
    const oq_flips f = flips_of(s, what);
    assert(what != ANSWER_TEXTS || m == OQ_METRIC_TEXT_AGREEMENT);
    return count_clear(s, &f, what, what == ANSWER_TEXTS ? whole->text_close : whole->close)
        .changed;
}

/* Rows that float hardly decides, and how many of them changed. */
static onq_code count_close(ending *e, onq_error *err) {
    double close = 0;
    OQ_TRY(close_margin(e->s->margins.v, e->s->margins.n, e->a, &close, err));
    for (size_t i = 0; i < e->s->margins.n; i++) {
        const float margin = e->s->margins.v[i];
        e->out->close_calls += (double)margin < close;
        e->out->close_flips += (double)margin < close && e->s->errors.v[i] > margin;
    }
    return ONQ_OK;
}

/* What a count of this many other answers leaves likely: the spread over samples, and for what is
 * rare the three that may come where none came. */
static double bound_of_count(const oq_ratio *r, double of) {
    const double rare = of > 0 ? (r->value > 0 ? 1 : 3) / of : INFINITY;
    return oq_ratio_bound(r) + rare;
}

/* The figure without rows that float hardly decides: a sequence counts if another row changed. */
static onq_code find_clear(ending *e, const oq_flips *f, answers what, oq_figure *out,
                           onq_error *err) {
    double close = 0;
    OQ_TRY(close_margin(f->margins, f->n, e->a, &close, err));
    const clear_answers x = count_clear(e->s, f, what, close);
    out->clear = x.of > 0 ? percent_kept((double)x.changed / (double)x.of) : out->value;
    return ONQ_OK;
}

/* What errors do to the margins of rows: the part of all answers that change, and its bound. */
static onq_code predict(ending *e, const oq_flips *f, answers what, double *bound, onq_error *err) {
    const size_t n = e->s->all.n;
    oq_flip_rows *rows = OQ_NEW_ARRAY(e->a, oq_flip_rows, n + 1);
    oq_ratio r;
    OQ_TRY_ALLOC(rows != NULL, err);
    for (size_t i = 0; i < n; i++) {
        const answer_rows x = rows_of(e->s, i, what);
        rows[i] = (oq_flip_rows){x.first, x.rows, e->s->all.v[i].fold, x.n};
    }
    if (is_any_row(what)) {
        OQ_TRY(oq_flips_expect_any(f, rows, n, e->a, &r, err));
        *bound = oq_flips_any(oq_ratio_bound(&r));
        return ONQ_OK;
    }
    OQ_TRY(oq_flips_expect(f, rows, n, e->a, &r, err));
    *bound = oq_ratio_bound(&r);
    if (what == ANSWER_ROWS)
        e->out->expected = percent_kept(r.value);
    return ONQ_OK;
}

/* From what was counted, which is in the losses, and where there are margins from what real errors
 * do to them: rows are few, and equal ones may be luck. The better of both bounds counts, for each
 * holds by itself. */
static onq_code end_answers(ending *e, const oq_flips *f, answers what, oq_figure *out,
                            onq_error *err) {
    double of = 0, predicted = 1;
    for (size_t i = 0; i < e->s->all.n; i++)
        of += e->losses[i].of;
    const oq_ratio counted = ratio_of(e);
    if (isnan(counted.value))
        return ONQ_OK;
    const double kept = percent_kept(counted.value);
    *out = (oq_figure){kept, percent_kept(bound_of_count(&counted, of)), kept};
    if (f->n == 0)
        return ONQ_OK;
    OQ_TRY(find_clear(e, f, what, out, err));
    OQ_TRY(predict(e, f, what, &predicted, err));
    out->bound = fmax(out->bound, percent_kept(predicted));
    return ONQ_OK;
}

static onq_code end_agreement(ending *e, bool sequences, onq_error *err) {
    const oq_flips f = flips_of(e->s, ANSWER_ROWS);
    LOSSES(e, sequences ? v->broken : v->flips, sequences ? v->sequences : v->rows);
    return end_answers(
        e, &f, sequences ? ANSWER_SEQUENCES : ANSWER_ROWS,
        &e->out->figures[sequences ? OQ_METRIC_SAMPLE_AGREEMENT : OQ_METRIC_AGREEMENT], err);
}

/* Which class a row has that may have two without changing the text is most of the noise of all
 * values, and says nothing: candidates are compared by the events that may change it. A margin is a
 * difference of two values. */
static onq_code judge_events(ending *e, const oq_flips *f, onq_error *err) {
    const oq_score_sum *x = &e->s->sums[e->s->meaning->classes];
    double power = 0;
    OQ_TRY(oq_flips_power(f, e->a, &power, err));
    if (x->raw.n > 0 && e->out->objective > -INFINITY)
        e->out->objective = decibels(x->signal / (double)x->raw.n, power / 2);
    return ONQ_OK;
}

static onq_code end_texts(ending *e, onq_error *err) {
    const oq_flips f = flips_of(e->s, ANSWER_TEXTS);
    if (f.n > 0)
        OQ_TRY(judge_events(e, &f, err));
    LOSSES(e, v->changed, v->texts);
    return end_answers(e, &f, ANSWER_TEXTS, &e->out->figures[OQ_METRIC_TEXT_AGREEMENT], err);
}

static onq_code end_neighbours(ending *e, onq_error *err) {
    oq_flips f;
    OQ_TRY(oq_neighbours_end(&e->s->neighbours, e->a, &f, err));
    for (size_t i = 0; i < e->s->all.n; i++) {
        const oq_sample_score *v = &e->s->all.v[i];
        double moved = 0;
        for (uint64_t k = 0; k < v->embeddings && f.n > 0; k++)
            moved += f.errors[v->first_embedding + k] > f.margins[v->first_embedding + k];
        e->losses[i] = (oq_loss){moved, f.n > 0 ? (double)v->embeddings : 0, v->fold};
    }
    return end_answers(e, &f, ANSWER_NEIGHBOURS, &e->out->figures[OQ_METRIC_NEIGHBOURS], err);
}

static onq_code end_detections(ending *e, onq_error *err) {
    const oq_flips none = {0};
    LOSSES(e, v->detected.apart, v->detected.both);
    return end_answers(e, &none, ANSWER_ROWS, &e->out->figures[OQ_METRIC_DETECTIONS], err);
}

static void set_figure(ending *e, oq_metric m, double value, double bound) {
    e->out->figures[m] = (oq_figure){value, bound, value};
}

static void end_others(ending *e) {
    const oq_meaning *m = e->s->meaning;
    int64_t labelled = 0, right = 0;
    if (m->wanted[OQ_METRIC_IOU]) {
        LOSSES(e, v->mask_apart, v->mask_any);
        const oq_ratio r = ratio_of(e);
        if (!isnan(r.value))
            set_figure(e, OQ_METRIC_IOU, percent_kept(r.value), percent_kept(oq_ratio_bound(&r)));
    }
    if (m->wanted[OQ_METRIC_KL]) {
        LOSSES(e, v->text.wrecked || v->text.differs ? INFINITY : v->text.kl, v->text.rows);
        const oq_ratio r = ratio_of(e);
        if (!isnan(r.value))
            set_figure(e, OQ_METRIC_KL, r.value, oq_ratio_bound(&r));
    }
    if (m->wanted[OQ_METRIC_PERPLEXITY_RISE]) {
        LOSSES(e, v->text.wrecked ? INFINITY : v->text.loss - v->text.loss_float,
               v->text.predictions);
        const oq_ratio r = ratio_of(e);
        if (!isnan(r.value))
            set_figure(e, OQ_METRIC_PERPLEXITY_RISE, 100 * expm1(r.value),
                       100 * expm1(oq_ratio_bound(&r)));
    }
    for (size_t i = 0; i < e->s->all.n; i++) {
        labelled += e->s->all.v[i].labelled;
        right += e->s->all.v[i].right;
    }
    if (labelled == 0)
        return;
    LOSSES(e, v->float_right - v->right, v->labelled);
    const oq_ratio r = ratio_of(e);
    e->out->accuracy = 100 * (double)right / (double)labelled;
    set_figure(e, OQ_METRIC_ACCURACY_DROP, 100 * r.value, 100 * oq_ratio_bound(&r));
}

static onq_code end_all(ending *e, onq_error *err) {
    e->losses = OQ_NEW_ARRAY(e->a, oq_loss, e->s->all.n + 1);
    OQ_TRY_ALLOC(e->losses != NULL, err);
    end_outputs(e);
    for (size_t i = 0; i < e->s->all.n; i++)
        e->out->rows += e->s->all.v[i].rows;
    OQ_TRY(end_worst(e, err));
    OQ_TRY(count_close(e, err));
    OQ_TRY(end_agreement(e, false, err));
    OQ_TRY(end_agreement(e, true, err));
    OQ_TRY(end_texts(e, err));
    OQ_TRY(end_neighbours(e, err));
    OQ_TRY(end_detections(e, err));
    end_others(e);
    return ONQ_OK;
}

onq_code oq_scoring_end(const oq_scoring *s, oq_score *out, onq_error *err) {
    oq_arena scratch;
    ending e = {.s = s, .a = &scratch, .out = out};
    *out = oq_score_none();
    out->samples = s->all.n;
    oq_arena_init(&scratch, s->arena->alloc);
    const onq_code rc = end_all(&e, err);
    oq_arena_release(&scratch);
    return rc;
}
