/*
 * opset.c — which opset the result needs.
 */
#include "quantize/opset.h"

#include "onnx/graph.h"
#include "onnx/upgrade.h"
#include "quantize/qop.h"

static bool has_float16(const oq_graph *g) {
    for (size_t i = 0; i < g->initializer.n; i++)
        if (g->initializer.v[i]->data_type.v == OQ_FLOAT16)
            return true;
    for (size_t i = 0; i < g->input.n; i++) {
        const oq_type *t = g->input.v[i]->type;
        if (t != NULL && t->tensor_type != NULL && t->tensor_type->elem_type.v == OQ_FLOAT16)
            return true;
    }
    return false;
}

static bool takes_weights(oq_str op) {
    static const char *const types[] = {"Conv",
                                        "ConvTranspose",
                                        "Gemm",
                                        "MatMul",
                                        "LayerNormalization",
                                        "InstanceNormalization",
                                        "BatchNormalization"};
    for (size_t i = 0; i < OQ_COUNT(types); i++)
        if (oq_str_is(op, types[i]))
            return true;
    return false;
}

/* Will some weight be quantized per channel? */
static onq_code has_channels(oq_model *m, oq_qconfig *c, const oq_overrides *o, bool *out,
                             onq_error *err) {
    *out = false;
    for (size_t i = 0; o != NULL && i < o->all.n; i++)
        *out |= o->all.v[i]->channels.v[0].has_axis;
    if (*out || !c->per_channel)
        return ONQ_OK;
    oq_arena scratch;
    oq_index ix;
    oq_graph *g = m->proto->graph;
    oq_arena_init(&scratch, &m->env->alloc);
    const onq_code rc = oq_index_build(&ix, &scratch, g, NULL, err);
    for (size_t i = 0; rc == ONQ_OK && i < g->node.n && !*out; i++) {
        const oq_node *n = g->node.v[i];
        if (!takes_weights(n->op_type) ||
            oq_qconfig_skip(c, n, OQ_QMODE_QDQ | OQ_QMODE_QLINEAR) != NULL)
            continue;
        for (size_t k = 0; k < n->input.n && k < 2; k++) {
            const oq_tensor *t = oq_index_init(&ix, n->input.v[k]);
            *out |= t != NULL && oq_dtype_is_float(t->data_type.v) && t->dims.n > 1;
        }
    }
    oq_arena_release(&scratch);
    return rc;
}

static bool contrib_ops(const oq_qconfig *c, const oq_overrides *o) {
    return c->use_qdq_contrib_ops || oq_qtype_is_4bit(c->activation_type) ||
           oq_qtype_is_4bit(c->weight_type) || oq_overrides_any_type(o, oq_qtype_is_4bit);
}

onq_code oq_quant_opset(oq_model *m, oq_qconfig *c, const oq_overrides *o, bool dynamic,
                        int64_t *target, const char **why, onq_error *err) {
    const int64_t now = oq_model_opset(m, OQ_S(""));
    const bool wide = oq_qtype_is_16bit(c->weight_type) ||
                      (!dynamic && (oq_qtype_is_16bit(c->activation_type) ||
                                    oq_overrides_any_type(o, oq_qtype_is_16bit)));
    bool channels = false;
    *target = now;
    *why = "";
    if (now <= 0)
        return oq_fail(err, ONQ_E_INVALID, "the model imports no opset of ONNX (ai.onnx)");
    if (now < 21 && c->block_size > 0) {
        *target = 21;
        *why = "blocks need opset 21";
    } else if (now < 19 && c->weight_type == OQ_FLOAT8E4M3FN) {
        *target = 19;
        *why = "float 8 needs opset 19";
    } else if (now < 21 && wide) {
        *target = 21;
        *why = "16-bit types need opset 21";
    } else if (now < 10) {
        *target = 11;
        *why = "QuantizeLinear needs opset 10";
    }
    if (dynamic || contrib_ops(c, o))
        return ONQ_OK;
    if (*target < 13) {
        OQ_TRY(has_channels(m, c, o, &channels, err));
        if (channels) {
            *target = 13;
            *why = "weights per channel need opset 13";
        }
    }
    if (*target < 19 && has_float16(m->proto->graph)) {
        *target = 19;
        *why = "quantizing float16 tensors needs opset 19";
    }
    return ONQ_OK;
}

onq_code oq_quant_raise_opset(oq_model *m, int64_t target, const char *why, onq_error *err) {
    const int64_t now = oq_model_opset(m, OQ_S(""));
    if (target <= now)
        return ONQ_OK;
    const onq_code rc = oq_model_upgrade(m, target, err);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "%s, and raising the model from %lld to %lld fails", why,
                           (long long)now, (long long)target);
    oq_warn(m->env, "%s: the model is raised from opset %lld to %lld", why, (long long)now,
            (long long)target);
    return ONQ_OK;
}
