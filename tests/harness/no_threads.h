/*
 * no_threads.h — threads that cannot be started.
 *
 * A test that calls this gets a pthread_create of its own, which passes on to the C library's until
 * it is told to refuse.
 */
#pragma once

#include <stdbool.h>

/* None at all, of whoever asks. */
void no_threads(bool on);
/* Of the threads that the program itself starts `left` do start, then one does not (with `stays`
 * none after it either). Those of ONNX Runtime do: where one of several does not, it waits for the
 * others for ever. */
void no_threads_after(long left, bool stays);
/* Whether one was refused since. */
bool no_threads_refused(void);
