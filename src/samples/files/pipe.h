/*
 * pipe.h — bytes from outside: a file, standard input, or a program that is run for them.
 */
#pragma once

#include "base/err.h"
#include "base/os.h"

typedef struct oq_pipe {
    oq_handle handle;
    oq_process child; /* the program, if there is one */
    bool owned;       /* the handle is closed in the end */
    bool ended;
} oq_pipe;

/* A regular file: a FIFO would wait for a writer, a device may have no end. ONQ_E_OPEN with its
 * name. */
onq_code oq_pipe_open_file(oq_pipe *p, const char *path, onq_error *err);
void oq_pipe_open_input(oq_pipe *p);
/* Runs `command` in a shell; its standard output is read. */
onq_code oq_pipe_run(oq_pipe *p, const char *command, onq_error *err);
/* Fills the buffer, or less at the end: *got. */
onq_code oq_pipe_read(oq_pipe *p, void *out, uint64_t n, uint64_t *got, onq_error *err);
/* Gives `take` what the program prints, to its end, while the job can be stopped. ONQ_E_LIMIT after
 * more than `most` seconds (0: any time). */
onq_code oq_pipe_follow(oq_pipe *p, onq_env *env, const char *doing, double most,
                        void (*take)(void *ctx, const char *text, size_t n), void *ctx,
                        onq_error *err);
/* After the end: how the program ended. ONQ_E_READ unless it ended well. */
onq_code oq_pipe_finish(oq_pipe *p, onq_error *err);
/* Stops a program that still runs. */
void oq_pipe_close(oq_pipe *p);
