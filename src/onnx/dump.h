/*
 * dump.h — a model as stable text, for tests and for people.
 *
 * One line per opset, input, output, initializer (type, dims, hash or short values) and node (inputs,
 * outputs, attributes sorted by name); subgraphs indented.
 */
#ifndef OQ_ONNX_DUMP_H
#define OQ_ONNX_DUMP_H

#include "onnx/model.h"

onq_code oq_dump_model(oq_model *m, oq_buf *out, onq_error *err);

#endif
