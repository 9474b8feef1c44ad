/*
 * screen.c — see screen.h.
 */
#include "screen.h"

#include "base/os_program.h"
#include "style.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BEFORE  0.3 /* seconds before the first drawing: a quick job needs no bar */
#define BETWEEN 0.1 /* seconds from one drawing to the next */

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void screen_init(struct screen *s, const char *program) {
    *s = (struct screen){.program = program, .terminal = style_is_terminal(stderr)};
}

void screen_wipe(struct screen *s) {
    if (s->drawn)
        fputs("\r\033[K", stderr);
    s->drawn = false;
}

void screen_error(struct screen *s, const char *text) {
    screen_log(s, ONQ_LOG_ERROR, text);
}

void screen_log(void *ctx, onq_log_level level, const char *text) {
    struct screen *s = ctx;
    if (s->quiet && level > ONQ_LOG_ERROR)
        return;
    if (level == ONQ_LOG_INFO && s->verbose < 1)
        return;
    if (level == ONQ_LOG_DEBUG && s->verbose < 2)
        return;
    screen_wipe(s);
    fprintf(stderr, "%s: ", s->program);
    if (level == ONQ_LOG_ERROR)
        style_print(stderr, STYLE_ERROR, "error: ");
    else if (level <= ONQ_LOG_WARNING)
        style_print(stderr, STYLE_WARNING, "warning: ");
    fprintf(stderr, "%s\n", text);
    fflush(stderr); /* not every system does so by itself */
}

static int columns(void) {
    const int n = oq_program_columns();
    return n > 0 ? n : 80;
}

/* "47 s", "3:05", "1:02:09" */
static void time_text(char *b, size_t n, double seconds) {
    const unsigned long t = seconds > 0 ? (unsigned long)(seconds + 0.5) : 0;
    if (t < 60)
        snprintf(b, n, "%lu s", t);
    else if (t < 3600)
        snprintf(b, n, "%lu:%02lu", t / 60, t % 60);
    else
        snprintf(b, n, "%lu:%02lu:%02lu", t / 3600, t / 60 % 60, t % 60);
}

void screen_progress(struct screen *s, const char *what, uint64_t done, uint64_t total) {
    if (!s->terminal || s->quiet)
        return;
    const double t = now();
    if (strncmp(s->what, what, sizeof s->what - 1) != 0) {
        snprintf(s->what, sizeof s->what, "%s", what);
        s->began = t;
        s->last = t + BEFORE - BETWEEN;
        s->first = done;
    }
    if (total > 0 && done >= total) {
        screen_wipe(s);
        return;
    }
    if (t - s->last < BETWEEN)
        return;
    s->last = t;

    const double passed = t - s->began, made = done > s->first ? (double)(done - s->first) : 0;
    const double rate = passed > 0 ? made / passed : 0;
    char tail[96] = "", left[32], line[256];
    if (rate > 0 && total > 0) {
        time_text(left, sizeof left, (double)(total - done) / rate);
        snprintf(tail, sizeof tail, " %.*f/s, %s left", rate < 10 ? 1 : 0, rate, left);
    } else if (rate > 0) {
        snprintf(tail, sizeof tail, " %.*f/s", rate < 10 ? 1 : 0, rate);
    }
    if (total > 0) {
        char bar[25] = "";
        const size_t full = (size_t)((double)done / (double)total * 24);
        for (size_t i = 0; i < 24; i++)
            bar[i] = i < full ? '#' : '.';
        bar[24] = '\0';
        snprintf(line, sizeof line, "%s [%s] %llu/%llu%s", s->what, bar, (unsigned long long)done,
                 (unsigned long long)total, tail);
    } else {
        snprintf(line, sizeof line, "%s %llu%s", s->what, (unsigned long long)done, tail);
    }
    fprintf(stderr, "\r%.*s\033[K", columns() - 1, line);
    fflush(stderr);
    s->drawn = true;
}
