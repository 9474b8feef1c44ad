/*
 * flaky_io.c — see flaky_io.h.
 *
 * Functions of the C library are defined again here. The program's own definition wins over the
 * shared library's, for all code linked into the program; the real one is found with RTLD_NEXT. The
 * headers that give large-file names to these functions give them to the definitions too.
 */
#include "flaky_io.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    unsigned kinds; /* 0: not armed */
    long left;
    int errnum;
    bool stays, failed;
    bool no_tmpfile, no_copies;
    int openat2_answer;
    unsigned write_most;
} io = {.lock = PTHREAD_MUTEX_INITIALIZER};

void flaky_io_arm(unsigned kinds, long left, int errnum, bool stays) {
    pthread_mutex_lock(&io.lock);
    io.kinds = kinds;
    io.left = left;
    io.errnum = errnum;
    io.stays = stays;
    io.failed = false;
    pthread_mutex_unlock(&io.lock);
}

bool flaky_io_disarm(void) {
    pthread_mutex_lock(&io.lock);
    io.kinds = 0;
    const bool failed = io.failed;
    io.failed = false;
    pthread_mutex_unlock(&io.lock);
    return failed;
}

void flaky_io_no_tmpfile(bool on) {
    io.no_tmpfile = on;
}

void flaky_io_no_openat2(int errnum) {
    io.openat2_answer = errnum;
}

void flaky_io_no_copies(bool on) {
    io.no_copies = on;
}

void flaky_io_short_writes(unsigned n) {
    io.write_most = n;
}

/* True with errno set when this call is the one. */
static bool fails(io_call kind) {
    pthread_mutex_lock(&io.lock);
    bool now = false;
    if ((io.kinds & (unsigned)kind) != 0) {
        if (io.failed)
            now = io.stays;
        else if (io.left-- == 0)
            now = io.failed = true;
    }
    const int errnum = io.errnum;
    pthread_mutex_unlock(&io.lock);
    if (!now)
        return false;
    if (errnum == 0)
        raise(SIGKILL);
    errno = errnum;
    return true;
}

/* The next definition of a function, by the name that the linker knows it by. */
static void (*next_of(const char *name, const char *large))(void) {
    union {
        void *data;
        void (*code)(void);
    } found = {.data = dlsym(RTLD_NEXT, large)};
    if (found.data == NULL)
        found.data = dlsym(RTLD_NEXT, name);
    if (found.data == NULL) {
        fprintf(stderr, "flaky_io: no %s in the C library\n", name);
        abort();
    }
    return found.code;
}
#define NEXT(name)       ((__typeof__(&name))next_of(#name, #name))
#define NEXT_LARGE(name) ((__typeof__(&name))next_of(#name, #name "64"))

static bool refuses_tmpfile(int flags) {
    if (!io.no_tmpfile || (flags & O_TMPFILE) != O_TMPFILE)
        return false;
    errno = EOPNOTSUPP;
    return true;
}

int open(const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (refuses_tmpfile(flags) || fails(IO_OPEN))
        return -1;
    return NEXT_LARGE(open)(path, flags, mode);
}

int openat(int dir, const char *path, int flags, ...) {
    va_list args;
    va_start(args, flags);
    const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (refuses_tmpfile(flags) || fails(IO_OPEN))
        return -1;
    return NEXT_LARGE(openat)(dir, path, flags, mode);
}

int fstat(int fd, struct stat *st) {
    return fails(IO_STAT) ? -1 : NEXT_LARGE(fstat)(fd, st);
}

int lstat(const char *path, struct stat *st) {
    return fails(IO_STAT) ? -1 : NEXT_LARGE(lstat)(path, st);
}

int fstatat(int dir, const char *path, struct stat *st, int flags) {
    return fails(IO_STAT) ? -1 : NEXT_LARGE(fstatat)(dir, path, st, flags);
}

ssize_t pread(int fd, void *p, size_t n, off_t at) {
    return fails(IO_READ) ? -1 : NEXT_LARGE(pread)(fd, p, n, at);
}

ssize_t write(int fd, const void *p, size_t n) {
    if (io.write_most != 0 && n > io.write_most)
        n = io.write_most;
    return fails(IO_WRITE) ? -1 : NEXT(write)(fd, p, n);
}

ssize_t copy_file_range(int in, off_t *in_at, int out, off_t *out_at, size_t n, unsigned flags) {
    if (io.no_copies)
        return 0;
    return fails(IO_COPY) ? -1 : NEXT(copy_file_range)(in, in_at, out, out_at, n, flags);
}

ssize_t sendfile(int out, int in, off_t *at, size_t n) {
    if (io.no_copies)
        return 0;
    return fails(IO_COPY) ? -1 : NEXT_LARGE(sendfile)(out, in, at, n);
}

int fallocate(int fd, int mode, off_t at, off_t n) {
    return fails(IO_RESERVE) ? -1 : NEXT_LARGE(fallocate)(fd, mode, at, n);
}

int fsync(int fd) {
    return fails(IO_SYNC) ? -1 : NEXT(fsync)(fd);
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags) {
    return fails(IO_PLACE) ? -1 : NEXT(linkat)(from_dir, from, to_dir, to, flags);
}

int renameat(int from_dir, const char *from, int to_dir, const char *to) {
    return fails(IO_PLACE) ? -1 : NEXT(renameat)(from_dir, from, to_dir, to);
}

int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags) {
    return fails(IO_PLACE) ? -1 : NEXT(renameat2)(from_dir, from, to_dir, to, flags);
}

int fchmod(int fd, mode_t mode) {
    return fails(IO_PLACE) ? -1 : NEXT(fchmod)(fd, mode);
}

int unlinkat(int dir, const char *path, int flags) {
    return fails(IO_REMOVE) ? -1 : NEXT(unlinkat)(dir, path, flags);
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    if (fd >= 0 && fails(IO_MAP))
        return MAP_FAILED;
    return NEXT_LARGE(mmap)(at, n, protection, flags, fd, offset);
}

long syscall(long number, ...) {
    long a[6];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_openat2 && io.openat2_answer != 0) {
        errno = io.openat2_answer;
        return -1;
    }
    return NEXT(syscall)(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
