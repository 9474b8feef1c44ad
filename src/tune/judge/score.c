/*
 * score.c — see score.h. All sums are in double and in the order of the samples.
 */
#include "tune/judge/score.h"

#include "base/keyed.h"
#include "onnx/tensor.h"

#include <math.h>
#include <stdlib.h>

/* Probabilities below this say nothing but "not this class": what quantization does to them
 * matters to nobody, and their logarithms would drown the rest. */
#define MIN_PROBABILITY 0.002
/* Of the median margin: a row that float hardly decides. */
#define CLOSE_PART 0.05
#define MASK_AT    0.5

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

static double before(oq_link link, double v) {
    return oq_link_before(link, v, MIN_PROBABILITY);
}

/* ---- margins ---- */

/* Of the value at `top` over the largest other of n values. Rows that float is sure of have errors
 * like the others, so what is left of a small probability counts too. */
static double margin_of(const oq_datum *d, oq_link link, uint64_t from, uint64_t n, uint64_t top) {
    double other = -INFINITY;
    for (uint64_t i = 0; i < n; i++)
        if (i != top && oq_datum_real(d, from + i) > other)
            other = oq_datum_real(d, from + i);
    return oq_link_before(link, oq_datum_real(d, from + top), OQ_LEAST_SCORE) -
           oq_link_before(link, other, OQ_LEAST_SCORE);
}

/* What a row says: the number of its largest value; of a probability alone whether it is above one
 * half. */
static uint64_t answer_of(const oq_datum *d, uint64_t from, uint64_t n) {
    return n == 1 ? oq_datum_real(d, from) > OQ_DECIDED_AT : oq_datum_top(d, from, n);
}

/* By how much an answer is clear; less than 0 where another is given. */
static double margin_for(const oq_datum *d, oq_link link, uint64_t from, uint64_t n,
                         uint64_t answer) {
    if (n > 1)
        return margin_of(d, link, from, n, answer);
    const double far = oq_link_before(link, oq_datum_real(d, from), OQ_LEAST_SCORE);
    return answer != 0 ? far : -far;
}

/* Rows of the output of classes, and of how many values. */
static uint64_t rows_in(const oq_meaning *m, const oq_datum *d, uint64_t *n) {
    const uint64_t rows = m->decision ? (is_real(d) ? d->count : 0) : oq_rows_of(d);
    *n = rows > 0 ? d->count / rows : 0;
    return rows;
}

onq_code oq_margins_add(oq_margins *m, oq_arena *a, const oq_meaning *meaning, const oq_datum *d,
                        oq_link link, onq_error *err) {
    uint64_t n = 0;
    const uint64_t rows = rows_in(meaning, d, &n);
    for (uint64_t r = 0; r < rows; r++) {
        const double margin = margin_for(d, link, r * n, n, answer_of(d, r * n, n));
        OQ_TRY_ALLOC(OQ_PUSH(a, m, (float)margin), err);
    }
    return ONQ_OK;
}

double oq_margins_expect(const float *margins, size_t n, double deviation) {
    double sum = 0;
    if (n == 0)
        return NAN;
    for (size_t i = 0; i < n; i++) {
        /* The difference of two values has twice the variance: erfc(m / (sqrt 2 x sqrt 2 d)). */
        const double lost = deviation > 0 ? 0.5 * erfc((double)margins[i] / (2 * deviation)) : 0;
        sum += isfinite(lost) ? lost : 1;
    }
    return 100 * (1 - sum / (double)n);
}

double oq_margins_allow(const float *margins, size_t n, double percent) {
    double low = 0, high = 1e-6;
    while (high < 1e9 && oq_margins_expect(margins, n, high) >= percent) {
        low = high;
        high *= 4;
    }
    for (int i = 0; i < 40; i++) {
        const double middle = (low + high) / 2;
        *(oq_margins_expect(margins, n, middle) >= percent ? &low : &high) = middle;
    }
    assert(low <= high);
    return low;
}

void oq_link_power(const oq_datum *d, oq_link link, double *sum, uint64_t *n) {
    if (!is_real(d))
        return;
    for (uint64_t i = 0; i < d->count; i++) {
        const double raw = oq_datum_real(d, i);
        if (link == OQ_LINK_SOFTMAX && raw <= MIN_PROBABILITY)
            continue; /* it counts as 0 */
        const double v = before(link, raw);
        *sum += v * v;
    }
    *n += d->count;
}

/* ---- one sample ---- */

onq_code oq_scoring_init(oq_scoring *s, oq_arena *a, const oq_meaning *meaning, size_t n_outputs,
                         onq_error *err) {
    *s = (oq_scoring){
        .meaning = meaning, .arena = a, .n_outputs = n_outputs, .neighbours = {.arena = a}};
    s->sums = OQ_NEW_ARRAY(a, oq_score_sum, n_outputs + 1);
    s->own = OQ_NEW_ARRAY(a, oq_agree, n_outputs + 1);
    return s->sums != NULL && s->own != NULL ? ONQ_OK : oq_fail_nomem(err);
}

/* What was compared as it is, is the same before no link. */
static void add_linked(oq_score_sum *s, oq_link link, const oq_datum *a, const oq_datum *b,
                       const oq_agree *plain) {
    if (link == OQ_LINK_NONE) {
        s->signal += plain->aa;
        s->noise += plain->noise;
        return;
    }
    for (uint64_t i = 0; i < a->count; i++) {
        const double v = oq_datum_real(a, i), w = oq_datum_real(b, i);
        if (link == OQ_LINK_SOFTMAX && v <= MIN_PROBABILITY && w <= MIN_PROBABILITY)
            continue; /* both are nothing, as nearly all of thousands of classes are */
        const double x = before(link, v), e = before(link, w) - x;
        s->signal += x * x;
        s->noise += e * e;
    }
}

static void add_output(oq_scoring *s, size_t k, const oq_datum *a, const oq_datum *b,
                       oq_sample_score *v) {
    oq_score_sum *sum = &s->sums[k];
    oq_agree *own = &s->own[k], step = {0};
    oq_agree_add(&step, a, b);
    oq_agree_join(own, &step);
    oq_agree_join(&sum->raw, &step);
    add_linked(sum, s->meaning->links[k], a, b, &step);
    v->signal[k] = own->aa;
    v->noise[k] = isnan(own->noise) ? INFINITY : own->noise;
    v->angle[k] = isnan(own->noise) ? 2 : 1 - oq_agree_cosine(own);
}

/* The classes of an output of scores. */
static onq_code add_rows(oq_scoring *s, const oq_pair *x, const oq_datum *a, const oq_datum *b,
                         oq_sample_score *v, onq_error *err) {
    const oq_link link = s->meaning->links[a - x->flt];
    uint64_t n = 0;
    const uint64_t rows = rows_in(s->meaning, a, &n);
    const bool steps = x->follows || x->next != NULL;
    const uint64_t sequences = rows == 0 ? 0 : steps ? 1 : oq_sequences_of(a, x->batch);
    const uint64_t each = sequences > 0 ? rows / sequences : 0;
    bool broken = steps && v->broken > 0;
    v->broken = 0;
    v->sequences = sequences > 0 ? sequences : v->sequences;
    for (uint64_t r = 0; r < rows; r++) {
        const uint64_t answer = answer_of(a, r * n, n);
        const bool flip = answer_of(b, r * n, n) != answer;
        const double margin = margin_for(a, link, r * n, n, answer);
        const double lost = margin - margin_for(b, link, r * n, n, answer);
        if (!OQ_PUSH(s->arena, &s->margins, (float)margin) ||
            !OQ_PUSH(s->arena, &s->errors, isnan(lost) ? INFINITY : (float)lost))
            return oq_fail_nomem(err);
        v->flips += flip;
        broken |= flip;
        if ((r + 1) % each == 0) {
            v->broken += broken;
            broken = false;
        }
    }
    v->rows += rows;
    return ONQ_OK;
}

static void add_numbers(const oq_datum *a, const oq_datum *b, oq_sample_score *v) {
    for (uint64_t i = 0; i < a->count; i++)
        v->flips += oq_raw_get_int(a->dtype, a->data, i) != oq_raw_get_int(b->dtype, b->data, i);
    v->rows += a->count;
    v->sequences = 1;
    v->broken = v->flips > 0;
}

static void add_mask(const oq_datum *a, const oq_datum *b, oq_sample_score *v) {
    for (uint64_t i = 0; i < a->count; i++) {
        const bool x = oq_datum_real(a, i) > MASK_AT, y = oq_datum_real(b, i) > MASK_AT;
        v->mask_any += x || y;
        v->mask_apart += x != y;
    }
}

/* The input at this place, or NULL. */
static const oq_datum *input_at(const oq_datum *inputs, size_t at) {
    return inputs != NULL && at != OQ_NOWHERE ? &inputs[at] : NULL;
}

static void add_text(const oq_scoring *s, const oq_pair *x, const oq_datum *a, const oq_datum *b,
                     oq_sample_score *v) {
    const oq_meaning *m = s->meaning;
    const oq_lm_text text = {
        .ids = m->language.causal ? input_at(x->inputs, m->language.ids) : NULL,
        .mask = m->language.is ? input_at(x->inputs, m->language.mask) : NULL,
        .next = m->language.causal ? input_at(x->next, m->language.ids) : NULL};
    if (m->wanted[OQ_METRIC_KL] || m->wanted[OQ_METRIC_PERPLEXITY_RISE])
        oq_lm_add(&v->text, &text, a, b);
}

/* There are labels for the rows of float's output: one of another shape has no right answers. */
static void count_right(const oq_datum *flt, const oq_datum *d, const int64_t *labels,
                        oq_sample_score *v) {
    const uint64_t rows = oq_rows_of(flt), n = rows > 0 ? flt->count / rows : 0;
    for (uint64_t r = 0; r < rows; r++) {
        v->right += same_shape(flt, d) && (int64_t)oq_datum_top(d, r * n, n) == labels[r];
        v->float_right += (int64_t)oq_datum_top(flt, r * n, n) == labels[r];
    }
    v->labelled += (int64_t)rows;
}

static onq_code judge_classes(oq_scoring *s, const oq_pair *x, oq_sample_score *v, onq_error *err) {
    const oq_meaning *m = s->meaning;
    const oq_datum *a = &x->flt[m->classes], *b = &x->quantized[m->classes];
    if (m->classes >= s->n_outputs || m->classes >= x->n_quantized || !same_shape(a, b))
        return ONQ_OK;
    if (is_integer(a)) {
        add_numbers(a, b, v);
        return ONQ_OK;
    }
    if (is_real(a))
        add_text(s, x, a, b, v);
    return is_real(a) ? add_rows(s, x, a, b, v, err) : ONQ_OK;
}

/* A detector that found another number of boxes is not wrong for that. */
static bool has_other_rows(const oq_meaning *m, const oq_datum *a, const oq_datum *b, size_t k) {
    return m->detector != NULL && m->detector->chosen && oq_detector_has(m->detector, k) &&
           a->kind == b->kind && a->dtype == b->dtype && a->rank == b->rank &&
           !oq_datum_same_dims(a, b);
}

/* Nothing can be compared value by value: all is noise. */
static void add_other_rows(oq_scoring *s, size_t k, const oq_datum *a, oq_sample_score *v) {
    oq_agree own = {0};
    if (!is_real(a))
        return;
    oq_agree_add(&own, a, a);
    own.noise = own.aa;
    oq_agree_join(&s->sums[k].raw, &own);
    s->sums[k].signal += own.aa;
    s->sums[k].noise += own.aa;
    v->signal[k] = v->noise[k] = own.aa;
    v->angle[k] = 1;
}

static void add_outputs(oq_scoring *s, const oq_pair *x, oq_sample_score *v) {
    const oq_meaning *m = s->meaning;
    for (size_t k = 0; k < s->n_outputs; k++)
        if (oq_meaning_is_state(m, k))
            continue;
        else if (k < x->n_quantized && has_other_rows(m, &x->flt[k], &x->quantized[k], k))
            add_other_rows(s, k, &x->flt[k], v);
        else if (k >= x->n_quantized || !same_shape(&x->flt[k], &x->quantized[k]))
            s->sums[k].raw.differs = true;
        else if (is_real(&x->flt[k]))
            add_output(s, k, &x->flt[k], &x->quantized[k], v);
}

static onq_code add_detections(const oq_scoring *s, const oq_pair *x, oq_sample_score *v,
                               onq_error *err) {
    oq_detected d = {0};
    OQ_TRY(oq_detect_compare(s->meaning->detector, x->flt, x->quantized, s->n_outputs,
                             s->arena->alloc, &d, err));
    v->detected.flt += d.flt;
    v->detected.both += d.both;
    v->detected.apart += d.apart;
    return ONQ_OK;
}

/* The texts of a recogniser. Those of the steps of a sequence are one. */
static onq_code add_texts(oq_scoring *s, const oq_pair *x, oq_sample_score *v, onq_error *err) {
    const oq_meaning *m = s->meaning;
    const oq_datum *a = &x->flt[m->classes], *b = &x->quantized[m->classes];
    const oq_text_pair pair = {a, b, m->links[m->classes], m->blank, oq_sequences_of(a, x->batch)};
    const bool steps = x->follows || x->next != NULL;
    const size_t events = s->text.margins.n, texts = s->text.counts.n;
    uint64_t changed = 0;
    if (!same_shape(a, b) || a->count == 0)
        return ONQ_OK;
    OQ_TRY(oq_text_add(&pair, s->arena, &s->text, &changed, err));
    if (x->follows && texts > v->first_text) {
        s->text.counts.v[texts - 1] += (uint32_t)(s->text.margins.n - events);
        s->text.counts.n = texts;
        changed = changed > 0 && v->changed == 0;
    }
    v->changed += steps ? changed > 0 : changed;
    v->texts = s->text.counts.n - v->first_text;
    v->events = s->text.margins.n - v->first_event;
    return ONQ_OK;
}

/* What is looked at only where a target asks for it. */
static onq_code add_wanted(oq_scoring *s, const oq_pair *x, oq_sample_score *v, onq_error *err) {
    const oq_meaning *m = s->meaning;
    const bool any = x->n_quantized > 0 && s->n_outputs > 0;
    if (m->wanted[OQ_METRIC_IOU] && any && is_real(&x->flt[0]) &&
        same_shape(&x->flt[0], &x->quantized[0]))
        add_mask(&x->flt[0], &x->quantized[0], v);
    if (m->wanted[OQ_METRIC_NEIGHBOURS] && any) {
        uint64_t n = 0;
        OQ_TRY(oq_neighbours_add(&s->neighbours, &x->flt[0], &x->quantized[0], &n, err));
        v->embeddings += n;
    }
    if (m->wanted[OQ_METRIC_TEXT_AGREEMENT] && m->is_text && m->classes < s->n_outputs &&
        m->classes < x->n_quantized)
        OQ_TRY(add_texts(s, x, v, err));
    if (m->wanted[OQ_METRIC_DETECTIONS] && m->detector != NULL && x->n_quantized >= s->n_outputs)
        OQ_TRY(add_detections(s, x, v, err));
    if (x->labels != NULL && any)
        count_right(&x->flt[0], &x->quantized[0], x->labels, v);
    return ONQ_OK;
}

static onq_code begin_sample(oq_scoring *s, const oq_pair *x, onq_error *err) {
    const oq_neighbours *near = &s->neighbours;
    double *sums = OQ_NEW_ARRAY(s->arena, double, 3 * s->n_outputs + 1);
    const oq_sample_score v = {.number = x->number,
                               .fold = s->fold,
                               .signal = sums,
                               .noise = sums + s->n_outputs,
                               .angle = sums + 2 * s->n_outputs,
                               .first_row = s->margins.n,
                               .first_text = s->text.counts.n,
                               .first_event = s->text.margins.n,
                               .first_embedding = near->width > 0 ? near->flt.n / near->width : 0};
    OQ_TRY_ALLOC(sums != NULL && OQ_PUSH(s->arena, &s->all, v), err);
    memset(s->own, 0, (s->n_outputs + 1) * sizeof *s->own);
    return ONQ_OK;
}

onq_code oq_scoring_add(oq_scoring *s, const oq_pair *x, onq_error *err) {
    if (!x->follows)
        OQ_TRY(begin_sample(s, x, err));
    assert(s->all.n > 0);
    oq_sample_score *v = &s->all.v[s->all.n - 1];
    add_outputs(s, x, v);
    OQ_TRY(judge_classes(s, x, v, err));
    return add_wanted(s, x, v, err);
}

/* ---- figures ---- */

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
            worse(db, decibels(x->raw.aa, x->raw.noise), as_decibels(oq_ratio_bound(&r)));
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
