/*
 * runner.h — what a calibration job does with samples. Its state is in runner_parts.h.
 */
#pragma once

#include "calibrate/calibrate.h"

typedef struct oq_runner oq_runner;

/* Selects the tensors, takes up the job's checkpoint and opens the model. The job and the part,
 * which may be NULL, must live as long. */
onq_code oq_runner_new(const oq_cal_job *job, const oq_cal_part *part, oq_runner **out,
                       onq_error *err);
void oq_runner_free(oq_runner *r); /* NULL: nothing happens */

bool oq_runner_is_histogram(const oq_runner *r);

/* All samples of the job's source, in both passes where the method has two. */
onq_code oq_runner_all(oq_runner *r, onq_error *err);
/* Those of the part, into a file. */
onq_code oq_runner_share(oq_runner *r, const char *path, onq_error *err);
/* The job's source is another now, whose samples are a further portion. */
onq_code oq_runner_next(oq_runner *r, onq_error *err);
/* The ranges of what was seen. */
onq_code oq_runner_finish(oq_runner *r, oq_ranges *out, onq_error *err);

/* Frees the memory of the runtime when all samples have run. */
void oq_runner_close_sessions(oq_runner *r);
/* Warns of samples with NaN, and of states that no run made. */
void oq_runner_tell(oq_runner *r);
