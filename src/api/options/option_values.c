/*
 * option_values.c — values read back as text, taken back, and lists filled item by item.
 */
#include "api/options/options.h"
#include "base/text/number_text.h"

/* An item of a list as the parser of lists takes it for one. */
static const char *item_text(oq_arena *a, oq_str item) {
    size_t n = 0;
    const bool first = item.n > 0 && strchr(OQ_OPT_BEGINS, item.p[0]) != NULL;
    if (memchr(item.p, ',', item.n) == NULL && !first)
        return item.p;
    char *copy = oq_arena_alloc(a, 2 * item.n + 1);
    for (size_t i = 0; copy != NULL && i < item.n; i++) {
        if (item.p[i] == ',' || (i == 0 && first))
            copy[n++] = '\\';
        copy[n++] = item.p[i];
    }
    assert(n <= 2 * item.n);
    if (copy != NULL)
        copy[n] = '\0';
    return copy;
}

const char *oq_opt_text(oq_arena *a, const oq_opt_value *v, size_t i) {
    char text[OQ_NUMBER_TEXT];
    if (v->row->type == ONQ_OPT_LIST)
        return i < v->list.n ? item_text(a, v->list.v[i]) : NULL;
    if (v->row->type == ONQ_OPT_PAIRS)
        return i < v->list.n ? v->list.v[i].p : NULL;
    if (i > 0 || (!v->is_set && !v->is_none && v->row->fallback[0] == '\0'))
        return NULL;
    if (v->is_none)
        return "none";
    switch (v->row->type) {
    case ONQ_OPT_FLAG:
        return v->flag ? "true" : "false";
    case ONQ_OPT_INT:
        snprintf(text, sizeof text, "%lld", (long long)v->i);
        break;
    case ONQ_OPT_SIZE:
        snprintf(text, sizeof text, "%llu", (unsigned long long)v->size);
        break;
    case ONQ_OPT_REAL:
        oq_real_text(text, v->real);
        break;
    default:
        return v->text.p;
    }
    return oq_arena_strdup(a, text, strlen(text));
}

const char *onq_options_get(onq_options *opts, const char *name, size_t i) {
    oq_opt_value *v = NULL;
    if (oq_opt_same(oq_str_of(name), OQ_S("operand")))
        return oq_opt_operand(opts, i);
    return oq_opt_value_find(opts, name, &v, NULL) == ONQ_OK ? oq_opt_text(&opts->arena, v, i)
                                                             : NULL;
}

int onq_options_is_set(const onq_options *opts, const char *name) {
    const onq_option_info *row = onq_options_find(opts, name);
    if (oq_opt_same(oq_str_of(name), OQ_S("operand")))
        return oq_opt_operand_count(opts) > 0;
    return row != NULL && oq_opt_is_set(opts, row->name);
}

onq_code onq_options_clear(onq_options *opts, const char *name, onq_error *err) {
    oq_opt_value *v = NULL;
    if (oq_opt_same(oq_str_of(name), OQ_S("operand"))) {
        opts->operands.n = 0;
        return ONQ_OK;
    }
    OQ_TRY(oq_opt_value_find(opts, name, &v, err));
    if (strcmp(v->row->name, "extra") == 0)
        return oq_fail(err, ONQ_E_OPTION,
                       "--extra: keys that set options cannot be taken back (begin with new "
                       "options)");
    oq_opt_value fresh = {.row = v->row};
    if (v->row->fallback[0] != '\0')
        OQ_TRY(oq_opt_parse(&opts->arena, v->row, v->row->fallback, &fresh, err));
    *v = fresh;
    return ONQ_OK;
}

/* A name that looks like a pattern, as a pattern that only it matches. */
static const char *quote_pattern(oq_arena *a, const char *item) {
    char *copy = oq_arena_alloc(a, 2 * strlen(item) + sizeof "re:^$");
    size_t n = 0;
    if (copy == NULL)
        return NULL;
    memcpy(copy, "re:^", 4);
    n = 4;
    for (const char *p = item; *p != '\0'; p++) {
        if (strchr("\\.[]{}()*+?^$|", *p) != NULL)
            copy[n++] = '\\';
        copy[n++] = *p;
    }
    copy[n++] = '$';
    assert(n < 2 * strlen(item) + sizeof "re:^$");
    copy[n] = '\0';
    return copy;
}

onq_code onq_options_add(onq_options *opts, const char *name, const char *item, onq_error *err) {
    oq_opt_value *v = NULL;
    if (oq_opt_same(oq_str_of(name), OQ_S("operand")))
        return onq_options_set(opts, name, item, err);
    OQ_TRY(oq_opt_value_find(opts, name, &v, err));
    if (v->row->type != ONQ_OPT_LIST)
        return oq_fail(err, ONQ_E_OPTION, "--%s: is not a list", v->row->name);
    const char *copy = strncmp(item, "re:", 3) == 0
                           ? quote_pattern(&opts->arena, item)
                           : oq_arena_strdup(&opts->arena, item, strlen(item));
    if (v->pinned)
        return ONQ_OK;
    OQ_TRY_ALLOC(copy != NULL && OQ_PUSH(&opts->arena, &v->list, oq_str_of(copy)), err);
    v->is_set = true;
    return ONQ_OK;
}
