/*
 * no_threads.h — threads that cannot be started.
 *
 * A test that calls this gets a pthread_create of its own, which passes on to the C library's until
 * it is told to refuse.
 */
#ifndef ONQ_TESTS_NO_THREADS_H
#define ONQ_TESTS_NO_THREADS_H

#include <stdbool.h>

void no_threads(bool on);

#endif
