/*
 * evaluate.h — what an operator computes, written down as its definition says and no faster.
 *
 * The fake engine (fake_engine.h) runs models with it. All numbers are doubles; a result is rounded
 * to its type once, when it is complete. What an operator has beyond the table in evaluate.c
 * (auto_pad, other axes ...) is refused, never guessed.
 */
#pragma once

#include "onnx/model.h"
#include "samples/datum.h"

#define EV_RANK 8

typedef struct ev_tensor {
    oq_dtype dtype;
    size_t rank;
    int64_t dims[EV_RANK];
    size_t n;
    double *v;
} ev_tensor;

typedef struct evaluation {
    oq_model *model; /* of the tensors in attributes and inner graphs */
    oq_arena *arena; /* of results */
    /* A tensor of the graph that the node stands in; NULL: there is none. */
    const ev_tensor *(*find)(void *ctx, oq_str name);
    void *ctx;
} evaluation;

bool evaluate_knows(const oq_node *n);
/* Runs a node whose operator is known; `out` has a place for each of its outputs. ONQ_E_RUNTIME when
 * the inputs do not suit it, or ONQ_E_NOMEM. */
onq_code evaluate_node(const evaluation *e, const oq_node *n, ev_tensor *out, onq_error *err);
/* The value of an initializer. */
onq_code evaluate_tensor(const evaluation *e, oq_tensor *t, ev_tensor *out, onq_error *err);

onq_code ev_from_datum(oq_arena *a, const oq_datum *d, ev_tensor *out, onq_error *err);
/* The dims of `out` are those of `t`. */
onq_code ev_to_datum(oq_arena *a, const ev_tensor *t, oq_datum *out, onq_error *err);
