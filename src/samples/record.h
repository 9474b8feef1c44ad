/*
 * record.h — runs of a model that are kept: what went in, and what came out.
 *
 * A calibration keeps its first samples so (calibrate.h), for a later look at the quantized model
 * with the same inputs.
 */
#pragma once

#include "base/vec.h"
#include "samples/datum.h"

/* More than that, all runs together, is not kept: a record must cost little compared with the runs
 * themselves. Of a larger model a quarter of its size may be kept, up to the second number: the
 * logits of 128 tokens over a large vocabulary have 128 MiB. */
#define OQ_MAX_RECORD  ((uint64_t)64 << 20)
#define OQ_MOST_RECORD ((uint64_t)256 << 20)

typedef struct oq_record_run {
    oq_datum *inputs, *outputs;
    size_t n_inputs, n_outputs;
} oq_record_run;

typedef struct oq_record {
    oq_arena arena;
    OQ_VEC(oq_record_run) runs;   /* of the first samples, in their order */
    size_t most;                  /* runs that are wanted */
    uint64_t bytes, limit;        /* of those that are kept; that may be kept */
    bool generated;               /* of inputs that were made up */
    const struct oq_roles *roles; /* what inputs and outputs are for; NULL: what names say */
    bool classes;                 /* the first output holds scores of classes, however many axes */
} oq_record;

void oq_record_init(oq_record *r, const onq_allocator *alloc, size_t most);
void oq_record_release(oq_record *r);
/* The runs are of a model of so many bytes, weights included. */
void oq_record_fit(oq_record *r, uint64_t model_bytes);
/* True if the run of sample `number` (from 0) is the next one that is wanted. */
bool oq_record_wants(const oq_record *r, uint64_t number);
/* Copies a run, unless there are enough or it is too large. ONQ_E_NOMEM. */
onq_code oq_record_keep(oq_record *r, const oq_datum *inputs, size_t n_inputs,
                        const oq_datum *outputs, size_t n_outputs, onq_error *err);
