/*
 * nb_sort.c — the order of nodes after rtn and k_quant.
 *
 * ONNXModel.topological_sort of the reference's neural_compressor starts with the readers of the
 * graph's inputs and with nodes that read constants only, and lets nodes that come too early wait.
 * It knows nodes by their names, fails for a graph input that nothing reads, and loses nodes that
 * share a name; in such cases the order here is a stable topological one.
 */
#include "quantize/nbits/nb_run.h"

#include "onnx/tidy.h"

typedef struct sorter {
    const oq_index *ix;
    oq_arena *arena;
    OQ_VEC(uint32_t) queue, wait;
    size_t head;
    bool *done, *waits;
    size_t *queued, *missing; /* by node: times in the queue; inputs that are not made yet */
    uint32_t *order;
    size_t n_done;
} sorter;

static bool enqueue(sorter *s, uint32_t node) {
    s->queued[node]++;
    return OQ_PUSH(s->arena, &s->queue, node);
}

static bool push_users(sorter *s, const oq_value *v) {
    for (size_t i = 0; i < v->uses.n; i++)
        if (v->uses.v[i].slot != OQ_SLOT_INNER && !enqueue(s, v->uses.v[i].node))
            return false;
    return true;
}

/* Adds `change` to what the readers of the node's outputs miss. */
static void count_missing(const sorter *s, uint32_t node, int change) {
    const oq_node *n = s->ix->graph->node.v[node];
    for (size_t k = 0; k < n->output.n; k++) {
        const oq_value *v = n->output.v[k].n > 0 ? oq_index_find(s->ix, n->output.v[k]) : NULL;
        for (size_t u = 0; v != NULL && u < v->uses.n; u++)
            if (v->uses.v[u].slot != OQ_SLOT_INNER)
                s->missing[v->uses.v[u].node] += (size_t)change;
    }
}

/* Readers of inputs, then nodes that read neither inputs nor other nodes. False: out of memory. */
static bool begin(sorter *s, bool *fits) {
    const oq_graph *g = s->ix->graph;
    *fits = true;
    for (size_t i = 0; i < g->input.n; i++) {
        const oq_value *v = oq_index_find(s->ix, g->input.v[i]->name);
        const size_t before = s->queue.n;
        if (v == NULL || !push_users(s, v))
            return false;
        *fits &= s->queue.n > before;
    }
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        bool given = true;
        for (size_t k = 0; k < n->input.n; k++) {
            const oq_value *v = n->input.v[k].n > 0 ? oq_index_find(s->ix, n->input.v[k]) : NULL;
            given &= v == NULL || (v->producer == OQ_NO_NODE && !v->is_input);
        }
        if (given && !enqueue(s, (uint32_t)i))
            return false;
        count_missing(s, (uint32_t)i, 1);
    }
    return true;
}

static bool finish_node(sorter *s, uint32_t i) {
    const oq_node *n = s->ix->graph->node.v[i];
    if (!s->done[i]) {
        s->done[i] = true;
        s->order[s->n_done++] = i;
        count_missing(s, i, -1);
    }
    for (size_t k = 0; k < n->output.n; k++) {
        const oq_value *v = n->output.v[k].n > 0 ? oq_index_find(s->ix, n->output.v[k]) : NULL;
        /* Which of the readers are queued is asked before any of them is added. */
        const size_t end = s->queue.n;
        for (size_t u = 0; v != NULL && u < v->uses.n; u++) {
            const uint32_t node = v->uses.v[u].node;
            if (v->uses.v[u].slot == OQ_SLOT_INNER || s->done[node] || s->queued[node] > 0)
                continue;
            if (!OQ_PUSH(s->arena, &s->queue, node))
                return false;
        }
        for (size_t at = end; at < s->queue.n; at++)
            s->queued[s->queue.v[at]]++;
    }
    return true;
}

/* False: out of memory. */
static bool sort(sorter *s) {
    while (s->head < s->queue.n) {
        const uint32_t i = s->queue.v[s->head++];
        s->queued[i]--;
        if (s->missing[i] > 0) {
            if (!s->waits[i] && !OQ_PUSH(s->arena, &s->wait, i))
                return false;
            s->waits[i] = true;
            continue;
        }
        if (!finish_node(s, i))
            return false;
        if (s->head < s->queue.n)
            continue;
        for (size_t k = 0; k < s->wait.n; k++) {
            s->waits[s->wait.v[k]] = false;
            if (!enqueue(s, s->wait.v[k]))
                return false;
        }
        s->wait.n = 0;
    }
    return true;
}

/* True if every node has a name of its own. */
static bool has_names(const oq_graph *g, oq_arena *scratch, bool *fits) {
    oq_map names;
    oq_map_init(&names, scratch);
    *fits = true;
    for (size_t i = 0; i < g->node.n; i++) {
        *fits &= !oq_map_has(&names, g->node.v[i]->name);
        if (!oq_map_put(&names, g->node.v[i]->name, (uint32_t)i))
            return false;
    }
    return true;
}

static onq_code sort_by_names(oq_graph *g, oq_arena *scratch, bool *sorted, onq_error *err) {
    oq_index ix;
    bool fits = false;
    *sorted = false;
    OQ_TRY(oq_index_build(&ix, scratch, g, NULL, err));
    const size_t n = g->node.n;
    sorter s = {.ix = &ix,
                .arena = scratch,
                .done = OQ_NEW_ARRAY(scratch, bool, n + 1),
                .waits = OQ_NEW_ARRAY(scratch, bool, n + 1),
                .queued = OQ_NEW_ARRAY(scratch, size_t, n + 1),
                .missing = OQ_NEW_ARRAY(scratch, size_t, n + 1),
                .order = OQ_NEW_ARRAY(scratch, uint32_t, n + 1)};
    oq_node **nodes = OQ_NEW_ARRAY(scratch, oq_node *, n + 1);
    if (s.done == NULL || s.waits == NULL || s.queued == NULL || s.missing == NULL ||
        s.order == NULL || nodes == NULL || !has_names(g, scratch, &fits))
        return oq_fail_nomem(err);
    if (!fits)
        return ONQ_OK;
    OQ_TRY_ALLOC(begin(&s, &fits), err);
    if (!fits)
        return ONQ_OK;
    OQ_TRY_ALLOC(sort(&s), err);
    if (s.n_done != n)
        return ONQ_OK;
    for (size_t i = 0; i < n; i++)
        nodes[i] = g->node.v[s.order[i]];
    if (n > 0)
        memcpy(g->node.v, nodes, n * sizeof *nodes);
    *sorted = true;
    return ONQ_OK;
}

onq_code oq_nb_sort(oq_model *m, oq_graph *g, onq_error *err) {
    oq_arena scratch;
    bool sorted = false;
    oq_arena_init(&scratch, &m->env->alloc);
    const onq_code rc = sort_by_names(g, &scratch, &sorted, err);
    oq_arena_release(&scratch);
    OQ_TRY(rc);
    return oq_model_sort_inner(m, g, err); /* changes nothing where the order is valid */
}
