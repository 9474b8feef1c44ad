/*
 * compute.h — "the model computes what it did", run and not claimed.
 *
 *     computed before;
 *     compute(&b, &before);
 *     ... the model is changed ...
 *     assert_computes(&b, &before, 1e-6);
 *     computed_release(&before);
 *
 * Runs go through the fake engine (evaluate.h), over COMPUTE_SAMPLES: three samples that fit what the
 * model declares. An edit that depends on samples must get the same ones. A model that cannot be run
 * fails the test.
 */
#pragma once

#include "build_model.h"
#include "samples/datum.h"

#define COMPUTE_SAMPLES "random:3:1"

typedef struct computed {
    oq_arena arena;
    OQ_VEC(oq_datum) outputs; /* of the first sample in the order of the model, then the next */
    oq_strs names;
} computed;

void compute(bm *b, computed *out);
void computed_release(computed *c);
/* Runs the model again: its outputs have the names, types and dimensions that they had, and no number
 * differs by more than `within` times the largest of its output. 0: to the bit. */
void assert_computes(bm *b, const computed *before, double within);
