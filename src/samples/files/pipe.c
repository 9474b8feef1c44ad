/*
 * pipe.c — see pipe.h.
 */
#include "samples/files/pipe.h"

#include "base/system/child.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

onq_code oq_pipe_open_file(oq_pipe *p, const char *path, onq_error *err) {
    struct stat st;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    *p = (oq_pipe){.fd = fd, .owned = true};
    if (fd < 0 || fstat(fd, &st) != 0)
        return oq_fail_errno(err, ONQ_E_OPEN, errno, "%s: cannot be opened", path);
    if (S_ISREG(st.st_mode))
        return ONQ_OK;
    oq_pipe_close(p);
    return oq_fail(err, ONQ_E_OPEN, "%s: is not a regular file (a stream is read with --data -)",
                   path);
}

void oq_pipe_open_input(oq_pipe *p) {
    *p = (oq_pipe){.fd = STDIN_FILENO};
}

onq_code oq_pipe_run(oq_pipe *p, const char *command, onq_error *err) {
    char shell[] = "sh", option[] = "-c";
    char *const words[] = {shell, option, (char *)(uintptr_t)command, NULL};
    int ends[2];
    *p = (oq_pipe){.fd = -1};
    if (pipe2(ends, O_CLOEXEC) != 0)
        return oq_fail_errno(err, ONQ_E_READ, errno, "exec: a pipe cannot be made");
    const oq_child_file files[] = {{STDIN_FILENO, -1}, {STDOUT_FILENO, ends[1]}};
    const int rc = oq_child_start(&p->child, "/bin/sh", words, NULL, files, OQ_COUNT(files));
    close(ends[1]);
    if (rc != 0) {
        close(ends[0]);
        p->child = 0;
        return oq_fail_errno(err, ONQ_E_READ, rc, "exec: the program cannot be run");
    }
    p->fd = ends[0];
    p->owned = true;
    return ONQ_OK;
}

onq_code oq_pipe_read(oq_pipe *p, void *out, uint64_t n, uint64_t *got, onq_error *err) {
    *got = 0;
    while (*got < n && !p->ended) {
        const ssize_t k = read(p->fd, (uint8_t *)out + *got, n - *got);
        if (k > 0)
            *got += (uint64_t)k;
        else if (k == 0)
            p->ended = true;
        else if (errno != EINTR)
            return oq_fail_errno(err, ONQ_E_READ, errno, "cannot be read");
    }
    return ONQ_OK;
}

onq_code oq_pipe_finish(oq_pipe *p, onq_error *err) {
    if (p->child == 0)
        return ONQ_OK;
    const int status = oq_child_wait(p->child);
    p->child = 0;
    if (WIFSIGNALED(status))
        return oq_fail(err, ONQ_E_READ, "the program was ended by signal %d", WTERMSIG(status));
    return WEXITSTATUS(status) == 0
               ? ONQ_OK
               : oq_fail(err, ONQ_E_READ, "the program ended with status %d", WEXITSTATUS(status));
}

void oq_pipe_close(oq_pipe *p) {
    if (p->owned && p->fd >= 0)
        close(p->fd);
    if (p->child != 0) {
        kill(-p->child, SIGTERM); /* its whole group: what the shell has started too */
        oq_child_wait(p->child);
    }
    *p = (oq_pipe){.fd = -1};
}
