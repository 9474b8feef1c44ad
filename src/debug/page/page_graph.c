/*
 * page_graph.c — the graph of a model as data for page_graph.js.
 *
 * A node is [operator, name, owner, computes, MACs, bytes of weights, inputs, outputs], a value
 * [name, type, shape, bytes, what it is, quantization]; inputs and outputs are indices of values,
 * `what it is` the sum of 1 (a constant), 2 (an input of the model) and 4 (an output). Values that
 * no node reads or makes are there too.
 */
#include "debug/page/report.h"

#include "onnx/graph.h"
#include "onnx/tensor.h"

static void count_json(oq_jw *w, double v) {
    if (v >= 0 && v < 9e15)
        oq_jw_uint(w, NULL, (uint64_t)v);
    else
        oq_jw_float(w, NULL, (float)v);
}

static void ends_json(oq_jw *w, const uint32_t *v, size_t n) {
    oq_jw_begin_array(w, NULL);
    for (size_t i = 0; i < n; i++)
        if (v[i] != OQ_PROFILE_NONE)
            oq_jw_uint(w, NULL, v[i]);
    oq_jw_end_array(w);
}

static void node_json(oq_jw *w, const oq_profile_node *n) {
    oq_jw_begin_array(w, NULL);
    oq_jw_str(w, NULL, n->node->op_type);
    oq_jw_str(w, NULL, oq_node_label(n->node));
    oq_jw_int(w, NULL, n->owner != OQ_PROFILE_NONE ? (int64_t)n->owner : -1);
    oq_jw_int(w, NULL, n->compute);
    count_json(w, n->macs);
    count_json(w, n->weights);
    ends_json(w, n->inputs, n->node->input.n);
    ends_json(w, n->outputs, n->node->output.n);
    oq_jw_end_array(w);
}

static void quantization_json(oq_jw *w, const oq_profile_value *v) {
    char text[160] = "";
    if (v->quantized != 0)
        snprintf(text, sizeof text, "%s %s%s%.*s%s%.*s", oq_dtype_name(v->quantized),
                 oq_granularity_name(v->granularity), v->scale.n > 0 ? ", scale " : "",
                 OQ_STR(v->scale), v->zero.n > 0 ? ", zero point " : "", OQ_STR(v->zero));
    oq_jw_cstr(w, NULL, text);
}

static void value_json(oq_jw *w, const oq_profile_value *v) {
    uint64_t bytes = 0;
    if (v->constant == NULL || oq_tensor_bytes(v->constant, &bytes, NULL) != ONQ_OK)
        bytes = v->bytes > 0 && v->bytes < 9e15 ? (uint64_t)v->bytes : 0;
    oq_jw_begin_array(w, NULL);
    oq_jw_str(w, NULL, v->name);
    oq_jw_str(w, NULL, v->type);
    oq_jw_str(w, NULL, v->shape);
    oq_jw_uint(w, NULL, bytes);
    oq_jw_int(w, NULL,
              (v->constant != NULL ? 1 : 0) + (v->is_input && v->graph == 0 ? 2 : 0) +
                  (v->is_output && v->graph == 0 ? 4 : 0));
    quantization_json(w, v);
    oq_jw_end_array(w);
}

void oq_page_graph(const oq_profile *p, oq_jw *w) {
    oq_jw_begin_object(w, "graph");
    oq_jw_begin_array(w, "computes");
    for (int i = 0; i < OQ_COMPUTE_COUNT; i++)
        oq_jw_cstr(w, NULL, oq_compute_name((oq_compute)i));
    oq_jw_end_array(w);
    oq_jw_begin_array(w, "nodes");
    for (size_t i = 0; i < p->nodes.n; i++)
        node_json(w, &p->nodes.v[i]);
    oq_jw_end_array(w);
    oq_jw_begin_array(w, "values");
    for (size_t i = 0; i < p->values.n; i++)
        value_json(w, &p->values.v[i]);
    oq_jw_end_array(w);
    oq_jw_end_object(w);
}
