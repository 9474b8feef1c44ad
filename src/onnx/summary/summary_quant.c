/*
 * summary_quant.c — what is quantized in a model, and what could be. See summary.h.
 *
 * operators.def says how an operator takes quantized values and in which slots its weight and the
 * weight's parameters are. Which modes know a float operator is the quantizer's business: the
 * caller says.
 */
#include "onnx/attr.h"
#include "onnx/operators.h"
#include "onnx/summary/summary.h"
#include "onnx/summary/summary_parts.h"
#include "onnx/tensor.h"

const char *oq_granularity_name(oq_granularity g) {
    assert(g < OQ_GRANULARITY_COUNT);
    static const char *const names[] = {"per tensor", "per channel", "per block"};
    return names[g];
}

const char *oq_quant_mode_name(oq_quant_mode m) {
    assert(m < OQ_MODE_COUNT);
    static const char *const names[] = {"static", "dynamic", "nbits"};
    return names[m];
}

bool oq_quantized_any(const oq_quantized *q) {
    return q->quantize + q->dequantize + q->operators + q->integer + q->weight_only + q->caches > 0;
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
    const bool quantize = oq_node_is_quantize(n);
    const oq_tensor *x = oq_index_constant(ix, oq_node_input(n, 0));
    const oq_tensor *scale = oq_index_constant(ix, oq_node_input(n, 1));
    const oq_tensor *zero = oq_index_constant(ix, oq_node_input(n, 2));
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

/* ---- who reads a weight ---- */

/* The constant that a node reads as its weight, through a Transpose or a Reshape; else empty. */
static oq_str weight_name(const oq_index *ix, const oq_node *n, int slot) {
    const oq_str name = oq_node_input(n, (size_t)slot);
    if (name.n == 0 || oq_index_constant(ix, name) != NULL)
        return name;
    const oq_node *p = oq_index_producer(ix, name);
    const bool moves =
        p != NULL && (oq_str_is(p->op_type, "Transpose") || oq_str_is(p->op_type, "Reshape"));
    return moves && oq_index_constant(ix, oq_node_input(p, 0)) != NULL ? p->input.v[0]
                                                                       : (oq_str){0};
}

/* Notes a reader of a weight; *first: nobody read it before. */
static onq_code note_reader(oq_summary_walk *w, oq_str name, const oq_node *n, bool *first,
                            onq_error *err) {
    const uint32_t at = oq_map_find(&w->read, name);
    *first = at == OQ_MAP_NONE;
    if (at != OQ_MAP_NONE) {
        oq_tied *t = &w->s->quant.read.v[at];
        if (t->count == 1)
            t->readers[1] = n->op_type;
        t->count++;
        return ONQ_OK;
    }
    const oq_tied fresh = {.name = name, .readers = {n->op_type, {0}}, .count = 1};
    return oq_map_put(&w->read, name, (uint32_t)w->s->quant.read.n) &&
                   OQ_PUSH(w->arena, &w->s->quant.read, fresh)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

static onq_code note_float(oq_summary_walk *w, const oq_index *ix, const oq_node *n,
                           onq_error *err) {
    const bool gather = oq_str_is(n->op_type, "Gather");
    bool first;
    if (!gather && !oq_str_is(n->op_type, "MatMul") && !oq_str_is(n->op_type, "Gemm"))
        return ONQ_OK;
    const oq_str name = weight_name(ix, n, gather ? 0 : 1);
    const oq_tensor *t = name.n > 0 ? oq_index_constant(ix, name) : NULL;
    if (t == NULL || !oq_dtype_is_float(t->data_type.v) || t->dims.n < 2)
        return ONQ_OK;
    return note_reader(w, name, n, &first, err);
}

/* ---- packed weights ---- */

static double bits_of(const oq_tensor *t) {
    uint64_t bytes = 0;
    return t != NULL && oq_tensor_bytes(t, &bytes, NULL) == ONQ_OK ? 8.0 * (double)bytes : 0.0;
}

/* Zero points that are not integers may stand beside the operator, as a product with the sums of
 * its input's blocks that is added to its output. */
static const oq_tensor *offsets_of(const oq_index *ix, const oq_node *n) {
    const oq_value *y = n->output.n == 1 ? oq_index_find(ix, n->output.v[0]) : NULL;
    const oq_node *add = y != NULL && y->uses.n == 1 && y->uses.v[0].slot < 2
                             ? ix->graph->node.v[y->uses.v[0].node]
                             : NULL;
    if (add == NULL || !oq_str_is(add->op_type, "Add"))
        return NULL;
    const oq_node *product = oq_index_producer(ix, oq_node_input(add, 1 - y->uses.v[0].slot));
    if (product == NULL || !oq_str_is(product->op_type, "MatMul"))
        return NULL;
    const oq_node *sums = oq_index_producer(ix, oq_node_input(product, 0));
    const oq_tensor *t = oq_index_constant(ix, oq_node_input(product, 1));
    const int64_t block = oq_attr_int(n, "block_size", 0);
    return sums != NULL && oq_str_is(sums->op_type, "ReduceSum") && t != NULL && t->dims.n == 2 &&
                   block > 0 && t->dims.v[0] == oq_attr_int(n, "K", 0) / block &&
                   t->dims.v[1] == oq_attr_int(n, "N", 0)
               ? t
               : NULL;
}

/* The weights of a packed operator, and the bits they take with their parameters. */
static onq_code measure_packed(oq_summary_walk *w, const oq_index *ix, const oq_node *n,
                               oq_weight_only *o, onq_error *err) {
    const int slot = oq_op_slot(oq_op_traits_of(n->op_type)->weight);
    const oq_str name = weight_name(ix, n, slot);
    const oq_tensor *q = name.n > 0 ? oq_index_constant(ix, name) : NULL;
    bool first = false;
    if (q == NULL)
        return ONQ_OK;
    OQ_TRY(note_reader(w, name, n, &first, err));
    if (!first)
        return ONQ_OK;
    const double k = (double)oq_attr_int(n, "K", 0), cols = (double)oq_attr_int(n, "N", 0);
    o->weights = k > 0 && cols > 0 ? k * cols : bits_of(q) / (double)(o->bits > 0 ? o->bits : 4);
    o->stored = bits_of(q);
    for (size_t i = 2; i < 4; i++)
        o->stored += bits_of(oq_index_constant(ix, oq_node_input(n, i)));
    o->stored += bits_of(offsets_of(ix, n));
    return ONQ_OK;
}

static onq_code count_weight_only(oq_summary_walk *w, const oq_index *ix, const oq_node *n,
                                  onq_error *err) {
    oq_quantized *q = &w->s->quant;
    oq_weight_only found = {
        .op_type = n->op_type,
        .bits = oq_attr_int(n, "bits", 4), /* the operators' default */
        .block_size = oq_attr_int(n, "block_size", 0),
        .count = 1,
    };
    OQ_TRY(measure_packed(w, ix, n, &found, err));
    q->weight_only++;
    for (size_t i = 0; i < q->only.n; i++) {
        oq_weight_only *o = &q->only.v[i];
        if (oq_str_eq(o->op_type, found.op_type) && o->bits == found.bits &&
            o->block_size == found.block_size) {
            o->count++;
            o->weights += found.weights;
            o->stored += found.stored;
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
    if (oq_node_is_pair(n)) {
        count_qdq(w->s, ix, n);
        return true;
    }
    const oq_op_traits *traits = oq_op_traits_of(n->op_type);
    if (traits->form == OQ_FORM_WEIGHT_ONLY) {
        *rc = count_weight_only(w, ix, n, err);
        return true;
    }
    if (traits->form != OQ_FORM_FLOAT) {
        if (traits->form == OQ_FORM_QLINEAR)
            q->operators++;
        else
            q->integer++;
        const oq_tensor *x =
            oq_index_constant(ix, oq_node_input(n, (size_t)oq_op_slot(traits->weight)));
        const oq_tensor *param =
            oq_index_constant(ix, oq_node_input(n, (size_t)oq_op_slot(traits->param)));
        if (x != NULL)
            q->weights[type_index(x->data_type.v)][granularity(n, param)]++;
        return true;
    }
    /* Only attributes tell a cache of integers; the operator itself computes in float. */
    if (oq_str_is(n->op_type, "GroupQueryAttention") &&
        !oq_str_is(oq_attr_str(n, "k_quant_type", "NONE"), "NONE"))
        q->caches++;
    if (oq_str_starts(n->op_type, OQ_S("QLinear")) || oq_str_starts(n->op_type, OQ_S("QOrdered"))) {
        q->operators++;
        return true;
    }
    return false;
}

static bool comes_quantized(const oq_index *ix, oq_str name) {
    const oq_value *v = name.n != 0 ? oq_index_resolve(&ix, name) : NULL;
    return v != NULL && oq_node_is_dequantize(oq_value_node(ix, v));
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
        OQ_TRY_ALLOC(OQ_PUSH(w->arena, &can->ops, fresh), err);
    }
    for (int i = 0; traits->weight != 0 && i <= traits->more_weights; i++)
        OQ_TRY(count_bytes(w, mode, ix, oq_node_input(n, (size_t)(oq_op_slot(traits->weight) + i)),
                           err));
    return ONQ_OK;
}

static onq_code count_float(oq_summary_walk *w, const oq_index *ix, const oq_node *n,
                            onq_error *err) {
    const unsigned modes = w->modes != NULL ? w->modes->of(w->modes->ctx, n) : 0;
    if (modes == 0)
        return ONQ_OK;
    const oq_op_traits *traits = oq_op_traits_of(n->op_type);
    const oq_str name = oq_node_input(n, (size_t)oq_op_slot(traits->weight));
    const oq_tensor *weight = oq_index_constant(ix, name);
    if (weight != NULL && !oq_dtype_is_float(weight->data_type.v))
        return ONQ_OK;
    if (comes_quantized(ix, oq_node_input(n, 0)) || comes_quantized(ix, name))
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
    OQ_TRY(note_float(w, ix, n, err));
    return count_float(w, ix, n, err);
}
