/*
 * record.h — one run of a model that is kept: what went in, and what came out.
 *
 * A calibration keeps its first sample so (calibrate.h), for a later look at the quantized model
 * with the same inputs.
 */
#ifndef OQ_SAMPLES_RECORD_H
#define OQ_SAMPLES_RECORD_H

#include "samples/datum.h"

/* More than that is not kept: a record must cost little compared with the run itself. */
#define OQ_MAX_RECORD ((uint64_t)64 << 20)

typedef struct oq_record {
    oq_arena arena;
    oq_datum *inputs, *outputs;
    size_t n_inputs, n_outputs;
    bool kept;      /* there is a run */
    bool generated; /* of inputs that were made up */
} oq_record;

void oq_record_init(oq_record *r, const onq_allocator *alloc);
void oq_record_release(oq_record *r);
/* Copies a run into an empty record; `kept` stays false when it is too large. ONQ_E_NOMEM. */
onq_code oq_record_keep(oq_record *r, const oq_datum *inputs, size_t n_inputs,
                        const oq_datum *outputs, size_t n_outputs, onq_error *err);

#endif
