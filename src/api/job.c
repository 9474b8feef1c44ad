/*
 * job.c — onq_run: the job and its result; where its models come from and go to.
 */
#include "api/isolate/isolate.h"
#include "api/options/command.h"
#include "api/outputs.h"
#include "api/quantizing/plan_file.h"
#include "api/samples.h"
#include "base/text/near_path.h"
#include "onnx/edit.h"
#include "shape/operands.h"

typedef struct warnings {
    oq_arena arena;
    OQ_VEC(const char *) all;
} warnings;

struct onq_result {
    onq_allocator alloc;
    onq_ranges *ranges; /* or NULL */
    oq_buf text, json;
    int status;
    oq_files files;
    onq_file *shown; /* one for each, in the arena of files */
    warnings warnings;
};

/* ---- models in and out ---- */

const char *oq_job_input(const oq_job *job) {
    const char *path = oq_opt_has(job->opts, "input") ? oq_opt_str(job->opts, "input") : NULL;
    return path != NULL ? path : oq_opt_operand(job->opts, 0);
}

static onq_code open_model(oq_job *job, const char *path, oq_model **out, onq_error *err) {
    const onq_bytes *bytes = oq_opt_bytes_of(job->opts, path);
    oq_open_options open = {
        .data_root = oq_opt_has(job->opts, "data_root") ? oq_opt_str(job->opts, "data_root") : NULL,
    };
    if (bytes == NULL)
        return oq_model_open(job->env, path, &open, out, err);
    open.label = bytes->label;
    open.base_dir = bytes->folder;
    open.open = (oq_open_data){bytes->open, bytes->ctx};
    return oq_model_open_memory(job->env, bytes->data, bytes->size, &open, out, err);
}

onq_code oq_job_open(oq_job *job, const char *path, oq_model **out, onq_error *err) {
    OQ_TRY(open_model(job, path, out, err));
    const onq_code rc = oq_outputs_check_data(job->opts, *out, err);
    if (rc != ONQ_OK) {
        oq_model_free(*out);
        *out = NULL;
    }
    return rc;
}

onq_code oq_job_open_sound(oq_job *job, const char *path, oq_model **out, onq_error *err) {
    OQ_TRY(oq_job_open(job, path, out, err));
    return oq_model_make_sound(*out, err);
}

onq_code oq_job_name_apart(oq_job *job, oq_model *m, onq_error *err) {
    size_t n = 0;
    oq_str was, is;
    OQ_TRY(oq_model_name_apart(m, &n, &was, &is, err));
    if (n > 0)
        oq_warn(job->env,
                "%zu node%s the name of another, which ONNX Runtime refuses, and %s renamed; the "
                "first was '%.*s' and is '%.*s'",
                n, n == 1 ? " has" : "s have", n == 1 ? "is" : "are", OQ_STR(was), OQ_STR(is));
    return ONQ_OK;
}

/* True if the error begins with this file, with one in this folder or with its data. */
static bool names(const onq_error *why, const char *path) {
    const size_t n = path != NULL ? strlen(path) : 0;
    return n > 0 && strncmp(why->text, path, n) == 0 && strchr(":/.", why->text[n]) != NULL;
}

onq_code oq_job_blame(const oq_job *job, onq_code rc, onq_error *err) {
    const char *path = oq_job_input(job);
    const char *data = oq_opt_has(job->opts, "data") ? oq_opt_str(job->opts, "data") : NULL;
    if (rc == ONQ_OK || rc == ONQ_E_OPTION || rc == ONQ_E_WRITE || rc == ONQ_E_CONFIG ||
        err == NULL || names(err, path) || names(err, data) ||
        strncmp(oq_error_text(err), "--data ", 7) == 0)
        return rc;
    return oq_error_in(err, rc, "%s", path);
}

onq_code oq_job_own_files(oq_job *job, const char *option, onq_error *err) {
    while (job->file_options.n < job->files.all.n)
        OQ_TRY_ALLOC(OQ_PUSH(&job->arena, &job->file_options, option), err);
    assert(job->file_options.n == job->files.all.n);
    return ONQ_OK;
}

static uint64_t size_on_disk(const char *path) {
    oq_file_info info;
    return oq_os_info_of(path, &info) ? info.size : 0;
}

onq_code oq_job_save(oq_job *job, const char *option, oq_model *m, const oq_save_options *o,
                     uint64_t *size, onq_error *err) {
    assert(m != NULL && m->proto != NULL);
    const char *path = oq_opt_str(job->opts, option);
    oq_save_options options = *o;
    uint64_t sum = 0;
    if (oq_opt_has(job->opts, "drop_shapes") && oq_opt_flag(job->opts, "drop_shapes"))
        OQ_TRY(oq_model_drop_shapes(m, err));
    if (oq_opt_is_wanted(job->opts, path))
        options.memory = &job->files;
    const size_t first = job->files.all.n;
    OQ_TRY(oq_model_save(m, path, &options, err));
    if (options.memory == NULL) {
        const oq_str data = oq_str_format(&job->arena, "%s.data", path);
        sum = size_on_disk(path);
        if (data.p != NULL && options.external != OQ_EXTERNAL_KEEP)
            sum += size_on_disk(data.p);
    }
    for (size_t i = first; i < job->files.all.n; i++)
        sum += job->files.all.v[i].size;
    if (size != NULL)
        *size = sum;
    return oq_job_own_files(job, option, err);
}

onq_code oq_job_save_text(oq_job *job, const char *option, const oq_buf *text, onq_error *err) {
    const char *path = oq_opt_str(job->opts, option);
    if (!oq_opt_is_wanted(job->opts, path))
        return oq_out_text(&job->env->alloc, path, text, err);
    oq_out out;
    OQ_TRY_ALLOC(!text->failed, err);
    OQ_TRY(oq_out_open_memory(&out, &job->env->alloc, path, err));
    onq_code rc = oq_out_write(&out, text->p, text->n, err);
    if (rc == ONQ_OK)
        rc = oq_files_take(&job->files, &out, err);
    oq_out_abort(&out);
    return rc == ONQ_OK ? oq_job_own_files(job, option, err) : rc;
}

const char *oq_job_near(oq_job *job) {
    const onq_options *o = job->opts;
    const char *output = oq_opt_has(o, "output") ? oq_opt_str(o, "output") : NULL;
    const char *input = oq_job_input(job);
    if (output != NULL && output[0] != '\0' && !oq_opt_is_wanted(o, output))
        return output;
    if (oq_opt_bytes_of(o, input) == NULL && output == NULL && !job->env->isolated)
        return input;
    char room[OQ_PATH_MAX];
    return oq_path_join(&job->arena, oq_os_temp_root(room), "onq.onnx");
}

/* ---- warnings ---- */

/* Between the job and the caller's log. */
typedef struct listener {
    onq_env *env;
    void (*fn)(void *ctx, onq_log_level level, const char *text);
    void *ctx;
    warnings all;
    bool failed;
} listener;

static void listen(void *ctx, onq_log_level level, const char *text) {
    listener *l = ctx;
    if (level == ONQ_LOG_WARNING || level == ONQ_LOG_ALERT) {
        const char *copy = oq_arena_strdup(&l->all.arena, text, strlen(text));
        l->failed |= copy == NULL || !OQ_PUSH(&l->all.arena, &l->all.all, copy);
    }
    if (l->fn != NULL)
        l->fn(l->ctx, level, text);
}

static void listen_begin(listener *l, onq_env *env) {
    *l = (listener){.env = env, .fn = env->log_fn, .ctx = env->log_ctx};
    oq_arena_init(&l->all.arena, &env->alloc);
    env->log_fn = listen;
    env->log_ctx = l;
}

static void listen_end(listener *l) {
    assert(l->env->log_fn == listen && l->env->log_ctx == l);
    l->env->log_fn = l->fn;
    l->env->log_ctx = l->ctx;
}

/* ---- results ---- */

/* What the arenas and files of a result hold on to must live as long as it does. */
static void move_files(onq_result *r, oq_job *job) {
    r->files = job->files;
    job->files = (oq_files){0};
    r->files.arena.alloc = &r->alloc;
    for (size_t i = 0; i < r->files.all.n; i++)
        r->files.all.v[i].alloc = &r->alloc;
}

static bool show_files(onq_result *r, const oq_job *job) {
    const size_t n = r->files.all.n;
    assert(job->file_options.n == n);
    r->shown = OQ_NEW_ARRAY(&r->files.arena, onq_file, n + 1);
    for (size_t i = 0; r->shown != NULL && i < n; i++) {
        const oq_file *f = &r->files.all.v[i];
        r->shown[i] = (onq_file){job->file_options.v[i], f->path, f->p, (size_t)f->size};
    }
    return r->shown != NULL;
}

static onq_code take_result(oq_job *job, listener *l, onq_result **out, onq_error *err) {
    onq_result *r = oq_calloc(&job->env->alloc, 1, sizeof *r);
    if (r == NULL || job->text.failed || job->json_text.failed || l->failed) {
        oq_free(&job->env->alloc, r, sizeof *r);
        return oq_fail_nomem(err);
    }
    r->alloc = job->env->alloc;
    r->text = job->text;
    r->json = job->json_text;
    r->text.alloc = r->json.alloc = &r->alloc;
    r->status = job->status;
    r->warnings = l->all;
    r->warnings.arena.alloc = &r->alloc;
    oq_arena_init(&l->all.arena, &job->env->alloc);
    oq_buf_init(&job->text, &job->env->alloc);
    oq_buf_init(&job->json_text, &job->env->alloc);
    r->ranges = job->ranges;
    job->ranges = NULL;
    move_files(r, job);
    if (!show_files(r, job)) {
        onq_result_free(r);
        return oq_fail_nomem(err);
    }
    *out = r;
    return ONQ_OK;
}

static void job_init(oq_job *job) {
    onq_env *env = job->env;
    oq_arena_init(&job->arena, &env->alloc);
    oq_buf_init(&job->text, &env->alloc);
    oq_buf_init(&job->json_text, &env->alloc);
    oq_files_init(&job->files, &env->alloc);
    oq_jw_init(&job->json, &job->json_text, true);
}

static void job_release(oq_job *job) {
    onq_ranges_free(job->ranges);
    oq_job_close_steps(job);
    oq_tape_free(job->tape);
    oq_files_release(&job->files);
    oq_buf_release(&job->text);
    oq_buf_release(&job->json_text);
    oq_arena_release(&job->arena);
}

/* Every result as JSON ends with what was warned of, which --quiet hides from standard error. */
static void tell_warnings(oq_job *job, const warnings *w) {
    oq_jw_begin_array(&job->json, "warnings");
    for (size_t i = 0; i < w->all.n; i++)
        oq_jw_cstr(&job->json, NULL, w->all.v[i]);
    oq_jw_end_array(&job->json);
}

static onq_code run_command(oq_job *job, const listener *l, onq_error *err) {
    const onq_options *o = job->opts;
    if (oq_isolate_wanted(o))
        return oq_isolate_run(job, err);
    oq_extra_warn_unused(o);
    oq_jw_begin_object(&job->json, NULL);
    OQ_TRY(oq_plan_file_run(job, err));
    if (oq_options_misread(o))
        return oq_fail(err, ONQ_E_INTERNAL, "%s read an option that it does not have",
                       o->command->info.name);
    assert(job->json.depth == 1);
    oq_job_tell_steps(job);
    tell_warnings(job, &l->all);
    oq_jw_end_object(&job->json);
    oq_buf_addc(&job->json_text, '\n');
    return ONQ_OK;
}

/* ---- files that are not there ---- */

/* Adds what the user may have meant, if the error is about this file. */
static bool suggest_for(oq_job *job, const char *path, onq_error *err) {
    char near[400];
    if (path == NULL || path[0] == '\0' || strstr(oq_error_text(err), path) == NULL ||
        oq_opt_bytes_of(job->opts, path) != NULL || oq_os_may(path, OQ_IS_THERE))
        return false;
    oq_near_path_text(&job->arena, path, near, sizeof near);
    if (near[0] == '\0')
        return false;
    const char *was = oq_arena_strdup(&job->arena, oq_error_text(err), strlen(oq_error_text(err)));
    if (was != NULL)
        (void)oq_fail(err, ONQ_E_MISSING, "%s%s", was, near);
    return true;
}

/* An error about a file that is not there suggests those beside it with nearly the same name. */
static void suggest_files(oq_job *job, onq_error *err) {
    const onq_options *o = job->opts;
    for (size_t i = 0; i < o->operands.n; i++)
        if (suggest_for(job, o->operands.v[i].p, err))
            return;
    for (size_t i = 0; i < o->n_values; i++)
        if (o->values[i].row != NULL && o->values[i].row->type == ONQ_OPT_PATH &&
            o->values[i].is_set && suggest_for(job, o->values[i].text.p, err))
            return;
}

onq_code onq_run(onq_env *env, const onq_options *opts, onq_result **out, onq_error *err) {
    *out = NULL;
    OQ_TRY(oq_command_check(opts, err));
    OQ_TRY(oq_outputs_check(opts, &env->alloc, err));

    oq_job job = {.env = env, .opts = opts};
    listener l;
    job_init(&job);
    listen_begin(&l, env);
    const unsigned threads_before = env->n_threads;
    if (oq_opt_is_set(opts, "threads"))
        env->n_threads = (unsigned)oq_opt_int(opts, "threads");
    onq_code rc = run_command(&job, &l, err);
    env->n_threads = threads_before;
    listen_end(&l);
    if (rc == ONQ_E_MISSING)
        suggest_files(&job, err);
    if (rc == ONQ_OK)
        rc = take_result(&job, &l, out, err);
    oq_arena_release(&l.all.arena);
    job_release(&job);
    return rc;
}

void onq_result_free(onq_result *res) {
    if (res == NULL)
        return;
    const onq_allocator alloc = res->alloc;
    oq_buf_release(&res->text);
    oq_buf_release(&res->json);
    onq_ranges_free(res->ranges);
    oq_arena_release(&res->warnings.arena);
    oq_files_release(&res->files);
    oq_free(&alloc, res, sizeof *res);
}

const char *onq_result_text(const onq_result *res) {
    return res->text.p != NULL ? res->text.p : "";
}

const char *onq_result_json(const onq_result *res) {
    return res->json.p != NULL ? res->json.p : "";
}

int onq_result_status(const onq_result *res) {
    return res->status;
}

const char *onq_result_warning(const onq_result *res, size_t i) {
    return i < res->warnings.all.n ? res->warnings.all.v[i] : NULL;
}

const onq_file *onq_result_file(const onq_result *res, size_t i) {
    return i < res->files.all.n ? &res->shown[i] : NULL;
}

const onq_ranges *onq_result_ranges(const onq_result *res) {
    return res->ranges;
}
