/*
 * text.c — see text.h.
 */
#include "tune/judge/text.h"

#include <math.h>

#define ALLOWED 4 /* classes that may stand in a row, at most */
#define KEPT    (ALLOWED + 1)
/* Texts: so many characters in all samples, of so many rows on average, and with a blank in so many
 * of the rows between the first and the last one. */
#define MIN_CHARACTERS 8
#define MAX_LENGTH     4
#define MIN_BLANKS     0.1

/* ---- rows ---- */

/* The classes with the largest values of a row, the first of equal ones first. */
typedef struct largest {
    double v[KEPT];
    uint64_t at[KEPT];
} largest;

static void keep(largest *x, size_t at, double v, uint64_t class) {
    for (; at > 0 && x->v[at - 1] < v; at--) {
        x->v[at] = x->v[at - 1];
        x->at[at] = x->at[at - 1];
    }
    x->v[at] = v;
    x->at[at] = class;
}

/* No number is less than any. */
static largest read_row(const oq_datum *d, uint64_t from, uint64_t n) {
    largest x;
    assert(n >= KEPT && from + n <= d->count);
    for (size_t i = 0; i < KEPT; i++) {
        const double v = oq_datum_real(d, from + i);
        keep(&x, i, isnan(v) ? -INFINITY : v, i);
    }
    for (uint64_t i = KEPT; i < n; i++) {
        const double v = oq_datum_real(d, from + i);
        if (v > x.v[KEPT - 1])
            keep(&x, KEPT - 1, v, i);
    }
    return x;
}

/* The rows of one text, and where they are. */
typedef struct rows {
    const oq_datum *d;
    uint64_t first, n, width;
    largest *v;
} rows;

static onq_code read_rows(const oq_datum *d, uint64_t first, uint64_t n, oq_arena *a, rows *out,
                          onq_error *err) {
    const uint64_t width = (uint64_t)d->dims[d->rank - 1];
    *out = (rows){d, first, n, width, OQ_NEW_ARRAY(a, largest, n + 1)};
    OQ_TRY_ALLOC(out->v != NULL, err);
    for (uint64_t i = 0; i < n; i++)
        out->v[i] = read_row(d, (first + i) * width, width);
    return ONQ_OK;
}

static uint64_t top(const rows *x, uint64_t row) {
    return x->v[row].at[0];
}

/* The row after the last one with the same class. */
static uint64_t run_end(const rows *x, uint64_t row) {
    uint64_t end = row + 1;
    while (end < x->n && top(x, end) == top(x, row))
        end++;
    return end;
}

/* The next row from here that begins a character of the text, or the number of rows. */
static uint64_t next_character(const rows *x, uint64_t row, uint64_t blank) {
    while (row < x->n && (top(x, row) == blank || (row > 0 && top(x, row) == top(x, row - 1))))
        row++;
    return row;
}

static bool is_same_text(const rows *a, const rows *b, uint64_t blank) {
    uint64_t i = next_character(a, 0, blank), k = next_character(b, 0, blank);
    while (i < a->n && k < b->n && top(a, i) == top(b, k)) {
        i = next_character(a, i + 1, blank);
        k = next_character(b, k + 1, blank);
    }
    return i == a->n && k == b->n;
}

/* ---- events ---- */

/* The classes that may stand in a row, as its neighbours are: its own first. */
typedef struct allowed {
    uint64_t v[ALLOWED];
    size_t n;
} allowed;

static bool allows(const allowed *x, uint64_t class) {
    for (size_t i = 0; i < x->n; i++)
        if (x->v[i] == class)
            return true;
    return false;
}

static void allow(allowed *x, uint64_t class) {
    if (allows(x, class))
        return;
    assert(x->n < ALLOWED);
    x->v[x->n++] = class;
}

static allowed allowed_in(const rows *flt, uint64_t row, uint64_t blank) {
    allowed x = {.v = {top(flt, row)}, .n = 1};
    allow(&x, blank);
    if (row > 0)
        allow(&x, top(flt, row - 1));
    if (row + 1 < flt->n)
        allow(&x, top(flt, row + 1));
    return x;
}

static double score(const rows *x, uint64_t row, uint64_t class) {
    return oq_datum_real(x->d, (x->first + row) * x->width + class);
}

/* A row gets a class that may not stand there, or a run of rows is lost to what may. */
typedef struct event {
    uint64_t first, end;
    bool run;
    uint64_t class; /* of the run */
} event;

/* Of the best class that is allowed over the best that is not. */
static double row_margin(const rows *x, const allowed *may, oq_link link, uint64_t row) {
    const largest *l = &x->v[row];
    double best = -INFINITY;
    size_t other = 0;
    while (other < KEPT && allows(may, l->at[other]))
        other++;
    assert(other < KEPT);
    for (size_t i = 0; i < may->n; i++)
        best = fmax(best, score(x, row, may->v[i]));
    return oq_link_before(link, best, OQ_LEAST_SCORE) -
           oq_link_before(link, l->v[other], OQ_LEAST_SCORE);
}

/* Of the class over the others that are allowed. */
static double own_margin(const rows *x, const allowed *may, oq_link link, uint64_t row,
                         uint64_t class) {
    double other = -INFINITY;
    for (size_t i = 0; i < may->n; i++)
        if (may->v[i] != class)
            other = fmax(other, score(x, row, may->v[i]));
    return oq_link_before(link, score(x, row, class), OQ_LEAST_SCORE) -
           oq_link_before(link, other, OQ_LEAST_SCORE);
}

static double margin_of(const rows *flt, const rows *x, const event *e, const oq_text_pair *pair) {
    double best = -INFINITY;
    for (uint64_t row = e->first; row < e->end; row++) {
        const allowed may = allowed_in(flt, row, pair->blank);
        best = fmax(best, e->run ? own_margin(x, &may, pair->link, row, e->class)
                                 : row_margin(x, &may, pair->link, row));
    }
    return best;
}

/* A character may move into the blank next to it. A blank matters between equal characters, and
 * then where it is so short that they can meet. False: the run from here on may go. */
static bool of_run(const rows *flt, uint64_t row, uint64_t blank, event *e) {
    const uint64_t end = run_end(flt, row);
    *e = (event){row, end, true, top(flt, row)};
    if (e->class == blank)
        return row > 0 && end < flt->n && end - row <= 2 && top(flt, row - 1) == top(flt, end);
    e->first -= row > 0 && top(flt, row - 1) == blank;
    e->end += end < flt->n && top(flt, end) == blank;
    return true;
}

static onq_code push_event(const oq_text_pair *x, const rows *flt, const rows *other,
                           const event *e, oq_arena *a, oq_text_events *out, onq_error *err) {
    const double margin = margin_of(flt, flt, e, x);
    OQ_TRY_ALLOC(OQ_PUSH(a, &out->margins, (float)margin), err);
    if (other == NULL)
        return ONQ_OK;
    const double lost = margin - margin_of(flt, other, e, x);
    OQ_TRY_ALLOC(OQ_PUSH(a, &out->errors, isnan(lost) ? INFINITY : (float)lost), err);
    return ONQ_OK;
}

static onq_code add_events(const oq_text_pair *x, const rows *flt, const rows *other, oq_arena *a,
                           oq_text_events *out, onq_error *err) {
    event e;
    for (uint64_t row = 0; row < flt->n; row++) {
        e = (event){.first = row, .end = row + 1};
        OQ_TRY(push_event(x, flt, other, &e, a, out, err));
    }
    for (uint64_t row = 0; row < flt->n; row = run_end(flt, row))
        if (of_run(flt, row, x->blank, &e))
            OQ_TRY(push_event(x, flt, other, &e, a, out, err));
    return ONQ_OK;
}

onq_code oq_text_add(const oq_text_pair *x, oq_arena *a, oq_text_events *out, uint64_t *changed,
                     onq_error *err) {
    const uint64_t width = (uint64_t)x->flt->dims[x->flt->rank - 1];
    const uint64_t each = x->flt->count / width / x->n_texts;
    assert(width >= KEPT && x->n_texts > 0 && x->blank < width);
    for (uint64_t i = 0; i < x->n_texts; i++) {
        OQ_SCRATCH(scratch, a->alloc);
        const size_t before = out->margins.n;
        rows flt, other;
        OQ_TRY(read_rows(x->flt, i * each, each, &scratch, &flt, err));
        if (x->other != NULL) {
            OQ_TRY(read_rows(x->other, i * each, each, &scratch, &other, err));
            *changed += !is_same_text(&flt, &other, x->blank);
        }
        OQ_TRY(add_events(x, &flt, x->other != NULL ? &other : NULL, a, out, err));
        OQ_TRY_ALLOC(OQ_PUSH(a, &out->counts, (uint32_t)(out->margins.n - before)), err);
    }
    return ONQ_OK;
}

/* ---- what is a text ---- */

/* Of one class, as if it were the blank. */
typedef struct tally {
    uint64_t characters, rows, inner, blanks; /* rows of characters; rows between them, and blank */
} tally;

static void count_text(const rows *x, uint64_t blank, tally *t) {
    uint64_t first = 0, end = x->n;
    while (first < end && top(x, first) == blank)
        first++;
    while (end > first && top(x, end - 1) == blank)
        end--;
    for (uint64_t row = first; row < end; row = run_end(x, row)) {
        const uint64_t length = run_end(x, row) - row;
        const bool is_blank = top(x, row) == blank;
        t->inner += length;
        *(is_blank ? &t->blanks : &t->rows) += length;
        t->characters += !is_blank;
    }
}

static bool are_texts(const tally *t) {
    return t->characters >= MIN_CHARACTERS && t->rows <= MAX_LENGTH * t->characters &&
           (double)t->blanks >= MIN_BLANKS * (double)t->inner;
}

/* A row for each step of the input is a label of that step. */
static bool labels_steps(const oq_datum *input, const oq_datum *scores) {
    const int64_t n = scores->dims[1];
    return input->rank < 4 &&
           (input->dims[input->rank - 1] == n || (input->rank == 3 && input->dims[1] == n));
}

static bool may_be_text(const oq_text_step *x) {
    const oq_dtype_info *of = oq_dtype_find((int64_t)x->scores->dtype),
                        *in = oq_dtype_find((int64_t)x->input->dtype);
    return x->scores->kind == OQ_DATUM_TENSOR && x->input->kind == OQ_DATUM_TENSOR && of != NULL &&
           of->cls == OQ_CLASS_REAL && in != NULL && in->cls != OQ_CLASS_STRING &&
           x->scores->rank == 3 && x->scores->dims[2] >= KEPT && x->scores->count > 0 &&
           (in->cls == OQ_CLASS_REAL ? x->input->rank >= 2 : x->input->rank >= 4) &&
           !labels_steps(x->input, x->scores);
}

onq_code oq_text_blank(const oq_text_step *v, size_t n, oq_arena *a, uint64_t *blank,
                       onq_error *err) {
    tally first = {0}, last = {0};
    *blank = OQ_NO_BLANK;
    for (size_t i = 0; i < n; i++) {
        OQ_SCRATCH(scratch, a->alloc);
        if (!may_be_text(&v[i]))
            return ONQ_OK;
        const oq_datum *d = v[i].scores;
        for (uint64_t k = 0; k < (uint64_t)d->dims[0]; k++) {
            rows x;
            OQ_TRY(read_rows(d, k * (uint64_t)d->dims[1], (uint64_t)d->dims[1], &scratch, &x, err));
            count_text(&x, 0, &first);
            count_text(&x, x.width - 1, &last);
        }
    }
    if (are_texts(&first) && (!are_texts(&last) || first.blanks >= last.blanks))
        *blank = 0;
    else if (are_texts(&last))
        *blank = (uint64_t)v[0].scores->dims[2] - 1;
    return ONQ_OK;
}
