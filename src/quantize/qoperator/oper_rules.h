/*
 * oper_rules.h — the QLinear and integer rules, for the rows of operators.def (the structs are in
 * quant_*.c).
 */
#ifndef OQ_QUANTIZE_OPER_RULES_H
#define OQ_QUANTIZE_OPER_RULES_H

#include "quantize/operators.h"

#define OQ_RULE(name) onq_code oq_ql_##name(struct oq_qoper *q, oq_node *n, onq_error *err)
/* oper_conv.c */
OQ_RULE(conv);
OQ_RULE(conv_integer);
/* oper_matmul.c */
OQ_RULE(matmul);
OQ_RULE(matmul_integer);
OQ_RULE(gemm);
/* oper_transformer.c */
OQ_RULE(attention);
OQ_RULE(embed_layernorm);
OQ_RULE(lstm);
OQ_RULE(gather);
/* oper_simple.c */
OQ_RULE(argmax);
OQ_RULE(binary);
OQ_RULE(activation);
OQ_RULE(gavgpool);
OQ_RULE(pool);
OQ_RULE(softmax);
OQ_RULE(concat);
OQ_RULE(where);
/* quant_recurrent.c */
OQ_RULE(recurrent);
/* oper_direct.c */
OQ_RULE(direct);
OQ_RULE(maxpool);
OQ_RULE(resize);
OQ_RULE(split);
OQ_RULE(pad);
#undef OQ_RULE

#endif
