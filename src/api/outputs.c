/*
 * outputs.c — see outputs.h.
 */
#include "api/outputs.h"

#include "api/command.h"
#include "base/file.h"
#include "base/temp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* The path that will be written, or NULL. */
static const char *path_of(const onq_options *o, const output *out) {
    struct stat st;
    if (!oq_opt_has(o, out->option) || !oq_opt_is_set(o, out->option))
        return NULL;
    const char *path = oq_opt_str(o, out->option);
    if (path == NULL || path[0] == '\0' || oq_opt_is_wanted(o, path) ||
        (out->not_with != NULL && oq_opt_has(o, out->not_with) && oq_opt_flag(o, out->not_with)) ||
        (out->if_missing && stat(path, &st) == 0))
        return NULL;
    return path;
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

/* ---- outputs that cannot be written ---- */

/* A folder that is there, or that can be made where it is to be. */
static onq_code probe_folder(const char *path, onq_error *err) {
    struct stat st;
    char parent[4096];
    if (stat(path, &st) == 0) {
        if (!S_ISDIR(st.st_mode))
            return oq_fail(err, ONQ_E_WRITE, "%s: is not a folder", path);
        return access(path, W_OK | X_OK) == 0
                   ? ONQ_OK
                   : oq_fail_errno(err, ONQ_E_WRITE, errno, "%s: cannot be written to", path);
    }
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    if (n >= sizeof parent)
        return oq_fail_errno(err, ONQ_E_WRITE, ENAMETOOLONG, "%s: the folder cannot be made", path);
    memcpy(parent, n > 0 ? path : "./", n > 0 ? n : 2);
    parent[n > 0 ? n : 2] = '\0';
    return access(parent, W_OK | X_OK) == 0
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
        const char *path = path_of(o, &outputs[i]);
        if (path == NULL)
            continue;
        OQ_TRY(check_inputs(o, &outputs[i], path, err));
        OQ_TRY(probe(o, &outputs[i], path, alloc, err));
    }
    return ONQ_OK;
}

/* ---- where they are ---- */

/* A folder that is there; of anything else the folder that it is or will be in. */
static const char *folder_of(const char *path, oq_arena *a) {
    struct stat st;
    char *real = realpath(path, NULL);
    const bool is_folder = real != NULL && stat(real, &st) == 0 && S_ISDIR(st.st_mode);
    const oq_str out = is_folder ? oq_str_of(real) : oq_path_folder(real != NULL ? real : path);
    const char *copy = oq_arena_strdup(a, out.p, out.n);
    free(real);
    return copy;
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
    char path[4096], text[sizeof err->text];
    if (rc != ONQ_E_WRITE || err == NULL || env->isolated)
        return rc;
    const int n = snprintf(path, sizeof path, "%s/onq-ranges-XXXXXX.json", oq_temp_root());
    const int fd = n > 0 && (size_t)n < sizeof path ? mkstemps(path, (int)strlen(".json")) : -1;
    if (fd < 0)
        return rc;
    close(fd);
    if (oq_ranges_save(r, env, path, NULL) != ONQ_OK) {
        unlink(path);
        return rc;
    }
    memcpy(text, err->text, sizeof text);
    return oq_fail(err, rc, "%s (the ranges are kept: --calibration_cache %s)", text, path);
}
