/*
 * topo.c — two orders of a graph's nodes: a stable topological one, and the reference's.
 */
#include "onnx/graph.h"

/* ---- stable order ---- */

/* A binary heap of node indices, smallest on top. */
typedef struct heap {
    uint32_t *v;
    size_t n;
} heap;

static void heap_push(heap *h, uint32_t x) {
    size_t i = h->n++;
    for (; i > 0 && h->v[(i - 1) / 2] > x; i = (i - 1) / 2)
        h->v[i] = h->v[(i - 1) / 2];
    h->v[i] = x;
}

static uint32_t heap_pop(heap *h) {
    const uint32_t top = h->v[0];
    const uint32_t last = h->v[--h->n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < h->n; i = child) {
        if (child + 1 < h->n && h->v[child + 1] < h->v[child])
            child++;
        if (h->v[child] >= last)
            break;
        h->v[i] = h->v[child];
    }
    h->v[i] = last;
    return top;
}

/* Names a node on a cycle: from any node left over, backwards over nodes left over, as often as
 * there are nodes, ends on one. */
static onq_code fail_cycle(const oq_index *ix, oq_arena *scratch, const uint32_t *waits,
                           onq_error *err) {
    const size_t n = ix->graph->node.n;
    uint32_t *before = OQ_NEW_ARRAY(scratch, uint32_t, n);
    OQ_TRY_ALLOC(before != NULL, err);
    uint32_t at = 0;
    for (size_t i = 0; i < ix->values.n; i++) {
        const oq_value *v = &ix->values.v[i];
        if (v->producer == OQ_NO_NODE || waits[v->producer] == 0)
            continue;
        for (size_t k = 0; k < v->uses.n; k++) {
            before[v->uses.v[k].node] = v->producer;
            at = v->uses.v[k].node;
        }
    }
    for (size_t i = 0; i < n; i++)
        at = before[at];
    const oq_node *node = ix->graph->node.v[at];
    return oq_fail(err, ONQ_E_INVALID,
                   "node '%.*s' (%.*s) is part of a cycle: its output leads back to its input",
                   OQ_STR(oq_node_label(node)), OQ_STR(node->op_type));
}

onq_code oq_topo_order(const oq_index *ix, oq_arena *scratch, uint32_t **order, onq_error *err) {
    assert(ix->graph != NULL);
    const oq_graph *g = ix->graph;
    const size_t n = g->node.n;
    uint32_t *out = OQ_NEW_ARRAY(scratch, uint32_t, n);
    uint32_t *waits = OQ_NEW_ARRAY(scratch, uint32_t, n); /* uses of outputs not yet made */
    heap ready = {OQ_NEW_ARRAY(scratch, uint32_t, n), 0};
    OQ_TRY_ALLOC(out != NULL && waits != NULL && ready.v != NULL, err);
    for (size_t i = 0; i < ix->values.n; i++) {
        const oq_value *v = &ix->values.v[i];
        for (size_t k = 0; v->producer != OQ_NO_NODE && k < v->uses.n; k++)
            waits[v->uses.v[k].node]++;
    }
    for (size_t i = 0; i < n; i++)
        if (waits[i] == 0)
            heap_push(&ready, (uint32_t)i);
    size_t done = 0;
    while (ready.n != 0) {
        const uint32_t i = heap_pop(&ready);
        const oq_node *node = g->node.v[i];
        out[done++] = i;
        for (size_t k = 0; k < node->output.n; k++) {
            const oq_value *v = oq_index_find(ix, node->output.v[k]);
            if (v == NULL || v->producer != i || v->producer_slot != k)
                continue;
            for (size_t u = 0; u < v->uses.n; u++)
                if (--waits[v->uses.v[u].node] == 0)
                    heap_push(&ready, v->uses.v[u].node);
        }
    }
    if (done != n)
        return fail_cycle(ix, scratch, waits, err);
    *order = out;
    return ONQ_OK;
}

/* ---- the reference's order ----
 *
 * ONNXModel.topological_sort counts for each node its non-empty inputs, appends nodes without
 * any, then takes away initializers and graph inputs in the order of their names, then outputs
 * of what is sorted. It knows nothing of names used inside subgraphs or of sparse initializers,
 * counts a name twice that occurs twice among a node's inputs, and takes it away once for each
 * list that provides it: a name that both an initializer and a node provide releases its users
 * early. All of that decides the order, so all of it is done here too. */

typedef struct ref_sort {
    oq_graph *g;
    oq_map map;            /* input name -> index in users */
    OQ_VEC(oq_i64s) users; /* nodes that take the name, once for each time they do */
    int64_t *waits;
    oq_node **out;
    size_t n_out;
} ref_sort;

static void ref_release(ref_sort *s, oq_str name) {
    const uint32_t at = oq_map_find(&s->map, name);
    if (at == OQ_MAP_NONE)
        return;
    const oq_i64s *users = &s->users.v[at];
    for (size_t i = 0; i < users->n; i++) {
        const int64_t node = users->v[i];
        if (--s->waits[node] == 0)
            s->out[s->n_out++] = s->g->node.v[node];
    }
}

static bool ref_add_use(ref_sort *s, oq_arena *a, oq_str name, size_t node) {
    uint32_t at = oq_map_find(&s->map, name);
    if (at == OQ_MAP_NONE) {
        at = (uint32_t)s->users.n;
        if (!OQ_PUSH(a, &s->users, (oq_i64s){0}) || !oq_map_put(&s->map, name, at))
            return false;
    }
    return OQ_PUSH(a, &s->users.v[at], (int64_t)node);
}

static bool ref_count(ref_sort *s, oq_arena *a) {
    for (size_t i = 0; i < s->g->node.n; i++) {
        oq_node *n = s->g->node.v[i];
        for (size_t k = 0; k < n->input.n; k++) {
            if (n->input.v[k].n == 0)
                continue;
            s->waits[i]++;
            if (!ref_add_use(s, a, n->input.v[k], i))
                return false;
        }
        if (s->waits[i] == 0)
            s->out[s->n_out++] = n;
    }
    return true;
}

static int compare_names(const void *a, const void *b) {
    return oq_str_cmp(*(const oq_str *)a, *(const oq_str *)b);
}

/* Initializers and inputs, each name once, in the order of their bytes (of their code points:
 * the same). */
static bool ref_release_given(ref_sort *s, oq_arena *a) {
    const oq_graph *g = s->g;
    const size_t n = g->initializer.n + g->input.n;
    oq_str *names = OQ_NEW_ARRAY(a, oq_str, n);
    if (names == NULL)
        return false;
    for (size_t i = 0; i < g->initializer.n; i++)
        names[i] = g->initializer.v[i]->name;
    for (size_t i = 0; i < g->input.n; i++)
        names[g->initializer.n + i] = g->input.v[i]->name;
    if (n != 0)
        qsort(names, n, sizeof *names, compare_names);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || !oq_str_eq(names[i], names[i - 1]))
            ref_release(s, names[i]);
    return true;
}

static onq_code ref_fail(const ref_sort *s, onq_error *err) {
    for (size_t i = 0; i < s->g->node.n; i++) {
        const oq_node *n = s->g->node.v[i];
        if (s->waits[i] > 0)
            return oq_fail(err, ONQ_E_INVALID,
                           "the graph cannot be sorted: node '%.*s' (%.*s) waits for an input that "
                           "nothing before it makes (a cycle or a missing tensor)",
                           OQ_STR(oq_node_label(n)), OQ_STR(n->op_type));
    }
    return oq_fail(err, ONQ_E_INTERNAL, "the graph cannot be sorted");
}

onq_code oq_topo_sort_reference(oq_model *m, oq_graph *g, onq_error *err) {
    const size_t n = g->node.n;
    OQ_SCRATCH(scratch, &m->env->alloc);
    ref_sort s = {.g = g,
                  .waits = OQ_NEW_ARRAY(&scratch, int64_t, n),
                  .out = OQ_NEW_ARRAY(&scratch, oq_node *, n)};
    oq_map_init(&s.map, &scratch);
    if (s.waits == NULL || s.out == NULL || !ref_count(&s, &scratch) ||
        !ref_release_given(&s, &scratch))
        return oq_fail_nomem(err);
    for (size_t i = 0; i < s.n_out; i++) {
        const oq_node *node = s.out[i];
        for (size_t k = 0; k < node->output.n; k++)
            ref_release(&s, node->output.v[k]);
    }
    if (s.n_out != n)
        return ref_fail(&s, err);
    oq_model_touch(m);
    if (n != 0)
        memcpy(g->node.v, s.out, n * sizeof *s.out);
    return ONQ_OK;
}
