/*
 * os_linux.c — what Linux alone has. See os.h; limits of a process are in os_linux_confine.c.
 */
#include "base/os.h"

#include "base/os/os_posix.h"
#include "base/os_wait.h"

#include <linux/openat2.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

const int oq_posix_folder_flags = O_PATH | O_DIRECTORY | O_CLOEXEC;

int64_t oq_posix_mtime(const struct stat *st) {
    return (int64_t)((uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec);
}

bool oq_posix_pipe(int ends[2]) {
    return pipe2(ends, O_CLOEXEC) == 0;
}

/* ---- external data ---- */

oq_handle oq_os_open_folder(const char *path) {
    return open(path, oq_posix_folder_flags);
}

/* The kernel resolves it (openat2 with RESOLVE_BENEATH: no step may leave the folder,
 * RESOLVE_NO_MAGICLINKS: none through /proc); where that call is missing the walk does. */
oq_handle oq_os_open_beneath(oq_handle folder, const char *location) {
#if defined(SYS_openat2)
    const struct open_how how = {
        .flags = OQ_POSIX_READ,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
    };
    /* EAGAIN: something was renamed during a step through `..`; the kernel asks to try again. */
    for (int tries = 0; tries < 8; tries++) {
        const long fd = syscall(SYS_openat2, (int)folder, location, &how, sizeof how);
        if (fd >= 0)
            return fd;
        /* EPERM: what some containers answer for a call they do not know. */
        if (errno == ENOSYS || errno == EPERM)
            break;
        if (errno != EAGAIN && errno != EINTR)
            return OQ_NO_HANDLE;
    }
#endif
    return oq_os_open_beneath_walk(folder, location);
}

/* ---- outputs ---- */

oq_handle oq_os_open_out_folder(const char *path) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* A folder one may write to and not list: all works but the last sync. */
    return fd < 0 && errno == EACCES ? open(path, O_PATH | O_DIRECTORY | O_CLOEXEC) : fd;
}

static void own_path(char *out, size_t cap, oq_handle h) {
    snprintf(out, cap, "/proc/self/fd/%d", (int)h);
}

oq_handle oq_os_make_unnamed(oq_handle folder, char *path, size_t cap) {
    const int fd = openat((int)folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    if (fd < 0)
        return OQ_NO_HANDLE;
    own_path(path, cap, fd);
    /* Without /proc it could be given no name in the end. */
    if (access(path, F_OK) == 0)
        return fd;
    close(fd);
    return OQ_NO_HANDLE;
}

oq_handle oq_os_make_in_memory(void) {
    return memfd_create("onq", MFD_CLOEXEC);
}

int64_t oq_os_copy(unsigned way, oq_handle out, oq_handle in, uint64_t at, size_t n) {
    off_t from = (off_t)at;
    if (way == 0)
        return copy_file_range((int)in, &from, (int)out, NULL, n, 0);
    if (way == 1)
        return sendfile((int)out, (int)in, &from, n);
    errno = ENOSYS;
    return -1;
}

bool oq_os_reserve(oq_handle h, uint64_t n) {
    return fallocate((int)h, 0, 0, (off_t)n) == 0;
}

void oq_os_start_disk(oq_handle h, uint64_t from, uint64_t n) {
    sync_file_range((int)h, (off_t)from, (off_t)n, SYNC_FILE_RANGE_WRITE);
}

bool oq_os_link_in(oq_handle h, oq_handle folder, const char *name) {
    char path[32];
    own_path(path, sizeof path, h);
    return linkat(AT_FDCWD, path, (int)folder, name, AT_SYMLINK_FOLLOW) == 0;
}

bool oq_os_rename_in(oq_handle folder, const char *from, const char *to, oq_rename how) {
    const int fd = (int)folder;
    if (how == OQ_RENAME_REPLACE)
        return renameat(fd, from, fd, to) == 0;
    return renameat2(fd, from, fd, to, how == OQ_RENAME_NEW ? RENAME_NOREPLACE : RENAME_EXCHANGE) ==
           0;
}

bool oq_os_random(void *p, size_t n) {
    return getrandom(p, n, GRND_NONBLOCK) == (ssize_t)n;
}

/* ---- libraries ---- */

static const char *const runtime_places[] = {"runtime", "onq", "../lib/onq", "../onq", NULL};
const oq_runtime_names oq_os_runtime = {"libonnxruntime.so", "", runtime_places, true, true};
const char *const oq_os_linear_libraries[] = {"libopenblas.so.0", "liblapack.so.3", NULL};

bool oq_os_program_path(char out[OQ_PATH_MAX]) {
    const ssize_t n = readlink("/proc/self/exe", out, OQ_PATH_MAX - 1);
    if (n <= 0)
        return false;
    out[n] = '\0';
    return true;
}

/* ---- the machine ---- */

/* Fewer than the machine's in a container or under taskset. */
unsigned oq_os_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        const int n = CPU_COUNT(&set);
        if (n > 0)
            return (unsigned)n;
    }
    const long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n > 0 ? (unsigned)n : 0;
}

uint64_t oq_os_memory(void) {
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}

uint64_t oq_os_resident(void) {
    unsigned long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (f == NULL)
        return 0;
    if (fscanf(f, "%*u %llu", &pages) != 1)
        pages = 0;
    fclose(f);
    return pages * oq_os_page_size();
}

/* Of 16 random bytes that the kernel gives each process. */
uint64_t oq_os_seed(void) {
    const uintptr_t at = (uintptr_t)getauxval(AT_RANDOM);
    uint64_t seed = 0;
    if (at != 0)
        memcpy(&seed, (const void *)at, sizeof seed);
    return seed;
}

void oq_os_want_large_pages(void *p, size_t n) {
#ifdef MADV_HUGEPAGE
    (void)madvise(p, n, MADV_HUGEPAGE);
#endif
}

void oq_os_arm_features(unsigned long bits[2]) {
    bits[0] = getauxval(AT_HWCAP);
    bits[1] = getauxval(AT_HWCAP2);
}

const char *oq_os_reason(int errnum, char *room, size_t cap) {
#if defined(__GLIBC__)
    return strerror_r(errnum, room, cap);
#else
    return strerror_r(errnum, room, cap) == 0 ? room : "unknown error";
#endif
}

void oq_os_cond_init(pthread_cond_t *c) {
    pthread_condattr_t how;
    pthread_condattr_init(&how);
    pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
    pthread_cond_init(c, &how);
    pthread_condattr_destroy(&how);
}

bool oq_os_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, double until) {
    const time_t whole = (time_t)until;
    const struct timespec at = {whole, (long)((until - (double)whole) * 1e9)};
    return pthread_cond_timedwait(c, lock, &at) != ETIMEDOUT;
}

/* ---- isolation ---- */

bool oq_os_can_isolate(void) {
    return true;
}

char **oq_os_variables(void) {
    return environ;
}

bool oq_os_socket_pair(oq_handle ends[2]) {
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
        return false;
    ends[0] = fds[0];
    ends[1] = fds[1];
    return fcntl(fds[0], F_SETFL, O_NONBLOCK) == 0;
}

int64_t oq_os_send(oq_handle h, const void *p, size_t n) {
    return send((int)h, p, n, MSG_NOSIGNAL);
}

int64_t oq_os_receive(oq_handle h, void *p, size_t n) {
    return recv((int)h, p, n, 0);
}

bool oq_os_wait_socket(oq_handle h, bool to_write, int milliseconds) {
    struct pollfd p = {.fd = (int)h, .events = to_write ? POLLOUT : POLLIN};
    return poll(&p, 1, milliseconds) > 0;
}

void oq_os_ask_to_end(const oq_process *p) {
    kill((pid_t)p->id, SIGTERM);
}

/* It is not reaped: until then the number of its group cannot belong to anyone else. */
bool oq_os_has_ended(const oq_process *p, int milliseconds) {
    for (int waited = 0; waited <= milliseconds; waited += 2) {
        siginfo_t info = {0};
        if (waitid(P_PID, (id_t)p->id, &info, WEXITED | WNOHANG | WNOWAIT) != 0)
            return false;
        if (info.si_pid == (pid_t)p->id)
            return true;
        poll(NULL, 0, 2);
    }
    return false;
}

const char *oq_os_signal_name(int number) {
    return strsignal(number);
}

void oq_os_end_with_parent(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

uint64_t oq_os_parent_id(void) {
    return (uint64_t)getppid();
}

/* (closefrom of glibc is younger than the glibc that packages are made for.) */
void oq_os_close_from(int first) {
#ifdef SYS_close_range
    if (syscall(SYS_close_range, (unsigned)first, ~0u, 0u) == 0)
        return;
#endif
    const long end = sysconf(_SC_OPEN_MAX);
    for (long fd = first; fd < end; fd++)
        close((int)fd);
}
