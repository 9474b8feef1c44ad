/*
 * source_open.c — what --data means: a folder, a file, samples that are made up, or the folder of
 * the model, and the reader that each of them needs.
 */
#include "samples/source_private.h"

#include "base/keyed.h"

#include <errno.h>
#include <stdlib.h>
#include <strings.h>

/* ---- folders ---- */

static onq_code folder_list(oq_arena *a, const char *path, oq_folder *out, onq_error *err) {
    oq_listing *l = oq_os_list(path);
    if (l == NULL)
        return oq_fail_errno(err, ONQ_E_OPEN, errno, "%s: the folder cannot be read", path);
    OQ_VEC(const char *) names = {0};
    onq_code rc = ONQ_OK;
    const char *name;
    while (rc == ONQ_OK && (name = oq_os_list_next(l)) != NULL) {
        const char *copy = name[0] != '.' ? oq_arena_strdup(a, name, strlen(name)) : NULL;
        if (name[0] != '.' && (copy == NULL || !OQ_PUSH(a, &names, copy)))
            rc = oq_fail_nomem(err);
    }
    if (rc == ONQ_OK && errno != 0)
        rc = oq_fail_errno(err, ONQ_E_READ, errno, "%s: the folder cannot be read", path);
    oq_os_list_close(l);
    if (names.n > 1)
        qsort(names.v, names.n, sizeof *names.v, oq_by_text);
    *out = (oq_folder){path, names.v, names.n};
    return rc;
}

bool oq_name_ends(const char *name, const char *end) {
    const size_t n = strlen(name), m = strlen(end);
    return n >= m && strcasecmp(name + n - m, end) == 0;
}

static bool is_image(const char *name) {
    return oq_name_ends(name, ".jpg") || oq_name_ends(name, ".jpeg") || oq_name_ends(name, ".png");
}

static bool is_npz(const char *name) {
    return oq_name_ends(name, ".npz");
}

static bool is_npy(const char *name) {
    return oq_name_ends(name, ".npy");
}

static bool is_set(const char *name) {
    return strncmp(name, "test_data_set_", 14) == 0;
}

static bool is_first_input(const char *name) {
    return strcmp(name, "input_0.pb") == 0;
}

static size_t count_if(const oq_folder *f, bool (*is)(const char *)) {
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++)
        n += is(f->v[i]);
    return n;
}

static onq_code pick_paths(const oq_reader_setup *s, const oq_folder *f, bool (*is)(const char *),
                           const char *const **out, size_t *n, onq_error *err) {
    const char **v = OQ_NEW_ARRAY(s->arena, const char *, f->n + 1);
    OQ_TRY_ALLOC(v != NULL, err);
    *n = 0;
    for (size_t i = 0; i < f->n; i++) {
        if (!is(f->v[i]))
            continue;
        v[*n] = oq_path_join(s->arena, f->path, f->v[i]);
        if (v[(*n)++] == NULL)
            return oq_fail_nomem(err);
    }
    *out = v;
    return ONQ_OK;
}

/* ---- what --data says ---- */

/* The file of an input in a folder of .npy files: its name, slashes as underscores. */
static onq_code open_npy_folder(const oq_reader_setup *s, const oq_folder *f, oq_reader **out,
                                onq_error *err) {
    const char **paths = OQ_NEW_ARRAY(s->arena, const char *, s->inputs.n + 1);
    OQ_TRY_ALLOC(paths != NULL, err);
    for (size_t i = 0; i < s->inputs.n; i++) {
        const oq_str input = s->inputs.v[i].name;
        const oq_str file = oq_str_cat(s->arena, input, OQ_S(".npy"));
        char *text = oq_arena_strdup(s->arena, file.p, file.p != NULL ? file.n : 0);
        OQ_TRY_ALLOC(file.p != NULL && text != NULL, err);
        for (char *p = text; *p != '\0'; p++)
            if (*p == '/')
                *p = '_';
        bool found = false;
        for (size_t k = 0; k < f->n; k++)
            found = found || strcmp(f->v[k], text) == 0;
        if (!found && oq_may_lack(s->o, i))
            continue;
        if (!found)
            return oq_fail(err, ONQ_E_INVALID, "%s: no file '%s' for input '%.*s'", f->path, text,
                           OQ_STR(input));
        paths[i] = oq_path_join(s->arena, f->path, text);
        OQ_TRY_ALLOC(paths[i] != NULL, err);
    }
    return oq_reader_open_npy(s, paths, out, err);
}

/* The folders in a folder that has no samples of its own. */
static onq_code open_folders(const oq_reader_setup *s, const oq_folder *f, oq_reader **out,
                             onq_error *err) {
    const char **paths = OQ_NEW_ARRAY(s->arena, const char *, f->n + 1);
    size_t n = 0;
    OQ_TRY_ALLOC(paths != NULL, err);
    for (size_t i = 0; i < f->n; i++) {
        paths[n] = oq_path_join(s->arena, f->path, f->v[i]);
        OQ_TRY_ALLOC(paths[n] != NULL, err);
        n += oq_os_is_folder(paths[n]);
    }
    if (n > 0 && s->o->may_lack != NULL)
        return oq_reader_open_sequences(s, f->path, paths, n, out, err);
    return oq_fail(
        err, ONQ_E_INVALID,
        "%s: no samples in it (wanted: test_data_set_* folders, JPEG or PNG images, .npz or .npy "
        "files; other folders in it are not searched%s)",
        f->path, n > 0 ? ", for the model has no states that sequences could carry" : "");
}

onq_code oq_reader_open_folder(const oq_reader_setup *s, const char *path, oq_reader **out,
                               onq_error *err) {
    oq_folder f;
    OQ_TRY(folder_list(s->arena, path, &f, err));
    if (count_if(&f, is_set) > 0)
        return oq_reader_open_sets(s, &f, out, err);
    if (count_if(&f, is_first_input) > 0)
        return oq_reader_open_set(s, path, out, err);
    const char *const *paths = NULL;
    size_t n = 0;
    const size_t npz = count_if(&f, is_npz), npy = count_if(&f, is_npy),
                 images = count_if(&f, is_image);
    if ((npz > 0) + (npy > 0) + (images > 0) > 1)
        return oq_fail(err, ONQ_E_INVALID,
                       "%s: holds %zu .npz, %zu .npy and %zu image files: which of them are the "
                       "samples? (put them in folders of their own)",
                       path, npz, npy, images);
    if (npz > 0) {
        OQ_TRY(pick_paths(s, &f, is_npz, &paths, &n, err));
        return oq_reader_open_npz(s, paths, n, out, err);
    }
    if (npy > 0)
        return open_npy_folder(s, &f, out, err);
    if (images > 0) {
        OQ_TRY(pick_paths(s, &f, is_image, &paths, &n, err));
        onq_code rc = oq_reader_open_images(s, paths, n, out, err);
        return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", path);
    }
    return open_folders(s, &f, out, err);
}

static onq_code open_file(const oq_reader_setup *s, const char *path, oq_reader **out,
                          onq_error *err) {
    const char **one = OQ_NEW_ARRAY(s->arena, const char *, 2);
    OQ_TRY_ALLOC(one != NULL, err);
    one[0] = path;
    if (is_npz(path))
        return oq_reader_open_npz(s, one, 1, out, err);
    if (is_image(path)) {
        onq_code rc = oq_reader_open_images(s, one, 1, out, err);
        return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", path);
    }
    if (!is_npy(path))
        return oq_fail(err, ONQ_E_INVALID,
                       "%s: not a source of samples (a folder, .npz, .npy, .tar, JPEG, PNG, "
                       "exec:COMMAND or random:N[:SEED])",
                       path);
    if (s->inputs.n != 1)
        return oq_fail(
            err, ONQ_E_INVALID,
            "%s: one .npy file feeds one input, the model has %zu (use an .npz file, or a folder "
            "with one .npy for each)",
            path, s->inputs.n);
    return oq_reader_open_npy(s, one, out, err);
}

/* random:N[:SEED] */
static onq_code open_random(const oq_reader_setup *s, const char *spec, oq_reader **out,
                            onq_error *err) {
    const char *n_text = spec + sizeof "random:" - 1;
    const char *colon = strchr(n_text, ':');
    int64_t n = 0, seed = 0;
    const oq_str count = {n_text, colon != NULL ? (size_t)(colon - n_text) : strlen(n_text)};
    if (!oq_str_to_i64(count, &n) || n < 1 ||
        (colon != NULL && !oq_str_to_i64(oq_str_of(colon + 1), &seed)))
        return oq_fail(err, ONQ_E_OPTION, "--data %s: expected random:N or random:N:SEED", spec);
    const onq_code rc = oq_reader_open_random(s, (uint64_t)n, (uint64_t)seed, out, err);
    return rc == ONQ_OK ? rc : oq_error_in(err, rc, "%s", s->o->model->path);
}

/* Where the samples are when nothing is said. */
static const char *folder_of_sets(const oq_reader_setup *s) {
    const oq_str folder =
        s->o->beside != NULL ? oq_str_of(s->o->beside) : oq_path_folder(s->o->model->path);
    return oq_arena_strdup(s->arena, folder.p, folder.n);
}

onq_code oq_reader_open(const oq_reader_setup *s, oq_reader **out, onq_error *err) {
    assert(s->o != NULL && out != NULL);
    const char *spec = s->o->spec;
    if (spec != NULL && strncmp(spec, "random:", 7) == 0)
        return open_random(s, spec, out, err);
    if (spec == NULL && s->o->nowhere)
        return oq_fail(err, ONQ_E_INVALID,
                       "no samples: the model is in memory and has no folder in which they could "
                       "be (give --data)");
    if (spec == NULL) {
        const char *path = folder_of_sets(s);
        OQ_TRY_ALLOC(path != NULL, err);
        oq_folder f;
        OQ_TRY(folder_list(s->arena, path, &f, err));
        OQ_TRY(oq_reader_open_sets(s, &f, out, err));
        if ((*out)->count == 0)
            return oq_fail(
                err, ONQ_E_INVALID,
                "no samples: there are no test_data_set_* folders next to the model in %s (give "
                "--data)",
                path);
        return ONQ_OK;
    }
    const char *path = oq_arena_strdup(s->arena, spec, strlen(spec));
    oq_file_info info;
    OQ_TRY_ALLOC(path != NULL, err);
    if (!oq_os_info_of(path, &info))
        return oq_fail_errno(err, ONQ_E_OPEN, errno, "--data %s", path);
    return info.kind == OQ_IS_FOLDER ? oq_reader_open_folder(s, path, out, err)
                                     : open_file(s, path, out, err);
}
