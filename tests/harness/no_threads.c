/* no_threads.c — see no_threads.h. The program's own definition wins over the shared library's. */
#include "no_threads.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

static bool refused;

void no_threads(bool on) {
    refused = on;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                   void *arg) {
    if (refused)
        return EAGAIN;
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    void *symbol = dlsym(RTLD_NEXT, "pthread_create");
    memcpy(&real, &symbol, sizeof real);
    return real(thread, attr, start, arg);
}
