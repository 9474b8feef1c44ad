/*
 * mpi_words.c — see mpi_words.h.
 *
 * Output, table and checkpoint belong to the whole job and are taken out of the words that the
 * shares get. Values of lists follow their option up to the next one and stay where they are.
 */
#include "mpi_words.h"

#include "args.h"

#include <stdlib.h>
#include <string.h>

/* Splits "--name=value", "--name", "-xvalue" or "-x"; *value is NULL when it is not in the word.
 * False for a word that is no option. */
static bool split(const char *word, char name[128], const char **value) {
    *value = NULL;
    if (word[0] != '-' || word[1] == '\0')
        return false;
    if (word[1] != '-') {
        name[0] = word[1];
        name[1] = '\0';
        if (word[2] != '\0')
            *value = word + 2 + (word[2] == '=');
        return true;
    }
    const char *eq = strchr(word, '=');
    const size_t n = eq != NULL ? (size_t)(eq - word - 2) : strlen(word + 2);
    if (n == 0 || n >= 128)
        return false;
    memcpy(name, word + 2, n);
    name[n] = '\0';
    if (eq != NULL)
        *value = eq + 1;
    return true;
}

/* Options that cut the job up: the ranks' business. */
static bool is_ours(const char *name) {
    static const char *const ours[] = {"shard", "merge", "range_pass", "ranges"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strcmp(name, ours[i]) == 0)
            return true;
    return false;
}

/* The word after an option that has no value in its own word. */
static onq_code take_value(const char **value, int *at, int n, char **words, onq_error *err) {
    if (*value != NULL)
        return ONQ_OK;
    if (*at + 1 >= n)
        return args_fail(err, "%.100s needs a value", words[*at]);
    *value = words[++*at];
    return ONQ_OK;
}

static onq_code look_at(struct mpi_words *w, const onq_option_info *row, int *at, int n,
                        char **words, const char *value, bool *taken, onq_error *err) {
    const char **slot = strcmp(row->name, "output") == 0       ? &w->output
                        : strcmp(row->name, "table") == 0      ? &w->table
                        : strcmp(row->name, "checkpoint") == 0 ? &w->checkpoint
                                                               : NULL;
    if (slot != NULL) {
        const onq_code rc = take_value(&value, at, n, words, err);
        *slot = value;
        *taken = true;
        return rc;
    }
    if (is_ours(row->name))
        return args_fail(err, "--%s is not for onq-mpi, which cuts the job up by itself",
                         row->name);
    return ONQ_OK;
}

/* The words must make sense before any rank begins; some are for this program too. */
static onq_code check(struct mpi_words *w, onq_env *env, onq_error *err) {
    onq_options *o = NULL;
    struct args_common common = {0};
    onq_code rc = onq_options_new(env, "calibrate", &o, err);
    if (rc == ONQ_OK)
        rc = args_parse(o, w->n, w->v, &common, err);
    if (rc == ONQ_OK) {
        w->histogram = strcmp(onq_options_get(o, "method", 0), "minmax") != 0;
        w->quiet = common.quiet;
        w->json = common.json;
    }
    onq_options_free(o);
    if (rc == ONQ_OK && w->output == NULL && w->table == NULL)
        rc = args_fail(err, "--output is missing: the cache to write");
    return rc;
}

onq_code mpi_words_read(struct mpi_words *w, onq_env *env, int n, char **words, onq_error *err) {
    onq_options *o = NULL;
    onq_code rc = onq_options_new(env, "calibrate", &o, err);
    *w = (struct mpi_words){.v = calloc((size_t)n + 1, sizeof *w->v)};
    if (rc == ONQ_OK && w->v == NULL)
        rc = args_fail(err, "out of memory");
    bool options = true;
    for (int i = 0; rc == ONQ_OK && i < n; i++) {
        char name[128];
        const char *value = NULL;
        const int first = i;
        bool taken = false;
        if (strcmp(words[i], "--") == 0)
            options = false;
        const onq_option_info *row =
            options && split(words[i], name, &value) ? onq_options_find(o, name) : NULL;
        if (row != NULL)
            rc = look_at(w, row, &i, n, words, value, &taken, err);
        for (int k = first; !taken && k <= i; k++)
            w->v[w->n++] = words[k];
    }
    onq_options_free(o);
    return rc == ONQ_OK ? check(w, env, err) : rc;
}

void mpi_words_free(struct mpi_words *w) {
    free(w->v);
    *w = (struct mpi_words){0};
}
