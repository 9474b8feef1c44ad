/*
 * gain.h — how near the outputs of a quantized model are to float's, on a few samples.
 */
#pragma once

#include "quantize/refine/refine.h"

typedef struct oq_gain {
    const oq_refine_job *job;
    oq_arena arena;
    OQ_VEC(oq_datum *) flt; /* by sample: the float model's outputs */
    size_t n_outputs;
    uint64_t bytes;
} oq_gain;

void oq_gain_init(oq_gain *g, const oq_refine_job *job);
void oq_gain_release(oq_gain *g);
/* Keeps what the float model made of the next sample; enough is enough, so later ones are not
 * kept. */
onq_code oq_gain_keep(oq_gain *g, const oq_outputs *out, onq_error *err);
/* Runs the model on the same samples: dB of the output that is worst; *measured is false when there
 * is none to compare. */
onq_code oq_gain_measure(oq_gain *g, bool *measured, double *sqnr, onq_error *err);
