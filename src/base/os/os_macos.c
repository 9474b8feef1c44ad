/*
 * os_macos.c — what macOS alone has. See os.h.
 */
#include "base/os.h"

#include "base/os/os_posix.h"
#include "base/os_wait.h"

#include <mach-o/dyld.h>
#include <mach/mach.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/sysctl.h>
#include <unistd.h>

const int oq_posix_folder_flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

int64_t oq_posix_mtime(const struct stat *st) {
    return (int64_t)((uint64_t)st->st_mtimespec.tv_sec * 1000000000u +
                     (uint64_t)st->st_mtimespec.tv_nsec);
}

bool oq_posix_pipe(int ends[2]) {
    if (pipe(ends) != 0)
        return false;
    return fcntl(ends[0], F_SETFD, FD_CLOEXEC) == 0 && fcntl(ends[1], F_SETFD, FD_CLOEXEC) == 0;
}

/* ---- external data ---- */

oq_handle oq_os_open_folder(const char *path) {
    return open(path, oq_posix_folder_flags);
}

oq_handle oq_os_open_beneath(oq_handle folder, const char *location) {
    return oq_os_open_beneath_walk(folder, location);
}

/* ---- outputs ---- */

oq_handle oq_os_open_out_folder(const char *path) {
    return open(path, oq_posix_folder_flags);
}

oq_handle oq_os_make_in_memory(void) {
    return oq_os_make_scratch();
}

bool oq_os_reserve(oq_handle h, uint64_t n) {
    fstore_t room = {
        .fst_flags = F_ALLOCATEALL, .fst_posmode = F_PEOFPOSMODE, .fst_length = (off_t)n};
    return fcntl((int)h, F_PREALLOCATE, &room) != -1;
}

bool oq_os_rename_in(oq_handle folder, const char *from, const char *to, oq_rename how) {
    const int fd = (int)folder;
    if (how == OQ_RENAME_REPLACE)
        return renameat(fd, from, fd, to) == 0;
    return renameatx_np(fd, from, fd, to, how == OQ_RENAME_NEW ? RENAME_EXCL : RENAME_SWAP) == 0;
}

bool oq_os_random(void *p, size_t n) {
    return getentropy(p, n) == 0;
}

/* ---- libraries ---- */

static const char *const runtime_places[] = {
    "runtime", "onq", "../lib/onq", "../onq", "../onnxruntime/capi", NULL};
const oq_runtime_names oq_os_runtime = {"libonnxruntime", ".dylib", runtime_places, true, true};
const char *const oq_os_linear_libraries[] = {NULL};

bool oq_os_program_path(char out[OQ_PATH_MAX]) {
    uint32_t n = OQ_PATH_MAX;
    return _NSGetExecutablePath(out, &n) == 0;
}

/* ---- the machine ---- */

static uint64_t number_of(const char *name) {
    uint64_t value = 0;
    size_t n = sizeof value;
    return sysctlbyname(name, &value, &n, NULL, 0) == 0 ? value : 0;
}

unsigned oq_os_cores(void) {
    return (unsigned)number_of("hw.activecpu");
}

uint64_t oq_os_memory(void) {
    return number_of("hw.memsize");
}

uint64_t oq_os_resident(void) {
    mach_task_basic_info_data_t info;
    mach_msg_type_number_t n = MACH_TASK_BASIC_INFO_COUNT;
    return task_info(mach_task_self(), MACH_TASK_BASIC_INFO, (task_info_t)&info, &n) == KERN_SUCCESS
               ? info.resident_size
               : 0;
}

/* The stack and the library are elsewhere in each process. */
uint64_t oq_os_seed(void) {
    return (uint64_t)(uintptr_t)_dyld_get_image_header(0) * 0x9e3779b97f4a7c15u ^
           (uint64_t)getpid();
}

void oq_os_arm_features(unsigned long bits[2]) {
    bits[0] = 1ul << 1; /* every one has ASIMD */
    bits[1] = 0;
    if (number_of("hw.optional.arm.FEAT_FP16") != 0)
        bits[0] |= 1ul << 10;
    if (number_of("hw.optional.arm.FEAT_DotProd") != 0)
        bits[0] |= 1ul << 20;
    if (number_of("hw.optional.arm.FEAT_I8MM") != 0)
        bits[1] |= 1ul << 13;
    if (number_of("hw.optional.arm.FEAT_BF16") != 0)
        bits[1] |= 1ul << 14;
}

const char *oq_os_reason(int errnum, char *room, size_t cap) {
    return strerror_r(errnum, room, cap) == 0 ? room : "unknown error";
}

void oq_os_cond_init(pthread_cond_t *c) {
    pthread_cond_init(c, NULL);
}

/* Such waits count from now on. */
bool oq_os_cond_wait(pthread_cond_t *c, pthread_mutex_t *lock, double until) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const double left = until - ((double)now.tv_sec + (double)now.tv_nsec * 1e-9);
    if (left <= 0)
        return false;
    const struct timespec most = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
    return pthread_cond_timedwait_relative_np(c, lock, &most) != ETIMEDOUT;
}
