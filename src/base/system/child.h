/*
 * child.h — starting another program, and waiting for it.
 *
 * It is in a process group of its own, so that it can be ended with all that it has started:
 * kill(-child, ...). Signals that this process ignores or blocks are as usual in it.
 */
#pragma once

#include "base/port.h"

#include <sys/types.h>

typedef struct oq_child_file {
    int at; /* the number it has in the program */
    int fd; /* the number it has here; -1: /dev/null */
} oq_child_file;

#define OQ_CHILD_FILES_LIMIT 4

/* `words` are the arguments, the name first and NULL last; `variables` the environment, NULL: this
 * process's. Files that are not listed are inherited unless they are closed on exec. Returns 0, or
 * the errno of what failed. */
int oq_child_start(pid_t *child, const char *program, char *const *words, char *const *variables,
                   const oq_child_file *files, size_t n_files);
/* Closes the files from that number on: what a started program has inherited and does not know.
 * (closefrom of glibc is younger than the glibc that packages are made for.) */
void oq_close_from(int first);
/* The status, as of waitpid; 0 if another part of this process has waited for it. */
int oq_child_wait(pid_t child);
