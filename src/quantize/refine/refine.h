/*
 * refine.h — stages after quantization that make the result better with the help of samples.
 *
 *     oq_refine_job job = {.model = m, .flt = float_proto, .engine = e, .source = source, ...};
 *     OQ_TRY(oq_refine(&job, err));
 *
 * Bias correction: quantization moves the mean of a layer's output, channel by channel, and what
 * follows is biased by it. The mean difference to the float model goes into the layer's bias. One
 * layer after the other, each with all layers before it quantized and corrected already: two at
 * once would correct the same error twice.
 *
 * Learned rounding: the weights of each layer become the integers that bring its output nearest to
 * float's, for the inputs that float has, or given what the layers before make of the samples
 * (learn.h). Scales stay.
 *
 * Means of the float model come from one run over the samples, or from memory of such runs; those of the quantized model from
 * stepping through it (stepper.h).
 */
#pragma once

#include "engine/engine.h"
#include "quantize/refine/means.h"
#include "samples/source.h"

typedef struct oq_refine_job {
    oq_model *model;     /* quantized; is changed */
    oq_model_proto *flt; /* the same model before, which shares its weights */
    oq_engine *engine;
    oq_source *source;          /* read from its beginning, more than once */
    oq_session_options session; /* provider and custom operators; the rest is set here */
    uint64_t memory;            /* bytes of activations that may be kept */
    bool correct_bias;
    bool learn_rounding;
    bool reduced;    /* weights have one bit less */
    bool float_bias; /* biases that are added are float */
    bool compare;    /* say what was gained: the samples run twice more */
    /* Of `flt`, whatever is quantized: read, and filled; or NULL. */
    oq_mean_memory *means;
    const uint64_t *numbers;         /* of the source's samples, in memory; NULL: from 0 */
    struct oq_learn_memory *learned; /* of other models of the same float model and samples; or
                                      * NULL (learn.h) */
    /* out */
    size_t n_layers;    /* whose bias was corrected */
    size_t n_learned;   /* whose weights were rounded anew */
    size_t n_unable;    /* whose weights cannot be */
    const char *linear; /* the library that computed it; NULL: none was found */
    size_t n_unmatched; /* quantized, and the float model has no counterpart */
    size_t n_no_bias;   /* that have no place for a bias */
    size_t n_clipped;   /* channels whose bias int32 does not hold */
    size_t n_samples;   /* used; fewer than there are where memory did not hold them */
    bool measured;      /* the outputs were compared with float's, on n_compared samples */
    size_t n_compared;
    double before, after; /* dB, of the worst output, with the runtime's default options */
} oq_refine_job;

onq_code oq_refine(oq_refine_job *job, onq_error *err);
