/*
 * file.c — read-only mapped files. See file.h; external data is in file_dir.c, outputs in
 * file_out.c.
 */
#include "base/system/file.h"

#include "base/system/file_map.h"

/* The name of a kind of file that is not regular. */
static const char *kind_name(oq_file_kind kind) {
    return kind == OQ_IS_FOLDER   ? "a folder"
           : kind == OQ_IS_FIFO   ? "a FIFO"
           : kind == OQ_IS_DEVICE ? "a device"
           : kind == OQ_IS_SOCKET ? "a socket"
                                  : "something else";
}

static onq_code open_path(const char *path, oq_handle *h, onq_error *err) {
    *h = oq_os_open(path);
    if (*h == OQ_NO_HANDLE)
        return oq_fail_errno(err, ONQ_E_OPEN, errno, "%s: cannot be opened", path);
    return ONQ_OK;
}

static onq_code look_regular(oq_handle h, const char *path, oq_file_info *info, onq_error *err) {
    if (!oq_os_info(h, info))
        return oq_fail_errno(err, ONQ_E_READ, errno, "%s: its size cannot be read", path);
    if (info->kind != OQ_IS_FILE)
        return oq_fail(err, ONQ_E_OPEN, "%s: is %s, not a regular file", path,
                       kind_name(info->kind));
    return ONQ_OK;
}

onq_code oq_file_map(oq_file *f, const onq_allocator *a, oq_handle h, const char *path,
                     onq_error *err) {
    *f = (oq_file){.handle = OQ_NO_HANDLE, .alloc = a};
    oq_file_info info;
    char *copy = NULL;
    const size_t path_size = strlen(path) + 1;
    onq_code rc = look_regular(h, path, &info, err);
    if (rc != ONQ_OK)
        goto fail;
    copy = oq_alloc(a, path_size);
    if (copy == NULL) {
        rc = oq_fail_nomem(err);
        goto fail;
    }
    memcpy(copy, path, path_size);
    const uint8_t *p = (const uint8_t *)"";
    if (info.size > 0) {
        const uint8_t *map = oq_os_map(h, info.size);
        if (map == NULL) {
            rc = errno == ENOMEM
                     ? oq_fail(err, ONQ_E_NOMEM, "%s: there is no address space for its %llu bytes",
                               path, (unsigned long long)info.size)
                     : oq_fail_errno(err, ONQ_E_READ, errno, "%s: cannot be mapped", path);
            goto fail;
        }
        p = map;
    }
    *f = (oq_file){
        .path = copy,
        .handle = h,
        .p = p,
        .info = info,
        .size = info.size,
        .alloc = a,
        .path_size = path_size,
    };
    return ONQ_OK;
fail:
    oq_free(a, copy, path_size);
    oq_os_close(h);
    return rc;
}

onq_code oq_file_open(oq_file *f, const onq_allocator *a, const char *path, onq_error *err) {
    *f = (oq_file){.handle = OQ_NO_HANDLE, .alloc = a};
    oq_handle h = OQ_NO_HANDLE;
    OQ_TRY(open_path(path, &h, err));
    return oq_file_map(f, a, h, path, err);
}

onq_code oq_file_borrow(oq_file *f, const onq_allocator *a, const char *name, const void *p,
                        uint64_t n, onq_error *err) {
    const size_t size = strlen(name) + 1;
    char *copy = oq_alloc(a, size);
    *f = (oq_file){.handle = OQ_NO_HANDLE, .alloc = a};
    OQ_TRY_ALLOC(copy != NULL, err);
    memcpy(copy, name, size);
    *f = (oq_file){.path = copy,
                   .handle = OQ_NO_HANDLE,
                   .p = n > 0 ? p : (const uint8_t *)"",
                   .size = n,
                   .alloc = a,
                   .path_size = size,
                   .borrowed = true};
    return ONQ_OK;
}

void oq_file_let_go(oq_file *f) {
    if (!f->borrowed && f->handle != OQ_NO_HANDLE)
        oq_os_close(f->handle);
    f->handle = OQ_NO_HANDLE;
}

void oq_file_close(oq_file *f) {
    if (f->path == NULL)
        return;
    if (f->size != 0 && !f->borrowed)
        oq_os_unmap(f->p, f->size);
    oq_file_let_go(f);
    oq_free(f->alloc, (void *)(uintptr_t)f->path, f->path_size);
    *f = (oq_file){.handle = OQ_NO_HANDLE, .alloc = f->alloc};
}

bool oq_file_is(const oq_file *f, const char *path) {
    oq_file_info info;
    return f->p != NULL && !f->borrowed && oq_os_info_of(path, &info) &&
           oq_info_is_same(&info, &f->info);
}

onq_code oq_file_check(const oq_file *f, onq_error *err) {
    oq_file_info info;
    if (f->path == NULL || f->borrowed)
        return ONQ_OK;
    if (!oq_os_info(f->handle, &info))
        return oq_fail_errno(err, ONQ_E_READ, errno, "%s: its size cannot be read", f->path);
    if (info.size != f->size)
        return oq_fail(
            err, ONQ_E_READ,
            "%s: changed from %llu to %llu bytes while it was read; try again when it is complete",
            f->path, (unsigned long long)f->size, (unsigned long long)info.size);
    if (info.mtime_ns != f->info.mtime_ns)
        return oq_fail(err, ONQ_E_READ,
                       "%s: was written to while it was read; try again when it is complete",
                       f->path);
    return ONQ_OK;
}

void oq_file_drop(const oq_file *f, uint64_t offset, uint64_t n) {
    const uint64_t page = oq_os_page_size();
    if (f->size == 0 || offset >= f->size || f->borrowed)
        return;
    uint64_t end = n < f->size - offset ? offset + n : f->size;
    const uint64_t start = (offset + page - 1) / page * page;
    if (end != f->size)
        end = end / page * page;
    /* Leaves the page cache alone: only this process lets go. */
    if (start < end)
        oq_os_forget(f->p + start, end - start);
}

onq_code oq_file_read_all(oq_arena *arena, const char *path, uint64_t most, oq_str *out,
                          onq_error *err) {
    oq_file_info info;
    oq_handle h = OQ_NO_HANDLE;
    *out = (oq_str){NULL, 0};
    OQ_TRY(open_path(path, &h, err));
    onq_code rc = look_regular(h, path, &info, err);
    const uint64_t size = rc == ONQ_OK ? info.size : 0;
    char *p = NULL;
    uint64_t done = 0;
    if (rc == ONQ_OK && size > most)
        rc = oq_fail(err, ONQ_E_LIMIT, "%s: has %llu bytes, more than the limit of %llu", path,
                     (unsigned long long)size, (unsigned long long)most);
    else if (rc == ONQ_OK && (p = oq_arena_alloc(arena, size + 1)) == NULL)
        rc = oq_fail_nomem(err);
    /* Read, not mapped: a file that shrinks now gives a short read and no signal. */
    while (rc == ONQ_OK && done < size) {
        const int64_t got = oq_os_read_at(h, p + done, size - done, done);
        if (got > 0)
            done += (uint64_t)got;
        else if (got == 0)
            rc = oq_fail(err, ONQ_E_READ, "%s: became shorter while it was read; try again", path);
        else if (errno != EINTR)
            rc = oq_fail_errno(err, ONQ_E_READ, errno, "%s: cannot be read", path);
    }
    if (rc == ONQ_OK)
        *out = (oq_str){p, (size_t)size};
    oq_os_close(h);
    return rc;
}
