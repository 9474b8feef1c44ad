/*
 * clone.c — deep copies of messages, by the same table as the codec.
 */
#include "onnx/codec/schema.h"

static bool clone_list(oq_arena *a, oq_vec_any *list, size_t elem_size) {
    if (list->n == 0) {
        *list = (oq_vec_any){0};
        return true;
    }
    void *v = oq_arena_array(a, list->n, elem_size);
    if (v == NULL)
        return false;
    memcpy(v, list->v, list->n * elem_size);
    list->v = v;
    list->cap = list->n;
    return true;
}

static bool clone_field(oq_arena *a, const oq_field *f, void *at) {
    switch ((oq_kind)f->kind) {
    case OQ_K_STRS:
        return clone_list(a, at, sizeof(oq_str));
    case OQ_K_I64S:
        return clone_list(a, at, sizeof(int64_t));
    case OQ_K_F32S:
        return clone_list(a, at, sizeof(float));
    case OQ_K_MSG: {
        void **sub = at;
        if (*sub == NULL)
            return true;
        *sub = oq_message_clone(a, f->sub, *sub);
        return *sub != NULL;
    }
    case OQ_K_MSGS: {
        OQ_VEC(void *) *l = at;
        if (!clone_list(a, at, sizeof(void *)))
            return false;
        for (size_t i = 0; i < l->n; i++) {
            l->v[i] = oq_message_clone(a, f->sub, l->v[i]);
            if (l->v[i] == NULL)
                return false;
        }
        return true;
    }
    case OQ_K_PV:
    case OQ_K_P4:
    case OQ_K_P8:
        ((oq_packed *)at)->cap = 0; /* shared from now on: not to be grown in place */
        return true;
    default:
        return true; /* scalars and views */
    }
}

void *oq_message_clone(oq_arena *arena, oq_schema_id id, const void *msg) {
    assert(id < OQ_SCHEMA_COUNT && msg != NULL);
    const oq_schema *s = &oq_schemas[id];
    uint8_t *copy = oq_arena_alloc(arena, s->size);
    if (copy == NULL)
        return NULL;
    memcpy(copy, msg, s->size);
    for (unsigned i = 0; i < s->n_fields; i++)
        if (!clone_field(arena, &s->fields[i], copy + s->fields[i].offset))
            return NULL;
    return copy;
}
