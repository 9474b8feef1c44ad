/*
 * bench_why.c — see bench_why.h.
 */
#include "api/bench/bench_why.h"

#include "debug/debug.h"
#include "onnx/attr.h"
#include "onnx/operators.h"
#include "onnx/summary/summary.h"

typedef struct counts {
    uint64_t products, transposed, depthwise;
    uint64_t floats; /* products that compute in float beside integer ones */
} counts;

/* Reads a dequantized tensor, or is an integer operator. */
static bool is_integer(const oq_index *ix, const oq_node *n) {
    if (oq_op_traits_of(n->op_type)->form != OQ_FORM_FLOAT)
        return true;
    for (size_t i = 0; i < n->input.n && i < 2; i++) {
        const oq_node *from = oq_index_producer(ix, n->input.v[i]);
        if (oq_node_is_dequantize(from))
            return true;
    }
    return false;
}

static onq_code count_graph(counts *c, oq_arena *a, oq_graph *g, onq_error *err) {
    oq_index ix;
    OQ_TRY(oq_index_build(&ix, a, g, NULL, err));
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        const oq_product product = oq_op_traits_of(n->op_type)->product;
        if (product == OQ_NO_PRODUCT)
            continue;
        const bool integer = is_integer(&ix, n);
        c->products++;
        c->floats += !integer;
        c->transposed += integer && product == OQ_CONV_TRANSPOSE;
        c->depthwise += integer && product == OQ_CONV && oq_attr_int(n, "group", 1) > 1;
    }
    return ONQ_OK;
}

static uint64_t typed(const uint64_t (*by_type)[OQ_GRANULARITY_COUNT], oq_dtype type) {
    uint64_t n = 0;
    for (size_t i = 0; i < OQ_GRANULARITY_COUNT; i++)
        n += by_type[type][i];
    return n;
}

static uint64_t of_type(const oq_summary *s, const char *op) {
    uint64_t n = 0;
    for (size_t i = 0; i < s->ops.n; i++)
        if (oq_str_is(s->ops.v[i].op_type, op))
            n += s->ops.v[i].count;
    return n;
}

/* Adds a reason if there are such things: "%llu" in the text is their number. */
static onq_code add(oq_bench_why *w, oq_arena *a, uint64_t n, const char *what, onq_error *err) {
    if (n == 0)
        return ONQ_OK;
    const oq_str text = oq_str_format(a, "%llu %s", (unsigned long long)n, what);
    return text.p != NULL && OQ_PUSH(a, &w->reasons, text) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code explain(oq_bench_why *w, oq_arena *a, const oq_summary *s, const counts *c,
                        onq_error *err) {
    const oq_quantized *q = &s->quant;
    const uint64_t pairs = q->quantize + q->dequantize;
    OQ_TRY(add(w, a, typed(q->activations, OQ_UINT16) + typed(q->activations, OQ_INT16),
               "activations have 16 bits, for which there are no integer kernels: float with "
               "conversions around it (--activation_type quint8, or leave the nodes float)",
               err));
    OQ_TRY(add(w, a, of_type(s, "ConvInteger"),
               "ConvInteger, which has no fast kernel (onq static for convolutions, or onq dynamic "
               "--op_types_to_quantize MatMul)",
               err));
    OQ_TRY(add(w, a, typed(q->weights, OQ_UINT8),
               "weights are uint8: products of uint8 by uint8 are slower (--weight_type qint8)",
               err));
    OQ_TRY(
        add(w, a, c->transposed,
            "ConvTranspose with pairs around, which has no integer kernel (--op_types_to_exclude "
            "ConvTranspose)",
            err));
    OQ_TRY(add(w, a, c->depthwise,
               "depthwise or grouped convolutions in integers, which gain nothing (--op_set, or "
               "--heaviest)",
               err));
    if (c->floats > 0 && pairs > 2 * c->products)
        OQ_TRY(
            add(w, a, pairs,
                "QuantizeLinear and DequantizeLinear, between float islands: each is a pass over "
                "its tensor (--op_set, or onq preprocess first)",
                err));
    else if (pairs > 8 * c->products)
        OQ_TRY(add(w, a, pairs,
                   "QuantizeLinear and DequantizeLinear for few products: each is a pass over its "
                   "tensor (--op_set linear)",
                   err));
    if (oq_debug_sums_saturate_here() &&
        !OQ_PUSH(a, &w->reasons,
                 OQ_S("this CPU has no VNNI: its integer products gain little over float")))
        return oq_fail_nomem(err);
    return ONQ_OK;
}

onq_code oq_bench_find_why(oq_bench_why *w, oq_arena *a, oq_model *m, onq_error *err) {
    oq_summary s;
    counts c = {0};
    *w = (oq_bench_why){0};
    OQ_TRY(oq_summary_make(&s, a, m, NULL, err));
    w->quantized = oq_quantized_any(&s.quant);
    if (!w->quantized)
        return ONQ_OK;
    OQ_TRY(count_graph(&c, a, m->proto->graph, err));
    return explain(w, a, &s, &c, err);
}
