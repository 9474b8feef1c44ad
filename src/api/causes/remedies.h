/*
 * remedies.h — the table of what is tried against a loss, in the order of simplicity: a row is a
 * cause, the options that would mend it, and what shows that it is the cause.
 */
#pragma once

#include "api/causes/budget.h"
#include "api/causes/causes.h"
#include "debug/amplify.h"

/* A diagnosis at work. */
typedef struct oq_diagnosing {
    struct oq_job *job;
    oq_debug *d;
    const oq_debug_run *run;
    oq_diagnosis *out;
    double began;
    oq_budget budget;
    double cost[2];  /* least CPU seconds that making one took: with known ranges; finding some */
    bool has_ranges; /* those that recipes share are known */
    oq_remaker maker;
    oq_again base;     /* what makes the model as it is */
    const char *input; /* the file that its recipe reads */
    oq_again first; /* what the first remedy was put on; no command: the file, or none was taken */
    const char *first_input;
    bool same_ranges;  /* it has the ranges of the first try */
    oq_remade again;   /* the model as it is, made again */
    oq_remade current; /* what the remedies that were taken make */
    double apart;      /* dB of `base` on samples that did not calibrate it; NAN: not known yet */
    bool rescaled;     /* a method scaled weights of the model */
    bool prepares;     /* the first try is the prepared model, with which others are compared */
    oq_amplifiers amplifiers;
    double *row_gain; /* by remedy, dB of its last try */
    bool firm;        /* one of the causes is beyond doubt */
    bool *taken;      /* by remedy: its cause is among the answers */
    size_t n_tried;
} oq_diagnosing;

/* Commands whose models a remedy is for. */
enum { OQ_FOR_STATIC = 1, OQ_FOR_DYNAMIC = 2, OQ_FOR_NBITS = 4 };

/* No row of the table shows the cause. */
#define OQ_NO_ROW UINT32_MAX

typedef struct oq_remedy {
    const char *cause;
    oq_recipe_option options[2]; /* name NULL: no more */
    const char *drops;           /* an option of the recipe that goes; or NULL */
    unsigned commands;           /* OQ_FOR_...; 0: static */
    bool same_ranges;            /* the graph and the way to find ranges stay */
    bool is_free;                /* it costs no speed: a small gain is worth it */
    bool is_local;               /* it is about few nodes; broader ones come on top of it */
    bool of_runtime;             /* against what kernels of the runtime add */
    bool leaves_float;           /* fewer nodes are quantized: less noise costs speed */
    /* Asked first, may be NULL: whether the remedy makes sense for the model, with options and
     * files that follow from it. */
    onq_code (*prepare)(oq_diagnosing *g, oq_again *how, const char **input, bool *applies,
                        onq_error *err);
    /* True if the tensors show what the remedy is against: it is tried before those that nothing
     * speaks for, because the budget may end. NULL: false. */
    bool (*is_likely)(const oq_diagnosing *g);
    /* True if what shows it leaves no doubt: it is named if it gains at all. NULL: false. */
    bool (*is_sure)(const oq_diagnosing *g);
    /* Writes a sentence that names the cause and what shows it. Returns the weight or, after the
     * weights, the activation of `d` that shows it best, or OQ_NO_ROW. */
    uint32_t (*say)(const oq_diagnosing *g, const oq_try *t, oq_buf *out);
} oq_remedy;

extern const oq_remedy oq_remedies[];
extern const size_t oq_remedy_count;

/* Makes the recipe of a remedy of the one that `how` is. */
onq_code oq_remedy_apply(oq_diagnosing *g, const oq_remedy *r, oq_again *how, const char **input,
                         bool *applies, onq_error *err);
/* True if products of the quantized model have their weights in Constant nodes. */
bool oq_remedy_has_constants(const oq_diagnosing *g);
/* True if the row is for the command of the recipe. */
bool oq_remedy_is_for(const oq_remedy *r, const char *command);
onq_code oq_remedy_say(const oq_diagnosing *g, const oq_try *t, oq_buf *out, uint32_t *row,
                       onq_error *err);
