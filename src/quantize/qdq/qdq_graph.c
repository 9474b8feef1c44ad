/*
 * qdq_graph.c — a graph as indices: tensors with their users and makers, nodes with their wiring.
 */
#include "quantize/qdq/qdq_state.h"

#include "onnx/operators.h"

uint32_t oq_qdq_tensor_new(oq_qdq *q, oq_str name) {
    oq_qdq_tensor *t = OQ_NEW(q->arena, oq_qdq_tensor);
    const uint32_t number = (uint32_t)q->tensors.n;
    if (t == NULL)
        return OQ_NO_TENSOR;
    t->name = name;
    t->axis = -1;
    t->bounds = (oq_bounds){-INFINITY, INFINITY};
    t->dq_node = OQ_NO_NODE;
    t->turned = OQ_NO_TENSOR;
    t->share_from = OQ_NO_TENSOR;
    t->share_node = OQ_NO_NODE;
    if (!oq_map_put(&q->map, name, number) || !OQ_PUSH(q->arena, &q->tensors, t))
        return OQ_NO_TENSOR;
    return number;
}

/* Finds or adds; OQ_NO_TENSOR when out of memory. */
static uint32_t tensor_of(oq_qdq *q, oq_str name) {
    const uint32_t found = oq_map_find(&q->map, name);
    return found != OQ_MAP_NONE ? found : oq_qdq_tensor_new(q, name);
}

static onq_code add_node(oq_qdq *q, uint32_t number, onq_error *err) {
    oq_qdq_node *n = &q->nodes[number];
    n->node = q->graph->node.v[number];
    n->why = "";
    n->in = OQ_NEW_ARRAY(q->arena, uint32_t, n->node->input.n + 1);
    n->out = OQ_NEW_ARRAY(q->arena, uint32_t, n->node->output.n + 1);
    OQ_TRY_ALLOC(n->in != NULL && n->out != NULL, err);
    for (size_t i = 0; i < n->node->input.n; i++) {
        n->in[i] = OQ_NO_TENSOR;
        if (n->node->input.v[i].n == 0)
            continue;
        n->in[i] = tensor_of(q, n->node->input.v[i]);
        const oq_use use = {number, (uint32_t)i};
        if (n->in[i] == OQ_NO_TENSOR || !OQ_PUSH(q->arena, &oq_qdq_at(q, n->in[i])->uses, use))
            return oq_fail_nomem(err);
    }
    for (size_t i = 0; i < n->node->output.n; i++) {
        n->out[i] = OQ_NO_TENSOR;
        if (n->node->output.v[i].n == 0)
            continue;
        n->out[i] = tensor_of(q, n->node->output.v[i]);
        const oq_use use = {number, (uint32_t)i};
        if (n->out[i] == OQ_NO_TENSOR || !OQ_PUSH(q->arena, &oq_qdq_at(q, n->out[i])->makers, use))
            return oq_fail_nomem(err);
        /* By the type alone, as the reference does. */
        if (oq_op_traits_of(n->node->op_type)->kind == OQ_KIND_DEQUANTIZE)
            oq_qdq_at(q, n->out[i])->dq_node = number;
    }
    return ONQ_OK;
}

/* Marks tensors of the graph that one inside of it reads. A name that the subgraph defines itself
 * is marked too; that costs a Relu that could have gone, and such names are not valid ONNX. */
static onq_code see_inner(void *ctx, oq_graph *g, onq_error *err) {
    oq_qdq *q = ctx;
    (void)err;
    if (g == q->graph)
        return ONQ_OK;
    for (size_t i = 0; i < g->node.n; i++) {
        for (size_t k = 0; k < g->node.v[i]->input.n; k++) {
            const uint32_t t = oq_map_find(&q->map, g->node.v[i]->input.v[k]);
            if (t != OQ_MAP_NONE)
                oq_qdq_at(q, t)->inner_use = true;
        }
    }
    for (size_t i = 0; i < g->output.n; i++) {
        const uint32_t t = oq_map_find(&q->map, g->output.v[i]->name);
        if (t != OQ_MAP_NONE)
            oq_qdq_at(q, t)->inner_use = true;
    }
    return ONQ_OK;
}

static onq_code add_ends(oq_qdq *q, onq_error *err) {
    const oq_graph *g = q->graph;
    uint32_t t;
    for (size_t i = 0; i < g->initializer.n; i++) {
        if ((t = tensor_of(q, g->initializer.v[i]->name)) == OQ_NO_TENSOR)
            return oq_fail_nomem(err);
        if (oq_qdq_at(q, t)->init == NULL)
            oq_qdq_at(q, t)->init = g->initializer.v[i];
    }
    for (size_t i = 0; i < g->input.n; i++) {
        if ((t = tensor_of(q, g->input.v[i]->name)) == OQ_NO_TENSOR)
            return oq_fail_nomem(err);
        oq_qdq_at(q, t)->is_input = true;
    }
    for (size_t i = 0; i < g->output.n; i++) {
        if ((t = tensor_of(q, g->output.v[i]->name)) == OQ_NO_TENSOR)
            return oq_fail_nomem(err);
        oq_qdq_at(q, t)->is_output = true;
    }
    return ONQ_OK;
}

static void add_types(oq_qdq *q) {
    for (size_t i = 0; i < q->tensors.n; i++) {
        oq_qdq_tensor *t = q->tensors.v[i];
        if (t->init != NULL) {
            t->elem_type = t->init->data_type.v;
            t->has_info = true;
            continue;
        }
        const oq_vtype *type =
            oq_shapes_find(q->shapes, q->outer != NULL ? q->graph : NULL, t->name);
        t->has_info = type != NULL && type->kind != OQ_V_NONE;
        if (t->has_info && type->kind == OQ_V_TENSOR)
            t->elem_type = type->elem_type;
    }
}

onq_code oq_qdq_build(oq_qdq *q, onq_error *err) {
    q->n_nodes = q->graph->node.n;
    q->nodes = OQ_NEW_ARRAY(q->arena, oq_qdq_node, q->n_nodes + 1);
    OQ_TRY_ALLOC(q->nodes != NULL, err);
    OQ_TRY(oq_index_build(&q->index, q->arena, q->graph, q->outer != NULL ? &q->outer->index : NULL,
                          err));
    oq_map_init(&q->map, q->arena);
    OQ_TRY(add_ends(q, err));
    for (uint32_t i = 0; i < q->n_nodes; i++)
        OQ_TRY(add_node(q, i, err));
    OQ_TRY(oq_walk_graphs(q->graph, see_inner, q, err));
    if (q->outer != NULL)
        oq_qdq_look_outwards(q);
    add_types(q);
    return ONQ_OK;
}
