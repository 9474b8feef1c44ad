/*
 * args.h — turns the words of the command line into onq_options_set calls, by the option table.
 *
 * Conventions: --name value, --name=value, -x value, -xvalue; - and _ alike in names; a flag needs
 * no value but may have true or false; a list takes several words, up to the next option; `--` ends
 * the options; a value that begins with - is written --name=-value unless it is a number.
 */
#pragma once

#include <onq/onq.h>
#include <stdbool.h>

/* The options of every command that the program itself reads. */
struct args_common {
    bool help;
    bool quiet;
    bool json;
    int verbose;
};

/* Sets `words` in opts. ONQ_E_OPTION and a message in err when the command line is wrong. */
onq_code args_parse(onq_options *opts, int n_words, char **words, struct args_common *common,
                    onq_error *err);
/* 1 if this word is a spelling of true, 0 if it is one of false, -1 if neither. */
int args_truth(const char *word);
/* Sets err to a message about the command line; returns ONQ_E_OPTION. Control bytes are escaped. */
onq_code args_fail(onq_error *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
