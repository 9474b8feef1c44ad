/*
 * options.c — an onq_options: one typed value per row of a command's tables; set by name, read by
 * jobs.
 */
#include "api/options/options.h"
#include "api/options/command.h"

bool oq_opt_row_is(const onq_option_info *row, const char *given) {
    const oq_str name = oq_str_of(given);
    if (name.n == 1)
        return row->letter != 0 && row->letter == name.p[0];
    if (oq_opt_same(oq_str_of(row->name), name))
        return true;
    for (const char *p = row->aliases; *p != '\0';) {
        const size_t n = strcspn(p, " ");
        if (oq_opt_same((oq_str){p, n}, name))
            return true;
        p += n;
        p += strspn(p, " ");
    }
    return false;
}

static oq_opt_value *find_value(const onq_options *o, const char *name) {
    for (size_t i = 0; i < o->n_values; i++)
        if (oq_opt_row_is(o->values[i].row, name))
            return &o->values[i];
    return NULL;
}

static bool same_name(const char *a, const char *b) {
    for (; *a != '\0' && (*a == *b || (*a == '-' && *b == '_')); a++, b++)
        ;
    return *a == '\0' && *b == '\0';
}

/* The commands that do have the option: it was meant for one of them, or they do what was
 * wanted. */
static void name_owners(const char *name, char *hint, size_t cap) {
    size_t n = 0, used = 0;
    hint[0] = '\0';
    for (size_t i = 0; i < onq_command_count(); i++) {
        const char *command = onq_command_at(i)->name;
        const oq_command *c = oq_command_find(command);
        const onq_option_info *row;
        const oq_opt_group *group;
        bool has = false;
        for (size_t k = 0; !has && (row = oq_command_row(c, k, &group)) != NULL; k++)
            has = group->title[0] != '\0' && same_name(name, row->name);
        if (!has || used >= cap)
            continue;
        used += (size_t)snprintf(hint + used, cap - used, n++ == 0 ? " (an option of %s" : ", %s",
                                 command);
    }
    if (n > 0 && used + 1 < cap)
        snprintf(hint + used, cap - used, ")");
    else
        hint[0] = '\0';
}

static onq_code fail_unknown(const onq_options *o, const char *name, onq_error *err) {
    oq_nearest near;
    char hint[300];
    oq_nearest_init(&near, oq_str_of(name));
    for (size_t i = 0; i < o->n_values; i++)
        oq_nearest_offer(&near, oq_str_of(o->values[i].row->name));
    oq_nearest_text(&near, "--", hint, sizeof hint);
    const bool letter = name[0] != '\0' && name[1] == '\0';
    if (hint[0] == '\0' && !letter)
        name_owners(name, hint, sizeof hint);
    return oq_fail(err, ONQ_E_OPTION, "unknown option '%s%.100s'%s", letter ? "-" : "--", name,
                   hint);
}

onq_code oq_opt_value_find(const onq_options *o, const char *name, oq_opt_value **out,
                           onq_error *err) {
    *out = find_value(o, name);
    return *out != NULL ? ONQ_OK : fail_unknown(o, name, err);
}

static onq_code fill_defaults(onq_options *o, onq_error *err) {
    while (oq_command_row(o->command, o->n_values, NULL) != NULL)
        o->n_values++;
    o->values = OQ_NEW_ARRAY(&o->arena, oq_opt_value, o->n_values + 1);
    OQ_TRY_ALLOC(o->values != NULL, err);
    for (size_t i = 0; i < o->n_values; i++) {
        oq_opt_value *v = &o->values[i];
        v->row = oq_command_row(o->command, i, NULL);
        if (v->row->fallback[0] != '\0')
            OQ_TRY(oq_opt_parse(&o->arena, v->row, v->row->fallback, v, err));
    }
    return ONQ_OK;
}

/* The command that does what a name of the reference stands for; "" when it is not one. */
static const char *command_for(const char *name) {
    static const struct {
        const char *name, *command;
    } rows[] = {
        {"quantize", " (did you mean static or dynamic?)"},
        {"quantize_static", " (did you mean static?)"},
        {"static_quantize_runner", " (did you mean static?)"},
        {"quantize_dynamic", " (did you mean dynamic?)"},
        {"quantize_qat", " (did you mean qat?)"},
        {"quant_pre_process", " (did you mean preprocess?)"},
        {"create_calibrator", " (did you mean calibrate?)"},
        {"matmul_nbits_quantizer", " (did you mean nbits?)"},
        {"matmul_bnb4_quantizer", " (did you mean bnb4?)"},
        {"qdq_loss_debug", " (did you mean debug?)"},
    };
    for (size_t i = 0; i < OQ_COUNT(rows); i++)
        if (oq_opt_same(oq_str_of(name), oq_str_of(rows[i].name)))
            return rows[i].command;
    return "";
}

onq_code onq_options_new(onq_env *env, const char *command, onq_options **out, onq_error *err) {
    *out = NULL;
    const oq_command *c = oq_command_find(command);
    if (c == NULL) {
        oq_nearest near;
        char hint[200];
        oq_nearest_init(&near, oq_str_of(command));
        for (size_t i = 0; i < onq_command_count(); i++)
            oq_nearest_offer(&near, oq_str_of(onq_command_at(i)->name));
        oq_nearest_text(&near, "", hint, sizeof hint);
        const char *known = command_for(command);
        return oq_fail(err, ONQ_E_OPTION, "unknown command '%.100s'%s", command,
                       known[0] != '\0' ? known : hint);
    }
    return oq_options_make(env, c, out, err);
}

onq_code oq_options_make(onq_env *env, const oq_command *c, onq_options **out, onq_error *err) {
    *out = NULL;
    onq_options *o = oq_calloc(&env->alloc, 1, sizeof *o);
    OQ_TRY_ALLOC(o != NULL, err);
    o->env = env;
    o->command = c;
    oq_arena_init(&o->arena, &env->alloc);
    const onq_code rc = fill_defaults(o, err);
    if (rc != ONQ_OK) {
        onq_options_free(o);
        return rc;
    }
    *out = o;
    return ONQ_OK;
}

onq_code oq_options_copy(const onq_options *o, onq_options **out, onq_error *err) {
    OQ_TRY(oq_options_make(o->env, o->command, out, err));
    onq_options *copy = *out;
    assert(copy->n_values == o->n_values);
    memcpy(copy->values, o->values, o->n_values * sizeof *o->values);
    for (size_t i = 0; i < copy->n_values; i++) /* what is added goes elsewhere */
        copy->values[i].list.cap = copy->values[i].list.n;
    copy->extras = o->extras;
    copy->extras.cap = copy->extras.n;
    copy->operands = o->operands;
    copy->operands.cap = copy->operands.n;
    copy->given = o->given;
    copy->given.cap = copy->given.n;
    copy->wanted = o->wanted;
    copy->wanted.cap = copy->wanted.n;
    copy->reader = o->reader;
    copy->reader_label = o->reader_label;
    copy->shared = o->shared;
    copy->ranges = o->ranges;
    return ONQ_OK;
}

void onq_options_free(onq_options *opts) {
    if (opts == NULL)
        return;
    const onq_env *env = opts->env;
    oq_arena_release(&opts->arena);
    oq_free(&env->alloc, opts, sizeof *opts);
}

const onq_option_info *onq_options_find(const onq_options *opts, const char *name) {
    const oq_opt_value *v = find_value(opts, name);
    return v != NULL ? v->row : NULL;
}

/* --extra: every pair so far and this one. Kept as pairs too, so that what was set can be
 * listed. */
static onq_code set_extra(onq_options *o, oq_opt_value *v, const char *text, onq_error *err) {
    OQ_TRY(oq_extra_set(o, text, err));
    OQ_TRY(oq_opt_parse(&o->arena, v->row, text, v, err));
    v->is_set = true;
    return ONQ_OK;
}

onq_code onq_options_set(onq_options *opts, const char *name, const char *value, onq_error *err) {
    if (oq_opt_same(oq_str_of(name), OQ_S("operand"))) {
        const char *copy = oq_arena_strdup(&opts->arena, value, strlen(value));
        OQ_TRY_ALLOC(copy != NULL && OQ_PUSH(&opts->arena, &opts->operands, oq_str_of(copy)), err);
        return ONQ_OK;
    }
    oq_opt_value *v = NULL;
    OQ_TRY(oq_opt_value_find(opts, name, &v, err));
    if (strcmp(v->row->name, "extra") == 0)
        return set_extra(opts, v, value, err);
    /* Parsed into a copy, so that a refused value changes nothing. */
    oq_opt_value fresh = *v;
    OQ_TRY(oq_opt_parse(&opts->arena, v->row, value, &fresh, err));
    if (v->pinned)
        return ONQ_OK;
    fresh.is_set = true;
    *v = fresh;
    return ONQ_OK;
}

/* ---- what jobs read ---- */

const oq_opt_value *oq_opt_get(const onq_options *o, const char *name) {
    const oq_opt_value *v = find_value(o, name);
    assert(v != NULL && "a job asked for an option that its command does not have");
    if (v != NULL)
        return v;
    oq_opt_value *none = &o->values[o->n_values];
    none->pinned = true;
    return none;
}

bool oq_options_misread(const onq_options *o) {
    return o->values[o->n_values].pinned;
}

bool oq_opt_has(const onq_options *o, const char *name) {
    return find_value(o, name) != NULL;
}

/* An option is read as what its row says that it is. The types are bits 1 << onq_option_type. */
static const oq_opt_value *get_of(const onq_options *o, const char *name, unsigned types) {
    const oq_opt_value *v = oq_opt_get(o, name);
    assert(v->row == NULL || (types >> v->row->type & 1) != 0);
    (void)types;
    return v;
}

#define GETTER(type, name, field, types)                                                           \
    type name(const onq_options *o, const char *option) {                                          \
        return (type)get_of(o, option, types)->field;                                              \
    }
GETTER(bool, oq_opt_is_set, is_set, ~0u)
GETTER(bool, oq_opt_is_none, is_none, ~0u)
GETTER(bool, oq_opt_flag, flag, 1u << ONQ_OPT_FLAG)
GETTER(int64_t, oq_opt_int, i, 1u << ONQ_OPT_INT)
GETTER(double, oq_opt_real, real, 1u << ONQ_OPT_REAL | 1u << ONQ_OPT_INT)
GETTER(uint64_t, oq_opt_size, size, 1u << ONQ_OPT_SIZE)
GETTER(int, oq_opt_enum, i, 1u << ONQ_OPT_ENUM)
GETTER(const char *, oq_opt_str, text.p,
       1u << ONQ_OPT_STRING | 1u << ONQ_OPT_PATH | 1u << ONQ_OPT_ENUM)

const oq_str *oq_opt_list(const onq_options *o, const char *name, size_t *n) {
    const oq_opt_value *v = get_of(o, name, 1u << ONQ_OPT_LIST | 1u << ONQ_OPT_PAIRS);
    *n = v->list.n;
    return v->list.v;
}

bool oq_opt_split(oq_str item, oq_str *key, oq_str *value) {
    for (size_t i = 0; i < item.n; i++) {
        if (item.p[i] == '=' || item.p[i] == ':') {
            *key = (oq_str){item.p, i};
            *value = (oq_str){item.p + i + 1, item.n - i - 1};
            return true;
        }
    }
    return false;
}

onq_code oq_opt_axes(const onq_options *o, const char *name, oq_arena *a, oq_opt_axis **out,
                     size_t *n, onq_error *err) {
    size_t n_items;
    const oq_str *items = oq_opt_list(o, name, &n_items);
    oq_opt_axis *axes = OQ_NEW_ARRAY(a, oq_opt_axis, n_items);
    OQ_TRY_ALLOC(axes != NULL, err);
    *n = 0;
    for (size_t i = 0; i < n_items; i++) {
        oq_str key = items[i], value;
        if (!oq_opt_split(items[i], &key, &value)) {
            if (i + 1 == n_items)
                return oq_fail(err, ONQ_E_OPTION, "--%s: there is no number after '%.*s'", name,
                               OQ_STR(key));
            value = items[++i];
        }
        int64_t number = 0;
        if (key.n == 0 || !oq_str_to_i64(value, &number))
            return oq_fail(err, ONQ_E_OPTION, "--%s: '%.*s' of '%.*s' is not a whole number", name,
                           OQ_STR(value), OQ_STR(key));
        size_t at = 0;
        while (at < *n && !oq_str_eq(axes[at].key, key))
            at++;
        axes[at] = (oq_opt_axis){key, number};
        if (at == *n)
            (*n)++;
    }
    *out = axes;
    return ONQ_OK;
}

size_t oq_opt_operand_count(const onq_options *o) {
    return o->operands.n;
}

const char *oq_opt_operand(const onq_options *o, size_t i) {
    return i < o->operands.n ? o->operands.v[i].p : NULL;
}
