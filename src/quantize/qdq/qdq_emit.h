/*
 * qdq_emit.h — shared by the files that emit pairs: qdq_emit.c, qdq_convert.c.
 */
#pragma once

#include "quantize/qdq/qdq_state.h"

/* A QuantizeLinear or DequantizeLinear to be added. */
typedef struct oq_qdq_op {
    bool quantize;
    oq_str in, out, name;
    const oq_qdq_value *value;
    int64_t axis;   /* -1: none */
    uint64_t block; /* 0: none */
} oq_qdq_op;

onq_code oq_qdq_add_node(oq_qdq *q, const oq_qdq_op *op, onq_error *err);
/* Every maker of the tensor makes `name` instead. */
void oq_qdq_replace_outputs(oq_qdq *q, const oq_qdq_tensor *t, oq_str name);
/* An output of the graph that a node makes (an input or initializer that is an output cannot be
 * renamed). */
bool oq_qdq_is_made_output(const oq_qdq_tensor *t);

/* The pairs of an activation whose type is converted for some readers (qdq_convert.c). t->value and
 * t->converted hold the parameters. */
onq_code oq_qdq_emit_converted(oq_qdq *q, oq_qdq_tensor *t, const oq_override *convert,
                               onq_error *err);
