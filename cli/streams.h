/*
 * streams.h — `-` for a model: standard input and standard output.
 *
 * `-i -` (and an operand, --float_model or --qdq_model that is `-`) reads a model from standard
 * input; `-o -` writes the result to standard output, whole or not at all. What is said about the
 * result goes to standard error then.
 */
#pragma once

#include <onq/onq.h>
#include <stdbool.h>

struct streams {
    unsigned char *input; /* what was read, or NULL */
    size_t input_size;
    bool output; /* the result goes to standard output */
};

/* Puts streams in the place of options that are `-`. ONQ_E_OPTION when they cannot be. */
onq_code streams_open(struct streams *s, onq_options *opts, const char *command, onq_error *err);
/* Writes the result to standard output, if it belongs there. The caller flushes. */
onq_code streams_write(const struct streams *s, const onq_result *res, onq_error *err);
void streams_close(struct streams *s);
