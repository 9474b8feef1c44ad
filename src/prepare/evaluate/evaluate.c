/*
 * evaluate.c — the table of foldable operators and the tensors they compute with. See evaluate.h.
 */
#include "prepare/evaluate/evaluate.h"

#include "base/text/real.h"

typedef struct fold_row {
    const char *type;
    oq_eval_fn fn;
} fold_row;

static const fold_row table[] = {
#define OQ_EVAL(op) {#op, oq_eval_##op},
#include "prepare/evaluate/evaluate.def"
#undef OQ_EVAL
};

static int by_type(const void *key, const void *row) {
    return oq_str_cmp(*(const oq_str *)key, oq_str_of(((const fold_row *)row)->type));
}

oq_eval_fn oq_eval_find(oq_str op_type) {
    const fold_row *r = bsearch(&op_type, table, OQ_COUNT(table), sizeof table[0], by_type);
    return r != NULL ? r->fn : NULL;
}

/* Bytes of an element; 0 for types that are not computed with. */
static size_t width_of(oq_dtype dt) {
    const oq_dtype_info *i = oq_dtype_find(dt);
    if (i == NULL || i->bits < 8 || i->bits % 8 != 0)
        return 0;
    return i->cls == OQ_CLASS_STRING || i->cls == OQ_CLASS_COMPLEX ? 0 : i->bits / 8;
}

bool oq_eval_make(oq_eval *c, oq_dtype dt, const int64_t *dims, size_t rank) {
    uint64_t n = 1, bytes = 0;
    const size_t width = width_of(dt);
    if (width == 0 || rank > OQ_EVAL_AXES)
        return false;
    for (size_t i = 0; i < rank; i++)
        if (dims[i] < 0 || !oq_mul(n, (uint64_t)dims[i], &n))
            return false;
    if (!oq_mul(n, width, &bytes) || bytes > OQ_EVAL_BYTES ||
        (bytes > OQ_EVAL_GROW && bytes > c->in_bytes))
        return false;
    c->out = (oq_cval){.dt = dt, .rank = rank, .n = (size_t)n, .width = width};
    for (size_t i = 0; i < rank; i++)
        c->out.dims[i] = dims[i];
    c->to = oq_arena_alloc(c->arena, (size_t)bytes + 1);
    c->out.p = c->to;
    c->nomem = c->to == NULL;
    return c->to != NULL;
}

bool oq_cval_of(oq_model *m, oq_tensor *t, oq_cval *v) {
    oq_span s;
    uint64_t n = 0;
    *v = (oq_cval){.dt = (oq_dtype)t->data_type.v, .rank = t->dims.n};
    v->width = width_of(v->dt);
    if (v->width == 0 || t->dims.n > OQ_EVAL_AXES || oq_tensor_count(t, &n, NULL) != ONQ_OK ||
        oq_model_data(m, t, &s, NULL) != ONQ_OK)
        return false;
    for (size_t i = 0; i < v->rank; i++)
        v->dims[i] = t->dims.v[i];
    v->n = (size_t)n;
    v->p = s.p;
    v->given = true;
    return true;
}

double oq_cval_real(const oq_cval *v, size_t i) {
    assert(i < v->n);
    return oq_raw_get_real(v->dt, v->p, i);
}

int64_t oq_cval_int(const oq_cval *v, size_t i) {
    assert(i < v->n);
    return oq_raw_get_int(v->dt, v->p, i);
}

void oq_cval_put_real(oq_eval *c, size_t i, double x) {
    assert(i < c->out.n);
    uint8_t *p = c->to + i * c->out.width;
    const float f = (float)x;
    uint16_t h;
    switch (c->out.dt) {
    case OQ_FLOAT:
        memcpy(p, &f, sizeof f);
        break;
    case OQ_DOUBLE:
        memcpy(p, &x, sizeof x);
        break;
    case OQ_FLOAT16:
        h = oq_f64_to_f16(x);
        memcpy(p, &h, sizeof h);
        break;
    default:
        h = oq_f32_to_bf16(f);
        memcpy(p, &h, sizeof h);
        break;
    }
}

/* Little-endian, as raw data is. */
void oq_cval_put_int(oq_eval *c, size_t i, int64_t x) {
    assert(i < c->out.n);
    for (size_t k = 0; k < c->out.width; k++)
        c->to[i * c->out.width + k] = (uint8_t)((uint64_t)x >> (8 * k));
}

bool oq_eval_ints(oq_eval *c, size_t i, const int64_t **v, size_t *n) {
    const oq_cval *in = &c->in[i];
    if (i >= c->n_in || !in->given || in->rank > 1 || (in->dt != OQ_INT64 && in->dt != OQ_INT32))
        return false;
    int64_t *out = OQ_NEW_ARRAY(c->arena, int64_t, in->n + 1);
    c->nomem = out == NULL;
    for (size_t k = 0; out != NULL && k < in->n; k++)
        out[k] = oq_cval_int(in, k);
    *v = out;
    *n = in->n;
    return out != NULL;
}

bool oq_eval_axes(oq_eval *c, const char *name, size_t slot, const int64_t **v, size_t *n,
                  bool *given) {
    const oq_i64s *attr = oq_attr_ints(c->node, name);
    *given = attr != NULL || (slot < c->n_in && c->in[slot].given);
    *v = attr != NULL ? attr->v : NULL;
    *n = attr != NULL ? attr->n : 0;
    return attr != NULL || !*given || oq_eval_ints(c, slot, v, n);
}
