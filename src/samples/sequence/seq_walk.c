/*
 * seq_walk.c — see seq_walk.h.
 */
#include "samples/sequence/seq_walk.h"

#include "samples/agreement.h"
#include "samples/source_private.h"

#include "onnx/tensor.h"

#include <inttypes.h>

/* ---- which inputs ---- */

static const oq_carry_pair *pair_into(const oq_walker *w, size_t in) {
    for (size_t i = 0; i < w->roles.carry.n; i++)
        if (w->roles.carry.v[i].in == in)
            return &w->roles.carry.v[i];
    return NULL;
}

/* Inputs that follow from lengths, by their names. */
typedef enum derived { NOT_DERIVED, MASK, POSITIONS, CACHE_POSITIONS, USES_CACHE } derived;

static derived derived_of(const oq_walker *w, size_t i) {
    const oq_language *l = &w->roles.language;
    const oq_io *io = &w->in.v[i];
    if (!l->is || !l->causal)
        return NOT_DERIVED;
    if (i == l->mask)
        return MASK;
    if (i == l->positions)
        return POSITIONS;
    const bool one = io->has_shape && io->rank == 1;
    if (one && io->dtype == OQ_INT64 && oq_str_eq(io->name, OQ_S("cache_position")))
        return CACHE_POSITIONS;
    return one && io->dtype == OQ_BOOL && oq_str_eq(io->name, OQ_S("use_cache_branch"))
               ? USES_CACHE
               : NOT_DERIVED;
}

void oq_walker_may_lack(const oq_walker *w, bool *may_lack) {
    for (size_t i = 0; i < w->in.n; i++)
        may_lack[i] = pair_into(w, i) != NULL || derived_of(w, i) != NOT_DERIVED;
}

/* ---- life ---- */

void oq_walk_init(oq_walk *w, const oq_walker *of, const onq_allocator *alloc) {
    *w = (oq_walk){.of = of, .alloc = alloc};
    oq_arena_init(&w->arenas[0], alloc);
    oq_arena_init(&w->arenas[1], alloc);
}

void oq_walk_release(oq_walk *w) {
    oq_arena_release(&w->arenas[0]);
    oq_arena_release(&w->arenas[1]);
    w->left = NULL;
}

static void begin(oq_walk *w) {
    w->left = NULL;
    w->ids = (oq_datum){0};
    w->past = 0;
    w->made_states = false;
}

/* ---- tensors that are made ---- */

static onq_code make(oq_arena *a, oq_dtype type, const int64_t *dims, size_t rank, oq_datum *out,
                     onq_error *err) {
    int64_t *copy = OQ_NEW_ARRAY(a, int64_t, rank + 1);
    *out =
        (oq_datum){.kind = OQ_DATUM_TENSOR, .dtype = type, .rank = rank, .dims = copy, .count = 1};
    OQ_TRY_ALLOC(copy != NULL, err);
    for (size_t i = 0; i < rank; i++) {
        copy[i] = dims[i];
        if (!oq_mul(out->count, (uint64_t)dims[i], &out->count))
            return oq_fail(err, ONQ_E_LIMIT, "its shape is too large");
    }
    if (!oq_dtype_bytes(type, out->count, &out->size_bytes))
        return oq_fail(err, ONQ_E_UNSUPPORTED, "%s cannot be made up", oq_dtype_name(type));
    uint8_t *data = oq_arena_alloc(a, out->size_bytes + 1); /* zeros */
    out->data = data;
    return data != NULL ? ONQ_OK : oq_fail_nomem(err);
}

static void set_int(const oq_datum *d, uint64_t i, int64_t x) {
    uint8_t *p = (uint8_t *)(uintptr_t)d->data;
    const int32_t narrow = (int32_t)x;
    if (d->dtype == OQ_INT32)
        memcpy(p + i * sizeof narrow, &narrow, sizeof narrow);
    else
        memcpy(p + i * sizeof x, &x, sizeof x);
}

/* ---- first states ---- */

/* The size that a symbol has in what the sample gives; -1 if it is in none. */
static int64_t size_of_symbol(const oq_walker *w, const oq_datum *given, oq_str symbol) {
    for (size_t i = 0; symbol.n > 0 && i < w->in.n; i++) {
        const oq_io *io = &w->in.v[i];
        if (given[i].kind != OQ_DATUM_TENSOR || !io->has_shape || given[i].rank != io->rank)
            continue;
        for (size_t k = 0; k < io->rank; k++)
            if (io->dims[k].value < 0 && oq_str_eq(io->dims[k].param, symbol))
                return given[i].dims[k];
    }
    return -1;
}

/* An axis that a step makes longer: what goes in and what comes out have other symbols, or only one
 * of them has a number. */
static bool grows(const oq_walker *w, const oq_carry_pair *p, size_t axis) {
    const oq_io *in = &w->in.v[p->in], *out = &w->out.v[p->out];
    if (in->dims[axis].value >= 0)
        return false;
    if (!out->has_shape || out->rank != in->rank)
        return w->roles.language.is && axis > 0;
    const oq_str x = in->dims[axis].param, y = out->dims[axis].param;
    if (out->dims[axis].value >= 0)
        return false;
    return x.n > 0 && y.n > 0 ? !oq_str_eq(x, y) : w->roles.language.is && axis > 0;
}

static int64_t batch_of(const oq_walker *w, const oq_datum *given) {
    const size_t ids = w->roles.language.ids;
    if (w->roles.language.is && given[ids].kind == OQ_DATUM_TENSOR && given[ids].rank > 0)
        return given[ids].dims[0];
    for (size_t i = 0; i < w->in.n; i++)
        if (given[i].kind == OQ_DATUM_TENSOR && w->in.v[i].has_shape && w->in.v[i].rank > 0 &&
            w->in.v[i].dims[0].value < 0 && given[i].rank == w->in.v[i].rank)
            return given[i].dims[0];
    return 1;
}

static onq_code make_state(oq_walk *w, const oq_carry_pair *p, const oq_datum *given, oq_arena *a,
                           oq_datum *out, onq_error *err) {
    const oq_walker *of = w->of;
    const oq_io *io = &of->in.v[p->in];
    int64_t dims[OQ_TENSOR_RANK];
    if (io->kind != OQ_DATUM_TENSOR || !io->has_shape || io->rank > OQ_TENSOR_RANK)
        return oq_fail(err, ONQ_E_INVALID,
                       "input '%.*s' is a state without a declared shape: the first step of a "
                       "sequence must give it",
                       OQ_STR(io->name));
    for (size_t i = 0; i < io->rank; i++) {
        const int64_t known = size_of_symbol(of, given, io->dims[i].param);
        dims[i] = io->dims[i].value >= 0 ? io->dims[i].value
                  : grows(of, p, i)      ? 0
                  : known >= 0           ? known
                  : i == 0               ? batch_of(of, given)
                                         : 1;
    }
    w->made_states = true;
    const onq_code rc = make(a, io->dtype, dims, io->rank, out, err);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "input '%.*s'", OQ_STR(io->name));
}

uint64_t oq_walker_past(const oq_walker *w, const oq_datum *inputs) {
    for (size_t i = 0; i < w->roles.carry.n; i++) {
        const oq_carry_pair *p = &w->roles.carry.v[i];
        const oq_datum *d = &inputs[p->in];
        const oq_io *io = &w->in.v[p->in];
        for (size_t k = 0;
             d->kind == OQ_DATUM_TENSOR && io->has_shape && d->rank == io->rank && k < d->rank; k++)
            if (grows(w, p, k))
                return (uint64_t)d->dims[k];
    }
    return 0;
}

/* ---- what follows from lengths ---- */

/* The mask of the step before, if it had one, and ones for the new tokens. */
static onq_code make_mask(const oq_walk *w, size_t i, const int64_t size[2], oq_arena *a,
                          oq_datum *out, onq_error *err) {
    const int64_t dims[] = {size[0], (int64_t)w->past + size[1]};
    const oq_datum *old = w->left != NULL ? &w->left[i] : NULL;
    OQ_TRY(make(a, w->of->in.v[i].dtype, dims, 2, out, err));
    for (uint64_t k = 0; k < out->count; k++)
        set_int(out, k, 1);
    if (old == NULL || old->kind != OQ_DATUM_TENSOR || old->rank != 2 || old->dims[0] != dims[0] ||
        old->dims[1] > dims[1])
        return ONQ_OK;
    for (int64_t b = 0; b < dims[0]; b++)
        for (int64_t k = 0; k < old->dims[1]; k++)
            set_int(out, (uint64_t)(b * dims[1] + k),
                    oq_raw_get_int(old->dtype, old->data, (uint64_t)(b * old->dims[1] + k)));
    return ONQ_OK;
}

/* Tokens before each that are not padding. */
static onq_code make_positions(const oq_walk *w, size_t i, const int64_t size[2],
                               const oq_datum *mask, oq_arena *a, oq_datum *out, onq_error *err) {
    OQ_TRY(make(a, w->of->in.v[i].dtype, size, 2, out, err));
    const bool known = mask != NULL && mask->kind == OQ_DATUM_TENSOR && mask->rank == 2 &&
                       mask->dims[0] == size[0] && mask->dims[1] >= size[1];
    for (int64_t b = 0; b < size[0]; b++) {
        int64_t at = known ? 0 : (int64_t)w->past;
        const int64_t width = known ? mask->dims[1] : size[1], skip = width - size[1];
        for (int64_t k = 0; k < width; k++) {
            const bool counts =
                !known || oq_raw_get_int(mask->dtype, mask->data, (uint64_t)(b * width + k)) != 0;
            if (k >= skip)
                set_int(out, (uint64_t)(b * size[1] + k - skip), counts ? at : 1);
            at += counts;
        }
    }
    return ONQ_OK;
}

static onq_code make_derived(const oq_walk *w, size_t i, oq_datum *inputs, oq_arena *a,
                             onq_error *err) {
    const oq_language *l = &w->of->roles.language;
    const oq_datum *ids = &inputs[l->ids];
    if (ids->kind != OQ_DATUM_TENSOR || ids->rank != 2)
        return oq_fail(err, ONQ_E_INVALID, "input '%.*s' is missing",
                       OQ_STR(w->of->in.v[l->ids].name));
    const int64_t size[2] = {ids->dims[0], ids->dims[1]}, one[1] = {1};
    const oq_datum *mask = l->mask != OQ_NOWHERE ? &inputs[l->mask] : NULL;
    switch (derived_of(w->of, i)) {
    case MASK:
        return make_mask(w, i, size, a, &inputs[i], err);
    case POSITIONS:
        return make_positions(w, i, size, mask, a, &inputs[i], err);
    case CACHE_POSITIONS:
        OQ_TRY(make(a, OQ_INT64, size + 1, 1, &inputs[i], err));
        for (int64_t k = 0; k < size[1]; k++)
            set_int(&inputs[i], (uint64_t)k, (int64_t)w->past + k);
        return ONQ_OK;
    case USES_CACHE:
        OQ_TRY(make(a, OQ_BOOL, one, 1, &inputs[i], err));
        *(uint8_t *)(uintptr_t)inputs[i].data = w->past > 0;
        return ONQ_OK;
    case NOT_DERIVED:
        break;
    }
    return ONQ_OK;
}

/* ---- a step ---- */

/* Inputs of a generated step that nobody gives: what the sample said once goes for all of it. */
static onq_code fill_generated(const oq_walk *w, oq_datum *inputs, onq_error *err) {
    const oq_language *l = &w->of->roles.language;
    if (!l->is || w->ids.kind != OQ_DATUM_TENSOR || w->left == NULL)
        return oq_fail(err, ONQ_E_INVALID,
                       "--generate is for language models (tokens in, logits out)");
    for (size_t i = 0; i < w->of->in.n; i++)
        if (derived_of(w->of, i) == NOT_DERIVED && pair_into(w->of, i) == NULL)
            inputs[i] = w->left[i];
    inputs[l->ids] = w->ids;
    return ONQ_OK;
}

static onq_code fill_states(oq_walk *w, const oq_sample *step, oq_datum *inputs, oq_arena *a,
                            onq_error *err) {
    const oq_carry *c = &w->of->roles.carry;
    for (size_t i = 0; i < c->n; i++) {
        oq_datum *d = &inputs[c->v[i].in];
        const bool is_left = step->step > 0 && w->left != NULL && w->left[c->v[i].in].kind != 0;
        if (is_left && (d->kind == OQ_DATUM_NONE || w->own_states))
            *d = w->left[c->v[i].in];
        else if (d->kind == OQ_DATUM_NONE || oq_datum_is_other_empty(d, &w->of->in.v[c->v[i].in]))
            OQ_TRY(make_state(w, &c->v[i], step->inputs, a, d, err));
    }
    return ONQ_OK;
}

onq_code oq_walk_fill(oq_walk *w, const oq_sample *step, oq_arena *a, oq_sample *full,
                      onq_error *err) {
    const oq_language *l = &w->of->roles.language;
    oq_datum *inputs = OQ_NEW_ARRAY(a, oq_datum, step->n_inputs + 1);
    OQ_TRY_ALLOC(inputs != NULL, err);
    assert(step->n_inputs == w->of->in.n);
    memcpy(inputs, step->inputs, step->n_inputs * sizeof *inputs);
    *full = *step;
    full->inputs = inputs;
    if (step->step == 0)
        begin(w);
    if (step->generated)
        OQ_TRY(fill_generated(w, inputs, err));
    OQ_TRY(fill_states(w, step, inputs, a, err));
    if (step->step == 0)
        w->past = oq_walker_past(w->of, inputs);
    for (size_t i = 0; l->is && i < step->n_inputs; i++)
        if (inputs[i].kind == OQ_DATUM_NONE && derived_of(w->of, i) == MASK)
            OQ_TRY(make_derived(w, i, inputs, a, err));
    for (size_t i = 0; l->is && i < step->n_inputs; i++)
        if (inputs[i].kind == OQ_DATUM_NONE && derived_of(w->of, i) != NOT_DERIVED)
            OQ_TRY(make_derived(w, i, inputs, a, err));
    return ONQ_OK;
}

/* ---- after it ---- */

static onq_code keep_state(oq_walk *w, const oq_carry_pair *p, const oq_sample *full,
                           const oq_datum *outputs, oq_arena *a, oq_datum *left, onq_error *err) {
    const oq_io *in = &w->of->in.v[p->in];
    const oq_datum *d = &outputs[p->out], *old = &full->inputs[p->in];
    /* A branch that does not compute a state gives an empty one: the old one stays. */
    if (d->kind == OQ_DATUM_TENSOR && d->count == 0 && old->kind == OQ_DATUM_TENSOR &&
        old->count > 0)
        d = old;
    const onq_code rc = oq_datum_check(d, in, w->alloc, err);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "step %" PRIu64 ": output '%.*s' cannot go to input '%.*s'",
                           full->step, OQ_STR(w->of->out.v[p->out].name), OQ_STR(in->name));
    if (!w->borrows || d == old) /* the old one is of a run that the next replaces */
        return oq_datum_copy(a, d, left, err);
    *left = *d;
    return ONQ_OK;
}

/* The row of logits that follows the last token that is not padding. */
static uint64_t last_row(const oq_walk *w, const oq_sample *full, int64_t batch, uint64_t rows) {
    assert(rows > 0 && batch >= 0);
    const oq_language *l = &w->of->roles.language;
    const oq_datum *mask = l->mask != OQ_NOWHERE ? &full->inputs[l->mask] : NULL;
    if (mask == NULL || mask->kind != OQ_DATUM_TENSOR || mask->rank != 2 ||
        mask->dims[1] < (int64_t)rows)
        return rows - 1;
    const uint64_t width = (uint64_t)mask->dims[1];
    for (uint64_t k = rows; k > 0; k--)
        if (oq_raw_get_int(mask->dtype, mask->data,
                           (uint64_t)batch * width + width - rows + k - 1) != 0)
            return k - 1;
    return rows - 1;
}

static onq_code keep_tokens(oq_walk *w, const oq_sample *full, const oq_datum *outputs, oq_arena *a,
                            onq_error *err) {
    const oq_language *l = &w->of->roles.language;
    const oq_datum *logits = &outputs[l->logits], *ids = &full->inputs[l->ids];
    w->ids = (oq_datum){0};
    if (logits->kind != OQ_DATUM_TENSOR || !oq_dtype_is_float(logits->dtype) || logits->rank < 2 ||
        logits->count == 0 || ids->kind != OQ_DATUM_TENSOR || ids->rank != 2)
        return ONQ_OK;
    const int64_t batch = logits->dims[0], size[] = {batch, 1};
    const uint64_t n = (uint64_t)logits->dims[logits->rank - 1],
                   rows = logits->count / n / (uint64_t)batch;
    OQ_TRY(make(a, ids->dtype, size, 2, &w->ids, err));
    for (int64_t b = 0; b < batch; b++) {
        const uint64_t row = (uint64_t)b * rows + last_row(w, full, b, rows);
        set_int(&w->ids, (uint64_t)b, (int64_t)oq_datum_top(logits, row * n, n));
    }
    return ONQ_OK;
}

onq_code oq_walk_take(oq_walk *w, const oq_sample *full, const oq_datum *outputs, size_t n,
                      onq_error *err) {
    const oq_carry *c = &w->of->roles.carry;
    const oq_language *l = &w->of->roles.language;
    if (full->last)
        return ONQ_OK;
    assert(n == w->of->out.n);
    (void)n;
    oq_arena *a = &w->arenas[1 - w->now];
    oq_arena_release(a);
    oq_arena_init(a, w->alloc);
    oq_datum *left = OQ_NEW_ARRAY(a, oq_datum, w->of->in.n + 1);
    OQ_TRY_ALLOC(left != NULL, err);
    for (size_t i = 0; i < c->n; i++)
        OQ_TRY(keep_state(w, &c->v[i], full, outputs, a, &left[c->v[i].in], err));
    for (size_t i = 0; l->is && i < w->of->in.n; i++)
        if (left[i].kind == OQ_DATUM_NONE && i != l->ids && pair_into(w->of, i) == NULL)
            OQ_TRY(oq_datum_copy(a, &full->inputs[i], &left[i], err));
    if (l->is)
        OQ_TRY(keep_tokens(w, full, outputs, a, err));
    if (l->is && full->inputs[l->ids].rank == 2)
        w->past += (uint64_t)full->inputs[l->ids].dims[1];
    w->left = left;
    w->now = 1 - w->now;
    return ONQ_OK;
}
