/*
 * remake.h — makes the quantized model again in other ways, and measures each as its users will run
 * it: a default session, against the float model, over the same samples.
 *
 *     oq_remaker r;
 *     rc = oq_remaker_init(&r, job, run, flt, err);
 *     rc = oq_remake(&r, &recipe, r.input, true, &made, err);
 *     oq_remaker_release(&r);
 */
#pragma once

#include "debug/debug.h"
#include "samples/grade.h"
#include "samples/record.h"
#include "tune/recipe.h"

struct oq_job;

/* Samples that are measured: the first ones, fewer where they are large (samples/record.h). */
#define OQ_REMAKE_SAMPLES 8

typedef struct oq_remade {
    const char *path; /* of the model; NULL: it could not be made, or does not run */
    double sqnr;      /* dB of the output that is worst; INFINITY: equal; NAN: NaN came out */
    oq_grade grade;   /* by all of its figures */
    oq_lm_score text; /* of a language model; else without rows */
    double agreement; /* share of rows with the same largest value; NAN: there are none */
    double ms;        /* of one run, where it was clocked beside the model as it is; NAN */
    double macs;      /* share of the multiply-accumulates that is in integers; NAN: not known */
} oq_remade;

#define OQ_NOT_MADE ((oq_remade){.sqnr = NAN, .agreement = NAN, .ms = NAN, .macs = NAN})

typedef struct oq_remaker {
    struct oq_job *job;
    const oq_debug_run *run;
    onq_env quiet;      /* without messages */
    const char *folder; /* for what is made; removed in the end */
    const char *input;  /* the float model's file */
    const char *ranges; /* name of the file with the ranges that recipes share */
    double floor;       /* dB below which outputs are poor (samples/grade.h) */
    size_t n_files;
    OQ_VEC(oq_remade) made; /* what was measured */
    oq_record record;       /* samples, and what float makes of them */
    double load, runs;      /* CPU seconds that loading float, and running the record, took */
    double until;           /* CPU seconds of the process at which a model is given up */
    bool gave_up;           /* the last one was */
} oq_remaker;

/* Runs the float model over the samples. Release it also when this fails. */
onq_code oq_remaker_init(oq_remaker *r, struct oq_job *job, const oq_debug_run *run, oq_model *flt,
                         double floor, onq_error *err);
void oq_remaker_release(oq_remaker *r);
/* Makes a model from the one in `input` and measures it. `same_ranges`: the recipe has the ranges
 * of all others that say so, which are found once. What has the bytes of a model that was measured
 * has its figures. What cannot be made, or not before `until`, has no path; an error is something
 * that ends the job. */
onq_code oq_remake(oq_remaker *r, const oq_recipe *recipe, const char *input, bool same_ranges,
                   oq_remade *out, onq_error *err);
/* From now on only the samples between judge: those that every other sample leaves out. What shares
 * ranges has them in another file. The record must have two runs. */
onq_code oq_remaker_keep_between(oq_remaker *r, const char *ranges, onq_error *err);
/* As it was before that; `before` is a copy of it. */
void oq_remaker_keep_all(oq_remaker *r, const oq_remaker *before);
/* Makes a model with every other sample; *sqnr is of the samples between. NAN where there are no such
 * samples or the model cannot be made. */
onq_code oq_remake_apart(oq_remaker *r, const oq_recipe *recipe, const char *input, double *sqnr,
                         onq_error *err);
/* Runs a recipe that makes a float model; *path stays NULL when that cannot be made. */
onq_code oq_remake_float(oq_remaker *r, const oq_recipe *recipe, const char **path, onq_error *err);
/* Measures a model, or one in a file. */
onq_code oq_remake_measure(const oq_remaker *r, oq_model *m, oq_remade *out, onq_error *err);
onq_code oq_remake_measure_file(const oq_remaker *r, const char *path, oq_remade *out,
                                onq_error *err);
