/*
 * qdq_inner.c — graphs inside If, Loop and Scan (enable_subgraph), which the reference leaves
 * alone.
 *
 * An inner graph is quantized like the main one, after the graph around it. What differs is what it
 * takes from outside:
 *
 *   an activation   gets a pair in the inner graph
 *   a weight        its integers lie in the graph that holds it, once for all that read it the same
 *                   way; the DequantizeLinear is in the inner graph
 *   a bias          is copied, because its scale is the node's and its name is taken outside
 *   no range        a branch that no sample took: its nodes stay float
 */
#include "quantize/qdq/qdq_state.h"

#include "onnx/tidy.h"

static oq_qdq_tensor *find(const oq_qdq *q, oq_str name) {
    const uint32_t i = oq_map_find(&q->map, name);
    return i != OQ_MAP_NONE ? oq_qdq_at(q, i) : NULL;
}

void oq_qdq_look_outwards(oq_qdq *q) {
    for (size_t i = 0; i < q->tensors.n; i++) {
        oq_qdq_tensor *t = q->tensors.v[i];
        if (t->init != NULL || t->makers.n > 0 || t->is_input)
            continue;
        for (oq_qdq *o = q->outer; o != NULL; o = o->outer) {
            const oq_qdq_tensor *there = find(o, t->name);
            if (there == NULL || there->is_new || there->holder != NULL)
                continue;
            if (there->init != NULL) {
                t->init = there->init;
                t->holder = o;
            }
            if (there->init != NULL || there->makers.n > 0 || there->is_input)
                break;
        }
    }
}

static bool is_unseen(const oq_qdq *q, uint32_t tensor) {
    if (tensor == OQ_NO_TENSOR)
        return false;
    const oq_qdq_tensor *t = oq_qdq_at(q, tensor);
    return t->init == NULL && (t->elem_type == OQ_FLOAT || t->elem_type == OQ_FLOAT16) &&
           !oq_qdq_has_range(q, t);
}

void oq_qdq_leave_unseen(oq_qdq *q) {
    for (uint32_t i = 0; i < q->n_nodes; i++) {
        oq_qdq_node *n = &q->nodes[i];
        bool unseen = false;
        for (size_t k = 0; k < n->node->input.n; k++)
            unseen |= is_unseen(q, n->in[k]);
        for (size_t k = 0; k < n->node->output.n; k++)
            unseen |= is_unseen(q, n->out[k]);
        if (!n->chosen || !unseen)
            continue;
        n->chosen = false;
        n->why = "no sample ran it";
        n->by = OQ_BY_SAMPLES;
        q->plan->n_not_run++;
    }
}

static onq_code quantize_one(oq_qdq *outer, oq_graph *g, bool decide_only, onq_error *err) {
    oq_qdq q = {.model = outer->model,
                .graph = g,
                .outer = outer,
                .depth = outer->depth + 1,
                .run = outer->run,
                .config = outer->config,
                .overrides = outer->overrides,
                .ranges = outer->ranges,
                .shapes = outer->shapes,
                .plan = outer->plan,
                .outlook = outer->outlook,
                .arena = outer->arena,
                .names = outer->names,
                .opset = outer->opset,
                .contrib = outer->contrib};
    if (q.depth > OQ_MAX_GRAPH_DEPTH)
        return oq_fail(err, ONQ_E_LIMIT, "graphs are nested deeper than %d", OQ_MAX_GRAPH_DEPTH);
    OQ_TRY(oq_qdq_graph(&q, decide_only, err));
    outer->contrib |= q.contrib;
    return decide_only ? ONQ_OK : oq_model_sort_inner(q.model, g, err);
}

onq_code oq_qdq_inner(oq_qdq *q, bool decide_only, onq_error *err) {
    for (size_t i = 0; i < q->n_nodes; i++) {
        const oq_node *n = q->nodes[i].node;
        oq_graph_cursor at = {0};
        for (oq_graph *g; (g = oq_node_next_graph(n, &at)) != NULL;) {
            OQ_TRY_IN(quantize_one(q, g, decide_only, err), err, "in node '%.*s' (%.*s)",
                      OQ_STR(oq_node_label(n)), OQ_STR(n->op_type));
        }
    }
    return ONQ_OK;
}
