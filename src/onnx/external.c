/*
 * external.c — external data of tensors: which bytes of which file they are. A location is resolved
 * by the caller's function or beneath the model's folder (base/system/file_dir.c), nowhere else.
 */
#include "onnx/model.h"
#include "onnx/tensor.h"

typedef struct ext_ref {
    oq_str location;
    uint64_t offset, length;
    bool has_length;
} ext_ref;

static onq_code parse_ref(const oq_tensor *t, ext_ref *r, onq_error *err) {
    *r = (ext_ref){0};
    for (size_t i = 0; i < t->external_data.n; i++) {
        const oq_entry *e = t->external_data.v[i];
        const bool offset = oq_str_is(e->key, "offset"), length = oq_str_is(e->key, "length");
        if (oq_str_is(e->key, "location"))
            r->location = e->value;
        if (!offset && !length)
            continue;
        int64_t v = 0;
        if (!oq_str_to_i64(e->value, &v) || v < 0)
            return oq_fail(err, ONQ_E_INVALID,
                           "tensor '%.*s': external data %.*s is '%.*s', not a number",
                           OQ_STR(t->name), OQ_STR(e->key), OQ_STR(e->value));
        if (offset)
            r->offset = (uint64_t)v;
        else
            r->length = (uint64_t)v;
        r->has_length = r->has_length || length;
    }
    if (r->location.n == 0)
        return oq_fail(err, ONQ_E_INVALID, "tensor '%.*s': its external data has no location",
                       OQ_STR(t->name));
    return ONQ_OK;
}

/* What the caller has of a location; f->p stays NULL when it has nothing. */
static onq_code ext_ask(oq_model *m, oq_str location, oq_file *f, onq_error *err) {
    const void *data = NULL;
    size_t size = 0;
    if (m->open.fn == NULL)
        return ONQ_OK;
    const char *name = oq_str_cstr(&m->arena, location);
    OQ_TRY_ALLOC(name != NULL, err);
    if (m->open.fn(m->open.ctx, name, &data, &size) != 0)
        return ONQ_OK;
    return oq_file_borrow(f, &m->env->alloc, name, data, size, err);
}

static onq_code ext_open(oq_model *m, oq_str location, const oq_file **out, onq_error *err) {
    const uint32_t known = oq_map_find(&m->ext_map, location);
    if (known != OQ_MAP_NONE) {
        *out = &m->ext.v[known]->file;
        return ONQ_OK;
    }
    oq_ext_file *x = OQ_NEW(&m->arena, oq_ext_file);
    OQ_TRY_ALLOC(x != NULL, err);
    x->location = location;
    OQ_TRY(ext_ask(m, location, &x->file, err));
    if (x->file.p == NULL && m->dir.handle == OQ_NO_HANDLE)
        return oq_fail(err, ONQ_E_PATH, "external data '%.*s' of a model that has no folder",
                       OQ_STR(location));
    if (x->file.p == NULL)
        OQ_TRY(oq_dir_file(&m->dir, m->root.handle != OQ_NO_HANDLE ? &m->root : NULL, location,
                           &x->file, err));
    if (!OQ_PUSH(&m->arena, &m->ext, x)) {
        oq_file_close(&x->file);
        return oq_fail_nomem(err);
    }
    OQ_TRY_ALLOC(oq_map_put(&m->ext_map, location, (uint32_t)(m->ext.n - 1)), err);
    *out = &x->file;
    return ONQ_OK;
}

onq_code oq_model_external(oq_model *m, const oq_tensor *t, const oq_file **file, uint64_t *offset,
                           uint64_t *length, onq_error *err) {
    ext_ref r;
    uint64_t want = 0, end = 0;
    OQ_TRY(oq_tensor_bytes(t, &want, err));
    OQ_TRY(parse_ref(t, &r, err));
    if (r.has_length && r.length != want)
        return oq_fail(
            err, ONQ_E_INVALID,
            "tensor '%.*s': its external data has %llu bytes, but its shape and type need %llu",
            OQ_STR(t->name), (unsigned long long)r.length, (unsigned long long)want);
    OQ_TRY_IN(ext_open(m, r.location, file, err), err, "tensor '%.*s'", OQ_STR(t->name));
    if (!oq_add(r.offset, want, &end) || end > (*file)->size)
        return oq_fail(err, ONQ_E_INVALID,
                       "tensor '%.*s': its external data at %llu of %llu bytes goes past the end "
                       "of '%.*s' (%llu bytes)",
                       OQ_STR(t->name), (unsigned long long)r.offset, (unsigned long long)want,
                       OQ_STR(r.location), (unsigned long long)(*file)->size);
    *offset = r.offset;
    *length = want;
    return ONQ_OK;
}
