/*
 * args.c — see args.h.
 */
#include "args.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The words not yet read. */
struct words {
    char **next;
    int left;
};

onq_code args_fail(onq_error *err, const char *fmt, ...) {
    char text[sizeof err->text / 4];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    err->code = ONQ_E_OPTION;
    err->offset = -1;
    size_t w = 0;
    for (size_t i = 0; text[i] != '\0'; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f)
            w += (size_t)snprintf(err->text + w, sizeof err->text - w, "\\x%02x", c);
        else
            err->text[w++] = text[i];
    }
    err->text[w] = '\0';
    return ONQ_E_OPTION;
}

int args_truth(const char *word) {
    static const char *const yes[] = {"true", "yes", "on", "1"};
    static const char *const no[] = {"false", "no", "off", "0"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) {
        if (strcasecmp(word, yes[i]) == 0)
            return 1;
        if (strcasecmp(word, no[i]) == 0)
            return 0;
    }
    return -1;
}

/* True for an option; false for a negative number, `-` or a plain word. */
static bool looks_like_option(const char *word) {
    if (word[0] != '-' || word[1] == '\0')
        return false;
    return !((word[1] >= '0' && word[1] <= '9') || word[1] == '.');
}

static bool is_number(const char *word) {
    return word[0] != '\0' && strspn(word, "0123456789") == strlen(word);
}

static void note_common(const onq_option_info *row, const char *value, struct args_common *common) {
    const bool on = args_truth(value) == 1;
    if (strcmp(row->name, "quiet") == 0)
        common->quiet = on;
    else if (strcmp(row->name, "json") == 0)
        common->json = on;
    else if (strcmp(row->name, "help") == 0)
        common->help = on;
    else if (strcmp(row->name, "verbose") == 0)
        common->verbose = atoi(value);
}

static onq_code set(onq_options *opts, const onq_option_info *row, const char *value,
                    struct args_common *common, onq_error *err) {
    const onq_code rc = onq_options_set(opts, row->name, value, err);
    if (rc == ONQ_OK)
        note_common(row, value, common);
    return rc;
}

/* True if `word`, which follows the first value of a list or pairs, still belongs to it. */
static bool continues(const onq_option_info *row, const char *word) {
    if (looks_like_option(word))
        return false;
    return row->type == ONQ_OPT_LIST || (row->type == ONQ_OPT_PAIRS && strchr(word, '=') != NULL);
}

/* The value of `row`, from the words after the option. `given` is how the user spelled it. */
static onq_code take_value(onq_options *opts, const onq_option_info *row, const char *given,
                           struct words *w, struct args_common *common, onq_error *err) {
    const char *next = w->left > 0 ? w->next[0] : NULL;
    if (row->type == ONQ_OPT_FLAG) {
        if (next == NULL || args_truth(next) < 0)
            return set(opts, row, "true", common, err);
    } else if (row->word[0] == '[') {
        if (next == NULL || !is_number(next))
            return set(opts, row, "1", common, err);
    } else if (next == NULL || looks_like_option(next)) {
        return args_fail(err, "%.100s needs a value%s%.100s%s", given, next ? " (write " : "",
                         next ? given : "", next ? "=VALUE if it begins with '-')" : "");
    }
    do {
        const onq_code rc = set(opts, row, w->next[0], common, err);
        if (rc != ONQ_OK)
            return rc;
        w->next++;
        w->left--;
    } while (w->left > 0 && continues(row, w->next[0]));
    return ONQ_OK;
}

/* --name, --name=value */
static onq_code parse_long(onq_options *opts, const char *word, struct words *w,
                           struct args_common *common, onq_error *err) {
    char name[128];
    const char *eq = strchr(word, '=');
    const size_t n = eq != NULL ? (size_t)(eq - word) : strlen(word);
    if (n - 2 >= sizeof name)
        return args_fail(err, "unknown option '%.60s...'", word);
    memcpy(name, word + 2, n - 2);
    name[n - 2] = '\0';
    /* One character after two dashes is not an option's letter. */
    const onq_option_info *row = n > 3 ? onq_options_find(opts, name) : NULL;
    if (row == NULL) {
        if (n <= 3)
            return args_fail(err, "unknown option '%.100s'", word);
        return onq_options_set(opts, name, "", err); /* for its message: the nearest names */
    }
    if (eq != NULL)
        return set(opts, row, eq + 1, common, err);
    return take_value(opts, row, word, w, common, err);
}

/* -input may be meant as --input. */
static bool lacks_a_dash(const onq_options *opts, const char *word) {
    char name[128];
    const size_t n = strcspn(word + 1, "=");
    if (n < 2 || n >= sizeof name)
        return false;
    memcpy(name, word + 1, n);
    name[n] = '\0';
    return onq_options_find(opts, name) != NULL;
}

/* -x, -xvalue, -x value; several flags in one word */
static onq_code parse_short(onq_options *opts, const char *word, struct words *w,
                            struct args_common *common, onq_error *err) {
    if (lacks_a_dash(opts, word))
        return args_fail(err, "unknown option '%.100s' (did you mean -%.100s?)", word, word);
    for (const char *p = word + 1; *p != '\0'; p++) {
        const char letter[2] = {*p, '\0'}, given[3] = {'-', *p, '\0'};
        const onq_option_info *row = onq_options_find(opts, letter);
        if (row == NULL && word[2] == '\0')
            return args_fail(err, "unknown option '%s'", given);
        if (row == NULL)
            return args_fail(err, "unknown option '%s' in '%.100s'", given, word);
        const bool alone = row->type == ONQ_OPT_FLAG || row->word[0] == '[';
        if (p[1] == '\0')
            return take_value(opts, row, given, w, common, err);
        if (!alone || p[1] == '=')
            return set(opts, row, p[1] == '=' ? p + 2 : p + 1, common, err);
        if (row->type != ONQ_OPT_FLAG && is_number(p + 1))
            return set(opts, row, p + 1, common, err);
        const onq_code rc = set(opts, row, row->type == ONQ_OPT_FLAG ? "true" : "1", common, err);
        if (rc != ONQ_OK)
            return rc;
    }
    return ONQ_OK;
}

onq_code args_parse(onq_options *opts, int n_words, char **words, struct args_common *common,
                    onq_error *err) {
    /* Help is given even when the rest is wrong. */
    for (int i = 0; i < n_words && strcmp(words[i], "--") != 0; i++) {
        if (strcmp(words[i], "--help") == 0 || strcmp(words[i], "-h") == 0) {
            common->help = true;
            return ONQ_OK;
        }
    }
    struct words w = {words, n_words};
    bool options = true;
    while (w.left > 0) {
        const char *word = w.next[0];
        w.next++;
        w.left--;
        onq_code rc;
        if (options && strcmp(word, "--") == 0) {
            options = false;
            continue;
        }
        if (options && word[0] == '-' && word[1] == '-')
            rc = parse_long(opts, word, &w, common, err);
        else if (options && word[0] == '-' && word[1] != '\0')
            rc = parse_short(opts, word, &w, common, err);
        else
            rc = onq_options_set(opts, "operand", word, err);
        if (rc != ONQ_OK)
            return rc;
    }
    return ONQ_OK;
}
