/*
 * steps.c — see steps.h.
 *
 * One sample of the source is looked at ahead: only then is it known that a sequence has ended.
 */
#include "samples/sequence/steps.h"

#include <inttypes.h>

typedef struct steps_feed {
    oq_feed base;
    onq_env *env;
    oq_steps_options o;
    oq_arena arena;
    oq_source *source;
    size_t axis;
    bool has_axis;
    oq_walk walk;
    bool begun;
    const oq_sample *ahead; /* the source's next; NULL: there is none */
    oq_arena held_arena;
    oq_sample held; /* the sample whose steps are given, a copy */
    bool holds;
    uint64_t n_held;         /* steps in it */
    uint64_t at;             /* the next of them */
    uint64_t generated;      /* steps that were added to this sequence */
    uint64_t sequence, step; /* of the step that comes next */
} steps_feed;

/* ---- an array that holds steps ---- */

static onq_code count_steps(const steps_feed *f, const oq_sample *s, uint64_t *n, onq_error *err) {
    size_t which = SIZE_MAX;
    uint64_t each = 0;
    *n = 1;
    for (size_t i = 0; f->has_axis && i < s->n_inputs; i++) {
        const uint64_t have = oq_datum_steps(&s->inputs[i], &f->o.walker->in.v[i], f->axis, &each);
        if (have == 1)
            continue;
        if (which != SIZE_MAX && have != *n)
            return oq_fail(err, ONQ_E_INVALID,
                           "sample '%s': input '%.*s' has %" PRIu64
                           " steps along axis %zu, input '%.*s' has %" PRIu64,
                           s->name, OQ_STR(f->o.walker->in.v[which].name), *n, f->axis,
                           OQ_STR(f->o.walker->in.v[i].name), have);
        which = i;
        *n = have;
    }
    if (*n == 0)
        return oq_fail(err, ONQ_E_INVALID, "sample '%s': there are no steps along axis %zu",
                       s->name, f->axis);
    return ONQ_OK;
}

/* Step k of an array, copied. */
static onq_code slice(const steps_feed *f, size_t i, uint64_t k, oq_arena *a, oq_datum *out,
                      onq_error *err) {
    const oq_datum *d = &f->held.inputs[i];
    const oq_io *want = &f->o.walker->in.v[i];
    uint64_t each = 0, bytes = 0, inner = 1, outer = 1;
    const uint64_t n = oq_datum_steps(d, want, f->axis, &each);
    if (d->kind != OQ_DATUM_TENSOR || (n == 1 && each > 0) || f->axis >= d->rank) {
        *out = *d; /* of the held sample, and copied with the others */
        return ONQ_OK;
    }
    if (d->dtype == OQ_STRING || !oq_dtype_bytes(d->dtype, 8, &bytes) || bytes % 8 != 0)
        return oq_fail(err, ONQ_E_UNSUPPORTED, "input '%.*s': %s cannot be cut into steps",
                       OQ_STR(want->name), oq_dtype_name(d->dtype));
    int64_t *dims = OQ_NEW_ARRAY(a, int64_t, d->rank + 1);
    OQ_TRY_ALLOC(dims != NULL, err);
    size_t rank = 0;
    for (size_t j = 0; j < d->rank; j++) {
        if (j != f->axis)
            dims[rank++] = d->dims[j];
        else if (each > 0)
            dims[rank++] = (int64_t)each;
        inner *= j > f->axis ? (uint64_t)d->dims[j] : 1;
        outer *= j < f->axis ? (uint64_t)d->dims[j] : 1;
    }
    const uint64_t part = (each > 0 ? each : 1) * inner * (bytes / 8),
                   whole = (uint64_t)d->dims[f->axis] * inner * (bytes / 8);
    uint8_t *data = oq_arena_alloc(a, outer * part + 1);
    OQ_TRY_ALLOC(data != NULL, err);
    for (uint64_t j = 0; j < outer; j++)
        memcpy(data + j * part, (const uint8_t *)d->data + j * whole + k * part, part);
    *out = (oq_datum){.kind = OQ_DATUM_TENSOR,
                      .dtype = d->dtype,
                      .rank = rank,
                      .dims = dims,
                      .count = outer * part / (bytes / 8),
                      .data = data,
                      .size_bytes = outer * part};
    return ONQ_OK;
}

/* ---- reading ---- */

static onq_code look_ahead(steps_feed *f, onq_error *err) {
    return oq_source_next(f->source, &f->ahead, err);
}

/* Takes the sample ahead. */
static onq_code hold_next(steps_feed *f, onq_error *err) {
    oq_arena_release(&f->held_arena);
    oq_arena_init(&f->held_arena, &f->env->alloc);
    OQ_TRY(oq_sample_copy(&f->held_arena, f->ahead, &f->held, err));
    f->holds = true;
    f->at = 0;
    OQ_TRY(count_steps(f, &f->held, &f->n_held, err));
    return look_ahead(f, err);
}

/* True if the sample ahead belongs to the sequence of the one that is held. */
static bool goes_on(const steps_feed *f) {
    return f->ahead != NULL && f->ahead->sequence == f->held.sequence;
}

/* Finds what the next step is made of: the held sample, or nothing where it is generated. */
static onq_code find_step(steps_feed *f, bool *generated, bool *more, onq_error *err) {
    *generated = false;
    *more = true;
    if (!f->begun) {
        f->begun = true;
        OQ_TRY(look_ahead(f, err));
    }
    if (f->holds && f->at < f->n_held)
        return ONQ_OK;
    if (f->holds && goes_on(f))
        return hold_next(f, err);
    *generated = f->holds && f->generated < f->o.generate;
    if (*generated)
        return ONQ_OK;
    f->sequence += f->holds;
    f->step = f->generated = 0;
    *more = f->ahead != NULL;
    return *more ? hold_next(f, err) : ONQ_OK;
}

static const char *name_of(const steps_feed *f, bool generated, bool alone, oq_arena *a) {
    if (alone)
        return oq_arena_strdup(a, f->held.name, strlen(f->held.name));
    if (generated)
        return oq_str_format(a, "%s token %" PRIu64, f->held.name, f->generated).p;
    return f->n_held > 1 ? oq_str_format(a, "%s step %" PRIu64, f->held.name, f->at).p
                         : oq_arena_strdup(a, f->held.name, strlen(f->held.name));
}

/* The step as the source gives it. */
static onq_code raw_step(steps_feed *f, bool generated, oq_arena *a, oq_sample *out,
                         onq_error *err) {
    const size_t n = f->held.n_inputs;
    oq_datum *inputs = OQ_NEW_ARRAY(a, oq_datum, n + 1);
    *out = (oq_sample){.inputs = inputs,
                       .n_inputs = n,
                       .sequence = f->sequence,
                       .step = f->step,
                       .generated = generated};
    OQ_TRY_ALLOC(inputs != NULL, err);
    for (size_t i = 0; !generated && i < n; i++)
        if (f->has_axis)
            OQ_TRY(slice(f, i, f->at, a, &inputs[i], err));
        else
            inputs[i] = f->held.inputs[i];
    if (f->step == 0) {
        f->base.begun++;
        f->base.late += oq_walker_past(f->o.walker, inputs) > 0;
    }
    const bool ends = generated || (f->at + 1 == f->n_held && !goes_on(f));
    const uint64_t added = f->generated + (generated ? 1 : 0);
    out->last = ends && added >= f->o.generate;
    out->name = name_of(f, generated, out->last && f->step == 0, a);
    return out->name != NULL ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code complete(steps_feed *f, oq_sample *s, oq_arena *a, onq_error *err) {
    const oq_sample raw = *s;
    const oq_datum *outputs = NULL;
    size_t n = 0;
    onq_code rc = oq_walk_fill(&f->walk, &raw, a, s, err);
    if (rc == ONQ_OK && !raw.last)
        rc = f->o.run(f->o.ctx, s, &outputs, &n, err);
    if (rc == ONQ_OK && !raw.last)
        rc = oq_walk_take(&f->walk, s, outputs, n, err);
    s->generated = false; /* its token is known now */
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "sample '%s'", raw.name);
}

static onq_code push_inputs(const steps_feed *f, const oq_sample *s, oq_arena *a,
                            oq_named_list *out, onq_error *err) {
    oq_datum *copies = NULL;
    OQ_TRY(oq_datums_copy(a, s->inputs, s->n_inputs, &copies, err));
    for (size_t i = 0; i < s->n_inputs; i++)
        if (copies[i].kind != OQ_DATUM_NONE || f->o.walker->in.v[i].optional)
            OQ_TRY_ALLOC(OQ_PUSH(a, &out->all, (oq_named){f->o.walker->in.v[i].name, copies[i]}),
                         err);
    out->name = s->name;
    out->sequence = s->sequence;
    out->step = s->step;
    out->last = s->last;
    out->generated = s->generated;
    return ONQ_OK;
}

static onq_code steps_next(oq_feed *base, uint64_t number, oq_arena *a, oq_named_list *out,
                           bool *more, onq_error *err) {
    steps_feed *f = (steps_feed *)base;
    bool generated = false;
    oq_sample s;
    (void)number;
    OQ_TRY(find_step(f, &generated, more, err));
    if (!*more)
        return ONQ_OK;
    OQ_TRY(raw_step(f, generated, a, &s, err));
    if (f->o.run != NULL)
        OQ_TRY(complete(f, &s, a, err));
    OQ_TRY(push_inputs(f, &s, a, out, err));
    f->generated += generated;
    f->at += !generated;
    f->step++;
    return ONQ_OK;
}

static onq_code steps_rewind(oq_feed *base, onq_error *err) {
    steps_feed *f = (steps_feed *)base;
    f->begun = f->holds = false;
    f->ahead = NULL;
    f->at = f->n_held = f->generated = f->sequence = f->step = 0;
    return oq_source_seek(f->source, 0, err);
}

/* ---- life ---- */

static void steps_close(oq_feed *base) {
    steps_feed *f = (steps_feed *)base;
    const onq_env *env = f->env;
    oq_source_close(f->source);
    if (f->o.close != NULL)
        f->o.close(f->o.ctx);
    oq_walk_release(&f->walk);
    oq_arena_release(&f->held_arena);
    oq_arena_release(&f->arena);
    oq_free(&env->alloc, f, sizeof *f);
}

static onq_code open_source(steps_feed *f, onq_error *err) {
    oq_source_options so = *f->o.source;
    bool *may_lack = OQ_NEW_ARRAY(&f->arena, bool, f->o.walker->in.n + 1);
    OQ_TRY_ALLOC(may_lack != NULL, err);
    oq_walker_may_lack(f->o.walker, may_lack);
    so.may_lack = may_lack;
    so.limit = so.share = so.n_shares = so.hold_out = 0;
    f->has_axis = so.has_steps_axis;
    f->axis = so.steps_axis;
    OQ_TRY(oq_source_open(f->env, &so, &f->source, err));
    const bool flat = !oq_source_has_sequences(f->source) && so.tape == NULL && !f->has_axis;
    f->base.each = flat ? 1 + f->o.generate : 0;
    f->base.count = flat ? oq_source_count(f->source) * f->base.each : 0;
    f->base.random = oq_source_is_random(f->source);
    f->base.images = oq_source_has_images(f->source);
    f->base.text = oq_source_text(f->source);
    return ONQ_OK;
}

onq_code oq_feed_open_steps(onq_env *env, const oq_steps_options *o, oq_feed **out,
                            onq_error *err) {
    steps_feed *f = oq_calloc(&env->alloc, 1, sizeof *f);
    if (f == NULL) {
        if (o->close != NULL)
            o->close(o->ctx);
        return oq_fail_nomem(err);
    }
    *f = (steps_feed){.base = {.next = steps_next,
                               .rewind = steps_rewind,
                               .close = steps_close,
                               .sequences = true,
                               .costly = o->run != NULL},
                      .env = env,
                      .o = *o};
    oq_arena_init(&f->arena, &env->alloc);
    oq_arena_init(&f->held_arena, &env->alloc);
    oq_walk_init(&f->walk, o->walker, &env->alloc);
    const onq_code rc = open_source(f, err);
    if (rc != ONQ_OK) {
        steps_close(&f->base);
        return rc;
    }
    *out = &f->base;
    return ONQ_OK;
}
