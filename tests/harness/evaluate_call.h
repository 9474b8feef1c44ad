/*
 * evaluate_call.h — what the operators of evaluate.c share; those that only move values are in
 * evaluate_moves.c.
 */
#pragma once

#include "evaluate.h"

typedef struct ev_call {
    const evaluation *e;
    const oq_node *n;
    const ev_tensor *in[EV_RANK]; /* NULL: left out */
    size_t n_in;
    ev_tensor *out;
    onq_error *err;
} ev_call;

/* Ends a call: the inputs do not suit the operator. */
onq_code ev_refuse(const ev_call *c, const char *why);
size_t ev_count(const int64_t *dims, size_t rank);
/* Makes room for the first output. */
onq_code ev_make_out(ev_call *c, oq_dtype dtype, const int64_t *dims, size_t rank);
/* The place of an element from its number, and back. */
void ev_unravel(const int64_t *dims, size_t rank, size_t i, int64_t *at);
size_t ev_ravel(const int64_t *dims, size_t rank, const int64_t *at);
/* Number i of a list of integers. */
int64_t ev_number(const oq_node *n, const char *name, size_t i, int64_t fallback);
/* An axis by its attribute; false when the tensor has none such. */
bool ev_axis(const ev_call *c, const char *name, int64_t fallback, size_t rank, size_t *out);

onq_code ev_do_reshape(ev_call *c);
onq_code ev_do_flatten(ev_call *c);
onq_code ev_do_squeeze(ev_call *c);
onq_code ev_do_transpose(ev_call *c);
onq_code ev_do_gather(ev_call *c);
onq_code ev_do_reduce_mean(ev_call *c);
onq_code ev_do_concat(ev_call *c);
onq_code ev_do_slice(ev_call *c);
onq_code ev_do_shape(ev_call *c);
onq_code ev_do_pad(ev_call *c);
