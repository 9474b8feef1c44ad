/*
 * language.c — see language.h. Sums are kept in double; the order of the samples is the order of
 * the sums.
 */
#include "samples/language.h"

#include "onnx/tensor.h"

/* Without states, logits of fewer classes are those of a classifier of texts. */
#define MIN_VOCABULARY 1000

/* ---- recognising ---- */

static bool is_integer(const oq_io *io) {
    return io->kind == OQ_DATUM_TENSOR && (io->dtype == OQ_INT64 || io->dtype == OQ_INT32);
}

/* The first input of integers whose name is, or ends with, one of these. */
static size_t find_integers(const oq_ios *in, const char *const *names, size_t n, size_t rank) {
    for (size_t k = 0; k < n; k++)
        for (size_t i = 0; i < in->n; i++)
            if (is_integer(&in->v[i]) && (!in->v[i].has_shape || in->v[i].rank == rank) &&
                oq_str_ends(in->v[i].name, oq_str_of(names[k])))
                return i;
    return OQ_NOWHERE;
}

static bool has_input(const oq_ios *in, oq_str name) {
    for (size_t i = 0; i < in->n; i++)
        if (oq_str_eq(in->v[i].name, name))
            return true;
    return false;
}

/* Whether output i may hold scores over a vocabulary: of a model with states whatever its size. */
static bool has_logits(const oq_io *io, bool stateful) {
    if (io->kind != OQ_DATUM_TENSOR || !oq_dtype_is_float(io->dtype) || !io->has_shape ||
        io->rank < 2 || io->rank > 3)
        return false;
    const int64_t last = io->dims[io->rank - 1].value;
    if (stateful)
        return last != 1 && (oq_str_ends(io->name, OQ_S("logits")) || last >= MIN_VOCABULARY);
    return io->rank == 3 && last >= MIN_VOCABULARY;
}

oq_language oq_language_of(const oq_ios *in, const oq_ios *out, const bool *states) {
    static const char *const ids[] = {"input_ids", "token_ids", "tokens", "ids"};
    static const char *const masks[] = {"attention_mask"};
    static const char *const positions[] = {"position_ids"};
    oq_language l = {.ids = find_integers(in, ids, OQ_COUNT(ids), 2), .logits = OQ_NOWHERE};
    l.mask = find_integers(in, masks, 1, 2);
    l.positions = find_integers(in, positions, 1, 2);
    bool stateful = false;
    for (size_t i = 0; i < out->n; i++)
        stateful |= states[i];
    for (size_t i = 0; i < out->n && l.logits == OQ_NOWHERE; i++)
        if (!states[i] && has_logits(&out->v[i], stateful))
            l.logits = i;
    l.is = l.ids != OQ_NOWHERE && l.logits != OQ_NOWHERE;
    l.causal = l.is && (stateful || !has_input(in, OQ_S("token_type_ids")));
    return l;
}

onq_code oq_roles_of(oq_arena *a, const oq_ios *in, const oq_ios *out, const oq_carry *carry,
                     oq_roles *r, onq_error *err) {
    *r = (oq_roles){.carry = *carry, .states = OQ_NEW_ARRAY(a, bool, out->n + 1)};
    OQ_TRY_ALLOC(r->states != NULL, err);
    oq_carry_mark_states(carry, out, r->states);
    for (size_t i = 0; i < out->n; i++)
        r->n_states += r->states[i];
    r->language = oq_language_of(in, out, r->states);
    return ONQ_OK;
}

const oq_datum *oq_roles_past(const oq_roles *r, const oq_datum *inputs, size_t output) {
    for (size_t i = 0; i < r->carry.n; i++)
        if (r->carry.v[i].out == output)
            return &inputs[r->carry.v[i].in];
    return NULL;
}

onq_code oq_roles_find(oq_arena *a, const oq_ios *in, const oq_ios *out, oq_roles *r,
                       onq_error *err) {
    oq_carry carry;
    OQ_TRY(oq_carry_find(a, in, out, &carry, err));
    return oq_roles_of(a, in, out, &carry, r, err);
}

/* ---- one row ---- */

typedef struct row {
    const oq_datum *of;
    uint64_t from;        /* its first value */
    double most, log_sum; /* largest logit; log of the sum of exp(logit) */
    double apart;         /* the mean difference from another row's logits, by its probabilities */
    uint64_t top;
    bool broken; /* NaN */
} row;

/* Sum of exp(x - most) over a row, and of the same times x - y, by how much another row's logits
 * differ; values of -infinity have no part in it. */
static double sum_of(const row *r, const row *other, uint64_t n, double *apart) {
    double sum = 0;
    *apart = 0;
    for (uint64_t i = 0; i < n; i++) {
        const double x = oq_datum_real(r->of, r->from + i), e = exp(x - r->most);
        sum += e;
        if (other != NULL && x > -(double)INFINITY)
            *apart += e * (x - oq_datum_real(other->of, other->from + i));
    }
    return sum;
}

/* `other` may be NULL; a row that was read. */
static row read_row(const oq_datum *d, uint64_t from, uint64_t n, const row *other) {
    row r = {.of = d, .from = from, .most = -INFINITY};
    double apart = 0;
    for (uint64_t i = 0; i < n; i++) {
        const double x = oq_datum_real(d, from + i);
        r.broken |= isnan(x) || x == (double)INFINITY;
        if (x > r.most) {
            r.most = x;
            r.top = i;
        }
    }
    const double sum = r.broken ? 0 : sum_of(&r, other, n, &apart);
    r.log_sum = r.most + log(sum);
    r.apart = apart / sum;
    return r;
}

/* The mean over p of log p - log q, where p was read beside q; rounding may make it negative. */
static double divergence(const row *p, const row *q) {
    return fmax(p->apart - p->log_sum + q->log_sum, 0);
}

/* ---- one run ---- */

typedef struct place {
    uint64_t batch, position; /* row of the text; from the beginning of the sequence */
    int64_t next;             /* the token that follows; -1: not known */
} place;

static void compare(oq_lm_score *s, const row *flt, const row *r) {
    const double kl = flt->broken || r->broken ? (double)NAN : divergence(flt, r);
    if (flt->broken) /* nothing to agree with */
        return;
    s->wrecked |= !isfinite(kl);
    s->rows++;
    s->same += flt->top == r->top;
    s->kl += kl;
    s->kl_squares += kl * kl;
}

static void predict(oq_lm_score *s, const row *flt, const row *r, int64_t next) {
    s->predictions++;
    s->loss += r->log_sum - oq_datum_real(r->of, r->from + (uint64_t)next);
    if (flt != NULL)
        s->loss_float += flt->log_sum - oq_datum_real(flt->of, flt->from + (uint64_t)next);
}

static void add_row(oq_lm_score *s, const place *at, const row *flt, const row *r, uint64_t n) {
    if (flt != NULL)
        compare(s, flt, r);
    if (at->next >= 0 && (uint64_t)at->next < n)
        predict(s, flt, r, at->next);
    s->wrecked |= r->broken && (flt == NULL || !flt->broken);
}

static bool is_masked(const oq_lm_text *t, uint64_t batch, uint64_t i, uint64_t length) {
    if (t->mask == NULL || t->mask->rank != 2 || t->mask->dims[1] < (int64_t)length)
        return false;
    const uint64_t width = (uint64_t)t->mask->dims[1];
    return oq_raw_get_int(t->mask->dtype, t->mask->data, batch * width + (width - length) + i) == 0;
}

static bool is_text(const oq_datum *ids) {
    return ids != NULL && ids->rank == 2 && (ids->dtype == OQ_INT64 || ids->dtype == OQ_INT32);
}

/* The token after place i of so many; -1 where the text ends or padding begins. */
static int64_t following(const oq_lm_text *t, uint64_t batch, uint64_t i, uint64_t length) {
    if (i + 1 < length)
        return is_masked(t, batch, i + 1, length)
                   ? -1
                   : oq_raw_get_int(t->ids->dtype, t->ids->data, batch * length + i + 1);
    if (!is_text(t->next) || t->next->dims[1] < 1 || t->next->dims[0] <= (int64_t)batch)
        return -1;
    return oq_raw_get_int(t->next->dtype, t->next->data, batch * (uint64_t)t->next->dims[1]);
}

static bool is_comparable(const oq_datum *flt, const oq_datum *logits) {
    return logits->kind == OQ_DATUM_TENSOR && oq_dtype_is_float(logits->dtype) &&
           logits->rank >= 1 &&
           (flt == NULL || (flt->kind == OQ_DATUM_TENSOR && oq_dtype_is_float(flt->dtype) &&
                            oq_datum_same_dims(flt, logits)));
}

void oq_lm_add(oq_lm_score *s, const oq_lm_text *text, const oq_datum *flt,
               const oq_datum *logits) {
    if (!is_comparable(flt, logits)) {
        s->differs = true;
        return;
    }
    const uint64_t n = (uint64_t)logits->dims[logits->rank - 1];
    const uint64_t rows = logits->rank == 3 ? (uint64_t)logits->dims[1] : 1;
    const bool known = is_text(text->ids) && text->ids->dims[1] >= (int64_t)rows;
    const uint64_t length = known ? (uint64_t)text->ids->dims[1] : rows;
    for (uint64_t i = 0; n > 0 && rows > 0 && i < logits->count / n; i++) {
        place at = {.batch = i / rows, .next = -1};
        const uint64_t in_text = length - rows + i % rows;
        at.position = text->past + in_text;
        if (known && at.batch < (uint64_t)text->ids->dims[0]) {
            if (is_masked(text, at.batch, in_text, length))
                continue;
            at.next = following(text, at.batch, in_text, length);
        }
        row t = {0};
        const row r = read_row(logits, i * n, n, NULL);
        if (flt == logits)
            t = r;
        else if (flt != NULL)
            t = read_row(flt, i * n, n, &r);
        add_row(s, &at, flt != NULL ? &t : NULL, &r, n);
        if (s->by_position != NULL && at.position < s->n_positions)
            add_row(&s->by_position[at.position], &at, flt != NULL ? &t : NULL, &r, n);
    }
}

void oq_lm_follow(oq_lm_score *s, const oq_datum *ids, const oq_datum *flt,
                  const oq_datum *logits) {
    if (!is_text(ids) || ids->dims[1] < 1 || !is_comparable(flt, logits) || logits->rank != 2)
        return;
    const uint64_t n = (uint64_t)logits->dims[1];
    for (uint64_t b = 0; b < (uint64_t)logits->dims[0] && b < (uint64_t)ids->dims[0]; b++) {
        const int64_t next = oq_raw_get_int(ids->dtype, ids->data, b * (uint64_t)ids->dims[1]);
        const row t = read_row(flt, b * n, n, NULL), r = read_row(logits, b * n, n, NULL);
        if (next >= 0 && (uint64_t)next < n)
            predict(s, &t, &r, next);
    }
}

onq_code oq_lm_last_rows(oq_arena *a, const oq_datum *logits, oq_datum *out, onq_error *err) {
    uint64_t bits = 0;
    *out = (oq_datum){0};
    if (logits->kind != OQ_DATUM_TENSOR || !oq_dtype_is_float(logits->dtype) || logits->rank < 2 ||
        logits->rank > 3 || logits->count == 0 || !oq_dtype_bytes(logits->dtype, 8, &bits))
        return ONQ_OK;
    const uint64_t batch = (uint64_t)logits->dims[0], n = (uint64_t)logits->dims[logits->rank - 1],
                   rows = logits->count / n / batch, each = n * (bits / 8);
    int64_t *dims = OQ_NEW_ARRAY(a, int64_t, 2);
    uint8_t *data = oq_arena_alloc(a, (size_t)(batch * each));
    OQ_TRY_ALLOC(dims != NULL && data != NULL, err);
    dims[0] = (int64_t)batch;
    dims[1] = (int64_t)n;
    for (uint64_t b = 0; b < batch; b++)
        memcpy(data + b * each, (const uint8_t *)logits->data + (b * rows + rows - 1) * each,
               (size_t)each);
    *out = (oq_datum){.kind = OQ_DATUM_TENSOR,
                      .dtype = logits->dtype,
                      .rank = 2,
                      .dims = dims,
                      .count = batch * n,
                      .data = data,
                      .size_bytes = batch * each};
    return ONQ_OK;
}

void oq_lm_join(oq_lm_score *s, const oq_lm_score *other) {
    s->rows += other->rows;
    s->same += other->same;
    s->kl += other->kl;
    s->kl_squares += other->kl_squares;
    s->predictions += other->predictions;
    s->loss_float += other->loss_float;
    s->loss += other->loss;
    s->differs |= other->differs;
    s->wrecked |= other->wrecked;
}

/* ---- figures ---- */

double oq_lm_kl(const oq_lm_score *s) {
    return s->rows > 0 ? s->kl / (double)s->rows : (double)NAN;
}

double oq_lm_top1(const oq_lm_score *s) {
    return s->rows > 0 ? (double)s->same / (double)s->rows : (double)NAN;
}

double oq_lm_perplexity(const oq_lm_score *s) {
    return s->predictions > 0 ? exp(s->loss / (double)s->predictions) : (double)NAN;
}

double oq_lm_perplexity_float(const oq_lm_score *s) {
    return s->predictions > 0 ? exp(s->loss_float / (double)s->predictions) : (double)NAN;
}

double oq_lm_perplexity_rise(const oq_lm_score *s) {
    return 100 * (oq_lm_perplexity(s) / oq_lm_perplexity_float(s) - 1);
}
