/*
 * mpi_words.h — the command line of `onq-mpi calibrate`: what goes to every rank, and what is the
 * program's own.
 */
#pragma once

#include <onq/onq.h>
#include <stdbool.h>

struct mpi_words {
    char **v; /* the words for the shares: all but those below */
    int n;
    const char *output, *table, *checkpoint; /* NULL: not given; point into the words */
    bool histogram;                          /* the method takes two rounds */
    bool quiet, json;
};

/* Sorts the words by the option table. ONQ_E_OPTION for what a rank may not be told. */
onq_code mpi_words_read(struct mpi_words *w, onq_env *env, int n, char **words, onq_error *err);
void mpi_words_free(struct mpi_words *w);
