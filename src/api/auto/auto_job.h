/*
 * auto_job.h — what the files of `onq auto` share: the job, how a recipe becomes a model, how the
 * answer is shown.
 */
#pragma once

#include "api/bench/labels.h"
#include "api/options/command.h"
#include "api/quantizing/for_runtime.h"
#include "calibrate/extents.h"
#include "prepare/channels/channel_stats.h"
#include "quantize/refine/learn.h"
#include "quantize/refine/means.h"
#include "samples/grade.h"
#include "tune/tune.h"

/* A model that is prepared for others to begin with. */
typedef struct oq_auto_prepared {
    oq_recipe recipe;
    const char *path;
    uint64_t size;
} oq_auto_prepared;

/* What was found while a prepared model was calibrated with the samples of a fold. */
typedef struct oq_auto_memory {
    size_t prepared, fold; /* numbers, from 0 */
    oq_channel_memory *channels;
    oq_learn_memory *learned;
} oq_auto_memory;

/* What a prepared model makes of samples, in float: extents of tensors, means of layers. */
typedef struct oq_auto_means {
    size_t prepared;
    oq_extent_memory *extents;
    oq_mean_memory *layers;
} oq_auto_means;

/* Ranges that a recipe without its corrections has; number K has them in a file of the folder. */
typedef struct oq_auto_ranges {
    oq_recipe recipe;
    size_t fold;
} oq_auto_ranges;

typedef struct oq_auto {
    oq_job *job;
    onq_env quiet; /* the job's environment without messages: of commands run inside */
    oq_engine *engine;
    oq_model *model; /* as it was given */
    oq_meaning meaning;
    oq_default_target by_default; /* why NULL: targets were given */
    oq_tune tune;
    oq_trials choose, report;
    oq_division folds, again;
    bool eval_data;     /* report has samples of its own */
    oq_labels labels;   /* v NULL: none */
    const char *folder; /* for what is tried; removed in the end (base/system/temp.h) */
    size_t n_files;     /* in it */
    OQ_VEC(oq_auto_prepared) prepared;
    OQ_VEC(oq_auto_memory) memories;
    OQ_VEC(oq_auto_means) means;
    OQ_VEC(const oq_fold *) known_folds;
    OQ_VEC(oq_auto_ranges) calibrated;
    bool late;      /* a command inside was ended: it took too long, or too much */
    bool finishing; /* the answer is made, however long it takes */
    oq_candidate *chosen, *nearest;
    const oq_candidate *cheaper; /* what a target that is a little lower would give, or NULL */
    double lower_target;
    oq_runtime_fitted fitted; /* --for_runtime */
    const char *path;         /* the model that is written */
    bool reached;
    uint64_t needed; /* samples, where too few are all that lacks */
    double seconds, cpu_seconds;
    double counted_seconds; /* of the processor, as a quiet machine takes them */
} oq_auto;

/* ---- auto_samples.c ---- */

/* Samples that choose, in parts, and samples that report, with float's outputs. */
onq_code oq_auto_open_samples(oq_auto *a, onq_error *err);

/* ---- auto_targets.c ---- */

onq_code oq_auto_set_targets(oq_auto *a, onq_error *err);

/* ---- auto_answer.c ---- */

/* Chooses among the candidates, writes the model and all that was asked for. */
onq_code oq_auto_answer(oq_auto *a, onq_error *err);

/* ---- auto_make.c: running the commands of recipes ---- */

/* Puts a model that is in memory into that folder, for the commands that read it. */
onq_code oq_auto_write_input(oq_auto *a, onq_error *err);
/* For oq_tune. */
onq_code oq_auto_make(void *ctx, const oq_recipe *r, const oq_fold *fold, const char **path,
                      uint64_t *size, onq_error *err);
void oq_auto_drop(void *ctx, const char *path);
/* Bytes of a model's file with its external data. */
onq_code oq_auto_size(const oq_auto *a, const char *path, uint64_t *size, onq_error *err);
/* Releases what was kept between recipes. */
void oq_auto_forget(oq_auto *a);
onq_code oq_auto_evaluate(void *ctx, const char *path, double *metric, onq_error *err);

/* ---- auto_show.c: what text and JSON have in common ---- */

/* The metric of the first target, which the table shows beside dB. */
oq_metric oq_auto_shown(const oq_auto *a);
/* Of a language model. */
oq_grade oq_auto_grade(const oq_score *s);
/* Why it could not be made, without the name of a scratch file. */
const char *oq_auto_reason(const oq_auto *a, const oq_candidate *c);
/* The point of the curve that has the same units in integers as `c`, or NULL: it says why the
 * others are float. */
const oq_candidate *oq_auto_point(const oq_auto *a, const oq_candidate *c);
/* Tokens a second of the text that is timed. */
double oq_auto_prefill_speed(const oq_auto *a, const oq_candidate *c);
/* It was allowed, and the time was over before. */
bool oq_auto_had_no_turn(const oq_auto *a, oq_way way);
/* The commands that make a candidate again, one a line. */
void oq_auto_commands(const oq_auto *a, const oq_candidate *c, oq_buf *out);
onq_code oq_auto_write_recipe(const oq_auto *a, const char *path, onq_error *err);

/* ---- auto_text.c, auto_json.c: the answer ---- */

void oq_auto_text(const oq_auto *a);
void oq_auto_json(const oq_auto *a, oq_jw *w);
/* As a page. */
onq_code oq_auto_write_report(const oq_auto *a, const char *path, onq_error *err);
