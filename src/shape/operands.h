/*
 * operands.h — checks that the inputs of nodes fit their operators.
 *
 * How many there are, and for products (Conv, Gemm, MatMul, and their counterparts when they are
 * quantized) ranks, channels, the length of the bias, the number of scales and zero points. The
 * facts by operator are in operators.def. A runtime refuses what is refused here, when it loads the
 * model or runs it; commands that have no runtime would make something of it that nobody meant.
 *
 * An unknown shape is taken to fit.
 */
#ifndef OQ_SHAPE_OPERANDS_H
#define OQ_SHAPE_OPERANDS_H

#include "shape/shape.h"

/* Checks all nodes with the shapes that inference finds: for a model that comes in. */
onq_code oq_operands_check(oq_model *m, onq_error *err);
/* The same with the shapes of constants alone, which costs nothing: for a model that goes out. */
onq_code oq_operands_check_constants(oq_model *m, onq_error *err);

#endif
