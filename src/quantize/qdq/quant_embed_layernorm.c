/*
 * quant_embed_layernorm.c — com.microsoft EmbedLayerNormalization. In QDQ it has the default rule.
 */
#include "quantize/operators.h"
#include "quantize/qoperator/oper_rules.h"

const oq_qrule oq_qrule_embed_layernorm = {
    .qlinear = oq_ql_embed_layernorm,
    .integer = oq_ql_embed_layernorm,
};
