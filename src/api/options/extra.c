/*
 * extra.c — --extra KEY=VALUE: the reference's extra_options by their own names.
 *
 * The keys are rows of extra.def. A key that corresponds to an option of the command sets that
 * option and pins it, so that it wins whatever the order; the others are kept for the job
 * (oq_extra_find).
 */
#include "api/options/command.h"
#include "api/options/options.h"
#include "base/text/literal.h"

/* `aliases` are the options that the key sets. */
static const onq_option_info extras[] = {
#define OQ_EXTRA(key, TYPE, choices, form, option, help)                                           \
    {key, option, 0, ONQ_OPT_##TYPE, "", choices, form, help},
#include "api/options/extra.def"
#undef OQ_EXTRA
};

/* By its own name exactly, as in the reference's dictionary. */
static const onq_option_info *find_row(oq_str key) {
    for (size_t i = 0; i < OQ_COUNT(extras); i++)
        if (oq_str_is(key, extras[i].name))
            return &extras[i];
    return NULL;
}

static onq_code fail_key(const char *key, onq_error *err) {
    oq_nearest near;
    char hint[300];
    oq_nearest_init(&near, oq_str_of(key));
    for (size_t i = 0; i < OQ_COUNT(extras); i++)
        oq_nearest_offer(&near, oq_str_of(extras[i].name));
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

/* A list, or the text of overrides, which the job reads. */
static onq_code parse_literal(onq_options *o, const onq_option_info *row, const char *text,
                              oq_opt_value *v, onq_error *err) {
    oq_buf json;
    onq_error why = ONQ_ERROR_INIT;
    onq_code rc;
    oq_buf_init(&json, &o->env->alloc);
    if (row->type == ONQ_OPT_LIST) {
        rc = oq_opt_items(&o->arena, text, strchr(row->word, ':') != NULL, v, &why);
    } else {
        rc = oq_literal_json(&json, oq_str_of(text), &why);
        v->text = oq_str_copy(&o->arena, (oq_str){json.p, json.n + 1});
        v->text.n = json.n;
        if (rc == ONQ_OK && v->text.p == NULL)
            rc = oq_fail_nomem(&why);
    }
    if (rc == ONQ_E_CONFIG)
        rc = fail_form(row, text, why.text, err);
    else if (rc != ONQ_OK)
        oq_error_give(err, rc, &why);
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
    OQ_TRY_ALLOC(key != NULL, err);
    const onq_option_info *row = find_row(oq_str_of(key));
    if (row == NULL)
        return fail_key(key, err);
    oq_opt_value value;
    onq_error why = ONQ_ERROR_INIT;
    const onq_code rc = parse(o, row, eq + 1, &value, &why);
    if (rc != ONQ_OK) /* options begin with dashes, keys do not */
        return oq_fail(err, rc, "--extra: %s",
                       why.text + (strncmp(why.text, "--", 2) == 0 ? 2 : 0));
    bool taken = false;
    for (const char *p = row->aliases; *p != '\0';) {
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

/* True if the key sets an option of the command, or its job reads it. */
static bool has_use(const oq_command *c, const onq_option_info *key) {
    for (size_t i = 0;; i++) {
        const onq_option_info *row = oq_command_row(c, i, NULL);
        if (row == NULL)
            return word_in(c->extra_keys, key->name);
        if (word_in(key->aliases, row->name))
            return true;
    }
}

static bool takes_extra(const oq_command *c) {
    const oq_opt_group *group = NULL;
    for (size_t i = 0; oq_command_row(c, i, &group) != NULL; i++)
        if (group == &oq_group_extra)
            return true;
    return false;
}

const onq_option_info *onq_extra_at(const char *command, size_t i) {
    const oq_command *c = oq_command_find(command);
    if (c == NULL || !takes_extra(c))
        return NULL;
    for (size_t k = 0; k < OQ_COUNT(extras); k++)
        if (has_use(c, &extras[k]) && i-- == 0)
            return &extras[k];
    return NULL;
}

void oq_extra_warn_unused(const onq_options *o) {
    for (size_t i = 0; i < o->extras.n; i++) {
        const char *key = o->extras.v[i].row->name;
        if (!word_in(o->command->extra_keys, key))
            oq_warn(o->env, "--extra %s has no effect on '%s'", key, o->command->info.name);
    }
}
