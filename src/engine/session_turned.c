/*
 * session_turned.c — products read a constant as it is stored, not a turned copy of it: see
 * session_graph.h.
 *
 *     MatMul(x, Transpose(w))  ->  FusedMatMul(x, w), transB
 *
 * The last layer of a decoder reads the table of its embeddings so. The runtime would compute the
 * Transpose once and keep what it gives, or compute it in every run: as many bytes as the table
 * has, beside those of the file.
 */
#include "engine/session_graph.h"

#include "onnx/attr.h"
#include "onnx/edit.h"
#include "onnx/operators.h"

/* A copy of fewer bytes is no burden. */
#define MIN_TURNED ((uint64_t)1 << 20)

typedef struct turning {
    oq_arena *arena;
    oq_graph *main;
    oq_map turned; /* outputs of Transpose nodes of the main graph, by index of the node */
    bool any;
} turning;

static bool is_large_matrix(const oq_tensor *t) {
    uint64_t bytes = 0;
    return t->data_type.v == OQ_FLOAT && t->dims.n == 2 &&
           oq_tensor_bytes(t, &bytes, NULL) == ONQ_OK && bytes >= MIN_TURNED;
}

static onq_code find_turned(turning *t, onq_error *err) {
    OQ_SCRATCH(scratch, t->arena->alloc);
    oq_index ix;
    OQ_TRY(oq_index_build(&ix, &scratch, t->main, NULL, err));
    for (size_t i = 0; i < t->main->node.n; i++) {
        const oq_node *n = t->main->node.v[i];
        const oq_value *v = oq_node_is_swap(n) ? oq_index_find(&ix, n->input.v[0]) : NULL;
        if (v != NULL && v->init != NULL && !v->is_input && is_large_matrix(v->init))
            OQ_TRY_ALLOC(oq_map_put(&t->turned, n->output.v[0], (uint32_t)i), err);
    }
    return ONQ_OK;
}

static onq_code read_stored(void *ctx, oq_graph *g, onq_error *err) {
    turning *t = ctx;
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        const uint32_t at = oq_node_is(n, "MatMul") && n->input.n == 2
                                ? oq_map_find(&t->turned, n->input.v[1])
                                : OQ_MAP_NONE;
        if (at == OQ_MAP_NONE)
            continue;
        n->op_type = OQ_S("FusedMatMul");
        n->domain = OQ_S("com.microsoft");
        n->input.v[1] = t->main->node.v[at]->input.v[0];
        OQ_TRY_ALLOC(oq_attr_set_int(t->arena, n, OQ_S("transB"), 1), err);
        t->any = true;
    }
    return ONQ_OK;
}

static onq_code import_contrib(oq_arena *a, oq_model_proto *proto, onq_error *err) {
    for (size_t i = 0; i < proto->opset_import.n; i++)
        if (oq_str_is(proto->opset_import.v[i]->domain, "com.microsoft"))
            return ONQ_OK;
    oq_opset *o = OQ_NEW(a, oq_opset);
    OQ_TRY_ALLOC(o != NULL && OQ_PUSH(a, &proto->opset_import, o), err);
    o->domain = OQ_S("com.microsoft");
    o->version = OQ_I64(1);
    return ONQ_OK;
}

/* The runtime would compute them all the same. */
static onq_code drop_unread(turning *t, oq_graph *g, onq_error *err) {
    OQ_SCRATCH(scratch, t->arena->alloc);
    oq_index ix;
    bool *drop = OQ_NEW_ARRAY(&scratch, bool, g->node.n + 1);
    OQ_TRY_ALLOC(drop != NULL, err);
    OQ_TRY(oq_index_build(&ix, &scratch, g, NULL, err));
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        const oq_value *v = oq_node_is_swap(n) ? oq_index_find(&ix, n->output.v[0]) : NULL;
        drop[i] =
            v != NULL && oq_map_has(&t->turned, n->output.v[0]) && v->uses.n == 0 && !v->is_output;
    }
    oq_graph_remove_nodes(g, drop);
    return ONQ_OK;
}

onq_code oq_graph_read_stored(oq_arena *a, oq_model_proto *proto, onq_error *err) {
    turning t = {.arena = a, .main = proto->graph};
    oq_map_init(&t.turned, a);
    OQ_TRY(find_turned(&t, err));
    OQ_TRY(oq_walk_graphs(proto->graph, read_stored, &t, err));
    if (!t.any)
        return ONQ_OK;
    OQ_TRY(drop_unread(&t, proto->graph, err));
    return import_contrib(a, proto, err);
}
