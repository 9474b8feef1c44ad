/*
 * state.c — see state.h. Numbers are texts, for JSON has no infinity, and read back to the last
 * bit.
 */
#include "tune/state.h"

#include "base/system/file.h"
#include "base/text/number_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define FORMAT "onq auto 7"

/* The numbers of a row, by name. */
typedef struct field {
    char name[40];
    double *value;
} field;

#define FIELDS (3 * OQ_METRICS + 11)

static void list_fields(oq_state_row *row, field v[FIELDS]) {
    const field others[] = {{"expected", &row->score.expected},
                            {"objective", &row->score.objective},
                            {"worst_tenth", &row->score.worst_tenth},
                            {"accuracy", &row->score.accuracy},
                            {"ms", &row->ms},
                            {"ms_noise", &row->ms_noise},
                            {"prefill_ms", &row->prefill_ms},
                            {"spent", &row->noted.spent},
                            {"made", &row->noted.made},
                            {"made_times", &row->noted.times},
                            {"made_samples", &row->noted.samples}};
    size_t n = 0;
    for (oq_metric m = 0; m < OQ_METRICS; m++) {
        const char *name = oq_metric_of(m)->name;
        v[n].value = &row->score.figures[m].value;
        snprintf(v[n++].name, sizeof v->name, "%s", name);
        v[n].value = &row->score.figures[m].bound;
        snprintf(v[n++].name, sizeof v->name, "%s_bound", name);
        v[n].value = &row->score.figures[m].clear;
        snprintf(v[n++].name, sizeof v->name, "%s_clear", name);
    }
    for (size_t i = 0; i < OQ_COUNT(others); i++)
        v[n++] = others[i];
    assert(n == FIELDS);
}

static onq_code begin(oq_tune_state *s, const char *job, onq_error *err) {
    s->root = json_pack("{s:s, s:s, s:{}}", "format", FORMAT, "job", job, "rows");
    s->rows = s->root != NULL ? json_object_get(s->root, "rows") : NULL;
    return s->rows != NULL ? ONQ_OK : oq_fail_nomem(err);
}

static bool has_text(const json_t *root, const char *key, const char *text) {
    const char *got = json_string_value(json_object_get(root, key));
    return got != NULL && strcmp(got, text) == 0;
}

onq_code oq_state_open(oq_tune_state *s, const onq_env *env, const char *path, const char *job,
                       onq_error *err) {
    oq_file_info info;
    *s = (oq_tune_state){.path = path, .env = env};
    if (path == NULL)
        return ONQ_OK;
    if (!oq_os_info_of(path, &info))
        return begin(s, job, err);
    OQ_TRY(oq_json_read(&env->alloc, path, &s->root, err));
    s->rows = json_object_get(s->root, "rows");
    if (!has_text(s->root, "format", FORMAT) || !json_is_object(s->rows))
        return oq_fail(err, ONQ_E_CONFIG, "%s: is not the state of a search (--resume)", path);
    if (!has_text(s->root, "job", job))
        return oq_fail(err, ONQ_E_CONFIG,
                       "%s: is the state of another search: model, samples or options differ "
                       "(delete it, or name another file)",
                       path);
    return ONQ_OK;
}

void oq_state_close(oq_tune_state *s) {
    json_decref(s->root);
    *s = (oq_tune_state){0};
}

bool oq_state_find(const oq_tune_state *s, const char *key, oq_state_row *out) {
    const json_t *j = s->rows != NULL ? json_object_get(s->rows, key) : NULL;
    *out = (oq_state_row){0};
    field fields[FIELDS];
    list_fields(out, fields);
    if (j == NULL)
        return false;
    out->why_not = json_string_value(json_object_get(j, "why_not"));
    for (size_t i = 0; i < OQ_COUNT(fields) && out->why_not == NULL; i++) {
        const char *text = json_string_value(json_object_get(j, fields[i].name));
        if (text == NULL)
            return false;
        if (!oq_real_read(text, fields[i].value))
            *fields[i].value = strtod(text, NULL); /* inf, -inf, nan */
    }
    out->score.samples = (uint64_t)json_integer_value(json_object_get(j, "samples"));
    out->score.rows = (uint64_t)json_integer_value(json_object_get(j, "rows"));
    out->size = (uint64_t)json_integer_value(json_object_get(j, "size"));
    out->partly = json_is_true(json_object_get(j, "partly"));
    return true;
}

static bool fill(json_t *j, const oq_state_row *row) {
    oq_state_row copy = *row;
    field fields[FIELDS];
    list_fields(&copy, fields);
    if (row->why_not != NULL)
        return json_object_set_new(j, "why_not", json_string(row->why_not)) == 0;
    for (size_t i = 0; i < OQ_COUNT(fields); i++) {
        char text[OQ_NUMBER_TEXT];
        if (isfinite(*fields[i].value))
            oq_real_text(text, *fields[i].value);
        else
            snprintf(text, sizeof text, "%g", *fields[i].value); /* inf, nan: no point in them */
        if (json_object_set_new(j, fields[i].name, json_string(text)) != 0)
            return false;
    }
    return json_object_set_new(j, "samples", json_integer((json_int_t)row->score.samples)) == 0 &&
           json_object_set_new(j, "rows", json_integer((json_int_t)row->score.rows)) == 0 &&
           json_object_set_new(j, "size", json_integer((json_int_t)row->size)) == 0 &&
           json_object_set_new(j, "partly", json_boolean(row->partly)) == 0;
}

static onq_code write_all(const oq_tune_state *s, onq_error *err) {
    char *text = json_dumps(s->root, JSON_INDENT(1) | JSON_SORT_KEYS);
    oq_buf buf;
    oq_buf_init(&buf, &s->env->alloc);
    if (text != NULL)
        oq_buf_adds(&buf, text);
    free(text);
    const onq_code rc = buf.failed || buf.n == 0 ? oq_fail_nomem(err)
                                                 : oq_out_text(&s->env->alloc, s->path, &buf, err);
    oq_buf_release(&buf);
    return rc;
}

onq_code oq_state_put(oq_tune_state *s, const char *key, const oq_state_row *row, onq_error *err) {
    if (s->path == NULL)
        return ONQ_OK;
    json_t *j = json_object();
    if (j == NULL || !fill(j, row)) {
        json_decref(j);
        return oq_fail_nomem(err);
    }
    if (json_object_set_new(s->rows, key, j) != 0)
        return oq_fail_nomem(err);
    return write_all(s, err);
}
