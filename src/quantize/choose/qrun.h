/*
 * qrun.h — the state of a run: what became known of single nodes while a model is quantized.
 *
 * config.h has what the user chose, before any model is read. A run adds what selections, methods,
 * a plan and a look at the result say about the nodes of this model. Whoever owns a run fills it
 * between the steps; drivers read it.
 */
#pragma once

#include "quantize/choose/config.h"

/* Why a node was left float. */
typedef enum oq_left {
    OQ_LEFT_ARITHMETIC,
    OQ_LEFT_DEPTHWISE,
    OQ_LEFT_POOLED,
    OQ_LEFT_PAIR,
    OQ_LEFT_TRANSPOSE,
    OQ_LEFT_SLOWER,
    OQ_LEFT_LIGHT,
    OQ_LEFT_BETWEEN,
    OQ_LEFT_MASK /* by masks.h */
} oq_left;

/* Nodes are known by their first outputs, but for those that were added, which have names. */
typedef struct oq_qrun {
    oq_qconfig *config;
    oq_given *given;      /* a plan that was read decides, whatever the lists say; NULL: none */
    oq_map left;          /* nodes that a selection leaves float -> an oq_left */
    oq_map added;         /* nodes that a method put in; they stay float */
    oq_map float_outputs; /* nodes whose outputs are not quantized */
    oq_map doubled;       /* MatMul nodes with double activations */
    oq_map pointwise;     /* Conv nodes that become MatMul (quantize/ort/pointwise.h) */
    oq_map unsound;       /* nodes that a look at the result found to be at fault */
} oq_qrun;

/* A run that has not begun. Its memory is the configuration's arena. */
void oq_qrun_init(oq_qrun *r, oq_qconfig *config);

/* Leaves a node float, unless it is left already or its method is given. */
onq_code oq_qrun_leave(oq_qrun *r, const oq_node *n, oq_left why, onq_error *err);
/* Why it was left, or NULL. */
const char *oq_qrun_left_why(const oq_qrun *r, const oq_node *n);

/* Why a node is not for quantization; NULL when it is. `modes` (of oq_qmode) give the default list
 * of operators. should_quantize_node of the reference. */
const char *oq_qrun_skip(oq_qrun *r, const oq_node *n, unsigned modes);
