/*
 * os_wait.h — waiting for a condition until a time. Systems differ in the clocks that they can wait by.
 */
#pragma once

#include "base/port.h"

#include <pthread.h>

/* For waits that end by a clock which only goes forward: setting the time of day ends none. */
void oq_os_cond_init(pthread_cond_t *c);
/* Waits until it is woken, or until `until` on the clock of oq_seconds: false then. */
bool oq_os_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, double until);
