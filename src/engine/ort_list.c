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

typedef struct machine {
    unsigned number;
    const char *name;
} machine;

static const char *named(const machine *known, size_t n, unsigned number) {
    for (size_t i = 0; i < n; i++)
        if (known[i].number == number)
            return known[i].name;
    return "another machine";
}

static const char *elf_machine(const unsigned char *head) {
    static const machine known[] = {
        {3, "i386"}, {40, "arm"}, {62, "x86-64"}, {183, "aarch64"}, {243, "riscv"}};
    if (oq_os_runtime.tail[0] != '\0') /* here is another system */
        return "Linux";
    return named(known, OQ_COUNT(known), head[18] + 256u * head[19]);
}

/* The header of a DLL is where the number at 60 says. */
static const char *dll_machine(oq_handle h, const unsigned char *head) {
    static const machine known[] = {
        {0x8664, "Windows"}, {0xaa64, "Windows on Arm"}, {0x14c, "32-bit Windows"}};
    const uint64_t at = head[60] + 256u * head[61] + 65536u * head[62];
    unsigned char pe[6] = {0};
    if (oq_os_read_at(h, pe, sizeof pe, at) != sizeof pe || memcmp(pe, "PE\0\0", 4) != 0)
        return "";
    return named(known, OQ_COUNT(known), pe[4] + 256u * pe[5]);
}

const char *oq_library_machine(const char *path) {
    unsigned char head[64] = {0};
    const oq_handle h = oq_os_open(path);
    const char *found = "";
    if (h == OQ_NO_HANDLE)
        return NULL;
    const int64_t n = oq_os_read_at(h, head, sizeof head, 0);
    if (n < 0)
        found = NULL;
    else if (n >= 20 && memcmp(head, "\177ELF", 4) == 0)
        found = elf_machine(head);
    else if (memcmp(head, "MZ", 2) == 0)
        found = dll_machine(h, head);
    else if (memcmp(head, "\xcf\xfa\xed\xfe", 4) == 0)
        found = head[4] == 7 ? "macOS on Intel" : "macOS";
    else if (memcmp(head, "\xca\xfe\xba\xbe", 4) == 0)
        found = "macOS";
    oq_os_close(h);
    return found;
}

/* ---- whether all of it is there ---- */

/* What an ELF file of 64 bits says of the parts that the loader maps. */
typedef struct elf_parts {
    uint64_t at;   /* of the table of parts */
    uint16_t size; /* of a row of it */
    uint16_t n;
} elf_parts;

static bool part_is_whole(oq_handle h, uint64_t at, uint64_t size) {
    enum { MAPPED = 1 };
    struct {
        uint32_t kind, flags;
        uint64_t at, address, unused, n;
    } part;
    uint64_t end = 0;
    const int64_t n = oq_os_read_at(h, &part, sizeof part, at);
    return n < 0 || /* the loader says what it cannot read */
           (n == sizeof part &&
            (part.kind != MAPPED || (oq_add(part.at, part.n, &end) && end <= size)));
}

bool oq_library_is_whole(const char *path) {
    unsigned char head[64];
    oq_file_info info;
    elf_parts parts;
    bool whole = true;
    const oq_handle h = oq_os_open(path);
    if (h == OQ_NO_HANDLE)
        return true;
    if (oq_os_info(h, &info) && oq_os_read_at(h, head, sizeof head, 0) == sizeof head &&
        memcmp(head, "\177ELF\2", 5) == 0) {
        memcpy(&parts.at, head + 32, sizeof parts.at);
        memcpy(&parts.size, head + 54, sizeof parts.size);
        memcpy(&parts.n, head + 56, sizeof parts.n);
        for (uint16_t i = 0; i < parts.n && whole; i++)
            whole = part_is_whole(h, parts.at + (uint64_t)i * parts.size, info.size);
    }
    oq_os_close(h);
    return whole;
}
