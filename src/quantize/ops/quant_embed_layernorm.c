/*
 * quant_embed_layernorm.c — com.microsoft EmbedLayerNormalization. In QDQ it has the default rule.
 */
#include "quantize/qop.h"

const oq_qrule oq_qrule_embed_layernorm = {.qdq = NULL};
