/*
 * os_posix.c — what Linux and macOS do alike. See os.h.
 */
#include "base/os.h"

#include "base/os/os_posix.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

static_assert(OQ_PATH_MAX >= PATH_MAX && OQ_NAME_MAX == NAME_MAX, "paths fit");
static_assert(sizeof(sigset_t) <= sizeof(oq_signals), "signals fit");

/* ---- paths ---- */

bool oq_path_is_separator(char c) {
    return c == '/';
}

bool oq_path_is_absolute(const char *path) {
    return path[0] == '/';
}

const char *oq_path_last(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

bool oq_os_real_path(const char *path, char out[OQ_PATH_MAX]) {
    return realpath(path, out) != NULL;
}

/* ---- files ---- */

static oq_file_kind kind_of(mode_t mode) {
    return S_ISREG(mode)                    ? OQ_IS_FILE
           : S_ISDIR(mode)                  ? OQ_IS_FOLDER
           : S_ISLNK(mode)                  ? OQ_IS_LINK
           : S_ISFIFO(mode)                 ? OQ_IS_FIFO
           : S_ISCHR(mode) || S_ISBLK(mode) ? OQ_IS_DEVICE
           : S_ISSOCK(mode)                 ? OQ_IS_SOCKET
                                            : OQ_IS_OTHER;
}

static bool give(int failed, const struct stat *st, oq_file_info *out) {
    if (failed != 0)
        return false;
    *out = (oq_file_info){
        .kind = kind_of(st->st_mode),
        .mode = st->st_mode & 0777,
        .size = (uint64_t)st->st_size,
        .mtime_ns = oq_posix_mtime(st),
        .volume = (uint64_t)st->st_dev,
        .id = (uint64_t)st->st_ino,
        .links = (uint64_t)st->st_nlink,
    };
    return true;
}

oq_handle oq_os_open(const char *path) {
    return open(path, OQ_POSIX_READ);
}

void oq_os_close(oq_handle h) {
    close((int)h);
}

bool oq_os_info(oq_handle h, oq_file_info *out) {
    struct stat st;
    return give(fstat((int)h, &st), &st, out);
}

bool oq_os_info_of(const char *path, oq_file_info *out) {
    struct stat st;
    return give(stat(path, &st), &st, out);
}

bool oq_os_is_folder(const char *path) {
    oq_file_info info;
    return oq_os_info_of(path, &info) && info.kind == OQ_IS_FOLDER;
}

bool oq_os_is_link(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode);
}

int64_t oq_os_read(oq_handle h, void *p, size_t n) {
    return read((int)h, p, n);
}

bool oq_os_rewind(oq_handle h) {
    return lseek((int)h, 0, SEEK_SET) == 0;
}

int64_t oq_os_read_at(oq_handle h, void *p, size_t n, uint64_t at) {
    return pread((int)h, p, n, (off_t)at);
}

const uint8_t *oq_os_map(oq_handle h, uint64_t n) {
    void *p = mmap(NULL, n, PROT_READ, MAP_PRIVATE, (int)h, 0);
    return p != MAP_FAILED ? p : NULL;
}

void *oq_os_map_shared(oq_handle h, uint64_t n) {
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, (int)h, 0);
    return p != MAP_FAILED ? p : NULL;
}

void oq_os_unmap(const uint8_t *p, uint64_t n) {
    munmap((void *)(uintptr_t)p, n);
}

void oq_os_forget(const uint8_t *p, uint64_t n) {
    madvise((void *)(uintptr_t)p, n, MADV_DONTNEED);
}

uint64_t oq_os_page_size(void) {
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

bool oq_os_may(const char *path, unsigned what) {
    const int mode = ((what & OQ_MAY_READ) != 0 ? R_OK : 0) |
                     ((what & OQ_MAY_WRITE) != 0 ? W_OK : 0) |
                     ((what & OQ_MAY_ENTER) != 0 ? X_OK : 0);
    return access(path, mode != 0 ? mode : F_OK) == 0;
}

bool oq_os_make_folder(const char *path) {
    return mkdir(path, 0777) == 0;
}

bool oq_os_remove_folder(const char *path) {
    return rmdir(path) == 0;
}

bool oq_os_remove(const char *path) {
    return unlink(path) == 0;
}

bool oq_os_make_temp_folder(char *text) {
    return mkdtemp(text) != NULL;
}

bool oq_os_make_temp_file(char *text, size_t tail) {
    const int fd = mkstemps(text, (int)tail);
    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

oq_handle oq_os_make_scratch(void) {
    char room[OQ_PATH_MAX], path[OQ_PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/onq-XXXXXX", oq_os_temp_root(room));
    const int fd = n > 0 && (size_t)n < sizeof path ? mkstemp(path) : -1;
    if (fd < 0)
        return OQ_NO_HANDLE;
    unlink(path);
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    return fd;
}

const char *oq_os_temp_root(char room[OQ_PATH_MAX]) {
    const char *root = getenv("TMPDIR");
    (void)room;
    return root != NULL && root[0] != '\0' ? root : "/tmp";
}

oq_listing *oq_os_list(const char *path) {
    return (oq_listing *)opendir(path);
}

const char *oq_os_list_next(oq_listing *l) {
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir((DIR *)l);
        if (e == NULL)
            return NULL;
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            return e->d_name;
    }
}

void oq_os_list_close(oq_listing *l) {
    closedir((DIR *)l);
}

const char *oq_os_bad_location(const char *location) {
    (void)location;
    return NULL;
}

/* ---- outputs ---- */

bool oq_os_info_in(oq_handle folder, const char *name, oq_file_info *out) {
    struct stat st;
    return give(fstatat((int)folder, name, &st, 0), &st, out);
}

bool oq_os_may_write_in(oq_handle folder, const char *name) {
    return faccessat((int)folder, name, W_OK, AT_EACCESS) == 0;
}

oq_handle oq_os_make_named(oq_handle folder, const char *name) {
    return openat((int)folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

int64_t oq_os_write(oq_handle h, const void *p, size_t n) {
    return write((int)h, p, n);
}

bool oq_os_truncate(oq_handle h, uint64_t n) {
    return ftruncate((int)h, (off_t)n) == 0;
}

bool oq_os_sync(oq_handle h) {
    return fsync((int)h) == 0;
}

bool oq_os_set_mode(oq_handle h, unsigned mode) {
    return fchmod((int)h, (mode_t)mode) == 0;
}

bool oq_os_remove_in(oq_handle folder, const char *name) {
    return unlinkat((int)folder, name, 0) == 0;
}

/* ---- libraries ---- */

void *oq_os_library(const char *path, char *why, size_t cap) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const char *reason = library == NULL && cap > 0 ? dlerror() : NULL;
    if (library == NULL && cap > 0)
        snprintf(why, cap, "%s", reason != NULL ? reason : "no reason given");
    return library;
}

void *oq_os_library_for_good(const char *name) {
    return dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

void *oq_os_symbol(void *library, const char *name) {
    return dlsym(library, name);
}

void oq_os_library_close(void *library) {
    dlclose(library);
}

bool oq_os_library_path(const void *address, char out[OQ_PATH_MAX]) {
    Dl_info info;
    if (dladdr(address, &info) == 0 || info.dli_fname == NULL ||
        strlen(info.dli_fname) >= OQ_PATH_MAX)
        return false;
    memcpy(out, info.dli_fname, strlen(info.dli_fname) + 1);
    return true;
}

const void *oq_os_runtime_path(const char *path, void *room, size_t bytes) {
    (void)room;
    (void)bytes;
    return path;
}

/* ---- other programs ---- */

static int set_attributes(posix_spawnattr_t *attributes) {
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    int rc = posix_spawnattr_setsigmask(attributes, &none);
    if (rc == 0)
        rc = posix_spawnattr_setsigdefault(attributes, &all);
    if (rc == 0)
        rc = posix_spawnattr_setpgroup(attributes, 0);
    return rc != 0 ? rc
                   : posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK |
                                                              POSIX_SPAWN_SETSIGDEF |
                                                              POSIX_SPAWN_SETPGROUP);
}

static int add_file(posix_spawn_file_actions_t *actions, int at, int fd) {
    return fd >= 0 ? posix_spawn_file_actions_adddup2(actions, fd, at)
                   : posix_spawn_file_actions_addopen(actions, at, "/dev/null", O_RDWR, 0);
}

/* `fds` are the files here, out of the way of their numbers in the program. */
static int spawn(pid_t *child, const char *program, char *const *words, char *const *variables,
                 const oq_child_file *files, const int *fds, size_t n_files) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int rc = posix_spawn_file_actions_init(&actions);
    if (rc != 0)
        return rc;
    rc = posix_spawnattr_init(&attributes);
    if (rc != 0) {
        posix_spawn_file_actions_destroy(&actions);
        return rc;
    }
    rc = set_attributes(&attributes);
    for (size_t i = 0; rc == 0 && i < n_files; i++)
        rc = add_file(&actions, files[i].at, fds[i]);
    if (rc == 0)
        rc = posix_spawn(child, program, &actions, &attributes, words,
                         variables != NULL ? variables : environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return rc;
}

/* A file whose number is wanted for another would be overwritten before it is used, and one that
 * already has its number would stay closed on exec: so all get copies above the wanted numbers. */
int oq_os_start(oq_process *p, const char *program, char *const *words, char *const *variables,
                const oq_child_file *files, size_t n_files) {
    int fds[OQ_CHILD_FILES_LIMIT] = {-1, -1, -1, -1}, above = 0, rc = 0;
    pid_t child = 0;
    assert(n_files <= OQ_COUNT(fds));
    for (size_t i = 0; i < n_files; i++)
        above = files[i].at >= above ? files[i].at + 1 : above;
    for (size_t i = 0; rc == 0 && i < n_files; i++)
        if (files[i].at_home >= 0) {
            fds[i] = fcntl((int)files[i].at_home, F_DUPFD_CLOEXEC, above);
            rc = fds[i] < 0 ? errno : 0;
        }
    if (rc == 0)
        rc = spawn(&child, program, words, variables, files, fds, n_files);
    for (size_t i = 0; i < n_files; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    *p = (oq_process){rc == 0 ? child : 0, rc == 0 ? child : 0};
    return rc;
}

oq_handle oq_os_standard_input(void) {
    return STDIN_FILENO;
}

const oq_shell_words oq_os_shell = {"", '\'', "'\\''"};

int oq_os_run_line(const char *line, oq_process *p, oq_handle *output) {
    char shell[] = "sh", option[] = "-c";
    char *const words[] = {shell, option, (char *)(uintptr_t)line, NULL};
    int ends[2];
    *p = (oq_process){0, 0};
    *output = OQ_NO_HANDLE;
    if (!oq_posix_pipe(ends))
        return errno;
    const oq_child_file files[] = {{STDIN_FILENO, OQ_NO_HANDLE}, {STDOUT_FILENO, ends[1]}};
    const int rc = oq_os_start(p, "/bin/sh", words, NULL, files, OQ_COUNT(files));
    close(ends[1]);
    if (rc == 0)
        *output = ends[0];
    else
        close(ends[0]);
    return rc;
}

int oq_os_wait_readable(oq_handle h, int milliseconds) {
    struct pollfd ready = {.fd = (int)h, .events = POLLIN};
    const int n = poll(&ready, 1, milliseconds);
    return n > 0 ? 1 : n;
}

oq_ended oq_os_wait(oq_process *p) {
    int status = 0;
    while (waitpid((pid_t)p->id, &status, 0) < 0)
        if (errno != EINTR) {
            status = 0;
            break;
        }
    *p = (oq_process){0, 0};
    return WIFSIGNALED(status) ? (oq_ended){0, WTERMSIG(status)}
                               : (oq_ended){WEXITSTATUS(status), 0};
}

/* Its whole group: what the shell has started too. */
void oq_os_stop(const oq_process *p, bool hard) {
    if (p->group > 0)
        kill(-(pid_t)p->group, hard ? SIGKILL : SIGTERM);
}

/* ---- the machine ---- */

uint64_t oq_os_process_id(void) {
    return (uint64_t)getpid();
}

bool oq_os_utc(int64_t seconds, struct tm *out) {
    const time_t t = (time_t)seconds;
    return gmtime_r(&t, out) != NULL;
}

/* Signals go to the caller's thread, save those that a fault in the thread itself raises. */
void oq_os_quiet(oq_signals *was) {
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigset_t all, old;
    sigfillset(&all);
    for (size_t i = 0; i < OQ_COUNT(faults); i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    memcpy(was, &old, sizeof old);
}

void oq_os_loud(const oq_signals *was) {
    sigset_t old;
    memcpy(&old, was, sizeof old);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}
