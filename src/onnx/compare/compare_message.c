/*
 * compare_message.c — equality of messages by the schema table, so that no field is forgotten.
 */
#include "onnx/compare/compare_parts.h"

static bool strs_same(const oq_strs *a, const oq_strs *b) {
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (!oq_str_eq(a->v[i], b->v[i]))
            return false;
    return true;
}

static bool bytes_same(const void *a, size_t n, const void *b, size_t m) {
    return n == m && (n == 0 || memcmp(a, b, n) == 0);
}

static bool payload_same(const oq_payload *a, const oq_payload *b) {
    if (a->producer != NULL || b->producer != NULL)
        return a->producer == b->producer;
    return bytes_same(a->p, a->n, b->p, b->n);
}

static bool messages_same(oq_schema_id id, const oq_vec_any *a, const oq_vec_any *b) {
    if (a->n != b->n)
        return false;
    void *const *x = a->v, *const *y = b->v;
    for (size_t i = 0; i < a->n; i++)
        if (!oq_message_same(id, x[i], y[i], NULL))
            return false;
    return true;
}

static bool field_same(const oq_field *f, const void *a, const void *b) {
    switch ((oq_kind)f->kind) {
    case OQ_K_I64:
        return ((const oq_opt_i64 *)a)->v == ((const oq_opt_i64 *)b)->v;
    case OQ_K_I32:
        return ((const oq_opt_i32 *)a)->v == ((const oq_opt_i32 *)b)->v;
    case OQ_K_F32:
        return memcmp(&((const oq_opt_f32 *)a)->v, &((const oq_opt_f32 *)b)->v, 4) == 0;
    case OQ_K_STR:
        return oq_str_eq(*(const oq_str *)a, *(const oq_str *)b);
    case OQ_K_STRS:
        return strs_same(a, b);
    case OQ_K_I64S: {
        const oq_i64s *x = a, *y = b;
        return bytes_same(x->v, x->n * sizeof *x->v, y->v, y->n * sizeof *y->v);
    }
    case OQ_K_F32S: {
        const oq_f32s *x = a, *y = b;
        return bytes_same(x->v, x->n * sizeof *x->v, y->v, y->n * sizeof *y->v);
    }
    case OQ_K_PV:
    case OQ_K_P4:
    case OQ_K_P8: {
        const oq_packed *x = a, *y = b;
        return bytes_same(x->p, x->n, y->p, y->n);
    }
    case OQ_K_PAY:
        return payload_same(a, b);
    case OQ_K_MSG: {
        const void *x = *(void *const *)a, *y = *(void *const *)b;
        if (x == NULL || y == NULL)
            return x == y;
        return oq_message_same(f->sub, x, y, NULL);
    }
    case OQ_K_MSGS:
        return messages_same(f->sub, a, b);
    }
    return false;
}

static bool listed(const uint16_t *numbers, uint16_t number) {
    for (; numbers != NULL && *numbers != 0; numbers++)
        if (*numbers == number)
            return true;
    return false;
}

bool oq_message_same(oq_schema_id id, const void *a, const void *b, const uint16_t *but) {
    const oq_schema *s = &oq_schemas[id];
    for (unsigned i = 0; i < s->n_fields; i++) {
        const oq_field *f = &s->fields[i];
        if (!listed(but, f->number) &&
            !field_same(f, (const uint8_t *)a + f->offset, (const uint8_t *)b + f->offset))
            return false;
    }
    const oq_unknown *x = ((const oq_msg *)a)->unknown, *y = ((const oq_msg *)b)->unknown;
    for (; x != NULL && y != NULL; x = x->next, y = y->next)
        if (!bytes_same(x->span.p, x->span.n, y->span.p, y->span.n))
            return false;
    return x == NULL && y == NULL;
}

onq_code oq_cmp_notes(oq_cmp *c, oq_str name, const char *what, oq_notes a, oq_notes b,
                      onq_error *err) {
    bool same = a.n == b.n;
    for (size_t i = 0; same && i < a.n; i++)
        same = oq_message_same(OQ_SCHEMA_entry, a.v[i], b.v[i], NULL);
    if (!oq_str_eq(a.doc_string, b.doc_string))
        OQ_TRY(oq_cmp_found(c, err, OQ_DIFF_DOC, name, "doc_string of the %s", what));
    return same ? ONQ_OK
                : oq_cmp_found(c, err, OQ_DIFF_METADATA, name, "metadata_props of the %s", what);
}
