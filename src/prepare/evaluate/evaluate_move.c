/*
 * evaluate_move.c — folding of operators that only move elements: Gather, Concat, Slice, Reshape,
 * Transpose ...
 */
#include "prepare/evaluate/evaluate.h"

/* The same elements with other dims. */
static bool reshaped(oq_eval *c, const int64_t *dims, size_t rank) {
    const oq_cval *a = &c->in[0];
    if (!oq_eval_make(c, a->dt, dims, rank) || c->out.n != a->n)
        return false;
    c->out.p = a->p;
    return true;
}

static size_t block(const oq_cval *v, size_t from, size_t to) {
    size_t n = 1;
    for (size_t i = from; i < to; i++)
        n *= (size_t)v->dims[i];
    return n;
}

bool oq_eval_Shape(oq_eval *c) {
    const oq_cval *a = &c->in[0];
    const int64_t rank = (int64_t)a->rank;
    int64_t begin = oq_attr_int(c->node, "start", 0), end = oq_attr_int(c->node, "end", rank);
    begin = begin < 0 ? begin + rank : begin;
    end = end < 0 ? end + rank : end;
    begin = begin < 0 ? 0 : begin > rank ? rank : begin;
    end = end < begin ? begin : end > rank ? rank : end;
    const int64_t dims[1] = {end - begin};
    if (!oq_eval_make(c, OQ_INT64, dims, 1))
        return false;
    for (size_t i = 0; i < c->out.n; i++)
        oq_cval_put_int(c, i, a->dims[(size_t)begin + i]);
    return true;
}

bool oq_eval_Size(oq_eval *c) {
    if (!oq_eval_make(c, OQ_INT64, NULL, 0))
        return false;
    oq_cval_put_int(c, 0, (int64_t)c->in[0].n);
    return true;
}

bool oq_eval_ConstantOfShape(oq_eval *c) {
    const oq_attribute *a = oq_attr_find(c->node, "value");
    const int64_t *dims;
    size_t rank;
    oq_span s = {0};
    const oq_dtype dt = a != NULL && a->t != NULL ? (oq_dtype)a->t->data_type.v : OQ_FLOAT;
    if (c->n_in != 1 || !oq_eval_ints(c, 0, &dims, &rank) || !oq_eval_make(c, dt, dims, rank))
        return false;
    if (a != NULL && a->t != NULL) {
        if (a->t->raw_data.present && a->t->raw_data.p != NULL)
            s = (oq_span){a->t->raw_data.p, a->t->raw_data.n};
        else if (a->t->raw_data.present ||
                 oq_tensor_typed_to_raw(c->arena, a->t, &s, NULL) != ONQ_OK)
            return false;
        if (s.n != c->out.width)
            return false;
        for (size_t i = 0; i < c->out.n; i++)
            memcpy(c->to + i * c->out.width, s.p, c->out.width);
    }
    return true;
}

bool oq_eval_Reshape(oq_eval *c) {
    const oq_cval *a = &c->in[0];
    const int64_t *shape;
    size_t n, free_at = SIZE_MAX;
    int64_t dims[OQ_EVAL_AXES];
    uint64_t known = 1;
    const bool zero = oq_attr_int(c->node, "allowzero", 0) != 0;
    if (c->n_in != 2 || !oq_eval_ints(c, 1, &shape, &n) || n > OQ_EVAL_AXES)
        return false;
    for (size_t i = 0; i < n; i++) {
        dims[i] = shape[i];
        if (shape[i] == 0 && !zero) {
            if (i >= a->rank)
                return false;
            dims[i] = a->dims[i];
        }
        if (shape[i] == -1 && free_at == SIZE_MAX)
            free_at = i;
        else if (dims[i] < 0 || !oq_mul(known, (uint64_t)dims[i], &known))
            return false;
    }
    if (free_at != SIZE_MAX) {
        if (known == 0 || a->n % known != 0)
            return false;
        dims[free_at] = (int64_t)(a->n / known);
    }
    return reshaped(c, dims, n);
}

bool oq_eval_Flatten(oq_eval *c) {
    const oq_cval *a = &c->in[0];
    int64_t axis = oq_attr_int(c->node, "axis", 1);
    axis = axis < 0 ? axis + (int64_t)a->rank : axis;
    if (c->n_in != 1 || axis < 0 || axis > (int64_t)a->rank)
        return false;
    const int64_t dims[2] = {(int64_t)block(a, 0, (size_t)axis),
                             (int64_t)block(a, (size_t)axis, a->rank)};
    return reshaped(c, dims, 2);
}

bool oq_eval_Squeeze(oq_eval *c) {
    const oq_cval *a = &c->in[0];
    const int64_t *axes;
    size_t n, rank = 0;
    bool given, drop[OQ_EVAL_AXES] = {false};
    int64_t dims[OQ_EVAL_AXES];
    if (c->n_in < 1 || !oq_eval_axes(c, "axes", 1, &axes, &n, &given))
        return false;
    for (size_t i = 0; i < n; i++) {
        size_t at;
        if (!oq_axis_of(axes[i], a->rank, &at) || a->dims[at] != 1)
            return false;
        drop[at] = true;
    }
    for (size_t i = 0; i < a->rank; i++)
        if (given ? !drop[i] : a->dims[i] != 1)
            dims[rank++] = a->dims[i];
    return reshaped(c, dims, rank);
}

bool oq_eval_Unsqueeze(oq_eval *c) {
    const oq_cval *a = &c->in[0];
    const int64_t *axes;
    size_t n, from = 0;
    bool given, on[OQ_EVAL_AXES] = {false};
    int64_t dims[OQ_EVAL_AXES];
    if (c->n_in < 1 || !oq_eval_axes(c, "axes", 1, &axes, &n, &given) || !given ||
        a->rank + n > OQ_EVAL_AXES)
        return false;
    for (size_t i = 0; i < n; i++) {
        size_t at;
        if (!oq_axis_of(axes[i], a->rank + n, &at) || on[at])
            return false;
        on[at] = true;
    }
    for (size_t i = 0; i < a->rank + n; i++)
        dims[i] = on[i] ? 1 : a->dims[from++];
    return reshaped(c, dims, a->rank + n);
}

bool oq_eval_Transpose(oq_eval *c) {
    const oq_cval *a = &c->in[0];
    const size_t rank = a->rank;
    const oq_i64s *perm = oq_attr_ints(c->node, "perm");
    size_t from[OQ_EVAL_AXES], stride[OQ_EVAL_AXES], at[OQ_EVAL_AXES] = {0};
    bool used[OQ_EVAL_AXES] = {false};
    int64_t dims[OQ_EVAL_AXES];
    if (c->n_in != 1 || (perm != NULL && perm->n != rank))
        return false;
    for (size_t i = 0; i < rank; i++) {
        if (!oq_axis_of(perm != NULL ? perm->v[i] : (int64_t)(rank - 1 - i), rank, &from[i]) ||
            used[from[i]])
            return false;
        used[from[i]] = true;
        dims[i] = a->dims[from[i]];
        stride[i] = block(a, from[i] + 1, rank);
    }
    if (!oq_eval_make(c, a->dt, dims, rank))
        return false;
    size_t source = 0;
    for (size_t i = 0; i < c->out.n; i++) {
        memcpy(c->to + i * a->width, a->p + source * a->width, a->width);
        for (size_t k = rank; k-- > 0;) {
            source += stride[k];
            if (++at[k] < (size_t)dims[k])
                break;
            source -= at[k] * stride[k];
            at[k] = 0;
        }
    }
    return true;
}

bool oq_eval_Concat(oq_eval *c) {
    const oq_cval *a = &c->in[0];
    size_t axis;
    int64_t dims[OQ_EVAL_AXES];
    if (c->n_in < 1 || !oq_axis_of(oq_attr_int(c->node, "axis", 1), a->rank, &axis))
        return false;
    memcpy(dims, a->dims, sizeof dims);
    for (size_t i = 1; i < c->n_in; i++) {
        const oq_cval *v = &c->in[i];
        if (!v->given || v->dt != a->dt || v->rank != a->rank)
            return false;
        for (size_t k = 0; k < a->rank; k++)
            if (k != axis && v->dims[k] != a->dims[k])
                return false;
        dims[axis] += v->dims[axis];
    }
    if (!oq_eval_make(c, a->dt, dims, a->rank))
        return false;
    uint8_t *to = c->to;
    for (size_t o = 0; o < block(a, 0, axis); o++) {
        for (size_t i = 0; i < c->n_in; i++) {
            const size_t n = block(&c->in[i], axis, a->rank) * a->width;
            if (n != 0)
                memcpy(to, c->in[i].p + o * n, n);
            to += n;
        }
    }
    return true;
}

bool oq_eval_Gather(oq_eval *c) {
    const oq_cval *a = &c->in[0], *ix = &c->in[1];
    size_t axis;
    int64_t dims[OQ_EVAL_AXES];
    if (c->n_in != 2 || (ix->dt != OQ_INT64 && ix->dt != OQ_INT32) ||
        !oq_axis_of(oq_attr_int(c->node, "axis", 0), a->rank, &axis) ||
        a->rank + ix->rank - 1 > OQ_EVAL_AXES)
        return false;
    size_t rank = 0;
    for (size_t i = 0; i < axis; i++)
        dims[rank++] = a->dims[i];
    for (size_t i = 0; i < ix->rank; i++)
        dims[rank++] = ix->dims[i];
    for (size_t i = axis + 1; i < a->rank; i++)
        dims[rank++] = a->dims[i];
    if (!oq_eval_make(c, a->dt, dims, rank))
        return false;
    const size_t inner = block(a, axis + 1, a->rank) * a->width;
    uint8_t *to = c->to;
    for (size_t o = 0; o < block(a, 0, axis); o++) {
        for (size_t i = 0; i < ix->n; i++) {
            size_t at;
            if (!oq_axis_of(oq_cval_int(ix, i), (size_t)a->dims[axis], &at))
                return false;
            if (inner != 0)
                memcpy(to, a->p + (o * (size_t)a->dims[axis] + at) * inner, inner);
            to += inner;
        }
    }
    return true;
}

/* Begin, step and count of a slice along an axis of size d. */
static bool slice_axis(int64_t d, int64_t begin, int64_t end, int64_t step, int64_t *from,
                       int64_t *count) {
    if (step == 0 || step == INT64_MIN)
        return false;
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? d : d - 1;
    begin = begin < 0 ? begin + d : begin;
    end = end < 0 && end >= -d ? end + d : end;
    begin = begin < (step > 0 ? 0 : 0) ? 0 : begin > high ? high : begin;
    end = end < low ? low : end > d ? d : end;
    *from = begin;
    *count = step > 0 ? (end - begin + step - 1) / step : (begin - end - step - 1) / -step;
    if (*count < 0 || d == 0)
        *count = 0;
    return true;
}

bool oq_eval_Slice(oq_eval *c) {
    const oq_cval *a = &c->in[0];
    const int64_t *begin, *end, *axes, *steps;
    size_t nb, ne, na, ns;
    bool given, has_axes, has_steps;
    int64_t from[OQ_EVAL_AXES] = {0}, by[OQ_EVAL_AXES], dims[OQ_EVAL_AXES];
    if (!oq_eval_axes(c, "starts", 1, &begin, &nb, &given) || !given ||
        !oq_eval_axes(c, "ends", 2, &end, &ne, &given) || !given || nb != ne || nb > a->rank ||
        !oq_eval_axes(c, "axes", 3, &axes, &na, &has_axes) || (has_axes && na != nb) ||
        !oq_eval_axes(c, "steps", 4, &steps, &ns, &has_steps) || (has_steps && ns != nb))
        return false;
    for (size_t i = 0; i < OQ_EVAL_AXES; i++)
        by[i] = 1;
    memcpy(dims, a->dims, sizeof dims);
    for (size_t i = 0; i < nb; i++) {
        size_t at;
        if (!oq_axis_of(has_axes ? axes[i] : (int64_t)i, a->rank, &at))
            return false;
        by[at] = has_steps ? steps[i] : 1;
        if (!slice_axis(a->dims[at], begin[i], end[i], by[at], &from[at], &dims[at]))
            return false;
    }
    if (!oq_eval_make(c, a->dt, dims, a->rank))
        return false;
    for (size_t i = 0; i < c->out.n; i++) {
        size_t rest = i, source = 0;
        for (size_t k = a->rank; k-- > 0;) {
            const int64_t at = from[k] + (int64_t)(rest % (size_t)dims[k]) * by[k];
            rest /= (size_t)dims[k];
            source += (size_t)at * block(a, k + 1, a->rank);
        }
        memcpy(c->to + i * a->width, a->p + source * a->width, a->width);
    }
    return true;
}

bool oq_eval_Tile(oq_eval *c) {
    const oq_cval *a = &c->in[0];
    const int64_t *times;
    size_t n;
    int64_t dims[OQ_EVAL_AXES];
    if (c->n_in != 2 || !oq_eval_ints(c, 1, &times, &n) || n != a->rank)
        return false;
    for (size_t i = 0; i < n; i++)
        if (times[i] < 0 || __builtin_mul_overflow(a->dims[i], times[i], &dims[i]))
            return false;
    if (!oq_eval_make(c, a->dt, dims, n))
        return false;
    for (size_t i = 0; i < c->out.n; i++) {
        size_t rest = i, source = 0;
        for (size_t k = n; k-- > 0;) {
            source += rest % (size_t)dims[k] % (size_t)a->dims[k] * block(a, k + 1, n);
            rest /= (size_t)dims[k];
        }
        memcpy(c->to + i * a->width, a->p + source * a->width, a->width);
    }
    return true;
}

bool oq_eval_NonZero(oq_eval *c) {
    const oq_cval *a = &c->in[0];
    size_t count = 0, to = 0;
    const bool real = oq_dtype_is_float(a->dt);
    if (c->n_in != 1 || a->rank == 0)
        return false;
    for (size_t i = 0; i < a->n; i++)
        count += real ? oq_cval_real(a, i) != 0.0 : oq_cval_int(a, i) != 0;
    const int64_t dims[2] = {(int64_t)a->rank, (int64_t)count};
    if (!oq_eval_make(c, OQ_INT64, dims, 2))
        return false;
    for (size_t i = 0; i < a->n; i++) {
        if (real ? oq_cval_real(a, i) == 0.0 : oq_cval_int(a, i) == 0)
            continue;
        size_t rest = i;
        for (size_t k = a->rank; k-- > 0;) {
            oq_cval_put_int(c, k * count + to, (int64_t)(rest % (size_t)a->dims[k]));
            rest /= (size_t)a->dims[k];
        }
        to++;
    }
    return true;
}
