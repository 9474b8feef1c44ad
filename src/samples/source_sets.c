/*
 * source_sets.c — samples from test_data_set_K folders: input_0.pb, input_1.pb ... in the order of
 * the model's inputs, as OnnxModelCalibrationDataReader of static_quantize_runner reads them. Names
 * inside the files are not looked at, but help to say what is wrong. The order is that of the
 * numbers K. One such folder, whatever it is called, is one sample.
 */
#include "samples/source_private.h"

#include <stdlib.h>

#define PREFIX "test_data_set_"

typedef struct sets_reader {
    oq_reader base;
    onq_env *env;
    oq_ios inputs;
    const oq_source_options *o;
    const char **names; /* of the sets */
    const char **paths;
    uint64_t most_bytes;
} sets_reader;

typedef struct set_name {
    const char *name;
    bool is_number;
    unsigned long long number;
} set_name;

/* Numbers first, in their order; then the rest by name. */
static int compare_sets(const void *x, const void *y) {
    const set_name *a = x, *b = y;
    if (a->is_number != b->is_number)
        return a->is_number ? -1 : 1;
    if (a->is_number && a->number != b->number)
        return a->number < b->number ? -1 : 1;
    return strcmp(a->name, b->name);
}

static set_name parse_set(const char *name) {
    const char *digits = name + sizeof PREFIX - 1;
    const size_t n = strlen(digits);
    set_name s = {name, n > 0 && n < 19 && strspn(digits, "0123456789") == n, 0};
    if (s.is_number)
        s.number = strtoull(digits, NULL, 10);
    return s;
}

static bool is_folder(const char *path) {
    return path != NULL && oq_os_is_folder(path);
}

/* The path of a file in a set. */
static const char *file_in(oq_arena *a, const char *set, size_t i) {
    return oq_str_format(a, "%s/input_%zu.pb", set, i).p;
}

static onq_code read_input(sets_reader *r, const char *set, size_t i, oq_arena *a, oq_datum *out,
                           onq_error *err) {
    const oq_io *want = &r->inputs.v[i];
    const char *path = file_in(a, set, i);
    oq_str bytes, name;
    OQ_TRY_ALLOC(path != NULL, err);
    onq_code rc = oq_file_read_all(a, path, r->most_bytes, &bytes, err);
    if (rc == ONQ_E_OPEN || rc == ONQ_E_MISSING) {
        *out = (oq_datum){0};
        if (oq_may_lack(r->o, i))
            return ONQ_OK;
        return oq_error_in(err, rc, "input '%.*s' of %zu", OQ_STR(want->name), r->inputs.n);
    }
    if (rc != ONQ_OK)
        return rc;
    rc = oq_datum_from_pb(a, (const uint8_t *)bytes.p, bytes.n, want, out, &name, err);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "input_%zu.pb", i);
    rc = oq_input_check(r->o, out, &r->inputs, i, &r->env->alloc, err);
    if (rc == ONQ_OK)
        return rc;
    for (size_t k = 0; k < r->inputs.n; k++)
        if (k != i && oq_str_eq(r->inputs.v[k].name, name))
            return oq_error_in(
                err, rc,
                "input_%zu.pb (its tensor is called '%.*s', which is input %zu; files are taken in "
                "the order of the inputs)",
                i, OQ_STR(name), k);
    return oq_error_in(err, rc, "input_%zu.pb", i);
}

static onq_code read_sample(oq_reader *base, uint64_t number, oq_arena *a, oq_datum *inputs,
                            const char **name, onq_error *err) {
    sets_reader *r = (sets_reader *)base;
    *name = r->names[number];
    for (size_t i = 0; i < r->inputs.n; i++)
        OQ_TRY(read_input(r, r->paths[number], i, a, &inputs[i], err));
    return ONQ_OK;
}

/* A surplus file is not an error: models lose inputs when weights stop being inputs. */
static void warn_surplus(const oq_reader_setup *s, const sets_reader *r) {
    const char *path = file_in(s->arena, r->paths[0], s->inputs.n);
    if (path != NULL && oq_os_may(path, OQ_IS_THERE))
        oq_warn(s->env, "%s is not used: the model has %zu inputs", path, s->inputs.n);
}

static onq_code open_sets(const oq_reader_setup *s, const char **names, const char **paths,
                          size_t n, const char *text, oq_reader **out, onq_error *err) {
    sets_reader *r = OQ_NEW(s->arena, sets_reader);
    OQ_TRY_ALLOC(r != NULL && text != NULL, err);
    *r = (sets_reader){.base = {.read = read_sample, .count = n, .text = text},
                       .env = s->env,
                       .inputs = s->inputs,
                       .o = s->o,
                       .names = names,
                       .paths = paths,
                       .most_bytes = s->most_bytes};
    if (n > 0)
        warn_surplus(s, r);
    *out = &r->base;
    return ONQ_OK;
}

onq_code oq_reader_open_sets(const oq_reader_setup *s, const oq_folder *f, oq_reader **out,
                             onq_error *err) {
    set_name *sets = OQ_NEW_ARRAY(s->arena, set_name, f->n + 1);
    const char **names = OQ_NEW_ARRAY(s->arena, const char *, f->n + 1);
    const char **paths = OQ_NEW_ARRAY(s->arena, const char *, f->n + 1);
    OQ_TRY_ALLOC(sets != NULL && names != NULL && paths != NULL, err);
    size_t n = 0;
    for (size_t i = 0; i < f->n; i++)
        if (strncmp(f->v[i], PREFIX, sizeof PREFIX - 1) == 0 &&
            is_folder(oq_path_join(s->arena, f->path, f->v[i])))
            sets[n++] = parse_set(f->v[i]);
    if (n > 1)
        qsort(sets, n, sizeof *sets, compare_sets);
    for (size_t i = 0; i < n; i++) {
        names[i] = sets[i].name;
        paths[i] = oq_path_join(s->arena, f->path, names[i]);
        OQ_TRY_ALLOC(paths[i] != NULL, err);
    }
    const char *text =
        oq_str_format(s->arena, "%zu test_data_set folder%s in %s", n, OQ_NOUN_S(n), f->path).p;
    return open_sets(s, names, paths, n, text, out, err);
}

onq_code oq_reader_open_set(const oq_reader_setup *s, const char *path, oq_reader **out,
                            onq_error *err) {
    const char **one = OQ_NEW_ARRAY(s->arena, const char *, 2);
    OQ_TRY_ALLOC(one != NULL, err);
    one[0] = path;
    const char *text = oq_str_format(s->arena, "the one sample in %s", path).p;
    return open_sets(s, one, one, 1, text, out, err);
}
