/*
 * evaluate_moves.c — operators that only move values, and those that tell a shape.
 */
#include "evaluate_call.h"

#include "base/text/real.h"
#include "onnx/attr.h"
#include "onnx/edit.h"
#include "onnx/operators.h"
#include "onnx/tensor.h"

#include <string.h>

typedef ev_call call;

/* The same elements with other dimensions; -1 in `dims` is what is left, 0 as in x. */
static onq_code reshape(call *c, int64_t *dims, size_t rank) {
    const ev_tensor *x = c->in[0];
    size_t known = 1, left = rank;
    for (size_t d = 0; d < rank; d++) {
        if (dims[d] == 0 && d < x->rank)
            dims[d] = x->dims[d];
        if (dims[d] == -1)
            left = d;
        else
            known *= (size_t)dims[d];
    }
    if (left < rank)
        dims[left] = (int64_t)(known > 0 ? x->n / known : 0);
    if (ev_count(dims, rank) != x->n)
        return ev_refuse(c, "a shape of another size");
    OQ_TRY(ev_make_out(c, x->dtype, dims, rank));
    memcpy(c->out->v, x->v, x->n * sizeof *x->v);
    return ONQ_OK;
}

onq_code ev_do_reshape(call *c) {
    int64_t dims[EV_RANK];
    if (c->n_in < 2 || c->in[1]->n > EV_RANK)
        return ev_refuse(c, "no shape");
    for (size_t i = 0; i < c->in[1]->n; i++)
        dims[i] = (int64_t)c->in[1]->v[i];
    return reshape(c, dims, c->in[1]->n);
}

onq_code ev_do_flatten(call *c) {
    size_t axis;
    if (!ev_axis(c, "axis", 1, c->in[0]->rank + 1, &axis))
        return ev_refuse(c, "its axis");
    int64_t dims[2] = {(int64_t)ev_count(c->in[0]->dims, axis), -1};
    return reshape(c, dims, 2);
}

/* Unsqueeze and Squeeze, with their axes as an input. */
onq_code ev_do_squeeze(call *c) {
    const ev_tensor *x = c->in[0], *axes = c->n_in > 1 ? c->in[1] : NULL;
    const bool add = oq_str_is(c->n->op_type, "Unsqueeze");
    int64_t dims[EV_RANK];
    bool is_axis[EV_RANK] = {false};
    if (axes == NULL || x->rank + axes->n > EV_RANK)
        return ev_refuse(c, "no axes");
    const size_t all = add ? x->rank + axes->n : x->rank;
    size_t rank = 0, from = 0;
    for (size_t i = 0; i < axes->n; i++)
        is_axis[(size_t)(axes->v[i] < 0 ? axes->v[i] + (double)all : axes->v[i]) % EV_RANK] = true;
    for (size_t d = 0; d < all; d++) {
        if (is_axis[d] && !add)
            continue;
        dims[rank++] = add && is_axis[d] ? 1 : x->dims[add ? from++ : d];
    }
    return reshape(c, dims, rank);
}

onq_code ev_do_transpose(call *c) {
    const ev_tensor *x = c->in[0];
    int64_t dims[EV_RANK], at[EV_RANK], from[EV_RANK];
    for (size_t d = 0; d < x->rank; d++)
        dims[d] = x->dims[ev_number(c->n, "perm", d, (int64_t)(x->rank - 1 - d))];
    OQ_TRY(ev_make_out(c, x->dtype, dims, x->rank));
    for (size_t i = 0; i < x->n; i++) {
        ev_unravel(dims, x->rank, i, at);
        for (size_t d = 0; d < x->rank; d++)
            from[ev_number(c->n, "perm", d, (int64_t)(x->rank - 1 - d))] = at[d];
        c->out->v[i] = x->v[ev_ravel(x->dims, x->rank, from)];
    }
    return ONQ_OK;
}

/* x has [before, axis, after], the indices take the place of the axis. */
onq_code ev_do_gather(call *c) {
    const ev_tensor *x = c->in[0], *ids = c->in[1];
    int64_t dims[2 * EV_RANK];
    size_t axis, rank = 0;
    if (!ev_axis(c, "axis", 0, x->rank, &axis) || x->rank + ids->rank > EV_RANK)
        return ev_refuse(c, "its axis");
    for (size_t d = 0; d < x->rank; d++) {
        for (size_t k = 0; d == axis && k < ids->rank; k++)
            dims[rank++] = ids->dims[k];
        if (d != axis)
            dims[rank++] = x->dims[d];
    }
    OQ_TRY(ev_make_out(c, x->dtype, dims, rank));
    const size_t after = ev_count(x->dims + axis + 1, x->rank - axis - 1);
    for (size_t i = 0; i < c->out->n; i++) {
        const double id = ids->v[i / after % ids->n];
        const double at = id < 0 ? id + (double)x->dims[axis] : id;
        if (!(at >= 0 && at < (double)x->dims[axis]))
            return ev_refuse(c, "an index that is not there");
        const size_t before = i / after / ids->n;
        c->out->v[i] = x->v[(before * (size_t)x->dims[axis] + (size_t)at) * after + i % after];
    }
    return ONQ_OK;
}

/* The mean over the last axis, which stays. */
onq_code ev_do_reduce_mean(call *c) {
    const ev_tensor *x = c->in[0];
    const oq_i64s *axes = oq_attr_ints(c->n, "axes");
    int64_t dims[EV_RANK];
    if (x->rank == 0 || axes == NULL || axes->n != 1 || axes->v[0] != -1 ||
        oq_attr_int(c->n, "keepdims", 1) != 1)
        return ev_refuse(c, "axes other than the last, or dropped");
    memcpy(dims, x->dims, sizeof dims);
    dims[x->rank - 1] = 1;
    OQ_TRY(ev_make_out(c, x->dtype, dims, x->rank));
    const size_t n = (size_t)x->dims[x->rank - 1];
    for (size_t i = 0; i < x->n; i++)
        c->out->v[i / n] += x->v[i] / (double)n;
    return ONQ_OK;
}

onq_code ev_do_concat(call *c) {
    int64_t dims[EV_RANK];
    size_t axis, first = 0;
    memcpy(dims, c->in[0]->dims, sizeof dims);
    if (!ev_axis(c, "axis", 0, c->in[0]->rank, &axis))
        return ev_refuse(c, "its axis");
    dims[axis] = 0;
    for (size_t k = 0; k < c->n_in; k++)
        dims[axis] += c->in[k]->dims[axis];
    OQ_TRY(ev_make_out(c, c->in[0]->dtype, dims, c->in[0]->rank));
    for (size_t k = 0; k < c->n_in; k++) {
        const ev_tensor *x = c->in[k];
        int64_t at[EV_RANK];
        for (size_t i = 0; i < x->n; i++) {
            ev_unravel(x->dims, x->rank, i, at);
            at[axis] += (int64_t)first;
            c->out->v[ev_ravel(dims, x->rank, at)] = x->v[i];
        }
        first += (size_t)x->dims[axis];
    }
    return ONQ_OK;
}

/* Number k of a list of Slice, or the fallback. Ends may be as large as an integer can be. */
static int64_t slice_number(const call *c, size_t input, size_t k, int64_t fallback) {
    if (input >= c->n_in || c->in[input] == NULL)
        return fallback;
    return (int64_t)fmin(fmax(c->in[input]->v[k], -1e9), 1e9);
}

/* Forwards only. */
onq_code ev_do_slice(call *c) {
    const ev_tensor *x = c->in[0];
    int64_t dims[EV_RANK], first[EV_RANK] = {0}, step[EV_RANK], at[EV_RANK];
    memcpy(dims, x->dims, sizeof dims);
    for (size_t d = 0; d < EV_RANK; d++)
        step[d] = 1;
    for (size_t k = 0; k < c->in[1]->n; k++) {
        const int64_t axis = slice_number(c, 3, k, (int64_t)k);
        const size_t d = (size_t)(axis < 0 ? axis + (int64_t)x->rank : axis);
        const int64_t size = d < x->rank ? x->dims[d] : 0;
        int64_t from = slice_number(c, 1, k, 0), to = slice_number(c, 2, k, 0);
        from += from < 0 ? size : 0;
        to = to > size ? size : to < 0 ? to + size : to;
        if (size == 0 || slice_number(c, 4, k, 1) < 1 || from < 0 || from > to)
            return ev_refuse(c, "a slice that the fake engine does not know");
        first[d] = from;
        step[d] = slice_number(c, 4, k, 1);
        dims[d] = (to - from + step[d] - 1) / step[d];
    }
    OQ_TRY(ev_make_out(c, x->dtype, dims, x->rank));
    for (size_t i = 0; i < c->out->n; i++) {
        ev_unravel(dims, x->rank, i, at);
        for (size_t d = 0; d < x->rank; d++)
            at[d] = first[d] + at[d] * step[d];
        c->out->v[i] = x->v[ev_ravel(x->dims, x->rank, at)];
    }
    return ONQ_OK;
}

onq_code ev_do_shape(call *c) {
    const ev_tensor *x = c->in[0];
    const int64_t rank = (int64_t)x->rank;
    OQ_TRY(ev_make_out(c, OQ_INT64, &rank, 1));
    for (size_t d = 0; d < x->rank; d++)
        c->out->v[d] = (double)x->dims[d];
    return ONQ_OK;
}

/* With zeros or a given number. */
onq_code ev_do_pad(call *c) {
    const ev_tensor *x = c->in[0], *pads = c->n_in > 1 ? c->in[1] : NULL;
    const double with = c->n_in > 2 && c->in[2] != NULL ? c->in[2]->v[0] : 0;
    int64_t dims[EV_RANK], at[EV_RANK];
    if (pads == NULL || pads->n != 2 * x->rank ||
        !oq_str_is(oq_attr_str(c->n, "mode", "constant"), "constant"))
        return ev_refuse(c, "pads that the fake engine does not know");
    for (size_t d = 0; d < x->rank; d++)
        dims[d] = x->dims[d] + (int64_t)(pads->v[d] + pads->v[d + x->rank]);
    OQ_TRY(ev_make_out(c, x->dtype, dims, x->rank));
    for (size_t i = 0; i < c->out->n; i++) {
        bool inside = true;
        ev_unravel(dims, x->rank, i, at);
        for (size_t d = 0; d < x->rank; d++) {
            at[d] -= (int64_t)pads->v[d];
            inside = inside && at[d] >= 0 && at[d] < x->dims[d];
        }
        c->out->v[i] = inside ? x->v[ev_ravel(x->dims, x->rank, at)] : with;
    }
    return ONQ_OK;
}
