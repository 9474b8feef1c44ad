/*
 * rule.c — what shape rules use to read a node's inputs and attributes and to set its outputs.
 *
 * See infer.h for each function's meaning. The broadcasting and merging rules here are where plain
 * and symbolic mode differ most: plain does what onnx's shape_inference.h does, symbolic keeps
 * expressions.
 */
#include "shape/infer.h"

#include <stdarg.h>

#define MAX_MERGES 256 /* pairs that auto_merge remembers */

/* The value of input i in this scope or outwards, or NULL (also for a missing optional input). */
static oq_val *value_at(const oq_rctx *c, size_t i) {
    return oq_r_has(c, i) ? oq_scope_lookup(c->scope, c->node->input.v[i]) : NULL;
}

bool oq_r_has(const oq_rctx *c, size_t i) {
    return i < c->n_in && c->node->input.v[i].n > 0;
}

const oq_vtype *oq_r_type(const oq_rctx *c, size_t i) {
    const oq_val *v = value_at(c, i);
    return v != NULL ? v->type : NULL;
}

const oq_vtype *oq_r_shape(const oq_rctx *c, size_t i) {
    const oq_vtype *t = oq_r_type(c, i);
    const bool ok = t != NULL && (t->kind == OQ_V_TENSOR || t->kind == OQ_V_SPARSE) && t->has_shape;
    return ok ? t : NULL;
}

int32_t oq_r_elem(const oq_rctx *c, size_t i) {
    const oq_vtype *t = oq_r_type(c, i);
    return t != NULL && (t->kind == OQ_V_TENSOR || t->kind == OQ_V_SPARSE) ? t->elem_type : 0;
}

/* onnx looks for constants in the node's own graph only. */
static oq_val *data_val(const oq_rctx *c, size_t i) {
    if (!oq_r_has(c, i))
        return NULL;
    const oq_str name = c->node->input.v[i];
    const bool near = c->plain && !c->in->opt.data_prop;
    return near ? oq_scope_find(c->scope, name) : oq_scope_lookup(c->scope, name);
}

bool oq_r_has_data(const oq_rctx *c, size_t i) {
    const oq_val *v = data_val(c, i);
    return v != NULL && (v->data != NULL || v->constant != NULL);
}

oq_sdim oq_r_dim(const oq_vtype *t, size_t i) {
    return t != NULL && i < t->rank ? t->dims[i] : oq_sdim_unknown();
}

const oq_data *oq_r_data(const oq_rctx *c, size_t i) {
    oq_val *v = data_val(c, i);
    if (v == NULL)
        return NULL;
    /* onnx infers without opening external data, and fails where it would have to read it. */
    if (c->plain && v->constant != NULL && oq_tensor_is_external(v->constant)) {
        c->in->unreadable = true;
        return NULL;
    }
    if (v->data == NULL && v->constant != NULL) {
        v->data = oq_data_of_tensor(c->in, v->constant);
        v->constant = v->data == NULL ? NULL : v->constant;
    }
    return v->data;
}

bool oq_r_ints_in(const oq_rctx *c, size_t i, const int64_t **v, size_t *n) {
    const oq_data *d = oq_r_data(c, i);
    if (d == NULL)
        return false;
    int64_t *out = OQ_NEW_ARRAY(c->in->arena, int64_t, d->n + 1);
    if (out == NULL) {
        c->in->nomem = true;
        return false;
    }
    for (size_t k = 0; k < d->n; k++)
        if (!oq_cell_integer(d->v[k], &out[k]))
            return false;
    *v = out;
    *n = d->n;
    return true;
}

bool oq_r_int_in(const oq_rctx *c, size_t i, int64_t *v) {
    const oq_data *d = oq_r_data(c, i);
    return d != NULL && d->n == 1 && oq_cell_integer(d->v[0], v);
}

/* The attribute that a reference in a function's body means. */
static const oq_attribute *bound(const oq_binding *b, oq_str name) {
    while (b != NULL) {
        const oq_attribute *found = NULL;
        for (size_t i = 0; i < b->caller->attribute.n && found == NULL; i++)
            if (oq_str_eq(b->caller->attribute.v[i]->name, name))
                found = b->caller->attribute.v[i];
        if (found == NULL) {
            for (size_t i = 0; i < b->function->attribute_proto.n; i++)
                if (oq_str_eq(b->function->attribute_proto.v[i]->name, name))
                    return b->function->attribute_proto.v[i];
            return NULL;
        }
        if (found->ref_attr_name.n == 0)
            return found;
        name = found->ref_attr_name;
        b = b->outer;
    }
    return NULL;
}

const oq_attribute *oq_r_attr(const oq_rctx *c, const char *name) {
    const oq_attribute *a = oq_attr_find(c->node, name);
    if (a != NULL && a->ref_attr_name.n > 0)
        return bound(c->scope->binding, a->ref_attr_name);
    return a;
}

int64_t oq_r_int(const oq_rctx *c, const char *name, int64_t fallback) {
    const oq_attribute *a = oq_r_attr(c, name);
    return a != NULL ? a->i.v : fallback;
}

double oq_r_float(const oq_rctx *c, const char *name, double fallback) {
    const oq_attribute *a = oq_r_attr(c, name);
    return a != NULL ? (double)a->f.v : fallback;
}

oq_str oq_r_str(const oq_rctx *c, const char *name, const char *fallback) {
    const oq_attribute *a = oq_r_attr(c, name);
    return a != NULL ? a->s : oq_str_of(fallback);
}

bool oq_r_str_is(const oq_rctx *c, const char *name, const char *fallback, const char *value) {
    return oq_str_is(oq_r_str(c, name, fallback), value);
}

bool oq_r_ints(const oq_rctx *c, const char *name, const int64_t **v, size_t *n) {
    const oq_attribute *a = oq_r_attr(c, name);
    if (a == NULL)
        return false;
    *v = a->ints.v;
    *n = a->ints.n;
    return true;
}

bool oq_r_wants(const oq_rctx *c, size_t o) {
    return o < c->n_out && c->node->output.v[o].n > 0;
}

static oq_vtype *tensor_out(oq_rctx *c, size_t o) {
    if (o >= c->n_out)
        return NULL;
    if (c->out[o].kind == OQ_V_NONE)
        c->out[o].kind = OQ_V_TENSOR;
    return &c->out[o];
}

void oq_r_set_elem(oq_rctx *c, size_t o, int32_t elem_type) {
    oq_vtype *t = tensor_out(c, o);
    if (t != NULL)
        t->elem_type = elem_type;
}

void oq_r_set_shape(oq_rctx *c, size_t o, const oq_sdim *dims, size_t rank) {
    oq_vtype *t = tensor_out(c, o);
    OQ_R_NEED(t != NULL && rank <= OQ_MAX_RANK);
    oq_sdim *copy = oq_r_dims(c, rank);
    OQ_R_NEED(copy != NULL);
    if (rank > 0)
        memcpy(copy, dims, rank * sizeof *copy);
    t->has_shape = true;
    t->rank = (uint32_t)rank;
    t->dims = copy;
}

void oq_r_set(oq_rctx *c, size_t o, int32_t elem_type, const oq_sdim *dims, size_t rank) {
    oq_r_set_elem(c, o, elem_type);
    oq_r_set_shape(c, o, dims, rank);
}

void oq_r_set_last(oq_rctx *c, size_t o, const oq_vtype *x, size_t keep, oq_sdim last) {
    assert(keep <= x->rank);
    oq_sdim *dims = oq_r_dims(c, keep + 1);
    OQ_R_NEED(dims != NULL);
    if (keep > 0)
        memcpy(dims, x->dims, keep * sizeof *dims);
    dims[keep] = last;
    oq_r_set_shape(c, o, dims, keep + 1);
}

void oq_r_set_type(oq_rctx *c, size_t o, const oq_vtype *t) {
    if (o < c->n_out && t != NULL)
        c->out[o] = *t;
}

void oq_r_set_rank(oq_rctx *c, size_t o, size_t rank) {
    oq_vtype *t = tensor_out(c, o);
    OQ_R_NEED(t != NULL && rank <= OQ_MAX_RANK);
    oq_sdim *dims = oq_r_dims(c, rank);
    for (size_t i = 0; dims != NULL && i < rank; i++)
        dims[i] = oq_sdim_unknown();
    t->has_shape = dims != NULL;
    t->rank = dims != NULL ? (uint32_t)rank : 0;
    t->dims = dims;
}

void oq_r_set_data(oq_rctx *c, size_t o, const oq_data *d) {
    if (o < c->n_out)
        c->data[o] = d;
}

bool oq_r_pass_sums(oq_rctx *c) {
    for (size_t i = 0; i < 2; i++) {
        const oq_vtype *t = oq_r_type(c, i);
        if (t == NULL || t->kind != OQ_V_TENSOR)
            return oq_r_fail(c, "the inputs must be tensors");
    }
    oq_r_set_elem(c, 0, OQ_INT32);
    return true;
}

bool oq_r_pass_qlinear(oq_rctx *c) {
    for (size_t i = 0; c->plain && i < 6; i += 3)
        if (oq_r_elem(c, i + 2) != oq_r_elem(c, i) || oq_r_type(c, i + 2) == NULL)
            return oq_r_fail(c, "the zero points have another type than what they belong to");
    return oq_r_pass_elem(c, 7, 0);
}

bool oq_r_pass_elem(oq_rctx *c, size_t i, size_t o) {
    const oq_vtype *t = oq_r_type(c, i);
    if (t == NULL || (t->kind != OQ_V_TENSOR && t->kind != OQ_V_SPARSE) || t->elem_type == 0)
        return oq_r_fail(c, "the element type of input %zu is not known", i);
    if (o < c->n_out && c->out[o].kind == OQ_V_NONE)
        c->out[o].kind = t->kind;
    oq_r_set_elem(c, o, t->elem_type);
    return true;
}

void oq_r_pass_shape(oq_rctx *c, size_t i, size_t o) {
    const oq_vtype *t = oq_r_shape(c, i);
    if (t != NULL) {
        oq_vtype *out = tensor_out(c, o);
        if (out != NULL) {
            out->has_shape = true;
            out->rank = t->rank;
            out->dims = t->dims;
        }
    }
}

bool oq_r_append_dim(oq_rctx *c, size_t i, size_t o) {
    const oq_vtype *x = oq_r_shape(c, i);
    oq_sdim *dims = x != NULL ? oq_r_dims(c, (size_t)x->rank + 1) : NULL;
    if (dims == NULL)
        return false;
    if (x->rank > 0)
        memcpy(dims, x->dims, x->rank * sizeof *dims);
    dims[x->rank] = oq_r_fresh(c, o, x->rank);
    oq_r_set_shape(c, o, dims, (size_t)x->rank + 1);
    return true;
}

void oq_r_pass(oq_rctx *c, size_t i, size_t o) {
    const oq_vtype *t = oq_r_type(c, i);
    OQ_R_FAIL_IF(t == NULL || t->kind == OQ_V_NONE ||
                     ((t->kind == OQ_V_TENSOR || t->kind == OQ_V_SPARSE) && t->elem_type == 0),
                 c, "the type of input %zu is not known", i);
    oq_r_set_type(c, o, t);
}

bool oq_r_elem_attr(oq_rctx *c, const char *name, size_t o, int32_t fallback) {
    const oq_attribute *a = oq_r_attr(c, name);
    if (a == NULL && fallback == 0)
        return oq_r_fail(c, "attribute '%s' is missing", name);
    const int64_t v = a != NULL ? a->i.v : fallback;
    if (oq_dtype_find(v) == NULL && !(c->plain && v == 0))
        return oq_r_fail(c, "attribute '%s' is %lld, which is not an element type", name,
                         (long long)v);
    oq_r_set_elem(c, o, (int32_t)v);
    return true;
}

/* The first reason stays. */
OQ_PRINTF(2, 0) static void set_reason(oq_rctx *c, const char *fmt, va_list args) {
    if (!c->failed)
        vsnprintf(c->why, sizeof c->why, fmt, args);
    c->failed = true;
    assert(c->why[0] != '\0');
}

bool oq_r_fail(oq_rctx *c, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    set_reason(c, fmt, args);
    va_end(args);
    return false;
}

oq_sdim *oq_r_dims(oq_rctx *c, size_t n) {
    if (n > OQ_MAX_RANK) {
        oq_r_fail(c, "rank %zu is above %d", n, OQ_MAX_RANK);
        return NULL;
    }
    oq_sdim *d = OQ_NEW_ARRAY(c->in->arena, oq_sdim, n + 1);
    if (d == NULL) {
        c->in->nomem = true;
        oq_r_fail(c, "out of memory");
    }
    return d;
}

oq_sdim *oq_r_dims_of(oq_rctx *c, const oq_vtype *x) {
    assert(x->has_shape && x->rank <= OQ_MAX_RANK);
    oq_sdim *dims = oq_r_dims(c, x->rank);
    if (dims != NULL && x->rank > 0)
        memcpy(dims, x->dims, x->rank * sizeof *dims);
    return dims;
}

oq_vtype *oq_r_new_type(oq_rctx *c, oq_vkind kind) {
    oq_vtype *t = OQ_NEW(c->in->arena, oq_vtype);
    if (t == NULL) {
        c->in->nomem = true;
        oq_r_fail(c, "out of memory");
    } else {
        t->kind = kind;
    }
    return t;
}

void oq_r_unfold(oq_rctx *c, const oq_vtype *x, size_t axis, int64_t size, int64_t step) {
    assert(axis < x->rank && step != 0);
    const size_t rank = (size_t)x->rank + 1;
    oq_sdim *dims = oq_r_dims(c, rank);
    OQ_R_NEED(dims != NULL);
    memcpy(dims, x->dims, x->rank * sizeof *dims);
    const oq_sdim span = oq_sdim_addn(c->ds, x->dims[axis], -size);
    dims[axis] = oq_sdim_addn(c->ds, oq_sdim_floordiv(c->ds, span, oq_sdim_num(step)), 1);
    dims[rank - 1] = oq_sdim_num(size);
    oq_r_set_shape(c, 0, dims, rank);
}

bool oq_r_axis(oq_rctx *c, int64_t axis, size_t rank, size_t *out) {
    return oq_axis_of(axis, rank, out) ||
           oq_r_fail(c, "axis %lld is not in a tensor of rank %zu", (long long)axis, rank);
}

oq_sdim oq_r_fresh(oq_rctx *c, size_t o, size_t axis) {
    if (c->plain)
        return oq_sdim_unknown();
    const oq_str name =
        oq_str_format(c->in->arena, "%.*s%.*s_%zu_o%zu__d%zu", OQ_STR(c->node->op_type),
                      OQ_STR(c->scope->prefix), c->index, o, axis);
    if (name.p == NULL) {
        c->in->nomem = true;
        return oq_sdim_unknown();
    }
    return oq_sdim_name(c->ds, name, 0);
}

/* Which of two dimensions that are one to keep: a number, a name of the inputs, a name, an
 * expression. */
static unsigned preference(oq_sdim d) {
    oq_str name;
    if (oq_sdim_is_num(d))
        return 3;
    return !oq_sdim_is_name(d, &name) ? 0 : oq_sdim_least(d) > 0 ? 2 : 1;
}

/* Remembers that two dimensions are one; the next pass uses it everywhere. */
static oq_sdim merge_dims(oq_rctx *c, oq_sdim a, oq_sdim b) {
    oq_infer *in = c->in;
    const oq_merge m = preference(b) > preference(a) ? (oq_merge){a, b} : (oq_merge){b, a};
    bool known = !in->opt.auto_merge || in->merges.n >= MAX_MERGES;
    for (size_t i = 0; i < in->merges.n && !known; i++)
        known = oq_sdim_eq(in->merges.v[i].from, m.from);
    if (!known) {
        in->nomem = in->nomem || !OQ_PUSH(in->arena, &in->merges, m);
        in->merged = true;
    }
    return m.to;
}

oq_sdim oq_r_same(oq_rctx *c, oq_sdim a, oq_sdim b) {
    if (oq_sdim_is_unknown(a) || oq_sdim_eq(a, b))
        return b;
    if (oq_sdim_is_unknown(b))
        return a;
    if (oq_sdim_is_num(a) && oq_sdim_is_num(b)) {
        oq_r_fail(c, "dimensions %lld and %lld must be equal", (long long)a.n, (long long)b.n);
        return a;
    }
    if (c->plain)
        return oq_sdim_is_num(b) ? b : a;
    const oq_sdim both = merge_dims(c, a, b);
    return oq_sdim_is_num(both) || c->in->opt.auto_merge ? both : a;
}

oq_sdim oq_r_broadcast_dim(oq_rctx *c, oq_sdim a, oq_sdim b) {
    if (oq_sdim_is(a, 1) || oq_sdim_eq(a, b))
        return b;
    if (oq_sdim_is(b, 1))
        return a;
    if (oq_sdim_is_num(a) && oq_sdim_is_num(b)) {
        oq_r_fail(c, "dimensions %lld and %lld do not broadcast", (long long)a.n, (long long)b.n);
        return oq_sdim_unknown();
    }
    if (oq_sdim_is_num(a) || oq_sdim_is_num(b)) {
        const oq_sdim num = oq_sdim_is_num(a) ? a : b, other = oq_sdim_is_num(a) ? b : a;
        if (c->in->opt.auto_merge && oq_sdim_is_symbolic(other))
            merge_dims(c, num, other);
        return num;
    }
    if (oq_sdim_is_unknown(a) || oq_sdim_is_unknown(b) || c->plain)
        return oq_sdim_unknown();
    if (c->in->opt.auto_merge)
        return merge_dims(c, a, b);
    /* One of them is 1, or they are equal: the larger, as long as none can be 0. */
    if (oq_sdim_least(a) >= 1 && oq_sdim_least(b) >= 1)
        return oq_sdim_max(c->ds, a, b);
    return oq_sdim_unknown();
}

/* One dimension of the result as onnx's multidirectionalBroadcastShapeInference finds it. */
static oq_sdim broadcast_plain(oq_rctx *c, const oq_vtype *const *shapes, size_t n, size_t rank,
                               size_t axis) {
    int64_t value = 1;
    oq_sdim symbol = oq_sdim_unknown();
    size_t n_symbols = 0;
    for (size_t i = 0; i < n; i++) {
        if (axis + shapes[i]->rank < rank)
            continue;
        const oq_sdim d = shapes[i]->dims[axis + shapes[i]->rank - rank];
        if (!oq_sdim_is_num(d)) {
            if (n_symbols == 0) {
                symbol = d;
                n_symbols = 1;
            } else if (d.e != symbol.e) {
                n_symbols++;
            }
        } else if (d.n != 1) {
            if (value != d.n && value != 1) {
                oq_r_fail(c, "dimensions %lld and %lld do not broadcast", (long long)value,
                          (long long)d.n);
            }
            value = d.n;
        }
    }
    if (value != 1 || n_symbols == 0)
        return oq_sdim_num(value);
    return n_symbols == 1 ? symbol : oq_sdim_unknown();
}

bool oq_r_broadcast(oq_rctx *c, const oq_vtype *const *shapes, size_t n, const oq_sdim **dims,
                    size_t *rank) {
    *rank = 0;
    for (size_t i = 0; i < n; i++)
        *rank = shapes[i]->rank > *rank ? shapes[i]->rank : *rank;
    oq_sdim *out = oq_r_dims(c, *rank);
    for (size_t a = 0; out != NULL && a < *rank; a++) {
        if (c->plain) {
            out[a] = broadcast_plain(c, shapes, n, *rank, a);
            continue;
        }
        out[a] = oq_sdim_num(1);
        for (size_t i = 0; i < n; i++) {
            if (a + shapes[i]->rank >= *rank) {
                out[a] =
                    oq_r_broadcast_dim(c, out[a], shapes[i]->dims[a + shapes[i]->rank - *rank]);
            }
        }
    }
    *dims = out;
    return out != NULL && !c->failed;
}

oq_sdim oq_r_product(oq_rctx *c, const oq_sdim *dims, size_t from, size_t to) {
    assert(from <= to);
    oq_sdim p = oq_sdim_num(1);
    for (size_t i = from; i < to; i++)
        p = oq_sdim_mul(c->ds, p, dims[i]);
    return p;
}
