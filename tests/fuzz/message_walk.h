/*
 * message_walk.h — over any message by the codec's table: read every byte of it, and compare two.
 *
 * Header only, for the fuzz targets, which are compiled one by one.
 */
#pragma once

#include "onnx/codec/schema.h"

static inline uint32_t walk_bytes(uint32_t h, const void *p, uint64_t n) {
    const uint8_t *b = p;
    for (uint64_t i = 0; i < n; i++)
        h = (h ^ b[i]) * 16777619u;
    return h;
}

/* A hash over every byte that the message shows; nested messages too. */
OQ_UNUSED static uint32_t walk_message(uint32_t h, oq_schema_id id, const void *msg) {
    const oq_schema *s = &oq_schemas[id];
    for (const oq_unknown *u = ((const oq_msg *)msg)->unknown; u != NULL; u = u->next)
        h = walk_bytes(h, u->span.p, u->span.n);
    for (unsigned i = 0; i < s->n_fields; i++) {
        const oq_field *f = &s->fields[i];
        const void *at = (const uint8_t *)msg + f->offset;
        const oq_vec_any *list = at;
        switch ((oq_kind)f->kind) {
        case OQ_K_I64:
            h = walk_bytes(h, &((const oq_opt_i64 *)at)->v, sizeof(int64_t));
            break;
        case OQ_K_I32:
            h = walk_bytes(h, &((const oq_opt_i32 *)at)->v, sizeof(int32_t));
            break;
        case OQ_K_F32:
            h = walk_bytes(h, &((const oq_opt_f32 *)at)->v, sizeof(float));
            break;
        case OQ_K_STR:
            h = walk_bytes(h, ((const oq_str *)at)->p, ((const oq_str *)at)->n);
            break;
        case OQ_K_STRS:
            for (size_t k = 0; k < list->n; k++)
                h = walk_bytes(h, ((const oq_str *)list->v)[k].p, ((const oq_str *)list->v)[k].n);
            break;
        case OQ_K_I64S:
            h = walk_bytes(h, list->v, list->n * sizeof(int64_t));
            break;
        case OQ_K_F32S:
            h = walk_bytes(h, list->v, list->n * sizeof(float));
            break;
        case OQ_K_PV:
        case OQ_K_P4:
        case OQ_K_P8:
            h = walk_bytes(h, ((const oq_packed *)at)->p, ((const oq_packed *)at)->n);
            break;
        case OQ_K_PAY:
            h = walk_bytes(h, ((const oq_payload *)at)->p, ((const oq_payload *)at)->n);
            break;
        case OQ_K_MSG:
            if (*(void *const *)at != NULL)
                h = walk_message(h, (oq_schema_id)f->sub, *(void *const *)at);
            break;
        case OQ_K_MSGS:
            for (size_t k = 0; k < list->n; k++)
                h = walk_message(h, (oq_schema_id)f->sub, ((void *const *)list->v)[k]);
            break;
        }
    }
    return h;
}

static inline bool same_bytes(const void *p, uint64_t n, const void *q, uint64_t m) {
    return n == m && (n == 0 || memcmp(p, q, n) == 0);
}

/* Unknown fields in order; where they were cut into spans does not matter. */
static bool same_unknown(const oq_msg *a, const oq_msg *b) {
    const oq_unknown *x = a->unknown, *y = b->unknown;
    uint64_t i = 0, k = 0;
    for (;;) {
        for (; x != NULL && i == x->span.n; x = x->next)
            i = 0;
        for (; y != NULL && k == y->span.n; y = y->next)
            k = 0;
        if (x == NULL || y == NULL)
            return x == NULL && y == NULL;
        if (x->span.p[i++] != y->span.p[k++])
            return false;
    }
}

OQ_UNUSED static bool same_message(oq_schema_id id, const void *a, const void *b);

static bool same_field(const oq_field *f, const void *a, const void *b) {
    const oq_vec_any *x = a, *y = b;
    switch ((oq_kind)f->kind) {
    case OQ_K_I64:
        return ((const oq_opt_i64 *)a)->has == ((const oq_opt_i64 *)b)->has &&
               ((const oq_opt_i64 *)a)->v == ((const oq_opt_i64 *)b)->v;
    case OQ_K_I32:
        return ((const oq_opt_i32 *)a)->has == ((const oq_opt_i32 *)b)->has &&
               ((const oq_opt_i32 *)a)->v == ((const oq_opt_i32 *)b)->v;
    case OQ_K_F32:
        return ((const oq_opt_f32 *)a)->has == ((const oq_opt_f32 *)b)->has &&
               memcmp(&((const oq_opt_f32 *)a)->v, &((const oq_opt_f32 *)b)->v, 4) == 0;
    case OQ_K_STR:
        return (((const oq_str *)a)->p == NULL) == (((const oq_str *)b)->p == NULL) &&
               oq_str_eq(*(const oq_str *)a, *(const oq_str *)b);
    case OQ_K_STRS:
        for (size_t i = 0; x->n == y->n && i < x->n; i++)
            if (!oq_str_eq(((const oq_str *)x->v)[i], ((const oq_str *)y->v)[i]))
                return false;
        return x->n == y->n;
    case OQ_K_I64S:
        return same_bytes(x->v, x->n * 8, y->v, y->n * 8);
    case OQ_K_F32S:
        return same_bytes(x->v, x->n * 4, y->v, y->n * 4);
    case OQ_K_PV:
    case OQ_K_P4:
    case OQ_K_P8:
        return same_bytes(((const oq_packed *)a)->p, ((const oq_packed *)a)->n,
                          ((const oq_packed *)b)->p, ((const oq_packed *)b)->n);
    case OQ_K_PAY:
        return ((const oq_payload *)a)->present == ((const oq_payload *)b)->present &&
               same_bytes(((const oq_payload *)a)->p, ((const oq_payload *)a)->n,
                          ((const oq_payload *)b)->p, ((const oq_payload *)b)->n);
    case OQ_K_MSG: {
        const void *p = *(void *const *)a, *q = *(void *const *)b;
        return p == NULL || q == NULL ? p == q : same_message((oq_schema_id)f->sub, p, q);
    }
    case OQ_K_MSGS:
        for (size_t i = 0; x->n == y->n && i < x->n; i++)
            if (!same_message((oq_schema_id)f->sub, ((void *const *)x->v)[i],
                              ((void *const *)y->v)[i]))
                return false;
        return x->n == y->n;
    }
    return false;
}

/* The same fields with the same values. */
OQ_UNUSED static bool same_message(oq_schema_id id, const void *a, const void *b) {
    const oq_schema *s = &oq_schemas[id];
    if (!same_unknown(a, b))
        return false;
    for (unsigned i = 0; i < s->n_fields; i++) {
        const oq_field *f = &s->fields[i];
        if (!same_field(f, (const uint8_t *)a + f->offset, (const uint8_t *)b + f->offset))
            return false;
    }
    return true;
}
