/*
 * unpack.c — see unpack.h.
 */
#include "quantize/refine/unpack.h"

#include "onnx/attr.h"
#include "onnx/dtype.h"
#include "onnx/operators.h"
#include "onnx/tensor.h"

typedef struct packed {
    oq_producer producer;
    oq_model *model;
    oq_tensor *ints;
    const float *scale;
    const int64_t *zero; /* as many as scales, or NULL */
    uint64_t n_scales, inner, count;
} packed;

/* The integers, in memory that is given back when they are not the file's. */
static onq_code read_ints(const packed *p, oq_span *out, uint8_t **own, onq_error *err) {
    const oq_producer *producer = p->ints->raw_data.producer;
    *own = NULL;
    if (producer == NULL)
        return oq_model_data(p->model, p->ints, out, err);
    *own = oq_alloc(&p->model->env->alloc, producer->size);
    OQ_TRY_ALLOC(*own != NULL, err);
    *out = (oq_span){*own, producer->size};
    return producer->make(producer, *own, err);
}

static onq_code make(const oq_producer *self, uint8_t *out, onq_error *err) {
    const packed *p = self->ctx;
    const oq_dtype type = (oq_dtype)p->ints->data_type.v;
    oq_span raw = {0};
    uint8_t *own = NULL;
    const onq_code rc = read_ints(p, &raw, &own, err);
    for (uint64_t i = 0; rc == ONQ_OK && i < p->count; i++) {
        const uint64_t c = p->n_scales == 1 ? 0 : i / p->inner % p->n_scales;
        const int64_t zero = p->zero != NULL ? p->zero[c] : 0;
        const float v = (float)(oq_raw_get_int(type, raw.p, i) - zero) * p->scale[c];
        memcpy(out + i * sizeof v, &v, sizeof v);
    }
    oq_free(&p->model->env->alloc, own, p->ints->raw_data.producer != NULL ? raw.n : 0);
    return rc;
}

static onq_code read_params(packed *p, oq_arena *a, oq_tensor *scale, oq_tensor *zero, bool *known,
                            onq_error *err) {
    float *s = NULL;
    int64_t *z = NULL;
    size_t n = 0, n_zero = 0;
    *known = false;
    if (scale == NULL || scale->data_type.v != OQ_FLOAT || scale->dims.n > 1)
        return ONQ_OK;
    OQ_TRY(oq_tensor_floats(p->model, scale, a, &s, &n, err));
    if (zero != NULL)
        OQ_TRY(oq_tensor_i64s(p->model, zero, a, &z, &n_zero, err));
    *known = n > 0 && (zero == NULL || n_zero == n);
    p->scale = s;
    p->zero = z;
    p->n_scales = n;
    return ONQ_OK;
}

/* Where the channels are; false when the scales are not one for each. */
static bool find_axis(packed *p, const oq_node *dq) {
    const oq_tensor *t = p->ints;
    if (p->n_scales == 1)
        return true;
    const int64_t rank = (int64_t)t->dims.n;
    int64_t axis = oq_attr_int(dq, "axis", 1);
    axis += axis < 0 ? rank : 0;
    if (axis < 0 || axis >= rank || (uint64_t)t->dims.v[axis] != p->n_scales)
        return false;
    p->inner = 1;
    for (int64_t i = axis + 1; i < rank; i++)
        p->inner *= (uint64_t)t->dims.v[i];
    return p->inner > 0;
}

onq_code oq_unpack(oq_model *m, oq_arena *a, const oq_index *ix, const oq_node *dq, oq_tensor **out,
                   onq_error *err) {
    *out = NULL;
    if (!oq_node_is_dequantize(dq) || dq->input.n < 2 || dq->output.n != 1 ||
        oq_attr_int(dq, "block_size", 0) != 0)
        return ONQ_OK;
    oq_tensor *ints = oq_index_init(ix, dq->input.v[0]);
    const bool has_zero = dq->input.n > 2 && dq->input.v[2].n > 0;
    oq_tensor *zero = has_zero ? oq_index_init(ix, dq->input.v[2]) : NULL;
    const oq_dtype_info *type = ints != NULL ? oq_dtype_find(ints->data_type.v) : NULL;
    if (type == NULL || (type->cls != OQ_CLASS_INT && type->cls != OQ_CLASS_UINT) ||
        has_zero != (zero != NULL))
        return ONQ_OK;
    packed *p = OQ_NEW(a, packed);
    bool known = false;
    OQ_TRY_ALLOC(p != NULL, err);
    *p = (packed){.model = m, .ints = ints, .inner = 1};
    OQ_TRY(oq_tensor_count(ints, &p->count, err));
    OQ_TRY(read_params(p, a, oq_index_init(ix, dq->input.v[1]), zero, &known, err));
    if (!known || !find_axis(p, dq) || p->count > UINT64_MAX / sizeof(float))
        return ONQ_OK;
    p->producer = (oq_producer){.size = p->count * sizeof(float), .make = make, .ctx = p};
    *out = oq_tensor_new(a, dq->output.v[0], OQ_FLOAT, ints->dims.v, ints->dims.n);
    OQ_TRY_ALLOC(*out != NULL, err);
    oq_tensor_set_producer(*out, &p->producer);
    return ONQ_OK;
}
