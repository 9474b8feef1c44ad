/*
 * nb_stream.c — see nb_stream.h.
 */
#include "quantize/nbits_method/nb_stream.h"

#include "onnx/operators.h"

#include <math.h>

static bool adds(const oq_node *n) {
    return n->input.n >= 2 &&
           (oq_node_is(n, "Add") || oq_str_is(n->op_type, "SkipSimplifiedLayerNormalization") ||
            oq_str_is(n->op_type, "SkipLayerNormalization"));
}

oq_str oq_nb_stream_of(const oq_index *ix, oq_str value) {
    for (;;) {
        const oq_value *v = oq_index_find(ix, value);
        if (v == NULL || v->uses.n != 1 || v->uses.v[0].slot > 1 || v->is_output)
            return (oq_str){0};
        const oq_node *n = ix->graph->node.v[v->uses.v[0].node];
        if (!adds(n))
            return (oq_str){0};
        const oq_str other = n->input.v[1 - v->uses.v[0].slot];
        if (oq_index_constant(ix, other) == NULL)
            return other;
        if (!oq_node_is(n, "Add"))
            return (oq_str){0};
        value = n->output.v[0]; /* that was a bias */
    }
}

void oq_nb_stream_weigh(const oq_nb_stream_row *row, float *inputs, float *outputs) {
    double power = 0;
    for (uint64_t i = 0; i < row->n; i++)
        power += (double)row->sum[i] * (double)row->sum[i];
    const float f = power > 0 && isfinite(power) ? (float)sqrt((double)row->n / power) : 1;
    for (uint64_t i = 0; i < row->k; i++)
        inputs[i] = f * row->x[i];
    for (uint64_t i = 0; i < row->n; i++)
        outputs[i] = f * (row->sum[i] - (row->stream != NULL ? row->stream[i] : 0));
}
