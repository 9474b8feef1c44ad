/*
 * option_parse.c — text to value, by the type of an option's row.
 *
 * Called by options.c for what a user sets and for the defaults of the tables, and by extra.c.
 * Every refusal is ONQ_E_OPTION and says what was found and what was expected.
 */
#include "api/options/options.h"
#include "base/system/file.h"
#include "base/text/number_text.h"

#include <ctype.h>

#define MAX_LIST_FILE (64u << 20) /* bytes of an @file */

static char fold(char c) {
    if (c == '-')
        return '_';
    return (char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

bool oq_opt_same(oq_str a, oq_str b) {
    if (a.n != b.n)
        return false;
    for (size_t i = 0; i < a.n; i++)
        if (fold(a.p[i]) != fold(b.p[i]))
            return false;
    return true;
}

/* The part of *rest before `sep`; *rest becomes what follows it. False at the end. */
static bool next_part(oq_str *rest, char sep, oq_str *part) {
    if (rest->p == NULL)
        return false;
    const char *end = rest->n > 0 ? memchr(rest->p, sep, rest->n) : NULL;
    if (end == NULL) {
        *part = *rest;
        *rest = (oq_str){NULL, 0};
        return true;
    }
    const size_t n = (size_t)(end - rest->p);
    *part = (oq_str){rest->p, n};
    *rest = (oq_str){end + 1, rest->n - n - 1};
    return true;
}

static oq_str copy_text(oq_arena *a, oq_str s, onq_error *err, onq_code *rc) {
    const char *p = oq_arena_strdup(a, s.p, s.n);
    if (p == NULL)
        *rc = oq_fail_nomem(err);
    return (oq_str){p, p != NULL ? s.n : 0};
}

static onq_code parse_flag(const onq_option_info *row, const char *text, bool *out,
                           onq_error *err) {
    static const char *const words[] = {"true", "yes", "on", "1", "false", "no", "off", "0"};
    for (size_t i = 0; i < OQ_COUNT(words); i++) {
        if (oq_opt_same(oq_str_of(text), oq_str_of(words[i]))) {
            *out = i < 4;
            return ONQ_OK;
        }
    }
    return oq_fail(err, ONQ_E_OPTION, "--%s: '%.100s' is not true or false", row->name, text);
}

static onq_code check_range(const onq_option_info *row, const char *text, double v,
                            onq_error *err) {
    const char *dots = strstr(row->choices, "..");
    if (dots == NULL)
        return ONQ_OK;
    char low[64];
    snprintf(low, sizeof low, "%.*s", (int)(dots - row->choices), row->choices);
    double lo = 0, hi = 0;
    const bool has_lo = oq_real_read(low, &lo), has_hi = oq_real_read(dots + 2, &hi);
    if (!(has_lo && v < lo) && !(has_hi && v > hi))
        return ONQ_OK;
    return oq_fail(err, ONQ_E_OPTION, "--%s: %s is out of range (%s%s%s%s)", row->name, text,
                   has_lo && has_hi ? ""
                   : has_lo         ? "at least "
                                    : "at most ",
                   low, has_lo && has_hi ? " to " : "", dots + 2);
}

static bool is_whole(const char *text) {
    const char *digits = text[0] == '-' ? text + 1 : text;
    return *digits != '\0' && digits[strspn(digits, "0123456789")] == '\0';
}

static onq_code parse_int(const onq_option_info *row, const char *text, oq_opt_value *v,
                          onq_error *err) {
    const char *digits = text[0] == '+' ? text + 1 : text;
    int64_t i = 0;
    if (!oq_str_to_i64(oq_str_of(digits), &i))
        return oq_fail(err, ONQ_E_OPTION, "--%s: '%.100s' is %s", row->name, text,
                       is_whole(digits) ? "too large a number" : "not a whole number");
    OQ_TRY(check_range(row, text, (double)i, err));
    v->i = i;
    v->real = (double)i;
    return ONQ_OK;
}

static onq_code parse_real(const onq_option_info *row, const char *text, oq_opt_value *v,
                           onq_error *err) {
    double r = 0;
    if (!oq_real_read(text, &r))
        return oq_fail(err, ONQ_E_OPTION, "--%s: '%.100s' is not a number", row->name, text);
    OQ_TRY(check_range(row, text, r, err));
    v->real = r;
    return ONQ_OK;
}

/* 4096, 512k, 1.5G, 2GiB: powers of 1024, any case. */
static onq_code parse_size(const onq_option_info *row, const char *text, oq_opt_value *v,
                           onq_error *err) {
    static const char units[] = "kmgt";
    const size_t n = strspn(text, "0123456789.");
    char number[64];
    double r = n < sizeof number ? -1 : INFINITY;
    if (n < sizeof number) {
        memcpy(number, text, n);
        number[n] = '\0';
        if (!oq_real_read(number, &r))
            r = -1;
    }
    const char *unit = text + n;
    if (r >= 0 && *unit != '\0') {
        const char *u = strchr(units, tolower((unsigned char)*unit));
        if (u != NULL) {
            r *= (double)(1ull << (10 * (u - units + 1)));
            unit++;
        }
        if (oq_opt_same(oq_str_of(unit), OQ_S("b")) ||
            (u != NULL && oq_opt_same(oq_str_of(unit), OQ_S("ib"))))
            unit = "";
    }
    if (r > 9.2e18 && *unit == '\0')
        return oq_fail(err, ONQ_E_OPTION, "--%s: '%.100s' is too large a size", row->name, text);
    if (r < 0 || *unit != '\0')
        return oq_fail(
            err, ONQ_E_OPTION,
            "--%s: '%.100s' is not a size (a number of bytes, which may end in k, m, g or t)",
            row->name, text);
    OQ_TRY(check_range(row, text, r, err));
    v->size = (uint64_t)r;
    return ONQ_OK;
}

static onq_code fail_choice(const onq_option_info *row, const char *text, onq_error *err) {
    char all[400] = "", hint[200];
    size_t n = 0;
    oq_nearest near;
    oq_nearest_init(&near, oq_str_of(text));
    /* The candidates must outlive this loop as C strings. */
    char names[32][40];
    size_t count = 0;
    oq_str rest = oq_str_of(row->choices), choice, first;
    while (next_part(&rest, '|', &choice)) {
        next_part(&choice, ',', &first);
        n += (size_t)snprintf(all + n, n < sizeof all ? sizeof all - n : 0, "%s%.*s",
                              n > 0 ? ", " : "", OQ_STR(first));
        if (n >= sizeof all)
            n = sizeof all - 1;
        if (count < OQ_COUNT(names)) {
            snprintf(names[count], sizeof names[count], "%.*s", OQ_STR(first));
            oq_nearest_offer(&near, oq_str_of(names[count++]));
        }
    }
    oq_nearest_text(&near, "", hint, sizeof hint);
    return oq_fail(err, ONQ_E_OPTION, "--%s: '%.100s' is not one of %s%s", row->name, text, all,
                   hint);
}

/* The reference's own spelling: what follows QuantType. and the like. */
static const char *without_class(const char *text) {
    static const char *const classes[] = {"QuantType", "QuantFormat", "CalibrationMethod",
                                          "QuantizationMode"};
    const char *dot = strrchr(text, '.');
    for (size_t i = 0; dot != NULL && i < OQ_COUNT(classes); i++) {
        const oq_str class = {text, (size_t)(dot - text)};
        const oq_str wanted = oq_str_of(classes[i]);
        if (oq_str_ends(class, wanted) &&
            (class.n == wanted.n || class.p[class.n - wanted.n - 1] == '.'))
            return dot + 1;
    }
    return text;
}

static onq_code parse_enum(oq_arena *a, const onq_option_info *row, const char *text,
                           oq_opt_value *v, onq_error *err) {
    oq_str rest = oq_str_of(row->choices), choice;
    for (int64_t i = 0; next_part(&rest, '|', &choice); i++) {
        oq_str first = {NULL, 0}, spelling;
        while (next_part(&choice, ',', &spelling)) {
            if (first.p == NULL)
                first = spelling;
            if (oq_opt_same(spelling, oq_str_of(without_class(text)))) {
                onq_code rc = ONQ_OK;
                v->text = copy_text(a, first, err, &rc);
                v->i = i;
                return rc;
            }
        }
    }
    return fail_choice(row, text, err);
}

static onq_code list_push(oq_arena *a, oq_opt_value *v, oq_str item, onq_error *err) {
    onq_code rc = ONQ_OK;
    oq_str copy = copy_text(a, item, err, &rc);
    if (rc == ONQ_OK && !OQ_PUSH(a, &v->list, copy))
        rc = oq_fail_nomem(err);
    return rc;
}

/* One name a line. */
static onq_code list_file(oq_arena *a, const onq_option_info *row, const char *path,
                          oq_opt_value *v, onq_error *err) {
    oq_str rest, line;
    onq_code rc = oq_file_read_all(a, path, MAX_LIST_FILE, &rest, err);
    if (rc == ONQ_E_NOMEM)
        return rc;
    if (rc != ONQ_OK)
        return oq_error_in(err, ONQ_E_OPTION, "--%s", row->name);
    if (rest.n == 0)
        return ONQ_OK;
    while (next_part(&rest, '\n', &line)) {
        if (line.n > 0 && line.p[line.n - 1] == '\r')
            line.n--;
        if (line.n > 0)
            OQ_TRY(list_push(a, v, line, err));
    }
    return ONQ_OK;
}

/* A list or map as JSON or Python writes it. A name may begin with a bracket too, so one of a list
 * is taken for that only if its first item is in quotes; operators' names begin with letters. */
static bool is_literal(const onq_option_info *row, bool map, const char *text) {
    const char *first = text + 1;
    if (map)
        return text[0] == '{';
    if (text[0] != '[' && text[0] != '(')
        return false;
    first += strspn(first, " \t\n");
    return first[0] == '"' || first[0] == '\'' || strcmp(row->word, "TYPE") == 0;
}

/* a,b,c with "\," for a comma inside a name, and "\@" or "\[" for a name that begins so. */
static onq_code parse_list(oq_arena *a, const onq_option_info *row, const char *text,
                           oq_opt_value *v, onq_error *err) {
    if (text[0] == '@')
        return list_file(a, row, text + 1, v, err);
    const bool map = strpbrk(row->word, ":=") != NULL || strcmp(row->word, "OP AXIS") == 0;
    if (is_literal(row, map, text)) {
        onq_error why = ONQ_ERROR_INIT;
        const onq_code rc = oq_opt_items(a, text, map, v, &why);
        if (rc == ONQ_E_CONFIG)
            return oq_fail(err, ONQ_E_OPTION, "--%s: '%.100s' cannot be read: %s", row->name, text,
                           why.text);
        return rc == ONQ_OK ? rc : oq_error_give(err, rc, &why);
    }
    const size_t n = strlen(text);
    char *item = oq_arena_strdup(a, text, n);
    OQ_TRY_ALLOC(item != NULL, err);
    size_t w = 0;
    for (size_t i = 0; i <= n; i++) {
        if (i == n || text[i] == ',') {
            if (w > 0)
                OQ_TRY(list_push(a, v, (oq_str){item, w}, err));
            w = 0;
            continue;
        }
        if (text[i] == '\\' && text[i + 1] != '\0' &&
            (text[i + 1] == ',' || (w == 0 && strchr(OQ_OPT_BEGINS, text[i + 1]) != NULL)))
            i++;
        item[w++] = text[i];
    }
    return ONQ_OK;
}

static onq_code parse_pair(oq_arena *a, const onq_option_info *row, const char *text,
                           oq_opt_value *v, onq_error *err) {
    const char *eq = strchr(text, '=');
    if (eq == NULL || eq == text)
        return oq_fail(err, ONQ_E_OPTION, "--%s: '%.100s' is not %s", row->name, text,
                       row->word[0] != '\0' ? row->word : "KEY=VALUE");
    return list_push(a, v, oq_str_of(text), err);
}

onq_code oq_opt_parse(oq_arena *a, const onq_option_info *row, const char *text, oq_opt_value *v,
                      onq_error *err) {
    assert(v->row == NULL || v->row == row);
    onq_code rc = ONQ_OK;
    switch (row->type) {
    case ONQ_OPT_FLAG:
        return parse_flag(row, text, &v->flag, err);
    case ONQ_OPT_INT:
        return parse_int(row, text, v, err);
    case ONQ_OPT_REAL:
        return parse_real(row, text, v, err);
    case ONQ_OPT_SIZE:
        return parse_size(row, text, v, err);
    case ONQ_OPT_ENUM:
        return parse_enum(a, row, text, v, err);
    case ONQ_OPT_PATH:
        if (text[0] == '\0')
            return oq_fail(err, ONQ_E_OPTION, "--%s: the path is empty", row->name);
        v->text = copy_text(a, oq_str_of(text), err, &rc);
        return rc;
    case ONQ_OPT_STRING:
        v->text = copy_text(a, oq_str_of(text), err, &rc);
        return rc;
    case ONQ_OPT_LIST:
        return parse_list(a, row, text, v, err);
    case ONQ_OPT_PAIRS:
        return parse_pair(a, row, text, v, err);
    }
    return oq_fail(err, ONQ_E_INTERNAL, "--%s: option type %d", row->name, (int)row->type);
}
