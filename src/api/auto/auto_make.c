/*
 * auto_make.c — recipes become models: their commands are run in this process, quietly, on files in
 * a scratch folder. So what a recipe says is what is done, and the same command makes the same
 * bytes for the user.
 */
#include "api/auto/auto_job.h"

#include "api/quantizing/recipe_run.h"
#include "base/text/number_text.h"
#include "onnx/graph.h"
#include "samples/files/pipe.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

/* ---- running a command ---- */

static bool is_plain(const char *name) {
    static const char *const plain[] = {"per_channel",      "enable_subgraph",    "op_set",
                                        "heaviest",         "calibration_method", "bias_correction",
                                        "learned_rounding", "double_activations", "node_methods",
                                        "pointwise_matmul"};
    bool known = oq_str_is_any(oq_str_of(name), plain, OQ_COUNT(plain));
    for (size_t k = 0; k < oq_group_data.n; k++)
        known |= strcmp(name, oq_group_data.rows[k].name) == 0;
    return known;
}

static bool has_channels(const oq_recipe *r) {
    bool any = false;
    for (oq_method m = 0; m < OQ_METHODS; m++)
        any |= oq_recipe_has_method(r, m) && oq_method_needs_samples(m);
    return any;
}

/* True if the recipe calibrates the prepared model as it is: ranges then serve other recipes. */
static bool keeps_graph(const oq_recipe *r) {
    for (size_t i = 0; i < r->options.n; i++)
        if (!is_plain(r->options.v[i].name))
            return false;
    return !has_channels(r);
}

/* True if the recipe changes nothing of it but channels, and minmax finds its ranges: those of the
 * model as it is, and of its channels, say what they are. */
static bool scales_channels(const oq_recipe *r) {
    static const char *const names[] = {"equalize", "channel_ranges", "outlier_channels"};
    bool scales = has_channels(r);
    for (size_t i = 0; i < r->options.n; i++) {
        const char *name = r->options.v[i].name;
        const bool known = oq_str_is_any(oq_str_of(name), names, OQ_COUNT(names));
        if ((!known && !is_plain(name)) || strcmp(name, "calibration_method") == 0 ||
            strcmp(name, "limit") == 0)
            return false;
        scales |= known;
    }
    return scales;
}

/* Corrections come after the ranges: a recipe has those of the recipe that it refines. */
static const char *const corrections[] = {"bias_correction", "learned_rounding"};

/* What quantizes less than all of a set of operators: its ranges are among those of the whole. */
static const char *const parts[] = {"heaviest", "node_methods", "pointwise_matmul"};

/* The recipe without these options. */
static onq_code leave_out(oq_auto *a, const oq_recipe *r, const char *const *names, size_t n,
                          oq_recipe *out, onq_error *err) {
    *out = (oq_recipe){.command = r->command, .after = r->after};
    for (size_t i = 0; i < r->options.n; i++) {
        const oq_recipe_option *o = &r->options.v[i];
        bool left_out = false;
        for (size_t k = 0; k < n; k++)
            left_out |= strcmp(o->name, names[k]) == 0;
        if (!left_out)
            OQ_TRY(oq_recipe_add(out, &a->job->arena, o->name, o->value, err));
    }
    return ONQ_OK;
}

/* The cache of this recipe and of those that differ from it in corrections only. */
static onq_code set_own_cache(oq_auto *a, const oq_recipe *r, size_t fold, oq_recipe_run *run,
                              onq_error *err) {
    oq_arena *arena = &a->job->arena;
    oq_recipe before;
    OQ_TRY(leave_out(a, r, corrections, OQ_COUNT(corrections), &before, err));
    size_t at = 0;
    while (at < a->calibrated.n && (a->calibrated.v[at].fold != fold ||
                                    !oq_recipe_equal(&a->calibrated.v[at].recipe, &before)))
        at++;
    const oq_auto_ranges ranges = {before, fold};
    if (at == a->calibrated.n && !OQ_PUSH(arena, &a->calibrated, ranges))
        return oq_fail_nomem(err);
    const oq_str path = oq_str_format(arena, "%s/ranges.%zu.json", a->folder, at);
    OQ_TRY_ALLOC(path.p != NULL, err);
    run->shared.own_cache = true;
    run->cache = path.p;
    return ONQ_OK;
}

static bool is_whole(const oq_recipe *r) {
    for (size_t i = 0; i < OQ_COUNT(parts); i++)
        if (oq_recipe_get(r, parts[i]) != NULL)
            return false;
    return true;
}

/* Minmax ranges of all operators cost about as much as those of a set. */
static bool serves_sets(const oq_recipe *r) {
    return oq_recipe_get(r, "op_set") != NULL && oq_recipe_get(r, "calibration_method") == NULL;
}

/* The file with the ranges of all operators, or all of the recipe's set. */
static onq_code path_of_ranges(oq_auto *a, const oq_recipe *r, size_t prepared, size_t fold,
                               bool all, const char **out, onq_error *err) {
    const char *method = oq_recipe_get(r, "calibration_method"), *set = oq_recipe_get(r, "op_set");
    *out = oq_str_format(&a->job->arena, "%s/ranges.%zu.%zu.%s.%s.json", a->folder, prepared, fold,
                         method != NULL ? method : "minmax", !all && set != NULL ? set : "all")
               .p;
    return *out != NULL ? ONQ_OK : oq_fail_nomem(err);
}

/* Ranges are found once: a run over all operators, or all of a set, leaves them for runs that
 * quantize fewer. *missing: nothing was run yet that left them for this one. */
static onq_code set_cache(oq_auto *a, const oq_recipe *r, size_t prepared, size_t fold,
                          oq_recipe_run *run, bool *missing, onq_error *err) {
    const bool whole = is_whole(r), keeps = keeps_graph(r);
    *missing = false;
    if (strcmp(r->command, "static") != 0)
        return ONQ_OK;
    run->shared.bounds = true;
    for (int all = 1; all >= 0; all--) {
        const char *path = NULL;
        OQ_TRY(path_of_ranges(a, r, prepared, fold, all == 1, &path, err));
        const bool there = oq_os_may(path, OQ_MAY_READ);
        if (keeps && !there && all == 0 && whole && fold > 0 && serves_sets(r)) {
            *missing = true; /* of all operators: other sets will have them too */
            return ONQ_OK;
        }
        if (keeps && (there || (all == 0 && whole))) {
            run->cache = path;
            return ONQ_OK;
        }
        /* The answer is what its commands make, so it is calibrated as they say. */
        if (there && fold > 0 && scales_channels(r)) {
            run->shared.unchanged = path;
            return ONQ_OK;
        }
    }
    *missing = keeps;
    return *missing ? ONQ_OK : set_own_cache(a, r, fold, run, err);
}

/* ---- what is kept between recipes ---- */

/* From 1; 0: all samples. */
static onq_code number_of_fold(oq_auto *a, const oq_fold *fold, size_t *out, onq_error *err) {
    size_t at = 0;
    *out = 0;
    if (fold == NULL)
        return ONQ_OK;
    while (at < a->known_folds.n && a->known_folds.v[at] != fold)
        at++;
    *out = at + 1;
    return at < a->known_folds.n || OQ_PUSH(&a->job->arena, &a->known_folds, fold)
               ? ONQ_OK
               : oq_fail_nomem(err);
}

/* From 1; 0: the model as it was given. */
static size_t number_of_prepared(const oq_auto *a, const oq_recipe *r) {
    size_t at = 0;
    while (r != NULL && at < a->prepared.n && !oq_recipe_equal(&a->prepared.v[at].recipe, r))
        at++;
    return r == NULL ? 0 : at + 1;
}

static onq_code memory_of(oq_auto *a, size_t prepared, size_t fold, oq_auto_memory *out,
                          onq_error *err) {
    for (size_t i = 0; i < a->memories.n; i++)
        if (a->memories.v[i].prepared == prepared && a->memories.v[i].fold == fold) {
            *out = a->memories.v[i];
            return ONQ_OK;
        }
    *out = (oq_auto_memory){prepared, fold, OQ_NEW(&a->job->arena, oq_channel_memory),
                            OQ_NEW(&a->job->arena, oq_learn_memory)};
    OQ_TRY_ALLOC(out->channels != NULL && out->learned != NULL, err);
    oq_channel_memory_init(out->channels, &a->job->env->alloc);
    oq_learn_memory_init(out->learned, &a->job->env->alloc);
    return OQ_PUSH(&a->job->arena, &a->memories, *out) ? ONQ_OK : oq_fail_nomem(err);
}

/* What the model makes in float is the same whatever is quantized, and a sample shows the same in
 * every fold. Empty: the recipe changes the model before. */
static onq_code means_of(oq_auto *a, const oq_recipe *r, size_t prepared, oq_auto_means *out,
                         onq_error *err) {
    *out = (oq_auto_means){prepared, NULL, NULL};
    if (!keeps_graph(r))
        return ONQ_OK;
    for (size_t i = 0; i < a->means.n; i++)
        if (a->means.v[i].prepared == prepared) {
            *out = a->means.v[i];
            return ONQ_OK;
        }
    out->extents = OQ_NEW(&a->job->arena, oq_extent_memory);
    out->layers = OQ_NEW(&a->job->arena, oq_mean_memory);
    OQ_TRY_ALLOC(out->extents != NULL && out->layers != NULL &&
                     OQ_PUSH(&a->job->arena, &a->means, *out),
                 err);
    oq_extent_memory_init(out->extents, &a->job->env->alloc);
    oq_mean_memory_init(out->layers, &a->job->env->alloc);
    return ONQ_OK;
}

void oq_auto_forget(oq_auto *a) {
    for (size_t i = 0; i < a->memories.n; i++) {
        oq_channel_memory_release(a->memories.v[i].channels);
        oq_learn_memory_release(a->memories.v[i].learned);
    }
    for (size_t i = 0; i < a->means.n; i++) {
        oq_extent_memory_release(a->means.v[i].extents);
        oq_mean_memory_release(a->means.v[i].layers);
    }
    a->memories.n = 0;
    a->means.n = 0;
}

/* ---- one command ---- */

static onq_code new_path(oq_auto *a, const char **path, onq_error *err) {
    *path = oq_str_format(&a->job->arena, "%s/%zu.onnx", a->folder, a->n_files++).p;
    return *path != NULL ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code run_recipe(oq_auto *a, const oq_recipe *r, const oq_fold *fold, const char *in,
                           const char *out, onq_error *err);

/* Runs the recipe for the whole set of operators, for the sake of the ranges that it leaves. */
static onq_code find_ranges(oq_auto *a, const oq_recipe *r, const oq_fold *fold, const char *in,
                            onq_error *err) {
    static const char *const names[] = {"heaviest",
                                        "node_methods",
                                        "double_activations",
                                        "pointwise_matmul",
                                        "bias_correction",
                                        "learned_rounding",
                                        "op_set"};
    const bool all = fold != NULL && serves_sets(r);
    oq_recipe whole;
    const char *path = NULL;
    OQ_TRY(leave_out(a, r, names, OQ_COUNT(names) - !all, &whole, err));
    OQ_TRY(new_path(a, &path, err));
    const onq_code rc = run_recipe(a, &whole, fold, in, path, err);
    oq_auto_drop(a, path);
    return rc;
}

static onq_code run_recipe(oq_auto *a, const oq_recipe *r, const oq_fold *fold, const char *in,
                           const char *out, onq_error *err) {
    bool missing = false;
    size_t at_fold = 0;
    const size_t prepared = number_of_prepared(a, r->after);
    oq_auto_memory memory = {0};
    OQ_TRY(number_of_fold(a, fold, &at_fold, err));
    oq_auto_means means;
    OQ_TRY(memory_of(a, prepared, at_fold, &memory, err));
    OQ_TRY(means_of(a, r, prepared, &means, err));
    const bool learns =
        keeps_graph(r) && oq_recipe_get(r, "pointwise_matmul") == NULL && prepared <= a->prepared.n;
    oq_recipe_run run = {.job = a->job,
                         .env = &a->quiet,
                         .shared = {.tape = a->job->tape,
                                    .steps = a->job->steps,
                                    .channels = memory.channels,
                                    .extents = means.extents,
                                    .means = means.layers,
                                    .learned = learns ? memory.learned : NULL,
                                    .numbers = fold != NULL ? fold->calibrate : NULL,
                                    .n_numbers = fold != NULL ? fold->n_calibrate : 0}};
    OQ_TRY(set_cache(a, r, prepared, at_fold, &run, &missing, err));
    if (missing) {
        onq_error why = ONQ_ERROR_INIT;
        const onq_code found = find_ranges(a, r, fold, in, &why);
        if (oq_tune_is_fatal(found) || (found != ONQ_OK && a->tune.stopped))
            return oq_error_give(err, found, &why);
        /* If that cannot be made, this one may: it finds its own. */
        OQ_TRY(set_cache(a, r, prepared, at_fold, &run, &missing, err));
    }
    const onq_code rc = oq_recipe_do(&run, r, in, out, err);
    onq_result_free(run.result);
    if (means.extents != NULL)
        a->tune.spending.recalls = oq_extent_memory_is_full(means.extents, a->choose.steps.n);
    if (rc == ONQ_E_CANCEL && a->late) {
        a->late = false;
        a->tune.stopped |= !oq_tune_has_time(&a->tune, 0);
        return oq_fail(err, ONQ_E_RUNTIME, "%s",
                       a->tune.stopped ? OQ_TUNE_NO_TIME : OQ_TUNE_NO_EFFORT);
    }
    return rc;
}

onq_code oq_auto_size(const oq_auto *a, const char *path, uint64_t *size, onq_error *err) {
    oq_model *m = NULL;
    OQ_TRY(oq_model_open(a->job->env, path, &a->tune.open, &m, err));
    const onq_code rc = oq_model_size(m, size, err);
    oq_model_free(m);
    return rc;
}

onq_code oq_auto_write_input(oq_auto *a, onq_error *err) {
    const oq_save_options as_it_is = {0};
    const char *path = NULL;
    if (oq_opt_bytes_of(a->job->opts, a->tune.float_path) == NULL)
        return ONQ_OK;
    OQ_TRY(new_path(a, &path, err));
    a->tune.float_path = path;
    return oq_model_save(a->model, path, &as_it_is, err);
}

/* A prepared model is made once. */
static onq_code make_prepared(oq_auto *a, const oq_recipe *r, const char **path, uint64_t *size,
                              onq_error *err) {
    const size_t at = number_of_prepared(a, r);
    if (at <= a->prepared.n) {
        *path = a->prepared.v[at - 1].path;
        *size = a->prepared.v[at - 1].size;
        return ONQ_OK;
    }
    oq_auto_prepared new = {.recipe = *r};
    OQ_TRY(new_path(a, &new.path, err));
    OQ_TRY(run_recipe(a, r, NULL, a->tune.float_path, new.path, err));
    OQ_TRY(oq_auto_size(a, new.path, &new.size, err));
    *path = new.path;
    *size = new.size;
    return OQ_PUSH(&a->job->arena, &a->prepared, new) ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_auto_make(void *ctx, const oq_recipe *r, const oq_fold *fold, const char **path,
                      uint64_t *size, onq_error *err) {
    assert(r->command != NULL);
    oq_auto *a = ctx;
    const char *in = a->tune.float_path;
    *path = NULL;
    if (r->prepares)
        return make_prepared(a, r, path, size, err);
    if (r->after != NULL)
        OQ_TRY(oq_auto_make(ctx, r->after, fold, &in, size, err));
    OQ_TRY(new_path(a, path, err));
    onq_code rc = run_recipe(a, r, fold, in, *path, err);
    if (r->after != NULL)
        oq_auto_drop(ctx, in);
    if (rc == ONQ_OK)
        rc = oq_auto_size(a, *path, size, err);
    if (rc != ONQ_OK) {
        oq_auto_drop(ctx, *path);
        *path = NULL;
    }
    return rc;
}

void oq_auto_drop(void *ctx, const char *path) {
    oq_auto *a = ctx;
    for (size_t i = 0; i < a->prepared.n; i++)
        if (strcmp(a->prepared.v[i].path, path) == 0)
            return; /* others begin with it */
    const oq_str data = oq_str_format(&a->job->arena, "%s.data", path);
    (void)oq_os_remove(path);
    if (data.p != NULL)
        (void)oq_os_remove(data.p);
}

/* ---- the user's program ---- */

/* The command with every {model} replaced. */
static void fill_in(oq_buf *out, const char *command, const char *path) {
    static const char mark[] = "{model}";
    for (const char *p = command; *p != '\0';) {
        if (strncmp(p, mark, sizeof mark - 1) == 0) {
            oq_buf_add_exact_word(out, oq_str_of(path));
            p += sizeof mark - 1;
        } else {
            oq_buf_addc(out, *p++);
        }
    }
}

/* The last line that is a number, of what the program prints. */
typedef struct printed {
    char line[512];
    size_t n; /* bytes of the line so far; more than it holds: not a number */
    double metric;
} printed;

static void end_line(printed *p) {
    const char *blank = " \t\r";
    double v = 0;
    if (p->n < sizeof p->line) {
        p->line[p->n] = '\0';
        char *word = p->line + strspn(p->line, blank);
        size_t n = strlen(word);
        while (n > 0 && strchr(blank, word[n - 1]) != NULL)
            n--;
        word[n] = '\0';
        if (oq_real_read(word, &v))
            p->metric = v;
    }
    p->n = 0;
}

static void add_printed(void *ctx, const char *text, size_t n) {
    printed *p = ctx;
    for (size_t i = 0; i < n; i++)
        if (text[i] == '\n')
            end_line(p);
        else if (p->n++ < sizeof p->line)
            p->line[p->n - 1] = text[i];
}

/* Reads all that the program prints. One run may take as long as the whole search. */
static onq_code run_program(const oq_auto *a, const char *command, double *metric, onq_error *err) {
    oq_pipe pipe;
    printed p = {.metric = NAN};
    OQ_TRY(oq_pipe_run(&pipe, command, err));
    onq_code rc = oq_pipe_follow(&pipe, a->job->env, "evaluating",
                                 oq_opt_real(a->job->opts, "time_limit"), add_printed, &p, err);
    end_line(&p);
    if (rc == ONQ_OK)
        rc = oq_pipe_finish(&pipe, err);
    if (rc == ONQ_E_LIMIT)
        oq_os_stop(&pipe.child, true);
    oq_pipe_close(&pipe);
    *metric = p.metric;
    return rc == ONQ_OK && !isfinite(p.metric) ? oq_fail(err, ONQ_E_RUNTIME, "it printed no number")
                                               : rc;
}

onq_code oq_auto_evaluate(void *ctx, const char *path, double *metric, onq_error *err) {
    const oq_auto *a = ctx;
    oq_buf command;
    onq_error why = ONQ_ERROR_INIT;
    oq_buf_init(&command, &a->job->env->alloc);
    fill_in(&command, oq_opt_str(a->job->opts, "evaluate"), path);
    onq_code rc = command.failed ? oq_fail_nomem(&why) : run_program(a, command.p, metric, &why);
    if (rc == ONQ_E_NOMEM || rc == ONQ_E_CANCEL)
        oq_error_give(err, rc, &why);
    else if (rc != ONQ_OK)
        rc = oq_fail(err, ONQ_E_RUNTIME, "--evaluate: '%.200s': %s", command.p, why.text);
    oq_buf_release(&command);
    return rc;
}
