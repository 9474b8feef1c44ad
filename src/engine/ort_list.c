/*
 * ort_list.c — which files are meant by a path that names runtimes, and what a file is that the
 * loader does not take.
 */
#include "base/os.h"
#include "base/system/file.h"
#include "engine/ort_api.h"

#include <errno.h>
#include <stdlib.h>

#define DEPTH 4 /* of folders: a wheel has its library two folders down */

typedef struct listing {
    oq_arena *arena;
    oq_strs *out;
} listing;

/* One name for each file: links beside a library are other names of it. */
static onq_code add_file(const listing *l, const char *path, onq_error *err) {
    char real[OQ_PATH_MAX];
    const oq_str found = oq_str_of(oq_os_real_path(path, real) ? real : path);
    for (size_t i = 0; i < l->out->n; i++)
        if (oq_str_eq(l->out->v[i], found))
            return ONQ_OK;
    const char *copy = oq_arena_strdup(l->arena, found.p, found.n);
    return copy != NULL && OQ_PUSH(l->arena, l->out, oq_str_of(copy)) ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code add_folder(const listing *l, const char *folder, int depth, onq_error *err) {
    onq_code rc = ONQ_OK;
    oq_listing *names = oq_os_list(folder);
    if (names == NULL)
        return oq_fail_errno(err, ONQ_E_OPEN, errno, "folder '%s'", folder);
    for (const char *name; rc == ONQ_OK && (name = oq_os_list_next(names)) != NULL;) {
        const char *path = oq_path_join(l->arena, folder, name);
        if (path == NULL)
            rc = oq_fail_nomem(err);
        else if (oq_ort_is_library(name))
            rc = add_file(l, path, err);
        else if (depth < DEPTH && name[0] != '.' && oq_os_is_folder(path))
            rc = add_folder(l, path, depth + 1, err);
    }
    oq_os_list_close(names);
    return rc;
}

static int compare(const void *a, const void *b) {
    const oq_str *x = a, *y = b;
    return oq_ort_is_later(x->p, y->p) - oq_ort_is_later(y->p, x->p);
}

onq_code oq_ort_list(oq_arena *arena, const char *path, oq_strs *out, onq_error *err) {
    const listing l = {arena, out};
    const size_t first = out->n;
    if (!oq_os_is_folder(path)) {
        const char *copy = oq_arena_strdup(arena, path, strlen(path));
        return copy != NULL && OQ_PUSH(arena, out, oq_str_of(copy)) ? ONQ_OK : oq_fail_nomem(err);
    }
    OQ_TRY(add_folder(&l, path, 0, err));
    if (out->n == first)
        return oq_fail(err, ONQ_E_RUNTIME, "--onnxruntime: no ONNX Runtime is in the folder '%s'",
                       path);
    qsort(out->v + first, out->n - first, sizeof *out->v, compare);
    return ONQ_OK;
}

/* ---- what a file is ---- */

const char *oq_library_here(void) {
    if (strcmp(oq_os_runtime.tail, ".dll") == 0)
        return "Windows";
    if (strcmp(oq_os_runtime.tail, ".dylib") == 0)
        return "macOS";
#if defined(__x86_64__)
    return "x86-64";
#elif defined(__aarch64__)
    return "aarch64";
#else
    return "another machine";
#endif
}

const char *oq_library_machine(const char *path) {
    static const struct {
        unsigned number;
        const char *name;
    } machines[] = {{3, "i386"}, {40, "arm"}, {62, "x86-64"}, {183, "aarch64"}, {243, "riscv"}};
    unsigned char head[20] = {0};
    const oq_handle h = oq_os_open(path);
    if (h == OQ_NO_HANDLE)
        return NULL;
    const bool was_read = oq_os_read(h, head, sizeof head) >= 0;
    oq_os_close(h);
    if (!was_read)
        return NULL;
    if (memcmp(head, "\177ELF", 4) == 0) {
        const unsigned number = head[18] + 256u * head[19];
        for (size_t i = 0; i < OQ_COUNT(machines); i++)
            if (machines[i].number == number)
                return machines[i].name;
        return "another machine";
    }
    if (memcmp(head, "MZ", 2) == 0)
        return "Windows";
    if (memcmp(head, "\xcf\xfa\xed\xfe", 4) == 0 || memcmp(head, "\xca\xfe\xba\xbe", 4) == 0)
        return "macOS";
    return "";
}
