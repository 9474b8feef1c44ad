/*
 * isolate.c — the caller's side of --isolate: the worker is started, waited for and ended.
 */
#include "api/isolate/isolate.h"

#include "api/isolate/isolate_parts.h"
#include "base/system/child.h"
#include "base/system/temp.h"

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

#define WORKER_FD    3   /* the worker's end of the socket */
#define GRACE        5.0 /* seconds for a job that is to stop by itself */
#define SHOW_SECONDS 0.1 /* between two looks at whether the caller wants it to stop */

extern char **environ;

typedef struct caller {
    oq_iso_talk talk;
    pid_t child;
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
    oq_arena *a = &c->talk.job->arena;
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
    c->talk.end.fd = ends[0];
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
        kill(c->child, SIGTERM);
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

static onq_code wait_ready(void *ctx, short events, onq_error *err) {
    const caller *c = ctx;
    struct pollfd p = {.fd = c->talk.end.fd, .events = events};
    OQ_TRY(go_on(ctx, err));
    while (poll(&p, 1, (int)(SHOW_SECONDS * 1000)) <= 0)
        OQ_TRY(go_on(ctx, err));
    return ONQ_OK;
}

/* ---- the end ---- */

/* Ends the worker and all that it started. Returns its status; *died: it had ended before. */
static int finish(caller *c, bool *died) {
    siginfo_t info = {0};
    if (c->talk.end.fd >= 0)
        close(c->talk.end.fd);
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
                       WTERMSIG(status), strsignal(WTERMSIG(status)), c->talk.doing,
                       (unsigned long long)(c->talk.memory >> 20));
    return oq_fail(err, ONQ_E_RUNTIME,
                   "the isolated process ended with status %d while %s; nothing was written",
                   WEXITSTATUS(status), c->talk.doing);
}

onq_code oq_isolate_run(oq_job *job, onq_error *err) {
    const onq_options *o = job->opts;
    caller c = {.talk = {.job = job, .show = show_progress, .doing = "starting"}};
    bool died = false;
    c.talk.end = (oq_iso_end){-1, true, wait_ready, go_on, &c};
    c.seconds = oq_opt_int(o, "isolate_time");
    c.deadline = oq_seconds() + (double)c.seconds;
    c.talk.memory = oq_opt_is_set(o, "isolate_memory") ? oq_opt_size(o, "isolate_memory")
                                                       : oq_machine_memory() / 4 * 3;
    onq_code rc = start(&c, err);
    if (rc == ONQ_OK)
        rc = oq_iso_talk_run(&c.talk, err);
    const int status = finish(&c, &died);
    if (rc == ONQ_E_READ && !c.talk.ended && c.kill_at != 0)
        rc = fail_stopped(err); /* by the signal, before it could listen to it */
    else if (rc == ONQ_E_READ && !c.talk.ended && died)
        rc = tell_death(&c, status, err);
    oq_temp_remove(c.folder);
    return rc;
}
