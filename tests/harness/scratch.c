/*
 * scratch.c — see scratch.h.
 */
#include "scratch.h"

#include "testing.h"

#include "base/os.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void scratch_init(scratch *s) {
    char room[OQ_PATH_MAX];
    *s = (scratch){0};
    assert_true(asprintf(&s->dir, "%s/onq-test-XXXXXX", oq_os_temp_root(room)) > 0);
    assert_true(oq_os_make_temp_folder(s->dir));
}

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st;
    (void)at;
    /* A test may have taken the permissions of a folder. */
    if (kind == FTW_DP)
        chmod(path, 0700);
    return remove(path);
}

void scratch_remove(scratch *s) {
    nftw(s->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    for (size_t i = 0; i < s->n_paths; i++)
        free(s->paths[i]);
    free(s->paths);
    free(s->dir);
    *s = (scratch){0};
}

int scratch_setup(void **state) {
    static scratch s;
    scratch_init(&s);
    *state = &s;
    return 0;
}

int scratch_teardown(void **state) {
    scratch_remove(*state);
    return 0;
}

const char *scratch_path(scratch *s, const char *name) {
    char *path = NULL;
    assert_true(asprintf(&path, "%s/%s", s->dir, name) > 0);
    s->paths = realloc(s->paths, (s->n_paths + 1) * sizeof *s->paths);
    assert_non_null(s->paths);
    s->paths[s->n_paths++] = path;
    return path;
}

const char *scratch_file(scratch *s, const char *name, const void *p, size_t n) {
    const char *path = scratch_path(s, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    if (p == NULL)
        assert_int_equal(ftruncate(fileno(f), (off_t)n), 0);
    else
        assert_int_equal(fwrite(p, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
    return path;
}

const char *scratch_dir(scratch *s, const char *name) {
    const char *path = scratch_path(s, name);
    assert_true(oq_os_make_folder(path));
    return path;
}

const char *scratch_link(scratch *s, const char *name, const char *target) {
    const char *path = scratch_path(s, name);
#ifdef _WIN32 /* not every user may make one there */
    (void)target;
    skip();
#else
    assert_int_equal(symlink(target, path), 0);
#endif
    return path;
}

bool file_holds(const char *path, const void *p, size_t n) {
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return false;
    char *got = malloc(n + 1);
    assert_non_null(got);
    const bool same = fread(got, 1, n + 1, f) == n && (n == 0 || memcmp(got, p, n) == 0);
    free(got);
    fclose(f);
    return same;
}

size_t entry_count(const char *dir) {
    DIR *d = opendir(dir);
    assert_non_null(d);
    size_t n = 0;
    while (readdir(d) != NULL)
        n++;
    closedir(d);
    return n - 2; /* . and .. */
}
