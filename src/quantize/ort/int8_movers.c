/*
 * int8_movers.c — finds the DequantizeLinear nodes that ONNX Runtime would follow with a pair.
 */
#include "quantize/ort/int8_movers.h"

#include "onnx/dtype.h"
#include "onnx/graph.h"
#include "onnx/operators.h"

#define FIRST_OPSET 21

typedef struct search {
    oq_model *m;
    oq_arena *scratch;
    oq_index ix;
    bool found;
} search;

/* The operators over which the runtime's QDQPropagation goes, through their first input. */
static bool is_mover(const search *s, oq_use use) {
    const oq_node *n = s->ix.graph->node.v[use.node];
    return use.slot == 0 && oq_op_traits_of(n->op_type)->carries_pairs;
}

static const oq_value *output_of(const search *s, oq_use use) {
    const oq_node *n = s->ix.graph->node.v[use.node];
    return n->output.n > 0 ? oq_index_find(&s->ix, n->output.v[0]) : NULL;
}

/* True for a QuantizeLinear, or movers that end in one. There the runtime goes backwards from the
 * QuantizeLinear and writes no attribute. */
static bool ends_quantized(const search *s, oq_use use) {
    for (size_t steps = 0; steps <= s->ix.graph->node.n; steps++) {
        if (oq_node_is_quantize(s->ix.graph->node.v[use.node]))
            return true;
        const oq_value *v = is_mover(s, use) ? output_of(s, use) : NULL;
        if (v == NULL || v->is_output || v->uses.n != 1)
            return false;
        use = v->uses.v[0];
    }
    return false;
}

/* True if the runtime's pair after this mover, or after one that reads it, will be converted. A
 * pair with several readers will not. The depth is that of a chain of movers, which is not deeper
 * than graphs may be nested or is taken for sound. */
static bool gets_a_pair(const search *s, oq_use mover, int depth) {
    const oq_value *v = output_of(s, mover);
    if (v == NULL || depth > OQ_MAX_GRAPH_DEPTH)
        return false;
    if (v->is_output || v->uses.n == 0)
        return v->is_output && v->uses.n == 0;
    if (v->uses.n == 1)
        return !ends_quantized(s, v->uses.v[0]);
    for (size_t i = 0; i < v->uses.n; i++)
        if (is_mover(s, v->uses.v[i]) && gets_a_pair(s, v->uses.v[i], depth + 1))
            return true;
    return false;
}

static bool is_int8_activation(const search *s, const oq_node *n) {
    if (!oq_node_is_dequantize(n) || n->domain.n != 0 || n->input.n < 3 || n->output.n != 1 ||
        oq_index_init(&s->ix, n->input.v[0]) != NULL)
        return false;
    const oq_tensor *zero = oq_index_init(&s->ix, n->input.v[2]);
    return zero != NULL && zero->data_type.v == OQ_INT8;
}

static onq_code mend_graph(void *ctx, oq_graph *g, onq_error *err) {
    search *s = ctx;
    OQ_TRY(oq_index_build(&s->ix, s->scratch, g, NULL, err));
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node *n = g->node.v[i];
        const oq_value *v = is_int8_activation(s, n) ? oq_index_find(&s->ix, n->output.v[0]) : NULL;
        for (size_t k = 0; v != NULL && k < v->uses.n; k++) {
            if (!is_mover(s, v->uses.v[k]) || !gets_a_pair(s, v->uses.v[k], 0))
                continue;
            n->domain = OQ_S("com.microsoft");
            s->found = true;
            break;
        }
    }
    return ONQ_OK;
}

onq_code oq_quant_mend_int8_movers(oq_model *m, onq_error *err) {
    if (oq_model_opset(m, OQ_S("")) < FIRST_OPSET)
        return ONQ_OK;
    OQ_SCRATCH(scratch, &m->env->alloc);
    search s = {.m = m, .scratch = &scratch};
    OQ_TRY(oq_walk_graphs(m->proto->graph, mend_graph, &s, err));
    if (s.found && oq_model_opset(m, OQ_S("com.microsoft")) <= 0)
        OQ_TRY(oq_model_set_opset(m, OQ_S("com.microsoft"), 1, err));
    return ONQ_OK;
}
