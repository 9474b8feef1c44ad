/*
 * slicer.c — the graph by numbers, and the tensors that are kept. See slicer.h.
 */
#include "engine/slice/slicer.h"

#include "engine/sweep.h"
#include "onnx/operators.h"

#define ALIGNED 64 /* bytes, as the runtime wants tensors */

/* The dims and bytes of a tensor of numbers follow this in one block. Anything else has an
 * arena. */
struct oq_kept {
    oq_datum datum;
    oq_arena arena;
    size_t size; /* of the block */
};

/* ---- the graph ---- */

uint32_t oq_slicer_value(const oq_slicer *s, oq_str name) {
    return name.n > 0 ? oq_map_find(&s->ix.map, name) : OQ_NO_VALUE;
}
static_assert(OQ_MAP_NONE == OQ_NO_VALUE, "what a map does not have is no value");

oq_numbers oq_slicer_rewire(oq_slicer *s, uint32_t node, oq_numbers reads) {
    const oq_numbers before = s->reads[node];
    s->reads[node] = reads;
    return before;
}

static onq_code list_values(oq_slicer *s, onq_error *err) {
    for (uint32_t v = 0; v < s->n_values; v++) {
        const oq_value *value = &s->ix.values.v[v];
        for (size_t i = 0; i < value->uses.n; i++)
            OQ_TRY_ALLOC(OQ_PUSH(&s->arena, &s->reads[value->uses.v[i].node], v), err);
        if (value->producer != OQ_NO_NODE && !OQ_PUSH(&s->arena, &s->makes[value->producer], v))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

static bool varies(const oq_slicer *s, uint32_t node) {
    bool any = oq_op_traits_of(s->ix.graph->node.v[node]->op_type)->random;
    for (size_t k = 0; !any && k < s->reads[node].n; k++) {
        const uint32_t v = s->reads[node].v[k], from = s->ix.values.v[v].producer;
        any = oq_slicer_is_fed(s, v) || (from != OQ_NO_NODE && s->varies[from]);
    }
    return any;
}

typedef struct spot {
    uint32_t before; /* its own place; of a node that does not vary, that of its first reader */
    uint32_t place, node;
    bool varies;
} spot;

static int by_spot(const void *a, const void *b) {
    const spot *x = a, *y = b;
    if (x->before != y->before)
        return x->before < y->before ? -1 : 1;
    if (x->varies != y->varies)
        return x->varies ? 1 : -1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Puts nodes that only constants reach, such as the DequantizeLinear of a weight, right before the
 * first node that reads them, so that a part of the order has what belongs to it. */
static onq_code sink_constants(oq_slicer *s, onq_error *err) {
    const uint32_t n = (uint32_t)s->n_nodes;
    spot *spots = OQ_NEW_ARRAY(&s->arena, spot, n + 1);
    OQ_TRY_ALLOC(spots != NULL, err);
    for (uint32_t p = 0; p < n; p++) {
        const uint32_t node = s->order[p];
        s->place[node] = p;
        s->varies[node] = varies(s, node);
        spots[p] = (spot){s->varies[node] ? p : n, p, node, s->varies[node]};
    }
    for (uint32_t p = n; p-- > 0;) {
        const oq_numbers *reads = &s->reads[s->order[p]];
        for (size_t k = 0; k < reads->n; k++) {
            const uint32_t at = oq_slicer_made_at(s, reads->v[k]);
            if (at != OQ_NO_VALUE && !spots[at].varies && spots[p].before < spots[at].before)
                spots[at].before = spots[p].before;
        }
    }
    qsort(spots, n, sizeof *spots, by_spot);
    for (uint32_t p = 0; p < n; p++) {
        s->order[p] = spots[p].node;
        s->place[spots[p].node] = p;
    }
    return ONQ_OK;
}

static onq_code read_graph(oq_slicer *s, onq_error *err) {
    OQ_TRY(oq_index_build(&s->ix, &s->arena, s->o.proto->graph, NULL, err));
    OQ_TRY(oq_topo_order(&s->ix, &s->arena, &s->order, err));
    s->n_nodes = s->ix.graph->node.n;
    s->n_values = s->ix.values.n;
    s->place = OQ_NEW_ARRAY(&s->arena, uint32_t, s->n_nodes + 1);
    s->reads = OQ_NEW_ARRAY(&s->arena, oq_numbers, s->n_nodes + 1);
    s->makes = OQ_NEW_ARRAY(&s->arena, oq_numbers, s->n_nodes + 1);
    s->varies = OQ_NEW_ARRAY(&s->arena, bool, s->n_nodes + 1);
    s->kept = OQ_NEW_ARRAY(&s->arena, oq_kept **, s->n_values + 1);
    if (s->place == NULL || s->reads == NULL || s->makes == NULL || s->varies == NULL ||
        s->kept == NULL)
        return oq_fail_nomem(err);
    OQ_TRY(list_values(s, err));
    return sink_constants(s, err);
}

onq_code oq_slicer_open(const oq_slicer_options *o, oq_slicer **out, onq_error *err) {
    assert(o->engine != NULL && o->model != NULL && o->proto != NULL);
    assert(o->session.observer == NULL);
    const onq_allocator *alloc = &o->model->env->alloc;
    oq_slicer *s = oq_calloc(alloc, 1, sizeof *s);
    OQ_TRY_ALLOC(s != NULL, err);
    s->o = *o;
    s->env = o->model->env;
    oq_arena_init(&s->arena, alloc);
    const onq_code rc = read_graph(s, err);
    if (rc != ONQ_OK)
        oq_slicer_close(s);
    *out = rc == ONQ_OK ? s : NULL;
    return rc;
}

void oq_slicer_close(oq_slicer *s) {
    if (s == NULL)
        return;
    const onq_allocator *alloc = &s->env->alloc;
    for (uint32_t v = 0; s->kept != NULL && v < s->n_values; v++)
        oq_slicer_drop(s, v);
    oq_arena_release(&s->arena);
    oq_free(alloc, s, sizeof *s);
}

/* ---- keeping ---- */

static onq_code new_kept(const oq_slicer *s, const oq_datum *d, oq_kept **out, onq_error *err) {
    const onq_allocator *alloc = &s->env->alloc;
    const bool numbers = d->kind == OQ_DATUM_TENSOR && d->dtype != OQ_STRING;
    const size_t dims = numbers ? d->rank * sizeof *d->dims : 0;
    const uint64_t behind = numbers ? d->size_bytes : 0;
    uint64_t size;
    OQ_TRY_ALLOC(oq_add(sizeof(oq_kept) + dims + ALIGNED, behind, &size), err);
    oq_kept *k = oq_alloc(alloc, size);
    OQ_TRY_ALLOC(k != NULL, err);
    *k = (oq_kept){.datum = *d, .size = size};
    oq_arena_init(&k->arena, alloc);
    *out = k;
    if (!numbers)
        return oq_datum_copy(&k->arena, d, &k->datum, err);
    uint8_t *at = (uint8_t *)(k + 1);
    k->datum.dims = (const int64_t *)(void *)at;
    if (dims > 0)
        memcpy(at, d->dims, dims);
    at += dims;
    at += (ALIGNED - (uintptr_t)at % ALIGNED) % ALIGNED;
    k->datum.data = at;
    if (behind > 0)
        memcpy(at, d->data, behind);
    return ONQ_OK;
}

onq_code oq_slicer_keep(oq_slicer *s, uint32_t value, size_t sample, const oq_datum *d,
                        onq_error *err) {
    assert(sample < s->n_loaded && oq_slicer_kept(s, value, sample) == NULL);
    if (s->kept[value] == NULL)
        s->kept[value] = oq_calloc(&s->env->alloc, s->n_loaded, sizeof(oq_kept *));
    OQ_TRY_ALLOC(s->kept[value] != NULL, err);
    oq_kept **k = &s->kept[value][sample];
    const onq_code rc = new_kept(s, d, k, err);
    if (*k != NULL)
        s->bytes += (*k)->size + (*k)->arena.used;
    if (rc != ONQ_OK)
        oq_slicer_drop_one(s, value, sample);
    return rc;
}

const oq_datum *oq_slicer_kept(const oq_slicer *s, uint32_t value, size_t sample) {
    const oq_kept *k = s->kept[value] != NULL ? s->kept[value][sample] : NULL;
    return k != NULL ? &k->datum : NULL;
}

void oq_slicer_drop_one(oq_slicer *s, uint32_t value, size_t sample) {
    oq_kept *k = s->kept[value] != NULL ? s->kept[value][sample] : NULL;
    if (k == NULL)
        return;
    s->kept[value][sample] = NULL;
    s->bytes -= k->size + k->arena.used;
    oq_arena_release(&k->arena);
    oq_free(&s->env->alloc, k, k->size);
}

void oq_slicer_drop(oq_slicer *s, uint32_t value) {
    if (s->kept[value] == NULL)
        return;
    for (size_t i = 0; i < s->n_loaded; i++)
        oq_slicer_drop_one(s, value, i);
    oq_free(&s->env->alloc, s->kept[value], s->n_loaded * sizeof(oq_kept *));
    s->kept[value] = NULL;
}

void oq_slicer_drop_sample(oq_slicer *s) {
    assert(s->n_samples > 0);
    s->n_samples--;
    for (uint32_t v = 0; v < s->n_values; v++)
        oq_slicer_drop_one(s, v, s->n_samples);
}

/* ---- samples ---- */

typedef struct loading {
    oq_slicer *s;
    oq_ios ios;
    uint64_t memory;
    const bool *wanted;
} loading;

static bool has_room(void *ctx, uint64_t at) {
    const loading *l = ctx;
    return at < l->s->n_loaded && (at == 0 || l->s->bytes + l->s->bytes / at <= l->memory);
}

static onq_code load_sample(void *ctx, const oq_turn *t, onq_error *err) {
    const loading *l = ctx;
    for (size_t i = 0; i < l->ios.n; i++) {
        const uint32_t v = oq_slicer_value(l->s, l->ios.v[i].name);
        if (v != OQ_NO_VALUE && (l->wanted == NULL || l->wanted[v]))
            OQ_TRY(oq_slicer_keep(l->s, v, l->s->n_samples, &t->samples->inputs[i], err));
    }
    l->s->n_samples++;
    return ONQ_OK;
}

onq_code oq_slicer_load(oq_slicer *s, oq_source *source, size_t n, uint64_t memory,
                        const bool *wanted, onq_error *err) {
    loading l = {.s = s, .memory = memory, .wanted = wanted};
    const oq_sweep sweep = {.env = s->env,
                            .model = {.source = source},
                            .ctx = &l,
                            .more = has_room,
                            .run = load_sample};
    assert(s->n_loaded == 0);
    s->n_loaded = n;
    OQ_TRY(oq_model_inputs(s->o.model, &s->arena, &l.ios, err));
    return oq_sweep_run(&sweep, err);
}
