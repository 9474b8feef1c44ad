/*
 * shape_generate.c — tensors made from values and attributes: Constant, ConstantOfShape, Range,
 * random values, windows; and Shape and Size, which make them from shapes.
 */
#include "shape/sop.h"

static void set_1d(oq_rctx *c, int32_t elem_type, size_t n) {
    const oq_sdim d = oq_sdim_num((int64_t)n);
    oq_r_set(c, 0, elem_type, &d, 1);
}

static void set_dims(oq_rctx *c, const int64_t *v, size_t n) {
    oq_sdim *dims = oq_r_dims(c, n);
    for (size_t i = 0; dims != NULL && i < n; i++)
        dims[i] = oq_sdim_num(v[i]);
    if (dims != NULL)
        oq_r_set_shape(c, 0, dims, n);
}

/* Values of value_int, value_ints, value_float, value_floats. */
static void set_values(oq_rctx *c, int32_t elem_type, const oq_attribute *a, bool list) {
    const bool real = elem_type == OQ_FLOAT;
    const size_t n = !list ? 1 : real ? a->floats.n : a->ints.n;
    const int64_t dim = (int64_t)n;
    if (list)
        set_1d(c, elem_type, n);
    else
        oq_r_set(c, 0, elem_type, NULL, 0);
    oq_data *d = oq_data_new(c->in, elem_type, &dim, list ? 1 : 0);
    for (size_t i = 0; d != NULL && i < n; i++) {
        const double r = list && real ? (double)a->floats.v[i] : (double)a->f.v;
        d->v[i] =
            real ? oq_cell_of_real(r) : oq_cell_int(oq_sdim_num(list ? a->ints.v[i] : a->i.v));
    }
    oq_r_set_data(c, 0, d);
}

void oq_rule_constant(oq_rctx *c) {
    const oq_attribute *a;
    if ((a = oq_r_attr(c, "value")) != NULL) {
        if (a->t != NULL) {
            oq_r_set_elem(c, 0, a->t->data_type.v);
            set_dims(c, a->t->dims.v, a->t->dims.n);
        } else if (c->opset >= 11) {
            oq_r_fail(c, "attribute 'value' holds no tensor");
        }
    } else if ((a = oq_r_attr(c, "value_int")) != NULL) {
        set_values(c, OQ_INT64, a, false);
    } else if ((a = oq_r_attr(c, "value_ints")) != NULL) {
        set_values(c, OQ_INT64, a, true);
    } else if ((a = oq_r_attr(c, "value_float")) != NULL) {
        set_values(c, OQ_FLOAT, a, false);
    } else if ((a = oq_r_attr(c, "value_floats")) != NULL) {
        set_values(c, OQ_FLOAT, a, true);
    } else if (oq_r_attr(c, "value_string") != NULL) {
        oq_r_set(c, 0, OQ_STRING, NULL, 0);
    } else if ((a = oq_r_attr(c, "value_strings")) != NULL) {
        set_1d(c, OQ_STRING, a->strings.n);
    } else if ((a = oq_r_attr(c, "sparse_value")) != NULL && a->sparse_tensor != NULL &&
               a->sparse_tensor->values != NULL) {
        oq_r_set_elem(c, 0, a->sparse_tensor->values->data_type.v);
        set_dims(c, a->sparse_tensor->dims.v, a->sparse_tensor->dims.n);
    } else if (c->opset >= 11) {
        oq_r_fail(c, "no value");
    }
}

void oq_rule_constant_of_shape(oq_rctx *c) {
    const oq_attribute *a = oq_r_attr(c, "value");
    OQ_R_FAIL_IF(a != NULL && a->t != NULL && a->t->dims.n != 1 && c->plain, c,
                 "attribute 'value' must have one dimension");
    oq_r_set_elem(c, 0, a != NULL && a->t != NULL ? a->t->data_type.v : OQ_FLOAT);
    const oq_data *d = oq_r_data(c, 0);
    const oq_vtype *s = oq_r_shape(c, 0);
    if (d == NULL) {
        if (s != NULL && s->rank == 1 && oq_sdim_is_num(s->dims[0]) && s->dims[0].n >= 0 &&
            s->dims[0].n <= OQ_MAX_RANK)
            oq_r_set_rank(c, 0, (size_t)s->dims[0].n);
        return;
    }
    oq_sdim *dims = oq_r_dims(c, d->n);
    for (size_t i = 0; dims != NULL && i < d->n; i++) {
        dims[i] = d->v[i].den == 1 ? d->v[i].d : oq_sdim_unknown();
        OQ_R_FAIL_IF(oq_sdim_is_num(dims[i]) && dims[i].n < 0, c, "a dimension of %lld",
                     (long long)dims[i].n);
    }
    if (dims != NULL)
        oq_r_set_shape(c, 0, dims, d->n);
}

/* max(ceil((limit - start) / delta), 0) */
static oq_sdim range_size(oq_rctx *c) {
    const int32_t e = oq_r_elem(c, 0);
    const bool read = e == OQ_FLOAT || e == OQ_DOUBLE || e == OQ_INT32 || e == OQ_INT64;
    if (c->plain && (!read || !oq_r_has_data(c, 0) || !oq_r_has_data(c, 1) || !oq_r_has_data(c, 2)))
        return oq_sdim_unknown();
    const oq_data *v[3] = {oq_r_data(c, 0), oq_r_data(c, 1), oq_r_data(c, 2)};
    double r[3];
    bool whole = true;
    for (size_t i = 0; i < 3; i++) {
        if (v[i] == NULL || v[i]->n != 1)
            return oq_sdim_unknown();
        whole = whole && v[i]->v[0].den == 1;
    }
    const oq_sdim zero = oq_sdim_num(0);
    if (whole) {
        const oq_sdim span = oq_sdim_sub(c->ds, v[1]->v[0].d, v[0]->v[0].d), step = v[2]->v[0].d;
        if (oq_sdim_is(step, 0)) {
            oq_r_fail(c, "delta is 0");
            return oq_sdim_unknown();
        }
        return oq_sdim_max(c->ds, oq_sdim_ceildiv(c->ds, span, step), zero);
    }
    for (size_t i = 0; i < 3; i++)
        if (!oq_cell_real(v[i]->v[0], &r[i]))
            return oq_sdim_unknown();
    const double n = ceil((r[1] - r[0]) / r[2]);
    return n < 9e15 && !isnan(n) ? oq_sdim_num(n > 0 ? (int64_t)n : 0) : oq_sdim_unknown();
}

void oq_rule_range(oq_rctx *c) {
    OQ_R_NEED(oq_r_pass_elem(c, 0, 0));
    oq_sdim n = range_size(c);
    if (oq_sdim_is_unknown(n))
        n = oq_r_fresh(c, 0, 0);
    if (!c->failed)
        oq_r_set_shape(c, 0, &n, 1);
}

void oq_rule_random(oq_rctx *c) {
    const int64_t *v;
    size_t n;
    OQ_R_NEED(oq_r_elem_attr(c, "dtype", 0, OQ_FLOAT));
    OQ_R_FAIL_IF(!oq_r_ints(c, "shape", &v, &n), c, "attribute 'shape' is missing");
    set_dims(c, v, n);
}

void oq_rule_multinomial(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    OQ_R_NEED(oq_r_elem_attr(c, "dtype", 0, OQ_INT32));
    OQ_R_FAIL_IF(x != NULL && x->rank != 2, c, "the input must have rank 2");
    const oq_sdim dims[2] = {x != NULL ? x->dims[0] : oq_sdim_unknown(),
                             oq_sdim_num(oq_r_int(c, "sample_size", 1))};
    oq_r_set_shape(c, 0, dims, 2);
}

/* HannWindow and its kin: as many values as the scalar input says. */
void oq_rule_window(oq_rctx *c) {
    oq_r_set_elem(c, 0, (int32_t)oq_r_int(c, "output_datatype", OQ_FLOAT));
    const oq_data *d = oq_r_data(c, 0);
    if (c->plain && (d == NULL || oq_r_shape(c, 0) == NULL))
        return;
    const bool known = d != NULL && d->n == 1 && d->v[0].den == 1;
    const oq_sdim n = known ? d->v[0].d : oq_r_fresh(c, 0, 0);
    if (!oq_sdim_is_num(n) || n.n > 0)
        oq_r_set_shape(c, 0, &n, 1);
}

void oq_rule_mel_weight_matrix(oq_rctx *c) {
    oq_r_set_elem(c, 0, (int32_t)oq_r_int(c, "output_datatype", OQ_FLOAT));
    if (c->plain && (!oq_r_has_data(c, 0) || !oq_r_has_data(c, 1)))
        return;
    const oq_data *bins = oq_r_data(c, 0), *length = oq_r_data(c, 1);
    oq_sdim dims[2] = {oq_sdim_unknown(), oq_sdim_unknown()};
    if (length != NULL && length->n == 1)
        dims[0] = oq_sdim_addn(c->ds, oq_sdim_floordiv(c->ds, length->v[0].d, oq_sdim_num(2)), 1);
    if (bins != NULL && bins->n == 1)
        dims[1] = bins->v[0].d;
    oq_r_set_shape(c, 0, dims, 2);
}

void oq_rule_shape(oq_rctx *c) {
    oq_r_set_elem(c, 0, OQ_INT64);
    const oq_vtype *x = oq_r_shape(c, 0);
    oq_sdim n = oq_sdim_unknown();
    if (x != NULL) {
        const int64_t rank = (int64_t)x->rank;
        int64_t start = oq_r_int(c, "start", 0), end = oq_r_int(c, "end", rank);
        start += start < 0 ? rank : 0;
        end += end < 0 ? rank : 0;
        start = start < 0 ? 0 : start > rank ? rank : start;
        end = end < 0 ? 0 : end > rank ? rank : end;
        n = oq_sdim_num(end > start ? end - start : 0);
    }
    oq_r_set_shape(c, 0, &n, 1);
}

void oq_rule_size(oq_rctx *c) {
    oq_r_set(c, 0, OQ_INT64, NULL, 0);
}
