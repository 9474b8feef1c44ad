/*
 * extra.c — --extra KEY=VALUE: the reference's extra_options by their own names.
 *
 * The keys are rows of extra.def. A key that stands for an option of the command sets that option
 * and pins it, so that it wins whatever the order; the others are kept for the job (oq_extra_find).
 */
#include "api/command.h"
#include "api/options.h"

#include <stdio.h>

typedef struct extra_row {
    onq_option_info info;
    const char *option;
} extra_row;

static const extra_row extras[] = {
#define OQ_EXTRA(key, TYPE, choices, option)                                                       \
    {{key, "", 0, ONQ_OPT_##TYPE, "", choices, "", ""}, option},
#include "api/extra.def"
#undef OQ_EXTRA
};

/* By its own name exactly, as in the reference's dictionary. */
static const extra_row *find_row(oq_str key) {
    for (size_t i = 0; i < OQ_COUNT(extras); i++) {
        if (oq_str_is(key, extras[i].info.name))
            return &extras[i];
    }
    return NULL;
}

static onq_code fail_key(const char *key, onq_error *err) {
    oq_nearest near;
    char hint[300];
    oq_nearest_init(&near, key);
    for (size_t i = 0; i < OQ_COUNT(extras); i++)
        oq_nearest_offer(&near, extras[i].info.name);
    oq_nearest_text(&near, "", hint, sizeof hint);
    return oq_fail(err, ONQ_E_OPTION, "--extra: unknown key '%.100s'%s", key, hint);
}

/* Parses into *v as if it were set for the first time; `none` is the reference's None. */
static onq_code parse(onq_options *o, const onq_option_info *row, const char *text, oq_opt_value *v,
                      onq_error *err) {
    *v = (oq_opt_value){.row = row};
    if (oq_opt_same(oq_str_of(text), OQ_S("none")) && row->type != ONQ_OPT_STRING) {
        v->is_none = true;
        return ONQ_OK;
    }
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
    for (size_t i = 0; i < o->extras.n; i++) {
        if (strcmp(o->extras.v[i].row->name, key) == 0)
            return &o->extras.v[i];
    }
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
