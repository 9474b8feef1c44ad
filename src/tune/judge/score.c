/*
 * score.c — see score.h. All sums are in double and in the order of the samples.
 */
#include "tune/judge/score.h"

#include "onnx/tensor.h"

#include <math.h>
#include <stdlib.h>

/* Probabilities below this say nothing but "not this class": what quantization does to them
 * matters to nobody, and their logarithms would drown the rest. */
#define MIN_PROBABILITY 0.002
#define MASK_AT         0.5

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

/* Numbers of classes: those of one sample of the batch are a sequence. */
static void add_numbers(const oq_pair *x, const oq_datum *a, const oq_datum *b,
                        oq_sample_score *v) {
    const bool steps = x->follows || x->next != NULL;
    const bool batched = !steps && a->rank > 0 && x->batch > 0 && a->dims[0] == x->batch;
    const uint64_t sequences = batched ? (uint64_t)x->batch : 1, each = a->count / sequences;
    bool broken = steps && v->broken > 0;
    v->broken = 0;
    v->sequences = sequences;
    for (uint64_t i = 0; i < a->count; i++) {
        const bool flip =
            oq_raw_get_int(a->dtype, a->data, i) != oq_raw_get_int(b->dtype, b->data, i);
        v->flips += flip;
        broken |= flip;
        if ((i + 1) % each == 0) {
            v->broken += broken;
            broken = false;
        }
    }
    v->rows += a->count;
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
        add_numbers(x, a, b, v);
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
