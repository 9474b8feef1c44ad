/*
 * samples.h — what the options of the groups "Samples", "Resources" and "Runtime" ask for: a
 * source, what a calibration may take, and an engine.
 *
 * For every command that runs a model.
 */
#pragma once

#include "api/options/command.h"
#include "calibrate/calibrate.h"
#include "engine/engine.h"
#include "samples/sequence/seq_walk.h"

/* Fills `o` from --data, --limit, --dim and --image_*; texts live in the job's arena.
 * ONQ_E_OPTION when a value does not fit. */
onq_code oq_job_source_options(oq_job *job, const oq_model *m, oq_source_options *o,
                               onq_error *err);
/* --dim, in the job's arena; ONQ_E_OPTION. */
onq_code oq_job_dims(oq_job *job, const oq_dim_fix **out, size_t *count, onq_error *err);
/* The samples of this job come from the reader. */
onq_code oq_job_read(oq_job *job, const onq_reader *reader, onq_error *err);
/* Opens such a source. Says, once in a job, that samples are random, or no images for --image_*.
 * The caller closes it. */
onq_code oq_job_open_source(oq_job *job, const oq_source_options *o, oq_source **out,
                            onq_error *err);
/* The source that the options describe: all samples. The caller closes it. */
onq_code oq_job_source(oq_job *job, const oq_model *m, oq_source **out, onq_error *err);
/* Says, once in a job and after the samples were read, what was done to images, and warns of
 * samples that say little: constant, repeated, not scaled; with `find_ranges` also of few. */
onq_code oq_job_tell_samples(oq_job *job, const oq_model *m, const oq_source *source,
                             bool find_ranges, onq_error *err);

/*
 * Sequences (sequences.c). A model with states is run through the samples of a source before they
 * are given out, so that each step has the states that the step before left. The model is that for
 * which the first source of a job is opened: float, where there are two.
 */

/* How the model walks through sequences as --carry says, in the job's arena; NULL: it has no
 * states, or --no_carry. Says once in a job what was found. */
onq_code oq_job_walker(oq_job *job, const oq_model *m, const oq_walker **out, onq_error *err);
/* For callers that walk through sequences themselves: the same source with raw steps
 * (samples/sequence/steps.h). Where *walker is NULL, samples are complete. */
onq_code oq_job_raw_source(oq_job *job, const oq_model *m, oq_source **out,
                           const oq_walker **walker, onq_error *err);
/* The same with options that were read. */
onq_code oq_job_open_raw_source(oq_job *job, const oq_source_options *o, oq_source **out,
                                const oq_walker **walker, onq_error *err);
/* What oq_job_open_source puts in place of the samples that `o` names; unchanged if the model has
 * no states. */
onq_code oq_job_steps_options(oq_job *job, bool raw, oq_source_options *o, onq_error *err);
void oq_job_close_steps(oq_job *job);
/* After the last sample: warns of a decoder whose texts all begin with a past. */
void oq_job_tell_steps(const oq_job *job);
/* --memory, --jobs and --fast. */
void oq_job_resources(const oq_job *job, oq_cal_options *o);
/* ONNX Runtime as --onnxruntime says. The caller closes it. */
onq_code oq_job_engine(oq_job *job, oq_engine **out, onq_error *err);
/* Threads, --provider and --custom_ops for a session; the caller adds the model and the rest. */
onq_code oq_job_session(oq_job *job, oq_session_options *o, onq_error *err);
