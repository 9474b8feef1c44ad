/*
 * isolate.c — the caller's side of --isolate: the worker is started, waited for and ended.
 */
#include "api/isolate/isolate.h"

#include "api/isolate/isolate_parts.h"
#include "base/system/temp.h"

#define WORKER_FD    3   /* the number of the worker's end of the socket there */
#define WORKER_OUT   1   /* and of its standard output */
#define GRACE        5.0 /* seconds for a job that is to stop by itself */
#define SHOW_SECONDS 0.1 /* between two looks at whether the caller wants it to stop */

typedef struct caller {
    oq_iso_talk talk;
    oq_process child;
    const char *folder;       /* for its temporary files, or NULL */
    int64_t seconds;          /* --isolate_time */
    double deadline, kill_at; /* kill_at 0: nobody wants it to stop */
    double shown;             /* when the progress was shown last */
} caller;

bool oq_isolate_wanted(const onq_options *o) {
    return oq_opt_has(o, "isolate") && oq_opt_flag(o, "isolate");
}

onq_code oq_isolate_refuse(const onq_options *o, onq_error *err) {
    return !oq_isolate_wanted(o)
               ? ONQ_OK
               : oq_fail(err, ONQ_E_OPTION,
                         "--isolate is for whole commands (onq_run); this call runs the model in "
                         "the caller's process");
}

/* ---- the worker program ---- */

/* $ONQ_WORKER; the running program, if it is onq; onq as it is installed or built beside the
 * library. */
static const char *find_worker(oq_arena *a) {
    static const char *const places[] = {"onq", "../bin/onq", "../../bin/onq"};
    static const char mark = 0; /* any address inside the library will do */
    const char *named = getenv("ONQ_WORKER"), *found = NULL;
    char text[OQ_PATH_MAX], real[OQ_PATH_MAX];
    if (named != NULL && named[0] != '\0')
        return named;
    if (oq_os_program_path(text) && strcmp(oq_path_last(text), "onq") == 0)
        return "/proc/self/exe"; /* also where the file has been replaced */
    if (!oq_os_library_path(&mark, text) || !oq_os_real_path(text, real))
        return NULL;
    const oq_str home = oq_path_folder(real);
    for (size_t i = 0; found == NULL && i < OQ_COUNT(places); i++) {
        const char *path = oq_str_format(a, "%.*s/%s", OQ_STR(home), places[i]).p;
        found = path != NULL && oq_os_may(path, OQ_MAY_ENTER) ? path : NULL;
    }
    return found;
}

/* The caller's variables, with a temporary folder of its own. */
static char **worker_environment(const caller *c, oq_arena *a) {
    char **variables = oq_os_variables();
    size_t n = 0, k = 0;
    while (variables[n] != NULL)
        n++;
    char **all = OQ_NEW_ARRAY(a, char *, n + 2);
    const char *own = oq_str_format(a, "TMPDIR=%s", c->folder).p;
    if (all == NULL || own == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++)
        if (strncmp(variables[i], "TMPDIR=", 7) != 0)
            all[k++] = variables[i];
    all[k++] = (char *)(uintptr_t)own;
    all[k] = NULL;
    return all;
}

static onq_code start(caller *c, onq_error *err) {
    oq_arena *a = &c->talk.job->arena;
    char name[] = "onq", option[] = "--worker";
    char *const words[] = {name, option, NULL};
    oq_handle ends[2];
    const char *program = find_worker(a);
    if (program == NULL)
        return oq_fail(
            err, ONQ_E_UNSUPPORTED,
            "--isolate: the program onq is not beside the library (ONQ_WORKER names it)");
    OQ_TRY(oq_temp_make(a, &c->folder, err));
    char **variables = worker_environment(c, a);
    OQ_TRY_ALLOC(variables != NULL, err);
    if (!oq_os_socket_pair(ends))
        return oq_fail_errno(err, ONQ_E_UNSUPPORTED, errno, "--isolate: no socket can be made");
    /* Standard output is the caller's: nothing that the runtime prints there is to reach it. */
    const oq_child_file files[] = {{WORKER_FD, ends[1]}, {WORKER_OUT, OQ_NO_HANDLE}};
    const int rc = oq_os_start(&c->child, program, words, variables, files, OQ_COUNT(files));
    oq_os_close(ends[1]);
    c->talk.end.handle = ends[0];
    return rc == 0 ? ONQ_OK
                   : oq_fail_errno(err, ONQ_E_UNSUPPORTED, rc, "--isolate: %s cannot be started",
                                   program);
}

/* ---- waiting ---- */

/* Shows the caller the progress, which may end the job: then the worker gets a while to stop. */
static void show_progress(void *ctx) {
    caller *c = ctx;
    const onq_env *env = c->talk.job->env;
    c->shown = oq_seconds();
    if (c->kill_at == 0 && env->progress_fn != NULL &&
        env->progress_fn(env->progress_ctx, c->talk.doing, c->talk.done, c->talk.total) != 0) {
        c->kill_at = oq_seconds() + GRACE;
        oq_os_ask_to_end(&c->child);
    }
}

static onq_code fail_stopped(onq_error *err) {
    return oq_fail(err, ONQ_E_CANCEL, "stopped");
}

/* Neither a silent worker nor one that never stops talking may keep the caller from stopping it. */
static onq_code go_on(void *ctx, onq_error *err) {
    caller *c = ctx;
    const double now = oq_seconds();
    if (now >= c->deadline)
        return oq_fail(err, ONQ_E_LIMIT,
                       "the isolated process was ended after %lld seconds while %s "
                       "(--isolate_time allows more); nothing was written",
                       (long long)c->seconds, c->talk.doing);
    if (c->kill_at != 0 && now >= c->kill_at)
        return fail_stopped(err);
    if (now - c->shown >= SHOW_SECONDS)
        show_progress(c);
    return ONQ_OK;
}

static onq_code wait_ready(void *ctx, bool to_write, onq_error *err) {
    const caller *c = ctx;
    OQ_TRY(go_on(ctx, err));
    while (!oq_os_wait_socket(c->talk.end.handle, to_write, (int)(SHOW_SECONDS * 1000)))
        OQ_TRY(go_on(ctx, err));
    return ONQ_OK;
}

/* ---- the end ---- */

/* Ends the worker and all that it started. *died: it had ended before. */
static oq_ended finish(caller *c, bool *died) {
    if (c->talk.end.handle != OQ_NO_HANDLE)
        oq_os_close(c->talk.end.handle);
    *died = false;
    if (c->child.id == 0)
        return (oq_ended){0, 0};
    /* A process that has closed its end is about to be gone. */
    *died = oq_os_has_ended(&c->child, 100);
    oq_os_stop(&c->child, true);
    return oq_os_wait(&c->child);
}

/* The stream ended before the job did. */
static onq_code tell_death(const caller *c, oq_ended end, onq_error *err) {
    if (end.signal != 0)
        return oq_fail(err, ONQ_E_RUNTIME,
                       "the isolated process was ended by signal %d (%s) while %s: the runtime or "
                       "what it runs is at fault; its memory was limited to %llu MB; nothing was "
                       "written",
                       end.signal, oq_os_signal_name(end.signal), c->talk.doing,
                       (unsigned long long)(c->talk.memory >> 20));
    return oq_fail(err, ONQ_E_RUNTIME,
                   "the isolated process ended with status %d while %s; nothing was written",
                   end.status, c->talk.doing);
}

onq_code oq_isolate_run(oq_job *job, onq_error *err) {
    assert(oq_isolate_wanted(job->opts));
    const onq_options *o = job->opts;
    caller c = {.talk = {.job = job, .show = show_progress, .doing = "starting"}};
    bool died = false;
    c.talk.end = (oq_iso_end){OQ_NO_HANDLE, true, wait_ready, go_on, &c};
    c.seconds = oq_opt_int(o, "isolate_time");
    c.deadline = oq_seconds() + (double)c.seconds;
    c.talk.memory = oq_opt_is_set(o, "isolate_memory") ? oq_opt_size(o, "isolate_memory")
                                                       : oq_os_memory() / 4 * 3;
    onq_code rc = oq_os_can_isolate()
                      ? start(&c, err)
                      : oq_fail(err, ONQ_E_UNSUPPORTED,
                                "--isolate: this system cannot limit a process as Linux can (run "
                                "without it what you trust)");
    if (rc == ONQ_OK)
        rc = oq_iso_talk_run(&c.talk, err);
    const oq_ended end = finish(&c, &died);
    if (rc == ONQ_E_READ && !c.talk.ended && c.kill_at != 0)
        rc = fail_stopped(err); /* by the signal, before it could listen to it */
    else if (rc == ONQ_E_READ && !c.talk.ended && died)
        rc = tell_death(&c, end, err);
    oq_temp_remove(c.folder);
    return rc;
}
