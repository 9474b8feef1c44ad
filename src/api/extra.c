/*
 * extra.c — --extra KEY=VALUE: the reference's extra_options by their own names.
 *
 * The keys are rows of extra.def. A key that corresponds to an option of the command sets that
 * option and pins it, so that it wins whatever the order; the others are kept for the job
 * (oq_extra_find).
 */
#include "api/command.h"
#include "api/options.h"
#include "base/json.h"
#include "base/literal.h"

#include <stdio.h>

typedef struct extra_row {
    onq_option_info info;
    const char *option;
} extra_row;

static const extra_row extras[] = {
#define OQ_EXTRA(key, TYPE, choices, form, option)                                                 \
    {{key, "", 0, ONQ_OPT_##TYPE, "", choices, form, ""}, option},
#include "api/extra.def"
#undef OQ_EXTRA
};

/* By its own name exactly, as in the reference's dictionary. */
static const extra_row *find_row(oq_str key) {
    for (size_t i = 0; i < OQ_COUNT(extras); i++)
        if (oq_str_is(key, extras[i].info.name))
            return &extras[i];
    return NULL;
}

static onq_code fail_key(const char *key, onq_error *err) {
    oq_nearest near;
    char hint[300];
    oq_nearest_init(&near, oq_str_of(key));
    for (size_t i = 0; i < OQ_COUNT(extras); i++)
        oq_nearest_offer(&near, oq_str_of(extras[i].info.name));
    oq_nearest_text(&near, "", hint, sizeof hint);
    return oq_fail(err, ONQ_E_OPTION, "--extra: unknown key '%.100s'%s", key, hint);
}

/* ---- values as JSON or as Python writes them ---- */

static onq_code fail_form(const onq_option_info *row, const char *text, const char *why,
                          onq_error *err) {
    const char *literal = row->type == ONQ_OPT_PATH ? "{\"tensor\": [{...}]}"
                          : strchr(row->word, ':')  ? "{\"MatMul\": 1, \"Gemm\": 0}"
                                                    : "[\"Conv\", \"MatMul\"]";
    return oq_fail(err, ONQ_E_OPTION, "%s: '%.100s' cannot be read: %s (expected: %s or %s)",
                   row->name, text, why, row->word, literal);
}

/* One item of a list: a text, or the number after a key of a dictionary. */
static bool push_item(onq_options *o, const char *key, const json_t *item, oq_opt_value *v,
                      bool *fits) {
    *fits = key == NULL ? json_is_string(item) : json_is_integer(item);
    if (!*fits)
        return true;
    const oq_str text =
        key == NULL ? oq_str_format(&o->arena, "%s", json_string_value(item))
                    : oq_str_format(&o->arena, "%s:%lld", key, (long long)json_integer_value(item));
    return text.p != NULL && OQ_PUSH(&o->arena, &v->list, text);
}

static onq_code take_list(onq_options *o, const onq_option_info *row, const char *text,
                          json_t *root, oq_opt_value *v, onq_error *err) {
    bool fits = true, room = true;
    const char *key = NULL;
    json_t *item = NULL;
    size_t i = 0;
    if (strchr(row->word, ':') != NULL)
        fits = json_is_object(root);
    else if (json_is_string(root))
        room = push_item(o, NULL, root, v, &fits);
    else
        fits = json_is_array(root);
    json_array_foreach(root, i, item) {
        if (room && fits)
            room = push_item(o, NULL, item, v, &fits);
    }
    json_object_foreach(root, key, item) {
        if (room && fits)
            room = push_item(o, key, item, v, &fits);
    }
    if (!room)
        return oq_fail_nomem(err);
    return fits ? ONQ_OK : fail_form(row, text, "items of another kind", err);
}

/* A list, or the text of overrides, which the job reads. */
static onq_code parse_literal(onq_options *o, const onq_option_info *row, const char *text,
                              oq_opt_value *v, onq_error *err) {
    oq_buf json;
    json_t *root = NULL;
    onq_error why = ONQ_ERROR_INIT;
    oq_buf_init(&json, &o->env->alloc);
    onq_code rc = oq_literal_json(&json, oq_str_of(text), &why);
    if (rc == ONQ_OK)
        rc = oq_json_parse("", (oq_str){json.p, json.n}, &root, &why);
    if (rc == ONQ_E_CONFIG)
        rc = fail_form(row, text, why.text, err);
    else if (rc != ONQ_OK && err != NULL)
        *err = why;
    if (rc == ONQ_OK && row->type == ONQ_OPT_LIST) {
        rc = take_list(o, row, text, root, v, err);
    } else if (rc == ONQ_OK) {
        v->text = oq_str_copy(&o->arena, (oq_str){json.p, json.n + 1});
        v->text.n = json.n;
        rc = v->text.p != NULL ? ONQ_OK : oq_fail_nomem(err);
    }
    json_decref(root);
    oq_buf_release(&json);
    v->is_set = rc == ONQ_OK;
    return rc;
}

static bool is_literal(const onq_option_info *row, const char *text) {
    text += strspn(text, " \t\n");
    if (row->type == ONQ_OPT_PATH)
        return text[0] == '{';
    return row->type == ONQ_OPT_LIST && text[0] != '\0' && strchr("[({'\"", text[0]) != NULL;
}

/* Parses into *v as if it were set for the first time; `none` is the reference's None. */
static onq_code parse(onq_options *o, const onq_option_info *row, const char *text, oq_opt_value *v,
                      onq_error *err) {
    *v = (oq_opt_value){.row = row};
    if (oq_opt_same(oq_str_of(text), OQ_S("none")) && row->type != ONQ_OPT_STRING) {
        v->is_none = true;
        return ONQ_OK;
    }
    if (is_literal(row, text))
        return parse_literal(o, row, text, v, err);
    OQ_TRY(oq_opt_parse(&o->arena, row, text, v, err));
    v->is_set = true;
    return ONQ_OK;
}

/* Puts the value into the option `name` of the command; false if it has none. */
static bool set_option(onq_options *o, oq_str name, const oq_opt_value *value) {
    const bool inverse = name.n > 0 && name.p[0] == '!';
    if (inverse)
        name = (oq_str){name.p + 1, name.n - 1};
    for (size_t i = 0; i < o->n_values; i++) {
        oq_opt_value *v = &o->values[i];
        if (!oq_str_is(name, v->row->name))
            continue;
        const onq_option_info *row = v->row;
        *v = *value;
        v->row = row;
        v->pinned = true;
        if (inverse)
            v->flag = !v->flag;
        return true;
    }
    return false;
}

static onq_code keep(onq_options *o, const oq_opt_value *value, onq_error *err) {
    for (size_t i = 0; i < o->extras.n; i++) {
        if (o->extras.v[i].row == value->row) {
            o->extras.v[i] = *value;
            return ONQ_OK;
        }
    }
    return OQ_PUSH(&o->arena, &o->extras, *value) ? ONQ_OK : oq_fail_nomem(err);
}

onq_code oq_extra_set(onq_options *o, const char *pair, onq_error *err) {
    const char *eq = strchr(pair, '=');
    if (eq == NULL || eq == pair)
        return oq_fail(err, ONQ_E_OPTION, "--extra: '%.100s' is not KEY=VALUE", pair);
    const char *key = oq_arena_strdup(&o->arena, pair, (size_t)(eq - pair));
    if (key == NULL)
        return oq_fail_nomem(err);
    const extra_row *row = find_row(oq_str_of(key));
    if (row == NULL)
        return fail_key(key, err);
    oq_opt_value value;
    const onq_code rc = parse(o, &row->info, eq + 1, &value, err);
    if (rc != ONQ_OK)
        return oq_error_in(err, rc, "--extra");
    bool taken = false;
    for (const char *p = row->option; *p != '\0';) {
        const size_t n = strcspn(p, " ");
        taken = set_option(o, (oq_str){p, n}, &value) || taken;
        p += n;
        p += strspn(p, " ");
    }
    return taken ? ONQ_OK : keep(o, &value, err);
}

const oq_opt_value *oq_extra_find(const onq_options *o, const char *key) {
    assert(find_row(oq_str_of(key)) != NULL);
    for (size_t i = 0; i < o->extras.n; i++)
        if (strcmp(o->extras.v[i].row->name, key) == 0)
            return &o->extras.v[i];
    return NULL;
}

bool oq_extra_flag(const onq_options *o, const char *key, bool fallback) {
    const oq_opt_value *v = oq_extra_find(o, key);
    return v != NULL && v->is_set ? v->flag : fallback;
}

static bool word_in(const char *words, const char *word) {
    const size_t n = strlen(word);
    for (const char *p = words; p != NULL && *p != '\0';) {
        const size_t k = strcspn(p, " ");
        if (k == n && memcmp(p, word, n) == 0)
            return true;
        p += k;
        p += strspn(p, " ");
    }
    return false;
}

void oq_extra_warn_unused(const onq_options *o) {
    for (size_t i = 0; i < o->extras.n; i++) {
        const char *key = o->extras.v[i].row->name;
        if (!word_in(o->command->extra_keys, key))
            oq_warn(o->env, "--extra %s has no effect on '%s'", key, o->command->info.name);
    }
}
