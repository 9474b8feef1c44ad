/*
 * qdq_ranges.c — ranges that operators imply (BaseQuantizer.adjust_tensor_ranges).
 *
 * The input of a Relu or Clip needs no more range than its output; Softmax makes 0 to 1.
 *
 * The runtime takes Identity and Dropout out, and makes one of the pairs on either side: the
 * Softmax before them gets the parameters of what comes after, and its 8-bit kernel counts wrong
 * where the values are flat, that is where their largest is not well above their mean. So it does
 * with the range of a Relu or Clip after it. There what comes after has the range of the Softmax
 * too. Nothing is lost by it where the values were rounded to that before.
 */
#include "onnx/operators.h"
#include "quantize/ort/ort_forms.h"
#include "quantize/qdq/qdq_state.h"

#define FLAT 1.8 /* the largest value, in means, below which the runtime's sums overflow */

static onq_code set_unit_range(oq_qdq *q, const oq_qdq_tensor *t, onq_error *err) {
    oq_range *r = oq_ranges_add(q->ranges, t->name);
    const oq_dtype real = t->elem_type == OQ_FLOAT16 ? OQ_FLOAT16 : OQ_FLOAT;
    if (r == NULL || !oq_num_make_one(&q->ranges->arena, &r->lowest, real, true, 0.0) ||
        !oq_num_make_one(&q->ranges->arena, &r->highest, real, true, 1.0))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

/* Where the number of values is not known, there are at least two. */
static bool is_flat(const oq_range *r, double n) {
    return r != NULL && oq_num_has(&r->highest) && r->highest.n == 1 && r->highest.v != NULL &&
           r->highest.v[0] * (n > 0.0 ? n : 2.0) < FLAT;
}

/* What Identity and Dropout pass on, and a Relu or Clip whose range its input takes over. */
static onq_code pass_on(oq_qdq *q, uint32_t tensor, double n, unsigned depth, onq_error *err) {
    const oq_qdq_tensor *t = oq_qdq_at(q, tensor);
    for (size_t i = 0; depth < OQ_MAX_GRAPH_DEPTH && i < t->uses.n; i++) {
        const uint32_t user = t->uses.v[i].node, out = oq_qdq_output(q, user, 0);
        const oq_op_traits *traits = oq_op_traits_of(oq_qdq_node_at(q, user)->op_type);
        if (t->uses.v[i].slot != 0 || out == OQ_NO_TENSOR ||
            !(traits->vanishes || (traits->clips && t->uses.n == 1)))
            continue;
        if (is_flat(oq_ranges_find(q->ranges, oq_qdq_at(q, out)->name), n))
            OQ_TRY(set_unit_range(q, oq_qdq_at(q, out), err));
        OQ_TRY(pass_on(q, out, n, depth + 1, err));
    }
    return ONQ_OK;
}

static onq_code adjust_unit(oq_qdq *q, uint32_t node, uint32_t out, onq_error *err) {
    const oq_dtype type = q->config->activation_type;
    if (type == OQ_FLOAT8E4M3FN) /* goes by the deviation, which a fixed range does not have */
        return ONQ_OK;
    OQ_TRY(set_unit_range(q, oq_qdq_at(q, out), err));
    if (type != OQ_INT8 && type != OQ_UINT8)
        return ONQ_OK;
    const oq_forms_shapes shapes = {q->shapes, q->outer != NULL ? q->graph : NULL, q->opset};
    const oq_node *n = oq_qdq_node_at(q, node);
    return pass_on(q, out, oq_forms_summed(n, &shapes, n->output.v[0]), 0, err);
}

static onq_code adjust_clipped(oq_qdq *q, uint32_t in, uint32_t out, onq_error *err) {
    const oq_qdq_tensor *t = oq_qdq_at(q, in);
    const oq_range *after = oq_ranges_find(q->ranges, oq_qdq_at(q, out)->name);
    if (t->uses.n != 1 || after == NULL || oq_ranges_find(q->ranges, t->name) == NULL)
        return ONQ_OK;
    /* What the caller, or another graph, reads keeps its range, and what another makes. */
    if (t->is_output || (q->outer != NULL && t->makers.n == 0 && !t->is_input) ||
        (q->config->enable_subgraph && t->inner_use))
        return ONQ_OK;
    return oq_ranges_copy(q->ranges, t->name, after) ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_qdq_adjust_ranges(oq_qdq *q, onq_error *err) {
    for (uint32_t i = 0; i < q->n_nodes; i++) {
        const oq_op_traits *traits = oq_op_traits_of(oq_qdq_node_at(q, i)->op_type);
        const uint32_t in = oq_qdq_input(q, i, 0), out = oq_qdq_output(q, i, 0);
        if (!q->nodes[i].chosen || in == OQ_NO_TENSOR || out == OQ_NO_TENSOR)
            continue;
        if (traits->unit_output)
            OQ_TRY(adjust_unit(q, i, out, err));
        if (traits->clips)
            OQ_TRY(adjust_clipped(q, in, out, err));
    }
    return ONQ_OK;
}
