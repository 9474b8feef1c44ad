/*
 * tune.h — looks for the best quantized model.
 *
 * The search knows methods as recipes (recipe.h) and nothing of how a model is made: a callback
 * makes the model of a recipe. What it finds is a list of candidates with their scores and times;
 * oq_choose takes one.
 *
 *     oq_tune t = {.env = env, .arena = arena, .engine = engine, .make = make, ...};
 *     OQ_TRY(oq_tune_search(&t, err));
 *     oq_candidate *best = oq_choose(&t.all, &t.targets, t.prefer, &reached);
 */
#ifndef OQ_TUNE_TUNE_H
#define OQ_TUNE_TUNE_H

#include "quantize/cost/cost.h"
#include "tune/choose.h"
#include "tune/state.h"
#include "tune/trial.h"

typedef struct oq_tune {
    onq_env *env;
    oq_arena *arena;
    oq_engine *engine;
    oq_session_options session; /* provider and custom operators */
    unsigned n_threads;         /* with which candidates are timed */
    oq_open_options open;
    const oq_trials *choose;
    oq_targets targets;
    oq_prefer prefer;
    double begin, deadline; /* of oq_seconds; deadline 0: none */
    bool allow_static, allow_dynamic, allow_qoperator, allow_float16, allow_nbits;
    size_t max_float_units; /* SIZE_MAX: any number */
    bool inner;             /* the model has If, Loop or Scan */
    oq_model *model;        /* as it was given */
    const char *float_path; /* its file */
    const char *prepared;   /* the same after preparing; what recipes begin with */
    uint64_t float_size, prepared_size;
    const oq_recipe_option *samples; /* options that say which samples calibrate */
    size_t n_samples;

    /* Makes the model of a recipe. */
    onq_code (*make)(void *ctx, const oq_recipe *r, const char **path, uint64_t *size,
                     onq_error *err);
    /* A model that is not needed any more. */
    void (*drop)(void *ctx, const char *path);
    /* The user's own measure, or NULL. */
    onq_code (*evaluate)(void *ctx, const char *path, double *metric, onq_error *err);
    void *ctx;
    oq_tune_state state; /* what earlier runs measured */

    /* What was found. */
    oq_units units; /* of the prepared model */
    const bool *pays;
    bool has_conv, has_matmul; /* much of what integers may make faster is such */
    bool mostly_conv;          /* most of all work is convolution */
    oq_candidates all;
    oq_candidate *truth; /* float as it was given; not in `all` */
    bool stopped;        /* by the deadline */
    size_t n_tried;
    oq_session *beside; /* float, to be timed beside candidates */
} oq_tune;

onq_code oq_tune_search(oq_tune *t, onq_error *err);
/* An error that ends the search, not one of a recipe, for which another may do: no memory, no room,
 * or the user stops it. */
bool oq_tune_is_fatal(onq_code rc);
/* Makes the model of a candidate that an earlier run measured, if it is not there. */
onq_code oq_tune_ensure(oq_tune *t, oq_candidate *c, onq_error *err);
/* Scores a candidate on other samples. */
onq_code oq_tune_report(oq_tune *t, oq_candidate *c, const oq_trials *set, onq_error *err);

/* ---- for the stages of the search ---- */

/* False when there is no time left. */
bool oq_tune_goes_on(oq_tune *t);
/* Makes, scores and times a recipe and adds it to `all`. *out is NULL where it cannot be made, or
 * there is no time left. `label` goes to the arena. */
onq_code oq_tune_try(oq_tune *t, const oq_recipe *r, const char *label, oq_candidate **out,
                     onq_error *err);
/* Makes a recipe and scores it on some samples, without adding it. *made is false where it cannot
 * be. */
onq_code oq_tune_probe(oq_tune *t, const oq_recipe *r, size_t n_samples, oq_score *out, bool *made,
                       onq_error *err);
/* Seconds of the processor that this process has used: what others do does not count. */
double oq_tune_seconds(void);
/* Such seconds that one stage may take for measurements that are not needed for an answer: some
 * times what float takes for all samples. */
double oq_tune_patience(const oq_tune *t);
/* The most noise, as a part of the outputs' power before their link, with which the targets hold as
 * far as noise says. `like` has noise of that kind before and after the link. */
double oq_tune_allowed_noise(const oq_tune *t, const oq_candidate *like);
/* A recipe of `static` that calibrates with the job's samples. */
onq_code oq_tune_static(oq_tune *t, oq_recipe *r, onq_error *err);

#endif
