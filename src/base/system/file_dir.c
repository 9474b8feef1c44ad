/*
 * file_dir.c — external data: opening files beneath a folder and nowhere else. See file.h.
 *
 * A location is text from a model, so an enemy may have written it, and the folder may hold links
 * that came with the model. The kernel resolves it (openat2 with RESOLVE_BENEATH: no step may leave
 * the folder, RESOLVE_NO_MAGICLINKS: none through /proc); where that call is missing the same is
 * done by a walk from folder to folder. What is opened is then judged by fstat, so nothing can be
 * exchanged in between.
 */
#include "base/system/file.h"

#include "base/limits.h"
#include "base/system/file_map.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    OPEN_FLAGS = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
    MAX_LINKS = 40, /* as the kernel */
};

/* ---- folders ---- */

static onq_code dir_open(oq_dir *d, const onq_allocator *a, const char *path, size_t n,
                         onq_error *err) {
    *d = (oq_dir){.fd = -1, .alloc = a};
    char *copy = oq_alloc(a, n + 1);
    OQ_TRY_ALLOC(copy != NULL, err);
    memcpy(copy, path, n);
    copy[n] = '\0';
    const int fd = open(copy, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        const onq_code rc =
            oq_fail_errno(err, ONQ_E_OPEN, errno, "%s: the folder cannot be opened", copy);
        oq_free(a, copy, n + 1);
        return rc;
    }
    d->fd = fd;
    d->path = copy;
    d->path_size = n + 1;
    return ONQ_OK;
}

onq_code oq_dir_open(oq_dir *d, const onq_allocator *a, const char *path, onq_error *err) {
    return dir_open(d, a, path, strlen(path), err);
}

oq_str oq_path_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return OQ_S(".");
    return (oq_str){path, slash == path ? 1 : (size_t)(slash - path)};
}

bool oq_file_is_same(const char *a, const char *b) {
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

onq_code oq_dir_open_parent(oq_dir *d, const onq_allocator *a, const char *path, onq_error *err) {
    const oq_str folder = oq_path_folder(path);
    return dir_open(d, a, folder.p, folder.n, err);
}

void oq_dir_close(oq_dir *d) {
    if (d->path == NULL)
        return;
    close(d->fd);
    oq_free(d->alloc, (void *)(uintptr_t)d->path, d->path_size);
    *d = (oq_dir){.fd = -1, .alloc = d->alloc};
}

/* ---- the walk ---- */

/* A walk: the folders from the top to where it is, and the text that is still to be resolved. */
struct walk {
    int fds[OQ_MAX_FOLDER_DEPTH];
    size_t depth; /* fds[0..depth), the first one borrowed */
    unsigned links;
    char rest[PATH_MAX];
};

static void walk_pop(struct walk *w) {
    close(w->fds[--w->depth]);
}

/* Puts the text of link `name` before the rest. False with errno. */
static bool walk_link(struct walk *w, const char *name, const char *rest) {
    char text[PATH_MAX];
    const ssize_t n = readlinkat(w->fds[w->depth - 1], name, text, sizeof text);
    if (n < 0)
        return false;
    const size_t rest_n = strlen(rest);
    if (++w->links > MAX_LINKS) {
        errno = ELOOP;
        return false;
    }
    if (n > 0 && text[0] == '/') {
        errno = EXDEV;
        return false;
    }
    if (n == 0 || (size_t)n + 1 + rest_n + 1 > sizeof w->rest) {
        errno = n == 0 ? ENOENT : ENAMETOOLONG;
        return false;
    }
    memmove(w->rest + n + 1, rest, rest_n + 1);
    memcpy(w->rest, text, (size_t)n);
    w->rest[n] = '/';
    if (rest_n == 0)
        w->rest[n] = '\0';
    return true;
}

/* Enters folder `name`. False with errno. */
static bool walk_enter(struct walk *w, const char *name) {
    if (w->depth == OQ_MAX_FOLDER_DEPTH) {
        errno = ENAMETOOLONG;
        return false;
    }
    const int fd =
        openat(w->fds[w->depth - 1], name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return false;
    w->fds[w->depth++] = fd;
    return true;
}

/* One step. Returns a descriptor at the last one, -1 with errno 0 to go on, -1 with errno on
 * failure. */
static int walk_step(struct walk *w) {
    char name[NAME_MAX + 1];
    const char *p = w->rest + strspn(w->rest, "/");
    const size_t n = strcspn(p, "/");
    const char *rest = p + n + strspn(p + n, "/");
    const bool folder_wanted = p[n] == '/' && *rest == '\0';
    if (n > NAME_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(name, p, n);
    name[n] = '\0';
    if (strcmp(name, "..") == 0) {
        if (w->depth == 1) {
            errno = EXDEV;
            return -1;
        }
        walk_pop(w);
    } else if (n != 0 && strcmp(name, ".") != 0) {
        struct stat st;
        if (fstatat(w->fds[w->depth - 1], name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            return -1;
        if (S_ISLNK(st.st_mode)) {
            /* A slash after the link stays: what it leads to must be a folder then. */
            if (walk_link(w, name, folder_wanted ? "/" : rest))
                errno = 0;
            return -1;
        }
        if (*rest == '\0' && !folder_wanted)
            return openat(w->fds[w->depth - 1], name, OPEN_FLAGS | O_NOFOLLOW);
        if (!walk_enter(w, name))
            return -1;
    }
    /* In a folder now: it is what was asked for, or there is more to come. */
    if (*rest == '\0')
        return openat(w->fds[w->depth - 1], ".", OPEN_FLAGS);
    memmove(w->rest, rest, strlen(rest) + 1);
    errno = 0;
    return -1;
}

int oq_open_beneath_walk(int dir_fd, const char *location) {
    struct walk w = {.fds = {dir_fd}, .depth = 1};
    const size_t n = strlen(location);
    if (n == 0 || n >= sizeof w.rest) {
        errno = n == 0 ? ENOENT : ENAMETOOLONG;
        return -1;
    }
    if (location[0] == '/') {
        errno = EXDEV;
        return -1;
    }
    memcpy(w.rest, location, n + 1);
    int fd;
    do {
        fd = walk_step(&w);
    } while (fd < 0 && errno == 0);
    const int saved = errno;
    while (w.depth > 1)
        walk_pop(&w);
    errno = saved;
    return fd;
}

int oq_open_beneath(int dir_fd, const char *location) {
#if defined(SYS_openat2)
    const struct open_how how = {
        .flags = OPEN_FLAGS,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS,
    };
    /* EAGAIN: something was renamed during a step through `..`; the kernel asks to try again. */
    for (int tries = 0; tries < 8; tries++) {
        const long fd = syscall(SYS_openat2, dir_fd, location, &how, sizeof how);
        if (fd >= 0)
            return (int)fd;
        /* EPERM: what some containers answer for a call they do not know. */
        if (errno == ENOSYS || errno == EPERM)
            break;
        if (errno != EAGAIN && errno != EINTR)
            return -1;
    }
#endif
    return oq_open_beneath_walk(dir_fd, location);
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
    if (location.n >= PATH_MAX)
        return refuse(err, location, "has a location longer than a path may be");
    return ONQ_OK;
}

/* Opens `location` if, all links followed, it lies beneath `root`: -1 with errno EXDEV if not. */
static int open_in_root(const oq_dir *d, const oq_dir *root, const char *location) {
    char path[2 * PATH_MAX], real[PATH_MAX], top[PATH_MAX];
    const size_t dir_n = strlen(d->path), n = strlen(location);
    if (dir_n + 1 + n + 1 > sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(path, d->path, dir_n);
    path[dir_n] = '/';
    memcpy(path + dir_n + 1, location, n + 1);
    if (realpath(path, real) == NULL || realpath(root->path, top) == NULL)
        return -1;
    const size_t top_n = strcmp(top, "/") == 0 ? 0 : strlen(top);
    if (strncmp(real, top, top_n) != 0 || real[top_n] != '/') {
        errno = EXDEV;
        return -1;
    }
    /* Whatever changed since: this open cannot leave the root. */
    return oq_open_beneath(root->fd, real + top_n + 1);
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
    *f = (oq_file){.fd = -1, .alloc = d->alloc};
    if (root != NULL && root->path == NULL)
        root = NULL;
    OQ_TRY(check_text(location, err));
    char name[PATH_MAX];
    memcpy(name, location.p, location.n);
    name[location.n] = '\0';
    if (climbs_out(name))
        return refuse(err, location, "leaves the model's folder with '..'");

    int fd = oq_open_beneath(d->fd, name);
    if (fd < 0 && errno == EXDEV && root != NULL)
        fd = open_in_root(d, root, name);
    if (fd < 0)
        return refuse_open(err, d, location, errno, root != NULL);
    struct stat st;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink > 1) {
        /* A second name of some file anywhere on the disk, unless the folder is trusted. */
        close(fd);
        fd = root != NULL ? open_in_root(d, root, name) : -1;
        if (fd < 0)
            return refuse(err, location,
                          "is a hard link (its file has another name too); copy it, or allow its "
                          "folder with --data-root");
    }
    if (fstat(fd, &st) == 0 && !S_ISREG(st.st_mode)) {
        close(fd);
        return refuse(err, location, "is not a regular file");
    }
    const size_t dir_n = strlen(d->path);
    char path[2 * PATH_MAX];
    if (dir_n + 1 + location.n + 1 > sizeof path || strcmp(d->path, ".") == 0)
        return oq_file_map_fd(f, d->alloc, fd, name, err);
    memcpy(path, d->path, dir_n);
    path[dir_n] = '/';
    memcpy(path + dir_n + 1, name, location.n + 1);
    return oq_file_map_fd(f, d->alloc, fd, path, err);
}
