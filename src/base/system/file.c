/*
 * file.c — read-only mapped files. See file.h; external data is in file_dir.c, outputs in
 * file_out.c.
 */
#include "base/system/file.h"

#include "base/system/file_map.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The name of a kind of file that is not regular. */
static const char *kind_name(mode_t mode) {
    return S_ISDIR(mode)    ? "a folder"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISCHR(mode)  ? "a device"
           : S_ISBLK(mode)  ? "a device"
           : S_ISSOCK(mode) ? "a socket"
                            : "something else";
}

static int64_t mtime_ns(const struct stat *st) {
    return (int64_t)((uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec);
}

static onq_code open_path(const char *path, int *fd, onq_error *err) {
    /* O_NONBLOCK: a FIFO without a writer must not stop us here; stat_regular refuses it then. */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (*fd < 0)
        return oq_fail_errno(err, ONQ_E_OPEN, errno, "%s: cannot be opened", path);
    return ONQ_OK;
}

static onq_code stat_regular(int fd, const char *path, struct stat *st, onq_error *err) {
    if (fstat(fd, st) != 0)
        return oq_fail_errno(err, ONQ_E_READ, errno, "%s: its size cannot be read", path);
    if (!S_ISREG(st->st_mode))
        return oq_fail(err, ONQ_E_OPEN, "%s: is %s, not a regular file", path,
                       kind_name(st->st_mode));
    return ONQ_OK;
}

onq_code oq_file_map_fd(oq_file *f, const onq_allocator *a, int fd, const char *path,
                        onq_error *err) {
    *f = (oq_file){.fd = -1, .alloc = a};
    struct stat st;
    char *copy = NULL;
    const size_t path_size = strlen(path) + 1;
    onq_code rc = stat_regular(fd, path, &st, err);
    if (rc != ONQ_OK)
        goto fail;
    copy = oq_alloc(a, path_size);
    if (copy == NULL) {
        rc = oq_fail_nomem(err);
        goto fail;
    }
    memcpy(copy, path, path_size);
    const uint8_t *p = (const uint8_t *)"";
    if (st.st_size > 0) {
        void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED) {
            rc = errno == ENOMEM
                     ? oq_fail(err, ONQ_E_NOMEM, "%s: there is no address space for its %lld bytes",
                               path, (long long)st.st_size)
                     : oq_fail_errno(err, ONQ_E_READ, errno, "%s: cannot be mapped", path);
            goto fail;
        }
        p = map;
    }
    *f = (oq_file){
        .path = copy,
        .fd = fd,
        .p = p,
        .size = (uint64_t)st.st_size,
        .mtime_ns = mtime_ns(&st),
        .dev = st.st_dev,
        .ino = st.st_ino,
        .alloc = a,
        .path_size = path_size,
    };
    return ONQ_OK;
fail:
    oq_free(a, copy, path_size);
    close(fd);
    return rc;
}

onq_code oq_file_open(oq_file *f, const onq_allocator *a, const char *path, onq_error *err) {
    *f = (oq_file){.fd = -1, .alloc = a};
    int fd = -1;
    OQ_TRY(open_path(path, &fd, err));
    return oq_file_map_fd(f, a, fd, path, err);
}

onq_code oq_file_borrow(oq_file *f, const onq_allocator *a, const char *name, const void *p,
                        uint64_t n, onq_error *err) {
    const size_t size = strlen(name) + 1;
    char *copy = oq_alloc(a, size);
    *f = (oq_file){.fd = -1, .alloc = a};
    OQ_TRY_ALLOC(copy != NULL, err);
    memcpy(copy, name, size);
    *f = (oq_file){.path = copy,
                   .fd = -1,
                   .p = n > 0 ? p : (const uint8_t *)"",
                   .size = n,
                   .alloc = a,
                   .path_size = size,
                   .borrowed = true};
    return ONQ_OK;
}

void oq_file_close(oq_file *f) {
    if (f->path == NULL)
        return;
    if (f->size != 0 && !f->borrowed)
        munmap((void *)(uintptr_t)f->p, f->size);
    if (!f->borrowed)
        close(f->fd);
    oq_free(f->alloc, (void *)(uintptr_t)f->path, f->path_size);
    *f = (oq_file){.fd = -1, .alloc = f->alloc};
}

bool oq_file_is(const oq_file *f, const char *path) {
    struct stat st;
    return f->p != NULL && !f->borrowed && stat(path, &st) == 0 && (uint64_t)st.st_dev == f->dev &&
           (uint64_t)st.st_ino == f->ino;
}

onq_code oq_file_check(const oq_file *f, onq_error *err) {
    struct stat st;
    if (f->path == NULL || f->borrowed)
        return ONQ_OK;
    if (fstat(f->fd, &st) != 0)
        return oq_fail_errno(err, ONQ_E_READ, errno, "%s: its size cannot be read", f->path);
    if ((uint64_t)st.st_size != f->size)
        return oq_fail(
            err, ONQ_E_READ,
            "%s: changed from %llu to %llu bytes while it was read; try again when it is complete",
            f->path, (unsigned long long)f->size, (unsigned long long)st.st_size);
    if (mtime_ns(&st) != f->mtime_ns)
        return oq_fail(err, ONQ_E_READ,
                       "%s: was written to while it was read; try again when it is complete",
                       f->path);
    return ONQ_OK;
}

void oq_file_drop(const oq_file *f, uint64_t offset, uint64_t n) {
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    if (f->size == 0 || offset >= f->size || f->borrowed)
        return;
    uint64_t end = n < f->size - offset ? offset + n : f->size;
    const uint64_t start = (offset + page - 1) / page * page;
    if (end != f->size)
        end = end / page * page;
    /* Leaves the page cache alone: only this process lets go. */
    if (start < end)
        madvise((void *)(uintptr_t)(f->p + start), end - start, MADV_DONTNEED);
}

onq_code oq_file_read_all(oq_arena *arena, const char *path, uint64_t most, oq_str *out,
                          onq_error *err) {
    struct stat st;
    int fd = -1;
    *out = (oq_str){NULL, 0};
    OQ_TRY(open_path(path, &fd, err));
    onq_code rc = stat_regular(fd, path, &st, err);
    const uint64_t size = rc == ONQ_OK ? (uint64_t)st.st_size : 0;
    char *p = NULL;
    uint64_t done = 0;
    if (rc == ONQ_OK && size > most)
        rc = oq_fail(err, ONQ_E_LIMIT, "%s: has %llu bytes, more than the limit of %llu", path,
                     (unsigned long long)size, (unsigned long long)most);
    else if (rc == ONQ_OK && (p = oq_arena_alloc(arena, size + 1)) == NULL)
        rc = oq_fail_nomem(err);
    /* Read, not mapped: a file that shrinks now gives a short read and no signal. */
    while (rc == ONQ_OK && done < size) {
        const ssize_t got = pread(fd, p + done, size - done, (off_t)done);
        if (got > 0)
            done += (uint64_t)got;
        else if (got == 0)
            rc = oq_fail(err, ONQ_E_READ, "%s: became shorter while it was read; try again", path);
        else if (errno != EINTR)
            rc = oq_fail_errno(err, ONQ_E_READ, errno, "%s: cannot be read", path);
    }
    if (rc == ONQ_OK)
        *out = (oq_str){p, (size_t)size};
    close(fd);
    return rc;
}
