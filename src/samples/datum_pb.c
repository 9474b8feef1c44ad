/*
 * datum_pb.c — the files of test_data_set folders: TensorProto, SequenceProto, OptionalProto,
 * MapProto.
 *
 * A file does not say which message it holds: the model's input does. Every size is checked by the
 * one rule for tensors (tensor.h) before a byte is used.
 */
#include "samples/datum.h"

#include "base/limits.h"
#include "onnx/codec/schema.h"
#include "onnx/tensor.h"

/* SequenceProto.DataType and OptionalProto.DataType. */
enum { ELEM_TENSOR = 1, ELEM_SPARSE = 2, ELEM_SEQUENCE = 3, ELEM_MAP = 4, ELEM_OPTIONAL = 5 };

/* ---- reading ---- */

static onq_code read_texts(oq_arena *a, const oq_tensor *t, oq_datum *out, onq_error *err) {
    if (t->string_data.n != out->count)
        return oq_fail(err, ONQ_E_INVALID, "it has %zu texts, but its dims need %" PRIu64,
                       t->string_data.n, out->count);
    oq_str *texts = OQ_NEW_ARRAY(a, oq_str, out->count + 1);
    OQ_TRY_ALLOC(texts != NULL, err);
    for (size_t i = 0; i < t->string_data.n; i++)
        texts[i] = t->string_data.v[i];
    out->strings = texts;
    return ONQ_OK;
}

static onq_code read_tensor(oq_arena *a, const oq_tensor *t, oq_datum *out, onq_error *err) {
    *out = (oq_datum){.kind = OQ_DATUM_TENSOR,
                      .dtype = (oq_dtype)t->data_type.v,
                      .rank = t->dims.n,
                      .dims = t->dims.v};
    if (oq_dtype_find(t->data_type.v) == NULL)
        return oq_fail(err, ONQ_E_INVALID, "the tensor has no valid element type (%" PRId32 ")",
                       t->data_type.v);
    if (oq_tensor_is_external(t))
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "the tensor's data lies in another file (store it in the .pb itself)");
    if (t->segment != NULL)
        return oq_fail(err, ONQ_E_UNSUPPORTED, "the tensor is a segment of a larger one");
    OQ_TRY(oq_tensor_count(t, &out->count, err));
    if (out->dtype == OQ_STRING)
        return read_texts(a, t, out, err);
    uint64_t bytes = 0;
    OQ_TRY(oq_tensor_bytes(t, &bytes, err));
    oq_span span = {NULL, 0};
    if (t->raw_data.present)
        span = (oq_span){t->raw_data.p, t->raw_data.n};
    else
        OQ_TRY(oq_tensor_typed_to_raw(a, t, &span, err));
    if (span.n != bytes)
        return oq_fail(err, ONQ_E_INVALID,
                       "the tensor has %" PRIu64 " bytes, its type and dims want %" PRIu64, span.n,
                       bytes);
    out->data = span.p;
    out->size_bytes = bytes;
    return ONQ_OK;
}

static onq_code read_sequence(oq_arena *a, const oq_sequence *s, unsigned depth, oq_datum *out,
                              onq_error *err);

static onq_code text_keys(oq_arena *a, const oq_map_value *m, oq_datum *out, onq_error *err) {
    int64_t *dims = OQ_NEW_ARRAY(a, int64_t, 1);
    oq_str *texts = OQ_NEW_ARRAY(a, oq_str, m->string_keys.n + 1);
    OQ_TRY_ALLOC(dims != NULL && texts != NULL, err);
    dims[0] = (int64_t)m->string_keys.n;
    for (size_t i = 0; i < m->string_keys.n; i++)
        texts[i] = m->string_keys.v[i];
    *out = (oq_datum){.kind = OQ_DATUM_TENSOR,
                      .dtype = OQ_STRING,
                      .rank = 1,
                      .dims = dims,
                      .count = m->string_keys.n,
                      .strings = texts};
    return ONQ_OK;
}

/* The runtime has maps with int64 and text keys; other integer keys are widened. */
static onq_code number_keys(oq_arena *a, const oq_map_value *m, oq_datum *out, onq_error *err) {
    int64_t *dims = OQ_NEW_ARRAY(a, int64_t, 1);
    OQ_TRY_ALLOC(dims != NULL, err);
    dims[0] = (int64_t)m->keys.n;
    *out = (oq_datum){.kind = OQ_DATUM_TENSOR,
                      .dtype = OQ_INT64,
                      .rank = 1,
                      .dims = dims,
                      .count = m->keys.n,
                      .data = m->keys.v,
                      .size_bytes = m->keys.n * sizeof(int64_t)};
    return ONQ_OK;
}

/* The values of a map, one-element tensors, as one tensor of one axis. */
static onq_code join_values(oq_arena *a, const oq_datum *list, oq_datum *out, onq_error *err) {
    const size_t n = list->n_items;
    const oq_dtype dt = n > 0 ? list->items[0].dtype : OQ_FLOAT;
    uint64_t each = 0;
    int64_t *dims = OQ_NEW_ARRAY(a, int64_t, 1);
    oq_str *texts = OQ_NEW_ARRAY(a, oq_str, n + 1);
    OQ_TRY_ALLOC(dims != NULL && texts != NULL, err);
    if (dt != OQ_STRING && !oq_dtype_bytes(dt, 1, &each))
        return oq_fail(err, ONQ_E_UNSUPPORTED, "maps with values of type %s are not supported",
                       oq_dtype_name(dt));
    uint8_t *bytes = oq_arena_array(a, n + 1, each > 0 ? each : 1);
    OQ_TRY_ALLOC(bytes != NULL, err);
    for (size_t i = 0; i < n; i++) {
        const oq_datum *d = &list->items[i];
        if (d->kind != OQ_DATUM_TENSOR || d->dtype != dt || d->count != 1)
            return oq_fail(err, ONQ_E_UNSUPPORTED,
                           "maps whose values are not scalars are not supported");
        if (dt == OQ_STRING)
            texts[i] = d->strings[0];
        else
            memcpy(bytes + i * each, d->data, each);
    }
    dims[0] = (int64_t)n;
    *out = (oq_datum){.kind = OQ_DATUM_TENSOR, .dtype = dt, .rank = 1, .dims = dims, .count = n};
    if (dt == OQ_STRING) {
        out->strings = texts;
    } else {
        out->data = bytes;
        out->size_bytes = n * each;
    }
    return ONQ_OK;
}

static onq_code read_map(oq_arena *a, const oq_map_value *m, unsigned depth, oq_datum *out,
                         onq_error *err) {
    oq_datum *items = OQ_NEW_ARRAY(a, oq_datum, 2);
    oq_datum values = {0};
    OQ_TRY_ALLOC(items != NULL, err);
    if (m->key_type.v == OQ_STRING)
        OQ_TRY(text_keys(a, m, &items[0], err));
    else
        OQ_TRY(number_keys(a, m, &items[0], err));
    if (m->values != NULL)
        OQ_TRY(read_sequence(a, m->values, depth + 1, &values, err));
    OQ_TRY(join_values(a, &values, &items[1], err));
    if (items[0].count != items[1].count)
        return oq_fail(err, ONQ_E_INVALID, "the map has %" PRIu64 " keys but %" PRIu64 " values",
                       items[0].count, items[1].count);
    *out = (oq_datum){.kind = OQ_DATUM_MAP, .items = items, .n_items = 2};
    return ONQ_OK;
}

static onq_code read_optional(oq_arena *a, const oq_optional *o, unsigned depth, oq_datum *out,
                              onq_error *err) {
    *out = (oq_datum){0};
    if (depth > OQ_MAX_VALUE_DEPTH)
        return oq_fail(err, ONQ_E_LIMIT, "values are nested more than %d deep", OQ_MAX_VALUE_DEPTH);
    if (o->tensor_value != NULL)
        return read_tensor(a, o->tensor_value, out, err);
    if (o->sequence_value != NULL)
        return read_sequence(a, o->sequence_value, depth + 1, out, err);
    if (o->map_value != NULL)
        return read_map(a, o->map_value, depth + 1, out, err);
    if (o->optional_value != NULL)
        return read_optional(a, o->optional_value, depth + 1, out, err);
    if (o->sparse_tensor_value != NULL)
        return oq_fail(err, ONQ_E_UNSUPPORTED, "sparse tensors are not supported");
    return ONQ_OK; /* absent */
}

static size_t sequence_count(const oq_sequence *s) {
    switch (s->elem_type.v) {
    case ELEM_SEQUENCE:
        return s->sequence_values.n;
    case ELEM_MAP:
        return s->map_values.n;
    case ELEM_OPTIONAL:
        return s->optional_values.n;
    case ELEM_SPARSE:
        return s->sparse_tensor_values.n;
    default:
        return s->tensor_values.n;
    }
}

static onq_code read_item(oq_arena *a, const oq_sequence *s, size_t i, unsigned depth,
                          oq_datum *out, onq_error *err) {
    switch (s->elem_type.v) {
    case ELEM_SEQUENCE:
        return read_sequence(a, s->sequence_values.v[i], depth + 1, out, err);
    case ELEM_MAP:
        return read_map(a, s->map_values.v[i], depth + 1, out, err);
    case ELEM_OPTIONAL:
        return read_optional(a, s->optional_values.v[i], depth + 1, out, err);
    case ELEM_SPARSE:
        return oq_fail(err, ONQ_E_UNSUPPORTED, "sequences of sparse tensors are not supported");
    default:
        return read_tensor(a, s->tensor_values.v[i], out, err);
    }
}

static onq_code read_sequence(oq_arena *a, const oq_sequence *s, unsigned depth, oq_datum *out,
                              onq_error *err) {
    if (depth > OQ_MAX_VALUE_DEPTH)
        return oq_fail(err, ONQ_E_LIMIT, "values are nested more than %d deep", OQ_MAX_VALUE_DEPTH);
    const size_t n = sequence_count(s);
    oq_datum *items = OQ_NEW_ARRAY(a, oq_datum, n + 1);
    OQ_TRY_ALLOC(items != NULL, err);
    for (size_t i = 0; i < n; i++)
        OQ_TRY_IN(read_item(a, s, i, depth, &items[i], err), err, "item %zu", i);
    *out = (oq_datum){.kind = OQ_DATUM_SEQUENCE,
                      .dtype = n > 0 ? items[0].dtype : OQ_UNDEFINED,
                      .items = items,
                      .n_items = n};
    return ONQ_OK;
}

onq_code oq_datum_from_pb(oq_arena *a, const uint8_t *p, uint64_t n, const oq_io *want,
                          oq_datum *out, oq_str *name, onq_error *err) {
    void *msg = NULL;
    *out = (oq_datum){0};
    oq_str found = {NULL, 0};
    onq_code rc;
    if (want != NULL && want->optional) {
        OQ_TRY(oq_decode(a, OQ_SCHEMA_optional, p, n, 0, &msg, err));
        found = ((oq_optional *)msg)->name;
        rc = read_optional(a, msg, 0, out, err);
    } else if (want != NULL && want->kind == OQ_DATUM_SEQUENCE) {
        OQ_TRY(oq_decode(a, OQ_SCHEMA_sequence, p, n, 0, &msg, err));
        found = ((oq_sequence *)msg)->name;
        rc = read_sequence(a, msg, 0, out, err);
        if (out->n_items == 0)
            out->dtype = want->dtype;
    } else if (want != NULL && want->kind == OQ_DATUM_MAP) {
        OQ_TRY(oq_decode(a, OQ_SCHEMA_map_value, p, n, 0, &msg, err));
        found = ((oq_map_value *)msg)->name;
        rc = read_map(a, msg, 0, out, err);
    } else {
        OQ_TRY(oq_decode(a, OQ_SCHEMA_tensor, p, n, 0, &msg, err));
        found = ((oq_tensor *)msg)->name;
        rc = read_tensor(a, msg, out, err);
    }
    if (name != NULL)
        *name = found;
    return rc;
}

/* ---- writing: messages of views, encoded at once ---- */

static oq_tensor *make_tensor(oq_arena *a, const oq_datum *d, oq_str name, onq_error *err) {
    oq_tensor *t = oq_tensor_new(a, name, d->dtype, d->dims, d->rank);
    if (t == NULL) {
        oq_fail_nomem(err);
        return NULL;
    }
    if (d->dtype != OQ_STRING) {
        oq_tensor_set_view(t, d->data, d->size_bytes);
        return t;
    }
    for (uint64_t i = 0; i < d->count; i++) {
        const oq_str text = d->strings[i].p != NULL ? d->strings[i] : OQ_S("");
        if (!OQ_PUSH(a, &t->string_data, text)) {
            oq_fail_nomem(err);
            return NULL;
        }
    }
    return t;
}

/* Element i of a tensor of one axis as a tensor of none. */
static oq_datum element(const oq_datum *d, uint64_t i) {
    oq_datum e = {.kind = OQ_DATUM_TENSOR, .dtype = d->dtype, .count = 1};
    if (d->dtype == OQ_STRING)
        e.strings = &d->strings[i];
    else if (oq_dtype_bytes(d->dtype, 1, &e.size_bytes))
        e.data = (const uint8_t *)d->data + i * e.size_bytes;
    return e;
}

static oq_map_value *make_map(oq_arena *a, const oq_datum *d, onq_error *err) {
    oq_map_value *m = OQ_NEW(a, oq_map_value);
    oq_sequence *values = OQ_NEW(a, oq_sequence);
    bool ok = m != NULL && values != NULL;
    const oq_datum *keys = &d->items[0];
    if (ok) {
        m->key_type = OQ_I32((int32_t)keys->dtype);
        m->values = values;
        values->elem_type = OQ_I32(ELEM_TENSOR);
    }
    for (uint64_t i = 0; ok && i < keys->count; i++) {
        const oq_datum one = element(&d->items[1], i);
        oq_tensor *t = make_tensor(a, &one, (oq_str){NULL, 0}, err);
        ok = t != NULL && OQ_PUSH(a, &values->tensor_values, t);
        if (ok && keys->dtype == OQ_STRING)
            ok = OQ_PUSH(a, &m->string_keys, keys->strings[i]);
        else if (ok)
            ok = OQ_PUSH(a, &m->keys, oq_raw_get_int(keys->dtype, (const uint8_t *)keys->data, i));
    }
    if (ok)
        return m;
    oq_fail_nomem(err);
    return NULL;
}

static oq_sequence *make_sequence(oq_arena *a, const oq_datum *d, unsigned depth, onq_error *err) {
    oq_sequence *s = OQ_NEW(a, oq_sequence);
    if (s == NULL || depth > OQ_MAX_VALUE_DEPTH) {
        oq_fail(err, s == NULL ? ONQ_E_NOMEM : ONQ_E_LIMIT, "the value cannot be written");
        return NULL;
    }
    const oq_datum_kind kind = d->n_items > 0 ? d->items[0].kind : OQ_DATUM_TENSOR;
    s->elem_type = OQ_I32(kind == OQ_DATUM_MAP        ? ELEM_MAP
                          : kind == OQ_DATUM_SEQUENCE ? ELEM_SEQUENCE
                                                      : ELEM_TENSOR);
    for (size_t i = 0; i < d->n_items; i++) {
        bool ok = false;
        if (kind == OQ_DATUM_MAP) {
            oq_map_value *m = make_map(a, &d->items[i], err);
            ok = m != NULL && OQ_PUSH(a, &s->map_values, m);
        } else if (kind == OQ_DATUM_SEQUENCE) {
            oq_sequence *q = make_sequence(a, &d->items[i], depth + 1, err);
            ok = q != NULL && OQ_PUSH(a, &s->sequence_values, q);
        } else {
            oq_tensor *t = make_tensor(a, &d->items[i], (oq_str){NULL, 0}, err);
            ok = t != NULL && OQ_PUSH(a, &s->tensor_values, t);
        }
        if (!ok) {
            oq_fail_nomem(err);
            return NULL;
        }
    }
    return s;
}

/* An OptionalProto around the value, empty when there is none. */
static oq_optional *make_optional(oq_arena *a, const oq_datum *d, onq_error *err) {
    oq_optional *o = OQ_NEW(a, oq_optional);
    bool ok = o != NULL;
    if (ok && d->kind == OQ_DATUM_TENSOR) {
        o->elem_type = OQ_I32(ELEM_TENSOR);
        ok = (o->tensor_value = make_tensor(a, d, (oq_str){NULL, 0}, err)) != NULL;
    } else if (ok && d->kind == OQ_DATUM_SEQUENCE) {
        o->elem_type = OQ_I32(ELEM_SEQUENCE);
        ok = (o->sequence_value = make_sequence(a, d, 0, err)) != NULL;
    } else if (ok && d->kind == OQ_DATUM_MAP) {
        o->elem_type = OQ_I32(ELEM_MAP);
        ok = (o->map_value = make_map(a, d, err)) != NULL;
    } else if (ok) {
        o->elem_type = OQ_I32(0);
    }
    if (ok)
        return o;
    oq_fail_nomem(err);
    return NULL;
}

/* The message of a datum and its schema. */
static void *make_message(oq_arena *a, const oq_datum *d, const oq_io *io, oq_schema_id *id,
                          onq_error *err) {
    const oq_str name = io != NULL ? io->name : (oq_str){NULL, 0};
    if (d->kind == OQ_DATUM_NONE || (io != NULL && io->optional)) {
        *id = OQ_SCHEMA_optional;
        oq_optional *o = make_optional(a, d, err);
        if (o != NULL)
            o->name = name;
        return o;
    }
    if (d->kind == OQ_DATUM_TENSOR) {
        *id = OQ_SCHEMA_tensor;
        return make_tensor(a, d, name, err);
    }
    if (d->kind == OQ_DATUM_MAP) {
        *id = OQ_SCHEMA_map_value;
        oq_map_value *m = make_map(a, d, err);
        if (m != NULL)
            m->name = name;
        return m;
    }
    *id = OQ_SCHEMA_sequence;
    oq_sequence *s = make_sequence(a, d, 0, err);
    if (s != NULL)
        s->name = name;
    return s;
}

/* A sequence holds values of one kind. Its items may be absent where they are optionals, which no
 * runtime gives: there is no type in a datum to write them with. */
static bool is_writable(const oq_datum *d) {
    if (d->kind != OQ_DATUM_SEQUENCE)
        return true;
    for (size_t i = 0; i < d->n_items; i++)
        if (d->items[i].kind == OQ_DATUM_NONE || d->items[i].kind != d->items[0].kind ||
            !is_writable(&d->items[i]))
            return false;
    return true;
}

onq_code oq_datum_to_pb(const oq_datum *d, const oq_io *io, oq_buf *out, onq_error *err) {
    if (!is_writable(d))
        return oq_fail(err, ONQ_E_UNSUPPORTED, "a sequence of optional values cannot be written");
    OQ_SCRATCH(arena, out->alloc);
    onq_error inner = ONQ_ERROR_INIT;
    oq_schema_id id = OQ_SCHEMA_tensor;
    void *msg = make_message(&arena, d, io, &id, &inner);
    if (msg == NULL)
        return oq_fail(err, inner.code != ONQ_OK ? inner.code : ONQ_E_NOMEM, "%s", inner.text);
    oq_pieces pieces = {.arena = &arena};
    (void)oq_encode_size(id, msg);
    OQ_TRY(oq_encode(&pieces, id, msg, err));
    for (size_t i = 0; i < pieces.list.n; i++)
        oq_buf_add(out, pieces.list.v[i].p, pieces.list.v[i].n);
    return out->failed ? oq_fail_nomem(err) : ONQ_OK;
}
