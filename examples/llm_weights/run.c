/*
 * run.c MODEL OUTPUT DB — weights of 4 bits where that is good enough, of 8 bits where it is not: those
 * that keep less than DB decibels of signal over the noise of rounding get twice as many. No samples and
 * no runtime are needed.
 */
#include "../common.h"

#include <string.h>

/* The node that reads a tensor. */
static const char *reader_of(const onq_model *model, const char *tensor) {
    const onq_node *node = NULL;
    for (size_t i = 0; (node = onq_model_node(model, i)) != NULL; i++)
        for (size_t k = 0; k < node->n_inputs; k++)
            if (strcmp(node->inputs[k], tensor) == 0)
                return node->name;
    return NULL;
}

/* Settings of single nodes, as --node_config has them: those that lose too much. */
static onq_code choose(onq_env *env, const char *model, const char *quantized, double least,
                       char *json, size_t room, onq_error *err) {
    onq_model *listed = NULL;
    onq_weight_match *match = NULL;
    size_t used = (size_t)snprintf(json, room, "{");
    onq_code rc = onq_model_open(env, model, NULL, &listed, err);
    if (rc == ONQ_OK)
        rc = onq_weight_match_new(env, model, quantized, 1, &match, err);
    const size_t n = rc == ONQ_OK ? onq_weight_match_count(match) : 0;
    for (size_t i = 0; i < n && rc == ONQ_OK; i++) {
        const char *weight = onq_weight_match_name(match, i);
        const char *node = reader_of(listed, weight);
        double sqnr = 0;
        rc = onq_weight_match_error(match, i, &sqnr, err);
        const int more = rc == ONQ_OK && node != NULL && sqnr < least;
        if (rc == ONQ_OK)
            printf("%6.2f dB  %d bits  %s\n", sqnr, more ? 8 : 4, weight);
        if (more && used < room)
            used += (size_t)snprintf(json + used, room - used, "%s\"%s\": {\"bits\": 8}",
                                     used > 1 ? ", " : "", node);
    }
    if (used < room)
        used += (size_t)snprintf(json + used, room - used, "}");
    onq_weight_match_free(match);
    onq_model_free(listed);
    if (rc == ONQ_OK && used >= room) {
        fprintf(stderr, "too many nodes for this program\n");
        rc = ONQ_E_NOMEM;
    }
    return rc;
}

int main(int argc, char **argv) {
    static char json[1 << 16];
    onq_error err = ONQ_ERROR_INIT;
    onq_env *env = onq_env_new(NULL);
    int status = 1;
    if (env == NULL || argc != 4) {
        fprintf(stderr, "usage: run MODEL OUTPUT DB\n");
        onq_env_free(env);
        return 1;
    }
    const char *const four[] = {"input",      argv[1], "output", argv[2], "bits", "4",
                                "block_size", "32",    "verify", "false", NULL};
    const char *const mixed[] = {"input",       argv[1],      "output", argv[2],  "bits",
                                 "4",           "block_size", "32",     "verify", "false",
                                 "node_config", json,         NULL};
    if (!job(env, "nbits", four))
        goto done;
    if (choose(env, argv[1], argv[2], strtod(argv[3], NULL), json, sizeof json, &err) != ONQ_OK)
        fprintf(stderr, "%s\n", err.text);
    else
        status = job(env, "nbits", mixed) ? 0 : 1;
done:
    onq_env_free(env);
    return status;
}
