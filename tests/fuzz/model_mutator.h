/*
 * model_mutator.h — mutates a model as the messages it is made of, not as bytes.
 *
 * A byte flipped at random nearly always breaks a length or a name, and the input is refused at the
 * door. Here the model is decoded, one to four places of its tree are changed by the codec's table
 * (wire a name elsewhere, copy or drop or move a message, turn a number, a shape or a type into
 * another), and it is encoded again: most of what comes out is well-formed and gets to the code
 * behind the checks. Every fifth time, and for bytes that are no model, bytes are changed as usual.
 *
 * A target whose input is `prefix` bytes and a model has
 *
 *     size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed) {
 *         return mutate_model(data, size, max, seed, prefix);
 *     }
 *
 * which libFuzzer calls, and replay_main.c too.
 */
#pragma once

#include "onnx/codec/schema.h"
#include "onnx/model.h"
#include "onnx/operators.h"

#include <math.h>
#include <stdlib.h>

/* libFuzzer's own, or replay_main.c's. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t max);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max, unsigned seed);

/* Places of a tree that something can be done to. */
typedef struct mutator_place {
    const oq_field *field;
    void *at; /* the field in its message */
} mutator_place;

typedef struct mutator {
    uint64_t state;
    oq_model *model;
    OQ_VEC(mutator_place) places;
    OQ_VEC(oq_str) texts;           /* names and other texts of the model */
    OQ_VEC(mutator_place) messages; /* what holds them: MSG and MSGS that are not empty */
} mutator;

static inline uint64_t mutator_next(mutator *m) {
    m->state ^= m->state << 13;
    m->state ^= m->state >> 7;
    m->state ^= m->state << 17;
    return m->state;
}

static inline size_t mutator_below(mutator *m, size_t n) {
    return n == 0 ? 0 : (size_t)(mutator_next(m) % n);
}

static inline bool mutator_collect(mutator *m, oq_schema_id id, void *msg, unsigned depth) {
    const oq_schema *s = &oq_schemas[id];
    oq_arena *a = &m->model->arena;
    bool ok = depth < 64 && m->places.n < 200000;
    for (unsigned i = 0; ok && i < s->n_fields; i++) {
        const oq_field *f = &s->fields[i];
        void *at = (uint8_t *)msg + f->offset;
        oq_vec_any *list = at;
        ok = OQ_PUSH(a, &m->places, (mutator_place){f, at});
        if (f->kind == OQ_K_STR && ((oq_str *)at)->n != 0)
            ok = ok && OQ_PUSH(a, &m->texts, *(oq_str *)at);
        for (size_t k = 0; ok && f->kind == OQ_K_STRS && k < list->n; k++)
            ok = OQ_PUSH(a, &m->texts, ((oq_str *)list->v)[k]);
        if (f->kind == OQ_K_MSG && *(void **)at != NULL)
            ok = ok && OQ_PUSH(a, &m->messages, (mutator_place){f, at}) &&
                 mutator_collect(m, (oq_schema_id)f->sub, *(void **)at, depth + 1);
        if (f->kind == OQ_K_MSGS && list->n != 0)
            ok = ok && OQ_PUSH(a, &m->messages, (mutator_place){f, at});
        for (size_t k = 0; ok && f->kind == OQ_K_MSGS && k < list->n; k++)
            ok = mutator_collect(m, (oq_schema_id)f->sub, ((void **)list->v)[k], depth + 1);
    }
    return ok;
}

static inline int64_t mutator_number(mutator *m, int64_t was) {
    static const int64_t values[] = {0,    1,     -1,        2,         3,         4,
                                     5,    7,     8,         16,        127,       128,
                                     -128, 65536, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN};
    switch (mutator_below(m, 4)) {
    case 0:
        return (int64_t)((uint64_t)was + 1);
    case 1:
        return (int64_t)((uint64_t)was - 1);
    case 2:
        return values[mutator_below(m, OQ_COUNT(values))];
    default:
        return (int64_t)mutator_below(m, 32);
    }
}

static inline float mutator_real(mutator *m) {
    static const float values[] = {0.0f, -0.0f, 1.0f, -1.0f, 0.5f, 1e-45f, 3e38f, -3e38f, 1e-30f};
    const size_t i = mutator_below(m, OQ_COUNT(values) + 2);
    return i < OQ_COUNT(values) ? values[i] : i == OQ_COUNT(values) ? (float)NAN : (float)INFINITY;
}

/* Another text of the model, the name of an operator, or none. */
static inline oq_str mutator_text(mutator *m) {
    const size_t how = mutator_below(m, 8);
    if (how == 0)
        return OQ_S("");
    if (how == 1)
        return oq_str_of(oq_operators[mutator_below(m, oq_operator_count)].type);
    return m->texts.n != 0 ? m->texts.v[mutator_below(m, m->texts.n)] : OQ_S("x");
}

/* Drop, double, swap or move an element of a list. `size` is that of an element. */
static inline void mutator_list(mutator *m, oq_vec_any *list, size_t size) {
    uint8_t *v = list->v;
    const size_t i = mutator_below(m, list->n), k = mutator_below(m, list->n);
    uint8_t kept[32];
    if (list->n == 0 || size > sizeof kept)
        return;
    memcpy(kept, v + i * size, size);
    switch (mutator_below(m, 4)) {
    case 0:
        memmove(v + i * size, v + (i + 1) * size, (list->n - i - 1) * size);
        list->n--;
        break;
    case 1:
        memcpy(v + i * size, v + k * size, size);
        break;
    case 2:
        memcpy(v + i * size, v + k * size, size);
        memcpy(v + k * size, kept, size);
        break;
    default:
        if (oq_arena_grow(&m->model->arena, &list->v, list->n, &list->cap, size)) {
            memcpy((uint8_t *)list->v + list->n * size, kept, size);
            list->n++;
        }
        break;
    }
}

/* A message of that kind from elsewhere in the model, as a copy: nothing becomes its own
 * ancestor. */
static inline void *mutator_graft(mutator *m, unsigned sub) {
    for (unsigned tries = 0; tries < 20 && m->messages.n != 0; tries++) {
        const mutator_place *p = &m->messages.v[mutator_below(m, m->messages.n)];
        const oq_vec_any *list = p->at;
        if (p->field->sub != sub)
            continue;
        void *from = p->field->kind == OQ_K_MSG ? *(void **)p->at
                     : list->n != 0             ? ((void **)list->v)[mutator_below(m, list->n)]
                                                : NULL;
        if (from != NULL)
            return oq_message_clone(&m->model->arena, (oq_schema_id)sub, from);
    }
    return NULL;
}

static inline void mutator_messages(mutator *m, const mutator_place *p) {
    oq_vec_any *list = p->at;
    void *made = mutator_below(m, 3) == 0 ? mutator_graft(m, p->field->sub) : NULL;
    if (made == NULL)
        mutator_list(m, list, sizeof(void *));
    else if (list->n != 0 && mutator_below(m, 2) == 0)
        ((void **)list->v)[mutator_below(m, list->n)] = made;
    else if (oq_arena_grow(&m->model->arena, &list->v, list->n, &list->cap, sizeof(void *)))
        ((void **)list->v)[list->n++] = made;
}

/* Bytes of a payload: fewer, or others. */
static inline void mutator_payload(mutator *m, const uint8_t **p, uint64_t *n) {
    if (*n == 0)
        return;
    if (mutator_below(m, 3) == 0) {
        *n -= 1 + mutator_below(m, *n < 8 ? (size_t)*n : 8);
        return;
    }
    uint8_t *copy = oq_arena_alloc(&m->model->arena, *n);
    if (copy == NULL)
        return;
    memcpy(copy, *p, *n);
    if (*n >= 4 && mutator_below(m, 2) == 0) {
        const float v = mutator_real(m);
        memcpy(copy + mutator_below(m, (size_t)(*n / 4)) * 4, &v, 4);
    } else {
        copy[mutator_below(m, (size_t)*n)] = (uint8_t)mutator_next(m);
    }
    *p = copy;
}

static inline void mutator_change(mutator *m, const mutator_place *p) {
    oq_vec_any *list = p->at;
    oq_opt_i64 *i64 = p->at;
    oq_opt_i32 *i32 = p->at;
    switch ((oq_kind)p->field->kind) {
    case OQ_K_I64:
        *i64 = (oq_opt_i64){mutator_number(m, i64->v), mutator_below(m, 8) != 0};
        break;
    case OQ_K_I32:
        *i32 = (oq_opt_i32){(int32_t)mutator_number(m, i32->v), mutator_below(m, 8) != 0};
        break;
    case OQ_K_F32:
        *(oq_opt_f32 *)p->at = (oq_opt_f32){mutator_real(m), mutator_below(m, 8) != 0};
        break;
    case OQ_K_STR:
        *(oq_str *)p->at = mutator_below(m, 8) == 0 ? (oq_str){NULL, 0} : mutator_text(m);
        break;
    case OQ_K_STRS:
        if (list->n != 0 && mutator_below(m, 2) == 0)
            ((oq_str *)list->v)[mutator_below(m, list->n)] = mutator_text(m);
        else
            mutator_list(m, list, sizeof(oq_str));
        break;
    case OQ_K_I64S:
        if (list->n != 0 && mutator_below(m, 2) == 0) {
            int64_t *v = &((int64_t *)list->v)[mutator_below(m, list->n)];
            *v = mutator_number(m, *v);
        } else {
            mutator_list(m, list, sizeof(int64_t));
        }
        break;
    case OQ_K_F32S:
        if (list->n != 0 && mutator_below(m, 2) == 0)
            ((float *)list->v)[mutator_below(m, list->n)] = mutator_real(m);
        else
            mutator_list(m, list, sizeof(float));
        break;
    case OQ_K_PV:
    case OQ_K_P4:
    case OQ_K_P8: {
        /* Its length stays: that of a packed field is a multiple of its elements'. */
        oq_packed *packed = p->at;
        const uint64_t n = packed->n;
        mutator_payload(m, &packed->p, &packed->n);
        packed->n = n;
        break;
    }
    case OQ_K_PAY: {
        oq_payload *pay = p->at;
        if (pay->producer == NULL && pay->p != NULL)
            mutator_payload(m, &pay->p, &pay->n);
        break;
    }
    case OQ_K_MSG:
        *(void **)p->at = mutator_below(m, 3) == 0 ? NULL : mutator_graft(m, p->field->sub);
        break;
    case OQ_K_MSGS:
        mutator_messages(m, p);
        break;
    }
}

static inline bool mutator_is_there(const mutator_place *p) {
    const oq_vec_any *list = p->at;
    switch ((oq_kind)p->field->kind) {
    case OQ_K_I64:
        return ((const oq_opt_i64 *)p->at)->has;
    case OQ_K_I32:
        return ((const oq_opt_i32 *)p->at)->has;
    case OQ_K_F32:
        return ((const oq_opt_f32 *)p->at)->has;
    case OQ_K_STR:
        return ((const oq_str *)p->at)->n != 0;
    case OQ_K_MSG:
        return *(void *const *)p->at != NULL;
    case OQ_K_PV:
    case OQ_K_P4:
    case OQ_K_P8:
        return ((const oq_packed *)p->at)->n != 0;
    case OQ_K_PAY:
        return ((const oq_payload *)p->at)->n != 0;
    case OQ_K_STRS:
    case OQ_K_I64S:
    case OQ_K_F32S:
    case OQ_K_MSGS:
        return list->n != 0;
    }
    return false;
}

/* Most fields of a message are absent: three of four draws go to one that is there. */
static inline const mutator_place *mutator_choose(mutator *m) {
    const mutator_place *p = &m->places.v[mutator_below(m, m->places.n)];
    const bool any = mutator_below(m, 4) == 0;
    for (unsigned tries = 0; !any && tries < 50 && !mutator_is_there(p); tries++)
        p = &m->places.v[mutator_below(m, m->places.n)];
    return p;
}

/* Bytes of the mutated model in `out`, at most `max`; 0 when it is no model or became too large. */
static inline size_t mutator_tree(mutator *m, const uint8_t *data, size_t size, uint8_t *out,
                                  size_t max) {
    onq_env *env = onq_env_new(NULL);
    onq_error err = ONQ_ERROR_INIT;
    oq_buf bytes;
    size_t n = 0;
    if (env == NULL)
        return 0;
    oq_buf_init(&bytes, &env->alloc);
    if (oq_model_open_memory(env, data, size, NULL, &m->model, &err) == ONQ_OK) {
        oq_model_touch(m->model);
        for (size_t k = 1 + mutator_below(m, 4); k > 0; k--) {
            m->places.n = m->texts.n = m->messages.n = 0;
            if (!mutator_collect(m, OQ_SCHEMA_model_proto, m->model->proto, 0))
                break;
            mutator_change(m, mutator_choose(m));
        }
        if (m->model->proto->graph != NULL && oq_model_encode(m->model, &bytes, &err) == ONQ_OK &&
            bytes.n <= max) {
            n = bytes.n;
            memcpy(out, bytes.p, n);
        }
    }
    oq_buf_release(&bytes);
    oq_model_free(m->model);
    onq_env_free(env);
    return n;
}

OQ_UNUSED static size_t mutate_model(uint8_t *data, size_t size, size_t max, unsigned seed,
                                     size_t prefix) {
    mutator m = {.state = seed * 0x9e3779b97f4a7c15u + 1};
    (void)mutator_next(&m);
    if (size <= prefix || mutator_below(&m, 5) == 0)
        return LLVMFuzzerMutate(data, size, max);
    if (prefix == 1 && mutator_below(&m, 8) == 0)
        data[0] = (uint8_t)mutator_next(&m);
    uint8_t *copy = malloc(size - prefix);
    if (copy == NULL)
        return size;
    memcpy(copy, data + prefix, size - prefix);
    const size_t n = mutator_tree(&m, copy, size - prefix, data + prefix, max - prefix);
    free(copy);
    return n != 0 ? prefix + n : LLVMFuzzerMutate(data, size, max);
}

/* For two models, of which the first two bytes give the length of the first: mostly the second. */
OQ_UNUSED static size_t mutate_second(uint8_t *data, size_t size, size_t max, unsigned seed) {
    const size_t n = size < 2 ? 0 : 2 + ((size_t)data[0] | ((size_t)data[1] << 8));
    return n < 2 || n >= size ? LLVMFuzzerMutate(data, size, max)
                              : mutate_model(data, size, max, seed, n);
}
