/*
 * shape_sequence.c — sequences and optionals of tensors.
 */
#include "shape/sop.h"

static oq_vtype *wrap(oq_rctx *c, oq_vkind kind, const oq_vtype *inner) {
    oq_vtype *t = oq_r_new_type(c, kind);
    if (t != NULL)
        t->inner = inner;
    return t;
}

/* The element type of the sequence at input i; fails if it is not a sequence. */
static const oq_vtype *element(oq_rctx *c, size_t i) {
    const oq_vtype *t = oq_r_type(c, i);
    if (t == NULL || t->kind != OQ_V_SEQUENCE || t->inner == NULL) {
        oq_r_fail(c, "input %zu is not a sequence of a known type", i);
        return NULL;
    }
    return t->inner;
}

void oq_rule_sequence_empty(oq_rctx *c) {
    oq_vtype *t = oq_r_new_type(c, OQ_V_TENSOR);
    if (t != NULL) {
        t->elem_type = (int32_t)oq_r_int(c, "dtype", OQ_FLOAT);
        oq_r_set_type(c, 0, wrap(c, OQ_V_SEQUENCE, t));
    }
}

void oq_rule_sequence_construct(oq_rctx *c) {
    const oq_vtype *t = oq_r_type(c, 0);
    for (size_t i = 0; i < c->n_in; i++) {
        const oq_vtype *x = oq_r_type(c, i);
        OQ_R_FAIL_IF(x == NULL || x->kind != OQ_V_TENSOR || x->elem_type != t->elem_type, c,
                     "input %zu is not like the first", i);
        t = i > 0 ? oq_vtype_union(c->in, t, x) : t;
    }
    if (t != NULL)
        oq_r_set_type(c, 0, wrap(c, OQ_V_SEQUENCE, t));
}

void oq_rule_sequence_insert(oq_rctx *c) {
    const oq_vtype *e = element(c, 0), *x = oq_r_type(c, 1);
    OQ_R_FAIL_IF(e == NULL || x == NULL || x->kind != OQ_V_TENSOR || e->kind != OQ_V_TENSOR, c,
                 "a tensor and a sequence of tensors are needed");
    /* A sequence without a shape may be empty: then the tensor's shape is all there is. */
    const oq_vtype *t = !e->has_shape && !c->plain && e->elem_type == x->elem_type
                            ? x
                            : oq_vtype_union(c->in, e, x);
    OQ_R_FAIL_IF(t == NULL, c, "the element types differ");
    oq_r_set_type(c, 0, wrap(c, OQ_V_SEQUENCE, t));
}

void oq_rule_sequence_at(oq_rctx *c) {
    oq_r_set_type(c, 0, element(c, 0));
}

void oq_rule_sequence_erase(oq_rctx *c) {
    if (element(c, 0) != NULL)
        oq_r_set_type(c, 0, oq_r_type(c, 0));
}

void oq_rule_concat_from_sequence(oq_rctx *c) {
    const oq_vtype *e = element(c, 0);
    OQ_R_NEED(e != NULL);
    oq_r_set_elem(c, 0, e->elem_type);
    OQ_R_NEED(e->has_shape);
    const size_t added = oq_r_int(c, "new_axis", 0) != 0 ? 1 : 0;
    size_t axis;
    OQ_R_NEED(oq_r_axis(c, oq_r_int(c, "axis", 0), e->rank + added, &axis));
    oq_sdim *dims = oq_r_dims(c, e->rank + added);
    for (size_t i = 0; dims != NULL && i < e->rank + added; i++)
        dims[i] = i == axis ? oq_r_fresh(c, 0, axis) : e->dims[i > axis ? i - added : i];
    if (dims != NULL)
        oq_r_set_shape(c, 0, dims, e->rank + added);
}

/* The size of all parts, when they are alike. */
static oq_sdim part_size(oq_rctx *c, oq_sdim size) {
    const oq_data *d = oq_r_data(c, 1);
    if (c->n_in < 2 || !oq_r_has(c, 1))
        return oq_sdim_num(1);
    if (d == NULL || d->n == 0 || !oq_sdim_is_num(size))
        return oq_sdim_unknown();
    for (size_t i = 1; i < d->n; i++)
        if (!oq_sdim_eq(d->v[i].d, d->v[0].d))
            return oq_sdim_unknown();
    const oq_sdim first = d->v[0].d;
    if (!oq_sdim_is_num(first) || first.n <= 0 || (d->rank == 0 && size.n % first.n != 0))
        return oq_sdim_unknown();
    return first;
}

void oq_rule_split_to_sequence(oq_rctx *c) {
    const oq_vtype *x = oq_r_type(c, 0);
    OQ_R_FAIL_IF(x == NULL || x->kind != OQ_V_TENSOR, c, "input 0 is not a tensor");
    oq_vtype *t = oq_r_new_type(c, OQ_V_TENSOR);
    OQ_R_NEED(t != NULL);
    t->elem_type = x->elem_type;
    if (x->has_shape) {
        size_t axis, n = 0;
        OQ_R_NEED(oq_r_axis(c, oq_r_int(c, "axis", 0), x->rank, &axis));
        const bool keep = oq_r_has(c, 1) || oq_r_int(c, "keepdims", 1) != 0;
        oq_sdim *dims = oq_r_dims(c, x->rank);
        for (size_t i = 0; dims != NULL && i < x->rank; i++)
            if (i != axis)
                dims[n++] = x->dims[i];
            else if (keep)
                dims[n++] = part_size(c, x->dims[axis]);
        t->has_shape = dims != NULL;
        t->rank = (uint32_t)n;
        t->dims = dims;
    }
    oq_r_set_type(c, 0, wrap(c, OQ_V_SEQUENCE, t));
}

/* The body sees one element of each sequence (or the whole of a tensor); its outputs become
 * sequences. */
void oq_rule_sequence_map(oq_rctx *c) {
    oq_graph *g = oq_r_graph(c, "body");
    OQ_R_NEED(g != NULL && c->n_in != 0);
    const oq_vtype **types = OQ_NEW_ARRAY(c->in->arena, const oq_vtype *, c->n_in + 1);
    const oq_vtype **outs = OQ_NEW_ARRAY(c->in->arena, const oq_vtype *, c->n_out + 1);
    if (types == NULL || outs == NULL) {
        c->in->nomem = true;
        return;
    }
    for (size_t i = 0; i < c->n_in; i++) {
        const oq_vtype *t = oq_r_type(c, i);
        OQ_R_FAIL_IF(t == NULL || (t->kind != OQ_V_SEQUENCE && i == 0), c,
                     "input %zu is not a sequence", i);
        types[i] = t->kind == OQ_V_SEQUENCE ? t->inner : t;
    }
    oq_sub sub = {.graph = g, .types = types, .n_in = c->n_in, .outs = outs, .n_out = c->n_out};
    OQ_R_NEED(oq_infer_sub(c, &sub));
    for (size_t o = 0; o < c->n_out; o++) {
        OQ_R_FAIL_IF(outs[o] == NULL || outs[o]->kind != OQ_V_TENSOR, c,
                     "output %zu of the body is not a tensor", o);
        oq_r_set_type(c, o, wrap(c, OQ_V_SEQUENCE, outs[o]));
    }
}

void oq_rule_optional(oq_rctx *c) {
    const oq_attribute *a = oq_r_attr(c, "type");
    const oq_vtype *t = c->n_in > 0 ? oq_r_type(c, 0) : NULL;
    if (c->n_in == 0 && a != NULL)
        t = oq_vtype_of(c->in, a->tp, 0);
    /* An optional holds a tensor or a sequence; nothing deeper, so types stay shallow. */
    OQ_R_FAIL_IF(t == NULL || t->kind == OQ_V_OPTIONAL, c, "the type of the element is not known");
    oq_r_set_type(c, 0, wrap(c, OQ_V_OPTIONAL, t));
}

void oq_rule_optional_get_element(oq_rctx *c) {
    const oq_vtype *t = oq_r_type(c, 0);
    OQ_R_FAIL_IF(t == NULL || (t->kind == OQ_V_OPTIONAL && t->inner == NULL), c,
                 "the type of the input is not known");
    oq_r_set_type(c, 0, t->kind == OQ_V_OPTIONAL ? t->inner : t);
}
