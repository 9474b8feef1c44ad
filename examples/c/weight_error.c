/*
 * weight_error.c FLOAT QUANTIZED — how far the weights of a quantized model are from the float
 * model's, in dB, the worst first. No runtime is needed.
 */
#include <onq/onq.h>
#include <stdio.h>
#include <stdlib.h>

struct row {
    const char *name;
    double sqnr;
};

static int worst_first(const void *a, const void *b) {
    const double x = ((const struct row *)a)->sqnr, y = ((const struct row *)b)->sqnr;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    onq_error err = ONQ_ERROR_INIT;
    onq_env *env = onq_env_new(NULL);
    onq_weight_match *match = NULL;
    struct row *rows = NULL;
    size_t n = 0;
    onq_code rc = ONQ_E_OPTION;
    if (env == NULL || argc != 3) {
        fprintf(stderr, "usage: weight_error FLOAT QUANTIZED\n");
        onq_env_free(env);
        return 1;
    }
    rc = onq_weight_match_new(env, argv[1], argv[2], 1, &match, &err);
    if (rc == ONQ_OK) {
        n = onq_weight_match_count(match);
        rows = calloc(n + 1, sizeof *rows);
    }
    for (size_t i = 0; rc == ONQ_OK && rows != NULL && i < n; i++) {
        rows[i].name = onq_weight_match_name(match, i);
        rc = onq_weight_match_error(match, i, &rows[i].sqnr, &err);
    }
    if (rc == ONQ_OK && rows != NULL) {
        qsort(rows, n, sizeof *rows, worst_first);
        for (size_t i = 0; i < n; i++)
            printf("%7.2f dB  %s\n", rows[i].sqnr, rows[i].name);
    } else {
        fprintf(stderr, "%s\n", rc == ONQ_OK ? "out of memory" : err.text);
        rc = rc == ONQ_OK ? ONQ_E_NOMEM : rc;
    }
    free(rows);
    onq_weight_match_free(match);
    onq_env_free(env);
    return rc == ONQ_OK ? 0 : 1;
}
