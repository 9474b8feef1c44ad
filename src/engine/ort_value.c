/*
 * ort_value.c — datum to the runtime's value and back.
 *
 * Going in, numeric tensors are borrowed: the value points at the datum's bytes. They must be
 * aligned to their type for that; a misaligned one is copied into the arena. Going out, a datum is
 * a view of the value. Texts are copied both ways: the runtime keeps them as objects of its own.
 */
#include "engine/ort_private.h"

#include "base/limits.h"

#define ALIGNMENT 16

void oq_ort_values_release(const oq_ort_api *api, ort_values *v) {
    while (v->n > 0)
        api->ReleaseValue(v->v[--v->n]);
}

static onq_code keep(oq_arena *a, const oq_ort_api *api, ort_values *made, OrtValue *v,
                     onq_error *err) {
    if (OQ_PUSH(a, made, v))
        return ONQ_OK;
    api->ReleaseValue(v);
    return oq_fail_nomem(err);
}

/* ---- in ---- */

static onq_code fill_texts(const oq_ort_api *api, OrtValue *v, const oq_datum *d, onq_error *err) {
    for (uint64_t i = 0; i < d->count; i++) {
        char *p = NULL;
        OQ_TRY(oq_ort_check(api,
                            api->GetResizedStringTensorElementBuffer(v, i, d->strings[i].n, &p),
                            err, "text %" PRIu64, i));
        if (d->strings[i].n > 0)
            memcpy(p, d->strings[i].p, d->strings[i].n);
    }
    return ONQ_OK;
}

static onq_code make_texts(ort_engine *e, oq_arena *a, const oq_datum *d, ort_values *made,
                           OrtValue **out, onq_error *err) {
    OQ_TRY(oq_ort_check(&e->api,
                        e->api.CreateTensorAsOrtValue(e->allocator, d->dims, d->rank,
                                                      oq_ort_dtype_number(OQ_STRING), out),
                        err, "a tensor of texts"));
    OQ_TRY(keep(a, &e->api, made, *out, err));
    return fill_texts(&e->api, *out, d, err);
}

static onq_code make_tensor(ort_engine *e, oq_arena *a, const oq_datum *d, ort_values *made,
                            OrtValue **out, onq_error *err) {
    if (d->dtype == OQ_STRING)
        return make_texts(e, a, d, made, out, err);
    const int type = oq_ort_dtype_number(d->dtype);
    if (type == 0)
        return oq_fail(err, ONQ_E_UNSUPPORTED, "ONNX Runtime has no tensors of type %s",
                       oq_dtype_name(d->dtype));
    /* The runtime takes a pointer to mutable bytes, but does not write to inputs. */
    void *p = NULL;
    memcpy(&p, &d->data, sizeof p);
    if ((uintptr_t)p % ALIGNMENT != 0 || p == NULL) {
        p = oq_arena_alloc(a, d->size_bytes + 1);
        OQ_TRY_ALLOC(p != NULL, err);
        if (d->size_bytes > 0)
            memcpy(p, d->data, d->size_bytes);
    }
    OQ_TRY(oq_ort_check(&e->api,
                        e->api.CreateTensorWithDataAsOrtValue(e->cpu, p, d->size_bytes, d->dims,
                                                              d->rank, type, out),
                        err, "a tensor"));
    return keep(a, &e->api, made, *out, err);
}

static onq_code make_any(ort_engine *e, oq_arena *a, const oq_datum *d, unsigned depth,
                         ort_values *made, OrtValue **out, onq_error *err) {
    if (depth > OQ_MAX_VALUE_DEPTH)
        return oq_fail(err, ONQ_E_LIMIT, "values are nested more than %d deep", OQ_MAX_VALUE_DEPTH);
    if (d->kind == OQ_DATUM_TENSOR)
        return make_tensor(e, a, d, made, out, err);
    if (d->kind == OQ_DATUM_NONE)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "absent values inside a sequence or map are not supported");
    const OrtValue **items = OQ_NEW_ARRAY(a, const OrtValue *, d->n_items + 1);
    OQ_TRY_ALLOC(items != NULL, err);
    for (size_t i = 0; i < d->n_items; i++) {
        OrtValue *item = NULL;
        OQ_TRY(make_any(e, a, &d->items[i], depth + 1, made, &item, err));
        items[i] = item;
    }
    const bool is_map = d->kind == OQ_DATUM_MAP;
    if (!is_map && d->n_items == 0)
        OQ_TRY(oq_ort_value_empty(e, a, d->dtype, out, err));
    else
        OQ_TRY(oq_ort_check(
            &e->api,
            e->api.CreateValue(items, d->n_items, is_map ? OQ_ORT_IS_MAP : OQ_ORT_IS_SEQUENCE, out),
            err, is_map ? "a map" : "a sequence of %zu", d->n_items));
    return keep(a, &e->api, made, *out, err);
}

onq_code oq_ort_value_make(ort_engine *e, oq_arena *a, const oq_datum *d, const oq_io *io,
                           ort_values *made, const OrtValue **out, onq_error *err) {
    OrtValue *v = NULL;
    OQ_TRY_IN(make_any(e, a, d, 0, made, &v, err), err, "input '%.*s'", OQ_STR(io->name));
    *out = v;
    return ONQ_OK;
}

/* ---- out ---- */

static onq_code view_texts(ort_engine *e, oq_arena *a, OrtValue *v, oq_datum *d, onq_error *err) {
    const oq_ort_api *api = &e->api;
    size_t total = 0;
    OQ_TRY(oq_ort_check(api, api->GetStringTensorDataLength(v, &total), err, "texts"));
    oq_str *texts = OQ_NEW_ARRAY(a, oq_str, d->count + 1);
    size_t *offsets = OQ_NEW_ARRAY(a, size_t, d->count + 1);
    char *p = oq_arena_alloc(a, total + 1);
    OQ_TRY_ALLOC(texts != NULL && offsets != NULL && p != NULL, err);
    OQ_TRY(oq_ort_check(api, api->GetStringTensorContent(v, p, total, offsets, d->count), err,
                        "texts"));
    for (uint64_t i = 0; i < d->count; i++) {
        const size_t end = i + 1 < d->count ? offsets[i + 1] : total;
        texts[i] = (oq_str){p + offsets[i], end - offsets[i]};
    }
    d->strings = texts;
    return ONQ_OK;
}

static onq_code view_shape(ort_engine *e, oq_arena *a, const OrtTensorTypeAndShapeInfo *info,
                           oq_datum *d, onq_error *err) {
    const oq_ort_api *api = &e->api;
    int type = 0;
    OQ_TRY(oq_ort_check(api, api->GetTensorElementType(info, &type), err, "a type"));
    OQ_TRY(oq_ort_check(api, api->GetDimensionsCount(info, &d->rank), err, "a shape"));
    int64_t *dims = OQ_NEW_ARRAY(a, int64_t, d->rank + 1);
    OQ_TRY_ALLOC(dims != NULL, err);
    OQ_TRY(oq_ort_check(api, api->GetDimensions(info, dims, d->rank), err, "a shape"));
    d->dtype = oq_ort_dtype(type);
    d->dims = dims;
    d->count = 1;
    for (size_t i = 0; i < d->rank; i++)
        if (dims[i] < 0 || !oq_mul(d->count, (uint64_t)dims[i], &d->count))
            return oq_fail(err, ONQ_E_RUNTIME, "the runtime gave a tensor of an impossible size");
    return ONQ_OK;
}

static onq_code view_tensor(ort_engine *e, oq_arena *a, OrtValue *v, oq_datum *d, onq_error *err) {
    OrtTensorTypeAndShapeInfo *info = NULL;
    OQ_TRY(oq_ort_check(&e->api, e->api.GetTensorTypeAndShape(v, &info), err, "a shape"));
    onq_code rc = view_shape(e, a, info, d, err);
    e->api.ReleaseTensorTypeAndShapeInfo(info);
    if (rc != ONQ_OK)
        return rc;
    d->kind = OQ_DATUM_TENSOR;
    if (d->dtype == OQ_STRING)
        return view_texts(e, a, v, d, err);
    if (!oq_dtype_bytes(d->dtype, d->count, &d->size_bytes))
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "the runtime gave a tensor of an unknown element type");
    void *p = NULL;
    OQ_TRY(oq_ort_check(&e->api, e->api.GetTensorMutableData(v, &p), err, "data"));
    d->data = p;
    return ONQ_OK;
}

static onq_code view_any(ort_engine *e, oq_arena *a, OrtValue *v, unsigned depth, ort_values *made,
                         oq_datum *d, onq_error *err) {
    if (depth > OQ_MAX_VALUE_DEPTH)
        return oq_fail(err, ONQ_E_LIMIT, "values are nested more than %d deep", OQ_MAX_VALUE_DEPTH);
    const oq_ort_api *api = &e->api;
    *d = (oq_datum){0};
    int has = 0, type = 0;
    OQ_TRY(oq_ort_check(api, api->HasValue(v, &has), err, "a value"));
    if (!has)
        return ONQ_OK; /* the absent value of an optional */
    OQ_TRY(oq_ort_check(api, api->GetValueType(v, &type), err, "a value"));
    if (type == OQ_ORT_IS_TENSOR)
        return view_tensor(e, a, v, d, err);
    if (type != OQ_ORT_IS_SEQUENCE && type != OQ_ORT_IS_MAP)
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "the value is neither tensor, sequence nor map (sparse or opaque)");
    d->kind = type == OQ_ORT_IS_MAP ? OQ_DATUM_MAP : OQ_DATUM_SEQUENCE;
    OQ_TRY(oq_ort_check(api, api->GetValueCount(v, &d->n_items), err, "a sequence"));
    oq_datum *items = OQ_NEW_ARRAY(a, oq_datum, d->n_items + 1);
    OQ_TRY_ALLOC(items != NULL, err);
    for (size_t i = 0; i < d->n_items; i++) {
        OrtValue *item = NULL;
        OQ_TRY(
            oq_ort_check(api, api->GetValue(v, (int)i, e->allocator, &item), err, "item %zu", i));
        OQ_TRY(keep(a, api, made, item, err));
        OQ_TRY(view_any(e, a, item, depth + 1, made, &items[i], err));
    }
    d->items = items;
    if (d->n_items > 0)
        d->dtype = items[0].dtype;
    return ONQ_OK;
}

onq_code oq_ort_value_view(ort_engine *e, oq_arena *a, OrtValue *v, ort_values *made, oq_datum *out,
                           onq_error *err) {
    return view_any(e, a, v, 0, made, out, err);
}
