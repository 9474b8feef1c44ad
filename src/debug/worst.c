/*
 * worst.c — the samples whose outputs lose most. Memory is bounded: of many samples only the worst
 * are kept by name, and counts of how all of them are spread.
 */
#include "debug/debug.h"

#define IN_JSON 20
#define IN_TEXT 3

/* NaN is worse than any number; of equals the earlier sample comes first. */
static bool is_worse(const oq_debug_sample *a, const oq_debug_sample *b) {
    if (isnan(a->sqnr) || isnan(b->sqnr))
        return isnan(a->sqnr) && (!isnan(b->sqnr) || a->number < b->number);
    return a->sqnr < b->sqnr || (a->sqnr <= b->sqnr && a->number < b->number);
}

static size_t bin_of(double db) {
    const double at = isnan(db) ? 0 : floor(db) - OQ_DEBUG_MIN_SPREAD;
    return at <= 0 ? 0 : at >= OQ_DEBUG_SPREAD - 1 ? OQ_DEBUG_SPREAD - 1 : (size_t)at;
}

onq_code oq_debug_worst_add(oq_debug *d, const oq_debug_sample *s, onq_error *err) {
    oq_debug_worst *w = &d->worst;
    w->measured++;
    w->spread[bin_of(s->sqnr)]++;
    if (w->n == OQ_DEBUG_WORST && !is_worse(s, &w->v[w->n - 1]))
        return ONQ_OK;
    oq_debug_sample one = *s;
    one.name = oq_arena_strdup(&d->arena, s->name, strlen(s->name));
    OQ_TRY_ALLOC(one.name != NULL, err);
    size_t at = w->n < OQ_DEBUG_WORST ? w->n++ : w->n - 1;
    for (; at > 0 && is_worse(&one, &w->v[at - 1]); at--)
        w->v[at] = w->v[at - 1];
    assert(w->n <= OQ_DEBUG_WORST && w->n <= w->measured);
    w->v[at] = one;
    return ONQ_OK;
}

void oq_debug_worst_json(const oq_debug *d, oq_jw *w) {
    oq_jw_begin_array(w, "worst_samples");
    for (size_t i = 0; i < d->worst.n && i < IN_JSON; i++) {
        const oq_debug_sample *s = &d->worst.v[i];
        oq_jw_begin_object(w, NULL);
        oq_jw_cstr(w, "name", s->name);
        oq_jw_uint(w, "number", s->number);
        oq_jw_real(w, "sqnr", s->sqnr);
        if (s->rows > 0)
            oq_jw_real(w, "top1_agreement", (double)s->same / (double)s->rows);
        oq_jw_end_object(w);
    }
    oq_jw_end_array(w);
}

void oq_debug_worst_text(const oq_debug *d, oq_buf *out) {
    if (d->worst.measured < 2)
        return;
    oq_buf_adds(out, "worst samples:");
    for (size_t i = 0; i < d->worst.n && i < IN_TEXT; i++) {
        const oq_debug_sample *s = &d->worst.v[i];
        char name[256];
        oq_text_escape(name, sizeof name, s->name, strlen(s->name));
        oq_buf_addf(out, "%s %s ", i > 0 ? "," : "", name);
        if (isinf(s->sqnr))
            oq_buf_adds(out, s->sqnr > 0 ? "exact" : "nan");
        else
            oq_buf_addf(out, "%.1f dB", s->sqnr);
    }
    oq_buf_addc(out, '\n');
}
