/*
 * summary_quant.c — what is quantized in a model, and what could be. See summary.h.
 *
 * Tables tell how an operator is quantized and in which slots its weight and the weight's
 * parameters stand. Which modes know a float operator is the quantizer's business: the caller says.
 */
#include "onnx/attr.h"
#include "onnx/summary.h"
#include "onnx/summary_parts.h"
#include "onnx/tensor.h"

const char *oq_granularity_name(oq_granularity g) {
    static const char *const names[] = {"per tensor", "per channel", "per block"};
    return names[g];
}

const char *oq_quant_mode_name(oq_quant_mode m) {
    static const char *const names[] = {"static", "dynamic", "nbits"};
    return names[m];
}

typedef enum how { QLINEAR, INTEGER, WEIGHT_ONLY } how;

typedef struct quant_op {
    const char *op_type;
    how how;
    int weight, param; /* slots: the weight, and its scale or zero point; -1: none */
} quant_op;

static const quant_op quant_ops[] = {
    {"QLinearConv", QLINEAR, 3, 4},
    {"QLinearMatMul", QLINEAR, 3, 4},
    {"QGemm", QLINEAR, 3, 4},
    {"QAttention", QLINEAR, 1, 4},
    {"QEmbedLayerNormalization", QLINEAR, 2, -1},
    {"DynamicQuantizeLinear", INTEGER, -1, -1},
    {"MatMulInteger", INTEGER, 1, 3},
    {"MatMulInteger16", INTEGER, 1, -1},
    {"MatMulIntegerToFloat", INTEGER, 1, 3},
    {"ConvInteger", INTEGER, 1, 3},
    {"DynamicQuantizeMatMul", INTEGER, 1, 2},
    {"DynamicQuantizeLSTM", INTEGER, 1, 8},
    {"MatMulNBits", WEIGHT_ONLY, 1, -1},
    {"MatMulBnb4", WEIGHT_ONLY, 1, -1},
    {"GatherBlockQuantized", WEIGHT_ONLY, 0, -1},
};

/* Operators with weights: the slot that must be a constant for all but the static mode, and further
 * slots (0: none) whose constants are quantized with it. */
typedef struct weighted_op {
    const char *op_type;
    int slot, more[2];
} weighted_op;

static const weighted_op weighted_ops[] = {
    {"Conv", 1, {0, 0}},      {"ConvTranspose", 1, {0, 0}},
    {"Gemm", 1, {0, 0}},      {"MatMul", 1, {0, 0}},
    {"Attention", 1, {0, 0}}, {"LSTM", 1, {2, 0}},
    {"Gather", 0, {0, 0}},    {"EmbedLayerNormalization", 2, {3, 4}},
};

static const weighted_op *find_weighted(oq_str op_type) {
    for (size_t i = 0; i < OQ_COUNT(weighted_ops); i++) {
        if (oq_str_is(op_type, weighted_ops[i].op_type))
            return &weighted_ops[i];
    }
    return NULL;
}

static oq_str input_at(const oq_node *n, int slot) {
    return slot >= 0 && (size_t)slot < n->input.n ? n->input.v[slot] : (oq_str){NULL, 0};
}

static bool known_domain(const oq_node *n) {
    return oq_domain_is_onnx(n->domain) || oq_str_is(n->domain, "com.microsoft");
}

/* By the number of values of the scale or zero point. */
static oq_granularity granularity(const oq_node *n, const oq_tensor *param) {
    if (oq_attr_int(n, "block_size", 0) > 0)
        return OQ_PER_BLOCK;
    uint64_t count = 1;
    if (param != NULL && oq_tensor_count(param, &count, NULL) != ONQ_OK)
        count = 1;
    return count > 1 ? OQ_PER_CHANNEL : OQ_PER_TENSOR;
}

static size_t type_index(int64_t number) {
    return oq_dtype_find(number) != NULL ? (size_t)number : OQ_UNDEFINED;
}

/* QuantizeLinear and DequantizeLinear. Of an activation the pair counts once, at QuantizeLinear; a
 * constant that is only dequantized counts as a weight. */
static void count_qdq(oq_summary *s, const oq_index *ix, const oq_node *n) {
    const bool quantize = oq_str_is(n->op_type, "QuantizeLinear");
    const oq_tensor *x = oq_index_constant(ix, input_at(n, 0));
    const oq_tensor *scale = oq_index_constant(ix, input_at(n, 1));
    const oq_tensor *zero = oq_index_constant(ix, input_at(n, 2));
    const oq_granularity g = granularity(n, scale);
    if (quantize) {
        s->quant.quantize++;
        int64_t type = oq_attr_int(n, "output_dtype", OQ_UNDEFINED);
        if (zero != NULL)
            type = zero->data_type.v;
        else if (type == OQ_UNDEFINED)
            type = OQ_UINT8;
        uint64_t(*to)[OQ_GRANULARITY_COUNT] = x != NULL ? s->quant.weights : s->quant.activations;
        to[type_index(type)][g]++;
    } else {
        s->quant.dequantize++;
        if (x != NULL)
            s->quant.weights[type_index(x->data_type.v)][g]++;
    }
}

static onq_code count_weight_only(oq_summary_walk *w, const oq_node *n, onq_error *err) {
    oq_quantized *q = &w->s->quant;
    const oq_weight_only found = {
        .op_type = n->op_type,
        .bits = oq_attr_int(n, "bits", 4), /* the operators' default */
        .block_size = oq_attr_int(n, "block_size", 0),
        .count = 1,
    };
    q->weight_only++;
    for (size_t i = 0; i < q->only.n; i++) {
        oq_weight_only *o = &q->only.v[i];
        if (oq_str_eq(o->op_type, found.op_type) && o->bits == found.bits &&
            o->block_size == found.block_size) {
            o->count++;
            return ONQ_OK;
        }
    }
    /* A hostile model may hold any number of different ones: the rest joins the last. */
    if (q->only.n >= 64) {
        q->only.v[63].count++;
        return ONQ_OK;
    }
    return OQ_PUSH(w->arena, &q->only, found) ? ONQ_OK : oq_fail_nomem(err);
}

/* True if the node is a quantized one. */
static bool count_quantized(oq_summary_walk *w, const oq_index *ix, const oq_node *n, onq_code *rc,
                            onq_error *err) {
    oq_quantized *q = &w->s->quant;
    if (oq_str_is(n->op_type, "QuantizeLinear") || oq_str_is(n->op_type, "DequantizeLinear")) {
        count_qdq(w->s, ix, n);
        return true;
    }
    for (size_t i = 0; i < OQ_COUNT(quant_ops); i++) {
        const quant_op *op = &quant_ops[i];
        if (!oq_str_is(n->op_type, op->op_type))
            continue;
        if (op->how == WEIGHT_ONLY) {
            *rc = count_weight_only(w, n, err);
            return true;
        }
        if (op->how == QLINEAR)
            q->operators++;
        else
            q->integer++;
        const oq_tensor *x = oq_index_constant(ix, input_at(n, op->weight));
        const oq_tensor *param = oq_index_constant(ix, input_at(n, op->param));
        if (x != NULL)
            q->weights[type_index(x->data_type.v)][granularity(n, param)]++;
        return true;
    }
    if (oq_str_starts(n->op_type, OQ_S("QLinear")) || oq_str_starts(n->op_type, OQ_S("QOrdered"))) {
        q->operators++;
        return true;
    }
    return false;
}

static bool comes_quantized(const oq_index *ix, oq_str name) {
    for (; ix != NULL && name.n != 0; ix = ix->parent) {
        const oq_node *p = oq_index_producer(ix, name);
        if (p != NULL)
            return oq_str_is(p->op_type, "DequantizeLinear");
    }
    return false;
}

/* MatMulNBits takes a constant matrix. */
static bool fits_nbits(const oq_tensor *weight) {
    return weight != NULL && weight->dims.n == 2;
}

/* Adds the bytes of a weight, once for each mode. */
static onq_code count_bytes(oq_summary_walk *w, oq_quant_mode mode, const oq_index *ix, oq_str name,
                            onq_error *err) {
    const oq_tensor *weight = oq_index_constant(ix, name);
    if (weight == NULL || !oq_dtype_is_float(weight->data_type.v) ||
        oq_map_has(&w->counted[mode], name))
        return ONQ_OK;
    uint64_t bytes = 0;
    OQ_TRY(oq_tensor_bytes(weight, &bytes, err));
    w->s->can[mode].weight_bytes += bytes;
    return oq_map_put(&w->counted[mode], name, 1) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code count_can(oq_summary_walk *w, oq_quant_mode mode, const oq_index *ix,
                          const oq_node *n, const weighted_op *op, onq_error *err) {
    oq_quantizable *can = &w->s->can[mode];
    can->nodes++;
    /* Few operator types: a search will do. */
    size_t at = 0;
    while (at < can->ops.n && !oq_str_eq(can->ops.v[at].op_type, n->op_type))
        at++;
    if (at < can->ops.n) {
        can->ops.v[at].count++;
    } else {
        const oq_op_count fresh = {OQ_S(""), n->op_type, 1};
        if (!OQ_PUSH(w->arena, &can->ops, fresh))
            return oq_fail_nomem(err);
    }
    if (op == NULL)
        return ONQ_OK;
    OQ_TRY(count_bytes(w, mode, ix, input_at(n, op->slot), err));
    for (size_t i = 0; i < OQ_COUNT(op->more); i++) {
        if (op->more[i] != 0)
            OQ_TRY(count_bytes(w, mode, ix, input_at(n, op->more[i]), err));
    }
    return ONQ_OK;
}

static onq_code count_float(oq_summary_walk *w, const oq_index *ix, const oq_node *n,
                            onq_error *err) {
    const unsigned modes = w->modes != NULL ? w->modes(n->op_type) : 0;
    if (modes == 0)
        return ONQ_OK;
    const weighted_op *op = find_weighted(n->op_type);
    const oq_str name = input_at(n, op != NULL ? op->slot : -1);
    const oq_tensor *weight = oq_index_constant(ix, name);
    if (weight != NULL && !oq_dtype_is_float(weight->data_type.v))
        return ONQ_OK;
    if (comes_quantized(ix, input_at(n, 0)) || comes_quantized(ix, name))
        return ONQ_OK;
    for (int mode = 0; mode < OQ_MODE_COUNT; mode++) {
        if ((modes & (1u << mode)) == 0)
            continue;
        /* A product of two activations can be quantized only where both have a range. */
        if (op != NULL && weight == NULL && mode != OQ_MODE_STATIC)
            continue;
        if (mode == OQ_MODE_NBITS && !fits_nbits(weight))
            continue;
        if (oq_str_is(n->op_type, "Gather") && weight == NULL)
            continue;
        OQ_TRY(count_can(w, (oq_quant_mode)mode, ix, n, op, err));
    }
    return ONQ_OK;
}

onq_code oq_summary_quant_node(oq_summary_walk *w, const oq_index *ix, const oq_node *n,
                               onq_error *err) {
    if (!known_domain(n))
        return ONQ_OK;
    onq_code rc = ONQ_OK;
    if (count_quantized(w, ix, n, &rc, err))
        return rc;
    return count_float(w, ix, n, err);
}
