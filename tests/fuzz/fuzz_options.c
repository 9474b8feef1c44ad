/*
 * fuzz_options.c — a command's options from any text: set, refused with a message, or appended.
 * What was set can be read, and options that are given what was read read the same.
 *
 * The first byte chooses the command. Then come pieces that end with a NUL: a name (the empty one
 * is --extra, "+NAME" appends an item as it is, "-NAME" takes back) and a value.
 */
#include "onq/onq.h"

#include <stdio.h>
#include <string.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The next piece, NUL-terminated in `out`; false at the end. */
static bool next_piece(const uint8_t **p, const uint8_t *end, char *out, size_t cap) {
    if (*p >= end)
        return false;
    const uint8_t *stop = memchr(*p, 0, (size_t)(end - *p));
    size_t n = (size_t)((stop != NULL ? stop : end) - *p);
    *p = stop != NULL ? stop + 1 : end;
    n = n < cap - 1 ? n : cap - 1;
    memcpy(out, *p - n - (stop != NULL ? 1 : 0), n);
    out[n] = '\0';
    return true;
}

static void set(onq_options *o, const char *name, const char *value) {
    onq_error err = ONQ_ERROR_INIT;
    onq_code rc;
    if (strchr(value, '@') != NULL || (name[0] == '+' && value[0] == '\0'))
        return; /* the value would be in a file; no text stands for an empty item */
    if (name[0] == '+')
        rc = onq_options_add(o, name + 1, value, &err);
    else if (name[0] == '-')
        rc = onq_options_clear(o, name + 1, &err);
    else
        rc = onq_options_set(o, name[0] == '\0' ? "extra" : name, value, &err);
    MUST_EXPLAIN(rc, err);
    MUST(rc == ONQ_OK || rc == ONQ_E_OPTION || rc == ONQ_E_NOMEM || rc == ONQ_E_CONFIG ||
         rc == ONQ_E_LIMIT);
}

/* Every value of `from` again, into `to`. */
static void copy(onq_options *from, onq_options *to, const char *name) {
    onq_error err = ONQ_ERROR_INIT;
    const char *text;
    for (size_t i = 0; (text = onq_options_get(from, name, i)) != NULL; i++) {
        if (strchr(text, '@') != NULL)
            continue;
        const onq_code rc = onq_options_set(to, name, text, &err);
        if (rc != ONQ_OK)
            fprintf(stderr, "%s: %s: %s\n", name, text, err.text);
        MUST(rc == ONQ_OK);
    }
}

static void read_again(onq_env *env, const char *command, onq_options *o) {
    onq_error err = ONQ_ERROR_INIT;
    onq_options *again = NULL;
    const onq_option_info *row;
    MUST(onq_options_new(env, command, &again, &err) == ONQ_OK);
    for (size_t i = 0; (row = onq_option_at(command, i)) != NULL; i++)
        if (onq_options_is_set(o, row->name))
            copy(o, again, row->name);
    for (size_t i = 0; (row = onq_option_at(command, i)) != NULL; i++) {
        const char *a, *b;
        if (!onq_options_is_set(o, row->name))
            continue;
        for (size_t k = 0;; k++) {
            a = onq_options_get(o, row->name, k);
            b = onq_options_get(again, row->name, k);
            if (a == NULL || strchr(a, '@') != NULL)
                break;
            if (b == NULL || strcmp(a, b) != 0)
                fprintf(stderr, "%s %s: '%s', then '%s'\n", command, row->name, a,
                        b != NULL ? b : "nothing");
            MUST(b != NULL && strcmp(a, b) == 0);
        }
    }
    onq_options_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1)
        return 0;
    const char *command = onq_command_at(data[0] % onq_command_count())->name;
    const uint8_t *p = data + 1, *end = data + size;
    static char name[256], value[16384];
    onq_error err = ONQ_ERROR_INIT;
    onq_env *env = onq_env_new(NULL);
    onq_options *o = NULL;
    MUST(onq_options_new(env, command, &o, &err) == ONQ_OK);
    while (next_piece(&p, end, name, sizeof name)) {
        value[0] = '\0';
        (void)next_piece(&p, end, value, sizeof value);
        set(o, name, value);
    }
    read_again(env, command, o);
    onq_options_free(o);
    onq_env_free(env);
    return 0;
}
