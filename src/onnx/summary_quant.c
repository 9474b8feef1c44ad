/*
 * summary_quant.c — what is quantized in a model, and what could be. See summary.h.
 *
 * operators.def says how an operator takes quantized values and in which slots its weight and the
 * weight's parameters are. Which modes know a float operator is the quantizer's business: the caller says.
 */
#include "onnx/attr.h"
#include "onnx/operators.h"
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
    const oq_op_traits *traits = oq_op_traits_of(n->op_type);
    if (traits->form == OQ_FORM_WEIGHT_ONLY) {
        *rc = count_weight_only(w, n, err);
        return true;
    }
    if (traits->form != OQ_FORM_FLOAT) {
        if (traits->form == OQ_FORM_QLINEAR)
            q->operators++;
        else
            q->integer++;
        const oq_tensor *x = oq_index_constant(ix, input_at(n, oq_op_slot(traits->weight)));
        const oq_tensor *param = oq_index_constant(ix, input_at(n, oq_op_slot(traits->param)));
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
                          const oq_node *n, onq_error *err) {
    const oq_op_traits *traits = oq_op_traits_of(n->op_type);
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
    for (int i = 0; traits->weight != 0 && i <= traits->more_weights; i++)
        OQ_TRY(count_bytes(w, mode, ix, input_at(n, oq_op_slot(traits->weight) + i), err));
    return ONQ_OK;
}

static onq_code count_float(oq_summary_walk *w, const oq_index *ix, const oq_node *n,
                            onq_error *err) {
    const unsigned modes = w->modes != NULL ? w->modes(n->op_type) : 0;
    if (modes == 0)
        return ONQ_OK;
    const oq_op_traits *traits = oq_op_traits_of(n->op_type);
    const oq_str name = input_at(n, oq_op_slot(traits->weight));
    const oq_tensor *weight = oq_index_constant(ix, name);
    if (weight != NULL && !oq_dtype_is_float(weight->data_type.v))
        return ONQ_OK;
    if (comes_quantized(ix, input_at(n, 0)) || comes_quantized(ix, name))
        return ONQ_OK;
    for (int mode = 0; mode < OQ_MODE_COUNT; mode++) {
        if ((modes & (1u << mode)) == 0)
            continue;
        /* A product of two activations can be quantized only where both have a range. */
        if (traits->weight != 0 && weight == NULL && mode != OQ_MODE_STATIC)
            continue;
        if (mode == OQ_MODE_NBITS && !fits_nbits(weight))
            continue;
        if (oq_str_is(n->op_type, "Gather") && weight == NULL)
            continue;
        OQ_TRY(count_can(w, (oq_quant_mode)mode, ix, n, err));
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
