/*
 * child.c — see child.h.
 */
#include "base/system/child.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static int set_attributes(posix_spawnattr_t *attributes) {
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int rc = posix_spawnattr_setsigmask(attributes, &none);
    if (rc == 0)
        rc = posix_spawnattr_setsigdefault(attributes, &all);
    if (rc == 0)
        rc = posix_spawnattr_setpgroup(attributes, 0);
    return rc != 0 ? rc
                   : posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK |
                                                              POSIX_SPAWN_SETSIGDEF |
                                                              POSIX_SPAWN_SETPGROUP);
}

static int add_file(posix_spawn_file_actions_t *actions, int at, int fd) {
    return fd >= 0 ? posix_spawn_file_actions_adddup2(actions, fd, at)
                   : posix_spawn_file_actions_addopen(actions, at, "/dev/null", O_RDWR, 0);
}

/* `fds` are the files here, out of the way of their numbers in the program. */
static int spawn(pid_t *child, const char *program, char *const *words, char *const *variables,
                 const oq_child_file *files, const int *fds, size_t n_files) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0)
        return rc;
    rc = posix_spawnattr_init(&attributes);
    if (rc != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return rc;
    }
    rc = set_attributes(&attributes);
    for (size_t i = 0; rc == 0 && i < n_files; i++)
        rc = add_file(&actions, files[i].at, fds[i]);
    if (rc == 0)
        rc = posix_spawn(child, program, &actions, &attributes, words,
                         variables != NULL ? variables : environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

/* A file whose number is wanted for another would be overwritten before it is used, and one that
 * already has its number would stay closed on exec: so all get copies above the wanted numbers. */
int oq_child_start(pid_t *child, const char *program, char *const *words, char *const *variables,
                   const oq_child_file *files, size_t n_files) {
    int fds[OQ_CHILD_FILES_LIMIT] = {-1, -1, -1, -1}, above = 0, rc = 0;
    assert(n_files <= OQ_COUNT(fds));
    for (size_t i = 0; i < n_files; i++)
        above = files[i].at >= above ? files[i].at + 1 : above;
    for (size_t i = 0; rc == 0 && i < n_files; i++)
        if (files[i].fd >= 0) {
            fds[i] = fcntl(files[i].fd, F_DUPFD_CLOEXEC, above);
            rc = fds[i] < 0 ? errno : 0;
        }
    if (rc == 0)
        rc = spawn(child, program, words, variables, files, fds, n_files);
    for (size_t i = 0; i < n_files; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    return rc;
}

void oq_close_from(int first) {
#ifdef SYS_close_range
    if (syscall(SYS_close_range, (unsigned)first, ~0u, 0u) == 0)
        return;
#endif
    const long end = sysconf(_SC_OPEN_MAX);
    for (long fd = first; fd < end; fd++)
        close((int)fd);
}

int oq_child_wait(pid_t child) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return 0;
    return status;
}
