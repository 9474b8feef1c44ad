/*
 * file_dir.c — external data: opening files beneath a folder and nowhere else. See file.h.
 *
 * A location is text from a model, so an enemy may have written it, and the folder may hold links
 * that came with the model. The system resolves it with every step beneath the folder
 * (oq_os_open_beneath). What is opened is then judged by its handle, so nothing can be exchanged in
 * between.
 */
#include "base/system/file.h"

#include "base/system/file_map.h"

/* ---- folders ---- */

static onq_code dir_open(oq_dir *d, const onq_allocator *a, const char *path, size_t n,
                         onq_error *err) {
    *d = (oq_dir){.handle = OQ_NO_HANDLE, .alloc = a};
    char *copy = oq_alloc(a, n + 1);
    OQ_TRY_ALLOC(copy != NULL, err);
    memcpy(copy, path, n);
    copy[n] = '\0';
    const oq_handle folder = oq_os_open_folder(copy);
    if (folder == OQ_NO_HANDLE) {
        const onq_code rc =
            oq_fail_errno(err, ONQ_E_OPEN, errno, "%s: the folder cannot be opened", copy);
        oq_free(a, copy, n + 1);
        return rc;
    }
    d->handle = folder;
    d->path = copy;
    d->path_size = n + 1;
    return ONQ_OK;
}

onq_code oq_dir_open(oq_dir *d, const onq_allocator *a, const char *path, onq_error *err) {
    return dir_open(d, a, path, strlen(path), err);
}

oq_str oq_path_folder(const char *path) {
    const size_t n = (size_t)(oq_path_last(path) - path);
    if (n == 0)
        return OQ_S(".");
    /* A root keeps its separator: "/", and "C:/" of Windows. */
    const bool drive = n > 1 && path[n - 2] == ':' && oq_path_is_absolute(path);
    const bool root = n == 1 || drive || !oq_path_is_separator(path[n - 1]);
    return (oq_str){path, root ? n : n - 1};
}

const char *oq_path_join(oq_arena *a, const char *folder, const char *name) {
    const size_t n = strlen(folder);
    const bool ends = n > 0 && oq_path_is_separator(folder[n - 1]);
    return oq_str_format(a, ends ? "%s%s" : "%s/%s", folder, name).p;
}

bool oq_file_is_same(const char *a, const char *b) {
    oq_file_info x, y;
    return oq_os_info_of(a, &x) && oq_os_info_of(b, &y) && oq_info_is_same(&x, &y);
}

onq_code oq_dir_open_parent(oq_dir *d, const onq_allocator *a, const char *path, onq_error *err) {
    const oq_str folder = oq_path_folder(path);
    return dir_open(d, a, folder.p, folder.n, err);
}

void oq_dir_close(oq_dir *d) {
    if (d->path == NULL)
        return;
    oq_os_close(d->handle);
    oq_free(d->alloc, (void *)(uintptr_t)d->path, d->path_size);
    *d = (oq_dir){.handle = OQ_NO_HANDLE, .alloc = d->alloc};
}

/* ---- external data ---- */

static onq_code refuse(onq_error *err, oq_str location, const char *what) {
    return oq_fail(err, ONQ_E_PATH, "external data '%.*s' %s", OQ_STR(location), what);
}

/* What can be said from the text alone. */
static onq_code check_text(oq_str location, onq_error *err) {
    if (location.n == 0)
        return refuse(err, location, "has an empty location");
    if (memchr(location.p, '\0', location.n) != NULL)
        return refuse(err, location, "has a NUL byte in its location");
    if (location.p[0] == '/')
        return refuse(err, location,
                      "is an absolute path; it must be a path inside the model's folder");
    if (location.n >= OQ_PATH_MAX)
        return refuse(err, location, "has a location longer than a path may be");
    return ONQ_OK;
}

/* Opens `location` if, all links followed, it lies beneath `root`: OQ_NO_HANDLE with errno EXDEV if
 * not. */
static oq_handle open_in_root(const oq_dir *d, const oq_dir *root, const char *location) {
    char path[2 * OQ_PATH_MAX], real[OQ_PATH_MAX], top[OQ_PATH_MAX];
    const size_t dir_n = strlen(d->path), n = strlen(location);
    if (dir_n + 1 + n + 1 > sizeof path) {
        errno = ENAMETOOLONG;
        return OQ_NO_HANDLE;
    }
    memcpy(path, d->path, dir_n);
    path[dir_n] = '/';
    memcpy(path + dir_n + 1, location, n + 1);
    if (!oq_os_real_path(path, real) || !oq_os_real_path(root->path, top))
        return OQ_NO_HANDLE;
    size_t top_n = strlen(top);
    top_n -= top_n > 0 && top[top_n - 1] == '/'; /* of a root */
    if (strncmp(real, top, top_n) != 0 || real[top_n] != '/') {
        errno = EXDEV;
        return OQ_NO_HANDLE;
    }
    /* Whatever changed since: this open cannot leave the root. */
    return oq_os_open_beneath(root->handle, real + top_n + 1);
}

/* True if the lexical path climbs above its start. */
static bool climbs_out(const char *p) {
    long depth = 0;
    while (*p != '\0') {
        const size_t n = strcspn(p, "/");
        if (n == 2 && p[0] == '.' && p[1] == '.')
            depth--;
        else if (n != 0 && !(n == 1 && p[0] == '.'))
            depth++;
        if (depth < 0)
            return true;
        p += n;
        p += *p == '/';
    }
    return false;
}

static onq_code refuse_open(onq_error *err, const oq_dir *d, oq_str location, int errnum,
                            bool has_root) {
    if (errnum == EXDEV)
        return refuse(err, location,
                      has_root
                          ? "is a link that leads out of the model's folder and of the data root"
                          : "is a link that leads out of the model's folder; allow the folder it "
                            "leads to with --data-root");
    if (errnum == ELOOP)
        return refuse(err, location, "is a link that leads in a circle or through /proc");
    return oq_fail_errno(err, ONQ_E_OPEN, errnum,
                         "external data '%.*s' in folder '%s' cannot be opened", OQ_STR(location),
                         d->path);
}

onq_code oq_dir_file(const oq_dir *d, const oq_dir *root, oq_str location, oq_file *f,
                     onq_error *err) {
    *f = (oq_file){.handle = OQ_NO_HANDLE, .alloc = d->alloc};
    if (root != NULL && root->path == NULL)
        root = NULL;
    OQ_TRY(check_text(location, err));
    char name[OQ_PATH_MAX];
    memcpy(name, location.p, location.n);
    name[location.n] = '\0';
    if (climbs_out(name))
        return refuse(err, location, "leaves the model's folder with '..'");

    const char *bad = oq_os_bad_location(name);
    if (bad != NULL)
        return refuse(err, location, bad);
    oq_handle h = oq_os_open_beneath(d->handle, name);
    if (h == OQ_NO_HANDLE && errno == EXDEV && root != NULL)
        h = open_in_root(d, root, name);
    if (h == OQ_NO_HANDLE)
        return refuse_open(err, d, location, errno, root != NULL);
    oq_file_info info;
    if (oq_os_info(h, &info) && info.kind == OQ_IS_FILE && info.links > 1) {
        /* A second name of some file anywhere on the disk, unless the folder is trusted. */
        oq_os_close(h);
        h = root != NULL ? open_in_root(d, root, name) : OQ_NO_HANDLE;
        if (h == OQ_NO_HANDLE)
            return refuse(err, location,
                          "is a hard link (its file has another name too); copy it, or allow its "
                          "folder with --data-root");
    }
    if (oq_os_info(h, &info) && info.kind != OQ_IS_FILE) {
        oq_os_close(h);
        return refuse(err, location, "is not a regular file");
    }
    const size_t dir_n = strlen(d->path);
    char path[2 * OQ_PATH_MAX];
    if (dir_n + 1 + location.n + 1 > sizeof path || strcmp(d->path, ".") == 0)
        return oq_file_map(f, d->alloc, h, name, err);
    memcpy(path, d->path, dir_n);
    path[dir_n] = '/';
    memcpy(path + dir_n + 1, name, location.n + 1);
    return oq_file_map(f, d->alloc, h, path, err);
}
