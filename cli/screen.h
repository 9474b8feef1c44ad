/*
 * screen.h — what the program says on standard error: messages and the progress bar.
 *
 * Messages are `onq: error: ...`, `onq: warning: ...` and, with --verbose, `onq: ...`. The bar is
 * drawn only on a terminal, at most ten times a second, and wiped before a message.
 */
#pragma once

#include <onq/onq.h>
#include <stdbool.h>

struct screen {
    const char *program; /* before each message */
    bool quiet;
    int verbose;
    bool terminal;      /* standard error is one */
    bool drawn;         /* a bar is on the current line */
    char what[64];      /* of the bar */
    double began, last; /* seconds, monotonic */
    uint64_t first;     /* `done` when this bar began */
};

void screen_init(struct screen *s, const char *program);
/* For onq_env_set_log; ctx is the screen. */
void screen_log(void *ctx, onq_log_level level, const char *text);
void screen_error(struct screen *s, const char *text);
/* Draws the bar. */
void screen_progress(struct screen *s, const char *what, uint64_t done, uint64_t total);
/* Wipes the bar. */
void screen_wipe(struct screen *s);
