/*
 * stepper.h — goes through a graph once, from one stop to the next, over a number of samples.
 *
 * What a correction of one layer needs is what that layer sees when all layers before it are
 * corrected. To run the whole model again for each layer would take as many passes as there are
 * layers. A stepper runs only the nodes that lie between one stop and the next, and keeps the
 * tensors that stops to come need, for every sample, so that all stops together cost about two
 * runs: a stop is computed once to look at it, and again, as it is then, when something after it is
 * asked for. Where a stop's caller says which results stay as they are (`settled`), it is one run.
 *
 *     oq_stepper *s = NULL;
 *     OQ_TRY(oq_stepper_new(&options, source, &s, err));
 *     for (size_t k = 0; k < n_stops; k++)
 *         OQ_GO(oq_stepper_go(s, k, &tensor, 1, look, ctx, err)); ... change initializers of stop k
 *     oq_stepper_free(s);
 *
 * Between two stops may lie most of a large model. Such a way is gone in several sessions, each with
 * constants of about `at_once` bytes.
 *
 * DequantizeLinear is computed again in each slice that reads its result: what is kept is 8 bits
 * wide where the model is. Initializers of nodes that no stop before has passed may change between
 * two calls, the graph may not.
 */
#pragma once

#include "engine/slice/slicer.h"

typedef struct oq_stepper_options {
    oq_slicer_options slice;
    const uint32_t *stops; /* nodes of its graph, each after those it depends on; borrowed */
    size_t n_stops;
    const oq_str *beside; /* by stop: a tensor that is looked at there too; NULL or empty: none */
    /* By stop: the stop or a node before it whose results no change at the stop reaches any more,
     * once they were computed. They are kept where all that is kept takes no more than half of
     * `memory`; else they are computed again. NULL or OQ_NO_NODE: there is none. */
    const uint32_t *settled;
    /* Of the sessions. Beyond OQ_OPT_NONE the slicer's session should keep pairs: else the runtime
     * quantizes float weights of a Conv per tensor. */
    oq_opt_level level;
    uint64_t memory;  /* bytes of tensors that may be kept: samples that pass it are let go */
    uint64_t at_once; /* bytes of constants that a session should have; 0: 64 MiB */
} oq_stepper_options;

typedef struct oq_stepper oq_stepper;

/* Reads the samples from the source's beginning; there is at least one afterwards. */
onq_code oq_stepper_new(const oq_stepper_options *o, oq_source *source, oq_stepper **out,
                        onq_error *err);
void oq_stepper_free(oq_stepper *s);
/* Samples that are still there; fewer after a call that ran out of memory for them. */
size_t oq_stepper_samples(const oq_stepper *s);

/* Sees the tensors that were asked for, of one sample; borrowed during the call. */
typedef onq_code (*oq_step_fn)(void *ctx, size_t sample, const oq_datum *tensors, onq_error *err);

/* Computes the named tensors, inputs or outputs of the stop's node or what is beside it, for every
 * sample in turn. Stops are visited in order; one may be visited again before the next is. After a
 * failure the stepper can only be freed. */
onq_code oq_stepper_go(oq_stepper *s, size_t stop, const oq_str *names, size_t n_names,
                       oq_step_fn fn, void *ctx, onq_error *err);
