/*
 * os_beneath.c — opening a file beneath a folder by a walk from folder to folder. See os_posix.h.
 */
#include "base/os/os_posix.h"

#include "base/limits.h"

#include <unistd.h>

enum { MAX_LINKS = 40 }; /* as the kernel */

/* A walk: the folders from the top to where it is, and the text that is still to be resolved. */
struct walk {
    int fds[OQ_MAX_FOLDER_DEPTH];
    size_t depth; /* fds[0..depth), the first one borrowed */
    unsigned links;
    char rest[OQ_PATH_MAX];
};

static void walk_pop(struct walk *w) {
    close(w->fds[--w->depth]);
}

/* Puts the text of link `name` before the rest. False with errno. */
static bool walk_link(struct walk *w, const char *name, const char *rest) {
    char text[OQ_PATH_MAX];
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
    const int fd = openat(w->fds[w->depth - 1], name, oq_posix_folder_flags | O_NOFOLLOW);
    if (fd < 0)
        return false;
    w->fds[w->depth++] = fd;
    return true;
}

/* One step. Returns a descriptor at the last one, -1 with errno 0 to go on, -1 with errno on
 * failure. */
static int walk_step(struct walk *w) {
    char name[OQ_NAME_MAX + 1];
    const char *p = w->rest + strspn(w->rest, "/");
    const size_t n = strcspn(p, "/");
    const char *rest = p + n + strspn(p + n, "/");
    const bool folder_wanted = p[n] == '/' && *rest == '\0';
    if (n > OQ_NAME_MAX) {
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
            return openat(w->fds[w->depth - 1], name, OQ_POSIX_READ | O_NOFOLLOW);
        if (!walk_enter(w, name))
            return -1;
    }
    /* In a folder now: it is what was asked for, or there is more to come. */
    if (*rest == '\0')
        return openat(w->fds[w->depth - 1], ".", OQ_POSIX_READ);
    memmove(w->rest, rest, strlen(rest) + 1);
    errno = 0;
    return -1;
}

oq_handle oq_os_open_beneath_walk(oq_handle folder, const char *location) {
    struct walk w = {.fds = {(int)folder}, .depth = 1};
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
