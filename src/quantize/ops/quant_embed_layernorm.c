/*
 * quant_embed_layernorm.c — com.microsoft EmbedLayerNormalization. In QDQ it has the default rule.
 */
#include "quantize/ops/oper_rules.h"
#include "quantize/qop.h"

const oq_qrule oq_qrule_embed_layernorm = {
    .qlinear = oq_ql_embed_layernorm,
    .integer = oq_ql_embed_layernorm,
};
