/*
 * saturate.h — weights whose products stay within 16 bits.
 *
 * x86 CPUs without VNNI multiply unsigned by signed bytes with vpmaddubsw, which adds two products
 * and clips the sum to 16 bits: 255 x 127 twice is 64770, and 32767 is left of it. Seven bits for
 * all weights (--reduce_range) keep every sum below that; here only those channels get a larger
 * scale that have a pair of weights beside each other whose products can pass 16 bits with some
 * input, and only as much larger as that takes.
 *
 * Weights are beside each other as ONNX Runtime's kernels have them: of a MatMul and Gemm along the
 * rows, of a Conv channel after channel at each place of the kernel, in pairs from the first on.
 * Depthwise convolutions add 32-bit products and are left alone.
 */
#pragma once

#include "quantize/number/qweight.h"

/* Of two weights of the same sign that meet: 255 x 128 fits into 16 bits. */
#define OQ_MAX_PAIR 128

/* Raises the scales of an int8 weight of `n`, a Conv, Gemm or MatMul whose weight is input 1, until
 * no sum passes; zero points are 0. *narrowed is true if one was raised. Scratch comes from
 * `alloc`. */
onq_code oq_saturate_narrow(const oq_node *n, const oq_qweight *w, oq_qparams *params,
                            const onq_allocator *alloc, bool *narrowed, onq_error *err);
