/*
 * recast.c — see recast.h.
 */
#include "prepare/recast.h"

#include "base/text/real.h"
#include "onnx/tensor.h"

#include <inttypes.h>

#define CAST_BY_NUMBER 6 /* the opset from which on the type of a Cast is a number */

#define STRETCH ((uint64_t)1 << 20) /* bytes that a scan reads at a time */

/* Bytes that are read in slices where that is possible. */
typedef struct source {
    const onq_allocator *alloc;
    oq_span raw;                 /* p NULL: see producer */
    const oq_producer *producer; /* one that makes slices */
} source;

typedef struct recast {
    oq_producer producer;
    source from;
    oq_dtype source, type;
} recast;

static onq_code find_source(oq_model *m, oq_tensor *t, source *out, onq_error *err) {
    const oq_producer *p = t->raw_data.producer;
    *out = (source){.alloc = &m->env->alloc};
    if (p == NULL || p->slice == NULL || t->cache.p != NULL)
        return oq_model_data(m, t, &out->raw, err);
    out->producer = p;
    return ONQ_OK;
}

static uint64_t size_of(const source *s) {
    return s->producer != NULL ? s->producer->size : s->raw.n;
}

/* Bytes from .. from + n. *room is memory to be freed, *size its size; slices begin and end at
 * multiples of a unit, so that more than is asked for may be made. */
static onq_code read_bytes(const source *s, uint64_t from, uint64_t n, const uint8_t **out,
                           uint8_t **room, uint64_t *size, onq_error *err) {
    assert(from <= size_of(s) && n <= size_of(s) - from);
    *room = NULL;
    if (s->producer == NULL) {
        *out = s->raw.p + from;
        return ONQ_OK;
    }
    const uint64_t begin = from / OQ_SLICE_UNIT * OQ_SLICE_UNIT;
    uint64_t end = (from + n + OQ_SLICE_UNIT - 1) / OQ_SLICE_UNIT * OQ_SLICE_UNIT;
    end = end < s->producer->size ? end : s->producer->size;
    *size = end - begin;
    *room = oq_alloc(s->alloc, *size);
    OQ_TRY_ALLOC(*room != NULL, err);
    *out = *room + (from - begin);
    return s->producer->slice(s->producer, begin, end - begin, *room, err);
}

static void recast_values(oq_dtype from, oq_dtype to, const uint8_t *in, uint64_t n, uint8_t *out) {
    enum { SOME = 1024 };
    float x[SOME];
    uint16_t h[SOME];
    assert(from == OQ_FLOAT || from == OQ_FLOAT16 || from == OQ_BFLOAT16);
    const size_t wide = from == OQ_FLOAT ? sizeof *x : sizeof *h;
    const size_t width = to == OQ_FLOAT ? sizeof *x : sizeof *h;
    for (uint64_t i = 0; i < n; i += SOME, in += SOME * wide, out += SOME * width) {
        const size_t now = n - i < SOME ? (size_t)(n - i) : SOME;
        memcpy(from == OQ_FLOAT ? (void *)x : h, in, now * wide);
        if (from == OQ_FLOAT16)
            oq_f16_to_f32_n(h, x, now);
        else if (from == OQ_BFLOAT16)
            oq_bf16_to_f32_n(h, x, now);
        if (to == OQ_FLOAT16)
            oq_f32_to_f16_n(x, h, now);
        else if (to == OQ_BFLOAT16)
            for (size_t k = 0; k < now; k++)
                h[k] = oq_f32_to_bf16(x[k]);
        memcpy(out, to == OQ_FLOAT ? (void *)x : h, now * width);
    }
}

static onq_code slice(const oq_producer *self, uint64_t from, uint64_t n, uint8_t *out,
                      onq_error *err) {
    const recast *r = self->ctx;
    const unsigned wide = oq_dtype_find(r->source)->bits / 8,
                   width = oq_dtype_find(r->type)->bits / 8;
    const uint8_t *in = NULL;
    uint8_t *room = NULL;
    uint64_t size = 0;
    const onq_code rc =
        read_bytes(&r->from, from / width * wide, n / width * wide, &in, &room, &size, err);
    if (rc == ONQ_OK)
        recast_values(r->source, r->type, in, n / width, out);
    oq_free(r->from.alloc, room, size);
    return rc;
}

onq_code oq_recast_payload(oq_model *m, oq_tensor *from, oq_tensor *to, onq_error *err) {
    assert(from != to && oq_dtype_is_float(to->data_type.v));
    recast *r = OQ_NEW(&m->arena, recast);
    OQ_TRY_ALLOC(r != NULL, err);
    *r = (recast){.source = (oq_dtype)from->data_type.v, .type = (oq_dtype)to->data_type.v};
    OQ_TRY(find_source(m, from, &r->from, err));
    return oq_tensor_set_slices(to, &r->producer, slice, r, err);
}

onq_code oq_recast_in_place(oq_model *m, oq_tensor *t, oq_dtype type, onq_error *err) {
    oq_tensor *from = OQ_NEW(&m->arena, oq_tensor);
    OQ_TRY_ALLOC(from != NULL, err);
    *from = *t;
    memset(&t->external_data, 0, sizeof t->external_data); /* the list is the other's now */
    oq_tensor_clear_data(t);
    t->cache = (oq_span){0};
    t->data_type.v = (int32_t)type;
    return oq_recast_payload(m, from, t, err);
}

onq_code oq_floats_scan(oq_model *m, oq_tensor *t, oq_floats_fn fn, void *ctx, onq_error *err) {
    source s;
    bool more = true;
    OQ_TRY(find_source(m, t, &s, err));
    for (uint64_t at = 0; more && at < size_of(&s); at += STRETCH) {
        const uint64_t n = size_of(&s) - at < STRETCH ? size_of(&s) - at : STRETCH;
        const uint8_t *in = NULL;
        uint8_t *room = NULL;
        uint64_t size = 0;
        const onq_code rc = read_bytes(&s, at, n, &in, &room, &size, err);
        for (uint64_t i = 0; rc == ONQ_OK && more && i < n; i += 4096) {
            float x[1024];
            const size_t bytes = n - i < sizeof x ? (size_t)(n - i) : sizeof x;
            memcpy(x, in + i, bytes);
            more = fn(ctx, x, bytes / sizeof *x);
        }
        oq_free(s.alloc, room, size);
        OQ_TRY(rc);
    }
    return ONQ_OK;
}

onq_code oq_recast_may_cast(const oq_model *m, onq_error *err) {
    const int64_t opset = oq_model_opset(m, OQ_S(""));
    if (opset < 1 || opset >= CAST_BY_NUMBER)
        return ONQ_OK;
    return oq_fail(err, ONQ_E_UNSUPPORTED,
                   "opset %" PRId64 " is too old for the Cast nodes that this needs (raise it with "
                   "'onq preprocess --opset 21' first)",
                   opset);
}
