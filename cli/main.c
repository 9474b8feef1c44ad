/*
 * main.c — the program `onq`: a command line in, a result out.
 *
 * Everything it knows about commands and options comes from the library's tables; everything it
 * does is onq_run. This file adds what a process needs: signals, exit statuses, standard output.
 */
#include "args.h"
#include "pages.h"
#include "screen.h"
#include "streams.h"

#include "base/os_program.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };
enum { WORKER_FD = 3 }; /* where the library puts its end of the socket */

/* The signal that asks to stop. Read by the progress callback, so that the job ends by itself and
 * removes what it had begun to write. */
static volatile sig_atomic_t stop_signal;

static void on_stop(int number) {
    stop_signal = number;
}

/* A library that is loaded, ONNX Runtime above all, gives up. Nothing of this program does. */
static const char aborted[] =
    "onq: error: ONNX Runtime, or a library that it loads, ended the program (its own message is "
    "above, if it left one); nothing was written (--isolate runs it apart; commands that verify "
    "their result have --no_verify)\n";

static int on_progress(void *ctx, const char *what, uint64_t done, uint64_t total) {
    screen_progress(ctx, what, done, total);
    return stop_signal != 0;
}

/* Fails with a message unless all of standard output was written. */
static int finish_output(struct screen *s, int status) {
    const int failed = fflush(stdout) != 0 || ferror(stdout);
    if (!failed)
        return status;
    if (oq_program_reader_left(errno))
        oq_program_end_by_pipe();
    char text[128];
    snprintf(text, sizeof text, "cannot write to standard output: %s", strerror(errno));
    screen_error(s, text);
    return EXIT_FAILED;
}

/* One line: what is wrong, and how to learn more. */
static int usage_error(struct screen *s, const char *command, const char *text) {
    char line[sizeof((onq_error *)0)->text + 200];
    /* The hint joins the parenthesis that a suggestion has opened. */
    size_t n = strlen(text);
    const char *join = " (";
    if (n >= 2 && text[n - 1] == ')') {
        n--;
        join = text[n - 1] == '?' ? " " : "; ";
    }
    snprintf(line, sizeof line, "%.*s%stry 'onq %s%s--help')", (int)n, text, join,
             command != NULL ? command : "", command != NULL ? " " : "");
    screen_error(s, line);
    return EXIT_USAGE;
}

/* Reports why the job failed. */
static int job_failed(struct screen *s, const char *command, onq_code rc, const onq_error *err) {
    if (rc == ONQ_E_OPTION)
        return usage_error(s, command, err->text);
    if (rc == ONQ_E_CANCEL && stop_signal != 0) {
        screen_error(s, "stopped by a signal; nothing was written");
        oq_program_end_by(stop_signal);
    }
    screen_error(s, err->text);
    return EXIT_FAILED;
}

static int run(struct screen *s, onq_env *env, const onq_options *opts,
               const struct args_common *common, const struct streams *streams,
               const char *command) {
    onq_error err = ONQ_ERROR_INIT;
    onq_result *res = NULL;
    const onq_code rc = onq_run(env, opts, &res, &err);
    screen_wipe(s);
    if (oq_program_shrunk() != NULL) {
        snprintf(err.text, sizeof err.text,
                 "%.900s: became shorter while it was read; try again when it is complete",
                 oq_program_shrunk());
        onq_result_free(res);
        return job_failed(s, command, ONQ_E_READ, &err);
    }
    if (rc != ONQ_OK)
        return job_failed(s, command, rc, &err);
    const onq_code written = streams_write(streams, res, &err);
    if (written != ONQ_OK) {
        onq_result_free(res);
        return job_failed(s, command, written, &err);
    }
    const int status = onq_result_status(res);
    FILE *const out = streams->output ? stderr : stdout;
    if (common->json)
        fputs(onq_result_json(res), out);
    else if (!common->quiet)
        fputs(onq_result_text(res), out);
    onq_result_free(res);
    return finish_output(s, status == 0 ? EXIT_DONE : EXIT_FAILED);
}

static int command_main(struct screen *s, onq_env *env, const char *command, int n_words,
                        char **words) {
    onq_error err = ONQ_ERROR_INIT;
    onq_options *opts = NULL;
    struct args_common common = {0};
    if (onq_options_new(env, command, &opts, &err) != ONQ_OK) {
        if (err.code != ONQ_E_OPTION) {
            screen_error(s, err.text);
            return EXIT_FAILED;
        }
        return usage_error(s, NULL, err.text);
    }
    int status;
    struct streams streams = {0};
    onq_code rc = args_parse(opts, n_words, words, &common, &err);
    if (rc == ONQ_OK && !common.help)
        rc = streams_open(&streams, opts, command, &err);
    s->quiet = common.quiet;
    s->verbose = common.verbose;
    if (rc == ONQ_E_OPTION) {
        status = usage_error(s, command, err.text);
    } else if (rc != ONQ_OK) {
        screen_error(s, err.text);
        status = EXIT_FAILED;
    } else if (common.help) {
        help_command(stdout, pages_command(command));
        status = finish_output(s, EXIT_DONE);
    } else {
        status = run(s, env, opts, &common, &streams, command);
    }
    onq_options_free(opts);
    streams_close(&streams);
    return status;
}

/* A page about `name`, or about all when it is NULL. */
static int page(struct screen *s, const char *name, void (*all)(FILE *),
                void (*one)(FILE *, const onq_command_info *)) {
    if (name == NULL) {
        all(stdout);
        return finish_output(s, EXIT_DONE);
    }
    const onq_command_info *c = pages_command(name);
    if (c == NULL) {
        onq_error err = ONQ_ERROR_INIT;
        args_fail(&err, "unknown command '%.100s'", name);
        return usage_error(s, NULL, err.text);
    }
    one(stdout, c);
    return finish_output(s, EXIT_DONE);
}

/* The version, and with --verbose what it works with. Only the latter opens the runtime. */
static void show_version(bool verbose) {
    onq_error err = ONQ_ERROR_INIT;
    onq_runtime_info info;
    printf("onq %s\n", onq_version());
    onq_env *env = verbose ? onq_env_new(NULL) : NULL;
    if (env == NULL)
        return;
    if (onq_runtime_query(env, NULL, &info, &err) == ONQ_OK)
        printf("ONNX Runtime %s: %s\nproviders: %s\n", info.version, info.path, info.providers);
    else
        printf("ONNX Runtime: %s\n", err.text);
    printf("processor: %s\n", info.cpu[0] != '\0' ? info.cpu : "nothing known of it");
    onq_env_free(env);
}

/* `onq --version` and similar words; -1 if it is not one of them. */
static int own_option(struct screen *s, int n, char **words) {
    const char *word = words[0], *next = n > 1 ? words[1] : NULL;
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0)
        return page(s, next, help_all, help_command);
    if (strcmp(word, "--man") == 0)
        return page(s, next, man_all, man_command);
    if (strcmp(word, "--markdown") == 0)
        return page(s, next, markdown_all, markdown_command);
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0 || strcmp(word, "version") == 0)
        show_version(next != NULL && (strcmp(next, "--verbose") == 0 || strcmp(next, "-v") == 0));
    else if (strcmp(word, "--list-commands") == 0)
        for (size_t i = 0; i < onq_command_count(); i++)
            puts(onq_command_at(i)->name);
    else if (strcmp(word, "--completion") == 0) {
        if (next == NULL || !completion(stdout, next))
            return usage_error(s, NULL, "--completion needs bash, zsh or fish");
    } else if (strcmp(word, "--complete") == 0) { /* for those scripts only */
        if (n > 2)
            complete(stdout, words[1], words[2], n - 3, words + 3);
    } else
        return -1;
    return finish_output(s, EXIT_DONE);
}

static int asked_to_stop(void) {
    return stop_signal != 0;
}

int main(int argc, char **argv) {
    struct screen screen;
    oq_program_begin(&argc, &argv);
    screen_init(&screen, "onq");
    oq_program_catch(on_stop);
    oq_program_guard();
    /* ONNX Runtime reads it when it is loaded; what the user has set stays. */
    oq_program_set_variable("ORT_DISABLE_TELEMETRY", "1");
    /* How the library starts this program for a job with --isolate. */
    if (argc == 2 && strcmp(argv[1], "--worker") == 0)
        return onq_worker_run(WORKER_FD, asked_to_stop);
    oq_program_catch_abort(aborted, EXIT_FAILED);
    if (argc < 2) {
        help_all(stderr);
        return EXIT_USAGE;
    }
    const int own = own_option(&screen, argc - 1, argv + 1);
    if (own >= 0)
        return own;
    if (argv[1][0] == '-') {
        onq_error err = ONQ_ERROR_INIT;
        args_fail(&err, "unknown option '%.100s' (options of a command come after its name)",
                  argv[1]);
        return usage_error(&screen, NULL, err.text);
    }
    onq_env *env = onq_env_new(NULL);
    if (env == NULL) {
        screen_error(&screen, "out of memory");
        return EXIT_FAILED;
    }
    onq_env_set_log(env, screen_log, &screen);
    onq_env_set_progress(env, on_progress, &screen);
    const int status = command_main(&screen, env, argv[1], argc - 2, argv + 2);
    onq_env_free(env);
    return status;
}
