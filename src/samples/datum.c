/*
 * datum.c — declared inputs and outputs of a model, texts about them, copies of data.
 */
#include "samples/datum.h"

#include "base/limits.h"
#include "base/map.h"
#include "base/text/real.h"
#include "onnx/tensor.h"

/* ---- what a model declares ---- */

bool oq_datum_same_dims(const oq_datum *a, const oq_datum *b) {
    return a->rank == b->rank &&
           (a->rank == 0 || memcmp(a->dims, b->dims, a->rank * sizeof *a->dims) == 0);
}

static onq_code read_shape(oq_arena *a, const oq_tensor_type *t, oq_io *io, onq_error *err) {
    io->dtype = (oq_dtype)t->elem_type.v;
    if (t->shape == NULL)
        return ONQ_OK;
    io->has_shape = true;
    io->rank = t->shape->dim.n;
    oq_io_dim *dims = OQ_NEW_ARRAY(a, oq_io_dim, io->rank + 1);
    OQ_TRY_ALLOC(dims != NULL, err);
    for (size_t i = 0; i < io->rank; i++) {
        const oq_dim *d = t->shape->dim.v[i];
        dims[i].value = d->dim_value.has && d->dim_value.v >= 0 ? d->dim_value.v : -1;
        dims[i].param = d->dim_param;
    }
    io->dims = dims;
    return ONQ_OK;
}

static onq_code read_type(oq_arena *a, const oq_type *t, oq_io *io, onq_error *err) {
    if (t != NULL && t->optional_type != NULL) {
        io->optional = true;
        t = t->optional_type->elem_type;
    }
    if (t == NULL)
        return ONQ_OK;
    if (t->tensor_type != NULL) {
        io->kind = OQ_DATUM_TENSOR;
        return read_shape(a, t->tensor_type, io, err);
    }
    if (t->map_type != NULL)
        io->kind = OQ_DATUM_MAP;
    if (t->sequence_type != NULL) {
        io->kind = OQ_DATUM_SEQUENCE;
        const oq_type *elem = t->sequence_type->elem_type;
        if (elem != NULL && elem->tensor_type != NULL)
            return read_shape(a, elem->tensor_type, io, err);
    }
    return ONQ_OK;
}

/* The values of the list but those that `given` has. */
static onq_code read_ios(oq_arena *a, oq_value_info *const *v, size_t n, const oq_map *given,
                         oq_ios *out, onq_error *err) {
    out->v = OQ_NEW_ARRAY(a, oq_io, n + 1);
    OQ_TRY_ALLOC(out->v != NULL, err);
    for (size_t i = 0; i < n; i++) {
        if (oq_map_has(given, v[i]->name))
            continue;
        oq_io *io = &out->v[out->n++];
        io->name = v[i]->name;
        OQ_TRY(read_type(a, v[i]->type, io, err));
    }
    return ONQ_OK;
}

onq_code oq_model_inputs(const oq_model *m, oq_arena *a, oq_ios *out, onq_error *err) {
    *out = (oq_ios){0};
    const oq_graph *g = m->proto->graph;
    if (g == NULL)
        return oq_fail(err, ONQ_E_INVALID, "the model has no graph");
    oq_map given;
    oq_map_init(&given, a);
    for (size_t i = 0; i < g->initializer.n; i++)
        OQ_TRY_ALLOC(oq_map_put(&given, g->initializer.v[i]->name, 0), err);
    for (size_t i = 0; i < g->sparse_initializer.n; i++)
        if (g->sparse_initializer.v[i]->values != NULL &&
            !oq_map_put(&given, g->sparse_initializer.v[i]->values->name, 0))
            return oq_fail_nomem(err);
    return read_ios(a, g->input.v, g->input.n, &given, out, err);
}

onq_code oq_model_outputs(const oq_model *m, oq_arena *a, oq_ios *out, onq_error *err) {
    *out = (oq_ios){0};
    const oq_graph *g = m->proto->graph;
    if (g == NULL)
        return oq_fail(err, ONQ_E_INVALID, "the model has no graph");
    oq_map none;
    oq_map_init(&none, a);
    return read_ios(a, g->output.v, g->output.n, &none, out, err);
}

/* ---- texts ---- */

static void add_type(oq_buf *out, oq_dtype dt) {
    oq_buf_adds(out, dt != OQ_UNDEFINED ? oq_dtype_name(dt) : "tensor");
}

void oq_io_describe(const oq_io *io, oq_buf *out) {
    if (io->optional)
        oq_buf_adds(out, "optional ");
    if (io->kind == OQ_DATUM_MAP || io->kind == OQ_DATUM_NONE) {
        oq_buf_adds(out, io->kind == OQ_DATUM_MAP ? "map" : "value of unknown type");
        return;
    }
    if (io->kind == OQ_DATUM_SEQUENCE)
        oq_buf_adds(out, "sequence of ");
    add_type(out, io->dtype);
    if (!io->has_shape)
        return;
    oq_buf_addc(out, '[');
    for (size_t i = 0; i < io->rank; i++) {
        if (i > 0)
            oq_buf_addc(out, ',');
        if (io->dims[i].value >= 0)
            oq_buf_addf(out, "%" PRId64, io->dims[i].value);
        else if (io->dims[i].param.n > 0)
            oq_buf_add_safe(out, io->dims[i].param);
        else
            oq_buf_addc(out, '?');
    }
    oq_buf_addc(out, ']');
}

void oq_datum_describe(const oq_datum *d, oq_buf *out) {
    switch (d->kind) {
    case OQ_DATUM_NONE:
        oq_buf_adds(out, "no value");
        return;
    case OQ_DATUM_MAP:
        oq_buf_adds(out, "map");
        return;
    case OQ_DATUM_SEQUENCE:
        oq_buf_addf(out, "sequence of %zu", d->n_items);
        return;
    case OQ_DATUM_TENSOR:
        add_type(out, d->dtype);
        oq_buf_addc(out, '[');
        for (size_t i = 0; i < d->rank; i++)
            oq_buf_addf(out, i > 0 ? ",%" PRId64 : "%" PRId64, d->dims[i]);
        oq_buf_addc(out, ']');
    }
}

/* ---- copies ---- */

static bool copy_bytes(oq_arena *a, const void **p, uint64_t n) {
    void *copy = oq_arena_alloc(a, n + 1);
    if (copy != NULL && n > 0)
        memcpy(copy, *p, n);
    *p = copy;
    return copy != NULL;
}

static bool copy_tensor(oq_arena *a, oq_datum *d) {
    const void *dims = d->dims;
    if (!copy_bytes(a, &dims, d->rank * sizeof *d->dims))
        return false;
    d->dims = dims;
    if (d->strings == NULL)
        return copy_bytes(a, &d->data, d->size_bytes);
    oq_str *texts = OQ_NEW_ARRAY(a, oq_str, d->count + 1);
    if (texts == NULL)
        return false;
    for (uint64_t i = 0; i < d->count; i++) {
        texts[i] = oq_str_copy(a, d->strings[i]);
        if (texts[i].p == NULL && d->strings[i].n > 0)
            return false;
    }
    d->strings = texts;
    return true;
}

static onq_code copy_any(oq_arena *a, const oq_datum *in, unsigned depth, oq_datum *out,
                         onq_error *err) {
    *out = *in;
    if (depth > OQ_MAX_VALUE_DEPTH)
        return oq_fail(err, ONQ_E_LIMIT, "values are nested more than %d deep", OQ_MAX_VALUE_DEPTH);
    if (in->kind == OQ_DATUM_TENSOR)
        return copy_tensor(a, out) ? ONQ_OK : oq_fail_nomem(err);
    oq_datum *items = OQ_NEW_ARRAY(a, oq_datum, in->n_items + 1);
    OQ_TRY_ALLOC(items != NULL, err);
    for (size_t i = 0; i < in->n_items; i++)
        OQ_TRY(copy_any(a, &in->items[i], depth + 1, &items[i], err));
    out->items = items;
    return ONQ_OK;
}

onq_code oq_datum_copy(oq_arena *a, const oq_datum *in, oq_datum *out, onq_error *err) {
    return copy_any(a, in, 0, out, err);
}

onq_code oq_datums_copy(oq_arena *a, const oq_datum *in, size_t n, oq_datum **out, onq_error *err) {
    *out = OQ_NEW_ARRAY(a, oq_datum, n + 1);
    OQ_TRY_ALLOC(*out != NULL, err);
    for (size_t i = 0; i < n; i++)
        OQ_TRY(oq_datum_copy(a, &in[i], &(*out)[i], err));
    return ONQ_OK;
}

void oq_datum_to_floats(const oq_datum *d, float *out) {
    assert(d->kind == OQ_DATUM_TENSOR && d->strings == NULL);
    if (d->dtype == OQ_FLOAT16)
        oq_f16_to_f32_n(d->data, out, d->count);
    else
        for (uint64_t i = 0; i < d->count; i++)
            out[i] = (float)oq_raw_get_real(d->dtype, d->data, i);
}

const float *oq_datum_floats(const oq_datum *d, oq_arena *a) {
    if (d->dtype == OQ_FLOAT)
        return d->data;
    float *v = OQ_NEW_ARRAY(a, float, d->count + 1);
    if (v != NULL)
        oq_datum_to_floats(d, v);
    return v;
}

/* Items nest no deeper than a type, which is checked when it is read. */
uint64_t oq_datums_bytes(const oq_datum *v, size_t n) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        bytes += v[i].size_bytes + oq_datums_bytes(v[i].items, v[i].n_items);
        for (uint64_t k = 0; v[i].strings != NULL && k < v[i].count; k++)
            bytes += v[i].strings[k].n;
    }
    return bytes;
}
