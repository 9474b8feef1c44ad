/*
 * tune_rig.h — a search with models of its own, for tests of it.
 *
 * The model of a recipe is the float model with noise on its weights, as much as the options of the
 * recipe leave; so the order of the candidates' accuracy is known. Times hang on the recipe alone.
 */
#pragma once

#include "build_model.h"
#include "fake_engine.h"
#include "scratch.h"
#include "testing.h"
#include "tune/tune.h"

#define TUNE_RIG_CALLS 200

typedef struct tune_rig {
    oq_tune t;
    scratch *files;
    bm b; /* the float model */
    bool large;
    oq_arena arena;
    fake_engine engine;
    oq_trials choose;
    oq_link links[1];
    oq_meaning meaning;
    oq_division folds, again;
    onq_error err;
    char *made[TUNE_RIG_CALLS]; /* the text of each recipe that was made */
    size_t n_made, n_dropped;
    const char *fails; /* recipes with this in their text cannot be made */
    onq_code failure;
    size_t stop_after; /* calls, then time is over; 0: never */
    double fold_noise; /* of a model that the second division calibrates, times that of others */
    size_t n_again;    /* models that it calibrated */
    double doubled;    /* the noise of a unit with double activations; 0: that of any */
    const char *slow;  /* recipes with this in their text take longer than float */
    const char *later; /* recipes with this in their text take later_ms longer */
    double later_ms;
    double
        shapes_ms; /* that the shapes of a model cost which has a normalization; 0: it has none */
    const char *idle;            /* an option that changes nothing here */
    double calibrating, running; /* seconds that a sample takes; 0: time does not pass */
    double passed;
    double busy_from,
        busy; /* from then on the processor takes so many times as long; 0: it never is */
} tune_rig;

/* x through three products: [1,8], or so large that integers pay, which takes longer. */
void tune_rig_model(bm *b, bool large, double noise);
/* Eight samples of a small model; `large`: two of one so large that integers pay. */
void tune_rig_begin(tune_rig *r, scratch *files, bool large);
void tune_rig_end(tune_rig *r);
/* One more target: outputs with so many dB. */
void tune_rig_want(tune_rig *r, double db);
/* The target becomes one that the candidate reaches, but its bound only with the slack. */
void tune_rig_want_more(tune_rig *r, const oq_candidate *c);
void tune_rig_search(tune_rig *r);
/* The candidate with this label; the test fails without one. */
const oq_candidate *tune_rig_find(const tune_rig *r, const char *label);
double tune_rig_db(const oq_candidate *c);
/* A clock for oq_tune: runs take their time by themselves, calibrating has it added. */
double tune_rig_now(void *ctx);
/* The same on a machine that other programs use. */
double tune_rig_cpu(void *ctx);
double tune_rig_slowness(void *ctx);
