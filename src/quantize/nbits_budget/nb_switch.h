/*
 * nb_switch.h — a model in which each weight can be float or quantized, as an input says.
 */
#pragma once

#include "quantize/nbits/nbits.h"

#define OQ_NB_NO_SWITCH SIZE_MAX

typedef struct oq_nb_switch {
    oq_arena *arena;
    oq_model_proto *proto; /* the inputs of the model, and `n` scalars of BOOL after them */
    size_t n;
    OQ_VEC(const oq_nb_lazy *) weights; /* whose switches they are */
    oq_nb_made made;                    /* the quantized weights */
} oq_nb_switch;

void oq_nb_switch_init(oq_nb_switch *s, oq_arena *arena);
/* Payloads: not before the sessions of the graph are closed. */
void oq_nb_switch_release(oq_nb_switch *s);
/* The model stays as it is; weights are rounded to the nearest as `c->how` says. A product that a
 * single MatMulNBits does not replace has no switch. */
onq_code oq_nb_switch_make(oq_nb_switch *s, oq_model *m, const oq_nb_config *c,
                           const oq_nb_weighed *all, size_t n, onq_error *err);
/* The place of a weight's switch, or OQ_NB_NO_SWITCH. */
size_t oq_nb_switch_of(const oq_nb_switch *s, const oq_nb_lazy *weight);
