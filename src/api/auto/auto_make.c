/*
 * auto_make.c — recipes become models: their commands are run in this process, quietly, on files in
 * a scratch folder. So what a recipe says is what is done, and the same command makes the same
 * bytes for the user.
 */
#include "api/auto/auto_job.h"

#include "base/text/number_text.h"
#include "onnx/graph.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- running a command ---- */

/* Options that the command inside takes over as they are. */
static const char *const inherited[] = {"onnxruntime", "provider", "custom_ops", "data_root"};

static onq_code set_inherited(const oq_auto *a, onq_options *o, onq_error *err) {
    const onq_options *own = a->job->opts;
    for (size_t i = 0; i < OQ_COUNT(inherited); i++) {
        const oq_opt_value *v = oq_opt_get(own, inherited[i]);
        if (!v->is_set || onq_options_find(o, inherited[i]) == NULL)
            continue;
        if (v->row->type != ONQ_OPT_LIST)
            OQ_TRY(onq_options_set(o, inherited[i], v->text.p, err));
        for (size_t k = 0; v->row->type == ONQ_OPT_LIST && k < v->list.n; k++)
            OQ_TRY(onq_options_add(o, inherited[i], v->list.v[k].p, err));
    }
    return ONQ_OK;
}

/* True if the recipe calibrates the prepared model as it is: ranges then serve other recipes. */
static bool keeps_graph(const oq_recipe *r) {
    static const char *const plain[] = {"per_channel", "enable_subgraph",    "op_set",
                                        "heaviest",    "calibration_method", "bias_correction"};
    for (size_t i = 0; i < r->options.n; i++) {
        const char *name = r->options.v[i].name;
        bool known = strcmp(name, "node_methods") == 0;
        for (size_t k = 0; k < OQ_COUNT(plain); k++)
            known |= strcmp(name, plain[k]) == 0;
        for (size_t k = 0; k < oq_group_data.n; k++)
            known |= strcmp(name, oq_group_data.rows[k].name) == 0;
        if (!known)
            return false;
    }
    for (oq_method m = 0; m < OQ_METHODS; m++)
        if (oq_recipe_has_method(r, m) && oq_method_rewrites(m))
            return false;
    return true;
}

/* Corrections come after the ranges: a recipe has those of the recipe that it refines. */
static const char *const corrections[] = {"bias_correction", "learned_rounding"};

/* The cache of this recipe and of those that differ from it in corrections only. */
static onq_code set_own_cache(oq_auto *a, const oq_recipe *r, onq_options *o, onq_error *err) {
    oq_arena *arena = &a->job->arena;
    oq_recipe before = {.command = r->command};
    for (size_t i = 0; i < r->options.n; i++) {
        bool late = false;
        for (size_t k = 0; k < OQ_COUNT(corrections); k++)
            late |= strcmp(r->options.v[i].name, corrections[k]) == 0;
        if (!late)
            OQ_TRY(oq_recipe_add(&before, arena, r->options.v[i].name, r->options.v[i].value, err));
    }
    size_t at = 0;
    while (at < a->calibrated.n && !oq_recipe_equal(&a->calibrated.v[at], &before))
        at++;
    if (at == a->calibrated.n && !OQ_PUSH(arena, &a->calibrated, before))
        return oq_fail_nomem(err);
    const oq_str path = oq_str_format(arena, "%s/ranges.%zu.json", a->folder, at);
    if (path.p == NULL)
        return oq_fail_nomem(err);
    o->shared.own_cache = true;
    return onq_options_set(o, "calibration_cache", path.p, err);
}

/* Ranges are found once: a run over all operators, or all of a set, leaves them for runs that
 * quantize fewer. */
static onq_code set_cache(oq_auto *a, const oq_recipe *r, onq_options *o, onq_error *err) {
    const char *method = oq_recipe_get(r, "calibration_method"), *set = oq_recipe_get(r, "op_set");
    const char *const sets[] = {"all", set != NULL ? set : "all"};
    const bool whole =
        oq_recipe_get(r, "heaviest") == NULL && oq_recipe_get(r, "node_methods") == NULL;
    if (strcmp(r->command, "static") != 0)
        return ONQ_OK;
    for (size_t i = 0; i < OQ_COUNT(sets) && keeps_graph(r); i++) {
        const oq_str path = oq_str_format(&a->job->arena, "%s/ranges.%s.%s.json", a->folder,
                                          method != NULL ? method : "minmax", sets[i]);
        if (path.p == NULL)
            return oq_fail_nomem(err);
        const bool last = i + 1 == OQ_COUNT(sets);
        if (access(path.p, R_OK) == 0 || (last && whole))
            return onq_options_set(o, "calibration_cache", path.p, err);
    }
    return set_own_cache(a, r, o, err);
}

static onq_code run_recipe(oq_auto *a, const oq_recipe *r, const char *in, const char *out,
                           onq_error *err) {
    onq_options *o = NULL;
    onq_result *result = NULL;
    onq_code rc = ONQ_OK;
    OQ_GO(onq_options_new(&a->quiet, r->command, &o, err));
    OQ_GO(onq_options_set(o, "input", in, err));
    OQ_GO(onq_options_set(o, "output", out, err));
    /* Every candidate is run and judged anyway. */
    OQ_GO(onq_options_set(o, "no_verify", "true", err));
    if (onq_options_find(o, "check") != NULL)
        OQ_GO(onq_options_set(o, "check", "0", err));
    /* A model that nothing was done to is no candidate; one that is only prepared is. */
    const bool prepares =
        strcmp(r->command, "preprocess") == 0 && oq_recipe_get(r, "float16") == NULL;
    if (!prepares && onq_options_find(o, "strict") != NULL)
        OQ_GO(onq_options_set(o, "strict", "true", err));
    OQ_GO(set_inherited(a, o, err));
    for (size_t i = 0; i < r->options.n; i++) {
        const oq_recipe_option *x = &r->options.v[i];
        OQ_GO(onq_options_set(o, x->name, x->value != NULL ? x->value : "true", err));
    }
    o->shared = (oq_shared){.tape = a->job->tape, .channels = &a->channels};
    OQ_GO(set_cache(a, r, o, err));
    OQ_GO(onq_run(&a->quiet, o, &result, err));
done:
    onq_result_free(result);
    onq_options_free(o);
    return rc;
}

static onq_code new_path(oq_auto *a, const char **path, onq_error *err) {
    *path = oq_str_format(&a->job->arena, "%s/%zu.onnx", a->folder, a->n_files++).p;
    return *path != NULL ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code size_of(oq_auto *a, const char *path, uint64_t *size, onq_error *err) {
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

onq_code oq_auto_make(void *ctx, const oq_recipe *r, const char **path, uint64_t *size,
                      onq_error *err) {
    oq_auto *a = ctx;
    const char *in = a->tune.prepared != NULL ? a->tune.prepared : a->tune.float_path;
    if (r->after != NULL)
        OQ_TRY(oq_auto_make(ctx, r->after, &in, size, err));
    OQ_TRY(new_path(a, path, err));
    const onq_code rc = run_recipe(a, r, in, *path, err);
    if (r->after != NULL)
        oq_auto_drop(ctx, in);
    return rc == ONQ_OK ? size_of(a, *path, size, err) : rc;
}

void oq_auto_drop(void *ctx, const char *path) {
    oq_auto *a = ctx;
    const oq_str data = oq_str_format(&a->job->arena, "%s.data", path);
    unlink(path);
    if (data.p != NULL)
        unlink(data.p);
}

/* ---- preparing ---- */

/* In this order; the first that works is taken. */
static const oq_recipe_option prepare_ways[] = {
    {"rewrite", "all"},
    {NULL, NULL},
    {"optimizer", "builtin"},
};

onq_code oq_auto_prepare(oq_auto *a, onq_error *err) {
    oq_arena *arena = &a->job->arena;
    onq_error why = ONQ_ERROR_INIT;
    for (size_t i = 0; i < OQ_COUNT(prepare_ways); i++) {
        oq_recipe r = {.command = "preprocess"};
        const char *path = NULL;
        if (prepare_ways[i].name != NULL)
            OQ_TRY(oq_recipe_add(&r, arena, prepare_ways[i].name, prepare_ways[i].value, err));
        OQ_TRY(new_path(a, &path, err));
        OQ_TRY(oq_progress(a->job->env, "preparing", i, OQ_COUNT(prepare_ways), err));
        const onq_code rc = run_recipe(a, &r, a->tune.float_path, path, &why);
        if (rc == ONQ_OK) {
            a->prepare = r;
            a->tune.prepared = path;
            return size_of(a, path, &a->tune.prepared_size, err);
        }
        if (oq_tune_is_fatal(rc))
            return oq_error_give(err, rc, &why);
    }
    oq_warn(a->job->env, "the model is taken as it is: preparing failed: %.300s", why.text);
    return ONQ_OK;
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

/* The last number that the program prints. */
static onq_code read_metric(FILE *f, const char *command, double *metric, onq_error *err) {
    char line[512];
    *metric = NAN;
    while (fgets(line, sizeof line, f) != NULL) {
        const char *blank = " \t\r\n";
        char *word = line + strspn(line, blank);
        size_t n = strlen(word);
        double v = 0;
        while (n > 0 && strchr(blank, word[n - 1]) != NULL)
            n--;
        word[n] = '\0';
        if (oq_real_read(word, &v))
            *metric = v;
    }
    const int status = pclose(f);
    if (status != 0)
        return oq_fail(err, ONQ_E_RUNTIME, "--evaluate: '%.200s' ended with status %d", command,
                       WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    if (!isfinite(*metric))
        return oq_fail(err, ONQ_E_RUNTIME, "--evaluate: '%.200s' printed no number", command);
    return ONQ_OK;
}

onq_code oq_auto_evaluate(void *ctx, const char *path, double *metric, onq_error *err) {
    oq_auto *a = ctx;
    oq_buf command;
    oq_buf_init(&command, &a->job->env->alloc);
    fill_in(&command, oq_opt_str(a->job->opts, "evaluate"), path);
    onq_code rc = command.failed ? oq_fail_nomem(err) : ONQ_OK;
    fflush(NULL);
    FILE *f = rc == ONQ_OK ? popen(command.p, "r") : NULL;
    if (rc == ONQ_OK)
        rc = f != NULL
                 ? read_metric(f, command.p, metric, err)
                 : oq_fail_errno(err, ONQ_E_RUNTIME, errno, "--evaluate: '%.200s'", command.p);
    oq_buf_release(&command);
    return rc;
}
