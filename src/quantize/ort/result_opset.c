/*
 * result_opset.c — which opset the result needs.
 */
#include "quantize/ort/result_opset.h"

#include "onnx/edit.h"
#include "onnx/graph.h"
#include "onnx/operators.h"
#include "onnx/tensor.h"
#include "onnx/upgrade/upgrade.h"
#include "prepare/old_resize.h"
#include "quantize/choose/reach.h"
#include "quantize/ort/stamp.h"
#include "quantize/qdq/qdq.h"
#include "quantize/rules.h"

static bool is_half(const oq_value_info *v) {
    const oq_tensor_type *t = v->type != NULL ? v->type->tensor_type : NULL;
    return t != NULL && t->elem_type.v == OQ_FLOAT16;
}

/* Sets *ctx when the graph has a float16 tensor of any kind. */
static onq_code see_float16(void *ctx, oq_graph *g, onq_error *err) {
    bool *found = ctx;
    (void)err;
    for (size_t i = 0; i < g->initializer.n; i++)
        *found |= g->initializer.v[i]->data_type.v == OQ_FLOAT16;
    for (size_t i = 0; i < g->input.n; i++)
        *found |= is_half(g->input.v[i]);
    for (size_t i = 0; i < g->output.n; i++)
        *found |= is_half(g->output.v[i]);
    for (size_t i = 0; i < g->value_info.n; i++)
        *found |= is_half(g->value_info.v[i]);
    return ONQ_OK;
}

/* True if options, overrides or a plan may ask for scales along an axis. */
static bool may_have_channels(const oq_qrun *r, const oq_overrides *o) {
    bool found = r->config->per_channel || r->given != NULL;
    for (size_t i = 0; o != NULL && i < o->all.n; i++)
        found |= oq_override_is_channel(o->all.v[i]);
    return found;
}

/* ---- what opset 10 does not have ---- */

const char *oq_opset_needs_11(const oq_node *n, bool float_bias) {
    if (oq_op_traits_of(n->op_type)->bytes_from_11)
        return "DepthToSpace takes 8-bit values from opset 11 on";
    if (float_bias)
        return "ONNX Runtime rounds float biases next to quantized tensors, which needs opset 11";
    return NULL;
}

/* Sets *ctx when there is an Upsample. */
static onq_code see_upsample(void *ctx, oq_graph *g, onq_error *err) {
    bool *found = ctx;
    (void)err;
    for (size_t i = 0; i < g->node.n; i++)
        *found |= oq_str_is(g->node.v[i]->op_type, "Upsample") && g->node.v[i]->domain.n == 0;
    return ONQ_OK;
}

/* Tensors that nodes in QLinear form read and make, and float nodes between them. */
typedef struct between {
    oq_qrun *run;
    oq_map quantized;
    const char *why;
} between;

static oq_str bias_of(const oq_node *n) {
    return oq_node_input(n, (size_t)oq_op_slot(oq_op_traits_of(n->op_type)->bias));
}

static bool is_float_node(between *s, const oq_graph *g, const oq_node *n) {
    const oq_str bias = bias_of(n);
    return (oq_rules_modes(n->op_type) & OQ_QMODE_QLINEAR) == 0 ||
           oq_qrun_skip(s->run, n, OQ_QMODE_QDQ | OQ_QMODE_QLINEAR) != NULL ||
           (bias.n > 0 && oq_graph_find_init(g, bias) == NULL);
}

static onq_code add_quantized(void *ctx, oq_graph *g, onq_error *err) {
    between *s = ctx;
    for (size_t i = 0; i < g->node.n; i++) {
        const oq_node *n = g->node.v[i];
        if (n->input.n == 0 || n->output.n == 0 || is_float_node(s, g, n))
            continue;
        if (!oq_map_put(&s->quantized, n->input.v[0], 0) ||
            !oq_map_put(&s->quantized, n->output.v[0], 0))
            return oq_fail_nomem(err);
    }
    return ONQ_OK;
}

static onq_code see_between(void *ctx, oq_graph *g, onq_error *err) {
    between *s = ctx;
    (void)err;
    for (size_t i = 0; i < g->node.n && s->why == NULL; i++) {
        const oq_node *n = g->node.v[i];
        if (n->input.n > 0 && n->output.n > 0 && is_float_node(s, g, n) &&
            oq_map_has(&s->quantized, n->input.v[0]) && oq_map_has(&s->quantized, n->output.v[0]))
            s->why = oq_opset_needs_11(n, bias_of(n).n > 0);
    }
    return ONQ_OK;
}

static onq_code foresee_qlinear(oq_model *m, oq_qrun *r, const char **why, onq_error *err) {
    oq_arena scratch;
    between s = {.run = r};
    oq_arena_init(&scratch, &m->env->alloc);
    oq_map_init(&s.quantized, &scratch);
    onq_code rc = oq_reach_graphs(m, r->config, add_quantized, &s, err);
    if (rc == ONQ_OK)
        rc = oq_reach_graphs(m, r->config, see_between, &s, err);
    oq_arena_release(&scratch);
    *why = s.why;
    return rc;
}

/* ---- all of it ---- */

typedef struct goal {
    int64_t opset;
    const char *why;
} goal;

static void want(goal *g, int64_t opset, const char *why) {
    if (g->opset < opset)
        *g = (goal){opset, why};
}

/* What update_opset_version asks for. */
static goal by_types(const oq_qconfig *c, const oq_overrides *o, unsigned mode, int64_t now) {
    const bool wide = !c->keep_opset &&
                      (oq_qtype_is_16bit(c->weight_type) ||
                       (mode != OQ_QMODE_INTEGER && oq_overrides_any_type(o, oq_qtype_is_16bit)) ||
                       (mode == OQ_QMODE_QDQ && oq_qtype_is_16bit(c->activation_type)));
    goal g = {now, ""};
    if (now < 21 && (c->block_size > 0 || oq_overrides_any_blocks(o)))
        want(&g, 21, "blocks need opset 21");
    else if (now < 19 && c->weight_type == OQ_FLOAT8E4M3FN)
        want(&g, 19, "float 8 needs opset 19");
    else if (now < 21 && wide)
        want(&g, 21, "16-bit types need opset 21");
    else if (now < 10)
        want(&g, 11, "QuantizeLinear needs opset 10");
    return g;
}

/* What a result of pairs needs beyond that. */
static onq_code by_pairs(oq_model *m, const oq_shapes *shapes, oq_qrun *r, const oq_overrides *o,
                         goal *g, onq_error *err) {
    bool half = false;
    oq_qdq_outlook ahead = {0};
    const bool contrib = oq_qdq_wants_contrib(r->config, o, g->opset);
    OQ_TRY(oq_reach_graphs(m, r->config, see_float16, &half, err));
    const bool by_channel = g->opset < 13 && !contrib && may_have_channels(r, o);
    if (g->opset <= 10 || (g->opset < 19 && half && !contrib) || by_channel)
        OQ_TRY(oq_qdq_foresee(m, shapes, r, o, g->opset, &ahead, err));
    if (ahead.needs_11 != NULL)
        want(g, 11, ahead.needs_11);
    if (contrib)
        return ONQ_OK;
    if (ahead.channels)
        want(g, 13, "weights per channel need opset 13");
    if (ahead.half)
        want(g, 19, "quantizing float16 tensors needs opset 19");
    return ONQ_OK;
}

onq_code oq_opset_needed(oq_model *m, const oq_shapes *shapes, oq_qrun *r, const oq_overrides *o,
                         unsigned mode, int64_t *target, const char **why, onq_error *err) {
    const int64_t now = oq_model_opset(m, OQ_S(""));
    bool upsample = false;
    const char *between_why = NULL;
    if (now <= 0)
        return oq_fail(err, ONQ_E_INVALID, "the model does not import an opset of ONNX (ai.onnx)");
    goal g = by_types(r->config, o, mode, now);
    if (g.opset == 10)
        OQ_TRY(oq_walk_graphs(m->proto->graph, see_upsample, &upsample, err));
    if (upsample)
        want(&g, 11, "Upsample ended with opset 9, and Resize does the same from opset 11 on");
    if (g.opset <= 10 && mode == OQ_QMODE_QLINEAR)
        OQ_TRY(foresee_qlinear(m, r, &between_why, err));
    if (between_why != NULL)
        want(&g, 11, between_why);
    if (mode == OQ_QMODE_QDQ)
        OQ_TRY(by_pairs(m, shapes, r, o, &g, err));
    *target = g.opset;
    *why = g.why;
    return ONQ_OK;
}

typedef struct inputs {
    oq_qrun *run;
    bool found;
} inputs;

/* Sets `found` when a node has an input that is quantized while the model runs. */
static onq_code see_inputs(void *ctx, oq_graph *g, onq_error *err) {
    inputs *s = ctx;
    (void)err;
    for (size_t i = 0; i < g->node.n; i++) {
        oq_node n = *g->node.v[i];
        const oq_op_traits *t = oq_op_traits_of(n.op_type);
        const bool beside_weight = t->weight == OQ_IN(1) && t->more_weights == 0;
        if (t->product == OQ_GEMM)
            n.op_type = OQ_S("MatMul"); /* what it becomes */
        s->found |= beside_weight && oq_qrun_skip(s->run, &n, OQ_QMODE_INTEGER) == NULL;
    }
    return ONQ_OK;
}

onq_code oq_opset_needed_dynamic(oq_model *m, oq_qrun *r, const oq_overrides *o, int64_t *target,
                                 const char **why, onq_error *err) {
    inputs s = {.run = r};
    OQ_TRY(oq_opset_needed(m, NULL, r, o, OQ_QMODE_INTEGER, target, why, err));
    if (*target >= 11)
        return ONQ_OK;
    OQ_TRY(oq_reach_graphs(m, r->config, see_inputs, &s, err));
    if (s.found) {
        *target = 11;
        *why = "DynamicQuantizeLinear needs opset 11";
    }
    return ONQ_OK;
}

/* As in the reference, which writes a raised model again before it infers types: small external
 * tensors come into the model, so that a Reshape whose shape was external has a type, and no tensor
 * says any longer where its data is. */
static onq_code take_small(void *ctx, oq_graph *g, onq_error *err) {
    oq_model *m = ctx;
    for (size_t i = 0; i < g->initializer.n; i++) {
        oq_tensor *t = g->initializer.v[i];
        uint64_t size = 0;
        oq_span data;
        if (!oq_tensor_is_external(t)) {
            t->data_location = (oq_opt_i32){0};
            continue;
        }
        if (t->data_type.v == OQ_STRING)
            continue;
        OQ_TRY(oq_tensor_bytes(t, &size, err));
        if (oq_stamp_is_apart(size))
            continue;
        OQ_TRY(oq_model_data(m, t, &data, err));
        OQ_TRY(oq_tensor_set_raw(&m->arena, t, data.p, data.n, err));
    }
    return ONQ_OK;
}

onq_code oq_opset_raise(oq_model *m, int64_t target, const char *why, bool reload, onq_error *err) {
    const int64_t now = oq_model_opset(m, OQ_S(""));
    if (target <= now)
        return ONQ_OK;
    OQ_TRY_IN(oq_model_upgrade(m, target, err), err,
              "%s, and raising the model from %lld to %lld fails", why, (long long)now,
              (long long)target);
    if (reload) {
        OQ_TRY(oq_walk_graphs(m->proto->graph, take_small, m, err));
        OQ_TRY(oq_stamp_reloaded(m, err));
    }
    if (now < 11 && target >= 11)
        OQ_TRY(oq_keep_old_resize(m, err));
    oq_warn(m->env, "%s: the model is raised from opset %lld to %lld", why, (long long)now,
            (long long)target);
    return ONQ_OK;
}
