/*
 * qdq_axes.c — channels that the runtime's 8-bit products do not take.
 *
 * A DequantizeLinear may have its scales along any axis, or in blocks. But the runtime fuses Conv,
 * Gemm and MatMul between 8-bit pairs into operators that take one scale, or one for each output
 * channel of a weight (of a matrix, where it is MatMul's). It does not look whether the scales it
 * finds are those: the model fails when it is run, or computes something else. So after all nodes
 * are marked
 *
 *   - a weight that two nodes read along different axes gets a copy for the second axis
 *   - a weight of MatMul that is not a matrix is quantized per tensor
 *   - where the user asked for such an axis, or for blocks, a warning names weight and node
 *
 * Other types are not fused, and stay as they are.
 */
#include "onnx/operators.h"
#include "quantize/qdq/qdq_state.h"

static bool is_8bit(oq_dtype type) {
    return type == OQ_INT8 || type == OQ_UINT8;
}

static oq_dtype type_of(const oq_qdq *q, uint32_t tensor, oq_dtype fallback) {
    const oq_tensor_override *o = oq_overrides_find(q->overrides, oq_qdq_at(q, tensor)->name);
    return o != NULL && o->channels.v[0].has_type ? o->channels.v[0].type : fallback;
}

/* True if the runtime will multiply integers here. */
static bool is_fused(const oq_qdq *q, uint32_t in, uint32_t weight) {
    return in != OQ_NO_TENSOR && weight != OQ_NO_TENSOR && oq_qdq_at(q, in)->marked &&
           oq_qdq_at(q, weight)->marked && oq_qdq_at(q, weight)->init != NULL &&
           oq_qdq_at(q, weight)->kind == OQ_QDQ_WEIGHT &&
           is_8bit(type_of(q, in, q->config->activation_type)) &&
           is_8bit(type_of(q, weight, q->config->weight_type));
}

/* True if the user chose the axis. */
static bool is_chosen(const oq_qdq *q, const oq_node *n, const oq_qdq_tensor *t) {
    int64_t axis;
    return oq_override_is_channel(oq_overrides_find(q->overrides, t->name)) ||
           oq_qconfig_axis(q->config, n->op_type, &axis);
}

/* A weight of MatMul that is not a matrix has no channels for the runtime. */
static bool has_channels(oq_product product, const oq_qdq_tensor *t) {
    return product != OQ_MATMUL || t->init->dims.n == 2;
}

/* Scales along `axis` that the fused operator takes for those of its channels, or refuses; one scale
 * is that of all. A Gemm whose counts of rows and columns differ is not fused with the wrong number
 * of scales. */
static bool is_harmed(oq_product product, const oq_qdq_tensor *t, int64_t axis) {
    const int64_t *dims = t->init->dims.v;
    const size_t rank = t->init->dims.n;
    if (t->axis < 0 || (has_channels(product, t) && (t->axis == axis || dims[t->axis] == 1)))
        return false;
    return product != OQ_GEMM || (rank == 2 && dims[0] == dims[1]);
}

static void warn_of_axis(const oq_qdq *q, const oq_node *n, const oq_qdq_tensor *t, int64_t axis) {
    oq_warn(q->model->env,
            "weight '%.*s' of node '%.*s' (%.*s) has its channels along axis %lld, but the "
            "runtime's 8-bit operator expects axis %lld: the model fails when it is run, or "
            "computes something else (use axis %lld, or exclude the node)",
            OQ_STR(t->name), OQ_STR(oq_node_label(n)), OQ_STR(n->op_type), (long long)t->axis,
            (long long)axis, (long long)axis);
}

/* The node reads a copy of its weight whose channels lie along another axis. */
static onq_code read_copy(oq_qdq *q, uint32_t node, uint32_t weight, int64_t axis, onq_error *err) {
    oq_qdq_tensor *t = oq_qdq_at(q, weight);
    if (t->turned == OQ_NO_TENSOR) {
        OQ_TRY(oq_qdq_copy_init(q, t, &t->turned, err));
        q->current = node;
        OQ_TRY(oq_qdq_weight_channel(q, t->turned, axis, err));
    }
    OQ_TRY(oq_qdq_rewire(q, weight, t->turned, node, err));
    for (size_t i = 0; i < q->biases.n; i++)
        if (q->biases.v[i].node == node && q->biases.v[i].weight == weight)
            q->biases.v[i].weight = t->turned;
    return ONQ_OK;
}

static onq_code settle_axis(oq_qdq *q, uint32_t node, oq_product product, onq_error *err) {
    const oq_node *n = oq_qdq_node_at(q, node);
    const uint32_t weight = oq_qdq_input(q, node, 1);
    oq_qdq_tensor *t = oq_qdq_at(q, weight);
    int64_t axis = 0;
    (void)oq_op_channel_axis(n, &axis);
    if (!is_harmed(product, t, axis))
        return ONQ_OK;
    if (is_chosen(q, n, t)) {
        warn_of_axis(q, n, t, axis);
        return ONQ_OK;
    }
    if (t->axis != axis && has_channels(product, t))
        return read_copy(q, node, weight, axis, err);
    t->axis = -1;
    return ONQ_OK;
}

static uint64_t block_of(const oq_qdq *q, const oq_qdq_tensor *t) {
    const oq_tensor_override *over = oq_overrides_find(q->overrides, t->name);
    return over != NULL && over->blocks != NULL ? over->blocks->block : q->config->block_size;
}

/* Blocks along the sums, more than one for each: MatMul takes none, Gemm is not fused. */
static void warn_of_blocks(const oq_qdq *q, const oq_node *n, const oq_qdq_tensor *t,
                           uint64_t block) {
    if (t->axis <= 0 && t->init->dims.n == 2 && (uint64_t)t->init->dims.v[0] <= block)
        return;
    oq_warn(q->model->env,
            "weight '%.*s' of node '%.*s' (%.*s) is quantized in blocks of %llu, which the "
            "runtime's 8-bit operator does not take: the model fails when it is run (use 4-bit "
            "weights or 16-bit activations, or leave BlockSize out)",
            OQ_STR(t->name), OQ_STR(oq_node_label(n)), OQ_STR(n->op_type),
            (unsigned long long)block);
}

onq_code oq_qdq_settle_axes(oq_qdq *q, onq_error *err) {
    for (uint32_t i = 0; i < q->n_nodes && !q->config->trained; i++) {
        const oq_node *n = oq_qdq_node_at(q, i);
        const oq_op_traits *traits = oq_op_traits_of(n->op_type);
        const uint32_t weight = oq_qdq_input(q, i, 1);
        if (!q->nodes[i].chosen || traits->product == OQ_NO_PRODUCT ||
            traits->form != OQ_FORM_FLOAT || !is_fused(q, oq_qdq_input(q, i, 0), weight))
            continue;
        const uint64_t block = block_of(q, oq_qdq_at(q, weight));
        if (block == 0)
            OQ_TRY(settle_axis(q, i, traits->product, err));
        else if (traits->product == OQ_MATMUL)
            warn_of_blocks(q, n, oq_qdq_at(q, weight), block);
    }
    return ONQ_OK;
}
