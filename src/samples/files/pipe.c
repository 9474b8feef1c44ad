/*
 * pipe.c — see pipe.h.
 */
#include "samples/files/pipe.h"

#include "base/env.h"

onq_code oq_pipe_open_file(oq_pipe *p, const char *path, onq_error *err) {
    oq_file_info info;
    const oq_handle h = oq_os_open(path);
    *p = (oq_pipe){.handle = h, .owned = true};
    if (h == OQ_NO_HANDLE || !oq_os_info(h, &info))
        return oq_fail_errno(err, ONQ_E_OPEN, errno, "%s: cannot be opened", path);
    if (info.kind == OQ_IS_FILE)
        return ONQ_OK;
    oq_pipe_close(p);
    return oq_fail(err, ONQ_E_OPEN, "%s: is not a regular file (a stream is read with --data -)",
                   path);
}

void oq_pipe_open_input(oq_pipe *p) {
    *p = (oq_pipe){.handle = oq_os_standard_input()};
}

onq_code oq_pipe_run(oq_pipe *p, const char *command, onq_error *err) {
    *p = (oq_pipe){.handle = OQ_NO_HANDLE};
    const int rc = oq_os_run_line(command, &p->child, &p->handle);
    if (rc != 0)
        return oq_fail_errno(err, ONQ_E_READ, rc, "exec: the program cannot be run");
    p->owned = true;
    return ONQ_OK;
}

onq_code oq_pipe_read(oq_pipe *p, void *out, uint64_t n, uint64_t *got, onq_error *err) {
    *got = 0;
    while (*got < n && !p->ended) {
        const int64_t k = oq_os_read(p->handle, (uint8_t *)out + *got, n - *got);
        if (k > 0)
            *got += (uint64_t)k;
        else if (k == 0)
            p->ended = true;
        else if (errno != EINTR)
            return oq_fail_errno(err, ONQ_E_READ, errno, "cannot be read");
    }
    return ONQ_OK;
}

onq_code oq_pipe_follow(oq_pipe *p, onq_env *env, const char *doing, double most,
                        void (*take)(void *ctx, const char *text, size_t n), void *ctx,
                        onq_error *err) {
    const double begin = oq_seconds();
    char text[4096];
    for (;;) {
        OQ_TRY(oq_progress(env, doing, 0, 0, err));
        if (most > 0 && oq_seconds() - begin > most)
            return oq_fail(err, ONQ_E_LIMIT, "it takes longer than --time_limit allows");
        if (oq_os_wait_readable(p->handle, 100) <= 0)
            continue;
        const int64_t n = oq_os_read(p->handle, text, sizeof text);
        if (n == 0)
            return ONQ_OK;
        if (n > 0)
            take(ctx, text, (size_t)n);
        else if (errno != EINTR)
            return oq_fail_errno(err, ONQ_E_READ, errno, "its output cannot be read");
    }
}

onq_code oq_pipe_finish(oq_pipe *p, onq_error *err) {
    if (p->child.id == 0)
        return ONQ_OK;
    const oq_ended end = oq_os_wait(&p->child);
    if (end.signal != 0)
        return oq_fail(err, ONQ_E_READ, "the program was ended by signal %d", end.signal);
    return end.status == 0
               ? ONQ_OK
               : oq_fail(err, ONQ_E_READ, "the program ended with status %d", end.status);
}

void oq_pipe_close(oq_pipe *p) {
    if (p->owned && p->handle != OQ_NO_HANDLE)
        oq_os_close(p->handle);
    if (p->child.id != 0) {
        oq_os_stop(&p->child, false);
        oq_os_wait(&p->child);
    }
    *p = (oq_pipe){.handle = OQ_NO_HANDLE};
}
