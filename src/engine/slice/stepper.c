/*
 * stepper.c — see stepper.h.
 *
 * A slice makes what is wanted out of what is kept. The walk from all stops that are left, to what
 * is kept and what the slice makes, says which tensors are kept after it.
 */
#include "engine/slice/stepper.h"

#include "onnx/operators.h"
#include "onnx/tensor.h"

#define AT_ONCE ((uint64_t)64 << 20)

struct oq_stepper {
    oq_stepper_options o;
    oq_slicer *slicer;
    oq_numbers way; /* nodes to halt at where stops are far apart, by place */
    size_t passed;  /* of these */
};

/* One call of oq_stepper_go. */
typedef struct step {
    oq_slicer *s;
    oq_arena arena;
    oq_numbers wanted; /* values */
    oq_numbers more;   /* values that are kept from now on */
    oq_numbers less;   /* values that were kept, and no stop needs any more */
    bool roomy;        /* there is room for what is settled, so far */
    oq_numbers wide;   /* values that are kept from now on where there is room for them */
    oq_numbers spared; /* of those in `more`, and that were kept: not needed where there is room */
    oq_slice slice;
    oq_datum *shown; /* by `wanted` */
    oq_step_fn fn;
    void *ctx;
} step;

/* ---- what a step makes and keeps ---- */

/* What it makes is computed where it is needed: it is wider than what it reads, or constant. */
static bool is_made_again(const oq_slicer *s, uint32_t node) {
    return !s->varies[node] || oq_node_is_dequantize(s->ix.graph->node.v[node]);
}

/* All that the stops from this one on read, traced to what is at hand. */
static onq_code find_needed(const oq_stepper *st, size_t stop, const bool *at_hand, oq_arena *a,
                            oq_slice_walk *out, onq_error *err) {
    oq_numbers read = {0};
    for (size_t k = stop; k < st->o.n_stops; k++) {
        const oq_numbers *of = &st->slicer->reads[st->o.stops[k]];
        for (size_t i = 0; i < of->n; i++)
            OQ_TRY_ALLOC(OQ_PUSH(a, &read, of->v[i]), err);
        if (st->o.beside == NULL || st->o.beside[k].n == 0)
            continue;
        const uint32_t beside = oq_slicer_value(st->slicer, st->o.beside[k]);
        assert(beside != OQ_NO_VALUE);
        OQ_TRY_ALLOC(OQ_PUSH(a, &read, beside), err);
    }
    return oq_slicer_walk(st->slicer, &read, at_hand, a, out, err);
}

static uint32_t settled_at(const oq_stepper *st, size_t stop) {
    return st->o.settled != NULL ? st->o.settled[stop] : OQ_NO_NODE;
}

/* By value: whether it is kept after the step, with room for what is settled or without. It is
 * what the nodes of the slice make, or is kept already, and later stops need. The stop itself is
 * about to change, so what it makes is not kept. */
static onq_code find_kept(const oq_stepper *st, size_t stop, const oq_slice_walk *slice, bool room,
                          oq_arena *a, bool **out, onq_error *err) {
    const oq_slicer *s = st->slicer;
    const uint32_t settled = settled_at(st, stop);
    bool *at_hand = oq_slicer_at_hand(s, OQ_EVERY_PLACE, a);
    oq_slice_walk needed;
    OQ_TRY_ALLOC(at_hand != NULL, err);
    for (uint32_t n = 0; n < s->n_nodes; n++) {
        const bool lasts = n == settled ? room : n != st->o.stops[stop] && !is_made_again(s, n);
        for (size_t i = 0; slice->nodes[n] && i < s->makes[n].n; i++)
            at_hand[s->makes[n].v[i]] |= lasts;
    }
    OQ_TRY(find_needed(st, stop, at_hand, a, &needed, err));
    for (uint32_t v = 0; v < s->n_values; v++)
        at_hand[v] &= needed.values[v];
    *out = at_hand;
    return ONQ_OK;
}

/* What the step keeps and drops. */
static onq_code list_kept(const oq_stepper *st, size_t stop, step *p, onq_error *err) {
    const oq_slicer *s = p->s;
    const bool *at_hand = oq_slicer_at_hand(s, OQ_EVERY_PLACE, &p->arena);
    oq_slice_walk slice;
    bool *with = NULL, *without = NULL;
    OQ_TRY_ALLOC(at_hand != NULL, err);
    OQ_TRY(oq_slicer_walk(s, &p->wanted, at_hand, &p->arena, &slice, err));
    OQ_TRY(find_kept(st, stop, &slice, true, &p->arena, &with, err));
    OQ_TRY(find_kept(st, stop, &slice, false, &p->arena, &without, err));
    for (uint32_t v = 0; v < s->n_values; v++) {
        const bool kept = oq_slicer_keeps(s, v), any = with[v] || without[v];
        bool ok = true;
        if (any != kept && without[v] == any)
            ok = OQ_PUSH(&p->arena, any ? &p->more : &p->less, v);
        if (!kept && with[v] && !without[v])
            ok = OQ_PUSH(&p->arena, &p->wide, v);
        if (!with[v] && without[v])
            ok &= OQ_PUSH(&p->arena, &p->spared, v);
        OQ_TRY_ALLOC(ok, err);
    }
    p->roomy = p->wide.n > 0;
    return ONQ_OK;
}

static bool has(const oq_numbers *list, uint32_t value) {
    for (size_t i = 0; i < list->n; i++)
        if (list->v[i] == value)
            return true;
    return false;
}

static onq_code make_step(const oq_stepper *st, size_t stop, step *p, onq_error *err) {
    oq_numbers gives = {0};
    p->shown = OQ_NEW_ARRAY(&p->arena, oq_datum, p->wanted.n + 1);
    OQ_TRY_ALLOC(p->shown != NULL, err);
    for (size_t i = 0; i < p->wanted.n; i++)
        OQ_TRY_ALLOC(OQ_PUSH(&p->arena, &gives, p->wanted.v[i]), err);
    OQ_TRY(list_kept(st, stop, p, err));
    const oq_numbers *const lists[] = {&p->more, &p->wide};
    for (size_t k = 0; k < OQ_COUNT(lists); k++)
        for (size_t i = 0; i < lists[k]->n; i++)
            if (!has(&p->wanted, lists[k]->v[i]) && !OQ_PUSH(&p->arena, &gives, lists[k]->v[i]))
                return oq_fail_nomem(err);
    return oq_slice_make(p->s, &gives, OQ_EVERY_PLACE, &p->slice, err);
}

/* ---- running ---- */

static onq_code keep_all(const step *p, const oq_numbers *values, size_t sample, onq_error *err) {
    for (size_t i = 0; i < values->n; i++)
        OQ_TRY(oq_slicer_keep(p->s, values->v[i], sample, oq_slice_given(&p->slice, values->v[i]),
                              err));
    return ONQ_OK;
}

static onq_code run_sample(step *p, size_t sample, onq_error *err) {
    OQ_TRY(oq_slice_run(&p->slice, NULL, sample, err));
    for (size_t i = 0; i < p->wanted.n; i++) {
        const oq_datum *d = oq_slice_given(&p->slice, p->wanted.v[i]);
        d = d != NULL ? d : oq_slicer_kept(p->s, p->wanted.v[i], sample);
        assert(d != NULL);
        p->shown[i] = *d;
    }
    if (p->fn != NULL)
        OQ_TRY(p->fn(p->ctx, sample, p->shown, err));
    OQ_TRY(keep_all(p, &p->more, sample, err));
    if (p->roomy)
        OQ_TRY(keep_all(p, &p->wide, sample, err));
    for (size_t i = 0; i < p->less.n; i++)
        oq_slicer_drop_one(p->s, p->less.v[i], sample);
    return ONQ_OK;
}

static void drop_all(oq_slicer *s, const oq_numbers *values) {
    for (size_t i = 0; i < values->n; i++)
        oq_slicer_drop(s, values->v[i]);
}

static onq_code run_samples(const oq_stepper *st, step *p, onq_error *err) {
    oq_slicer *s = p->s;
    OQ_TRY(oq_slice_open(&p->slice, st->o.level, err));
    for (size_t k = 0; k < s->n_samples; k++) {
        OQ_TRY(run_sample(p, k, err));
        if (p->roomy && s->bytes > st->o.memory / 2) {
            drop_all(s, &p->wide);
            p->roomy = false;
        }
        while (s->bytes > st->o.memory && s->n_samples > 1)
            oq_slicer_drop_sample(s);
    }
    drop_all(s, &p->less);
    if (p->roomy)
        drop_all(s, &p->spared);
    return ONQ_OK;
}

static onq_code go(oq_stepper *st, size_t stop, step *p, onq_error *err) {
    onq_code rc = make_step(st, stop, p, err);
    if (rc == ONQ_OK)
        rc = run_samples(st, p, err);
    oq_slice_close(&p->slice);
    return rc;
}

/* What the node reads, and samples change. */
static onq_code go_to_node(oq_stepper *st, size_t stop, uint32_t node, onq_error *err) {
    oq_slicer *s = st->slicer;
    step p = {.s = s};
    oq_arena_init(&p.arena, &s->env->alloc);
    onq_code rc = ONQ_OK;
    for (size_t i = 0; i < s->reads[node].n && rc == ONQ_OK; i++) {
        const uint32_t v = s->reads[node].v[i], from = s->ix.values.v[v].producer;
        if (from != OQ_NO_NODE && s->varies[from] && !OQ_PUSH(&p.arena, &p.wanted, v))
            rc = oq_fail_nomem(err);
    }
    if (rc == ONQ_OK)
        rc = go(st, stop, &p, err);
    oq_arena_release(&p.arena);
    return rc;
}

/* To the nodes of the way that come before this stop and all later ones. */
static onq_code go_on(oq_stepper *st, size_t stop, onq_error *err) {
    const uint32_t *place = st->slicer->place;
    uint32_t first = UINT32_MAX;
    for (size_t k = stop; k < st->o.n_stops; k++)
        if (place[st->o.stops[k]] < first)
            first = place[st->o.stops[k]];
    for (; st->passed < st->way.n && place[st->way.v[st->passed]] < first; st->passed++)
        OQ_TRY(go_to_node(st, stop, st->way.v[st->passed], err));
    return ONQ_OK;
}

onq_code oq_stepper_go(oq_stepper *st, size_t stop, const oq_str *names, size_t n_names,
                       oq_step_fn fn, void *ctx, onq_error *err) {
    assert(stop < st->o.n_stops);
    OQ_TRY(go_on(st, stop, err));
    step p = {.s = st->slicer, .fn = fn, .ctx = ctx};
    oq_arena_init(&p.arena, &st->slicer->env->alloc);
    onq_code rc = ONQ_OK;
    for (size_t i = 0; i < n_names && rc == ONQ_OK; i++) {
        const uint32_t v = oq_slicer_value(p.s, names[i]);
        assert(v != OQ_NO_VALUE);
        if (!OQ_PUSH(&p.arena, &p.wanted, v))
            rc = oq_fail_nomem(err);
    }
    if (rc == ONQ_OK)
        rc = go(st, stop, &p, err);
    oq_arena_release(&p.arena);
    return rc;
}

/* ---- the way ---- */

static uint64_t constants_of(const oq_slicer *s, uint32_t node) {
    uint64_t sum = 0;
    for (size_t i = 0; i < s->reads[node].n; i++) {
        const oq_tensor *t = s->ix.values.v[s->reads[node].v[i]].init;
        uint64_t bytes = 0;
        if (t != NULL && oq_tensor_bytes(t, &bytes, NULL) == ONQ_OK)
            sum += bytes;
    }
    return sum;
}

/* A node to halt at wherever the constants since the last one, or the last stop, are enough. */
static onq_code find_way(oq_stepper *st, const bool *needed, onq_error *err) {
    oq_slicer *s = st->slicer;
    const uint64_t most = st->o.at_once > 0 ? st->o.at_once : AT_ONCE;
    uint64_t sum = 0;
    bool *is_stop = OQ_NEW_ARRAY(&s->arena, bool, s->n_nodes + 1);
    OQ_TRY_ALLOC(is_stop != NULL, err);
    for (size_t k = 0; k < st->o.n_stops; k++)
        is_stop[st->o.stops[k]] = true;
    for (uint32_t p = 0; p < s->n_nodes; p++) {
        const uint32_t node = s->order[p];
        const uint64_t own = needed[node] ? constants_of(s, node) : 0;
        const bool halts = s->varies[node] && needed[node] && sum > 0 && sum + own > most;
        if (halts && !is_stop[node] && !OQ_PUSH(&s->arena, &st->way, node))
            return oq_fail_nomem(err);
        sum = is_stop[node] || halts ? own : sum + own;
    }
    return ONQ_OK;
}

/* ---- the whole ---- */

size_t oq_stepper_samples(const oq_stepper *st) {
    return st->slicer->n_samples;
}

/* Of the inputs those that a stop needs. */
static onq_code load(oq_stepper *st, oq_source *source, onq_error *err) {
    oq_slicer *s = st->slicer;
    oq_slice_walk needed;
    const bool *none = oq_slicer_at_hand(s, OQ_EVERY_PLACE, &s->arena);
    OQ_TRY_ALLOC(none != NULL, err);
    OQ_TRY(find_needed(st, 0, none, &s->arena, &needed, err));
    OQ_TRY(find_way(st, needed.nodes, err));
    OQ_TRY(oq_source_measure(source, err)); /* a stream does not say how many it has */
    OQ_TRY(oq_slicer_load(s, source, oq_source_count(source), st->o.memory, needed.values, err));
    return s->n_samples > 0
               ? ONQ_OK
               : oq_fail(err, ONQ_E_READ, "%s: there are no samples", oq_source_text(source));
}

onq_code oq_stepper_new(const oq_stepper_options *o, oq_source *source, oq_stepper **out,
                        onq_error *err) {
    const onq_env *env = o->slice.model->env;
    oq_stepper *st = oq_calloc(&env->alloc, 1, sizeof *st);
    OQ_TRY_ALLOC(st != NULL, err);
    st->o = *o;
    onq_code rc = oq_slicer_open(&o->slice, &st->slicer, err);
    if (rc == ONQ_OK)
        rc = load(st, source, err);
    if (rc == ONQ_OK) {
        *out = st;
        return ONQ_OK;
    }
    oq_slicer_close(st->slicer);
    oq_free(&env->alloc, st, sizeof *st);
    return rc;
}

void oq_stepper_free(oq_stepper *st) {
    if (st == NULL)
        return;
    const onq_allocator *alloc = &st->slicer->env->alloc;
    oq_slicer_close(st->slicer);
    oq_free(alloc, st, sizeof *st);
}
