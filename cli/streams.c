/*
 * streams.c — see streams.h.
 */
#include "streams.h"

#include "args.h"
#include "base/os_program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_dash(const char *text) {
    return text != NULL && strcmp(text, "-") == 0;
}

static onq_code fail(onq_error *err, onq_code code, const char *text) {
    args_fail(err, "%s", text);
    return err->code = code;
}

static onq_code read_input(struct streams *s, onq_error *err) {
    size_t room = 0;
    for (;;) {
        if (s->input_size == room) {
            const size_t more = room == 0 ? (size_t)1 << 20 : room * 2;
            unsigned char *grown = more > room ? realloc(s->input, more) : NULL;
            if (grown == NULL)
                return fail(err, ONQ_E_NOMEM, "standard input: out of memory");
            s->input = grown;
            room = more;
        }
        const int64_t got = oq_program_read_input(s->input + s->input_size, room - s->input_size);
        if (got == 0)
            return ONQ_OK;
        if (got < 0 && errno != EINTR)
            return fail(err, ONQ_E_READ, "standard input cannot be read");
        if (got > 0)
            s->input_size += (size_t)got;
    }
}

static onq_code give_input(struct streams *s, onq_options *opts, const char *name, onq_error *err) {
    if (s->input != NULL)
        return fail(err, ONQ_E_OPTION, "standard input can be read once (name a file)");
    const onq_code rc = read_input(s, err);
    if (rc != ONQ_OK)
        return rc;
    const onq_bytes bytes = {.label = "<stdin>", .data = s->input, .size = s->input_size};
    return onq_options_set_bytes(opts, name, &bytes, err);
}

/* Operands are set again, in their order. */
static onq_code take_operands(struct streams *s, onq_options *opts, onq_error *err) {
    size_t n = 0, dashes = 0;
    for (const char *text; (text = onq_options_get(opts, "operand", n)) != NULL; n++)
        dashes += is_dash(text);
    if (dashes == 0)
        return ONQ_OK;
    const char **words = malloc(n * sizeof *words);
    if (words == NULL)
        return fail(err, ONQ_E_NOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        words[i] = onq_options_get(opts, "operand", i);
    onq_code rc = onq_options_clear(opts, "operand", err);
    for (size_t i = 0; rc == ONQ_OK && i < n; i++)
        rc = is_dash(words[i]) ? give_input(s, opts, "operand", err)
                               : onq_options_add(opts, "operand", words[i], err);
    free(words);
    return rc;
}

static onq_code take_output(struct streams *s, onq_options *opts, onq_error *err) {
    const onq_option_info *row = onq_options_find(opts, "output");
    if (row == NULL || !is_dash(onq_options_get(opts, "output", 0)))
        return ONQ_OK;
    if (strcmp(row->word, "DIR") == 0)
        return fail(err, ONQ_E_OPTION, "--output -: is a folder, not a stream");
    const char *external = onq_options_get(opts, "use_external_data_format", 0);
    if (external != NULL && strcmp(external, "true") == 0)
        return fail(err, ONQ_E_OPTION,
                    "--use_external_data_format writes two files, and --output - is one stream");
    if (oq_program_is_terminal(stdout))
        return fail(err, ONQ_E_OPTION, "--output -: standard output is a terminal (redirect it)");
    s->output = true;
    return onq_options_want_bytes(opts, "output", "<stdout>", err);
}

onq_code streams_open(struct streams *s, onq_options *opts, const char *command, onq_error *err) {
    static const char *const models[] = {"input", "float_model", "qdq_model"};
    const bool takes = strcmp(command, "ops") != 0; /* its operands are names */
    onq_code rc = takes ? take_operands(s, opts, err) : ONQ_OK;
    for (size_t i = 0; rc == ONQ_OK && i < sizeof models / sizeof *models; i++)
        if (onq_options_find(opts, models[i]) != NULL &&
            is_dash(onq_options_get(opts, models[i], 0)))
            rc = give_input(s, opts, models[i], err);
    if (rc == ONQ_OK && s->input != NULL && onq_options_find(opts, "data") != NULL &&
        is_dash(onq_options_get(opts, "data", 0)))
        rc = fail(err, ONQ_E_OPTION, "standard input can be read once (name a file)");
    return rc == ONQ_OK ? take_output(s, opts, err) : rc;
}

onq_code streams_write(const struct streams *s, const onq_result *res, onq_error *err) {
    const onq_file *file = s->output ? onq_result_file(res, 0) : NULL;
    if (file == NULL)
        return ONQ_OK;
    if (onq_result_file(res, 1) != NULL)
        return fail(err, ONQ_E_LIMIT,
                    "the result is larger than 2 GB and has external data, which standard output "
                    "cannot carry (name a file)");
    fwrite(file->data, 1, file->size, stdout);
    return ONQ_OK;
}

void streams_close(struct streams *s) {
    free(s->input);
    *s = (struct streams){0};
}
