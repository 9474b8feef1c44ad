/*
 * qnn_parts.h — what qnn.c and qnn_io.c share.
 */
#pragma once

#include "onnx/graph.h"
#include "prepare/qnn.h"

/* One more than the largest number after `prefix` among the names of nodes. */
int64_t oq_qnn_next_suffix(const oq_graph *g, oq_str prefix);
/* prefix and number; p == NULL when out of memory. */
oq_str oq_qnn_number(oq_model *m, oq_str prefix, int64_t n);

/* qnn_io.c: fixed shapes for inputs (and outputs, as far as they follow); channels last. */
onq_code oq_qnn_fix_shapes(oq_model *m, const oq_qnn_shape *s, size_t n, onq_error *err);
onq_code oq_qnn_channel_last(oq_model *m, const oq_qnn_options *o, onq_error *err);
