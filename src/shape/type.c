/*
 * type.c — types of values: from and to the model's messages, merged, united, compared.
 *
 * Merging follows onnx's mergeShapesAndTypes and union its UnionTypeInfo, so that the plain mode
 * agrees with onnx to the letter.
 */
#include "shape/infer.h"

static oq_vtype *new_type(oq_infer *in, const oq_vtype *from) {
    oq_vtype *t = OQ_NEW(in->arena, oq_vtype);
    if (t == NULL)
        in->nomem = true;
    else if (from != NULL)
        *t = *from;
    return t;
}

static oq_sdim *new_dims(oq_infer *in, size_t n) {
    oq_sdim *d = OQ_NEW_ARRAY(in->arena, oq_sdim, n + 1);
    in->nomem = in->nomem || d == NULL;
    return d;
}

/* Names that onnx made up say nothing, nor do "?" and the like, which exporters write for every
 * open dimension alike. */
static bool is_no_name(oq_str s) {
    if (oq_str_starts(s, OQ_S("unk__")) || oq_str_is(s, "None") || oq_str_is(s, "-1"))
        return true;
    for (size_t i = 0; i < s.n; i++) {
        const char ch = s.p[i];
        if ((ch >= '0' && ch <= '9') || (ch >= 'A' && ch <= 'Z') || (ch >= 'a' && ch <= 'z') ||
            (unsigned char)ch >= 0x80)
            return false;
    }
    return true;
}

static oq_sdim dim_of(oq_infer *in, const oq_dim *d, int64_t least) {
    if (d->dim_value.has) {
        const bool usable = in->plain || d->dim_value.v >= 0;
        return usable ? oq_sdim_num(d->dim_value.v) : oq_sdim_unknown();
    }
    if (d->dim_param.p == NULL || (!in->plain && d->dim_param.n == 0))
        return oq_sdim_unknown();
    if (!in->plain && is_no_name(d->dim_param))
        return oq_sdim_unknown();
    return oq_sdim_parse(&in->dims, d->dim_param, least);
}

static const oq_vtype *type_of(oq_infer *in, const oq_type *t, int64_t least, unsigned depth) {
    if (t == NULL || depth == OQ_MAX_TYPE_DEPTH)
        return NULL;
    oq_vtype *out = new_type(in, NULL);
    if (out == NULL)
        return NULL;
    const oq_tensor_type *tensor = t->tensor_type != NULL ? t->tensor_type : t->sparse_tensor_type;
    if (tensor != NULL) {
        out->kind = t->tensor_type != NULL ? OQ_V_TENSOR : OQ_V_SPARSE;
        out->elem_type = tensor->elem_type.v;
        if (tensor->shape == NULL || tensor->shape->dim.n > OQ_MAX_RANK)
            return out;
        out->rank = (uint32_t)tensor->shape->dim.n;
        oq_sdim *dims = new_dims(in, out->rank);
        for (size_t i = 0; dims != NULL && i < out->rank; i++)
            dims[i] = dim_of(in, tensor->shape->dim.v[i], least);
        out->dims = dims;
        out->has_shape = dims != NULL;
    } else if (t->sequence_type != NULL || t->optional_type != NULL) {
        const oq_sequence_type *s = t->sequence_type != NULL ? t->sequence_type : t->optional_type;
        out->kind = t->sequence_type != NULL ? OQ_V_SEQUENCE : OQ_V_OPTIONAL;
        out->inner = type_of(in, s->elem_type, least, depth + 1);
    } else if (t->map_type != NULL) {
        out->kind = OQ_V_MAP;
        out->elem_type = t->map_type->key_type.v;
        out->inner = type_of(in, t->map_type->value_type, least, depth + 1);
    } else if (t->opaque_type != NULL) {
        out->kind = OQ_V_OPAQUE;
    } else {
        return NULL;
    }
    return out;
}

const oq_vtype *oq_vtype_of(oq_infer *in, const oq_type *t, int64_t least) {
    return type_of(in, t, least, 0);
}

const oq_vtype *oq_vtype_of_tensor(oq_infer *in, const oq_tensor *t) {
    oq_vtype *out = new_type(in, NULL);
    if (out == NULL)
        return NULL;
    out->kind = OQ_V_TENSOR;
    out->elem_type = t->data_type.v;
    if (t->dims.n > OQ_MAX_RANK)
        return out;
    oq_sdim *dims = new_dims(in, t->dims.n);
    for (size_t i = 0; dims != NULL && i < t->dims.n; i++)
        dims[i] = oq_sdim_num(t->dims.v[i]);
    out->rank = (uint32_t)t->dims.n;
    out->dims = dims;
    out->has_shape = dims != NULL;
    return out;
}

static bool is_tensor(const oq_vtype *t) {
    return t->kind == OQ_V_TENSOR || t->kind == OQ_V_SPARSE;
}

static const char *contradiction(const oq_vtype *a, const oq_vtype *b) {
    if (a->kind != b->kind)
        return "the kinds of type differ";
    if (a->elem_type != 0 && b->elem_type != 0 && a->elem_type != b->elem_type)
        return "the element types differ";
    if (!a->has_shape || !b->has_shape)
        return NULL;
    if (a->rank != b->rank)
        return "the ranks differ";
    for (uint32_t i = 0; i < a->rank; i++)
        if (oq_sdim_is_num(a->dims[i]) && oq_sdim_is_num(b->dims[i]) &&
            a->dims[i].n != b->dims[i].n)
            return "the dimensions differ";
    return NULL;
}

const oq_vtype *oq_vtype_merge(oq_infer *in, const oq_vtype *have, const oq_vtype *more,
                               const char **why) {
    if (have == NULL || more == NULL)
        return have != NULL ? have : more;
    *why = contradiction(have, more);
    if (*why != NULL)
        return NULL;
    oq_vtype *out = new_type(in, have);
    if (out == NULL)
        return have;
    out->elem_type = have->elem_type != 0 ? have->elem_type : more->elem_type;
    if (!is_tensor(have)) {
        out->inner = oq_vtype_merge(in, have->inner, more->inner, why);
        return *why != NULL ? NULL : out;
    }
    if (!have->has_shape) {
        out->has_shape = more->has_shape;
        out->rank = more->rank;
        out->dims = more->dims;
    } else if (more->has_shape) {
        oq_sdim *dims = new_dims(in, have->rank);
        for (uint32_t i = 0; dims != NULL && i < have->rank; i++) {
            const bool take = oq_sdim_is_unknown(have->dims[i]) || oq_sdim_is_num(more->dims[i]);
            dims[i] = take ? more->dims[i] : have->dims[i];
        }
        out->dims = dims != NULL ? dims : have->dims;
    }
    return out;
}

const oq_vtype *oq_vtype_union(oq_infer *in, const oq_vtype *a, const oq_vtype *b) {
    if (a == NULL || b == NULL || a->kind != b->kind || a->elem_type != b->elem_type)
        return NULL;
    oq_vtype *out = new_type(in, a);
    if (out == NULL)
        return NULL;
    if (!is_tensor(a)) {
        out->inner = oq_vtype_union(in, a->inner, b->inner);
        return out->inner != NULL || a->kind == OQ_V_OPAQUE ? out : NULL;
    }
    if (!a->has_shape || !b->has_shape || a->rank != b->rank) {
        out->has_shape = false;
        out->rank = 0;
        out->dims = NULL;
        return out;
    }
    oq_sdim *dims = new_dims(in, a->rank);
    for (uint32_t i = 0; dims != NULL && i < a->rank; i++)
        dims[i] = oq_sdim_eq(a->dims[i], b->dims[i]) ? a->dims[i] : oq_sdim_unknown();
    out->dims = dims != NULL ? dims : a->dims;
    return out;
}

const oq_vtype *oq_vtype_shapeless(oq_infer *in, const oq_vtype *t) {
    if (t == NULL)
        return NULL;
    oq_vtype *out = new_type(in, t);
    if (out == NULL)
        return NULL;
    out->has_shape = false;
    out->rank = 0;
    out->dims = NULL;
    if (t->kind == OQ_V_SEQUENCE || t->kind == OQ_V_OPTIONAL)
        out->inner = oq_vtype_shapeless(in, t->inner);
    return out;
}

bool oq_vtype_eq(const oq_vtype *a, const oq_vtype *b) {
    if (a == NULL || b == NULL)
        return a == b;
    if (a->kind != b->kind || a->elem_type != b->elem_type || a->has_shape != b->has_shape ||
        a->rank != b->rank)
        return false;
    for (uint32_t i = 0; i < a->rank; i++)
        if (a->dims[i].e != b->dims[i].e || a->dims[i].n != b->dims[i].n)
            return false;
    return is_tensor(a) || oq_vtype_eq(a->inner, b->inner);
}

const oq_vtype *oq_vtype_map(oq_infer *in, const oq_vtype *t, oq_dim_fn fn, void *ctx) {
    if (t == NULL)
        return NULL;
    if (!is_tensor(t)) {
        const oq_vtype *inner = oq_vtype_map(in, t->inner, fn, ctx);
        oq_vtype *out = inner == t->inner ? NULL : new_type(in, t);
        if (out == NULL)
            return t;
        out->inner = inner;
        return out;
    }
    oq_sdim *dims = NULL;
    for (uint32_t i = 0; i < t->rank; i++) {
        const oq_sdim d = fn(ctx, i, t->dims[i]);
        if (dims == NULL && (d.e != t->dims[i].e || d.n != t->dims[i].n)) {
            dims = new_dims(in, t->rank);
            if (dims == NULL)
                return t;
            memcpy(dims, t->dims, t->rank * sizeof *dims);
        }
        if (dims != NULL)
            dims[i] = d;
    }
    oq_vtype *out = dims == NULL ? NULL : new_type(in, t);
    if (out == NULL)
        return t;
    out->dims = dims;
    return out;
}
