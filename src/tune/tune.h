/*
 * tune.h — looks for the best quantized model.
 *
 * The search knows methods as recipes (recipe.h) and nothing of how a model is made: a callback
 * makes the model of a recipe, calibrated with all samples or with those of a fold (divide.h). A
 * candidate is judged on samples that did not calibrate it. What the search finds is a list of
 * candidates with their scores and times; oq_tune_settle takes one.
 *
 *     oq_tune t = {.env = env, .arena = arena, .engine = engine, .make = make, ...};
 *     OQ_TRY(oq_tune_search(&t, err));
 *     OQ_TRY(oq_tune_settle(&t, &best, &reached, err));
 */
#pragma once

#include "quantize/cost/cost.h"
#include "tune/choose.h"
#include "tune/spend.h"
#include "tune/state.h"
#include "tune/trial.h"

struct oq_unit_stage;

/* Better numbers in the same graph: ranges, biases, rounding. */
typedef enum oq_refinement {
    OQ_REFINE_MSE,
    OQ_REFINE_PERCENTILE,
    OQ_REFINE_BIAS,
    OQ_REFINE_ROUNDING,
    OQ_REFINEMENTS
} oq_refinement;

/* A session of a candidate that was scored and is to be timed next. */
typedef struct oq_tune_ready {
    const char *path; /* of the candidate */
    oq_model *model;
    oq_session *session;
    uint64_t size;
} oq_tune_ready;

#define OQ_RACE 5 /* candidates that are timed at once, at most */

typedef struct oq_tune {
    onq_env *env;
    oq_arena *arena;
    oq_engine *engine;
    oq_session_options session; /* provider and custom operators */
    unsigned n_threads;         /* with which candidates are timed */
    oq_open_options open;
    const oq_trials *choose;
    const oq_division *folds; /* of these trials, by which candidates are scored */
    const oq_division *again; /* another one, by which the choice is confirmed; or NULL */
    oq_targets targets;
    oq_prefer prefer;
    double begin, deadline; /* of oq_seconds; deadline 0: none */
    double opened;          /* the most seconds that opening a session took */
    double opening;         /* the same of the processor */
    double effort;      /* the most that it may cost, in runs of float over the samples; 0: any */
    bool takes_nearest; /* what does not reach the targets may be taken, too */
    bool allow_static, allow_dynamic, allow_qoperator, allow_float16, allow_nbits;
    size_t max_float_units;    /* SIZE_MAX: any number */
    bool inner;                /* the bodies of If, Loop or Scan have products */
    bool has_lstm, inner_lstm; /* somewhere; in such a body */
    bool language;             /* a language model: weights alone come first */
    oq_model *model;           /* as it was given */
    const char *float_path;    /* its file */
    uint64_t float_size;
    const oq_recipe_option *samples; /* options that say which samples calibrate */
    size_t n_samples;
    const char *rival; /* a quantized model to beat (--improve), or NULL */
    uint64_t rival_size;

    /* Makes the model of a recipe, calibrated with the samples of the fold; NULL: with all. */
    onq_code (*make)(void *ctx, const oq_recipe *r, const oq_fold *fold, const char **path,
                     uint64_t *size, onq_error *err);
    /* A model that is not needed any more. */
    void (*drop)(void *ctx, const char *path);
    /* The user's own measure, or NULL. */
    onq_code (*evaluate)(void *ctx, const char *path, double *metric, onq_error *err);
    /* Times a candidate in place of a clock, for tests; or NULL. */
    double (*clock)(void *ctx, const oq_candidate *c);
    /* The seconds of the deadline in place of oq_seconds, and those of the processor, for tests; or
     * NULL. */
    double (*now)(void *ctx);
    double (*cpu)(void *ctx);
    /* Times the least that float takes now, in place of running it, for tests; or NULL. */
    double (*slowness)(void *ctx);
    void *ctx;
    oq_tune_state state; /* what earlier runs measured */

    /* What was found. */
    const oq_recipe *base; /* how the model is prepared that recipes begin with; NULL: it is not */
    oq_candidate *base_float; /* the same as a candidate */
    oq_candidate *other_base; /* with a rewrite that is slower in float, but lets integers do
                                     * more; or NULL */
    bool drops_shapes;        /* recipes leave out the shapes inside the graph */
    oq_model *base_model;     /* that model */
    oq_units units;           /* of it */
    const bool *pays;
    bool has_conv, has_matmul; /* much of what integers may make faster is such */
    bool has_pointwise;        /* some Conv of one element that integers make faster, unclipped */
    bool mostly_conv;          /* most of all work is convolution */
    oq_candidates all;         /* the first is float as it was given */
    oq_candidate *flt;         /* that one */
    oq_scoring whole;          /* the same beside itself */
    oq_candidate *rival_found; /* the quantized model to beat, in `all` */
    bool stopped;              /* by the deadline */
    unsigned missed, turned; /* ways (1 << oq_way) with a recipe that had no time; with one that had
                                * its turn */
    size_t n_tried;
    oq_spending spending;
    double share;       /* of its limit, for this stage; 0: all */
    size_t n_decisions; /* on what may be paid */
    oq_noted cost;      /* `made` and so on of the last recipe, this or an earlier run made it */
    const oq_recipe *making; /* the recipe whose models are made just now; NULL: none */
    double making_began;
    OQ_VEC(const char *) left_out; /* labels of what would have cost too much */
    size_t few;         /* samples that judge each fold, for what needs no more; 0: all */
    double least_db;    /* the next candidate is given up after a fold in which it has less */
    bool channels_lose; /* scaling channels costs more accuracy than it brings */
    const oq_candidate *as_fast_as; /* the next candidate takes as long as this one, and need not be
                                     * timed; or NULL */
    double slowest;                 /* seconds that a candidate took, for the deadline */
    double raced;                   /* seconds that each session of a race took once it was open */
    oq_session *beside;             /* float, to be timed beside candidates */
    double bare;      /* seconds that it takes for all samples on a quiet machine; 0: not timed */
    double least_run; /* seconds of one sample, the least so far; 0: not timed */
    oq_tune_ready ready[OQ_RACE];
    size_t n_ready;
    struct oq_unit_stage *choice;  /* for each unit, once there was such a stage */
    double gained[OQ_REFINEMENTS]; /* the most dB that each brought; NaN: it was not tried */
} oq_tune;

onq_code oq_tune_search(oq_tune *t, onq_error *err);
/* Takes a candidate: times those that are close to each other again, side by side, and measures the
 * one that is taken by another division; if it does not reach the targets there, the search goes on
 * with safer ones. *reached: one in integers reaches them. */
onq_code oq_tune_settle(oq_tune *t, oq_candidate **chosen, bool *reached, onq_error *err);
/* Ends what the search has open. */
void oq_tune_end(oq_tune *t);
/* An error that ends the search, not one of a recipe, for which another may do: no memory, no room,
 * or the user stops it. */
bool oq_tune_is_fatal(onq_code rc);
/* Scores a model (NULL: float itself) on at most n samples of a set. */
onq_code oq_tune_report(oq_tune *t, const char *path, const oq_trials *set, size_t n, oq_score *out,
                        onq_error *err);

/* ---- for the stages of the search ---- */

/* False when there is no time left. */
bool oq_tune_goes_on(oq_tune *t);
#define OQ_TUNE_NO_TIME "there was no time for it (--time_limit)"
/* True if so many seconds can pass and the answer can still be made before the deadline. */
bool oq_tune_has_time(const oq_tune *t, double seconds);
double oq_tune_now(const oq_tune *t);
/* What a race of n candidates takes, about. */
double oq_tune_race_seconds(const oq_tune *t, size_t n);
/* Makes and scores a recipe and adds it to `all`; oq_tune_time times it. Scoring ends where the
 * targets are lost. *out is NULL where it cannot be made, costs too much, or there is no time left.
 * `label` goes to the arena. */
onq_code oq_tune_try(oq_tune *t, const oq_recipe *r, const char *label, oq_candidate **out,
                     onq_error *err);
/* Times candidates that were not yet, side by side. */
onq_code oq_tune_time(oq_tune *t, onq_error *err);
/* Takes over the session of a candidate to time it, or closes it where it is not wanted or has no
 * room; closes those that were kept. */
void oq_tune_keep_ready(oq_tune *t, const oq_tune_ready *x, bool wanted);
void oq_tune_close_ready(oq_tune *t);
/* Times float alone: bare, over all samples, and as a candidate. */
onq_code oq_tune_clock_float(oq_tune *t, onq_error *err);
/* A line with its figure and its time. */
void oq_tune_tell(const oq_tune *t, const oq_candidate *c);
/* What is known of a candidate, for a search that goes on from this one. */
onq_code oq_tune_remember(oq_tune *t, const oq_candidate *c, onq_error *err);
/* Times these side by side, float with them, for so many seconds each. */
onq_code oq_tune_race(oq_tune *t, oq_candidate *const *v, size_t n, double seconds, onq_error *err);
/* Scores a candidate to the end, whatever it loses. */
onq_code oq_tune_complete(oq_tune *t, oq_candidate *c, onq_error *err);
/* Makes a recipe with the first fold and scores it on some of its samples, without adding it. *made
 * is false where it cannot be. */
onq_code oq_tune_probe(oq_tune *t, const oq_recipe *r, size_t n_samples, oq_score *out, bool *made,
                       onq_error *err);
/* Scores a recipe by a division, to the end. */
onq_code oq_tune_score(oq_tune *t, const oq_recipe *r, const oq_division *d, oq_score *out,
                       onq_error *err);
/* A candidate of a model that is there; the first is float itself. */
onq_code oq_tune_add_model(oq_tune *t, const oq_candidate *like, oq_candidate **out,
                           onq_error *err);
/* Makes a model of the candidate, with all samples, if there is none. */
onq_code oq_tune_ensure(oq_tune *t, oq_candidate *c, onq_error *err);
/* A session for timing, or for scoring with all threads (OQ_THREADS_RUNTIME). */
onq_code oq_tune_session(oq_tune *t, oq_model *m, unsigned n_threads, oq_session **out,
                         onq_error *err);
/* Seconds for which candidates are timed each. */
double oq_tune_clock_seconds(const oq_tune *t);
/* The most noise, as a part of the outputs' power before their link, with which the targets hold as
 * far as noise says. `like` has noise of that kind before and after the link. */
double oq_tune_allowed_noise(const oq_tune *t, const oq_candidate *like);
/* A recipe of `static` that calibrates with the job's samples, per channel. */
onq_code oq_tune_static(oq_tune *t, oq_recipe *r, onq_error *err);

/* tune_spend.c. Seconds of the processor since the job began, and what they count for: as many as a
 * quiet machine takes. */
double oq_tune_cpu(const oq_tune *t);
double oq_tune_spent(const oq_tune *t);
/* Float takes so many times its least now. */
void oq_tune_see_pace(oq_tune *t, double slow);
/* What an earlier run spent by then, and for this recipe (NULL: it is like no other). */
void oq_tune_recall_cost(oq_tune *t, const oq_recipe *r, const oq_noted *noted);
/* What making the last recipe took, and what was spent by now. */
void oq_tune_set_cost(oq_tune *t, double seconds, size_t times, size_t samples);
oq_noted oq_tune_noted(const oq_tune *t);
/* Runs a sample to see it, where that was long ago. */
onq_code oq_tune_look_at_pace(oq_tune *t, onq_error *err);
/* True if what all samples take is measured by runs of one thread, and not by a first run of all
 * threads, which other programs lengthen. */
bool oq_tune_times_alone(const oq_tune *t);
/* Once float's time is known. */
void oq_tune_set_limit(oq_tune *t);
#define OQ_TUNE_NO_EFFORT "it would cost too much (--effort)"
/* True if the recipe can be made and scored, something else so many seconds of the processor, or the
 * candidate be measured again, and the answer still be made within the limit. */
bool oq_tune_affords(const oq_tune *t, const oq_recipe *r);
bool oq_tune_affords_seconds(const oq_tune *t, double seconds);
bool oq_tune_affords_again(const oq_tune *t, const oq_candidate *c);
/* A recipe with learned rounding can be made for all folds, scored and be made once more as the
 * answer, and another one be scored. One that is given up half way has cost what others needed. */
bool oq_tune_affords_rounding(const oq_tune *t, const oq_recipe *r);
/* True if what is being made costs more than was foreseen, and must be given up. */
bool oq_tune_overspends(const oq_tune *t);
onq_code oq_tune_leave_out(oq_tune *t, const char *label, onq_error *err);
/* What the effort allows, as it was decided when an earlier run came to this place: with what it
 * measured for nothing, this run could pay for more, and would end with another answer. Called once
 * for each decision, in the order of the search. */
onq_code oq_tune_decide(oq_tune *t, bool *yes, onq_error *err);
/* The last of them was wrong: what it allowed was given up. */
onq_code oq_tune_decide_no(oq_tune *t, onq_error *err);

/* tune_refine.c: stages of the search. A Conv of one element as a MatMul; methods and corrections of
 * whole models; corrections of what is chosen so far, and of what is faster and lacks little. */
onq_code oq_tune_try_pointwise(oq_tune *t, onq_error *err);
onq_code oq_tune_try_methods(oq_tune *t, onq_error *err);
onq_code oq_tune_correct_points(oq_tune *t, onq_error *err);
/* It was made by `static`. */
bool oq_tune_is_static(const oq_candidate *c);
/* The option by which such a Conv becomes a MatMul. */
#define OQ_TUNE_POINTWISE "pointwise_matmul"
/* tune_refine.c: a candidate that computes in the same time with better numbers. *out is NULL where
 * it has them already, or cannot be made. */
onq_code oq_tune_refine(oq_tune *t, const oq_candidate *from, oq_refinement how, oq_candidate **out,
                        onq_error *err);
/* What a refinement gained where it was tried is the most that is hoped for elsewhere. */
bool oq_tune_may_gain(const oq_tune *t, const oq_candidate *c, oq_refinement how, double db);
/* oq_targets_lack of a candidate. */
double oq_tune_lack(const oq_tune *t, const oq_candidate *c);
/* True if it lacks no more than this to reach the targets, as far as noise says. */
bool oq_tune_is_near(const oq_tune *t, const oq_candidate *c, double db);
/* The bounds reach the targets themselves, but for a tenth of the slack. */
bool oq_tune_is_safe(const oq_tune *t, const oq_score *s);
/* Of float's time: what a search for something faster must be able to gain. */
#define OQ_WORTH_TIME 0.02
/* True if a candidate reaches the targets that is as fast as this one, which no other will be faster
 * than, or slower by no more than is worth a search. */
bool oq_tune_is_done(const oq_tune *t, const oq_candidate *fastest);

/* tune_stages.c: a preparation that is slower in float is the one to go on with where its fastest set is clearly
 * faster, or more accurate by 2 dB or more and slower by less than a twentieth for each of them.
 * NULL: there is no such set. */
bool oq_tune_is_better_base(const oq_candidate *now, const oq_candidate *other);
/* The fastest set of operators of this preparation without any method; NULL: none. */
oq_candidate *oq_tune_fastest_set(const oq_tune *t, const oq_recipe *base);

/* tune_lstm.c: LSTMs in integers, in float and in what reaches the targets. */
onq_code oq_tune_lstm(oq_tune *t, onq_error *err);

/* tune_float.c: float as it was given and prepared, with the rewrites that pay. */
onq_code oq_tune_floats(oq_tune *t, onq_error *err);
/* Makes this preparation the one that recipes begin with. */
onq_code oq_tune_set_base(oq_tune *t, oq_candidate *c, onq_error *err);
