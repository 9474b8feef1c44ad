/*
 * fold.c — following the values of small tensors through the operators that compute shapes.
 *
 * The last column of sop.def names these. Each runs after the shape rule of its node and sets the
 * values of the outputs when the inputs' are known; sizes are at most OQ_MAX_FOLD elements.
 * Arithmetic is in cell.c.
 */
#include "shape/dim/cell.h"
#include "shape/sop.h"

/* outer x len x inner elements around one axis. */
typedef struct view {
    size_t outer, len, inner;
} view;

static view view_of(const oq_data *d, size_t axis) {
    assert(axis < d->rank);
    view v = {1, (size_t)d->dims[axis], 1};
    for (size_t i = 0; i < d->rank; i++) {
        v.outer *= i < axis ? (size_t)d->dims[i] : 1;
        v.inner *= i > axis ? (size_t)d->dims[i] : 1;
    }
    assert(v.outer * v.len * v.inner == d->n);
    return v;
}

/* Integers, bools and reals are followed; the output's own type is the rule's. */
static bool followed(const oq_rctx *c) {
    const oq_dtype_info *t = c->n_out > 0 ? oq_dtype_find(c->out[0].elem_type) : NULL;
    return t != NULL && t->cls != OQ_CLASS_STRING && t->cls != OQ_CLASS_COMPLEX;
}

/* The dims of output 0, when all are numbers. */
static bool out_dims(const oq_rctx *c, size_t o, int64_t *dims, size_t *rank) {
    assert(o < c->n_out);
    const oq_vtype *t = &c->out[o];
    if (!t->has_shape || t->rank > OQ_FOLD_RANK)
        return false;
    for (size_t i = 0; i < t->rank; i++) {
        if (!oq_sdim_is_num(t->dims[i]))
            return false;
        dims[i] = t->dims[i].n;
    }
    *rank = t->rank;
    return true;
}

/* A new value with the dims of output o. */
static oq_data *new_out(oq_rctx *c, size_t o) {
    int64_t dims[OQ_FOLD_RANK];
    size_t rank;
    if (!followed(c) || !out_dims(c, o, dims, &rank))
        return NULL;
    return oq_data_new(c->in, c->out[o].elem_type, dims, rank);
}

/* The same elements under the output's dims: Identity, Reshape, Squeeze, Unsqueeze, Flatten,
 * Dropout. */
void oq_fold_keep(oq_rctx *c) {
    const oq_data *x = oq_r_data(c, 0);
    int64_t dims[OQ_FOLD_RANK];
    size_t rank;
    if (x != NULL && followed(c) && out_dims(c, 0, dims, &rank))
        oq_r_set_data(c, 0, oq_data_reshape(c->in, x, dims, rank));
}

static void unary(oq_rctx *c, oq_cell_fn fn) {
    const oq_data *x = oq_r_data(c, 0);
    oq_data *out = x != NULL ? new_out(c, 0) : NULL;
    OQ_R_NEED(out != NULL && out->n == x->n);
    for (size_t i = 0; i < x->n; i++)
        out->v[i] = fn(c, x->v[i], x->v[i]);
    oq_r_set_data(c, 0, out);
}

/* Index into `x` of element `at` of `out`, by broadcasting. */
static size_t broadcast_index(const oq_data *out, const oq_data *x, size_t at) {
    assert(at < out->n && x->n > 0);
    size_t index = 0, scale = 1;
    for (size_t k = 0; k < out->rank; k++) {
        const size_t axis = out->rank - 1 - k;
        const size_t here = at % (size_t)out->dims[axis];
        at /= (size_t)out->dims[axis];
        if (k < x->rank) {
            const size_t len = (size_t)x->dims[x->rank - 1 - k];
            index += len == 1 ? 0 : here * scale;
            scale *= len;
        }
    }
    return index < x->n ? index : 0;
}

static void binary(oq_rctx *c, oq_cell_fn fn) {
    const oq_data *a = oq_r_data(c, 0), *b = oq_r_data(c, 1);
    oq_data *out = a != NULL && b != NULL && a->n > 0 && b->n > 0 ? new_out(c, 0) : NULL;
    for (size_t i = 0; out != NULL && i < out->n; i++)
        out->v[i] = fn(c, a->v[broadcast_index(out, a, i)], b->v[broadcast_index(out, b, i)]);
    oq_r_set_data(c, 0, out);
}

/* Max, Min, Sum: any number of inputs. */
static void variadic(oq_rctx *c, oq_cell_fn fn) {
    oq_data *out = new_out(c, 0);
    for (size_t k = 0; out != NULL && k < c->n_in; k++) {
        const oq_data *x = oq_r_data(c, k);
        OQ_R_NEED(x != NULL && x->n != 0);
        for (size_t i = 0; i < out->n; i++) {
            const oq_cell v = x->v[broadcast_index(out, x, i)];
            out->v[i] = k == 0 ? v : fn(c, out->v[i], v);
        }
    }
    oq_r_set_data(c, 0, c->n_in > 0 ? out : NULL);
}

#define UNARY(name)                                                                                \
    void oq_fold_##name(oq_rctx *c) {                                                              \
        unary(c, oq_cell_##name);                                                                  \
    }
#define BINARY(name)                                                                               \
    void oq_fold_##name(oq_rctx *c) {                                                              \
        binary(c, oq_cell_##name);                                                                 \
    }

UNARY(neg)
UNARY(abs)
UNARY(sign)
UNARY(not )
UNARY(floor)
UNARY(ceil)
UNARY(round)
UNARY(sqrt)
UNARY(reciprocal)
UNARY(cast)
BINARY(sub)
BINARY(mul)
BINARY(div)
BINARY(mod)
BINARY(pow)
BINARY(equal)
BINARY(less)
BINARY(greater)
BINARY(less_equal)
BINARY(greater_equal)
BINARY(and)
BINARY(or)
BINARY(xor)

/* Of several inputs: Add stands for Sum too. */
#define VARIADIC(name)                                                                             \
    void oq_fold_##name(oq_rctx *c) {                                                              \
        variadic(c, oq_cell_##name);                                                               \
    }
VARIADIC(add)
VARIADIC(min)
VARIADIC(max)

void oq_fold_where(oq_rctx *c) {
    const oq_data *x[3] = {oq_r_data(c, 0), oq_r_data(c, 1), oq_r_data(c, 2)};
    for (size_t i = 0; i < 3; i++)
        OQ_R_NEED(x[i] != NULL && x[i]->n != 0);
    oq_data *out = new_out(c, 0);
    for (size_t i = 0; out != NULL && i < out->n; i++) {
        const oq_cell cond = x[0]->v[broadcast_index(out, x[0], i)];
        const oq_cell a = x[1]->v[broadcast_index(out, x[1], i)];
        const oq_cell b = x[2]->v[broadcast_index(out, x[2], i)];
        int64_t known;
        if (oq_cell_integer(cond, &known)) {
            out->v[i] = known != 0 ? a : b;
        } else {
            const bool same = a.den == 1 && b.den == 1 && oq_sdim_eq(a.d, b.d);
            out->v[i] = same ? a : oq_cell_unknown();
        }
    }
    oq_r_set_data(c, 0, out);
}

void oq_fold_shape(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    oq_data *out = x != NULL ? new_out(c, 0) : NULL;
    OQ_R_NEED(out != NULL);
    int64_t start = oq_r_int(c, "start", 0);
    start += start < 0 ? (int64_t)x->rank : 0;
    start = start < 0 ? 0 : start;
    for (size_t i = 0; i < out->n && (size_t)start + i < x->rank; i++)
        out->v[i] = oq_cell_int(x->dims[(size_t)start + i]);
    oq_r_set_data(c, 0, out);
}

void oq_fold_size(oq_rctx *c) {
    const oq_vtype *x = oq_r_shape(c, 0);
    oq_data *out = x != NULL ? new_out(c, 0) : NULL;
    if (out != NULL) {
        out->v[0] = oq_cell_int(oq_r_product(c, x->dims, 0, x->rank));
        oq_r_set_data(c, 0, out);
    }
}

void oq_fold_gather(oq_rctx *c) {
    const oq_data *x = oq_r_data(c, 0), *ix = oq_r_data(c, 1);
    size_t axis;
    OQ_R_NEED(x != NULL && ix != NULL && oq_axis_of(oq_r_int(c, "axis", 0), x->rank, &axis));
    const view v = view_of(x, axis);
    oq_data *out = new_out(c, 0);
    OQ_R_NEED(out != NULL && out->n == v.outer * ix->n * v.inner);
    for (size_t o = 0; o < v.outer; o++) {
        for (size_t k = 0; k < ix->n; k++) {
            int64_t at;
            const bool known = oq_cell_integer(ix->v[k], &at);
            at += known && at < 0 ? (int64_t)v.len : 0;
            if (known && (at < 0 || at >= (int64_t)v.len))
                return;
            for (size_t i = 0; i < v.inner; i++) {
                out->v[(o * ix->n + k) * v.inner + i] =
                    known ? x->v[(o * v.len + (size_t)at) * v.inner + i] : oq_cell_unknown();
            }
        }
    }
    oq_r_set_data(c, 0, out);
}

void oq_fold_concat(oq_rctx *c) {
    oq_data *out = new_out(c, 0);
    size_t axis, done = 0;
    OQ_R_NEED(out != NULL && out->rank != 0);
    OQ_R_NEED(oq_axis_of(oq_r_int(c, "axis", 1), out->rank, &axis));
    const view to = view_of(out, axis);
    for (size_t k = 0; k < c->n_in; k++) {
        const oq_data *x = oq_r_data(c, k);
        const oq_vtype *t = oq_r_shape(c, k);
        if (t == NULL || t->rank != out->rank || !oq_sdim_is_num(t->dims[axis]) ||
            (x != NULL && x->rank != out->rank))
            return;
        const size_t len = (size_t)t->dims[axis].n;
        OQ_R_NEED(done + len <= to.len && (x == NULL || x->n == to.outer * len * to.inner));
        for (size_t i = 0; i < to.outer * len * to.inner; i++) {
            const size_t o = i / (len * to.inner), r = i % (len * to.inner);
            out->v[(o * to.len + done) * to.inner + r] = x != NULL ? x->v[i] : oq_cell_unknown();
        }
        done += len;
    }
    oq_r_set_data(c, 0, done == to.len ? out : NULL);
}

/* One axis of x from start by step, `len` elements. */
static const oq_data *slice_axis(oq_rctx *c, const oq_data *x, size_t axis, int64_t start,
                                 int64_t step, int64_t len) {
    int64_t dims[OQ_FOLD_RANK];
    memcpy(dims, x->dims, sizeof dims);
    dims[axis] = len;
    const view v = view_of(x, axis);
    oq_data *out = oq_data_new(c->in, x->elem_type, dims, x->rank);
    for (size_t i = 0; out != NULL && i < out->n; i++) {
        const size_t in = i % v.inner, k = i / v.inner % (size_t)len, o = i / v.inner / (size_t)len;
        const int64_t at = start + (int64_t)k * step;
        if (at < 0 || at >= (int64_t)v.len)
            return NULL;
        out->v[i] = x->v[(o * v.len + (size_t)at) * v.inner + in];
    }
    return out;
}

static int64_t clamp(int64_t v, int64_t lo, int64_t hi) {
    return v < lo ? lo : v > hi ? hi : v;
}

/* Bounds as Slice reads them; the length is that of the rule's shape. */
static const oq_data *slice_by(oq_rctx *c, const oq_data *x, int64_t at, int64_t start, int64_t end,
                               int64_t step) {
    size_t axis;
    if (!oq_axis_of(at, x->rank, &axis) || step == 0 || step == INT64_MIN)
        return NULL;
    const int64_t n = x->dims[axis];
    start = clamp(start < 0 ? (start < -n ? -1 : start + n) : start, step > 0 ? 0 : -1,
                  step > 0 ? n : n - 1);
    end = clamp(end < 0 ? (end < -n ? -1 : end + n) : end, step > 0 ? 0 : -1, step > 0 ? n : n - 1);
    start = start < 0 ? 0 : start;
    const int64_t span = step > 0 ? end - start : start - end, by = step > 0 ? step : -step;
    return slice_axis(c, x, axis, start, step, span > 0 ? (span - 1) / by + 1 : 0);
}

void oq_fold_slice_attr(oq_rctx *c) {
    const oq_data *x = oq_r_data(c, 0);
    const int64_t *starts, *ends, *axes = NULL;
    size_t n, n_ends, n_axes = 0;
    if (x == NULL || !oq_r_ints(c, "starts", &starts, &n) ||
        !oq_r_ints(c, "ends", &ends, &n_ends) || n != n_ends ||
        (oq_r_ints(c, "axes", &axes, &n_axes) && n_axes != n))
        return;
    for (size_t i = 0; x != NULL && i < n; i++)
        x = slice_by(c, x, axes != NULL ? axes[i] : (int64_t)i, starts[i], ends[i], 1);
    oq_r_set_data(c, 0, x);
}

void oq_fold_slice(oq_rctx *c) {
    const oq_data *x = oq_r_data(c, 0);
    const int64_t *starts, *ends, *axes = NULL, *steps = NULL;
    size_t n, n_ends, n_axes, n_steps;
    if (x == NULL || !oq_r_ints_in(c, 1, &starts, &n) || !oq_r_ints_in(c, 2, &ends, &n_ends) ||
        n != n_ends || (oq_r_has(c, 3) && (!oq_r_ints_in(c, 3, &axes, &n_axes) || n_axes != n)) ||
        (oq_r_has(c, 4) && (!oq_r_ints_in(c, 4, &steps, &n_steps) || n_steps != n)))
        return;
    for (size_t i = 0; x != NULL && i < n; i++) {
        x = slice_by(c, x, axes != NULL ? axes[i] : (int64_t)i, starts[i], ends[i],
                     steps != NULL ? steps[i] : 1);
    }
    oq_r_set_data(c, 0, x);
}

void oq_fold_split(oq_rctx *c) {
    const oq_data *x = oq_r_data(c, 0);
    size_t axis;
    int64_t at = 0;
    OQ_R_NEED(x != NULL && oq_axis_of(oq_r_int(c, "axis", 0), x->rank, &axis));
    for (size_t o = 0; o < c->n_out; o++) {
        const oq_vtype *t = &c->out[o];
        if (!t->has_shape || t->rank != x->rank || !oq_sdim_is_num(t->dims[axis]) ||
            t->dims[axis].n < 0 || t->dims[axis].n > x->dims[axis] - at)
            return;
        oq_r_set_data(c, o, slice_axis(c, x, axis, at, 1, t->dims[axis].n));
        at += t->dims[axis].n;
    }
}

void oq_fold_transpose(oq_rctx *c) {
    const oq_data *x = oq_r_data(c, 0);
    const int64_t *perm = NULL;
    size_t n = 0;
    oq_data *out = x != NULL ? new_out(c, 0) : NULL;
    const bool given = oq_r_ints(c, "perm", &perm, &n);
    OQ_R_NEED(out != NULL && out->n == x->n && out->rank == x->rank && (!given || n == x->rank));
    for (size_t i = 0; i < out->n; i++) {
        size_t rest = i, index = 0;
        for (size_t k = out->rank; k-- > 0;) {
            const size_t here = rest % (size_t)out->dims[k];
            const size_t from = given ? (size_t)perm[k] : out->rank - 1 - k;
            rest /= (size_t)out->dims[k];
            OQ_R_NEED(from < x->rank);
            size_t stride = 1;
            for (size_t a = from + 1; a < x->rank; a++)
                stride *= (size_t)x->dims[a];
            index += here * stride;
        }
        out->v[i] = x->v[index < x->n ? index : 0];
    }
    oq_r_set_data(c, 0, out);
}

/* The broadcast or repeated elements: Expand and Tile. */
void oq_fold_expand(oq_rctx *c) {
    const oq_data *x = oq_r_data(c, 0);
    oq_data *out = x != NULL && x->n > 0 ? new_out(c, 0) : NULL;
    for (size_t i = 0; out != NULL && i < out->n; i++)
        out->v[i] = x->v[broadcast_index(out, x, i)];
    oq_r_set_data(c, 0, out);
}

void oq_fold_tile(oq_rctx *c) {
    const oq_data *x = oq_r_data(c, 0);
    oq_data *out = x != NULL && x->n > 0 ? new_out(c, 0) : NULL;
    OQ_R_NEED(out != NULL && out->rank == x->rank);
    for (size_t i = 0; i < out->n; i++) {
        size_t rest = i, index = 0, scale = 1;
        for (size_t k = out->rank; k-- > 0;) {
            index += rest % (size_t)out->dims[k] % (size_t)x->dims[k] * scale;
            rest /= (size_t)out->dims[k];
            scale *= (size_t)x->dims[k];
        }
        out->v[i] = x->v[index];
    }
    oq_r_set_data(c, 0, out);
}

void oq_fold_constant_of_shape(oq_rctx *c) {
    const oq_attribute *a = oq_r_attr(c, "value");
    const oq_data *value = a != NULL && a->t != NULL ? oq_data_of_tensor(c->in, a->t) : NULL;
    if (a != NULL && (value == NULL || value->n != 1))
        return;
    oq_data *out = new_out(c, 0);
    for (size_t i = 0; out != NULL && i < out->n; i++)
        out->v[i] = value != NULL ? value->v[0] : oq_cell_int(oq_sdim_num(0));
    oq_r_set_data(c, 0, out);
}

void oq_fold_range(oq_rctx *c) {
    const oq_data *start = oq_r_data(c, 0), *step = oq_r_data(c, 2);
    oq_data *out =
        start != NULL && step != NULL && start->n == 1 && step->n == 1 ? new_out(c, 0) : NULL;
    for (size_t i = 0; out != NULL && i < out->n; i++)
        out->v[i] = i == 0 ? start->v[0] : oq_cell_add(c, out->v[i - 1], step->v[0]);
    oq_r_set_data(c, 0, out);
}

/* Reduces all given axes, or all; keepdims only changes the dims, which are the rule's. */
static void reduce(oq_rctx *c, oq_cell_fn fn) {
    const oq_data *x = oq_r_data(c, 0);
    const int64_t *axes = NULL;
    size_t n = 0;
    bool gone[OQ_FOLD_RANK] = {false};
    oq_data *out = x != NULL && x->n > 0 ? new_out(c, 0) : NULL;
    OQ_R_NEED(out != NULL && (!oq_r_has(c, 1) || oq_r_ints_in(c, 1, &axes, &n)));
    if (!oq_r_has(c, 1))
        oq_r_ints(c, "axes", &axes, &n);
    if (n == 0 && oq_r_int(c, "noop_with_empty_axes", 0) != 0)
        return;
    for (size_t i = 0; i < x->rank; i++)
        gone[i] = n == 0;
    for (size_t i = 0; i < n; i++) {
        size_t axis;
        OQ_R_NEED(oq_axis_of(axes[i], x->rank, &axis));
        gone[axis] = true;
    }
    bool seen[OQ_MAX_FOLD] = {false};
    for (size_t i = 0; i < x->n; i++) {
        size_t rest = i, index = 0, scale = 1;
        for (size_t k = x->rank; k-- > 0;) {
            const size_t len = (size_t)x->dims[k];
            index += gone[k] ? 0 : rest % len * scale;
            scale *= gone[k] ? 1 : len;
            rest /= len;
        }
        OQ_R_NEED(index < out->n);
        out->v[index] = seen[index] ? fn(c, out->v[index], x->v[i]) : x->v[i];
        seen[index] = true;
    }
    oq_r_set_data(c, 0, out);
}

#define REDUCE(name, cell)                                                                         \
    void oq_fold_reduce_##name(oq_rctx *c) {                                                       \
        reduce(c, cell);                                                                           \
    }
REDUCE(prod, oq_cell_mul)
REDUCE(sum, oq_cell_add)
REDUCE(min, oq_cell_min)
REDUCE(max, oq_cell_max)

void oq_fold_cumsum(oq_rctx *c) {
    const oq_data *x = oq_r_data(c, 0);
    int64_t at;
    size_t axis;
    oq_data *out = x != NULL ? new_out(c, 0) : NULL;
    if (out == NULL || !oq_r_int_in(c, 1, &at) || !oq_axis_of(at, x->rank, &axis) ||
        oq_r_int(c, "reverse", 0) != 0 || oq_r_int(c, "exclusive", 0) != 0)
        return;
    const view v = view_of(x, axis);
    for (size_t i = 0; i < x->n; i++) {
        const size_t k = i / v.inner % v.len;
        out->v[i] = k == 0 ? x->v[i] : oq_cell_add(c, out->v[i - v.inner], x->v[i]);
    }
    oq_r_set_data(c, 0, out);
}

/* Clip: bounds are attributes before opset 11, then inputs 1 and 2. */
void oq_fold_clip(oq_rctx *c) {
    const oq_data *x = oq_r_data(c, 0), *lo = oq_r_data(c, 1), *hi = oq_r_data(c, 2);
    oq_data *out = x != NULL && c->opset >= 11 ? new_out(c, 0) : NULL;
    if (out == NULL || out->n != x->n || (oq_r_has(c, 1) && (lo == NULL || lo->n != 1)) ||
        (oq_r_has(c, 2) && (hi == NULL || hi->n != 1)))
        return;
    for (size_t i = 0; i < x->n; i++) {
        oq_cell v = lo != NULL ? oq_cell_max(c, x->v[i], lo->v[0]) : x->v[i];
        out->v[i] = hi != NULL ? oq_cell_min(c, v, hi->v[0]) : v;
    }
    oq_r_set_data(c, 0, out);
}

/* NonZero and Unique of known values are not followed; ScatterND of one row is. */
void oq_fold_scatter_nd(oq_rctx *c) {
    const oq_data *x = oq_r_data(c, 0), *ix = oq_r_data(c, 1), *v = oq_r_data(c, 2);
    oq_data *out = x != NULL && ix != NULL && v != NULL && x->rank == 1 ? new_out(c, 0) : NULL;
    if (out == NULL || out->n != x->n || ix->n != v->n ||
        !oq_r_str_is(c, "reduction", "none", "none"))
        return;
    if (x->n > 0)
        memcpy(out->v, x->v, x->n * sizeof *out->v);
    for (size_t i = 0; i < ix->n; i++) {
        int64_t at;
        OQ_R_NEED(oq_cell_integer(ix->v[i], &at));
        at += at < 0 ? (int64_t)x->n : 0;
        OQ_R_NEED(at >= 0 && at < (int64_t)x->n);
        out->v[at] = v->v[i];
    }
    oq_r_set_data(c, 0, out);
}
