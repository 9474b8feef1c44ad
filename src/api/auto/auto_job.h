/*
 * auto_job.h — what the files of `onq auto` share: the job, how a recipe becomes a model, how the
 * answer is shown.
 */
#ifndef OQ_API_AUTO_JOB_H
#define OQ_API_AUTO_JOB_H

#include "api/bench/labels.h"
#include "api/options/command.h"
#include "prepare/channels/channel_stats.h"
#include "tune/tune.h"

typedef struct oq_auto {
    oq_job *job;
    onq_env quiet; /* the job's environment without messages: of commands run inside */
    oq_engine *engine;
    oq_model *model;   /* as it was given */
    oq_recipe prepare; /* how it is prepared; command NULL: not at all */
    oq_tune tune;
    oq_trials choose, report;
    oq_channel_memory channels;   /* of the prepared model */
    bool report_is_own;           /* the samples that report chose nothing */
    bool classes;                 /* the first output holds scores of classes */
    oq_labels labels;             /* v NULL: none */
    const char *folder;           /* for what is tried; removed in the end (base/system/temp.h) */
    size_t n_files;               /* in it */
    OQ_VEC(oq_recipe) calibrated; /* without corrections; number K has its ranges in the folder */
    oq_candidate *chosen;
    bool reached;
    double seconds;
} oq_auto;

/* ---- auto_make.c: running the commands of recipes ---- */

/* Puts a model that is in memory into that folder, for the commands that read it. */
onq_code oq_auto_write_input(oq_auto *a, onq_error *err);
/* Prepares the model: fills `prepare` and the paths of `tune`. */
onq_code oq_auto_prepare(oq_auto *a, onq_error *err);
/* For oq_tune. */
onq_code oq_auto_make(void *ctx, const oq_recipe *r, const char **path, uint64_t *size,
                      onq_error *err);
void oq_auto_drop(void *ctx, const char *path);
onq_code oq_auto_evaluate(void *ctx, const char *path, double *metric, onq_error *err);

/* ---- auto_show.c: the answer ---- */

void oq_auto_text(const oq_auto *a);
void oq_auto_json(const oq_auto *a, oq_jw *w);
/* The commands that make a candidate again, one a line. */
void oq_auto_commands(const oq_auto *a, const oq_candidate *c, oq_buf *out);
onq_code oq_auto_write_recipe(const oq_auto *a, const char *path, onq_error *err);
onq_code oq_auto_write_report(const oq_auto *a, const char *path, onq_error *err);

#endif
