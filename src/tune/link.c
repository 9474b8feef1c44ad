/*
 * link.c — what the outputs of a model went through last (score.h).
 */
#include "onnx/graph.h"
#include "onnx/operators.h"
#include "tune/score.h"

#define MAX_STEPS 16 /* nodes that only move values before an output */

static bool is_one_of(oq_str op, const char *const *names) {
    for (; *names != NULL; names++)
        if (oq_str_is(op, *names))
            return true;
    return false;
}

static bool moves_values(oq_str op) {
    static const char *const names[] = {"Identity",  "Reshape", "Squeeze", "Unsqueeze", "Flatten",
                                        "Transpose", "Cast",    "Slice",   NULL};
    return is_one_of(op, names);
}

/* The node that computes an output's values, or NULL. */
static const oq_node *last_node(const oq_index *ix, oq_str name) {
    const oq_node *n = oq_index_producer(ix, name);
    for (int i = 0; i < MAX_STEPS && n != NULL && moves_values(n->op_type); i++)
        n = n->input.n > 0 ? oq_index_producer(ix, n->input.v[0]) : NULL;
    return n;
}

/* A linear operator, or an Add after one: what a classifier without Softmax ends with. */
static bool is_linear(const oq_index *ix, const oq_node *n) {
    static const char *const names[] = {"Gemm", "MatMul", "FusedMatMul", "FusedGemm", NULL};
    for (size_t i = 0; n != NULL && oq_str_is(n->op_type, "Add") && i < n->input.n; i++) {
        const oq_node *before = oq_index_producer(ix, n->input.v[i]);
        if (before != NULL && is_one_of(before->op_type, names))
            return true;
    }
    return n != NULL && is_one_of(n->op_type, names);
}

onq_code oq_link_find(oq_model *m, oq_arena *a, const oq_link **links, bool *classes,
                      onq_error *err) {
    static const char *const integers[] = {"ArgMax", "ArgMin", "TopK", NULL};
    oq_index ix;
    oq_graph *g = m->proto->graph;
    oq_link *v = OQ_NEW_ARRAY(a, oq_link, g->output.n + 1);
    if (v == NULL)
        return oq_fail_nomem(err);
    OQ_TRY(oq_index_build(&ix, a, g, NULL, err));
    *classes = false;
    for (size_t i = 0; i < g->output.n; i++) {
        const oq_node *n = last_node(&ix, g->output.v[i]->name);
        const oq_str op = n != NULL ? n->op_type : OQ_S("");
        if (oq_str_is(op, "Softmax"))
            v[i] = OQ_LINK_SOFTMAX;
        else if (oq_str_is(op, "Sigmoid"))
            v[i] = OQ_LINK_SIGMOID;
        if (i == 0)
            *classes = v[i] == OQ_LINK_SOFTMAX || oq_str_is(op, "LogSoftmax") ||
                       is_linear(&ix, n) || is_one_of(op, integers);
    }
    *links = v;
    return ONQ_OK;
}
