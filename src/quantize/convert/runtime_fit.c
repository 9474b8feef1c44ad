/*
 * runtime_fit.c — see runtime_fit.h.
 *
 * Weights of few bits have two forms, packed in one operator (MatMulNBits) or dequantized in blocks
 * before a float one, and versions of the runtime differ in which they can run; both hold the same
 * integers. An opset is lowered where no node uses what the newer one brought.
 */
#include "quantize/convert/runtime_fit.h"

#include "onnx/attr.h"
#include "onnx/check/check.h"
#include "onnx/graph.h"
#include "onnx/operators.h"
#include "quantize/convert/convert.h"
#include "quantize/convert/cv.h"

#include <stdio.h>

/* ---- the form of a node ---- */

/* The type of a named constant; OQ_UNDEFINED where it is none. */
static oq_dtype type_of(const oq_index *ix, oq_str name) {
    const oq_tensor *t = name.n > 0 ? oq_index_constant(ix, name) : NULL;
    return t != NULL ? (oq_dtype)t->data_type.v : OQ_UNDEFINED;
}

/* Rows of runtime.def in their order: for each number of bits symmetric, packed and float zero
 * points, each without and with accuracy level 4. */
static oq_runtime_form nbits_form(const oq_index *ix, const oq_node *n) {
    static const oq_runtime_form first[] = {OQ_CAN_nbits2, OQ_CAN_nbits4, OQ_CAN_nbits8};
    static_assert(OQ_CAN_nbits4 - OQ_CAN_nbits2 == 6 && OQ_CAN_nbits8 - OQ_CAN_nbits4 == 6 &&
                      OQ_CAN_nbits2_float_level4 - OQ_CAN_nbits2 == 5,
                  "forms of MatMulNBits are in another order");
    const int64_t bits = oq_attr_int(n, "bits", 4);
    const oq_str zero = oq_node_input(n, 3);
    const unsigned zeros = zero.n == 0 ? 0 : type_of(ix, zero) == OQ_UINT8 ? 1 : 2;
    const unsigned level = oq_attr_int(n, "accuracy_level", 0) == 4 ? 1 : 0;
    if (oq_attr_int(n, "block_size", 32) > 256)
        return OQ_CAN_nbits4_block512;
    return first[bits == 2 ? 0 : bits == 8 ? 2 : 1] + 2 * zeros + level;
}

static oq_runtime_form gather_form(const oq_index *ix, const oq_node *n) {
    const bool zero = oq_node_input(n, 3).n > 0;
    if (oq_attr_int(n, "bits", 4) == 8)
        return zero ? OQ_CAN_gather_uint8_zero : OQ_CAN_gather_uint8;
    if (type_of(ix, oq_node_input(n, 0)) == OQ_UINT8)
        return zero ? OQ_CAN_gather_bytes4_zero : OQ_CAN_gather_bytes4;
    return zero ? OQ_CAN_gather_uint4_zero : OQ_CAN_gather_int4;
}

/* What a pair of that type is, and a weight in blocks of it. */
typedef struct type_row {
    oq_dtype type;
    oq_runtime_form pair, pair_ms, blocks, blocks_zero, blocks_axis1;
} type_row;

static const type_row types[] = {
#define FORMS(T) OQ_CAN_blocks_##T, OQ_CAN_blocks_##T##_zero, OQ_CAN_blocks_##T##_axis1
#define NO_FORMS OQ_CAN_COUNT, OQ_CAN_COUNT, OQ_CAN_COUNT
    {OQ_INT8, OQ_CAN_pair_int8, OQ_CAN_pair_int8, FORMS(int8)},
    {OQ_UINT8, OQ_CAN_pair_uint8, OQ_CAN_pair_uint8, FORMS(uint8)},
    {OQ_INT16, OQ_CAN_pair_int16, OQ_CAN_pair_int16_ms, NO_FORMS},
    {OQ_UINT16, OQ_CAN_pair_uint16, OQ_CAN_pair_uint16_ms, NO_FORMS},
    {OQ_INT4, OQ_CAN_pair_int4, OQ_CAN_pair_int4_ms, FORMS(int4)},
    {OQ_UINT4, OQ_CAN_pair_uint4, OQ_CAN_pair_uint4_ms, FORMS(uint4)},
    {OQ_INT2, OQ_CAN_channel_int2, OQ_CAN_COUNT, FORMS(int2)},
    {OQ_UINT2, OQ_CAN_channel_uint2, OQ_CAN_COUNT, FORMS(uint2)},
    {OQ_FLOAT8E4M3FN, OQ_CAN_pair_float8, OQ_CAN_pair_float8, NO_FORMS},
};

static oq_runtime_form pair_form(const oq_index *ix, const oq_node *n) {
    oq_dtype type = type_of(ix, oq_node_input(n, 2));
    const bool zero = oq_node_input(n, 2).n > 0, ms = !oq_domain_is_onnx(n->domain);
    if (type == OQ_UNDEFINED && oq_node_is_dequantize(n))
        type = type_of(ix, oq_node_input(n, 0));
    for (size_t i = 0; i < OQ_COUNT(types); i++) {
        const type_row *r = &types[i];
        if (r->type != type)
            continue;
        if (oq_attr_int(n, "block_size", 0) == 0)
            return ms ? r->pair_ms : r->pair;
        return oq_attr_int(n, "axis", 1) == 1 ? r->blocks_axis1 : zero ? r->blocks_zero : r->blocks;
    }
    return OQ_CAN_COUNT;
}

/* A weight whose type is not known counts as the one that fewer versions run. */
static oq_runtime_form conv_form(const oq_index *ix, const oq_node *n) {
    const oq_str weight = oq_node_input(n, 1);
    const oq_node *maker = oq_index_producer(ix, weight);
    return type_of(ix, weight) == OQ_UINT8 ||
                   (maker != NULL && oq_op_traits_of(maker->op_type)->kind == OQ_KIND_DYNAMIC)
               ? OQ_CAN_ConvInteger_uint8
               : OQ_CAN_ConvInteger;
}

/* Experts in integers: with any accuracy level as with level 4, an attribute of its own. */
static oq_runtime_form experts_form(const oq_node *n) {
    const int64_t bits = oq_attr_int(n, "expert_weight_bits", 4);
    const bool zero = oq_node_input(n, 11).n > 0;
    if (oq_attr_find(n, "accuracy_level") != NULL)
        return OQ_CAN_moe4_level4;
    return bits == 2   ? (zero ? OQ_CAN_moe2_zero : OQ_CAN_moe2)
           : bits == 8 ? (zero ? OQ_CAN_moe8_zero : OQ_CAN_moe8)
                       : (zero ? OQ_CAN_moe4_zero : OQ_CAN_moe4);
}

/* Attention whose cache is in integers; OQ_CAN_COUNT where it is float. */
static oq_runtime_form cache_form(const oq_node *n) {
    const oq_str kind = oq_attr_str(n, "k_quant_type", "NONE");
    const bool channel = oq_str_is(kind, "PER_CHANNEL");
    if (oq_str_is(kind, "NONE"))
        return OQ_CAN_COUNT;
    return oq_attr_int(n, "kv_cache_bit_width", 8) == 4
               ? (channel ? OQ_CAN_cache4_channel : OQ_CAN_cache4_tensor)
               : (channel ? OQ_CAN_cache8_channel : OQ_CAN_cache8_tensor);
}

static oq_runtime_form form_of(const oq_index *ix, const oq_node *n) {
    if (oq_node_is_pair(n))
        return pair_form(ix, n);
    if (oq_str_is(n->op_type, "QMoE"))
        return experts_form(n);
    if (oq_str_is(n->op_type, "GroupQueryAttention"))
        return cache_form(n);
    if (oq_op_traits_of(n->op_type)->form == OQ_FORM_FLOAT)
        return OQ_CAN_COUNT;
    if (oq_str_is(n->op_type, "MatMulNBits"))
        return nbits_form(ix, n);
    if (oq_str_is(n->op_type, "GatherBlockQuantized"))
        return gather_form(ix, n);
    if (oq_node_is(n, "ConvInteger"))
        return conv_form(ix, n);
    return oq_runtime_form_named(n->op_type);
}

/* ---- what stands in the way ---- */

typedef struct obstacle {
    const oq_runtime *runtime;
    int64_t opset; /* that the model would have */
    const oq_node *node;
    oq_runtime_form form; /* that cannot be run, or OQ_CAN_COUNT: */
    int64_t needs_opset;  /* the node cannot go below */
} obstacle;

static onq_code look(oq_graph *g, const oq_index *outer, int depth, obstacle *o, oq_arena *scratch,
                     onq_error *err) {
    oq_index ix;
    if (depth > OQ_MAX_GRAPH_DEPTH)
        return oq_fail(err, ONQ_E_LIMIT, "graphs are nested more than %d deep", OQ_MAX_GRAPH_DEPTH);
    OQ_TRY(oq_index_build(&ix, scratch, g, outer, err));
    for (size_t i = 0; i < g->node.n && o->node == NULL; i++) {
        const oq_node *n = g->node.v[i];
        oq_graph_cursor at = {0};
        o->form = form_of(&ix, n);
        o->needs_opset = oq_runtime_node_opset(n);
        if (!oq_runtime_can(o->runtime, o->form) || o->needs_opset > o->opset)
            o->node = n;
        for (oq_graph *in; o->node == NULL && (in = oq_node_next_graph(n, &at)) != NULL;)
            OQ_TRY(look(in, &ix, depth + 1, o, scratch, err));
    }
    return ONQ_OK;
}

static onq_code find_obstacle(oq_model *m, const oq_runtime *r, obstacle *o, onq_error *err) {
    OQ_SCRATCH(scratch, &m->env->alloc);
    *o = (obstacle){.runtime = r, .opset = r->opset};
    OQ_TRY(look(m->proto->graph, NULL, 0, o, &scratch, err));
    for (size_t i = 0; i < m->proto->functions.n; i++) {
        const oq_function *f = m->proto->functions.v[i];
        for (size_t k = 0; k < f->node.n && o->node == NULL; k++) {
            o->form = OQ_CAN_COUNT; /* what a function quantizes is not known */
            o->needs_opset = oq_runtime_node_opset(f->node.v[k]);
            if (o->needs_opset > o->opset)
                o->node = f->node.v[k];
        }
    }
    return ONQ_OK;
}

static onq_code refuse(const obstacle *o, onq_error *err) {
    const oq_node *n = o->node;
    if (oq_runtime_can(o->runtime, o->form))
        return oq_fail(err, ONQ_E_UNSUPPORTED,
                       "node '%.*s' (%.*s) needs opset %lld, and ONNX Runtime 1.%u runs opset %lld "
                       "at most",
                       OQ_STR(oq_node_label(n)), OQ_STR(n->op_type), (long long)o->needs_opset,
                       o->runtime->minor, (long long)o->runtime->opset);
    char later[128] = "";
    const oq_runtime *since = oq_runtime_since(o->form);
    const bool two = o->form >= OQ_CAN_nbits2 && o->form <= OQ_CAN_nbits2_float_level4;
    if (since != NULL)
        snprintf(later, sizeof later, " (1.%u and later can%s)", since->minor,
                 two ? "; what `onq nbits --form packed` writes runs in every version" : "");
    return oq_fail(err, ONQ_E_UNSUPPORTED, "node '%.*s' (%.*s): ONNX Runtime 1.%u cannot run %s%s",
                   OQ_STR(oq_node_label(n)), OQ_STR(n->op_type), o->runtime->minor,
                   oq_runtime_about(o->form), later);
}

/* ---- rewriting ---- */

/* The other form of a weight that the runtime cannot run: -1 where there is none. */
static int other_form(const obstacle *o) {
    const oq_runtime_form f = o->form;
    if (f == OQ_CAN_ConvInteger)
        return OQ_TO_UINT8;
    if (f >= OQ_CAN_nbits4 && f <= OQ_CAN_nbits8_packed_level4 && f != OQ_CAN_nbits4_float &&
        f != OQ_CAN_nbits4_float_level4)
        return OQ_TO_BLOCKS;
    if (f == OQ_CAN_nbits4_block512 || (f >= OQ_CAN_gather_int4 && f <= OQ_CAN_gather_uint8_zero))
        return OQ_TO_BLOCKS;
    return oq_node_is_dequantize(o->node) && oq_attr_int(o->node, "block_size", 0) > 0 ? OQ_TO_NBITS
                                                                                       : -1;
}

static bool is_beyond(const void *ctx, const oq_index *ix, const oq_node *n) {
    return !oq_runtime_can(ctx, form_of(ix, n));
}

static onq_code change_form(oq_model *m, const oq_runtime *r, int to, oq_runtime_fitted *out,
                            onq_error *err) {
    static const char *const words[] = {[OQ_TO_NBITS] = "MatMulNBits",
                                        [OQ_TO_BLOCKS] = "DequantizeLinear in blocks",
                                        [OQ_TO_UINT8] = "uint8 instead of int8"};
    OQ_SCRATCH(scratch, &m->env->alloc);
    oq_plan plan;
    oq_plan_init(&plan, &scratch);
    oq_convert_job job = {.model = m,
                          .to = (oq_convert_to)to,
                          .partial = true,
                          .plan = &plan,
                          .takes = is_beyond,
                          .takes_ctx = r};
    OQ_TRY(oq_convert_run(&job, err));
    out->form = out->form == NULL ? words[to]
                                  : oq_str_format(&m->arena, "%s and %s", out->form, words[to]).p;
    out->n_form += job.n_operators;
    return out->form != NULL ? ONQ_OK : oq_fail_nomem(err);
}

/* Lowers what a list of imports says of the default domain. */
static void lower(oq_opset **v, size_t n, int64_t opset) {
    for (size_t i = 0; i < n; i++)
        if (oq_domain_is_onnx(v[i]->domain) && v[i]->version.v > opset)
            v[i]->version.v = opset;
}

onq_code oq_runtime_fit(oq_model *m, const oq_runtime *r, oq_runtime_fitted *out, onq_error *err) {
    obstacle o;
    *out = (oq_runtime_fitted){.opset_was = oq_model_opset(m, OQ_S("")),
                               .ir_was = m->proto->ir_version.v};
    OQ_TRY(find_obstacle(m, r, &o, err));
    unsigned tried = 0;
    while (o.node != NULL && !oq_runtime_can(r, o.form)) {
        const int to = other_form(&o);
        if (to < 0 || (tried & 1u << to) != 0)
            break;
        tried |= 1u << to;
        OQ_TRY(change_form(m, r, to, out, err));
        OQ_TRY(find_obstacle(m, r, &o, err));
    }
    if (o.node != NULL)
        return refuse(&o, err);
    if (oq_model_opset(m, OQ_S("")) > r->opset || m->proto->ir_version.v > r->ir)
        oq_model_touch(m);
    lower(m->proto->opset_import.v, m->proto->opset_import.n, r->opset);
    for (size_t i = 0; i < m->proto->functions.n; i++)
        lower(m->proto->functions.v[i]->opset_import.v, m->proto->functions.v[i]->opset_import.n,
              r->opset);
    if (m->proto->ir_version.v > r->ir)
        m->proto->ir_version.v = r->ir;
    out->opset = oq_model_opset(m, OQ_S(""));
    out->ir = m->proto->ir_version.v;
    OQ_ASSERT_VALID(m);
    return ONQ_OK;
}

bool oq_runtime_fit_changed(const oq_runtime_fitted *f) {
    return f->form != NULL || f->opset != f->opset_was || f->ir != f->ir_was;
}
