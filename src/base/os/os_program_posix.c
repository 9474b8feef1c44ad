/*
 * os_program_posix.c — see os_program.h. The guard is in os_program_guard.c.
 */
#include "base/os_program.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static void (*told)(int number);
static const char *last_words;
static size_t n_last_words;
static int last_status;

void oq_program_begin(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
}

void oq_program_set_variable(const char *name, const char *value) {
    setenv(name, value, 0);
}

static void on_stop(int number) {
    told(number);
    /* Asked twice: at once. */
    signal(number, SIG_DFL);
}

void oq_program_catch(void (*stop)(int number)) {
    static const int stops[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction sa = {.sa_handler = on_stop, .sa_flags = SA_RESTART};
    told = stop;
    sigemptyset(&sa.sa_mask);
    for (size_t i = 0; i < sizeof stops / sizeof *stops; i++) {
        struct sigaction old;
        /* What is ignored (nohup) stays ignored. */
        if (sigaction(stops[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(stops[i], &sa, NULL);
    }
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

/* Not by the stream: another thread may hold it, and never let go. */
static void on_abort(int number) {
    ssize_t n;
    (void)number;
    while (n_last_words > 0 && (n = write(STDERR_FILENO, last_words, n_last_words)) > 0) {
        last_words += n;
        n_last_words -= (size_t)n;
    }
    _exit(last_status);
}

void oq_program_catch_abort(const char *text, int status) {
    last_words = text;
    n_last_words = strlen(text);
    last_status = status;
    signal(SIGABRT, on_abort);
}

void oq_program_end_by(int number) {
    signal(number, SIG_DFL);
    raise(number);
}

bool oq_program_reader_left(int why) {
    return why == EPIPE;
}

void oq_program_end_by_pipe(void) {
    oq_program_end_by(SIGPIPE);
}

int oq_program_columns(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool oq_program_is_terminal(FILE *f) {
    return isatty(fileno(f)) != 0;
}

int64_t oq_program_read_input(void *p, size_t n) {
    return read(STDIN_FILENO, p, n);
}
