/*
 * shrink_shim.c — preloaded into onq by shrink.sh: right after a file called $SHRINK_NAME is mapped
 * it is cut to $SHRINK_SIZE bytes, as if its writer had begun anew.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static void shrink(int fd) {
    const char *name = getenv("SHRINK_NAME"), *size = getenv("SHRINK_SIZE");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    if (n <= 0 || name == NULL || size == NULL)
        return;
    path[n] = '\0';
    const char *slash = strrchr(path, '/');
    if (slash != NULL && strcmp(slash + 1, name) == 0 && truncate(path, atol(size)) != 0)
        abort();
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    void *p = (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
    if (fd >= 0 && p != MAP_FAILED)
        shrink(fd);
    return p;
}
