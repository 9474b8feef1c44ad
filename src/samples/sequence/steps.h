/*
 * steps.h — samples as steps of sequences: a feed (tape.h) over another source.
 *
 * Each sample of the source is a sequence by itself, a step of one (a folder of folders, a reader
 * that says so), or holds its steps along an axis. With `generate`, so many steps follow each
 * sequence, whose tokens the model chooses.
 *
 * Where `run` is given the steps are complete: the model runs through each sequence (seq_walk.h) and its
 * states are in the samples, so that whoever reads them need not know of sequences at all. It is run
 * no more often than that takes, and not at all for sequences of one step. Without `run` the steps
 * are raw: inputs that a walk fills in are left out, for whoever walks along himself.
 */
#pragma once

#include "samples/sequence/seq_walk.h"

typedef struct oq_steps_options {
    const oq_source_options *source; /* opened by the feed; limits and shares are not applied */
    const oq_walker *walker;         /* borrowed */
    uint64_t generate;
    /* Runs one step; what comes out is valid until the next call. */
    onq_code (*run)(void *ctx, const oq_sample *step, const oq_datum **outputs, size_t *n,
                    onq_error *err);
    void (*close)(void *ctx); /* called when the feed is closed, or could not be opened; or NULL */
    void *ctx;
} oq_steps_options;

onq_code oq_feed_open_steps(onq_env *env, const oq_steps_options *o, oq_feed **out, onq_error *err);
