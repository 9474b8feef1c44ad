/*
 * outputs.c — see outputs.h.
 */
#include "api/outputs.h"

#include "api/options/command.h"
#include "base/system/file.h"
#include "onnx/graph.h"

typedef struct output {
    const char *option;
    bool if_missing;      /* an existing file is read, not written */
    const char *not_with; /* a flag with which it is not written, or NULL */
} output;

static const output outputs[] = {
    {"output", false, "dry_run"},  {"plan", false, NULL},   {"calibration_cache", true, NULL},
    {"checkpoint", false, NULL},   {"table", false, NULL},  {"overrides", false, NULL},
    {"report", false, NULL},       {"recipe", false, NULL}, {"resume", true, NULL},
    {"exclude_list", false, NULL},
};

static const output *find_output(const char *option) {
    for (size_t i = 0; i < OQ_COUNT(outputs); i++)
        if (strcmp(outputs[i].option, option) == 0)
            return &outputs[i];
    return NULL;
}

/* The path that the option names, or NULL. A row that is an alias of another's here has none. */
static const char *named(const onq_options *o, const output *out) {
    if (!oq_opt_has(o, out->option) || !oq_opt_is_set(o, out->option) ||
        strcmp(oq_opt_get(o, out->option)->row->name, out->option) != 0)
        return NULL;
    if (out->not_with != NULL && oq_opt_has(o, out->not_with) && oq_opt_flag(o, out->not_with))
        return NULL;
    const char *path = oq_opt_str(o, out->option);
    return path != NULL && path[0] != '\0' && !oq_opt_is_wanted(o, path) ? path : NULL;
}

/* The path that will be written, or NULL. */
static const char *path_of(const onq_options *o, const output *out) {
    oq_file_info info;
    const char *path = named(o, out);
    return path != NULL && out->if_missing && oq_os_info_of(path, &info) ? NULL : path;
}

/* ---- outputs that are inputs ---- */

static onq_code fail_same(const onq_options *o, const output *out, const char *path,
                          const char *input, onq_error *err) {
    const bool forced = strcmp(out->option, "output") == 0 && oq_opt_has(o, "force");
    return oq_fail(err, ONQ_E_OPTION, "--%s %s: is the file that %s%s reads (%s)", out->option,
                   path, input[0] != '\0' ? "--" : "the command", input,
                   forced ? "--force replaces it" : "name another file");
}

static onq_code check_inputs(const onq_options *o, const output *out, const char *path,
                             onq_error *err) {
    const onq_option_info *row;
    const bool force =
        strcmp(out->option, "output") == 0 && oq_opt_has(o, "force") && oq_opt_flag(o, "force");
    for (size_t i = 0; (row = oq_command_row(o->command, i, NULL)) != NULL; i++) {
        if (row->type != ONQ_OPT_PATH || find_output(row->name) != NULL ||
            !oq_opt_is_set(o, row->name) || (force && strcmp(row->name, "input") == 0))
            continue;
        const char *input = oq_opt_str(o, row->name);
        if (oq_opt_bytes_of(o, input) == NULL && oq_file_is_same(path, input))
            return fail_same(o, out, path, row->name, err);
    }
    for (size_t i = 0; i < oq_opt_operand_count(o); i++)
        if (oq_opt_bytes_of(o, oq_opt_operand(o, i)) == NULL &&
            oq_file_is_same(path, oq_opt_operand(o, i)))
            return fail_same(o, out, path, "", err);
    return ONQ_OK;
}

/* ---- outputs that are one file ---- */

/* The name of a file in its folder; NULL when there is no such folder. */
static const char *split(const char *path, oq_file_info *folder) {
    char parent[OQ_PATH_MAX];
    const oq_str of = oq_path_folder(path);
    if (of.n >= sizeof parent)
        return NULL;
    memcpy(parent, of.p, of.n);
    parent[of.n] = '\0';
    return oq_os_info_of(parent, folder) ? oq_path_last(path) : NULL;
}

/* True for one file, there or not; or if b is where the external data of model a goes. */
static bool collide(const char *a, const char *b) {
    oq_file_info x, y;
    const char *name_a = split(a, &x), *name_b = split(b, &y);
    if (oq_file_is_same(a, b))
        return true;
    if (name_a == NULL || name_b == NULL || !oq_info_is_same(&x, &y))
        return false;
    const size_t n = strlen(name_a);
    return strncmp(name_a, name_b, n) == 0 &&
           (name_b[n] == '\0' || strcmp(name_b + n, ".data") == 0);
}

/* Output i against those before it: the last one written would be all that is left. */
static onq_code check_others(const onq_options *o, size_t i, const char *path, onq_error *err) {
    assert(i < OQ_COUNT(outputs));
    for (size_t k = 0; k < i; k++) {
        const char *other = named(o, &outputs[k]);
        if (other != NULL && collide(other, path))
            return oq_fail(err, ONQ_E_OPTION, "--%s %s: is the file of --%s too (name another)",
                           outputs[i].option, path, outputs[k].option);
    }
    return ONQ_OK;
}

/* ---- outputs that cannot be written ---- */

/* A folder that is there, or that can be made where it is to be. */
static onq_code probe_folder(const char *path, onq_error *err) {
    oq_file_info info;
    char parent[OQ_PATH_MAX];
    if (oq_os_info_of(path, &info)) {
        if (info.kind != OQ_IS_FOLDER)
            return oq_fail(err, ONQ_E_WRITE, "%s: is not a folder", path);
        return oq_os_may(path, OQ_MAY_WRITE | OQ_MAY_ENTER)
                   ? ONQ_OK
                   : oq_fail_errno(err, ONQ_E_WRITE, errno, "%s: cannot be written to", path);
    }
    size_t n = strlen(path);
    while (n > 1 && oq_path_is_separator(path[n - 1]))
        n--;
    while (n > 0 && !oq_path_is_separator(path[n - 1]))
        n--;
    if (n >= sizeof parent)
        return oq_fail_errno(err, ONQ_E_WRITE, ENAMETOOLONG, "%s: the folder cannot be made", path);
    memcpy(parent, n > 0 ? path : "./", n > 0 ? n : 2);
    parent[n > 0 ? n : 2] = '\0';
    return oq_os_may(parent, OQ_MAY_WRITE | OQ_MAY_ENTER)
               ? ONQ_OK
               : oq_fail_errno(err, ONQ_E_WRITE, errno, "%s: the folder cannot be made", path);
}

static onq_code probe_file(const char *path, const onq_allocator *alloc, onq_error *err) {
    oq_out out = {0};
    const onq_code rc = oq_out_open(&out, alloc, path, err);
    oq_out_abort(&out);
    return rc;
}

static onq_code probe(const onq_options *o, const output *out, const char *path,
                      const onq_allocator *alloc, onq_error *err) {
    const bool folder = strcmp(oq_opt_get(o, out->option)->row->word, "DIR") == 0;
    return folder ? probe_folder(path, err) : probe_file(path, alloc, err);
}

onq_code oq_outputs_check(const onq_options *o, const onq_allocator *alloc, onq_error *err) {
    for (size_t i = 0; i < OQ_COUNT(outputs); i++) {
        const char *any = named(o, &outputs[i]), *path = path_of(o, &outputs[i]);
        if (any != NULL)
            OQ_TRY(check_others(o, i, any, err));
        if (path == NULL)
            continue;
        OQ_TRY(check_inputs(o, &outputs[i], path, err));
        OQ_TRY(probe(o, &outputs[i], path, alloc, err));
    }
    return ONQ_OK;
}

/* ---- outputs that are external data ---- */

typedef struct data_search {
    oq_model *m;
    const char *path;
    bool found;
} data_search;

/* Data that cannot be opened is reported by the code that reads it. */
static onq_code look_for_path(void *ctx, oq_tensor *t, bool in_attribute, onq_error *err) {
    data_search *s = ctx;
    const oq_file *file = NULL;
    uint64_t offset, length;
    (void)in_attribute;
    (void)err;
    if (!s->found && oq_tensor_is_external(t) &&
        oq_model_external(s->m, t, &file, &offset, &length, NULL) == ONQ_OK)
        s->found = oq_file_is(file, s->path);
    return ONQ_OK;
}

onq_code oq_outputs_check_data(const onq_options *o, oq_model *m, onq_error *err) {
    for (size_t i = 0; i < OQ_COUNT(outputs); i++) {
        oq_file_info info;
        data_search s = {.m = m, .path = path_of(o, &outputs[i])};
        if (s.path == NULL || !oq_os_info_of(s.path, &info) || oq_file_is(&m->file, s.path))
            continue;
        (void)oq_walk_tensors(m, look_for_path, &s, NULL);
        if (s.found)
            return oq_fail(err, ONQ_E_WRITE,
                           "%s: holds the external data of the model that is read (give the output "
                           "another name or folder)",
                           s.path);
    }
    return ONQ_OK;
}

/* ---- where they are ---- */

/* A folder that is there; of anything else the folder that it is or will be in. */
static const char *folder_of(const char *path, oq_arena *a) {
    char real[OQ_PATH_MAX];
    const bool there = oq_os_real_path(path, real);
    const oq_str out =
        there && oq_os_is_folder(real) ? oq_str_of(real) : oq_path_folder(there ? real : path);
    return oq_arena_strdup(a, out.p, out.n);
}

const char *oq_outputs_folder(const onq_options *o, size_t i, oq_arena *a) {
    for (size_t k = 0; k < OQ_COUNT(outputs); k++) {
        const char *name = outputs[k].option;
        const char *path =
            oq_opt_has(o, name) && oq_opt_is_set(o, name) ? oq_opt_str(o, name) : NULL;
        if (path != NULL && path[0] != '\0' && !oq_opt_is_wanted(o, path) && i-- == 0)
            return folder_of(path, a);
    }
    return NULL;
}

/* ---- what is left when writing fails ---- */

onq_code oq_outputs_rescue(const onq_env *env, const oq_ranges *r, onq_code rc, onq_error *err) {
    char path[OQ_PATH_MAX], room[OQ_PATH_MAX], text[sizeof(onq_error)];
    if (rc != ONQ_E_WRITE || err == NULL || env->isolated)
        return rc;
    const int n = snprintf(path, sizeof path, "%s/onq-ranges-XXXXXX.json", oq_os_temp_root(room));
    if (n < 0 || (size_t)n >= sizeof path || !oq_os_make_temp_file(path, strlen(".json")))
        return rc;
    if (oq_ranges_save(r, env, path, NULL) != ONQ_OK) {
        (void)oq_os_remove(path);
        return rc;
    }
    /* Where they are must be said, however long the rest is. */
    const size_t most_text =
        sizeof text - strlen("... (the ranges are kept: --calibration_cache )");
    const int most = strlen(path) < most_text ? (int)(most_text - strlen(path) - 1) : 0;
    snprintf(text, sizeof text, "%s", oq_error_text(err));
    return oq_fail(err, rc, "%.*s%s (the ranges are kept: --calibration_cache %s)", most, text,
                   strlen(text) > (size_t)most ? "..." : "", path);
}
