/*
 * file_out.c — outputs that appear whole or not at all. See file.h.
 *
 * Everything is done relative to a handle of the target's folder, so renaming that folder
 * meanwhile does no harm. A target that is a symbolic link is resolved first: the file it leads to
 * is replaced, not the link. Small writes gather in a buffer; large ones and copies go straight to
 * the file.
 */
#include "base/system/file_map.h"

enum {
    BUFFER_SIZE = 1 << 16,
    MAX_COPY = 32 << 20,    /* of one call, so that a signal is not kept waiting */
    FLUSH_EVERY = 16 << 20, /* the disk is asked to begin, so that the final fsync is short */
    NAME_TRIES = 64,
    NAME_EXTRA = 14, /* ".", ".onq-XXXXXX", NUL */
};

/* ---- names ---- */

static char *dup_text(const onq_allocator *a, const char *p, size_t n, size_t *size) {
    char *copy = oq_alloc(a, n + 1);
    if (copy != NULL) {
        memcpy(copy, p, n);
        copy[n] = '\0';
        *size = n + 1;
    }
    return copy;
}

/* ".TARGET.onq-XXXXXX" with a random end, as long as a name may be. */
static void random_name(char out[OQ_NAME_MAX + 1], const char *target) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz012345";
    unsigned char bytes[6];
    if (!oq_os_random(bytes, sizeof bytes)) {
        /* Only uniqueness matters: what is there already is never taken. */
        const uint64_t v = (uint64_t)(oq_seconds() * 1e9) * 2654435761u + oq_os_process_id();
        memcpy(bytes, &v, sizeof bytes);
    }
    size_t n = strlen(target);
    if (n > OQ_NAME_MAX + 1 - NAME_EXTRA)
        n = OQ_NAME_MAX + 1 - NAME_EXTRA;
    out[0] = '.';
    memcpy(out + 1, target, n);
    memcpy(out + 1 + n, ".onq-", 5);
    for (size_t i = 0; i < sizeof bytes; i++)
        out[n + 6 + i] = letters[bytes[i] & 31];
    out[n + 12] = '\0';
}

/* o->temp becomes the path of `name` in the target's folder. */
static onq_code set_temp_path(oq_out *o, const char *name, onq_error *err) {
    const size_t dir_n = (size_t)(o->name - o->real), size = dir_n + strlen(name) + 1;
    char *temp = oq_alloc(o->alloc, size);
    OQ_TRY_ALLOC(temp != NULL, err);
    memcpy(temp, o->real, dir_n);
    memcpy(temp + dir_n, name, size - dir_n);
    oq_free(o->alloc, o->temp, o->temp_size);
    o->temp = temp;
    o->temp_size = size;
    return ONQ_OK;
}

static const char *temp_name(const oq_out *o) {
    return o->temp + (o->name - o->real);
}

/* ---- opening ---- */

static onq_code fail_write(const oq_out *o, int errnum, const char *what, onq_error *err) {
    const char *advice = errnum == ENOSPC || errnum == EDQUOT || errnum == EFBIG
                             ? "; free some space or choose another folder"
                             : "";
    return oq_fail_errno(err, ONQ_E_WRITE, errnum, "%s: %s%s", o->target, what, advice);
}

/* Fills o->real and o->name: the target with its links resolved. */
static onq_code resolve_target(oq_out *o, onq_error *err) {
    char real[OQ_PATH_MAX];
    const char *path = o->target;
    if (oq_os_is_link(path)) {
        if (!oq_os_real_path(path, real))
            return oq_fail_errno(err, ONQ_E_WRITE, errno,
                                 "%s: is a link whose target cannot be written", o->target);
        path = real;
    }
    const char *name = oq_path_last(path);
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return oq_fail(err, ONQ_E_WRITE, "%s: is a folder; give the name of a file", o->target);
    o->real = dup_text(o->alloc, path, strlen(path), &o->real_size);
    OQ_TRY_ALLOC(o->real != NULL, err);
    o->name = o->real + (name - path);
    return ONQ_OK;
}

/* Opens the target's folder, if it is not open (a sealed output has let go of it). */
static onq_code enter_folder(oq_out *o, onq_error *err) {
    if (o->folder != OQ_NO_HANDLE)
        return ONQ_OK;
    const size_t n = (size_t)(o->name - o->real);
    char path[OQ_PATH_MAX];
    if (n >= sizeof path)
        return fail_write(o, ENAMETOOLONG, "cannot be written", err);
    memcpy(path, n != 0 ? o->real : "./", n != 0 ? n : 2);
    path[n != 0 ? n : 2] = '\0';
    o->folder = oq_os_open_out_folder(path);
    if (o->folder == OQ_NO_HANDLE)
        return fail_write(o, errno, "its folder cannot be opened", err);
    return ONQ_OK;
}

static void leave_folder(oq_out *o) {
    if (o->folder != OQ_NO_HANDLE)
        oq_os_close(o->folder);
    o->folder = OQ_NO_HANDLE;
}

/* Looks at an existing target; *mode is its permissions, or 0 if it does not exist. */
static onq_code check_existing(const oq_out *o, unsigned *mode, onq_error *err) {
    oq_file_info info;
    *mode = 0;
    if (!oq_os_info_in(o->folder, o->name, &info)) {
        if (errno == ENOENT)
            return ONQ_OK;
        return fail_write(o, errno, "cannot be written", err);
    }
    if (info.kind == OQ_IS_FOLDER)
        return oq_fail(err, ONQ_E_WRITE, "%s: is a folder; give the name of a file", o->target);
    if (info.kind != OQ_IS_FILE)
        return oq_fail(err, ONQ_E_WRITE, "%s: is not a regular file; give the name of a file",
                       o->target);
    /* The superuser may write anything; a file with no write permission at all is still meant. */
    if ((info.mode & 0222) == 0 || !oq_os_may_write_in(o->folder, o->name))
        return oq_fail(err, ONQ_E_WRITE,
                       "%s: is read-only; make it writable or choose another output", o->target);
    *mode = info.mode;
    return ONQ_OK;
}

/* A hidden file with a name, where there are none without one. */
static onq_code open_named(oq_out *o, onq_error *err) {
    char name[OQ_NAME_MAX + 1];
    for (int i = 0; i < NAME_TRIES; i++) {
        random_name(name, o->name);
        o->handle = oq_os_make_named(o->folder, name);
        if (o->handle != OQ_NO_HANDLE || errno != EEXIST)
            break;
    }
    if (o->handle == OQ_NO_HANDLE)
        return fail_write(o, errno, "cannot be written", err);
    const onq_code rc = set_temp_path(o, name, err);
    if (rc != ONQ_OK)
        oq_os_remove_in(o->folder, name);
    o->named = rc == ONQ_OK;
    return rc;
}

static onq_code open_temp(oq_out *o, onq_error *err) {
    char path[64];
    o->handle = oq_os_make_unnamed(o->folder, path, sizeof path);
    if (o->handle == OQ_NO_HANDLE)
        return open_named(o, err);
    o->temp = dup_text(o->alloc, path, strlen(path), &o->temp_size);
    return o->temp != NULL ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_out_open(oq_out *o, const onq_allocator *a, const char *target, onq_error *err) {
    *o = (oq_out){.alloc = a, .handle = OQ_NO_HANDLE, .folder = OQ_NO_HANDLE, .open = true};
    onq_code rc = ONQ_OK;
    unsigned mode = 0;
    o->target = dup_text(a, target, strlen(target), &o->target_size);
    if (o->target == NULL) {
        rc = oq_fail_nomem(err);
        goto done;
    }
    OQ_GO(resolve_target(o, err));
    OQ_GO(enter_folder(o, err));
    OQ_GO(check_existing(o, &mode, err));
    OQ_GO(open_temp(o, err));
    /* What replaces a file has its permissions. */
    if (mode != 0 && !oq_os_set_mode(o->handle, mode)) {
        rc = fail_write(o, errno, "its permissions cannot be set", err);
        goto done;
    }
    o->buffer = oq_alloc(a, BUFFER_SIZE);
    if (o->buffer == NULL)
        rc = oq_fail_nomem(err);
done:
    if (rc != ONQ_OK)
        oq_out_abort(o);
    return rc;
}

onq_code oq_out_open_temp(oq_out *o, const onq_allocator *a, onq_error *err) {
    char room[OQ_PATH_MAX];
    OQ_SCRATCH(scratch, a);
    *o = (oq_out){0};
    const char *path = oq_path_join(&scratch, oq_os_temp_root(room), "onq-weights");
    OQ_TRY_ALLOC(path != NULL, err);
    return oq_out_open(o, a, path, err);
}

onq_code oq_out_open_memory(oq_out *o, const onq_allocator *a, const char *name, onq_error *err) {
    *o = (oq_out){
        .alloc = a, .handle = OQ_NO_HANDLE, .folder = OQ_NO_HANDLE, .open = true, .memory = true};
    o->target = dup_text(a, name, strlen(name), &o->target_size);
    o->buffer = oq_alloc(a, BUFFER_SIZE);
    onq_code rc = ONQ_OK;
    if (o->target == NULL || o->buffer == NULL)
        rc = oq_fail_nomem(err);
    else if ((o->handle = oq_os_make_in_memory()) == OQ_NO_HANDLE)
        rc = fail_write(o, errno, "cannot be kept in memory", err);
    if (rc != ONQ_OK)
        oq_out_abort(o);
    return rc;
}

/* Removes the temporary name, be it the output's or that of the file it was exchanged with. */
static void remove_temp(oq_out *o) {
    if (o->named && enter_folder(o, NULL) == ONQ_OK && oq_os_remove_in(o->folder, temp_name(o)))
        o->named = false;
}

void oq_out_lend(oq_out *o) {
    if (!o->named)
        return;
    oq_os_close(o->handle);
    o->handle = OQ_NO_HANDLE;
}

void oq_out_abort(oq_out *o) {
    if (!o->open)
        return;
    remove_temp(o);
    if (o->handle != OQ_NO_HANDLE)
        oq_os_close(o->handle);
    leave_folder(o);
    oq_free(o->alloc, o->temp, o->temp_size);
    oq_free(o->alloc, o->real, o->real_size);
    oq_free(o->alloc, o->target, o->target_size);
    oq_free(o->alloc, o->buffer, BUFFER_SIZE);
    *o = (oq_out){.alloc = o->alloc, .handle = OQ_NO_HANDLE, .folder = OQ_NO_HANDLE};
}

/* ---- writing ---- */

static onq_code write_all(oq_out *o, const uint8_t *p, uint64_t n, onq_error *err) {
    while (n != 0) {
        const int64_t put = oq_os_write(o->handle, p, n < MAX_COPY ? n : MAX_COPY);
        if (put > 0) {
            p += put;
            n -= (uint64_t)put;
        } else if (put == 0) {
            return fail_write(o, EIO, "cannot be written", err);
        } else if (errno == EFAULT) {
            /* The bytes come from a mapping that has lost them. */
            return oq_fail(err, ONQ_E_READ,
                           "%s: an input became shorter while it was read; try again when it is "
                           "complete",
                           o->target);
        } else if (errno != EINTR) {
            return fail_write(o, errno, "cannot be written", err);
        }
    }
    return ONQ_OK;
}

/* Lets the disk begin with what is in the file already. */
static void start_disk(oq_out *o) {
    const uint64_t in_file = o->size - o->buffered;
    if (in_file - o->flushing >= FLUSH_EVERY) {
        oq_os_start_disk(o->handle, o->flushing, in_file - o->flushing);
        o->flushing = in_file;
    }
}

onq_code oq_out_flush(oq_out *o, onq_error *err) {
    const size_t n = o->buffered;
    o->buffered = 0;
    return write_all(o, o->buffer, n, err);
}

onq_code oq_out_reserve(oq_out *o, uint64_t n, onq_error *err) {
    if (n == 0 || n > INT64_MAX)
        return ONQ_OK;
    if (oq_os_reserve(o->handle, n))
        o->reserved = n;
    else if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)
        return fail_write(o, errno, "cannot be written", err);
    return ONQ_OK; /* a file system that cannot */
}

onq_code oq_out_write(oq_out *o, const void *data, uint64_t n, onq_error *err) {
    const uint8_t *p = data;
    if (n == 0)
        return ONQ_OK;
    if (n > BUFFER_SIZE - o->buffered)
        OQ_TRY(oq_out_flush(o, err));
    if (n < BUFFER_SIZE) {
        memcpy(o->buffer + o->buffered, p, n);
        o->buffered += n;
        o->size += n;
        return ONQ_OK;
    }
    while (n != 0) {
        const uint64_t part = n < FLUSH_EVERY ? n : FLUSH_EVERY;
        OQ_TRY(write_all(o, p, part, err));
        o->size += part;
        p += part;
        n -= part;
        start_disk(o);
    }
    return ONQ_OK;
}

static onq_code fail_shrunk(const oq_file *f, onq_error *err) {
    return oq_fail(err, ONQ_E_READ,
                   "%s: became shorter while it was read; try again when it is complete", f->path);
}

/* True if the file no longer reaches to `end`. (Its last page reads as zeros then, up to the
 * page's end.) */
static bool is_shorter(const oq_file *f, uint64_t end) {
    oq_file_info info;
    return oq_os_info(f->handle, &info) && info.size < end;
}

/* True for the answers of a system that cannot copy this way, but another way may do. */
static bool cannot_copy(int errnum) {
    return errnum == EXDEV || errnum == EINVAL || errnum == ENOSYS || errnum == EOPNOTSUPP ||
           errnum == EPERM || errnum == EBADF || errnum == ETXTBSY;
}

/* From the mapping. For a lost page write answers EFAULT; no signal is raised. */
static int64_t copy_write(const oq_out *o, const oq_file *f, uint64_t offset, size_t n) {
    const int64_t put = oq_os_write(o->handle, f->p + offset, n);
    return put < 0 && errno == EFAULT ? 0 : put;
}

onq_code oq_out_copy(oq_out *o, const oq_file *f, uint64_t offset, uint64_t n, onq_error *err) {
    uint64_t end;
    if (!oq_add(offset, n, &end) || end > f->size)
        return oq_fail(err, ONQ_E_INVALID, "%s: bytes %llu and %llu more are not in its %llu bytes",
                       f->path, (unsigned long long)offset, (unsigned long long)n,
                       (unsigned long long)f->size);
    OQ_TRY(oq_out_flush(o, err));
    unsigned way = 0;
    for (bool last = f->borrowed; n != 0;) {
        const size_t most = n < MAX_COPY ? n : MAX_COPY;
        const int64_t got = last ? copy_write(o, f, offset, most)
                                 : oq_os_copy(way, o->handle, f->handle, offset, most);
        if (got > 0) {
            offset += (uint64_t)got;
            n -= (uint64_t)got;
            o->size += (uint64_t)got;
            start_disk(o);
        } else if (got == 0 && (last || is_shorter(f, end))) {
            return fail_shrunk(f, err);
        } else if (!last && got < 0 && errno == ENOSYS && way > 0) {
            last = true;
        } else if (!last && (got == 0 || cannot_copy(errno))) {
            way++; /* some file systems answer 0 for what they cannot copy */
        } else if (errno != EINTR) {
            return fail_write(o, errno, "cannot be written", err);
        }
    }
    return ONQ_OK;
}

/* ---- commit ---- */

onq_code oq_out_give_name(oq_out *o, onq_error *err) {
    if (o->named)
        return ONQ_OK;
    char name[OQ_NAME_MAX + 1];
    bool linked = false;
    for (int i = 0; i < NAME_TRIES && !linked; i++) {
        random_name(name, o->name);
        linked = oq_os_link_in(o->handle, o->folder, name);
        if (!linked && errno != EEXIST)
            break;
    }
    if (!linked)
        return fail_write(o, errno, "cannot be given a name", err);
    const onq_code rc = set_temp_path(o, name, err);
    if (rc != ONQ_OK)
        oq_os_remove_in(o->folder, name);
    o->named = rc == ONQ_OK;
    return rc;
}

/* How an output came to its place, and so how to take it back. */
enum placed { NEW, EXCHANGED, REPLACED };

/* A new target: it gets its name in one step, or by a rename that replaces nothing. */
static bool place_new(oq_out *o) {
    if (o->named) {
        if (!oq_os_rename_in(o->folder, temp_name(o), o->name, OQ_RENAME_NEW))
            return false;
        o->named = false;
        return true;
    }
    return oq_os_link_in(o->handle, o->folder, o->name);
}

/* Puts a synced output in its place. With `keep` an old target is kept under the temporary name. */
static onq_code place(oq_out *o, bool keep, enum placed *how, onq_error *err) {
    if (place_new(o)) {
        *how = NEW;
        return ONQ_OK;
    }
    OQ_TRY(oq_out_give_name(o, err));
    if (keep && oq_os_rename_in(o->folder, temp_name(o), o->name, OQ_RENAME_EXCHANGE)) {
        *how = EXCHANGED;
        return ONQ_OK;
    }
    oq_file_info info;
    const bool is_new = !oq_os_info_in(o->folder, o->name, &info) && errno == ENOENT;
    if (!oq_os_rename_in(o->folder, temp_name(o), o->name, OQ_RENAME_REPLACE))
        return fail_write(o, errno, "cannot be put in place", err);
    o->named = false;
    *how = is_new ? NEW : REPLACED;
    return ONQ_OK;
}

static void take_back(oq_out *o, enum placed how) {
    if (how == NEW)
        oq_os_remove_in(o->folder, o->name);
    else if (how == EXCHANGED)
        oq_os_rename_in(o->folder, temp_name(o), o->name, OQ_RENAME_EXCHANGE);
}

static onq_code sync_file(oq_out *o, onq_error *err) {
    if (o->handle == OQ_NO_HANDLE)
        return ONQ_OK; /* sealed: synced then */
    OQ_TRY(oq_out_flush(o, err));
    if (o->reserved > o->size && !oq_os_truncate(o->handle, o->size))
        return fail_write(o, errno, "cannot be cut to its size", err);
    while (!oq_os_sync(o->handle)) {
        if (errno == EINTR)
            continue;
        if (errno == EINVAL || errno == EROFS || errno == ENOTSUP)
            break; /* a file system without sync */
        return fail_write(o, errno, "cannot be written to the disk", err);
    }
    return ONQ_OK;
}

onq_code oq_out_take(oq_out *o, oq_file *f, onq_error *err) {
    onq_code rc = o->memory ? sync_file(o, err) : oq_out_flush(o, err); /* nobody is to keep it */
    const oq_handle h = o->handle;
    if (rc == ONQ_OK) {
        o->handle = OQ_NO_HANDLE; /* the file's from here on, also when it fails */
        rc = oq_file_map(f, o->alloc, h, o->target, err);
    }
    oq_out_abort(o);
    return rc;
}

onq_code oq_out_seal(oq_out *o, onq_error *err) {
    OQ_TRY(sync_file(o, err));
    if (o->memory)
        return ONQ_OK;
    OQ_TRY(oq_out_give_name(o, err));
    oq_os_close(o->handle);
    o->handle = OQ_NO_HANDLE;
    leave_folder(o);
    oq_free(o->alloc, o->buffer, BUFFER_SIZE);
    o->buffer = NULL;
    return ONQ_OK;
}

/* Syncs the folder, unless it is the one in *last (outputs mostly share one). */
static onq_code sync_folder(oq_out *o, oq_file_info *last, onq_error *err) {
    oq_file_info info = {0};
    const char *what = "is in place, but its name cannot be written to the disk";
    if (enter_folder(o, NULL) != ONQ_OK)
        return fail_write(o, errno, what, err);
    if (oq_os_info(o->folder, &info) && oq_info_is_same(&info, last))
        return ONQ_OK;
    *last = info;
    while (!oq_os_sync(o->folder)) {
        if (errno == EINTR)
            continue;
        if (errno == EIO || errno == ENOSPC || errno == EDQUOT)
            return fail_write(o, errno, what, err);
        break; /* EBADF, EINVAL: a folder that cannot be synced */
    }
    return ONQ_OK;
}

/* Puts all in their places, or none. `how` has a place for each. */
static onq_code place_all(oq_out **outs, size_t n, enum placed *how, onq_error *err) {
    for (size_t i = 0; i < n; i++) {
        const bool sealed = outs[i]->handle == OQ_NO_HANDLE;
        onq_code rc = enter_folder(outs[i], err);
        if (rc == ONQ_OK)
            rc = place(outs[i], i + 1 < n, &how[i], err);
        if (rc != ONQ_OK) {
            while (i-- > 0)
                if (enter_folder(outs[i], NULL) == ONQ_OK)
                    take_back(outs[i], how[i]);
            return rc;
        }
        if (sealed)
            leave_folder(outs[i]);
    }
    return ONQ_OK;
}

onq_code oq_out_commit_all(oq_out **outs, size_t n, onq_error *err) {
    if (n == 0)
        return ONQ_OK;
    onq_code rc = ONQ_OK;
    oq_file_info last = {0};
    const onq_allocator *a = outs[0]->alloc;
    enum placed *how = oq_calloc(a, n, sizeof *how);
    if (how == NULL) {
        rc = oq_fail_nomem(err);
        goto done;
    }
    for (size_t i = 0; i < n; i++)
        OQ_GO(sync_file(outs[i], err));
    OQ_GO(place_all(outs, n, how, err));
    for (size_t i = 0; i < n; i++) {
        remove_temp(outs[i]);
        if (outs[i]->handle == OQ_NO_HANDLE)
            leave_folder(outs[i]);
    }
    for (size_t i = 0; i < n; i++) {
        OQ_GO(sync_folder(outs[i], &last, err));
        if (outs[i]->handle == OQ_NO_HANDLE)
            leave_folder(outs[i]);
    }
done:
    oq_free(a, how, n * sizeof *how);
    for (size_t i = 0; i < n; i++)
        oq_out_abort(outs[i]);
    return rc;
}

onq_code oq_out_commit(oq_out *o, onq_error *err) {
    return oq_out_commit_all(&o, 1, err);
}

onq_code oq_out_text(const onq_allocator *a, const char *path, const oq_buf *text, onq_error *err) {
    OQ_TRY_ALLOC(!text->failed, err);
    oq_out out;
    OQ_TRY(oq_out_open(&out, a, path, err));
    onq_code rc = oq_out_write(&out, text->p, text->n, err);
    if (rc == ONQ_OK)
        rc = oq_out_commit(&out, err);
    oq_out_abort(&out);
    return rc;
}
