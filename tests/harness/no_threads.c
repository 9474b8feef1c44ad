/* no_threads.c — see no_threads.h. The program's own definition wins over the shared library's; for
 * Windows the linker puts it before the real one (--wrap). */
#include "no_threads.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#ifndef _WIN32
#include <dlfcn.h>
#endif

static atomic_long to_start = -1;
static atomic_bool everyone, ever_after, refused;

void no_threads_after(long left, bool stays) {
    atomic_store(&refused, false);
    atomic_store(&ever_after, stays);
    atomic_store(&to_start, left);
}

void no_threads(bool on) {
    atomic_store(&everyone, on);
    no_threads_after(on ? 0 : -1, true);
}

bool no_threads_refused(void) {
    return atomic_load(&refused);
}

#ifdef _WIN32
static bool is_ours(const void *p) {
    return p != NULL; /* threads of a DLL do not come here */
}
#else
static const char is_here[] = "";

/* Whether this is an address of the program's own code. */
static bool is_ours(const void *p) {
    Dl_info here, there;
    return dladdr(p, &there) != 0 && dladdr(is_here, &here) != 0 &&
           here.dli_fbase == there.dli_fbase;
}
#endif

static bool refuses(const void *caller) {
    if (atomic_load(&to_start) < 0 || (!atomic_load(&everyone) && !is_ours(caller)))
        return false;
    if (atomic_load(&refused))
        return atomic_load(&ever_after);
    if (atomic_fetch_sub(&to_start, 1) != 0)
        return false;
    atomic_store(&to_start, 0);
    atomic_store(&refused, true);
    return true;
}

#ifdef _WIN32
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg) {
    return refuses(thread) ? EAGAIN : __real_pthread_create(thread, attr, start, arg);
}
#else
int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                   void *arg) {
    if (refuses(__builtin_return_address(0)))
        return EAGAIN;
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    void *symbol = dlsym(RTLD_NEXT, "pthread_create");
    memcpy(&real, &symbol, sizeof real);
    return real(thread, attr, start, arg);
}
#endif
