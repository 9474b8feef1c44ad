/*
 * overview.c — see overview.h.
 */
#include "samples/overview.h"

#include <math.h>

#define CHUNK 1024 /* values that are converted at a time */

/* ---- one sample ---- */

static void see(oq_sight *s, const float *v, size_t n) {
    float least = INFINITY, greatest = -INFINITY;
    bool whole = true;
    for (size_t i = 0; i < n; i++) {
        least = v[i] < least ? v[i] : least;
        greatest = v[i] > greatest ? v[i] : greatest;
        whole &= v[i] == floorf(v[i]);
    }
    s->least = least < s->least ? (double)least : s->least;
    s->greatest = greatest > s->greatest ? (double)greatest : s->greatest;
    s->whole &= whole;
}

/* Types of less than a byte, texts and complex numbers are left out. */
static bool has_reals(const oq_datum *d) {
    const oq_dtype_info *t = d->kind == OQ_DATUM_TENSOR ? oq_dtype_find((int64_t)d->dtype) : NULL;
    return t != NULL && t->bits >= 8 && t->cls != OQ_CLASS_STRING && t->cls != OQ_CLASS_COMPLEX;
}

static void see_tensor(oq_sight *s, const oq_datum *d) {
    float v[CHUNK];
    if (!has_reals(d))
        return;
    const uint64_t size = oq_dtype_find((int64_t)d->dtype)->bits / 8;
    for (uint64_t i = 0; i < d->count; i += CHUNK) {
        oq_datum part = *d;
        part.data = (const char *)d->data + i * size;
        part.count = d->count - i < CHUNK ? d->count - i : CHUNK;
        if (d->dtype == OQ_FLOAT)
            memcpy(v, part.data, part.count * sizeof *v); /* it need not be aligned */
        else
            oq_datum_to_floats(&part, v);
        see(s, v, part.count);
    }
}

static uint64_t mix(uint64_t h, const void *data, uint64_t n) {
    const char *p = data;
    for (; n > 0;) {
        uint64_t word = 0;
        const size_t take = n < sizeof word ? (size_t)n : sizeof word;
        memcpy(&word, p, take);
        h = (h ^ word) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
        p += take;
        n -= take;
    }
    return h;
}

/* Items nest no deeper than a type, which is checked when it is read. */
static uint64_t mix_datum(uint64_t h, const oq_datum *d) {
    h = mix(h, &d->count, sizeof d->count);
    if (d->data != NULL)
        h = mix(h, d->data, d->size_bytes);
    for (uint64_t i = 0; d->strings != NULL && i < d->count; i++)
        h = mix(h, d->strings[i].p, d->strings[i].n);
    for (size_t i = 0; i < d->n_items; i++)
        h = mix_datum(h, &d->items[i]);
    return h;
}

static const oq_sight nothing = {(double)INFINITY, -(double)INFINITY, true};

void oq_look_make(oq_look *l, const oq_datum *inputs, size_t n) {
    *l = (oq_look){.hash = 1, .rows = 1};
    if (n > 0 && inputs[0].kind == OQ_DATUM_TENSOR && inputs[0].rank > 1 && inputs[0].dims[0] > 0)
        l->rows = (uint64_t)inputs[0].dims[0];
    for (size_t i = 0; i < n; i++)
        l->hash = mix_datum(l->hash, &inputs[i]);
    for (size_t i = 0; i < OQ_OVERVIEW_INPUTS; i++) {
        l->inputs[i] = nothing;
        if (i < n)
            see_tensor(&l->inputs[i], &inputs[i]);
    }
}

/* ---- all of them ---- */

void oq_overview_init(oq_overview *w, size_t n_inputs) {
    *w = (oq_overview){.n_inputs = n_inputs};
    for (size_t i = 0; i < OQ_OVERVIEW_INPUTS; i++)
        w->inputs[i] = nothing;
}

/* True if each input that can be looked at has one value; false where some cannot. */
static bool is_constant(const oq_sight *inputs, size_t n) {
    bool all = n > 0 && n <= OQ_OVERVIEW_INPUTS;
    for (size_t i = 0; i < n && all; i++)
        all = inputs[i].least == inputs[i].greatest;
    return all;
}

void oq_overview_add(oq_overview *w, const oq_look *l) {
    bool known = false;
    w->samples++;
    w->rows += l->rows;
    w->constant += is_constant(l->inputs, w->n_inputs);
    for (size_t i = 0; i < OQ_OVERVIEW_INPUTS; i++) {
        oq_sight *s = &w->inputs[i];
        s->least = l->inputs[i].least < s->least ? l->inputs[i].least : s->least;
        s->greatest = l->inputs[i].greatest > s->greatest ? l->inputs[i].greatest : s->greatest;
        s->whole &= l->inputs[i].whole;
    }
    if (w->compared >= OQ_OVERVIEW_SAMPLES)
        return;
    for (uint64_t i = 0; i < w->distinct && !known; i++)
        known = w->hashes[i] == l->hash;
    if (!known)
        w->hashes[w->distinct++] = l->hash;
    w->compared++;
}

bool oq_overview_is_constant(const oq_overview *w) {
    return w->samples > 0 && is_constant(w->inputs, w->n_inputs);
}
