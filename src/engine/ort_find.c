/*
 * ort_find.c — where ONNX Runtime is, and its function table.
 *
 * Looked for in the order ort.h gives. A place that was named (argument, variable) is the only one
 * tried: silently taking another library than the one asked for would be worse than an error.
 */
#include "engine/ort_api.h"

#include "base/system/file.h"

#include <ctype.h>

typedef struct search {
    oq_arena *arena;
    oq_buf tried; /* for the error: what was looked at, separated by ", " */
    void *handle;
    const char *path;
} search;

static void note_tried(search *s, const char *what) {
    if (s->tried.n > 0)
        oq_buf_adds(&s->tried, ", ");
    oq_buf_adds(&s->tried, what);
}

bool oq_ort_is_later(const char *a, const char *b) {
    while (*a != '\0' && *b != '\0') {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            char *a_end, *b_end;
            const unsigned long x = strtoul(a, &a_end, 10), y = strtoul(b, &b_end, 10);
            if (x != y)
                return x > y;
            a = a_end;
            b = b_end;
        } else if (*a != *b) {
            return *a > *b;
        } else {
            a++;
            b++;
        }
    }
    return *a != '\0';
}

bool oq_ort_is_library(const char *name) {
    const oq_str all = oq_str_of(name), stem = oq_str_of(oq_os_runtime.stem),
                 tail = oq_str_of(oq_os_runtime.tail);
    return all.n >= stem.n + tail.n && oq_str_starts(all, stem) && oq_str_ends(all, tail) &&
           (all.n == stem.n + tail.n || name[stem.n] == '.');
}

/* The library in a folder; *out is NULL when it has none. */
static onq_code find_in_folder(search *s, const char *folder, const char **out, onq_error *err) {
    oq_listing *l = oq_os_list(folder);
    *out = NULL;
    if (l == NULL && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        return oq_fail_errno(err, ONQ_E_OPEN, errno, "folder '%s'", folder);
    if (l == NULL)
        return ONQ_OK;
    char best[OQ_NAME_MAX + 1] = "";
    for (const char *name = oq_os_list_next(l); name != NULL; name = oq_os_list_next(l))
        if (strlen(name) < sizeof best && oq_ort_is_library(name) && oq_ort_is_later(name, best))
            memcpy(best, name, strlen(name) + 1);
    oq_os_list_close(l);
    if (best[0] == '\0')
        return ONQ_OK;
    *out = oq_path_join(s->arena, folder, best);
    return *out != NULL ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code open_library(search *s, const char *path, onq_error *err) {
    char why[512];
    if (!oq_library_is_whole(path))
        return oq_fail(err, ONQ_E_RUNTIME,
                       "ONNX Runtime '%s' cannot be loaded: it is damaged: the file ends before "
                       "the library does",
                       path);
    s->handle = oq_os_library(path, why, sizeof why);
    if (s->handle == NULL) {
        const char *machine = oq_library_machine(path);
        if (machine != NULL && machine[0] == '\0')
            return oq_fail(err, ONQ_E_RUNTIME, "'%s' cannot be loaded: it is not a library", path);
        if (machine != NULL && strcmp(machine, oq_library_here()) != 0)
            return oq_fail(err, ONQ_E_RUNTIME,
                           "ONNX Runtime '%s' cannot be loaded: it is a library for %s, and this "
                           "onq is for %s",
                           path, machine, oq_library_here());
        return oq_fail(err, ONQ_E_RUNTIME, "ONNX Runtime '%s' cannot be loaded: %s", path, why);
    }
    s->path = path;
    return ONQ_OK;
}

/* A library or a folder that the user named; `who` is the option or the variable. */
static onq_code open_named(search *s, const char *path, const char *who, onq_error *err) {
    if (oq_os_is_folder(path)) {
        const char *found = NULL;
        OQ_TRY(find_in_folder(s, path, &found, err));
        if (found == NULL)
            return oq_fail(err, ONQ_E_RUNTIME, "%s: no %s* in the folder '%s'", who,
                           oq_os_runtime.stem, path);
        return open_library(s, found, err);
    }
    oq_file_info info;
    const bool there = oq_os_info_of(path, &info);
    if (there && info.kind != OQ_IS_FILE) /* the loader would wait for a FIFO */
        return oq_fail(err, ONQ_E_RUNTIME, "%s: '%s' cannot be loaded: it is not a file", who,
                       path);
    if (there && oq_path_last(path) == path) { /* the loader would look elsewhere */
        path = oq_path_join(s->arena, ".", path);
        OQ_TRY_ALLOC(path != NULL, err);
    }
    onq_code rc = open_library(s, path, err);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", who);
}

/* The folder of the running program, or of this library when `own` is set, links resolved; *out is
 * NULL when unknown. */
static onq_code home_folder(search *s, bool own, const char **out, onq_error *err) {
    static const char mark = 0; /* any address inside the library will do */
    char text[OQ_PATH_MAX], real[OQ_PATH_MAX];
    *out = NULL;
    if (!(own ? oq_os_library_path(&mark, text) : oq_os_program_path(text)) ||
        !oq_os_real_path(text, real))
        return ONQ_OK;
    const oq_str folder = oq_path_folder(real);
    *out = oq_arena_strdup(s->arena, folder.p, folder.n);
    return *out != NULL ? ONQ_OK : oq_fail_nomem(err);
}

/* Where set-up and installation put it, seen from the program and from the library. */
static onq_code open_installed(search *s, onq_error *err) {
    const char *const *places = oq_os_runtime.places;
    const char *last = NULL;
    for (int own = 0; own < 2; own++) {
        const char *home = NULL;
        OQ_TRY(home_folder(s, own == 1, &home, err));
        if (home == NULL || (last != NULL && strcmp(home, last) == 0))
            continue;
        last = home;
        for (size_t i = 0; places[i] != NULL; i++) {
            const char *folder = oq_path_join(s->arena, home, places[i]);
            OQ_TRY_ALLOC(folder != NULL, err);
            const char *found = NULL;
            OQ_TRY(find_in_folder(s, folder, &found, err));
            if (found != NULL)
                return open_library(s, found, err);
            note_tried(s, folder);
        }
    }
    return ONQ_OK;
}

static onq_code open_from_loader(search *s, onq_error *err) {
    static const char *const versions[] = {("." OQ_ORT_RELEASE_TEXT), ".1", ""};
    for (size_t i = 0; i < OQ_COUNT(versions) && s->handle == NULL; i++) {
        s->path =
            oq_str_format(s->arena, "%s%s%s", oq_os_runtime.stem, versions[i], oq_os_runtime.tail)
                .p;
        OQ_TRY_ALLOC(s->path != NULL, err);
        s->handle = oq_os_library(s->path, NULL, 0);
    }
    if (s->handle == NULL)
        note_tried(s, "the loader's path");
    return ONQ_OK;
}

static onq_code find_library(search *s, const char *path, onq_error *err) {
    if (path != NULL && path[0] != '\0')
        return open_named(s, path, "--onnxruntime", err);
    const char *variable = getenv("ONQ_ONNXRUNTIME");
    if (variable != NULL && variable[0] != '\0')
        return open_named(s, variable, "ONQ_ONNXRUNTIME", err);
    OQ_TRY(open_installed(s, err));
    if (s->handle == NULL && oq_os_runtime.loader)
        OQ_TRY(open_from_loader(s, err));
    if (s->handle != NULL)
        return ONQ_OK;
    char file[64];
    snprintf(file, sizeof file, "%s%s%s", oq_os_runtime.stem,
             oq_os_runtime.versioned ? "." OQ_ORT_RELEASE_TEXT : "", oq_os_runtime.tail);
    return oq_fail(err, ONQ_E_RUNTIME,
                   "ONNX Runtime was not found: no %s%s in %.500s (run make setup; or `pip "
                   "download --no-deps onnxruntime==" OQ_ORT_RELEASE_TEXT
                   "`, unzip the wheel, and name onnxruntime/capi/%s with --onnxruntime or "
                   "ONQ_ONNXRUNTIME)",
                   oq_os_runtime.stem, oq_os_runtime.tail, s->tried.p != NULL ? s->tried.p : "",
                   file);
}

/* The runtime's entry point: two functions, the table and the version. */
typedef struct api_base {
    const void *(*get_api)(uint32_t version);
    const char *(*get_version)(void);
} api_base;

/* "1.31.1" -> 31; -1 when it is not of that form. */
static long minor_version(const char *text) {
    if (text == NULL || strncmp(text, "1.", 2) != 0)
        return -1;
    char *end = NULL;
    const long n = strtol(text + 2, &end, 10);
    return end != text + 2 && (*end == '.' || *end == '\0') ? n : -1;
}

static onq_code take_table(search *s, oq_ort_api *api, onq_error *err) {
    typedef const api_base *(*entry_fn)(void);
    entry_fn entry = NULL;
    void *symbol = oq_os_symbol(s->handle, "OrtGetApiBase");
    memcpy(&entry, &symbol, sizeof entry);
    const api_base *base = entry != NULL ? entry() : NULL;
    if (base == NULL)
        return oq_fail(err, ONQ_E_RUNTIME, "'%s' is not ONNX Runtime: it has no OrtGetApiBase",
                       s->path);
    api->path = s->path;
    api->version = base->get_version();
    /* Asking an old runtime for a table it does not have would make it print. */
    api->minor = minor_version(api->version);
    const void *table = NULL;
    if (api->minor < 0 || api->minor >= OQ_ORT_API)
        table = base->get_api(OQ_ORT_API);
    if (table == NULL && api->minor < 0)
        return oq_fail(
            err, ONQ_E_RUNTIME,
            "ONNX Runtime %.40s in '%s' is too new: onq knows the functions of 1.x (it is "
            "tested with " OQ_ORT_RELEASE_TEXT ")",
            api->version != NULL ? api->version : "of an unknown version", s->path);
    if (table == NULL)
        return oq_fail(err, ONQ_E_RUNTIME,
                       "ONNX Runtime %s in '%s' is too old: onq needs " OQ_ORT_API_TEXT
                       " or later (it is tested with " OQ_ORT_RELEASE_TEXT ")",
                       api->version, s->path);
    typedef void (*any_fn)(void);
    const any_fn *slots = table, *later;
#define TAKE(slot, name)                         memcpy(&api->name, &slots[slot], sizeof api->name);
#define OQ_ORT(slot, name, params)               TAKE(slot, name)
#define OQ_ORT_RELEASE(slot, name, type)         TAKE(slot, name)
#define OQ_ORT_OTHER(slot, result, name, params) TAKE(slot, name)
#define OQ_ORT_LATER(from, slot, name, params)                                                     \
    later = api->minor >= (from) ? base->get_api(from) : NULL;                                     \
    if (later != NULL)                                                                             \
        memcpy(&api->name, &later[slot], sizeof api->name);
#include "engine/ort_api.def"
#undef OQ_ORT
#undef OQ_ORT_RELEASE
#undef OQ_ORT_OTHER
#undef OQ_ORT_LATER
#undef TAKE
    return ONQ_OK;
}

onq_code oq_ort_load(oq_arena *arena, const char *path, oq_ort_api *api, onq_error *err) {
    search s = {.arena = arena};
    oq_buf_init(&s.tried, arena->alloc);
    onq_code rc = find_library(&s, path, err);
    if (rc == ONQ_OK)
        rc = take_table(&s, api, err);
    if (rc == ONQ_OK) {
        api->path = oq_arena_strdup(arena, s.path, strlen(s.path));
        if (api->path == NULL)
            rc = oq_fail_nomem(err);
    }
    oq_buf_release(&s.tried);
    return rc;
}
