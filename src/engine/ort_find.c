/*
 * ort_find.c — where ONNX Runtime is, and its function table.
 *
 * Looked for in the order ort.h gives. A place that was named (argument, variable) is the only one
 * tried: silently taking another library than the one asked for would be worse than an error.
 */
#include "engine/ort_api.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LIBRARY "libonnxruntime.so"

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

/* Which of two names in one folder to take: the longer has the full version, then the later
 * version. */
static bool is_better_name(const char *a, const char *b) {
    if (b[0] == '\0')
        return true;
    return strverscmp(a, b) > 0;
}

/* The library in a folder; *out is NULL when it has none. */
static onq_code find_in_folder(search *s, const char *folder, const char **out, onq_error *err) {
    DIR *d = opendir(folder);
    *out = NULL;
    if (d == NULL && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
        return oq_fail_errno(err, ONQ_E_OPEN, errno, "folder '%s'", folder);
    if (d == NULL)
        return ONQ_OK;
    char best[256] = "";
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        const size_t n = strlen(e->d_name);
        const char next = strncmp(e->d_name, LIBRARY, sizeof LIBRARY - 1) == 0
                              ? e->d_name[sizeof LIBRARY - 1]
                              : 'x';
        if (n < sizeof best && (next == '\0' || next == '.') && is_better_name(e->d_name, best))
            memcpy(best, e->d_name, n + 1);
    }
    closedir(d);
    if (best[0] == '\0')
        return ONQ_OK;
    *out = oq_str_format(s->arena, "%s/%s", folder, best).p;
    return *out != NULL ? ONQ_OK : oq_fail_nomem(err);
}

static onq_code open_library(search *s, const char *path, onq_error *err) {
    s->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (s->handle == NULL) {
        const char *why = dlerror();
        return oq_fail(err, ONQ_E_RUNTIME, "ONNX Runtime '%s' cannot be loaded: %s", path,
                       why != NULL ? why : "no reason given");
    }
    s->path = path;
    return ONQ_OK;
}

/* A library or a folder that the user named; `who` is the option or the variable. */
static onq_code open_named(search *s, const char *path, const char *who, onq_error *err) {
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
        const char *found = NULL;
        OQ_TRY(find_in_folder(s, path, &found, err));
        if (found == NULL)
            return oq_fail(err, ONQ_E_RUNTIME, "%s: no %s* in the folder '%s'", who, LIBRARY, path);
        return open_library(s, found, err);
    }
    onq_code rc = open_library(s, path, err);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", who);
}

/* The path of the running program, or of this library when `own` is set, into text; false when
 * unknown. */
static bool home_path(bool own, char *text, size_t cap) {
    if (own) {
        Dl_info info;
        static const char mark = 0; /* any address inside the library will do */
        if (dladdr(&mark, &info) == 0 || info.dli_fname == NULL || strlen(info.dli_fname) >= cap)
            return false;
        memcpy(text, info.dli_fname, strlen(info.dli_fname) + 1);
        return true;
    }
    const ssize_t n = readlink("/proc/self/exe", text, cap - 1);
    if (n <= 0)
        return false;
    text[n] = '\0';
    return true;
}

/* Its folder, links resolved; *out is NULL when unknown. */
static onq_code home_folder(search *s, bool own, const char **out, onq_error *err) {
    char text[4096];
    *out = NULL;
    char *real = home_path(own, text, sizeof text) ? realpath(text, NULL) : NULL;
    const char *slash = real != NULL ? strrchr(real, '/') : NULL;
    onq_code rc = ONQ_OK;
    if (slash != NULL) {
        *out = oq_arena_strdup(s->arena, real, slash == real ? 1 : (size_t)(slash - real));
        rc = *out != NULL ? ONQ_OK : oq_fail_nomem(err);
    }
    free(real);
    return rc;
}

/* Where set-up and installation put it, seen from the program and from the library. */
static onq_code open_installed(search *s, onq_error *err) {
    static const char *const places[] = {"runtime", "onq", "../lib/onq", "../onq"};
    const char *last = NULL;
    for (int own = 0; own < 2; own++) {
        const char *home = NULL;
        OQ_TRY(home_folder(s, own == 1, &home, err));
        if (home == NULL || (last != NULL && strcmp(home, last) == 0))
            continue;
        last = home;
        for (size_t i = 0; i < OQ_COUNT(places); i++) {
            const char *folder = oq_str_format(s->arena, "%s/%s", home, places[i]).p;
            if (folder == NULL)
                return oq_fail_nomem(err);
            const char *found = NULL;
            OQ_TRY(find_in_folder(s, folder, &found, err));
            if (found != NULL)
                return open_library(s, found, err);
            note_tried(s, folder);
        }
    }
    return ONQ_OK;
}

static void open_from_loader(search *s) {
    static const char *const names[] = {LIBRARY "." OQ_ORT_RELEASE_TEXT, LIBRARY ".1", LIBRARY};
    for (size_t i = 0; i < OQ_COUNT(names) && s->handle == NULL; i++) {
        s->handle = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        s->path = names[i];
    }
    if (s->handle == NULL)
        note_tried(s, "the loader's path");
}

static onq_code find_library(search *s, const char *path, onq_error *err) {
    if (path != NULL && path[0] != '\0')
        return open_named(s, path, "--onnxruntime", err);
    const char *variable = getenv("ONQ_ONNXRUNTIME");
    if (variable != NULL && variable[0] != '\0')
        return open_named(s, variable, "ONQ_ONNXRUNTIME", err);
    OQ_TRY(open_installed(s, err));
    if (s->handle == NULL)
        open_from_loader(s);
    if (s->handle != NULL)
        return ONQ_OK;
    return oq_fail(err, ONQ_E_RUNTIME,
                   "ONNX Runtime was not found: no " LIBRARY " in %.500s (run make setup; or "
                   "`pip download --no-deps onnxruntime==" OQ_ORT_RELEASE_TEXT
                   "`, unzip the wheel, and "
                   "name onnxruntime/capi/" LIBRARY "." OQ_ORT_RELEASE_TEXT
                   " with --onnxruntime or ONQ_ONNXRUNTIME)",
                   s->tried.p != NULL ? s->tried.p : "");
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
    void *symbol = dlsym(s->handle, "OrtGetApiBase");
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
