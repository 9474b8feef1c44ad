/*
 * isolate.c — the caller's side of --isolate: see isolate.h.
 */
#include "api/isolate.h"

#include "api/isolate_parts.h"
#include "api/outputs.h"
#include "api/ranges_handle.h"
#include "base/child.h"
#include "base/temp.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKER_FD 3   /* the worker's end of the socket */
#define GRACE     5.0 /* seconds for a job that is to stop by itself */

extern char **environ;

typedef struct caller {
    oq_job *job;
    oq_iso_end end;
    pid_t child;
    const char *folder; /* for its temporary files, or NULL */
    int64_t seconds;    /* --isolate_time */
    uint64_t memory;
    double deadline, kill_at; /* kill_at 0: nobody wants it to stop */
    char doing[200];          /* what it said last about its progress */
    uint64_t done, total;
    oq_feed *feed; /* the caller's reader, or NULL */
    uint64_t number;
    onq_error reason; /* why the reader failed */
    oq_out file;      /* a file of the result that is being received */
    uint64_t file_left;
    const char *file_option;
    bool ended; /* it has said how the job ended */
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

static bool is_program(const char *path) {
    return access(path, X_OK) == 0;
}

/* $ONQ_WORKER; the running program, if it is onq; onq as it is installed or built beside the
 * library. */
static const char *find_worker(oq_arena *a) {
    static const char *const places[] = {"onq", "../bin/onq", "../../bin/onq"};
    static const char mark = 0; /* any address inside the library will do */
    const char *named = getenv("ONQ_WORKER");
    char exe[4096];
    Dl_info info;
    if (named != NULL && named[0] != '\0')
        return named;
    const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    const char *slash = n > 0 ? memrchr(exe, '/', (size_t)n) : NULL;
    if (slash != NULL && n - (slash + 1 - exe) == 3 && memcmp(slash + 1, "onq", 3) == 0)
        return "/proc/self/exe";
    char *real = dladdr(&mark, &info) != 0 ? realpath(info.dli_fname, NULL) : NULL;
    const char *end = real != NULL ? strrchr(real, '/') : NULL, *found = NULL;
    for (size_t i = 0; end != NULL && found == NULL && i < OQ_COUNT(places); i++) {
        const char *path = oq_str_format(a, "%.*s/%s", (int)(end - real), real, places[i]).p;
        found = path != NULL && is_program(path) ? path : NULL;
    }
    free(real);
    return found;
}

/* The caller's variables, with a temporary folder of its own. */
static char **worker_environment(const caller *c, oq_arena *a) {
    size_t n = 0, k = 0;
    while (environ[n] != NULL)
        n++;
    char **all = OQ_NEW_ARRAY(a, char *, n + 2);
    const char *own = oq_str_format(a, "TMPDIR=%s", c->folder).p;
    if (all == NULL || own == NULL)
        return NULL;
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], "TMPDIR=", 7) != 0)
            all[k++] = environ[i];
    all[k++] = (char *)(uintptr_t)own;
    all[k] = NULL;
    return all;
}

static onq_code start(caller *c, onq_error *err) {
    oq_arena *a = &c->job->arena;
    char name[] = "onq", option[] = "--worker";
    char *const words[] = {name, option, NULL};
    int ends[2];
    const char *program = find_worker(a);
    if (program == NULL)
        return oq_fail(
            err, ONQ_E_UNSUPPORTED,
            "--isolate: the program onq is not beside the library (ONQ_WORKER names it)");
    OQ_TRY(oq_temp_make(a, &c->folder, err));
    char **variables = worker_environment(c, a);
    if (variables == NULL)
        return oq_fail_nomem(err);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return oq_fail_errno(err, ONQ_E_UNSUPPORTED, errno, "--isolate: no socket can be made");
    /* Standard output is the caller's: nothing that the runtime prints there is to reach it. */
    const oq_child_file files[] = {{WORKER_FD, ends[1]}, {STDOUT_FILENO, -1}};
    int rc = oq_child_start(&c->child, program, words, variables, files, OQ_COUNT(files));
    if (rc == 0 && fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0)
        rc = errno;
    close(ends[1]);
    c->end.fd = ends[0];
    return rc == 0 ? ONQ_OK
                   : oq_fail_errno(err, ONQ_E_UNSUPPORTED, rc, "--isolate: %s cannot be started",
                                   program);
}

/* ---- waiting ---- */

/* Shows the caller the progress, which may end the job: then the worker gets a while to stop. */
static void show_progress(caller *c) {
    const onq_env *env = c->job->env;
    if (c->kill_at == 0 && env->progress_fn != NULL &&
        env->progress_fn(env->progress_ctx, c->doing, c->done, c->total) != 0) {
        c->kill_at = oq_seconds() + GRACE;
        kill(c->child, SIGTERM);
    }
}

static onq_code wait_ready(void *ctx, short events, onq_error *err) {
    caller *c = ctx;
    struct pollfd p = {.fd = c->end.fd, .events = events};
    for (;;) {
        const double now = oq_seconds();
        if (now >= c->deadline)
            return oq_fail(err, ONQ_E_LIMIT,
                           "the isolated process was ended after %lld seconds while %s "
                           "(--isolate_time allows more); nothing was written",
                           (long long)c->seconds, c->doing);
        if (c->kill_at != 0 && now >= c->kill_at)
            return oq_fail(err, ONQ_E_CANCEL, "stopped");
        if (poll(&p, 1, 100) > 0)
            return ONQ_OK;
        show_progress(c); /* a silent worker must not keep the caller from stopping it */
    }
}

/* ---- what it says ---- */

static onq_code garbled(onq_error *err) {
    return oq_fail(err, ONQ_E_RUNTIME,
                   "the isolated process sent something that is not a valid message");
}

static onq_code on_hello(oq_iso_body b, onq_error *err) {
    const oq_str version = oq_iso_get_text(&b);
    return oq_str_is(version, onq_version())
               ? ONQ_OK
               : oq_fail(err, ONQ_E_UNSUPPORTED,
                         "--isolate: the program onq has version '%.*s', but the library has %s",
                         OQ_STR(version), onq_version());
}

static onq_code on_log(caller *c, oq_iso_body b, onq_error *err) {
    const int64_t level = (int64_t)oq_iso_get(&b);
    const oq_str text = oq_iso_get_text(&b);
    if (b.bad || level < ONQ_LOG_ALERT || level > ONQ_LOG_NOTE)
        return garbled(err);
    oq_log(c->job->env, (onq_log_level)level, "%.*s", OQ_STR(text));
    return ONQ_OK;
}

static onq_code on_progress(caller *c, oq_iso_body b, onq_error *err) {
    const oq_str what = oq_iso_get_text(&b);
    c->done = oq_iso_get(&b);
    c->total = oq_iso_get(&b);
    if (b.bad)
        return garbled(err);
    oq_text_escape(c->doing, sizeof c->doing, what.p, what.n);
    show_progress(c);
    return ONQ_OK;
}

static onq_code on_rewind(caller *c, onq_error *err) {
    const bool ok = c->feed != NULL && c->feed->rewind != NULL &&
                    c->feed->rewind(c->feed, &c->reason) == ONQ_OK;
    c->number = 0;
    return oq_iso_send(&c->end, ok ? OQ_ISO_NONE : OQ_ISO_STOP, NULL, 0, err);
}

static onq_code on_file(caller *c, oq_iso_body b, onq_error *err) {
    oq_job *job = c->job;
    const char *option = oq_iso_get_word(&b, &job->arena), *name = oq_iso_get_word(&b, &job->arena);
    c->file_left = oq_iso_get(&b);
    const oq_opt_value *v = NULL;
    oq_opt_value *found = NULL;
    if (!b.bad && !c->file.open && oq_opt_value_find(job->opts, option, &found, NULL) == ONQ_OK)
        v = found;
    if (v == NULL || !oq_opt_is_wanted(job->opts, v->text.p))
        return garbled(err);
    c->file_option = v->row->name;
    return oq_out_open_memory(&c->file, &job->env->alloc, name, err);
}

static onq_code on_part(caller *c, const oq_buf *body, onq_error *err) {
    if (!c->file.open || body->n > c->file_left)
        return garbled(err);
    c->file_left -= body->n;
    return oq_out_write(&c->file, body->p, body->n, err);
}

static onq_code end_file(caller *c, onq_error *err) {
    if (!c->file.open)
        return ONQ_OK;
    OQ_TRY(oq_files_take(&c->job->files, &c->file, err));
    return oq_job_own_files(c->job, c->file_option, err);
}

static onq_code on_done(caller *c, oq_iso_body b, onq_error *err) {
    oq_job *job = c->job;
    job->status = oq_iso_get(&b) != 0;
    const oq_str text = oq_iso_get_text(&b), json = oq_iso_get_text(&b);
    const bool has_ranges = oq_iso_get(&b) != 0;
    const oq_str ranges = has_ranges ? oq_iso_get_text(&b) : OQ_S("");
    if (b.bad || c->file_left > 0)
        return garbled(err);
    oq_buf_add_str(&job->text, text);
    oq_buf_add_str(&job->json_text, json);
    if (!has_ranges)
        return ONQ_OK;
    oq_ranges r;
    OQ_TRY(oq_ranges_parse(&r, &job->env->alloc, "ranges", ranges, err));
    return oq_job_give_ranges(job, &r, err);
}

static onq_code on_failed(caller *c, oq_iso_body b, onq_error *err) {
    const uint64_t code = oq_iso_get(&b), offset = oq_iso_get(&b);
    const oq_str text = oq_iso_get_text(&b);
    if (c->reason.code != ONQ_OK && err != NULL) {
        *err = c->reason;
        return err->code;
    }
    if (b.bad || code == ONQ_OK || code > ONQ_E_INTERNAL)
        return garbled(err);
    oq_fail(err, (onq_code)code, "%.*s", OQ_STR(text));
    if (err != NULL)
        err->offset = (int64_t)offset;
    return (onq_code)code;
}

static onq_code answer(caller *c, oq_iso_kind kind, const oq_buf *body, onq_error *err) {
    oq_iso_body b = oq_iso_read(body);
    if (kind != OQ_ISO_PART && kind != OQ_ISO_LOG && kind != OQ_ISO_PROGRESS && c->file_left == 0)
        OQ_TRY(end_file(c, err));
    switch (kind) {
    case OQ_ISO_HELLO:
        return on_hello(b, err);
    case OQ_ISO_LOG:
        return on_log(c, b, err);
    case OQ_ISO_PROGRESS:
        return on_progress(c, b, err);
    case OQ_ISO_NEXT:
        return c->feed == NULL ? garbled(err)
                               : oq_iso_send_sample(&c->end, c->job->env, c->feed, c->number++,
                                                    &c->reason, err);
    case OQ_ISO_REWIND:
        return on_rewind(c, err);
    case OQ_ISO_OPEN:
        return oq_iso_send_data(&c->end, c->job, &b, err);
    case OQ_ISO_FILE:
        return on_file(c, b, err);
    case OQ_ISO_PART:
        return on_part(c, body, err);
    case OQ_ISO_DONE:
        c->ended = true;
        return on_done(c, b, err);
    case OQ_ISO_FAILED:
        c->ended = true;
        return on_failed(c, b, err);
    default:
        return garbled(err);
    }
}

static onq_code talk(caller *c, onq_error *err) {
    oq_buf body;
    oq_iso_kind kind = OQ_ISO_HELLO;
    oq_buf_init(&body, &c->job->env->alloc);
    onq_code rc = oq_iso_receive(&c->end, &kind, &body, err);
    if (rc == ONQ_OK)
        rc = kind == OQ_ISO_HELLO || kind == OQ_ISO_FAILED ? answer(c, kind, &body, err)
                                                           : garbled(err);
    if (rc == ONQ_OK)
        rc = oq_iso_send_job(&c->end, c->job, c->memory, err);
    while (rc == ONQ_OK && !c->ended) {
        rc = oq_iso_receive(&c->end, &kind, &body, err);
        if (rc == ONQ_OK)
            rc = answer(c, kind, &body, err);
    }
    oq_buf_release(&body);
    return rc;
}

/* ---- the end ---- */

/* Ends the worker and all that it started. Returns its status; *died: it had ended before. */
static int finish(caller *c, bool *died) {
    siginfo_t info = {0};
    if (c->end.fd >= 0)
        close(c->end.fd);
    *died = false;
    if (c->child == 0)
        return 0;
    /* A process that has closed its end is about to be gone. It is not reaped yet: until then the
     * number of its group cannot belong to anyone else. */
    for (int i = 0; i < 50 && !*died; i++) {
        if (waitid(P_PID, (id_t)c->child, &info, WEXITED | WNOHANG | WNOWAIT) != 0)
            break;
        *died = info.si_pid == c->child;
        if (!*died)
            poll(NULL, 0, 2);
    }
    kill(-c->child, SIGKILL);
    return oq_child_wait(c->child);
}

/* The stream ended before the job did. */
static onq_code tell_death(const caller *c, int status, onq_error *err) {
    if (WIFSIGNALED(status))
        return oq_fail(err, ONQ_E_RUNTIME,
                       "the isolated process was ended by signal %d (%s) while %s: the runtime or "
                       "what it runs is at fault; its memory was limited to %llu MB; nothing was "
                       "written",
                       WTERMSIG(status), strsignal(WTERMSIG(status)), c->doing,
                       (unsigned long long)(c->memory >> 20));
    return oq_fail(err, ONQ_E_RUNTIME,
                   "the isolated process ended with status %d while %s; nothing was written",
                   WEXITSTATUS(status), c->doing);
}

onq_code oq_isolate_run(oq_job *job, onq_error *err) {
    const onq_options *o = job->opts;
    const onq_reader *reader = oq_opt_reader(o);
    caller c = {.job = job, .doing = "starting", .end = {.fd = -1, .wait = wait_ready}};
    bool died = false;
    c.end.ctx = &c;
    c.seconds = oq_opt_int(o, "isolate_time");
    c.deadline = oq_seconds() + (double)c.seconds;
    c.memory = oq_opt_is_set(o, "isolate_memory") ? oq_opt_size(o, "isolate_memory")
                                                  : oq_machine_memory() / 4 * 3;
    onq_code rc = reader != NULL ? oq_feed_open_reader(job->env, reader, &c.feed, err) : ONQ_OK;
    if (rc == ONQ_OK)
        rc = start(&c, err);
    if (rc == ONQ_OK)
        rc = talk(&c, err);
    const int status = finish(&c, &died);
    if (rc == ONQ_E_READ && !c.ended && died)
        rc = tell_death(&c, status, err);
    oq_out_abort(&c.file);
    if (c.feed != NULL)
        c.feed->close(c.feed);
    oq_temp_remove(c.folder);
    return rc;
}
