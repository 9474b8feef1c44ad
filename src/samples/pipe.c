/*
 * pipe.c — see pipe.h.
 */
#include "samples/pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

onq_code oq_pipe_open_file(oq_pipe *p, const char *path, onq_error *err) {
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    *p = (oq_pipe){.fd = fd, .owned = true};
    return fd >= 0 ? ONQ_OK : oq_fail_errno(err, ONQ_E_OPEN, errno, "%s: cannot be opened", path);
}

void oq_pipe_open_input(oq_pipe *p) {
    *p = (oq_pipe){.fd = STDIN_FILENO};
}

/* The program gets the signals that this process ignores or blocks in their usual form: one that
 * writes to a closed pipe is to end. */
static int spawn_shell(pid_t *child, int out, const char *command) {
    char shell[] = "sh", option[] = "-c";
    char *const words[] = {shell, option, (char *)(uintptr_t)command, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, usual;
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0)
        return rc;
    rc = posix_spawnattr_init(&attributes);
    if (rc != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return rc;
    }
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGPIPE);
    sigaddset(&usual, SIGXFSZ);
    if (rc == 0)
        rc = posix_spawnattr_setsigmask(&attributes, &none);
    if (rc == 0)
        rc = posix_spawnattr_setsigdefault(&attributes, &usual);
    if (rc == 0)
        rc = posix_spawnattr_setpgroup(&attributes, 0);
    if (rc == 0)
        rc = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                                       POSIX_SPAWN_SETPGROUP);
    if (rc == 0)
        rc = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (rc == 0)
        rc = posix_spawn(child, "/bin/sh", &actions, &attributes, words, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

onq_code oq_pipe_run(oq_pipe *p, const char *command, onq_error *err) {
    int ends[2];
    *p = (oq_pipe){.fd = -1};
    if (pipe2(ends, O_CLOEXEC) != 0)
        return oq_fail_errno(err, ONQ_E_READ, errno, "exec: a pipe cannot be made");
    const int rc = spawn_shell(&p->child, ends[1], command);
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

static int wait_for(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return 0; /* another part of the process has waited for it */
    return status;
}

onq_code oq_pipe_finish(oq_pipe *p, onq_error *err) {
    if (p->child == 0)
        return ONQ_OK;
    const int status = wait_for(p->child);
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
        wait_for(p->child);
    }
    *p = (oq_pipe){.fd = -1};
}
