/*
 * evaluate.h — computes a node whose inputs are constants (evaluate.def has the operators).
 *
 * Values are computed as the runtime would: floats in double and rounded once to the type of the
 * result, integers in 64 bits. What is not sure (a type that is not known here, a bad index, a
 * result that is larger than OQ_EVAL_BYTES) is left alone: the node stays.
 */
#pragma once

#include "onnx/attr.h"
#include "onnx/tensor.h"

#define OQ_EVAL_AXES   8
#define OQ_EVAL_BYTES  ((uint64_t)64 << 20) /* of a result */
#define OQ_EVAL_GROW   ((uint64_t)1 << 16)  /* of a result that is larger than its inputs */
#define OQ_EVAL_INPUTS 64

/* A tensor while it is computed. */
typedef struct oq_cval {
    oq_dtype dt;
    size_t rank;
    int64_t dims[OQ_EVAL_AXES];
    size_t n;     /* elements */
    size_t width; /* bytes of one */
    const uint8_t *p;
    bool given; /* inputs: false for an optional one that is left out */
} oq_cval;

typedef struct oq_eval {
    oq_arena *arena;
    const oq_node *node;
    int64_t opset;
    size_t n_in;
    oq_cval in[OQ_EVAL_INPUTS];
    uint64_t in_bytes;
    oq_cval out;
    uint8_t *to; /* the bytes of out */
    bool nomem;
} oq_eval;

/* True when out was computed. */
typedef bool (*oq_eval_fn)(oq_eval *c);

#define OQ_EVAL(op) bool oq_eval_##op(oq_eval *c);
#include "prepare/evaluate/evaluate.def"
#undef OQ_EVAL

/* NULL when there is none for the operator. */
oq_eval_fn oq_eval_find(oq_str op_type);

/* Sets type and dims of the result and makes room for it; false past the limits. */
bool oq_eval_make(oq_eval *c, oq_dtype dt, const int64_t *dims, size_t rank);
/* A view of a tensor; false when its type has no whole bytes, its rank is too high, or it cannot be
 * read. */
bool oq_cval_of(oq_model *m, oq_tensor *t, oq_cval *v);
/* Integers of an input (int32 or int64), in the arena; false if it is not one. */
bool oq_eval_ints(oq_eval *c, size_t i, const int64_t **v, size_t *n);
/* The attribute `name` before opset `since`, input `slot` from there on; *given says whether there
 * is one. */
bool oq_eval_axes(oq_eval *c, const char *name, size_t slot, const int64_t **v, size_t *n,
                  bool *given);

double oq_cval_real(const oq_cval *v, size_t i);
int64_t oq_cval_int(const oq_cval *v, size_t i);
void oq_cval_put_real(oq_eval *c, size_t i, double x);
void oq_cval_put_int(oq_eval *c, size_t i, int64_t x);
