/*
 * stamp.c — stamps, and the last check.
 */
#include "quantize/ort/stamp.h"

#include "onnx/attr.h"
#include "onnx/check/check.h"
#include "onnx/graph.h"
#include "onnx/operators.h"
#include "onnx/tensor.h"
#include "prepare/preprocess.h"
#include "shape/operands.h"

onq_code oq_stamp_producer(oq_model *m, onq_error *err) {
    oq_model_touch(m);
    m->proto->producer_name = OQ_S("onnx.quantize");
    m->proto->producer_version = OQ_S("0.1.0");
    /* Before IR 4 every initializer had to be a graph input; the new ones are not. */
    return oq_model_raise_ir(m, 4, err);
}

onq_code oq_stamp_inferred(oq_model *m, onq_error *err) {
    return oq_prep_mark_first(m, OQ_S("onnx.infer"), OQ_S("onnxruntime.quant"), err);
}

static onq_code reload(void *ctx OQ_UNUSED, oq_graph *g, onq_error *err) {
    for (size_t i = 0; i < g->initializer.n; i++) {
        oq_tensor *t = g->initializer.v[i];
        uint64_t size = 0;
        if (oq_tensor_is_external(t) || !t->raw_data.present)
            continue;
        OQ_TRY(oq_tensor_bytes(t, &size, err));
        if (oq_stamp_is_apart(size))
            t->data_location = OQ_I32(OQ_LOCATION_DEFAULT);
    }
    return ONQ_OK;
}

onq_code oq_stamp_reloaded(oq_model *m, onq_error *err) {
    return oq_walk_graphs(m->proto->graph, reload, NULL, err);
}

bool oq_stamp_is_preprocessed(const oq_model *m) {
    return oq_str_is(oq_model_metadata(m, OQ_S("onnx.quant.pre_process")), "onnxruntime.quant") ||
           oq_str_is(oq_model_metadata(m, OQ_S("onnx.infer")), "onnxruntime.tools.qnn.preprocess");
}

/* ---- the last check ---- */

static onq_code check_scale(oq_model *m, const oq_index *ix, const oq_node *n, oq_arena *a,
                            onq_error *err) {
    oq_tensor *t = n->input.n > 1 ? oq_index_init(ix, n->input.v[1]) : NULL;
    float *v;
    size_t count;
    /* Those that are made when they are written are checked then; those of blocks may be
     * negative. */
    if (t == NULL || oq_attr_int(n, "block_size", 0) != 0 || !oq_dtype_is_float(t->data_type.v) ||
        t->raw_data.producer != NULL)
        return ONQ_OK;
    OQ_TRY(oq_tensor_floats(m, t, a, &v, &count, err));
    for (size_t i = 0; i < count; i++)
        if (!isfinite(v[i]) || v[i] <= 0.0f)
            return oq_fail(err, ONQ_E_INVALID, "node '%.*s': scale '%.*s' has %g at %zu",
                           OQ_STR(oq_node_label(n)), OQ_STR(t->name), (double)v[i], i);
    return ONQ_OK;
}

onq_code oq_result_check(oq_model *m, onq_error *err) {
    oq_index ix;
    OQ_SCRATCH(scratch, &m->env->alloc);
    OQ_TRY(oq_model_check_index(m, &scratch, &ix, err));
    OQ_TRY(oq_operands_check_constants(m, &ix, err));
    for (size_t i = 0; i < ix.graph->node.n; i++) {
        const oq_node *n = ix.graph->node.v[i];
        if (oq_node_is_pair(n))
            OQ_TRY(check_scale(m, &ix, n, &scratch, err));
    }
    return ONQ_OK;
}
