/*
 * nb_learn.h — methods that look at what a weight's inputs are: samples run through the float
 * model, and every weight is quantized as soon as enough is known of its inputs.
 *
 *     gptq  Hessians of the inputs (quantize/rounding), one layer after another: a layer meets what
 *           the quantized layers before it make of the samples, and is rounded towards what it made
 *           of them as float (nb_stream.h: or towards a sum). Both models run in slices
 *           (engine/slice/stepper.h), so that only a layer of each is in memory. Weights in inner
 *           graphs, and those that several nodes read, see the inputs of the float model, as many
 *           Hessians at a time as memory holds. The integers are made here, not when the model is
 *           written.
 *     awq   the mean magnitude of each channel: channels with large inputs are scaled up before
 *           they are rounded, and what they meet is scaled down, in the node before where that can
 *           be (Lin and others, 2023). Then each block gets the range that loses least.
 */
#pragma once

#include "engine/engine.h"
#include "quantize/nbits/nbits.h"
#include "quantize/rounding/solve.h"
#include "samples/source.h"

/* Where the processor time of gptq went, in seconds of all threads. */
typedef struct oq_nb_times {
    double runs;    /* of both models over the samples, their sessions included */
    double sums;    /* adding up Hessians */
    double solving; /* rounding by them, sweeps included */
} oq_nb_times;

/* What a method knows of a weight's inputs. */
typedef struct oq_nb_learned {
    const oq_hessian *hessian; /* gptq */
    oq_round_factor *factor;   /* made when the first weight needs it */
    bool outputs;              /* the Hessian's second side has what the outputs should be */
    const struct oq_nb_learn_job *job;
    const oq_linear *linear;
    oq_pool *pool;
} oq_nb_learned;

typedef struct oq_nb_learn_job {
    oq_model *model; /* awq: is changed */
    oq_engine *engine;
    oq_source *source; /* read from its beginning, more than once */
    oq_session_options session;
    oq_nb_config *config;
    uint64_t memory;                         /* for Hessians, and activations that are kept */
    double damp;                             /* --percdamp */
    bool act_order, search_range, one_scale; /* --actorder, --mse, not --perchannel */
    unsigned sweeps;                         /* --sweeps */
    size_t n_scaled, n_folded;               /* out, awq: tensors, and those that need no node */
    size_t n_passes;                         /* out: runs over the samples */
    size_t n_layers;                         /* out: whose inputs were looked at */
    size_t n_few;                            /* out: of them met fewer rows than they have inputs */
    size_t n_samples;                        /* out, gptq */
    oq_nb_times times;                       /* out, gptq */
    double noise; /* out, gptq: of what the last layer reads, over its power; 0: not known */
} oq_nb_learn_job;

/* gptq: makes the weights of `made` that wait for samples. `flt` is the graph before it was
 * quantized. */
onq_code oq_nb_learn(oq_nb_learn_job *job, oq_model_proto *flt, oq_nb_made *made, onq_error *err);
/* awq: scales the float model, before it is quantized. */
onq_code oq_nb_scale(oq_nb_learn_job *job, onq_error *err);
