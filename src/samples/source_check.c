/*
 * source_check.c — checks that a sample fits the model's inputs.
 */
#include "samples/source_private.h"

#include "base/text/nearest.h"

#include <inttypes.h>

/* ---- --dim ---- */

/* "(did you mean NAME?)", or all names, each once. */
onq_code oq_dim_unknown(const oq_str *names, size_t n, oq_str name, const onq_allocator *alloc,
                        onq_error *err) {
    char near[300];
    oq_nearest nearest;
    oq_buf known;
    oq_nearest_init(&nearest, name);
    oq_buf_init(&known, alloc);
    for (size_t i = 0; i < n; i++) {
        bool again = false;
        for (size_t k = 0; k < i; k++)
            again |= oq_str_eq(names[i], names[k]);
        if (again)
            continue;
        oq_nearest_offer(&nearest, names[i]);
        oq_buf_adds(&known, known.n > 0 ? ", " : "");
        oq_buf_add_safe(&known, names[i]);
    }
    oq_nearest_text(&nearest, "", near, sizeof near);
    onq_code rc;
    if (near[0] != '\0')
        rc = oq_fail(err, ONQ_E_OPTION, "--dim: no input has a dimension '%.*s'%s", OQ_STR(name),
                     near);
    else
        rc = oq_fail(err, ONQ_E_OPTION, "--dim: no input has a dimension '%.*s' (%s%s)",
                     OQ_STR(name), known.n > 0 ? "named are: " : "none has a name",
                     known.p != NULL ? known.p : "");
    if (known.failed)
        rc = oq_fail_nomem(err);
    oq_buf_release(&known);
    return rc;
}

static onq_code unknown_symbol(oq_arena *a, const oq_ios *ios, oq_str name, onq_error *err) {
    OQ_VEC(oq_str) names = {0};
    for (size_t i = 0; i < ios->n; i++)
        for (size_t k = 0; k < ios->v[i].rank; k++)
            if (ios->v[i].dims[k].param.n > 0 && !OQ_PUSH(a, &names, ios->v[i].dims[k].param))
                return oq_fail_nomem(err);
    return oq_dim_unknown(names.v, names.n, name, a->alloc, err);
}

onq_code oq_ios_fix_dims(oq_arena *a, oq_ios *ios, const oq_dim_fix *dims, size_t n,
                         onq_error *err) {
    for (size_t f = 0; f < n; f++) {
        if (dims[f].value < 0)
            return oq_fail(err, ONQ_E_OPTION, "--dim %.*s: %" PRId64 " is not a size",
                           OQ_STR(dims[f].name), dims[f].value);
        bool used = false;
        for (size_t i = 0; i < ios->n; i++) {
            oq_io *io = &ios->v[i];
            for (size_t k = 0; k < io->rank; k++) {
                if (!oq_str_eq(io->dims[k].param, dims[f].name) || io->dims[k].param.n == 0)
                    continue;
                oq_io_dim *fixed = OQ_NEW_ARRAY(a, oq_io_dim, io->rank);
                OQ_TRY_ALLOC(fixed != NULL, err);
                memcpy(fixed, io->dims, io->rank * sizeof *fixed);
                fixed[k].value = dims[f].value;
                io->dims = fixed;
                used = true;
            }
        }
        if (!used)
            return unknown_symbol(a, ios, dims[f].name, err);
    }
    return ONQ_OK;
}

/* ---- steps along an axis ---- */

uint64_t oq_datum_steps(const oq_datum *d, const oq_io *want, size_t axis, uint64_t *each) {
    *each = 0;
    if (d->kind != OQ_DATUM_TENSOR || !want->has_shape || axis >= d->rank)
        return 1;
    if (d->rank == want->rank + 1)
        return (uint64_t)d->dims[axis];
    const int64_t declared = d->rank == want->rank ? want->dims[axis].value : -1;
    *each = declared > 0 ? (uint64_t)declared : 1;
    return d->rank == want->rank ? (uint64_t)d->dims[axis] / *each : 1;
}

/* ---- samples ---- */

/* Numbers of another type are the usual mistake: numpy computes in float64. */
static const char *hint_for(const oq_datum *d, const oq_io *want) {
    const oq_dtype_info *t = d->kind == OQ_DATUM_TENSOR ? oq_dtype_find(d->dtype) : NULL;
    if (t == NULL || d->dtype == want->dtype || t->cls == OQ_CLASS_STRING ||
        t->cls == OQ_CLASS_COMPLEX)
        return "";
    return want->dtype == OQ_FLOAT   ? " (in Python: .astype('float32'))"
           : want->dtype == OQ_INT64 ? " (in Python: .astype('int64'))"
                                     : "";
}

static onq_code misfit(const oq_datum *d, const oq_io *want, const onq_allocator *alloc,
                       onq_error *err) {
    oq_buf came, wanted;
    oq_buf_init(&came, alloc);
    oq_buf_init(&wanted, alloc);
    oq_datum_describe(d, &came);
    oq_io_describe(want, &wanted);
    onq_code rc = oq_fail(err, ONQ_E_INVALID, "input '%.*s': got %s, expected %s%s",
                          OQ_STR(want->name), came.p != NULL ? came.p : "?",
                          wanted.p != NULL ? wanted.p : "?", hint_for(d, want));
    if (came.failed || wanted.failed)
        rc = oq_fail_nomem(err);
    oq_buf_release(&came);
    oq_buf_release(&wanted);
    return rc;
}

static onq_code check_tensor(const oq_datum *d, const oq_io *want, const onq_allocator *alloc,
                             onq_error *err) {
    if (d->kind != OQ_DATUM_TENSOR || (want->dtype != OQ_UNDEFINED && d->dtype != want->dtype))
        return misfit(d, want, alloc, err);
    if (!want->has_shape)
        return ONQ_OK;
    if (d->rank != want->rank)
        return misfit(d, want, alloc, err);
    for (size_t i = 0; i < d->rank; i++)
        if (want->dims[i].value >= 0 && d->dims[i] != want->dims[i].value)
            return misfit(d, want, alloc, err);
    return ONQ_OK;
}

onq_code oq_datum_check(const oq_datum *d, const oq_io *want, const onq_allocator *alloc,
                        onq_error *err) {
    if (d->kind == OQ_DATUM_NONE && want->optional)
        return ONQ_OK;
    switch (want->kind) {
    case OQ_DATUM_NONE:
        return ONQ_OK; /* the model does not say */
    case OQ_DATUM_TENSOR:
        return check_tensor(d, want, alloc, err);
    case OQ_DATUM_SEQUENCE:
        if (d->kind != OQ_DATUM_SEQUENCE)
            return misfit(d, want, alloc, err);
        for (size_t i = 0; i < d->n_items; i++) {
            /* Of a sequence of sequences or maps the model's type says no more here. */
            if (want->dtype == OQ_UNDEFINED)
                break;
            onq_code rc = check_tensor(&d->items[i], want, alloc, err);
            if (rc != ONQ_OK)
                return oq_error_in(err, rc, "item %zu", i);
        }
        return ONQ_OK;
    case OQ_DATUM_MAP:
        return d->kind == OQ_DATUM_MAP ? ONQ_OK : misfit(d, want, alloc, err);
    }
    return ONQ_OK;
}

/* The shape of one step. */
static onq_code check_steps(const oq_source_options *o, const oq_datum *d, const oq_io *want,
                            const onq_allocator *alloc, onq_error *err) {
    oq_arena arena;
    oq_datum one = *d;
    uint64_t each = 0;
    (void)oq_datum_steps(d, want, o->steps_axis, &each);
    oq_arena_init(&arena, alloc);
    int64_t *dims = OQ_NEW_ARRAY(&arena, int64_t, d->rank + 1);
    OQ_TRY_ALLOC(dims != NULL, err);
    one.dims = dims;
    one.rank = 0;
    for (size_t i = 0; i < d->rank; i++)
        if (i != o->steps_axis || d->rank != want->rank + 1)
            dims[one.rank++] = i == o->steps_axis && each > 0 && d->dims[i] % (int64_t)each == 0
                                   ? (int64_t)each
                                   : d->dims[i];
    const onq_code rc = oq_datum_check(&one, want, alloc, err);
    oq_arena_release(&arena);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "a step along axis %zu", o->steps_axis);
}

onq_code oq_input_check(const oq_source_options *o, const oq_datum *d, const oq_ios *inputs,
                        size_t i, const onq_allocator *alloc, onq_error *err) {
    const oq_io *want = &inputs->v[i];
    if (oq_may_lack(o, i) && (d->kind == OQ_DATUM_NONE || oq_datum_is_other_empty(d, want)))
        return ONQ_OK;
    const bool has_steps = o->has_steps_axis && want->kind == OQ_DATUM_TENSOR && want->has_shape &&
                           d->kind == OQ_DATUM_TENSOR && o->steps_axis < d->rank;
    return has_steps ? check_steps(o, d, want, alloc, err) : oq_datum_check(d, want, alloc, err);
}
