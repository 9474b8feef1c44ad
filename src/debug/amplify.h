/*
 * amplify.h — nodes after which there is far more noise, relative to the values, than before them.
 *
 * A logarithm near zero, a reciprocal, a difference of two large tensors: what comes out is small
 * or steep where the input is large or flat, so that a loss nobody would mind becomes one that
 * decides the result. No scale of the tensors around such a node helps; the nodes before it must
 * lose less.
 */
#pragma once

#include "debug/debug.h"

typedef struct oq_amplifier {
    uint32_t node;        /* in the main graph of the float model */
    double before, after; /* dB against the float model */
} oq_amplifier;

typedef OQ_VEC(oq_amplifier) oq_amplifiers;

/* Those that add most noise first. Needs what oq_debug_activations measured; the list goes to
 * `a`. */
onq_code oq_debug_amplifiers(const oq_debug *d, oq_arena *a, oq_amplifiers *out, onq_error *err);
