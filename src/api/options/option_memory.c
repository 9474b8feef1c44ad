/*
 * option_memory.c — options whose files are memory of the caller: models, samples and outputs.
 *
 * Such an option has a label for its value, as if a file of that name had been given. Jobs tell the
 * one from the other by the address of the label, so that a label may equal the name of a file.
 */
#include "api/options/options.h"

/* The value of an option that is to hold a path; `name` may be an alias. */
static onq_code find_path(onq_options *o, const char *name, oq_opt_value **out, onq_error *err) {
    OQ_TRY(oq_opt_value_find(o, name, out, err));
    if ((*out)->row->type != ONQ_OPT_PATH)
        return oq_fail(err, ONQ_E_OPTION, "--%s: does not name a file", (*out)->row->name);
    return ONQ_OK;
}

static const char *copy_label(onq_options *o, const char *label, const char *fallback) {
    const char *text = label != NULL && label[0] != '\0' ? label : fallback;
    return oq_arena_strdup(&o->arena, text, strlen(text));
}

static void set_label(oq_opt_value *v, const char *label) {
    assert(v->row->type == ONQ_OPT_PATH);
    v->text = oq_str_of(label);
    v->is_set = true;
    v->is_none = false;
}

onq_code onq_options_set_bytes(onq_options *opts, const char *name, const onq_bytes *bytes,
                               onq_error *err) {
    oq_opt_value *v = NULL;
    const bool operand = oq_opt_same(oq_str_of(name), OQ_S("operand"));
    if (!operand)
        OQ_TRY(find_path(opts, name, &v, err));
    onq_bytes row = *bytes;
    row.label = copy_label(opts, bytes->label, operand ? "model" : v->row->name);
    if (bytes->folder != NULL)
        row.folder = oq_arena_strdup(&opts->arena, bytes->folder, strlen(bytes->folder));
    if (row.label == NULL || (bytes->folder != NULL && row.folder == NULL) ||
        !OQ_PUSH(&opts->arena, &opts->given, row) ||
        (operand && !OQ_PUSH(&opts->arena, &opts->operands, oq_str_of(row.label))))
        return oq_fail_nomem(err);
    if (!operand)
        set_label(v, row.label);
    return ONQ_OK;
}

onq_code onq_options_want_bytes(onq_options *opts, const char *name, const char *label,
                                onq_error *err) {
    oq_opt_value *v = NULL;
    OQ_TRY(find_path(opts, name, &v, err));
    if (strcmp(v->row->word, "DIR") == 0)
        return oq_fail(err, ONQ_E_OPTION, "--%s: is a folder, which cannot be kept in memory",
                       v->row->name);
    const char *copy = copy_label(opts, label, v->row->name);
    OQ_TRY_ALLOC(copy != NULL && OQ_PUSH(&opts->arena, &opts->wanted, copy), err);
    set_label(v, copy);
    return ONQ_OK;
}

onq_code onq_options_set_reader(onq_options *opts, const onq_reader *reader, onq_error *err) {
    oq_opt_value *v = NULL;
    OQ_TRY(oq_opt_value_find(opts, "data", &v, err));
    const char *label = copy_label(opts, NULL, "reader");
    OQ_TRY_ALLOC(label != NULL, err);
    opts->reader = *reader;
    opts->reader_label = label;
    set_label(v, label);
    return ONQ_OK;
}

/* ---- what jobs ask ---- */

const onq_bytes *oq_opt_bytes_of(const onq_options *o, const char *path) {
    for (size_t i = 0; i < o->given.n; i++)
        if (o->given.v[i].label == path)
            return &o->given.v[i];
    return NULL;
}

bool oq_opt_is_wanted(const onq_options *o, const char *path) {
    for (size_t i = 0; i < o->wanted.n; i++)
        if (o->wanted.v[i] == path)
            return true;
    return false;
}

const onq_reader *oq_opt_reader(const onq_options *o) {
    const bool read = oq_opt_has(o, "data") && o->reader_label != NULL &&
                      oq_opt_str(o, "data") == o->reader_label;
    return read ? &o->reader : NULL;
}
