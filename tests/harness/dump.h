/*
 * dump.h — a model as stable text, for tests and for people.
 *
 *     ir_version 8
 *     opset ai.onnx 13
 *     graph main
 *     input x FLOAT[N,3,8,8]
 *     output y FLOAT[N,4,8,8]
 *     init b FLOAT[2] = {0.5, -1}
 *     init w FLOAT[4,3,3,3] hash 8f2a41c09d77e310
 *     node conv1: Conv(x, w, b) -> (y) {group=1, pads=[1,1,1,1]}
 *
 * One line per opset, metadata entry, input, output, value_info, initializer (type, dims, values or
 * their hash) and node (inputs, outputs, attributes sorted by name; floats end in f); subgraphs
 * indented below their node.
 */
#pragma once

#include "onnx/model.h"

onq_code oq_dump_model(oq_model *m, oq_buf *out, onq_error *err);
