/*
 * complete.c — what the completion scripts ask the program for while a line is typed.
 *
 * `onq --complete KIND BEGINNING WORD...` prints, one a line, the names that begin so. KIND is
 * nodes, types or groups (of nodes), of the model on the line, or providers, of the runtime.
 * Nothing is said when there are none, for the user is in the middle of a word.
 */
#include "pages.h"

#include <stdlib.h>
#include <string.h>

/* True if the word spells the option by which the command is given its model. */
static bool names_model(const char *command, const char *word) {
    char name[64];
    onq_options *opts = NULL;
    bool found = false;
    if (strcmp(word, "-i") == 0)
        return true;
    if (strncmp(word, "--", 2) != 0 || strlen(word) >= sizeof name)
        return false;
    snprintf(name, sizeof name, "%s", word + 2);
    onq_env *env = onq_env_new(NULL);
    if (env != NULL && onq_options_new(env, command, &opts, NULL) == ONQ_OK) {
        const onq_option_info *o = onq_options_find(opts, name);
        found = o != NULL && o->letter == 'i';
    }
    onq_options_free(opts);
    onq_env_free(env);
    return found;
}

/* A word as it stands on the line: quotes around it and ~ are still there. Returns owned. */
static char *as_path(const char *word) {
    const char *home = word[0] == '~' && word[1] == '/' ? getenv("HOME") : NULL;
    const size_t n = strlen(word);
    const bool quoted = n >= 2 && (word[0] == '\'' || word[0] == '"') && word[n - 1] == word[0];
    const size_t room = n + (home != NULL ? strlen(home) : 0) + 1;
    char *path = malloc(room);
    if (path != NULL && home != NULL)
        snprintf(path, room, "%s%s", home, word + 1);
    else if (path != NULL)
        snprintf(path, quoted ? n - 1 : room, "%s", quoted ? word + 1 : word);
    return path;
}

/* The model of the line: what -i or its like names, else the first operand that is a file. A shell
 * may give --input=FILE as three words. */
static bool may_read(const char *path) {
    FILE *f = fopen(path, "rb");
    if (f != NULL)
        fclose(f);
    return f != NULL;
}

static char *model_of(int n, char **words) {
    for (int i = 1; i + 1 < n; i++) {
        const int at = strcmp(words[i + 1], "=") == 0 ? i + 2 : i + 1;
        if (at < n && names_model(words[0], words[i]))
            return as_path(words[at]);
    }
    for (int i = 1; i < n; i++) {
        const char *eq = strncmp(words[i], "--input", 7) == 0 ? strchr(words[i], '=') : NULL;
        if (eq != NULL && eq[1] != '\0')
            return as_path(eq + 1);
        if (words[i][0] != '-' && words[i - 1][0] != '-' && may_read(words[i]))
            return as_path(words[i]);
    }
    return NULL;
}

/* One name, unless a line cannot hold it. */
static void offer(FILE *f, const char *name, const char *beginning) {
    if (name[0] == '\0' || strncmp(name, beginning, strlen(beginning)) != 0)
        return;
    for (const char *p = name; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f)
            return;
    fprintf(f, "%s\n", name);
}

/* Each operator once, where it comes first. */
static bool came_before(const onq_model *m, size_t i, const char *type) {
    for (size_t k = 0; k < i; k++)
        if (strcmp(onq_model_node(m, k)->op_type, type) == 0)
            return true;
    return false;
}

static void offer_of_model(FILE *f, onq_env *env, bool nodes, const char *beginning, int n,
                           char **words) {
    onq_model *m = NULL;
    char *path = n > 0 ? model_of(n, words) : NULL;
    if (path != NULL && onq_model_open(env, path, NULL, &m, NULL) == ONQ_OK) {
        const onq_node *node;
        for (size_t i = 0; (node = onq_model_node(m, i)) != NULL; i++)
            if (nodes)
                offer(f, node->name, beginning);
            else if (!came_before(m, i, node->op_type))
                offer(f, node->op_type, beginning);
    }
    onq_model_free(m);
    free(path);
}

static void offer_providers(FILE *f, onq_env *env, const char *beginning) {
    onq_runtime_info info;
    if (onq_runtime_query(env, NULL, &info, NULL) != ONQ_OK)
        return;
    for (char *p = strtok(info.providers, ","); p != NULL; p = strtok(NULL, ",")) {
        char *tail = strstr(p, "ExecutionProvider"); /* which --provider does not need */
        if (tail != NULL)
            *tail = '\0';
        offer(f, p, beginning);
    }
}

void complete(FILE *f, const char *kind, const char *beginning, int n, char **words) {
    onq_env *env = onq_env_new(NULL);
    if (env != NULL && strcmp(kind, "providers") == 0)
        offer_providers(f, env, beginning);
    else if (env != NULL) {
        const bool groups = strcmp(kind, "groups") == 0;
        if (groups) {
            offer(f, "op_type", beginning);
            offer(f, "block", beginning);
        }
        offer_of_model(f, env, groups || strcmp(kind, "nodes") == 0, beginning, n, words);
    }
    onq_env_free(env);
}

const char *complete_kind(const onq_option_info *o) {
    if (o->type == ONQ_OPT_LIST && strcmp(o->word, "NODE") == 0)
        return "nodes";
    if (o->type == ONQ_OPT_LIST && strcmp(o->word, "TYPE") == 0)
        return "types";
    if (o->type == ONQ_OPT_LIST && strcmp(o->word, "GROUP") == 0)
        return "groups";
    return strcmp(o->word, "PROVIDER") == 0 ? "providers" : NULL;
}
