/*
 * posix.h — what unit tests ask POSIX for besides what base/os.h has; every test is compiled for
 * Windows with this before it. A test that needs what Windows has not skips itself.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <cmocka.h>

static inline int setenv(const char *name, const char *value, int replace) {
    return replace || getenv(name) == NULL ? _putenv_s(name, value) : 0;
}
static inline int unsetenv(const char *name) {
    return _putenv_s(name, "");
}

/* Of a text: lines of a file are shorter than 1,000 bytes in the tests. */
static inline ssize_t getline(char **line, size_t *cap, FILE *f) {
    if (*line == NULL)
        *line = malloc(*cap = 1000);
    return *line != NULL && fgets(*line, (int)*cap, f) != NULL ? (ssize_t)strlen(*line) : -1;
}
static inline char *strsep(char **at, const char *ends) {
    char *word = *at;
    if (word == NULL)
        return NULL;
    *at += strcspn(word, ends);
    *at = **at != '\0' ? (*(*at)++ = '\0', *at) : NULL;
    return word;
}

#define fork()              (skip(), -1)
#define link(from, to)      (skip(), -1)
#define mkfifo(path, mode)  (skip(), -1)
#define truncate(path, n)   (skip(), -1)
#define utimensat(...)      (skip(), -1)
#define open_memstream(...) (skip(), (FILE *)NULL)
#define SIGPIPE             13
